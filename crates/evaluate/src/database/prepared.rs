//! Loaded databases as images: made once on fast storage, each leg starts from a copy. A database that has run is another database.

use super::LONG;
use super::filesystem::FileSystem;
use super::go_tpc::{GoTpc, Target};
use super::mariadb::{self, MariaDb, Stop};
use super::pgbench::{Mix, Pgbench};
use super::postgres::{self, Postgres};
use super::sysbench::{Hot, Script, Sysbench};
use crate::stage::{LoopDevice, SHORT, Stage};
use crate::trouble::Trouble;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;
/// Room for the file system's own tables and journal, and for those of the server: MariaDB's grow by 64 MiB at once, and without room it waits for ever.
const OVERHEAD_BYTES: u64 = 180 * MIB;
/// The most that a server caches while it is loaded.
const LOADING_POOL_BYTES_MAX: u64 = 1024 * MIB;
/// What it caches at least.
const LOADING_POOL_BYTES_MIN: u64 = 128 * MIB;
/// The name of the database that TPC-C is in.
pub const TPCC: &str = "tpcc";
/// The directory of the server's data in the file system.
pub const DATA: &str = "data";

/// What is in an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contents {
    /// TPC-C in MariaDB.
    TpccMariaDb {
        /// Of 95 MB each.
        warehouses: u32,
    },
    /// TPC-C in PostgreSQL.
    TpccPostgres {
        /// Of 110 MB each.
        warehouses: u32,
    },
    /// sysbench's tables in MariaDB.
    Sysbench {
        /// With one table each.
        databases: u32,
        /// Of each.
        rows: u64,
    },
    /// pgbench's tables in PostgreSQL.
    Pgbench {
        /// Of 15 MB each.
        scale: u64,
    },
}

/// Memory of a server process of PostgreSQL beside the shared buffers: 1.25 MiB of its own and 0.2 MiB of page tables with version 15. Within 128 MiB for all,
/// 64 connections were too many, and the kernel ended the server.
const CONNECTION_BYTES: u64 = 3 << 19;

impl Contents {
    /// A name for a file that says all that it depends on.
    pub fn name(&self) -> String {
        match self {
            Contents::TpccMariaDb { warehouses } => format!("tpcc-mariadb-{warehouses}w.img"),
            Contents::TpccPostgres { warehouses } => format!("tpcc-postgres-{warehouses}w.img"),
            Contents::Sysbench { databases, rows } => format!("sysbench-{databases}x{rows}.img"),
            Contents::Pgbench { scale } => format!("pgbench-{scale}.img"),
        }
    }

    /// Tables with their indexes, about (measured with MariaDB 10.11 and PostgreSQL 15).
    pub fn data_bytes(&self) -> u64 {
        match self {
            Contents::TpccMariaDb { warehouses } => u64::from(*warehouses) * 95_000_000,
            Contents::TpccPostgres { warehouses } => u64::from(*warehouses) * 110_000_000,
            Contents::Sysbench { databases, rows } => u64::from(*databases) * rows * 233,
            Contents::Pgbench { scale } => scale * 15_100_000,
        }
    }

    /// The server's log: enough for a checkpoint now and then, little beside the data.
    pub fn log_bytes(&self) -> u64 {
        let (least, most) = if self.is_postgres() { (64 * MIB, 512 * MIB) } else { (16 * MIB, 96 * MIB) };
        (self.data_bytes() / 4).clamp(least, most) / MIB * MIB
    }

    /// The device: data, room to grow, the log. Not more: a model spreads the whole device over its platters.
    pub fn image_bytes(&self) -> u64 {
        // MariaDB's rows are changed in place, new orders take little. PostgreSQL writes each changed row anew, and nobody cleans up in a run.
        let (data, log) = if self.is_postgres() {
            (self.data_bytes() * 7 / 4, 2 * self.log_bytes())
        } else {
            (self.data_bytes() * 5 / 4, self.log_bytes())
        };
        (data + log + OVERHEAD_BYTES).next_multiple_of(MIB)
    }

    fn is_postgres(&self) -> bool {
        matches!(self, Contents::TpccPostgres { .. } | Contents::Pgbench { .. })
    }

