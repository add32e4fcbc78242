//! FlashSoft's hot-spot mix: 4 KiB, 80 % reads, 64 outstanding, 80 % of the I/O on the first tenth of the data, a cache of 30 % of it. The report's text
//! says 80/20; the flow values of its job file gave 83.3 to 16.7 (fio takes whole percents here: 83 to 17). Both are run. In write-back the report's cache had room for all that was written in its
//! run; whether destage had begun is not told. So the first split has two arms of it: hearth's default depth, where destage competes with the load, and one that is
//! longer than the run.

use super::blocks::{self, BlockRun};
use super::fio_job::Job;
use super::{Context, Planning, Suite, cache_of};
use crate::catalogue;
use crate::load::Content;
use crate::pairs::Better;
use crate::result::{Arm, Case, Leg, Measured};
use crate::trouble::Trouble;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Name, share of the I/O on the first tenth as fio takes it, for people.
const SPLITS: [(&str, &str, &str); 2] = [("80-20", "zoned:80/10:20/90", "80 %"), ("83-17", "zoned:83/10:17/90", "83 %")];

/// See the module.
pub struct HotSpot;

impl Suite for HotSpot {
    fn cases(&self, planning: &Planning) -> Result<Vec<Case>, Trouble> {
        let set = catalogue::suite("hotspot").expect("the catalogue has it").model_set;
        let data_bytes = planning.data_bytes(2 * GIB, 512 * MIB, 256 * MIB);
        let case = |(name, _, share): (&str, &str, &str)| {
            let arm = |id: &str, title: &str, cached: bool| Arm { id: id.into(), title: title.into(), cached, point: None };
            let headline = |id: &str, arm: &str, figure: &str, better: Better| Measured {
                headline: format!("hotspot.{id}"),
                arm: arm.into(),
                against: Some("bare".into()),
                figure: figure.into(),
                better,
            };
            let mut arms =
                vec![arm("bare", "no cache", false), arm("wt", "write-through", true), arm("wb", "write-back, destaged after 30 s", true)];
            let mut headlines = vec![
                headline("wt", "wt", "rate", Better::Higher),
                headline("wb", "wb", "rate", Better::Higher),
                headline("wb-latency", "wb", "mean_us", Better::Lower),
            ];
            if name == SPLITS[0].0 {
                arms.push(arm("wb-deep", "write-back, destaged after 300 s", true));
                headlines.push(headline("wb", "wb-deep", "rate", Better::Higher));
                headlines.push(headline("wb-latency", "wb-deep", "mean_us", Better::Lower));
            }
            Case {
                id: format!("hotspot.{name}"),
                title: format!("{share} of the I/O on a tenth of the data"),
                about: format!(
                    "fio, random 4 KiB, 80 % reads, 64 outstanding, {share} of the I/O on the first tenth; a cache of 30 % of the data, read into it before: \
                     first the rest that fits, then the hot tenth."
                ),
                model_set: planning.model_set(set),
                data_bytes,
                cache_bytes: cache_of(data_bytes * 3 / 10),
                ram_bytes: (data_bytes / 16).max(16 * MIB),
                rounds: planning.settings.pairs,
                arms,
                headlines,
                counted: "I/Os".into(),
                leg_s: planning.scale.pick(45.0, 20.0, 5.0),
                along: None,
                ceiling: None,
            }
        };
        Ok(SPLITS.map(case).into())
    }

    fn prepare(&self, context: &Context, case: &Case) -> Result<(), Trouble> {
        blocks::data(context, case, Content::Incompressible)
    }

    fn legs(&self, context: &Context, case: &Case, arms: &[&Arm], round: u32) -> Result<Vec<Leg>, Trouble> {
        let split = SPLITS.iter().find(|split| case.id == format!("hotspot.{}", split.0));
        let (_, zones, _) = *split.ok_or_else(|| Trouble::Failed(format!("there is no {}", case.id)))?;
        let play = |device: &str, seconds: f64, seed: u64| {
            Job {
                device: device.into(),
                kind: "randrw",
                block_bytes: 4096,
                depth: 64,
                seconds,
                size_bytes: case.data_bytes,
                reads_percent: Some(80),
                distribution: Some(zones),
                clients: 1,
                log: None,
                seed,
            }
            .run(context.stage)
        };
        let hot = case.data_bytes / 10;
        let leg = |arm: &Arm| {
            let mode = if arm.id == "wt" { "write-through" } else { "write-back" };
            blocks::run(
                context,
                case,
                arm,
                round,
                &BlockRun {
                    setup: arm
                        .cached
                        .then(|| context.setup(case, mode, if arm.id == "wb-deep" { &["--write-cache-depth", "300s"] } else { &[] })),
                    warm: if arm.cached { vec![hot..case.cache_bytes * 8 / 10, 0..hot] } else { Vec::new() },
                    warm_s: context.scale.pick(10.0, 5.0, 1.0),
                    run_s: context.scale.pick(20.0, 8.0, 1.0),
                    load: &play,
                },
            )
        };
        arms.iter().map(|arm| leg(arm)).collect()
    }
}
