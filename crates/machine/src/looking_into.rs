//! What an SSD holds, without a pool of this daemon: looked at and not changed.

use super::assembly::{open_error_at, what_is_upgraded, why_not_upgraded};
use super::{Machine, devices, failed};
use ::records::on_ssd::{PoolCopy, Said};
use ::records::ssd_content::{SsdContent, VolumeOnSsd};
use ::records::state::Span;
use api::error::ControlError;
use device::Access;
use engine::inspect::{self, VolumeInspection};
use engine::medium::Medium;
use engine::store::upgrade::{self, UpgradeError};
use engine::superblock::{self, OpenError, PoolState};
use engine::{disks, records};
use format::disks::DiskTable;
use runtime::SsdMedium;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};
use types::{BLOCK_BYTES, Content, ShardIndex};
use uuid::Uuid;

impl Machine {
    /// See [`datapath::Facts::look_into_ssd`].
    pub(super) fn content_of_ssd(&self, path: &str) -> Result<SsdContent, ControlError> {
        let ssd = devices::open(path, Access::ReadOnly)?;
        let medium = || ssd.blocking().map(SsdMedium).map_err(|e| failed(e, "raise the limit on open files"));
        let open = || medium().map(|medium| Box::new(medium) as Box<dyn Medium + Send>);
        let threads = 2 * std::thread::available_parallelism().map_or(1, usize::from);
        look_into(path, &open, threads)
    }
}

/// The content of a medium that carries a pool.
pub fn look_into(path: &str, open: super::assembly::OpenMedium, threads: usize) -> Result<SsdContent, ControlError> {
    let mut medium = open()?;
    let pool = superblock::load(&mut *medium).map_err(|e| open_error_at(path, e))?;
    let superblock = &pool.superblock;
    let mut content = SsdContent {
        uuid: Uuid::from_bytes(superblock.uuid),
        session: superblock.session,
        size_bytes: superblock.layout.ssd_bytes,
        spare_percent: superblock.layout.spare_percent(),
        clean: superblock.clean,
        ..SsdContent::default()
    };
    let found = records::load(&mut *medium, superblock.uuid).map_err(|e| open_error_at(path, e))?;
    content.said = Said {
        serial: found.records.as_ref().map_or(0, |records| records.serial),
        copy: found.records.map(|records| PoolCopy::decode(&records.content)),
        next_volume_id: superblock.next_volume_id.0,
    };
    match disks::load(&mut *medium) {
        Ok(table) => table.into_iter().for_each(|table| take_disks(&mut content, table)),
        Err(error) => content.problems.push(error.to_string()),
    }
    let counts = count(&pool, open, threads)?;
    content.log = look_at_log(path, false, content.said.copy.as_ref(), &pool, &mut *medium)?;
    content.volumes = superblock
        .volumes
        .iter()
        .map(|volume| {
            let (clean, dirty) = counts.get(&volume.id.0).copied().unwrap_or_default();
            VolumeOnSsd {
                id: volume.id.0,
                uuid: Uuid::from_bytes(volume.uuid),
                name: volume.name.clone(),
                size_bytes: volume.size_bytes,
                mode: volume.mode,
                may_have_dirty: volume.may_have_dirty,
                dirty_bytes: dirty * BLOCK_BYTES,
                clean_bytes: clean * BLOCK_BYTES,
            }
        })
        .collect();
    Ok(content)
}

/// What a start would make of a log, as a clause; why it cannot, and what to do. `None` if there is no log.
pub type Outlook = Option<Result<String, (String, String)>>;

/// The same of a medium without a daemon: nothing is written. `None` also if the medium carries no pool that can be read.
pub fn outlook_of_log(path: &str, medium: &mut dyn Medium) -> Outlook {
    let pool = superblock::load(medium).ok()?;
    let copy = records::load(medium, pool.superblock.uuid).ok()?.records.map(|records| PoolCopy::decode(&records.content));
    look_at_log(path, true, copy.as_ref(), &pool, medium).ok()?
}

/// `is_here`: the pool of the copy is one of this machine.
fn look_at_log(
    path: &str,
    is_here: bool,
    copy: Option<&Result<PoolCopy, String>>,
    pool: &PoolState,
    medium: &mut dyn Medium,
) -> Result<Outlook, ControlError> {
    if pool.superblock.layout.has_slots() {
        return Ok(None);
    }
    let record = copy.and_then(|copy| copy.as_ref().ok()).map(|copy| &copy.pool);
    let name = record.filter(|_| is_here).map(|record| record.name.as_str());
    let level = record.map_or_else(Content::default, |record| record.content);
    match upgrade::look(medium, pool, level != Content::Off) {
        Ok(shards) => Ok(Some(Ok(what_is_upgraded(&shards)))),
        Err(UpgradeError::Open(error @ OpenError::Medium(_))) => Err(open_error_at(path, error)),
        Err(error) => Ok(Some(Err(why_not_upgraded(name, path, &error)))),
    }
}

/// Clean and dirty blocks by number of the volume; all shards side by side.
fn count(pool: &PoolState, open: super::assembly::OpenMedium, threads: usize) -> Result<BTreeMap<u32, (u64, u64)>, ControlError> {
    let (next, counts) = (AtomicU16::new(0), Mutex::new(BTreeMap::<u32, (u64, u64)>::new()));
    let work = || -> Result<(), ControlError> {
        let mut medium = open()?;
        loop {
            let shard = next.fetch_add(1, Ordering::Relaxed);
            if shard >= pool.superblock.layout.shards {
                return Ok(());
            }
            let blocks = inspect::count_blocks(&mut *medium, pool, ShardIndex(shard)).map_err(|e| failed(e, "check the SSD"))?;
            let mut counts = super::locked(&counts);
            for VolumeInspection { id, clean_blocks, dirty_blocks } in blocks {
                let (clean, dirty) = counts.entry(id.0).or_default();
                (*clean, *dirty) = (*clean + clean_blocks, *dirty + dirty_blocks);
            }
        }
    };
    let shards = usize::from(pool.superblock.layout.shards);
    let results: Vec<Result<(), ControlError>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.min(shards)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    results.into_iter().collect::<Result<(), ControlError>>()?;
    Ok(counts.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
}

/// What the disk table says: the room beside the cache, and what lies there.
fn take_disks(content: &mut SsdContent, table: DiskTable) {
    content.disk_room = Some(Span { at_bytes: table.room_at_bytes, end_bytes: table.room_end_bytes });
    let span = |piece: &format::disks::Piece| Span { at_bytes: piece.offset_bytes, end_bytes: piece.end_bytes() };
    let disks = table.disks.iter();
    content.disks = disks.map(|disk| (Uuid::from_bytes(disk.uuid), disk.name.clone(), disk.pieces.iter().map(span).collect())).collect();
}
