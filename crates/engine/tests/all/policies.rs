//! What policies of objects, streams and cold hints do, and what they never do, on devices in memory that answer at once.

use engine::api::{Action, Command, Completion, Io, IoError, IoKind, Op, Origin, Outcome, Reply, Request, VolumeOptions};
use engine::front::{Front, FrontAction};
use engine::policy::PINNED_MAX_PERMILLE;
use engine::shard::{DIRTY_MAX_PERMILLE, PAGES_MIN, Shard, ShardConfig};
use engine::stats::VolumeStats;
use engine::store::StorePlace;
use engine::treatment::{PolicyMap, PolicyRange};
use format::Layout;
use format::checkpoint::LogEnd;
use page::{PageMutVec, PagePool, PageVec};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use types::{Admission, Admit, BypassReason, Mode, ObjectWrites, OnScan, ShardIndex, Treatment, VolumeId, VolumeIndex};

const VOLUME: VolumeIndex = VolumeIndex(0);
const SSD_BYTES: u64 = 4 << 20;
const VOLUME_BYTES: u64 = 32 << 20;

const NEVER: Treatment = Treatment::new(Admit::Never, ObjectWrites::Inherit, OnScan::HitOnly);
const PINNED: Treatment = Treatment::new(Admit::Pinned, ObjectWrites::Inherit, OnScan::HitOnly);
const AROUND: Treatment = Treatment::new(Admit::Normal, ObjectWrites::Around, OnScan::HitOnly);
const THROUGH: Treatment = Treatment::new(Admit::Normal, ObjectWrites::Through, OnScan::HitOnly);
const SCANS: Treatment = Treatment::new(Admit::Normal, ObjectWrites::Inherit, OnScan::Normal);

pub struct Rig {
    pub front: Front,
    pub shard: Shard,
    pub pool: PagePool,
    pub ssd: Vec<u8>,
    pub backing: Vec<u8>,
    pub io: VecDeque<Io>,
    /// Reads of the backing device that do not come back yet.
    pub held: Option<Vec<Io>>,
    /// Bytes of the backing device that cannot be read.
    pub bad: Range<u64>,
    pub replies: Vec<Reply>,
    pub now_ns: u64,
}

impl Rig {
    pub fn new(ram_blocks: u64, options: VolumeOptions) -> Rig {
        let layout = Layout::plan(SSD_BYTES, 1, 64 << 10).expect("a small pool").with_packed_slots();
        let pool = PagePool::new(PAGES_MIN + ram_blocks as usize + 4096);
        let place = StorePlace { uuid: [1; 16], session: 1, shard: ShardIndex(0), layout, ring_first: 0 };
        let config = ShardConfig { place, ram_blocks, pool: pool.clone(), dirty_max_permille: DIRTY_MAX_PERMILLE };
        let mut rig = Rig {
            front: Front::new(1),
            shard: Shard::new(config, LogEnd { next_seq: 1, next_group: 1, tail_seq: 1 }),
            pool,
            ssd: vec![0; SSD_BYTES as usize],
            backing: vec![0; VOLUME_BYTES as usize],
            io: VecDeque::new(),
            held: None,
            bad: 0..0,
            replies: Vec::new(),
            now_ns: 1,
        };
        rig.attach(VolumeId(1), options);
        rig
    }

    pub fn attach(&mut self, id: VolumeId, options: VolumeOptions) {
        self.front.set_volume(VOLUME, id, options.clone());
        self.shard.command(self.now_ns, Command::Attach { volume: VOLUME, id, size_bytes: VOLUME_BYTES, options });
    }

    pub fn say(&mut self, id: VolumeId, ranges: &[(Range<u64>, Treatment)]) {
        let ranges = ranges.iter().map(|(blocks, treatment)| PolicyRange { blocks: blocks.clone(), treatment: *treatment });
        let map = Some(Arc::new(PolicyMap::new(id, ranges.collect()).expect("ranges")));
        self.front.set_policies(VOLUME, map.clone());
        self.command(Command::SetPolicies { volume: VOLUME, map });
    }

    pub fn command(&mut self, command: Command) {
        self.shard.command(self.now_ns, command);
        self.drain();
    }

