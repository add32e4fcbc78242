//! What is worth keeping: admission to the SSD, eviction and reinsertion, and the order in which blocks leave RAM.
//!
//! RAM and SSD are one cache. Every block that arrives goes to RAM first. When RAM is full the policy names the block
//! that leaves it and whether that block has earned a place in the store. When the store is full its oldest region is taken
//! back and the policy says of each live clean block whether it is appended again or forgotten. A [ghost](ghost) memory of
//! fingerprints remembers what was forgotten, so that a return is recognised.
//!
//! **A policy can only be wrong about speed.** It holds no data and no location; whatever it answers, and even if all of
//! its state is lost, the shard stays correct. The shard may therefore create a fresh [`Policy`] after a restart.
//!
//! # How a shard drives it
//!
//! Keys are the index keys (44 significant bits). The shard owns the pages, the index entry and in it the [`Heat`] of each
//! block on the SSD; the policy is handed the heat and returns the new one. One call per block touched by a request:
//!
//! 1. [`Policy::on_access`] with where the block is now. It updates order and heat, and answers with an [`Advice`]:
//!    * place `Ram(slot)`: nothing further to do (reads and overwrites alike).
//!    * place `Ssd`: store `advice.heat` in the index. A read is served from the SSD; if `advice.enter` is set, the block's
//!      page is afterwards kept in RAM as a copy by [`Policy::ram_insert`] ([`Arrival::as_copy`]). A write that makes the record on the SSD
//!      stale (write-through): `advice.enter` is always set; insert the new data by `ram_insert` and drop the record.
//!    * place `Absent`: if `advice.enter` is set, insert the block by `ram_insert` once its data is there (for a read
//!      that may be much later; the [`Arrival`] is a plain value). If it is `None`, do not cache the block at all.
//! 2. [`Policy::ram_insert`] gives a [`RamSlot`], to be stored beside the page. A slot stays valid until it is handed to
//!    [`Policy::ram_remove`] or comes back in a [`RamVictim`]; slots are reused afterwards.
//! 3. While RAM holds more blocks than it may: [`Policy::ram_evict`]. The victim's slot is gone. [`Verdict::Admit`]: append
//!    it to the store (with `heat` in its index entry); [`Verdict::Forget`]: drop page and index entry;
//!    [`Verdict::DropCopy`]: drop the page, the record on the SSD stays. A page that cannot be dropped now (I/O in flight
//!    on it) may be given back with [`Policy::ram_return`].
//! 4. When a region is taken back: [`Policy::on_evict`] for each live *clean* record in it that has no newer
//!    version in RAM. Dirty records are not the policy's to judge: they go home or are appended again.
//! 5. [`Policy::on_region_begun`] whenever the store starts a new region: the policy's only notion of time beside accesses.
//!
//! A block that vanishes for other reasons (discard, detach, bypassing write, checksum error) is taken out by
//! [`Policy::ram_remove`] if it is in RAM; a block on the SSD needs no call. In write-back mode a written block is in the
//! store at once: call `on_access` as always, and insert the page as a copy ([`Arrival::as_copy`]) where RAM should keep it.
//!
//! Everything is deterministic: same calls, same answers. No call allocates except [`Policy::new`] and
//! [`Policy::set_capacity`], and `ram_insert` while RAM grows to its bound.
//!
//! # How it decides
//!
//! RAM is an LRU queue that absorbs bursts: touches there say nothing about long-term worth and are not counted. What is counted is
//! how often a block was *fetched*: missed, or hit on the SSD ([`Heat`]). The count lives with the block, moves
//! to the ghost when the block is forgotten, fades there with time, and comes back with the block.
//!
//! * A block leaving RAM is admitted if it was fetched more often than the blocks forgotten lately were on average: it must be
//!   worth more than what it pushes out. As long as the store has room nothing is forgotten and everything enters; where
//!   nothing on the SSD is ever used again, one fetch is never enough. A block the ghost still remembers is admitted too.
//! * A block read from the SSD is copied into RAM while there is room, later one time in a few: so RAM fills with what is read most, also after
//!   a restart that found everything on the SSD. Copies leave RAM before blocks that RAM alone holds, unless they are used far more.
//! * A judged block used since it was last judged is appended again. Of the unused ones some are kept while most of what the eviction
//!   gives back is stale records, which cost nothing to let go.
//!
//! # Invariants
//!
//! * Each slot handed out is in exactly one RAM queue.
//! * [`Policy::memory_bytes`] stays below [`RAM_BLOCK_BYTES_MAX`] per RAM block plus [`SSD_BLOCK_MILLIBYTES_MAX`] / 1000
//!   per SSD block plus [`FIXED_BYTES_MAX`].

