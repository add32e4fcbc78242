//! A cached block that the SSD cannot read, or gives back wrong, is a miss while it is clean and an error while it is dirty; never wrong data.

#[path = "bad_cached_copy/one_page.rs"]
mod one_page;

use engine::api::{
    Action, Command, Completion, Event, Io, IoError, IoKind, Op, Origin, Outcome, Reply, Request, RequestError, VolumeOptions,
};
use engine::packer::ContentOptions;
use engine::shard::{DIRTY_MAX_PERMILLE, PAGES_MIN, Scrubbed, Shard, ShardConfig};
use engine::store::StorePlace;
use format::Layout;
use format::checkpoint::LogEnd;
use page::{Page, PageMutVec, PagePool, PageVec};
use types::{BypassReason, Content, Mode, ShardIndex, VolumeId, VolumeIndex};

const VOLUME: VolumeIndex = VolumeIndex(0);
const SSD_BYTES: u64 = 6 << 20;
const VOLUME_BYTES: usize = 8 << 20;

#[derive(Clone, Copy, PartialEq)]
enum Ssd {
    Sound,
    FailsReads,
    /// That touch this page.
    FailsReadsOf(u64),
    FlipsBits,
    /// Of pages that begin with this byte only.
    FlipsBitsOf(u8),
    /// In every byte.
    Scrambles,
}

struct Rig {
    shard: Shard,
    pool: PagePool,
    ssd: Vec<u8>,
    backing: Vec<u8>,
    ssd_is: Ssd,
    now_ns: u64,
    done: Vec<Result<(), engine::api::CommandFailure>>,
    /// Dirty blocks that were reported as unreadable.
    unreadable: Vec<u64>,
    /// I/O of this kind is not performed but kept.
    holds: Option<fn(&Io) -> bool>,
    held: Vec<Io>,
    /// Writes to the backing device never end.
    home_hangs: bool,
}

const BLOCKS: u64 = VOLUME_BYTES as u64 / 4096;
/// The first of more blocks than there are slots, which nothing writes.
const FILLING: u64 = 512;

/// Nothing goes home before it is asked to.
fn options() -> VolumeOptions {
    VolumeOptions { mode: Mode::WriteBack, write_cache_depth_ns: u64::MAX / 2, ..VolumeOptions::default() }
}

impl Rig {
    fn new() -> Rig {
        let pool = PagePool::new(PAGES_MIN + 1024);
        let layout = Layout::plan(SSD_BYTES, 1, 64 << 10).expect("a small pool").with_packed_slots();
        let ring_first = layout.slots_per_shard() - layout.ring_pages;
        let place = StorePlace { uuid: [7; 16], session: 1, shard: ShardIndex(0), layout, ring_first };
        let config = ShardConfig { place, ram_blocks: 0, pool: pool.clone(), dirty_max_permille: DIRTY_MAX_PERMILLE };
        let mut shard = Shard::new(config, LogEnd { next_seq: 1, next_group: 1, tail_seq: 1 });
        let id = VolumeId(1);
        shard.command(0, Command::Attach { volume: VOLUME, id, size_bytes: VOLUME_BYTES as u64, options: options() });
        let (ssd, backing) = (vec![0; SSD_BYTES as usize], vec![0; VOLUME_BYTES]);
        Rig {
            shard,
            pool,
            ssd,
            backing,
            ssd_is: Ssd::Sound,
            now_ns: 1,
            done: Vec::new(),
            unreadable: Vec::new(),
            holds: None,
            held: Vec::new(),
            home_hangs: false,
        }
    }

    /// Has blocks that nobody else uses read so often, of more than there are slots: then clean ones have to go, of all parts of the cache.
    fn fill_slots(&mut self, reads: u64) {
        for read in 0..reads {
            self.read(FILLING + read % (BLOCKS - FILLING).min(self.shard.stats().slots * 5 / 4));
        }
    }

    /// Three sectors in the middle of a block are asked for: the short way is for those, too.
    fn read(&mut self, block: u64) -> Reply {
        self.request(Op::Read, block * 8 + 2, 3, PageVec::new())
    }

    fn write(&mut self, block: u64, byte: u8) {
        let pages = self.page_of(byte);
        let reply = self.request(Op::Write, block * 8, 8, pages);
        assert_eq!(reply.result, Ok(()));
    }

