//! What `tgtd` shows of its targets, portals and connections, read from its text.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// One of its targets.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Shown {
    pub(super) number: i32,
    pub(super) name: String,
    /// Names of initiators that are logged in.
    pub(super) initiators: Vec<String>,
    /// Paths of its disks, in the order of their numbers.
    pub(super) devices: Vec<String>,
    /// Names for CHAP, and whether it is the target that must know this one.
    pub(super) accounts: Vec<(String, bool)>,
    /// Names and addresses that may log in.
    pub(super) allowed: Vec<String>,
}

/// All targets of `show`.
pub(super) fn targets(text: &str) -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    let mut section = "";
    for line in text.lines() {
        let depth = line.len() - line.trim_start().len();
        let words = line.trim();
        if depth == 0 {
            if let Some((number, name)) = words.strip_prefix("Target ").and_then(|rest| rest.split_once(": ")) {
                all.push(Shown { number: number.parse().unwrap_or_default(), name: name.into(), ..Shown::default() });
            }
            continue;
        }
        let Some(target) = all.last_mut() else { continue };
        match (depth, section) {
            (4, _) => section = words.trim_end_matches(':'),
            (8, "Account information") => {
                let name = words.strip_suffix(" (outgoing)");
                target.accounts.push((name.unwrap_or(words).to_owned(), name.is_some()));
            }
            (8, "ACL information") => target.allowed.push(words.to_owned()),
            (_, "LUN information") => {
                target.devices.extend(words.strip_prefix("Backing store path: ").filter(|path| *path != "None").map(str::to_owned));
            }
            (_, "I_T nexus information") => {
                let name = words.strip_prefix("Initiator: ").map(|rest| rest.split(" alias:").next().unwrap_or(rest));
                target.initiators.extend(name.map(|name| name.trim().to_owned()));
            }
            _ => {}
        }
    }
    all
}

/// Where it listens.
pub(super) fn portals(text: &str) -> Vec<SocketAddr> {
    let address = |line: &str| line.trim().strip_prefix("Portal: ")?.rsplit_once(',')?.0.parse().ok();
    text.lines().filter_map(address).collect()
}

/// Whether who listens at `portals` is reached at `address`.
pub(super) fn covers(portals: &[SocketAddr], address: SocketAddr) -> bool {
    let wild = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let is_reached = |portal: &&SocketAddr| {
        portal.port() == address.port()
            && (portal.ip() == address.ip()
                || (portal.ip().is_unspecified() && (portal.is_ipv4() == address.is_ipv4() || portal.ip() == wild)))
    };
    portals.iter().any(|portal| is_reached(&portal))
}

/// Session and number of each connection.
pub(super) fn connections(text: &str) -> Vec<(u64, u32)> {
    let mut session = 0;
    let mut all = Vec::new();
    for words in text.lines().map(str::trim) {
        if let Some(number) = words.strip_prefix("Session: ").and_then(|n| n.parse().ok()) {
            session = number;
        } else if let Some(number) = words.strip_prefix("Connection: ").and_then(|n| n.parse().ok()) {
            all.push((session, number));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As version 1.0.85 writes it.
    const TEXT: &str = "\
Target 1: iqn.2001-04.com.example:other
    System information:
        Driver: iscsi
        State: ready
    I_T nexus information:
    LUN information:
        LUN: 0
            Type: controller
            Backing store path: None
            Backing store flags: 
    Account information:
    ACL information:
        ALL
Target 12: iqn.2003-01.org.linux-iscsi.hearth:ccb47660
    System information:
        Driver: iscsi
        State: ready
    I_T nexus information:
        I_T nexus: 3
            Initiator: iqn.2026-01.test:a alias: host a
            Connection: 0
                IP Address: 127.0.0.1
    LUN information:
        LUN: 0
            Type: controller
            Backing store path: None
        LUN: 1
            Type: disk
            SCSI ID: 6001405ccb4766
            Backing store type: rdwr
            Backing store path: /dev/loop1
            Backing store flags: direct
    Account information:
        db
        hearth (outgoing)
    ACL information:
        127.0.0.1
        iqn.2026-01.test:a
";

    #[test]
    fn targets_are_read() {
        let [other, ours] = &targets(TEXT)[..] else { panic!("two targets") };
        assert_eq!((other.number, other.devices.len(), other.allowed.as_slice()), (1, 0, &["ALL".to_owned()][..]));
        let expected = Shown {
            number: 12,
            name: "iqn.2003-01.org.linux-iscsi.hearth:ccb47660".into(),
            initiators: vec!["iqn.2026-01.test:a".into()],
            devices: vec!["/dev/loop1".into()],
            accounts: vec![("db".into(), false), ("hearth".into(), true)],
            allowed: vec!["127.0.0.1".into(), "iqn.2026-01.test:a".into()],
        };
        assert_eq!(*ours, expected);
        assert!(targets("").is_empty() && targets("no target at all\n    x").is_empty());
    }

    #[test]
    fn portals_and_connections_are_read() {
        let listens = portals("Portal: 0.0.0.0:3260,1\nPortal: 192.0.2.1:3270,1\nPortal: [::1]:3271,1\nPortal: x\n");
        assert_eq!(listens.len(), 3);
        let reached = |text: &str| covers(&listens, text.parse().expect("an address"));
        assert!(reached("127.0.0.1:3260") && reached("192.0.2.1:3270") && reached("[::1]:3271"));
        assert!(!reached("127.0.0.1:3270") && !reached("[::1]:3260"));
        assert!(covers(&portals("Portal: [::]:3260,1"), "192.0.2.1:3260".parse().expect("an address")));
        let text = "Session: 2\n    Connection: 0\n        Initiator: iqn\nSession: 5\n    Connection: 1\n";
        assert_eq!(connections(text), [(2, 0), (5, 1)]);
    }
}
