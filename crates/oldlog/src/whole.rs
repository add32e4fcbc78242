//! A pool with a log in the place of one that is there, of whichever layout.

use crate::{Block, Packing, Place, Writer, Written};
use format::layout::SuperblockSlot;
use format::{Layout, LogStart, PAGE_BYTES, Superblock};
use types::{BLOCK_SECTORS, ShardIndex, VolumeId};

/// Which shard has a sector of a volume, of so many shards: `engine::front::shard_of`.
type ShardOf = fn(VolumeId, u64, u16) -> ShardIndex;

/// Bytes of an SSD from which [`superblock`] reads.
pub const SUPERBLOCKS_BYTES: usize = 2 * SuperblockSlot::B.offset_bytes() as usize;
/// Records of a group: clients that write together.
const GROUP_RECORDS: usize = 6;
/// Segments of the ring that stay free: the one that would be written next.
const FREE_SEGMENTS: u64 = 1;

/// The superblock that counts, of the first [`SUPERBLOCKS_BYTES`] of an SSD.
///
/// # Panics
/// If there is none.
pub fn superblock(ssd: &[u8]) -> Superblock {
    let copies = SuperblockSlot::ALL.map(|slot| Superblock::decode(&ssd[slot.offset_bytes() as usize..SUPERBLOCKS_BYTES]));
    copies.into_iter().flatten().max_by_key(|copy| copy.generation).expect("the SSD carries a pool")
}

/// What the log says of a block.
enum Says {
    Data { mask: u8, dirty: bool, page: Box<[u8; PAGE_BYTES]> },
    Void,
    Home,
}

/// A pool that is to have a log, and what that is to say, the oldest first.
pub struct Log {
    superblock: Superblock,
    packs: bool,
    shard_of: ShardOf,
    /// By shard.
    says: Vec<Vec<((VolumeId, u64), Says)>>,
}

impl Log {
    /// An empty log in the place of that pool: the same room, shards, segments and volumes. `packs`: blocks are stored as their content allows.
    pub fn of(pool: &Superblock, packs: bool, shard_of: ShardOf) -> Log {
        let Layout { ssd_bytes, shards, segment_bytes, .. } = pool.layout;
        let layout = Layout::plan(ssd_bytes, shards, segment_bytes).expect("a pool of that size was there");
        let superblock = Superblock {
            generation: pool.generation + 1,
            session: pool.session + 1,
            clean: false,
            layout,
            log_session: 0,
            epoch: 0,
            named_segments: layout.segments_per_shard,
            log_starts: vec![LogStart::EMPTY; shards.into()],
            ..pool.clone()
        };
        Log { superblock, packs, shard_of, says: (0..shards).map(|_| Vec::new()).collect() }
    }

    /// Its superblock, to be changed before anything is written: what its volumes are, say.
    pub fn superblock_mut(&mut self) -> &mut Superblock {
        &mut self.superblock
    }

    /// The block is as the backing device has it.
    pub fn clean(&mut self, volume: VolumeId, block: u64, page: &[u8; PAGE_BYTES]) {
        self.say(volume, block, Says::Data { mask: u8::MAX, dirty: false, page: Box::new(*page) });
    }

    /// The block is newer than on the backing device.
    pub fn dirty(&mut self, volume: VolumeId, block: u64, page: &[u8; PAGE_BYTES]) {
        self.dirty_sectors(volume, block, u8::MAX, page);
    }

    /// These sectors of the block are newer than on the backing device, and the others are not cached.
    pub fn dirty_sectors(&mut self, volume: VolumeId, block: u64, mask: u8, page: &[u8; PAGE_BYTES]) {
        self.say(volume, block, Says::Data { mask, dirty: true, page: Box::new(*page) });
    }

    /// What was cached of the block is void.
    pub fn void(&mut self, volume: VolumeId, block: u64) {
        self.say(volume, block, Says::Void);
    }

