//! A run's options, all drawn from the seed: each run switches features and faults on and off (swarm testing), so that
//! rare combinations meet.

mod beside;
mod content;
mod damage;
mod growth;
mod labels;
mod large;
mod packed;
mod themes;
mod units;

use engine::api::VolumeOptions;
use types::{Admission, EXTENT_SECTORS, Mode, OnSsdLoss};

use crate::disk::Pace;
use crate::disk::faults::Faults;
use crate::prng::Prng;
use themes::{THEMES, Theme, faults};

pub use content::{ContentPlan, ContentSetting, ENCODING_NS, Level};
pub use labels::LabelPlan;

/// One volume.
#[derive(Clone, Debug)]
pub struct VolumePlan {
    /// Its size when it grows no more.
    pub sectors: u64,
    /// Its size at first.
    pub first_sectors: u64,
    /// The backing device begins as zeroes rather than with data.
    pub zeroed: bool,
    /// The backing device has a volatile write cache.
    pub volatile: bool,
    /// The backing device discards.
    pub discards: bool,
    /// How it is treated at first.
    pub options: VolumeOptions,
    /// How its device misbehaves.
    pub faults: Faults,
    /// How fast its device is.
    pub pace: Pace,
}

/// Weights of what clients do.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Weights of read, write, zeroes, discard, flush.
    pub ops: [u32; 5],
    /// Writes with FUA, in a hundred.
    pub fua_percent: u32,
    /// Blocks that get most of the requests.
    pub hot_blocks: u64,
    /// Requests that go to them, in a hundred.
    pub hot_percent: u32,
    /// Weights of sizes: one sector, below a block, one block, few blocks, up to 64 KiB, larger than an extent.
    pub sizes: [u32; 6],
    /// Requests that go on where the last one ended, in a hundred.
    pub sequential_percent: u32,
    /// Zeroes and discards that go over many extents, up to the whole volume, in a hundred.
    pub ranges_percent: u32,
    /// Requests that go to the last blocks of the volume, as it is then, in a hundred.
    pub end_percent: u32,
    /// Reads and writes of whole atomic units, where the volume has such, in a hundred.
    pub units_percent: u32,
}

/// Weights of what the operator does: set options, destage, cancel, drop clean, detach and attach, clean stop, replace the
/// SSD.
pub type OperatorMix = [u32; 7];

/// Everything about a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed it came from.
    pub seed: u64,
    /// The volumes.
    pub volumes: Vec<VolumePlan>,
    /// Shards of the pool.
    pub shards: u16,
    /// Threads that connections live on.
    pub fronts: u16,
    /// Size of the SSD.
    pub ssd_bytes: u64,
    /// Size of a segment.
    pub segment_bytes: u64,
    /// Before some of its starts, the pool gives a part of its SSD away, or takes it back.
    pub resizes: bool,
    /// The pool was a log: its rings are anywhere. Or it is one yet, and its first start makes it slots ([`Plan::begins_as_log`]).
    pub was_log: bool,
    /// Slots that the buckets of a shard's index could name; fewer than there are: those.
    pub index_slots: u32,
    /// RAM tier, whole pool.
    pub ram_bytes: u64,
    /// The SSD has a volatile write cache.
    pub ssd_volatile: bool,
    /// How the SSD misbehaves.
    pub ssd_faults: Faults,
    /// How fast the SSD is.
    pub ssd_pace: Pace,
    /// Connections.
    pub connections: u16,
    /// Requests each keeps in flight.
    pub depth: u32,
    /// Requests in the safety phase.
    pub requests: u32,
    /// What clients do.
    pub mix: Mix,
    /// Typical pause between requests of a connection.
    pub think_ns: u64,
    /// Crashes in the safety phase.
    pub crashes: u32,
    /// Of those, power cuts, in a hundred.
    pub power_percent: u32,
    /// Chance that blocking work (recovery, format, stop) is cut short by a crash, in a hundred.
    pub crash_in_blocking_percent: u32,
    /// Typical time between acts of the operator; 0: none.
    pub operator_ns: u64,
    /// What the operator does.
    pub operator: OperatorMix,
    /// Typical time of a message between threads; 0: they are one thread.
    pub message_ns: u64,
    /// After a restart everything ever written is read at once.
    pub read_all_after_restart: bool,
    /// The SSD leaves once during the safety phase (F7).
    pub ssd_leaves: bool,
    /// And in each life that follows.
    pub ssd_leaves_again: bool,
    /// The backing device of volume 0 leaves for a while (F7).
    pub backing_leaves: bool,
    /// Typical time between damages to old data on the SSD (F5); 0: none.
    pub rot_ns: u64,
    /// The operator changes modes to and fro, and crashes wait for one of his commands: 0 a change of mode, 1 a destage, 2 a detach, 3 a
    /// replacement of the SSD.
    pub meddles: Option<u8>,
    /// Typical time between disconnects of clients with requests in flight (F11); 0: none.
    pub disconnect_ns: u64,
    /// Chance that a start is first tried with an older copy of the SSD, or a shorter one (F7), in a hundred.
    pub exchange_percent: u32,
    /// Typical time between shortages of pages (F13); 0: none.
    pub shortage_ns: u64,
    /// Typical time for which the host has much to do, and then has not; 0: it never has.
    pub busy_ns: u64,
    /// What it has to do with what blocks contain; `None`: all data is unique, and the pool stores blocks as they are.
    pub content: Option<ContentPlan>,
    /// How often all clients rest for some seconds, so that the pool has time for what it does when idle.
    pub rests: u32,
    /// Typical time between growths of volumes; 0: they keep their size.
    pub grow_ns: u64,
    /// What is said of objects; `None`: nothing.
    pub labels: Option<LabelPlan>,
    /// Instead of detaching a volume, the operator often lets its backing device go and attaches it again.
    pub releases: bool,
}

