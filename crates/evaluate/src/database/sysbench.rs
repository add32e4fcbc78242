//! sysbench 1.0 on MariaDB: reads and writes of which so many per cent go to so many per cent of the rows, on one or more databases at once.

use super::driven::distribution;
use super::load::{Beside, Told, number_after, warmed, watch};
use super::mariadb::MariaDb;
use super::{Driven, LONG};
use crate::result::Second;
use crate::stage::{SHORT, Stage};
use crate::trouble::Trouble;
use std::time::Instant;

/// What is counted.
pub const COUNTED: &str = "queries";
/// The transactions whose response times are told: those of the reading and writing script have 20 queries each.
const OF: &str = "transactions";

/// Which rows are asked for more often.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hot {
    /// So many per cent of the rows, in the middle of the key space …
    pub rows_percent: u32,
    /// … are drawn so many per cent of the time,
    pub drawn_percent: u32,
    /// if numbers are drawn once (1). The tool's own 12, which sum up to a normal distribution, make 99.3 of 90 per cent.
    pub iterations: u32,
}

impl Hot {
    /// "30 per cent of the rows 90 per cent of the time", as the published test ran it: with the tool's own 12 iterations.
    pub const AS_PUBLISHED: Hot = Hot { rows_percent: 30, drawn_percent: 90, iterations: 12 };
    /// The same words taken literally.
    pub const LITERAL: Hot = Hot { rows_percent: 30, drawn_percent: 90, iterations: 1 };
}

/// What a transaction does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Script {
    /// 14 reads, 4 writes, begin and commit.
    ReadWrite,
    /// The 14 reads.
    ReadOnly,
    /// One row by its key.
    PointReads,
}

impl Script {
    const fn name(self) -> &'static str {
        match self {
            Script::ReadWrite => "oltp_read_write",
            Script::ReadOnly => "oltp_read_only",
            Script::PointReads => "oltp_point_select",
        }
    }
}

/// A load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sysbench {
    /// What is done.
    pub script: Script,
    /// Databases, `sb1` and so on, each driven by a process of its own.
    pub databases: u32,
    /// Rows of the one table that each has: about 233 bytes each.
    pub rows: u64,
    /// Connections to each.
    pub threads: u32,
    /// Which rows.
    pub hot: Hot,
}

impl Sysbench {
    /// The names of its databases.
    pub fn names(&self) -> Vec<String> {
        (1..=self.databases).map(|number| format!("sb{number}")).collect()
    }

    fn words(&self, socket: &str, database: &str, action: &[String]) -> Vec<String> {
        let mut words = vec!["sysbench".to_owned(), self.script.name().into(), "--db-driver=mysql".into(), "--mysql-user=root".into()];
        words.extend([format!("--mysql-socket={socket}"), format!("--mysql-db={database}")]);
        words.extend(["--tables=1".into(), format!("--table-size={}", self.rows)]);
        words.extend(action.iter().cloned());
        words
    }

    /// Makes its databases and fills them.
    ///
    /// # Errors
    /// As of [`Stage::run`].
    pub fn prepare(&self, stage: &Stage, server: &MariaDb) -> Result<(), Trouble> {
        for database in self.names() {
            server.run("", &format!("create database {database}"), SHORT)?;
            stage.run(&self.words(server.socket(), &database, &["--threads=1".into(), "prepare".into()]), LONG)?;
            server.analyze(&database)?;
        }
        Ok(())
    }

    /// Runs `warm_seconds` that do not count, if any, and `seconds` that do.
    ///
    /// # Errors
    /// If it fails, `beside` fails, or the user wants an end.
    pub fn drive(
        &self,
        stage: &Stage,
        server: &MariaDb,
        warm_seconds: u64,
        seconds: u64,
        beside: &mut Beside<'_>,
    ) -> Result<Driven, Trouble> {
        warmed(warm_seconds, seconds, beside, &mut |seconds, began, beside| self.run(stage, server, seconds, began, beside))
    }

    fn run(&self, stage: &Stage, server: &MariaDb, seconds: u64, began: Instant, beside: &mut Beside<'_>) -> Result<Driven, Trouble> {
        let action = [
            format!("--threads={}", self.threads),
            format!("--time={seconds}"),
            "--report-interval=1".into(),
            "--histogram=on".into(),
            "--rand-type=special".into(),
            format!("--rand-spec-pct={}", self.hot.rows_percent),
            format!("--rand-spec-res={}", self.hot.drawn_percent),
            format!("--rand-spec-iter={}", self.hot.iterations),
            "run".into(),
        ];
        let programs: Vec<_> = self
            .names()
            .into_iter()
            .map(|database| (format!("sysbench-{database}"), self.words(server.socket(), &database, &action)))
            .collect();
        driven(&watch(stage, &programs, &[], seconds, began, beside)?)
    }
}

