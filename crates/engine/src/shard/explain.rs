//! Looking: where blocks are and why, for people who ask. Reads only, and little enough at a time that requests do not wait for it.

use super::destage::dirty::DirtySet;
use super::{Proof, Shard};
use crate::api::Outcome;
use crate::front::shard_of;
use crate::index::Encoding;
use crate::key::Key;
use crate::policy::Heat;
use crate::region_heat::Regions;
use crate::trail::Recent;
use alloc::vec::Vec;
use types::{BLOCK_SECTORS, EXTENT_BLOCKS, VolumeIndex};

/// Most blocks to be explained by one call: about 100 ns each.
pub const EXPLAIN_BLOCKS_MAX: u64 = 4096;

/// How a block is stored on the SSD.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Form {
    /// A page of the store.
    Plain,
    /// Packed, as it is.
    Raw,
    /// Compressed with LZ4.
    Lz4,
    /// Compressed with Zstandard.
    Zstd,
    /// All zeroes: nothing is stored.
    Zero,
    /// Equal to another.
    Duplicate,
    /// The difference to another.
    Delta,
    /// Newer than the backing device, and not to be read any more: nothing is stored.
    Lost,
}

impl Form {
    /// All of them.
    pub const ALL: [Form; 8] = [Form::Plain, Form::Raw, Form::Lz4, Form::Zstd, Form::Zero, Form::Duplicate, Form::Delta, Form::Lost];

    /// The word in JSON and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Form::Plain => "plain",
            Form::Raw => "raw",
            Form::Lz4 => "lz4",
            Form::Zstd => "zstd",
            Form::Zero => "zero",
            Form::Duplicate => "duplicate",
            Form::Delta => "delta",
            Form::Lost => "lost",
        }
    }
}

impl From<Encoding> for Form {
    fn from(encoding: Encoding) -> Form {
        match encoding {
            Encoding::Raw => Form::Raw,
            Encoding::Lz4 => Form::Lz4,
            Encoding::Zstd => Form::Zstd,
            Encoding::Zero => Form::Zero,
            Encoding::Duplicate => Form::Duplicate,
            Encoding::Diff | Encoding::LzDelta | Encoding::ZstdDelta => Form::Delta,
            Encoding::Lost => Form::Lost,
        }
    }
}

/// How often a block on the SSD was hit since it came there or was last judged by eviction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Hits {
    /// Never.
    Never,
    /// At least once.
    Some,
    /// About four times or more.
    Often,
}

impl Hits {
    /// The words in JSON and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Hits::Never => "never",
            Hits::Some => "at least once",
            Hits::Often => "often",
        }
    }
}

/// What the SSD has of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kept {
    /// How it is stored.
    pub form: Form,
    /// Newer than the backing device.
    pub dirty: bool,
    /// How often it was hit.
    pub hits: Hits,
}

/// Where a block is cached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockFacts {
    /// Its number in the volume.
    pub block: u64,
    /// RAM has it.
    pub in_ram: bool,
    /// The SSD has it.
    pub on_ssd: Option<Kept>,
}

/// An extent of 1 MiB with dirty blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirtyExtent {
    /// Its first block.
    pub first_block: u64,
    /// For how long the oldest of its dirty blocks has been dirty, in nanoseconds, as destage sees it: what is on its way home does not count
    /// any more. `None` if they were found so by the pool's start, or go home next for the sake of room.
    pub for_ns: Option<u64>,
}

/// What a shard knows of a range: of the extents in it that are its own.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Explained {
    /// Blocks that are cached, by address; others are not.
    pub blocks: Vec<BlockFacts>,
    /// Extents that have dirty blocks, inside the range or beside it.
    pub dirty: Vec<DirtyExtent>,
    /// The latest requests in each extent, newest first within each; then those over many extents that touched the range.
    pub recent: Vec<Recent>,
}

impl Shard {
    /// What is known of the blocks from `first_block` on. `None` if the volume is not attached.
    ///
    /// # Panics
    /// For more than [`EXPLAIN_BLOCKS_MAX`] blocks.
    pub fn explain(&self, now_ns: u64, volume: VolumeIndex, first_block: u64, blocks: u64) -> Option<Explained> {
        self.volumes.get(volume)?;
        let mut explained = Explained::default();
        self.each_extent(volume, first_block, blocks, |keys| {
            let first = Key(keys.start);
            explained.blocks.extend(keys.filter_map(|key| self.facts_of(Key(key))));
            if let Some((_, dirty)) = self.dirty.next_extent(volume, first.extent()).filter(|(extent, _)| *extent == first.extent()) {
                // Ages of blocks that were found dirty begin at nothing; see `DirtySet`.
                let known = dirty.oldest_ns > DirtySet::RECOVERED_NS;
                let for_ns = known.then(|| now_ns.saturating_sub(dirty.oldest_ns));
                explained.dirty.push(DirtyExtent { first_block: first.extent().key(0).block(), for_ns });
            }
            explained.recent.extend(self.trail.recent(now_ns, first.extent()));
        });
        let first = Key::new(volume, first_block);
        explained.recent.extend(self.trail.recent_ranges(now_ns, first..Key(first.0 + blocks)));
        Some(explained)
    }

