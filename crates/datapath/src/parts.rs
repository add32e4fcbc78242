//! The data path in parts, as the machine has its rooms: each trait is implemented in one file of it.

use super::{
    Absence, CheckedPart, DeviceFacts, DeviceUse, Formatted, FoundDevice, Inspected, Life, Offer, PIECE_BYTES_MAX, Pending, Piece,
    PoolStarted, Sample, StrayedFile, Tapped, TappedVolume, WaitingFor, Withdrawal,
};
use crate::figures::Figures;
use crate::looking::{AddressMap, Cells, Explained};
use crate::mapped::MappedDevices;
use api::error::ControlError;
use api::memory::MemoryLimit;
use api::stats::{PoolStats, VolumeStats};
use api::words::Export;
use records::ssd_content::SsdContent;
use records::state::{BackingIdentity, DiskRecord, Fact, PoolRecord, ShareRecord, VolumeRecord};
use runtime::Histogram;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use targets::{Look, Offered, Protocol};
use types::{SsdIndex, Treatment};
use uuid::Uuid;

/// What the machine says of devices and files, without changing them.
pub trait Facts: Send + Sync {
    /// The kernel's device mapper.
    fn mapped(&self) -> &dyn MappedDevices;

    /// Looks at an SSD without changing it.
    fn examine_ssd(&self, path: &str) -> Result<DeviceFacts, ControlError>;

    /// What is on the SSD of a pool that does not run: its volumes, what is dirty of them, and what it says of the state. Changes nothing.
    ///
    /// # Errors
    /// If it carries no pool, or cannot be read.
    fn look_into_ssd(&self, path: &str) -> Result<SsdContent, ControlError> {
        Err(ControlError::Unknown { named: "device", name: path.into() })
    }

    /// Looks at a backing device (a path or `model:SET:FILE`) without changing it.
    fn examine_backing(&self, spec: &str) -> Result<DeviceFacts, ControlError>;

    /// Whether a device, of which nothing needs to be known, does not answer a read for so long.
    fn is_silent(&self, _spec: &str, _patience: Duration) -> bool {
        false
    }

    /// Looks for a device that may be the one of this identity, under all names but `spec`. Gives what was found, each with its facts; whether it is the
    /// one is for the caller to say ([`records::recognise`]).
    fn find_backing(&self, spec: &str, wanted: &BackingIdentity) -> Vec<(String, DeviceFacts)>;

    /// A number that changes when a device comes, goes or changes, or the file at `spec` does.
    fn device_mark(&self, spec: &str) -> u64;

    /// How much memory the daemon may have; `None` if that is not known.
    fn memory(&self) -> Option<MemoryLimit> {
        api::memory::limit()
    }

    /// All block devices of this machine. Those that nobody uses are looked at, with little patience: one that does not answer has a `problem`.
    fn devices(&self) -> Result<Vec<FoundDevice>, ControlError>;

    /// Looks at one device or file, or at what is behind `model:SET:FILE`; changes nothing. What is there and cannot be used has a `problem`.
    ///
    /// # Errors
    /// [`ControlError::Unknown`] if there is nothing of that name.
    fn look_at(&self, spec: &str) -> Result<FoundDevice, ControlError>;

    /// The path of a device or file with all links resolved, without the model's set; as given if it is not there.
    fn canonical(&self, spec: &str) -> String;

    /// How two devices share bytes, as a clause that names both: the same one, a disk and its partition, a file and the device
    /// below it. `None` if they do not, or if one is not there.
    fn overlap(&self, one: &str, other: &str) -> Result<Option<String>, ControlError>;

    /// Which of these volumes of this daemon, served or about to be, has its block device below a device or file, and the way to it in words. The
    /// path need not be there.
    ///
    /// # Errors
    /// If the machine does not tell.
    fn own_volume_below(&self, _spec: &str, _volumes: &[VolumeRecord]) -> Result<Option<(String, String)>, ControlError> {
        Ok(None)
    }

    /// Which other programs have a device or file open, in words; `None` if none is seen.
    fn opened_by_others(&self, _spec: &str) -> Option<String> {
        None
    }

