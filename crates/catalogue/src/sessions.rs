//! Who is connected to a server, asked again and again.

use crate::clients::{Clients, Connection};
use crate::login::Login;
use crate::names::Server;
use crate::trouble::Trouble;

/// A session of a server, or a process of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Session {
    /// The thread of the server, or its process, that serves it: as the kernel numbers it where the
    /// server runs.
    pub thread: u32,
    /// The program as it names itself, `mysqldump` or `pg_dump`; else what the server calls the
    /// session: `Binlog Dump`, `walsender`, `autovacuum worker`. Empty where neither is known.
    pub program: String,
    /// The user; empty where there is none.
    pub user: String,
    /// The database; empty where there is none.
    pub database: String,
}

/// An open connection that tells sessions.
#[derive(Debug)]
pub struct Sessions {
    connection: Box<dyn Connection>,
    server: Server,
}

impl Sessions {
    /// Connects. The connection ends when this is dropped.
    ///
    /// # Errors
    /// With the reason.
    pub fn open(login: &Login, clients: &Clients) -> Result<Sessions, Trouble> {
        let (connection, server) = login.client.connect(login, clients)?;
        Ok(Sessions { connection, server })
    }

    /// The server.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The sessions of this moment, without this one.
    ///
    /// # Errors
    /// With the reason; then this is of no use any more: open another one.
    pub fn ask(&mut self) -> Result<Vec<Session>, Trouble> {
        self.connection.sessions()
    }
}
