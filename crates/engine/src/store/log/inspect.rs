//! A look at a pool that changes nothing and copes with any damage: for `hearth pool check`.
//!
//! It reads what recovery would read, and besides every header, footer and live payload, and says in words what is wrong. What a
//! crash leaves behind in the ordinary course (a segment without a footer at the end of the log, groups behind it) is no problem.

use super::checkpoint;
use super::recovery::{self, RecoveredItem, RecoveryReport, payload_matches};
use crate::medium::Medium;
use crate::records;
use crate::store::slots;
use crate::superblock::{self, OpenError, PoolState, read_copy};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use format::checkpoint::{CheckpointEntry, LogEnd};
use format::layout::SuperblockSlot;
use format::packed::PLACE_UNIT_BYTES;
use format::{DecodeError, Encoding, Footer, FooterHead, GroupHead, Layout, PAGE_BYTES, Record, RecordKind, Superblock};
use types::{ShardIndex, VolumeId, counted};

/// Problems told in words; further ones are only counted.
pub const PROBLEMS_MAX: usize = 1000;

/// What is on the device.
#[derive(Clone, Debug, Default)]
pub struct Inspection {
    /// The superblock in use; `None` if there is none, and then the problems say why.
    pub superblock: Option<Superblock>,
    /// Generations of the two superblock copies; `None` for one that is not intact.
    pub generations: [Option<u64>; 2],
    /// For a pool that was stopped in order: whether its checkpoint is whole.
    pub checkpoint_whole: Option<bool>,
    /// One a shard.
    pub shards: Vec<ShardInspection>,
    /// One a volume of the superblock.
    pub volumes: Vec<VolumeInspection>,
    /// What is wrong, in words; at most [`PROBLEMS_MAX`].
    pub problems: Vec<String>,
    /// How many problems there are.
    pub problems_count: u64,
}

/// The log of one shard.
#[derive(Clone, Debug)]
pub struct ShardInspection {
    /// Which.
    pub shard: ShardIndex,
    /// Where a recovery would go on.
    pub end: LogEnd,
    /// What a recovery would report (no footers were written).
    pub recovery: RecoveryReport,
    /// Live segments with a whole footer.
    pub footers: u64,
    /// Group headers found whole in live segments.
    pub headers: u64,
    /// Live blocks and bases whose payloads, as far as they have any of their own, were read and compared with their checksums. Packed ones
    /// are not decoded.
    pub payloads: u64,
    /// Live clean payloads that do not match: misses, nothing lost. Bases count here too.
    pub clean_mismatches: u64,
    /// Live dirty payloads that do not match, or whose base is gone: lost writes.
    pub dirty_mismatches: u64,
}

impl ShardInspection {
    pub(crate) fn new(shard: ShardIndex, end: LogEnd, recovery: RecoveryReport) -> ShardInspection {
        ShardInspection { shard, end, recovery, footers: 0, headers: 0, payloads: 0, clean_mismatches: 0, dirty_mismatches: 0 }
    }
}

/// What the log holds of one volume.
#[derive(Clone, Debug)]
pub struct VolumeInspection {
    /// Its number.
    pub id: VolumeId,
    /// Live blocks equal to the backing device.
    pub clean_blocks: u64,
    /// Live blocks newer than the backing device.
    pub dirty_blocks: u64,
}

