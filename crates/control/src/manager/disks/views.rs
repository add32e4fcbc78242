//! Disks as people see them.

use super::super::{Health, LiveVolume, Manager, Trouble};
use api::error::ControlError;
use api::{DiskPiece, DiskView};
use records::state::DiskRecord;

impl Manager {
    pub(in crate::manager) fn disk_views(&self) -> Vec<DiskView> {
        let mut views = self.disk_views_alone();
        let shares = self.share_views();
        for view in &mut views {
            view.shares = shares.iter().filter(|share| share.volume == view.name).cloned().collect();
        }
        views
    }

    /// Without their shares.
    pub(in crate::manager) fn disk_views_alone(&self) -> Vec<DiskView> {
        let memory = self.memory();
        let mut disks = memory.state.disks.clone();
        disks.sort_by(|one, other| one.name.cmp(&other.name));
        let of = |disk: DiskRecord| {
            let live = memory.volumes.get(&disk.name).cloned().unwrap_or_else(|| LiveVolume::new(Health::Starting));
            let ssd = memory.state.pool(&disk.pool).map_or(String::new(), |pool| pool.ssd.clone());
            let has_ssd = memory.pools.get(&disk.pool).is_none_or(|pool| pool.health == Health::Running);
            view_of(disk, ssd, live, has_ssd)
        };
        disks.into_iter().map(of).collect()
    }

    pub(in crate::manager) fn disk_view(&self, name: &str) -> Result<DiskView, ControlError> {
        let unknown = || ControlError::Unknown { named: "disk", name: name.into() };
        self.disk_views().into_iter().find(|disk| disk.name == name).ok_or_else(unknown)
    }
}

/// `has_ssd`: its pool runs with it.
fn view_of(disk: DiskRecord, ssd: String, live: LiveVolume, has_ssd: bool) -> DiskView {
    let lost = || Trouble {
        problem: format!("its pool has lost the SSD {ssd}: requests may get errors"),
        remedy: format!("see `hearth pool show {}`", disk.pool),
    };
    let is_lost = live.attached && !has_ssd;
    let refused = live.refused.as_ref().map(crate::manager::known::disk_refusal);
    let trouble = refused.or_else(|| live.trouble.clone()).or_else(|| live.lacking.values().next().cloned()).or_else(|| is_lost.then(lost));
    let trouble = trouble.or_else(|| live.nameless.clone());
    let (problem, remedy) = trouble.map(|Trouble { problem, remedy }| (problem, remedy)).unzip();
    DiskView {
        uuid: disk.uuid,
        health: if is_lost { Health::Failing } else { live.shown_health() },
        problem,
        remedy,
        size_bytes: disk.size_bytes(),
        size_reach: live.size_reach,
        pool: disk.pool,
        ssd,
        pieces: disk.pieces.iter().map(|piece| DiskPiece { offset_bytes: piece.at_bytes, size_bytes: piece.bytes() }).collect(),
        checksummed: false,
        sector_bytes: live.sector_bytes,
        exports: disk.exports.iter().map(|export| (export.to_string(), live.exports.get(export).cloned())).collect(),
        on_restart: live.on_restart.iter().map(|(export, what)| (export.to_string(), *what)).collect(),
        export_notes: live.export_notes.iter().map(|(export, note)| (export.to_string(), note.clone())).collect(),
        stable_path: live.stable_path,
        shares: Vec::new(),
        name: disk.name,
    }
}
