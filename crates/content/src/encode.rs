//! Which form a block is stored in. The cheapest question first, and the first good answer is taken.
//!
//! ```text
//!   zero ─ equal to what the address holds ─ difference to the base of the same address (at most 512 bytes: taken at once)
//!        ─ duplicate of another block ─ delta to a block that shares parts ─ delta to a similar block (if that pays)
//!        ─ zstd ─ LZ4 ─ as it is
//! ```
//!
//! Bases are objects stored in full whose content is in memory. No election: every full object is a possible base.

use crate::fingerprint::{self, Fingerprint};
use crate::gate::Gate;
use crate::hints::{GrowingHints, Hints, ObjectId};
use crate::{BLOCK_BYTES, Block, Malformed, dense, diff, is_zero, lz, sketch};
use alloc::vec::Vec;

/// A difference to the same address is taken at once up to this size.
const DIFF_AT_ONCE_MAX: usize = 128;
/// A delta is never larger than this ...
const DELTA_MAX: usize = 1024;
/// ... nor than half of what LZ4 alone makes; beyond, the block becomes a base of its own.
const DELTA_TO_LZ4: (usize, usize) = (1, 2);
/// A delta to a block at another address is worth its second read only if next to nothing is left: it is a copy, not a relative. (A relative would
/// also be a poor base for what is written over it next.)
const COPY_TO_LZ4: (usize, usize) = (1, 4);
/// A delta to a merely similar block saves at least a quarter: it costs another read.
const SIMILAR_TO_LZ4: (usize, usize) = (3, 4);
/// LZ4 must save a sixteenth.
const LZ4_MAX: usize = BLOCK_BYTES - BLOCK_BYTES / 16;
/// So must zstd, of what LZ4 leaves: it takes longer to read.
const ZSTD_TO_LZ4: (usize, usize) = (15, 16);

/// Steps that may be switched off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Steps {
    /// Equal blocks are stored once.
    pub duplicates: bool,
    /// Differences to the previous version of the address.
    pub versions: bool,
    /// Deltas to blocks that share 512-byte parts.
    pub parts: bool,
    /// Deltas to blocks with similar content, where that pays.
    pub similar: bool,
    /// LZ4.
    pub lz4: bool,
    /// zstd in the place of LZ4, alone and for deltas, where it is smaller.
    pub zstd: bool,
}

impl Steps {
    /// What costs a few microseconds a block.
    pub const FAST: Steps = Steps { duplicates: true, versions: true, parts: true, similar: false, lz4: true, zstd: false };
    /// Everything.
    pub const DENSE: Steps = Steps { similar: true, zstd: dense::AVAILABLE, ..Steps::FAST };
    /// Blocks as they are; only zeroes and what did not change are told from others.
    pub const NONE: Steps = Steps { duplicates: false, versions: false, parts: false, similar: false, lz4: false, zstd: false };
    /// Blocks that rest on no other.
    pub const WHOLE: Steps = Steps { lz4: true, zstd: true, ..Steps::NONE };
    /// LZ4 alone, to compare with.
    pub const LZ4: Steps = Steps { duplicates: false, versions: false, parts: false, similar: false, lz4: true, zstd: false };

    /// What both have.
    pub fn and(self, other: Steps) -> Steps {
        Steps {
            duplicates: self.duplicates && other.duplicates,
            versions: self.versions && other.versions,
            parts: self.parts && other.parts,
            similar: self.similar && other.similar,
            lz4: self.lz4 && other.lz4,
            zstd: self.zstd && other.zstd,
        }
    }
}

/// How a block is stored. The bytes of a form are in [`Encoder::bytes`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// All bytes zero: nothing is stored.
    Zero,
    /// As the address holds it already.
    Unchanged,
    /// The content of another object.
    Duplicate(ObjectId),
    /// A difference to that object, by [`diff`].
    Diff(ObjectId),
    /// LZ4 with that object before it.
    LzDelta(ObjectId),
    /// zstd with that object before it.
    ZstdDelta(ObjectId),
    /// LZ4 alone.
    Lz4,
    /// zstd alone.
    Zstd,
    /// As it is.
    Raw,
}

/// Gives the content of objects stored in full.
pub trait Bases {
    /// The object's content, if it is in memory, and the object still there.
    fn content(&self, object: ObjectId) -> Option<&Block>;

