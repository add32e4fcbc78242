//! The protocol of the slot layout in small: blocks in slots, statements about them in a ring. A few blocks, a few more slots, a ring
//! of a few pages, and everything that may go wrong with them: power cuts that keep any part of what is not flushed, torn payloads,
//! kills, and recoveries that are interrupted, again and again.
//!
//! It says which rules the layout needs, apart from all code that does it. Each rule has a [`Mistake`] that breaks it and is found.
//!
//! The rules:
//! * A block is written into a free slot. A *statement* in the ring says what is where; it names the slot that the block had before.
//! * A page of the ring and the payloads it speaks of are a *group*: complete when all of it, and all groups before it, are written.
//! * A slot is free again when the statement that freed it is durable. So nothing that recovery may find is ever overwritten.
//! * A *sweep* goes round the slots and states again what lives. When a whole round has begun after a segment of the ring was left,
//!   the tail passes it.
//! * A clean stop sweeps once more and calls the log clean. The next start reads that sweep only, and goes on behind it in the same session;
//!   before it writes, the log is clean no more.
//! * Recovery takes the last group from which back to its tail nothing is missing, and whose dirty payloads are whole. It states all of
//!   it again under a number that was never used before; a single write of the superblock then makes that the log.

mod medium;
mod recovery;
mod tasks;
mod writer;

use crate::prng::Prng;
use writer::World;

/// Blocks of the volume.
pub const BLOCKS: usize = 3;
/// Slots for them on the SSD.
pub const SLOTS: usize = 6;
/// Pages of the ring.
pub const RING_PAGES: usize = 24;

/// A rule that is not kept, to see that it is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mistake {
    /// A slot is written again before the statement that freed it is durable.
    SlotReusedEarly,
    /// A group counts as complete when its page is written, its payloads may be missing.
    CompleteWithoutPayload,
    /// An evicted block's slot is free at once.
    EvictedSlotFreeAtOnce,
    /// An evicted block leaves the index before that is durable.
    EvictedBlockLeavesEarly,
    /// The backing device is written before it is durable that the cached copy is void.
    VoidNotAwaited,
    /// The sweep leaves out what is not durable yet.
    SweepLeavesOut,
    /// The sweep says of what is not durable that it needs no check.
    SweepSettlesAll,
    /// The sweep states again what is being evicted.
    SweepStatesEvicted,
    /// The tail passes without a sweep.
    TailWithoutSweep,
    /// The tail passes a segment too early.
    TailTooEarly,
    /// A flush counts for what was not written when it began.
    FlushCountsAll,
    /// A block comes home before it is durable.
    HomeBeforeDurable,
    /// It is noted that a block came home before the backing device has flushed it.
    HomeNotedEarly,
    /// A dirty block is evicted.
    DirtyEvicted,
    /// A block is cached that the backing device has not flushed.
    FillBeforeFlush,
    /// A statement does not say which slot the block had before.
    OldSlotForgotten,
    /// A statement that a block is void does not say which slot it had.
    VoidWithoutSlot,
    /// Recovery checks payloads that newer ones have replaced.
    ChecksReplaced,
    /// Recovery checks no payloads.
    ChecksNothing,
    /// Recovery does not ask for the first group of the tail.
    FirstGroupMayMiss,
    /// A start makes the log its own before what it found, and what it wrote, is flushed.
    SuperblockBeforeFlush,
    /// Recovery writes under a number that an interrupted one may have used.
    SessionTwice,
    /// A clean copy found bad is forgotten without a statement.
    BadCopyForgottenSilently,
    /// The blocks of a unit are written in groups of their own.
    UnitInParts,
    /// A clean stop calls the log clean before its sweep is flushed.
    CleanStopUnflushed,
    /// Each page of a stop's sweep names the first one as the tail.
    StopNamesTailEarly,
    /// A start after a clean stop leaves the superblock clean, and believes one that was left so.
    StaysClean,
}

/// All of them.
pub const MISTAKES: [Mistake; 27] = [
    Mistake::SlotReusedEarly,
    Mistake::CompleteWithoutPayload,
    Mistake::EvictedSlotFreeAtOnce,
    Mistake::EvictedBlockLeavesEarly,
    Mistake::VoidNotAwaited,
    Mistake::SweepLeavesOut,
    Mistake::SweepSettlesAll,
    Mistake::SweepStatesEvicted,
    Mistake::TailWithoutSweep,
    Mistake::TailTooEarly,
    Mistake::FlushCountsAll,
    Mistake::HomeBeforeDurable,
    Mistake::HomeNotedEarly,
    Mistake::DirtyEvicted,
    Mistake::FillBeforeFlush,
    Mistake::OldSlotForgotten,
    Mistake::VoidWithoutSlot,
    Mistake::ChecksReplaced,
    Mistake::ChecksNothing,
    Mistake::FirstGroupMayMiss,
    Mistake::SuperblockBeforeFlush,
    Mistake::SessionTwice,
    Mistake::BadCopyForgottenSilently,
    Mistake::UnitInParts,
    Mistake::CleanStopUnflushed,
    Mistake::StopNamesTailEarly,
    Mistake::StaysClean,
];

/// What must never be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Harm {
    /// A slot is written that recovery might still read.
    NamedSlotWritten,
    /// Two groups of one number are found.
    GroupTwice,
    /// Two slots are found for one block.
    BlockTwice,
    /// Recovery finds no state at or after what is durable.
    NoEnd,
    /// A dirty block has no payload.
    DirtyLost,
    /// A clean block is not what the backing device has.
    CleanDiffers,
    /// What was flushed, or after a kill acknowledged, is gone or older.
    Older,
    /// There is what nobody wrote.
    Newer,
    /// One part of a unit is there, and the other is older.
    UnitTorn,
    /// There is no room in the ring.
    RingFull,
}

/// What a run went through.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Totals {
    /// Steps before crashes.
    pub steps: u64,
    /// Crashes.
    pub crashes: u64,
    /// Recoveries that were interrupted.
    pub interrupted: u64,
    /// Segments that the tail has passed.
    pub tails: u64,
    /// Clean stops that were finished, and starts that read what one had left.
    pub stops: u64,
    /// See `stops`.
    pub sweeps_read: u64,
}

impl core::ops::AddAssign for Totals {
    fn add_assign(&mut self, other: Totals) {
        self.steps += other.steps;
        self.crashes += other.crashes;
        self.interrupted += other.interrupted;
        self.tails += other.tails;
        self.stops += other.stops;
        self.sweeps_read += other.sweeps_read;
    }
}

/// One life after another from a seed, in every second of them with clean stops, the rules kept but for one, if any. `pages_per_segment` divides [`RING_PAGES`].
///
/// # Errors
/// The harm that was found, and after how many steps.
pub fn run(seed: u64, pages_per_segment: usize, mistake: Option<Mistake>) -> Result<Totals, (Harm, Totals)> {
    let mut world = World::new(Prng::new(seed), pages_per_segment, mistake);
    world.stops = seed % 2 == 1;
    for _ in 0..6 {
        let steps = 20 + world.prng.below(400);
        let ended = (0..steps).try_for_each(|_| world.step()).and_then(|()| world.crash());
        ended.map_err(|harm| (harm, world.totals))?;
    }
    Ok(world.totals)
}
