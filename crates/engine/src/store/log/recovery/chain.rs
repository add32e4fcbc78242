//! Where the log ends, where its tail is, and what lies between.

use super::RecoveryReport;
use super::read::{BadObjects, Reader};
use super::segment::{Group, Sealed, Segment};
use crate::mutants;
use crate::superblock::OpenError;
use alloc::vec;
use alloc::vec::Vec;
use format::GroupHead;
use format::checkpoint::LogEnd;

/// How many segments behind a break are looked at for a continuation. A writer has fewer segments in the making at a time;
/// sealed ones are found by their footers.
const SEGMENTS_AHEAD: u64 = 8;

/// The log of a shard: live segments in ascending order.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub end: LogEnd,
    pub segments: Vec<Segment>,
}

impl Found {
    /// How many segments from the tail on make a log. Checksums that match do not say that what they cover was written by one writer: of an
    /// SSD that somebody changed, or put together from two, anything can be read.
    fn sound(&self) -> usize {
        let LogEnd { next_seq, next_group, tail_seq } = self.end;
        let fits = |at: usize| {
            let segment = &self.segments[at];
            let follows = at
                .checked_sub(1)
                .map(|before| &self.segments[before])
                .is_none_or(|before| before.seq < segment.seq && before.last_group < segment.first_group);
            let is_within = (tail_seq..next_seq).contains(&segment.seq) && segment.last_group < next_group;
            follows && is_within && segment.first_group <= segment.last_group
        };
        (0..self.segments.len()).take_while(|at| fits(*at)).count()
    }

    /// Takes what makes a log, if `force`.
    ///
    /// # Errors
    /// [`OpenError::Contradiction`], without `force`.
    fn checked(mut self, force: bool, report: &mut RecoveryReport) -> Result<Found, OpenError> {
        let sound = self.sound();
        if let Some(first) = self.segments.get(sound) {
            if !force {
                return Err(OpenError::Contradiction { segment: first.seq });
            }
            report.damaged_places += 1;
            self.segments.truncate(sound);
        }
        self.end.tail_seq = self.end.tail_seq.min(self.end.next_seq);
        Ok(self)
    }
}

/// The groups of segments walked one behind the other without a gap.
type Run = Vec<Vec<Group>>;

/// Footers by physical segment, and which of them are believed although they end above the watermark.
struct Footers {
    /// Groups up to this one were flushed, by the footers and the session's start, and by what was learned while walking.
    claimed: u64,
    sealed: Vec<Option<Sealed>>,
    trusted: Vec<bool>,
    /// Objects in the last segment so believed that are not there. In those before it all is flushed.
    bad: BadObjects,
}

impl Footers {
    fn get(&self, reader: &Reader, seq: u64) -> Option<&Sealed> {
        let sealed = self.sealed[reader.layout.physical(seq) as usize].as_ref()?;
        (sealed.head.segment_seq == seq && reader.session_fits(seq, sealed.head.session)).then_some(sealed)
    }

    /// All that the current session wrote.
    fn current<'a>(&'a self, reader: &'a Reader) -> impl Iterator<Item = &'a Sealed> {
        let (session, first_seq) = (reader.session, reader.start.first_seq);
        self.sealed.iter().flatten().filter(move |sealed| sealed.head.session == session && sealed.head.segment_seq >= first_seq)
    }

    /// Whether a segment is taken from this footer without a look at its groups.
    fn suffices(&self, reader: &Reader, sealed: &Sealed, watermark: u64) -> bool {
        sealed.head.segment_seq < reader.start.first_seq
            || sealed.head.last_group <= watermark
            || self.trusted[reader.layout.physical(sealed.head.segment_seq) as usize]
    }
}

/// Finds the log. Reads only.
pub(super) fn find(reader: &mut Reader, report: &mut RecoveryReport) -> Result<Found, OpenError> {
    let sealed = super::footers::read(reader);
    let (claimed, trusted) = (reader.start.first_group - 1, vec![false; sealed.len()]);
    let mut footers = Footers { claimed, sealed, trusted, bad: BadObjects::default() };
    let claims = footers.current(reader).map(|sealed| sealed.head.durable_group);
    footers.claimed = claims.fold(claimed, u64::max);
    // Each round that does not return believes one more footer or raises the claim.
    loop {
        if let Some(found) = find_with(reader, &mut footers, report)? {
            report.unreadable_pages = reader.unreadable_pages;
            if reader.session_seen > reader.session && !reader.force {
                return Err(OpenError::SuperblockOutdated { found: reader.session_seen, known: reader.session });
            }
            return found.checked(reader.force, report);
        }
    }
}

