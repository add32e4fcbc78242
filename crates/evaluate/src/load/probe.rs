//! A short look at a device: is it the disk that it is said to be? Comparing a cache with a baseline that is none would make every figure worthless.

use super::{Content, Length, Load, Loaded, Pace, generator, unwatched};
use crate::pattern::{Pattern, Places};
use crate::trouble::Trouble;
use device::Access;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

/// How long each of the three looks takes: at depth 1 a 7,200 rpm disk answers 78 reads a second, so the mean of three is within a twentieth.
const LOOK_S: f64 = 3.0;

/// From this share of processor time in use on, it is taken for what makes a modelled disk slow. Chosen: with compilers running beside it was 1.
const BUSY: f64 = 0.8;

/// What a device did.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Probe {
    /// Random reads of 4 KiB, one at a time: a second.
    pub qd1_iops: f64,
    /// Their mean time in microseconds.
    pub qd1_mean_us: f64,
    /// The same, 32 at a time: a second.
    pub qd32_iops: f64,
    /// Reads of 1 MiB one behind the other from the begin on, one at a time: bytes a second.
    pub sequential_bytes_s: f64,
    /// Share of the machine's processor time that was in use meanwhile, by whatever, 0 to 1: with little left, a disk that is a program is late.
    pub machine_busy: f64,
}

impl Probe {
    /// Looks at a device: nine seconds, reads only, over all of its space. The places are new ones each time, since an array's read cache keeps those of
    /// the last look.
    ///
    /// # Errors
    /// As of [`generator::run`].
    pub fn of(path: &Path, stop: &AtomicBool) -> Result<Probe, Trouble> {
        Probe::with_looks(path, LOOK_S, stop)
    }

    fn with_looks(path: &Path, look_s: f64, stop: &AtomicBool) -> Result<Probe, Trouble> {
        let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64);
        let space_bytes = generator::open(path, Access::ReadOnly)?.geometry().size_bytes;
        let look = |places, block_bytes, depth, seed| -> Result<Loaded, Trouble> {
            let pattern = Pattern { block_bytes, space_bytes, reads_percent: 100, places };
            let (pace, length) = (Pace::Closed { depth }, Length::seconds(look_s));
            let load = Load { pattern, pace, length, content: Content::default(), seed, verify: false };
            generator::run(path, &load, stop, &mut unwatched)
        };
        let before = processors();
        let one = look(Places::Uniform, 4096, 1, seed)?;
        let many = look(Places::Uniform, 4096, 32, !seed)?;
        let sequential = look(Places::Sequential, 1 << 20, 1, seed)?;
        let (busy, all) = processors();
        let machine_busy = busy.saturating_sub(before.0) as f64 / all.saturating_sub(before.1).max(1) as f64;
        Ok(Probe {
            machine_busy,
            qd1_iops: one.rate,
            qd1_mean_us: one.latency.mean_us,
            qd32_iops: many.rate,
            sequential_bytes_s: sequential.bytes_per_s,
        })
    }
}

/// Ticks of all processors: in use (time that other machines of the same host took is not ours either), and all; proc_stat(5). Zeroes if it is not told.
fn processors() -> (u64, u64) {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks = stat.lines().next().unwrap_or_default().split_whitespace().skip(1).take(8);
    let ticks: Vec<u64> = ticks.filter_map(|word| word.parse().ok()).collect();
    let all = ticks.iter().sum();
    // user nice system IDLE IOWAIT irq softirq steal
    (all - ticks.iter().skip(3).take(2).sum::<u64>(), all)
}

/// What a device of a model set shows, from the least to the most.
struct Range {
    set: &'static str,
    qd1_iops: (f64, f64),
    qd32_iops: (f64, f64),
    sequential_bytes_s: (f64, f64),
}

/// Around the figures of docs/disk-model.md, "What the sets do", and what was measured on files of 1 and 2 GiB through FUSE and a loop device, four looks at
/// each set, on two processors with a load of 7 to 11: `7k2` 52 to 77, 177 to 182 and 96 to 117 MB/s; `15k` 93 to 166, 403 to 424, 117 to 139;
/// `7k2-raid5x3-short` 93 to 115, 707 to 755, 125 to 183; `array` 67 to 75, 738 to 797, 297 to 454; `gbe-san` 64 to 71, 747 to 788, 82 to 91. Two of the
/// twenty (52 and 93, reads one at a time that waited for a processor) lie outside, and with a load of 12 most do: such a baseline is to be refused, since a
/// cache would look better than it is.
const RANGES: [Range; 7] = [
    Range { set: "7k2", qd1_iops: (55.0, 95.0), qd32_iops: (120.0, 220.0), sequential_bytes_s: (45e6, 160e6) },
    Range { set: "7k2-wce", qd1_iops: (55.0, 95.0), qd32_iops: (120.0, 220.0), sequential_bytes_s: (45e6, 160e6) },
    Range { set: "15k", qd1_iops: (110.0, 215.0), qd32_iops: (280.0, 510.0), sequential_bytes_s: (70e6, 210e6) },
    Range { set: "7k2-raid5x3-short", qd1_iops: (85.0, 160.0), qd32_iops: (480.0, 920.0), sequential_bytes_s: (80e6, 320e6) },
    Range { set: "array", qd1_iops: (50.0, 100.0), qd32_iops: (480.0, 1000.0), sequential_bytes_s: (100e6, 1000e6) },
    Range { set: "gbe-san", qd1_iops: (50.0, 100.0), qd32_iops: (480.0, 1000.0), sequential_bytes_s: (35e6, 112e6) },
    Range { set: "sata-ssd-2012", qd1_iops: (1500.0, 8100.0), qd32_iops: (8000.0, 20_500.0), sequential_bytes_s: (100e6, 275e6) },
];

