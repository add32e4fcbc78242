//! Exports a file as a block device by ublk, without a cache: for speed comparisons with other
//! servers.
//!
//! ```text
//!   ublk_bare FILE [--4096] [--reactors N]
//!   ublk_bare /dev/zero              1 GiB, to be read only, that costs almost nothing
//! ```
//! Prints the device's path, serves until its standard input ends, then takes everything away. With
//! `probe` as the only argument it tries whether this kernel can do it.

use device::Geometry;
use runtime::{BareVolumeOptions, DeviceOptions, Runtime, RuntimeOptions};
use std::error::Error;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;
use ublk::{Probe, UblkExport, UblkOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments == ["probe"] {
        return Ok(ublk::support::probe()?);
    }
    let path = arguments.first().ok_or("usage: ublk_bare FILE [--4096] [--reactors N]")?;
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let block_bytes = if has("--4096") { 4096 } else { 512 };
    let reactors = arguments.iter().skip_while(|argument| *argument != "--reactors").nth(1);
    let reactors = reactors.map_or(Ok(1), |number| number.parse())?;
    let is_zero = path == "/dev/zero";
    let flags = if is_zero { 0 } else { libc::O_DIRECT };
    let file = std::fs::OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
    let size_bytes = if is_zero { 1 << 30 } else { file.metadata()?.len() / block_bytes * block_bytes };
    let geometry =
        Geometry { size_bytes, logical_block_bytes: block_bytes as u32, memory_alignment_bytes: 512, discard: true, discard_zeroes: true };
    let runtime = Runtime::start(RuntimeOptions { reactors, ..RuntimeOptions::default() })?;
    let device = runtime.open_device(DeviceOptions { name: path.clone(), file, geometry, model: None })?;
    let volume = runtime.add_bare_volume(&device, BareVolumeOptions { name: "bare".into(), read_only: is_zero })?;
    let probe = Probe { program: std::env::current_exe()?, arguments: vec!["probe".into()] };
    let options = UblkOptions {
        owner: 7,
        probe,
        link_directory: None,
        may_take_over: true,
        outlives: true,
        patience: Duration::from_secs(60),
        server_patience: ublk::SERVER_PATIENCE,
    };
    let mut export = UblkExport::start(&runtime, &volume, "bare", &options)?;
    for warning in export.warnings() {
        eprintln!("{warning}");
    }
    println!("{}{}", export.device_path().display(), if export.was_taken_over() { " (taken over)" } else { "" });
    std::io::stdin().read_to_end(&mut Vec::new())?;
    export.stop(&runtime)?;
    runtime.shutdown(Duration::from_secs(10))?;
    Ok(())
}
