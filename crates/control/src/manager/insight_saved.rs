//! What the watches have learned outlives the daemon: read at the start, saved from time to time and at the end.
//!
//! Whoever touches the files holds their lock and takes that of the watches only to copy one: nobody who watches waits for a disk, but
//! for a volume that has just come.

use super::Manager;
use api::Severity;
use insight::files::{Files, Unread};
use insight::saved::{Key, Saved};
use insight::{DeviceAsked, Known, Source, now_ms, same_device};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// After a write that failed.
const AGAIN: Duration = Duration::from_secs(60);

/// The files, once they are used.
#[derive(Default)]
pub(super) struct Watches {
    files: Option<Files>,
    /// The state has known a volume: what it does not know is gone, and not lost with a damaged state.
    had_volumes: bool,
    /// The last write has failed, which was told, and it is not tried again sooner.
    again: Option<Instant>,
}

impl Manager {
    /// Analyses that were saved go on, and from now on watches are saved; once, before the API answers. Nothing is done where nothing is
    /// watched.
    pub fn open_watches(&self, state_directory: &Path) {
        if !self.insight().options().enabled {
            return;
        }
        let mut watches = self.watches();
        // One may be removed before anything is saved.
        watches.had_volumes |= !self.memory().state.volumes.is_empty();
        let files = watches.files.insert(Files::open(state_directory));
        let keys: Vec<Key> = files.keys().cloned().collect();
        for key in keys {
            let Key::Analysis(name) = &key else { continue };
            let Some(saved) = self.read_watch(files, &key, name, "start it again") else { continue };
            let resumed = self.insight().resume(saved);
            if let Err(problem) = resumed {
                let told = format!(
                    "this analysis does not go on after the restart: {problem}; what it has learned stays in its file until \
                     `hearth analysis forget {name}`"
                );
                self.events().note(Severity::Warning, name, told);
            }
        }
    }

    /// What was saved of it. What is not that is told, and set aside.
    fn read_watch(&self, files: &mut Files, key: &Key, object: &str, remedy: &str) -> Option<Saved> {
        let wrong = match files.read(key) {
            Ok(None) => return None,
            Ok(Some(bytes)) => match Saved::from_bytes(&bytes, key, now_ms()) {
                Ok(saved) => return Some(saved),
                Err(problem) => problem,
            },
            Err(Unread::Wrong(problem)) => problem,
            Err(Unread::Now(problem)) => {
                let told = format!("what was learned of this load before the restart cannot be read now ({problem}): {remedy}");
                self.events().note(Severity::Warning, object, told);
                return None;
            }
        };
        let aside = files.set_aside(key);
        let told = format!("what was learned of this load before the restart cannot be read ({wrong}): {remedy}; {aside}");
        self.events().note(Severity::Warning, object, told);
        None
    }

