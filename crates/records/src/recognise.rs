//! Is this device the one that was recorded? Recognised by what does not move: what its hardware, the kernel and udev call it, and the
//! UUIDs of what lies on it. Its name in `/dev` counts for nothing. Pure.

use crate::state::{BackingIdentity, Fact};
use api::human;

/// How two identities compare.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Match {
    /// Both say the same.
    Same,
    /// They differ: how, as a clause.
    Other(String),
    /// What one of them says the other does not.
    Unknown,
}

/// What a device is to a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Recognised {
    /// The volume's own.
    Certain,
    /// Nothing speaks against it but what lies on it, or nothing is known at all.
    Likely,
    /// Another one: why, as a clause.
    Other(String),
}

/// What a disk is called, the most telling name first: the first that both sides know decides. A name that is not in any list here (of a later
/// version, say) counts too, before the last.
const DISK_NAMES: [&str; 7] = ["wwid", "device-mapper uuid", "md uuid", "card id", "loop file", "nbd backend", "serial"];
/// Counts only where no other is known: udev makes it of the others.
const DISK_NAME_LAST: &str = "udev serial";
/// Of the part of a disk.
const PARTITION_UUID: &str = "partition uuid";
const PARTITION_PLACE: [&str; 2] = ["partition number", "partition start"];
/// Never the same on two devices that are one, and not enough alone.
const CONDITIONS: [&str; 4] = ["kind", "disk model", "creation time", "loop inode"];

fn value<'a>(facts: &'a [Fact], name: &str) -> Option<&'a str> {
    facts.iter().find(|fact| fact.name == name).map(|fact| fact.value.as_str())
}

fn compared(before: &[Fact], now: &[Fact], name: &str) -> Match {
    match (value(before, name), value(now, name)) {
        (Some(was), Some(is)) if was == is => Match::Same,
        (Some(was), Some(is)) => Match::Other(difference(name, was, is)),
        _ => Match::Unknown,
    }
}

/// How a fact has changed, as a clause. Times are told as people write them, where that tells them apart.
pub fn difference(name: &str, was: &str, is: &str) -> String {
    let (before, now) = match (moment_of(name, was), moment_of(name, is)) {
        (Some(before), Some(now)) if before != now => (before, now),
        _ => (was.to_owned(), is.to_owned()),
    };
    format!("its {name} was {before} and is now {now}")
}

/// The moment that a fact is, if it is one.
fn moment_of(name: &str, value: &str) -> Option<String> {
    let unix_s = match name {
        "file modification time" => value.parse::<u64>().ok()? / 1_000_000_000,
        "creation time" => value.split_once('.')?.0.parse().ok()?,
        "ext4 write time" | "ext4 mount time" => value.parse().ok()?,
        _ => return None,
    };
    Some(human::moment(unix_s))
}

/// Compares what the devices are called.
pub fn hardware(before: &[Fact], now: &[Fact]) -> Match {
    if let Some(other) = CONDITIONS.iter().map(|name| compared(before, now, name)).find(|found| matches!(found, Match::Other(_))) {
        return other;
    }
    match (value(before, PARTITION_PLACE[0]), value(now, PARTITION_PLACE[0])) {
        (Some(_), None) => return Match::Other("it was a partition and is not one now".into()),
        (None, Some(_)) => return Match::Other("it was not a partition and is one now".into()),
        _ => {}
    }
    let part = match compared(before, now, PARTITION_UUID) {
        Match::Unknown => {
            let moved = PARTITION_PLACE.iter().map(|name| compared(before, now, name)).find(|found| matches!(found, Match::Other(_)));
            moved.unwrap_or(Match::Unknown)
        }
        known => known,
    };
    let listed = |name: &str| DISK_NAMES.contains(&name) || CONDITIONS.contains(&name) || name.starts_with("partition ");
    let others = before.iter().map(|fact| fact.name.as_str()).filter(|name| !listed(name) && *name != DISK_NAME_LAST);
    // An identity recorded by an earlier version has the file system among its names.
    let names = DISK_NAMES.into_iter().chain(others.filter(|name| *name != FILE_SYSTEM)).chain([DISK_NAME_LAST]);
    let disk = names.map(|name| compared(before, now, name)).find(|found| *found != Match::Unknown).unwrap_or(Match::Unknown);
    match (disk, part) {
        (Match::Other(why), _) | (_, Match::Other(why)) => Match::Other(why),
        (Match::Unknown, Match::Unknown) => Match::Unknown,
        _ => Match::Same,
    }
}

const FILE_SYSTEM: &str = "file system";

/// What lay on the device; identities recorded by earlier versions have a file system in other places.
fn content_of(identity: &BackingIdentity) -> Vec<&Fact> {
    let older = || identity.fixed.iter().chain(&identity.stamps).filter(|fact| fact.name == FILE_SYSTEM && fact.value != "none");
    if identity.content.is_empty() { older().collect() } else { identity.content.iter().collect() }
}

