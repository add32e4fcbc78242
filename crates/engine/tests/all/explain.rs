//! What a shard tells people who look: where blocks are, and for each way of a request the trace that it leaves, with its reason.

use engine::api::{Action, Command, Completion, Io, IoError, IoKind, Op, Origin, Outcome, Reply, Request, Target, VolumeOptions};
use engine::index::Slot;
use engine::packer::ContentOptions;
use engine::shard::{
    DIRTY_MAX_PERMILLE, EXPLAIN_BLOCKS_MAX, Explained, Form, Hits, PAGES_MIN, RecoveredBlock, Restored, Shard, ShardConfig,
};
use engine::store::StorePlace;
use engine::trail::{ENTRIES_PER_BUCKET, Recent};
use format::Layout;
use format::checkpoint::LogEnd;
use page::{PageMutVec, PagePool, PageVec};
use std::collections::VecDeque;
use types::{Admission, BypassReason, Content, Mode, ShardIndex, SsdIndex, VolumeId, VolumeIndex};

const VOLUME: VolumeIndex = VolumeIndex(3);
const SSD_BYTES: u64 = 4 << 20;
const VOLUME_BYTES: u64 = (64 << 20) + 512;
const SECOND: u64 = 1_000_000_000;

struct Rig {
    shard: Shard,
    pool: PagePool,
    ssd: Vec<u8>,
    io: VecDeque<Io>,
    replies: Vec<Reply>,
    now_ns: u64,
    /// I/Os of the backing device are not done.
    backing_hangs: bool,
    /// The SSD refuses to write.
    ssd_fails: bool,
}

impl Rig {
    fn new(ram_blocks: u64, options: VolumeOptions) -> Rig {
        Rig::with_dirty(ram_blocks, options, &[])
    }

    /// A shard whose recovery found these blocks dirty.
    fn with_dirty(ram_blocks: u64, options: VolumeOptions, dirty: &[u64]) -> Rig {
        let layout = Layout::plan(SSD_BYTES, 1, 64 << 10).expect("a small pool").with_packed_slots();
        let mut found = Restored::new(layout.slots_per_shard(), layout.pages_per_segment());
        for (slot, block) in (1..).zip(dirty.iter().copied()) {
            let (slot, mask, checksum, stored) = (Slot(slot), u8::MAX, 0, None);
            found.add(RecoveredBlock { volume: VOLUME, block, slot, dirty: true, mask, checksum, stored });
        }
        let pool = PagePool::new(PAGES_MIN + ram_blocks as usize + 4096);
        let place = StorePlace { uuid: [1; 16], session: 1, shard: ShardIndex(0), layout, ring_first: 0 };
        let config = ShardConfig { place, ram_blocks, pool: pool.clone(), dirty_max_permille: DIRTY_MAX_PERMILLE };
        let next_seq = if dirty.is_empty() { 1 } else { 2 };
        let mut shard = Shard::with_blocks(config, LogEnd { next_seq, next_group: next_seq, tail_seq: 1 }, found);
        shard.command(SECOND, Command::Attach { volume: VOLUME, id: VolumeId(1), size_bytes: VOLUME_BYTES, options });
        let (ssd, io) = (vec![0; SSD_BYTES as usize], VecDeque::new());
        Rig { shard, pool, ssd, io, replies: Vec::new(), now_ns: SECOND, backing_hangs: false, ssd_fails: false }
    }

    fn request(&mut self, op: Op, start_sector: u64, sectors: u32, bypass: Option<BypassReason>) {
        let blocks = (start_sector % 8 + u64::from(sectors)).div_ceil(8);
        let page = |at: u64| {
            let mut page = self.pool.allocate_zeroed().expect("pages for one request");
            (0..512).for_each(|word| {
                page[word * 8..word * 8 + 8].copy_from_slice(&engine::key::mix(start_sector ^ at << 40 ^ (word as u64) << 50).to_le_bytes())
            });
            page.freeze()
        };
        let pages: PageVec = if op == Op::Write { (0..blocks).map(page).collect() } else { PageVec::new() };
        let request = Request::new(1, VOLUME, op, start_sector, sectors, Origin::Client).around(bypass).pages(pages);
        self.shard.submit(self.now_ns, request);
        self.drain();
    }

