//! What `tgtd` shows of its targets, portals and connections, read from its text.

use std::net::SocketAddr;

const SYSTEM: &str = "System information";
const NEXUS: &str = "I_T nexus information";
const UNITS: &str = "LUN information";
const ACCOUNTS: &str = "Account information";
const ACL: &str = "ACL information";
/// Of an iSCSI target, in its order.
const SECTIONS: [&str; 5] = [SYSTEM, NEXUS, UNITS, ACCOUNTS, ACL];

/// One of its targets.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Shown {
    pub(super) number: i32,
    pub(super) name: String,
    /// Whether it takes logins and commands.
    pub(super) is_ready: bool,
    /// Names of initiators that are logged in.
    pub(super) initiators: Vec<String>,
    /// What has a number in it, its controller too.
    pub(super) units: Vec<Unit>,
    /// Names for CHAP, and whether it is the target that must know this one.
    pub(super) accounts: Vec<(String, bool)>,
    /// Names and addresses that may log in.
    pub(super) allowed: Vec<String>,
}

/// A disk of it, or its controller.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Unit {
    pub(super) number: u64,
    pub(super) is_online: bool,
    pub(super) is_read_only: bool,
    pub(super) wwn: String,
    pub(super) serial: String,
    /// Of its device; `None`: it has none.
    pub(super) path: Option<String>,
    /// Whether requests go to it past the page cache.
    pub(super) is_direct: bool,
}

impl Unit {
    fn note(&mut self, fact: &str, value: &str) {
        match fact {
            "Online" => self.is_online = value == "Yes",
            "Readonly" => self.is_read_only = value == "Yes",
            "SCSI ID" => self.wwn = value.into(),
            "SCSI SN" => self.serial = value.into(),
            "Backing store flags" => self.is_direct = value.split([' ', ',']).any(|flag| flag == "direct"),
            "Backing store path" => self.path = Some(value.to_owned()).filter(|path| path != "None"),
            _ => {}
        }
    }
}

impl Shown {
    pub(super) fn unit(&self, number: u64) -> Option<&Unit> {
        self.units.iter().find(|unit| unit.number == number)
    }
}

/// All targets of `show`. An initiator's names are printed as it gave them, line feeds included, so
/// this counts only what `tgtd` itself can have written; `None` where somebody else wrote into it.
pub(super) fn targets(text: &str) -> Option<Vec<Shown>> {
    let mut all: Vec<Shown> = Vec::new();
    let mut section = 0;
    for line in text.lines() {
        let words = line.trim_start_matches(' ');
        let depth = line.len() - words.len();
        if depth == 0 {
            // A target is whole before the next one.
            let (number, name) = words.strip_prefix("Target ")?.split_once(": ")?;
            let number: i32 = number.parse().ok()?;
            let is_next = all.last().is_none_or(|last| last.number < number && section == SECTIONS.len());
            if !is_next || all.iter().any(|known| known.name == name) {
                return None;
            }
            all.push(Shown { number, name: name.into(), ..Shown::default() });
            section = 0;
            continue;
        }
        let target = all.last_mut()?;
        if depth == 4 {
            // Each once, in this order.
            if words.strip_suffix(':') != SECTIONS.get(section).copied() {
                return None;
            }
            section += 1;
            continue;
        }
        match (depth, section.checked_sub(1).map(|at| SECTIONS[at])?) {
            (8, SYSTEM) => target.is_ready |= words == "State: ready",
            (12, NEXUS) => {
                let name = words.strip_prefix("Initiator: ").map(|rest| rest.split(" alias:").next().unwrap_or(rest));
                target.initiators.extend(name.map(|name| name.trim().to_owned()));
            }
            (8, UNITS) => {
                let number = words.strip_prefix("LUN: ").and_then(|number| number.parse().ok());
                target.units.extend(number.map(|number| Unit { number, ..Unit::default() }));
            }
            (12, UNITS) => {
                if let Some((fact, value)) = words.split_once(": ") {
                    target.units.last_mut()?.note(fact, value);
                }
            }
            (8, ACCOUNTS) => {
                let name = words.strip_suffix(" (outgoing)");
                target.accounts.push((name.unwrap_or(words).to_owned(), name.is_some()));
            }
            (8, ACL) => target.allowed.push(words.to_owned()),
            _ => {}
        }
    }
    (all.is_empty() || section == SECTIONS.len()).then_some(all)
}

/// Where it listens.
pub(super) fn portals(text: &str) -> Vec<SocketAddr> {
    let address = |line: &str| line.strip_prefix("Portal: ")?.rsplit_once(',')?.0.parse().ok();
    text.lines().filter_map(address).collect()
}

