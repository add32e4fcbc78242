//! The names in a server's catalogue.

use crate::clients::Clients;
use crate::login::Login;
use crate::trouble::Trouble;
use applications::discovery::NameList;

/// A server, as it introduces itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Server {
    /// The product with its version: `MariaDB 10.11.6`, `PostgreSQL 15.8`.
    pub product: String,
    /// As whom it knows us: `hearth@localhost`, `hearth`.
    pub user: String,
    /// Whether it tells us which programs are connected.
    pub programs: bool,
}

/// What a server's catalogue says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Catalogue {
    /// Whose.
    pub server: Server,
    /// The names.
    pub names: NameList,
    /// Databases of PostgreSQL that did not let the login in, or did not answer.
    pub left_out: Vec<String>,
    /// What it takes, as a noun phrase, for the server to tell which programs are connected.
    pub programs_need: &'static str,
}

impl Catalogue {
    /// Asks a server; takes seconds at most for each of its databases, two minutes for all.
    ///
    /// # Errors
    /// With the reason, if nothing could be asked.
    pub fn ask(login: &Login, clients: &Clients) -> Result<Catalogue, Trouble> {
        login.client.catalogue(login, clients)
    }
}
