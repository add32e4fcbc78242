//! PostgreSQL.
//!
//! The client is `psql`. Each database has a catalogue of its own, so each is connected to. Names
//! are looked up in `pg_catalog` alone, so that nothing that users of the database made is called.

use crate::clients::{self, Client, Clients, SEARCH_PATH};
use crate::conversation::{Conversation, Limits};
use crate::login::Login;
use crate::mysql::{broken_off, not_run};
use crate::names::{Catalogue, Server};
use crate::rows::{Cell, row, rows};
use crate::sessions::Session;
use crate::trouble::{Reason, Trouble};
use applications::discovery::{NameList, NamedRelation};
use applications::{Engine, ObjectKind};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long an answer may take, a connection included.
const TIME: Duration = Duration::from_secs(5);
/// How long all databases together may take.
const ALL_TIME: Duration = Duration::from_secs(120);
const NAMES_BYTES: usize = 64 << 20;
const SESSIONS_BYTES: usize = 1 << 20;
/// Databases that are asked.
const DATABASES_MAX: usize = 1000;
/// Names of those that could not be asked.
const LEFT_OUT_MAX: usize = 20;
/// What holds for every connection.
const SETTINGS: &str = "set default_transaction_read_only = on; set statement_timeout = 4500; set search_path = pg_catalog;";
/// What the server makes itself has lower numbers (`FirstNormalObjectId`).
const OWN_BELOW: u32 = 16384;

/// The bytes of a text as they are stored, whatever they are.
fn stored(text: &str) -> String {
    format!(r"encode(replace({text}::text, '\', '\\')::bytea, 'hex')")
}

/// A text of the database that is connected to, in UTF-8.
fn own(text: &str) -> String {
    format!(
        "case when getdatabaseencoding() in ('UTF8', 'SQL_ASCII') then {} else encode(convert_to({text}::text, 'UTF8'), 'hex') end",
        stored(text)
    )
}

#[derive(Debug)]
struct Connection {
    login: Login,
    child: Conversation,
}

impl Connection {
    fn open(login: &Login, clients: &Clients) -> Result<(Connection, Server), Trouble> {
        let mut connection = Connection::begin(login, clients)?;
        let question = format!(
            "{SETTINGS} select {}, {}, pg_has_role('pg_read_all_stats', 'USAGE')::int;",
            stored("current_setting('server_version')"),
            stored("current_user")
        );
        let answer = connection.ask(&question, SESSIONS_BYTES)?;
        let [version, user, programs] = row(&answer)?;
        let (version, programs) = (version.text()?, programs.number::<u8>()? == 1);
        // Packagers say more behind it.
        let number = version.split(' ').next().unwrap_or_default();
        Ok((connection, Server { product: format!("PostgreSQL {number}"), user: user.text()?, programs }))
    }

    fn begin(login: &Login, clients: &Clients) -> Result<Connection, Trouble> {
        let login = Login::at(Engine::Postgres, &login.file)?;
        let mut command = Command::new(clients.of(login.client)?);
        command.args(["-X", "-A", "-t", "-q", "-w", "-F", "\t", "-P", "null=NULL", "-v", "ON_ERROR_STOP=1"]);
        command.env_clear().env("PATH", SEARCH_PATH).env("LANG", "C").current_dir("/");
        command.env("PGSERVICEFILE", &login.file).env("PGSERVICE", "hearth");
        command.env("PGCONNECT_TIMEOUT", "5").env("PGCLIENTENCODING", "UTF8").env("PGAPPNAME", "hearth");
        let child = Conversation::begin(&mut command).map_err(|error| not_run(&command, &error))?;
        Ok(Connection { login, child })
    }

    fn ask(&mut self, question: &str, bytes: usize) -> Result<Vec<u8>, Trouble> {
        let answer = self.child.ask(question, Limits { bytes, time: TIME });
        answer.map_err(|broken| broken_off(broken, &self.login, bytes))
    }

