//! Promise: format version 4 stays what it is. `golden/v4.pages` is a pool in slots of two shards, with every kind of statement, plain and packed
//! payloads, a ring that has gone round, and a last group whose payload never arrived; every release writes the same bytes for the same content.
//! The crate `engine` recovers it.

use crate::image::{self, Image, pages};
use format::layout::SuperblockSlot;
use format::slots::statement::Stored;
use format::slots::{RingHead, Set, Statement};
use format::{
    Encoding, Layout, LogStart, PayloadOwner, Superblock, VolumeRecord, block_checksum, object_checksum, payload_checksum, seal_packed,
};
use types::{Mode, ShardIndex, VolumeId};

const GOLDEN: &[u8] = include_bytes!("../golden/v4.pages");
const UUID: [u8; 16] = *b"golden pool v4 \x01";
const LOG_SESSION: u64 = 6;
/// Groups of shard 0 go round the end of its ring.
const FIRST_GROUP: u64 = 30;

fn layout() -> Layout {
    Layout::plan(4 << 20, 2, 64 << 10).expect("fits").with_packed_slots()
}

fn superblock() -> Superblock {
    let volume = |id: u32, name: &str, mode| VolumeRecord {
        id: VolumeId(id),
        uuid: [id as u8; 16],
        name: name.to_string(),
        size_bytes: u64::from(id) << 30,
        mode,
        may_have_dirty: mode == Mode::WriteBack,
        damaged: false,
        backing_identity: b"a disk".to_vec(),
    };
    let start = |first: u64| LogStart { first_seq: first, first_group: first + 2, tail_seq: first, ring_first: 0 };
    Superblock {
        generation: 9,
        session: 7,
        next_volume_id: VolumeId(5),
        log_session: LOG_SESSION,
        epoch: 3,
        log_starts: vec![start(FIRST_GROUP), start(1)],
        volumes: vec![volume(1, "database", Mode::WriteBack), volume(2, "Archiv für später", Mode::WriteThrough)],
        ..Superblock::new(UUID, layout())
    }
}

fn content(volume: u32, block: u64) -> [u8; 4096] {
    let mut content = [0; 4096];
    content[..4].copy_from_slice(&volume.to_le_bytes());
    content[4..12].copy_from_slice(&block.to_le_bytes());
    content
}

fn plain(volume: u32, block: u64, slot: u32) -> Set {
    Set {
        volume: VolumeId(volume),
        block,
        mask: u8::MAX,
        dirty: volume == 1,
        settled: false,
        lost: false,
        vital: false,
        checksum: payload_checksum(VolumeId(volume), block, &content(volume, block)),
        slot: first_slot() + slot,
        old: None,
        stored: None,
    }
}

fn packed(volume: u32, block: u64, (slot, unit): (u32, u8), encoding: Encoding, object: u64, bytes: u16) -> Set {
    let checksum = block_checksum(Some(encoding), object, VolumeId(volume), block, &content(volume, block));
    Set { checksum, mask: u8::MAX, stored: Some(Stored { encoding, object, bytes, unit }), ..plain(volume, block, slot) }
}

fn first_slot() -> u32 {
    layout().ring_pages
}

/// Shard, group, its tail, what is durable, and what it says. The payload of what the last one says is not there.
fn groups() -> Vec<(u16, u64, u64, u64, Vec<Statement>)> {
    use Encoding::{Diff, Duplicate, Lz4, Raw, Zero, Zstd};
    let set = Statement::Set;
    let settled = |set: Set| Statement::Set(Set { settled: true, ..set });
    let base = Set { volume: VolumeId(0), block: 0, dirty: false, vital: true, ..packed(1, 20, (4, 0), Zstd, 41, 700) };
    let base = Set { checksum: object_checksum(41, &content(1, 20)), ..base };
    let gone = |slot: u32, unit, checksum| Statement::Gone { slot: first_slot() + slot, unit, checksum };
    let home = |set: Set| Statement::Home { slot: set.slot, unit: set.stored.map(|stored| stored.unit), checksum: set.checksum };
    let shelf = first_slot() / 512;
    let mut of_shelf = [0; 8];
    let at = first_slot() % 512 + 9;
    of_shelf[at as usize / 64] |= 1 << (at % 64);
    vec![
        (0, FIRST_GROUP, FIRST_GROUP, 0, vec![settled(plain(2, 5, 0)), set(plain(1, 7, 1)), set(Set { mask: 0x0f, ..plain(1, 8, 2) })]),
        (
            0,
            FIRST_GROUP + 1,
            FIRST_GROUP,
            0,
            vec![
                set(base),
                set(packed(1, 21, (4, 44), Diff, 41, 120)),
                set(packed(1, 22, (4, 52), Duplicate, 41, 0)),
                set(packed(2, 23, (4, 56), Zero, 0, 0)),
                // It ends in the slot behind.
                set(packed(2, 24, (4, 60), Lz4, 42, 3500)),
                set(packed(2, 25, (6, 0), Raw, 43, 4096)),
            ],
        ),
        (
            0,
            FIRST_GROUP + 2,
            FIRST_GROUP,
            FIRST_GROUP + 1,
            vec![
                set(Set { old: Some(first_slot() + 1), ..plain(1, 7, 8) }),
                home(plain(1, 8, 2)),
                set(plain(2, 9, 9)),
                set(plain(2, 10, 10)),
                set(plain(1, 11, 11)),
            ],
        ),
        (
            0,
            FIRST_GROUP + 3,
            FIRST_GROUP,
            FIRST_GROUP + 2,
            vec![
                Statement::GoneOfShelf { shelf, slots: of_shelf },
                gone(10, None, plain(2, 10, 10).checksum),
                gone(4, Some(56), packed(2, 23, (4, 56), Zero, 0, 0).checksum),
                home(plain(1, 11, 11)),
                settled(plain(2, 5, 0)),
            ],
        ),
        // Torn: its payload never arrived.
        (0, FIRST_GROUP + 4, FIRST_GROUP, FIRST_GROUP + 3, vec![set(Set { old: Some(first_slot() + 8), ..plain(1, 7, 12) })]),
        (1, 1, 1, 0, vec![settled(plain(1, 1 << 33, 3))]),
        (1, 2, 1, 1, vec![set(plain(2, 300, 4))]),
    ]
}

