//! SQL Server: the base tables sysschobjs, sysrowsets, sysallocunits, sysidxstats and sysclsobjs.
//!
//! A page of a base table has the table's object id in its header, with an index id below 256.
//! Source of the columns: `sys.sysrscols` of the sample files, and the published description of the
//! record format.

use super::Identity;
use super::discover::FileRole;
use crate::bytes::{byte, le16, le32, le64};
use crate::dialects::FilePath;
use crate::filesystems::DataFile;
use crate::naming::{Catalogue, Name, NativeKey, ObjectKind, Rows, Wanted};
use crate::page::{Native, Page};

/// The base tables of a database are made with it; those of many objects grow beyond.
const TABLES_BYTES: u64 = 32 << 20;

const SYSROWSETS: u32 = 5;
const SYSALLOCUNITS: u32 = 7;
const SYSSCHOBJS: u32 = 34;
const SYSIDXSTATS: u32 = 54;
const SYSCLSOBJS: u32 = 64;
/// The class of schemas in sysclsobjs.
const SCHEMA: u8 = 50;
/// User objects have larger ids.
const SYSTEM_MAX: u32 = 100;
/// Characters of a name (`sysname`).
const NAME_CHARS_MAX: usize = 128;

#[derive(PartialEq, Eq, Debug)]
struct Object {
    name: String,
    schema: u32,
}

/// A heap, an index, or a part of either.
#[derive(PartialEq, Eq, Debug)]
struct Rowset {
    object: u32,
    index: u32,
}

#[derive(PartialEq, Eq, Debug)]
struct Unit {
    rowset: u64,
    /// 1 rows, 2 long values, 3 rows that grew too long.
    kind: u8,
}

/// What is known of the allocation units of one database.
#[derive(Default, Debug)]
pub(super) struct Units {
    objects: Rows<u32, Object>,
    rowsets: Rows<u64, Rowset>,
    units: Rows<u64, Unit>,
    indexes: Rows<(u32, u32), String>,
    schemas: Rows<u32, String>,
}

impl Units {
    /// Takes a page of a base table in.
    fn base_table(&mut self, identity: &Identity, bytes: &[u8]) -> bool {
        if identity.page_type != 1 || identity.level != 0 || identity.index > 1 {
            return false;
        }
        let page = u64::from(identity.file) << 32 | u64::from(identity.page);
        // Within a database these count up; the slot is of no account here.
        let lsn = u64::from(identity.lsn.0) << 32 | u64::from(identity.lsn.1);
        let records = records(bytes);
        match identity.object {
            SYSSCHOBJS => fill(&mut self.objects, page, lsn, records, |record| {
                let object = Object { name: record.name()?, schema: record.word(8)? };
                Some((record.word(4)?, object))
            }),
            SYSROWSETS => fill(&mut self.rowsets, page, lsn, records, |record| {
                Some((record.long(4)?, Rowset { object: record.word(13)?, index: record.word(17)? }))
            }),
            SYSALLOCUNITS => fill(&mut self.units, page, lsn, records, |record| {
                Some((record.long(4)?, Unit { rowset: record.long(13)?, kind: record.byte(12)? }))
            }),
            SYSIDXSTATS => fill(&mut self.indexes, page, lsn, records, |record| Some(((record.word(4)?, record.word(8)?), record.name()?))),
            SYSCLSOBJS => fill(&mut self.schemas, page, lsn, records, |record| {
                (record.byte(4)? == SCHEMA).then_some((record.word(5)?, record.name()?))
            }),
            _ => false,
        }
    }
}

impl Catalogue for Units {
    fn page(&mut self, page: &Page, bytes: &[u8], _: u64) -> bool {
        let Native::Mssql(identity) = page.native else { return false };
        bytes.len() == page.size_bytes as usize && self.base_table(&identity, bytes)
    }

    fn wants(&self, file: &DataFile) -> Option<Wanted> {
        let role = FileRole::of(FilePath::of(&file.path)?.name)?;
        (role == FileRole::Data).then(|| Wanted::first(0, TABLES_BYTES, file))
    }

