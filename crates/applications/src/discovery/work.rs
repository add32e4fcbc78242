//! The work from the first read to what was found, and how it is driven.

use super::found::{Application, ApplicationId, Evidence, Found, Key};
use super::homes::{Server, settle};
use super::limits::{
    BYTES_MAX, JOURNAL_BYTES_FIRST, JOURNAL_BYTES_MAX, JOURNALS_HELD_BYTES_MAX, LOOK_BYTES, LOOKS_MAX, NAMES_BYTES_MAX, SEARCH,
};
use super::looks::{look, step_bytes};
use super::objects::{Draft, Drafts, Numbers, shown};
use super::regions::{Blind, Placed, regions};
use super::server_names::{ServerNames, of_server};
use super::source::Source;
use crate::filesystems::lvm::Runs;
use crate::filesystems::{DataFile, Journal, Read, Volume};
use crate::{Engine, ObjectKind};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// How far the journals of the file systems were followed, by where they begin.
pub(super) type Journals = BTreeMap<u64, Journal>;

/// A discovery under way.
///
/// Ask [`Discovery::next`] what to read, read it at whatever pace, [`Discovery::give`] it; again
/// until there is nothing to read, then take what was found by [`Discovery::finish`]. That may be
/// done at any time: what was not read by then is missing, and the result says so.
pub struct Discovery {
    volume: Volume,
    volume_bytes: u64,
    work: Pin<Box<dyn Future<Output = Found> + Send>>,
    found: Option<Found>,
    bytes_read: u64,
    /// Whether it ended before its end.
    stopped: bool,
}

impl std::fmt::Debug for Discovery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Discovery").field("volume", &self.volume).field("bytes_read", &self.bytes_read).finish_non_exhaustive()
    }
}

impl Discovery {
    /// Begins on a volume of that size.
    #[must_use]
    pub fn new(volume_bytes: u64) -> Discovery {
        Discovery::knowing(None, volume_bytes, Vec::new())
    }

    /// Begins again on a volume of which something was found before: what is found again keeps its
    /// number, a table that was rebuilt as well.
    #[must_use]
    pub fn again(before: &Found, volume_bytes: u64) -> Discovery {
        Discovery::knowing(Some(before), volume_bytes, Vec::new())
    }

    /// Begins, or begins again, with names that servers gave: they hold where the volume says less,
    /// or something else.
    #[must_use]
    pub fn knowing(before: Option<&Found>, volume_bytes: u64, told: Vec<ServerNames>) -> Discovery {
        let volume = Volume::default();
        let numbers = before.map_or_else(Numbers::default, Numbers::of);
        let journals = before.map(|before| before.journals.clone());
        let work = Box::pin(discover(volume.clone(), volume_bytes, numbers, journals, Arc::new(told)));
        Discovery { volume, volume_bytes, work, found: None, bytes_read: 0, stopped: false }
    }

    /// What to read now, the same until it was given; `None` when it is done.
    #[expect(clippy::should_implement_trait, reason = "no iterator: it says the same until that was given")]
    pub fn next(&mut self) -> Option<Read> {
        while self.found.is_none() {
            if let Some(wanted) = self.volume.wanted() {
                let end = wanted.offset_bytes.checked_add(wanted.len_bytes as u64);
                if end.is_some_and(|end| end <= self.volume_bytes) {
                    return Some(wanted);
                }
                // What would lie behind the end: a truncated image, or nonsense.
                self.volume.give(None);
            }
            self.go_on();
        }
        None
    }

    /// Gives what [`Discovery::next`] asked for, or that it cannot be had. Anything else is passed
    /// over.
    pub fn give(&mut self, offset_bytes: u64, bytes: Result<&[u8], ()>) {
        if self.volume.wanted().is_none_or(|wanted| wanted.offset_bytes != offset_bytes) {
            return;
        }
        if let Ok(bytes) = bytes {
            self.bytes_read += bytes.len() as u64;
        }
        self.volume.give(bytes.ok().map(Box::from));
        if self.bytes_read > BYTES_MAX {
            self.stopped = true;
            self.volume.close();
        }
    }

    /// Bytes that were given until now.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// What was found, now.
    #[must_use]
    pub fn finish(mut self) -> Found {
        if self.found.is_none() {
            self.stopped = true;
            self.volume.close();
        }
        loop {
            if let Some(mut found) = self.found.take() {
                found.bytes_read = self.bytes_read;
                found.complete &= !self.stopped;
                return found;
            }
            self.go_on();
        }
    }

    /// Does what can be done without another read.
    fn go_on(&mut self) {
        match self.work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(found) => self.found = Some(found),
            // It waits for nothing but reads: not for one means that it never would go on.
            Poll::Pending if self.volume.wanted().is_none() => self.volume.close(),
            Poll::Pending => {}
        }
    }
}

