//! The named sets of numbers a modelled disk runs on.

/// A modelled disk or array by name. Every figure that comes from a model names its set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ModelSet {
    /// One 7,200 rpm enterprise drive, write cache off.
    Disk7k2,
    /// The same drive with its volatile write cache on: writes are lost in a power cut unless flushed.
    Disk7k2WriteCache,
    /// One 15,000 rpm drive, write cache off.
    Disk15k,
    /// Three 7,200 rpm drives as RAID 5 behind a controller with battery-backed write cache, data on a tenth of the platters.
    Raid5Short,
    /// Eight 7,200 rpm drives striped behind a controller with battery-backed write cache and a read cache.
    Array,
    /// That array at the other end of one 1 Gbit/s link.
    GbeSan,
    /// A SATA SSD of 2012 that has been in use: what a pool may lie on, for comparison with a fast one.
    SataSsd2012,
}

impl ModelSet {
    /// All sets, in the order of the documentation.
    pub const ALL: [ModelSet; 7] = [
        ModelSet::Disk7k2,
        ModelSet::Disk7k2WriteCache,
        ModelSet::Disk15k,
        ModelSet::Raid5Short,
        ModelSet::Array,
        ModelSet::GbeSan,
        ModelSet::SataSsd2012,
    ];

    /// The word used in `model:SET:FILE` and beside every figure.
    pub const fn name(self) -> &'static str {
        match self {
            ModelSet::Disk7k2 => "7k2",
            ModelSet::Disk7k2WriteCache => "7k2-wce",
            ModelSet::Disk15k => "15k",
            ModelSet::Raid5Short => "7k2-raid5x3-short",
            ModelSet::Array => "array",
            ModelSet::GbeSan => "gbe-san",
            ModelSet::SataSsd2012 => "sata-ssd-2012",
        }
    }

    /// The set of that name; `None` if there is none.
    pub fn from_name(name: &str) -> Option<ModelSet> {
        ModelSet::ALL.into_iter().find(|set| set.name() == name)
    }

    /// One line for people: what this set stands for.
    pub const fn description(self) -> &'static str {
        match self {
            ModelSet::Disk7k2 => "one 7,200 rpm enterprise drive, write cache off",
            ModelSet::Disk7k2WriteCache => "one 7,200 rpm enterprise drive, volatile 32 MiB write cache on",
            ModelSet::Disk15k => "one 15,000 rpm drive, write cache off",
            ModelSet::Raid5Short => "three short-stroked 7,200 rpm drives as RAID 5, NVRAM of 1 % of the device",
            ModelSet::Array => "eight striped 7,200 rpm drives, NVRAM and read cache of 5 % of the device each",
            ModelSet::GbeSan => "the array set behind one 110 MB/s link",
            ModelSet::SataSsd2012 => "a used SATA SSD of 2012: 20,000 reads or 4,000 writes of 4 KiB a second",
        }
    }

    /// The numbers of this set for a device of `size_bytes` (caches are stated as shares of it).
    pub fn parameters(self, size_bytes: u64) -> ModelParameters {
        let disk = SpindleParameters::RPM_7K2;
        let plain = ModelParameters {
            spindle: disk,
            spindles: 1,
            layout: Layout::Single,
            cache: None,
            read_cache: None,
            controller_ns: 0,
            link: None,
            flash: None,
        };
        let array = ModelParameters {
            spindles: 8,
            layout: Layout::Striped { chunk_bytes: CHUNK_BYTES },
            cache: Some(WriteCacheParameters::nvram(size_bytes / 20)),
            read_cache: Some(ReadCacheParameters { capacity_bytes: size_bytes / 20, line_bytes: 16 << 10, hit_ns: 350_000 }),
            controller_ns: CONTROLLER_NS,
            ..plain.clone()
        };
        match self {
            ModelSet::Disk7k2 => plain,
            ModelSet::Disk7k2WriteCache => ModelParameters { cache: Some(WriteCacheParameters::drive(32 << 20)), ..plain },
            ModelSet::Disk15k => ModelParameters { spindle: SpindleParameters::RPM_15K, ..plain },
            ModelSet::Raid5Short => ModelParameters {
                spindle: SpindleParameters { span: 0.1, ..disk },
                spindles: 3,
                layout: Layout::Raid5 { chunk_bytes: CHUNK_BYTES, update: ParityUpdate::ReadModifyWrite },
                cache: Some(WriteCacheParameters::nvram(size_bytes / 100)),
                controller_ns: CONTROLLER_NS,
                ..plain
            },
            ModelSet::Array => array,
            ModelSet::GbeSan => ModelParameters { link: Some(LinkParameters { bytes_per_second: 110e6, latency_ns: 200_000 }), ..array },
            ModelSet::SataSsd2012 => ModelParameters { flash: Some(FlashParameters::SATA_2012), ..plain },
        }
    }
}

