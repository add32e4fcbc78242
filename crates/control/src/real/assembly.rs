//! A pool put together from what is on its SSD, and its superblock kept while it runs: blocking code over [`Medium`], so that the same
//! code runs on a real SSD and, in tests, on one that fails at any access.

use super::failed;
use crate::datapath::PoolStarted;
use crate::error::{ControlError, Kind};
use crate::human;
use crate::state::{PoolRecord, VolumeRecord};
use engine::api::Command;
use engine::checkpoint;
use engine::medium::Medium;
use engine::packer::base_pages_for;
use engine::recovery::RecoveryReport;
use engine::shard::{PAGES_MIN, Proof, Shard};
use engine::superblock::{self, OpenError, PoolState};
use format::Layout;
use format::checkpoint::{CheckpointEntry, LogEnd};
use page::PagePool;
use pool::restart::{Restart, Restarted, Tally, restart};
use std::collections::BTreeMap;
use types::{BLOCK_BYTES, Content, ShardIndex, VolumeId, VolumeIndex};

/// Clean blocks of a volume that a start compares with the backing device: a change of 5 % of the cached blocks is then missed one time
/// in 27 (0.95^64), and 64 random reads of a hard disk take half a second.
const SAMPLE_BLOCKS: usize = 64;
/// And so many of those that were logged last: a device that was rolled back lacks these first. A hard disk reads all of them in a second.
const NEWEST_BLOCKS: usize = 64;

/// A pool's superblock, and the way to it beside the shards.
pub(crate) struct Root {
    state: PoolState,
    medium: Box<dyn Medium + Send>,
    /// Places in the shards' tables by volume number.
    places: BTreeMap<u32, VolumeIndex>,
}

/// A pool that was opened and whose session has begun: what is needed to start its shards.
pub(crate) struct Opened {
    /// The superblock.
    pub root: Root,
    /// The pages that shards and their clients share.
    pub pages: PagePool,
    /// The shards with what was found.
    pub shards: Vec<Shard>,
    /// Clean and whole blocks of each volume, spread over what was found, with their checksums; by number of the volume.
    pub samples: BTreeMap<u32, Vec<(u64, Proof)>>,
    /// What is told to the manager.
    pub started: PoolStarted,
}

/// A way to the SSD; each thread of a start opens its own.
pub(crate) type OpenMedium<'a> = &'a (dyn Fn() -> Result<Box<dyn Medium + Send>, ControlError> + Sync);

/// Opens a pool: voids what belongs to volumes that are gone, makes the shards from the checkpoint or the log, and begins the session,
/// durably.
pub(crate) fn open(
    record: &PoolRecord,
    ram_bytes: u64,
    open_medium: OpenMedium,
    threads: usize,
    known: &[VolumeRecord],
) -> Result<Opened, ControlError> {
    let mut medium = open_medium()?;
    let mut state = load(record, &mut *medium)?;
    // Before anything is written: what a newer state knew must not be voided because this one does not.
    let (serial, warnings) = super::records::check_age(record, known, &state.superblock, &mut *medium)?;
    let threads = threads_for(&state.superblock.layout, threads, crate::memory::limit().map_or(u64::MAX, |limit| limit.bytes));
    state.superblock.volumes.retain(|v| known.iter().any(|known| known.id == v.id.0));
    let next = VolumeId(record.next_volume_id);
    state.superblock.next_volume_id = VolumeId(state.superblock.next_volume_id.0.max(next.0));
    let places: BTreeMap<u32, VolumeIndex> = (0u16..).zip(&state.superblock.volumes).map(|(n, v)| (v.id.0, VolumeIndex(n))).collect();
    let (pages, ram_blocks) = pages_for(ram_bytes, record.content, &state);
    let plan = Restart { state: &state, places: &places, ram_blocks, content: record.content, pages: pages.clone(), threads };
    let found = restart(&plan, &|| open_medium().map_err(StartError::Told)).map_err(|error| error.told(record))?;
    let ends: Vec<LogEnd> = found.iter().map(|f| f.end).collect();
    let damaged: Vec<VolumeId> = found.iter().filter_map(|f| f.report.as_ref()).flat_map(|r| r.damaged_volumes.clone()).collect();
    state.begin_session(&mut *medium, &ends, &damaged).map_err(|e| open_error(record, e))?;
    let superblock = &state.superblock;
    let started = PoolStarted {
        session: superblock.session,
        size_bytes: superblock.layout.ssd_bytes,
        recovery: if superblock.session == 1 { vec!["the pool's first start: nothing was cached".into()] } else { described(&found) },
        damaged: superblock.volumes.iter().filter(|v| v.damaged).map(|v| v.id.0).collect(),
        dirty_bytes: dirty_of(&found, &places),
        has_lost_writes: false,
        serial,
        next_volume_id: superblock.next_volume_id.0,
        warnings,
    };
    let samples = samples_of(&found, &places);
    let shards: Vec<Shard> = found.into_iter().map(|f| f.shard).collect();
    assert!(shards.iter().all(|s| s.config().place.session == state.superblock.session), "the shards write in the session begun");
    Ok(Opened { root: Root { state, medium, places }, pages, shards, samples, started })
}

