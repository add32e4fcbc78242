//! From a raw volume to applications, databases and objects. Needs `../shared/pages` and
//! `mkfs.ext4`.

use crate::common::images::{Files, image, image_with_links, servers};
use crate::common::{Numbers, archive};
use applications::discovery::{Application, BYTES_MAX, Discovery, Found, Key, Object, ObjectKind, Reason};
use applications::filesystems::{ext4, xfs};
use applications::{Certainty, Engine, Native, Page, engine_of_file, pages, recognise};
use std::collections::{BTreeMap, BTreeSet};

/// Feeds a discovery from an image, and looks that it asks for nothing outside, nor too much.
fn run(mut discovery: Discovery, image: &[u8]) -> Found {
    let mut bytes = 0;
    while let Some(read) = discovery.next() {
        assert!(read.offset_bytes.is_multiple_of(512) && read.len_bytes.is_multiple_of(512) && read.len_bytes > 0, "{read:?}");
        assert!(read.len_bytes <= 256 << 10, "{read:?}");
        let at = usize::try_from(read.offset_bytes).expect("an offset");
        bytes += read.len_bytes as u64;
        discovery.give(read.offset_bytes, Ok(&image[at..at + read.len_bytes]));
    }
    assert!(bytes <= BYTES_MAX);
    let found = discovery.finish();
    assert_eq!(found.bytes_read, bytes);
    found
}

fn discover(image: &[u8]) -> Found {
    run(Discovery::new(image.len() as u64), image)
}

/// The image of several servers: two MariaDB with equal ids, and the logs of some of them.
fn several() -> Option<Vec<u8>> {
    let mut logs = archive("mariadb-10.11")?;
    let mut wal = archive("postgresql-15")?;
    servers(|files| {
        let mut put = |from: &mut BTreeMap<String, Vec<u8>>, name: &str, to: &str| {
            files.insert(to.to_owned(), from.remove(name).expect("it is in the archive"));
        };
        put(&mut logs, "ib_logfile0.first128K", "var/lib/mysql/ib_logfile0");
        put(&mut logs, "binlog.000001.first64K", "var/lib/mysql/binlog.000001");
        put(&mut logs, "undo001.first1M", "var/lib/mysql/undo001");
        put(&mut wal, "pg_wal/00000001000000000000000F.first256K", "var/lib/postgresql/15/main/pg_wal/00000001000000000000000F");
        let tables = files.iter().filter_map(|(path, bytes)| Some((path.strip_prefix("var/lib/mysql/")?, bytes)));
        let copies: Vec<_> =
            tables.filter(|(path, _)| path.contains("ib")).map(|(path, bytes)| (format!("srv/second/{path}"), bytes.clone())).collect();
        files.extend(copies);
    })
}

fn application<'a>(found: &'a Found, instance: &str) -> &'a Application {
    let named = found.applications.iter().find(|application| application.instance.as_deref() == Some(instance));
    named.unwrap_or_else(|| panic!("{instance}: {:?}", found.applications))
}

fn objects<'a>(found: &'a Found, instance: &str) -> Vec<&'a Object> {
    let id = application(found, instance).id;
    found.objects.iter().filter(|object| object.application == id).collect()
}

/// What control's flow carries of a page.
fn key_of(page: &Page) -> Option<u64> {
    match page.native {
        Native::Innodb(identity) => Some(u64::from(identity.space?) << 32 | identity.index.unwrap_or(0) & 0xffff_ffff),
        Native::Mssql(identity) => Some(identity.allocation_unit()),
        _ => None,
    }
}

/// Pages of an object's extents with their places.
fn pages_of<'a>(found: &Found, image: &'a [u8], object: &Object) -> Vec<(u64, Page)> {
    let file = object.within.unwrap_or(object.id);
    let mut all = Vec::new();
    for extent in found.extents(file) {
        let bytes: &'a [u8] = &image[extent.bytes.start as usize..extent.bytes.end as usize];
        all.extend(pages(bytes).map(|(at, page)| (extent.bytes.start + at as u64, page)));
    }
    all
}

