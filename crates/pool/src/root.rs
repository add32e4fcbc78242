//! A pool's superblock from its start to its end: blocking code over [`Medium`], so that the same code runs on a real SSD and, in tests, on one
//! that fails at any access.
//!
//! Order of a start: [`load`], [`Root::new`], [`Root::upgrade`], [`Root::prepare`], the shards ([`crate::restart`]), [`Root::begin_session`], [`Root::holds`] to all
//! shards. Then, of each volume, [`Root::enter`] before its first block is logged.

use crate::restart::Restarted;
use engine::api::Command;
use engine::medium::Medium;
use engine::shard::Shard;
use engine::store::slots;
use engine::store::upgrade::{self, Outlook, UpgradeError};
use engine::superblock::{self, OpenError, PoolState};
use format::VolumeRecord;
use format::checkpoint::LogEnd;
use std::collections::BTreeMap;
use types::{VolumeId, VolumeIndex};

/// A pool's superblock, and the places of its volumes in the shards' tables.
#[derive(Debug)]
pub struct Root {
    state: PoolState,
    /// By number of the volume.
    places: BTreeMap<u32, VolumeIndex>,
}

/// Why an SSD is not taken for that of a pool.
#[derive(Debug)]
pub enum LoadError {
    /// It cannot be read as one.
    Open(OpenError),
    /// It is that of another pool.
    AnotherPool,
    /// It is an old copy: its session, and the latest that the host knows.
    OldCopy {
        /// Its session.
        found: u64,
        /// The latest that the host knows.
        known: u64,
    },
}

/// Why a volume has no record in the superblock.
#[derive(Debug)]
pub enum EnterError {
    /// The superblock has another volume of that name, with this number.
    OtherOfThatName(u32),
    /// It cannot be stored.
    Open(OpenError),
}

/// Why a clean stop did not say where everything is.
#[derive(Debug)]
pub enum CheckpointError {
    /// The SSD failed while the pool ran.
    SsdFailed,
    /// It cannot be written.
    Open(OpenError),
}

/// Loads the superblock of a pool. Nothing is written.
///
/// # Errors
/// [`LoadError`].
pub fn load(medium: &mut dyn Medium, uuid: [u8; 16], session: u64) -> Result<PoolState, LoadError> {
    let state = superblock::load(medium).map_err(LoadError::Open)?;
    match &state.superblock {
        found if found.uuid != uuid => Err(LoadError::AnotherPool),
        found if found.session < session => Err(LoadError::OldCopy { found: found.session, known: session }),
        _ => Ok(state),
    }
}

impl Root {
    /// A pool as loaded. What the SSD holds of volumes without a place is void once the session has begun. `next_volume_id`: that, and all above, the
    /// host has given to no volume.
    pub fn new(mut state: PoolState, places: BTreeMap<u32, VolumeIndex>, next_volume_id: u32) -> Root {
        let superblock = &mut state.superblock;
        superblock.volumes.retain(|volume| places.contains_key(&volume.id.0));
        superblock.next_volume_id = superblock.next_volume_id.max(VolumeId(next_volume_id));
        let places = superblock.volumes.iter().map(|volume| (volume.id.0, places[&volume.id.0])).collect();
        Root { state, places }
    }

    /// Makes a log slots, in place, without what it holds of volumes without a place; what became of each shard. `None`: it has slots. `packs`: blocks
    /// are to be packed.
    ///
    /// # Errors
    /// [`UpgradeError`]; this is of no use any more then, and the start may be repeated from [`load`] on.
    pub fn upgrade(&mut self, medium: &mut dyn Medium, packs: bool) -> Result<Option<Vec<Outlook>>, UpgradeError> {
        let has_slots = self.state.superblock.layout.has_slots();
        if has_slots { Ok(None) } else { upgrade::upgrade(medium, &mut self.state, packs).map(Some) }
    }

    /// What must be stored before shards can be made ([`crate::restart`]).
    ///
    /// # Errors
    /// What the medium says. The start may be repeated (not after a failed flush).
    pub fn prepare(&mut self, medium: &mut dyn Medium) -> Result<(), OpenError> {
        self.state.reserve_session(medium)
    }

    /// What is stored.
    pub fn state(&self) -> &PoolState {
        &self.state
    }

    /// Places in the shards' tables by number of the volume.
    pub fn places(&self) -> &BTreeMap<u32, VolumeIndex> {
        &self.places
    }

    /// The records of the volumes. A change of what no code of this crate reads is stored with the next one.
    pub fn volumes_mut(&mut self) -> &mut [VolumeRecord] {
        &mut self.state.superblock.volumes
    }

