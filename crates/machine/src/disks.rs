//! Disks beside the cache on a pool's SSD: their table on the SSD, their room, and serving them. A disk is a part of the device and nothing else: no
//! cache, no checksum.

use super::pools::LivePool;
use super::volumes::{Backing, LiveVolume};
use super::{Machine, devices, failed, locked};
use api::error::ControlError;
use datapath::{DeviceUse, Disks};
use device::{Access, BlockingDevice};
use engine::disks::{self, Mended};
use engine::medium::Medium;
use format::disks::{DiskPlace, DiskTable, Piece};
use records::state::{DiskRecord, PoolPhase, PoolRecord, Span};
use runtime::{BareVolumeOptions, DeviceOptions, Part, SsdMedium};
use std::sync::{Arc, Mutex};

impl Machine {
    /// Does something with the SSD of a pool beside its shards, whether it runs or not.
    fn with_ssd<T>(&self, pool: &PoolRecord, work: impl FnOnce(&mut dyn Medium) -> Result<T, ControlError>) -> Result<T, ControlError> {
        if let Ok(live) = self.pool(&pool.name) {
            return live.with_medium(work);
        }
        let ssd = devices::open(&pool.ssd, Access::ReadWrite)?;
        let mut medium = SsdMedium(ssd.blocking().map_err(|e| failed(e, ""))?);
        // Another disk may have the name that the SSD had: nothing is written to that.
        let carried = engine::superblock::load(&mut medium).map(|state| state.superblock.uuid);
        let former = match pool.phase {
            PoolPhase::Reformatting { former } => Some(former),
            _ => None,
        };
        if !carried.is_ok_and(|uuid| uuid == pool.uuid.into_bytes() || former.is_some_and(|former| former.into_bytes() == uuid)) {
            return Err(failed(format!("{} does not carry the pool \"{}\"", pool.ssd, pool.name), "reconnect its SSD"));
        }
        work(&mut medium)
    }
}

/// What a disk consists of.
fn parts_of(disk: &DiskRecord) -> Vec<Part> {
    disk.pieces.iter().map(|piece| Part { from_bytes: piece.at_bytes, length_bytes: piece.bytes() }).collect()
}

/// Whether all of a range lies in some of these.
fn is_covered(from: u64, to: u64, ranges: &[(u64, u64)]) -> bool {
    let mut at = from;
    while at < to {
        let Some((_, end)) = ranges.iter().find(|(begin, end)| *begin <= at && at < *end) else { return false };
        at = *end;
    }
    true
}

/// Where a disk lies on record, with lengths.
fn spans_of(disk: &DiskRecord) -> impl Iterator<Item = (u64, u64)> {
    disk.pieces.iter().map(|piece| (piece.at_bytes, piece.bytes()))
}

/// Whether the SSD's table has all that is on record of the disk. It may have more, of a change that was not finished.
fn has_all(place: &DiskPlace, disk: &DiskRecord) -> bool {
    let is_within = |(piece, stored): (&Span, &Piece)| stored.offset_bytes == piece.at_bytes && stored.size_bytes >= piece.bytes();
    place.pieces.len() >= disk.pieces.len() && disk.pieces.iter().zip(&place.pieces).all(is_within)
}

/// The table of a pool's disks; `None` if it has no room for them.
fn table_of(pool: &PoolRecord, all: &[DiskRecord]) -> Option<DiskTable> {
    let room = pool.disk_room?;
    let place = |disk: &DiskRecord| DiskPlace {
        uuid: disk.uuid.into_bytes(),
        name: disk.name.clone(),
        pieces: disk.pieces.iter().map(|piece| Piece { offset_bytes: piece.at_bytes, size_bytes: piece.bytes() }).collect(),
    };
    let disks = all.iter().filter(|disk| disk.pool == pool.name).map(place).collect();
    Some(DiskTable { generation: 0, room_at_bytes: room.at_bytes, room_end_bytes: room.end_bytes, disks })
}

