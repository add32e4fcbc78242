//! The API over HTTP/1.1 on a Unix socket.
//!
//! One thread runs a current-thread tokio; every action is carried out on a thread that may wait, so a slow device makes
//! nobody else wait. Bodies are bounded, connections are counted, who is slow to say what it wants is sent away; the socket has mode 0660 and its
//! directory is made if need be.

use crate::api::{Action, PREFIX, PoolCreate, PoolReplace, PoolSet, VolumeAdd, VolumeSet, VolumeWarm};
use crate::error::{ControlError, Kind, Refusal};
use crate::manager::Manager;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Largest body. A volume's options are a few hundred bytes.
const BODY_BYTES_MAX: usize = 64 << 10;

/// What a server grants its clients.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Connections at a time; others wait until one ends.
    pub connections: usize,
    /// How long a client may take to send a request's header, and as long again for its body. A request that was sent may take its time.
    pub patience: Duration,
}

impl Default for ServerLimits {
    /// Far more than people and scripts need, and few enough for a process whose memory is bounded.
    fn default() -> ServerLimits {
        ServerLimits { connections: 64, patience: Duration::from_secs(10) }
    }
}

/// Before the next try when a connection could not be accepted: no file descriptors, most likely, and some may become free.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Ends a server when it is dropped.
pub type StopSender = tokio::sync::oneshot::Sender<()>;
/// What a server waits on.
pub type StopReceiver = tokio::sync::oneshot::Receiver<()>;

/// Both ends of a server's stop.
pub fn stop_pair() -> (StopSender, StopReceiver) {
    tokio::sync::oneshot::channel()
}

/// A bound socket; removed when dropped.
#[derive(Debug)]
pub struct Socket {
    listener: Option<UnixListener>,
    path: PathBuf,
}

impl Socket {
    /// Binds `path`. A socket left behind by a daemon that was killed is replaced. The caller holds the lock beside it, so
    /// nobody else does the same at the same time.
    ///
    /// # Errors
    /// [`ControlError::SecondDaemon`] if somebody answers there, [`ControlError::State`] if it cannot be made.
    pub fn bind(path: &std::path::Path) -> Result<Socket, ControlError> {
        let shown = path.display().to_string();
        let failed = |what: &str, e: std::io::Error| ControlError::State {
            path: shown.clone(),
            problem: format!("{what} ({e})"),
            remedy: "give another socket with --socket PATH".into(),
        };
        if let Some(directory) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
            std::fs::create_dir_all(directory).map_err(|e| failed("its directory cannot be made", e))?;
        }
        match std::fs::symlink_metadata(path) {
            Ok(there) if !there.file_type().is_socket() => {
                let error = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
                return Err(failed("something that is no socket has this name", error));
            }
            Ok(_) => match std::os::unix::net::UnixStream::connect(path) {
                Ok(stream) => {
                    let peer = rustix::net::sockopt::socket_peercred(&stream);
                    let pid = peer.map_or("unknown".into(), |p| p.pid.as_raw_nonzero().to_string());
                    return Err(ControlError::SecondDaemon { pid, path: shown });
                }
                Err(_) => std::fs::remove_file(path).map_err(|e| failed("the old socket cannot be removed", e))?,
            },
            Err(_) => {}
        }
        let listener = UnixListener::bind(path).map_err(|e| failed("the socket cannot be made", e))?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660)).map_err(|e| failed("its mode cannot be set", e))?;
        Ok(Socket { listener: Some(listener), path: path.to_path_buf() })
    }

    /// Serves until `stop` gets a message or is dropped. Blocks: give it a thread.
    ///
    /// # Errors
    /// If the runtime or the listener cannot be set up.
    pub fn serve(mut self, manager: Manager, limits: ServerLimits, stop: StopReceiver) -> std::io::Result<()> {
        let listener = self.listener.take().expect("a socket serves once");
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        runtime.block_on(async {
            let listener = tokio::net::UnixListener::from_std(listener)?;
            let stopped = async {
                // An error means that the sender is gone: a stop too.
                let _ = stop.await;
            };
            tokio::select! {
                never = answer(&listener, router(manager, limits), limits) => match never {},
                () = stopped => Ok::<(), std::io::Error>(()),
            }
        })?;
        // Actions still under way on blocking threads must not hold up the stop; the manager has refused new ones.
        runtime.shutdown_background();
        Ok(())
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!("the socket {} was gone already ({error})", self.path.display());
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Flags {
    force: bool,
    drop_dirty: bool,
    after: u64,
}

async fn answer(listener: &tokio::net::UnixListener, router: Router, limits: ServerLimits) -> std::convert::Infallible {
    let places = Arc::new(Semaphore::new(limits.connections));
    loop {
        let place = places.clone().acquire_owned().await.expect("nobody closes it");
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!("no connection to the API can be accepted: {error}");
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(limits.patience);
            if let Err(error) = http.serve_connection(TokioIo::new(stream), service).await {
                tracing::debug!("a connection to the API ended: {error}");
            }
            drop(place);
        });
    }
}

