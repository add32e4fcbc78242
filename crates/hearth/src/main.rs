//! The `hearth` binary: the daemon and the command line.

mod check;
mod cli;
mod commands;
mod content_figures;
mod content_measure;
mod failure;
mod model;
mod progress;
mod quantity;
mod replay;
mod request;
mod serve;
mod show;
mod stats;
mod table;
mod why;

use clap::Parser;
use clap::error::ErrorKind;
use cli::{Cli, Command, Content, Pool, Volume};
use commands::Session;
use control::client::Client;
use control::places::{Places, Surroundings};
use failure::Failure;
use progress::Interrupt;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: runtime::HugePages = runtime::HugePages;

fn main() -> ExitCode {
    let result = parse().and_then(|cli| match cli {
        Some(cli) => run(&cli),
        None => Ok(()),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("hearth: {}", failure.message);
            ExitCode::from(failure.status)
        }
    }
}

/// Reads the command line; `None` if help or the version was asked for and printed.
fn parse() -> Result<Option<Cli>, Failure> {
    match Cli::try_parse() {
        Ok(cli) => Ok(Some(cli)),
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            commands::print(&error.render().to_string())?;
            Ok(None)
        }
        Err(error) => Err(usage(&error)),
    }
}

/// clap's report as one sentence.
fn usage(error: &clap::Error) -> Failure {
    let words: Vec<String> = std::env::args().skip(1).take_while(|a| a.starts_with(|c: char| c.is_ascii_lowercase())).take(2).collect();
    let known = |word: &&String| ["serve", "pool", "volume", "why", "stats", "model", "replay", "content"].contains(&word.as_str());
    let command = words.first().filter(known).map_or(String::new(), |w| format!(" {w}"));
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return Failure::usage("no command was given", &format!("see `hearth{command} --help`"));
    }
    let text = error.render().to_string();
    let about = text.split("\n\nUsage:").next().unwrap_or(&text);
    let lines: Vec<&str> = about.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    let sentence = lines.join(" ").trim_start_matches("error: ").replace("  ", " ");
    Failure::usage(sentence, &format!("see `hearth{command} --help`"))
}

fn run(cli: &Cli) -> Result<(), Failure> {
    let places = Places::choose(cli.state.clone(), cli.socket.clone(), &Surroundings::of_process());
    let session = || -> Result<Session, Failure> {
        let interrupt = Interrupt::install().map_err(|e| Failure::failed(format!("Ctrl-C cannot be watched ({e})"), ""))?;
        Ok(Session { client: Client::new(&places.socket), json: cli.json, interrupt })
    };
    match &cli.command {
        Command::Serve(options) => serve::serve(&places, options).map_err(|f| f.cannot("serve")),
        Command::Pool(command @ Pool::Check { path }) => check::check(path, cli.json).map_err(|f| f.cannot(&pool_action(command))),
        Command::Pool(command) => session()?.pool(command).map_err(|f| f.cannot(&pool_action(command))),
        Command::Volume(command) => session()?.volume(command).map_err(|f| f.cannot(&volume_action(command))),
        Command::Why { volume, place } => session()?.why(volume, place).map_err(|f| f.cannot(&format!("look into volume \"{}\"", shown(volume)))),
        Command::Stats { name, watch } => session()?.stats(name.as_deref(), *watch).map_err(|f| f.cannot("show counters")),
        Command::Model { set, file, export } => {
            model::model(set, file, export, &places.socket, cli.json).map_err(|f| f.cannot("export the model"))
        }
        Command::Content(Content::Measure { paths, memory }) => {
            content_measure::measure(paths, memory, cli.json).map_err(|f| f.cannot("measure"))
        }
        Command::Replay(options) => replay::replay(options, cli.json).map_err(|f| f.cannot("replay the trace")),
    }
}

fn shown(name: &str) -> String {
    name.chars().take(64).flat_map(char::escape_debug).collect()
}

fn pool_action(command: &Pool) -> String {
    match command {
        Pool::Create { name, .. } => format!("create pool \"{}\"", shown(name)),
        Pool::List => "list pools".into(),
        Pool::Show { name } => format!("show pool \"{}\"", shown(name)),
        Pool::Set { name, .. } => format!("change pool \"{}\"", shown(name)),
        Pool::Destroy { name, .. } => format!("destroy pool \"{}\"", shown(name)),
        Pool::Replace { name, .. } => format!("replace the SSD of pool \"{}\"", shown(name)),
        Pool::Check { path } => format!("check {}", shown(path)),
    }
}

fn volume_action(command: &Volume) -> String {
    let (verb, name) = match command {
        Volume::Add { name, .. } => ("add", name),
        Volume::List => return "list volumes".into(),
        Volume::Show { name } => ("show", name),
        Volume::Set { name, .. } => ("change", name),
        Volume::Destage { name } => ("destage", name),
        Volume::Warm { name, .. } => ("warm", name),
        Volume::Remove { name, .. } => ("remove", name),
    };
    format!("{verb} volume \"{}\"", shown(name))
}
