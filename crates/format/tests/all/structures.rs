//! Promise: what is encoded is decoded to the same; what was changed is refused; no bytes make a decoder panic.

use format::checkpoint::{CheckpointEntry, CheckpointHead, ChunkHead, ENTRY_BYTES, LogEnd};
use format::footer::footer_pages_for;
use format::packed::{OBJECTS_MAX, PACKED_BYTES_MAX, PACKED_BYTES_MIN, PACKED_ORDINAL};
use format::record::RECORD_BYTES;
use format::{
    COUNT_MAX, DecodeError, Encoding, FORMAT_VERSION, Footer, FooterHead, GROUP_RECORDS_MAX, GroupHead, Layout, LogStart, Packed, Record,
    RecordKind, Superblock, VolumeRecord, payload_checksum,
};
use types::{Mode, ShardIndex, VOLUME_BLOCKS_MAX, VolumeId};

/// Random numbers from a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn uuid(&mut self) -> [u8; 16] {
        core::array::from_fn(|_| self.next() as u8)
    }

    /// A record of any kind, plain or packed; places are given later.
    fn record(&mut self) -> Record {
        if self.below(2) == 0 {
            return self.packed_record();
        }
        let (volume, block) = (VolumeId(self.next() as u32), self.below(VOLUME_BLOCKS_MAX));
        let kind = match self.below(6) {
            0 => RecordKind::DataClean,
            1 => RecordKind::DataDirty,
            2 => RecordKind::Invalidate,
            3 => RecordKind::DataLost,
            4 => RecordKind::CleanNote { of_seq: self.next(), of_ordinal: PACKED_ORDINAL | self.next() as u32 },
            _ => RecordKind::CleanNote { of_seq: self.next(), of_ordinal: self.below(2048) as u32 },
        };
        let (mask, checksum) = if kind.is_data() { (1 + self.below(255) as u8, self.next() as u32) } else { (0, 0) };
        Record { kind, volume, block, mask, checksum, slot_page: 0, packed: None }
    }

    fn packed_record(&mut self) -> Record {
        let encoding = Encoding::ALL[self.below(9) as usize];
        let kind = match self.below(3) {
            _ if encoding == Encoding::Lost => RecordKind::DataLost,
            0 if encoding.is_full() => RecordKind::Base,
            0 | 1 => RecordKind::DataClean,
            _ => RecordKind::DataDirty,
        };
        let has_address = kind != RecordKind::Base;
        let packed = Packed {
            encoding,
            place: 0,
            bytes: match encoding {
                Encoding::Raw => 4096,
                Encoding::Zero | Encoding::Duplicate | Encoding::Lost => 0,
                _ => PACKED_BYTES_MIN + self.below(u64::from(PACKED_BYTES_MAX - PACKED_BYTES_MIN) + 1) as u16,
            },
            object: if matches!(encoding, Encoding::Zero | Encoding::Lost) { 0 } else { 1 + self.below(OBJECTS_MAX - 1) },
            vital: encoding.is_full() && self.below(2) == 0,
        };
        Record {
            kind,
            volume: VolumeId(if has_address { self.next() as u32 } else { 0 }),
            block: if has_address { self.below(VOLUME_BLOCKS_MAX) } else { 0 },
            mask: 0xff,
            checksum: self.next() as u32,
            slot_page: 0,
            packed: Some(packed),
        }
    }

    fn group(&mut self) -> (GroupHead, Vec<Record>) {
        let page = self.below(1800) as u32;
        let mut records: Vec<Record> = (0..1 + self.below(GROUP_RECORDS_MAX as u64)).map(|_| self.record()).collect();
        GroupHead::lay_out(page, &mut records);
        let segment_seq = 1 + self.below(COUNT_MAX - 2);
        let group = 1 + self.below(COUNT_MAX - 2);
        let head = GroupHead {
            uuid: self.uuid(),
            session: self.below(COUNT_MAX),
            shard: ShardIndex(self.next() as u16),
            segment_seq,
            group,
            tail_seq: 1 + self.below(segment_seq),
            durable_group: self.below(group),
            page,
        };
        (head, records)
    }

    fn footer(&mut self, layout: &Layout) -> (FooterHead, Vec<Record>) {
        let (group, _) = self.group();
        let mut records: Vec<Record> = (0..self.below(1025.min(u64::from(layout.records_max()) + 1))).map(|_| self.record()).collect();
        GroupHead::lay_out(0, &mut records);
        let damaged = self.below(2) == 0;
        let head = FooterHead {
            uuid: group.uuid,
            session: group.session,
            shard: group.shard,
            segment_seq: group.segment_seq,
            first_group: 1 + self.below(group.group),
            last_group: group.group,
            tail_seq: group.tail_seq,
            durable_group: self.below(COUNT_MAX),
            resume_seq: if damaged { COUNT_MAX - 1 } else { 0 },
            resume_group: if damaged { COUNT_MAX - 1 } else { 0 },
            used_pages: self.below(1 + u64::from(layout.group_pages_with(records.len() as u32))) as u32,
        };
        (head, records)
    }

    fn superblock(&mut self) -> Superblock {
        let planned = Layout::plan((1 << 28) + self.below(1 << 40), 1 + self.below(64) as u16, 64 << 10).expect("fits");
        let layout = [planned, planned.with_slots(), planned.with_packed_slots(), planned.upgraded(true)][self.below(4) as usize];
        let mut superblock = Superblock::new(self.uuid(), layout);
        if layout.has_slots() {
            superblock.named_segments = layout.segments_per_shard + self.below(9) as u32 * u32::from(layout.segments_per_shard < 1 << 20);
            superblock.epoch = self.below(COUNT_MAX);
        }
        superblock.generation = 1 + self.below(1 << 60);
        superblock.session = self.below(COUNT_MAX);
        superblock.clean = self.below(2) == 0;
        for start in &mut superblock.log_starts {
            let first_seq = 100 + self.below(1 << 50);
            let any_ring = u64::from(layout.slots_per_shard() - layout.ring_pages) + 1;
            *start = match layout.ring_pages {
                0 => LogStart { first_seq, first_group: 1 + self.below(1 << 50), tail_seq: first_seq - self.below(8), ring_first: 0 },
                ring => LogStart {
                    first_seq,
                    first_group: first_seq + self.below(ring.into()),
                    tail_seq: first_seq,
                    ring_first: self.below(any_ring) as u32,
                },
            };
        }
        let modes = [Mode::WriteThrough, Mode::WriteAround, Mode::WriteBack, Mode::PassThrough];
        for id in 1..self.below(40) as u32 {
            superblock.volumes.push(VolumeRecord {
                id: VolumeId(id),
                uuid: self.uuid(),
                name: format!("{id}{}", "ö".repeat(self.below(30) as usize)),
                size_bytes: self.next(),
                mode: modes[self.below(4) as usize],
                may_have_dirty: self.below(2) == 0,
                damaged: self.below(2) == 0,
                backing_identity: (0..self.below(257)).map(|_| self.next() as u8).collect(),
            });
        }
        superblock.next_volume_id = VolumeId(1000);
        superblock
    }
}

