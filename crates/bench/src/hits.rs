//! CPU time of a 4 KiB read hit: index, policy, locks, reply and the copy of the data into the client's buffer.

use crate::report;
use crate::rig::{Rig, cpu_ns};
use anyhow::Result;
use engine::api::{Op, Outcome};
use engine::key::mix;

const HITS: u64 = 400_000;
const ROUNDS: usize = 5;
/// Blocks in the working set: 128 MiB, what the anchor was measured with.
const RAM_SET: u64 = 32_768;

/// RAM hits on one thread and on two, and SSD hits without the device's own time.
pub fn run() -> Result<()> {
    let one = median((0..ROUNDS).map(|_| ram_hit_ns()).collect());
    report("engine: RAM hit, 4 KiB, one thread", one, "ns CPU", Some(500.0));
    let two = median((0..ROUNDS).map(|_| two_threads_ns()).collect());
    report("engine: RAM hit, 4 KiB, two shards on two threads", two, "ns CPU", None);
    report("engine: two threads over one", two / one, "x", Some(1.05));
    let ssd = median((0..ROUNDS).map(|_| ssd_hit_ns()).collect());
    report("engine: SSD hit, 4 KiB, checksum included, device excluded", ssd, "ns CPU", Some(800.0));
    Ok(())
}

/// One warmed-up loop, for instruction counts: `valgrind --tool=callgrind --toggle-collect='*one_loop*'`. Without clocks, which valgrind and
/// the library that asks for them do not agree on.
pub fn instructions(of_ram: bool, hits: u64) {
    let mut rig = if of_ram { warm_ram(4096) } else { warm_ssd(4096) };
    println!("{}", one_loop(&mut rig, of_ram, hits));
}

#[inline(never)]
fn one_loop(rig: &mut Rig, of_ram: bool, hits: u64) -> u64 {
    if of_ram { ram_hits(rig, 4096, hits) } else { ssd_hits(rig, 4096, hits) }
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

fn ram_hits(rig: &mut Rig, set: u64, requests: u64) -> u64 {
    let mut buffer = [0_u8; 4096];
    let mut hits = 0;
    for step in 0..requests {
        let block = mix(step) % set;
        let reply = rig.request(Op::Read, block);
        buffer.copy_from_slice(&reply.pages[0][..]);
        hits += u64::from(reply.outcome == Outcome::RamHit && buffer[..8] == block.to_le_bytes());
    }
    hits
}

fn ssd_hits(rig: &mut Rig, set: u64, requests: u64) -> u64 {
    let mut hits = 0;
    for step in 0..requests {
        let block = mix(step) % set;
        let reply = rig.request(Op::Read, block);
        hits += u64::from(reply.outcome == Outcome::SsdHit && reply.pages[0][..8] == block.to_le_bytes());
    }
    hits
}

fn ram_hit_ns() -> f64 {
    let mut rig = warm_ram(RAM_SET);
    let begun = cpu_ns();
    let hits = ram_hits(&mut rig, RAM_SET, HITS);
    let spent = cpu_ns() - begun;
    assert_eq!(hits, HITS, "every read is a hit in RAM with the right data");
    spent as f64 / HITS as f64
}

fn two_threads_ns() -> f64 {
    let threads: Vec<_> = (0..2).map(|_| std::thread::spawn(ram_hit_ns)).collect();
    let sum: f64 = threads.into_iter().map(|thread| thread.join().expect("the benchmark does not panic")).sum();
    sum / 2.0
}

fn ssd_hit_ns() -> f64 {
    let mut rig = warm_ssd(RAM_SET);
    let mut copy = vec![0_u8; 4096];
    let source = vec![1_u8; 64 << 20];
    let begun = cpu_ns();
    let hits = ssd_hits(&mut rig, RAM_SET, HITS);
    let spent = cpu_ns() - begun;
    assert_eq!(hits, HITS, "every read is a hit on the SSD with the right data");
    // The rig's SSD copies a page from a cold place for each read; that is the device's time, not ours.
    let begun = cpu_ns();
    for step in 0..HITS {
        let from = (mix(step) % (source.len() as u64 / 4096) * 4096) as usize;
        copy.copy_from_slice(&source[from..from + 4096]);
        std::hint::black_box(&copy);
    }
    let device = cpu_ns() - begun;
    (spent.saturating_sub(device)) as f64 / HITS as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