    fn read(&mut self, block: u64) {
        self.request(Op::Read, block * 8, 8, None);
    }

    fn write(&mut self, block: u64) {
        self.request(Op::Write, block * 8, 8, None);
    }

    fn passes(&mut self, ns: u64) {
        self.now_ns += ns;
        self.shard.tick(self.now_ns);
        self.drain();
    }

    fn drain(&mut self) {
        loop {
            while let Some(action) = self.shard.poll_action() {
                match action {
                    Action::Io(io) => self.io.push_back(io),
                    Action::Reply(reply) => self.replies.push(reply),
                    Action::Event(_) => {}
                }
            }
            let able = |io: &Io| io.target.is_ssd() || !self.backing_hangs;
            let Some(at) = self.io.iter().position(able) else { return };
            let io = self.io.remove(at).expect("found above");
            self.perform(io);
        }
    }

    fn perform(&mut self, io: Io) {
        let (mut pages, mut result) = (PageMutVec::new(), Ok(()));
        match (io.target, io.kind) {
            (Target::Ssd(_), IoKind::Write { pages, .. }) => {
                result = if self.ssd_fails { Err(IoError::Failed) } else { Ok(()) };
                for (at, page) in pages.iter().enumerate() {
                    let from = io.offset_bytes as usize + at * 4096;
                    self.ssd[from..from + 4096].copy_from_slice(&page[..]);
                }
            }
            (target, IoKind::Read(mut wanted)) => {
                for (at, page) in wanted.iter_mut().enumerate() {
                    let from = io.offset_bytes as usize + at * 4096;
                    match target {
                        Target::Ssd(_) => page.copy_from_slice(&self.ssd[from..from + 4096]),
                        Target::Backing(_) => page.fill(7),
                    }
                }
                pages = wanted;
            }
            _ => {}
        }
        self.shard.complete(self.now_ns, Completion { id: io.id, result, pages });
    }

    fn explained(&self, first_block: u64, blocks: u64) -> Explained {
        self.shard.explain(self.now_ns, VOLUME, first_block, blocks).expect("it is attached")
    }

    fn recent(&self, block: u64) -> Vec<Recent> {
        self.explained(block, 1).recent
    }

    /// Reads each of so many blocks once, far from the others.
    fn scan(&mut self, blocks: u64) {
        (0..blocks).for_each(|block| self.read(8192 + block));
    }
}

fn options(mode: Mode) -> VolumeOptions {
    VolumeOptions { mode, admission: Admission::Always, write_cache_depth_ns: 3600 * SECOND, ..VolumeOptions::default() }
}

/// The newest trace at block 40 after what `act` does.
fn check(ram_blocks: u64, options: VolumeOptions, act: impl FnOnce(&mut Rig), expected: (Op, Outcome, Option<BypassReason>)) {
    let shown = format!("{options:?}");
    let mut rig = Rig::new(ram_blocks, options);
    act(&mut rig);
    let newest = rig.recent(40)[0];
    assert_eq!((newest.op, newest.outcome, newest.reason), expected, "{shown}");
    rig.shard.check_invariants();
}

#[test]
fn every_way_of_a_request_leaves_its_trace() {
    use BypassReason as Why;
    let through = || options(Mode::WriteThrough);
    let back = || options(Mode::WriteBack);
    let read = |rig: &mut Rig| rig.read(40);
    let write = |rig: &mut Rig| rig.write(40);
    check(8, through(), read, (Op::Read, Outcome::Miss, None));
    check(8, through(), |rig| (0..2).for_each(|_| rig.read(40)), (Op::Read, Outcome::RamHit, None));
    // One block takes a short way, two do not. On its way to the SSD a block is still in memory.
    for sectors in [8, 16] {
        let twice = |rig: &mut Rig| {
            (0..2).for_each(|_| {
                rig.request(Op::Read, 320, sectors, None);
                rig.passes(SECOND);
            });
        };
        check(0, through(), twice, (Op::Read, Outcome::SsdHit, None));
    }
    check(8, through(), write, (Op::Write, Outcome::WriteThrough, None));
    check(8, back(), write, (Op::Write, Outcome::WriteBack, None));
    check(8, back(), |rig| rig.request(Op::Discard, 320, 8, None), (Op::Discard, Outcome::Other, None));
    check(8, back(), |rig| rig.request(Op::WriteZeroes, 320, 8, None), (Op::WriteZeroes, Outcome::WriteBack, None));
    for reason in [Why::Size, Why::Sequential, Why::PassThrough] {
        let op = move |op| move |rig: &mut Rig| rig.request(op, 320, 8, Some(reason));
        check(8, through(), op(Op::Read), (Op::Read, Outcome::Bypass, Some(reason)));
        check(8, through(), op(Op::Write), (Op::Write, Outcome::Bypass, Some(reason)));
    }
    check(8, options(Mode::WriteAround), write, (Op::Write, Outcome::WriteThrough, Some(Why::WriteAround)));
    check(8, options(Mode::PassThrough), write, (Op::Write, Outcome::WriteThrough, Some(Why::PassThrough)));
}

