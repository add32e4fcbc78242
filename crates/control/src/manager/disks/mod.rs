//! Disks beside a pool's cache: plain parts of its SSD, served like volumes. A part of the SSD behind the cache is the room
//! for them, in which each has one piece or more. Where that is too small, its begin moves: the cache is made anew in what is left, empty.
//!
//! Durable steps, and what a start does after a crash behind each:
//!
//! | create | after a crash here, the start |
//! |---|---|
//! | 1. zeroes on its pieces; the table on the SSD has it | does not know it; the next table leaves it out |
//! | 2. save it | serves it |
//!
//! | grow | after a crash here, the start |
//! |---|---|
//! | 1. zeroes on what it gets; the table has the new size | serves the old size, which is within |
//! | 2. save the new size | serves it |
//!
//! | shrink, remove | after a crash here, the start |
//! |---|---|
//! | 1. save the smaller size, or none | serves that |
//! | 2. the table has it | – |
//!
//! So the table on the SSD has every disk that is on record, and never less of it. Where the cache is made anew is checked against the table itself.
//!
//! | move the room | after a crash here, the start |
//! |---|---|
//! | 1. all dirty data goes home, clients are suspended; the table has what is on record, and no more; the pool stops | as before |
//! | 2. save the pool as `reformatting`, with its new UUID and room, its volumes' caches as void | goes on with 3 |
//! | 3. the cache is formatted, the table has the new room | the same |
//! | 4. start it, save it as `ready` | – |

use super::{Claim, Health, LiveVolume, Manager, Trouble};
use crate::api::{Answer, DiskCreate, DiskPiece, DiskResize, DiskView, JobView, PoolReplace, Severity};
use crate::datapath::Withdrawal;
use crate::error::{ControlError, Kind};
use crate::human;
use crate::jobs::{Job, Work};
use crate::names::{self, Named};
use crate::state::{DiskRecord, PoolPhase, PoolRecord, Span, VolumePhase, VolumeRecord};
use crate::uuid::Uuid;
use crate::words::Export;
use format::disks::{DISKS_MAX, PIECES_MAX};

/// Disks begin and end on multiples of this.
pub(super) const GRAIN_BYTES: u64 = 1 << 20;
/// The room for disks begins on a multiple of this.
const STEP_BYTES: u64 = 16 << 20;

impl Manager {
    /// Makes a disk; a job where the cache has to give room for it.
    pub(super) fn disk_create(&self, create: &DiskCreate) -> Result<Answer, ControlError> {
        names::check(Named::Disk, &create.name)?;
        let exports = super::volumes::unique_exports(&create.exports)?;
        self.check_exports_free(&exports)?;
        self.check_name_is_free(&create.name)?;
        let size_bytes = whole_grains(create.size_bytes)?;
        // Claimed before anything is looked up: two disks must not find the same gap.
        let claim = self.claim(&[(Named::Pool, &create.pool), (Named::Volume, &create.name)], "the creation of a disk")?;
        self.check_name_is_free(&create.name)?;
        let pool = self.running_pool(&create.pool)?;
        let disks = self.memory().state.disks_of(&pool.name);
        if disks.len() >= DISKS_MAX {
            let remedy = "remove one first, or use another pool".to_string();
            return Err(ControlError::BadCombination(format!("the pool \"{}\" has {DISKS_MAX} disks, the maximum", pool.name), remedy));
        }
        if let Some(pieces) = self.room_for(&pool, None, size_bytes) {
            self.make_disk(create, &exports, pieces)?;
            return self.disk_view(&create.name).map(|view| Answer::Disk(Box::new(view)));
        }
        let room = self.larger_room(&pool, size_bytes)?;
        drop(claim);
        let (manager, create) = (self.clone(), create.clone());
        let name = create.name.clone();
        let then = move || {
            let pool = manager.pool_record(&create.pool)?;
            let pieces = manager.room_for(&pool, None, size_bytes).ok_or_else(|| no_room(&pool, 0))?;
            manager.make_disk(&create, &exports, pieces)
        };
        self.move_room(&pool, Some(room), &[&name], then).map(|job| Answer::Job(Box::new(job)))
    }

