//! A leg of a database: a copy of the loaded image as the backing device, the server on the device under test, its load, and what was counted meanwhile.

use super::Context;
use super::blocks::{Device, Meter, Watch, begun};
use crate::database::prepared::{self, Contents};
use crate::database::{Beside, Driven, Moment, driven};
use crate::result::{Arm, Case, Leg};
use crate::settled;
use crate::stage::{Backing, Cached, ReadWaits, Setup};
use crate::tools;
use crate::trouble::Trouble;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Seconds whose mean counts as a rate that was reached.
const MEAN_OVER: usize = 10;

/// How a leg is run.
pub struct DatabaseRun<'a> {
    /// The volume, or none for the bare device.
    pub setup: Option<Setup>,
    /// Whether all of the volume is read into the cache before.
    pub warm: bool,
    /// After so many seconds of the load the volume goes from pass-through into this mode.
    pub attach: Option<(f64, &'static str)>,
    /// The load on a device.
    #[allow(clippy::type_complexity, reason = "named here and nowhere else")]
    pub drive: &'a dyn Fn(&Device, &mut Beside<'_>) -> Result<Driven, Trouble>,
}

/// go-tpc, which is there or can be built.
///
/// # Errors
/// As of [`tools::go_tpc`].
pub fn go_tpc(context: &Context) -> Result<PathBuf, Trouble> {
    // Kept for the next evaluation: building it takes longer than a leg.
    let cache = tools::cache_directory().unwrap_or_else(|| context.stage.place().to_path_buf());
    std::fs::create_dir_all(&cache).map_err(|error| Trouble::io("make", &cache, &error))?;
    tools::go_tpc(context.stage, &cache)
}

/// The loaded image, made once; and the backing device of the first look.
///
/// # Errors
/// If it cannot be made.
pub fn prepare(context: &Context, case: &Case, contents: &Contents, go_tpc: Option<&Path>) -> Result<(), Trouble> {
    let image = prepared::prepared(context.stage, context.stage.place(), contents, go_tpc)?;
    copy(context, case, &image)
}

fn copy(context: &Context, case: &Case, image: &Path) -> Result<(), Trouble> {
    // What suites of block I/O left there is gone.
    let _ = std::fs::remove_file(context.stage.path("backing.holds"));
    match context.backing(case) {
        Backing::Device(path) => prepared::copy(context.stage, image, &path),
        Backing::Model { image: to, .. } => prepared::copy(context.stage, image, &to),
    }
}

/// Runs a leg.
///
/// # Errors
/// If anything of it fails.
pub fn run(context: &Context, case: &Case, arm: &Arm, round: u32, contents: &Contents, run: &DatabaseRun) -> Result<Leg, Trouble> {
    let mut leg = begun(case, arm, round);
    let whole = Instant::now();
    copy(context, case, &context.stage.path(&contents.name()))?;
    let device = Device::open(context, case, arm, run.setup.as_ref())?;
    let mut warming_s = 0.0;
    if let Some(cached) = device.cached().filter(|_| run.warm) {
        let begun = Instant::now();
        cached.warm(0..case.data_bytes)?;
        warming_s = begun.elapsed().as_secs_f64();
    }
    let (mut meter, mut measured, mut attached_s) = (None, None, None);
    let (mut waits, mut under_1ms) = (ReadWaits::default(), None);
    let read_waits = || device.cached().map(|cached| cached.teller().read_waits()).transpose().map(Option::unwrap_or_default);
    let watch = Watch::start(device.cached().map(Cached::teller));
    let mut driven = (run.drive)(&device, &mut |moment| {
        match moment {
            Moment::Measured => (meter, waits) = (Some(Meter::start(&device)?), read_waits()?),
            Moment::Ended => {
                measured = meter.take().map(|meter: Meter| meter.stop(&device)).transpose()?;
                under_1ms = read_waits()?.share_since(&waits);
            }
            Moment::At(now_s) => {
                if let (Some((at_s, mode)), None, Some(cached)) = (run.attach, attached_s, device.cached())
                    && now_s >= at_s
                {
                    cached.set_mode(mode)?;
                    attached_s = Some(now_s);
                }
            }
        }
        Ok(())
    })?;
    watch.end(&mut driven.series);
    device.close()?;
    if let Some((at_s, mode)) = run.attach
        && attached_s.is_none()
    {
        return Err(Trouble::Failed(format!(
            "the load ended before the cache was switched to {mode}, which was planned after {at_s:.0} s"
        )));
    }
    let (cpu, cache) = measured.unwrap_or_default();
    figures(&mut leg, &driven, attached_s, warming_s);
    leg.figures.extend(under_1ms.map(|share| ("under_1ms".into(), share)));
    if let Some(ratio) = cache.and_then(|cache| cache.hit_ratio()) {
        leg.figures.insert("hit_ratio".into(), ratio);
    }
    (leg.cut_s, leg.cut_why) = (driven.cut_s, format!("the load ran for {:.0} s before", driven.cut_s));
    (leg.cpu, leg.cache, leg.latency) = (cpu, cache, driven.latency);
    (leg.series, leg.notes) = (driven.series, driven.notes);
    leg.took_s = whole.elapsed().as_secs_f64();
    leg.commands = context.stage.take_commands();
    Ok(leg)
}

/// `rate` and `mean_us`; of a cache that came while the load ran, or began cold, how long it took.
fn figures(leg: &mut Leg, driven: &Driven, attached_s: Option<f64>, warming_s: f64) {
    leg.figures.insert("rate".into(), driven.rate);
    if driven.counted == "new orders" {
        leg.figures.insert("tpmc".into(), driven.rate * 60.0);
    }
    leg.figures.extend(driven.mean_us.map(|mean| ("mean_us".into(), mean)));
    let share = driven.reads.as_ref().and_then(|reads| driven::share_up_to(reads, 1000.0));
    leg.figures.extend(share.map(|share| ("transactions_under_1ms".into(), share)));
    let from_s = attached_s.unwrap_or(0.0);
    let behind: Vec<f64> = driven.series.iter().filter(|second| second.at_s > from_s).map(|second| second.rate).collect();
    if let Some(reached) = settled::reached(&behind, driven.rate * 0.9, MEAN_OVER) {
        leg.figures.insert("settled_s".into(), reached as f64 + MEAN_OVER as f64 + warming_s);
    }
    if let Some(at_s) = attached_s {
        // The first seconds of a load are no rate of it.
        let before: Vec<f64> = driven.series.iter().filter(|s| s.at_s > at_s / 3.0 && s.at_s <= at_s).map(|s| s.rate).collect();
        let mean = before.iter().sum::<f64>() / before.len().max(1) as f64;
        if let Some(reached) = settled::reached(&behind, mean * 2.0, MEAN_OVER) {
            leg.figures.insert("double_s".into(), reached as f64 + MEAN_OVER as f64);
        }
    }
}