    /// Whether nothing but zeroes is on a device that may become an SSD: at its begin and its end, and in samples between.
    ///
    /// # Errors
    /// If it cannot be read.
    fn is_blank(&self, _path: &str) -> Result<bool, ControlError> {
        Ok(false)
    }

    /// Looks for the SSD of a pool among all devices that are free.
    fn find_ssd(&self, uuid: Uuid) -> Option<String>;
}

/// Pools: formatted, started, stopped, and what becomes of a lost SSD.
pub trait Pools: Send + Sync {
    /// The same of the file of a running pool's SSD.
    fn ssd_strayed(&self, _pool: &str) -> Option<StrayedFile> {
        None
    }

    /// Makes a file of that size for an SSD. Fails if there is anything of that name.
    fn make_file(&self, path: &str, size_bytes: u64) -> Result<(), ControlError>;

    /// Removes the file that [`Pools::make_file`] made for a pool. It is no failure if it is gone.
    ///
    /// # Errors
    /// Also if what has its name by now is not that file: it stays.
    fn remove_file(&self, pool: &PoolRecord) -> Result<(), ControlError>;

    /// Formats the pool's SSD with the record's UUID, durably; what was there is lost. What the record leaves unused is discarded.
    fn format(&self, pool: &PoolRecord) -> Result<Formatted, ControlError>;

    /// Whether [`Pools::resize`] can be done of a pool that does not run.
    fn may_resize(&self, pool: &PoolRecord) -> bool;

    /// Gives the cache of a pool that does not run as much of its SSD as the record's room for disks leaves, durably and in one step. What it has in
    /// that part stays. Done again, it changes nothing.
    fn resize(&self, pool: &PoolRecord) -> Result<(), ControlError>;

    /// Wipes the superblock, durably, if it is this pool's; otherwise changes nothing and succeeds.
    fn wipe(&self, pool: &PoolRecord) -> Result<(), ControlError>;

    /// Opens the SSD, makes a log of an earlier version slots, recovers, and starts the shards. `known` are the volumes that exist: what
    /// the SSD holds of others is forgotten.
    ///
    /// # Errors
    /// Also if a log cannot be made slots: nothing of it is lost then but, perhaps, clean blocks of its oldest segments.
    /// [`ControlError::OlderState`] if the SSD was used with a newer state, in which something may be dirty that this one does not know.
    /// Nothing is changed then.
    fn start_pool(&self, pool: &PoolRecord, known: &[VolumeRecord]) -> Result<PoolStarted, ControlError>;

    /// Whether the pool has shards, whatever its SSD does.
    fn has_shards(&self, pool: &str) -> bool;

    /// The SSD that a shard of the pool has lost, if one has.
    fn lost_ssd(&self, pool: &str) -> Option<SsdIndex>;

    /// Quiesces the pool. With `clean`, also writes the checkpoint and the mark of a clean stop.
    fn stop_pool(&self, pool: &str, clean: bool) -> Result<(), ControlError>;

    /// Whether the SSD of a pool, at this path, is as large as it was and takes a write: its first
    /// page, as it is. Nobody else may write there meanwhile.
    ///
    /// # Errors
    /// Why not.
    fn ssd_takes_writes(&self, _path: &str, _pool: &PoolRecord) -> Result<(), ControlError> {
        Ok(())
    }

    /// Ends the shards of a pool that has lost its SSD, as a crash does: nothing of them acts any
    /// more, and what their volumes' clients wait for is failed. The volumes are to be detached
    /// then, and the pool stopped.
    fn abandon_pool(&self, _pool: &str) -> Result<(), ControlError> {
        Ok(())
    }

    /// All shards of the pool are to know that this SSD failed: none uses it any more. Shards of another life are not told.
    fn ssd_failed(&self, pool: &str, life: Life, ssd: SsdIndex);

    /// It is on record that clean blocks on the pool's SSD are void.
    fn degraded_recorded(&self, pool: &str, life: Life);

    /// All shards of the pool are to know that it is worth waiting longer for the lost SSD.
    fn going_home(&self, pool: &str, life: Life);

    /// It is on record that the pool's SSD holds nothing of the volume: it goes on without it.
    fn ssd_forgotten(&self, pool: &str, life: Life, volume: &str);

    /// It is on record that blocks were written past the pool's SSD.
    fn past_recorded(&self, pool: &str, life: Life, token: u64);
}

