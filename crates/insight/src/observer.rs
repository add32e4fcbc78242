//! The watches, and the step that feeds them once a second.

mod advised;
mod asking;
mod looks;
mod saving;

pub use advised::Came;
pub use looks::{Look, LookedAt};
pub use saving::Known;

use super::began::Began;
use super::objects::{Looked, Objects};
use super::passed::Passed;
use super::saved::Mark;
use super::shares::{Room, Shares};
use super::source::Source;
use super::watched::{Step, Watched, writes_in};
use super::witness::Witness;
use super::{now_ms, unix_ms};
use analysis::watch::Limits;
use api::error::ControlError;
use api::{AnalysisView, StreamView};
use applications::streams::{Rule, Rules};
use datapath::Tapped;
use runtime::VolumeRef;
use runtime::tapped::Used;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use types::{BLOCK_BYTES, Mode};
use uuid::Uuid;

/// A watch that every volume has begins anew after so long: what it tells is of the last day.
const DAY_MS: u64 = 24 * 3600 * 1000;
/// Longest time that is given to an analysis: 31 days.
pub const FOR_MS_MAX: u64 = 31 * DAY_MS;
/// Analyses there may be.
const ANALYSES_MAX: usize = 64;

/// The observer rests no longer than this: what is seen is told with its time, and that is known to the second.
const REST_MAX: Duration = Duration::from_secs(10);

/// Memory that telling requests apart takes for each watch: [`applications::streams::Streams::bytes`], marks and pieces that streams passed over.
const STREAMS_BYTES: u64 = 120 << 10;

/// What the configuration says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InsightOptions {
    /// Volumes are watched, and analyses may be started.
    pub enabled: bool,
    /// Memory that all watches may take together, in bytes.
    pub memory_bytes: u64,
    /// Percent of a core that watching may take.
    pub cpu_percent: u64,
    /// Names of databases, tables and indexes are shown as hashes.
    pub names_hashed: bool,
}

impl Default for InsightOptions {
    fn default() -> InsightOptions {
        InsightOptions { enabled: true, memory_bytes: 64 << 20, cpu_percent: 2, names_hashed: false }
    }
}

/// The watch that a volume has as long as it is attached.
struct OfVolume {
    /// Of what is no volume of the state there is none.
    uuid: Option<Uuid>,
    mark: Mark,
    reference: VolumeRef,
    pool: Option<String>,
    mode: Mode,
    watched: Watched,
    objects: Objects,
    /// Who asks on its device, and when that was tried last, if it could not be seen.
    witness: Option<Result<Witness, (u64, String)>>,
    /// The program of each session of its databases, by thread.
    sessions: Arc<BTreeMap<u32, String>>,
    began: Began,
}

/// An analysis that was begun by name.
pub(super) struct Analysis {
    pub(super) source: Source,
    pub(super) mode: Mode,
    pub(super) watched: Watched,
    /// What was found on a device that is read for names.
    pub(super) objects: Objects,
    /// What was seen before it began has been taken.
    pub(super) begun: bool,
    /// It ends by itself then, on the clock of the watches and in milliseconds since 1970.
    pub(super) ends_ms: Option<u64>,
    ends_unix_ms: Option<u64>,
    mark: Mark,
}

impl Analysis {
    /// Watches no more, and lets its device go; what was found stays.
    fn end(&mut self, now_ms: u64) {
        self.source.end();
        self.watched.end();
        if *self.objects.looked() == Looked::Now {
            let is_found = self.objects.found().is_some();
            let failed = || Looked::Failed(now_ms, "the analysis ended before its device had been looked at".into());
            self.objects.set_looked(if is_found { Looked::At(now_ms) } else { failed() }, now_ms);
        }
    }
}

/// See the module.
#[derive(Default)]
pub struct Insight {
    options: InsightOptions,
    volumes: BTreeMap<String, OfVolume>,
    /// Those that are detached and have not been saved since.
    gone: Vec<OfVolume>,
    analyses: BTreeMap<String, Analysis>,
    /// Blocks used, by reactor and volume number, as they were told last.
    used: BTreeMap<(usize, u32), Used>,
    advice: BTreeMap<u64, advised::Kept>,
    next_advice: u64,
    /// The state has known a volume.
    had_volumes: bool,
    /// What is to be told as events: of what, and a sentence.
    told: Vec<(String, String)>,
    /// The user's rules for streams, and with those that come with hearth.
    own_rules: Vec<Rule>,
    rules: Arc<Rules>,
}

