//! Counters for people.

use crate::content_figures;
use crate::show::known;
use crate::table::{self, Align};
use api::human;
use api::stats::{Latency, PoolStats, VolumeStats};
use api::{Sample, StatsView};
use std::time::Duration;

/// One volume, all counters.
pub fn volume(name: &str, stats: &VolumeStats) -> String {
    let mut pairs = vec![
        ("volume", name.to_string()),
        ("reads", format!("{} ({})", stats.reads, human::bytes(stats.read_bytes))),
        ("writes", format!("{} ({})", stats.writes, human::bytes(stats.written_bytes))),
        ("flushes", flushes(stats)),
        ("discards", stats.discards.to_string()),
        ("read hits, RAM", with_share(stats.read_hits_ram, stats.reads)),
        ("read hits, SSD", with_share(stats.read_hits_ssd, stats.reads)),
        ("read misses", with_share(stats.read_misses, stats.reads)),
        ("own reads", format!("{} ({})", stats.own_reads, human::bytes(stats.own_read_bytes))),
        ("cached on the SSD", human::bytes(stats.cached_bytes)),
        ("cached in RAM", human::bytes(stats.ram_bytes)),
        ("dirty", known(stats.dirty_bytes)),
        ("SSD written", human::bytes(stats.ssd_written_bytes)),
        ("admitted", human::bytes(stats.admitted_bytes)),
        ("write amplification", ratio(stats.write_amplification)),
        ("backing reads", format!("{} ({})", stats.backing_reads, human::bytes(stats.backing_read_bytes))),
        ("read along", read_along(stats)),
        ("backing writes", format!("{} ({})", stats.backing_writes, human::bytes(stats.backing_written_bytes))),
        ("backing discards", stats.backing_discards.to_string()),
        ("partial unit writes", stats.partial_unit_writes.to_string()),
        ("destaged", human::bytes(stats.destaged_bytes)),
        ("checksum errors", stats.checksum_errors.to_string()),
        ("errors", stats.errors.to_string()),
    ];
    let bypassed: Vec<_> = stats.bypassed.iter().filter(|(_, n)| **n > 0).map(|(reason, n)| format!("{reason} {n}")).collect();
    pairs.push(("bypassed", if bypassed.is_empty() { "none".into() } else { bypassed.join(", ") }));
    let mut text = table::pairs(&pairs);
    let rows: Vec<_> = stats.latency_ns.iter().filter(|(_, l)| l.count > 0).map(|(what, l)| latency_row(what, l)).collect();
    if !rows.is_empty() {
        let right = ["COUNT", "MEAN", "P50", "P90", "P99", "P99.9", "MAX"].map(|title| (title, Align::Right));
        let head: Vec<_> = [("LATENCY", Align::Left)].into_iter().chain(right).collect();
        text += "\n";
        text += &table::layout(&head, &rows);
    }
    text
}

/// What misses brought along, and what of it was asked for later.
fn read_along(stats: &VolumeStats) -> String {
    format!("{}, {} used", human::bytes(stats.read_along_bytes), human::bytes(stats.read_along_used_bytes))
}

fn flushes(stats: &VolumeStats) -> String {
    let VolumeStats { flushes, backing_flushes, backing_flush_longest_ns, .. } = stats;
    match backing_flushes {
        0 => format!("{flushes} (none waited for the backing device)"),
        waited => {
            format!("{flushes} ({waited} waited for the backing device, the longest {})", human::nanoseconds(*backing_flush_longest_ns))
        }
    }
}

fn latency_row(what: &str, latency: &Latency) -> Vec<String> {
    let times = [latency.mean_ns, latency.p50_ns, latency.p90_ns, latency.p99_ns, latency.p999_ns, latency.max_ns];
    let mut row = vec![what.to_string(), latency.count.to_string()];
    row.extend(times.map(human::nanoseconds));
    row
}

