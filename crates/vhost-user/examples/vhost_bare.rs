//! A file or device as a vhost-user disk without any cache: what the export itself costs.
//!
//! `vhost_bare FILE SOCKET`, until it is killed.

use device::Geometry;
use runtime::{BareVolumeOptions, DeviceOptions, Runtime, RuntimeOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use vhost_user::{ExportOptions, VhostUserExport};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [file, socket] = &words[..] else { return Err("usage: vhost_bare FILE SOCKET".into()) };
    let file = std::fs::File::options().read(true).write(true).custom_flags(libc::O_DIRECT).open(file)?;
    let size_bytes = file.metadata()?.len();
    let geometry = Geometry { size_bytes, logical_block_bytes: 512, memory_alignment_bytes: 512, discard: false, discard_zeroes: false };
    let runtime = Runtime::start(RuntimeOptions { reactors: 1, ..RuntimeOptions::default() })?;
    let device = runtime.open_device(DeviceOptions { name: "file".into(), file, geometry, model: None })?;
    let volume = runtime.add_bare_volume(&device, BareVolumeOptions { name: "bare".into(), read_only: false })?;
    let _export = VhostUserExport::start(&runtime, &volume, Path::new(socket), &ExportOptions::default())?;
    loop {
        std::thread::park();
    }
}