impl Insight {
    /// None yet.
    pub fn new(options: InsightOptions) -> Insight {
        Insight { options, rules: Arc::new(Rules::usual()), ..Insight::default() }
    }

    /// What the configuration says.
    pub fn options(&self) -> InsightOptions {
        self.options
    }

    /// How long to rest after work that took `used` of a processor, `wished` at least: so long that it stays within its share. Reactors hold
    /// what comes meanwhile, as far as there is room, and count what they cannot hold.
    pub fn rest_after(&self, used: Duration, wished: Duration) -> Duration {
        let percent = u32::try_from(self.options.cpu_percent.clamp(1, 100)).unwrap_or(100);
        wished.max(used * (100 - percent) / percent).min(REST_MAX)
    }

    /// Each watch's share of the memory, with `more` of them.
    fn limits(&self, more: usize) -> Option<Limits> {
        let watches = self.volumes.len() + self.analyses.len() + more;
        let others_bytes = watches as u64 * STREAMS_BYTES + self.objects_bytes() + self.asking_bytes();
        Limits::for_each_of(watches, self.options.memory_bytes.saturating_sub(others_bytes))
    }

    /// Memory that all that is known of objects takes.
    fn objects_bytes(&self) -> u64 {
        let of_analyses = self.analyses.values().map(|analysis| &analysis.objects);
        self.volumes.values().map(|volume| &volume.objects).chain(of_analyses).map(Objects::bytes).sum()
    }

    /// The share of one more.
    pub fn limits_of_one_more(&self) -> Option<Limits> {
        self.limits(1)
    }

    fn fit(&mut self, limits: Limits) {
        let watches = self.volumes.values_mut().map(|volume| &mut volume.watched);
        let analyses = self.analyses.values_mut().map(|analysis| &mut analysis.watched);
        watches.chain(analyses).for_each(|watched| watched.watch_mut().shrink(limits));
    }

    /// Takes in what the reactors have seen since the last time. How many requests that were.
    pub fn take_in(&mut self, tapped: Tapped) -> usize {
        let now_ms = now_ms();
        let when = |time_ms| super::source::when(now_ms, time_ms);
        let mut steps: BTreeMap<u32, Step> = BTreeMap::new();
        for volume in self.volumes.values() {
            steps.insert(volume.reference.number(), Step { below: volume.reference.sampled_below(), ..Step::default() });
        }
        let mut requests = 0;
        for (reactor, part) in tapped.into_iter().enumerate() {
            for sample in part.samples {
                if let Some(step) = steps.get_mut(&sample.volume) {
                    step.samples.push((sample, when(sample.time_ms)));
                }
            }
            for removed in part.removed {
                if let Some(step) = steps.get_mut(&removed.volume) {
                    step.removed.push(removed);
                }
            }
            requests += part.sights.len();
            for sight in part.sights {
                if let Some(step) = steps.get_mut(&sight.volume) {
                    step.sights.push((sight, when(sight.time_ms)));
                }
            }
            for (number, used) in part.used {
                let before = self.used.insert((reactor, number), used).unwrap_or_default();
                if let Some(step) = steps.get_mut(&number) {
                    step.used.read_blocks += used.read_blocks.saturating_sub(before.read_blocks);
                    step.used.sequential_blocks += used.sequential_blocks.saturating_sub(before.sequential_blocks);
                    step.used.written_blocks += used.written_blocks.saturating_sub(before.written_blocks);
                }
            }
            // Of which volume they were is not known.
            steps.values_mut().for_each(|step| step.sights_lost += part.sights_lost);
        }
        for volume in self.volumes.values() {
            if let (Some(Ok(witness)), Some(step)) = (&volume.witness, steps.get_mut(&volume.reference.number())) {
                step.met = witness.tell(&mut step.sights, now_ms);
            }
        }
        for step in steps.values_mut() {
            // Reactors tell theirs in order; the order among them is that of time.
            step.samples.sort_by_key(|(_, time_ms)| *time_ms);
            step.sights.sort_by_key(|(_, time_ms)| *time_ms);
        }
        self.take_steps(&steps, now_ms);
        requests
    }

