//! The address of a block inside a shard, packed into 44 bits, and its hash.

use types::{BLOCK_SECTORS, EXTENT_BLOCKS, VOLUME_BLOCKS_MAX, VOLUMES_MAX, VolumeIndex};

/// Bits of the block number in a key: volumes of up to 64 TiB.
const BLOCK_BITS: u32 = 34;
/// Bits of a whole key: 10 of volume index above 34 of block number.
pub const KEY_BITS: u32 = 44;

const _: () = assert!(VOLUME_BLOCKS_MAX == 1 << BLOCK_BITS && VOLUMES_MAX == 1 << (KEY_BITS - BLOCK_BITS));

/// Which block of which volume. Ordered by volume, then by address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key(pub u64);

impl Key {
    /// The key of block `block` of the volume.
    ///
    /// # Panics
    /// If there is no such block or volume: its key would be another block's, whose data would be lost.
    #[inline]
    pub fn new(volume: VolumeIndex, block: u64) -> Key {
        assert!(block < VOLUME_BLOCKS_MAX, "block {block} of volume {} lies beyond 64 TiB", volume.0);
        assert!(usize::from(volume.0) < VOLUMES_MAX, "volume {} has no place in a key", volume.0);
        Key((u64::from(volume.0) << BLOCK_BITS) | block)
    }

    /// The volume's place in the pool.
    #[inline]
    pub fn volume(self) -> VolumeIndex {
        VolumeIndex((self.0 >> BLOCK_BITS) as u16)
    }

    /// The block's number in its volume.
    #[inline]
    pub fn block(self) -> u64 {
        self.0 & ((1 << BLOCK_BITS) - 1)
    }

    /// The block's first sector.
    #[inline]
    pub fn start_sector(self) -> u64 {
        self.block() * BLOCK_SECTORS
    }

    /// The 1 MiB extent the block lies in: volume and extent number in one word, ordered like keys.
    #[inline]
    pub fn extent(self) -> ExtentKey {
        ExtentKey(self.0 / EXTENT_BLOCKS)
    }

    /// A well mixed 64-bit hash, equal on every machine.
    #[inline]
    pub fn hash(self) -> u64 {
        mix(self.0)
    }
}

/// Which extent of which volume; `Key / 256`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ExtentKey(pub u64);

impl ExtentKey {
    /// The key of the extent's `index`-th block, `index < 256`.
    #[inline]
    pub fn key(self, index: usize) -> Key {
        Key(self.0 * EXTENT_BLOCKS + index as u64)
    }

    /// The volume's place in the pool.
    #[inline]
    pub fn volume(self) -> VolumeIndex {
        self.key(0).volume()
    }

    /// The first extent key a volume can have.
    #[inline]
    pub fn first_of(volume: VolumeIndex) -> ExtentKey {
        Key::new(volume, 0).extent()
    }
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014): a bijection whose output bits all depend on all input bits.
#[inline]
pub fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Builds hashers for the engine's maps: seedless, so that equal inputs give equal runs. Their keys are the engine's own
/// numbers; a client who chooses addresses to collide slows its own shard's lists a little and nothing else.
#[derive(Clone, Copy, Default, Debug)]
pub struct FixedState;

impl core::hash::BuildHasher for FixedState {
    type Hasher = FixedHasher;
    fn build_hasher(&self) -> FixedHasher {
        FixedHasher(0)
    }
}

/// See [`FixedState`].
#[derive(Clone, Copy, Debug)]
pub struct FixedHasher(u64);

impl core::hash::Hasher for FixedHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = mix(self.0 ^ u64::from(*byte));
        }
    }
    fn write_u16(&mut self, value: u16) {
        self.write_u64(u64::from(value));
    }
    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = mix(self.0 ^ value);
    }
    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
}

/// A map with a fixed hash.
pub type Map<K, V> = hashbrown::HashMap<K, V, FixedState>;
/// A set with a fixed hash.
pub type Set<K> = hashbrown::HashSet<K, FixedState>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_gives_back_what_was_put_in() {
        let key = Key::new(VolumeIndex(1023), (1 << 34) - 1);
        assert_eq!((key.volume(), key.block()), (VolumeIndex(1023), (1 << 34) - 1));
        assert!(key.0 < 1 << KEY_BITS);
        assert_eq!(key.extent().key(255), key);
        assert!(Key::new(VolumeIndex(1), 0) > Key::new(VolumeIndex(0), (1 << 34) - 1));
    }
}
