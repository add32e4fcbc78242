//! Evaluations whose truth is known: what the tests of reports are fed, so that verdicts can be judged. No figure of them is of a real machine, and they
//! say so themselves. Unit tests, `tests/` and an example share this file.
#![allow(dead_code, unused_imports, reason = "each of them uses a part")]

mod whole;

pub use whole::whole;

use evaluate::catalogue::{Published, SUITES};
use evaluate::pairs::Better;
use evaluate::random::Random;
use evaluate::result::{Arm, Case, Evaluation, FORMAT, Leg, Machine, Measured, Settings};
use std::collections::BTreeMap;

/// What is true of one case.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Truth {
    /// The headline that is measured.
    pub headline: &'static str,
    /// The gain; for a headline that is none, the figure itself.
    pub gain: f64,
    /// Standard deviation of a run's logarithm.
    pub noise: f64,
    /// Rounds.
    pub rounds: u32,
    /// Added to the logarithm of all rates from each round to the next, as of a machine that grows slower.
    pub drift: f64,
}

impl Default for Truth {
    fn default() -> Truth {
        Truth { headline: "hotspot.wb", gain: 2.0, noise: 0.05, rounds: 5, drift: 0.0 }
    }
}

/// Numbers close to normal ones: the sum of twelve uniform ones, less six.
pub(crate) fn normal(random: &mut Random) -> f64 {
    (0..12).map(|_| random.unit()).sum::<f64>() - 6.0
}

/// An evaluation of one case of two arms.
///
/// # Panics
/// If the catalogue has no such headline.
pub fn one_case(truth: &Truth, seed: u64) -> (Evaluation, Vec<Leg>) {
    let headline =
        SUITES.iter().flat_map(|suite| suite.headlines).find(|headline| headline.id == truth.headline).expect("is in the catalogue");
    let is_gain = matches!(headline.published, Published::Gain(_) | Published::GainBetween(..) | Published::NoLoss | Published::NoNumber);
    let (figure, better) = match headline.published {
        Published::BelowMicroseconds(_) => ("mean_us", Better::Lower),
        Published::Share(_) => ("hit_ratio", Better::Higher),
        Published::Seconds(_) => ("settled_s", Better::Lower),
        _ => ("rate", Better::Higher),
    };
    let arm = |id: &str, title: &str, cached| Arm { id: id.into(), title: title.into(), cached, point: None };
    let case = Case {
        id: truth.headline.into(),
        title: "Made up, with a truth that is known".into(),
        about: "Nothing was run.".into(),
        model_set: Some("array".into()),
        data_bytes: 8 << 30,
        cache_bytes: 2 << 30,
        ram_bytes: 64 << 20,
        rounds: truth.rounds,
        arms: vec![arm("none", "no cache", false), arm("wb", "write-back", true)],
        headlines: vec![Measured {
            headline: truth.headline.into(),
            arm: "wb".into(),
            against: is_gain.then(|| "none".into()),
            figure: figure.into(),
            better,
        }],
        counted: "I/Os".into(),
        leg_s: 1.0,
        along: None,
        ceiling: None,
    };
    let mut random = Random::new(seed);
    let mut legs = Vec::new();
    for round in 1..=truth.rounds {
        // The mood of the machine is the same in both runs of a round.
        let mood = 1000.0 * (0.3 * normal(&mut random) + truth.drift * f64::from(round)).exp();
        for arm in &case.arms {
            let noise = (truth.noise * normal(&mut random)).exp();
            let mut figures = BTreeMap::from([("rate".into(), kept(mood * noise * if arm.cached && is_gain { truth.gain } else { 1.0 }))]);
            if !is_gain && arm.cached {
                figures.insert(figure.into(), kept(truth.gain * noise));
            }
            legs.push(Leg { case: case.id.clone(), arm: arm.id.clone(), round, figures, ..Leg::default() });
        }
    }
    (evaluation(vec![case], truth.rounds), legs)
}

/// Six digits, so that a number is the same after a file.
fn kept(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

fn evaluation(cases: Vec<Case>, pairs: u32) -> Evaluation {
    Evaluation {
        format: FORMAT,
        hearth: env!("CARGO_PKG_VERSION").into(),
        began_unix_s: 1_795_376_820,
        machine: Machine {
            cpu: "a processor that does not exist".into(),
            cpus: 2,
            memory_bytes: 16 << 30,
            kernel: "Linux 6.12".into(),
            system: "made up for a test".into(),
            ssd: "ext4 on a made-up SSD".into(),
            backing: "ext4 on a made-up disk".into(),
            programs: BTreeMap::from([("fio".into(), "3.33".into())]),
        },
        settings: Settings { pairs, ..Settings::default() },
        cases,
        not_measured: Vec::new(),
        probes: Vec::new(),
    }
}
