//! From records to I/Os: records join the group in the making, a group becomes one write, a full segment gets its footer.

use super::{
    Appended, Building, GROUPS_IN_FLIGHT_MAX, Need, PackedPayload, Placed, Ring, RingIo, Sealed, UNFLUSHED_PAGES_MAX, Urgency, Writing,
};
use crate::api::WriteKind;
use crate::index::Slot;
use crate::mutants;
use crate::outbox::Outbox;
use crate::store::RegionId;
use alloc::vec::Vec;
use format::packed::PAGE_UNITS;
use format::{FooterHead, GroupHead, Record, RecordKind};
use page::{Page, PagePool, PageVec};
use smallvec::smallvec;
use types::{BLOCK_BYTES, VolumeId};

impl Ring {
    /// Appends a record, with its payload if it has one. The index must point to the slot from now on: the log does not know what is
    /// current.
    ///
    /// # Panics
    /// If [`Ring::can_append`] is false.
    pub(super) fn append_plain(&mut self, record: Record, page: Option<Page>, urgency: Urgency) -> Appended {
        assert!(self.can_append(), "the log is full");
        if self
            .building
            .as_ref()
            .is_some_and(|building| !building.fits(if page.is_some() { Need::PAGE } else { Need::RECORD }, &self.space))
        {
            self.close_building();
        }
        if self.building.is_none() {
            self.begin_group();
        }
        let building = self.building.as_mut().expect("begun above");
        let group = building.group;
        let page_in_segment = building.next_page();
        let record = Record { slot_page: if page.is_some() { page_in_segment } else { 0 }, ..record };
        building.push(record, page.clone(), urgency);
        let seq = building.seq;
        let slot = page.map(|page| {
            let slot = self.slot_at(seq, page_in_segment);
            self.common.in_flight.add(slot, page);
            slot
        });
        Appended { slot, group }
    }

    /// Appends a packed record with its payload, as [`Ring::append_plain`] does a plain one.
    ///
    /// # Panics
    /// If [`Ring::can_append`] is false.
    pub(super) fn append_packed(&mut self, record: Record, payload: PackedPayload, urgency: Urgency) -> Appended {
        assert!(self.can_append(), "the log is full");
        let units = payload.bytes.len().next_multiple_of(format::packed::PLACE_UNIT_BYTES as usize);
        let need = Need::packed(u32::from(record.has_page_payload()), units as u32);
        if self.building.as_ref().is_some_and(|building| !building.fits(need, &self.space)) {
            self.close_building();
        }
        if self.building.is_none() {
            self.begin_group();
        }
        let building = self.building.as_mut().expect("begun above");
        let ordinal = building.push_packed(record, &payload, urgency);
        let (group, seq) = (building.group, building.seq);
        let physical = self.space.physical(seq);
        let slot = Slot::packed(physical, ordinal, self.ordinal_bits);
        self.common.in_flight.add_packed(slot, payload);
        Appended { slot: Some(slot), group }
    }

    /// Makes sure that a group carries the present tail to the device, and soon; gives its number.
    pub(super) fn publish_tail(&mut self) -> Option<u64> {
        if self.building.is_none() {
            if !self.can_append() {
                return None;
            }
            self.begin_group();
        }
        let building = self.building.as_mut().expect("begun above");
        if building.records.is_empty() {
            // A group has at least one record; a note that names no record there ever was says nothing.
            let kind = RecordKind::CleanNote { of_seq: 0, of_ordinal: 0 };
            building.records.push(Record { kind, volume: VolumeId(0), block: 0, mask: 0, checksum: 0, slot_page: 0, packed: None });
        }
        building.want(Urgency::Durable);
        let group = building.group;
        self.common.commits.want_durable(group);
        Some(group)
    }

    /// The group in the making has room for that, or the next one will have.
    pub(super) fn make_room_for(&mut self, need: Need) {
        if self.building.as_ref().is_some_and(|building| !building.fits(need, &self.space)) {
            self.close_building();
        }
        let next = || Building::new(0, self.space.head_seq(), self.space.head_page(), self.head_packed);
        if self.building.is_none() && !(self.head_has_room() && next().fits(need, &self.space)) {
            self.open_segment();
        }
    }

    fn open_segment(&mut self) {
        self.seal_head();
        self.space.open_next(&self.common.readers);
        self.head_first_group = self.common.commits.last() + 1;
        self.head_packed = 0;
    }