    /// Gives the cache the room before the first disk back, or all of it; a job.
    pub(super) fn pool_take_back(&self, name: &str) -> Result<JobView, ControlError> {
        let pool = self.running_pool(name)?;
        let first = self.memory().state.pieces_of(name).first().map(|piece| piece.at_bytes / STEP_BYTES * STEP_BYTES);
        let room = pool.disk_room.ok_or_else(|| {
            ControlError::BadCombination(format!("the cache of \"{name}\" has all of its SSD"), "nothing is to be done".into())
        })?;
        if first.is_some_and(|first| first <= room.at_bytes) {
            let remedy = "remove the disk that lies there (see `hearth disk show`), or leave it so".to_string();
            return Err(ControlError::BadCombination("a disk begins where the cache ends".into(), remedy));
        }
        self.move_room(&pool, first.map(|at_bytes| Span { at_bytes, ..room }), &[], || Ok(()))
    }

    /// Steps 1 and 2 of a disk whose place is known.
    fn make_disk(&self, create: &DiskCreate, exports: &[Export], pieces: Vec<Span>) -> Result<(), ControlError> {
        let (name, exports, uuid) = (create.name.clone(), exports.to_vec(), super::pools::new_uuid()?);
        let disk = DiskRecord { name, uuid, pool: create.pool.clone(), pieces, exports };
        let pool = self.pool_record(&disk.pool)?;
        self.begin_change_of(&pool)?;
        disk.pieces.iter().try_for_each(|piece| self.data().erase_disk(&pool, piece.at_bytes, piece.bytes()))?;
        let mut disks = self.memory().state.disks_of(&pool.name);
        disks.push(disk.clone());
        self.data().write_disks(&pool, &disks)?;
        self.change(|state| {
            state.disks.push(disk.clone());
            state.disk_changes.remove(&pool.name);
        })?;
        if let Err(error) = self.serve_disk(&disk, &pool) {
            self.forget_disk(&disk)?;
            return Err(error);
        }
        let told = format!("disk of {} made on {}", human::bytes(disk.size_bytes()), pool.ssd);
        self.events().note(Severity::Info, &disk.name, told);
        Ok(())
    }

    /// Changes a disk's size: to a larger one under I/O; to a smaller one only while nobody uses it. A job where the cache has to give room.
    pub(super) fn disk_resize(&self, name: &str, resize: &DiskResize) -> Result<Answer, ControlError> {
        let size_bytes = whole_grains(resize.size_bytes)?;
        let (claim, disk) = self.claim_disk(name, "its change of size")?;
        let pool = self.running_pool(&disk.pool)?;
        let (was_bytes, now_bytes) = (disk.size_bytes(), size_bytes);
        if now_bytes > was_bytes {
            let more_bytes = now_bytes - was_bytes;
            let Some(pieces) = self.room_for(&pool, Some(&disk), more_bytes) else {
                let room = self.larger_room(&pool, more_bytes)?;
                drop(claim);
                let manager = self.clone();
                let then = move || {
                    let pool = manager.pool_record(&disk.pool)?;
                    let pieces = manager.room_for(&pool, Some(&disk), more_bytes).ok_or_else(|| no_room(&pool, 0))?;
                    manager.grow_disk(&disk, pieces, &pool)
                };
                return self.move_room(&pool, Some(room), &[], then).map(|job| Answer::Job(Box::new(job)));
            };
            self.grow_disk(&disk, pieces, &pool)?;
        } else if now_bytes < was_bytes {
            if !resize.lose_content {
                let lost = human::bytes(was_bytes - now_bytes);
                let problem = format!("the last {lost} of the disk, and what they hold, would be lost");
                let remedy = "shrink the file system first; then confirm it with --lose-content".to_string();
                return Err(ControlError::BadCombination(problem, remedy));
            }
            self.shrink_disk(&disk, now_bytes, &pool)?;
        }
        self.disk_view(name).map(|view| Answer::Disk(Box::new(view)))
    }

    /// Gives a disk these pieces, behind those that it has.
    fn grow_disk(&self, before: &DiskRecord, pieces: Vec<Span>, pool: &PoolRecord) -> Result<(), ControlError> {
        self.begin_change_of(pool)?;
        for piece in &pieces {
            self.data().erase_disk(pool, piece.at_bytes, piece.bytes())?;
        }
        let disk = DiskRecord { pieces: joined(&before.pieces, pieces), ..before.clone() };
        let disks = self.memory().state.disks_of(&pool.name);
        let all: Vec<DiskRecord> = disks.into_iter().map(|other| if other.name == disk.name { disk.clone() } else { other }).collect();
        self.data().write_disks(pool, &all)?;
        self.save_disk(&disk)?;
        self.end_change_of(pool)?;
        if self.volume_attached(&disk.name) {
            for warning in self.data().grow_disk(&disk)? {
                self.events().note(Severity::Warning, &disk.name, warning);
            }
        }
        self.tell_size(before, &disk);
        Ok(())
    }