    pub fn drain(&mut self) {
        loop {
            if let Some(action) = self.front.poll() {
                match action {
                    FrontAction::ToShard(_, part) => self.shard.submit(self.now_ns, part),
                    FrontAction::Reply(reply) => self.replies.push(reply),
                }
            } else if let Some(action) = self.shard.poll_action() {
                match action {
                    Action::Io(io) => self.io.push_back(io),
                    Action::Reply(reply) => self.front.shard_reply(ShardIndex(0), reply),
                    Action::Event(_) => {}
                }
            } else if let Some(io) = self.io.pop_front() {
                let is_read = matches!(io.kind, IoKind::Read(_)) && !io.target.is_ssd();
                if let Some(held) = self.held.as_mut().filter(|_| is_read) {
                    held.push(io);
                    continue;
                }
                let is_bad = is_read && io.offset_bytes < self.bad.end && self.bad.start < io.offset_bytes + io.length_bytes;
                let completion = match is_bad {
                    true => Completion { id: io.id, result: Err(IoError::Failed), pages: PageMutVec::new() },
                    false => self.perform(io),
                };
                self.shard.complete(self.now_ns, completion);
            } else {
                return;
            }
        }
    }

    pub fn perform(&mut self, io: Io) -> Completion {
        let device = if io.target.is_ssd() { &mut self.ssd } else { &mut self.backing };
        let (at, length) = (io.offset_bytes as usize, io.length_bytes as usize);
        let mut pages = PageMutVec::new();
        match io.kind {
            IoKind::Read(mut into) => {
                let chunks = device[at..at + length].chunks(4096);
                into.iter_mut().zip(chunks).for_each(|(page, bytes)| page[..bytes.len()].copy_from_slice(bytes));
                pages = into;
            }
            // Requests of these tests are whole blocks.
            IoKind::Write { pages, .. } => {
                pages.iter().enumerate().for_each(|(index, page)| device[at + index * 4096..][..4096].copy_from_slice(&page[..]))
            }
            IoKind::WriteZeroes { .. } | IoKind::Discard => device[at..at + length].fill(0),
            IoKind::Flush => {}
        }
        Completion { id: io.id, result: Ok(()), pages }
    }

    /// As a warm-up reads it.
    pub fn warm(&mut self, block: u64) -> Outcome {
        self.request(Op::Read, block, 0, Origin::Warm).outcome
    }

    pub fn request(&mut self, op: Op, block: u64, content: u8, origin: Origin) -> Reply {
        let mut pages = PageVec::new();
        if op == Op::Write {
            let mut page = self.pool.allocate_zeroed().expect("pages for one request");
            page.fill(content);
            pages.push(page.freeze());
        }
        let start_sector = block * 8;
        self.now_ns += 1_000_000;
        self.shard.tick(self.now_ns);
        self.front.submit(Request::new(1, VOLUME, op, start_sector, 8, origin).pages(pages));
        self.drain();
        // Some wait for others to share a group.
        while self.replies.is_empty() {
            self.now_ns = self.shard.next_deadline().expect("something is to come").max(self.now_ns);
            self.shard.tick(self.now_ns);
            self.drain();
        }
        self.replies.pop().expect("just seen")
    }

    pub fn read(&mut self, block: u64) -> Outcome {
        self.request(Op::Read, block, 0, Origin::Client).outcome
    }

    pub fn read_all(&mut self, blocks: Range<u64>) {
        for block in blocks {
            self.read(block);
        }
    }

    pub fn write(&mut self, block: u64, content: u8) -> Outcome {
        let outcome = self.request(Op::Write, block, content, Origin::Client).outcome;
        assert_eq!(self.request(Op::Read, block, 0, Origin::Client).pages[0][..], [content; 4096], "what was written is read");
        outcome
    }

    pub fn stats(&self) -> VolumeStats {
        self.shard.volume_stats(VOLUME).expect("attached")
    }

    pub fn turned_away(&self, reason: BypassReason) -> u64 {
        self.stats().bypassed[reason as usize]
    }

    pub fn settle(&mut self) {
        for _ in 0..2000 {
            let Some(at_ns) = self.shard.next_deadline() else { break };
            self.now_ns = at_ns.max(self.now_ns + 1);
            self.shard.tick(self.now_ns);
            self.drain();
        }
        self.shard.check_invariants();
        self.front.check_invariants();
    }
}

