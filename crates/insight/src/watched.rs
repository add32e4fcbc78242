//! One load that is watched: its samples, its requests, and which of them are scans.

use super::askers::{Asker, Askers};
use super::marks::Marks;
use super::passed::Passing;
use super::saved::Saved;
use super::unix_ms;
use analysis::Watch;
use analysis::watch::{Limits, Seen, Totals};
use analysis::{Writes, line_hash};
use applications::streams::{PageAt, Place, Rules, Streams};
use engine::tap::{Removed, Sample};
use records::engines::engine_of;
use runtime::Sight;
use runtime::tapped::Used;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use types::{BLOCK_BYTES, Mode, SECTOR_BYTES, StreamClass};

/// How writes act on a cache in that mode.
pub fn writes_in(mode: Mode) -> Writes {
    match mode {
        Mode::WriteBack => Writes::Enter,
        Mode::WriteThrough | Mode::PassThrough => Writes::Refresh,
        Mode::WriteAround => Writes::Remove,
    }
}

/// A use of a sampled block that waits for what its scan may say of it.
struct Pending {
    seen: Seen,
}

/// Ranges read by scans that wait to be taken; more are passed over.
const SCANNED_MAX: usize = 4096;

/// See the module.
pub struct Watched {
    watch: Watch,
    streams: Streams,
    marks: Marks,
    /// Uses of the last step: a scan is known a moment after its first reads.
    pending: Vec<Pending>,
    /// Blocks used in the last step, and those of them that scans read.
    pending_totals: Totals,
    pending_scanned: u64,
    lost_requests: u64,
    now_ms: u64,
    /// When its window began, and how much of the time since nobody watched.
    since_unix_ms: u64,
    away_ms: u64,
    confirmed: Vec<Range<u64>>,
    /// Bytes that scans have read since they were taken, in order of time.
    scanned: Vec<Range<u64>>,
    passing: Passing,
    askers: Askers,
}

/// What a step brings of one load, times in milliseconds of one clock.
#[derive(Default)]
pub struct Step {
    /// Uses, oldest first.
    pub samples: Vec<(Sample, u64)>,
    /// Blocks that were given up.
    pub removed: Vec<Removed>,
    /// Requests, oldest first.
    pub sights: Vec<(Sight, u64)>,
    /// Threads that ask, of those that were met since the last step.
    pub met: Vec<Asker>,
    /// Requests that could not be looked at.
    pub sights_lost: u64,
    /// Blocks used, sampled or not.
    pub used: Used,
    /// Samples with smaller hashes are complete.
    pub below: u64,
}

impl Watched {
    /// A watch that begins now.
    pub fn new(now_ms: u64, writes: Writes, limits: Limits) -> Watched {
        Watched::over(Watch::new(now_ms, writes, limits), now_ms)
    }

    /// One that was saved goes on. Where it goes on watching, the time between was not watched.
    pub fn of_saved(saved: Saved, now_ms: u64, goes_on: bool) -> Watched {
        let Saved { watch, note } = saved;
        let between_ms = if goes_on { unix_ms().saturating_sub(note.saved_unix_ms) } else { 0 };
        Watched {
            lost_requests: note.lost_requests.min(1 << 60),
            since_unix_ms: note.since_unix_ms,
            away_ms: note.away_ms.saturating_add(between_ms),
            ..Watched::over(watch, now_ms)
        }
    }

    fn over(watch: Watch, now_ms: u64) -> Watched {
        Watched {
            watch,
            streams: Streams::default(),
            marks: Marks::default(),
            pending: Vec::new(),
            pending_totals: Totals::default(),
            pending_scanned: 0,
            lost_requests: 0,
            now_ms,
            since_unix_ms: unix_ms(),
            away_ms: 0,
            confirmed: Vec::new(),
            scanned: Vec::new(),
            passing: Passing::default(),
            askers: Askers::default(),
        }
    }

    /// What streams have passed over lately.
    pub fn passing(&self) -> &Passing {
        &self.passing
    }

    /// Bytes that scans have read since the last time, but for sequential streams, which the cache knows by itself.
    pub fn take_scanned(&mut self) -> Vec<Range<u64>> {
        std::mem::take(&mut self.scanned)
    }

    /// What was found.
    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    /// The same, to change it.
    pub fn watch_mut(&mut self) -> &mut Watch {
        &mut self.watch
    }

    /// Who read and wrote.
    pub fn streams(&self) -> &Streams {
        &self.streams
    }

    /// Those who ask, as far as that is visible.
    pub fn askers(&self) -> &Askers {
        &self.askers
    }

