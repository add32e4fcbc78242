//! The objects of a volume: what was found on it, how much they are used, and the policies that follow.

use super::contradictions::Contradictions;
use super::policies;
use super::shares::Shares;
use api::object_rules::Rule;
use applications::discovery::{Found, Object, ObjectKind, Reason};
use applications::map::Labels;
use applications::streams::Place;
use applications::{Engine, discovery::Application};
use engine::api::Outcome;
use engine::tap::Sample;
use records::engines::{BLANK_PAGE, engine_of};
use runtime::Sight;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use types::{BLOCK_BYTES, ObjectId, SECTOR_BYTES, Treatment};

/// Objects whose uses are counted each for itself; what comes after is counted together.
const COUNTED_MAX: usize = 1024;
/// What was found is looked for again after this, if pages contradict it: a table was made, or is elsewhere.
const STALE_MS: u64 = 10_000;
/// And after this, if anything was written: files grow where pages do not say whose they are.
const AGED_MS: u64 = 5 * 60_000;
/// As long as no application was found, a table is being rebuilt, or a journal was not read to its end, after this, and each time twice as long: a
/// volume is often made first, and then what lies on it.
const EARLY_MS: u64 = 15_000;
/// A table that is being rebuilt has another name in the end: so many looks come as soon as pages contradict the map, then as above. A copy that
/// a crash has left stays.
const REBUILT_LOOKS: u32 = 30;
/// A look that takes long comes back so many times later than it took: it may have a twentieth of the time. Of looks that come early the first
/// ones may have more of it, the first a third.
const PAUSES: u64 = 20;
const PAUSES_EARLY: u64 = 2;
/// Where pages contradict what was found, it comes back after this at the latest: beside clients its reads are held to a part of the disk's time
/// already, and for as long a table has its old size.
const STALE_PAUSE_MS: u64 = 20_000;
/// For so long clients are taken to go on: what they do is told once a second. So is the first moment of a look.
const BUSY_MS: u64 = 3_000;
/// Policies are given to the cache again so often.
const GIVEN_MS: u64 = 60_000;
/// Where nothing known begins, a write within so many bytes of the start may be a file system that is made there.
const START_BYTES: u64 = 68 << 10;
/// And so often in a row a look may follow on it at once.
const HASTY_FOR_STARTS: u32 = 4;

/// How often an object was used since counting began; blocks are estimates from the sample.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Uses {
    /// Blocks read.
    pub read_blocks: f64,
    /// Of them, answered by RAM or the SSD.
    pub hit_blocks: f64,
    /// Blocks written.
    pub written_blocks: f64,
}

/// How far the look for objects is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Looked {
    /// Not yet.
    #[default]
    Never,
    /// Under way.
    Now,
    /// Done, at this time.
    At(u64),
    /// It failed at this time, in words.
    Failed(u64, String),
}

/// See the module.
#[derive(Default)]
pub struct Objects {
    found: Option<Arc<Found>>,
    labels: Option<Labels>,
    uses: HashMap<ObjectId, Uses>,
    /// Of objects beyond those that are counted.
    others: Uses,
    /// Of blocks that belong to nothing that is known, and of all of them, since something else was found.
    unknown: Uses,
    counted: Uses,
    /// Of all blocks, but for sequential streams.
    read: Uses,
    /// Since when it is counted: each time that it begins anew, this is another.
    window: Arc<()>,
    shares: Shares,
    looked: Looked,
    contradictions: Contradictions,
    /// Where nothing known begins something was written.
    start_written: bool,
    /// Looks that have begun, and what the one under way has read.
    looks: u64,
    looking_bytes: u64,
    /// Something was written since the last look began.
    written: bool,
    /// When the last look began, and how long it took.
    began_ms: u64,
    took_ms: u64,
    /// Looks since the last one that found an application, and nothing of it on the move.
    early_looks: u32,
    /// Looks in a row that came before their time.
    hasty_looks: u32,
    /// When policies were given to the cache.
    given_ms: u64,
    /// When clients were last seen to write, or to read what the cache did not answer alone.
    used_ms: u64,
}

impl Objects {
    /// What was found last.
    pub fn found(&self) -> Option<&Arc<Found>> {
        self.found.as_ref()
    }

    /// How far the look is.
    pub fn looked(&self) -> &Looked {
        &self.looked
    }

