//! Analyses and advice: what the watches need of the manager, and who asks them.

use super::Manager;
use analysis::advice::Latencies;
use api::error::{ControlError, Kind};
use api::human;
use api::memory::RAM_BYTES_DEFAULT;
use api::names::{self, Named};
use api::stats::PoolStats;
use api::{AdviceAsk, AdviceView, AnalysisStart, AnalysisView, Severity, StreamView};
use insight::advising::{Asked, SSD_US_ASSUMED, TARGETS_PERCENT, name_objects, objects_of};
use insight::shares::Room;
use insight::{DeviceAsked, FOR_MS_MAX, Insight, InsightOptions, Known, LoadNamed, Source, same_device, writes_in};
use records::state::VolumeRecord;
use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::time::Duration;
use types::Mode;

/// How often the observer looks.
const OBSERVE_EVERY: Duration = Duration::from_secs(1);
/// And when it saw so many requests that the reactors' room for them may not last a second.
const OBSERVE_SOON: Duration = Duration::from_millis(100);
const MANY_REQUESTS: usize = 1000;

impl Manager {
    /// Sets what is watched, and with how much memory; once, before anything is watched.
    pub fn set_insight(&self, options: InsightOptions) {
        *self.insight() = Insight::new(options);
    }

    /// Takes in what clients did since the last time. How many requests that were: who calls may come sooner when there are many.
    ///
    /// # Errors
    /// If a reactor does not answer; the next call may succeed.
    pub fn observe(&self) -> Result<usize, ControlError> {
        if !self.insight().options().enabled {
            return Ok(0);
        }
        self.know_volumes();
        self.know_stream_rules();
        self.know_sessions();
        self.keep_witnesses();
        let tapped = self.data().take_tapped()?;
        let requests = self.insight().take_in(tapped);
        self.forget_scans();
        let began = self.insight().take_began();
        for (volume, told) in began {
            self.events().note(Severity::Info, &volume, told);
        }
        Ok(requests)
    }

    /// Takes notice of which volumes there are: once a second, and before anything is told of them.
    pub(super) fn know_volumes(&self) {
        let volumes = self.data().volumes_to_tap();
        let of = |volume: &VolumeRecord| Known { uuid: Some(volume.uuid), mode: volume.options.mode };
        let known: BTreeMap<String, Known> = self.memory().state.volumes.iter().map(|volume| (volume.name.clone(), of(volume))).collect();
        let saved = self.watches_of(known.iter().filter(|(name, _)| volumes.iter().any(|volume| volume.name == **name)));
        self.insight().know(volumes, &known, saved);
    }

    /// How long the observer rests after a look that took `used` of a processor and saw `requests`.
    pub fn observer_rest(&self, used: Duration, requests: usize) -> Duration {
        let wished = if requests > MANY_REQUESTS { OBSERVE_SOON } else { OBSERVE_EVERY };
        self.insight().rest_after(used, wished)
    }

    pub(super) fn analysis_start(&self, start: &AnalysisStart) -> Result<AnalysisView, ControlError> {
        names::check(Named::Analysis, &start.name)?;
        if start.for_ms.is_some_and(|for_ms| !(1000..=FOR_MS_MAX).contains(&for_ms)) {
            return Err(ControlError::BadOption {
                option: "--for",
                problem: "is not between 1 second and 31 days".into(),
                remedy: "write for instance 30min, 24h or 7d".into(),
            });
        }
        let mode = start.mode.as_deref().map(mode_named).transpose()?;
        self.insight().check_new(&start.name)?;
        let (source, mode) = match (&start.volume, &start.device, &start.trace) {
            (Some(volume), None, None) => {
                let record = self.volume_record(volume)?;
                self.know_volumes();
                if !self.insight().watches(volume) {
                    return Err(self.no_load(volume));
                }
                (Source::volume_of(volume, record.uuid), mode.unwrap_or(record.options.mode))
            }
            (None, Some(device), None) => {
                let mode = mode.unwrap_or_default();
                // Where nothing can be known of it, nothing tells it from another one later.
                let identity = same_device::identity_of(device).unwrap_or_default();
                let asked = DeviceAsked { tap: start.tap.clone(), reads: !start.no_read, identity };
                (self.device_source(device, asked)?, mode)
            }
            (None, None, Some(trace)) => {
                let mode = mode.unwrap_or_default();
                let limits = self.insight().limits_of_one_more().unwrap_or(analysis::watch::Limits { lines: 8192, uses: 1 << 17 });
                let metadata = std::fs::metadata(trace).map_err(|error| not_readable(trace, &error))?;
                if !metadata.is_file() {
                    return Err(device_error(trace, "it is not a file", "name a recorded trace", Kind::Usage));
                }
                traces::read::check_head(std::path::Path::new(trace))
                    .map_err(|error| ControlError::Analysis(error.to_string(), error.remedy().into()))?;
                let source = Source::trace(trace, writes_in(mode), limits);
                (source.map_err(|problem| device_error(trace, &problem, "try again", Kind::Failed))?, mode)
            }
            _ => {
                return Err(ControlError::BadCombination(
                    "an analysis watches one thing".into(),
                    "give exactly one of --volume, --device and --trace".into(),
                ));
            }
        };
        self.insight().begin(&start.name, source, mode, start.for_ms)
    }

