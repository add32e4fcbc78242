//! Counting what of a volume is cached, by cell, in the background.
//!
//! All that is cached is in the shards' indexes, which only their reactors may look at: up to 268 million entries in a pool of 1 TiB. So a
//! thread asks the reactors for a little again and again, and leaves them alone for fifty times as long as it held them. One pass
//! serves everybody who waits. A window that is small beside the pool is looked up block by block instead.
//!
//! Counts are kept for a while: who asks again soon gets them as they were; later, a new count begins and the old one is told until it ends.

use super::super::{failed, locked};
use super::unanswered;
use api::error::ControlError;
use datapath::looking::{AddressMap, Cells};
use engine::shard::Shard;
use runtime::{PoolRef, Runtime, monotonic_ns};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::{Duration, Instant};
use types::{ShardIndex, VolumeIndex};

/// How long a count is good.
const GOOD_FOR: Duration = Duration::from_secs(5);
/// How long a count is better than waiting for the next.
const BETTER_THAN_WAITING_FOR: Duration = Duration::from_secs(15);
/// Who asks for the first time in a while waits this long for the count, and gets what there is by then.
const PATIENCE: Duration = Duration::from_millis(300);
/// Windows kept; the one asked for longest ago goes first.
const WINDOWS_MAX: usize = 32;
/// Entries of indexes that a reactor looks at before it does something else: 2 to 6 ns each, so 50 µs at most.
const ENTRIES_A_LOOK: u32 = 8192;
/// The same where blocks are looked up one by one: up to 100 ns each.
const BLOCKS_A_LOOK: u64 = 512;
/// A lookup takes about as long as so many entries of a pass.
const ENTRIES_A_LOOKUP: u64 = 20;
/// For each part of time that a reactor is held, it is left alone for so many: it loses 2 % at most.
const REST: u32 = 49;
/// What a look costs a reactor beside the looking: it is woken by a message.
const WAKE: Duration = Duration::from_micros(10);

/// What is to be counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Window {
    pub(super) pool: String,
    /// When the pool started: after another start it is another pool.
    pub(super) started: Instant,
    pub(super) volume: String,
    pub(super) place: VolumeIndex,
    pub(super) cells: Cells,
    /// Where the volume ends.
    pub(super) last_block: u64,
}

/// Counts in the making, or made. Several reactors add at the same time.
struct Tally {
    cached: Vec<AtomicU32>,
    dirty: Vec<AtomicU32>,
    /// In thousandths.
    done: AtomicU32,
}

impl Tally {
    fn new(cells: u32) -> Arc<Tally> {
        let zeroes = || (0..cells).map(|_| AtomicU32::new(0)).collect();
        Arc::new(Tally { cached: zeroes(), dirty: zeroes(), done: AtomicU32::new(0) })
    }

    fn add(&self, cell: usize, dirty: bool) {
        self.cached[cell].fetch_add(1, Ordering::Relaxed);
        if dirty {
            self.dirty[cell].fetch_add(1, Ordering::Relaxed);
        }
    }

    fn told(&self, taken: Option<Instant>) -> AddressMap {
        let load = |counts: &[AtomicU32]| counts.iter().map(|count| u64::from(count.load(Ordering::Relaxed))).collect();
        AddressMap {
            heat: Vec::new(),
            cached_blocks: load(&self.cached),
            dirty_blocks: load(&self.dirty),
            age_ms: taken.map_or(0, |taken| taken.elapsed().as_millis() as u64),
            counted_part: taken.map_or_else(|| f64::from(self.done.load(Ordering::Relaxed)) / 1000.0, |_| 1.0),
        }
    }
}

/// What is known of a window.
struct Known {
    window: Window,
    asked: Instant,
    /// The latest whole count, and when it was begun.
    made: Option<(Arc<Tally>, Instant)>,
    /// The one that is being made, or waits for its turn.
    making: Option<Arc<Tally>>,
}

#[derive(Default)]
struct Table {
    known: Vec<Known>,
    /// Pools that a thread counts in.
    busy: Vec<(String, Instant)>,
}

/// All counts.
#[derive(Default)]
pub struct Counting {
    table: Arc<(Mutex<Table>, Condvar)>,
}

