//! What a shell offers at a tab: commands, options, their values, and names that the daemon knows.
//!
//! The shell calls this program at each tab, with the line so far (by the library's own protocol, in the environment).

use crate::cli::{Cli, Shell};
use crate::config;
use api::client::Client;
use api::{DeviceState, DeviceView, JobState, JobView};
use clap::{Command, CommandFactory, ValueHint};
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter};
use clap_complete::env::{CompleteEnv, EnvCompleter, Shells};
use std::ffi::OsStr;
use std::sync::LazyLock;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Environment variable that asks for completions instead of a command.
const VARIABLE: &str = "HEARTH_COMPLETE";
/// How long a tab waits for the daemon.
const PATIENCE: Duration = Duration::from_millis(500);

/// Lists of the API that names come from.
const POOLS: &[&str] = &["/pools"];
const VOLUMES: &[&str] = &["/volumes"];
const DISKS: &[&str] = &["/disks"];
const VOLUMES_AND_DISKS: &[&str] = &["/volumes", "/disks"];
const EVERYTHING: &[&str] = &["/volumes", "/disks", "/pools"];
const ANALYSES: &[&str] = &["/analyses"];
const WATCHED: &[&str] = &["/volumes", "/pools", "/analyses"];
/// As many as somebody may look through at a tab, those that are read most.
const OBJECTS: &[&str] = &["/objects?limit=1000"];
const JOBS: &[&str] = &["/jobs"];
const DEVICES: &[&str] = &["/devices"];

/// Kinds of objects, and models of disks.
const KINDS: &[&str] = &["table", "index", "lob", "toast", "undo", "redo", "wal", "binlog", "doublewrite", "temp", "dictionary"];
const MODELS: &[&str] = &["7k2", "7k2-wce", "15k", "7k2-raid5x3-short", "array", "gbe-san", "sata-ssd-2012"];

static EXPORTS: LazyLock<Vec<&'static str>> = LazyLock::new(export::ways::words);

/// Answers a shell, if it is one that asks, and ends the process then.
pub fn answer_shell() {
    let shells: [&dyn EnvCompleter; 3] = [&clap_complete::env::Bash, &clap_complete::env::Zsh, &clap_complete::env::Fish];
    CompleteEnv::with_factory(definition).var(VARIABLE).shells(Shells(&shells)).complete();
}

/// What makes a shell ask.
pub fn registration(shell: Shell) -> String {
    let completer: &dyn EnvCompleter = match shell {
        Shell::Bash => &clap_complete::env::Bash,
        Shell::Zsh => &clap_complete::env::Zsh,
        Shell::Fish => &clap_complete::env::Fish,
    };
    let mut bytes = Vec::new();
    completer.write_registration(VARIABLE, "hearth", "hearth", "hearth", &mut bytes).expect("a vector takes all");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The command line, with what its values may be.
pub fn definition() -> Command {
    with_values(Cli::command(), "")
}

/// What an argument may be.
enum Values {
    /// One of these words.
    Words(&'static [&'static str]),
    /// A name in one of these lists of the daemon.
    Names(&'static [&'static str]),
    /// A file or device.
    Path,
    /// A device whose pool can be taken in, or a file.
    PoolPath,
    /// VOLUME=PATH.
    VolumePath,
    /// The number of a job in such a state.
    Job(fn(&JobState) -> bool),
}