#[test]
fn servers_of_a_raw_volume_with_all_their_names() {
    let Some(image) = several() else { return };
    let found = discover(&image);
    assert!(found.complete && found.blind.is_empty(), "{:?}", found.blind);
    let instances: Vec<_> = found.applications.iter().map(|application| (application.engine, application.instance.as_deref())).collect();
    println!("{instances:?}, {} objects, {} bytes read", found.objects.len(), found.bytes_read);
    assert_eq!(instances.len(), 6);
    assert_eq!(application(&found, "var/lib/postgresql/15/main").version.as_deref(), Some("PostgreSQL 15"));
    assert_eq!(application(&found, "var/lib/mysql").version.as_deref(), Some("MariaDB 10.11.19"));
    assert!(application(&found, "srv/mysql-8.0").version.as_deref().is_some_and(|version| version.starts_with("MySQL 8.0.")));
    let databases: BTreeSet<&str> = found.databases.iter().map(|database| database.name.as_str()).collect();
    assert!(databases.is_superset(&BTreeSet::from(["shop", "sakila", "SampleDb", "SamplDB"])), "{databases:?}");

    let names: BTreeSet<&str> = objects(&found, "var/lib/mysql").iter().map(|object| object.name.as_str()).collect();
    for name in ["shop.items/PRIMARY", "redo", "binlog", "system tablespace", "doublewrite", "undo001"] {
        assert!(names.contains(name), "{name}: {names:?}");
    }
    // All that the servers say that they have.
    let expected = String::from_utf8(archive("mariadb-10.11").expect("it is there")["expected_indexes.tsv"].clone()).expect("text");
    let listed: BTreeSet<(u32, u64)> = objects(&found, "var/lib/mysql")
        .iter()
        .filter_map(|object| match object.key {
            Key::Index { space, index } => Some((space, index)),
            _ => None,
        })
        .collect();
    let mut count = 0;
    for line in expected.lines().skip(1) {
        let numbers: Vec<u64> = line.split('\t').filter_map(|cell| cell.parse().ok()).collect();
        let fits = |key: &(u32, u64)| numbers.contains(&u64::from(key.0)) && numbers.contains(&key.1);
        assert!(listed.iter().any(fits), "{line}");
        count += 1;
    }
    assert!(count >= 10, "{count} lines");
    let relations = objects(&found, "var/lib/postgresql/15/main");
    let unnamed: Vec<_> = relations.iter().filter(|object| object.kind == ObjectKind::Unknown).collect();
    assert!(relations.len() > 15 && unnamed.is_empty(), "{unnamed:?}");
}

#[test]
fn extents_of_objects_hold_their_pages_and_pages_lead_to_them() {
    let Some(image) = several() else { return };
    let found = discover(&image);
    let (mut with_pages, mut checked) = (0, 0);
    for object in &found.objects {
        assert_eq!(found.object(object.id), Some(object));
        if let Some(other) = object.within {
            assert!(found.object(other).is_some_and(|other| other.within.is_none() && other.extents > 0));
            assert_eq!((object.bytes, object.extents), (0, 0));
        } else {
            assert_eq!(found.extents(object.id).count() > 0, object.extents > 0);
        }
        let engine = found.application(object.application).expect("its application").engine;
        let mut own = 0;
        for (at, page) in pages_of(&found, &image, object) {
            let (id, offset) = found.at(at).expect("it is in the map");
            assert_eq!(id, object.within.unwrap_or(object.id));
            if page.certainty == Certainty::Suspect {
                continue;
            }
            assert_eq!(page.engine, engine, "{}", object.name);
            let in_tables = matches!(object.key, Key::Index { .. } | Key::Space(_) | Key::Unit { .. } | Key::File(_));
            if let (Some(place), true) = (page.file_offset().filter(|_| !matches!(page.native, Native::Postgres(_))), in_tables) {
                assert_eq!(offset, place, "{}: {page:?}", object.name);
            }
            own += match (&object.key, key_of(&page)) {
                (Key::Index { space, index }, Some(key)) => usize::from(key == u64::from(*space) << 32 | index & 0xffff_ffff),
                (Key::Unit { unit, .. }, Some(key)) => usize::from(key == *unit),
                _ => 1,
            };
        }
        with_pages += usize::from(own > 0);
        // An index that was never filled has no page; an encrypted table none that could be read.
        let has_pages = matches!(object.key, Key::Index { .. } | Key::Space(_)) && !object.encrypted && object.kind != ObjectKind::Undo;
        if has_pages && object.name.starts_with("shop.") && !object.name.contains("pagecomp") {
            checked += 1;
            assert!(own > 0, "{object:?}");
        }
    }
    println!("{with_pages} of {} objects have pages of their own", found.objects.len());
    assert!(checked > 20 && with_pages > 150, "{checked} {with_pages}");
}