#[test]
fn a_write_that_waited_says_for_what() {
    let limited = VolumeOptions { dirty_limit_bytes: 4096, ..options(Mode::WriteBack) };
    let mut rig = Rig::new(8, limited.clone());
    rig.backing_hangs = true;
    rig.write(39);
    rig.write(40);
    assert_eq!(rig.replies.len(), 1, "the second waits");
    assert_eq!(rig.shard.volume_stats(VOLUME).expect("attached").bypassed[BypassReason::DirtyLimit as usize], 1);
    rig.backing_hangs = false;
    rig.passes(SECOND);
    assert_eq!(rig.replies.len(), 2);
    let newest = rig.recent(40)[0];
    assert_eq!((newest.outcome, newest.reason), (Outcome::WriteBack, Some(BypassReason::DirtyLimit)));
}

#[test]
fn blocks_that_earned_no_place_say_so() {
    let second_touch = VolumeOptions { admission: Admission::SecondTouch, ..options(Mode::WriteThrough) };
    // RAM must be as large as the small part of the cache. That must be full of blocks read once,
    // and the rest of blocks that were read again.
    let mut rig = Rig::new(256, second_touch);
    // No block is beside another, or most would come along.
    for _ in 0..8 {
        (0..670).for_each(|block| rig.read(8 * block));
        rig.replies.clear();
    }
    let scanned = (8 * 670..16_384).step_by(8);
    scanned.clone().for_each(|block| rig.read(block));
    let counted = rig.shard.volume_stats(VOLUME).expect("attached").bypassed[BypassReason::FirstTouch as usize];
    assert!(counted > 100, "{counted}");
    let is_told = |block: &u64| {
        rig.recent(*block).iter().any(|recent| recent.start_sector == block * 8 && recent.reason == Some(BypassReason::FirstTouch))
    };
    let told: Vec<u64> = scanned.filter(is_told).collect();
    assert!(told.len() > 20, "{told:?}");
    assert!(told.iter().all(|block| rig.explained(*block, 1).blocks.is_empty()), "they are in no place");
    // What the backing device has not flushed may not enter the SSD.
    let mut rig = Rig::new(0, options(Mode::WriteThrough));
    rig.write(40);
    assert_eq!((rig.recent(40)[0].reason, rig.explained(40, 1).blocks), (Some(BypassReason::NoSpace), Vec::new()));
}

#[test]
fn without_its_ssd_requests_say_that_it_failed() {
    let mut rig = Rig::new(8, options(Mode::WriteThrough));
    rig.ssd_fails = true;
    rig.read(50);
    (0..9).for_each(|block| rig.read(60 + block));
    rig.passes(SECOND);
    assert_eq!(rig.shard.lost_ssd(), Some(SsdIndex::FIRST));
    rig.shard.command(rig.now_ns, Command::SsdForgotten { volume: VOLUME });
    rig.read(40);
    rig.write(40);
    let told: Vec<_> = rig.recent(40).iter().take(2).map(|recent| (recent.op, recent.outcome, recent.reason)).collect();
    let degraded = Some(BypassReason::Degraded);
    assert_eq!(told, [(Op::Write, Outcome::Bypass, degraded), (Op::Read, Outcome::Miss, degraded)]);
    assert_eq!(rig.shard.volume_stats(VOLUME).expect("attached").bypassed[BypassReason::Degraded as usize], 2);
}