    fn shrink_disk(&self, before: &DiskRecord, size_bytes: u64, pool: &PoolRecord) -> Result<(), ControlError> {
        let disk = DiskRecord { pieces: cut(&before.pieces, size_bytes), ..before.clone() };
        self.begin_change_of(pool)?;
        self.put_away(&before.as_volume(&pool.ssd))?;
        let saved = self.save_disk(&disk).and_then(|()| {
            let disks = self.memory().state.disks_of(&pool.name);
            self.data().write_disks(pool, &disks)?;
            self.end_change_of(pool)
        });
        // With whichever size is on record.
        let served = self.disk_record(&disk.name).and_then(|now| self.serve_disk(&now, pool));
        saved.and(served)?;
        self.tell_size(before, &disk);
        Ok(())
    }

    fn tell_size(&self, before: &DiskRecord, now: &DiskRecord) {
        let told = format!("its size is {} now (it was {})", human::bytes(now.size_bytes()), human::bytes(before.size_bytes()));
        self.events().note(Severity::Info, &now.name, told);
    }

    /// Removes a disk that nobody uses, and its content.
    pub(super) fn disk_remove(&self, name: &str, lose_content: bool) -> Result<(), ControlError> {
        let (_claim, disk) = self.claim_disk(name, "its removal")?;
        let pool = self.pool_record(&disk.pool)?;
        let volume = disk.as_volume(&pool.ssd);
        self.check_unused(&volume)?;
        if !lose_content {
            let problem = format!("the content of the disk, {}, would be lost", human::bytes(disk.size_bytes()));
            return Err(ControlError::BadCombination(problem, "copy what you need; then confirm it with --lose-content".into()));
        }
        if self.running_pool(&pool.name).is_ok() {
            self.begin_change_of(&pool)?;
        }
        self.put_away(&volume)?;
        self.forget_disk(&disk)?;
        self.events().note(Severity::Info, name, "disk removed");
        Ok(())
    }

    /// Takes the record of a disk out; the SSD's table follows.
    fn forget_disk(&self, disk: &DiskRecord) -> Result<(), ControlError> {
        if self.volume_attached(&disk.name) {
            self.data().detach(&disk.as_volume(""), false)?;
        }
        self.change(|state| {
            state.disks.retain(|other| other.name != disk.name);
            state.disk_changes.insert(disk.pool.clone());
        })?;
        self.memory().volumes.remove(&disk.name);
        let pool = self.pool_record(&disk.pool)?;
        let left = self.memory().state.disks_of(&pool.name);
        if let Err(error) = self.data().write_disks(&pool, &left) {
            self.events().note(Severity::Warning, &disk.name, format!("the SSD still lists the disk that was removed: {error}"));
            return Ok(());
        }
        self.end_change_of(&pool)
    }

    /// Whether the disks of a pool may be changed: its SSD lists none that is not on record as it is there, unless a change was cut short. A state
    /// from before the disk would give its room away.
    fn check_table(&self, pool: &PoolRecord) -> Result<(), ControlError> {
        let (disks, is_changing) = {
            let memory = self.memory();
            (memory.state.disks_of(&pool.name), memory.state.disk_changes.contains(&pool.name))
        };
        if is_changing { Ok(()) } else { self.data().check_disks(pool, &disks) }
    }

    /// From here on the SSD's table may differ from the record.
    fn begin_change_of(&self, pool: &PoolRecord) -> Result<(), ControlError> {
        self.check_table(pool)?;
        self.change(|state| {
            state.disk_changes.insert(pool.name.clone());
        })
    }

    /// The table is as the record is.
    fn end_change_of(&self, pool: &PoolRecord) -> Result<(), ControlError> {
        self.change(|state| {
            state.disk_changes.remove(&pool.name);
        })
    }

    /// Takes a disk's exports back and detaches it.
    fn put_away(&self, disk: &VolumeRecord) -> Result<(), ControlError> {
        self.unexport_all(disk)?;
        if self.volume_attached(&disk.name) {
            self.data().detach(disk, false)?;
            self.set_live_volume(&disk.name, |live| live.attached = false);
        }
        Ok(())
    }