    fn take_steps(&mut self, steps: &BTreeMap<u32, Step>, now_ms: u64) {
        let is_old = |one: &OfVolume| one.watched.watch().load(true).window_ms() > DAY_MS;
        let limits = if self.volumes.values().any(is_old) { self.limits(0) } else { None };
        for (name, volume) in &mut self.volumes {
            let Some(step) = steps.get(&volume.reference.number()) else { continue };
            let objects = &volume.objects;
            volume.watched.step_over(step, now_ms, &|offset_bytes| objects.place_at(offset_bytes));
            volume.objects.learn(&step.sights);
            let weight = 1.0 / (step.below as f64 / u64::MAX as f64).max(1e-9);
            volume.objects.count(step.samples.iter().map(|(sample, _)| sample), weight);
            if is_old(volume) {
                volume.watched.restart(now_ms, limits);
                volume.objects.restart();
            }
            let mut below = volume.watched.watch().below();
            let objects = &volume.objects;
            for analysis in self.analyses.values_mut().filter(|analysis| analysis.source.is_volume(name)) {
                // The first step is in part of the time before, with a smaller sample.
                if std::mem::replace(&mut analysis.begun, true) {
                    analysis.watched.step_over(step, now_ms, &|offset_bytes| objects.place_at(offset_bytes));
                }
                below = below.max(analysis.watched.watch().below());
            }
            volume.reference.sample_below(below);
        }
        for (name, analysis) in &mut self.analyses {
            analysis.source.feed(&mut analysis.watched, &mut analysis.objects, now_ms);
            if analysis.source.is_ended() {
                continue;
            }
            let is_gone = analysis.source.is_gone();
            if is_gone || analysis.ends_ms.is_some_and(|ends_ms| now_ms >= ends_ms) {
                analysis.end(now_ms);
            }
            if is_gone {
                self.told.push((name.clone(), format!("the analysis has ended: {} is gone", analysis.source.of())));
            }
        }
    }

    /// Begins an analysis.
    ///
    /// # Errors
    /// If there is one of that name, or no room for it.
    pub fn begin(&mut self, name: &str, source: Source, mode: Mode, for_ms: Option<u64>) -> Result<AnalysisView, ControlError> {
        self.check_new(name)?;
        let limits = self.limits(1).ok_or_else(|| {
            ControlError::Analysis(
                format!(
                    "there is no memory for one more analysis: {} are watched with {}",
                    types::counted((self.volumes.len() + self.analyses.len()) as u64, "load"),
                    api::human::bytes(self.options.memory_bytes)
                ),
                "give more with insight.memory in the configuration, or end one with `hearth analysis forget NAME`".into(),
            )
        })?;
        self.fit(limits);
        let now_ms = now_ms();
        if let Some(volume) = source.volume().and_then(|volume| self.volumes.get(volume)) {
            // It sees no more than the volume's own watch, whose sample may be smaller by now: a new one starts in full.
            volume.reference.watch(u64::MAX);
        }
        let mut watched = Watched::new(now_ms, writes_in(mode), limits);
        watched.set_rules(&self.rules, &Arc::default());
        let (ends_ms, ends_unix_ms) = (for_ms.map(|for_ms| now_ms + for_ms), for_ms.map(|for_ms| unix_ms() + for_ms));
        let (objects, mark) = (Objects::default(), Mark::begun(now_ms));
        self.analyses.insert(name.into(), Analysis { source, mode, watched, objects, begun: false, ends_ms, ends_unix_ms, mark });
        self.view(name)
    }

    /// Whether anything is watched at all.
    ///
    /// # Errors
    /// That the configuration says no.
    pub fn check_enabled(&self) -> Result<(), ControlError> {
        if self.options.enabled {
            return Ok(());
        }
        Err(ControlError::Analysis(
            "loads are not watched: insight.enabled is false in the configuration".into(),
            "set it to true and restart the daemon".into(),
        ))
    }

