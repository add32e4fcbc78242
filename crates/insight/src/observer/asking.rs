//! Which class who has that asks: rules, sessions, and the taps that show threads.

use super::{Insight, OfVolume};
use crate::now_ms;
use crate::witness::{WITNESS_BYTES, Witness};
use applications::streams::{Rule, Rules, Subject};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A tap on a volume's device that could not be had is tried again after this.
const WITNESS_AGAIN_MS: u64 = 60_000;

impl Insight {
    /// The user's rules for streams from now on.
    pub fn set_stream_rules(&mut self, own: &[Rule]) {
        if self.own_rules == own {
            return;
        }
        self.own_rules = own.to_vec();
        // There are never more than the state keeps.
        self.rules = Arc::new(Rules::new(self.own_rules.clone()).unwrap_or_default().and(Rules::usual()));
        for volume in self.volumes.values_mut() {
            volume.watched.set_rules(&self.rules, &volume.sessions);
        }
        for analysis in self.analyses.values_mut() {
            analysis.watched.set_rules(&self.rules, &Arc::default());
        }
    }

    /// The program of each session of the databases on a volume, by its thread or process.
    pub fn set_sessions(&mut self, volume: &str, sessions: BTreeMap<u32, String>) {
        let Some(volume) = self.volumes.get_mut(volume).filter(|volume| *volume.sessions != sessions) else { return };
        volume.sessions = Arc::new(sessions);
        volume.watched.set_rules(&self.rules, &volume.sessions);
    }

    /// Memory that it takes to know who asks.
    pub(super) fn asking_bytes(&self) -> u64 {
        let witnesses = self.volumes.values().filter(|volume| matches!(volume.witness, Some(Ok(_)))).count();
        let watched = self.volumes.values().map(|volume| &volume.watched);
        let askers = watched.chain(self.analyses.values().map(|analysis| &analysis.watched)).map(|watched| watched.askers().bytes());
        (witnesses * WITNESS_BYTES + askers.sum::<usize>()) as u64
    }

    /// Whether a rule of the user looks at what only a tap shows.
    pub fn needs_witnesses(&self) -> bool {
        self.own_rules.iter().any(|rule| rule.subject != Subject::Client)
    }

    /// Volumes, of those that are devices of this machine, where it must be seen who asks and is not. Where it need not be seen any more, it is not.
    pub fn witnesses_due(&mut self, places: &BTreeMap<String, String>) -> Vec<String> {
        let (now_ms, needed) = (now_ms(), self.needs_witnesses());
        let mut due = Vec::new();
        for (name, volume) in &mut self.volumes {
            let is_needed = needed || !volume.sessions.is_empty();
            if !is_needed || !places.contains_key(name) {
                volume.witness = None;
                continue;
            }
            let is_due = match &volume.witness {
                None => true,
                Some(Ok(_)) => false,
                Some(Err((at_ms, _))) => now_ms.saturating_sub(*at_ms) >= WITNESS_AGAIN_MS,
            };
            if is_due {
                due.push(name.clone());
            }
        }
        due
    }

    /// A tap on the device of a volume, or why there is none.
    pub fn set_witness(&mut self, volume: &str, opened: Result<Witness, String>) {
        if let Some(volume) = self.volumes.get_mut(volume) {
            volume.witness = Some(opened.map_err(|problem| (now_ms(), problem)));
        }
        // Samples make room for it; where there is none for them any more, nobody is told who asks.
        match self.limits(0) {
            Some(limits) => self.fit(limits),
            None => {
                let problem = "insight.memory has no room for a tap on its device: give more in the configuration";
                if let Some(volume) = self.volumes.get_mut(volume) {
                    volume.witness = Some(Err((now_ms(), problem.into())));
                }
            }
        }
    }

    /// Where it cannot be seen who asks, and why.
    pub fn unseen(&self) -> Vec<String> {
        let problem = |(name, volume): (&String, &OfVolume)| {
            let problem = match volume.witness.as_ref()? {
                Ok(witness) => witness.problem()?,
                Err((_, problem)) => problem.clone(),
            };
            Some(format!("\"{name}\": {problem}"))
        };
        self.volumes.iter().filter_map(problem).collect()
    }
}