    fn save_disk(&self, disk: &DiskRecord) -> Result<(), ControlError> {
        self.change(|state| state.disks.iter_mut().filter(|other| other.name == disk.name).for_each(|other| other.clone_from(disk)))
    }

    /// Serves a disk of a pool that runs.
    fn serve_disk(&self, disk: &DiskRecord, pool: &PoolRecord) -> Result<(), ControlError> {
        self.data().attach_disk(disk)?;
        self.set_live_volume(&disk.name, |live| live.attached = true);
        let volume = disk.as_volume(&pool.ssd);
        if let Err(error) = self.export_all(&volume) {
            self.data().detach(&volume, false)?;
            self.set_live_volume(&disk.name, |live| live.attached = false);
            return Err(error);
        }
        self.set_live_volume(&disk.name, |live| (live.health, live.trouble) = (Health::Running, None));
        Ok(())
    }

    /// Serves all disks of a pool that has come up.
    pub(super) fn serve_disks(&self, pool: &str) {
        let Ok(record) = self.pool_record(pool) else { return };
        // Looked up before: the lock is not held while devices are asked.
        let disks = self.memory().state.disks_of(pool);
        match self.data().mend_disks(&record, &disks) {
            Ok(None) => {}
            Ok(Some(told)) => self.events().note(Severity::Warning, pool, told),
            Err(error) => self.events().note(Severity::Warning, pool, format!("the table of its disks was not mended: {error}")),
        }
        for disk in disks {
            if !self.volume_attached(&disk.name)
                && let Err(error) = self.serve_disk(&disk, &record)
            {
                self.fail_volume(&disk.as_volume(&record.ssd), &error);
            }
        }
    }

    /// Serves a disk that could not be served, if it can be now. Whoever is at it sees to it.
    pub(super) fn try_disk(&self, name: &str) {
        let Ok((_claim, disk)) = self.claim_disk(name, "another try to serve it") else { return };
        let Ok(pool) = self.running_pool(&disk.pool) else { return };
        if self.volume_attached(name) {
            return;
        }
        match self.serve_disk(&disk, &pool) {
            Ok(()) => self.events().note(Severity::Info, name, "the disk is served now"),
            Err(error) => self.set_live_volume(name, |live| live.trouble = Some(Trouble::from(&error))),
        }
    }

    /// Disks that are not served although their pool runs, with its SSD.
    pub(super) fn disks_left_behind(&self) -> Vec<(String, String)> {
        let memory = self.memory();
        let runs = |pool: &str| memory.pools.get(pool).is_some_and(|live| live.health == Health::Running);
        let is_left = |disk: &&DiskRecord| {
            let health = memory.volumes.get(&disk.name).filter(|live| !live.attached).map(|live| live.health);
            health == Some(Health::Failed) && runs(&disk.pool)
        };
        let ssd = |disk: &DiskRecord| memory.state.pool(&disk.pool).map_or(String::new(), |pool| pool.ssd.clone());
        memory.state.disks.iter().filter(is_left).map(|disk| (disk.name.clone(), ssd(disk))).collect()
    }

    /// The pool did not come up, and so its disks do not.
    pub(super) fn fail_disks(&self, pool: &PoolRecord, error: &ControlError) {
        let disks = self.memory().state.disks_of(&pool.name);
        for disk in disks {
            self.fail_volume(&disk.as_volume(&pool.ssd), error);
        }
    }

    /// A pool's disks as volumes, for who takes exports back and detaches.
    pub(super) fn disk_volumes(&self, pool: &str) -> Vec<VolumeRecord> {
        let memory = self.memory();
        let ssd = memory.state.pool(pool).map_or(String::new(), |pool| pool.ssd.clone());
        memory.state.disks_of(pool).iter().map(|disk| disk.as_volume(&ssd)).collect()
    }

    /// Users of the disks wait, where they can, and the disks let the SSD go.
    pub(super) fn suspend_disks(&self, pool: &str) -> Result<(), ControlError> {
        for disk in self.disk_volumes(pool) {
            self.suspend_all(&disk)?;
            if self.volume_attached(&disk.name) {
                self.data().detach(&disk, false)?;
                self.set_live_volume(&disk.name, |live| live.attached = false);
            }
        }
        Ok(())
    }

    /// The SSD was away, and may have lost what users of the disks have not flushed: they must not take the next flush for a success.
    pub(super) fn end_disks(&self, pool: &str) -> Result<(), ControlError> {
        self.abandon_disks(pool, Withdrawal::Forced)?;
        self.disk_volumes(pool).iter().for_each(|disk| self.data().end_kept(disk));
        Ok(())
    }

