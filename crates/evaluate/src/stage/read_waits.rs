//! How long the reads of a cached volume took, from the daemon's own histograms.

/// Reads that passed the cache: from RAM, from the SSD, or from the backing device.
const OUTCOMES: [&str; 3] = ["ram_hit", "ssd_hit", "miss"];
const METRIC: &str = "hearth_volume_latency_seconds";

/// Counters since the volume was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadWaits {
    /// Reads answered.
    pub reads: u64,
    /// Of them, those answered within a millisecond.
    pub under_1ms: u64,
}

impl ReadWaits {
    /// Of a volume, out of the text of a scrape.
    pub fn of(volume: &str, scrape: &str) -> ReadWaits {
        let label = format!("volume=\"{volume}\"");
        let mut waits = ReadWaits::default();
        for line in scrape.lines() {
            let Some((name, labels)) = line.strip_prefix(METRIC).and_then(|rest| rest.split_once('{')) else { continue };
            let Some((labels, value)) = labels.split_once("} ") else { continue };
            let has = |wanted: &str| labels.split(',').any(|found| found == wanted);
            if !has(&label) || !OUTCOMES.iter().any(|outcome| has(&format!("outcome=\"{outcome}\""))) {
                continue;
            }
            let count = value.trim().parse().unwrap_or(0);
            match name {
                "_count" => waits.reads += count,
                "_bucket" if has("le=\"0.001\"") => waits.under_1ms += count,
                _ => {}
            }
        }
        waits
    }

    /// The share of the reads since `before` that took less than a millisecond; `None` if there was none.
    pub fn share_since(&self, before: &ReadWaits) -> Option<f64> {
        let reads = self.reads - before.reads;
        (reads > 0).then(|| (self.under_1ms - before.under_1ms) as f64 / reads as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRAPE: &str = "\
# HELP hearth_volume_latency_seconds Time from a request's arrival to its answer.
hearth_volume_latency_seconds_count{volume=\"db\",outcome=\"ssd_hit\"} 90
hearth_volume_latency_seconds_bucket{le=\"0.00001\",volume=\"db\",outcome=\"ssd_hit\"} 10
hearth_volume_latency_seconds_bucket{le=\"0.001\",volume=\"db\",outcome=\"ssd_hit\"} 80
hearth_volume_latency_seconds_bucket{le=\"+Inf\",volume=\"db\",outcome=\"ssd_hit\"} 90
hearth_volume_latency_seconds_count{volume=\"db\",outcome=\"miss\"} 10
hearth_volume_latency_seconds_bucket{le=\"0.001\",volume=\"db\",outcome=\"miss\"} 1
hearth_volume_latency_seconds_count{volume=\"db\",outcome=\"write_back\"} 1000
hearth_volume_latency_seconds_count{volume=\"other\",outcome=\"miss\"} 5
hearth_volume_reads_total{volume=\"db\"} 7
";

    #[test]
    fn reads_of_one_volume_are_counted() {
        let waits = ReadWaits::of("db", SCRAPE);
        assert_eq!(waits, ReadWaits { reads: 100, under_1ms: 81 });
        assert_eq!(waits.share_since(&ReadWaits { reads: 50, under_1ms: 41 }), Some(0.8));
        assert_eq!(waits.share_since(&waits), None);
        assert_eq!(ReadWaits::of("none", SCRAPE), ReadWaits::default());
    }
}
