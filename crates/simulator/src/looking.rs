//! Whether what the engine tells people who look is so: where blocks are, what the counts come to, which request was the latest.

use std::collections::BTreeMap;

use engine::api::{Op, Origin, Reply, Request, RequestError};
use engine::shard::{EXPLAIN_BLOCKS_MAX, Explained, Form, RecoveredBlock, Shard};
use engine::trail::Recent;
use types::{BLOCK_BYTES, BypassReason, EXTENT_SECTORS, VolumeIndex};

/// Requests in the shards, and what the trail must know of those that were answered.
#[derive(Default)]
pub struct Answers {
    /// By shard and id.
    asked: BTreeMap<(u16, u64), Part>,
    /// The latest answered by shard, volume and extent, since it was last compared.
    latest: BTreeMap<(u16, u16, u64), Part>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Part {
    volume: u16,
    op: Op,
    start_sector: u64,
    sectors: u32,
}

impl Answers {
    /// A request goes to a shard.
    pub fn asked(&mut self, shard: u16, request: &Request) {
        let Request { id, volume, op, start_sector, sectors, .. } = *request;
        // What no client waits for leaves no trace, and a range request leaves it elsewhere.
        if op != Op::Flush && !request.is_step() && request.origin() != Origin::Look {
            self.asked.insert((shard, id), Part { volume: volume.0, op, start_sector, sectors });
        }
    }

    /// A shard has answered.
    pub fn answered(&mut self, shard: u16, reply: &Reply) {
        let Some(part) = self.asked.remove(&(shard, reply.id)) else { return };
        let place = (shard, part.volume, part.start_sector / EXTENT_SECTORS);
        match reply.result {
            Ok(()) | Err(RequestError::Io | RequestError::NoSpace) => drop(self.latest.insert(place, part)),
            // Refused at the door, of which no trail is left; or while it waited.
            Err(_) => drop(self.latest.remove(&place)),
        }
    }

    /// A shard has no more to say.
    ///
    /// # Panics
    /// If the newest trace in an extent is not that of the request that was answered last.
    pub fn check(&mut self, index: u16, shard: &Shard) {
        for ((of, volume, _), part) in std::mem::take(&mut self.latest) {
            assert_eq!(of, index, "shards are drained one by one");
            if shard.attached().all(|(attached, ..)| attached.0 != volume) {
                continue;
            }
            let (op, start_sector, sectors, _) = shard.latest(VolumeIndex(volume), part.start_sector).expect("it was noted");
            assert_eq!(Part { volume, op, start_sector, sectors }, part, "the latest request in its extent");
        }
    }
}

/// Compares what is told of a range, and what is counted in `steps` at a time, with all blocks there are.
///
/// # Panics
/// If they differ.
pub fn check(shards: &[&Shard], now_ns: u64, volume: VolumeIndex, first_block: u64, blocks: u64, steps: u32) {
    let (mut cells, mut truth) = (BTreeMap::new(), BTreeMap::new());
    for shard in shards {
        let mut position = 0;
        let mut looks = 0;
        loop {
            let next = shard.look_at_index(position, steps, |of, block, dirty| {
                let before = cells.insert((of, block), dirty);
                assert!(before.is_none(), "block {block} of {of:?} is counted twice");
            });
            looks += 1;
            assert!(looks <= shard.index_end() + 1, "counting has no end");
            let Some(next) = next else { break };
            assert!(next > position && next < shard.index_end(), "counting goes on");
            position = next;
        }
        truth.extend(shard.cached_blocks().map(|block| ((block.volume, block.block), block)));
    }
    assert!(cells.iter().eq(truth.iter().map(|(key, block)| (key, &block.dirty)).collect::<BTreeMap<_, _>>()), "all cached blocks");
    for (of, ..) in shards[0].attached() {
        let stats: Vec<_> = shards.iter().filter_map(|shard| shard.volume_stats(of)).collect();
        let mine = || cells.iter().filter(|((volume, _), _)| *volume == of);
        assert_eq!(mine().count() as u64, stats.iter().map(|stats| stats.cached_bytes).sum::<u64>() / BLOCK_BYTES);
        assert_eq!(
            mine().filter(|(_, dirty)| **dirty).count() as u64,
            stats.iter().map(|stats| stats.dirty_bytes).sum::<u64>() / BLOCK_BYTES
        );
    }
    let blocks = blocks.min(EXPLAIN_BLOCKS_MAX);
    let range = (volume, first_block)..(volume, first_block + blocks);
    // Shards end a detach one after the other.
    if shards.iter().all(|shard| shard.attached().any(|(attached, ..)| attached == volume)) {
        check_range(shards, now_ns, range.start, blocks, &truth.range(range).map(|(key, block)| (key.1, *block)).collect());
    }
}

fn check_range(
    shards: &[&Shard],
    now_ns: u64,
    (volume, first_block): (VolumeIndex, u64),
    blocks: u64,
    truth: &BTreeMap<u64, RecoveredBlock>,
) {
    let mut told = BTreeMap::new();
    for shard in shards {
        let Explained { blocks: facts, dirty, recent } = shard.explain(now_ns, volume, first_block, blocks).expect("it is attached");
        let mut looked = BTreeMap::new();
        shard.look_at_range(volume, first_block, blocks, |block, dirty| {
            looked.insert(block, dirty);
        });
        let kept = facts.iter().filter_map(|facts| Some((facts.block, facts.on_ssd?.dirty)));
        assert!(looked.into_iter().eq(kept), "two looks at the same blocks");
        for facts in &facts {
            let since = dirty.iter().find(|extent| extent.first_block / 256 == facts.block / 256);
            assert!(facts.on_ssd.is_none_or(|kept| !kept.dirty) || since.is_some(), "block {} is dirty since when?", facts.block);
            assert!(told.insert(facts.block, *facts).is_none(), "two shards have block {}", facts.block);
        }
        let heat = shard.heat(now_ns, volume).expect("it is attached");
        let heat_of = |sector: u64| heat.counts[(sector * 512 / heat.region_bytes) as usize];
        // It takes a request eight minutes to be forgotten: longer than any is under way, but for those that waited for room.
        let waited = |recent: &Recent| recent.reason == Some(BypassReason::DirtyLimit);
        let lately = recent.iter().filter(|recent| recent.ago_ns < 60_000_000_000 && !waited(recent));
        lately.for_each(|recent| assert!(heat_of(recent.start_sector) > 0, "{recent:?} left no heat"));
    }
    let forms = |block: &RecoveredBlock| (block.dirty, block.stored.map_or(Form::Plain, |stored| stored.encoding.into()));
    let kept = told.values().filter_map(|facts| Some((facts.block, facts.on_ssd.map(|kept| (kept.dirty, kept.form))?)));
    assert!(
        kept.eq(truth.iter().map(|(block, recovered)| (*block, forms(recovered)))),
        "what is shown of {volume:?} from block {first_block}"
    );
}
