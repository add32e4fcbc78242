//! What servers tell of their names, against what their dictionaries on a volume tell. Needs
//! `../shared/pages` and `mkfs.ext4`.

use crate::common::images::servers;
use applications::Engine;
use applications::discovery::{Discovery, Found, Key, NameList, NamedRelation, Object, ObjectKind, ServerNames};
use std::collections::BTreeMap;

const MARIADB: &str = "var/lib/mysql";
const POSTGRES: &str = "var/lib/postgresql/15/main";

fn run(mut discovery: Discovery, image: &[u8]) -> Found {
    while let Some(read) = discovery.next() {
        let at = usize::try_from(read.offset_bytes).expect("an offset");
        discovery.give(read.offset_bytes, Ok(&image[at..at + read.len_bytes]));
    }
    discovery.finish()
}

fn objects<'a>(found: &'a Found, instance: &str) -> impl Iterator<Item = &'a Object> {
    let id = found.applications.iter().find(|one| one.instance.as_deref() == Some(instance)).expect("an application").id;
    found.objects.iter().filter(move |object| object.application == id)
}

/// What a server with the objects of a discovery would tell, and some names more; `rename` may change names.
fn told_with(found: &Found, instance: &str, more: NameList, rename: impl Fn(&str) -> String) -> ServerNames {
    let application = found.applications.iter().find(|one| one.instance.as_deref() == Some(instance)).expect("an application");
    let mut names = more;
    for object in objects(found, instance).filter(|object| object.evidence.catalogue) {
        match object.key {
            Key::Index { space, index } => {
                let (table, index_name) = object.name.split_once('/').expect("a table and an index");
                let (database, table) = table.split_once('.').map_or((None, table), |(database, table)| (Some(database), table));
                let table = database.map_or_else(|| table.to_owned(), |database| format!("{database}/{}", rename(table)));
                names.index((space, index), object.kind == ObjectKind::Table, &table, index_name, None);
            }
            Key::Relation { database, file } => {
                let of = object.database.as_deref();
                let own = of.map_or(object.name.as_str(), |of| &object.name[of.len() + 1..]);
                let (schema, rest) = own.split_once('.').expect("a schema");
                let (table, index) = rest.split_once('/').map_or((rest, None), |(table, index)| (table, Some(index)));
                names.relation(&NamedRelation { database, file, of, schema, table: &rename(table), index, kind: object.kind });
            }
            _ => {}
        }
    }
    ServerNames::of(application, names).expect("one that can be asked")
}

fn told(found: &Found, instance: &str, rename: impl Fn(&str) -> String) -> ServerNames {
    told_with(found, instance, NameList::default(), rename)
}

/// What matters of objects, by key.
fn essence(found: &Found, instance: &str) -> BTreeMap<String, (String, ObjectKind, Option<String>, bool)> {
    let of = |object: &Object| (object.name.clone(), object.kind, object.database.clone(), object.within.is_some());
    objects(found, instance).map(|object| (object.key.to_string(), of(object))).collect()
}

/// The servers with, and without, what their dictionaries on the volume say.
fn with_and_without() -> Option<(Vec<u8>, Vec<u8>)> {
    let with = servers(|_| {})?;
    let without = servers(|files| {
        // The system tablespace without its dictionary, and the relations of a database without pg_class.
        let system = files.get_mut(&format!("{MARIADB}/ibdata1")).expect("it is there");
        system[6 * 16384..].fill(0);
        files.retain(|path, _| !path.starts_with(POSTGRES) || !path.ends_with("/1259") && !path.ends_with("/pg_filenode.map"));
    })?;
    Some((with, without))
}

