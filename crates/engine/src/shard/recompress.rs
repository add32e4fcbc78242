//! Cold segments are recompressed while nobody asks for anything: the cleaner takes the oldest one back ahead of need.
//!
//! Under load blocks are stored as LZ4 leaves them, or as they are. When no client has asked for anything for a while and the next writes
//! would have to take back a segment, that is done now: everything in it is appended again, what was stored in full as zstd leaves it,
//! and the room that this gains lets later writes push out less. The policy is not asked and does not notice: nothing is forgotten, no use fades.
//!
//! What it costs is bounded. A segment that was written here is not taken back here again, so that idling rewrites at most what others have
//! written, once. It goes from the tail while blocks stored in full without zstd make up half of the bytes there, and rests when the last
//! segments shrank by less than [`GAIN_PERCENT_MIN`] until an eighth of the ring has been written anew. A client's request stops it before the
//! next read; the segment then waits, partly moved, until clients rest again or the cleaner needs it. Both the waiting and the work end: then
//! there is nothing to wake for until the log opens a segment.

use super::{RESERVE_SEGMENTS, Shard};
use crate::index::Encoding;
use alloc::collections::VecDeque;
use format::GROUP_RECORDS_MAX;
use format::packed::PLACE_UNIT_BYTES;
use types::BLOCK_BYTES;

/// How long no client has asked for anything when the shard counts as idle; it is noticed after up to twice as long. By then dirty blocks
/// are on their way home and the log's end is durable, and pauses between two bursts are mostly shorter.
const IDLE_AFTER_NS: u64 = 2_000_000_000;
/// The log counts as full with one in this many segments more free than the cleaner keeps, and one: a large write may have made room for more.
const FULL_ONE_IN: u64 = 32;
/// Between the end of one segment and the next, so that the shard is never busy for long.
const PAUSE_NS: u64 = 10_000_000;
/// When the budget of CPU time is half spent, it is looked at again after this long: it has earned a tenth of a second's worth.
const BUDGET_PAUSE_NS: u64 = 100_000_000;
/// Segments at the tail that are looked at together: one in which little is to be gained is carried along if those behind it make up for it.
const AHEAD_SEGMENTS: u64 = 4;
/// Segments' worth of rewritten bytes by which the gain is judged.
const JUDGED_SEGMENTS: u64 = 4;
/// Of the rewritten bytes so many in a hundred must be gained, or it is not worth the writing.
const GAIN_PERCENT_MIN: u64 = 8;
/// One in this many segments of the ring must be written anew before it is tried again where it gained too little.
const REST_ONE_IN: u64 = 8;

/// See the module.
pub struct Recompression {
    /// When to look whether clients rest; `u64::MAX`: not before a segment is opened.
    look_ns: u64,
    /// Requests of clients at the last look, and whether there had been none since the one before.
    requests: u64,
    idle: bool,
    /// It has begun, and goes on as long as it pays although there is room by now.
    under_way: bool,
    /// The segments written here, as ranges that end before their second number; oldest first.
    written: VecDeque<(u64, u64)>,
    /// Nothing is begun before the log has come to this segment.
    rest_until_seq: u64,
    /// Where the head was when work on the segment being taken back was begun or taken up again; `None` while nothing is written here.
    since_seq: Option<u64>,
    /// Bytes alive in that segment, and what was saved in all before it.
    begun_bytes: u64,
    saved_before: u64,
    /// Bytes rewritten and gained lately.
    rewritten_bytes: u64,
    gained_bytes: u64,
    /// Segments taken back ahead of need.
    segments: u64,
    /// Blocks that became zstd on their way through the cleaner, whatever for, and bytes saved by that.
    blocks: u64,
    saved_bytes: u64,
}

impl Default for Recompression {
    fn default() -> Recompression {
        Recompression {
            look_ns: u64::MAX,
            requests: 0,
            idle: false,
            under_way: false,
            written: VecDeque::new(),
            rest_until_seq: 0,
            since_seq: None,
            begun_bytes: 0,
            saved_before: 0,
            rewritten_bytes: 0,
            gained_bytes: 0,
            segments: 0,
            blocks: 0,
            saved_bytes: 0,
        }
    }
}

impl Recompression {
    /// When [`Shard::recompress_when_idle`] should look again if nothing happens.
    pub fn deadline(&self) -> Option<u64> {
        (self.look_ns != u64::MAX).then_some(self.look_ns)
    }

    /// Something changed that may give it work.
    pub fn may_begin(&mut self, now_ns: u64) {
        self.look_ns = self.look_ns.min(now_ns + IDLE_AFTER_NS);
    }