/// The part of the log that this session wrote and that footers do not settle.
struct Head {
    /// What is accepted of it.
    segments: Vec<Segment>,
    discarded_groups: u64,
    /// Groups up to the watermark are missing behind the last accepted one.
    lost_end: bool,
}

/// One attempt; `None` if another footer is believed now and all must be seen anew.
fn find_with(reader: &mut Reader, footers: &mut Footers, report: &mut RecoveryReport) -> Result<Option<Found>, OpenError> {
    let start = reader.start;
    let settled = footers.claimed;
    let anchor = footers
        .current(reader)
        .filter(|sealed| footers.suffices(reader, sealed, settled))
        .max_by_key(|sealed| sealed.head.segment_seq)
        .map(Segment::from_footer);
    let place = match &anchor {
        Some(anchor) => anchor.next(),
        None => first_place(reader, footers, settled)?,
    };
    let Walked { mut runs, claimed } = collect_runs(reader, place, settled)?;
    if mutants::active(mutants::BAD_GROUP_ENDS_LOG) {
        runs.truncate(1);
    }
    let claims = runs.iter().flatten().flatten().map(|group| group.head.durable_group);
    let watermark = claims.fold(settled.max(claimed), u64::max);
    let broken_at = runs[0].last().and_then(|groups| groups.last()).map_or(place.1, |last| last.head.group + 1);
    if let Some(claim) = overwritten(reader, place.0 + runs[0].len() as u64)?
        && claim > settled
    {
        footers.claimed = claim;
        return Ok(None);
    }
    if broken_at <= watermark && believe_a_footer(reader, footers, place.0, broken_at)? {
        return Ok(None);
    }
    let mut head = accept(runs, place.1, watermark, footers.bad.clone());
    for segment in &mut head.segments {
        segment.has_footer = footers.get(reader, segment.seq).is_some_and(|sealed| {
            let footer = &sealed.head;
            (footer.first_group, footer.last_group, footer.resume_seq) == (segment.first_group, segment.last_group, 0)
        });
    }

    let last = head.segments.last().or(anchor.as_ref());
    let tail_seq = last.map_or(0, |segment| segment.tail_seq).max(start.tail_seq);
    let (next_seq, mut next_group) = last.map_or((start.first_seq, start.first_group), Segment::next);
    // Of more segments than the ring has, the older ones are overwritten, whatever somebody says.
    let tail_seq = tail_seq.max(next_seq.saturating_sub(u64::from(reader.layout.segments_per_shard)));
    if head.lost_end {
        next_group = next_group.max(watermark + 1);
    }
    let mut end = LogEnd { next_seq, next_group, tail_seq };
    report.walked_segments = 0;
    let mut segments = settled_segments(reader, footers, tail_seq..place.0, place.1, report)?;
    report.sealed_segments = segments.len() as u64 - report.walked_segments;
    segments.extend(head.segments.into_iter().filter(|segment| segment.seq >= tail_seq));
    report.damaged_places = mark_holes(reader, &mut segments, &mut end);
    // With nothing before it, such a hole has no footer to be marked in; the start that follows records it all the same.
    report.damaged_places += u64::from(head.lost_end && segments.is_empty());
    if mutants::active(mutants::BAD_GROUP_ENDS_LOG) {
        report.damaged_places = 0;
    }
    report.durable_group = watermark;
    report.discarded_groups = head.discarded_groups;
    Ok(Some(Found { end, segments }))
}

/// If a later lap stands where segment `seq` would be: up to which group it calls the log flushed. That covers all that made it
/// right to overwrite the segment.
fn overwritten(reader: &mut Reader, seq: u64) -> Result<Option<u64>, OpenError> {
    let head = reader.first_head_of_any_lap(seq)?;
    Ok(head.filter(|head| head.segment_seq > seq && head.session == reader.session).map(|head| head.durable_group))
}

