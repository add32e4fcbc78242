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
        write_footer(medium, pool, shard, segment)?;
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
/// # Errors
/// What the medium says.
pub(crate) fn seal_end(medium: &mut dyn Medium, pool: &PoolState, shard: ShardIndex, end: &LogEnd) -> Result<(), OpenError> {
    let (mut seq, mut next_group) = (end.next_seq, end.next_group);
    let first_seq = pool.superblock.log_starts[usize::from(shard.0)].first_seq.max(end.tail_seq);
    while seq > first_seq {
        seq -= 1;
        let mut reader = Reader::new(medium, &pool.superblock, shard, false);
        let footer = reader.footer(reader.layout.physical(seq));
        let current = |head: &FooterHead| (head.segment_seq, head.session) == (seq, pool.superblock.session);
        if footer.is_some_and(|sealed| current(&sealed.head)) {
            break;
        }
        let image = reader.image(seq)?;
        let groups = reader.walk(seq, &image, None, next_group - 1, u64::MAX);
        // Headers that rotted since they were written are found by the next recovery that needs them.
        let Some(segment) = Segment::from_groups(&groups).filter(|segment| segment.last_group + 1 == next_group) else { break };
        write_footer(medium, pool, shard, &segment)?;
        next_group = segment.first_group;
    }
    Ok(())
}

fn write_footer(medium: &mut dyn Medium, pool: &PoolState, shard: ShardIndex, segment: &Segment) -> Result<(), OpenError> {
    let layout = pool.superblock.layout;
    let mut records: Vec<Record> = segment.records.iter(segment.seq).collect();
    if mutants::active(15) {
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
        durable_group: segment.last_group,
        resume_seq,
        resume_group,
        used_pages: segment.used_pages,
    };
    let bytes = head.encode_marked(&layout, &records, segment.marked_in_session);
    let offset_bytes = layout.footer_write_offset(shard, layout.physical(segment.seq), records.len() as u32);
    Ok(medium.write(offset_bytes, &bytes)?)
}