mod family;
pub mod ghost;
mod heat;
mod pace;
mod ram;
mod sampler;

pub use heat::{HEAT_BITS, HEAT_MAX, Heat};

use family::Family;
use ghost::Ghost;
use heat::{Chance, FREQUENCY_MAX};
use pace::Pace;
use ram::RamQueue;
use retention::chooser::Choice;
use sampler::Sampler;
use types::Admission;

/// Most bytes the policy spends per block that RAM can hold.
pub const RAM_BLOCK_BYTES_MAX: u64 = 64;
/// Most thousandths of a byte the policy spends per block that the SSD can hold. The index needs about 14.7 bytes of the
/// 16 that both may have together.
pub const SSD_BLOCK_MILLIBYTES_MAX: u64 = 1200;
/// Most bytes the policy spends whatever the capacity.
pub const FIXED_BYTES_MAX: u64 = 64 << 10;

/// Pinned blocks are appended again while they fill less of the store than this, in thousandths: each admitted byte is then written
/// 1 / (1 - 0.6) times at most for their sake.
pub const PINNED_MAX_PERMILLE: u64 = 600;

/// Names a block's place in the RAM order while it is in RAM.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RamSlot(pub(crate) u32);

/// Where a block is when it is accessed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In RAM, whether or not also on the SSD.
    Ram(RamSlot),
    /// On the SSD only.
    Ssd {
        /// From its index entry.
        heat: Heat,
        /// Regions opened since the region of its record was opened: 0 for the open region.
        age_regions: u32,
    },
    /// Not cached.
    Absent,
}

/// One touch of one block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// Written, not read.
    pub write: bool,
    /// Blocks in the whole request this touch is part of.
    pub request_blocks: u32,
    /// The volume's rule of admission. `Always`: the block's next leaving from RAM is to the SSD.
    pub admission: Admission,
    /// By hearth itself, as in a warm-up: no client has asked for the block.
    pub own: bool,
}

/// What a block brings with it when it enters RAM; from [`Advice`] to [`Policy::ram_insert`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// How often it was fetched, at most [`FREQUENCY_MAX`].
    pub(crate) frequency: u8,
    /// Leaves RAM towards the SSD, whatever its frequency.
    pub(crate) proven: bool,
    /// The ghost remembered it.
    pub(crate) returned: bool,
    /// A valid record of the same version stays on the SSD.
    pub(crate) copy: bool,
    /// It was in RAM a moment ago and is only overwritten.
    pub(crate) restored: bool,
    /// No client has asked for it.
    pub(crate) own: bool,
}

impl Arrival {
    /// The same arrival for a page whose newest version is also in the store.
    pub const fn as_copy(self) -> Arrival {
        Arrival { copy: true, ..self }
    }

    /// The same arrival for a block that had a place on the SSD until this moment: it has proven itself. (One that was
    /// only in RAM is known to the policy from its removal there, and is what it was.)
    pub const fn as_proven(self) -> Arrival {
        Arrival { proven: self.proven || !self.restored, ..self }
    }
}

/// The answer to [`Policy::on_access`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Advice {
    /// The block's new heat; meaningful for a block on the SSD.
    pub heat: Heat,
    /// Whether the block should be in RAM afterwards. `None` for a block in RAM already.
    pub enter: Option<Arrival>,
    /// The block was absent and remembered by the ghost.
    pub ghost_hit: bool,
}

/// What becomes of a block that leaves RAM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It earned a place on the SSD: append it to the store with this heat.
    Admit(Heat),
    /// It did not: forget it. The ghost remembers.
    Forget,
    /// It is on the SSD already: only the page goes.
    DropCopy,
}

/// A block that is to leave RAM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RamVictim {
    /// The block's key.
    pub key: u64,
    /// What becomes of it.
    pub verdict: Verdict,
    /// Of a copy: its uses in RAM. Where blocks lie in slots.
    pub heat: Heat,
}

