//! What is known of a page from its bytes alone.

use crate::{Engine, innodb, mssql, oracle, postgres};

/// What a page is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PageKind {
    /// Rows of a table that are kept apart from any index: a heap, with TOAST tables.
    Table,
    /// A page of an index; of InnoDB also the rows, as they live in the primary index.
    Index,
    /// A part of a value too long for its row.
    Lob,
    /// Undo records.
    Undo,
    /// File headers, allocation maps, free space and visibility maps.
    Space,
    /// The engine's own dictionary, where its type says so.
    Dictionary,
    /// Redo, WAL, or the binary log.
    Log,
    /// Compressed or encrypted: the engine is known, what is inside is not.
    Sealed,
    /// Allocated, but of no known use now.
    Free,
    /// Anything else the engine keeps.
    Other,
}

/// How sure a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Certainty {
    /// Structure fits, but a checksum does not, or nothing that was seen proves it. Good for a
    /// question to the neighbours, never for a label of its own.
    Suspect,
    /// Structure and signature fit. A damaged page may still be `Likely`, until [`crate::verify`]
    /// looked.
    Likely,
    /// A checksum over the identity fits.
    Verified,
}

/// Which object a page is of, as far as it says itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageOwner {
    /// This one: any number that is equal for the pages of one object and different for others of a server.
    Named(u64),
    /// One that it does not name; where it lies tells.
    Unnamed,
    /// None whose pages follow each other.
    None,
}

/// What the page says about itself in the engine's own terms, for that engine's dialect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Native {
    /// Nothing beyond what [`Page`] has.
    Plain,
    /// A page of a tablespace.
    Innodb(innodb::Identity),
    /// A block of InnoDB's redo log.
    Redo(innodb::redo::Block),
    /// The first bytes of a MySQL or MariaDB binary log.
    Binlog,
    /// A page of a PostgreSQL relation.
    Postgres(postgres::Identity),
    /// A page of PostgreSQL's write-ahead log.
    Wal(postgres::wal::Identity),
    /// PostgreSQL's `pg_filenode.map`.
    FilenodeMap,
    /// A page of a SQL Server data file.
    Mssql(mssql::Identity),
    /// A block of an Oracle data file.
    Oracle(oracle::Identity),
    /// A page of an SQLite database: its type byte, 0 for the page with the header.
    Sqlite(u8),
    /// The head of an SQLite WAL.
    SqliteWal,
    /// A block of a WiredTiger file: its page type.
    WiredTiger(u8),
}

/// A recognised page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page {
    /// The engine that wrote it.
    pub engine: Engine,
    /// How sure it is.
    pub certainty: Certainty,
    /// What it is for.
    pub kind: PageKind,
    /// The engine's page size: page number times this is the position in the file.
    pub size_bytes: u32,
    /// What it takes on the device; less than its size where a compressed page ends in a hole.
    pub stored_bytes: u32,
    /// Whether its end was among the bytes. If not, `size_bytes` is what the head says, or the
    /// default.
    pub whole: bool,
    /// Its number in its file, where it carries one.
    pub number: Option<u32>,
    /// Which object it is of.
    pub owner: PageOwner,
    /// The number of the page before it in the order of a scan.
    pub prev: Option<u32>,
    /// The number of the page after it.
    pub next: Option<u32>,
    /// Its height in its tree; 0 is the leaves.
    pub level: u16,
    /// A page of rows, which a scan passes over.
    pub is_leaf: bool,
    /// What it says in its engine's own terms.
    pub native: Native,
}

impl Page {
    /// A whole page of that size which says nothing more.
    pub(crate) const fn new(engine: Engine, certainty: Certainty, kind: PageKind, size_bytes: u32) -> Page {
        Page {
            engine,
            certainty,
            kind,
            size_bytes,
            stored_bytes: size_bytes,
            whole: true,
            number: None,
            owner: PageOwner::None,
            prev: None,
            next: None,
            level: 0,
            is_leaf: false,
            native: Native::Plain,
        }
    }

    /// The page's position in its file, in bytes, where the page carries its number. Positions of a
    /// file's pages minus their positions on the device are the same all along an extent.
    #[must_use]
    pub fn file_offset(&self) -> Option<u64> {
        self.number.map(|number| u64::from(number) * u64::from(self.size_bytes))
    }
}
