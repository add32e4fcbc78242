//! The shards behind a front, on devices in memory that answer in any order: what is read is what was written, in every mode, while blocks
//! are evicted, destaged, moved and dropped. Crashes and faults are the simulator's.

use engine::api::{Action, Command, Completion, Event, Io, IoKind, Op, Origin, Reply, Request, Target, VolumeOptions};
use engine::front::{Front, FrontAction};
use engine::index::Census;
use engine::key::mix;
use engine::packer::ContentOptions;
use engine::shard::{DIRTY_MAX_PERMILLE, PAGES_MIN, Shard, ShardConfig};
use engine::store::StorePlace;
use format::Layout;
use format::checkpoint::LogEnd;
use page::{PagePool, PageVec};
use std::collections::BTreeMap;
use types::{Admission, Content, Mode, ShardIndex, VolumeId, VolumeIndex};

const VOLUME_BYTES: u64 = 6 << 20;
const SSD_BYTES: u64 = 6 << 20;

struct Rig {
    front: Front,
    shards: Vec<Shard>,
    ssd: Vec<u8>,
    backing: Vec<Vec<u8>>,
    waiting: Vec<(usize, Io)>,
    replies: BTreeMap<u64, Reply>,
    done: BTreeMap<u64, Result<(), engine::api::CommandFailure>>,
    now_ns: u64,
    random: u64,
    pool: PagePool,
}

impl Rig {
    fn new(seed: u64, ram_blocks: u64, options: &[VolumeOptions]) -> Rig {
        let layout = Layout::plan(SSD_BYTES, 2, 64 << 10).expect("a small pool").with_packed_slots();
        let pool = PagePool::new(2 * (PAGES_MIN + ram_blocks as usize) + 4096);
        let mut front = Front::new(2);
        let mut shards: Vec<Shard> = (0..2)
            .map(|shard| {
                let place = StorePlace { uuid: [7; 16], session: 1, shard: ShardIndex(shard), layout, ring_first: 0 };
                let config = ShardConfig { place, ram_blocks, pool: pool.clone(), dirty_max_permille: DIRTY_MAX_PERMILLE };
                Shard::new(config, LogEnd { next_seq: 1, next_group: 1, tail_seq: 1 })
            })
            .collect();
        for (at, options) in options.iter().enumerate() {
            let (volume, id) = (VolumeIndex(at as u16), VolumeId(at as u32 + 1));
            front.set_volume(volume, id, options.clone());
            for shard in &mut shards {
                shard.command(0, Command::Attach { volume, id, size_bytes: VOLUME_BYTES, options: options.clone() });
            }
        }
        Rig {
            front,
            shards,
            ssd: vec![0; SSD_BYTES as usize],
            backing: vec![vec![0; VOLUME_BYTES as usize]; options.len()],
            waiting: Vec::new(),
            replies: BTreeMap::new(),
            done: BTreeMap::new(),
            now_ns: 0,
            random: seed,
            pool,
        }
    }

    fn chance(&mut self, below: u64) -> u64 {
        self.random = mix(self.random);
        self.random % below
    }

    fn drain(&mut self) {
        loop {
            let mut quiet = true;
            while let Some(action) = self.front.poll() {
                quiet = false;
                match action {
                    FrontAction::ToShard(shard, part) => self.shards[usize::from(shard.0)].submit(self.now_ns, part),
                    FrontAction::Reply(reply) => drop(self.replies.insert(reply.id, reply)),
                }
            }
            for at in 0..self.shards.len() {
                while let Some(action) = self.shards[at].poll_action() {
                    quiet = false;
                    match action {
                        Action::Io(io) => self.waiting.push((at, io)),
                        Action::Reply(reply) => self.front.shard_reply(ShardIndex(at as u16), reply),
                        Action::Event(Event::CommandDone(token, result)) => drop(self.done.insert(token * 2 + at as u64, result)),
                        Action::Event(event) => panic!("{event:?}"),
                    }
                }
            }
            if quiet {
                return;
            }
        }
    }

