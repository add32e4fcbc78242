//! Packed blocks from the SSD: the stored bytes and those of the base are asked for at once ([`super::parts`]); then they are decoded, and the result checked.
//!
//! Nothing is believed: stored bytes stand under a checksum of their own, a base under that of its object, and what comes out under the block's.

use super::Shard;
use super::parts::Part;
use crate::index::{Encoding, Slot, Stored};
use crate::key::Key;
use crate::locks::OpId;
use crate::mutants;
use crate::packer::AtHand;
use crate::store::Place;
use alloc::vec::Vec;
use format::packed::PLACE_UNIT_BYTES;
use format::{PayloadOwner, object_checksum, open_packed, payload_checksum};
use page::{Page, PageMut};
use types::BLOCK_BYTES;

/// Who wants the block.
#[derive(Clone, Copy, Debug)]
pub enum Wanted {
    /// A read, as its block of this index.
    Read { op: OpId, index: usize },
    /// A write into the store, to complete this edge.
    Edge { op: OpId, edge: usize },
    /// Destage, as this block of a run.
    Destage { run: u32, at: usize },
    /// The object, for blocks that may rest on it.
    Base(u64),
    /// Nobody: what lies in this slot is to be compared with its checksum, and nothing is taken from memory.
    Scrub(Slot),
}

/// Why a packed block is not to be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfetched {
    /// The SSD cannot read it, or its base.
    Unreadable,
    /// It is not what was written, or its base is not.
    Mismatch,
    /// Its base was given up.
    Gone,
}

/// A fetch that has ended, well or not.
pub struct Fetched {
    /// Who wants it.
    pub wanted: Wanted,
    /// Which block.
    pub key: Key,
    /// A base had to be read for it.
    pub base_was_read: bool,
    /// The block.
    pub result: Result<Page, Unfetched>,
}

/// Which of the two parts of a fetch an I/O reads.
#[derive(Clone, Copy, Debug)]
pub enum FetchPart {
    Own,
    Base,
}

/// Stored bytes on their way: where in the first of the pages they begin, how many they are, and what they are as soon as they are here.
struct Bytes {
    skip: usize,
    count: usize,
    here: Option<Vec<u8>>,
}

struct Base {
    object: u64,
    encoding: Encoding,
    checksum: u32,
    source: BaseSource,
}

enum BaseSource {
    InMemory(Page),
    OnSsd(Bytes, PageMut),
    /// The object is gone: the block rests on nothing.
    Gone,
}

/// A packed block on its way from the SSD.
pub struct Fetch {
    wanted: Wanted,
    key: Key,
    encoding: Encoding,
    object: u64,
    checksum: u32,
    own: Option<Bytes>,
    base: Option<Base>,
    into: PageMut,
    pending: u32,
    unreadable: bool,
}

/// First page in its region and count of pages that stored bytes touch.
pub(super) fn pages_of(stored: &Stored) -> (u32, u32) {
    let first_byte = stored.place * PLACE_UNIT_BYTES;
    let page_bytes = BLOCK_BYTES as u32;
    let first = first_byte / page_bytes;
    (first, (first_byte + u32::from(stored.bytes)).div_ceil(page_bytes) - first)
}

/// Bytes of the first page before the stored ones.
pub(super) fn skip_of(stored: &Stored) -> usize {
    (stored.place * PLACE_UNIT_BYTES % BLOCK_BYTES as u32) as usize
}

impl Shard {
    /// The content of an object that is in memory.
    pub(super) fn object_in_memory(&self, object: u64) -> Option<Page> {
        let at_hand = AtHand { index: &self.index, ram: &self.ram, store: &self.store };
        at_hand.content(self.packer.contents(), object).cloned()
    }

    /// A packed block that needs no I/O at all: zeroes, and the content of a base that is in memory.
    pub(super) fn packed_in_memory(&self, slot: Slot) -> Option<Page> {
        let stored = self.index.stored(slot);
        match stored.encoding {
            Encoding::Zero => Some(self.zero_page.clone()),
            Encoding::Lost if mutants::active(mutants::LOST_IS_ZEROES) => Some(self.zero_page.clone()),
            Encoding::Duplicate => self.object_in_memory(stored.object),
            encoding if encoding.is_full() => self.packer.contents().get(stored.object).cloned(),
            _ => None,
        }
    }

    /// Pages that a fetch of the slot takes.
    pub(super) fn fetch_pages(&self, slot: Slot) -> usize {
        self.pages_to_fetch(slot, true)
    }

    /// The same for [`Wanted::Scrub`], which takes nothing from memory.
    pub(super) fn fetch_pages_from_ssd(&self, slot: Slot) -> usize {
        self.pages_to_fetch(slot, false)
    }

