//! Units for systemd at each boot, for devices that volumes are attached to: their file systems are mounted
//! when the cache is under them, and it stays there until they are unmounted.
//!
//! A generator runs before anything is mounted but the root file system (systemd.generator(7)). Where the
//! state lies on another file system it says nothing, and the daemon attaches the volumes under the mounts.

use crate::failure::Failure;
use records::state::{PoolRecord, VolumeRecord};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// What a volume is attached to at each boot.
struct Attached {
    volume: String,
    pool: String,
    /// Its name for the device mapper.
    device: String,
    /// The UUID of its file system, if it is known.
    file_system: Option<String>,
}

/// A line of `/etc/fstab` that a volume is under.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Mount {
    volume: String,
    point: String,
}

/// Writes units for a generator of systemd into its directory.
///
/// # Errors
/// If the state cannot be understood, or the directory cannot be written.
pub fn generate(directory: &Path, fstab: &Path, state_directory: &Path) -> Result<(), Failure> {
    let state = records::store::look(state_directory)?;
    let table = std::fs::read_to_string(fstab).unwrap_or_default();
    let attached: Vec<Attached> = state.volumes.iter().filter_map(attached).collect();
    let is_needed = |pool: &&PoolRecord| attached.iter().any(|attached| attached.pool == pool.name);
    let ssds: Vec<&str> = state.pools.iter().filter(is_needed).map(|pool| pool.ssd.as_str()).collect();
    for (path, text) in units(&attached, &ssds, &table) {
        let path = directory.join(path);
        let failed = |e: std::io::Error| Failure::failed(format!("{} cannot be written ({e})", path.display()), "give another directory");
        path.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(failed)?;
        std::fs::write(&path, text).map_err(failed)?;
    }
    Ok(())
}

/// Files below the generator's directory, and their texts. `ssds` are those of the volumes' pools. Nothing is required: what does not come
/// keeps neither the daemon nor a mount from coming.
fn units(attached: &[Attached], ssds: &[&str], fstab: &str) -> Vec<(PathBuf, String)> {
    let mounts: Vec<Mount> = attached.iter().flat_map(|attached| mounts_of(attached, fstab)).collect();
    if mounts.is_empty() {
        return Vec::new();
    }
    let mut files: Vec<(PathBuf, String)> = mounts
        .iter()
        .map(|mount| {
            let unit = format!("hearth-attach@{}.service", escape(&mount.volume));
            let place = format!("{}.mount.d/50-hearth.conf", escape_path(&mount.point));
            (PathBuf::from(place), format!("[Unit]\nWants={unit}\nAfter={unit} hearth.service\n"))
        })
        .collect();
    // Before the local file systems, and down again after them.
    let mut early = String::from("[Unit]\nDefaultDependencies=no\nConflicts=shutdown.target\nBefore=shutdown.target\n");
    for ssd in ssds {
        let unit = if ssd.starts_with("/dev/") {
            // One that is dead does not hold up the boot for longer than that.
            let unit = format!("{}.device", escape_path(ssd));
            files.push((format!("{unit}.d/50-hearth.conf").into(), "[Unit]\nJobRunningTimeoutSec=30s\n".into()));
            Some(unit)
        } else {
            let point = mount_below(ssd, fstab).filter(|point| !comes_after(Path::new(point), &mounts, fstab, DEPTH_MAX));
            point.map(|point| format!("{}.mount", escape_path(&point)))
        };
        if let Some(unit) = unit {
            let _ = write!(early, "Wants={unit}\nAfter={unit}\n");
        }
    }
    files.push(("hearth.service.d/50-attached.conf".into(), early));
    files
}

/// The file system of `/etc/fstab` that a path lies on, but for the root and those of the network, which are mounted later.
fn mount_below(path: &str, fstab: &str) -> Option<String> {
    let mounts = lines(fstab).filter(|line| !line.is_of_network && line.point != "/" && Path::new(path).starts_with(&line.point));
    mounts.max_by_key(|line| line.point.len()).map(|line| line.point)
}

/// What of `/etc/fstab` is looked at, mounts of files within mounts: more than that is a ring.
const DEPTH_MAX: u32 = 16;

