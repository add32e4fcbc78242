//! A file system on the loop export keeps its files, and the backing device alone has them too once all is destaged.

use std::path::Path;
use trials::needs::{Need, met};
use trials::place::{LONG, Place, SHORT};
use trials::tree;

/// A tree of real files of many sizes that every machine with a C compiler has; about as much of it is used.
const SOURCE: &str = "/usr/include";
const SOURCE_MIB: u64 = 50;

#[test]
fn ext4_on_the_loop_export() {
    let needs = [Need::Root, Need::LoopExport, Need::Program("mkfs.ext4"), Need::Program("e2fsck")];
    if !met("ext4_on_the_loop_export", &needs) {
        return;
    }
    let mut place = Place::new("ext4");
    place.start();
    place.pool(96, 16);
    let (volume, exports) = place.volume(256, "write-back", &["--export", "loop"]);
    place.must_tool(&["mkfs.ext4", "-q", &exports.loop_device], LONG);

    let at = place.mount(&exports.loop_device, "noatime");
    copy_some(Path::new(SOURCE), &at.join("tree"));
    let wanted = tree::read(&at.join("tree"));
    assert!(wanted.len() > 100, "only {} files in {SOURCE}", wanted.len());
    place.must_tool(&["sync", "-f", &at.display().to_string()], LONG);
    place.unmount(&at);
    place.fsck(&exports.loop_device);

    let at = place.mount(&exports.loop_device, "noatime");
    tree::assert_same(&tree::read(&at.join("tree")), &wanted, "after the first unmount");
    tree::assert_same(&copied_from(&wanted), &wanted, "the source and its copy");
    place.unmount(&at);

    place.stop();
    place.start();
    let exports = place.exports(&volume);
    let at = place.mount(&exports.loop_device, "noatime");
    tree::assert_same(&tree::read(&at.join("tree")), &wanted, "after a clean restart of the daemon");
    std::fs::write(at.join("after"), "written after the restart").expect("there is room");
    place.unmount(&at);
    place.fsck(&exports.loop_device);
    assert!(place.counter(&volume, "read_hits_ssd") + place.counter(&volume, "read_hits_ram") > 0, "nothing was cached");
    assert_eq!(place.counter(&volume, "checksum_errors"), 0);

    trials::command::must(&mut place.hearth(&["volume", "destage", &volume]), LONG);
    assert_eq!(place.counter(&volume, "dirty_bytes"), 0);
    place.stop();
    let backing = place.path("backing.img");
    place.fsck(&backing);
    let at = place.mount(&backing, "loop,ro");
    tree::assert_same(&tree::read(&at.join("tree")), &wanted, "on the backing file, without hearth");
    assert_eq!(std::fs::read_to_string(at.join("after")).expect("it is there"), "written after the restart");
    place.must_tool(&["umount", &at.display().to_string()], SHORT);
}

/// Copies files and directories until there are `SOURCE_MIB` of them.
fn copy_some(from: &Path, to: &Path) {
    let mut left = SOURCE_MIB << 20;
    let mut open = vec![from.to_path_buf()];
    while let Some(directory) = open.pop() {
        let below = to.join(directory.strip_prefix(from).expect("it is below"));
        std::fs::create_dir_all(&below).expect("there is room");
        let mut entries: Vec<_> = std::fs::read_dir(&directory).expect("it can be listed").flatten().map(|e| e.path()).collect();
        entries.sort();
        for path in entries {
            let Ok(about) = path.symlink_metadata() else { continue };
            if about.is_dir() {
                open.push(path);
            } else if about.is_file() && about.len() <= left {
                left -= about.len();
                std::fs::copy(&path, below.join(path.file_name().expect("a file has a name"))).expect("there is room");
            }
        }
    }
}

/// What the source itself holds under the names that were copied.
fn copied_from(copy: &tree::Tree) -> tree::Tree {
    tree::read(Path::new(SOURCE)).into_iter().filter(|(name, _)| copy.contains_key(name)).collect()
}