/// The copy of the state on the SSD of a pool.
pub trait Records: Send + Sync {
    /// Puts a copy of what the state says of a running pool on its SSD ([`records::on_ssd`]), durably, with the record's serial.
    ///
    /// # Errors
    /// Then the copy of before is there, or this one.
    fn write_records(&self, _pool: &PoolRecord, _content: &[u8]) -> Result<(), ControlError> {
        Ok(())
    }

    /// The same for a pool that has stopped in order, in this session.
    ///
    /// # Errors
    /// If its SSD is not there any more, or is in use by others.
    fn write_records_at_rest(&self, _pool: &PoolRecord, _content: &[u8]) -> Result<(), ControlError> {
        Ok(())
    }
}

/// How a pool treats the content of blocks.
pub trait Contents: Send + Sync {
    /// Puts the record's treatment of content in force; what is stored already stays as it is. A pool that does not run needs not be told.
    fn set_content(&self, pool: &PoolRecord) -> Result<(), ControlError>;
}

/// Cached blocks compared with their checksums.
pub trait Checks: Send + Sync {
    /// Compares the cached blocks in a part of a running pool's SSD with their checksums, at a pace that clients hardly notice. Parts are numbered
    /// from 0; one beyond the last has nothing in it. `stop` ends it early.
    ///
    /// # Errors
    /// [`ControlError::Stopped`] if it was ended so.
    fn check_part(&self, pool: &PoolRecord, part: u32, stop: &AtomicBool) -> Result<CheckedPart, ControlError>;

    /// Inspects the SSD of a pool that does not run, reading only. `progress` is told how many of how many bytes were looked at; if it says
    /// `false`, the inspection ends soon, and what it gives is not the whole.
    fn check_at_rest(&self, pool: &PoolRecord, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Inspected, ControlError>;
}

/// Volumes: attached, detached, and what is commanded of their cache.
pub trait Volumes: Send + Sync {
    /// What the SSD holds of `volume.past` becomes void, durably. The volume's pool runs, and the volume is not attached.
    fn void_past(&self, volume: &VolumeRecord) -> Result<(), ControlError>;

    /// All of the volume's pool is to know that its backing device failed a flush. `false`: that is over, the volume was attached anew since or
    /// is not attached.
    fn backing_failed(&self, volume: &str) -> bool;

    /// Attaches a volume to its running pool; nothing is exported yet.
    fn attach(&self, volume: &VolumeRecord) -> Result<(), ControlError>;

    /// Attaches a volume without a cache.
    fn attach_bare(&self, volume: &VolumeRecord) -> Result<(), ControlError>;

    /// Detaches a volume; its cached blocks (dirty ones too) are forgotten if `forget`, else kept for the next attach.
    fn detach(&self, volume: &VolumeRecord, forget: bool) -> Result<(), ControlError>;

    /// Forgets what a running pool holds of a volume that is not attached.
    fn forget(&self, volume: &VolumeRecord) -> Result<(), ControlError>;

    /// Compares a sample of the clean cached blocks that the pool's start found with the backing device. The volume is not
    /// attached.
    fn sample(&self, volume: &VolumeRecord) -> Result<Sample, ControlError>;

    /// Drops the volume's clean cached blocks.
    fn drop_clean(&self, volume: &VolumeRecord) -> Result<(), ControlError>;

    /// Puts the record's options in force. Ends at once, or when nothing is dirty if the change leaves write-back.
    fn set_options(&self, volume: &VolumeRecord) -> Result<Box<dyn Pending>, ControlError>;

    /// Brings all dirty blocks home.
    fn destage(&self, volume: &VolumeRecord) -> Result<Box<dyn Pending>, ControlError>;
}

/// Backing devices of attached volumes: let go, exchanged, grown, flushed.
pub trait Backings: Send + Sync {
    /// Whether the path of an attached volume's backing file leads to it no more.
    fn backing_strayed(&self, _volume: &str) -> Option<StrayedFile> {
        None
    }

    /// Detaches a volume from its running pool and lets its backing device go, flushed. What is cached of it stays, dirty blocks too, and
    /// is there again with the next attach; before that, [`Volumes::sample`] compares some of it with the device. Gives, as a sentence, why the
    /// device may lack what was acknowledged: it does not flush, or does not answer.
    fn release(&self, volume: &VolumeRecord) -> Result<Option<String>, ControlError>;

