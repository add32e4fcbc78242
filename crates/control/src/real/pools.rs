//! Pools: formatted, recovered and started, and stopped with a checkpoint.
//!
//! Order of a start: open and lock the SSD, load the superblock, void what belongs to volumes that are gone, take each shard's
//! blocks from the checkpoint or the log, begin the session (durable), start the shards, hold every known volume. Only
//! then is anything attached.

use super::medium::SsdMedium;
use super::volumes::Backing;
use super::{Machine, devices, failed, locked};
use crate::datapath::{Notice, PoolStarted};
use crate::error::{ControlError, Kind};
use crate::human;
use crate::state::{PoolRecord, VolumeRecord};
use device::{Access, OpenDevice};
use engine::api::{Command, Event};
use engine::checkpoint;
use engine::index::Slot;
use engine::log::LogPlace;
use engine::recovery::{self, RecoveryReport};
use engine::shard::{DIRTY_MAX_PERMILLE, PAGES_MIN, RecoveredBlock, Shard, ShardConfig};
use engine::superblock::{self, OpenError, PoolState};
use format::Layout;
use format::checkpoint::{CheckpointEntry, LogEnd};
use page::PagePool;
use runtime::{DeviceOptions, DeviceRef, EventSink, PoolOptions, PoolRef};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use types::{BLOCK_BYTES, ShardIndex, VolumeId, VolumeIndex};

/// Shards for each core of the machine that formats the pool: more than there will be reactors, so that they can be dealt out evenly when
/// the machine grows.
const SHARDS_PER_CORE: u16 = 2;
/// Most shards of a pool made here: beyond, each shard's part of the RAM tier and of the log gets small.
const SHARDS_MAX: u16 = 32;

/// Clean blocks of a volume that a start compares with the backing device: a change of 5 % of the cached blocks is then missed one time
/// in 27 (0.95^64), and 64 random reads of a hard disk take half a second.
const SAMPLE_BLOCKS: usize = 64;

/// How long shards may take to come to rest.
const PATIENCE: Duration = Duration::from_secs(120);

/// A pool that runs.
pub(super) struct LivePool {
    pub(super) name: String,
    pub(super) handle: PoolRef,
    /// Clean blocks found by the start, with their checksums, to be compared with the backing devices; by number of the volume.
    pub(super) samples: Mutex<BTreeMap<u32, Vec<(u64, u32)>>>,
    /// Backing devices of volumes that went while the shards may still destage to them.
    pub(super) lingering: Mutex<Vec<Backing>>,
    ssd: DeviceRef,
    /// Keeps the lock.
    _opened: OpenDevice,
    /// The superblock, and the way to it beside the shards.
    root: Mutex<Root>,
}

struct Root {
    state: PoolState,
    medium: SsdMedium,
    /// Places in the shards' tables by volume number.
    places: BTreeMap<u32, VolumeIndex>,
}

/// What one shard's part of the SSD holds.
struct Found {
    end: LogEnd,
    blocks: Vec<RecoveredBlock>,
    report: Option<RecoveryReport>,
}

impl Machine {
    pub(super) fn format_pool(&self, record: &PoolRecord) -> Result<(), ControlError> {
        let ssd = devices::open(&record.ssd, Access::ReadWrite)?;
        let usable_bytes = record.size_bytes.unwrap_or(u64::MAX).min(ssd.geometry().size_bytes);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let shards = u16::try_from(cores).unwrap_or(u16::MAX).saturating_mul(SHARDS_PER_CORE).min(SHARDS_MAX);
        let layout = Layout::plan_default(usable_bytes, shards).map_err(|e| failed(&e, "use a larger SSD or --size"))?;
        let blocking = ssd.blocking().map_err(|e| failed(&e, ""))?;
        devices::erase_signatures(&blocking).map_err(|e| failed(&e, "check the SSD"))?;
        let mut medium = SsdMedium::new(blocking);
        superblock::create(&mut medium, layout, record.uuid.0).map_err(|e| open_error(record, e))?;
        Ok(())
    }

    pub(super) fn wipe_pool(&self, record: &PoolRecord) -> Result<(), ControlError> {
        if !Path::new(&record.ssd).exists() {
            return Ok(());
        }
        let ssd = devices::open(&record.ssd, Access::ReadWrite)?;
        let mut medium = SsdMedium::new(ssd.blocking().map_err(|e| failed(&e, ""))?);
        match superblock::load(&mut medium) {
            Ok(state) if state.superblock.uuid == record.uuid.0 => superblock::wipe(&mut medium).map_err(|e| open_error(record, e)),
            // Somebody else's pool, or none that can be read: not ours to wipe.
            _ => Ok(()),
        }
    }

