//! VFCache's databases, whose cache is switched on while the load runs: TPC-C on PostgreSQL, and a mix of many reads as TPC-E has. The volume is in
//! pass-through before, and stays so in the baseline.

use super::databases::{self, DatabaseRun};
use super::{Context, Planning, Scale, Suite, cache_of};
use crate::catalogue;
use crate::database::legs::{Server, Times, Tpcc, pgbench_leg, tpcc_leg};
use crate::database::pgbench::{Mix, Pgbench};
use crate::database::prepared::Contents;
use crate::pairs::Better;
use crate::result::{Arm, Case, Leg, Measured};
use crate::trouble::Trouble;
use std::path::PathBuf;

const MIB: u64 = 1 << 20;

/// See the module.
pub struct OltpLive;

/// Buffers of a tenth of the data, and memory for as much page cache as PostgreSQL must have: it knows no direct I/O.
fn memory(data_bytes: u64) -> (u64, Option<u64>) {
    let buffers_bytes = (data_bytes / 10).max(24 * MIB);
    (buffers_bytes, Some((buffers_bytes * 4).max(128 * MIB)))
}

fn tpcc(scale: Scale, go_tpc: PathBuf) -> Tpcc {
    let server = Server::Postgres { buffers_bytes: 0, memory_bytes: None };
    let mut tpcc = Tpcc { server, warehouses: scale.pick(4, 2, 1), threads: scale.pick(16, 16, 4), go_tpc };
    let (buffers_bytes, memory_bytes) = memory(tpcc.contents().data_bytes());
    tpcc.server = Server::Postgres { buffers_bytes, memory_bytes };
    tpcc
}

fn reads(scale: Scale) -> Pgbench {
    // 77 reading transactions of a hundred, as TPC-E has them.
    Pgbench {
        mix: Mix::ReadsAndWrites { reads: 77, writes: 23 },
        scale: scale.pick(30, 15, 2),
        clients: scale.pick(64, 32, 4),
        sampled: 0.2,
    }
}

/// Seconds after which the cache comes.
fn attach_s(scale: Scale) -> f64 {
    scale.pick(20.0, 15.0, 2.0)
}

impl Suite for OltpLive {
    fn cases(&self, planning: &Planning) -> Result<Vec<Case>, Trouble> {
        let set = catalogue::suite("oltp-live").expect("the catalogue has it").model_set;
        let after = attach_s(planning.scale);
        let case = |id: &str, title: &str, what: &str, contents: &Contents, counted: &str, headlines: Vec<Measured>| {
            let arm = |id: &str, title: &str, cached: bool| Arm { id: id.into(), title: title.into(), cached, point: None };
            let cache_bytes = cache_of(contents.data_bytes() / 2);
            Case {
                id: format!("oltp-live.{id}"),
                title: title.into(),
                about: format!(
                    "{what}. The volume is in pass-through; after {after:.0} s of the load it is put into write-through, with a cold cache of half of the data, \
                     in the baseline never."
                ),
                model_set: planning.model_set(set),
                data_bytes: contents.image_bytes(),
                cache_bytes,
                ram_bytes: (cache_bytes / 8).max(16 * MIB),
                rounds: planning.settings.pairs,
                arms: vec![arm("off", "pass-through", false), arm("live", "write-through, attached while it runs", true)],
                headlines,
                counted: counted.into(),
                leg_s: planning.scale.pick(105.0, 57.0, 20.0),
                along: None,
                ceiling: None,
            }
        };
        let measured = |headline: &str, against: Option<&str>, figure: &str, better: Better| Measured {
            headline: format!("oltp-live.{headline}"),
            arm: "live".into(),
            against: against.map(str::to_owned),
            figure: figure.into(),
            better,
        };
        Ok(vec![
            case(
                "tpcc",
                "TPC-C on PostgreSQL, cache attached live",
                "TPC-C on PostgreSQL",
                &tpcc(planning.scale, PathBuf::new()).contents(),
                "new orders",
                vec![measured("tpcc", Some("off"), "tpmc", Better::Higher), measured("double", None, "double_s", Better::Lower)],
            ),
            case(
                "reads",
                "Three reads to a write on PostgreSQL, cache attached live",
                "pgbench: 77 % select-only, 23 % TPC-B-like transactions; the share of reads under 1 ms is of the reads that reach the volume, from their \
                 arrival at the cache to its answer (the loop device and FUSE come on top: see depth), as the report's was of the database's waits for reads",
                &Contents::Pgbench { scale: reads(planning.scale).scale },
                "transactions",
                vec![measured("reads", Some("off"), "rate", Better::Higher), measured("waits", None, "under_1ms", Better::Higher)],
            ),
        ])
    }

    fn prepare(&self, context: &Context, case: &Case) -> Result<(), Trouble> {
        if case.id == "oltp-live.tpcc" {
            let tpcc = tpcc(context.scale, databases::go_tpc(context)?);
            return databases::prepare(context, case, &tpcc.contents(), Some(&tpcc.go_tpc));
        }
        databases::prepare(context, case, &Contents::Pgbench { scale: reads(context.scale).scale }, None)
    }

    fn legs(&self, context: &Context, case: &Case, arms: &[&Arm], round: u32) -> Result<Vec<Leg>, Trouble> {
        let is_tpcc = case.id == "oltp-live.tpcc";
        let tpcc = tpcc(context.scale, if is_tpcc { databases::go_tpc(context)? } else { PathBuf::new() });
        let reads = reads(context.scale);
        let contents = if is_tpcc { tpcc.contents() } else { Contents::Pgbench { scale: reads.scale } };
        let times = Times { warm_seconds: context.scale.pick(60, 31, 5), seconds: context.scale.pick(30, 20, 4) };
        let leg = |arm: &Arm| {
            let run = DatabaseRun {
                setup: Some(context.setup(case, "pass-through", &[])),
                warm: false,
                attach: arm.cached.then(|| (attach_s(context.scale), "write-through")),
                drive: &|device, beside| match is_tpcc {
                    true => tpcc_leg(context.stage, device.path(), &tpcc, times, beside),
                    false => pgbench_leg(context.stage, device.path(), &reads, memory(contents.data_bytes()), times, beside),
                },
            };
            databases::run(context, case, arm, round, &contents, &run)
        };
        arms.iter().map(|arm| leg(arm)).collect()
    }
}
