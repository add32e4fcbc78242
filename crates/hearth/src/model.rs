//! `hearth model`: a modelled slow disk by itself, the baseline of every comparison. No daemon, no cache, until Ctrl-C.

use crate::commands::print;
use crate::exporters;
use crate::failure::Failure;
use crate::logs::say;
use crate::{request, signals};
use api::error::ControlError;
use api::options::Options;
use api::words::Export;
use datapath::{Exports, Facts, Volumes, Waits, Withdrawal};
use machine::{Machine, MachineOptions};
use records::lock::DaemonLock;
use records::state::{VolumePhase, VolumeRecord};
use signal_hook::iterator::Signals;
use std::path::{Path, PathBuf};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;
use uuid::Uuid;

/// How long the file may answer nothing at the end, and how often is looked.
const SILENCE_MAX: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(500);

/// How the directories begin.
const PREFIX: &str = "model-";
/// The lock in each: held as long as its process lives.
const LOCK: &str = "lock";
/// What its exports are known by. The directory's name has the first digits alone, since a socket's path must be short.
const OWNER: &str = "uuid";
const DIGITS: usize = 8;
/// What an NBD export has there.
const SOCKETS: [&str; 2] = ["nbd.sock", "nbd.sock.lock"];
/// The one volume.
const NAME: &str = "model";

/// A directory of this process's own, removed with it. Its name is of a random number, since a pid may be another process's by the next look,
/// and is the same for several in containers.
struct OwnDirectory {
    path: PathBuf,
    _lock: DaemonLock,
}

impl OwnDirectory {
    /// Makes it. Others see it when its lock is held.
    fn make(parent: &Path, uuid: &Uuid) -> Result<OwnDirectory, Failure> {
        let failed = |e: &dyn std::fmt::Display, path: &Path| {
            Failure::failed(format!("{} cannot be created ({e})", path.display()), "name a writable place with --socket PATH")
        };
        let (uuid, digits) = (uuid.to_string(), &uuid.to_string()[..DIGITS]);
        let (hidden, path) = (parent.join(format!(".{PREFIX}{digits}")), parent.join(format!("{PREFIX}{digits}")));
        std::fs::create_dir_all(&hidden).and_then(|()| std::fs::write(hidden.join(OWNER), uuid)).map_err(|e| failed(&e, &path))?;
        let lock = DaemonLock::take(&hidden.join(LOCK));
        let lock = lock.and_then(|lock| std::fs::rename(&hidden, &path).map(|()| lock).map_err(|e| cannot_move(&path, &e)));
        match lock {
            Ok(lock) => Ok(OwnDirectory { path, _lock: lock }),
            Err(error) => {
                drop(std::fs::remove_dir_all(&hidden));
                Err(error.into())
            }
        }
    }
}

fn cannot_move(path: &Path, error: &std::io::Error) -> ControlError {
    let (problem, remedy) = (format!("it cannot be moved there ({error})"), "name a writable place with --socket PATH".into());
    ControlError::State { path: path.display().to_string(), problem, remedy }
}

impl Drop for OwnDirectory {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            say(format_args!("hearth: {} was not removed ({error})", self.path.display()));
        }
    }
}

/// Takes away what models that were killed left: dead devices and mounts, and their directories. One whose lock is held lives.
fn clear_killed(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    for path in entries.flatten().filter_map(|entry| is_of_a_model(&entry).then(|| entry.path())) {
        let Some(uuid) = owner_of(&path) else { continue };
        let Ok(_lock) = DaemonLock::take(&path.join(LOCK)) else { continue };
        if owner_of(&path).as_ref() != Some(&uuid) {
            // Its process has ended well, and another has come.
            continue;
        }
        let problems = machine::clear_killed_export(&uuid, NAME, &path);
        problems.iter().for_each(|problem| say(format_args!("hearth: {problem}")));
        if let Err(error) = remove_known(&path) {
            say(format_args!("hearth: {} was not removed ({error})", path.display()));
        }
    }
}