    /// Oids and names of the databases that let this login in.
    fn databases(&mut self) -> Result<Vec<(u32, String)>, Trouble> {
        let question = format!(
            "select oid, {} from pg_database where datallowconn and has_database_privilege(oid, 'CONNECT') order by oid limit {DATABASES_MAX};",
            stored("datname")
        );
        let answer = self.ask(&question, SESSIONS_BYTES)?;
        rows(&answer)?.into_iter().map(|[oid, name]: [Cell<'_>; 2]| Ok((oid.number()?, name.text()?))).collect()
    }

    /// The relations of a database; the connection is with that one then.
    fn relations(&mut self, oid: u32, name: &str, bytes: usize) -> Result<(NameList, usize), Trouble> {
        let argument = argument(name).ok_or_else(|| Trouble::nonsense("the name of a database has control characters"))?;
        let question = format!(
            "\\connect -reuse-previous=on {}\n{SETTINGS} \
             select c.relisshared::int, pg_relation_filenode(c.oid), c.oid, c.relkind, {}, {}, \
             case when i.indexrelid is null then null else {} end \
             from pg_class c join pg_namespace n on n.oid = c.relnamespace \
             left join pg_index i on i.indexrelid = c.oid left join pg_class t on t.oid = i.indrelid \
             left join pg_class owner on owner.reltoastrelid = c.oid left join pg_class of on of.reltoastrelid = t.oid \
             where c.relkind in ('r', 'i', 't', 'S', 'm') and pg_relation_filenode(c.oid) is not null;",
            argument,
            own("n.nspname"),
            own("coalesce(of.relname, t.relname, owner.relname, c.relname)"),
            own("c.relname"),
        );
        let answer = self.ask(&question, bytes)?;
        let mut names = NameList::default();
        for [shared, file, number, kind, schema, table, index] in rows(&answer)? {
            let is_shared = shared.number::<u8>()? == 1;
            let kind = match kind.word().as_str() {
                _ if number.number::<u32>()? < OWN_BELOW => ObjectKind::Dictionary,
                "i" => ObjectKind::Index,
                "t" => ObjectKind::Toast,
                _ => ObjectKind::Table,
            };
            names.relation(&NamedRelation {
                database: if is_shared { 0 } else { oid },
                file: file.number()?,
                of: (!is_shared).then_some(name),
                schema: &schema.text()?,
                table: &table.text()?,
                index: index.optional()?.as_deref(),
                kind,
            });
        }
        Ok((names, answer.len()))
    }
}

impl clients::Connection for Connection {
    fn sessions(&mut self) -> Result<Vec<Session>, Trouble> {
        let question = format!(
            "select pid, {}, {}, {}, {} from pg_stat_activity where pid <> pg_backend_pid();",
            stored("application_name"),
            stored("backend_type"),
            stored("usename"),
            stored("datname")
        );
        let answer = self.ask(&question, SESSIONS_BYTES)?;
        let session = |[thread, program, kind, user, database]: [Cell<'_>; 5]| {
            let kind = kind.optional()?.filter(|kind| kind != "client backend");
            Ok(Session {
                thread: thread.number()?,
                program: program.optional()?.filter(|program| !program.is_empty()).or(kind).unwrap_or_default(),
                user: user.optional()?.unwrap_or_default(),
                database: database.optional()?.unwrap_or_default(),
            })
        };
        rows(&answer)?.into_iter().map(session).collect()
    }
}

/// The argument of `\connect` for a database, whatever its name is: a value of a connection string
/// (so that no name is taken for one), in the quotes of `psql`. `None` for a name with control
/// characters: behind the end of a line `psql` would read another order, one for a shell perhaps.
fn argument(name: &str) -> Option<String> {
    if name.chars().any(char::is_control) {
        return None;
    }
    let value = name.replace('\\', "\\\\").replace('\'', "\\'");
    let quoted = format!("dbname='{value}'").replace('\\', "\\\\").replace('\'', "''");
    Some(format!("'{quoted}'"))
}

fn catalogue(login: &Login, clients: &Clients) -> Result<Catalogue, Trouble> {
    let begun = Instant::now();
    let (mut connection, server) = Connection::open(login, clients)?;
    let databases = connection.databases()?;
    drop(connection);
    let (mut names, mut left_out, mut room, mut trouble) = (NameList::default(), Vec::new(), NAMES_BYTES, None);
    for (oid, name) in databases {
        // A name that could not be read cannot be written either.
        let can = !name.contains('\u{fffd}') && begun.elapsed() < ALL_TIME;
        // A client ends when it cannot connect, so each database has one of its own.
        let found = can.then(|| Connection::begin(login, clients).and_then(|mut connection| connection.relations(oid, &name, room)));
        match found {
            Some(Ok((found, bytes))) => {
                room = room.saturating_sub(bytes);
                // What databases share is told by each of them.
                names.complete(found);
            }
            failed => {
                trouble = trouble.or(failed.and_then(Result::err));
                if left_out.len() < LEFT_OUT_MAX {
                    left_out.push(name);
                }
            }
        }
    }
    match trouble {
        Some(trouble) if names.is_empty() => Err(trouble),
        _ => Ok(Catalogue { server, names, left_out, programs_need: "the role pg_monitor for the login" }),
    }
}

/// See [`Engine::Postgres`].
#[derive(Debug)]
pub(crate) struct Postgres;

impl Client for Postgres {
    fn engine(&self) -> Engine {
        Engine::Postgres
    }

    fn title(&self) -> &'static str {
        "PostgreSQL"
    }

    fn program<'a>(&self, clients: &'a Clients) -> (Option<&'a Path>, &'static str, &'static str) {
        (clients.postgres.as_deref(), "no psql", "postgresql-client")
    }