/// Encodes with many seeds; decodes; flips single bits and wants them refused; overwrites more and wants no panic.
fn check<T: PartialEq + std::fmt::Debug>(
    seeds: u64,
    make: impl Fn(&mut Random) -> (T, Vec<u8>),
    decode: impl Fn(&[u8]) -> Result<T, DecodeError>,
) {
    for seed in 0..seeds {
        let mut random = Random(seed);
        let (value, bytes) = make(&mut random);
        assert_eq!(decode(&bytes).as_ref(), Ok(&value), "seed {seed}");
        for _ in 0..20 {
            let mut changed = bytes.clone();
            let bit = random.below(bytes.len() as u64 * 8) as usize;
            changed[bit / 8] ^= 1 << (bit % 8);
            // Zeroes behind the end of what is stored may be anything.
            assert!(decode(&changed).map_or(true, |decoded| decoded == value), "seed {seed}, bit {bit}");
            let length = random.below(bytes.len() as u64 + 1) as usize;
            let cut = decode(&bytes[..length]);
            assert!(cut.map_or(true, |decoded| decoded == value), "seed {seed}, cut to {length}");
            for _ in 0..random.below(200) {
                changed[random.below(bytes.len() as u64) as usize] = random.next() as u8;
            }
            assert!(decode(&changed).map_or(true, |decoded| decoded == value), "seed {seed}: garbage accepted");
        }
    }
}

