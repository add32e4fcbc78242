//! What a user writes for a device: a path, or `model:SET:FILE`.

use crate::model::ModelSet;
use std::fmt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// What stands before the set of a modelled disk.
const MODEL_PREFIX: &str = "model:";

/// A backing device as written, understood but not looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DeviceSpec {
    /// A block device or a regular file.
    Plain {
        /// Where it is.
        path: PathBuf,
    },
    /// A modelled slow disk whose bytes are in a file or block device.
    Model {
        /// How slow.
        set: ModelSet,
        /// Where the bytes are.
        path: PathBuf,
    },
}

/// What kind of thing a path leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceKind {
    /// A whole disk, partition, loop device and so on.
    BlockDevice,
    /// A file in a file system.
    RegularFile,
}

/// Why a text names no device.
#[derive(thiserror::Error, Debug)]
pub enum SpecError {
    /// Nothing was given.
    #[error("the device's path is empty: give a block device, a file, or model:SET:FILE")]
    Empty,
    /// Something with a NUL byte in it.
    #[error("the device's path {text:?} contains a NUL byte")]
    Nul {
        /// What was given.
        text: String,
    },
    /// `model:` without a second colon, or with nothing behind it.
    #[error("{text:?} has no file: write model:SET:FILE, for instance model:{}:/var/tmp/disk.img", ModelSet::Disk7k2.name())]
    ModelWithoutFile {
        /// What was given.
        text: String,
    },
    /// A model set that does not exist.
    #[error("there is no disk model {name:?}: use one of {}", set_names())]
    UnknownSet {
        /// What was given.
        name: String,
    },
    /// Nothing is there.
    #[error("{} does not exist: check the path, or create it first (a file: truncate -s SIZE {})", path.display(), path.display())]
    Missing {
        /// The path.
        path: PathBuf,
    },
    /// It cannot be looked at.
    #[error("{} cannot be examined: {source}", path.display())]
    Unreachable {
        /// The path.
        path: PathBuf,
        /// The operating system's reason.
        #[source]
        source: std::io::Error,
    },
    /// It is something else.
    #[error("{} is {found}: give a block device or a regular file", path.display())]
    WrongKind {
        /// The path.
        path: PathBuf,
        /// "a directory" and so on.
        found: &'static str,
    },
}

fn set_names() -> String {
    ModelSet::ALL.map(ModelSet::name).join(", ")
}

impl FromStr for DeviceSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<DeviceSpec, SpecError> {
        if text.is_empty() {
            return Err(SpecError::Empty);
        }
        if text.contains('\0') {
            return Err(SpecError::Nul { text: text.to_string() });
        }
        let Some(rest) = text.strip_prefix(MODEL_PREFIX) else {
            return Ok(DeviceSpec::Plain { path: PathBuf::from(text) });
        };
        let (name, path) = rest.split_once(':').unwrap_or((rest, ""));
        let set = ModelSet::from_name(name).ok_or_else(|| SpecError::UnknownSet { name: name.to_string() })?;
        if path.is_empty() {
            return Err(SpecError::ModelWithoutFile { text: text.to_string() });
        }
        Ok(DeviceSpec::Model { set, path: PathBuf::from(path) })
    }
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceSpec::Plain { path } => write!(f, "{}", path.display()),
            DeviceSpec::Model { set, path } => write!(f, "{MODEL_PREFIX}{}:{}", set.name(), path.display()),
        }
    }
}

impl DeviceSpec {
    /// Where the bytes are.
    pub fn path(&self) -> &Path {
        match self {
            DeviceSpec::Plain { path } | DeviceSpec::Model { path, .. } => path,
        }
    }

    /// The model in front of them, if any.
    pub fn model(&self) -> Option<ModelSet> {
        match self {
            DeviceSpec::Plain { .. } => None,
            DeviceSpec::Model { set, .. } => Some(*set),
        }
    }

    /// Looks at what the path leads to.
    pub fn kind(&self) -> Result<DeviceKind, SpecError> {
        kind_of(self.path())
    }
}

/// Looks at what `path` leads to, symbolic links followed.
pub fn kind_of(path: &Path) -> Result<DeviceKind, SpecError> {
    let path_buf = || path.to_path_buf();
    let metadata = std::fs::metadata(path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => SpecError::Missing { path: path_buf() },
        _ => SpecError::Unreachable { path: path_buf(), source },
    })?;
    let kind = metadata.file_type();
    let found = if kind.is_block_device() {
        return Ok(DeviceKind::BlockDevice);
    } else if kind.is_file() {
        return Ok(DeviceKind::RegularFile);
    } else if kind.is_dir() {
        "a directory"
    } else if kind.is_char_device() {
        "a character device"
    } else if kind.is_fifo() {
        "a named pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "neither"
    };
    Err(SpecError::WrongKind { path: path_buf(), found })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<DeviceSpec, SpecError> {
        text.parse()
    }

    #[test]
    fn paths_and_models_are_told_apart_and_written_back() {
        for text in ["/dev/sdb", "disk.img", "./model:x", "model:7k2:/x/disk.img", "model:array:a:b", "/odd name\n\"'"] {
            let spec = parse(text).expect(text);
            assert_eq!(spec.to_string(), text);
            assert_eq!(spec.model().is_some(), text.starts_with("model:"));
        }
        let spec = parse("model:7k2-raid5x3-short:a:b").expect("colons may be in the file's name");
        assert_eq!((spec.model(), spec.path()), (Some(ModelSet::Raid5Short), Path::new("a:b")));
    }

    #[test]
    fn refusals_say_what_to_write() {
        let message = |text: &str| parse(text).expect_err(text).to_string();
        assert!(message("").contains("model:SET:FILE"));
        assert!(message("model:7k2").contains("model:SET:FILE"));
        assert!(message("model:7k2:").contains("model:SET:FILE"));
        let unknown = message("model:5k4:/x");
        assert!(unknown.contains("\"5k4\"") && unknown.contains("7k2-raid5x3-short"), "{unknown}");
        assert!(message("a\0b").contains("NUL"));
    }

    #[test]
    fn kinds_are_looked_at() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("disk.img");
        std::fs::write(&file, b"x").expect("a small file");
        assert_eq!(kind_of(&file).expect("a file"), DeviceKind::RegularFile);
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&file, &link).expect("a link");
        assert_eq!(kind_of(&link).expect("a link to a file"), DeviceKind::RegularFile);
        let message = |path: &Path| kind_of(path).expect_err("refused").to_string();
        assert!(message(directory.path()).contains("a directory"));
        assert!(message(&directory.path().join("none")).contains("does not exist"));
        assert!(message(Path::new("/dev/null")).contains("character device"));
        assert!(message(&file.join("below")).contains("cannot be examined"));
    }
}
