//! Promises of a shard whose devices failed. A volume has left write-back only when no start can find dirty blocks of it: the log says so
//! durably or, where the log has failed, the host has written down that nobody is to believe it. And a shard at rest stays at rest.

use engine::api::{
    Action, Command, Completion, Event, IoError, IoKind, Op, Origin, Outcome, RangeReply, RangeStep, Reply, Request, Target, VolumeOptions,
};
use engine::shard::{DIRTY_MAX_PERMILLE, PAGES_MIN, Shard, ShardConfig};
use engine::store::StorePlace;
use format::Layout;
use format::checkpoint::LogEnd;
use page::{PageMutVec, PagePool, PageVec};
use types::{Mode, ShardIndex, SsdIndex, VolumeId, VolumeIndex};

const VOLUME: VolumeIndex = VolumeIndex(0);
const TOKEN: u64 = 7;

/// One shard whose devices answer at once.
struct Rig {
    shard: Shard,
    pages: PagePool,
    now_ns: u64,
    /// The SSD takes no writes and no flushes any more.
    ssd_broken: bool,
    replies: usize,
    answers: Vec<Reply>,
    home_writes: usize,
    ios: usize,
    ssd_failed: bool,
    nothing_dirty: bool,
    backing_failed: bool,
    done: Option<Result<(), engine::api::CommandFailure>>,
}

impl Rig {
    fn new() -> Rig {
        let layout = Layout::plan(6 << 20, 1, 64 << 10).expect("a small pool").with_packed_slots();
        let pages = PagePool::new(PAGES_MIN + 64);
        let place = StorePlace { uuid: [7; 16], session: 1, shard: ShardIndex(0), layout, ring_first: 0 };
        let config = ShardConfig { place, ram_blocks: 8, pool: pages.clone(), dirty_max_permille: DIRTY_MAX_PERMILLE };
        let shard = Shard::new(config, LogEnd { next_seq: 1, next_group: 1, tail_seq: 1 });
        Rig {
            shard,
            pages,
            now_ns: 0,
            ssd_broken: false,
            replies: 0,
            answers: Vec::new(),
            home_writes: 0,
            ios: 0,
            ssd_failed: false,
            nothing_dirty: false,
            backing_failed: false,
            done: None,
        }
    }

    fn drain(&mut self) {
        while let Some(action) = self.shard.poll_action() {
            match action {
                Action::Io(io) => {
                    self.ios += 1;
                    let changes = !matches!(io.kind, IoKind::Read(_));
                    self.home_writes += usize::from(matches!((&io.target, &io.kind), (Target::Backing(_), IoKind::Write { .. })));
                    let broken = self.ssd_broken && changes && io.target.is_ssd();
                    let result = if broken { Err(IoError::Failed) } else { Ok(()) };
                    let pages = if let IoKind::Read(pages) = io.kind { pages } else { PageMutVec::new() };
                    self.now_ns += 1_000;
                    self.shard.complete(self.now_ns, Completion { id: io.id, result, pages });
                }
                Action::Reply(reply) => {
                    assert_eq!(reply.result, Ok(()));
                    self.replies += 1;
                    self.answers.push(reply);
                }
                Action::Event(Event::BackingFailed(VOLUME)) => self.backing_failed = true,
                Action::Event(Event::SsdFailed { ssd, .. }) => {
                    assert_eq!((Some(ssd), ssd), (self.shard.lost_ssd(), SsdIndex::FIRST), "the SSD that failed is named");
                    self.ssd_failed = true;
                }
                Action::Event(Event::NothingDirty(VOLUME)) => self.nothing_dirty = true,
                Action::Event(Event::GoingHome) => assert!(self.ssd_failed, "only then somebody waits for it"),
                Action::Event(Event::CommandDone(TOKEN, result)) => self.done = Some(result),
                Action::Event(event) => panic!("{event:?}"),
            }
        }
    }

    /// The answer to the request of that number, if it came since this was asked last.
    fn answer_to(&mut self, id: u64) -> Option<Reply> {
        let at = self.answers.iter().position(|reply| reply.id == id)?;
        Some(self.answers.swap_remove(at))
    }