/// Whether the log of a pool may be made where its record says: never over a disk.
pub(super) fn check_log(medium: &mut dyn Medium, log_bytes: u64) -> Result<(), ControlError> {
    match disks::may_format(medium, log_bytes).map_err(|e| failed(e, "check the SSD"))? {
        true => Ok(()),
        false => Err(failed("a disk lies where the cache would be", "remove the disk first, or give the cache less of the SSD")),
    }
}

impl LivePool {
    /// Does something with the SSD beside the shards.
    pub(super) fn with_medium<T>(&self, work: impl FnOnce(&mut dyn Medium) -> Result<T, ControlError>) -> Result<T, ControlError> {
        work(locked(self.root()).medium())
    }
}

impl Disks for Machine {
    /// See [`datapath::Disks::check_disks`].
    fn check_disks(&self, pool: &PoolRecord, all: &[DiskRecord]) -> Result<(), ControlError> {
        let table = self.with_ssd(pool, |medium| disks::load(medium).map_err(|e| failed(e, "check the SSD")))?;
        let is_known = |place: &&DiskPlace| {
            let pieces = |disk: &DiskRecord| place.pieces.iter().map(|piece| (piece.offset_bytes, piece.size_bytes)).eq(spans_of(disk));
            all.iter().any(|disk| disk.uuid.into_bytes() == place.uuid && pieces(disk))
        };
        let Some(strange) = table.iter().flat_map(|table| &table.disks).find(|place| !is_known(place)) else { return Ok(()) };
        let problem = format!(
            "the SSD {} lists the disk \"{}\", which hearth does not know as it is there: hearth's state is older than the SSD",
            pool.ssd, strange.name
        );
        Err(failed(problem, "restore the newest state.json and start the daemon again; disks that are known are served meanwhile"))
    }

    /// Puts the places of all disks on the SSD, durably.
    fn write_disks(&self, pool: &PoolRecord, all: &[DiskRecord]) -> Result<(), ControlError> {
        let erased = locked(&self.erased).remove(&pool.uuid).unwrap_or_default();
        self.with_ssd(pool, |medium| match table_of(pool, all) {
            Some(mut table) => {
                let stored = disks::load(medium).map_err(|e| failed(e, "check the SSD"))?.map_or(Vec::new(), |table| table.disks);
                // A disk that this SSD does not have is not made by a line in its table: what lies there is somebody else's.
                table.disks.retain(|disk| {
                    let has = stored.iter().filter(|stored| stored.uuid == disk.uuid).flat_map(|stored| &stored.pieces);
                    let has = has.map(|piece| (piece.offset_bytes, piece.offset_bytes + piece.size_bytes));
                    let own: Vec<(u64, u64)> = has.chain(erased.iter().copied()).collect();
                    disk.pieces.iter().all(|piece| is_covered(piece.offset_bytes, piece.offset_bytes + piece.size_bytes, &own))
                });
                disks::store(medium, &mut table).map_err(|e| failed(e, "check the SSD"))
            }
            None => disks::wipe(medium).map_err(|e| failed(e, "check the SSD")),
        })
    }

    /// Puts the table right where a copy of it cannot be read: from the other copy or, where neither can be read, from the record.
    fn mend_disks(&self, pool: &PoolRecord, all: &[DiskRecord]) -> Result<Option<String>, ControlError> {
        let Some(mut known) = table_of(pool, all) else { return Ok(None) };
        let mended =
            self.pool(&pool.name)?.with_medium(|medium| disks::mend(medium, &mut known).map_err(|e| failed(e, "check the SSD")))?;
        Ok(match mended {
            Mended::Nothing => None,
            Mended::OneCopy => {
                Some("one of the two copies of the table of its disks was damaged: it is written again from the other".into())
            }
            Mended::Both => {
                Some("both copies of the table of its disks were damaged: they are written again as the daemon knows them".into())
            }
        })
    }

