//! What the rules need of a page that was recognised.

use super::seen::PageAt;
use crate::{Native, Page, PageKind};
use types::ObjectId;

/// SQL Server's page types of rows: data and index.
const MSSQL_ROWS: [u8; 2] = [1, 2];

impl PageAt {
    /// The page at its place. `object` is whose the map says that it is: pages of PostgreSQL do not
    /// say it themselves, and encrypted ones of InnoDB neither. `None` if no rule can use it.
    pub fn of(page: &Page, offset_bytes: u64, object: Option<ObjectId>) -> Option<PageAt> {
        let mapped = || object.map(|object| 1 << 63 | u64::from(object.0));
        let at = |owner, number, prev, next, level: u32, leaf| PageAt {
            offset_bytes,
            len_bytes: page.stored_bytes,
            owner,
            number,
            prev,
            next,
            level: u16::try_from(level).unwrap_or(u16::MAX),
            leaf,
            log: false,
            home_bytes: None,
        };
        if page.kind == PageKind::Log {
            return Some(PageAt { log: true, ..at(0, 0, None, None, 0, false) });
        }
        match page.native {
            Native::Innodb(identity) => {
                // As `discovery` has it: index ids are unique in a server, space ids too, and either
                // tells servers apart better than one.
                let named = identity.space.map(|space| u64::from(space) << 32 | identity.index.unwrap_or(0) & 0xffff_ffff);
                let level = identity.level.unwrap_or(0);
                let leaf = identity.index.is_some() && identity.level == Some(0);
                Some(at(named.or_else(mapped)?, identity.page, identity.prev, identity.next, level.into(), leaf))
            }
            Native::Postgres(identity) => {
                let number = identity.block_by_tuples;
                let (prev, next, leaf) = match (page.kind, identity.level) {
                    (PageKind::Index, Some(level)) => (identity.prev, identity.next, level == 0),
                    // A heap is read in the order of its blocks.
                    (PageKind::Table, _) => (number.and_then(|number| number.checked_sub(1)), None, true),
                    _ => (None, None, false),
                };
                Some(at(mapped()?, number?, prev, next, identity.level.unwrap_or(0), leaf))
            }
            Native::Mssql(identity) => {
                let same_file = |link: Option<(u32, u16)>| link.filter(|link| link.1 == identity.file).map(|link| link.0);
                let leaf = identity.level == 0 && MSSQL_ROWS.contains(&identity.page_type);
                let owner = identity.allocation_unit();
                let (prev, next) = (same_file(identity.prev), same_file(identity.next));
                Some(at(owner, identity.page, prev, next, identity.level.into(), leaf))
            }
            // Blocks of a segment do not name each other; they are read in the order of their
            // extents.
            Native::Oracle(identity) => {
                let owner = u64::from(identity.data_object?) << 32 | u64::from(identity.file());
                Some(at(owner, identity.block(), identity.block().checked_sub(1), None, 0, true))
            }
            _ => None,
        }
    }
}
