//! Promise: a format version stays what it is. `golden/vN.pages` is a pool written in version N; every release writes the same bytes as the one of its
//! version for the same content, and reads all of them to the same content.
//! They were written by this test, see `image`, and are never written again. From 1 to 2 the number alone changed here: see `golden_packed.rs`.
//! From 2 to 3 the checksums of payloads are stored masked.

use crate::image;
use crate::image::{Image, pages};
use format::checkpoint::{CheckpointEntry, CheckpointHead, ChunkHead, LogEnd};
use format::layout::{CHECKPOINT_AT_BYTES, SuperblockSlot};
use format::{
    Footer, FooterHead, GroupHead, Layout, LayoutError, LogStart, Record, RecordKind, Superblock, VolumeRecord, payload_checksum,
};
use types::{Mode, ShardIndex, VolumeId};

const GOLDEN: &[u8] = include_bytes!("../golden/v3.pages");
const OLDER: [&[u8]; 2] = [include_bytes!("../golden/v1.pages"), include_bytes!("../golden/v2.pages")];
const UUID: [u8; 16] = *b"golden pool v1 \x01";
const SHARD: ShardIndex = ShardIndex(0);

fn layout() -> Layout {
    let Err(LayoutError::TooSmall { needed_bytes, .. }) = Layout::plan(0, 1, 64 << 10) else { panic!("no pool has no bytes") };
    Layout::plan(needed_bytes, 1, 64 << 10).expect("the smallest pool")
}

fn superblock() -> Superblock {
    let volume = |id: u32, name: &str, mode, identity: &[u8]| VolumeRecord {
        id: VolumeId(id),
        uuid: [id as u8; 16],
        name: name.to_string(),
        size_bytes: u64::from(id) << 30,
        mode,
        may_have_dirty: mode == Mode::WriteBack,
        damaged: id == 4,
        backing_identity: identity.to_vec(),
    };
    Superblock {
        uuid: UUID,
        generation: 5,
        session: 2,
        clean: false,
        next_volume_id: VolumeId(9),
        layout: layout(),
        log_session: 0,
        epoch: 0,
        named_segments: layout().segments_per_shard,
        log_starts: vec![LogStart { first_seq: 2, first_group: 3, tail_seq: 1, ring_first: 0 }],
        volumes: vec![
            volume(1, "database", Mode::WriteBack, b"a disk"),
            volume(2, "Archiv für später", Mode::WriteThrough, &[0xff; 256]),
            volume(4, &"x".repeat(64), Mode::WriteAround, b""),
            volume(8, "watched", Mode::PassThrough, &[0]),
        ],
    }
}

fn payload(volume: u32, block: u64, version: u8) -> [u8; 4096] {
    let mut payload = [0; 4096];
    payload[..4].copy_from_slice(&volume.to_le_bytes());
    payload[4..12].copy_from_slice(&block.to_le_bytes());
    payload[12] = version;
    payload
}

/// Segment, number, page of the header, and records with the version of their payload.
type Group = (u64, u64, u32, Vec<(Record, u8)>);

fn groups() -> Vec<Group> {
    let data = |kind, volume: u32, block, mask, slot_page, version| {
        let checksum = payload_checksum(VolumeId(volume), block, &payload(volume, block, version));
        (Record { kind, volume: VolumeId(volume), block, mask, checksum, slot_page, packed: None }, version)
    };
    let note =
        |kind, volume: u32, block| (Record { kind, volume: VolumeId(volume), block, mask: 0, checksum: 0, slot_page: 0, packed: None }, 0);
    use RecordKind::{CleanNote, DataClean, DataDirty, Invalidate};
    vec![
        (1, 1, 0, vec![data(DataDirty, 1, 7, 0xff, 1, 1), data(DataClean, 2, (1 << 34) - 1, 0xff, 2, 1)]),
        (1, 2, 3, vec![data(DataDirty, 1, 8, 0x0f, 4, 1), data(DataClean, 2, 5, 0xff, 5, 1), data(DataClean, 3, 1, 0xff, 6, 1)]),
        (2, 3, 0, vec![note(CleanNote { of_seq: 1, of_ordinal: 1 }, 1, 7), note(Invalidate, 2, 5), data(DataDirty, 1, 9, 0xff, 1, 1)]),
        (2, 4, 2, vec![data(DataDirty, 1, 9, 0xff, 3, 2)]),
        (3, 5, 0, vec![data(DataDirty, 1, 10, 0x80, 1, 1), note(CleanNote { of_seq: 2, of_ordinal: 1 }, 1, 9)]),
        // Torn: its payload never arrived.
        (3, 6, 2, vec![data(DataDirty, 1, 7, 0xff, 3, 2)]),
    ]
}

fn group_head(seq: u64, group: u64, page: u32) -> GroupHead {
    GroupHead {
        uuid: UUID,
        session: if seq == 1 { 1 } else { 2 },
        shard: SHARD,
        segment_seq: seq,
        group,
        tail_seq: 1,
        durable_group: group.min(4) - 1,
        page,
    }
}

