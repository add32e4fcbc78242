//! `hearth-evaluate`, the program behind `hearth evaluate`: suites run, reported and compared.

// What prints by these fails where nobody reads: `terminal::output` does not.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

use api::human;
use clap::{CommandFactory, FromArgMatches, Parser};
use evaluate::catalogue::{Published, SUITES};
use evaluate::load::{Content, Length, Load, Pace, fill, generator, unwatched};
use evaluate::pattern::Pattern;
use evaluate::report::{self, Format, Prices};
use evaluate::result::Settings;
use evaluate::run::{self, Audience, Progress, Wanted};
use evaluate::stage::Stage;
use evaluate::{by_hand, tools};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use terminal::evaluate::{Evaluate, EvaluateLoad, EvaluateRun};
use terminal::failure::{Failure, STATUS_INTERRUPTED};
use terminal::interrupt::Interrupt;
use terminal::options::{Everywhere, with_negatives};
use terminal::output::{print, say, to_json};
use terminal::program::{HEARTH, HEARTH_PACKAGED, HEARTH_PATH, find};
use terminal::quantity;
use terminal::table::{self, Align};

// As in the daemon: one load calls its data path in this process.
#[global_allocator]
static ALLOCATOR: runtime::HugePages = runtime::HugePages;

/// Rerun the tests of published evaluations on this machine, without and with the cache, and write a report
#[derive(Parser, Debug)]
#[command(name = "hearth-evaluate", bin_name = "hearth evaluate", version, max_term_width = 100)]
struct Line {
    /// Options of every command
    #[command(flatten)]
    everywhere: Everywhere,
    /// What to do
    #[command(subcommand)]
    command: Evaluate,
}

fn main() -> ExitCode {
    // `hearth` has read the same words by the same definition: only somebody who starts this program by itself gets other words than hers.
    let line = with_negatives(Line::command()).try_get_matches().and_then(|matches| Line::from_arg_matches(&matches));
    let line = line.unwrap_or_else(|error| error.exit());
    match run_command(&line.command, line.everywhere.json) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            say(format_args!("hearth: {}", failure.message));
            ExitCode::from(failure.status)
        }
    }
}

/// Rounds of each case, unless it is said or quick.
const PAIRS: u32 = 3;

/// Does it; a failure has the sentence to print.
fn run_command(command: &Evaluate, json: bool) -> Result<(), Failure> {
    match command {
        Evaluate::List => list(json),
        Evaluate::Run(options) => run(options, json).map_err(|f| can_go_on(f).cannot("run the evaluation")),
        Evaluate::Report { directory, html, pdf, prices } => {
            let asked = [(*html, Format::Html), (*pdf, Format::Pdf), (json, Format::Json)];
            let mut formats: Vec<Format> = asked.into_iter().filter(|(asked, _)| *asked).map(|(_, format)| format).collect();
            if formats.is_empty() {
                formats = report::FORMATS.into();
            }
            report_of(directory, &formats, prices.as_deref(), json).map_err(|f| f.cannot("write the report"))
        }
        Evaluate::Compare { first, second, html } => compare(first, second, html.as_deref(), json).map_err(|f| f.cannot("compare")),
        Evaluate::Prices => print(report::prices::EXAMPLE),
        Evaluate::InGuest { device, asked } => in_guest(device, asked).map_err(|f| f.cannot("run in a guest")),
        Evaluate::Load(options) => load(options, json).map_err(|f| f.cannot("play the load")),
        Evaluate::Fill { path, size, compressible, yes } => fill_with(path, size, *compressible, *yes).map_err(|f| f.cannot("fill it")),
    }
}

/// Only a run keeps what it has done.
fn can_go_on(mut failure: Failure) -> Failure {
    if failure.status == STATUS_INTERRUPTED {
        failure.message += "; the same command with the same --out goes on where it was";
    }
    failure
}