    fn perform(&mut self) -> bool {
        if self.waiting.is_empty() {
            return false;
        }
        let at = self.chance(self.waiting.len() as u64) as usize;
        let (shard, io) = self.waiting.swap_remove(at);
        let image = match io.target {
            Target::Ssd(_) => &mut self.ssd,
            Target::Backing(volume) => &mut self.backing[usize::from(volume.0)],
        };
        let (start, length) = (io.offset_bytes as usize, io.length_bytes as usize);
        let mut pages = page::PageMutVec::new();
        match io.kind {
            IoKind::Read(mut into) => {
                let skip = start % 4096;
                for (at, page) in into.iter_mut().enumerate() {
                    for byte in 0..4096_usize {
                        let place = (at * 4096 + byte).checked_sub(skip);
                        if let Some(place) = place.filter(|place| *place < length) {
                            page[byte] = image[start + place];
                        }
                    }
                }
                pages = into;
            }
            IoKind::Write { pages, .. } => {
                let skip = start % 4096;
                for place in 0..length {
                    image[start + place] = pages[(skip + place) / 4096][(skip + place) % 4096];
                }
            }
            IoKind::WriteZeroes { .. } | IoKind::Discard => image[start..start + length].fill(0),
            IoKind::Flush => {}
        }
        self.now_ns += 1000 + self.random % 50_000;
        self.shards[shard].complete(self.now_ns, Completion { id: io.id, result: Ok(()), pages });
        self.drain();
        true
    }

    fn settle(&mut self) {
        self.drain();
        for _ in 0..1_000_000 {
            if self.perform() {
                continue;
            }
            if self.front.in_flight() == 0 {
                return;
            }
            self.tick();
        }
        panic!("requests never end: {} {}", self.shards[0].describe(), self.shards[1].describe());
    }

    fn tick(&mut self) {
        let deadline = self.shards.iter().filter_map(Shard::next_deadline).min();
        self.now_ns = deadline.unwrap_or(self.now_ns + 1_000_000).max(self.now_ns + 1);
        for shard in &mut self.shards {
            shard.tick(self.now_ns);
        }
        self.drain();
    }

    fn command(&mut self, make: impl Fn(u64) -> Command, token: u64) {
        for shard in &mut self.shards {
            shard.command(self.now_ns, make(token));
        }
        self.drain();
        for _ in 0..2_000_000 {
            if self.done.contains_key(&(token * 2)) && self.done.contains_key(&(token * 2 + 1)) {
                assert_eq!((&self.done[&(token * 2)], &self.done[&(token * 2 + 1)]), (&Ok(()), &Ok(())));
                return;
            }
            if !self.perform() {
                self.tick();
            }
        }
        panic!("the command never ends: {} {}", self.shards[0].describe(), self.shards[1].describe());
    }
}

fn options(mode: Mode, admission: Admission) -> VolumeOptions {
    VolumeOptions { mode, admission, write_cache_depth_ns: 50_000_000, ..VolumeOptions::default() }
}

/// Packed records met, by kind: raw, LZ4, zstd, zero, duplicate, delta, bases without address.
#[derive(Clone, Copy, Default, Debug)]
struct Seen([u64; 7]);

impl Seen {
    fn note(&mut self, census: Census) {
        let Census { raw, lz4, zstd, zero, duplicate, delta, orphans, .. } = census;
        self.0.iter_mut().zip([raw, lz4, zstd, zero, duplicate, delta, orphans]).for_each(|(sum, one)| *sum += one);
    }
}

/// Content of some kind: one word again and again, noise, one of a few patterns, or a few bytes changed in what was there or in a pattern.
fn texture(rig: &mut Rig, page: &mut [u8; 4096], before: &[u8]) {
    let stamp = mix(rig.random);
    rig.random = stamp;
    let mut fill = |mut word: u64, step: u64| {
        for bytes in page.chunks_exact_mut(8) {
            bytes.copy_from_slice(&word.to_le_bytes());
            word = if step == 0 { word } else { mix(word) };
        }
    };
    match stamp % 8 {
        0..2 => fill(stamp, 0),
        2 => fill(stamp, 1),
        3 => fill(stamp >> 8 & 7, 1),
        4 => fill(stamp >> 8 & 7, 0),
        5 => page.copy_from_slice(before),
        6 => page.copy_from_slice(before),
        _ => fill(stamp >> 8 & 3, 1),
    }
    if matches!(stamp % 8, 6..) {
        for change in 0..stamp >> 20 & 7 {
            page[(mix(stamp + change) % 4096) as usize] = change as u8;
        }
    }
}

