//! What is kept of a watch over a restart of the daemon: the watch itself, and a note of whose it is.
//!
//! No name of an object and no content of a page is in it: numbers of blocks and counts, the names of
//! volumes and analyses, and paths.

use super::source::DeviceAsked;
use analysis::Watch;
use api::names::{self, Named};
use serde::{Deserialize, Serialize};
use types::Mode;
use uuid::Uuid;

/// How the names of files end.
const ENDING: &str = ".watch";

/// Whose watch it is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Key {
    /// The watch that a volume has as long as it is attached. Another volume of its name has another UUID.
    Volume(Uuid),
    /// An analysis, by its name.
    Analysis(String),
}

impl Key {
    /// The name of its file.
    pub fn file_name(&self) -> String {
        match self {
            Key::Volume(uuid) => format!("volume-{uuid}{ENDING}"),
            Key::Analysis(name) => format!("analysis-{name}{ENDING}"),
        }
    }

    /// Whose file has that name; `None`: nobody's.
    pub fn of_file(name: &str) -> Option<Key> {
        let stem = name.strip_suffix(ENDING)?;
        if let Some(uuid) = stem.strip_prefix("volume-") {
            return Uuid::parse_str(uuid).ok().map(Key::Volume).filter(|key| key.file_name() == name);
        }
        let analysis = stem.strip_prefix("analysis-").filter(|analysis| names::check(Named::Analysis, analysis).is_ok())?;
        Some(Key::Analysis(analysis.into()))
    }
}

/// What is noted beside a watch.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Note {
    /// Whose it is.
    pub of: Of,
    /// When it was saved, in milliseconds since 1970.
    pub saved_unix_ms: u64,
    /// When its window began.
    pub since_unix_ms: u64,
    /// How much of the time since then was not watched.
    pub away_ms: u64,
    /// Requests that could not be looked at.
    pub lost_requests: u64,
}

/// Whose a watch is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Of {
    /// A volume's.
    Volume(Uuid),
    /// An analysis.
    Analysis(Box<AnalysisNote>),
}

/// An analysis.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnalysisNote {
    /// Its name.
    pub name: String,
    /// What it watches.
    pub source: SourceNote,
    /// How writes act, by the mode's name.
    pub mode: String,
    /// When it ends by itself, in milliseconds since 1970.
    pub ends_unix_ms: Option<u64>,
    /// It watches no more.
    pub ended: bool,
    /// Why it failed, if it has ended.
    pub problem: Option<String>,
}

/// What an analysis watches.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SourceNote {
    /// A volume.
    Volume {
        /// Its name.
        name: String,
        /// Another volume of that name is not it.
        uuid: Uuid,
    },
    /// A device.
    Device {
        /// Its path.
        path: String,
        /// How, and which one it is.
        asked: DeviceAsked,
    },
    /// A trace.
    Trace {
        /// Its path.
        path: String,
    },
}

/// What was saved.
pub struct Saved {
    /// The watch.
    pub watch: Watch,
    /// Whose it is.
    pub note: Note,
}

impl Saved {
    /// As the content of a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let note = serde_json::to_vec(&self.note).expect("a note is plain data");
        analysis::saved::to_bytes(&self.watch, &note)
    }

    /// Of the content of that watch's file. Its window ends now.
    ///
    /// # Errors
    /// In words: why it is not that.
    pub fn from_bytes(bytes: &[u8], key: &Key, now_ms: u64) -> Result<Saved, String> {
        let (watch, note) = analysis::saved::from_bytes(bytes, now_ms).map_err(|problem| problem.to_string())?;
        let note: Note = serde_json::from_slice(&note).map_err(|error| format!("its note cannot be understood: {error}"))?;
        if note.key() != *key {
            return Err("it is the watch of something else".into());
        }
        if let Of::Analysis(analysis) = &note.of {
            Mode::from_name(&analysis.mode).ok_or("it has a mode that is not known")?;
        }
        Ok(Saved { watch, note })
    }
}

impl Note {
    /// Whose it is.
    pub fn key(&self) -> Key {
        match &self.of {
            Of::Volume(uuid) => Key::Volume(*uuid),
            Of::Analysis(analysis) => Key::Analysis(analysis.name.clone()),
        }
    }
}

/// What there was of a watch when it was saved last.
#[derive(Clone, Copy, Default, Debug)]
pub struct Mark {
    at_ms: u64,
    blocks: u64,
    ended: bool,
    once: bool,
}

/// What there is of a watch.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// The time.
    pub now_ms: u64,
    /// Blocks used in its window.
    pub blocks: u64,
    /// It watches no more.
    pub ended: bool,
    /// It was begun by name.
    pub named: bool,
}

/// A watch is not saved again sooner.
const EVERY_MS: u64 = 10 * 60_000;
/// And not before one use in so many of all that it has seen is new,
const NEW_ONE_IN: u64 = 8;
/// or so much time has passed.
const AT_LAST_MS: u64 = 60 * 60_000;

impl Mark {
    /// Nothing was saved of a watch that begins now.
    pub fn begun(now_ms: u64) -> Mark {
        Mark { at_ms: now_ms, ..Mark::default() }
    }