fn options(prng: &mut Prng) -> VolumeOptions {
    let mode = prng.pick(&[
        Mode::WriteBack,
        Mode::WriteBack,
        Mode::WriteBack,
        Mode::WriteThrough,
        Mode::WriteThrough,
        Mode::WriteAround,
        Mode::PassThrough,
    ]);
    let admission = prng.pick(&[Admission::Always, Admission::Always, Admission::SecondTouch]);
    let write_cache_depth_ns = prng.pick(&[1_000_000, 50_000_000, 30_000_000_000]);
    // Drawn from what is drawn already, so that older seeds are what they were.
    let on_ssd_loss = if write_cache_depth_ns == 50_000_000 { OnSsdLoss::Continue } else { OnSsdLoss::Stop };
    let dirty_limit_bytes = prng.pick(&[u64::MAX, u64::MAX, 256 << 10, 32 << 10]);
    let max_io_bytes = prng.pick(&[64 << 10, 16 << 10, 4 << 20]);
    let sequential_cutoff_bytes = prng.pick(&[None, Some(1 << 20), Some(64 << 10)]);
    VolumeOptions {
        mode,
        admission,
        write_cache_depth_ns,
        on_ssd_loss,
        dirty_limit_bytes,
        max_io_bytes,
        sequential_cutoff_bytes,
        // In the others, what options send around the cache goes there after flushes, too.
        log_burst_bytes: if sequential_cutoff_bytes == Some(1 << 20) { u64::MAX } else { 0 },
        latency_goal_ns: prng.pick(&[50_000_000, 1_000_000]),
        destage_rate_bytes: prng.pick(&[None, None, None, Some(1 << 20)]),
        read_only: false,
        atomic_bytes: None,
    }
}

fn pace(prng: &mut Prng, slow: bool) -> Pace {
    let io_ns = if slow { prng.pick(&[100_000, 4_000_000]) } else { prng.pick(&[20_000, 100_000]) };
    Pace { io_ns, flush_ns: io_ns * prng.pick(&[1, 10]), early_per_10k: prng.pick(&[0, 2_000, 5_000]) }
}

impl VolumePlan {
    fn draw(theme: Theme, options_of_all: Option<&VolumeOptions>, prng: &mut Prng) -> VolumePlan {
        VolumePlan {
            sectors: prng.pick(&[EXTENT_SECTORS, EXTENT_SECTORS / 2 + 24, 2 * EXTENT_SECTORS, 3 * EXTENT_SECTORS / 2 + 5]),
            first_sectors: 0,
            zeroed: prng.percent(30),
            volatile: prng.percent(75),
            discards: prng.percent(60),
            options: options_of_all.cloned().unwrap_or_else(|| options(prng)),
            faults: faults(theme, false, prng),
            pace: pace(prng, true),
        }
    }
}