/// How much is made of content, and the bits of keys.
type Treatment = (Content, u32);

fn life(seed: u64, ram_blocks: u64, content: Option<Treatment>, mut modes: Vec<VolumeOptions>, steps: u64) -> Seen {
    let mut seen = Seen::default();
    let mut rig = Rig::new(seed, ram_blocks, &modes);
    for shard in &mut rig.shards {
        let slots = shard.stats().slots;
        let treatment = |(level, key_bits)| ContentOptions { key_bits, ..ContentOptions::suited(level, seed, slots, ram_blocks) };
        shard.set_content(content.map_or(ContentOptions::OFF, treatment));
    }
    let mut model = vec![vec![0_u8; VOLUME_BYTES as usize]; modes.len()];
    let mut next_id = 0;
    for step in 0..steps {
        let mut reads = Vec::new();
        let mut taken: Vec<(usize, u64, u64)> = Vec::new();
        for _ in 0..rig.chance(12) + 1 {
            let volume = rig.chance(modes.len() as u64) as usize;
            let sectors = match rig.chance(10) {
                0..6 => 8,
                6..8 => 1 + rig.chance(24),
                8 => 64 + rig.chance(200),
                _ => 1000 + rig.chance(3000),
            };
            let span = if rig.chance(3) == 0 { VOLUME_BYTES / 512 } else { 1200 };
            let start = rig.chance(span.max(sectors + 1) - sectors);
            let start = if sectors == 8 { start / 8 * 8 } else { start };
            if taken.iter().any(|(v, s, e)| *v == volume && start < *e && *s < start + sectors) {
                continue;
            }
            taken.push((volume, start, start + sectors));
            let (from, to) = (start as usize * 512, (start + sectors) as usize * 512);
            let op = [Op::Read, Op::Read, Op::Write, Op::Write, Op::Write, Op::Flush, Op::WriteZeroes, Op::Discard][rig.chance(8) as usize];
            let mut pages = PageVec::new();
            if op == Op::Write {
                let blocks = (start + sectors).div_ceil(8) - start / 8;
                for _ in 0..blocks {
                    let mut page = rig.pool.allocate_zeroed().expect("client pages");
                    let before = &model[volume][(start / 8 + pages.len() as u64) as usize * 4096..][..4096];
                    texture(&mut rig, &mut page, before);
                    pages.push(page.freeze());
                }
                for (at, byte) in model[volume][from..to].iter_mut().enumerate() {
                    let place = from % 4096 + at;
                    *byte = pages[place / 4096][place % 4096];
                }
            } else if matches!(op, Op::WriteZeroes | Op::Discard) {
                model[volume][from..to].fill(0);
            }
            let id = next_id;
            next_id += 1;
            let fua = rig.chance(4) == 0 && op != Op::Read && op != Op::Flush;
            let volume_index = VolumeIndex(volume as u16);
            let request = Request::new(id, volume_index, op, start, sectors as u32, Origin::Client).fua(fua).pages(pages);
            rig.front.submit(request);
            if op == Op::Read {
                reads.push((id, volume, from, to));
            }
            if rig.chance(3) == 0 {
                rig.drain();
                rig.perform();
            }
        }
        rig.settle();
        for reply in rig.replies.values() {
            assert_eq!(reply.result, Ok(()), "seed {seed} step {step} request {}", reply.id);
        }
        for (id, volume, from, to) in reads {
            let reply = &rig.replies[&id];
            let bytes: Vec<u8> = reply.pages.iter().flat_map(|page| page.iter().copied()).collect();
            let skip = from % 4096;
            let wrong = (0..to - from).find(|at| bytes[skip + at] != model[volume][from + at]);
            if let Some(at) = wrong {
                let block = (from + at) as u64 / 4096;
                let shard = engine::front::shard_of(VolumeId(volume as u32 + 1), block * 8, 2);
                let place = rig.shards[usize::from(shard.0)].describe_block(VolumeIndex(volume as u16), block);
                let home = rig.backing[volume][from + at] == model[volume][from + at];
                let mode = modes[volume].mode;
                panic!(
                    "seed {seed} step {step}: {mode:?} volume {volume} block {block} byte {} of {from}..{to} read wrong; {place}; home right: {home}; outcome {:?}",
                    from + at,
                    reply.outcome
                );
            }
        }
        rig.replies.clear();
        if rig.chance(20) == 0 {
            rig.tick();
        }
        if content.is_some() && rig.chance(100) == 0 {
            rig.shards.iter_mut().for_each(Shard::forget_hints);
        }
        if rig.chance(60) == 0 {
            let volume = rig.chance(modes.len() as u64) as usize;
            let mode = [Mode::WriteThrough, Mode::WriteBack, Mode::WriteAround, Mode::PassThrough][rig.chance(4) as usize];
            let admission = if rig.chance(2) == 0 { Admission::Always } else { Admission::SecondTouch };
            modes[volume] = options(mode, admission);
            let (index, set) = (VolumeIndex(volume as u16), modes[volume].clone());
            rig.front.set_volume(index, VolumeId(volume as u32 + 1), set.clone());
            rig.command(|token| Command::SetOptions { token, volume: index, options: set.clone() }, 1000 + step);
            if mode != Mode::WriteBack {
                assert!(rig.backing[volume] == model[volume], "seed {seed}: out of write-back everything is at home");
            }
        }
        if step % 50 == 0 {
            rig.shards.iter().for_each(Shard::check_invariants);
            rig.shards.iter().for_each(|shard| seen.note(shard.content_stats().census));
        }
    }
    for (volume, model) in model.iter().enumerate() {
        let index = VolumeIndex(volume as u16);
        rig.command(|token| Command::Destage { token, volume: index }, 10_000_000 + volume as u64);
        assert!(rig.backing[volume] == *model, "seed {seed}: after destage the backing device is complete");
    }
    rig.command(|token| Command::Quiesce { token }, 20_000_000);
    for shard in &rig.shards {
        shard.check_invariants();
        assert!(shard.is_quiesced(), "seed {seed}: {}", shard.describe());
    }
    seen
}