/// Takes the whole body in, if it comes in time.
async fn read_body(request: Request, next: Next, patience: Duration) -> Response {
    let (head, body) = request.into_parts();
    match tokio::time::timeout(patience, axum::body::to_bytes(body, BODY_BYTES_MAX)).await {
        Ok(Ok(body)) => next.run(Request::from_parts(head, Body::from(body))).await,
        Ok(Err(error)) => refuse(&ControlError::BadRequest(error.to_string())),
        Err(_) => refuse(&ControlError::BadRequest("its body does not come".into())),
    }
}

/// What stands behind the question mark, if it is what the path takes.
type Asked<T> = Result<Query<T>, QueryRejection>;

fn router(manager: Manager, limits: ServerLimits) -> Router {
    let paths = Router::new()
        .route("/daemon", get(|s| run(s, Action::Daemon)))
        .route("/pools", get(|s| run(s, Action::PoolList)).post(pool_create))
        .route("/pools/{name}", get(pool_show).patch(pool_set).delete(pool_destroy))
        .route("/pools/{name}/replace", post(pool_replace))
        .route("/volumes", get(|s| run(s, Action::VolumeList)).post(volume_add))
        .route("/volumes/{name}", get(volume_show).patch(volume_set).delete(volume_remove))
        .route("/volumes/{name}/destage", post(volume_destage))
        .route("/volumes/{name}/warm", post(volume_warm))
        .route("/volumes/{name}/why", get(volume_why))
        .route("/volumes/{name}/map", get(volume_map))
        .route("/stats", get(|s| run(s, Action::StatsAll)))
        .route("/stats/{name}", get(stats))
        .route("/jobs", get(|s| run(s, Action::JobList)))
        .route("/jobs/{id}", get(job_show).delete(job_cancel))
        .route("/events", get(events));
    Router::new()
        .nest(PREFIX, paths)
        .fallback(async || refuse(&ControlError::BadRequest("there is no such path".into())))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn(move |request, next| read_body(request, next, limits.patience)))
        .with_state(manager)
}

type Managed = State<Manager>;
type Named = Path<String>;

/// Carries out an action on a thread that may wait.
async fn run(State(manager): Managed, action: Action) -> Response {
    match tokio::task::spawn_blocking(move || manager.handle(action)).await {
        Ok(Ok(answer)) => respond(StatusCode::OK, &answer),
        Ok(Err(error)) => refuse(&error),
        Err(_) => refuse(&ControlError::DataPath("the daemon failed while it did this".into(), "see its log, and report it".into())),
    }
}

async fn pool_create(manager: Managed, body: Bytes) -> Response {
    match parse::<PoolCreate>(&body) {
        Ok(create) => run(manager, Action::PoolCreate(create)).await,
        Err(error) => refuse(&error),
    }
}

async fn pool_show(manager: Managed, Path(name): Named) -> Response {
    run(manager, Action::PoolShow { name }).await
}

async fn pool_set(manager: Managed, Path(name): Named, body: Bytes) -> Response {
    match parse::<PoolSet>(&body) {
        Ok(set) => run(manager, Action::PoolSet { name, set }).await,
        Err(error) => refuse(&error),
    }
}

async fn pool_destroy(manager: Managed, Path(name): Named, Query(flags): Query<Flags>) -> Response {
    run(manager, Action::PoolDestroy { name, force: flags.force }).await
}

async fn pool_replace(manager: Managed, Path(name): Named, body: Bytes) -> Response {
    match parse::<PoolReplace>(&body) {
        Ok(replace) => run(manager, Action::PoolReplace { name, replace }).await,
        Err(error) => refuse(&error),
    }
}

async fn volume_add(manager: Managed, body: Bytes) -> Response {
    match parse::<VolumeAdd>(&body) {
        Ok(add) => run(manager, Action::VolumeAdd(add)).await,
        Err(error) => refuse(&error),
    }
}

async fn volume_show(manager: Managed, Path(name): Named) -> Response {
    run(manager, Action::VolumeShow { name }).await
}

async fn volume_set(manager: Managed, Path(name): Named, body: Bytes) -> Response {
    match parse::<VolumeSet>(&body) {
        Ok(set) => run(manager, Action::VolumeSet { name, set }).await,
        Err(error) => refuse(&error),
    }
}

async fn volume_remove(manager: Managed, Path(name): Named, Query(flags): Query<Flags>) -> Response {
    run(manager, Action::VolumeRemove { name, drop_dirty: flags.drop_dirty }).await
}

async fn volume_destage(manager: Managed, Path(name): Named) -> Response {
    run(manager, Action::VolumeDestage { name }).await
}

async fn volume_warm(manager: Managed, Path(name): Named, body: Bytes) -> Response {
    match parse::<VolumeWarm>(&body) {
        Ok(warm) => run(manager, Action::VolumeWarm { name, warm }).await,
        Err(error) => refuse(&error),
    }
}