impl Mix {
    /// Nothing more often than anything else, all over the volume.
    fn even() -> Mix {
        Mix {
            ops: [1; 5],
            fua_percent: 0,
            hot_blocks: 1,
            hot_percent: 0,
            sizes: [1; 6],
            sequential_percent: 0,
            ranges_percent: 0,
            end_percent: 0,
            units_percent: 0,
        }
    }

    fn draw(prng: &mut Prng) -> Mix {
        Mix {
            ops: [prng.pick(&[10, 40, 80]), prng.pick(&[20, 40, 80]), prng.pick(&[0, 0, 5]), prng.pick(&[0, 0, 5]), prng.pick(&[0, 3, 10])],
            fua_percent: prng.pick(&[0, 8, 30]),
            hot_blocks: prng.pick(&[2, 8, 32, 128]),
            hot_percent: prng.pick(&[50, 90, 99]),
            sizes: [prng.pick(&[0, 5, 20]), prng.pick(&[0, 5]), 40, prng.pick(&[5, 20]), prng.pick(&[0, 4]), prng.pick(&[0, 0, 1])],
            sequential_percent: prng.pick(&[0, 0, 20, 70]),
            ranges_percent: 0,
            end_percent: 0,
            units_percent: 0,
        }
    }
}

impl Plan {
    /// The smallest pool and volume, with nothing left to chance but `salt`: for exhaustive runs.
    pub fn tiny(mode: Mode, salt: u64) -> Plan {
        let pace = |io_ns| Pace { io_ns, flush_ns: io_ns, early_per_10k: 0 };
        let options = VolumeOptions {
            mode,
            admission: Admission::Always,
            write_cache_depth_ns: 30_000_000_000,
            max_io_bytes: 64 << 10,
            sequential_cutoff_bytes: None,
            ..VolumeOptions::default()
        };
        let volume = VolumePlan {
            sectors: 16,
            first_sectors: 16,
            zeroed: false,
            volatile: true,
            discards: true,
            options,
            faults: Faults::none(),
            pace: pace(100_000),
        };
        Plan {
            seed: salt,
            volumes: vec![volume],
            shards: 1,
            fronts: 1,
            ssd_bytes: (1 << 20) + (128 << 10) + 8 * (64 << 10),
            segment_bytes: 64 << 10,
            index_slots: 0,
            ram_bytes: 64 << 10,
            ssd_volatile: true,
            ssd_faults: Faults::none(),
            ssd_pace: pace(20_000),
            connections: 1,
            depth: 16,
            requests: 0,
            mix: Mix::even(),
            think_ns: 1_000,
            crashes: 0,
            power_percent: 0,
            crash_in_blocking_percent: 0,
            operator_ns: 0,
            operator: [0; 7],
            message_ns: 0,
            read_all_after_restart: false,
            ssd_leaves: false,
            ssd_leaves_again: false,
            backing_leaves: false,
            rot_ns: 0,
            resizes: false,
            was_log: false,
            meddles: None,
            disconnect_ns: 0,
            exchange_percent: 0,
            shortage_ns: 0,
            busy_ns: 0,
            content: None,
            rests: 0,
            grow_ns: 0,
            labels: None,
            releases: false,
        }
    }

