//! In which form a shard stores a block, and what it has at hand for that: hints, contents of bases, a budget of CPU time.
//!
//! Everything here is a hint or a copy. Its loss at any moment harms nothing; who believes it compares first.

mod contents;
mod denser;
mod steps;

pub use contents::Contents;
pub use steps::{Step, StepState, VolumeSteps};

use crate::index::{Encoding, Index};
use crate::key::{Map, Set};
use crate::mutants;
use crate::ram::Ram;
use crate::store::Slots;
use alloc::boxed::Box;
use content::budget::Budget;
use content::encode::{Bases, Encoder, Form, Previous, Steps};
use content::{Block, Malformed, dense};
use page::Page;
use types::{Content, VolumeIndex};

/// How a shard treats content.
#[derive(Clone, Copy, Debug)]
pub struct ContentOptions {
    /// How much is made of it.
    pub level: Content,
    /// Mixed into the keys by which blocks meet: a secret of the pool, so that nobody can prepare blocks that meet.
    pub seed: u64,
    /// Most memory for hints, in bytes.
    pub hint_bytes: u64,
    /// Most pages for the contents of bases, beside the RAM tier.
    pub base_pages: usize,
    /// CPU time that encoding may take, in nanoseconds a second. The host says what it took ([`Packer::took`]): if it never does, the budget
    /// is never spent.
    pub cpu_ns_per_second: u64,
    /// Bits of keys that count: 64, all. Fewer let different blocks meet, for tests.
    pub key_bits: u32,
}

impl ContentOptions {
    /// A shard that stores blocks as they are.
    pub const OFF: ContentOptions =
        ContentOptions { level: Content::Off, seed: 0, hint_bytes: 0, base_pages: 0, cpu_ns_per_second: 0, key_bits: u64::BITS };

    /// What suits a shard of that many slots and pages of RAM: at most 16 bytes of hints a slot (where blocks are so small that there are several to
    /// a slot; 9 otherwise), and an eighth of the RAM tier for bases.
    pub fn suited(level: Content, seed: u64, slots: u64, ram_blocks: u64) -> ContentOptions {
        let (hint_bytes, base_pages) = (slots * 16, base_pages_for(ram_blocks));
        ContentOptions { level, seed, hint_bytes, base_pages, cpu_ns_per_second: CPU_NS_PER_SECOND, ..ContentOptions::OFF }
    }
}

/// Three tenths of a processor: 60,000 blocks a second at 5 µs.
const CPU_NS_PER_SECOND: u64 = 300_000_000;

/// With [`Content::Auto`], one block in so many that clients wait for may be made dense.
const AWAITED_DENSE_ONE_IN: u32 = 32;

/// Pages for contents of bases beside a RAM tier of that size.
pub const fn base_pages_for(ram_blocks: u64) -> usize {
    ram_blocks as usize / 8 + 64
}

/// Bytes of a hint.
const HINT_BYTES: u64 = 8;

/// A quarter of the hints are keys of parts: they find what was written lately, copies in journals and double write buffers.
const PARTS_ONE_IN: usize = 4;

/// The rest are keys of whole blocks, a few of them at first; their memory grows with the objects there are.
const BLOCKS_AT_FIRST_ONE_IN: usize = 16;

/// Bytes of keys of whole blocks for each object.
const BYTES_AN_OBJECT: u64 = 5;

/// What encoding has cost and brought; counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PackerStats {
    /// Blocks that were looked at.
    pub blocks: u64,
    /// CPU time for them, in nanoseconds.
    pub cpu_ns: u64,
    /// Bytes of them that did not have to be stored.
    pub saved_bytes: u64,
}

