//! A pool put together from what is on its SSD, and its superblock kept while it runs: blocking code over [`Medium`], so that the same
//! code runs on a real SSD and, in tests, on one that fails at any access.

use super::failed;
use api::error::{ControlError, Kind};
use api::human;
use datapath::PoolStarted;
use engine::api::Command;
use engine::medium::Medium;
use engine::packer::base_pages_for;
use engine::recovery::RecoveryReport;
use engine::shard::{PAGES_MIN, Proof, Shard};
use engine::store::upgrade::{Outlook, UpgradeError};
use engine::superblock::{OpenError, PoolState};
use format::Layout;
use page::PagePool;
use pool::restart::{Restart, Restarted, Tally, restart};
use pool::root::{self, CheckpointError, EnterError, LoadError};
use records::state::{PoolRecord, VolumeRecord};
use std::collections::BTreeMap;
use types::{BLOCK_BYTES, Content, VolumeId, VolumeIndex};

/// Clean blocks of a volume that a start compares with the backing device: a change of 5 % of the cached blocks is then missed one time
/// in 27 (0.95^64), and 64 random reads of a hard disk take half a second.
const SAMPLE_BLOCKS: usize = 64;
/// And so many of those that became clean last: a device that was rolled back lacks these first. A hard disk reads all of them in a second.
const NEWEST_BLOCKS: usize = 64;

/// A pool's superblock, and the way to it beside the shards.
pub struct Root {
    root: root::Root,
    medium: Box<dyn Medium + Send>,
}

/// A pool that was opened and whose session has begun: what is needed to start its shards.
pub struct Opened {
    /// The superblock.
    pub root: Root,
    /// The pages that shards and their clients share.
    pub pages: PagePool,
    /// The shards with what was found.
    pub shards: Vec<Shard>,
    /// Clean and whole blocks of each volume, spread over what was found, with their checksums; by number of the volume.
    pub samples: BTreeMap<u32, Vec<(u64, Proof)>>,
    /// By shard: the last group of the session before that was found whole. The start has written more behind it.
    pub last_groups: Vec<u64>,
    /// What is told to the manager.
    pub started: PoolStarted,
}

/// A way to the SSD; each thread of a start opens its own.
pub type OpenMedium<'a> = &'a (dyn Fn() -> Result<Box<dyn Medium + Send>, ControlError> + Sync);

/// Opens a pool: voids what belongs to volumes that are gone, makes a log of an earlier version slots, makes the shards from what the SSD says, and
/// begins the session, durably.
pub fn open(
    record: &PoolRecord,
    ram_bytes: u64,
    open_medium: OpenMedium,
    threads: usize,
    known: &[VolumeRecord],
) -> Result<Opened, ControlError> {
    let mut medium = open_medium()?;
    let state = load(record, &mut *medium)?;
    // Before anything is written: what a newer state knew must not be voided because this one does not.
    let (serial, warnings) = super::ssd_copy::check_age(record, known, &state.superblock, &mut *medium)?;
    let threads = threads_for(&state.superblock.layout, threads, api::memory::limit().map_or(u64::MAX, |limit| limit.bytes));
    let is_known = |v: &&format::VolumeRecord| known.iter().any(|known| known.id == v.id.0);
    let places = state.superblock.volumes.iter().filter(is_known).zip(0u16..).map(|(v, n)| (v.id.0, VolumeIndex(n))).collect();
    let (pages, ram_blocks) = pages_for(ram_bytes, record.content, &state);
    let mut root = root::Root::new(state, places, record.next_volume_id);
    let upgraded = root.upgrade(&mut *medium, record.content != Content::Off).map_err(|error| upgrade_error(record, error))?;
    root.prepare(&mut *medium).map_err(|e| open_error(record, e))?;
    let (state, content) = (root.state(), record.content);
    let plan = Restart { state, places: root.places(), ram_blocks, content, pages: pages.clone(), threads, slots_named: None };
    let found = restart(&plan, &|| open_medium().map_err(StartError::Told)).map_err(|error| error.told(record))?;
    root.begin_session(&mut *medium, &found).map_err(|e| open_error(record, e))?;
    let superblock = &root.state().superblock;
    let upgraded = upgraded.map(|shards| format!("its log, of an earlier version, was upgraded to slots: {}", what_is_upgraded(&shards)));
    let recovery = match &upgraded {
        _ if superblock.session == 1 => vec!["the pool's first start: nothing was cached".into()],
        Some(upgraded) => vec![upgraded.clone()],
        None => described(&found),
    };
    let started = PoolStarted {
        session: superblock.session,
        size_bytes: superblock.layout.ssd_bytes,
        recovery,
        upgraded,
        damaged: superblock.volumes.iter().filter(|v| v.damaged).map(|v| v.id.0).collect(),
        dirty_bytes: dirty_of(&found, root.places()),
        has_lost_writes: false,
        serial,
        next_volume_id: superblock.next_volume_id.0,
        warnings,
    };
    let samples = samples_of(&found, root.places());
    let last_groups = found.iter().map(last_group).collect();
    let shards: Vec<Shard> = found.into_iter().map(|f| f.shard).collect();
    Ok(Opened { root: Root { root, medium }, pages, shards, samples, last_groups, started })
}

