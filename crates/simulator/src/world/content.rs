//! What is about content while a run goes on: data that volumes begin with, how the pool treats content, hints that are lost at any
//! moment, and levels that change.

use types::VolumeIndex;

use super::{Happening, World};
use crate::content::{self, SECTOR, Texture};
use crate::disk::media::Media;
use crate::oracle::Kind;
use crate::plan::{ContentPlan, ContentSetting, Plan};
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
}

impl Treatment {
    /// As the plan says at first.
    pub fn of(plan: &Plan, prng: Prng) -> Treatment {
        Treatment { setting: plan.content.as_ref().map(|content| content.setting), prng }
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