impl Root {
    /// The way to the SSD beside the shards. The superblock is this one's to write.
    pub fn medium(&mut self) -> &mut dyn Medium {
        &mut *self.medium
    }

    /// Behind the last byte that the log may use.
    pub fn log_end_bytes(&self) -> u64 {
        self.state.superblock.layout.ssd_bytes
    }

    /// What the shards must be told before anything is attached: every known volume keeps its blocks until it is.
    pub fn holds(&self) -> Vec<Command> {
        // A size that no volume can have was written by a version that did not look; the volume itself is refused when its turn comes.
        let hold = |v: &format::VolumeRecord| Command::Hold {
            volume: self.places[&v.id.0],
            id: v.id,
            size_bytes: v.size_bytes.min(types::VOLUME_BYTES_MAX),
        };
        self.state.superblock.volumes.iter().map(hold).collect()
    }

    /// The volume's place in the shards' tables, if it has one.
    pub fn place_of(&self, id: u32) -> Option<VolumeIndex> {
        self.places.get(&id).copied()
    }

    /// Puts the volume's record into the superblock, durably, before anything can be logged under its number; gives its place in the
    /// shards' tables.
    pub fn enter(&mut self, volume: &VolumeRecord) -> Result<VolumeIndex, ControlError> {
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
        let place = match self.places.get(&volume.id) {
            Some(place) => *place,
            None => {
                let taken: Vec<VolumeIndex> = self.places.values().copied().collect();
                let free = (0..types::VOLUMES_MAX as u16).map(VolumeIndex).find(|p| !taken.contains(p));
                free.ok_or_else(|| failed(&"the pool has no place for another volume", "add it to another pool"))?
            }
        };
        if let Some(other) = self.state.superblock.volumes.iter().find(|other| other.id != entry.id && other.name == entry.name) {
            let problem = format!("its log knows another volume \"{}\", with the number {}", entry.name, other.id.0);
            return Err(failed(&problem, "see which state is the newest, put that back, and start the daemon again"));
        }
        let before = self.state.superblock.volumes.clone();
        let volumes = &mut self.state.superblock.volumes;
        match volumes.iter_mut().find(|v| v.id == entry.id) {
            Some(known) if *known == entry => return Ok(place),
            Some(known) => *known = entry,
            None => volumes.push(entry),
        }
        let next = self.state.superblock.next_volume_id.0.max(volume.id + 1);
        self.state.superblock.next_volume_id = VolumeId(next);
        if let Err(error) = self.store() {
            // Who asks again must not find it entered: it may not be on the SSD.
            self.state.superblock.volumes = before;
            return Err(error);
        }
        self.places.insert(volume.id, place);
        Ok(place)
    }

