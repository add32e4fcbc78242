//! The plan and the pace on the modelled 7,200 rpm disk, in virtual time, as the job runs them: how long 20 GiB take, and what clients feel.

use super::{Allowed, Pace, Plan, Seen};
use datapath::Piece;
use device::model::workload::Random;
use device::model::{DiskModel, IoDescription, IoKind, ModelSet};
use runtime::Histogram;
use std::collections::{BTreeMap, VecDeque};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
/// Size of the modelled disk: 4 TB, as its data sheet has it.
const DISK_BYTES: u64 = 4_000_000_000_000 / 4096 * 4096;
/// The latency goal of a volume, as it is by default.
const GOAL_NS: u64 = 50 * MS;
/// Tokens of clients' requests are above.
const CLIENT: u64 = 1 << 32;

/// As `manager/preload.rs` and `machine/warm.rs` have them.
const IN_FLIGHT: usize = 2;
const FULL_TURN_BYTES: u64 = 16 * MIB;
const TURNS_PER_SECOND: u64 = 20;
/// A turn is begun by another thread than the one that reads.
const TURN_NS: u64 = 200_000;

/// Clients that read 16 KiB anywhere in a part of the disk, each with a time to think after each answer.
#[derive(Clone, Copy)]
struct Load {
    clients: u64,
    think_ns: u64,
    span_bytes: u64,
}

struct Ran {
    elapsed_ns: u64,
    read_bytes: u64,
    clients: Histogram,
}

/// One machine: a disk, clients, and perhaps a preload.
struct Machine {
    disk: DiskModel,
    now_ns: u64,
    random: Random,
    load: Option<Load>,
    /// When each client asks next.
    thinking: BTreeMap<(u64, u64), ()>,
    asked_at: BTreeMap<u64, u64>,
    all: Histogram,
}

impl Machine {
    fn new(load: Option<Load>) -> Machine {
        let mut random = Random::new(7);
        let clients = load.map_or(0, |load| load.clients);
        let thinking = (0..clients).map(|client| ((random.below(100 * MS), client), ())).collect();
        let disk = DiskModel::new(ModelSet::Disk7k2, DISK_BYTES);
        Machine { disk, now_ns: 0, random, load, thinking, asked_at: BTreeMap::new(), all: Histogram::default() }
    }

    fn read(&mut self, token: u64, offset_bytes: u64, length_bytes: u64) {
        self.disk.submit(self.now_ns, IoDescription { token, kind: IoKind::Read, offset_bytes, length_bytes, fua: false });
    }

    /// Goes on to the next thing that happens, no later than that. The preload's reads that have ended.
    fn step(&mut self, until_ns: u64) -> Vec<u64> {
        let thought = self.thinking.keys().next().map(|(at, _)| *at);
        let next = [self.disk.next_deadline_ns(), thought].into_iter().flatten().min().unwrap_or(u64::MAX);
        self.now_ns = next.min(until_ns).max(self.now_ns);
        let mut ended = Vec::new();
        while let Some(token) = self.disk.pop_completed(self.now_ns) {
            match token.checked_sub(CLIENT) {
                Some(client) => {
                    let since = self.asked_at.remove(&client).expect("it has asked");
                    self.all.record(self.now_ns - since);
                    let think_ns = self.load.map_or(0, |load| load.think_ns);
                    // Half as long to one and a half times as long: they do not march in step.
                    let think_ns = think_ns / 2 + self.random.below(think_ns + 1);
                    self.thinking.insert((self.now_ns + think_ns, client), ());
                }
                None => ended.push(token),
            }
        }
        while let Some(((at, client), ())) =
            self.thinking.first_key_value().map(|(key, ())| (*key, ())).filter(|((at, _), ())| *at <= self.now_ns)
        {
            self.thinking.remove(&(at, client));
            self.asked_at.insert(client, self.now_ns);
            let span_bytes = self.load.map_or(DISK_BYTES, |load| load.span_bytes);
            let offset_bytes = self.random.below(span_bytes / 16384) * 16384;
            self.read(CLIENT + client, offset_bytes, 16384);
        }
        ended
    }

    /// Clients alone.
    fn rest(&mut self, for_ns: u64) -> Histogram {
        let (before, end) = (self.all.clone(), self.now_ns + for_ns);
        while self.now_ns < end {
            self.step(end);
        }
        self.all.since(&before)
    }

