//! InnoDB: pages of MySQL's and MariaDB's tablespaces, and their redo log.
//!
//! All numbers are big endian. A page begins with its number at 4, its neighbours in the level of a
//! B-tree at 8 and 12, its LSN at 16 and its type at 24. The low word of the LSN comes back in the
//! last eight bytes, and so tells the page size; compressed pages have no such trailer.

mod catalogue;
mod checksum;
mod discover;
mod doublewrite;
mod file_name;
mod files;
mod recognise;
pub mod redo;
mod sdi;
mod tables;

pub use recognise::{INDEX, SDI};
pub(crate) use tables::split as name_of_table;

use super::{Claim, DataFiles, Dialect, Engine, Facts, FilePath, Home, Work};
use crate::discovery::{Findings, Server, Source};
use crate::filesystems::DataFile;
use crate::naming::Catalogue;
use crate::page::{Native, Page};
use crate::recognise::Head;
use crate::streams::Subject;
use types::StreamClass;

/// See [`Engine::Innodb`].
pub(super) struct Innodb;

impl Dialect for Innodb {
    fn facts(&self) -> &'static Facts {
        const {
            &Facts {
                title: "InnoDB",
                name: "innodb",
                server: Some("mysql"),
                pages_name_their_object: true,
                grows_files_by_zeroes: false,
                // `program_name` of sessions is what the dump programs give.
                programs: &[
                    (Subject::Process, "mariabackup", StreamClass::Backup),
                    (Subject::Process, "mariadb-backup", StreamClass::Backup),
                    (Subject::Process, "xtrabackup", StreamClass::Backup),
                    (Subject::Session, "mysqldump", StreamClass::Backup),
                    (Subject::Session, "mariadb-dump", StreamClass::Backup),
                    (Subject::Session, "mydumper", StreamClass::Backup),
                ],
                own_names: &["PRIMARY", "GEN_CLUST_INDEX", "FTS_DOC_ID_INDEX", "ibdata1", "ibtmp1"],
                own_databases: &["mysql", "sys", "performance_schema", "information_schema"],
                rebuild_mark: Some("#sql"),
                named_from: None,
                directories: &["mysql", "mariadb"],
                key_of_holder: Some(|key| key >> 32 << 32),
                files: Some(&Innodb),
            }
        }
    }

    fn page(&self, bytes: &[u8], head: &Head) -> Option<Page> {
        if recognise::may_be(head) { recognise::recognise(bytes, head) } else { None }
    }

    fn rare_page(&self, bytes: &[u8], head: &Head) -> Option<Page> {
        redo::recognise(bytes, head)
    }

    fn verify(&self, page: &mut Page, bytes: &[u8]) {
        // Blocks of the redo log were verified when they were recognised.
        if let Native::Innodb(identity) = page.native {
            page.certainty = recognise::certainty(&identity, page, bytes);
        }
    }
}

impl DataFiles for Innodb {
    fn claims(&self, path: &FilePath<'_>) -> Option<Claim> {
        files::FileRole::of(path).map(|_| Claim::Each)
    }

    fn homes<'a>(&'a self, _: &'a mut Source<'_>, files: Vec<DataFile>) -> Work<'a, Vec<Home>> {
        Box::pin(std::future::ready(Home::of_each(files::by_directory(files))))
    }

    fn servers(&self, homes: Vec<Home>) -> Vec<Server> {
        homes.into_iter().map(|home| home.server(Engine::Innodb)).collect()
    }

    fn discover<'a>(&'a self, source: &'a mut Source<'_>, server: Server, findings: Findings<'a>) -> Work<'a, ()> {
        Box::pin(discover::discover(source, server, findings))
    }

    fn catalogue(&self) -> Box<dyn Catalogue> {
        Box::new(catalogue::Tables::default())
    }
}

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
