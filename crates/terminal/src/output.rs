//! What a command writes.

use crate::failure::Failure;
use serde::Serialize;
use std::fmt::Display;
use std::io::Write;

/// Writes to stdout. A reader that went away (`| head`) is no failure.
///
/// # Errors
/// If stdout cannot be written for any other reason.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(e) => Err(Failure::failed(format!("cannot write to stdout ({e})"), "check its redirection")),
        Ok(()) => Ok(()),
    }
}

/// JSON for people and scripts.
pub fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).expect("answers can be written as JSON") + "\n"
}

/// A line on stderr. That it cannot be written is no failure.
pub fn say(line: impl Display) {
    drop(std::io::stderr().write_all(format!("{line}\n").as_bytes()));
}