    fn pages_to_fetch(&self, slot: Slot, memory: bool) -> usize {
        let stored = self.index.stored(slot);
        let pages_for = |slot: Slot, stored: &Stored| match self.store.in_flight().bytes(slot) {
            None if stored.bytes > 0 => pages_of(stored).1 as usize,
            _ => 0,
        };
        let base = match self.base_slot(&stored) {
            Some(base) if self.base_in_memory(&stored, memory).is_none() => 1 + pages_for(base, &self.index.stored(base)),
            _ => 0,
        };
        1 + pages_for(slot, &stored) + base
    }

    fn base_slot(&self, stored: &Stored) -> Option<Slot> {
        if stored.encoding.rests_on_base() { self.index.object(self.base_of(stored)) } else { None }
    }

    /// The content of the block's base, if it is to be taken from memory: as any that is there, or as one that the SSD does not have yet.
    fn base_in_memory(&self, stored: &Stored, memory: bool) -> Option<Page> {
        let is_on_ssd = |base| self.store.in_flight().page(base).is_none();
        if !memory && self.base_slot(stored).is_some_and(is_on_ssd) { None } else { self.object_in_memory(self.base_of(stored)) }
    }

    /// The object that a block rests on.
    fn base_of(&self, stored: &Stored) -> u64 {
        let other = stored.object - 1;
        if mutants::active(mutants::WRONG_BASE) && self.index.object(other).is_some() { other } else { stored.object }
    }

    /// Starts reading a packed block, with pages from `buffers`, of which there are [`Shard::fetch_pages`]. The answer is
    /// [`Fetched`], and never comes at once.
    pub(super) fn fetch(&mut self, wanted: Wanted, key: Key, slot: Slot, background: bool, buffers: &mut Vec<PageMut>) {
        let stored = self.index.stored(slot);
        let into = buffers.pop().expect("a page to decode into");
        let (object, checksum) = (stored.object, self.index.meta(slot).checksum);
        let fetch =
            Fetch { wanted, key, encoding: stored.encoding, object, checksum, own: None, base: None, into, pending: 0, unreadable: false };
        let id = self.fetches.add(fetch);
        let own = (stored.bytes > 0).then(|| self.bytes(id, FetchPart::Own, slot, &stored, background, buffers));
        let base = stored.encoding.rests_on_base().then(|| {
            let object = self.base_of(&stored);
            let in_memory = self.base_in_memory(&stored, !matches!(wanted, Wanted::Scrub(_)));
            let source = match (in_memory, self.base_slot(&stored)) {
                (Some(page), _) => (Encoding::Raw, 0, BaseSource::InMemory(page)),
                (None, None) => (Encoding::Raw, 0, BaseSource::Gone),
                (None, Some(slot)) => {
                    let base = self.index.stored(slot);
                    let bytes = self.bytes(id, FetchPart::Base, slot, &base, background, buffers);
                    let into = buffers.pop().expect("a page to decode the base into");
                    (base.encoding, self.index.meta(slot).checksum, BaseSource::OnSsd(bytes, into))
                }
            };
            Base { object, encoding: source.0, checksum: source.1, source: source.2 }
        });
        let fetch = self.fetches.get_mut(id);
        (fetch.own, fetch.base) = (own, base);
        if fetch.pending == 0 {
            // Nothing to read: the base is in memory (or gone). The answer waits for the end of the turn all the same.
            self.fetched_without_io.push_back(id);
        }
    }

    /// The bytes stored in a slot, if they are in memory; else they are asked for.
    fn bytes(&mut self, id: u32, part: FetchPart, slot: Slot, stored: &Stored, background: bool, buffers: &mut Vec<PageMut>) -> Bytes {
        let here = self.store.in_flight().bytes(slot).map(<[u8]>::to_vec);
        if here.is_none() {
            let pages = pages_of(stored).1;
            let place = self.store.place(slot);
            // Of the SSD: no region of a layout with slots is one by itself.
            let first_page = (place.offset_bytes / BLOCK_BYTES) as u32;
            self.store.readers().begin(place.region);
            self.fetches.get_mut(id).pending += 1;
            let into = buffers.drain(buffers.len() - pages as usize..);
            let Place { region, offset_bytes, .. } = place;
            self.awaited.ask(Part { fetch: id, part, background, region, first_page, offset_bytes, pages }, into);
        }
        Bytes { skip: skip_of(stored), count: usize::from(stored.bytes), here }
    }