    pub(super) fn device_source(&self, path: &str, asked: DeviceAsked) -> Result<Source, ControlError> {
        if asked.ways().is_none() {
            return Err(ControlError::BadOption {
                option: "--tap",
                problem: format!("is \"{}\"", asked.tap.unwrap_or_default()),
                remedy: "write auto, bpf or tracefs".into(),
            });
        }
        let metadata = std::fs::metadata(path).map_err(|error| not_readable(path, &error))?;
        if !metadata.file_type().is_block_device() {
            return Err(device_error(path, "it is not a block device", "name a disk or a partition; see `hearth devices`", Kind::Usage));
        }
        if let Some(volume) = self.volume_offered_at(path) {
            let remedy = format!("watch the volume instead: it is seen exactly, with --volume {volume}");
            return Err(device_error(path, &format!("it is the device of the volume \"{volume}\""), &remedy, Kind::Conflict));
        }
        let number = metadata.rdev();
        Source::device(path, (rustix::fs::major(number), rustix::fs::minor(number)), asked)
            .map_err(|(problem, remedy)| device_error(path, &problem, remedy, Kind::Conflict))
    }

    /// The volume that is offered as the device at this path.
    fn volume_offered_at(&self, path: &str) -> Option<String> {
        let canonical = self.data().canonical(path);
        let memory = self.memory();
        let is_it = |place: &str| place == path || place == canonical;
        let offered = memory.volumes.iter().find(|(_, live)| live.block_device().is_some_and(|(_, place)| is_it(place)));
        offered.map(|(name, _)| name.clone())
    }

    pub(super) fn analysis_stop(&self, name: &str) -> Result<AnalysisView, ControlError> {
        self.refuse_unnamed(name)?;
        self.insight().end(name)
    }

    pub(super) fn analysis_forget(&self, name: &str) -> Result<(), ControlError> {
        self.refuse_unnamed(name)?;
        let known = self.insight().forget(name);
        // One that did not go on after a restart has a file only.
        if self.forget_watch(name) { Ok(()) } else { known }
    }

    /// The watch of a volume has no end of its own.
    fn refuse_unnamed(&self, name: &str) -> Result<(), ControlError> {
        if self.insight().view(name).is_ok_and(|view| !view.named) {
            return Err(ControlError::Analysis(
                format!("\"{name}\" is a volume, which is watched as long as it is attached"),
                "to watch none, set insight.enabled = false in the configuration".into(),
            ));
        }
        Ok(())
    }

    pub(super) fn analysis_views(&self) -> Vec<AnalysisView> {
        self.know_volumes();
        self.insight().views()
    }

    pub(super) fn analysis_view(&self, name: &str) -> Result<AnalysisView, ControlError> {
        self.know_volumes();
        let view = self.insight().view(name);
        view.or_else(|error| {
            self.insight().check_enabled()?;
            // A volume that is not attached is known, too.
            Err(self.volume_record(name).map_or(error, |_| self.no_load(name)))
        })
    }

    pub(super) fn streams(&self, name: Option<&str>) -> Result<Vec<StreamView>, ControlError> {
        self.know_volumes();
        let loads = self.insight().loads(name);
        if let Some(name) = name.filter(|_| loads.is_empty()) {
            return Err(self.no_load(name));
        }
        let insight = self.insight();
        Ok(loads.iter().filter_map(|load| insight.streams(&load.name)).flatten().collect())
    }

    /// Of a trace that cannot be used nothing is ever known.
    pub(super) fn check_was_read(&self, name: &str) -> Result<(), ControlError> {
        match self.insight().view(name) {
            Ok(AnalysisView { source, state, problem: Some(problem), .. }) if source == "trace" && state == "failed" => {
                let remedy = format!("correct the file, then `hearth analysis forget {name}` and start it again");
                Err(ControlError::Analysis(problem, remedy))
            }
            _ => Ok(()),
        }
    }