/// Two areas of a mebibyte from page 64 on, in the first file: what lies there are copies of pages of
/// others, and nothing of the system tablespace.
#[test]
fn the_doublewrite_buffer_in_a_system_tablespace_is_an_object() {
    let Some(files) = archive("mariadb-10.11") else { return };
    let files: Files = files.into_iter().filter(|(path, _)| path.ends_with(".ibd") || path == "ibdata1").collect();
    let Some(whole) = image(&files) else { return };
    let of = |found: &Found, kind| found.objects.iter().find(|object| object.kind == kind && object.within.is_none()).cloned();
    let found = discover(&whole);
    let (system, own) = (of(&found, ObjectKind::Dictionary).expect("it is there"), of(&found, ObjectKind::Doublewrite).expect("too"));
    let file = &files["ibdata1"];
    assert_eq!((own.bytes, system.bytes, own.path.as_str()), (2 << 20, file.len() as u64 - (2 << 20), "ibdata1"));
    let mut held = [0, 0];
    for (object, held) in [&own, &system].into_iter().zip(&mut held) {
        for extent in found.extents(object.id) {
            let bytes = &whole[extent.bytes.start as usize..extent.bytes.end as usize];
            // Of the doublewrite buffer offsets begin with the first area.
            let at = extent.object_offset_bytes as usize + if object.id == own.id { 1 << 20 } else { 0 };
            assert!(bytes == &file[at..at + bytes.len()], "{extent:?}");
            assert!((1 << 20..3 << 20).contains(&at) == (object.id == own.id), "{extent:?}");
            *held += bytes.len();
        }
    }
    // Pages of zeroes take no place in this image.
    assert!(held[0] >= 64 << 10 && held[1] >= 64 << 10, "{held:?}");
    let mut strangers = 0;
    for extent in found.extents(own.id) {
        for (at, page) in pages(&whole[extent.bytes.start as usize..extent.bytes.end as usize]) {
            let at = extent.bytes.start + at as u64;
            let Some(key) = key_of(&page) else { continue };
            assert_eq!(found.owner_at(Engine::Innodb, key, at), Some(own.id));
            strangers += u32::from(key >> 32 != 0);
        }
    }
    assert!(strangers > 3, "{strangers}");
    // Where the page that tells of it makes no sense, all is the system tablespace.
    for (at, bytes) in [(10, [0; 4]), (14, [0, 0, 0, 65]), (14, [0xff; 4]), (26, [0; 4])] {
        let mut bad = files.clone();
        let place = 6 * 16384 - 200 + at;
        bad.get_mut("ibdata1").expect("it is there")[place..place + 4].copy_from_slice(&bytes);
        let found = discover(&image(&bad).expect("made before"));
        assert_eq!(of(&found, ObjectKind::Doublewrite), None);
        assert_eq!(of(&found, ObjectKind::Dictionary).expect("it is there").bytes, file.len() as u64);
    }
}

/// A cluster of PostgreSQL with its database below that directory; `version` is what it says of itself.
fn cluster(files: &mut Files, directory: &str, version: &str) -> Option<()> {
    for (path, bytes) in archive("postgresql-15")?.into_iter().filter(|(path, _)| path.starts_with("base/")) {
        files.insert(format!("{directory}/{path}"), bytes);
    }
    files.insert(format!("{directory}/PG_VERSION"), format!("{version}\n").into_bytes());
    Some(())
}