/// Where to begin to walk if no footer of this session settles anything: at the start of the session, unless that was
/// overwritten since.
fn first_place(reader: &mut Reader, footers: &Footers, settled: u64) -> Result<(u64, u64), OpenError> {
    let start = (reader.start.first_seq, reader.start.first_group);
    if settled < start.1 || reader.first_head(start.0)?.is_some_and(|head| head.session == reader.session) {
        return Ok(start);
    }
    // The first group is known to be flushed, but another lap's segment stands in its place.
    let lowest = footers.current(reader).map(|sealed| &sealed.head).min_by_key(|head| head.segment_seq);
    Ok(lowest.filter(|head| head.first_group <= settled + 1).map_or(start, |head| (head.segment_seq, head.first_group)))
}

/// What was walked: runs in ascending order, the first of them (perhaps empty) from the place asked for.
struct Walked {
    runs: Vec<Run>,
    /// The highest group that anything found behind a break calls flushed.
    claimed: u64,
}

/// Walks from `place`, and from each later segment where something of this session stands behind a break.
fn collect_runs(reader: &mut Reader, place: (u64, u64), settled: u64) -> Result<Walked, OpenError> {
    let mut walked = Walked { runs: Vec::new(), claimed: 0 };
    let first = walk_run(reader, place.0, Some(place.1), settled, &mut walked.claimed)?;
    let mut seq = place.0 + first.len() as u64;
    walked.runs.push(first);
    let mut ahead = 0;
    while ahead < SEGMENTS_AHEAD {
        let run = walk_run(reader, seq + ahead, None, settled, &mut walked.claimed)?;
        if run.is_empty() {
            // Where several headers in a row are lost, the next one that is left tells that there was something. What cannot be read may be
            // the one that tells: that is an error, not the end of the log.
            let image = reader.image(seq + ahead)?;
            walked.claimed = walked.claimed.max(reader.claims(seq + ahead, &image, 0));
            ahead += 1;
        } else {
            seq += ahead + run.len() as u64;
            ahead = 0;
            walked.runs.push(run);
        }
    }
    // No more groups than pages can be behind the break: nobody shall lead us further by a forged header in a payload.
    let plausible = walked.claimed <= place.1.saturating_add(u64::from(reader.layout.slots_per_shard()));
    walked.claimed *= u64::from(plausible);
    Ok(walked)
}

fn walk_run(reader: &mut Reader, mut seq: u64, mut expected: Option<u64>, settled: u64, claimed: &mut u64) -> Result<Run, OpenError> {
    let mut run = Run::new();
    // Ends by itself: each step finds its own sequence number in a physical segment that no other step looked at.
    loop {
        let here = reader
            .first_head(seq)?
            .is_some_and(|head| reader.session_fits(seq, head.session) && expected.is_none_or(|expected| head.group == expected));
        if !here {
            return Ok(run);
        }
        let image = reader.image(seq)?;
        let groups = reader.walk(seq, &image, expected, u64::MAX, settled);
        let Some(last) = groups.last() else {
            return Ok(run);
        };
        let end_page = last.head.page + GroupHead::pages(&last.records);
        *claimed = (*claimed).max(reader.claims(seq, &image, end_page));
        expected = Some(last.head.group + 1);
        run.push(groups);
        seq += 1;
    }
}

/// A group that was flushed has no header any more. If the footer of its segment is whole and everything is there that the dirty records
/// it tells of need, it is believed; says whether there was one.
fn believe_a_footer(reader: &mut Reader, footers: &mut Footers, from_seq: u64, missing_group: u64) -> Result<bool, OpenError> {
    let candidate = footers.current(reader).find(|sealed| {
        let head = &sealed.head;
        head.segment_seq >= from_seq && (head.first_group..=head.last_group).contains(&missing_group)
    });
    let Some(sealed) = candidate.cloned() else {
        return Ok(false);
    };
    let trusted = &mut footers.trusted[reader.layout.physical(sealed.head.segment_seq) as usize];
    if *trusted {
        return Ok(false);
    }
    let Some(bad) = reader.payloads_match(&sealed)? else { return Ok(false) };
    *trusted = true;
    footers.bad = bad;
    Ok(true)
}

