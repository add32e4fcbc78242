//! All exporters of a program, asked as one.

use crate::answers::{Absence, ExportError, Offer, Users, Withdrawal};
use crate::block::Block;
use crate::exporter::{BlockExporter, Exporter};
use crate::kept::{self, kind_of, name_of};
use crate::site::{Owner, Site, Volume};
use crate::word::Export;
use device::below::BlockBelow;
use runtime::VolumeRef;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// All exporters of a program.
pub struct Exporters {
    site: Arc<Site>,
    all: Vec<Arc<dyn Exporter>>,
    devices: Vec<Arc<dyn BlockExporter>>,
}

impl Exporters {
    /// Block devices, the best kind first, and all others.
    pub fn new(site: Arc<Site>, devices: Vec<Arc<dyn BlockExporter>>, others: Vec<Arc<dyn Exporter>>) -> Exporters {
        let block: Arc<dyn Exporter> = Arc::new(Block::new(devices.clone()));
        let each = devices.iter().map(|device| device.clone() as Arc<dyn Exporter>);
        let all = std::iter::once(block).chain(each).chain(others).collect();
        Exporters { site, all, devices }
    }

    /// A program whose volumes have no clients outside of it.
    pub fn none(site: &Arc<Site>) -> Exporters {
        Exporters::new(site.clone(), Vec::new(), Vec::new())
    }

    fn of(&self, export: Export) -> Result<&Arc<dyn Exporter>, ExportError> {
        let exporter = self.all.iter().find(|exporter| exporter.ways().contains(&export.way()));
        exporter.ok_or_else(|| ExportError::Refused {
            export: export.to_string(),
            problem: "this program does not offer it".into(),
            remedy: "choose another export".into(),
        })
    }

    /// See [`Exporter::check`].
    ///
    /// # Errors
    /// The exporter's.
    pub fn check(&self, export: Export) -> Result<(), ExportError> {
        self.of(export)?.check(export)
    }

    /// See [`Exporter::offer`].
    ///
    /// # Errors
    /// The exporter's.
    pub fn offer(&self, volume: &Volume<'_>, reference: &VolumeRef, export: Export) -> Result<Offer, ExportError> {
        self.of(export)?.offer(volume, reference, export)
    }

    /// See [`Exporter::withdraw`].
    ///
    /// # Errors
    /// The exporter's.
    pub fn withdraw(&self, volume: &Volume<'_>, export: Export, how: Withdrawal) -> Result<Option<String>, ExportError> {
        self.of(export)?.withdraw(volume, export, how)
    }

    /// See [`Exporter::users`].
    pub fn users(&self, volume: &Volume<'_>, export: Export) -> Users {
        match self.of(export) {
            Ok(exporter) => exporter.users(volume, export),
            // Never "not in use" by omission.
            Err(error) => Users::Unknown(error.to_string()),
        }
    }

    /// See [`Exporter::outlives`].
    pub fn outlives(&self, volume: &Volume<'_>, export: Export, absence: Absence) -> bool {
        self.of(export).is_ok_and(|exporter| exporter.outlives(volume, export, absence))
    }

