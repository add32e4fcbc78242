//! A leg of block I/O: the device without or with the cache, a warm-up, the measured part, and what was counted meanwhile.

use super::Context;
use crate::by_hand;
use crate::load::in_process::{Cache, InProcess};
use crate::load::{Content, Load, Loaded, fill, unwatched};
use crate::machine;
use crate::result::{Arm, CacheFigures, Case, Cpu, Leg, Second};
use crate::stage::{Backing, Bare, Cached, LoopDevice, Setup, Teller};
use crate::trouble::Trouble;
use runtime::CpuLatencyWish;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use types::Mode;

/// Of the data that is there before.
const FILL_SEED: u64 = 1;

/// A device under test.
pub enum Device {
    /// No cache.
    Bare(Bare),
    /// A volume of hearth.
    Cached(Box<Cached>),
    /// Neither disk nor cache ([`Case::ceiling`]), and processors kept awake as the daemon keeps them.
    Plain { device: LoopDevice, _awake: Option<CpuLatencyWish> },
}

impl Device {
    /// The volume of this set-up, or the bare device; the model's file itself for the arm of [`Case::ceiling`].
    ///
    /// # Errors
    /// If it cannot be had.
    pub fn open(context: &Context, case: &Case, arm: &Arm, setup: Option<&Setup>) -> Result<Device, Trouble> {
        if let (Some(ceiling), Backing::Model { image, .. }) =
            (case.ceiling.as_ref().filter(|ceiling| ceiling.arm == arm.id), context.backing(case))
        {
            let device = LoopDevice::attach(context.stage, &image, ceiling.in_memory)?;
            return Ok(Device::Plain { device, _awake: CpuLatencyWish::hold() });
        }
        Ok(match setup {
            None => Device::Bare(Bare::open(context.stage, &context.backing(case))?),
            Some(setup) => Device::Cached(Box::new(Cached::open(context.stage, setup)?)),
        })
    }

    /// The block device.
    pub fn path(&self) -> &str {
        match self {
            Device::Bare(bare) => bare.path(),
            Device::Cached(cached) => cached.path(),
            Device::Plain { device, .. } => device.path(),
        }
    }

    /// The volume, if it is one.
    pub fn cached(&self) -> Option<&Cached> {
        match self {
            Device::Bare(_) | Device::Plain { .. } => None,
            Device::Cached(cached) => Some(cached),
        }
    }

    fn cpu_s(&self) -> f64 {
        match self {
            Device::Bare(bare) => bare.cpu_s(),
            Device::Cached(cached) => cached.cpu_s(),
            Device::Plain { .. } => 0.0,
        }
    }

    /// Ends it in order.
    ///
    /// # Errors
    /// If that fails.
    pub fn close(self) -> Result<(), Trouble> {
        match self {
            Device::Bare(_) | Device::Plain { .. } => Ok(()),
            Device::Cached(cached) => cached.close(),
        }
    }
}

/// Counters of the measured part.
pub struct Meter {
    wall: Instant,
    cpu: Cpu,
    cache: Option<CacheFigures>,
}

impl Meter {
    /// It begins now.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn start(device: &Device) -> Result<Meter, Trouble> {
        let cache = device.cached().map(|cached| cached.teller().figures()).transpose()?;
        let cpu = Cpu { wall_s: 0.0, hearth_s: device.cpu_s(), machine_s: machine::cpu_s() };
        Ok(Meter { wall: Instant::now(), cpu, cache })
    }

    /// It ends now.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn stop(self, device: &Device) -> Result<(Cpu, Option<CacheFigures>), Trouble> {
        let cpu = Cpu {
            wall_s: self.wall.elapsed().as_secs_f64(),
            hearth_s: device.cpu_s() - self.cpu.hearth_s,
            machine_s: machine::cpu_s() - self.cpu.machine_s,
        };
        let after = device.cached().map(|cached| cached.teller().figures()).transpose()?;
        Ok((cpu, after.zip(self.cache).map(|(after, before)| after.since(&before))))
    }
}

/// The share of hits, second by second, while a load runs.
pub struct Watch {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Vec<(f64, CacheFigures)>>,
}

