//! Promise: packed records of a format version stay what they are. `golden/vN-packed.pages` is a shard's log of version N, of two segments with all
//! encodings and with a footer that overflows, from version 2 on with a group whose payloads go on behind its header page; every release writes the
//! same bytes as that of its version for the same content, and reads all of them to the same content.

use crate::image;
use crate::image::{Image, pages};
use format::{
    Encoding, Footer, FooterHead, GroupHead, Layout, LayoutError, Packed, PayloadOwner, Record, RecordKind, block_checksum, open_packed,
    seal_packed,
};
use types::{ShardIndex, VolumeId};

const GOLDEN: &[u8] = include_bytes!("../golden/v3-packed.pages");
const SECOND: &[u8] = include_bytes!("../golden/v2-packed.pages");
const FIRST: &[u8] = include_bytes!("../golden/v1-packed.pages");
const UUID: [u8; 16] = *b"golden pool v1 \x02";
const SHARD: ShardIndex = ShardIndex(0);
const LAST_OBJECT: u64 = (1 << 40) - 1;
const PACKED_ORDINAL: u32 = format::packed::PACKED_ORDINAL;

fn layout() -> Layout {
    let Err(LayoutError::TooSmall { needed_bytes, .. }) = Layout::plan(0, 1, 64 << 10) else { panic!("no pool has no bytes") };
    Layout::plan(needed_bytes, 1, 64 << 10).expect("the smallest pool")
}

fn content(volume: u32, block: u64) -> [u8; 4096] {
    let mut content = [0; 4096];
    content[..4].copy_from_slice(&volume.to_le_bytes());
    content[4..12].copy_from_slice(&block.to_le_bytes());
    content
}

/// What stands for the encoded bytes: nothing here decodes them.
fn encoded(packed: &Packed) -> Vec<u8> {
    (0..packed.bytes - 4).map(|nth| nth as u8 ^ packed.object as u8 | 1).collect()
}

fn plain(kind: RecordKind, volume: u32, block: u64) -> Record {
    let data = kind.is_data();
    let checksum = if data { block_checksum(None, 0, VolumeId(volume), block, &content(volume, block)) } else { 0 };
    Record { kind, volume: VolumeId(volume), block, mask: if data { 0x7f } else { 0 }, checksum, slot_page: 0, packed: None }
}

fn packed(kind: RecordKind, address: (u32, u64), encoding: Encoding, object: u64, bytes: u16) -> Record {
    let (volume, block) = (VolumeId(address.0), address.1);
    let checksum = block_checksum(Some(encoding), object, volume, block, &content(address.0, address.1));
    let packed = Packed { encoding, place: 0, bytes, object, vital: false };
    Record { kind, volume, block, mask: 0xff, checksum, slot_page: 0, packed: Some(packed) }
}

fn vital(record: Record) -> Record {
    Record { packed: record.packed.map(|packed| Packed { vital: true, ..packed }), ..record }
}

/// Segment, number, page of the header, records.
type Group = (u64, u64, u32, Vec<Record>);