    pub(super) fn run_pool(&self, record: &PoolRecord, known: &[u32]) -> Result<PoolStarted, ControlError> {
        let ssd = devices::open(&record.ssd, Access::ReadWrite)?;
        let mut medium = SsdMedium::new(ssd.blocking().map_err(|e| failed(&e, ""))?);
        let mut state = load(record, &mut medium)?;
        state.superblock.volumes.retain(|v| known.contains(&v.id.0));
        let next = VolumeId(record.next_volume_id);
        state.superblock.next_volume_id = VolumeId(state.superblock.next_volume_id.0.max(next.0));
        let places: BTreeMap<u32, VolumeIndex> = (0u16..).zip(&state.superblock.volumes).map(|(n, v)| (v.id.0, VolumeIndex(n))).collect();
        let found = gather(&mut medium, &mut state, &places).map_err(|e| open_error(record, e))?;
        let ends: Vec<LogEnd> = found.iter().map(|f| f.end).collect();
        let damaged: Vec<VolumeId> = found.iter().filter_map(|f| f.report.as_ref()).flat_map(|r| r.damaged_volumes.clone()).collect();
        state.begin_session(&mut medium, &ends, &damaged).map_err(|e| open_error(record, e))?;
        let recovery = if state.superblock.session == 1 { vec!["the first".into()] } else { described(&found) };
        let (samples, dirty_bytes) = (samples_of(&found, &places), dirty_of(&found, &places));
        let (pages, shards) = make_shards(record, &state, found);
        let (handle, device) = self.start_shards(record, &ssd, pages, shards)?;
        for volume in &state.superblock.volumes {
            let hold = Command::Hold { volume: places[&volume.id.0], id: volume.id, size_bytes: volume.size_bytes };
            self.runtime.command(&handle, hold).map_err(|e| failed(&e, ""))?;
        }
        let superblock = &state.superblock;
        let started = PoolStarted {
            session: superblock.session,
            size_bytes: superblock.layout.ssd_bytes,
            recovery,
            damaged: superblock.volumes.iter().filter(|v| v.damaged).map(|v| v.id.0).collect(),
            dirty_bytes,
        };
        let live = LivePool {
            name: record.name.clone(),
            handle,
            samples: Mutex::new(samples),
            lingering: Mutex::default(),
            ssd: device,
            _opened: ssd,
            root: Mutex::new(Root { state, medium, places }),
        };
        locked(&self.pools).insert(record.name.clone(), Arc::new(live));
        Ok(started)
    }
}

impl Machine {
    fn start_shards(
        &self,
        record: &PoolRecord,
        ssd: &OpenDevice,
        pages: PagePool,
        shards: Vec<Shard>,
    ) -> Result<(PoolRef, DeviceRef), ControlError> {
        let file = ssd.file().try_clone().map_err(|e| failed(&e, "raise the limit of open files"))?;
        let options = DeviceOptions { name: record.ssd.clone(), file, geometry: ssd.geometry(), model: None };
        let device = self.runtime.open_device(options).map_err(|e| failed(&e, "raise the limit of open files"))?;
        let pool = PoolOptions { ssd: device.clone(), shards, pages, events: self.events_of(record) };
        let handle = self.runtime.add_pool(pool).map_err(|e| failed(&e, ""))?;
        Ok((handle, device))
    }

    /// Quiesces the shards, takes them back, and (`clean`) writes the checkpoint. Volumes are detached before.
    pub(super) fn end_pool(&self, name: &str, clean: bool) -> Result<(), ControlError> {
        let Some(pool) = locked(&self.pools).remove(name) else { return Ok(()) };
        let shards = self.runtime.remove_pool(&pool.handle, PATIENCE);
        locked(&pool.lingering).drain(..).for_each(|backing| self.close_backing(backing));
        if let Err(error) = self.runtime.remove_device(&pool.ssd) {
            tracing::warn!("{} stays open: {error}", pool.ssd.name());
        }
        let shards = shards.map_err(|e| failed(&e, "the next start recovers as after a crash"))?;
        if !clean {
            return Ok(());
        }
        let mut root = locked(&pool.root);
        let Root { state, medium, places } = &mut *root;
        write_checkpoint(state, medium, places, &shards)
            .map_err(|e| failed(&e, "the next start reads the log instead; check the SSD if it fails again"))
    }

