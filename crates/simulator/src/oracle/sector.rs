//! The versions of one sector, and the rules that judge what is found in it.

use super::{Context, Fault, Kind, belongs, describe};
use crate::content::Content;

#[derive(Clone, Debug)]
struct Version {
    write: u32,
    /// Reads showed that it took effect after this moment.
    start: u64,
    /// Reads showed that it took effect before this moment.
    end: u64,
    /// Number of crashes before the last read that returned it; `u32::MAX` if none did.
    seen_life: u32,
    /// Seen after a crash it survived: it must stay.
    fixed: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Sector {
    versions: Vec<Version>,
    initial: u32,
}

impl Version {
    fn of(write: u32) -> Version {
        Version { write, start: 0, end: u64::MAX, seen_life: u32::MAX, fixed: false }
    }

    fn start(&self, context: &Context) -> u64 {
        self.start.max(context.writes[self.write as usize].submitted)
    }

    fn end(&self, context: &Context) -> u64 {
        self.end.min(context.writes[self.write as usize].end)
    }

    fn seen(&self) -> bool {
        self.seen_life != u32::MAX
    }

    fn certain(&self, context: &Context) -> bool {
        let write = &context.writes[self.write as usize];
        let acked = write.acked != u64::MAX && !write.lost && (write.kind != Kind::Discard || self.seen());
        self.fixed || acked || (self.seen_life == context.life && !write.lost)
    }

    fn durable(&self, context: &Context) -> bool {
        let write = &context.writes[self.write as usize];
        let covered = write.acked != u64::MAX && (write.fua || write.acked < context.flushed);
        self.fixed || covered && !write.lost && (write.kind != Kind::Discard || self.seen())
    }

    fn before(&self, other: &Version, context: &Context) -> bool {
        self.end(context) < other.start(context)
    }
}

impl Sector {
    pub fn new(initial: u32) -> Sector {
        Sector { versions: Vec::new(), initial }
    }

    pub fn is_initial(&self, initial: u32) -> bool {
        self.versions.iter().all(|version| version.write == initial)
    }

    pub fn add(&mut self, write: u32) {
        if self.versions.is_empty() {
            self.versions.push(Version::of(self.initial));
        }
        self.versions.push(Version::of(write));
    }

    /// Forgets what can never be seen again: versions before a durable one, once no older read is running.
    pub fn prune(&mut self, context: &Context) {
        if self.versions.len() < 2 {
            return;
        }
        let settles = |version: &Version| version.durable(context) && version.end(context) < context.oldest_read;
        let Some(last) = self.versions.iter().filter(|version| settles(version)).map(|version| version.start(context)).max() else {
            return;
        };
        // Nothing goes for one that begins earlier: most are kept without a look at all the others.
        let mut index = 0;
        while index < self.versions.len() {
            let version = &self.versions[index];
            let may_go = version.end(context) < last;
            let goes = |other: &Version| other.write != version.write && settles(other) && version.before(other, context);
            if may_go && self.versions.iter().any(goes) {
                self.versions.remove(index);
            } else {
                index += 1;
            }
        }
    }

    /// The certain version that forbids a read begun at `began` to return `version`.
    fn forbids(&self, version: &Version, began: u64, context: &Context) -> Option<&Version> {
        self.versions.iter().find(|other| {
            other.write != version.write
                && context.writes[other.write as usize].submitted >= context.doubted
                && version.before(other, context)
                && other.certain(context)
                && other.end(context) < began
        })
    }

    /// Judges what was found by a read begun at `began`. Gives the version it must be, if only one can be meant.
    pub fn judge(&self, found: Content, volume: u16, sector: u64, began: u64, context: &Context) -> Result<Option<usize>, (Fault, String)> {
        if !belongs(found, volume, sector) {
            let fault = if found == Content::Garbage { Fault::Torn } else { Fault::Misdirected };
            return Err((fault, format!("found {found:?}; {}", self.expected(began, context))));
        }
        let matches = |write: u32| context.writes[write as usize].makes(write, volume, sector) == Some(found);
        if self.versions.is_empty() && matches(self.initial) {
            return Ok(None);
        }
        let (mut last, mut allowed, mut count) = (None, 0, 0);
        for (index, version) in self.versions.iter().enumerate() {
            if matches(version.write) {
                last = Some(index);
                if self.forbids(version, began, context).is_none() {
                    (allowed, count) = (index, count + 1);
                }
            }
        }
        match count {
            0 if last.is_none() && self.was_once(found, volume, sector, began, context) => Ok(None),
            0 => {
                let origin = origins(found, volume, sector, context).last();
                Err(self.accuse(found, last, origin, began, context))
            }
            1 if !self.was_once(found, volume, sector, began, context) => Ok(Some(allowed)),
            // Zeroes or patterns of two writes look alike: then nothing is learnt.
            _ => Ok(None),
        }
    }