    /// A look begins, or has failed.
    pub fn set_looked(&mut self, looked: Looked, now_ms: u64) {
        if looked == Looked::Now {
            let is_hasty = self.looked != Looked::Never && now_ms.saturating_sub(self.began_ms) < AGED_MS;
            self.hasty_looks = if is_hasty { self.hasty_looks.saturating_add(1) } else { 0 };
            (self.looks, self.looking_bytes) = (self.looks + 1, 0);
            self.contradictions.look_begins();
            (self.began_ms, self.written, self.start_written) = (now_ms, false, false);
        }
        self.took_ms = now_ms.saturating_sub(self.began_ms);
        self.looked = looked;
    }

    /// Which look is under way, or was last: another may take its place.
    pub fn look_number(&self) -> u64 {
        self.looks
    }

    /// The look under way has read so much.
    pub fn set_looking(&mut self, bytes: u64) {
        self.looking_bytes = bytes;
    }

    /// The look under way begins anew: the volume has become another.
    pub fn begin_anew(&mut self, now_ms: u64) {
        (self.began_ms, self.looking_bytes, self.written, self.start_written) = (now_ms, 0, false, false);
    }

    /// What the look under way has read.
    pub fn looking_bytes(&self) -> u64 {
        self.looking_bytes
    }

    /// What a look found. It has ended when the cache knows the policies that follow: [`Objects::set_looked`].
    pub fn set_found(&mut self, found: Arc<Found>, volume_bytes: u64) {
        self.uses.retain(|id, _| found.object(*id).is_some());
        if self.found.as_ref().is_none_or(|before| is_another(before, &found)) {
            (self.unknown, self.counted) = (Uses::default(), Uses::default());
        }
        self.early_looks = if found.applications.is_empty() || !found.is_settled() { self.early_looks.saturating_add(1) } else { 0 };
        // Labels name objects by their numbers, which stay when they are found again.
        if self.labels.is_none() && found.objects.iter().any(|object| object.within.is_some()) {
            self.labels = Some(Labels::new(volume_bytes));
        }
        self.contradictions.looked(&found);
        self.found = Some(found);
    }

    /// Whether to look, or to look again.
    pub fn is_due(&self, now_ms: u64) -> bool {
        match &self.looked {
            Looked::Never => true,
            Looked::Now => false,
            Looked::Failed(at_ms, _) => now_ms.saturating_sub(*at_ms) >= AGED_MS.max(self.took_ms * PAUSES),
            Looked::At(at_ms) => {
                let age_ms = now_ms.saturating_sub(*at_ms);
                let pause_ms = self.took_ms * (PAUSES_EARLY << self.hasty_looks.min(8)).min(PAUSES);
                let stale_ms = self.contradictions.pause_ms(STALE_MS).min(AGED_MS).max(pause_ms.min(STALE_PAUSE_MS));
                let is_stale = self.contradictions.ask(now_ms) && age_ms >= stale_ms;
                let aged_ms = match self.early_looks {
                    0 => AGED_MS,
                    ..=REBUILT_LOOKS if self.found.as_ref().is_some_and(|found| found.is_rebuilding()) => STALE_MS,
                    looks => (EARLY_MS << (looks - 1).min(8)).min(AGED_MS),
                };
                let begins = self.start_written && age_ms >= STALE_MS && self.hasty_looks < HASTY_FOR_STARTS;
                begins || is_stale || age_ms >= pause_ms.max(aged_ms) && self.written
            }
        }
    }

