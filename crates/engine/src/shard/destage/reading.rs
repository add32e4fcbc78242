//! What a run needs from the SSD has been read, or could not be.

use super::super::Shard;
use super::super::fetch::Unfetched;
use super::super::singly::DestagePart;
use crate::api::IoError;
use crate::key::Key;
use crate::mutants;
use page::{Page, PageMutVec};
use smallvec::SmallVec;

impl Shard {
    /// A part of a run has been read from the SSD.
    pub(in super::super) fn destage_read(&mut self, part: DestagePart, result: Result<(), IoError>, pages: PageMutVec) {
        let DestagePart { run, region, first, .. } = part;
        if result.is_err() && pages.len() > 1 && !mutants::active(mutants::FAILED_READ_BLAMES_ALL) {
            let more = self.read_destage_singly(part, pages) - 1;
            self.store.readers().end(region);
            self.destager.runs.get_mut(&run).expect("a run under way").reading += more;
            return;
        }
        self.store.readers().end(region);
        let first_key = self.destager.runs[&run].first;
        let volume = self.volumes.of(first_key).id;
        let mut bad: SmallVec<[Key; 1]> = SmallVec::new();
        let state = self.destager.runs.get_mut(&run).expect("a run under way");
        state.reading -= 1;
        for (ahead, page) in pages.into_iter().enumerate() {
            let key = Key(first_key.0 + (first + ahead) as u64);
            if result.is_ok() && state.proofs[first + ahead].holds(volume, key.block(), &page) {
                state.pages[first + ahead] = Some(page.freeze());
            } else {
                state.failed = true;
                bad.push(key);
            }
        }
        for key in bad {
            self.destage_cannot_read(key, result.is_err());
        }
        self.destage_part_read(run);
    }

    /// A packed block of a run has been fetched, or not.
    pub(in super::super) fn packed_destage_read(&mut self, run: u32, at: usize, result: Result<Page, Unfetched>) {
        let state = self.destager.runs.get_mut(&run).expect("a run under way");
        state.reading -= 1;
        let key = Key(state.first.0 + at as u64);
        match result {
            Ok(page) => state.pages[at] = Some(page),
            Err(why) => {
                state.failed = true;
                self.destage_cannot_read(key, why == Unfetched::Unreadable);
            }
        }
        self.destage_part_read(run);
    }

    fn destage_part_read(&mut self, run: u32) {
        if self.destager.runs[&run].reading == 0 {
            self.write_run(run);
        }
    }
}
