//! The suites: which published test each reruns, what was measured then, and on which model set it is fair.

/// Where a published figure is from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Report {
    /// VeloBit HyperCache, TPC-C and vdbench on an array with a cache of its own.
    VeloBit,
    /// EMC VFCache, Oracle and SQL Server.
    VfCache,
    /// FlashSoft for Linux.
    FlashSoft,
    /// PrimaryIO APA.
    PrimaryIo,
    /// OCZ VXL.
    Vxl,
}

impl Report {
    /// Its name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Report::VeloBit => "VeloBit HyperCache",
            Report::VfCache => "EMC VFCache",
            Report::FlashSoft => "FlashSoft for Linux",
            Report::PrimaryIo => "PrimaryIO APA",
            Report::Vxl => "OCZ VXL",
        }
    }
}

/// What a published figure says.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Published {
    /// So many times the baseline's rate (or, for a time, a so-many-th of it).
    Gain(f64),
    /// A gain from this to that, as the report gives it.
    GainBetween(f64, f64),
    /// A mean response below this, in microseconds.
    BelowMicroseconds(f64),
    /// A share, 0 to 1.
    Share(f64),
    /// So long, in seconds.
    Seconds(f64),
    /// As fast as without the cache: nothing gained, and nothing lost.
    NoLoss,
    /// The report shows a chart without numbers.
    NoNumber,
}

/// One figure that a suite is about.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Headline {
    /// By which results name it: unique.
    pub id: &'static str,
    /// What it is, for people.
    pub what: &'static str,
    /// Which report has it.
    pub report: Report,
    /// What that says.
    pub published: Published,
}

/// A suite.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Suite {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it reruns: one sentence.
    pub about: &'static str,
    /// The model set on which it is fair, where no real disk is given (docs/disk-model.md).
    pub model_set: &'static str,
    /// Its figures; none of the user's own.
    pub headlines: &'static [Headline],
}

use Published::{BelowMicroseconds, Gain, GainBetween, NoLoss, NoNumber, Seconds, Share};
use Report::{FlashSoft, PrimaryIo, VeloBit, VfCache, Vxl};

const fn headline(id: &'static str, what: &'static str, report: Report, published: Published) -> Headline {
    Headline { id, what, report, published }
}

