//! Pools: formatted, recovered and started, and stopped with a checkpoint.
//!
//! Order of a start: open and lock the SSD, load the superblock, make a log of an earlier version slots, void what belongs to volumes that are
//! gone, make the shards (all cores at work), begin the session (durable), start the shards, hold every known volume. Only then is
//! anything attached.

use super::assembly::{self, Opened, Root, open_error};
use super::letting_go;
use super::notices::PoolNotices;
use super::volumes::Backing;
use super::{Machine, devices, disks, failed, locked};
use api::error::ControlError;
use datapath::{DeviceUse, Formatted, Life, PoolStarted, Pools, StrayedFile, Waits};
use device::{Access, BlockingDevice, DeviceKind, OpenDevice};
use engine::api::Command;
use engine::medium::Medium;
use engine::shard::{Proof, Shard};
use engine::superblock;
use format::Layout;
use page::PagePool;
use records::state::{PoolPhase, PoolRecord, VolumeRecord};
use runtime::{DeviceOptions, DeviceRef, EventSink, PoolOptions, PoolRef, SsdMedium, StreamsInUse};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use types::{SsdIndex, VolumeIndex};

/// Shards for each core of the machine that formats the pool: twice as many as there will be reactors, so that they can be dealt out evenly when
/// the machine grows.
const SHARDS_PER_CORE: u16 = 1;
/// Most shards of a pool made here for the sake of processors: beyond, each shard's part of the RAM tier and of the log gets small. A large SSD may
/// need more (`Layout::plan_default`).
const SHARDS_MAX: u16 = 32;
/// Fewer shards rather than less of the SSD for each. Writes share groups only within a shard, and each shard keeps some segments free: on the
/// modelled hot-spot workload 307 MiB in one shard write 1.3 bytes to the SSD for each that enters, in four 1.7. Packed blocks share pages as well: with
/// 6,700 writes of 16 KiB a second into 1 GiB, two came to a group in four shards, twelve in one, and a fifth more was cached.
const SHARD_BYTES_GOOD: u64 = 1 << 30;

/// How long shards may take to come to rest.
const PATIENCE: Duration = Duration::from_secs(120);

/// A pool that runs.
pub(super) struct LivePool {
    pub(super) name: String,
    life: Life,
    pub(super) handle: PoolRef,
    /// When its shards started: since then they remember requests.
    pub(super) started: Instant,
    /// Clean blocks found by the start, with their checksums, to be compared with the backing devices; by number of the volume.
    pub(super) samples: Mutex<BTreeMap<u32, Vec<(u64, Proof)>>>,
    /// Backing devices of volumes that went while the shards may still destage to them.
    pub(super) lingering: Mutex<Vec<Backing>>,
    pub(super) ssd: DeviceRef,
    /// Keeps the lock.
    opened: OpenDevice,
    /// The superblock, and the way to it beside the shards.
    root: Mutex<Root>,
}

impl LivePool {
    /// Its SSD.
    pub(super) fn opened(&self) -> &OpenDevice {
        &self.opened
    }

    /// What its SSD is called.
    pub(super) fn ssd_name(&self) -> &str {
        self.ssd.name()
    }

    /// How its SSD's write streams are used.
    pub(super) fn write_streams(&self) -> Option<StreamsInUse> {
        self.ssd.write_streams()
    }

    pub(super) fn root(&self) -> &Mutex<Root> {
        &self.root
    }

    /// Where its log ends on the SSD.
    pub(super) fn log_end_bytes(&self) -> u64 {
        locked(&self.root).log_end_bytes()
    }

    pub(super) fn atomic_bytes_max(&self) -> Option<u32> {
        locked(&self.root).atomic_bytes_max()
    }
}

impl Machine {
    /// Whose the places in the shards' tables are: the shards report of volumes before they are attached, too. Of those that the log lost
    /// something of they know too little.
    fn name_places(&self, pool: &str, root: &Root, known: &[VolumeRecord], damaged: &[u32]) {
        let mut names = locked(&self.names_by_place);
        names.retain(|(of, _), _| of != pool);
        let whole = known.iter().filter(|volume| !damaged.contains(&volume.id));
        let placed = whole.filter_map(|volume| Some((root.place_of(volume.id)?, volume)));
        names.extend(placed.map(|(place, volume)| ((pool.to_owned(), place.0), volume.name.clone())));
    }
}

