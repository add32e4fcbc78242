//! A block device by the best way that this machine has.

use crate::answers::{Absence, ExportError, Offer, Users, Withdrawal};
use crate::exporter::{BlockExporter, Exporter, Support};
use crate::site::{Owner, Volume};
use crate::ways::{self, Way};
use crate::word::{Export, Place};
use device::below::BlockBelow;
use runtime::VolumeRef;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The choice among kinds of block devices, the best first. What the kinds themselves keep and know is asked of them.
pub struct Block {
    kinds: Vec<Arc<dyn BlockExporter>>,
}

impl Block {
    /// The last kind is taken where no other can be had.
    pub fn new(kinds: Vec<Arc<dyn BlockExporter>>) -> Block {
        Block { kinds }
    }

    fn that_has(&self, volume: &Volume<'_>) -> Option<&Arc<dyn BlockExporter>> {
        self.kinds.iter().find(|kind| kind.has(volume))
    }

    /// Which kind the volume gets, and why not a better one.
    fn choose(&self, volume: &Volume<'_>) -> Result<(&Arc<dyn BlockExporter>, Option<String>), ExportError> {
        let (last, better) =
            self.kinds.split_last().ok_or_else(|| ExportError::failed(&"this program offers no block devices", "choose another export"))?;
        // What its users have open stays what it is.
        if last.is_awaited(volume) {
            return Ok((last, Some(format!("its users have a {} device open", own_way(last).word))));
        }
        if let Some(kind) = better.iter().find(|kind| kind.is_awaited(volume)) {
            return Ok((kind, None));
        }
        let mut reasons = Vec::new();
        for kind in better {
            match kind.support()? {
                Support::Yes => return Ok((kind, None)),
                Support::No(reason) => reasons.push(reason),
            }
        }
        Ok((last, (!reasons.is_empty()).then(|| reasons.join(", and "))))
    }
}

fn own_way(kind: &Arc<dyn BlockExporter>) -> &'static Way {
    kind.ways()[0]
}

fn own_export(kind: &Arc<dyn BlockExporter>) -> Export {
    Export::of(own_way(kind), Place::Default)
}

impl Exporter for Block {
    fn ways(&self) -> &'static [&'static Way] {
        static WAYS: [&Way; 1] = [&ways::BLOCK];
        &WAYS
    }

    fn check(&self, _export: Export) -> Result<(), ExportError> {
        Ok(())
    }

    fn offer(&self, volume: &Volume<'_>, reference: &VolumeRef, _export: Export) -> Result<Offer, ExportError> {
        let (kind, reason) = self.choose(volume)?;
        let offer = kind.offer(volume, reference, own_export(kind))?;
        let word = own_way(kind).word;
        let note = reason.map_or(format!("by {word}"), |reason| format!("by {word}, since {reason}"));
        Ok(Offer { note: Some(note), ..offer })
    }

    fn withdraw(&self, volume: &Volume<'_>, _export: Export, how: Withdrawal) -> Result<Option<String>, ExportError> {
        self.that_has(volume).map_or(Ok(None), |kind| kind.withdraw(volume, own_export(kind), how))
    }

    fn users(&self, volume: &Volume<'_>, _export: Export) -> Users {
        self.that_has(volume).map_or(Users::None, |kind| kind.users(volume, own_export(kind)))
    }

    fn outlives(&self, volume: &Volume<'_>, _export: Export, absence: Absence) -> bool {
        self.that_has(volume).is_some_and(|kind| kind.outlives(volume, own_export(kind), absence))
    }

    fn volume_on(&self, _device: &BlockBelow, _volumes: &[Volume<'_>]) -> Option<String> {
        None
    }

    fn grow(&self, _owner: Owner, _size_bytes: u64) -> Vec<String> {
        Vec::new()
    }

    fn set_names(&self, _volume: &Volume<'_>) {}

    fn expect(&self, _volumes: &[Volume<'_>]) {}

    fn close_overdue(&self, _known: &[Volume<'_>], _busy: &[String]) -> Vec<String> {
        Vec::new()
    }

    fn end_waiting(&self, _volume: &Volume<'_>) {}

    fn detached(&self, _volume: &Volume<'_>) {}

    fn finish(&self) {}

    fn keeps(&self) -> Option<&'static str> {
        None
    }

    fn end_kept(&self, _name: &str, _set: Vec<OwnedFd>) -> bool {
        true
    }
}