    fn login_file(&self) -> &'static str {
        "a connection service file with a service [hearth]"
    }

    fn grants(&self) -> &'static str {
        "pg_monitor, and CONNECT on the databases"
    }

    /// By words, as `libpq` has no numbers where no server has answered.
    fn reason(&self, told: &str) -> Reason {
        let says = |words: &[&str]| words.iter().any(|word| told.contains(word));
        if says(&["definition of service", "service file", "invalid connection option", "password file"]) {
            return Reason::LoginFile;
        }
        let refused = ["authentication failed", "no password supplied", "pg_hba.conf", "no matching SCRAM", "authentication method"];
        if says(&refused) || says(&["role "]) && says(&["does not exist", "not permitted to log in"]) {
            return Reason::Refused;
        }
        if says(&["permission denied", "must be superuser"]) {
            return Reason::Denied;
        }
        let unreachable = ["connection to server", "could not connect", "could not translate", "server closed", "expected authentication"];
        if says(&unreachable) { Reason::Unreachable } else { Reason::Ended }
    }

    fn asks_the_system(&self, told: &str) -> bool {
        ["Peer authentication", "Ident authentication"].iter().any(|words| told.contains(words))
    }

    fn catalogue(&self, login: &Login, clients: &Clients) -> Result<Catalogue, Trouble> {
        catalogue(login, clients)
    }

    fn connect(&self, login: &Login, clients: &Clients) -> Result<(Box<dyn clients::Connection>, Server), Trouble> {
        let (connection, server) = Connection::open(login, clients)?;
        Ok((Box::new(connection), server))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_of_a_database_is_an_order() {
        assert_eq!(argument("shop").as_deref(), Some("'dbname=''shop'''"));
        assert_eq!(argument("a b").as_deref(), Some("'dbname=''a b'''"));
        assert_eq!(argument("it's").as_deref(), Some(r"'dbname=''it\\''s'''"));
        assert_eq!(argument(r"a\b").as_deref(), Some(r"'dbname=''a\\\\b'''"));
        assert_eq!(argument("postgresql://elsewhere/x").as_deref(), Some("'dbname=''postgresql://elsewhere/x'''"));
        assert_eq!(argument("x\n\\! touch /tmp/x"), None);
        assert_eq!(argument("x\r"), None);
    }
}
