//! VeloBit's vdbench runs: random 16 KiB I/O, 32 outstanding, of whose reads so many go to the first mebibyte; no write ever does (vdbench's `rhpct` and
//! `whpct`, in its manual and its source). fio has no way to send reads and writes to different places by different odds.

use super::blocks::{self, BlockRun};
use super::{Context, Planning, Suite, cache_of};
use crate::by_hand;
use crate::catalogue;
use crate::load::{Content, Length, Load, Pace, generator, unwatched};
use crate::pairs::Better;
use crate::pattern::{Pattern, Places};
use crate::result::{Arm, Case, Leg, Measured};
use crate::trouble::Trouble;
use std::path::Path;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// vdbench's default.
const AREA_BYTES: u64 = MIB;
const BLOCK_BYTES: u64 = 16 << 10;
const DEPTH: u32 = 32;
/// The arm whose load calls the cache.
const IN_PROCESS: &str = "in-process";
/// The arm with neither disk nor cache.
const CEILING: &str = "memory";
/// Of what the report's tool wrote.
const COMPRESSIBLE_PERCENT: u32 = 75;

/// Name, reads of a hundred, of them in the hit area.
const RUNS: [(&str, u32, u32); 5] = [("rd1", 100, 90), ("rd2", 100, 100), ("rd3", 80, 90), ("rd4", 80, 100), ("rd6", 50, 100)];

/// See the module.
pub struct ReadHit;

impl Suite for ReadHit {
    fn cases(&self, planning: &Planning) -> Result<Vec<Case>, Trouble> {
        let set = catalogue::suite("readhit").expect("the catalogue has it").model_set;
        let data_bytes = planning.data_bytes(4 * GIB, GIB, 128 * MIB);
        let case = |(name, reads, hits): (&str, u32, u32)| {
            let arm = |id: &str, title: &str, cached: bool| Arm { id: id.into(), title: title.into(), cached, point: None };
            let mut arms = vec![arm("bare", "no cache", false), arm("wb", "write-back", true)];
            if name == "rd2" {
                arms.push(arm(IN_PROCESS, "in process, without a device in between", true));
            }
            let ceiling = if name == "rd2" { planning.ceiling(CEILING, true) } else { None };
            let compared = arms.len();
            arms.extend(
                ceiling.as_ref().map(|ceiling| arm(&ceiling.arm, "a file in memory behind a loop device, no disk and no cache", false)),
            );
            let headline = |arm: &Arm| Measured {
                headline: match arm.id.as_str() {
                    IN_PROCESS => format!("readhit.{name}-{IN_PROCESS}"),
                    _ => format!("readhit.{name}"),
                },
                arm: arm.id.clone(),
                against: Some("bare".into()),
                figure: "rate".into(),
                better: Better::Higher,
            };
            Case {
                id: format!("readhit.{name}"),
                title: format!("{}: {reads} % reads, {hits} % of them in the hit area", name.to_uppercase()),
                about: format!(
                    "Random 16 KiB I/O, 32 outstanding; {reads} % reads, of which {hits} % go to the first mebibyte, everything else to the rest. The data is \
                     {COMPRESSIBLE_PERCENT} % compressible. Before the cached run the volume is read into the cache once."
                ),
                model_set: planning.model_set(set),
                data_bytes,
                cache_bytes: cache_of(data_bytes / 4),
                ram_bytes: (data_bytes / 32).max(16 * MIB),
                rounds: planning.settings.pairs,
                headlines: arms[1..compared].iter().map(headline).collect(),
                arms,
                counted: "I/Os".into(),
                leg_s: planning.scale.pick(39.0, 18.0, 4.0),
                along: None,
                ceiling,
            }
        };
        Ok(RUNS.map(case).into())
    }

    fn prepare(&self, context: &Context, case: &Case) -> Result<(), Trouble> {
        blocks::data(context, case, Content::Compressible { percent: COMPRESSIBLE_PERCENT })
    }

    fn legs(&self, context: &Context, case: &Case, arms: &[&Arm], round: u32) -> Result<Vec<Leg>, Trouble> {
        let run = RUNS.iter().find(|run| case.id == format!("readhit.{}", run.0));
        let (_, reads_percent, hits_percent) = *run.ok_or_else(|| Trouble::Failed(format!("there is no {}", case.id)))?;
        let pattern = Pattern {
            block_bytes: BLOCK_BYTES,
            space_bytes: case.data_bytes,
            reads_percent,
            places: Places::HitArea { area_bytes: AREA_BYTES, reads_percent: hits_percent, writes_percent: 0 },
        };
        let load = |seconds: f64, seed: u64| Load {
            pattern: pattern.clone(),
            pace: Pace::Closed { depth: DEPTH },
            length: Length::seconds(seconds),
            content: Content::Compressible { percent: COMPRESSIBLE_PERCENT },
            seed,
            verify: false,
        };
        let (warm_s, run_s) = (context.scale.pick(6.0, 4.0, 0.5), context.scale.pick(15.0, 6.0, 1.0));
        let leg = |arm: &Arm| -> Result<Leg, Trouble> {
            if arm.id == IN_PROCESS {
                return blocks::in_process(context, case, arm, round, warm_s, &|seconds, seed| load(seconds, seed));
            }
            let play = |device: &str, seconds: f64, seed: u64| {
                let load = load(seconds, seed);
                context.stage.say(by_hand::load_command(&load, device));
                generator::run(Path::new(device), &load, context.stage.stop_flag(), &mut unwatched)
            };
            let setup = arm.cached.then(|| context.setup(case, "write-back", &[]));
            let warm = if arm.cached { vec![AREA_BYTES..case.data_bytes, 0..AREA_BYTES] } else { Vec::new() };
            blocks::run(context, case, arm, round, &BlockRun { setup, warm, warm_s, run_s, load: &play })
        };
        arms.iter().map(|arm| leg(arm)).collect()
    }
}
