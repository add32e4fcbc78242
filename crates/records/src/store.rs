//! Where the [`State`] is kept: `state.json`, replaced as a whole.
//!
//! A save writes a new file, flushes it, renames it over the old one and flushes the directory: after a crash at any point
//! the file is the old state or the new one, whole. A file that cannot be understood is set aside under another name and
//! told about, never overwritten.
//!
//! A file of zeroes beside it keeps room for the next state: a file system that others have filled does not keep the daemon from starting, nor
//! from ending with all in order.

use crate::state::State;
use api::error::ControlError;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A place for the state. The file in production; a failing one in tests.
pub trait Store: Send {
    /// Reads the state. Called once, before any save.
    ///
    /// # Errors
    /// If it cannot be read at all; a damaged state is a [`Loaded`] with a warning.
    fn load(&mut self) -> Result<Loaded, ControlError>;

    /// Replaces the state durably.
    ///
    /// # Errors
    /// Then the old state or the new one is there, whole; the caller must take neither for granted.
    fn save(&mut self, state: &State) -> Result<(), ControlError>;

    /// Keeps a text beside the state under a file's name, in place of the one before; `None`: removes it. Notes are of jobs that have not ended: to lose
    /// one costs the place that the job had reached, and nothing else.
    ///
    /// # Errors
    /// Then the old text or the new one is there, whole.
    fn keep_note(&mut self, _name: &str, _text: Option<&str>) -> Result<(), ControlError> {
        Ok(())
    }

    /// All notes, with their names.
    fn notes(&mut self) -> Vec<(String, String)> {
        Vec::new()
    }
}

/// Beside the state: room for the next one, given back when there is no other.
const ROOM_FILE: &str = "state.json.room";
const ROOM_STEP_BYTES: usize = 64 << 10;

/// A note that is longer is not read: none is written so long.
const NOTE_BYTES_MAX: u64 = 8 << 20;

/// What was found.
#[derive(Debug)]
pub struct Loaded {
    /// The state; empty if there was none or it was damaged.
    pub state: State,
    /// What must be told to the person.
    pub warning: Option<String>,
}

/// The state in a directory.
#[derive(Debug)]
pub struct FileStore {
    directory: PathBuf,
}

impl FileStore {
    /// A store in `directory`, which is made (mode 0700, with its parents) if it is not there.
    ///
    /// # Errors
    /// [`ControlError::State`] if the directory cannot be made.
    pub fn open(directory: &Path) -> Result<FileStore, ControlError> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(|e| trouble(directory, format!("the state directory cannot be created ({e})"), "use another one with --state DIR"))?;
        Ok(FileStore { directory: directory.to_path_buf() })
    }

    /// Writes a new state beside the old one, then puts it in its place.
    fn replace(&self, text: &[u8]) -> std::io::Result<()> {
        let (path, fresh) = (self.path(), self.directory.join("state.json.new"));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        file.write_all(text)?;
        file.sync_all()?;
        std::fs::rename(&fresh, &path)?;
        File::open(&self.directory)?.sync_all()
    }

    /// Keeps room for the next state, so that a file system that others have filled does not keep the daemon from starting and stopping.
    fn keep_room(&self, text_bytes: usize) {
        let path = self.directory.join(ROOM_FILE);
        let wanted = (2 * text_bytes).next_multiple_of(ROOM_STEP_BYTES) as u64;
        if std::fs::metadata(&path).is_ok_and(|file| file.len() >= wanted) {
            return;
        }
        let make = || -> std::io::Result<()> {
            // Some file systems find out at the sync only that there is no room.
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
            file.write_all(&vec![0; wanted as usize])?;
            file.sync_all()
        };
        if make().is_err() {
            // Half of it is of no use, and the room may be what others need.
            let _ = std::fs::remove_file(&path);
        }
    }

    /// The file.
    pub fn path(&self) -> PathBuf {
        self.directory.join("state.json")
    }

    fn set_aside(&self, problem: &str) -> Result<String, ControlError> {
        let aside = (0..)
            .map(|n| self.directory.join(format!("state.json.damaged.{n}")))
            .find(|p| !p.exists())
            .expect("one of infinitely many names is free");
        let failed = |e: std::io::Error| {
            trouble(&self.path(), format!("it is damaged ({problem}) and cannot be renamed ({e})"), "move it away, then start again")
        };
        std::fs::rename(self.path(), &aside).map_err(failed)?;
        File::open(&self.directory).and_then(|d| d.sync_all()).map_err(failed)?;
        Ok(format!(
            "{} was damaged ({problem}); it was renamed to {}, and hearth now knows no pool or volume: restore a good copy and start again, or take in each SSD with `hearth pool import PATH`",
            self.path().display(),
            aside.display()
        ))
    }
}

