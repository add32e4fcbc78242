//! `soak --seeds N [--first SEED] [--threads N]` runs many seeds; `soak --seed N` runs one and tells its story. Built with the feature
//! `mutants`, `--mistake NUMBER` plants one.

use std::process::ExitCode;
use std::time::Instant;

use simulator::daemon::Engine;
use simulator::plan::Plan;
use simulator::soak::{Soak, story};
use simulator::standin::{Bug, StandIn};
use simulator::system::Builder;
use simulator::world::run;

struct Arguments {
    seed: Option<u64>,
    seeds: u64,
    first: u64,
    threads: usize,
    failures: usize,
    stand_in: bool,
    plan: bool,
    always: Option<Always>,
    sector: Option<(u16, u64)>,
}

/// A kind of runs: its option, and what makes a plan one of it.
type Always = (&'static str, fn(&mut Plan));

const KINDS: [Always; 9] = [
    ("--share", Plan::always_share),
    ("--swell", Plan::always_swell),
    ("--check", Plan::always_check),
    ("--ranges", Plan::always_use_ranges),
    ("--loss", Plan::always_lose_ssd),
    ("--grow", Plan::always_grow),
    ("--large", Plan::always_enlarge),
    ("--labels", Plan::always_label),
    ("--pins", Plan::always_pin),
];

const USAGE: &str = "usage: soak [--seeds N] [--first SEED] [--threads N] [--failures N] [--stand-in] [--share | --swell | --check | --ranges | --loss | --grow | --large | --labels | --pins] | --seed N [--sector VOLUME:SECTOR] [--plan] [--share | --swell | --check | --ranges | --loss | --grow | --large | --labels | --pins]";

fn arguments() -> Result<Arguments, String> {
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    let mut parsed =
        Arguments { seed: None, seeds: 2000, first: 0, threads, failures: 1, stand_in: false, plan: false, always: None, sector: None };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || -> Result<u64, String> {
            let value = words.next().ok_or(format!("{word} wants a number"))?;
            value.parse().map_err(|_| format!("{word} wants a number, not {value}"))
        };
        match word.as_str() {
            "--seed" => parsed.seed = Some(number()?),
            "--seeds" => parsed.seeds = number()?,
            "--first" => parsed.first = number()?,
            "--threads" => parsed.threads = number()? as usize,
            "--failures" => parsed.failures = number()? as usize,
            "--stand-in" => parsed.stand_in = true,
            "--plan" => parsed.plan = true,
            "--sector" => {
                let value = words.next().ok_or("--sector wants VOLUME:SECTOR")?;
                let (volume, sector) = value.split_once(':').ok_or("--sector wants VOLUME:SECTOR")?;
                let bad = |_| "--sector wants VOLUME:SECTOR".to_string();
                parsed.sector = Some((volume.parse().map_err(bad)?, sector.parse().map_err(bad)?));
            }
            #[cfg(feature = "mutants")]
            "--mistake" => engine::mutants::set(number()? as u32),
            option => {
                let kind = KINDS.into_iter().find(|(name, _)| *name == option);
                parsed.always = Some(kind.ok_or_else(|| USAGE.to_string())?);
            }
        }
    }
    Ok(parsed)
}

fn builder(arguments: &Arguments) -> Box<dyn Builder + Sync> {
    if arguments.stand_in { Box::new(StandIn(Bug::None)) } else { Box::new(Engine) }
}

fn one(seed: u64, arguments: &Arguments) -> ExitCode {
    let mut plan = Plan::of(seed);
    if let Some((_, always)) = arguments.always {
        always(&mut plan);
    }
    if arguments.plan {
        println!("{plan:#?}");
    }
    let builder = builder(arguments);
    let result = run(&plan, builder.as_ref(), arguments.sector);
    match result {
        Ok(outcome) => {
            println!("seed {seed}: no violation; {outcome:?}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            let lines = if arguments.sector.is_some() { failure.history.clone() } else { story(&plan, builder.as_ref(), &failure) };
            for line in lines {
                println!("{line}");
            }
            println!("seed {seed}: {}", failure.what);
            ExitCode::FAILURE
        }
    }
}

fn many(arguments: &Arguments) -> ExitCode {
    let began = Instant::now();
    let soak = Soak {
        first: arguments.first,
        count: arguments.seeds,
        threads: arguments.threads,
        failures_max: arguments.failures,
        twice_every: 50,
        adjust: &|plan| {
            if let Some((_, always)) = arguments.always {
                always(plan);
            }
        },
    };
    let builder = builder(arguments);
    let totals = soak.run(builder.as_ref());
    let seconds = began.elapsed().as_secs_f64();
    println!("{}", totals.coverage().table());
    println!("reachable and never hit: {:?}", totals.coverage().missing());
    println!("{}", totals.text());
    println!(
        "{seconds:.1} s on {} threads: {:.0} requests and {:.0} seeds a second",
        arguments.threads,
        totals.sums.requests as f64 / seconds,
        totals.seeds as f64 / seconds
    );
    for found in &totals.found {
        println!("FOUND seed {}: {}", found.seed, found.failure.what);
        // The kind and the planted mistakes' build change what a seed does.
        let features = if cfg!(feature = "mutants") { " --features mutants" } else { "" };
        let kind = arguments.always.map_or(String::new(), |(kind, _)| format!(" {kind}"));
        println!("  replay: cargo run -p simulator --release{features} --bin soak -- --seed {}{kind}", found.seed);
    }
    if totals.found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn main() -> ExitCode {
    match arguments() {
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
        Ok(arguments) => match arguments.seed {
            Some(seed) => one(seed, &arguments),
            None => many(&arguments),
        },
    }
}
