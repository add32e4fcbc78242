//! What was appended and is not on the SSD yet: reads find it here.

use crate::index::Slot;
use crate::key::Map;
use alloc::vec::Vec;
use page::Page;

/// The payload of a packed record on its way to the SSD.
#[derive(Default)]
pub struct PackedPayload {
    /// Stored bytes, checksum first; none for a page, and where there is no payload.
    pub bytes: Vec<u8>,
    /// The block as clients see it, for whoever reads it before it is on the SSD, and to be stored if that is how. `None` if only its stored
    /// bytes are at hand.
    pub page: Option<Page>,
}

/// See the module.
#[derive(Default)]
pub struct InFlight {
    pages: Map<Slot, Page>,
    /// Stored bytes of packed records appended again.
    bytes: Map<Slot, Vec<u8>>,
}

impl InFlight {
    /// The content of a slot whose group is not complete.
    #[inline]
    pub fn page(&self, slot: Slot) -> Option<&Page> {
        if self.pages.is_empty() { None } else { self.pages.get(&slot) }
    }

    /// The stored bytes of a packed record that was appended again and whose group is not complete.
    pub fn bytes(&self, slot: Slot) -> Option<&[u8]> {
        if self.bytes.is_empty() { None } else { self.bytes.get(&slot).map(Vec::as_slice) }
    }

    pub(super) fn add(&mut self, slot: Slot, page: Page) {
        self.pages.insert(slot, page);
    }

    pub(super) fn add_packed(&mut self, slot: Slot, payload: PackedPayload) {
        match payload.page {
            Some(page) => self.add(slot, page),
            None if !payload.bytes.is_empty() => drop(self.bytes.insert(slot, payload.bytes)),
            None => {}
        }
    }

    /// The slots are on the SSD.
    pub(super) fn landed(&mut self, plain: impl Iterator<Item = Slot>, packed: impl Iterator<Item = Slot>) {
        for slot in plain {
            self.pages.remove(&slot);
        }
        for slot in packed {
            self.pages.remove(&slot);
            self.bytes.remove(&slot);
        }
    }
}