#[test]
fn temporary_files_of_postgresql_are_one_object_of_their_own() {
    let mut files = Files::new();
    let Some(()) = cluster(&mut files, "main", "15") else { return };
    let table = files.iter().find(|(path, bytes)| path.starts_with("main/base/16384/16") && bytes.len() > 16384).expect("one").1.clone();
    for path in
        ["base/16384/t3_16390", "base/16384/t3_16390_fsm", "base/pgsql_tmp/pgsql_tmp77.0", "base/pgsql_tmp/pgsql_tmp77.0.fileset/0.0"]
    {
        files.insert(format!("main/{path}"), table.clone());
    }
    let Some(image) = image(&files) else { return };
    let found = discover(&image);
    let temporary: Vec<_> = found.objects.iter().filter(|object| object.kind == ObjectKind::Temporary).collect();
    let [one] = temporary[..] else { panic!("{temporary:?}") };
    assert_eq!((one.name.as_str(), one.bytes), ("temp", 4 * table.len() as u64));
    assert!(one.path.contains("t3_") && found.extents(one.id).count() > 0);
    assert!(found.objects.iter().all(|object| object.id == one.id || !object.path.contains("t3_")));
}

/// `pg_upgrade --link`: the old cluster cannot start any more, and its tables are those of the new one.
#[test]
fn a_file_of_two_clusters_is_of_the_one_that_can_start() {
    let mut files = Files::new();
    let Some(()) = cluster(&mut files, "srv/14/main", "14") else { return };
    files.insert("srv/14/main/global/pg_control.old".to_owned(), vec![0; 8192]);
    files.insert("srv/15/main/PG_VERSION".to_owned(), b"15\n".to_vec());
    files.insert("srv/15/main/global/pg_control".to_owned(), vec![0; 8192]);
    // Its own catalogue; every other file is linked.
    let is_own = |path: &str| path.ends_with("/1259") || path.ends_with("pg_filenode.map");
    let old: Vec<String> = files.keys().filter(|path| path.starts_with("srv/14/main/base/")).cloned().collect();
    let new = |path: &str| path.replace("srv/14", "srv/15");
    for path in old.iter().filter(|path| is_own(path)) {
        files.insert(new(path), files[path].clone());
    }
    let links: Vec<(String, &str)> = old.iter().filter(|path| !is_own(path)).map(|path| (new(path), path.as_str())).collect();
    let links: Vec<(&str, &str)> = links.iter().map(|(path, to)| (path.as_str(), *to)).collect();
    let Some(image) = image_with_links(&files, &links) else { return };
    let found = discover(&image);
    assert_eq!(application(&found, "srv/14/main").version.as_deref(), Some("PostgreSQL 14"));
    assert_eq!(application(&found, "srv/15/main").version.as_deref(), Some("PostgreSQL 15"));
    let dead: Vec<_> = objects(&found, "srv/14/main").iter().map(|object| object.path.clone()).collect();
    assert!(dead.iter().all(|path| is_own(path)), "{dead:?}");
    let live = objects(&found, "srv/15/main");
    assert!(
        live.len() > 15 && live.iter().all(|object| object.kind != ObjectKind::Unknown && (object.extents > 0 || object.bytes == 0)),
        "{live:?}"
    );
}

#[test]
fn a_server_too_old_for_its_names_says_so() {
    let mut files = Files::new();
    let Some(()) = cluster(&mut files, "old", "11") else { return };
    files.remove("old/base/16384/1259");
    let Some(image) = image(&files) else { return };
    let found = discover(&image);
    let told = application(&found, "old").known_by();
    assert!(told.ends_with("file map, names from PostgreSQL 12 on only"), "{told}");
}

