//! TPC-C by go-tpc (github.com/pingcap/go-tpc, pinned): new orders each second and how long they took.

use super::load::{Beside, OVERTIME, Told, number_after, watch};
use super::{Driven, LONG};
use crate::result::{Latency, Second};
use crate::stage::Stage;
use crate::trouble::Trouble;
use std::collections::BTreeMap;
use std::time::Instant;

/// How the transactions that count are named.
const NEW_ORDER: &str = "NEW_ORDER";
/// What is counted.
pub const COUNTED: &str = "new orders";
/// Where its histograms end; what took longer counts as this.
const LONGEST_MS: f64 = 16_000.0;

/// Which database is driven; always on 127.0.0.1, it knows no sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// On this port.
    MariaDb(u16),
    /// On this port.
    Postgres(u16),
}

/// A load.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GoTpc {
    /// Path of the program.
    pub program: String,
    /// The server.
    pub target: Target,
    /// Name of the database in it.
    pub database: String,
    /// How many: about 100 MB each.
    pub warehouses: u32,
    /// Connections, each without any time to think or key.
    pub threads: u32,
}

impl GoTpc {
    fn words(&self, action: &[&str]) -> Vec<String> {
        let mut words = vec![self.program.clone(), "tpcc".into()];
        let (user, port) = match self.target {
            Target::MariaDb(port) => ("root", port),
            Target::Postgres(port) => {
                words.extend(["-d", "postgres", "--conn-params", "sslmode=disable"].map(str::to_owned));
                ("postgres", port)
            }
        };
        words.extend(["-H", "127.0.0.1", "-P", &port.to_string(), "-U", user, "-D", &self.database].map(str::to_owned));
        words.extend(["--warehouses".into(), self.warehouses.to_string()]);
        words.extend(action.iter().map(|word| (*word).to_owned()));
        words
    }

    /// Makes the tables and fills them; the database is there already.
    ///
    /// # Errors
    /// As of [`Stage::run`].
    pub fn prepare(&self, stage: &Stage) -> Result<(), Trouble> {
        stage.run(&self.words(&["prepare", "-T", "4", "--no-check"]), LONG).map(drop)
    }

    /// Runs `warm_seconds` that do not count, if any, and `seconds` that do.
    ///
    /// # Errors
    /// If it fails, `beside` fails, or the user wants an end.
    pub fn drive(&self, stage: &Stage, warm_seconds: u64, seconds: u64, beside: &mut Beside<'_>) -> Result<Driven, Trouble> {
        super::load::warmed(warm_seconds, seconds, beside, &mut |seconds, began, beside| self.run(stage, seconds, began, beside))
    }

    fn run(&self, stage: &Stage, seconds: u64, began: Instant, beside: &mut Beside<'_>) -> Result<Driven, Trouble> {
        let (threads, time) = (self.threads.to_string(), format!("{seconds}s"));
        let words = self.words(&["run", "-T", &threads, "--time", &time, "--interval", "1s"]);
        let told = watch(stage, &[("go-tpc".into(), words)], &[], seconds, began, beside)?;
        driven(&told[0], seconds)
    }
}

/// What it says of one kind of transaction in one second, or of all of a run.
#[derive(Clone, PartialEq, Debug)]
struct Line {
    kind: String,
    takes_s: f64,
    count: f64,
    mean_ms: f64,
    percentiles_ms: BTreeMap<String, f64>,
}

/// `[Current] NEW_ORDER - Takes(s): 2.0, Count: 251, TPM: 7612.0, Sum(ms): 4315.7, Avg(ms): 17.2, 50th(ms): 12.6, …, Max(ms): 109.1`
fn line(text: &str, head: &str) -> Option<Line> {
    let (kind, rest) = text.strip_prefix(head)?.trim_start().split_once(" - ")?;
    let percentiles = rest.split(", ").filter_map(|field| {
        let (name, value) = field.split_once("th(ms): ")?;
        Some((name.to_owned(), value.parse().ok()?))
    });
    Some(Line {
        kind: kind.into(),
        takes_s: number_after(rest, "Takes(s):")?,
        count: number_after(rest, "Count:")?,
        mean_ms: number_after(rest, "Avg(ms):")?,
        percentiles_ms: percentiles.collect(),
    })
}

