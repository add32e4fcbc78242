//! Writes logs as earlier releases left them: format version 3, which is read and upgraded, and which nothing that ships writes any more. For tests
//! that need such a log to begin with.
//!
//! A [`Writer`] fills segments one after the other, group by group. It gives the bytes and says where they belong; who asked for them writes them
//! ([`Written`]), behind a session of the superblock that begins where the log does. All of it counts as flushed. [`Log`] does all that for a pool as
//! a whole: it takes the place of one that is there.

#![forbid(unsafe_code)]

mod pack;
mod whole;

pub use pack::Packing;
pub use whole::{Log, SUPERBLOCKS_BYTES, superblock};

use format::checkpoint::LogEnd;
use format::packed::PACKED_ORDINAL;
use format::{
    Encoding, FooterHead, GROUP_RECORDS_MAX, GroupHead, Layout, PAGE_BYTES, Packed, Record, RecordKind, block_checksum, payload_checksum,
};

use std::collections::BTreeMap;
use types::{ShardIndex, VolumeId};

/// What one more block takes at most: a group of its own, a page, and one for payloads that it pushes out of the header page.
const PAGES_OF_A_BLOCK_MAX: u32 = 3;

/// Whose log it is.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The pool's.
    pub uuid: [u8; 16],
    /// The session that writes it, begun where the log begins.
    pub session: u64,
    /// The shard whose log it is.
    pub shard: ShardIndex,
    /// The pool's geometry.
    pub layout: Layout,
}

/// A block as the log is to have it.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// The volume, by its number in the log.
    pub volume: VolumeId,
    /// The block in the volume.
    pub block: u64,
    /// Which sectors of it are valid.
    pub mask: u8,
    /// The backing device has something older.
    pub dirty: bool,
    /// The payload.
    pub page: &'a [u8; PAGE_BYTES],
}

/// What is to be written, in this order.
#[derive(Clone, Debug)]
pub struct Written {
    /// Where, in bytes, and what.
    pub writes: Vec<(u64, Vec<u8>)>,
    /// Where the log ends.
    pub end: LogEnd,
}

impl Written {
    /// Where the session is to begin that writes it.
    pub fn begin(&self) -> LogEnd {
        LogEnd { next_seq: self.end.tail_seq, next_group: 1, tail_seq: self.end.tail_seq }
    }
}

/// Writes the log of one shard. See the [module](self).
pub struct Writer {
    place: Place,
    first_seq: u64,
    seq: u64,
    /// The page of the segment where the next group begins.
    page: u32,
    group: u64,
    /// The group in the making.
    records: Vec<Record>,
    payloads: Vec<Vec<u8>>,
    /// Groups of the open segment.
    open: Vec<(GroupHead, Vec<Record>)>,
    packed_in_segment: u32,
    /// Where the newest record of a block is: segment and ordinal.
    newest: BTreeMap<(VolumeId, u64), (u64, u32)>,
    packing: Option<Packing>,
    writes: Vec<(u64, Vec<u8>)>,
}

impl Writer {
    /// An empty log that begins with segment `first_seq`; `packing`: blocks are packed as their content asks.
    pub fn new(place: Place, first_seq: u64, packing: Option<Packing>) -> Writer {
        Writer {
            place,
            first_seq,
            seq: first_seq,
            page: 0,
            group: 1,
            records: Vec::new(),
            payloads: Vec::new(),
            open: Vec::new(),
            packed_in_segment: 0,
            newest: BTreeMap::new(),
            packing,
            writes: Vec::new(),
        }
    }

    /// Segments that are full, or have no room for another group of one block: from the first one on.
    pub fn full_segments(&self) -> u64 {
        let mut records = self.records.clone();
        GroupHead::lay_out(self.page, &mut records);
        let in_segment = self.open.iter().map(|(_, records)| records.len()).sum::<usize>() + records.len() + 1;
        let used = self.page + if records.is_empty() { 0 } else { GroupHead::pages(&records) };
        let is_full = used + PAGES_OF_A_BLOCK_MAX > self.place.layout.group_pages_with(in_segment as u32);
        self.seq - self.first_seq + u64::from(is_full)
    }

    /// Blocks rest on nothing that was added so far.
    pub fn forget_objects(&mut self) {
        self.packing.iter_mut().for_each(Packing::forget_objects);
    }

    /// Adds a version of a block.
    pub fn add(&mut self, block: &Block) {
        let Block { volume, block: number, mask, dirty, page } = *block;
        let kind = if dirty { RecordKind::DataDirty } else { RecordKind::DataClean };
        let packed = self.packing.as_mut().filter(|_| mask == u8::MAX).map(|packing| packing.pack(kind, volume, number, page));
        let (record, payload) = packed.unwrap_or_else(|| {
            let checksum = payload_checksum(volume, number, page);
            (Record { kind, volume, block: number, mask, checksum, slot_page: 0, packed: None }, page.to_vec())
        });
        self.push(record, payload);
    }

    /// Says that a dirty block could not be read any more when it was moved. `page`: what it was.
    pub fn lose(&mut self, volume: VolumeId, block: u64, page: &[u8; PAGE_BYTES]) {
        let checksum = payload_checksum(volume, block, page);
        let record =
            Record { kind: RecordKind::DataLost, mask: u8::MAX, checksum, ..without_payload(RecordKind::Invalidate, volume, block) };
        if self.packing.is_some() {
            let packed = Packed { encoding: Encoding::Lost, place: 0, bytes: 0, object: 0, vital: false };
            let checksum = block_checksum(Some(Encoding::Lost), 0, volume, block, page);
            return self.push(Record { packed: Some(packed), checksum, ..record }, Vec::new());
        }
        self.push(record, vec![0; PAGE_BYTES]);
    }

