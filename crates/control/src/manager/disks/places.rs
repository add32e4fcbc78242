//! Where disks lie: in gaps of the room for them, and how much more room the cache would have to give.

use super::super::Manager;
use api::error::{ControlError, Kind};
use api::human;
use format::disks::PIECES_MAX;
use records::state::{DiskRecord, PoolRecord, Span};

/// Disks begin and end on multiples of this.
const GRAIN_BYTES: u64 = 1 << 20;
/// The room for disks begins on a multiple of this.
const STEP_BYTES: u64 = 16 << 20;

impl Manager {
    /// The room for disks as it may begin at the latest without taking anything from a disk; `None`: no disk is there.
    pub(super) fn room_in_use(&self, pool: &PoolRecord, room: Span) -> Option<Span> {
        let first = self.memory().state.pieces_of(&pool.name).first()?.at_bytes;
        Some(Span { at_bytes: first / STEP_BYTES * STEP_BYTES, ..room })
    }

    /// The room for disks with which so much more of them would fit in.
    pub(super) fn larger_room(&self, pool: &PoolRecord, wanted_bytes: u64) -> Result<Span, ControlError> {
        let live_bytes = self.memory().pools.get(&pool.name).map_or(0, |live| live.size_bytes);
        // Not to the last byte: what stands at the end of a disk, a second partition table for instance, must not look like the SSD's own.
        let end_bytes = live_bytes.saturating_sub(1) / GRAIN_BYTES * GRAIN_BYTES;
        let room = pool.disk_room.unwrap_or(Span { at_bytes: end_bytes, end_bytes });
        let pieces = self.memory().state.pieces_of(&pool.name);
        let free_bytes: u64 = gaps(room, &pieces).iter().map(Span::bytes).sum();
        let at_bytes = room.at_bytes.checked_sub(wanted_bytes.saturating_sub(free_bytes)).map(|at| at / STEP_BYTES * STEP_BYTES);
        match at_bytes.filter(|at| *at >= crate::manager::pools::SSD_BYTES_MIN) {
            Some(at_bytes) => Ok(Span { at_bytes, ..room }),
            None => Err(no_room(
                pool,
                free_bytes + room.at_bytes.saturating_sub(crate::manager::pools::SSD_BYTES_MIN.next_multiple_of(STEP_BYTES)),
            )),
        }
    }

    /// Where so much of a disk fits in, which is new or becomes larger; `None` if that is nowhere.
    pub(super) fn room_for(&self, pool: &PoolRecord, of: Option<&DiskRecord>, wanted_bytes: u64) -> Option<Vec<Span>> {
        let pieces = self.memory().state.pieces_of(&pool.name);
        let found = room_in(&gaps(pool.disk_room?, &pieces), of.and_then(|disk| disk.pieces.last()), wanted_bytes)?;
        (pieces.len() + found.len() <= PIECES_MAX).then_some(found)
    }
}

pub(super) fn whole_grains(bytes: u64) -> Result<u64, ControlError> {
    let bad =
        |problem: &str| ControlError::BadOption { option: "--size", problem: problem.into(), remedy: "write for instance 10GiB".into() };
    match bytes.checked_next_multiple_of(GRAIN_BYTES) {
        Some(0) => Err(bad("is nothing")),
        Some(bytes) if bytes <= types::VOLUME_BYTES_MAX => Ok(bytes),
        _ => Err(bad("is more than 64 TiB")),
    }
}

/// What no disk has of the room for them, in order.
fn gaps(room: Span, pieces: &[Span]) -> Vec<Span> {
    let mut at_bytes = room.at_bytes;
    let mut gaps = Vec::new();
    for (end_bytes, next) in pieces.iter().map(|piece| (piece.at_bytes, piece.end_bytes)).chain([(room.end_bytes, 0)]) {
        if end_bytes > at_bytes {
            gaps.push(Span { at_bytes, end_bytes });
        }
        at_bytes = next;
    }
    gaps
}

/// So much of the gaps: what is behind that piece first, then the smallest gap that is enough, or else as few as can be.
fn room_in(gaps: &[Span], behind: Option<&Span>, wanted_bytes: u64) -> Option<Vec<Span>> {
    let mut left_bytes = wanted_bytes;
    let mut found = Vec::new();
    let mut take = |gap: &Span, left_bytes: &mut u64| {
        let taken_bytes = gap.bytes().min(*left_bytes);
        if taken_bytes > 0 {
            found.push(Span { end_bytes: gap.at_bytes + taken_bytes, ..*gap });
        }
        *left_bytes -= taken_bytes;
    };
    let (next, mut others): (Vec<Span>, Vec<Span>) =
        gaps.iter().partition(|gap| behind.is_some_and(|behind| behind.end_bytes == gap.at_bytes));
    next.iter().for_each(|gap| take(gap, &mut left_bytes));
    others.sort_by_key(|gap| gap.bytes());
    while left_bytes > 0 {
        let enough = others.iter().position(|gap| gap.bytes() >= left_bytes);
        let gap = others.remove(enough.or(others.len().checked_sub(1))?);
        take(&gap, &mut left_bytes);
    }
    Some(found)
}

/// Pieces with others behind them, each run one piece.
pub(super) fn joined(pieces: &[Span], more: Vec<Span>) -> Vec<Span> {
    let mut all = pieces.to_vec();
    for piece in more {
        match all.last_mut() {
            Some(last) if last.end_bytes == piece.at_bytes => last.end_bytes = piece.end_bytes,
            _ => all.push(piece),
        }
    }
    all
}

/// The first bytes of these pieces.
pub(super) fn cut(pieces: &[Span], size_bytes: u64) -> Vec<Span> {
    let mut left_bytes = size_bytes;
    let mut kept = Vec::new();
    for piece in pieces {
        let kept_bytes = piece.bytes().min(left_bytes);
        if kept_bytes > 0 {
            kept.push(Span { end_bytes: piece.at_bytes + kept_bytes, ..*piece });
        }
        left_bytes -= kept_bytes;
    }
    kept
}

pub(super) fn no_room(pool: &PoolRecord, most_bytes: u64) -> ControlError {
    let problem = format!(
        "it has room for {} more of disks at most: its cache keeps {}",
        human::bytes(most_bytes),
        human::bytes(crate::manager::pools::SSD_BYTES_MIN)
    );
    let remedy = "give a smaller --size, or remove another disk".to_string();
    crate::manager::pools::device(&pool.ssd, problem, remedy, Kind::Conflict)
}