#[test]
fn reads_return_what_was_written_in_every_mode() {
    for (at, mode) in [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround, Mode::PassThrough].into_iter().enumerate() {
        for seed in 0..3 {
            let ram_blocks = [0, 8, 200][seed as usize % 3];
            let depth_ns = [50_000_000, 0, u64::MAX][seed as usize % 3];
            let second = options(Mode::WriteBack, Admission::SecondTouch);
            life(
                seed * 10 + at as u64,
                ram_blocks,
                None,
                vec![options(mode, Admission::Always), VolumeOptions { write_cache_depth_ns: depth_ns, ..second }],
                300,
            );
        }
    }
}

#[test]
fn reads_return_what_was_written_however_it_is_stored() {
    let mut seen = Seen::default();
    for (at, mode) in [Mode::WriteBack, Mode::WriteThrough].into_iter().enumerate() {
        for seed in 0..6 {
            let ram_blocks = [0, 8, 200][seed as usize % 3];
            let content = [Content::Fast, Content::Dense, Content::Auto][seed as usize / 2];
            let second = options(Mode::WriteBack, Admission::SecondTouch);
            let modes = vec![options(mode, Admission::Always), second];
            let of_life = life(1000 + seed * 10 + at as u64, ram_blocks, Some((content, 64)), modes, 300);
            seen.0.iter_mut().zip(of_life.0).for_each(|(sum, one)| *sum += one);
        }
    }
    let zstd = 2;
    assert!((0..7).all(|kind| seen.0[kind] > 0 || kind == zstd), "every kind of record was there: {seen:?}");
}

#[test]
fn a_block_is_never_anothers_because_their_keys_are_equal() {
    let mut duplicates = 0;
    for (at, key_bits) in [0, 0, 0, 2, 4, 6].into_iter().enumerate() {
        let content = [Content::Fast, Content::Dense, Content::Auto][at % 3];
        let modes = vec![options(Mode::WriteBack, Admission::Always), options(Mode::WriteBack, Admission::SecondTouch)];
        let Seen(seen) = life(2000 + at as u64, [0, 8, 200][at % 3], Some((content, key_bits)), modes, 300);
        duplicates += seen[4];
    }
    assert!(duplicates > 0, "equal blocks still meet");
}