/// One pool, all counters.
pub fn pool(name: &str, stats: &PoolStats) -> String {
    let mut pairs = vec![
        ("pool", name.to_string()),
        ("cached", human::bytes(stats.cached_bytes)),
        ("dirty", known(stats.dirty_bytes)),
        ("SSD written", human::bytes(stats.ssd_written_bytes)),
        ("admitted", human::bytes(stats.admitted_bytes)),
        ("write amplification", ratio(stats.write_amplification)),
        ("reinserted", human::bytes(stats.reinserted_bytes)),
        ("RAM tier in use", human::bytes(stats.ram_used_bytes)),
        ("RAM for the index", human::bytes(stats.index_bytes)),
        ("checksum errors", stats.checksum_errors.to_string()),
        ("failed SSD reads", stats.ssd_read_errors.to_string()),
    ];
    if let Some(content) = &stats.content {
        pairs.push(("content", content.level.name().into()));
        pairs.extend(content_figures::pairs(content));
    }
    table::pairs(&pairs)
}

/// Everything, one line per volume.
pub fn all(stats: &StatsView) -> String {
    if stats.volumes.is_empty() && !stats.disks.is_empty() {
        return disks(stats);
    }
    if stats.volumes.is_empty() {
        return "no volumes; create one with `hearth volume add NAME --backing PATH --pool POOL --export block`\n".into();
    }
    let titles = ["READS", "HIT RAM", "HIT SSD", "WRITES", "ON SSD", "IN RAM", "DIRTY", "BACKING R", "BACKING W", "W AMP", "READ P99"];
    let head: Vec<_> = [("VOLUME", Align::Left)].into_iter().chain(titles.map(|t| (t, Align::Right))).collect();
    let row = |(name, s): (&String, &VolumeStats)| {
        vec![
            name.clone(),
            s.reads.to_string(),
            percent(s.read_hits_ram, s.reads),
            percent(s.read_hits_ssd, s.reads),
            s.writes.to_string(),
            human::bytes(s.cached_bytes),
            human::bytes(s.ram_bytes),
            known(s.dirty_bytes),
            human::bytes(s.backing_read_bytes),
            human::bytes(s.backing_written_bytes),
            ratio(s.write_amplification),
            s.latency_ns.get("read").map_or("-".into(), |l| human::nanoseconds(l.p99_ns)),
        ]
    };
    let contents = stats.pools.iter().filter_map(|(name, pool)| content_figures::line(name, pool.content.as_ref()?));
    let beside = if stats.disks.is_empty() { String::new() } else { format!("\n{}", disks(stats)) };
    table::layout(&head, &stats.volumes.iter().map(row).collect::<Vec<_>>()) + &contents.collect::<String>() + &beside
}

/// Disks beside the caches, one line each.
fn disks(stats: &StatsView) -> String {
    let titles = ["READS", "READ", "WRITES", "WRITTEN", "FLUSHES", "ERRORS", "READ P99", "WRITE P99"];
    let head: Vec<_> = [("DISK", Align::Left)].into_iter().chain(titles.map(|t| (t, Align::Right))).collect();
    let row = |(name, s): (&String, &VolumeStats)| {
        let p99 = |word| s.latency_ns.get(word).map_or("-".into(), |l| human::nanoseconds(l.p99_ns));
        vec![
            name.clone(),
            s.reads.to_string(),
            human::bytes(s.read_bytes),
            s.writes.to_string(),
            human::bytes(s.written_bytes),
            s.flushes.to_string(),
            s.errors.to_string(),
            p99("read"),
            p99("write"),
        ]
    };
    table::layout(&head, &stats.disks.iter().map(row).collect::<Vec<_>>())
}

