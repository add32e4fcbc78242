//! When a reactor runs before ordinary threads.
//!
//! A block driver of the kernel completes I/O in an interrupt: no program is in its way. A reactor is a thread, and where all processors are busy it
//! waits for its turn at each wake-up. A database with 64 clients on two processors made it wait for half of all time, 125 us a wake-up: hits
//! of 0.3 ms took 1.6 ms, and neither nice -10 nor a slice of 0.1 ms changed that. The lowest of the real-time priorities does: it goes before
//! all ordinary threads, behind the kernel's own.
//!
//! It has a price. Who runs at once finds few requests to do instead of many, so that 32 requests in flight lost a fifth to a third of their rate.
//! So a reactor goes first while it has little to do, when that price is none, and while it waits long and clients wait for it; else it is an
//! ordinary thread. Who goes first cannot see how long it would wait: it looks again from time to time, for as long as it takes to judge.
//!
//! Invariants: at least one processor is left to ordinary threads, so that they go on however busy the reactors are, among them who holds a lock
//! that a reactor waits for; work that no client waits for does not go first for long.
//!
//! A policy, no promise: nothing but speed hangs on it. It is about processors alone: what a reactor sends to disks goes before nobody's (`io_class.rs`).

use super::io_class;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Where the kernel tells a thread's own account.
const ACCOUNT: &str = "/proc/thread-self/schedstat";
/// The lowest of the real-time priorities: sched(7).
const PRIORITY: libc::c_int = 1;
/// How often to judge: some wake-ups lie in between.
const JUDGE_NS: u64 = 10_000_000;
/// A mean wait for the processor, for each time it was got, that is worth the price: an SSD answers in that. Measured with 32 requests in flight,
/// which do better without: 25 to 36 us; with the database above: 125 us.
const LONG_WAIT_NS: u64 = 70_000;
/// Fewer waits than this say nothing.
const WAITS_MIN: u64 = 8;
/// Little to do: running and waiting, in percent of the time. One request in flight makes 25 to 40, 32 make 60 to 99.
const LITTLE_PERCENT: u64 = 40;
/// More than little, while it goes first.
const MUCH_PERCENT: u64 = 55;
/// How long to go first after a long wait, at first and at most, before looking again.
const FIRST_MIN_NS: u64 = 40_000_000;
const FIRST_MAX_NS: u64 = 1_280_000_000;

/// How reactors are scheduled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Precedence {
    /// Before ordinary threads, when that helps.
    RealTime,
    /// As one of them, since that was asked for.
    Ordinary,
    /// As one of them, since otherwise no processor would be left to ordinary threads.
    NoneLeft,
    /// As was set for the daemon from outside: that policy of sched(7).
    Given(libc::c_int),
    /// As one of them, since the kernel refuses anything else, or tells no waits to judge by; its words.
    Refused(String),
}

impl fmt::Display for Precedence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Precedence::RealTime => write!(f, "before ordinary threads when that helps (SCHED_RR, priority {PRIORITY})"),
            Precedence::Ordinary => write!(f, "as ordinary threads"),
            Precedence::NoneLeft => write!(f, "as ordinary threads: there are no more processors than reactors"),
            Precedence::Given(policy) => write!(f, "as was set for the daemon (policy {policy} of sched(7))"),
            Precedence::Refused(why) => {
                write!(f, "as ordinary threads: {why}; to go first takes root or LimitRTPRIO=1, and a kernel with scheduler statistics")
            }
        }
    }
}

/// What to ask for, for so many reactors on so many processors.
pub(crate) fn wanted(real_time: bool, reactors: u16, processors: usize) -> Precedence {
    match real_time {
        false => Precedence::Ordinary,
        true if usize::from(reactors) >= processors => Precedence::NoneLeft,
        true => Precedence::RealTime,
    }
}

/// A thread's own claim to go first.
pub(crate) struct Claim {
    /// None: never.
    account: Option<Account>,
    policy: Policy,
}

impl Claim {
    /// Of the calling thread, which must be the one that judges later; and what comes of it.
    pub(crate) fn new(wanted: Precedence, now_ns: u64) -> (Claim, Precedence) {
        let none = Claim { account: None, policy: Policy::new(now_ns, Sample::default()) };
        if wanted != Precedence::RealTime {
            return (none, wanted);
        }
        // SAFETY: no memory is involved; 0 is the calling thread.
        let given = unsafe { libc::sched_getscheduler(0) } & !libc::SCHED_RESET_ON_FORK;
        if given != libc::SCHED_OTHER {
            return (none, Precedence::Given(given));
        }
        let claim = || -> io::Result<Claim> {
            let account = Account::open(ACCOUNT)?;
            let policy = Policy::new(now_ns, account.read()?);
            io_class::keep()?;
            go(true)?;
            go(false)?;
            Ok(Claim { account: Some(account), policy })
        };
        match claim() {
            Ok(claim) => (claim, Precedence::RealTime),
            Err(error) => (none, Precedence::Refused(error.to_string())),
        }
    }

