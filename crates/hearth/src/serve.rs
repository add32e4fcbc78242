//! The daemon: one process in the foreground, ended by SIGTERM or Ctrl-C.
//!
//! Order of a start: lock, socket, data path, everything back, "ready". Order of a stop: the manager stops everything
//! cleanly while the API still answers (it refuses changes), then the socket goes, then the lock. A second signal ends the process at
//! once; the next start recovers as after a crash.

use crate::cli::Serve;
use crate::commands::print;
use crate::failure::Failure;
use control::datapath::Notice;
use control::human;
use control::lock::DaemonLock;
use control::manager::Manager;
use control::places::Places;
use control::real::{Machine, MachineOptions};
use control::store::FileStore;
use rest::{Server, ServerOptions, TcpOptions};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Instant;
use tracing_subscriber::EnvFilter;

/// Environment variable for the log's filter, in the notation of the `tracing` crates: "info", "debug,runtime=trace".
const LOG_VARIABLE: &str = "HEARTH_LOG";

/// Runs until a signal.
///
/// # Errors
/// With the sentence to print; everything that was started is stopped.
pub fn serve(places: &Places, options: &Serve) -> Result<(), Failure> {
    let began = Instant::now();
    log_to_stderr();
    let stop = signals()?;
    let store = FileStore::open(&places.state_directory)?;
    let _lock = DaemonLock::take(&places.state_directory.join("lock"))?;
    let _socket_lock = lock_socket(&places.socket)?;
    let server = Server::bind(&places.socket, server_options(places, options))?;
    if let Some(address) = server.tcp_address() {
        tracing::info!("the API listens at https://{address} too");
    }
    tell_kernel_that_io_depends_on_us();

    let (notice_in, notices) = channel();
    let machine = Machine::start(MachineOptions {
        reactors: options.reactors,
        export_directory: export_directory(&places.socket),
        stable_names: true,
        notices: notice_in,
    })?;
    let manager = Manager::open(Arc::new(machine), Box::new(store), &places.state_directory)?;
    let (server, server_stop) = start_server(server, &manager)?;
    watch_notices(&manager, notices)?;

    let started = manager.start()?;
    let took = human::nanoseconds(began.elapsed().as_nanos() as u64);
    let troubled = match started.troubled {
        0 => String::new(),
        n => format!(", {n} in trouble (see `hearth pool list` and `hearth volume list`)"),
    };
    let (pools, volumes) = (counted(started.pools, "pool"), counted(started.volumes, "volume"));
    print(&format!("ready in {took}: {pools}, {volumes}{troubled}\n"))?;

    // An error means that the thread of the signals is gone: stop as well.
    let signal = stop.recv().unwrap_or(SIGTERM);
    tracing::info!("stopping ({})", if signal == SIGINT { "Ctrl-C" } else { "SIGTERM" });
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

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn log_to_stderr() {
    let filter = EnvFilter::try_from_env(LOG_VARIABLE).unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false).init();
}

/// The first signal comes out of the receiver, the second ends the process.
fn signals() -> Result<Receiver<i32>, Failure> {
    let failed = |e| Failure::failed(format!("signals cannot be watched ({e})"), "");
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(failed)?;
    let (first, stop) = channel();
    spawn("signals", move || {
        for (count, signal) in signals.forever().enumerate() {
            if count > 0 {
                eprintln!("hearth: a second signal: ending at once; the next start recovers as after a crash");
                signal_hook::low_level::exit(128 + signal);
            }
            if first.send(signal).is_err() {
                return;
            }
        }
    })?;
    Ok(stop)
}

fn spawn<T: Send + 'static>(name: &str, body: impl FnOnce() -> T + Send + 'static) -> Result<JoinHandle<T>, Failure> {
    std::thread::Builder::new()
        .name(name.into())
        .spawn(body)
        .map_err(|e| Failure::failed(format!("no thread can be started ({e})"), "raise the limit of threads"))
}

/// Beside the socket, so that two daemons with different state directories cannot take each other's socket away.
fn lock_socket(socket: &Path) -> Result<DaemonLock, Failure> {
    let mut name = socket.file_name().ok_or_else(|| Failure::usage("--socket is a directory", "give the path of a socket"))?.to_os_string();
    name.push(".lock");
    if let Some(directory) = socket.parent().filter(|d| !d.as_os_str().is_empty()) {
        std::fs::create_dir_all(directory).map_err(|e| {
            Failure::failed(format!("{} cannot be made ({e})", directory.display()), "give another socket with --socket PATH")
        })?;
    }
    Ok(DaemonLock::take(&socket.with_file_name(name))?)
}

/// Where the exports' sockets and mounts lie: beside the control socket.
fn export_directory(socket: &Path) -> PathBuf {
    let absolute = std::path::absolute(socket).unwrap_or_else(|_| socket.to_path_buf());
    absolute.parent().map_or_else(|| PathBuf::from("/"), Path::to_path_buf)
}

/// A daemon that serves block devices must not wait, in a memory allocation, for a write-back that goes through itself.
fn tell_kernel_that_io_depends_on_us() {
    if let Err(error) = rustix::process::configure_io_flusher_behavior(true) {
        tracing::debug!("PR_SET_IO_FLUSHER is not allowed ({error})");
    }
}

/// How the API is served.
fn server_options(places: &Places, options: &Serve) -> ServerOptions {
    let tcp = options.listen.map(|address| TcpOptions { allow_remote: options.allow_remote, ..TcpOptions::at(address) });
    ServerOptions { tcp, ..ServerOptions::new(&places.state_directory) }
}

type Serving = JoinHandle<std::io::Result<()>>;

fn start_server(server: Server, manager: &Manager) -> Result<(Serving, impl Sized + use<>), Failure> {
    let (stop, stopped) = rest::stop_pair();
    let manager = manager.clone();
    let server = spawn("api", move || server.serve(manager, stopped))?;
    Ok((server, stop))
}

fn watch_notices(manager: &Manager, notices: Receiver<Notice>) -> Result<(), Failure> {
    let manager = manager.clone();
    spawn("notices", move || notices.iter().for_each(|notice| manager.notice(&notice)))?;
    Ok(())
}
