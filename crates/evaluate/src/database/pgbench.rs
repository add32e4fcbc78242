//! pgbench on PostgreSQL: point reads with hot rows, and mixes of its built-in transactions.

use super::driven::distribution;
use super::load::{Beside, number_after, warmed, watch};
use super::postgres::Postgres;
use super::{Driven, LONG};
use crate::result::Second;
use crate::stage::{SHORT, Stage};
use crate::trouble::Trouble;
use std::time::Instant;

/// What is counted.
pub const COUNTED: &str = "transactions";
/// Rows of the largest table for each unit of scale.
const ROWS: u64 = 100_000;

/// Which transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mix {
    /// One row by its key; so many per cent of the rows are asked for so many per cent of the time.
    HotPoints {
        /// The hot rows, first in the table.
        rows_percent: u64,
        /// How often one of them is asked for.
        drawn_percent: u64,
    },
    /// Reads of one row, and the transactions of TPC-B, by weight. 77 : 23 is what TPC-E has of reading and writing ones.
    ReadsAndWrites {
        /// Of `select-only`.
        reads: u32,
        /// Of `tpcb-like`.
        writes: u32,
    },
}

/// A load.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Pgbench {
    /// What is done.
    pub mix: Mix,
    /// Hundred thousands of rows: about 15 MB each.
    pub scale: u64,
    /// Connections.
    pub clients: u32,
    /// The share of the transactions whose times are told, 0 to 1.
    pub sampled: f64,
}

/// The database it is in.
pub const DATABASE: &str = "bench";

impl Pgbench {
    fn words(&self, server: &Postgres, action: &[String]) -> Vec<String> {
        let mut words = vec![crate::tools::program_of(&["pgbench"]), "-h".into(), server.host(), "-p".into(), server.port().to_string()];
        words.extend(["-U".into(), "postgres".into()]);
        words.extend(action.iter().cloned());
        words.push(DATABASE.into());
        words
    }

    /// Makes its database and fills it.
    ///
    /// # Errors
    /// As of [`Stage::run`].
    pub fn prepare(&self, stage: &Stage, server: &Postgres) -> Result<(), Trouble> {
        server.run("postgres", &format!("create database {DATABASE}"), SHORT)?;
        stage.run(&self.words(server, &["-q".into(), "-i".into(), "-s".into(), self.scale.to_string()]), LONG)?;
        server.settle(DATABASE)
    }

    /// Runs `warm_seconds` that do not count, if any, and `seconds` that do.
    ///
    /// # Errors
    /// If it fails, `beside` fails, or the user wants an end.
    pub fn drive(
        &self,
        stage: &Stage,
        server: &Postgres,
        warm_seconds: u64,
        seconds: u64,
        beside: &mut Beside<'_>,
    ) -> Result<Driven, Trouble> {
        warmed(warm_seconds, seconds, beside, &mut |seconds, began, beside| self.run(stage, server, seconds, began, beside))
    }

    fn run(&self, stage: &Stage, server: &Postgres, seconds: u64, began: Instant, beside: &mut Beside<'_>) -> Result<Driven, Trouble> {
        let logs = stage.path("pgbench-log");
        // Of a run that was cut off.
        let _ = std::fs::remove_dir_all(&logs);
        std::fs::create_dir_all(&logs).map_err(|error| Trouble::io("make", &logs, &error))?;
        let mut action: Vec<String> = ["-n", "--progress=1", "--log"].map(str::to_owned).to_vec();
        action.push(format!("--log-prefix={}", logs.join("log").display()));
        action.push(format!("--sampling-rate={}", self.sampled));
        action.extend(["-c".into(), self.clients.to_string(), "-j".into(), "2".into(), "-T".into(), seconds.to_string()]);
        action.extend(self.mix_words(stage)?);
        let told = watch(stage, &[("pgbench".into(), self.words(server, &action))], &[], seconds, began, beside)?;
        let text = told[0].whole_text("pgbench")?;
        let mut driven = one(&text).ok_or_else(|| Trouble::Failed(format!("cannot understand what pgbench said: {}", text.trim())))?;
        let mut samples = Vec::new();
        for entry in std::fs::read_dir(&logs).map_err(|error| Trouble::io("read", &logs, &error))?.flatten() {
            samples.extend(sampled(&std::fs::read_to_string(entry.path()).map_err(|error| Trouble::io("read", &entry.path(), &error))?));
        }
        std::fs::remove_dir_all(&logs).map_err(|error| Trouble::io("remove", &logs, &error))?;
        let of =
            |script: Option<u32>| samples.iter().filter(move |sample| script.is_none_or(|one| one == sample.1)).map(|sample| (sample.0, 1));
        driven.latency = distribution("transactions", of(None).collect());
        driven.reads = match self.mix {
            Mix::HotPoints { .. } => None,
            Mix::ReadsAndWrites { .. } => distribution("reads", of(Some(0)).collect()),
        };
        Ok(driven)
    }

