//! What of the watches is saved, when, and how they go on with it after a restart.

use super::{ANALYSES_MAX, Analysis, Insight, OfVolume, Source};
use crate::began::Began;
use crate::objects::Objects;
use crate::saved::{AnalysisNote, Key, Mark, Note, Of, Progress, Saved, SourceNote};
use crate::source::DeviceAsked;
use crate::watched::{Watched, writes_in};
use crate::{now_ms, unix_ms};
use analysis::watch::Limits;
use datapath::TappedVolume;
use std::collections::BTreeMap;
use std::sync::Arc;
use types::Mode;
use uuid::Uuid;

/// What is said of a device between the daemon's start and the moment when it was opened again.
const NOT_YET: &str = "its device has not been opened again yet after the restart";

/// What the state knows of a volume.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known {
    /// Which volume it is; `None`: the state does not know it.
    pub uuid: Option<Uuid>,
    /// Its mode.
    pub mode: Mode,
}

impl Insight {
    /// Takes notice of which volumes there are, and what the state knows of them; what was `saved` of those that are new goes on.
    pub fn know(&mut self, volumes: Vec<TappedVolume>, known: &BTreeMap<String, Known>, mut saved: BTreeMap<Uuid, Saved>) {
        if !self.options.enabled {
            return;
        }
        let now_ms = now_ms();
        let known_of = |name: &str| known.get(name).copied().unwrap_or_default();
        let is_there = |name: &str, one: &OfVolume| volumes.iter().any(|volume| volume.name == name && volume.reference.is(&one.reference));
        let gone: Vec<String> = self.volumes.iter().filter(|(name, one)| !is_there(name, one)).map(|(name, _)| name.clone()).collect();
        self.gone.extend(gone.iter().filter_map(|name| self.volumes.remove(name)));
        self.gone.retain(|one| one.uuid.is_some() && known.values().any(|known| known.uuid == one.uuid));
        // Without any volume the state may have been lost.
        self.had_volumes |= !known.is_empty();
        if self.had_volumes {
            self.analyses.values_mut().for_each(|one| one.source.end_without(|name| known_of(name).uuid));
        }
        for TappedVolume { name, pool, reference } in volumes {
            let Known { uuid, mode } = known_of(&name);
            if let Some(one) = self.volumes.get_mut(&name) {
                if one.mode != mode {
                    one.mode = mode;
                    one.watched.watch_mut().set_writes(writes_in(mode));
                }
                continue;
            }
            // Without memory for one more, the volume goes unwatched; `show` says so.
            let Some(limits) = self.limits(1) else { continue };
            self.fit(limits);
            reference.watch(u64::MAX);
            let (mut watched, mark) = self.begun(uuid, uuid.and_then(|uuid| saved.remove(&uuid)), mode, limits, now_ms);
            let sessions = Arc::default();
            watched.set_rules(&self.rules, &sessions);
            for analysis in self.analyses.values_mut().filter(|analysis| analysis.source.is_volume(&name)) {
                analysis.watched.rest_until(now_ms);
            }
            let (objects, began) = (Objects::default(), Began::default());
            self.volumes.insert(name, OfVolume { uuid, mark, reference, pool, mode, watched, objects, witness: None, sessions, began });
        }
        let numbers: Vec<u32> = self.volumes.values().map(|volume| volume.reference.number()).collect();
        self.used.retain(|(_, number), _| numbers.contains(number));
    }

