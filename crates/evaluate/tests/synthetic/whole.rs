//! An evaluation of all suites with everything that a report may meet: warm-ups, latencies, curves, a missing leg, a suite that could not be run. Made up.

use super::{evaluation, kept, normal};
use evaluate::pairs::Better;
use evaluate::random::Random;
use evaluate::result::{Arm, CacheFigures, Case, Cpu, Evaluation, Latency, Leg, Measured, NotMeasured, Second};
use std::collections::BTreeMap;

/// A made-up case: what is needed to write its plan and its legs.
struct Made {
    id: &'static str,
    title: &'static str,
    about: &'static str,
    set: &'static str,
    counted: &'static str,
    /// Arms: name, title, rate, mean response in microseconds.
    arms: &'static [(&'static str, &'static str, f64, f64)],
    /// Headline, arm, against, figure.
    headlines: &'static [(&'static str, &'static str, Option<&'static str>, &'static str)],
    /// Standard deviation of a run's logarithm.
    noise: f64,
}

const NONE: &str = "none";
const MADE: &[Made] = &[
    Made {
        id: "readhit.rd1",
        title: "RD1: reads only, 90 % of them in one hot MiB",
        about: "16 KiB, 32 outstanding; the rest goes uniformly to 8 GiB.",
        set: "array",
        counted: "I/Os",
        arms: &[(NONE, "no cache", 6954.0, 4600.0), ("wb", "write-back", 41_500.0, 770.0)],
        headlines: &[("readhit.rd1", "wb", Some(NONE), "rate")],
        noise: 0.03,
    },
    Made {
        id: "readhit.rd2",
        title: "RD2: reads only, all in one hot MiB",
        about: "16 KiB, 32 outstanding, on the device.",
        set: "array",
        counted: "I/Os",
        arms: &[(NONE, "no cache", 8061.0, 3970.0), ("wb", "write-back", 39_800.0, 804.0)],
        headlines: &[("readhit.rd2", "wb", Some(NONE), "rate")],
        noise: 0.04,
    },
    Made {
        id: "readhit.rd6",
        title: "RD6: half reads, all of them in one hot MiB",
        about: "16 KiB, 32 outstanding; writes never go to the hot MiB.",
        set: "array",
        counted: "I/Os",
        arms: &[(NONE, "no cache", 3391.0, 9400.0), ("wb", "write-back", 14_200.0, 2250.0)],
        headlines: &[("readhit.rd6", "wb", Some(NONE), "rate")],
        noise: 0.05,
    },
    Made {
        id: "hotspot.by-io",
        title: "80 % of the I/O on 10 % of the space",
        about: "4 KiB, 80 % reads, 64 outstanding, 8 GiB; the cache holds 30 % of it.",
        set: "7k2-raid5x3-short",
        counted: "I/Os",
        arms: &[(NONE, "no cache", 764.0, 83_000.0), ("wt", "write-through", 1640.0, 39_000.0), ("wb", "write-back", 4730.0, 13_500.0)],
        headlines: &[
            ("hotspot.wt", "wt", Some(NONE), "rate"),
            ("hotspot.wb", "wb", Some(NONE), "rate"),
            ("hotspot.wb-latency", "wb", Some(NONE), "mean_us"),
        ],
        noise: 0.08,
    },
    Made {
        id: "hotspot.by-flow",
        title: "83.3 % of the I/O on 10 % of the space",
        about: "The split that the report's flow values really gave.",
        set: "7k2-raid5x3-short",
        counted: "I/Os",
        arms: &[(NONE, "no cache", 772.0, 82_000.0), ("wt", "write-through", 1540.0, 41_000.0), ("wb", "write-back", 3610.0, 17_500.0)],
        headlines: &[("hotspot.wt", "wt", Some(NONE), "rate"), ("hotspot.wb", "wb", Some(NONE), "rate")],
        noise: 0.06,
    },
    Made {
        id: "database-skew.sysbench",
        title: "sysbench OLTP on two databases",
        about: "2 × 465 MB, 64 connections, 90 % of the queries on 30 % of the rows.",
        set: "7k2",
        counted: "queries",
        arms: &[(NONE, "no cache", 158.0, 405_000.0), ("wb", "write-back", 1103.0, 58_000.0)],
        headlines: &[
            ("database-skew.sysbench", "wb", Some(NONE), "rate"),
            ("database-skew.hits", "wb", None, "hit_ratio"),
            ("database-skew.warm-up", "wb", None, "settled_s"),
        ],
        noise: 0.05,
    },
    Made {
        id: "oltp-live.tpcc",
        title: "TPC-C on PostgreSQL, the cache attached while it runs",
        about: "4 warehouses, 16 connections, write-through; attached after 60 s.",
        set: "array",
        counted: "transactions",
        arms: &[(NONE, "no cache", 12.7, 1_260_000.0), ("wt", "write-through", 39.0, 410_000.0)],
        headlines: &[
            ("oltp-live.tpcc", "wt", Some(NONE), "rate"),
            ("oltp-live.double", "wt", None, "double_s"),
            ("oltp-live.waits", "wt", None, "under_1ms"),
        ],
        noise: 0.06,
    },
    Made {
        id: "tpcc.pcie",
        title: "TPC-C on MariaDB",
        about: "10 warehouses, 32 connections, write-back, a cache of 23 % of the data.",
        set: "array",
        counted: "transactions",
        arms: &[(NONE, "no cache", 9.98, 3_200_000.0), ("wb", "write-back", 63.1, 507_000.0)],
        headlines: &[("tpcc.pcie", "wb", Some(NONE), "rate")],
        noise: 0.07,
    },
    Made {
        id: "tpcc.sata",
        title: "TPC-C on MariaDB, the SSD a SATA drive of 2012",
        about: "As before; the SSD is limited to 4,000 writes and 20,000 reads a second.",
        set: "array",
        counted: "transactions",
        arms: &[(NONE, "no cache", 9.98, 3_200_000.0), ("wb", "write-back", 31.4, 1_010_000.0)],
        headlines: &[("tpcc.sata", "wb", Some(NONE), "rate")],
        noise: 0.07,
    },
    Made {
        id: "many-readers.five",
        title: "Five clients read a file each",
        about: "dd of 64 KiB blocks, ten rounds in the report.",
        set: "gbe-san",
        counted: "bytes",
        arms: &[(NONE, "no cache", 9.8e7, 3300.0), ("wt", "write-through", 1.21e9, 270.0)],
        headlines: &[("many-readers.five", "wt", Some(NONE), "rate"), ("many-readers.traffic", "wt", None, "kept_off")],
        noise: 0.04,
    },
    Made {
        id: "many-readers.writes",
        title: "Half of the I/O writes",
        about: "64 KiB, write-through: no gain was published, and no loss either.",
        set: "gbe-san",
        counted: "bytes",
        arms: &[(NONE, "no cache", 9.1e7, 3500.0), ("wt", "write-through", 9.0e7, 3560.0)],
        headlines: &[("many-readers.writes", "wt", Some(NONE), "rate")],
        noise: 0.04,
    },
];