    /// To be called at each turn. `serving`: whether clients wait for something.
    pub(crate) fn tick(&mut self, now_ns: u64, serving: bool) {
        if now_ns < self.policy.judge_at_ns {
            return;
        }
        let Some(account) = &self.account else {
            self.policy.judge_at_ns = u64::MAX;
            return;
        };
        let before = self.policy.goes_first();
        let judged = account.read().map(|sample| self.policy.judge(now_ns, sample, serving));
        let changed = if self.policy.goes_first() == before { Ok(()) } else { go(!before) };
        if judged.and(changed).is_err() {
            // What was allowed is no more. An ordinary thread does everything too.
            let _ = go(false);
            self.account = None;
        }
    }
}

/// Puts the calling thread before ordinary ones, or among them. What the kernel starts for its ring inherits it, and keeps it.
fn go(first: bool) -> io::Result<()> {
    let (policy, sched_priority) = if first { (libc::SCHED_RR, PRIORITY) } else { (libc::SCHED_OTHER, 0) };
    // SAFETY: a valid structure; 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, policy, &libc::sched_param { sched_priority }) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Time that a thread has run and has waited for a processor since it began, and how often it got one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Sample {
    run_ns: u64,
    wait_ns: u64,
    waits: u64,
}

/// The kernel's account of the calling thread.
struct Account(File);

impl Account {
    fn open(path: &str) -> io::Result<Account> {
        File::open(path).map(Account)
    }

    fn read(&self) -> io::Result<Sample> {
        let mut text = [0; 96];
        let bytes = self.0.read_at(&mut text, 0)?;
        let sample = parse(&text[..bytes]).ok_or_else(|| io::Error::other(format!("{ACCOUNT} is not understood")))?;
        // Who asks has got a processor at least once. A kernel that keeps no account says 0 0 0, which would look like idleness for ever.
        if sample.waits == 0 {
            return Err(io::Error::other(format!("the kernel keeps no account of waits for processors in {ACCOUNT}")));
        }
        Ok(sample)
    }
}

/// Three numbers: sched-stats.txt of the kernel's documentation, /proc/PID/schedstat.
fn parse(text: &[u8]) -> Option<Sample> {
    let mut numbers = std::str::from_utf8(text).ok()?.split_ascii_whitespace().map(|number| number.parse::<u64>().ok());
    let mut next = || numbers.next().flatten();
    Some(Sample { run_ns: next()?, wait_ns: next()?, waits: next()? })
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Ordinary,
    /// Before others, since there is little to do.
    Light,
    /// Before others until then, since the wait was long.
    Crowded {
        until_ns: u64,
    },
}

/// When to go first, by what the account says.
struct Policy {
    state: State,
    judge_at_ns: u64,
    judged_at_ns: u64,
    then: Sample,
    /// How long to go first after the next long wait.
    first_ns: u64,
}

impl Policy {
    fn new(now_ns: u64, then: Sample) -> Policy {
        Policy { state: State::Ordinary, judge_at_ns: now_ns + JUDGE_NS, judged_at_ns: now_ns, then, first_ns: FIRST_MIN_NS }
    }

    fn goes_first(&self) -> bool {
        self.state != State::Ordinary
    }