/// What becomes of a live clean block of the region that is taken back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EvictVerdict {
    /// Append it again, with this heat.
    Reinsert(Heat),
    /// Forget it.
    Forget,
}

/// The cache policy of one shard. See the [module](self) for the calls and their order.
#[derive(Debug)]
pub struct Policy {
    ram: RamQueue,
    ghost: Ghost,
    pace: Pace,
    chance: Chance,
    sampler: Sampler,
    /// Where blocks lie in slots: it decides instead of ghost and pace.
    family: Option<alloc::boxed::Box<Family>>,
}

impl Policy {
    /// A policy for a RAM tier of `ram_blocks` and an SSD of `ssd_blocks` payload blocks.
    pub fn new(ram_blocks: u64, ssd_blocks: u64) -> Policy {
        Policy {
            ram: RamQueue::new(ram_blocks),
            ghost: Ghost::new(ssd_blocks, ram_blocks + ssd_blocks),
            pace: Pace::new(ram_blocks, ssd_blocks),
            chance: Chance::default(),
            sampler: Sampler::default(),
            family: None,
        }
    }

    /// The same where blocks lie in slots. Which blocks are sampled depends on the seed, and stays the same for a pool.
    pub fn in_slots(ram_blocks: u64, ssd_blocks: u64, seed: u64) -> Policy {
        let family = Some(alloc::boxed::Box::new(Family::new(ram_blocks + ssd_blocks, seed)));
        Policy { family, ..Policy::new(ram_blocks, 0) }
    }

    /// What the index counts of blocks on the SSD, by part: before it is asked what to give up. Where blocks lie in slots.
    #[inline]
    pub fn see_ssd(&mut self, parts: Option<[u32; index::PARTS]>) {
        if let (Some(family), Some(parts)) = (&mut self.family, parts) {
            family.see_ssd(parts);
        }
    }

    /// Two parts of which the index is to count the blocks of the first to the second, so that the first can be used again.
    pub fn merged(&self) -> Option<(u8, u8)> {
        self.family.as_ref().and_then(|family| family.merged())
    }

    /// Which part of the cache is to be judged next, where blocks lie in slots: 0 for the main one.
    pub fn judged_next(&self) -> Option<u8> {
        self.family.as_ref().map(|family| family.judged_next(self.ram.small_only()))
    }

    /// Which member of the family is followed, and how the others do. `None` where blocks lie in a log.
    pub fn choice(&self) -> Option<Choice> {
        self.family.as_ref().map(|family| family.choice())
    }

    /// The capacities change (another `--ram`, a pool that grew). What is remembered may be lost, slots stay valid.
    pub fn set_capacity(&mut self, ram_blocks: u64, ssd_blocks: u64) {
        self.ram.set_capacity(ram_blocks);
        self.ghost = Ghost::new(ssd_blocks, ram_blocks + ssd_blocks);
        self.pace = Pace::new(ram_blocks, ssd_blocks);
    }

    /// A request touches the block of `key`, which is at `place` now.
    #[inline]
    pub fn on_access(&mut self, key: u64, place: Place, access: Access) -> Advice {
        if self.family.is_some() {
            return self.on_access_in_slots(key, place, access);
        }
        self.pace.on_access();
        self.ghost.on_access();
        let always = access.admission == Admission::Always;
        match place {
            Place::Ram(slot) => {
                self.ram.touch(slot, always, access.own);
                Advice { heat: Heat::default(), enter: None, ghost_hit: false }
            }
            Place::Ssd { heat, .. } => {
                let heat = heat.touched(&mut self.chance);
                let enters = access.write || self.ram.has_room() || self.sampler.takes(key);
                let arrival =
                    Arrival { frequency: heat.frequency(), proven: true, returned: false, copy: false, restored: false, own: access.own };
                Advice { heat, enter: enters.then_some(arrival), ghost_hit: false }
            }
            Place::Absent => self.on_absent(key, always, access.own),
        }
    }

