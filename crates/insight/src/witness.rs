//! Who asks for what on a volume that is a block device of this machine: a tap on that device sees each request
//! on its way in, with its thread, and what the cache has seen is laid beside it.
//!
//! It is needed for rules that name processes and for sessions of a database only, so it runs only then.

use super::askers::{ASKERS_MAX, Asker, Threads};
use blocktap::{Event, Op, Tap, Ways};
use runtime::Sight;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use types::SECTOR_BYTES;

/// How long a request may take, at most, from the tap to its answer.
const REMEMBERED_MS: u64 = 10_000;
/// Requests that are remembered, some 60 bytes each: half a MiB. When there are more all are
/// forgotten: then nobody knows who asked.
const ASKED_MAX: usize = 1 << 13;
/// Memory that one takes, in bytes; nearly.
pub const WITNESS_BYTES: usize = ASKED_MAX * 64 + ASKERS_MAX * 64;
/// How long its thread waits for events.
const LOOK: Duration = Duration::from_millis(100);
/// A look that fails is tried again after this.
const PAUSE: Duration = Duration::from_secs(1);

/// A request on its way in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Asked {
    end_sector: u64,
    thread: u32,
    time_ms: u64,
}

#[derive(Default)]
struct Seen {
    /// By direction (a write is `true`) and first sector.
    asked: BTreeMap<(bool, u64), Asked>,
    threads: Threads,
    problem: Option<String>,
}

struct Shared {
    seen: Mutex<Seen>,
    stop: AtomicBool,
}

/// See the module.
pub struct Witness(Arc<Shared>);

impl Witness {
    /// Watches a device from now on.
    ///
    /// # Errors
    /// In words: why it cannot be watched, and which way is left.
    pub fn open(major: u32, minor: u32) -> Result<Witness, String> {
        let watched = blocktap::Watched::find(major, minor).map_err(|refused| refused.to_string())?;
        let tap = Tap::open(watched, Ways::Auto).map_err(|refused| refused.to_string())?;
        let shared = Arc::new(Shared { seen: Mutex::default(), stop: AtomicBool::new(false) });
        let looking = shared.clone();
        let spawned = std::thread::Builder::new().name("witness".into()).spawn(move || look(tap, &looking));
        spawned.map_err(|error| format!("no thread can be started ({error}); raise the thread limit"))?;
        Ok(Witness(shared))
    }

    /// Tells of each request who asked, and which threads were met.
    pub fn tell(&self, sights: &mut [(Sight, u64)], now_ms: u64) -> Vec<Asker> {
        let mut seen = self.0.seen.lock().expect("no holder of this lock panics");
        for (sight, _) in sights {
            sight.client = seen.asker_of(sight);
        }
        seen.asked.retain(|_, asked| now_ms.saturating_sub(asked.time_ms) < REMEMBERED_MS);
        seen.threads.take_met()
    }

    /// Why it sees nothing.
    pub fn problem(&self) -> Option<String> {
        self.0.seen.lock().expect("no holder of this lock panics").problem.clone()
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

impl Seen {
    fn take_in(&mut self, event: &Event) {
        let is_write = match event.op {
            Op::Read => false,
            Op::Write => true,
            _ => return,
        };
        if event.tid == 0 || event.bytes == 0 {
            return;
        }
        self.threads.meet(event);
        if self.asked.len() >= ASKED_MAX {
            self.asked.clear();
        }
        let end_sector = event.sector + event.bytes.div_ceil(SECTOR_BYTES);
        self.asked.insert((is_write, event.sector), Asked { end_sector, thread: event.tid, time_ms: super::clock_ms(event.time_ns) });
    }

    /// The thread whose request holds the first sector of what was seen; 0 if that is not known. The kernel cuts and joins
    /// requests, so their bounds are not those that were asked for.
    fn asker_of(&self, sight: &Sight) -> u32 {
        let before = self.asked.range((sight.is_write, 0)..=(sight.is_write, sight.start_sector)).next_back();
        before.filter(|(_, asked)| asked.end_sector > sight.start_sector).map_or(0, |(_, asked)| asked.thread)
    }
}

fn look(mut tap: Tap, shared: &Shared) {
    let mut events: Vec<Event> = Vec::new();
    while !shared.stop.load(Ordering::Relaxed) {
        events.clear();
        let read = tap.read(&mut events, LOOK);
        let mut seen = shared.seen.lock().expect("no holder of this lock panics");
        match read {
            Ok(_) => {
                seen.problem = None;
                events.iter().for_each(|event| seen.take_in(event));
            }
            Err(error) => {
                seen.problem = Some(format!("the device cannot be watched: {error}"));
                drop(seen);
                std::thread::sleep(PAUSE);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blocktap::Comm;

    #[test]
    fn a_request_is_that_of_the_thread_that_asked_for_its_first_sector() {
        let mut seen = Seen::default();
        let event = |sector, bytes, op, tid| Event { time_ns: 5_000_000, sector, bytes, op, pid: None, tid, comm: Comm::of(b"x") };
        for one in [
            event(0, 4096, Op::Read, 11),
            event(64, 65536, Op::Read, 12),
            event(64, 4096, Op::Write, 13),
            event(500, 4096, Op::Flush, 14),
            event(600, 4096, Op::Read, 0),
        ] {
            seen.take_in(&one);
        }
        let asker = |start_sector, is_write| {
            let sight = Sight { volume: 0, time_ms: 0, start_sector, sectors: 8, is_write, sequential: false, client: 0, page: None };
            seen.asker_of(&sight)
        };
        assert_eq!((asker(0, false), asker(64, false), asker(128, false), asker(64, true)), (11, 12, 12, 13));
        assert_eq!((asker(8, false), asker(192, false), asker(72, true), asker(500, false), asker(600, false)), (0, 0, 0, 0, 0));
        for sector in 0..=ASKED_MAX as u64 {
            seen.take_in(&event(sector * 8, 4096, Op::Read, 1));
        }
        assert!(seen.asked.len() < ASKED_MAX);
    }
}
