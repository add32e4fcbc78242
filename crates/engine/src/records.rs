//! What management keeps on the SSD about its pool, in its two copies.
//!
//! One copy is whole at any moment: the second is written when the first is flushed. A record of another pool, which was on the SSD
//! before, counts as none.

use crate::medium::{Medium, MediumError};
use crate::superblock::OpenError;
use alloc::vec;
use format::layout::SuperblockSlot;
use format::records::{PoolRecords, RECORDS_SLOT_BYTES, records_offset_bytes};
use format::{DecodeError, PAGE_BYTES};

/// What was found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// The newer of two whole copies.
    pub records: Option<PoolRecords>,
    /// Copies that are not intact, or cannot be read.
    pub damaged: u32,
}

/// One copy as found. The error of the outer result is the medium's.
pub(crate) fn read_copy(medium: &mut dyn Medium, slot: SuperblockSlot) -> Result<Result<PoolRecords, DecodeError>, MediumError> {
    let offset_bytes = records_offset_bytes(slot);
    if offset_bytes + RECORDS_SLOT_BYTES > medium.size_bytes() {
        return Ok(Err(DecodeError::Magic));
    }
    let mut bytes = vec![0; RECORDS_SLOT_BYTES as usize];
    medium.read(offset_bytes, &mut bytes)?;
    Ok(PoolRecords::decode(&bytes))
}

/// The record of that pool on the medium.
///
/// # Errors
/// If a newer release wrote it; or if a copy cannot be read, and the other one is not whole.
pub fn load(medium: &mut dyn Medium, uuid: [u8; 16]) -> Result<Found, OpenError> {
    let (mut found, mut unread) = (Found::default(), None);
    for slot in SuperblockSlot::ALL {
        match read_copy(medium, slot) {
            Ok(Ok(records)) if records.uuid == uuid => {
                found.records = found.records.filter(|other| other.serial >= records.serial).or(Some(records));
            }
            Ok(Ok(_) | Err(DecodeError::Magic)) => {}
            Ok(Err(DecodeError::Version { found })) => return Err(OpenError::NewerVersion { found }),
            Ok(Err(DecodeError::Checksum | DecodeError::Field { .. })) => found.damaged += 1,
            Err(error) => {
                found.damaged += 1;
                unread = Some(error);
            }
        }
    }
    match unread {
        Some(error) if found.records.is_none() => Err(error.into()),
        _ => Ok(found),
    }
}

/// Stores the record in both copies. When this returns, it survives any crash and the loss of one copy.
///
/// # Errors
/// What the medium says; then it has the old record or the new one.
///
/// # Panics
/// If the record is longer than its place.
pub fn store(medium: &mut dyn Medium, records: &PoolRecords) -> Result<(), OpenError> {
    let bytes = records.encode();
    for slot in SuperblockSlot::ALL {
        medium.write(records_offset_bytes(slot), &bytes)?;
        medium.flush()?;
    }
    Ok(())
}

/// Makes the medium carry no record.
///
/// # Errors
/// What the medium says.
pub fn wipe(medium: &mut dyn Medium) -> Result<(), OpenError> {
    for slot in SuperblockSlot::ALL {
        if records_offset_bytes(slot) + RECORDS_SLOT_BYTES <= medium.size_bytes() {
            medium.write(records_offset_bytes(slot), &[0; PAGE_BYTES])?;
        }
    }
    Ok(medium.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const UUID: [u8; 16] = [3; 16];
    const CUT: MediumError = MediumError { operation: "write", offset_bytes: 0, errno: 5 };

    /// A medium whose power goes at a write or flush, with any part of what was not flushed kept.
    struct Cut {
        bytes: Vec<u8>,
        durable: Vec<u8>,
        left: u32,
        kept_sectors: usize,
    }

    impl Cut {
        fn new(kept_sectors: usize) -> Cut {
            Cut { bytes: vec![0; 1 << 20], durable: vec![0; 1 << 20], left: u32::MAX, kept_sectors }
        }

        fn step(&mut self) -> Result<(), MediumError> {
            self.left = self.left.checked_sub(1).ok_or(CUT)?;
            Ok(())
        }

        fn power_comes_back(&mut self) {
            self.bytes.clone_from(&self.durable);
            self.left = u32::MAX;
        }
    }

    impl Medium for Cut {
        fn size_bytes(&self) -> u64 {
            self.bytes.len() as u64
        }

        fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), MediumError> {
            into.copy_from_slice(&self.bytes[offset_bytes as usize..][..into.len()]);
            Ok(())
        }

        fn write(&mut self, offset_bytes: u64, from: &[u8]) -> Result<(), MediumError> {
            let at = offset_bytes as usize;
            if self.step().is_err() {
                let kept = (self.kept_sectors * 512).min(from.len());
                self.durable[at..at + kept].copy_from_slice(&from[..kept]);
                return Err(CUT);
            }
            self.bytes[at..at + from.len()].copy_from_slice(from);
            Ok(())
        }

        fn flush(&mut self) -> Result<(), MediumError> {
            self.step()?;
            self.durable.clone_from(&self.bytes);
            Ok(())
        }

        fn discard(&mut self, _: u64, _: u64) -> Result<(), MediumError> {
            Ok(())
        }
    }

    fn record(serial: u64) -> PoolRecords {
        PoolRecords { uuid: UUID, serial, content: vec![serial as u8; 9000] }
    }

    #[test]
    fn a_cut_at_any_step_leaves_the_old_record_or_the_new_one() {
        for steps in 0..=4 {
            for kept_sectors in [0, 1, 3, 8, 32] {
                let mut medium = Cut::new(kept_sectors);
                assert_eq!(load(&mut medium, UUID), Ok(Found::default()));
                store(&mut medium, &record(1)).expect("nothing fails");
                medium.left = steps;
                assert_eq!(store(&mut medium, &record(2)).is_ok(), steps == 4);
                medium.power_comes_back();
                let found = load(&mut medium, UUID).expect("it can be read").records.expect("one copy is whole");
                assert!(found == record(1) && steps < 4 || found == record(2), "{steps} steps, {kept_sectors} sectors: {}", found.serial);
                store(&mut medium, &record(3)).expect("nothing fails");
                assert_eq!(load(&mut medium, UUID), Ok(Found { records: Some(record(3)), damaged: 0 }));
            }
        }
    }

    #[test]
    fn a_record_of_another_pool_is_none_and_damage_is_counted() {
        let mut medium = Cut::new(0);
        store(&mut medium, &record(5)).expect("nothing fails");
        assert_eq!(load(&mut medium, [4; 16]), Ok(Found::default()));
        let [a, b] = SuperblockSlot::ALL.map(|slot| records_offset_bytes(slot) as usize);
        medium.bytes[a + 70] ^= 1;
        assert_eq!(load(&mut medium, UUID), Ok(Found { records: Some(record(5)), damaged: 1 }));
        medium.bytes[b + 70] ^= 1;
        assert_eq!(load(&mut medium, UUID), Ok(Found { records: None, damaged: 2 }));
        wipe(&mut medium).expect("nothing fails");
        assert_eq!(load(&mut medium, UUID), Ok(Found::default()));
    }
}
