//! Writes into the store that wait for room, and how fast they get it.
//!
//! Each volume has a queue of its own, so that one that is at its dirty limit holds up no other; they take turns. Before a limit is
//! reached, writes are slowed down to what destage really achieves: near it they go in at just that rate, beyond that more
//! slowly. Without that, all would wait at the limit until a batch has gone home, go on at the speed of the SSD, and wait again.

use crate::key::Map;
use crate::locks::OpId;
use alloc::collections::{BTreeMap, VecDeque};
use types::VolumeIndex;

/// Dirty data above this part of its limit slows writes down, in thousandths. Destage is at its most urgent from 800 on.
const SLOW_ABOVE_PERMILLE: u64 = 850;
/// There they go in as fast as destage takes blocks away.
const EVEN_AT_PERMILLE: u64 = 950;
/// Never slower than this part of what destage achieves, in thousandths.
const SLOWEST_PERMILLE: u64 = 250;
/// The rate of destage is looked at over at least this long: some batches.
const WINDOW_NS: u64 = 250_000_000;
/// A pause in destage longer than this begins a new window.
const PAUSE_NS: u64 = 2_000_000_000;
/// As long as nothing is known of destage: 64 blocks a second, what the slowest of disks writes.
const UNKNOWN_PER_SECOND: u64 = 64;

/// How fast something is destaged, and when the next block may become dirty.
#[derive(Clone, Copy, Default, Debug)]
pub struct Meter {
    since_ns: u64,
    last_ns: u64,
    blocks: u64,
    per_second: u64,
    next_ns: u64,
}

impl Meter {
    /// That many blocks have come home.
    pub fn destaged(&mut self, now_ns: u64, blocks: u64) {
        if now_ns > self.last_ns + PAUSE_NS {
            (self.since_ns, self.blocks) = (now_ns, 0);
        } else {
            self.blocks += blocks;
        }
        self.last_ns = now_ns;
        let took_ns = now_ns - self.since_ns;
        if took_ns >= WINDOW_NS {
            let per_second = (u128::from(self.blocks) * 1_000_000_000 / u128::from(took_ns)) as u64;
            self.per_second = if self.per_second == 0 { per_second } else { (self.per_second * 3 + per_second).div_ceil(4) };
            (self.since_ns, self.blocks) = (now_ns, 0);
        }
    }

    /// Until when a write has to wait, of `dirty` blocks where there may be `max`; `None`: it does not.
    pub fn wait_until(&self, now_ns: u64, dirty: u64, max: u64) -> Option<u64> {
        (slows(dirty, max) && self.next_ns > now_ns).then_some(self.next_ns)
    }

    /// A write goes in that makes `blocks` dirty.
    pub fn took(&mut self, now_ns: u64, blocks: u64, dirty: u64, max: u64) {
        if slows(dirty, max) {
            self.next_ns = self.next_ns.max(now_ns) + blocks * 1_000_000_000 / self.allowed_per_second(dirty, max);
        }
    }

    /// Blocks a second that may become dirty.
    fn allowed_per_second(&self, dirty: u64, max: u64) -> u64 {
        let room_permille = 1000_u64.saturating_sub(permille(dirty, max));
        let part_permille = (room_permille * 1000 / (1000 - EVEN_AT_PERMILLE)).max(SLOWEST_PERMILLE);
        let known = if self.per_second == 0 { UNKNOWN_PER_SECOND } else { self.per_second };
        (u128::from(known) * u128::from(part_permille) / 1000).max(1) as u64
    }
}

fn permille(dirty: u64, max: u64) -> u64 {
    (u128::from(dirty) * 1000 / u128::from(max.max(1))).min(1000) as u64
}

fn slows(dirty: u64, max: u64) -> bool {
    permille(dirty, max) > SLOW_ABOVE_PERMILLE
}

/// See the module.
#[derive(Default)]
pub struct Throttle {
    queues: BTreeMap<VolumeIndex, VecDeque<OpId>>,
    /// The volume that had its turn last.
    last: Option<VolumeIndex>,
    waiting: usize,
    /// Of each volume, and of all.
    volumes: Map<u16, Meter>,
    all: Meter,
    /// The earliest time at which one that waits may go in.
    next_ns: Option<u64>,
}

impl Throttle {
    /// Writes that wait.
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Whether none of the volume waits.
    pub fn is_empty_of(&self, volume: VolumeIndex) -> bool {
        self.waiting == 0 || !self.queues.contains_key(&volume)
    }

    /// The one of the volume that waits longest.
    pub fn first_of(&self, volume: VolumeIndex) -> Option<OpId> {
        self.queues.get(&volume)?.front().copied()
    }