    /// A part has been read, into these pages, or could not be.
    pub(super) fn fetch_read(&mut self, id: u32, part: FetchPart, pages: Option<&[PageMut]>) -> Option<Fetched> {
        let fetch = self.fetches.get_mut(id);
        fetch.pending -= 1;
        fetch.unreadable |= pages.is_none();
        let bytes = match (part, &mut fetch.own, &mut fetch.base) {
            (FetchPart::Own, Some(own), _) => own,
            (FetchPart::Base, _, Some(Base { object, source: BaseSource::OnSsd(bytes, _), .. })) => {
                if pages.is_none() {
                    self.packer.condemn(*object);
                }
                bytes
            }
            _ => unreachable!("only what is awaited was read"),
        };
        bytes.here = pages.map(|pages| bytes.gather(pages));
        (fetch.pending == 0).then(|| self.fetch_done(id))
    }

    /// All that a fetch needs is here.
    pub(super) fn fetch_done(&mut self, id: u32) -> Fetched {
        let fetch = self.fetches.remove(id);
        let (wanted, key) = (fetch.wanted, fetch.key);
        let gone = matches!(&fetch.base, Some(Base { source: BaseSource::Gone, .. }));
        let base_was_read = matches!(&fetch.base, Some(Base { source: BaseSource::OnSsd(..), .. }));
        let result = match () {
            () if gone => Err(Unfetched::Gone),
            () if fetch.unreadable => Err(Unfetched::Unreadable),
            () => self.decode(fetch).ok_or(Unfetched::Mismatch),
        };
        Fetched { wanted, key, base_was_read, result }
    }

    /// The block, if everything is as it was written.
    fn decode(&mut self, fetch: Fetch) -> Option<Page> {
        let Fetch { wanted, key, encoding, object, checksum, own, base, mut into, .. } = fetch;
        // What is stored in full is known by its number; it may have no address any more.
        let owner = match encoding.is_full() {
            true => PayloadOwner::Object(object),
            false => PayloadOwner::Block(self.volumes.of(key).id, key.block()),
        };
        let base = match base {
            None => None,
            Some(base) => {
                let object = base.object;
                // A check leaves no traces in what is kept for others.
                let keep = !matches!(wanted, Wanted::Scrub(_));
                let Some(page) = self.decode_base(base, keep) else {
                    self.packer.condemn(object);
                    return None;
                };
                Some(page)
            }
        };
        let stored = own.map(Bytes::here);
        let bytes = match &stored {
            None => &[][..],
            Some(stored) => encoded_in(encoding, owner, checksum, stored)?,
        };
        self.packer.decode(encoding, bytes, base.as_deref(), &mut into).ok()?;
        let found = match owner {
            PayloadOwner::Object(object) => object_checksum(object, &into),
            PayloadOwner::Block(id, block) => payload_checksum(id, block, &into),
        };
        (found == checksum || mutants::active(mutants::DECODED_UNVERIFIED)).then(|| into.freeze())
    }

    fn decode_base(&mut self, base: Base, keep: bool) -> Option<Page> {
        let (bytes, mut into) = match base.source {
            BaseSource::InMemory(page) => return Some(page),
            BaseSource::Gone => return None,
            BaseSource::OnSsd(bytes, into) => (bytes, into),
        };
        let stored = bytes.here();
        let bytes = encoded_in(base.encoding, PayloadOwner::Object(base.object), base.checksum, &stored)?;
        self.packer.decode(base.encoding, bytes, None, &mut into).ok()?;
        if object_checksum(base.object, &into) != base.checksum && !mutants::active(mutants::DECODED_UNVERIFIED) {
            return None;
        }
        let page = into.freeze();
        if keep {
            self.packer.keep(base.object, &page);
        }
        Some(page)
    }
}

/// What is to be decoded of stored bytes, if they are as they were written. A raw page stands under the checksum of its content alone.
fn encoded_in(encoding: Encoding, owner: PayloadOwner, checksum: u32, stored: &[u8]) -> Option<&[u8]> {
    if encoding == Encoding::Raw {
        return Some(stored);
    }
    open_packed(owner, checksum, stored).or_else(|| stored.get(4..).filter(|_| mutants::active(mutants::DECODED_UNVERIFIED)))
}

impl Bytes {
    /// The bytes in one piece, out of the pages that hold them.
    fn gather(&self, pages: &[PageMut]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.count);
        for (nth, page) in pages.iter().enumerate() {
            let from = if nth == 0 { self.skip } else { 0 };
            let to = (self.count - bytes.len() + from).min(page.len());
            bytes.extend_from_slice(&page[from..to]);
        }
        bytes
    }

    fn here(self) -> Vec<u8> {
        self.here.expect("all parts were read")
    }
}
