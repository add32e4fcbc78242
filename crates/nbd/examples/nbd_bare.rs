//! Serves a file as a bare volume on a Unix socket, to compare the export's speed with other servers'.
//!
//! `nbd_bare FILE SOCKET [REACTORS]`, or `nbd_bare FILE IP:PORT REACTORS CERTIFICATES` with TLS; ends with the end of its standard input.

use nbd::{ExportOptions, Limits, ListenSpec, Tls, serve, serve_tls};
use runtime::{BareVolumeOptions, DeviceOptions, Runtime, RuntimeOptions};
use std::error::Error;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(socket)) = (arguments.next(), arguments.next()) else {
        return Err("usage: nbd_bare FILE SOCKET|IP:PORT [REACTORS [CERTIFICATES]]".into());
    };
    let mut options = RuntimeOptions::default();
    if let Some(reactors) = arguments.next() {
        options.reactors = reactors.parse()?;
    }
    let runtime = Runtime::start(options)?;
    let file = std::fs::OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(&path)?;
    let geometry = device::Geometry {
        size_bytes: file.metadata()?.len() / 4096 * 4096,
        logical_block_bytes: 512,
        memory_alignment_bytes: 512,
        discard: true,
        discard_zeroes: true,
    };
    let device = runtime.open_device(DeviceOptions { name: path, file, geometry, model: None })?;
    let volume = runtime.add_bare_volume(&device, BareVolumeOptions { name: "bare".into(), read_only: false })?;
    let server = match arguments.next() {
        Some(certificates) => serve_tls(&runtime, socket.parse()?, Limits::default(), Tls::open(certificates.as_ref())?, &["bare"])?,
        None => serve(&runtime, &ListenSpec::unix(&socket), Limits::default(), &["bare"])?,
    };
    server.add_export("bare", volume, ExportOptions::default())?;
    println!("{}", server.uri("bare"));
    std::io::stdin().read_to_end(&mut Vec::new())?;
    println!("{:?}", server.counters());
    server.stop(&runtime, Duration::from_secs(5))?;
    runtime.shutdown(Duration::from_secs(5))?;
    Ok(())
}