    /// Which class who has, from now on: by rules, and by the programs of sessions by their threads.
    pub fn set_rules(&mut self, rules: &Arc<Rules>, sessions: &Arc<BTreeMap<u32, String>>) {
        self.askers.set(rules, sessions, self.streams.origins(), self.now_ms);
    }

    /// Requests that could not be looked at.
    pub fn lost_requests(&self) -> u64 {
        self.lost_requests
    }

    /// The time of its last step.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// When its window began, in milliseconds since 1970.
    pub fn since_unix_ms(&self) -> u64 {
        self.since_unix_ms
    }

    /// How much of the time since is not in the window, in milliseconds: nobody watched.
    pub fn away_ms(&self) -> u64 {
        self.away_ms
    }

    /// Nobody watched since the last step.
    pub fn rest_until(&mut self, now_ms: u64) {
        self.watch.rest_until(now_ms);
        self.away_ms = self.away_ms.saturating_add(now_ms.saturating_sub(self.now_ms));
        self.now_ms = self.now_ms.max(now_ms);
    }

    /// The window begins anew; with a larger sample, if these limits have room for one.
    pub fn restart(&mut self, now_ms: u64, limits: Option<Limits>) {
        let had = self.watch.limits();
        match limits.filter(|limits| limits.lines > had.lines || limits.uses > had.uses) {
            // A watch only shrinks: there was less memory for it, and its sample stayed small.
            Some(limits) => self.watch = Watch::new(now_ms, self.watch.writes(), limits),
            None => self.watch.restart(now_ms),
        }
        self.lost_requests = 0;
        (self.since_unix_ms, self.away_ms) = (unix_ms(), 0);
    }

    /// Takes a step in of a load whose objects are not known.
    pub fn step(&mut self, step: &Step, now_ms: u64) {
        self.step_over(step, now_ms, &|_| None);
    }

    /// Takes a step in; `place_of` says which object a byte belongs to. What it counts of uses appears with the next step.
    pub fn step_over(&mut self, step: &Step, now_ms: u64, place_of: &dyn Fn(u64) -> Option<Place>) {
        self.watch.lower_to(step.below);
        self.now_ms = self.now_ms.max(now_ms);
        self.lost_requests += step.sights_lost;
        self.askers.meet(&step.met);
        let scanned = self.look(&step.sights, place_of);
        self.settle();
        self.pending.extend(step.samples.iter().map(|(sample, time_ms)| Pending {
            seen: Seen { block: sample.block(), is_write: sample.is_write(), is_scan: sample.is_sequential(), time_ms: *time_ms },
        }));
        self.pending_totals = Totals {
            read_blocks: step.used.read_blocks,
            scanned_blocks: step.used.sequential_blocks,
            written_blocks: step.used.written_blocks,
        };
        self.pending_scanned = scanned;
        for removed in &step.removed {
            self.watch.remove(removed.start_block, removed.blocks);
        }
        self.watch.advance(self.now_ms);
        self.marks.forget(self.now_ms);
    }

    /// Nothing more comes: what waits is counted.
    pub fn end(&mut self) {
        self.settle();
    }

    /// Tells requests apart. How many blocks scans have read that are not known as sequential.
    fn look(&mut self, sights: &[(Sight, u64)], place_of: &dyn Fn(u64) -> Option<Place>) -> u64 {
        let mut scanned = 0;
        let below = self.watch.below();
        for (sight, time_ms) in sights {
            let page = page_of(sight);
            let pages = page.as_slice();
            let bytes = sight.start_sector * SECTOR_BYTES..(sight.start_sector + u64::from(sight.sectors)) * SECTOR_BYTES;
            let seen = applications::streams::Seen {
                at_ms: *time_ms,
                offset_bytes: bytes.start,
                len_bytes: u32::try_from(bytes.end - bytes.start).unwrap_or(u32::MAX),
                write: sight.is_write,
                origin: self.askers.slot_of(sight.client),
                // Only reads are asked which objects they pass over.
                place: if sight.is_write { None } else { place_of(bytes.start) },
                pages,
            };
            self.confirmed.clear();
            let verdict = self.streams.note(&seen, &mut self.confirmed);
            self.passing.note(&bytes, *time_ms, verdict);
            if is_passing(verdict.class) && !sight.is_write && !sight.sequential {
                self.confirmed.push(bytes);
            }
            for range in &self.confirmed {
                scanned += (range.end - range.start) / BLOCK_BYTES;
                self.marks.mark(range, *time_ms, |block| line_hash(block, 0) < below);
                let has_room = self.scanned.len() < SCANNED_MAX;
                match self.scanned.last_mut() {
                    Some(last) if last.end == range.start => last.end = range.end,
                    _ if has_room => self.scanned.push(range.clone()),
                    _ => {}
                }
            }
        }
        scanned
    }

