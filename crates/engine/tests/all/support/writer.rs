//! Writes logs as the engine does: several groups under way, flushes, footers early, late or never, tail and reuse.

use super::Random;
use super::disk::Disk;
use super::model::{Model, ModelGroup};
use super::packing::{Packing, group_bytes};
use engine::superblock::PoolState;
use format::checkpoint::LogEnd;
use format::{FooterHead, GroupHead, Layout, PAGE_BYTES, Record, RecordKind, payload_checksum};
use types::{ShardIndex, VolumeId};

/// When a full segment gets its footer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FooterHabit {
    /// After a flush.
    Flushed,
    /// At once, while its last groups are still under way.
    AtOnce,
    /// Some groups later.
    Late,
    /// Each time one of the above.
    Mixed,
}

pub struct Writer {
    pub shard: ShardIndex,
    pub model: Model,
    pub habit: FooterHabit,
    /// How rare flushes are. The rarer, the more hangs on groups that nothing on the medium calls flushed.
    pub steps_per_flush: u64,
    /// Some dirty payloads are carried on although they could not be read.
    pub loses: bool,
    /// Half of the records are packed.
    pub packs: bool,
    next_object: u64,
    first_seq: u64,
    layout: Layout,
    uuid: [u8; 16],
    session: u64,
    seq: u64,
    page: u32,
    pub group: u64,
    tail_seq: u64,
    start_tail_seq: u64,
    open: Vec<(GroupHead, Vec<Record>)>,
    in_flight: Vec<(u64, u64)>,
    late_footers: Vec<(u64, Vec<u8>, u64)>,
    /// All groups up to this one are complete.
    pub acked: u64,
    /// All groups up to this one are flushed.
    pub durable: u64,
    volumes: Vec<VolumeId>,
    blocks: u64,
}

impl Writer {
    /// Goes on at `end`, in the session that was just begun.
    pub fn new(pool: &PoolState, shard: ShardIndex, end: LogEnd, model: Model, habit: FooterHabit) -> Writer {
        let superblock = &pool.superblock;
        let mut volumes: Vec<VolumeId> = superblock.volumes.iter().map(|volume| volume.id).collect();
        // Records of a volume that is gone may still be in the log.
        let next_object = model.live(u64::MAX, end.tail_seq, &volumes).next_object;
        volumes.push(VolumeId(superblock.next_volume_id.0 + 7));
        Writer {
            shard,
            model,
            habit,
            steps_per_flush: 10,
            loses: false,
            packs: false,
            next_object,
            first_seq: end.next_seq,
            layout: superblock.layout,
            uuid: superblock.uuid,
            session: superblock.session,
            seq: end.next_seq,
            page: 0,
            group: end.next_group,
            tail_seq: end.tail_seq,
            start_tail_seq: end.tail_seq,
            open: Vec::new(),
            in_flight: Vec::new(),
            late_footers: Vec::new(),
            acked: end.next_group - 1,
            durable: end.next_group - 1,
            volumes,
            blocks: 24,
        }
    }

    /// One random step.
    pub fn step(&mut self, disk: &mut Disk, random: &mut Random) {
        match random.below(self.steps_per_flush) {
            0 => self.flush(disk),
            _ if random.chance(1, 3) => self.complete_one(disk, random),
            _ => self.write_group(disk, random),
        }
    }

