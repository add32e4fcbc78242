//! The daemon: one process in the foreground, ended by SIGTERM or Ctrl-C, and by nothing that becomes of its terminal or its log.
//!
//! Order of a start: lock, socket, data path, everything back, "ready". Order of a stop: the manager stops everything
//! cleanly, or gives up what does not answer, while the API still answers (it refuses changes), then the socket goes, then the lock. Nothing
//! waits for other threads: one of them may wait for a device for ever. A second signal ends the process at once; the next start recovers
//! as after a crash.

use crate::certificates;
use crate::config::Config;
use crate::config::settings::{self, Flags, ServeSettings};
use crate::exporters;
use crate::failure::Failure;
use crate::keeping::keeper;
use crate::logs::{self, say};
use crate::sampling::Sampling;
use crate::service::{Life, Service};
use crate::watching;
use api::error::ControlError;
use api::human;
use api::privacy;
use control::manager::start::Started;
use control::manager::{Manager, past};
use datapath::Notice;
use machine::{Machine, MachineOptions, check_own_place};
use records::lock::DaemonLock;
use records::places::Surroundings;
use records::store::FileStore;
use rest::{Server, ServerOptions, TcpOptions};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use types::counted;

/// Runs until a signal.
///
/// # Errors
/// With the sentence to print; everything that was started is stopped.
pub fn serve(flags: &Flags, config_file: Option<&Path>) -> Result<(), Failure> {
    let began = Instant::now();
    if flags.reactors.is_some_and(|count| !(1..=settings::REACTORS_MAX).contains(&count)) {
        let problem = format!("--reactors must be a whole number from 1 to {}", settings::REACTORS_MAX);
        return Err(Failure::usage(problem, "leave it out for half of the processors"));
    }
    let config = Config::load(config_file)?;
    let log_variable = std::env::var(settings::LOG_VARIABLE).ok().filter(|filter| !filter.is_empty());
    let settings = settings::settle(flags, &config, &Surroundings::of_process(), log_variable);
    logs::start(&settings.log_filter, settings.log_format)?;
    if let Some(path) = &config.path {
        tracing::info!("configured by {}", path.display());
    }
    run(&settings, config.path.as_deref(), began)
}

fn run(settings: &ServeSettings, config_file: Option<&Path>, began: Instant) -> Result<(), Failure> {
    let places = &settings.places;
    let (told_in, told) = channel();
    signals(told_in.clone())?;
    // What is made from here on is for the owner alone, unless it is given another mode by name: history, locks, whatever libraries make.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    check_own_places(settings)?;
    let store = FileStore::open(&places.state_directory)?;
    let _lock = DaemonLock::take(&places.state_directory.join("lock"))?;
    for problem in privacy::make_private(&places.state_directory) {
        tracing::warn!("{problem}");
    }
    let _socket_lock = lock_socket(&places.socket)?;
    let server = Server::bind(&places.socket, server_options(settings))?;
    if let Some(address) = server.tcp_address() {
        tracing::info!("the API also listens at https://{address}");
    }
    tell_kernel_that_io_depends_on_us();
    stay_in_memory();

    let (notice_in, notices) = channel();
    let machine = Machine::start(machine_options(settings, notice_in))?;
    let manager = Manager::open(Arc::new(machine), Box::new(store), &places.state_directory)?;
    manager.set_volume_defaults(&settings.volume_defaults)?;
    manager.set_stop_limit(settings.stop_limit);
    let own_files = [config_file, settings.certificate.as_deref(), settings.key.as_deref()];
    manager.set_own_files(own_files.into_iter().flatten().map(Path::to_path_buf));
    manager.set_insight(settings.insight);
    manager.open_watches(&places.state_directory);
    if settings.history_enabled {
        past::open(&manager, &places.state_directory, settings.history_bytes_max)?;
    }
    let (api_lives, notices_live, sampler_lives) = (Life::default(), Life::default(), Life::default());
    let service = Service::start(&manager, vec![api_lives.clone(), notices_live.clone(), sampler_lives.clone()])?;
    let (server, server_stop) = start_server(server, &manager, api_lives)?;
    watch_notices(&manager, notices, notices_live)?;
    let sampling = Sampling::start(&manager, sampler_lives)?;

    let starting = manager.clone();
    spawn("starts", move || {
        // Nobody listens any more when a signal has come meanwhile.
        drop(told_in.send(Told::Started(starting.start())));
    })?;
    let signal = match told.recv() {
        Ok(Told::Started(started)) => {
            run_on(&manager, &service, &started?, began)?;
            told.recv().ok()
        }
        signal => signal.ok(),
    };
    // Without one the thread of the signals is gone: stop as well.
    let signal = if let Some(Told::Signal(signal)) = signal { signal } else { SIGTERM };
    tracing::info!("stopping ({})", if signal == SIGINT { "Ctrl-C" } else { "SIGTERM" });
    service.stopping();
    if crate::service::is_restarted() {
        manager.expect_restart();
    }
    drop(sampling);
    let stopped = manager.stop();
    drop(server_stop);
    match server.join() {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!("the API did not stop cleanly: {error}"),
        Err(_) => tracing::warn!("the API's thread failed"),
    }
    stopped.map_err(|e| Failure::from(e).cannot("stop cleanly; the next start recovers"))?;
    tracing::info!("stopped cleanly");
    Ok(())
}

