//! A store without a device: what the forms bring on given blocks, every one of them decoded and compared.

use crate::encode::{Bases, Encoder, Form, Previous, Steps, decode};
use crate::hints::ObjectId;
use crate::{BLOCK_BYTES, Block, dense};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// How the bytes of a record are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accounting {
    /// Before each record, duplicates included.
    pub header_bytes: u64,
    /// Records begin at multiples of this.
    pub align_bytes: u64,
}

impl Accounting {
    /// The log's: a record of 16 bytes in the index of its segment, payloads at multiples of 16.
    pub const LOG: Accounting = Accounting { header_bytes: 16, align_bytes: 16 };
}

/// Sizes of what keeps the store bounded.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Blocks whose content is kept in memory, to be bases and originals.
    pub contents: usize,
    /// Keys of whole blocks.
    pub keys: usize,
}

/// What was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Blocks given.
    pub blocks: u64,
    /// Of them, zeroes.
    pub zero: u64,
    /// As the address held them already.
    pub unchanged: u64,
    /// Content of another object.
    pub duplicate: u64,
    /// Differences to the base of the same address, or to one that shares parts.
    pub diff: u64,
    /// LZ4 with a base.
    pub lz_delta: u64,
    /// zstd with a base.
    pub zstd_delta: u64,
    /// LZ4 alone.
    pub lz4: u64,
    /// zstd alone.
    pub zstd: u64,
    /// As they are.
    pub raw: u64,
    /// Bytes written for all of them, as [`Accounting`] counts.
    pub stored_bytes: u64,
}

impl Tally {
    /// Bytes given for each byte stored.
    pub fn factor(&self) -> f64 {
        (self.blocks * BLOCK_BYTES as u64) as f64 / self.stored_bytes.max(1) as f64
    }
}

/// A block that does not decode to what was encoded: a bug of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the block at address {address} does not come back as it was stored, as {form:?}")]
pub struct Mismatch {
    /// The block's number.
    pub address: u64,
    /// How it was stored.
    pub form: Form,
}

#[derive(Default)]
struct Contents {
    of: BTreeMap<ObjectId, Box<Block>>,
    order: VecDeque<ObjectId>,
}

impl Bases for Contents {
    fn content(&self, object: ObjectId) -> Option<&Block> {
        self.of.get(&object).map(|content| &**content)
    }
}

/// Where an address's content rests: the object, and what is to be done to it.
struct Held {
    object: ObjectId,
    form: Form,
    bytes: Vec<u8>,
}

/// See the module.
pub struct Measure {
    encoder: Encoder,
    codec: dense::Codec,
    accounting: Accounting,
    limits: Limits,
    contents: Contents,
    held: BTreeMap<u64, Held>,
    next: ObjectId,
    tally: Tally,
}

impl Measure {
    /// An empty store.
    pub fn new(steps: Steps, accounting: Accounting, limits: Limits) -> Measure {
        let (contents, held) = (Contents::default(), BTreeMap::new());
        // Here the seed protects nothing: what is measured is to be the same each time.
        let encoder = Encoder::new(steps, 0, limits.keys);
        Measure { encoder, codec: dense::Codec::default(), accounting, limits, contents, held, next: 1, tally: Tally::default() }
    }

    /// What was found since the last [`Measure::reset`].
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The encoder, to look at its gates and memory.
    pub fn encoder(&self) -> &Encoder {
        &self.encoder
    }

    /// Counts from zero again; what is held stays.
    pub fn reset(&mut self) {
        self.tally = Tally::default();
    }

    /// A block that is read once: it has no address that could be written over.
    ///
    /// # Errors
    /// If it cannot be had back, which is a bug.
    pub fn add(&mut self, block: &Block) -> Result<Form, Mismatch> {
        let address = self.tally.blocks;
        let form = self.encoder.encode(block, None, &self.contents);
        self.tally.count(form, self.encoder.bytes().len() as u64, self.accounting);
        self.check(address, form, block, None)?;
        if matches!(form, Form::Lz4 | Form::Zstd | Form::Raw) {
            self.keep(block);
        }
        Ok(form)
    }

    /// The block at an address is written.
    ///
    /// # Errors
    /// If it cannot be had back, which is a bug.
    pub fn write(&mut self, address: u64, block: &Block) -> Result<Form, Mismatch> {
        let mut now: Block = [0; BLOCK_BYTES];
        let previous = self.held.get(&address).map(|held| {
            let base = self.contents.content(held.object);
            let known = decode(held.form, &held.bytes, base, &mut self.codec, &mut now).is_ok();
            (held.object, known)
        });
        let previous = previous.map(|(base, known)| Previous { base, content: known.then_some(&now) });
        let form = self.encoder.encode(block, previous, &self.contents);
        let bytes = self.encoder.bytes();
        self.tally.count(form, bytes.len() as u64, self.accounting);
        self.check(address, form, block, Some(&now))?;
        let bytes = self.encoder.bytes();
        match form {
            Form::Zero => drop(self.held.remove(&address)),
            Form::Unchanged => {}
            Form::Duplicate(object) | Form::Diff(object) | Form::LzDelta(object) | Form::ZstdDelta(object) => {
                let bytes = bytes.to_vec();
                self.held.insert(address, Held { object, form, bytes });
            }
            Form::Lz4 | Form::Zstd | Form::Raw => {
                let object = self.keep(block);
                self.held.insert(address, Held { object, form: Form::Duplicate(object), bytes: Vec::new() });
            }
        }
        Ok(form)
    }

    /// Whether what was encoded is had back.
    fn check(&mut self, address: u64, form: Form, block: &Block, now: Option<&Block>) -> Result<(), Mismatch> {
        let mut back: Block = [0; BLOCK_BYTES];
        let base = match form {
            Form::Duplicate(object) | Form::Diff(object) | Form::LzDelta(object) | Form::ZstdDelta(object) => self.contents.content(object),
            Form::Unchanged => now,
            _ => None,
        };
        let same = decode(form, self.encoder.bytes(), base, &mut self.codec, &mut back).is_ok() && back == *block;
        if same { Ok(()) } else { Err(Mismatch { address, form }) }
    }

    fn keep(&mut self, block: &Block) -> ObjectId {
        if self.limits.contents == 0 {
            return 0;
        }
        let object = self.next;
        self.next = self.next.wrapping_add(1);
        self.encoder.remember(object, block);
        self.contents.of.insert(object, Box::new(*block));
        self.contents.order.push_back(object);
        if self.contents.order.len() > self.limits.contents
            && let Some(oldest) = self.contents.order.pop_front()
        {
            self.contents.of.remove(&oldest);
        }
        object
    }
}

impl Tally {
    fn count(&mut self, form: Form, bytes: u64, accounting: Accounting) {
        self.blocks += 1;
        *match form {
            Form::Zero => &mut self.zero,
            Form::Unchanged => &mut self.unchanged,
            Form::Duplicate(_) => &mut self.duplicate,
            Form::Diff(_) => &mut self.diff,
            Form::LzDelta(_) => &mut self.lz_delta,
            Form::ZstdDelta(_) => &mut self.zstd_delta,
            Form::Lz4 => &mut self.lz4,
            Form::Zstd => &mut self.zstd,
            Form::Raw => &mut self.raw,
        } += 1;
        if !matches!(form, Form::Zero | Form::Unchanged) {
            self.stored_bytes += accounting.header_bytes + bytes.next_multiple_of(accounting.align_bytes);
        }
    }
}
