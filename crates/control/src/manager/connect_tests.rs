//! Servers that are asked, played by scripts in the place of their clients.

use super::Manager;
use super::connect::record_of;
use super::fake::World;
use api::error::Kind;
use api::options::OptionsPatch;
use api::{Action, Answer, AppConnect, ConnectionView, InsightAction, PoolCreate, VolumeAdd};
use applications::Engine;
use applications::discovery::{Application, ApplicationId, Evidence};
use catalogue::Clients;
use records::state::ConnectionRecord;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a client does that answers as a MariaDB with one table and one session.
const ANSWERS: &str = r#"while read -r question; do case "$question" in
    "select 'hearth-end-"*) mark=${question#select \'}; echo "${mark%\';}" ;;
    "select hex(version())"*) printf '31302E31312E362D4D617269614442\t757365724068\t1\n' ;;
    "select i.space"*) printf '7\t11\t3\t3\t73686F702F6F7264657273\t5052494D415259\n' ;;
    "select p.tid"*) printf '41\t6D7973716C64756D70\t5175657279\t75\tNULL\n' ;;
esac; done"#;
const DOWN: &str = "echo \"ERROR 2002 (HY000): Can't connect to local server\" >&2; exit 1";

struct Stage {
    directory: tempfile::TempDir,
    world: World,
    manager: Manager,
}

impl Stage {
    /// A volume with a connection, and a client that does that.
    fn new(client: &str) -> Stage {
        let world = World::default();
        world.add_device("/ssd", 1 << 30);
        world.add_device("/disk", 1 << 30);
        let manager = open(&world);
        let create = PoolCreate {
            name: "p".into(),
            ssd: "/ssd".into(),
            size_bytes: None,
            ram_bytes: None,
            content: None,
            force: false,
            on_blank_ssd: None,
            spare_percent: None,
        };
        manager.handle(Action::PoolCreate(create)).expect("nothing fails");
        let options = OptionsPatch::default();
        let (backing, exports, sector_bytes) = ("/disk".into(), Vec::new(), None);
        let add = VolumeAdd { name: "v".into(), pool: "p".into(), backing, exports, options, sector_bytes };
        manager.handle(Action::VolumeAdd(add)).expect("nothing fails");
        let stage = Stage { directory: tempfile::tempdir().expect("a directory"), world, manager };
        stage.write("login", "[client]\n", 0o600);
        stage.write("client", client, 0o700);
        stage.manager.set_clients(stage.clients());
        let record = ConnectionRecord {
            application: 5,
            server: Engine::Innodb,
            instance: "var/lib/mysql".into(),
            start_bytes: 0,
            login: stage.path("login").display().to_string(),
        };
        stage.manager.change(|state| state.volume_mut("v").map(|volume| volume.connections.push(record))).expect("it is saved");
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str, mode: u32) {
        // A program that runs cannot be written.
        let (fresh, path) = (self.path("fresh"), self.path(name));
        std::fs::write(&fresh, if name == "client" { format!("#!/bin/sh\n{text}\n") } else { text.into() }).expect("written");
        std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(mode)).expect("its mode");
        std::fs::rename(&fresh, &path).expect("in its place");
    }

    fn clients(&self) -> Clients {
        Clients { mysql: Some(self.path("client")), postgres: None }
    }

    fn view(&self) -> ConnectionView {
        self.manager.connection_views("v").remove(&5).expect("a connection")
    }

    fn warnings(&self) -> usize {
        self.manager.events_after(0).iter().filter(|event| event.message.contains("could not be asked for its names")).count()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.manager.memory().stopping = true;
    }
}