/// See the module.
pub struct Packer {
    options: ContentOptions,
    /// Made when content is first asked for: its tables are large.
    encoder: Option<Box<Encoder>>,
    budget: Budget,
    untimed_looks: u32,
    contents: Contents,
    codec: dense::Codec,
    /// What pays on each volume, by its place; for [`Content::Auto`].
    volumes: Map<u16, VolumeSteps>,
    /// Objects whose stored bytes were found damaged or unreadable: nothing new rests on them.
    condemned: Set<u64>,
    next_object: u64,
    /// Blocks stored that a client waited for.
    awaited_blocks: u32,
    stats: PackerStats,
}

/// The form of a block; the bytes are in [`Packer::bytes`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chosen {
    /// How it is encoded.
    pub encoding: Encoding,
    /// The number of the object it is, or rests on; 0 for zeroes.
    pub object: u64,
}

/// What the block is to be stored for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Nobody waits.
    Quiet,
    /// A client waits for its write.
    Awaited,
    /// It is read often, and shall rest on nothing.
    Whole,
}

/// Where content may be at hand.
pub struct AtHand<'a> {
    /// Which objects there are.
    pub index: &'a Index,
    /// The RAM tier.
    pub ram: &'a Ram,
    /// What is in flight, and what is about to go: nothing new may rest on that.
    pub store: &'a Slots,
}

impl AtHand<'_> {
    /// The content of an object that is in memory, whatever for.
    pub fn content<'a>(&'a self, contents: &'a Contents, object: u64) -> Option<&'a Page> {
        if let Some(page) = contents.get(object) {
            return Some(page);
        }
        let slot = self.index.object(object)?;
        if let Some(page) = self.store.in_flight().page(slot) {
            return Some(page);
        }
        self.ram.get(self.index.key_of(slot)?).map(|block| &block.page)
    }
}

/// Bases for the encoder, which knows the lower halves of numbers.
struct Known<'a> {
    at_hand: &'a AtHand<'a>,
    contents: &'a Contents,
    condemned: &'a Set<u64>,
    next_object: u64,
}

impl Known<'_> {
    /// The newest number with that lower half.
    fn number(&self, hint: u32) -> Option<u64> {
        number_of(hint, self.next_object)
    }
}

fn number_of(hint: u32, next_object: u64) -> Option<u64> {
    let object = (next_object & !0xffff_ffff) | u64::from(hint);
    if object < next_object { Some(object) } else { object.checked_sub(1 << 32) }
}

impl Known<'_> {
    /// The object that a hint names, if new blocks may rest on it.
    fn usable(&self, hint: u32) -> Option<u64> {
        let object = self.number(hint)?;
        let slot = self.at_hand.index.object(object)?;
        let usable = self.at_hand.store.place(slot).stays && self.at_hand.index.may_reference(object) && !self.condemned.contains(&object);
        usable.then_some(object)
    }
}

impl Bases for Known<'_> {
    fn content(&self, hint: u32) -> Option<&Block> {
        self.at_hand.content(self.contents, self.usable(hint)?).map(|page| &**page)
    }

    fn exists(&self, hint: u32) -> bool {
        self.usable(hint).is_some()
    }
}

impl Packer {
    /// A packer that stores blocks as they are, for a store in which the objects below `next_object` may be.
    pub fn new(next_object: u64) -> Packer {
        Packer {
            options: ContentOptions::OFF,
            encoder: None,
            budget: Budget::new(0),
            untimed_looks: 0,
            contents: Contents::default(),
            codec: dense::Codec::default(),
            volumes: Map::default(),
            condemned: Set::default(),
            next_object: next_object.max(1),
            awaited_blocks: 0,
            stats: PackerStats::default(),
        }
    }

    /// From now on blocks are treated so.
    pub fn set(&mut self, options: ContentOptions) {
        let places = (options.hint_bytes / HINT_BYTES) as usize;
        let (blocks, parts) = (places / BLOCKS_AT_FIRST_ONE_IN, places / PARTS_ONE_IN);
        let steps = steps_of(options.level);
        let encoder = || Box::new(Encoder::with_places(steps, options.seed, blocks, parts).with_key_bits(options.key_bits));
        self.encoder = (options.level != Content::Off).then(encoder);
        self.budget = Budget::new(options.cpu_ns_per_second);
        self.contents = Contents::new(options.base_pages);
        self.options = options;
    }