/// What becomes of the blocks of a log that a start makes slots: a clause.
pub(super) fn what_is_upgraded(shards: &[Outlook]) -> String {
    let sum = |of: fn(&Outlook) -> u64| human::bytes(shards.iter().map(of).sum::<u64>() * BLOCK_BYTES);
    let forgotten = match shards.iter().map(|shard| shard.forgotten_blocks).sum::<u64>() {
        0 => "nothing forgotten".to_string(),
        _ => format!("{} of clean data forgotten for want of room", sum(|shard| shard.forgotten_blocks)),
    };
    format!("{} carried over, {} of it dirty; {forgotten}", sum(|shard| shard.blocks), sum(|shard| shard.dirty_blocks))
}

/// Why a log cannot be made slots, and what is to be done. `pool`: its name here, where it is known.
pub(super) fn why_not_upgraded(pool: Option<&str>, ssd: &str, error: &UpgradeError) -> (String, String) {
    let (begin, again) = match pool {
        Some(_) => ("start it", "start it here again"),
        None => ("take it in", "take it in here then"),
    };
    let home = format!(
        "{begin} with the version of hearth that made it, have its dirty data destaged (`hearth volume set NAME --mode write-through`, or \
         remove volumes)"
    );
    let replace = match pool {
        Some(pool) => format!("`hearth pool replace {pool} --ssd {ssd} --force`"),
        None => "`hearth pool create --force`".into(),
    };
    let remedy = match error {
        UpgradeError::Dirty { .. } => format!("{home}, and {again}"),
        UpgradeError::NotAsWritten { .. } => format!("check the SSD (cable, `dmesg`, SMART), and {again}"),
        _ => format!("if nothing on it is dirty, make a new cache with {replace}; else {home} before"),
    };
    (format!("its log, of an earlier version of hearth, cannot be upgraded: {error}"), remedy)
}

/// Why a pool with a log does not start.
fn upgrade_error(record: &PoolRecord, error: UpgradeError) -> ControlError {
    match error {
        UpgradeError::Open(error) if !matches!(error, OpenError::Layout(_)) => open_error(record, error),
        error => {
            let (problem, remedy) = why_not_upgraded(Some(&record.name), &record.ssd, &error);
            ControlError::Device { path: record.ssd.clone(), problem, remedy, kind: Kind::Conflict }
        }
    }
}

impl Root {
    /// The way to the SSD beside the shards. The superblock is this one's to write.
    pub fn medium(&mut self) -> &mut dyn Medium {
        &mut *self.medium
    }

    /// Behind the last byte that the log may use.
    pub fn log_end_bytes(&self) -> u64 {
        self.root.state().superblock.layout.ssd_bytes
    }

    /// See [`engine::store::atomic_bytes_max`].
    pub fn atomic_bytes_max(&self) -> Option<u32> {
        engine::store::atomic_bytes_max(&self.root.state().superblock.layout)
    }

    /// See [`root::Root::holds`].
    pub fn holds(&self) -> Vec<Command> {
        self.root.holds()
    }

    /// The volume's place in the shards' tables, if it has one.
    pub fn place_of(&self, id: u32) -> Option<VolumeIndex> {
        self.root.place_of(id)
    }

