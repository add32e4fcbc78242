//! fio as a maker of load: its command line from a [`Load`], and its output as a [`Loaded`].
//!
//! Times are fio's completion latencies (`clat`), in the totals and in the seconds alike. Totals come from the bins of `--output-format=json+`, seconds
//! from its histogram log, whose 1856 bins are those of [`super::histogram`]; it tells no difference between times above 17 s.

use super::histogram::{Histogram, bucket};
use super::loaded::{Loaded, Tally};
use super::{Content, Load, Pace};
use crate::pattern::Places;
use crate::stage::Stage;
use crate::trouble::Trouble;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// What fio may need beside the time of the load itself, and what a load that has no time may take.
const PATIENCE: Duration = Duration::from_secs(120);
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// How fio submits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// Linux AIO.
    Libaio,
    /// io_uring.
    IoUring,
}

/// The command that plays a load on a device or file with fio 3.33; its files are `NAME.json` and `NAME_clat_hist.1.log` where it runs.
///
/// # Errors
/// [`Trouble::Usage`] for what fio cannot be told, or does otherwise than the load asks for: hit areas that differ between reads and writes, a
/// sequential mix (fio moves reads and writes apart), open loops (it counts from the submission), content that is not random (its compressible one is
/// zeroes), comparing what is read.
pub fn words(name: &str, path: &Path, load: &Load, engine: Engine) -> Result<Vec<String>, Trouble> {
    let cannot = |what: &str| Err(Trouble::Usage(format!("fio cannot play this load: {what}; hearth's own generator can")));
    let Pace::Closed { depth } = load.pace else { return cannot("an open loop") };
    let pattern = &load.pattern;
    if load.content != Content::Incompressible && pattern.reads_percent < 100 {
        return cannot("content that is not random");
    }
    if load.verify {
        return cannot("reads that are compared");
    }
    if load.length.time.is_none() && load.length.requests.is_none() {
        return Err(Trouble::Usage("this load cannot be played: it has no end".into()));
    }
    let sequential = pattern.places == Places::Sequential;
    let kind = match (sequential, pattern.reads_percent) {
        (true, 100) => "read",
        (true, 0) => "write",
        (true, _) => return cannot("a sequential mix"),
        (false, 100) => "randread",
        (false, 0) => "randwrite",
        (false, _) => "randrw",
    };
    let mut words = vec!["fio".to_owned()];
    let mut say = |key: &str, value: &dyn std::fmt::Display| words.push(format!("--{key}={value}"));
    say("name", &name);
    say("filename", &path.display());
    say("size", &(pattern.space_bytes / pattern.block_bytes * pattern.block_bytes));
    say("rw", &kind);
    if kind == "randrw" {
        say("rwmixread", &pattern.reads_percent);
    }
    say("bs", &pattern.block_bytes);
    if !sequential {
        say("norandommap", &1);
        say("random_distribution", &distribution(load)?);
    }
    say("ioengine", &if engine == Engine::Libaio { "libaio" } else { "io_uring" });
    say("iodepth", &depth);
    say("direct", &1);
    say("randrepeat", &0);
    say("randseed", &load.seed);
    say("refill_buffers", &1);
    say("allow_file_create", &0);
    match load.length.requests {
        Some(requests) => say("io_size", &(requests * pattern.block_bytes)),
        None => say("time_based", &1),
    }
    if let Some(time) = load.length.time {
        say("runtime", &format!("{}ms", time.as_millis()));
    }
    say("output-format", &"json+");
    say("output", &format!("{name}.json"));
    say("write_hist_log", &name);
    say("log_hist_msec", &1000);
    Ok(words)
}

/// fio's name of the distribution of places.
fn distribution(load: &Load) -> Result<String, Trouble> {
    let pattern = &load.pattern;
    let zones = match &pattern.places {
        Places::Uniform | Places::Sequential => return Ok("random".into()),
        Places::Zipf { theta } => return Ok(format!("zipf:{theta}")),
        Places::Zones(zones) => return Ok(format!("zoned:{}", zoned(zones.iter().map(|(io, space)| (*io, space.to_string()))))),
        Places::HitArea { area_bytes, reads_percent, writes_percent } => {
            let hits = match pattern.reads_percent {
                100 => *reads_percent,
                0 => *writes_percent,
                _ if reads_percent == writes_percent => *reads_percent,
                _ => {
                    let why = "fio cannot play this load: hit areas that differ between reads and writes; hearth's own generator can";
                    return Err(Trouble::Usage(why.into()));
                }
            };
            [(hits, area_bytes.to_string()), (100 - hits, (pattern.space_bytes - area_bytes).to_string())]
        }
    };
    Ok(format!("zoned_abs:{}", zoned(zones.into_iter())))
}

fn zoned(zones: impl Iterator<Item = (u32, String)>) -> String {
    zones.map(|(io, space)| format!("{io}/{space}")).collect::<Vec<_>>().join(":")
}

/// Plays a load with fio on a stage, where its files stay.
///
/// # Errors
/// As of [`words`] and [`Stage::run`], or if its output cannot be understood.
pub fn run(stage: &Stage, name: &str, path: &Path, load: &Load, engine: Engine) -> Result<Loaded, Trouble> {
    let words = words(name, path, load, engine)?;
    let limit = load.length.time.map_or(LONGEST, |time| time + PATIENCE);
    stage.run(&words, limit)?;
    let read = |file: String| {
        let path = stage.path(&file);
        std::fs::read_to_string(&path).map_err(|error| Trouble::io("read", &path, &error))
    };
    parse(&read(format!("{name}.json"))?, &read(format!("{name}_clat_hist.1.log"))?)
}

