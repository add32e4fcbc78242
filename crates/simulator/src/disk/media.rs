//! The bytes of a device: what reads see now, and how to get back to what a power cut would leave.
//!
//! Invariant: undoing every entry of the undo list that no FUA covers, newest first, gives the durable image. A sector's
//! entry holds what the sector held before that write, so dropping the oldest entries makes their writes durable.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::prng::Prng;

const SECTOR: usize = 512;

#[derive(Clone)]
struct Undo {
    sector: u32,
    /// Number of the write it belongs to.
    write: u32,
    /// What it held; `None`: zeroes. Most of a device is zero, and much is written over with zeroes again.
    before: Option<Box<[u8; SECTOR]>>,
}

/// What of the unflushed writes survives a power cut.
#[derive(Clone, Copy, Debug)]
pub enum Keep {
    /// Nothing.
    None,
    /// Everything.
    All,
    /// Each sector of each write with this chance in a hundred (torn at 512).
    Sectors(u32),
    /// Each 4 KiB of each write (torn at 4096).
    Blocks(u32),
    /// Each write whole (reordered).
    Writes(u32),
    /// The oldest entries, this many in a hundred (in order, torn at the end).
    Prefix(u32),
    /// The newest entries, this many in a hundred.
    Suffix(u32),
    /// All but one unit (4 KiB of one write).
    AllButOne,
    /// A single unit.
    One,
    /// Exactly those units whose bit is set; units beyond 64 go the way of the last bit.
    Mask(u64),
}

impl Keep {
    /// One of them.
    pub fn draw(prng: &mut Prng) -> Keep {
        let percent = prng.pick(&[10, 50, 50, 90]);
        match prng.below(10) {
            0 | 1 => Keep::None,
            2 => Keep::All,
            3 => Keep::Blocks(percent),
            4 => Keep::Writes(percent),
            5 => Keep::Prefix(percent),
            6 => Keep::Suffix(percent),
            7 => Keep::AllButOne,
            8 => Keep::One,
            _ => Keep::Sectors(percent),
        }
    }
}

/// The content of one device.
#[derive(Clone)]
pub struct Media {
    image: Vec<u8>,
    volatile: bool,
    undo: VecDeque<Undo>,
    /// Position of the first entry of `undo`; positions only grow.
    undo_start: u64,
    write: u32,
    /// Everything of this sector before this position is durable by FUA.
    durable_at: BTreeMap<u32, u64>,
}

impl Media {
    /// A device full of zeroes. `volatile`: it has a write cache that a power cut empties.
    pub fn new(size_bytes: u64, volatile: bool) -> Media {
        assert!(size_bytes.is_multiple_of(SECTOR as u64));
        Media { image: vec![0; size_bytes as usize], volatile, undo: VecDeque::new(), undo_start: 0, write: 0, durable_at: BTreeMap::new() }
    }