/// Compares what lies on the devices.
pub fn content(before: &BackingIdentity, now: &BackingIdentity) -> Match {
    let (before, now) = (content_of(before), content_of(now));
    if let (Some(held), true) = (before.first(), now.is_empty()) {
        return Match::Other(format!("it held {} {} and now holds nothing known", held.name, held.value));
    }
    let mut same = false;
    for was in before {
        match now.iter().find(|is| is.name == was.name) {
            Some(is) if is.value == was.value => same = true,
            Some(is) => return Match::Other(difference(&was.name, &was.value, &is.value)),
            None => {}
        }
    }
    if same { Match::Same } else { Match::Unknown }
}

/// What the device found now is to one who knew `before`.
pub fn recognise(before: &BackingIdentity, now: &BackingIdentity) -> Recognised {
    match (hardware(&before.fixed, &now.fixed), content(before, now)) {
        (Match::Other(why), _) | (Match::Unknown, Match::Other(why)) => Recognised::Other(why),
        (Match::Same, Match::Same | Match::Unknown) | (Match::Unknown, Match::Same) => Recognised::Certain,
        (Match::Same, Match::Other(_)) | (Match::Unknown, Match::Unknown) => Recognised::Likely,
    }
}

/// Whether nothing would tell the device from another one.
pub fn is_nameless(identity: &BackingIdentity) -> bool {
    let tells = |fact: &&Fact| !CONDITIONS.contains(&fact.name.as_str()) && !PARTITION_PLACE.contains(&fact.name.as_str());
    identity.fixed.iter().find(tells).is_none() && content_of(identity).is_empty()
}

/// By what a device was recognised, for messages: "its wwid naa.5000".
pub fn known_by(before: &BackingIdentity, now: &BackingIdentity) -> Option<String> {
    let shared = |facts: &[Fact], name: &str| compared(facts, &now.fixed, name) == Match::Same;
    let names = DISK_NAMES.into_iter().chain([PARTITION_UUID, DISK_NAME_LAST]);
    let others =
        before.fixed.iter().map(|fact| fact.name.as_str()).filter(|name| !CONDITIONS.contains(name) && !PARTITION_PLACE.contains(name));
    let fact = names.chain(others).find(|name| shared(&before.fixed, name)).and_then(|name| Some((name, value(&before.fixed, name)?)));
    let on_it = || before.content.iter().find(|was| now.content.contains(was)).map(|was| (was.name.as_str(), was.value.as_str()));
    fact.or_else(on_it).map(|(name, value)| format!("its {name} {value}"))
}