    fn begin_group(&mut self) {
        if !self.head_has_room() {
            self.open_segment();
        }
        let group = self.common.commits.begin();
        self.building = Some(Building::new(group, self.space.head_seq(), self.space.head_page(), self.head_packed));
    }

    fn close_building(&mut self) {
        if let Some(mut building) = self.building.take() {
            building.tail_seq = self.space.tail_seq().min(building.seq);
            if building.packed_records > 0 {
                if mutants::active(mutants::PLACES_TOLD_EARLY) {
                    self.note_places(&building);
                }
                building.place_packed();
                if !mutants::active(mutants::PLACES_TOLD_EARLY) {
                    self.note_places(&building);
                }
                self.head_packed += building.packed_records;
            }
            self.space.take(building.pages_used(), building.records.len() as u32);
            self.head_records.extend_from_slice(&building.records);
            self.closed.push_back(building);
        }
    }

    fn note_places(&mut self, building: &Building) {
        let physical = self.space.physical(building.seq);
        let packed = building.records.iter().filter_map(|record| record.packed.as_ref());
        for (ordinal, packed) in (building.first_ordinal..).zip(packed) {
            // What has no payload counts as standing in its header.
            let place = if packed.place > 0 { packed.place } else { building.first_page * PAGE_UNITS };
            let slot = Slot::packed(physical, ordinal, self.ordinal_bits);
            self.common.in_flight.placed(Placed { slot, at: place });
        }
    }

    /// The head segment gets no more groups. Its footer says that all of it is durable, so it follows a flush.
    fn seal_head(&mut self) {
        let last_group = self.common.commits.last();
        if self.head_first_group <= last_group {
            self.common.commits.want_durable(last_group);
            // The place is not used anew before its footer is written: a late footer would lie over the new segment's own.
            self.common.readers.begin(RegionId(self.space.head_seq()));
            self.sealed.push_back(Sealed {
                seq: self.space.head_seq(),
                first_group: self.head_first_group,
                last_group,
                used_pages: self.space.head_page(),
                tail_seq: self.last_written_tail,
                records: core::mem::take(&mut self.head_records),
            });
        }
    }

    /// Hands out what is due: groups, footers, a flush. Call at the end of each turn.
    pub(super) fn hand_out<C>(&mut self, now_ns: u64, pool: &PagePool, out: &mut Outbox<C>, context: impl Fn(RingIo) -> C) {
        self.short_of_pages = false;
        if self.common.commits.is_failed() {
            return;
        }
        // Packed blocks are so small that a header page each would be most of what is written: they join while a group is under way, which
        // costs them less time than writing it takes.
        let due = self.building.as_ref().is_some_and(|building| {
            let alone = self.closed.is_empty() && self.writing.is_empty();
            let commit = building.commit && (alone || !building.is_small()) || building.share && alone;
            let durable = building.durable || self.common.commits.is_wanted(building.group);
            commit || building.deadline_ns <= now_ns || durable && self.flush.is_none()
        });
        if due && self.closed.len() + self.writing.len() < GROUPS_IN_FLIGHT_MAX {
            self.close_building();
        }
        while self.writing.len() < GROUPS_IN_FLIGHT_MAX {
            if self.closed.is_empty() {
                break;
            }
            let packed = self.closed.front().map_or(&[][..], Building::packed_behind_pages);
            let (Some(header), Some(packed)) = (pool.allocate(), pages_of(packed, pool)) else {
                self.short_of_pages = true;
                break;
            };
            let group = self.closed.pop_front().expect("looked above");
            self.write_group(group, header, packed, out, &context);
        }
        while self.sealed.front().is_some_and(|sealed| sealed.last_group <= self.common.commits.durable()) {
            if !self.write_footer(pool, out, &context) {
                self.short_of_pages = true;
                break;
            }
        }
        let unflushed = self.unflushed_pages > UNFLUSHED_PAGES_MAX;
        let (commits, complete) = (&self.common.commits, self.common.commits.complete());
        let wanted = commits.next_wanted().is_some_and(|group| group <= complete) || unflushed && commits.durable() < complete;
        if wanted && self.flush.is_none() {
            self.flush = Some((complete, self.complete_tail, self.complete_end));
            self.unflushed_pages = 0;
            self.common.ssds.flush(out, context(RingIo::Flush));
        }
    }