    /// How blocks are treated.
    pub fn options(&self) -> &ContentOptions {
        &self.options
    }

    /// Whether blocks are looked at.
    pub fn is_on(&self) -> bool {
        self.encoder.is_some()
    }

    /// What it has cost and brought.
    pub fn stats(&self) -> PackerStats {
        self.stats
    }

    /// Looks at blocks of which the host has not yet said how long they took.
    pub fn untimed_looks(&self) -> u32 {
        self.untimed_looks
    }

    /// That long the looks took of which nothing was said yet, in nanoseconds.
    pub fn took(&mut self, ns: u64) {
        self.untimed_looks = 0;
        self.stats.cpu_ns += ns;
        self.budget.spent(ns);
    }

    /// The number the next object gets.
    pub fn next_object(&self) -> u64 {
        self.next_object
    }

    /// Memory of the hints, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.encoder.as_ref().map_or(0, |encoder| encoder.memory_bytes())
    }

    /// How the steps stand on a volume; `None` if the level decides for all volumes, or nothing of it was stored yet.
    pub fn steps(&self, volume: VolumeIndex) -> Option<[StepState; Step::ALL.len()]> {
        self.volumes.get(&volume.0).filter(|_| self.options.level == Content::Auto).map(VolumeSteps::states)
    }

    /// The volume is gone.
    pub fn forget_volume(&mut self, volume: VolumeIndex) {
        self.volumes.remove(&volume.0);
    }

    /// The encoded bytes of the block chosen for last.
    pub fn bytes(&self) -> &[u8] {
        self.encoder.as_ref().map_or(&[], |encoder| encoder.bytes())
    }

    /// Contents of bases.
    pub fn contents(&self) -> &Contents {
        &self.contents
    }

    /// The content of a base has been read or was of use.
    pub fn keep(&mut self, object: u64, page: &Page) {
        self.contents.keep(object, page);
    }

    /// The object is no more.
    pub fn forget(&mut self, object: u64) {
        self.contents.forget(object);
        self.condemned.remove(&object);
    }

    /// The SSD did not give the object as it was written.
    pub fn condemn(&mut self, object: u64) {
        self.condemned.insert(object);
    }

    /// Pages are wanted elsewhere.
    pub fn give_back_pages(&mut self) {
        let half = self.contents.pages() / 2;
        self.contents.shrink_to(half);
    }

    /// Loses everything that is only a hint or a copy.
    pub fn forget_hints(&mut self) {
        if let Some(encoder) = &mut self.encoder {
            encoder.forget_hints();
        }
        self.contents.shrink_to(0);
    }

    /// Chooses the form of a block that is about to be stored; `rests_on` is the object on which the address' present version rests (or which it
    /// is). `None`: as it is, and as no object.
    pub fn choose(
        &mut self,
        now_ns: u64,
        volume: VolumeIndex,
        page: &Page,
        rests_on: Option<u64>,
        kind: Kind,
        at_hand: &AtHand<'_>,
    ) -> Option<Chosen> {
        self.encoder.as_ref()?;
        let wanted = self.steps_wanted(volume, kind);
        let encoder = self.encoder.as_mut()?;
        let steps = self.budget.steps(now_ns, wanted);
        if steps == Steps::NONE || self.next_object >= OBJECTS_MAX {
            return None;
        }
        self.untimed_looks += 1;
        let known = Known { at_hand, contents: &self.contents, condemned: &self.condemned, next_object: self.next_object };
        let had_version = rests_on.is_some_and(|object| known.content(object as u32).is_some());
        let previous = rests_on.map(|object| Previous { base: object as u32, content: None });
        let form = encoder.encode_within(steps, page, previous, &known);
        if let Some(volume) = self.volumes.get_mut(&volume.0).filter(|_| self.options.level == Content::Auto && kind != Kind::Whole) {
            volume.tried(steps, had_version, encoding_of(form), encoder.bytes().len(), encoder.found());
        }
        let encoding = match encoding_of(form) {
            // Equal to a base that no key of whole blocks leads to any more.
            Encoding::Diff if encoder.bytes().is_empty() => Encoding::Duplicate,
            encoding => encoding,
        };
        let base = match form {
            Form::Duplicate(hint) | Form::Diff(hint) | Form::LzDelta(hint) | Form::ZstdDelta(hint) => {
                let object = known.number(hint).expect("the encoder was given its content");
                at_hand.content(&self.contents, object).cloned().map(|content| (object, content))
            }
            _ => None,
        };
        // Where nothing is saved and nobody will meet it, a block is stored as it is, and costs nothing more.
        let meets_nobody = !steps.duplicates && !steps.parts && !steps.versions;
        let chosen = if encoding.is_full() && !(encoding == Encoding::Raw && meets_nobody) {
            let object = self.next_object;
            self.next_object += 1;
            let most_bytes = self.options.hint_bytes - self.options.hint_bytes / PARTS_ONE_IN as u64;
            encoder.allow_duplicates((at_hand.index.census().objects() * BYTES_AN_OBJECT).min(most_bytes));
            encoder.remember_within(steps, object as u32, page);
            self.contents.keep(object, page);
            Some(Chosen { encoding, object })
        } else if let Some((object, content)) = base {
            self.contents.keep(object, if mutants::active(mutants::CONTENT_KEPT_AS_BASE) { page } else { &content });
            Some(Chosen { encoding, object })
        } else {
            (encoding == Encoding::Zero).then_some(Chosen { encoding, object: 0 })
        };
        if let Some(Chosen { encoding, object }) = chosen {
            assert!(object < self.next_object, "object {object} is yet to come");
            assert_eq!(object == 0, encoding == Encoding::Zero, "{encoding:?} with object {object}");
            assert!(encoder.bytes().len() <= types::BLOCK_BYTES as usize, "{encoding:?} in {} bytes", encoder.bytes().len());
        }
        self.stats.blocks += 1;
        let stored_bytes = if encoding == Encoding::Raw { types::BLOCK_BYTES } else { encoder.bytes().len() as u64 };
        self.stats.saved_bytes += types::BLOCK_BYTES - stored_bytes.min(types::BLOCK_BYTES);
        chosen
    }

    /// The steps to take for a block, before the budget is asked. Counts the blocks that clients wait for.
    fn steps_wanted(&mut self, volume: VolumeIndex, kind: Kind) -> Steps {
        let wanted = match self.options.level {
            Content::Auto => {
                let wanted = self.volumes.entry(volume.0).or_default().wanted();
                // A client that waits for its write does not wait for zstd, except for one block in so many, which show what zstd would
                // bring. Eviction makes up for it.
                self.awaited_blocks += u32::from(kind == Kind::Awaited);
                let dense = kind != Kind::Awaited || self.awaited_blocks.is_multiple_of(AWAITED_DENSE_ONE_IN);
                Steps { zstd: wanted.zstd && dense, similar: wanted.similar && dense, ..wanted }
            }
            level => steps_of(level),
        };
        if kind == Kind::Whole { wanted.and(Steps::WHOLE) } else { wanted }
    }

    /// The object on which a block that is about to be stored may rest, if it is not in memory and worth being read for that. `rests_on`: see
    /// [`Packer::choose`].
    pub fn wanted_base(
        &mut self,
        now_ns: u64,
        volume: VolumeIndex,
        page: &Page,
        rests_on: Option<u64>,
        at_hand: &AtHand<'_>,
    ) -> Option<u64> {
        let encoder = self.encoder.as_ref().filter(|_| self.options.base_pages > 0)?;
        let reading = match self.options.level {
            Content::Auto => self.volumes.entry(volume.0).or_default().reading(),
            level => steps_of(level),
        };
        let steps = self.budget.steps(now_ns, reading);
        let known = Known { at_hand, contents: &self.contents, condemned: &self.condemned, next_object: self.next_object };
        let version = rests_on.filter(|object| steps.versions && known.usable(*object as u32) == Some(*object));
        let is_here = |object: u64| at_hand.content(&self.contents, object).is_some();
        if version.is_some_and(is_here) {
            return None;
        }
        self.untimed_looks += 1;
        // Shared content says more than a shared address: a double write buffer holds another page each time.
        let met = encoder.met_by(steps, page, &known).and_then(|hint| known.usable(hint));
        met.or(version).filter(|object| !is_here(*object))
    }

    /// zstd's bytes for a block stored in full in another form, if they are worth being read for longer.
    pub fn denser(&mut self, now_ns: u64, volume: VolumeIndex, page: &Page, stored_bytes: usize) -> Option<&[u8]> {
        let wanted = self.wants_denser(volume);
        let encoder = self.encoder.as_mut()?;
        let allowed = self.budget.steps(now_ns, Steps { zstd: wanted, ..Steps::NONE });
        if !allowed.zstd {
            return None;
        }
        self.untimed_looks += 1;
        assert!(stored_bytes <= types::BLOCK_BYTES as usize, "a block is stored in {stored_bytes} bytes");
        let smaller = encoder.encode_dense(page, stored_bytes);
        assert!(!smaller || encoder.bytes().len() < stored_bytes, "{} bytes instead of {stored_bytes}", encoder.bytes().len());
        smaller.then(|| encoder.bytes())
    }

    /// Decodes a block; `base` is the content of the object it rests on.
    ///
    /// # Errors
    /// Bytes that are not of that form, and a missing base.
    pub fn decode(&mut self, encoding: Encoding, bytes: &[u8], base: Option<&Block>, into: &mut Block) -> Result<(), Malformed> {
        let form = match encoding {
            Encoding::Raw => Form::Raw,
            Encoding::Zero => Form::Zero,
            Encoding::Duplicate => Form::Duplicate(0),
            Encoding::Diff => Form::Diff(0),
            Encoding::LzDelta => Form::LzDelta(0),
            Encoding::ZstdDelta => Form::ZstdDelta(0),
            Encoding::Lz4 => Form::Lz4,
            Encoding::Zstd => Form::Zstd,
            Encoding::Lost => return Err(Malformed),
        };
        content::encode::decode(form, bytes, base, &mut self.codec, into)
    }
}

