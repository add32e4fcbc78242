//! What is counted, with units. All counters only grow; gauges say so.

use crate::api::IoKind;
use crate::index::Census;
use retention::chooser::Choice;
use types::BypassReason;

/// Counters of one volume in one shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VolumeStats {
    /// Read requests (parts of requests, where an extent boundary split them).
    pub reads: u64,
    /// Bytes asked for by them.
    pub read_bytes: u64,
    /// Write, zero and discard requests.
    pub writes: u64,
    /// Bytes they cover.
    pub write_bytes: u64,
    /// Flush requests.
    pub flushes: u64,
    /// Blocks read and found in RAM.
    pub read_hits_ram: u64,
    /// Blocks read and found on the SSD.
    pub read_hits_ssd: u64,
    /// Blocks read that had to come from the backing device.
    pub read_misses: u64,
    /// Blocks that the backing device was asked for along with these, since their neighbours are used.
    pub read_along_blocks: u64,
    /// Of them, those that a client read while they were in RAM.
    pub read_along_hits: u64,
    /// Requests of clients (or blocks, for `FirstTouch` and `NoSpace`) turned away, by [`BypassReason`]. Reads that no client waits for are in
    /// none of them.
    pub bypassed: [u64; BypassReason::ALL.len()],
    /// Bytes of client data that entered the SSD: dirty writes and admitted clean blocks.
    pub admitted_bytes: u64,
    /// Writes that covered some atomic unit in part: nothing is promised of these units together.
    pub partial_unit_writes: u64,
    /// Bytes appended again because their region was given up.
    pub reinserted_bytes: u64,
    /// Read I/Os to the backing device.
    pub backing_reads: u64,
    /// Bytes of them.
    pub backing_read_bytes: u64,
    /// I/Os that write data or zeroes to the backing device, destage included. What gives ranges up is none.
    pub backing_writes: u64,
    /// Bytes of them.
    pub backing_written_bytes: u64,
    /// I/Os that give ranges of the backing device up.
    pub backing_discards: u64,
    /// Bytes destaged.
    pub destaged_bytes: u64,
    /// Destage writes that failed and will be tried again.
    pub destage_errors: u64,
    /// Blocks read from the SSD whose content did not match their checksum.
    pub checksum_errors: u64,
    /// Reads of the SSD that failed.
    pub ssd_read_errors: u64,
    /// Gauge: dirty bytes now.
    pub dirty_bytes: u64,
    /// Gauge: bytes cached on the SSD now.
    pub cached_bytes: u64,
    /// Gauge: bytes held in RAM now.
    pub ram_bytes: u64,
}

impl VolumeStats {
    /// Counts an I/O to the backing device that is not destage.
    pub(crate) fn count_backing_write(&mut self, kind: &IoKind, length_bytes: u64) {
        match kind {
            IoKind::Discard | IoKind::WriteZeroes { hole: true, .. } => self.backing_discards += 1,
            _ => {
                self.backing_writes += 1;
                self.backing_written_bytes += length_bytes;
            }
        }
    }

    /// Adds another shard's counters and gauges.
    pub fn add(&mut self, other: &VolumeStats) {
        let VolumeStats {
            reads,
            read_bytes,
            writes,
            write_bytes,
            flushes,
            read_hits_ram,
            read_hits_ssd,
            read_misses,
            read_along_blocks,
            read_along_hits,
            bypassed,
            admitted_bytes,
            partial_unit_writes,
            reinserted_bytes,
            backing_reads,
            backing_read_bytes,
            backing_writes,
            backing_written_bytes,
            backing_discards,
            destaged_bytes,
            destage_errors,
            checksum_errors,
            ssd_read_errors,
            dirty_bytes,
            cached_bytes,
            ram_bytes,
        } = other;
        self.reads += reads;
        self.read_bytes += read_bytes;
        self.writes += writes;
        self.write_bytes += write_bytes;
        self.flushes += flushes;
        self.read_hits_ram += read_hits_ram;
        self.read_hits_ssd += read_hits_ssd;
        self.read_misses += read_misses;
        self.read_along_blocks += read_along_blocks;
        self.read_along_hits += read_along_hits;
        for (mine, theirs) in self.bypassed.iter_mut().zip(bypassed) {
            *mine += theirs;
        }
        self.admitted_bytes += admitted_bytes;
        self.partial_unit_writes += partial_unit_writes;
        self.reinserted_bytes += reinserted_bytes;
        self.backing_reads += backing_reads;
        self.backing_read_bytes += backing_read_bytes;
        self.backing_writes += backing_writes;
        self.backing_written_bytes += backing_written_bytes;
        self.backing_discards += backing_discards;
        self.destaged_bytes += destaged_bytes;
        self.destage_errors += destage_errors;
        self.checksum_errors += checksum_errors;
        self.ssd_read_errors += ssd_read_errors;
        self.dirty_bytes += dirty_bytes;
        self.cached_bytes += cached_bytes;
        self.ram_bytes += ram_bytes;
    }

    /// Notes that something was turned away.
    pub fn turn_away(&mut self, reason: BypassReason) {
        self.bypassed[reason as usize] += 1;
    }
}

