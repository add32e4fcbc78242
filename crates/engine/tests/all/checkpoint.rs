//! Promise: a checkpoint of an earlier release gives back exactly what was stored in it, once, or nothing at all.

use crate::support::Random;
use crate::support::checkpoint as support;
use crate::support::disk::Disk;
use crate::support::pool::new_pool;
use engine::checkpoint;
use engine::superblock::{self, PoolState};
use format::checkpoint::{CheckpointEntry, LogEnd};
use format::layout::CHECKPOINT_AT_BYTES;
use types::{ShardIndex, VolumeId};

const VOLUMES: [VolumeId; 3] = [VolumeId(1), VolumeId(3), VolumeId(2)];
const ENDS: [LogEnd; 2] = [LogEnd { next_seq: 12, next_group: 345, tail_seq: 6 }, LogEnd { next_seq: 3, next_group: 9, tail_seq: 1 }];

fn entry_of(seed: u64, shard: ShardIndex, slot: u32) -> Option<CheckpointEntry> {
    let mut random = Random(seed << 40 ^ u64::from(shard.0) << 32 ^ u64::from(slot));
    random.chance(3, 4).then(|| CheckpointEntry {
        volume: random.below(3) as u16,
        block: random.below(1 << 34),
        mask: 1 + random.below(255) as u8,
        dirty: random.chance(1, 5),
        heat: random.below(1024) as u16,
        checksum: random.next() as u32,
    })
}

fn write(disk: &mut Disk, pool: &mut PoolState, seed: u64) {
    support::write(disk, pool, &ENDS, &VOLUMES, &mut |shard, slot| entry_of(seed, shard, slot)).expect("writes");
}

/// All entries of both shards; `None` if there is no valid checkpoint.
fn load(disk: &mut Disk) -> Option<Vec<(ShardIndex, u32, CheckpointEntry)>> {
    let pool = superblock::load(disk).expect("loads");
    let checkpoint = checkpoint::open(disk, &pool).expect("opens")?;
    assert_eq!(checkpoint.log_ends(), ENDS);
    assert_eq!(checkpoint.volumes(), VOLUMES);
    let mut entries = Vec::new();
    for shard in [ShardIndex(0), ShardIndex(1)] {
        let whole = checkpoint.load_shard(disk, &pool, shard, &mut |slot, entry| entries.push((shard, slot, entry)));
        if !whole.expect("reads") {
            return None;
        }
    }
    Some(entries)
}

fn expected(seed: u64, slots: u32) -> Vec<(ShardIndex, u32, CheckpointEntry)> {
    let slots = (0..2).flat_map(|shard| (0..slots).map(move |slot| (ShardIndex(shard), slot)));
    slots.filter_map(|(shard, slot)| Some((shard, slot, entry_of(seed, shard, slot)?))).collect()
}

#[test]
fn what_was_written_is_read_once() {
    let (mut disk, mut pool) = new_pool(1, 2);
    pool.begin_session(&mut disk, &ENDS, &[]).expect("begins");
    assert_eq!(load(&mut disk), None, "nothing was written yet");
    write(&mut disk, &mut pool, 1);
    let all = expected(1, pool.superblock.layout.slots_per_shard());
    assert_eq!(load(&mut disk), Some(all.clone()));
    assert_eq!(load(&mut disk), Some(all), "reading alone changes nothing");
    let mut pool = superblock::load(&mut disk).expect("loads");
    pool.begin_session(&mut disk, &ENDS, &[]).expect("begins");
    assert_eq!(load(&mut disk), None, "the log may have gone on");
}

#[test]
fn any_damage_makes_it_none() {
    let (mut disk, mut pool) = new_pool(2, 2);
    write(&mut disk, &mut pool, 2);
    let layout = pool.superblock.layout;
    let area = CHECKPOINT_AT_BYTES..layout.checkpoint_offset(ShardIndex(2));
    let mut random = Random(2);
    let mut tries = 0;
    for offset_bytes in area.step_by(4096) {
        for _ in 0..20 {
            let mut damaged = disk.clone();
            let bit = random.below(4096 * 8) as usize;
            damaged.rot(offset_bytes, |page| page[bit / 8] ^= 1 << (bit % 8));
            assert_eq!(load(&mut damaged), None, "bit {bit} of the page at {offset_bytes}");
            tries += 1;
        }
    }
    assert!(tries >= 100);
}

#[test]
fn an_older_one_that_lies_there_is_not_taken_for_the_last() {
    for seed in 0..20 {
        let (mut disk, mut pool) = new_pool(seed, 2);
        pool.begin_session(&mut disk, &ENDS, &[]).expect("begins");
        write(&mut disk, &mut pool, seed + 500);
        pool.begin_session(&mut disk, &ENDS, &[]).expect("begins");
        assert_eq!(load(&mut disk), None, "seed {seed}");
        write(&mut disk, &mut pool, seed);
        assert_eq!(load(&mut disk), Some(expected(seed, pool.superblock.layout.slots_per_shard())), "seed {seed}");
    }
}
