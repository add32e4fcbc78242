//! Looking: lists, shows and counters. Nothing here waits for a device or an operation.

use super::{LivePool, LiveVolume, Manager, Memory, flash, grow, known};
use api::error::ControlError;
use api::stats::{PoolStats, VolumeStats};
use api::{Answer, DaemonView, Health, PoolView, SpareView, StatsView, VolumeView};
use datapath::figures::Figures;
use records::state::{PoolRecord, VolumeRecord};

impl Manager {
    pub(super) fn daemon_view(&self) -> DaemonView {
        DaemonView {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            state_directory: self.shared.state_directory.clone(),
            insight_enabled: self.insight().options().enabled,
        }
    }

    pub(super) fn pool_views(&self) -> Vec<PoolView> {
        let known: Vec<_> = {
            let memory = self.memory();
            let mut known: Vec<_> = memory.state.pools.iter().map(|p| (p.clone(), live_pool(&memory, p), volumes_of(&memory, p))).collect();
            known.sort_by(|a, b| a.0.name.cmp(&b.0.name));
            known
        };
        let mut figures = self.known_figures();
        let mut stats_of = |name: &str| figures.pools.remove(name).unwrap_or_default();
        known
            .into_iter()
            .map(|(record, live, volumes)| {
                let stats = stats_of(&record.name);
                self.view_of_pool(record, live, volumes, stats)
            })
            .collect()
    }

    pub(super) fn pool_view(&self, name: &str) -> Result<PoolView, ControlError> {
        let record = self.pool_record(name)?;
        let (live, volumes) = {
            let memory = self.memory();
            (live_pool(&memory, &record), volumes_of(&memory, &record))
        };
        let stats = self.pool_stats(name);
        Ok(self.view_of_pool(record, live, volumes, stats))
    }

    fn view_of_pool(&self, record: PoolRecord, live: LivePool, volumes: Vec<String>, stats: PoolStats) -> PoolView {
        let runs = live.health == Health::Running || stats.cached_bytes > 0;
        let (problem, remedy) = split(live.trouble.map(|t| (t.problem, t.remedy)));
        let disks = self.memory().state.disks_of(&record.name).into_iter().map(|disk| disk.name).collect();
        let size_bytes = if live.size_bytes > 0 { live.size_bytes } else { record.size_bytes.unwrap_or(0) };
        let spare = record.spare.as_ref().map(|spare| SpareView {
            percent: spare.percent,
            reason: spare.reason().into(),
            not_discarded: spare.not_discarded.clone(),
        });
        PoolView {
            spare,
            write_amplification: stats.write_amplification,
            write_streams: stats.write_streams,
            flash: if runs { flash::estimate(&record, size_bytes, stats.slots.as_ref()) } else { None },
            name: record.name,
            uuid: record.uuid,
            health: live.health,
            problem,
            remedy,
            ssd: record.ssd,
            on_blank_ssd: record.on_blank_ssd.name().into(),
            size_bytes,
            ram_bytes: live.ram_bytes.unwrap_or(record.ram_bytes),
            cached_bytes: runs.then_some(stats.cached_bytes),
            dirty_bytes: stats.dirty_bytes,
            index_bytes: stats.index_bytes,
            content: record.content,
            content_stats: stats.content,
            slot_stats: stats.slots,
            volumes,
            disks,
            disks_bytes: record.disk_room.map_or(0, |room| room.bytes()),
            recovery: live.recovery,
        }
    }

    pub(super) fn volume_views(&self) -> Vec<VolumeView> {
        let known: Vec<_> = {
            let memory = self.memory();
            let mut known: Vec<_> = memory.state.volumes.iter().map(|v| (v.clone(), live_volume(&memory, v))).collect();
            known.sort_by(|a, b| a.0.name.cmp(&b.0.name));
            known
        };
        let mut figures = self.known_figures();
        let mut stats_of = |name: &str| figures.volumes.remove(name).unwrap_or_default().stats;
        known
            .into_iter()
            .map(|(record, live)| {
                let stats = stats_of(&record.name);
                self.view_of_volume(record, live, &stats)
            })
            .collect()
    }

    pub(super) fn volume_view(&self, name: &str) -> Result<VolumeView, ControlError> {
        let record = self.volume_record(name)?;
        let live = live_volume(&self.memory(), &record);
        Ok(self.view_of_volume(record, live, &self.volume_stats(name)))
    }