impl Counting {
    /// The counts of a window: as they were a few seconds ago, or as far as they are.
    pub(super) fn ask(&self, runtime: &Arc<Runtime>, pool: &PoolRef, window: Window) -> Result<AddressMap, ControlError> {
        let (table, changed) = &*self.table;
        let mut locked_table = locked(table);
        let known = locked_table.know(&window);
        known.asked = Instant::now();
        let is_good = known.made.as_ref().is_some_and(|(_, begun)| begun.elapsed() < GOOD_FOR);
        if !is_good && known.making.is_none() {
            known.making = Some(Tally::new(window.cells.count));
            let busy = (window.pool.clone(), window.started);
            if !locked_table.busy.contains(&busy) {
                let counter =
                    Counter { table: self.table.clone(), runtime: Arc::downgrade(runtime), pool: pool.clone(), busy: busy.clone() };
                let spawned = std::thread::Builder::new().name("counting".into()).spawn(move || counter.run());
                if let Err(error) = spawned {
                    locked_table.know(&window).making = None;
                    return Err(failed(format!("no thread can be started ({error})"), "raise the thread limit"));
                }
                locked_table.busy.push(busy);
            }
        }
        let waits = |table: &mut Table| {
            let known = table.know(&window);
            let is_old = known.made.as_ref().is_none_or(|(_, begun)| begun.elapsed() >= BETTER_THAN_WAITING_FOR);
            is_old && known.making.is_some()
        };
        let (mut locked_table, _) = changed.wait_timeout_while(locked_table, PATIENCE, waits).expect("no holder of this lock panics");
        let known = locked_table.know(&window);
        Ok(match (&known.made, &known.making) {
            (Some((tally, begun)), _) => tally.told(Some(*begun)),
            (None, Some(tally)) => tally.told(None),
            (None, None) => return Err(stopped()),
        })
    }
}

fn stopped() -> ControlError {
    failed("the pool was stopped meanwhile", "try again when it is running")
}

impl Table {
    /// What is known of the window; nothing yet, if it is new.
    fn know(&mut self, window: &Window) -> &mut Known {
        if let Some(at) = self.known.iter().position(|known| known.window == *window) {
            return &mut self.known[at];
        }
        if self.known.len() >= WINDOWS_MAX {
            let idle = |known: &&Known| known.making.is_none();
            let oldest = self.known.iter().filter(idle).map(|known| known.asked).min();
            self.known.retain(|known| known.making.is_some() || Some(known.asked) != oldest);
        }
        self.known.push(Known { window: window.clone(), asked: Instant::now(), made: None, making: None });
        self.known.last_mut().expect("just put there")
    }
}

/// The thread that counts in one pool, until nobody waits.
struct Counter {
    table: Arc<(Mutex<Table>, Condvar)>,
    runtime: Weak<Runtime>,
    pool: PoolRef,
    busy: (String, Instant),
}

/// A window with its tally.
type Wanted = (Window, Arc<Tally>);

impl Counter {
    fn run(self) {
        while let Some(wanted) = self.next() {
            let begun = Instant::now();
            let result = self.count(&wanted);
            if let Err(error) = &result {
                tracing::debug!(pool = self.busy.0, "counting ended early: {error}");
            }
            let (table, changed) = &*self.table;
            for known in &mut locked(table).known {
                if wanted.iter().any(|(window, _)| known.window == *window)
                    && let Some(tally) = known.making.take()
                    && result.is_ok()
                {
                    known.made = Some((tally, begun));
                }
            }
            changed.notify_all();
        }
    }

    /// What is waited for; `None` if nothing is, and then this thread is not busy any more.
    fn next(&self) -> Option<Vec<Wanted>> {
        let mut table = locked(&self.table.0);
        let mine = |known: &&Known| (&known.window.pool, known.window.started) == (&self.busy.0, self.busy.1);
        let wanted = |known: &Known| Some((known.window.clone(), known.making.clone()?));
        let wanted: Vec<Wanted> = table.known.iter().filter(mine).filter_map(wanted).collect();
        if wanted.is_empty() {
            table.busy.retain(|busy| *busy != self.busy);
            return None;
        }
        Some(wanted)
    }

    fn count(&self, wanted: &[Wanted]) -> Result<(), ControlError> {
        let entries = self.entries()?;
        let blocks = |(window, _): &Wanted| window.cells.blocks().min(window.last_block.saturating_sub(window.cells.first_block));
        let (few, many): (Vec<Wanted>, Vec<Wanted>) =
            wanted.iter().cloned().partition(|wanted| blocks(wanted) * ENTRIES_A_LOOKUP < entries);
        for wanted in &few {
            self.look_up(wanted, blocks(wanted))?;
        }
        if many.is_empty() { Ok(()) } else { self.pass(&many) }
    }