/// What a shard makes of what blocks contain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ContentStats {
    /// Gauge: blocks on the SSD stored as they are, each as a page.
    pub plain_blocks: u64,
    /// Gauge: how the others are stored.
    pub census: Census,
    /// Gauge: memory of hints, in bytes.
    pub hint_bytes: u64,
    /// Gauge: bases whose content is kept in memory beside the RAM tier.
    pub bases_in_memory: u64,
    /// Blocks encoded.
    pub encoded_blocks: u64,
    /// CPU time that took, in nanoseconds.
    pub encoding_cpu_ns: u64,
    /// Bytes of them that did not have to be written.
    pub saved_bytes: u64,
    /// Blocks that became zstd when they were moved.
    pub recompressed_blocks: u64,
    /// Bytes by which they became smaller.
    pub recompressed_saved_bytes: u64,
}

impl ContentStats {
    /// Blocks on the SSD stored otherwise than as pages, as they are.
    pub fn packed_blocks(&self) -> u64 {
        let Census { raw, lz4, zstd, zero, duplicate, delta, lost, .. } = self.census;
        raw + lz4 + zstd + zero + duplicate + delta + lost
    }

    /// Adds another shard's counters and gauges.
    pub fn add(&mut self, other: &ContentStats) {
        let ContentStats {
            plain_blocks,
            census,
            hint_bytes,
            bases_in_memory,
            encoded_blocks,
            encoding_cpu_ns,
            saved_bytes,
            recompressed_blocks,
            recompressed_saved_bytes,
        } = other;
        let Census { raw, lz4, zstd, zero, duplicate, delta, lost, orphans, references, stored_bytes } = census;
        self.plain_blocks += plain_blocks;
        self.census.raw += raw;
        self.census.lz4 += lz4;
        self.census.zstd += zstd;
        self.census.zero += zero;
        self.census.duplicate += duplicate;
        self.census.delta += delta;
        self.census.lost += lost;
        self.census.orphans += orphans;
        self.census.references += references;
        self.census.stored_bytes += stored_bytes;
        self.hint_bytes += hint_bytes;
        self.bases_in_memory += bases_in_memory;
        self.encoded_blocks += encoded_blocks;
        self.encoding_cpu_ns += encoding_cpu_ns;
        self.saved_bytes += saved_bytes;
        self.recompressed_blocks += recompressed_blocks;
        self.recompressed_saved_bytes += recompressed_saved_bytes;
    }
}

/// Gauges of a store in which blocks lie in slots, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SlotGauges {
    /// Pages for blocks.
    pub slots: u64,
    /// Those that can be written now.
    pub free: u64,
    /// Those that nothing current is in, and that become free with the next flush or when their readers have ended.
    pub leaving: u64,
    /// Runs that the free ones make: as long as they are on the average, so much is written at once.
    pub free_runs: u64,
    /// Those that hold packed blocks, several in one or one in a part of it.
    pub packed: u64,
    /// Packed records in them, the payload of which takes so many bytes.
    pub packed_records: u64,
    /// See `packed_records`.
    pub packed_bytes: u64,
    /// Pages of the ring of statements.
    pub ring_pages: u64,
    /// Those that a start would read.
    pub ring_used_pages: u64,
}

impl SlotGauges {
    /// Adds another shard's.
    pub fn add(&mut self, other: &SlotGauges) {
        let SlotGauges { slots, free, leaving, free_runs, packed, packed_records, packed_bytes, ring_pages, ring_used_pages } = other;
        self.slots += slots;
        self.free += free;
        self.leaving += leaving;
        self.free_runs += free_runs;
        self.packed += packed;
        self.packed_records += packed_records;
        self.packed_bytes += packed_bytes;
        self.ring_pages += ring_pages;
        self.ring_used_pages += ring_used_pages;
    }
}

/// Counters and gauges of a shard as a whole.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ShardStats {
    /// Bytes written to the SSD: payload, group headers, footers.
    pub ssd_written_bytes: u64,
    /// Gauge: blocks in the index.
    pub cached_blocks: u64,
    /// Gauge: dirty blocks.
    pub dirty_blocks: u64,
    /// Gauge: slots there are.
    pub slots: u64,
    /// Gauge: blocks in RAM.
    pub ram_blocks: u64,
    /// Gauge: memory of the index, in bytes.
    pub index_bytes: u64,
    /// Gauge: memory of the policy, in bytes.
    pub policy_bytes: u64,
    /// Gauge: number of the region being filled.
    pub newest_region: u64,
    /// Gauge: number of the oldest region.
    pub oldest_region: u64,
    /// Gauge: regions that could be filled now.
    pub free_regions: u64,
    /// Gauge: requests in flight or waiting.
    pub requests: u64,
    /// Which member of the policies' family is followed, and how the others do.
    pub retention: Option<Choice>,
    /// Where blocks lie in slots.
    pub in_slots: Option<SlotGauges>,
}

impl ShardStats {
    /// Adds another shard's; numbers of regions, and choices of policy, are each shard's own and stay.
    pub fn add(&mut self, other: &ShardStats) {
        let ShardStats {
            ssd_written_bytes,
            cached_blocks,
            dirty_blocks,
            slots,
            ram_blocks,
            index_bytes,
            policy_bytes,
            newest_region: _,
            oldest_region: _,
            free_regions,
            requests,
            retention: _,
            in_slots,
        } = other;
        if let Some(other) = in_slots {
            self.in_slots.get_or_insert_default().add(other);
        }
        self.ssd_written_bytes += ssd_written_bytes;
        self.cached_blocks += cached_blocks;
        self.dirty_blocks += dirty_blocks;
        self.slots += slots;
        self.ram_blocks += ram_blocks;
        self.index_bytes += index_bytes;
        self.policy_bytes += policy_bytes;
        self.free_regions += free_regions;
        self.requests += requests;
    }
}
