//! What is known of a page from its bytes alone.

use crate::{innodb, mssql, oracle, postgres};

/// The engine that wrote a page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Engine {
    /// InnoDB, of MySQL or MariaDB, with the redo log and binary log that belong to it.
    Innodb,
    /// PostgreSQL.
    Postgres,
    /// Microsoft SQL Server.
    Mssql,
    /// Oracle Database.
    Oracle,
    /// SQLite. Its pages carry too little to be more than a hint.
    Sqlite,
    /// WiredTiger, of MongoDB. Its blocks do not say whose they are.
    WiredTiger,
}

impl Engine {
    /// All of them.
    pub const ALL: [Engine; 6] = [Engine::Innodb, Engine::Postgres, Engine::Mssql, Engine::Oracle, Engine::Sqlite, Engine::WiredTiger];

    /// The name shown to a person.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Engine::Innodb => "InnoDB",
            Engine::Postgres => "PostgreSQL",
            Engine::Mssql => "SQL Server",
            Engine::Oracle => "Oracle",
            Engine::Sqlite => "SQLite",
            Engine::WiredTiger => "WiredTiger",
        }
    }

    /// The word used on the command line, in JSON and in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Engine::Innodb => "innodb",
            Engine::Postgres => "postgresql",
            Engine::Mssql => "sqlserver",
            Engine::Oracle => "oracle",
            Engine::Sqlite => "sqlite",
            Engine::WiredTiger => "wiredtiger",
        }
    }
}

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

/// What the page says about itself, in the engine's own terms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Native {
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
    /// What it says about itself.
    pub native: Native,
}

impl Page {
    /// The engine that wrote it.
    #[must_use]
    pub const fn engine(&self) -> Engine {
        match self.native {
            Native::Innodb(_) | Native::Redo(_) | Native::Binlog => Engine::Innodb,
            Native::Postgres(_) | Native::Wal(_) | Native::FilenodeMap => Engine::Postgres,
            Native::Mssql(_) => Engine::Mssql,
            Native::Oracle(_) => Engine::Oracle,
            Native::Sqlite(_) | Native::SqliteWal => Engine::Sqlite,
            Native::WiredTiger(_) => Engine::WiredTiger,
        }
    }

    /// The page's number in its file, where the page carries one.
    #[must_use]
    pub fn number(&self) -> Option<u32> {
        match self.native {
            Native::Innodb(identity) => Some(identity.page),
            Native::Postgres(identity) => identity.block_by_tuples,
            Native::Mssql(identity) => Some(identity.page),
            Native::Oracle(identity) => Some(identity.block()),
            _ => None,
        }
    }

    /// The page's position in its file, in bytes, where the page carries its number. Positions of a
    /// file's pages minus their positions on the device are the same all along an extent.
    #[must_use]
    pub fn file_offset(&self) -> Option<u64> {
        self.number().map(|number| u64::from(number) * u64::from(self.size_bytes))
    }
}