    /// MariaDB's settings for a run of this.
    pub fn mariadb(&self, pool_bytes: u64, threads: u32, tcp: bool) -> mariadb::Settings {
        mariadb::Settings { pool_bytes, log_bytes: self.log_bytes(), connections: threads + 10, careless: false, tcp }
    }

    /// PostgreSQL's settings for a run of this. `memory_bytes` is for data: what its processes take themselves comes on top.
    pub fn postgres(&self, buffers_bytes: u64, memory_bytes: Option<u64>, threads: u32, tcp: bool) -> postgres::Settings {
        let (wal_bytes, connections) = (self.log_bytes(), threads + 10);
        let memory_bytes = memory_bytes.map(|bytes| bytes + u64::from(connections) * CONNECTION_BYTES);
        postgres::Settings { buffers_bytes, wal_bytes, connections, memory_bytes, careless: false, tcp }
    }
}

/// An image with these contents in a directory: the one that is there, or a new one. `go_tpc` loads TPC-C, and nothing else needs it.
///
/// # Errors
/// If it cannot be made: nothing of it is left then.
pub fn prepared(stage: &Stage, directory: &Path, contents: &Contents, go_tpc: Option<&Path>) -> Result<PathBuf, Trouble> {
    let image = directory.join(contents.name());
    if image.exists() {
        return Ok(image);
    }
    let part = Part(directory.join(format!("{}.part", contents.name())));
    let size = contents.image_bytes();
    // Of a run that was cut off: it is made anew.
    let file = std::fs::File::create(&part.0).map_err(|error| Trouble::io("make", &part.0, &error))?;
    file.set_len(size).map_err(|error| Trouble::io("make", &part.0, &error))?;
    stage.say(format!("truncate -s {size} {}", part.0.display()));
    let device = LoopDevice::attach(stage, &part.0, false)?;
    FileSystem::make(stage, device.path())?;
    let mounted = FileSystem::mount(stage, "loading", device.path())?;
    fill(stage, &mounted.path().join(DATA), contents, go_tpc)?;
    mounted.unmount()?;
    drop(device);
    file.sync_all().map_err(|error| Trouble::io("write", &part.0, &error))?;
    stage.say(format!("mv {} {}", part.0.display(), image.display()));
    std::fs::rename(&part.0, &image).map_err(|error| Trouble::io("rename", &part.0, &error))?;
    Ok(image)
}

/// An image that is being made; what is left of it goes with this guard.
struct Part(PathBuf);