    /// Whether an analysis of that name can be begun.
    ///
    /// # Errors
    /// Why not.
    pub fn check_new(&self, name: &str) -> Result<(), ControlError> {
        self.check_enabled()?;
        if self.analyses.contains_key(name) || self.volumes.contains_key(name) {
            return Err(ControlError::Analysis(
                format!("\"{name}\" is the name of an analysis or a volume already"),
                "choose another name".into(),
            ));
        }
        if self.analyses.len() >= ANALYSES_MAX {
            return Err(ControlError::Analysis(
                format!("there are {ANALYSES_MAX} analyses already"),
                "end one with `hearth analysis forget NAME`".into(),
            ));
        }
        Ok(())
    }

    /// Whether a volume is watched.
    pub fn watches(&self, volume: &str) -> bool {
        self.volumes.contains_key(volume)
    }

    /// Volumes, and what is known of their objects.
    pub fn objects(&self) -> impl Iterator<Item = (&String, &Objects)> {
        self.volumes.iter().map(|(name, volume)| (name, &volume.objects))
    }

    /// What is known of the objects of a volume, or of a device that is read for names.
    pub fn objects_of(&self, name: &str) -> Option<&Objects> {
        let of_volume = self.volumes.get(name).map(|volume| &volume.objects);
        of_volume.or_else(|| self.analyses.get(name).filter(|one| one.source.reads()).map(|one| &one.objects))
    }

    /// Whether what the objects of a volume, or of a device in trial, bring is to be told anew.
    pub fn shares_due(&self, volume: &str) -> bool {
        let objects = self.objects_of(volume);
        objects.is_some_and(|objects| objects.found().is_some_and(|found| !found.objects.is_empty()) && objects.shares().is_due(now_ms()))
    }

    /// Tells it anew: milliseconds of computing.
    pub fn renew_shares(&mut self, volume: &str, room: Room) {
        let of_analysis = self.analyses.get_mut(volume).map(|one| (&one.watched, &mut one.objects));
        let of_volume = self.volumes.get_mut(volume).map(|one| (&one.watched, &mut one.objects));
        let Some((watched, objects)) = of_volume.or(of_analysis) else { return };
        let owner_of = |block: u64| objects.at(block * BLOCK_BYTES).map(|object| object.id);
        *objects.shares_mut() = Shares::new(watched.watch(), room, now_ms(), owner_of);
    }

    /// Volumes whose policies were given long enough ago to be given again. They are taken to be.
    pub fn policies_due(&mut self) -> Vec<String> {
        let now_ms = now_ms();
        let due = |(name, volume): (&String, &mut OfVolume)| volume.objects.policies_due(now_ms).then(|| name.clone());
        self.volumes.iter_mut().filter_map(due).collect()
    }

    /// What scans have read of each volume since the last time.
    pub fn take_scanned(&mut self) -> Vec<(String, Vec<Range<u64>>)> {
        let all = self.volumes.iter_mut().map(|(name, volume)| (name.clone(), volume.watched.take_scanned()));
        all.filter(|(_, ranges)| !ranges.is_empty()).collect()
    }

    /// Backups and long scans that have begun since the last time, and devices in trial that went: of what, and a sentence.
    pub fn take_began(&mut self) -> Vec<(String, String)> {
        let ended = std::mem::take(&mut self.told);
        let now_ms = now_ms();
        let of_volume = |(name, volume): (&String, &mut OfVolume)| {
            let watched = &volume.watched;
            let told = volume.began.look(watched.streams().listed(), now_ms, |origin| watched.askers().who(origin));
            told.into_iter().map(|told| (name.clone(), told)).collect::<Vec<_>>()
        };
        self.volumes.iter_mut().flat_map(of_volume).chain(ended).collect()
    }

