//! How much memory the daemon may have: the machine's, or less where a memory cgroup says so, its own or one above it. The kernel kills a
//! process that goes beyond that.

use engine::index::PLAIN_SLOT_MILLIBYTES;
use engine::policy::SSD_BLOCK_MILLIBYTES_MAX;
use std::path::{Path, PathBuf};
use types::{BLOCK_BYTES, Content};

/// RAM tier if nothing is said: enough to hold what is being proven for admission, small on any machine of today.
pub const RAM_BYTES_DEFAULT: u64 = 256 << 20;

/// RAM of index and policy for each block that an SSD can hold, in bytes, where blocks are stored as they are.
const PLAIN_BYTES_A_BLOCK: u64 = 16;
/// The same where they are stored as their content asks: entries of 24 bytes, two tables, and hints. Of blocks that become small there are
/// more, and so is this.
const PACKED_BYTES_A_BLOCK: u64 = 48;

const _: () = assert!(PLAIN_SLOT_MILLIBYTES + SSD_BLOCK_MILLIBYTES_MAX <= 1000 * PLAIN_BYTES_A_BLOCK);

fn bytes_a_block(content: Content) -> u64 {
    if content == Content::Off { PLAIN_BYTES_A_BLOCK } else { PACKED_BYTES_A_BLOCK }
}

/// RAM of index, policy and hints for so much of an SSD, once all of it is used, in bytes.
pub fn index_bytes(ssd_bytes: u64, content: Content) -> u64 {
    ssd_bytes / BLOCK_BYTES * bytes_a_block(content)
}

/// How much of an SSD such an index is for, in bytes.
pub fn ssd_bytes_for(index_bytes: u64, content: Content) -> u64 {
    index_bytes / bytes_a_block(content) * BLOCK_BYTES
}

/// The tightest limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryLimit {
    /// How much there is.
    pub bytes: u64,
    /// Of whom: "this machine", "the memory cgroup /system.slice/hearth.service".
    pub of: String,
}

impl MemoryLimit {
    /// Most that one RAM tier may have: the index and everybody else need theirs.
    pub fn tier_bytes_max(&self) -> u64 {
        self.bytes / 2
    }

    /// Most that all indexes and RAM tiers may have together: the daemon itself, and everybody else, need the rest.
    pub fn taken_bytes_max(&self) -> u64 {
        self.bytes / 8 * 7
    }

    /// Most that another tier may have beside tiers of so much.
    pub fn left_bytes(&self, others_bytes: u64) -> u64 {
        (self.bytes / 4 * 3).saturating_sub(others_bytes).min(self.tier_bytes_max())
    }
}

/// What limits this process now; `None` where the kernel does not tell.
pub fn limit() -> Option<MemoryLimit> {
    limit_in(Path::new("/proc"))
}

fn limit_in(proc: &Path) -> Option<MemoryLimit> {
    let machine = machine_bytes(proc).map(|bytes| MemoryLimit { bytes, of: "this machine".into() });
    machine.into_iter().chain(group_limits(proc)).min_by_key(|limit| limit.bytes)
}

fn machine_bytes(proc: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(proc.join("meminfo")).ok()?;
    let kib: u64 = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// One hierarchy of cgroups, as it is mounted here.
struct Hierarchy {
    /// The part of the hierarchy that is mounted.
    root: PathBuf,
    point: PathBuf,
    /// The files that tell limits; "max" is none.
    files: &'static [&'static str],
}

/// The limits of the process's own groups and of all above them.
fn group_limits(proc: &Path) -> Vec<MemoryLimit> {
    let groups = std::fs::read_to_string(proc.join("self/cgroup")).unwrap_or_default();
    let mounts = std::fs::read_to_string(proc.join("self/mountinfo")).unwrap_or_default();
    let mut limits = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else { continue };
        let is_second = controllers.is_empty();
        if !is_second && !controllers.split(',').any(|controller| controller == "memory") {
            continue;
        }
        let Some(mounted) = mounts.lines().find_map(|mount| hierarchy(mount, is_second)) else { continue };
        let below = Path::new(group).strip_prefix(&mounted.root).unwrap_or(Path::new(""));
        for group in below.ancestors() {
            let directory = mounted.point.join(group);
            let smallest = mounted.files.iter().filter_map(|file| bytes_in(&directory.join(file))).min();
            limits.extend(smallest.map(|bytes| MemoryLimit { bytes, of: format!("the memory cgroup /{}", group.display()) }));
        }
    }
    limits
}

