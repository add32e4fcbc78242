//! What a trial needs of the machine. A trial whose needs are not met says so and passes: the rest of the suite is still worth running.

use crate::lab;
use std::path::Path;

/// Something a trial cannot do without.
#[derive(Debug, Clone, Copy)]
pub enum Need {
    /// The rights to mount and to make loop devices.
    Root,
    /// `/dev/fuse` and `/dev/loop-control`, which the loop export stands on.
    LoopExport,
    /// `/dev/ublk-control`; or the guest lab, whose kernels have it.
    UblkOrLab,
    /// The guest lab beside the project; in a guest of its own it is there.
    Lab,
    /// A program in the usual directories.
    Program(&'static str),
    /// The programs of a PostgreSQL server.
    Postgres,
    /// A module of Debian's own Python.
    PythonModule(&'static str),
}

/// Whether all needs are met; otherwise says on standard error what is missing.
pub fn met(trial: &str, needs: &[Need]) -> bool {
    let missing: Vec<String> = needs.iter().filter_map(|need| need.missing()).collect();
    if !missing.is_empty() {
        eprintln!("{trial}: SKIPPED, this machine lacks {}", missing.join(", "));
    }
    missing.is_empty()
}

/// The full path of a program.
pub fn program(name: &str) -> Option<String> {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':').chain(["/usr/sbin", "/sbin", "/usr/bin"]).map(|d| format!("{d}/{name}")).find(|full| Path::new(full).is_file())
}

/// The full path of a program of PostgreSQL's server: Debian keeps those of each version apart. The newest counts.
pub fn postgres(name: &str) -> Option<String> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<(u32, String)> = versions
        .filter_map(|version| {
            let full = version.path().join("bin").join(name);
            full.is_file().then(|| (version.file_name().to_string_lossy().parse().unwrap_or(0), full.display().to_string()))
        })
        .collect();
    found.sort();
    found.pop().map(|(_, full)| full).or_else(|| program(name))
}

impl Need {
    fn missing(self) -> Option<String> {
        let (there, name) = match self {
            Need::Root => (rustix::process::geteuid().is_root(), "root's rights".to_string()),
            Need::LoopExport => {
                let nodes = ["/dev/fuse", "/dev/loop-control"];
                (nodes.iter().all(|node| Path::new(node).exists()), nodes.join(" and "))
            }
            Need::UblkOrLab => {
                let here = Path::new("/dev/ublk-control").exists();
                (here || lab::launcher().is_some(), "the ublk driver, and the guest lab beside the project".to_string())
            }
            Need::Lab => (lab::is_guest() || lab::launcher().is_some(), "the guest lab beside the project".to_string()),
            Need::Program(name) => (program(name).is_some(), format!("the program {name}")),
            Need::Postgres => (postgres("initdb").is_some() && postgres("postgres").is_some(), "a PostgreSQL server".to_string()),
            Need::PythonModule(name) => {
                let import = format!("import {name}");
                let asked = std::process::Command::new("/usr/bin/python3").args(["-c", &import]).output();
                (asked.is_ok_and(|o| o.status.success()), format!("Python's module {name}"))
            }
        };
        (!there).then_some(name)
    }
}