/// Removes a model's directory with what a model puts there. One that holds anything else stays, with the mark by which it is known.
fn remove_known(directory: &Path) -> std::io::Result<()> {
    let remove = |name: &&str| match std::fs::remove_file(directory.join(name)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    SOCKETS.iter().try_for_each(remove)?;
    for entry in std::fs::read_dir(directory)? {
        let name = entry?.file_name();
        if ![OWNER, LOCK].iter().any(|known| name == *known) {
            return Err(std::io::Error::other(format!("it holds {}", name.display())));
        }
    }
    [OWNER, LOCK].iter().try_for_each(remove)?;
    std::fs::remove_dir(directory)
}

/// Whether it is a directory with a name that a model gives to its own.
fn is_of_a_model(entry: &std::fs::DirEntry) -> bool {
    let name = entry.file_name();
    let digits = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
    let is_named_so = digits.is_some_and(|digits| digits.len() == DIGITS && digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
    is_named_so && entry.file_type().is_ok_and(|kind| kind.is_dir())
}

/// The UUID that a model has written into its directory, if it is the one that the directory is named after.
fn owner_of(directory: &Path) -> Option<String> {
    let uuid = std::fs::read_to_string(directory.join(OWNER)).ok()?;
    let is_the_one = directory.file_name()?.to_str()?.strip_prefix(PREFIX)? == uuid.get(..DIGITS)?;
    (is_the_one && directory.join(LOCK).is_file()).then(|| uuid.trim().to_owned())
}

/// The export asked for. What other machines can reach has TLS, and a model has no certificates.
fn export_of(text: &str) -> Result<Export, Failure> {
    const REMEDY: &str = "use loop, nbd or nbd:127.0.0.1:PORT";
    let address = text.strip_prefix("nbd:").and_then(|address| address.parse::<std::net::SocketAddr>().ok());
    if let Some(address) = address.filter(|address| !address.ip().is_loopback()) {
        return Err(Failure::usage(format!("--export asks for {address}, which other machines can reach"), REMEDY));
    }
    match Export::parse(text).map_err(ControlError::from)? {
        export if export.way().has_tls => Err(Failure::usage("a model is not served with TLS", REMEDY)),
        export => Ok(export),
    }
}

/// Exports the model until a signal.
///
/// # Errors
/// With the sentence to print.
pub fn model(set: &str, file: &str, export: &str, sector_bytes: Option<u32>, socket: &Path, json: bool) -> Result<(), Failure> {
    let export = export_of(export)?;
    let backing = request::backing("FILE", &format!("model:{set}:{file}"))?;
    let mut signals = Signals::new(signals::that_end()).map_err(|e| Failure::failed(format!("signals cannot be watched ({e})"), ""))?;
    let parent = std::path::absolute(socket).ok().and_then(|p| p.parent().map(Path::to_path_buf)).unwrap_or_else(|| "/tmp".into());
    let uuid = Uuid::new_v4();
    clear_killed(&parent);
    let directory = OwnDirectory::make(&parent, &uuid)?;
    let (notices, _) = std::sync::mpsc::channel();
    let machine = Machine::start(MachineOptions {
        real_time: true,
        export_directory: directory.path.clone(),
        // No keeper: a model that is killed shows a disk that dies.
        exporters: exporters::all,
        ..MachineOptions::private(&directory.path, notices)
    })?;
    let facts = machine.examine_backing(&backing).map_err(|error| match error {
        ControlError::Unknown { .. } => {
            Failure::failed(format!("{file} does not exist"), &format!("create it with `truncate -s SIZE {file}`"))
        }
        other => other.into(),
    })?;
    if let Some(user) = facts.in_use {
        return Err(Failure::failed(format!("{file} is in use ({user})"), "end that use, or choose another file"));
    }
    let sector_bytes = datapath::sectors::chosen(file, sector_bytes, &facts)?;
    let record = VolumeRecord {
        name: NAME.into(),
        uuid,
        pool: String::new(),
        id: 0,
        backing,
        size_bytes: facts.size_bytes,
        sector_bytes: Some(sector_bytes),
        options: Options::default(),
        exports: vec![export],
        phase: VolumePhase::Ready,
        may_have_dirty: false,
        identity: facts.identity,
        stopped_clean: false,
        cache_stale: false,
        past: Vec::new(),
        stopped: false,
        noted: Vec::new(),
        rules: Vec::new(),
        connections: Vec::new(),
        shares: Vec::new(),
        attachment: None,
    };
    machine.attach_bare(&record)?;
    let offer = machine.export(&record, &export)?;
    if json {
        print(&format!("{}\n", serde_json::json!({ "set": set, "size_bytes": record.size_bytes, "export": offer.place })))?;
    } else {
        print(&format!("{}\n", offer.place))?;
        say(format_args!("a model of {set} over {file}, without a cache; Ctrl-C ends it"));
    }
    signals.forever().next();
    let ended = giving_up_what_hangs(&machine, || {
        let lost = machine.unexport(&record, &export, Withdrawal::Forced);
        let detached = machine.detach(&record, false);
        match lost? {
            Some(lost) => Err(ControlError::DataPath(lost, String::new())),
            None => detached,
        }
    });
    machine.finish();
    Ok(ended?)
}

/// Does something that waits for the file; if that does not answer for too long, it fails instead.
fn giving_up_what_hangs<T>(machine: &Machine, work: impl FnOnce() -> T) -> T {
    let (done, ended) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                for wait in machine.waiting_for().into_iter().filter(|wait| wait.silent >= SILENCE_MAX) {
                    say(format_args!("hearth: {} has not answered for {} s; hearth gives up on it", wait.device, wait.silent.as_secs()));
                    if let Err(error) = machine.give_up(&wait.by) {
                        say(format_args!("hearth: giving up on it failed: {error}"));
                    }
                }
            }
        });
        let result = work();
        drop(done);
        result
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other people's directories are not touched, whatever they are called; a model's that was killed goes.
    #[test]
    fn only_what_a_model_left_is_cleared() {
        let parent = tempfile::tempdir().expect("a directory");
        let at = |path: &str| parent.path().join(path);
        let uuid = "0badcafe-0000-4000-8000-000000000000";
        std::fs::create_dir(at("model-0badcafe"))
            .and_then(|()| std::fs::write(at("model-0badcafe/nbd.sock.lock"), ""))
            .expect("there is room");
        for (name, owner) in [("model-important", uuid), ("model-12345678", uuid), ("model-0badcafe", uuid)] {
            std::fs::create_dir_all(at(name)).expect("there is room");
            std::fs::write(at(name).join(LOCK), "").and_then(|()| std::fs::write(at(name).join(OWNER), owner)).expect("there is room");
        }
        let elsewhere = tempfile::tempdir().expect("a directory");
        std::fs::write(elsewhere.path().join(LOCK), "").expect("there is room");
        std::os::unix::fs::symlink(elsewhere.path(), at("model-0badcaff")).expect("there is room");
        std::fs::write(at("model-12345678/thesis"), "years of work").expect("there is room");
        clear_killed(parent.path());
        assert!(!at("model-0badcafe").exists(), "a killed model's");
        for stays in ["model-important/lock", "model-important/uuid", "model-12345678/lock", "model-12345678/thesis", "model-0badcaff/lock"]
        {
            assert!(at(stays).exists(), "{stays}");
        }
        let (name, file) = (at("model-0badcafe"), at("model-0badcafe/other"));
        std::fs::create_dir(&name).and_then(|()| std::fs::write(&file, "not the model's")).expect("there is room");
        std::fs::write(name.join(LOCK), "").and_then(|()| std::fs::write(name.join(OWNER), uuid)).expect("there is room");
        clear_killed(parent.path());
        assert!(file.exists(), "what a model did not put there stays");
        std::fs::remove_file(&file).expect("it is there");
        clear_killed(parent.path());
        assert!(!name.exists(), "and the directory is known all the same");
    }
}