/// How high each curve of the queue depths is, with its name and its mean response at depth 1, in microseconds.
const CURVES: [(&str, &str, f64, f64); 4] = [
    ("none", "no cache", 1700.0, 10_600.0),
    ("h60", "60 % hits", 4100.0, 4300.0),
    ("h80", "80 % hits", 8000.0, 2200.0),
    ("h100", "100 % hits", 36_000.0, 84.0),
];

/// The evaluation and its legs. One leg is missing, and one suite could not be run.
pub fn whole(seed: u64) -> (Evaluation, Vec<Leg>) {
    let rounds = 3;
    let mut random = Random::new(seed);
    let (mut cases, mut legs) = (Vec::new(), Vec::new());
    for made in MADE {
        let case = plan(made, rounds);
        for round in 1..=rounds {
            for arm in made.arms {
                let cached = arm.0 != NONE;
                legs.push(leg(&case, arm.0, round, (arm.2, arm.3), cached, made.noise, &mut random));
            }
        }
        cases.push(case);
    }
    let depth = depth_case(rounds);
    for round in 1..=rounds {
        for arm in &depth.arms {
            let (curve, at) = arm.point.as_ref().expect("a point");
            let (_, _, most, first_us) = *CURVES.iter().find(|made| made.1 == curve).expect("a curve");
            // As one queue before servers that are all busy at last: the rate ends at the most they do, and then only the wait grows.
            let rate = 1.0 / (1.0 / (at * 1e6 / first_us) + 1.0 / most);
            legs.push(leg(&depth, &arm.id, round, (rate, at / rate * 1e6), arm.cached, 0.04, &mut random));
        }
    }
    cases.insert(5, depth);
    legs.retain(|leg| !(leg.case == "tpcc.sata" && leg.arm == "wb" && leg.round == 3));
    for leg in legs.iter_mut().filter(|leg| leg.case == "tpcc.sata") {
        leg.notes.push("the SSD was limited by a token bucket: its rate is that of the drive, its single response times are not".into());
    }
    let mut evaluation = evaluation(cases, rounds);
    let not = |what: &str, why: &str| NotMeasured { what: what.into(), why: why.into() };
    evaluation.not_measured = vec![
        not("tpcc.vm", "virtual machines are not supported by this version"),
        not("database-skew.points", "PostgreSQL could not be installed: no network"),
        not("own", "no job file and no trace were named"),
    ];
    (evaluation, legs)
}