    pub fn write_group(&mut self, disk: &mut Disk, random: &mut Random) {
        let mut wanted = if random.chance(1, 6) { 1 + random.below(12) } else { 1 + random.below(3) };
        if self.packs && random.chance(1, 12) {
            wanted = 40 + random.below(80);
        }
        let room = self.room(wanted);
        if room < 2 || random.chance(1, 30) && self.page > 0 {
            self.next_segment(disk, random);
        }
        let room = u64::from(self.room(wanted));
        // Segments leave in order, and early enough that the ring never fills.
        let segments = u64::from(self.layout.segments_per_shard);
        self.tail_seq = self.tail_seq.max((self.seq + 3).saturating_sub(segments)).max(1);
        let (mut records, mut payloads) = (Vec::new(), Vec::new());
        let mut packing = self.packs.then(|| {
            let known = &self.volumes[..self.volumes.len() - 1];
            let mut packing = Packing::new(&self.model, self.tail_seq, known, self.next_object);
            packing.keep_readable(disk, &self.layout, self.first_seq);
            packing
        });
        // One more record can take two pages more: its own, and that of payloads which leave the header page for it.
        let fits = |records: &[Record]| u64::from(GroupHead::pages(records)) + u64::from(!records.is_empty()) < room;
        while (records.len() as u64) < wanted && fits(&records) {
            let (record, payload) = match &mut packing {
                Some(packing) if random.chance(1, 2) => {
                    let volume = self.volumes[random.below(self.volumes.len() as u64) as usize];
                    packing.record(volume, random.below(self.blocks), random)
                }
                _ => self.random_record(random),
            };
            if let Some(packing) = &mut packing {
                packing.touch(&record, &payload);
            }
            records.push(record);
            payloads.push(payload);
        }
        if let Some(packing) = packing {
            self.next_object = packing.next_object;
            self.model.payloads.extend(packing.payloads);
        }
        GroupHead::lay_out(self.page, &mut records);
        let head = GroupHead {
            uuid: self.uuid,
            session: self.session,
            shard: self.shard,
            segment_seq: self.seq,
            group: self.group,
            tail_seq: self.tail_seq,
            durable_group: self.durable,
            page: self.page,
        };
        let bytes = group_bytes(&head, &records, &payloads);
        let physical = self.layout.physical(self.seq);
        let id = disk.submit(self.layout.page_offset(self.shard, physical, self.page), bytes);
        self.in_flight.push((self.group, id));
        let (number, seq, tail_seq) = (self.group, self.seq, self.tail_seq);
        self.model.groups.push(ModelGroup { number, seq, tail_seq, records: records.clone() });
        self.page += GroupHead::pages(&records);
        self.open.push((head, records));
        self.group += 1;
        if random.chance(1, 3) {
            self.write_late_footers(disk);
        }
    }

    /// Pages left for a group of that many records.
    fn room(&self, records: u64) -> u32 {
        let open_records: usize = self.open.iter().map(|(_, records)| records.len()).sum();
        self.layout.group_pages_with(open_records as u32 + records as u32).saturating_sub(self.page)
    }

