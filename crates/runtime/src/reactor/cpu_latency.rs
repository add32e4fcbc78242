//! How long a processor may take to wake up while clients do much I/O.
//!
//! A request that hits passes three or four threads: the client, the kernel's worker of a loop device, the reactor, and back. With few requests in flight
//! each of them sleeps meanwhile, and so does its processor. On a virtual machine a processor that sleeps has been given back to the host: 20 to
//! 40 us until it runs again, where the SSD takes 70. On two such processors a hit at depth 1 took 118 to 162 us, and 67 to 73 while they
//! were kept awake; between writes of a millisecond 179 to 265 and 89 to 107; of reads that all hit, 32 in flight, 127,000 a second and 183,000.
//!
//! So a reactor asks the kernel for processors that wake up quickly (its CPU latency quality of service, pm_qos_interface.rst) while clients send many requests, and
//! withdraws that soon after. It is asked for all processors: nobody knows where clients sleep. On hardware only the deepest states are ruled out. In a
//! guest whose idle driver polls or halts, polling is what is left, which takes all of a processor: few processors may, many must not.
//!
//! A policy, no promise: nothing but speed hangs on it.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

/// Who holds it open asks for what was written last; who closes it asks for nothing.
const DEVICE: &str = "/dev/cpu_dma_latency";
/// Asks for nothing: PM_QOS_CPU_LATENCY_DEFAULT_VALUE of the kernel, 2,000 s in microseconds.
const ANY_US: i32 = 2_000_000_000;
/// What knows the states a processor can sleep in.
const DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";
/// The driver of guests that can only poll or halt. It says that it wakes from a halt in a microsecond, which is what it costs the guest.
const HALTS_OR_POLLS: &str = "haltpoll";
/// C1 and C1E of x86 (1 to 10 us) and their like stay allowed, the deeper ones (85 us and more) do not.
const SHALLOW_US: i32 = 10;
/// Most processors that may poll: about what one reactor, its clients and their kernel threads use.
const POLLING_PROCESSORS_MAX: usize = 8;
/// How often to judge.
const JUDGE_NS: u64 = 10_000_000;
/// Requests of clients in a second from which on it is asked for. Below, the longest sleep is a small part of the time between two requests.
const MANY_A_SECOND: u64 = 1000;
/// For how long it stays asked for when they become fewer. A change wakes all processors.
const HOLD_NS: u64 = 500_000_000;

/// What processors may do while clients do much I/O.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CpuLatency {
    /// Sleep no deeper than that they wake up within so many microseconds; 0: stay awake.
    AtMost(i32),
    /// What the kernel has them do, since that was asked for.
    AsItIs,
    /// The same, since so many would have to poll.
    TooMany(usize),
    /// The same, since no driver knows their states, so that nothing can be asked for.
    NoStates,
    /// The same, since the kernel takes no wishes; its words.
    Refused(String),
}

impl fmt::Display for CpuLatency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CpuLatency::AtMost(0) => write!(f, "stay awake while clients do much I/O"),
            CpuLatency::AtMost(us) => write!(f, "sleep no deeper than {us} us while clients do much I/O"),
            CpuLatency::AsItIs => write!(f, "sleep as the kernel has it"),
            CpuLatency::TooMany(processors) => write!(f, "sleep as the kernel has it: {processors} of them would have to poll"),
            CpuLatency::NoStates => write!(f, "sleep as the kernel has it: it has no cpuidle driver that could be asked for less"),
            CpuLatency::Refused(why) => {
                write!(f, "sleep as the kernel has it: {why}; to ask for less takes root, or the right to write to {DEVICE}")
            }
        }
    }
}

/// What to ask for on this machine.
pub(crate) fn wanted(asked: bool) -> CpuLatency {
    if !asked {
        return CpuLatency::AsItIs;
    }
    // SAFETY: no memory is involved.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    choose(std::fs::read_to_string(DRIVER).ok().as_deref(), usize::try_from(online).unwrap_or(usize::MAX))
}

/// By the name of the driver, and for so many processors.
fn choose(driver: Option<&str>, processors: usize) -> CpuLatency {
    match driver.map(str::trim) {
        None | Some("none") => CpuLatency::NoStates,
        Some(HALTS_OR_POLLS) if processors > POLLING_PROCESSORS_MAX => CpuLatency::TooMany(processors),
        Some(HALTS_OR_POLLS) => CpuLatency::AtMost(0),
        Some(_) => CpuLatency::AtMost(SHALLOW_US),
    }
}

/// A wish to the kernel; withdrawn when it is dropped.
pub struct Wish(File);

impl Wish {
    /// Opens the device, without asking for anything yet.
    fn new(path: &str) -> io::Result<Wish> {
        let open = OpenOptions::new().write(true).open(path);
        open.map(Wish).map_err(|error| io::Error::new(error.kind(), format!("{path} cannot be opened ({error})")))
    }

    /// The same as a reactor asks for while clients do much I/O, for as long as the wish lives; none where a reactor would ask for nothing.
    pub fn hold() -> Option<Wish> {
        let CpuLatency::AtMost(us) = wanted(true) else { return None };
        let wish = Wish::new(DEVICE).ok()?;
        wish.ask(us).ok().map(|()| wish)
    }

    fn ask(&self, us: i32) -> io::Result<()> {
        self.0.write_all_at(&us.to_ne_bytes(), 0)
    }
}

/// A reactor's wish, and when it is made.
pub(crate) struct Wakefulness {
    /// And what is asked for; none: never.
    wish: Option<(Wish, i32)>,
    policy: Policy,
}