/// Stripe unit of the sets with several spindles: the usual default of controllers.
const CHUNK_BYTES: u64 = 64 << 10;
/// What an array controller spends on an I/O, one after the other: it does 10,000 IOPS.
const CONTROLLER_NS: u64 = 100_000;

/// All numbers of a modelled disk or array.
#[derive(Clone, PartialEq, Debug)]
pub struct ModelParameters {
    /// Every spindle is one of these.
    pub spindle: SpindleParameters,
    /// How many there are, at least 1.
    pub spindles: u32,
    /// How the device's bytes are laid over the spindles.
    pub layout: Layout,
    /// The write-back cache in front of the spindles, if any.
    pub cache: Option<WriteCacheParameters>,
    /// The array's read cache, if any.
    pub read_cache: Option<ReadCacheParameters>,
    /// Time the controller is busy with each I/O, one after the other, in ns; 0 for a bare drive.
    pub controller_ns: u64,
    /// The shared link in front of everything, if any.
    pub link: Option<LinkParameters>,
    /// In place of spindles, layout and caches: an SSD.
    pub flash: Option<FlashParameters>,
}

/// One drive: mechanics, media and buffer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SpindleParameters {
    /// Turns a minute.
    pub rpm: f64,
    /// Mean seek over uniformly drawn pairs of positions, in ms.
    pub seek_average_ms: f64,
    /// Seek from one track to the next, in ms.
    pub seek_track_ms: f64,
    /// What settling for a write adds to a seek, in ms.
    pub write_settle_ms: f64,
    /// Media rate on the outermost track, in MB/s (10^6 bytes).
    pub rate_outer_mb_s: f64,
    /// Media rate on the innermost track, in MB/s.
    pub rate_inner_mb_s: f64,
    /// Share of the stroke the data lies on, from the outermost track inwards: 1.0, or less for a short-stroked drive.
    pub span: f64,
    /// By how much of a turn the next track's start lags behind, so that a track switch does not lose a turn.
    pub track_skew_turns: f64,
    /// Electronics and protocol, for each command, in ms.
    pub overhead_ms: f64,
    /// Rate between the drive's buffer and the host, in MB/s.
    pub buffer_mb_s: f64,
    /// How far past a stream's end a read may start and still continue it.
    pub read_ahead_bytes: u64,
    /// What the drive reads on, past the end of a request that continues a stream, before it turns to other requests.
    pub read_ahead_segment_bytes: u64,
    /// Streams the buffer is divided among.
    pub read_ahead_streams: usize,
    /// How many waiting commands the drive chooses among.
    pub queue_depth: usize,
    /// A command older than this is served next, in ms; grows with the number waiting beyond `queue_depth`.
    pub age_limit_ms: f64,
}

impl SpindleParameters {
    /// Seagate Constellation ES.1 class: 8.5 ms mean seek, 150 MB/s outer, 75 MB/s inner.
    pub const RPM_7K2: SpindleParameters = SpindleParameters {
        rpm: 7200.0,
        seek_average_ms: 8.5,
        seek_track_ms: 0.7,
        write_settle_ms: 1.0,
        rate_outer_mb_s: 150.0,
        rate_inner_mb_s: 75.0,
        span: 1.0,
        track_skew_turns: 0.11,
        overhead_ms: 0.10,
        buffer_mb_s: 300.0,
        read_ahead_bytes: 2 << 20,
        read_ahead_segment_bytes: 512 << 10,
        read_ahead_streams: 16,
        queue_depth: 32,
        age_limit_ms: 600.0,
    };

    /// A 15,000 rpm drive: 3.4 ms mean seek, 200 MB/s outer, 130 MB/s inner.
    pub const RPM_15K: SpindleParameters = SpindleParameters {
        rpm: 15_000.0,
        seek_average_ms: 3.4,
        seek_track_ms: 0.3,
        rate_outer_mb_s: 200.0,
        rate_inner_mb_s: 130.0,
        ..SpindleParameters::RPM_7K2
    };
}

/// How the device's bytes are laid over the spindles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// One spindle holds everything.
    Single,
    /// Chunk after chunk on spindle after spindle, no redundancy.
    Striped {
        /// Stripe unit.
        chunk_bytes: u64,
    },
    /// One chunk of parity in each row of chunks, rotating over the spindles (left-symmetric).
    Raid5 {
        /// Stripe unit.
        chunk_bytes: u64,
        /// How parity is brought up to date when less than a row is written.
        update: ParityUpdate,
    },
}

