//! Reads footers and groups of one shard, and believes only what bears the right identity.

use super::segment::{Entry, Group, Sealed};
use crate::medium::{Medium, MediumError};
use crate::mutants;
use alloc::vec;
use alloc::vec::Vec;
use format::footer::footer_pages_for;
use format::{Footer, FooterHead, GroupHead, Layout, LogStart, PAGE_BYTES, Record, RecordKind, Superblock, payload_checksum};
use types::ShardIndex;

/// The log of one shard on its medium.
pub(super) struct Reader<'a> {
    medium: &'a mut dyn Medium,
    uuid: [u8; 16],
    pub session: u64,
    pub layout: Layout,
    pub shard: ShardIndex,
    pub start: LogStart,
    /// Pages that cannot be read count as holding nothing.
    pub force: bool,
    pub unreadable_pages: u64,
    /// The highest session met, even one that cannot be.
    pub session_seen: u64,
}

impl<'a> Reader<'a> {
    pub fn new(medium: &'a mut dyn Medium, superblock: &Superblock, shard: ShardIndex, force: bool) -> Reader<'a> {
        Reader {
            medium,
            uuid: superblock.uuid,
            session: superblock.session,
            layout: superblock.layout,
            shard,
            start: superblock.log_starts[usize::from(shard.0)],
            force,
            unreadable_pages: 0,
            session_seen: 0,
        }
    }

    /// Whether groups of that session may stand in that segment.
    pub fn session_fits(&self, seq: u64, session: u64) -> bool {
        if seq >= self.start.first_seq { session == self.session } else { session < self.session }
    }

    /// The footer at the end of a physical segment, if there is a whole one that belongs there. One that cannot be read counts as
    /// none: the headers say the same.
    pub fn footer(&mut self, physical: u32) -> Option<Sealed> {
        // Nearly all footers have a record a page; more is read only if there are more.
        let mut pages = footer_pages_for(self.layout.group_pages()).min(self.layout.footer_pages());
        let mut bytes = vec![0; pages as usize * PAGE_BYTES];
        let offset_bytes = self.layout.footer_offset(self.shard, physical);
        if self.medium.read(offset_bytes, &mut bytes).is_err() {
            self.unreadable_pages += u64::from(pages);
            return None;
        }
        let (head, count) = FooterHead::decode(&bytes).ok()?;
        if count > self.layout.records_max() {
            return None;
        }
        if footer_pages_for(count) > pages {
            pages = footer_pages_for(count);
            bytes.resize(pages as usize * PAGE_BYTES, 0);
            if self.medium.read(offset_bytes, &mut bytes).is_err() {
                self.unreadable_pages += u64::from(pages);
                return None;
            }
        }
        let footer = Footer::decode(&bytes).ok()?;
        let belongs = head.uuid == self.uuid
            && head.shard == self.shard
            && self.layout.physical(head.segment_seq) == physical
            && head.used_pages <= self.layout.group_pages()
            && footer.records.iter().all(|record| !record.kind.has_payload() || record.slot_page < head.used_pages);
        if !belongs {
            return None;
        }
        self.session_seen = self.session_seen.max(head.session);
        let entries = footer.records.iter().map(|record| Entry::new(record, head.segment_seq)).collect();
        Some(Sealed { head, marked_in_session: footer.marked_in_session, entries })
    }

    /// The header at the beginning of segment `seq`, if it is one of that segment.
    pub fn first_head(&mut self, seq: u64) -> Result<Option<GroupHead>, MediumError> {
        Ok(self.first_head_of_any_lap(seq)?.filter(|head| head.segment_seq == seq))
    }

    /// The header at the beginning of where segment `seq` lies, of that segment or of one that lay there earlier or later.
    pub fn first_head_of_any_lap(&mut self, seq: u64) -> Result<Option<GroupHead>, MediumError> {
        let mut page = [0; PAGE_BYTES];
        let physical = self.layout.physical(seq);
        self.read(self.layout.segment_offset(self.shard, physical), &mut page)?;
        let Ok((head, _)) = GroupHead::decode(&page) else { return Ok(None) };
        if self.layout.physical(head.segment_seq) != physical {
            return Ok(None);
        }
        Ok(self.group(head.segment_seq, 0, &page).map(|(head, _)| head))
    }

    /// All pages of segment `seq` that groups may take.
    pub fn image(&mut self, seq: u64) -> Result<Vec<u8>, MediumError> {
        let mut image = vec![0; self.layout.group_pages() as usize * PAGE_BYTES];
        let offset_bytes = self.layout.segment_offset(self.shard, self.layout.physical(seq));
        self.read(offset_bytes, &mut image)?;
        Ok(image)
    }

    /// Reads; what cannot be read is zeroes if forced.
    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), MediumError> {
        let Err(error) = self.medium.read(offset_bytes, into) else {
            return Ok(());
        };
        if !self.force {
            return Err(error);
        }
        for (page, nth) in into.chunks_exact_mut(PAGE_BYTES).zip(0u64..) {
            if self.medium.read(offset_bytes + nth * PAGE_BYTES as u64, page).is_err() {
                page.fill(0);
                self.unreadable_pages += 1;
            }
        }
        Ok(())
    }

