//! Volumes: attached to their pool's shards or alone on their backing device, and the commands that concern them.

use super::exports::{owner, volume_of};
use super::pools::LivePool;
use super::{Machine, devices, failed, locked};
use api::error::ControlError;
use api::human;
use datapath::{DeviceUse, Pending, Sample, Volumes};
use device::{Access, BlockingDevice, DeviceSpec, OpenDevice};
use engine::api::{Command, VolumeOptions};
use engine::shard::Proof;
use export::Owner;
use records::state::VolumeRecord;
use runtime::{AttachOptions, BareVolumeOptions, CommandTicket, DeviceOptions, DeviceRef, VolumeRef};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use types::{BLOCK_BYTES, VolumeId, VolumeIndex};

/// How long requests in flight may take when a volume goes, and commands that end when they are answered: what a disk that
/// spins up and retries needs.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// A volume that is attached.
pub(super) struct LiveVolume {
    /// Its UUID.
    pub(super) owner: Owner,
    pub(super) reference: VolumeRef,
    /// Taken out when the volume goes.
    pub(super) backing: Mutex<Option<Backing>>,
    /// Its pool and its place there; `None`: alone on its backing device.
    pub(super) cached: Option<(Arc<LivePool>, VolumeIndex)>,
}

/// A backing device in use: locked while the value lives.
pub(super) struct Backing {
    pub(super) device: DeviceRef,
    pub(super) opened: OpenDevice,
}

/// Whether the pool can keep units of the volume whole: a group of its log has to hold one.
fn check_units(pool: &LivePool, record: &VolumeRecord) -> Result<(), ControlError> {
    let most = pool.atomic_bytes_max();
    let Some(wanted) = record.options.atomic_bytes.filter(|wanted| most.is_none_or(|most| *wanted > most)) else { return Ok(()) };
    let but = most.map_or(String::new(), |most| format!(", but at most {}", human::bytes(most.into())));
    Err(ControlError::BadCombination(
        format!("pool {} is so small that it cannot write {} as a whole{but}", record.pool, human::bytes(wanted.into())),
        "use --atomic off, a smaller unit, or a pool on a larger SSD; if the pool has a log, 'hearth pool upgrade' lifts this".into(),
    ))
}

impl Machine {
    pub(super) fn open_backing(&self, record: &VolumeRecord) -> Result<Backing, ControlError> {
        let spec = devices::parse(&record.backing)?;
        let (path, read_only, wanted) = (spec.clone(), !record.writes_backing(), record.clone());
        let opened = self.patiently(&record.backing, move || {
            let opened = devices::open_backing(&path, read_only)?;
            // Names change hands at any moment: what was judged before must be what is open now.
            devices::check_is_it(&opened, &path, &wanted)?;
            devices::check_sectors(&opened, &wanted)?;
            if !read_only {
                // What an earlier life of the daemon wrote and did not flush must not outlive, in the cache, its loss on the device (C3).
                opened.file().sync_data().map_err(|e| failed(e, "the backing device cannot flush: check it before use"))?;
            }
            Ok(opened)
        })?;
        let mut geometry = opened.geometry();
        geometry.logical_block_bytes = record.sector_bytes.unwrap_or(geometry.logical_block_bytes);
        geometry.size_bytes -= geometry.size_bytes % u64::from(geometry.logical_block_bytes);
        let file = opened.file().try_clone().map_err(|e| failed(e, "raise the limit on open files"))?;
        let model = spec.model().map(|set| devices::model(set, geometry.size_bytes));
        let options = DeviceOptions { name: record.backing.clone(), file, geometry, model };
        let device = self.runtime.open_device(options).map_err(|e| failed(e, "raise the limit on open files"))?;
        self.note_use(&device, DeviceUse::Backing { volume: record.name.clone(), pool: record.pool.clone() }, None);
        Ok(Backing { device, opened })
    }

    pub(super) fn close_backing(&self, backing: Backing) {
        self.close_device(&backing.device);
    }