impl Wakefulness {
    /// And what comes of it.
    pub(crate) fn new(wanted: CpuLatency, now_ns: u64) -> (Wakefulness, CpuLatency) {
        Wakefulness::at(DEVICE, wanted, now_ns)
    }

    fn at(path: &str, wanted: CpuLatency, now_ns: u64) -> (Wakefulness, CpuLatency) {
        let policy = Policy::new(now_ns);
        let none = |policy| Wakefulness { wish: None, policy };
        let CpuLatency::AtMost(us) = wanted else { return (none(policy), wanted) };
        match Wish::new(path) {
            Ok(wish) => (Wakefulness { wish: Some((wish, us)), policy }, wanted),
            Err(error) => (none(policy), CpuLatency::Refused(error.to_string())),
        }
    }

    /// To be called at each turn. `requests`: of clients, since the reactor began.
    pub(crate) fn tick(&mut self, now_ns: u64, requests: u64) {
        if now_ns < self.policy.judge_at_ns {
            return;
        }
        let Some((wish, us)) = &self.wish else {
            self.policy.judge_at_ns = u64::MAX;
            return;
        };
        let before = self.policy.many();
        self.policy.judge(now_ns, requests);
        let asked = match (before, self.policy.many()) {
            (false, true) => wish.ask(*us),
            (true, false) => wish.ask(ANY_US),
            _ => Ok(()),
        };
        if asked.is_err() {
            // What was allowed is no more. The wish ends with its file.
            (self.wish, self.policy) = (None, Policy::new(now_ns));
        }
    }

    /// When the wish is to be withdrawn, if no clients come.
    pub(crate) fn next_deadline_ns(&self) -> Option<u64> {
        self.policy.until_ns
    }
}

/// When clients do much I/O.
struct Policy {
    judge_at_ns: u64,
    judged_at_ns: u64,
    requests: u64,
    /// They do, and for so long they are taken to go on.
    until_ns: Option<u64>,
}

impl Policy {
    fn new(now_ns: u64) -> Policy {
        Policy { judge_at_ns: now_ns + JUDGE_NS, judged_at_ns: now_ns, requests: 0, until_ns: None }
    }

    fn many(&self) -> bool {
        self.until_ns.is_some()
    }

    fn judge(&mut self, now_ns: u64, requests: u64) {
        let lasted_ns = now_ns.saturating_sub(self.judged_at_ns).max(1);
        let a_second = u128::from(requests.saturating_sub(self.requests)) * 1_000_000_000 / u128::from(lasted_ns);
        if a_second >= u128::from(MANY_A_SECOND) {
            self.until_ns = Some(now_ns + HOLD_NS);
        } else {
            self.until_ns = self.until_ns.filter(|until_ns| now_ns < *until_ns);
        }
        (self.judge_at_ns, self.judged_at_ns, self.requests) = (now_ns + JUDGE_NS, now_ns, requests);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn what_is_asked_for_depends_on_what_processors_can_do() {
        assert_eq!(choose(Some("intel_idle\n"), 64), CpuLatency::AtMost(SHALLOW_US));
        assert_eq!(choose(Some("haltpoll\n"), 2), CpuLatency::AtMost(0));
        assert_eq!(choose(Some("haltpoll\n"), 64), CpuLatency::TooMany(64));
        assert_eq!(choose(Some("none\n"), 2), CpuLatency::NoStates);
        assert_eq!(choose(None, 2), CpuLatency::NoStates);
        assert_eq!(wanted(false), CpuLatency::AsItIs);
    }

    #[test]
    fn many_requests_are_a_thousand_a_second_and_half_a_second_more() {
        let mut policy = Policy::new(0);
        let mut after = |ms: u64, more: u64| {
            let (now_ns, requests) = (policy.judged_at_ns + ms * MS, policy.requests + more);
            policy.judge(now_ns, requests);
            policy.many()
        };
        assert!(!after(10, 9));
        assert!(!after(5000, 4999), "after a long sleep");
        assert!(after(10, 10));
        assert!(after(490, 0), "a pause");
        assert!(!after(10, 9), "an end");
        assert!(after(10, 1000));
        assert!(after(400, 1) && after(10, 10) && after(400, 1), "the time begins anew");
        assert!(!after(100, 1));
    }

    #[test]
    fn a_wish_is_made_once_and_withdrawn() {
        let directory = tempfile::tempdir().expect("a place");
        let path = directory.path().join("latency");
        let place = path.to_str().expect("a name");
        let (_, refused) = Wakefulness::at(place, CpuLatency::AtMost(0), 0);
        assert!(matches!(&refused, CpuLatency::Refused(why) if why.contains(place)), "{refused}");

        std::fs::write(&path, "").expect("it is written");
        let said = || std::fs::read(&path).expect("it is there").try_into().ok().map(i32::from_ne_bytes);
        let (mut reactor, told) = Wakefulness::at(place, CpuLatency::AtMost(7), 0);
        assert_eq!((told, said(), reactor.next_deadline_ns()), (CpuLatency::AtMost(7), None, None), "nothing is asked for yet");
        reactor.tick(10 * MS, 100);
        assert_eq!((said(), reactor.next_deadline_ns()), (Some(7), Some(510 * MS)));
        reactor.tick(510 * MS, 100);
        assert_eq!((said(), reactor.next_deadline_ns()), (Some(ANY_US), None));

        let (mut never, _) = Wakefulness::at(place, CpuLatency::AsItIs, 0);
        never.tick(10 * MS, 1_000_000);
        assert_eq!(never.next_deadline_ns(), None);
    }
}
