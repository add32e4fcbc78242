//! The names in a server's catalogue.

use crate::clients::Clients;
use crate::login::Login;
use crate::trouble::Trouble;

/// A server, as it introduces itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Server {
    /// The product with its version: `MariaDB 10.11.6`, `PostgreSQL 15.8`.
    pub product: String,
    /// As whom it knows us: `hearth@localhost`, `hearth`.
    pub user: String,
    /// Whether it tells us which programs are connected.
    pub programs: bool,
}

/// An index of InnoDB.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Index {
    /// The tablespace.
    pub space: u32,
    /// The index's id.
    pub index: u64,
    /// The page of its root.
    pub root: u32,
    /// Whether the rows are in it.
    pub clustered: bool,
    /// The table as InnoDB writes it, in the character set of file names: `shop/odd@0020name`.
    pub table: String,
    /// The index: `PRIMARY`.
    pub name: String,
}

/// What a relation of PostgreSQL is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RelationKind {
    /// Rows: a table, a materialised view, a sequence.
    Table,
    /// An index.
    Index,
    /// Long values of a table.
    Toast,
}

/// A relation of PostgreSQL that has a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Relation {
    /// Oid of its database; 0 for what all share.
    pub database: u32,
    /// Its file: `relfilenode`.
    pub file: u32,
    /// The name of its database; `None` for what all share.
    pub of: Option<String>,
    /// Its schema.
    pub schema: String,
    /// The table that it is, or is of.
    pub table: String,
    /// Its own name, if it is an index.
    pub index: Option<String>,
    /// What it is.
    pub kind: RelationKind,
    /// Whether the server made it itself: a part of its dictionary.
    pub own: bool,
}

/// All names of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Names {
    /// Of MySQL or MariaDB.
    Innodb(Vec<Index>),
    /// Of PostgreSQL.
    Postgres(Vec<Relation>),
}

impl Names {
    /// How many they are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Names::Innodb(indexes) => indexes.len(),
            Names::Postgres(relations) => relations.len(),
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a server's catalogue says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Catalogue {
    /// Whose.
    pub server: Server,
    /// The names.
    pub names: Names,
    /// Databases of PostgreSQL that did not let the login in, or did not answer.
    pub left_out: Vec<String>,
}

impl Catalogue {
    /// Asks a server; takes seconds at most for each of its databases, two minutes for all.
    ///
    /// # Errors
    /// With the reason, if nothing could be asked.
    pub fn ask(login: &Login, clients: &Clients) -> Result<Catalogue, Trouble> {
        login.client.catalogue(login, clients)
    }
}