    /// No volume or disk has the name.
    pub(super) fn check_name_is_free(&self, name: &str) -> Result<(), ControlError> {
        let memory = self.memory();
        match (memory.state.volume(name), memory.state.disk(name)) {
            (None, None) => Ok(()),
            (Some(_), _) => Err(ControlError::Taken { named: "volume", name: name.into() }),
            (None, Some(_)) => Err(ControlError::Taken { named: "disk", name: name.into() }),
        }
    }

    /// Claims a disk and its pool, and gives the disk as it is then.
    fn claim_disk(&self, name: &str, doing: &'static str) -> Result<(Claim, DiskRecord), ControlError> {
        let pool = self.disk_record(name)?.pool;
        let claim = self.claim(&[(Named::Pool, &pool), (Named::Volume, name)], doing)?;
        let disk = self.disk_record(name)?;
        if disk.pool != pool {
            return Err(ControlError::Claimed { named: "disk", name: name.into(), doing: "its creation anew" });
        }
        Ok((claim, disk))
    }

    pub(super) fn is_disk(&self, name: &str) -> bool {
        self.memory().state.disk(name).is_some()
    }

    fn disk_record(&self, name: &str) -> Result<DiskRecord, ControlError> {
        self.memory().state.disk(name).cloned().ok_or_else(|| ControlError::Unknown { named: "disk", name: name.into() })
    }

    pub(super) fn disk_views(&self) -> Vec<DiskView> {
        let memory = self.memory();
        let mut disks = memory.state.disks.clone();
        disks.sort_by(|one, other| one.name.cmp(&other.name));
        let of = |disk: DiskRecord| {
            let live = memory.volumes.get(&disk.name).cloned().unwrap_or_else(|| LiveVolume::new(Health::Starting));
            let ssd = memory.state.pool(&disk.pool).map_or(String::new(), |pool| pool.ssd.clone());
            let has_ssd = memory.pools.get(&disk.pool).is_none_or(|pool| pool.health == Health::Running);
            view_of(disk, ssd, live, has_ssd)
        };
        disks.into_iter().map(of).collect()
    }

    pub(super) fn disk_view(&self, name: &str) -> Result<DiskView, ControlError> {
        let unknown = || ControlError::Unknown { named: "disk", name: name.into() };
        self.disk_views().into_iter().find(|disk| disk.name == name).ok_or_else(unknown)
    }

    /// The room for disks with which so much more of them would fit in.
    fn larger_room(&self, pool: &PoolRecord, wanted_bytes: u64) -> Result<Span, ControlError> {
        let live_bytes = self.memory().pools.get(&pool.name).map_or(0, |live| live.size_bytes);
        // Not to the last byte: what stands at the end of a disk, a second partition table for instance, must not look like the SSD's own.
        let end_bytes = live_bytes.saturating_sub(1) / GRAIN_BYTES * GRAIN_BYTES;
        let room = pool.disk_room.unwrap_or(Span { at_bytes: end_bytes, end_bytes });
        let pieces = self.memory().state.pieces_of(&pool.name);
        let free_bytes: u64 = gaps(room, &pieces).iter().map(Span::bytes).sum();
        let at_bytes = room.at_bytes.checked_sub(wanted_bytes.saturating_sub(free_bytes)).map(|at| at / STEP_BYTES * STEP_BYTES);
        match at_bytes.filter(|at| *at >= super::pools::SSD_BYTES_MIN) {
            Some(at_bytes) => Ok(Span { at_bytes, ..room }),
            None => Err(no_room(pool, free_bytes + room.at_bytes.saturating_sub(super::pools::SSD_BYTES_MIN.next_multiple_of(STEP_BYTES)))),
        }
    }

    /// Where so much of a disk fits in, which is new or becomes larger; `None` if that is nowhere.
    fn room_for(&self, pool: &PoolRecord, of: Option<&DiskRecord>, wanted_bytes: u64) -> Option<Vec<Span>> {
        let pieces = self.memory().state.pieces_of(&pool.name);
        let found = room_in(&gaps(pool.disk_room?, &pieces), of.and_then(|disk| disk.pieces.last()), wanted_bytes)?;
        (pieces.len() + found.len() <= PIECES_MAX).then_some(found)
    }

