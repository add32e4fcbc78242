//! VFCache's queue-depth curves: 8 KiB, 70 % reads, uniform, at 60, 80 and 100 % hits and without a cache. Under uniform access every policy's hit rate is
//! what of the space the cache holds, so the space is made to fit the rate.

use super::blocks::{self, BlockRun, Device};
use super::fio_job::Job;
use super::{Context, Planning, Suite, cache_of, whole_mib};
use crate::catalogue;
use crate::load::Content;
use crate::pairs::Better;
use crate::result::{Arm, Case, Leg, Measured};
use crate::trouble::Trouble;
use std::time::Instant;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Of the cache's size that blocks of clients may use: the rest is headers, footers and segments kept free.
const USABLE_PERCENT: u64 = 92;
/// The same where nothing may be missed although blocks are overwritten all the time, whose old versions take room until their segment comes round.
const OVERWRITTEN_PERCENT: u64 = 50;

/// Id, for people, hits of a hundred.
const CURVES: [(&str, &str, Option<u64>); 4] =
    [("none", "no cache", None), ("60", "60 % hits", Some(60)), ("80", "80 % hits", Some(80)), ("100", "100 % hits", Some(100))];

/// See the module.
pub struct Depth;

impl Suite for Depth {
    fn cases(&self, planning: &Planning) -> Result<Vec<Case>, Trouble> {
        let set = catalogue::suite("depth").expect("the catalogue has it").model_set;
        let data_bytes = planning.data_bytes(GIB, 512 * MIB, 128 * MIB);
        let depths: &[u32] = planning.scale.pick(&[1, 2, 4, 8, 16, 32, 64, 128, 256], &[1, 16, 128], &[1, 8]);
        let arm = |(id, title, hits): (&str, &str, Option<u64>), depth: u32| Arm {
            id: format!("{id}-qd{depth}"),
            title: format!("{title}, depth {depth}"),
            cached: hits.is_some(),
            point: Some((title.into(), f64::from(depth))),
        };
        Ok(vec![Case {
            id: "depth.70-30".into(),
            title: "Queue depths at given hit rates".into(),
            about: "fio, random 8 KiB, 70 % reads, uniform over a space of which the cache (write-through) holds 60, 80 or 100 %; it is read into the \
                    cache before."
                .into(),
            model_set: planning.model_set(set),
            data_bytes,
            cache_bytes: cache_of(data_bytes * 60 / USABLE_PERCENT),
            ram_bytes: 16 * MIB,
            rounds: planning.settings.pairs,
            arms: CURVES.iter().flat_map(|curve| depths.iter().map(move |depth| arm(*curve, *depth))).collect(),
            headlines: vec![Measured {
                headline: "depth.hit".into(),
                arm: "100-qd1".into(),
                against: None,
                figure: "read_mean_us".into(),
                better: Better::Lower,
            }],
            counted: "I/Os".into(),
            leg_s: planning.scale.pick(6.5, 8.0, 3.0),
            along: Some("queue depth".into()),
            ceiling: None,
        }])
    }

    fn prepare(&self, context: &Context, case: &Case) -> Result<(), Trouble> {
        blocks::data(context, case, Content::Incompressible)
    }

    fn legs(&self, context: &Context, case: &Case, arms: &[&Arm], round: u32) -> Result<Vec<Leg>, Trouble> {
        let of = |arm: &Arm| CURVES.iter().find(|curve| arm.id.starts_with(&format!("{}-", curve.0))).and_then(|curve| curve.2);
        let Some(first) = arms.first() else { return Ok(Vec::new()) };
        let hits = of(first);
        let usable = case.cache_bytes * USABLE_PERCENT / 100;
        let space = match hits {
            None => case.data_bytes,
            Some(100) => whole_mib(case.cache_bytes * OVERWRITTEN_PERCENT / 100),
            Some(hits) => whole_mib(usable * 100 / hits).min(case.data_bytes),
        };
        let setup = hits.map(|_| context.setup(case, "write-through", &[]));
        let opened = Instant::now();
        let device = Device::open(context, case, first, setup.as_ref())?;
        if let Some(cached) = device.cached() {
            cached.warm(0..space)?;
        }
        let before = context.stage.take_commands();
        let mut opened_s = opened.elapsed().as_secs_f64();
        let mut legs = Vec::new();
        for arm in arms {
            let depth = arm.point.as_ref().map_or(1, |(_, depth)| *depth as u32);
            let play = |device: &str, seconds: f64, seed: u64| {
                Job {
                    device: device.into(),
                    kind: "randrw",
                    block_bytes: 8192,
                    depth,
                    seconds,
                    size_bytes: space,
                    reads_percent: Some(70),
                    distribution: None,
                    clients: 1,
                    log: None,
                    seed,
                }
                .run(context.stage)
            };
            let run = BlockRun {
                setup: None,
                warm: Vec::new(),
                warm_s: context.scale.pick(1.0, 1.0, 0.0),
                run_s: context.scale.pick(4.0, 4.0, 1.0),
                load: &play,
            };
            let begun = Instant::now();
            let mut leg = blocks::begun(case, arm, round);
            blocks::measure(&mut leg, &device, round, &run)?;
            leg.took_s = begun.elapsed().as_secs_f64() + std::mem::take(&mut opened_s);
            leg.commands = before.iter().cloned().chain(context.stage.take_commands()).collect();
            legs.push(leg);
        }
        device.close()?;
        Ok(legs)
    }
}