pub fn options(mode: Mode) -> VolumeOptions {
    VolumeOptions { mode, admission: Admission::Always, sequential_cutoff_bytes: None, ..VolumeOptions::default() }
}

#[test]
fn never_is_served_what_is_cached_and_brings_nothing_in() {
    let mut rig = Rig::new(64, options(Mode::WriteThrough));
    assert_eq!([rig.read(10), rig.read(10)], [Outcome::Miss, Outcome::RamHit]);
    rig.say(VolumeId(1), &[(0..20, NEVER)]);
    assert_eq!(rig.read(10), Outcome::RamHit, "what is there is served");
    assert_eq!([rig.read(11), rig.read(11)], [Outcome::Bypass; 2]);
    assert_eq!([rig.read(20), rig.read(20)], [Outcome::Miss, Outcome::RamHit], "of others nothing was said");
    assert_eq!(rig.request(Op::Write, 10, 5, Origin::Client).outcome, Outcome::Bypass);
    assert_eq!(rig.request(Op::Read, 10, 0, Origin::Client).outcome, Outcome::Bypass, "the cached version is void");
    assert_eq!(rig.backing[10 * 4096..][..4096], [5; 4096]);
    assert_eq!(rig.turned_away(BypassReason::Policy), 5);
    rig.settle();
}

#[test]
fn the_write_cache_takes_writes_of_what_is_never_admitted() {
    let mut rig = Rig::new(64, options(Mode::WriteBack));
    rig.say(VolumeId(1), &[(0..20, NEVER)]);
    assert_eq!(rig.write(3, 7), Outcome::WriteBack);
    assert_eq!(rig.stats().dirty_bytes, 4096);
    assert_eq!(rig.stats().ram_bytes, 0, "it is in the log, and RAM keeps no copy");
}

/// A device below may tear what goes around: nothing sends it there, and everything would, did units not have to be whole.
#[test]
fn what_is_to_be_whole_goes_into_the_store_whatever_else_is_said() {
    for (atomic_bytes, outcome) in [(Some(4096), Outcome::WriteBack), (Some(8192), Outcome::WriteBack), (None, Outcome::Bypass)] {
        for (treatment, origin) in [(AROUND, Origin::Client), (SCANS, Origin::Stream), (SCANS, Origin::Client)] {
            let mut rig = Rig::new(64, VolumeOptions { atomic_bytes, max_io_bytes: 512, log_burst_bytes: 0, ..options(Mode::WriteBack) });
            let large = |rig: &mut Rig| rig.request(Op::Write, 4, 9, origin).outcome;
            assert_eq!(large(&mut rig), outcome, "{origin:?}, and no policies");
            rig.say(VolumeId(1), &[(0..20, treatment)]);
            assert_eq!(large(&mut rig), outcome, "{treatment:?}, {origin:?}");
            assert_eq!(rig.request(Op::WriteZeroes, 4, 0, Origin::Client).result, Ok(()));
            rig.settle();
        }
    }
    let promised = VolumeOptions { atomic_bytes: Some(8192), ..options(Mode::WriteThrough) };
    assert_eq!(promised.atomic_blocks(), None, "only write-back can");
}

#[test]
fn writes_go_through_or_around_and_no_volume_is_raised() {
    for (mode, treatment, outcome, cached) in [
        (Mode::WriteBack, THROUGH, Outcome::WriteThrough, true),
        (Mode::WriteBack, AROUND, Outcome::Bypass, false),
        (Mode::WriteThrough, THROUGH, Outcome::WriteThrough, true),
        (Mode::WriteThrough, AROUND, Outcome::Bypass, false),
        (Mode::WriteAround, THROUGH, Outcome::WriteThrough, false),
        (Mode::PassThrough, PINNED, Outcome::WriteThrough, false),
    ] {
        let mut rig = Rig::new(64, options(mode));
        rig.say(VolumeId(1), &[(0..20, treatment)]);
        let said = format!("{mode:?} {treatment:?}");
        assert_eq!(rig.request(Op::Write, 4, 9, Origin::Client).outcome, outcome, "{said}");
        assert_eq!(rig.stats().dirty_bytes, 0, "{said}");
        assert_eq!(rig.backing[4 * 4096..][..4096], [9; 4096], "{said}");
        assert_eq!(rig.read(4) == Outcome::RamHit, cached, "{said}");
        rig.settle();
    }
}

