//! What people see of pools and volumes.

use crate::content_figures;
use crate::table::{self, Align};
use api::human;
use api::stats::{PolicyStats, SlotStats, WriteStreams};
use api::{FlashEstimate, FlashView, Health, PoolSet, PoolView, ShareView, SpareView, VolumeView};
use types::Mode;

/// Bytes, if they are known.
pub fn known(bytes: Option<u64>) -> String {
    bytes.map_or("unknown".into(), human::bytes)
}

/// What a change of options did; of a new mode, what an acknowledged write means from now on.
pub fn changed(volume: &str, changes: &str, mode: Option<&str>) -> String {
    let mode = mode.filter(|mode| changes.contains(&format!("mode {mode} (was "))).and_then(Mode::from_name);
    let meaning = match mode {
        None => "",
        Some(Mode::WriteBack) => "; writes are acknowledged when they are on the SSD, and destaged later",
        Some(Mode::WriteThrough) => "; writes are acknowledged when they are on the backing device",
        Some(Mode::WriteAround) => "; writes are acknowledged when they are on the backing device, and do not enter the cache",
        Some(Mode::PassThrough) => "; nothing is cached",
    };
    format!("volume {volume}: {changes}{meaning}\n")
}

/// The state of a volume that has left write-back mode.
pub fn left_write_back(volume: &VolumeView) -> String {
    let mode = volume.options.mode.name();
    match volume.dirty_bytes {
        Some(0) => format!("volume {}: mode {mode}; all its data is on {}\n", volume.name, volume.backing),
        _ => format!("volume {}: mode {mode}; {} are dirty still\n", volume.name, known(volume.dirty_bytes)),
    }
}

/// The state of the backing device of a volume that is removed.
pub fn removed(before: &VolumeView, drop_dirty: bool) -> String {
    let backing = &before.backing;
    if drop_dirty && before.dirty_bytes != Some(0) {
        return format!("{backing} is free, without the dirty data that was to be dropped\n");
    }
    format!("{backing} is complete without hearth\n")
}

/// A pool that was made, and what was chosen for it.
pub fn pool_created(pool: &PoolView) -> String {
    let mut text = format!("pool {} created: {} on {}\n", pool.name, human::bytes(pool.size_bytes), pool.ssd);
    // Files do not lose their content when a machine is stopped.
    if pool.ssd.starts_with("/dev/") {
        text += &match pool.on_blank_ssd.as_str() {
            "make" => "if its SSD is blank at a start, the cache is created again (never over dirty data)\n".to_string(),
            _ => format!(
                "if its SSD is blank at a start, the pool stops; `hearth pool set {} --on-blank-ssd make` has its cache created again instead\n",
                pool.name
            ),
        };
    }
    text + &pool.spare.as_ref().map_or(String::new(), |spare| format!("spare {}\n", spared(spare, pool.size_bytes)))
}

/// How much of an SSD of that size stays unused, and why.
fn spared(spare: &SpareView, size_bytes: u64) -> String {
    let unused = match spare.percent {
        0 => String::new(),
        percent => format!(", {} of the SSD stay unused", human::bytes(size_bytes * u64::from(percent) / 100)),
    };
    let kept = spare.not_discarded.as_ref().map_or(String::new(), |why| {
        format!("; the SSD still keeps what was there, since {why}: the spare is of use only if that part was blank or discarded before")
    });
    format!("{} %{unused} ({}){kept}", spare.percent, spare.reason)
}

/// What a pool writes to its SSD for each byte stored, and what that is estimated to write to its flash.
fn write_amplification(pool: &PoolView) -> String {
    let host = pool
        .write_amplification
        .map_or("nothing was written yet".into(), |ratio| format!("{ratio:.2} bytes are written to the SSD for each byte stored"));
    let flash = pool.flash.as_ref().map(|flash| format!("; estimated flash write amplification: {}", flash_writes(flash)));
    host + &flash.unwrap_or_default()
}

/// What an SSD is estimated to write to its flash.
fn flash_writes(flash: &FlashView) -> String {
    let of = |estimate: &FlashEstimate| {
        let (low, high) = (estimate.even.min(estimate.skewed), estimate.even.max(estimate.skewed));
        let range = if high - low < 0.05 { format!("{low:.1}") } else { format!("{low:.1} to {high:.1}") };
        format!("{range} on a drive with {} % spare of its own", estimate.own_spare_percent)
    };
    let estimates: Vec<String> = flash.estimates.iter().map(of).collect();
    estimates.join(", ") + &flash.note.as_ref().map_or(String::new(), |note| format!(" ({note})"))
}