/// Reads a line of mountinfo, if it is of the version asked for (the second has all controllers in one hierarchy).
fn hierarchy(mount: &str, is_second: bool) -> Option<Hierarchy> {
    let (place, kind) = mount.split_once(" - ")?;
    let mut place = place.split(' ').skip(3);
    let (root, point) = (place.next()?, place.next()?);
    let mut kind = kind.split(' ');
    let fits = match kind.next()? {
        "cgroup2" => is_second,
        "cgroup" => !is_second && kind.nth(1)?.split(',').any(|option| option == "memory"),
        _ => false,
    };
    // Above `memory.high` the kernel does not kill, it lets nothing go on.
    let files: &[&str] = if is_second { &["memory.max", "memory.high"] } else { &["memory.limit_in_bytes"] };
    fits.then(|| Hierarchy { root: root.into(), point: point.into(), files })
}

fn bytes_in(file: &Path) -> Option<u64> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine of 8 GiB whose process is in `group` of a hierarchy of which `root` is mounted; `limits` are files below that.
    fn check(is_second: bool, root: &str, group: &str, limits: &[(&str, &str)], expected: (u64, &str)) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let point = directory.path().join("groups");
        let write = |path: PathBuf, text: &str| {
            std::fs::create_dir_all(path.parent().expect("it is in a directory")).expect("there is room");
            std::fs::write(path, text).expect("there is room");
        };
        write(directory.path().join("meminfo"), "MemTotal:        8388608 kB\nMemFree:  1 kB\n");
        let (own, kind) = if is_second {
            (format!("0::{group}\n"), "cgroup2 cgroup2 rw")
        } else {
            (format!("4:memory:{group}\n0::/\n"), "cgroup cgroup rw,memory")
        };
        write(directory.path().join("self/cgroup"), &format!("9:name=systemd:/x\n{own}"));
        let mounts = format!("22 1 0:20 / / rw - ext4 /dev/x rw\n30 22 0:26 {root} {} rw,nosuid shared:4 - {kind}\n", point.display());
        write(directory.path().join("self/mountinfo"), &mounts);
        for (file, text) in limits {
            write(point.join(file), text);
        }
        let found = limit_in(directory.path()).expect("it is told");
        assert_eq!((found.bytes, found.of.as_str()), expected, "{group} {limits:?}");
    }

    #[test]
    fn the_tightest_of_machine_group_and_all_groups_above_counts() {
        let machine = (8 << 30, "this machine");
        check(true, "/", "/a/b", &[("a/b/memory.max", "max\n"), ("memory.max", "max")], machine);
        check(true, "/", "/a/b", &[("a/b/memory.max", "536870912\n")], (512 << 20, "the memory cgroup /a/b"));
        check(true, "/", "/a/b", &[("a/b/memory.max", "536870912"), ("a/memory.max", "268435456")], (256 << 20, "the memory cgroup /a"));
        check(true, "/", "/a", &[("a/memory.max", "536870912"), ("a/memory.high", "134217728")], (128 << 20, "the memory cgroup /a"));
        check(true, "/pod", "/pod/a", &[("a/memory.max", "536870912")], (512 << 20, "the memory cgroup /a"));
        // In a namespace of its own, with the whole hierarchy hidden.
        check(true, "/", "/", &[("memory.max", "536870912")], (512 << 20, "the memory cgroup /"));
        check(true, "/elsewhere", "/../a", &[("memory.max", "536870912")], (512 << 20, "the memory cgroup /"));
        check(true, "/", "/a", &[("a/memory.max", "99999999999999")], machine);
        check(false, "/", "/a", &[("a/memory.limit_in_bytes", "9223372036854771712")], machine);
        check(false, "/", "/a/b", &[("a/memory.limit_in_bytes", "536870912\n")], (512 << 20, "the memory cgroup /a"));
        check(false, "/", "/a", &[("a/memory.max", "536870912")], machine);
    }

    #[test]
    fn tiers_share_what_there_is() {
        let limit = MemoryLimit { bytes: 1 << 30, of: "this machine".into() };
        let left = [0, 256 << 20, 512 << 20, 1 << 40].map(|others| limit.left_bytes(others));
        assert_eq!(left, [512 << 20, 512 << 20, 256 << 20, 0]);
    }
}
