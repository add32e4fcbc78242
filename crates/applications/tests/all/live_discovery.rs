//! Discovery against the catalogues of live servers, on a mounted ext4 and XFS: names, keys and
//! the bytes of files, before and after tables were rebuilt. Needs root, loop devices, and a
//! MariaDB or a PostgreSQL; skipped with a message where they are missing. Everything is made below
//! one directory, and goes with it.

use crate::machine::{Server, Volume};
use applications::Engine;
use applications::discovery::{Application, Discovery, Found, Key, Object, ObjectKind};
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::Path;

const MIB: u64 = 1 << 20;

fn run(mut discovery: Discovery, image: &Path) -> Found {
    let image = std::fs::File::open(image).expect("the image");
    let mut bytes = Vec::new();
    while let Some(read) = discovery.next() {
        bytes.resize(read.len_bytes, 0);
        let can = image.read_exact_at(&mut bytes, read.offset_bytes).is_ok();
        discovery.give(read.offset_bytes, if can { Ok(&bytes) } else { Err(()) });
    }
    discovery.finish()
}

/// The only application of an engine, with its objects.
fn of_engine(found: &Found, engine: Engine) -> (&Application, Vec<&Object>) {
    let application = found.applications.iter().find(|application| application.engine == engine).expect("an application");
    (application, found.objects.iter().filter(|object| object.application == application.id).collect())
}

/// What the map says of an object's file is what the file is.
fn has_the_bytes_of_its_file(found: &Found, object: &Object, volume: &Volume) {
    let file = std::fs::read(volume.mounted().join(&object.path)).expect("the file");
    let image = std::fs::File::open(volume.image()).expect("the image");
    let mut bytes = vec![0; file.len().next_multiple_of(4096)];
    for extent in found.extents(object.id) {
        let (at, len) = (extent.object_offset_bytes as usize, (extent.bytes.end - extent.bytes.start) as usize);
        // Of the first fork, and what was written of it.
        if at < bytes.len() {
            let len = len.min(bytes.len() - at);
            image.read_exact_at(&mut bytes[at..at + len], extent.bytes.start).expect("its bytes");
        }
    }
    bytes.truncate(file.len());
    assert!(bytes == file, "{object:?}");
}

/// Name and key of all tables and indexes, as the server says.
fn innodb_catalogue(server: &Server) -> BTreeMap<(u32, u64), String> {
    let text = server.ask(
        "select t.space, i.index_id, concat('shop.', convert(cast(convert(substring_index(t.name, '/', -1) using binary) \
         as char character set filename) using utf8mb4)), i.name from information_schema.innodb_sys_indexes i \
         join information_schema.innodb_sys_tables t using (table_id) where t.name like 'shop/%'",
    );
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('\t').collect();
        let key = (cells[0].parse().expect("a space"), cells[1].parse().expect("an index"));
        (key, format!("{}/{}", cells[2], cells[3]))
    };
    text.lines().map(row).collect()
}

fn innodb_names(objects: &[&Object]) -> BTreeMap<(u32, u64), String> {
    let named = |object: &&Object| match object.key {
        Key::Index { space, index } if object.database.as_deref() == Some("shop") => Some(((space, index), object.name.clone())),
        _ => None,
    };
    objects.iter().filter_map(named).collect()
}

/// Makes tables whose names have all letters for which file names have a code of their own; their
/// names.
fn tables_of_letters(server: &Server) -> Vec<String> {
    let letters = server.ask(
        "use shop; select seq from seq_128_to_65535 where length(convert(convert(unhex(lpad(hex(seq), 4, '0')) using ucs2) using filename)) = 3 \
         order by seq",
    );
    let letters: Vec<char> = letters.lines().map(|line| char::from_u32(line.parse().expect("a number")).expect("a letter")).collect();
    assert!(letters.len() > 1000, "{} letters", letters.len());
    let names: Vec<String> = letters.chunks(60).map(|letters| letters.iter().collect()).collect();
    server.ask(&names.iter().map(|name| format!("create table shop.`{name}` (a int);")).collect::<String>());
    names
}

