//! How a disk is offered, changed while it is served.

use super::super::new_exports::ExportChange;
use super::super::{Manager, Severity};
use api::Answer;
use api::error::ControlError;
use api::words::Export;
use datapath::Withdrawal;
use records::state::{DiskRecord, PoolRecord};

impl Manager {
    /// Offers a disk in these ways and no others. What stays is not touched; what goes must not be in use, but for NBD, whose clients are
    /// disconnected.
    ///
    /// # Errors
    /// Then it is offered as before.
    pub(super) fn set_disk_exports(&self, name: &str, exports: &[Export]) -> Result<Answer, ControlError> {
        let (_claim, before) = self.claim_disk(name, "a change of its exports")?;
        let change = ExportChange::new(&before.exports, exports)?;
        let pool = self.pool_record(&before.pool)?;
        let volume = before.as_volume(&pool.ssd);
        self.check_export_change(&volume, &change)?;
        let after = DiskRecord { exports: change.exports.clone(), ..before.clone() };
        let beside = change.beside();
        if !beside.is_empty() {
            // Clients of what goes are not cut off for a change that cannot be.
            let both = DiskRecord { exports: before.exports.iter().chain(&beside).copied().collect(), ..before.clone() };
            if let Err(error) = self.save_disk(&both).and_then(|()| self.serve_if_pool_runs(&both, &pool)) {
                self.offer_as_before(&before, &beside, &pool);
                return Err(error);
            }
        }
        let withdrawn = self.withdraw_some(&volume, &change.going, Withdrawal::IfUnused);
        if let Err(error) = withdrawn.and_then(|()| self.save_disk(&after)).and_then(|()| self.serve_if_pool_runs(&after, &pool)) {
            self.offer_as_before(&before, &change.coming, &pool);
            return Err(error);
        }
        if !change.is_empty() {
            self.events().note(Severity::Info, name, change.sentence());
        }
        self.disk_view(name).map(|view| Answer::Disk(Box::new(view)))
    }

    fn serve_if_pool_runs(&self, disk: &DiskRecord, pool: &PoolRecord) -> Result<(), ControlError> {
        if self.running_pool(&pool.name).is_ok() { self.serve_disk(disk, pool) } else { Ok(()) }
    }

    /// Whatever of a change was done is undone. What is in the way is told, and tried again.
    fn offer_as_before(&self, before: &DiskRecord, coming: &[Export], pool: &PoolRecord) {
        let undone = self.withdraw_some(&before.as_volume(&pool.ssd), coming, Withdrawal::Forced).and_then(|()| self.save_disk(before));
        if let Err(error) = undone {
            let message = format!("the change of its exports could not be undone: {error}");
            self.events().note(Severity::Warning, &before.name, message);
        }
        let on_record = self.disk_record(&before.name);
        if self.running_pool(&pool.name).is_ok() {
            drop(on_record.and_then(|disk| self.serve_or_tell(&disk, pool)));
        }
    }
}
