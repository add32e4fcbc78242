//! The model behind [`slots::flash::TABLE`]: a drive whose flash layer copies, below slots that are overwritten one by one.

use slots::flash::{OWN_SPARE_PERCENT, TABLE};
use std::collections::VecDeque;

/// Pages of an erase block, and of the drive as its user sees it.
const BLOCK_PAGES: usize = 128;
const DRIVE_PAGES: usize = 512 * BLOCK_PAGES;
/// Blocks that are erased and ready at all times.
const READY_BLOCKS: usize = 3;
/// Of the slots: the rest is free.
const LIVE_PART: f64 = 0.97;
/// How often the drive is overwritten before it counts, and while it counts.
const LAPS: (usize, usize) = (6, 3);
const NOWHERE: u32 = u32::MAX;

struct Random(u64);

impl Random {
    /// Xorshift, multiplied.
    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 7;
        self.0 ^= self.0 >> 9;
        self.0.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    fn below(&mut self, bound: usize) -> usize {
        (((self.bits() >> 32) * bound as u64) >> 32) as usize
    }

    fn shuffled(&mut self, count: usize) -> Vec<u32> {
        let mut all: Vec<u32> = (0..count as u32).collect();
        (1..count).rev().for_each(|at| all.swap(at, self.below(at + 1)));
        all
    }
}

/// A flash layer that maps pages. Of the blocks that are full, the one with the fewest needed pages is emptied next.
struct Flash {
    /// Where the pages of the host are.
    at: Vec<u32>,
    /// Whose each page of flash is.
    holds: Vec<u32>,
    needed: Vec<usize>,
    full: Vec<bool>,
    /// Full blocks by how many needed pages they have. One that has lost more is looked at again when it is taken.
    by_needed: Vec<Vec<u32>>,
    ready: Vec<u32>,
    /// Open blocks and the pages used of them: for the host, for copies.
    open: [(u32, usize); 2],
    written: u64,
}

impl Flash {
    fn new(own_spare: f64) -> Flash {
        let blocks = (DRIVE_PAGES as f64 * (1.0 + own_spare) / BLOCK_PAGES as f64).ceil() as usize;
        let mut ready: Vec<u32> = (0..blocks as u32).rev().collect();
        let open = [(); 2].map(|()| (ready.pop().expect("there are many"), 0));
        Flash {
            at: vec![NOWHERE; DRIVE_PAGES],
            holds: vec![NOWHERE; blocks * BLOCK_PAGES],
            needed: vec![0; blocks],
            full: vec![false; blocks],
            by_needed: vec![Vec::new(); BLOCK_PAGES + 1],
            ready,
            open,
            written: 0,
        }
    }

    fn write(&mut self, page: u32) {
        self.forget(page);
        self.put(page, 0);
        while self.ready.len() < READY_BLOCKS {
            self.empty_a_block();
        }
    }

    fn forget(&mut self, page: u32) {
        let at = std::mem::replace(&mut self.at[page as usize], NOWHERE);
        if at == NOWHERE {
            return;
        }
        self.holds[at as usize] = NOWHERE;
        let block = at as usize / BLOCK_PAGES;
        self.needed[block] -= 1;
        if self.full[block] {
            self.by_needed[self.needed[block]].push(block as u32);
        }
    }

    fn put(&mut self, page: u32, whose: usize) {
        if self.open[whose].1 == BLOCK_PAGES {
            let block = self.open[whose].0;
            self.full[block as usize] = true;
            self.by_needed[self.needed[block as usize]].push(block);
            self.open[whose] = (self.ready.pop().expect("some are kept ready"), 0);
        }
        let (block, used) = &mut self.open[whose];
        let at = *block as usize * BLOCK_PAGES + *used;
        *used += 1;
        self.needed[*block as usize] += 1;
        (self.at[page as usize], self.holds[at]) = (at as u32, page);
        self.written += 1;
    }

    fn empty_a_block(&mut self) {
        let block = self.emptiest();
        self.full[block] = false;
        for at in block * BLOCK_PAGES..(block + 1) * BLOCK_PAGES {
            let page = std::mem::replace(&mut self.holds[at], NOWHERE);
            if page != NOWHERE {
                self.needed[block] -= 1;
                self.put(page, 1);
            }
        }
        self.ready.push(block as u32);
    }