/// All suites, in the order in which they run.
pub const SUITES: &[Suite] = &[
    Suite {
        name: "readhit",
        about: "Random 16 KiB I/O of which so much goes to one hot MiB (vdbench RD1 to RD4 and RD6; writes never hit).",
        model_set: "array",
        headlines: &[
            headline("readhit.rd1", "RD1: reads only, 90 % of them in the hit area: rate", VeloBit, Gain(5.3)),
            headline("readhit.rd2", "RD2: reads only, all in the hit area: rate", VeloBit, Gain(61.1)),
            headline("readhit.rd2-in-process", "RD2 in process, without a block device in between: rate", VeloBit, Gain(61.1)),
            headline("readhit.rd3", "RD3: 80 % reads, 90 % of them in the hit area: rate", VeloBit, Gain(13.1)),
            headline("readhit.rd4", "RD4: 80 % reads, all of them in the hit area: rate", VeloBit, Gain(9.0)),
            headline("readhit.rd6", "RD6: 50 % reads, all of them in the hit area: rate", VeloBit, NoNumber),
        ],
    },
    Suite {
        name: "hotspot",
        about: "Random 4 KiB I/O, 80 % reads, 80 % of it on 10 % of the space, with a cache of 30 % of the data.",
        model_set: "7k2-raid5x3-short",
        headlines: &[
            headline("hotspot.wt", "write-through: rate", FlashSoft, Gain(2.0)),
            headline("hotspot.wb", "write-back: rate", FlashSoft, Gain(5.0)),
            headline("hotspot.wb-latency", "write-back: mean latency, to a fifth", FlashSoft, Gain(5.0)),
        ],
    },
    Suite {
        name: "depth",
        about: "Random 8 KiB I/O, 70 % reads, at queue depths from 1 to 256 and hit rates of 60, 80 and 100 %.",
        model_set: "array",
        headlines: &[headline("depth.hit", "a hit at queue depth 1: mean response", VfCache, BelowMicroseconds(100.0))],
    },
    Suite {
        name: "database-skew",
        about: "sysbench OLTP on two databases and point reads, 90 % of them on 30 % of the rows.",
        model_set: "7k2",
        headlines: &[
            headline("database-skew.sysbench", "sysbench: queries a second", PrimaryIo, Gain(5.0)),
            headline("database-skew.hits", "sysbench: share of reads from the cache", PrimaryIo, Share(0.95)),
            headline("database-skew.warm-up", "sysbench: time until that rate", PrimaryIo, Seconds(12.0 * 3600.0)),
            headline("database-skew.points", "point reads: queries a second", PrimaryIo, Gain(4.0)),
        ],
    },
    Suite {
        name: "oltp-live",
        about: "TPC-C on PostgreSQL and a mix of many reads, with the cache attached while the load runs.",
        model_set: "array",
        headlines: &[
            headline("oltp-live.tpcc", "TPC-C: transactions a minute", VfCache, GainBetween(2.5, 3.5)),
            headline("oltp-live.reads", "the mix of many reads: transactions a second", VfCache, GainBetween(2.5, 3.5)),
            headline("oltp-live.double", "TPC-C: time until the rate has doubled", VfCache, Seconds(25.0 * 60.0)),
            headline("oltp-live.waits", "share of reads under 1 ms", VfCache, Share(0.9)),
        ],
    },
    Suite {
        name: "tpcc",
        about: "TPC-C on MariaDB in write-back, with a cache of a quarter of the data; again with the SSD as fast as a SATA drive of 2012.",
        model_set: "array",
        headlines: &[
            headline("tpcc.pcie", "transactions a minute", VeloBit, Gain(8.02)),
            headline("tpcc.sata", "transactions a minute with a SATA drive of 2012", VeloBit, Gain(2.35)),
            headline("tpcc.vm", "transactions a minute inside a virtual machine", VeloBit, Gain(4.35)),
        ],
    },
    Suite {
        name: "many-readers",
        about: "Large files read sequentially by one to five clients at once, and the case with half of the I/O writes.",
        model_set: "gbe-san",
        headlines: &[
            headline("many-readers.five", "five clients: bytes a second together", Vxl, Gain(5.0)),
            headline("many-readers.traffic", "share of the bytes kept off the backing storage", Vxl, Share(0.9)),
            headline("many-readers.writes", "half writes, write-through: bytes a second together", Vxl, NoLoss),
        ],
    },
    Suite {
        name: "advice",
        about: "How much SSD `hearth advise` says a load needs, and what a pool of just that size brings.",
        model_set: "array",
        headlines: &[],
    },
    Suite {
        name: "backups",
        about: "A database's hits before, beside and after a nightly dump of it: mysqldump, mariadb-backup and pg_dump.",
        model_set: "array",
        headlines: &[],
    },
    Suite { name: "own", about: "A fio job file or a recorded trace of yours.", model_set: "7k2", headlines: &[] },
];

/// The suite of that name.
pub fn suite(name: &str) -> Option<&'static Suite> {
    SUITES.iter().find(|suite| suite.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn figures_are_named_once_and_by_their_suite() {
        let mut seen = BTreeSet::new();
        for suite in SUITES {
            for headline in suite.headlines {
                assert!(headline.id.strip_prefix(suite.name).is_some_and(|rest| rest.starts_with('.')), "{}", headline.id);
                assert!(seen.insert(headline.id), "{} twice", headline.id);
            }
            assert_eq!(super::suite(suite.name), Some(suite));
        }
        assert_eq!(super::suite("tpc"), None);
    }
}