impl Machine {
    fn start_shards(
        &self,
        record: &PoolRecord,
        life: Life,
        ssd: &OpenDevice,
        pages: PagePool,
        mut shards: Vec<Shard>,
    ) -> Result<(PoolRef, DeviceRef), ControlError> {
        let file = ssd.file().try_clone().map_err(|e| failed(e, "raise the limit on open files"))?;
        let options = DeviceOptions { name: record.ssd.clone(), file, geometry: ssd.geometry(), model: None };
        let device = self.runtime.open_device(options).map_err(|e| failed(e, "raise the limit on open files"))?;
        if device.write_streams().is_some() {
            shards.iter_mut().for_each(Shard::keep_writes_apart);
        }
        let events = self.events_of(record, life, shards.len());
        let pool = PoolOptions { ssds: vec![device.clone()], shards, pages, events };
        let handle = self.runtime.add_pool(pool).map_err(|e| failed(e, ""))?;
        self.note_use(&device, DeviceUse::Ssd { pool: record.name.clone() }, Some(&handle));
        Ok((handle, device))
    }

    /// By shard with acknowledged writes that are not known to be durable: the last group of these.
    /// `None` if not all shards say.
    fn acknowledged_groups(&self, pool: &LivePool) -> Option<BTreeMap<u16, u64>> {
        let (groups, shards) = (Arc::new(Mutex::new(BTreeMap::new())), Arc::new(AtomicUsize::new(0)));
        let (adding, counting) = (groups.clone(), shards.clone());
        let looked = self.runtime.inspect_shards(&pool.handle, move |index, shard| {
            counting.fetch_add(1, Ordering::Relaxed);
            if let Some(group) = shard.last_unflushed_group() {
                locked(&adding).insert(index.0, group);
            }
        });
        let all = looked.is_ok() && shards.load(Ordering::Relaxed) == pool.handle.shards();
        all.then(|| std::mem::take(&mut *locked(&groups)))
    }

    /// Tells the shards of a pool, if it runs, how they treat content from now on.
    pub(super) fn change_content(&self, record: &PoolRecord) -> Result<(), ControlError> {
        let Some(pool) = self.pool(&record.name).ok().filter(|live| live.life.uuid == record.uuid) else { return Ok(()) };
        self.runtime.set_content(&pool.handle, record.content).map_err(|e| failed(e, "see the log, then try again"))
    }

    /// Tells all shards of a pool, if it runs, what concerns its lost SSD.
    pub(super) fn tell_shards(&self, pool: &str, life: Life, command: impl FnOnce(&LivePool) -> Option<Command>) {
        let Some(pool) = self.pool(pool).ok().filter(|live| live.life == life) else { return };
        let Some(command) = command(&pool) else { return };
        if let Err(error) = self.runtime.command(&pool.handle, command) {
            tracing::error!(pool = pool.name, "the shards cannot be informed of the failure of the SSD: {error}");
        }
    }

    /// The place of a volume of that name in the shards' tables.
    pub(super) fn place_in(&self, pool: &LivePool, volume: &str) -> Option<VolumeIndex> {
        let names = locked(&self.names_by_place);
        let named = |((of, _), name): &(&(String, u16), &String)| *of == pool.name && name.as_str() == volume;
        names.iter().find(named).map(|((_, place), _)| VolumeIndex(*place))
    }

    /// Puts the volume's record into the superblock, durably, before anything can be logged under its number; gives its place in the
    /// shards' tables.
    pub(super) fn enter_volume(&self, pool: &LivePool, volume: &VolumeRecord) -> Result<VolumeIndex, ControlError> {
        locked(&pool.root).enter(volume)
    }

    /// Takes the volume's record out of the superblock, durably: what the log holds of it is void from then on.
    pub(super) fn retire_volume(&self, pool: &LivePool, id: u32) -> Result<(), ControlError> {
        locked(&pool.root).retire(id)
    }

    /// The volume's place in the shards' tables is free again. Only when no shard knows the volume any more.
    pub(super) fn leave_place(&self, pool: &LivePool, id: u32) {
        locked(&pool.root).leave_place(id);
    }

    /// The volume's place in the shards' tables, if it has one.
    pub(super) fn place_of(&self, pool: &LivePool, id: u32) -> Option<VolumeIndex> {
        locked(&pool.root).place_of(id)
    }

    fn events_of(&self, pool: &PoolRecord, life: Life, shards: usize) -> EventSink {
        let told = PoolNotices::new(&pool.name, life, shards);
        let (notices, name) = (Mutex::new(self.notices.clone()), pool.name.clone());
        let names = self.names_by_place.clone();
        Arc::new(move |shard, event| {
            let volume = |place: VolumeIndex| {
                locked(&names).get(&(name.clone(), place.0)).cloned().unwrap_or_else(|| format!("{name} #{}", place.0))
            };
            let Some(notice) = told.of(shard, event, volume) else { return };
            if locked(&notices).send(notice).is_err() {
                // Only while the process ends.
                tracing::debug!("no thread listens to what the shards report");
            }
        })
    }
}

