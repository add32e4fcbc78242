//! Pages of the ring and their statements: what is written is read, nothing else is accepted, and no bytes make the reader fail.

use format::packed::Encoding;
use format::slots::statement::{Stored, UNIT_BYTES};
use format::slots::{RingHead, STATEMENT_BYTES_MAX, Set, Statement};
use format::{DecodeError, PAGE_BYTES};
use types::{ShardIndex, VOLUME_BLOCKS_MAX, VolumeId};

fn head() -> RingHead {
    RingHead { uuid: *b"a pool of slots\x01", session: 3, shard: ShardIndex(1), group: 77, tail: 20, durable: 70, epoch: 0 }
}

fn plain(block: u64, slot: u32) -> Set {
    Set {
        volume: VolumeId(5),
        block,
        mask: u8::MAX,
        dirty: true,
        settled: false,
        lost: false,
        vital: false,
        checksum: 0x1234_5678 ^ slot,
        slot,
        old: None,
        stored: None,
    }
}

fn statements() -> Vec<Statement> {
    let packed = |encoding, object, bytes| Some(Stored { encoding, object, bytes, unit: (object * 4 % 256) as u8 });
    vec![
        Statement::Set(plain(1, 9)),
        Statement::Set(Set { old: Some(3), ..plain(2, 10) }),
        Statement::Set(Set { settled: true, ..plain(VOLUME_BLOCKS_MAX - 1, u32::MAX - 1) }),
        Statement::Set(Set { settled: true, dirty: false, volume: VolumeId((1 << 22) - 1), ..plain(0, 0) }),
        Statement::Set(Set { settled: true, volume: VolumeId(1 << 22), ..plain(0, 1) }),
        Statement::Set(Set { mask: 0b101, settled: true, ..plain(4, 12) }),
        Statement::Set(Set { lost: true, settled: true, ..plain(5, 13) }),
        Statement::Set(Set { stored: packed(Encoding::Raw, (1 << 40) - 64, 4096), vital: true, ..plain(6, 14) }),
        Statement::Set(Set { stored: packed(Encoding::Zstd, 7, 900), dirty: false, ..plain(7, 15) }),
        Statement::Set(Set { stored: packed(Encoding::Zero, 0, 0), ..plain(8, 16) }),
        Statement::Set(Set { stored: packed(Encoding::Diff, 7, 5), old: Some(0), ..plain(9, 17) }),
        Statement::Set(Set { stored: packed(Encoding::Lost, 0, 0), lost: true, ..plain(10, 18) }),
        Statement::Home { slot: 9, unit: None, checksum: 1 },
        Statement::Gone { slot: 10, unit: None, checksum: u32::MAX },
        Statement::Home { slot: 11, unit: Some(252), checksum: 1 },
        Statement::Gone { slot: 12, unit: Some(0), checksum: 9 },
        Statement::GoneOfShelf { shelf: 2, slots: [1, 0, u64::MAX, 0, 0, 0, 0, 1 << 63] },
    ]
}

fn encoded(head: &RingHead, statements: &[Statement]) -> Box<[u8; PAGE_BYTES]> {
    let mut page = Box::new([0xff; PAGE_BYTES]);
    head.encode(statements, &mut page);
    page
}

#[test]
fn what_is_written_is_read() {
    for count in 0..=statements().len() {
        let statements = &statements()[..count];
        let (found, read) = RingHead::decode(&encoded(&head(), statements)).expect("sound");
        assert_eq!((found, read.as_slice()), (head(), statements));
    }
}

/// What a sweep says of most blocks takes half the room: a page has room for 248 of them.
#[test]
fn a_page_is_full_of_short_statements() {
    let sweep: Vec<Statement> = (0..248).map(|slot| Statement::Set(Set { settled: true, ..plain(u64::from(slot) * 3, slot) })).collect();
    assert_eq!(sweep.iter().map(Statement::bytes).sum::<usize>(), STATEMENT_BYTES_MAX);
    let (_, read) = RingHead::decode(&encoded(&head(), &sweep)).expect("sound");
    assert_eq!(read, sweep);
}

#[test]
fn another_page_is_none() {
    let page = encoded(&head(), &statements());
    let decoded = |change: &dyn Fn(&mut [u8; PAGE_BYTES])| {
        let mut page = page.clone();
        change(&mut page);
        RingHead::decode(&page).map(|_| ())
    };
    assert_eq!(decoded(&|page| page[0] ^= 1), Err(DecodeError::Magic));
    for at in [12, 40, 75, 128, 500, 4095] {
        assert_eq!(decoded(&|page| page[at] ^= 1), Err(DecodeError::Checksum), "byte {at}");
    }
    assert_eq!(decoded(&|page| put_sealed(page, 12, &5_u32.to_le_bytes())), Err(DecodeError::Version { found: 5 }));
    let field = |field| Err(DecodeError::Field { field });
    assert_eq!(decoded(&|page| put_sealed(page, 48, &78_u64.to_le_bytes())), field("tail group"));
    assert_eq!(decoded(&|page| put_sealed(page, 56, &77_u64.to_le_bytes())), field("durable group"));
    assert_eq!(decoded(&|page| put_sealed(page, 32, &0_u64.to_le_bytes())), field("count"));
    assert_eq!(decoded(&|page| put_sealed(page, 76, &[1])), field("padding"));
    assert_eq!(decoded(&|page| put_sealed(page, 4095, &[1])), field("padding"));
    assert_eq!(decoded(&|page| put_sealed(page, 128, &[0])), field("statement kind"));
    assert_eq!(decoded(&|page| put_sealed(page, 129, &[0])), field("mask"));
}

/// Whatever bytes stand under a checksum: an error, or what a writer could have written.
#[test]
fn no_bytes_make_the_reader_fail() {
    let mut state = 7_u64;
    let mut bits = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let page = encoded(&head(), &statements());
    let mut accepted = 0;
    for _ in 0..20_000 {
        let mut page = page.clone();
        for _ in 0..=bits() % 3 {
            let at = 12 + bits() as usize % (128 + statements().len() * 40 - 12);
            page[at] = bits() as u8;
        }
        put_sealed(&mut page, 12, &4_u32.to_le_bytes());
        if let Ok((head, statements)) = RingHead::decode(&page) {
            accepted += 1;
            assert_eq!(encoded(&head, &statements), page, "there is one way to write it");
        }
    }
    assert!(accepted > 100, "{accepted} were accepted");
    let short = [0; UNIT_BYTES - 1];
    assert!((0..short.len()).all(|length| Statement::decode(&short[..length]).is_err()));
}

/// Changes a page and gives it the right checksum.
fn put_sealed(page: &mut [u8; PAGE_BYTES], at: usize, bytes: &[u8]) {
    page[at..at + bytes.len()].copy_from_slice(bytes);
    let crc = format::checksum::crc32c(&page[12..]);
    page[8..12].copy_from_slice(&crc.to_le_bytes());
}