    /// Counts what waits.
    fn settle(&mut self) {
        for Pending { mut seen } in std::mem::take(&mut self.pending) {
            seen.is_scan |= !seen.is_write && self.marks.is_scan(seen.block, seen.time_ms);
            self.watch.see(seen);
        }
        let scanned = self.pending_scanned.min(self.pending_totals.read_blocks);
        self.watch.count(Totals {
            read_blocks: self.pending_totals.read_blocks - scanned,
            scanned_blocks: self.pending_totals.scanned_blocks + scanned,
            written_blocks: self.pending_totals.written_blocks,
        });
        (self.pending_totals, self.pending_scanned) = (Totals::default(), 0);
    }
}

/// Whether what such requests read is of no use to the application, and does not count with it.
fn is_passing(class: StreamClass) -> bool {
    use StreamClass::{Backup, Maintenance, Replication, Scan};
    matches!(class, Scan | Backup | Maintenance | Replication)
}

fn page_of(sight: &Sight) -> Option<PageAt> {
    // Of pages that do not say whose they are all would be one chain.
    let names_object = |kind| engine_of(kind).is_some_and(|engine| engine.facts().pages_name_their_object);
    let page = sight.page.filter(|page| page.is_log || names_object(page.kind))?;
    let known = |number: u32| (number != u32::MAX).then_some(number);
    Some(PageAt {
        offset_bytes: sight.start_sector * SECTOR_BYTES,
        len_bytes: 1 << page.size_log2.min(16),
        owner: page.object,
        number: page.page,
        prev: known(page.neighbours.0),
        next: known(page.neighbours.1),
        level: page.level.into(),
        leaf: page.is_leaf,
        log: page.is_log,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use applications::streams::Evidence;
    use types::ObjectId;

    /// Whoever reads one file of 4 MiB after the other is a backup by the third, if it is known where files begin.
    #[test]
    fn a_sample_that_was_made_small_grows_where_the_window_begins_anew() {
        let of = |lines| Limits { lines, uses: 10 * lines };
        let mut watched = Watched::new(0, Writes::Refresh, of(1000));
        watched.watch_mut().shrink(of(100));
        for limits in [None, Some(of(50))] {
            watched.restart(1, limits);
            assert_eq!(watched.watch().limits(), of(100));
        }
        watched.restart(2, Some(of(1000)));
        assert_eq!((watched.watch().limits(), watched.watch().load(true).window_ms()), (of(1000), 0));
    }

    #[test]
    fn reads_of_whole_objects_are_a_backup_where_objects_are_known() {
        const FILE_BYTES: u64 = 4 << 20;
        const READ_BYTES: u64 = 64 << 10;
        let place = |offset_bytes: u64| {
            let file = offset_bytes / FILE_BYTES;
            Some(Place { object: ObjectId(file as u32 + 1), offset_bytes: offset_bytes % FILE_BYTES, object_bytes: FILE_BYTES })
        };
        let classes = |place_of: &dyn Fn(u64) -> Option<Place>| {
            let mut watched = Watched::new(0, Writes::Refresh, Limits::for_each_of(1, 8 << 20).expect("room"));
            for read in 0..6 * FILE_BYTES / READ_BYTES {
                let (start_sector, sectors) = (read * READ_BYTES / SECTOR_BYTES, (READ_BYTES / SECTOR_BYTES) as u32);
                let sight =
                    Sight { volume: 0, time_ms: 0, start_sector, sectors, is_write: false, sequential: false, client: 0, page: None };
                let step = Step { sights: vec![(sight, read)], below: u64::MAX, ..Step::default() };
                watched.step_over(&step, read, place_of);
            }
            let evidence: Vec<_> = watched.streams().listed().iter().map(|line| (line.verdict.class, line.verdict.evidence)).collect();
            evidence
        };
        let known = classes(&place);
        assert!(known.contains(&(StreamClass::Backup, Evidence::ObjectsInRow)), "{known:?}");
        let unknown = classes(&|_| None);
        assert!(unknown.iter().all(|(class, _)| *class != StreamClass::Backup), "{unknown:?}");
        assert!(unknown.contains(&(StreamClass::Scan, Evidence::Sequence)), "{unknown:?}");
    }
}
