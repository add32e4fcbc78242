//! Where is a volume's backing device? Looked for first under the name it had last, then under all
//! others: names in `/dev` are given anew at each boot. What was found decides; the name is only
//! where to begin.

use super::Manager;
use super::start::Judged;
use super::verdict::{self, Verdict};
use api::Severity;
use api::error::ControlError;
use datapath::DeviceFacts;
use datapath::mapped::Leads;
use records::recognise::{self, Recognised, recognise};
use records::state::{BackingIdentity, VolumeRecord};

/// What came of looking for a volume's backing device.
struct Looked {
    verdict: Verdict,
    now: BackingIdentity,
    /// Where it is, if that is another place than before, and by what it was recognised.
    moved: Option<(String, String)>,
}

impl Looked {
    fn refused(problem: String, remedy: String) -> Looked {
        Looked { verdict: Verdict::Refuse(problem, remedy), now: BackingIdentity::default(), moved: None }
    }

    /// A device that a volume is attached to is not there, or not now.
    fn nowhere(device: &str, leads: Leads) -> Looked {
        let (problem, remedy) = match leads {
            Leads::Changing => (format!("another program is changing {device}"), "the volume starts by itself when that is done"),
            _ => (format!("the device {device} that it is attached to is not there"), "activate it: the volume then starts by itself"),
        };
        Looked::refused(problem, remedy.into())
    }
}

impl Manager {
    /// Looks for the backing devices of volumes that are not attached, or lost theirs, and judges
    /// them. Those that have other names by now are saved under these.
    pub(super) fn judge_all(&self, volumes: &[VolumeRecord]) -> Judged {
        let mut looked: Vec<(&VolumeRecord, Looked)> = volumes
            .iter()
            .map(|v| match &v.attachment {
                Some(attachment) => (v, self.look_under(v, &attachment.device)),
                None => (v, self.look_for(v)),
            })
            .collect();
        self.refuse_shared(&mut looked);
        for (volume, looked) in &mut looked {
            if let Some((place, by)) = looked.moved.take()
                && let Err(error) = self.move_backing(volume, &place, &by)
            {
                looked.verdict = Verdict::Refuse(error.to_string(), error.remedy());
            }
        }
        looked.into_iter().map(|(v, looked)| (v.name.clone(), (looked.verdict, looked.now, v.may_have_dirty))).collect()
    }

    /// How the backing device of a volume is now, and where it is if that is another place than before; changes nothing.
    pub(super) fn look_without_moving(&self, volume: &VolumeRecord) -> (Verdict, Option<String>) {
        let looked = self.look_for(volume);
        (looked.verdict, looked.moved.map(|(place, _)| place))
    }

    /// How the backing device of a volume is now; changes nothing.
    pub(super) fn peek(&self, volume: &VolumeRecord) -> Verdict {
        match &volume.attachment {
            None => self.look_for(volume).verdict,
            Some(attachment) => match self.data().mapped().leads(volume) {
                Ok(Leads::Here | Leads::Past) => Verdict::Same,
                Ok(leads) => Looked::nowhere(&attachment.device, leads).verdict,
                Err(error) => Verdict::Refuse(error.reason(), error.remedy()),
            },
        }
    }

    /// How it is below the device that a volume is attached to. The volume's backing device is made if need be, and looked for nowhere else:
    /// the device itself looks like it.
    fn look_under(&self, volume: &VolumeRecord, device: &str) -> Looked {
        let refused = |error: ControlError| Looked::refused(error.to_string(), error.remedy());
        match self.data().mapped().lay_origin(volume) {
            Ok(Leads::Here) => {
                if let Err(error) = self.was_led_here_unproved(volume) {
                    return refused(error);
                }
            }
            Ok(Leads::Past) if volume.stopped_clean && self.nothing_passed(volume) => {}
            Ok(Leads::Past) => {
                if let Err(error) = self.was_led_past(volume) {
                    return refused(error);
                }
            }
            Ok(leads) => return Looked::nowhere(device, leads),
            Err(error) => return refused(error),
        }
        if let Some((problem, remedy)) = self.backing_on_own(volume) {
            return Looked::refused(problem, remedy);
        }
        match self.data().examine_backing(&volume.backing) {
            Ok(facts) => self.judge_here(volume, &facts),
            Err(error) => refused(error),
        }
    }