    /// Moves the begin of the room for disks (`None`: there is none any more), with an empty cache in what is left; then does what was asked for. `also`:
    /// a name that this will need.
    fn move_room(
        &self,
        pool: &PoolRecord,
        room: Option<Span>,
        also: &[&str],
        then: impl FnOnce() -> Result<(), ControlError> + Send + 'static,
    ) -> Result<JobView, ControlError> {
        let name = &pool.name;
        let volumes: Vec<VolumeRecord> = self.memory().state.volumes_of(name).cloned().collect();
        let disks = self.disk_volumes(name);
        let mut claimed = vec![(Named::Pool, name.as_str()), (Named::SsdOfPool, name)];
        claimed.extend(volumes.iter().chain(&disks).map(|v| (Named::Volume, v.name.as_str())));
        claimed.extend(also.iter().map(|name| (Named::Volume, *name)));
        let claim = self.claim(&claimed, "a change of what its cache has of the SSD")?;
        if self.pool_record(name)? != *pool || self.disk_volumes(name) != disks {
            return Err(ControlError::Claimed { named: "pool", name: name.clone(), doing: "another change of its disks" });
        }
        if let Some(volume) = volumes.iter().find(|v| v.phase != VolumePhase::Ready) {
            return Err(ControlError::Claimed { named: "volume", name: volume.name.clone(), doing: "its removal" });
        }
        if let Some(volume) = volumes.iter().find(|v| v.may_have_dirty && !self.volume_attached(&v.name)) {
            return Err(ControlError::DirtyData {
                name: volume.name.clone(),
                dirty: "an unknown amount".into(),
                why: format!(", perhaps, on {}, and is not running", pool.ssd),
                remedy: format!("start it with `hearth volume start {}`, so that its dirty data can go home, then try again", volume.name),
            });
        }
        let waits = |volume: &&VolumeRecord| !self.all_can_wait(volume);
        volumes.iter().chain(&disks).filter(waits).try_for_each(|volume| self.check_unused(volume))?;
        let (manager, old) = (self.clone(), pool.clone());
        self.run_job(Work::DiskRoom, (name, pool.uuid), claim, move |job| {
            manager.make_cache_anew(&old, room, &volumes, job)?;
            then()
        })
    }

    fn make_cache_anew(&self, old: &PoolRecord, room: Option<Span>, volumes: &[VolumeRecord], job: &Job) -> Result<(), ControlError> {
        let name = &old.name;
        self.check_table(old)?;
        let uuid = super::pools::new_uuid()?;
        let served: Vec<VolumeRecord> =
            volumes.iter().cloned().chain(self.disk_volumes(name)).filter(|volume| self.volume_attached(&volume.name)).collect();
        let replace = PoolReplace { ssd: old.ssd.clone(), size_bytes: old.size_bytes, force: true, drop_dirty: false };
        let bring_home = || self.bring_home(old, volumes, &replace, job).map_err(nothing_was_changed);
        bring_home()?;
        let calm = volumes.iter().try_for_each(|volume| self.suspend_all(volume)).and_then(|()| self.suspend_disks(name));
        // Once more: clients could write until now.
        // The table may still have what a removal that was cut short has left; no cache is made over what it lists.
        let disks = self.memory().state.disks_of(name);
        let calm = calm.and_then(|()| volumes.iter().try_for_each(|volume| self.data().check_quiet(volume)));
        let calm = calm.and_then(|()| bring_home()).and_then(|()| self.data().write_disks(old, &disks));
        let calm = calm.and_then(|()| self.detach_all(volumes));
        if let Err(error) = calm {
            volumes.iter().for_each(|volume| self.serve_again(volume));
            self.serve_disks(name);
            return Err(error);
        }
        self.stop_quietly(name);
        let saved = self.change(|state| {
            if let Some(pool) = state.pool_mut(name) {
                pool.phase = PoolPhase::Reformatting { former: pool.uuid };
                (pool.uuid, pool.session, pool.degraded, pool.disk_room) = (uuid, 0, None, room);
            }
            for volume in state.volumes.iter_mut().filter(|volume| volume.pool == *name) {
                (volume.cache_stale, volume.may_have_dirty, volume.stopped_clean) = (true, false, false);
                volume.past.clear();
            }
        });
        // With the new room or, if that could not be saved, as it was.
        let wanted: Vec<VolumeRecord> = self.memory().state.volumes_of(name).filter(|v| !v.rests()).cloned().collect();
        let judged = self.judge_all(&wanted);
        let saved = saved.and(self.save_before_first_io(&judged));
        self.start_one_pool(&self.pool_record(name)?, &judged);
        saved?;
        self.running_pool(name)?;
        let has = self.memory().pools.get(name).map_or(0, |live| live.size_bytes);
        let told = format!("its cache has {} of the SSD now, and is empty", human::bytes(has));
        self.events().note(Severity::Info, name, told);
        self.check_served_again(&served)
    }

