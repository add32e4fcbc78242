//! Logins to the servers of applications: what they know is asked, and put to what lies on volumes.
//!
//! A login is tried before it is kept. Then names are asked for before each look at the volume; sessions are another room's
//! (`sessions.rs`). What a server does not tell is missing, and nothing else.

use super::Manager;
use super::sessions::SessionSeen;
use api::error::ControlError;
use api::{AppConnect, Connected, ConnectionView, Severity};
use applications::discovery::{Application, ApplicationId, Evidence, Found, ServerNames};
use catalogue::{Catalogue, Clients, Login, Reason, Server, Trouble};
use insight::hidden::hidden;
use records::state::ConnectionRecord;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, MutexGuard};

/// A connection is known by its volume and the number of its application.
pub(super) type Of = (String, u32);

/// What is known of connections beside their records.
#[derive(Default)]
pub(super) struct Connections {
    /// Programs that ask servers; `None`: those that are installed.
    clients: Option<Clients>,
    pub(super) told: BTreeMap<Of, Told>,
    /// Volumes to be looked at, as names of their servers may have come since the last look began.
    pub(super) looks_due: BTreeSet<String>,
    /// Connected once more: sessions are asked for anew, as the file with the login may say something else.
    pub(super) anew: BTreeSet<Of>,
    /// A thread asks for sessions.
    pub(super) is_asking: bool,
}

/// What a server told last.
#[derive(Default)]
pub(super) struct Told {
    pub(super) server: Option<Server>,
    pub(super) names_trouble: Option<Trouble>,
    pub(super) sessions_trouble: Option<Trouble>,
    pub(super) sessions: Vec<SessionSeen>,
    /// At the last look another server answered than the one whose data directory it is.
    pub(super) is_another: bool,
}

/// An application that was found, and on which volume.
struct FoundApplication {
    volume: String,
    application: Application,
    found: Arc<Found>,
}