    /// The group whose header is this page, if it belongs to this place. Session and number are the caller's to compare.
    fn group(&mut self, seq: u64, page: u32, bytes: &[u8; PAGE_BYTES]) -> Option<(GroupHead, Vec<Record>)> {
        let (head, records) = GroupHead::decode(bytes).ok()?;
        let belongs = head.uuid == self.uuid
            && head.shard == self.shard
            && (head.segment_seq == seq || mutants::active(12))
            && head.page == page
            && page + GroupHead::pages(&records) <= self.layout.group_pages();
        if belongs {
            self.session_seen = self.session_seen.max(head.session);
        }
        belongs.then_some((head, records))
    }

    /// Walks segment `seq` from its first group as long as headers are there, of one fitting session and with consecutive numbers,
    /// up to number `last`. The first number must be `first` unless that is `None`. Dirty payloads of groups above `verify_above` are
    /// compared with their checksums.
    pub fn walk(&mut self, seq: u64, image: &[u8], first: Option<u64>, last: u64, verify_above: u64) -> Vec<Group> {
        let (pages, _) = image.as_chunks::<PAGE_BYTES>();
        let mut groups: Vec<Group> = Vec::new();
        let (mut page, mut records_count) = (0, 0);
        while let Some((mut head, records)) = pages.get(page as usize).and_then(|bytes| self.group(seq, page, bytes)) {
            if mutants::active(12) {
                let next = groups.last().map(|before| before.head.group + 1).or(first).unwrap_or(head.group);
                let tail_seq = head.tail_seq.min(seq);
                head = GroupHead { session: self.session, segment_seq: seq, group: next, tail_seq, ..head };
            }
            let follows = match groups.last() {
                Some(before) => head.session == before.head.session && head.group == before.head.group + 1,
                None => self.session_fits(seq, head.session) && first.is_none_or(|first| head.group == first),
            };
            records_count += records.len();
            if !follows || head.group > last || records_count > self.layout.records_max() as usize {
                break;
            }
            page += GroupHead::pages(&records);
            let dirty_intact = head.group <= verify_above || records.iter().all(|record| dirty_matches(record, pages));
            groups.push(Group { head, records, dirty_intact });
        }
        groups
    }

    /// The highest group that anything of this session in segment `seq`, from page `from_page` on, calls flushed; 0 if there is
    /// nothing. Behind a break no page can be told from a client's data for sure, so this serves to notice a loss and never to find groups.
    pub fn claims(&mut self, seq: u64, image: &[u8], from_page: u32) -> u64 {
        let (pages, _) = image.as_chunks::<PAGE_BYTES>();
        let mut highest = 0;
        for (page, bytes) in (0..).zip(pages).skip(from_page as usize) {
            if let Some((head, _)) = self.group(seq, page, bytes)
                && head.session == self.session
            {
                highest = highest.max(head.durable_group);
            }
        }
        highest
    }

    /// Whether all dirty payloads that a footer tells of match their checksums.
    pub fn payloads_match(&mut self, sealed: &Sealed) -> Result<bool, MediumError> {
        let seq = sealed.head.segment_seq;
        let image = self.image(seq)?;
        let (pages, _) = image.as_chunks::<PAGE_BYTES>();
        Ok(sealed.entries.iter().all(|entry| dirty_matches(&entry.record(seq), pages)))
    }
}

/// Whether the payload is as the record says, if it must be: a clean payload that is not there is a miss later, no loss.
fn dirty_matches(record: &Record, pages: &[[u8; PAGE_BYTES]]) -> bool {
    record.kind != RecordKind::DataDirty
        || mutants::active(2)
        || pages
            .get(record.slot_page as usize)
            .is_some_and(|payload| payload_checksum(record.volume, record.block, payload) == record.checksum)
}
