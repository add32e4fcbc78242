//! Loads and places as `hearth evaluate load` and `fill` take them, both ways: so that what a suite did can be repeated by hand.

use crate::load::{Content, Load, Pace};
use crate::pattern::Places;
use std::path::Path;

/// Places as `--places` takes them: `uniform`, `sequential`, `hit-area:SIZE:READS:WRITES`, `zoned:IO/SPACE:…`, `zipf:THETA`.
///
/// # Errors
/// What is wrong with the text: a clause.
pub fn places(text: &str) -> Result<Places, String> {
    let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
    let number = |text: &str| text.parse::<u32>().map_err(|_| format!("\"{text}\" is no whole number"));
    let words: Vec<&str> = rest.split(':').filter(|word| !word.is_empty()).collect();
    match (kind, words.as_slice()) {
        ("uniform", []) => Ok(Places::Uniform),
        ("sequential", []) => Ok(Places::Sequential),
        ("hit-area", [area, reads, writes]) => Ok(Places::HitArea {
            area_bytes: device::size::parse_nonzero(area).map_err(|error| error.to_string())?,
            reads_percent: number(reads)?,
            writes_percent: number(writes)?,
        }),
        ("zoned", zones @ [_, ..]) => {
            let zone = |word: &&str| {
                let (requests, space) = word.split_once('/').ok_or_else(|| format!("\"{word}\" is not IO/SPACE, both in percent"))?;
                Ok((number(requests)?, number(space)?))
            };
            zones.iter().map(zone).collect::<Result<_, String>>().map(Places::Zones)
        }
        ("zipf", [theta]) => theta.parse().map(|theta| Places::Zipf { theta }).map_err(|_| format!("\"{theta}\" is no number")),
        _ => Err("it is none of uniform, sequential, hit-area:SIZE:READS:WRITES, zoned:IO/SPACE:IO/SPACE and zipf:THETA".into()),
    }
}

fn places_word(places: &Places) -> String {
    match places {
        Places::Uniform => "uniform".into(),
        Places::Sequential => "sequential".into(),
        Places::HitArea { area_bytes, reads_percent, writes_percent } => format!("hit-area:{area_bytes}B:{reads_percent}:{writes_percent}"),
        Places::Zones(zones) => zones.iter().fold("zoned".into(), |text, (requests, space)| format!("{text}:{requests}/{space}")),
        Places::Zipf { theta } => format!("zipf:{theta}"),
    }
}

/// The command that plays a load on a device.
pub fn load_command(load: &Load, device: &str) -> String {
    let pattern = &load.pattern;
    let mut words = format!(
        "hearth evaluate load {device} --block {}B --size {}B --reads {} --places {}",
        pattern.block_bytes,
        pattern.space_bytes,
        pattern.reads_percent,
        places_word(&pattern.places)
    );
    match load.pace {
        Pace::Closed { depth } => words += &format!(" --depth {depth}"),
        Pace::Open { per_s, .. } => words += &format!(" --per-second {per_s}"),
    }
    if let Some(time) = load.length.time {
        words += &format!(" --time {}ms", time.as_millis());
    }
    words += &content_option(load.content);
    if pattern.reads_percent < 100 {
        words += " --yes";
    }
    format!("{words} --seed {}", load.seed)
}

/// The command that fills a device or a file.
pub fn fill_command(path: &Path, bytes: u64, content: Content) -> String {
    format!("hearth evaluate fill {} --size {bytes}B{}", path.display(), content_option(content))
}

fn content_option(content: Content) -> String {
    match content {
        Content::Compressible { percent } => format!(" --compressible {percent}"),
        Content::Incompressible | Content::Similar { .. } => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read_back() {
        for known in [
            Places::Uniform,
            Places::Sequential,
            Places::HitArea { area_bytes: 1 << 20, reads_percent: 90, writes_percent: 0 },
            Places::Zones(vec![(80, 10), (20, 90)]),
            Places::Zipf { theta: 0.9 },
        ] {
            assert_eq!(places(&places_word(&known)), Ok(known));
        }
    }

    #[test]
    fn nonsense_is_told() {
        assert_eq!(places("zipf:x"), Err("\"x\" is no number".into()));
        assert_eq!(places("zoned:80"), Err("\"80\" is not IO/SPACE, both in percent".into()));
        for text in ["", "zoned", "hit-area:1MiB", "uniform:3", "everywhere"] {
            assert!(places(text).is_err_and(|why| why.starts_with("it is none of")), "{text}");
        }
    }
}
