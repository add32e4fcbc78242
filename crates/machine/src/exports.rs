//! Exports of volumes, by the exporters that this program has.

use super::{Machine, locked};
use api::error::ControlError;
use api::words::Export;
use datapath::{Exports, Offer, Withdrawal};
use export::{Absence, Owner, Volume};
use records::state::VolumeRecord;
use std::collections::BTreeMap;
use uuid::Uuid;

/// A volume's UUID, as exporters know it.
pub(super) fn owner(record: &VolumeRecord) -> Owner {
    Owner(u128::from_be_bytes(record.uuid.into_bytes()))
}

/// What exporters know of a volume.
pub(super) fn volume_of(record: &VolumeRecord) -> Volume<'_> {
    Volume {
        name: &record.name,
        owner: owner(record),
        backing: &record.backing,
        exports: &record.exports,
        tls_names: &record.options.tls_names,
        read_only: record.options.read_only,
        rests: record.rests(),
    }
}

pub(super) fn volumes_of(records: &[VolumeRecord]) -> Vec<Volume<'_>> {
    records.iter().map(volume_of).collect()
}

impl Machine {
    pub(super) fn offer(&self, record: &VolumeRecord, export: Export) -> Result<Offer, ControlError> {
        let live = self.volume(&record.name)?;
        Ok(self.exporters.offer(&volume_of(record), &live.reference, export)?)
    }

    /// Gives what is lost by it.
    pub(super) fn withdraw(&self, record: &VolumeRecord, export: Export, how: Withdrawal) -> Result<Option<String>, ControlError> {
        Ok(self.exporters.withdraw(&volume_of(record), export, how)?)
    }

    pub(super) fn user_of(&self, record: &VolumeRecord, export: Export) -> Option<String> {
        self.exporters.users(&volume_of(record), export).clause()
    }

    pub(super) fn users_outlive(&self, record: &VolumeRecord, export: Export, absence: Absence) -> bool {
        self.exporters.outlives(&volume_of(record), export, absence)
    }

    /// Whether somebody else has taken the block device away (`losetup -d`).
    pub(super) fn device_is_lost(&self, volume: &str) -> bool {
        self.owner_of_volume(volume).is_some_and(|owner| self.exporters.is_lost(owner))
    }

    fn owner_of_volume(&self, volume: &str) -> Option<Owner> {
        self.volume(volume).ok().map(|live| live.owner)
    }

    /// Notes which acknowledged writes are not known to be durable in a pool that ends as by a
    /// crash: by shard, the group up to which the SSD has them if it has lost nothing.
    pub(super) fn note_unflushed(&self, pool: Uuid, groups: Option<BTreeMap<u16, u64>>) {
        locked(&self.unflushed).insert(pool, groups);
    }

    /// The pool runs: all that was recovered is durable.
    pub(super) fn forget_unflushed(&self, pool: Uuid) {
        locked(&self.unflushed).remove(&pool);
    }

    /// The pool has been recovered up to these groups. Where acknowledged writes are missing, the
    /// SSD has lost them: then users must not go on as if nothing had happened. Gives whether that is so.
    pub(super) fn end_waiting_where_writes_are_lost(&self, pool: Uuid, recovered: &[u64], volumes: &[VolumeRecord]) -> bool {
        let has_all = {
            let unflushed = locked(&self.unflushed);
            let Some(noted) = unflushed.get(&pool) else { return false };
            let is_there = |(shard, group): (&u16, &u64)| recovered.get(usize::from(*shard)).is_some_and(|last| last >= group);
            noted.as_ref().is_some_and(|noted| noted.iter().all(is_there))
        };
        if !has_all {
            volumes.iter().for_each(|volume| self.exporters.end_waiting(&volume_of(volume)));
        }
        !has_all
    }
}

impl Exports for Machine {
    fn check_quiet(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        Ok(self.exporters.check_quiet(&volume_of(volume))?)
    }

    fn export(&self, volume: &VolumeRecord, export: &Export) -> Result<Offer, ControlError> {
        self.offer(volume, *export)
    }

    fn check_export(&self, export: Export) -> Result<(), ControlError> {
        Ok(self.exporters.check(export)?)
    }

    fn unexport(&self, volume: &VolumeRecord, export: &Export, how: Withdrawal) -> Result<Option<String>, ControlError> {
        self.withdraw(volume, *export, how)
    }

    /// See [`datapath::Exports::stable_name`].
    fn stable_name(&self, volume: &str) -> Option<Result<String, String>> {
        self.exporters.stable_name(self.owner_of_volume(volume)?)
    }

    fn outlives(&self, volume: &VolumeRecord, export: &Export, absence: Absence) -> bool {
        self.users_outlive(volume, *export, absence)
    }

    fn end_kept(&self, volume: &VolumeRecord) {
        self.exporters.end_waiting(&volume_of(volume));
    }

    /// These volumes are about to be served.
    fn expect_exports(&self, records: &[VolumeRecord]) {
        self.exporters.expect(&volumes_of(records));
    }

    /// See [`datapath::Exports::close_kept`].
    fn close_kept(&self, known: &[VolumeRecord], busy: &[String]) -> Vec<String> {
        self.exporters.close_overdue(&volumes_of(known), busy)
    }

    fn device_is_lost(&self, volume: &str) -> bool {
        Machine::device_is_lost(self, volume)
    }

    fn not_served(&self, volume: &VolumeRecord) {
        self.exporters.clear(&volume_of(volume));
    }

    fn export_in_use(&self, volume: &VolumeRecord, export: &Export) -> Option<String> {
        self.user_of(volume, *export)
    }

    fn finish(&self) {
        self.exporters.finish();
    }
}
