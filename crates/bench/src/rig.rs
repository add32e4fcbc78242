//! A shard on an SSD in memory that answers at once.

use engine::api::{Action, Command, Completion, Io, IoKind, Op, Origin, Reply, Request, Target, VolumeOptions};
use engine::shard::{DIRTY_MAX_PERMILLE, PAGES_MIN, Shard, ShardConfig};
use engine::store::StorePlace;
use format::Layout;
use format::checkpoint::LogEnd;
use page::{PageMutVec, PagePool, PageVec};
use std::collections::VecDeque;
use types::{Admission, Mode, ShardIndex, VolumeId, VolumeIndex};

/// The shard and its devices.
pub struct Rig {
    pub shard: Shard,
    pub pool: PagePool,
    ssds: Vec<Vec<u8>>,
    io: VecDeque<Io>,
    pub now_ns: u64,
}

/// One volume, write-back, everything admitted: what is written is cached.
pub fn options() -> VolumeOptions {
    VolumeOptions { mode: Mode::WriteBack, admission: Admission::Always, write_cache_depth_ns: u64::MAX / 2, ..VolumeOptions::default() }
}

impl Rig {
    /// A shard with an SSD of `ssd_bytes` and that many blocks of RAM.
    pub fn new(ssd_bytes: u64, ram_blocks: u64) -> Rig {
        let layout = Layout::plan_default(ssd_bytes, 1).expect("a pool of that size").with_packed_slots();
        let pool = PagePool::new(PAGES_MIN + ram_blocks as usize + 4096);
        let place = StorePlace { uuid: [1; 16], session: 1, shard: ShardIndex(0), layout, ring_first: 0 };
        let config = ShardConfig { place, ram_blocks, pool: pool.clone(), dirty_max_permille: DIRTY_MAX_PERMILLE };
        let mut shard = Shard::new(config, LogEnd { next_seq: 1, next_group: 1, tail_seq: 1 });
        let attach = Command::Attach { volume: VolumeIndex(0), id: VolumeId(1), size_bytes: 1 << 40, options: options() };
        shard.command(0, attach);
        Rig { shard, pool, ssds: vec![vec![0; ssd_bytes as usize]], io: VecDeque::new(), now_ns: 1 }
    }

    /// One request, driven to its reply.
    pub fn request(&mut self, op: Op, block: u64) -> Reply {
        let mut pages = PageVec::new();
        if op == Op::Write {
            let mut page = self.pool.allocate_zeroed().expect("pages for one request");
            page[..8].copy_from_slice(&block.to_le_bytes());
            pages.push(page.freeze());
        }
        let request = Request::new(block, VolumeIndex(0), op, block * 8, 8, Origin::Client).pages(pages);
        self.now_ns += 100;
        self.shard.submit(self.now_ns, request);
        self.drain().expect("devices in memory answer at once")
    }

    /// Writes of whole blocks, all under way at the same time, driven to their replies.
    pub fn write(&mut self, blocks: &[(u64, &[u8; 4096])]) {
        for (block, content) in blocks {
            let mut page = self.pool.allocate().expect("pages for some requests");
            page.copy_from_slice(&content[..]);
            self.now_ns += 100;
            let request =
                Request::new(*block, VolumeIndex(0), Op::Write, block * 8, 8, Origin::Client).pages(PageVec::from_buf([page.freeze()]));
            self.shard.submit(self.now_ns, request);
        }
        self.drain();
        // Of several, some are held for a moment, for others to share their group.
        while self.shard.stats().requests > 0 {
            self.now_ns = self.shard.next_deadline().expect("something is to come").max(self.now_ns);
            self.shard.tick(self.now_ns);
            self.drain();
        }
    }

    /// Time passes until nothing is left to do at once.
    pub fn rest(&mut self) {
        for _ in 0..100 {
            self.now_ns += 100_000_000;
            self.shard.tick(self.now_ns);
            self.drain();
        }
    }

    fn drain(&mut self) -> Option<Reply> {
        let mut reply = None;
        loop {
            while let Some(action) = self.shard.poll_action() {
                match action {
                    Action::Io(io) => self.io.push_back(io),
                    Action::Reply(answer) => reply = Some(answer),
                    Action::Event(_) => {}
                }
            }
            let Some(io) = self.io.pop_front() else { return reply };
            self.perform(io);
        }
    }

    fn perform(&mut self, io: Io) {
        let mut filled = PageMutVec::new();
        match (io.target, io.kind) {
            (Target::Ssd(ssd), IoKind::Read(mut pages)) => {
                for (at, page) in pages.iter_mut().enumerate() {
                    let from = io.offset_bytes as usize + at * 4096;
                    page.copy_from_slice(&self.ssds[usize::from(ssd.0)][from..from + 4096]);
                }
                filled = pages;
            }
            (Target::Ssd(ssd), IoKind::Write { pages, .. }) => {
                for (at, page) in pages.iter().enumerate() {
                    let from = io.offset_bytes as usize + at * 4096;
                    self.ssds[usize::from(ssd.0)][from..from + 4096].copy_from_slice(&page[..]);
                }
            }
            (Target::Backing(_), IoKind::Read(mut pages)) => {
                pages.iter_mut().for_each(|page| page.fill(0));
                filled = pages;
            }
            _ => {}
        }
        self.shard.complete(self.now_ns, Completion { id: io.id, result: Ok(()), pages: filled });
    }
}

/// CPU time of this thread, in nanoseconds.
pub fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
