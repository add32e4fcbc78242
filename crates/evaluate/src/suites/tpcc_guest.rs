//! VeloBit's TPC-C inside a virtual machine: the same database in a guest whose disk is the bare device, or the volume.
//!
//! Where processors are emulated, they are about a tenth as fast, and a disk beside them would look ten times as fast as it is. So the model
//! set is one of the array's eight disks, not the array.

use super::databases::{self, DatabaseRun};
use super::{Context, Planning, Scale, cache_of};
use crate::database::in_guest::tpcc_in_guest;
use crate::database::legs::{Server, Times, Tpcc};
use crate::guests::launcher;
use crate::pairs::Better;
use crate::result::{Arm, Case, Leg, Measured};
use crate::trouble::Trouble;
use std::path::PathBuf;

const ID: &str = "tpcc.guest";
const MIB: u64 = 1 << 20;
/// One disk of the array: see the module.
const MODEL_SET: &str = "7k2";

fn tpcc(scale: Scale, go_tpc: PathBuf) -> Tpcc {
    let server = Server::MariaDb { pool_bytes: 0 };
    let mut tpcc = Tpcc { server, warehouses: scale.pick(2, 2, 1), threads: scale.pick(16, 16, 4), go_tpc };
    tpcc.server = Server::MariaDb { pool_bytes: (tpcc.contents().data_bytes() / 10).max(24 * MIB) };
    tpcc
}

/// The case, where guests can be started.
pub fn cases(planning: &Planning) -> Vec<Case> {
    if launcher().is_none() {
        return Vec::new();
    }
    let tpcc = tpcc(planning.scale, PathBuf::new());
    let contents = tpcc.contents();
    let cache_bytes = cache_of(contents.data_bytes() / 4);
    let arm = |id: &str, title: &str, cached: bool| Arm { id: id.into(), title: title.into(), cached, point: None };
    vec![Case {
        id: ID.into(),
        title: "TPC-C on MariaDB in a virtual machine".into(),
        about: format!(
            "{} warehouses, {} connections that do not think, the load beside the server in the guest; a buffer pool of a tenth of \
             the data, doublewrite and flush at commit on; a cache of a quarter of the data, read into it before. The guest's disk is the block \
             device, by QEMU's virtio. Where the guest's processors are emulated, both figures are far lower than on real ones, and the gain \
             is smaller than it would be there, since the database waits for processors too; the disk is one of the array's eight for that reason.",
            tpcc.warehouses, tpcc.threads
        ),
        model_set: planning.model_set(MODEL_SET),
        data_bytes: contents.image_bytes(),
        cache_bytes,
        ram_bytes: (cache_bytes / 8).max(16 * MIB),
        rounds: planning.settings.pairs,
        arms: vec![arm("bare", "no cache", false), arm("wb", "write-back", true)],
        headlines: vec![Measured {
            headline: "tpcc.vm".into(),
            arm: "wb".into(),
            against: Some("bare".into()),
            figure: "tpmc".into(),
            better: Better::Higher,
        }],
        counted: "new orders".into(),
        leg_s: planning.scale.pick(160.0, 120.0, 60.0),
        along: None,
        ceiling: None,
    }]
}

/// Whether a case is the one in a guest.
pub fn is_it(case: &Case) -> bool {
    case.id == ID
}

/// As of [`Suite::prepare`](super::Suite::prepare).
pub fn prepare(context: &Context, case: &Case) -> Result<(), Trouble> {
    let tpcc = tpcc(context.scale, databases::go_tpc(context)?);
    databases::prepare(context, case, &tpcc.contents(), Some(&tpcc.go_tpc))
}

/// As of [`Suite::legs`](super::Suite::legs).
pub fn legs(context: &Context, case: &Case, arms: &[&Arm], round: u32) -> Result<Vec<Leg>, Trouble> {
    let launcher = launcher().ok_or_else(|| Trouble::failed("there is no launcher of virtual machines", "set HEARTH_LAB to its path"))?;
    let tpcc = tpcc(context.scale, databases::go_tpc(context)?);
    let times = Times { warm_seconds: context.scale.pick(30, 20, 2), seconds: context.scale.pick(60, 40, 4) };
    let leg = |arm: &Arm| {
        let run = DatabaseRun {
            setup: arm.cached.then(|| context.setup(case, "write-back", &[])),
            warm: arm.cached,
            attach: None,
            drive: &|device, beside| tpcc_in_guest(context.stage, &launcher, device.path(), &tpcc, times, beside),
        };
        databases::run(context, case, arm, round, &tpcc.contents(), &run)
    };
    arms.iter().map(|arm| leg(arm)).collect()
}
