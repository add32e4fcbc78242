//! The dictionary of a server: the central one, or what each tablespace of MySQL 8 says of itself.

use super::files::FileRole;
use super::{sdi, tables};
use crate::filesystems::DataFile;
use crate::naming::{Catalogue, Name, Wanted};
use crate::page::{Native, Page};
use std::ops::Range;

/// The dictionary of MariaDB lies at the beginning of the system tablespace, as it is made first
/// and grows by extents of 1 MiB: 10,000 tables take some 8 MiB.
const SYSTEM_BYTES: u64 = 32 << 20;
/// Where a tablespace of MySQL 8 describes itself: its fourth page, in files with 16 KiB pages.
const SDI: Range<u64> = 48 << 10..64 << 10;

#[derive(Default, Debug)]
pub(super) struct Tables {
    central: tables::Tables,
    described: sdi::Tables,
}

impl Catalogue for Tables {
    fn page(&mut self, page: &Page, bytes: &[u8], _: u64) -> bool {
        let Native::Innodb(identity) = page.native else { return false };
        bytes.len() == page.size_bytes as usize && (self.central.page(&identity, bytes) || self.described.page(&identity, bytes))
    }

    fn wants(&self, file: &DataFile) -> Option<Wanted> {
        match FileRole::of_file(file)? {
            FileRole::System if file.path.ends_with("mysql.ibd") => None,
            FileRole::System => Some(Wanted::first(0, SYSTEM_BYTES, file)),
            // Servers with a central dictionary have none in each table.
            FileRole::Table => (!self.central.any()).then_some(Wanted { round: 1, range: SDI, file_start_bytes: 0 }),
            FileRole::Undo | FileRole::Redo | FileRole::Doublewrite | FileRole::Temporary | FileRole::Binlog => None,
        }
    }

    fn names(&self) -> Vec<Name> {
        self.central.names().chain(self.described.names()).collect()
    }

    fn conflicts(&self) -> u64 {
        self.central.conflicts() + self.described.conflicts()
    }
}