    fn write_group<C>(
        &mut self,
        group: Building,
        mut header: page::PageMut,
        packed: PageVec,
        out: &mut Outbox<C>,
        context: &impl Fn(RingIo) -> C,
    ) {
        let head = GroupHead {
            uuid: self.place.uuid,
            session: self.place.session,
            shard: self.place.shard,
            segment_seq: group.seq,
            group: group.group,
            tail_seq: group.tail_seq,
            durable_group: self.common.commits.durable(),
            page: group.first_page,
        };
        head.encode(&group.records, group.packed_in_header(), &mut header);
        if let Some(sealed) = self.sealed.iter_mut().find(|sealed| sealed.last_group == group.group) {
            sealed.tail_seq = head.tail_seq;
        }
        self.last_written_tail = head.tail_seq;
        let is_next = group.group > self.common.commits.durable() && group.tail_seq <= group.seq;
        assert!(is_next && self.space.is_live(group.seq), "group {} is the next, in segment {}", group.group, group.seq);
        assert!(self.writing.back().is_none_or(|before| before.group < group.group), "groups are written in order");
        let first = self.slot_at(group.seq, group.first_page);
        let mut pages: PageVec = smallvec![header.freeze()];
        pages.extend(group.pages);
        pages.extend(packed);
        let count = pages.len() as u32;
        assert!(group.first_page + count <= self.place.layout.pages_per_segment(), "group {} ends in its segment", group.group);
        self.writing.push_back(Writing {
            group: group.group,
            end: (group.seq, group.first_page + count),
            tail_seq: head.tail_seq,
            done: false,
            slots: first.0 + 1..first.0 + count,
            packed: group.first_ordinal..group.first_ordinal + group.packed_records,
        });
        self.written_pages += u64::from(count);
        self.unflushed_pages += u64::from(count);
        let offset_bytes = self.page_offset_bytes(group.seq, group.first_page);
        self.common.ssds.write(out, offset_bytes, pages, false, WriteKind::Other, context(RingIo::Group(group.group)));
    }

    fn write_footer<C>(&mut self, pool: &PagePool, out: &mut Outbox<C>, context: &impl Fn(RingIo) -> C) -> bool {
        let sealed = self.sealed.front().expect("the caller looked");
        let head = FooterHead {
            uuid: self.place.uuid,
            session: self.place.session,
            shard: self.place.shard,
            segment_seq: sealed.seq,
            first_group: sealed.first_group,
            last_group: sealed.last_group,
            tail_seq: sealed.tail_seq,
            durable_group: self.common.commits.durable(),
            resume_seq: 0,
            resume_group: 0,
            used_pages: sealed.used_pages,
        };
        let layout = &self.place.layout;
        let most = if mutants::active(mutants::FOOTER_CUT_SHORT) {
            format::footer::footer_records_max(layout.footer_pages()) as usize
        } else {
            usize::MAX
        };
        let records = &sealed.records[..sealed.records.len().min(most)];
        let bytes = head.encode(layout, records);
        let physical = self.space.physical(sealed.seq);
        let offset_bytes = layout.footer_write_offset(self.place.shard, physical, records.len() as u32);
        let count = bytes.len() / BLOCK_BYTES as usize;
        let Some(mut pages) = (0..count).map(|_| pool.allocate()).collect::<Option<Vec<_>>>() else { return false };
        let sealed = self.sealed.pop_front().expect("looked above");
        for (page, chunk) in pages.iter_mut().zip(bytes.chunks_exact(BLOCK_BYTES as usize)) {
            page.copy_from_slice(chunk);
        }
        self.written_pages += count as u64;
        self.unflushed_pages += count as u64;
        self.footers_in_flight += 1;
        let pages = pages.into_iter().map(page::PageMut::freeze).collect();
        self.common.ssds.write(out, offset_bytes, pages, true, WriteKind::Other, context(RingIo::Footer(sealed.seq)));
        true
    }
}

/// Stored bytes as pages, the last one filled up with zeroes; `None` if there are no pages.
fn pages_of(bytes: &[u8], pool: &PagePool) -> Option<PageVec> {
    let page_of = |chunk: &[u8]| {
        let mut page = pool.allocate()?;
        page[..chunk.len()].copy_from_slice(chunk);
        page[chunk.len()..].fill(0);
        Some(page.freeze())
    };
    bytes.chunks(BLOCK_BYTES as usize).map(page_of).collect()
}