    /// Opens the backing device of an attached volume anew: it was gone, and is there again, perhaps under another name. The exports stay.
    ///
    /// # Errors
    /// If something was, or may have been, lost by that. The volume then serves no requests until it is released and attached.
    fn reattach(&self, volume: &VolumeRecord) -> Result<(), ControlError>;

    /// Whether the backing device that an attached volume has open is gone from this machine. Asks the kernel only.
    fn backing_gone(&self, volume: &str) -> bool;

    /// Reads the write stamps of an attached volume's backing device, with what they belong to ("file system").
    fn stamps(&self, volume: &VolumeRecord) -> Result<Vec<Fact>, ControlError>;

    /// Flushes an attached volume's backing device.
    fn flush_backing(&self, volume: &VolumeRecord) -> Result<(), ControlError>;
}

/// Volumes whose backing device has grown.
pub trait Growth: Send + Sync {
    /// How large the device is that an attached volume has open. `None` if that is not known.
    fn backing_bytes(&self, _volume: &str) -> Option<u64> {
        None
    }

    /// The volume is attached, and its backing device has grown: all of the volume, which has the record's size, is served from now on. The superblock
    /// has it first, then the shards, then the exports. Gives what an administrator should know, one sentence each.
    ///
    /// # Errors
    /// Then it is served as before.
    fn grow(&self, volume: &VolumeRecord) -> Result<Vec<String>, ControlError>;
}

/// Plain disks on the SSD of a pool.
pub trait Disks: Send + Sync {
    /// Whether the SSD of a pool lists no disk but these, and these as they are.
    ///
    /// # Errors
    /// Which disk is not known as it is listed; or that the SSD cannot be read.
    fn check_disks(&self, _pool: &PoolRecord, _disks: &[DiskRecord]) -> Result<(), ControlError> {
        Ok(())
    }

    /// Puts the room for a pool's disks, and the places of all its disks, on its SSD, durably. The pool may run or not.
    fn write_disks(&self, _pool: &PoolRecord, _disks: &[DiskRecord]) -> Result<(), ControlError> {
        Ok(())
    }

    /// Puts the table of a running pool's disks right where a copy of it is damaged. Gives what was wrong, for an administrator.
    fn mend_disks(&self, _pool: &PoolRecord, _disks: &[DiskRecord]) -> Result<Option<String>, ControlError> {
        Ok(None)
    }

    /// Overwrites a part of the SSD of a running pool that a disk gets with zeroes, durably.
    fn erase_disk(&self, _pool: &PoolRecord, _from_bytes: u64, _length_bytes: u64) -> Result<(), ControlError> {
        Ok(())
    }

    /// Attaches a disk to its running pool; nothing is exported yet. It is detached like a volume. Gives its sector size.
    ///
    /// # Errors
    /// Also if the SSD says that it does not lie there.
    fn attach_disk(&self, disk: &DiskRecord) -> Result<u32, ControlError>;

    /// An attached disk is served with the size of its record, which has grown. Gives what an administrator should know.
    fn grow_disk(&self, _disk: &DiskRecord) -> Result<Vec<String>, ControlError> {
        Ok(Vec::new())
    }
}

/// Exports: offered, taken back, and what outlives a restart.
pub trait Exports: Send + Sync {
    /// Whether nothing is under way of a volume that was suspended.
    ///
    /// # Errors
    /// If something is.
    fn check_quiet(&self, _volume: &VolumeRecord) -> Result<(), ControlError> {
        Ok(())
    }

    /// Whether the place of an export can be had on this machine, where it matters: when somebody names it.
    ///
    /// # Errors
    /// [`ControlError::BadOption`]
    fn check_export(&self, _export: Export) -> Result<(), ControlError> {
        Ok(())
    }

    /// Offers an attached volume.
    fn export(&self, volume: &VolumeRecord, export: &Export) -> Result<Offer, ControlError>;