    /// Entries that a pass looks at.
    fn entries(&self) -> Result<u64, ControlError> {
        let entries = Arc::new(AtomicU64::new(0));
        let adding = entries.clone();
        self.look(move |_, shard| {
            adding.fetch_add(u64::from(shard.config().place.layout.slots_per_shard()), Ordering::Relaxed);
        })?;
        Ok(entries.load(Ordering::Relaxed))
    }

    /// One look at every shard; then the reactors are left alone for a while.
    fn look(&self, look: impl Fn(ShardIndex, &Shard) + Send + Sync + 'static) -> Result<(), ControlError> {
        let runtime = self.runtime.upgrade().ok_or_else(stopped)?;
        // By reactor: shards are dealt out in turn.
        let held_ns: Arc<[AtomicU64]> = (0..runtime.reactors()).map(|_| AtomicU64::new(0)).collect();
        let holding = held_ns.clone();
        let timed = move |index: ShardIndex, shard: &Shard| {
            let begun = monotonic_ns();
            look(index, shard);
            holding[usize::from(index.0) % holding.len()].fetch_add((monotonic_ns() - begun).max(1), Ordering::Relaxed);
        };
        runtime.inspect_shards(&self.pool, timed).map_err(unanswered)?;
        // Must not be what keeps it alive while it is to end.
        drop(runtime);
        let longest_ns = held_ns.iter().map(|held| held.load(Ordering::Relaxed)).max().unwrap_or(0);
        if longest_ns == 0 {
            return Err(stopped());
        }
        std::thread::sleep((Duration::from_nanos(longest_ns) + WAKE) * REST);
        Ok(())
    }

    fn look_up(&self, (window, tally): &Wanted, blocks: u64) -> Result<(), ControlError> {
        let (cells, place) = (window.cells, window.place);
        let mut at = 0;
        while at < blocks {
            let count = BLOCKS_A_LOOK.min(blocks - at);
            let (first_block, adding) = (cells.first_block + at, tally.clone());
            self.look(move |_, shard| {
                shard.look_at_range(place, first_block, count, |block, dirty| {
                    if let Some(cell) = cells.cell_of(block) {
                        adding.add(cell, dirty);
                    }
                });
            })?;
            at += count;
            tally.done.store((at * 1000 / blocks) as u32, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Looks at all entries once, for all of these windows.
    fn pass(&self, wanted: &[Wanted]) -> Result<(), ControlError> {
        let windows: Arc<[Wanted]> = wanted.into();
        let shards = Arc::new(AtomicU32::new(0));
        let counting = shards.clone();
        self.look(move |index, _| {
            counting.fetch_max(u32::from(index.0) + 1, Ordering::Relaxed);
        })?;
        let shards = shards.load(Ordering::Relaxed);
        let reactors = self.runtime.upgrade().map_or(1, |runtime| u32::from(runtime.reactors()));
        let steps = (ENTRIES_A_LOOK / shards.div_ceil(reactors)).max(1);
        let places: Arc<[Progress]> = (0..shards).map(|_| Progress::default()).collect();
        while places.iter().any(Progress::goes_on) {
            let (windows, moving) = (windows.clone(), places.clone());
            self.look(move |index, shard| {
                let progress = &moving[usize::from(index.0)];
                if progress.goes_on() {
                    let next = shard.look_at_index(progress.at.load(Ordering::Relaxed), steps, |place, block, dirty| {
                        for (window, tally) in windows.iter().filter(|(window, _)| window.place == place) {
                            if let Some(cell) = window.cells.cell_of(block) {
                                tally.add(cell, dirty);
                            }
                        }
                    });
                    progress.moved(next, shard.index_end());
                }
            })?;
            let done: u64 = places.iter().map(Progress::thousandths).sum::<u64>() / u64::from(shards);
            wanted.iter().for_each(|(_, tally)| tally.done.store(done as u32, Ordering::Relaxed));
        }
        Ok(())
    }
}

/// How far a pass is in one shard.
#[derive(Default)]
struct Progress {
    /// [`Progress::ENDED`] at the end.
    at: AtomicU64,
    end: AtomicU64,
}

impl Progress {
    const ENDED: u64 = u64::MAX;

    fn goes_on(&self) -> bool {
        self.at.load(Ordering::Relaxed) != Progress::ENDED
    }

    fn moved(&self, next: Option<u64>, end: u64) {
        self.at.store(next.unwrap_or(Progress::ENDED), Ordering::Relaxed);
        self.end.store(end, Ordering::Relaxed);
    }

    fn thousandths(&self) -> u64 {
        if !self.goes_on() {
            return 1000;
        }
        (self.at.load(Ordering::Relaxed) * 1000).checked_div(self.end.load(Ordering::Relaxed)).unwrap_or(0)
    }
}
