//! What was fetched from the SSD goes to the part that asked for it.
//!
//! One after the other: what becomes of a block may decide how the next one is decoded, or stored.

use super::Shard;
use super::fetch::{Fetched, Wanted};
use super::parts::{PartsRead, Singly};
use crate::api::IoError;
use alloc::boxed::Box;
use page::PageMutVec;

impl Shard {
    /// Parts have been read, or not.
    pub(super) fn parts_read(&mut self, read: PartsRead, result: Result<(), IoError>, pages: PageMutVec) {
        let PartsRead { parts, singly } = read;
        if result.is_err() && parts.len() > 1 {
            let singly = Singly { parts: parts.into_vec(), spare: pages.into_iter().collect() };
            return self.read_next_singly(Box::new(singly));
        }
        let from_page = parts[0].first_page;
        for part in &parts {
            let pages = &pages[(part.first_page - from_page) as usize..][..part.pages as usize];
            self.store.readers().end(part.region);
            if let Some(fetched) = self.fetch_read(part.fetch, part.part, result.is_ok().then_some(pages)) {
                self.fetched(fetched);
            }
        }
        if let Some(mut singly) = singly {
            singly.spare.extend(pages);
            self.read_next_singly(singly);
        }
    }

    /// Fetches for which there was nothing to read.
    #[inline(never)]
    pub(super) fn end_fetches_without_io(&mut self) {
        while let Some(id) = self.fetched_without_io.pop_front() {
            let fetched = self.fetch_done(id);
            self.fetched(fetched);
        }
    }

    fn fetched(&mut self, fetched: Fetched) {
        let Fetched { wanted, key, base_was_read, result } = fetched;
        match wanted {
            Wanted::Read { op, index } => {
                if let (Ok(page), true) = (&result, base_was_read) {
                    self.make_whole(key, page);
                }
                self.packed_read(op, index, result);
            }
            Wanted::Edge { op, edge } => self.packed_edge_read(op, edge, key, result),
            Wanted::Destage { run, at } => self.packed_destage_read(run, at, result),
            Wanted::Base(object) => {
                for (key, heat) in self.base_read(object, result) {
                    self.admit_from_ram(key, heat);
                }
            }
            Wanted::Scrub(slot) => self.packed_scrubbed(key, slot, result),
        }
    }
}