    /// Whether clients use the backing device, or did a moment ago.
    pub fn is_busy(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.used_ms.max(self.began_ms)) < BUSY_MS
    }

    /// Whether the cache is to be told the policies again; it is taken to be told.
    pub fn policies_due(&mut self, now_ms: u64) -> bool {
        let due = matches!(self.looked, Looked::At(_)) && now_ms.saturating_sub(self.given_ms) >= GIVEN_MS;
        self.given_ms = if due { now_ms } else { self.given_ms };
        due
    }

    /// Counting begins anew.
    pub fn restart(&mut self) {
        self.uses.clear();
        (self.others, self.unknown, self.counted, self.read) = Default::default();
        self.window = Arc::default();
    }

    /// The window that is counted in: the same one as long as counting goes on.
    pub fn window(&self) -> &Arc<()> {
        &self.window
    }

    /// What was read since counting began, but for sequential streams.
    pub fn read(&self) -> Uses {
        self.read
    }

    /// What each brings, by the size of the SSD, as it was told last.
    pub fn shares(&self) -> &Shares {
        &self.shares
    }

    /// The same, to tell it anew.
    pub fn shares_mut(&mut self) -> &mut Shares {
        &mut self.shares
    }

    /// Memory it takes, in bytes.
    pub fn bytes(&self) -> u64 {
        let found = self.found.as_ref().map_or(0, |found| found.bytes());
        let labels = self.labels.as_ref().map_or(0, Labels::bytes);
        (found + labels + self.shares.bytes() + self.uses.capacity() * size_of::<(ObjectId, Uses)>()) as u64
    }

    /// The object that a byte of the volume belongs to: the index, where pages have said which of a table's it is.
    pub fn at(&self, offset_bytes: u64) -> Option<&Object> {
        let found = self.found.as_ref()?;
        let (file, _) = found.at(offset_bytes)?;
        let label = self.labels.as_ref().and_then(|labels| labels.at(offset_bytes)).and_then(|id| found.object(id));
        label.filter(|object| object.within == Some(file)).or_else(|| found.object(file))
    }

    /// Which file's a byte is, and where in it.
    pub fn place_at(&self, offset_bytes: u64) -> Option<Place> {
        let found = self.found.as_ref()?;
        let (object, offset_bytes) = found.at(offset_bytes)?;
        Some(Place { object, offset_bytes, object_bytes: found.object(object)?.bytes })
    }

    /// Whose the blocks are whose uses are kept; `None` if nothing was found.
    pub fn owners(&self, watch: &analysis::Watch) -> Option<HashMap<u64, ObjectId>> {
        self.found.as_ref().filter(|found| !found.objects.is_empty())?;
        let mut owners = HashMap::new();
        for used in watch.kept().uses() {
            if let std::collections::hash_map::Entry::Vacant(free) = owners.entry(used.block)
                && let Some(object) = self.at(used.block * BLOCK_BYTES)
            {
                free.insert(object.id);
            }
        }
        Some(owners)
    }

    /// What pages said of themselves.
    pub fn learn(&mut self, sights: &[(Sight, u64)]) {
        self.used_ms = self.used_ms.max(sights.last().map_or(0, |(_, time_ms)| *time_ms));
        let Some(found) = &self.found else { return };
        for (sight, time_ms) in sights {
            self.written |= sight.is_write;
            self.start_written |= sight.is_write && begins_at(found, sight.start_sector * SECTOR_BYTES);
            let Some(page) = sight.page.filter(|page| !page.is_log) else { continue };
            let offset_bytes = sight.start_sector * SECTOR_BYTES;
            if page.kind == BLANK_PAGE && sight.is_write && found.at(offset_bytes).is_none() && is_extended(found, offset_bytes) {
                self.contradictions.add(found, offset_bytes, *time_ms);
            }
            let Some(engine) = engine_of(page.kind) else { continue };
            if !engine.facts().pages_name_their_object {
                if !self.contradictions.of_unnamed(found, offset_bytes, &page) && is_looked_for(found, engine, offset_bytes) {
                    self.contradictions.add(found, offset_bytes, *time_ms);
                }
                continue;
            }
            let at = found.at(offset_bytes);
            let Some(owner) = found.owner_at(engine, page.object, offset_bytes).and_then(|id| found.object(id)) else {
                // Where nothing is known to lie: a file grew, or was made.
                if at.is_none() && page.object != 0 && is_looked_for(found, engine, offset_bytes) {
                    self.contradictions.add(found, offset_bytes, *time_ms);
                }
                continue;
            };
            // Or a table has taken the place of another.
            let there = at.and_then(|(id, _)| found.object(id));
            let is_other = there.is_some_and(|there| {
                let is_mine = owner.id == there.id || owner.within == Some(there.id);
                there.kind == ObjectKind::Table && (!is_mine || !found.knows(engine, page.object))
            });
            if at.is_none() || is_other {
                self.contradictions.add(found, offset_bytes, *time_ms);
            }
            if let Some(labels) = self.labels.as_mut().filter(|_| owner.within.is_some()) {
                let bytes = offset_bytes..offset_bytes + (1 << page.size_log2.min(16));
                // Without room for another exception the table's own name stands.
                let _ = labels.set(&bytes, owner.id);
            }
        }
    }

    /// Counts sampled uses; each stands for `weight` blocks.
    pub fn count<'a>(&mut self, samples: impl Iterator<Item = &'a Sample>, weight: f64) {
        for sample in samples {
            let hit = matches!(sample.outcome(), Outcome::RamHit | Outcome::SsdHit);
            if !sample.is_write() && !sample.is_sequential() {
                self.read.read_blocks += weight;
                self.read.hit_blocks += if hit { weight } else { 0.0 };
            }
            if self.found.is_none() {
                continue;
            }
            let object = self.at(sample.block() * BLOCK_BYTES).map(|object| object.id);
            let room = self.uses.len() < COUNTED_MAX;
            let uses = match object {
                None => &mut self.unknown,
                Some(id) if room || self.uses.contains_key(&id) => self.uses.entry(id).or_default(),
                Some(_) => &mut self.others,
            };
            for uses in [uses, &mut self.counted] {
                if sample.is_write() {
                    uses.written_blocks += weight;
                } else {
                    uses.read_blocks += weight;
                    uses.hit_blocks += if hit { weight } else { 0.0 };
                }
            }
        }
    }

    /// How often an object was used.
    pub fn uses(&self, id: ObjectId) -> Uses {
        self.uses.get(&id).copied().unwrap_or_default()
    }

    /// Uses of blocks of which nothing is known, and of all, since something else was found on the volume than before.
    pub fn unknown(&self) -> (Uses, Uses) {
        (self.unknown, self.counted)
    }

    /// How an object is treated, and by which rule; `None`: by what its kind has by default.
    pub fn treatment_of<'a>(&self, object: &Object, rules: &'a [Rule]) -> (Treatment, Option<&'a Rule>) {
        let instance = self.instance_of(object);
        policies::treatment_of(object, instance.as_deref(), rules)
    }

    fn instance_of(&self, object: &Object) -> Option<String> {
        self.application_of(object).and_then(|application| application.instance.clone())
    }

    /// The application of an object.
    pub fn application_of(&self, object: &Object) -> Option<&Application> {
        self.found.as_ref()?.application(object.application)
    }

    /// The name of an object, with its data directory where others on the volume have the same name.
    pub fn told_name(&self, object: &Object) -> String {
        let has_twin = self.found.iter().flat_map(|found| &found.objects).any(|other| other.id != object.id && other.name == object.name);
        match self.instance_of(object).filter(|_| has_twin) {
            Some(instance) => format!("{} of /{instance}", object.name),
            None => object.name.clone(),
        }
    }

    /// Which object has the most of each cell of that length, from a byte on.
    pub fn most_of_cells(&self, start_bytes: u64, cell_bytes: u64, count: u32) -> Vec<Option<ObjectId>> {
        let (count, cell_bytes) = (count as usize, cell_bytes.max(1));
        let mut most: Vec<Option<ObjectId>> = vec![None; count];
        let Some(found) = &self.found else { return most };
        // Extents ascend: what a cell has of each object is complete when the next cell begins.
        let (mut cell, mut shares): (usize, Vec<(ObjectId, u64)>) = (0, Vec::new());
        let end_bytes = start_bytes.saturating_add(cell_bytes.saturating_mul(count as u64));
        for extent in found.map.over(start_bytes..end_bytes) {
            let mut at = extent.bytes.start.max(start_bytes);
            while at < extent.bytes.end.min(end_bytes) {
                let index = ((at - start_bytes) / cell_bytes) as usize;
                if index != cell {
                    most[cell] = largest(&mut shares);
                    cell = index;
                }
                let end = extent.bytes.end.min(start_bytes + (index as u64 + 1) * cell_bytes);
                match shares.iter_mut().find(|(id, _)| *id == extent.object) {
                    Some((_, bytes)) => *bytes += end - at,
                    None => shares.push((extent.object, end - at)),
                }
                at = end;
            }
        }
        if let Some(last) = most.get_mut(cell) {
            *last = largest(&mut shares);
        }
        most
    }

    /// Where an object lies, ascending: its files' extents, or what pages have shown to be its own of the file that it is in.
    pub fn places_of(&self, object: &Object) -> Vec<Range<u64>> {
        let Some(found) = &self.found else { return Vec::new() };
        let Some(table) = object.within else {
            return found.map.all().filter(|extent| extent.object == object.id).map(|extent| extent.bytes).collect();
        };
        let Some(labels) = &self.labels else { return Vec::new() };
        let mut places = Vec::new();
        for extent in found.map.all().filter(|extent| extent.object == table) {
            let mut at = extent.bytes.start;
            while at < extent.bytes.end {
                let (label, end) = labels.stretch(at);
                let end = end.min(extent.bytes.end);
                if label == Some(object.id) {
                    places.push(at..end);
                }
                at = end;
            }
        }
        places
    }

    /// Bytes of the volume and how they are to be treated, ascending; those without a policy are left out.
    pub fn ranges(&self, rules: &[Rule]) -> Vec<(Range<u64>, Treatment)> {
        let Some(found) = &self.found else { return Vec::new() };
        let mut treatments: BTreeMap<ObjectId, Treatment> = BTreeMap::new();
        for object in &found.objects {
            treatments.insert(object.id, self.treatment_of(object, rules).0);
        }
        // Indexes that differ from their table.
        let apart: std::collections::BTreeSet<ObjectId> = found
            .objects
            .iter()
            .filter_map(|object| object.within.filter(|table| treatments.get(table) != treatments.get(&object.id)))
            .collect();
        let mut ranges: Vec<(Range<u64>, Treatment)> = Vec::new();
        let mut add = |bytes: Range<u64>, treatment: Treatment| {
            // A policy is of whole blocks: one that two objects share has none.
            let bytes = bytes.start.next_multiple_of(BLOCK_BYTES)..bytes.end / BLOCK_BYTES * BLOCK_BYTES;
            if treatment == Treatment::default() || bytes.is_empty() {
                return;
            }
            match ranges.last_mut() {
                Some((last, like)) if last.end == bytes.start && *like == treatment => last.end = bytes.end,
                Some((last, _)) if last.end > bytes.start => {}
                _ => ranges.push((bytes, treatment)),
            }
        };
        for extent in found.map.all() {
            let of_file = treatments.get(&extent.object).copied().unwrap_or_default();
            let Some(labels) = self.labels.as_ref().filter(|_| apart.contains(&extent.object)) else {
                add(extent.bytes, of_file);
                continue;
            };
            let mut at = extent.bytes.start;
            while at < extent.bytes.end {
                let (label, end) = labels.stretch(at);
                let end = end.min(extent.bytes.end);
                let label = label.and_then(|id| found.object(id)).filter(|object| object.within == Some(extent.object));
                add(at..end, label.and_then(|object| treatments.get(&object.id)).copied().unwrap_or(of_file));
                at = end;
            }
        }
        ranges
    }
}

