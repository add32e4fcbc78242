//! How a volume or disk is exported, changed while it is served.
//!
//! Durable steps of a volume, and what a start does after a crash behind each:
//!
//! | change of exports | after a crash here, the start |
//! |---|---|
//! | 0. save old and new ones together, then offer what is new, but for what needs the place of one that goes | offers both |
//! | 1. exports that go are taken back, none of which is in use | offers both |
//! | 2. save the new list, then offer what is left | offers the new ones |

use super::volumes::{check_tls_names, unique_exports};
use super::{Manager, Severity};
use api::error::ControlError;
use api::options::Options;
use api::words::Export;
use datapath::Withdrawal;
use records::state::VolumeRecord;

/// The difference between two lists of exports.
pub(super) struct ExportChange {
    /// The new list.
    pub(super) exports: Vec<Export>,
    /// What is taken back.
    pub(super) going: Vec<Export>,
    /// What is offered anew.
    pub(super) coming: Vec<Export>,
}

impl ExportChange {
    /// # Errors
    /// If the new list names an export twice, or two block devices.
    pub(super) fn new(before: &[Export], exports: &[Export]) -> Result<ExportChange, ControlError> {
        let exports = unique_exports(exports)?;
        let going = before.iter().filter(|export| !exports.contains(export)).copied().collect();
        let coming = exports.iter().filter(|export| !before.contains(export)).copied().collect();
        Ok(ExportChange { exports, going, coming })
    }

    /// What is new and can be offered beside what goes: another address, and no second block device.
    pub(super) fn beside(&self) -> Vec<Export> {
        let gives_place =
            |export: &Export| self.going.iter().any(|own| own.shares_place_with(*export) || own.is_device() && export.is_device());
        self.coming.iter().filter(|export| !gives_place(export)).copied().collect()
    }

    /// Whether nothing changes.
    pub(super) fn is_empty(&self) -> bool {
        self.going.is_empty() && self.coming.is_empty()
    }

    /// What it did, as a sentence.
    pub(super) fn sentence(&self) -> String {
        let now = self.exports.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        if now.is_empty() { "it has no export now".into() } else { format!("it is exported as {now} now") }
    }
}

impl Manager {
    /// Whether what is new can be had, and nobody uses what goes.
    ///
    /// # Errors
    /// With who has the place, or who uses it. Nothing has changed then.
    pub(super) fn check_export_change(&self, volume: &VolumeRecord, change: &ExportChange) -> Result<(), ControlError> {
        // With TLS or without, the address is its own.
        let is_own = |export: &&Export| change.going.iter().any(|own| own.shares_place_with(**export));
        let others: Vec<Export> = change.coming.iter().filter(|export| !is_own(export)).copied().collect();
        self.check_exports_free(&others)?;
        change.going.iter().try_for_each(|export| self.check_one_unused(volume, *export))
    }

    /// Exports a claimed volume in these ways and no others. What stays is not touched; what goes must not be in use, but for NBD, whose
    /// clients are disconnected. `options`: those that it has with the new exports. Gives a sentence.
    ///
    /// # Errors
    /// Then it is exported as before.
    pub(super) fn set_volume_exports(&self, before: &VolumeRecord, exports: &[Export], options: &Options) -> Result<String, ControlError> {
        let change = ExportChange::new(&before.exports, exports)?;
        check_tls_names(options, &change.exports)?;
        if change.is_empty() {
            return Ok("unchanged: it is exported so already".into());
        }
        if let Some(attachment) = &before.attachment
            && change.going.iter().any(|export| export.is_device())
        {
            let problem = format!("the volume \"{}\" is attached to {}, which leads to its block device", before.name, attachment.device);
            let remedy =
                format!("keep that export in the list, or end it with `hearth detach {}`: nothing needs to be unmounted", before.name);
            return Err(ControlError::BadCombination(problem, remedy));
        }
        self.check_export_change(before, &change)?;
        let runs = self.volume_attached(&before.name);
        let beside = change.beside();
        if runs && !beside.is_empty() {
            let both: Vec<Export> = before.exports.iter().chain(&beside).copied().collect();
            // Clients of what goes are not cut off for a change that cannot be.
            let made = self.save_exports(&before.name, &both, &options.tls_names).and_then(|both| self.export_missing(&both));
            if let Err(error) = made {
                self.export_as_before(before, &beside);
                return Err(error);
            }
        }
        let withdrawn = self.withdraw_some(before, &change.going, Withdrawal::IfUnused);
        let saved = withdrawn.and_then(|()| self.save_exports(&before.name, &change.exports, &options.tls_names));
        let made = saved.and_then(|after| if runs { self.export_missing(&after) } else { Ok(()) });
        if let Err(error) = made {
            self.export_as_before(before, &change.coming);
            return Err(error);
        }
        let sentence = change.sentence();
        self.events().note(Severity::Info, &before.name, &sentence);
        Ok(if runs { sentence } else { sentence + "; in effect when it runs again" })
    }

    /// Who may use an export with TLS is known before the export is there.
    fn save_exports(&self, name: &str, exports: &[Export], tls_names: &[String]) -> Result<VolumeRecord, ControlError> {
        let saved = self.change(|state| {
            let volume = state.volume_mut(name)?;
            volume.exports = exports.to_vec();
            volume.options.tls_names = tls_names.to_vec();
            Some(volume.clone())
        })?;
        saved.ok_or(ControlError::Unknown { named: "volume", name: name.into() })
    }

    /// Whatever of a change was done is undone. What is in the way is told, and tried again.
    fn export_as_before(&self, before: &VolumeRecord, coming: &[Export]) {
        let withdrawn = self.withdraw_some(before, coming, Withdrawal::Forced);
        if let Err(error) = withdrawn.and_then(|()| self.save_exports(&before.name, &before.exports, &before.options.tls_names).map(drop)) {
            let message = format!("the change of its exports could not be undone: {error}");
            self.events().note(Severity::Warning, &before.name, message);
        }
        if self.volume_attached(&before.name)
            && let Ok(on_record) = self.volume_record(&before.name)
        {
            self.offer_again(&on_record);
        }
    }
}
