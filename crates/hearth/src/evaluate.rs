//! `hearth evaluate` is a program of its own: the daemon that runs as root links no load generator. This process becomes that program.

use crate::cli::Cli;
use crate::failure::Failure;
use clap::CommandFactory;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;
use terminal::program::{EVALUATE, EVALUATE_PACKAGED, HEARTH_PATH, find};

/// The word that does not go along.
const WORD: &str = "evaluate";

/// Runs it in place of this program, with the same options; the command line is known to be sound.
///
/// # Errors
/// If it is not there, or cannot be run.
pub fn become_evaluate() -> Result<(), Failure> {
    let program = find(EVALUATE, EVALUATE_PACKAGED).ok_or_else(|| {
        Failure::failed(
            format!(
                "`hearth {WORD}` needs the program {EVALUATE}, which is neither beside this one nor at {EVALUATE_PACKAGED} nor in PATH"
            ),
            "install the Debian package, or build it with `make evaluate`",
        )
    })?;
    let mut command = Command::new(&program);
    command.args(passed_on(std::env::args_os().skip(1)));
    if let Ok(own) = std::env::current_exe() {
        command.env(HEARTH_PATH, own);
    }
    let error = command.exec();
    Err(Failure::failed(format!("{} cannot be run ({error})", program.display()), "build or install it again"))
}

/// All words of a command line but the command `evaluate` itself: options may stand before it, and an option's value may be the same word.
fn passed_on(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let definition = Cli::command();
    let takes_value = |word: &OsString| {
        let name = word.to_str().and_then(|word| word.strip_prefix("--"));
        definition.get_arguments().any(|arg| arg.get_long().is_some() && arg.get_long() == name && arg.get_action().takes_values())
    };
    let mut words: Vec<OsString> = words.collect();
    let is_command = |at: &usize| words[*at] == WORD && (*at == 0 || !takes_value(&words[at - 1]));
    if let Some(at) = (0..words.len()).find(is_command) {
        words.remove(at);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_command_itself_stays_here() {
        let passed = |line: &str| passed_on(line.split(' ').map(OsString::from)).join(&OsString::from(" "));
        for (line, rest) in [
            ("evaluate list", "list"),
            ("--json evaluate list", "--json list"),
            ("--state evaluate evaluate report evaluate", "--state evaluate report evaluate"),
            ("--state=evaluate evaluate --json list", "--state=evaluate --json list"),
        ] {
            assert_eq!(passed(line), OsString::from(rest), "{line}");
        }
    }
}
