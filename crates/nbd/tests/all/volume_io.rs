//! Data through the export: what was written is read, in any size, alignment and number at a time.

use crate::common::client::{Client, DISCONNECT, FLUSH, FUA, READ, TRIM, WRITE, WRITE_ZEROES, header};
use crate::common::random::Random;
use crate::common::{Fixture, VOLUME_BYTES};
use std::collections::HashMap;
use std::io::Write;

#[test]
fn random_sectors_match_a_model() {
    let fixture = Fixture::new();
    let mut client = Client::open(&fixture.socket, "disk");
    let span = 8 << 20;
    let mut model = vec![0u8; span as usize];
    let mut random = Random(42);
    for _ in 0..600 {
        // Mostly small, sometimes across several extents.
        let limit = if random.below(10) == 0 { 6000 } else { 40 };
        let length = 512 * (1 + random.below(limit));
        let offset = 512 * random.below((span - length) / 512 + 1);
        let range = offset as usize..(offset + length) as usize;
        match random.below(8) {
            0..3 => {
                let data = random.bytes(length as usize);
                assert_eq!(client.write(FUA * random.below(2) as u16, offset, &data), 0);
                model[range].copy_from_slice(&data);
            }
            3 => {
                assert_eq!(client.call(WRITE_ZEROES, 0, offset, length as u32), 0);
                model[range].fill(0);
            }
            4 => assert_eq!(client.call(FLUSH, 0, 0, 0), 0),
            _ => assert!(client.read_at(offset, length as u32).unwrap() == model[range], "{length} bytes at {offset}"),
        }
    }
}

#[test]
fn many_requests_at_once_are_each_answered_once() {
    let fixture = Fixture::new();
    let mut client = Client::open(&fixture.socket, "disk");
    let mut random = Random(7);
    let blocks = 512;
    let data: Vec<Vec<u8>> = (0..blocks).map(|_| random.bytes(4096)).collect();
    for (cookie, block) in data.iter().enumerate() {
        client.stream.write_all(&header(WRITE, 0, cookie as u64, cookie as u64 * 4096, 4096)).unwrap();
        client.stream.write_all(block).unwrap();
    }
    let mut seen = vec![0; blocks];
    for _ in 0..blocks {
        let (cookie, error) = client.reply();
        assert_eq!(error, 0);
        seen[cookie as usize] += 1;
    }
    assert!(seen.iter().all(|times| *times == 1));
    // Reads of all sizes from one to four blocks, sent before any answer is taken.
    let mut wanted = HashMap::new();
    for cookie in 0..400u64 {
        let count = 1 + random.below(4);
        let first = random.below(blocks as u64 - count);
        wanted.insert(cookie, (first, count));
        client.stream.write_all(&header(READ, 0, cookie, first * 4096, count as u32 * 4096)).unwrap();
    }
    while !wanted.is_empty() {
        let (cookie, error) = client.reply();
        assert_eq!(error, 0);
        let (first, count) = wanted.remove(&cookie).expect("answered once");
        let expected = data[first as usize..(first + count) as usize].concat();
        assert!(client.read(expected.len()) == expected, "blocks {first}+{count}");
    }
}

#[test]
fn the_largest_requests_work_at_odd_places() {
    let fixture = Fixture::new();
    let mut client = Client::open(&fixture.socket, "disk");
    let length = fixture.volume.request_bytes_max() as usize;
    let data = Random(3).bytes(length);
    assert_eq!(client.write(0, 1536, &data), 0);
    assert!(client.read_at(1536, length as u32).unwrap() == data);
    assert_eq!(client.read_at(0, 1536).unwrap(), vec![0; 1536]);
    // A write may be longer than what is read in one piece: it goes to the volume in parts.
    let data = Random(4).bytes(32 << 20);
    assert_eq!(client.write(FUA, 512, &data), 0);
    assert_eq!(client.call(READ, 0, 512, data.len() as u32), 75);
    for (index, piece) in data.chunks(4 << 20).enumerate() {
        assert!(client.read_at(512 + (index as u64 * (4 << 20)), 4 << 20).unwrap() == piece);
    }
}

#[test]
fn errors_have_their_numbers_and_the_connection_survives_them() {
    let fixture = Fixture::new();
    let mut client = Client::open(&fixture.socket, "disk");
    assert_eq!(client.call(READ, 0, VOLUME_BYTES, 512), 22);
    assert_eq!(client.call(READ, 0, 100, 512), 22);
    assert_eq!(client.call(TRIM, 0, VOLUME_BYTES - 512, 1024), 22);
    assert_eq!(client.write(0, VOLUME_BYTES - 512, &[1; 1024]), 28);
    assert_eq!(client.call(WRITE_ZEROES, 16, 0, 4096), 95);
    assert_eq!(client.call(READ, 0, 0, u32::MAX - 511), 75);
    assert_eq!(client.call(9, 0, 0, 0), 22);
    assert_eq!(client.write(0, 512, &[5; 512]), 0);
    assert_eq!(client.read_at(512, 512).unwrap(), vec![5; 512]);
}

#[test]
fn goodbye_waits_for_the_answers() {
    let fixture = Fixture::new();
    let mut client = Client::open(&fixture.socket, "disk");
    let cookies: Vec<u64> = (0..50).map(|block| client.request(READ, 0, block * 4096, 4096)).collect();
    client.request(DISCONNECT, 0, 0, 0);
    for _ in &cookies {
        assert_eq!(client.reply().1, 0);
        client.read(4096);
    }
    assert!(client.is_closed());
    fixture.wait_connections(0);
    assert_eq!(fixture.server().counters().broken, 0);
}