/// How many shards a new pool of that size gets on a machine with that many cores.
fn shards_for(usable_bytes: u64, cores: usize) -> u16 {
    let for_cores = u16::try_from(cores).unwrap_or(u16::MAX).saturating_mul(SHARDS_PER_CORE).min(SHARDS_MAX);
    let for_size = u16::try_from(usable_bytes / SHARD_BYTES_GOOD).unwrap_or(u16::MAX);
    for_cores.min(for_size).max(1)
}

/// What a pool's cache may use of its SSD.
fn usable_bytes(record: &PoolRecord, ssd_bytes: u64) -> u64 {
    let room_at_bytes = record.disk_room.map_or(u64::MAX, |room| room.at_bytes);
    record.size_bytes.unwrap_or(u64::MAX).min(ssd_bytes).min(room_at_bytes)
}

impl Machine {
    /// Whether a pool that runs has its SSD in this file.
    pub(super) fn is_file_of_a_pool(&self, path: &str) -> bool {
        let is_it = |pool: &Arc<LivePool>| pool.opened.kind() == DeviceKind::RegularFile && pool.opened.path() == Path::new(path);
        locked(&self.pools).values().any(is_it)
    }

    /// Does something with the SSD of a pool that is stopped, and what of it the cache is to have.
    fn for_resizing(
        &self,
        record: &PoolRecord,
        work: impl FnOnce(&OpenDevice, &mut dyn Medium, u64) -> Result<(), superblock::OpenError>,
    ) -> Result<(), ControlError> {
        let ssd = devices::open(&record.ssd, Access::ReadWrite)?;
        let usable_bytes = usable_bytes(record, ssd.geometry().size_bytes);
        let mut medium = SsdMedium(ssd.blocking().map_err(|e| failed(e, ""))?);
        let carried = superblock::load(&mut medium).map_err(|e| open_error(record, e))?.superblock;
        if carried.uuid != record.uuid.into_bytes() {
            return Err(failed(format!("{} does not carry the pool \"{}\"", record.ssd, record.name), "reconnect its SSD"));
        }
        disks::check_log(&mut medium, usable_bytes)?;
        // What it gets back of a file may have been given to the file system.
        if carried.layout.ssd_bytes < usable_bytes {
            devices::allocate(&ssd, usable_bytes)?;
        }
        work(&ssd, &mut medium, usable_bytes).map_err(|e| open_error(record, e))
    }
}

/// Has the SSD give up what the layout leaves unused. Says why it keeps that, if it does. The rest of a file stays allocated: its file system
/// would use it otherwise.
fn leave_unused(ssd: &OpenDevice, layout: Layout) -> Option<String> {
    let unused_bytes = layout.ssd_bytes.saturating_sub(layout.end_bytes());
    if unused_bytes == 0 || ssd.kind() == DeviceKind::RegularFile {
        return None;
    }
    match ssd.give_up(layout.end_bytes(), unused_bytes) {
        Ok(true) => None,
        Ok(false) => Some("it does not support discards".into()),
        Err(error) => Some(format!("it failed the discard: {error}")),
    }
}

impl Pools for Machine {
    fn ssd_strayed(&self, pool: &str) -> Option<StrayedFile> {
        let pool = self.pool(pool).ok()?;
        letting_go::strayed(pool.opened(), &pool.opened().descriptor_path())
    }

    fn make_file(&self, path: &str, size_bytes: u64) -> Result<(), ControlError> {
        devices::make_file(path, size_bytes)
    }

    fn remove_file(&self, pool: &PoolRecord) -> Result<(), ControlError> {
        devices::remove_file(pool)
    }