    fn request(&mut self, op: Op, start_sector: u64, sectors: u32, pages: PageVec) -> Reply {
        self.submit(op, start_sector, sectors, pages, None);
        self.drain().expect("the devices answer at once")
    }

    fn submit(&mut self, op: Op, start_sector: u64, sectors: u32, pages: PageVec, bypass: Option<BypassReason>) {
        self.now_ns += 1000;
        let request = Request::new(5, VOLUME, op, start_sector, sectors, Origin::Client).around(bypass).pages(pages);
        self.shard.submit(self.now_ns, request);
    }

    fn page_of(&self, byte: u8) -> PageVec {
        let mut page = self.pool.allocate().expect("a page");
        page.fill(byte);
        PageVec::from_buf([page.freeze()])
    }

    /// A page that begins with so many bytes of noise; the rest is zero.
    fn noise(&self, seed: u64, bytes: usize) -> Page {
        let mut page = self.pool.allocate().expect("a page");
        page.fill(0);
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        for byte in &mut page[..bytes] {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *byte = state as u8;
        }
        page.freeze()
    }

    fn set_mode(&mut self, mode: Mode) {
        let options = VolumeOptions { mode, ..VolumeOptions::default() };
        self.shard.command(self.now_ns, Command::SetOptions { token: 2, volume: VOLUME, options });
    }

    fn destage(&mut self) {
        self.shard.command(self.now_ns, Command::Destage { token: 1, volume: VOLUME });
        while self.done.is_empty() {
            self.drain();
            self.now_ns += 1_000_000;
            self.shard.tick(self.now_ns);
        }
        assert_eq!(self.done.pop(), Some(Ok(())));
    }

    fn drain(&mut self) -> Option<Reply> {
        let mut reply = None;
        while let Some(action) = self.shard.poll_action() {
            match action {
                Action::Io(io) => self.perform(io),
                Action::Reply(answer) => reply = Some(answer),
                Action::Event(Event::CommandDone(_, result)) => self.done.push(result),
                Action::Event(Event::DirtyBlockUnreadable(_, block)) => self.unreadable.push(block),
                Action::Event(_) => {}
            }
        }
        self.shard.check_invariants();
        reply
    }

    fn perform_held(&mut self) {
        for io in std::mem::take(&mut self.held) {
            self.perform(io);
        }
    }

    fn perform(&mut self, io: Io) {
        if self.holds.is_some_and(|holds| holds(&io)) {
            self.held.push(io);
            return;
        }
        let of_ssd = io.target.is_ssd();
        if self.home_hangs && !of_ssd && matches!(io.kind, IoKind::Write { .. }) {
            return;
        }
        let device = if of_ssd { &mut self.ssd } else { &mut self.backing };
        let at = io.offset_bytes as usize;
        let (mut filled, mut result) = (PageMutVec::new(), Ok(()));
        match io.kind {
            IoKind::Read(mut pages) => {
                for (index, page) in pages.iter_mut().enumerate() {
                    page.copy_from_slice(&device[at + index * 4096..at + (index + 1) * 4096]);
                    let flips = self.ssd_is == Ssd::FlipsBits || self.ssd_is == Ssd::FlipsBitsOf(page[0]);
                    page[1234] ^= u8::from(of_ssd && flips);
                    if of_ssd && self.ssd_is == Ssd::Scrambles {
                        page.iter_mut().for_each(|byte| *byte ^= 1);
                    }
                }
                let fails = match self.ssd_is {
                    Ssd::FailsReads => true,
                    Ssd::FailsReadsOf(page) => (at..at + pages.len() * 4096).contains(&(page as usize * 4096)),
                    _ => false,
                };
                if of_ssd && fails {
                    result = Err(IoError::Failed);
                }
                filled = pages;
            }
            IoKind::Write { pages, .. } => {
                for (index, page) in pages.iter().enumerate() {
                    device[at + index * 4096..at + (index + 1) * 4096].copy_from_slice(&page[..]);
                }
            }
            _ => {}
        }
        self.shard.complete(self.now_ns, Completion { id: io.id, result, pages: filled });
    }
}

fn contents(pages: &PageVec) -> Vec<&[u8]> {
    pages.iter().map(|page| &page[..]).collect()
}