    /// The block, dirty before, is on its backing device.
    pub fn came_home(&mut self, volume: VolumeId, block: u64) {
        self.say(volume, block, Says::Home);
    }

    fn say(&mut self, volume: VolumeId, block: u64, says: Says) {
        let ShardIndex(shard) = (self.shard_of)(volume, block * BLOCK_SECTORS, self.superblock.layout.shards);
        self.says[usize::from(shard)].push(((volume, block), says));
    }

    /// Writes all of it, both copies of the superblock last: each piece is given with its place on the SSD. What else is there stays. The log ends as by a
    /// crash, and goes round the end of its ring. What there is no room for is left out, the oldest first.
    ///
    /// # Panics
    /// If something dirty would be left out.
    pub fn write(mut self, write: &mut dyn FnMut(u64, &[u8])) {
        for shard in (0..self.superblock.layout.shards).map(ShardIndex) {
            let written = self.written(shard);
            written.writes.iter().for_each(|(offset_bytes, bytes)| write(*offset_bytes, bytes));
            let begin = written.begin();
            self.superblock.log_starts[usize::from(shard.0)] =
                LogStart { first_seq: begin.next_seq, first_group: begin.next_group, tail_seq: begin.tail_seq, ring_first: 0 };
        }
        SuperblockSlot::ALL.into_iter().for_each(|slot| write(slot.offset_bytes(), &self.superblock.encode()));
    }

    fn written(&self, shard: ShardIndex) -> Written {
        let says = &self.says[usize::from(shard.0)];
        let room = u64::from(self.superblock.layout.segments_per_shard) - FREE_SEGMENTS;
        let mut left_out = 0;
        loop {
            let written = self.written_from(shard, &says[left_out..]);
            if written.end.next_seq - written.end.tail_seq <= room {
                let is_dirty = |(at, (key, says)): (usize, &((VolumeId, u64), Says))| {
                    let is_over = self.says[usize::from(shard.0)][at + 1..].iter().any(|(later, _)| later == key);
                    matches!(says, Says::Data { dirty: true, .. }) && !is_over
                };
                assert!(!says[..left_out].iter().enumerate().any(is_dirty), "what is dirty has no room in the log");
                return written;
            }
            // About what there is too much; a little less, so that the log is full.
            let used = (written.end.next_seq - written.end.tail_seq) as usize;
            let too_many = (says.len() - left_out) * (used - room as usize) / used;
            left_out += (too_many * 3 / 4).next_multiple_of(GROUP_RECORDS).max(GROUP_RECORDS);
        }
    }

    fn written_from(&self, shard: ShardIndex, says: &[((VolumeId, u64), Says)]) -> Written {
        let Superblock { uuid, session, layout, .. } = self.superblock;
        // From the middle of the shard's part on.
        let first_seq = u64::from(layout.segments_per_shard / 2);
        let mut writer = Writer::new(Place { uuid, session, shard, layout }, first_seq, self.packs.then(|| Packing::fast(1)));
        for (nth, ((volume, block), saying)) in says.iter().enumerate() {
            match saying {
                Says::Data { mask, dirty, page } => {
                    writer.add(&Block { volume: *volume, block: *block, mask: *mask, dirty: *dirty, page });
                }
                Says::Void => writer.void(*volume, *block),
                Says::Home => writer.note_home(*volume, *block),
            }
            if nth % GROUP_RECORDS == GROUP_RECORDS - 1 {
                writer.end_group();
            }
        }
        writer.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::medium::{Medium, MediumError};
    use engine::store::upgrade::{Outlook, upgrade};
    use types::Mode;

    struct Image(Vec<u8>);

    impl Medium for Image {
        fn size_bytes(&self) -> u64 {
            self.0.len() as u64
        }

        fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), MediumError> {
            into.copy_from_slice(&self.0[offset_bytes as usize..][..into.len()]);
            Ok(())
        }

        fn write(&mut self, offset_bytes: u64, from: &[u8]) -> Result<(), MediumError> {
            self.0[offset_bytes as usize..][..from.len()].copy_from_slice(from);
            Ok(())
        }

        fn flush(&mut self) -> Result<(), MediumError> {
            Ok(())
        }

        fn discard(&mut self, _offset_bytes: u64, _length_bytes: u64) -> Result<(), MediumError> {
            Ok(())
        }
    }