    /// Takes the volume's record out of the superblock, durably: what the log holds of it is void from then on.
    pub fn retire(&mut self, id: u32) -> Result<(), ControlError> {
        self.state.superblock.volumes.retain(|v| v.id.0 != id);
        self.store()
    }

    /// The volume's place in the shards' tables is free again. Only when no shard knows the volume any more.
    pub fn leave_place(&mut self, id: u32) {
        self.places.remove(&id);
    }

    fn store(&mut self) -> Result<(), ControlError> {
        self.state.store(&mut *self.medium).map_err(|e| failed(&e, "check the SSD"))
    }

    /// Writes the checkpoint of shards that are at rest.
    pub fn checkpoint(&mut self, shards: &[Shard]) -> Result<(), ControlError> {
        if shards.iter().any(Shard::has_lost_its_log) {
            return Err(failed(&"the SSD failed while the pool ran", "the next start reads the log instead; check the SSD"));
        }
        write_checkpoint(&mut self.state, &mut *self.medium, &self.places, shards)
            .map_err(|e| failed(&e, "the next start reads the log instead; check the SSD if it fails again"))
    }
}

fn load(record: &PoolRecord, medium: &mut dyn Medium) -> Result<PoolState, ControlError> {
    let state = superblock::load(medium).map_err(|e| open_error(record, e))?;
    let wrong = |problem: String, remedy: &str| {
        Err(ControlError::Device { path: record.ssd.clone(), problem, remedy: remedy.into(), kind: Kind::Conflict })
    };
    if state.superblock.uuid != record.uuid.0 {
        return wrong("it carries another pool".into(), &format!("reconnect the right SSD and {}", start_it(record)));
    }
    if state.superblock.session < record.session {
        let (found, known) = (state.superblock.session, record.session);
        return wrong(
            format!("it is an old copy of the pool (session {found}, the latest was {known})"),
            &format!("reconnect the right SSD and {}", start_it(record)),
        );
    }
    Ok(state)
}

/// Why the shards could not be made.
enum StartError {
    Open(OpenError),
    Told(ControlError),
}

impl From<OpenError> for StartError {
    fn from(error: OpenError) -> StartError {
        StartError::Open(error)
    }
}

impl StartError {
    fn told(self, record: &PoolRecord) -> ControlError {
        match self {
            StartError::Open(error) => open_error(record, error),
            StartError::Told(error) => error,
        }
    }
}

fn tallies(found: &[Restarted], place: VolumeIndex) -> impl Iterator<Item = &Tally> {
    found.iter().filter_map(move |f| f.tallies.get(&place))
}

/// Dirty bytes of each volume that has any blocks.
fn dirty_of(found: &[Restarted], places: &BTreeMap<u32, VolumeIndex>) -> BTreeMap<u32, u64> {
    let dirty = |place: VolumeIndex| tallies(found, place).map(|t| t.dirty).sum::<u64>() * BLOCK_BYTES;
    places.iter().map(|(id, place)| (*id, dirty(*place))).filter(|(_, bytes)| *bytes > 0).collect()
}

/// Clean and whole blocks of each volume: spread over what was found, and those that each shard logged last. In the order of their addresses.
fn samples_of(found: &[Restarted], places: &BTreeMap<u32, VolumeIndex>) -> BTreeMap<u32, Vec<(u64, Proof)>> {
    let newest_of_shard = (NEWEST_BLOCKS / found.len().max(1)).max(1);
    let sample = |place: VolumeIndex| {
        let all: Vec<(u64, Proof)> = tallies(found, place).flat_map(|t| &t.samples).copied().collect();
        let step = (all.len() / SAMPLE_BLOCKS).max(1);
        let newest = tallies(found, place).flat_map(|t| t.newest.iter().rev().take(newest_of_shard).copied());
        let mut sample: Vec<(u64, Proof)> = all.into_iter().step_by(step).chain(newest).collect();
        sample.sort_unstable_by_key(|(block, _)| *block);
        sample.dedup();
        sample
    };
    places.iter().map(|(id, place)| (*id, sample(*place))).collect()
}