    /// Lets that much time pass.
    fn pass(&mut self, span_ns: u64) {
        let until_ns = self.now_ns + span_ns;
        self.drain();
        while let Some(at_ns) = self.shard.next_deadline().filter(|at| *at <= until_ns) {
            self.now_ns = at_ns.max(self.now_ns + 1);
            self.shard.tick(self.now_ns);
            self.drain();
        }
        self.now_ns = until_ns;
    }
}

fn options(mode: Mode) -> VolumeOptions {
    VolumeOptions { mode, write_cache_depth_ns: u64::MAX, ..VolumeOptions::default() }
}

/// A shard with one block that is dirty and durable in the log.
fn rig_with_a_dirty_block() -> Rig {
    let mut rig = Rig::new();
    rig.shard.command(0, Command::Attach { volume: VOLUME, id: VolumeId(1), size_bytes: 1 << 20, options: options(Mode::WriteBack) });
    let write = write_of(&rig, 1);
    rig.shard.submit(0, write);
    rig.pass(10_000_000);
    assert_eq!((rig.replies, rig.home_writes), (1, 0), "durable in the log, and only there");
    rig
}

/// A write of the first block.
fn write_of(rig: &Rig, id: u64) -> Request {
    let pages = PageVec::from_iter([rig.pages.allocate_zeroed().expect("a client page").freeze()]);
    Request::new(id, VOLUME, Op::Write, 0, 8, Origin::Client).fua(true).pages(pages)
}

#[test]
fn a_shard_knows_which_ssd_its_host_says_is_lost() {
    let mut rig = rig_with_a_dirty_block();
    assert_eq!(rig.shard.lost_ssd(), None);
    rig.shard.command(rig.now_ns, Command::SsdFailed { ssd: SsdIndex(1) });
    rig.pass(1_000_000);
    assert_eq!((rig.shard.lost_ssd(), rig.ssd_failed), (Some(SsdIndex(1)), false), "the host knows already");
}

#[test]
fn a_shard_at_rest_hears_of_a_failed_backing_device_and_writes_nothing() {
    let mut rig = rig_with_a_dirty_block();
    rig.shard.command(rig.now_ns, Command::Destage { token: TOKEN, volume: VOLUME });
    rig.pass(10_000_000_000);
    assert_eq!((rig.done.take(), rig.home_writes, rig.shard.cached_blocks().count()), (Some(Ok(())), 1, 1));
    rig.shard.command(rig.now_ns, Command::Quiesce { token: TOKEN });
    rig.pass(10_000_000_000);
    assert_eq!(rig.done.take(), Some(Ok(())));
    let ios = rig.ios;
    rig.shard.command(rig.now_ns, Command::BackingFailed { volume: VOLUME });
    rig.pass(10_000_000_000);
    assert!(rig.backing_failed && rig.shard.is_quiesced());
    assert_eq!(rig.ios, ios, "nothing is written after Quiesce");
    assert_eq!(rig.shard.cached_blocks().count(), 1, "the checkpoint knows what the log knows");
}

#[test]
fn leaving_write_back_waits_for_the_host_when_the_log_has_failed() {
    let mut rig = rig_with_a_dirty_block();
    rig.ssd_broken = true;
    rig.shard.command(rig.now_ns, Command::SetOptions { token: TOKEN, volume: VOLUME, options: options(Mode::WriteThrough) });
    rig.pass(60_000_000_000);
    assert_eq!((rig.home_writes, rig.ssd_failed), (1, true), "the block is at home, and the log cannot say so");
    assert_eq!(rig.done, None, "a start now would find the block dirty");
    rig.shard.command(rig.now_ns, Command::DegradedRecorded);
    rig.pass(1_000_000_000);
    assert_eq!((rig.done, rig.nothing_dirty), (None, true), "it may still be believed to be dirty");
    rig.shard.command(rig.now_ns, Command::SsdForgotten { volume: VOLUME });
    rig.pass(1_000_000_000);
    assert_eq!(rig.done, Some(Ok(())));
}

