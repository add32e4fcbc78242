//! Where the command-line clients of servers are.

use crate::login::Login;
use crate::names::{Catalogue, Server};
use crate::sessions::Session;
use crate::trouble::{Reason, Trouble};
use crate::{mysql, postgres};
use applications::Engine;
use std::fmt::Debug;
use std::path::{Path, PathBuf};

/// How servers of an engine are asked, each by its own client.
static CLIENTS: [&dyn Client; 2] = [&mysql::Mysql, &postgres::Postgres];

/// The client for an engine; `None` if its servers cannot be asked.
pub(crate) fn client_of(engine: Engine) -> Option<&'static dyn Client> {
    CLIENTS.into_iter().find(|client| client.engine() == engine)
}

/// How servers of one engine are asked.
pub(crate) trait Client: Sync + Debug {
    fn engine(&self) -> Engine;

    /// The products in sentences.
    fn title(&self) -> &'static str;

    /// The program; what is missing, in words, and in which package it is, where it is not installed.
    fn program<'a>(&self, clients: &'a Clients) -> (Option<&'a Path>, &'static str, &'static str);

    /// What to write into the login file.
    fn login_file(&self) -> &'static str;

    /// What a login needs to be granted.
    fn grants(&self) -> &'static str;

    /// What sort of trouble it is that the client tells of.
    fn reason(&self, told: &str) -> Reason;

    /// Whether the server looked for a user of the operating system by that name.
    fn asks_the_system(&self, told: &str) -> bool;

    /// All that the catalogue of a server says.
    fn catalogue(&self, login: &Login, clients: &Clients) -> Result<Catalogue, Trouble>;

    /// A connection that can be asked for sessions.
    fn connect(&self, login: &Login, clients: &Clients) -> Result<(Box<dyn Connection>, Server), Trouble>;
}

/// An open connection.
pub(crate) trait Connection: Debug + Send {
    /// Who is connected, without this one.
    fn sessions(&mut self) -> Result<Vec<Session>, Trouble>;
}

/// Where programs are looked for; also all that a client gets as its search path.
pub(crate) const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Where Debian keeps the programs of each version of PostgreSQL: `psql` of the search path is a
/// wrapper in Perl there.
const POSTGRES_VERSIONS: &str = "/usr/lib/postgresql";

/// The programs that ask servers; `None` for one that is not installed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Clients {
    /// `mariadb` or `mysql`.
    pub mysql: Option<PathBuf>,
    /// `psql`.
    pub postgres: Option<PathBuf>,
}

impl Clients {
    /// Those that are installed now.
    #[must_use]
    pub fn installed() -> Clients {
        let on_path = |names: &[&str]| {
            let places = || SEARCH_PATH.split(':').map(Path::new);
            names.iter().find_map(|name| places().map(|place| place.join(name)).find(|path| path.is_file()))
        };
        Clients { mysql: on_path(&["mariadb", "mysql"]), postgres: newest(Path::new(POSTGRES_VERSIONS)).or_else(|| on_path(&["psql"])) }
    }

    /// The program that asks servers of an engine.
    pub(crate) fn of(&self, client: &dyn Client) -> Result<&Path, Trouble> {
        let (path, names, package) = client.program(self);
        path.ok_or_else(|| {
            Trouble::new(
                Reason::NoClient,
                format!("the server is asked by its own client, and {names} is installed on this machine"),
                format!("install it, on Debian with `apt install {package}`"),
            )
        })
    }
}

/// `psql` of the newest version below a directory.
fn newest(versions: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(versions).ok()?;
    let version = |path: PathBuf| Some((path.file_name()?.to_str()?.parse::<u32>().ok()?, path.join("bin/psql")));
    let of_each = entries.flatten().filter_map(|entry| version(entry.path())).filter(|(_, path)| path.is_file());
    of_each.max().map(|(_, path)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_psql_is_taken() {
        let directory = tempfile::tempdir().expect("a directory");
        assert_eq!(newest(directory.path()), None);
        for version in ["9", "15", "17", "other"] {
            std::fs::create_dir_all(directory.path().join(version).join("bin")).expect("made");
        }
        for version in ["9", "15", "other"] {
            std::fs::write(directory.path().join(version).join("bin/psql"), "").expect("written");
        }
        assert_eq!(newest(directory.path()), Some(directory.path().join("15/bin/psql")));
    }

    #[test]
    fn every_server_with_a_word_has_a_client() {
        for engine in Engine::ALL {
            assert_eq!(client_of(*engine).is_some(), engine.facts().server.is_some(), "{engine:?}");
        }
    }

    #[test]
    fn a_client_that_is_missing_is_a_sentence() {
        let trouble = Clients::default().of(&postgres::Postgres).expect_err("none");
        assert_eq!(trouble.reason, Reason::NoClient);
        assert!(trouble.problem.contains("no psql is installed") && trouble.remedy.contains("postgresql-client"));
    }
}
