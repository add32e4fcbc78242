//! One shard alone on devices in memory, which answer at once unless they are told to hold what they got.

use super::disk::Disk;
use engine::api::{Action, Command, Completion, Event, Io, IoKind, Op, Origin, Reply, Request, VolumeOptions, WriteKind};
use engine::index::Index;
use engine::key::mix;
use engine::packer::ContentOptions;
use engine::shard::{DIRTY_MAX_PERMILLE, PAGES_MIN, RecoveredBlock, Restored, Shard, ShardConfig};
use engine::store::{StorePlace, slots};
use engine::superblock;
use format::Layout;
use format::checkpoint::LogEnd;
use format::slots::Set;
use page::{PagePool, PageVec};
use types::{Admission, Content, Mode, ShardIndex, VolumeId, VolumeIndex};

const SSD_BYTES: u64 = 6 << 20;
const BLOCKS: u64 = 8192;
/// Blocks in one write.
pub const AT_ONCE: u64 = 32;
const VOLUME: VolumeIndex = VolumeIndex(0);
pub const SECOND_NS: u64 = 1_000_000_000;

pub struct Rig {
    pub shard: Shard,
    pub ssd: Vec<u8>,
    pub backing: Vec<u8>,
    pub now_ns: u64,
    pub replies: Vec<Reply>,
    pub next_id: u64,
    pub pool: PagePool,
    /// How often time was what woke the shard.
    pub ticks: u64,
    pub ssd_pages_read: u64,
    /// Pages that were written to the SSD, where, and as what.
    pub ssd_writes: Vec<(WriteKind, u64, [u8; 4096])>,
    /// I/Os of the backing device are not performed but kept.
    pub holds_home: bool,
    /// Flushes of the backing device are not performed but kept.
    pub holds_home_flushes: bool,
    /// How long a look at a block takes, to encode it.
    pub look_ns: u64,
    /// So are flushes of the SSD.
    pub holds_ssd_flushes: bool,
    pub held: Vec<Io>,
    /// Dirty blocks may be told to be unreadable.
    pub tolerates_unreadable: bool,
}

impl Rig {
    pub fn new(content: Content) -> Rig {
        Rig::with_ring_at(content, LogEnd { next_seq: 1, next_group: 1, tail_seq: 1 })
    }

