//! One look at everything each second: kept as the newest sample, and told to whoever listens.

use super::Manager;
use crate::api::{Health, Sample, Severity};
use crate::figures::Figures;
use crate::live::LiveEvent;
use crate::sampler::{Notable, PoolFacts, Sampler, VolumeFacts};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The newest.
#[derive(Debug, Default)]
pub(super) struct Newest {
    sample: Arc<Sample>,
    figures: Arc<Figures>,
}

impl Manager {
    /// Looks at everything. `sampler` remembers the look before; `span_ms` is how long ago that was. Waits at most for a few seconds if the data
    /// path does not answer: call it from a thread of its own.
    pub fn take_sample(&self, sampler: &mut Sampler, unix_ms: u64, span_ms: u64) -> Arc<Sample> {
        let figures = self.data().figures();
        let (volumes, pools) = self.facts();
        let (sample, notable) = sampler.sample(unix_ms, span_ms, &figures, &volumes, &pools);
        for told in notable {
            match told {
                Notable::DirtyLimit { volume, message } | Notable::DestageBehind { volume, message } => {
                    self.events().note(Severity::Warning, &volume, message);
                }
                Notable::DestageCaughtUp { volume } => self.events().note(Severity::Info, &volume, "destage has caught up"),
            }
        }
        self.tell_repeats(unix_ms);
        let sample = Arc::new(sample);
        self.keep(&sample);
        self.shared.live.publish(LiveEvent::Sample(sample.clone()));
        let newest = Newest { sample: sample.clone(), figures: Arc::new(figures) };
        *self.shared.newest.lock().expect("no holder of this lock panics") = newest;
        sample
    }

    /// The newest sample; empty before the first.
    pub fn sample(&self) -> Arc<Sample> {
        self.shared.newest.lock().expect("no holder of this lock panics").sample.clone()
    }

    /// The figures of the newest sample; empty before the first.
    pub fn figures(&self) -> Arc<Figures> {
        self.shared.newest.lock().expect("no holder of this lock panics").figures.clone()
    }

    fn facts(&self) -> (BTreeMap<String, VolumeFacts>, BTreeMap<String, PoolFacts>) {
        let memory = self.memory();
        let volumes = memory.state.volumes.iter().map(|record| {
            let facts = VolumeFacts {
                health: memory.volumes.get(&record.name).map_or(Health::Starting, |live| live.health),
                mode: record.options.mode,
                pool: record.pool.clone(),
                size_bytes: record.size_bytes,
                write_cache_depth_ms: record.options.write_cache_depth_ms,
            };
            (record.name.clone(), facts)
        });
        let pools = memory.state.pools.iter().map(|record| {
            let live = memory.pools.get(&record.name);
            let size_bytes = live.map(|live| live.size_bytes).filter(|bytes| *bytes > 0).or(record.size_bytes).unwrap_or(0);
            (record.name.clone(), PoolFacts { health: live.map_or(Health::Starting, |live| live.health), size_bytes })
        });
        (volumes.collect(), pools.collect())
    }
}
