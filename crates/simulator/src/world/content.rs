//! What is about content while a run goes on: data that volumes begin with, how the pool treats content, hints that are lost at any
//! moment, and levels that change.

use types::VolumeIndex;

use super::{Happening, World};
use crate::content::{self, SECTOR, Texture};
use crate::disk::media::Media;
use crate::oracle::Kind;
use crate::plan::{ContentPlan, ContentSetting, Level, Plan};
use crate::prng::Prng;

/// What happens by itself in a plan with content.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Turn {
    /// The pool loses all hints.
    ForgetHints,
    /// It makes more or less of content from now on.
    ChangeLevel,
}

/// How the pool treats content now.
pub(crate) struct Treatment {
    setting: Option<ContentSetting>,
    /// Draws nothing in a plan without content.
    prng: Prng,
    rests_left: u32,
    rest_until_ns: u64,
    /// How it is treated when clients do not rest, if that differs.
    at_work: Option<ContentSetting>,
}

/// How long clients rest: long enough for what a shard does when nobody has asked for anything for some seconds.
const REST_NS: [u64; 3] = [5_000_000_000, 8_000_000_000, 12_000_000_000];

impl Treatment {
    /// As the plan says at first.
    pub fn of(plan: &Plan, prng: Prng) -> Treatment {
        let setting = plan.content.as_ref().map(|content| content.setting);
        Treatment { setting, prng, rests_left: plan.rests, rest_until_ns: 0, at_work: None }
    }
}

/// What the volume's backing device begins with.
pub(crate) fn begins_as(plan: &Plan, volume: usize) -> Kind {
    let texture = plan.content.as_ref().map_or(Texture::Unique, |content| content.begin_as[volume]);
    if plan.volumes[volume].zeroed { Kind::Zero } else { Kind::Data(texture) }
}

/// The volume's backing device as it is at first.
pub(crate) fn first_media(plan: &Plan, volume: VolumeIndex) -> Media {
    let index = usize::from(volume.0);
    let mut media = Media::new(plan.volumes[index].sectors * SECTOR as u64, plan.volumes[index].volatile);
    if let Kind::Data(texture) = begins_as(plan, index) {
        for (sector, bytes) in media.lay_out().chunks_exact_mut(SECTOR).enumerate() {
            content::fill(texture, volume.0, sector as u64, u32::from(volume.0), bytes);
        }
    }
    media
}

impl World<'_> {
    /// Schedules the first turns.
    pub fn plan_content(&mut self) {
        for turn in [Turn::ForgetHints, Turn::ChangeLevel] {
            self.next_turn(turn);
        }
    }

    fn next_turn(&mut self, turn: Turn) {
        let Some(content) = &self.plan.content else { return };
        let typical_ns = match turn {
            Turn::ForgetHints => content.forget_hints_ns,
            Turn::ChangeLevel => content.change_level_ns,
        };
        if typical_ns > 0 {
            let delay = self.content.prng.spread(typical_ns);
            self.queue.after(delay, Happening::Content(turn));
        }
    }

    /// A turn's time has come.
    pub fn content_turn(&mut self, turn: Turn) {
        if !self.safety {
            return;
        }
        self.next_turn(turn);
        match turn {
            Turn::ForgetHints => {
                self.tell("the pool loses its hints".to_string());
                self.system_mut().forget_hints();
            }
            Turn::ChangeLevel => {
                let level = ContentPlan::other_level(&mut self.content.prng);
                self.content.setting.iter_mut().for_each(|setting| setting.level = level);
                self.treat_content();
            }
        }
    }

    /// How much longer clients rest.
    pub fn rest_left_ns(&self) -> Option<u64> {
        self.content.rest_until_ns.checked_sub(self.queue.now_ns()).filter(|left_ns| *left_ns > 0)
    }

    /// Clients rest when so much of the run is over; gives how long, if they do now.
    pub fn rest(&mut self) -> Option<u64> {
        if self.rest_left_ns().is_none() && self.content.at_work.is_some() {
            self.content.setting = self.content.at_work.take();
            self.treat_content();
        }
        let content = &mut self.content;
        let (times, left) = (self.plan.rests, content.rests_left);
        if left > 0 && self.clients.requests_left <= self.plan.requests * left / (times + 1) {
            content.rests_left -= 1;
            content.rest_until_ns = self.queue.now_ns() + content.prng.pick(&REST_NS);
            // As an operator would: little while there is much to do, and then all there is.
            if let Some(setting) = content.setting.as_mut().filter(|_| content.prng.percent(60)) {
                content.at_work = Some(*setting);
                (setting.level, setting.cpu_ns_per_second) = (Level::Dense, None);
                self.treat_content();
            }
            if self.ends.crashes_left > 0 && self.content.prng.percent(50) {
                self.ends.crash_at = Some(self.progress.steps + self.content.prng.below(300));
            }
            self.tell("clients rest".to_string());
        }
        self.rest_left_ns()
    }

    /// Tells the pool how to treat content: when a life begins, and when that changes. A pool without content is never told.
    pub fn treat_content(&mut self) {
        if let Some(setting) = self.content.setting {
            self.tell(format!("content: {:?}", setting.level));
            self.blame.packs = true;
            self.system_mut().set_content(&setting);
        }
    }

    /// Counts what is stored in which form, before a life ends.
    pub fn take_census(&mut self) {
        let Some(system) = self.system.as_ref().filter(|_| self.plan.content.is_some()) else { return };
        for (form, count) in system.content_census() {
            *self.stats.stored.entry(form).or_default() += count;
        }
    }
}