    fn names(&self) -> Vec<Name> {
        let named = self.units.iter().filter_map(|(id, unit)| {
            let rowset = self.rowsets.get(unit.rowset)?;
            let object = self.objects.get(rowset.object)?;
            let kind = match (unit.kind, rowset.index) {
                _ if rowset.object <= SYSTEM_MAX => ObjectKind::Dictionary,
                (2 | 3, _) => ObjectKind::Lob,
                (_, 0 | 1) => ObjectKind::Table,
                _ => ObjectKind::Index,
            };
            Some(Name {
                key: NativeKey(0, id),
                database: None,
                schema: self.schemas.get(object.schema).cloned(),
                table: Some(object.name.clone()),
                index: self.indexes.get((rowset.object, rowset.index)).cloned(),
                kind,
                root: None,
            })
        });
        named.collect()
    }

    fn conflicts(&self) -> u64 {
        self.objects.conflicts() + self.rowsets.conflicts() + self.units.conflicts()
    }
}

fn fill<'a, K: Ord + Copy, V: PartialEq>(
    rows: &mut Rows<K, V>,
    page: u64,
    lsn: u64,
    records: impl Iterator<Item = Record<'a>>,
    read: impl Fn(&Record<'a>) -> Option<(K, V)>,
) -> bool {
    if !rows.begin(page, lsn) {
        return false;
    }
    records.filter_map(|record| read(&record)).for_each(|(key, value)| rows.put(page, lsn, key, value));
    true
}

/// A record from its first byte to the end of the page.
struct Record<'a> {
    bytes: &'a [u8],
    /// Where the columns of fixed length end.
    fixed_end: usize,
}

impl<'a> Record<'a> {
    fn fixed(&self, at: usize, length: usize) -> Option<&'a [u8]> {
        (at + length <= self.fixed_end).then(|| self.bytes.get(at..at + length))?
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.fixed(at, 1).map(|field| field[0])
    }

    fn word(&self, at: usize) -> Option<u32> {
        self.fixed(at, 4).map(|field| le32(field, 0))
    }

    fn long(&self, at: usize) -> Option<u64> {
        self.fixed(at, 8).map(|field| le64(field, 0))
    }

    /// The first column of variable length as UTF-16.
    fn name(&self) -> Option<String> {
        if byte(self.bytes, 0) & 0x20 == 0 {
            return None;
        }
        // After the fixed columns: their number and their null bits, then the ends of the variable
        // ones.
        let columns = usize::from(le16(self.bytes, self.fixed_end));
        let ends = self.fixed_end + 2 + columns.div_ceil(8);
        let count = usize::from(le16(self.bytes, ends));
        let (start, end) = (ends + 2 + 2 * count, usize::from(le16(self.bytes, ends + 2)));
        let text = self.bytes.get(start..end).filter(|text| count > 0 && !text.is_empty() && text.len() <= 2 * NAME_CHARS_MAX)?;
        let units: Vec<u16> = text.chunks_exact(2).map(|unit| le16(unit, 0)).collect();
        String::from_utf16(&units).ok()
    }
}

/// The records of a data page that are rows, by the places at its end.
fn records(page: &[u8]) -> impl Iterator<Item = Record<'_>> {
    let slots = usize::from(le16(page, 22)).min(page.len() / 2);
    (0..slots).filter_map(move |slot| {
        let at = usize::from(le16(page, page.len().checked_sub(2 + 2 * slot)?));
        let bytes = page.get(at..).filter(|_| at >= 96)?;
        let fixed_end = usize::from(le16(bytes, 2));
        // Bits 1 to 3: 0 is a row, others are moved rows, or ghosts of deleted ones.
        (byte(bytes, 0) & 0x0e == 0 && (4..=bytes.len()).contains(&fixed_end)).then_some(Record { bytes, fixed_end })
    })
}
