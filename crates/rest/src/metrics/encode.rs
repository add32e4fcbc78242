//! From the list to the text of OpenMetrics.

use super::list::{METRICS, Metric, Type, Value};
use super::scrape::Scrape;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use runtime::Histogram;

/// Upper bounds of the latency buckets, in microseconds: 10 µs to 10 s, three to a decade and finer where SSDs and disks live.
const BOUNDS_US: [u64; 21] = [
    10, 20, 50, 100, 200, 350, 500, 750, 1_000, 2_000, 3_500, 5_000, 7_500, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 2_000_000,
    10_000_000,
];

/// The text of a scrape.
pub fn text(scrape: Scrape) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(All(scrape)));
    let mut out = String::new();
    text::encode(&mut out, &registry).expect("a string takes everything");
    out
}

#[derive(Debug)]
struct All(Scrape);

impl Collector for All {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        METRICS.iter().try_for_each(|metric| one(metric, &self.0, &mut encoder))
    }
}

/// A metric without series is left out: nothing has it yet.
fn one(metric: &Metric, scrape: &Scrape, encoder: &mut DescriptorEncoder) -> Result<(), std::fmt::Error> {
    let series = metric.series(scrape);
    if series.is_empty() {
        return Ok(());
    }
    let kind = match metric.kind {
        Type::Counter => MetricType::Counter,
        Type::Gauge => MetricType::Gauge,
        Type::Histogram => MetricType::Histogram,
    };
    let mut family = encoder.encode_descriptor(metric.name, metric.help, None, kind)?;
    for (labels, value) in &series {
        if labels.is_empty() {
            write(metric.kind, value, &mut family)?;
        } else {
            write(metric.kind, value, &mut family.encode_family(labels)?)?;
        }
    }
    Ok(())
}

fn write(kind: Type, value: &Value, encoder: &mut MetricEncoder) -> Result<(), std::fmt::Error> {
    match (kind, value) {
        (Type::Counter, Value::Count(count)) => encoder.encode_counter::<NoLabelSet, u64, f64>(count, None),
        (Type::Counter, Value::Part(part)) => encoder.encode_counter::<NoLabelSet, f64, f64>(part, None),
        (_, Value::Count(count)) => encoder.encode_gauge(count),
        (_, Value::Part(part)) => encoder.encode_gauge(part),
        (_, Value::Times(times)) => {
            let seconds = times.sum_ns() as f64 / 1e9;
            encoder.encode_histogram::<NoLabelSet>(seconds, times.count(), &buckets(times), None)
        }
    }
}

/// Upper bound in seconds and how many fell into the bucket, not counting those below.
fn buckets(times: &Histogram) -> Vec<(f64, u64)> {
    let below = times.counts_below(&BOUNDS_US.map(|us| us * 1000));
    let bounds = BOUNDS_US.iter().map(|us| *us as f64 / 1e6).chain([f64::INFINITY]);
    let mut before = 0;
    let in_bucket = |below: u64| below - std::mem::replace(&mut before, below);
    bounds.zip(below.into_iter().chain([times.count()]).map(in_bucket)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::stats::VolumeStats;
    use datapath::figures::{Clients, Figures, VolumeFigures};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    #[test]
    fn a_scrape_is_text_as_prometheus_reads_it() {
        let mut times = Histogram::default();
        [5_000u64, 60_000, 60_000, 20_000_000_000].iter().for_each(|ns| times.record(*ns));
        let bypassed = BTreeMap::from([("size".to_string(), 3)]);
        let stats = VolumeStats { reads: u64::MAX, read_hits_ram: 1, bypassed, write_amplification: Some(1.5), ..VolumeStats::default() };
        let clients = Arc::new(Clients { latency: BTreeMap::from([("miss", times.clone()), ("read", times)]), ..Clients::default() });
        let volume = VolumeFigures { stats, clients, ..VolumeFigures::default() };
        let figures = Arc::new(Figures { volumes: BTreeMap::from([("db".to_string(), volume)]), ..Figures::default() });
        let text = text(Scrape { figures, jobs: 2, started_unix_s: 7, took_s: 0.25, ..Scrape::default() });
        for line in [
            "# TYPE hearth_volume_reads counter",
            "hearth_volume_reads_total{volume=\"db\"} 18446744073709551615",
            "hearth_volume_read_hits_total{volume=\"db\",tier=\"ram\"} 1",
            "hearth_volume_bypassed_total{volume=\"db\",reason=\"size\"} 3",
            "hearth_volume_write_amplification_ratio{volume=\"db\"} 1.5",
            "hearth_volume_latency_seconds_count{volume=\"db\",outcome=\"miss\"} 4",
            "hearth_volume_latency_seconds_bucket{le=\"0.00001\",volume=\"db\",outcome=\"miss\"} 1",
            "hearth_volume_latency_seconds_bucket{le=\"0.0001\",volume=\"db\",outcome=\"miss\"} 3",
            "hearth_volume_latency_seconds_bucket{le=\"10.0\",volume=\"db\",outcome=\"miss\"} 3",
            "hearth_volume_latency_seconds_bucket{le=\"+Inf\",volume=\"db\",outcome=\"miss\"} 4",
            "hearth_volume_latency_seconds_count{volume=\"db\",outcome=\"ssd_hit\"} 0",
            "hearth_jobs_running 2",
            "hearth_start_time_seconds 7",
            "hearth_scrape_duration_seconds 0.25",
            "# EOF",
        ] {
            assert!(text.lines().any(|l| l == line), "{line:?} is not in\n{text}");
        }
        assert!(!text.contains("hearth_pool_") && !text.contains("outcome=\"read\""), "{text}");
    }
}
