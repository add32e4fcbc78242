//! The logical volumes of a group, as far as they lie on one of its physical volumes.
//!
//! ```text
//!   GROUP { extent_size (sectors)
//!     physical_volumes { pvN { id, pe_start (sectors) } }
//!     logical_volumes { NAME { id, segmentN { start_extent, extent_count, type, stripe_count, stripes = ["pvN", extent] } } } }
//! ```
//!
//! Only segments of one stripe can be followed. Source: lvm2 `lib/format_text/import_vsn1.c`, `lib/striped/striped.c`.

use types::SECTOR_BYTES;

/// Sections within one another; the text has four levels.
const DEPTH_MAX: usize = 8;
/// Lines of a text: some 40 for each logical volume.
const LINES_MAX: usize = 1 << 17;
/// Segments of a logical volume that are followed.
const RUNS_MAX: usize = 4096;

/// A part of a logical volume that lies in one piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Where it begins in the logical volume.
    pub logical_bytes: u64,
    /// Where it begins on the physical volume.
    pub physical_bytes: u64,
    /// Its length.
    pub bytes: u64,
}

/// A logical volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Logical {
    /// Its name.
    pub name: String,
    /// Its pieces in order; `None`: not all of it lies on this physical volume, or it is striped, mirrored, thin, cached or a
    /// snapshot.
    pub runs: Option<Vec<Run>>,
}

struct Section<'a> {
    name: &'a str,
    values: Vec<(&'a str, String)>,
    sections: Vec<Section<'a>>,
}

impl Section<'_> {
    fn value(&self, key: &str) -> Option<&str> {
        self.values.iter().find(|(name, _)| *name == key).map(|(_, value)| value.as_str())
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.value(key)?.parse().ok()
    }

    fn section(&self, name: &str) -> Option<&Self> {
        self.sections.iter().find(|section| section.name == name)
    }
}

/// The logical volumes that lie, at least in part, on the physical volume of that UUID (without hyphens). `None` if the text makes
/// no sense, or does not know that physical volume.
#[must_use]
pub fn logical_volumes(text: &str, physical_id: &str) -> Option<Vec<Logical>> {
    let all = parse(text)?;
    // What is beside the group says who wrote it.
    let group = all.sections.iter().find(|section| section.section("physical_volumes").is_some())?;
    let extent_bytes = group.number("extent_size")?.checked_mul(SECTOR_BYTES).filter(|bytes| *bytes > 0)?;
    let is_it = |section: &&Section| section.value("id").is_some_and(|id| unquoted(id).replace('-', "") == physical_id);
    let physical = group.section("physical_volumes")?.sections.iter().find(is_it)?;
    let start_bytes = physical.number("pe_start")?.checked_mul(SECTOR_BYTES)?;
    let Some(volumes) = group.section("logical_volumes") else { return Some(Vec::new()) };
    let named = format!("\"{}\"", physical.name);
    let is_here = |volume: &&Section| volume.sections.iter().any(|segment| segment.values.iter().any(|(_, value)| value.contains(&named)));
    let of_volume =
        |volume: &Section| Logical { name: volume.name.to_owned(), runs: runs(volume, physical.name, start_bytes, extent_bytes) };
    Some(volumes.sections.iter().filter(is_here).map(of_volume).collect())
}

fn runs(volume: &Section, physical: &str, start_bytes: u64, extent_bytes: u64) -> Option<Vec<Run>> {
    let mut runs = Vec::new();
    let mut expected = 0;
    let mut segments: Vec<&Section> = volume.sections.iter().filter(|section| section.name.starts_with("segment")).collect();
    segments.sort_by_key(|segment| segment.number("start_extent"));
    if segments.is_empty() || segments.len() > RUNS_MAX || segments.len() as u64 != volume.number("segment_count")? {
        return None;
    }
    for segment in segments {
        let (first, count) = (segment.number("start_extent")?, segment.number("extent_count")?);
        let is_linear = segment.value("type") == Some("\"striped\"") && segment.number("stripe_count") == Some(1);
        let (name, at) = segment.value("stripes")?.trim_matches(['[', ']', ' ']).split_once(',')?;
        if !is_linear || unquoted(name.trim()) != physical || first != expected || count == 0 {
            return None;
        }
        expected = first.checked_add(count)?;
        let physical_bytes = at.trim().parse::<u64>().ok()?.checked_mul(extent_bytes)?.checked_add(start_bytes)?;
        let run = Run { logical_bytes: first.checked_mul(extent_bytes)?, physical_bytes, bytes: count.checked_mul(extent_bytes)? };
        run.logical_bytes.checked_add(run.bytes)?;
        run.physical_bytes.checked_add(run.bytes)?;
        runs.push(run);
    }
    Some(runs)
}