    fn on_access_in_slots(&mut self, key: u64, place: Place, access: Access) -> Advice {
        let family = self.family.as_mut().expect("blocks lie in slots");
        family.on_access(key, access);
        let always = access.admission == Admission::Always;
        match place {
            Place::Ram(slot) => {
                self.ram.touch(slot, always, access.own);
                let entry = self.ram.entry(slot);
                let heat = family.touched_in_ram(entry, access.own);
                entry.frequency = Heat::from_bits(entry.frequency).with_uses_of(heat).bits();
                Advice { heat, enter: None, ghost_hit: false }
            }
            Place::Ssd { heat, .. } => {
                let heat = family.touched(heat, family.age_on_ssd(heat), access.own);
                let enters = access.write || self.ram.has_room() || self.sampler.takes(key);
                let arrival =
                    Arrival { frequency: heat.bits(), proven: always, returned: false, copy: false, restored: false, own: access.own };
                Advice { heat, enter: enters.then_some(arrival), ghost_hit: false }
            }
            Place::Absent => {
                let arrival = match self.ram.take_removed(key) {
                    Some(entry) => Arrival {
                        frequency: family.touched_in_ram(&entry, access.own).bits(),
                        proven: entry.proven || always,
                        returned: entry.returned,
                        copy: false,
                        restored: true,
                        own: entry.own && access.own,
                    },
                    None => family.arrives(key, access),
                };
                Advice { heat: Heat::from_bits(arrival.frequency), enter: Some(arrival), ghost_hit: arrival.returned && !arrival.restored }
            }
        }
    }

    fn on_absent(&mut self, key: u64, always: bool, own: bool) -> Advice {
        if let Some(entry) = self.ram.take_removed(key) {
            let arrival = Arrival {
                frequency: entry.frequency,
                proven: entry.proven || always,
                returned: entry.returned,
                copy: false,
                restored: true,
                own: entry.own && own,
            };
            return Advice { heat: Heat::default(), enter: Some(arrival), ghost_hit: false };
        }
        let remembered = self.ghost.take(key);
        let frequency = (remembered.unwrap_or(0) + 1).min(FREQUENCY_MAX);
        let arrival = Arrival { frequency, proven: always, returned: remembered.is_some(), copy: false, restored: false, own };
        Advice { heat: Heat::default(), enter: Some(arrival), ghost_hit: remembered.is_some() }
    }

    /// The block of `key`, not in RAM so far, is put there.
    pub fn ram_insert(&mut self, key: u64, arrival: Arrival) -> RamSlot {
        let born = self.family.as_ref().map_or(0, |family| family.born(Heat::from_bits(arrival.frequency)));
        self.ram.insert(key, arrival, born)
    }

    /// Takes a block out of RAM for a reason of the shard's own. If it is about to be overwritten and comes back by the next few
    /// accesses, it is what it was.
    pub fn ram_remove(&mut self, slot: RamSlot) {
        self.ram.remove_for_overwrite(slot);
    }

    /// A block on the SSD alone is about to be written over in a way that makes its record void. If it comes back by the next few accesses, it is
    /// what it was. Where blocks lie in slots.
    pub fn left_for_overwrite(&mut self, key: u64, heat: Heat) {
        if let Some(family) = &self.family {
            let arrival = Arrival { frequency: heat.bits(), proven: false, returned: false, copy: false, restored: false, own: false };
            self.ram.remember_for_overwrite(key, arrival, family.born(heat));
        }
    }

    /// The heat of a block on the SSD, with its uses in RAM if a copy is there. Where blocks lie in slots.
    pub fn heat_with_copy(&self, heat: Heat, copy: Option<RamSlot>) -> Heat {
        match copy.filter(|_| self.family.is_some()) {
            Some(slot) => heat.with_uses_of(Heat::from_bits(self.ram.get(slot).frequency)),
            None => heat,
        }
    }

    /// The block that should leave RAM next; `None` if RAM is empty. Its slot is free afterwards.
    pub fn ram_evict(&mut self) -> Option<RamVictim> {
        let victim = self.ram.pop()?;
        if let Some(family) = self.family.as_mut().filter(|_| !victim.copy) {
            let verdict = family.leaves_ram(&victim, self.ram.only_len(), self.ram.small_only());
            return Some(RamVictim { key: victim.key, verdict, heat: Heat::default() });
        }
        let verdict =
            if victim.copy { Verdict::DropCopy } else { self.leaves_ram(victim.key, victim.frequency, victim.proven || victim.returned) };
        let heat = if self.family.is_some() { Heat::from_bits(victim.frequency) } else { Heat::default() };
        Some(RamVictim { key: victim.key, verdict, heat })
    }

    /// Whether a block that no client has asked for may enter RAM: where there is room, and where the
    /// block that would leave for it is one that no client has asked for either.
    pub fn ram_has_room_for_own(&self) -> bool {
        self.ram.has_room() || self.ram.next_is_own()
    }