    /// A plain record and its payload; its place is given later.
    fn random_record(&mut self, random: &mut Random) -> (Record, Vec<u8>) {
        let volume = self.volumes[random.below(self.volumes.len() as u64) as usize];
        let block = random.below(self.blocks);
        let without = Record { kind: RecordKind::Invalidate, volume, block, mask: 0, checksum: 0, slot_page: 0, packed: None };
        match random.below(10) {
            0..=1 => (without, Vec::new()),
            2..=3 => {
                // Usually of the newest record of the block, sometimes of an older one, or of none.
                let placed = self.model.placed().into_iter();
                let same = |record: &Record| record.kind.is_data() && (record.volume, record.block) == (volume, block);
                let places: Vec<(u64, u32)> = placed.filter(|one| same(&one.record)).map(|one| (one.seq, one.ordinal)).collect();
                let newest = places.last().copied().unwrap_or((self.seq, 1));
                let any = places.get(random.below(places.len().max(1) as u64) as usize).copied().unwrap_or(newest);
                let (of_seq, of_ordinal) = if random.chance(1, 3) { any } else { newest };
                (Record { kind: RecordKind::CleanNote { of_seq, of_ordinal }, ..without }, Vec::new())
            }
            kind => {
                let mut payload = [0; PAGE_BYTES];
                let word = random.next().to_le_bytes();
                payload.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&word));
                let checksum = payload_checksum(volume, block, &payload);
                let (kind, checksum) = match kind {
                    6 if self.loses && random.chance(1, 4) => (RecordKind::DataLost, !checksum),
                    ..7 => (RecordKind::DataDirty, checksum),
                    _ => (RecordKind::DataClean, checksum),
                };
                let record =
                    Record { kind, mask: if random.chance(1, 4) { 1 + random.below(255) as u8 } else { 0xff }, checksum, ..without };
                (record, payload.to_vec())
            }
        }
    }

    pub fn complete_one(&mut self, disk: &mut Disk, random: &mut Random) {
        if self.in_flight.is_empty() {
            return;
        }
        let (_, id) = self.in_flight.swap_remove(random.below(self.in_flight.len() as u64) as usize);
        disk.complete(id);
        self.acked = self.in_flight.iter().map(|(group, _)| *group).min().unwrap_or(self.group) - 1;
    }

    /// Flushes what is complete.
    pub fn flush(&mut self, disk: &mut Disk) {
        disk.flush_complete();
        self.durable = self.acked;
    }

    pub fn complete_all(&mut self, disk: &mut Disk) {
        for (_, id) in self.in_flight.drain(..) {
            disk.complete(id);
        }
        self.acked = self.group - 1;
    }

    /// Closes the open segment and opens the next one, whose previous life must be durably over.
    pub fn next_segment(&mut self, disk: &mut Disk, random: &mut Random) {
        let segments = u64::from(self.layout.segments_per_shard);
        let must_flush = self.durable_tail() + segments <= self.seq + 1;
        let habit = match self.habit {
            _ if must_flush => FooterHabit::Flushed,
            FooterHabit::Mixed => [FooterHabit::Flushed, FooterHabit::AtOnce, FooterHabit::Late][random.below(3) as usize],
            habit => habit,
        };
        if habit == FooterHabit::Flushed {
            self.complete_all(disk);
            self.flush(disk);
        }
        self.make_footer();
        if habit != FooterHabit::Late {
            self.write_late_footers(disk);
        }
        self.open.clear();
        self.seq += 1;
        self.page = 0;
        assert!(self.durable_tail() + segments > self.seq, "the writer let its ring fill");
        // A footer must not be written over its successor's.
        self.late_footers.retain(|(_, _, seq)| seq + segments > self.seq);
    }

    /// The footer of the open segment, to be written.
    fn make_footer(&mut self) {
        if let (Some((first, _)), Some((last, last_records))) = (self.open.first(), self.open.last()) {
            let head = FooterHead {
                uuid: self.uuid,
                session: self.session,
                shard: self.shard,
                segment_seq: self.seq,
                first_group: first.group,
                last_group: last.group,
                tail_seq: last.tail_seq,
                durable_group: self.durable,
                resume_seq: 0,
                resume_group: 0,
                used_pages: last.page + GroupHead::pages(last_records),
            };
            let records: Vec<Record> = self.open.iter().flat_map(|(_, records)| records).copied().collect();
            let offset_bytes = self.layout.footer_write_offset(self.shard, self.layout.physical(self.seq), records.len() as u32);
            self.late_footers.push((offset_bytes, head.encode(&self.layout, &records), self.seq));
        }
    }

    /// The tail that the medium durably tells to be durable: the tail of a group that a flushed header calls flushed. Only
    /// segments before it may be overwritten.
    /// Only segments before this one may be overwritten.
    fn durable_tail(&self) -> u64 {
        self.model.group(self.durable).map_or(0, |group| group.tail_seq).max(self.start_tail_seq)
    }

    fn write_late_footers(&mut self, disk: &mut Disk) {
        for (offset_bytes, bytes, _) in self.late_footers.drain(..) {
            let id = disk.submit(offset_bytes, bytes);
            disk.complete(id);
        }
    }

    /// Stops in order, each segment with a footer; gives where the log goes on.
    pub fn stop(&mut self, disk: &mut Disk) -> LogEnd {
        self.complete_all(disk);
        self.flush(disk);
        self.make_footer();
        self.write_late_footers(disk);
        self.flush(disk);
        let next_seq = self.seq + u64::from(self.page > 0);
        LogEnd { next_seq, next_group: self.group, tail_seq: self.tail_seq }
    }

    /// Everything written is complete and flushed, and said to be: two more groups claim it.
    pub fn settle(&mut self, disk: &mut Disk, random: &mut Random) {
        for _ in 0..3 {
            self.complete_all(disk);
            self.write_late_footers(disk);
            self.flush(disk);
            self.write_group(disk, random);
        }
        self.complete_all(disk);
        self.flush(disk);
    }
}