/// Decides how much of what was walked belongs to the log.
///
/// The log may end with a group if everything live then is there: all groups from the segment that its `tail_seq` names up to
/// itself. What is torn or missing before that segment does no harm: it was evicted, and its place perhaps used again, while the
/// newest claim on the medium was still older than it. The last such group is the end. `bad`: objects before the runs that are not there.
fn accept(runs: Vec<Run>, first_group: u64, watermark: u64, mut bad: BadObjects) -> Head {
    let (mut last_group, mut expected) = (first_group - 1, first_group);
    // The newest segment with something torn or missing above the watermark.
    let mut broken_seq = 0;
    for run in &runs {
        if let Some(first) = run.first().and_then(|groups| groups.first())
            && first.head.group != expected
            && expected > watermark
            && !mutants::active(mutants::GAP_ACCEPTED)
        {
            broken_seq = first.head.segment_seq - 1;
        }
        for group in run.iter().flatten() {
            if group.head.group > watermark && !bad.group_is_intact(group) {
                broken_seq = group.head.segment_seq;
            }
            if group.head.tail_seq > broken_seq {
                last_group = group.head.group;
            }
            expected = group.head.group + 1;
        }
    }
    let mut head = Head { segments: Vec::new(), discarded_groups: 0, lost_end: last_group < watermark };
    for mut groups in runs.into_iter().flatten() {
        let whole = groups.len();
        groups.retain(|group| group.head.group <= last_group);
        head.discarded_groups += (whole - groups.len()) as u64;
        head.segments.extend(Segment::from_groups(&groups));
    }
    head
}

/// The live segments before `range.end`, where group `end_group` follows: by their footers, else by their headers.
fn settled_segments(
    reader: &mut Reader,
    footers: &Footers,
    range: core::ops::Range<u64>,
    end_group: u64,
    report: &mut RecoveryReport,
) -> Result<Vec<Segment>, OpenError> {
    let mut segments: Vec<Segment> = Vec::new();
    let mut bad = BadObjects::default();
    // More than a ring cannot be live; an absurd tail must not cost an absurd time.
    let first_seq = range.start.max(range.end.saturating_sub(u64::from(reader.layout.segments_per_shard)));
    for seq in first_seq..range.end {
        let expected = match segments.last().map(Segment::next) {
            Some((next_seq, _)) if next_seq > seq => continue,
            Some((next_seq, group)) if next_seq == seq => Some(group),
            _ => None,
        };
        let footer = footers.get(reader, seq);
        if let Some(sealed) = footer
            && expected.is_none_or(|expected| expected == sealed.head.first_group)
        {
            segments.push(Segment::from_footer(sealed));
            continue;
        }
        // What follows tells with which number this segment must end.
        let next_group = if seq + 1 == range.end {
            Some(end_group)
        } else if let Some(next) = footers.get(reader, seq + 1) {
            Some(next.head.first_group)
        } else {
            reader.first_head(seq + 1)?.filter(|head| reader.session_fits(seq + 1, head.session)).map(|head| head.group)
        };
        let image = reader.image(seq)?;
        let (last, verify_above) = next_group.map_or((u64::MAX, 0), |next| (next.saturating_sub(1), u64::MAX));
        let mut groups = reader.walk(seq, &image, expected, last, verify_above);
        groups.truncate(groups.iter().position(|group| !bad.group_is_intact(group)).unwrap_or(groups.len()));
        if let Some(segment) = Segment::from_groups(&groups) {
            segments.push(segment);
            report.walked_segments += 1;
        } else if let Some(sealed) = footer {
            segments.push(Segment::from_footer(sealed));
        }
    }
    Ok(segments)
}

/// Finds and marks the places where groups are missing. Gives the count of those that no earlier start has recorded.
fn mark_holes(reader: &Reader, segments: &mut [Segment], end: &mut LogEnd) -> u64 {
    let mut holes = 0;
    let first_seq = segments.first().map_or(end.next_seq, |first| first.seq).min(end.next_seq);
    if first_seq != end.tail_seq {
        // The oldest segments are gone. The raised tail keeps the next start from missing them again.
        holes += 1;
        end.tail_seq = first_seq;
    }
    for index in 0..segments.len() {
        let behind = segments.get(index + 1).map_or((end.next_seq, end.next_group), |next| (next.seq, next.first_group));
        let segment = &mut segments[index];
        let known = segment.next() == behind;
        let hole = segment.resume.is_some() || !known;
        // The session that began after the damage was found has recorded it.
        let recorded = known && segment.marked_in_session < reader.session;
        if !known {
            segment.resume = Some(behind);
            segment.marked_in_session = reader.session;
            segment.has_footer = false;
        }
        holes += u64::from(hole && !recorded);
        if hole && let Some(next) = segments.get_mut(index + 1) {
            next.hole_before = true;
        }
    }
    holes
}
