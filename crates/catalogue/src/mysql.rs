//! MySQL and MariaDB.
//!
//! The client is `mariadb` or `mysql` in batch mode. A server can ask a client for files of its
//! machine (`LOAD DATA LOCAL`): that is off.

use crate::clients::{self, Client, Clients, SEARCH_PATH};
use crate::conversation::{Broken, Conversation, Limits};
use crate::login::Login;
use crate::names::{Catalogue, Server};
use crate::rows::{row, rows};
use crate::sessions::Session;
use crate::trouble::{Reason, Trouble};
use applications::Engine;
use applications::discovery::NameList;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// How long an answer may take, a connection included.
const TIME: Duration = Duration::from_secs(5);
const NAMES_BYTES: usize = 64 << 20;
const SESSIONS_BYTES: usize = 1 << 20;
/// A full-text index has no pages of its own (`DICT_FTS`); the rows are in a clustered one
/// (`DICT_CLUSTERED`).
const FULL_TEXT: u32 = 32;
const CLUSTERED: u32 = 1;
/// See [`Catalogue::programs_need`].
const PROGRAMS_NEED: &str = "performance_schema = ON in the server's configuration and SELECT on performance_schema.* for the login";

/// Which server it is: their catalogues differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Product {
    MariaDb,
    Mysql,
}

#[derive(Debug)]
struct Connection {
    login: Login,
    child: Conversation,
    product: Product,
    /// Whether the programs of sessions can be asked for.
    programs: bool,
}

impl Connection {
    fn open(login: &Login, clients: &Clients) -> Result<(Connection, Server), Trouble> {
        let (mut connection, mut server) = Connection::begin(login, clients)?;
        if connection.programs
            && let Err(trouble) = connection.ask("select 1 from performance_schema.session_connect_attrs limit 0;", SESSIONS_BYTES)
        {
            if trouble.reason != Reason::Denied {
                return Err(trouble);
            }
            // The client ends when a statement fails. Threads and users can be seen without.
            (connection, server) = Connection::begin(login, clients)?;
            (connection.programs, server.programs) = (false, false);
        }
        Ok((connection, server))
    }

    fn begin(login: &Login, clients: &Clients) -> Result<(Connection, Server), Trouble> {
        let login = Login::at(Engine::Innodb, &login.file)?;
        let mut command = Command::new(clients.of(login.client)?);
        // The file must come first.
        command.arg(format!("--defaults-file={}", login.file.display()));
        command.args([
            "--batch",
            "--skip-column-names",
            "--unbuffered",
            "--quick",
            "--skip-auto-rehash",
            "--skip-reconnect",
            "--local-infile=0",
            "--connect-timeout=5",
            "--default-character-set=utf8mb4",
            "--init-command=SET SESSION TRANSACTION READ ONLY",
        ]);
        command.env_clear().env("PATH", SEARCH_PATH).env("LANG", "C").current_dir("/");
        let child = Conversation::begin(&mut command).map_err(|error| not_run(&command, &error))?;
        let mut connection = Connection { login, child, product: Product::Mysql, programs: false };
        let answer = connection.ask("select hex(version()), hex(current_user()), @@performance_schema;", SESSIONS_BYTES)?;
        let [version, user, programs] = row(&answer)?;
        let (version, user) = (version.text()?, user.text()?);
        connection.programs = programs.number::<u8>()? == 1;
        connection.product = if version.contains("MariaDB") { Product::MariaDb } else { Product::Mysql };
        let name = match connection.product {
            Product::MariaDb => "MariaDB",
            Product::Mysql => "MySQL",
        };
        let number = version.split('-').next().unwrap_or_default();
        let programs = connection.programs;
        Ok((connection, Server { product: format!("{name} {number}"), user, programs }))
    }

    fn ask(&mut self, question: &str, bytes: usize) -> Result<Vec<u8>, Trouble> {
        let answer = self.child.ask(question, Limits { bytes, time: TIME });
        answer.map_err(|broken| broken_off(broken, &self.login, bytes))
    }

    fn names(&mut self) -> Result<NameList, Trouble> {
        let (indexes, tables) = match self.product {
            Product::MariaDb => ("innodb_sys_indexes", "innodb_sys_tables"),
            Product::Mysql => ("innodb_indexes", "innodb_tables"),
        };
        let question = format!(
            "select i.space, i.index_id, i.page_no, i.type, hex(convert(t.name using utf8mb4)), hex(convert(i.name using utf8mb4)) \
             from information_schema.{indexes} i join information_schema.{tables} t on t.table_id = i.table_id \
             where i.type & {FULL_TEXT} = 0;"
        );
        let answer = self.ask(&question, NAMES_BYTES)?;
        let mut names = NameList::default();
        for [space, index, root, kind, table, name] in rows(&answer)? {
            let is_clustered = kind.number::<u32>()? & CLUSTERED != 0;
            names.index((space.number()?, index.number()?), is_clustered, &table.text()?, &name.text()?, Some(root.number()?));
        }
        Ok(names)
    }
}