    /// What an analysis that has ended or failed does not tell any more, and what a budget would bring where RAM has it all.
    pub(super) fn add_state(&self, load: &LoadNamed, asked: &Asked, advice: &mut AdviceView) {
        let view = self.insight().view(&load.name).ok().filter(|view| view.named);
        if let Some(view) = view.filter(|view| matches!(view.state.as_str(), "ended" | "failed")) {
            over(advice, &view);
        }
        let in_ram = advice.targets.iter().any(|target| target.ssd_bytes == Some(0));
        if asked.is_budget && advice.now.is_none() && in_ram {
            advice.sentences.push(format!(
                "What is read again fits into the {} of RAM that a pool has by default, so that an SSD of {} adds no hits.",
                human::bytes(advice.ram_bytes),
                human::bytes(asked.ssd_bytes.unwrap_or(0))
            ));
        }
    }

    /// Which objects bring the hits, where objects of the volume are known.
    pub(super) fn add_objects(&self, load: &LoadNamed, watch: &analysis::Watch, advice: &mut AdviceView) {
        // An analysis of a volume has that volume's.
        let of = load.volume.as_ref().unwrap_or(&load.name);
        let owners = self.insight().objects_of(of).and_then(|objects| objects.owners(watch));
        let Some(owners) = owners else { return };
        let owner_of = |offset_bytes: u64| owners.get(&(offset_bytes / types::BLOCK_BYTES)).copied();
        let found = objects_of(watch, advice, load.mode, &owner_of);
        if let Some(objects) = self.insight().objects_of(of) {
            name_objects(advice, &found, objects);
        }
    }

    /// Sees to it that what the objects of a volume bring was told lately.
    pub(super) fn renew_shares(&self, volume: &str) {
        if !self.insight().shares_due(volume) {
            return;
        }
        let loads = self.insight().loads(Some(volume));
        let Some(load) = loads.iter().find(|load| load.name == volume) else { return };
        let asked = self.asked_of(load, &AdviceAsk::default(), &self.data().figures());
        let room = Room { ram_blocks: asked.ram_bytes / types::BLOCK_BYTES, stored_share: asked.stored_share() };
        self.insight().renew_shares(volume, room);
    }

    /// Why there is no load of that name.
    pub(super) fn no_load(&self, name: &str) -> ControlError {
        if let Err(error) = self.insight().check_enabled() {
            return error;
        }
        let (is_pool, is_volume) = {
            let memory = self.memory();
            (memory.state.pool(name).is_some(), memory.state.volume(name).is_some())
        };
        if is_volume {
            let is_attached = self.data().volumes_to_tap().iter().any(|volume| volume.name == name);
            let (reason, remedy) = if is_attached {
                ("it is not watched", "give more to insight.memory in the configuration: it has no room for one more volume".to_string())
            } else {
                ("it is not attached, so it is not watched", format!("start it with `hearth volume start {name}`"))
            };
            return ControlError::NotRunning { named: "volume", name: name.into(), reason: reason.into(), remedy };
        }
        if is_pool {
            return ControlError::Analysis(
                format!("the pool \"{name}\" has no volume that is watched"),
                "start its volumes; see `hearth volume list`".into(),
            );
        }
        let remedy = "list them with `hearth analysis list` and `hearth pool list`".into();
        ControlError::UnknownNear { named: "volume, pool or analysis", name: name.into(), remedy }
    }

    pub(super) fn asked_of(&self, load: &LoadNamed, ask: &AdviceAsk, figures: &datapath::figures::Figures) -> Asked {
        let pool = load.pool.as_ref().and_then(|pool| figures.pools.get(pool));
        let memory = self.memory();
        let record = load.pool.as_ref().and_then(|pool| memory.state.pool(pool));
        let size_bytes = load.pool.as_ref().and_then(|pool| memory.pools.get(pool)).map(|live| live.size_bytes).filter(|size| *size > 0);
        // What has no pool yet would get one as it is made when nothing is said. Without any RAM a block that is written through
        // would leave the cache, and no size would help.
        let ram_bytes = record.map_or(RAM_BYTES_DEFAULT, |record| record.ram_bytes);
        let written = pool.map_or(0, |pool| pool.ssd_written_bytes);
        // Of a pool that has hardly written, neither says anything. What is cached counts as large as clients see it, and what it takes
        // as small as it is stored.
        let stored_share = pool.and_then(stored_share);
        let written_factor = pool
            .filter(|pool| written >= 64 << 20 && pool.admitted_bytes > 0)
            .map(|pool| (written as f64 / (pool.admitted_bytes + pool.reinserted_bytes) as f64).clamp(0.01, 10.0));
        let content = pool.and_then(|pool| pool.content.as_ref()).filter(|content| content.cached_bytes >= 64 << 20);
        let latency = |outcome: &str| {
            let volume = load.volume.as_ref().and_then(|volume| figures.volumes.get(volume))?;
            let histogram = volume.clients.latency.get(outcome).filter(|histogram| histogram.count() >= 100)?;
            Some(histogram.summary().mean_ns as f64 / 1000.0)
        };
        // Past a cache that does nothing each read goes to the backing device.
        let backing_us = latency(if load.mode == Mode::PassThrough { "read" } else { "miss" }).or(load.read_us);
        let ssd_us = latency("ssd_hit");
        Asked {
            targets_percent: if ask.targets_percent.is_empty() { TARGETS_PERCENT.to_vec() } else { ask.targets_percent.clone() },
            with_backups: ask.with_backups,
            ssd_bytes: ask.budget_bytes.or(size_bytes),
            is_budget: ask.budget_bytes.is_some(),
            ram_bytes,
            stored_share,
            written_factor,
            content_factor: content.and_then(|content| content.effective_capacity),
            latencies: Latencies { ram_us: latency("ram_hit"), ssd_us, backing_us },
            ssd_us_assumed: ssd_us.is_none().then_some(SSD_US_ASSUMED),
        }
    }