#[test]
fn equal_ids_of_two_servers_are_kept_apart() {
    let Some(image) = several() else { return };
    let found = discover(&image);
    let (one, other) = (application(&found, "var/lib/mysql").id, application(&found, "srv/second").id);
    let mut pages_seen = 0;
    for object in objects(&found, "srv/second").into_iter().chain(objects(&found, "var/lib/mysql")) {
        let Key::Index { space, .. } = object.key else { continue };
        for (at, page) in pages_of(&found, &image, object) {
            let Some(key) = key_of(&page).filter(|key| key >> 32 == u64::from(space)) else { continue };
            assert_eq!(found.owner_of_page(Engine::Innodb, key), None, "either may be meant");
            let owner = found.owner_at(Engine::Innodb, key, at).and_then(|id| found.object(id)).expect("an owner");
            assert_eq!(owner.application, object.application);
            pages_seen += 1;
        }
    }
    assert!(one != other && pages_seen > 500, "{pages_seen}");
    // The two MySQL have different tables; their ids are equal in part only.
    let object = objects(&found, "data").into_iter().find(|object| matches!(object.key, Key::Unit { .. })).expect("a unit");
    assert!(object.within.is_some());
}

#[test]
fn one_server_alone_needs_no_place() {
    let Some(files) = archive("mariadb-10.11") else { return };
    let files: Files = files.into_iter().filter(|(path, _)| path.ends_with(".ibd") || path == "ibdata1").collect();
    let Some(image) = image(&files) else { return };
    let found = discover(&image);
    let (mut own, mut encrypted) = (BTreeSet::new(), 0);
    for object in objects(&found, "") {
        if let Key::Index { space, index } = object.key {
            let key = u64::from(space) << 32 | index & 0xffff_ffff;
            // The change buffer's low word is 0, which is the space's own.
            let expected = if index as u32 == 0 { object.within } else { Some(object.id) };
            assert_eq!(found.owner_of_page(Engine::Innodb, key), expected);
            let unknown = u64::from(space) << 32 | 0x7fff_fff0;
            let of_table = found.owner_of_page(Engine::Innodb, unknown).and_then(|id| found.object(id)).expect("the table");
            assert!(of_table.within.is_none());
            own.insert(object.id);
        }
        encrypted += usize::from(object.encrypted);
        assert_eq!(object.encrypted, object.name.starts_with("shop.items_encrypted") && object.within.is_none(), "{object:?}");
    }
    assert!(own.len() > 20 && encrypted == 1, "{} {encrypted}", own.len());
    assert_eq!(found.owner_of_page(Engine::Innodb, 77 << 40), None);
    assert_eq!(found.owner_of_page(Engine::Mssql, 1 << 48), None);
}

#[test]
fn renamed_objects_tell_no_names_and_are_found_again() {
    let Some(image) = several() else { return };
    let found = discover(&image);
    let hidden = found.clone().renamed(&|part| format!("x{:x}", part.len()));
    assert_eq!(hidden.applications, found.applications);
    // What people named, in any part of what is told.
    let told = format!("{:?} {:?}", hidden.databases, hidden.objects.iter().map(|one| (&one.name, &one.path)).collect::<Vec<_>>());
    let databases: BTreeSet<&String> = found.databases.iter().map(|database| &database.name).collect();
    assert!(databases.iter().any(|name| *name == "shop"), "{databases:?}");
    for name in ["shop", "items", ".ibd"] {
        assert!(format!("{:?}", found.objects).contains(name) && !told.contains(name), "{name}: {told}");
    }
    let named = |name: &str| hidden.objects.iter().filter(|object| object.name == name).count();
    assert_eq!(named("redo"), found.objects.iter().filter(|object| object.name == "redo").count());
    assert!(hidden.objects.iter().any(|object| object.name.ends_with("/PRIMARY")), "{told}");
    // The next look goes by what it was.
    let again = run(Discovery::again(&hidden, image.len() as u64), &image);
    assert_eq!(again.objects, found.objects);
    let twice = run(Discovery::again(&again.renamed(&|_| "y".into()), image.len() as u64), &image);
    assert_eq!(twice.objects, found.objects);
}

