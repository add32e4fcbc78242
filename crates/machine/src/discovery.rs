//! The disks of this machine, looked at side by side and with little patience: one that is dead must not hide the others.

use super::{devices, locked};
use api::error::ControlError;
use datapath::{DeviceFacts, FoundDevice};
use device::discover::{self, Found, Look};
use device::signature;
use device::system::SystemView;
use device::{DeviceKind, DeviceSpec};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// How long a look may take: a disk that sleeps needs some seconds to spin up, and a person waits.
const PATIENCE: Duration = if cfg!(test) { Duration::from_secs(2) } else { Duration::from_secs(5) };

/// Devices being looked at: since when, and by how many. A look that hangs keeps its thread and its place here, so that not one more hangs beside it
/// each time somebody asks.
#[derive(Clone, Default)]
pub(super) struct Looks(Arc<Mutex<BTreeMap<PathBuf, (Instant, u32)>>>);

impl Looks {
    /// All block devices.
    pub(super) fn all(&self) -> Result<Vec<FoundDevice>, ControlError> {
        let list = discover::list(&SystemView::default()).map_err(cannot_tell)?;
        let looks = list.into_iter().map(|found| (found.path.clone(), move || described(&found))).collect();
        Ok(self.side_by_side(looks))
    }

    /// One device or file.
    pub(super) fn one(&self, spec: &str) -> Result<FoundDevice, ControlError> {
        let parsed = devices::parse(spec)?;
        let path = std::fs::canonicalize(parsed.path()).unwrap_or_else(|_| parsed.path().to_path_buf());
        match parsed.kind() {
            Ok(DeviceKind::BlockDevice) => {
                let list = discover::list(&SystemView::default()).map_err(cannot_tell)?;
                let odd = "hearth cannot use it as a disk: see `hearth devices`";
                let Some(found) = list.into_iter().find(|found| found.path == path) else { return Ok(unusable(&parsed, odd)) };
                Ok(self.look(path, move || described(&found)))
            }
            Ok(DeviceKind::RegularFile) => Ok(self.look(path, move || of_file(&parsed))),
            Err(device::SpecError::Missing { .. }) => match parsed.path().parent() {
                Some(directory) if !directory.is_dir() => {
                    Ok(unusable(&parsed, &format!("there is no directory {}: make it first", directory.display())))
                }
                _ => Err(ControlError::Unknown { named: "device", name: spec.into() }),
            },
            Err(error) => Ok(unusable(&parsed, &error.to_string())),
        }
    }

    fn look(&self, path: PathBuf, look: impl FnOnce() -> FoundDevice + Send + 'static) -> FoundDevice {
        self.side_by_side(vec![(path, look)]).pop().expect("one was asked for")
    }

    /// Whether a look may begin: none that did before hangs.
    fn enter(&self, path: &Path) -> bool {
        let mut under_way = locked(&self.0);
        let (since, count) = under_way.entry(path.to_path_buf()).or_insert((Instant::now(), 0));
        let may = since.elapsed() < PATIENCE;
        *count += u32::from(may);
        may
    }

    fn leave(&self, path: &Path) {
        let mut under_way = locked(&self.0);
        if let Some((_, count)) = under_way.get_mut(path) {
            *count -= 1;
            if *count == 0 {
                under_way.remove(path);
            }
        }
    }

    /// Looks at all of them at once, each on a thread of its own, in the order given.
    fn side_by_side(&self, looks: Vec<(PathBuf, impl FnOnce() -> FoundDevice + Send + 'static)>) -> Vec<FoundDevice> {
        let paths: Vec<PathBuf> = looks.iter().map(|(path, _)| path.clone()).collect();
        let mut seen: Vec<Option<FoundDevice>> = paths.iter().map(|_| None).collect();
        let (done, answers) = channel();
        for (at, (path, look)) in looks.into_iter().enumerate() {
            if !self.enter(&path) {
                continue;
            }
            let (done, under_way, mine) = (done.clone(), self.clone(), path.clone());
            let spawned = std::thread::Builder::new().name("look".into()).spawn(move || {
                let found = look();
                under_way.leave(&mine);
                // Whoever asked may have stopped waiting.
                drop(done.send((at, found)));
            });
            if let Err(error) = spawned {
                self.leave(&path);
                seen[at] = Some(silent(&path, &format!("no thread can be started to look at it ({error})")));
            }
        }
        drop(done);
        let deadline = Instant::now() + PATIENCE;
        // Until the deadline, or until everybody has answered.
        while let Ok((at, found)) = answers.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            seen[at] = Some(found);
        }
        let told =
            |(seen, path): (Option<FoundDevice>, &PathBuf)| seen.unwrap_or_else(|| silent(path, "it does not answer: check the disk"));
        seen.into_iter().zip(&paths).map(told).collect()
    }
}

