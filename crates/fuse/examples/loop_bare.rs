//! Exports a file as a block device, without a cache: for speed comparisons with other FUSE servers under a loop device.
//!
//! ```text
//!   loop_bare FILE [--file-only] [--4096] [--ring]
//!   loop_bare /dev/zero              1 GiB, to be read only, that costs almost nothing: what remains is the export itself
//! ```
//! With `--ring` over io_uring, for which the kernel's switch is set (and left so).
//! Prints the device's path (with `--file-only`, the mounted file's), serves until its standard input ends, then takes everything away.

use device::Geometry;
use fuse::{FileExport, LoopExport, LoopOptions, Transport};
use runtime::{BareVolumeOptions, DeviceOptions, Runtime, RuntimeOptions};
use std::error::Error;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let path = arguments.first().ok_or("usage: loop_bare FILE [--file-only] [--4096] [--ring]")?;
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let block_bytes = if has("--4096") { 4096 } else { 512 };
    let is_zero = path == "/dev/zero";
    let flags = if is_zero { 0 } else { libc::O_DIRECT };
    let file = std::fs::OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
    let size_bytes = if is_zero { 1 << 30 } else { file.metadata()?.len() / block_bytes * block_bytes };
    let geometry =
        Geometry { size_bytes, logical_block_bytes: block_bytes as u32, memory_alignment_bytes: 512, discard: true, discard_zeroes: true };
    let runtime = Runtime::start(RuntimeOptions { reactors: 1, ..RuntimeOptions::default() })?;
    let device = runtime.open_device(DeviceOptions { name: path.clone(), file, geometry, model: None })?;
    let volume = runtime.add_bare_volume(&device, BareVolumeOptions { name: "bare".into(), read_only: is_zero })?;
    let run_directory = tempfile::tempdir()?;
    let options = LoopOptions {
        link_directory: None,
        transport: if has("--ring") { Transport::Ring } else { Transport::Classic },
        enable_ring: has("--ring"),
        ..LoopOptions::default()
    };
    let wait = || std::io::stdin().read_to_end(&mut Vec::new());
    if has("--file-only") {
        let mut export = FileExport::start(&runtime, &volume, "bare", run_directory.path(), &options)?;
        println!("{}", export.path().display());
        wait()?;
        export.stop(&runtime)?;
    } else {
        let mut export = LoopExport::start(&runtime, &volume, "bare", run_directory.path(), &options)?;
        println!("{}", export.device_path().display());
        wait()?;
        export.stop(&runtime)?;
    }
    runtime.shutdown(Duration::from_secs(10))?;
    Ok(())
}