#[test]
fn a_live_mariadb_is_found_as_its_catalogue_says() {
    let Some(volume) = Volume::make(512 * MIB) else { return };
    mariadb_is_found(&volume);
}

#[test]
fn a_live_mariadb_on_xfs_is_found_as_its_catalogue_says() {
    let Some(volume) = Volume::xfs(&[], "", 512 * MIB) else { return };
    mariadb_is_found(&volume);
}

fn mariadb_is_found(volume: &Volume) {
    let Some(server) = Server::mariadb(volume) else { return };
    server.ask("create database shop");
    for table in 0..12 {
        server.ask(&format!(
            "use shop; create table shop.orders{table} (id int primary key, k int not null, c varchar(120), key k_{table} (k), key c_k (c, k)); \
             insert into shop.orders{table} select seq, seq * 7919 % 10007, repeat(char(97 + seq % 26), 100) from seq_1_to_{}",
            200 + 2000 * (table % 4)
        ));
    }
    server.ask("create table shop.`odd name-1` (a int); insert into shop.`odd name-1` values (1)");
    let tables = tables_of_letters(&server);
    let settle = || {
        // The dictionary's pages are in the server's memory first, as the file system's are in the kernel's.
        server.ask("set global innodb_max_dirty_pages_pct = 0, innodb_max_dirty_pages_pct_lwm = 0");
        server
            .wait("select variable_value = 0 from information_schema.global_status where variable_name = 'Innodb_buffer_pool_pages_dirty'");
        volume.commit();
    };
    settle();
    let found = run(Discovery::new(512 * MIB), volume.image());
    let (application, objects) = of_engine(&found, Engine::Innodb);
    println!("{application:?}, {} objects, {} bytes read", objects.len(), found.bytes_read);
    let catalogue = innodb_catalogue(&server);
    assert_eq!(innodb_names(&objects), catalogue);
    assert!(catalogue.len() == 37 + tables.len() && application.version.as_deref().is_some_and(|version| version.starts_with("MariaDB ")));
    assert!(application.evidence.pages && application.evidence.catalogue && found.complete);
    for object in objects.iter().filter(|object| object.name.starts_with("shop.") && object.within.is_none()) {
        has_the_bytes_of_its_file(&found, object, volume);
    }
    assert!(objects.iter().any(|object| object.kind == ObjectKind::Binlog) && objects.iter().any(|object| object.kind == ObjectKind::Redo));

    server.ask("alter table shop.orders3 force; drop table shop.orders5");
    settle();
    let again = run(Discovery::again(&found, 512 * MIB), volume.image());
    let find = |found: &Found, name: &str| of_engine(found, Engine::Innodb).1.into_iter().find(|object| object.name == name).cloned();
    for name in ["shop.orders3/PRIMARY", "shop.orders3/c_k"] {
        let (before, after) = (find(&found, name).expect("it was there"), find(&again, name).expect("it is there"));
        assert!(before.id == after.id && before.key != after.key, "{before:?} {after:?}");
    }
    assert!(find(&again, "shop.orders5/PRIMARY").is_none());
    has_the_bytes_of_its_file(&again, &find(&again, "shop.orders3/PRIMARY").expect("it is there"), volume);
}

/// The files of the relations of the database `shop`, with their names, as the server says.
fn postgres_catalogue(server: &Server) -> BTreeMap<u32, String> {
    let text = server.ask(
        "select pg_relation_filenode(c.oid), case when i.indexrelid is null then n.nspname || '.' || coalesce(o.relname, c.relname) \
         else n.nspname || '.' || coalesce(io.relname, t.relname) || '/' || c.relname end \
         from pg_class c join pg_namespace n on n.oid = c.relnamespace left join pg_index i on i.indexrelid = c.oid \
         left join pg_class t on t.oid = i.indrelid left join pg_class o on o.reltoastrelid = c.oid \
         left join pg_class io on io.reltoastrelid = t.oid where pg_relation_filenode(c.oid) is not null and not c.relisshared",
    );
    let row = |line: &str| {
        let (file, name) = line.split_once('\t').expect("two columns");
        (file.parse().expect("a number"), format!("shop/{name}"))
    };
    text.lines().map(row).collect()
}

