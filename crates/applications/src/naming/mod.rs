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

mod rows;

pub(crate) use crate::discovery::ObjectKind;
pub use rows::ROWS_MAX;
pub(crate) use rows::Rows;

use crate::Engine;
use crate::filesystems::DataFile;
use crate::page::{Certainty, Page};
use std::fmt::Debug;
use std::ops::Range;

/// What a page of an object says that it belongs to, within one instance: of InnoDB space id and
/// index id, of PostgreSQL 0 and `relfilenode` (pages do not carry it; file names do), of SQL Server
/// 0 and the allocation unit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NativeKey(pub u32, pub u64);

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

impl Name {
    /// In full, within a database that it does not name itself: `shop.orders/PRIMARY`, `shop/public.orders`,
    /// `shop/public.orders/orders_pkey`, `pg_toast.orders` (the long values of that table).
    pub(crate) fn full(&self, database: Option<&str>) -> String {
        let part = |part: Option<&str>, mark: &str| part.map_or_else(String::new, |part| format!("{part}{mark}"));
        let above = part(database, "/") + &part(self.database.as_deref(), ".") + &part(self.schema.as_deref(), ".");
        let index = self.index.as_ref().map_or_else(String::new, |index| format!("/{index}"));
        format!("{above}{}{index}", self.table.as_deref().unwrap_or("?"))
    }
}

/// What is wanted of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// How soon: all of a lower number first, as it may make others unneeded.
    pub round: u8,
    /// Bytes of the file.
    pub range: Range<u64>,
    /// Where the file begins in what it is a part of.
    pub file_start_bytes: u64,
}

impl Wanted {
    /// The first bytes of a file, so many at most.
    pub(crate) fn first(round: u8, bytes: u64, file: &DataFile) -> Wanted {
        Wanted { round, range: 0..bytes.min(file.bytes), file_start_bytes: 0 }
    }
}

/// Rounds in which a catalogue asks for files.
pub(crate) const ROUNDS: u8 = 3;

/// The names of one instance of a database, from pages of its own dictionary.
pub(crate) trait Catalogue: Debug + Send {
    /// Takes a page in that is known well enough; see [`Dictionary::page`]. `bytes` end with the page, or before where
    /// the file does.
    fn page(&mut self, page: &Page, bytes: &[u8], file_offset_bytes: u64) -> bool;

    /// The part of a file of this instance that may hold names, by what is known now. Ask again after each round: what
    /// was read tells where the next of it lies.
    fn wants(&self, file: &DataFile) -> Option<Wanted>;

    /// All objects with names.
    fn names(&self) -> Vec<Name>;

    /// See [`Dictionary::conflicts`].
    fn conflicts(&self) -> u64;
}

impl dyn Catalogue + '_ {
    /// What it wants of a file, as far as the file has it.
    pub(crate) fn wants_of(&self, file: &DataFile) -> Option<Wanted> {
        self.wants(file).filter(|wanted| wanted.range.end <= file.bytes && !wanted.range.is_empty())
    }

    /// Takes a page in, with its bytes and what follows them.
    pub(crate) fn take(&mut self, page: &Page, bytes: &[u8], file_offset_bytes: u64) -> bool {
        let bytes = &bytes[..bytes.len().min(page.size_bytes as usize)];
        page.whole && page.certainty > Certainty::Suspect && self.page(page, bytes, file_offset_bytes)
    }
}

/// What is known of the names of one instance, of whatever database.
#[derive(Debug)]
pub struct Dictionary {
    catalogues: Vec<(Engine, Box<dyn Catalogue>)>,
}

impl Default for Dictionary {
    fn default() -> Dictionary {
        let catalogue = |engine: &Engine| Some((*engine, engine.facts().files?.catalogue()));
        Dictionary { catalogues: Engine::ALL.iter().filter_map(catalogue).collect() }
    }
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
        let own = self.catalogues.iter_mut().find(|(engine, _)| *engine == page.engine);
        own.is_some_and(|(_, catalogue)| catalogue.take(page, bytes, file_offset_bytes))
    }

    /// The part of a file of this instance that may hold names, by what is known now; `None` if
    /// none does.
    #[must_use]
    pub fn wants(&self, file: &DataFile) -> Option<Wanted> {
        let (_, catalogue) = self.catalogues.iter().find(|(engine, _)| *engine == file.engine)?;
        catalogue.wants_of(file)
    }

    /// All objects with names, by engine.
    pub fn names(&self) -> impl Iterator<Item = Name> + '_ {
        self.catalogues.iter().flat_map(|(_, catalogue)| catalogue.names())
    }

    /// How often one id was found with two names at about the same time: more than a few mean that
    /// pages of two instances were mixed.
    #[must_use]
    pub fn conflicts(&self) -> u64 {
        self.catalogues.iter().map(|(_, catalogue)| catalogue.conflicts()).sum()
    }
}
