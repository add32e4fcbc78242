//! Where no file system is known: a look at a page now and then tells which engines' pages lie
//! where. They stay without names, and no map is made of them.

use super::limits::{LOOK_BYTES, LOOK_STEP_BYTES_MIN, LOOKS_BETWEEN, LOOKS_MAX};
use super::regions::{Blind, Start};
use super::source::Source;
use crate::Engine;
use crate::filesystems::Volume;
use crate::page::Certainty;
use crate::recognise::pages;
use std::collections::BTreeMap;
use std::ops::Range;

/// A stretch of a volume with pages of an engine, of no known file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Nameless {
    /// Whose pages.
    pub engine: Engine,
    /// From the first look that saw them to the end of what the last one stands for.
    pub bytes: Range<u64>,
    /// Looks that saw them.
    pub looks: u32,
    /// Pages that were seen in them.
    pub pages: u32,
}

/// How far apart looks are, so that all regions together get no more than there are.
pub(super) fn step_bytes(regions: &[Blind]) -> u64 {
    // Logical volumes that a hostile text lays over each other have more bytes than numbers have.
    let own_bytes = |region: &Blind| region.bytes.end - region.bytes.start;
    let bytes = regions.iter().map(own_bytes).fold(0, u64::saturating_add);
    // Each region is begun with a look.
    let looks = LOOKS_MAX.saturating_sub(regions.len() as u64).max(1);
    let step_bytes = bytes.div_ceil(looks).max(LOOK_STEP_BYTES_MIN);
    step_bytes.checked_next_multiple_of(LOOK_BYTES).unwrap_or(u64::MAX)
}

/// Looks at a region every `step_bytes`. `None`: the region has become another meanwhile, as when a file system is made on a
/// blank disk.
pub(super) async fn look(volume: &Volume, source: &mut Source<'_>, region: &Range<u64>, step_bytes: u64) -> Option<Vec<Nameless>> {
    let begun = Start::of(volume, region).await;
    let mut looks = 0;
    let mut seen: Vec<Nameless> = Vec::new();
    let mut open: BTreeMap<Engine, usize> = BTreeMap::new();
    let mut at = region.start;
    while at < region.end {
        looks += 1;
        if looks % LOOKS_BETWEEN == 0 && Start::of(volume, region).await != begun {
            return None;
        }
        let len = LOOK_BYTES.min((region.end - at) / 512 * 512);
        let mut bytes = vec![0; len as usize];
        let next = at.saturating_add(step_bytes);
        let mut here: BTreeMap<Engine, u32> = BTreeMap::new();
        if !bytes.is_empty() && source.read(at, &mut bytes).await {
            for (_, page) in pages(&bytes).filter(|(_, page)| page.certainty >= Certainty::Likely) {
                *here.entry(page.engine).or_default() += 1;
            }
        }
        open.retain(|engine, _| here.contains_key(engine));
        for (engine, pages) in here {
            let index = *open.entry(engine).or_insert_with(|| {
                seen.push(Nameless { engine, bytes: at..at, looks: 0, pages: 0 });
                seen.len() - 1
            });
            let stretch = &mut seen[index];
            stretch.bytes.end = next.min(region.end);
            stretch.looks += 1;
            stretch.pages += pages;
        }
        at = next;
    }
    (Start::of(volume, region).await == begun).then_some(seen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::Reason;

    #[test]
    fn regions_that_lie_over_each_other_are_no_reason_to_look_more_often() {
        // Logical volumes that a hostile text lays over each other, on a volume of 4 PiB.
        let region = || Blind { bytes: 0..1 << 52, reason: Reason::Unknown, seen: Vec::new() };
        let cases = [(1, (1 << 42) + (4 << 30)), (8, 1 << 45), (2000, 1 << 52), (10_000, 1 << 52)];
        for (count, expected) in cases {
            let regions: Vec<_> = (0..count).map(|_| region()).collect();
            assert!(step_bytes(&regions) >= expected, "{count}: {}", step_bytes(&regions));
        }
    }
}
