//! What the model has little or nothing of: exports, shares, disks, taps.

use super::{World, told};
use api::error::ControlError;
use api::words::Export;
use datapath::Piece;
use datapath::{Disks, Exports, Growth, Offer, Shares, Taps, Waits, Warming, Withdrawal};
use records::state::{DiskRecord, VolumeRecord};
use types::BLOCK_BYTES;

impl Growth for World {
    fn grow(&self, volume: &VolumeRecord) -> Result<Vec<String>, ControlError> {
        unreachable!("the devices of this world keep their size, also that of {}", volume.name)
    }
}

impl Disks for World {
    fn attach_disk(&self, disk: &DiskRecord) -> Result<u32, ControlError> {
        unreachable!("this world has no disks, nor {}", disk.name)
    }
}

impl Exports for World {
    fn export(&self, volume: &VolumeRecord, export: &Export) -> Result<Offer, ControlError> {
        Ok(Offer { place: format!("/{export}/{}", volume.name), ..Offer::default() })
    }

    fn unexport(&self, _volume: &VolumeRecord, _export: &Export, _how: Withdrawal) -> Result<Option<String>, ControlError> {
        Ok(None)
    }

    fn export_in_use(&self, _volume: &VolumeRecord, _export: &Export) -> Option<String> {
        None
    }

    fn finish(&self) {}
}

impl Shares for World {}

impl Waits for World {}

impl Taps for World {}

impl Warming for World {
    fn warm(&self, volume: &VolumeRecord, pieces: &[Piece]) -> (usize, Result<(), ControlError>) {
        for (nth, piece) in pieces.iter().enumerate() {
            for block in piece.at_bytes / BLOCK_BYTES..piece.end_bytes() / BLOCK_BYTES {
                if let Err(error) = self.read_to_warm(&volume.name, block, piece.is_kept) {
                    return (nth, Err(told(&volume.backing, &format!("a read failed ({error:?})"))));
                }
            }
        }
        (pieces.len(), Ok(()))
    }
}
