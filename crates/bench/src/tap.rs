//! What it costs to sample the blocks that clients use, in instructions: see `scripts/bench insight`.

use engine::api::{Op, Outcome};
use engine::tap::{Tap, Used};

/// A loop to be counted: `count-tap-off`, `count-tap-untaken` or `count-tap-taken`, over requests of so many blocks.
///
/// `valgrind --tool=callgrind --toggle-collect='*tap_loop*'`; the difference of two lengths, divided by the difference of blocks, is
/// the cost of a block.
pub fn instructions(which: &str, requests: u64, blocks: u32) {
    let below = match which {
        "count-tap-off" => 0,
        // The least that a sample may be: of a billion blocks four are taken.
        "count-tap-untaken" => u64::MAX >> 28,
        _ => u64::MAX,
    };
    let mut tap = Tap::default();
    // The memory for the samples is there before it counts.
    tap_loop(&mut tap, requests, blocks, below);
    println!("{}", tap.take().0.len());
}

#[inline(never)]
fn tap_loop(tap: &mut Tap, requests: u64, blocks: u32, below: u64) {
    for request in 0..requests {
        let used = Used {
            volume: 1,
            time_ms: request as u32,
            op: Op::Read,
            start_sector: request * 8000,
            sectors: blocks * 8,
            outcome: Outcome::RamHit,
            sequential: false,
        };
        if below != 0 {
            tap.note(std::hint::black_box(&used), below);
        }
    }
}