/// Which write streams of its SSD a pool uses.
fn write_streams(streams: &WriteStreams) -> String {
    match &streams.refused {
        Some(reason) => format!("none: the SSD announces {} and refused a write that named one ({reason})", streams.announced),
        None => format!("{} ({})", streams.uses.len(), streams.uses.join(", ")),
    }
}

/// What a change of a pool's options has changed.
pub fn pool_changed(before: &PoolView, now: &PoolView, set: &PoolSet) -> String {
    let options = |pool: &PoolView| [("content", pool.content.name().to_string()), ("on a blank SSD", pool.on_blank_ssd.clone())];
    let pairs = options(before).into_iter().zip(options(now));
    let changes: Vec<String> =
        pairs.filter(|((_, was), (_, is))| was != is).map(|((what, was), (_, is))| format!("{what} {is} (was {was})")).collect();
    if changes.is_empty() {
        let content = set.content.as_ref().map(|_| format!("content is already {}", now.content.name()));
        let blank = set.on_blank_ssd.as_ref().map(|_| format!("on a blank SSD is already {}", now.on_blank_ssd));
        return format!("pool {} unchanged: {}\n", now.name, content.into_iter().chain(blank).collect::<Vec<_>>().join(", "));
    }
    format!("pool {}: {}\n", now.name, changes.join(", "))
}

/// All pools, one line each.
pub fn pools(pools: &[PoolView]) -> String {
    if pools.is_empty() {
        return "no pools; create one with `hearth pool create NAME --ssd PATH`\n".into();
    }
    let head = [
        ("NAME", Align::Left),
        ("STATE", Align::Left),
        ("SIZE", Align::Right),
        ("CACHED", Align::Right),
        ("DIRTY", Align::Right),
        ("RAM", Align::Right),
        ("VOLUMES", Align::Right),
        ("SSD", Align::Left),
    ];
    let row = |p: &PoolView| {
        vec![
            p.name.clone(),
            p.health.word().into(),
            known(Some(p.size_bytes).filter(|bytes| *bytes > 0)),
            known(p.cached_bytes),
            known(p.dirty_bytes),
            human::bytes(p.ram_bytes),
            p.volumes.len().to_string(),
            p.ssd.clone(),
        ]
    };
    let troubles = pools.iter().filter_map(|p| trouble(&p.name, p.health, &p.problem, &p.remedy));
    table::layout(&head, &pools.iter().map(row).collect::<Vec<_>>()) + &troubles.collect::<String>()
}

/// One pool.
pub fn pool(pool: &PoolView) -> String {
    let share = |part: Option<u64>| match part {
        Some(part) if pool.size_bytes > 0 && part > pool.size_bytes => {
            format!(" ({:.2} times its size, as content is stored smaller)", part as f64 / pool.size_bytes as f64)
        }
        Some(part) if pool.size_bytes > 0 => format!(" ({:.0} %)", part as f64 * 100.0 / pool.size_bytes as f64),
        _ => String::new(),
    };
    let blocks = pool.cached_bytes.unwrap_or(0) / types::BLOCK_BYTES;
    let per_block = match pool.index_bytes.checked_div(blocks) {
        Some(bytes) if blocks >= 100_000 => format!(" ({bytes} bytes per cached block)"),
        // With few blocks the figure tells the tables' first size, not the cost of a block.
        _ => String::new(),
    };
    let mut pairs = vec![
        ("name", pool.name.clone()),
        ("state", pool.health.word().into()),
        ("ssd", pool.ssd.clone()),
        ("size", known(Some(pool.size_bytes).filter(|bytes| *bytes > 0))),
        ("cached", known(pool.cached_bytes) + &share(pool.cached_bytes)),
        ("dirty", known(pool.dirty_bytes) + &share(pool.dirty_bytes)),
        ("RAM tier", human::bytes(pool.ram_bytes)),
        ("RAM for the index", human::bytes(pool.index_bytes) + &per_block),
        ("content", pool.content.name().into()),
        ("on a blank SSD", pool.on_blank_ssd.clone()),
        ("write amplification", write_amplification(pool)),
        ("room for disks", if pool.disks_bytes == 0 { "none".into() } else { human::bytes(pool.disks_bytes) }),
        ("disks", if pool.disks.is_empty() { "none".into() } else { pool.disks.join(", ") }),
        ("volumes", if pool.volumes.is_empty() { "none".into() } else { pool.volumes.join(", ") }),
        ("uuid", pool.uuid.to_string()),
    ];
    pairs.extend(pool.spare.iter().map(|spare| ("spare", spared(spare, pool.size_bytes))));
    // Few SSDs have them: of the others there is nothing to say.
    pairs.extend(pool.write_streams.iter().map(|streams| ("write streams", write_streams(streams))));
    pairs.extend(pool.slot_stats.iter().flat_map(slot_figures));
    pairs.extend(pool.content_stats.iter().flat_map(content_figures::pairs));
    pairs.extend(pool.recovery.iter().map(|line| ("last start", line.clone())));
    troubled(pairs, &pool.problem, &pool.remedy)
}

