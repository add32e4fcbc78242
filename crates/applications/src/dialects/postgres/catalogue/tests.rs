//! Catalogues on pages made here, as updates leave them.

use super::*;
use crate::recognise;

/// Where a version of a row is followed by the next one: a page, and a place on it from 1 on.
type Next = (u32, u16);

/// A row of `pg_class` with 33 attributes, and what became of it: `None` if it holds.
#[derive(Clone)]
struct Row {
    oid: u32,
    name: &'static str,
    file: u32,
    persistence: u8,
    next: Option<Next>,
}

fn row(oid: u32, name: &'static str, next: Option<Next>) -> Row {
    Row { oid, name, file: oid, persistence: b'p', next }
}

/// A page of the catalogue with that number and that LSN.
fn page(number: u32, lsn: u32, rows: &[Row]) -> Vec<u8> {
    const TUPLE_BYTES: usize = 24 + 176;
    let mut page = vec![0; 8192];
    let lower = 24 + 4 * rows.len();
    let upper = 8192 - TUPLE_BYTES * rows.len();
    page[4..8].copy_from_slice(&lsn.to_le_bytes());
    for (at, field) in [(12, lower), (14, upper), (16, 8192), (18, 8192 | 4)] {
        page[at..at + 2].copy_from_slice(&(field as u16).to_le_bytes());
    }
    for (index, row) in rows.iter().enumerate() {
        let at = 8192 - TUPLE_BYTES * (index + 1);
        let pointer = at as u32 | 1 << 15 | (TUPLE_BYTES as u32) << 17;
        page[24 + 4 * index..28 + 4 * index].copy_from_slice(&pointer.to_le_bytes());
        let tuple = &mut page[at..at + TUPLE_BYTES];
        let (block, place) = row.next.unwrap_or((number, index as u16 + 1));
        tuple[0..4].copy_from_slice(&700u32.to_le_bytes());
        tuple[4..8].copy_from_slice(&u32::from(row.next.is_some()).to_le_bytes());
        tuple[12..14].copy_from_slice(&((block >> 16) as u16).to_le_bytes());
        tuple[14..16].copy_from_slice(&(block as u16).to_le_bytes());
        tuple[16..18].copy_from_slice(&place.to_le_bytes());
        tuple[18..20].copy_from_slice(&CLASS[0].to_le_bytes());
        tuple[20..22].copy_from_slice(&0x0100u16.to_le_bytes());
        tuple[22] = 24;
        let data = &mut tuple[24..];
        data[0..4].copy_from_slice(&row.oid.to_le_bytes());
        data[4..4 + row.name.len()].copy_from_slice(row.name.as_bytes());
        data[68..72].copy_from_slice(&2200u32.to_le_bytes());
        data[88..92].copy_from_slice(&row.file.to_le_bytes());
        (data[114], data[115]) = (row.persistence, b'r');
    }
    page
}

/// File numbers and tables, as the dictionary of these pages of one file names them.
fn names(pages: &[Vec<u8>]) -> Vec<(u32, String)> {
    let dictionary = read(pages.iter().zip(0..));
    told(dictionary.names())
}

fn read<'a>(pages: impl Iterator<Item = (&'a Vec<u8>, u64)>) -> Relations {
    let mut relations = Relations::default();
    for (bytes, number) in pages {
        relations.page(&recognise(bytes).expect("a page"), bytes, number * 8192);
    }
    relations
}

fn told(names: Vec<Name>) -> Vec<(u32, String)> {
    names.into_iter().map(|name| (name.key.1 as u32, name.table.expect("a table"))).collect()
}

fn expected(names: &[(u32, &str)]) -> Vec<(u32, String)> {
    names.iter().map(|(file, name)| (*file, (*name).to_owned())).collect()
}