    /// Begins the session that the shards were made for, durably.
    ///
    /// # Errors
    /// What the medium says. No session has begun then, and the start may be repeated (not after a failed flush).
    pub fn begin_session(&mut self, medium: &mut dyn Medium, found: &[Restarted]) -> Result<(), OpenError> {
        let ends: Vec<LogEnd> = found.iter().map(|shard| shard.end).collect();
        let reports = found.iter().filter_map(|shard| shard.report.as_ref());
        let damaged: Vec<VolumeId> = reports.flat_map(|report| report.damaged_volumes.clone()).collect();
        let writes_in = |session: u64| found.iter().all(|shard| shard.shard.config().place.session == session);
        let superblock = &self.state.superblock;
        if superblock.clean && writes_in(superblock.log_session) {
            return self.state.continue_session(medium);
        }
        self.state.begin_session(medium, &ends, &damaged)?;
        assert!(writes_in(self.state.superblock.session), "the shards write in the session begun");
        Ok(())
    }

    /// What the shards must be told before anything is attached: every known volume keeps its blocks until it is.
    pub fn holds(&self) -> Vec<Command> {
        // A size that no volume can have was written by a version that did not look; the volume itself is refused when its turn comes.
        let hold = |volume: &VolumeRecord| Command::Hold {
            volume: self.places[&volume.id.0],
            id: volume.id,
            size_bytes: volume.size_bytes.min(types::VOLUME_BYTES_MAX),
        };
        self.state.superblock.volumes.iter().map(hold).collect()
    }

    /// The volume's place in the shards' tables, if it has one.
    pub fn place_of(&self, id: u32) -> Option<VolumeIndex> {
        self.places.get(&id).copied()
    }

    /// A place that no volume has.
    pub fn free_place(&self) -> Option<VolumeIndex> {
        (0..types::VOLUMES_MAX as u16).map(VolumeIndex).find(|place| !self.places.values().any(|taken| taken == place))
    }

    /// Puts a volume's record into the superblock, or changes it, durably, before anything can be logged under its number.
    ///
    /// # Errors
    /// [`EnterError`]; then it has the record that it had.
    pub fn enter(&mut self, medium: &mut dyn Medium, entry: VolumeRecord, place: VolumeIndex) -> Result<(), EnterError> {
        let volumes = &self.state.superblock.volumes;
        if let Some(other) = volumes.iter().find(|other| other.id != entry.id && other.name == entry.name) {
            return Err(EnterError::OtherOfThatName(other.id.0));
        }
        let (before, id) = (volumes.clone(), entry.id.0);
        let volumes = &mut self.state.superblock.volumes;
        match volumes.iter_mut().find(|volume| volume.id == entry.id) {
            Some(known) if *known == entry => return Ok(()),
            Some(known) => *known = entry,
            None => volumes.push(entry),
        }
        let next = self.state.superblock.next_volume_id.0.max(id + 1);
        self.state.superblock.next_volume_id = VolumeId(next);
        if let Err(error) = self.state.store(medium) {
            // Who asks again must not find it entered: it may not be on the SSD.
            self.state.superblock.volumes = before;
            return Err(EnterError::Open(error));
        }
        self.places.insert(id, place);
        Ok(())
    }

    /// Takes the volume's record out of the superblock, durably: what the log holds of it is void from then on.
    ///
    /// # Errors
    /// What the medium says.
    pub fn retire(&mut self, medium: &mut dyn Medium, id: u32) -> Result<(), OpenError> {
        self.state.superblock.volumes.retain(|volume| volume.id.0 != id);
        self.state.store(medium)
    }

    /// The volume's place in the shards' tables is free again. Only when no shard knows the volume any more.
    pub fn leave_place(&mut self, id: u32) {
        self.places.remove(&id);
    }

    /// For a clean stop: says once more where everything is, so that the next start reads only that. A shard that is not at rest has something to say
    /// that nobody waits for: the next start reads all then.
    ///
    /// # Errors
    /// [`CheckpointError`]; the next start reads all instead.
    pub fn checkpoint(&mut self, medium: &mut dyn Medium, shards: &[Shard]) -> Result<(), CheckpointError> {
        if shards.iter().any(|shard| shard.lost_ssd().is_some()) {
            return Err(CheckpointError::SsdFailed);
        }
        let ends: Option<Vec<LogEnd>> = shards.iter().map(Shard::end_at_rest).collect();
        let Some(ends) = ends else { return Ok(()) };
        let sweep = |shard: types::ShardIndex| -> Box<dyn Iterator<Item = format::slots::Set> + '_> {
            Box::new(shards[usize::from(shard.0)].sweep())
        };
        slots::stop::write(medium, &mut self.state, &ends, &sweep).map_err(CheckpointError::Open)?;
        Ok(())
    }
}