    fn judge(&mut self, now_ns: u64, now: Sample, serving: bool) {
        let lasted_ns = now_ns.saturating_sub(self.judged_at_ns).max(1);
        let then = self.then;
        let run_ns = now.run_ns.saturating_sub(then.run_ns);
        let wait_ns = now.wait_ns.saturating_sub(then.wait_ns);
        let waits = now.waits.saturating_sub(then.waits);
        let percent = (run_ns + wait_ns) * 100 / lasted_ns;
        match self.state {
            State::Ordinary if serving && waits >= WAITS_MIN && wait_ns / waits >= LONG_WAIT_NS => {
                self.state = State::Crowded { until_ns: now_ns + self.first_ns };
                self.first_ns = (self.first_ns * 2).min(FIRST_MAX_NS);
            }
            State::Ordinary => {
                self.first_ns = FIRST_MIN_NS;
                if percent < LITTLE_PERCENT {
                    self.state = State::Light;
                }
            }
            State::Light if percent > MUCH_PERCENT => self.state = State::Ordinary,
            State::Crowded { until_ns } if !serving || now_ns >= until_ns => self.state = State::Ordinary,
            State::Light | State::Crowded { .. } => {}
        }
        (self.judge_at_ns, self.judged_at_ns, self.then) = (now_ns + JUDGE_NS, now_ns, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// The policy of the calling thread.
    fn scheduler() -> libc::c_int {
        // SAFETY: no memory is involved; 0 is the calling thread.
        unsafe { libc::sched_getscheduler(0) }
    }

    /// Ten milliseconds of which so many percent were run and so many waited, in so many pieces; whether it goes first afterwards.
    fn after(policy: &mut Policy, run_percent: u64, wait_percent: u64, waits: u64, serving: bool) -> bool {
        let (now_ns, then) = (policy.judged_at_ns + 10 * MS, policy.then);
        let run_ns = then.run_ns + run_percent * MS / 10;
        policy.judge(now_ns, Sample { run_ns, wait_ns: then.wait_ns + wait_percent * MS / 10, waits: then.waits + waits }, serving);
        policy.goes_first()
    }

    #[test]
    fn a_processor_is_left_to_others() {
        assert_eq!(wanted(true, 1, 2), Precedence::RealTime);
        assert_eq!(wanted(true, 2, 2), Precedence::NoneLeft);
        assert_eq!(wanted(true, 1, 1), Precedence::NoneLeft);
        assert_eq!(wanted(false, 1, 64), Precedence::Ordinary);
    }

    #[test]
    fn who_has_little_to_do_goes_first_and_who_has_much_does_not() {
        let mut policy = Policy::new(0, Sample::default());
        assert!(!policy.goes_first(), "nothing is known yet");
        assert!(after(&mut policy, 30, 2, 70, true));
        assert!(after(&mut policy, 50, 0, 70, true), "a little more changes nothing");
        assert!(!after(&mut policy, 60, 0, 500, true));
        assert!(!after(&mut policy, 40, 25, 70, true), "waits of 36 us");
        assert!(after(&mut policy, 0, 0, 0, false), "nothing to do");
    }

    #[test]
    fn who_waits_long_goes_first_and_looks_again_ever_less_often() {
        let mut policy = Policy::new(0, Sample::default());
        let mut first_of = |looks: u64| {
            let first = (0..looks)
                .filter(|_| if policy.goes_first() { after(&mut policy, 65, 0, 75, true) } else { after(&mut policy, 45, 50, 40, true) });
            first.count() as u64
        };
        assert_eq!(first_of(10), 9, "40 ms, 10 ms to look, and into 80 ms");
        assert!(first_of(1000) >= 980);
        assert!(!after(&mut policy, 65, 0, 75, false), "no client waits");
        assert!(!after(&mut policy, 45, 50, 40, false));
        assert!(!after(&mut policy, 45, 50, 5, true), "too few waits to say anything");
        assert!(!after(&mut policy, 80, 10, 40, true), "the crowd is gone");
        assert_eq!(policy.first_ns, FIRST_MIN_NS);
    }

    #[test]
    fn a_thread_is_what_it_is_told_to_be() {
        let told = std::thread::spawn(|| {
            for other in [Precedence::Ordinary, Precedence::NoneLeft] {
                let (mut claim, precedence) = Claim::new(other.clone(), 0);
                claim.tick(60_000 * MS, false);
                assert_eq!((precedence, scheduler()), (other, libc::SCHED_OTHER));
            }
            let (mut claim, precedence) = Claim::new(Precedence::RealTime, 0);
            assert_eq!(scheduler(), libc::SCHED_OTHER, "nothing is known yet");
            // Next to nothing of a minute was run.
            claim.tick(60_000 * MS, false);
            (precedence, scheduler())
        });
        match told.join().expect("it does not panic") {
            (Precedence::RealTime, scheduler) => assert_eq!(scheduler, libc::SCHED_RR),
            (Precedence::Refused(why), scheduler) => {
                eprintln!("only half tested: a real-time priority is refused here ({why})");
                assert_eq!(scheduler, libc::SCHED_OTHER);
            }
            (other, _) => panic!("{other:?}"),
        }
        assert_eq!(scheduler(), libc::SCHED_OTHER, "other threads stay as they are");
        let given = std::thread::spawn(|| {
            // SAFETY: a valid structure; 0 is the calling thread.
            assert_eq!(unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &libc::sched_param { sched_priority: 0 }) }, 0);
            let (mut claim, precedence) = Claim::new(Precedence::RealTime, 0);
            claim.tick(60_000 * MS, false);
            (precedence, scheduler())
        });
        assert_eq!(
            given.join().expect("it does not panic"),
            (Precedence::Given(libc::SCHED_BATCH), libc::SCHED_BATCH),
            "what was set stays"
        );
    }

    #[test]
    fn three_numbers_are_an_account() {
        assert_eq!(parse(b"12 87821 1\n"), Some(Sample { run_ns: 12, wait_ns: 87_821, waits: 1 }));
        assert_eq!(parse(b"12 87821\n"), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn an_account_that_is_not_kept_is_none() {
        let directory = tempfile::tempdir().expect("a place");
        let path = directory.path().join("schedstat");
        let told = |text: &str| {
            std::fs::write(&path, text).expect("it is written");
            Account::open(path.to_str().expect("a name"))?.read()
        };
        assert_eq!(told("12 87821 1\n").expect("an account").waits, 1);
        assert!(told("0 0 0\n").expect_err("none is kept").to_string().contains("keeps no account"));
        assert!(told("").is_err());
    }
}
