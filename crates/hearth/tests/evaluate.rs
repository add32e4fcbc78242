//! `hearth evaluate` becomes the program `hearth-evaluate`, or says what is missing; help and completions need no such program.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// `hearth` alone in a directory, so that what a build left beside it is not found.
fn alone() -> tempfile::TempDir {
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    std::fs::hard_link(env!("CARGO_BIN_EXE_hearth"), place.path().join("hearth")).expect("the same file system");
    place
}

fn hearth(place: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(place.join("hearth"));
    command.args(words).env("PATH", place.join("bin")).env("HEARTH_CONFIG", "").env_remove("HEARTH_PROGRAM");
    command.output().expect("the binary runs")
}

/// A program that says what it was started with, and ends with status 7.
fn program(path: &Path) {
    std::fs::write(path, "#!/bin/sh\nprintf '%s|' \"$0\" \"$@\" \"$HEARTH_PROGRAM\"\nexit 7\n").expect("there is room");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("ours");
}

#[test]
fn the_program_beside_it_gets_all_words_and_its_status_counts() {
    let place = alone();
    let (own, beside) = (place.path().join("hearth"), place.path().join("hearth-evaluate"));
    program(&beside);
    let done = hearth(place.path(), &["--json", "evaluate", "run", "hot spot", "--size", "1GiB"]);
    let expected = format!("{}|--json|run|hot spot|--size|1GiB|{}|", beside.display(), own.display());
    assert_eq!((done.status.code(), String::from_utf8_lossy(&done.stdout)), (Some(7), expected.into()));
}

#[test]
fn it_is_found_in_path_and_else_one_sentence_says_what_to_do() {
    if Path::new("/usr/libexec/hearth/hearth-evaluate").exists() {
        eprintln!("evaluate: SKIPPED, hearth is installed on this machine");
        return;
    }
    let place = alone();
    let missing = hearth(place.path(), &["evaluate", "list"]);
    let said = String::from_utf8_lossy(&missing.stderr);
    assert_eq!((missing.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("hearth-evaluate") && said.contains("make evaluate"), "{said}");
    let bin = place.path().join("bin");
    std::fs::create_dir(&bin).expect("there is room");
    program(&bin.join("hearth-evaluate"));
    assert_eq!(hearth(place.path(), &["evaluate", "list"]).status.code(), Some(7));
}

#[test]
fn help_and_mistakes_are_answered_without_it() {
    let place = alone();
    let help = hearth(place.path(), &["evaluate", "run", "--help"]);
    let text = String::from_utf8_lossy(&help.stdout);
    assert!(help.status.success() && text.contains("hearth evaluate run") && text.contains("--pairs"), "{text}");
    let wrong = hearth(place.path(), &["evaluate", "run", "--pears", "3"]);
    let said = String::from_utf8_lossy(&wrong.stderr);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(said.contains("no option --pears") && said.contains("`hearth evaluate run --help`"), "{said}");
}
