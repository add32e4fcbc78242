//! What initiators know a volume by: names, serial numbers and world-wide names, all from its UUID.
//!
//! They are the same on every host, so that a volume that is served elsewhere tomorrow is the same
//! disk to a cluster, to multipath and to a hypervisor.

use crate::Protocol;

/// iSCSI names of LIO's targets begin so (the authority of its own tools); ours go on with `hearth`.
const IQN: &str = "iqn.2003-01.org.linux-iscsi.hearth:";
/// NVMe names of things that have a UUID (NVM Express Base Specification, "NVMe Qualified Names").
const NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:";
/// Longest iSCSI name, and longest NVMe name, in bytes (RFC 7143, 4.2.7; NVMe Base, 4.7).
pub const NAME_BYTES_MAX: usize = 223;

/// The name by which initiators ask for the volume: an IQN or an NQN.
pub fn target(protocol: Protocol, uuid: [u8; 16]) -> String {
    match protocol {
        Protocol::Iscsi => format!("{IQN}{}", hyphened(uuid)),
        Protocol::NvmeTcp => format!("{NQN}{}", hyphened(uuid)),
    }
}

/// The UUID in that name, if it is one of ours.
pub fn uuid_of(protocol: Protocol, name: &str) -> Option<[u8; 16]> {
    let text = match protocol {
        Protocol::Iscsi => name.strip_prefix(IQN)?,
        Protocol::NvmeTcp => name.strip_prefix(NQN)?,
    };
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let uuid = u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32)?.to_be_bytes();
    (hyphened(uuid) == text).then_some(uuid)
}

/// The SCSI unit serial number (VPD page 0x80).
pub fn scsi_serial(uuid: [u8; 16]) -> String {
    hyphened(uuid)
}

/// The SCSI world-wide name (VPD page 0x83, NAA type 6), as LIO makes it of the serial number: its
/// company identifier, then the first 25 digits.
pub fn naa(uuid: [u8; 16]) -> String {
    format!("6001405{}", &digits(uuid)[..25])
}

/// The serial number of the NVMe subsystem: 20 characters.
pub fn nvme_serial(uuid: [u8; 16]) -> String {
    digits(uuid)[..20].to_owned()
}

/// The namespace's UUID, and its NGUID: the same number, since 16 bytes hold it whole.
pub fn nvme_uuid(uuid: [u8; 16]) -> String {
    hyphened(uuid)
}

/// Checks the name of an initiator, which is also the name of a directory.
///
/// # Errors
/// What is wrong with it, as a clause.
pub fn check_initiator(protocol: Protocol, name: &str) -> Result<(), String> {
    let known = match protocol {
        Protocol::Iscsi => ["iqn.", "eui.", "naa."].iter().any(|kind| name.starts_with(kind)),
        Protocol::NvmeTcp => name.starts_with("nqn."),
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || ['.', '-', ':', '_'].contains(&c);
    let lower = protocol == Protocol::NvmeTcp || !name.chars().any(|c| c.is_ascii_uppercase());
    match () {
        () if !known && protocol == Protocol::Iscsi => Err("is not the name of an iSCSI initiator".into()),
        () if !known => Err("is not the name of an NVMe host".into()),
        () if name.len() > NAME_BYTES_MAX => Err(format!("is longer than {NAME_BYTES_MAX} characters")),
        () if !name.chars().all(plain) => Err("has a character that such names do not have".into()),
        () if !lower => Err("has capital letters, which iSCSI names do not have".into()),
        () if name.len() < 8 => Err("is not complete".into()),
        () => Ok(()),
    }
}

fn digits(uuid: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(uuid))
}

fn hyphened(uuid: [u8; 16]) -> String {
    let digits = digits(uuid);
    format!("{}-{}-{}-{}-{}", &digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: [u8; 16] = [0xcc, 0xb4, 0x76, 0x60, 0x5a, 0x80, 0x4c, 0xa3, 0x90, 0xd8, 0x18, 0x7b, 0xb9, 0x9b, 0x71, 0x42];

    /// Literal: a version that gives a volume other names makes it another disk to every initiator.
    #[test]
    fn names_are_the_same_on_every_host_and_in_every_version() {
        let iscsi = target(Protocol::Iscsi, UUID);
        let nvme = target(Protocol::NvmeTcp, UUID);
        assert_eq!(iscsi, "iqn.2003-01.org.linux-iscsi.hearth:ccb47660-5a80-4ca3-90d8-187bb99b7142");
        assert_eq!(nvme, "nqn.2014-08.org.nvmexpress:uuid:ccb47660-5a80-4ca3-90d8-187bb99b7142");
        assert_eq!(scsi_serial(UUID), "ccb47660-5a80-4ca3-90d8-187bb99b7142");
        assert_eq!(naa(UUID), "6001405ccb476605a804ca390d8187bb");
        assert_eq!(nvme_serial(UUID), "ccb476605a804ca390d8");
        assert_eq!(nvme_uuid(UUID), "ccb47660-5a80-4ca3-90d8-187bb99b7142");
        assert_eq!((naa(UUID).len(), nvme_serial(UUID).len()), (32, 20), "the sizes of the fields");
        for (protocol, name) in [(Protocol::Iscsi, &iscsi), (Protocol::NvmeTcp, &nvme)] {
            assert_eq!(uuid_of(protocol, name), Some(UUID));
            assert_eq!(check_initiator(protocol, name), Ok(()), "it is well-formed");
        }
        assert_eq!(uuid_of(Protocol::Iscsi, "iqn.2003-01.org.linux-iscsi.hearth:x"), None);
        assert_eq!(uuid_of(Protocol::Iscsi, &nvme), None);
    }

    #[test]
    fn names_of_initiators_are_checked() {
        for good in ["iqn.1993-08.org.debian:01:abc", "eui.0123456789abcdef", "naa.60014051234567890"] {
            assert_eq!(check_initiator(Protocol::Iscsi, good), Ok(()), "{good}");
        }
        let bad = ["", "iqn.", "iqn", "nqn.2014-08.org.x:y", "iqn.2003/../..", "iqn.1998-01.com.vmware:Host", "iqn.2003-01.a b"];
        for name in bad {
            assert!(check_initiator(Protocol::Iscsi, name).is_err(), "{name}");
        }
        assert!(check_initiator(Protocol::Iscsi, &format!("iqn.{}", "a".repeat(220))).is_err());
        assert_eq!(check_initiator(Protocol::NvmeTcp, "nqn.2014-08.org.nvmexpress:uuid:4C4C4544-0050"), Ok(()));
        assert!(check_initiator(Protocol::NvmeTcp, "iqn.1993-08.org.debian:01:abc").is_err());
    }
}