    /// The smallest ring and long writes, so that the log goes round again and again; sometimes reads of the SSD take whole laps.
    fn go_round(&mut self, prng: &mut Prng) {
        self.segment_bytes = 64 << 10;
        self.ssd_bytes = (1 << 20) + 2 * self.segment_bytes + u64::from(self.shards) * 8 * self.segment_bytes;
        (self.mix.ops[1], self.mix.sizes) = (60, [2, 0, 40, 20, 10, 0]);
        self.mix.hot_blocks = 128;
        self.requests = 350;
        self.ssd_faults.slow_read_per_10k = prng.pick(&[0, 100, 500]);
        // Flushes that take as long as much of a lap: the head comes near segments whose eviction is not durable yet. And then the power goes.
        let own = &mut Prng::new(self.seed).fork(9);
        if own.percent(50) {
            self.ssd_pace.flush_ns *= own.pick(&[30, 300, 3_000]);
            self.mix.hot_blocks = own.pick(&[16, 32, 128]);
            self.mix.fua_percent = 0;
            (self.depth, self.think_ns) = (16, 1_000);
            (self.crashes, self.power_percent, self.ssd_volatile) = (6, 100, true);
            self.volumes[0].options.mode = Mode::WriteBack;
        }
        if self.is_harmless() {
            match prng.below(6) {
                0 => (self.ssd_faults.corrupt_read_per_10k, self.ssd_faults.budget) = (300, 20),
                1 => self.ssd_faults.flush_error_per_10k = 300,
                2 => self.volumes[0].faults.flush_error_per_10k = 1_000,
                _ => {}
            }
        }
    }

    /// What lies on the SSD decays, and is looked for again and again; the SSD does nothing else wrong that would use up what it may.
    fn decay_only(&mut self) {
        (self.ssd_faults.corrupt_read_per_10k, self.ssd_faults.corrupt_write_per_10k) = (0, 0);
        (self.ssd_faults.budget, self.rot_ns) = (30, self.rot_ns.min(2_000_000));
        (self.crashes, self.operator_ns) = (6, 0);
        // Most blocks are written once and stay dirty: then each record counts.
        (self.mix.ops[1], self.mix.hot_blocks, self.mix.hot_percent) = (80, 128, 50);
        for volume in &mut self.volumes {
            volume.options.mode = Mode::WriteBack;
            volume.options.write_cache_depth_ns = 30_000_000_000;
        }
    }

    /// Few blocks that are written into the log, come home at once, and are written around the log, while flushes are slow and the power goes.
    fn go_around(&mut self) {
        (self.mix.ops[1], self.mix.sizes) = (80, [0, 0, 40, 5, 20, 0]);
        (self.mix.hot_blocks, self.mix.hot_percent, self.mix.fua_percent) = (128, 95, 0);
        self.ssd_pace.flush_ns = self.ssd_pace.io_ns * 30;
        (self.crashes, self.power_percent, self.ssd_volatile) = (6, 100, true);
        (self.ssd_faults, self.ssd_leaves, self.backing_leaves, self.rot_ns) = (Faults::none(), false, false, 0);
        for volume in &mut self.volumes {
            let options = &mut volume.options;
            (options.mode, options.write_cache_depth_ns, options.max_io_bytes) = (Mode::WriteBack, 1_000_000, 8 << 10);
            volume.faults = Faults::none();
        }
    }

    /// Blocks that rest on clean ones which came into the log a moment ago, moved there, or are about to leave it, while flushes are slow and
    /// the power goes. No device does wrong, so nothing is excused.
    fn share(&mut self, prng: &mut Prng) {
        let Some(content) = &mut self.content else { return };
        content.share(prng);
        self.segment_bytes = 64 << 10;
        self.mix.ops = [60, prng.pick(&[30, 80]), 0, 0, 0];
        (self.mix.hot_blocks, self.mix.fua_percent, self.ram_bytes) = (prng.pick(&[32, 128]), 0, 64 << 10);
        self.ssd_pace.flush_ns = self.ssd_pace.io_ns * prng.pick(&[3, 30, 300]);
        (self.power_percent, self.ssd_volatile, self.read_all_after_restart) = (100, true, true);
        (self.ssd_faults, self.ssd_leaves, self.backing_leaves, self.rot_ns) = (Faults::none(), false, false, 0);
        let mut segments = 8;
        if prng.percent(70) {
            (self.mix.sizes, self.mix.hot_percent) = ([0, 0, 40, 5, 5, 0], 90);
            (self.requests, self.depth, self.crashes) = (500, 16, 6);
        } else {
            // In a short ring nobody writes while a segment is taken back. Of 64 segments it is begun early enough that they do, for long if what is
            // kept takes long to be read; and some lives are long enough to come round to what is still in memory.
            (segments, self.shards, self.ssd_faults.slow_read_per_10k) = (64, 1, prng.pick(&[0, 500, 3_000]));
            (self.mix.sizes, self.mix.hot_percent) = ([0, 0, 40, 10, 30, 0], prng.pick(&[20, 80]));
            (self.requests, self.depth, self.crashes) = (1_000, prng.pick(&[2, 16]), prng.pick(&[0, 2]));
            self.volumes.truncate(1);
            self.volumes[0].sectors = self.volumes[0].sectors.min(EXTENT_SECTORS);
            self.keep_sizes();
        }
        self.ssd_bytes = (1 << 20) + 2 * self.segment_bytes + u64::from(self.shards) * segments * self.segment_bytes;
        let depth_ns = prng.pick(&[1_000_000, 30_000_000_000]);
        for volume in &mut self.volumes {
            let options = &mut volume.options;
            (options.mode, options.admission, options.write_cache_depth_ns) = (Mode::WriteBack, Admission::Always, depth_ns);
            options.sequential_cutoff_bytes = None;
            (volume.zeroed, volume.faults) = (false, Faults::none());
        }
    }