#[test]
fn found_again_objects_keep_their_numbers_wherever_they_moved() {
    let Some(image) = several() else { return };
    let found = discover(&image);
    let again = run(Discovery::again(&found, image.len() as u64), &image);
    assert_eq!(again.objects, found.objects);
    assert_eq!(discover(&image).objects, found.objects, "without the earlier one too");

    // The same files, a table of one server copied elsewhere and back, one of the other gone: its
    // blocks are others now.
    let Some(moved) = servers(|files| {
        let table = files.remove("var/lib/mysql/shop/items.ibd").expect("a table");
        // A directory that is made before all others takes the first blocks.
        files.insert("0/first.bin".to_owned(), vec![7; 3 << 20]);
        files.insert("var/lib/mysql/shop/items.ibd".to_owned(), table);
    }) else {
        return;
    };
    let mut before = image.clone();
    // One file system, as seen by its UUID.
    before[1024 + 0x68..1024 + 0x78].copy_from_slice(&moved[1024 + 0x68..1024 + 0x78]);
    let checksum = !format::checksum::crc32c(&before[1024..1024 + 0x3fc]);
    before[2044..2048].copy_from_slice(&checksum.to_le_bytes());
    let before = discover(&before);
    let after = run(Discovery::again(&before, moved.len() as u64), &moved);
    let place = |found: &Found, name: &str| {
        let object = objects(found, "var/lib/mysql").into_iter().find(|object| object.name == name).expect("an object").clone();
        (object.id, found.extents(object.id).map(|extent| extent.bytes).collect::<Vec<_>>())
    };
    let (one, other) = (place(&before, "shop.items/PRIMARY"), place(&after, "shop.items/PRIMARY"));
    assert_eq!(one.0, other.0);
    assert!(one.1 != other.1 && !other.1.is_empty(), "{one:?} {other:?}");
    assert!(recognise(&moved[other.1[0].start as usize..]).is_some());
}

#[test]
fn what_is_no_known_file_system_is_said_and_looked_at() {
    let Some(files) = archive("mariadb-10.11") else { return };
    let mut volume = vec![0; 64 << 20];
    volume[..4].copy_from_slice(b"XFSB");
    let system = &files["ibdata1"];
    volume[16 << 20..(16 << 20) + system.len()].copy_from_slice(system);
    let found = discover(&volume);
    assert!(!found.complete && found.objects.len() == 1 && found.map.count() == 0);
    let [blind] = &found.blind[..] else { panic!("{:?}", found.blind) };
    assert_eq!((blind.bytes.clone(), blind.reason), (0..64 << 20, Reason::Xfs(xfs::Refused::Version { version: 0 })));
    assert!(blind.seen.iter().all(|seen| seen.engine == Engine::Innodb && seen.bytes.start >= 16 << 20), "{:?}", blind.seen);
    assert!(!blind.seen.is_empty());
    assert_eq!(found.objects[0].name, "InnoDB pages, unnamed");
    let again = run(Discovery::again(&found, volume.len() as u64), &volume);
    assert_eq!(again.objects, found.objects);
    assert_eq!(discover(&[]).blind.len(), 0);
}

#[test]
fn a_blank_volume_that_gets_a_file_system_meanwhile_is_outdated() {
    const BYTES: u64 = 2 << 30;
    let outdated = |changes_after: u64, at: u64, sign: &[u8]| {
        let (mut discovery, mut reads) = (Discovery::new(BYTES), 0);
        while let Some(read) = discovery.next() {
            let mut bytes = vec![0; read.len_bytes];
            reads += 1;
            let end = read.offset_bytes + read.len_bytes as u64;
            if reads > changes_after && (read.offset_bytes..end).contains(&at) {
                let from = (at - read.offset_bytes) as usize;
                bytes[from..from + sign.len()].copy_from_slice(sign);
            }
            discovery.give(read.offset_bytes, Ok(&bytes));
        }
        (discovery.finish().outdated, reads)
    };
    let (never, all) = outdated(u64::MAX, 0, b"");
    assert!(!never && all > 500, "{all}");
    // The magic number of ext4; LUKS; XFS. They are seen soon, and at the latest at the end.
    for (at, sign) in [(1024 + 0x38, &b"\x53\xef"[..]), (0, b"LUKS\xba\xbe"), (0, b"XFSB")] {
        let (is, reads) = outdated(100, at, sign);
        assert!(is && reads < 300, "{reads}");
        assert!(outdated(all - 10, at, sign).0);
    }
    // What lies there from the begin on, and what is written elsewhere, changes nothing.
    assert!(!outdated(0, 0, b"LUKS\xba\xbe").0 && !outdated(100, 1 << 30, b"LUKS\xba\xbe").0);
}

