//! A backing device is let go while its pool runs on, and comes again: a volume is stopped and started by itself, or its device went away for a
//! while. What is cached stays, dirty blocks too; a sample of the clean ones is kept to be compared with what comes back.

use super::pools::LivePool;
use super::volumes::{Backing, LiveVolume, PATIENCE};
use super::{Machine, failed, locked};
use api::error::{ControlError, Kind};
use datapath::{Backings, StrayedFile, Volumes};
use device::{DeviceKind, OpenDevice, Strayed, identity};
use engine::api::{Command, CommandFailure, VolumeOptions};
use engine::shard::Proof;
use records::device_facts;
use records::state::{Fact, VolumeRecord};
use runtime::RuntimeError;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use types::{VolumeId, VolumeIndex};

/// Entries of an index that a reactor looks at before it does something else: 2 to 6 ns each.
const ENTRIES_A_LOOK: u32 = 8192;
/// Places of each index that are looked at, spread over all of it, and blocks taken at each.
const LOOKS: u64 = 32;
const BLOCKS_A_LOOK: usize = 4;
/// A look that is not answered by then is left out.
const LOOK_PATIENCE: Duration = Duration::from_secs(2);

/// What became of the name of a file that is open, for people: `open_as` is the name by which it can still be read.
pub(super) fn strayed(opened: &OpenDevice, open_as: &Path) -> Option<StrayedFile> {
    let strayed = opened.strayed()?;
    Some(StrayedFile { is_deleted: strayed == Strayed::Deleted, open_as: open_as.display().to_string() })
}

impl Machine {
    /// The shards let the device go. An error inside: it failed a flush, so what it had acknowledged may be lost.
    fn let_go(&self, pool: &LivePool, place: VolumeIndex, id: u32) -> Result<Result<(), CommandFailure>, ControlError> {
        let (what, never) = ("let the backing device go", AtomicBool::new(false));
        let told = match self.runtime.run_command(
            &pool.handle,
            what,
            Command::Release { token: 0, volume: place },
            self.patience(PATIENCE),
            &never,
        ) {
            Ok(()) => Ok(()),
            Err(RuntimeError::Command { source, .. }) => Err(source),
            Err(error) => return Err(failed(error, "check the backing device, then try again")),
        };
        let samples = self.samples_of(pool, place);
        locked(&pool.samples).insert(id, samples);
        Ok(told)
    }

    /// Some of the clean blocks of a volume, and how they are known.
    fn samples_of(&self, pool: &LivePool, place: VolumeIndex) -> Vec<(u64, Proof)> {
        let found: Arc<Mutex<Vec<(u64, Proof)>>> = Arc::default();
        for look in 0..LOOKS {
            let adding = found.clone();
            let looked = self.runtime.look_at_shards(&pool.handle, LOOK_PATIENCE, move |_, shard| {
                let (mut blocks, position) = (Vec::new(), shard.index_end() * look / LOOKS);
                shard.look_at_index(position, ENTRIES_A_LOOK, |volume, block, dirty| {
                    if volume == place && !dirty && blocks.len() < BLOCKS_A_LOOK {
                        blocks.push(block);
                    }
                });
                let known = blocks.into_iter().filter_map(|block| Some((block, shard.proof_of_clean(place, block)?)));
                locked(&adding).extend(known);
            });
            if let Err(error) = looked {
                tracing::debug!("the cache was compared only in part: {error}");
            }
        }
        let mut found = std::mem::take(&mut *locked(&found));
        found.sort_unstable_by_key(|(block, _)| *block);
        found.dedup_by_key(|(block, _)| *block);
        found
    }

    /// Gives the backing device up; who takes it then finds all that was written on it. If not, gives why.
    fn close_flushed(&self, live: &LiveVolume, record: &VolumeRecord) -> Option<String> {
        let backing = locked(&live.backing).take()?;
        let flushed = self.flush_to_close(&backing, &record.backing);
        self.close_backing(backing);
        let problem = flushed.err().map(|error| error.to_string());
        problem.inspect(|problem| tracing::warn!(volume = record.name, "{problem}"))
    }

    /// Flushes a device that is about to be closed, if it answers: a thread that flushes one that hangs would hold up the end of the process.
    fn flush_to_close(&self, backing: &Backing, path: &str) -> Result<(), ControlError> {
        if self.is_given_up(&backing.device) {
            return Err(cannot_flush(path, "it does not answer, and was given up"));
        }
        self.wait_for_answer(&backing.device)?;
        let opened = backing.opened.another_handle().map_err(|e| failed(e, "raise the limit on open files"))?;
        let flushed = self.patiently(path, move || Ok(opened.file().sync_data()))?;
        flushed.map_err(|error| cannot_flush(path, &error.to_string()))
    }

    /// A handle of its own, so that a device that hangs keeps nobody's lock.
    fn handle_of(&self, record: &VolumeRecord) -> Result<device::OpenDevice, ControlError> {
        let live = self.volume(&record.name)?;
        let backing = locked(&live.backing);
        let opened = backing.as_ref().map(|backing| backing.opened.another_handle());
        opened.ok_or_else(|| failed("the volume is going", ""))?.map_err(|e| failed(e, "raise the limit on open files"))
    }
}