    /// The watch of a volume that is attached: it goes on with what is known of that volume, and begins anew otherwise.
    fn begun(&mut self, uuid: Option<Uuid>, saved: Option<Saved>, mode: Mode, limits: Limits, now_ms: u64) -> (Watched, Mark) {
        let at = self.gone.iter().position(|one| one.uuid == uuid && uuid.is_some());
        let (mut watched, mark) = match (at.map(|at| self.gone.swap_remove(at)), saved) {
            (Some(OfVolume { mut watched, mark, .. }), _) => {
                watched.rest_until(now_ms);
                (watched, mark)
            }
            (None, Some(saved)) => {
                let watched = Watched::of_saved(saved, now_ms, true);
                let mark = Mark::saved(progress(&watched, false, false, now_ms));
                (watched, mark)
            }
            (None, None) => return (Watched::new(now_ms, writes_in(mode), limits), Mark::begun(now_ms)),
        };
        watched.watch_mut().shrink(limits);
        watched.watch_mut().set_writes(writes_in(mode));
        (watched, mark)
    }

    /// Of these volumes, those of which nothing is in memory.
    pub fn unknown<'a>(&self, volumes: impl Iterator<Item = &'a Uuid>) -> Vec<Uuid> {
        let is_known = |uuid: &Uuid| self.volumes.values().chain(&self.gone).any(|one| one.uuid == Some(*uuid));
        volumes.filter(|uuid| !is_known(uuid)).copied().collect()
    }

    /// What is to be saved now; at the end, all that goes on.
    pub fn to_save(&self, at_end: bool) -> Vec<Key> {
        let now_ms = now_ms();
        let is_due = |mark: Mark, now: Progress| if at_end { mark.is_due_at_end(now) } else { mark.is_due(now) };
        let of_volume = |one: &OfVolume| is_due(one.mark, progress(&one.watched, false, false, now_ms));
        let volumes = self.volumes.values().filter(|one| of_volume(one)).chain(&self.gone).filter_map(|one| one.uuid.map(Key::Volume));
        let of_analysis = |one: &Analysis| is_due(one.mark, progress(&one.watched, one.source.is_over(), true, now_ms));
        // A trace that no machine has the memory for would end the daemon again at each start.
        let is_kept = |one: &Analysis| one.source.kind() != "trace" || one.source.is_over();
        let due = self.analyses.iter().filter(|(_, one)| is_kept(one) && of_analysis(one));
        let analyses = due.map(|(name, _)| Key::Analysis(name.clone()));
        volumes.chain(analyses).collect()
    }

    /// A copy of it to be saved. `None`: there is nothing to save any more. When it is written, that is
    /// to be told by [`Insight::was_saved`].
    pub fn copy_to_save(&mut self, key: &Key) -> Option<(Saved, Copied)> {
        let now_ms = now_ms();
        let copied = |of, watched: &Watched, progress, is_gone| Some((copy(of, watched), Copied { progress, is_gone }));
        match key {
            Key::Volume(uuid) => {
                let is_it = |one: &&OfVolume| one.uuid == Some(*uuid);
                let gone = self.gone.iter().find(is_it);
                let one = gone.or_else(|| self.volumes.values().find(is_it))?;
                copied(Of::Volume(*uuid), &one.watched, progress(&one.watched, false, false, now_ms), gone.is_some())
            }
            Key::Analysis(name) => {
                let one = self.analyses.get_mut(name)?;
                let ended = one.source.is_over();
                let is_away =
                    one.source.left_device().is_some() || one.source.volume().is_some_and(|name| !self.volumes.contains_key(name));
                if is_away && !ended {
                    one.watched.rest_until(now_ms);
                }
                let note = AnalysisNote {
                    name: name.clone(),
                    source: one.source.note(),
                    mode: one.mode.name().into(),
                    ends_unix_ms: one.ends_unix_ms,
                    ended,
                    // What keeps it from going on is found anew.
                    problem: one.source.problem().filter(|_| ended),
                };
                copied(Of::Analysis(Box::new(note)), &one.watched, progress(&one.watched, ended, true, now_ms), false)
            }
        }
    }

    /// The copy was written.
    pub fn was_saved(&mut self, key: &Key, copied: Copied) {
        let mark = Mark::saved(copied.progress);
        match key {
            Key::Volume(uuid) => {
                let is_it = |one: &OfVolume| one.uuid == Some(*uuid);
                // One that went only since then has more than was written.
                if copied.is_gone {
                    self.gone.retain(|one| !is_it(one));
                }
                let known = self.volumes.values_mut().chain(&mut self.gone).filter(|one| is_it(one));
                known.for_each(|one| one.mark = mark);
            }
            Key::Analysis(name) => {
                if let Some(one) = self.analyses.get_mut(name) {
                    one.mark = mark;
                }
            }
        }
    }

    /// An analysis that was saved goes on, or is kept as it ended. A device is to be opened again: [`Insight::left_devices`].
    ///
    /// # Errors
    /// In words: why it cannot be taken in.
    pub fn resume(&mut self, saved: Saved) -> Result<(), String> {
        let Of::Analysis(note) = &saved.note.of else { return Ok(()) };
        let note = AnalysisNote::clone(note);
        if self.analyses.len() >= ANALYSES_MAX {
            return Err(format!("there are {ANALYSES_MAX} analyses already"));
        }
        if matches!(note.source, SourceNote::Trace { .. }) && !note.ended {
            return Err("it was being read when the daemon ended: forget it, and start it again".into());
        }
        let limits = self.limits(1).ok_or("there is no memory for it: give more with insight.memory in the configuration")?;
        self.fit(limits);
        let mode = Mode::from_name(&note.mode).unwrap_or_default();
        let now = (now_ms(), unix_ms());
        let is_late = note.ends_unix_ms.is_some_and(|ends_unix_ms| ends_unix_ms <= now.1);
        let mut source = match note.source {
            SourceNote::Volume { name, uuid } if note.problem.is_none() => Source::volume_of(&name, uuid),
            was => Source::left(was, note.ended, note.problem.or_else(|| (!note.ended && !is_late).then(|| NOT_YET.into()))),
        };
        if note.ended || is_late {
            source.end();
        }
        let ended = source.is_over();
        let mut watched = Watched::of_saved(saved, now.0, !ended);
        watched.watch_mut().shrink(limits);
        watched.set_rules(&self.rules, &Arc::default());
        let ends_ms = note.ends_unix_ms.map(|ends_unix_ms| now.0 + ends_unix_ms.saturating_sub(now.1).min(super::FOR_MS_MAX));
        // That it ended meanwhile is still to be saved.
        let mark = Mark::saved(progress(&watched, note.ended, true, now.0));
        let (ends_unix_ms, objects) = (note.ends_unix_ms, Objects::default());
        self.analyses.insert(note.name, Analysis { source, mode, watched, objects, begun: true, ends_ms, ends_unix_ms, mark });
        Ok(())
    }

    /// Devices that are to be opened again: by analysis, their paths and what they were.
    pub fn left_devices(&self) -> BTreeMap<String, (String, DeviceAsked)> {
        let left = |(name, one): (&String, &Analysis)| {
            let (path, asked) = one.source.left_device()?;
            Some((name.clone(), (path.to_owned(), asked.clone())))
        };
        self.analyses.iter().filter_map(left).collect()
    }

    /// The device of an analysis is watched again, or not: why, in words. A problem that is news.
    pub fn came_back(&mut self, analysis: &str, source: Result<Source, String>) -> Option<String> {
        let one = self.analyses.get_mut(analysis).filter(|one| one.source.left_device().is_some())?;
        match source {
            Ok(source) => {
                one.watched.rest_until(now_ms());
                one.source = source;
                None
            }
            Err(problem) => one.source.set_problem(problem.clone()).then_some(problem),
        }
    }
}

