//! What a pool makes of what blocks contain, for people.

use api::human;
use api::stats::{ContentStats, ContentStep};
use types::{BLOCK_BYTES, Content};

/// Pairs for a table of one pool.
pub fn pairs(stats: &ContentStats) -> Vec<(&'static str, String)> {
    let effective = stats.effective_capacity.map_or("-".into(), |factor| {
        let (cached, stored) = (human::bytes(stats.cached_bytes), human::bytes(stats.stored_bytes));
        format!("{factor:.2} x of raw ({cached} cached in {stored} of the SSD)")
    });
    let encoding = stats.encoding_cpu_us_per_block.map_or("none yet".into(), |us| {
        let blocks = stats.encoded_blocks;
        format!("{us:.1} µs of CPU time a block ({blocks} blocks)")
    });
    let per_block = stats.memory_bytes_per_block.map_or(String::new(), |bytes| format!(" ({bytes:.1} bytes per cached block)"));
    let mut pairs = vec![
        ("effective capacity", effective),
        ("reference blocks", stats.reference_blocks.to_string()),
        ("associated blocks", stats.associated_blocks.to_string()),
        ("independent blocks", stats.independent_blocks.to_string()),
        ("zero blocks", stats.zero_blocks.to_string()),
        ("uncached reference blocks", stats.uncached_reference_blocks.to_string()),
        ("SSD writes saved", human::bytes(stats.saved_bytes)),
        ("encoding", encoding),
        ("bases in memory", format!("{} ({})", stats.bases_in_memory_blocks, human::bytes(stats.bases_in_memory_blocks * BLOCK_BYTES))),
        ("RAM for hints", human::bytes(stats.hint_bytes)),
        ("RAM for index and hints", human::bytes(stats.index_bytes + stats.hint_bytes) + &per_block),
    ];
    let level = stats.level.name();
    match stats.level {
        Content::Auto if stats.steps.is_empty() => pairs.push(("steps", "nothing was encoded yet".into())),
        Content::Auto => {
            let of_volume = |(volume, steps): (&String, &Vec<ContentStep>)| {
                steps.iter().map(|step| ("step", format!("{volume}: {}", described(step)))).collect::<Vec<_>>()
            };
            pairs.extend(stats.steps.iter().flat_map(of_volume));
        }
        Content::Off => pairs.push(("steps", format!("all closed: set by --content {level}"))),
        Content::Fast => pairs.push(("steps", format!("duplicates, versions, parts and lz4 open: set by --content {level}"))),
        Content::Dense => pairs.push(("steps", format!("all open: set by --content {level}"))),
    }
    pairs
}

fn described(step: &ContentStep) -> String {
    let ContentStep { step, open, open_shards, shards, saved_part, opens_from_part } = step;
    let how = match (*open_shards, open) {
        (0, _) => "closed".into(),
        (open_shards, true) if open_shards == *shards => "open".to_string(),
        (open_shards, _) => format!("open in {open_shards} of {shards} shards"),
    };
    format!("{step} {how}: saves {:.1} % (opens at {:.1} %)", saved_part * 100.0, opens_from_part * 100.0)
}

/// A line on one pool among others; `None` while nothing is cached.
pub fn line(pool: &str, stats: &ContentStats) -> Option<String> {
    let (factor, saved) = (stats.effective_capacity?, human::bytes(stats.saved_bytes));
    Some(format!("pool {pool}, content {}: {factor:.2} x of raw, {saved} of SSD writes saved\n", stats.level.name()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn steps(level: Content) -> Vec<String> {
        let step = |step: &str, open_shards, saved_part, opens_from_part| ContentStep {
            step: step.into(),
            open: open_shards > 1,
            open_shards,
            shards: 3,
            saved_part,
            opens_from_part,
        };
        let measured = vec![step("lz4", 3, 0.42, 0.0244), step("similar", 0, 0.003, 0.0586), step("zstd", 1, 0.05, 0.0732)];
        let steps = if level == Content::Auto { BTreeMap::from([("db".into(), measured)]) } else { BTreeMap::new() };
        let stats = ContentStats { level, steps, ..ContentStats::default() };
        pairs(&stats).into_iter().filter(|(key, _)| key.starts_with("step")).map(|(_, value)| value).collect()
    }

    #[test]
    fn steps_say_why_they_are_open() {
        let auto = steps(Content::Auto);
        assert_eq!(auto[0], "db: lz4 open: saves 42.0 % (opens at 2.4 %)");
        assert_eq!(auto[1], "db: similar closed: saves 0.3 % (opens at 5.9 %)");
        assert_eq!(auto[2], "db: zstd open in 1 of 3 shards: saves 5.0 % (opens at 7.3 %)");
        assert_eq!(steps(Content::Fast), ["duplicates, versions, parts and lz4 open: set by --content fast"]);
        assert_eq!(steps(Content::Off), ["all closed: set by --content off"]);
    }

    #[test]
    fn nothing_cached_is_no_factor() {
        let mut stats = ContentStats::default();
        assert_eq!(line("p", &stats), None);
        assert_eq!(pairs(&stats)[0].1, "-");
        (stats.effective_capacity, stats.saved_bytes) = (Some(2.345), 1 << 20);
        assert_eq!(line("p", &stats).expect("something is cached"), "pool p, content auto: 2.35 x of raw, 1 MiB of SSD writes saved\n");
    }
}
