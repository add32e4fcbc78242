//! Disks beside a pool's cache: plain parts of its SSD, served like volumes. A part of the SSD behind the cache is the room
//! for them, in which each has one piece or more. Where that is too small, its begin moves: the cache is cut there, and keeps what is left of it; or,
//! where it cannot be cut (a log can not), it is made anew in what is left, empty.
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
//! | set exports | after a crash here, the start |
//! |---|---|
//! | 1. take those back that go | offers it as before |
//! | 2. save the new ones, then offer them | offers the new ones |
//!
//! | move the room | after a crash here, the start |
//! |---|---|
//! | 1. all dirty data goes home, clients are suspended; the table has what is on record, and no more; the pool stops | as before |
//! | 2. save the pool as `resizing`, with its new room; or as `reformatting`, with its new UUID and room, its volumes' caches as void | goes on with 3 |
//! | 3. the cache is cut or lengthened, or formatted; the table has the new room | the same |
//! | 4. start it, save it as `ready` | – |

mod claiming;
mod offers;
mod places;
mod room;
mod serving;
mod views;

use super::claims::Claim;
use super::{Health, LiveVolume, Manager, Trouble};
use api::error::ControlError;
use api::human;
use api::names::{self, Named};
use api::words::Export;
use api::{Answer, DiskCreate, DiskSet, JobView, Severity};
use format::disks::DISKS_MAX;
use places::{cut, joined, no_room, whole_grains};
use records::state::{DiskRecord, PoolRecord, Span};
use uuid::Uuid;

impl Manager {
    /// Makes a disk; a job where the cache has to give room for it.
    pub(super) fn disk_create(&self, create: &DiskCreate) -> Result<Answer, ControlError> {
        names::check(Named::Disk, &create.name)?;
        let exports = super::volumes::unique_exports(&create.exports)?;
        let size_bytes = whole_grains(create.size_bytes)?;
        // Claimed before anything is looked up: two disks must not find the same gap, or get the same name.
        let claim = self.claim(&[(Named::Pool, &create.pool), (Named::Volume, &create.name)], "the creation of a disk")?;
        self.check_name_is_free(&create.name)?;
        self.check_exports_free(&exports)?;
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
        let (manager, create) = (self.clone(), create.clone());
        let then = move || {
            let pool = manager.pool_record(&create.pool)?;
            let pieces = manager.room_for(&pool, None, size_bytes).ok_or_else(|| no_room(&pool, 0))?;
            manager.make_disk(&create, &exports, pieces)
        };
        self.move_room(claim, &pool, Some(room), then).map(|job| Answer::Job(Box::new(job)))
    }

    /// Gives the cache the room before the first disk back, or all of it; a job.
    pub(super) fn pool_take_back(&self, name: &str) -> Result<JobView, ControlError> {
        let claim = self.claim(&[(Named::Pool, name)], "the return of room to its cache")?;
        let pool = self.running_pool(name)?;
        let room = pool.disk_room.ok_or_else(|| {
            ControlError::BadCombination(format!("the cache of \"{name}\" has all of its SSD"), "nothing is to be done".into())
        })?;
        let left = self.room_in_use(&pool, room);
        if left.is_some_and(|left| left.at_bytes <= room.at_bytes) {
            let remedy = "remove the disk that lies there (see `hearth disk show`), or leave it so".to_string();
            return Err(ControlError::BadCombination("a disk begins where the cache ends".into(), remedy));
        }
        self.move_room(claim, &pool, left, || Ok(()))
    }

    /// Steps 1 and 2 of a disk whose place is known.
    fn make_disk(&self, create: &DiskCreate, exports: &[Export], pieces: Vec<Span>) -> Result<(), ControlError> {
        let (name, exports, uuid) = (create.name.clone(), exports.to_vec(), Uuid::new_v4());
        let disk = DiskRecord { name, uuid, pool: create.pool.clone(), pieces, exports, shares: Vec::new() };
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
        self.memory().volumes.insert(disk.name.clone(), LiveVolume::new(Health::Starting));
        if let Err(error) = self.serve_disk(&disk, &pool) {
            if let Err(also) = self.put_away(&disk.as_volume(&pool.ssd)).and_then(|()| self.forget_disk(&disk)) {
                let trouble = Trouble {
                    problem: format!("its creation failed ({error}), and that could not be undone: {also}"),
                    remedy: format!("it is tried again; or remove it with `hearth disk remove {} --lose-content`", disk.name),
                };
                self.set_live_volume(&disk.name, |live| (live.health, live.waits, live.trouble) = (Health::Failed, true, Some(trouble)));
            }
            return Err(error);
        }
        let told = format!("disk of {} made on {}", human::bytes(disk.size_bytes()), pool.ssd);
        self.events().note(Severity::Info, &disk.name, told);
        Ok(())
    }

    /// Changes a disk's size, or its exports.
    pub(super) fn disk_set(&self, name: &str, set: &DiskSet) -> Result<Answer, ControlError> {
        match (set.size_bytes, &set.exports) {
            (Some(size_bytes), None) => self.disk_resize(name, size_bytes, set.lose_content),
            (None, Some(exports)) if !set.lose_content => self.set_disk_exports(name, exports),
            (None, None) => Err(ControlError::BadCombination("nothing to change was given".into(), "give a size, or exports".into())),
            _ => {
                let problem = "a disk's size and its exports are changed one after the other".into();
                Err(ControlError::BadCombination(problem, "give a size, with or without --lose-content; or exports".into()))
            }
        }
    }

