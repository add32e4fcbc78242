//! Bases that are not in memory are read from the SSD before blocks that may rest on them are stored.
//!
//! What is read is a hint like all else the packer has at hand: whoever asked goes on when it is there, or was not to be had, and finds out then
//! what the block can rest on. Nothing waits where that could hold something up: with too many such reads on their way, or without pages for one
//! more, a block is stored with what is at hand.

use super::Shard;
use super::fetch::{Unfetched, Wanted};
use crate::key::{Key, Map};
use crate::locks::OpId;
use crate::packer::AtHand;
use crate::policy::Heat;
use crate::store::Purpose;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use page::Page;
use smallvec::{SmallVec, smallvec};

/// Such reads on their way at most: a database writes a hundred pages of 16 KiB at once. Half of what may be kept, too, so that none pushes out another.
const READS_MAX: usize = 1024;

/// Bases asked for by blocks about to leave RAM that are remembered, so that a block whose base is gone again does not ask for ever.
const ASKED_MAX: usize = 64;

/// Who waits for a base.
#[derive(Clone, Copy)]
enum Waiter {
    /// A write into the store.
    Write(OpId),
    /// A block that stays in RAM meanwhile, and is to be stored with this heat.
    Admission(Key, Heat),
}

/// See the module.
#[derive(Default)]
pub struct BaseReads {
    /// The objects on their way, and who waits for them.
    under_way: Map<u64, SmallVec<[Waiter; 1]>>,
    /// Asked for lately by blocks that leave RAM.
    asked: VecDeque<u64>,
}

impl Shard {
    /// Starts reading the bases that the whole blocks of a write into the store may rest on; it waits for them.
    pub(super) fn gather_bases(&mut self, id: OpId) {
        if !self.packer.is_on() {
            return;
        }
        let op = self.ops.get(id);
        for index in 0..op.request.pages.len() {
            let op = self.ops.get(id);
            if op.mask(index) != u8::MAX {
                continue;
            }
            let (key, page) = (op.key(index), op.request.pages[index].clone());
            if let Some(object) = self.wanted_base(key, &page)
                && self.read_base(object, Waiter::Write(id), false)
            {
                self.ops.get_mut(id).pending += 1;
            }
        }
    }

    /// Whether a clean block about to leave RAM for the SSD had better stay until a base is there on which it may rest: it goes to the SSD then, and
    /// is a copy from there on.
    pub(super) fn awaits_base(&mut self, key: Key, heat: Heat) -> bool {
        if !self.packer.is_on() || !self.store.has_room(Purpose::Clean) {
            return false;
        }
        let Some(page) = self.ram.get(key).map(|block| block.page.clone()) else { return false };
        let Some(object) = self.wanted_base(key, &page) else { return false };
        if self.bases.asked.contains(&object) || !self.read_base(object, Waiter::Admission(key, heat), true) {
            return false;
        }
        if self.bases.asked.len() == ASKED_MAX {
            self.bases.asked.pop_front();
        }
        self.bases.asked.push_back(object);
        true
    }

    fn wanted_base(&mut self, key: Key, page: &Page) -> Option<u64> {
        let rests_on = self.rests_on(key);
        let at_hand = AtHand { index: &self.index, ram: &self.ram, store: &self.store };
        self.packer.wanted_base(self.now_ns, key.volume(), page, rests_on, &at_hand)
    }

    /// Starts reading an object, or joins who does. False if that is not possible now.
    fn read_base(&mut self, object: u64, waiter: Waiter, background: bool) -> bool {
        if let Some(waiters) = self.bases.under_way.get_mut(&object) {
            waiters.push(waiter);
            return true;
        }
        let Some(slot) = self.index.object(object) else { return false };
        if self.bases.under_way.len() >= READS_MAX.min(self.packer.options().base_pages / 2) || self.loss.is_ssd_failed() {
            return false;
        }
        let Some(mut buffers) = self.allocate(self.fetch_pages(slot)) else { return false };
        self.bases.under_way.insert(object, smallvec![waiter]);
        // What is stored in full needs no address: it is known by its number.
        let key = self.index.key_of(slot).unwrap_or(Key(0));
        self.fetch(Wanted::Base(object), key, slot, background, &mut buffers);
        true
    }

    /// An object has been read, or not. It may be no more by now. Gives the blocks that stayed in RAM for it, with the heat to store them with.
    pub(super) fn base_read(&mut self, object: u64, result: Result<Page, Unfetched>) -> Vec<(Key, Heat)> {
        let waiters = self.bases.under_way.remove(&object).expect("a base that was asked for");
        if self.index.object(object).is_some() {
            match result {
                Ok(page) => self.packer.keep(object, &page),
                Err(_) => self.packer.condemn(object),
            }
        }
        let mut admissions = Vec::new();
        for waiter in waiters {
            match waiter {
                Waiter::Write(id) => {
                    let op = self.ops.get_mut(id);
                    op.pending -= 1;
                    if op.pending == 0 {
                        self.ready.push_back(id);
                    }
                }
                Waiter::Admission(key, heat) => admissions.push((key, heat)),
            }
        }
        admissions
    }
}
