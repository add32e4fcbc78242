//! What is worth reading into the cache: objects that are named, or what an advice rests on.
//!
//! Where there is more than fits, the parts are taken that were read again most; the job reads them in the order of the disk.

use super::Manager;
use super::choosing::Chosen;
use super::policies::check_says_which;
use analysis::Kept;
use analysis::regions::by_gain;
use api::error::ControlError;
use api::{AdviceView, ObjectPreload, ObjectSet, PreloadView};
use insight::objects::Objects;
use std::collections::BTreeSet;
use std::ops::Range;
use types::{Admit, BLOCK_BYTES};

impl Manager {
    pub(super) fn object_preload(&self, asked: &ObjectPreload) -> Result<PreloadView, ControlError> {
        let ObjectPreload { objects, volume, application, kind, budget_bytes, rate_bytes_s, dry_run } = asked.clone();
        let which = ObjectSet { objects, volume, application, kind, ..ObjectSet::default() };
        check_says_which(&which, "a preload")?;
        let chosen = self.chosen_by(&which)?;
        let volumes: BTreeSet<&str> = chosen.iter().map(|one| one.volume.as_str()).collect();
        let volume = match volumes.len() {
            1 => volumes.first().copied().unwrap_or_default().to_owned(),
            _ => {
                let several = volumes.into_iter().collect::<Vec<_>>().join(", ");
                return Err(ControlError::BadCombination(
                    format!("these objects lie on several volumes ({several}), and a preload is of one"),
                    "name one of them with --volume".into(),
                ));
            }
        };
        let what = match &chosen[..] {
            [one] => one.object.name.clone(),
            several => format!("{} objects", several.len()),
        };
        let ranges = self.worth_of(&volume, &chosen)?;
        self.preload_what(&volume, &ranges, budget_bytes, rate_bytes_s, what, dry_run)
    }

    /// What an advice's cache would come to hold: parts that were read again, none that policies keep out. `None`: none were.
    pub(super) fn preload_of_advice(&self, advice: &AdviceView, volume: &str, dry_run: bool) -> Result<Option<PreloadView>, ControlError> {
        let record = self.volume_record(volume)?;
        let kept = self.kept_of(&advice.name);
        let out = self.insight().objects_of(volume).map_or_else(Vec::new, |objects| kept_out(objects, &record.rules));
        let all = without(0..record.size_bytes.div_ceil(BLOCK_BYTES), &out);
        let Some(kept) = kept else { return Ok(None) };
        let hot = by_gain(&kept, &all).into_iter().take_while(|region| region.gain > 0.0);
        let ranges: Vec<Range<u64>> = hot.map(|region| bytes_of(&region.blocks)).collect();
        if ranges.is_empty() {
            return Ok(None);
        }
        let pool_bytes = self.memory().pools.get(&record.pool).map(|pool| pool.size_bytes);
        let budget_bytes = pool_bytes.map(|bytes| (bytes as f64 * advice.stored_share.clamp(0.01, 1.0)) as u64);
        self.preload_what(volume, &ranges, budget_bytes, None, format!("advice {}", advice.id), dry_run).map(Some)
    }

    fn preload_what(
        &self,
        volume: &str,
        ranges: &[Range<u64>],
        budget_bytes: Option<u64>,
        rate_bytes_s: Option<u64>,
        what: String,
        dry_run: bool,
    ) -> Result<PreloadView, ControlError> {
        let cost = self.preload_cost(volume, ranges, budget_bytes)?;
        let begin = || self.begin_preload(volume, ranges.to_vec(), budget_bytes, rate_bytes_s, what.clone());
        let job = if dry_run { None } else { Some(begin()?) };
        Ok(PreloadView { volume: volume.into(), what, bytes: cost.bytes, read_bytes: cost.read_bytes, ranges: cost.ranges as u64, job })
    }

    /// The bytes of objects, in the order of their worth.
    fn worth_of(&self, volume: &str, chosen: &[Chosen]) -> Result<Vec<Range<u64>>, ControlError> {
        let record = self.volume_record(volume)?;
        let mut blocks: Vec<Range<u64>> = Vec::new();
        {
            let insight = self.insight();
            let objects = insight.objects_of(volume);
            for (one, objects) in chosen.iter().filter_map(|one| Some((one, objects?))) {
                let (treatment, _) = objects.treatment_of(&one.object, &record.rules);
                if treatment.admit() == Admit::Never {
                    return Err(ControlError::Analysis(
                        format!("\"{}\" does not enter the cache: that is its policy", one.object.name),
                        format!("let it in with `hearth object set {} --admit normal`, then try again", one.object.name),
                    ));
                }
                let of_it = objects.places_of(&one.object);
                blocks.extend(of_it.iter().map(|bytes| bytes.start / BLOCK_BYTES..bytes.end.div_ceil(BLOCK_BYTES)));
            }
        }
        blocks.sort_unstable_by_key(|range| (range.start, range.end));
        blocks.dedup_by(|next, before| {
            let goes_on = next.start <= before.end;
            before.end = if goes_on { before.end.max(next.end) } else { before.end };
            goes_on
        });
        let kept = self.kept_of(volume).unwrap_or_else(|| Kept::new(0, 1));
        Ok(by_gain(&kept, &blocks).iter().map(|region| bytes_of(&region.blocks)).collect())
    }

    /// The sample of a load's uses, to be counted without holding anybody up.
    fn kept_of(&self, name: &str) -> Option<Kept> {
        let insight = self.insight();
        let load = insight.loads(Some(name)).into_iter().find(|load| load.name == name)?;
        insight.copy_of(&load).map(|watch| watch.kept().clone())
    }
}

fn bytes_of(blocks: &Range<u64>) -> Range<u64> {
    blocks.start * BLOCK_BYTES..blocks.end * BLOCK_BYTES
}

/// Blocks, ascending, that policies keep out of the cache.
fn kept_out(objects: &Objects, rules: &[api::object_rules::Rule]) -> Vec<Range<u64>> {
    let ranges = objects.ranges(rules).into_iter().filter(|(_, treatment)| treatment.admit() == Admit::Never);
    ranges.map(|(bytes, _)| bytes.start / BLOCK_BYTES..bytes.end.div_ceil(BLOCK_BYTES)).collect()
}

/// What is left of a range without others, which ascend.
fn without(range: Range<u64>, out: &[Range<u64>]) -> Vec<Range<u64>> {
    let (mut left, mut at) = (Vec::new(), range.start);
    for gone in out {
        left.push(at..gone.start.min(range.end));
        at = at.max(gone.end);
    }
    left.push(at..range.end);
    left.retain(|range| range.start < range.end);
    left
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_out_is_left_out() {
        assert_eq!(without(0..10, &[]), [0..10]);
        assert_eq!(without(0..10, &[0..2, 4..5, 9..12]), [2..4, 5..9]);
        assert!(without(0..10, std::slice::from_ref(&(0..10))).is_empty());
    }
}
