//! Which parts of which files to read for names, when the files are known.
//!
//! Ask again after each round: what was read tells where the next of it lies. A catalogue that was
//! moved (`VACUUM FULL pg_class`) is found through `pg_filenode.map`.

use super::Dictionary;
use crate::filesystems::{DataFile, Fork, Role};
use std::ops::Range;

/// The dictionary of MariaDB lies at the beginning of the system tablespace, as it is made first
/// and grows by extents of 1 MiB: 10,000 tables take some 8 MiB.
const SYSTEM_BYTES: u64 = 32 << 20;
/// Where a tablespace of MySQL 8 describes itself: its fourth page, in files with 16 KiB pages.
const SDI: Range<u64> = 48 << 10..64 << 10;
/// The base tables of a SQL Server database are made with it; those of many objects grow beyond.
const MSSQL_BYTES: u64 = 32 << 20;
/// PostgreSQL's catalogues of 100,000 relations are about 30 MiB.
const CATALOGUE_BYTES: u64 = 64 << 20;

/// What was wanted of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// How soon: all of a lower number first, as it may make others unneeded.
    pub round: u8,
    /// Bytes of the file.
    pub range: Range<u64>,
}

impl Dictionary {
    /// The part of a file of this instance that may hold names, by what is known now; `None` if
    /// none does.
    #[must_use]
    pub fn wants(&self, file: &DataFile) -> Option<Wanted> {
        let first = |round, bytes: u64| Some(Wanted { round, range: 0..bytes.min(file.bytes) });
        let wanted = match file.role {
            Role::InnodbSystem if file.path.ends_with("mysql.ibd") => None,
            Role::InnodbSystem => first(0, SYSTEM_BYTES),
            // Servers with a central dictionary have none in each table.
            Role::InnodbTable if !self.innodb.any() => Some(Wanted { round: 1, range: SDI }),
            Role::PostgresFilenodeMap { .. } => first(0, CATALOGUE_BYTES),
            Role::PostgresRelation { file: number, fork: Fork::Main, .. } => first(self.postgres.catalogue_round(number)?, CATALOGUE_BYTES),
            Role::MssqlData => first(0, MSSQL_BYTES),
            _ => None,
        };
        wanted.filter(|wanted| wanted.range.end <= file.bytes && !wanted.range.is_empty())
    }
}