fn plan(made: &Made, rounds: u32) -> Case {
    Case {
        id: made.id.into(),
        title: made.title.into(),
        about: made.about.into(),
        model_set: Some(made.set.into()),
        data_bytes: 8 << 30,
        cache_bytes: (24 << 30) / 10,
        ram_bytes: 64 << 20,
        rounds,
        arms: made
            .arms
            .iter()
            .map(|(id, title, _, _)| Arm { id: (*id).into(), title: (*title).into(), cached: *id != NONE, point: None })
            .collect(),
        headlines: made
            .headlines
            .iter()
            .map(|(headline, arm, against, figure)| Measured {
                headline: (*headline).into(),
                arm: (*arm).into(),
                against: against.map(Into::into),
                figure: (*figure).into(),
                better: if figure.ends_with("_us") || figure.ends_with("_s") { Better::Lower } else { Better::Higher },
            })
            .collect(),
        counted: made.counted.into(),
        leg_s: 120.0,
        along: None,
        ceiling: None,
    }
}

fn depth_case(rounds: u32) -> Case {
    let mut arms = Vec::new();
    for (id, name, _, _) in CURVES {
        for power in 0..=8 {
            let at = 1 << power;
            arms.push(Arm {
                id: format!("{id}-{at}"),
                title: format!("{name}, depth {at}"),
                cached: id != NONE,
                point: Some((name.into(), f64::from(at))),
            });
        }
    }
    let headline =
        Measured { headline: "depth.hit".into(), arm: "h100-1".into(), against: None, figure: "mean_us".into(), better: Better::Lower };
    Case {
        id: "depth.random".into(),
        title: "Queue depths from 1 to 256".into(),
        about: "8 KiB, 70 % reads, uniform over a device of which the cache holds 60, 80 or 100 %.".into(),
        model_set: Some("array".into()),
        data_bytes: 4 << 30,
        cache_bytes: 4 << 30,
        ram_bytes: 0,
        rounds,
        arms,
        headlines: vec![headline],
        counted: "I/Os".into(),
        leg_s: 20.0,
        along: Some("queue depth".into()),
        ceiling: None,
    }
}