/// Looks at everything. `progress` is told now and then how many of how many segments were looked at.
///
/// Never fails: what cannot be read or understood is a problem in the result.
pub fn inspect(medium: &mut dyn Medium, progress: &mut dyn FnMut(u64, u64)) -> Inspection {
    let mut result = Inspection::default();
    for (nth, slot) in SuperblockSlot::ALL.into_iter().enumerate() {
        let copy = read_copy(medium, slot);
        match copy {
            Ok(Ok(superblock)) => result.generations[nth] = Some(superblock.generation),
            Ok(Err(error)) => result.problem(|| format!("superblock copy {slot:?}: {error}")),
            Err(error) => result.problem(|| format!("superblock copy {slot:?}: {error}")),
        }
    }
    let pool = match superblock::load(medium) {
        Ok(pool) => pool,
        Err(error) => {
            result.problem(|| error.to_string());
            return result;
        }
    };
    if let [Some(a), Some(b)] = result.generations
        && a != b
    {
        result.problem(|| format!("the superblock copies have generations {a} and {b}: a store was interrupted"));
    }
    result.volumes =
        pool.superblock.volumes.iter().map(|volume| VolumeInspection { id: volume.id, clean_blocks: 0, dirty_blocks: 0 }).collect();
    for volume in pool.superblock.volumes.iter().filter(|volume| volume.damaged) {
        result.problem(|| format!("volume {:?} may have lost dirty data in earlier damage", volume.name));
    }
    match records::load(medium, pool.superblock.uuid) {
        Ok(found) if found.damaged > 0 => {
            result.problem(|| format!("{} of 2 copies of hearth's state on the SSD cannot be read", found.damaged));
        }
        Ok(_) => {}
        Err(error) => result.problem(|| format!("the copies of hearth's state on the SSD: {error}")),
    }
    result.look_at_checkpoint(medium, &pool);
    let mut done = 0;
    let total = u64::from(pool.superblock.layout.shards) * u64::from(pool.superblock.layout.segments_per_shard);
    for shard in (0..pool.superblock.layout.shards).map(ShardIndex) {
        result.look_at_shard(medium, &pool.superblock, shard, &mut |segments| progress(done + segments, total));
        done += u64::from(pool.superblock.layout.segments_per_shard);
        progress(done, total);
    }
    result.superblock = Some(pool.superblock);
    result
}

/// Counts the live blocks of each volume in the log of one shard: from the checkpoint of the last stop, or as a recovery would find them.
///
/// # Errors
/// What the medium says.
pub fn count_blocks(medium: &mut dyn Medium, pool: &PoolState, shard: ShardIndex) -> Result<Vec<VolumeInspection>, OpenError> {
    let ids = || pool.superblock.volumes.iter().map(|volume| volume.id);
    let fresh = || -> Vec<VolumeInspection> { ids().map(|id| VolumeInspection { id, clean_blocks: 0, dirty_blocks: 0 }).collect() };
    let count = |counts: &mut Vec<VolumeInspection>, id: VolumeId, dirty: bool| {
        if let Some(volume) = counts.iter_mut().find(|volume| volume.id == id) {
            *if dirty { &mut volume.dirty_blocks } else { &mut volume.clean_blocks } += 1;
        }
    };
    if pool.superblock.layout.has_slots() {
        let mut counts = fresh();
        slots::recovery::survey(medium, &pool.superblock, shard, &mut |set: &slots::recovery::SlotFound| {
            count(&mut counts, set.volume, set.dirty)
        })?;
        return Ok(counts);
    }
    if let Some(saved) = checkpoint::open(medium, pool)? {
        let mut counts = fresh();
        let mut sink = |_: u32, entry: CheckpointEntry| count(&mut counts, saved.volumes()[usize::from(entry.volume)], entry.dirty);
        if saved.load_shard(medium, pool, shard, &mut sink)? {
            return Ok(counts);
        }
    }
    let mut counts = fresh();
    let mut sink = |item: RecoveredItem| {
        if let RecoveredItem::Block(record) = item {
            count(&mut counts, record.volume, record.dirty);
        }
    };
    recovery::survey(medium, &pool.superblock, shard, &mut sink)?;
    Ok(counts)
}

