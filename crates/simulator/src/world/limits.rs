//! Promises that can be looked at from outside at any moment.

use engine::api::{Io, IoKind};
use page::Page;

use super::devices::name_of;
use super::{Step, World, failed};
use crate::disk::Disk;

/// One GiB, hundreds of times what a device of a run holds.
const UNFLUSHED_SECTORS_MAX: usize = 2 << 20;

impl World<'_> {
    /// No device is written over and over with never a flush. A run in which one is would go on, and take memory, until it has
    /// been stuck for long.
    pub fn check_flushes(&mut self) -> Step {
        let unflushed = |device: &Disk| device.media.unflushed_sectors() > UNFLUSHED_SECTORS_MAX;
        let Some(device) = self.devices.iter().position(unflushed) else { return Ok(()) };
        let (name, pending, inside) = (name_of(device), self.pending_text(), self.system_mut().describe());
        Err(failed(format!("{name}: {UNFLUSHED_SECTORS_MAX} sectors were written with no flush; pending: {pending}; {inside}")))
    }

    /// C8: dirty data stays below its limit. A limit smaller than one request lets one through at a time, in each shard; and a limit
    /// made smaller takes effect as dirty blocks go home.
    pub fn check_dirty_limits(&mut self) -> Step {
        let shards = u64::from(self.plan.shards);
        for volume in 0..self.volumes.len() {
            // What cannot be read never goes home and is not held against those who write.
            let unreadable = self.wounds.open.keys().filter(|(of, _)| usize::from(*of) == volume).count() as u64;
            let dirty = self.system_mut().dirty_blocks(volume as u16);
            let state = &mut self.volumes[volume];
            // Every shard has an equal part of the limit; one that is above it, since the limit was made smaller, does not hold up the others.
            let most = (state.options.dirty_limit_bytes / 4096 / shards).max(state.longest_blocks);
            let before = std::mem::replace(&mut state.dirty_blocks, dirty.clone());
            let shard =
                (0..before.len().min(dirty.len())).find(|at| dirty[*at].saturating_sub(unreadable) > most && dirty[*at] > before[*at]);
            if let Some(shard) = shard {
                let have = dirty[shard];
                return Err(failed(format!("volume {volume} has {have} dirty blocks in shard {shard}, the limit there is {most}")));
            }
        }
        Ok(())
    }

    /// The log gets no fuller of dirty data than it may, or the cleaner would gain nothing. A write that begins below the limit may end above it by its own
    /// blocks and as many that they rest on, and is at most a quarter of the log; what a recovery found above the limit only goes home.
    pub fn check_dirty_pages(&mut self) -> Step {
        let longest = self.volumes.iter().map(|volume| volume.longest_blocks).max().unwrap_or(0);
        let now = self.system_mut().dirty_pages();
        let before = std::mem::replace(&mut self.dirty_pages, now.clone());
        let grown = |shard: &usize| {
            let ((pages, most), (had, _)) = (now[*shard], before[*shard]);
            pages > most + (2 * longest).min(most / 2) && pages > had
        };
        match (0..before.len().min(now.len())).find(grown) {
            None => Ok(()),
            Some(shard) => {
                let (pages, most) = now[shard];
                Err(failed(format!(
                    "dirty blocks take {pages} pages of the log of shard {shard} and become more, the limit there is {most}"
                )))
            }
        }
    }

    /// No part of the SSD is read while it is being written: such a read gets old, new or torn data, and then a sound SSD is taken for a damaged one. What
    /// is carried on as lost is written as zeroes, and reading it gives nothing at any time.
    pub fn check_no_race_on_ssd(&self, io: &Io) -> Step {
        let races = |other: &Io| match (&io.kind, &other.kind) {
            (IoKind::Read(_), IoKind::Write { pages, .. }) => meets_data(io, other, pages),
            (IoKind::Write { pages, .. }, IoKind::Read(_)) => meets_data(other, io, pages),
            _ => false,
        };
        match self.devices[0].flights().find(|flight| races(&flight.io)) {
            None => Ok(()),
            Some(other) => {
                let what = if matches!(io.kind, IoKind::Read(_)) { "read" } else { "write" };
                let places = [io, &other.io].map(|io| format!("{}..{}", io.offset_bytes, io.offset_bytes + io.length_bytes));
                Err(failed(format!("a {what} of the SSD at {} begins during one of {}", places[0], places[1])))
            }
        }
    }
}

/// Whether a read meets a page of the write that is not all zeroes.
fn meets_data(read: &Io, write: &Io, pages: &[Page]) -> bool {
    let page_bytes = types::BLOCK_BYTES;
    pages.iter().zip(0..).any(|(page, nth)| {
        let from = write.offset_bytes + nth * page_bytes;
        from < read.offset_bytes + read.length_bytes && read.offset_bytes < from + page_bytes && page.iter().any(|byte| *byte != 0)
    })
}