    pub(super) fn tell_degraded(&self, pool: &str) {
        let Ok(pool) = self.pool(pool) else { return };
        if let Err(error) = self.runtime.command(&pool.handle, Command::DegradedRecorded) {
            tracing::error!(pool = pool.name, "the shards cannot be told that the SSD's failure is on record: {error}");
        }
    }

    /// Puts the volume's record into the superblock, durably, before anything can be logged under its number; gives its place in the
    /// shards' tables.
    pub(super) fn enter_volume(&self, pool: &LivePool, volume: &VolumeRecord) -> Result<VolumeIndex, ControlError> {
        let mut root = locked(&pool.root);
        let entry = format::VolumeRecord {
            id: VolumeId(volume.id),
            uuid: volume.uuid.0,
            name: volume.name.clone(),
            size_bytes: volume.size_bytes,
            mode: volume.options.mode,
            may_have_dirty: volume.may_have_dirty,
            damaged: false,
            backing_identity: Vec::new(),
        };
        let place = match root.places.get(&volume.id) {
            Some(place) => *place,
            None => {
                let taken: Vec<VolumeIndex> = root.places.values().copied().collect();
                let free = (0..types::VOLUMES_MAX as u16).map(VolumeIndex).find(|p| !taken.contains(p));
                free.ok_or_else(|| failed(&"the pool has no place for another volume", "add it to another pool"))?
            }
        };
        let volumes = &mut root.state.superblock.volumes;
        match volumes.iter_mut().find(|v| v.id == entry.id) {
            Some(known) if *known == entry => return Ok(place),
            Some(known) => *known = entry,
            None => volumes.push(entry),
        }
        let next = root.state.superblock.next_volume_id.0.max(volume.id + 1);
        root.state.superblock.next_volume_id = VolumeId(next);
        root.store()?;
        root.places.insert(volume.id, place);
        Ok(place)
    }

    /// Takes the volume's record out of the superblock, durably: what the log holds of it is void from then on.
    pub(super) fn retire_volume(&self, pool: &LivePool, id: u32) -> Result<(), ControlError> {
        let mut root = locked(&pool.root);
        root.state.superblock.volumes.retain(|v| v.id.0 != id);
        root.store()
    }

    /// The volume's place in the shards' tables is free again. Only when no shard knows the volume any more.
    pub(super) fn leave_place(&self, pool: &LivePool, id: u32) {
        locked(&pool.root).places.remove(&id);
    }

    /// The volume's place in the shards' tables, if it has one.
    pub(super) fn place_of(&self, pool: &LivePool, id: u32) -> Option<VolumeIndex> {
        locked(&pool.root).places.get(&id).copied()
    }

    fn events_of(&self, pool: &PoolRecord) -> EventSink {
        let (notices, name) = (Mutex::new(self.notices.clone()), pool.name.clone());
        let names = self.names_by_place.clone();
        Arc::new(move |_, event| {
            let volume = |place: VolumeIndex| {
                locked(&names).get(&(name.clone(), place.0)).cloned().unwrap_or_else(|| format!("{name} #{}", place.0))
            };
            let notice = match event {
                Event::SsdFailed => Notice::SsdFailed { pool: name.clone() },
                Event::BackingFailed(place) => Notice::BackingFailed { volume: volume(place) },
                Event::DirtyBlockUnreadable(place, block) => Notice::DirtyBlockUnreadable { volume: volume(place), block },
                Event::ChecksumMismatch(place, block) => Notice::ChecksumMismatch { volume: volume(place), block },
                Event::DestageFailed(place, block) => Notice::DestageFailed { volume: volume(place), block },
                Event::CommandDone(..) => return,
            };
            if locked(&notices).send(notice).is_err() {
                // Only while the process ends.
                tracing::debug!("nobody listens to what the shards report");
            }
        })
    }
}

impl Root {
    fn store(&mut self) -> Result<(), ControlError> {
        self.state.store(&mut self.medium).map_err(|e| failed(&e, "check the SSD"))
    }
}

