//! What cold hints bring: the recorded load with backups through the shipping engine, once as the
//! data path treats scans by itself, once with hints about what was told later (`../shared`;
//! skipped with a message where it is absent).

// Shared with the tests of streams; here some of it stays unused.

use crate::recorded_loads::{Judged, Known, Load};
use applications::streams::Evidence;
use engine::api::VolumeOptions;
use pool::alone::{Alone, AloneConfig};
use std::ops::Range;
use std::path::Path;
use types::{BLOCK_BYTES, EXTENT_BLOCKS, Mode};

const VOLUME: u32 = 1;
const BLOCKS_PER_MIB: u64 = (1 << 20) / BLOCK_BYTES;
/// The observer sends its hints so often.
const HINTS_EVERY_MS: u64 = 1000;

/// What a cache did with the load.
struct Done {
    /// Blocks that the application read, and those of them that were cached.
    application_blocks: u64,
    hit_blocks: u64,
    ssd_mib: u64,
}

impl Done {
    fn hit_share(&self) -> f64 {
        self.hit_blocks as f64 / self.application_blocks as f64
    }
}

fn blocks(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / BLOCK_BYTES..bytes.end.div_ceil(BLOCK_BYTES)
}

/// Write-through, since what is dirty reaches the SSD whatever is known of scans.
fn replay(load: &Load, judged: &Judged, (ram_mib, ssd_mib): (u64, u64), hints: bool) -> Done {
    let options = VolumeOptions { mode: Mode::WriteThrough, ..VolumeOptions::default() };
    let config = AloneConfig { ram_blocks: ram_mib * BLOCKS_PER_MIB, ssd_pages: ssd_mib * BLOCKS_PER_MIB, options };
    let mut replica = Alone::new(config);
    let mut done = Done { application_blocks: 0, hit_blocks: 0, ssd_mib: 0 };
    let (mut cold, mut hinted_ms): (Vec<Range<u64>>, u64) = (Vec::new(), 0);
    let mut late = judged.late.iter().peekable();
    for (index, row) in load.rows.iter().enumerate() {
        if hints && row.at_ms >= hinted_ms + HINTS_EVERY_MS {
            hinted_ms = row.at_ms;
            cold.drain(..).for_each(|bytes| replica.cool(VOLUME, blocks(&bytes)));
        }
        replica.advance_to(row.at_ms * 1_000_000);
        let bytes = row.offset_bytes..row.offset_bytes + u64::from(row.len_bytes);
        let scan = !row.write && judged.marked(index);
        let by_pages = judged.verdicts[index].evidence == Evidence::Chain;
        let Range { start: mut at, end } = blocks(&bytes);
        while at < end {
            let part = end.min((at / EXTENT_BLOCKS + 1) * EXTENT_BLOCKS) - at;
            // The data path knows a sequence while it is read, and the order of pages never.
            let missed = match scan && !by_pages {
                true => replica.read_as_stream(VOLUME, at, part),
                false => replica.access(VOLUME, at, part, row.write),
            };
            if !row.write && !row.scan {
                done.application_blocks += part;
                done.hit_blocks += part - missed;
            }
            at += part;
        }
        if scan && by_pages {
            cold.push(bytes);
        }
        while let Some((_, bytes)) = late.next_if(|(at, _)| *at <= index) {
            cold.push(bytes.clone());
        }
    }
    done.ssd_mib = replica.ssd_blocks_written() / BLOCKS_PER_MIB;
    done
}

/// Of a scan in the order of pages the data path knows nothing, so its pages enter RAM and go on to
/// the SSD as those of the application do. A hint takes them out before that.
#[test]
fn hints_spare_the_ssd_what_scans_read_and_take_no_hits() {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/pages/traces/oltp-with-backups.tsv.zst"));
    if !path.is_file() {
        println!("skipped: {} is not there", path.display());
        return;
    }
    let load = Load::read(path);
    let judged = load.judge(Known::Pages);
    for size_mib in [(256, 256), (256, 512)] {
        let (without, with) = (replay(&load, &judged, size_mib, false), replay(&load, &judged, size_mib, true));
        println!(
            "RAM and SSD {size_mib:?} MiB: hits of the application {:.4} without hints, {:.4} with; {} and {} MiB written to the SSD",
            without.hit_share(),
            with.hit_share(),
            without.ssd_mib,
            with.ssd_mib
        );
        // Measured: 0.554 and 0.559, 737 and 509 MiB; 0.597 and 0.586, 667 and 464 MiB.
        assert!(with.hit_share() >= without.hit_share() - 0.015, "{size_mib:?}: hits");
        assert!(with.ssd_mib * 100 <= without.ssd_mib * 88, "{size_mib:?}: {} of {} MiB", with.ssd_mib, without.ssd_mib);
    }
}
