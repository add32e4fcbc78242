//! Against servers that run, each in a temporary directory: names, sessions with their programs, and
//! the sentences when a login does not work. Skipped with a message where a program is missing.

mod servers;

use applications::{Engine, ObjectKind};
use catalogue::{Catalogue, Clients, Login, Reason, Sessions, Trouble};
use servers::{Mariadb, Postgres};
use std::collections::BTreeSet;

fn ask(engine: Engine, file: &std::path::Path) -> Result<Catalogue, Trouble> {
    Catalogue::ask(&Login::at(engine, file)?, &Clients::installed())
}

#[test]
fn a_mariadb_tells_names_and_sessions() {
    let Some(server) = Mariadb::start() else { return };
    server.ask(
        "create database shop; create table shop.orders (id int primary key, k int, c text, key by_k (k), fulltext key words (c)); \
         create table shop.`odd name-1` (a int); create user hearth@localhost identified by 'it''s ''#;\"'; \
         create user less@localhost identified by 'x'; grant process on *.* to hearth@localhost, less@localhost; \
         grant select on performance_schema.* to hearth@localhost; create user nothing@localhost identified by 'x'",
    );
    // A password with all that is odd in an option file.
    let login = server.login("[client]\nuser = hearth\npassword = \"it's '#;\\\"\"\n");
    let catalogue = ask(Engine::Innodb, &login).expect("names");
    assert!(catalogue.server.product.starts_with("MariaDB 1") && catalogue.server.user == "hearth@localhost", "{:?}", catalogue.server);
    let own: Vec<_> = catalogue.names.iter().filter(|(_, name)| name.database.as_deref() == Some("shop")).collect();
    let of = |table: &str| -> BTreeSet<(&str, bool)> {
        let of_table = own.iter().filter(|(_, name)| name.table.as_deref() == Some(table));
        of_table.map(|(_, name)| (name.index.as_deref().unwrap_or_default(), name.kind == ObjectKind::Table)).collect()
    };
    // A full-text index has tables of its own, and one over the hidden column that it needs.
    assert_eq!(of("orders"), BTreeSet::from([("FTS_DOC_ID_INDEX", false), ("PRIMARY", true), ("by_k", false)]));
    assert_eq!(of("odd name-1"), BTreeSet::from([("GEN_CLUST_INDEX", true)]));
    assert!(own.iter().all(|((space, _), name)| *space > 0 && name.root >= Some(3)));

    let sleeper = server.sleeper();
    let mut sessions = Sessions::open(&Login::at(Engine::Innodb, &login).expect("a login"), &Clients::installed()).expect("a connection");
    let found =
        servers::patiently(|| sessions.ask().expect("sessions").into_iter().find(|one| one.user == "root" && one.database == "shop"));
    assert!(["mariadb", "mysql"].contains(&found.program.as_str()), "{found:?}");
    assert!(server.has_thread(found.thread), "{found:?}");
    drop(sleeper);
    servers::patiently(|| sessions.ask().expect("sessions").iter().all(|one| one.user != "root").then_some(()));

    let less = Login::at(Engine::Innodb, &server.login("[client]\nuser = less\npassword = x\n")).expect("a login");
    let mut less = Sessions::open(&less, &Clients::installed()).expect("a connection");
    assert!(!less.server().programs && less.ask().is_ok());

    let check = |text: &str, reason: Reason, words: &str| {
        let trouble = ask(Engine::Innodb, &server.login(text)).expect_err(text);
        assert!(trouble.reason == reason && trouble.problem.contains(words), "{trouble:?}");
    };
    check("[client]\nuser = hearth\npassword = wrong\n", Reason::Refused, "Access denied for user 'hearth'");
    check("[client]\nuser = nothing\npassword = x\n", Reason::Denied, "PROCESS");
    check("[client]\nuser = hearth\nsocket = /nowhere/socket\n", Reason::Unreachable, "/nowhere/socket");
    check("[client]\nuser = hearth\nnonsense = 1\n", Reason::LoginFile, "nonsense");
    check("user = hearth\n", Reason::LoginFile, "group");
    // The login may write; what it asks may not.
    let writer = server.login("[client]\nuser = root\n[client-server]\n");
    assert!(ask(Engine::Innodb, &writer).is_ok());

    let mut sessions = Sessions::open(&Login::at(Engine::Innodb, &login).expect("a login"), &Clients::installed()).expect("a connection");
    drop(server);
    let trouble = sessions.ask().expect_err("it has gone");
    assert_eq!(trouble.reason, Reason::Unreachable, "{trouble:?}");
}