    /// Size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.image.len() as u64
    }

    /// What a read sees.
    pub fn bytes(&self, offset: u64, length: u64) -> &[u8] {
        &self.image[offset as usize..(offset + length) as usize]
    }

    /// The bytes to be laid out before a run, durable.
    pub fn lay_out(&mut self) -> &mut [u8] {
        assert!(self.undo.is_empty(), "only before the first write");
        &mut self.image
    }

    /// All of it as it is now, as an older self to come back to.
    pub fn snapshot(&self) -> Vec<u8> {
        self.image.clone()
    }

    /// Becomes that content, durable; other sizes are another device's.
    pub fn replace(&mut self, image: Vec<u8>) {
        self.image = image;
        self.undo_start += self.undo.len() as u64;
        self.undo.clear();
        self.durable_at.clear();
    }

    /// Sectors written that no flush covers, each as often as it was written.
    pub fn unflushed_sectors(&self) -> usize {
        self.undo.len()
    }

    /// Where the next entry goes; a flush covers what lies before.
    pub fn position(&self) -> u64 {
        self.undo_start + self.undo.len() as u64
    }

    /// Count of 4 KiB pieces of writes that a power cut could take one by one.
    pub fn units(&self) -> usize {
        self.unit_numbers().last().map_or(0, |last| last + 1)
    }

    /// What follows is another write.
    pub fn next_write(&mut self) {
        self.write = self.write.wrapping_add(1);
    }

    /// Writes one sector.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let at = offset as usize;
        let place = &mut self.image[at..at + SECTOR];
        if self.volatile {
            let was: &[u8; SECTOR] = (&*place).try_into().expect("one sector");
            let before = (*was != [0; SECTOR]).then(|| Box::new(*was));
            self.undo.push_back(Undo { sector: (offset / SECTOR as u64) as u32, write: self.write, before });
        }
        place.copy_from_slice(bytes);
    }

    /// Zeroes a range.
    pub fn zero(&mut self, offset: u64, length: u64) {
        self.next_write();
        for at in (offset..offset + length).step_by(SECTOR) {
            self.write(at, &[0; SECTOR]);
        }
    }

    /// Everything before that position is durable now.
    pub fn flush(&mut self, position: u64) {
        let count = position.saturating_sub(self.undo_start).min(self.undo.len() as u64);
        self.undo.drain(..count as usize);
        self.undo_start += count;
        let start = self.undo_start;
        self.durable_at.retain(|_, at| *at > start);
    }

    /// The range is durable as it is now (FUA).
    pub fn make_durable(&mut self, offset: u64, length: u64) {
        if self.volatile {
            let position = self.position();
            for sector in offset / SECTOR as u64..(offset + length) / SECTOR as u64 {
                self.durable_at.insert(sector as u32, position);
            }
        }
    }

    /// One bit of the range flips, or one sector becomes zero, on the durable media.
    pub fn rot(&mut self, offset: u64, length: u64, prng: &mut Prng) {
        if prng.percent(50) {
            self.flip_a_bit(offset, length, prng);
        } else {
            let start = (offset + prng.below(length)) as usize / SECTOR * SECTOR;
            self.image[start..start + SECTOR].fill(0);
        }
    }

    /// One of these bits turns round, for good.
    pub fn flip_a_bit(&mut self, offset: u64, length: u64, prng: &mut Prng) {
        self.image[(offset + prng.below(length)) as usize] ^= 1 << prng.below(8);
    }

    /// 4 KiB pages that a power cut could change.
    pub fn unflushed_pages(&self) -> BTreeSet<u64> {
        self.undo.iter().map(|entry| u64::from(entry.sector) / 8).collect()
    }

    fn unit_numbers(&self) -> Vec<usize> {
        let mut unit = 0;
        let mut last: Option<(u32, u32)> = None;
        let number = |entry: &Undo| {
            let key = (entry.write, entry.sector / 8);
            if last.is_some_and(|last| last != key) {
                unit += 1;
            }
            last = Some(key);
            unit
        };
        self.undo.iter().map(number).collect()
    }

    /// The power goes: what was not flushed is kept or lost as said; what is left is durable.
    pub fn power_cut(&mut self, keep: Keep, prng: &mut Prng) {
        let count = self.undo.len();
        let units = self.unit_numbers();
        let unit_count = units.last().map_or(0, |last| last + 1);
        let special = if unit_count > 0 { prng.below(unit_count as u64) as usize } else { 0 };
        let salt = prng.bits();
        let draw = |key: u64, percent: u32| Prng::new(salt ^ key).percent(percent);
        let mut settled = BTreeSet::new();
        for index in (0..count).rev() {
            let entry = &self.undo[index];
            if settled.contains(&entry.sector) {
                continue;
            }
            let covered = self.durable_at.get(&entry.sector).is_some_and(|at| self.undo_start + (index as u64) < *at);
            let kept = covered
                || match keep {
                    Keep::None => false,
                    Keep::All => true,
                    Keep::Sectors(percent) => draw(index as u64, percent),
                    Keep::Blocks(percent) => draw(units[index] as u64, percent),
                    Keep::Writes(percent) => draw(u64::from(entry.write), percent),
                    Keep::Prefix(percent) => index * 100 < count * percent as usize,
                    Keep::Suffix(percent) => index * 100 >= count * (100 - percent as usize),
                    Keep::AllButOne => units[index] != special,
                    Keep::One => units[index] == special,
                    Keep::Mask(mask) => mask >> units[index].min(63) & 1 == 1,
                };
            if kept {
                settled.insert(entry.sector);
            } else {
                let at = entry.sector as usize * SECTOR;
                self.image[at..at + SECTOR].copy_from_slice(entry.before.as_deref().unwrap_or(&[0; SECTOR]));
            }
        }
        self.undo_start += count as u64;
        self.undo.clear();
        self.durable_at.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn media() -> (Media, Prng) {
        (Media::new(64 << 10, true), Prng::new(5))
    }

    fn put(media: &mut Media, sector: u64, byte: u8) {
        media.next_write();
        media.write(sector * 512, &[byte; SECTOR]);
    }

    fn at(media: &Media, sector: u64) -> u8 {
        media.bytes(sector * 512, 512)[100]
    }

    #[test]
    fn a_power_cut_goes_back_to_what_was_flushed() {
        let (mut media, mut prng) = media();
        put(&mut media, 1, 1);
        let covered = media.position();
        put(&mut media, 1, 2);
        put(&mut media, 2, 3);
        media.flush(covered);
        put(&mut media, 2, 4);
        assert_eq!((at(&media, 1), at(&media, 2)), (2, 4));
        media.power_cut(Keep::None, &mut prng);
        assert_eq!((at(&media, 1), at(&media, 2)), (1, 0));
    }

    #[test]
    fn fua_is_durable_whatever_came_before_it_was_not() {
        let (mut media, mut prng) = media();
        put(&mut media, 1, 1);
        put(&mut media, 1, 2);
        media.make_durable(512, 512);
        put(&mut media, 1, 3);
        media.power_cut(Keep::None, &mut prng);
        assert_eq!(at(&media, 1), 2);
    }

    #[test]
    fn every_subset_of_units_can_survive() {
        for mask in 0..8 {
            let (mut media, mut prng) = media();
            for write in 0..3 {
                put(&mut media, 8 * write, 7);
            }
            assert_eq!(media.units(), 3);
            media.power_cut(Keep::Mask(mask), &mut prng);
            assert!((0..3).all(|unit| (at(&media, 8 * unit) == 7) == (mask >> unit & 1 == 1)), "mask {mask}");
        }
    }

    #[test]
    fn random_cuts_leave_some_version_of_each_sector_and_every_one_of_them() {
        let mut seen = BTreeSet::new();
        for seed in 0..400 {
            let (mut media, _) = media();
            let mut prng = Prng::new(seed);
            put(&mut media, 1, 1);
            media.flush(media.position());
            put(&mut media, 1, 2);
            put(&mut media, 1, 3);
            put(&mut media, 2, 9);
            let keep = Keep::draw(&mut prng);
            media.power_cut(keep, &mut prng);
            seen.insert((at(&media, 1), at(&media, 2)));
        }
        let all = BTreeSet::from([(1, 0), (1, 9), (2, 0), (2, 9), (3, 0), (3, 9)]);
        assert_eq!(seen, all);
    }

    #[test]
    fn without_a_volatile_cache_nothing_is_lost() {
        let mut media = Media::new(4096, false);
        put(&mut media, 1, 1);
        media.power_cut(Keep::None, &mut Prng::new(1));
        assert_eq!(at(&media, 1), 1);
    }
}
