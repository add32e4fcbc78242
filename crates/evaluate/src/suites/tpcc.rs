//! VeloBit's TPC-C on MySQL, write-back: 4,200 warehouses and a cache of a quarter of the data there, fewer and the same share here.

use super::databases::{self, DatabaseRun};
use super::{Context, Planning, Scale, Suite, cache_of, tpcc_guest};
use crate::catalogue;
use crate::database::legs::{Server, Times, Tpcc, tpcc_leg};
use crate::pairs::Better;
use crate::result::{Arm, Case, Leg, Measured};
use crate::stage::Setup;
use crate::trouble::Trouble;
use std::path::PathBuf;

const MIB: u64 = 1 << 20;
/// The report's pool was a tenth of its data.
const POOL_SHARE: u64 = 10;
/// The model set of the report's second SSD.
const SATA_SSD: &str = "sata-ssd-2012";
/// The arm with neither disk nor cache.
const CEILING: &str = "ssd";

/// See the module.
pub struct TpccSuite;

fn tpcc(scale: Scale, go_tpc: PathBuf) -> Tpcc {
    let warehouses = scale.pick(6, 2, 1);
    let mut tpcc = Tpcc { server: Server::MariaDb { pool_bytes: 0 }, warehouses, threads: scale.pick(32, 16, 4), go_tpc };
    tpcc.server = Server::MariaDb { pool_bytes: (tpcc.contents().data_bytes() / POOL_SHARE).max(24 * MIB) };
    tpcc
}

impl Suite for TpccSuite {
    fn cases(&self, planning: &Planning) -> Result<Vec<Case>, Trouble> {
        let set = catalogue::suite("tpcc").expect("the catalogue has it").model_set;
        let tpcc = tpcc(planning.scale, PathBuf::new());
        let contents = tpcc.contents();
        let cache_bytes = cache_of(contents.data_bytes() / 4);
        let arm = |id: &str, title: &str, cached: bool| Arm { id: id.into(), title: title.into(), cached, point: None };
        let ceiling = planning.ceiling(CEILING, false);
        let mut arms = vec![
            arm("bare", "no cache", false),
            arm("wb", "write-back", true),
            arm("wb-sata", "write-back, on a SATA SSD of 2012 (modelled)", true),
        ];
        arms.extend(ceiling.as_ref().map(|ceiling| arm(&ceiling.arm, "on the SSD itself, no disk and no cache", false)));
        let mut cases = vec![Case {
            id: "tpcc.mariadb".into(),
            title: "TPC-C on MariaDB".into(),
            about: format!(
                "{} warehouses, {} connections that do not think, a buffer pool of a tenth of the data, doublewrite and flush at commit on; a cache of a \
                 quarter of the data, read into it before. Counted are new orders.",
                tpcc.warehouses, tpcc.threads
            ),
            model_set: planning.model_set(set),
            data_bytes: contents.image_bytes(),
            cache_bytes,
            ram_bytes: (cache_bytes / 8).max(16 * MIB),
            rounds: planning.settings.pairs,
            arms,
            headlines: [("tpcc.pcie", "wb"), ("tpcc.sata", "wb-sata")]
                .map(|(headline, arm)| Measured {
                    headline: headline.into(),
                    arm: arm.into(),
                    against: Some("bare".into()),
                    figure: "tpmc".into(),
                    better: Better::Higher,
                })
                .into(),
            counted: "new orders".into(),
            leg_s: planning.scale.pick(95.0, 46.0, 20.0),
            along: None,
            ceiling,
        }];
        cases.extend(tpcc_guest::cases(planning));
        Ok(cases)
    }

    fn prepare(&self, context: &Context, case: &Case) -> Result<(), Trouble> {
        if tpcc_guest::is_it(case) {
            return tpcc_guest::prepare(context, case);
        }
        let tpcc = tpcc(context.scale, databases::go_tpc(context)?);
        databases::prepare(context, case, &tpcc.contents(), Some(&tpcc.go_tpc))
    }

    fn legs(&self, context: &Context, case: &Case, arms: &[&Arm], round: u32) -> Result<Vec<Leg>, Trouble> {
        if tpcc_guest::is_it(case) {
            return tpcc_guest::legs(context, case, arms, round);
        }
        let tpcc = tpcc(context.scale, databases::go_tpc(context)?);
        let times = Times { warm_seconds: context.scale.pick(35, 16, 2), seconds: context.scale.pick(40, 20, 4) };
        let leg = |arm: &Arm| {
            let run = DatabaseRun {
                setup: arm
                    .cached
                    .then(|| Setup { ssd_model: (arm.id == "wb-sata").then(|| SATA_SSD.into()), ..context.setup(case, "write-back", &[]) }),
                warm: arm.cached,
                attach: None,
                drive: &|device, beside| tpcc_leg(context.stage, device.path(), &tpcc, times, beside),
            };
            databases::run(context, case, arm, round, &tpcc.contents(), &run)
        };
        arms.iter().map(|arm| leg(arm)).collect()
    }
}
