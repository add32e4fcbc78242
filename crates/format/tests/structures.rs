//! Promise: what is encoded is decoded to the same; what was changed is refused; no bytes make a decoder panic.

use format::checkpoint::{CheckpointEntry, CheckpointHead, ChunkHead, ENTRY_BYTES, LogEnd};
use format::footer::footer_pages_for;
use format::{
    COUNT_MAX, DecodeError, Footer, FooterHead, GROUP_RECORDS_MAX, GroupHead, Layout, LogStart, Record, RecordKind, Superblock,
    VolumeRecord,
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

    fn record(&mut self, slot_page: &mut u32) -> Record {
        let (volume, block) = (VolumeId(self.next() as u32), self.below(VOLUME_BLOCKS_MAX));
        let kind = match self.below(5) {
            0 => RecordKind::DataClean,
            1 => RecordKind::DataDirty,
            2 => RecordKind::Invalidate,
            3 => RecordKind::DataLost,
            _ => RecordKind::CleanNote { of_seq: self.next(), of_page: self.below(2048) as u32 },
        };
        if !kind.has_payload() {
            return Record { kind, volume, block, mask: 0, checksum: 0, slot_page: 0 };
        }
        *slot_page += 1;
        Record { kind, volume, block, mask: 1 + self.below(255) as u8, checksum: self.next() as u32, slot_page: *slot_page }
    }

    fn group(&mut self) -> (GroupHead, Vec<Record>) {
        let page = self.below(1800) as u32;
        let mut slot_page = page;
        let records = (0..1 + self.below(GROUP_RECORDS_MAX as u64)).map(|_| self.record(&mut slot_page)).collect();
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

    fn footer(&mut self) -> (FooterHead, Vec<Record>) {
        let (group, _) = self.group();
        let mut slot_page = 0;
        let records: Vec<Record> = (0..self.below(1017)).map(|_| self.record(&mut slot_page)).collect();
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
            used_pages: self.next() as u32,
        };
        (head, records)
    }

    fn superblock(&mut self) -> Superblock {
        let layout = Layout::plan((1 << 28) + self.below(1 << 40), 1 + self.below(64) as u16, 64 << 10).expect("fits");
        let mut superblock = Superblock::new(self.uuid(), layout);
        superblock.generation = 1 + self.below(1 << 60);
        superblock.session = self.below(COUNT_MAX);
        superblock.clean = self.below(2) == 0;
        for start in &mut superblock.log_starts {
            let first_seq = 100 + self.below(1 << 50);
            *start = LogStart { first_seq, first_group: 1 + self.below(1 << 50), tail_seq: first_seq - self.below(8) };
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
    head.encode(&records, &mut page);
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
                head.encode(&records, &mut page);
                assert_eq!(page.as_slice(), bytes);
            }
        },
    );
}

#[test]
fn footers() {
    let make = |random: &mut Random| {
        let (head, records) = random.footer();
        let bytes = head.encode(&records);
        assert_eq!(bytes.len(), footer_pages_for(records.len() as u32) as usize * 4096);
        (Footer { head, records, marked_in_session: 0 }, bytes)
    };
    check(100, make, Footer::decode);
    check_with_matching_checksums(
        3000,
        |random| make(random).1,
        4096,
        |bytes| {
            if let Ok(footer) = Footer::decode(bytes) {
                let encoded = footer.head.encode_marked(&footer.records, footer.marked_in_session);
                assert_eq!(encoded, bytes[..encoded.len()]);
            }
        },
    );
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
        Ok((head, entries.iter().map(CheckpointEntry::decode).collect()))
    };
    check(60, make_chunk, decode);
    // An entry has no checksum of its own: any twelve bytes give some entry or none.
    for seed in 0..1000 {
        let mut random = Random(seed);
        let bytes: [u8; ENTRY_BYTES] = core::array::from_fn(|_| random.next() as u8);
        if let Some(entry) = CheckpointEntry::decode(&bytes) {
            assert!(entry.block < VOLUME_BLOCKS_MAX && entry.volume < 1024);
        }
    }
}

#[test]
fn newer_versions_are_told_from_damage() {
    let mut random = Random(1);
    let (_, mut bytes) = encoded_group(&mut random);
    bytes[12] = 2;
    assert_eq!(decoded_group(&bytes), Err(DecodeError::Checksum));
    let crc = format::checksum::crc32c(&bytes[12..]);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(decoded_group(&bytes), Err(DecodeError::Version { found: 2 }));
    bytes[0] = b'X';
    assert_eq!(decoded_group(&bytes), Err(DecodeError::Magic));
}
