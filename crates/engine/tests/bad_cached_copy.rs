//! A cached block that the SSD cannot read, or gives back wrong, is a miss while it is clean and an error while it is dirty; never wrong data.

use engine::api::{
    Action, Command, Completion, Event, Io, IoError, IoKind, Op, Outcome, Reply, Request, RequestError, Target, VolumeOptions,
};
use engine::log::LogPlace;
use engine::shard::{DIRTY_MAX_PERMILLE, PAGES_MIN, Shard, ShardConfig};
use format::Layout;
use format::checkpoint::LogEnd;
use page::{PageMutVec, PagePool, PageVec};
use types::{Mode, ShardIndex, VolumeId, VolumeIndex};

const VOLUME: VolumeIndex = VolumeIndex(0);
const SSD_BYTES: u64 = 6 << 20;
const VOLUME_BYTES: usize = 1 << 20;

#[derive(Clone, Copy, PartialEq)]
enum Ssd {
    Sound,
    FailsReads,
    FlipsBits,
}

struct Rig {
    shard: Shard,
    pool: PagePool,
    ssd: Vec<u8>,
    backing: Vec<u8>,
    ssd_is: Ssd,
    now_ns: u64,
    done: Vec<Result<(), String>>,
}

impl Rig {
    fn new() -> Rig {
        let pool = PagePool::new(PAGES_MIN + 1024);
        let layout = Layout::plan(SSD_BYTES, 1, 64 << 10).expect("a small pool");
        let place = LogPlace { uuid: [7; 16], session: 1, shard: ShardIndex(0), layout };
        let config = ShardConfig { place, ram_blocks: 0, pool: pool.clone(), dirty_max_permille: DIRTY_MAX_PERMILLE };
        let mut shard = Shard::new(config, LogEnd { next_seq: 1, next_group: 1, tail_seq: 1 });
        let options = VolumeOptions { mode: Mode::WriteBack, write_cache_depth_ns: u64::MAX / 2, ..VolumeOptions::default() };
        shard.command(0, Command::Attach { volume: VOLUME, id: VolumeId(1), size_bytes: VOLUME_BYTES as u64, options });
        let (ssd, backing) = (vec![0; SSD_BYTES as usize], vec![0; VOLUME_BYTES]);
        Rig { shard, pool, ssd, backing, ssd_is: Ssd::Sound, now_ns: 1, done: Vec::new() }
    }

    /// Three sectors in the middle of a block are asked for: the short way is for those, too.
    fn read(&mut self, block: u64) -> Reply {
        self.request(Op::Read, block * 8 + 2, 3, PageVec::new())
    }

    fn write(&mut self, block: u64, byte: u8) {
        let mut page = self.pool.allocate().expect("a page");
        page.fill(byte);
        let reply = self.request(Op::Write, block * 8, 8, PageVec::from_buf([page.freeze()]));
        assert_eq!(reply.result, Ok(()));
    }

    fn request(&mut self, op: Op, start_sector: u64, sectors: u32, pages: PageVec) -> Reply {
        self.now_ns += 1000;
        self.shard.submit(
            self.now_ns,
            Request { id: 5, volume: VOLUME, op, fua: false, start_sector, sectors, pages, bypass: None, wanted: false },
        );
        self.drain().expect("the devices answer at once")
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
                Action::Event(_) => {}
            }
        }
        self.shard.check_invariants();
        reply
    }

    fn perform(&mut self, io: Io) {
        let of_ssd = io.target == Target::Ssd;
        let device = if of_ssd { &mut self.ssd } else { &mut self.backing };
        let at = io.offset_bytes as usize;
        let (mut filled, mut result) = (PageMutVec::new(), Ok(()));
        match io.kind {
            IoKind::Read(mut pages) => {
                for (index, page) in pages.iter_mut().enumerate() {
                    page.copy_from_slice(&device[at + index * 4096..at + (index + 1) * 4096]);
                    page[1234] ^= u8::from(of_ssd && self.ssd_is == Ssd::FlipsBits);
                }
                if of_ssd && self.ssd_is == Ssd::FailsReads {
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
