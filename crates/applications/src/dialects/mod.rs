//! The databases that hearth knows: one table, and the file of each.
//!
//! A new database is one file here that implements [`Dialect`], and its line in the table below. All that differs
//! between databases goes through that trait; nothing else names an engine. `toy.rs` is such a file, for tests.

mod files;
pub mod innodb;
pub mod mssql;
pub mod oracle;
pub mod postgres;
mod sqlite;
#[cfg(test)]
mod toy;
mod wiredtiger;

pub(crate) use files::{Claim, DataFiles, FilePath, Home, Places, Work, is_digits, up};

use crate::page::Page;
use crate::recognise::Head;
use crate::streams::Subject;
use types::StreamClass;

/// Makes the table: engine, number and dialect can be given together only.
macro_rules! engines {
    ($($(#[doc = $doc:literal])+ $(#[cfg($only:meta)])? $engine:ident = $number:literal, $dialect:expr;)+) => {
        /// The engine of a database: what wrote a page, or made a file.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum Engine {
            $($(#[doc = $doc])+ $(#[cfg($only)])? $engine = $number,)+
        }

        impl Engine {
            /// All of them, in the order in which they are asked whose a page or a file is.
            pub const ALL: &[Engine] = &[$($(#[cfg($only)])? Engine::$engine,)+];

            /// What its pages and files are like.
            pub(crate) fn dialect(self) -> &'static dyn Dialect {
                match self {
                    $($(#[cfg($only)])? Engine::$engine => &$dialect,)+
                }
            }
        }
    };
}

// The numbers stand in samples of the tap. Pages of SQLite are known by little: it comes last.
engines! {
    /// InnoDB, of MySQL or MariaDB, with the redo log and binary log that belong to it.
    Innodb = 1, innodb::Innodb;
    /// PostgreSQL.
    Postgres = 2, postgres::Postgres;
    /// Microsoft SQL Server.
    Mssql = 3, mssql::Mssql;
    /// Oracle Database.
    Oracle = 4, oracle::Oracle;
    /// A database of three files, for tests.
    #[cfg(test)]
    Toy = 200, toy::Toy;
    /// WiredTiger, of MongoDB. Its blocks do not say whose they are.
    WiredTiger = 6, wiredtiger::WiredTiger;
    /// SQLite. Its pages carry too little to be more than a hint.
    Sqlite = 5, sqlite::Sqlite;
}

impl Engine {
    /// Its number on the wire, above 0. It never changes.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The one of that number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Engine> {
        Engine::ALL.iter().copied().find(|engine| engine.number() == number)
    }

    /// The one whose server has that word; see [`Facts::server`].
    #[must_use]
    pub fn from_server(word: &str) -> Option<Engine> {
        Engine::ALL.iter().copied().find(|engine| engine.facts().server == Some(word))
    }

    /// What is always so of it.
    #[must_use]
    pub fn facts(self) -> &'static Facts {
        self.dialect().facts()
    }

    /// The name shown to a person.
    #[must_use]
    pub fn title(self) -> &'static str {
        self.facts().title
    }

    /// Whether a look at a volume finds its files, where the file system can be read.
    #[must_use]
    pub fn has_known_files(self) -> bool {
        self.facts().files.is_some()
    }
}

/// What is said of a database once for all of its pages and files.
pub struct Facts {
    /// The name shown to a person.
    pub title: &'static str,
    /// The word used on the command line, in JSON and in messages.
    pub name: &'static str,
    /// The word for its server in records of connections; `None`: its server cannot be asked for names.
    pub server: Option<&'static str>,
    /// Whether its pages say which object they are of. Else only their place tells.
    pub pages_name_their_object: bool,
    /// Whether it makes files longer by zeroes, long before it writes what belongs there.
    pub grows_files_by_zeroes: bool,
    /// Programs that copy it and background work of its server, as rules know them, and their class.
    pub programs: &'static [(Subject, &'static str, StreamClass)],
    /// Names of objects that every server has: they stay readable where names are hidden.
    pub own_names: &'static [&'static str],
    /// Databases that every server has, with equal objects: they do not tell servers apart.
    pub own_databases: &'static [&'static str],
    /// In the name of a copy that the server makes of a table to rebuild it.
    pub rebuild_mark: Option<&'static str>,
    /// The oldest major version whose catalogue is read; `None`: that of every version.
    pub named_from: Option<u32>,
    /// Names of directories that its files often lie below.
    pub directories: &'static [&'static str],
    /// What pages carry that are of the holder of an object, by what pages of the object carry; `None` where objects
    /// have no holder. The holder of an index of InnoDB is its tablespace.
    pub(crate) key_of_holder: Option<fn(u64) -> u64>,
    /// How its files are found; `None` where that is not known.
    pub(crate) files: Option<&'static dyn DataFiles>,
}

