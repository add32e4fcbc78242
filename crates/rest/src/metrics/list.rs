//! What a metric is, and how its series come out of a scrape. The metrics themselves stand in `table.rs`.

use super::scrape::Scrape;
pub use super::table::METRICS;
use api::stats::{ContentStats, ContentStep, PolicyStats, PoolStats, VolumeStats};
use datapath::figures::OUTCOMES;
use runtime::Histogram;

/// Kinds of requests of which latencies are known.
const REQUESTS: [&str; 4] = ["read", "write", "flush", "trim"];

/// What a metric is to Prometheus.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Type {
    /// Grows; begins at zero with the daemon's start.
    Counter,
    /// A state.
    Gauge,
    /// Counts by size.
    Histogram,
}

impl Type {
    /// The word in documentation.
    pub const fn word(self) -> &'static str {
        match self {
            Type::Counter => "counter",
            Type::Gauge => "gauge",
            Type::Histogram => "histogram",
        }
    }
}

/// What makes a metric move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moves {
    /// Requests of clients, and what follows from them.
    Load,
    /// A fault of a device.
    Fault,
    /// What people change, or nothing.
    Rarely,
}

impl Moves {
    /// The word in documentation.
    pub const fn word(self) -> &'static str {
        match self {
            Moves::Load => "load",
            Moves::Fault => "a fault",
            Moves::Rarely => "rarely",
        }
    }
}

/// A value.
#[derive(Clone, Debug)]
pub enum Value {
    /// A whole number.
    Count(u64),
    /// A fraction.
    Part(f64),
    /// A histogram of nanoseconds.
    Times(Box<Histogram>),
}

/// Labels and value of one series.
pub type Series = (Vec<(&'static str, String)>, Value);

/// A metric. Its name is without the `_total` that counters get.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub kind: Type,
    /// Its unit, "1" for plain counts and ratios.
    pub unit: &'static str,
    /// Its labels.
    pub labels: &'static [&'static str],
    /// What makes it move.
    pub moves: Moves,
    /// What it means: one sentence.
    pub help: &'static str,
    /// Where its values come from.
    pub(super) read: Read,
}