#[test]
fn a_postgresql_tells_names_and_sessions() {
    let Some(server) = Postgres::start() else { return };
    server.ask("postgres", "create role hearth login password 'it''s \\ #'; grant pg_monitor to hearth");
    server.ask("postgres", "create role less login password 'x'");
    server.ask("postgres", "create database \"it's \\ odd; x=1\"");
    server.ask("postgres", "create database closed");
    server.ask("postgres", "revoke connect on database closed from public");
    // The server's own list of who may come does not let it in.
    server.ask("postgres", "create database shut");
    let odd = "it's \\ odd; x=1";
    server.ask(odd, "create table orders (id int primary key, c text)");
    server.ask(odd, "create schema other; create table other.\"Größe\" (a int)");
    // What a user makes is not called, whatever it is named.
    server.ask(odd, "create function public.encode(bytea, text) returns text language plpgsql as 'begin raise exception ''trap''; end'");
    server.ask(odd, "alter database \"it's \\ odd; x=1\" set search_path = public, pg_catalog");
    let login = server.login("user=hearth\npassword=it's \\ #\ndbname=postgres\n");
    let catalogue = ask(Engine::Postgres, &login).expect("names");
    assert!(catalogue.server.product.starts_with("PostgreSQL ") && catalogue.server.user == "hearth", "{:?}", catalogue.server);
    assert!(catalogue.server.programs && catalogue.left_out == ["shut"], "{catalogue:?}");
    let find = |table: &str, index: Option<&str>, kind: ObjectKind| {
        let is_it =
            |name: &applications::naming::Name| (name.table.as_deref(), name.index.as_deref(), name.kind) == (Some(table), index, kind);
        let mut found = catalogue.names.iter().filter(|(_, name)| is_it(name));
        let ((database, file), name) = found.next().unwrap_or_else(|| panic!("{table} {index:?}"));
        assert!(found.next().is_none() && catalogue.names.database(database) == Some(odd), "{name:?}");
        (database, file, name.schema.clone().unwrap_or_default())
    };
    let orders = find("orders", None, ObjectKind::Table);
    let told = server.ask(odd, "select pg_relation_filenode('orders'), (select oid from pg_database where datname = current_database())");
    assert_eq!(told.trim(), format!("{}\t{}", orders.1, orders.0));
    assert_eq!(find("orders", Some("orders_pkey"), ObjectKind::Index).2, "public");
    assert_eq!(find("orders", None, ObjectKind::Toast).2, "pg_toast");
    assert_eq!(find("Größe", None, ObjectKind::Table).2, "other");
    // With long values of its own, of the same name in another schema.
    let is_pg_database = |name: &applications::naming::Name| {
        (name.schema.as_deref(), name.table.as_deref(), name.index.as_deref()) == (Some("pg_catalog"), Some("pg_database"), None)
    };
    let of_all: Vec<_> = catalogue.names.iter().filter(|(_, name)| is_pg_database(name)).collect();
    assert!(matches!(of_all[..], [((0, 1262), name)] if name.kind == ObjectKind::Dictionary), "{of_all:?}");

    let sleeper = server.sleeper();
    let open = |file: &std::path::Path| Sessions::open(&Login::at(Engine::Postgres, file).expect("a login"), &Clients::installed());
    let mut sessions = open(&login).expect("a connection");
    let found = servers::patiently(|| sessions.ask().expect("sessions").into_iter().find(|one| one.program == "psql"));
    assert_eq!((found.user.as_str(), found.database.as_str()), ("postgres", "postgres"));
    assert!(server.has_process(found.thread), "{found:?}");
    assert!(sessions.ask().expect("sessions").iter().any(|one| one.program == "walwriter"));
    drop(sleeper);
    let less = open(&server.login("user=less\npassword=x\ndbname=postgres\n")).expect("a connection");
    assert!(!less.server().programs);

    let check = |text: &str, reason: Reason, words: &str| {
        let trouble = ask(Engine::Postgres, &server.login(text)).expect_err(text);
        assert!(trouble.reason == reason && trouble.problem.contains(words), "{trouble:?}");
    };
    check("user=hearth\npassword=wrong\ndbname=postgres\n", Reason::Refused, "password authentication failed");
    check("user=hearth\ndbname=postgres\n", Reason::Refused, "no password supplied");
    check("user=hearth\npassword=x\nhost=/nowhere\n", Reason::Unreachable, "/nowhere");
    check("user=hearth\nnonsense=1\n", Reason::LoginFile, "service file");
    std::fs::write(&login, "[other]\nuser=hearth\n").expect("written");
    let trouble = ask(Engine::Postgres, &login).expect_err("no service");
    assert!(trouble.reason == Reason::LoginFile && trouble.remedy.contains("[hearth]"), "{trouble:?}");

    drop(server);
    let trouble = sessions.ask().expect_err("it has gone");
    assert!(matches!(trouble.reason, Reason::Unreachable | Reason::Ended), "{trouble:?}");
}