/// What the argument `id` of the command `path` ("pool create") may be, where more is known than that it is a word.
fn values_of(path: &str, id: &str) -> Option<Values> {
    let (room, verb) = path.split_once(' ').unwrap_or((path, ""));
    let is_new = matches!(verb, "create" | "add" | "issue") || path == "analysis start";
    Some(match id {
        "ssd" if path == "pool import" => Values::PoolPath,
        "backing" if path == "pool import" => Values::VolumePath,
        "id" if path == "job cancel" => Values::Job(is_running),
        "id" if path == "job resume" => Values::Job(can_be_resumed),
        "id" if path == "job show" => Values::Job(|_| true),
        "on_blank_ssd" => Values::Words(&["stop", "make"]),
        "kind" => Values::Words(KINDS),
        "sort" => Values::Words(&["heat", "gain", "size", "name"]),
        "class" => Values::Words(&["application", "scan", "backup", "replication", "maintenance"]),
        "set" | "model" => Values::Words(MODELS),
        "object" | "objects" => Values::Names(OBJECTS),
        "mode" => Values::Words(&["write-through", "write-around", "write-back", "pass-through"]),
        "admission" => Values::Words(&["always", "second-touch"]),
        "content" => Values::Words(&["off", "fast", "dense", "auto"]),
        "atomic" => Values::Words(&["off", "4KiB", "8KiB", "16KiB", "32KiB", "64KiB"]),
        "on_ssd_loss" => Values::Words(&["stop", "continue"]),
        "export" => Values::Words(EXPORTS.as_slice()),
        "severity" => Values::Words(&["info", "warning", "error"]),
        "role" => Values::Words(&["view", "operate"]),
        "tap" => Values::Words(&["auto", "bpf", "tracefs"]),
        "admit" => Values::Words(&["never", "normal", "pinned"]),
        "write" => Values::Words(&["inherit", "around", "through"]),
        "on_scan" => Values::Words(&["hit-only", "normal"]),
        "ssd" | "backing" | "device" | "trace" | "chap" | "login" | "file" | "directory" | "socket" | "state" | "config" | "path"
        | "paths" | "html" | "prices" | "out" => Values::Path,
        "pool" => Values::Names(POOLS),
        "volume" if room == "share" => Values::Names(VOLUMES_AND_DISKS),
        "volume" => Values::Names(VOLUMES),
        "name" if is_new => return None,
        "name" => match room {
            "pool" => Values::Names(POOLS),
            "volume" | "detach" => Values::Names(VOLUMES),
            "disk" => Values::Names(DISKS),
            "stats" | "events" => Values::Names(EVERYTHING),
            "analysis" => Values::Names(ANALYSES),
            "advise" | "stream" => Values::Names(WATCHED),
            _ => return None,
        },
        _ => return None,
    })
}

fn with_values(command: Command, path: &str) -> Command {
    let command = command.mut_args(|arg| match values_of(path, arg.get_id().as_str()) {
        None => arg,
        Some(Values::Path) if arg.get_action().takes_values() => arg.value_hint(ValueHint::AnyPath),
        Some(Values::Path) => arg,
        Some(Values::Words(words)) => {
            arg.add(ArgValueCandidates::new(move || words.iter().map(|word| CompletionCandidate::new(*word)).collect::<Vec<_>>()))
        }
        Some(Values::Names(lists)) => {
            arg.add(ArgValueCandidates::new(move || names(lists).into_iter().map(CompletionCandidate::new).collect::<Vec<_>>()))
        }
        Some(Values::Job(wanted)) => arg.add(ArgValueCandidates::new(move || jobs(wanted))),
        Some(Values::PoolPath) => arg.add(ArgValueCompleter::new(pool_paths)),
        Some(Values::VolumePath) => arg.add(ArgValueCompleter::new(volume_paths)),
    });
    command.mut_subcommands(|sub| {
        let below = if path.is_empty() { sub.get_name().to_owned() } else { format!("{path} {}", sub.get_name()) };
        with_values(sub, &below)
    })
}

/// Names in lists of the daemon.
fn names(lists: &'static [&'static str]) -> Vec<String> {
    let name = |object: &serde_json::Value| Some(object.get("name")?.as_str()?.to_owned());
    listed(lists).iter().filter_map(name).collect()
}

fn is_running(state: &JobState) -> bool {
    *state == JobState::Running
}

fn can_be_resumed(state: &JobState) -> bool {
    matches!(state, JobState::Cancelled | JobState::Failed { .. })
}

/// Numbers of jobs, each with what it does, for shells that show that.
fn jobs(wanted: fn(&JobState) -> bool) -> Vec<CompletionCandidate> {
    let known = listed(JOBS).into_iter().filter_map(|job| serde_json::from_value::<JobView>(job).ok());
    known.filter(|job| wanted(&job.state)).map(|job| job_candidate(&job)).collect()
}

fn job_candidate(job: &JobView) -> CompletionCandidate {
    let what = format!("{} of {}", job.kind.word(), job.volume);
    CompletionCandidate::new(job.id.to_string()).help(Some(what.into()))
}

/// Devices with a pool that the daemon does not know, and any file: an SSD may be one.
fn pool_paths(typed: &OsStr) -> Vec<CompletionCandidate> {
    let begun = typed.to_string_lossy();
    let known = listed(DEVICES).into_iter().filter_map(|device| serde_json::from_value::<DeviceView>(device).ok());
    let is_wanted = |device: &DeviceView| device.state == DeviceState::Pool && device.can_be_ssd && device.path.starts_with(&*begun);
    let candidate = |device: DeviceView| CompletionCandidate::new(device.path).help(Some(device.summary.into()));
    known.filter(is_wanted).map(candidate).chain(PathCompleter::any().complete(typed)).collect()
}

