//! Makes durable what was found, and writes it down where the next recovery finds it at once.

use super::RecoveryReport;
use super::chain::Found;
use super::read::Reader;
use super::segment::Segment;
use crate::medium::Medium;
use crate::mutants;
use crate::superblock::{OpenError, PoolState};
use alloc::vec::Vec;
use format::checkpoint::LogEnd;
use format::{FooterHead, Record};
use types::ShardIndex;

/// How often the end of a segment is read before some of it is given up: what went wrong once may go right.
const TRIES: u32 = 3;

/// Flushes, writes the missing footers, flushes.
pub(super) fn seal(
    medium: &mut dyn Medium,
    pool: &mut PoolState,
    shard: ShardIndex,
    found: &Found,
    report: &mut RecoveryReport,
) -> Result<(), OpenError> {
    // After the death of the process alone, accepted groups may still be in the SSD's volatile cache. A footer calls them
    // flushed, so they must be before it can reach the medium.
    pool.flush(medium)?;
    for segment in found.segments.iter().filter(|segment| !segment.has_footer) {
        assert!((found.end.tail_seq..found.end.next_seq).contains(&segment.seq), "a footer for a live segment");
        write_footer(medium, pool, shard, segment, segment.last_group)?;
        report.footers_written += 1;
    }
    if report.footers_written > 0 {
        pool.flush(medium)?;
    }
    Ok(())
}

/// For a stop in order, all groups up to `end` being flushed: gives the segments at the log's end their footers. Without one a segment
/// would stand in history with, perhaps, the footer of a discarded tail of the same number.
///
/// Gives `false` if the session wrote to the log and nothing of that can be read: then no footer says how far the log was flushed.
///
/// # Errors
/// What the medium says.
pub(crate) fn seal_end(medium: &mut dyn Medium, pool: &PoolState, shard: ShardIndex, end: &LogEnd) -> Result<bool, OpenError> {
    let (mut seq, mut next_group) = (end.next_seq, end.next_group);
    let first_seq = pool.superblock.log_starts[usize::from(shard.0)].first_seq.max(end.tail_seq);
    // Each says how far the log was flushed, so that the next start misses what has rotted by then, the very end included.
    let (flushed_group, mut is_said) = (next_group - 1, seq <= first_seq);
    while seq > first_seq {
        seq -= 1;
        let mut reader = Reader::new(medium, &pool.superblock, shard, false);
        let footer = reader.footer(reader.layout.physical(seq));
        let current = |head: &FooterHead| (head.segment_seq, head.session) == (seq, pool.superblock.session);
        if let Some(sealed) = footer.filter(|sealed| current(&sealed.head)) {
            let claim = sealed.head.durable_group.max(flushed_group);
            if !is_said && claim > sealed.head.durable_group {
                write_footer(medium, pool, shard, &Segment::from_footer(&sealed), claim)?;
            }
            is_said = true;
            break;
        }
        let mut found = None;
        for _ in 0..TRIES {
            let image = reader.image(seq)?;
            found = Segment::from_groups(&reader.walk(seq, &image, None, next_group - 1, u64::MAX));
            if found.as_ref().is_some_and(|segment| segment.last_group + 1 == next_group) {
                break;
            }
        }
        // Headers that have rotted since they were written stay away; the claim lets the next start find out.
        let Some(segment) = found else { continue };
        if segment.last_group + 1 != next_group && is_said {
            break;
        }
        write_footer(medium, pool, shard, &segment, flushed_group)?;
        (next_group, is_said) = (segment.first_group, true);
    }
    Ok(is_said)
}

fn write_footer(
    medium: &mut dyn Medium,
    pool: &PoolState,
    shard: ShardIndex,
    segment: &Segment,
    flushed_group: u64,
) -> Result<(), OpenError> {
    let layout = pool.superblock.layout;
    assert!(segment.last_group <= flushed_group, "a footer says that its groups were flushed");
    assert!(segment.session <= pool.superblock.session, "a segment of session {}, which is yet to come", segment.session);
    let mut records: Vec<Record> = segment.records.iter(segment.seq).collect();
    if mutants::active(mutants::RECOVERY_UNSTABLE) {
        records.pop();
    }
    let (resume_seq, resume_group) = segment.resume.unwrap_or((0, 0));
    let head = FooterHead {
        uuid: pool.superblock.uuid,
        session: segment.session,
        shard,
        segment_seq: segment.seq,
        first_group: segment.first_group,
        last_group: segment.last_group,
        tail_seq: segment.tail_seq,
        durable_group: flushed_group,
        resume_seq,
        resume_group,
        used_pages: segment.used_pages,
    };
    let bytes = head.encode_marked(&layout, &records, segment.marked_in_session);
    let offset_bytes = layout.footer_write_offset(shard, layout.physical(segment.seq), records.len() as u32);
    let place = layout.segment_offset(shard, layout.physical(segment.seq));
    let behind_groups = place + u64::from(segment.used_pages) * types::BLOCK_BYTES;
    let is_within = behind_groups <= offset_bytes && offset_bytes + bytes.len() as u64 <= place + u64::from(layout.segment_bytes);
    assert!(is_within, "the footer of segment {} meets its groups or the next segment", segment.seq);
    Ok(medium.write(offset_bytes, &bytes)?)
}
