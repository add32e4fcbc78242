//! A guest that is no more than a kernel and a few files in its memory, so that nothing of the host's hinders its move to another machine.
//!
//! The kernel is one that the guest lab beside the project has prepared.

use crate::command::{must, words};
use crate::lab::launcher;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Result, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// For fetching a kernel, when the lab has none yet.
const LIMIT: Duration = Duration::from_secs(300);
const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;

/// A kernel and what it begins with.
#[derive(Debug)]
pub struct Boot {
    /// The kernel.
    pub kernel: PathBuf,
    /// Files for its memory.
    pub initramfs: PathBuf,
}

/// Makes a guest with the modules of virtio disks that runs `script` in busybox's shell, as its first process. These programs, with the
/// libraries they need, lie at `/NAME`.
///
/// # Panics
/// If the lab is not there or has no kernel, or a program is not found.
pub fn boot(at: &str, script: &str, programs: &[&Path]) -> Boot {
    let launcher = launcher().expect("the caller has asked for it as a need");
    must(&mut words(&[&launcher.display().to_string(), "setup"]), LIMIT);
    let cache = std::env::var_os("VMLAB_CACHE").map(PathBuf::from);
    let cache = cache.or_else(|| Some(std::env::home_dir()?.join(".cache/vmlab"))).expect("there is a home");
    let suite = std::env::var("VMLAB_SUITE").unwrap_or_else(|_| "bookworm-backports".into());
    let kernel = cache.join(suite).join("kernel");
    let mut archive = Archive::new(at).expect("there is room");
    let mut fill = || -> Result<()> {
        for directory in ["dev", "proc", "mods", "bin"] {
            archive.put(directory, DIRECTORY, &[])?;
        }
        archive.put("bin/busybox", PROGRAM, &fs::read(crate::needs::program("busybox").expect("asked for as a need"))?)?;
        archive.put("init", PROGRAM, script.as_bytes())?;
        for (number, module) in modules(&kernel)?.iter().enumerate() {
            archive.put(&format!("mods/{number:02}.ko"), PROGRAM, &fs::read(module)?)?;
        }
        let mut libraries = BTreeSet::new();
        for program in programs {
            archive.put(&program.file_name().expect("a file").to_string_lossy(), PROGRAM, &fs::read(program)?)?;
            // "	libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x…)", "	/lib64/ld-linux-x86-64.so.2 (0x…)".
            let told = must(&mut words(&["ldd", &program.display().to_string()]), LIMIT);
            libraries.extend(told.split_whitespace().filter(|word| word.starts_with('/')).map(str::to_owned));
        }
        for library in libraries {
            archive.put_below(&library, PROGRAM, &fs::read(&library)?)?;
        }
        archive.end()
    };
    fill().expect("the files are there");
    Boot { kernel: kernel.join("vmlinux"), initramfs: at.into() }
}

/// The files of the modules that a virtio disk needs, in the order in which they are loaded.
fn modules(kernel: &Path) -> Result<Vec<String>> {
    let releases = fs::read_dir(kernel.join("lib/modules"))?;
    let release = releases.flatten().next().expect("a kernel has modules").file_name().to_string_lossy().into_owned();
    let top = kernel.display().to_string();
    let show = ["modprobe", "-d", &top, "-S", &release, "-a", "--show-depends", "virtio_pci", "virtio_blk"];
    let told = must(&mut words(&show), LIMIT);
    let mut files: Vec<String> = Vec::new();
    for file in told.lines().filter_map(|line| line.strip_prefix("insmod ")).map(|file| file.trim().to_owned()) {
        if !files.contains(&file) {
            files.push(file);
        }
    }
    Ok(files)
}

/// A cpio archive of the kind "newc" (Documentation/driver-api/early-userspace/buffer-format.rst of Linux).
struct Archive {
    file: File,
    entries: u32,
    directories: BTreeSet<String>,
}

impl Archive {
    fn new(at: &str) -> Result<Archive> {
        Ok(Archive { file: File::create(at)?, entries: 0, directories: BTreeSet::new() })
    }

    /// With the directories that the path needs.
    fn put_below(&mut self, path: &str, mode: u32, data: &[u8]) -> Result<()> {
        let path = path.trim_start_matches('/');
        for (end, _) in path.match_indices('/') {
            if self.directories.insert(path[..end].to_owned()) {
                self.put(&path[..end], DIRECTORY, &[])?;
            }
        }
        self.put(path, mode, data)
    }

    fn put(&mut self, name: &str, mode: u32, data: &[u8]) -> Result<()> {
        self.entries += 1;
        let (links, length) = (1, data.len() as u32);
        let numbers = [self.entries, mode, 0, 0, links, 0, length, 0, 0, 0, 0, name.len() as u32 + 1, 0];
        let head: String = numbers.iter().map(|number| format!("{number:08X}")).collect();
        let mut entry = format!("070701{head}{name}\0").into_bytes();
        entry.resize(entry.len().next_multiple_of(4), 0);
        entry.extend_from_slice(data);
        entry.resize(entry.len().next_multiple_of(4), 0);
        self.file.write_all(&entry)
    }

    fn end(&mut self) -> Result<()> {
        self.put("TRAILER!!!", 0, &[])
    }
}