    /// A block was stored denser by so many bytes.
    pub fn saved(&mut self, bytes: u64) {
        self.blocks += 1;
        self.saved_bytes += bytes;
    }

    /// Segments taken back ahead of need; blocks made denser by the cleaner, whatever for; bytes saved by that.
    pub fn counts(&self) -> (u64, u64, u64) {
        (self.segments, self.blocks, self.saved_bytes)
    }

    /// Whether what is appended now is appended here.
    pub fn is_writing(&self) -> bool {
        self.since_seq.is_some()
    }

    fn has_written(&self, seq: u64) -> bool {
        self.written.iter().any(|(first, end)| (*first..*end).contains(&seq))
    }

    fn note_written(&mut self, first: u64, end: u64, tail_seq: u64) {
        while self.written.front().is_some_and(|range| range.1 <= tail_seq) {
            self.written.pop_front();
        }
        match self.written.back_mut().filter(|range| first <= range.1) {
            Some(range) => range.1 = range.1.max(end),
            None => self.written.push_back((first, end)),
        }
    }

    fn end(&mut self) {
        self.under_way = false;
        self.look_ns = u64::MAX;
    }
}

/// What a segment holds.
#[derive(Default)]
struct Worth {
    /// Bytes of what is alive.
    live_bytes: u64,
    /// Of them, those of blocks stored in full without zstd where zstd is allowed.
    loose_bytes: u64,
    /// Pages that what is alive takes where it is appended again, if nothing is gained.
    pages: u64,
}

impl Shard {
    /// Looks whether clients rest, and if so has the cleaner take the oldest segment back.
    pub(super) fn recompress_when_idle(&mut self) {
        if self.recompression.look_ns > self.now_ns {
            return;
        }
        if !self.packer.may_be_denser() || self.log.is_failed() || self.quiescing {
            self.recompression.idle = false;
            self.note_written_ahead();
            return self.recompression.end();
        }
        if !self.clients_rest() {
            return;
        }
        self.recompression.idle = true;
        if self.cleaner.is_ahead() {
            // Who goes on says when to look again.
            self.recompression.look_ns = u64::MAX;
            self.recompression.since_seq.get_or_insert(self.log.space().head_seq());
        } else if self.cleaner.is_idle() && self.restored.is_empty() && !self.commands_are_sweeping() {
            self.begin_ahead();
        } else {
            self.recompression.look_ns = self.now_ns + IDLE_AFTER_NS;
        }
    }

    /// Whether no client has asked for anything since the last look, nor waits. Says when to look again if not.
    fn clients_rest(&mut self) -> bool {
        let of_volume = |index: &types::VolumeIndex| self.volume(*index).map(|volume| &volume.stats);
        let requests = self.attached.iter().filter_map(of_volume).map(|stats| stats.reads + stats.writes + stats.flushes).sum();
        let rest = requests == self.recompression.requests && self.requests() == 0;
        if !rest {
            self.recompression.requests = requests;
            self.recompression.idle = false;
            self.recompression.look_ns = self.now_ns + IDLE_AFTER_NS;
            self.note_written_ahead();
        }
        rest
    }

    /// Begins with the oldest segment if that is of use.
    fn begin_ahead(&mut self) {
        let space = self.log.space();
        let (seq, head_seq, free) = (space.tail_seq(), space.head_seq(), space.free_segments());
        if space.tail_durable() < seq || seq < head_seq && !self.log.is_segment_complete(seq) {
            self.recompression.look_ns = self.now_ns + IDLE_AFTER_NS;
            return;
        }
        let is_full = free <= self.clean_below() + 1 + space.segments() / FULL_ONE_IN || self.recompression.under_way;
        if !is_full || head_seq < self.recompression.rest_until_seq || free <= RESERVE_SEGMENTS || !self.is_worth_it(seq) {
            return self.recompression.end();
        }
        if !self.packer.has_time_for_denser(self.now_ns) {
            return self.wait_for_budget(IDLE_AFTER_NS);
        }
        let worth = self.worth_of(seq);
        // Even if nothing is gained there must not be less room in the end: then the cleaner would have to forget something.
        let space = self.log.space();
        let opened = worth.pages.saturating_sub(u64::from(space.pages_left(0))).div_ceil(u64::from(space.data_pages()));
        if free + 1 < self.clean_below() + opened {
            return self.recompression.end();
        }
        let recompression = &mut self.recompression;
        (recompression.under_way, recompression.look_ns) = (true, u64::MAX);
        recompression.since_seq = Some(head_seq);
        (recompression.begun_bytes, recompression.saved_before) = (worth.live_bytes, recompression.saved_bytes);
        self.begin_cleaning_ahead(seq);
    }

