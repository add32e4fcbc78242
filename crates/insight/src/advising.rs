//! Advice as people read it: what was found of a load, and what to make of it.

use super::objects::Objects;
use super::observer::LoadNamed;
use analysis::Watch;
use analysis::advice::{Answer, Latencies, Needed, Point, Question, Untold, answer};
use analysis::load::{HALF_BAND_MAX, NEW_MAX, NotYet, REREFERENCES_MIN};
use analysis::miniature::Tried;
use analysis::parts::{Part, parts};
use api::human;
use api::{AdviceObject, AdvicePoint, AdviceView, TargetView};
use engine::api::VolumeOptions;
use types::{BLOCK_BYTES, ObjectId};

/// Shares told where none are asked for, in percent.
pub const TARGETS_PERCENT: [f64; 3] = [50.0, 90.0, 99.0];
/// What an SSD holds of clients, where no pool says: the rest is the ring of statements, an eighth of an eighth.
const STORED_SHARE: f64 = 0.984;
/// With less gain than this a cache is not worth it: reads must take less than that part of what they take from the backing device.
const WORTH_PART: f64 = 0.5;

/// What is taken for a read from an SSD, and from RAM, where none was measured, in microseconds: what an NVMe SSD takes for 4 KiB.
pub const SSD_US_ASSUMED: f64 = 100.0;
const RAM_US_ASSUMED: f64 = 5.0;

/// What is asked, and what is known of the machine.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// Shares of hits, in percent; none: [`TARGETS_PERCENT`].
    pub targets_percent: Vec<f64>,
    /// Scans and backups are let into the cache.
    pub with_backups: bool,
    /// SSD to judge.
    pub ssd_bytes: Option<u64>,
    /// That is what somebody thinks of, and not the pool's.
    pub is_budget: bool,
    /// Of the pool.
    pub ram_bytes: u64,
    /// Bytes of clients that a byte of the pool's SSD holds, measured: the ring takes of it, and what content saves adds to it.
    pub stored_share: Option<f64>,
    /// Bytes written to the pool's SSD for a byte of clients that is admitted, measured.
    pub written_factor: Option<f64>,
    /// How many times as much the SSD holds, by content; it is in the above.
    pub content_factor: Option<f64>,
    /// Measured where the load runs.
    pub latencies: Latencies,
    /// What is taken for a read from the SSD, where none was measured.
    pub ssd_us_assumed: Option<f64>,
}

impl Asked {
    /// Bytes of clients that a byte of SSD holds.
    pub fn stored_share(&self) -> f64 {
        self.stored_share.unwrap_or(STORED_SHARE)
    }

    /// Those measured, and what is taken for those that were not.
    pub fn latencies_taken(&self) -> Latencies {
        let Latencies { ram_us, ssd_us, backing_us } = self.latencies;
        // RAM answers so soon that it does not matter beside the others.
        Latencies { ram_us: ram_us.or(Some(RAM_US_ASSUMED)), ssd_us: ssd_us.or(self.ssd_us_assumed), backing_us }
    }
}

/// Objects told of an advice.
pub const OBJECTS_MAX: usize = 32;
/// The share of hits that objects are told for, if it is known.
const OBJECTS_AT: f64 = 0.9;
/// An object with that part of the reads or more, and less than that part of them hits, only passes through.
const PASSES_READS: f64 = 0.05;
const PASSES_HITS: f64 = 0.02;

/// Whose blocks are whose, as far as that is known: a copy that can be asked while others go on.
pub type OwnerOf<'a> = &'a dyn Fn(u64) -> Option<ObjectId>;

/// Which objects bring the hits, of the target that is told and nearest to [`OBJECTS_AT`].
pub fn objects_of(watch: &Watch, advice: &AdviceView, mode: types::Mode, owner_of: OwnerOf<'_>) -> Vec<(Option<ObjectId>, Part)> {
    let known = advice.targets.iter().filter(|target| target.ssd_bytes.is_some());
    let off = |hits_percent: f64| (hits_percent / 100.0 - OBJECTS_AT).abs();
    let Some(target) = known.min_by(|one, other| off(one.hits_percent).total_cmp(&off(other.hits_percent))) else { return Vec::new() };
    let data_bytes = target.ssd_bytes.unwrap_or(0) as f64 * advice.stored_share;
    let tried = Tried {
        ssd_pages: ((data_bytes / BLOCK_BYTES as f64) as u64).max(1),
        ram_blocks: advice.ram_bytes / BLOCK_BYTES,
        options: VolumeOptions { mode, ..VolumeOptions::default() },
    };
    let found = parts(watch, &tried, advice.with_backups, |block| owner_of(block * BLOCK_BYTES));
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_by(|(_, one), (_, other)| other.hits.total_cmp(&one.hits).then(other.reads.total_cmp(&one.reads)));
    found
}

