//! Whole runs on a block device that holds a copy of an image (see [`prepared`](super::prepared)): mount, start the server, drive it, stop it, unmount.

use super::filesystem::FileSystem;
use super::go_tpc::{GoTpc, Target};
use super::mariadb::{MariaDb, Stop};
use super::pgbench::Pgbench;
use super::postgres::Postgres;
use super::prepared::{Contents, DATA, TPCC};
use super::sysbench::Sysbench;
use super::{Beside, Driven, Moment};
use crate::stage::Stage;
use crate::trouble::Trouble;
use std::path::PathBuf;

/// How long a load runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    /// Before what counts.
    pub warm_seconds: u64,
    /// What counts.
    pub seconds: u64,
}

/// Which server TPC-C runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Server {
    /// With a buffer pool of so many bytes; it goes around the page cache.
    MariaDb {
        /// A tenth of the data is what the published tests had.
        pool_bytes: u64,
    },
    /// With buffers of so many bytes, in so much memory.
    Postgres {
        /// `shared_buffers`.
        buffers_bytes: u64,
        /// Of the server and of the page cache for it: about four times the buffers is the least it works with.
        memory_bytes: Option<u64>,
    },
}

/// Parameters of TPC-C.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tpcc {
    /// On what.
    pub server: Server,
    /// As many as are in the image.
    pub warehouses: u32,
    /// Connections without time to think.
    pub threads: u32,
    /// The load generator, which is not needed to know [`Tpcc::contents`].
    pub go_tpc: PathBuf,
}

impl Tpcc {
    /// The image that it starts from.
    pub fn contents(&self) -> Contents {
        match self.server {
            Server::MariaDb { .. } => Contents::TpccMariaDb { warehouses: self.warehouses },
            Server::Postgres { .. } => Contents::TpccPostgres { warehouses: self.warehouses },
        }
    }
}

/// TPC-C: new orders. `beside` may attach a cache and read counters while it runs.
///
/// # Errors
/// If anything fails, or the user wants an end; server and file system are gone then too.
pub fn tpcc_leg(stage: &Stage, device: &str, tpcc: &Tpcc, times: Times, beside: &mut Beside<'_>) -> Result<Driven, Trouble> {
    let contents = tpcc.contents();
    let drive = |target: Target, beside: &mut Beside<'_>| {
        let (program, database) = (tpcc.go_tpc.display().to_string(), TPCC.into());
        let load = GoTpc { program, target, database, warehouses: tpcc.warehouses, threads: tpcc.threads };
        load.drive(stage, times.warm_seconds, times.seconds, beside)
    };
    match tpcc.server {
        Server::MariaDb { pool_bytes } => on_mariadb(stage, device, &contents.mariadb(pool_bytes, tpcc.threads, true), &mut |server| {
            drive(Target::MariaDb(server.port().unwrap_or_default()), beside)
        }),
        Server::Postgres { buffers_bytes, memory_bytes } => {
            let settings = contents.postgres(buffers_bytes, memory_bytes, tpcc.threads, true);
            on_postgres(stage, device, &settings, &mut |server| drive(Target::Postgres(server.port()), beside))
        }
    }
}

/// sysbench on MariaDB with a buffer pool of so many bytes: queries.
///
/// # Errors
/// As of [`tpcc_leg`].
pub fn sysbench_leg(
    stage: &Stage,
    device: &str,
    load: &Sysbench,
    pool_bytes: u64,
    times: Times,
    beside: &mut Beside<'_>,
) -> Result<Driven, Trouble> {
    sysbench_beside(stage, device, load, pool_bytes, times, &mut |_, moment| beside(moment))
}

/// The same, where what stands beside it speaks to the server.
///
/// # Errors
/// As of [`tpcc_leg`].
pub fn sysbench_beside(
    stage: &Stage,
    device: &str,
    load: &Sysbench,
    pool_bytes: u64,
    times: Times,
    beside: &mut dyn FnMut(&MariaDb, Moment) -> Result<(), Trouble>,
) -> Result<Driven, Trouble> {
    let contents = Contents::Sysbench { databases: load.databases, rows: load.rows };
    let settings = contents.mariadb(pool_bytes, load.databases * load.threads, false);
    on_mariadb(stage, device, &settings, &mut |server| {
        load.drive(stage, server, times.warm_seconds, times.seconds, &mut |moment| beside(server, moment))
    })
}

/// pgbench on PostgreSQL with buffers of so many bytes, in so much memory: transactions.
///
/// # Errors
/// As of [`tpcc_leg`].
pub fn pgbench_leg(
    stage: &Stage,
    device: &str,
    load: &Pgbench,
    (buffers_bytes, memory_bytes): (u64, Option<u64>),
    times: Times,
    beside: &mut Beside<'_>,
) -> Result<Driven, Trouble> {
    pgbench_beside(stage, device, load, (buffers_bytes, memory_bytes), times, &mut |_, moment| beside(moment))
}

/// The same, where what stands beside it speaks to the server.
///
/// # Errors
/// As of [`tpcc_leg`].
pub fn pgbench_beside(
    stage: &Stage,
    device: &str,
    load: &Pgbench,
    (buffers_bytes, memory_bytes): (u64, Option<u64>),
    times: Times,
    beside: &mut dyn FnMut(&Postgres, Moment) -> Result<(), Trouble>,
) -> Result<Driven, Trouble> {
    let contents = Contents::Pgbench { scale: load.scale };
    let settings = contents.postgres(buffers_bytes, memory_bytes, load.clients, false);
    on_postgres(stage, device, &settings, &mut |server| {
        load.drive(stage, server, times.warm_seconds, times.seconds, &mut |moment| beside(server, moment))
    })
}

fn on_mariadb(
    stage: &Stage,
    device: &str,
    settings: &super::mariadb::Settings,
    drive: &mut dyn FnMut(&MariaDb) -> Result<Driven, Trouble>,
) -> Result<Driven, Trouble> {
    let mounted = FileSystem::mount(stage, "mounted", device)?;
    let server = MariaDb::start(stage, &mounted.path().join(DATA), settings)?;
    let driven = drive(&server)?;
    // The data is thrown away: only the next start would read what a clean stop writes.
    server.stop(Stop::Quick)?;
    mounted.unmount()?;
    Ok(driven)
}

fn on_postgres(
    stage: &Stage,
    device: &str,
    settings: &super::postgres::Settings,
    drive: &mut dyn FnMut(&Postgres) -> Result<Driven, Trouble>,
) -> Result<Driven, Trouble> {
    let mounted = FileSystem::mount(stage, "mounted", device)?;
    let server = Postgres::start(stage, &mounted.path().join(DATA), settings)?;
    let driven = drive(&server)?;
    server.stop(Stop::Quick)?;
    mounted.unmount()?;
    Ok(driven)
}
