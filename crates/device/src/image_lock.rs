//! The locks by which programs of the QEMU family keep an image to themselves, taken and asked here too: QEMU looks at no other kind.
//!
//! What a program does with an image is a set of permissions; what it lets others do meanwhile is another. For each permission that it
//! uses it holds a shared lock on byte 100 + n of the image, and for each that it does not share one on byte 200 + n. Nothing is stored
//! there: only the locks count. After it has set its own, it asks whether somebody holds the opposite byte. The locks are those of an
//! open file description (`F_OFD_SETLK`), and go with its last descriptor. (QEMU's documentation: "Image locking".)

use crate::busy::is_served;
use crate::open::{Access, OpenError, PATIENCE_PAUSE, PATIENCE_TRIES};
use crate::openers;
use crate::sys;
use crate::system::{DeviceNumber, SystemView, read_line};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where the bytes of permissions in use begin.
const USED: u64 = 100;
/// Where those of permissions that are not shared do.
const NOT_SHARED: u64 = 200;

/// Reading what does not change under the reader.
const CONSISTENT_READ: u64 = 0;
/// Writing.
const WRITE: u64 = 1;
/// Writing what is there already.
const WRITE_UNCHANGED: u64 = 2;
/// Changing the size.
const RESIZE: u64 = 3;

/// What an opener does, and what nobody else may do meanwhile.
struct Wish {
    uses: &'static [u64],
    keeps: &'static [u64],
}

const READ_WRITE: Wish = Wish { uses: &[CONSISTENT_READ, WRITE], keeps: &[CONSISTENT_READ, WRITE, WRITE_UNCHANGED, RESIZE] };
const READ_ONLY: Wish = Wish { uses: &[CONSISTENT_READ], keeps: &[WRITE] };

/// Takes the locks of who writes to the image, and refuses one that a program of that family has open otherwise. Who only looks takes
/// none, so that nobody is refused for a moment's look, but asks.
pub(crate) fn take(file: &File, path: &Path, access: Access) -> Result<(), OpenError> {
    match is_free(file, access) {
        true => Ok(()),
        false => Err(OpenError::ImageInUse { path: path.to_path_buf(), by: who_has(path) }),
    }
}

/// Asks the same of the file below a loop device, since such programs lock the file, and look at nothing else. None are taken there: who has lost such
/// a device, and gets its file back below another one, must not be refused by itself. A file that cannot be opened, or whose file system waits for
/// a program, is passed over; so is one of which the device shows a part, since the other parts may be others'.
pub(crate) fn ask_below(device: &File, path: &Path, access: Access) -> Result<(), OpenError> {
    let Some((file, shown)) = file_below(device, &SystemView::default()) else { return Ok(()) };
    match wish(access).is_none_or(|wish| is_allowed(&file, &wish)) {
        true => Ok(()),
        false => Err(OpenError::FileBelowInUse { path: path.to_path_buf(), by: who_has(&shown), file: shown }),
    }
}

/// All but this process, which has it open by asking.
fn who_has(path: &Path) -> String {
    openers::told(&openers::others(path, &SystemView::default()))
}

fn file_below(device: &File, view: &SystemView) -> Option<(File, PathBuf)> {
    let directory = view.block_directory(DeviceNumber::from_raw(device.metadata().ok()?.rdev()))?;
    let (file, path) = file_shown(&directory, view)?;
    let facts = file.metadata().ok()?;
    // Another file may have that name by now.
    let is_it = sys::loop_file(device).is_ok_and(|known| known == (facts.dev(), facts.ino()));
    is_it.then_some((file, path))
}

/// The file that a loop device shows as a whole, by what the kernel says of the device in that directory.
fn file_shown(directory: &Path, view: &SystemView) -> Option<(File, PathBuf)> {
    let path = PathBuf::from(read_line(&directory.join("loop/backing_file"))?);
    let is_zero = |what: &str| read_line(&directory.join(what)).is_none_or(|text| text == "0");
    if !is_zero("loop/offset") || !is_zero("loop/sizelimit") || is_served(&path, view) || !fs::metadata(&path).ok()?.is_file() {
        return None;
    }
    Some((File::open(&path).ok()?, path))
}

/// What who opens it so wishes; who only looks on wishes nothing.
fn wish(access: Access) -> Option<Wish> {
    match access {
        Access::Beside => None,
        Access::ReadOnly => Some(READ_ONLY),
        Access::ReadWrite => Some(READ_WRITE),
    }
}

/// Takes the locks, and says whether nobody has others that contradict them.
fn is_free(file: &File, access: Access) -> bool {
    let Some(wish) = wish(access) else { return true };
    let locked = if access == Access::ReadWrite { set(file, &wish) } else { Ok(()) };
    // File systems without such locks have no program that relies on them.
    locked.is_err() || is_allowed(file, &wish)
}

