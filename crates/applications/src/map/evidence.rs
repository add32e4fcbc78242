//! The extents of a volume and who said so: what is believed when two sources differ.

use super::doubts::Doubts;
use super::runs::{Full, Run, Runs, Value};
use std::ops::Range;
use types::ObjectId;

/// Extents are counted in sectors: files may begin anywhere, pages need not lie on their own
/// boundary.
const SECTOR_BYTES: u64 = 512;
/// Bytes of memory for the extents of one volume.
const BYTES_MAX: usize = 16 << 20;
/// An extent takes 32 bytes; chunks that insertions have just split are half empty.
const EXTENTS_MAX: usize = BYTES_MAX / (2 * size_of::<Run<Owner>>());
/// A map older than this is refreshed even if nothing contradicts it.
const AGE_MAX_MS: u64 = 5 * 60 * 1000;

const _: () = assert!(size_of::<Run<Owner>>() == 32, "the bound on memory counts on it");

/// Who says whose bytes these are. A later one goes before an earlier one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Source {
    /// Pages before and after it belong to it, and it lies in line with them.
    Neighbour,
    /// The file system, read from the device itself or asked of the host.
    FileMap,
    /// The server's catalogue with the extents of its files.
    Catalogue,
    /// The bytes themselves: a page that says what it is.
    Content,
}

impl Source {
    const ALL: [Source; 4] = [Source::Neighbour, Source::FileMap, Source::Catalogue, Source::Content];

    /// The words shown to a person.
    pub const fn text(self) -> &'static str {
        match self {
            Source::Neighbour => "neighbouring pages",
            Source::FileMap => "file map",
            Source::Catalogue => "catalogue",
            Source::Content => "page content",
        }
    }
}

/// Bytes of the device that belong to one object, one after the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Where on the device, in whole sectors.
    pub bytes: Range<u64>,
    /// Whose.
    pub object: ObjectId,
    /// Which byte of the object the first one is.
    pub object_offset_bytes: u64,
    /// Who says so.
    pub source: Source,
    /// Of which refresh; counted from 0, in 24 bits.
    pub generation: u32,
}

/// What a run of sectors says: 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Owner {
    sector: u64,
    object: u32,
    /// Generation above the source's 8 bits.
    packed: u32,
}

impl Owner {
    fn new(sector: u64, object: ObjectId, source: Source, generation: u32) -> Owner {
        Owner { sector, object: object.0, packed: generation << 8 | source as u32 }
    }

    fn source(self) -> Source {
        Source::ALL[(self.packed & 3) as usize]
    }

    fn generation(self) -> u32 {
        self.packed >> 8
    }

    /// The same byte of the same object, whoever says so.
    fn agrees(self, other: Owner) -> bool {
        (self.object, self.sector) == (other.object, other.sector)
    }
}

impl Value for Owner {
    fn after(self, units: u64) -> Owner {
        Owner { sector: self.sector.wrapping_add(units), ..self }
    }
}

/// What the map makes of a page's content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The map said so already.
    Agrees,
    /// Nothing was known of these bytes; now the content is.
    New,
    /// The map said otherwise for some of these bytes. Content is believed for them; the rest of
    /// the extent, which is given, stays as it was, in doubt.
    Contradicts(Extent),
    /// The claim cannot be kept: no whole sectors, or beyond what the map can hold.
    Refused,
}

/// Why the extents have to be read anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refresh {
    /// Content contradicted one extent four times within ten seconds.
    Contradicted(ObjectId),
    /// A page was written where the map knows nothing: a file grew or was made.
    Grown,
    /// The last refresh was five minutes ago.
    Aged,
}

/// The extents of one volume.
///
/// A refresh is [`Map::begin`], one [`Map::add`] for each extent, then [`Map::finish`]; pages that
/// are recognised meanwhile and after go in by [`Map::content`]. Whoever owns the map asks
/// [`Map::refresh_wanted`] now and then.
#[derive(Clone, Debug)]
pub struct Map {
    runs: Runs<Owner>,
    doubts: Doubts,
    generation: u32,
    refreshed_ms: u64,
    wanted: Option<Refresh>,
    refused: u64,
}

impl Default for Map {
    fn default() -> Map {
        Map { runs: Runs::new(EXTENTS_MAX), doubts: Doubts::default(), generation: 0, refreshed_ms: 0, wanted: None, refused: 0 }
    }
}

impl Map {
    /// The extent that holds a byte of the device.
    pub fn at(&self, offset_bytes: u64) -> Option<Extent> {
        self.runs.at(offset_bytes / SECTOR_BYTES).map(extent)
    }