    /// What was saved of volumes that have come.
    pub(super) fn watches_of<'a>(&self, came: impl Iterator<Item = (&'a String, &'a Known)>) -> BTreeMap<Uuid, Saved> {
        let came: BTreeMap<Uuid, &String> = came.filter_map(|(name, known)| Some((known.uuid?, name))).collect();
        let unknown = {
            let insight = self.insight();
            // Where there is no memory for one more, it would be read again and again.
            if insight.limits_of_one_more().is_some() { insight.unknown(came.keys()) } else { Vec::new() }
        };
        if unknown.is_empty() {
            return BTreeMap::new();
        }
        let mut watches = self.watches();
        let Some(files) = &mut watches.files else { return BTreeMap::new() };
        let read = |uuid: Uuid| Some((uuid, self.read_watch(files, &Key::Volume(uuid), came[&uuid], "its watch begins again")?));
        unknown.into_iter().filter_map(read).collect()
    }

    /// Saves what is due, and forgets what was removed. May wait for the disk of the state directory.
    pub fn save_watches(&self) {
        self.save(false);
    }

    /// The same at the end, of all that goes on. Who waits is told when it is done.
    pub(super) fn save_watches_at_end(&self) -> Receiver<()> {
        let (done, saved) = channel();
        let manager = self.clone();
        // Nobody waits for it for ever: the disk may not answer.
        let spawned = std::thread::Builder::new().name("watches".into()).spawn(move || {
            manager.save(true);
            drop(done);
        });
        if let Err(error) = spawned {
            tracing::warn!("what was learned of loads in the last minutes is not saved: no thread can be started ({error})");
        }
        saved
    }

    fn save(&self, at_end: bool) {
        let mut guard = self.watches();
        let watches = &mut *guard;
        let Some(files) = &mut watches.files else { return };
        let volumes: BTreeMap<Uuid, String> = self.memory().state.volumes.iter().map(|volume| (volume.uuid, volume.name.clone())).collect();
        watches.had_volumes |= !volumes.is_empty();
        let is_gone = |key: &&Key| matches!(key, Key::Volume(uuid) if !volumes.contains_key(uuid));
        let gone: Vec<Key> = files.all_keys().filter(is_gone).filter(|_| watches.had_volumes).cloned().collect();
        for key in &gone {
            files.remove(key);
        }
        if !at_end && watches.again.is_some_and(|again| Instant::now() < again) {
            return;
        }
        let due = self.insight().to_save(at_end);
        for key in due.iter().filter(|key| !is_gone(key)) {
            let Some((saved, copied)) = self.insight().copy_to_save(key) else { continue };
            match files.write(key, &saved.to_bytes()) {
                Ok(()) => {
                    watches.again = None;
                    self.insight().was_saved(key, copied);
                }
                Err(problem) => {
                    let object = match key {
                        Key::Volume(uuid) => &volumes[uuid],
                        Key::Analysis(name) => name,
                    };
                    if watches.again.replace(Instant::now() + AGAIN).is_none() {
                        let told = format!("what is learned of this load would not survive a restart: {problem}; free some space");
                        self.events().note(Severity::Warning, object, told);
                    }
                }
            }
        }
    }

    /// An analysis was forgotten. Whether there was a file of it.
    pub(super) fn forget_watch(&self, analysis: &str) -> bool {
        self.watches().files.as_mut().is_some_and(|files| files.remove(&Key::Analysis(analysis.into())))
    }

    /// Tries to watch the devices again that analyses watched before the restart. Whether some are still to be tried.
    pub fn resume_trials(&self) -> bool {
        let left = self.insight().left_devices();
        for (name, (path, asked)) in left {
            let source = self.same_device_source(&path, asked);
            let news = self.insight().came_back(&name, source);
            if let Some(problem) = news {
                let told = format!("{path} is not watched since the restart: {problem}; it is tried again");
                self.events().note(Severity::Warning, &name, told);
            }
        }
        !self.insight().left_devices().is_empty()
    }

    fn same_device_source(&self, path: &str, asked: DeviceAsked) -> Result<Source, String> {
        let now = same_device::identity_of(path).map_err(|_| format!("there is no device {path}"))?;
        if let Some(why) = same_device::difference(&asked.identity, &now) {
            return Err(format!("another device is at {path} now: {why}"));
        }
        self.device_source(path, asked).map_err(|error| error.reason())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{DISK, add, carry_out, create, started, world};
    use super::*;
    use api::{Action, Answer, InsightAction};
    use insight::saved::{Note, Of};
    use insight::{InsightOptions, Source};
    use types::Mode;

    fn manager_in(directory: &Path) -> (Manager, Uuid) {
        let manager = started(&world());
        manager.open_watches(directory);
        carry_out(&manager, create()).expect("there is room");
        carry_out(&manager, add("v", DISK, "write-through")).expect("there is room");
        let uuid = manager.memory().state.volume("v").expect("just added").uuid;
        (manager, uuid)
    }

    /// The file of a volume's watch as it would have been saved.
    fn leave(directory: &Path, uuid: Uuid) {
        let limits = analysis::watch::Limits { lines: 100, uses: 100 };
        let watch = analysis::Watch::new(1, analysis::Writes::Refresh, limits);
        let note = Note { of: Of::Volume(uuid), saved_unix_ms: 1, since_unix_ms: 1, away_ms: 0, lost_requests: 0 };
        Files::open(directory).write(&Key::Volume(uuid), &Saved { watch, note }.to_bytes()).expect("room");
    }

    fn names_in(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory.join("insight")).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().display().to_string()).collect();
        names.sort();
        names
    }

    fn warnings(manager: &Manager) -> Vec<String> {
        let warned = manager.events().after(0).into_iter().filter(|event| event.severity == Severity::Warning);
        warned.map(|event| format!("{}: {}", event.object, event.message)).collect()
    }

    #[test]
    fn an_analysis_is_there_again_and_its_file_goes_when_it_is_forgotten() {
        let directory = tempfile::tempdir().expect("a directory");
        let (manager, uuid) = manager_in(directory.path());
        manager.insight().begin("week", Source::volume_of("v", uuid), Mode::WriteThrough, Some(7 * 86_400_000)).expect("room");
        // At once: a kill must not lose it.
        manager.save_watches();
        assert_eq!(names_in(directory.path()), ["analysis-week.watch"]);
        let (after, _) = manager_in(directory.path());
        let Ok(Answer::Analysis(view)) = after.handle(Action::Insight(InsightAction::AnalysisShow { name: "week".into() })) else {
            panic!("it is not there")
        };
        // A volume of that name that was made anew is another.
        assert_eq!((view.state.as_str(), view.of.as_str()), ("failed", "v"));
        assert!(view.problem.as_deref().is_some_and(|problem| problem.contains("was removed")), "{view:?}");
        after.handle(Action::Insight(InsightAction::AnalysisForget { name: "week".into() })).expect("it is there");
        assert!(names_in(directory.path()).is_empty());
        after.save_watches();
        assert!(names_in(directory.path()).is_empty() && warnings(&after).is_empty(), "{:?}", warnings(&after));
    }

    #[test]
    fn what_is_no_watch_is_told_once_and_set_aside() {
        let directory = tempfile::tempdir().expect("a directory");
        let kept = directory.path().join("insight");
        std::fs::create_dir(&kept).expect("room");
        std::fs::write(kept.join("analysis-week.watch"), b"HRTHWTCH and nothing more").expect("room");
        let (manager, uuid) = manager_in(directory.path());
        assert!(
            matches!(&warnings(&manager)[..], [one] if one.starts_with("week: ") && one.contains("start it again; the file was renamed"))
        );
        std::fs::write(kept.join(Key::Volume(uuid).file_name()), [0; 100]).expect("room");
        manager.open_watches(directory.path());
        for _ in 0..2 {
            let known = BTreeMap::from([("v".to_string(), Known { uuid: Some(uuid), mode: Mode::WriteThrough })]);
            assert!(manager.watches_of(known.iter()).is_empty());
        }
        assert!(matches!(&warnings(&manager)[..], [_, one] if one.starts_with("v: ") && one.contains("its watch begins again")));
        assert_eq!(names_in(directory.path()).len(), 2);
        leave(directory.path(), uuid);
        manager.open_watches(directory.path());
        let known = BTreeMap::from([("v".to_string(), Known { uuid: Some(uuid), mode: Mode::WriteThrough })]);
        assert_eq!(manager.watches_of(known.iter()).len(), 1);
        assert_eq!(warnings(&manager).len(), 2);
    }

    #[test]
    fn the_file_of_a_volume_goes_with_it_and_not_with_a_state_that_was_lost() {
        let directory = tempfile::tempdir().expect("a directory");
        leave(directory.path(), Uuid::from_bytes([9; 16]));
        let lost = started(&world());
        lost.open_watches(directory.path());
        lost.save_watches();
        assert_eq!(names_in(directory.path()).len(), 1, "no volume is known: the state may have been lost");
        let (manager, uuid) = manager_in(directory.path());
        leave(directory.path(), uuid);
        manager.open_watches(directory.path());
        manager.save_watches();
        assert_eq!(names_in(directory.path()), [Key::Volume(uuid).file_name()], "the other is of no volume");
        carry_out(&manager, Action::VolumeRemove { name: "v".into(), drop_dirty: false }).expect("nothing is dirty");
        manager.save_watches();
        assert!(names_in(directory.path()).is_empty());

        // It is removed as the first thing after a start.
        leave(directory.path(), uuid);
        let (manager, uuid) = manager_in(directory.path());
        leave(directory.path(), uuid);
        manager.watches().had_volumes = false;
        manager.open_watches(directory.path());
        carry_out(&manager, Action::VolumeRemove { name: "v".into(), drop_dirty: false }).expect("nothing is dirty");
        manager.save_watches();
        assert!(names_in(directory.path()).is_empty());
    }

    #[test]
    fn what_could_not_be_written_is_written_once_there_is_room() {
        let directory = tempfile::tempdir().expect("a directory");
        let (manager, uuid) = manager_in(directory.path());
        // A file in the place of the directory stands for a disk that is full.
        std::fs::write(directory.path().join("insight"), "").expect("room");
        manager.insight().begin("week", Source::volume_of("v", uuid), Mode::WriteThrough, None).expect("room");
        for _ in 0..3 {
            manager.save_watches();
        }
        assert!(matches!(&warnings(&manager)[..], [one] if one.contains("free some space")), "{:?}", warnings(&manager));
        manager.handle(Action::Insight(InsightAction::AnalysisStop { name: "week".into() })).expect("it is there");
        manager.save_watches();
        std::fs::remove_file(directory.path().join("insight")).expect("ours");
        manager.watches().again = None;
        manager.save_watches();
        let (after, _) = manager_in(directory.path());
        let Ok(Answer::Analysis(view)) = after.handle(Action::Insight(InsightAction::AnalysisShow { name: "week".into() })) else {
            panic!("it is not there")
        };
        assert_eq!((view.state.as_str(), view.problem), ("ended", None), "it was stopped");
    }

    #[test]
    fn an_analysis_that_does_not_go_on_can_be_forgotten() {
        let directory = tempfile::tempdir().expect("a directory");
        let (manager, uuid) = manager_in(directory.path());
        manager.insight().begin("week", Source::volume_of("v", uuid), Mode::WriteThrough, None).expect("room");
        manager.save_watches();
        let small = started(&world());
        small.set_insight(InsightOptions { memory_bytes: 1 << 10, ..InsightOptions::default() });
        small.open_watches(directory.path());
        assert!(matches!(&warnings(&small)[..], [one] if one.contains("`hearth analysis forget week`")), "{:?}", warnings(&small));
        small.handle(Action::Insight(InsightAction::AnalysisForget { name: "week".into() })).expect("there is a file of it");
        assert!(names_in(directory.path()).is_empty());
        small.handle(Action::Insight(InsightAction::AnalysisForget { name: "week".into() })).expect_err("there is nothing any more");
    }

    #[test]
    fn off_means_that_no_file_is_read_or_written() {
        let directory = tempfile::tempdir().expect("a directory");
        let kept = directory.path().join("insight");
        std::fs::create_dir(&kept).expect("room");
        std::fs::write(kept.join("analysis-week.watch"), b"damaged").expect("room");
        let manager = started(&world());
        manager.set_insight(InsightOptions { enabled: false, ..InsightOptions::default() });
        manager.open_watches(directory.path());
        manager.save_watches();
        manager.stop().expect("nothing runs");
        assert_eq!(names_in(directory.path()), ["analysis-week.watch"]);
        assert!(warnings(&manager).is_empty());
    }

    #[test]
    fn a_stop_saves_what_goes_on() {
        let directory = tempfile::tempdir().expect("a directory");
        let (manager, uuid) = manager_in(directory.path());
        manager.insight().begin("week", Source::volume_of("v", uuid), Mode::WriteThrough, None).expect("room");
        manager.stop().expect("nothing is wrong");
        assert_eq!(names_in(directory.path()), ["analysis-week.watch"]);
    }
}