    pub fn with_ring_at(content: Content, start: LogEnd) -> Rig {
        let layout = Layout::plan(SSD_BYTES, 1, 64 << 10).expect("a small pool").with_packed_slots();
        let pool = PagePool::new(2 * PAGES_MIN + 8192);
        let place = StorePlace { uuid: [7; 16], session: 1, shard: ShardIndex(0), layout, ring_first: 0 };
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
            ssd_writes: Vec::new(),
            holds_home: false,
            holds_home_flushes: false,
            look_ns: 0,
            holds_ssd_flushes: false,
            held: Vec::new(),
            tolerates_unreadable: false,
        };
        rig.set(content);
        rig
    }

    /// The same backing device behind the pool that is on that SSD.
    pub fn restarted(self, disk: &mut Disk, content: Content) -> Rig {
        let mut state = superblock::load(disk).expect("loads");
        state.reserve_session(disk).expect("stores");
        let layout = state.superblock.layout;
        let index = Index::new(layout.slots_per_shard(), layout.pages_per_segment());
        let (mut found, mut next_object) = (Restored::with_index(index), 1);
        let mut add = |set: &Set| {
            let (slot, stored) = slots::in_index(set);
            next_object = stored.map_or(0, |stored| stored.object + 1).max(next_object);
            let Set { block, dirty, mask, checksum, .. } = *set;
            match stored.filter(|_| slots::recovery::is_base(set)) {
                Some(stored) => found.add_base(slot, checksum, stored),
                None => found.add(RecoveredBlock { volume: VOLUME, block, slot, dirty, mask, checksum, stored }),
            }
        };
        let session = state.superblock.session;
        let (end, _) = slots::recovery::recover(disk, &state.superblock, ShardIndex(0), session, false, &mut add).expect("starts");
        found.objects_end_before(next_object);
        state.begin_session(disk, &[end], &[]).expect("begins");
        let ring_first = state.superblock.log_starts[0].ring_first;
        let place = StorePlace { uuid: state.superblock.uuid, session, shard: ShardIndex(0), layout, ring_first };
        let config = ShardConfig { place, ram_blocks: 8, pool: self.pool.clone(), dirty_max_permille: DIRTY_MAX_PERMILLE };
        let mut shard = Shard::with_blocks(config, end, found);
        let options = VolumeOptions { mode: Mode::WriteBack, admission: Admission::Always, ..VolumeOptions::default() };
        shard.command(self.now_ns, Command::Attach { volume: VOLUME, id: VolumeId(1), size_bytes: BLOCKS * 4096, options });
        let ssd = (0..SSD_BYTES / 4096).flat_map(|page| disk.page(page)).collect();
        let mut rig = Rig { shard, ssd, ..self };
        rig.set(content);
        rig.drain();
        rig
    }

    pub fn set(&mut self, content: Content) {
        let slots = self.shard.stats().slots;
        self.shard.set_content(ContentOptions::suited(content, 5, slots, 8));
    }

    pub fn drain(&mut self) {
        let looks = u64::from(self.shard.untimed_looks());
        if looks > 0 {
            self.shard.encoding_took(looks * self.look_ns);
        }
        while let Some(action) = self.shard.poll_action() {
            match action {
                Action::Reply(reply) => self.replies.push(reply),
                Action::Event(Event::CommandDone(_, result)) => assert_eq!(result, Ok(())),
                Action::Event(Event::DirtyBlockUnreadable(..) | Event::DestageFailed(..)) if self.tolerates_unreadable => {}
                Action::Event(event) => panic!("{event:?}"),
                Action::Io(io) if self.holds(&io) => self.held.push(io),
                Action::Io(io) => self.perform(io),
            }
        }
    }

    fn holds(&self, io: &Io) -> bool {
        if io.target.is_ssd() {
            self.holds_ssd_flushes && matches!(io.kind, IoKind::Flush)
        } else {
            self.holds_home || self.holds_home_flushes && matches!(io.kind, IoKind::Flush)
        }
    }

    fn perform(&mut self, io: Io) {
        let image = if io.target.is_ssd() { &mut self.ssd } else { &mut self.backing };
        let start = io.offset_bytes as usize;
        let mut pages = page::PageMutVec::new();
        match io.kind {
            IoKind::Read(mut into) => {
                if io.target.is_ssd() {
                    self.ssd_pages_read += into.len() as u64;
                }
                into.iter_mut().enumerate().for_each(|(at, page)| page.copy_from_slice(&image[start + at * 4096..][..4096]));
                pages = into;
            }
            IoKind::Write { pages, .. } => {
                if io.target.is_ssd() {
                    let written = (io.offset_bytes..).step_by(4096).zip(&pages);
                    self.ssd_writes.extend(written.map(|(offset_bytes, page)| (io.writes, offset_bytes, **page)));
                }
                pages.iter().enumerate().for_each(|(at, page)| image[start + at * 4096..][..4096].copy_from_slice(&page[..]));
            }
            IoKind::WriteZeroes { .. } | IoKind::Discard => image[start..start + io.length_bytes as usize].fill(0),
            IoKind::Flush => {}
        }
        self.now_ns += 20_000;
        self.shard.complete(self.now_ns, Completion { id: io.id, result: Ok(()), pages });
    }

    /// Performs what was held, and holds nothing more.
    pub fn release(&mut self) {
        (self.holds_home, self.holds_home_flushes, self.holds_ssd_flushes) = (false, false, false);
        for io in std::mem::take(&mut self.held) {
            self.perform(io);
        }
        self.drain();
        while self.shard.stats().requests > 0 {
            self.tick();
        }
    }

    /// Begins a write and does not wait for it.
    pub fn begin_write(&mut self, block: u64, contents: &[[u8; 4096]]) {
        let pages = self.pages_of(contents);
        self.begin(Op::Write, block, pages);
    }

    /// Begins a request and does not wait for it; without pages it is for one block.
    pub fn begin(&mut self, op: Op, block: u64, pages: PageVec) {
        self.begin_as(op, block, pages, false);
    }

    /// Begins a large write that somebody may wait for, as the front marks it.
    pub fn begin_burst(&mut self, block: u64, contents: &[[u8; 4096]]) {
        let pages = self.pages_of(contents);
        self.begin_as(Op::Write, block, pages, true);
    }

    /// Writes some sectors of such contents of their blocks, and flushes.
    pub fn commit_sectors(&mut self, start_sector: u64, sectors: u32, content: fn(u64) -> [u8; 4096]) {
        let blocks = start_sector / 8..(start_sector + u64::from(sectors)).div_ceil(8);
        let pages = self.pages_of(&blocks.map(content).collect::<Vec<_>>());
        self.begin_at(Op::Write, start_sector, sectors, pages, false);
        self.request(Op::Flush, 0, PageVec::new());
    }

    fn begin_as(&mut self, op: Op, block: u64, pages: PageVec, in_burst: bool) {
        let sectors = 8 * pages.len().max(1) as u32;
        self.begin_at(op, block * 8, sectors, pages, in_burst);
    }

    fn begin_at(&mut self, op: Op, start_sector: u64, sectors: u32, pages: PageVec, in_burst: bool) {
        let id = self.next_id;
        self.next_id += 1;
        let request = Request::new(id, VOLUME, op, start_sector, sectors, Origin::Client).pages(pages).burst(in_burst);
        self.shard.submit(self.now_ns, request);
        self.drain();
    }

    pub fn request(&mut self, op: Op, block: u64, pages: PageVec) -> Option<Reply> {
        self.begin(op, block, pages);
        while self.shard.stats().requests > 0 {
            self.tick();
        }
        let reply = self.replies.pop();
        assert!(reply.as_ref().is_none_or(|reply| reply.result == Ok(())));
        reply
    }

    pub fn write(&mut self, block: u64, contents: &[[u8; 4096]]) {
        let pages = self.pages_of(contents);
        self.request(Op::Write, block, pages);
    }

    fn pages_of(&self, contents: &[[u8; 4096]]) -> PageVec {
        let page = |content: &[u8; 4096]| {
            let mut page = self.pool.allocate().expect("a client page");
            page.copy_from_slice(content);
            page.freeze()
        };
        contents.iter().map(page).collect()
    }

    pub fn tick(&mut self) {
        let deadline = self.shard.next_deadline().unwrap_or(self.now_ns + SECOND_NS);
        self.now_ns = deadline.max(self.now_ns + 1);
        self.ticks += 1;
        self.shard.tick(self.now_ns);
        self.drain();
    }

    /// Lets the time pass; the shard is woken when it wants to be.
    pub fn pass(&mut self, ns: u64) {
        let until_ns = self.now_ns + ns;
        while self.shard.next_deadline().is_some_and(|deadline_ns| deadline_ns < until_ns) {
            self.tick();
        }
        self.now_ns = self.now_ns.max(until_ns);
    }

    pub fn cached(&self) -> Vec<u64> {
        let mut blocks: Vec<u64> = self.shard.cached_blocks().map(|block| block.block).collect();
        blocks.sort_unstable();
        blocks
    }

    /// Writes blocks with such contents, twice as many as fit in pages of their own.
    pub fn fill(&mut self, content: fn(u64) -> [u8; 4096]) {
        for first in (0..2 * self.shard.stats().slots).step_by(AT_ONCE as usize) {
            let contents: Vec<[u8; 4096]> = (first..first + AT_ONCE).map(content).collect();
            self.write(first, &contents);
        }
    }

    pub fn check(&mut self, content: fn(u64) -> [u8; 4096]) {
        self.shard.check_invariants();
        for block in self.cached() {
            let reply = self.request(Op::Read, block, PageVec::new()).expect("an answer");
            assert!(reply.pages[0][..] == content(block), "block {block}");
        }
    }
}

/// Words of a small vocabulary, in an order of their own in each block: zstd makes a good deal less of them than LZ4.
pub fn text(block: u64) -> [u8; 4096] {
    let mut page = [0; 4096];
    let mut word = mix(block + 1);
    for bytes in page.chunks_exact_mut(8) {
        word = mix(word);
        let known = mix(word % 200);
        bytes.copy_from_slice(&(known & 0x0f0f_0f0f_0f0f_0f0f | 0x6060_6060_6060_6060).to_le_bytes());
    }
    page
}

pub fn noise(block: u64) -> [u8; 4096] {
    let mut page = [0; 4096];
    let mut word = mix(block + 1);
    for bytes in page.chunks_exact_mut(8) {
        word = mix(word);
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    page
}

/// A block of so many bytes of noise; the rest is zero.
pub fn partly_noise(seed: u64, bytes: usize) -> [u8; 4096] {
    let mut block = [0; 4096];
    for (at, word) in block[..bytes].chunks_mut(8).enumerate() {
        word.copy_from_slice(&mix(seed << 16 | at as u64).to_le_bytes()[..word.len()]);
    }
    block
}
