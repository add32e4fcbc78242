//! Whatever the bytes: no panic, and nothing sure that is wrong.

use crate::common::{Numbers, archive, labels};
use applications::{Certainty, Native, Page, STEP_BYTES, examine, innodb, pages, recognise, verify};

/// Bits that are flipped in each page besides those of its head and its end.
const FLIPS: usize = 100;

/// What a verified page is believed to be. Left out is what its checksum does not cover.
fn identity(page: &Page) -> Native {
    let mut native = page.native;
    match &mut native {
        Native::Innodb(identity) => {
            if !identity.space_covered {
                identity.space = None;
            }
            if identity.form == innodb::Form::Compressed {
                identity.lsn = 0;
            }
        }
        // Sixteen bits of checksum say which block it is; of the rest they say it once in 65,535
        // wrongly.
        Native::Postgres(identity) => {
            (identity.lsn, identity.attributes, identity.blocks_by_checksum) = (0, None, [None; 2]);
        }
        _ => {}
    }
    native
}

fn flipped(page: &mut [u8], bit: usize, truth: &Native) {
    page[bit / 8] ^= 1 << (bit % 8);
    if let Some(found) = examine(page)
        && found.certainty == Certainty::Verified
    {
        assert_eq!(identity(&found), *truth, "bit {bit}");
    }
    page[bit / 8] ^= 1 << (bit % 8);
}

#[test]
fn a_flipped_bit_never_makes_a_verified_page_another() {
    let (mut numbers, mut tried) = (Numbers(1), 0u64);
    for name in ["mariadb-10.11", "mysql-8", "postgresql-15", "sqlserver", "other"] {
        let Some(files) = archive(name) else { return };
        let mut seen = std::collections::BTreeSet::new();
        for label in labels(&files) {
            let bytes = &files[&label.file];
            let Some(page) = bytes.get(label.offset..label.offset + label.length) else { continue };
            let Some(found) = examine(page).filter(|found| found.certainty == Certainty::Verified) else { continue };
            let truth = identity(&found);
            // Every bit of one page of each form and size; of the others those of head and end, and
            // some.
            let page = &mut page.to_vec()[..];
            let bits = page.len() * 8;
            if seen.insert((label.engine.clone(), label.checksum.clone(), label.length)) {
                (0..bits).for_each(|bit| flipped(page, bit, &truth));
                tried += bits as u64;
                continue;
            }
            (0..640).chain(bits - 128..bits).for_each(|bit| flipped(page, bit, &truth));
            (0..FLIPS).for_each(|_| flipped(page, numbers.below(bits), &truth));
            tried += 768 + FLIPS as u64;
        }
    }
    println!("{tried} bits");
}

#[test]
fn every_length_is_safe() {
    let mut numbers = Numbers(2);
    let random = numbers.bytes(65536);
    let mut buffers = vec![random, vec![0; 65536], vec![0xff; 65536]];
    for (archive_name, file) in [("mariadb-10.11", "shop/items_zip8.ibd"), ("postgresql-15", "base/16384/16386")] {
        if let Some(files) = archive(archive_name) {
            buffers.push(files[file][..65536].to_vec());
            buffers.push(files[file][8192..8192 + 65536].to_vec());
        }
    }
    for buffer in buffers {
        for length in 0..=buffer.len() {
            if let Some(page) = recognise(&buffer[..length]) {
                assert!(!page.whole || page.stored_bytes as usize <= length.next_multiple_of(STEP_BYTES), "{page:?} of {length} bytes");
                assert!(page.stored_bytes > 0, "a stride that stands still");
            }
        }
    }
}

/// Heads of every engine, so that random bodies reach the tests behind the first ones.
fn head_of(numbers: &mut Numbers, bytes: &mut [u8]) {
    if bytes.len() < 128 {
        return;
    }
    match numbers.below(7) {
        0 => {
            let types = [17855u16, 17854, 17853, 2, 3, 6, 8, 10, 14, 15, 34354, 37401, 0x8001, 0x8040, 0x8100, 23];
            bytes[4] &= 0x7f;
            bytes[16..20].fill(0);
            bytes[24..26].copy_from_slice(&types[numbers.below(types.len())].to_be_bytes());
            if numbers.below(2) == 0 {
                bytes[99..107].copy_from_slice(b"infimum\0");
                bytes[112..120].copy_from_slice(b"supremum");
            }
            let (low, length) = (bytes[20..24].to_vec(), bytes.len());
            bytes[length - 8 + 4 * numbers.below(2)..][..4].copy_from_slice(&low);
        }
        1 => {
            let mut word = |at: usize, value: u16| bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
            let special = [8192u16, 8184, 8176][numbers.below(3)];
            word(10, 0);
            word(16, special);
            word(18, 8192 | 4);
            let upper = numbers.below(usize::from(special)) as u16;
            word(14, upper);
            word(12, numbers.below(usize::from(upper) + 1) as u16);
        }
        2 => {
            (bytes[0], bytes[1]) = (1, numbers.below(21) as u8);
            bytes[64..96].fill(0);
        }
        3 => (bytes[0], bytes[1], bytes[15]) = (6, [0x62, 0x82, 0xa2, 0xc2, 0xe2][numbers.below(5)], 4),
        4 => bytes[..4].copy_from_slice(&[0x10, 0xd1, numbers.below(16) as u8, 0]),
        5 => {
            bytes[24] = numbers.below(8) as u8;
            let length = 4096 * numbers.below(300) as u32;
            bytes[28..32].copy_from_slice(&length.to_le_bytes());
            (bytes[26], bytes[36]) = (0, numbers.below(2) as u8);
            bytes[37..40].fill(0);
        }
        _ => {
            bytes[0] = [2, 5, 10, 13][numbers.below(4)];
            bytes[3..5].copy_from_slice(&(numbers.below(3000) as u16).to_be_bytes());
        }
    }
}

#[test]
fn made_up_heads_are_safe_and_never_verified() {
    let mut numbers = Numbers(3);
    let rounds = std::env::var("APPLICATIONS_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(20_000);
    for round in 0..rounds {
        let length = [512, 4096, 8192, 16384, 32768, 65536][numbers.below(6)] - numbers.below(2) * numbers.below(300);
        let mut bytes = if numbers.below(2) == 0 { numbers.bytes(length) } else { vec![numbers.next() as u8; length] };
        head_of(&mut numbers, &mut bytes);
        for (_, page) in pages(&bytes) {
            let page = verify(page, &bytes);
            // Constant bytes fold to zero: an exclusive or is a weak checksum, and such a block no
            // database's.
            let weak = matches!(page.native, Native::Oracle(_) | Native::Mssql(_));
            assert!(page.certainty != Certainty::Verified || weak, "round {round}: {page:?}");
        }
    }
}

#[test]
fn random_and_periodic_bytes_are_nothing() {
    let mut numbers = Numbers(4);
    for period in [1usize, 2, 4, 8, 12, 16, 20, 24, 64, 256, 512, 4096, 16384] {
        for _ in 0..40 {
            let unit = numbers.bytes(period);
            let bytes: Vec<u8> = unit.iter().copied().cycle().take(16384).collect();
            assert_eq!(recognise(&bytes), None, "period {period}");
        }
    }
}

#[test]
fn a_page_that_begins_elsewhere_is_not_verified() {
    let Some(files) = archive("mariadb-10.11") else { return };
    let bytes = &files["shop/items.ibd"];
    for at in (0..bytes.len() - 16384).step_by(64).filter(|at| at % 16384 != 0) {
        let found = examine(&bytes[at..]);
        assert_eq!(found, None, "at {at}");
    }
}
