//! SDI: the description of itself that each tablespace of MySQL 8 carries, as compressed JSON.
//!
//! Records of the compact format: type u32 (1 a table, 2 a tablespace), id u64, 13 bytes of
//! transaction, plain and packed length u32, the packed text. A description that does not fit in
//! the page lies elsewhere (tables with several hundred columns), and is not read.

use super::{Identity, SDI};
use crate::bytes::{be16, be32, be64, byte};
use crate::naming::{Name, NativeKey, ObjectKind, Rows};
use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit;
use serde::Deserialize;

/// Where the system records of the compact format lie.
const INFIMUM: usize = 99;
const SUPREMUM: usize = 112;
/// Records of a page that are looked at: a tablespace has two, one more for each table in it.
const RECORDS_MAX: usize = 64;
/// Bytes of JSON that are unpacked at most. A table of 1,000 columns takes about 800 KiB.
const JSON_BYTES_MAX: usize = 2 << 20;
/// Bytes of JSON that are unpacked of one page at most, whatever its records say.
const PAGE_JSON_BYTES_MAX: usize = 4 << 20;
/// Bytes of a name kept at most: 64 characters.
const NAME_BYTES_MAX: usize = 256;

#[derive(PartialEq, Eq, Debug)]
struct Index {
    database: String,
    table: String,
    name: String,
    clustered: bool,
    root: Option<u32>,
}

#[derive(Default, Debug)]
pub(super) struct Tables {
    /// By space and index id.
    indexes: Rows<(u32, u64), Index>,
}

/// What is read of the JSON.
#[derive(Deserialize)]
struct Document {
    dd_object_type: String,
    dd_object: Table,
}

#[derive(Deserialize)]
struct Table {
    name: String,
    #[serde(default)]
    schema_ref: String,
    #[serde(default)]
    indexes: Vec<Described>,
    #[serde(default)]
    partitions: Vec<Partition>,
}

#[derive(Deserialize)]
struct Partition {
    name: String,
    #[serde(default)]
    indexes: Vec<Placed>,
    #[serde(default)]
    subpartitions: Vec<Partition>,
}

#[derive(Deserialize)]
struct Described {
    name: String,
    #[serde(default)]
    se_private_data: String,
}

/// An index of a partition: named by its place in the table's list.
#[derive(Deserialize)]
struct Placed {
    #[serde(default)]
    index_opx: usize,
    #[serde(default)]
    se_private_data: String,
}

impl Tables {
    /// Takes an SDI page in.
    pub(super) fn page(&mut self, identity: &Identity, bytes: &[u8]) -> bool {
        let Some(space) = identity.space.filter(|_| identity.page_type == SDI && identity.level == Some(0)) else { return false };
        let (page, lsn) = (u64::from(space) << 32 | u64::from(identity.page), identity.lsn);
        if !self.indexes.begin(page, lsn) {
            return false;
        }
        for document in documents(bytes).filter(|document| document.dd_object_type == "Table") {
            let table = document.dd_object;
            // No name of it would fit, and each of its parts would have a copy.
            if table.name.len() > NAME_BYTES_MAX {
                continue;
            }
            let mut put = |name: &str, table: &str, database: &str, place: usize, data: &str| {
                let fits = [name, table, database].iter().all(|name| name.len() <= NAME_BYTES_MAX);
                if let (Some(id), Some(space), true) = (value(data, "id"), value(data, "space_id"), fits) {
                    let root = value(data, "root").and_then(|root| root.try_into().ok());
                    let (database, table, name) = (database.to_owned(), table.to_owned(), name.to_owned());
                    let index = Index { database, table, name, clustered: place == 0, root };
                    if let Ok(space) = u32::try_from(space) {
                        self.indexes.put(page, lsn, (space, id), index);
                    }
                }
            };
            for (place, index) in table.indexes.iter().enumerate() {
                put(&index.name, &table.name, &table.schema_ref, place, &index.se_private_data);
            }
            let parts = table.partitions.iter().flat_map(|part| std::iter::once(part).chain(&part.subpartitions));
            for part in parts {
                let part_of = format!("{}#{}", table.name, part.name);
                for index in &part.indexes {
                    let Some(described) = table.indexes.get(index.index_opx) else { continue };
                    put(&described.name, &part_of, &table.schema_ref, index.index_opx, &index.se_private_data);
                }
            }
        }
        true
    }

    pub(super) fn names(&self) -> impl Iterator<Item = Name> + '_ {
        self.indexes.iter().map(|((space, id), index)| Name {
            key: NativeKey(space, id),
            database: Some(index.database.clone()),
            schema: None,
            table: Some(index.table.clone()),
            index: Some(index.name.clone()),
            kind: if index.clustered { ObjectKind::Table } else { ObjectKind::Index },
            root: index.root,
        })
    }

    pub(super) fn conflicts(&self) -> u64 {
        self.indexes.conflicts()
    }
}

