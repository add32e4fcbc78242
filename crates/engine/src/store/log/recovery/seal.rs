//! Makes durable what was found, and writes it down where the next recovery finds it at once.

use super::RecoveryReport;
use super::chain::Found;
use super::segment::Segment;
use crate::medium::Medium;
use crate::mutants;
use crate::superblock::{OpenError, PoolState};
use alloc::vec::Vec;
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
        assert!((found.end.tail_seq..found.end.next_seq).contains(&segment.seq), "a footer for a live segment");
        write_footer(medium, pool, shard, segment)?;
        report.footers_written += 1;
    }
    if report.footers_written > 0 {
        pool.flush(medium)?;
    }
    Ok(())
}

fn write_footer(medium: &mut dyn Medium, pool: &PoolState, shard: ShardIndex, segment: &Segment) -> Result<(), OpenError> {
    let layout = pool.superblock.layout;
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
        durable_group: segment.last_group,
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