async fn discover(volume: Volume, volume_bytes: u64, before: Numbers, journals: Option<Journals>, told: Arc<Vec<ServerNames>>) -> Found {
    let regions = regions(&volume, volume_bytes).await;
    let mut drafts = Drafts::default();
    let (mut search, mut complete) = (SEARCH, true);
    let mut source = Source::new(&volume, NAMES_BYTES_MAX);
    let mut journal_bytes = if journals.is_some() { JOURNAL_BYTES_MAX } else { JOURNAL_BYTES_FIRST };
    let (mut followed, mut journals) = (Journals::new(), journals.unwrap_or_default());
    let mut held_bytes = 0;
    for Placed { start, on, runs, file_system } in regions.file_systems {
        let mut journal = journals.remove(&start).unwrap_or_default();
        journal_bytes -= file_system.follow(&mut journal, &on, journal_bytes).await;
        let mut found = file_system.data_files_on(&on, &search, &journal).await;
        if let Some(runs) = &runs {
            found.complete &= on_the_volume(&mut found.files, runs, search.extents);
        }
        held_bytes += journal.bytes();
        if held_bytes <= JOURNALS_HELD_BYTES_MAX {
            followed.insert(start, journal);
        }
        search.bytes -= found.bytes_read.min(search.bytes);
        search.directories -= found.directories.min(search.directories);
        search.files -= found.files.len().min(search.files);
        let extents: usize = found.files.iter().map(|file| file.extents.len()).sum();
        search.extents -= extents.min(search.extents);
        complete &= found.complete;
        for server in settle(&mut source, found.files).await {
            let told = of_server(&told, &server, start);
            one(&mut source, (start, file_system.uuid()), server, &mut drafts, told).await;
        }
    }
    complete &= !source.failed;
    let mut looks = Source::new(&volume, LOOKS_MAX * LOOK_BYTES);
    let (step_bytes, mut blind, mut outdated) = (step_bytes(&regions.blind), regions.blind, false);
    for region in &mut blind {
        let Some(seen) = look(&volume, &mut looks, &region.bytes, step_bytes).await else {
            outdated = true;
            break;
        };
        region.seen = seen;
        nameless(region, &mut drafts);
    }
    let mut found = drafts.finish(volume_bytes, &before);
    found.outdated = outdated;
    found.complete &= complete && !looks.failed && blind.is_empty();
    found.blind = blind;
    found.journals = followed;
    found
}

/// Tells where files of a logical volume lie on the volume, in so many extents at most. Whether that is all.
fn on_the_volume(files: &mut [DataFile], runs: &Runs, mut extents_left: usize) -> bool {
    let mut complete = true;
    for file in files {
        let (moved, all) = runs.moved(&file.extents, extents_left);
        extents_left -= moved.len();
        complete &= all;
        file.extents = moved;
    }
    complete
}

/// Where the findings of a server go.
pub(crate) struct Findings<'a> {
    /// The position of its application among the drafts.
    pub(crate) application: usize,
    pub(crate) drafts: &'a mut Drafts,
    /// Names that it gave itself.
    pub(crate) told: Option<&'a ServerNames>,
}

/// Finds the objects of a server.
async fn one(
    source: &mut Source<'_>,
    (start_bytes, file_system): (u64, [u8; 16]),
    server: Server,
    drafts: &mut Drafts,
    told: Option<&ServerNames>,
) {
    let application = drafts.applications.len();
    drafts.applications.push(Application {
        id: ApplicationId(0),
        engine: server.engine,
        instance: Some(shown(&server.instance)),
        start_bytes,
        file_system,
        version: None,
        evidence: Evidence::default(),
    });
    if let Some(dialect) = server.engine.facts().files {
        dialect.discover(source, server, Findings { application, drafts, told }).await;
    }
}

/// What looks saw of each engine in a region, as an application with one object that no map has.
fn nameless(region: &Blind, drafts: &mut Drafts) {
    let mut engines: BTreeMap<Engine, u64> = BTreeMap::new();
    for seen in &region.seen {
        *engines.entry(seen.engine).or_default() += seen.bytes.end - seen.bytes.start;
    }
    let evidence = Evidence { pages: true, ..Evidence::default() };
    for (engine, bytes) in engines {
        let application = drafts.applications.len();
        drafts.applications.push(Application {
            id: ApplicationId(0),
            engine,
            instance: None,
            start_bytes: region.bytes.start,
            file_system: [0; 16],
            version: None,
            evidence,
        });
        let name = format!("{} pages, unnamed", engine.title());
        let key = Key::Kind(ObjectKind::Unknown);
        drafts.put(Draft { bytes, ..Draft::new(application, ObjectKind::Unknown, name, key, evidence) });
    }
}
