//! Names of databases, tables and indexes, from pages of the servers' own dictionaries.
//!
//! Feed a [`Dictionary`] every page that is recognised; it takes those it can read. One dictionary
//! is for one instance, as ids mean nothing beyond: two servers on one device have the same space
//! ids. Which pages belong together is for the caller to say: those of one data directory where a
//! file system was read, else those of one neighbourhood of the device. For PostgreSQL an instance
//! here is one database, as each has a catalogue of its own. [`Dictionary::conflicts`] counts what
//! gives a mix away.
//!
//! | server | read | versions |
//! |---|---|---|
//! | MariaDB, MySQL 5.5-5.7 | SYS_TABLES, SYS_INDEXES: indexes 1 and 3 of space 0 | all with these |
//! | MySQL 8 | SDI pages of each tablespace, if the description fits in the page | 8.0, 8.4 |
//! | PostgreSQL | `pg_class`, `pg_namespace`, `pg_index`, `pg_filenode.map` | 12 to 18; before 12 the oid was no column |
//! | SQL Server | sysschobjs, sysrowsets, sysallocunits, sysidxstats, sysclsobjs | seen on files of version 611 (2005) |
//!
//! Memory is bounded: rows beyond [`ROWS_MAX`] of a kind are left out, and their objects stay
//! unnamed.

mod file_name;
mod innodb;
mod mssql;
mod postgres;
mod rows;
mod sdi;
mod wanted;

pub(crate) use innodb::split as innodb_name;
pub(crate) use postgres::{Version as RowVersion, databases as postgres_databases};
pub use rows::ROWS_MAX;
pub use wanted::Wanted;

use crate::page::{Certainty, Native, Page};

/// What a page of an object says that it belongs to, within one instance.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NativeKey {
    /// An index of InnoDB: space id, index id.
    Innodb(u32, u64),
    /// The file of a PostgreSQL relation: `relfilenode`. Pages do not carry it; file names do.
    Postgres(u32),
    /// An allocation unit of SQL Server.
    Mssql(u64),
}

/// What an object is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ObjectKind {
    /// The rows of a table: a heap, or a clustered index.
    Table,
    /// A secondary index.
    Index,
    /// Values too long for their rows: TOAST tables, LOB allocation units.
    Lob,
    /// A sequence.
    Sequence,
    /// A part of the server's own dictionary.
    Dictionary,
}

/// An object and its names, as the server's catalogue has them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Name {
    /// What pages of it carry.
    pub key: NativeKey,
    /// The database (of PostgreSQL: unknown here, its directory says), `None` where there is none.
    pub database: Option<String>,
    /// The schema, where the server has them.
    pub schema: Option<String>,
    /// The table; `None` for an index of PostgreSQL whose table was not seen.
    pub table: Option<String>,
    /// The index, where it is one with a name.
    pub index: Option<String>,
    /// What it is.
    pub kind: ObjectKind,
    /// The page of its root, where the dictionary says.
    pub root: Option<u32>,
}

/// What is known of the names of one instance.
#[derive(Default, Debug)]
pub struct Dictionary {
    innodb: innodb::Tables,
    sdi: sdi::Tables,
    postgres: postgres::Catalogue,
    mssql: mssql::Catalogue,
}

impl Dictionary {
    /// An empty one.
    #[must_use]
    pub fn new() -> Dictionary {
        Dictionary::default()
    }

    /// Takes a page in, with its bytes and where it begins in its file. Whether it was of a
    /// dictionary, and newer than what was known of it. Of several copies of a page the one with the
    /// highest LSN counts, in whatever order they come. Only pages of PostgreSQL need their place,
    /// as others carry their number.
    pub fn page(&mut self, page: &Page, bytes: &[u8], file_offset_bytes: u64) -> bool {
        let Some(bytes) = bytes.get(..page.size_bytes as usize).filter(|_| page.whole) else {
            // A file of 512 bytes that is read to its end.
            return page.native == Native::FilenodeMap && self.postgres.map(bytes);
        };
        if page.certainty == Certainty::Suspect {
            return false;
        }
        match page.native {
            Native::Innodb(identity) => self.innodb.page(&identity, bytes) || self.sdi.page(&identity, bytes),
            Native::Postgres(identity) => self.postgres.page(&identity, bytes, file_offset_bytes / u64::from(page.size_bytes.max(1))),
            Native::FilenodeMap => self.postgres.map(bytes),
            Native::Mssql(identity) => self.mssql.page(&identity, bytes),
            _ => false,
        }
    }

    /// The file of a relation of PostgreSQL that a `pg_filenode.map` named.
    pub(crate) fn postgres_file(&self, oid: u32) -> Option<u32> {
        self.postgres.mapped_file(oid)
    }

    /// Names of files of PostgreSQL that their relations had until a change that may not be done.
    pub(crate) fn postgres_names_before(&self) -> impl Iterator<Item = Name> + '_ {
        self.postgres.names_before()
    }

    /// All objects with names, by engine.
    pub fn names(&self) -> impl Iterator<Item = Name> + '_ {
        self.innodb.names().chain(self.sdi.names()).chain(self.postgres.names()).chain(self.mssql.names())
    }

    /// How often one id was found with two names at about the same time: more than a few mean that
    /// pages of two instances were mixed.
    #[must_use]
    pub fn conflicts(&self) -> u64 {
        self.innodb.conflicts() + self.sdi.conflicts() + self.postgres.conflicts() + self.mssql.conflicts()
    }
}
