//! A connection to a private server, over its socket, without a password: as much of the protocols as queries in plain text need.

use super::{mysql::MySql, postgres::Postgres};
use crate::trouble::Trouble;
use std::io::Read;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long an answer may take: far beyond a lock that is waited for on a slow disk.
const ANSWER: Duration = Duration::from_secs(300);
/// More than any answer to a query of ours: what claims to be longer is none.
pub(super) const ANSWER_BYTES_MAX: usize = 1 << 24;

/// Which server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// At this socket.
    MariaDb {
        /// Its path.
        socket: String,
    },
    /// With its socket in this directory.
    Postgres {
        /// The directory.
        host: String,
        /// Names the socket there.
        port: u16,
    },
}

/// Why a query was not done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Failure {
    /// Others were in its way (a deadlock): the transaction is to be begun again.
    Retry(String),
    /// Anything else.
    Final(String),
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::Final(format!("the server does not answer: {error}"))
    }
}

/// Rows of an answer, as text; `None` is NULL.
pub(super) type Rows = Vec<Vec<Option<String>>>;

/// See the module.
pub(super) enum Connection {
    MySql(MySql),
    Postgres(Postgres),
}

impl Connection {
    /// Connects to a database.
    pub fn open(target: &Target, database: &str) -> Result<Connection, Trouble> {
        let path = match target {
            Target::MariaDb { socket } => socket.clone(),
            Target::Postgres { host, port } => format!("{host}/.s.PGSQL.{port}"),
        };
        let failed = |failure: Failure| match failure {
            Failure::Retry(text) | Failure::Final(text) => Trouble::Failed(format!("cannot connect to {path}: {text}")),
        };
        let stream = UnixStream::connect(&path).map_err(|error| failed(error.into()))?;
        stream.set_read_timeout(Some(ANSWER)).map_err(|error| failed(error.into()))?;
        match target {
            Target::MariaDb { .. } => MySql::open(stream, database).map(Connection::MySql).map_err(failed),
            Target::Postgres { .. } => Postgres::open(stream, database).map(Connection::Postgres).map_err(failed),
        }
    }

    /// Runs one statement.
    pub fn query(&mut self, statement: &str) -> Result<Rows, Failure> {
        match self {
            Connection::MySql(connection) => connection.query(statement),
            Connection::Postgres(connection) => connection.query(statement),
        }
    }

    /// What closes it from another thread.
    pub fn closer(&self) -> Result<Closer, Trouble> {
        let stream = match self {
            Connection::MySql(connection) => &connection.stream,
            Connection::Postgres(connection) => &connection.stream,
        };
        let other = stream.get_ref().try_clone();
        other.map(Closer).map_err(|error| Trouble::Failed(format!("cannot hold a connection twice: {error}")))
    }
}

/// Closes a connection while another thread waits for an answer on it.
pub(super) struct Closer(UnixStream);

impl Closer {
    pub fn close(&self) {
        // It may be closed.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// So many bytes.
pub(super) fn bytes(stream: &mut impl Read, count: usize) -> Result<Vec<u8>, Failure> {
    if count > ANSWER_BYTES_MAX {
        return Err(Failure::Final(format!("an answer of {count} bytes cannot be one to what was asked")));
    }
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}