fn in_guest(device: &str, asked: &str) -> Result<(), Failure> {
    // Whoever has started the guest reads it; if that is gone, so is the guest.
    let tell = |line: &str| drop(print(&format!("{line}\n")));
    Ok(evaluate::database::in_guest::inside(device, asked, &tell)?)
}

fn list(json: bool) -> Result<(), Failure> {
    if json {
        let headlines = |suite: &evaluate::catalogue::Suite| -> Vec<serde_json::Value> {
            let told = |h: &evaluate::catalogue::Headline| serde_json::json!({"id": h.id, "what": h.what, "report": h.report.name(), "published": published(&h.published)});
            suite.headlines.iter().map(told).collect()
        };
        let suites: Vec<_> = SUITES
            .iter()
            .map(|s| serde_json::json!({"name": s.name, "about": s.about, "model_set": s.model_set, "headlines": headlines(s)}))
            .collect();
        return print(&to_json(&suites));
    }
    let mut text = String::new();
    for suite in SUITES {
        text += &format!("{}\n  {}\n", suite.name, suite.about);
        let row =
            |h: &evaluate::catalogue::Headline| vec!["   ".into(), h.what.to_string(), published(&h.published), h.report.name().into()];
        let rows: Vec<Vec<String>> = suite.headlines.iter().map(row).collect();
        if !rows.is_empty() {
            text += &table::layout(&[("", Align::Left), ("figure", Align::Left), ("published", Align::Left), ("by", Align::Left)], &rows);
        }
        text.push('\n');
    }
    print(&text)
}

fn published(published: &Published) -> String {
    match published {
        Published::Gain(gain) => format!("{gain} x"),
        Published::GainBetween(low, high) => format!("{low} to {high} x"),
        Published::BelowMicroseconds(us) => format!("below {us} µs"),
        Published::Share(share) => format!("{:.0} %", share * 100.0),
        Published::Seconds(seconds) => human::seconds(*seconds as u64),
        Published::NoLoss => "no loss".into(),
        Published::NoNumber => "a chart without numbers".into(),
    }
}

/// Asks on the terminal; without one, or with --yes, nobody is asked.
fn agreed(question: &str, yes: bool, otherwise: &str) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if std::io::stdin().is_terminal() {
        // Where it cannot be shown it cannot be answered either.
        let mut terminal = std::io::stderr();
        write!(terminal, "{question} [y/N] ").and_then(|()| terminal.flush()).ok();
        let mut answer = String::new();
        let read = std::io::stdin().read_line(&mut answer);
        if read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes") {
            return Ok(());
        }
    }
    Err(Failure::usage(otherwise, "use --yes to confirm"))
}

/// What a device holds, and that nobody uses it; gives its length in bytes.
fn looked_at(option: &str, path: &Path, yes: bool) -> Result<u64, Failure> {
    let shown = path.display();
    let facts = machine::look_at(&shown.to_string()).map_err(Failure::from)?;
    if let Some(user) = facts.in_use {
        return Err(Failure::usage(format!("{option} {shown} is in use ({user})"), "use a device that is not in use"));
    }
    let holds = facts.signature.map_or("no known content".into(), |found| found);
    agreed(
        &format!("{shown} ({}) holds {holds}. All data on it will be lost. Go on?", human::bytes(facts.size_bytes)),
        yes,
        &format!("{option} {shown} holds {holds}, and all data on it would be lost"),
    )?;
    Ok(facts.size_bytes)
}

/// The program under test: the one that started this one.
fn hearth() -> Result<PathBuf, Failure> {
    let found = std::env::var_os(HEARTH_PATH).map(PathBuf::from).or_else(|| find(HEARTH, HEARTH_PACKAGED));
    found.ok_or_else(|| {
        let problem = format!("the program {HEARTH} is neither beside this one nor at {HEARTH_PACKAGED} nor in PATH");
        Failure::failed(problem, "install the Debian package, or build it with `make build`")
    })
}

/// On standard error, so that a report in JSON stays alone on standard output.
struct Terminal;

