//! Who is connected to the servers of applications: asked once a second, by a thread that there is only while there are connections.

use super::Manager;
use super::connections::Of;
use super::server_names::login_of;
use catalogue::{Session, Sessions, Trouble};
use records::state::ConnectionRecord;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often a server is asked.
const EVERY: Duration = Duration::from_secs(1);
/// A server that does not answer is asked again after this, then twice as long, to this.
const AGAIN_FIRST: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(30);

/// A session of a server, as one of this second.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionSeen {
    /// The thread, or the process, that serves it: as the kernel numbers it on the server's machine.
    pub thread: u32,
    /// The program as it names itself: `mysqldump`, `pg_dump`; empty where it is not known.
    pub program: String,
}

impl From<Session> for SessionSeen {
    fn from(session: Session) -> SessionSeen {
        SessionSeen { thread: session.thread, program: session.program }
    }
}

/// A server that is asked.
struct Asked {
    record: ConnectionRecord,
    open: Option<Sessions>,
    failures: u32,
    next: Instant,
}

impl Manager {
    /// Sees to it that sessions are asked for, if there is a connection.
    pub fn watch_sessions(&self) {
        if self.connected().is_empty() || std::mem::replace(&mut self.connections().is_asking, true) {
            return;
        }
        let manager = self.clone();
        let thread = std::thread::Builder::new().name("sessions".into()).spawn(move || manager.ask_sessions());
        if let Err(error) = thread {
            tracing::warn!("sessions of databases are not watched: no thread can be started ({error})");
            self.connections().is_asking = false;
        }
    }

    /// All connections.
    fn connected(&self) -> BTreeMap<Of, ConnectionRecord> {
        let memory = self.memory();
        let volumes = memory.state.volumes.iter();
        let of =
            volumes.flat_map(|volume| volume.connections.iter().map(|record| ((volume.name.clone(), record.application), record.clone())));
        of.collect()
    }

    fn ask_sessions(&self) {
        // Nobody waits for it; its children inherit that.
        let _ = rustix::process::setpriority_process(rustix::thread::gettid().into(), 19);
        let mut all: BTreeMap<Of, Asked> = BTreeMap::new();
        loop {
            let connected = self.connected();
            let anew = std::mem::take(&mut self.connections().anew);
            all.retain(|of, asked| connected.get(of) == Some(&asked.record) && !anew.contains(of));
            let goes_on = !connected.is_empty() && !self.is_stopping();
            {
                let mut connections = self.connections();
                connections.told.retain(|of, _| connected.contains_key(of));
                connections.is_asking = goes_on;
                if !connections.is_asking {
                    break;
                }
            }
            for (of, record) in connected {
                let asked = all.entry(of.clone()).or_insert_with(|| Asked { record, open: None, failures: 0, next: Instant::now() });
                if Instant::now() >= asked.next {
                    self.take_sessions(&of, asked);
                }
            }
            std::thread::sleep(EVERY);
        }
        // Who connected in the last moment saw this thread still.
        if !self.is_stopping() {
            self.watch_sessions();
        }
    }

    fn take_sessions(&self, of: &Of, asked: &mut Asked) {
        let result = self.ask_one(asked);
        let mut connections = self.connections();
        let told = connections.told.entry(of.clone()).or_default();
        match result {
            Ok(sessions) => {
                told.server = asked.open.as_ref().map(|open| open.server().clone());
                // A server that is back has names again.
                let is_back = told.sessions_trouble.is_some() && told.names_trouble.is_some();
                (told.sessions, told.sessions_trouble) = (sessions, None);
                asked.failures = 0;
                if is_back {
                    connections.looks_due.insert(of.0.clone());
                }
            }
            Err(trouble) => {
                tracing::debug!("sessions of \"{}\" are not known: {trouble}", of.0);
                (told.sessions, told.sessions_trouble) = (Vec::new(), Some(trouble));
                asked.open = None;
                asked.next = Instant::now() + pause(asked.failures);
                asked.failures += 1;
            }
        }
    }

    fn ask_one(&self, asked: &mut Asked) -> Result<Vec<SessionSeen>, Trouble> {
        if asked.open.is_none() {
            asked.open = Some(Sessions::open(&login_of(&asked.record)?, &self.clients())?);
        }
        let Some(open) = &mut asked.open else { return Ok(Vec::new()) };
        Ok(open.ask()?.into_iter().map(SessionSeen::from).collect())
    }
}

/// How long to leave a server alone that has failed so often in a row before.
fn pause(failures: u32) -> Duration {
    (AGAIN_FIRST * 2u32.saturating_pow(failures.min(16))).min(AGAIN_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_down_is_asked_less_and_less() {
        let pauses: Vec<u64> = (0..8).map(|failures| pause(failures).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(pause(u32::MAX), AGAIN_MAX);
    }
}