#[test]
fn a_write_around_over_a_dirty_block_is_the_newest() {
    for treatment in [AROUND, THROUGH] {
        let mut rig = Rig::new(64, options(Mode::WriteBack));
        assert_eq!(rig.write(4, 1), Outcome::WriteBack);
        rig.say(VolumeId(1), &[(0..20, treatment)]);
        assert_ne!(rig.write(4, 2), Outcome::WriteBack);
        assert_eq!(rig.stats().dirty_bytes, 0, "the dirty version is void");
        rig.settle();
        assert_eq!(rig.backing[4 * 4096..][..4096], [2; 4096], "and does not come home over the new one");
    }
}

#[test]
fn backups_are_served_and_bring_nothing_in_unless_that_is_wanted() {
    let mut rig = Rig::new(64, options(Mode::WriteThrough));
    let backup = |rig: &mut Rig, block| rig.request(Op::Read, block, 0, Origin::Stream).outcome;
    rig.read(5);
    assert_eq!([backup(&mut rig, 5), backup(&mut rig, 6), backup(&mut rig, 6)], [Outcome::RamHit, Outcome::Bypass, Outcome::Bypass]);
    assert_eq!(rig.turned_away(BypassReason::Stream), 3, "a client asked for them");
    rig.say(VolumeId(1), &[(0..20, SCANS)]);
    assert_eq!([backup(&mut rig, 7), backup(&mut rig, 7)], [Outcome::Miss, Outcome::RamHit]);
}

/// A look at what lies on a volume is no use of it: neither its heat nor what is told of a place knows of it.
#[test]
fn what_hearth_reads_for_itself_is_no_use_of_a_place() {
    let mut rig = Rig::new(64, options(Mode::WriteThrough));
    let heat = |rig: &Rig| rig.shard.heat(rig.now_ns, VOLUME).expect("it is attached").counts[0];
    let recent = |rig: &Rig| rig.shard.explain(rig.now_ns, VOLUME, 0, 16).expect("it is attached").recent.len();
    rig.read(5);
    let before = (heat(&rig), recent(&rig));
    assert!(before.0 > 0 && before.1 == 1, "{before:?}");
    // Of what is in RAM, and of what is not.
    for block in [5, 6, 7] {
        rig.request(Op::Read, block, 0, Origin::Look);
    }
    assert_eq!((heat(&rig), recent(&rig)), before);
    rig.read(6);
    assert!(heat(&rig) > before.0 && recent(&rig) == 2);
}

/// An idle volume that hearth looks at has no bypassed requests, and what clients ask for is counted as before.
#[test]
fn what_hearth_reads_for_itself_is_no_bypassed_request() {
    let mut rig = Rig::new(64, options(Mode::WriteThrough));
    rig.say(VolumeId(1), &[(0..20, NEVER), (40..60, SCANS)]);
    // A look, and a gap of a warm-up; of places with policies and without one, of what is cached and of what is not.
    for block in [3, 45, 100, 100] {
        let look = rig.request(Op::Read, block, 0, Origin::Look);
        assert_eq!(look.outcome, Outcome::Bypass, "block {block} does not enter");
    }
    // A piece of a warm-up of what is never admitted; a stream that passes once, where no policy speaks.
    assert_eq!(rig.warm(4), Outcome::Bypass);
    assert_eq!(rig.request(Op::Read, 101, 0, Origin::Look).outcome, Outcome::Bypass);
    assert_eq!(rig.stats().bypassed, [0; BypassReason::ALL.len()]);
    assert_eq!(rig.read(5), Outcome::Bypass);
    assert_eq!((rig.turned_away(BypassReason::Policy), rig.stats().bypassed.iter().sum::<u64>()), (1, 1), "a client's");
}

