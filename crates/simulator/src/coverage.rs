//! Which fault struck in which phase: a table that is printed, and that fails a long run if a cell that can be reached
//! stayed empty.

use std::fmt::Write;

use crate::disk::faults::Class;

/// Faults, by the numbers of the fault model in `docs/`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Fault {
    /// F1.
    ProcessCrash,
    /// F2.
    PowerCut,
    /// F3 on the SSD.
    SsdError,
    /// F3 on a backing device.
    BackingError,
    /// F4 on the SSD.
    SsdFlushError,
    /// F4 on a backing device.
    BackingFlushError,
    /// F5.
    Corruption,
    /// F6.
    Latency,
    /// F7.
    Gone,
    /// F7: the SSD comes back as an older copy of itself, or shorter.
    Exchanged,
    /// F7: the SSD comes back after it was lost.
    Returned,
    /// F10: a power cut on a device that ignores flushes.
    LyingFlush,
    /// F11: a client goes with requests in flight.
    Disconnect,
    /// F12.
    Operator,
    /// F13: pages run short.
    Shortage,
}

/// Names of the faults, in order.
pub const FAULTS: [&str; 15] = [
    "F1 crash",
    "F2 power cut",
    "F3 SSD error",
    "F3 backing error",
    "F4 SSD flush",
    "F4 backing flush",
    "F5 corruption",
    "F6 latency",
    "F7 device gone",
    "F7 older, shorter",
    "F7 SSD returns",
    "F10 lying flush",
    "F11 disconnect",
    "F12 operator",
    "F13 no pages",
];

/// What was going on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Phase {
    /// A pool is being made.
    Format,
    /// Nothing in flight.
    Idle,
    /// A read of the backing device for a client.
    ReadMiss,
    /// A client's write in flight, with its write to the SSD.
    WriteAllocate,
    /// A client's write over what is dirty, perhaps.
    OverwriteDirty,
    /// A client's write over blocks that are on their way home.
    OverwriteDestage,
    /// A destage write in flight.
    Destage,
    /// A flush of a backing device that no client asked for.
    DestageFlush,
    /// A segment of the SSD written for the second time or more.
    Reuse,
    /// A write to the SSD.
    Append,
    /// A client's flush in flight.
    Flush,
    /// A mode or option change under way.
    SetOptions,
    /// A destage command under way.
    DestageCommand,
    /// A volume leaves or comes.
    Detach,
    /// The pool is going to another SSD.
    Replace,
    /// Clean stop, with its last sweep.
    Stop,
    /// A superblock is being stored while the pool runs.
    Superblock,
    /// Recovery.
    Recovery,
    /// Recovery of what a crash in recovery left.
    RecoveryAgain,
}

/// Names of the phases, in order.
pub const PHASES: [&str; 19] = [
    "format",
    "idle",
    "read miss",
    "write allocate",
    "overwrite dirty",
    "overwrite in destage",
    "destage",
    "destage flush",
    "SSD written again",
    "SSD write",
    "flush",
    "set options",
    "destage command",
    "detach, attach",
    "replace SSD",
    "clean stop",
    "superblock",
    "recovery",
    "recovery again",
];

/// Cells that cannot be reached, with the reason beside them.
fn reachable(fault: usize, phase: usize) -> bool {
    let format = Phase::Format as usize;
    let stop = Phase::Stop as usize;
    let recovery = Phase::Recovery as usize;
    let again = Phase::RecoveryAgain as usize;
    let blocking = phase == format || phase == stop || phase == Phase::Superblock as usize || phase == recovery || phase == again;
    match fault {
        // Blocking work touches the SSD only, one call at a time: backing devices, latency and the operator have no part.
        f if f == Fault::BackingError as usize || f == Fault::BackingFlushError as usize => !blocking,
        f if f == Fault::Latency as usize => !blocking,
        // An act of the operator is something going on.
        f if f == Fault::Operator as usize => !blocking && phase != Phase::Idle as usize,
        // A device that is away at format is no pool; one that leaves does so while it is used.
        f if f == Fault::Gone as usize => !blocking,
        // Corruption is of data at rest or on its way through the data path; format writes what nobody reads back before.
        f if f == Fault::Corruption as usize => !blocking,
        // Another SSD is noticed when it is opened.
        f if f == Fault::Exchanged as usize => phase == recovery,
        // An SSD that was lost is there again at a start.
        f if f == Fault::Returned as usize => phase == recovery,
        // A client that goes has something in flight; nobody is served during blocking work, nor while the SSD is replaced.
        f if f == Fault::Disconnect as usize => !blocking && phase != Phase::Idle as usize && phase != Phase::Replace as usize,
        // Blocking work takes its memory before anything is served, or from the system.
        f if f == Fault::Shortage as usize => !blocking && phase != Phase::Replace as usize,
        // A lie shows only at a power cut.
        f if f == Fault::LyingFlush as usize => phase != format,
        _ => true,
    }
}

/// An I/O error needs an I/O: with nothing in flight none can strike.
fn needs_io(fault: usize) -> bool {
    (Fault::SsdError as usize..=Fault::BackingFlushError as usize).contains(&fault)
        || fault == Fault::Gone as usize
        || fault == Fault::Latency as usize
}

/// The table.
#[derive(Clone, Default, Debug)]
pub struct Coverage {
    cells: [[u64; PHASES.len()]; FAULTS.len()],
}

impl Coverage {
    /// Counts a fault in a phase.
    pub fn hit(&mut self, fault: Fault, phase: Phase) {
        self.cells[fault as usize][phase as usize] += 1;
    }

    /// Adds another run's table.
    pub fn add(&mut self, other: &Coverage) {
        for (mine, theirs) in self.cells.iter_mut().flatten().zip(other.cells.iter().flatten()) {
            *mine += theirs;
        }
    }

    /// Cells that could have been hit and were not.
    pub fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        for (fault, row) in self.cells.iter().enumerate() {
            for (phase, count) in row.iter().enumerate() {
                let idle = phase == Phase::Idle as usize && needs_io(fault);
                if *count == 0 && reachable(fault, phase) && !idle {
                    missing.push(format!("{} in {}", FAULTS[fault], PHASES[phase]));
                }
            }
        }
        missing
    }

    /// The table as text.
    pub fn table(&self) -> String {
        let mut text = String::new();
        for (phase, name) in PHASES.iter().enumerate() {
            let _ = writeln!(text, "{:>20} {}", "", (0..phase).map(|_| "      |").collect::<String>() + &format!("  {name}"));
        }
        for (fault, row) in self.cells.iter().enumerate() {
            let _ = write!(text, "{:<20} ", FAULTS[fault]);
            for (phase, count) in row.iter().enumerate() {
                let idle = phase == Phase::Idle as usize && needs_io(fault);
                let cell = if !reachable(fault, phase) || idle { "-".to_string() } else { count.to_string() };
                let _ = write!(text, "{cell:>7}");
            }
            text.push('\n');
        }
        text
    }
}

/// The row of a class of strikes.
pub fn fault_of(class: Class, ssd: bool) -> Fault {
    match (class, ssd) {
        (Class::ReadError | Class::WriteError, true) => Fault::SsdError,
        (Class::ReadError | Class::WriteError, false) => Fault::BackingError,
        (Class::FlushError, true) => Fault::SsdFlushError,
        (Class::FlushError, false) => Fault::BackingFlushError,
        (Class::Corruption, _) => Fault::Corruption,
        (Class::Latency, _) => Fault::Latency,
        (Class::Gone, _) => Fault::Gone,
    }
}
