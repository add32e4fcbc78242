//! What is worth keeping: admission to the SSD, eviction, and the order in which blocks leave RAM.
//!
//! RAM and SSD are one cache. Every block that arrives goes to RAM first. When RAM is full the policy names the block
//! that leaves it and whether that block has earned a place on the SSD. When slots are wanted it says of clean blocks there whether they stay
//! or are forgotten.
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
//! 4. When slots are wanted: [`Policy::on_evict`] for clean blocks of the part of the cache that is to be judged ([`Policy::judged_next`]).
//!    Dirty blocks are not the policy's to judge: they stay.
//!
//! A block that vanishes for other reasons (discard, detach, bypassing write, checksum error) is taken out by
//! [`Policy::ram_remove`] if it is in RAM; a block on the SSD needs no call. In write-back mode a written block is in the
//! store at once: call `on_access` as always, and insert the page as a copy ([`Arrival::as_copy`]) where RAM should keep it.
//!
//! Everything is deterministic: same calls, same answers. No call allocates except [`Policy::new`], and `ram_insert` while RAM grows to its bound.
//!
//! # How it decides
//!
//! * [`family`] decides what is worth keeping; its numbers are chosen while the pool runs.
//! * A block read from the SSD is copied into RAM while there is room, later one time in a few: so RAM fills with what is read most, also after
//!   a restart that found everything on the SSD. Copies leave RAM before blocks that RAM alone holds, unless they are used far more.
//!
//! # Invariants
//!
//! * Each slot handed out is in exactly one RAM queue.
//! * [`Policy::memory_bytes`] stays below [`RAM_BLOCK_BYTES_MAX`] per RAM block plus [`SSD_BLOCK_MILLIBYTES_MAX`] / 1000
//!   per SSD block plus [`FIXED_BYTES_MAX`].

mod family;
mod heat;
mod ram;
mod sampler;

pub use heat::{Heat, USE_BITS, USES_MAX};

use family::Family;
use ram::RamQueue;
use retention::chooser::Choice;
use sampler::Sampler;
use types::Admission;

/// Most bytes the policy spends per block that RAM can hold.
pub const RAM_BLOCK_BYTES_MAX: u64 = 64;
/// Most thousandths of a byte the policy spends per block that the SSD can hold. The index needs about 14.7 bytes of the
/// 16 that both may have together.
pub const SSD_BLOCK_MILLIBYTES_MAX: u64 = 1200;
/// Most bytes the policy spends whatever the capacity, nearly all for the miniatures of the family.
pub const FIXED_BYTES_MAX: u64 = 224 << 10;

/// Pinned blocks stay while they fill less of the store than this, in thousandths.
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
    /// Its uses, and its part.
    pub(crate) heat: Heat,
    /// Leaves RAM towards the SSD, whatever it is worth.
    pub(crate) proven: bool,
    /// It was remembered.
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
    /// The block was absent and remembered.
    pub ghost_hit: bool,
    /// RAM held it because it was read along with others, and this is its first use by a client.
    pub was_along: bool,
}

/// What becomes of a block that leaves RAM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It earned a place on the SSD: append it to the store with this heat.
    Admit(Heat),
    /// It did not: forget it.
    Forget,
    /// It is on the SSD already, or was read along and never asked for: only the page goes.
    DropCopy,
}

/// A block that is to leave RAM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RamVictim {
    /// The block's key.
    pub key: u64,
    /// What becomes of it.
    pub verdict: Verdict,
    /// Of a copy: its uses in RAM.
    pub heat: Heat,
    /// It was read along with others, and nobody has asked for it.
    pub along: bool,
}

/// What becomes of a clean block that is judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EvictVerdict {
    /// It stays, with this heat.
    Reinsert(Heat),
    /// Forget it.
    Forget,
}

/// The cache policy of one shard. See the [module](self) for the calls and their order.
#[derive(Debug)]
pub struct Policy {
    ram: RamQueue,
    sampler: Sampler,
    family: Family,
}