/// Whether a device is what its model set says.
///
/// # Errors
/// Why not: a sentence that says what is to be looked at, without a full stop.
pub fn plausible(model_set: &str, probe: &Probe) -> Result<(), String> {
    let Some(range) = RANGES.iter().find(|range| range.set == model_set) else {
        return Err(format!("nothing is known of what a device of the set \"{model_set}\" shows; use one of docs/disk-model.md"));
    };
    let looks = [
        ("random reads a second, one at a time", probe.qd1_iops, range.qd1_iops, 1.0),
        ("random reads a second, 32 at a time", probe.qd32_iops, range.qd32_iops, 1.0),
        ("MB/s of sequential reads", probe.sequential_bytes_s, range.sequential_bytes_s, 1e-6),
    ];
    let far = looks.iter().find(|(_, found, (least, most), _)| !(least..=most).contains(&found));
    let Some((what, found, (least, most), unit)) = far else { return Ok(()) };
    let why = if found > most {
        "something else answers for it: a page cache (a file without direct I/O), or holes in the image, which must be full of data"
    } else if probe.machine_busy > BUSY {
        "other programs keep the processors busy; wait until they have ended and try again"
    } else {
        "something else keeps it busy: another program, or earlier writes that are still being written back; wait and try again"
    };
    let (found, least, most) = (found * unit, least * unit, most * unit);
    Err(format!("the device does {found:.0} {what}, and one of the set {model_set} does {least:.0} to {most:.0}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::fill::fill;
    use device::model::ModelSet;

    fn probe(qd1_iops: f64, qd32_iops: f64, sequential_mb_s: f64) -> Probe {
        Probe { qd1_iops, qd1_mean_us: 1e6 / qd1_iops, qd32_iops, sequential_bytes_s: sequential_mb_s * 1e6, machine_busy: 0.3 }
    }

    #[test]
    fn every_model_set_is_known_and_its_own_figures_are_plausible() {
        // docs/disk-model.md, "What the sets do" (and below it what is told of the sequential rate at the outer edge).
        let figures = [
            ("7k2", probe(78.0, 185.0, 131.0)),
            ("7k2-wce", probe(78.0, 185.0, 97.0)),
            ("15k", probe(181.0, 435.0, 173.0)),
            ("7k2-raid5x3-short", probe(133.0, 777.0, 226.0)),
            ("array", probe(76.0, 824.0, 643.0)),
            ("gbe-san", probe(75.0, 821.0, 92.0)),
            ("sata-ssd-2012", probe(8000.0, 20_000.0, 265.0)),
        ];
        for (set, figures) in &figures {
            assert!(ModelSet::from_name(set).is_some(), "{set} is a set");
            assert_eq!(plausible(set, figures), Ok(()), "{set}");
        }
        assert_eq!(RANGES.len(), figures.len());
        assert!(plausible("floppy", &figures[0].1).is_err());
    }

    #[test]
    fn a_device_that_is_something_else_is_told_why() {
        let why = |set, probe| plausible(set, &probe).expect_err("it is not plausible");
        assert!(why("7k2", probe(20_000.0, 90_000.0, 2000.0)).contains("a page cache"));
        assert!(
            why("7k2", probe(78.0, 185.0, 2000.0)).contains("does 2000 MB/s of sequential reads, and one of the set 7k2 does 45 to 160")
        );
        assert!(why("7k2", probe(20.0, 90.0, 60.0)).contains("keeps it busy"));
        assert!(why("7k2", Probe { machine_busy: 0.97, ..probe(20.0, 90.0, 60.0) }).contains("keep the processors busy"));
        assert!(why("7k2", Probe { machine_busy: 0.97, ..probe(20_000.0, 90.0, 60.0) }).contains("a page cache"));
        // A disk is not the other one.
        assert!(plausible("7k2", &probe(181.0, 435.0, 173.0)).is_err());
        assert!(plausible("15k", &probe(76.0, 824.0, 643.0)).is_err());
    }

    #[test]
    fn a_file_is_looked_at_and_is_no_disk() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        match fill(&path, 64 << 20, Content::Incompressible, 1, &AtomicBool::new(false), &mut |_| {}) {
            Err(Trouble::Failed(why)) if why.contains("direct") => return,
            result => result.expect("it is filled"),
        }
        assert_eq!(Probe::of(&path, &AtomicBool::new(true)), Err(Trouble::Stopped));
        let probe = Probe::with_looks(&path, 0.3, &AtomicBool::new(false)).expect("it can be read");
        assert!(probe.qd1_iops > 0.0 && probe.qd32_iops > 0.0 && probe.sequential_bytes_s > 0.0);
        assert!((0.0..=1.0).contains(&probe.machine_busy), "{probe:?}");
        assert!((probe.qd1_mean_us * probe.qd1_iops / 1e6 - 1.0).abs() < 0.5, "one at a time: {probe:?}");
    }
}