impl Manager {
    pub(super) fn connections(&self) -> MutexGuard<'_, Connections> {
        self.shared.connections.lock().expect("no holder of this lock panics")
    }

    /// Which programs ask servers, if not those that are installed.
    pub fn set_clients(&self, clients: Clients) {
        self.connections().clients = Some(clients);
    }

    pub(super) fn clients(&self) -> Clients {
        self.connections().clients.clone().unwrap_or_else(Clients::installed)
    }

    pub(super) fn app_connect(&self, id: u32, ask: &AppConnect) -> Result<Connected, ControlError> {
        let place = self.place_of(id, ask.volume.as_deref())?;
        let record = record_of(&place.application, &ask.login)?;
        let login = login_of(&record).map_err(|trouble| refused(&trouble))?;
        let told = Catalogue::ask(&login, &self.clients()).map_err(|trouble| refused(&trouble))?;
        let names = ServerNames::of(&place.application, told.names.clone());
        if names.as_ref().is_some_and(|names| self.is_another_server(names, &place.found, &place.application)) {
            return Err(refused(&another(&told.server.product, &record.instance)));
        }
        let kept = self.change(|state| {
            let volume = state.volume_mut(&place.volume)?;
            volume.connections.retain(|known| known.application != id);
            volume.connections.push(record.clone());
            Some(())
        })?;
        kept.ok_or_else(|| ControlError::Unknown { named: "volume", name: place.volume.clone() })?;
        let of = (place.volume.clone(), id);
        self.connections().anew.insert(of.clone());
        self.connections().told.insert(of, Told { server: Some(told.server.clone()), ..Told::default() });
        self.events().note(Severity::Info, &place.volume, format!("connected to the {} of /{}", told.server.product, record.instance));
        self.watch_sessions();
        // Without one under way, or something else on that volume, the names are put to the objects now; else as soon as it has ended.
        let job = self.discover_as_job(&place.volume).ok();
        if job.is_none() {
            self.connections().looks_due.insert(place.volume);
        }
        Ok(connected(&told, job))
    }

    pub(super) fn app_disconnect(&self, id: u32, volume: Option<&str>) -> Result<String, ControlError> {
        let has = |record: &ConnectionRecord| record.application == id;
        let volumes: Vec<String> = {
            let memory = self.memory();
            let of = memory.state.volumes.iter().filter(|one| volume.is_none_or(|volume| volume == one.name));
            of.filter(|one| one.connections.iter().any(has)).map(|one| one.name.clone()).collect()
        };
        let [volume] = &volumes[..] else {
            if volumes.is_empty() {
                return Err(ControlError::Analysis(
                    format!("there is no connection to an application of number {id}"),
                    "see `hearth app list`".into(),
                ));
            }
            return Err(several(id, &volumes));
        };
        let record = self.change(|state| {
            let connections = &mut state.volume_mut(volume)?.connections;
            connections.iter().position(has).map(|place| connections.remove(place))
        })?;
        self.connections().told.remove(&(volume.clone(), id));
        let instance = record.map(|record| record.instance).unwrap_or_default();
        self.events().note(Severity::Info, volume, format!("disconnected from the server of /{instance}"));
        Ok(format!("disconnected from the server of /{instance}; names that only it knew go with the next look at \"{volume}\""))
    }

    /// What the servers of a volume call its objects. A server that does not answer is told of once.
    pub(super) fn server_names(&self, volume: &str) -> Vec<ServerNames> {
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
    fn is_another_server(&self, names: &ServerNames, found: &Found, application: &Application) -> bool {
        let Ok(key) = self.names_key() else { return false };
        let rename = key.map(hidden);
        let rename = rename.as_ref().map(|rename| rename as &dyn Fn(&str) -> String);
        names.agreement(found, application, rename).is_another_server()
    }

    /// A volume that is to be looked at because of what its servers told.
    pub(super) fn look_due_for_names(&self) -> Option<insight::Look> {
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
    pub(super) fn connection_views(&self, volume: &str) -> BTreeMap<u32, ConnectionView> {
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

    /// The application of that number.
    fn place_of(&self, id: u32, volume: Option<&str>) -> Result<FoundApplication, ControlError> {
        let insight = self.insight();
        let mut places = Vec::new();
        for (name, objects) in insight.objects().filter(|(name, _)| volume.is_none_or(|volume| volume == name.as_str())) {
            let Some(found) = objects.found() else { continue };
            let applications = found.applications.iter().filter(|application| application.id.0 == id);
            places.extend(applications.map(|application| FoundApplication {
                volume: name.clone(),
                application: application.clone(),
                found: found.clone(),
            }));
        }
        if places.len() > 1 {
            let volumes: Vec<String> = places.into_iter().map(|place| place.volume).collect();
            return Err(several(id, &volumes));
        }
        places.pop().ok_or_else(|| ControlError::Unknown { named: "application", name: id.to_string() })
    }
}

fn several(id: u32, volumes: &[String]) -> ControlError {
    ControlError::Analysis(
        format!("{} have an application of number {id}: {}", types::counted(volumes.len() as u64, "volume"), volumes.join(", ")),
        "name the volume".into(),
    )
}

fn another(product: &str, instance: &str) -> Trouble {
    Trouble {
        reason: Reason::AnotherServer,
        problem: format!("the {product} that this login leads to is another one: it does not have most of the tables in /{instance}"),
        remedy: "check host, port and socket in the login file".into(),
    }
}

fn refused(trouble: &Trouble) -> ControlError {
    ControlError::Analysis(trouble.problem.clone(), trouble.remedy.clone())
}

/// What is kept of a connection.
pub(super) fn record_of(application: &Application, login: &str) -> Result<ConnectionRecord, ControlError> {
    if application.engine.facts().server.is_none() {
        return Err(ControlError::Analysis(
            format!("hearth can ask MySQL, MariaDB and PostgreSQL, not {}", application.engine.title()),
            "its names are those that its pages and files tell".into(),
        ));
    }
    let Some(instance) = application.instance.clone() else {
        return Err(ControlError::Analysis(
            "its pages were seen outside of any file system that hearth can read, so that names could not be put to them".into(),
            "see `hearth app list` for why".into(),
        ));
    };
    Ok(ConnectionRecord {
        application: application.id.0,
        server: application.engine,
        instance,
        start_bytes: application.start_bytes,
        login: login.into(),
    })
}

/// The login of a record, if its file may still be used.
pub(super) fn login_of(record: &ConnectionRecord) -> Result<Login, Trouble> {
    Login::at(record.server, Path::new(&record.login))
}

/// The application of a record, as far as its names need it.
fn application_of(record: &ConnectionRecord) -> Application {
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

fn connected(told: &Catalogue, job: Option<api::JobView>) -> Connected {
    let mut sentences = Vec::new();
    if !told.left_out.is_empty() {
        sentences.push(format!("Not asked, as they do not let this login in: {}.", told.left_out.join(", ")));
    }
    if !told.server.programs {
        let how = told.programs_need;
        sentences.push(format!("Sessions are seen without their programs, so that no backup is known by its name: that needs {how}."));
    }
    Connected {
        server: told.server.product.clone(),
        user: told.server.user.clone(),
        names: told.names.len() as u64,
        programs: told.server.programs,
        sentences,
        job,
    }
}