fn leg(case: &Case, arm: &str, round: u32, (rate, mean_us): (f64, f64), cached: bool, noise: f64, random: &mut Random) -> Leg {
    let factor = (noise * normal(random)).exp();
    let (rate, mean_us) = (rate * factor, mean_us / factor);
    let (length_s, cut_s) = if case.along.is_some() { (20, 5.0) } else { (120, if cached { 45.0 } else { 20.0 }) };
    let cold = if cached { 0.25 } else { 0.9 };
    let series = (1..=length_s)
        .map(|second| {
            let warm = 1.0 - (1.0 - cold) * (-f64::from(second) / 14.0).exp();
            Second {
                at_s: f64::from(second),
                rate: kept(rate * warm * (0.03 * normal(random)).exp()),
                mean_us: Some(kept(mean_us / warm)),
                hit_ratio: cached.then(|| kept(0.94 * warm)),
            }
        })
        .collect();
    let measured_s = f64::from(length_s) - cut_s;
    let size = if case.counted == "bytes" { 1.0 } else { 4096.0 * if case.counted == "I/Os" { 1.0 } else { 50.0 } };
    let host = rate * measured_s * size;
    let hits = (0.945 + 0.005 * normal(random)).min(0.99);
    let cache = cached.then_some(CacheFigures {
        hits_ram: (rate * measured_s * 0.2) as u64,
        hits_ssd: (rate * measured_s * (hits - 0.2)) as u64,
        misses: (rate * measured_s * (1.0 - hits)) as u64,
        host_read_bytes: (host * 0.8) as u64,
        host_written_bytes: (host * 0.2) as u64,
        ssd_written_bytes: (host * 0.26) as u64,
        backing_read_bytes: (host * 0.05) as u64,
        backing_written_bytes: (host * 0.09) as u64,
        dirty_bytes: 120 << 20,
    });
    let mut figures = BTreeMap::from([("rate".into(), kept(rate)), ("mean_us".into(), kept(mean_us))]);
    if cached && case.along.is_none() {
        let further = [("settled_s", 38.0), ("double_s", 12.0), ("under_1ms", 0.93), ("kept_off", 0.88), ("hit_ratio", hits)];
        figures.extend(further.into_iter().map(|(name, value)| (name.to_string(), kept(value * (0.01 * normal(random)).exp()))));
    }
    Leg {
        case: case.id.clone(),
        arm: arm.into(),
        round,
        began_unix_s: 1_795_376_820 + u64::from(round) * 600,
        took_s: f64::from(length_s) + 31.5,
        commands: vec![
            "hearth model array disk.img --export loop &".into(),
            format!(
                "fio --name={arm} --filename=/dev/loop7 --direct=1 --ioengine=libaio --bs=4k --iodepth=64 --rw=randrw --rwmixread=80 --random_distribution=zoned:80/10:20/90 --norandommap --randseed={round} --time_based --runtime={length_s} --output-format=json"
            ),
        ],
        figures,
        series,
        cut_s,
        cut_why: "the load says where its ramp ends".into(),
        latency: Some(latency(mean_us, cached)),
        cache,
        cpu: Cpu { wall_s: measured_s, hearth_s: measured_s * if cached { 0.62 } else { 0.08 }, machine_s: measured_s * 1.3 },
        notes: Vec::new(),
    }
}

/// Of a mean: without a cache one hump (lognormal), with it a second one of hits far below.
fn latency(mean_us: f64, cached: bool) -> Latency {
    let hump = |at: f64, middle: f64| 1.0 / (1.0 + (-(at / middle).ln() * 3.0).exp());
    let share = |at: f64| if cached { 0.94 * hump(at, mean_us * 0.2) + 0.06 * hump(at, mean_us * 9.0) } else { hump(at, mean_us * 0.85) };
    let cdf: Vec<(f64, f64)> =
        (0..=120).map(|step| mean_us * 10f64.powf(f64::from(step - 50) / 30.0)).map(|at| (kept(at), kept(share(at)))).collect();
    let at = |percent: f64| cdf.iter().find(|point| point.1 * 100.0 >= percent).or(cdf.last()).map_or(0.0, |point| point.0);
    let percentiles_us =
        ["50", "90", "95", "99", "99.9"].into_iter().map(|name| (name.to_string(), at(name.parse().unwrap_or(50.0)))).collect();
    Latency { of: "reads and writes".into(), mean_us: kept(mean_us), percentiles_us, cdf }
}
