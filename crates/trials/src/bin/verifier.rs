//! A load that verifies itself, for a small guest: `verifier DEVICE`.
//!
//! It writes and reads a disk around the page cache and knows what each block must hold. What was read stays in
//! memory that only the device has written, and is looked at again and again: a page that was lost on the way to
//! another machine is found, also when it was read long ago. Each second it prints `beat` with a number. On the line `stop` it
//! reads everything once more, prints `well`, and ends. `wrong` is what it says when something is not as it must be.

use rustix::fd::AsFd;
use rustix::fs::{Mode, OFlags};
use std::io::{BufRead, IoSlice, IoSliceMut, stdin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use trials::registers::Dice;

const BLOCK_BYTES: usize = 4096;
const WORDS: usize = BLOCK_BYTES / 8;
/// Workers, each with blocks of its own.
const WORKERS: u64 = 4;
const BLOCKS_EACH: u64 = 2048;
/// Blocks of one request at most.
const REQUEST_BLOCKS_MAX: usize = 16;
/// Reads whose data each worker keeps.
const KEPT: u64 = 48;

/// Aligned as requests around the page cache must be.
#[derive(Clone)]
#[repr(align(4096))]
struct Block([u8; BLOCK_BYTES]);

/// What was read: which blocks, and what they held.
struct Kept {
    first: u64,
    generations: Vec<u32>,
    data: Vec<Block>,
}

struct Worker<'a, Fd> {
    disk: &'a Fd,
    first: u64,
    /// How often each block was written.
    generations: Vec<u32>,
    kept: Vec<Kept>,
    buffer: Vec<Block>,
    dice: Dice,
}

fn stamp(block: u64, generation: u32, word: usize) -> u64 {
    if generation == 0 { 0 } else { (block << 40 | u64::from(generation) << 16 | word as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) }
}

fn fill(data: &mut Block, block: u64, generation: u32) {
    for (word, bytes) in data.0.chunks_exact_mut(8).enumerate() {
        bytes.copy_from_slice(&stamp(block, generation, word).to_le_bytes());
    }
}

fn judge(data: &Block, block: u64, generation: u32, when: &str) -> Result<(), String> {
    let is_right = |word: usize| data.0[8 * word..8 * word + 8] == stamp(block, generation, word).to_le_bytes();
    match (0..WORDS).find(|word| !is_right(*word)) {
        None => Ok(()),
        Some(word) => Err(format!("{when}: block {block} does not hold write {generation} from word {word} on")),
    }
}

impl<Fd: AsFd> Worker<'_, Fd> {
    fn new(disk: &Fd, number: u64) -> Worker<'_, Fd> {
        let blocks = |count| vec![Block([0; BLOCK_BYTES]); count];
        let kept = (0..KEPT).map(|_| Kept { first: 0, generations: Vec::new(), data: blocks(REQUEST_BLOCKS_MAX) }).collect();
        Worker {
            disk,
            first: number * BLOCKS_EACH,
            generations: vec![0; BLOCKS_EACH as usize],
            kept,
            buffer: blocks(REQUEST_BLOCKS_MAX),
            dice: Dice::new(number + 1),
        }
    }

    fn turn(&mut self) -> Result<(), String> {
        let count = 1 + self.dice.below(REQUEST_BLOCKS_MAX as u64) as usize;
        let within = self.dice.below(BLOCKS_EACH - count as u64) as usize;
        match self.dice.below(32) {
            0 => rustix::fs::fdatasync(self.disk).map_err(|error| format!("a flush failed ({error})")),
            1..12 => self.write(within, count),
            12..22 => {
                let slot = self.dice.below(KEPT) as usize;
                self.read(within, count, slot)
            }
            _ => {
                let slot = self.dice.below(KEPT) as usize;
                self.look(slot, "what was read before")
            }
        }
    }

    fn write(&mut self, within: usize, count: usize) -> Result<(), String> {
        let first = self.first + within as u64;
        for ((data, generation), block) in self.buffer.iter_mut().zip(&mut self.generations[within..within + count]).zip(first..) {
            *generation += 1;
            fill(data, block, *generation);
        }
        let slices: Vec<IoSlice<'_>> = self.buffer[..count].iter().map(|block| IoSlice::new(&block.0)).collect();
        let written = rustix::io::pwritev(self.disk, &slices, first * BLOCK_BYTES as u64);
        if written == Ok(count * BLOCK_BYTES) { Ok(()) } else { Err(format!("a write of {count} blocks gave {written:?}")) }
    }

    fn read(&mut self, within: usize, count: usize, slot: usize) -> Result<(), String> {
        let first = self.first + within as u64;
        let kept = &mut self.kept[slot];
        let mut slices: Vec<IoSliceMut<'_>> = kept.data[..count].iter_mut().map(|block| IoSliceMut::new(&mut block.0)).collect();
        let read = rustix::io::preadv(self.disk, &mut slices, first * BLOCK_BYTES as u64);
        if read != Ok(count * BLOCK_BYTES) {
            return Err(format!("a read of {count} blocks gave {read:?}"));
        }
        (kept.first, kept.generations) = (first, self.generations[within..within + count].to_vec());
        self.look(slot, "a read")
    }

    fn look(&self, slot: usize, when: &str) -> Result<(), String> {
        let kept = &self.kept[slot];
        let mut blocks = kept.data.iter().zip(&kept.generations).zip(kept.first..);
        blocks.try_for_each(|((data, generation), block)| judge(data, block, *generation, when))
    }

    fn look_at_all(&mut self) -> Result<(), String> {
        for slot in 0..KEPT {
            self.look(slot as usize, "what was read before, at the end")?;
        }
        (0..BLOCKS_EACH as usize).step_by(REQUEST_BLOCKS_MAX).try_for_each(|within| self.read(within, REQUEST_BLOCKS_MAX, 0))
    }
}

fn run(device: &str) -> Result<u64, String> {
    let disk = rustix::fs::open(device, OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| format!("{device} cannot be opened ({error})"))?;
    let (stop, turns) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let work = |number| {
            let mut worker = Worker::new(&disk, number);
            let ended = (|| {
                while !stop.load(Ordering::Relaxed) {
                    worker.turn()?;
                    turns.fetch_add(1, Ordering::Relaxed);
                }
                worker.look_at_all()
            })();
            if let Err(wrong) = &ended {
                println!("wrong: {wrong}");
            }
            ended
        };
        let workers: Vec<_> = (0..WORKERS).map(|number| scope.spawn(move || work(number))).collect();
        scope.spawn(|| {
            for beat in 1.. {
                std::thread::sleep(Duration::from_secs(1));
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                println!("beat {beat}: {} turns", turns.load(Ordering::Relaxed));
            }
        });
        // The end of the input is no word to stop: nobody may be connected yet.
        if stdin().lock().lines().map_while(Result::ok).any(|line| line.trim() == "stop") {
            stop.store(true, Ordering::Relaxed);
        }
        workers.into_iter().try_for_each(|worker| worker.join().unwrap_or_else(|_| Err("a worker panicked".into())))
    })?;
    Ok(turns.into_inner())
}

fn main() {
    let device = std::env::args().nth(1).expect("usage: verifier DEVICE");
    match run(&device) {
        Ok(turns) => println!("well, {turns} turns"),
        Err(wrong) => {
            println!("wrong: {wrong}");
            std::process::exit(1);
        }
    }
}
