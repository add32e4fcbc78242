//! The yardsticks: LRU, FIFO, and Belady's optimum, which knows the future. Unit-size blocks; reads and writes both count and both admit.

use crate::replay::Cache;
use crate::stream::{BlockAccess, Stream};
use std::collections::{BinaryHeap, VecDeque};

/// First in, first out.
pub struct Fifo {
    cached: Vec<bool>,
    queue: VecDeque<u32>,
    capacity_blocks: usize,
}

impl Fifo {
    /// For blocks `0..footprint_blocks`.
    pub fn new(footprint_blocks: u64, capacity_blocks: u64) -> Fifo {
        Fifo { cached: vec![false; footprint_blocks as usize], queue: VecDeque::new(), capacity_blocks: capacity_blocks as usize }
    }
}

impl Cache for Fifo {
    fn access(&mut self, access: BlockAccess) -> bool {
        let hit = self.cached[access.block as usize];
        if !hit && self.capacity_blocks > 0 {
            if self.queue.len() == self.capacity_blocks
                && let Some(oldest) = self.queue.pop_front()
            {
                self.cached[oldest as usize] = false;
            }
            self.queue.push_back(access.block);
            self.cached[access.block as usize] = true;
        }
        hit
    }
}

/// Least recently used.
pub struct Lru {
    /// By block: its more and its less recently used neighbour; the last entry is the ring's end.
    links: Vec<(u32, u32)>,
    cached: Vec<bool>,
    len: u64,
    capacity_blocks: u64,
}

impl Lru {
    /// For blocks `0..footprint_blocks`.
    pub fn new(footprint_blocks: u64, capacity_blocks: u64) -> Lru {
        let end = footprint_blocks as u32;
        Lru { links: vec![(end, end); end as usize + 1], cached: vec![false; end as usize], len: 0, capacity_blocks }
    }

    fn unlink(&mut self, block: u32) {
        let (newer, older) = self.links[block as usize];
        self.links[newer as usize].1 = older;
        self.links[older as usize].0 = newer;
    }

    fn link_newest(&mut self, block: u32) {
        let end = self.cached.len();
        let newest = self.links[end].1;
        self.links[block as usize] = (end as u32, newest);
        self.links[newest as usize].0 = block;
        self.links[end].1 = block;
    }
}

impl Cache for Lru {
    fn access(&mut self, access: BlockAccess) -> bool {
        let hit = self.cached[access.block as usize];
        if hit {
            self.unlink(access.block);
        } else if self.capacity_blocks == 0 {
            return false;
        } else if self.len == self.capacity_blocks {
            let oldest = self.links[self.cached.len()].0;
            self.unlink(oldest);
            self.cached[oldest as usize] = false;
        } else {
            self.len += 1;
        }
        self.cached[access.block as usize] = true;
        self.link_newest(access.block);
        hit
    }
}

/// An SSD that takes every block that is missed and every block that is written, and gives up the least recently used ones.
pub struct AdmitAlways {
    blocks: Lru,
    written: u64,
}

impl AdmitAlways {
    /// For blocks `0..footprint_blocks`.
    pub fn new(footprint_blocks: u64, capacity_blocks: u64) -> AdmitAlways {
        AdmitAlways { blocks: Lru::new(footprint_blocks, capacity_blocks), written: 0 }
    }
}

impl Cache for AdmitAlways {
    fn access(&mut self, access: BlockAccess) -> bool {
        let hit = self.blocks.access(access);
        self.written += u64::from(!hit || access.write);
        hit
    }

    fn ssd_blocks_written(&self) -> u64 {
        self.written
    }
}

/// Belady's optimum: what is used again last, or never, goes first. Made for one stream, in its order.
pub struct Belady {
    /// By position in the stream: where the same block is accessed next; `u32::MAX` if never.
    next_use: Vec<u32>,
    position: usize,
    /// By block: its next use while it is cached.
    cached_until: Vec<Option<u32>>,
    /// Next uses and blocks; entries whose block has another next use by now are void.
    farthest: BinaryHeap<(u32, u32)>,
    len: u64,
    capacity_blocks: u64,
}

impl Belady {
    /// For this stream.
    pub fn new(stream: &Stream, capacity_blocks: u64) -> Belady {
        let mut next_use = vec![u32::MAX; stream.accesses.len()];
        let mut seen = vec![u32::MAX; stream.addresses.len()];
        for (position, access) in stream.accesses.iter().enumerate().rev() {
            next_use[position] = std::mem::replace(&mut seen[access.block as usize], position as u32);
        }
        let cached_until = vec![None; stream.addresses.len()];
        Belady { next_use, position: 0, cached_until, farthest: BinaryHeap::new(), len: 0, capacity_blocks }
    }

    fn evict(&mut self) {
        while let Some((next_use, block)) = self.farthest.pop() {
            if self.cached_until[block as usize] == Some(next_use) {
                self.cached_until[block as usize] = None;
                self.len -= 1;
                return;
            }
        }
    }
}

impl Cache for Belady {
    fn access(&mut self, access: BlockAccess) -> bool {
        let next_use = self.next_use[self.position];
        self.position += 1;
        let hit = self.cached_until[access.block as usize].is_some();
        if !hit && self.capacity_blocks == 0 {
            return false;
        }
        if !hit {
            if self.len == self.capacity_blocks {
                self.evict();
            }
            self.len += 1;
        }
        self.cached_until[access.block as usize] = Some(next_use);
        self.farthest.push((next_use, access.block));
        hit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn misses(cache: &mut dyn Cache, stream: &Stream) -> usize {
        stream.accesses.iter().filter(|access| !cache.access(**access)).count()
    }

    fn stream(blocks: &[u32]) -> Stream {
        let count = blocks.iter().max().map_or(0, |max| u64::from(*max) + 1);
        Stream { accesses: blocks.iter().map(|&block| BlockAccess { block, write: false }).collect(), addresses: (0..count).collect() }
    }

    /// The reference string of Belady's anomaly, with the counts of every textbook.
    #[test]
    fn the_textbook_string() {
        let stream = stream(&[0, 1, 2, 3, 0, 1, 4, 0, 1, 2, 3, 4]);
        assert_eq!([3, 4].map(|capacity| misses(&mut Fifo::new(5, capacity), &stream)), [9, 10]);
        assert_eq!([3, 4].map(|capacity| misses(&mut Lru::new(5, capacity), &stream)), [10, 8]);
        assert_eq!([3, 4].map(|capacity| misses(&mut Belady::new(&stream, capacity), &stream)), [7, 6]);
    }

    #[test]
    fn no_capacity_means_no_hits() {
        let stream = stream(&[0, 0, 0]);
        assert_eq!(misses(&mut Fifo::new(1, 0), &stream), 3);
        assert_eq!(misses(&mut Lru::new(1, 0), &stream), 3);
        assert_eq!(misses(&mut Belady::new(&stream, 0), &stream), 3);
    }
}