    /// The extents that a range of bytes touches, cut to its sectors, in order.
    pub fn over(&self, bytes: Range<u64>) -> impl Iterator<Item = Extent> + '_ {
        self.runs.over(bytes.start / SECTOR_BYTES..bytes.end.div_ceil(SECTOR_BYTES)).map(extent)
    }

    /// All extents, in order of address.
    pub fn all(&self) -> impl Iterator<Item = Extent> + '_ {
        self.runs.all().map(extent)
    }

    /// Extents held.
    pub fn count(&self) -> usize {
        self.runs.count()
    }

    /// Extents that could not be kept, for want of room or because they made no sense.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// A refresh begins: what [`Map::add`] brings from now on is newer than all that is known.
    pub fn begin(&mut self, at_ms: u64) {
        self.generation = (self.generation + 1) & 0xff_ffff;
        self.refreshed_ms = at_ms;
        self.wanted = None;
        self.doubts.clear();
    }

    /// An extent of the refresh that has begun; it goes before whatever was known. False if it
    /// could not be kept.
    pub fn add(&mut self, bytes: &Range<u64>, object: ObjectId, object_offset_bytes: u64, source: Source) -> bool {
        let Some(sectors) = sectors(bytes, object_offset_bytes) else {
            self.refused += 1;
            return false;
        };
        let owner = Owner::new(object_offset_bytes / SECTOR_BYTES, object, source, self.generation);
        let kept = self.runs.set(&sectors, owner).is_ok();
        self.refused += u64::from(!kept);
        kept
    }

    /// The refresh is through: extents of these sources that it did not bring again are dropped.
    /// What content or neighbours said stays where the refresh said nothing.
    pub fn finish(&mut self, sources: &[Source]) {
        let generation = self.generation;
        self.runs.retain(|run| run.value.generation() == generation || !sources.contains(&run.value.source()));
    }

    /// A page says whose bytes these are, and `written` that it was just written there. It is
    /// believed for these bytes.
    pub fn content(&mut self, at_ms: u64, bytes: &Range<u64>, object: ObjectId, object_offset_bytes: u64, written: bool) -> Outcome {
        let Some(sectors) = sectors(bytes, object_offset_bytes) else {
            self.refused += 1;
            return Outcome::Refused;
        };
        let claim = Owner::new(object_offset_bytes / SECTOR_BYTES, object, Source::Content, self.generation);
        let (mut known, mut against) = (0, None);
        for run in self.runs.over(sectors.clone()) {
            known += u64::from(run.units);
            if !run.value.agrees(claim.after(run.start - sectors.start)) {
                against = against.or(self.runs.at(run.start));
            }
        }
        if against.is_none() && known == sectors.end - sectors.start {
            return Outcome::Agrees;
        }
        if self.runs.set(&sectors, claim).is_err() {
            self.refused += 1;
            return Outcome::Refused;
        }
        if let Some(run) = against {
            // The line of an extent stays what it is when pages are cut out of it.
            let line = (run.start.wrapping_sub(run.value.sector)).rotate_left(20) ^ u64::from(run.value.object);
            if self.doubts.add(line, at_ms) {
                self.wanted = Some(Refresh::Contradicted(ObjectId(run.value.object)));
            }
            return Outcome::Contradicts(extent(run));
        }
        if written && known == 0 && self.wanted.is_none() {
            self.wanted = Some(Refresh::Grown);
        }
        Outcome::New
    }

    /// A page was written there, of which nothing more is known: if nothing is known of the place
    /// either, a file grew or was made.
    pub fn written(&mut self, bytes: &Range<u64>) {
        if self.wanted.is_none() && self.over(bytes.clone()).next().is_none() {
            self.wanted = Some(Refresh::Grown);
        }
    }

    /// Neighbours say whose bytes these are: believed only where nothing else is known. The number
    /// of bytes that this told.
    pub fn neighbours(&mut self, bytes: &Range<u64>, object: ObjectId, object_offset_bytes: u64) -> u64 {
        let Some(sectors) = sectors(bytes, object_offset_bytes) else {
            self.refused += 1;
            return 0;
        };
        let claim = Owner::new(object_offset_bytes / SECTOR_BYTES, object, Source::Neighbour, self.generation);
        let mut gaps = Vec::new();
        let mut at = sectors.start;
        for run in self.runs.over(sectors.clone()) {
            gaps.push(at..run.start);
            at = run.end();
        }
        gaps.push(at..sectors.end);
        let mut told = 0;
        for gap in gaps.into_iter().filter(|gap| !gap.is_empty()) {
            match self.runs.set(&gap, claim.after(gap.start - sectors.start)) {
                Ok(()) => told += (gap.end - gap.start) * SECTOR_BYTES,
                Err(Full { .. }) => self.refused += 1,
            }
        }
        told
    }

    /// These bytes were discarded: they belong to nothing. Bytes of sectors that are touched in
    /// part keep their owner.
    pub fn discard(&mut self, bytes: &Range<u64>) {
        let sectors = bytes.start.div_ceil(SECTOR_BYTES)..bytes.end / SECTOR_BYTES;
        self.refused += u64::from(self.runs.clear(&sectors).is_err());
    }

    /// Whether the extents have to be read anew, and why.
    pub fn refresh_wanted(&self, at_ms: u64) -> Option<Refresh> {
        let aged = at_ms.saturating_sub(self.refreshed_ms) >= AGE_MAX_MS;
        self.wanted.or(aged.then_some(Refresh::Aged))
    }

    /// Memory held, in bytes; 16 MiB at most.
    pub fn bytes(&self) -> usize {
        size_of::<Map>() + self.runs.bytes() + self.doubts.bytes()
    }

    #[cfg(test)]
    fn check_invariants(&self) {
        self.runs.check_invariants();
        assert!(self.bytes() <= BYTES_MAX + (64 << 10));
    }
}

/// Whole sectors that do not run over the end of numbers; else `None`.
fn sectors(bytes: &Range<u64>, object_offset_bytes: u64) -> Option<Range<u64>> {
    let whole = [bytes.start, bytes.end, object_offset_bytes].iter().all(|at| at % SECTOR_BYTES == 0);
    let fits = bytes.end < 1 << 62 && object_offset_bytes < 1 << 62;
    (whole && fits && bytes.start < bytes.end).then_some(bytes.start / SECTOR_BYTES..bytes.end / SECTOR_BYTES)
}

fn extent(run: Run<Owner>) -> Extent {
    Extent {
        bytes: run.start * SECTOR_BYTES..run.end() * SECTOR_BYTES,
        object: ObjectId(run.value.object),
        object_offset_bytes: run.value.sector * SECTOR_BYTES,
        source: run.value.source(),
        generation: run.value.generation(),
    }
}

#[cfg(test)]
mod tests;
