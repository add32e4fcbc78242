//! What `hearth advise` promises, tried: a load runs on a volume whose pool is too small, the daemon is
//! asked how much SSD its hits take, pools of just that size are made, and the same load runs on each.
//!
//! *Hits* are those of the forecast: of the reads of blocks that were used before, by a read or a write,
//! since the pool was made. Which those are follows from the load's seed ([`Again`]); how many of the
//! reads were answered by RAM or SSD the volume counts itself. A request is one block, so that a request
//! and a block are the same. The load is as long as it was when the advice was given, with other random
//! numbers: its first half fills the pool, its second half is measured, as in the forecast. Then it goes on
//! for half as long again.

use super::blocks::{self, Device, Meter, Watch};
use super::{CACHE_BYTES_MIN, Context, MIB, Planning, Suite, whole_mib};
use crate::again::{Again, Reads};
use crate::by_hand;
use crate::catalogue;
use crate::load::{Content, Length, Load, Loaded, Pace, generator, unwatched};
use crate::pattern::{Pattern, Places};
use crate::result::{Arm, CacheFigures, Case, Leg};
use crate::settled;
use crate::stage::{Cached, Teller};
use crate::trouble::Trouble;
use api::human;
use api::{AdvicePoint, AdviceView, TargetView};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What is asked for, in percent of hits.
const TARGETS_PERCENT: [f64; 2] = [90.0, 95.0];
/// How far a pool may be off from the forecast, in points.
const POINTS_MAX: f64 = 3.0;
/// All arms are of one sitting: the pools follow from what was seen before them.
const SITTING: &str = "hits by SSD";
const MODE: &str = "write-through";
const DEPTH: u32 = 32;
/// Between two times of asking.
const ASK: Duration = Duration::from_secs(5);
/// Seconds whose mean counts as a rate that was reached.
const MEAN_OVER: usize = 10;

/// See the module.
pub struct Advice;

/// A load: name, for people, where its requests go, what its blocks hold.
struct Kind {
    name: &'static str,
    title: &'static str,
    places: fn() -> Places,
    content: Content,
}

const KINDS: [Kind; 2] = [
    Kind {
        name: "zipf",
        title: "many degrees of hot (zipf 0.9)",
        places: || Places::Zipf { theta: 0.9 },
        content: Content::Incompressible,
    },
    Kind {
        name: "hot-spot",
        title: "80 % on a fifth of the data, content that compresses to a half",
        places: || Places::Zones(vec![(80, 20), (20, 80)]),
        content: Content::Compressible { percent: 50 },
    },
];

fn kind_of(case: &Case) -> Result<&'static Kind, Trouble> {
    let found = KINDS.iter().find(|kind| case.id == format!("advice.{}", kind.name));
    found.ok_or_else(|| Trouble::Failed(format!("there is no {}", case.id)))
}

impl Suite for Advice {
    fn cases(&self, planning: &Planning) -> Result<Vec<Case>, Trouble> {
        let set = catalogue::suite("advice").expect("the catalogue has it").model_set;
        let data_bytes = planning.data_bytes(512 * MIB, 256 * MIB, 192 * MIB);
        let at = |percent: f64| Some((SITTING.into(), percent));
        let case = |kind: &Kind| {
            let watched = Arm { id: "watched".into(), title: "a pool that is too small, watched".into(), cached: true, point: at(0.0) };
            let advised = TARGETS_PERCENT.iter().map(|percent| Arm {
                id: format!("advised-{percent:.0}"),
                title: format!("the pool advised for {percent:.0} % of hits"),
                cached: true,
                point: at(*percent),
            });
            Case {
                id: format!("advice.{}", kind.name),
                title: format!("Advice kept: {}", kind.title),
                about: format!(
                    "hearth's own load: random 4 KiB, 80 % reads, {DEPTH} outstanding, {}. It runs on a small pool until `hearth advise` \
                     tells how much SSD is needed; then as many requests, with other random numbers, on pools of just that size. Hits are of \
                     the reads of blocks that were used before, in the second half, when the pool is full.",
                    kind.title
                ),
                model_set: planning.model_set(set),
                data_bytes,
                cache_bytes: CACHE_BYTES_MIN,
                ram_bytes: 8 * MIB,
                rounds: planning.settings.pairs,
                arms: std::iter::once(watched).chain(advised).collect(),
                headlines: Vec::new(),
                counted: "I/Os".into(),
                leg_s: planning.scale.pick(300.0, 90.0, 30.0),
                along: None,
                ceiling: None,
            }
        };
        Ok(KINDS.iter().map(case).collect())
    }