#[test]
fn truncated_and_damaged_images_end_within_the_limits() {
    let Some(image) = several() else { return };
    let mut numbers = Numbers(11);
    for cut in [0, 511, 512, 1536, 2048, 70 << 10, 1 << 20, 5 << 20, 40 << 20] {
        discover(&image[..cut]);
    }
    // Damage where it is read: file system, heads and dictionaries.
    let mut reads = Vec::new();
    let mut discovery = Discovery::new(image.len() as u64);
    while let Some(read) = discovery.next() {
        let at = read.offset_bytes as usize;
        reads.push((at, read.len_bytes));
        discovery.give(read.offset_bytes, Ok(&image[at..at + read.len_bytes]));
    }
    let mut damaged = image.clone();
    let mut objects = 0;
    for round in 0..200 {
        let mut places = Vec::new();
        for _ in 0..[1, 30, 1000][round % 3] {
            let (at, len) = reads[numbers.below(reads.len())];
            // The first bytes of a page say more than the rest. One superblock lies in the first.
            let inside = if round % 2 == 0 { numbers.below(len / 4096 + 1) * 4096 + numbers.below(128) } else { numbers.below(len) };
            let at = (at + inside).min(image.len() - 64);
            if at > 4096 || round % 10 == 0 {
                places.push(at);
            }
        }
        for at in &places {
            let len = [1, 4, 64][numbers.below(3)];
            let byte = [0, 0xff, numbers.next() as u8][numbers.below(3)];
            damaged[*at..at + len].fill(byte);
        }
        let found = discover(&damaged);
        objects += found.objects.len();
        for extent in found.map.all() {
            assert!(extent.bytes.end <= damaged.len() as u64 && found.object(extent.object).is_some());
        }
        for at in places {
            damaged[at..at + 64].copy_from_slice(&image[at..at + 64]);
        }
    }
    println!("{} objects in a damaged image", objects / 200);
    assert!(objects > 200 * 10, "{objects}");
}

#[test]
fn reads_that_fail_or_stop_leave_what_was_found() {
    let Some(image) = several() else { return };
    let all = discover(&image);
    // Stopped after so many reads.
    for reads in [0, 1, 5, 40, 200, 600] {
        let mut discovery = Discovery::new(image.len() as u64);
        for _ in 0..reads {
            let Some(read) = discovery.next() else { break };
            let at = read.offset_bytes as usize;
            discovery.give(read.offset_bytes, Ok(&image[at..at + read.len_bytes]));
        }
        let done = discovery.next().is_none();
        let found = discovery.finish();
        assert_eq!(found.complete, done);
        assert!(found.objects.len() <= all.objects.len());
    }
    // Every seventh fails, comes short, or is an answer to nothing.
    let mut discovery = Discovery::new(image.len() as u64);
    let mut count = 0;
    while let Some(read) = discovery.next() {
        count += 1;
        let at = read.offset_bytes as usize;
        let bytes = &image[at..at + read.len_bytes];
        discovery.give(read.offset_bytes + 512, Ok(bytes));
        match count % 70 {
            7 => discovery.give(read.offset_bytes, Err(())),
            14 => discovery.give(read.offset_bytes, Ok(&bytes[1..])),
            _ => discovery.give(read.offset_bytes, Ok(bytes)),
        }
    }
    let found = discovery.finish();
    assert!(!found.complete && !found.objects.is_empty());
}

