//! The systemd unit: systemd has no complaint about it, and `docs/service.md` tells its score and every opening as systemd's own tool finds them.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What stands in `docs/service.md` before the score, as the tool itself writes it.
const SCORE: &str = "Overall exposure level for hearth.service: ";
/// And before the version of systemd that it is from.
const VERSION: &str = "systemd-analyze of systemd ";

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(repository(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn analyze(arguments: &[&str]) -> Option<Output> {
    Command::new("systemd-analyze").args(arguments).env_remove("SYSTEMD_LOG_LEVEL").output().ok()
}

/// The tool's version, if there is a tool that can judge a file without a running systemd (from 250 on); else says that the test is skipped.
fn version() -> Option<u32> {
    let shown = analyze(&["--version"]).map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let version = number_after(&shown, "systemd ").map(|version| version as u32).filter(|version| *version >= 250);
    if version.is_none() {
        eprintln!("skipped: it needs systemd-analyze of systemd 250 or later (Debian's package systemd)");
    }
    version
}

/// The number that follows `words` in `text`.
fn number_after(text: &str, words: &str) -> Option<f64> {
    let (_, rest) = text.split_once(words)?;
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    rest[..end].trim_end_matches('.').parse().ok()
}

/// What systemd says about a unit file of this text, with a program in the place of the installed one.
fn complaints(unit: &str) -> String {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("hearth.service");
    std::fs::write(&file, unit.replace("ExecStart=/usr/bin/hearth", concat!("ExecStart=", env!("CARGO_BIN_EXE_hearth"))))
        .expect("there is room");
    let output = analyze(&["verify", "--man=no", &file.display().to_string()]).expect("it is there");
    let said = String::from_utf8_lossy(&output.stderr);
    // Units of this machine are loaded too, and are none of our business.
    let mut about_ours: Vec<&str> = said.lines().filter(|line| line.contains("hearth")).collect();
    if !output.status.success() && about_ours.is_empty() {
        about_ours = said.lines().collect();
    }
    about_ours.join("\n")
}

#[test]
fn systemd_has_no_complaint() {
    if version().is_none() {
        return;
    }
    let unit = read("packaging/hearth.service");
    assert!(unit.contains("ExecStart=/usr/bin/hearth serve\n"), "the program of the package is what the unit runs");
    assert_eq!(complaints(&unit), "");
    let misspelt = complaints(&unit.replace("ProtectClock=", "ProtectClok="));
    assert!(misspelt.contains("ProtectClok"), "a key that systemd does not know is found: {misspelt:?}");
}

/// Without one of these a restart would not be the pause that docs/service.md promises: no room for
/// descriptors, or nobody who says that there is, or the NBD socket's directory gone in between.
#[test]
fn exports_outlive_a_restart_under_the_unit() {
    let unit = read("packaging/hearth.service");
    let room: u32 = number_after(&unit, "\nFileDescriptorStoreMax=").expect("room for descriptors") as u32;
    assert!(unit.contains(&format!("\nEnvironment=FDSTORE={room}\n")), "systemd before 254 does not say so itself");
    assert!(unit.contains("\nRuntimeDirectoryPreserve=restart\n"));
    // ublk devices are not among them: these end them when nobody comes.
    assert!(unit.contains("\nExecStopPost=-/usr/bin/hearth rescue --after-stop\n"));
    assert!(unit.contains("\nOnFailure=hearth-rescue.service\n"));
    assert!(read("packaging/hearth-rescue.service").contains("\nExecStart=/usr/bin/hearth rescue\n"));
}

/// Rows of the table of openings: what stands in backquotes at the beginning of a line.
fn openings_told(document: &str) -> BTreeSet<String> {
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    rows.map(|(name, _)| name.replace("\\|", "|")).collect()
}

#[test]
fn the_document_tells_the_score_and_every_opening() {
    let Some(version) = version() else { return };
    let unit = repository("packaging/hearth.service").display().to_string();
    let judged = analyze(&["security", "--offline=true", "--no-pager", &unit]).expect("it is there");
    let measured = number_after(&String::from_utf8_lossy(&judged.stdout), SCORE).unwrap_or_else(|| panic!("no score: {judged:?}"));
    let document = read("docs/service.md");
    let told = number_after(&document, SCORE).expect("docs/service.md has the score");
    assert!(measured <= told, "the unit's score is {measured}, worse than the {told} of docs/service.md");
    let told_of = number_after(&document, VERSION).expect("docs/service.md says of which systemd the score is");
    if told_of as u32 != version {
        eprintln!("only compared loosely: docs/service.md is about systemd {told_of}, here is {version}, which may weigh otherwise");
        return;
    }
    assert_eq!(told, measured, "docs/service.md and the unit have different scores");
    let listed = analyze(&["security", "--offline=true", "--no-pager", "--json=short", &unit]).expect("it is there");
    let listed: Value = serde_json::from_slice(&listed.stdout).expect("it is JSON");
    let open = listed.as_array().expect("a list").iter().filter(|line| !line["exposure"].is_null());
    let open: BTreeSet<String> = open.map(|line| line["name"].as_str().expect("a name").into()).collect();
    assert!(!open.is_empty(), "a daemon that serves block devices has openings");
    assert_eq!(openings_told(&document), open, "left: the table of docs/service.md; right: what systemd-analyze finds open");
}