impl Drop for Part {
    fn drop(&mut self) {
        // It has another name if it was made.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn fill(stage: &Stage, data: &Path, contents: &Contents, go_tpc: Option<&Path>) -> Result<(), Trouble> {
    let pool_bytes = contents.data_bytes().clamp(LOADING_POOL_BYTES_MIN, LOADING_POOL_BYTES_MAX);
    if contents.is_postgres() {
        Postgres::install(stage, data)?;
        let settings = postgres::Settings { careless: true, ..contents.postgres(pool_bytes / 4, None, 10, true) };
        let server = Postgres::start(stage, data, &settings)?;
        if let Contents::Pgbench { scale } = *contents {
            let mix = Mix::ReadsAndWrites { reads: 1, writes: 1 };
            Pgbench { mix, scale, clients: 1, sampled: 1.0 }.prepare(stage, &server)?;
        } else if let Contents::TpccPostgres { warehouses } = *contents {
            server.run("postgres", &format!("create database {TPCC}"), SHORT)?;
            load_tpcc(stage, go_tpc, Target::Postgres(server.port()), warehouses)?;
            server.settle(TPCC)?;
        }
        return server.stop(Stop::Clean);
    }
    MariaDb::install(stage, data, contents.log_bytes())?;
    let settings = mariadb::Settings { careless: true, ..contents.mariadb(pool_bytes, 10, true) };
    let server = MariaDb::start(stage, data, &settings)?;
    if let Contents::Sysbench { databases, rows } = *contents {
        Sysbench { script: Script::ReadWrite, databases, rows, threads: 1, hot: Hot::LITERAL }.prepare(stage, &server)?;
    } else if let Contents::TpccMariaDb { warehouses } = *contents {
        server.run("", &format!("create database {TPCC}"), SHORT)?;
        let port = server.port().expect("it was started with one");
        load_tpcc(stage, go_tpc, Target::MariaDb(port), warehouses)?;
        server.analyze(TPCC)?;
    }
    server.stop(Stop::Clean)
}

fn load_tpcc(stage: &Stage, go_tpc: Option<&Path>, target: Target, warehouses: u32) -> Result<(), Trouble> {
    let program = go_tpc.ok_or_else(|| Trouble::Failed("TPC-C is loaded by go-tpc, and none was given".into()))?;
    GoTpc { program: program.display().to_string(), target, database: TPCC.into(), warehouses, threads: 4 }.prepare(stage)
}

/// Copies an image to where a leg uses it: a file (which takes the place only that has data), or a block device that is long enough.
///
/// # Errors
/// If it does not fit, and as of [`Stage::run`].
pub fn copy(stage: &Stage, image: &Path, to: &Path) -> Result<(), Trouble> {
    let (from, onto) = (image.display().to_string(), to.display().to_string());
    if std::fs::metadata(to).is_ok_and(|metadata| metadata.file_type().is_block_device()) {
        // All of it: what a device held before must not shine through where the image has holes.
        let words = ["dd", &format!("if={from}"), &format!("of={onto}"), "bs=4M", "iflag=fullblock", "oflag=direct", "conv=fsync"];
        return stage.run(&words, LONG).map(drop);
    }
    stage.run(&["cp", "--sparse=always", "--reflink=auto", &from, &onto], LONG).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn names_say_what_images_depend_on() {
        let all = [
            Contents::TpccMariaDb { warehouses: 1 },
            Contents::TpccMariaDb { warehouses: 10 },
            Contents::TpccPostgres { warehouses: 1 },
            Contents::Sysbench { databases: 2, rows: 1000 },
            Contents::Sysbench { databases: 1, rows: 1000 },
            Contents::Pgbench { scale: 1 },
        ];
        let names: std::collections::BTreeSet<String> = all.iter().map(Contents::name).collect();
        assert_eq!(names.len(), all.len());
        for contents in all {
            assert!(contents.image_bytes() > contents.data_bytes() * 5 / 4 + contents.log_bytes(), "{contents:?}");
            assert_eq!(contents.image_bytes() % MIB, 0);
        }
    }

    #[test]
    fn connections_bring_their_own_memory() {
        let contents = Contents::Pgbench { scale: 10 };
        let limit = |threads| contents.postgres(16 * MIB, Some(128 * MIB), threads, false).memory_bytes.expect("a limit");
        assert_eq!(limit(64) - limit(4), 60 * CONNECTION_BYTES);
        assert!(limit(64) - 64 * (MIB + MIB / 4) >= 128 * MIB, "what the data was given is left beside 64 processes of 1.25 MiB");
        assert_eq!(contents.postgres(16 * MIB, None, 64, false).memory_bytes, None);
    }

    #[test]
    fn nothing_is_left_of_an_image_that_cannot_be_made() {
        let place = tempfile::tempdir().expect("a directory");
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let stage = Stage::new(place.path(), Path::new("/bin/true"), stop);
        assert_eq!(prepared(&stage, place.path(), &Contents::Pgbench { scale: 1 }, None), Err(Trouble::Stopped));
        let left = std::fs::read_dir(place.path()).expect("it is there").filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        // The stage's own list of processes is no image.
        assert_eq!(left.filter(|name| name.contains("img")).collect::<Vec<_>>(), Vec::<String>::new());
    }

    #[test]
    fn copies_are_sparse_and_the_same() {
        use std::os::unix::fs::MetadataExt;
        let place = tempfile::tempdir().expect("a directory");
        let stage = Stage::new(place.path(), Path::new("/bin/true"), Arc::default());
        let (image, to) = (place.path().join("a"), place.path().join("b"));
        let mut bytes = vec![0; 8 << 20];
        bytes[4 << 20..(4 << 20) + 5].copy_from_slice(b"hello");
        std::fs::write(&image, &bytes).expect("there is room");
        copy(&stage, &image, &to).expect("it is copied");
        assert!(std::fs::read(&to).expect("it is there") == bytes);
        assert!(
            std::fs::metadata(&to).expect("it is there").blocks() * 512 <= std::fs::metadata(&image).expect("it is there").blocks() * 512
        );
    }
}