fn cannot_flush(path: &str, problem: &str) -> ControlError {
    let (path, remedy) = (path.to_owned(), "check the device".to_owned());
    ControlError::Device { path, problem: format!("it cannot flush ({problem})"), remedy, kind: Kind::Failed }
}

impl Backings for Machine {
    fn backing_strayed(&self, volume: &str) -> Option<StrayedFile> {
        let live = self.volume(volume).ok()?;
        let opened = locked(&live.backing)
            .as_ref()
            .and_then(|backing| backing.opened.another_handle().ok().map(|open| (open, backing.opened.descriptor_path())));
        let (opened, open_as) = opened?;
        strayed(&opened, &open_as)
    }

    /// The volume goes, and with it its handle; what is cached of it stays. Gives why its device may lack what was acknowledged.
    fn release(&self, record: &VolumeRecord) -> Result<Option<String>, ControlError> {
        let live = self.volume(&record.name)?;
        let mut told = None;
        self.runtime
            .remove_volume(&live.reference, self.patience(PATIENCE))
            .map_err(|e| failed(e, "check the backing device, then try again"))?;
        if let Some((pool, place)) = &live.cached {
            // Whatever its device did wrong, the volume is let go all the same.
            told = self.let_go(pool, *place, record.id)?.err().map(|failure| failure.to_string());
            self.runtime.clear_backing(&pool.handle, *place).map_err(|e| failed(e, ""))?;
        }
        self.exporters.detached(&super::exports::volume_of(record));
        locked(&self.volumes).remove(&record.name);
        Ok(told.or(self.close_flushed(&live, record)))
    }

    /// The backing device is exchanged for itself: it was away, and is there again at `record.backing`. The volume's clients stay.
    fn reattach(&self, record: &VolumeRecord) -> Result<(), ControlError> {
        let live = self.volume(&record.name)?;
        let (pool, place) = live.cached.clone().ok_or_else(|| failed("the volume is running without its cache", ""))?;
        let afresh = "unflushed writes may be lost: the volume is restarted";
        self.let_go(&pool, place, record.id)?.map_err(|told| failed(told, afresh))?;
        let sample = self.sample(record)?;
        if sample.different > 0 {
            return Err(failed("the content of the backing device has changed", afresh));
        }
        let new = self.open_backing(record)?;
        let options = VolumeOptions::from(&record.options);
        if let Err(error) = self.runtime.swap_backing(&pool.handle, &live.reference, VolumeId(record.id), &new.device, options) {
            self.close_backing(new);
            return Err(failed(error, "reconnect the right device"));
        }
        if let Some(old) = locked(&live.backing).replace(new) {
            self.close_backing(old);
        }
        Ok(())
    }

    /// Whether the device that the volume has open is no device of this machine any more.
    fn backing_gone(&self, volume: &str) -> bool {
        let Ok(live) = self.volume(volume) else { return false };
        let backing = locked(&live.backing);
        backing.as_ref().is_some_and(|backing| backing.opened.kind() == DeviceKind::BlockDevice && backing.opened.is_gone())
    }

    /// Write stamps of the file system on the backing device of an attached volume.
    fn stamps(&self, record: &VolumeRecord) -> Result<Vec<Fact>, ControlError> {
        let opened = self.handle_of(record)?;
        // A thread that reads or flushes a device that hangs would hold up the end of the process.
        self.wait_for_backing(&*self.volume(&record.name)?)?;
        let content = identity::look(&opened).map_err(|e| failed(e, "check the backing device"))?;
        let mut stamps = device_facts::facts(&content.stamps);
        let file_system = content.file_system.map(|fs| format!("{} {}", fs.kind, fs.uuid));
        stamps.extend(file_system.map(|value| Fact { name: "file system".into(), value }));
        Ok(stamps)
    }

    /// Flushes the backing device of a volume that has a cache.
    ///
    /// The kernel may tell of a failed flush only once, and this is the handle that the shards flush by: so a failure here is a failure
    /// for them too. Otherwise a client's flush could succeed after data was lost.
    fn flush_backing(&self, record: &VolumeRecord) -> Result<(), ControlError> {
        let live = self.volume(&record.name)?;
        let Some((pool, place)) = &live.cached else { return Err(failed("the volume is running without its cache", "")) };
        let opened = self.handle_of(record)?;
        self.wait_for_backing(&live)?;
        let Err(error) = opened.file().sync_all() else { return Ok(()) };
        if self.volume(&record.name).is_ok_and(|now| Arc::ptr_eq(&now, &live))
            && let Err(untold) = self.runtime.command(&pool.handle, Command::BackingFailed { volume: *place })
        {
            tracing::error!(volume = record.name, "the shards cannot be informed that the backing device failed: {untold}");
        }
        Err(failed(error, "check the backing device"))
    }
}