/// Which range to look into.
#[derive(Deserialize)]
struct WhyQuery {
    start_bytes: u64,
    length_bytes: u64,
}

async fn volume_why(manager: Managed, Path(name): Named, query: Asked<WhyQuery>) -> Response {
    match query {
        Ok(Query(WhyQuery { start_bytes, length_bytes })) => run(manager, Action::VolumeWhy { name, start_bytes, length_bytes }).await,
        Err(rejection) => refuse(&ControlError::BadRequest(rejection.body_text())),
    }
}

/// Which part of the address space, in how many cells.
#[derive(Deserialize)]
struct MapQuery {
    #[serde(default)]
    start_bytes: u64,
    end_bytes: Option<u64>,
    cells: u32,
}

async fn volume_map(manager: Managed, Path(name): Named, query: Asked<MapQuery>) -> Response {
    match query {
        Ok(Query(MapQuery { start_bytes, end_bytes, cells })) => {
            run(manager, Action::VolumeMap { name, start_bytes, end_bytes, cells }).await
        }
        Err(rejection) => refuse(&ControlError::BadRequest(rejection.body_text())),
    }
}

async fn stats(manager: Managed, Path(name): Named) -> Response {
    run(manager, Action::Stats { name }).await
}

async fn job_show(manager: Managed, Path(id): Path<u64>) -> Response {
    run(manager, Action::JobShow { id }).await
}

async fn job_cancel(manager: Managed, Path(id): Path<u64>) -> Response {
    run(manager, Action::JobCancel { id }).await
}

async fn events(manager: Managed, Query(flags): Query<Flags>) -> Response {
    run(manager, Action::Events { after: flags.after }).await
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ControlError> {
    serde_json::from_slice(body).map_err(|e| ControlError::BadRequest(e.to_string()))
}

fn respond(status: StatusCode, content: &impl serde::Serialize) -> Response {
    match serde_json::to_vec(content) {
        Ok(body) => (status, [(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

fn refuse(error: &ControlError) -> Response {
    let refusal: Refusal = error.refusal();
    let status = match refusal.kind {
        Kind::Usage => StatusCode::BAD_REQUEST,
        Kind::NotFound => StatusCode::NOT_FOUND,
        Kind::Conflict => StatusCode::CONFLICT,
        Kind::Busy => StatusCode::LOCKED,
        Kind::Failed => StatusCode::INTERNAL_SERVER_ERROR,
    };
    respond(status, &refusal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manager::fake::World;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    /// Clients that say nothing, half a header, or half a request take all places; who comes after them is answered all the same.
    #[test]
    fn slow_clients_are_sent_away_and_others_get_their_turn() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("h.sock");
        let world = World::default();
        let manager = Manager::open(Arc::new(world.clone()), Box::new(world), std::path::Path::new("/state")).expect("an empty state");
        let (stop, stopped) = stop_pair();
        let socket = Socket::bind(&path).expect("bound");
        let limits = ServerLimits { connections: 3, patience: Duration::from_millis(200) };
        let server = std::thread::spawn(move || socket.serve(manager, limits, stopped));
        let connect = |says: &str| {
            let mut stream = UnixStream::connect(&path).expect("it listens");
            stream.write_all(says.as_bytes()).expect("there is room");
            stream
        };
        let post = format!("POST {PREFIX}/pools HTTP/1.1\r\nhost: h\r\ncontent-length: 100\r\n\r\n{{");
        let mut slow = [connect(""), connect("GET /"), connect(&post)];
        let mut answer = String::new();
        let mut good = connect(&format!("GET {PREFIX}/pools HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n"));
        good.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("[]"), "{answer}");
        let mut refused = String::new();
        slow[2].read_to_string(&mut refused).expect("an answer");
        assert!(refused.starts_with("HTTP/1.1 400") && refused.contains("does not come"), "{refused}");
        drop(stop);
        server.join().expect("it does not panic").expect("it ends well");
    }

    #[test]
    fn a_dead_socket_is_replaced_and_a_file_is_not() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("run/h.sock");
        let live = Socket::bind(&path).expect("the directory is made");
        let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o660);
        let error = Socket::bind(&path).expect_err("somebody listens");
        assert!(matches!(error, ControlError::SecondDaemon { .. }), "{error}");
        // What a killed daemon leaves: the name without a listener.
        let left = directory.path().join("left.sock");
        drop(UnixListener::bind(&left).expect("it can be bound"));
        drop(Socket::bind(&left).expect("nobody listens"));
        assert!(!left.exists());
        drop(live);
        std::fs::write(&left, "precious").expect("there is room");
        assert!(Socket::bind(&left).expect_err("a file").to_string().contains("no socket"));
        assert_eq!(std::fs::read(&left).expect("still there"), b"precious");
    }
}
