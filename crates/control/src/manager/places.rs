//! Whose the places of a volume are, for `why` and the map: objects, and the streams that passed by.

use super::Manager;
use api::MapObject;
use api::human;
use insight::passed::Passed;
use std::collections::BTreeMap;
use std::ops::Range;
use types::{ObjectId, StreamClass};

/// Objects told of a map; what belongs to others is told as unknown.
const OBJECTS_MAX: usize = 1024;

impl Manager {
    /// By cell which of the objects beside it has the most.
    pub(super) fn objects_on_map(&self, volume: &str, start_bytes: u64, cell_bytes: u64, count: u32) -> (Vec<Option<u16>>, Vec<MapObject>) {
        let insight = self.insight();
        let Some(objects) = insight.objects_of(volume) else { return (vec![None; count as usize], Vec::new()) };
        let most = objects.most_of_cells(start_bytes, cell_bytes, count);
        let mut cells: BTreeMap<ObjectId, u32> = BTreeMap::new();
        most.iter().flatten().for_each(|id| *cells.entry(*id).or_default() += 1);
        let found = objects.found();
        let told = |(id, cells): (ObjectId, u32)| {
            let object = found?.object(id)?;
            Some(MapObject { id: id.0, name: object.name.clone(), kind: object.kind.name().into(), cells })
        };
        let mut objects: Vec<MapObject> = cells.into_iter().filter_map(told).collect();
        objects.sort_by(|one, other| other.cells.cmp(&one.cells).then_with(|| one.name.cmp(&other.name)));
        objects.truncate(OBJECTS_MAX);
        let place: BTreeMap<u32, u16> = objects.iter().zip(0..).map(|(object, place)| (object.id, place)).collect();
        (most.into_iter().map(|id| place.get(&id?.0).copied()).collect(), objects)
    }

    /// The stream that a place belongs to, as a sentence.
    pub(super) fn stream_told(&self, volume: &str, bytes: &Range<u64>) -> Option<String> {
        let insight = self.insight();
        insight.passed_over(volume, bytes).map(|(passed, now_ms)| sentence(&passed, now_ms))
    }
}

fn sentence(passed: &Passed, now_ms: u64) -> String {
    let ago = match now_ms.saturating_sub(passed.at_ms) / 1000 {
        0..2 => "just now".into(),
        seconds => format!("{} ago", human::seconds(seconds)),
    };
    let evidence = passed.verdict.evidence.text();
    match passed.verdict.class {
        StreamClass::Scan => format!("A scan passed here {ago} ({evidence}): it is served what is cached, and puts nothing in."),
        StreamClass::Backup => format!("A backup passed here {ago} ({evidence}): it is served what is cached, and puts nothing in."),
        StreamClass::Log => format!("A log was written here {ago} ({evidence})."),
        other => format!("{} passed here {ago} ({evidence}).", capital(other.name())),
    }
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use applications::streams::{Evidence, Verdict};

    #[test]
    fn a_stream_is_a_sentence() {
        let passed = |class, evidence| Passed { bytes: 0..4096, at_ms: 1000, verdict: Verdict::new(class, evidence) };
        let told = sentence(&passed(StreamClass::Scan, Evidence::Chain), 13_500);
        assert_eq!(told, "A scan passed here 12 s ago (leaf pages in key order): it is served what is cached, and puts nothing in.");
        assert_eq!(
            sentence(&passed(StreamClass::Log, Evidence::Tail), 1500),
            "A log was written here just now (writes continue their tail)."
        );
        assert!(sentence(&passed(StreamClass::Maintenance, Evidence::Rule(1)), 0).starts_with("Maintenance passed here just now"));
    }
}