impl Inspection {
    pub(crate) fn problem(&mut self, text: impl FnOnce() -> String) {
        self.problems_count += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(text());
        }
    }

    fn look_at_checkpoint(&mut self, medium: &mut dyn Medium, pool: &PoolState) {
        if !pool.superblock.clean || pool.superblock.layout.has_slots() {
            return;
        }
        let whole = checkpoint_is_whole(medium, pool);
        self.checkpoint_whole = Some(whole == Ok(true));
        match whole {
            Ok(true) => {}
            Ok(false) => self.problem(|| "the checkpoint of the last stop is damaged: the next start reads the log".to_string()),
            Err(error) => self.problem(|| format!("the checkpoint of the last stop: {error}")),
        }
    }

    fn look_at_shard(&mut self, medium: &mut dyn Medium, superblock: &Superblock, shard: ShardIndex, progress: &mut dyn FnMut(u64)) {
        if superblock.layout.has_slots() {
            return self.look_at_slots(medium, superblock, shard, progress);
        }
        let mut live = Vec::new();
        let surveyed = match recovery::survey(medium, superblock, shard, &mut |item| live.push(item)) {
            Ok(surveyed) => surveyed,
            Err(error) => return self.problem(|| format!("shard {}: {error}", shard.0)),
        };
        let report = surveyed.recovery.report;
        self.tell_damage(shard, &report);
        for item in &live {
            if let RecoveredItem::Block(record) = item {
                self.count_block(record.volume, record.dirty);
            }
        }
        let mut inspection = ShardInspection::new(shard, surveyed.recovery.end, report);
        self.look_at_bases(&live, &mut inspection);
        // Live records come in log order, as the segments do.
        let mut live = live.as_slice();
        for (nth, segment) in surveyed.segments.iter().enumerate() {
            let count = live.iter().take_while(|item| item.segment_seq() <= segment.seq).count();
            let (here, rest) = live.split_at(count);
            live = rest;
            self.look_at_segment(medium, &superblock.layout, segment, here, &mut inspection);
            progress(nth as u64);
        }
        self.shards.push(inspection);
    }

    pub(crate) fn tell_damage(&mut self, shard: ShardIndex, report: &RecoveryReport) {
        if report.damaged_places > 0 {
            let (places, volumes) = (counted(report.damaged_places, "place"), counted(report.damaged_volumes.len() as u64, "volume"));
            self.problem(|| format!("shard {}: flushed groups are missing in {places}; {volumes} may have lost dirty data", shard.0));
        }
        if report.unreadable_pages > 0 {
            self.problem(|| format!("shard {}: {} cannot be read", shard.0, counted(report.unreadable_pages, "page")));
        }
    }

    pub(crate) fn count_block(&mut self, id: VolumeId, dirty: bool) {
        if let Some(volume) = self.volumes.iter_mut().find(|volume| volume.id == id) {
            *if dirty { &mut volume.dirty_blocks } else { &mut volume.clean_blocks } += 1;
        }
    }

    fn look_at_segment(
        &mut self,
        medium: &mut dyn Medium,
        layout: &Layout,
        segment: &recovery::SurveyedSegment,
        live: &[RecoveredItem],
        shard: &mut ShardInspection,
    ) {
        let bytes = self.read_segment(medium, layout, segment.seq, shard.shard);
        self.look_at_footer(layout, segment, &bytes, shard);
        let (pages, _) = bytes.as_chunks::<PAGE_BYTES>();
        self.look_at_headers(segment, pages, shard);
        for item in live {
            self.look_at_payload(segment.seq, pages, item, shard);
        }
    }

    /// The bytes of a segment. Pages that cannot be read are a problem each, and zeroes.
    fn read_segment(&mut self, medium: &mut dyn Medium, layout: &Layout, seq: u64, shard: ShardIndex) -> Vec<u8> {
        let mut bytes = vec![0; layout.segment_bytes as usize];
        let offset_bytes = layout.segment_offset(shard, layout.physical(seq));
        if medium.read(offset_bytes, &mut bytes).is_err() {
            for (page, nth) in bytes.chunks_exact_mut(PAGE_BYTES).zip(0u64..) {
                if let Err(error) = medium.read(offset_bytes + nth * PAGE_BYTES as u64, page) {
                    page.fill(0);
                    self.problem(|| format!("shard {}, segment {seq}: {error}", shard.0));
                }
            }
        }
        bytes
    }

    fn look_at_footer(&mut self, layout: &Layout, segment: &recovery::SurveyedSegment, bytes: &[u8], shard: &mut ShardInspection) {
        let (seq, nth_shard) = (segment.seq, shard.shard.0);
        let (groups, reserved) = bytes.split_at(layout.group_pages() as usize * PAGE_BYTES);
        let overflow_pages = FooterHead::decode(reserved).map_or(0, |(_, count)| layout.footer_overflow_pages(count));
        let overflow = groups.len().saturating_sub(overflow_pages as usize * PAGE_BYTES);
        match Footer::decode(reserved, &groups[overflow..]) {
            Ok(footer) if footer.head.segment_seq == seq && footer.head.session == segment.session => shard.footers += 1,
            // None yet, or the one of an earlier lap.
            Ok(_) | Err(DecodeError::Magic) if segment.in_session => {}
            Ok(_) => self.problem(|| format!("shard {nth_shard}, segment {seq}: the footer is another segment's")),
            Err(_) if segment.in_session => {}
            Err(error) => self.problem(|| format!("shard {nth_shard}, segment {seq}, footer: {error}")),
        }
    }

    /// The headers of a segment's groups, up to the first that is not as it should be: it says where the next one is.
    fn look_at_headers(&mut self, segment: &recovery::SurveyedSegment, pages: &[[u8; PAGE_BYTES]], shard: &mut ShardInspection) {
        let (seq, nth_shard) = (segment.seq, shard.shard.0);
        let (mut page, mut group) = (0, segment.first_group);
        while group <= segment.last_group {
            let Some(bytes) = pages.get(page as usize) else { break };
            let found = GroupHead::decode(bytes);
            match found {
                Ok((head, records)) if (head.group, head.segment_seq) == (group, seq) => {
                    shard.headers += 1;
                    page += GroupHead::pages(&records);
                    group += 1;
                }
                Ok(_) => {
                    self.problem(|| {
                        format!("shard {nth_shard}, segment {seq}, page {page}: another header stands where group {group} should")
                    });
                    break;
                }
                Err(error) => {
                    self.problem(|| format!("shard {nth_shard}, segment {seq}, page {page}, header of group {group}: {error}"));
                    break;
                }
            }
        }
    }

    /// Compares the payload of a live record with its checksum.
    fn look_at_payload(&mut self, seq: u64, pages: &[[u8; PAGE_BYTES]], item: &RecoveredItem, shard: &mut ShardInspection) {
        let nth_shard = shard.shard.0;
        shard.payloads += 1;
        let record = item.record();
        if item.stored().is_some_and(|stored| stored.encoding == Encoding::Lost) {
            *if matches!(item, RecoveredItem::Block(record) if record.dirty) {
                &mut shard.dirty_mismatches
            } else {
                &mut shard.clean_mismatches
            } += 1;
            self.problem(|| format!("shard {nth_shard}, segment {seq}: {} could not be read when it was moved", what(item)));
            return;
        }
        if payload_matches(&record, pages) {
            return;
        }
        let dirty = record.kind == RecordKind::DataDirty;
        *if dirty { &mut shard.dirty_mismatches } else { &mut shard.clean_mismatches } += 1;
        self.problem(|| format!("shard {nth_shard}, segment {seq}, {}: {} does not match its checksum", place(&record), what(item)));
    }

    /// Whether all that dirty blocks rest on is there; where clean ones do, recovery has forgotten them.
    fn look_at_bases(&mut self, live: &[RecoveredItem], shard: &mut ShardInspection) {
        let stored = || live.iter().filter_map(RecoveredItem::stored);
        let objects: BTreeSet<u64> = stored().filter(|stored| stored.encoding.is_full()).map(|stored| stored.object).collect();
        for item in live {
            if let Some(stored) = item.stored().filter(|stored| stored.encoding.rests_on_base() && !objects.contains(&stored.object)) {
                shard.dirty_mismatches += 1;
                let (nth_shard, seq) = (shard.shard.0, item.segment_seq());
                self.problem(|| {
                    format!("shard {nth_shard}, segment {seq}: {} rests on object {} that is not there", what(item), stored.object)
                });
            }
        }
    }
}

