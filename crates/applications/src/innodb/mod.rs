//! InnoDB: pages of MySQL's and MariaDB's tablespaces, and their redo log.
//!
//! All numbers are big endian. A page begins with its number at 4, its neighbours in the level of a
//! B-tree at 8 and 12, its LSN at 16 and its type at 24. The low word of the LSN comes back in the
//! last eight bytes, and so tells the page size; compressed pages have no such trailer.

mod checksum;
mod recognise;
pub mod redo;

pub use recognise::{INDEX, SDI};
pub(crate) use recognise::{certainty, may_be, recognise};

/// How a page is stored, which decides what its checksum covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// MariaDB `full_crc32`: one CRC-32C over the whole page.
    FullCrc32,
    /// The older form, still that of MySQL: a checksum at both ends. It does not cover the space
    /// id.
    BothEnds,
    /// `ROW_FORMAT=COMPRESSED`: no trailer.
    Compressed,
    /// MariaDB `page_compressed` in `full_crc32`: shorter than its size; space and index are
    /// inside.
    PageCompressed,
    /// Compressed or encrypted by MySQL, or page-compressed by an older MariaDB.
    Sealed,
}

/// What an InnoDB page says about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// `FIL_PAGE_TYPE`; 17855 is an index page.
    pub page_type: u16,
    /// Its number in its tablespace.
    pub page: u32,
    /// The page before it in its level of the B-tree; `None` for pages that are in none.
    pub prev: Option<u32>,
    /// The page after it.
    pub next: Option<u32>,
    /// Log sequence number of its last change.
    pub lsn: u64,
    /// Its tablespace; `None` where it is encrypted or compressed away.
    pub space: Option<u32>,
    /// Whether the checksum covers the space id. In [`Form::BothEnds`] it does not: a flipped bit
    /// in it leaves the page `Verified`, so a new space should be believed from more than one page.
    pub space_covered: bool,
    /// The index, of index pages in the clear.
    pub index: Option<u64>,
    /// Its level in the index, 0 for leaves.
    pub level: Option<u16>,
    /// How it is stored.
    pub form: Form,
    /// Whether its body is encrypted.
    pub encrypted: bool,
}