fn payload_of(set: &Set) -> Option<Vec<u8>> {
    let content = content(set.volume.0, set.block);
    let Some(stored) = &set.stored else { return Some(content.to_vec()) };
    match stored.encoding {
        Encoding::Raw => Some(content.to_vec()),
        encoding if encoding.has_packed_payload() => {
            let owner = if encoding.is_full() { PayloadOwner::Object(stored.object) } else { PayloadOwner::Block(set.volume, set.block) };
            let encoded: Vec<u8> = (0..stored.bytes - 4).map(|nth| nth as u8 ^ stored.object as u8 | 1).collect();
            let mut sealed = Vec::new();
            seal_packed(owner, set.checksum, &encoded, &mut sealed);
            Some(sealed)
        }
        _ => None,
    }
}

fn offset_of(shard: u16, slot: u32) -> u64 {
    let of_segment = layout().pages_per_segment();
    layout().page_offset(ShardIndex(shard), slot / of_segment, slot % of_segment)
}

fn head_of(shard: u16, group: u64, tail: u64, durable: u64) -> RingHead {
    RingHead { uuid: UUID, session: LOG_SESSION, shard: ShardIndex(shard), group, tail, durable, epoch: 3 }
}

/// The pool as this release writes it.
fn written() -> Image {
    let mut image = Image::new();
    for slot in SuperblockSlot::ALL {
        image::put(&mut image, slot.offset_bytes(), &superblock().encode());
    }
    let torn = groups().iter().rfind(|group| group.0 == 0).map(|group| group.1);
    for (shard, group, tail, durable, said) in groups() {
        let mut page = [0; 4096];
        head_of(shard, group, tail, durable).encode(&said, &mut page);
        image::put(&mut image, offset_of(shard, (group % u64::from(layout().ring_pages)) as u32), &page);
        let sets = said.iter().filter_map(|said| if let Statement::Set(set) = said { Some(set) } else { None });
        let mut slots: std::collections::BTreeMap<u32, Vec<u8>> = std::collections::BTreeMap::new();
        for set in sets.filter(|_| shard != 0 || Some(group) != torn) {
            let from = set.stored.map_or(0, |stored| usize::from(stored.unit) * 16);
            for (at, byte) in (from..).zip(payload_of(set).unwrap_or_default()) {
                let page = slots.entry(set.slot + (at / 4096) as u32).or_insert_with(|| vec![0; 4096]);
                page[at % 4096] = byte;
            }
        }
        slots.iter().for_each(|(slot, page)| image::put(&mut image, offset_of(shard, *slot), page));
    }
    image
}

#[test]
fn the_same_content_is_written_as_the_same_bytes() {
    image::compare(written(), GOLDEN, "v4");
}

#[test]
fn the_golden_image_is_read() {
    let image = image::read(GOLDEN);
    for slot in SuperblockSlot::ALL {
        assert_eq!(Superblock::decode(&pages(&image, slot.offset_bytes(), 4096)), Ok(superblock()), "{slot:?}");
    }
    for (shard, group, tail, durable, said) in groups() {
        let bytes = pages(&image, offset_of(shard, (group % u64::from(layout().ring_pages)) as u32), 4096);
        let read = RingHead::decode(bytes.as_slice().try_into().expect("a page")).expect("a page of the ring");
        assert_eq!(read, (head_of(shard, group, tail, durable), said));
    }
}