/// Whether what is at a path is there only after one of the mounts: below it, or from a file or directory that is (a bind mount, an image).
/// These wait for hearth, so hearth waits for none of it.
fn comes_after(path: &Path, mounts: &[Mount], fstab: &str, depth: u32) -> bool {
    let is_from = |line: &Line| {
        let source = Path::new(&line.device);
        path.starts_with(&line.point) && source.is_absolute() && !source.starts_with("/dev")
    };
    depth == 0
        || mounts.iter().any(|mount| path.starts_with(&mount.point))
        || lines(fstab).filter(is_from).any(|line| comes_after(Path::new(&line.device), mounts, fstab, depth - 1))
}

/// A line of `/etc/fstab`.
struct Line {
    device: String,
    point: String,
    is_of_network: bool,
}

fn lines(fstab: &str) -> impl Iterator<Item = Line> {
    fstab.lines().map(str::trim).filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut fields = line.split_whitespace().map(unescape);
        let (device, point) = (fields.next()?, fields.next()?);
        let (kind, options) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
        let of_network = ["nfs", "nfs4", "cifs", "smb3", "ceph", "glusterfs"].contains(&kind.as_str());
        let is_of_network = of_network || options.split(',').any(|option| option == "_netdev");
        point.starts_with('/').then_some(Line { device, point, is_of_network })
    })
}

/// What a volume is attached to, if it is so at each boot.
fn attached(volume: &VolumeRecord) -> Option<Attached> {
    let attachment = volume.attachment.as_ref().filter(|attachment| !attachment.trial && !attachment.leaving && !volume.rests())?;
    let file_system = volume.identity.content.iter().find(|fact| fact.name == "file system");
    // "ext4 0123abcd-..."
    let file_system = file_system.and_then(|fact| Some(fact.value.split_once(' ')?.1.to_owned()));
    Some(Attached { volume: volume.name.clone(), pool: volume.pool.clone(), device: attachment.device.clone(), file_system })
}

/// The mounts of what a volume is attached to. The root file system is mounted before anybody could be under it.
fn mounts_of(attached: &Attached, fstab: &str) -> Vec<Mount> {
    let names = names_of(attached);
    lines(fstab)
        .filter(|line| !line.is_of_network && line.point != "/" && names.contains(&line.device.replace('"', "").to_lowercase()))
        .map(|line| Mount { volume: attached.volume.clone(), point: line.point })
        .collect()
}

/// What the first field of a line may call the device of a volume, in small letters.
fn names_of(attached: &Attached) -> Vec<String> {
    let name = &attached.device;
    let mut names = vec![format!("/dev/mapper/{name}"), format!("/dev/disk/by-id/dm-name-{name}")];
    if let Some((group, logical)) = of_lvm(name) {
        names.push(format!("/dev/{group}/{logical}"));
    }
    if let Some(uuid) = &attached.file_system {
        names.extend([format!("UUID={uuid}"), format!("/dev/disk/by-uuid/{uuid}")]);
    }
    names.iter().map(|name| name.to_lowercase()).collect()
}

/// Volume group and logical volume of a mapped device: LVM doubles hyphens within the names.
fn of_lvm(name: &str) -> Option<(String, String)> {
    let joint = name.char_indices().find(|(at, c)| {
        *c == '-' && !name[at + 1..].starts_with('-') && name[..*at].bytes().rev().take_while(|byte| *byte == b'-').count() % 2 == 0
    })?;
    Some((name[..joint.0].replace("--", "-"), name[joint.0 + 1..].replace("--", "-")))
}

/// What fstab(5) writes as three octal digits.
fn unescape(field: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), field.as_bytes());
    while let Some((first, tail)) = rest.split_first() {
        let digits = tail.get(..3).filter(|digits| *first == b'\\' && digits.iter().all(|digit| (b'0'..b'8').contains(digit)));
        match digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// systemd.unit(5), "String escaping for inclusion in unit names".
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'/' => escaped.push('-'),
            b'.' if at == 0 => escaped.push_str("\\x2e"),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b':' | b'_' | b'.' => escaped.push(char::from(byte)),
            _ => {
                let _ = write!(escaped, "\\x{byte:02x}");
            }
        }
    }
    escaped
}

