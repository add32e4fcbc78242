//! Partitions where the kernel reads no tables itself: `partx` of util-linux reads them and tells it.

use crate::ownloop::{OwnLoop, sysfs};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long `partx` may take: it reads a few blocks of the volume.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(2);

/// Tells the kernel of the partitions of a device whose table it did not read. Nothing depends on it, so what fails is only noted.
pub(crate) fn tell_kernel(own: &OwnLoop, first_blocks: &[u8]) {
    if !has_table(first_blocks) || has_partitions(own.number()) {
        return;
    }
    let mut command = Command::new("partx");
    command.arg("--update").arg(own.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return tracing::debug!(%error, "partx is not here: partitions are those that the kernel finds"),
    };
    let begun = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return tracing::debug!(device = %own.path().display(), %status, "partx has looked for partitions"),
            Ok(None) if begun.elapsed() < PATIENCE => std::thread::sleep(LOOK),
            _ => break,
        }
    }
    // It waits for the volume, which may take its time.
    tracing::debug!(device = %own.path().display(), "partx takes too long and is ended");
    if child.kill().is_ok() {
        // It ends when what it waits for has; until then a thread of its own waits for it.
        let _ = std::thread::Builder::new().name("partx".into()).spawn(move || child.wait());
    }
}

/// Whether there is a table of the PC kind, or the one that protects a GPT. Boot sectors of file systems end in the same two bytes: in them
/// `partx` finds nothing.
fn has_table(first_blocks: &[u8]) -> bool {
    first_blocks.get(510..512) == Some(&[0x55, 0xaa])
}

fn has_partitions(number: u32) -> bool {
    std::fs::read_dir(sysfs(number))
        .is_ok_and(|mut entries| entries.any(|entry| entry.is_ok_and(|entry| entry.path().join("partition").exists())))
}