/// The same with names, and a sentence.
pub fn name_objects(advice: &mut AdviceView, found: &[(Option<ObjectId>, Part)], objects: &Objects) {
    let (reads, hits) = found.iter().fold((0.0, 0.0), |(reads, hits), (_, part)| (reads + part.reads, hits + part.hits));
    if reads <= 0.0 || found.iter().all(|(id, _)| id.is_none()) {
        return;
    }
    let percent = |part: f64, whole: f64| if whole > 0.0 { (part / whole * 1000.0).round() / 10.0 } else { 0.0 };
    let view = |(id, part): &(Option<ObjectId>, Part)| {
        let object = id.and_then(|id| objects.found()?.object(id));
        let passes = part.reads >= reads * PASSES_READS && part.hits < part.reads * PASSES_HITS;
        AdviceObject {
            volume: None,
            id: object.map(|object| object.id.0),
            name: object.map_or_else(|| "unknown".into(), |object| objects.told_name(object)),
            kind: object.map_or_else(|| "unknown".into(), |object| object.kind.name().into()),
            hits_percent: percent(part.hits, hits),
            reads_percent: percent(part.reads, reads),
            ssd_bytes: (part.blocks * BLOCK_BYTES as f64 / advice.stored_share.max(0.01)) as u64,
            advice: if passes && object.is_some() { "never".into() } else { "cache".into() },
        }
    };
    // A copy that is being built takes the place of a table that is told, too.
    let is_copy = |id: &Option<ObjectId>| id.and_then(|id| objects.found()?.object(id)).is_some_and(|object| object.is_being_built());
    advice.objects = found.iter().filter(|(id, _)| !is_copy(id)).take(OBJECTS_MAX).map(view).collect();
    tell_objects(advice);
}

/// What to make of the objects of an advice, those that bring most first.
pub fn tell_objects(advice: &mut AdviceView) {
    let named = |object: &AdviceObject| object.volume.as_ref().map_or(object.name.clone(), |volume| format!("{volume}: {}", object.name));
    let few = advice.objects.iter().filter(|object| object.id.is_some() && object.hits_percent >= 1.0).take(4);
    let (sum, few) = few.fold((0.0, Vec::new()), |(sum, mut few), object| {
        few.push(named(object));
        (sum + object.hits_percent, few)
    });
    if !few.is_empty() {
        let (bring, what) = if few.len() == 1 { ("brings", "object") } else { ("bring", "objects") };
        advice.sentences.insert(0, format!("{} {what} {bring} {sum:.0} % of the hits: {}.", few.len(), few.join(", ")));
    }
    let passing: Vec<String> = advice.objects.iter().filter(|object| object.advice == "never").map(named).collect();
    if !passing.is_empty() {
        advice.sentences.push(format!("Read once and hardly again, better not let in: {}.", passing.join(", ")));
    }
}

/// Advice for a load, without a number: seconds of computing.
pub fn advise(load: &LoadNamed, watch: &Watch, asked: &Asked) -> AdviceView {
    let percent = if asked.targets_percent.is_empty() { TARGETS_PERCENT.to_vec() } else { asked.targets_percent.clone() };
    let stored_share = asked.stored_share();
    let question = Question {
        shares: percent.iter().map(|percent| percent / 100.0).collect(),
        with_scans: asked.with_backups,
        ram_blocks: asked.ram_bytes / BLOCK_BYTES,
        options: VolumeOptions { mode: load.mode, ..VolumeOptions::default() },
        stored_share,
        written_factor: asked.written_factor,
        ssd_bytes: asked.ssd_bytes,
        latencies: asked.latencies_taken(),
    };
    let found = answer(watch, &question);
    let window_ms = watch.load(asked.with_backups).window_ms();
    let writes_leave = load.mode == types::Mode::WriteThrough && asked.ram_bytes == 0;
    let told = |(percent, (_, needed)): (&f64, &(f64, Result<Needed, Untold>))| target(*percent, needed, window_ms, writes_leave);
    let targets: Vec<TargetView> = percent.iter().zip(&found.needed).map(told).collect();
    let more = found.now.as_ref().map_or_else(Vec::new, |now| more_of(now, |ssd_bytes| point_at(&found.curve, ssd_bytes)));
    let scanned_bytes = watch.totals().scanned_blocks.saturating_mul(BLOCK_BYTES);
    let sentences = sentences(&found, &targets, &more, watch, asked);
    AdviceView {
        id: 0,
        name: load.name.clone(),
        pool: load.pool.clone(),
        window_ms,
        with_backups: asked.with_backups,
        scanned_bytes,
        targets,
        curve: found.curve.iter().map(point).collect(),
        now: found.now.as_ref().map(point),
        more,
        ram_bytes: asked.ram_bytes,
        stored_share,
        content_factor: asked.content_factor,
        ram_us: asked.latencies.ram_us,
        ssd_us: asked.latencies.ssd_us,
        backing_us: asked.latencies.backing_us,
        objects: Vec::new(),
        sentences,
    }
}

