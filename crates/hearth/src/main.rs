//! The `hearth` binary: the daemon and the command line.

// What prints by these fails where nobody reads: `commands::print` and `logs::say` do not.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod attach;
mod certificates;
mod check;
mod cli;
mod commands;
mod complete;
mod config;
mod content_figures;
mod content_measure;
mod devices;
mod disks;
mod evaluate;
mod events;
mod exporters;
mod generate;
mod import;
mod insight;
mod jobs;
mod keeping;
mod logs;
mod model;
mod objects;
mod outlet;
mod progress;
mod recipes;
mod replay;
mod request;
mod rescue;
mod sampling;
mod serve;
mod service;
mod shares;
mod show;
#[cfg(test)]
mod snapshot;
mod stats;
mod stream_rules;
mod tokens;
mod top;
mod units;
mod usage;
mod watching;
mod why;

use api::client::Client;
use certificates::Pki;
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches};
use cli::{Analysis, App, Cli, Command, ConfigCommand, Content, Disk, Job, Object, Pool, Serve, Share, Token, Volume};
use commands::Session;
use config::settings::Flags;
use generate::Generate;
use records::places::Places;
use rescue::Rescue;
use std::process::ExitCode;
use terminal::failure::Failure;
use terminal::interrupt::Interrupt;
use terminal::options::with_negatives;
// What most rooms use, under the names of this program's own rooms.
use terminal::{failure, quantity, signals, table};

#[global_allocator]
static ALLOCATOR: runtime::HugePages = runtime::HugePages;

fn main() -> ExitCode {
    complete::answer_shell();
    let result = parse().and_then(|cli| match cli {
        Some(cli) => run(&cli),
        None => Ok(()),
    });
    let code = match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            logs::say(format_args!("hearth: {}", failure.message));
            ExitCode::from(failure.status)
        }
    };
    logs::finish();
    code
}

/// Reads the command line; `None` if help or the version was asked for and printed.
fn parse() -> Result<Option<Cli>, Failure> {
    match with_negatives(Cli::command()).try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => Ok(Some(cli)),
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            commands::print(&error.render().to_string())?;
            Ok(None)
        }
        Err(error) => {
            // Without a command its help is what is needed.
            if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
                commands::print(&error.render().to_string())?;
            }
            Err(usage::failure(&error))
        }
    }
}