    /// The first of each volume.
    pub fn firsts(&self) -> impl Iterator<Item = OpId> + '_ {
        self.queues.values().filter_map(|queue| queue.front().copied())
    }

    /// A write waits, behind those of its volume that do.
    pub fn push(&mut self, volume: VolumeIndex, id: OpId) {
        self.queues.entry(volume).or_default().push_back(id);
        self.waiting += 1;
    }

    /// A write that had its turn waits again, before all others of its volume.
    pub fn push_again(&mut self, volume: VolumeIndex, id: OpId) {
        self.queues.entry(volume).or_default().push_front(id);
        self.waiting += 1;
    }

    /// The first write of the volume goes.
    pub fn pop(&mut self, volume: VolumeIndex) -> Option<OpId> {
        let queue = self.queues.get_mut(&volume)?;
        let id = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(&volume);
        }
        self.waiting -= usize::from(id.is_some());
        id
    }

    /// The volume whose turn it is after the last one: each in its turn.
    pub fn next_volume(&mut self) -> Option<VolumeIndex> {
        let after = self.last.and_then(|last| self.queues.range((core::ops::Bound::Excluded(last), core::ops::Bound::Unbounded)).next());
        let next = after.or_else(|| self.queues.iter().next()).map(|(volume, _)| *volume);
        self.last = next;
        next
    }

    /// Volumes that have writes waiting.
    pub fn volumes(&self) -> usize {
        self.queues.len()
    }

    /// What waits, of one volume or of all.
    pub fn take(&mut self, volume: Option<VolumeIndex>) -> alloc::vec::Vec<OpId> {
        let taken: alloc::vec::Vec<OpId> = match volume {
            Some(volume) => self.queues.remove(&volume).into_iter().flatten().collect(),
            None => core::mem::take(&mut self.queues).into_values().flatten().collect(),
        };
        self.waiting -= taken.len();
        taken
    }

    /// Blocks of the volume have come home.
    pub fn destaged(&mut self, now_ns: u64, volume: VolumeIndex, blocks: u64) {
        self.volumes.entry(volume.0).or_default().destaged(now_ns, blocks);
        self.all.destaged(now_ns, blocks);
    }

    /// Until when a write of the volume waits for the pace of destage. Given are what is dirty and the limit, of the volume and of all.
    pub fn wait_until(&self, now_ns: u64, volume: VolumeIndex, of_volume: (u64, u64), of_all: (u64, u64)) -> Option<u64> {
        let by_volume = self.volumes.get(&volume.0).and_then(|meter| meter.wait_until(now_ns, of_volume.0, of_volume.1));
        by_volume.max(self.all.wait_until(now_ns, of_all.0, of_all.1))
    }

    /// A write of the volume goes in that makes `blocks` dirty.
    pub fn took(&mut self, now_ns: u64, volume: VolumeIndex, blocks: u64, of_volume: (u64, u64), of_all: (u64, u64)) {
        if slows(of_volume.0, of_volume.1) {
            self.volumes.entry(volume.0).or_default().took(now_ns, blocks, of_volume.0, of_volume.1);
        }
        self.all.took(now_ns, blocks, of_all.0, of_all.1);
    }

    /// The volume is gone.
    pub fn forget(&mut self, volume: VolumeIndex) {
        self.volumes.remove(&volume.0);
    }

    /// When one that waits may go in although nothing else happens.
    pub fn deadline(&self) -> Option<u64> {
        if self.waiting == 0 { None } else { self.next_ns }
    }

    /// Notes [`Throttle::deadline`].
    pub fn set_deadline(&mut self, next_ns: Option<u64>) {
        self.next_ns = next_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Destage of 1,000 blocks a second that come home in batches; writers that always want more. Gives the longest wait in the second half and blocks
    /// a second that went in there.
    fn longest_wait(batch: u64, begun_at: u64) -> (u64, u64) {
        let (mut meter, mut dirty, max) = (Meter::default(), begun_at, 10_000);
        let (mut longest_ns, mut waits_since, mut went_in) = (0, 0, 0);
        for now_ms in 0..60_000_u64 {
            let now_ns = now_ms * MS;
            if now_ms % batch == 0 {
                let home = batch.min(dirty);
                dirty -= home;
                meter.destaged(now_ns, home);
            }
            while dirty < max && meter.wait_until(now_ns, dirty, max).is_none() {
                meter.took(now_ns, 1, dirty, max);
                dirty += 1;
                if now_ms > 30_000 {
                    longest_ns = longest_ns.max(now_ns - waits_since);
                    went_in += 1;
                }
                waits_since = now_ns;
            }
        }
        (longest_ns / MS, went_in * 1000 / 30_000)
    }

    #[test]
    fn writers_are_slowed_to_the_rate_of_destage_and_never_stopped() {
        for batch in [1, 20, 200, 400] {
            for begun_at in [0, 10_000] {
                let (longest_ms, per_second) = longest_wait(batch, begun_at);
                assert!((900..1100).contains(&per_second), "{per_second} blocks a second, batches of {batch}");
                assert!(longest_ms <= 10, "{longest_ms} ms, batches of {batch}");
            }
        }
    }

    #[test]
    fn volumes_take_turns_and_each_keeps_its_order() {
        let mut throttle = Throttle::default();
        for (volume, id) in [(1, 10), (1, 11), (3, 30), (1, 12), (2, 20)] {
            throttle.push(VolumeIndex(volume), id);
        }
        let mut order = alloc::vec::Vec::new();
        while let Some(volume) = throttle.next_volume() {
            order.extend(throttle.pop(volume));
        }
        assert_eq!(order, [10, 20, 30, 11, 12]);
        assert!(throttle.is_empty());
        throttle.push(VolumeIndex(1), 1);
        throttle.push_again(VolumeIndex(1), 2);
        assert_eq!((throttle.first_of(VolumeIndex(1)), throttle.take(Some(VolumeIndex(1))).len(), throttle.len()), (Some(2), 2, 0));
    }
}