    /// What becomes of a block that is not put into RAM, where another would have to leave for it.
    pub fn passes_ram(&mut self, key: u64, arrival: Arrival) -> Verdict {
        if self.family.is_some() {
            // It is judged as if it had been there for a moment.
            let slot = self.ram_insert(key, arrival);
            let entry = self.ram.remove(slot);
            let (only, small) = (self.ram.only_len(), self.ram.small_only());
            return self.family.as_mut().map_or(Verdict::Forget, |family| family.leaves_ram(&entry, only, small));
        }
        self.leaves_ram(key, arrival.frequency, arrival.proven || arrival.returned)
    }

    fn leaves_ram(&mut self, key: u64, frequency: u8, is_proven: bool) -> Verdict {
        if is_proven || self.pace.is_worth_admitting(frequency) {
            self.pace.on_append();
            Verdict::Admit(Heat::admitted(frequency, &mut self.chance))
        } else {
            self.ghost.remember(key, frequency);
            Verdict::Forget
        }
    }

    /// Gives back a victim whose page cannot leave now; it will be offered again after the others. Of an admitted victim
    /// that was appended meanwhile, pass `copy` true.
    pub fn ram_return(&mut self, victim: RamVictim, copy: bool) -> RamSlot {
        let (proven, frequency) = match victim.verdict {
            Verdict::Admit(heat) if self.family.is_some() => (true, heat.bits()),
            Verdict::Forget | Verdict::DropCopy if self.family.is_some() => (false, victim.heat.bits()),
            Verdict::Admit(heat) => (true, heat.frequency()),
            Verdict::Forget | Verdict::DropCopy => (false, 1),
        };
        let copy = copy || victim.verdict == Verdict::DropCopy;
        self.ram_insert(victim.key, Arrival { frequency, proven, returned: false, copy, restored: false, own: false })
    }

    /// A page in RAM that is being appended to the store, or was invalidated there: from now on its newest version is
    /// (`true`) or is not (`false`) on the SSD as well.
    pub fn ram_set_copy(&mut self, slot: RamSlot, copy: bool) {
        self.ram.set_copy(slot, copy);
    }

    /// A live clean block of the region that is taken back: appended again, or forgotten?
    pub fn on_evict(&mut self, key: u64, heat: Heat) -> EvictVerdict {
        if let Some(family) = &mut self.family {
            return family.judge(key, heat);
        }
        let faded = self.pace.faded(heat.frequency());
        if self.pace.keeps_judged(heat.is_used()) {
            self.pace.on_append();
            return EvictVerdict::Reinsert(Heat::unused(faded, &mut self.chance));
        }
        self.pace.on_forget(faded);
        self.ghost.remember(key, self.chance.round(faded));
        EvictVerdict::Forget
    }

    /// A live clean block of the region that is taken back that is pinned is appended again; gives its heat.
    pub fn on_evict_pinned(&mut self, heat: Heat) -> Heat {
        if self.family.is_some() {
            return self.on_stays(heat);
        }
        let faded = self.pace.faded(heat.frequency());
        self.pace.on_append();
        Heat::unused(faded, &mut self.chance)
    }

    /// The heat of a block that was judged and stays because it must. Where blocks lie in slots.
    pub fn on_stays(&self, heat: Heat) -> Heat {
        self.family.as_ref().map_or(heat, |family| family.stays(heat))
    }

    /// Forgets what it knows of a block that is not in RAM (any more).
    pub fn forget(&mut self, key: u64) {
        self.ram.take_removed(key);
        if let Some(family) = &mut self.family {
            return family.forget(key);
        }
        self.ghost.take(key);
    }

    /// The store opened a new region.
    pub fn on_region_begun(&mut self) {
        if self.family.is_none() {
            self.pace.on_region_begun();
        }
    }

    /// Blocks in RAM, as the policy counts them.
    pub fn ram_len(&self) -> u64 {
        self.ram.len()
    }

    /// Bytes of memory held by the policy, beside the value itself.
    pub fn memory_bytes(&self) -> u64 {
        self.ram.memory_bytes() + self.ghost.memory_bytes() + self.family.as_ref().map_or(0, |family| family.memory_bytes())
    }
}

#[cfg(test)]
mod tests;