    /// Dirty blocks that take little are written over with what takes whole pages, while nearly nothing goes home.
    fn swell(&mut self, prng: &mut Prng) {
        let Some(content) = &mut self.content else { return };
        content.swell(prng);
        (self.segment_bytes, self.rests) = (64 << 10, 0);
        self.ssd_bytes = (1 << 20) + 2 * self.segment_bytes + prng.pick(&[16, 24]) * self.segment_bytes;
        self.shards = 1;
        (self.mix.ops, self.mix.sizes, self.mix.fua_percent) = ([5, 80, 0, 0, 1], [1, 0, 20, 20, 60, 0], 0);
        (self.mix.hot_blocks, self.mix.hot_percent) = (512, prng.pick(&[50, 90]));
        (self.requests, self.depth, self.think_ns, self.crashes) = (600, 16, 1_000, prng.pick(&[0, 1]));
        for volume in &mut self.volumes {
            let options = &mut volume.options;
            (options.mode, options.admission, options.write_cache_depth_ns) = (Mode::WriteBack, Admission::Always, 30_000_000_000);
            (options.dirty_limit_bytes, options.max_io_bytes, options.sequential_cutoff_bytes) = (u64::MAX, 64 << 10, None);
            volume.pace.io_ns = prng.pick(&[4_000_000, 100_000_000]);
        }
        let own = &mut Prng::new(self.seed).fork(11);
        if own.percent(20) {
            // Write-back is left, and what is written around the log makes block after block void, while
            // the cleaner waits for the SSD: each group of such records takes a page.
            self.ssd_faults.slow_read_per_10k = own.pick(&[1_000, 3_000]);
            (self.operator_ns, self.operator) = (own.pick(&[10_000_000, 50_000_000]), [1, 0, 0, 0, 0, 0, 0]);
            (self.crashes, self.mix.hot_percent) = (0, 90);
            for volume in &mut self.volumes {
                volume.pace.io_ns = own.pick(&[100_000, 4_000_000]);
            }
        }
    }

    /// One segment after the other is checked while it is written, with blocks stored as they are beside packed ones.
    fn check(&mut self, prng: &mut Prng) {
        let Some(content) = &mut self.content else { return };
        content.change_level_ns = prng.pick(&[200_000, 1_000_000]);
        (self.operator_ns, self.operator, self.rests) = (prng.pick(&[100_000, 500_000]), [0, 0, 0, 1, 0, 0, 0], 0);
        self.mix.ops[1] = 80;
        for volume in &mut self.volumes {
            volume.options.mode = Mode::WriteBack;
        }
    }

    /// Volumes of many extents, of which many are discarded or zeroed at once while others read and write in them, from two threads.
    fn use_ranges(&mut self, prng: &mut Prng) {
        for volume in &mut self.volumes {
            volume.sectors = EXTENT_SECTORS * prng.between(3, 7) + prng.pick(&[0, 0, 5, 24]);
            volume.discards = prng.percent(80);
        }
        (self.mix.ranges_percent, self.fronts) = (prng.pick(&[30, 90]), prng.pick(&[1, 2, 2]));
        self.mix.ops[2] = prng.pick(&[0, 3, 10]);
        self.mix.ops[3] = prng.pick(&[3, 10]);
        self.requests = self.requests.min(300);
        if prng.percent(40) {
            self.use_ranges_before_flushes(prng);
        }
    }