/// The decoder behind the checksum: bytes that nobody wrote, with a checksum that matches.
fn check_with_matching_checksums(seeds: u64, make: impl Fn(&mut Random) -> Vec<u8>, covered: usize, decode: impl Fn(&[u8])) {
    for seed in 0..seeds {
        let mut random = Random(seed);
        let mut bytes = make(&mut random);
        let covered = covered.min(bytes.len());
        for _ in 0..1 + random.below(6) {
            let at = 12 + random.below(covered as u64 - 12) as usize;
            bytes[at] = if random.below(3) == 0 { 0xff } else { random.next() as u8 };
        }
        let crc = format::checksum::crc32c(&bytes[12..covered]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        decode(&bytes);
    }
}

fn encoded_group(random: &mut Random) -> ((GroupHead, Vec<Record>), Vec<u8>) {
    let (head, records) = random.group();
    let mut page = [0; 4096];
    let packed: Vec<u8> = GroupHead::packed_in_header(&records).map(|_| random.below(256) as u8).collect();
    head.encode(&records, &packed, &mut page);
    ((head, records), page.to_vec())
}

fn decoded_group(bytes: &[u8]) -> Result<(GroupHead, Vec<Record>), DecodeError> {
    bytes.try_into().map_or(Err(DecodeError::Magic), GroupHead::decode)
}

#[test]
fn groups() {
    check(200, encoded_group, decoded_group);
    check_with_matching_checksums(
        3000,
        |random| encoded_group(random).1,
        4096,
        |bytes| {
            if let Ok((head, records)) = decoded_group(bytes) {
                // What is accepted, the encoder can write: to the same bytes.
                let mut page = [0; 4096];
                head.encode(&records, &bytes[GroupHead::packed_in_header(&records)], &mut page);
                assert_eq!(page.as_slice(), bytes);
            }
        },
    );
}

/// Every value in every byte of a record: refused, or another record that is written as just these bytes.
#[test]
fn records() {
    for seed in 0..300 {
        let mut random = Random(seed);
        let mut record = [random.record()];
        GroupHead::lay_out(random.below(2000) as u32, &mut record);
        let mut bytes = [0; RECORD_BYTES];
        record[0].encode(&mut bytes);
        assert_eq!(Record::decode(&bytes, FORMAT_VERSION), Ok(record[0]), "seed {seed}");
        for at in 0..RECORD_BYTES {
            for value in 0..=255 {
                let mut changed = bytes;
                changed[at] = value;
                if let Ok(other) = Record::decode(&changed, FORMAT_VERSION) {
                    let mut again = [0; RECORD_BYTES];
                    other.encode(&mut again);
                    assert_eq!(again, changed, "seed {seed}, byte {at}: {other:?}");
                }
            }
        }
    }
}

/// Each rule of packed records by itself.
#[test]
fn impossible_packed_records_are_refused() {
    let base = Packed { encoding: Encoding::Lz4, place: 300, bytes: 100, object: 7 << 32 | 9, vital: true };
    let record = |kind, packed| Record { kind, volume: VolumeId(0), block: 0, mask: 0xff, checksum: 5, slot_page: 0, packed: Some(packed) };
    let bytes_of = |record: Record| {
        let mut bytes = [0; RECORD_BYTES];
        record.encode(&mut bytes);
        bytes
    };
    let check = |record: Record, at: usize, value: &[u8], field| {
        let mut bytes = bytes_of(record);
        assert_eq!(Record::decode(&bytes, FORMAT_VERSION), Ok(record));
        bytes[at..at + value.len()].copy_from_slice(value);
        assert_eq!(Record::decode(&bytes, FORMAT_VERSION), Err(DecodeError::Field { field }), "{value:?} at {at} of {record:?}");
    };
    let object = record(RecordKind::Base, base);
    check(object, 0, &[3], "record kind");
    check(object, 0, &[5], "record kind");
    check(object, 0, &[7], "record kind");
    check(object, 1, &[0x7f], "record mask");
    check(object, 2, &[0], "record encoding");
    check(object, 2, &[10], "record encoding");
    check(object, 2, &[Encoding::Lost as u8], "record kind");
    check(object, 2, &[0x80], "record encoding");
    check(object, 2, &[Encoding::Diff as u8], "record kind");
    check(object, 4, &[1], "record kind");
    check(object, 8, &[1], "record kind");
    check(object, 20, &[0; 4], "record place");
    check(object, 24, &[4, 0], "record length");
    check(object, 24, &[0, 16], "record length");
    check(object, 26, &[1], "record length");
    let data = Record { volume: VolumeId(1), ..record(RecordKind::DataClean, Packed { encoding: Encoding::Diff, vital: false, ..base }) };
    check(data, 2, &[Encoding::Diff as u8 | 0x80], "record encoding");
    check(data, 2, &[Encoding::Duplicate as u8], "record length");
    check(data, 2, &[Encoding::Zero as u8], "record object");
    check(data, 15, &[1], "record block");
    let zero = Record { packed: Some(Packed { encoding: Encoding::Zero, place: 0, bytes: 0, object: 0, vital: false }), ..data };
    check(zero, 2, &[Encoding::Duplicate as u8], "record object");
    check(zero, 3, &[1], "record object");
    check(zero, 20, &[0, 1, 0, 0], "record place");
    // What is lost is nothing else, and nothing else is lost without content.
    check(zero, 0, &[5], "record kind");
    check(zero, 2, &[Encoding::Lost as u8], "record kind");
    let lost = Packed { encoding: Encoding::Lost, place: 0, bytes: 0, object: 0, vital: false };
    let lost = Record { kind: RecordKind::DataLost, packed: Some(lost), ..data };
    check(lost, 0, &[1], "record kind");
    check(lost, 0, &[2], "record kind");
    check(lost, 2, &[Encoding::Zero as u8], "record kind");
    check(lost, 3, &[1], "record object");
    check(lost, 24, &[5, 0], "record length");
    let raw = Packed { encoding: Encoding::Raw, place: 512, bytes: 4096, ..base };
    let raw = Record { slot_page: 2, ..record(RecordKind::DataDirty, raw) };
    check(raw, 20, &[16], "record place");
    check(raw, 20, &[0; 4], "record place");
    check(raw, 24, &[0xff, 0x0f], "record length");
    // A base is never plain; an object's number never stands in a plain record.
    let plain = Record { kind: RecordKind::DataClean, slot_page: 1, packed: None, ..data };
    check(plain, 0, &[6], "record kind");
    check(plain, 3, &[1], "record encoding");
    let note = RecordKind::CleanNote { of_seq: 1, of_ordinal: 3 };
    check(Record { kind: note, mask: 0, checksum: 0, slot_page: 0, ..plain }, 20, &[1], "record place");
}

fn footers_with(layout: Layout) {
    let make = |random: &mut Random| {
        let (head, records) = random.footer(&layout);
        let bytes = head.encode(&layout, &records);
        assert_eq!(bytes.len(), footer_pages_for(records.len() as u32) as usize * 4096);
        (Footer { head, records, marked_in_session: 0 }, bytes)
    };
    // Overflow pages stand first.
    let overflow_bytes = |bytes: usize| bytes.saturating_sub(layout.footer_pages() as usize * 4096).next_multiple_of(4096).min(bytes);
    let decode = |bytes: &[u8]| {
        let (overflow, reserved) = bytes.split_at(overflow_bytes(bytes.len()));
        Footer::decode(reserved, overflow)
    };
    check(100, make, decode);
    let make_head_first = |random: &mut Random| {
        let mut bytes = make(random).1;
        let overflow_bytes = overflow_bytes(bytes.len());
        bytes.rotate_left(overflow_bytes);
        bytes
    };
    check_with_matching_checksums(2000, make_head_first, 4096, |bytes| {
        let (reserved, overflow) = bytes.split_at(bytes.len() - overflow_bytes(bytes.len()));
        let Ok(footer) = Footer::decode(reserved, overflow) else { return };
        if footer.head.used_pages <= layout.group_pages_with(footer.records.len() as u32) {
            let mut encoded = footer.head.encode_marked(&layout, &footer.records, footer.marked_in_session);
            let overflow_bytes = overflow_bytes(encoded.len());
            encoded.rotate_left(overflow_bytes);
            assert_eq!(encoded, bytes[..encoded.len()]);
        }
    });
}

#[test]
fn footers() {
    footers_with(Layout::plan(1 << 30, 1, 2 << 20).expect("fits"));
}

#[test]
fn footers_that_overflow() {
    footers_with(Layout::plan(1 << 30, 1, 64 << 10).expect("fits"));
}

#[test]
fn superblocks() {
    let make = |random: &mut Random| {
        let superblock = random.superblock();
        let bytes = superblock.encode();
        let first_page = bytes.first_chunk().expect("a page");
        assert_eq!(Superblock::stored_bytes(first_page), Ok(bytes.len()));
        (superblock, bytes)
    };
    check(100, make, Superblock::decode);
    for seed in 0..3000 {
        let mut random = Random(seed);
        let mut bytes = random.superblock().encode();
        let length = u32::from_le_bytes(bytes[16..20].try_into().expect("four bytes")) as usize;
        for _ in 0..1 + random.below(4) {
            let at = 20 + random.below(length as u64 - 20) as usize;
            bytes[at] = random.next() as u8;
        }
        let crc = format::checksum::crc32c(&bytes[12..length]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        if let Ok(superblock) = Superblock::decode(&bytes) {
            assert_eq!(Superblock::decode(&superblock.encode()), Ok(superblock), "seed {seed}");
        }
    }
}

#[test]
fn checkpoints() {
    let make_head = |random: &mut Random| {
        let head = CheckpointHead {
            uuid: random.uuid(),
            session: random.next(),
            generation: random.next(),
            log_ends: (0..random.below(257))
                .map(|_| LogEnd { next_seq: random.next(), next_group: random.next(), tail_seq: random.next() })
                .collect(),
            volumes: (0..random.below(1025)).map(|_| VolumeId(random.next() as u32)).collect(),
        };
        let bytes = head.encode();
        (head, bytes)
    };
    check(60, make_head, CheckpointHead::decode);
    check_with_matching_checksums(500, |random| make_head(random).1, 16384, |bytes| drop(CheckpointHead::decode(bytes)));
    let make_chunk = |random: &mut Random| {
        let entries: Vec<Option<CheckpointEntry>> = (0..random.below(2000))
            .map(|_| {
                (random.below(4) > 0).then(|| CheckpointEntry {
                    volume: random.below(1024) as u16,
                    block: random.below(VOLUME_BLOCKS_MAX),
                    mask: 1 + random.below(255) as u8,
                    dirty: random.below(2) == 0,
                    heat: random.below(1024) as u16,
                    checksum: random.next() as u32,
                })
            })
            .collect();
        let head = ChunkHead {
            uuid: random.uuid(),
            generation: random.next(),
            shard: ShardIndex(random.next() as u16),
            first_slot: random.next() as u32,
            entries: entries.len() as u32,
        };
        let encoded: Vec<u8> = entries.iter().flat_map(|entry| CheckpointEntry::encode(*entry)).collect();
        let bytes = head.encode(&encoded);
        ((head, entries), bytes)
    };
    let decode = |bytes: &[u8]| {
        let (head, entries) = ChunkHead::decode(bytes)?;
        Ok((head, entries.collect()))
    };
    check(60, make_chunk, decode);
    // An entry has no checksum of its own: any twelve bytes give some entry or none.
    for seed in 0..1000 {
        let mut random = Random(seed);
        let bytes: [u8; ENTRY_BYTES] = core::array::from_fn(|_| random.next() as u8);
        if let Some(entry) = CheckpointEntry::decode(&bytes, FORMAT_VERSION) {
            assert!(entry.block < VOLUME_BLOCKS_MAX && entry.volume < 1024);
        }
    }
}

#[test]
fn newer_versions_are_told_from_damage() {
    let mut random = Random(1);
    let (_, mut bytes) = encoded_group(&mut random);
    bytes[12] = FORMAT_VERSION as u8 + 1;
    assert_eq!(decoded_group(&bytes), Err(DecodeError::Checksum));
    let crc = format::checksum::crc32c(&bytes[12..]);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(decoded_group(&bytes), Err(DecodeError::Version { found: FORMAT_VERSION + 1 }));
    bytes[0] = b'X';
    assert_eq!(decoded_group(&bytes), Err(DecodeError::Magic));
}

/// Records of the same content differ in their addresses and in the checksums that cover these. Both stand under the checksum of
/// their structure, which must tell them apart: a torn write leaves sectors, or pages, of what stood there before.
#[test]
fn parts_of_an_older_structure_of_the_same_content_are_refused() {
    let zeroes = |first: u64, count: u64| -> Vec<Record> {
        let packed = Packed { encoding: Encoding::Zero, place: 0, bytes: 0, object: 0, vital: false };
        let one = |block| Record {
            kind: RecordKind::DataClean,
            volume: VolumeId(1),
            block,
            mask: 0xff,
            checksum: payload_checksum(VolumeId(1), block, &[0; 4096]),
            slot_page: 0,
            packed: Some(packed),
        };
        (first..first + count).map(one).collect()
    };
    let group = |first| {
        let (uuid, shard) = ([1; 16], ShardIndex(0));
        let head = GroupHead { uuid, session: 1, shard, segment_seq: 5, group: 9, tail_seq: 2, durable_group: 8, page: 0 };
        let mut page = [0; 4096];
        head.encode(&zeroes(first, 120), &[], &mut page);
        page
    };
    let (new, old) = (group(1000), group(5000));
    for sector in 1..8 {
        let mut torn = new;
        torn[sector * 512..][..512].copy_from_slice(&old[sector * 512..][..512]);
        assert_eq!(GroupHead::decode(&torn), Err(DecodeError::Checksum), "sector {sector} of a group");
    }
    let layout = Layout::plan(64 << 20, 1, 1 << 20).expect("a pool");
    let footer = |first| {
        let head = FooterHead {
            uuid: [1; 16],
            session: 1,
            shard: ShardIndex(0),
            segment_seq: 5,
            first_group: 9,
            last_group: 12,
            tail_seq: 2,
            durable_group: 12,
            resume_seq: 0,
            resume_group: 0,
            used_pages: 4,
        };
        head.encode(&layout, &zeroes(first, 248))
    };
    let (new, old) = (footer(1000), footer(5000));
    assert_eq!(new.len(), 2 * 4096);
    assert!(Footer::decode(&new, &[]).is_ok());
    let torn = [&new[..4096], &old[4096..]].concat();
    assert_eq!(Footer::decode(&torn, &[]), Err(DecodeError::Checksum), "the second page of a footer");
    let chunk = |first: u64| {
        let entry = |block| CheckpointEntry {
            volume: 0,
            block,
            mask: 0xff,
            dirty: false,
            heat: 3,
            checksum: payload_checksum(VolumeId(1), block, &[0; 4096]),
        };
        let entries: Vec<u8> = (first..first + 1000).flat_map(|block| CheckpointEntry::encode(Some(entry(block)))).collect();
        let head = ChunkHead { uuid: [1; 16], generation: 7, shard: ShardIndex(0), first_slot: 0, entries: 1000 };
        head.encode(&entries)
    };
    let (new, old) = (chunk(1000), chunk(5000));
    let torn = [&new[..8192], &old[8192..]].concat();
    assert_ne!(torn, new);
    assert_eq!(ChunkHead::decode(&torn).map(drop), Err(DecodeError::Checksum), "the third page of a chunk");
}
