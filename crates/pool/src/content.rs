//! How the shards of a pool treat content: the engine's options with what the engine cannot have, the pool's secret and the machine's processors.

use engine::packer::ContentOptions;
use engine::shard::ShardConfig;
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

/// A seed from the pool's UUID, all bits of which depend on all bits of its first half (the finalizer of MurmurHash3).
fn seed_of(uuid: &[u8; 16]) -> u64 {
    let (half, _) = uuid.split_first_chunk::<8>().expect("sixteen bytes");
    let mut seed = u64::from_le_bytes(*half);
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        seed = (seed ^ (seed >> 33)).wrapping_mul(factor);
    }
    seed ^ (seed >> 33)
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