impl Policy {
    /// A policy for a RAM tier of `ram_blocks` and an SSD of `ssd_blocks`. Which blocks are sampled depends on the seed, and stays the same for a pool.
    pub fn new(ram_blocks: u64, ssd_blocks: u64, seed: u64) -> Policy {
        Policy { ram: RamQueue::new(ram_blocks), sampler: Sampler::default(), family: Family::new(ram_blocks + ssd_blocks, seed) }
    }

    /// What the index counts of blocks on the SSD, by part: before it is asked what to give up.
    #[inline]
    pub fn see_ssd(&mut self, parts: Option<[u32; index::PARTS]>) {
        if let Some(parts) = parts {
            self.family.see_ssd(parts);
        }
    }

    /// Two parts of which the index is to count the blocks of the first to the second, so that the first can be used again.
    pub fn merged(&self) -> Option<(u8, u8)> {
        self.family.merged()
    }

    /// Which part of the cache is to be judged next: 0 for the main one.
    pub fn judged_next(&self) -> u8 {
        self.family.judged_next(self.ram.small_only())
    }

    /// Which member of the family is followed, and how the others do.
    pub fn choice(&self) -> Choice {
        self.family.choice()
    }

    /// A request touches the block of `key`, which is at `place` now.
    #[inline]
    pub fn on_access(&mut self, key: u64, place: Place, access: Access) -> Advice {
        let family = &mut self.family;
        family.on_access(key, access);
        let always = access.admission == Admission::Always;
        match place {
            Place::Ram(slot) if self.ram.get(slot).along => {
                if access.own {
                    return Advice { heat: Heat::default(), enter: None, ghost_hit: false, was_along: false };
                }
                let arrival = family.arrives(key, access);
                self.ram.arrives(slot, arrival, family.born(arrival.heat));
                Advice { heat: arrival.heat, enter: None, ghost_hit: arrival.returned, was_along: true }
            }
            Place::Ram(slot) => {
                self.ram.touch(slot, always, access.own);
                let entry = self.ram.entry(slot);
                let heat = family.touched_in_ram(entry, access.own);
                entry.heat = entry.heat.with_uses_of(heat);
                Advice { heat, enter: None, ghost_hit: false, was_along: false }
            }
            Place::Ssd { heat } => {
                let heat = family.touched(heat, family.age_on_ssd(heat), access.own);
                let enters = access.write || self.ram.has_room() || self.sampler.takes(key);
                let arrival = Arrival { heat, proven: always, returned: false, copy: false, restored: false, own: access.own };
                Advice { heat, enter: enters.then_some(arrival), ghost_hit: false, was_along: false }
            }
            Place::Absent => {
                let arrival = match self.ram.take_removed(key) {
                    Some(entry) => Arrival {
                        heat: family.touched_in_ram(&entry, access.own),
                        proven: entry.proven || always,
                        returned: entry.returned,
                        copy: false,
                        restored: true,
                        own: entry.own && access.own,
                    },
                    None => family.arrives(key, access),
                };
                Advice { heat: arrival.heat, enter: Some(arrival), ghost_hit: arrival.returned && !arrival.restored, was_along: false }
            }
        }
    }

    /// The block of `key`, not in RAM so far, is put there.
    pub fn ram_insert(&mut self, key: u64, arrival: Arrival) -> RamSlot {
        self.ram.insert(key, arrival, self.family.born(arrival.heat))
    }

    /// Whether RAM may hold blocks that were read along with others.
    pub fn may_hold_along(&self) -> bool {
        self.ram.may_hold_along()
    }

    /// The same of a block that was read along with others, and that nobody has asked for. Until a client does so it may be in RAM, not on the SSD.
    pub fn ram_insert_along(&mut self, key: u64) -> RamSlot {
        self.ram.insert_along(key)
    }

    /// Takes a block out of RAM for a reason of the shard's own. If it is about to be overwritten and comes back by the next few
    /// accesses, it is what it was.
    pub fn ram_remove(&mut self, slot: RamSlot) {
        self.ram.remove_for_overwrite(slot);
    }

