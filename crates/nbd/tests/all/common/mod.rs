//! What the tests over real sockets share: a server with one volume over a file, and clients.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod client;
pub mod random;
pub mod secured;

use device::Geometry;
use nbd::{ExportOptions, Limits, ListenSpec, Server, serve};
use random::Random;
use runtime::{BareVolumeOptions, DeviceOptions, Runtime, RuntimeOptions, VolumeRef};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Size of the volume.
pub const VOLUME_BYTES: u64 = 64 << 20;

/// A runtime, a file as a bare volume, and a server on a Unix socket with one export named "disk".
pub struct Fixture {
    pub server: Option<Server>,
    runtime: Option<Runtime>,
    pub volume: VolumeRef,
    pub socket: PathBuf,
    pub dir: TempDir,
}

impl Fixture {
    pub fn new() -> Fixture {
        Fixture::with_limits(Limits::default())
    }

    pub fn with_limits(limits: Limits) -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::start(RuntimeOptions::default()).unwrap();
        let volume = open_volume(&runtime, &dir, "disk.img");
        let socket = dir.path().join("nbd.sock");
        let server = serve(&runtime, &ListenSpec::unix(&socket), limits, &["disk"]).unwrap();
        server.add_export("disk", volume.clone(), ExportOptions::default()).unwrap();
        Fixture { server: Some(server), runtime: Some(runtime), volume, socket, dir }
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().expect("not stopped yet")
    }

    pub fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("not shut down yet")
    }

    /// Stops the server; says whether no client had to be forced.
    pub fn stop(&mut self) -> bool {
        let server = self.server.take().expect("stopped once");
        server.stop(self.runtime(), client::PATIENCE).is_ok()
    }

    pub fn uri(&self) -> String {
        self.server().uri("disk")
    }

    /// A path in the fixture's directory, as text.
    pub fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().expect("the directory's name is plain").to_owned()
    }

    /// Waits until only `connections` are left.
    pub fn wait_connections(&self, connections: usize) {
        wait_until("connections end", || self.server().counters().connections == connections);
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        if self.server.is_some() {
            assert!(self.stop(), "the server did not stop");
        }
        let runtime = self.runtime.take().expect("shut down once");
        // Every page has come back, whatever the clients did.
        wait_until("pages come back", || runtime.pages().pages_out() == 0);
        runtime.shutdown(client::PATIENCE).expect("the runtime stops");
    }
}

/// A new file of [`VOLUME_BYTES`] as a bare volume.
pub fn open_volume(runtime: &Runtime, dir: &TempDir, name: &str) -> VolumeRef {
    let path = dir.path().join(name);
    std::fs::File::create(&path).unwrap().set_len(VOLUME_BYTES).unwrap();
    let file = std::fs::OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
    let geometry =
        Geometry { size_bytes: VOLUME_BYTES, logical_block_bytes: 512, memory_alignment_bytes: 512, discard: true, discard_zeroes: true };
    let device = DeviceOptions { name: name.to_owned(), file, geometry, model: None };
    let device = runtime.open_device(device).unwrap();
    runtime.add_bare_volume(&device, BareVolumeOptions { name: name.to_owned(), read_only: false }).unwrap()
}

/// Waits for something that must happen.
pub fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    let deadline = Instant::now() + client::PATIENCE;
    while !happened() {
        assert!(Instant::now() < deadline, "{what}: not within {:?}", client::PATIENCE);
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A client that writes, reads back and compares until told to stop; any error, wrong byte or disconnection is a panic.
pub struct Neighbour {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

/// Where the neighbour works: the last 16 MiB of the volume.
pub const NEIGHBOUR_FROM: u64 = VOLUME_BYTES - (16 << 20);

impl Neighbour {
    pub fn start(fixture: &Fixture) -> Neighbour {
        let stop = Arc::new(AtomicBool::new(false));
        let (socket, stopped) = (fixture.socket.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let mut client = client::Client::open(&socket, "disk");
            let mut random = Random(1);
            let mut rounds = 0;
            while !stopped.load(Ordering::Relaxed) || rounds == 0 {
                let length = 512 * (1 + random.below(64));
                let offset = NEIGHBOUR_FROM + 512 * random.below(((16 << 20) - length) / 512);
                let data = random.bytes(length as usize);
                assert_eq!(client.write(0, offset, &data), 0);
                assert!(client.read_at(offset, length as u32) == Ok(data), "wrong data at {offset}");
                rounds += 1;
            }
            rounds
        });
        Neighbour { stop, thread: Some(thread) }
    }

    /// Stops it and looks whether it saw anything wrong.
    pub fn finish(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let rounds = self.thread.take().expect("once").join().expect("the neighbour saw something wrong");
        assert!(rounds > 0);
    }
}

/// Runs a program and gives its output; `None`, with a note, if it is not installed.
pub fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = match Command::new(program).args(arguments).output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped: {program} is not installed");
            return None;
        }
        Err(error) => panic!("{program}: {error}"),
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {}\n{text}\n{errors}", output.status);
    Some(text)
}