/// The path with all links resolved, without the model's set.
pub(super) fn canonical(spec: &str) -> String {
    let Ok(parsed) = spec.parse::<DeviceSpec>() else { return spec.to_string() };
    std::fs::canonicalize(parsed.path()).unwrap_or_else(|_| parsed.path().to_path_buf()).display().to_string()
}

fn cannot_tell(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ControlError {
    ControlError::Below { source: error.into(), remedy: "run the daemon where /proc and /sys are mounted".into() }
}

fn silent(path: &Path, problem: &str) -> FoundDevice {
    FoundDevice { path: path.display().to_string(), kind: "disk".into(), problem: Some(problem.into()), ..FoundDevice::default() }
}

fn unusable(spec: &DeviceSpec, problem: &str) -> FoundDevice {
    let shown = spec.path().display().to_string();
    // The sentences of the device crate begin with the path.
    let problem = problem.strip_prefix(&shown).map_or(problem.to_string(), |rest| format!("it {}", rest.trim_start()));
    FoundDevice { path: shown, kind: "file".into(), problem: Some(problem), ..FoundDevice::default() }
}

/// A block device, looked at.
fn described(found: &Found) -> FoundDevice {
    let shown = |path: &PathBuf| path.display().to_string();
    let mut device = FoundDevice {
        path: shown(&found.path),
        stable_path: found.stable_path.as_ref().map(shown),
        kind: found.sort.word().into(),
        parent: found.parent.as_ref().map(shown),
        size_bytes: found.size_bytes,
        model: found.model.clone(),
        rotational: found.rotational,
        read_only: found.read_only,
        ..FoundDevice::default()
    };
    match discover::look(found, &devices::OWN_MARKS) {
        Look::InUse(user) => device.in_use = Some(user),
        Look::Holds(signatures) => {
            device.signature = signature::describe(&signatures);
            if signatures.iter().any(|found| devices::OWN_MARKS.iter().any(|own| own.what == found.what)) {
                device.pool = pool_on(&device.path);
            }
        }
        Look::Failed(problem) => device.problem = Some(problem.strip_prefix(&device.path).unwrap_or(&problem).trim_start().to_string()),
    }
    device
}

/// The pool whose superblock a device carries, if that can be read.
fn pool_on(path: &str) -> Option<Uuid> {
    devices::examine(path).ok()?.pool
}

/// A file, looked at.
fn of_file(spec: &DeviceSpec) -> FoundDevice {
    let plain = spec.path().display().to_string();
    let device = FoundDevice { path: canonical(&plain), kind: "file".into(), ..FoundDevice::default() };
    let size_bytes = std::fs::metadata(spec.path()).map_or(0, |metadata| metadata.len());
    match devices::examine(&plain) {
        Ok(DeviceFacts { in_use: Some(user), .. }) => FoundDevice { size_bytes, in_use: Some(user), ..device },
        Ok(DeviceFacts { size_bytes, signature, pool, .. }) => FoundDevice { size_bytes, signature, pool, ..device },
        Err(ControlError::Device { problem, remedy, .. }) if !remedy.is_empty() => {
            FoundDevice { size_bytes, problem: Some(format!("{problem}: {remedy}")), ..device }
        }
        Err(error) => FoundDevice { size_bytes, problem: Some(error.to_string()), ..device },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The device that hangs costs the patience once; whoever asks again is told at once.
    #[test]
    fn a_dead_device_hides_no_other() {
        let looks = Looks::default();
        let (release, hang) = channel::<()>();
        let hang = Mutex::new(Some(hang));
        let good = |path: &str| FoundDevice { path: path.into(), ..FoundDevice::default() };
        let look = |path: &'static str, hangs: Option<std::sync::mpsc::Receiver<()>>| {
            let look = move || {
                if let Some(hangs) = hangs {
                    let _ended = hangs.recv();
                }
                good(path)
            };
            (PathBuf::from(path), look)
        };
        let seen = looks.side_by_side(vec![look("/dev/a", None), look("/dev/dead", locked(&hang).take()), look("/dev/b", None)]);
        assert_eq!((&seen[0], &seen[2]), (&good("/dev/a"), &good("/dev/b")));
        assert!(seen[1].problem.as_deref().is_some_and(|problem| problem.contains("does not answer")), "{:?}", seen[1]);
        // This look would find it sound: it does not take place.
        let seen = looks.side_by_side(vec![look("/dev/dead", None), look("/dev/a", None)]);
        assert!(seen[0].problem.is_some() && seen[1].problem.is_none());
        drop(release);
        while !locked(&looks.0).is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(looks.side_by_side(vec![look("/dev/dead", None)])[0].problem.is_none(), "it is back");
    }
}
