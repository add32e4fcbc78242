//! Bounded exhaustive runs: every sequence of a few operations over two blocks, a crash after every step of each, and every subset of
//! what was not flushed kept. Small spaces, all of them, find what long random runs miss.
//!
//! A *unit* is a 4 KiB piece of one write that a power cut could take by itself, on any device; writes in flight at the crash
//! count as written and unflushed. Up to [`POWERSET_UNITS_MAX`] units, all subsets are tried; beyond, none, all, each
//! single one, and each all-but-one. Besides, one cut that tears at 512 bytes, and two process crashes (in flight: done, not done).

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use engine::api::{Command, Op};
use types::{Mode, VolumeIndex};

use crate::disk::media::Keep;
use crate::plan::Plan;
use crate::soak::caught;
use crate::system::{Builder, Change};
use crate::workload::Draft;
use crate::world::operator::Purpose;
use crate::world::{Failure, Step, World, failed};

/// All subsets are tried up to this many units.
pub const POWERSET_UNITS_MAX: usize = 6;

/// One operation of a sequence; blocks are 0 and 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Move {
    /// Write a block.
    Write(u64),
    /// Write a block with FUA.
    WriteFua(u64),
    /// Discard a block.
    Trim(u64),
    /// Zero a block.
    Zero(u64),
    /// Read a block.
    Read(u64),
    /// Flush.
    Flush,
    /// Forget what is clean.
    Evict,
    /// Bring dirty blocks home.
    Destage,
    /// Write-back to write-through, or back.
    Switch,
}

/// All of them.
pub const MOVES: [Move; 14] = [
    Move::Write(0),
    Move::Write(1),
    Move::WriteFua(0),
    Move::WriteFua(1),
    Move::Trim(0),
    Move::Trim(1),
    Move::Zero(0),
    Move::Zero(1),
    Move::Read(0),
    Move::Read(1),
    Move::Flush,
    Move::Evict,
    Move::Destage,
    Move::Switch,
];

/// One setting in which all sequences are tried.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Mode at the start.
    pub mode: Mode,
    /// Each move begins when the one before is answered; else all are begun at once.
    pub one_by_one: bool,
    /// Longest sequence.
    pub depth: usize,
}

/// What happens after some step.
#[derive(Clone, Copy, Debug)]
pub enum Crash {
    /// The process dies; I/O in flight is done (or not).
    Process(bool),
    /// The power goes; the subset of units in the mask stays.
    Mask(u64),
    /// The power goes; each sector stays or not by a draw from this number.
    Torn(u64),
}

/// Counts of what was tried.
#[derive(Clone, Copy, Default, Debug)]
pub struct Count {
    /// Sequences.
    pub sequences: u64,
    /// Sequence and crash point.
    pub points: u64,
    /// Runs: sequence, crash point and subset.
    pub runs: u64,
}

/// A failed run.
#[derive(Clone, Debug)]
pub struct Counterexample {
    /// The sequence.
    pub moves: Vec<Move>,
    /// In which setting.
    pub setting: Setting,
    /// After which step the crash came, and which.
    pub crash: Option<(u64, Crash)>,
    /// What was found.
    pub failure: Failure,
}

fn draft(op: Op, block: u64, fua: bool) -> Draft {
    Draft { fua, ..Draft::of(0, op, block * 8, 8) }
}

impl World<'_> {
    fn make(&mut self, next: Move) -> Step {
        let (op, block, fua) = match next {
            Move::Write(block) => (Op::Write, block, false),
            Move::WriteFua(block) => (Op::Write, block, true),
            Move::Trim(block) => (Op::Discard, block, false),
            Move::Zero(block) => (Op::WriteZeroes, block, false),
            Move::Read(block) => (Op::Read, block, false),
            Move::Flush => {
                self.submit(0, Draft::of(0, Op::Flush, 0, 0));
                return self.drain();
            }
            Move::Evict => {
                self.command(Purpose::DropClean, 0, |token| Command::DropClean { token, volume: VolumeIndex(0) });
                return self.drain();
            }
            Move::Destage => {
                self.destage(0, Purpose::Destage);
                return self.drain();
            }
            Move::Switch => {
                let mut options = self.volumes[0].options.clone();
                options.mode = if options.mode == Mode::WriteBack { Mode::WriteThrough } else { Mode::WriteBack };
                if options.mode == Mode::WriteBack && !self.record(Change::MayHaveDirty(0))? {
                    return Err(failed("the superblock cannot be stored although nothing is wrong"));
                }
                self.set_options(0, options);
                return self.drain();
            }
        };
        self.submit(0, draft(op, block, fua));
        self.drain()
    }

    fn busy(&self) -> bool {
        !self.clients.pending.is_empty() || !self.operator.idle()
    }

    /// Makes the moves, at most `until` steps. Gives the steps made.
    fn make_all(&mut self, moves: &[Move], one_by_one: bool, until: u64) -> Result<u64, Failure> {
        let mut steps = 0;
        let mut left = moves.iter();
        loop {
            if !one_by_one || !self.busy() {
                if let Some(next) = left.next() {
                    self.make(*next)?;
                    continue;
                }
                if !self.busy() {
                    return Ok(steps);
                }
            }
            if steps >= until {
                return Ok(steps);
            }
            self.step()?;
            steps += 1;
        }
    }

    fn apply(&mut self, crash: Crash) -> Step {
        self.end_life();
        let (power, in_flight) = match crash {
            Crash::Process(done) => (false, done),
            Crash::Mask(_) | Crash::Torn(_) => (true, true),
        };
        let mut shift = 0;
        for device in &mut self.devices {
            device.settle_all(in_flight);
            let keep = match crash {
                Crash::Process(_) => continue,
                Crash::Mask(mask) => {
                    let units = device.media.units();
                    let keep = Keep::Mask(mask.checked_shr(shift).unwrap_or(0));
                    shift += units as u32;
                    keep
                }
                Crash::Torn(_) => Keep::Sectors(50),
            };
            device.power_cut(keep, &mut self.disk_prng);
        }
        self.oracle.crash(power);
        self.check_settled_images()?;
        self.start()
    }
}

