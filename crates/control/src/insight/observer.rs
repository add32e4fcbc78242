//! The watches, and the step that feeds them once a second.

use super::now_ms;
use super::source::Source;
use super::watched::{Step, Watched, writes_in};
use crate::api::{AdviceView, AnalysisView, StreamView};
use crate::datapath::{Tapped, TappedVolume};
use crate::error::ControlError;
use analysis::watch::Limits;
use runtime::VolumeRef;
use runtime::tapped::Used;
use std::collections::BTreeMap;
use types::{BLOCK_BYTES, Mode};

/// A watch that every volume has begins anew after so long: what it tells is of the last day.
const DAY_MS: u64 = 24 * 3600 * 1000;
/// Advice that is kept to be looked at again.
const ADVICE_MAX: usize = 64;
/// Analyses there may be.
const ANALYSES_MAX: usize = 64;

/// Memory that telling requests apart takes for each watch: [`applications::streams::Streams::bytes`] and marks.
const STREAMS_BYTES: u64 = 108 << 10;

/// What the configuration says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InsightOptions {
    /// Volumes are watched, and analyses may be started.
    pub enabled: bool,
    /// Memory that all watches may take together, in bytes.
    pub memory_bytes: u64,
}

impl Default for InsightOptions {
    fn default() -> InsightOptions {
        InsightOptions { enabled: true, memory_bytes: 64 << 20 }
    }
}

/// The watch that a volume has as long as it is attached.
struct OfVolume {
    reference: VolumeRef,
    pool: Option<String>,
    mode: Mode,
    watched: Watched,
}

/// An analysis that was begun by name.
pub(super) struct Analysis {
    pub(super) source: Source,
    pub(super) mode: Mode,
    pub(super) watched: Watched,
    /// What was seen before it began has been taken.
    pub(super) begun: bool,
    /// It ends by itself then.
    pub(super) ends_ms: Option<u64>,
}

/// See the module.
#[derive(Default)]
pub struct Insight {
    options: InsightOptions,
    volumes: BTreeMap<String, OfVolume>,
    analyses: BTreeMap<String, Analysis>,
    /// Blocks used, by reactor and volume number, as they were told last.
    used: BTreeMap<(usize, u32), Used>,
    advice: BTreeMap<u64, AdviceView>,
    next_advice: u64,
}

impl Insight {
    /// None yet.
    pub fn new(options: InsightOptions) -> Insight {
        Insight { options, ..Insight::default() }
    }

    /// What the configuration says.
    pub fn options(&self) -> InsightOptions {
        self.options
    }