impl Watch {
    /// Begins to look, if there is a cache to look at.
    pub fn start(teller: Option<Teller>) -> Watch {
        let stop = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (begun, mut seen) = (Instant::now(), Vec::new());
            let Some(teller) = teller else { return seen };
            // A look that fails leaves a gap in a curve; that the daemon is gone is found out by who needs it.
            for nth in 0.. {
                seen.extend(teller.figures().ok().map(|figures| (begun.elapsed().as_secs_f64(), figures)));
                while begun.elapsed() < Duration::from_secs(nth + 1) {
                    if ended.load(Ordering::Relaxed) {
                        return seen;
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
            seen
        });
        Watch { stop, thread }
    }

    /// Ends it, and puts what was seen into the series of the same time.
    pub fn end(self, series: &mut [Second]) {
        self.stop.store(true, Ordering::Relaxed);
        let seen = self.thread.join().expect("who looks does not panic");
        for second in series {
            let after = seen.iter().position(|(at_s, _)| *at_s >= second.at_s - 0.5);
            if let Some(nth) = after.filter(|nth| *nth > 0) {
                second.hit_ratio = seen[nth].1.since(&seen[nth - 1].1).hit_ratio();
            }
        }
    }
}

/// Fills the backing device with the data of a case, unless it holds that already.
///
/// # Errors
/// If there is no room for it.
pub fn data(context: &Context, case: &Case, content: Content) -> Result<(), Trouble> {
    let holds = format!("{} bytes, {content:?}", case.data_bytes);
    // Legs write on it, with content of the same kind.
    let marker = context.stage.path("backing.holds");
    if std::fs::read_to_string(&marker).is_ok_and(|held| held == holds) {
        return Ok(());
    }
    let path = match context.backing(case) {
        Backing::Device(path) => path,
        Backing::Model { image, .. } => {
            let made = std::fs::File::create(&image).and_then(|file| file.set_len(case.data_bytes));
            made.map_err(|error| Trouble::io("make", &image, &error))?;
            image
        }
    };
    fill::fill(&path, case.data_bytes, content, FILL_SEED, context.stage.stop_flag(), &mut |_| {})?;
    context.stage.say(by_hand::fill_command(&path, case.data_bytes, content));
    std::fs::write(&marker, holds).map_err(|error| Trouble::io("write", &marker, &error))
}

/// How a leg is run.
pub struct BlockRun<'a> {
    /// The volume, or none for the bare device.
    pub setup: Option<Setup>,
    /// Parts that are read into the cache before, in this order.
    pub warm: Vec<Range<u64>>,
    /// The same load before the measured part, in seconds; not counted.
    pub warm_s: f64,
    /// The measured part.
    pub run_s: f64,
    /// The load on a block device, for so many seconds, with this seed.
    #[allow(clippy::type_complexity, reason = "named here and nowhere else")]
    pub load: &'a dyn Fn(&str, f64, u64) -> Result<Loaded, Trouble>,
}

/// A leg to be filled in.
pub fn begun(case: &Case, arm: &Arm, round: u32) -> Leg {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Leg { case: case.id.clone(), arm: arm.id.clone(), round, began_unix_s: since, ..Leg::default() }
}

/// A seed for each part of each leg: arms of a round get the same requests.
pub fn seed(round: u32, measured: bool) -> u64 {
    u64::from(round) * 2 + u64::from(measured)
}

/// Runs a leg on a device of its own.
///
/// # Errors
/// If anything of it fails.
pub fn run(context: &Context, case: &Case, arm: &Arm, round: u32, run: &BlockRun) -> Result<Leg, Trouble> {
    let mut leg = begun(case, arm, round);
    let whole = Instant::now();
    let device = Device::open(context, case, arm, run.setup.as_ref())?;
    if let Some(cached) = device.cached() {
        for part in &run.warm {
            cached.warm(part.clone())?;
        }
    }
    measure(&mut leg, &device, round, run)?;
    device.close()?;
    leg.took_s = whole.elapsed().as_secs_f64();
    leg.commands = context.stage.take_commands();
    Ok(leg)
}

/// Warm-up and measured part on a device that is there; fills in all but time and commands.
///
/// # Errors
/// If the load fails, or the daemon does not answer.
pub fn measure(leg: &mut Leg, device: &Device, round: u32, run: &BlockRun) -> Result<(), Trouble> {
    let teller = || device.cached().map(Cached::teller);
    let mut warm_up = Loaded::default();
    if run.warm_s > 0.0 {
        let watch = Watch::start(teller());
        warm_up = (run.load)(device.path(), run.warm_s, seed(round, false))?;
        watch.end(&mut warm_up.series);
    }
    let meter = Meter::start(device)?;
    let watch = Watch::start(teller());
    let mut loaded = (run.load)(device.path(), run.run_s, seed(round, true))?;
    watch.end(&mut loaded.series);
    let (cpu, cache) = meter.stop(device)?;
    put(leg, &warm_up, loaded, cpu, cache, run.warm_s);
    Ok(())
}