impl clients::Connection for Connection {
    fn sessions(&mut self) -> Result<Vec<Session>, Trouble> {
        let attributes = "left join performance_schema.session_connect_attrs a \
                          on a.processlist_id = p.id and a.attr_name = 'program_name'";
        let threads = "(select processlist_id id, thread_os_id tid, processlist_user user, processlist_db db, \
                       processlist_command command from performance_schema.threads)";
        let processes = match self.product {
            Product::MariaDb => "information_schema.processlist",
            Product::Mysql => threads,
        };
        let (attributes, program) = if self.programs { (attributes, "a.attr_value") } else { ("", "null") };
        let question = format!(
            "select p.tid, hex(convert({program} using utf8mb4)), hex(p.command), hex(convert(p.user using utf8mb4)), \
             hex(convert(p.db using utf8mb4)) from {processes} p {attributes} where p.tid > 0 and p.id <> connection_id();"
        );
        let answer = self.ask(&question, SESSIONS_BYTES)?;
        let session = |[thread, program, command, user, database]: [crate::rows::Cell<'_>; 5]| {
            let command = command.optional()?.filter(|command| command.starts_with("Binlog Dump"));
            Ok(Session {
                thread: thread.number()?,
                program: program.optional()?.filter(|program| !program.is_empty()).or(command).unwrap_or_default(),
                user: user.optional()?.unwrap_or_default(),
                database: database.optional()?.unwrap_or_default(),
            })
        };
        rows(&answer)?.into_iter().map(session).collect()
    }
}

/// See [`Engine::Innodb`].
#[derive(Debug)]
pub(crate) struct Mysql;

impl Client for Mysql {
    fn engine(&self) -> Engine {
        Engine::Innodb
    }

    fn title(&self) -> &'static str {
        "MySQL or MariaDB"
    }

    fn program<'a>(&self, clients: &'a Clients) -> (Option<&'a Path>, &'static str, &'static str) {
        (clients.mysql.as_deref(), "neither mariadb nor mysql", "mariadb-client")
    }

    fn login_file(&self) -> &'static str {
        "an option file of MySQL with a group [client]"
    }

    fn grants(&self) -> &'static str {
        "PROCESS on *.* and SELECT on performance_schema.*"
    }

    /// By the numbers of errors: `mysqld_error.h`, `errmsg.h`.
    fn reason(&self, told: &str) -> Reason {
        let number = told.strip_prefix("ERROR ").and_then(|rest| rest.split([' ', ':']).next()).and_then(|word| word.parse().ok());
        match number {
            Some(1045 | 1130 | 1251 | 1524 | 1698 | 1820 | 1862 | 2049 | 2054 | 2059 | 2061) => Reason::Refused,
            Some(1044 | 1142 | 1143 | 1227 | 1370) => Reason::Denied,
            Some(1040 | 1053 | 1129 | 2002 | 2003 | 2004 | 2005 | 2006 | 2013 | 2026) => Reason::Unreachable,
            Some(_) => Reason::Ended,
            None if ["unknown variable", "unknown option", "config", "defaults"].iter().any(|word| told.contains(word)) => {
                Reason::LoginFile
            }
            None => Reason::Ended,
        }
    }

    fn asks_the_system(&self, _: &str) -> bool {
        false
    }

    fn catalogue(&self, login: &Login, clients: &Clients) -> Result<Catalogue, Trouble> {
        let (mut connection, server) = Connection::open(login, clients)?;
        Ok(Catalogue { server, names: connection.names()?, left_out: Vec::new(), programs_need: PROGRAMS_NEED })
    }

    fn connect(&self, login: &Login, clients: &Clients) -> Result<(Box<dyn clients::Connection>, Server), Trouble> {
        let (connection, server) = Connection::open(login, clients)?;
        Ok((Box::new(connection), server))
    }
}

/// A client that cannot be run.
pub(crate) fn not_run(command: &Command, error: &std::io::Error) -> Trouble {
    let program = command.get_program().display();
    Trouble::new(Reason::NoClient, format!("{program} cannot be run ({error})"), "check that it is installed and may be run")
}

/// A conversation that is over.
pub(crate) fn broken_off(broken: Broken, login: &Login, bytes: usize) -> Trouble {
    match broken {
        Broken::Ended(said) => Trouble::of_client(login, &said),
        Broken::Silent => Trouble::new(
            Reason::Silent,
            format!("the server did not answer within {} seconds", TIME.as_secs()),
            format!("check that {} leads to a {}, and that it is not overloaded", login.file.display(), login.client.title()),
        ),
        Broken::TooMuch => Trouble::nonsense(&format!("it has more than {} MiB", bytes >> 20)),
    }
}
