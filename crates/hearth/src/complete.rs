//! What a shell offers at a tab: commands, options, their values, and names that the daemon knows.
//!
//! The shell calls this program at each tab, with the line so far (by the library's own protocol, in the environment).

use crate::cli::{Cli, Shell};
use crate::config;
use clap::{Command, CommandFactory, ValueHint};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::{CompleteEnv, EnvCompleter, Shells};
use control::client::Client;
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
}

/// What the argument `id` of the command `path` ("pool create") may be, where more is known than that it is a word.
fn values_of(path: &str, id: &str) -> Option<Values> {
    let (room, verb) = path.split_once(' ').unwrap_or((path, ""));
    let is_new = matches!(verb, "create" | "add" | "issue") || path == "analysis start";
    Some(match id {
        "mode" => Values::Words(&["write-through", "write-around", "write-back", "pass-through"]),
        "admission" => Values::Words(&["always", "second-touch"]),
        "content" => Values::Words(&["off", "fast", "dense", "auto"]),
        "on_ssd_loss" => Values::Words(&["stop", "continue"]),
        "export" => Values::Words(&["block", "ublk", "loop", "loop:fast", "nbd", "vhost-user"]),
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
            "advise" => Values::Names(WATCHED),
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
    });
    command.mut_subcommands(|sub| {
        let below = if path.is_empty() { sub.get_name().to_owned() } else { format!("{path} {}", sub.get_name()) };
        with_values(sub, &below)
    })
}

/// Names in lists of the daemon. None where it does not answer at once: a tab is no command.
fn names(lists: &'static [&'static str]) -> Vec<String> {
    let socket = config::client_places(None, None, None).socket;
    let (done, asked) = channel();
    std::thread::spawn(move || {
        let client = Client::new(&socket);
        let list = |list: &&str| client.get::<Vec<serde_json::Value>>(list).unwrap_or_default();
        let name = |object: serde_json::Value| object.get("name").and_then(|name| name.as_str()).map(str::to_owned);
        // Who asked may be gone.
        drop(done.send(lists.iter().flat_map(list).filter_map(name).collect()));
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