fn clean_and_dirty(bad: Ssd) {
    let mut rig = Rig::new();
    rig.write(3, 7);
    rig.destage();
    rig.write(4, 8);
    assert_eq!(rig.read(3).outcome, Outcome::SsdHit);

    rig.ssd_is = bad;
    let reply = rig.read(3);
    assert_eq!((reply.result, reply.outcome), (Ok(()), Outcome::Miss));
    assert!(reply.pages[0].iter().all(|byte| *byte == 7), "the backing device's content");
    assert_eq!(rig.read(4).result, Err(RequestError::Io), "the backing device's content would be stale");
    let stats = rig.shard.volume_stats(VOLUME).expect("attached");
    assert_eq!(stats.checksum_errors + stats.ssd_read_errors, 2);

    rig.ssd_is = Ssd::Sound;
    assert!(rig.read(3).pages[0].iter().all(|byte| *byte == 7), "wherever it is cached now");
    assert!(rig.read(4).pages[0].iter().all(|byte| *byte == 8), "the dirty one was kept");
    assert_eq!(rig.shard.stats().requests, 0);
}

#[test]
fn an_ssd_that_cannot_read() {
    clean_and_dirty(Ssd::FailsReads);
}

#[test]
fn an_ssd_that_gives_back_something_else() {
    clean_and_dirty(Ssd::FlipsBits);
}

/// A block that only lay beside an unreadable one on its way home is no worse for that.
#[test]
fn a_neighbour_that_can_be_read_goes_home() {
    let mut rig = Rig::new();
    rig.write(3, 7);
    rig.write(4, 8);
    rig.ssd_is = Ssd::FlipsBitsOf(7);
    // Both are one run of destage. Before it has been read, a write arrives that needs one of them at home.
    rig.set_mode(Mode::PassThrough);
    let pages = rig.page_of(9);
    rig.submit(Op::Write, 4 * 8 + 2, 3, pages, None);
    let reply = rig.drain().expect("the devices answer at once");
    assert_eq!((reply.result, reply.outcome), (Ok(()), Outcome::WriteThrough));
    assert_eq!(rig.backing[4 * 4096..4 * 4096 + 1024], [8; 1024]);
    assert_eq!(rig.backing[4 * 4096 + 1024..4 * 4096 + 2560], [9; 1536]);
    assert_eq!(rig.read(3).result, Err(RequestError::Io), "what is lost is told");
    rig.ssd_is = Ssd::Sound;
}

/// A block that cannot be read keeps no other from going home, even where destage waits as long between
/// two runs as such a block rests.
#[test]
fn the_others_of_an_extent_go_home_at_the_lowest_rate() {
    let mut rig = Rig::new();
    let options = VolumeOptions { destage_rate_bytes: Some(1 << 20), ..options() };
    rig.shard.command(rig.now_ns, Command::SetOptions { token: 2, volume: VOLUME, options });
    rig.drain();
    assert_eq!(rig.done.pop(), Some(Ok(())));
    (0..240).for_each(|block| rig.write(block, if block == 40 { 7 } else { 1 }));
    assert_eq!(rig.request(Op::Flush, 0, 0, PageVec::new()).result, Ok(()));
    rig.ssd_is = Ssd::FlipsBitsOf(7);
    rig.shard.command(rig.now_ns, Command::Destage { token: 1, volume: VOLUME });
    let at_home = |rig: &Rig| rig.backing.chunks(4096).filter(|block| block[0] == 1).count();
    for _ in 0..30 {
        rig.drain();
        rig.now_ns += 1_000_000_000;
        rig.shard.tick(rig.now_ns);
    }
    assert_eq!(at_home(&rig), 239, "all but the one go home in half a minute");
    let told = rig.done.pop().expect("the command has ended").expect_err("one block is not at home");
    assert_eq!(told, engine::api::CommandFailure::Unreadable(1));

    // What can be read again after all goes home.
    rig.ssd_is = Ssd::Sound;
    rig.now_ns += 1_000_000_000;
    rig.destage();
    assert_eq!(rig.backing[40 * 4096], 7);
}