    /// The parts of the range that lie in extents of this shard.
    fn each_extent(&self, volume: VolumeIndex, first_block: u64, blocks: u64, mut each: impl FnMut(core::ops::Range<u64>)) {
        assert!(blocks <= EXPLAIN_BLOCKS_MAX, "{blocks} blocks are too many to be looked at in one go");
        let Some(known) = self.volumes.get(volume) else { return };
        let end = (first_block + blocks).min(known.sectors().div_ceil(BLOCK_SECTORS));
        let (shards, mine) = (self.config.place.layout.shards, self.config.place.shard);
        let mut at = first_block;
        while at < end {
            let next = ((at / EXTENT_BLOCKS + 1) * EXTENT_BLOCKS).min(end);
            if shard_of(known.id, at * BLOCK_SECTORS, shards) == mine {
                let first = Key::new(volume, at);
                each(first.0..first.0 + (next - at));
            }
            at = next;
        }
    }

    fn facts_of(&self, key: Key) -> Option<BlockFacts> {
        let in_ram = self.ram.get(key).is_some();
        let on_ssd = self.index.get(key).map(|slot| {
            let meta = self.index.meta(slot);
            let form = if slot.is_packed() { self.index.stored(slot).encoding.into() } else { Form::Plain };
            let heat = Heat::from_bits(meta.frequency);
            let hits = match heat.uses() {
                0 => Hits::Never,
                1 => Hits::Some,
                _ => Hits::Often,
            };
            Kept { form, dirty: meta.dirty, hits }
        });
        (in_ram || on_ssd.is_some()).then_some(BlockFacts { block: key.block(), in_ram, on_ssd })
    }

    /// Requests lately by region of the volume, of those that came to this shard. `None` if the volume is not attached.
    pub fn heat(&self, now_ns: u64, volume: VolumeIndex) -> Option<Regions> {
        Some(self.volumes.get(volume)?.heat.regions(now_ns))
    }

    /// Counts: shows the blocks of at most `steps` entries of the index, of all volumes, to `each`, with whether they are dirty. Gives where to go
    /// on, `None` at the end. A step takes some nanoseconds. What moves between two calls may be shown twice or not at all.
    pub fn look_at_index(&self, position: u64, steps: u32, mut each: impl FnMut(VolumeIndex, u64, bool)) -> Option<u64> {
        self.index.look(position, steps, |key, dirty| each(key.volume(), key.block(), dirty))
    }

    /// Whether the volume's backing device failed a flush since it was attached.
    pub fn backing_has_failed(&self, volume: VolumeIndex) -> bool {
        self.volumes.get(volume).is_some_and(|volume| volume.backing.failed)
    }

    /// How a clean and whole block on the SSD is known; `None` if there is none. Its backing device holds what this proves.
    pub fn proof_of_clean(&self, volume: VolumeIndex, block: u64) -> Option<Proof> {
        let slot = self.index.get(Key::new(volume, block))?;
        let meta = self.index.meta(slot);
        (!meta.dirty && !meta.partial && !self.is_lost(slot)).then(|| self.proof_of(slot))
    }

    /// Where the positions of [`Shard::look_at_index`] end now.
    pub fn index_end(&self) -> u64 {
        self.index.look_end()
    }

    /// Counts in a range: shows the blocks in it that are on the SSD to `each`, with whether they are dirty; only in extents of this shard. A
    /// block of the range takes up to a tenth of a microsecond.
    ///
    /// # Panics
    /// For more than [`EXPLAIN_BLOCKS_MAX`] blocks.
    pub fn look_at_range(&self, volume: VolumeIndex, first_block: u64, blocks: u64, mut each: impl FnMut(u64, bool)) {
        self.each_extent(volume, first_block, blocks, |keys| {
            for key in keys.map(Key) {
                if let Some(slot) = self.index.get(key) {
                    each(key.block(), self.index.meta(slot).dirty);
                }
            }
        });
    }

    /// How the latest request that touched this sector's extent went, for tests: operation, first sector, sectors, outcome.
    pub fn latest(&self, volume: VolumeIndex, sector: u64) -> Option<(crate::api::Op, u64, u32, Outcome)> {
        let recent = self.trail.recent(self.now_ns, Key::new(volume, sector / BLOCK_SECTORS).extent()).next()?;
        Some((recent.op, recent.start_sector, recent.sectors, recent.outcome))
    }
}
