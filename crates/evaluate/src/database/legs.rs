//! Whole runs on a block device that holds a copy of an image (see [`prepared`](super::prepared)): mount, start the server, drive it, stop it, unmount.

use super::filesystem::FileSystem;
use super::go_tpc::{GoTpc, Target};
use super::mariadb::{MariaDb, Stop};
use super::pgbench::Pgbench;
use super::postgres::Postgres;
use super::prepared::{Contents, DATA, TPCC};
use super::sysbench::Sysbench;
use super::tpcc_native::{self, Scale};
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
    /// What each holds; other than the standard's only our own load knows it.
    pub scale: Scale,
    /// Connections without time to think.
    pub threads: u32,
    /// The load generator; our own where it is not to be had.
    pub go_tpc: Option<PathBuf>,
}

impl Tpcc {
    /// The image that it starts from.
    pub fn contents(&self) -> Contents {
        match self.server {
            Server::MariaDb { .. } => Contents::TpccMariaDb { warehouses: self.warehouses, scale: self.scale },
            Server::Postgres { .. } => Contents::TpccPostgres { warehouses: self.warehouses, scale: self.scale },
        }
    }
}

/// TPC-C: new orders. `beside` may attach a cache and read counters while it runs.
///
/// # Errors
/// If anything fails, or the user wants an end; server and file system are gone then too.
pub fn tpcc_leg(stage: &Stage, device: &str, tpcc: &Tpcc, times: Times, beside: &mut Beside<'_>) -> Result<Driven, Trouble> {
    let contents = tpcc.contents();
    let go_tpc = tpcc.go_tpc.as_ref().filter(|_| tpcc.scale == Scale::STANDARD);
    let tcp = go_tpc.is_some();
    let drive = |target: Target, native: &tpcc_native::Target, beside: &mut Beside<'_>| match go_tpc {
        Some(program) => {
            let program = program.display().to_string();
            GoTpc { program, target, database: TPCC.into(), warehouses: tpcc.warehouses, threads: tpcc.threads }.drive(
                stage,
                times.warm_seconds,
                times.seconds,
                beside,
            )
        }
        None => {
            let (target, database) = (native.clone(), TPCC.into());
            let load = tpcc_native::Load { target, database, warehouses: tpcc.warehouses, threads: tpcc.threads, scale: tpcc.scale };
            load.drive(stage, times.warm_seconds, times.seconds, beside)
        }
    };
    match tpcc.server {
        Server::MariaDb { pool_bytes } => on_mariadb(stage, device, &contents.mariadb(pool_bytes, tpcc.threads, tcp), &mut |server| {
            let native = tpcc_native::Target::MariaDb { socket: server.socket().into() };
            drive(Target::MariaDb(server.port().unwrap_or_default()), &native, beside)
        }),
        Server::Postgres { buffers_bytes, memory_bytes } => {
            let settings = contents.postgres(buffers_bytes, memory_bytes, tpcc.threads, tcp);
            on_postgres(stage, device, &settings, &mut |server| {
                let native = tpcc_native::Target::Postgres { host: server.host(), port: server.port() };
                drive(Target::Postgres(server.port()), &native, beside)
            })
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