    fn wait_for_budget(&mut self, pause_ns: u64) {
        let earns = self.packer.options().cpu_ns_per_second > 0;
        self.recompression.look_ns = if earns { self.now_ns + pause_ns } else { u64::MAX };
    }

    /// Whether, of the segments from this one on, so much could be made denser that the rewriting pays.
    fn is_worth_it(&self, seq: u64) -> bool {
        let (mut live_bytes, mut loose_bytes) = (0, 0);
        for seq in (seq..self.log.space().head_seq()).take(AHEAD_SEGMENTS as usize) {
            if self.recompression.has_written(seq) {
                return false;
            }
            let worth = self.worth_of(seq);
            (live_bytes, loose_bytes) = (live_bytes + worth.live_bytes, loose_bytes + worth.loose_bytes);
            if loose_bytes > 0 && loose_bytes * 2 >= live_bytes {
                return true;
            }
        }
        false
    }

    fn worth_of(&self, seq: u64) -> Worth {
        let mut worth = Worth::default();
        let (mut records, mut units) = (0, 0);
        for slot in self.slots_of(seq) {
            let key = self.index.key_of(slot);
            if key.is_none() && !self.index.is_orphan(slot) {
                continue;
            }
            records += 1;
            if !slot.is_packed() {
                worth.live_bytes += BLOCK_BYTES;
                worth.pages += 1;
                continue;
            }
            let stored = self.index.stored(slot);
            let bytes = u64::from(stored.bytes);
            worth.live_bytes += bytes;
            match stored.encoding {
                Encoding::Raw => worth.pages += 1,
                _ => units += bytes.div_ceil(u64::from(PLACE_UNIT_BYTES)),
            }
            let is_loose = matches!(stored.encoding, Encoding::Raw | Encoding::Lz4);
            worth.loose_bytes += key.filter(|key| is_loose && self.packer.wants_denser(key.volume())).map_or(0, |_| bytes);
        }
        // A header and a page that is not filled for each group.
        let groups = u64::div_ceil(records, GROUP_RECORDS_MAX as u64) + 1;
        worth.pages += (units * u64::from(PLACE_UNIT_BYTES)).div_ceil(BLOCK_BYTES) + 2 * groups;
        worth
    }

    /// Whether the cleaner may read on in a segment that it takes back ahead of need.
    pub(super) fn goes_on_ahead(&mut self) -> bool {
        if !self.recompression.idle || self.quiescing || !self.packer.may_be_denser() || !self.clients_rest() {
            return false;
        }
        if !self.packer.has_time_for_denser(self.now_ns) {
            self.wait_for_budget(BUDGET_PAUSE_NS);
            return false;
        }
        true
    }

    /// The segment is taken back; the next follows when that is durable.
    pub(super) fn ended_ahead(&mut self) {
        self.recompression.segments += 1;
        self.note_written_ahead();
        let space = self.log.space();
        let judged_bytes = JUDGED_SEGMENTS * u64::from(space.data_pages()) * BLOCK_BYTES;
        let rest_until_seq = space.head_seq() + (space.segments() / REST_ONE_IN).max(1);
        let recompression = &mut self.recompression;
        recompression.rewritten_bytes += recompression.begun_bytes;
        recompression.gained_bytes += recompression.saved_bytes - recompression.saved_before;
        if recompression.rewritten_bytes < judged_bytes {
            return;
        }
        if recompression.gained_bytes * 100 < recompression.rewritten_bytes * GAIN_PERCENT_MIN {
            (recompression.rewritten_bytes, recompression.gained_bytes) = (0, 0);
            recompression.rest_until_seq = rest_until_seq;
            recompression.end();
        } else {
            recompression.rewritten_bytes /= 2;
            recompression.gained_bytes /= 2;
        }
    }

    /// What was appended here since work was begun is not appended here again.
    pub(super) fn note_written_ahead(&mut self) {
        let space = self.log.space();
        if let Some(first_seq) = self.recompression.since_seq.take() {
            self.recompression.note_written(first_seq, space.head_seq() + 1, space.tail_durable());
        }
    }

    /// A segment that was taken back became free.
    pub(super) fn go_on_after_segment(&mut self) {
        if self.recompression.under_way && self.recompression.idle {
            self.recompression.look_ns = self.recompression.look_ns.min(self.now_ns + PAUSE_NS);
        }
    }
}