/// Clean and whole blocks of a volume of shards that run.
#[cfg(test)]
pub fn samples_of_shards<'a>(shards: impl Iterator<Item = &'a Shard>, place: VolumeIndex) -> Vec<(u64, Proof)> {
    let of_shard = |shard: &Shard| {
        let mut blocks = Vec::new();
        shard.look_at_index(0, u32::MAX, |volume, block, _| blocks.extend((volume == place).then_some(block)));
        blocks.into_iter().filter_map(|block| Some((block, shard.proof_of_clean(place, block)?))).collect::<Vec<_>>()
    };
    shards.flat_map(of_shard).collect()
}

/// Memory that reading a shard's log takes beside its index for each page of it, if all of it is used: a record, twice, and its place in a
/// table.
const LOG_PAGE_BYTES_READING: u64 = 60;

/// How many logs may be read at a time, so that what this takes is no more than a quarter of the memory.
fn threads_for(layout: &Layout, threads: usize, memory_bytes: u64) -> usize {
    let shard_bytes = u64::from(layout.segments_per_shard) * u64::from(layout.pages_per_segment()) * LOG_PAGE_BYTES_READING;
    threads.min(usize::try_from(memory_bytes / 4 / shard_bytes.max(1)).unwrap_or(usize::MAX)).max(1)
}

/// The pool's pages, and how many each shard's RAM tier may hold.
fn pages_for(ram_bytes: u64, content: Content, state: &PoolState) -> (PagePool, u64) {
    let shards = u64::from(state.superblock.layout.shards);
    let ram_blocks = ram_blocks_for(ram_bytes / BLOCK_BYTES / shards, content);
    // The RAM tier and the bases beside it, what the shards need to work, as much again for requests of clients in flight, and for each reactor (no more
    // than processors) the longest read whose parts are being joined. Room for bases is there with content off too, since that may change while the pool
    // runs: pages that nobody asks for take no memory.
    let kept_pages = shards as usize * (ram_blocks as usize + base_pages_for(ram_blocks));
    let working_pages = shards as usize * PAGES_MIN;
    let joined_pages = std::thread::available_parallelism().map_or(1, usize::from) * REQUEST_PAGES_MAX;
    (PagePool::new(kept_pages + working_pages + joined_pages + working_pages.max(3 * REQUEST_PAGES_MAX)), ram_blocks)
}

/// What a shard's RAM tier may hold of the blocks of RAM that it was given: bases take an eighth as much beside it. (Their least, 64 pages, count
/// as what a shard needs to work.)
fn ram_blocks_for(given_blocks: u64, content: Content) -> u64 {
    if content == Content::Off { given_blocks } else { given_blocks - given_blocks.div_ceil(9) }
}

/// Pages of the longest request that clients may send, 32 MiB. Of writes there is room for three, so that one can always be under way.
const REQUEST_PAGES_MAX: usize = runtime::volume::REQUEST_BYTES_MAX as usize / BLOCK_BYTES as usize;

/// Checkpoints up to this size are written whatever they say: it takes a second.
const CHECKPOINT_BYTES_SMALL: u64 = 256 << 20;
/// A footer takes up to 64 KiB to read where the checkpoint has 24 KiB of a segment, and has them of all segments.
const CHECKPOINT_USED_ONE_IN: u64 = 4;

/// Whether the logs are so large, and so little of them is used, that a checkpoint takes longer than to read what is there.
fn is_nearly_empty(layout: &Layout, ends: &[LogEnd]) -> bool {
    let shards = u64::from(layout.shards);
    let used: u64 = ends.iter().map(|end| end.next_seq - end.tail_seq).sum();
    let all = shards * u64::from(layout.segments_per_shard);
    shards * layout.checkpoint_bytes_per_shard() > CHECKPOINT_BYTES_SMALL && used * CHECKPOINT_USED_ONE_IN < all
}

