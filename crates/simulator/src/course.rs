//! The course of a run: what befalls it from outside, step by step. It is recorded, or a record is played with some steps left out.
//!
//! Steps are what clients, the operator and bad luck do: requests, acts, faults, crashes. What follows from them is no step. A run that
//! plays a record asks before each whether it happens; what is not in the record does not. With all of them it is the run that was recorded.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use crate::prng::Prng;
use crate::tape::{Scenes, Tape};

/// Kinds of steps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// A request of this connection.
    Request(u16),
    /// An act of the operator.
    Act,
    /// The operator cancels a command.
    Cancel,
    /// An I/O of this device fails, is damaged, or takes long.
    Strike(usize),
    /// I/Os of blocking work fail.
    BlockingStrike,
    /// The process dies in blocking work.
    Death,
    /// The process dies, perhaps with the power.
    Crash,
    /// Old data on the SSD decays.
    Rot,
    /// The SSD leaves.
    SsdLeaves,
    /// A backing device leaves for a while.
    BackingLeaves,
    /// A client goes.
    Disconnect,
    /// Pages run short for a while.
    Shortage,
    /// The host has much to do for a while.
    Busy,
    /// A volume grows.
    Grow,
    /// Something is said of objects.
    Labels,
    /// The pool loses its hints.
    ForgetHints,
    /// The pool makes more or less of content.
    ChangeLevel,
}

/// One step: its kind, and which of that kind.
pub type Choice = (Kind, u64);

/// A step of a recorded run.
#[derive(Clone, Debug)]
pub struct Step {
    /// Which.
    pub choice: Choice,
    /// Virtual time.
    pub at_ns: u64,
    /// Events that were handled at that time before it: they tell where in this moment it was.
    pub place: u32,
    /// Of a request, its sectors.
    pub sectors: u32,
    /// In words.
    pub words: String,
}

/// A run as it was.
#[derive(Default)]
pub struct Record {
    /// Its steps, in order.
    pub steps: RefCell<Vec<Step>>,
    scenes: [Arc<Mutex<Scenes>>; 3],
}

/// What is played: steps of a record, and sectors of requests that are shorter than they were.
#[derive(Clone, Default)]
pub struct Script {
    steps: BTreeMap<Choice, (u64, u32)>,
    kept: BTreeMap<Choice, Option<u32>>,
    scenes: [Arc<Scenes>; 3],
}

/// How a run goes.
pub struct Course {
    mode: Mode,
    counts: BTreeMap<Kind, u64>,
    now_ns: u64,
    place: u32,
}

enum Mode {
    Free,
    Record(Rc<Record>),
    Play(Rc<Script>),
}

impl Record {
    /// Plays of this record; none of the steps are kept yet.
    pub fn script(&self) -> Script {
        let steps = self.steps.borrow().iter().map(|step| (step.choice, (step.at_ns, step.place))).collect();
        let scenes = [0, 1, 2].map(|index| Arc::new(self.scenes[index].lock().unwrap_or_else(PoisonError::into_inner).clone()));
        Script { steps, kept: BTreeMap::new(), scenes }
    }
}

impl Script {
    /// The same record with these steps; where a number of sectors is given, the request has so many.
    pub fn with(&self, kept: impl IntoIterator<Item = (Choice, Option<u32>)>) -> Script {
        Script { kept: kept.into_iter().collect(), ..self.clone() }
    }
}

impl Course {
    /// Whatever the seed says.
    pub fn free() -> Course {
        Course::of(Mode::Free)
    }

    /// The same, noted.
    pub fn recording(record: Rc<Record>) -> Course {
        Course::of(Mode::Record(record))
    }

    /// What a script says.
    pub fn playing(script: Rc<Script>) -> Course {
        Course::of(Mode::Play(script))
    }

    fn of(mode: Mode) -> Course {
        Course { mode, counts: BTreeMap::new(), now_ns: 0, place: 0 }
    }

