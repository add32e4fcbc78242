//! What the forms bring on the recorded block samples, against the figures of the samples' own README. Skipped with a message where
//! `../shared/blocks` is absent. Run with `--nocapture` for the table.

use content::encode::Steps;
use content::measure::{Accounting, Limits, Measure};
use content::{BLOCK_BYTES, Block};
use std::io::Read;
use std::path::PathBuf;

const LIMITS: Limits = Limits { contents: 512 << 8, keys: 1 << 17 };
/// As the figures were made: 8 bytes before each block at rest, 16 before each record written, packed by the byte.
const AT_REST: Accounting = Accounting { header_bytes: 8, align_bytes: 1 };
const WRITTEN: Accounting = Accounting { header_bytes: 16, align_bytes: 1 };
const RECORD_BYTES: usize = 8 + BLOCK_BYTES;

fn sample(name: &str) -> Option<Vec<u8>> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/blocks")).join(format!("{name}.zst"));
    let Ok(packed) = std::fs::read(&path) else {
        println!("skipped: {} is not there", path.display());
        return None;
    };
    let mut bytes = Vec::new();
    ruzstd::decoding::StreamingDecoder::new(&packed[..]).expect("a zstd frame").read_to_end(&mut bytes).expect("a whole frame");
    Some(bytes)
}

fn block(bytes: &[u8]) -> &Block {
    bytes.try_into().expect("a block")
}

fn at_rest(name: &str, steps: Steps) -> Option<f64> {
    let mut measure = Measure::new(steps, AT_REST, LIMITS);
    for (address, bytes) in sample(name)?.chunks_exact(BLOCK_BYTES).enumerate() {
        measure.write(address as u64, block(bytes)).expect("comes back");
    }
    Some(measure.tally().factor())
}

fn written(name: &str, steps: Steps) -> Option<f64> {
    let bytes = sample(name)?;
    let mut measure = Measure::new(steps, WRITTEN, LIMITS);
    let records = bytes.chunks_exact(RECORD_BYTES);
    let address = |record: &[u8]| u64::from(record[1]) << 32 | u64::from(u32::from_le_bytes(record[4..8].try_into().expect("four bytes")));
    for record in records.clone().filter(|record| record[0] == b'B') {
        measure.write(address(record), block(&record[8..])).expect("comes back");
    }
    measure.reset();
    for record in records.filter(|record| record[0] == b'W') {
        measure.write(address(record), block(&record[8..])).expect("comes back");
    }
    println!("{:?}", measure.tally());
    Some(measure.tally().factor())
}

/// Of the README: LZ4 alone, dedup and LZ4, and with deltas to similar blocks.
const AT_REST_FIGURES: [(&str, f64, f64, f64); 8] = [
    ("innodb-tpcc.blocks", 1.38, 1.38, 1.38),
    ("pgbench.blocks", 8.46, 8.46, 9.34),
    ("vm-clones.blocks", 1.91, 3.25, 3.33),
    ("os-releases.blocks", 1.49, 1.49, 1.65),
    ("source-versions.blocks", 1.96, 2.03, 3.04),
    ("pg-log.blocks", 4.47, 4.47, 5.26),
    ("archive.blocks", 1.00, 1.00, 1.00),
    ("fio-c50-d30.blocks", 1.96, 2.54, 2.54),
];

#[test]
fn blocks_at_rest_take_what_the_reference_takes() {
    for (name, lz4, fast, dense) in AT_REST_FIGURES {
        let Some(found) = at_rest(name, Steps::LZ4) else { return };
        let (found_fast, found_dense) = (at_rest(name, Steps::FAST).expect("there"), at_rest(name, Steps::DENSE).expect("there"));
        let alone = Steps { duplicates: true, zstd: content::dense::AVAILABLE, ..Steps::LZ4 };
        let found_alone = at_rest(name, alone).expect("there");
        println!(
            "{name:24} LZ4 {found:.2} ({lz4})  fast {found_fast:.2} ({fast})  duplicates and zstd {found_alone:.2}  dense {found_dense:.2} ({dense})"
        );
        assert!(found >= 0.97 * lz4, "{name}");
        assert!(found_fast >= 0.97 * fast, "{name}");
        assert!(found_dense >= found_fast * 0.995, "{name}: looking for similar blocks costs room");
        if content::dense::AVAILABLE {
            let reference = 0.99 * dense;
            assert!(found_dense >= reference && found_dense >= found_alone, "{name}");
        }
    }
}

#[test]
fn blocks_written_over_take_little() {
    for (name, lz4, at_least) in [("innodb-tpcc.writes", 1.34, 30.0), ("pgbench.writes", 3.94, 25.0), ("vm-update.writes", 3.89, 5.5)] {
        let Some(found) = written(name, Steps::LZ4) else { return };
        let fast = written(name, Steps::FAST).expect("there");
        println!("{name:24} LZ4 {found:.2} ({lz4})  fast {fast:.2} (at least {at_least})");
        assert!(found >= 0.97 * lz4, "{name}");
        assert!(fast >= at_least, "{name}: {fast:.1}");
    }
}

#[test]
fn fewer_steps_take_more_room_and_lose_nothing() {
    use content::encode::{Bases, Encoder, Form, decode};
    struct None;
    impl Bases for None {
        fn content(&self, _object: u32) -> Option<&Block> {
            Option::None
        }
    }
    let Some(bytes) = sample("pgbench.blocks") else { return };
    let mut encoder = Encoder::new(Steps::DENSE, 1, 1 << 10);
    let (mut codec, mut back) = (content::dense::Codec::default(), [0; BLOCK_BYTES]);
    let mut stored = [0; 3];
    for bytes in bytes.chunks_exact(BLOCK_BYTES) {
        for (total, allowed) in stored.iter_mut().zip([Steps::DENSE, Steps::LZ4, Steps::NONE]) {
            let form = encoder.encode_within(allowed, block(bytes), Option::None, &None);
            assert!(allowed != Steps::NONE || matches!(form, Form::Raw | Form::Zero));
            *total += encoder.bytes().len();
            decode(form, encoder.bytes(), Option::None, &mut codec, &mut back).expect("comes back");
            assert!(back == *block(bytes));
        }
    }
    assert!(stored[0] <= stored[1] && stored[1] < stored[2] / 4, "{stored:?}");
}