/// DDL beside an open snapshot: old versions stay, and name the page of the new ones. The third page
/// is the newest; if others passed for it, what it has would be gone.
#[test]
fn a_page_is_known_by_its_place_whatever_its_rows_name() {
    let updated = |oid: u32| row(oid, "before", Some((2, 9)));
    let old = |from: u32, live: Row| (from..from + 5).map(updated).chain([live]).collect::<Vec<_>>();
    let pages = [
        page(0, 900, &old(20_000, row(17_000, "first", None))),
        page(1, 901, &old(20_005, row(17_001, "second", None))),
        page(2, 800, &(20_000..20_010).map(|oid| row(oid, "after", None)).collect::<Vec<_>>()),
    ];
    let mut all: Vec<(u32, &str)> = vec![(17_000, "first"), (17_001, "second")];
    all.extend((20_000..20_010).map(|oid| (oid, "after")));
    assert_eq!(names(&pages), expected(&all));
    let backwards = read((0..3).rev().map(|number| (&pages[number as usize], number)));
    assert_eq!(told(backwards.names()), expected(&all));
    // Rows that name several pages, none of them by most.
    let scattered: Vec<Row> = (0..5).map(|next| row(20_000, "before", Some((next + 3, 1)))).chain([row(17_000, "first", None)]).collect();
    assert_eq!(names(&[page(0, 1, &scattered)]), expected(&[(17_000, "first"), (20_000, "before")]));
}

/// The page that a row left was written, and that with its new version was not yet.
#[test]
fn what_was_replaced_holds_until_the_new_version_is_there() {
    let left = page(0, 900, &[row(16_500, "orders", Some((1, 1))), row(16_501, "dropped", Some((0, 2)))]);
    assert_eq!(names(&[left.clone(), page(1, 100, &[row(16_600, "items", None)])]), expected(&[(16_600, "items"), (16_500, "orders")]));
    let renamed = page(1, 950, &[row(16_500, "purchases", None), row(16_600, "items", None)]);
    assert_eq!(names(&[left, renamed]), expected(&[(16_500, "purchases"), (16_600, "items")]));
}

/// While a table is rewritten, and after that came to nothing, its old file is there under its name.
#[test]
fn the_file_of_a_table_that_is_rewritten_keeps_its_name() {
    let rows = [row(16_500, "orders", Some((0, 2))), Row { file: 16_900, ..row(16_500, "orders", None) }];
    let dictionary = read([page(0, 1, &rows)].iter().zip(0..));
    assert_eq!(told(dictionary.names()), expected(&[(16_900, "orders")]));
    assert_eq!(told(dictionary.names_before()), expected(&[(16_500, "orders")]));
    // Another relation has got that file.
    let rows = [rows[0].clone(), rows[1].clone(), Row { file: 16_500, ..row(17_000, "new", None) }];
    let dictionary = read([page(0, 1, &rows)].iter().zip(0..));
    assert_eq!(told(dictionary.names_before()), expected(&[]));
}

/// `VACUUM FULL`, `CLUSTER` and `ALTER TYPE` write a transient relation, swap its file with that of the table, and delete its row.
#[test]
fn a_table_that_was_rewritten_has_its_own_name() {
    let transient = row(16_900, "pg_temp_16500", Some((0, 4)));
    let rows = [
        row(16_500, "orders", Some((0, 3))),
        transient.clone(),
        Row { file: 16_900, ..row(16_500, "orders", None) },
        Row { file: 16_500, next: Some((0, 4)), ..transient },
    ];
    assert_eq!(names(&[page(0, 1, &rows)]), expected(&[(16_900, "orders")]));
    // The table's new row on another page.
    let pages =
        [page(0, 1, &[row(16_500, "orders", Some((1, 1))), rows[1].clone(), rows[0].clone(), rows[3].clone()]), page(1, 2, &rows[2..3])];
    assert_eq!(names(&pages), expected(&[(16_900, "orders")]));
}

#[test]
fn temporary_tables_name_no_file_of_another() {
    let temporary = Row { file: 16_500, persistence: b't', ..row(17_000, "scratch", None) };
    assert_eq!(names(&[page(0, 1, &[row(16_500, "orders", None), temporary])]), expected(&[(16_500, "orders")]));
}
