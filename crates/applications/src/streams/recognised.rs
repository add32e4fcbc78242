//! What the rules need of a page that was recognised.

use super::seen::PageAt;
use crate::{Page, PageKind, PageOwner};
use types::ObjectId;

impl PageAt {
    /// The page at its place. `object` is whose the map says that it is: pages of PostgreSQL do not
    /// say it themselves, and encrypted ones of InnoDB neither. `None` if no rule can use it.
    pub fn of(page: &Page, offset_bytes: u64, object: Option<ObjectId>) -> Option<PageAt> {
        let at = PageAt {
            offset_bytes,
            len_bytes: page.stored_bytes,
            owner: 0,
            number: 0,
            prev: None,
            next: None,
            level: 0,
            leaf: false,
            log: false,
        };
        if page.kind == PageKind::Log {
            return Some(PageAt { log: true, ..at });
        }
        let owner = match page.owner {
            PageOwner::Named(owner) => owner,
            PageOwner::Unnamed => 1 << 63 | u64::from(object?.0),
            PageOwner::None => return None,
        };
        let Page { prev, next, level, is_leaf: leaf, .. } = *page;
        Some(PageAt { owner, number: page.number?, prev, next, level, leaf, ..at })
    }
}