/// Who leaves write-back must find no dirty block at the next start: neither one that came home nor one that was written over there.
#[test]
fn leaving_write_back_waits_until_no_record_calls_a_block_dirty() {
    let mut rig = Rig::new();
    rig.write(5, 7);
    assert_eq!(rig.request(Op::Flush, 0, 0, PageVec::new()).result, Ok(()));
    // A write over the dirty block, around the log, is under way when the mode changes.
    rig.holds = Some(|io| !io.target.is_ssd() && matches!(io.kind, IoKind::Write { .. }));
    let pages = rig.page_of(8);
    rig.submit(Op::Write, 5 * 8, 8, pages, Some(BypassReason::Sequential));
    assert!(rig.drain().is_none());
    rig.set_mode(Mode::WriteAround);
    rig.drain();
    rig.holds = Some(|io| io.target.is_ssd() && matches!(io.kind, IoKind::Flush));
    rig.perform_held();
    assert_eq!(rig.drain().expect("written").outcome, Outcome::Bypass);
    assert!(rig.done.is_empty(), "the record that it is void is not durable yet");
    rig.holds = None;
    rig.perform_held();
    rig.drain();
    assert_eq!(rig.done, [Ok(())]);
}

impl Rig {
    /// A check of the whole pool, segment by segment; what was found, and the time that passed.
    fn check(&mut self) -> (Scrubbed, u64) {
        let (mut all, begun_ns) = (Scrubbed::default(), self.now_ns);
        for segment in 0..self.shard.config().place.layout.segments_per_shard {
            self.shard.command(self.now_ns, Command::Check { token: 9, segment });
            self.drain();
            while self.done.is_empty() {
                self.now_ns = self.shard.next_deadline().expect("it goes on").max(self.now_ns + 1000);
                self.shard.tick(self.now_ns);
                self.drain();
            }
            assert_eq!(self.done.pop(), Some(Ok(())));
            let found = self.shard.scrubbed();
            all.blocks += found.blocks;
            all.clean_bad += found.clean_bad;
            all.dirty_bad += found.dirty_bad;
            all.dirty_bad_at.extend(&found.dirty_bad_at);
        }
        (all, self.now_ns - begun_ns)
    }

    /// A check of the shelf where the first block lies.
    fn check_of_what_is_there(&self) -> Command {
        let layout = self.shard.config().place.layout;
        let page = (0..).find(|page| self.ssd[page * 4096..][..4096] == [1; 4096]).expect("it is on the SSD");
        let from_bytes = page as u64 * 4096 - layout.segments_at_bytes();
        Command::Check { token: 9, segment: (from_bytes / u64::from(layout.segment_bytes)) as u32 }
    }

    /// Blocks 0 to 9 clean, 10 to 19 dirty, each full of its number and one.
    fn fill(&mut self) {
        (0..10).for_each(|block| self.write(block, block as u8 + 1));
        self.destage();
        (10..20).for_each(|block| self.write(block, block as u8 + 1));
        assert_eq!(self.request(Op::Flush, 0, 0, PageVec::new()).result, Ok(()));
    }
}

#[test]
fn a_check_compares_every_block_and_changes_nothing_that_is_good() {
    let mut rig = Rig::new();
    rig.fill();
    let before = rig.shard.volume_stats(VOLUME).expect("attached");
    let (found, _) = rig.check();
    assert_eq!(found, Scrubbed { blocks: 20, ..Scrubbed::default() });
    let after = rig.shard.volume_stats(VOLUME).expect("attached");
    assert_eq!(after, before, "a check is no client");
    (0..20).for_each(|block| assert_eq!(rig.read(block).outcome, Outcome::SsdHit));
}

fn check_finds(bad: Ssd, clean_bad: u64, dirty_bad_at: &[u64]) {
    let mut rig = Rig::new();
    rig.fill();
    rig.ssd_is = bad;
    let (found, _) = rig.check();
    let at: Vec<_> = dirty_bad_at.iter().map(|block| (VOLUME, *block)).collect();
    assert_eq!(found, Scrubbed { blocks: 20, clean_bad, dirty_bad: at.len() as u64, dirty_bad_at: at });
    rig.ssd_is = Ssd::Sound;
    let (again, _) = rig.check();
    assert_eq!(again.blocks, 20 - clean_bad, "bad clean ones are void, and dirty ones are kept");
    for block in 0..20 {
        assert!(rig.read(block).pages[0].iter().all(|byte| *byte == block as u8 + 1), "block {block}");
    }
}

#[test]
fn a_check_voids_bad_clean_blocks_and_tells_bad_dirty_ones() {
    check_finds(Ssd::FlipsBitsOf(4), 1, &[]);
    check_finds(Ssd::FlipsBitsOf(15), 0, &[14]);
    check_finds(Ssd::FlipsBits, 10, &(10..20).collect::<Vec<_>>());
    check_finds(Ssd::FailsReads, 10, &(10..20).collect::<Vec<_>>());
}

