//! Which device faults a run has: each run has a theme, so that most have few kinds of them.

use crate::disk::faults::Faults;
use crate::prng::Prng;

/// What kind of device faults a run has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Theme {
    Quiet,
    Latency,
    SsdErrors,
    BackingErrors,
    SsdCorruption,
    SsdFlush,
    BackingFlush,
    SsdLies,
    SsdLeaves,
    All,
}

pub(super) const THEMES: [(Theme, u32); 10] = [
    (Theme::Quiet, 40),
    (Theme::Latency, 10),
    (Theme::SsdErrors, 8),
    (Theme::BackingErrors, 8),
    (Theme::SsdCorruption, 10),
    (Theme::SsdFlush, 6),
    (Theme::BackingFlush, 6),
    (Theme::SsdLies, 3),
    (Theme::SsdLeaves, 5),
    (Theme::All, 4),
];

fn latency(faults: &mut Faults, prng: &mut Prng) {
    faults.spike_per_10k = prng.pick(&[0, 100, 1000]);
    faults.hang_per_10k = prng.pick(&[0, 0, 10, 50]);
}

pub(super) fn faults(theme: Theme, ssd: bool, prng: &mut Prng) -> Faults {
    let mut faults = Faults::none();
    (faults.on, faults.budget) = (true, prng.pick(&[1, 3, 10]));
    let is = |wanted: Theme| theme == wanted || theme == Theme::All;
    if is(Theme::Latency) || prng.percent(20) {
        latency(&mut faults, prng);
    }
    if is(if ssd { Theme::SsdErrors } else { Theme::BackingErrors }) {
        faults.read_error_per_10k = prng.pick(&[0, 50, 300]);
        faults.write_error_per_10k = prng.pick(&[0, 50, 300]);
        faults.sticky_percent = prng.pick(&[0, 30]);
    }
    if is(if ssd { Theme::SsdFlush } else { Theme::BackingFlush }) {
        faults.flush_error_per_10k = prng.pick(&[100, 1000]);
    }
    if ssd && is(Theme::SsdCorruption) {
        let rate = prng.pick(&[30, 100, 500]);
        if prng.percent(70) {
            faults.corrupt_read_per_10k = rate;
        } else {
            faults.corrupt_write_per_10k = rate;
        }
    }
    faults.lies = ssd && theme == Theme::SsdLies;
    faults
}