/// How the SSD is used.
fn slot_figures(stats: &SlotStats) -> Vec<(&'static str, String)> {
    let percent = |part: f64| format!("{:.1} %", part * 100.0);
    let live = format!("{} of {} ({})", human::bytes(stats.live_bytes), human::bytes(stats.size_bytes), percent(stats.live_part));
    let a_piece =
        stats.free_bytes.checked_div(stats.free_runs).map_or(String::new(), |bytes| format!(" of {} on average", human::bytes(bytes)));
    let free = format!("{} in {} pieces{a_piece}", human::bytes(stats.free_bytes), stats.free_runs);
    let ring = format!("{} of {} would be read after a crash", human::bytes(stats.ring_used_bytes), human::bytes(stats.ring_bytes));
    let packed = match stats.packed_bytes {
        0 => "nothing".into(),
        bytes => {
            let (used, part) = (stats.packed_payload_bytes, stats.packed_payload_bytes as f64 / bytes as f64);
            format!(
                "{} blocks in {}, of which {} are used ({})",
                stats.packed_blocks,
                human::bytes(bytes),
                human::bytes(used),
                percent(part)
            )
        }
    };
    let followed = |policy: &PolicyStats| match policy.shards {
        0 => None,
        1 => Some(format!("{} in 1 shard", policy.policy)),
        shards => Some(format!("{} in {shards} shards", policy.policy)),
    };
    let followed: Vec<String> = stats.policies.iter().filter_map(followed).collect();
    let since = match stats.policy_changes {
        0 => "never changed".into(),
        changes => format!("changed {changes} times, last {} accesses ago", stats.accesses_since_change),
    };
    let missed = |policy: &PolicyStats| Some(format!("{} {}", policy.policy, percent(policy.miss_part?)));
    let missed: Vec<String> = stats.policies.iter().filter_map(missed).collect();
    let missed = if missed.is_empty() { "not known yet".into() } else { missed.join(", ") };
    vec![
        ("live", live),
        ("free", free),
        ("packed", packed),
        ("statements", ring),
        ("policy", format!("{}; {since}", followed.join(", "))),
        ("policies would miss", missed),
    ]
}

/// All volumes, one line each.
pub fn volumes(volumes: &[VolumeView]) -> String {
    if volumes.is_empty() {
        return "no volumes; create one with `hearth volume add NAME --backing PATH --pool POOL --export block`\n".into();
    }
    let head = [
        ("NAME", Align::Left),
        ("STATE", Align::Left),
        ("MODE", Align::Left),
        ("SIZE", Align::Right),
        ("CACHED", Align::Right),
        ("DIRTY", Align::Right),
        ("POOL", Align::Left),
        ("BACKING", Align::Left),
        ("EXPORTS", Align::Left),
    ];
    let row = |v: &VolumeView| {
        vec![
            v.name.clone(),
            v.health.word().into(),
            v.options.mode.name().into(),
            human::bytes(v.size_bytes),
            known(v.cached_bytes),
            known(v.dirty_bytes),
            v.pool.clone(),
            v.backing.clone(),
            v.stable_path.iter().chain(v.exports.values().flatten()).cloned().collect::<Vec<_>>().join(" "),
        ]
    };
    let troubles = volumes.iter().filter_map(|v| trouble(&v.name, v.health, &v.problem, &v.remedy));
    table::layout(&head, &volumes.iter().map(row).collect::<Vec<_>>()) + &troubles.collect::<String>()
}

