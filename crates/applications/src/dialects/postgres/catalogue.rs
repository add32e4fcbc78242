//! PostgreSQL: `pg_class`, `pg_namespace`, `pg_index` and `pg_filenode.map`.
//!
//! A page does not say which relation it is of, so rows are known by their form: the number of
//! attributes, a name of 64 bytes filled up with zeroes, and fields that can have few values.
//! Versions 12 to 18; the number of attributes of `pg_class` is 33 until 17 and 34 in 18, where one
//! more counter stands before the last fields.
//!
//! Whether a transaction came to its end stands in `pg_xact`, and in the rows only once somebody
//! looked: names of an aborted one may show until then. Their files do not exist, so nothing is
//! named wrongly by them.
//!
//! Pages are written one by one: the one of which a row was updated away may be on the disk minutes
//! before the one that has its new version. So what a version that was replaced says holds where no
//! newer one is there, and for its own file as long as no other row has that.
//!
//! Temporary relations are left out: their files have names of their own (`t3_16390`), and their
//! numbers may be those of others.

use super::files::{FileRole, Fork};
use super::recognise::pointer;
use super::{Identity, Method};
use crate::bytes::{byte, le16, le32, le64};
use crate::filesystems::DataFile;
use crate::naming::{Catalogue, Name, NativeKey, ObjectKind, Rows, Wanted};
use crate::page::{Native, Page};
use std::collections::{BTreeMap, BTreeSet};

/// Catalogues of 100,000 relations are about 30 MiB.
const CATALOGUE_BYTES: u64 = 64 << 20;
/// Bytes of a file of a relation before the next one begins (`RELSEG_SIZE` times the page size).
pub(super) const SEGMENT_BYTES: u64 = 1 << 30;
/// `NAMEDATALEN`: bytes of a name.
const NAME_BYTES: usize = 64;
/// Attributes of `pg_namespace`, of `pg_index` before 15 and since, of `pg_class` before 18 and
/// since.
const NAMESPACE: u16 = 4;
const INDEX: [u16; 2] = [20, 21];
const CLASS: [u16; 2] = [33, 34];
/// The oids of the catalogues that are read.
const PG_CLASS: u32 = 1259;
const OTHERS: [u32; 2] = [2615, 2610];
/// Mappings that `pg_filenode.map` holds at most (`MAX_MAPPINGS`, 62 before 16).
const MAPPINGS_MAX: usize = 64;

#[derive(PartialEq, Eq, Debug)]
struct Relation {
    name: String,
    namespace: u32,
    /// The file; 0 where `pg_filenode.map` says it.
    file: u32,
    /// The relation of its long values, 0 for none.
    toast: u32,
    kind: u8,
}

/// Rows by their oid: those that hold, and those that were replaced.
#[derive(Debug)]
struct Versions<V> {
    newest: Rows<u32, V>,
    replaced: Rows<u32, V>,
}

impl<V> Default for Versions<V> {
    fn default() -> Self {
        Versions { newest: Rows::default(), replaced: Rows::default() }
    }
}

impl<V: PartialEq> Versions<V> {
    /// Puts the rows of a page in; nothing changes if there are none, as the page was of another
    /// table then.
    fn put_all(&mut self, page: u64, lsn: u64, found: impl Iterator<Item = (Version, (u32, V))>) -> bool {
        let mut found = found.peekable();
        if found.peek().is_none() || !self.newest.begin(page, lsn) {
            return false;
        }
        self.replaced.begin(page, lsn);
        for (version, (oid, value)) in found {
            match version {
                Version::Newest => self.newest.put(page, lsn, oid, value),
                Version::Replaced => self.replaced.put(page, lsn, oid, value),
            }
        }
        true
    }

    fn get(&self, oid: u32) -> Option<&V> {
        self.newest.get(oid).or_else(|| self.replaced.get(oid))
    }

    /// All that hold, then those of which nothing else is known.
    fn iter(&self) -> impl Iterator<Item = (u32, &V)> {
        self.newest.iter().chain(self.replaced.iter().filter(|(oid, _)| self.newest.get(*oid).is_none()))
    }
}

/// What a row of a table is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Version {
    /// As far as the page tells, it holds.
    Newest,
    /// An update has made another of it.
    Replaced,
}

/// What is known of the relations of one database.
#[derive(Default, Debug)]
pub(super) struct Relations {
    relations: Versions<Relation>,
    namespaces: Versions<String>,
    /// The table of each index.
    indexes: Versions<u32>,
    /// Oid to file, of relations whose file the catalogue cannot say.
    mapped: Rows<u32, u32>,
}

impl Catalogue for Relations {
    fn page(&mut self, page: &Page, bytes: &[u8], file_offset_bytes: u64) -> bool {
        match page.native {
            Native::Postgres(identity) if bytes.len() == page.size_bytes as usize => {
                self.heap(&identity, bytes, file_offset_bytes / u64::from(page.size_bytes.max(1)))
            }
            // Its file is shorter than what counts as a page here.
            Native::FilenodeMap => self.map(bytes),
            _ => false,
        }
    }

