//! Names that operations claim: what one of them is about to change, no other touches meanwhile.
//!
//! Who changes all of a pool (stops it, gives it another SSD) claims it with all that it has, in one step: members that were read before the
//! claim may be others by then. Who makes a volume in a pool claims the pool together with others who do so: it must not be stopped or formatted
//! under a volume that nobody else has heard of yet.

use super::Desk;
use api::error::ControlError;
use api::names::Named;
use records::state::{PoolRecord, VolumeRecord};
use std::collections::BTreeMap;

/// A kind and a name.
type Key = (&'static str, String);

/// What is claimed now.
#[derive(Debug, Default)]
pub(super) struct Claims(BTreeMap<Key, Held>);

/// By whom a name is claimed.
#[derive(Clone, Copy, Debug)]
struct Held {
    doing: &'static str,
    /// How many have it together; `None`: one has it alone.
    together: Option<usize>,
}

impl Claims {
    /// Whether anybody has the name.
    pub(super) fn has(&self, named: Named, name: &str) -> bool {
        self.0.contains_key(&(named.word(), name.to_owned()))
    }

    /// Whether anybody has a name of these.
    fn any(&self, is_wanted: impl FnMut(&Key) -> bool) -> bool {
        self.0.keys().any(is_wanted)
    }

    fn check(&self, key: &Key, together: bool) -> Result<(), ControlError> {
        match self.0.get(key) {
            Some(held) if !together || held.together.is_none() => {
                Err(ControlError::Claimed { named: key.0, name: key.1.clone(), doing: held.doing })
            }
            _ => Ok(()),
        }
    }

    fn take(&mut self, key: &Key, doing: &'static str, together: bool) {
        let held = self.0.entry(key.clone()).or_insert(Held { doing, together: together.then_some(0) });
        if let Some(count) = &mut held.together {
            *count += 1;
        }
    }

    fn give_back(&mut self, key: &Key) {
        match self.0.get_mut(key) {
            Some(Held { together: Some(count), .. }) if *count > 1 => *count -= 1,
            _ => drop(self.0.remove(key)),
        }
    }
}

/// Names claimed by one operation; given back when dropped.
pub(super) struct Claim {
    desk: Desk,
    keys: Vec<Key>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut memory = self.desk.memory();
        for key in &self.keys {
            memory.claims.give_back(key);
        }
    }
}

impl Claim {
    /// Takes names out of this claim, into one that is given back by itself.
    pub(super) fn split(&mut self, names: &[(Named, &str)]) -> Claim {
        let wanted = |(word, key): &Key| names.iter().any(|(named, name)| named.word() == *word && name == key);
        let (taken, left) = std::mem::take(&mut self.keys).into_iter().partition(wanted);
        self.keys = left;
        Claim { desk: self.desk.clone(), keys: taken }
    }
}

/// A pool and all that it has, as they are behind the claim.
pub(super) struct WholePool {
    pub(super) claim: Claim,
    pub(super) record: PoolRecord,
    pub(super) volumes: Vec<VolumeRecord>,
    /// Its disks, as volumes.
    pub(super) disks: Vec<VolumeRecord>,
}

impl Desk {
    /// Claims names for one operation, all or none.
    pub(super) fn claim(&self, names: &[(Named, &str)], doing: &'static str) -> Result<Claim, ControlError> {
        let keys: Vec<Key> = names.iter().map(|(named, name)| (named.word(), (*name).to_string())).collect();
        let mut claim = Claim { desk: self.clone(), keys: Vec::new() };
        self.claim_more(&mut claim, keys, doing, false)?;
        Ok(claim)
    }

    /// Claims the name of a volume that is made in a pool, and the pool together with others who do the same.
    pub(super) fn claim_new_volume(&self, name: &str, pool: Option<&str>) -> Result<Claim, ControlError> {
        let doing = "the creation of a volume";
        let mut claim = self.claim(&[(Named::Volume, name)], "its creation")?;
        let pool = pool.map(|pool| (Named::Pool.word(), pool.to_owned()));
        self.claim_more(&mut claim, pool.into_iter().collect(), doing, true)?;
        Ok(claim)
    }

    /// Claims a pool and all that it has.
    pub(super) fn claim_whole_pool(&self, name: &str, doing: &'static str) -> Result<WholePool, ControlError> {
        let claim = self.claim(&[(Named::Pool, name), (Named::SsdOfPool, name)], doing)?;
        self.claim_rest_of_pool(claim, name, doing)
    }

    /// Claims the rest of a pool that is claimed.
    pub(super) fn claim_rest_of_pool(&self, mut claim: Claim, name: &str, doing: &'static str) -> Result<WholePool, ControlError> {
        self.claim_more(&mut claim, vec![(Named::Pool.word(), name.to_owned()), (Named::SsdOfPool.word(), name.to_owned())], doing, false)?;
        let record = self.pool_record(name)?;
        // No other comes meanwhile, and none changes that is claimed: what is read again behind that is so.
        let members = || -> Vec<VolumeRecord> {
            let volumes: Vec<VolumeRecord> = self.memory().state.volumes_of(name).cloned().collect();
            volumes.into_iter().chain(self.disk_volumes(name)).collect()
        };
        let keys = members().into_iter().map(|member| (Named::Volume.word(), member.name)).collect();
        self.claim_more(&mut claim, keys, doing, false)?;
        let volumes = self.memory().state.volumes_of(name).cloned().collect();
        Ok(WholePool { claim, record, volumes, disks: self.disk_volumes(name) })
    }

    /// Whether something is done to a pool, or to something that is in it or comes into it. Trials have the pool without a name, and so has a
    /// volume that nothing is on record of yet.
    pub(super) fn is_at_work_on(&self, pool: &str) -> bool {
        let memory = self.memory();
        let pool_of = |volume: &str| {
            let of_volume = memory.state.volume(volume).map(|volume| volume.pool.as_str());
            of_volume.or_else(|| memory.state.disk(volume).map(|disk| disk.pool.as_str())).unwrap_or_default()
        };
        memory.claims.any(|(named, name)| match *named == Named::Volume.word() {
            true => pool_of(name) == pool,
            false => (*named == Named::Pool.word() || *named == Named::SsdOfPool.word()) && name == pool,
        })
    }

    /// The refusal of a claim, with the job that has it, if one has.
    fn with_job(&self, claimed: ControlError) -> ControlError {
        let ControlError::Claimed { named, name, doing } = claimed else { return claimed };
        let of_pool = named != Named::Volume.word();
        let jobs = self.running_jobs().into_iter().map(|job| job.view());
        match jobs.into_iter().find(|job| job.volume == name && job.kind.is_of_pool() == of_pool) {
            Some(job) => ControlError::AtWork { named, name, doing, job: job.id },
            None => ControlError::Claimed { named, name, doing },
        }
    }

    /// Adds what a claim does not have yet, all of it or nothing.
    fn claim_more(&self, claim: &mut Claim, mut keys: Vec<Key>, doing: &'static str, together: bool) -> Result<(), ControlError> {
        keys.retain(|key| !claim.keys.contains(key));
        let mut memory = self.memory();
        if memory.stopping {
            return Err(ControlError::Stopping);
        }
        if let Err(claimed) = keys.iter().try_for_each(|key| memory.claims.check(key, together)) {
            drop(memory);
            return Err(self.with_job(claimed));
        }
        keys.iter().for_each(|key| memory.claims.take(key, doing, together));
        drop(memory);
        claim.keys.extend(keys);
        Ok(())
    }
}