/// Nothing was dirty: the very write that finds out is done, when the host has recorded that the SSD holds nothing of the volume.
#[test]
fn the_write_that_finds_the_ssd_lost_goes_to_the_backing_device() {
    let mut rig = rig_with_a_dirty_block();
    rig.shard.command(rig.now_ns, Command::Destage { token: TOKEN, volume: VOLUME });
    rig.pass(10_000_000_000);
    assert_eq!((rig.done.take(), rig.home_writes), (Some(Ok(())), 1));
    rig.ssd_broken = true;
    let write = write_of(&rig, 2);
    rig.shard.submit(rig.now_ns, write);
    rig.pass(1_000_000_000);
    assert_eq!((rig.ssd_failed, rig.replies, rig.home_writes), (true, 1, 1), "a start now would believe an older clean block");
    rig.shard.command(rig.now_ns, Command::DegradedRecorded);
    rig.pass(1_000_000_000);
    assert_eq!((rig.nothing_dirty, rig.replies, rig.home_writes), (true, 1, 2), "it is at home, and may still be called dirty");
    rig.shard.command(rig.now_ns, Command::SsdForgotten { volume: VOLUME });
    rig.pass(1_000_000_000);
    assert_eq!((rig.replies, rig.home_writes), (2, 3));
}

/// A range is looked through slice by slice. What was dirty when it was looked at is passed by; if the SSD is lost before the next slice, it
/// goes home, and must not stay in RAM when the range is written.
#[test]
fn what_goes_home_while_a_range_is_held_does_not_stay_in_ram() {
    const EXTENT_BLOCKS: u64 = types::EXTENT_BLOCKS;
    const EXTENTS: u64 = 12;
    const RANGE: u64 = 100;
    let mut rig = Rig::new();
    let size_bytes = (EXTENTS + 1) * EXTENT_BLOCKS * types::BLOCK_BYTES;
    rig.shard.command(0, Command::Attach { volume: VOLUME, id: VolumeId(1), size_bytes, options: options(Mode::WriteBack) });
    let at = |mut request: Request, block: u64| {
        request.start_sector = block * 8;
        request
    };
    // One cached block in each extent, so that none is passed by as a whole; the first ones dirty, and in RAM.
    let dirty = |extent: &u64| *extent < 4;
    for extent in (0..EXTENTS).rev() {
        let write = at(write_of(&rig, extent), extent * EXTENT_BLOCKS);
        rig.shard.submit(rig.now_ns, write);
        rig.pass(10_000_000);
        if extent == 4 {
            rig.shard.command(rig.now_ns, Command::Destage { token: TOKEN, volume: VOLUME });
            rig.pass(10_000_000_000);
        }
    }
    let clean = (0..EXTENTS).filter(|extent| !dirty(extent)).count();
    assert_eq!((rig.replies, rig.home_writes), (EXTENTS as usize, clean));
    let sectors = (EXTENTS * EXTENT_BLOCKS * 8) as u32;
    let range = |step| Request::new(RANGE, VOLUME, Op::WriteZeroes, 0, sectors, Origin::Client).step(Some(step));
    let step = |rig: &mut Rig, step| {
        rig.shard.submit(rig.now_ns, range(step));
        rig.drain();
        rig.answer_to(RANGE).map(|reply| reply.range.expect("of the range"))
    };
    assert_eq!(step(&mut rig, RangeStep::Hold), None, "it takes more than a slice");
    rig.ssd_broken = true;
    let write = at(write_of(&rig, 200), EXTENTS * EXTENT_BLOCKS);
    rig.shard.submit(rig.now_ns, write);
    rig.pass(10_000_000_000);
    assert_eq!((rig.ssd_failed, rig.home_writes), (true, EXTENTS as usize), "what is dirty goes home");
    rig.shard.command(rig.now_ns, Command::DegradedRecorded);
    rig.pass(1_000_000);
    rig.shard.command(rig.now_ns, Command::SsdForgotten { volume: VOLUME });
    rig.pass(1_000_000_000);
    let held = rig.answer_to(RANGE).and_then(|reply| reply.range);
    assert_eq!(held, Some(RangeReply::Held { over_dirty: false }));
    let Some(RangeReply::Written(write)) = step(&mut rig, RangeStep::Write { over_dirty: false }) else { panic!("it is written") };
    rig.shard.submit(rig.now_ns, range(RangeStep::Release(write)));
    rig.pass(1_000_000_000);
    assert!(rig.answer_to(RANGE).is_some(), "the range is free");
    let read = Request::read(300, VOLUME, 0, 8, Origin::Client);
    rig.shard.submit(rig.now_ns, read);
    rig.pass(1_000_000_000);
    assert_eq!(rig.answer_to(300).map(|reply| reply.outcome), Some(Outcome::Miss), "RAM held what the range has written over");
}
