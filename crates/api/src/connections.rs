//! Connections to database servers: their own names, and who is connected to them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Body of a connection to an application's server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AppConnect {
    /// Absolute path of the login file on the daemon's machine, in the format of the server's own client.
    #[schema(pattern = "^/[^\\x00]*$")]
    pub login: String,
    /// The application's volume, where several volumes have one of that number.
    #[serde(default)]
    #[schema(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]*$", min_length = 1, max_length = 64)]
    pub volume: Option<String>,
}

/// Body of the end of a connection.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AppDisconnect {
    /// The application's volume, where several volumes have one of that number.
    #[serde(default)]
    #[schema(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]*$", min_length = 1, max_length = 64)]
    pub volume: Option<String>,
}

/// A connection that was made.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Connected {
    /// The server, as it introduces itself: "MariaDB 10.11.6".
    pub server: String,
    /// As whom it knows hearth.
    pub user: String,
    /// Number of names that it reported.
    pub names: u64,
    /// It tells which programs are connected.
    pub programs: bool,
    /// What to know of it, one sentence each.
    pub sentences: Vec<String>,
    /// The look that puts the names to what lies on the volume; absent: it comes by itself.
    pub job: Option<super::JobView>,
}

/// How a connection is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ConnectionView {
    /// The login file; absent for those who may look only.
    pub login: Option<String>,
    /// As whom the server knows hearth; absent until it answered, and for those who may look only.
    pub user: Option<String>,
    /// The server, as it introduces itself; absent until it answered.
    pub server: Option<String>,
    /// It tells which programs are connected.
    pub programs: bool,
    /// Sessions of this moment.
    pub sessions: u64,
    /// What is wrong.
    pub problem: Option<String>,
    /// What to do about it.
    pub remedy: Option<String>,
}

impl ConnectionView {
    /// What those see of it who may look only.
    #[must_use]
    pub fn without_login(self) -> ConnectionView {
        let problem = self.problem.map(|_| "the server does not answer hearth".into());
        ConnectionView { login: None, user: None, remedy: None, problem, ..self }
    }
}