    /// Ends an analysis; what it found stays.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn end(&mut self, name: &str) -> Result<AnalysisView, ControlError> {
        let analysis = self.analyses.get_mut(name).ok_or_else(|| unknown(name))?;
        analysis.end(now_ms());
        self.view(name)
    }

    /// Forgets an analysis.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn forget(&mut self, name: &str) -> Result<(), ControlError> {
        self.analyses.remove(name).map(drop).ok_or_else(|| unknown(name))
    }

    /// All that is watched.
    pub fn views(&self) -> Vec<AnalysisView> {
        let names: std::collections::BTreeSet<&String> = self.volumes.keys().chain(self.analyses.keys()).collect();
        names.into_iter().filter_map(|name| self.view(name).ok()).collect()
    }

    /// One.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn view(&self, name: &str) -> Result<AnalysisView, ControlError> {
        let (source, of, named, state, problem, tap, mode, watched) = if let Some(analysis) = self.analyses.get(name) {
            let Analysis { source, mode, watched, .. } = analysis;
            (source.kind(), source.of().to_string(), true, source.state(), source.problem(), source.way(), *mode, watched)
        } else if let Some(volume) = self.volumes.get(name) {
            ("volume", name.to_string(), false, "watching", None, None, volume.mode, &volume.watched)
        } else {
            return Err(unknown(name));
        };
        let (watch, totals) = (watched.watch(), watched.watch().totals());
        let load = watch.load(false);
        Ok(AnalysisView {
            name: name.into(),
            source: source.into(),
            of,
            named,
            state: state.into(),
            problem,
            tap,
            mode: mode.name().into(),
            // A trace tells of its own time.
            since_unix_s: (source != "trace").then_some(watched.since_unix_ms() / 1000),
            away_ms: if source == "trace" { 0 } else { watched.away_ms() },
            window_ms: load.window_ms(),
            read_bytes: totals.read_blocks.saturating_mul(BLOCK_BYTES),
            scanned_bytes: totals.scanned_blocks.saturating_mul(BLOCK_BYTES),
            written_bytes: totals.written_blocks.saturating_mul(BLOCK_BYTES),
            // Whether it was read or written first: what was written and then read is no first read.
            touched_bytes: ((load.stack().lines() as f64 / load.stack().rate()) as u64).saturating_mul(BLOCK_BYTES),
            sampled_share: load.stack().rate(),
            lost_requests: watched.lost_requests(),
            memory_bytes: watch.limits().bytes(),
            streams: self.streams(name).unwrap_or_default(),
        })
    }

    /// Who reads and writes a volume, or what an analysis watches.
    pub fn streams(&self, name: &str) -> Option<Vec<StreamView>> {
        let watched = self.watched(name)?;
        let listed = watched.streams().listed().iter().map(|line| StreamView {
            of: name.into(),
            class: line.verdict.class.name().into(),
            evidence: line.verdict.evidence.text().into(),
            who: line.origin.and_then(|origin| watched.askers().who(origin)),
            requests: line.requests,
            read_bytes: line.read_bytes,
            written_bytes: line.written_bytes,
            idle_ms: watched.now_ms().saturating_sub(line.last_ms),
        });
        Some(listed.collect())
    }

    /// The stream that passed over a range of a volume last, and the time of now.
    pub fn passed_over(&self, volume: &str, bytes: &Range<u64>) -> Option<(Passed, u64)> {
        let watched = &self.volumes.get(volume)?.watched;
        Some((watched.passing().over(bytes)?.clone(), watched.now_ms()))
    }

    fn watched(&self, name: &str) -> Option<&Watched> {
        let analysis = self.analyses.get(name).map(|analysis| &analysis.watched);
        analysis.or_else(|| self.volumes.get(name).map(|volume| &volume.watched))
    }

    /// The loads of that name: one, or all volumes of a pool; without a name all.
    pub fn loads(&self, name: Option<&str>) -> Vec<LoadNamed> {
        let of_volume = |(name, volume): (&String, &OfVolume)| LoadNamed {
            name: name.clone(),
            volume: Some(name.clone()),
            pool: volume.pool.clone(),
            mode: volume.mode,
            read_us: None,
        };
        let of_analysis = |(name, analysis): (&String, &Analysis)| {
            let volume = analysis.source.volume().map(str::to_string);
            let pool = volume.as_ref().and_then(|volume| self.volumes.get(volume)).and_then(|volume| volume.pool.clone());
            LoadNamed { name: name.clone(), volume, pool, mode: analysis.mode, read_us: analysis.source.read_us() }
        };
        let all = self.volumes.iter().map(of_volume).chain(self.analyses.iter().map(of_analysis));
        let Some(wanted) = name else { return all.collect() };
        let one: Vec<LoadNamed> = all.filter(|load| load.name == wanted).collect();
        if !one.is_empty() {
            return one;
        }
        self.volumes.iter().filter(|(_, volume)| volume.pool.as_deref() == Some(wanted)).map(of_volume).collect()
    }

    /// What is known of a load now, to be thought over without holding anybody up.
    pub fn copy_of(&self, load: &LoadNamed) -> Option<analysis::Watch> {
        self.watched(&load.name).map(|watched| watched.watch().clone())
    }

    /// The volume that a load is of.
    pub fn volume_of(&self, load: &str) -> Option<String> {
        self.loads(Some(load)).into_iter().find(|known| known.name == load)?.volume
    }
}