    /// A block on the SSD alone is about to be written over in a way that makes its record void. If it comes back by the next few accesses, it is
    /// what it was.
    pub fn left_for_overwrite(&mut self, key: u64, heat: Heat) {
        let arrival = Arrival { heat, proven: false, returned: false, copy: false, restored: false, own: false };
        self.ram.remember_for_overwrite(key, arrival, self.family.born(heat));
    }

    /// The heat of a block on the SSD, with its uses in RAM if a copy is there.
    pub fn heat_with_copy(&self, heat: Heat, copy: Option<RamSlot>) -> Heat {
        copy.map_or(heat, |slot| heat.with_uses_of(self.ram.get(slot).heat))
    }

    /// The block that should leave RAM next; `None` if RAM is empty. Its slot is free afterwards.
    pub fn ram_evict(&mut self) -> Option<RamVictim> {
        let victim = self.ram.pop()?;
        if victim.along {
            return Some(RamVictim { key: victim.key, verdict: Verdict::DropCopy, heat: Heat::default(), along: true });
        }
        if victim.copy {
            return Some(RamVictim { key: victim.key, verdict: Verdict::DropCopy, heat: victim.heat, along: false });
        }
        let verdict = self.family.leaves_ram(&victim, self.ram.only_len(), self.ram.small_only());
        Some(RamVictim { key: victim.key, verdict, heat: Heat::default(), along: false })
    }

    /// Whether a block that no client has asked for may enter RAM: where there is room, and where the
    /// block that would leave for it is one that no client has asked for either.
    pub fn ram_has_room_for_own(&self) -> bool {
        self.ram.has_room() || self.ram.next_is_own()
    }

    /// What becomes of a block that is not put into RAM, where another would have to leave for it: it is judged as if it had been there for a moment.
    pub fn passes_ram(&mut self, key: u64, arrival: Arrival) -> Verdict {
        let slot = self.ram_insert(key, arrival);
        let entry = self.ram.remove(slot);
        self.family.leaves_ram(&entry, self.ram.only_len(), self.ram.small_only())
    }

    /// Gives back a victim whose page cannot leave now; it will be offered again after the others. Of an admitted victim
    /// that was appended meanwhile, pass `copy` true.
    pub fn ram_return(&mut self, victim: RamVictim, copy: bool) -> RamSlot {
        let (proven, heat) = match victim.verdict {
            Verdict::Admit(heat) => (true, heat),
            Verdict::Forget | Verdict::DropCopy => (false, victim.heat),
        };
        let copy = copy || victim.verdict == Verdict::DropCopy;
        self.ram_insert(victim.key, Arrival { heat, proven, returned: false, copy, restored: false, own: false })
    }

    /// A page in RAM that is being appended to the store, or was invalidated there: from now on its newest version is
    /// (`true`) or is not (`false`) on the SSD as well.
    pub fn ram_set_copy(&mut self, slot: RamSlot, copy: bool) {
        self.ram.set_copy(slot, copy);
    }

    /// A clean block of the part that is judged: does it stay, or is it forgotten?
    pub fn on_evict(&mut self, key: u64, heat: Heat) -> EvictVerdict {
        self.family.judge(key, heat)
    }

    /// The heat of a block that was judged and stays because it must.
    pub fn on_stays(&self, heat: Heat) -> Heat {
        self.family.stays(heat)
    }

    /// Forgets what it knows of a block that is not in RAM (any more).
    pub fn forget(&mut self, key: u64) {
        self.ram.take_removed(key);
        self.family.forget(key);
    }

    /// Blocks in RAM, as the policy counts them.
    pub fn ram_len(&self) -> u64 {
        self.ram.len()
    }

    /// Bytes of memory held by the policy, beside the value itself.
    pub fn memory_bytes(&self) -> u64 {
        self.ram.memory_bytes() + self.family.memory_bytes()
    }
}

#[cfg(test)]
mod tests;