fn progress(watched: &Watched, ended: bool, named: bool, now_ms: u64) -> Progress {
    let totals = watched.watch().totals();
    Progress { now_ms, blocks: totals.read_blocks + totals.scanned_blocks + totals.written_blocks, ended, named }
}

/// What a copy has of a watch.
#[derive(Clone, Copy, Debug)]
pub struct Copied {
    progress: Progress,
    /// It is of a volume that is detached.
    is_gone: bool,
}

fn copy(of: Of, watched: &Watched) -> Saved {
    let note = Note {
        of,
        saved_unix_ms: unix_ms(),
        since_unix_ms: watched.since_unix_ms(),
        away_ms: watched.away_ms(),
        lost_requests: watched.lost_requests(),
    };
    Saved { watch: watched.watch().clone(), note }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observer::{InsightOptions, Known};
    use analysis::watch::{Seen, Totals};
    use records::state::{BackingIdentity, Fact};

    const UUID: Uuid = Uuid::from_bytes([7; 16]);
    const FOR_MS: u64 = 7 * 24 * 3600 * 1000;

    fn insight() -> Insight {
        Insight::new(InsightOptions::default())
    }

    /// An analysis of a volume that has seen reads of so many blocks.
    fn watching(name: &str, reads: u64, for_ms: Option<u64>) -> Insight {
        let mut insight = insight();
        insight.begin(name, Source::volume_of("v", UUID), Mode::WriteThrough, for_ms).expect("there is room");
        let watched = &mut insight.analyses.get_mut(name).expect("it is there").watched;
        let begun_ms = watched.now_ms();
        for n in 0..reads {
            watched.watch_mut().advance(begun_ms + n);
            watched.watch_mut().count(Totals { read_blocks: 1, ..Totals::default() });
            watched.watch_mut().see(Seen { block: n % 1000, is_write: false, is_scan: false, time_ms: begun_ms + n });
        }
        insight
    }

    /// As a restart does: what is due is written and read again.
    fn restarted(before: &mut Insight, change: impl Fn(&mut Saved)) -> Insight {
        let mut after = insight();
        for key in before.to_save(true) {
            let (saved, copied) = before.copy_to_save(&key).expect("it is there");
            before.was_saved(&key, copied);
            let bytes = saved.to_bytes();
            let mut saved = Saved::from_bytes(&bytes, &key, now_ms()).expect("it was just written");
            change(&mut saved);
            after.resume(saved).expect("there is room");
        }
        after
    }

    #[test]
    fn an_analysis_goes_on_where_it_was_and_the_time_between_is_told() {
        let mut before = watching("week", 30_000, Some(FOR_MS));
        let was = before.view("week").expect("it is there");
        let after = restarted(&mut before, |saved| {
            // It was down for two hours, in the middle of the week.
            saved.note.saved_unix_ms -= 2 * 3600 * 1000;
            saved.note.since_unix_ms -= 3 * 3600 * 1000;
        });
        let is = after.view("week").expect("it is there");
        assert_eq!(
            (is.state.as_str(), is.problem.as_deref(), is.window_ms, is.read_bytes),
            ("watching", None, was.window_ms, was.read_bytes)
        );
        assert!((0..2000).contains(&is.away_ms.saturating_sub(2 * 3600 * 1000)), "{is:?}");
        assert_eq!(is.since_unix_s.map(|since| was.since_unix_s.expect("no trace") - since), Some(3 * 3600));
        let load = after.loads(Some("week")).pop().expect("one");
        let (was, is) = (before.copy_of(&load).expect("one"), after.copy_of(&load).expect("one"));
        assert_eq!(was.load(false).size_for(0.9), is.load(false).size_for(0.9));
        let ends_ms = after.analyses["week"].ends_ms.expect("it was given").saturating_sub(now_ms());
        assert!((FOR_MS - 60_000..=FOR_MS).contains(&ends_ms), "{ends_ms}");
    }

    #[test]
    fn its_end_holds_and_what_has_ended_is_kept() {
        let mut before = watching("day", 500, Some(1000));
        let mut late = restarted(&mut before, |saved| {
            let Of::Analysis(note) = &mut saved.note.of else { unreachable!("it is one") };
            (note.ends_unix_ms, saved.note.saved_unix_ms) = (Some(unix_ms() - 1), unix_ms() - 3_600_000);
        });
        let view = late.view("day").expect("it is there");
        assert_eq!((view.state.as_str(), view.read_bytes), ("ended", 500 * 4096));
        assert!(view.away_ms < 60_000, "it had ended in the hour before: {}", view.away_ms);
        // That it has ended is saved, once.
        assert_eq!(late.to_save(false), [Key::Analysis("day".into())]);
        let again = restarted(&mut late, |_| {});
        assert_eq!(again.view("day").expect("it is there").state, "ended");
        assert!(late.to_save(true).is_empty() && again.to_save(true).is_empty());
    }

    #[test]
    fn another_volume_of_the_name_is_not_watched_by_it() {
        for uuid in [None, Some(Uuid::from_bytes([8; 16])), Some(UUID)] {
            let mut after = restarted(&mut watching("a", 10, None), |_| {});
            let known = BTreeMap::from([("v".to_string(), Known { uuid, mode: Mode::WriteBack })]);
            after.know(Vec::new(), &known, BTreeMap::new());
            let view = after.view("a").expect("it is there");
            let goes_on = uuid == Some(UUID);
            assert_eq!(view.state, if goes_on { "watching" } else { "failed" });
            assert_eq!(view.problem.is_some_and(|problem| problem.contains("\"v\"") && problem.contains("removed")), !goes_on);
            let again = restarted(&mut after, |_| {}).view("a").expect("it is there");
            assert_eq!((again.state, again.read_bytes), (view.state, 10 * 4096));
        }
    }

    #[test]
    fn a_device_is_kept_until_it_is_there_again_and_stopped_for_good() {
        let identity =
            BackingIdentity { size_bytes: 1 << 30, fixed: vec![Fact { name: "wwid".into(), value: "x".into() }], ..Default::default() };
        let asked = DeviceAsked { tap: None, reads: false, identity };
        let mut before = watching("d", 100, None);
        let was = SourceNote::Device { path: "/dev/nowhere".into(), asked: asked.clone() };
        before.analyses.get_mut("d").expect("it is there").source = Source::left(was, false, None);
        let mut after = restarted(&mut before, |_| {});
        assert_eq!(after.left_devices(), BTreeMap::from([("d".into(), ("/dev/nowhere".into(), asked))]));
        let view = after.view("d").expect("it is there");
        assert_eq!((view.source.as_str(), view.of.as_str(), view.state.as_str()), ("device", "/dev/nowhere", "failed"));
        assert_eq!(view.problem.as_deref(), Some(NOT_YET));
        for is_news in [true, false] {
            assert_eq!(after.came_back("d", Err("it is away".into())).is_some(), is_news);
        }
        assert_eq!(after.view("d").expect("it is there").problem.as_deref(), Some("it is away"));
        assert_eq!(after.view("d").expect("it is there").read_bytes, 100 * 4096, "what it has learned can be advised on");
        after.end("d").expect("it is there");
        assert!(after.left_devices().is_empty() && after.came_back("d", Err("late".into())).is_none());
        let again = restarted(&mut after, |_| {});
        assert!(again.left_devices().is_empty(), "a person ended it");
        assert_eq!(again.view("d").expect("it is there").problem.as_deref(), Some("it is away"));
    }

    #[test]
    fn a_trace_that_was_read_is_told_of_and_one_that_was_not_is_not_read_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("load.csv").display().to_string();
        std::fs::write(&path, "time_us,rw,offset_bytes,length_bytes\n0,R,0,4096\n1000000,R,4096,4096\n").expect("room");
        let mut before = insight();
        let source = Source::trace(&path, writes_in(Mode::WriteThrough), before.limits_of_one_more().expect("room"));
        before.begin("t", source.expect("a thread"), Mode::WriteThrough, None).expect("there is room");
        let until_read = |insight: &mut Insight| {
            let begun = std::time::Instant::now();
            while insight.view("t").expect("it is there").state == "reading" {
                assert!(begun.elapsed().as_secs() < 120, "it is not read");
                insight.take_in(Vec::new());
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            insight.view("t").expect("it is there")
        };
        // A trace that is too large for the memory would end the daemon at each start.
        assert!(before.to_save(false).is_empty() && before.to_save(true).is_empty());
        let read = until_read(&mut before);
        assert_eq!((read.state.as_str(), read.read_bytes, read.window_ms), ("ended", 8192, 1000));
        std::fs::remove_file(&path).expect("ours");
        let half = |saved: &mut Saved| {
            if let Of::Analysis(note) = &mut saved.note.of {
                note.ended = false;
            }
        };
        let mut unread = insight();
        let (mut saved, _) = before.copy_to_save(&Key::Analysis("t".into())).expect("it is there");
        half(&mut saved);
        assert!(unread.resume(saved).is_err_and(|problem| problem.contains("being read")));
        let after = restarted(&mut before, |_| {}).view("t").expect("it is there");
        assert_eq!((after.state, after.source, after.of, after.read_bytes), (read.state, read.source, path, 8192));
        assert_eq!((after.window_ms, after.since_unix_s, after.away_ms), (1000, None, 0));
    }

    #[test]
    fn what_was_not_written_is_tried_again() {
        let mut before = watching("a", 100, None);
        let key = Key::Analysis("a".into());
        for _ in 0..2 {
            assert_eq!(before.to_save(false), std::slice::from_ref(&key));
            before.copy_to_save(&key).expect("it is there");
        }
        before.end("a").expect("it is there");
        let (_, copied) = before.copy_to_save(&key).expect("it is there");
        assert_eq!((before.to_save(false), before.to_save(true)), (vec![key.clone()], vec![key.clone()]));
        before.was_saved(&key, copied);
        assert!(before.to_save(false).is_empty() && before.to_save(true).is_empty());
    }

    #[test]
    fn a_state_without_volumes_ends_no_analysis() {
        let mut after = restarted(&mut watching("a", 10, None), |_| {});
        after.know(Vec::new(), &BTreeMap::new(), BTreeMap::new());
        assert_eq!(after.view("a").expect("it is there").state, "watching", "the state may have been lost");
        let known = |uuid| BTreeMap::from([("w".to_string(), Known { uuid: Some(uuid), mode: Mode::WriteBack })]);
        after.know(Vec::new(), &known(Uuid::from_bytes([8; 16])), BTreeMap::new());
        assert_eq!(after.view("a").expect("it is there").state, "failed");
    }

    #[test]
    fn with_less_memory_it_is_shrunk_and_without_any_refused() {
        let mut before = watching("a", 30_000, None);
        let saved = || {
            let copy = copy(
                Of::Analysis(Box::new(AnalysisNote {
                    name: "a".into(),
                    source: SourceNote::Volume { name: "v".into(), uuid: UUID },
                    mode: "write-back".into(),
                    ends_unix_ms: None,
                    ended: false,
                    problem: None,
                })),
                &before.analyses["a"].watched,
            );
            Saved::from_bytes(&copy.to_bytes(), &Key::Analysis("a".into()), now_ms()).expect("it was just written")
        };
        let mut small = Insight::new(InsightOptions { memory_bytes: 2 << 20, ..InsightOptions::default() });
        small.resume(saved()).expect("it fits");
        let (was, is) = (before.view("a").expect("it is there").memory_bytes, small.view("a").expect("it is there").memory_bytes);
        assert!(is <= 2 << 20 && is < was, "{is} of {was}");
        let mut none = Insight::new(InsightOptions { memory_bytes: 1 << 10, ..InsightOptions::default() });
        assert!(none.resume(saved()).is_err_and(|problem| problem.contains("insight.memory")));
        assert!(before.copy_to_save(&Key::Analysis("a".into())).is_some());
    }
}