/// A warm-up takes the room in RAM that is free; what clients use there stays, and the rest goes to the SSD at once.
#[test]
fn a_warm_up_pushes_nothing_out_of_ram() {
    const RAM_BLOCKS: u64 = 64;
    let mut rig = Rig::new(RAM_BLOCKS, options(Mode::WriteThrough));
    let (hot, warm) = (0..RAM_BLOCKS / 2, 500..700);
    rig.read_all(hot.clone());
    warm.clone().for_each(|block| assert_eq!(rig.warm(block), Outcome::Miss));
    rig.settle();
    assert_eq!(rig.stats().ram_bytes, RAM_BLOCKS * 4096);
    // Once more: what is on the SSD is not copied into RAM either.
    warm.clone().for_each(|block| assert_ne!(rig.warm(block), Outcome::Miss));
    for block in hot {
        assert_eq!(rig.read(block), Outcome::RamHit, "block {block} was in use");
    }
    let outcomes: Vec<Outcome> = warm.map(|block| rig.read(block)).collect();
    let count = |wanted| outcomes.iter().filter(|outcome| **outcome == wanted).count();
    assert_eq!(count(Outcome::Miss), 0, "all of it is cached");
    assert!(count(Outcome::SsdHit) >= 200 - RAM_BLOCKS as usize, "{outcomes:?}");
}

/// A warm-up names what is used least first: what it reads last is in RAM, until a client has asked for what would leave.
#[test]
fn what_a_warm_up_reads_last_is_in_ram() {
    const RAM_BLOCKS: u64 = 64;
    let mut rig = Rig::new(RAM_BLOCKS, options(Mode::WriteThrough));
    let (cold, hot) = (500..700, 0..RAM_BLOCKS / 2);
    cold.chain(hot.clone()).for_each(|block| assert_eq!(rig.warm(block), Outcome::Miss));
    rig.settle();
    for block in hot.clone() {
        assert_eq!(rig.read(block), Outcome::RamHit, "block {block} was read last");
    }
    // The others make way for new ones, then those that the client has read are the oldest: no more of them leave.
    (1000..1200).for_each(|block| assert_eq!(rig.warm(block), Outcome::Miss));
    rig.settle();
    for block in hot {
        assert_eq!(rig.read(block), Outcome::RamHit, "block {block} is in use");
    }
    assert_ne!(rig.read(1199), Outcome::Miss, "it is on the SSD");
}

#[test]
fn destage_makes_way_for_clients_and_not_for_what_hearth_reads_itself() {
    let dirty_bytes_beside = |origin| {
        let mut rig = Rig::new(64, VolumeOptions { write_cache_depth_ns: 300_000_000_000, ..options(Mode::WriteBack) });
        rig.write(3, 8);
        for block in 100..300 {
            rig.now_ns += 100_000_000;
            // None is beside another, or fewer reads would reach the device.
            rig.request(Op::Read, block * 8, 0, origin);
        }
        rig.stats().dirty_bytes
    };
    assert_eq!([Origin::Client, Origin::Look].map(dirty_bytes_beside), [4096, 0], "20 seconds of reads");
}

/// A disk that is busy with others answers late; a commit beside a look or a warm-up is not late for that.
#[test]
fn a_write_does_not_wait_for_what_hearth_reads_itself() {
    let kinds = [Origin::Look, Origin::Warm];
    for (mode, origin) in [Mode::WriteBack, Mode::WriteThrough].into_iter().flat_map(|mode| kinds.map(|kind| (mode, kind))) {
        let mut rig = Rig::new(64, options(mode));
        rig.held = Some(Vec::new());
        let start_sector = 8 * 16;
        rig.front.submit(Request::new(7, VOLUME, Op::Read, start_sector, 8 * 16, origin));
        rig.drain();
        let came_back = |rig: &mut Rig| rig.held.as_mut().map(std::mem::take).into_iter().flatten().collect::<Vec<_>>();
        let mut reads = 0;
        // It is overtaken again and again; at last it has its blocks.
        for round in 0..8 {
            assert!(rig.replies.is_empty());
            rig.request(Op::Write, 20, round, Origin::Client);
            assert!(rig.replies.is_empty(), "the write alone is answered");
            for io in came_back(&mut rig) {
                reads += 1;
                let completion = rig.perform(io);
                rig.shard.complete(rig.now_ns, completion);
            }
            rig.drain();
        }
        assert!((8..=16).contains(&reads), "{reads}");
        rig.io.extend(rig.held.take().into_iter().flatten());
        rig.drain();
        let read = rig.replies.pop().expect("it is answered at last");
        assert_eq!((read.id, read.result, read.pages.len()), (7, Ok(()), 16));
        // Blocks 16 to 32: what the last write left, and nothing of before.
        assert!(read.pages[4].iter().all(|byte| *byte == 7) && read.pages[3].iter().all(|byte| *byte == 0), "{mode:?}");
        assert_eq!(rig.request(Op::Read, 20, 0, Origin::Client).pages[0][..], [7; 4096]);
        rig.settle();
    }
}