    /// Gives the generators of a run their tapes: the same ones in the same order, always.
    pub fn tape(&self, generators: [&mut Prng; 3]) {
        for (index, prng) in generators.into_iter().enumerate() {
            match &self.mode {
                Mode::Free => (),
                Mode::Record(record) => prng.tape(Tape::recording(record.scenes[index].clone())),
                Mode::Play(script) => prng.tape(Tape::playing(script.scenes[index].clone())),
            }
        }
    }

    /// An event is about to be handled.
    pub fn event_at(&mut self, now_ns: u64) {
        self.place = if now_ns == self.now_ns { self.place + 1 } else { 0 };
        self.now_ns = now_ns;
    }

    /// Which of its kind the next one is.
    pub fn next(&mut self, kind: Kind) -> Choice {
        if matches!(self.mode, Mode::Free) {
            return (kind, 0);
        }
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        (kind, *count)
    }

    /// Whether a step happens. It is noted, in words.
    pub fn happens(&mut self, choice: Choice, words: impl FnOnce() -> String) -> bool {
        match &self.mode {
            Mode::Free | Mode::Record(_) => {
                self.note(choice, words);
                true
            }
            Mode::Play(script) => script.kept.contains_key(&choice),
        }
    }

    /// Whether a fault may happen; if it does, it is to be noted.
    pub fn may_strike(&self, choice: Choice) -> bool {
        if let Mode::Play(script) = &self.mode { script.kept.contains_key(&choice) } else { true }
    }

    /// Notes what has happened.
    pub fn note(&mut self, choice: Choice, words: impl FnOnce() -> String) {
        if let Mode::Record(record) = &self.mode {
            record.steps.borrow_mut().push(Step { choice, at_ns: self.now_ns, place: self.place, sectors: 0, words: words() });
        }
    }

    /// Notes that the latest step has so many sectors.
    pub fn note_sectors(&mut self, sectors: u32) {
        if let Mode::Record(record) = &self.mode {
            record.steps.borrow_mut().iter_mut().next_back().into_iter().for_each(|step| step.sectors = sectors);
        }
    }

    /// How long until the next step of a kind, if that is played and not due yet. It comes when it came, also where what was before it is
    /// left out.
    pub fn early_by(&self, kind: Kind) -> Option<u64> {
        self.next_after(kind).filter(|wait_ns| *wait_ns > 0)
    }

    /// How long until the next step of a kind was in the record that is played, if it was.
    pub fn next_after(&self, kind: Kind) -> Option<u64> {
        let Mode::Play(script) = &self.mode else { return None };
        let next = self.counts.get(&kind).copied().unwrap_or_default() + 1;
        Some(script.steps.get(&(kind, next))?.0.saturating_sub(self.now_ns))
    }

    /// How many sectors a request has, if it is shorter than it was.
    pub fn sectors(&self, choice: Choice) -> Option<u32> {
        if let Mode::Play(script) = &self.mode { script.kept.get(&choice).copied().flatten() } else { None }
    }

    /// Whether a run crashes, in which it would now if `would`. A run that plays a record crashes when that did, or before it runs out
    /// of work.
    pub fn crashes(&mut self, would: bool, is_out_of_work: bool) -> bool {
        let Mode::Play(script) = &self.mode else {
            if would {
                let choice = self.next(Kind::Crash);
                self.note(choice, || "the process dies".to_string());
            }
            return would;
        };
        let last = self.counts.get(&Kind::Crash).copied().unwrap_or_default();
        let next = script.kept.range((Kind::Crash, last + 1)..=(Kind::Crash, u64::MAX)).next().map(|(choice, _)| *choice);
        let Some(choice) = next.filter(|choice| is_out_of_work || (self.now_ns, self.place) >= script.steps[choice]) else {
            return false;
        };
        self.counts.insert(Kind::Crash, choice.1);
        true
    }

    /// The number of the latest crash, which names its scenes.
    pub fn crash(&self) -> u64 {
        self.counts.get(&Kind::Crash).copied().unwrap_or_default()
    }
}