/// Where the payload of a record lies in its segment, in words.
fn place(record: &Record) -> String {
    match record.packed.filter(|packed| packed.encoding.has_packed_payload()) {
        Some(packed) => {
            let at = u64::from(packed.place) * u64::from(PLACE_UNIT_BYTES);
            format!("page {} from byte {}, {} bytes", at / PAGE_BYTES as u64, at % PAGE_BYTES as u64, packed.bytes)
        }
        None => format!("page {}", record.slot_page),
    }
}

/// What is given, in words.
fn what(item: &RecoveredItem) -> String {
    let stored = item.stored().map_or(String::new(), |stored| match stored.object {
        0 => format!(" ({:?})", stored.encoding),
        object if stored.encoding.is_full() => format!(" ({:?}, object {object})", stored.encoding),
        object => format!(" ({:?} on object {object})", stored.encoding),
    });
    match item {
        RecoveredItem::Block(record) => {
            let kind = if record.dirty { "dirty" } else { "clean" };
            format!("{kind} block {} of volume {}{stored}", record.block, record.volume.0)
        }
        RecoveredItem::Base(_) => format!("base{stored}"),
    }
}

fn checkpoint_is_whole(medium: &mut dyn Medium, pool: &PoolState) -> Result<bool, OpenError> {
    let Some(checkpoint) = checkpoint::open(medium, pool)? else { return Ok(false) };
    for shard in (0..pool.superblock.layout.shards).map(ShardIndex) {
        if !checkpoint.load_shard(medium, pool, shard, &mut |_, _| {})? {
            return Ok(false);
        }
    }
    Ok(true)
}