/// A load that can be advised on.
#[derive(Clone, Debug)]
pub struct LoadNamed {
    /// Its name.
    pub name: String,
    /// The volume that it is of.
    pub volume: Option<String>,
    /// That volume's pool.
    pub pool: Option<String>,
    /// How writes act on the cache that is asked for.
    pub mode: Mode,
    /// What a read from a device in trial takes, in microseconds, as far as that is known.
    pub read_us: Option<f64>,
}

fn unknown(name: &str) -> ControlError {
    ControlError::Unknown { named: "analysis", name: name.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_volumes_fit_into_the_default() {
        let options = InsightOptions::default();
        let insight = Insight::new(options);
        let limits = insight.limits(100).expect("they fit");
        assert!((limits.bytes() + STREAMS_BYTES) * 100 <= options.memory_bytes, "{limits:?}");
        // A table of marks takes 35 KiB.
        assert!(applications::streams::Streams::default().bytes() as u64 + (35 << 10) <= STREAMS_BYTES);
        assert!(insight.limits(1000).is_none(), "more are refused, and nothing grows");
    }

    #[test]
    fn the_observer_rests_so_long_that_it_keeps_its_share_of_a_processor() {
        let insight = Insight::new(InsightOptions { cpu_percent: 2, ..InsightOptions::default() });
        let ms = Duration::from_millis;
        assert_eq!(insight.rest_after(ms(1), ms(100)), ms(100));
        assert_eq!(insight.rest_after(ms(20), ms(100)), ms(980));
        assert_eq!(insight.rest_after(ms(900), ms(100)), REST_MAX);
        let all = Insight::new(InsightOptions { cpu_percent: 100, ..InsightOptions::default() });
        assert_eq!(all.rest_after(ms(900), ms(100)), ms(100));
    }

    #[test]
    fn a_trace_is_read_and_told() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("load.csv");
        let mut text = String::from("time_us,rw,offset_bytes,length_bytes\n");
        for n in 0..60_000_u64 {
            let block = engine::tap::line_hash(n, 3) % 2000;
            text += &format!("{},R,{},4096\n", n * 1000, block * 4096);
        }
        std::fs::write(&path, text).expect("room");
        let limits = Limits { lines: 8192, uses: 1 << 16 };
        let source = Source::trace(&path.display().to_string(), writes_in(Mode::WriteThrough), limits);
        let mut insight = Insight::new(InsightOptions::default());
        insight.begin("t", source.expect("a thread"), Mode::WriteThrough, None).expect("there is room");
        let begun = std::time::Instant::now();
        while insight.view("t").expect("it is there").state == "reading" {
            assert!(begun.elapsed().as_secs() < 120, "it is not read");
            insight.take_in(Vec::new());
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let view = insight.view("t").expect("it is there");
        assert_eq!((view.state.as_str(), view.problem.as_deref()), ("ended", None), "{view:?}");
        assert_eq!((view.read_bytes, view.window_ms / 1000), (60_000 * 4096, 59));
        let load = insight.loads(Some("t")).pop().expect("one");
        let watch = insight.copy_of(&load).expect("one");
        let advice = crate::advising::advise(&load, &watch, &crate::advising::Asked::default());
        let size = advice.targets[1].ssd_bytes.expect("60,000 reads of 2,000 blocks");
        assert!((1800 * 4096..2000 * 4096 * 2).contains(&size), "{advice:?}");
        insight.forget("t").expect("it is there");
        assert!(insight.views().is_empty());
    }
}