fn load(record: &PoolRecord, medium: &mut SsdMedium) -> Result<PoolState, ControlError> {
    let state = superblock::load(medium).map_err(|e| open_error(record, e))?;
    let wrong = |problem: String, remedy: &str| {
        Err(ControlError::Device { path: record.ssd.clone(), problem, remedy: remedy.into(), kind: Kind::Conflict })
    };
    if state.superblock.uuid != record.uuid.0 {
        return wrong("it carries another pool".into(), "bring the right SSD back and restart the daemon");
    }
    if state.superblock.session < record.session {
        let (found, known) = (state.superblock.session, record.session);
        return wrong(
            format!("it is an old copy of the pool (session {found}, the latest was {known})"),
            "bring the right SSD back and restart the daemon",
        );
    }
    Ok(state)
}

/// From the checkpoint if there is a valid one, else from the log.
fn gather(medium: &mut SsdMedium, state: &mut PoolState, places: &BTreeMap<u32, VolumeIndex>) -> Result<Vec<Found>, OpenError> {
    let saved = checkpoint::open(medium, state)?;
    let layout = state.superblock.layout;
    let mut found = Vec::new();
    for shard in (0..layout.shards).map(ShardIndex) {
        let mut blocks = Vec::new();
        if let Some(saved) = &saved {
            let mut sink = |slot: u32, entry: CheckpointEntry| {
                let id = saved.volumes()[usize::from(entry.volume)];
                blocks.extend(places.get(&id.0).map(|volume| RecoveredBlock {
                    volume: *volume,
                    block: entry.block,
                    slot: Slot(slot),
                    dirty: entry.dirty,
                    mask: entry.mask,
                    checksum: entry.checksum,
                }));
            };
            if saved.load_shard(medium, state, shard, &mut sink)? {
                found.push(Found { end: saved.log_ends()[usize::from(shard.0)], blocks, report: None });
                continue;
            }
            blocks.clear();
        }
        let mut sink = |record: recovery::RecoveredRecord| {
            blocks.extend(places.get(&record.volume.0).map(|volume| RecoveredBlock {
                volume: *volume,
                block: record.block,
                slot: Slot(layout.slot(layout.physical(record.segment_seq), record.page)),
                dirty: record.dirty,
                mask: record.mask,
                checksum: record.checksum,
            }));
        };
        let recovered = recovery::recover(medium, state, shard, false, &mut sink)?;
        found.push(Found { end: recovered.end, blocks, report: Some(recovered.report) });
    }
    Ok(found)
}

/// Dirty bytes of each volume.
fn dirty_of(found: &[Found], places: &BTreeMap<u32, VolumeIndex>) -> BTreeMap<u32, u64> {
    let mut blocks: BTreeMap<VolumeIndex, u64> = BTreeMap::new();
    found.iter().flat_map(|f| &f.blocks).filter(|b| b.dirty).for_each(|b| *blocks.entry(b.volume).or_default() += 1);
    places.iter().filter_map(|(id, place)| Some((*id, blocks.get(place)? * BLOCK_BYTES))).collect()
}

/// Clean and whole blocks of each volume, spread over what was found.
fn samples_of(found: &[Found], places: &BTreeMap<u32, VolumeIndex>) -> BTreeMap<u32, Vec<(u64, u32)>> {
    let sample = |place: VolumeIndex| {
        let clean = || found.iter().flat_map(|f| &f.blocks).filter(move |b| b.volume == place && !b.dirty && b.mask == u8::MAX);
        let step = (clean().count() / SAMPLE_BLOCKS).max(1);
        clean().step_by(step).map(|b| (b.block, b.checksum)).collect()
    };
    places.iter().map(|(id, place)| (*id, sample(*place))).collect()
}

fn make_shards(record: &PoolRecord, state: &PoolState, found: Vec<Found>) -> (PagePool, Vec<Shard>) {
    let superblock = &state.superblock;
    let shards = u64::from(superblock.layout.shards);
    let ram_blocks = record.ram_bytes / BLOCK_BYTES;
    // The RAM tier, what the shards need to work, and as much again for requests of clients in flight.
    let working_pages = shards as usize * PAGES_MIN;
    let pages = PagePool::new(ram_blocks as usize + working_pages + working_pages.max(CLIENT_PAGES_MIN));
    let made = (0u16..).zip(found).map(|(index, found)| {
        let place = LogPlace { uuid: superblock.uuid, session: superblock.session, shard: ShardIndex(index), layout: superblock.layout };
        let config = ShardConfig { place, ram_blocks: ram_blocks / shards, pool: pages.clone(), dirty_max_permille: DIRTY_MAX_PERMILLE };
        let mut shard = Shard::new(config, found.end);
        found.blocks.into_iter().for_each(|block| shard.restore(block));
        shard
    });
    let shards = made.collect();
    (pages, shards)
}

