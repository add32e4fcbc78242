//! How long a reactor looks for work before it goes to sleep.
//!
//! To be woken costs ten microseconds and more where the processor has to be told by an interrupt, on virtual machines above all, and a read
//! from the SSD pays it twice. Who waits only that long had better stay awake. So the reactor looks on for a while, if waits of the
//! same kind were short lately; a long one, and it sleeps at once until short ones come again.
//!
//! To stay awake takes the processor from others, perhaps from the very client that is waited for. So the reactor does not where more
//! threads want to run than there are processors, and looks that were in vain make it sleep at once for a number of waits. (Who sleeps in time
//! is let in front when it wakes; who has used up its share waits for others.)
//!
//! A policy, no promise: nothing but speed hangs on it.

/// Longest look for a device: a little more than an SSD takes on a virtual machine (60 to 90 us from the call on, where the anchors were
/// measured). With 50 us all of those looks were in vain: an SSD hit over NBD took 1.24 round trips of the socket more than a raw read, with this 0.85 to 0.96.
const DEVICE_WINDOW_MAX_NS: u64 = 120_000;
/// Longest look for a client: no more than two or three wake-ups cost there.
const CLIENT_WINDOW_MAX_NS: u64 = 50_000;
/// First look after a short wait.
const WINDOW_MIN_NS: u64 = 10_000;
/// Most waits without a look after looks in vain.
const PAUSE_MAX: u32 = 1024;
/// How often to ask whether somebody else wants the processor: several times in a slice of the scheduler would be waste.
const JUDGE_NS: u64 = 10_000_000;
/// How long not to look if so, at first and at most.
const BARRED_MIN_NS: u64 = 10_000_000;
const BARRED_MAX_NS: u64 = 640_000_000;

/// What is waited for. The kinds are judged apart: a device needs no processor, a client does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    Device,
    Client,
}

impl Wait {
    fn window_max_ns(self) -> u64 {
        match self {
            Wait::Device => DEVICE_WINDOW_MAX_NS,
            Wait::Client => CLIENT_WINDOW_MAX_NS,
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Kind {
    window_ns: u64,
    /// Waits for which to sleep at once, and how many it will be after the next look in vain.
    pause: u32,
    next_pause: u32,
}

/// The policy's state.
#[derive(Default)]
pub(crate) struct Spin {
    kinds: [Kind; 2],
    judge_at_ns: u64,
    barred: bool,
    barred_ns: u64,
}

impl Spin {
    /// How long to look at most, from now on; 0: sleep at once. `contended` says whether somebody waits for a processor.
    pub(crate) fn window_ns(&mut self, now_ns: u64, wait: Wait, contended: impl FnOnce() -> bool) -> u64 {
        let kind = &mut self.kinds[wait as usize];
        if kind.window_ns == 0 {
            return 0;
        }
        if kind.pause > 0 {
            kind.pause -= 1;
            return 0;
        }
        let window_ns = kind.window_ns;
        if now_ns >= self.judge_at_ns {
            self.judge(now_ns, contended());
        }
        if self.barred { 0 } else { window_ns }
    }

    fn judge(&mut self, now_ns: u64, contended: bool) {
        self.judge_at_ns = now_ns + JUDGE_NS;
        if contended {
            self.barred_ns = (self.barred_ns * 2).clamp(BARRED_MIN_NS, BARRED_MAX_NS);
            self.judge_at_ns = now_ns + self.barred_ns;
        } else {
            self.barred_ns /= 2;
        }
        self.barred = contended;
    }

    /// Looking was worth it: something came.
    pub(crate) fn found(&mut self, wait: Wait) {
        self.kinds[wait as usize].next_pause /= 2;
    }

    /// The reactor has slept, after it had looked for `looked_ns`; from the beginning it took `wait_ns` until something came.
    pub(crate) fn slept(&mut self, wait: Wait, looked_ns: u64, wait_ns: u64) {
        let kind = &mut self.kinds[wait as usize];
        if looked_ns == wait.window_max_ns() {
            kind.pause = kind.next_pause.max(1);
            kind.next_pause = (kind.pause * 2).min(PAUSE_MAX);
        }
        if wait_ns > 2 * wait.window_max_ns() {
            kind.window_ns /= 2;
            if kind.window_ns < WINDOW_MIN_NS {
                kind.window_ns = 0;
            }
        } else {
            kind.window_ns = (kind.window_ns * 2).clamp(WINDOW_MIN_NS, wait.window_max_ns());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reactor whose waits all end after `wait_ns`; gives how long it looks at most after some of them.
    fn window_after(spin: &mut Spin, now_ns: &mut u64, waits: usize, wait_ns: u64) -> u64 {
        for _ in 0..waits {
            let window_ns = spin.window_ns(*now_ns, Wait::Device, || false);
            *now_ns += wait_ns;
            if window_ns >= wait_ns { spin.found(Wait::Device) } else { spin.slept(Wait::Device, window_ns, wait_ns) }
        }
        spin.kinds[Wait::Device as usize].window_ns
    }

    #[test]
    fn short_waits_are_looked_through_and_long_ones_slept_through() {
        let (mut spin, mut now_ns) = (Spin::default(), 0);
        assert_eq!(spin.window_ns(now_ns, Wait::Device, || false), 0, "nothing is known yet");
        assert!(window_after(&mut spin, &mut now_ns, 5, 30_000) > 30_000);
        assert_eq!(spin.window_ns(now_ns, Wait::Client, || false), 0, "the kinds are judged apart");
        assert_eq!(window_after(&mut spin, &mut now_ns, 10, 1_000_000), 0, "an idle reactor sleeps");
    }

    #[test]
    fn looks_in_vain_become_rare() {
        let (mut spin, mut now_ns, mut looks) = (Spin::default(), 0, 0);
        // A client that cannot run before the reactor sleeps.
        for _ in 0..10_000 {
            let window_ns = spin.window_ns(now_ns, Wait::Client, || false);
            looks += u32::from(window_ns > 0);
            now_ns += window_ns + 20_000;
            spin.slept(Wait::Client, window_ns, window_ns + 20_000);
        }
        assert!((1..40).contains(&looks), "{looks} looks");
    }

    #[test]
    fn who_competes_for_the_processor_gets_it() {
        let (mut spin, mut now_ns, mut looks) = (Spin::default(), 1, 0);
        for wait in 0..200_000 {
            let window_ns = spin.window_ns(now_ns, Wait::Device, || wait < 100_000);
            now_ns += 30_000;
            if window_ns > 0 {
                looks += 1;
                spin.found(Wait::Device);
            } else {
                spin.slept(Wait::Device, 0, 30_000);
            }
            assert!(wait != 99_999 || looks == 0, "{looks} looks though contended");
        }
        assert!(looks > 70_000, "{looks} looks of 100,000 when nobody competes any more");
    }
}
