//! One look at everything each second: kept as the newest sample, and sent to all listeners.

use super::{LiveVolume, Manager, known};
use api::{DiskView, Health, Sample, Severity};
use datapath::figures::{Figures, Refused};
use insight::sampler::{DiskFacts, Facts, Notable, PoolFacts, Sampler, VolumeFacts};
use records::live::LiveEvent;
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
        let mut figures = self.data().figures();
        self.note_refusals(&figures);
        let facts = self.facts();
        // To the data path they are volumes.
        figures.disks = figures.volumes.extract_if(.., |name, _| facts.disks.contains_key(name)).collect();
        let (sample, notable) = sampler.sample(unix_ms, span_ms, &figures, &facts);
        for told in notable {
            match told {
                Notable::DirtyLimit { volume, message } | Notable::DestageBehind { volume, message } => {
                    self.events().note(Severity::Warning, &volume, message);
                }
                Notable::StreamsRefused { pool, message } => self.events().note(Severity::Warning, &pool, message),
                Notable::DestageCaughtUp { volume } => self.events().note(Severity::Info, &volume, "destage has caught up"),
            }
        }
        self.tell_repeats(unix_ms);
        let sample = Arc::new(sample);
        self.keep(&sample);
        self.shared.live.publish(LiveEvent::Sample(sample.clone()));
        let newest = Newest { sample: sample.clone(), figures: Arc::new(figures) };
        *self.shared.newest.lock() = newest;
        sample
    }

    /// The newest sample; empty before the first.
    pub fn sample(&self) -> Arc<Sample> {
        self.shared.newest.lock().sample.clone()
    }

    /// The figures of the newest sample; empty before the first.
    pub fn figures(&self) -> Arc<Figures> {
        self.shared.newest.lock().figures.clone()
    }

    /// Volumes whose devices begin to refuse what they are asked for, or no longer do.
    fn note_refusals(&self, figures: &Figures) {
        let changed: Vec<(String, Option<Refused>)> = {
            let memory = self.memory();
            let now = |name: &String| figures.volumes.get(name).and_then(|figures| figures.refused.clone());
            let differ = memory.volumes.iter().filter(|(name, live)| live.refused != now(name));
            differ.map(|(name, _)| (name.clone(), now(name))).collect()
        };
        for (name, refused) in changed {
            let attached = self.volume_attached(&name);
            self.set_live_volume(&name, |live| live.refused = refused.clone());
            match refused {
                Some(refused) => {
                    let super::Trouble { problem, remedy } =
                        if self.is_disk(&name) { known::disk_refusal(&refused) } else { known::refusal(&refused) };
                    self.events().note(Severity::Error, &name, format!("{problem}; {remedy}"));
                }
                None if attached => self.events().note(Severity::Info, &name, "its devices do what they are asked for again"),
                None => {}
            }
        }
    }

    fn facts(&self) -> Facts {
        let disks = self.disk_views_alone().into_iter().map(|disk| {
            let DiskView { name, health, problem, pool, size_bytes, .. } = disk;
            (name, DiskFacts { health, problem, pool, size_bytes })
        });
        let disks = disks.collect();
        let memory = self.memory();
        let volumes = memory.state.volumes.iter().map(|record| {
            let live = memory.volumes.get(&record.name);
            let facts = VolumeFacts {
                health: live.map_or(Health::Starting, LiveVolume::shown_health),
                problem: live.and_then(LiveVolume::shown_trouble).map(|trouble| trouble.problem),
                dirty_bytes: known::dirty_of_volume(&memory, record),
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
            let (health, dirty_bytes) = (live.map_or(Health::Starting, |live| live.health), known::dirty_of_pool(&memory, record));
            (record.name.clone(), PoolFacts { health, dirty_bytes, size_bytes })
        });
        Facts { volumes: volumes.collect(), disks, pools: pools.collect() }
    }
}