#[test]
fn refused_requests_leave_no_trace_and_failed_ones_do() {
    let mut rig = Rig::new(8, VolumeOptions { read_only: true, ..options(Mode::WriteThrough) });
    rig.write(40);
    rig.request(Op::Read, 1 << 40, 8, None);
    rig.request(Op::Flush, 0, 0, None);
    assert_eq!((rig.replies.len(), rig.recent(40).len(), rig.recent(0).len()), (3, 0, 0));
    assert!(rig.shard.explain(0, VolumeIndex(4), 0, 1).is_none() && rig.shard.heat(0, VolumeIndex(4)).is_none(), "no such volume");
    // A failed read is no hit and no miss.
    rig.backing_hangs = true;
    rig.read(40);
    let io = rig.io.pop_front().expect("it waits for the backing device");
    let IoKind::Read(pages) = io.kind else { panic!("a read") };
    rig.shard.complete(rig.now_ns, Completion { id: io.id, result: Err(IoError::Failed), pages });
    rig.drain();
    assert_eq!(rig.recent(40).iter().map(|recent| recent.outcome).collect::<Vec<_>>(), [Outcome::Other]);
}

#[test]
fn blocks_are_told_with_place_form_age_and_use() {
    let mut rig = Rig::new(2, options(Mode::WriteBack));
    rig.backing_hangs = true;
    for block in [10, 11, 300] {
        rig.write(block);
    }
    rig.passes(5 * SECOND);
    (0..40).for_each(|_| rig.read(10));
    let Explained { blocks, dirty, recent } = rig.explained(9, 1024);
    let facts: Vec<_> = blocks.iter().map(|facts| (facts.block, facts.in_ram, facts.on_ssd.expect("in the log"))).collect();
    assert_eq!(facts.iter().map(|(block, ..)| *block).collect::<Vec<_>>(), [10, 11, 300]);
    assert!(facts.iter().all(|(_, _, kept)| kept.dirty && kept.form == Form::Plain), "{facts:?}");
    assert_eq!(facts.iter().filter(|(_, in_ram, _)| *in_ram).count(), 2);
    let ages: Vec<_> = dirty.iter().map(|extent| (extent.first_block, extent.for_ns)).collect();
    assert_eq!(ages, [(0, Some(5 * SECOND)), (256, Some(5 * SECOND))]);
    assert_eq!(recent.len(), ENTRIES_PER_BUCKET + 1, "eight of the first extent, one of the second");
    assert!(recent[..ENTRIES_PER_BUCKET].iter().all(|recent| recent.start_sector == 80 && recent.ago_ns < 1 << 21));

    assert_eq!(rig.shard.oldest_dirty_ns(VOLUME), Some(5 * SECOND));

    // Hits on the SSD count when a block is no longer new; hits in RAM do not.
    let mut rig = Rig::new(0, options(Mode::WriteBack));
    (0..3).for_each(|block| rig.write(block));
    rig.scan(100);
    rig.read(1);
    (0..200).for_each(|_| rig.read(2));
    let hits: Vec<_> = rig.explained(0, 3).blocks.iter().map(|facts| facts.on_ssd.expect("in the log").hits).collect();
    assert!(hits[0] == Hits::Never && hits[1] >= Hits::Some && hits[2] == Hits::Often, "{hits:?}");
}

/// The clock begins when the machine does: what a recovery finds must not look as old as that.
#[test]
fn dirty_blocks_of_an_earlier_life_are_as_old_as_this_one_at_least() {
    let mut rig = Rig::with_dirty(0, options(Mode::WriteBack), &[10]);
    rig.backing_hangs = true;
    assert_eq!(rig.shard.oldest_dirty_ns(VOLUME), Some(0));
    assert_eq!(rig.explained(0, 256).dirty[0].for_ns, None);
    rig.write(300);
    rig.passes(5 * SECOND);
    rig.write(600);
    rig.passes(2 * SECOND);
    assert_eq!(rig.shard.oldest_dirty_ns(VOLUME), Some(7 * SECOND));
}

