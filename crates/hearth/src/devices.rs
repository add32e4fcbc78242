//! `hearth devices`: which disks there are and what could be done with them.

use crate::table::{self, Align};
use api::human;
use api::{DeviceState, DeviceView};

/// All of them, one line each, partitions below their disks.
pub fn devices(devices: &[DeviceView]) -> String {
    if devices.is_empty() {
        return "no disks were found; a file works too, see `hearth pool create --help`\n".into();
    }
    let head = [
        ("DEVICE", Align::Left),
        ("SIZE", Align::Right),
        ("KIND", Align::Left),
        ("STATE", Align::Left),
        ("MAY BE", Align::Left),
        ("WHAT IT IS", Align::Left),
    ];
    let row = |device: &DeviceView| {
        let indent = if device.parent.is_some() { "  " } else { "" };
        let model = device.model.as_ref().filter(|_| device.parent.is_none()).map_or(String::new(), |model| format!("{model}, "));
        vec![
            format!("{indent}{}", device.path),
            human::bytes(device.size_bytes),
            kind(device),
            state(device.state).into(),
            may_be(device).into(),
            format!("{model}{}", device.summary),
        ]
    };
    table::layout(&head, &devices.iter().map(row).collect::<Vec<_>>())
}

fn kind(device: &DeviceView) -> String {
    match (device.kind.as_str(), device.rotational) {
        ("disk", Some(true)) => "hard disk".into(),
        ("disk", Some(false)) => "SSD".into(),
        (other, _) => other.into(),
    }
}

fn state(state: DeviceState) -> &'static str {
    match state {
        DeviceState::Free => "free",
        DeviceState::Foreign => "foreign",
        DeviceState::InUse => "in use",
        DeviceState::Pool => "pool",
        DeviceState::Backing => "backing",
    }
}

fn may_be(device: &DeviceView) -> &'static str {
    match (device.can_be_ssd, device.can_be_backing, device.destroys.is_some()) {
        (true, true, false) => "cache, backing",
        (true, true, true) => "backing (cache: --force)",
        (true, false, false) => "cache",
        (true, false, true) => "(cache: --force)",
        (false, true, _) => "backing",
        (false, false, _) => "-",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(path: &str, state: DeviceState, told: &str) -> DeviceView {
        DeviceView {
            path: path.into(),
            stable_path: None,
            kind: "disk".into(),
            parent: None,
            size_bytes: 4 << 40,
            model: Some("WDC WD40".into()),
            rotational: Some(true),
            read_only: false,
            state,
            summary: told.into(),
            told: String::new(),
            destroys: None,
            can_be_ssd: false,
            can_be_backing: false,
        }
    }

    #[test]
    fn a_line_says_what_a_disk_is_and_what_it_may_be() {
        let disk = device("/dev/sda", DeviceState::InUse, "its partition sda1 is mounted at /");
        let part =
            DeviceView { kind: "partition".into(), parent: Some("/dev/sda".into()), ..device("/dev/sda2", DeviceState::Free, "free") };
        let part = DeviceView { can_be_ssd: true, can_be_backing: true, ..part };
        let shown = devices(&[disk, part]);
        let lines: Vec<&str> = shown.lines().collect();
        let words = |line: &str| line.split_whitespace().map(String::from).collect::<Vec<_>>().join(" ");
        assert_eq!(words(lines[0]), "DEVICE SIZE KIND STATE MAY BE WHAT IT IS");
        assert_eq!(words(lines[1]), "/dev/sda 4 TiB hard disk in use - WDC WD40, its partition sda1 is mounted at /");
        assert_eq!(words(lines[2]), "/dev/sda2 4 TiB partition free cache, backing free");
        assert!(lines[2].starts_with("  /dev/sda2"), "below its disk: {shown}");
        assert!(devices(&[]).starts_with("no disks"));
    }
}