fn open(world: &World) -> Manager {
    let manager = Manager::open(Arc::new(world.clone()), Box::new(world.clone()), Path::new("/state")).expect("the state can be read");
    manager.start().expect("the state can be saved");
    manager
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what} did not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn sessions_are_asked_for_as_long_as_there_is_a_connection() {
    let stage = Stage::new(ANSWERS);
    assert!(stage.manager.sessions("v").is_empty() && !stage.manager.connections().is_asking);
    stage.manager.watch_sessions();
    stage.manager.watch_sessions();
    until("a session", || !stage.manager.sessions("v").is_empty());
    let sessions = stage.manager.sessions("v");
    assert_eq!((sessions.len(), sessions[0].thread, sessions[0].program.as_str()), (1, 41, "mysqldump"));
    assert!(stage.manager.sessions("other").is_empty());
    let view = stage.view();
    assert_eq!((view.server.as_deref(), view.user.as_deref(), view.sessions), (Some("MariaDB 10.11.6"), Some("user@h"), 1));
    let seen = view.without_login();
    assert!(seen.login.is_none() && seen.user.is_none() && seen.server.is_some(), "{seen:?}");

    let disconnect = Action::Insight(InsightAction::ApplicationDisconnect { id: 5, volume: None });
    let Ok(Answer::Done(done)) = stage.manager.handle(disconnect.clone()) else { panic!("it is there") };
    assert!(done.summary.is_some_and(|told| told.starts_with("disconnected from the server of /var/lib/mysql")));
    until("the end of the thread", || !stage.manager.connections().is_asking && stage.manager.sessions("v").is_empty());
    let error = stage.manager.handle(disconnect).expect_err("it has gone");
    assert_eq!(error.to_string(), "there is no connection to an application of number 5");
    assert!(stage.world.inside().saved.volumes[0].connections.is_empty());
}

#[test]
fn a_server_that_goes_and_comes_back_is_asked_again() {
    let stage = Stage::new(DOWN);
    stage.manager.watch_sessions();
    until("the problem", || stage.view().problem.is_some());
    let view = stage.view();
    assert!(view.problem.as_deref().is_some_and(|problem| problem.contains("Can't connect to local server")), "{view:?}");
    let seen = view.without_login();
    assert_eq!((seen.problem.as_deref(), seen.remedy.as_deref()), (Some("the server does not answer hearth"), None));
    stage.write("client", ANSWERS, 0o700);
    until("a session", || !stage.manager.sessions("v").is_empty());
    assert_eq!(stage.view().problem, None);
    // A file that others may read since is not used any more.
    std::fs::set_permissions(stage.path("login"), std::fs::Permissions::from_mode(0o644)).expect("its mode");
    assert!(stage.manager.server_names("v").is_empty());
    assert!(stage.view().remedy.is_some_and(|remedy| remedy.contains("chmod 600")));
}

#[test]
fn names_are_those_of_the_server_and_its_silence_is_told_once() {
    let stage = Stage::new(ANSWERS);
    assert_eq!(stage.manager.server_names("v").len(), 1);
    assert_eq!((stage.warnings(), stage.view().problem), (0, None));
    stage.write("client", DOWN, 0o700);
    assert!(stage.manager.server_names("v").is_empty() && stage.manager.server_names("v").is_empty());
    assert_eq!(stage.warnings(), 1);
    stage.write("client", ANSWERS, 0o700);
    assert_eq!(stage.manager.server_names("v").len(), 1);
    assert_eq!(stage.view().problem, None);
    assert!(stage.manager.server_names("none").is_empty());
}

#[test]
fn a_connection_outlives_the_daemon() {
    let stage = Stage::new(ANSWERS);
    stage.manager.memory().stopping = true;
    stage.world.reboot();
    let again = open(&stage.world);
    again.set_clients(stage.clients());
    again.watch_sessions();
    until("a session", || !again.sessions("v").is_empty());
    again.memory().stopping = true;
    until("the end of the thread", || !again.connections().is_asking);
}

#[test]
fn what_cannot_be_asked_is_refused() {
    let stage = Stage::new(ANSWERS);
    let connect = AppConnect { login: "/login".into(), volume: None };
    let error = stage.manager.handle(Action::Insight(InsightAction::ApplicationConnect { id: 77, connect })).expect_err("there is none");
    assert_eq!((error.kind(), error.to_string()), (Kind::NotFound, "there is no application \"77\"".into()));
    assert!(error.remedy().contains("hearth app list"));
    let application = |engine, instance: Option<&str>| Application {
        id: ApplicationId(9),
        engine,
        instance: instance.map(Into::into),
        start_bytes: 4096,
        file_system: [0; 16],
        version: None,
        evidence: Evidence::default(),
    };
    let refused = |engine, instance| record_of(&application(engine, instance), "/login").expect_err("refused").to_string();
    assert!(refused(Engine::Mssql, Some("data")).contains("MySQL, MariaDB and PostgreSQL, not SQL Server"));
    assert!(refused(Engine::Innodb, None).contains("outside of any file system"));
    let kept = record_of(&application(Engine::Postgres, Some("15/main")), "/login").expect("it can be asked");
    assert_eq!((kept.application, kept.server, kept.start_bytes, kept.instance.as_str()), (9, Engine::Postgres, 4096, "15/main"));
}
