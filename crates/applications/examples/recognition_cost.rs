//! What it costs to look at a block: nanoseconds of CPU per 4 KiB, blocks in the CPU's cache.
//!
//! `cargo run --release -p applications --example recognition_cost -- NAME=FILE[:PAGE_BYTES]...`
//! Each file is tried at multiples of its page size, each kind of page that was found on its own; besides:
//! random bytes, zeroes and text.

use applications::{examine, recognise};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;

/// Bytes that are gone through again and again: they stay in the second level of the cache.
const HOT_BYTES: usize = 256 << 10;
/// Best of so many rounds.
const ROUNDS: usize = 200;

fn main() {
    let mut number = 1u64;
    let random: Vec<u8> = std::iter::repeat_with(|| {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (number >> 56) as u8
    })
    .take(HOT_BYTES)
    .collect();
    let text: Vec<u8> = b"a line of text, and then another one\n".iter().copied().cycle().take(HOT_BYTES).collect();
    measure("random", &random, 4096);
    measure("zeroes", &vec![0; HOT_BYTES], 4096);
    measure("text", &text, 4096);
    for argument in std::env::args().skip(1) {
        let (name, file) = argument.split_once('=').expect("NAME=FILE");
        let (path, page_bytes) = file.split_once(':').map_or((file, 16384), |(path, size)| (path, size.parse().expect("bytes")));
        let bytes = std::fs::read(path).expect("a file");
        let mut groups: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for page in bytes.chunks_exact(page_bytes).filter(|page| page.iter().any(|byte| *byte != 0)) {
            let found = recognise(page).map_or("nothing".into(), |page| format!("{:?} {:?}", page.kind, page.certainty));
            groups.entry(format!("{name}: {found}")).or_default().extend(page);
        }
        for (name, pages) in groups {
            // A few pages again and again are hotter than many, but not by much.
            let hot: Vec<u8> = pages.iter().copied().cycle().take(HOT_BYTES).collect();
            measure(&name, &hot, page_bytes);
        }
    }
}

/// Prints what both depths cost, and how many pages were found.
fn measure(name: &str, bytes: &[u8], page_bytes: usize) {
    let best = |look: fn(&[u8]) -> bool| {
        let mut best = f64::MAX;
        for _ in 0..ROUNDS {
            let begin = Instant::now();
            for page in bytes.chunks_exact(page_bytes) {
                black_box(look(black_box(page)));
            }
            best = best.min(begin.elapsed().as_nanos() as f64);
        }
        best / (bytes.len() as f64 / 4096.0)
    };
    let found = bytes.chunks_exact(page_bytes).filter(|page| recognise(page).is_some()).count();
    let (quick, deep) = (best(|page| recognise(page).is_some()), best(|page| examine(page).is_some()));
    println!(
        "{name:32} {:5} pages of {page_bytes:5}, {found:5} found: recognise {quick:6.1} ns, examine {deep:6.1} ns a 4 KiB block",
        bytes.len() / page_bytes
    );
}
