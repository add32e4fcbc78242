//! A shard whose clients rest stores what is cold denser, loses nothing by it, and comes to rest itself.
#![cfg(feature = "zstd")]

use engine::api::{Action, Command, Completion, Event, IoKind, Op, Reply, Request, Target, VolumeOptions};
use engine::key::mix;
use engine::log::LogPlace;
use engine::packer::ContentOptions;
use engine::shard::{DIRTY_MAX_PERMILLE, PAGES_MIN, Shard, ShardConfig};
use format::Layout;
use format::checkpoint::LogEnd;
use page::{PagePool, PageVec};
use std::cell::Cell;
use types::{Admission, Content, Mode, ShardIndex, VolumeId, VolumeIndex};

const SSD_BYTES: u64 = 6 << 20;
const BLOCKS: u64 = 8192;
/// Blocks in one write.
const AT_ONCE: u64 = 32;
const VOLUME: VolumeIndex = VolumeIndex(0);
const SECOND_NS: u64 = 1_000_000_000;

struct Rig {
    shard: Shard,
    ssd: Vec<u8>,
    backing: Vec<u8>,
    now_ns: u64,
    replies: Vec<Reply>,
    next_id: u64,
    pool: PagePool,
    /// How often time was what woke the shard.
    ticks: u64,
    ssd_pages_read: u64,
    /// Writes to the backing device are not performed but kept.
    holds_home: bool,
    held: Vec<engine::api::Io>,
}

impl Rig {
    fn new(content: Content) -> Rig {
        Rig::with_log_at(content, LogEnd { next_seq: 1, next_group: 1, tail_seq: 1 })
    }

    fn with_log_at(content: Content, start: LogEnd) -> Rig {
        let layout = Layout::plan(SSD_BYTES, 1, 64 << 10).expect("a small pool");
        let pool = PagePool::new(2 * PAGES_MIN + 8192);
        let place = LogPlace { uuid: [7; 16], session: 1, shard: ShardIndex(0), layout };
        let config = ShardConfig { place, ram_blocks: 8, pool: pool.clone(), dirty_max_permille: DIRTY_MAX_PERMILLE };
        let mut shard = Shard::new(config, start);
        let options = VolumeOptions { mode: Mode::WriteBack, admission: Admission::Always, ..VolumeOptions::default() };
        shard.command(0, Command::Attach { volume: VOLUME, id: VolumeId(1), size_bytes: BLOCKS * 4096, options });
        let backing = vec![0; BLOCKS as usize * 4096];
        let ssd = vec![0; SSD_BYTES as usize];
        let mut rig = Rig {
            shard,
            ssd,
            backing,
            now_ns: 0,
            replies: Vec::new(),
            next_id: 1,
            pool,
            ticks: 0,
            ssd_pages_read: 0,
            holds_home: false,
            held: Vec::new(),
        };
        rig.set(content);
        rig
    }

    fn set(&mut self, content: Content) {
        let slots = self.shard.stats().slots;
        self.shard.set_content(ContentOptions::suited(content, 5, slots, 8));
    }

    fn drain(&mut self) {
        while let Some(action) = self.shard.poll_action() {
            match action {
                Action::Reply(reply) => self.replies.push(reply),
                Action::Event(Event::CommandDone(_, result)) => assert_eq!(result, Ok(())),
                Action::Event(event) => panic!("{event:?}"),
                Action::Io(io) if self.holds_home && io.target != Target::Ssd => self.held.push(io),
                Action::Io(io) => {
                    let image = if io.target == Target::Ssd { &mut self.ssd } else { &mut self.backing };
                    let start = io.offset_bytes as usize;
                    let mut pages = page::PageMutVec::new();
                    match io.kind {
                        IoKind::Read(mut into) => {
                            if io.target == Target::Ssd {
                                self.ssd_pages_read += into.len() as u64;
                            }
                            into.iter_mut().enumerate().for_each(|(at, page)| page.copy_from_slice(&image[start + at * 4096..][..4096]));
                            pages = into;
                        }
                        IoKind::Write { pages, .. } => {
                            pages.iter().enumerate().for_each(|(at, page)| image[start + at * 4096..][..4096].copy_from_slice(&page[..]));
                        }
                        IoKind::WriteZeroes { .. } | IoKind::Discard => image[start..start + io.length_bytes as usize].fill(0),
                        IoKind::Flush => {}
                    }
                    self.now_ns += 20_000;
                    self.shard.complete(self.now_ns, Completion { id: io.id, result: Ok(()), pages });
                }
            }
        }
    }