    /// See [`Exporter::volume_on`].
    pub fn volume_on(&self, device: &BlockBelow, volumes: &[Volume<'_>]) -> Option<String> {
        self.all.iter().find_map(|exporter| exporter.volume_on(device, volumes))
    }

    /// See [`BlockExporter::waits_unseen`].
    pub fn waits_unseen(&self, disk: &str) -> bool {
        self.devices.iter().any(|device| device.waits_unseen(disk))
    }

    /// See [`Exporter::grow`].
    pub fn grow(&self, owner: Owner, size_bytes: u64) -> Vec<String> {
        self.all.iter().flat_map(|exporter| exporter.grow(owner, size_bytes)).collect()
    }

    /// See [`Exporter::set_names`].
    pub fn set_names(&self, volume: &Volume<'_>) {
        self.all.iter().for_each(|exporter| exporter.set_names(volume));
    }

    /// See [`Exporter::expect`].
    pub fn expect(&self, volumes: &[Volume<'_>]) {
        self.all.iter().for_each(|exporter| exporter.expect(volumes));
    }

    /// See [`Exporter::detached`].
    pub fn detached(&self, volume: &Volume<'_>) {
        self.all.iter().for_each(|exporter| exporter.detached(volume));
    }

    /// The daemon ends: nothing is offered any more.
    pub fn finish(&self) {
        self.all.iter().for_each(|exporter| exporter.finish());
    }

    /// All volumes have been started that start at once. Users of exports that an earlier daemon has kept open get errors if they wait for a
    /// volume that is not known or is stopped, or have waited long enough. Gives the volumes of those who do.
    pub fn close_overdue(&self, known: &[Volume<'_>], busy: &[String]) -> Vec<String> {
        let overdue = self.site.kept.take_overdue(known, busy);
        let mut closed: BTreeSet<String> = self.all.iter().flat_map(|exporter| exporter.close_overdue(known, busy)).collect();
        for (name, set) in overdue {
            if !self.end_one_kept(&name, set) {
                continue;
            }
            match known.iter().find(|volume| kept::owner_of(&name) == Some(volume.owner)) {
                Some(volume) => drop(closed.insert(volume.name.to_owned())),
                None => tracing::info!("{name} was kept open, and nothing needs it any more: it is closed"),
            }
        }
        closed.into_iter().collect()
    }

    /// The volume does not have the content that its users knew: what is kept open of its exports ends, and they get errors.
    pub fn end_waiting(&self, volume: &Volume<'_>) {
        self.site.kept.note_strange(volume.owner);
        self.all.iter().for_each(|exporter| exporter.end_waiting(volume));
        for (name, set) in self.site.kept.take_all_of(volume.owner) {
            tracing::warn!("users of {} get errors: its content is not what they knew", volume.name);
            self.end_one_kept(&name, set);
        }
    }

    fn end_one_kept(&self, name: &str, set: Vec<OwnedFd>) -> bool {
        match self.all.iter().find(|exporter| exporter.keeps() == Some(kind_of(name))) {
            Some(exporter) => exporter.end_kept(name, set),
            None => {
                drop(set);
                self.site.kept.forget(name);
                true
            }
        }
    }

    /// The volume's block device is shared with other machines, or is no more: without a daemon, its users wait less long.
    pub fn note_shared(&self, volume: &Volume<'_>, is_shared: bool) {
        for kind in self.devices.iter().filter_map(|device| device.keeps()) {
            if let Err(error) = self.site.kept.note_shared(&name_of(kind, volume.owner), is_shared) {
                tracing::warn!("initiators of {} may wait two minutes if the daemon does not come back: {error}", volume.name);
            }
        }
    }

    /// See [`BlockExporter::stable_name`].
    pub fn stable_name(&self, owner: Owner) -> Option<Result<String, String>> {
        self.devices.iter().find_map(|device| device.stable_name(owner))
    }

    /// See [`BlockExporter::is_lost`].
    pub fn is_lost(&self, owner: Owner) -> bool {
        self.devices.iter().any(|device| device.is_lost(owner))
    }

    /// See [`BlockExporter::clear`].
    pub fn clear(&self, volume: &Volume<'_>) {
        let has_device = self.devices.iter().any(|device| device.has(volume));
        if !has_device && volume.exports.iter().any(|export| export.is_device()) {
            self.devices.iter().for_each(|device| device.clear(volume));
        }
    }

    /// See [`BlockExporter::set_read_only`].
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_read_only(&self, owner: Owner, read_only: bool) -> Result<(), ExportError> {
        self.devices.iter().try_for_each(|device| device.set_read_only(owner, read_only))
    }

    /// See [`BlockExporter::check_quiet`].
    ///
    /// # Errors
    /// If something is under way.
    pub fn check_quiet(&self, volume: &Volume<'_>) -> Result<(), ExportError> {
        self.devices.iter().try_for_each(|device| device.check_quiet(volume))
    }
}
