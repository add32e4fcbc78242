//! `hearth config`: checks the file, shows what holds, prints the default file.

use super::settings::{self, Flags};
use super::{Config, SYSTEM_FILE, choose, document, read_file};
use crate::cli::ConfigCommand;
use crate::commands::{print, to_json};
use crate::failure::Failure;
use crate::table::{self, Align};
use records::places::Surroundings;
use std::path::{Path, PathBuf};

/// Carries out `hearth config ...`.
///
/// # Errors
/// With the sentence to print; status 2 for a file with problems.
pub fn config(command: &ConfigCommand, flags: &Flags, file: Option<&Path>, json: bool) -> Result<(), Failure> {
    match command {
        ConfigCommand::Check { file: own } => check(own.as_deref().or(file), json),
        ConfigCommand::Show => show(flags, file, json),
        ConfigCommand::Default => print(&document::default_file()),
    }
}

fn check(file: Option<&Path>, json: bool) -> Result<(), Failure> {
    let none = || Failure::usage(format!("there is no {SYSTEM_FILE}"), "name a file, or create one with `hearth config default`");
    let path: PathBuf = choose(file).ok_or_else(none)?;
    let (_, problems) = read_file(&path)?;
    if json {
        print(&to_json(&problems))?;
    } else {
        let lines: String = problems.iter().map(|problem| format!("{}: {problem}\n", path.display())).collect();
        print(if problems.is_empty() { "no problems\n" } else { &lines })?;
    }
    let remedy = match problems.len() {
        0 => return Ok(()),
        1 => "fix it and check again",
        _ => "fix them and check again",
    };
    Err(Failure::usage(format!("{} has {}", path.display(), types::counted(problems.len() as u64, "problem")), remedy))
}

fn show(flags: &Flags, file: Option<&Path>, json: bool) -> Result<(), Failure> {
    let config = Config::load(file)?;
    let log_variable = std::env::var(settings::LOG_VARIABLE).ok();
    let shown = settings::effective(flags, &config, &Surroundings::of_process(), log_variable.as_deref());
    if json {
        return print(&to_json(&shown));
    }
    let head = [("KEY", Align::Left), ("VALUE", Align::Left), ("FROM", Align::Left)];
    let rows: Vec<_> = shown.into_iter().map(|e| vec![e.key.to_string(), e.value, e.from]).collect();
    print(&table::layout(&head, &rows))
}