    fn prepare(&self, context: &Context, case: &Case) -> Result<(), Trouble> {
        blocks::data(context, case, kind_of(case)?.content)
    }

    fn legs(&self, context: &Context, case: &Case, arms: &[&Arm], round: u32) -> Result<Vec<Leg>, Trouble> {
        let [first, rest @ ..] = arms else { return Ok(Vec::new()) };
        let kind = kind_of(case)?;
        let (leg, told) = watch(context, case, kind, first, round)?;
        let watched_rate = leg.figures.get("rate").copied().unwrap_or(0.0);
        let mut legs = vec![leg];
        for (arm, promise) in rest.iter().zip(&told.promises) {
            legs.push(apply(context, case, kind, arm, round, &Applied { told: &told, promise, watched_rate })?);
        }
        Ok(legs)
    }
}

/// What was promised for a target.
#[derive(Clone, PartialEq, Debug)]
struct Promise {
    /// As it was told.
    target: TargetView,
    /// The pool that is made of it: whole mebibytes, and as many as a pool must have.
    pool_bytes: u64,
    /// What that pool brings.
    forecast: AdvicePoint,
}

/// What came of watching.
struct Told {
    promises: Vec<Promise>,
    /// Seconds from the begin of the load to the answer.
    after_s: f64,
    /// Requests until then.
    requests: u64,
}

fn load_of(case: &Case, kind: &Kind, length: Length, seed: u64) -> Load {
    Load {
        pattern: Pattern { block_bytes: 4096, space_bytes: case.data_bytes, reads_percent: 80, places: (kind.places)() },
        pace: Pace::Closed { depth: DEPTH },
        length,
        content: kind.content,
        seed,
        verify: false,
    }
}

/// Runs the load on the small pool until the advice is there.
fn watch(context: &Context, case: &Case, kind: &Kind, arm: &Arm, round: u32) -> Result<(Leg, Told), Trouble> {
    let mut leg = blocks::begun(case, arm, round);
    let whole = Instant::now();
    let device = Device::open(context, case, arm, Some(&context.setup(case, MODE, &[])))?;
    let teller = device.cached().map(Cached::teller).ok_or_else(|| Trouble::Failed("it has no cache".into()))?;
    // The note's bound of ten minutes, with some to spare so that a miss is told as one.
    let limit_s = context.scale.pick(660.0, 300.0, 150.0);
    let load = load_of(case, kind, Length::seconds(limit_s), blocks::seed(round, false));
    context.stage.say(format!("{} &", by_hand::load_command(&load, device.path())));
    let (meter, watch) = (Meter::start(&device)?, Watch::start(Some(teller.clone())));
    let over = AtomicBool::new(false);
    let stop = context.stage.stop_flag();
    let (loaded, told) = std::thread::scope(|scope| {
        let player = scope.spawn(|| {
            let go_on = &mut |_: &_| if over.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
            generator::run(Path::new(device.path()), &load, stop, go_on)
        });
        let told = ask(context, &teller, limit_s, &|| player.is_finished());
        over.store(true, Ordering::Relaxed);
        (player.join().expect("a load does not panic"), told)
    });
    let mut loaded = loaded?;
    watch.end(&mut loaded.series);
    let (cpu, cache) = meter.stop(&device)?;
    let (advice, after_s) = told?;
    context.stage.say("hearth advise volume --target 90 --target 95 --json");
    let promises = advice.targets.iter().map(|target| promise(&teller, target)).collect::<Result<Vec<_>, Trouble>>()?;
    device.close()?;
    let requests = loaded.reads.count + loaded.writes.count;
    blocks::put(&mut leg, &Loaded::default(), loaded, cpu, cache, 0.0);
    leg.figures.insert("answer_s".into(), after_s);
    leg.notes.push(format!("the answer was there after {after_s:.0} s of the load ({requests} requests); the bound is 600 s"));
    leg.notes.extend(advice.sentences.iter().map(|sentence| format!("reported with it: {sentence}")));
    leg.took_s = whole.elapsed().as_secs_f64();
    leg.commands = context.stage.take_commands();
    Ok((leg, Told { promises, after_s, requests }))
}