    fn wants(&self, file: &DataFile) -> Option<Wanted> {
        match FileRole::of_file(file)? {
            FileRole::FilenodeMap { .. } => Some(Wanted::first(0, CATALOGUE_BYTES, file)),
            FileRole::Relation { file: number, fork: Fork::Main, segment, .. } => {
                let wanted = Wanted::first(self.catalogue_round(number)?, CATALOGUE_BYTES, file);
                Some(Wanted { file_start_bytes: u64::from(segment) * SEGMENT_BYTES, ..wanted })
            }
            FileRole::Relation { .. }
            | FileRole::Wal
            | FileRole::WalElsewhere
            | FileRole::Temporary
            | FileRole::Version
            | FileRole::Control { .. } => None,
        }
    }

    /// A file has one name: that of a row that holds comes before that of one which was replaced. A rewrite of a table (`VACUUM FULL`, `CLUSTER`)
    /// swaps files with a transient relation, and of that only the replaced row is left, with the new file.
    fn names(&self) -> Vec<Name> {
        let owners = self.owners_of_toast();
        let held: BTreeSet<u32> = self.relations.newest.iter().map(|(_, relation)| relation.file).filter(|file| *file != 0).collect();
        let newest = |oid: u32| self.relations.newest.get(oid).is_some();
        let all = self.relations.iter().filter(|(oid, relation)| newest(*oid) || !held.contains(&relation.file));
        all.filter_map(|(oid, relation)| self.name(oid, relation, &owners)).collect()
    }

    fn conflicts(&self) -> u64 {
        self.relations.newest.conflicts() + self.namespaces.newest.conflicts() + self.mapped.conflicts()
    }
}

impl Relations {
    /// Takes a page of a heap in, which has that number in its file. Rows of one kind lie in one
    /// file, so the number tells pages of a kind apart. What tuples say of their block does not: one
    /// that was updated names the block of its successor.
    fn heap(&mut self, identity: &Identity, bytes: &[u8], page: u64) -> bool {
        let Some(attributes) = identity.attributes.filter(|_| identity.method == Method::Heap) else { return false };
        let lsn = identity.lsn.max(1);
        let tuples = tuples(bytes, attributes, page);
        match attributes {
            NAMESPACE => self.namespaces.put_all(page, lsn, rows(tuples, namespace)),
            _ if INDEX.contains(&attributes) => self.indexes.put_all(page, lsn, rows(tuples, index)),
            _ if CLASS.contains(&attributes) => {
                let shift = if attributes == CLASS[1] { 4 } else { 0 };
                self.relations.put_all(page, lsn, rows(tuples, |tuple| relation(tuple, shift)))
            }
            _ => false,
        }
    }

    /// Takes `pg_filenode.map` in, that of a database or that of shared relations.
    fn map(&mut self, bytes: &[u8]) -> bool {
        let count = (le32(bytes, 4) as usize).min(MAPPINGS_MAX);
        // It has no LSN: the last one that is seen counts.
        for at in (0..count).map(|index| 8 + 8 * index) {
            let (oid, file) = (le32(bytes, at), le32(bytes, at + 4));
            if oid != 0 && file != 0 {
                self.mapped.put(0, 0, oid, file);
            }
        }
        count > 0
    }

    /// In which round a file of that number is to be read as a part of the catalogue; `None` if it
    /// is none.
    fn catalogue_round(&self, file: u32) -> Option<u8> {
        // Until something else is known a file has the number of its relation.
        if file == self.mapped.get(PG_CLASS).copied().unwrap_or(PG_CLASS) {
            return Some(1);
        }
        let file_of = |oid| self.relations.get(oid).map_or(oid, |relation| relation.file);
        OTHERS.into_iter().any(|oid| file == file_of(oid)).then_some(2)
    }

    /// The file that the map has for a relation.
    pub(super) fn mapped_file(&self, oid: u32) -> Option<u32> {
        self.mapped.get(oid).copied()
    }

    /// Names of files that rows had before they were replaced, and that no other row has: a table is
    /// being rewritten, or that came to nothing.
    pub(super) fn names_before(&self) -> Vec<Name> {
        let owners = self.owners_of_toast();
        let files: BTreeSet<u32> = self.relations.iter().map(|(_, relation)| relation.file).collect();
        let before = self.relations.replaced.iter().filter(|(_, relation)| !files.contains(&relation.file));
        before.filter_map(|(oid, relation)| self.name(oid, relation, &owners)).collect()
    }

    /// The table of each relation of long values.
    fn owners_of_toast(&self) -> BTreeMap<u32, u32> {
        self.relations.iter().filter(|(_, relation)| relation.toast != 0).map(|(oid, relation)| (relation.toast, oid)).collect()
    }

