//! Looking for a backing device under other names than the one it had: among all block devices of the machine, and in a file's directory. What a
//! device is called is asked of the kernel; only one that might be it is opened.

use super::discovery;
use api::error::ControlError;
use datapath::DeviceFacts;
use device::discover::{self, Found};
use device::system::SystemView;
use device::{DeviceSpec, identity};
use records::device_facts;
use records::recognise::{self, Match};
use records::state::{BackingIdentity, Fact};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// Shows what is on a device, and gives up one that does not answer.
type Examine<'a> = dyn Fn(&str) -> Result<DeviceFacts, ControlError> + Sync + 'a;

/// Files of a directory that are looked through for one that was renamed.
const FILES_MAX: usize = 10_000;

/// Whether a disk may wait for this program, whose volume may be away just now: [`export::Exporters::waits_unseen`].
type Waits<'a> = dyn Fn(&str) -> bool + 'a;

/// All devices that may be the one of this identity, but not the one at `spec`.
pub(super) fn find(examine: &Examine, waits: &Waits, spec: &str, wanted: &BackingIdentity) -> Vec<(String, DeviceFacts)> {
    let Ok(parsed) = spec.parse::<DeviceSpec>() else { return Vec::new() };
    let here = discovery::canonical(spec);
    let kind = wanted.fixed.iter().find(|fact| fact.name == "kind").map(|fact| fact.value.as_str());
    let places = match kind {
        Some("file") => renamed_files(parsed.path(), wanted),
        _ => block_devices(waits, wanted),
    };
    let places = places.into_iter().filter(|place| discovery::canonical(&place.display().to_string()) != here);
    let specs = places.map(|place| match parsed.model() {
        Some(set) => format!("model:{}:{}", set.name(), place.display()),
        None => place.display().to_string(),
    });
    examine_all(examine, specs.collect())
}

/// Block devices that are not called otherwise than the one wanted, by the name that stays.
fn block_devices(waits: &Waits, wanted: &BackingIdentity) -> Vec<PathBuf> {
    let view = SystemView::default();
    let list = match discover::list(&view) {
        Ok(list) => list,
        Err(error) => {
            tracing::warn!("the search for backing devices failed: {error}");
            return Vec::new();
        }
    };
    let may_be = |found: &Found| {
        let Ok((kind, ids)) = identity::ids_of(&found.path, &view) else { return false };
        let names: Vec<Fact> = device_facts::names_of(kind, &ids);
        // Of one whose name says nothing, what is on it must.
        match recognise::hardware(&wanted.fixed, &names) {
            Match::Same => true,
            Match::Unknown => !wanted.content.is_empty() && found.size_bytes >= wanted.size_bytes && may_be_asked(waits, found),
            Match::Other(_) => false,
        }
    };
    let free = list.into_iter().filter(|found| found.usages.is_empty());
    free.filter(may_be).map(|found| found.stable_path.unwrap_or(found.path)).collect()
}

/// Whether reading it waits for no program: for another one, or for this one, whose volume may be away just now.
fn may_be_asked(waits: &Waits, found: &Found) -> bool {
    let disk = found.parent.as_deref().unwrap_or(&found.path);
    !found.served && !disk.file_name().and_then(|name| name.to_str()).is_some_and(waits)
}

/// Files beside the path that have the number of the one wanted.
fn renamed_files(path: &Path, wanted: &BackingIdentity) -> Vec<PathBuf> {
    let inode = wanted.fixed.iter().find(|fact| fact.name == "inode").and_then(|fact| fact.value.parse::<u64>().ok());
    let (Some(inode), Some(directory)) = (inode, path.parent()) else { return Vec::new() };
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let is_it = |path: &PathBuf| std::fs::symlink_metadata(path).is_ok_and(|file| file.is_file() && file.ino() == inode);
    entries.take(FILES_MAX).filter_map(|entry| Some(entry.ok()?.path())).filter(is_it).collect()
}

/// The SSD of a pool, among the block devices that nobody uses. Of two that both say they are it, one is a copy, perhaps an old one: then none.
pub(super) fn find_ssd(examine: &Examine, waits: &Waits, uuid: Uuid) -> Option<String> {
    let list = discover::list(&SystemView::default()).ok()?;
    let free = list.into_iter().filter(|found| found.usages.is_empty() && may_be_asked(waits, found));
    let specs = free.map(|found| found.stable_path.unwrap_or(found.path).display().to_string()).collect();
    let found: Vec<String> =
        examine_all(examine, specs).into_iter().filter(|(_, facts)| facts.pool == Some(uuid)).map(|(spec, _)| spec).collect();
    if found.len() > 1 {
        tracing::warn!("{} all hold the pool {uuid}: disconnect the copies, then restart the daemon", found.join(", "));
        return None;
    }
    found.into_iter().next()
}

/// Looks at all of them at once. One that does not answer, or is going, is left out.
fn examine_all(examine: &Examine, specs: Vec<String>) -> Vec<(String, DeviceFacts)> {
    let look = |spec: String| examine(&spec).ok().map(|facts| (spec, facts));
    std::thread::scope(|threads| {
        let looks: Vec<_> = specs.into_iter().map(|spec| threads.spawn(move || look(spec))).collect();
        looks.into_iter().filter_map(|look| look.join().ok().flatten()).collect()
    })
}

/// A number that is another one as soon as a device comes, goes or is given other content, or the file at `spec` is.
pub(super) fn mark(spec: &str) -> u64 {
    let mut mark = DefaultHasher::new();
    let view = SystemView::default();
    if let Ok(list) = discover::list(&view) {
        for found in list {
            (&found.path, found.size_bytes, &found.loop_file, found.usages.len()).hash(&mut mark);
            let name = found.path.strip_prefix(&view.dev).unwrap_or(&found.path).to_path_buf();
            std::fs::read_to_string(view.sys.join("block").join(name).join("diskseq")).ok().hash(&mut mark);
        }
    }
    let path = spec.parse::<DeviceSpec>().ok().map(|spec| spec.path().to_path_buf());
    let metadata = path.and_then(|path| std::fs::metadata(path).ok());
    metadata.map(|file| (file.dev(), file.ino(), file.rdev(), file.len(), file.mtime(), file.mtime_nsec())).hash(&mut mark);
    mark.finish()
}

#[cfg(test)]
mod tests {
    use super::super::devices;
    use super::*;

    #[test]
    fn a_file_that_was_renamed_is_found_and_nothing_else_is() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| directory.path().join(name).display().to_string();
        for name in ["a.img", "b.img"] {
            std::fs::write(path(name), [0; 8192]).expect("there is room");
        }
        let wanted = devices::examine(&path("a.img")).expect("it is there").identity;
        let find = |spec: &str| find(&devices::examine, &|_| false, spec, &wanted);
        assert!(find(&path("a.img")).is_empty(), "where it is, it is not looked for");
        let before = mark(&path("a.img"));
        assert_eq!(before, mark(&path("a.img")), "nothing happened");
        std::fs::rename(path("a.img"), path("c.img")).expect("it is there");
        assert_ne!(before, mark(&path("a.img")));
        let found: Vec<String> = find(&path("a.img")).into_iter().map(|(spec, _)| spec).collect();
        assert_eq!(found, [path("c.img")]);
        let modelled: Vec<String> = find(&format!("model:7k2:{}", path("a.img"))).into_iter().map(|(spec, _)| spec).collect();
        assert_eq!(modelled, [format!("model:7k2:{}", path("c.img"))]);
    }
}
