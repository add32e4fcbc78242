//! The configuration file: `/etc/hearth/hearth.toml`, or the one named by `--config` or `HEARTH_CONFIG`.
//!
//! [`keys`] is the table of all keys; [`read`] and [`value`] check a file against it; [`settings`] lays flags, environment, file and defaults
//! over each other; [`document`] writes the table for people; [`command`] is `hearth config`.

pub mod command;
pub mod document;
pub mod keys;
pub mod read;
pub mod settings;
pub mod value;

use crate::failure::Failure;
use read::{Problem, Values};
use records::places::Surroundings;
use std::path::{Path, PathBuf};

/// The file of the machine's own daemon.
pub const SYSTEM_FILE: &str = "/etc/hearth/hearth.toml";
/// The socket of the machine's own daemon.
const SYSTEM_SOCKET: &str = "/run/hearth/hearth.sock";
/// Environment variable that names another file; empty: none at all.
pub const CONFIG_VARIABLE: &str = "HEARTH_CONFIG";

/// Which file was read, and what it says.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The file; none if there is none.
    pub path: Option<PathBuf>,
    /// Its values.
    pub values: Values,
}

impl Config {
    /// Reads the file that `flag` (`--config`), the environment, or custom names. The system's file is for the system's daemon: one that is run by
    /// somebody else than root does not take it.
    ///
    /// # Errors
    /// Usage, with the first problem and its line.
    pub fn load(flag: Option<&Path>) -> Result<Config, Failure> {
        let own = rustix::process::geteuid().is_root();
        let Some(path) = choose(flag).filter(|path| own || path != Path::new(SYSTEM_FILE)) else { return Ok(Config::default()) };
        let (values, problems) = read_file(&path)?;
        first_problem(&path, &problems)?;
        Ok(Config { path: Some(path), values })
    }

    /// As [`Config::load`], for commands that only want to know where the daemon is: a file that cannot be read or has problems counts for what is
    /// good in it. One that a command line names was checked ([`check_given`]).
    pub fn load_for_clients(flag: Option<&Path>) -> Config {
        let values = choose(flag).and_then(|path| read::text_of(&path).ok()).map(|text| read::parse(&text).0);
        Config { path: None, values: values.unwrap_or_default() }
    }

    /// The value of a key, if the file has it.
    pub fn get(&self, name: &str) -> Option<&value::Value> {
        self.values.get(name).map(|written| &written.value)
    }
}

/// Refuses a file that a command line names and that cannot be used, also where nothing of it is needed.
///
/// # Errors
/// Usage, with the first problem and its line.
pub fn check_given(path: &Path) -> Result<(), Failure> {
    let text = read::text_of(path).map_err(|(problem, remedy)| Failure::usage(format!("{} {problem}", path.display()), &remedy))?;
    first_problem(path, &read::parse(&text).1)
}

fn first_problem(path: &Path, problems: &[Problem]) -> Result<(), Failure> {
    let Some(first) = problems.first() else { return Ok(()) };
    let more = match problems.len() {
        1 => String::new(),
        n => format!(" ({} more: see `hearth config check {}`)", n - 1, path.display()),
    };
    Err(Failure::usage(format!("{}, line {}: {}", path.display(), first.line, first.problem), &format!("{}{more}", first.remedy)))
}

/// Which file counts: the flag's, the environment's, the system's if it is there.
fn choose(flag: Option<&Path>) -> Option<PathBuf> {
    if let Some(path) = flag {
        return Some(path.to_path_buf());
    }
    match std::env::var_os(CONFIG_VARIABLE) {
        Some(path) if path.is_empty() => None,
        Some(path) => Some(path.into()),
        None => Some(PathBuf::from(SYSTEM_FILE)).filter(|path| path.exists()),
    }
}

/// Reads and checks a file, and what it names on this machine.
///
/// # Errors
/// If it is no readable text file.
fn read_file(path: &Path) -> Result<(Values, Vec<Problem>), Failure> {
    let text = read::text_of(path).map_err(|(problem, remedy)| Failure::usage(format!("{} {problem}", path.display()), &remedy))?;
    let (values, mut problems) = read::parse(&text);
    problems.extend(missing(&values));
    problems.sort();
    Ok((values, problems))
}

/// Groups and files that are named and not there.
fn missing(values: &Values) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (name, written) in values {
        let text = written.value.shown();
        let trouble = match keys::find(name).map(|key| key.form) {
            Some(keys::Form::Group) if settings::group_number(&text).is_none() => {
                Some((format!("{name}: there is no group {text} on this machine"), format!("create it with `groupadd --system {text}`")))
            }
            Some(keys::Form::Path) if name.starts_with("api.") && !Path::new(&text).is_file() => {
                Some((format!("{name}: {text} is not a file"), "create it, or choose another".to_string()))
            }
            _ => None,
        };
        problems.extend(trouble.map(|(problem, remedy)| Problem { line: written.line, problem, remedy }));
    }
    problems
}

/// Where the daemon is, for commands that talk to it.
pub fn client_places(state: Option<PathBuf>, socket: Option<PathBuf>, config: Option<&Path>) -> records::places::Places {
    let around = Surroundings::of_process();
    let file = Config::load_for_clients(config);
    let mut places = settings::places(state.clone(), socket.clone(), &file, &around);
    let chosen = state.is_some() || socket.is_some() || around.hearth_state.is_some() || around.hearth_socket.is_some();
    // Who has no daemon of their own means the machine's.
    if !chosen && !places.socket.exists() && Path::new(SYSTEM_SOCKET).exists() {
        places.socket = SYSTEM_SOCKET.into();
    }
    places
}