/// Paths behind `VOLUME=`. The volumes themselves stand on an SSD that a tab does not read.
fn volume_paths(typed: &OsStr) -> Vec<CompletionCandidate> {
    let begun = typed.to_string_lossy();
    let Some((volume, path)) = begun.split_once('=') else { return Vec::new() };
    let paths = PathCompleter::any().complete(OsStr::new(path));
    paths.into_iter().map(|found| found.add_prefix(format!("{volume}="))).collect()
}

/// What lists of the daemon hold. Nothing where it does not answer at once: a tab is no command.
fn listed(lists: &'static [&'static str]) -> Vec<serde_json::Value> {
    let socket = config::client_places(None, None, None).socket;
    let (done, asked) = channel();
    std::thread::spawn(move || {
        let client = Client::new(&socket);
        let list = |list: &&str| client.get::<Vec<serde_json::Value>>(list).unwrap_or_default();
        // Who asked may be gone.
        drop(done.send(lists.iter().flat_map(list).collect::<Vec<_>>()));
    });
    asked.recv_timeout(PATIENCE).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a shell would offer behind this line.
    fn offered(line: &str) -> Vec<String> {
        let words: Vec<std::ffi::OsString> = line.split(' ').map(Into::into).collect();
        let last = words.len() - 1;
        let found = clap_complete::engine::complete(&mut definition(), words, last, None).expect("it is a line");
        found.iter().map(|candidate| candidate.get_value().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn commands_options_and_values_are_offered() {
        assert!(offered("hearth vol").contains(&"volume".to_owned()));
        assert!(offered("hearth pool create p --con").contains(&"--content".to_owned()));
        assert_eq!(offered("hearth pool create p --content "), ["off", "fast", "dense", "auto"]);
        assert_eq!(offered("hearth volume set v --mode write-b"), ["write-back"]);
        assert_eq!(offered("hearth completions ")[..3], ["bash", "zsh", "fish"]);
        for line in ["hearth pool set p --on-blank-ssd ", "hearth pool create p --on-blank-ssd "] {
            assert_eq!(offered(line), ["stop", "make"], "{line}");
        }
        assert_eq!(offered("hearth object list --kind to"), ["toast"]);
        assert_eq!(offered("hearth stream rule add --class b"), ["backup"]);
        assert_eq!(offered("hearth model 7k2-w"), ["7k2-wce"]);
        // Another program's, which is not asked.
        assert!(offered("hearth evaluate run --pa").contains(&"--pairs".to_owned()));
    }

    #[test]
    fn models_are_those_that_there_are() {
        assert_eq!(MODELS, device::model::ModelSet::ALL.map(device::model::ModelSet::name));
    }

    #[test]
    fn paths_are_offered_behind_the_volume_that_they_are_of() {
        let place = tempfile::tempdir().expect("room");
        std::fs::write(place.path().join("disk.img"), "").expect("room");
        let begun = format!("{}/di", place.path().display());
        for (line, prefix) in [("hearth pool import ssd.img --backing db=", "db="), ("hearth pool import ", "")] {
            assert_eq!(offered(&format!("{line}{begun}")), [format!("{prefix}{begun}sk.img")], "{line}");
        }
    }

    #[test]
    fn jobs_are_offered_to_whom_they_are_of_use() {
        let failed = JobState::Failed { error: api::error::ControlError::Stopped.cause() };
        assert!(is_running(&JobState::Running) && !is_running(&JobState::Done) && !is_running(&failed));
        assert!(can_be_resumed(&failed) && can_be_resumed(&JobState::Cancelled) && !can_be_resumed(&JobState::Running));
        for verb in ["show", "cancel", "resume"] {
            assert!(matches!(values_of(&format!("job {verb}"), "id"), Some(Values::Job(_))), "{verb}");
        }
        assert!(values_of("advise apply", "id").is_none(), "advice is no job");
    }

    #[test]
    fn every_name_that_is_there_already_can_be_offered() {
        for (path, id) in [
            ("pool show", "name"),
            ("pool destroy", "name"),
            ("volume add", "pool"),
            ("volume start", "name"),
            ("volume rename", "name"),
            ("disk set", "name"),
            ("share add", "volume"),
            ("stats", "name"),
            ("object set", "objects"),
            ("object show", "object"),
        ] {
            assert!(matches!(values_of(path, id), Some(Values::Names(_))), "{path} {id}");
        }
        for (path, id) in [("pool create", "name"), ("volume add", "name"), ("disk create", "name"), ("volume rename", "new_name")] {
            assert!(values_of(path, id).is_none(), "{path} {id}: it is new");
        }
        assert!(matches!(values_of("pool start", "name"), Some(Values::Names(_))));
    }

    #[test]
    fn each_shell_asks_this_program() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let text = registration(shell);
            assert!(text.contains(VARIABLE) && text.contains("hearth"), "{text}");
        }
    }
}