fn plan(setting: Setting, salt: u64) -> Plan {
    Plan::tiny(setting.mode, salt)
}

struct Probe {
    steps: u64,
    units: usize,
}

/// Runs up to a crash point and looks how many units there are; with a crash, goes on to the end.
fn run(
    moves: &[Move],
    setting: Setting,
    builder: &dyn Builder,
    until: u64,
    crash: Option<Crash>,
    watch: Option<(u16, u64)>,
) -> Result<Probe, Failure> {
    let salt = if let Some(Crash::Torn(salt)) = crash { salt } else { 0 };
    let plan = plan(setting, salt);
    let mut world = World::new(&plan, builder, watch);
    let result = play(&mut world, moves, setting, until, crash);
    result.map_err(|failure| Failure { history: std::mem::take(&mut world.history), ..failure })
}

fn play(world: &mut World, moves: &[Move], setting: Setting, until: u64, crash: Option<Crash>) -> Result<Probe, Failure> {
    world.format()?;
    world.safety = false;
    world.start()?;
    let steps = world.make_all(moves, setting.one_by_one, until)?;
    let in_flight: usize = world.devices.iter().map(|device| device.units_in_flight()).sum();
    let units = in_flight + world.devices.iter().map(|device| device.media.units()).sum::<usize>();
    match crash {
        Some(crash) => {
            world.apply(crash)?;
            world.finish()?;
        }
        None if until == u64::MAX => world.finish()?,
        None => {}
    }
    Ok(Probe { steps, units })
}

fn masks(units: usize) -> Vec<u64> {
    if units <= POWERSET_UNITS_MAX {
        return (0..1 << units).collect();
    }
    let bits = units.min(63);
    let all = (1u64 << bits) - 1;
    let mut masks = vec![0, all];
    for unit in 0..bits {
        masks.extend([1 << unit, all & !(1 << unit)]);
    }
    masks
}

/// Tries one sequence in one setting.
pub fn try_sequence(moves: &[Move], setting: Setting, builder: &dyn Builder, count: &mut Count) -> Result<(), Box<Counterexample>> {
    let wrong = |crash: Option<(u64, Crash)>, failure: Failure| Box::new(Counterexample { moves: moves.to_vec(), setting, crash, failure });
    let whole = caught(|| run(moves, setting, builder, u64::MAX, None, None)).map_err(|failure| wrong(None, failure))?;
    count.sequences += 1;
    count.runs += 1;
    for point in 0..=whole.steps {
        let probe = run(moves, setting, builder, point, None, None).map_err(|failure| wrong(None, failure))?;
        count.points += 1;
        let mut crashes: Vec<Crash> = masks(probe.units).into_iter().map(Crash::Mask).collect();
        crashes.extend([Crash::Process(false), Crash::Process(true), Crash::Torn(point)]);
        for crash in crashes {
            count.runs += 1;
            caught(|| run(moves, setting, builder, point, Some(crash), None)).map_err(|failure| wrong(Some((point, crash)), failure))?;
        }
    }
    Ok(())
}

/// The story of a counterexample.
pub fn story(example: &Counterexample, builder: &dyn Builder) -> Vec<String> {
    let (until, crash) = example.crash.map_or((u64::MAX, None), |(point, crash)| (point, Some(crash)));
    let place = example.failure.place.unwrap_or((0, 0));
    let again = caught(|| run(&example.moves, example.setting, builder, until, crash, Some(place)));
    again.err().map_or_else(|| vec!["the second run did not fail".to_string()], |failure| failure.history)
}

fn sequences(depth: usize) -> Vec<Vec<Move>> {
    let mut all: Vec<Vec<Move>> = Vec::new();
    let mut longest: Vec<Vec<Move>> = vec![Vec::new()];
    for _ in 0..depth {
        longest = longest.iter().flat_map(|sequence| MOVES.map(|next| [&sequence[..], &[next]].concat())).collect();
        all.extend(longest.iter().cloned());
    }
    all
}

/// Tries all sequences of a setting, on several threads; gives the counts and the first counterexamples.
pub fn try_all(setting: Setting, builder: &(dyn Builder + Sync), threads: usize, wrong_max: usize) -> (Count, Vec<Counterexample>) {
    let all = sequences(setting.depth);
    let next = AtomicUsize::new(0);
    let shared = Mutex::new((Count::default(), Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(moves) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mut count = Count::default();
                    let result = try_sequence(moves, setting, builder, &mut count);
                    let mut shared = shared.lock().expect("no thread panics while it holds this");
                    shared.0.sequences += count.sequences;
                    shared.0.points += count.points;
                    shared.0.runs += count.runs;
                    shared.1.extend(result.err().map(|example| *example));
                    if shared.1.len() >= wrong_max {
                        next.store(all.len(), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    shared.into_inner().expect("no thread panics while it holds this")
}