/// Packed blocks are fetched with what they rest on, from the SSD and not from memory.
#[test]
fn a_check_looks_at_packed_blocks_and_their_bases() {
    let mut rig = Rig::new();
    let slots = u64::from(rig.shard.config().place.layout.slots_per_shard());
    rig.shard.set_content(ContentOptions::suited(Content::Fast, 5, slots, 64));
    rig.write(0, 0);
    for block in 1..30 {
        // Equal blocks, zeroes among them, and such as compress.
        let mut pages = rig.page_of(0);
        if block % 3 != 0 {
            let mut page = rig.pool.allocate().expect("a page");
            page.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at / 7 % 11) as u8 + (block % 3) as u8);
            pages = PageVec::from_buf([page.freeze()]);
        }
        assert_eq!(rig.request(Op::Write, block * 8, 8, pages).result, Ok(()));
    }
    assert_eq!(rig.request(Op::Flush, 0, 0, PageVec::new()).result, Ok(()));
    let census = rig.shard.content_stats().census;
    assert!(census.zero > 0 && census.duplicate > 0 && census.lz4 + census.raw > 0, "{census:?}");
    assert_eq!(rig.check().0, Scrubbed { blocks: 30, ..Scrubbed::default() });
    rig.ssd_is = Ssd::Scrambles;
    let (found, _) = rig.check();
    assert_eq!(found.blocks, 30);
    assert_eq!(found.dirty_bad, 30 - census.zero, "all but what needs no bytes: {found:?}");
    rig.ssd_is = Ssd::Sound;
}

/// Blocks that were written together lie together, and are read together; when such a read fails, each is judged by its own pages.
#[test]
fn packed_neighbours_are_read_at_once_and_fail_each_for_itself() {
    const BLOCKS: usize = 16;
    let mut rig = Rig::new();
    let slots = u64::from(rig.shard.config().place.layout.slots_per_shard());
    rig.shard.set_content(ContentOptions { base_pages: 0, ..ContentOptions::suited(Content::Fast, 5, slots, 0) });
    let pages: PageVec = (0..BLOCKS).map(|block| rig.noise(block as u64, 2048)).collect();
    assert_eq!(rig.request(Op::Write, 0, BLOCKS as u32 * 8, pages.clone()).result, Ok(()));
    rig.destage();
    assert_eq!(rig.shard.content_stats().census.lz4, BLOCKS as u64);
    let pages_out = rig.pool.pages_out();

    rig.holds = Some(|io| io.target.is_ssd() && matches!(io.kind, IoKind::Read(_)));
    rig.submit(Op::Read, 0, BLOCKS as u32 * 8, PageVec::new(), None);
    assert!(rig.drain().is_none());
    let [io] = &rig.held[..] else { panic!("{} reads", rig.held.len()) };
    let first_page = io.offset_bytes / 4096;
    assert!((8..=10).contains(&(io.length_bytes / 4096)), "half a page each: {io:?}");
    rig.holds = None;
    rig.perform_held();
    let reply = rig.drain().expect("read");
    assert_eq!((contents(&reply.pages), reply.outcome), (contents(&pages), Outcome::SsdHit));

    rig.ssd_is = Ssd::FailsReadsOf(first_page + 4);
    let reply = rig.request(Op::Read, 0, BLOCKS as u32 * 8, PageVec::new());
    assert_eq!((reply.result, contents(&reply.pages), reply.outcome), (Ok(()), contents(&pages), Outcome::Miss));
    let errors = rig.shard.volume_stats(VOLUME).expect("attached").ssd_read_errors;
    assert!((1..=3).contains(&errors), "{errors} blocks lie in that page");
    assert_eq!(rig.pool.pages_out(), pages_out + 2 * BLOCKS, "beside the two replies");
}