    fn look_for(&self, volume: &VolumeRecord) -> Looked {
        // A loop device's number may be that of an export of ours by now, and the device have another one.
        let on_own = self.backing_on_own(volume);
        if let Some((problem, remedy)) = on_own.clone().filter(|_| !volume.backing.starts_with("/dev/")) {
            return Looked::refused(problem, remedy);
        }
        let mut here = match &on_own {
            Some(_) => Err(ControlError::Unknown { named: "device", name: volume.backing.clone() }),
            None => self.data().examine_backing(&volume.backing),
        };
        if matches!(&here, Ok(facts) if facts.in_use.is_some()) && self.volume_attached(&volume.name) {
            // What is left of a device that went away, and that the volume itself still has.
            here = Err(ControlError::Unknown { named: "device", name: volume.backing.clone() });
        }
        if let Ok(facts) = &here
            && recognise(&volume.identity, &facts.identity) == Recognised::Certain
        {
            return self.judge_here(volume, facts);
        }
        let mut elsewhere = self.data().find_backing(&volume.backing, &volume.identity);
        elsewhere.retain(|(place, facts)| {
            self.check_not_on_own(place).is_ok()
                && facts.in_use.is_none()
                && facts.pool.is_none()
                && recognise(&volume.identity, &facts.identity) == Recognised::Certain
        });
        if let [(one, first), (other, _), ..] = &elsewhere[..]
            && !recognise::is_one_device(&volume.identity, &first.identity)
        {
            let problem = format!("{one} and {other} both look like its backing device: one is a copy of the other");
            return Looked::refused(problem, "disconnect the copy: the volume then starts by itself".into());
        }
        if let Some((place, facts)) = elsewhere.into_iter().next() {
            let by = recognise::known_by(&volume.identity, &facts.identity).unwrap_or_else(|| "what lies on it".into());
            let there = VolumeRecord { backing: place.clone(), ..volume.clone() };
            return Looked { moved: Some((place, by)), ..self.judge_here(&there, &facts) };
        }
        if let Some((problem, remedy)) = on_own {
            return Looked::refused(problem, remedy);
        }
        match here {
            Ok(facts) => self.judge_here(volume, &facts),
            Err(ControlError::Unknown { .. }) => {
                let problem = format!("its backing device {} was not found under any name", volume.backing);
                Looked::refused(problem, "connect it: the volume then starts by itself".into())
            }
            Err(ControlError::Device { problem, remedy, .. }) => {
                Looked::refused(format!("its backing device {}: {problem}", volume.backing), remedy)
            }
            Err(error) => Looked::refused(error.to_string(), error.remedy()),
        }
    }

    fn judge_here(&self, volume: &VolumeRecord, facts: &DeviceFacts) -> Looked {
        if let Some(user) = &facts.in_use {
            let backing = &volume.backing;
            return match recognise::hardware(&volume.identity.fixed, &facts.identity.fixed) {
                recognise::Match::Other(why) => Looked::refused(
                    format!("its backing device {backing} is another one ({why}), and in use ({user})"),
                    verdict::wrong_remedy(volume),
                ),
                _ => Looked::refused(
                    format!("its backing device {backing} is in use ({user})"),
                    "end that use: the volume then starts by itself".into(),
                ),
            };
        }
        let judged = verdict::judge(volume, &facts.identity);
        if facts.read_only && volume.writes_backing() && !matches!(judged, Verdict::Refuse(..)) {
            let problem = format!("its backing device {} is read-only", volume.backing);
            return Looked::refused(problem, "make it writable: the volume then starts by itself".into());
        }
        Looked { verdict: judged, now: facts.identity.clone(), moved: None }
    }

    /// Two volumes must never have one device, or bytes in common, however that came.
    fn refuse_shared(&self, looked: &mut [(&VolumeRecord, Looked)]) {
        let places: Vec<Option<String>> = looked
            .iter()
            .map(|(volume, looked)| {
                let place = looked.moved.as_ref().map_or(&volume.backing, |(place, _)| place);
                (!matches!(looked.verdict, Verdict::Refuse(..))).then(|| place.clone())
            })
            .collect();
        let shared = |one: &str, other: &str| match self.data().canonical(one) == self.data().canonical(other) {
            true => Some(String::new()),
            false => self.data().overlap(one, other).ok().flatten().map(|how| format!(" ({how})")),
        };
        // Those that run are not looked at again.
        let running: Vec<(String, String)> = {
            let memory = self.memory();
            let runs = |name: &str| memory.volumes.get(name).is_some_and(|live| live.attached);
            let others = memory.state.volumes.iter().filter(|v| runs(&v.name) && !looked.iter().any(|(looked, _)| looked.name == v.name));
            others.map(|v| (v.name.clone(), v.backing.clone())).collect()
        };
        for at in 0..looked.len() {
            let Some(place) = &places[at] else { continue };
            let here = (0..looked.len()).filter(|other| *other != at);
            let here = here.filter_map(|other| Some((looked[other].0.name.as_str(), places[other].as_deref()?)));
            let mut others = here.chain(running.iter().map(|(name, place)| (name.as_str(), place.as_str())));
            let twin = others.find_map(|(name, other)| Some((name.to_owned(), shared(place, other)?)));
            if let Some((twin, how)) = twin {
                let place = self.data().canonical(place);
                let problem = format!("its backing device {place} also looks like that of the volume \"{twin}\"{how}");
                let remedy =
                    format!("reconnect the right devices, or remove one of the two with `hearth volume remove {}`", looked[at].0.name);
                looked[at].1 = Looked::refused(problem, remedy);
            }
        }
    }

    fn move_backing(&self, volume: &VolumeRecord, place: &str, by: &str) -> Result<(), ControlError> {
        self.change(|state| {
            if let Some(volume) = state.volume_mut(&volume.name) {
                volume.backing = place.into();
            }
        })?;
        let message = format!("its backing device is {place} now (it was {}): recognised by {by}", volume.backing);
        self.events().note(Severity::Info, &volume.name, message);
        Ok(())
    }
}
