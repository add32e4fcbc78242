//! Reads footers and groups of one shard, and believes only what bears the right identity.

use super::segment::{Group, Records, Sealed};
use crate::medium::{Medium, MediumError};
use crate::mutants;
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use format::footer::footer_pages_for;
use format::packed::{PAGE_UNITS, PLACE_UNIT_BYTES};
use format::{Footer, FooterHead, GroupHead, Layout, LogStart, PAGE_BYTES, Record, RecordKind, Superblock, open_packed};
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
        let mut overflow = 0;
        if footer_pages_for(count) > pages {
            pages = footer_pages_for(count);
            overflow = self.layout.footer_overflow_pages(count) as usize * PAGE_BYTES;
            bytes.resize(pages as usize * PAGE_BYTES, 0);
            if self.medium.read(self.layout.footer_write_offset(self.shard, physical, count), &mut bytes).is_err() {
                self.unreadable_pages += u64::from(pages);
                return None;
            }
        }
        let (overflow, reserved) = bytes.split_at(overflow);
        let footer = Footer::decode(reserved, overflow).ok()?;
        let belongs = head.uuid == self.uuid
            && head.shard == self.shard
            && self.layout.physical(head.segment_seq) == physical
            && head.used_pages <= self.layout.group_pages_with(count)
            && footer.records.iter().all(|record| payload_end_page(record) <= u64::from(head.used_pages));
        if !belongs {
            return None;
        }
        self.session_seen = self.session_seen.max(head.session);
        let records = Records::new(footer.records.iter(), head.segment_seq);
        Some(Sealed { head, marked_in_session: footer.marked_in_session, records })
    }

    /// The session of the footer at the end of a physical segment, 0 if there is none, by its first page alone; `None` if that cannot be read.
    pub fn session_at(&mut self, physical: u32) -> Option<u64> {
        let mut page = [0; PAGE_BYTES];
        self.medium.read(self.layout.footer_offset(self.shard, physical), &mut page).ok()?;
        let head = FooterHead::decode(&page).ok().map(|(head, _)| head);
        let is_ours =
            |head: &FooterHead| head.uuid == self.uuid && head.shard == self.shard && self.layout.physical(head.segment_seq) == physical;
        Some(head.filter(is_ours).map_or(0, |head| head.session))
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
            && (head.segment_seq == seq || mutants::active(mutants::EARLIER_LAP_ACCEPTED))
            && head.page == page
            && page + GroupHead::pages(&records) <= self.layout.group_pages();
        if belongs {
            self.session_seen = self.session_seen.max(head.session);
        }
        belongs.then_some((head, records))
    }

    /// Walks segment `seq` from its first group as long as headers are there, of one fitting session and with consecutive numbers,
    /// up to number `last`. The first number must be `first` unless that is `None`. Payloads of groups above `verify_above` are compared with
    /// their checksums, if anything dirty needs them or may need them.
    pub fn walk(&mut self, seq: u64, image: &[u8], first: Option<u64>, last: u64, verify_above: u64) -> Vec<Group> {
        let (pages, _) = image.as_chunks::<PAGE_BYTES>();
        let mut groups: Vec<Group> = Vec::new();
        let (mut page, mut records_count) = (0, 0);
        while let Some((mut head, records)) = pages.get(page as usize).and_then(|bytes| self.group(seq, page, bytes)) {
            if mutants::active(mutants::EARLIER_LAP_ACCEPTED) {
                let next = groups.last().map(|before| before.head.group + 1).or(first).unwrap_or(head.group);
                let tail_seq = head.tail_seq.min(seq);
                head = GroupHead { session: self.session, segment_seq: seq, group: next, tail_seq, ..head };
            }
            let follows = match groups.last() {
                Some(before) => head.session == before.head.session && head.group == before.head.group + 1,
                None => self.session_fits(seq, head.session) && first.is_none_or(|first| head.group == first),
            };
            records_count += records.len() as u32;
            page += GroupHead::pages(&records);
            // Where no footer could be written for them, nobody wrote them.
            let fits = records_count <= self.layout.records_max() && page <= self.layout.group_pages_with(records_count);
            if !follows || head.group > last || !fits {
                break;
            }
            let verify = head.group > verify_above;
            let dirty_intact = !verify || records.iter().all(|record| dirty_matches(record, pages));
            let damaged = if verify { damaged_objects(&records, pages) } else { Vec::new() };
            groups.push(Group { head, records, dirty_intact, damaged });
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

    /// Whether everything is there that the dirty records need that a footer tells of: if so, the objects of its segment that are not.
    pub fn payloads_match(&mut self, sealed: &Sealed) -> Result<Option<BadObjects>, MediumError> {
        let seq = sealed.head.segment_seq;
        let image = self.image(seq)?;
        let (pages, _) = image.as_chunks::<PAGE_BYTES>();
        let records: Vec<Record> = sealed.records.iter(seq).collect();
        let mut bad = BadObjects::default();
        let intact = records.iter().all(|record| dirty_matches(record, pages)) && bad.play(&records, &damaged_objects(&records, pages));
        Ok(intact.then_some(bad))
    }
}

/// Objects whose newest payload is known not to be there. Groups above the watermark are played into it in log order.
///
/// A clean record that is torn does no harm to itself, and its group counts. But a dirty block of a later group may rest on it: then that
/// one is as good as torn, unless the object was appended again meanwhile.
#[derive(Clone, Default, Debug)]
pub(super) struct BadObjects(BTreeSet<u64>);

impl BadObjects {
    /// Plays the next group; says whether everything it needs is there, in it and before it.
    pub fn group_is_intact(&mut self, group: &Group) -> bool {
        let rests_on_good = self.play(&group.records, &group.damaged);
        group.dirty_intact && rests_on_good
    }

    /// Plays records, of which those in the places `damaged` are objects that are not there; false if a dirty one rests on a bad object.
    fn play(&mut self, records: &[Record], damaged: &[usize]) -> bool {
        if self.0.is_empty() && damaged.is_empty() {
            return true;
        }
        let mut intact = true;
        for (nth, record) in records.iter().enumerate() {
            let Some(packed) = &record.packed else { continue };
            if packed.encoding.rests_on_base() {
                intact &= record.kind != RecordKind::DataDirty || !self.0.contains(&packed.object);
            } else if damaged.contains(&nth) {
                self.0.insert(packed.object);
            } else if packed.encoding.is_full() {
                self.0.remove(&packed.object);
            }
        }
        intact || mutants::active(mutants::TORN_BASE_ACCEPTED)
    }
}

/// The page of its segment behind which nothing of the record's payload stands; 0 without payload.
fn payload_end_page(record: &Record) -> u64 {
    let unit = record.packed.map_or(0, |packed| u64::from(packed.place) + u64::from(packed.units()));
    let page = if record.has_page_payload() { u64::from(record.slot_page) + 1 } else { 0 };
    page.max(unit.div_ceil(u64::from(PAGE_UNITS)))
}

/// Whether the payload is as the record says, if it must be: a clean payload that is not there is a miss later, no loss, unless dirty blocks
/// are known to rest on it.
fn dirty_matches(record: &Record, pages: &[[u8; PAGE_BYTES]]) -> bool {
    let must = record.kind == RecordKind::DataDirty || record.packed.is_some_and(|packed| packed.vital);
    !must || mutants::active(mutants::TORN_PAYLOAD_BELIEVED) || payload_matches(record, pages)
}

/// The places of objects that need not be there and are not.
fn damaged_objects(records: &[Record], pages: &[[u8; PAGE_BYTES]]) -> Vec<usize> {
    let is_damaged = |record: &Record| {
        let optional = record.packed.is_some_and(|packed| packed.encoding.is_full() && !packed.vital);
        optional && record.kind != RecordKind::DataDirty && !payload_matches(record, pages)
    };
    let places = records.iter().enumerate().filter(|(_, record)| is_damaged(record));
    places.map(|(nth, _)| nth).collect()
}

/// Whether the payload of a record of data or of a base is what was written, `pages` being its segment. Of packed payloads the checksum of
/// the encoded bytes is compared, nothing is decoded; without payload there is nothing that could be wrong.
pub(crate) fn payload_matches(record: &Record, pages: &[[u8; PAGE_BYTES]]) -> bool {
    if record.has_page_payload() {
        return pages.get(record.slot_page as usize).is_some_and(|payload| record.checksum_of(payload) == record.checksum);
    }
    let Some(packed) = record.packed.filter(|packed| packed.encoding.has_packed_payload()) else { return true };
    let first = packed.place as usize * PLACE_UNIT_BYTES as usize;
    let payload = pages.as_flattened().get(first..first + usize::from(packed.bytes));
    payload.is_some_and(|payload| open_packed(record.payload_owner(), record.checksum, payload).is_some())
}