    fn format(&self, record: &PoolRecord) -> Result<Formatted, ControlError> {
        let ssd = devices::open(&record.ssd, Access::ReadWrite)?;
        let usable_bytes = usable_bytes(record, ssd.geometry().size_bytes);
        devices::allocate(&ssd, usable_bytes)?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let shards = shards_for(usable_bytes, cores);
        let layout = Layout::plan_default(usable_bytes, shards).map_err(|e| failed(e, "use a larger SSD or --size"))?;
        let layout = record.arranged(layout);
        let mut medium = SsdMedium(ssd.blocking().map_err(|e| failed(e, ""))?);
        // Before the table of its disks could be erased with the other marks; only a new pool takes an SSD as it is.
        if record.phase != PoolPhase::Creating {
            disks::check_log(&mut medium, layout.ssd_bytes)?;
        }
        // What looks like a mark behind the log is a disk's content, and what is before it is this pool's.
        if record.disk_room.is_none() && !matches!(record.phase, PoolPhase::Reformatting { .. }) {
            devices::erase_signatures(&medium.0).map_err(|e| failed(e, "check the SSD"))?;
        }
        disks::check_log(&mut medium, layout.ssd_bytes)?;
        let not_discarded = if record.spare_percent() > 0 { leave_unused(&ssd, layout) } else { None };
        let made = match record.phase {
            // The medium carries the pool of before, or this one: never neither.
            PoolPhase::Reformatting { .. } => match superblock::create_anew(&mut medium, layout, record.uuid.into_bytes()) {
                // A blank one has no pool of before.
                Err(superblock::OpenError::NoPool) => superblock::create(&mut medium, layout, record.uuid.into_bytes()),
                made => made,
            },
            _ => superblock::create(&mut medium, layout, record.uuid.into_bytes()),
        };
        made.map(|_| Formatted { not_discarded }).map_err(|e| open_error(record, e))
    }

    fn may_resize(&self, record: &PoolRecord) -> bool {
        let looked = self.for_resizing(record, |_, medium, usable_bytes| superblock::may_resize(medium, usable_bytes));
        if let Err(error) = &looked {
            tracing::info!(pool = record.name, "its cache cannot stay where it is: {error}");
        }
        looked.is_ok()
    }

    fn resize(&self, record: &PoolRecord) -> Result<(), ControlError> {
        self.for_resizing(record, |ssd, medium, usable_bytes| {
            let layout = superblock::resize(medium, usable_bytes)?.superblock.layout;
            // What it leaves unused is elsewhere now. Nothing but the SSD's own work depends on that.
            if layout.spare_percent() > 0
                && let Some(why) = leave_unused(ssd, layout)
            {
                tracing::info!(pool = record.name, "the SSD keeps what was in the part that is left unused: {why}");
            }
            Ok(())
        })
    }

    fn wipe(&self, record: &PoolRecord) -> Result<(), ControlError> {
        if !Path::new(&record.ssd).exists() {
            return Ok(());
        }
        let ssd = devices::open(&record.ssd, Access::ReadWrite)?;
        let mut medium = SsdMedium(ssd.blocking().map_err(|e| failed(e, ""))?);
        match superblock::load(&mut medium) {
            Ok(state) if state.superblock.uuid == record.uuid.into_bytes() => {
                let wiped = engine::disks::wipe(&mut medium).and_then(|()| engine::records::wipe(&mut medium));
                wiped.and_then(|()| superblock::wipe(&mut medium)).map_err(|e| open_error(record, e))?;
                if ssd.kind() == DeviceKind::RegularFile {
                    // The file system gets the pool's room back, and that part is blank for its next user. If it
                    // fails, what is left is of no use. What lies behind the pool is not the pool's.
                    let bytes = record.size_bytes.unwrap_or(u64::MAX).min(ssd.geometry().size_bytes);
                    let _ = medium.0.discard(0, bytes - bytes % types::BLOCK_BYTES);
                }
                Ok(())
            }
            // Somebody else's pool, or none that can be read: not ours to wipe.
            _ => Ok(()),
        }
    }

    fn start_pool(&self, record: &PoolRecord, known: &[VolumeRecord]) -> Result<PoolStarted, ControlError> {
        let (path, size_bytes) = (record.ssd.clone(), record.size_bytes.unwrap_or(u64::MAX));
        let ssd = self.patiently(&record.ssd, move || {
            let ssd = devices::open(&path, Access::ReadWrite)?;
            devices::allocate_if_possible(&ssd, size_bytes);
            Ok(ssd)
        })?;
        let medium = || -> Result<Box<dyn Medium + Send>, ControlError> {
            Ok(Box::new(SsdMedium(ssd.blocking().map_err(|e| failed(e, "raise the limit on open files"))?)))
        };
        // Recovery waits for the SSD about as long as it computes.
        let threads = 2 * std::thread::available_parallelism().map_or(1, usize::from);
        let Opened { root, pages, shards, samples, last_groups, mut started } =
            assembly::open(record, record.ram_bytes, &medium, threads, known)?;
        started.has_lost_writes = self.end_waiting_where_writes_are_lost(record.uuid, &last_groups, known);
        self.name_places(&record.name, &root, known, &started.damaged);
        // What the shards say at once concerns a pool that is there, also for who hears it now.
        let mut pools = locked(&self.pools);
        let life = Life { uuid: record.uuid, session: started.session };
        let (handle, device) = self.start_shards(record, life, &ssd, pages, shards)?;
        for hold in root.holds() {
            self.runtime.command(&handle, hold).map_err(|e| failed(e, ""))?;
        }
        let live = LivePool {
            name: record.name.clone(),
            life,
            handle,
            started: Instant::now(),
            samples: Mutex::new(samples),
            lingering: Mutex::default(),
            ssd: device,
            opened: ssd,
            root: Mutex::new(root),
        };
        pools.insert(record.name.clone(), Arc::new(live));
        self.forget_unflushed(record.uuid);
        Ok(started)
    }

