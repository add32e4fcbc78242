//! What the tests share: a runtime with a volume over a file, and its export.
#![allow(dead_code, reason = "each test file uses its part")]

use device::Geometry;
use runtime::{BareVolumeOptions, DeviceOptions, Runtime, RuntimeOptions, VolumeRef};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use vhost_user::{ExportOptions, VhostUserExport};

pub const VOLUME_BYTES: u64 = 64 << 20;
/// Far longer than anything takes.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Stage {
    export: Option<VhostUserExport>,
    runtime: Option<Runtime>,
    pub volume: VolumeRef,
    pub directory: TempDir,
}

impl Stage {
    pub fn new() -> Stage {
        Stage::with(false, 2)
    }

    pub fn with(read_only: bool, reactors: u16) -> Stage {
        let directory = tempfile::tempdir().expect("a directory");
        let file = std::fs::File::create_new(directory.path().join("backing")).expect("a file");
        file.set_len(VOLUME_BYTES).expect("room for a sparse file");
        let runtime = Runtime::start(RuntimeOptions { reactors, ..RuntimeOptions::default() }).expect("a runtime");
        let volume = open_volume(&runtime, directory.path(), read_only);
        let mut stage = Stage { export: None, runtime: Some(runtime), volume, directory };
        stage.start();
        stage
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("disk.sock")
    }

    pub fn start(&mut self) {
        self.start_with(false);
    }

    pub fn start_with(&mut self, refuses_earlier: bool) {
        let options = ExportOptions { serial: "0123456789abcdef0123456789abcdef".into(), refuses_earlier, ..ExportOptions::default() };
        self.export = Some(VhostUserExport::start(self.runtime(), &self.volume, &self.socket(), &options).expect("exported"));
    }

    pub fn stop(&mut self) {
        let export = self.export.take().expect("started");
        export.stop(self.runtime(), PATIENCE).expect("requests end");
    }

    /// As a crash for whoever is served: nothing under way is waited for.
    pub fn cut_off(&mut self) {
        let export = self.export.take().expect("started");
        export.stop(self.runtime(), Duration::ZERO).expect("endpoints can be cut off");
    }

    pub fn export(&self) -> &VhostUserExport {
        self.export.as_ref().expect("started")
    }

    pub fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("not ended")
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        if self.export.is_some() {
            self.stop();
        }
        assert!(!self.socket().exists(), "the socket goes with its export");
        self.runtime.take().expect("not ended").shutdown(PATIENCE).expect("the runtime ends");
    }
}

/// The volume over the file `backing` of a directory.
pub fn open_volume(runtime: &Runtime, directory: &Path, read_only: bool) -> VolumeRef {
    let mut options = std::fs::OpenOptions::new();
    let options = options.read(true).write(true).custom_flags(libc::O_DIRECT);
    let file = options.open(directory.join("backing")).expect("a file on a file system with direct I/O");
    let geometry =
        Geometry { size_bytes: VOLUME_BYTES, logical_block_bytes: 512, memory_alignment_bytes: 512, discard: true, discard_zeroes: true };
    let device = runtime.open_device(DeviceOptions { name: "backing".into(), file, geometry, model: None }).expect("a device");
    runtime.add_bare_volume(&device, BareVolumeOptions { name: "volume".into(), read_only }).expect("a volume")
}

/// What a front end gets once the one before it has gone. A child that another test of this process has just forked may have its socket open
/// until it runs its own program: so long the one before seems to be there.
pub fn taken_soon<T>(mut attempt: impl FnMut() -> std::io::Result<T>, what: &str) -> T {
    let begun = Instant::now();
    loop {
        match attempt() {
            Ok(taken) => return taken,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(60), "{what}: {error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
