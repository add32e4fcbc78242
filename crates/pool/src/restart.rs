//! From a pool's SSD to its shards, with all cores: each shard's part of the SSD stands by itself.
//!
//! A shard comes from the sweep that a clean stop has left, if that is whole, else from all of its ring. Blocks go straight into the shard's index: ten
//! million of them are never held a second time.

use crate::content;
use engine::index::Index;
use engine::medium::Medium;
use engine::recovery::RecoveryReport;
use engine::shard::{DIRTY_MAX_PERMILLE, Proof, RecoveredBlock, Restored, Shard, ShardConfig};
use engine::store::{StorePlace, slots};
use engine::superblock::{OpenError, PoolState};
use format::checkpoint::LogEnd;
use format::slots::Set;
use page::PagePool;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};
use types::{Content, ShardIndex, VolumeId, VolumeIndex};

/// Clean blocks of a volume in a shard to be kept as samples, at least (if there are as many); at most twice this.
const SAMPLES_MIN: usize = 64;

/// How a pool's shards are to be made.
pub struct Restart<'a> {
    /// The pool as loaded. Its next session is the one that the shards will write in.
    pub state: &'a PoolState,
    /// Places in the shards' tables by volume number; blocks of other volumes are left out.
    pub places: &'a BTreeMap<u32, VolumeIndex>,
    /// Blocks of RAM tier for each shard.
    pub ram_blocks: u64,
    /// How the shards treat content.
    pub content: Content,
    /// Where the shards' pages come from.
    pub pages: PagePool,
    /// Threads to work with.
    pub threads: usize,
    /// So many slots of each shard have names; `None`: as many as the format has. Fewer are for tests.
    pub slots_named: Option<u32>,
}

/// A shard, ready once [`PoolState::begin_session`] has been told all ends.
pub struct Restarted {
    /// The shard.
    pub shard: Shard,
    /// Where its log goes on.
    pub end: LogEnd,
    /// What recovery found.
    pub report: Option<RecoveryReport>,
    /// What was found of each volume, by its place.
    pub tallies: BTreeMap<VolumeIndex, Tally>,
}

/// What a shard's part of the SSD holds of a volume.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Blocks.
    pub blocks: u64,
    /// Of them, dirty ones.
    pub dirty: u64,
    /// Number and checksum of some clean and whole blocks, spread evenly over those found.
    pub samples: Vec<(u64, Proof)>,
    /// The same of those that became clean last, oldest first; none after a clean stop.
    pub newest: Vec<(u64, Proof)>,
    /// Each one of how many clean and whole blocks is kept as a sample.
    every: u64,
    clean: u64,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally { blocks: 0, dirty: 0, samples: Vec::new(), newest: Vec::new(), every: 1, clean: 0 }
    }
}

impl Tally {
    fn count(&mut self, block: &RecoveredBlock) {
        self.blocks += 1;
        self.dirty += u64::from(block.dirty);
        if block.dirty || block.mask != u8::MAX {
            return;
        }
        if self.clean.is_multiple_of(self.every) {
            if self.samples.len() == 2 * SAMPLES_MIN {
                let mut nth = 0;
                self.samples.retain(|_| {
                    nth += 1;
                    nth % 2 == 1
                });
                self.every *= 2;
            }
            if self.clean.is_multiple_of(self.every) {
                self.samples.push((block.block, block.proof()));
            }
        }
        self.clean += 1;
    }
}

/// Makes all shards of a pool. `open` gives each thread its own way to the SSD.
///
/// # Errors
/// What the medium says, or that an index cannot be had; then no session may begin, and the start may be repeated (not after a failed flush).
pub fn restart<E: From<OpenError> + Send>(
    restart: &Restart,
    open: &(dyn Fn() -> Result<Box<dyn Medium + Send>, E> + Sync),
) -> Result<Vec<Restarted>, E> {
    restart.state.check_slots()?;
    if restart.state.superblock.clean
        && let Some(made) = in_parallel(restart, open, |medium, shard| restart.read_sweep(medium, shard))?
    {
        return Ok(made);
    }
    let made = in_parallel(restart, open, |medium, shard| restart.read_slots(medium, shard).map(Some))?;
    Ok(made.expect("each shard is made, or there is an error"))
}