/// The one with the largest share; none are left.
fn largest(shares: &mut Vec<(ObjectId, u64)>) -> Option<ObjectId> {
    let id = shares.iter().max_by_key(|(_, bytes)| *bytes).map(|(id, _)| *id);
    shares.clear();
    id
}

/// Whether what was found is something else than before, so that what was unknown then tells nothing of now.
fn is_another(before: &Found, now: &Found) -> bool {
    let blind = |found: &Found| found.blind.iter().map(|blind| blind.bytes.clone()).collect::<Vec<_>>();
    let ids = |found: &Found| found.objects.iter().map(|object| object.id).collect::<Vec<_>>();
    blind(before) != blind(now) || ids(before) != ids(now)
}

/// Whether a byte is where a file system may be made: at the start of a region where neither one nor pages of an engine were seen.
fn begins_at(found: &Found, offset_bytes: u64) -> bool {
    let mut empty = found.blind.iter().filter(|blind| blind.reason == Reason::Unknown && blind.seen.is_empty());
    empty.any(|blind| (blind.bytes.start..blind.bytes.start + START_BYTES).contains(&offset_bytes))
}

/// Whether a look would find files of an engine there: not where no file system can be read.
fn is_looked_for(found: &Found, engine: Engine, offset_bytes: u64) -> bool {
    engine.has_known_files() && !found.blind.iter().any(|blind| blind.bytes.contains(&offset_bytes))
}

/// Whether a blank page there may be the new end of a file: PostgreSQL makes files longer by zeroes, long before it writes what belongs there.
fn is_extended(found: &Found, offset_bytes: u64) -> bool {
    let mut engines = found.applications.iter().map(|application| application.engine).filter(|engine| engine.facts().grows_files_by_zeroes);
    engines.any(|engine| is_looked_for(found, engine, offset_bytes))
}

/// Objects that are of no use to a cache: written again and again, and hardly ever read.
pub fn is_log(kind: ObjectKind) -> bool {
    use ObjectKind::{Binlog, Doublewrite, Redo, Temporary, Wal};
    matches!(kind, Redo | Wal | Binlog | Doublewrite | Temporary)
}

#[cfg(test)]
mod tests;