    /// Waits until the backing device of the volume answers a read. A volume that is going has none.
    pub(super) fn wait_for_backing(&self, live: &LiveVolume) -> Result<(), ControlError> {
        let device = locked(&live.backing).as_ref().map(|backing| backing.device.clone());
        device.map_or(Ok(()), |device| self.wait_for_answer(&device))
    }

    /// Retires the number, then tells the shards.
    fn forget_place(&self, pool: &LivePool, place: VolumeIndex, id: u32) -> Result<(), ControlError> {
        self.retire_volume(pool, id)?;
        self.run(pool, "forget the volume", Command::Detach { token: 0, volume: place })?;
        self.runtime.clear_backing(&pool.handle, place).map_err(|e| failed(e, ""))?;
        self.leave_place(pool, id);
        Ok(())
    }

    fn run(&self, pool: &LivePool, what: &'static str, command: Command) -> Result<(), ControlError> {
        let never = AtomicBool::new(false);
        self.runtime
            .run_command(&pool.handle, what, command, self.patience(PATIENCE), &never)
            .map_err(|e| failed(e, "see the log, then try again"))
    }

    pub(super) fn cached(&self, record: &VolumeRecord) -> Result<(Arc<LiveVolume>, Arc<LivePool>, VolumeIndex), ControlError> {
        let live = self.volume(&record.name)?;
        let (pool, place) = live.cached.clone().ok_or_else(|| ControlError::NotRunning {
            named: "volume",
            name: record.name.clone(),
            reason: "it runs without its cache".into(),
            remedy: "see `hearth volume show`".into(),
        })?;
        Ok((live, pool, place))
    }

    pub(super) fn change_options(&self, record: &VolumeRecord) -> Result<Box<dyn Pending>, ControlError> {
        let (live, pool, _) = self.cached(record)?;
        let opened_read_only = locked(&live.backing).as_ref().is_some_and(|backing| backing.opened.access() == Access::ReadOnly);
        if opened_read_only && !record.options.read_only {
            let remedy = format!("make it writable, then `hearth volume stop {0}` and `hearth volume start {0}`", record.name);
            return Err(failed(format!("{} was opened read-only", record.backing), &remedy));
        }
        self.enter_volume(&pool, record)?;
        // What opens or mounts the block device asks the device whether it takes writes.
        if live.reference.read_only() != record.options.read_only {
            self.exporters.set_read_only(live.owner, record.options.read_only)?;
        }
        let ticket = self
            .runtime
            .set_options(&pool.handle, &live.reference, VolumeOptions::from(&record.options))
            .map_err(|e| failed(e, "see the log, then try again"))?;
        Ok(Box::new(TicketPending(ticket)))
    }
}

/// Compares blocks of a backing device with what is known of them.
fn compare(spec: &DeviceSpec, id: VolumeId, wanted: &[(u64, Proof)]) -> Result<Sample, ControlError> {
    let backing = devices::open(&spec.path().display().to_string(), Access::ReadOnly)?;
    let blocking = backing.blocking().map_err(|e| failed(e, ""))?;
    // A block that reaches beyond the end of the volume is padded with zeroes in the cache: not compared.
    let whole = wanted.iter().filter(|(block, _)| (block + 1) * BLOCK_BYTES <= backing.geometry().size_bytes);
    let read = |block: u64, data: &mut [u8]| blocking.read_at(block * BLOCK_BYTES, data);
    compare_blocks(id, whole, read).map_err(|e| failed(e, "check the backing device"))
}

/// A block that cannot be read shows nothing, but that no block can be read does.
fn compare_blocks<'a, E: std::fmt::Display>(
    id: VolumeId,
    blocks: impl Iterator<Item = &'a (u64, Proof)>,
    read: impl Fn(u64, &mut [u8]) -> Result<(), E>,
) -> Result<Sample, E> {
    let (mut sample, mut unread) = (Sample::default(), None);
    for (block, proof) in blocks {
        let mut data = [0; BLOCK_BYTES as usize];
        if let Err(error) = read(*block, &mut data) {
            tracing::warn!("block {block} of a backing device cannot be read, and is not compared: {error}");
            unread.get_or_insert(error);
            continue;
        }
        sample.compared += 1;
        sample.different += u64::from(!proof.holds(id, *block, &data));
    }
    unread.filter(|_| sample.compared == 0).map_or(Ok(sample), Err)
}

