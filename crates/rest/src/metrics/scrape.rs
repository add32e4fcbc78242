//! Everything that the metrics of one scrape are read from.

use crate::problem::Outcome;
use crate::server::App;
use api::{Action, Answer, DiskView, PoolView, Severity, VolumeView};
use datapath::figures::Figures;
use std::sync::Arc;
use std::time::Instant;

/// One moment of everything.
#[derive(Debug, Default)]
pub struct Scrape {
    /// Counters.
    pub figures: Arc<Figures>,
    /// Pools as people see them.
    pub pools: Vec<PoolView>,
    /// Volumes as people see them.
    pub volumes: Vec<VolumeView>,
    /// Disks beside the caches as people see them.
    pub disks: Vec<DiskView>,
    /// Events since the daemon's start.
    pub events: Vec<(Severity, u64)>,
    /// Jobs that run.
    pub jobs: u64,
    /// Streams of events that are open.
    pub streams: u64,
    /// When the daemon's API began: seconds since 1970.
    pub started_unix_s: u64,
    /// How long it took to gather all this, in seconds.
    pub took_s: f64,
}

impl Scrape {
    /// Gathers it. May wait for the reactors.
    pub(crate) fn take(app: &App) -> Outcome<Scrape> {
        let began = Instant::now();
        let figures = app.manager.figures();
        let pools = match app.manager.handle(Action::PoolList)? {
            Answer::Pools(pools) => pools,
            _ => Vec::new(),
        };
        let volumes = match app.manager.handle(Action::VolumeList)? {
            Answer::Volumes(volumes) => volumes,
            _ => Vec::new(),
        };
        let disks = match app.manager.handle(Action::DiskList)? {
            Answer::Disks(disks) => disks,
            _ => Vec::new(),
        };
        Ok(Scrape {
            figures,
            pools,
            volumes,
            disks,
            events: app.manager.event_counts().to_vec(),
            jobs: app.manager.jobs_running() as u64,
            streams: app.streams.taken() as u64,
            started_unix_s: app.started_unix_s,
            took_s: began.elapsed().as_secs_f64(),
        })
    }
}