/// What the main thread waits for.
enum Told {
    /// Everything is brought back, as far as it can be now.
    Started(Result<Started, ControlError>),
    /// To end.
    Signal(i32),
}

/// Everything is brought back.
fn run_on(manager: &Manager, service: &Service, started: &Started, began: Instant) -> Result<(), Failure> {
    watching::start(manager)?;
    let took = human::nanoseconds(began.elapsed().as_nanos() as u64);
    let troubled = match started.troubled {
        0 => String::new(),
        n => format!(", {n} in trouble (see `hearth pool list` and `hearth volume list`)"),
    };
    let (pools, volumes) = (counted(started.pools as u64, "pool"), counted(started.volumes as u64, "volume"));
    service.ready(&format!("{pools}, {volumes}{troubled}"));
    logs::announce(&format!("ready in {took}: {pools}, {volumes}{troubled}\n"));
    Ok(())
}

/// Refuses places of the daemon's own that lie on what only this daemon serves. Before the first of them is touched.
fn check_own_places(settings: &ServeSettings) -> Result<(), Failure> {
    let exports = export_directory(&settings.places.socket);
    check_own_place("the state directory", &settings.places.state_directory, &exports)?;
    for descriptor in ["/proc/self/fd/1", "/proc/self/fd/2"] {
        // A pipe, a socket or a terminal has no place.
        if let Some(log) = std::fs::read_link(descriptor).ok().filter(|path| path.is_absolute() && !path.starts_with("/dev")) {
            check_own_place("the file that the log goes to", &log, &exports)?;
        }
    }
    Ok(())
}

/// Signals that end the daemon and come within this time are one.
const ONE_WISH: Duration = Duration::from_millis(200);

/// The first signal that ends the daemon is told, the second ends the process. SIGHUP does neither: who logs out, or closes the
/// terminal, has volumes that others use.
fn signals(told: Sender<Told>) -> Result<(), Failure> {
    let failed = |e| Failure::failed(format!("signals cannot be watched ({e})"), "");
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(failed)?;
    spawn("signals", move || {
        let mut ends_since: Option<Instant> = None;
        for signal in signals.forever() {
            if signal == SIGHUP {
                tracing::info!("SIGHUP: the daemon goes on; SIGTERM stops it");
            } else if let Some(since) = ends_since.replace(Instant::now()) {
                // One wish may come twice: to the process, and to its group.
                if since.elapsed() < ONE_WISH {
                    continue;
                }
                say("hearth: second signal: exiting at once; the next start recovers as after a crash");
                logs::finish();
                signal_hook::low_level::exit(128 + signal);
            } else if told.send(Told::Signal(signal)).is_err() {
                return;
            }
        }
    })
    .map(drop)
}

/// A thread with a name.
///
/// # Errors
/// If the machine has no more of them.
pub fn spawn<T: Send + 'static>(name: &str, body: impl FnOnce() -> T + Send + 'static) -> Result<JoinHandle<T>, Failure> {
    std::thread::Builder::new()
        .name(name.into())
        .spawn(body)
        .map_err(|e| Failure::failed(format!("no thread can be started ({e})"), "raise the thread limit"))
}