/// Makes all shards; `None` if one cannot be made so.
fn in_parallel<E: From<OpenError> + Send>(
    restart: &Restart,
    open: &(dyn Fn() -> Result<Box<dyn Medium + Send>, E> + Sync),
    make: impl Fn(&mut dyn Medium, ShardIndex) -> Result<Option<Restarted>, OpenError> + Sync,
) -> Result<Option<Vec<Restarted>>, E> {
    let shards = restart.state.superblock.layout.shards;
    let next = AtomicU16::new(0);
    let made: Mutex<BTreeMap<u16, Restarted>> = Mutex::default();
    let work = || -> Result<bool, E> {
        let mut medium = open()?;
        loop {
            let shard = next.fetch_add(1, Ordering::Relaxed);
            if shard >= shards {
                return Ok(true);
            }
            let Some(restarted) = make(&mut *medium, ShardIndex(shard))? else { return Ok(false) };
            made.lock().expect("no thread panics with the lock").insert(shard, restarted);
        }
    };
    let results: Vec<Result<bool, E>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..restart.threads.min(usize::from(shards))).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let all: Vec<bool> = results.into_iter().collect::<Result<_, E>>()?;
    let made = made.into_inner().expect("no thread panics with the lock").into_values().collect();
    Ok(all.into_iter().all(|made| made).then_some(made))
}

/// The same on this thread, by one way to the SSD.
///
/// # Errors
/// As [`restart`].
pub fn restart_here(restart: &Restart, medium: &mut dyn Medium) -> Result<Vec<Restarted>, OpenError> {
    restart.state.check_slots()?;
    let shards = || (0..restart.state.superblock.layout.shards).map(ShardIndex);
    let stopped: Option<Vec<Restarted>> = shards().map(|shard| restart.read_sweep(medium, shard)).collect::<Result<_, _>>()?;
    match stopped {
        Some(made) => Ok(made),
        None => shards().map(|shard| restart.read_slots(medium, shard)).collect(),
    }
}

impl Restart<'_> {
    fn read_slots(&self, medium: &mut dyn Medium, shard: ShardIndex) -> Result<Restarted, OpenError> {
        let session = self.state.next_session();
        let mut slots = SlotsGathering::new(self.gathering()?);
        let (end, report) = slots::recovery::recover(medium, &self.state.superblock, shard, session, false, &mut slots)?;
        slots.are_newest(&report.newest);
        Ok(self.finish(shard, slots.end(), end, Some(report)))
    }

    /// What a clean stop has left; `None` if there is no such thing, or it is not as it should be.
    fn read_sweep(&self, medium: &mut dyn Medium, shard: ShardIndex) -> Result<Option<Restarted>, OpenError> {
        let superblock = &self.state.superblock;
        if !superblock.clean {
            return Ok(None);
        }
        let mut slots = SlotsGathering::new(self.gathering()?);
        let Some((end, report)) = slots::stop::read(medium, superblock, shard, &mut slots)? else { return Ok(None) };
        let blocks = report.dirty_blocks + report.clean_blocks;
        let restarted = self.finish_in(superblock.log_session, shard, slots.end(), end, Some(report));
        // Else a block was said to be in two places.
        Ok((restarted.shard.stats().cached_blocks == blocks).then_some(restarted))
    }

    fn gathering(&self) -> Result<Gathering<'_>, OpenError> {
        let layout = &self.state.superblock.layout;
        let (slots, pages) = (layout.slots_per_shard(), layout.pages_per_segment());
        let index = match self.slots_named {
            Some(named) => Index::naming(slots, pages, named)?,
            None => Index::try_new(slots, pages)?,
        };
        let blocks = Restored::with_index(index);
        Ok(Gathering { places: self.places, blocks, tallies: Vec::new() })
    }

    fn finish(&self, shard: ShardIndex, gathering: Gathering, end: LogEnd, report: Option<RecoveryReport>) -> Restarted {
        self.finish_in(self.state.next_session(), shard, gathering, end, report)
    }

    fn finish_in(&self, session: u64, shard: ShardIndex, gathering: Gathering, end: LogEnd, report: Option<RecoveryReport>) -> Restarted {
        let superblock = &self.state.superblock;
        let ring_first = superblock.log_starts[usize::from(shard.0)].ring_first;
        let place = StorePlace { uuid: superblock.uuid, session, shard, layout: superblock.layout, ring_first };
        let (ram_blocks, pool) = (self.ram_blocks, self.pages.clone());
        let config = ShardConfig { place, ram_blocks, pool, dirty_max_permille: DIRTY_MAX_PERMILLE };
        let tallies = gathering.tallies.into_iter().map(|(_, place, tally)| (place, tally)).collect();
        let content = content::options_for(self.content, &config);
        let mut shard = Shard::with_blocks(config, end, gathering.blocks);
        shard.set_content(content);
        Restarted { shard, end, report, tallies }
    }
}

