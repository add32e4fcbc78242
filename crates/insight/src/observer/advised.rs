//! Advice that was given, and what has come since.

use super::Insight;
use crate::now_ms;
use api::AdviceView;
use std::sync::Arc;

/// Advice that is kept to be looked at again.
const ADVICE_MAX: usize = 64;

/// Advice that was given, and what had been read by then.
pub(super) struct Kept {
    advice: AdviceView,
    /// It is for another SSD than the one there is, or for a cache that lets in what this one does not.
    is_other: bool,
    since: Option<Since>,
}

/// What had been read of a volume at some time, in its window.
struct Since {
    at_ms: u64,
    /// Which window; each one's is another.
    window: Arc<()>,
    read_blocks: f64,
    hit_blocks: f64,
    first_blocks: f64,
}

/// What was read of a volume in some time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Came {
    /// How long.
    pub window_ms: u64,
    /// Blocks read that had been used before.
    pub again_blocks: f64,
    /// Blocks read that the cache answered.
    pub hit_blocks: f64,
}

impl Insight {
    /// Keeps advice, under the number that it gets. With `is_budget` it is for another SSD than the one there is.
    pub fn keep(&mut self, mut advice: AdviceView, is_budget: bool) -> AdviceView {
        self.next_advice += 1;
        advice.id = self.next_advice;
        let since = self.volume_of(&advice.name).and_then(|volume| self.since(&volume));
        let is_other = is_budget || advice.with_backups;
        self.advice.insert(advice.id, Kept { advice: advice.clone(), is_other, since });
        while self.advice.len() > ADVICE_MAX {
            self.advice.pop_first();
        }
        advice
    }

    /// Advice that was given.
    pub fn advice(&self, id: u64) -> Option<&AdviceView> {
        self.advice.get(&id).map(|kept| &kept.advice)
    }

    /// Whether what comes says nothing of the advice's forecast: it is for another SSD, or another way to fill it.
    pub fn is_for_another(&self, id: u64) -> bool {
        self.advice.get(&id).is_some_and(|kept| kept.is_other)
    }

    /// What was read of a volume until now.
    fn since(&self, volume: &str) -> Option<Since> {
        let known = self.volumes.get(volume)?;
        let read = known.objects.read();
        Some(Since {
            at_ms: now_ms(),
            window: Arc::clone(known.objects.window()),
            read_blocks: read.read_blocks,
            hit_blocks: read.hit_blocks,
            first_blocks: known.watched.watch().load(false).profile().first_references(),
        })
    }

    /// From now on what comes is compared with the advice's forecast.
    pub fn advice_counts_from_now(&mut self, id: u64) {
        let since = self.advice.get(&id).and_then(|kept| self.volume_of(&kept.advice.name)).and_then(|volume| self.since(&volume));
        if let Some(kept) = self.advice.get_mut(&id) {
            kept.since = since;
        }
    }

    /// What came since the advice was given, or applied; `None`: the volume is not watched any more, or its window began anew.
    pub fn came_of(&self, id: u64) -> Option<Came> {
        let kept = self.advice.get(&id)?;
        let then = kept.since.as_ref()?;
        let now = self.since(&self.volume_of(&kept.advice.name)?)?;
        // Counts of another window may be larger too.
        Arc::ptr_eq(&now.window, &then.window).then(|| Came {
            window_ms: now.at_ms.saturating_sub(then.at_ms),
            again_blocks: now.read_blocks - then.read_blocks - (now.first_blocks - then.first_blocks).max(0.0),
            hit_blocks: now.hit_blocks - then.hit_blocks,
        })
    }
}