    /// What was served before has to be so again: a job that leaves a volume behind has failed.
    pub(super) fn check_served_again(&self, before: &[VolumeRecord]) -> Result<(), ControlError> {
        let Some(left) = before.iter().find(|volume| !self.volume_attached(&volume.name)) else { return Ok(()) };
        let live = self.memory().volumes.get(&left.name).cloned();
        let comes_by_itself = live.as_ref().is_some_and(|live| live.waits) || self.disk_record(&left.name).is_ok();
        let start = if comes_by_itself {
            "it is tried again by itself".to_string()
        } else {
            format!("then start it with `hearth volume start {}`", left.name)
        };
        let trouble = live.and_then(|live| live.trouble);
        let (reason, remedy) = trouble.map_or((String::new(), start.clone()), |trouble| {
            let said = if trouble.remedy.is_empty() { start } else { format!("{}; {start}", trouble.remedy) };
            (format!(": {}", trouble.problem), said)
        });
        let problem = format!("the pool is running as asked for, but \"{}\" is not served{reason}", left.name);
        Err(ControlError::DataPath(problem, remedy))
    }

    /// Step 3 of a move of the room, also for a start that finds it half done. The pool is not running.
    ///
    /// Gives the pool with its SSD where that is now.
    pub(super) fn reformat(&self, pool: &PoolRecord, former: Uuid) -> Result<PoolRecord, ControlError> {
        // It may have another name now.
        let found = self.data().find_ssd(pool.uuid).or_else(|| self.data().find_ssd(former));
        let pool = &PoolRecord { ssd: found.unwrap_or_else(|| pool.ssd.clone()), ..pool.clone() };
        let carries = self.data().examine_ssd(&pool.ssd).map(|facts| facts.pool)?;
        if carries != Some(former) && carries != Some(pool.uuid) {
            let remedy = format!("make its cache anew with `hearth pool replace {} --ssd {} --force`: its disks stay", pool.name, pool.ssd);
            let problem = "its cache was being made anew when hearth ended, and it does not carry this pool now".to_string();
            return Err(super::pools::device(&pool.ssd, problem, remedy, Kind::Conflict));
        }
        let disks = self.memory().state.disks_of(&pool.name);
        self.data().format(pool)?;
        self.data().write_disks(pool, &disks)?;
        self.change(|state| {
            if let Some(now) = state.pool_mut(&pool.name) {
                now.ssd.clone_from(&pool.ssd);
            }
        })?;
        Ok(pool.clone())
    }

    /// Ends what the exports of disks are, at the daemon's end or with their pool.
    pub(super) fn abandon_disks(&self, pool: &str, how: Withdrawal) -> Result<(), ControlError> {
        for disk in self.disk_volumes(pool).iter().filter(|disk| self.volume_attached(&disk.name)) {
            self.abandon_exports(disk, how);
            self.data().detach(disk, false)?;
            self.set_live_volume(&disk.name, |live| live.attached = false);
        }
        Ok(())
    }
}

/// Of an error that came before anything was done: what is dirty stays where it is.
fn nothing_was_changed(error: ControlError) -> ControlError {
    match error {
        ControlError::DirtyData { name, dirty, why, .. } => {
            let remedy = "fix that and try again: nothing was changed".into();
            ControlError::DirtyData { name, dirty, why, remedy }
        }
        other => other,
    }
}