    /// Each watch's share of the memory, with `more` of them.
    fn limits(&self, more: usize) -> Option<Limits> {
        let watches = self.volumes.len() + self.analyses.len() + more;
        Limits::for_each_of(watches, self.options.memory_bytes.saturating_sub(watches as u64 * STREAMS_BYTES))
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

    /// Takes notice of which volumes there are, and in which mode.
    pub fn know(&mut self, volumes: Vec<TappedVolume>, mode_of: impl Fn(&str) -> Mode) {
        if !self.options.enabled {
            return;
        }
        let now_ms = now_ms();
        self.volumes.retain(|name, known| volumes.iter().any(|volume| volume.name == *name && volume.reference.is(&known.reference)));
        for TappedVolume { name, pool, reference } in volumes {
            let mode = mode_of(&name);
            if let Some(known) = self.volumes.get_mut(&name) {
                if known.mode != mode {
                    known.mode = mode;
                    known.watched.watch_mut().set_writes(writes_in(mode));
                }
                continue;
            }
            // Without memory for one more, the volume goes unwatched; `show` says so.
            let Some(limits) = self.limits(1) else { continue };
            self.fit(limits);
            reference.watch(u64::MAX);
            let watched = Watched::new(now_ms, writes_in(mode), limits);
            self.volumes.insert(name, OfVolume { reference, pool, mode, watched });
        }
        let numbers: Vec<u32> = self.volumes.values().map(|volume| volume.reference.number()).collect();
        self.used.retain(|(_, number), _| numbers.contains(number));
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
        for step in steps.values_mut() {
            // Reactors tell theirs in order; the order among them is that of time.
            step.samples.sort_by_key(|(_, time_ms)| *time_ms);
            step.sights.sort_by_key(|(_, time_ms)| *time_ms);
        }
        self.take_steps(&steps, now_ms);
        requests
    }

    fn take_steps(&mut self, steps: &BTreeMap<u32, Step>, now_ms: u64) {
        for (name, volume) in &mut self.volumes {
            let Some(step) = steps.get(&volume.reference.number()) else { continue };
            volume.watched.step(step, now_ms);
            if volume.watched.watch().load(true).window_ms() > DAY_MS {
                volume.watched.restart(now_ms);
            }
            let mut below = volume.watched.watch().below();
            for analysis in self.analyses.values_mut().filter(|analysis| analysis.source.is_volume(name)) {
                // The first step is in part of the time before, with a smaller sample.
                if std::mem::replace(&mut analysis.begun, true) {
                    analysis.watched.step(step, now_ms);
                }
                below = below.max(analysis.watched.watch().below());
            }
            volume.reference.sample_below(below);
        }
        for analysis in self.analyses.values_mut() {
            analysis.source.feed(&mut analysis.watched, now_ms);
            if analysis.ends_ms.is_some_and(|ends_ms| now_ms >= ends_ms) {
                analysis.source.end();
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
                    crate::human::bytes(self.options.memory_bytes)
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
        let watched = Watched::new(now_ms, writes_in(mode), limits);
        let ends_ms = for_ms.map(|for_ms| now_ms + for_ms);
        self.analyses.insert(name.into(), Analysis { source, mode, watched, begun: false, ends_ms });
        self.view(name)
    }

    /// Whether an analysis of that name can be begun.
    ///
    /// # Errors
    /// Why not.
    pub fn check_new(&self, name: &str) -> Result<(), ControlError> {
        if !self.options.enabled {
            return Err(ControlError::Analysis(
                "loads are not watched: insight.enabled is false in the configuration".into(),
                "set it to true and restart the daemon".into(),
            ));
        }
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

    /// Ends an analysis; what it found stays.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn end(&mut self, name: &str) -> Result<AnalysisView, ControlError> {
        let analysis = self.analyses.get_mut(name).ok_or_else(|| unknown(name))?;
        analysis.source.end();
        analysis.watched.end();
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
            window_ms: load.window_ms(),
            read_bytes: totals.read_blocks * BLOCK_BYTES,
            scanned_bytes: totals.scanned_blocks * BLOCK_BYTES,
            written_bytes: totals.written_blocks * BLOCK_BYTES,
            touched_bytes: load.profile().first_references() as u64 * BLOCK_BYTES,
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
            requests: line.requests,
            read_bytes: line.read_bytes,
            written_bytes: line.written_bytes,
            idle_ms: watched.now_ms().saturating_sub(line.last_ms),
        });
        Some(listed.collect())
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
        };
        let of_analysis = |(name, analysis): (&String, &Analysis)| {
            let volume = analysis.source.volume().map(str::to_string);
            let pool = volume.as_ref().and_then(|volume| self.volumes.get(volume)).and_then(|volume| volume.pool.clone());
            LoadNamed { name: name.clone(), volume, pool, mode: analysis.mode }
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

    /// Keeps advice, under the number that it gets.
    pub fn keep(&mut self, mut advice: AdviceView) -> AdviceView {
        self.next_advice += 1;
        advice.id = self.next_advice;
        self.advice.insert(advice.id, advice.clone());
        while self.advice.len() > ADVICE_MAX {
            self.advice.pop_first();
        }
        advice
    }

    /// Advice that was given.
    pub fn advice(&self, id: u64) -> Option<&AdviceView> {
        self.advice.get(&id)
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
            assert!(begun.elapsed().as_secs() < 60, "it is not read");
            insight.take_in(Vec::new());
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let view = insight.view("t").expect("it is there");
        assert_eq!((view.state.as_str(), view.problem.as_deref()), ("ended", None), "{view:?}");
        assert_eq!((view.read_bytes, view.window_ms / 1000), (60_000 * 4096, 59));
        let load = insight.loads(Some("t")).pop().expect("one");
        let watch = insight.copy_of(&load).expect("one");
        let advice = crate::insight::advising::advise(&load, &watch, &crate::insight::advising::Asked::default());
        let size = advice.targets[1].ssd_bytes.expect("60,000 reads of 2,000 blocks");
        assert!((1800 * 4096..2000 * 4096 * 2).contains(&size), "{advice:?}");
        insight.forget("t").expect("it is there");
        assert!(insight.views().is_empty());
    }
}
