//! Why a server could not be asked, and what to do about it: one sentence each.

use crate::login::Login;

/// What sort of trouble it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The file may not be used, or its content makes no sense to the client.
    LoginFile,
    /// The client is not installed, or cannot be run.
    NoClient,
    /// The server does not let this login in.
    Refused,
    /// The login may not see what is asked for.
    Denied,
    /// No server answers there.
    Unreachable,
    /// There was no answer in time.
    Silent,
    /// An answer was no answer: too large, or of another form.
    Nonsense,
    /// The client ended for another reason.
    Ended,
    /// The server that answers is not the one that is meant.
    AnotherServer,
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{problem}")]
pub struct Trouble {
    /// What sort.
    pub reason: Reason,
    /// What is wrong, as a clause.
    pub problem: String,
    /// What to do, as a clause.
    pub remedy: String,
}

/// Bytes of what a client said that are reported.
const SAID_BYTES: usize = 300;

impl Trouble {
    pub(crate) fn new(reason: Reason, problem: impl Into<String>, remedy: impl Into<String>) -> Trouble {
        Trouble { reason, problem: problem.into(), remedy: remedy.into() }
    }

    /// An answer that is none.
    pub(crate) fn nonsense(what: &str) -> Trouble {
        Trouble::new(Reason::Nonsense, format!("the answer of the server is invalid: {what}"), "check where the login leads")
    }

    /// Of a client that has ended, by what it said.
    pub(crate) fn of_client(login: &Login, said: &str) -> Trouble {
        let line = error_line(said);
        let (file, client) = (login.file.display(), login.client);
        let (title, reason) = (client.title(), client.reason(&line));
        let (problem, remedy) = match reason {
            Reason::LoginFile => {
                (format!("the client cannot use the login file: {line}"), format!("write {} into {file}", client.login_file()))
            }
            Reason::Refused if client.asks_the_system(&line) => (
                format!("the server asks the operating system for this user, and not for a password: {line}"),
                "write a line \"local all USER scram-sha-256\" above the others into its pg_hba.conf, and reload it".to_owned(),
            ),
            Reason::Refused => (format!("the server does not let the login in: {line}"), format!("correct user and password in {file}")),
            Reason::Denied => (format!("the login may not see what is needed: {line}"), format!("grant it {}", client.grants())),
            Reason::Unreachable => (
                format!("no {title} answers where the login leads: {line}"),
                format!("check that the server runs, and host, port and socket in {file}"),
            ),
            Reason::NoClient | Reason::Silent | Reason::Nonsense | Reason::Ended | Reason::AnotherServer => {
                (format!("the client of the server has ended: {line}"), format!("check {file}"))
            }
        };
        Trouble { reason, problem, remedy }
    }
}

/// What a client said, as one short line without control characters: the line of the error, where
/// it can be distinguished from the statement that a client repeats before it.
pub(crate) fn error_line(said: &str) -> String {
    let is_error = |line: &&str| line.starts_with("ERROR ") || line.contains("error: ") || line.contains("FATAL: ");
    let begin = said.lines().position(|line| is_error(&line)).unwrap_or(0);
    let line = said.lines().skip(begin).map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    let mut text: String = line.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    let end = (0..=SAID_BYTES.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.truncate(end);
    if text.is_empty() { "it said nothing".into() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::Client;
    use crate::mysql::Mysql;
    use crate::postgres::Postgres;

    fn check(client: &'static dyn Client, said: &str, reason: Reason, words: &str) {
        let login = Login { client, file: "/etc/hearth/db".into() };
        let trouble = Trouble::of_client(&login, said);
        assert_eq!(trouble.reason, reason, "{trouble:?}");
        assert!(trouble.problem.contains(words), "{trouble:?}");
        assert!(!trouble.problem.contains('\n') && !trouble.remedy.is_empty());
    }

    #[test]
    fn what_clients_say_is_told_as_one_sentence() {
        check(&Mysql, "ERROR 1045 (28000): Access denied for user 'a'@'b'\n", Reason::Refused, "does not let the login in: ERROR 1045");
        check(&Mysql, "ERROR 2002 (HY000): Can't connect to local server through socket\n", Reason::Unreachable, "no MySQL or MariaDB");
        let repeated = "--------------\nselect 1\n--------------\n\nERROR 1227 (42000) at line 2: Access denied; you need PROCESS\n";
        check(&Mysql, repeated, Reason::Denied, "needed: ERROR 1227");
        check(&Mysql, "mariadb: unknown variable 'x=1'\n", Reason::LoginFile, "unknown variable");
        let down = "psql: error: connection to server on socket \"/s\" failed: No such file or directory\n\tIs the server running?\n";
        check(&Postgres, down, Reason::Unreachable, "failed: No such file or directory Is the server running?");
        check(&Postgres, "psql: error: definition of service \"hearth\" not found\n", Reason::LoginFile, "definition of service");
        let wrong = "psql: error: connection to server failed: FATAL:  password authentication failed for user \"u\"\n";
        check(&Postgres, wrong, Reason::Refused, "password authentication failed");
        let peer = "psql: error: connection to server failed: FATAL:  Peer authentication failed for user \"hearth\"\n";
        check(&Postgres, peer, Reason::Refused, "asks the operating system");
        check(&Postgres, "psql: error: connection failed: fe_sendauth: no password supplied", Reason::Refused, "no password");
        check(&Postgres, "ERROR:  permission denied for table x", Reason::Denied, "permission denied");
        check(&Postgres, "", Reason::Ended, "it said nothing");
    }

    #[test]
    fn what_is_hostile_is_short_and_harmless() {
        let line = error_line(&format!("\x1b[2Jä{}", "ö".repeat(1000)));
        assert!(line.len() <= SAID_BYTES && !line.chars().any(char::is_control) && line.contains("ö"));
    }
}