/// A check takes nothing from memory but what the SSD does not have yet: such as the base of a block that is being moved out of a slot that is
/// nearly empty.
#[test]
fn a_check_meets_a_base_that_is_being_moved() {
    let mut rig = Rig::new();
    let slots = u64::from(rig.shard.config().place.layout.slots_per_shard());
    rig.shard.set_content(ContentOptions::suited(Content::Fast, 5, slots, 64));
    let base = rig.noise(0, 2000);
    assert_eq!(rig.request(Op::Write, 0, 8, PageVec::from_buf([base.clone()])).result, Ok(()));
    let has_base = |page: &Page| page.windows(1900).any(|bytes| bytes == &base[..1900]);
    let carries_base = |io: &Io| matches!(&io.kind, IoKind::Write { pages, .. } if pages.iter().any(has_base));
    rig.home_hangs = true;
    rig.fill_slots(2 * slots);
    let mut met = 0;
    for round in 0..1500 {
        let (block, page) = match round % 100 {
            // Dirty, and it rests on its base.
            50 => (200, base.clone()),
            other => (1 + other, rig.noise(round + 1, 2000)),
        };
        rig.read(FILLING + round % (BLOCKS - FILLING));
        rig.holds = Some(|io| io.target.is_ssd() && matches!(io.kind, IoKind::Write { .. }));
        rig.submit(Op::Write, block * 8, 8, PageVec::from_buf([page]), None);
        rig.drain();
        if rig.held.iter().any(carries_base) {
            met += 1;
            // Another write ends meanwhile; with it all places are known.
            rig.holds = None;
            let pages = PageVec::from_buf([rig.noise(round + 10_000, 4096)]);
            rig.submit(Op::Write, 201 * 8, 8, pages, None);
            rig.drain();
            let (found, _) = rig.check();
            assert_eq!((found.clean_bad, found.dirty_bad), (0, 0), "round {round}: {found:?}");
        }
        rig.holds = None;
        rig.perform_held();
        rig.drain();
        assert_eq!(rig.shard.stats().requests, 0);
    }
    assert!(met > 3, "the base moved {met} times");
}

/// While a volume waits to be attached, a start may yet say that a block was written past the SSD: then it is whole at home, and no error is told.
/// Otherwise the error is told once the volume is attached.
#[test]
fn a_bad_block_of_a_volume_that_waits_is_told_when_it_is_attached() {
    for past in [false, true] {
        let mut rig = Rig::new();
        (0..3).for_each(|block| rig.write(block, 7));
        rig.shard.command(rig.now_ns, Command::Release { token: 3, volume: VOLUME });
        rig.drain();
        assert_eq!(rig.done.pop(), Some(Ok(())));
        rig.ssd_is = Ssd::FlipsBits;
        let (found, _) = rig.check();
        assert_eq!((found.dirty_bad, rig.unreadable.as_slice()), (3, &[][..]));
        if past {
            rig.shard.command(rig.now_ns, Command::VoidPast { token: 4, volume: VOLUME, past: vec![0..2, 2..3] });
            rig.drain();
            assert_eq!(rig.done.pop(), Some(Ok(())));
        }
        let (id, size_bytes) = (VolumeId(1), VOLUME_BYTES as u64);
        rig.shard.command(rig.now_ns, Command::Attach { volume: VOLUME, id, size_bytes, options: options() });
        let answers = [0, 1, 2].map(|block| rig.read(block).result.is_ok());
        assert_eq!(answers, [past; 3]);
        rig.unreadable.sort_unstable();
        rig.unreadable.dedup();
        assert_eq!(rig.unreadable, if past { vec![] } else { vec![0, 1, 2] });
    }
}

/// Reads are short, one at a time, and the shard rests three times as long as each took.
#[test]
fn a_check_leaves_the_ssd_to_clients() {
    let mut rig = Rig::new();
    (0..200).for_each(|block| rig.write(block, 3));
    rig.holds = Some(|io| io.target.is_ssd() && io.background && matches!(io.kind, IoKind::Read(_)));
    let (mut reads, mut busy_ns, begun_ns) = (0, 0, rig.now_ns);
    for segment in 0..rig.shard.config().place.layout.segments_per_shard {
        rig.shard.command(rig.now_ns, Command::Check { token: 9, segment });
        rig.drain();
        while rig.done.is_empty() {
            assert!(rig.held.len() <= 1, "one at a time");
            if let Some(io) = rig.held.first() {
                assert!(io.length_bytes <= 128 << 10);
                (reads, busy_ns) = (reads + 1, busy_ns + 200_000);
                rig.now_ns += 200_000;
                rig.holds = None;
                rig.perform_held();
                rig.holds = Some(|io| io.target.is_ssd() && io.background && matches!(io.kind, IoKind::Read(_)));
            } else {
                rig.now_ns = rig.shard.next_deadline().expect("it goes on").max(rig.now_ns + 1000);
                rig.shard.tick(rig.now_ns);
            }
            rig.drain();
        }
        assert_eq!(rig.done.pop(), Some(Ok(())));
    }
    assert!(reads > 5, "{reads} reads");
    let took_ns = rig.now_ns - begun_ns;
    assert!(busy_ns * 4 <= took_ns + 4 * 200_000, "{busy_ns} of {took_ns} ns");
}

