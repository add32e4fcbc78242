//! How a disk is offered, changed while it is served.

use super::super::volumes::unique_exports;
use super::super::{Manager, Severity};
use crate::api::Answer;
use crate::datapath::Withdrawal;
use crate::error::ControlError;
use crate::state::{DiskRecord, PoolRecord};
use crate::words::Export;

impl Manager {
    /// Offers a disk in these ways and no others. What stays is not touched; what goes must not be in use, but for NBD, whose clients are
    /// disconnected.
    ///
    /// # Errors
    /// Then it is offered as before.
    pub(super) fn set_disk_exports(&self, name: &str, exports: &[Export]) -> Result<Answer, ControlError> {
        let exports = unique_exports(exports)?;
        let (_claim, before) = self.claim_disk(name, "a change of its exports")?;
        let pool = self.pool_record(&before.pool)?;
        let going: Vec<Export> = before.exports.iter().filter(|export| !exports.contains(export)).copied().collect();
        let coming: Vec<Export> = exports.iter().filter(|export| !before.exports.contains(export)).copied().collect();
        // With TLS or without, the address is its own.
        let is_own = |export: &&Export| going.iter().any(|own| own.tcp_address().is_some() && own.tcp_address() == export.tcp_address());
        let others: Vec<Export> = coming.iter().filter(|export| !is_own(export)).copied().collect();
        self.check_exports_free(&others)?;
        let volume = before.as_volume(&pool.ssd);
        going.iter().try_for_each(|export| self.check_one_unused(&volume, *export))?;
        let after = DiskRecord { exports, ..before.clone() };
        let withdrawn = self.withdraw_some(&volume, &going, Withdrawal::IfUnused);
        if let Err(error) = withdrawn.and_then(|()| self.save_disk(&after)).and_then(|()| self.serve_if_pool_runs(&after, &pool)) {
            self.offer_as_before(&before, &coming, &pool);
            return Err(error);
        }
        if !(going.is_empty() && coming.is_empty()) {
            let now = after.exports.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let told = if now.is_empty() { "it is offered nowhere now".to_owned() } else { format!("it is offered as {now} now") };
            self.events().note(Severity::Info, name, told);
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