/// Asks until all targets are told; how many seconds that took.
fn ask(context: &Context, teller: &Teller, limit_s: f64, ended: &dyn Fn() -> bool) -> Result<(AdviceView, f64), Trouble> {
    let begun = Instant::now();
    loop {
        context.stage.rest(ASK)?;
        let advice = teller.advice(&TARGETS_PERCENT, None)?;
        let after_s = begun.elapsed().as_secs_f64();
        let missing = |target: &TargetView| target.not_yet.as_ref().map(|why| format!("{} %: {why}", target.hits_percent));
        let why: Vec<String> = advice.targets.iter().filter_map(missing).collect();
        if why.is_empty() {
            return Ok((advice, after_s));
        }
        if after_s > limit_s - ASK.as_secs_f64() || ended() {
            return Err(Trouble::Failed(format!("no advice after {after_s:.0} s: {}", why.join("; "))));
        }
    }
}

/// The pool of a target, and what is forecast for just that size.
fn promise(teller: &Teller, target: &TargetView) -> Result<Promise, Trouble> {
    let advised = target.ssd_bytes.unwrap_or(0);
    let pool_bytes = whole_mib(advised + MIB - 1).max(CACHE_BYTES_MIN);
    let exact = target.hits_percent;
    let as_asked = AdvicePoint {
        ssd_bytes: pool_bytes,
        hits_percent: exact,
        hits_percent_low: exact,
        hits_percent_high: exact,
        ..AdvicePoint::default()
    };
    // Outside of the curve nothing is told of a size, but the target itself.
    let forecast = teller.advice(&[exact], Some(pool_bytes))?.now.unwrap_or(as_asked);
    Ok(Promise { target: target.clone(), pool_bytes, forecast })
}

/// What a pool is judged by.
struct Applied<'a> {
    told: &'a Told,
    promise: &'a Promise,
    /// Of the small pool, I/Os a second.
    watched_rate: f64,
}

/// Runs the load on a pool of the size advised: half of it to fill the pool, half to measure.
fn apply(context: &Context, case: &Case, kind: &Kind, arm: &Arm, round: u32, applied: &Applied) -> Result<Leg, Trouble> {
    let Applied { told, promise, watched_rate } = *applied;
    let mut leg = blocks::begun(case, arm, round);
    let whole = Instant::now();
    let setup = crate::stage::Setup { cache_bytes: promise.pool_bytes, ..context.setup(case, MODE, &[]) };
    let device = Device::open(context, case, arm, Some(&setup))?;
    let teller = device.cached().map(Cached::teller).ok_or_else(|| Trouble::Failed("it has no cache".into()))?;
    let made_s = whole.elapsed().as_secs_f64();
    let seed = |part: u64| blocks::seed(round, true) + (part << 32);
    let mut again = Again::new(load_of(case, kind, Length::requests(1), 0).pattern);
    let mut play = |seed: u64, requests: u64| -> Result<(Loaded, CacheFigures, Reads), Trouble> {
        let load = load_of(case, kind, Length::requests(requests), seed);
        context.stage.say(by_hand::load_command(&load, device.path()));
        let before = teller.figures()?;
        let watch = Watch::start(Some(teller.clone()));
        let mut loaded = generator::run(Path::new(device.path()), &load, context.stage.stop_flag(), &mut unwatched)?;
        watch.end(&mut loaded.series);
        let cache = teller.figures()?.since(&before);
        let reads = again.play(seed, requests).map_err(|why| Trouble::Failed(why.into()))?;
        Ok((loaded, cache, reads))
    };
    let half = told.requests / 2;
    let (filled, ..) = play(seed(0), half)?;
    let meter = Meter::start(&device)?;
    let (loaded, cache, reads) = play(seed(1), half)?;
    let (cpu, _) = meter.stop(&device)?;
    let (_, cache_later, reads_later) = play(seed(2), half)?;
    device.close()?;
    let outcome = Outcome { forecast: &promise.forecast, measured: hits_percent(&cache, reads) };
    let later = hits_percent(&cache_later, reads_later);
    let rates: Vec<f64> = filled.series.iter().chain(&loaded.series).map(|second| second.rate).collect();
    // Half of what it gains at the end, since it was begun to watch.
    let halfway = f64::midpoint(watched_rate, rates.iter().rev().take(MEAN_OVER).sum::<f64>() / MEAN_OVER.min(rates.len()).max(1) as f64);
    let benefit = settled::reached(&rates, halfway, MEAN_OVER).map(|at| told.after_s + made_s + (at + MEAN_OVER) as f64);
    blocks::put(&mut leg, &Loaded::default(), loaded, cpu, Some(cache), 0.0);
    let figures = [
        ("pool_bytes", promise.pool_bytes as f64),
        ("advised_bytes", promise.target.ssd_bytes.unwrap_or(0) as f64),
        ("forecast_percent", promise.forecast.hits_percent),
        ("forecast_low_percent", promise.forecast.hits_percent_low),
        ("forecast_high_percent", promise.forecast.hits_percent_high),
        ("measured_percent", outcome.measured),
        ("off_points", outcome.off_points()),
        ("later_percent", later),
        ("answer_s", told.after_s),
    ];
    leg.figures.extend(figures.map(|(name, value)| (name.to_owned(), value)));
    leg.figures.extend(benefit.map(|benefit_s| ("benefit_s".to_owned(), benefit_s)));
    leg.notes.push(advised_words(promise));
    leg.notes.push(format!("{}; going on for half as long again: {later:.1} %", outcome.words()));
    leg.notes.extend(benefit.map(|s| format!("half of the gain in rate was there {s:.0} s after the watching began; the bound is 1800 s")));
    leg.took_s = whole.elapsed().as_secs_f64();
    leg.commands = context.stage.take_commands();
    Ok(leg)
}

