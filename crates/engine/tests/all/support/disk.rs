//! A disk with a volatile write cache.

use super::Random;
use engine::medium::{Medium, MediumError};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

const PAGE: usize = 4096;
const SECTOR: usize = 512;

type Pages = BTreeMap<u64, Rc<[u8; PAGE]>>;

#[derive(Clone)]
struct Pending {
    offset_bytes: u64,
    bytes: Rc<Vec<u8>>,
    /// Which sectors reached the cache.
    sectors: Rc<Vec<bool>>,
    complete: bool,
    id: u64,
}

/// Sparse; pages never written read as zeroes. Cloning is cheap.
#[derive(Clone)]
pub struct Disk {
    size_bytes: u64,
    durable: Pages,
    /// What a reader sees: everything in the cache included.
    view: Pages,
    pending: Vec<Pending>,
    next_id: u64,
    /// After so many more calls that change something the machine stops: everything fails.
    pub calls_left: Option<u64>,
    /// So many more calls (reads too) work, then one fails, then all work again.
    pub fail_at: Option<u64>,
    pub flushes: u64,
    pub reads: u64,
    /// Pages that no read can get.
    pub unreadable_pages: BTreeSet<u64>,
}

impl Disk {
    pub fn new(size_bytes: u64) -> Disk {
        Disk {
            size_bytes,
            durable: Pages::new(),
            view: Pages::new(),
            pending: Vec::new(),
            next_id: 0,
            calls_left: None,
            fail_at: None,
            flushes: 0,
            reads: 0,
            unreadable_pages: BTreeSet::new(),
        }
    }

    /// Hands a write to the disk without waiting.
    pub fn submit(&mut self, offset_bytes: u64, bytes: Vec<u8>) -> u64 {
        assert!(offset_bytes.is_multiple_of(PAGE as u64) && bytes.len().is_multiple_of(PAGE));
        assert!(offset_bytes + bytes.len() as u64 <= self.size_bytes, "write beyond the end");
        let sectors = Rc::new(vec![true; bytes.len() / SECTOR]);
        self.next_id += 1;
        let id = self.next_id;
        self.pending.push(Pending { offset_bytes, bytes: Rc::new(bytes), sectors, complete: false, id });
        id
    }

    pub fn complete(&mut self, id: u64) {
        let pending = self.pending.iter_mut().find(|pending| pending.id == id).expect("a write under way");
        pending.complete = true;
        apply(&mut self.view, pending);
    }

    /// Makes complete writes durable.
    pub fn flush_complete(&mut self) {
        for pending in self.pending.iter().filter(|pending| pending.complete) {
            apply(&mut self.durable, pending);
        }
        self.pending.retain(|pending| !pending.complete);
        self.flushes += 1;
    }

    /// The process dies: complete writes stay in the cache, of the others any sectors may have arrived.
    pub fn kill_process(&mut self, random: &mut Random) {
        self.calls_left = None;
        for pending in &mut self.pending {
            if !pending.complete {
                pending.sectors = Rc::new(arrived(pending.sectors.len(), random));
                pending.complete = true;
            }
        }
        self.view = self.durable.clone();
        for pending in &self.pending {
            apply(&mut self.view, pending);
        }
    }

    /// The power fails: of each write not flushed any sectors stay, in any order.
    pub fn cut_power(&mut self, random: &mut Random) {
        self.calls_left = None;
        let mut pending = std::mem::take(&mut self.pending);
        while !pending.is_empty() {
            let mut one = pending.swap_remove(random.below(pending.len() as u64) as usize);
            let arrived = arrived(one.sectors.len(), random);
            one.sectors = Rc::new(one.sectors.iter().zip(arrived).map(|(had, kept)| *had && kept).collect());
            apply(&mut self.durable, &one);
        }
        self.view = self.durable.clone();
    }

    /// The power fails, and of the writes not flushed those stay that are named by `kept` (by age), of the last of them only the first
    /// `last_sectors`.
    pub fn cut_power_keeping(&mut self, kept: impl Fn(usize) -> bool, last_sectors: usize) {
        self.calls_left = None;
        let pending = std::mem::take(&mut self.pending);
        let last = (0..pending.len()).rev().find(|nth| kept(*nth));
        for (nth, mut one) in pending.into_iter().enumerate().filter(|(nth, _)| kept(*nth)) {
            if Some(nth) == last {
                one.sectors = Rc::new((0..one.sectors.len()).map(|sector| sector < last_sectors).collect());
            }
            apply(&mut self.durable, &one);
        }
        self.view = self.durable.clone();
    }