#[test]
fn servers_name_what_their_dictionary_on_the_volume_does_not() {
    let Some((with, without)) = with_and_without() else { return };
    let (complete, bare) = (run(Discovery::new(with.len() as u64), &with), run(Discovery::new(without.len() as u64), &without));
    let named = |found: &Found, instance: &str| objects(found, instance).filter(|object| object.evidence.catalogue).count();
    assert_eq!((named(&bare, MARIADB), named(&bare, POSTGRES)), (0, 0), "{:?}", bare.objects);
    let names = vec![told(&complete, MARIADB, str::to_owned), told(&complete, POSTGRES, str::to_owned)];
    let found = run(Discovery::knowing(Some(&bare), without.len() as u64, names.clone()), &without);
    assert_eq!(essence(&found, MARIADB), essence(&complete, MARIADB));
    let (of_server, of_volume) = (essence(&found, POSTGRES), essence(&complete, POSTGRES));
    for (key, object) in &of_server {
        assert_eq!(Some(object), of_volume.get(key), "{key}");
    }
    assert!(of_server.len() > 15 && named(&found, POSTGRES) == of_server.len(), "{of_server:?}");
    // Pages lead to indexes that only the server named.
    let index = objects(&found, MARIADB).find(|object| object.kind == ObjectKind::Index).expect("an index");
    let Key::Index { space, index: number } = index.key else { panic!("{index:?}") };
    let place = found.extents(index.within.expect("it lies in its table")).next().expect("an extent").bytes.start;
    assert_eq!(found.owner_at(Engine::Innodb, u64::from(space) << 32 | number & 0xffff_ffff, place), Some(index.id));
    // Files keep their numbers, as do all objects when the server is asked again, or not any more.
    let table = |found: &Found| objects(found, MARIADB).find(|object| object.path.ends_with("items.ibd")).expect("a table").id;
    assert_eq!(table(&bare), table(&found));
    let again = run(Discovery::knowing(Some(&found), without.len() as u64, names), &without);
    assert_eq!(again.objects, found.objects);
    let alone = run(Discovery::again(&found, without.len() as u64), &without);
    assert!(table(&alone) == table(&found) && named(&alone, MARIADB) == 0);
}

#[test]
fn the_server_is_right_where_the_volume_says_something_else() {
    let Some((with, _)) = with_and_without() else { return };
    let complete = run(Discovery::new(with.len() as u64), &with);
    let newer = |name: &str| if name == "items" { "wares".to_owned() } else { name.to_owned() };
    let names = vec![told(&complete, MARIADB, newer)];
    let found = run(Discovery::knowing(Some(&complete), with.len() as u64, names), &with);
    let find = |found: &Found, name: &str| objects(found, MARIADB).find(|object| object.name == name).map(|object| object.id);
    assert_eq!(find(&found, "shop.wares/PRIMARY"), find(&complete, "shop.items/PRIMARY"));
    assert!(find(&found, "shop.wares/PRIMARY").is_some() && find(&found, "shop.items/PRIMARY").is_none());
    // Nobody else's names changed.
    for other in ["srv/mysql-8.0", "srv/mysql-8.4", POSTGRES] {
        assert_eq!(essence(&found, other), essence(&complete, other), "{other}");
    }
}

#[test]
fn what_lies_elsewhere_is_left_out() {
    let Some((with, _)) = with_and_without() else { return };
    let complete = run(Discovery::new(with.len() as u64), &with);
    let (mut indexes, mut relations) = (NameList::default(), NameList::default());
    indexes.index((4_000_000, 9), true, "shop/elsewhere", "PRIMARY", None);
    let elsewhere = NamedRelation {
        database: 7,
        file: 8,
        of: Some("other"),
        schema: "public",
        table: "elsewhere",
        index: None,
        kind: ObjectKind::Table,
    };
    relations.relation(&elsewhere);
    let names = vec![told_with(&complete, MARIADB, indexes, str::to_owned), told_with(&complete, POSTGRES, relations, str::to_owned)];
    let found = run(Discovery::knowing(Some(&complete), with.len() as u64, names), &with);
    assert_eq!(found.objects, complete.objects);
    assert_eq!(found.databases, complete.databases);
}

#[test]
fn another_server_is_known_by_its_names() {
    let Some((with, _)) = with_and_without() else { return };
    let found = run(Discovery::new(with.len() as u64), &with);
    let hide = |part: &str| format!("x{:x}", part.bytes().fold(7u64, |sum, byte| sum.wrapping_mul(31) + u64::from(byte)));
    let hidden = found.clone().renamed(&hide);
    for instance in [MARIADB, POSTGRES] {
        let application = found.applications.iter().find(|one| one.instance.as_deref() == Some(instance)).expect("an application");
        for (found, rename) in [(&found, None), (&hidden, Some(&hide as &dyn Fn(&str) -> String))] {
            let same = told(&self::found(&with), instance, str::to_owned).agreement(found, application, rename);
            assert!(same.alike > 3 && same.unlike == 0 && !same.is_another_server(), "{instance} {same:?}");
            let other = told(&self::found(&with), instance, |name| format!("{name}2")).agreement(found, application, rename);
            assert!(other.alike == 0 && other.is_another_server(), "{instance} {other:?}");
            let empty =
                ServerNames::of(application, NameList::default()).expect("one that can be asked").agreement(found, application, rename);
            assert!(empty.is_another_server(), "{instance} {empty:?}");
        }
    }
    let mssql = found.applications.iter().find(|one| one.engine == Engine::Mssql).expect("a SQL Server");
    assert_eq!(ServerNames::of(mssql, NameList::default()), None);
}

fn found(image: &[u8]) -> Found {
    run(Discovery::new(image.len() as u64), image)
}
