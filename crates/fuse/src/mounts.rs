//! The mount table of this process.

use crate::error::FuseError;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

const TABLE: &str = "/proc/self/mountinfo";

/// One line of the mount table, as far as it matters here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MountEntry {
    /// Device numbers as written: `7:3`.
    pub(crate) device: String,
    /// Where it is mounted.
    pub(crate) point: PathBuf,
    /// File system type.
    pub(crate) kind: String,
}

/// The type of our mounts; the part after the dot is ours to choose.
pub(crate) const OUR_KIND: &str = "fuse.hearth";

impl MountEntry {
    /// Whether a hearth daemon has made this mount.
    pub(crate) fn is_ours(&self) -> bool {
        self.kind == OUR_KIND
    }
}

/// All mounts, in the order in which they were made.
pub(crate) fn read() -> Result<Vec<MountEntry>, FuseError> {
    let table = std::fs::read(TABLE).map_err(FuseError::system("read", TABLE))?;
    Ok(table.split(|byte| *byte == b'\n').filter_map(entry).collect())
}

/// The mount that one meets at exactly this path: the last that was made there.
pub(crate) fn top(path: &Path) -> Result<Option<MountEntry>, FuseError> {
    Ok(read()?.into_iter().rfind(|mount| mount.point == path))
}

/// Fields by proc(5): id, parent, major:minor, root, mount point, options, any number of others, a hyphen, type, and more.
fn entry(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = String::from_utf8(fields.nth(2)?.to_vec()).ok()?;
    let point = PathBuf::from(OsString::from_vec(unescape(fields.nth(1)?)));
    let kind = String::from_utf8(fields.skip_while(|field| *field != b"-").nth(1)?.to_vec()).ok()?;
    Some(MountEntry { device, point, kind })
}

/// The kernel writes space, tab, newline and backslash as `\` and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        match (byte, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                plain.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => plain.push(byte),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_gives_device_and_unescaped_point() {
        let line = br"36 35 7:3 / /mnt/a\040b\134c rw,noatime shared:1 - ext4 /dev/loop3 rw";
        assert_eq!(entry(line), Some(MountEntry { device: "7:3".into(), point: PathBuf::from(r"/mnt/a b\c"), kind: "ext4".into() }));
        assert_eq!(entry(b""), None);
    }

    #[test]
    fn where_mounts_are_told_of_is_a_mount() {
        assert!(read().expect("readable").iter().any(|mount| mount.point == std::path::Path::new("/proc")));
    }
}
