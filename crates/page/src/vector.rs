//! A run of pages that together hold the blocks of one request.

use crate::{Page, PageMut};
use smallvec::SmallVec;

/// Pages in block order. One page (a 4 KiB request, the usual one) needs no allocation.
pub type PageVec = SmallVec<[Page; 1]>;

/// Pages that a device is to fill: each has this one owner until the read is done.
pub type PageMutVec = SmallVec<[PageMut; 1]>;