    fn request(&mut self, op: Op, block: u64, pages: PageVec) -> Option<Reply> {
        let (id, start_sector) = (self.next_id, block * 8);
        self.next_id += 1;
        let sectors = 8 * pages.len().max(1) as u32;
        let request = Request { id, volume: VOLUME, op, fua: false, start_sector, sectors, pages, bypass: None, wanted: false };
        self.shard.submit(self.now_ns, request);
        self.drain();
        while self.shard.stats().requests > 0 {
            self.tick();
        }
        let reply = self.replies.pop();
        assert!(reply.as_ref().is_none_or(|reply| reply.result == Ok(())));
        reply
    }

    fn write(&mut self, block: u64, contents: &[[u8; 4096]]) {
        let page = |content: &[u8; 4096]| {
            let mut page = self.pool.allocate().expect("a client page");
            page.copy_from_slice(content);
            page.freeze()
        };
        let pages = contents.iter().map(page).collect();
        self.request(Op::Write, block, pages);
    }

    fn tick(&mut self) {
        let deadline = self.shard.next_deadline().unwrap_or(self.now_ns + SECOND_NS);
        self.now_ns = deadline.max(self.now_ns + 1);
        self.ticks += 1;
        self.shard.tick(self.now_ns);
        self.drain();
    }

    /// Lets the time pass; the shard is woken when it wants to be.
    fn pass(&mut self, ns: u64) {
        let until_ns = self.now_ns + ns;
        while self.shard.next_deadline().is_some_and(|deadline_ns| deadline_ns < until_ns) {
            self.tick();
        }
        self.now_ns = self.now_ns.max(until_ns);
    }

    fn cached(&self) -> Vec<u64> {
        let mut blocks: Vec<u64> = self.shard.cached_blocks().map(|block| block.block).collect();
        blocks.sort_unstable();
        blocks
    }

    /// Writes blocks with such contents until the log has gone round one and a half times.
    fn fill(&mut self, content: fn(u64) -> [u8; 4096]) {
        let segments = self.shard.config().place.layout.segments_per_shard;
        for first in (0..).map(|request| request * AT_ONCE % BLOCKS) {
            if self.shard.stats().head_seq > u64::from(segments) * 3 / 2 {
                break;
            }
            let contents: Vec<[u8; 4096]> = (first..first + AT_ONCE).map(content).collect();
            self.write(first, &contents);
        }
    }

    fn check(&mut self, content: fn(u64) -> [u8; 4096]) {
        self.shard.check_invariants();
        for block in self.cached() {
            let reply = self.request(Op::Read, block, PageVec::new()).expect("an answer");
            assert!(reply.pages[0][..] == content(block), "block {block}");
        }
    }
}

/// Words of a small vocabulary, in an order of their own in each block: zstd makes a good deal less of them than LZ4.
fn text(block: u64) -> [u8; 4096] {
    let mut page = [0; 4096];
    let mut word = mix(block + 1);
    for bytes in page.chunks_exact_mut(8) {
        word = mix(word);
        let known = mix(word % 200);
        bytes.copy_from_slice(&(known & 0x0f0f_0f0f_0f0f_0f0f | 0x6060_6060_6060_6060).to_le_bytes());
    }
    page
}