/// Beside the socket, so that two daemons with different state directories cannot take each other's socket away.
fn lock_socket(socket: &Path) -> Result<DaemonLock, Failure> {
    let mut name = socket.file_name().ok_or_else(|| Failure::usage("--socket is a directory", "give the path of a socket"))?.to_os_string();
    name.push(".lock");
    if let Some(directory) = socket.parent().filter(|d| !d.as_os_str().is_empty()) {
        privacy::make_passable(directory).map_err(|e| {
            Failure::failed(format!("{} cannot be made ({e})", directory.display()), "give another socket with --socket PATH")
        })?;
    }
    Ok(DaemonLock::take(&socket.with_file_name(name))?)
}

fn machine_options(settings: &ServeSettings, notices: Sender<Notice>) -> MachineOptions {
    let places = &settings.places;
    MachineOptions {
        reactors: settings.reactors,
        real_time: settings.real_time,
        cpu_latency: settings.cpu_latency,
        export_directory: export_directory(&places.socket),
        certificates: places.state_directory.join(certificates::DIRECTORY),
        stable_names: true,
        keeper: Some(keeper(places)),
        exporters: exporters::all,
        notices,
    }
}

/// Where the exports' sockets and mounts lie: beside the control socket.
pub fn export_directory(socket: &Path) -> PathBuf {
    let absolute = std::path::absolute(socket).unwrap_or_else(|_| socket.to_path_buf());
    absolute.parent().map_or_else(|| PathBuf::from("/"), Path::to_path_buf)
}

/// A daemon that serves block devices must not wait, in a memory allocation, for a write-back that goes through itself.
pub fn tell_kernel_that_io_depends_on_us() {
    if let Err(error) = rustix::process::configure_io_flusher_behavior(true) {
        tracing::debug!("PR_SET_IO_FLUSHER is not allowed ({error})");
    }
}

/// What is swapped out may have to be read through hearth itself. Where memory may not be locked without limit, nothing is: a limit that is
/// reached later would refuse memory.
pub fn stay_in_memory() {
    use rustix::mm::{MlockAllFlags, mlockall};
    use rustix::process::{Resource, getrlimit};
    if getrlimit(Resource::Memlock).current.is_some() {
        tracing::debug!("memory may be swapped out: the limit on locked memory is not \"infinity\"");
    } else if let Err(error) = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT) {
        tracing::debug!("memory may be swapped out: it cannot be locked ({error})");
    }
}

/// How the API is served.
/// Where the console is served when it is asked for and no address is set.
const CONSOLE: std::net::SocketAddr = std::net::SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7420);

fn server_options(settings: &ServeSettings) -> ServerOptions {
    let tcp = settings.listen.map(|address| TcpOptions {
        address,
        allow_remote: settings.allow_remote,
        certificate: settings.certificate.clone(),
        key: settings.key.clone(),
    });
    ServerOptions {
        tcp,
        console_on_demand: settings.console_on_demand.then_some(CONSOLE),
        names: settings.names.clone(),
        socket_group: settings.socket_group.clone(),
        operate_group: settings.operate_group.clone(),
        assets: Arc::new(console_file),
        ..ServerOptions::new(&settings.places.state_directory)
    }
}

/// A file of the console as the server wants it.
fn console_file(name: &str) -> Option<rest::Asset> {
    let console::Asset { bytes, content_type, brotli, etag, immutable } = console::asset(&format!("/{name}"))?;
    Some(rest::Asset { bytes, content_type, brotli, etag, immutable })
}

type Serving = JoinHandle<std::io::Result<()>>;

fn start_server(server: Server, manager: &Manager, life: Life) -> Result<(Serving, impl Sized + use<>), Failure> {
    let (stop, stopped) = rest::stop_pair();
    let manager = manager.clone();
    let server = spawn("api", move || {
        let _life = life;
        server.serve(manager, stopped)
    })?;
    Ok((server, stop))
}

fn watch_notices(manager: &Manager, notices: Receiver<Notice>, life: Life) -> Result<(), Failure> {
    let manager = manager.clone();
    spawn("notices", move || {
        let _life = life;
        while let Ok(first) = notices.recv() {
            let came: Vec<_> = std::iter::once(first).chain(notices.try_iter()).collect();
            manager.notices(&came);
        }
    })?;
    Ok(())
}