    /// Puts the volume's record into the superblock, durably, before anything can be logged under its number; gives its place in the
    /// shards' tables.
    pub fn enter(&mut self, volume: &VolumeRecord) -> Result<VolumeIndex, ControlError> {
        let entry = format::VolumeRecord {
            id: VolumeId(volume.id),
            uuid: volume.uuid.into_bytes(),
            name: volume.name.clone(),
            size_bytes: volume.size_bytes,
            mode: volume.options.mode,
            may_have_dirty: volume.may_have_dirty,
            damaged: false,
            backing_identity: Vec::new(),
        };
        let full = || failed("the pool has no place for another volume", "add it to another pool");
        let place = self.root.place_of(volume.id).or_else(|| self.root.free_place()).ok_or_else(full)?;
        self.root.enter(&mut *self.medium, entry, place).map_err(|error| match error {
            EnterError::OtherOfThatName(id) => {
                let problem = format!("its SSD knows another volume \"{}\", with the number {id}", volume.name);
                failed(problem, "see which state is the newest, put that back, and start the daemon again")
            }
            EnterError::Open(error) => failed(error, "check the SSD"),
        })?;
        Ok(place)
    }

    /// See [`root::Root::retire`].
    pub fn retire(&mut self, id: u32) -> Result<(), ControlError> {
        self.root.retire(&mut *self.medium, id).map_err(|e| failed(e, "check the SSD"))
    }

    /// See [`root::Root::leave_place`].
    pub fn leave_place(&mut self, id: u32) {
        self.root.leave_place(id);
    }

    /// Writes the checkpoint of shards that are at rest.
    pub fn checkpoint(&mut self, shards: &[Shard]) -> Result<(), ControlError> {
        self.root.checkpoint(&mut *self.medium, shards).map_err(|error| match error {
            CheckpointError::SsdFailed => {
                failed("the SSD failed while the pool ran", "the next start reads all of the ring instead; check the SSD")
            }
            CheckpointError::Open(error) => failed(error, "the next start reads all of the ring instead; check the SSD if it fails again"),
        })
    }
}