    /// Whether the object is still there, in memory or not.
    fn exists(&self, object: ObjectId) -> bool {
        self.content(object).is_some()
    }
}

/// How a form came about, to tell what each step brings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// The delta is to what the address rests on.
    pub by_version: bool,
    /// The delta is to a block found by its parts.
    pub by_parts: bool,
    /// Similar content was looked for; the delta, if it is neither of the above, is to what was found.
    pub tried_similar: bool,
    /// Bytes that LZ4 alone makes, or of the block; 0 if that was not asked.
    pub lz4_bytes: usize,
}

/// What an address holds now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Previous<'a> {
    /// The object in full on which it rests: itself, or the base of its delta.
    pub base: ObjectId,
    /// Its content, if that is at hand.
    pub content: Option<&'a Block>,
}

/// Chooses forms, and remembers by which keys blocks may meet. All memory is taken at once.
pub struct Encoder {
    steps: Steps,
    seed: u64,
    keys: Keys,
    duplicates: GrowingHints,
    /// Keys of parts and features, in one table.
    near: Hints,
    similar: Gate,
    /// Of zstd where LZ4 finds nothing.
    letters: Gate,
    codec: dense::Codec,
    bytes: Vec<u8>,
    other: Vec<u8>,
    found: Found,
    /// Keys of the block encoded last, as far as they were asked for: it is often remembered next.
    whole_key: Option<u64>,
    /// The first bytes of the block encoded last.
    last_begins: [u8; 8],
    part_keys: Option<[Option<u64>; fingerprint::PARTS]>,
}

impl Encoder {
    /// An encoder with room for that many keys of whole blocks, and as many times eight of parts. `seed` is the pool's secret.
    pub fn new(steps: Steps, seed: u64, blocks: usize) -> Encoder {
        Encoder::with_places(steps, seed, blocks, blocks * fingerprint::PARTS)
    }

    /// An encoder with room for that many keys of whole blocks to begin with, and of parts.
    pub fn with_places(steps: Steps, seed: u64, blocks: usize, parts: usize) -> Encoder {
        Encoder {
            steps,
            seed,
            keys: Keys::ALL,
            duplicates: GrowingHints::new(if steps.duplicates { blocks } else { 0 }),
            near: Hints::new(if steps.parts || steps.similar { parts } else { 0 }),
            similar: Gate::default(),
            letters: Gate::default(),
            codec: dense::Codec::default(),
            bytes: Vec::new(),
            other: Vec::new(),
            found: Found::default(),
            whole_key: None,
            last_begins: [0; 8],
            part_keys: None,
        }
    }

    /// The same with keys of so many bits (from 64 on: all), so that different blocks, parts and features meet: for tests of whoever believes a
    /// key. With 0 all meet.
    pub fn with_key_bits(self, bits: u32) -> Encoder {
        Encoder { keys: Keys::of_bits(bits), ..self }
    }

    /// The bytes of the form given last.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How the form given last came about.
    pub fn found(&self) -> Found {
        self.found
    }

    /// Bytes of the tables.
    pub fn memory_bytes(&self) -> u64 {
        self.duplicates.memory_bytes() + self.near.memory_bytes()
    }

    /// The keys of whole blocks may take so many bytes, where there are that many.
    pub fn allow_duplicates(&mut self, bytes_max: u64) {
        self.duplicates.allow(bytes_max);
    }

    /// Whether similar content is looked for in every block.
    pub fn similar(&self) -> &Gate {
        &self.similar
    }

    /// Loses all hints, which harms nothing.
    pub fn forget_hints(&mut self) {
        self.duplicates.clear();
        self.near.clear();
    }

    /// Chooses the form of a block.
    pub fn encode(&mut self, block: &Block, previous: Option<Previous<'_>>, bases: &impl Bases) -> Form {
        self.encode_within(self.steps, block, previous, bases)
    }

    /// The same with fewer steps, as a [`Budget`](crate::budget::Budget) allows them. What blocks may meet by later is remembered all the same.
    pub fn encode_within(&mut self, allowed: Steps, block: &Block, previous: Option<Previous<'_>>, bases: &impl Bases) -> Form {
        let all = self.steps;
        self.steps = all.and(allowed);
        let form = self.choose(block, previous, bases);
        self.steps = all;
        form
    }