fn run(cli: &Cli) -> Result<(), Failure> {
    let flags = Flags { state: cli.everywhere.state.clone(), socket: cli.everywhere.socket.clone(), ..Flags::default() };
    let file = cli.everywhere.config.as_deref();
    // These tell by themselves what is wrong with it.
    if !matches!(cli.command, Command::Serve(_) | Command::Config(_)) {
        file.map_or(Ok(()), config::check_given)?;
    }
    let places = config::client_places(cli.everywhere.state.clone(), cli.everywhere.socket.clone(), file);
    let session = || -> Result<Session, Failure> {
        let interrupt = Interrupt::install().map_err(|e| Failure::failed(format!("Ctrl-C cannot be watched ({e})"), ""))?;
        Ok(Session { client: Client::new(&places.socket).telling(|told| logs::say(told)), json: cli.everywhere.json, interrupt })
    };
    match &cli.command {
        Command::Serve(options) => {
            let Serve { reactors, listen, allow_remote, .. } = *options;
            serve::serve(&Flags { reactors, listen, allow_remote, ..flags }, file).map_err(|f| f.cannot("serve"))
        }
        Command::Top => top::top(&session()?).map_err(|f| f.cannot("show what moves")),
        Command::Config(command) => {
            config::command::config(command, &flags, file, cli.everywhere.json).map_err(|f| f.cannot(config_action(command)))
        }
        Command::Completions { shell } => generate::completions(*shell),
        Command::Generate(Generate::Man { directory }) => generate::man(directory).map_err(|f| f.cannot("make manual pages")),
        Command::Generate(Generate::Units { directory, fstab }) => {
            units::generate(directory, fstab, &places.state_directory).map_err(|f| f.cannot("make units"))
        }
        Command::Pool(command @ Pool::Check { pool }) if pool.contains('/') => {
            check::check(pool, cli.everywhere.json).map_err(|f| f.cannot(&pool_action(command)))
        }
        Command::Pool(command) => session()?.pool(command).map_err(|f| f.cannot(&pool_action(command))),
        Command::Disk(command) => session()?.disk(command).map_err(|f| f.cannot(&disk_action(command))),
        Command::Volume(command) => session()?.volume(command).map_err(|f| f.cannot(&volume_action(command))),
        Command::Share(command) => session()?.share(command).map_err(|f| f.cannot(&share_action(command))),
        Command::Attach(attach) => session()?.attach(attach).map_err(|f| f.cannot(&format!("attach {}", shown_path(&attach.device)))),
        Command::Detach { name } => session()?.detach(name).map_err(|f| f.cannot(&format!("detach volume \"{}\"", shown(name)))),
        Command::Advise(advise) => session()?.advise(advise).map_err(|f| f.cannot("advise")),
        Command::Analysis(command) => session()?.analysis(command).map_err(|f| f.cannot(&analysis_action(command))),
        Command::App(command) => session()?.app(command).map_err(|f| f.cannot(app_action(command))),
        Command::Object(command) => session()?.object(command).map_err(|f| f.cannot(object_action(command))),
        Command::Stream(command) => session()?.stream(command).map_err(|f| f.cannot(command.what())),
        Command::Devices => session()?.devices().map_err(|f| f.cannot("list devices")),
        Command::Job(command) => session()?.job(command).map_err(|f| f.cannot(&job_action(command))),
        Command::Events(events) => session()?.events(events).map_err(|f| f.cannot("show events")),
        Command::Why { volume, place } => {
            session()?.why(volume, place).map_err(|f| f.cannot(&format!("look into volume \"{}\"", shown(volume))))
        }
        Command::Stats { name, watch } => session()?.stats(name.as_deref(), *watch).map_err(|f| f.cannot("show counters")),
        Command::Model { set, file, export, sector_size } => {
            model::model(set, file, export, *sector_size, &places.socket, cli.everywhere.json).map_err(|f| f.cannot("export the model"))
        }
        Command::Content(Content::Measure { paths, memory }) => {
            content_measure::measure(paths, memory, cli.everywhere.json).map_err(|f| f.cannot("measure"))
        }
        Command::Evaluate(_) => evaluate::become_evaluate(),
        Command::Console => session()?.console().map_err(|f| f.cannot("open the console")),
        Command::Token(command) => session()?.token(command).map_err(|f| f.cannot(&token_action(command))),
        Command::Pki(command) => {
            certificates::pki(command, &places.state_directory, cli.everywhere.json).map_err(|f| f.cannot(&pki_action(command)))
        }
        Command::UdevName { device } => keeping::udev_name(&places, device).map_err(|f| f.cannot("name the device")),
        Command::UblkProbe => ublk::support::probe().map_err(|e| Failure::failed(e.to_string(), "")),
        Command::Rescue(options) => rescue(options, &places),
        Command::Keeper { keeper_socket, daemon_socket } => {
            keeping::keep(keeper_socket, daemon_socket.as_deref()).map_err(|f| f.cannot("hold exports"))
        }
        Command::Openapi => commands::print(&rest::openapi::document()),
        Command::Replay(options) => replay::replay(options, cli.everywhere.json).map_err(|f| f.cannot("replay the trace")),
    }
}

/// What is asked for of a daemon that was killed: by a person, or by processes of its own.
fn rescue(options: &Rescue, places: &Places) -> Result<(), Failure> {
    match options {
        Rescue { serve: true, .. } => rescue::serve(places).map_err(|f| f.cannot("serve attached volumes")),
        Rescue { after_stop: true, .. } => rescue::rescue_after_stop(places).map_err(|f| f.cannot("end the exports")),
        Rescue { .. } => rescue::rescue(places).map_err(|f| f.cannot("end the exports")),
    }
}

fn config_action(command: &ConfigCommand) -> &'static str {
    match command {
        ConfigCommand::Check { .. } => "accept the configuration",
        ConfigCommand::Show => "show the configuration",
        ConfigCommand::Default => "print the configuration",
    }
}

fn shown(name: &str) -> String {
    name.chars().take(64).flat_map(char::escape_debug).collect()
}

/// A path, which is seen also if it is empty.
fn shown_path(path: &str) -> String {
    if path.is_empty() { "\"\"".into() } else { shown(path) }
}