struct TicketPending(CommandTicket);

impl Pending for TicketPending {
    fn poll(&mut self) -> Option<Result<(), ControlError>> {
        let ended = self.0.wait(Duration::ZERO)?;
        Some(ended.map_err(|reason| failed(reason, "check the backing device, then give the command again to go on")))
    }

    fn cancel(&mut self) {
        self.0.cancel();
    }
}

impl Volumes for Machine {
    fn void_past(&self, record: &VolumeRecord) -> Result<(), ControlError> {
        let pool = self.pool(&record.pool)?;
        // Without a place the log holds nothing of it.
        let Some(place) = self.place_of(&pool, record.id) else { return Ok(()) };
        let past = record.past.iter().map(|(first, end)| *first..*end).collect();
        self.run(&pool, "forget what was written past the SSD", Command::VoidPast { token: 0, volume: place, past })
    }

    /// One shard's flush failed; the others must not go on with that device.
    fn backing_failed(&self, volume: &str) -> bool {
        let Ok(live) = self.volume(volume) else { return false };
        let Some((pool, place)) = &live.cached else { return false };
        let (place, failed) = (*place, Arc::new(AtomicBool::new(false)));
        let seen = failed.clone();
        let looked = self.runtime.inspect_shards(&pool.handle, move |_, shard| {
            seen.fetch_or(shard.backing_has_failed(place), Ordering::Relaxed);
        });
        if looked.is_ok() && !failed.load(Ordering::Relaxed) {
            return false;
        }
        if let Err(error) = self.runtime.command(&pool.handle, Command::BackingFailed { volume: place }) {
            tracing::error!(volume, "the shards cannot be informed that the backing device failed: {error}");
        }
        true
    }

    fn attach(&self, record: &VolumeRecord) -> Result<(), ControlError> {
        let pool = self.pool(&record.pool)?;
        check_units(&pool, record)?;
        let backing = self.open_backing(record)?;
        let place = match self.enter_volume(&pool, record) {
            Ok(place) => place,
            Err(error) => {
                self.close_backing(backing);
                return Err(error);
            }
        };
        locked(&self.names_by_place).insert((record.pool.clone(), place.0), record.name.clone());
        let attach = AttachOptions {
            name: record.name.clone(),
            index: place,
            id: VolumeId(record.id),
            backing: backing.device.clone(),
            options: VolumeOptions::from(&record.options),
        };
        let reference = self.runtime.attach_volume(&pool.handle, attach).map_err(|e| failed(e, ""))?;
        let backing = Mutex::new(Some(backing));
        let live = LiveVolume { owner: owner(record), reference, backing, cached: Some((pool, place)) };
        locked(&self.volumes).insert(record.name.clone(), Arc::new(live));
        Ok(())
    }

    fn attach_bare(&self, record: &VolumeRecord) -> Result<(), ControlError> {
        let backing = self.open_backing(record)?;
        let options = BareVolumeOptions { name: record.name.clone(), read_only: record.options.read_only };
        let reference = match self.runtime.add_bare_volume(&backing.device, options) {
            Ok(reference) => reference,
            Err(error) => {
                self.close_backing(backing);
                return Err(failed(error, ""));
            }
        };
        let live = LiveVolume { owner: owner(record), reference, backing: Mutex::new(Some(backing)), cached: None };
        locked(&self.volumes).insert(record.name.clone(), Arc::new(live));
        Ok(())
    }

