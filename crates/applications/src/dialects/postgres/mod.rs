//! PostgreSQL: pages of relations, of the write-ahead log, and `pg_filenode.map`.
//!
//! All numbers are little endian (a big-endian host writes the others; such volumes are not
//! recognised). A page does not say which relation it belongs to. Its block number can be had in
//! two ways: heap tuples carry it in `t_ctid`, and the checksum includes it.

mod catalogue;
mod checksum;
mod clusters;
mod discover;
mod files;
mod recognise;
pub mod wal;

pub use checksum::holds;
pub use discover::FORK_BYTES;

use super::{Claim, DataFiles, Dialect, Facts, FilePath, Home, Work};
use crate::discovery::{Findings, Server, Source};
use crate::filesystems::DataFile;
use crate::naming::Catalogue;
use crate::page::{Native, Page};
use crate::recognise::Head;
use crate::streams::Subject;
use files::FileRole;
use types::StreamClass;

/// See [`crate::Engine::Postgres`].
pub(super) struct Postgres;

impl Dialect for Postgres {
    fn facts(&self) -> &'static Facts {
        const {
            &Facts {
                title: "PostgreSQL",
                name: "postgresql",
                server: Some("postgres"),
                pages_name_their_object: false,
                grows_files_by_zeroes: true,
                // `application_name` of programs, `backend_type` of the server's own processes.
                programs: &[
                    (Subject::Session, "pg_dump", StreamClass::Backup),
                    (Subject::Session, "pg_dumpall", StreamClass::Backup),
                    (Subject::Session, "pg_basebackup", StreamClass::Backup),
                    (Subject::Session, "walsender", StreamClass::Replication),
                    (Subject::Session, "autovacuum worker", StreamClass::Maintenance),
                ],
                own_names: &[],
                own_databases: &[],
                rebuild_mark: None,
                // Before, rows of the catalogue had their numbers beside them.
                named_from: Some(12),
                directories: &["postgresql", "pgsql", "base", "main"],
                key_of_holder: None,
                files: Some(&Postgres),
            }
        }
    }

    fn page(&self, bytes: &[u8], head: &Head) -> Option<Page> {
        if recognise::may_be(head) { recognise::recognise(bytes, head) } else { None }
    }

    fn rare_page(&self, bytes: &[u8], head: &Head) -> Option<Page> {
        wal::recognise(head).or_else(|| recognise::filenode_map(bytes, head))
    }

    fn verify(&self, page: &mut Page, bytes: &[u8]) {
        // Pages of the log have no checksum; the map was verified when it was recognised.
        if let Native::Postgres(identity) = &mut page.native {
            page.certainty = recognise::certainty(identity, page.size_bytes, page.certainty, bytes);
        }
    }
}

impl DataFiles for Postgres {
    fn claims(&self, path: &FilePath<'_>) -> Option<Claim> {
        let role = FileRole::of(path)?;
        Some(if role == FileRole::WalElsewhere { Claim::Some } else { Claim::Each })
    }

    fn homes<'a>(&'a self, source: &'a mut Source<'_>, files: Vec<DataFile>) -> Work<'a, Vec<Home>> {
        Box::pin(clusters::homes(source, files))
    }

    fn servers(&self, homes: Vec<Home>) -> Vec<Server> {
        clusters::servers(homes)
    }

    fn discover<'a>(&'a self, source: &'a mut Source<'_>, server: Server, findings: Findings<'a>) -> Work<'a, ()> {
        Box::pin(discover::discover(source, server, findings))
    }

    fn catalogue(&self) -> Box<dyn Catalogue> {
        Box::new(catalogue::Relations::default())
    }
}

/// What a page belongs to, by its special space and its layout.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Method {
    /// A heap: a table, its TOAST table, or a materialised view.
    Heap,
    /// A sequence.
    Sequence,
    /// A free space map.
    FreeSpaceMap,
    /// A visibility map.
    VisibilityMap,
    /// A B-tree.
    Btree,
    /// A hash index.
    Hash,
    /// A GiST index.
    Gist,
    /// A GIN index.
    Gin,
    /// An SP-GiST index.
    SpGist,
    /// A BRIN index.
    Brin,
    /// An index whose method stands at the end of the page, which was not seen.
    SomeIndex,
}

impl Method {
    /// The name as `pg_am` has it; the others in plain words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Method::Heap => "heap",
            Method::Sequence => "sequence",
            Method::FreeSpaceMap => "free space map",
            Method::VisibilityMap => "visibility map",
            Method::Btree => "btree",
            Method::Hash => "hash",
            Method::Gist => "gist",
            Method::Gin => "gin",
            Method::SpGist => "spgist",
            Method::Brin => "brin",
            Method::SomeIndex => "index",
        }
    }
}

/// What a page of a relation says about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// What it belongs to.
    pub method: Method,
    /// Log sequence number of its last change; 0 where none was logged.
    pub lsn: u64,
    /// Its block number as most of its first tuples say. A hint: an updated tuple names the block of
    /// its successor until it is vacuumed away, so after many updates most pages of a table can be
    /// wrong here. Where the place in the file is known, that is the number.
    pub block_by_tuples: Option<u32>,
    /// The block numbers below 131,072 (1 GiB) that its checksum fits: two at most. Filled in by
    /// [`crate::verify`], as it takes a microsecond; for larger relations see [`holds`].
    pub blocks_by_checksum: [Option<u32>; 2],
    /// Attributes of its first tuple: the columns that the table had when it was written.
    pub attributes: Option<u16>,
    /// The page before it in its level of a B-tree.
    pub prev: Option<u32>,
    /// The page after it in its level of a B-tree.
    pub next: Option<u32>,
    /// Its level in a B-tree, 0 for leaves.
    pub level: Option<u32>,
}
