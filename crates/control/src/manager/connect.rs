//! Logins to the servers of applications: what they know is asked, and put to what lies on volumes.
//!
//! A login is tried before it is kept. Then names are asked for before each look at the volume; sessions are another room's
//! (`sessions.rs`). What a server does not tell is missing, and nothing else.

use super::Manager;
use super::connections::Told;
use super::server_names::{another, login_of};
use api::error::ControlError;
use api::{AppConnect, Connected, Severity};
use applications::discovery::{Application, Found, ServerNames};
use catalogue::{Catalogue, Clients, Trouble};
use records::state::ConnectionRecord;
use std::sync::Arc;

/// An application that was found, and on which volume.
struct FoundApplication {
    volume: String,
    application: Application,
    found: Arc<Found>,
}

impl Manager {
    /// Which programs ask servers, if not those that are installed.
    pub fn set_clients(&self, clients: Clients) {
        self.connections().clients = Some(clients);
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