/// `writes_leave`: there is no RAM that would hold what is written through until it may enter the log.
fn target(hits_percent: f64, needed: &Result<Needed, Untold>, window_ms: u64, writes_leave: bool) -> TargetView {
    let untold = |not_yet: String, more_ms| TargetView {
        hits_percent,
        ssd_bytes: None,
        ssd_bytes_low: None,
        ssd_bytes_high: None,
        read_us: None,
        ssd_written_bytes_per_day: None,
        not_yet: Some(not_yet),
        more_ms,
    };
    match needed {
        Ok(needed) => TargetView {
            hits_percent,
            ssd_bytes: Some(needed.ssd_bytes as u64),
            ssd_bytes_low: Some((needed.ssd_bytes * (1.0 - needed.half_band).max(0.0)) as u64),
            ssd_bytes_high: Some((needed.ssd_bytes * (1.0 + needed.half_band)) as u64),
            read_us: needed.read_us,
            ssd_written_bytes_per_day: Some(needed.ssd_bytes_written_per_day as u64),
            not_yet: None,
            more_ms: None,
        },
        Err(Untold::NotYet(why)) => untold(not_yet(*why), why.more_ms(window_ms)),
        Err(Untold::TooSmall) => {
            untold("it needs less than the smallest cache that can be tried on what was kept of this load".into(), None)
        }
        Err(Untold::OutOfReach) if writes_leave => untold(
            "no cache that was tried reaches it: without RAM in front of the SSD, blocks that are written leave the cache (--ram)".into(),
            None,
        ),
        Err(Untold::OutOfReach) => {
            untold("no cache that was tried reaches it in the time watched: some blocks are used too seldom to be let in".into(), None)
        }
    }
}

/// What is missing, as a clause.
fn not_yet(why: NotYet) -> String {
    let percent = |part: f64| format!("{:.0} %", part * 100.0);
    // With so many digits that a number that is more than another one looks so.
    let more_than = |part: f64, most: f64| {
        let told = |digits: usize| [part, most].map(|part| format!("{:.digits$} %", part * 100.0));
        let [is, may] = (0..3).map(told).find(|[is, may]| is != may).unwrap_or_else(|| told(3));
        // What may be is a round number.
        (is, if may.ends_with(".0 %") || may.ends_with(".00 %") { percent(most) } else { may })
    };
    match why {
        NotYet::TooFew { rereferences } => {
            format!("{} of {REREFERENCES_MIN} reads of blocks that were used before", rereferences.max(0.0) as u64)
        }
        NotYet::TooShort => "the time watched is too short".into(),
        NotYet::TooWide { half_band } => {
            let (is, may) = more_than(half_band, HALF_BAND_MAX);
            format!("the band is still ± {is} wide, more than {may}")
        }
        NotYet::StillNew { share } => {
            let (is, may) = more_than(share, NEW_MAX);
            format!("{is} of the latest reads were of blocks never used before, more than {may}")
        }
        NotYet::Grows { before, now } => {
            let size = |lines: f64| human::bytes((lines * BLOCK_BYTES as f64) as u64);
            let how = if now > before { "still grows" } else { "still shrinks" };
            format!("the working set {how}: {} after three quarters of the time, {} after all of it", size(before), size(now))
        }
    }
}

/// A point as it is told.
pub fn point(point: &Point) -> AdvicePoint {
    let percent = |share: f64| (share * 1000.0).round() / 10.0;
    AdvicePoint {
        ssd_bytes: point.ssd_bytes as u64,
        hits_percent: percent(point.hits),
        hits_percent_low: percent(point.hits_low),
        hits_percent_high: percent(point.hits_high),
        read_us: point.read_us,
        ssd_written_bytes_per_day: Some(point.ssd_bytes_written_per_day as u64),
    }
}

/// Sizes that people buy more of.
const MORE_BYTES: [u64; 2] = [4 << 30, 100 << 30];

/// What more SSD than there is would bring, where it is neither next to nothing nor out of all proportion.
pub fn more_of(now: &Point, at: impl Fn(f64) -> Option<Point>) -> Vec<AdvicePoint> {
    let ssd_bytes = now.ssd_bytes as u64;
    let steps = MORE_BYTES.into_iter().filter(|step| *step <= ssd_bytes.saturating_mul(100) && *step >= ssd_bytes / 100);
    let told = steps.filter_map(|step| {
        let ssd_bytes = (ssd_bytes + step) as f64;
        let at = at(ssd_bytes)?;
        Some(point(&Point { ssd_bytes, hits: at.hits.max(now.hits), ..at }))
    });
    told.collect()
}

