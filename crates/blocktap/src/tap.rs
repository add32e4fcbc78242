//! What users have: a tap that is open, by whichever way.

use crate::bpf::{BpfTap, Cost};
use crate::event::Event;
use crate::refused::Refused;
use crate::text::TextTap;
use crate::watched::Watched;
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

/// Memory for events that are not yet read. At 64 bytes an event in the kernel's ring, the reader
/// may be away for 0.13 s at 500,000 requests a second.
const RING_BYTES: u32 = 4 << 20;

/// How often is looked: the kernel does not wake the reader, which would cost each request more
/// than all else. A look without events was measured at 56 µs of a busy virtual machine's core, so
/// fifty a second are 0.3 % of one; the memory above lasts for 3 million requests a second.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A call returns by then, whatever it was given.
const TIMEOUT_MAX: Duration = Duration::from_secs(3600);

/// How events come out of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Way {
    /// A BPF program on the tracepoint. Needs Linux 5.8, CAP_BPF, CAP_PERFMON, and to read a
    /// tracefs that is mounted: as root without further capabilities, as others with
    /// CAP_DAC_READ_SEARCH. It may be mounted read-only.
    Bpf,
    /// An instance of our own below tracefs. Needs to write there, as root without capabilities
    /// may.
    Tracefs,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Way::Bpf => "BPF",
            Way::Tracefs => "tracefs",
        })
    }
}

/// Which ways may be taken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Ways {
    /// BPF, and tracefs where that is refused.
    #[default]
    Auto,
    /// This one or none.
    Only(Way),
}

/// What a look at the tap brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[must_use]
pub struct Drained {
    /// Events that were appended.
    pub events: usize,
    /// Requests since the last look that are missing, for want of room. Where they were is unknown:
    /// somewhere between the events of this look and the one before. By BPF, requests are counted
    /// too that came while another tracing program ran on the same processor; these may be of other
    /// disks.
    pub lost: u64,
    /// Lines of the way `tracefs` that could not be read; none is expected.
    pub unreadable: u64,
}

/// Watches one device from outside. Nothing is left of it when it is dropped.
pub struct Tap {
    kind: Kind,
    looked: Instant,
}

enum Kind {
    Bpf(BpfTap),
    Text(TextTap),
}

impl Tap {
    /// Begins to watch. What is queued from now on is seen. The device itself is not opened.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn open(watched: Watched, ways: Ways) -> Result<Tap, Refused> {
        Tap::open_sized(watched, ways, RING_BYTES)
    }

    /// The same, with about this much memory for events that are not yet read.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn open_sized(watched: Watched, ways: Ways, ring_bytes: u32) -> Result<Tap, Refused> {
        watched.check_is_there()?;
        let bpf = || BpfTap::open(watched, ring_bytes).map(|tap| Tap::of(Kind::Bpf(tap)));
        let tracefs = || TextTap::open(watched, ring_bytes).map(|tap| Tap::of(Kind::Text(tap)));
        match ways {
            Ways::Only(Way::Bpf) => bpf(),
            Ways::Only(Way::Tracefs) => tracefs(),
            Ways::Auto => match bpf() {
                Err(refused) if refused.is_of_one_way() => {
                    tracefs().map_err(|tracefs| Refused::Neither { bpf: Box::new(refused), tracefs: Box::new(tracefs) })
                }
                other => other,
            },
        }
    }

    fn of(kind: Kind) -> Tap {
        Tap { kind, looked: Instant::now() }
    }

    /// The way that was taken.
    pub fn way(&self) -> Way {
        match self.kind {
            Kind::Bpf(_) => Way::Bpf,
            Kind::Text(_) => Way::Tracefs,
        }
    }

    /// Appends what came since the last look, and returns as soon as there is something, or after
    /// `timeout`. Looks are 20 ms apart at least, unless `timeout` is shorter: so calls in a row
    /// cost no more than one that waits. At most as many events come as the memory holds.
    ///
    /// # Errors
    /// The kernel's, by tracefs only; the tap can be read again.
    pub fn read(&mut self, events: &mut Vec<Event>, timeout: Duration) -> io::Result<Drained> {
        let until = Instant::now() + timeout.min(TIMEOUT_MAX);
        loop {
            let next = (self.looked + LOOK_EVERY).min(until);
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            self.looked = Instant::now();
            let drained = match &mut self.kind {
                Kind::Bpf(tap) => tap.drain(events),
                Kind::Text(tap) => tap.drain(events)?,
            };
            if drained != Drained::default() || self.looked >= until {
                return Ok(drained);
            }
        }
    }

    /// Has the kernel measure what the tap costs, from now on until it ends. It measures all BPF
    /// programs of the machine then, which costs each run a little. No effect by tracefs.
    ///
    /// # Errors
    /// The kernel's, for instance without CAP_SYS_ADMIN.
    pub fn measure(&mut self) -> io::Result<()> {
        match &mut self.kind {
            Kind::Bpf(tap) => tap.measure(),
            Kind::Text(_) => Ok(()),
        }
    }

    /// What the tap has cost since it is measured; `None` where it is not, and by tracefs.
    pub fn cost(&self) -> Option<Cost> {
        match &self.kind {
            Kind::Bpf(tap) => tap.cost(),
            Kind::Text(_) => None,
        }
    }
}