    /// What ranges meet is in the log or at home, and not flushed there, when the power goes; or the backing device refuses.
    fn use_ranges_before_flushes(&mut self, prng: &mut Prng) {
        (self.mix.ops, self.mix.sizes, self.mix.fua_percent) = ([60, 40, 4, 8, 2], [0, 0, 40, 5, 20, 0], 0);
        (self.mix.hot_blocks, self.mix.hot_percent, self.requests) = (prng.pick(&[32, 128]), 95, 400);
        self.ssd_pace.flush_ns = self.ssd_pace.io_ns * prng.pick(&[1, 30]);
        (self.crashes, self.power_percent, self.ssd_volatile, self.read_all_after_restart) = (6, 100, true, true);
        (self.ssd_faults, self.ssd_leaves, self.backing_leaves, self.rot_ns) = (Faults::none(), false, false, 0);
        let (refuses, mode) = (prng.percent(50), prng.pick(&[Mode::WriteBack, Mode::WriteBack, Mode::WriteThrough]));
        for volume in &mut self.volumes {
            let options = &mut volume.options;
            (options.mode, options.admission, options.write_cache_depth_ns) = (mode, Admission::Always, 1_000_000);
            (volume.volatile, volume.pace.flush_ns) = (true, volume.pace.io_ns * prng.pick(&[3, 100]));
            volume.faults = Faults::none();
            if refuses {
                (volume.faults.on, volume.faults.budget, volume.faults.write_error_per_10k) = (true, 20, 500);
            }
        }
    }

    /// The SSD is lost in every life, with much that is dirty on it, and mostly comes back.
    pub fn always_lose_ssd(&mut self) {
        self.forget_units();
        let prng = &mut Prng::new(self.seed).fork(28);
        (self.ssd_leaves, self.ssd_leaves_again, self.backing_leaves, self.rot_ns) = (true, true, false, 0);
        self.ssd_faults = Faults::none();
        (self.crashes, self.power_percent) = (prng.pick(&[2, 4, 6]), prng.pick(&[0, 0, 50]));
        self.mix.ops[1] = prng.pick(&[40, 80]);
        self.mix.ops[4] = prng.pick(&[0, 3, 10]);
        (self.mix.hot_blocks, self.requests) = (prng.pick(&[8, 32, 128]), self.requests.max(300));
        if prng.percent(50) {
            // Little is read from RAM, so that what is dirty cannot all go home.
            self.ram_bytes = 64 << 10;
        }
        let depth_ns = prng.pick(&[1_000_000, 30_000_000_000]);
        for volume in &mut self.volumes {
            (volume.options.mode, volume.options.write_cache_depth_ns) = (Mode::WriteBack, depth_ns);
            volume.options.on_ssd_loss = prng.pick(&[OnSsdLoss::Stop, OnSsdLoss::Continue, OnSsdLoss::Continue]);
            if prng.percent(70) {
                volume.faults = Faults::none();
            }
        }
    }

    /// Makes it a run like those of [`Plan::use_ranges`], whatever the seed says.
    pub fn always_use_ranges(&mut self) {
        self.forget_units();
        self.use_ranges(&mut Prng::new(self.seed).fork(17));
        self.keep_sizes();
    }

    /// Makes it a run like those of [`Plan::check`], whatever the seed says.
    pub fn always_check(&mut self) {
        self.forget_units();
        let prng = &mut Prng::new(self.seed).fork(16);
        self.content = Some(ContentPlan::drawn(prng, self.volumes.len()));
        self.check(prng);
    }

    /// Makes it a run like those of [`Plan::share`], whatever the seed says: for what needs many of them to be seen.
    pub fn always_share(&mut self) {
        self.forget_units();
        let prng = &mut Prng::new(self.seed).fork(12);
        self.content = Some(ContentPlan::drawn(prng, self.volumes.len()));
        self.rests = 0;
        self.share(prng);
    }