    fn view_of_volume(&self, record: VolumeRecord, live: LiveVolume, stats: &VolumeStats) -> VolumeView {
        let shrunk = live.backing_bytes.filter(|bytes| *bytes < record.size_bytes).map(|bytes| grow::other_size(&record, bytes));
        let nameless = live.nameless.clone().map(|t| (t.problem, t.remedy));
        let told = live.shown_trouble().map(|t| (t.problem, t.remedy));
        // That it is shorter says why it refuses what lies beyond.
        let told = if live.trouble.is_none() { shrunk.or(told) } else { told };
        let (problem, remedy) = split(told.or(nameless));
        VolumeView {
            backing_size_bytes: live.backing_bytes,
            shares: self.shares_of(&record),
            uuid: record.uuid,
            health: live.shown_health(),
            problem,
            remedy,
            pool: record.pool,
            backing: record.backing,
            size_bytes: record.size_bytes,
            sector_bytes: record.sector_bytes,
            options: record.options,
            exports: record.exports.iter().map(|e| (e.to_string(), live.exports.get(e).cloned())).collect(),
            on_restart: live.on_restart.iter().map(|(export, what)| (export.to_string(), *what)).collect(),
            export_notes: live.export_notes.into_iter().map(|(export, note)| (export.to_string(), note)).collect(),
            stable_path: live.stable_path,
            attached_to: record.attachment.map(|attachment| attachment.device),
            cached_bytes: live.attached.then_some(stats.cached_bytes),
            dirty_bytes: stats.dirty_bytes,
            job: self.shared.jobs.of_volume(&record.name).map(|j| j.view()),
            name: record.name,
        }
    }

    pub(super) fn stats_all(&self) -> StatsView {
        let (pools, volumes, disks): (Vec<_>, Vec<_>, Vec<_>) = {
            let state = &self.memory().state;
            let disks = state.disks.iter().map(|disk| disk.name.clone()).collect();
            (state.pools.iter().map(|p| p.name.clone()).collect(), state.volumes.iter().map(|v| v.name.clone()).collect(), disks)
        };
        let mut figures = self.known_figures();
        let mut of = |name: String| {
            let stats = figures.volumes.remove(&name).unwrap_or_default().stats;
            (name, stats)
        };
        StatsView {
            pools: pools.into_iter().map(|p| (p.clone(), figures.pools.remove(&p).unwrap_or_default())).collect(),
            volumes: volumes.into_iter().map(&mut of).collect(),
            disks: disks.into_iter().map(&mut of).collect(),
        }
    }

    pub(super) fn stats(&self, name: &str) -> Result<Answer, ControlError> {
        let (volume, pool) = {
            let state = &self.memory().state;
            (state.volume(name).is_some() || state.disk(name).is_some(), state.pool(name).is_some())
        };
        match (volume, pool) {
            (true, _) => Ok(Answer::VolumeStats(Box::new(self.volume_stats(name)))),
            (false, true) => Ok(Answer::PoolStats(Box::new(self.pool_stats(name)))),
            (false, false) => Err(ControlError::Unknown { named: "volume", name: name.into() }),
        }
    }

    fn volume_stats(&self, name: &str) -> VolumeStats {
        let mut stats = self.data().volume_stats(name);
        let memory = self.memory();
        stats.dirty_bytes = stats.dirty_bytes.or_else(|| known::dirty_of_volume(&memory, memory.state.volume(name)?));
        stats
    }

    fn pool_stats(&self, name: &str) -> PoolStats {
        let mut stats = self.data().pool_stats(name);
        let memory = self.memory();
        stats.dirty_bytes = stats.dirty_bytes.or_else(|| known::dirty_of_pool(&memory, memory.state.pool(name)?));
        stats
    }

    /// The figures, and what is known of the dirty data of what does not run.
    fn known_figures(&self) -> Figures {
        let mut figures = self.data().figures();
        let memory = self.memory();
        for record in &memory.state.volumes {
            let stats = &mut figures.volumes.entry(record.name.clone()).or_default().stats;
            stats.dirty_bytes = stats.dirty_bytes.or_else(|| known::dirty_of_volume(&memory, record));
        }
        for record in &memory.state.pools {
            let stats = figures.pools.entry(record.name.clone()).or_default();
            stats.dirty_bytes = stats.dirty_bytes.or_else(|| known::dirty_of_pool(&memory, record));
        }
        figures
    }
}

fn live_pool(memory: &Memory, record: &PoolRecord) -> LivePool {
    memory.pools.get(&record.name).cloned().unwrap_or_else(|| LivePool::new(Health::Starting))
}

fn live_volume(memory: &Memory, record: &VolumeRecord) -> LiveVolume {
    memory.volumes.get(&record.name).cloned().unwrap_or_else(|| LiveVolume::new(Health::Starting))
}

fn volumes_of(memory: &Memory, pool: &PoolRecord) -> Vec<String> {
    let mut names: Vec<_> = memory.state.volumes_of(&pool.name).map(|v| v.name.clone()).collect();
    names.sort();
    names
}

fn split(trouble: Option<(String, String)>) -> (Option<String>, Option<String>) {
    trouble.unzip()
}