/// The same, and the objects among them.
struct SlotsGathering<'a> {
    gathering: Gathering<'a>,
    next_object: u64,
}

impl<'a> SlotsGathering<'a> {
    fn new(gathering: Gathering<'a>) -> SlotsGathering<'a> {
        SlotsGathering { gathering, next_object: 1 }
    }

    /// Clean blocks, those that became so last at the end.
    fn are_newest(&mut self, sets: &[Set]) {
        for set in sets {
            let tally = self.gathering.tallies.iter_mut().find(|(volume, ..)| *volume == set.volume).map(|(.., tally)| tally);
            let (_, stored) = slots::in_index(set);
            tally.into_iter().for_each(|tally| tally.newest.push((set.block, Proof::new(set.checksum, stored.as_ref()))));
        }
    }

    fn end(mut self) -> Gathering<'a> {
        self.gathering.blocks.objects_end_before(self.next_object);
        self.gathering
    }
}

impl slots::recovery::Sink for SlotsGathering<'_> {
    fn expect(&mut self, expected: slots::recovery::Expected) {
        self.gathering.blocks.expect(expected);
    }

    fn take(&mut self, set: &Set) {
        let Set { block, dirty, mask, checksum, .. } = *set;
        let (slot, stored) = slots::in_index(set);
        self.next_object = stored.map_or(0, |stored| stored.object + 1).max(self.next_object);
        match stored.filter(|_| slots::recovery::is_base(set)) {
            Some(stored) => self.gathering.blocks.add_base(slot, checksum, stored),
            None => {
                let of = |volume| RecoveredBlock { volume, block, slot, dirty, mask, checksum, stored };
                self.gathering.add(set.volume, of);
            }
        }
    }
}

/// A shard's blocks while they are read.
struct Gathering<'a> {
    places: &'a BTreeMap<u32, VolumeIndex>,
    blocks: Restored,
    /// The volume met last is first: blocks come in runs of one volume.
    tallies: Vec<(VolumeId, VolumeIndex, Tally)>,
}

impl Gathering<'_> {
    fn add(&mut self, volume: VolumeId, block: impl FnOnce(VolumeIndex) -> RecoveredBlock) {
        if self.tallies.first().is_none_or(|(first, ..)| *first != volume) {
            let Some(place) = self.places.get(&volume.0) else { return };
            let at = self.tallies.iter().position(|(known, ..)| *known == volume).unwrap_or_else(|| {
                self.tallies.push((volume, *place, Tally::default()));
                self.tallies.len() - 1
            });
            self.tallies.swap(0, at);
        }
        let (_, place, tally) = &mut self.tallies[0];
        let block = block(*place);
        tally.count(&block);
        self.blocks.add(block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_spread_and_bounded() {
        let mut tally = Tally::default();
        for block in 0..100_000_u64 {
            let of = RecoveredBlock {
                volume: VolumeIndex(0),
                block,
                slot: engine::index::Slot(0),
                dirty: block % 10 == 3,
                mask: 0xff,
                checksum: 5,
                stored: None,
            };
            tally.count(&of);
        }
        assert_eq!((tally.blocks, tally.dirty), (100_000, 10_000));
        assert!((SAMPLES_MIN..=2 * SAMPLES_MIN).contains(&tally.samples.len()), "{} samples", tally.samples.len());
        let gaps = tally.samples.windows(2).map(|pair| pair[1].0 - pair[0].0);
        let (least, most) = (gaps.clone().min().unwrap(), gaps.max().unwrap());
        assert!(most <= least + 1 && tally.samples[0].0 == 0, "gaps from {least} to {most}");
    }
}
