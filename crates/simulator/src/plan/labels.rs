//! Volumes of whose objects something is said, and mostly wrongly.

use super::Plan;
use crate::prng::Prng;
use types::Mode;

/// What is said of objects in a run.
#[derive(Clone, Debug)]
pub struct LabelPlan {
    /// Typical time between two sayings.
    pub often_ns: u64,
    /// Of sayings: weights of a map of policies, a map made for another volume, no map any more, a cold hint.
    pub kinds: [u32; 4],
    /// Ranges of a map, at most.
    pub ranges: u64,
    /// Ranges that are pinned whatever else is drawn, in a hundred.
    pub pin_percent: u32,
    /// Requests that are said to be of a backup or scan, in a hundred.
    pub stream_percent: u32,
}

impl Plan {
    /// The plan of this seed.
    pub fn of(seed: u64) -> Plan {
        let mut plan = Plan::without_labels(seed);
        let own = &mut Prng::new(seed).fork(31);
        if own.percent(20) {
            plan.label(own);
        }
        plan
    }

    /// Something is said of objects now and then; in one of three runs most of it is pinned, and more is read than the log holds.
    pub(super) fn label(&mut self, prng: &mut Prng) {
        self.labels = Some(LabelPlan {
            often_ns: prng.pick(&[100_000, 1_000_000, 20_000_000]),
            kinds: [prng.pick(&[2, 6]), prng.pick(&[0, 1]), prng.pick(&[0, 1]), prng.pick(&[0, 3, 12])],
            ranges: prng.pick(&[1, 3, 12]),
            pin_percent: prng.pick(&[0, 30]),
            stream_percent: prng.pick(&[0, 5, 40]),
        });
        if prng.percent(35) {
            self.pin(prng);
        }
    }

    /// Pins that are more than the log can hold, of blocks that are read and written all over.
    fn pin(&mut self, prng: &mut Prng) {
        let Some(labels) = &mut self.labels else { return };
        (labels.pin_percent, labels.ranges, labels.stream_percent) = (95, prng.pick(&[1, 3]), 0);
        self.segment_bytes = 64 << 10;
        // Where units are kept whole, enough for the longest write.
        let segments = if self.mix.units_percent > 0 { 20 } else { 8 };
        self.ssd_bytes = (1 << 20) + 2 * self.segment_bytes + u64::from(self.shards) * segments * self.segment_bytes;
        self.ram_bytes = 64 << 10;
        (self.mix.ops[0], self.mix.ops[1]) = (80, prng.pick(&[10, 40]));
        (self.mix.sizes, self.mix.hot_percent) = ([2, 0, 40, 20, 10, 0], 10);
        self.requests = self.requests.max(450);
        if prng.percent(60) {
            // Nothing ends what was said, and what is written is soon clean.
            (labels.often_ns, labels.kinds, labels.ranges) = (20_000_000, [1, 0, 0, 0], 1);
            (self.crashes, self.operator_ns, self.mix.ops[1]) = (0, 0, 40);
            for volume in &mut self.volumes {
                (volume.options.mode, volume.options.write_cache_depth_ns) = (Mode::WriteBack, 1_000_000);
            }
        }
    }

    /// Makes it a run like those of [`Plan::label`], whatever the seed says.
    pub fn always_label(&mut self) {
        self.forget_units();
        self.label(&mut Prng::new(self.seed).fork(32));
    }

    /// The same with pins only.
    pub fn always_pin(&mut self) {
        self.always_label();
        self.pin(&mut Prng::new(self.seed).fork(33));
    }
}