/// `has_ssd`: its pool runs with it.
fn view_of(disk: DiskRecord, ssd: String, live: LiveVolume, has_ssd: bool) -> DiskView {
    let lost = || Trouble {
        problem: format!("its pool has lost the SSD {ssd}: requests may get errors"),
        remedy: format!("see `hearth pool show {}`", disk.pool),
    };
    let is_lost = live.attached && !has_ssd;
    let refused = live.refused.as_ref().map(super::known::disk_refusal);
    let trouble = refused.or_else(|| live.trouble.clone()).or_else(|| is_lost.then(lost));
    let (problem, remedy) = trouble.map(|Trouble { problem, remedy }| (problem, remedy)).unzip();
    DiskView {
        uuid: disk.uuid,
        health: if is_lost { Health::Failing } else { live.shown_health() },
        problem,
        remedy,
        size_bytes: disk.size_bytes(),
        pool: disk.pool,
        ssd,
        pieces: disk.pieces.iter().map(|piece| DiskPiece { offset_bytes: piece.at_bytes, size_bytes: piece.bytes() }).collect(),
        checksummed: false,
        exports: disk.exports.iter().map(|export| (export.to_string(), live.exports.get(export).cloned())).collect(),
        on_restart: live.on_restart.iter().map(|(export, what)| (export.to_string(), *what)).collect(),
        export_notes: live.export_notes.iter().map(|(export, note)| (export.to_string(), note.clone())).collect(),
        stable_path: live.stable_path,
        name: disk.name,
    }
}

fn whole_grains(bytes: u64) -> Result<u64, ControlError> {
    let bad =
        |problem: &str| ControlError::BadOption { option: "--size", problem: problem.into(), remedy: "write for instance 10GiB".into() };
    match bytes.checked_next_multiple_of(GRAIN_BYTES) {
        Some(0) => Err(bad("is nothing")),
        Some(bytes) if bytes <= types::VOLUME_BYTES_MAX => Ok(bytes),
        _ => Err(bad("is more than 64 TiB")),
    }
}

/// What no disk has of the room for them, in order.
fn gaps(room: Span, pieces: &[Span]) -> Vec<Span> {
    let mut at_bytes = room.at_bytes;
    let mut gaps = Vec::new();
    for (end_bytes, next) in pieces.iter().map(|piece| (piece.at_bytes, piece.end_bytes)).chain([(room.end_bytes, 0)]) {
        if end_bytes > at_bytes {
            gaps.push(Span { at_bytes, end_bytes });
        }
        at_bytes = next;
    }
    gaps
}

/// So much of the gaps: what is behind that piece first, then the smallest gap that is enough, or else as few as can be.
fn room_in(gaps: &[Span], behind: Option<&Span>, wanted_bytes: u64) -> Option<Vec<Span>> {
    let mut left_bytes = wanted_bytes;
    let mut found = Vec::new();
    let mut take = |gap: &Span, left_bytes: &mut u64| {
        let taken_bytes = gap.bytes().min(*left_bytes);
        if taken_bytes > 0 {
            found.push(Span { end_bytes: gap.at_bytes + taken_bytes, ..*gap });
        }
        *left_bytes -= taken_bytes;
    };
    let (next, mut others): (Vec<Span>, Vec<Span>) =
        gaps.iter().partition(|gap| behind.is_some_and(|behind| behind.end_bytes == gap.at_bytes));
    next.iter().for_each(|gap| take(gap, &mut left_bytes));
    others.sort_by_key(|gap| gap.bytes());
    while left_bytes > 0 {
        let enough = others.iter().position(|gap| gap.bytes() >= left_bytes);
        let gap = others.remove(enough.or(others.len().checked_sub(1))?);
        take(&gap, &mut left_bytes);
    }
    Some(found)
}

/// Pieces with others behind them, each run one piece.
fn joined(pieces: &[Span], more: Vec<Span>) -> Vec<Span> {
    let mut all = pieces.to_vec();
    for piece in more {
        match all.last_mut() {
            Some(last) if last.end_bytes == piece.at_bytes => last.end_bytes = piece.end_bytes,
            _ => all.push(piece),
        }
    }
    all
}

/// The first bytes of these pieces.
fn cut(pieces: &[Span], size_bytes: u64) -> Vec<Span> {
    let mut left_bytes = size_bytes;
    let mut kept = Vec::new();
    for piece in pieces {
        let kept_bytes = piece.bytes().min(left_bytes);
        if kept_bytes > 0 {
            kept.push(Span { end_bytes: piece.at_bytes + kept_bytes, ..*piece });
        }
        left_bytes -= kept_bytes;
    }
    kept
}

fn no_room(pool: &PoolRecord, most_bytes: u64) -> ControlError {
    let problem = format!(
        "it has room for {} more of disks at most: its cache keeps {}",
        human::bytes(most_bytes),
        human::bytes(super::pools::SSD_BYTES_MIN)
    );
    let remedy = "give a smaller --size, or remove another disk".to_string();
    super::pools::device(&pool.ssd, problem, remedy, Kind::Conflict)
}