fn unquoted(value: &str) -> &str {
    value.trim_matches('"')
}

/// A section begins with `name {` and ends with `}`, a value is `key = value`, an array may go over several lines; what is behind `#`
/// is not read.
fn parse(text: &str) -> Option<Section<'_>> {
    let section = |name| Section { name, values: Vec::new(), sections: Vec::new() };
    let mut open = vec![section("")];
    let mut array: Option<(&str, String)> = None;
    for line in text.lines().take(LINES_MAX) {
        let line = without_comment(line).trim();
        if let Some((key, mut value)) = array.take() {
            value.push_str(line);
            match line.ends_with(']') {
                true => open.last_mut()?.values.push((key, value)),
                false => array = Some((key, value)),
            }
        } else if let Some(name) = line.strip_suffix(" {") {
            open.push(section(name));
            if open.len() > DEPTH_MAX {
                return None;
            }
        } else if line == "}" {
            let done = open.pop()?;
            open.last_mut()?.sections.push(done);
        } else if let Some((key, value)) = line.split_once(" = ") {
            match value.starts_with('[') && !value.ends_with(']') {
                true => array = Some((key, value.to_owned())),
                false => open.last_mut()?.values.push((key, value.to_owned())),
            }
        }
    }
    // Cut short: what is missing is not known.
    (open.len() == 1).then(|| open.pop()).flatten()
}

/// No name and no value that is looked at has the sign in it.
fn without_comment(line: &str) -> &str {
    line.split('#').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As LVM 2.03.16 writes it: `a` was extended after `b` was made, `c` has two stripes, `d` lies on the other one.
    const TEXT: &str = include_str!("../../tests/lvm-group.txt");
    const ID: &str = "caKm9Aq2rcda5nUQVsmWyXRS4uSVTXem";
    const EXTENT: u64 = 4 << 20;
    const START: u64 = 1 << 20;

    #[test]
    fn volumes_of_one_stripe_are_followed() {
        let found = logical_volumes(TEXT, ID).expect("a group");
        let run = |logical: u64, physical: u64, extents: u64| Run {
            logical_bytes: logical * EXTENT,
            physical_bytes: START + physical * EXTENT,
            bytes: extents * EXTENT,
        };
        let of = |name: &str| found.iter().find(|one| one.name == name).unwrap_or_else(|| panic!("{name}: {found:?}")).runs.clone();
        assert_eq!(of("a"), Some(vec![run(0, 0, 15), run(15, 25, 15)]));
        assert_eq!(of("b"), Some(vec![run(0, 15, 10)]));
        assert_eq!(of("c"), None, "two stripes");
        assert!(found.iter().all(|one| one.name != "d"), "it lies elsewhere");
        assert_eq!(logical_volumes(TEXT, "another"), None);
    }

    #[test]
    fn whatever_is_cut_or_changed_gives_no_volume_beyond_the_numbers() {
        for cut in (0..TEXT.len()).filter(|at| TEXT.is_char_boundary(*at)).step_by(11) {
            assert!(logical_volumes(&TEXT[..cut], ID).is_none_or(|found| found.len() <= 3));
        }
        for (from, to) in [
            ("extent_size = 8192", "extent_size = 18446744073709551615"),
            ("extent_count = 15", "extent_count = 18446744073709551615"),
            ("pe_start = 2048", "pe_start = 18446744073709551615"),
            ("extent_size = 8192", "extent_size = 0"),
            ("start_extent = 15", "start_extent = 14"),
            ("segment_count = 2", "segment_count = 3"),
        ] {
            assert!(TEXT.contains(from), "{from}");
            let found = logical_volumes(&TEXT.replace(from, to), ID).unwrap_or_default();
            assert!(found.iter().find(|one| one.name == "a").is_none_or(|one| one.runs.is_none()), "{to}: {found:?}");
        }
        let deep = format!("{}{}", "a {\n".repeat(100_000), "}\n".repeat(100_000));
        assert_eq!(logical_volumes(&deep, ID), None);
    }
}
