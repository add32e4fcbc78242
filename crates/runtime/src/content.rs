//! How the shards of a pool treat content: the engine's options with what the engine cannot have, the pool's secret; and how long encoding takes.

use crate::error::RuntimeError;
use crate::message::Message;
use crate::pool::PoolRef;
use crate::reactor::monotonic_ns;
use crate::runtime::{ANSWER_PATIENCE, Runtime};
use engine::packer::ContentOptions;
use engine::shard::{Shard, ShardConfig};
use types::Content;

/// The options that suit a shard of that configuration.
pub fn options_for(level: Content, config: &ShardConfig) -> ContentOptions {
    // Pools are made with two shards for each reactor or, if they are small, with a single one, which has the reactor for itself: while a volume
    // was read into the cache at 155 MiB a second, three tenths of a processor were enough for LZ4 and not for zstd, and what was stored took a
    // third more room.
    let shards = u64::from(config.place.layout.shards);
    // A large pool has more shards than one for each processor. They share what as many as there are processors may take.
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let (times, of) = if shards == 1 { (2, 1) } else { (shards.min(processors), shards) };
    let slots = u64::from(config.place.layout.slots_per_shard());
    let options = ContentOptions::suited(level, seed_of(&config.place.uuid), slots, config.ram_blocks);
    ContentOptions { cpu_ns_per_second: options.cpu_ns_per_second * times / of, ..options }
}

/// Feeds a shard, and tells it how long that took if it encoded blocks meanwhile.
///
/// All of the call counts: encoding is most of it. It is the time that passes, not the thread's CPU time: encoding never sleeps, so the two
/// differ only where other programs take the processor meanwhile, and then encoding had better give way. The thread's own clock is a system
/// call and costs as much as encoding itself: 2.7 µs a reading where this was measured (on a virtual machine) beside 0.09.
pub(crate) fn timed(shard: &mut Shard, feed: impl FnOnce(&mut Shard)) {
    if shard.content_options().level == Content::Off {
        feed(shard);
        return;
    }
    let begun_ns = monotonic_ns();
    feed(shard);
    if shard.untimed_looks() > 0 {
        shard.encoding_took(monotonic_ns().saturating_sub(begun_ns));
    }
}

/// A seed from the pool's UUID, all bits of which depend on all bits of its first half (the finalizer of MurmurHash3).
fn seed_of(uuid: &[u8; 16]) -> u64 {
    let (half, _) = uuid.split_first_chunk::<8>().expect("sixteen bytes");
    let mut seed = u64::from_le_bytes(*half);
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        seed = (seed ^ (seed >> 33)).wrapping_mul(factor);
    }
    seed ^ (seed >> 33)
}

impl Runtime {
    /// From now on the shards of the pool store blocks so. What is stored already stays as it is.
    ///
    /// # Errors
    /// [`RuntimeError::Timeout`] if a reactor did not take it.
    pub fn set_content(&self, pool: &PoolRef, level: Content) -> Result<(), RuntimeError> {
        let pool = pool.number();
        self.ask_all("set content", ANSWER_PATIENCE, |_, done| Message::SetContent { pool, level, done }).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_that_differ_in_a_bit_have_seeds_that_differ_in_many() {
        let (one, mut other) = ([7; 16], [7; 16]);
        other[3] ^= 1;
        assert!((seed_of(&one) ^ seed_of(&other)).count_ones() > 16);
    }
}