    /// How many writes a power cut could lose.
    pub fn unflushed(&self) -> usize {
        self.pending.len()
    }

    /// Changes stored bytes behind everybody's back.
    pub fn rot(&mut self, offset_bytes: u64, change: impl FnOnce(&mut [u8; PAGE])) {
        let page = offset_bytes / PAGE as u64;
        let mut bytes = self.view.get(&page).map_or([0; PAGE], |bytes| **bytes);
        change(&mut bytes);
        self.view.insert(page, Rc::new(bytes));
        self.durable.insert(page, Rc::new(bytes));
    }

    pub fn truncate(&mut self, size_bytes: u64) {
        self.size_bytes = size_bytes - size_bytes % PAGE as u64;
    }

    /// The numbers of pages that hold anything.
    pub fn used_pages(&self) -> Vec<u64> {
        self.view.keys().copied().collect()
    }

    pub fn page(&self, page: u64) -> [u8; PAGE] {
        self.view.get(&page).map_or([0; PAGE], |bytes| **bytes)
    }

    fn changes_something(&mut self, operation: &'static str, offset_bytes: u64) -> Result<(), MediumError> {
        self.touch(operation, offset_bytes)?;
        match &mut self.calls_left {
            Some(0) => Err(MediumError { operation, offset_bytes, errno: 5 }),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn touch(&mut self, operation: &'static str, offset_bytes: u64) -> Result<(), MediumError> {
        match self.fail_at {
            Some(0) => {
                self.fail_at = None;
                Err(MediumError { operation, offset_bytes, errno: 5 })
            }
            Some(left) => {
                self.fail_at = Some(left - 1);
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// All, none, or any sectors.
fn arrived(sectors: usize, random: &mut Random) -> Vec<bool> {
    match random.below(4) {
        0 => vec![true; sectors],
        1 => vec![false; sectors],
        2 => {
            let first = random.below(sectors as u64 + 1) as usize;
            (0..sectors).map(|sector| sector < first).collect()
        }
        _ => (0..sectors).map(|_| random.chance(1, 2)).collect(),
    }
}

fn apply(pages: &mut Pages, write: &Pending) {
    let first_page = write.offset_bytes / PAGE as u64;
    for (nth, bytes) in write.bytes.chunks_exact(PAGE).enumerate() {
        let sectors = &write.sectors[nth * 8..nth * 8 + 8];
        if sectors.iter().all(|arrived| !arrived) {
            continue;
        }
        let page = first_page + nth as u64;
        let mut whole = pages.get(&page).map_or([0; PAGE], |bytes| **bytes);
        for (sector, _) in sectors.iter().enumerate().filter(|(_, arrived)| **arrived) {
            whole[sector * SECTOR..][..SECTOR].copy_from_slice(&bytes[sector * SECTOR..][..SECTOR]);
        }
        pages.insert(page, Rc::new(whole));
    }
}

impl Medium for Disk {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), MediumError> {
        self.touch("read", offset_bytes)?;
        self.reads += 1;
        assert!(offset_bytes.is_multiple_of(PAGE as u64) && into.len().is_multiple_of(PAGE), "unaligned read");
        assert!(offset_bytes + into.len() as u64 <= self.size_bytes, "read beyond the end");
        let pages = offset_bytes / PAGE as u64..(offset_bytes + into.len() as u64) / PAGE as u64;
        if self.unreadable_pages.range(pages).next().is_some() {
            return Err(MediumError { operation: "read", offset_bytes, errno: 5 });
        }
        for (nth, bytes) in into.chunks_exact_mut(PAGE).enumerate() {
            bytes.copy_from_slice(&self.page(offset_bytes / PAGE as u64 + nth as u64));
        }
        Ok(())
    }

    fn write(&mut self, offset_bytes: u64, from: &[u8]) -> Result<(), MediumError> {
        let id = self.submit(offset_bytes, from.to_vec());
        self.changes_something("write", offset_bytes)?;
        self.complete(id);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), MediumError> {
        self.changes_something("flush", 0)?;
        self.flush_complete();
        Ok(())
    }

    fn discard(&mut self, offset_bytes: u64, _length_bytes: u64) -> Result<(), MediumError> {
        self.changes_something("discard", offset_bytes)
    }
}