    /// zstd alone, for a block that is stored in full in `stored_bytes`. False if it saves less than a sixteenth of them.
    pub fn encode_dense(&mut self, block: &Block, stored_bytes: usize) -> bool {
        self.bytes.clear();
        self.compress(None, block, stored_bytes * ZSTD_TO_LZ4.0 / ZSTD_TO_LZ4.1)
    }

    fn choose(&mut self, block: &Block, previous: Option<Previous<'_>>, bases: &impl Bases) -> Form {
        self.bytes.clear();
        self.last_begins.copy_from_slice(&block[..8]);
        self.found = Found::default();
        (self.whole_key, self.part_keys) = (None, None);
        if is_zero(block) {
            return Form::Zero;
        }
        if previous.is_some_and(|previous| previous.content == Some(block)) {
            return Form::Unchanged;
        }
        let previous = previous.filter(|_| self.steps.versions).map(|previous| previous.base);
        if let Some((object, base)) = previous.and_then(|object| Some((object, bases.content(object)?)))
            && diff::encode(base, block, DIFF_AT_ONCE_MAX, &mut self.bytes)
        {
            self.found.by_version = true;
            return Form::Diff(object);
        }
        if let Some(object) = self.duplicate(block, bases) {
            return Form::Duplicate(object);
        }
        let lz4 = self.steps.lz4 && lz::encode(block, LZ4_MAX, &mut self.bytes);
        let mut form = if lz4 { Form::Lz4 } else { Form::Raw };
        self.found.lz4_bytes = if lz4 { self.bytes.len() } else { BLOCK_BYTES };
        if self.steps.zstd && self.try_zstd(block, lz4) {
            form = Form::Zstd;
        }
        let alone_bytes = if form == Form::Raw { BLOCK_BYTES } else { self.bytes.len() };
        let most = DELTA_MAX.min(alone_bytes * DELTA_TO_LZ4.0 / DELTA_TO_LZ4.1);
        if let Some(object) = previous {
            self.try_delta(object, block, most, bases, &mut form);
            self.found.by_version = is_delta(form);
        }
        if self.steps.parts
            && !is_delta(form)
            && let Some(object) = self.near_by_parts(block, bases)
        {
            self.try_delta(object, block, DELTA_MAX.min(alone_bytes * COPY_TO_LZ4.0 / COPY_TO_LZ4.1), bases, &mut form);
            self.found.by_parts = is_delta(form);
        }
        if self.steps.similar && !is_delta(form) && self.similar.tries() {
            self.found.tried_similar = true;
            self.try_similar(block, alone_bytes, bases, &mut form);
        }
        if form == Form::Raw {
            self.bytes.clear();
            self.bytes.extend_from_slice(block);
        }
        form
    }

    /// The block encoded last is an object stored in full: it may be a base and a duplicate's original from now on.
    pub fn remember(&mut self, object: ObjectId, block: &Block) {
        self.remember_within(self.steps, object, block);
    }

    /// The same for those steps alone that are taken.
    pub fn remember_within(&mut self, allowed: Steps, object: ObjectId, block: &Block) {
        let steps = self.steps.and(allowed);
        assert!(self.last_begins == block[..8], "the block encoded last");
        if steps.duplicates {
            let key = self.whole_key.unwrap_or_else(|| self.key_of(block));
            self.duplicates.put(key, object);
        }
        if steps.parts {
            let keys = self.part_keys.unwrap_or_else(|| fingerprint::of_parts(self.seed, block));
            for key in keys.into_iter().flatten() {
                self.near.put(self.keys.shortened(key), object);
            }
        }
        if steps.similar && self.similar.is_looking() {
            for key in sketch::of(block).into_iter().flatten() {
                self.near.put(self.keys.shortened(key), object);
            }
        }
    }

    /// The object that a block with these steps is likely to be equal to, or near, by its keys alone: nothing is compared.
    pub fn met_by(&self, allowed: Steps, block: &Block, bases: &impl Bases) -> Option<ObjectId> {
        let steps = self.steps.and(allowed);
        if is_zero(block) {
            return None;
        }
        let equal = || self.duplicates.get(self.key_of(block)).filter(|object| bases.exists(*object));
        let near = || self.nearest(&fingerprint::of_parts(self.seed, block), 1, |object| bases.exists(object));
        steps.duplicates.then(equal).flatten().or_else(|| steps.parts.then(near).flatten())
    }