/// Whether nobody has locks that contradict the wish, for longer than a moment.
fn is_allowed(file: &File, wish: &Wish) -> bool {
    for tries in (0..PATIENCE_TRIES).rev() {
        match is_refused(file, wish) {
            Ok(true) if tries > 0 => std::thread::sleep(PATIENCE_PAUSE),
            Ok(true) => break,
            Ok(false) | Err(_) => return true,
        }
    }
    false
}

fn set(file: &File, wish: &Wish) -> io::Result<()> {
    let bytes = wish.uses.iter().map(|bit| USED + bit).chain(wish.keeps.iter().map(|bit| NOT_SHARED + bit));
    bytes.into_iter().try_for_each(|byte| sys::lock_byte(file, byte))
}

fn is_refused(file: &File, wish: &Wish) -> io::Result<bool> {
    let opposite = wish.uses.iter().map(|bit| NOT_SHARED + bit).chain(wish.keeps.iter().map(|bit| USED + bit));
    for byte in opposite {
        if sys::is_byte_locked(file, byte)? {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("disk.img");
        std::fs::write(&path, [0; 4096]).expect("there is room");
        (directory, path)
    }

    fn open(path: &Path) -> File {
        File::options().read(true).write(true).open(path).expect("it is there")
    }

    /// Another program: it uses and keeps what these bits say, as QEMU sets them.
    fn another(path: &Path, uses: &[u64], keeps: &[u64]) -> File {
        let file = open(path);
        uses.iter().map(|bit| 100 + bit).chain(keeps.iter().map(|bit| 200 + bit)).for_each(|byte| {
            sys::lock_byte(&file, byte).expect("nobody else locks it");
        });
        file
    }

    #[test]
    fn who_writes_refuses_all_others_and_is_refused_by_them() {
        let (_directory, path) = image();
        let ours = open(&path);
        take(&ours, &path, Access::ReadWrite).expect("nobody has it");
        // What QEMU asks before it writes, reads, and resizes.
        let other = open(&path);
        for byte in [200, 201, 203, 100, 101] {
            assert!(sys::is_byte_locked(&other, byte).expect("it is told"), "{byte}");
        }
        // Its own locks are in nobody's way, and neither is who only looks on.
        assert!(!is_refused(&ours, &READ_WRITE).expect("it is told"));
        take(&other, &path, Access::Beside).expect("it asks nobody");
        drop(ours);
        let guest = another(&path, &[0, 1], &[1, 3]);
        for access in [Access::ReadWrite, Access::ReadOnly] {
            let error = take(&open(&path), &path, access).expect_err("a guest writes to it").to_string();
            let told = format!("{} is open in", path.display());
            assert!(error.starts_with(&told) && !error.contains(&format!("process {})", std::process::id())), "{error}");
        }
        drop(guest);
        take(&open(&path), &path, Access::ReadOnly).expect("it has gone");
    }

    /// A machine writes to the image that a loop device shows.
    #[test]
    fn the_file_below_a_loop_device_is_asked_for_if_all_of_it_is_shown() {
        let (directory, path) = image();
        let at = |name: &str| directory.path().join(name);
        let view = SystemView { dev: at("dev"), sys: at("sys"), proc: at("proc"), run: at("run") };
        let write = |name: &str, text: &str| {
            fs::create_dir_all(at(name).parent().expect("it has one")).expect("directories");
            fs::write(at(name), text).expect("a file");
        };
        write("proc/self/mountinfo", "30 1 8:0 / / rw - ext4 /dev/sda rw\n");
        write("loop6/loop/backing_file", &format!("{}\n", path.display()));
        let shown = || file_shown(&at("loop6"), &view);
        let (file, found) = shown().expect("it is there");
        assert_eq!(found, path);
        // Opened for reading is enough to ask, and nothing is left by it.
        assert!(is_allowed(&file, &READ_WRITE));
        assert!(!is_refused(&open(&path), &READ_WRITE).expect("it is told"), "nobody is refused");
        drop(file);
        let guest = another(&path, &[0, 1], &[1, 3]);
        assert!(!is_allowed(&shown().expect("it is there").0, &READ_WRITE));
        drop(guest);
        for (what, text) in [("offset", "1048576"), ("sizelimit", "2048")] {
            write(&format!("loop6/loop/{what}"), text);
            assert!(shown().is_none(), "a part of it");
            write(&format!("loop6/loop/{what}"), "0");
        }
        assert!(shown().is_some());
        write("loop6/loop/backing_file", &format!("{} (deleted)\n", path.display()));
        assert!(shown().is_none());
        // What is no loop device has nothing below it.
        assert!(file_below(&open(&path), &SystemView::default()).is_none());
    }

    #[test]
    fn readers_may_look_together() {
        let (_directory, path) = image();
        let _reader = another(&path, &[0], &[1]);
        take(&open(&path), &path, Access::ReadOnly).expect("it reads too");
        assert!(take(&open(&path), &path, Access::ReadWrite).is_err(), "it relies on what it reads");
    }
}