impl Facts {
    /// Of a database of which a few pages are known and nothing else.
    const fn of_pages(title: &'static str, name: &'static str) -> Facts {
        Facts {
            title,
            name,
            server: None,
            pages_name_their_object: true,
            grows_files_by_zeroes: false,
            programs: &[],
            own_names: &[],
            own_databases: &[],
            rebuild_mark: None,
            named_from: None,
            directories: &[],
            key_of_holder: None,
            files: None,
        }
    }
}

/// What differs between databases.
pub(crate) trait Dialect: Sync {
    /// What is always so.
    fn facts(&self) -> &'static Facts;

    /// The page of a table, an index or the like at the start of `bytes`, whose first bytes are `head`. One comparison
    /// or two lets nearly all foreign data leave.
    fn page(&self, bytes: &[u8], head: &Head) -> Option<Page>;

    /// The same for what is less common, as pages of logs: asked when no engine's [`Dialect::page`] has known it.
    fn rare_page(&self, bytes: &[u8], head: &Head) -> Option<Page>;

    /// Says how sure a whole page is, by its checksum; nothing changes where it has none. `bytes` are those that it was
    /// recognised in.
    fn verify(&self, page: &mut Page, bytes: &[u8]);
}

/// Which engine the file of that path is of, and how many of its sort are taken. Parts of the path are separated by
/// slashes.
pub(crate) fn claim(path: &str) -> Option<(Engine, Claim)> {
    let path = FilePath::of(path)?;
    Engine::ALL.iter().find_map(|engine| Some((*engine, engine.facts().files?.claims(&path)?)))
}

/// The engine that the file of that path is of; `None` if it is not known to be a database's.
#[must_use]
pub fn engine_of_file(path: &str) -> Option<Engine> {
    claim(path).map(|(engine, _)| engine)
}

/// What all dialects say of something.
pub(crate) fn facts() -> impl Iterator<Item = &'static Facts> {
    Engine::ALL.iter().map(|engine| engine.facts())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn numbers_and_words_are_those_of_before() {
        let numbers = [
            (Engine::Innodb, 1, "innodb", Some("mysql")),
            (Engine::Postgres, 2, "postgresql", Some("postgres")),
            (Engine::Mssql, 3, "sqlserver", None),
            (Engine::Oracle, 4, "oracle", None),
            (Engine::Sqlite, 5, "sqlite", None),
            (Engine::WiredTiger, 6, "wiredtiger", None),
        ];
        for (engine, number, name, server) in numbers {
            assert_eq!((engine.number(), engine.facts().name, engine.facts().server), (number, name, server));
            assert_eq!(Engine::from_number(number), Some(engine));
            assert_eq!(server.and_then(Engine::from_server), server.map(|_| engine));
        }
        assert_eq!((Engine::from_number(0), Engine::from_number(7), Engine::from_server("")), (None, None, None));
        let names: BTreeSet<_> = facts().flat_map(|facts| [Some(facts.name), facts.server]).flatten().collect();
        assert_eq!(names.len(), Engine::ALL.len() + 2, "no word means two");
    }

    #[test]
    fn a_file_is_of_one_engine() {
        let check = |path: &str, expected: Option<Engine>| assert_eq!(engine_of_file(path), expected, "{path}");
        check("var/lib/mysql/shop/orders.ibd", Some(Engine::Innodb));
        check("15/main/base/16384/1259", Some(Engine::Postgres));
        check("DATA/Shop.MDF", Some(Engine::Mssql));
        check("srv/toy/base.toy", Some(Engine::Toy));
        check("etc/passwd", None);
        check("", None);
        check("a/", None);
    }
}