    /// Takes the offer back; what is in flight is answered first, and what the page cache holds is
    /// written. Gives, as a sentence, what could not be written: the kernel has dropped it by then, so
    /// the offer goes all the same.
    ///
    /// # Errors
    /// [`ControlError::Export`] while it is in use (mounted, held by another device), if it is to
    /// go only unused; then, and after any other error, it may be there still.
    fn unexport(&self, volume: &VolumeRecord, export: &Export, how: Withdrawal) -> Result<Option<String>, ControlError>;

    /// How the stable name of an attached volume's block device is; one that is missing is made again if that can be. `None`: it is to have none.
    ///
    /// # Errors
    /// Why it cannot be made: a sentence that ends with what to use instead.
    fn stable_name(&self, _volume: &str) -> Option<Result<String, String>> {
        None
    }

    /// Whether users of an export wait until it is offered again.
    fn outlives(&self, _volume: &VolumeRecord, _export: &Export, _absence: Absence) -> bool {
        false
    }

    /// The volume does not have the content that its users knew: what is kept open of its exports
    /// ends, and they get errors.
    fn end_kept(&self, _volume: &VolumeRecord) {}

    /// These volumes are about to be served: who asks for their exports meanwhile waits, where the export's server can have him wait.
    fn expect_exports(&self, _volumes: &[VolumeRecord]) {}

    /// All volumes have been started that start at once. Exports that an earlier daemon has kept
    /// open and nobody serves now are closed if they are of no `known` volume, or of one that is
    /// stopped; others when they have waited long enough. Gives the volumes whose users get errors
    /// by that.
    fn close_kept(&self, _known: &[VolumeRecord], _busy: &[String]) -> Vec<String> {
        Vec::new()
    }

    /// Whether somebody else took the volume's block device away, so that its number may be another's.
    fn device_is_lost(&self, _volume: &str) -> bool {
        false
    }

    /// The volume is not served: what a killed daemon left of its exports is cleared, names first of all. What belongs to others stays.
    fn not_served(&self, _volume: &VolumeRecord) {}

    /// Who uses an export so that it must not be taken away now ("mounted at /srv").
    fn export_in_use(&self, volume: &VolumeRecord, export: &Export) -> Option<String>;

    /// The daemon ends: nothing is attached any more, and nothing is asked of the data path after this.
    fn finish(&self);
}

/// Block devices offered to other machines.
pub trait Shares: Send + Sync {
    /// Offers the block device of an exported volume to other machines. What stands already stays.
    /// Gives who serves it.
    ///
    /// # Errors
    /// Then nothing is offered that was not before.
    fn share(&self, _volume: &VolumeRecord, _share: &ShareRecord, _device: &str) -> Result<Offered, ControlError> {
        Err(ControlError::DataPath("this data path has no targets".into(), String::new()))
    }

    /// Takes the offer away; initiators are disconnected. It is no failure if there is none.
    ///
    /// # Errors
    /// If something of it remains.
    fn unshare(&self, _volume: &VolumeRecord, _protocol: Protocol) -> Result<(), ControlError> {
        Ok(())
    }

    /// Looks whether all of the target stands, on this device: somebody else may have removed a part.
    ///
    /// # Errors
    /// If it does not answer: nothing is known of it.
    fn look_at_share(&self, _volume: &VolumeRecord, _share: &ShareRecord, _device: &str) -> Result<Look, ControlError> {
        Ok(Look::default())
    }

    /// The initiators that are connected; `None`: not known.
    ///
    /// # Errors
    /// If the target does not answer.
    fn connected(&self, _volume: &VolumeRecord, _protocol: Protocol) -> Result<Option<Vec<String>>, ControlError> {
        Ok(None)
    }

    /// The volume has another size: initiators are told, where that can be. What to say of them.
    ///
    /// # Errors
    /// The target's.
    fn refresh_share(&self, _volume: &VolumeRecord, _protocol: Protocol) -> Result<&'static str, ControlError> {
        Ok("initiators see the new size when they look again")
    }
}

/// Devices that do not answer.
pub trait Waits: Send + Sync {
    /// The daemon ends, and by then it has: nothing waits longer for requests in flight, clients, or shards.
    fn end_by(&self, _at: Instant) {}

    /// The devices with I/O in flight.
    fn waiting_for(&self) -> Vec<WaitingFor> {
        Vec::new()
    }