#[test]
fn a_live_postgresql_is_found_as_its_catalogue_says() {
    let Some(volume) = Volume::make(512 * MIB) else { return };
    postgres_is_found(&volume);
}

#[test]
fn a_live_postgresql_on_xfs_is_found_as_its_catalogue_says() {
    let Some(volume) = Volume::xfs(&[], "", 512 * MIB) else { return };
    postgres_is_found(&volume);
}

fn postgres_is_found(volume: &Volume) {
    let Some(server) = Server::postgres(volume) else { return };
    server.ask("create database shop");
    let server = server.of_database("shop");
    for table in 0..12 {
        server.ask(&format!(
            "create table orders{table} (id int primary key, k int not null, c text); create index k_{table} on orders{table} (k); \
             insert into orders{table} select n, n * 7919 % 10007, repeat(md5(n::text), 3) from generate_series(1, {}) n",
            200 + 2000 * (table % 4)
        ));
    }
    server.ask("create schema other; create table other.\"odd name-1\" (a int); insert into other.\"odd name-1\" values (1)");
    let settle = || {
        server.ask("checkpoint");
        volume.commit();
    };
    settle();
    let found = run(Discovery::new(512 * MIB), volume.image());
    let (application, objects) = of_engine(&found, Engine::Postgres);
    println!("{application:?}, {} objects, {} bytes read", objects.len(), found.bytes_read);
    let names = |found: &Found| -> BTreeMap<u32, String> {
        let file = |object: &&Object| match object.key {
            Key::Relation { file, .. } if object.database.as_deref() == Some("shop") => Some((file, object.name.clone())),
            _ => None,
        };
        of_engine(found, Engine::Postgres).1.iter().filter_map(file).collect()
    };
    assert_eq!(names(&found), postgres_catalogue(&server));
    let unknown: Vec<_> = objects.iter().filter(|object| object.kind == ObjectKind::Unknown).collect();
    assert!(unknown.is_empty() && found.complete, "{unknown:?}");
    assert!(application.version.as_deref().is_some_and(|version| version.starts_with("PostgreSQL ")));
    for object in objects.iter().filter(|object| object.name.contains("orders")) {
        has_the_bytes_of_its_file(&found, object, volume);
    }

    server.ask("vacuum full orders3");
    server.ask("vacuum full pg_class");
    server.ask("drop table orders5");
    settle();
    let again = run(Discovery::again(&found, 512 * MIB), volume.image());
    assert_eq!(names(&again), postgres_catalogue(&server));
    let find = |found: &Found, name: &str| of_engine(found, Engine::Postgres).1.into_iter().find(|object| object.name == name).cloned();
    for name in ["shop/public.orders3", "shop/public.orders3/orders3_pkey"] {
        let (before, after) = (find(&found, name).expect("it was there"), find(&again, name).expect("it is there"));
        assert!(before.id == after.id && before.key != after.key, "{before:?} {after:?}");
    }
    assert!(find(&again, "shop/public.orders5").is_none());
    has_the_bytes_of_its_file(&again, &find(&again, "shop/public.orders3").expect("it is there"), volume);

    // Beside an open snapshot old versions of rows stay where they are, and name the pages of the new ones.
    let each = |statement: &str| format!("do $$ begin for i in 1..300 loop execute format('{statement}', i); end loop; end $$");
    server.ask(&each("create table many%1$s (a int)"));
    let snapshot = server.snapshot();
    server.ask(&each("alter table many%1$s add column b int"));
    server.ask(&each("alter table many%1$s add column c int"));
    settle();
    let beside = run(Discovery::again(&again, 512 * MIB), volume.image());
    assert_eq!(names(&beside), postgres_catalogue(&server));
    drop(snapshot);
}