    fn has_shards(&self, pool: &str) -> bool {
        self.pool(pool).is_ok()
    }

    /// The SSD on which a shard of the pool cannot write its log any more. One that does not answer is not counted.
    fn lost_ssd(&self, pool: &str) -> Option<SsdIndex> {
        let pool = self.pool(pool).ok()?;
        let lost: Arc<Mutex<Option<SsdIndex>>> = Arc::default();
        let seen = lost.clone();
        let looked = self.runtime.inspect_shards(&pool.handle, move |_, shard| {
            if let Some(ssd) = shard.lost_ssd() {
                locked(&seen).get_or_insert(ssd);
            }
        });
        if let Err(error) = looked {
            tracing::debug!(pool = pool.name, "not all shards say whether they have lost the SSD: {error}");
        }
        *locked(&lost)
    }

    /// Quiesces the shards, takes them back, and (`clean`) writes the checkpoint. Volumes are detached before.
    fn stop_pool(&self, name: &str, clean: bool) -> Result<(), ControlError> {
        let Some(pool) = locked(&self.pools).remove(name) else { return Ok(()) };
        self.forget_look(name);
        if self.is_ending() {
            self.wait_for_answer(&pool.ssd)?;
        }
        let shards = self.runtime.remove_pool(&pool.handle, self.patience(PATIENCE));
        locked(&pool.lingering).drain(..).for_each(|backing| self.close_backing(backing));
        self.close_device(&pool.ssd);
        let shards = shards.map_err(|e| failed(e, "the next start recovers as after a crash"))?;
        if !clean {
            return Ok(());
        }
        locked(&pool.root).checkpoint(&shards)
    }

    fn ssd_takes_writes(&self, path: &str, pool: &PoolRecord) -> Result<(), ControlError> {
        self.rewrite_first_page(path, pool)
    }

    /// As by a crash, but for I/O that the kernel has: it is waited for, so that nothing old comes
    /// to effect later.
    fn abandon_pool(&self, name: &str) -> Result<(), ControlError> {
        let pool = self.pool(name)?;
        self.note_unflushed(pool.life.uuid, self.acknowledged_groups(&pool));
        self.runtime.abandon_pool(&pool.handle).map_err(|e| failed(e, ""))?;
        let is_of_it = |by: &DeviceUse| match by {
            DeviceUse::Backing { pool, .. } | DeviceUse::Ssd { pool } => pool == name,
        };
        let deadline = Instant::now() + self.patience(PATIENCE);
        // A device that is closed with I/O in the kernel stays locked until that has ended.
        while Instant::now() < deadline && self.waiting_for().iter().any(|wait| is_of_it(&wait.by)) {
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn ssd_failed(&self, pool: &str, life: Life, ssd: SsdIndex) {
        self.tell_shards(pool, life, |_| Some(Command::SsdFailed { ssd }));
    }

    fn degraded_recorded(&self, pool: &str, life: Life) {
        self.tell_shards(pool, life, |_| Some(Command::DegradedRecorded));
    }

    fn going_home(&self, pool: &str, life: Life) {
        self.tell_shards(pool, life, |_| Some(Command::GoingHome));
    }

    fn ssd_forgotten(&self, pool: &str, life: Life, volume: &str) {
        self.tell_shards(pool, life, |pool| Some(Command::SsdForgotten { volume: self.place_in(pool, volume)? }));
    }

    fn past_recorded(&self, pool: &str, life: Life, token: u64) {
        self.tell_shards(pool, life, |_| Some(Command::PastRecorded { token }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_pools_get_few_shards_and_large_ones_enough_for_the_cores() {
        assert_eq!(shards_for(0, 2), 1);
        assert_eq!(shards_for(SHARD_BYTES_GOOD * 2 - 1, 8), 1);
        assert_eq!(shards_for(SHARD_BYTES_GOOD * 3, 8), 3);
        assert_eq!(shards_for(u64::MAX, 2), 2);
        assert_eq!(shards_for(u64::MAX, 1000), SHARDS_MAX);
    }
}
