//! Names of what lies on volumes, asked of the servers that are connected.

use super::Manager;
use super::sessions::SessionSeen;
use api::{ConnectionView, Severity};
use applications::discovery::{Application, ApplicationId, Evidence, Found, ServerNames};
use catalogue::{Catalogue, Clients, Login, Reason, Trouble};
use insight::hidden::hidden;
use records::state::ConnectionRecord;
use std::collections::BTreeMap;
use std::path::Path;

impl Manager {
    /// The sessions of a volume's servers; none where none is connected, or none answers.
    #[must_use]
    pub fn sessions(&self, volume: &str) -> Vec<SessionSeen> {
        let connections = self.connections();
        // Threads of another server are not those that use this volume.
        let of = connections.told.iter().filter(|((name, _), told)| name == volume && !told.is_another);
        of.flat_map(|(_, told)| told.sessions.iter().cloned()).collect()
    }

    pub(in crate::manager) fn clients(&self) -> Clients {
        self.connections().clients.clone().unwrap_or_else(Clients::installed)
    }

    /// What the servers of a volume call its objects. A server that does not answer is told of once.
    pub(in crate::manager) fn server_names(&self, volume: &str) -> Vec<ServerNames> {
        let Ok(record) = self.volume_record(volume) else { return Vec::new() };
        let mut all = Vec::new();
        let found = self.insight().objects_of(volume).and_then(|objects| objects.found().cloned());
        for record in record.connections {
            let asked = login_of(&record).and_then(|login| Catalogue::ask(&login, &self.clients()));
            // Behind the same socket there may be another server by now.
            let application = application_of(&record);
            let asked = asked.and_then(|told| {
                let known = found.as_ref().filter(|found| found.application(application.id).is_some());
                let names = ServerNames::of(&application, told.names);
                let is_another = names.as_ref().zip(known).is_some_and(|(names, found)| self.is_another_server(names, found, &application));
                if is_another { Err(another(&told.server.product, &record.instance)) } else { Ok((told.server, names)) }
            });
            let of = (volume.to_owned(), record.application);
            let (server, trouble) = match asked {
                Ok((server, names)) => {
                    all.extend(names);
                    (Some(server), None)
                }
                Err(trouble) => (None, Some(trouble)),
            };
            let mut connections = self.connections();
            let told = connections.told.entry(of).or_default();
            let is_new = trouble.is_some() && told.names_trouble.is_none();
            told.server = server.or(told.server.take());
            told.is_another = trouble.as_ref().is_some_and(|trouble| trouble.reason == Reason::AnotherServer);
            told.names_trouble = trouble;
            drop(connections);
            if is_new {
                let sentence = format!(
                    "the server of /{} could not be asked for its names: those on the volume hold; see `hearth app show {}`",
                    record.instance, record.application
                );
                self.events().note(Severity::Warning, volume, sentence);
            }
        }
        all
    }

    /// Whether names are not those of the server whose objects were found.
    pub(in crate::manager) fn is_another_server(&self, names: &ServerNames, found: &Found, application: &Application) -> bool {
        let Ok(key) = self.names_key() else { return false };
        let rename = key.map(hidden);
        let rename = rename.as_ref().map(|rename| rename as &dyn Fn(&str) -> String);
        names.agreement(found, application, rename).is_another_server()
    }

    /// A volume that is to be looked at because of what its servers told.
    pub(in crate::manager) fn look_due_for_names(&self) -> Option<insight::Look> {
        let due = self.connections().looks_due.clone();
        for volume in due {
            let (look, is_watched) = {
                let mut insight = self.insight();
                (insight.next_look(Some(&volume)), insight.watches(&volume))
            };
            if look.is_some() || !is_watched {
                self.connections().looks_due.remove(&volume);
            }
            if look.is_some() {
                return look;
            }
        }
        None
    }

    /// How the connections of a volume's applications are, by number.
    pub(in crate::manager) fn connection_views(&self, volume: &str) -> BTreeMap<u32, ConnectionView> {
        let records = self.volume_record(volume).map(|record| record.connections).unwrap_or_default();
        let connections = self.connections();
        let view = |record: ConnectionRecord| {
            let told = connections.told.get(&(volume.to_owned(), record.application));
            let server = told.and_then(|told| told.server.as_ref());
            let trouble = told.and_then(|told| told.names_trouble.as_ref().or(told.sessions_trouble.as_ref()));
            let view = ConnectionView {
                login: Some(record.login),
                user: server.map(|server| server.user.clone()),
                server: server.map(|server| server.product.clone()),
                programs: server.is_some_and(|server| server.programs),
                sessions: told.map_or(0, |told| told.sessions.len() as u64),
                problem: trouble.map(|trouble| trouble.problem.clone()),
                remedy: trouble.map(|trouble| trouble.remedy.clone()),
            };
            (record.application, view)
        };
        records.into_iter().map(view).collect()
    }
}

/// The application of a record, as far as its names need it.
pub(super) fn application_of(record: &ConnectionRecord) -> Application {
    Application {
        id: ApplicationId(record.application),
        engine: record.server,
        instance: Some(record.instance.clone()),
        start_bytes: record.start_bytes,
        file_system: [0; 16],
        version: None,
        evidence: Evidence::default(),
    }
}

/// The login of a record, if its file may still be used.
pub(super) fn login_of(record: &ConnectionRecord) -> Result<Login, Trouble> {
    Login::at(record.server, Path::new(&record.login))
}

pub(super) fn another(product: &str, instance: &str) -> Trouble {
    Trouble {
        reason: Reason::AnotherServer,
        problem: format!("the {product} that this login leads to is another one: it does not have most of the tables in /{instance}"),
        remedy: "check host, port and socket in the login file".into(),
    }
}