/// Hits of the reads of blocks that were used before, in percent.
fn hits_percent(cache: &CacheFigures, reads: Reads) -> f64 {
    (cache.hits_ram + cache.hits_ssd) as f64 * 100.0 / reads.again().max(1) as f64
}

fn advised_words(promise: &Promise) -> String {
    let target = &promise.target;
    let bytes = |bytes: Option<u64>| bytes.map_or_else(|| "?".into(), human::bytes);
    format!(
        "advised for {} %: {} ({} to {}); the pool has {}",
        target.hits_percent,
        bytes(target.ssd_bytes),
        bytes(target.ssd_bytes_low),
        bytes(target.ssd_bytes_high),
        human::bytes(promise.pool_bytes)
    )
}

/// A forecast beside what came.
struct Outcome<'a> {
    forecast: &'a AdvicePoint,
    measured: f64,
}

impl Outcome<'_> {
    /// More hits than forecast, in points; below zero: fewer.
    fn off_points(&self) -> f64 {
        self.measured - self.forecast.hits_percent
    }

    fn words(&self) -> String {
        let AdvicePoint { hits_percent, hits_percent_low, hits_percent_high, .. } = *self.forecast;
        let (measured, off) = (self.measured, self.off_points());
        let verdict = if off.abs() <= POINTS_MAX { "kept" } else { "MISSED" };
        format!(
            "forecast {hits_percent:.1} % of hits ({hits_percent_low:.1} to {hits_percent_high:.1}), measured {measured:.1} %, {off:+.1} points: \
             {verdict}, the bound is {POINTS_MAX:.0}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_of_what_was_used_before() {
        let cache = CacheFigures { hits_ram: 30, hits_ssd: 60, misses: 110, ..CacheFigures::default() };
        // Half of the reads were the first of their blocks: those cannot be hits.
        assert_eq!(hits_percent(&cache, Reads { count: 200, first: 100 }), 90.0);
        assert_eq!(hits_percent(&CacheFigures::default(), Reads::default()), 0.0);
    }

    #[test]
    fn a_forecast_is_kept_within_three_points_either_way() {
        let forecast = AdvicePoint {
            ssd_bytes: 1 << 30,
            hits_percent: 90.0,
            hits_percent_low: 88.0,
            hits_percent_high: 91.5,
            ..AdvicePoint::default()
        };
        for (measured, kept) in [(87.0, true), (86.9, false), (93.0, true), (93.1, false)] {
            let words = Outcome { forecast: &forecast, measured }.words();
            assert_eq!(words.contains(": kept,"), kept, "{words}");
            assert_eq!(words.contains(": MISSED,"), !kept, "{words}");
        }
    }
}