fn groups(version: u32) -> Vec<Group> {
    use Encoding::{Diff, Duplicate, Lost, Lz4, LzDelta, Raw, Zero, Zstd, ZstdDelta};
    use RecordKind::{Base, CleanNote, DataClean, DataDirty, DataLost, Invalidate};
    let first = vec![
        packed(DataDirty, (1, 7), Raw, 1, 4096),
        vital(packed(DataClean, (2, (1 << 34) - 1), Lz4, 2, 100)),
        packed(DataClean, (2, 5), Zero, 0, 0),
        plain(DataClean, 3, 1),
        packed(DataDirty, (1, 8), Duplicate, 1, 0),
        packed(DataDirty, (1, 9), Diff, 2, 5),
        packed(DataClean, (1, 10), LzDelta, 2, 16),
        packed(DataDirty, (1, 11), ZstdDelta, 2, 17),
        packed(DataClean, (4, 0), Zstd, LAST_OBJECT, 4095),
        vital(packed(Base, (0, 0), Raw, 3, 4096)),
        packed(Base, (0, 0), Zstd, 0x12_3456_789a, 32),
    ];
    let second = vec![
        plain(CleanNote { of_seq: 1, of_ordinal: PACKED_ORDINAL | 4 }, 1, 9),
        plain(CleanNote { of_seq: 1, of_ordinal: PACKED_ORDINAL | 0x7fff_ffff }, 1, 7),
        plain(CleanNote { of_seq: 1, of_ordinal: 2 }, 3, 1),
        plain(Invalidate, 2, 5),
        packed(DataDirty, (2, 5), Duplicate, LAST_OBJECT, 0),
        plain(DataLost, 2, 6),
    ];
    let many = (0..120).map(|block| packed(DataClean, (1, 100 + block), if block % 2 == 0 { Zero } else { Duplicate }, block % 2, 0));
    let more = (0..120).map(|block| packed(DataDirty, (2, 100 + block), Lz4, 4 + block, 6 + block as u16));
    let more: Vec<Record> = more.collect();
    let mut groups = vec![(1, 1, 0, first), (1, 2, 6, second), (2, 3, 0, many.collect()), (2, 4, 1, more.clone()), (2, 5, 5, more)];
    if version > 1 {
        let across = vec![
            packed(DataDirty, (1, 300), Lz4, 200, 3000),
            plain(Invalidate, 2, 9),
            packed(DataClean, (1, 301), Zstd, 201, 4000),
            packed(DataDirty, (1, 302), Duplicate, 200, 0),
            packed(DataClean, (1, 303), Diff, 201, 17),
            packed(DataLost, (1, 304), Lost, 0, 0),
        ];
        groups.push((2, 6, 9, across));
    }
    groups.iter_mut().for_each(|(_, _, page, records)| GroupHead::lay_out(*page, records));
    groups
}

fn group_head(seq: u64, group: u64, page: u32) -> GroupHead {
    GroupHead { uuid: UUID, session: 1, shard: SHARD, segment_seq: seq, group, tail_seq: 1, durable_group: group - 1, page }
}

fn footer_head(version: u32, seq: u64) -> FooterHead {
    let (first_group, last_group, used_pages) = match (version, seq) {
        (_, 1) => (1, 2, 8),
        (1, _) => (3, 5, 9),
        _ => (3, 6, 11),
    };
    FooterHead {
        uuid: UUID,
        session: 1,
        shard: SHARD,
        segment_seq: seq,
        first_group,
        last_group,
        tail_seq: 1,
        durable_group: last_group,
        resume_seq: 0,
        resume_group: 0,
        used_pages,
    }
}

fn records_of(version: u32, seq: u64) -> Vec<Record> {
    groups(version).into_iter().filter(|group| group.0 == seq).flat_map(|group| group.3).collect()
}

fn written() -> Image {
    let version = format::FORMAT_VERSION;
    let (mut image, layout) = (Image::new(), layout());
    for (seq, group, page, records) in groups(version) {
        let mut bytes = vec![0; GroupHead::pages(&records) as usize * 4096];
        let mut in_header = vec![0; 4096];
        for record in &records {
            if record.has_page_payload() {
                let at = (record.slot_page - page) as usize * 4096;
                bytes[at..at + 4096].copy_from_slice(&content(record.volume.0, record.block));
            }
            if let Some(packed) = record.packed.filter(|packed| packed.encoding.has_packed_payload()) {
                let mut payload = Vec::new();
                seal_packed(record.payload_owner(), record.checksum, &encoded(&packed), &mut payload);
                let at = packed.place as usize * 16 - page as usize * 4096;
                bytes[at..at + payload.len()].copy_from_slice(&payload);
            }
        }
        in_header.copy_from_slice(&bytes[..4096]);
        let in_header = &in_header[GroupHead::packed_in_header(&records)];
        group_head(seq, group, page).encode(&records, in_header, bytes.first_chunk_mut().expect("a page"));
        image::put(&mut image, layout.page_offset(SHARD, layout.physical(seq), page), &bytes);
    }
    for seq in [1, 2] {
        let records = records_of(version, seq);
        let offset_bytes = layout.footer_write_offset(SHARD, layout.physical(seq), records.len() as u32);
        image::put(&mut image, offset_bytes, &footer_head(version, seq).encode(&layout, &records));
    }
    image
}

#[test]
fn the_same_content_is_written_as_the_same_bytes() {
    image::compare(written(), GOLDEN, "v3-packed");
}

#[test]
fn golden_images_are_read() {
    read(3, GOLDEN);
    read(2, SECOND);
    read(1, FIRST);
}