fn write_checkpoint(
    state: &mut PoolState,
    medium: &mut dyn Medium,
    places: &BTreeMap<u32, VolumeIndex>,
    shards: &[Shard],
) -> Result<(), OpenError> {
    let ends: Vec<LogEnd> = shards.iter().map(|s| s.log_end()).collect();
    if shards.iter().any(Shard::has_packed_blocks) || is_nearly_empty(&state.superblock.layout, &ends) {
        return checkpoint::write_footers(medium, state, &ends);
    }
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
fn described(found: &[Restarted]) -> Vec<String> {
    let reports: Vec<&RecoveryReport> = found.iter().filter_map(|f| f.report.as_ref()).collect();
    let all = || found.iter().flat_map(|f| f.tallies.values());
    let (blocks, dirty) = (all().map(|t| t.blocks).sum::<u64>(), all().map(|t| t.dirty).sum::<u64>());
    described_as(&reports, &human::bytes(blocks * BLOCK_BYTES), &human::bytes(dirty * BLOCK_BYTES))
}

fn described_as(reports: &[&RecoveryReport], cached: &str, dirty: &str) -> Vec<String> {
    let sum = |of: fn(&RecoveryReport) -> u64| reports.iter().map(|r| of(r)).sum::<u64>();
    // A stop with packed blocks writes no checkpoint but seals every log; nothing of that is left to do then.
    let in_order = [sum(|r| r.discarded_groups), sum(|r| r.walked_segments), sum(|r| r.footers_written)] == [0; 3];
    let mut lines = if reports.is_empty() {
        vec![format!("after a clean stop: {cached} cached, {dirty} of it dirty, from the checkpoint")]
    } else if in_order {
        let segments = types::counted(sum(|r| r.segments), "segment");
        vec![format!("{cached} cached, {dirty} of it dirty, from {segments} of the log, which was complete")]
    } else {
        vec![format!(
            "after an unclean stop: {cached} cached, {dirty} of it dirty, from {} of the log; {} discarded",
            types::counted(sum(|r| r.segments), "segment"),
            types::counted(sum(|r| r.discarded_groups), "unfinished group")
        )]
    };
    for (count, noun, what) in [
        (sum(|r| r.walked_segments), "segment", "without a footer, read from the headers"),
        (sum(|r| r.unreadable_pages), "page", "unreadable, taken from the copy"),
        (sum(|r| r.damaged_places), "place", "damaged in the log"),
        (sum(|r| r.forgotten_blocks), "clean block", "dropped because of damage in the log"),
    ] {
        if count > 0 {
            lines.push(format!("{} {what}", types::counted(count, noun)));
        }
    }
    lines
}

/// What is wrong with a pool's SSD, and what to do.
fn start_it(pool: &PoolRecord) -> String {
    format!("start the pool with `hearth pool start {}`", pool.name)
}

/// ENOSPC and EDQUOT.
const NO_SPACE: [i32; 2] = [28, 122];

/// The same of an SSD that is looked at.
pub(crate) fn open_error_at(path: &str, error: OpenError) -> ControlError {
    let remedy = match &error {
        OpenError::NoPool => "give the SSD of a pool: `hearth devices` tells which are".to_string(),
        OpenError::NewerVersion { .. } => String::new(),
        _ => format!("inspect it with `hearth pool check {path}`"),
    };
    ControlError::Device { path: path.into(), problem: error.to_string(), remedy, kind: Kind::Failed }
}

pub(crate) fn open_error(record: &PoolRecord, error: OpenError) -> ControlError {
    let check = format!("inspect it with `hearth pool check {}`", record.ssd);
    let remedy = match &error {
        OpenError::Medium(error) if NO_SPACE.contains(&error.errno) => {
            format!("make room on the file system or volume that the SSD lies on, and {}", start_it(record))
        }
        OpenError::Medium(_) | OpenError::FlushFailed => format!("check the SSD (cable, `dmesg`, SMART), and {check}"),
        OpenError::NoPool => format!(
            "reconnect the right SSD and {}; if that is gone for good, make the cache anew with `hearth pool replace {} --ssd PATH` (the same \
             path, too)",
            start_it(record),
            record.name
        ),
        OpenError::NewerVersion { .. } | OpenError::Layout(_) => String::new(),
        OpenError::LogsTooLong { .. } => {
            format!("make its cache anew with `hearth pool replace {} --ssd {} --force`", record.name, record.ssd)
        }
        OpenError::Memory(_) => format!("give it more memory, and {}", start_it(record)),
        OpenError::SuperblockDamaged
        | OpenError::DisksDamaged
        | OpenError::SuperblockOutdated { .. }
        | OpenError::Contradiction { .. }
        | OpenError::Truncated { .. } => {
            format!("{check}, restore it, and {}", start_it(record))
        }
    };
    let problem = match &error {
        OpenError::Medium(error) => {
            let why = std::io::Error::from_raw_os_error(error.errno);
            format!("{} at byte {} failed: {why}", error.operation, error.offset_bytes)
        }
        other => other.to_string(),
    };
    ControlError::Device { path: record.ssd.clone(), problem, remedy, kind: Kind::Failed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ram_tier_and_bases_take_what_was_given() {
        for given in [0, 1, 8, 9, 10, 1024, 65_536, 1 << 30] {
            let ram_blocks = ram_blocks_for(given, Content::Auto);
            let taken = ram_blocks + base_pages_for(ram_blocks) as u64 - base_pages_for(0) as u64;
            assert!(taken <= given && given <= taken + 2, "{taken} of {given}");
            assert_eq!(ram_blocks_for(given, Content::Off), given);
        }
    }

    #[test]
    fn large_logs_are_read_one_after_the_other_where_memory_is_short() {
        let layout = Layout::plan_default(1 << 40, 2).expect("fits");
        assert_eq!((layout.shards, threads_for(&layout, 4, u64::MAX)), (8, 4));
        assert_eq!((threads_for(&layout, 4, 16 << 30), threads_for(&layout, 4, 1 << 30)), (2, 1));
        let small = Layout::plan_default(1 << 30, 1).expect("fits");
        assert_eq!(threads_for(&small, 4, 1 << 30), 4);
    }

    #[test]
    fn large_logs_that_are_nearly_empty_get_no_checkpoint() {
        let ends = |layout: &Layout, used: u64| vec![LogEnd { next_seq: 100 + used, next_group: 9, tail_seq: 100 }; layout.shards.into()];
        let (small, large) = (Layout::plan_default(64 << 30, 2).expect("fits"), Layout::plan_default(1 << 40, 2).expect("fits"));
        assert!(!is_nearly_empty(&small, &ends(&small, 1)));
        let all = u64::from(large.segments_per_shard);
        assert!(is_nearly_empty(&large, &ends(&large, all / 4 - 1)) && !is_nearly_empty(&large, &ends(&large, all / 4 + 1)));
    }

    #[test]
    fn a_log_that_ended_in_order_is_told_from_one_that_did_not() {
        let told = |reports: &[&RecoveryReport]| described_as(reports, "4 KiB", "0 B").join("; ");
        assert!(told(&[]).starts_with("after a clean stop"));
        let sealed = RecoveryReport { segments: 3, sealed_segments: 3, ..RecoveryReport::default() };
        assert_eq!(told(&[&sealed, &sealed]), "4 KiB cached, 0 B of it dirty, from 6 segments of the log, which was complete");
        let disorders = [
            RecoveryReport { discarded_groups: 1, ..sealed.clone() },
            RecoveryReport { walked_segments: 1, ..sealed.clone() },
            RecoveryReport { footers_written: 1, ..sealed.clone() },
        ];
        for disorder in disorders {
            assert!(told(&[&sealed, &disorder]).starts_with("after an unclean stop"));
        }
    }
}