fn noise(block: u64) -> [u8; 4096] {
    let mut page = [0; 4096];
    let mut word = mix(block + 1);
    for bytes in page.chunks_exact_mut(8) {
        word = mix(word);
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    page
}

#[test]
fn cold_blocks_become_denser_while_nobody_asks_and_then_it_rests() {
    let mut rig = Rig::new(Content::Fast);
    rig.fill(text);
    let census = rig.shard.content_stats().census;
    assert!(census.lz4 > 500 && census.zstd == 0, "{census:?}");
    rig.pass(20 * SECOND_NS);
    assert_eq!(rig.shard.content_stats().idle_segments, 0, "the level has no zstd");
    let (before, cached) = (rig.shard.stats(), rig.cached());
    assert_eq!(before.dirty_blocks, 0);

    rig.set(Content::Dense);
    rig.pass(60 * SECOND_NS);
    let (after, content) = (rig.shard.stats(), rig.shard.content_stats());
    let live = before.head_seq + 1 - before.tail_seq;
    println!("{before:?}\n{after:?}\n{content:?}\n{} ticks", rig.ticks);
    let (free, rewritten) = (after.free_segments - before.free_segments, after.ssd_written_bytes - before.ssd_written_bytes);
    println!("{} segments of {live} became {free} fewer for {rewritten} bytes written", content.idle_segments);
    assert!(rig.cached() == cached, "nothing was lost from the cache");
    assert!(content.census.zstd * 10 > content.census.lz4 * 9, "{content:?}");
    assert!(content.idle_segments + 2 >= live && content.idle_segments <= live, "each segment once: {} of {live}", content.idle_segments);
    assert!(after.free_segments > before.free_segments + live / 10, "{} free of {live}", after.free_segments);
    assert!(rewritten <= (live + 2) * (64 << 10), "{rewritten} bytes were written");

    let (ticks, ssd_pages_read) = (rig.ticks, rig.ssd_pages_read);
    rig.pass(100_000 * SECOND_NS);
    assert_eq!(rig.shard.stats().ssd_written_bytes, after.ssd_written_bytes, "a day of rest writes nothing");
    assert_eq!((rig.ssd_pages_read, rig.ticks), (ssd_pages_read, ticks), "and wakes nobody");
    rig.check(text);
    assert!(rig.cached() == cached);
}

#[test]
fn a_request_stops_it_and_it_goes_on_when_clients_rest_again() {
    let mut rig = Rig::new(Content::Fast);
    rig.fill(text);
    rig.pass(20 * SECOND_NS);
    let cached = rig.cached();
    rig.set(Content::Dense);
    for _ in 0..10_000 {
        if rig.shard.content_stats().idle_segments >= 10 {
            break;
        }
        rig.tick();
    }
    let before = rig.shard.stats().ssd_written_bytes;
    let until_ns = rig.now_ns + 60 * SECOND_NS;
    while rig.now_ns < until_ns {
        rig.request(Op::Read, cached[0], PageVec::new());
        rig.pass(SECOND_NS);
    }
    let written = rig.shard.stats().ssd_written_bytes - before;
    assert!(written <= 3 * (64 << 10), "{written} bytes were written while a client asked every second");
    rig.pass(60 * SECOND_NS);
    let content = rig.shard.content_stats();
    assert!(content.census.zstd * 10 > content.census.lz4 * 9, "{content:?}");
    assert!(rig.cached() == cached, "nothing was lost from the cache");
    rig.check(text);
}

thread_local! {
    static CPU_NS: Cell<u64> = const { Cell::new(0) };
}

/// A clock for which a block takes 20 microseconds.
fn cpu_clock() -> u64 {
    CPU_NS.with(|now_ns| now_ns.replace(now_ns.get() + 20_000))
}

#[test]
fn it_takes_no_more_cpu_time_than_the_budget_has_and_waits_for_more() {
    let mut rig = Rig::new(Content::Fast);
    rig.fill(text);
    rig.pass(20 * SECOND_NS);
    let cached = rig.cached();
    let slots = rig.shard.stats().slots;
    let budget =
        ContentOptions { cpu_ns_per_second: 2_000_000, cpu_clock: Some(cpu_clock), ..ContentOptions::suited(Content::Dense, 5, slots, 8) };
    rig.shard.set_content(budget);
    CPU_NS.set(0);
    rig.pass(10 * SECOND_NS);
    let spent_ns = CPU_NS.get() / 2;
    let so_far = rig.shard.content_stats().census.zstd;
    assert!(so_far > 100 && spent_ns <= 11 * 2_000_000, "{so_far} blocks, {spent_ns} ns");
    rig.pass(100 * SECOND_NS);
    let census = rig.shard.content_stats().census;
    assert!(census.zstd * 10 > census.lz4 * 7, "few were moved as they were for want of time: {census:?}");
    assert!(rig.cached() == cached, "nothing was lost from the cache");
    assert!(rig.shard.next_deadline().is_none(), "it rests");
}

#[test]
fn what_zstd_cannot_make_smaller_is_soon_left_alone() {
    let mut rig = Rig::new(Content::Fast);
    rig.fill(noise);
    rig.set(Content::Dense);
    rig.pass(20 * SECOND_NS);
    let before = rig.shard.stats();
    let cached = rig.cached();
    rig.pass(100_000 * SECOND_NS);
    let (after, content) = (rig.shard.stats(), rig.shard.content_stats());
    assert!(content.idle_segments <= 8, "{content:?}");
    assert_eq!(before.ssd_written_bytes, after.ssd_written_bytes);
    assert!(rig.cached() == cached);
    rig.check(noise);
}

#[test]
fn a_pool_that_stores_blocks_as_they_are_never_wakes_for_it() {
    let mut rig = Rig::new(Content::Off);
    rig.fill(text);
    rig.pass(20 * SECOND_NS);
    let (before, ticks) = (rig.shard.stats(), rig.ticks);
    rig.pass(100_000 * SECOND_NS);
    assert_eq!((rig.shard.stats(), rig.ticks), (before, ticks));
}

/// Not idleness, but the same shard: as recovery leaves it where all of a log is lost. The segment before the first is not the log's.
#[test]
fn an_empty_log_may_begin_anywhere_in_its_ring() {
    for seq in 1..=3 {
        let mut rig = Rig::with_log_at(Content::Fast, LogEnd { next_seq: seq, next_group: 9, tail_seq: seq });
        rig.fill(text);
        rig.check(text);
    }
}

/// Not idleness, but the same shard: its RAM holds eight blocks and 65 bases, so that most originals are on the SSD alone when their
/// copies come. (A pool so small remembers keys of some two hundred blocks.)
#[test]
fn a_copy_finds_its_original_on_the_ssd() {
    const ORIGINALS: u64 = 160;
    let mut rig = Rig::new(Content::Fast);
    for first in (0..ORIGINALS).step_by(AT_ONCE as usize) {
        rig.write(first, &(first..first + AT_ONCE).map(noise).collect::<Vec<_>>());
    }
    let (reads, written) = (rig.ssd_pages_read, rig.shard.stats().ssd_written_bytes);
    for first in (0..ORIGINALS).step_by(AT_ONCE as usize) {
        rig.write(4096 + first, &(first..first + AT_ONCE).map(noise).collect::<Vec<_>>());
    }
    let duplicates = rig.shard.content_stats().census.duplicate;
    assert!(duplicates > ORIGINALS * 9 / 10, "{duplicates} of {ORIGINALS} were seen to be copies");
    assert!(
        rig.ssd_pages_read - reads > duplicates / 2,
        "{} pages read for {duplicates} copies: where did the originals come from?",
        rig.ssd_pages_read - reads
    );
    let written = rig.shard.stats().ssd_written_bytes - written;
    assert!(written < ORIGINALS * 4096 / 4, "{written} bytes were written for copies");
    rig.check(|block| noise(block % 4096));
}

/// A block of so many bytes of noise; the rest is zero.
fn partly_noise(seed: u64, bytes: usize) -> [u8; 4096] {
    let mut block = [0; 4096];
    for (at, word) in block[..bytes].chunks_mut(8).enumerate() {
        word.copy_from_slice(&mix(seed << 16 | at as u64).to_le_bytes()[..word.len()]);
    }
    block
}

/// The log's limit of dirty data is there for the cleaner, so it counts what is stored: four blocks of a quarter page each are one page.
#[test]
fn the_write_cache_takes_as_much_as_can_be_stored() {
    let mut rig = Rig::new(Content::Fast);
    let slots = rig.shard.stats().slots;
    let dirty_blocks = |rig: &Rig| rig.shard.stats().dirty_blocks;
    for first in (0..slots).step_by(AT_ONCE as usize) {
        let blocks: Vec<_> = (first..first + AT_ONCE).map(|block| partly_noise(block, 900)).collect();
        rig.write(first, &blocks);
    }
    let written = slots.next_multiple_of(AT_ONCE);
    assert_eq!(dirty_blocks(&rig), written, "of {slots} pages none had to go home");
    assert!(rig.backing.iter().all(|byte| *byte == 0));
    // Written over with what cannot be packed, the same blocks would not fit any more: writes wait until others are home.
    rig.holds_home = true;
    for first in (0..written).step_by(AT_ONCE as usize) {
        let page = |block: u64| {
            let mut page = rig.pool.allocate().expect("a client page");
            page.copy_from_slice(&partly_noise(block + 1, 4096));
            page.freeze()
        };
        let pages = (first..first + AT_ONCE).map(page).collect();
        let (id, start_sector, sectors) = (rig.next_id, first * 8, AT_ONCE as u32 * 8);
        rig.next_id += 1;
        let request = Request { id, volume: VOLUME, op: Op::Write, fua: false, start_sector, sectors, pages, bypass: None, wanted: false };
        rig.shard.submit(rig.now_ns, request);
        rig.drain();
    }
    let told = rig.shard.describe();
    let numbers: Vec<u64> =
        told.split("dirty in ").nth(1).expect(&told).split(' ').filter_map(|word| word.trim_end_matches(',').parse().ok()).collect();
    assert!(numbers[0] <= numbers[1], "{told}");
    assert!(rig.shard.stats().requests > 0, "some wait");
    rig.holds_home = false;
    for io in std::mem::take(&mut rig.held) {
        let start = io.offset_bytes as usize;
        if let IoKind::Write { pages, .. } = &io.kind {
            pages.iter().enumerate().for_each(|(at, page)| rig.backing[start + at * 4096..][..4096].copy_from_slice(&page[..]));
        }
        rig.shard.complete(rig.now_ns, Completion { id: io.id, result: Ok(()), pages: page::PageMutVec::new() });
    }
    rig.drain();
    while rig.shard.stats().requests > 0 {
        rig.tick();
    }
    rig.replies.clear();
    // So does what is new, and all of it gets through.
    let mut most = 0;
    for first in (written..written + 2 * slots).step_by(AT_ONCE as usize) {
        let blocks: Vec<_> = (first..first + AT_ONCE).map(|block| partly_noise(block, 4096)).collect();
        rig.write(first, &blocks);
        most = most.max(dirty_blocks(&rig));
    }
    assert!(dirty_blocks(&rig) * 10 <= slots * 7, "{} of {slots}, at most {most}", dirty_blocks(&rig));
    for block in (0..written + 2 * slots).step_by(97) {
        let content = if block < written { partly_noise(block + 1, 4096) } else { partly_noise(block, 4096) };
        let reply = rig.request(Op::Read, block, PageVec::new()).expect("an answer");
        assert!(reply.pages[0][..] == content[..], "block {block}");
    }
}