/// A backing device is let go while dirty blocks wait for it: nothing of the volume is asked of any device then, and all of it is there again with the
/// next `Attach`. What another volume does meanwhile is untouched.
#[test]
fn a_volume_whose_device_was_let_go_comes_back_with_all_it_had() {
    let keeps = VolumeOptions { write_cache_depth_ns: u64::MAX, ..options(Mode::WriteBack, Admission::Always) };
    for ram_blocks in [0, 200] {
        let mut rig = Rig::new(9, ram_blocks, &[keeps.clone(), keeps.clone()]);
        let write = |rig: &mut Rig, id: u64, volume: u16, block: u64| {
            let mut page = rig.pool.allocate_zeroed().expect("a client page");
            page[..8].copy_from_slice(&(id + 1000).to_le_bytes());
            let (pages, volume) = (PageVec::from_iter([page.freeze()]), VolumeIndex(volume));
            let start_sector = block * 8;
            rig.front.submit(Request::new(id, volume, Op::Write, start_sector, 8, Origin::Client).pages(pages));
            rig.settle();
        };
        (0..40).for_each(|block| write(&mut rig, block, 0, block * 13));
        // The second time it is let go already.
        (1..3).for_each(|token| rig.command(|token| Command::Release { token, volume: VolumeIndex(0) }, token));
        let dirty: u64 = rig.shards.iter().filter_map(|shard| shard.volume_stats(VolumeIndex(0))).map(|stats| stats.dirty_bytes).sum();
        assert!(dirty > 0, "what is dirty is kept");
        let before = rig.backing[0].clone();
        rig.replies.clear();
        for block in [0, 13] {
            rig.shards.iter_mut().for_each(|shard| {
                let (op, pages) = (Op::Read, PageVec::new());
                let request = Request::new(77, VolumeIndex(0), op, block * 8, 8, Origin::Client).pages(pages);
                shard.submit(rig.now_ns, request);
                assert!(matches!(shard.poll_action(), Some(Action::Reply(Reply { result: Err(_), .. }))), "it takes no requests");
            });
        }
        (0..40).for_each(|block| write(&mut rig, 100 + block, 1, block * 13));
        (0..1000).for_each(|_| rig.tick());
        assert!(
            !rig.waiting.iter().any(|(_, io)| io.target == Target::Backing(VolumeIndex(0))) && rig.backing[0] == before,
            "it is let go"
        );
        rig.shards.iter().for_each(Shard::check_invariants);
        rig.front.set_volume(VolumeIndex(0), VolumeId(1), keeps.clone());
        for shard in &mut rig.shards {
            let attach = Command::Attach { volume: VolumeIndex(0), id: VolumeId(1), size_bytes: VOLUME_BYTES, options: keeps.clone() };
            shard.command(rig.now_ns, attach);
        }
        rig.command(|token| Command::Destage { token, volume: VolumeIndex(0) }, 3);
        for block in 0..40_u64 {
            let at = (block * 13 * 4096) as usize;
            assert_eq!(rig.backing[0][at..at + 8], (block + 1000).to_le_bytes(), "block {}", block * 13);
        }
        rig.shards.iter().for_each(Shard::check_invariants);
    }
}

