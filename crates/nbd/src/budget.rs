//! How many bytes of pages one connection may hold, beside the others of its export.
//!
//! Two limits, and a floor under them: a connection holds at most its own share; all connections of an export together at most half
//! of the pages that clients may use; and a connection that holds nothing may always hold a little. The floors of all connections
//! together fit into the other half. So however many clients stall with all they can get, the next one still makes progress, and
//! its large requests do, piece by piece. What cannot be divided (a large read without structured replies) waits; to end such a
//! wait, clients that stall are given less patience while somebody is short of pages.

use crate::exports::Export;
use crate::limits::Limits;
use page::PAGE_BYTES;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// One connection's account.
pub(crate) struct Budget {
    export: Arc<Export>,
    held_bytes: u64,
    own_bytes_max: u64,
    export_bytes_max: u64,
    floor_bytes: u64,
}

impl Budget {
    pub(crate) fn new(export: Arc<Export>, limits: &Limits) -> Budget {
        // An eighth of the pages that clients may use is the longest request; half is four times that.
        let export_bytes_max = 4 * u64::from(export.volume.request_bytes_max());
        let connections = limits.connections_max.max(1) as u64;
        let page_bytes = PAGE_BYTES as u64;
        // Small requests are whole up to 64 KiB even if that many connections could then hold a little more than half.
        let floor_bytes = (export_bytes_max / connections / page_bytes * page_bytes).clamp(64 << 10, 1 << 20);
        let own_bytes_max = limits.bytes_max.min(export_bytes_max / 4);
        Budget { export, held_bytes: 0, own_bytes_max, export_bytes_max, floor_bytes }
    }

    /// Takes `wanted_bytes`, or, if the request is divisible, at least something; `None` if that has to wait. Notes when
    /// the others hold too much.
    pub(crate) fn take(&mut self, now_ns: u64, wanted_bytes: u64, divisible: bool) -> Option<u64> {
        let own_fits = self.held_bytes == 0 || self.held_bytes + wanted_bytes <= self.own_bytes_max;
        if own_fits {
            if self.export_takes(wanted_bytes) {
                self.held_bytes += wanted_bytes;
                return Some(wanted_bytes);
            }
            self.export.note_shortage(now_ns);
        }
        if self.held_bytes > 0 || (wanted_bytes > self.floor_bytes && !divisible) {
            return None;
        }
        let floor_bytes = wanted_bytes.min(self.floor_bytes);
        self.export.held_bytes.fetch_add(floor_bytes, Ordering::Relaxed);
        self.held_bytes += floor_bytes;
        Some(floor_bytes)
    }

    fn export_takes(&self, bytes: u64) -> bool {
        let before = self.export.held_bytes.fetch_add(bytes, Ordering::Relaxed);
        let fits = before + bytes <= self.export_bytes_max;
        if !fits {
            self.export.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }

    /// Gives bytes back.
    pub(crate) fn give(&mut self, bytes: u64) {
        assert!(bytes <= self.held_bytes, "{bytes} given back of {}", self.held_bytes);
        self.held_bytes -= bytes;
        self.export.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// A read up to this length is not worth dividing: it is always granted whole to a connection that holds nothing.
    pub(crate) fn undivided_bytes(&self) -> u64 {
        self.floor_bytes
    }

    /// Whether nothing is held: then nothing of this connection's own will make room, and it must ask again by the clock.
    pub(crate) fn is_empty(&self) -> bool {
        self.held_bytes == 0
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        self.give(self.held_bytes);
    }
}