impl Audience for Terminal {
    fn progress(&self, progress: &Progress) {
        let (done, all) = progress.legs;
        let left = human::seconds(progress.left_s as u64);
        say(format_args!("[{done}/{all}, about {left} left] {}", progress.what));
    }

    fn tell(&self, line: &str) {
        say(line);
    }
}

fn wanted(options: &EvaluateRun) -> Result<Wanted, Failure> {
    let size_bytes = options.size.as_deref().map(|text| quantity::size("--size", text)).transpose()?;
    if size_bytes.is_some_and(|bytes| bytes < 128 << 20) {
        return Err(Failure::usage("--size is below 128MiB", "use a larger one: the cache is a fraction of it"));
    }
    if options.pairs == Some(0) {
        return Err(Failure::usage("--pairs 0 measures nothing", "give 1 or more"));
    }
    if let Some(set) = &options.model
        && device::model::ModelSet::from_name(set).is_none()
    {
        let sets = device::model::ModelSet::ALL.map(device::model::ModelSet::name).join(", ");
        return Err(Failure::usage(format!("there is no model set \"{set}\""), &format!("give one of {sets}")));
    }
    let backing_bytes = options.backing.as_deref().map(|path| looked_at("--backing", path, options.yes)).transpose()?;
    if let Some(ssd) = options.ssd.as_deref().filter(|path| !path.is_dir()) {
        looked_at("--ssd", ssd, options.yes)?;
    }
    let text = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
    let settings = Settings {
        quick: options.quick,
        pairs: options.pairs.unwrap_or(if options.quick || options.toy { 1 } else { PAIRS }),
        toy: options.toy,
        size_bytes,
        backing: text(&options.backing),
        model: options.model.clone(),
        ssd: text(&options.ssd),
    };
    let hearth = hearth()?;
    let own = options.load.as_ref().map(std::fs::canonicalize).transpose();
    let own = own.map_err(|e| Failure::usage(format!("--load cannot be read ({e})"), "give a fio job file or a trace"))?;
    Ok(Wanted { suites: options.suites.clone(), settings, out: options.out.clone(), hearth, own, backing_bytes })
}

fn run(options: &EvaluateRun, json: bool) -> Result<(), Failure> {
    let wanted = wanted(options)?;
    // What is wrong with it is told before, not after two hours.
    options.prices.as_deref().map(Prices::read).transpose()?;
    let (cases, _) = run::plan(&wanted)?;
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::failed("loop devices need root's rights", "run it with sudo"));
    }
    say(format_args!("{} cases, about {}", cases.len(), human::seconds(run::planned_s(&cases) as u64)));
    let suites = run::suites(&cases);
    let missing = tools::missing(&suites);
    let mut agree = |question: &str| agreed(question, options.yes, "").is_ok();
    tools::install(&Stage::here(&wanted.hearth), &missing, &mut agree)?;
    let interrupt = interrupt()?;
    run::run(&wanted, &interrupt.flag(), &Terminal)?;
    report_of(&wanted.out, &report::FORMATS, options.prices.as_deref(), json)
}

fn report_of(directory: &Path, formats: &[Format], prices: Option<&Path>, json: bool) -> Result<(), Failure> {
    let prices = prices.map(Prices::read).transpose()?;
    let written = report::write(directory, formats, prices.as_ref())?;
    let summary = report::summary(directory, prices.as_ref())?;
    if json {
        return print(&to_json(&summary));
    }
    let pictures = directory.join("svg");
    let files = written.iter().filter(|path| !path.starts_with(&pictures)).map(|path| path.display().to_string());
    print(&format!("{}\n{}\n", report::text(&summary), files.collect::<Vec<_>>().join("\n")))
}

fn compare(first: &Path, second: &Path, html: Option<&Path>, json: bool) -> Result<(), Failure> {
    let comparison = report::compare(first, second)?;
    if let Some(path) = html {
        std::fs::write(path, comparison.html()).map_err(|e| Failure::failed(format!("{} cannot be written ({e})", path.display()), ""))?;
    }
    if json {
        return print(&to_json(&comparison));
    }
    print(&comparison.text())
}

