//! `hearth replay`: a trace through the shipping engine over modelled devices, beside LRU and the optimum.

use crate::cli::Replay;
use crate::commands::print;
use crate::failure::Failure;
use crate::progress::patiently;
use crate::{quantity, table};
use api::human;
use retention::MEMBERS;
use serde::Serialize;
use std::collections::BTreeMap;
use traces::members::Members;
use traces::read::Recording;
use traces::replay::Yardsticks;
use traces::shard_replay::{ShardReplay, ShardReplayConfig};
use traces::stream::Stream;
use types::{Admission, BLOCK_BYTES};

/// Part of the cache that is RAM, unless `--ram` says otherwise.
const RAM_PERCENT: u64 = 10;

#[derive(Serialize)]
struct Report {
    requests: u64,
    block_accesses: u64,
    footprint_bytes: u64,
    pool_bytes: u64,
    miss_ratio: f64,
    miss_ratio_lru: f64,
    miss_ratio_belady: f64,
    /// Of the policies that the cache chooses from without layout and RAM tier, by their letters, and of the choice among them.
    miss_ratios_of_members: BTreeMap<char, f64>,
    miss_ratio_chosen: f64,
    /// The member that was followed last, and how often another was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    followed: Option<Followed>,
    gap_closed: Option<f64>,
    ssd_written_bytes: u64,
    ssd_written_bytes_admit_always: u64,
    /// Sentences.
    doubts: Vec<String>,
}

#[derive(Serialize)]
struct Followed {
    member: char,
    changes: u64,
}

/// Replays and prints.
///
/// # Errors
/// With the sentence to print.
pub fn replay(asked: &Replay, json: bool) -> Result<(), Failure> {
    let pool_bytes = quantity::size("--pool-size", &asked.pool_size)?;
    let read = traces::read::read_recording(&asked.trace);
    let Recording { requests, doubts } = read.map_err(|error| Failure::failed(error.to_string(), error.remedy()))?;
    doubts.iter().for_each(|doubt| crate::logs::say(format_args!("hearth: note: {doubt}")));
    let report = patiently("replaying", || {
        let stream = Stream::new(&requests);
        // A cache larger than the footprint is as good as one of its size, and the models' tables would only grow.
        let blocks = (pool_bytes / BLOCK_BYTES).clamp(2, stream.footprint_blocks().max(2));
        let ram_blocks = (blocks * RAM_PERCENT / 100).max(1);
        let config = ShardReplayConfig { ram_blocks, ssd_pages: blocks - ram_blocks, admission: Admission::SecondTouch };
        let (cache, stats) = ShardReplay::new(config).run_with_stats(&requests);
        let members = Members::new(&stream, blocks);
        let yardsticks = Yardsticks::new(&stream, blocks);
        Report {
            requests: requests.len() as u64,
            block_accesses: cache.accesses,
            footprint_bytes: stream.footprint_blocks() * BLOCK_BYTES,
            pool_bytes,
            miss_ratio: cache.miss_ratio(),
            miss_ratio_lru: yardsticks.lru.miss_ratio(),
            miss_ratio_belady: yardsticks.belady.miss_ratio(),
            miss_ratios_of_members: MEMBERS.iter().zip(members.alone).map(|(member, alone)| (member.name, alone.miss_ratio())).collect(),
            miss_ratio_chosen: members.chosen.miss_ratio(),
            followed: stats.retention.map(|choice| Followed { member: MEMBERS[choice.member].name, changes: choice.changes }),
            gap_closed: yardsticks.gap_closed(&cache),
            ssd_written_bytes: cache.ssd_blocks_written * BLOCK_BYTES,
            ssd_written_bytes_admit_always: yardsticks.admit_always.ssd_blocks_written * BLOCK_BYTES,
            doubts,
        }
    });
    if json {
        let text = serde_json::to_string_pretty(&report).expect("a report can be written as JSON");
        return print(&(text + "\n"));
    }
    show(&report)
}

fn show(report: &Report) -> Result<(), Failure> {
    let percent = |ratio: f64| format!("{:.2} %", ratio * 100.0);
    let members: Vec<String> = report.miss_ratios_of_members.iter().map(|(name, ratio)| format!("{name} {}", percent(*ratio))).collect();
    let followed = report.followed.as_ref().map_or("none".into(), |followed| {
        format!("{}, after {} {}", followed.member, followed.changes, if followed.changes == 1 { "change" } else { "changes" })
    });
    print(&table::pairs(&[
        ("requests", format!("{} ({} block accesses)", report.requests, report.block_accesses)),
        ("footprint", human::bytes(report.footprint_bytes)),
        ("cache", format!("{} ({RAM_PERCENT} % of it RAM)", human::bytes(report.pool_bytes))),
        ("miss ratio", percent(report.miss_ratio)),
        ("miss ratio of LRU", percent(report.miss_ratio_lru)),
        ("miss ratio of the optimum", percent(report.miss_ratio_belady)),
        ("of LRU's gap to the optimum", report.gap_closed.map_or("no gap".into(), |g| format!("{} closed", percent(g)))),
        ("policies without layout", members.join(", ")),
        ("the choice among them", percent(report.miss_ratio_chosen)),
        ("policy followed last", followed),
        ("SSD written", human::bytes(report.ssd_written_bytes)),
        ("SSD written if all is admitted", human::bytes(report.ssd_written_bytes_admit_always)),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_that_cannot_be_used_is_told_with_its_reason() {
        let place = tempfile::tempdir().expect("room");
        let told = |name: &str, text: Option<&str>| {
            let path = place.path().join(name);
            text.into_iter().for_each(|text| std::fs::write(&path, text).expect("room"));
            let options = Replay { trace: path, pool_size: "1GiB".into() };
            replay(&options, false).expect_err(name).message.replace(&format!("{}/", place.path().display()), "")
        };
        let missing = told("a.csv", None);
        assert!(missing.starts_with("trace a.csv cannot be read (No such file") && missing.ends_with("; check the path"), "{missing}");
        let wrong = told("b.csv", Some("1,R,0\n"));
        assert!(wrong.contains("line 1") && wrong.contains("time_us,R|W") && !wrong.contains(".vscsi"), "{wrong}");
        assert!(told("c.txt", Some("1,R,0,1\n")).ends_with("; give it the ending of what it holds"));
    }
}