fn pool_action(command: &Pool) -> String {
    match command {
        Pool::Create { name, .. } => format!("create pool \"{}\"", shown(name)),
        Pool::Import { ssd: Some(ssd), look: true, .. } => format!("show what is on {}", shown_path(ssd)),
        Pool::Import { ssd: Some(ssd), .. } => format!("take in the pool on {}", shown_path(ssd)),
        Pool::Import { ssd: None, .. } => "list the pools that can be taken in".into(),
        Pool::List => "list pools".into(),
        Pool::Show { name } => format!("show pool \"{}\"", shown(name)),
        Pool::Set { name, .. } => format!("change pool \"{}\"", shown(name)),
        Pool::Start { name } => format!("start pool \"{}\"", shown(name)),
        Pool::TakeBack { name } => format!("take room back for the cache of pool \"{}\"", shown(name)),
        Pool::Destroy { name, .. } => format!("destroy pool \"{}\"", shown(name)),
        Pool::Replace { name, .. } => format!("replace the SSD of pool \"{}\"", shown(name)),
        Pool::Check { pool } if pool.contains('/') => format!("check {}", shown(pool)),
        Pool::Check { pool } => format!("check pool \"{}\"", shown(pool)),
    }
}

fn analysis_action(command: &Analysis) -> String {
    match command {
        Analysis::Start(start) => format!("start analysis \"{}\"", shown(&start.name)),
        Analysis::List => "list analyses".into(),
        Analysis::Show { name } => format!("show analysis \"{}\"", shown(name)),
        Analysis::Stop { name } => format!("stop analysis \"{}\"", shown(name)),
        Analysis::Forget { name } => format!("forget analysis \"{}\"", shown(name)),
    }
}

fn app_action(command: &App) -> &'static str {
    match command {
        App::List { .. } => "list applications",
        App::Show { .. } => "show the application",
        App::Discover { .. } => "look for applications",
        App::Connect { .. } => "connect to the server of the application",
        App::Disconnect { .. } => "disconnect from the server of the application",
    }
}

fn object_action(command: &Object) -> &'static str {
    match command {
        Object::List(_) => "list objects",
        Object::Show { .. } => "show the object",
        Object::Set(_) => "set the policy",
        Object::Preload(_) => "preload objects",
    }
}

fn job_action(command: &Job) -> String {
    match command {
        Job::List => "list jobs".into(),
        Job::Show { id } => format!("show job {id}"),
        Job::Cancel { id } => format!("stop job {id}"),
        Job::Resume { id } => format!("resume job {id}"),
    }
}

fn disk_action(command: &Disk) -> String {
    match command {
        Disk::Create { name, .. } => format!("make disk \"{}\"", shown(name)),
        Disk::List => "list disks".into(),
        Disk::Show { name, .. } => format!("show disk \"{}\"", shown(name)),
        Disk::Resize { name, .. } => format!("change the size of disk \"{}\"", shown(name)),
        Disk::Set { name, .. } => format!("change how disk \"{}\" is offered", shown(name)),
        Disk::Remove { name, .. } => format!("remove disk \"{}\"", shown(name)),
    }
}

fn volume_action(command: &Volume) -> String {
    let (verb, name) = match command {
        Volume::Add { name, .. } => ("add", name),
        Volume::List => return "list volumes".into(),
        Volume::Show { name, .. } => ("show", name),
        Volume::Set { name, .. } => ("change", name),
        Volume::Rename { name, .. } => ("rename", name),
        Volume::Start { name } => ("start", name),
        Volume::Stop { name, .. } => ("stop", name),
        Volume::DropCache { name } => ("drop the cache of", name),
        Volume::Grow { name } => ("grow", name),
        Volume::Destage { name } => ("destage", name),
        Volume::Warm { name, .. } => ("warm", name),
        Volume::Wait { name, .. } => ("wait for", name),
        Volume::Remove { name, .. } => ("remove", name),
    };
    format!("{verb} volume \"{}\"", shown(name))
}

fn share_action(command: &Share) -> String {
    match command {
        Share::Add { volume, .. } => format!("share \"{}\"", shown(volume)),
        Share::List => "list shares".into(),
        Share::Show { volume, .. } => format!("show the share of \"{}\"", shown(volume)),
        Share::Remove { volume, .. } => format!("remove the share of \"{}\"", shown(volume)),
    }
}

fn pki_action(command: &Pki) -> String {
    match command {
        Pki::Init { .. } => "create the authority".into(),
        Pki::Issue { name, .. } => format!("issue a certificate to \"{}\"", shown(name)),
    }
}

fn token_action(command: &Token) -> String {
    match command {
        Token::Create { name, .. } => format!("make token \"{}\"", shown(name)),
        Token::List => "list tokens".into(),
        Token::Revoke { name } => format!("revoke token \"{}\"", shown(name)),
    }
}