    /// Makes it a run like those of [`Plan::swell`], whatever the seed says.
    pub fn always_swell(&mut self) {
        self.forget_units();
        let prng = &mut Prng::new(self.seed).fork(14);
        self.content = Some(ContentPlan::drawn(prng, self.volumes.len()));
        self.swell(prng);
    }

    fn is_harmless(&self) -> bool {
        let devices = self.ssd_faults.harmful() || self.volumes.iter().any(|volume| volume.faults.harmful());
        !devices && !self.ssd_leaves && !self.backing_leaves && self.rot_ns == 0
    }

    /// An operator who never rests, and devices that fail under him: what commands meet only rarely otherwise.
    fn meddle(&mut self, prng: &mut Prng) {
        (self.operator_ns, self.operator) = (200_000, [4, 2, 1, 0, 5, 0, 1]);
        self.meddles = Some(prng.below(4) as u8);
        if self.meddles == Some(3) {
            self.operator[6] = 5;
        }
        // Much that is dirty, and stays so until it must go.
        self.mix.ops[1] = 80;
        for volume in &mut self.volumes {
            volume.options.mode = Mode::WriteBack;
            volume.options.write_cache_depth_ns = 30_000_000_000;
        }
        if !self.is_harmless() {
            return;
        }
        let kind = prng.below(8);
        let faults = if kind < 2 { &mut self.ssd_faults } else { &mut self.volumes[0].faults };
        faults.budget = 30;
        match kind {
            0 | 2 => (faults.read_error_per_10k, faults.write_error_per_10k) = (400, 200),
            1 | 3 => faults.flush_error_per_10k = 1_000,
            4..=6 => {
                self.ssd_faults.lies = true;
                (self.crashes, self.power_percent) = (6, 100);
            }
            _ => (self.ssd_leaves, self.backing_leaves) = (true, true),
        }
    }

    /// The plan of this seed, with nothing said of objects.
    pub fn without_labels(seed: u64) -> Plan {
        let mut prng = Prng::new(seed).fork(1);
        let prng = &mut prng;
        let weights: Vec<u32> = THEMES.iter().map(|theme| theme.1).collect();
        let theme = THEMES[prng.weighted(&weights)].0;
        let same_options = prng.percent(50).then(|| options(prng));
        let volume_count: usize = prng.pick(&[1, 1, 2, 3]);
        let volumes = (0..volume_count).map(|_| VolumePlan::draw(theme, same_options.as_ref(), prng)).collect();
        let segment_bytes = prng.pick(&[64 << 10, 64 << 10, 128 << 10, 256 << 10]);
        let shards = prng.pick(&[1, 1, 2, 3]);
        let segments = prng.between(8, 18);
        let mix = Mix::draw(prng);
        let operator_on = prng.percent(60);
        let mut plan = Plan {
            resizes: false,
            was_log: false,
            seed,
            volumes,
            shards,
            fronts: prng.pick(&[1, 1, 2]),
            ssd_bytes: (1 << 20) + 2 * segment_bytes + u64::from(shards) * segments * segment_bytes,
            segment_bytes,
            index_slots: 0,
            ram_bytes: prng.pick(&[64 << 10, 256 << 10, 1 << 20]),
            ssd_volatile: prng.percent(85),
            ssd_faults: faults(theme, true, prng),
            ssd_pace: pace(prng, false),
            connections: prng.pick(&[1, 2, 4]),
            depth: prng.pick(&[1, 4, 16]),
            requests: prng.between(100, 500) as u32,
            mix,
            think_ns: prng.pick(&[1_000, 50_000, 1_000_000]),
            crashes: prng.pick(&[0, 1, 2, 4, 6]),
            power_percent: prng.pick(&[0, 50, 100]),
            crash_in_blocking_percent: prng.pick(&[0, 20, 60]),
            operator_ns: if operator_on { prng.pick(&[1_000_000, 10_000_000]) } else { 0 },
            operator: std::array::from_fn(|act| if act < 6 { prng.pick(&[0, 1, 3]) } else { prng.pick(&[0, 0, 1]) }),
            message_ns: prng.pick(&[0, 1_000, 100_000]),
            read_all_after_restart: prng.percent(30),
            ssd_leaves_again: false,
            ssd_leaves: matches!(theme, Theme::SsdLeaves | Theme::All) && prng.percent(70),
            backing_leaves: theme == Theme::SsdLeaves && prng.percent(50),
            rot_ns: if theme == Theme::SsdCorruption { prng.pick(&[0, 1_000_000, 20_000_000]) } else { 0 },
            meddles: None,
            disconnect_ns: prng.pick(&[0, 0, 2_000_000]),
            exchange_percent: prng.pick(&[0, 10]),
            // Drawn apart, so that older seeds are what they were.
            shortage_ns: Prng::new(seed).fork(8).pick(&[0, 0, 0, 200_000, 5_000_000]),
            busy_ns: Prng::new(seed).fork(15).pick(&[0, 0, 300_000, 20_000_000, 1_000_000_000]),
            content: ContentPlan::of(seed, volume_count),
            rests: 0,
            grow_ns: 0,
            labels: None,
            releases: false,
        };
        plan.choose_a_subject(prng);
        plan.keep_sizes();
        plan.draw_past();
        let own = &mut Prng::new(seed).fork(29);
        if own.percent(10) {
            plan.grow(own);
        }
        plan
    }