/// A point of the curve of one load, whose sizes are apart by a factor.
fn point_at(curve: &[Point], ssd_bytes: f64) -> Option<Point> {
    let Some(after) = curve.iter().position(|point| point.ssd_bytes >= ssd_bytes) else { return curve.last().copied() };
    let Some(before) = after.checked_sub(1).map(|before| &curve[before]) else { return Some(curve[after]) };
    let part = ((ssd_bytes / before.ssd_bytes).ln() / (curve[after].ssd_bytes / before.ssd_bytes).ln().max(1e-12)).clamp(0.0, 1.0);
    Some(before.towards(&curve[after], part))
}

/// What there is, or what somebody thinks of, and what more of it would bring.
pub fn told_now(now: &AdvicePoint, more: &[AdvicePoint], is_budget: bool) -> Vec<String> {
    let size = human::bytes(now.ssd_bytes);
    let mut told = vec![format!(
        "{} {:.0} % hits (band {:.0} to {:.0}).",
        if is_budget { format!("{size} would bring") } else { format!("You have {size}:") },
        now.hits_percent,
        now.hits_percent_low,
        now.hits_percent_high
    )];
    let gained = |point: &AdvicePoint| (point.hits_percent - now.hits_percent).max(0.0);
    if !more.is_empty() && more.iter().all(|point| gained(point) < 0.5) {
        told.push("More SSD brings no more hits.".into());
        return told;
    }
    told.extend(
        more.iter().map(|point| format!("Another {} = +{:.0} % hits.", human::bytes(point.ssd_bytes - now.ssd_bytes), gained(point))),
    );
    told
}

/// Which latency was not measured.
fn told_assumed(asked: &Asked) -> Option<String> {
    let ssd_us = asked.ssd_us_assumed?;
    let took = human::nanoseconds((ssd_us * 1000.0) as u64);
    Some(format!("No hits of an SSD were measured here: {took} is taken for one."))
}

fn sentences(found: &Answer, targets: &[TargetView], more: &[AdvicePoint], watch: &Watch, asked: &Asked) -> Vec<String> {
    let mut told = Vec::new();
    if let Some(now) = found.now.as_ref().map(point) {
        told.extend(told_now(&now, more, asked.is_budget));
    }
    let totals = watch.totals();
    let (reads, scans) = (totals.read_blocks + totals.scanned_blocks, totals.scanned_blocks);
    let latencies = asked.latencies_taken();
    if let (Some(ssd_us), Some(backing_us)) = (latencies.ssd_us, latencies.backing_us)
        && ssd_us > backing_us * WORTH_PART
    {
        told.push(format!(
            "It is not worth it: the SSD answers in {}, the backing device in {}.",
            human::nanoseconds((ssd_us * 1000.0) as u64),
            human::nanoseconds((backing_us * 1000.0) as u64)
        ));
    } else if reads > 0 && scans * 2 > reads && !asked.with_backups {
        told.push(format!(
            "{} % of what was read was scans and backups, which are left out: they stay as slow as they are.",
            scans * 100 / reads
        ));
    }
    let load = watch.load(asked.with_backups);
    let (again, all) = (load.curve().rereferences(), load.profile().references() as f64);
    if targets.iter().any(|target| target.ssd_bytes.is_some()) && all > 0.0 && again < all / 2.0 {
        told.push(format!(
            "In this time {:.0} % of the reads were of blocks never read before, which no cache answers.",
            (1.0 - again / all) * 100.0
        ));
    }
    if asked.content_factor.is_none() && targets.iter().any(|target| target.ssd_bytes.is_some()) {
        told.push("What content locality saves is not known here, and counted as nothing.".into());
    }
    if scans > 0 && !asked.with_backups {
        told.push(format!("Left out: {} read by scans and backups.", human::bytes(scans.saturating_mul(BLOCK_BYTES))));
    }
    if targets.iter().any(|target| target.read_us.is_some()) {
        told.extend(told_assumed(asked));
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_a_clause() {
        for (why, told) in [
            (NotYet::TooFew { rereferences: 1234.6 }, "1234 of 20000 reads of blocks that were used before"),
            (NotYet::TooShort, "the time watched is too short"),
            (NotYet::TooWide { half_band: 0.31 }, "the band is still ± 31 % wide, more than 10 %"),
            (NotYet::StillNew { share: 0.2031 }, "20.3 % of the latest reads were of blocks never used before, more than 20 %"),
            (NotYet::StillNew { share: 0.41 }, "41 % of the latest reads were of blocks never used before, more than 20 %"),
            (
                NotYet::Grows { before: 256.0 * 100.0, now: 256.0 * 150.0 },
                "the working set still grows: 100 MiB after three quarters of the time, 150 MiB after all of it",
            ),
        ] {
            assert_eq!(not_yet(why), told);
        }
    }
}