/// What was measured, in the words of results.
pub fn put(leg: &mut Leg, warm_up: &Loaded, loaded: Loaded, cpu: Cpu, cache: Option<CacheFigures>, warm_s: f64) {
    leg.cut_s = warm_up.series.last().map_or(0.0, |second| second.at_s);
    leg.cut_why = match warm_s > 0.0 {
        true => format!("{warm_s:.0} s of the same load ran before and are not counted"),
        false => "all of the run is counted".into(),
    };
    let behind = loaded.series.iter().map(|second| Second { at_s: second.at_s + leg.cut_s, ..*second });
    leg.series = warm_up.series.iter().copied().chain(behind).collect();
    leg.figures.insert("rate".into(), loaded.rate);
    leg.figures.insert("bytes_per_s".into(), loaded.bytes_per_s);
    leg.figures.insert("mean_us".into(), loaded.latency.mean_us);
    for (name, part) in [("read_mean_us", &loaded.reads), ("write_mean_us", &loaded.writes)] {
        if let Some(latency) = &part.latency {
            leg.figures.insert(name.into(), latency.mean_us);
        }
    }
    if let Some(ratio) = cache.and_then(|cache| cache.hit_ratio()) {
        leg.figures.insert("hit_ratio".into(), ratio);
    }
    (leg.latency, leg.cpu, leg.cache) = (Some(loaded.latency).filter(|latency| latency.mean_us > 0.0), cpu, cache);
}

/// A write-back leg without a block device in between: load and cache are one process, which is this one.
///
/// # Errors
/// If anything of it fails.
pub fn in_process(
    context: &Context,
    case: &Case,
    arm: &Arm,
    round: u32,
    warm_s: f64,
    load: &dyn Fn(f64, u64) -> Load,
) -> Result<Leg, Trouble> {
    let mut leg = begun(case, arm, round);
    let whole = Instant::now();
    let stop = context.stage.stop_flag();
    let setup = context.setup(case, "write-back", &[]);
    if !Path::new(&setup.ssd).starts_with("/dev") {
        let made = std::fs::File::create(&setup.ssd).and_then(|file| file.set_len(case.cache_bytes));
        made.map_err(|error| Trouble::io("make", Path::new(&setup.ssd), &error))?;
    }
    let cache = Cache { ssd: setup.ssd, bytes: Some(case.cache_bytes), ram_bytes: case.ram_bytes, mode: Mode::WriteBack };
    let served = InProcess::open(context.stage.place(), &setup.backing, Some(&cache))?;
    served.warm(0..case.data_bytes, stop)?;
    let warm_up = served.run(&load(warm_s.max(0.1), seed(round, false)), true, stop, &mut unwatched)?;
    let (machine_s, before) = (machine::cpu_s(), served.figures());
    let loaded = served.run(&load(context.scale.pick(20.0, 6.0, 1.0), seed(round, true)), true, stop, &mut unwatched)?;
    let used_s = machine::cpu_s() - machine_s;
    let cache = served.figures().since(&before);
    drop(served);
    leg.notes.push(
        "load and cache are one process: CPU is that of the whole machine; the data of each read is copied into a buffer of the load's"
            .into(),
    );
    leg.commands = context.stage.take_commands();
    leg.commands.push(format!(
        "hearth evaluate run {} (the load calls the cache in its own process)",
        case.id.split('.').next().unwrap_or_default()
    ));
    put(&mut leg, &warm_up, loaded, Cpu { wall_s: 0.0, hearth_s: used_s, machine_s: used_s }, Some(cache), warm_s);
    leg.cpu.wall_s = leg.series.last().map_or(0.0, |second| second.at_s) - leg.cut_s;
    leg.took_s = whole.elapsed().as_secs_f64();
    Ok(leg)
}

/// Makes bytes, in place of I/Os, what a leg counts, and adds the share of them that the backing device was spared.
pub fn count_bytes(leg: &mut Leg) {
    let (rate, bytes) = (leg.figures["rate"], leg.figures["bytes_per_s"]);
    let bytes_each = if rate > 0.0 { bytes / rate } else { 0.0 };
    leg.figures.insert("rate".into(), bytes);
    leg.series.iter_mut().for_each(|second| second.rate *= bytes_each);
    if let Some(cache) = &leg.cache {
        let host = (cache.host_read_bytes + cache.host_written_bytes).max(1) as f64;
        let backing = (cache.backing_read_bytes + cache.backing_written_bytes) as f64;
        leg.figures.insert("kept_off".into(), (1.0 - backing / host).max(0.0));
    }
}
