//! The locks by which programs of the QEMU family keep an image to themselves, taken and asked here too: QEMU looks at no other kind.
//!
//! What a program does with an image is a set of permissions; what it lets others do meanwhile is another. For each permission that it
//! uses it holds a shared lock on byte 100 + n of the image, and for each that it does not share one on byte 200 + n. Nothing is stored
//! there: only the locks count. After it has set its own, it asks whether somebody holds the opposite byte. The locks are those of an
//! open file description (`F_OFD_SETLK`), and go with its last descriptor. (QEMU's documentation: "Image locking".)

use crate::open::{Access, OpenError, PATIENCE_PAUSE, PATIENCE_TRIES};
use crate::openers;
use crate::sys;
use crate::system::SystemView;
use std::fs::File;
use std::io;
use std::path::Path;

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
    let wish = match access {
        Access::Beside => return Ok(()),
        Access::ReadOnly => READ_ONLY,
        Access::ReadWrite => READ_WRITE,
    };
    let locked = if access == Access::ReadWrite { set(file, &wish) } else { Ok(()) };
    // File systems without such locks have no program that relies on them.
    if locked.is_err() {
        return Ok(());
    }
    for tries in (0..PATIENCE_TRIES).rev() {
        match is_refused(file, &wish) {
            Ok(false) => return Ok(()),
            Ok(true) if tries > 0 => std::thread::sleep(PATIENCE_PAUSE),
            Ok(true) => break,
            Err(_) => return Ok(()),
        }
    }
    let by = openers::of(path, &SystemView::default());
    Err(OpenError::ImageInUse { path: path.to_path_buf(), by: openers::told(&by) })
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
    use std::path::PathBuf;

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
            assert!(error.starts_with(&told) && error.contains(&std::process::id().to_string()), "{error}");
        }
        drop(guest);
        take(&open(&path), &path, Access::ReadOnly).expect("it has gone");
    }

    #[test]
    fn readers_may_look_together() {
        let (_directory, path) = image();
        let _reader = another(&path, &[0], &[1]);
        take(&open(&path), &path, Access::ReadOnly).expect("it reads too");
        assert!(take(&open(&path), &path, Access::ReadWrite).is_err(), "it relies on what it reads");
    }
}