    /// Waits until the backing device of an attached volume has answered a read, or failed it.
    ///
    /// # Errors
    /// If it does not answer for so long.
    fn answers(&self, _volume: &VolumeRecord, _patience: Duration) -> Result<(), ControlError> {
        Ok(())
    }

    /// The same of the SSD of a pool that has shards.
    ///
    /// # Errors
    /// If it does not answer for so long.
    fn ssd_answers(&self, _pool: &str, _patience: Duration) -> Result<(), ControlError> {
        Ok(())
    }

    /// Gives up a device that does not answer: all I/O in flight to it fails now, and all that comes later. A pool whose SSD it is ends as by a
    /// crash. There is no way back but another attach or start.
    fn give_up(&self, _device: &DeviceUse) -> Result<(), ControlError> {
        Ok(())
    }
}

/// What is seen of the requests to volumes, and read beside them; policies of objects.
pub trait Taps: Send + Sync {
    /// Volumes that are attached and can be watched.
    fn volumes_to_tap(&self) -> Vec<TappedVolume> {
        Vec::new()
    }

    /// What was seen of watched volumes since the last time.
    ///
    /// # Errors
    /// If a reactor does not answer.
    fn take_tapped(&self) -> Result<Tapped, ControlError> {
        Ok(Vec::new())
    }

    /// Reads a part of an attached volume as clients see it, and puts nothing into the cache. Offset and length are whole sectors of 512 bytes, 1 MiB
    /// at most.
    ///
    /// # Errors
    /// If it is not attached, or cannot be read.
    fn read_aside(&self, volume: &str, _offset_bytes: u64, _bytes: &mut [u8]) -> Result<(), ControlError> {
        Err(ControlError::Unknown { named: "volume", name: volume.into() })
    }

    /// How the objects of a cached volume are treated from now on, by their bytes, ascending; empty: as the volume says.
    ///
    /// # Errors
    /// If the volume has no cache, or a reactor does not answer.
    fn set_policies(&self, _volume: &VolumeRecord, _ranges: &[(Range<u64>, Treatment)]) -> Result<(), ControlError> {
        Ok(())
    }

    /// These bytes of a cached volume are not needed again soon.
    fn cool(&self, _volume: &str, _ranges: &[Range<u64>]) {}
}

/// Ranges read into the cache ahead of clients.
pub trait Warming: Send + Sync {
    /// Reads pieces in order, several in flight; those to be kept enter the cache, whatever admission says. Gives how many from the first on were
    /// read; if that is not all, why.
    fn warm(&self, volume: &VolumeRecord, pieces: &[Piece]) -> (usize, Result<(), ControlError>);

    /// The largest piece that an attached volume takes, in bytes.
    fn piece_bytes_max(&self, _volume: &VolumeRecord) -> u64 {
        PIECE_BYTES_MAX
    }
}

/// Counters of what is attached or runs, and looks into the cache.
pub trait Counters: Send + Sync {
    /// How long clients' requests to an attached volume took that its backing device had a part in, since it was attached.
    fn backing_waits(&self, volume: &str) -> Histogram {
        self.figures().volumes.get(volume).map(|figures| figures.clients.backing_waits()).unwrap_or_default()
    }

    /// Counters of an attached volume; zeroes of one that is not.
    fn volume_stats(&self, volume: &str) -> VolumeStats;

    /// Dirty bytes of an attached volume, for sure.
    ///
    /// # Errors
    /// If not all of its pool answers: nothing may be concluded then, least of all that nothing is dirty.
    fn dirty_bytes(&self, volume: &str) -> Result<u64, ControlError>;

    /// Counters of a running pool; zeroes of one that is not.
    fn pool_stats(&self, pool: &str) -> PoolStats;

    /// Counters of everything that is attached or runs, in one look. One that does not answer in time is as it was at the last look.
    fn figures(&self) -> Figures;

    /// Looks into a range of an attached volume. Takes up to a second for a gibibyte, so that I/O hardly waits.
    fn explain(&self, volume: &str, first_block: u64, blocks: u64) -> Result<Explained, ControlError>;

    /// How an attached volume's address space looks, in cells. Counted in the background: the first answers may know only a part.
    fn address_map(&self, volume: &str, cells: Cells) -> Result<AddressMap, ControlError>;
}