    /// Says that what was dirty of a block is at home.
    ///
    /// # Panics
    /// If the log has no version of the block.
    pub fn note_home(&mut self, volume: VolumeId, block: u64) {
        self.end_group();
        let (of_seq, of_ordinal) = self.newest[&(volume, block)];
        self.push(without_payload(RecordKind::CleanNote { of_seq, of_ordinal }, volume, block), Vec::new());
    }

    /// Says that whatever the log has of a block is void.
    pub fn void(&mut self, volume: VolumeId, block: u64) {
        self.push(without_payload(RecordKind::Invalidate, volume, block), Vec::new());
    }

    fn push(&mut self, record: Record, payload: Vec<u8>) {
        if !self.fits(&record) {
            self.end_group();
            if !self.fits(&record) {
                self.end_segment();
            }
        }
        self.records.push(record);
        self.payloads.push(payload);
    }

    fn fits(&self, record: &Record) -> bool {
        let mut records = self.records.clone();
        records.push(*record);
        GroupHead::lay_out(self.page, &mut records);
        let in_segment = self.open.iter().map(|(_, records)| records.len()).sum::<usize>() + records.len();
        let end = self.page + GroupHead::pages(&records);
        records.len() <= GROUP_RECORDS_MAX && end <= self.place.layout.group_pages_with(in_segment as u32)
    }

    /// The group in the making gets no more records.
    pub fn end_group(&mut self) {
        if self.records.is_empty() {
            return;
        }
        let (mut records, payloads) = (std::mem::take(&mut self.records), std::mem::take(&mut self.payloads));
        GroupHead::lay_out(self.page, &mut records);
        let Place { uuid, session, shard, layout } = self.place;
        let head = GroupHead {
            uuid,
            session,
            shard,
            segment_seq: self.seq,
            group: self.group,
            tail_seq: self.first_seq,
            durable_group: self.group - 1,
            page: self.page,
        };
        for record in &records {
            let ordinal = if record.packed.is_some() { PACKED_ORDINAL | self.packed_in_segment } else { record.slot_page };
            self.packed_in_segment += u32::from(record.packed.is_some());
            if record.kind.is_data() {
                self.newest.insert((record.volume, record.block), (self.seq, ordinal));
            }
        }
        let offset_bytes = layout.page_offset(shard, layout.physical(self.seq), self.page);
        self.writes.push((offset_bytes, group_bytes(&head, &records, &payloads)));
        self.page += GroupHead::pages(&records);
        self.group += 1;
        self.open.push((head, records));
    }

    /// What comes next is in another segment; this one gets its footer.
    pub fn end_segment(&mut self) {
        self.end_group();
        let Place { uuid, session, shard, layout } = self.place;
        let open = std::mem::take(&mut self.open);
        let (Some((first, _)), Some((last, last_records))) = (open.first(), open.last()) else { return };
        let footer = FooterHead {
            uuid,
            session,
            shard,
            segment_seq: self.seq,
            first_group: first.group,
            last_group: last.group,
            tail_seq: last.tail_seq,
            durable_group: last.group,
            resume_seq: 0,
            resume_group: 0,
            used_pages: last.page + GroupHead::pages(last_records),
        };
        let records: Vec<Record> = open.iter().flat_map(|(_, records)| records).copied().collect();
        let offset_bytes = layout.footer_write_offset(shard, layout.physical(self.seq), records.len() as u32);
        self.writes.push((offset_bytes, footer.encode(&layout, &records)));
        (self.seq, self.page, self.packed_in_segment) = (self.seq + 1, 0, 0);
    }

    /// The log is as it is to be; its last segment gets no footer.
    pub fn finish(mut self) -> Written {
        self.end_group();
        let end = LogEnd { next_seq: self.seq + u64::from(self.page > 0), next_group: self.group, tail_seq: self.first_seq };
        Written { writes: self.writes, end }
    }
}

fn without_payload(kind: RecordKind, volume: VolumeId, block: u64) -> Record {
    Record { kind, volume, block, mask: 0, checksum: 0, slot_page: 0, packed: None }
}

/// A group as it is written: its header and the payloads of its records, which have their places.
pub fn group_bytes(head: &GroupHead, records: &[Record], payloads: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = vec![0; GroupHead::pages(records) as usize * PAGE_BYTES];
    let in_header = GroupHead::packed_in_header(records);
    let packed = records.iter().zip(payloads).filter(|(record, _)| record.has_packed_payload()).flat_map(|(_, payload)| {
        let filled = payload.len().next_multiple_of(format::packed::PLACE_UNIT_BYTES as usize);
        payload.iter().copied().chain(std::iter::repeat(0)).take(filled)
    });
    let packed: Vec<u8> = packed.take(in_header.len()).collect();
    head.encode(records, &packed, bytes.first_chunk_mut().expect("a page"));
    for (record, payload) in records.iter().zip(payloads) {
        let in_segment = match record.packed.filter(|packed| packed.encoding.has_packed_payload()) {
            Some(packed) => (packed.place * format::packed::PLACE_UNIT_BYTES) as usize,
            None => record.slot_page as usize * PAGE_BYTES,
        };
        if !payload.is_empty() {
            bytes[in_segment - head.page as usize * PAGE_BYTES..][..payload.len()].copy_from_slice(payload);
        }
    }
    bytes
}