    fn name(&self, oid: u32, relation: &Relation, owners: &BTreeMap<u32, u32>) -> Option<Name> {
        let file = if relation.file != 0 { relation.file } else { *self.mapped.get(oid)? };
        let table_of = |oid: u32| {
            let oid = owners.get(&oid).copied().unwrap_or(oid);
            self.relations.get(oid).map(|table| table.name.clone())
        };
        let (table, index) = match relation.kind {
            b'i' => (self.indexes.get(oid).and_then(|table| table_of(*table)), Some(relation.name.clone())),
            b't' => (owners.get(&oid).and_then(|owner| table_of(*owner)), None),
            _ => (Some(relation.name.clone()), None),
        };
        // What the server makes itself has the lowest numbers.
        let own = oid < 16384;
        let kind = match relation.kind {
            _ if own => ObjectKind::Dictionary,
            b'i' => ObjectKind::Index,
            b't' => ObjectKind::Toast,
            _ => ObjectKind::Table,
        };
        let table = if relation.kind == b't' { table.or_else(|| Some(relation.name.clone())) } else { table };
        let schema = self.namespaces.get(relation.namespace).cloned();
        Some(Name { key: NativeKey(0, u64::from(file)), database: None, schema, table, index, kind, root: None })
    }
}

/// Oids and names of databases, from a page of `pg_database` with that number in its file.
pub(super) fn databases(identity: &Identity, page: &[u8], number: u64) -> Vec<(Version, (u32, String))> {
    let attributes = identity.attributes.filter(|_| identity.method == Method::Heap);
    attributes.map_or_else(Vec::new, |attributes| rows(tuples(page, attributes, number), oid_and_name).collect())
}

/// What is in tuples, as far as they can be read.
fn rows<'a, T>(
    tuples: impl Iterator<Item = (Version, &'a [u8])>,
    read: impl Fn(&'a [u8]) -> Option<T>,
) -> impl Iterator<Item = (Version, T)> {
    tuples.filter_map(move |(version, tuple)| Some((version, read(tuple)?)))
}

/// The data of tuples with that many attributes, of the page with that number in its file; those
/// that were deleted are left out.
fn tuples(page: &[u8], attributes: u16, number: u64) -> impl Iterator<Item = (Version, &[u8])> {
    let lower = usize::from(le16(page, 12)).min(page.len());
    (24..lower).step_by(4).zip(1u16..).filter_map(move |(at, place)| {
        let (offset, flags, length) = pointer(page, at);
        let tuple = page.get(offset..offset + length).filter(|tuple| flags == 1 && tuple.len() > 23)?;
        let infomask = le16(tuple, 20);
        let aborted = infomask & 0x0300 == 0x0200;
        if aborted || le16(tuple, 18) & 0x7ff != attributes {
            return None;
        }
        // Deleted or replaced, if nothing says that this came to nothing. What is replaced names its
        // successor; what is deleted names itself.
        let gone = le32(tuple, 4) != 0 && infomask & 0x0880 == 0;
        let next = (u64::from(le16(tuple, 12)) << 16 | u64::from(le16(tuple, 14)), le16(tuple, 16));
        let version = match (gone, next == (number, place)) {
            (false, _) => Version::Newest,
            (true, false) => Version::Replaced,
            (true, true) => return None,
        };
        Some((version, tuple.get(usize::from(tuple[22])..)?))
    })
}

fn relation(tuple: &[u8], shift: usize) -> Option<(u32, Relation)> {
    let (oid, name) = oid_and_name(tuple)?;
    let (persistence, kind) = (byte(tuple, 114 + shift), byte(tuple, 115 + shift));
    let flags_fit = byte(tuple, 112 + shift) <= 1 && byte(tuple, 113 + shift) <= 1;
    if !b"pu".contains(&persistence) || !b"ritSvmcfpI".contains(&kind) || !flags_fit {
        return None;
    }
    let relation = Relation { name, namespace: le32(tuple, 68), file: le32(tuple, 88), toast: le32(tuple, 108 + shift), kind };
    // Views, types and partitioned tables have no file.
    b"ritSm".contains(&kind).then_some((oid, relation))
}

fn namespace(tuple: &[u8]) -> Option<(u32, String)> {
    let owner = le32(tuple, 68);
    oid_and_name(tuple).filter(|_| owner != 0 && tuple.len() >= 72)
}

fn index(tuple: &[u8]) -> Option<(u32, u32)> {
    let (index, table) = (le32(tuple, 0), le32(tuple, 4));
    let (columns, keys) = (le16(tuple, 8), le16(tuple, 10));
    let flags_fit = le64(tuple, 12) & 0xfefe_fefe_fefe_fefe == 0;
    (index != 0 && table != 0 && index != table && 0 < keys && keys <= columns && columns <= 32 && flags_fit).then_some((index, table))
}

/// An oid and a name that fills 64 bytes.
fn oid_and_name(tuple: &[u8]) -> Option<(u32, String)> {
    let name = tuple.get(4..4 + NAME_BYTES)?;
    let length = name.iter().position(|byte| *byte == 0)?;
    let filled = length > 0 && name[length..].iter().all(|byte| *byte == 0);
    let oid = le32(tuple, 0);
    let name = std::str::from_utf8(&name[..length]).ok()?;
    (filled && oid != 0).then(|| (oid, name.to_owned()))
}

#[cfg(test)]
mod tests;