#[test]
fn packed_blocks_are_told_with_their_form() {
    let mut rig = Rig::new(0, options(Mode::WriteBack));
    rig.shard.set_content(ContentOptions {
        level: Content::Fast,
        seed: 1,
        hint_bytes: 1 << 20,
        base_pages: 16,
        cpu_ns_per_second: u64::MAX,
        key_bits: 64,
    });
    rig.request(Op::WriteZeroes, 0, 8, None);
    rig.request(Op::WriteZeroes, 16, 8, None);
    rig.write(5);
    rig.passes(SECOND);
    let forms: Vec<_> = rig.explained(0, 8).blocks.iter().map(|facts| (facts.block, facts.on_ssd.expect("in the log").form)).collect();
    assert_eq!(forms[..2], [(0, Form::Zero), (2, Form::Zero)]);
    assert!(forms[2].0 == 5 && matches!(forms[2].1, Form::Raw | Form::Plain), "{forms:?}");
}

#[test]
fn heat_is_where_requests_are_and_fades_while_others_work() {
    let mut rig = Rig::new(8, options(Mode::WriteThrough));
    (0..100).for_each(|_| rig.read(5 * 256 + 1));
    rig.write(7 * 256);
    let counts = |rig: &Rig| rig.shard.heat(rig.now_ns, VOLUME).expect("attached").counts;
    let of = engine::region_heat::ONE;
    let before = counts(&rig);
    assert_eq!((before.len(), before[5], before[7], before.iter().sum::<u32>()), (65, 100 * of, of, 101 * of));
    // Counters that fade as time is taken note of, and those that did because nobody looked, come to the same.
    let silent = rig.shard.heat(rig.now_ns + 300 * SECOND, VOLUME).expect("attached").counts;
    for _ in 0..300 {
        rig.passes(SECOND);
    }
    assert_eq!(counts(&rig), silent);
    assert!((50 * of..60 * of).contains(&silent[5]) && silent[7] > 0, "{silent:?}");
    rig.passes(3600 * SECOND);
    assert!(counts(&rig).iter().all(|count| *count == 0));
}

#[test]
fn a_volume_that_comes_after_another_sees_nothing_of_it() {
    let mut rig = Rig::new(8, options(Mode::WriteThrough));
    rig.read(40);
    rig.shard.command(rig.now_ns, Command::Detach { token: 1, volume: VOLUME });
    rig.drain();
    let attach = Command::Attach { volume: VOLUME, id: VolumeId(2), size_bytes: VOLUME_BYTES, options: options(Mode::WriteThrough) };
    rig.shard.command(rig.now_ns, attach);
    assert_eq!(rig.explained(0, EXPLAIN_BLOCKS_MAX), Explained::default());
    assert!(rig.shard.heat(rig.now_ns, VOLUME).expect("attached").counts.iter().all(|count| *count == 0));
}

#[test]
fn counting_in_pieces_shows_each_block_once() {
    let mut rig = Rig::new(0, options(Mode::WriteBack));
    (0..500).for_each(|block| rig.write(block * 3));
    for steps in [1, 13, 100_000] {
        let (mut seen, mut position, mut calls) = (Vec::new(), 0, 0);
        while let Some(next) = rig.shard.look_at_index(position, steps, |volume, block, dirty| {
            assert_eq!(volume, VOLUME);
            seen.push((block, dirty));
        }) {
            assert!(next <= rig.shard.index_end());
            (position, calls) = (next, calls + 1);
        }
        seen.sort_unstable();
        let mut truth: Vec<_> = rig.shard.cached_blocks().map(|block| (block.block, block.dirty)).collect();
        truth.sort_unstable();
        assert_eq!(seen, truth);
        assert!(steps > 13 || calls * u64::from(steps) >= 500, "{calls} calls of {steps}");
        let mut in_range = Vec::new();
        rig.shard.look_at_range(VOLUME, 30, 60, |block, dirty| in_range.push((block, dirty)));
        in_range.sort_unstable();
        assert_eq!(in_range, truth.iter().copied().filter(|(block, _)| (30..90).contains(block)).collect::<Vec<_>>());
    }
}