fn load(record: &PoolRecord, medium: &mut dyn Medium) -> Result<PoolState, ControlError> {
    let remedy = format!("reconnect the right SSD and {}", start_it(record));
    let wrong = |problem| ControlError::Device { path: record.ssd.clone(), problem, remedy, kind: Kind::Conflict };
    root::load(medium, record.uuid.into_bytes(), record.session).map_err(|error| match error {
        LoadError::Open(error) => open_error(record, error),
        LoadError::AnotherPool => wrong("it carries another pool".into()),
        LoadError::OldCopy { found, known } => wrong(format!("it is an old copy of the pool (session {found}, the latest was {known})")),
    })
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

/// The last group that a start has found whole in a shard.
fn last_group(found: &Restarted) -> u64 {
    match &found.report {
        // It has stated everything again behind that, in groups of its own.
        Some(report) if !report.after_clean_stop => (found.end.next_seq - 1).saturating_sub(report.discarded_groups),
        _ => found.end.next_group - 1,
    }
}

/// Dirty bytes of each volume that has any blocks.
fn dirty_of(found: &[Restarted], places: &BTreeMap<u32, VolumeIndex>) -> BTreeMap<u32, u64> {
    let dirty = |place: VolumeIndex| tallies(found, place).map(|t| t.dirty).sum::<u64>() * BLOCK_BYTES;
    places.iter().map(|(id, place)| (*id, dirty(*place))).filter(|(_, bytes)| *bytes > 0).collect()
}

/// Clean and whole blocks of each volume: spread over what was found, and those that became clean last in each shard. In the order of their addresses.
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

/// Memory that reading what a shard has takes beside its index for each page, if all of it is used: a record, twice, and its place in a table.
const PAGE_BYTES_READING: u64 = 60;

/// How many shards may be read at a time, so that what this takes is no more than a quarter of the memory.
fn threads_for(layout: &Layout, threads: usize, memory_bytes: u64) -> usize {
    let shard_bytes = u64::from(layout.segments_per_shard) * u64::from(layout.pages_per_segment()) * PAGE_BYTES_READING;
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

/// The report for people.
fn described(found: &[Restarted]) -> Vec<String> {
    let reports: Vec<&RecoveryReport> = found.iter().filter_map(|f| f.report.as_ref()).collect();
    let all = || found.iter().flat_map(|f| f.tallies.values());
    let (blocks, dirty) = (all().map(|t| t.blocks).sum::<u64>(), all().map(|t| t.dirty).sum::<u64>());
    described_as(&reports, &human::bytes(blocks * BLOCK_BYTES), &human::bytes(dirty * BLOCK_BYTES))
}

fn described_as(reports: &[&RecoveryReport], cached: &str, dirty: &str) -> Vec<String> {
    let sum = |of: fn(&RecoveryReport) -> u64| reports.iter().map(|r| of(r)).sum::<u64>();
    let from = format!("{} of the ring", types::counted(sum(|r| r.groups), "page"));
    let found = format!("{cached} cached, {dirty} of it dirty, from {from}");
    let mut lines = match sum(|r| r.discarded_groups) {
        0 if reports.iter().all(|report| report.after_clean_stop) => vec![format!("after a clean stop: {found}, which was complete")],
        0 => vec![format!("after an unclean stop: {found}")],
        groups => vec![format!("after an unclean stop: {found}; {} discarded", types::counted(groups, "unfinished group"))],
    };
    for (count, noun, what) in [
        (sum(|r| r.unreadable_pages), "page", "of the ring unreadable"),
        (sum(|r| r.damaged_places), "place", "of the ring damaged"),
        (sum(|r| r.forgotten_blocks), "clean block", "dropped because of damage in the ring"),
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
pub fn open_error_at(path: &str, error: OpenError) -> ControlError {
    let remedy = match &error {
        OpenError::NoPool => "give the SSD of a pool: `hearth devices` tells which are".to_string(),
        OpenError::NewerVersion { .. } => String::new(),
        _ => format!("inspect it with `hearth pool check {path}`"),
    };
    ControlError::Device { path: path.into(), problem: error.to_string(), remedy, kind: Kind::Failed }
}

/// What went wrong when the SSD of a pool was opened.
pub fn open_error(record: &PoolRecord, error: OpenError) -> ControlError {
    let check = format!("inspect it with `hearth pool check {}`", record.ssd);
    let remedy = match &error {
        OpenError::Medium(error) if NO_SPACE.contains(&error.errno) => {
            format!("make room on the file system or volume that the SSD lies on, and {}", start_it(record))
        }
        OpenError::Medium(_) | OpenError::FlushFailed => format!("check the SSD (cable, `dmesg`, SMART), and {check}"),
        OpenError::NoPool => format!(
            "reconnect the right SSD and {}; if that is gone for good, make a new cache with `hearth pool replace {} --ssd PATH` (the same \
             path, too)",
            start_it(record),
            record.name
        ),
        OpenError::NewerVersion { .. } | OpenError::Layout(_) => String::new(),
        OpenError::LogsTooLong { .. } => {
            format!("make a new cache for it with `hearth pool replace {} --ssd {} --force`", record.name, record.ssd)
        }
        OpenError::DirtyWhereItEnds { .. } => format!("{} on all of its SSD, and try again when it is destaged", start_it(record)),
        OpenError::NotResizable => "leave its size, or make a new cache with `hearth pool replace`".to_string(),
        OpenError::NeedsUpgrade => start_it(record),
        OpenError::Memory(_) => format!("give it more memory, and {}", start_it(record)),
        OpenError::SuperblockDamaged
        | OpenError::DisksDamaged
        | OpenError::SuperblockOutdated { .. }
        | OpenError::Contradiction { .. }
        | OpenError::RingFull
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
    fn large_shards_are_read_one_after_the_other_where_memory_is_short() {
        let layout = Layout::plan_default(1 << 40, 2).expect("fits");
        assert_eq!((layout.shards, threads_for(&layout, 4, u64::MAX)), (8, 4));
        assert_eq!((threads_for(&layout, 4, 16 << 30), threads_for(&layout, 4, 1 << 30)), (2, 1));
        let small = Layout::plan_default(1 << 30, 1).expect("fits");
        assert_eq!(threads_for(&small, 4, 1 << 30), 4);
    }

    #[test]
    fn a_ring_that_is_complete_is_told_from_one_that_is_not() {
        let told = |reports: &[&RecoveryReport]| described_as(reports, "4 KiB", "0 B").join("; ");
        let whole = RecoveryReport { groups: 3, ..RecoveryReport::default() };
        assert_eq!(told(&[&whole, &whole]), "after an unclean stop: 4 KiB cached, 0 B of it dirty, from 6 pages of the ring");
        let stopped = RecoveryReport { after_clean_stop: true, ..whole.clone() };
        let clean = "after a clean stop: 4 KiB cached, 0 B of it dirty, from 6 pages of the ring, which was complete";
        assert_eq!(told(&[&stopped, &stopped]), clean);
        assert!(told(&[&stopped, &whole]).starts_with("after an unclean stop"));
        let cut_short = RecoveryReport { discarded_groups: 1, ..whole.clone() };
        assert!(told(&[&whole, &cut_short]).ends_with("; 1 unfinished group discarded"));
    }
}