/// What a run of so many seconds said. A second without a line is one without new orders; without a summary the seconds are summed up.
fn driven(told: &Told, seconds: u64) -> Result<Driven, Trouble> {
    let mut series: Vec<Second> = (1..=seconds).map(|at| Second { at_s: at as f64, rate: 0.0, mean_us: None, hit_ratio: None }).collect();
    let (mut last, mut new_orders) = (0, 0.0);
    let mut weighted_ms = 0.0;
    for (came_s, text) in &told.lines {
        let Some(found) = line(text, "[Current]").filter(|found| found.kind == NEW_ORDER) else { continue };
        // It speaks once a second, and began a moment after its process.
        let at = (*came_s as usize).max(last + 1);
        last = at;
        new_orders += found.count;
        weighted_ms += found.count * found.mean_ms;
        if let Some(second) = series.get_mut(at - 1) {
            (second.rate, second.mean_us) = (found.count, Some(found.mean_ms * 1e3));
        }
    }
    let mut driven = Driven { series, counted: COUNTED, notes: errors(told), ..Driven::default() };
    let summaries: Vec<Line> = told.lines.iter().filter_map(|(_, text)| line(text, "[Summary]")).collect();
    match summaries.iter().find(|summary| summary.kind == NEW_ORDER) {
        Some(summary) => {
            // The last second ends with the run, before it is spoken of: what nobody counted yet was in it.
            if let Some(second) = driven.series.last_mut().filter(|_| last + 1 == seconds as usize) {
                second.rate = (summary.count - new_orders).max(0.0);
            }
            // Requests under way when the time was over are counted, and so is their time.
            driven.rate = summary.count / summary.takes_s.max(seconds as f64);
            driven.mean_us = Some(summary.mean_ms * 1e3);
            driven.latency = Some(latency(summary));
            if summary.percentiles_ms.values().any(|ms| *ms >= LONGEST_MS) {
                driven.notes.push("some new orders took longer than 16 s, the longest time that go-tpc reports".into());
            }
        }
        None if new_orders > 0.0 => {
            driven.rate = new_orders / seconds as f64;
            driven.mean_us = Some(weighted_ms / new_orders * 1e3);
        }
        None if told.whole && told.lines.iter().any(|(_, text)| text.contains("Finished")) => {}
        None if !told.whole => {}
        None => return Err(Trouble::Failed(format!("cannot understand what go-tpc said: {}", told.text().trim()))),
    }
    if !told.whole {
        driven.notes.push(format!(
            "transactions did not end within {} s after the end of the run: the figures are sums over its seconds",
            OVERTIME.as_secs()
        ));
    }
    Ok(driven)
}

fn latency(summary: &Line) -> Latency {
    let mut cdf: Vec<(f64, f64)> = Vec::new();
    let mut points: Vec<(f64, f64)> =
        summary.percentiles_ms.iter().filter_map(|(percent, ms)| Some((percent.parse::<f64>().ok()? / 100.0, ms * 1e3))).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (share, us) in points {
        match cdf.last_mut() {
            Some(last) if last.0 >= us => last.1 = share,
            _ => cdf.push((us, share)),
        }
    }
    Latency {
        of: COUNTED.into(),
        mean_us: summary.mean_ms * 1e3,
        percentiles_us: summary.percentiles_ms.iter().map(|(percent, ms)| (percent.clone(), ms * 1e3)).collect(),
        cdf,
    }
}