    pub(super) fn advice(&self, id: u64) -> Result<AdviceView, ControlError> {
        self.insight().advice(id).cloned().ok_or_else(|| ControlError::Unknown { named: "advice", name: id.to_string() })
    }
}

/// Bytes of clients that a byte of the pool's SSD holds, if it holds enough to tell.
fn stored_share(pool: &PoolStats) -> Option<f64> {
    let slots = pool.slots.as_ref().filter(|slots| slots.live_bytes >= 64 << 20)?;
    let of_the_ssd = slots.size_bytes as f64 / (slots.size_bytes + slots.ring_bytes) as f64;
    Some((of_the_ssd * pool.cached_bytes as f64 / slots.live_bytes as f64).clamp(0.3, 100.0))
}

/// Nothing more comes of an analysis: waiting is no remedy for what is not known.
fn over(advice: &mut AdviceView, view: &AnalysisView) {
    for target in advice.targets.iter_mut().filter(|target| target.not_yet.is_some()) {
        target.more_ms = None;
        if view.state == "failed" {
            // Why: see the first sentence.
            target.not_yet = Some("the analysis has failed".into());
        } else if view.source == "trace" && view.window_ms == 0 {
            target.not_yet = Some("this trace has no times, and without them no size can be given".into());
        } else if let Some(why) = &mut target.not_yet {
            *why = format!("the analysis has ended, and {why}");
        }
    }
    if let Some(problem) = view.problem.as_ref() {
        advice.sentences.insert(0, format!("The analysis has {}: {problem}.", view.state));
    }
}

fn mode_named(word: &str) -> Result<Mode, ControlError> {
    Mode::from_name(word).filter(|mode| *mode != Mode::PassThrough).ok_or_else(|| ControlError::BadOption {
        option: "--mode",
        problem: format!("is \"{word}\""),
        remedy: "write write-through, write-back or write-around".into(),
    })
}

fn device_error(path: &str, problem: &str, remedy: &str, kind: Kind) -> ControlError {
    ControlError::Device { path: path.into(), problem: problem.into(), remedy: remedy.into(), kind }
}

fn not_readable(path: &str, error: &std::io::Error) -> ControlError {
    device_error(path, &format!("it cannot be looked at ({error})"), "check the path", Kind::Usage)
}

#[cfg(test)]
mod tests {
    use super::stored_share;
    use api::stats::{PoolStats, SlotStats};

    #[test]
    fn what_an_ssd_holds_does_not_depend_on_what_is_written_to_it() {
        let mib = 1 << 20;
        let slots = SlotStats { size_bytes: 630 * mib, ring_bytes: 10 * mib, live_bytes: 300 * mib, ..SlotStats::default() };
        let pool = |cached_bytes, ssd_written_bytes| PoolStats {
            cached_bytes,
            ssd_written_bytes,
            admitted_bytes: 300 * mib,
            slots: Some(slots.clone()),
            ..PoolStats::default()
        };
        let plain = stored_share(&pool(300 * mib, 900 * mib)).expect("it holds enough");
        assert!((plain - 630.0 / 640.0).abs() < 1e-9, "{plain}");
        let packed = stored_share(&pool(600 * mib, 300 * mib)).expect("it holds enough");
        assert!((packed - 2.0 * plain).abs() < 1e-9, "{packed}");
        let little = SlotStats { live_bytes: 63 * mib, ..slots.clone() };
        assert_eq!(stored_share(&PoolStats { slots: Some(little), ..pool(63 * mib, 63 * mib) }), None);
        assert_eq!(stored_share(&PoolStats { slots: None, ..pool(300 * mib, 900 * mib) }), None, "it does not run");
    }
}