fn footer_head(seq: u64) -> FooterHead {
    FooterHead {
        uuid: UUID,
        session: seq,
        shard: SHARD,
        segment_seq: seq,
        first_group: 2 * seq - 1,
        last_group: 2 * seq,
        tail_seq: 1,
        durable_group: 2 * seq,
        resume_seq: 0,
        resume_group: 0,
        used_pages: if seq == 1 { 7 } else { 4 },
    }
}

fn checkpoint_head() -> CheckpointHead {
    CheckpointHead {
        uuid: UUID,
        session: 1,
        generation: 3,
        log_ends: vec![LogEnd { next_seq: 2, next_group: 3, tail_seq: 1 }],
        volumes: vec![VolumeId(2), VolumeId(1)],
    }
}

fn checkpoint_entries() -> Vec<Option<CheckpointEntry>> {
    let mut entries = vec![None; layout().slots_per_shard() as usize];
    entries[1] = Some(CheckpointEntry { volume: 1, block: 7, mask: 0xff, dirty: true, heat: 1023, checksum: 0x0102_0304 });
    entries[2] = Some(CheckpointEntry { volume: 0, block: (1 << 34) - 1, mask: 0x81, dirty: false, heat: 0, checksum: u32::MAX });
    entries
}

fn chunk_head() -> ChunkHead {
    ChunkHead { uuid: UUID, generation: 3, shard: SHARD, first_slot: 0, entries: layout().slots_per_shard() }
}

/// The pool as this release writes it.
fn written() -> Image {
    let mut image = Image::new();
    let layout = layout();
    let mut put = |offset_bytes: u64, bytes: &[u8]| image::put(&mut image, offset_bytes, bytes);
    for slot in SuperblockSlot::ALL {
        put(slot.offset_bytes(), &superblock().encode());
    }
    put(CHECKPOINT_AT_BYTES, &checkpoint_head().encode());
    let entries: Vec<u8> = checkpoint_entries().into_iter().flat_map(CheckpointEntry::encode).collect();
    put(layout.checkpoint_offset(SHARD), &chunk_head().encode(&entries));
    for (seq, group, page, records) in groups() {
        let physical = layout.physical(seq);
        let table: Vec<Record> = records.iter().map(|(record, _)| *record).collect();
        let mut header = [0; 4096];
        group_head(seq, group, page).encode(&table, &[], &mut header);
        put(layout.page_offset(SHARD, physical, page), &header);
        for (record, version) in records.iter().filter(|(record, _)| record.has_page_payload() && group != 6) {
            put(layout.page_offset(SHARD, physical, record.slot_page), &payload(record.volume.0, record.block, *version));
        }
    }
    for seq in [1, 2] {
        let records: Vec<Record> =
            groups().iter().filter(|group| group.0 == seq).flat_map(|group| group.3.iter().map(|one| one.0)).collect();
        put(layout.footer_offset(SHARD, layout.physical(seq)), &footer_head(seq).encode(&layout, &records));
    }
    image
}

#[test]
fn the_same_content_is_written_as_the_same_bytes() {
    image::compare(written(), GOLDEN, "v3");
}

#[test]
fn golden_images_are_read() {
    read(GOLDEN);
    OLDER.into_iter().for_each(read);
}

fn read(golden: &[u8]) {
    let (image, layout) = (image::read(golden), layout());
    for slot in SuperblockSlot::ALL {
        let bytes = pages(&image, slot.offset_bytes(), 4096);
        assert_eq!(Superblock::decode(&bytes), Ok(superblock()), "{slot:?}");
    }
    let bytes = pages(&image, CHECKPOINT_AT_BYTES, 16384);
    assert_eq!(CheckpointHead::decode(&bytes), Ok(checkpoint_head()));
    let bytes = pages(&image, layout.checkpoint_offset(SHARD), layout.checkpoint_bytes_per_shard() as usize);
    let (head, entries) = ChunkHead::decode(&bytes).expect("a chunk");
    assert_eq!(head, chunk_head());
    assert_eq!(entries.collect::<Vec<_>>(), checkpoint_entries());
    for (seq, group, page, records) in groups() {
        let bytes = pages(&image, layout.page_offset(SHARD, layout.physical(seq), page), 4096);
        let (head, table) = GroupHead::decode(bytes.as_slice().try_into().expect("a page")).expect("a header");
        assert_eq!(head, group_head(seq, group, page));
        assert_eq!(table, records.iter().map(|(record, _)| *record).collect::<Vec<_>>());
        for (record, _) in records.iter().filter(|(record, _)| record.has_page_payload() && group != 6) {
            let bytes = pages(&image, layout.page_offset(SHARD, layout.physical(seq), record.slot_page), 4096);
            let payload = bytes.as_slice().try_into().expect("a page");
            assert_eq!(payload_checksum(record.volume, record.block, payload), record.checksum);
        }
    }
    for seq in [1, 2] {
        let bytes = pages(&image, layout.footer_offset(SHARD, layout.physical(seq)), 4096);
        let footer = Footer::decode(&bytes, &[]).expect("a footer");
        assert_eq!(footer.head, footer_head(seq));
        assert_eq!(footer.records.len(), if seq == 1 { 5 } else { 4 });
    }
}