#[test]
fn the_same_file_system_in_two_partitions_is_two_servers() {
    let Some(image) = several() else { return };
    // MBR: a partition at 1 MiB, another behind it, and a third of zeroes.
    let starts = [1 << 20, (1 << 20) + image.len(), (1 << 20) + 2 * image.len()];
    let mut volume = vec![0; starts[2] + (8 << 20)];
    for (number, start) in starts.into_iter().enumerate() {
        let entry = 446 + 16 * number;
        volume[entry + 4] = 0x83;
        volume[entry + 8..entry + 12].copy_from_slice(&(start as u32 / 512).to_le_bytes());
        if number < 2 {
            volume[start..start + image.len()].copy_from_slice(&image);
        }
    }
    volume[510..512].copy_from_slice(&[0x55, 0xaa]);
    let found = discover(&volume);
    let alone = discover(&image);
    assert_eq!((found.applications.len(), found.objects.len()), (2 * alone.applications.len(), 2 * alone.objects.len()));
    let ids: BTreeSet<_> = found.objects.iter().map(|object| object.id).collect();
    assert_eq!(ids.len(), found.objects.len());
    for extent in found.map.all() {
        let start =
            found.object(extent.object).and_then(|object| found.application(object.application)).expect("its application").start_bytes;
        assert!(extent.bytes.start >= start && extent.bytes.end <= start + image.len() as u64);
    }
    let [blind] = &found.blind[..] else { panic!("{:?}", found.blind) };
    assert_eq!((blind.bytes.clone(), blind.reason), (starts[2] as u64..volume.len() as u64, Reason::Unknown));
}

#[test]
fn what_cannot_be_read_is_called_by_its_name() {
    let check = |at: usize, sign: &[u8], expected: Reason| {
        let mut volume = vec![0; 1 << 20];
        volume[at..at + sign.len()].copy_from_slice(sign);
        let found = discover(&volume);
        assert_eq!(found.blind[0].reason, expected);
        assert!(found.applications.is_empty() && found.blind[0].seen.is_empty());
    };
    check(512, b"LABELONE", Reason::Other("LVM"));
    check(3, b"NTFS    ", Reason::Other("NTFS"));
    check(0, b"LUKS\xba\xbe", Reason::Other("LUKS encryption"));
    check(0x1_0040, b"_BHRfS_M", Reason::Other("btrfs"));
    check(0, b"", Reason::Unknown);
    check(1024 + 0x38, &[0x53, 0xef], Reason::Ext4(ext4::Refused::Damaged));
}

#[test]
fn names_off_a_disk_give_no_orders_to_a_terminal() {
    let mut files = Files::new();
    files.insert("srv/a\x1b[2Jb/shop/x\x07y.ibd".to_owned(), vec![0; 64 << 10]);
    let Some(image) = image(&files) else { return };
    let found = discover(&image);
    assert_eq!(found.applications[0].instance.as_deref(), Some("srv/a\u{fffd}[2Jb"));
    assert_eq!((found.objects.len(), found.objects[0].name.as_str()), (1, "shop.x\u{fffd}y"));
    assert_eq!(found.objects[0].path, "srv/a\u{fffd}[2Jb/shop/x\u{fffd}y.ibd");
    let evidence = found.objects[0].evidence;
    assert!(evidence.file && !evidence.pages && !evidence.catalogue, "zeroes prove nothing");
}

#[test]
fn every_file_of_a_database_has_an_object() {
    let Some(image) = several() else { return };
    let found = discover(&image);
    let paths: BTreeSet<&str> = found.objects.iter().map(|object| object.path.as_str()).filter(|path| !path.is_empty()).collect();
    assert!(paths.iter().all(|path| engine_of_file(path).is_some()));
    let tables = paths.iter().filter(|path| path.ends_with(".ibd") && !path.ends_with("mysql.ibd")).count();
    assert!(tables > 25, "{tables}");
}