    /// Requests end; then the blocks are forgotten, or kept for the pool's stop. In the second case the shards may still destage, so the
    /// backing device stays open until the pool has stopped.
    fn detach(&self, record: &VolumeRecord, forget: bool) -> Result<(), ControlError> {
        let live = self.volume(&record.name)?;
        let patience = self.patience(PATIENCE);
        self.runtime.remove_volume(&live.reference, patience).map_err(|e| failed(e, "check the backing device, then try again"))?;
        if self.is_ending() {
            self.wait_for_backing(&live)?;
        }
        if let Some((pool, place)) = live.cached.as_ref().filter(|_| forget) {
            self.forget_place(pool, *place, record.id)?;
        }
        self.exporters.detached(&volume_of(record));
        locked(&self.volumes).remove(&record.name);
        let backing = locked(&live.backing).take();
        match (&live.cached, backing) {
            (Some((pool, _)), Some(backing)) if !forget => locked(&pool.lingering).push(backing),
            (_, Some(backing)) => self.close_backing(backing),
            (_, None) => {}
        }
        Ok(())
    }

    fn forget(&self, record: &VolumeRecord) -> Result<(), ControlError> {
        let pool = self.pool(&record.pool)?;
        match self.place_of(&pool, record.id) {
            Some(place) => self.forget_place(&pool, place, record.id),
            None => Ok(()),
        }
    }

    /// Compares blocks that the pool's start found clean with the backing device.
    fn sample(&self, record: &VolumeRecord) -> Result<Sample, ControlError> {
        let pool = self.pool(&record.pool)?;
        // Kept until all of it compares: a volume that was refused, or could not be read, is compared again when it is asked for again.
        let Some(wanted) = locked(&pool.samples).get(&record.id).cloned() else {
            return Ok(Sample::default());
        };
        let (spec, id) = (devices::parse(&record.backing)?, VolumeId(record.id));
        let sample = self.patiently(&record.backing, move || compare(&spec, id, &wanted))?;
        if sample.different == 0 {
            // From now on clients write.
            locked(&pool.samples).remove(&record.id);
        }
        Ok(sample)
    }

    fn drop_clean(&self, record: &VolumeRecord) -> Result<(), ControlError> {
        let (_, pool, place) = self.cached(record)?;
        self.run(&pool, "drop the clean cache", Command::DropClean { token: 0, volume: place })
    }

    fn set_options(&self, volume: &VolumeRecord) -> Result<Box<dyn Pending>, ControlError> {
        if let Some((pool, _)) = &self.volume(&volume.name)?.cached {
            check_units(pool, volume)?;
        }
        let pending = self.change_options(volume)?;
        // Last: a change that fails leaves the names that were in force.
        self.exporters.set_names(&volume_of(volume));
        Ok(pending)
    }

    fn destage(&self, record: &VolumeRecord) -> Result<Box<dyn Pending>, ControlError> {
        let (_, pool, place) = self.cached(record)?;
        let ticket = self
            .runtime
            .command(&pool.handle, Command::Destage { token: 0, volume: place })
            .map_err(|e| failed(e, "see the log, then try again"))?;
        Ok(Box::new(TicketPending(ticket)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One sector that went bad says nothing about the cache.
    #[test]
    fn blocks_that_cannot_be_read_are_not_compared() {
        let id = VolumeId(7);
        let data = [5; BLOCK_BYTES as usize];
        let wanted: Vec<(u64, Proof)> =
            (0..4).map(|block| (block, Proof::new(::format::payload_checksum(id, block, &data), None))).collect();
        let check = |bad: std::ops::Range<u64>, content: u8| {
            compare_blocks(id, wanted.iter(), |block, read: &mut [u8]| {
                read.fill(content);
                if bad.contains(&block) { Err("bad sector") } else { Ok(()) }
            })
            .map(|sample| (sample.compared, sample.different))
        };
        assert_eq!(check(0..0, 5), Ok((4, 0)));
        assert_eq!(check(1..2, 5), Ok((3, 0)));
        assert_eq!(check(1..2, 6), Ok((3, 3)));
        assert_eq!(check(0..4, 5), Err("bad sector"));
    }
}