    const VOLUME: VolumeId = VolumeId(1);

    fn pool() -> Superblock {
        let layout = Layout::plan(8 << 20, 2, 64 << 10).expect("it fits").with_slots();
        let volume = format::VolumeRecord {
            id: VOLUME,
            uuid: [1; 16],
            name: "v".into(),
            size_bytes: 1 << 30,
            mode: Mode::WriteBack,
            may_have_dirty: true,
            damaged: false,
            backing_identity: Vec::new(),
        };
        Superblock { next_volume_id: VolumeId(2), volumes: vec![volume], session: 4, ..Superblock::new([7; 16], layout) }
    }

    /// Some of it compresses, some is alike, some is zero, the rest is noise.
    fn content(block: u64) -> [u8; PAGE_BYTES] {
        let mut content = [0; PAGE_BYTES];
        let seed = if block.is_multiple_of(5) { 1 } else { block };
        let word = |nth: u64| (seed + nth).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(block | 1);
        match block % 4 {
            0 => {}
            1 => content.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&(block / 8).to_le_bytes())),
            _ => (0..).zip(content.chunks_exact_mut(8)).for_each(|(nth, bytes)| bytes.copy_from_slice(&word(nth).to_le_bytes())),
        }
        content
    }

    fn upgraded(log: Log) -> Outlook {
        let mut image = Image(vec![0; 8 << 20]);
        log.write(&mut |at, bytes| image.0[at as usize..][..bytes.len()].copy_from_slice(bytes));
        assert_eq!(superblock(&image.0).session, 5);
        let mut state = engine::superblock::load(&mut image).expect("it carries a pool");
        let shards = upgrade(&mut image, &mut state, true).expect("there is room");
        assert!(superblock(&image.0).layout.has_slots());
        let sum = |of: fn(&Outlook) -> u64| shards.iter().map(of).sum();
        let (blocks, dirty_blocks) = (sum(|shard| shard.blocks), sum(|shard| shard.dirty_blocks));
        Outlook { blocks, dirty_blocks, copied_bytes: sum(|shard| shard.copied_bytes), ..shards[0] }
    }

    #[test]
    fn what_a_log_was_told_is_what_is_found_in_it() {
        for packs in [false, true] {
            let mut log = Log::of(&pool(), packs, engine::front::shard_of);
            (0..600).for_each(|block| log.clean(VOLUME, block, &content(block)));
            (200..240).for_each(|block| log.dirty(VOLUME, block, &content(block + 2)));
            log.dirty_sectors(VOLUME, 241, 3, &content(3));
            (0..10).for_each(|block| log.void(VOLUME, block));
            (200..210).for_each(|block| log.came_home(VOLUME, block));
            let found = upgraded(log);
            assert_eq!((found.blocks, found.dirty_blocks), (590, 31), "{packs}");
            assert_eq!(found.copied_bytes > 0, packs, "{found:?}");
        }
    }

    #[test]
    fn the_oldest_is_overwritten_where_the_ring_has_come_round() {
        let mut log = Log::of(&pool(), false, engine::front::shard_of);
        (0..5000).for_each(|block| log.clean(VOLUME, block, &content(block)));
        (0..50).for_each(|block| log.dirty(VOLUME, block, &content(block + 2)));
        let found = upgraded(log);
        assert!(found.blocks > 1000 && found.blocks < 1700 && found.dirty_blocks == 50, "{found:?}");
    }
}
