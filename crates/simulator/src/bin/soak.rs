//! `soak --seeds N [--first SEED] [--threads N]` runs many seeds; `soak --seed N` runs one and prints its story. `soak --shrink N` cuts a
//! failing one down to the fewest steps, and `soak --seed N --only STEPS` runs these. Built with the feature `mutants`, `--mistake
//! NAME` plants one (`engine::mutants`), and the seed's plan is the one that is searched for it.

use std::process::ExitCode;
use std::time::Instant;

use simulator::daemon::Engine;
use simulator::plan::Plan;
use simulator::shrink::{Recorded, Short, Trouble, record};
use simulator::soak::{Soak, story};
use simulator::standin::{Bug, StandIn};
use simulator::system::Builder;
use simulator::world::{Failure, Outcome, run};

struct Arguments {
    seed: Option<u64>,
    shrink: bool,
    only: Option<Short>,
    mistake: u32,
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

const KINDS: [Always; 12] = [
    ("--share", Plan::always_share),
    ("--swell", Plan::always_swell),
    ("--check", Plan::always_check),
    ("--ranges", Plan::always_use_ranges),
    ("--loss", Plan::always_lose_ssd),
    ("--grow", Plan::always_grow),
    ("--large", Plan::always_enlarge),
    ("--packed", Plan::always_pack),
    ("--units", Plan::always_keep_units),
    ("--beside", Plan::always_read_beside),
    ("--labels", Plan::always_label),
    ("--pins", Plan::always_pin),
];

const USAGE: &str = "usage: soak [--seeds N] [--first SEED] [--threads N] [--failures N] [--stand-in] [--share | --swell | --check | --ranges | --loss | --grow | --large | --packed | --units | --beside | --labels | --pins] | --shrink N | --seed N [--only STEPS] [--sector VOLUME:SECTOR] [--plan] [--share | --swell | --check | --ranges | --loss | --grow | --large | --packed | --units | --beside | --labels | --pins]";

fn arguments() -> Result<Arguments, String> {
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    let mut parsed = Arguments {
        seed: None,
        shrink: false,
        only: None,
        mistake: 0,
        seeds: 2000,
        first: 0,
        threads,
        failures: 1,
        stand_in: false,
        plan: false,
        always: None,
        sector: None,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || -> Result<u64, String> {
            let value = words.next().ok_or(format!("{word} wants a number"))?;
            value.parse().map_err(|_| format!("{word} wants a number, not {value}"))
        };
        match word.as_str() {
            "--seed" => parsed.seed = Some(number()?),
            "--shrink" => (parsed.seed, parsed.shrink) = (Some(number()?), true),
            "--only" => parsed.only = Some(words.next().ok_or("--only wants steps")?.parse()?),
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
            "--mistake" => {
                let mistake = words.next().as_deref().and_then(engine::mutants::named).ok_or_else(|| USAGE.to_string())?;
                parsed.mistake = mistake.number;
            }
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

/// The mistake is planted from now on, or none.
fn plant(mistake: u32) {
    #[cfg(feature = "mutants")]
    engine::mutants::set(mistake);
    assert!(mistake == 0 || cfg!(feature = "mutants"), "parsed only where there are mistakes");
}

/// What a seed does, as the options say.
fn plan_of(seed: u64, arguments: &Arguments) -> Plan {
    let mut plan = Plan::of(seed);
    #[cfg(feature = "mutants")]
    if arguments.mistake > 0 {
        simulator::mutants::adjust(arguments.mistake, &mut plan);
    }
    if let Some((_, always)) = arguments.always {
        always(&mut plan);
    }
    plan
}

/// The options that make a seed's run what it is.
fn options(arguments: &Arguments) -> String {
    // The planted mistakes' build changes what a seed does.
    let features = if cfg!(feature = "mutants") { " --features mutants" } else { "" };
    let planted = engine::mutants::ALL.iter().find(|mistake| mistake.number == arguments.mistake);
    let mistake = planted.map_or(String::new(), |mistake| format!(" --mistake {}", mistake.name));
    let kind = arguments.always.map_or(String::new(), |(kind, _)| format!(" {kind}"));
    let stand_in = if arguments.stand_in { " --stand-in" } else { "" };
    format!("cargo run -p simulator --release{features} --bin soak --{mistake}{kind}{stand_in}")
}

fn one(seed: u64, arguments: &Arguments) -> ExitCode {
    let plan = plan_of(seed, arguments);
    if arguments.plan {
        println!("{plan:#?}");
    }
    let builder = builder(arguments);
    plant(arguments.mistake);
    match &arguments.only {
        None => {
            // A panic shows where.
            let result = run(&plan, builder.as_ref(), arguments.sector);
            tell(seed, &result, |failure| match arguments.sector {
                Some(_) => failure.history.clone(),
                None => story(&plan, builder.as_ref(), failure),
            })
        }
        Some(short) => {
            let recorded = record(&plan, builder.as_ref());
            if short.steps.iter().any(|(number, _)| *number >= recorded.steps.len()) {
                eprintln!("seed {seed} has {} steps, from 0", recorded.steps.len());
                return ExitCode::from(2);
            }
            print_steps(&recorded, short);
            let result = recorded.play(&plan, builder.as_ref(), short, None);
            tell(seed, &result, |failure| {
                let place = arguments.sector.or(failure.place).unwrap_or((0, 0));
                recorded.play(&plan, builder.as_ref(), short, Some(place)).err().map_or(Vec::new(), |failure| failure.history)
            })
        }
    }
}

fn tell(seed: u64, result: &Result<Outcome, Failure>, story: impl FnOnce(&Failure) -> Vec<String>) -> ExitCode {
    match result {
        Ok(outcome) => {
            println!("seed {seed}: no violation; {outcome:?}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            story(failure).iter().for_each(|line| println!("{line}"));
            println!("seed {seed}: {}", failure.what);
            ExitCode::FAILURE
        }
    }
}

fn print_steps(recorded: &Recorded, short: &Short) {
    for (number, sectors) in &short.steps {
        let step = &recorded.steps[*number];
        let shorter = sectors.map_or(String::new(), |sectors| format!(", cut to {sectors} sectors"));
        println!("{number:>5}  {:>14} ns  {}{shorter}", step.at_ns, step.words);
    }
    println!("settings: {}", if short.settings.is_empty() { "as the seed has them".into() } else { short.settings.join(", ") });
}

fn shrink(seed: u64, arguments: &Arguments) -> ExitCode {
    let plan = plan_of(seed, arguments);
    let builder = builder(arguments);
    plant(arguments.mistake);
    let recorded = record(&plan, builder.as_ref());
    // With a planted mistake a shorter run counts only if it passes without.
    let is_honest = |short: &Short| {
        plant(0);
        let passes = arguments.mistake == 0 || recorded.play(&plan, builder.as_ref(), short, None).is_ok();
        plant(arguments.mistake);
        if passes {
            eprintln!("{} of {} steps", short.steps.len(), recorded.steps.len());
        }
        passes
    };
    match recorded.shrink(&plan, builder.as_ref(), &is_honest) {
        Ok(shrunk) => {
            print_steps(&recorded, &shrunk.short);
            println!("seed {seed}: {}", shrunk.failure.what);
            println!("{} of {} steps are left, found in {} runs", shrunk.short.steps.len(), recorded.steps.len(), shrunk.runs);
            println!("  replay: {} --seed {seed} --only {}", options(arguments), shrunk.short);
            ExitCode::SUCCESS
        }
        Err(Trouble::Passes) => {
            println!("seed {seed} does not fail: there is nothing to cut down");
            ExitCode::FAILURE
        }
        Err(Trouble::Differs(what)) => {
            println!("seed {seed} ends in another way when it is played from its record, or fails without the mistake too: {what}");
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
        adjust: &|plan| *plan = plan_of(plan.seed, arguments),
    };
    plant(arguments.mistake);
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
        println!("  replay: {} --seed {}", options(arguments), found.seed);
        println!("  shorter: {} --shrink {}", options(arguments), found.seed);
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
            Some(seed) if arguments.shrink => shrink(seed, &arguments),
            Some(seed) => one(seed, &arguments),
            None => many(&arguments),
        },
    }
}