/// fio's output, as far as it is read.
#[derive(Deserialize)]
struct Output {
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    error: i32,
    read: Direction,
    write: Direction,
}

#[derive(Deserialize)]
struct Direction {
    io_bytes: u64,
    /// In milliseconds.
    runtime: u64,
    total_ios: u64,
    clat_ns: Times,
}

#[derive(Deserialize)]
struct Times {
    mean: f64,
    /// Counts by a time in nanoseconds.
    #[serde(default)]
    bins: BTreeMap<u64, u64>,
}

/// What a run of fio has brought, from its JSON (`json+`) and its histogram log of one second (which may be empty). Several jobs count as one.
///
/// # Errors
/// If it is not fio's, or tells of an error.
pub fn parse(json: &str, histogram_log: &str) -> Result<Loaded, Trouble> {
    // Warnings may stand before it.
    let begin = json.find('{').unwrap_or(0);
    let output: Output =
        serde_json::from_str(&json[begin..]).map_err(|error| Trouble::Failed(format!("cannot understand the output of fio: {error}")))?;
    if let Some(job) = output.jobs.iter().find(|job| job.error != 0) {
        return Err(Trouble::failed(format!("fio reports the error {}", std::io::Error::from_raw_os_error(job.error)), "run it by hand"));
    }
    let mut total = Tally::default();
    let mut wall_ms = 0;
    for job in &output.jobs {
        for (direction, histogram, bytes) in
            [(&job.read, &mut total.reads, &mut total.read_bytes), (&job.write, &mut total.writes, &mut total.written_bytes)]
        {
            histogram.merge(&direction.histogram());
            *bytes += direction.io_bytes;
            wall_ms = wall_ms.max(direction.runtime);
        }
    }
    let wall_s = wall_ms as f64 / 1000.0;
    total.span_s = (0.0, wall_s);
    let bytes_of = |direction: fn(&Job) -> &Direction| {
        let all = output.jobs.iter().map(direction);
        let (bytes, ios) = all.fold((0, 0), |sums, one| (sums.0 + one.io_bytes, sums.1 + one.total_ios));
        if ios == 0 { 0.0 } else { bytes as f64 / ios as f64 }
    };
    let mut tallies = seconds(histogram_log, [bytes_of(|job| &job.read), bytes_of(|job| &job.write)])?;
    add_rest(&mut tallies, &total);
    Ok(Loaded::with_totals(total, wall_s, tallies))
}

impl Direction {
    fn histogram(&self) -> Histogram {
        let mut histogram = Histogram::default();
        self.clat_ns.bins.iter().for_each(|(ns, count)| histogram.record_bucket(bucket(*ns), *count));
        histogram.with_mean_ns(self.clat_ns.mean)
    }
}

/// The lines of a histogram log: end in milliseconds, direction (0 reads, 1 writes), block size, counts by bin.
fn seconds(log: &str, bytes: [f64; 2]) -> Result<Vec<Tally>, Trouble> {
    let mut tallies: Vec<Tally> = Vec::new();
    for line in log.lines().filter(|line| !line.trim().is_empty()) {
        let wrong = || Trouble::Failed(format!("cannot understand this line of fio's histogram log: {line:.60}"));
        let mut fields = line.split(',').map(|field| field.trim().parse::<u64>());
        let mut next = || fields.next().and_then(Result::ok).ok_or_else(wrong);
        let (end_ms, direction, _) = (next()?, next()?, next()?);
        // They end a few milliseconds late, and later where nothing ended at the right time.
        let second = ((end_ms + 500) / 1000).max(1) as usize - 1;
        while tallies.len() <= second {
            let from_s = tallies.len() as f64;
            tallies.push(Tally { span_s: (from_s, from_s + 1.0), ..Tally::default() });
        }
        let mut histogram = Histogram::default();
        for (bin, count) in fields.enumerate() {
            histogram.record_bucket(bin, count.map_err(|_| wrong())?);
        }
        let tally = &mut tallies[second];
        let bytes = (histogram.count() as f64 * bytes[usize::from(direction == 1)]) as u64;
        match direction {
            0 => (tally.reads.merge(&histogram), tally.read_bytes += bytes),
            1 => (tally.writes.merge(&histogram), tally.written_bytes += bytes),
            _ => continue,
        };
    }
    Ok(tallies)
}

/// fio logs no last second that is not a whole one: it is what the totals have more than the log.
fn add_rest(tallies: &mut Vec<Tally>, total: &Tally) {
    let mut logged = Tally::default();
    tallies.iter().for_each(|tally| logged.merge(tally));
    let from_s = tallies.last().map_or(0.0, |last| last.span_s.1);
    if total.span_s.1 > from_s + 0.05 {
        tallies.push(Tally {
            span_s: (from_s, total.span_s.1),
            reads: total.reads.since(&logged.reads),
            writes: total.writes.since(&logged.writes),
            read_bytes: total.read_bytes.saturating_sub(logged.read_bytes),
            written_bytes: total.written_bytes.saturating_sub(logged.written_bytes),
        });
    }
}

#[cfg(test)]
mod tests;
