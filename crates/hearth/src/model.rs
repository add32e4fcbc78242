//! `hearth model`: a modelled slow disk by itself, the baseline of every comparison. No daemon, no cache, until Ctrl-C.

use crate::commands::print;
use crate::failure::Failure;
use crate::request;
use control::datapath::DataPath;
use control::options::Options;
use control::real::{Machine, MachineOptions};
use control::state::{VolumePhase, VolumeRecord};
use control::uuid::Uuid;
use control::words::Export;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::{Path, PathBuf};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

/// How long the file may answer nothing at the end, and how often is looked.
const SILENCE_MAX: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(500);

/// A directory of this process's own, removed with it.
struct OwnDirectory(PathBuf);

impl Drop for OwnDirectory {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("hearth: {} was not removed ({error})", self.0.display());
        }
    }
}

/// Exports the model until a signal.
///
/// # Errors
/// With the sentence to print.
pub fn model(set: &str, file: &str, export: &str, sector_bytes: Option<u32>, socket: &Path, json: bool) -> Result<(), Failure> {
    let export = Export::parse(export)?;
    let backing = request::backing("FILE", &format!("model:{set}:{file}"))?;
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(|e| Failure::failed(format!("signals cannot be watched ({e})"), ""))?;
    let parent = std::path::absolute(socket).ok().and_then(|p| p.parent().map(Path::to_path_buf)).unwrap_or_else(|| "/tmp".into());
    let directory = OwnDirectory(parent.join(format!("model-{}", std::process::id())));
    std::fs::create_dir_all(&directory.0).map_err(|e| {
        Failure::failed(format!("{} cannot be made ({e})", directory.0.display()), "name a writable place with --socket PATH")
    })?;
    let (notices, _) = std::sync::mpsc::channel();
    let machine = Machine::start(MachineOptions {
        reactors: None,
        real_time: true,
        // A disk keeps nobody awake.
        cpu_latency: false,
        export_directory: directory.0.clone(),
        stable_names: false,
        notices,
    })?;
    let facts = machine.examine_backing(&backing).map_err(|error| match error {
        control::error::ControlError::Unknown { .. } => {
            Failure::failed(format!("{file} does not exist"), &format!("create it with `truncate -s SIZE {file}`"))
        }
        other => other.into(),
    })?;
    if let Some(user) = facts.in_use {
        return Err(Failure::failed(format!("{file} is in use ({user})"), "end that use, or choose another file"));
    }
    let sector_bytes = control::sectors::chosen(file, sector_bytes, &facts)?;
    let uuid = Uuid::random().map_err(|e| Failure::failed(format!("the kernel provides no random bytes ({e})"), "check /dev/urandom"))?;
    let record = VolumeRecord {
        name: format!("model-{}", std::process::id()),
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
    };
    machine.attach_bare(&record)?;
    let offer = machine.export(&record, &export)?;
    if json {
        print(&format!("{}\n", serde_json::json!({ "set": set, "size_bytes": record.size_bytes, "export": offer.place })))?;
    } else {
        print(&format!("{}\n", offer.place))?;
        eprintln!("a model of {set} over {file}, without a cache; Ctrl-C ends it");
    }
    signals.forever().next();
    let ended = giving_up_what_hangs(&machine, || {
        machine.unexport(&record, &export, true)?;
        machine.detach(&record, false)
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
                    eprintln!("hearth: {} has not answered for {} s; hearth gives up on it", wait.device, wait.silent.as_secs());
                    if let Err(error) = machine.give_up(&wait.by) {
                        eprintln!("hearth: giving up on it failed: {error}");
                    }
                }
            }
        });
        let result = work();
        drop(done);
        result
    })
}