/// What happened between two looks, per second; one line per volume. `sample`: of the daemon's second between them, if it has told of one.
pub fn rates(before: &StatsView, now: &StatsView, elapsed: Duration, sample: Option<&Sample>) -> String {
    let titles = [
        "READ/S",
        "WRITE/S",
        "READ B/S",
        "WRITE B/S",
        "HIT",
        "DESTAGE B/S",
        "BACKING R/S",
        "BACKING W/S",
        "DIRTY",
        "READ P99",
        "BYPASSED/S",
    ];
    let right = titles.map(|title| (title, Align::Right));
    let head: Vec<_> = [("VOLUME", Align::Left)].into_iter().chain(right).chain([("BECAUSE OF", Align::Left)]).collect();
    let seconds = elapsed.as_secs_f64().max(0.001);
    let row = |(name, s): (&String, &VolumeStats)| {
        let nothing = VolumeStats::default();
        let old = before.volumes.get(name).unwrap_or(&nothing);
        let part = |of: fn(&VolumeStats) -> u64| of(s).saturating_sub(of(old));
        let a_second = |count: u64| (count as f64 / seconds).round() as u64;
        let rate = |of: fn(&VolumeStats) -> u64| a_second(part(of));
        let mut bypassed: Vec<(u64, &str)> = s
            .bypassed
            .iter()
            .map(|(why, count)| (count.saturating_sub(old.bypassed.get(why).copied().unwrap_or(0)), why.as_str()))
            .collect();
        bypassed.retain(|(count, _)| *count > 0);
        bypassed.sort_unstable_by(|a, b| b.cmp(a));
        vec![
            name.clone(),
            rate(|s| s.reads).to_string(),
            rate(|s| s.writes).to_string(),
            human::bytes(rate(|s| s.read_bytes)),
            human::bytes(rate(|s| s.written_bytes)),
            percent(part(|s| s.read_hits_ram + s.read_hits_ssd), part(|s| s.reads)),
            human::bytes(rate(|s| s.destaged_bytes)),
            rate(|s| s.backing_reads).to_string(),
            rate(|s| s.backing_writes).to_string(),
            known(s.dirty_bytes),
            sample.and_then(|sample| read_p99(sample, name)).unwrap_or_else(|| "-".into()),
            a_second(bypassed.iter().map(|(count, _)| count).sum()).to_string(),
            bypassed.iter().map(|(count, why)| format!("{why} {}", a_second(*count).max(1))).collect::<Vec<_>>().join(", "),
        ]
    };
    let volumes = table::layout(&head, &now.volumes.iter().map(row).collect::<Vec<_>>());
    if now.disks.is_empty() { volumes } else { format!("{volumes}\n{}", disk_rates(before, now, seconds)) }
}

/// Of the reads of that second; None if there were none.
fn read_p99(sample: &Sample, volume: &str) -> Option<String> {
    let read = sample.volumes.get(volume)?.latency.get("read")?;
    Some(human::nanoseconds((read.p99_us * 1000.0) as u64))
}

/// The same of disks beside the caches.
fn disk_rates(before: &StatsView, now: &StatsView, seconds: f64) -> String {
    let titles = ["READ/S", "WRITE/S", "READ B/S", "WRITE B/S"];
    let head: Vec<_> = [("DISK", Align::Left)].into_iter().chain(titles.map(|t| (t, Align::Right))).collect();
    let row = |(name, s): (&String, &VolumeStats)| {
        let nothing = VolumeStats::default();
        let old = before.disks.get(name).unwrap_or(&nothing);
        let rate = |of: fn(&VolumeStats) -> u64| (of(s).saturating_sub(of(old)) as f64 / seconds).round() as u64;
        let bytes = |of: fn(&VolumeStats) -> u64| human::bytes(rate(of));
        vec![
            name.clone(),
            rate(|s| s.reads).to_string(),
            rate(|s| s.writes).to_string(),
            bytes(|s| s.read_bytes),
            bytes(|s| s.written_bytes),
        ]
    };
    table::layout(&head, &now.disks.iter().map(row).collect::<Vec<_>>())
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".into() } else { format!("{:.1} %", part as f64 * 100.0 / whole as f64) }
}

fn with_share(part: u64, whole: u64) -> String {
    if whole == 0 { part.to_string() } else { format!("{part} ({})", percent(part, whole)) }
}

fn ratio(value: Option<f64>) -> String {
    value.map_or("-".into(), |v| format!("{v:.2}"))
}
