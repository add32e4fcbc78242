//! Makes durable what was found, and writes it down where the next recovery finds it at once.

use super::RecoveryReport;
use super::chain::Found;
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
    let (uuid, layout) = (pool.superblock.uuid, pool.superblock.layout);
    for segment in found.segments.iter().filter(|segment| !segment.has_footer) {
        let mut records: Vec<Record> = segment.entries.iter().map(|entry| entry.record(segment.seq)).collect();
        if mutants::active(15) {
            records.pop();
        }
        let (resume_seq, resume_group) = segment.resume.unwrap_or((0, 0));
        let head = FooterHead {
            uuid,
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
        medium
            .write(layout.footer_offset(shard, layout.physical(segment.seq)), &head.encode_marked(&records, segment.marked_in_session))?;
        report.footers_written += 1;
    }
    if report.footers_written > 0 {
        pool.flush(medium)?;
    }
    Ok(())
}