#[test]
fn cold_dirty_blocks_go_home_before_the_hand_comes_to_them() {
    let never = VolumeOptions { write_cache_depth_ns: u64::MAX, ..options(Mode::WriteBack, Admission::Always) };
    let mut rig = Rig::new(5, 0, &[never.clone(), never.clone(), never.clone(), never]);
    let write = |rig: &mut Rig, id: u64, block: u64| {
        let mut page = rig.pool.allocate_zeroed().expect("a client page");
        page[..8].copy_from_slice(&id.to_le_bytes());
        let pages = PageVec::from_iter([page.freeze()]);
        let (volume, start_sector) = (VolumeIndex(0), block * 8);
        rig.front.submit(Request::new(id, volume, Op::Write, start_sector, 8, Origin::Client).pages(pages));
        rig.settle();
    };
    // Spread over all extents, so that both shards have some of each kind.
    let cold: Vec<u64> = (0..60).map(|at| at * 25 + 7).collect();
    let hot: Vec<u64> = (0..12).map(|at| at * 128).collect();
    for (id, block) in cold.iter().enumerate() {
        write(&mut rig, 1 + id as u64, *block);
    }
    // Others are read, of which more and more have to go, while some are written again and again.
    let mut id = 1000;
    while rig.shards.iter().map(|shard| shard.stats().dirty_blocks).sum::<u64>() > 12 && id < 20_000 {
        id += 1;
        write(&mut rig, id, hot[(id % 12) as usize]);
        for nth in 0..4 {
            let other = mix(id * 4 + nth);
            let (volume, block) = (VolumeIndex((other >> 32) as u16 % 4), other % (VOLUME_BYTES / 4096));
            rig.front.submit(Request::new(100_000 + nth, volume, Op::Read, block * 8, 8, Origin::Client));
        }
        rig.settle();
    }
    assert!(id < 20_000, "they stay dirty: {}", rig.shards[0].describe());
    for (id, block) in cold.iter().enumerate() {
        assert_eq!(rig.backing[0][*block as usize * 4096..][..8], (1 + id as u64).to_le_bytes(), "block {block} is at home");
    }
    let stats = rig.shards.iter().map(|shard| shard.volume_stats(VolumeIndex(0)).expect("attached"));
    let (reinserted, destaged) = stats.fold((0, 0), |sum, one| (sum.0 + one.reinserted_bytes, sum.1 + one.destaged_bytes));
    assert!(destaged >= 60 * 4096, "{destaged} bytes went home");
    assert!(reinserted < 12 * 4096, "{reinserted} bytes were moved although they were cold");
}

/// Several shards share the rate of a volume: together they keep it, and one whose part is less than a block a second gets on all the same.
/// Each took the whole rate, so that a large SSD destaged at many times of it.
#[test]
fn all_shards_together_keep_the_rate_of_destage() {
    for rate in [128_u64 << 10, 4 << 10] {
        let never = VolumeOptions { write_cache_depth_ns: u64::MAX, ..options(Mode::WriteBack, Admission::Always) };
        let mut rig = Rig::new(3, 0, &[VolumeOptions { destage_rate_bytes: Some(rate), ..never }]);
        // Nothing goes home for idleness meanwhile.
        rig.shards.iter_mut().for_each(|shard| shard.set_host_busy(true));
        for id in 0..180_u64 {
            let mut page = rig.pool.allocate_zeroed().expect("a client page");
            page[..8].copy_from_slice(&(id + 1).to_le_bytes());
            let pages = PageVec::from_iter([page.freeze()]);
            // The first 30 blocks of each extent.
            let start_sector = (id / 30 * 256 + id % 30) * 8;
            let (volume, op, bypass) = (VolumeIndex(0), Op::Write, None);
            rig.front.submit(Request::new(id, volume, op, start_sector, 8, Origin::Client).around(bypass).pages(pages));
            rig.settle();
        }
        let dirty: Vec<u64> = rig.shards.iter().map(|shard| shard.stats().dirty_blocks * 4096).collect();
        assert!(dirty.iter().sum::<u64>() == 180 * 4096 && dirty.iter().all(|bytes| *bytes > 0), "{dirty:?}");
        let longest_ms = dirty.iter().max().expect("two shards") * 2 * 1000 / rate + 3000;
        rig.shards.iter_mut().for_each(|shard| shard.set_host_busy(false));
        let begun_ns = rig.now_ns;
        let home = |rig: &Rig| {
            let stats = rig.shards.iter().filter_map(|shard| shard.volume_stats(VolumeIndex(0)));
            stats.map(|stats| stats.destaged_bytes).sum::<u64>()
        };
        while home(&rig) < 180 * 4096 {
            if !rig.perform() {
                rig.tick();
            }
            let (bytes, took_ms) = (home(&rig), (rig.now_ns - begun_ns) / 1_000_000);
            // A quarter of a second in advance, and a run of a second or of a block in each shard.
            assert!(bytes <= rate * (took_ms + 1_250) / 1000 + 2 * 4096, "{bytes} bytes in {took_ms} ms at {rate} a second");
            assert!(took_ms <= longest_ms, "{bytes} bytes in {took_ms} ms at {rate} a second, {dirty:?}");
        }
        rig.shards.iter().for_each(Shard::check_invariants);
    }
}