    /// The words that choose the transactions; a script of ours is written for it.
    fn mix_words(&self, stage: &Stage) -> Result<Vec<String>, Trouble> {
        Ok(match self.mix {
            Mix::ReadsAndWrites { reads, writes } => {
                ["-b".into(), format!("select-only@{reads}"), "-b".into(), format!("tpcb-like@{writes}")].to_vec()
            }
            Mix::HotPoints { rows_percent, drawn_percent } => {
                let script = stage.path("hot.sql");
                let text = hot_script(self.scale * ROWS, rows_percent, drawn_percent);
                std::fs::write(&script, &text).map_err(|error| Trouble::io("write", &script, &error))?;
                stage.say(format!("cat > {} <<'END'\n{text}END", script.display()));
                vec!["-f".into(), script.display().to_string()]
            }
        })
    }
}

/// Hot rows are the first ones: they lie together in the table, as rows of recent use do.
fn hot_script(rows: u64, rows_percent: u64, drawn_percent: u64) -> String {
    let hot = rows * rows_percent / 100;
    format!(
        "\\set p random(1, 100)\n\\if :p <= {drawn_percent}\n\\set aid random(1, {hot})\n\\else\n\\set aid random({}, {rows})\n\\endif\n\
         SELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n",
        hot + 1
    )
}

/// What it says: seconds, and the totals at its end.
fn one(text: &str) -> Option<Driven> {
    // progress: 1.0 s, 2502.5 tps, lat 1.526 ms stddev 4.254, 0 failed
    let seconds = text.lines().filter_map(|line| line.strip_prefix("progress: "));
    let series = seconds.filter_map(|line| {
        let mut fields = line.split(", ");
        let at_s = number_after(fields.next()?, "")?;
        let rate = number_after(fields.next()?, "")?;
        let mean_us = fields.next().and_then(|field| number_after(field, "lat")).filter(|_| rate > 0.0).map(|ms| ms * 1e3);
        Some(Second { at_s, rate, mean_us, hit_ratio: None })
    });
    let field = |name: &str| text.lines().find_map(|line| number_after(line.strip_prefix(name)?, ""));
    let mut notes = Vec::new();
    if let Some(count) = field("number of failed transactions: ").filter(|count| *count > 0.0) {
        notes.push(format!("{count} transactions failed"));
    }
    if text.contains("client") && text.contains("aborted") {
        let line = text.lines().find(|line| line.contains("aborted")).unwrap_or_default();
        notes.push(format!("connections gave up: {}", line.trim()));
    }
    Some(Driven {
        series: series.collect(),
        rate: field("tps = ")?,
        mean_us: Some(field("latency average = ")? * 1e3),
        counted: COUNTED,
        notes,
        ..Driven::default()
    })
}

/// Times in microseconds and scripts of a log: `client_id transaction_no time script_no time_epoch time_us`.
/// Failed and skipped ones have a word for a time.
fn sampled(log: &str) -> Vec<(f64, u32)> {
    let fields = log.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    fields.filter_map(|fields| Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A real run of 5 s of `select-only@77 tpcb-like@23` on PostgreSQL 15.
    const SAMPLE: &str = include_str!("samples/pgbench.txt");
    /// The begin of its log.
    const LOG: &str = include_str!("samples/pgbench-log.txt");

    #[test]
    fn a_run_is_told_second_by_second() {
        let found = one(SAMPLE).expect("it is understood");
        assert_eq!(found.series.len(), 5);
        assert_eq!(found.series[1], Second { at_s: 2.0, rate: 1559.8, mean_us: Some(2530.0), hit_ratio: None });
        assert_eq!((found.rate, found.mean_us), (1_963.614_637, Some(2003.0)));
        assert!(found.notes.is_empty(), "{:?}", found.notes);
        assert!(one("pgbench: error: connection failed").is_none());
    }

    #[test]
    fn a_second_without_transactions_has_no_mean() {
        let text = SAMPLE.replace("1559.8 tps, lat 2.530 ms stddev 5.610", "0.0 tps, lat 0.000 ms stddev 0.000");
        assert_eq!(one(&text).expect("it is understood").series[1], Second { at_s: 2.0, rate: 0.0, mean_us: None, hit_ratio: None });
    }

    #[test]
    fn failures_are_noted() {
        let text = SAMPLE.replace("number of failed transactions: 0 (0.000%)", "number of failed transactions: 4 (0.040%)");
        assert_eq!(one(&text).expect("it is understood").notes, ["4 transactions failed"]);
    }

    #[test]
    fn the_log_has_times_and_scripts() {
        let found = sampled(LOG);
        assert_eq!(found.len(), LOG.lines().count());
        assert_eq!(found[0], (347.0, 0));
        assert!(found.iter().any(|sample| sample.1 == 1) && found.iter().all(|sample| sample.0 > 0.0));
        assert_eq!(sampled("0 1 failed 0 1 2\n0 2 55 0 1 2\n"), [(55.0, 0)]);
    }

    #[test]
    fn hot_rows_are_the_first() {
        let text = hot_script(200_000, 30, 90);
        assert!(text.contains(":p <= 90\n") && text.contains("random(1, 60000)") && text.contains("random(60001, 200000)"), "{text}");
    }
}
