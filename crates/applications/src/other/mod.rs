//! Engines whose pages are good for a hint, as they do not say what they belong to.

mod sqlite;
mod wiredtiger;

use crate::page::Page;
use crate::recognise::Head;

/// The page at the start of `bytes`.
#[inline]
pub(crate) fn recognise(bytes: &[u8], head: &Head) -> Option<Page> {
    crate::postgres::filenode_map(bytes, head).or_else(|| wiredtiger::recognise(bytes, head)).or_else(|| sqlite::recognise(bytes, head))
}
