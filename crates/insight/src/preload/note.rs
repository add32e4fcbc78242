//! What is remembered of a preload over a restart of the daemon: a file beside the state, at most one for each volume.

use super::plan::Plan;
use records::jobs::Asked;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The layout of a note; one of another is not understood.
const VERSION: u32 = 1;

/// A preload that has not ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Note {
    version: u32,
    /// Which volume.
    pub volume: Uuid,
    /// First byte and length of each range, in bytes.
    ranges: Vec<(u64, u64)>,
    at_bytes: u64,
    rate_bytes_s: Option<u64>,
    told: String,
}

impl Note {
    /// Of that preload.
    pub fn new(volume: Uuid, asked: &Asked) -> Note {
        let ranges = asked.ranges.iter().map(|range| (range.start, range.end - range.start)).collect();
        let Asked { at_bytes, rate_bytes_s, told, .. } = asked.clone();
        Note { version: VERSION, volume, ranges, at_bytes, rate_bytes_s, told }
    }

    /// The name of the file of a volume's note.
    pub fn file_name(volume: Uuid) -> String {
        format!("preload-{volume}.json")
    }

    /// As the file has it.
    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("numbers and words can be written")
    }

    /// Reads a file. `None`: it is not a note that this version has written.
    pub fn read(text: &str) -> Option<(Uuid, Asked)> {
        let note: Note = serde_json::from_str(text).ok()?;
        let ranges: Option<Vec<_>> = note.ranges.iter().map(|(start, length)| Some(*start..start.checked_add(*length)?)).collect();
        let plan = Plan::of_ranges(ranges.filter(|_| note.version == VERSION)?)?;
        let Note { at_bytes, rate_bytes_s, told, .. } = note;
        Some((note.volume, Asked { ranges: plan.ranges().into(), at_bytes, rate_bytes_s, told }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_reads_as_it_was_written_and_damage_is_no_note() {
        let ranges = Plan::new(&[0..8192, 1 << 30..(1 << 30) + 4096], None, 1 << 40).ranges().into();
        let asked = Asked { ranges, at_bytes: 4096, rate_bytes_s: Some(7), told: "advice 3".into() };
        let text = Note::new(Uuid::from_bytes([3; 16]), &asked).text();
        assert_eq!(Note::read(&text), Some((Uuid::from_bytes([3; 16]), asked)));
        for at in 0..text.len() {
            assert_eq!(Note::read(&text[..at]), None);
        }
        for (from, to) in
            [("\"version\":1", "\"version\":2"), ("[0,8192]", "[0,0]"), ("[0,8192]", "[1,8192]"), ("8192", "18446744073709551615")]
        {
            assert_eq!(Note::read(&text.replace(from, to)), None, "{to}");
        }
    }
}
