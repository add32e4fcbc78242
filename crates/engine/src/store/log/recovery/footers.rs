//! The footers of a shard's ring, read where something may have been written: a large SSD that is nearly empty starts at once.
//!
//! What is known of the log says where to look. The history of before the session lies between the tail and the session's start; what the
//! session wrote follows, without a gap, for a writer fills segment after segment. So the ring is read from there on until many segments
//! in a row have nothing of the session. Behind them there is more only if all these were lost: then some of those behind are looked at,
//! one of ever more, and if one of them has something, everything is read, and what is missing is damage. What is not seen is a
//! loss of [`SILENT_SEGMENTS`] or more in a row with less than a [`SILENT_SEGMENTS`]th of it left behind.

use super::read::Reader;
use super::segment::Sealed;
use alloc::vec;
use alloc::vec::Vec;

/// So many segments in a row without anything of the session are, most likely, behind its end. Far more than a writer has in the making, whose
/// footers are missing.
const SILENT_SEGMENTS: u32 = 64;

/// Footers by physical segment.
pub(super) fn read(reader: &mut Reader) -> Vec<Option<Sealed>> {
    let count = reader.layout.segments_per_shard;
    let mut footers: Vec<Option<Sealed>> = vec![None; count as usize];
    // At most a ring: the superblock was checked.
    let history = (reader.start.first_seq - reader.start.tail_seq).min(u64::from(count)) as u32;
    let first = reader.layout.physical(reader.start.first_seq);
    let at = |ahead: u32| (first + ahead) % count;
    for ahead in count - history..count {
        footers[at(ahead) as usize] = reader.footer(at(ahead));
    }
    let rest = count - history;
    let session = reader.session;
    let is_of_session = |footer: &Option<Sealed>| footer.as_ref().is_some_and(|sealed| sealed.head.session >= session);
    // A session that has come round has written everything between.
    let came_round = footers.iter().any(is_of_session);
    let (mut ahead, mut silent) = (0, 0);
    while ahead < rest {
        if silent >= SILENT_SEGMENTS && !came_round && !goes_on(reader, (ahead..rest).map(at)) {
            break;
        }
        // Once it is known to go on, the next silence is asked about again.
        silent = if silent >= SILENT_SEGMENTS { 0 } else { silent };
        let footer = reader.footer(at(ahead));
        silent = if is_of_session(&footer) { 0 } else { silent + 1 };
        footers[at(ahead) as usize] = footer;
        ahead += 1;
    }
    footers
}

/// Whether some of these segments tell of the session or of one that came later, or cannot be read: of each [`SILENT_SEGMENTS`] looks the next
/// has twice as many segments to a look.
fn goes_on(reader: &mut Reader, mut segments: impl Iterator<Item = u32>) -> bool {
    let (mut looks, mut stride) = (0_u32, 1);
    while let Some(physical) = segments.nth(stride - 1) {
        // 0: there is no footer. That is no session, also where the log was never used.
        if reader.session_at(physical).is_none_or(|session| session > 0 && session >= reader.session) {
            return true;
        }
        looks += 1;
        if looks.is_multiple_of(SILENT_SEGMENTS) {
            stride *= 2;
        }
    }
    false
}
