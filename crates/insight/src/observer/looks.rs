//! Looks for objects: which is due, and what came of it. Volumes are read as their clients read, devices in trial from outside.

use super::Insight;
use crate::now_ms;
use crate::objects::{Looked, Objects};
use crate::untouched::Untouched;
use applications::discovery::Found;
use runtime::VolumeRef;
use std::sync::Arc;

/// A look for objects, under way.
#[derive(Clone)]
pub struct Look {
    /// The volume, or the analysis.
    pub of: String,
    /// What is read.
    pub at: LookedAt,
    /// What was found before.
    pub before: Option<Arc<Found>>,
    /// Which of the looks at it this is.
    number: u64,
}

/// What a look reads. If something else has that name by the end, what was found is not its.
#[derive(Clone)]
pub enum LookedAt {
    /// A volume that is attached.
    Volume(VolumeRef),
    /// A device that an analysis watches from outside.
    Device(Arc<Untouched>),
}

impl LookedAt {
    fn size_bytes(&self) -> u64 {
        match self {
            LookedAt::Volume(reference) => reference.size_bytes(),
            LookedAt::Device(device) => device.size_bytes(),
        }
    }
}

impl Look {
    /// The volume that is read; `None`: a device.
    pub fn volume(&self) -> Option<&str> {
        matches!(self.at, LookedAt::Volume(_)).then_some(&self.of)
    }

    /// How much there is to look at.
    pub fn size_bytes(&self) -> u64 {
        self.at.size_bytes()
    }
}

impl Insight {
    /// What is to be looked at now, or that volume if it can be. The look is taken to have begun.
    pub fn next_look(&mut self, wanted: Option<&str>) -> Option<Look> {
        let now_ms = now_ms();
        self.begin_look(|name, objects| match wanted {
            Some(wanted) => name == wanted && *objects.looked() != Looked::Now,
            None => objects.is_due(now_ms),
        })
    }

    /// A look at that volume, in place of one that is under way: that one finds nothing any more.
    pub fn look_instead(&mut self, wanted: &str) -> Option<Look> {
        self.begin_look(|name, _| name == wanted)
    }

    fn begin_look(&mut self, is_wanted: impl Fn(&str, &Objects) -> bool) -> Option<Look> {
        let now_ms = now_ms();
        let of_volume = self.volumes.iter_mut().map(|(name, one)| (name, &mut one.objects, LookedAt::Volume(one.reference.clone())));
        let of_device = self.analyses.iter_mut().filter_map(|(name, one)| {
            let device = one.source.untouched().filter(|_| one.source.state() == "watching")?.clone();
            Some((name, &mut one.objects, LookedAt::Device(device)))
        });
        let (name, objects, at) = of_volume.chain(of_device).find(|(name, objects, _)| is_wanted(name, objects))?;
        objects.set_looked(Looked::Now, now_ms);
        Some(Look { of: name.clone(), at, before: objects.found().cloned(), number: objects.look_number() })
    }

    /// Whether a look is still wanted; if it is, how much it has read is noted.
    pub fn goes_on(&mut self, look: &Look, bytes_read: u64) -> bool {
        let objects = self.looked_at_mut(look);
        objects.map(|objects| objects.set_looking(bytes_read)).is_some()
    }

    /// A look begins anew, as what it looks at has become another.
    pub fn look_begins_anew(&mut self, look: &Look) {
        let now_ms = now_ms();
        if let Some(objects) = self.looked_at_mut(look) {
            objects.begin_anew(now_ms);
        }
    }

    /// The objects that a look is of, if it still is what was looked at, and no other look has taken the place of this one.
    fn looked_at(&self, look: &Look) -> Option<&Objects> {
        let objects = match &look.at {
            LookedAt::Volume(reference) => self.volumes.get(&look.of).filter(|one| one.reference.is(reference)).map(|one| &one.objects),
            LookedAt::Device(device) => {
                let analysis = self.analyses.get(&look.of)?;
                analysis.source.untouched().filter(|one| Arc::ptr_eq(one, device)).map(|_| &analysis.objects)
            }
        };
        objects.filter(|objects| objects.look_number() == look.number)
    }

    fn looked_at_mut(&mut self, look: &Look) -> Option<&mut Objects> {
        self.looked_at(look)?;
        match &look.at {
            LookedAt::Volume(_) => self.volumes.get_mut(&look.of).map(|one| &mut one.objects),
            LookedAt::Device(_) => self.analyses.get_mut(&look.of).map(|one| &mut one.objects),
        }
    }

    /// What a look found, or why it failed. Whether it still is what was looked at, and there is room for what was found.
    pub fn looked(&mut self, look: &Look, found: Result<Arc<Found>, String>) -> bool {
        let now_ms = now_ms();
        let most_bytes = self.options.memory_bytes / 2;
        let others_bytes = self.objects_bytes();
        let Some(objects) = self.looked_at_mut(look) else { return false };
        let found = found.and_then(|found| {
            let bytes = found.bytes() as u64 + others_bytes.saturating_sub(objects.bytes());
            if bytes <= most_bytes {
                return Ok(found);
            }
            let (wanted, most) = (api::human::bytes(bytes), api::human::bytes(most_bytes));
            Err(format!("its names would take {wanted} with those of others, and half of insight.memory is {most}"))
        });
        match found {
            Ok(found) => objects.set_found(found, look.size_bytes()),
            Err(problem) => {
                objects.set_looked(Looked::Failed(now_ms, problem), now_ms);
                return false;
            }
        }
        if let Some(limits) = self.limits(0) {
            self.fit(limits);
        }
        true
    }

    /// Whether clients use the device that is looked at.
    pub fn is_busy(&self, look: &Look) -> bool {
        self.looked_at(look).is_some_and(|objects| objects.is_busy(now_ms()))
    }

    /// A look has ended.
    pub fn end_look(&mut self, look: &Look) {
        let now_ms = now_ms();
        if let Some(objects) = self.looked_at_mut(look) {
            objects.set_looked(Looked::At(now_ms), now_ms);
        }
    }
}
