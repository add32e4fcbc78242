//! CPU time of a 4 KiB read hit: index, policy, locks, reply and the copy of the data into the client's buffer.

use crate::report;
use crate::rig::{Rig, cpu_ns};
use anyhow::Result;
use engine::api::{Op, Outcome};
use engine::key::mix;

/// Hits between two looks at the clock, and how many such spells. What disturbs the machine for long disturbs neighbouring spells alike.
const SPELL: u64 = 10_000;
const SPELLS: usize = 60;
/// Blocks in the working set: 128 MiB, what the anchor was measured with.
const RAM_SET: u64 = 32_768;

/// RAM hits on one thread and on two, and SSD hits without the device's own time, each in turn with what the machine needs for the copy alone.
pub fn run() -> Result<()> {
    let one = ram_hits_timed();
    report("engine: RAM hit, 4 KiB, copy included, one thread", one.hit, "ns CPU", Some(500.0));
    report("engine: of this a plain copy of as many pages, as scattered", one.copy, "ns CPU", None);
    let threads: Vec<_> = (0..2).map(|_| std::thread::spawn(ram_hits_timed)).collect();
    let two: Vec<Timed> = threads.into_iter().map(|thread| thread.join().expect("the benchmark does not panic")).collect();
    let (hit, copy) = ((two[0].hit + two[1].hit) / 2.0, (two[0].copy + two[1].copy) / 2.0);
    report("engine: RAM hit, 4 KiB, copy included, two shards on two threads", hit, "ns CPU", None);
    report("engine: of this a plain copy", copy, "ns CPU", None);
    report("engine: two threads over one", hit / one.hit, "x", Some(1.05));
    report("engine: the same, of plain copies", copy / one.copy, "x", None);
    let ssd = ssd_hits_timed();
    report("engine: SSD hit, 4 KiB, checksum included, device excluded", ssd.hit - ssd.copy, "ns CPU", Some(800.0));
    report("engine: excluded, the copy that stands for the device", ssd.copy, "ns CPU", None);
    Ok(())
}

/// Medians over the spells, in nanoseconds of CPU for a hit and for a copy.
struct Timed {
    hit: f64,
    copy: f64,
}

fn in_turn(mut hits: impl FnMut(u64), mut copies: impl FnMut(u64)) -> Timed {
    let (mut hit, mut copy) = (Vec::new(), Vec::new());
    for spell in 0..SPELLS as u64 {
        for (what, figures) in [(&mut hits as &mut dyn FnMut(u64), &mut hit), (&mut copies, &mut copy)] {
            let begun = cpu_ns();
            what(spell * SPELL);
            figures.push((cpu_ns() - begun) as f64 / SPELL as f64);
        }
    }
    Timed { hit: median(hit), copy: median(copy) }
}

fn ram_hits_timed() -> Timed {
    let mut rig = warm_ram(RAM_SET);
    let plain = vec![1_u8; (RAM_SET * 4096) as usize];
    in_turn(
        |from| assert_eq!(ram_hits(&mut rig, RAM_SET, from, SPELL), SPELL, "every read is a hit in RAM with the right data"),
        |from| {
            copy_pages(&plain, from, SPELL);
        },
    )
}

fn ssd_hits_timed() -> Timed {
    let mut rig = warm_ssd(RAM_SET);
    // As far apart as the rig's SSD keeps them.
    let plain = vec![1_u8; (RAM_SET * 4096) as usize];
    in_turn(
        |from| assert_eq!(ssd_hits(&mut rig, RAM_SET, from, SPELL), SPELL, "every read is a hit on the SSD with the right data"),
        |from| {
            copy_pages(&plain, from, SPELL);
        },
    )
}

/// What is left if all but the copying is taken away.
fn copy_pages(pages: &[u8], from: u64, count: u64) {
    let mut copy = [0_u8; 4096];
    for step in from..from + count {
        let at = (mix(step) % (pages.len() as u64 / 4096) * 4096) as usize;
        copy.copy_from_slice(&pages[at..at + 4096]);
        std::hint::black_box(&copy);
    }
}

/// One warmed-up loop, for instruction counts: `valgrind --tool=callgrind --toggle-collect='*one_loop*'`. Without clocks, which valgrind and
/// the library that asks for them do not agree on.
pub fn instructions(which: &str, requests: u64) {
    let mut rig = match which {
        "count-ram" => warm_ram(4096),
        _ => warm_ssd(4096),
    };
    println!("{}", one_loop(&mut rig, which, requests));
}

#[inline(never)]
fn one_loop(rig: &mut Rig, which: &str, requests: u64) -> u64 {
    match which {
        "count-ram" => ram_hits(rig, 4096, 0, requests),
        "count-ssd" => ssd_hits(rig, 4096, 0, requests),
        "count-writes" => overwrites_at_depth(rig, 4096, requests),
        _ => overwrites(rig, 4096, 0, requests),
    }
}

fn warm_ram(set: u64) -> Rig {
    let mut rig = Rig::new(512 << 20, set + 1024);
    for block in 0..set {
        rig.request(Op::Write, block);
        rig.request(Op::Read, block);
    }
    rig
}

fn warm_ssd(set: u64) -> Rig {
    let mut rig = Rig::new(512 << 20, 0);
    (0..set).for_each(|block| drop(rig.request(Op::Write, block)));
    rig
}

fn ram_hits(rig: &mut Rig, set: u64, from: u64, requests: u64) -> u64 {
    let mut buffer = [0_u8; 4096];
    let mut hits = 0;
    for step in from..from + requests {
        let block = mix(step) % set;
        let reply = rig.request(Op::Read, block);
        buffer.copy_from_slice(&reply.pages[0][..]);
        hits += u64::from(reply.outcome == Outcome::RamHit && buffer[..8] == block.to_le_bytes());
    }
    hits
}

fn ssd_hits(rig: &mut Rig, set: u64, from: u64, requests: u64) -> u64 {
    let mut hits = 0;
    for step in from..from + requests {
        let block = mix(step) % set;
        let reply = rig.request(Op::Read, block);
        hits += u64::from(reply.outcome == Outcome::SsdHit && reply.pages[0][..8] == block.to_le_bytes());
    }
    hits
}

/// Writes of one block into the write cache, over dirty ones.
fn overwrites(rig: &mut Rig, set: u64, from: u64, requests: u64) -> u64 {
    let done = (from..from + requests).filter(|step| rig.request(Op::Write, mix(*step) % set).outcome == Outcome::WriteBack);
    done.count() as u64
}

/// The same, so many under way at a time.
fn overwrites_at_depth(rig: &mut Rig, set: u64, requests: u64) -> u64 {
    const DEPTH: u64 = 32;
    let content = [1; 4096];
    for first in (0..requests).step_by(DEPTH as usize) {
        let blocks: Vec<_> = (first..first + DEPTH).map(|step| (mix(step) % set, &content)).collect();
        rig.write(&blocks);
    }
    requests
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
