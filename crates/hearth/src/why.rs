//! `hearth why`: what is known of a place.

use crate::commands::Session;
use crate::failure::Failure;
use crate::table::{self, Align};
use crate::{quantity, request};
use api::human;
use api::names::Named;
use api::{Run, VolumeView, WHY_BYTES_MAX, WhyView};

/// Runs and requests shown to people; JSON has more.
const RUNS_SHOWN: usize = 20;
const RECENT_SHOWN: usize = 10;

impl Session {
    /// `hearth why`.
    ///
    /// # Errors
    /// With the sentence to print.
    pub fn why(&self, volume: &str, place: &str) -> Result<(), Failure> {
        let name = request::name(Named::Volume, volume)?;
        let (start_bytes, end_bytes) = read_place(place)?;
        let end_bytes = match end_bytes {
            Some(end_bytes) => end_bytes,
            None => self.client.get::<VolumeView>(&format!("/volumes/{name}"))?.size_bytes.max(start_bytes + 1),
        };
        let length_bytes = end_bytes - start_bytes;
        if length_bytes > WHY_BYTES_MAX {
            return Err(Failure::usage("RANGE is longer than 1 GiB", "ask for a part of it, for instance 0-1GiB"));
        }
        let path = format!("/volumes/{name}/why?start_bytes={start_bytes}&length_bytes={length_bytes}");
        self.print(&self.client.get::<WhyView>(&path)?, told)
    }
}

/// First byte and end of `10GiB` (the block there) or `A-B`; no end: the volume's.
fn read_place(place: &str) -> Result<(u64, Option<u64>), Failure> {
    if place.contains('-') {
        return quantity::range("RANGE", place);
    }
    let start_bytes = quantity::size_or_none("OFFSET", place)?;
    Ok((start_bytes, Some(start_bytes.saturating_add(1))))
}

fn told(view: &WhyView) -> String {
    let mut text: String = view.verdict.iter().map(|sentence| format!("{sentence}\n")).collect();
    if let Some(object) = &view.object {
        text += &format!("{object}\n");
    }
    if let Some(stream) = &view.stream {
        text += &format!("{stream}\n");
    }
    text += "\n";
    text += &runs(view);
    if view.heat >= 1.0 {
        text += &format!("\nabout {} in the last minutes\n", types::counted(view.heat.round() as u64, "request"));
    }
    if !view.recent.is_empty() {
        text += "\nlatest requests in the same megabyte or megabytes:\n";
    }
    for recent in view.recent.iter().take(RECENT_SHOWN) {
        text += &format!("  at {}: {}\n", exact(recent.start_bytes), recent.summary);
    }
    if let Some(more @ 1..) = view.recent.len().checked_sub(RECENT_SHOWN) {
        text += &format!("  … {more} more (--json has all)\n");
    }
    text
}

fn runs(view: &WhyView) -> String {
    let head = [
        ("FROM", Align::Right),
        ("LENGTH", Align::Right),
        ("CACHED", Align::Left),
        ("STORED AS", Align::Left),
        ("DIRTY", Align::Left),
        ("HIT", Align::Left),
    ];
    let row = |run: &Run| {
        let since = run.dirty_since_s.map_or(String::new(), |since| format!(" for {}", human::seconds(since as u64)));
        vec![
            exact(run.start_bytes),
            exact(run.length_bytes),
            run.place.clone(),
            run.encoding.clone().unwrap_or_default(),
            if run.dirty { format!("dirty{since}") } else { String::new() },
            run.hits.clone().unwrap_or_default(),
        ]
    };
    let rows: Vec<_> = view.runs.iter().take(RUNS_SHOWN).map(row).collect();
    let mut text = table::layout(&head, &rows);
    if let Some(more @ 1..) = view.runs.len().checked_sub(RUNS_SHOWN) {
        let (at_least, shown) = if view.truncated { ("at least ", "256") } else { ("", "all") };
        text += &format!("… {at_least}{more} more (--json has {shown})\n");
    }
    text
}

/// A number of bytes in the largest unit that divides it: what can be typed again.
fn exact(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let fits = |(_, shift): &&(&str, u32)| bytes > 0 && bytes.trailing_zeros() >= *shift;
    match units.iter().find(fits) {
        Some((unit, shift)) => format!("{}{unit}", bytes >> shift),
        None => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::RecentRequest;
    use std::collections::BTreeMap;

    #[test]
    fn a_place_is_an_offset_or_a_range() {
        for (place, expected) in [
            ("0", (0, Some(1))),
            ("4096", (4096, Some(4097))),
            ("10GiB", (10 << 30, Some((10 << 30) + 1))),
            ("0-1MiB", (0, Some(1 << 20))),
            ("4k-8k", (4096, Some(8192))),
            ("-4k", (0, Some(4096))),
            ("1G-", (1 << 30, None)),
        ] {
            assert_eq!(read_place(place).expect(place), expected);
        }
        for place in ["", "x", "8k-4k", "4k-4k", "1-x", "--"] {
            assert!(read_place(place).is_err_and(|failure| failure.status == 2), "{place}");
        }
    }

    #[test]
    fn offsets_can_be_typed_again() {
        for (bytes, text) in
            [(0, "0"), (512, "512"), (4096, "4KiB"), (1 << 20, "1MiB"), ((1 << 30) + 4096, "1048580KiB"), (3 << 40, "3TiB")]
        {
            assert_eq!(exact(bytes), text);
            assert_eq!(quantity::size_or_none("", text).expect(text), bytes);
        }
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let run = |start_bytes| Run {
            start_bytes,
            length_bytes: 4096,
            place: "ssd".into(),
            encoding: Some("lz4".into()),
            dirty: true,
            dirty_since_s: Some(12.5),
            hits: Some("never".into()),
        };
        let recent = RecentRequest {
            ago_ms: 3000,
            op: "read".into(),
            start_bytes: 8192,
            length_bytes: 4096,
            outcome: "miss".into(),
            reason: None,
            summary: "3 s ago, read of 4 KiB: a miss".into(),
            told: String::new(),
        };
        let view = WhyView {
            volume: "v".into(),
            start_bytes: 0,
            end_bytes: 1 << 20,
            blocks: 256,
            on_ssd_blocks: 30,
            in_ram_blocks: 0,
            dirty_blocks: 30,
            dirty_since_s: Some(12.5),
            encodings: BTreeMap::new(),
            heat: 17.4,
            object: None,
            stream: None,
            verdict: vec!["One.".into(), "Two.".into()],
            runs: (0..25).map(|at| run(at * 8192)).collect(),
            recent: vec![recent; 12],
            truncated: false,
        };
        let text = told(&view);
        assert!(text.starts_with("One.\nTwo.\n\n"), "{text}");
        for part in [
            "FROM  LENGTH  CACHED  STORED AS  DIRTY",
            "8KiB    4KiB  ssd     lz4        dirty for 12 s  never",
            "… 5 more (--json has all)",
            "about 17 requests in the last minutes",
            "  at 8KiB: 3 s ago, read of 4 KiB: a miss",
            "  … 2 more (--json has all)",
        ] {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
    }
}
