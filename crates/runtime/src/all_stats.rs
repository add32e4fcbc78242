//! The counters of all volumes at once, for those who look every second: reactors send only what has changed since the last look.

use crate::RuntimeError;
use crate::message::Message;
use crate::runtime::Runtime;
use crate::stats::VolumeStats;
use crate::volume::VolumeRef;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What was seen at the last look, by reactor and volume.
#[derive(Debug, Default)]
pub struct AllStats {
    parts: BTreeMap<u16, BTreeMap<u32, Box<VolumeStats>>>,
}

/// A reactor's answer.
pub(crate) struct Changed {
    pub(crate) reactor: u16,
    pub(crate) changed: Vec<(u32, Box<VolumeStats>)>,
    /// The volumes that are there.
    pub(crate) numbers: BTreeSet<u32>,
}

impl AllStats {
    /// The counters of a volume over all reactors; zeroes of one that was not there.
    pub fn of(&self, volume: &VolumeRef) -> VolumeStats {
        let mut total = VolumeStats::default();
        self.parts_of(volume).for_each(|part| total.merge(part));
        total
    }

    /// How many requests of a volume were answered.
    pub fn requests(&self, volume: &VolumeRef) -> u64 {
        self.parts_of(volume).map(VolumeStats::requests).sum()
    }

    fn parts_of<'a>(&'a self, volume: &VolumeRef) -> impl Iterator<Item = &'a VolumeStats> + use<'a> {
        let number = volume.0.number;
        self.parts.values().filter_map(move |part| part.get(&number)).map(|part| &**part)
    }
}

impl Runtime {
    /// Looks again.
    ///
    /// # Errors
    /// [`RuntimeError::Timeout`] if a reactor does not answer within `patience`; `all` is as it was.
    pub fn refresh(&self, all: &mut AllStats, patience: Duration) -> Result<(), RuntimeError> {
        let known_by = |reactor| -> BTreeMap<u32, u64> {
            all.parts.get(&reactor).map(|part| part.iter().map(|(number, stats)| (*number, stats.requests())).collect()).unwrap_or_default()
        };
        let answers =
            self.ask_all("all statistics", patience, |reactor, done| Message::ChangedVolumeStats { known: known_by(reactor), done })?;
        for Changed { reactor, changed, numbers } in answers {
            let part = all.parts.entry(reactor).or_default();
            part.extend(changed);
            part.retain(|number, _| numbers.contains(number));
        }
        Ok(())
    }
}