/// Pages kept for clients' writes: two of the largest requests (32 MiB each), so that one can always be under way.
const CLIENT_PAGES_MIN: usize = 2 * (32 << 20) / BLOCK_BYTES as usize;

fn write_checkpoint(
    state: &mut PoolState,
    medium: &mut SsdMedium,
    places: &BTreeMap<u32, VolumeIndex>,
    shards: &[Shard],
) -> Result<(), OpenError> {
    let ends: Vec<LogEnd> = shards.iter().map(|s| s.log_end()).collect();
    let volumes: Vec<VolumeId> = state.superblock.volumes.iter().map(|v| v.id).collect();
    let order: BTreeMap<u16, u16> = volumes.iter().zip(0u16..).filter_map(|(id, at)| Some((places.get(&id.0)?.0, at))).collect();
    let mut iterators: Vec<_> = shards.iter().map(|s| s.cached_blocks().peekable()).collect();
    // Slots are asked for in ascending order, and the shards give theirs in that order.
    let mut entry = |shard: ShardIndex, slot: u32| {
        let block = iterators[usize::from(shard.0)].next_if(|block| block.slot.0 == slot)?;
        Some(CheckpointEntry {
            volume: *order.get(&block.volume.0)?,
            block: block.block,
            mask: block.mask,
            dirty: block.dirty,
            heat: 0,
            checksum: block.checksum,
        })
    };
    checkpoint::write(medium, state, &ends, &volumes, &mut entry)
}

/// The report for people.
fn described(found: &[Found]) -> Vec<String> {
    let reports: Vec<&RecoveryReport> = found.iter().filter_map(|f| f.report.as_ref()).collect();
    let sum = |of: fn(&RecoveryReport) -> u64| reports.iter().map(|r| of(r)).sum::<u64>();
    let blocks: usize = found.iter().map(|f| f.blocks.len()).sum();
    let dirty = found.iter().flat_map(|f| &f.blocks).filter(|b| b.dirty).count();
    let (cached, dirty) = (human::bytes(blocks as u64 * BLOCK_BYTES), human::bytes(dirty as u64 * BLOCK_BYTES));
    let mut lines = if reports.is_empty() {
        vec![format!("after a clean stop: {cached} cached, {dirty} of it dirty, from the checkpoint")]
    } else {
        vec![format!(
            "after an unclean stop: {cached} cached, {dirty} of it dirty, from {} segments of the log; {} groups were still in flight and are void",
            sum(|r| r.segments),
            sum(|r| r.discarded_groups)
        )]
    };
    for (count, what) in [
        (sum(|r| r.walked_segments), "segments had lost their footer and were read from their headers"),
        (sum(|r| r.unreadable_pages), "pages could not be read and were taken from their copy"),
        (sum(|r| r.damaged_places), "places of the log are damaged"),
        (sum(|r| r.forgotten_blocks), "clean blocks were forgotten because damage stands behind them"),
    ] {
        if count > 0 {
            lines.push(format!("{count} {what}"));
        }
    }
    lines
}

/// What is wrong with a pool's SSD, and what to do.
fn open_error(record: &PoolRecord, error: OpenError) -> ControlError {
    let check = format!("look at it with `hearth pool check {}`", record.ssd);
    let remedy = match &error {
        OpenError::Medium(_) | OpenError::FlushFailed => format!("check the SSD (cable, `dmesg`, SMART), and {check}"),
        OpenError::NoPool => "bring the right SSD back and restart the daemon, or destroy the pool if its SSD was given away".into(),
        OpenError::NewerVersion { .. } | OpenError::Layout(_) => String::new(),
        OpenError::SuperblockDamaged | OpenError::SuperblockOutdated { .. } | OpenError::Truncated { .. } => {
            format!("{check}, restore it, and restart the daemon")
        }
    };
    ControlError::Device { path: record.ssd.clone(), problem: error.to_string(), remedy, kind: Kind::Failed }
}