/// The same of a path.
fn escape_path(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    if parts.is_empty() { "-".into() } else { escape(&parts.join("/")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SSDS: [&str; 3] = ["/mnt/fast disk/ssd.img", "/dev/nvme0n1", "/x\n[Service]\nExecStart=+/tmp/evil"];

    fn made(fstab: &str) -> Vec<(String, String)> {
        let file_system = Some("0123abcd-0000-4000-8000-00000000000a".into());
        let attached = Attached { volume: "data".into(), pool: "p".into(), device: "vg--x-lv".into(), file_system };
        units(&[attached], &SSDS, fstab).into_iter().map(|(path, text)| (path.display().to_string(), text)).collect()
    }

    #[test]
    fn mounts_of_attached_devices_wait_and_hearth_is_early() {
        for device in [
            "/dev/mapper/vg--x-lv",
            "/dev/vg-x/lv",
            "UUID=0123ABCD-0000-4000-8000-00000000000a",
            "UUID=\"0123abcd-0000-4000-8000-00000000000a\"",
            "/dev/disk/by-uuid/0123abcd-0000-4000-8000-00000000000a",
        ] {
            let files =
                made(&format!("# {device} /no ext4\n/dev/sda1 / ext4 defaults 0 1\n  {device}\t/srv/my\\040data ext4 defaults 0 2\n"));
            let [(mount, text), (ssd, limit), (early, order)] = &files[..] else { panic!("{device}: {files:?}") };
            assert_eq!(mount, "srv-my\\x20data.mount.d/50-hearth.conf", "{device}");
            assert_eq!(text, "[Unit]\nWants=hearth-attach@data.service\nAfter=hearth-attach@data.service hearth.service\n");
            assert_eq!((ssd.as_str(), limit.as_str()), ("dev-nvme0n1.device.d/50-hearth.conf", "[Unit]\nJobRunningTimeoutSec=30s\n"));
            assert_eq!(early, "hearth.service.d/50-attached.conf");
            assert!(order.ends_with("Before=shutdown.target\nWants=dev-nvme0n1.device\nAfter=dev-nvme0n1.device\n"), "{order}");
        }
        let lines = "/dev/vg-x/lv /srv ext4 defaults\n/dev/sdb /mnt ext4 defaults\nLABEL=x /mnt/fast\\040disk ext4 nofail\nnas:/x /mnt/fast nfs hard\n";
        let early = &made(lines).pop().expect("it is there").1;
        assert!(early.contains("\nWants=mnt-fast\\x20disk.mount\nAfter=mnt-fast\\x20disk.mount\n"), "{early}");
        assert!(!early.contains("Service") && !early.contains("Requires"), "{early}");
        // What lies on the device itself is not waited for, nor what comes by the network.
        for lines in [
            "/dev/vg-x/lv /mnt ext4 defaults",
            "/dev/vg-x/lv /mnt ext4 defaults\n/dev/sdb /mnt/fast\\040disk ext4 defaults",
            "/dev/vg-x/lv /srv ext4 defaults\n/srv/ssd /mnt none bind",
            "/dev/vg-x/lv /srv ext4 defaults\n/srv/x /opt none bind\n/opt/image /mnt/fast\\040disk ext4 loop",
            "/dev/vg-x/lv /srv ext4 defaults\n/opt /mnt none bind\n/mnt /opt none bind",
            "/dev/vg-x/lv /srv ext4 defaults\n/dev/sdb /mnt ext4 _netdev",
        ] {
            let early = &made(lines).pop().expect("it is there").1;
            assert!(!early.contains("mnt"), "{early}");
        }
    }

    #[test]
    fn others_are_left_alone() {
        assert_eq!(made("/dev/vg-x/lv / ext4 defaults\n/dev/vg/lv /srv ext4 defaults\nUUID= /x ext4\nhalf\n/dev/vg-x/lv none swap\n"), []);
        assert_eq!(made("/dev/vg-x/lv /srv ext4 noatime,_netdev 0 2\n"), []);
        assert!(units(&[], &SSDS, "/dev/vg-x/lv /srv ext4 defaults").is_empty());
    }

    /// As `systemd-escape` does it.
    #[test]
    fn names_are_escaped_as_systemd_does() {
        let paths: Vec<String> = ["/", "/srv//data/", "/srv/a-b", "/.x/ä"].map(escape_path).to_vec();
        assert_eq!(paths, ["-", "srv-data", "srv-a\\x2db", "\\x2ex-\\xc3\\xa4"]);
        assert_eq!(escape("db-1.x"), "db\\x2d1.x");
    }

    #[test]
    fn logical_volumes_have_both_names() {
        for (name, expected) in [("vg-lv", ("vg", "lv")), ("a--b-c--d", ("a-b", "c-d")), ("a---b", ("a-", "b"))] {
            assert_eq!(of_lvm(name), Some((expected.0.into(), expected.1.into())), "{name}");
        }
        assert_eq!(of_lvm("crypt"), None);
    }
}