    fn near_by_parts(&mut self, block: &Block, bases: &impl Bases) -> Option<ObjectId> {
        let keys = fingerprint::of_parts(self.seed, block);
        self.part_keys = Some(keys);
        self.nearest(&keys, 1, |object| bases.content(object).is_some())
    }

    fn duplicate(&mut self, block: &Block, bases: &impl Bases) -> Option<ObjectId> {
        if !self.steps.duplicates {
            return None;
        }
        let key = self.key_of(block);
        self.whole_key = Some(key);
        let object = self.duplicates.get(key)?;
        if mistakes::active(mistakes::DUPLICATE_BY_KEY) {
            return bases.content(object).map(|_| object);
        }
        // The key is a hint: only equal bytes are equal.
        (bases.content(object)? == block).then_some(object)
    }

    /// The key of a whole block.
    fn key_of(&self, block: &Block) -> u64 {
        let Fingerprint(key) = fingerprint::of(self.seed, block);
        self.keys.shortened((key >> 64) as u64 ^ key as u64)
    }

    /// The object that most of the keys lead to, if at least `shared_min` do.
    fn nearest<const N: usize>(
        &self,
        keys: &[Option<u64>; N],
        shared_min: usize,
        is_usable: impl Fn(ObjectId) -> bool,
    ) -> Option<ObjectId> {
        let mut found: [Option<ObjectId>; N] = [None; N];
        for (place, key) in found.iter_mut().zip(keys) {
            *place = key.and_then(|key| self.near.get(self.keys.shortened(key))).filter(|object| is_usable(*object));
        }
        let votes = |object: &ObjectId| found.iter().filter(|other| **other == Some(*object)).count();
        let best = found.iter().flatten().max_by_key(|object| votes(object)).copied()?;
        (votes(&best) >= shared_min).then_some(best)
    }

    /// Takes the smaller of both deltas, if it is small enough.
    fn try_delta(&mut self, object: ObjectId, block: &Block, bytes_max: usize, bases: &impl Bases, form: &mut Form) {
        let Some(base) = bases.content(object) else { return };
        self.other.clear();
        let mut most = bytes_max;
        if diff::encode(base, block, most, &mut self.other) {
            *form = Form::Diff(object);
            core::mem::swap(&mut self.bytes, &mut self.other);
            most = self.bytes.len().saturating_sub(1);
            self.other.clear();
        }
        if lz::encode_with(base, block, most, &mut self.other) {
            *form = Form::LzDelta(object);
            core::mem::swap(&mut self.bytes, &mut self.other);
            most = self.bytes.len().saturating_sub(1);
        }
        if self.steps.zstd && self.compress(Some(base), block, most) {
            *form = Form::ZstdDelta(object);
        }
    }

    /// Puts zstd's bytes in the place of what there is, if they are few enough.
    fn compress(&mut self, base: Option<&Block>, block: &Block, bytes_max: usize) -> bool {
        self.other.clear();
        let smaller = self.codec.encode(base, block, bytes_max, &mut self.other);
        if smaller {
            core::mem::swap(&mut self.bytes, &mut self.other);
        }
        smaller
    }

    /// LZ4 finds nothing in text of random letters, where zstd saves a fifth, and neither does in what is compressed already: where it found nothing,
    /// zstd is tried as long as that pays.
    fn try_zstd(&mut self, block: &Block, lz4: bool) -> bool {
        if lz4 {
            return self.compress(None, block, self.bytes.len() * ZSTD_TO_LZ4.0 / ZSTD_TO_LZ4.1);
        }
        if !self.letters.tries() {
            return false;
        }
        let smaller = self.compress(None, block, LZ4_MAX);
        self.letters.tried(BLOCK_BYTES, if smaller { BLOCK_BYTES - self.bytes.len() } else { 0 });
        smaller
    }