/// How RAID 5 updates parity when less than a whole row is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParityUpdate {
    /// Always: read the old data and the old parity, then write both.
    ReadModifyWrite,
    /// Read whatever is less: the old data and parity, or the rest of the row.
    FewestReads,
}

/// A write-back cache between the host and the spindles.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WriteCacheParameters {
    /// Room for dirty data.
    pub capacity_bytes: u64,
    /// A write that finds room is acknowledged after this, plus
    pub accept_ns: u64,
    /// this for each byte.
    pub accept_ns_per_byte: f64,
    /// Lost in a power cut, so FLUSH must drain it and FUA go past it. Battery-backed caches are not volatile.
    pub volatile: bool,
    /// Up to this share of `capacity_bytes`, destage waits while reads are outstanding.
    pub yield_until: f64,
    /// Adjoining dirty blocks go to the spindles together, up to this many bytes.
    pub merge_bytes_max: u64,
    /// Destage runs in flight, for each spindle.
    pub destage_depth: usize,
}

impl WriteCacheParameters {
    /// A controller's battery-backed cache.
    pub const fn nvram(capacity_bytes: u64) -> WriteCacheParameters {
        WriteCacheParameters {
            capacity_bytes,
            accept_ns: 500_000,
            accept_ns_per_byte: 0.0,
            volatile: false,
            yield_until: 0.70,
            merge_bytes_max: 1 << 20,
            destage_depth: 16,
        }
    }

    /// A drive's own volatile cache: accepted at the speed of its buffer (300 MB/s), written when there is nothing to read.
    pub const fn drive(capacity_bytes: u64) -> WriteCacheParameters {
        WriteCacheParameters {
            accept_ns: 100_000,
            accept_ns_per_byte: 1000.0 / 300.0,
            volatile: true,
            ..WriteCacheParameters::nvram(capacity_bytes)
        }
    }
}

/// An array's read cache: least recently used lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadCacheParameters {
    /// Room for lines.
    pub capacity_bytes: u64,
    /// Size of a line.
    pub line_bytes: u64,
    /// A read of cached lines takes this.
    pub hit_ns: u64,
}

/// An SSD as its data sheet describes it: one command after the other, each for what its rate of commands or its rate of bytes asks for, whichever is
/// more, and a response on top. Nothing of pages, erasing or wear.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FlashParameters {
    /// Reads of 4 KiB a second, at depth.
    pub reads_per_second: f64,
    /// Writes of 4 KiB a second, sustained.
    pub writes_per_second: f64,
    /// Sequential reads.
    pub read_bytes_per_second: f64,
    /// Sequential writes.
    pub write_bytes_per_second: f64,
    /// What a read takes beyond its turn.
    pub read_latency_ns: u64,
    /// The same of a write, a flush, a discard.
    pub write_latency_ns: u64,
}

impl FlashParameters {
    /// Data sheets of 3 Gbit/s drives (Intel SSD 320 class) give 270 and 205 MB/s in sequence, 75 and 90 µs for a response; their random figures hold for
    /// a fresh drive and a small span. 20,000 reads and 4,000 writes a second stand for one that has been filled and rewritten.
    pub const SATA_2012: FlashParameters = FlashParameters {
        reads_per_second: 20_000.0,
        writes_per_second: 4000.0,
        read_bytes_per_second: 270e6,
        write_bytes_per_second: 205e6,
        read_latency_ns: 75_000,
        write_latency_ns: 90_000,
    };

    /// How long a command of so many bytes has the drive for itself, in ns.
    pub fn busy_ns(&self, write: bool, length_bytes: u64) -> u64 {
        let (commands, bytes) =
            if write { (self.writes_per_second, self.write_bytes_per_second) } else { (self.reads_per_second, self.read_bytes_per_second) };
        (1e9 / commands).max(length_bytes as f64 * 1e9 / bytes) as u64
    }
}

/// A link that all transfers share, both directions together.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinkParameters {
    /// Rate.
    pub bytes_per_second: f64,
    /// What a round trip adds to each I/O.
    pub latency_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found_again() {
        for set in ModelSet::ALL {
            assert_eq!(ModelSet::from_name(set.name()), Some(set));
        }
        assert_eq!(ModelSet::from_name("7K2"), None);
    }

    #[test]
    fn caches_are_shares_of_the_device() {
        let parameters = ModelSet::Raid5Short.parameters(100 << 30);
        assert_eq!(parameters.cache.map(|cache| cache.capacity_bytes), Some(1 << 30));
        assert!(ModelSet::Disk7k2.parameters(1 << 30).cache.is_none());
    }
}