/// Without pages to read into a check waits: its next look is always ahead, or the shard would be woken without end.
#[test]
fn a_check_waits_for_pages() {
    let mut rig = Rig::new();
    rig.fill();
    let all: Vec<_> = std::iter::from_fn(|| rig.pool.allocate()).collect();
    let check = rig.check_of_what_is_there();
    rig.shard.command(rig.now_ns, check);
    rig.drain();
    for _ in 0..10 {
        let next_ns = rig.shard.next_deadline().expect("it tries again");
        assert!(next_ns > rig.now_ns, "{next_ns} is not ahead of {}", rig.now_ns);
        rig.now_ns = next_ns;
        rig.shard.tick(rig.now_ns);
        rig.drain();
    }
    assert!(rig.done.is_empty() && rig.shard.scrubbed().blocks == 0);
    drop(all);
    while rig.done.is_empty() {
        rig.now_ns = rig.shard.next_deadline().expect("it goes on").max(rig.now_ns + 1);
        rig.shard.tick(rig.now_ns);
        rig.drain();
    }
    assert_eq!(rig.done, [Ok(())]);
    assert!(rig.shard.scrubbed().blocks > 0);
}

/// A check that is cancelled, and one that meets the end of its volume or of the pool, end; and another can begin.
#[test]
fn a_check_ends_when_it_must() {
    let holds = |io: &Io| io.target.is_ssd() && io.background && matches!(io.kind, IoKind::Read(_));
    let mut rig = Rig::new();
    rig.fill();
    let check = rig.check_of_what_is_there();
    rig.holds = Some(holds);
    rig.shard.command(rig.now_ns, check.clone());
    rig.drain();
    assert_eq!((rig.held.len(), rig.done.len()), (1, 0));
    rig.shard.command(rig.now_ns, check.clone());
    rig.drain();
    assert_eq!(rig.done.pop(), Some(Err(engine::api::CommandFailure::AnotherCheck)));
    rig.shard.command(rig.now_ns, Command::Cancel { token: 9 });
    rig.drain();
    assert!(rig.done.is_empty(), "what is on its way ends first");
    rig.perform_all_held();
    assert_eq!(rig.done.pop(), Some(Err(engine::api::CommandFailure::Cancelled)));

    rig.holds = Some(holds);
    rig.now_ns += 1_000_000;
    rig.shard.command(rig.now_ns, check.clone());
    rig.drain();
    assert_eq!(rig.held.len(), 1);
    rig.shard.command(rig.now_ns, Command::Detach { token: 3, volume: VOLUME });
    rig.drain();
    assert!(rig.done.is_empty(), "the volume waits for the read");
    rig.perform_all_held();
    for _ in 0..10 {
        rig.now_ns += 10_000_000;
        rig.shard.tick(rig.now_ns);
        rig.drain();
    }
    assert_eq!(rig.done, [Ok(()), Ok(())], "the volume is gone, and the check has nothing more to look at");
    assert_eq!(rig.shard.stats().cached_blocks, 0);

    let mut rig = Rig::new();
    rig.fill();
    rig.holds = Some(holds);
    rig.shard.command(rig.now_ns, check.clone());
    rig.drain();
    rig.shard.command(rig.now_ns, Command::Quiesce { token: 4 });
    rig.drain();
    rig.perform_all_held();
    rig.done.sort_by_key(Result::is_ok);
    assert_eq!(rig.done, [Err(engine::api::CommandFailure::Stopped), Ok(())]);
    assert!(rig.shard.is_quiesced());
    rig.done.clear();
    rig.shard.command(rig.now_ns, check);
    rig.drain();
    assert!(rig.done[0].is_err());
}

impl Rig {
    fn perform_all_held(&mut self) {
        self.holds = None;
        self.perform_held();
        self.drain();
    }
}