    fn emptiest(&mut self) -> usize {
        for needed in 0..BLOCK_PAGES {
            while let Some(block) = self.by_needed[needed].pop() {
                if self.full[block as usize] && self.needed[block as usize] == needed {
                    return block as usize;
                }
            }
        }
        panic!("all pages of all blocks are needed")
    }
}

/// Which block is overwritten next.
struct Load {
    random: Random,
    /// Of a skewed one: how likely each rank and all before it are.
    ranks: Vec<f64>,
    blocks: Vec<u32>,
}

impl Load {
    fn new(blocks: usize, is_skewed: bool) -> Load {
        let mut random = Random(12_345 + u64::from(is_skewed));
        let mut ranks = Vec::new();
        if is_skewed {
            let mut sum = 0.0;
            ranks.extend((0..blocks).map(|rank| {
                sum += (rank as f64 + 1.0).powf(-0.99);
                sum
            }));
        }
        let blocks = random.shuffled(blocks);
        Load { random, ranks, blocks }
    }

    fn next(&mut self) -> usize {
        let Some(sum) = self.ranks.last() else { return self.random.below(self.blocks.len()) };
        let place = (self.random.bits() >> 11) as f64 / (1_u64 << 53) as f64 * sum;
        let rank = self.ranks.partition_point(|rank| *rank < place).min(self.ranks.len() - 1);
        self.blocks[rank] as usize
    }
}

/// Pages of flash written for each that the host writes, where it uses this part of the drive and never touches the rest.
fn measured(used_part: f64, own_spare_percent: u8, is_skewed: bool) -> f64 {
    let mut flash = Flash::new(f64::from(own_spare_percent) / 100.0);
    let slots = (used_part * DRIVE_PAGES as f64) as usize;
    let mut load = Load::new((LIVE_PART * slots as f64) as usize, is_skewed);
    let mut places = load.random.shuffled(slots);
    places.iter().for_each(|slot| flash.write(*slot));
    let mut free: VecDeque<u32> = places.split_off(load.blocks.len()).into();
    let mut overwrite = |count: usize, flash: &mut Flash| {
        for _ in 0..count {
            let block = load.next();
            let slot = free.pop_front().expect("a few are free");
            flash.write(slot);
            free.push_back(std::mem::replace(&mut places[block], slot));
        }
    };
    overwrite(LAPS.0 * DRIVE_PAGES, &mut flash);
    let before = flash.written;
    overwrite(LAPS.1 * DRIVE_PAGES, &mut flash);
    (flash.written - before) as f64 / (LAPS.1 * DRIVE_PAGES) as f64
}

#[test]
fn the_table_is_what_the_model_gives() {
    let drives =
        || TABLE.iter().skip(1).flat_map(|(part, figures)| (0..2).map(move |drive| (*part, OWN_SPARE_PERCENT[drive], figures[drive])));
    let cells: Vec<(f64, u8, bool, f64)> =
        drives().flat_map(|(part, own, figure)| [(part, own, false, figure.even), (part, own, true, figure.skewed)]).collect();
    let found: Vec<f64> = std::thread::scope(|scope| {
        let measure = |(part, own, is_skewed, _): (f64, u8, bool, f64)| measured(part, own, is_skewed);
        let halves: Vec<_> = cells
            .chunks(cells.len().div_ceil(2))
            .map(|half| scope.spawn(move || half.iter().copied().map(measure).collect::<Vec<_>>()))
            .collect();
        halves.into_iter().flat_map(|half| half.join().expect("it ends")).collect()
    });
    let other = |((part, own, is_skewed, stated), found): (&(f64, u8, bool, f64), &f64)| {
        let line = format!("{part} of a drive with {own} % of its own, skewed {is_skewed}: {stated} is stated, {found:.2} found");
        println!("{line}");
        ((found / stated - 1.0).abs() > 0.02).then_some(line)
    };
    let others: Vec<String> = cells.iter().zip(&found).filter_map(other).collect();
    assert!(others.is_empty(), "{}", others.join("\n"));
}
