//! What all exporters of a daemon share, and what they know of a volume.

use crate::kept::Kept;
use crate::word::Export;
use runtime::Runtime;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Where stable names are made.
pub const STABLE_DIRECTORY: &str = "/dev/hearth";
/// Whatever the end of the daemon leaves: what does not wait for a device needs this much at most.
const PATIENCE_MIN: Duration = Duration::from_secs(1);
/// How long clients may take to leave: an answer in flight waits for the slowest device.
pub const CLIENT_PATIENCE: Duration = Duration::from_secs(10);
/// How long the end of the daemon may wait until the page cache of a block device is written back.
pub const WRITE_BACK_PATIENCE: Duration = Duration::from_secs(60);

/// Where exporters work.
pub struct Site {
    /// The threads that serve requests.
    pub runtime: Arc<Runtime>,
    /// Where the sockets and mounts of exports lie.
    pub directory: PathBuf,
    /// Where the certificates of exports with TLS lie.
    pub certificates: PathBuf,
    /// Whether block devices get a stable name (`/dev/hearth/NAME`).
    pub has_stable_names: bool,
    /// What outlives this process.
    pub kept: Kept,
    /// When the daemon ends, once that is known.
    pub end_by: OnceLock<Instant>,
}

impl Site {
    /// How long to wait for something that may take `usual`: less when the daemon is about to end.
    pub fn patience(&self, usual: Duration) -> Duration {
        let left = self.end_by.get().map(|at| at.saturating_duration_since(Instant::now()).max(PATIENCE_MIN));
        left.map_or(usual, |left| left.min(usual))
    }

    /// Whether the daemon is about to end.
    pub fn is_ending(&self) -> bool {
        self.end_by.get().is_some()
    }

    /// Where stable names are made; `None`: there are none.
    pub fn link_directory(&self) -> Option<PathBuf> {
        self.has_stable_names.then(|| PathBuf::from(STABLE_DIRECTORY))
    }
}

/// The UUID of a volume, which stays the same when its name changes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Owner(pub u128);

impl Owner {
    /// Reads the form with hyphens.
    pub fn parse(text: &str) -> Option<Owner> {
        let digits: String = text.chars().filter(|c| *c != '-').collect();
        let owner = Owner(u128::from_str_radix(&digits, 16).ok()?);
        (owner.to_string() == text.to_ascii_lowercase()).then_some(owner)
    }
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digits = format!("{:032x}", self.0);
        write!(f, "{}-{}-{}-{}-{}", &digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..])
    }
}

/// What an exporter knows of a volume.
#[derive(Clone, Copy)]
pub struct Volume<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its UUID.
    pub owner: Owner,
    /// Its backing device, for people.
    pub backing: &'a str,
    /// How it is to be offered.
    pub exports: &'a [Export],
    /// Names on clients' certificates; empty: all that the authority has signed.
    pub tls_names: &'a [String],
    /// Whether it refuses writes.
    pub read_only: bool,
    /// Whether it is stopped because somebody asked for that.
    pub rests: bool,
}

impl Volume<'_> {
    /// Whether it is to be offered this way, at whatever place.
    pub fn is_offered_as(&self, way: &crate::Way) -> bool {
        self.exports.iter().any(|export| export.way() == way)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_read_what_they_write() {
        let owner = Owner(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
        assert_eq!(owner.to_string(), "00112233-4455-6677-8899-aabbccddeeff");
        assert_eq!(Owner::parse(&owner.to_string()), Some(owner));
        for text in ["", "00112233445566778899aabbccddeeff", "0011223-34455-6677-8899-aabbccddeeff", "listener"] {
            assert_eq!(Owner::parse(text), None, "{text}");
        }
    }
}
