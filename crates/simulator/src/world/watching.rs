//! The story of one sector, for a person who repeats a seed: every I/O that touches it.

use super::devices::{backing_of, name_of};
use super::*;

impl World<'_> {
    fn watched_block(&self, device: usize, offset: u64, length: u64) -> bool {
        let Some((volume, sector)) = self.watch else { return false };
        let at = sector * 512;
        device == 0 || (device == backing_of(volume) && (length == 0 || (offset < at + 512 && at < offset + length)))
    }

    pub(super) fn watch_io(&mut self, device: usize, io: &engine::api::Io, verb: &str, result: Option<&str>) {
        if !self.watched_block(device, io.offset_bytes, io.length_bytes) {
            return;
        }
        let kind = match &io.kind {
            engine::api::IoKind::Read(_) => "read",
            engine::api::IoKind::Write { fua: true, .. } => "FUA write",
            engine::api::IoKind::Write { .. } => "write",
            engine::api::IoKind::Flush => "flush",
            engine::api::IoKind::WriteZeroes { .. } => "zero",
            engine::api::IoKind::Discard => "discard",
        };
        let holds = match &io.kind {
            engine::api::IoKind::Write { pages, .. } if device > 0 => {
                let (_, sector) = self.watch.expect("watching");
                let index = sector - io.offset_bytes / 512 + io.offset_bytes % 4096 / 512;
                let at = (index % 8 * 512) as usize;
                format!(" of {:?}", crate::content::read(&pages[(index / 8) as usize][at..at + 512]))
            }
            engine::api::IoKind::Write { pages, .. } => self.copies_in(io.offset_bytes, pages.iter().map(|page| &page[..])),
            _ => String::new(),
        };
        let name = name_of(device);
        let background = if io.background { " (background)" } else { "" };
        let (offset, end) = (io.offset_bytes, io.offset_bytes + io.length_bytes);
        let result = result.unwrap_or("");
        self.tell(format!("{name}: {kind} {} {offset}..{end}{holds}{background} {verb}{result}", io.id.0));
    }

    /// Copies of the watched sector among blocks of an SSD I/O, as text.
    pub(super) fn copies_in<'p>(&self, offset_bytes: u64, pages: impl Iterator<Item = &'p [u8]>) -> String {
        let (volume, sector) = self.watch.expect("watching");
        let at = (sector % 8 * 512) as usize;
        let mut text = String::new();
        for (index, page) in pages.enumerate() {
            match crate::content::read(&page[at..at + 512]) {
                Content::Data { volume: v, sector: s, write, .. } if (v, s) == (volume, sector) => {
                    let _ = write!(text, " [write {write} at {}]", offset_bytes + index as u64 * 4096);
                }
                // Whose it is cannot be told: any block of that pattern stands on it.
                Content::Pattern { pattern, index: at } if u64::from(at) == sector % 8 => {
                    let _ = write!(text, " [pattern {pattern} at {}]", offset_bytes + index as u64 * 4096);
                }
                _ => {}
            }
        }
        text
    }

    pub(super) fn tell_io_done(&mut self, device: usize, token: u64) {
        let Some((id, offset, length, lane, strike)) = self.devices[device].describe(token) else { return };
        if self.watched_block(device, offset, length) {
            self.tell(format!("{}: I/O {id} of lane {lane} at {offset} completes ({strike})", name_of(device)));
        }
    }
}
