//! What is wrong with a command line, as one sentence in the words of all others.

use crate::cli::Cli;
use crate::failure::Failure;
use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// The option parser's report as one sentence, with the help to read.
pub fn failure(error: &clap::Error) -> Failure {
    let command = command_of(std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()));
    Failure::usage(sentence(error), &format!("see `hearth{command} --help`"))
}

/// The command that a line begins with, as far as it is one: " pool create".
fn command_of(words: impl Iterator<Item = String>) -> String {
    let mut known = Cli::command();
    let mut text = String::new();
    for word in words {
        let Some(next) = known.get_subcommands().find(|sub| !sub.is_hide_set() && sub.get_name() == word).cloned() else { break };
        text += &format!(" {word}");
        known = next;
    }
    text
}

fn sentence(error: &clap::Error) -> String {
    let of = |kind: ContextKind| error.get(kind).map(words).unwrap_or_default();
    let one = |kind: ContextKind| of(kind).join(" ");
    let meant = |kind: ContextKind| {
        // The likeliest is the last.
        of(kind).last().map(|near| format!("; write {near} if that is meant")).unwrap_or_default()
    };
    let (argument, value) = (one(ContextKind::InvalidArg), shown(&one(ContextKind::InvalidValue)));
    match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => "no command was given".into(),
        ErrorKind::InvalidSubcommand => {
            let word = shown(&one(ContextKind::InvalidSubcommand));
            format!("there is no command \"{word}\"{}", meant(ContextKind::SuggestedSubcommand))
        }
        ErrorKind::UnknownArgument if argument.starts_with('-') => {
            format!("there is no option {}{}", shown(&argument), meant(ContextKind::SuggestedArg))
        }
        ErrorKind::UnknownArgument => format!("\"{}\" is one word too many", shown(&argument)),
        ErrorKind::MissingRequiredArgument => {
            let missing = of(ContextKind::InvalidArg);
            let verb = if missing.len() == 1 { "is" } else { "are" };
            format!("{} {verb} missing", missing.join(", "))
        }
        ErrorKind::ArgumentConflict => {
            let other = of(ContextKind::PriorArg);
            if other.is_empty() || other.contains(&argument) {
                format!("{argument} is given twice")
            } else {
                format!("{argument} cannot be given together with {}", other.join(", "))
            }
        }
        ErrorKind::InvalidValue if value.is_empty() => format!("{argument} has no value"),
        ErrorKind::InvalidValue => {
            let valid = of(ContextKind::ValidValue).join(", ");
            format!("{argument}: \"{value}\" is not a value of it; use one of {valid}")
        }
        ErrorKind::ValueValidation => format!("{argument}: \"{value}\" {}", cause(error)),
        ErrorKind::TooManyValues => format!("{argument} takes no value, and \"{value}\" is one; write {argument} alone"),
        ErrorKind::InvalidUtf8 => "a word is not valid UTF-8".into(),
        _ => first_line(error),
    }
}

/// Why a value is none.
fn cause(error: &clap::Error) -> String {
    let source = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    match source.as_str() {
        "" => "is not a value of it".into(),
        "invalid digit found in string" | "cannot parse integer from empty string" => "is not a whole number".into(),
        "invalid socket address syntax" => "is not an address with a port; write for instance 127.0.0.1:7420".into(),
        "invalid float literal" | "cannot parse float from empty string" => "is not a number".into(),
        other if other.starts_with("number too") => "is beyond what can be counted".into(),
        other => match other.rsplit_once(" is not in ").and_then(|(_, bounds)| bounds.split_once("..=")) {
            Some((least, most)) => format!("is not a whole number from {least} to {most}"),
            None => format!("is not a value of it ({other})"),
        },
    }
}

/// What the parser itself says, on one line.
fn first_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let about = text.split("\n\n").next().unwrap_or(&text);
    let lines: Vec<&str> = about.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join(" ").trim_start_matches("error: ").to_owned()
}

fn words(value: &ContextValue) -> Vec<String> {
    match value {
        ContextValue::String(text) => vec![text.clone()],
        ContextValue::Strings(texts) => texts.clone(),
        ContextValue::StyledStr(text) => vec![text.to_string()],
        ContextValue::StyledStrs(texts) => texts.iter().map(ToString::to_string).collect(),
        _ => Vec::new(),
    }
}

/// What somebody wrote, short and without control characters.
fn shown(text: &str) -> String {
    text.chars().take(64).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &[&str]) -> String {
        let error = Cli::command().try_get_matches_from([&["hearth"], line].concat()).expect_err("it is wrong");
        sentence(&error)
    }

    #[test]
    fn each_kind_of_mistake_is_one_sentence_in_our_words() {
        for (line, sentence) in [
            (&["pool", "crate"][..], "there is no command \"crate\"; write create if that is meant"),
            (&["volume", "lst"], "there is no command \"lst\"; write list if that is meant"),
            (&["pool", "create", "p", "--sssd", "/x"], "there is no option --sssd; write --ssd if that is meant"),
            (&["pool", "create"], "--ssd <PATH>, <NAME> are missing"),
            (&["pool", "create", "p"], "--ssd <PATH> is missing"),
            (&["pool", "create", "p", "q", "--ssd", "/x"], "\"q\" is one word too many"),
            (&["pool", "create", "p", "--ssd"], "--ssd <PATH> has no value"),
            (&["pool", "create", "p", "--ssd", "/x", "--ssd", "/y"], "--ssd <PATH> is given twice"),
            (&["volume", "set", "v", "--read-only", "--read-write"], "--read-only cannot be given together with --read-write"),
            (&["job", "cancel", "x"], "<ID>: \"x\" is not a whole number"),
            (&["volume", "wait", "v", "--limit=-1"], "--limit <SECONDS>: \"-1\" is not a whole number from 0 to 4294967295"),
            (
                &["serve", "--listen", "7420"],
                "--listen <ADDRESS>: \"7420\" is not an address with a port; write for instance 127.0.0.1:7420",
            ),
            (&["stats", "--watch=1"], "--watch takes no value, and \"1\" is one; write --watch alone"),
            (&["completions", "tcsh"], "<SHELL>: \"tcsh\" is not a value of it; use one of bash, zsh, fish"),
        ] {
            assert_eq!(said(line), sentence, "{line:?}");
        }
    }

    #[test]
    fn the_help_to_read_is_that_of_the_command() {
        let of = |line: &str| command_of(line.split(' ').map(str::to_owned));
        assert_eq!(of("pool create p --ssd /x"), " pool create");
        assert_eq!(of("frobnicate pool"), "");
        assert_eq!(of("generate man"), "", "what is hidden is not told");
    }
}