/// One volume.
pub fn volume(volume: &VolumeView) -> String {
    let options = &volume.options;
    let or_off = |bytes: Option<u64>| bytes.map_or("off".into(), human::bytes);
    let time = |ms: u64| human::nanoseconds(ms.saturating_mul(1_000_000));
    let mut pairs = vec![
        ("name", volume.name.clone()),
        ("state", volume.health.word().into()),
        ("size", human::bytes(volume.size_bytes)),
        ("sector size", volume.sector_bytes.map_or("the backing device's".into(), |bytes| format!("{bytes} B"))),
        ("backing", volume.backing.clone()),
        ("pool", volume.pool.clone()),
    ];
    let grown = volume.backing_size_bytes.filter(|bytes| *bytes > volume.size_bytes);
    pairs.extend(grown.map(|bytes| {
        let remedy = format!("serve all of it with `hearth volume grow {}`", volume.name);
        ("backing has grown", format!("to {}: {remedy}", human::bytes(bytes)))
    }));
    let export = |(how, place): (&String, &Option<String>)| {
        let restart = volume.on_restart.get(how).map(|what| format!(" (while the daemon restarts: {})", what.sentence()));
        let note = volume.export_notes.get(how).map(|note| format!(", {note}"));
        let place = place.as_deref().unwrap_or("no export now");
        ("export", format!("{how}: {place}{}{}", note.unwrap_or_default(), restart.unwrap_or_default()))
    };
    pairs.extend(volume.exports.iter().map(export));
    if volume.exports.keys().any(|how| how.starts_with("nbds")) {
        pairs.push(("TLS names", api::options::tls_names(&options.tls_names)));
    }
    pairs.extend(volume.stable_path.iter().map(|path| ("stable name", path.clone())));
    pairs.extend(volume.shares.iter().map(share));
    pairs.extend(volume.attached_to.iter().map(|device| ("attached live to", device.clone())));
    pairs.extend([
        ("cached", known(volume.cached_bytes)),
        ("dirty", known(volume.dirty_bytes)),
        ("mode", options.mode.name().into()),
        ("admission", options.admission.name().into()),
        ("write-cache depth", time(options.write_cache_depth_ms)),
        ("dirty limit", or_off(options.dirty_limit_bytes)),
        ("max I/O size", human::bytes(options.max_io_bytes)),
        ("sequential cutoff", or_off(options.sequential_cutoff_bytes)),
        ("log burst", or_off(options.log_burst_bytes)),
        ("latency goal", time(options.latency_goal_ms)),
        ("destage rate", options.destage_rate_bytes.map_or("off".into(), |b| human::bytes(b) + "/s")),
        ("on loss of the SSD", options.on_ssd_loss.name().into()),
        ("atomic writes", atomic_writes(volume)),
        ("read-only", if options.read_only { "yes".into() } else { "no".into() }),
        ("uuid", volume.uuid.to_string()),
    ]);
    pairs.extend(volume.job.iter().map(|job| ("under way", format!("{} ({})", job.kind.word(), crate::progress::done_of(job)))));
    troubled(pairs, &volume.problem, &volume.remedy)
}

fn atomic_writes(volume: &VolumeView) -> String {
    match volume.options.atomic_bytes {
        None => "off".into(),
        Some(bytes) if volume.health == Health::Degraded => {
            format!("{}, but not without the SSD: the backing device may tear them", human::bytes(bytes.into()))
        }
        Some(bytes) => human::bytes(bytes.into()),
    }
}

fn troubled(mut pairs: Vec<(&str, String)>, problem: &Option<String>, remedy: &Option<String>) -> String {
    pairs.extend(problem.iter().map(|p| ("problem", p.clone())));
    pairs.extend(remedy.iter().filter(|r| !r.is_empty()).map(|r| ("what to do", r.clone())));
    table::pairs(&pairs)
}

fn trouble(name: &str, health: Health, problem: &Option<String>, remedy: &Option<String>) -> Option<String> {
    let problem = problem.as_ref()?;
    let remedy = remedy.as_deref().filter(|r| !r.is_empty()).map_or(String::new(), |r| format!("; {r}"));
    Some(format!("{name} is {}: {problem}{remedy}\n", health.word()))
}

/// How a volume or disk is offered to other machines.
pub fn share(share: &ShareView) -> (&'static str, String) {
    let state = if share.device.is_some() { share.addresses.join(", ") } else { "not shared now".into() };
    ("share", format!("{}: {state} ({})", share.protocol.title(), share.target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_streams_are_those_in_use_or_say_why_there_are_none() {
        let uses = ["ring", "packed blocks", "clients' writes", "fills"].map(String::from).to_vec();
        let streams = WriteStreams { announced: 8, uses, refused: None };
        assert_eq!(write_streams(&streams), "4 (ring, packed blocks, clients' writes, fills)");
        let refused = WriteStreams { announced: 8, uses: Vec::new(), refused: Some("Invalid argument".into()) };
        assert_eq!(write_streams(&refused), "none: the SSD announces 8 and refused a write that named one (Invalid argument)");
    }
}