/// Where the values of a metric come from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Read {
    /// The whole scrape.
    Scrape(fn(&Scrape) -> Vec<Series>),
    /// Each volume's counters.
    Volume(fn(&VolumeStats) -> Option<Value>),
    /// Each volume's counters, by a word.
    VolumeBy(fn(&VolumeStats) -> Vec<(String, u64)>),
    /// Each volume's latencies by outcome.
    VolumeLatency,
    /// Each disk's counters.
    Disk(fn(&VolumeStats) -> Option<Value>),
    /// Each disk's latencies by kind of request.
    DiskLatency,
    /// Each pool's counters.
    Pool(fn(&PoolStats) -> Option<Value>),
    /// The same by policy, where blocks lie in slots.
    Policy(fn(&PolicyStats) -> Option<Value>),
    /// What each pool makes of what blocks contain.
    Content(fn(&ContentStats) -> Option<Value>),
    /// The same in blocks, by kind.
    ContentBlocks(fn(&ContentStats) -> [(&'static str, u64); 4]),
    /// The same by volume and step.
    ContentStep(fn(&ContentStep) -> f64),
}

impl Metric {
    /// The name as a scrape shows it.
    pub fn full_name(&self) -> String {
        if self.kind == Type::Counter { format!("{}_total", self.name) } else { self.name.into() }
    }

    /// All series of it.
    pub fn series(&self, scrape: &Scrape) -> Vec<Series> {
        let (volumes, pools) = (&scrape.figures.volumes, &scrape.figures.pools);
        let of_pools = |read: &dyn Fn(&PoolStats) -> Vec<Series>, label: &'static str| {
            let series = pools.iter().flat_map(|(name, stats)| read(stats).into_iter().map(move |series| labelled(label, name, series)));
            series.collect()
        };
        let of_contents = |read: &dyn Fn(&ContentStats) -> Vec<Series>| {
            of_pools(&|stats: &PoolStats| stats.content.as_ref().map(read).unwrap_or_default(), "pool")
        };
        match self.read {
            Read::Scrape(read) => read(scrape),
            Read::Volume(read) => {
                volumes.iter().filter_map(|(name, v)| Some(labelled("volume", name, (Vec::new(), read(&v.stats)?)))).collect()
            }
            Read::VolumeBy(read) => {
                let label = self.labels[1];
                let words = |(word, count)| (vec![(label, word)], Value::Count(count));
                volumes
                    .iter()
                    .flat_map(|(name, v)| read(&v.stats).into_iter().map(move |one| labelled("volume", name, words(one))))
                    .collect()
            }
            Read::VolumeLatency => volumes
                .iter()
                .flat_map(|(name, v)| OUTCOMES.map(|outcome| (name, outcome, v.clients.latency.get(outcome).cloned().unwrap_or_default())))
                .map(|(name, outcome, times)| {
                    labelled("volume", name, (vec![("outcome", outcome.to_string())], Value::Times(Box::new(times))))
                })
                .collect(),
            Read::Disk(read) => {
                let disks = scrape.figures.disks.iter();
                disks.filter_map(|(name, d)| Some(labelled("disk", name, (Vec::new(), read(&d.stats)?)))).collect()
            }
            Read::DiskLatency => {
                let disks = scrape.figures.disks.iter();
                let times = disks.flat_map(|(name, d)| {
                    REQUESTS.map(|request| (name, request, d.clients.latency.get(request).cloned().unwrap_or_default()))
                });
                let series = times.map(|(name, request, times)| {
                    labelled("disk", name, (vec![("request", request.to_string())], Value::Times(Box::new(times))))
                });
                series.collect()
            }
            Read::Pool(read) => of_pools(&|stats| read(stats).map(|value| (Vec::new(), value)).into_iter().collect(), "pool"),
            Read::Policy(read) => {
                let of_policy = |policy: &PolicyStats| Some((vec![("policy", policy.policy.clone())], read(policy)?));
                of_pools(&|stats| stats.slots.iter().flat_map(|slots| &slots.policies).filter_map(of_policy).collect(), "pool")
            }
            Read::Content(read) => of_contents(&|stats| read(stats).map(|value| (Vec::new(), value)).into_iter().collect()),
            Read::ContentBlocks(read) => of_contents(&|stats| {
                read(stats).into_iter().map(|(kind, count)| (vec![("kind", kind.to_string())], Value::Count(count))).collect()
            }),
            Read::ContentStep(read) => of_contents(&|stats| {
                let steps = stats.steps.iter().flat_map(|(volume, steps)| steps.iter().map(move |step| (volume, step)));
                steps
                    .map(|(volume, step)| (vec![("volume", volume.clone()), ("step", step.step.clone())], Value::Part(read(step))))
                    .collect()
            }),
        }
    }
}

/// The series with one more label, in front.
fn labelled(label: &'static str, value: &str, (mut labels, number): Series) -> Series {
    labels.insert(0, (label, value.to_string()));
    (labels, number)
}

/// The table of docs/metrics.md.
pub fn documentation() -> String {
    let row = |m: &Metric| {
        let labels = m.labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        let labels = if labels.is_empty() { "–" } else { &labels };
        format!("| `{}` | {} | {} | {labels} | {} | {} |\n", m.full_name(), m.kind.word(), m.unit, m.moves.word(), m.help)
    };
    let head = "| metric | type | unit | labels | moved by | meaning |\n|---|---|---|---|---|---|\n";
    METRICS.iter().fold(head.to_string(), |table, metric| table + &row(metric))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_documentation_has_every_metric_and_no_other() {
        let documented = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md")).expect("docs/metrics.md");
        let table = documentation();
        assert!(documented.contains(&table), "the table of docs/metrics.md should be:\n{table}");
        assert_eq!(documented.matches("\n| `hearth_").count(), METRICS.len(), "a row is not in the list");
    }

    #[test]
    fn names_follow_the_rules() {
        let mut seen = BTreeSet::new();
        for m in METRICS {
            assert!(seen.insert(m.name), "{} is there twice", m.name);
            assert!(m.name.starts_with("hearth_") && !m.name.ends_with("_total"), "{}", m.name);
            assert!(m.name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{}", m.name);
            assert_eq!(m.unit == "seconds", m.name.ends_with("_seconds"), "{}", m.name);
            assert!(m.unit != "bytes" || m.name.contains("_bytes"), "{}", m.name);
            assert!(m.help.ends_with('.'), "{}", m.name);
        }
    }

    #[test]
    fn every_metric_of_the_dashboard_is_there() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/grafana/hearth.json");
        let dashboard = std::fs::read_to_string(path).expect("the dashboard");
        let parsed: serde_json::Value = serde_json::from_str(&dashboard).expect("JSON");
        let panels = parsed["panels"].as_array().expect("panels");
        assert!(panels.len() >= 8, "{} panels", panels.len());
        let name_at = |at: usize| dashboard[at..].chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect::<String>();
        let names: BTreeSet<String> = dashboard.match_indices("hearth_").map(|(at, _)| name_at(at)).collect();
        let known = |name: &str| {
            METRICS.iter().any(|m| match m.kind {
                Type::Histogram => ["_bucket", "_count", "_sum"].iter().any(|end| name == format!("{}{end}", m.name)),
                _ => name == m.full_name(),
            })
        };
        assert!(names.len() >= 15, "{names:?}");
        names.iter().for_each(|name| assert!(known(name), "{name} is no metric"));
    }
}