fn read(version: u32, golden: &[u8]) {
    let (image, layout) = (image::read(golden), layout());
    let mut payloads = 0;
    for (seq, group, page, records) in groups(version) {
        let segment = pages(&image, layout.segment_offset(SHARD, layout.physical(seq)), 64 << 10);
        let header = segment[page as usize * 4096..].first_chunk().expect("a page");
        assert_eq!(GroupHead::decode(header), Ok((group_head(seq, group, page), records.clone())));
        for record in &records {
            let Some(packed) = record.packed.filter(|packed| packed.encoding.has_packed_payload()) else { continue };
            let payload = &segment[packed.place as usize * 16..][..usize::from(packed.bytes)];
            let owner = match packed.encoding {
                Encoding::Lz4 | Encoding::Zstd => PayloadOwner::Object(packed.object),
                _ => PayloadOwner::Block(record.volume, record.block),
            };
            assert_eq!(open_packed(owner, record.checksum, payload), Some(encoded(&packed).as_slice()), "{record:?}");
            payloads += 1;
        }
    }
    assert_eq!(payloads, 6 + 240 + if version == 1 { 0 } else { 3 });
    for (seq, overflow_pages) in [(1, 0), (2, 2)] {
        let physical = layout.physical(seq);
        let records = records_of(version, seq);
        assert_eq!(layout.footer_overflow_pages(records.len() as u32), overflow_pages);
        let reserved = pages(&image, layout.footer_offset(SHARD, physical), 4096);
        let offset_bytes = layout.footer_write_offset(SHARD, physical, records.len() as u32);
        let overflow = pages(&image, offset_bytes, overflow_pages as usize * 4096);
        assert_eq!(FooterHead::decode(&reserved), Ok((footer_head(version, seq), records.len() as u32)));
        let footer = Footer::decode(&reserved, &overflow).expect("a footer");
        assert_eq!((footer.head, footer.records), (footer_head(version, seq), records));
    }
}

/// Where a group had no page but more packed payloads than its header page held, version 1 began them with the next page.
#[test]
fn payloads_may_begin_behind_the_header_page_as_version_1_had_it() {
    use RecordKind::DataDirty;
    let mut records = vec![packed(DataDirty, (1, 300), Encoding::Lz4, 200, 3000), packed(DataDirty, (1, 301), Encoding::Zstd, 201, 4000)];
    GroupHead::lay_out(5, &mut records);
    let place = |record: &Record| record.packed.expect("packed").place;
    assert_eq!((place(&records[0]), GroupHead::pages(&records)), (5 * 256 + 16 + 2 * 2, 2), "they begin behind the table");
    for (record, place) in records.iter_mut().zip([6 * 256, 6 * 256 + 188]) {
        record.packed = record.packed.map(|packed| Packed { place, ..packed });
    }
    assert_eq!(GroupHead::pages(&records), 3);
    assert!(GroupHead::packed_in_header(&records).is_empty());
    let (head, mut page) = (group_head(1, 1, 5), [0; 4096]);
    head.encode(&records, &[], &mut page);
    page[12] = 1;
    // Version 1 stored checksums as they are.
    for (record, place) in records.iter().zip(page[256..].chunks_exact_mut(32)) {
        place[16..20].copy_from_slice(&record.checksum.to_le_bytes());
    }
    let crc = format::checksum::crc32c(&page[12..]);
    page[8..12].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(GroupHead::decode(&page), Ok((head, records.clone())));
    // In the header page, but in front of a page payload that they would run into: nobody writes that.
    let mut overlapping = vec![packed(DataDirty, (1, 302), Encoding::Raw, 202, 4096)];
    overlapping.extend(records);
    GroupHead::lay_out(5, &mut overlapping);
    for (record, place) in overlapping[1..].iter_mut().zip([5 * 256 + 16 + 2 * 3, 5 * 256 + 16 + 2 * 3 + 188]) {
        record.packed = record.packed.map(|packed| Packed { place, ..packed });
    }
    let mut page = [0; 4096];
    let mut table = [0; 3 * 32];
    overlapping.iter().zip(table.chunks_exact_mut(32)).for_each(|(record, bytes)| record.encode(bytes));
    let fine = &mut overlapping.clone();
    GroupHead::lay_out(5, fine);
    head.encode(fine, &[], &mut page);
    page[256..256 + 96].copy_from_slice(&table);
    let crc = format::checksum::crc32c(&page[12..]);
    page[8..12].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(GroupHead::decode(&page), Err(format::DecodeError::Field { field: "record place" }));
}