    /// Overwrites a part of the SSD that a disk gets with zeroes, durably: what was cached there is nobody else's business.
    fn erase_disk(&self, pool: &PoolRecord, from_bytes: u64, length_bytes: u64) -> Result<(), ControlError> {
        let live = self.pool(&pool.name)?;
        if from_bytes < live.log_end_bytes() {
            return Err(failed("the cache of the pool lies there", "report this: no disk may be given that room"));
        }
        let blocking = live.opened().blocking().map_err(|e| failed(e, "raise the limit on open files"))?;
        blocking.write_zeroes(from_bytes, length_bytes).and_then(|()| blocking.flush()).map_err(|e| failed(e, "check the SSD"))?;
        locked(&self.erased).entry(pool.uuid).or_default().push((from_bytes, from_bytes + length_bytes));
        Ok(())
    }

    /// Serves a disk whose pool runs, if the SSD says too that it lies there. Gives its sector size.
    fn attach_disk(&self, disk: &DiskRecord) -> Result<u32, ControlError> {
        let pool = self.pool(&disk.pool)?;
        let log_end_bytes = pool.log_end_bytes();
        let table = pool.with_medium(|medium| disks::load(medium).map_err(|e| failed(e, "check the SSD")))?;
        let place = table.and_then(|table| table.disks.into_iter().find(|place| place.uuid == disk.uuid.into_bytes()));
        if !place.is_some_and(|place| has_all(&place, disk)) || log_end_bytes > disk.first_byte() {
            let remedy = "restore the SSD, or remove the disk with `hearth disk remove`";
            return Err(failed(format!("the SSD {} does not have this disk where it was", pool.ssd_name()), remedy));
        }
        let opened = pool.opened().another_handle().map_err(|e| failed(e, "raise the limit on open files"))?;
        let mut geometry = opened.geometry();
        if disk.pieces.iter().any(|piece| piece.end_bytes > geometry.size_bytes) {
            return Err(failed(format!("the SSD {} is smaller than it was", pool.ssd_name()), "restore the SSD, or remove the disk"));
        }
        geometry.size_bytes -= geometry.size_bytes % types::BLOCK_BYTES;
        let file = opened.file().try_clone().map_err(|e| failed(e, "raise the limit on open files"))?;
        let name = format!("{} (disk {})", pool.ssd_name(), disk.name);
        let options = DeviceOptions { name, file, geometry, model: None };
        let device = self.runtime.open_device(options).map_err(|e| failed(e, "raise the limit on open files"))?;
        self.note_use(&device, DeviceUse::Backing { volume: disk.name.clone(), pool: disk.pool.clone() }, None);
        let options = BareVolumeOptions { name: disk.name.clone(), read_only: false };
        let reference = match self.runtime.add_parts_of_device(&device, parts_of(disk), options) {
            Ok(reference) => reference,
            Err(error) => {
                self.close_backing(Backing { device, opened });
                return Err(failed(error, ""));
            }
        };
        let owner = export::Owner(u128::from_be_bytes(disk.uuid.into_bytes()));
        let backing = Mutex::new(Some(Backing { device, opened }));
        let live = LiveVolume { owner, reference, backing, cached: None };
        let sector_bytes = live.reference.logical_block_bytes();
        locked(&self.volumes).insert(disk.name.clone(), Arc::new(live));
        Ok(sector_bytes)
    }

    /// Serves a disk with the size of its record, which has grown.
    fn grow_disk(&self, disk: &DiskRecord) -> Result<Vec<String>, ControlError> {
        let live = self.volume(&disk.name)?;
        self.runtime.grow_parts(&live.reference, parts_of(disk));
        Ok(self.capacity_changed(&live))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_may_lie_in_several() {
        let ranges = [(10, 20), (0, 10), (30, 40)];
        assert!(is_covered(0, 20, &ranges) && is_covered(5, 15, &ranges) && is_covered(30, 40, &ranges) && is_covered(7, 7, &[]));
        assert!(!is_covered(15, 31, &ranges) && !is_covered(39, 41, &ranges) && !is_covered(20, 21, &ranges));
    }
}