/// The documents of a page's records, but for those marked as deleted.
fn documents(page: &[u8]) -> impl Iterator<Item = Document> {
    // Links are relative, and wrap around.
    let next = move |at: usize| (at + usize::from(be16(page, at - 2))) & 0xffff;
    let mut at = next(INFIMUM);
    let (mut left, mut bytes_left) = (RECORDS_MAX, PAGE_JSON_BYTES_MAX);
    std::iter::from_fn(move || {
        while at > SUPREMUM && at < page.len() && left > 0 {
            left -= 1;
            let here = at;
            at = next(here);
            let live = byte(page, here - 5) & 0x20 == 0 && byte(page, here - 3) & 7 == 0;
            let plain = be32(page, here + 25) as usize;
            if !live || plain > bytes_left.min(JSON_BYTES_MAX) {
                continue;
            }
            bytes_left -= plain;
            if let Some(document) = document(page, here, plain) {
                return Some(document);
            }
        }
        None
    })
}

fn document(page: &[u8], at: usize, plain: usize) -> Option<Document> {
    let packed = be32(page, at + 29) as usize;
    // Types other than these, and ids of 0, do not exist.
    if !matches!(be32(page, at), 1 | 2) || be64(page, at + 4) == 0 {
        return None;
    }
    let packed = page.get(at + 33..at.checked_add(33)?.checked_add(packed)?)?;
    let json = decompress_to_vec_zlib_with_limit(packed, plain).ok()?;
    serde_json::from_slice(&json).ok()
}

/// A number in a list of `key=value;`.
fn value(data: &str, key: &str) -> Option<u64> {
    data.split(';').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('=')?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use miniz_oxide::deflate::compress_to_vec_zlib;

    /// A page of an SDI index with records that all unpack to `plain` bytes of blanks.
    fn bomb(plain: usize, records: usize) -> Vec<u8> {
        let packed = compress_to_vec_zlib(&vec![b' '; plain], 6);
        let mut page = vec![0; 16384];
        let mut from = INFIMUM;
        for record in 0..records {
            let at = 200 + 64 * record;
            page[from - 2..from].copy_from_slice(&((at - from) as u16).to_be_bytes());
            page[at..at + 4].copy_from_slice(&1u32.to_be_bytes());
            page[at + 11] = 1;
            page[at + 25..at + 29].copy_from_slice(&(plain as u32).to_be_bytes());
            page[at + 29..at + 33].copy_from_slice(&(packed.len() as u32).to_be_bytes());
            from = at;
        }
        // What follows the last record is its own.
        page[from + 33..from + 33 + packed.len()].copy_from_slice(&packed);
        page
    }

    #[test]
    fn what_unpacks_to_too_much_is_left() {
        assert_eq!(documents(&bomb(1 << 20, 1)).count(), 0, "blanks are no document");
        assert_eq!(documents(&bomb(8 << 20, 1)).count(), 0);
        assert_eq!(documents(&bomb(2 << 20, 60)).count(), 0);
    }

    #[test]
    fn long_names_of_many_parts_take_no_time() {
        let page_of = |json: String| {
            let mut page = bomb(json.len(), 1);
            let packed = compress_to_vec_zlib(json.as_bytes(), 6);
            page[229..233].copy_from_slice(&(packed.len() as u32).to_be_bytes());
            page[233..233 + packed.len()].copy_from_slice(&packed);
            page
        };
        let identity = |page| Identity {
            page_type: SDI,
            page,
            prev: None,
            next: None,
            lsn: 1,
            space: Some(7),
            space_covered: true,
            index: Some(1),
            level: Some(0),
            form: crate::innodb::Form::FullCrc32,
            encrypted: false,
        };
        let long = "n".repeat(1 << 20);
        let document = |name: &str, part: &str, parts: usize, indexes: usize| {
            let indexes = vec!["{}"; indexes].join(",");
            let part = format!(r#"{{"name":"{part}","indexes":[{indexes}]}}"#);
            let parts = vec![part; parts].join(",");
            let own = format!(r#""name":"{name}","indexes":[{{"name":"i"}}]"#);
            let table = format!(r#"{{{own},"partitions":[{parts}]}}"#);
            format!(r#"{{"dd_object_type":"Table","dd_object":{table}}}"#)
        };
        let mut tables = Tables::default();
        // The name of a table for each of its parts, or that of a part for each index, was 100 GB.
        let sizes = [(&*long, "p", 1, 300_000), (&long, "", 30_000, 1), ("t", &long, 1, 300_000)];
        for (number, (name, part, parts, indexes)) in (0..).zip(sizes) {
            let page = page_of(document(name, part, parts, indexes));
            assert!(documents(&page).count() > 0);
            assert!(tables.page(&identity(number), &page));
        }
        assert_eq!(tables.names().count(), 0);
    }

    #[test]
    fn values_are_found_by_their_whole_key() {
        let data = "id=167;root=4;space_id=8;table_id=1070;trx_id=1375;";
        assert_eq!((value(data, "id"), value(data, "space_id"), value(data, "root")), (Some(167), Some(8), Some(4)));
        assert_eq!(value(data, "oot"), None);
        assert_eq!(value("id=x", "id"), None);
    }
}