fn encoding_of(form: Form) -> Encoding {
    match form {
        Form::Zero => Encoding::Zero,
        Form::Unchanged | Form::Duplicate(_) => Encoding::Duplicate,
        Form::Diff(_) => Encoding::Diff,
        Form::LzDelta(_) => Encoding::LzDelta,
        Form::ZstdDelta(_) => Encoding::ZstdDelta,
        Form::Lz4 => Encoding::Lz4,
        Form::Zstd => Encoding::Zstd,
        Form::Raw => Encoding::Raw,
    }
}

/// Numbers of objects have 40 bits: four petabytes of blocks stored in full. Nothing is encoded beyond.
const OBJECTS_MAX: u64 = (1 << 40) - 1;

fn steps_of(level: Content) -> Steps {
    match level {
        Content::Off => Steps::NONE,
        Content::Fast => Steps::FAST,
        Content::Dense | Content::Auto => Steps::DENSE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lower_half_of_a_number_names_the_newest_object_that_has_it() {
        assert_eq!(number_of(5, 6), Some(5));
        assert_eq!(number_of(6, 6), None);
        assert_eq!(number_of(7, (1 << 32) + 6), Some(7));
        assert_eq!(number_of(5, (1 << 32) + 6), Some((1 << 32) + 5));
        assert_eq!(number_of(0xffff_ffff, 3 << 32), Some((3 << 32) - 1));
    }
}