    /// Some runs are about one thing more than about others. Each draws apart, so that one more does not change what older seeds mean.
    fn choose_a_subject(&mut self, prng: &mut Prng) {
        let seed = self.seed;
        if self.rot_ns > 0 && Prng::new(seed).fork(10).percent(60) {
            self.decay_only();
        }
        match prng.below(10) {
            0 | 1 => self.meddle(prng),
            2 | 3 => self.go_round(prng),
            4 => self.go_around(),
            5 => self.share(&mut Prng::new(seed).fork(12)),
            _ => {}
        }
        self.rest(&mut Prng::new(seed).fork(13));
        let own = &mut Prng::new(seed).fork(14);
        if own.percent(6) {
            self.swell(own);
        }
        let own = &mut Prng::new(seed).fork(16);
        if self.meddles.is_none() && own.percent(8) {
            self.check(own);
        }
        let own = &mut Prng::new(seed).fork(26);
        if self.meddles.is_none() && self.operator_ns > 0 && own.percent(15) {
            self.releases = true;
            (self.operator[4], self.operator_ns) = (5, own.pick(&[300_000, 1_000_000, 10_000_000]));
        }
        let own = &mut Prng::new(seed).fork(27);
        if own.percent(15) {
            self.use_ranges(own);
        }
        let own = &mut Prng::new(seed).fork(34);
        if own.percent(6) {
            self.enlarge(own);
        }
        let own = &mut Prng::new(seed).fork(35);
        if own.percent(6) {
            self.keep_units(own);
        }
        let own = &mut Prng::new(seed).fork(37);
        if self.content.is_none() && self.mix.units_percent == 0 && own.percent(8) {
            self.read_beside(own);
        }
    }

    /// Three in ten runs with content has clients that rest, unless it is about something else.
    fn rest(&mut self, prng: &mut Prng) {
        let Some(content) = self.content.as_mut().filter(|_| self.meddles.is_none() && prng.percent(30)) else { return };
        self.rests = prng.pick(&[1, 2, 4]);
        // What happens again and again by itself would happen some thousand times in each.
        for often_ns in [&mut content.forget_hints_ns, &mut content.change_level_ns, &mut self.shortage_ns, &mut self.busy_ns] {
            *often_ns = if *often_ns > 0 { (*often_ns).max(100_000_000) } else { 0 };
        }
        if prng.percent(70) {
            // A log that is full by then, of much that zstd makes less of.
            content.loose(prng);
            let segments = prng.pick(&[8, 12, 20]);
            self.segment_bytes = 64 << 10;
            self.ssd_bytes = (1 << 20) + 2 * self.segment_bytes + u64::from(self.shards) * segments * self.segment_bytes;
            (self.mix.ops[1], self.mix.sizes, self.mix.hot_percent) = (80, [2, 0, 30, 20, 20, 0], 20);
            self.requests = self.requests.max(400);
        }
    }
}

/// Other options for a volume, as an operator might choose.
pub fn other_options(prng: &mut Prng) -> VolumeOptions {
    options(prng)
}