/// The state in a directory, for who does not own it: nothing is changed, not even what is damaged.
/// Empty if there is none.
///
/// # Errors
/// If it cannot be read or understood.
pub fn look(directory: &Path) -> Result<State, ControlError> {
    let path = directory.join("state.json");
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(State::default()),
        Err(e) => return Err(trouble(&path, format!("it cannot be read ({e})"), "make it readable, then try again")),
    };
    serde_json::from_slice(&bytes).map_err(|e| trouble(&path, format!("it cannot be understood ({e})"), "use the hearth that wrote it"))
}

fn trouble(path: &Path, problem: String, remedy: &str) -> ControlError {
    ControlError::State { path: path.display().to_string(), problem, remedy: remedy.into() }
}

impl Store for FileStore {
    fn load(&mut self) -> Result<Loaded, ControlError> {
        let path = self.path();
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Loaded { state: State::default(), warning: None });
            }
            Err(e) => {
                return Err(trouble(&path, format!("it cannot be read ({e})"), "make it readable, then start again"));
            }
        };
        // A newer file is not damage: refuse, so that nothing of it is lost by going back to the older program.
        let version = serde_json::from_slice::<serde_json::Value>(&bytes).ok().and_then(|v| v.get("version")?.as_u64());
        if version.is_some_and(|v| v > u64::from(crate::state::STATE_VERSION)) {
            return Err(trouble(&path, "it was written by a newer hearth".into(), "use that version, or give another --state DIR"));
        }
        let parsed = serde_json::from_slice::<State>(&bytes).map_err(|e| e.to_string());
        match parsed.and_then(|state| state.check().map(|()| state)) {
            Ok(state) => Ok(Loaded { state, warning: None }),
            Err(problem) => Ok(Loaded { state: State::default(), warning: Some(self.set_aside(&problem)?) }),
        }
    }

    fn save(&mut self, state: &State) -> Result<(), ControlError> {
        state.check().unwrap_or_else(|broken| panic!("a state that breaks its invariants was about to be saved: {broken}"));
        let failed = |e: std::io::Error| {
            let problem = format!("the new state cannot be saved ({e})");
            trouble(&self.path(), problem, "free some space or repair the file system, then try again")
        };
        let mut text = serde_json::to_vec_pretty(state).map_err(|e| failed(e.into()))?;
        text.push(b'\n');
        match self.replace(&text) {
            Ok(()) => self.keep_room(text.len()),
            Err(error) if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {
                std::fs::remove_file(self.directory.join(ROOM_FILE)).map_err(|_| failed(error))?;
                self.replace(&text).map_err(failed)?;
            }
            Err(error) => return Err(failed(error)),
        }
        Ok(())
    }

    fn keep_note(&mut self, name: &str, text: Option<&str>) -> Result<(), ControlError> {
        let path = self.directory.join(name);
        let fresh = self.directory.join(format!("{name}.new"));
        let write = || -> std::io::Result<()> {
            let Some(text) = text else {
                return std::fs::remove_file(&path).or_else(|e| if e.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(e) });
            };
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&fresh, &path)
        };
        let remedy = "free some space or repair the file system";
        write().map_err(|e| trouble(&path, format!("how far a preload is cannot be noted ({e})"), remedy))
    }

    fn notes(&mut self) -> Vec<(String, String)> {
        let Ok(entries) = std::fs::read_dir(&self.directory) else { return Vec::new() };
        let read = |entry: std::fs::DirEntry| {
            let name = entry.file_name().into_string().ok().filter(|name| name.starts_with("preload-") && name.ends_with(".json"))?;
            let short = entry.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() <= NOTE_BYTES_MAX);
            let text = short.then(|| std::fs::read_to_string(entry.path()).ok())?.unwrap_or_default();
            Some((name, text))
        };
        entries.filter_map(|entry| read(entry.ok()?)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::samples;

    fn store() -> (tempfile::TempDir, FileStore) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let store = FileStore::open(&directory.path().join("a/b")).expect("it can be made");
        (directory, store)
    }

    /// A file system of so many bytes, for as long as this lives.
    struct Small(tempfile::TempDir);

    impl Small {
        /// `None`: it cannot be had here.
        fn new() -> Option<Small> {
            let directory = tempfile::tempdir().expect("a directory");
            let mut mount = std::process::Command::new("mount");
            let mounted = mount.args(["-t", "tmpfs", "-o", "size=256k", "none"]).arg(directory.path()).output();
            mounted.is_ok_and(|done| done.status.success()).then_some(Small(directory))
        }
    }

    impl Drop for Small {
        fn drop(&mut self) {
            let _ = std::process::Command::new("umount").arg(self.0.path()).status();
        }
    }

    /// What others write into the file system of the state must not keep the daemon from starting, nor from ending in order.
    #[test]
    fn there_is_room_for_one_more_state_where_others_have_filled_the_disk() {
        let Some(small) = Small::new() else {
            eprintln!("skipped: no tmpfs can be mounted here");
            return;
        };
        let others = small.0.path().join("others");
        let fill = || assert!(std::fs::write(&others, vec![1; 1 << 20]).is_err(), "it is full now");
        let [p, q, r, s] = ["p", "q", "r", "s"].map(|name| State { pools: vec![samples::pool(name)], ..State::default() });
        let mut store = FileStore::open(small.0.path()).expect("it can be made");
        store.save(&p).expect("there is room");
        fill();
        store.save(&q).expect("from what was kept");
        assert_eq!(store.load().expect("it is there").state, q);
        std::fs::remove_file(&others).expect("others make room");
        store.save(&r).expect("there is room");
        fill();
        store.save(&s).expect("it was kept again");
    }

    #[test]
    fn looking_changes_nothing() {
        let (_directory, mut store) = store();
        let directory = store.directory.clone();
        assert_eq!(look(&directory).expect("nothing there yet"), State::default());
        let state = State { pools: vec![samples::pool("p")], ..Default::default() };
        store.save(&state).expect("there is room");
        assert_eq!(look(&directory).expect("just written"), state);
        std::fs::write(store.path(), "{").expect("writable");
        assert!(look(&directory).is_err());
        assert_eq!(std::fs::read(store.path()).expect("still there"), b"{");
    }

    #[test]
    fn reads_what_it_wrote() {
        let (_directory, mut store) = store();
        assert_eq!(store.load().expect("nothing there yet").state, State::default());
        let mut pool = samples::pool("p");
        let volumes = vec![samples::volume("v", &mut pool)];
        let state = State { pools: vec![pool], volumes, ..Default::default() };
        store.save(&state).expect("there is room");
        let loaded = store.load().expect("just written");
        assert_eq!((loaded.state, loaded.warning), (state, None));
    }

    #[test]
    fn the_treatment_of_content_is_kept_and_older_files_read_as_the_default() {
        let (_directory, mut store) = store();
        for level in types::Content::ALL {
            let pool = crate::state::PoolRecord { content: level, ..samples::pool("p") };
            store.save(&State { pools: vec![pool], ..Default::default() }).expect("there is room");
            assert_eq!(store.load().expect("just written").state.pools[0].content, level);
        }
        let text = std::fs::read_to_string(store.path()).expect("just written");
        let line = "\n      \"content\": \"auto\",";
        assert!(text.contains(line), "{text}");
        std::fs::write(store.path(), text.replace(line, "")).expect("there is room");
        let loaded = store.load().expect("an older file");
        assert_eq!((loaded.state.pools[0].content, loaded.warning), (types::Content::Auto, None));
    }

    /// Each kind of damage is told, and the bytes are still there under another name.
    #[test]
    fn damage_is_set_aside_not_overwritten() {
        let (_directory, mut store) = store();
        let unknown = br#"{"version":1,"pools":[],"volumes":[],"more":1}"#;
        for (n, bytes) in [&b"{"[..], b"", b"\xff\xfe", unknown, br#"{"version":1,"pools":[]}"#].into_iter().enumerate() {
            std::fs::write(store.path(), bytes).expect("there is room");
            let loaded = store.load().expect("damage is no failure");
            let warning = loaded.warning.expect("it is told");
            assert!(warning.contains(&format!("state.json.damaged.{n}")), "{warning}");
            assert_eq!(loaded.state, State::default());
            let aside = store.path().with_file_name(format!("state.json.damaged.{n}"));
            assert_eq!(std::fs::read(aside).expect("it was kept"), bytes);
        }
    }

    /// Every truncation and every flipped bit gives the state or a warning, never a panic; a changed one is never taken silently
    /// for a state that breaks the invariants.
    #[test]
    fn truncated_and_flipped_files_are_survived() {
        let (_directory, mut store) = store();
        let mut pool = samples::pool("p");
        let volumes = vec![samples::volume("v", &mut pool)];
        store.save(&State { pools: vec![pool], volumes, ..Default::default() }).expect("there is room");
        let good = std::fs::read(store.path()).expect("just written");
        let mut tried = 0;
        for at in (0..good.len() - 2).step_by(7) {
            for bytes in [good[..at].to_vec(), {
                let mut b = good.clone();
                b[at] ^= 1 << (at % 7);
                b
            }] {
                std::fs::write(store.path(), &bytes).expect("there is room");
                match store.load() {
                    Ok(loaded) => assert!(loaded.warning.is_some() || loaded.state.check().is_ok()),
                    Err(error) => assert!(error.to_string().contains("newer hearth"), "{error}"),
                }
                tried += 1;
            }
        }
        assert!(tried > 100, "only {tried} cases");
    }

    #[test]
    fn notes_are_kept_replaced_and_removed() {
        let (_directory, mut store) = store();
        assert!(store.notes().is_empty());
        store.keep_note("preload-a.json", Some("one")).expect("there is room");
        store.keep_note("preload-a.json", Some("two")).expect("there is room");
        store.save(&State::default()).expect("there is room");
        assert_eq!(store.notes(), [("preload-a.json".to_owned(), "two".to_owned())]);
        for _ in 0..2 {
            store.keep_note("preload-a.json", None).expect("one that is not there is gone");
        }
        assert!(store.notes().is_empty());
    }

    #[test]
    fn a_newer_file_is_left_alone() {
        let (_directory, mut store) = store();
        let bytes = br#"{"version":2,"pools":{},"extra":true}"#;
        std::fs::write(store.path(), bytes).expect("there is room");
        let error = store.load().expect_err("it must not be guessed at");
        assert!(error.to_string().contains("newer hearth"), "{error}");
        assert_eq!(std::fs::read(store.path()).expect("still there"), bytes);
    }

    #[test]
    fn a_place_that_cannot_be_written_is_told() {
        let error = FileStore::open(Path::new("/proc/hearth-state")).expect_err("proc takes no directories");
        assert!(error.remedy().contains("--state"), "{error}");
    }
}