/// What processes that ran at once said.
fn driven(told: &[Told]) -> Result<Driven, Trouble> {
    let mut runs = Vec::new();
    let mut met = Vec::new();
    for each in told {
        let text = each.whole_text("sysbench")?;
        runs.push(one(&text).ok_or_else(|| Trouble::Failed(format!("cannot understand what sysbench said: {}", text.trim())))?);
        met.extend(histogram(&text));
    }
    let mut all = Driven::together(runs);
    // Buckets are 1.6 % wide; the mean is told exactly.
    all.latency =
        distribution(OF, met).map(|latency| crate::result::Latency { mean_us: all.mean_us.unwrap_or(latency.mean_us), ..latency });
    Ok(all)
}

/// One process: seconds, and the totals at its end.
fn one(text: &str) -> Option<Driven> {
    // [ 1s ] thds: 4 tps: 356.41 qps: 7204.02 (r/w/o: …) lat (ms,95%): 66.84 err/s: 0.00 reconn/s: 0.00
    let seconds = text.lines().filter(|line| line.starts_with("[ "));
    let series = seconds.filter_map(|line| {
        Some(Second { at_s: number_after(line, "[")?, rate: number_after(line, "qps:")?, mean_us: None, hit_ratio: None })
    });
    let field = |name: &str| text.lines().map(str::trim).find_map(|line| number_after(line.strip_prefix(name)?, ""));
    let (queries, total_s) = (field("queries:")?, field("total time:")?);
    let mut notes = Vec::new();
    for (name, what) in [("ignored errors:", "transactions were rolled back and begun again"), ("reconnects:", "connections were lost")] {
        if let Some(count) = field(name).filter(|count| *count > 0.0) {
            notes.push(format!("{count} {what}"));
        }
    }
    Some(Driven {
        series: series.collect(),
        rate: queries / total_s,
        mean_us: Some(field("avg:")? * 1e3),
        counted: COUNTED,
        notes,
        ..Driven::default()
    })
}

/// `       2.106 |****************                         27`: milliseconds, and how many transactions took them.
fn histogram(text: &str) -> Vec<(f64, u64)> {
    let rows = text.lines().filter_map(|line| line.split_once(" |"));
    rows.filter_map(|(ms, rest)| Some((ms.trim().parse::<f64>().ok()? * 1e3, rest.split_whitespace().last()?.parse().ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A real run of 6 s with 4 threads on MariaDB 10.11.
    const SAMPLE: &str = include_str!("samples/sysbench.txt");

    fn told(text: &str) -> Told {
        Told { lines: text.lines().map(|line| (0.0, line.to_owned())).collect(), whole: true }
    }

    #[test]
    fn a_run_is_told_second_by_second_and_as_a_distribution() {
        let found = driven(&[told(SAMPLE)]).expect("it is understood");
        assert_eq!(found.series.len(), 5);
        assert_eq!(found.series[2], Second { at_s: 3.0, rate: 14151.97, mean_us: None, hit_ratio: None });
        assert_eq!(found.rate, 68340.0 / 6.0042);
        assert_eq!(found.mean_us, Some(7020.0));
        let latency = found.latency.expect("it has a histogram");
        assert_eq!((latency.of.as_str(), latency.mean_us), (OF, 7020.0));
        // As it tells itself.
        assert_eq!(latency.percentiles_us["99"], 44_173.0);
        assert_eq!(latency.cdf.last(), Some(&(112_670.0, 1.0)));
        assert_eq!(histogram(SAMPLE).iter().map(|(_, count)| count).sum::<u64>(), 3417);
        assert!(found.notes.is_empty());
    }

    #[test]
    fn two_at_once_are_one() {
        let one = driven(&[told(SAMPLE)]).expect("it is understood");
        let two = driven(&[told(SAMPLE), told(SAMPLE)]).expect("it is understood");
        assert_eq!(two.rate, 2.0 * one.rate);
        assert_eq!(two.series[0].rate, 2.0 * one.series[0].rate);
        assert_eq!(two.latency, one.latency);
    }

    #[test]
    fn errors_are_noted_and_half_a_run_is_refused() {
        let text = SAMPLE.replace("ignored errors:                      0 ", "ignored errors:                      7 ");
        assert_eq!(driven(&[told(&text)]).expect("it is understood").notes, ["7 transactions were rolled back and begun again"]);
        let half = &SAMPLE[..SAMPLE.find("SQL statistics").expect("it has them")];
        assert!(driven(&[told(half)]).is_err());
        assert!(driven(&[Told { whole: false, ..told(SAMPLE) }]).expect_err("it was ended").to_string().contains("did not end"));
    }
}