    fn try_similar(&mut self, block: &Block, alone_bytes: usize, bases: &impl Bases, form: &mut Form) {
        // A block that gives no sample has no keys, and meets nobody.
        if let Some(keys) = sketch::of(block)
            && let Some(object) = self.nearest(&keys.map(Some), 1, |object| bases.content(object).is_some())
        {
            self.try_delta(object, block, alone_bytes * SIMILAR_TO_LZ4.0 / SIMILAR_TO_LZ4.1, bases, form);
        }
        let saved = if is_delta(*form) { alone_bytes - self.bytes.len() } else { 0 };
        self.similar.tried(alone_bytes, saved);
    }
}

/// Gives a block back from its form and bytes; `base` is the content of the object that the form names, `codec` working memory.
///
/// # Errors
/// Bytes that are not of that form, and a form without its base.
pub fn decode(form: Form, bytes: &[u8], base: Option<&Block>, codec: &mut dense::Codec, into: &mut Block) -> Result<(), Malformed> {
    let base = base.ok_or(Malformed);
    match form {
        Form::Zero => into.fill(0),
        Form::Unchanged | Form::Duplicate(_) => *into = *base?,
        Form::Diff(_) => {
            *into = *base?;
            diff::apply(bytes, into)?;
        }
        Form::LzDelta(_) => lz::decode_with(base?, bytes, into)?,
        Form::ZstdDelta(_) => codec.decode(Some(base?), bytes, into)?,
        Form::Lz4 => lz::decode(bytes, into)?,
        Form::Zstd => codec.decode(None, bytes, into)?,
        Form::Raw => *into = bytes.try_into().map_err(|_| Malformed)?,
    }
    Ok(())
}

fn is_delta(form: Form) -> bool {
    matches!(form, Form::Diff(_) | Form::LzDelta(_) | Form::ZstdDelta(_))
}

/// How much of a key counts: all of it, but in tests.
#[derive(Clone, Copy)]
struct Keys {
    mask: u64,
    /// Odd: spreads what is left over the whole key, of which the tables take the upper and the lower half.
    factor: u64,
}

impl Keys {
    const ALL: Keys = Keys { mask: u64::MAX, factor: 1 };

    fn of_bits(bits: u32) -> Keys {
        1_u64.checked_shl(bits).map_or(Keys::ALL, |above| Keys { mask: above - 1, factor: 0x9e37_79b9_7f4a_7c15 })
    }

    fn shortened(self, key: u64) -> u64 {
        (key & self.mask).wrapping_mul(self.factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;

    #[derive(Default)]
    struct Kept(BTreeMap<ObjectId, Block>);

    impl Bases for Kept {
        fn content(&self, object: ObjectId) -> Option<&Block> {
            self.0.get(&object)
        }
    }

    /// Blocks of which some are equal, some share parts, and some are near another.
    fn block(number: u64) -> Block {
        let mut state = number % 40 + 1;
        let mut block = core::array::from_fn(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 8) as u8
        });
        if number.is_multiple_of(3) {
            block[number as usize * 7 % BLOCK_BYTES..][..1].fill(number as u8);
        }
        block
    }

    #[test]
    fn whatever_meets_only_equal_blocks_are_duplicates_and_all_come_back() {
        for bits in [0, 1, 4, 63, 64, u32::MAX] {
            let mut encoder = Encoder::new(Steps { zstd: false, ..Steps::DENSE }, 1, 256).with_key_bits(bits);
            let (mut kept, mut codec, mut duplicates) = (Kept::default(), dense::Codec::default(), 0);
            for number in 0..600 {
                let block = block(number);
                let form = encoder.encode(&block, None, &kept);
                let base = match form {
                    Form::Duplicate(object) | Form::Diff(object) | Form::LzDelta(object) => kept.content(object),
                    _ => None,
                };
                if let Form::Duplicate(_) = form {
                    assert!(base == Some(&block), "bits {bits}, block {number}: another block's content");
                    duplicates += 1;
                }
                let mut back = [0; BLOCK_BYTES];
                decode(form, encoder.bytes(), base, &mut codec, &mut back).expect("an encoding");
                assert!(back == block, "bits {bits}, block {number}: {form:?}");
                if matches!(form, Form::Lz4 | Form::Raw) {
                    encoder.remember(number as ObjectId, &block);
                    kept.0.insert(number as ObjectId, block);
                }
            }
            assert!(bits < 63 || duplicates > 100, "{duplicates} duplicates with {bits} bits");
        }
    }
}