#[test]
fn a_cold_hint_takes_clean_copies_out_of_ram_and_nothing_else() {
    let mut rig = Rig::new(64, options(Mode::WriteBack));
    rig.read_all(0..8);
    rig.write(3, 8);
    let before = rig.stats();
    rig.command(Command::Cold { volume: VOLUME, blocks: 2..u64::MAX });
    let after = rig.stats();
    assert_eq!((before.ram_bytes, after.ram_bytes), (8 * 4096, 3 * 4096));
    assert_eq!(after.dirty_bytes, 4096);
    assert_eq!([1, 2, 3].map(|block| rig.read(block)), [Outcome::RamHit, Outcome::Miss, Outcome::RamHit]);
    rig.command(Command::Cold { volume: VolumeIndex(5), blocks: 0..9 });
    rig.command(Command::Cold { volume: VOLUME, blocks: u64::MAX - 1..u64::MAX });
    rig.settle();
}

#[test]
fn pinned_blocks_stay_while_others_pass() {
    let cached_after = |treatment| {
        let mut rig = Rig::new(8, options(Mode::WriteThrough));
        rig.say(VolumeId(1), &[(0..100, treatment)]);
        rig.read_all(0..100);
        // Five times what the log holds.
        rig.read_all(1000..6000);
        rig.settle();
        (0..100).filter(|block| rig.read(*block) != Outcome::Miss).count()
    };
    // Read in order they fill whole segments, and of each the cleaner lets a quarter go at first.
    let (pinned, others) = (cached_after(PINNED), cached_after(Treatment::default()));
    assert!(pinned >= 60 && others < 20, "{pinned} pinned, {others} if not");
}

#[test]
fn more_pins_than_the_slots_may_hold_leave_room_for_others() {
    let mut rig = Rig::new(8, options(Mode::WriteBack));
    let log_blocks = rig.shard.stats().slots;
    rig.say(VolumeId(1), &[(0..3 * log_blocks, PINNED)]);
    rig.read_all(0..3 * log_blocks);
    let pinned = |rig: &Rig| rig.shard.cached_blocks().filter(|found| found.block < 3 * log_blocks).count() as u64;
    // A shelf of sixteen more may be added by the one that is just being judged.
    let most = log_blocks * PINNED_MAX_PERMILLE / 1000 + 16;
    rig.read_all(6000..6000 + log_blocks);
    rig.settle();
    assert!((log_blocks / 8..=most).contains(&pinned(&rig)), "{} of {log_blocks}", pinned(&rig));
    let first = 6000;
    for block in first..first + 2 * log_blocks {
        assert_eq!(rig.write(block, block as u8), Outcome::WriteBack, "a write into the cache finds room");
    }
    rig.settle();
    assert!(pinned(&rig) <= most, "{} of {log_blocks}", pinned(&rig));
}

#[test]
fn a_map_made_for_another_volume_says_nothing() {
    let mut rig = Rig::new(64, options(Mode::WriteBack));
    rig.say(VolumeId(7), &[(0..20, AROUND)]);
    assert_eq!(rig.write(4, 1), Outcome::WriteBack);
    rig.say(VolumeId(1), &[(0..20, AROUND)]);
    assert_eq!(rig.write(4, 2), Outcome::Bypass);
    // The next volume in its place is not treated like it.
    rig.front.remove_volume(VOLUME);
    rig.command(Command::Detach { token: 1, volume: VOLUME });
    rig.attach(VolumeId(2), options(Mode::WriteBack));
    assert_eq!(rig.write(4, 3), Outcome::WriteBack);
    rig.settle();
}