    /// As the job runs it: turns at the pace, a look a second.
    fn preload(&mut self, plan: &Plan, goal_ns: u64, at_most_ns: u64) -> Ran {
        let (began, before) = (self.now_ns, self.all.clone());
        let mut pace = Pace::new(None);
        let (mut looked_ns, mut looked, mut since_look) = (began, self.all.clone(), 0);
        let (mut at_bytes, mut next_ns, mut read_bytes, mut token) = (0, began, 0, 0);
        let mut waiting: VecDeque<Piece> = VecDeque::new();
        let mut under_way = 0;
        while self.now_ns < began + at_most_ns {
            if self.now_ns >= looked_ns + SECOND {
                let seen = Seen { clients: self.all.since(&looked), read_bytes: since_look, span_ms: (self.now_ns - looked_ns) / MS };
                pace.look(&seen, goal_ns);
                (looked_ns, looked, since_look) = (self.now_ns, self.all.clone(), 0);
            }
            if waiting.is_empty() && under_way == 0 {
                let turn_bytes = match pace.allowed() {
                    Allowed::Nothing => 0,
                    Allowed::All => FULL_TURN_BYTES,
                    Allowed::BytesPerSecond(_) if next_ns > self.now_ns => 0,
                    Allowed::BytesPerSecond(rate) => (rate / TURNS_PER_SECOND).clamp(1, FULL_TURN_BYTES),
                };
                if turn_bytes > 0 {
                    self.rest(TURN_NS);
                    waiting = plan.pieces(at_bytes, turn_bytes, MIB).into();
                    let Some(last) = waiting.back() else { break };
                    at_bytes = last.end_bytes();
                    let bytes: u64 = waiting.iter().map(|piece| piece.length_bytes).sum();
                    (read_bytes, since_look) = (read_bytes + bytes, since_look + bytes);
                    if let Allowed::BytesPerSecond(rate) = pace.allowed() {
                        next_ns = next_ns.max(self.now_ns.saturating_sub(SECOND)) + bytes * 1000 / rate * MS;
                    }
                }
            }
            while under_way < IN_FLIGHT
                && let Some(piece) = waiting.pop_front()
            {
                token += 1;
                under_way += 1;
                self.read(token, piece.at_bytes, piece.length_bytes);
            }
            let idle_until = if waiting.is_empty() && under_way == 0 { next_ns.max(self.now_ns + MS) } else { u64::MAX };
            under_way -= self.step(idle_until.min(looked_ns + SECOND)).len();
        }
        Ran { elapsed_ns: self.now_ns - began, read_bytes, clients: self.all.since(&before) }
    }
}

/// 20 GiB as an advice would have them: ranges of 1 to 63 MiB with gaps of up to four times as much, in the first part of the disk.
fn scattered(bytes: u64) -> Vec<std::ops::Range<u64>> {
    let mut random = Random::new(3);
    let (mut at, mut left, mut ranges) = (100 * GIB, bytes, Vec::new());
    while left > 0 {
        let length = ((1 + random.below(63)) * MIB).min(left);
        ranges.push(at..at + length);
        left -= length;
        at += length + random.below(4 * 63) * MIB;
    }
    ranges
}

#[test]
fn twenty_gib_of_an_idle_disk_take_less_than_six_minutes() {
    for (name, ranges) in [("one range", vec![100 * GIB..120 * GIB]), ("scattered", scattered(20 * GIB))] {
        let plan = Plan::new(&ranges, None, DISK_BYTES);
        let ran = Machine::new(None).preload(&plan, 50 * MS, 3600 * SECOND);
        let rate = plan.bytes() as f64 * 1e3 / ran.elapsed_ns as f64;
        println!("{name}: {} ranges, 20 GiB in {} s: {rate:.0} MB/s", plan.ranges().len(), ran.elapsed_ns / SECOND);
        assert_eq!(plan.bytes(), 20 * GIB);
        assert!(ran.elapsed_ns <= 360 * SECOND, "{name}: {} s", ran.elapsed_ns / SECOND);
    }
}

#[test]
fn clients_keep_their_p99_within_one_and_a_half() {
    for (clients, think_ms) in [(1, 20), (4, 20), (8, 40), (16, 20)] {
        let load = Load { clients, think_ns: think_ms * MS, span_bytes: 200 * GIB };
        let mut machine = Machine::new(Some(load));
        machine.rest(10 * SECOND);
        let alone = machine.rest(100 * SECOND);
        let plan = Plan::new(&[100 * GIB..120 * GIB], None, DISK_BYTES);
        let ran = machine.preload(&plan, GOAL_NS, 300 * SECOND);
        let (alone_ms, beside_ms) = (alone.percentile_ns(990) as f64 / 1e6, ran.clients.percentile_ns(990) as f64 / 1e6);
        let rate = ran.read_bytes as f64 * 1e9 / ran.elapsed_ns as f64 / MIB as f64;
        println!(
            "{clients} clients, {think_ms} ms: {:.0} IOPS alone, p99 {alone_ms:.1} ms; beside {:.0} IOPS, p99 {beside_ms:.1} ms ({:.2}), {rate:.1} MiB/s, {} s",
            alone.count() as f64 / 100.0,
            ran.clients.count() as f64 * 1e9 / ran.elapsed_ns as f64,
            beside_ms / alone_ms,
            ran.elapsed_ns / SECOND,
        );
        // Of a disk that is nearly idle, the part of the goal that is free may be used; the bucket of a histogram is 4 % wide.
        let most_ms = (1.5 * alone_ms).max(GOAL_NS as f64 / 2e6 * 1.1);
        assert!(beside_ms <= most_ms, "{clients} clients: p99 {alone_ms} ms alone, {beside_ms} ms beside");
    }
}