    /// To a larger size under I/O; to a smaller one only while nobody uses it. A job where the cache has to give room.
    fn disk_resize(&self, name: &str, size_bytes: u64, lose_content: bool) -> Result<Answer, ControlError> {
        let size_bytes = whole_grains(size_bytes)?;
        let (claim, disk) = self.claim_disk(name, "its change of size")?;
        let pool = self.running_pool(&disk.pool)?;
        let (was_bytes, now_bytes) = (disk.size_bytes(), size_bytes);
        if now_bytes > was_bytes {
            let more_bytes = now_bytes - was_bytes;
            let Some(pieces) = self.room_for(&pool, Some(&disk), more_bytes) else {
                let room = self.larger_room(&pool, more_bytes)?;
                let (manager, pool_name) = (self.clone(), pool.name.clone());
                let then = move || {
                    let pool = manager.pool_record(&pool_name)?;
                    let pieces = manager.room_for(&pool, Some(&disk), more_bytes).ok_or_else(|| no_room(&pool, 0))?;
                    manager.grow_disk(&disk, pieces, &pool)
                };
                return self.move_room(claim, &pool, Some(room), then).map(|job| Answer::Job(Box::new(job)));
            };
            self.grow_disk(&disk, pieces, &pool)?;
        } else if now_bytes < was_bytes {
            if !lose_content {
                let lost = human::bytes(was_bytes - now_bytes);
                let problem = format!("the last {lost} of the disk, and what they hold, would be lost");
                let remedy = "shrink the file system first; then confirm it with --lose-content".to_string();
                return Err(ControlError::BadCombination(problem, remedy));
            }
            self.shrink_disk(&disk, now_bytes, &pool)?;
        } else {
            // Who asks again has its users told again.
            self.serve_disk(&disk, &pool)?;
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
        self.end_change_of(pool);
        self.tell_size(before, &disk);
        self.serve_with_its_size(&disk, pool)
    }

    fn shrink_disk(&self, before: &DiskRecord, size_bytes: u64, pool: &PoolRecord) -> Result<(), ControlError> {
        let disk = DiskRecord { pieces: cut(&before.pieces, size_bytes), ..before.clone() };
        self.begin_change_of(pool)?;
        let saved = self.put_away(&before.as_volume(&pool.ssd)).and_then(|()| self.save_disk(&disk));
        if saved.is_ok() {
            self.tell_size(before, &disk);
            self.write_smaller_table(&disk.name, pool);
        }
        // With whichever size is on record.
        let served = self.disk_record(&disk.name).and_then(|now| self.serve_or_tell(&now, pool));
        saved.and(served)
    }

    fn tell_size(&self, before: &DiskRecord, now: &DiskRecord) {
        let told = format!("its size is {} now (it was {})", human::bytes(now.size_bytes()), human::bytes(before.size_bytes()));
        self.events().note(Severity::Info, &now.name, told);
    }

    /// Removes a disk that nobody uses, and its content.
    pub(super) fn disk_remove(&self, name: &str, lose_content: bool) -> Result<(), ControlError> {
        let (_claim, disk) = self.claim_disk(name, "its removal")?;
        let pool = self.pool_record(&disk.pool)?;
        self.check_state_is_newest(&pool)?;
        let volume = disk.as_volume(&pool.ssd);
        self.check_unused(&volume)?;
        if !lose_content {
            let problem = format!("the content of the disk, {}, would be lost", human::bytes(disk.size_bytes()));
            return Err(ControlError::BadCombination(problem, "copy what you need; then confirm it with --lose-content".into()));
        }
        let pool_runs = self.running_pool(&pool.name).is_ok();
        if pool_runs {
            self.begin_change_of(&pool)?;
        }
        if let Err(error) = self.put_away(&volume).and_then(|()| self.forget_disk(&disk)) {
            // It is still there: so it is served.
            if pool_runs {
                drop(self.serve_or_tell(&disk, &pool));
            }
            return Err(error);
        }
        self.events().note(Severity::Info, name, "disk removed");
        Ok(())
    }

    /// Takes the record of a disk out; the SSD's table follows.
    ///
    /// # Errors
    /// Then it is on record as before.
    fn forget_disk(&self, disk: &DiskRecord) -> Result<(), ControlError> {
        if self.volume_attached(&disk.name) {
            self.data().detach(&disk.as_volume(""), false)?;
            self.set_live_volume(&disk.name, |live| live.attached = false);
        }
        self.change(|state| {
            state.disks.retain(|other| other.name != disk.name);
            state.disk_changes.insert(disk.pool.clone());
        })?;
        self.memory().volumes.remove(&disk.name);
        if let Ok(pool) = self.pool_record(&disk.pool) {
            self.write_smaller_table(&disk.name, &pool);
        }
        Ok(())
    }

    /// The last step of a change that gives room back. Where it fails, the table has more than what is on record, and is put right by the next
    /// change.
    fn write_smaller_table(&self, disk: &str, pool: &PoolRecord) {
        let left = self.memory().state.disks_of(&pool.name);
        match self.data().write_disks(pool, &left) {
            Ok(()) => self.end_change_of(pool),
            Err(error) => {
                let message = format!("the SSD still lists what the disk had, and is put right by the next change: {error}");
                self.events().note(Severity::Warning, disk, message);
            }
        }
    }

    /// From here on the SSD's table may differ from the record.
    fn begin_change_of(&self, pool: &PoolRecord) -> Result<(), ControlError> {
        self.check_table(pool)?;
        self.change(|state| {
            state.disk_changes.insert(pool.name.clone());
        })
    }

    /// The table is as the record is. That this is not on record costs nothing but a check.
    fn end_change_of(&self, pool: &PoolRecord) {
        let ended = self.change(|state| {
            state.disk_changes.remove(&pool.name);
        });
        if let Err(error) = ended {
            tracing::warn!("that the disks of {} are as they are on record is not noted: {error}", pool.name);
        }
    }
}
