//! PrimaryIO's skewed databases: sysbench on two of them at once, 30 % of the rows drawn 90 % of the time, and point reads with the same skew.

use super::databases::{self, DatabaseRun};
use super::{Context, Planning, Suite, cache_of};
use crate::catalogue;
use crate::database::legs::{Times, pgbench_leg, sysbench_leg};
use crate::database::pgbench::{Mix, Pgbench};
use crate::database::prepared::Contents;
use crate::database::sysbench::{Hot, Script, Sysbench};
use crate::pairs::Better;
use crate::result::{Arm, Case, Leg, Measured};
use crate::trouble::Trouble;

const MIB: u64 = 1 << 20;

/// See the module.
pub struct DatabaseSkew;

fn sysbench(scale: super::Scale) -> Sysbench {
    let rows = scale.pick(1_000_000, 250_000, 20_000);
    Sysbench { script: Script::ReadWrite, databases: 2, rows, threads: scale.pick(32, 16, 4), hot: Hot::AS_PUBLISHED }
}

fn points(scale: super::Scale) -> Pgbench {
    let mix = Mix::HotPoints { rows_percent: 30, drawn_percent: 90 };
    Pgbench { mix, scale: scale.pick(40, 15, 2), clients: scale.pick(64, 32, 4), sampled: 0.1 }
}

/// sysbench's pool was 6.5 % of the data.
fn pool_bytes(contents: &Contents) -> u64 {
    (contents.data_bytes() * 65 / 1000).max(24 * MIB)
}

/// PostgreSQL knows no direct I/O: its memory is what the report's pool was, an eighth of the data, page cache included.
fn memory(contents: &Contents) -> (u64, Option<u64>) {
    let memory_bytes = (contents.data_bytes() / 8).max(128 * MIB);
    (memory_bytes / 4, Some(memory_bytes))
}

impl Suite for DatabaseSkew {
    fn cases(&self, planning: &Planning) -> Result<Vec<Case>, Trouble> {
        let set = catalogue::suite("database-skew").expect("the catalogue has it").model_set;
        let arm = |id: &str, title: &str, cached: bool| Arm { id: id.into(), title: title.into(), cached, point: None };
        let measured = |headline: &str, against: Option<&str>, figure: &str, better: Better| Measured {
            headline: format!("database-skew.{headline}"),
            arm: "wb".into(),
            against: against.map(str::to_owned),
            figure: figure.into(),
            better,
        };
        let case = |id: &str, title: &str, about: String, contents: Contents, percent: u64, counted: &str, headlines: Vec<Measured>| {
            let cache_bytes = cache_of(contents.data_bytes() * percent / 100);
            Case {
                id: format!("database-skew.{id}"),
                title: title.into(),
                about,
                model_set: planning.model_set(set),
                data_bytes: contents.image_bytes(),
                cache_bytes,
                ram_bytes: (cache_bytes / 8).max(16 * MIB),
                rounds: planning.settings.pairs,
                arms: vec![arm("bare", "no cache", false), arm("wb", "write-back", true)],
                headlines,
                counted: counted.into(),
                leg_s: planning.scale.pick(85.0, 50.0, 20.0),
                along: None,
                ceiling: None,
            }
        };
        let load = sysbench(planning.scale);
        Ok(vec![
            case(
                "sysbench",
                "sysbench on two databases",
                format!(
                    "sysbench oltp_read_write on MariaDB, two databases of {} rows with {} connections each, 30 % of the rows drawn 90 % of the time (in the way of \
                     the version that the report ran), a cache of 43 % of the data, into which the disk is read before; that time counts as warm-up.",
                    load.rows, load.threads
                ),
                Contents::Sysbench { databases: load.databases, rows: load.rows },
                43,
                "queries",
                vec![
                    measured("sysbench", Some("bare"), "rate", Better::Higher),
                    measured("hits", None, "hit_ratio", Better::Higher),
                    measured("warm-up", None, "settled_s", Better::Lower),
                ],
            ),
            case(
                "points",
                "Point reads on PostgreSQL",
                "pgbench: one row a transaction, 90 % of them of 30 % of the rows; a cache of 30 % of the data, into which the disk is read before.".into(),
                Contents::Pgbench { scale: points(planning.scale).scale },
                30,
                "transactions",
                vec![measured("points", Some("bare"), "rate", Better::Higher)],
            ),
        ])
    }

    fn prepare(&self, context: &Context, case: &Case) -> Result<(), Trouble> {
        databases::prepare(context, case, &contents(context, case), None)
    }

    fn legs(&self, context: &Context, case: &Case, arms: &[&Arm], round: u32) -> Result<Vec<Leg>, Trouble> {
        let contents = contents(context, case);
        let times = Times { warm_seconds: context.scale.pick(30, 15, 2), seconds: context.scale.pick(30, 20, 4) };
        let leg = |arm: &Arm| {
            let run = DatabaseRun {
                setup: arm.cached.then(|| context.setup(case, "write-back", &[])),
                warm: arm.cached,
                attach: None,
                drive: &|device, beside| match contents {
                    Contents::Pgbench { .. } => {
                        pgbench_leg(context.stage, device.path(), &points(context.scale), memory(&contents), times, beside)
                    }
                    _ => sysbench_leg(context.stage, device.path(), &sysbench(context.scale), pool_bytes(&contents), times, beside),
                },
            };
            databases::run(context, case, arm, round, &contents, &run)
        };
        arms.iter().map(|arm| leg(arm)).collect()
    }
}

fn contents(context: &Context, case: &Case) -> Contents {
    if case.id == "database-skew.points" {
        return Contents::Pgbench { scale: points(context.scale).scale };
    }
    let load = sysbench(context.scale);
    Contents::Sysbench { databases: load.databases, rows: load.rows }
}