/// Whether who listens at `portals` is reached at `address`. Its sockets for IPv6 take no IPv4.
pub(super) fn covers(portals: &[SocketAddr], address: SocketAddr) -> bool {
    portals.iter().any(|portal| {
        let is_all = portal.ip().is_unspecified() && portal.is_ipv4() == address.is_ipv4();
        portal.port() == address.port() && (is_all || portal.ip() == address.ip())
    })
}

/// Session and number of each connection.
pub(super) fn connections(text: &str) -> Vec<(u64, u32)> {
    let mut session = 0;
    let mut all = Vec::new();
    for line in text.lines() {
        if let Some(number) = line.strip_prefix("Session: ").and_then(|n| n.parse().ok()) {
            session = number;
        } else if let Some(number) = line.strip_prefix("    Connection: ").and_then(|n| n.parse().ok()) {
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
            Backing store flags: x
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
            SCSI SN: ccb47660
            Online: Yes
            Readonly: No
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
        let [other, ours] = &targets(TEXT).expect("well-formed")[..] else { panic!("two targets") };
        assert_eq!((other.number, other.units.len(), other.allowed.as_slice()), (1, 1, &["ALL".to_owned()][..]));
        let disk = Unit {
            number: 1,
            is_online: true,
            is_read_only: false,
            wwn: "6001405ccb4766".into(),
            serial: "ccb47660".into(),
            path: Some("/dev/loop1".into()),
            is_direct: true,
        };
        let expected = Shown {
            number: 12,
            name: "iqn.2003-01.org.linux-iscsi.hearth:ccb47660".into(),
            is_ready: true,
            initiators: vec!["iqn.2026-01.test:a".into()],
            units: vec![Unit::default(), disk],
            accounts: vec![("db".into(), false), ("hearth".into(), true)],
            allowed: vec!["127.0.0.1".into(), "iqn.2026-01.test:a".into()],
        };
        assert_eq!(*ours, expected);
        assert!(targets("").is_some_and(|all| all.is_empty()) && targets("no target at all\n    x").is_none());
        let of = |text: &str| targets(text).expect("well-formed").remove(1);
        assert!(!of(&TEXT.replace("ready", "offline")).is_ready);
        assert!(of(&TEXT.replace("Online: Yes", "Online: No")).unit(1).is_some_and(|unit| !unit.is_online));
    }

    #[test]
    fn what_an_initiator_writes_is_not_taken_for_a_target() {
        let as_alias = |alias: &str| targets(&TEXT.replace("host a", alias));
        let rest = "    LUN information:\n    Account information:\n    ACL information:\n";
        let begin = "    System information:\n    I_T nexus information:";
        for number in ["1", "7", "12", "-1", "99999999999", "x"] {
            assert_eq!(as_alias(&format!("x\nTarget {number}: iqn.x:other")), None, "{number}");
            let whole = |name: &str| as_alias(&format!("x\n{rest}Target {number}: {name}\n{begin}"));
            assert_eq!(whole("iqn.2001-04.com.example:other"), None, "{number}");
            assert_eq!(whole("iqn.2003-01.org.linux-iscsi.hearth:ccb47660"), None, "{number}");
        }
        for section in ["LUN information:", "ACL information:", "System information:", "Mine:"] {
            assert_eq!(as_alias(&format!("x\n    {section}\n        a")), None, "{section}");
        }
        // Without a section of its own it changes nothing.
        let alias = "x\n        State: offline\n            Backing store path: /dev/x\n\tACL information:";
        let known = as_alias(alias);
        assert!(known.is_none() || known == targets(TEXT), "{known:?}");
    }

    #[test]
    fn portals_and_connections_are_read() {
        let listens = portals("Portal: 0.0.0.0:3260,1\nPortal: 192.0.2.1:3270,1\nPortal: [::1]:3271,1\nPortal: x\n");
        assert_eq!(listens.len(), 3);
        let reached = |text: &str| covers(&listens, text.parse().expect("an address"));
        assert!(reached("127.0.0.1:3260") && reached("192.0.2.1:3270") && reached("[::1]:3271"));
        assert!(!reached("127.0.0.1:3270") && !reached("[::1]:3260"));
        let all_of_six = portals("Portal: [::]:3260,1");
        assert!(covers(&all_of_six, "[2001:db8::1]:3260".parse().expect("an address")));
        assert!(!covers(&all_of_six, "192.0.2.1:3260".parse().expect("an address")));
        let text = "Session: 2\n    Connection: 0\n        Initiator: iqn\nSession: 5\n    Connection: 1\n";
        assert_eq!(connections(text), [(2, 0), (5, 1)]);
    }
}