fn content(percent: u32) -> Result<Content, Failure> {
    match percent {
        0 => Ok(Content::Incompressible),
        1..=75 => Ok(Content::Compressible { percent }),
        _ => Err(Failure::usage(format!("--compressible {percent} is more than can be made"), "give 0 to 75")),
    }
}

/// Ctrl-C and SIGTERM are noted; what runs is put away then.
fn interrupt() -> Result<Interrupt, Failure> {
    let watched = Interrupt::install().and_then(|interrupt| interrupt.watch_termination().map(|()| interrupt));
    let interrupt = watched.map_err(|e| Failure::failed(format!("Ctrl-C cannot be watched ({e})"), ""))?;
    interrupt.watch();
    Ok(interrupt)
}

/// A device is overwritten only after it was looked at; a file only if it was made for that.
fn overwritten(path: &Path, yes: bool) -> Result<(), Failure> {
    if path.exists() { looked_at("the path", path, yes).map(drop) } else { Ok(()) }
}

fn fill_with(path: &Path, size: &str, compressible: u32, yes: bool) -> Result<(), Failure> {
    let (bytes, content) = (quantity::size("--size", size)?, content(compressible)?);
    overwritten(path, yes)?;
    if !path.exists() {
        let made = std::fs::File::create(path).and_then(|file| file.set_len(bytes));
        made.map_err(|e| Failure::failed(format!("{} cannot be made ({e})", path.display()), "give another place"))?;
    }
    let interrupt = interrupt()?;
    Ok(fill::fill(path, bytes, content, 1, &interrupt.flag(), &mut |_| {})?)
}

fn load(options: &EvaluateLoad, json: bool) -> Result<(), Failure> {
    let block_bytes = quantity::size("--block", &options.block)?;
    if options.reads < 100 {
        overwritten(&options.path, options.yes)?;
    }
    let whole = machine::look_at(&options.path.display().to_string()).map_err(Failure::from)?.size_bytes;
    let space_bytes = options.size.as_deref().map(|text| quantity::size("--size", text)).transpose()?.unwrap_or(whole);
    let pace = match options.per_second {
        None => Pace::Closed { depth: options.depth },
        Some(per_s) => Pace::Open { per_s, random: true, depth_max: 256 },
    };
    let places = by_hand::places(&options.places)
        .map_err(|why| Failure::usage(format!("--places {}: {why}", options.places), "see `hearth evaluate load --help`"))?;
    let load = Load {
        pattern: Pattern { block_bytes, space_bytes, reads_percent: options.reads, places },
        pace,
        length: Length { time: Some(Duration::from_millis(quantity::time_ms("--time", &options.time)?)), requests: None },
        content: content(options.compressible)?,
        seed: options.seed,
        verify: false,
    };
    let interrupt = interrupt()?;
    let loaded = generator::run(&options.path, &load, &interrupt.flag(), &mut unwatched)?;
    if json {
        let told = serde_json::json!({
            "ios_per_s": loaded.rate, "bytes_per_s": loaded.bytes_per_s, "wall_s": loaded.wall_s, "latency": loaded.latency, "series": loaded.series,
        });
        return print(&to_json(&told));
    }
    let us = |name: &str| loaded.latency.percentiles_us.get(name).map_or("-".into(), |us| human::nanoseconds((us * 1000.0) as u64));
    print(&table::pairs(&[
        ("I/Os a second", format!("{:.0}", loaded.rate)),
        ("bytes a second", human::bytes(loaded.bytes_per_s as u64)),
        ("mean", human::nanoseconds((loaded.latency.mean_us * 1000.0) as u64)),
        ("50 %", us("50")),
        ("99 %", us("99")),
        ("99.9 %", us("99.9")),
    ]))
}