/// Failed transactions, and connections that gave up after one: the load was smaller from there on.
fn errors(told: &Told) -> Vec<String> {
    let failed: f64 = told
        .lines
        .iter()
        .filter_map(|(_, text)| line(text, "[Summary]"))
        .filter(|summary| summary.kind.ends_with("_ERR"))
        .map(|summary| summary.count)
        .sum();
    let gave_up: Vec<&str> =
        told.lines.iter().map(|(_, text)| text.as_str()).filter(|text| text.starts_with("execute run failed")).collect();
    let mut notes = Vec::new();
    if failed > 0.0 {
        notes.push(format!("{failed} transactions failed"));
    }
    if let Some(first) = gave_up.first() {
        notes.push(format!("{} connections gave up: {first}", gave_up.len()));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A real run of 12 s with 4 threads that spoke every 2 s, on one warehouse in MariaDB 10.11.
    const SAMPLE: &str = include_str!("samples/go-tpc.txt");
    /// A real run of 8 s that spoke each second, on PostgreSQL 15.
    const POSTGRES: &str = include_str!("samples/go-tpc-postgres.txt");

    /// Lines as they come: those of a second together.
    fn told(text: &str, each_s: f64, whole: bool) -> Told {
        let mut at_s = 0.1;
        let mut before = String::new();
        let lines = text.lines().map(|text| {
            let kind = line(text, "[Current]").map(|line| line.kind);
            if let Some(kind) = kind {
                if kind <= before || before.is_empty() {
                    at_s += each_s;
                }
                before = kind;
            }
            (at_s, text.to_owned())
        });
        Told { lines: lines.collect(), whole }
    }

    #[test]
    fn a_run_is_told_second_by_second() {
        let found = driven(&told(POSTGRES, 1.0, true), 8).expect("it is understood");
        assert_eq!(found.series.len(), 8);
        assert_eq!(found.series[0], Second { at_s: 1.0, rate: 96.0, mean_us: Some(9500.0), hit_ratio: None });
        assert_eq!(found.series[2].rate, 38.0);
        assert_eq!(found.series[7].rate, 454.0 - 410.0);
        assert!(found.notes.is_empty(), "{:?}", found.notes);
    }

    #[test]
    fn the_summary_is_what_counts() {
        let found = driven(&told(SAMPLE, 2.0, true), 12).expect("it is understood");
        assert_eq!(found.rate, 1397.0 / 12.0);
        assert_eq!(found.mean_us, Some(18_600.0));
        let latency = found.latency.expect("it tells them");
        assert_eq!((latency.percentiles_us["50"], latency.percentiles_us["99.9"]), (15_200.0, 201_300.0));
        assert_eq!(latency.cdf.first(), Some(&(15_200.0, 0.5)));
        assert!(latency.cdf.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1));
    }

    #[test]
    fn without_a_summary_the_seconds_are_summed_up() {
        let cut = &SAMPLE[..SAMPLE.find("Finished").expect("it has one")];
        let found = driven(&told(cut, 2.0, false), 12).expect("it is understood");
        let sum = 251.0 + 212.0 + 226.0 + 220.0 + 246.0;
        assert!(found.rate >= sum / 12.0 && found.rate <= (sum + 250.0) / 12.0, "{}", found.rate);
        assert!(found.latency.is_none());
        assert!(found.notes[0].contains("did not end"), "{:?}", found.notes);
    }

    #[test]
    fn silent_seconds_are_seconds_without_orders() {
        let mut lines = told(POSTGRES, 1.0, true).lines;
        lines.retain(|(at_s, text)| *at_s < 2.0 || *at_s > 4.0 || !text.starts_with("[Current]"));
        let found = driven(&Told { lines, whole: true }, 8).expect("it is understood");
        let rates: Vec<f64> = found.series.iter().map(|second| second.rate).collect();
        assert_eq!(rates[..5], [96.0, 0.0, 0.0, 62.0, 88.0]);
    }

    #[test]
    fn errors_are_noted_and_nonsense_is_refused() {
        let text = "execute run failed, err Error 1213: Deadlock found\n[Summary] NEW_ORDER_ERR - Takes(s): 1.0, Count: 3, TPM: 1, Sum(ms): 1, \
                    Avg(ms): 1.0\n[Summary] NEW_ORDER - Takes(s): 1.0, Count: 4, TPM: 1, Sum(ms): 1, Avg(ms): 2.0\nFinished";
        let found = driven(&told(text, 1.0, true), 2).expect("it is understood");
        assert_eq!(found.rate, 2.0);
        assert_eq!(found.notes.len(), 2, "{:?}", found.notes);
        assert!(found.notes[1].contains("Deadlock"));
        assert!(driven(&told("panic: what", 1.0, true), 2).is_err());
    }
}