/// Whether two devices of that identity are one by two ways, and not a copy of each other: its maker numbers each only once.
pub fn is_one_device(before: &BackingIdentity, now: &BackingIdentity) -> bool {
    ["wwid", "device-mapper uuid", "md uuid"].iter().any(|name| compared(&before.fixed, &now.fixed, name) == Match::Same)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(pairs: &[(&str, &str)]) -> Vec<Fact> {
        pairs.iter().map(|(name, value)| Fact { name: (*name).into(), value: (*value).into() }).collect()
    }

    fn identity(fixed: &[(&str, &str)], content: &[(&str, &str)]) -> BackingIdentity {
        BackingIdentity { size_bytes: 1 << 30, fixed: facts(fixed), content: facts(content), stamps: Vec::new() }
    }

    type Pairs<'a> = &'a [(&'a str, &'a str)];

    fn check(before: (Pairs, Pairs), now: (Pairs, Pairs), expected: &str) {
        let (before, now) = (identity(before.0, before.1), identity(now.0, now.1));
        let found = format!("{:?}", recognise(&before, &now));
        assert!(found.starts_with(expected), "{before:?}, {now:?}: {found}");
    }

    #[test]
    fn a_disk_is_known_by_the_most_telling_name_that_both_know() {
        let was: Pairs = &[("kind", "block device"), ("wwid", "a"), ("serial", "1"), ("udev serial", "X_1")];
        check((was, &[]), (was, &[]), "Certain");
        check((was, &[]), (&[("wwid", "b"), ("serial", "1")], &[]), "Other(\"its wwid was a and is now b");
        check((was, &[]), (&[("wwid", "a"), ("serial", "2"), ("udev serial", "Y")], &[]), "Certain");
        check((was, &[]), (&[("serial", "2")], &[]), "Other(\"its serial was 1 and is now 2");
        check((was, &[]), (&[("udev serial", "X_2")], &[]), "Other");
        check((was, &[]), (&[("kind", "file"), ("wwid", "a")], &[]), "Other(\"its kind was block device and is now file");
        check((&[("number of tomorrow", "1")], &[]), (&[("number of tomorrow", "2")], &[]), "Other");
    }

    #[test]
    fn a_partition_is_a_part_of_its_disk() {
        let was: Pairs = &[("serial", "1"), ("partition number", "1"), ("partition start", "2048"), ("partition uuid", "u")];
        check((was, &[]), (was, &[]), "Certain");
        check((was, &[]), (&[("serial", "1")], &[]), "Other(\"it was a partition and is not one now");
        check((&[("serial", "1")], &[]), (was, &[]), "Other(\"it was not a partition");
        check((was, &[]), (&[("serial", "1"), ("partition number", "2"), ("partition uuid", "v")], &[]), "Other(\"its partition uuid");
        // Counted anew, at the same place of the same disk; and on a disk without a number the partition's own is enough.
        check((was, &[]), (&[("serial", "1"), ("partition number", "3"), ("partition uuid", "u")], &[]), "Certain");
        check((was, &[]), (&[("partition number", "1"), ("partition uuid", "u")], &[]), "Certain");
        // A copy of the whole disk has the UUIDs of the first.
        check((was, &[]), (&[("serial", "2"), ("partition number", "1"), ("partition uuid", "u")], &[]), "Other(\"its serial");
        let plain: Pairs = &[("partition number", "1"), ("partition start", "2048")];
        check((plain, &[]), (&[("partition number", "1"), ("partition start", "4096")], &[]), "Other(\"its partition start");
        check((plain, &[("file system", "ext4 a")]), (plain, &[("file system", "ext4 b")]), "Other(\"its file system");
    }

    #[test]
    fn a_disk_that_tells_nothing_is_known_by_what_lies_on_it() {
        let held: Pairs = &[("file system", "ext4 a")];
        check((&[], held), (&[], held), "Certain");
        check((&[], held), (&[], &[("file system", "xfs b")]), "Other(\"its file system was ext4 a and is now xfs b");
        check((&[], held), (&[], &[]), "Other(\"it held file system ext4 a and now holds nothing known");
        check((&[], &[]), (&[], held), "Likely");
        check((&[], &[]), (&[], &[]), "Likely");
        check((&[("serial", "1")], held), (&[("serial", "1")], &[("file system", "xfs b")]), "Likely");
        assert!(is_nameless(&identity(&[("kind", "block device"), ("partition number", "1")], &[])));
        assert!(!is_nameless(&identity(&[], held)) && !is_nameless(&identity(&[("inode", "7")], &[])));
    }

    #[test]
    fn a_file_of_the_same_name_is_another_one() {
        let was: Pairs = &[("kind", "file"), ("inode", "7"), ("creation time", "1.5")];
        check((was, &[]), (was, &[]), "Certain");
        check((was, &[]), (&[("kind", "file"), ("inode", "8"), ("creation time", "1.5")], &[]), "Other(\"its inode");
        check((was, &[]), (&[("kind", "file"), ("inode", "7"), ("creation time", "2.5")], &[]), "Other(\"its creation time");
        let shown: Pairs = &[("loop file", "/a"), ("loop inode", "7")];
        check((shown, &[]), (&[("loop file", "/b"), ("loop inode", "8")], &[]), "Other");
        check((shown, &[]), (&[("loop file", "/a"), ("loop inode", "9")], &[]), "Other");
        check((shown, &[]), (&[("loop file", "/a")], &[]), "Certain");
    }

    #[test]
    fn what_an_earlier_version_recorded_is_understood() {
        let mut before = identity(&[("file system", "ext4 a")], &[]);
        let now = |file_system: &str| identity(&[], &[("file system", file_system)]);
        assert_eq!(recognise(&before, &now("ext4 a")), Recognised::Certain);
        assert!(matches!(recognise(&before, &now("ext4 b")), Recognised::Other(_)));
        (before.fixed, before.stamps) = (facts(&[("serial", "1")]), facts(&[("file system", "none")]));
        assert_eq!(recognise(&before, &identity(&[("serial", "1")], &[("file system", "ext4 a")])), Recognised::Certain);
    }

    #[test]
    fn the_name_that_decided_is_told() {
        let was = identity(&[("kind", "block device"), ("wwid", "a"), ("serial", "1")], &[("file system", "ext4 a")]);
        assert_eq!(known_by(&was, &was).as_deref(), Some("its wwid a"));
        assert_eq!(known_by(&was, &identity(&[], &[("file system", "ext4 a")])).as_deref(), Some("its file system ext4 a"));
        assert!(is_one_device(&was, &was) && !is_one_device(&was, &identity(&[("serial", "1")], &[])));
    }

    #[test]
    fn times_are_told_as_people_write_them() {
        let told = |name, was, is| difference(name, was, is);
        let expected = "its file modification time was 2026-11-29 04:16:28 UTC and is now 2026-11-29 04:17:33 UTC";
        assert_eq!(told("file modification time", "1795925788665948790", "1795925853000000000"), expected);
        assert!(told("creation time", "1.5", "1.7").contains("was 1.5 and is now 1.7"), "the same second");
        assert_eq!(told("serial", "1", "2"), "its serial was 1 and is now 2");
    }
}