    /// Whether what was found is (or may be) an old version that is in doubt, and nothing newer forbids it.
    fn was_once(&self, found: Content, volume: u16, sector: u64, began: u64, context: &Context) -> bool {
        if context.doubted == 0 {
            return false;
        }
        let newer = |version: &Version| {
            let write = &context.writes[version.write as usize];
            write.submitted >= context.doubted && version.certain(context) && version.end(context) < began
        };
        let in_doubt = |write: u32| context.writes[write as usize].submitted < context.doubted;
        let known = found == Content::Zero || origins(found, volume, sector, context).any(in_doubt);
        known && !self.versions.iter().any(newer)
    }

    /// A read begun at `began` returned this version: narrows what is possible from now on.
    pub fn learn(&mut self, index: usize, began: u64, context: &Context) {
        let version = &mut self.versions[index];
        if context.writes[version.write as usize].submitted < context.doubted {
            return;
        }
        version.start = version.start.max(began);
        version.end = version.end.min(context.clock);
        version.seen_life = context.life;
        version.fixed |= context.writes[version.write as usize].life < context.life;
        self.prune(context);
    }

    /// `candidate`: a version that it is and must not be. `origin`: the last write that ever made it here.
    fn accuse(&self, found: Content, candidate: Option<usize>, origin: Option<u32>, began: u64, context: &Context) -> (Fault, String) {
        let expected = self.expected(began, context);
        let Some(version) = candidate.map(|index| &self.versions[index]) else {
            let Some(write) = origin else {
                // Nobody ever wrote such a pattern here; of zeroes nobody can say where they come from.
                let fault = if found == Content::Zero { Fault::Resurrected } else { Fault::Misdirected };
                return (fault, format!("found {found:?}, which was never written here; {expected}"));
            };
            let settled_by_read = found != Content::Zero
                && self.versions.iter().any(|other| {
                    let (mine, theirs) = (&context.writes[write as usize], &context.writes[other.write as usize]);
                    other.durable(context) && mine.end >= theirs.submitted
                });
            let story = if found == Content::Zero { "zeroes".to_string() } else { describe(context.writes, write) };
            let fault = if settled_by_read { Fault::Flapped } else { Fault::Resurrected };
            return (fault, format!("found {story}, older than what is durable; {expected}"));
        };
        let other = self.forbids(version, began, context).expect("it was forbidden");
        let newer = &context.writes[other.write as usize];
        let observed_only = version.end(context) >= newer.submitted || newer.acked > began;
        let fault = if observed_only {
            Fault::Flapped
        } else if newer.life < context.life && other.durable(context) {
            Fault::Resurrected
        } else if newer.life < context.life {
            Fault::Lost
        } else {
            Fault::Stale
        };
        let story = describe(context.writes, version.write);
        let seen = if other.seen() { ", which a read had returned" } else { "" };
        (fault, format!("found {story}, but {}{seen} came after it; {expected}", describe(context.writes, other.write)))
    }

    fn expected(&self, began: u64, context: &Context) -> String {
        let mut text = String::from("allowed:");
        for version in &self.versions {
            if self.forbids(version, began, context).is_none() {
                text.push_str(&format!(" [{}]", describe(context.writes, version.write)));
            }
        }
        if self.versions.is_empty() {
            text.push_str(" the initial content");
        }
        text
    }
}

/// The writes that ever made this of the sector, in order.
fn origins<'a>(found: Content, volume: u16, sector: u64, context: &'a Context) -> impl Iterator<Item = u32> + use<'a> {
    // Data names its write; for a pattern all must be asked, which only happens in doubt or to accuse.
    let among = match found {
        Content::Data { write, .. } => write..write.saturating_add(1).min(context.writes.len() as u32),
        _ => 0..context.writes.len() as u32,
    };
    among.filter(move |write| context.writes[*write as usize].makes(*write, volume, sector) == Some(found))
}
