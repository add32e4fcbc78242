//! What is said of objects while a run goes on: policies and cold hints, drawn by chance, so that nearly all of it is wrong. Everything that a
//! volume promises must hold all the same.

use std::sync::Arc;

use engine::api::{Command, Op, Origin};
use engine::treatment::{PolicyMap, PolicyRange};
use types::{Admit, ObjectWrites, OnScan, Treatment, VolumeId, VolumeIndex};

use super::{Happening, World};
use crate::plan::{LabelPlan, Plan};
use crate::prng::Prng;

/// Sayings of a run.
const SAYINGS_MAX: u32 = 150;

/// Who says it.
pub(crate) struct Labels {
    plan: Option<LabelPlan>,
    /// How often yet: in a run with slow devices it could be millions of times.
    left: u32,
    /// Draws nothing in a plan without labels.
    prng: Prng,
    /// The map that was last given, which may come again after its volume has gone.
    last: Option<Arc<PolicyMap>>,
}

impl Labels {
    /// As the plan says.
    pub fn of(plan: &Plan, prng: Prng) -> Labels {
        Labels { plan: plan.labels.clone(), left: SAYINGS_MAX, prng, last: None }
    }

    /// Who is said to ask for the next request.
    pub fn origin(&mut self, op: Op) -> Origin {
        let Some(percent) = self.plan.as_ref().map(|plan| plan.stream_percent) else { return Origin::Client };
        let passes = self.prng.percent(percent);
        match (op == Op::Read && self.prng.percent(percent), passes) {
            (false, false) => Origin::Client,
            (false, true) => Origin::Stream,
            (true, false) => Origin::Warm,
            (true, true) => Origin::Look,
        }
    }

    fn treatment(&mut self, pin_percent: u32) -> Treatment {
        let writes = self.prng.pick(&ObjectWrites::ALL);
        let on_scan = self.prng.pick(&OnScan::ALL);
        if self.prng.percent(pin_percent) {
            // Mostly as a user would pin: without anything else.
            let writes = if self.prng.percent(80) { ObjectWrites::Inherit } else { writes };
            return Treatment::new(Admit::Pinned, writes, on_scan);
        }
        Treatment::new(self.prng.pick(&Admit::ALL), writes, on_scan)
    }

    /// A map of a volume with so many blocks: up to so many ranges one behind the other, with gaps or without, over its end at times.
    fn map(&mut self, plan: &LabelPlan, id: VolumeId, blocks: u64) -> PolicyMap {
        let count = 1 + self.prng.below(plan.ranges);
        let typical = if plan.pin_percent > 90 { blocks } else { blocks / count };
        let (mut ranges, mut at) = (Vec::new(), 0);
        for _ in 0..count {
            let start = at + if self.prng.percent(50) { 0 } else { self.prng.below(1 + blocks / (4 * count)) };
            let end = start + 1 + self.prng.below(2 * typical.max(1));
            ranges.push(PolicyRange { blocks: start..end, treatment: self.treatment(plan.pin_percent) });
            at = end;
        }
        if self.prng.percent(50) {
            ranges.reverse();
        }
        PolicyMap::new(id, ranges).expect("ranges one behind the other")
    }
}

impl World<'_> {
    /// Schedules the first saying.
    pub fn plan_labels(&mut self) {
        if let Some(plan) = &self.labels.plan {
            let delay = self.labels.prng.spread(plan.often_ns.min(100_000));
            self.queue.after(delay, Happening::Labels);
        }
    }

    /// Something is said of a volume. When faults stop, what was said last stays: all must get home whatever it was.
    pub fn labels_turn(&mut self) {
        if !self.safety || self.labels.left == 0 {
            return;
        }
        self.labels.left -= 1;
        let Some(plan) = self.labels.plan.clone() else { return };
        let rest_ns = self.rest_left_ns().unwrap_or(0);
        let delay = rest_ns + self.labels.prng.spread(plan.often_ns);
        self.queue.after(delay, Happening::Labels);
        let volume = self.labels.prng.below(self.volumes.len() as u64) as u16;
        let blocks = self.volumes[usize::from(volume)].sectors / 8;
        let id = self.system_mut().volume_id(volume);
        let labels = &mut self.labels;
        let index = VolumeIndex(volume);
        let command = match labels.prng.weighted(&plan.kinds) {
            0 => Command::SetPolicies { volume: index, map: Some(Arc::new(labels.map(&plan, id, blocks))) },
            // Of one that has gone, or of nobody.
            1 => {
                let of_nobody = Arc::new(labels.map(&plan, VolumeId(id.0 + 1000), blocks));
                Command::SetPolicies { volume: index, map: Some(labels.last.clone().unwrap_or(of_nobody)) }
            }
            2 => Command::SetPolicies { volume: index, map: None },
            _ => {
                let start = labels.prng.below(blocks.max(1));
                let length = labels.prng.pick(&[1, 16, 256, u64::MAX - start]);
                Command::Cold { volume: index, blocks: start..start + length }
            }
        };
        if let Command::SetPolicies { map: Some(map), .. } = &command {
            self.labels.last = Some(map.clone());
        }
        self.stats.labels += 1;
        self.note(92, u64::from(volume));
        self.tell(format!("labels: {command:?}"));
        let now = self.queue.now_ns();
        self.system_mut().command(now, command);
    }
}
