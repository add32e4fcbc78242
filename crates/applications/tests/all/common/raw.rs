//! Raw volumes in memory, and the tools that make them.

use applications::filesystems::ext4::{Ext4, Refused};
use applications::filesystems::{DataFile, Found, Limits};
use std::collections::BTreeMap;
use std::process::Command;

pub type Files = BTreeMap<String, Vec<u8>>;

/// A volume in memory.
pub struct Volume(pub Vec<u8>);

impl Volume {
    pub fn read(&self) -> impl FnMut(u64, &mut [u8]) -> bool + '_ {
        |offset, bytes| {
            assert!(offset.is_multiple_of(512) && bytes.len().is_multiple_of(512), "{} bytes at {offset}", bytes.len());
            let Some(from) = usize::try_from(offset).ok().and_then(|at| self.0.get(at..at.checked_add(bytes.len())?)) else {
                return false;
            };
            bytes.copy_from_slice(from);
            true
        }
    }

    pub fn search(&self, start: u64, limits: &Limits) -> Result<Found, Refused> {
        let file_system = Ext4::open(&mut self.read(), start)?;
        Ok(file_system.data_files(&mut self.read(), limits))
    }
}

/// Runs a tool; `false`, with a message, where it is missing.
pub fn run(program: &str, arguments: &[&str]) -> bool {
    for place in ["", "/usr/sbin/", "/sbin/"] {
        match Command::new(format!("{place}{program}")).args(arguments).output() {
            Ok(output) => {
                assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
                return true;
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => panic!("{program}: {error}"),
        }
    }
    println!("skipped: {program} is missing");
    false
}

/// The bytes of a file, by its extents.
pub fn bytes_of(volume: &Volume, file: &DataFile) -> Vec<u8> {
    let mut bytes = vec![0; file.bytes as usize];
    for extent in file.extents.iter().filter(|extent| extent.written) {
        let (to, from) = (extent.file_offset as usize, extent.volume_offset as usize);
        let length = (extent.bytes as usize).min(bytes.len() - to);
        bytes[to..to + length].copy_from_slice(&volume.0[from..from + length]);
    }
    bytes
}