    /// All that there is was saved.
    pub fn saved(now: Progress) -> Mark {
        Mark { at_ms: now.now_ms, blocks: now.blocks, ended: now.ended, once: true }
    }

    /// Whether to save it now. What has begun or ended by name is saved at once. Otherwise a kill costs the last ten minutes, or the last eighth
    /// where that is more, and never more than an hour; under an even load a watch is written some 40 times a day.
    pub fn is_due(self, now: Progress) -> bool {
        if now.named && (!self.once || self.ended != now.ended) {
            return true;
        }
        // A window that began anew has fewer.
        let new_blocks = now.blocks.checked_sub(self.blocks).unwrap_or(now.blocks);
        let age_ms = now.now_ms.saturating_sub(self.at_ms);
        !now.ended && new_blocks > 0 && age_ms >= EVERY_MS && (new_blocks >= now.blocks / NEW_ONE_IN || age_ms >= AT_LAST_MS)
    }

    /// The same when the daemon stops: whatever goes on is saved, so that the end of its window is known.
    pub fn is_due_at_end(self, now: Progress) -> bool {
        if now.named { !(self.once && self.ended && now.ended) } else { now.blocks > 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use analysis::Writes;
    use analysis::watch::Limits;

    fn saved() -> Saved {
        let asked = DeviceAsked { tap: Some("bpf".into()), reads: true, identity: records::state::BackingIdentity::default() };
        let source = SourceNote::Device { path: "/dev/sdb".into(), asked };
        let analysis =
            AnalysisNote { name: "a".into(), source, mode: "write-back".into(), ends_unix_ms: Some(7), ended: false, problem: None };
        let note = Note { of: Of::Analysis(Box::new(analysis)), saved_unix_ms: 5, since_unix_ms: 4, away_ms: 3, lost_requests: 2 };
        Saved { watch: Watch::new(1, Writes::Enter, Limits { lines: 10, uses: 10 }), note }
    }

    #[test]
    fn files_are_named_by_whose_they_are() {
        let uuid = Uuid::from_bytes([7; 16]);
        for key in [Key::Volume(uuid), Key::Analysis("week.1_x-y".into()), Key::Analysis("v.watch".into())] {
            assert_eq!(Key::of_file(&key.file_name()), Some(key));
        }
        let upper = format!("volume-{}.watch", uuid.to_string().replace('7', "A"));
        for other in ["a.watch", "analysis-.watch", "analysis-../x.watch", "volume-1.watch", "analysis-a.watch.new", upper.as_str()] {
            assert_eq!(Key::of_file(other), None, "{other}");
        }
    }

    #[test]
    fn what_is_not_this_watch_is_refused() {
        let key = Key::Analysis("a".into());
        let bytes = saved().to_bytes();
        assert_eq!(Saved::from_bytes(&bytes, &key, 10).map(|saved| saved.note), Ok(saved().note));
        let refused = |bytes: &[u8], key: &Key| Saved::from_bytes(bytes, key, 10).err().expect("refused");
        assert!(refused(&bytes, &Key::Analysis("b".into())).contains("something else"));
        assert!(refused(&bytes[..bytes.len() - 1], &key).contains("checksum"));
        let mut other = saved();
        let Of::Analysis(analysis) = &mut other.note.of else { unreachable!("it is one") };
        analysis.mode = "write-never".into();
        assert!(refused(&other.to_bytes(), &key).contains("mode"));
        let watch = analysis::saved::to_bytes(&saved().watch, b"{\"of\":{}}");
        assert!(refused(&watch, &key).contains("note"));
    }

    /// An even load for a day: few writes, and a kill costs little.
    #[test]
    fn a_watch_is_saved_seldom_and_never_far_behind() {
        for named in [false, true] {
            let (mut mark, mut times, minute_ms) = (Mark::begun(0), 0, 60_000);
            let mut last = (0, 0);
            for minute in 0..24 * 60_u64 {
                let now = Progress { now_ms: minute * minute_ms, blocks: minute * 1000, ended: false, named };
                if mark.is_due(now) {
                    (mark, times, last) = (Mark::saved(now), times + 1, (now.blocks, minute));
                }
                let behind = minute - last.1;
                assert!(behind <= 10 || behind <= 60 && now.blocks - last.0 <= now.blocks / 8 + 1000, "{minute}");
            }
            assert!((30..45).contains(&times), "{times}");
        }
    }

    #[test]
    fn what_is_named_is_saved_at_its_beginning_and_its_end_and_then_no_more() {
        let now = Progress { now_ms: 9, blocks: 0, ended: false, named: true };
        assert!(Mark::begun(9).is_due(now) && !Mark::saved(now).is_due(now));
        let ended = Progress { ended: true, now_ms: 10, ..now };
        assert!(Mark::saved(now).is_due(ended) && !Mark::saved(ended).is_due(Progress { now_ms: u64::MAX, ..ended }));
        assert!(Mark::saved(now).is_due_at_end(now) && !Mark::saved(ended).is_due_at_end(ended));
        let idle = Progress { named: false, ..now };
        assert!(!Mark::begun(0).is_due(Progress { now_ms: u64::MAX, ..idle }) && !Mark::begun(0).is_due_at_end(idle));
    }
}
