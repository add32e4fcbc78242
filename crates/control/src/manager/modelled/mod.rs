//! A data path that is the engine itself on modelled devices: the shards, the front, recovery, checkpoint and superblock that ship, put
//! together by the code that ships ([`machine::assembly`]). What is left out is the runtime: I/O is done at once, on
//! devices in memory with volatile caches. Any one access can fail, or be the last before the power goes.
//!
//! Rooms: [`hardware`] is what outlives the daemon; [`engine`] drives the shards; this one is what management sees.

mod absent;
mod engine;
mod hardware;

pub use self::engine::Ears;
pub use hardware::{Access, Fate, Hardware};

use self::engine::{Engine, Running};
use self::hardware::{Blocking, Device, Pass};
use ::engine::api::{Command, Op, Origin, Request, RequestError, VolumeOptions};
use ::engine::front::JOINED_BLOCKS_MAX;
use ::engine::medium::Medium;
use ::engine::shard::{Proof, Shard};
use ::engine::superblock;
use ::pool::{Answers, Devices, Part, Place};
use api::error::{ControlError, Kind};
use api::stats::{PoolStats, VolumeStats};
use datapath::figures::{Figures, VolumeFigures};
use datapath::looking::{AddressMap, Cells, Explained, spread_heat};
use datapath::mapped::MappedDevices;
use datapath::{
    Backings, CheckedPart, Checks, Contents, Counters, DeviceFacts, Facts, Formatted, FoundDevice, Inspected, Life, Pending, PoolStarted,
    Pools, Records, Sample, Volumes,
};
use format::Layout;
use machine::assembly;
use machine::content::Gathered;
use machine::looking_into;
use machine::notices::PoolNotices;
use machine::ssd_copy;
use page::PageVec;
use records::ssd_content::SsdContent;
use records::state::{BackingIdentity, Fact, PoolRecord, State, VolumeRecord};
use records::store::{Loaded, Store};
use simulator::disk::media::Media;
use simulator::prng::Prng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use types::{BLOCK_BYTES, SsdIndex, VolumeId, VolumeIndex};
use uuid::Uuid;

/// The part of the SSD that a pool takes: a ring of some twenty small segments for each of two shards, so that it goes round.
const POOL_BYTES: u64 = 4 << 20;
const SHARDS: u16 = 2;
const SEGMENT_BYTES: u32 = 64 << 10;
/// So little that what is read leaves for the SSD at once.
const RAM_BYTES: u64 = 64 << 10;
/// What an SSD says it has: the least that a pool may be made on. Nobody goes beyond [`POOL_BYTES`].
const SSD_SAYS_BYTES: u64 = 64 << 20;
/// Turns of the engine at a look; then others (who record that the SSD failed, say) come in between.
const TURNS: u32 = 50;
/// What is said of a command that never ends.
pub const STUCK: &str = "it never comes to an end";
/// Looks after which something is stuck: two seconds at least.
const LOOKS_MAX: u32 = 2_000;

/// The world outside the daemon, and what of the daemon lies below management.
#[derive(Clone)]
pub struct World {
    hardware: Arc<Mutex<Hardware>>,
    running: Arc<Mutex<Running>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder of this lock panics")
}

fn told(path: &str, problem: &str) -> ControlError {
    let remedy = "check the device".to_string();
    ControlError::Device { path: path.into(), problem: problem.into(), remedy, kind: Kind::Failed }
}

impl World {
    /// Devices of zeroes: SSDs and backing devices of `backing_bytes`.
    pub fn new(ssds: &[&str], backings: &[&str], backing_bytes: u64) -> World {
        let device = |bytes, says_bytes| Device { media: Media::new(bytes, true), says_bytes, writes: 0, failed: false };
        let mut devices: BTreeMap<String, Device> =
            ssds.iter().map(|path| ((*path).to_string(), device(POOL_BYTES, SSD_SAYS_BYTES))).collect();
        devices.extend(backings.iter().map(|path| ((*path).to_string(), device(backing_bytes, backing_bytes))));
        let saved = State::default();
        World::of(Hardware { devices, saved, prng: Prng::new(1), trap: None, caught: None, dead: false })
    }

    /// What a device holds from the beginning.
    pub fn lay_out(&self, path: &str, bytes: &[u8]) {
        locked(&self.hardware).device(path).media.lay_out().copy_from_slice(bytes);
    }

    /// A device loses all that it held.
    pub fn wipe_out(&self, path: &str) {
        self.tamper_with(path, |bytes| bytes.fill(0));
    }

    /// What a device holds is changed.
    pub fn tamper_with(&self, path: &str, change: impl FnOnce(&mut [u8])) {
        let mut bytes = self.bytes(path, 0, self.blocking(path).size_bytes());
        change(&mut bytes);
        locked(&self.hardware).device(path).media.replace(bytes);
    }

    /// A world with that hardware.
    pub fn of(hardware: Hardware) -> World {
        World { hardware: Arc::new(Mutex::new(hardware)), running: Arc::default() }
    }

    /// A copy of the hardware as it stands.
    pub fn hardware(&self) -> Hardware {
        locked(&self.hardware).clone()
    }

    /// The saved state.
    pub fn saved(&self) -> State {
        locked(&self.hardware).saved.clone()
    }

    /// What the saved state is made to say instead.
    pub fn change_saved(&self, change: impl FnOnce(&mut State)) {
        change(&mut locked(&self.hardware).saved);
    }

    /// The n-th access of a kind from now on meets its fate.
    pub fn arm(&self, access: Access, n: u64, fate: Fate, salt: u64) {
        let mut hardware = locked(&self.hardware);
        (hardware.trap, hardware.caught, hardware.prng) = (Some((access, n, fate)), None, Prng::new(salt));
    }

    /// No more traps; what was caught, in words.
    pub fn disarm(&self) -> Option<String> {
        let mut hardware = locked(&self.hardware);
        hardware.trap = None;
        hardware.caught.take()
    }

    /// The daemon is gone, and the machine has power (again).
    pub fn reboot(&self) {
        *locked(&self.running) = Running::default();
        let mut hardware = locked(&self.hardware);
        hardware.dead = false;
        hardware.devices.values_mut().for_each(|device| device.failed = false);
    }

    /// Says where the data path reports to.
    pub fn report_to(&self, ears: Ears) {
        locked(&self.running).ears = Some(ears);
    }

    fn wait<T>(&self, mut ended: impl FnMut(&mut Engine) -> Option<T>) -> Result<T, ControlError> {
        for _ in 0..LOOKS_MAX {
            if let Some(result) = locked(&self.running).look(&self.hardware, &mut ended)? {
                return Ok(result);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(told("the engine", STUCK))
    }

    fn run(&self, make: impl Fn(u64) -> Command) -> Result<(), ControlError> {
        let token = self.engine(|engine| engine.command(make))?;
        self.wait(|engine| engine.ended(token))?.map_err(|reason| told("the pool", &reason.to_string()))
    }

    fn engine<T>(&self, work: impl FnOnce(&mut Engine) -> T) -> Result<T, ControlError> {
        let mut running = locked(&self.running);
        running.engine.as_mut().map(work).ok_or_else(|| told("the pool", "it does not run"))
    }

    fn place(&self, volume: &str) -> Option<VolumeIndex> {
        locked(&self.running).place(volume)
    }

    /// What a device itself holds.
    pub fn bytes(&self, path: &str, offset_bytes: u64, length_bytes: u64) -> Vec<u8> {
        locked(&self.hardware).device(path).media.bytes(offset_bytes, length_bytes).to_vec()
    }

    /// A client's request to a volume that is served.
    pub fn request(&self, volume: &str, op: Op, block: u64, data: Option<&[u8]>) -> Result<Vec<u8>, RequestError> {
        self.submit(volume, op, block, data, Origin::Client)
    }

    /// A read of a preload.
    fn read_to_warm(&self, volume: &str, block: u64, is_kept: bool) -> Result<Vec<u8>, RequestError> {
        self.submit(volume, Op::Read, block, None, if is_kept { Origin::Warm } else { Origin::Look })
    }

    fn submit(&self, volume: &str, op: Op, block: u64, data: Option<&[u8]>, origin: Origin) -> Result<Vec<u8>, RequestError> {
        let bare = locked(&self.running).bare.get(volume).cloned();
        if let Some(path) = bare {
            return locked(&self.hardware).bare(&path, op, block, data);
        }
        let place = self.place(volume).ok_or(RequestError::Shutdown)?;
        let submit = |engine: &mut Engine| {
            engine.next_number += 1;
            let id = engine.next_number;
            let page = |bytes: &[u8]| {
                let mut page = engine.pages.allocate().expect("enough pages for one client");
                page.copy_from_slice(bytes);
                page.freeze()
            };
            let pages: PageVec = data.map(page).into_iter().collect();
            let sectors = if op == Op::Flush { 0 } else { 8 };
            let request = Request::new(id, place, op, block * 8, sectors, origin).pages(pages);
            if engine.withdrawn.contains(&place.0) {
                return None;
            }
            engine.part.submit(request);
            Some(id)
        };
        let id = self.engine(submit).ok().flatten().ok_or(RequestError::Shutdown)?;
        let reply = self.wait(|engine| engine.replies.remove(&id)).map_err(|_| RequestError::Shutdown)?;
        reply.result.map(|()| reply.pages.iter().flat_map(|page| page.to_vec()).collect())
    }
}

/// A command that takes its time.
struct Ticket {
    world: World,
    token: u64,
    looks: u32,
}

impl Pending for Ticket {
    fn poll(&mut self) -> Option<Result<(), ControlError>> {
        let token = self.token;
        self.looks += 1;
        if self.looks > LOOKS_MAX {
            // Told, not asserted: a job that panics would be waited for until the end of time.
            return Some(Err(told("the engine", STUCK)));
        }
        match locked(&self.world.running).look(&self.world.hardware, &mut |engine| engine.ended(token)) {
            Ok(ended) => ended.map(|result| result.map_err(|reason| told("the pool", &reason.to_string()))),
            Err(error) => Some(Err(error)),
        }
    }

    fn cancel(&mut self) {
        // If the pool is gone, so is the command.
        drop(self.world.engine(|engine| engine.tell(&Command::Cancel { token: self.token })));
    }
}

impl World {
    fn blocking(&self, path: &str) -> Blocking {
        Blocking { hardware: self.hardware.clone(), path: path.into() }
    }

    fn facts(&self, path: &str) -> Result<DeviceFacts, ControlError> {
        let unknown = || ControlError::Unknown { named: "device", name: path.into() };
        let (says_bytes, writes) =
            locked(&self.hardware).devices.get(path).map(|device| (device.says_bytes, device.writes)).ok_or_else(unknown)?;
        let mut start = [0; 512];
        locked(&self.hardware).read(path, 0, &mut start).map_err(|()| told(path, "it cannot be read"))?;
        let pool = superblock::load(&mut self.blocking(path)).ok().map(|state| Uuid::from_bytes(state.superblock.uuid));
        let fact = |name: &str, value: String| Fact { name: name.into(), value };
        let identity = BackingIdentity {
            size_bytes: says_bytes,
            fixed: vec![fact("serial number", path.into())],
            content: Vec::new(),
            stamps: vec![fact("last write", writes.to_string())],
        };
        let signature = pool.map(|p| format!("the hearth pool {p}"));
        Ok(DeviceFacts { size_bytes: says_bytes, signature, pool, sector_bytes: 512, identity, ..DeviceFacts::default() })
    }

    /// As the real data path opens a backing device: nothing unflushed of an earlier life may be shown before it is flushed (C3).
    fn open_backing(&self, path: &str) -> Result<(), ControlError> {
        let mut hardware = locked(&self.hardware);
        hardware.device(path).failed = false;
        hardware.flush(path).map_err(|()| told(path, "it cannot flush"))
    }

    fn ticket(&self, make: impl Fn(u64) -> Command) -> Result<Box<dyn Pending>, ControlError> {
        let token = self.engine(|engine| engine.command(make))?;
        Ok(Box::new(Ticket { world: self.clone(), token, looks: 0 }))
    }

    fn not_attached(volume: &VolumeRecord) -> ControlError {
        told(&volume.backing, "its volume is not attached")
    }
}

impl Facts for World {
    fn mapped(&self) -> &dyn MappedDevices {
        unreachable!("no volume is attached to a mapped device here")
    }

    fn examine_ssd(&self, path: &str) -> Result<DeviceFacts, ControlError> {
        self.facts(path)
    }

    fn look_into_ssd(&self, path: &str) -> Result<SsdContent, ControlError> {
        let medium = || -> Result<Box<dyn Medium + Send>, ControlError> { Ok(Box::new(self.blocking(path))) };
        looking_into::look_into(path, &medium, 1)
    }

    fn examine_backing(&self, spec: &str) -> Result<DeviceFacts, ControlError> {
        self.facts(spec)
    }

    fn devices(&self) -> Result<Vec<FoundDevice>, ControlError> {
        Ok(Vec::new())
    }

    fn look_at(&self, spec: &str) -> Result<FoundDevice, ControlError> {
        let facts = self.examine_backing(spec)?;
        Ok(FoundDevice { path: spec.into(), size_bytes: facts.size_bytes, pool: facts.pool, ..FoundDevice::default() })
    }

    fn canonical(&self, spec: &str) -> String {
        spec.into()
    }

    fn overlap(&self, one: &str, other: &str) -> Result<Option<String>, ControlError> {
        Ok((one == other).then(|| format!("{one} and {other} are the same")))
    }

    fn is_blank(&self, path: &str) -> Result<bool, ControlError> {
        let size_bytes = self.blocking(path).size_bytes();
        Ok(self.bytes(path, 0, size_bytes).iter().all(|byte| *byte == 0))
    }

    fn find_ssd(&self, _uuid: Uuid) -> Option<String> {
        None
    }

    fn find_backing(&self, _spec: &str, _wanted: &BackingIdentity) -> Vec<(String, DeviceFacts)> {
        Vec::new()
    }

    fn device_mark(&self, _spec: &str) -> u64 {
        0
    }
}

impl Pools for World {
    fn make_file(&self, path: &str, _size_bytes: u64) -> Result<(), ControlError> {
        Err(told(path, "no files can be made here"))
    }

    fn remove_file(&self, _pool: &PoolRecord) -> Result<(), ControlError> {
        Ok(())
    }

    fn format(&self, pool: &PoolRecord) -> Result<Formatted, ControlError> {
        locked(&self.hardware).device(&pool.ssd).failed = false;
        let layout = Layout::plan(POOL_BYTES, SHARDS, SEGMENT_BYTES).map_err(|e| told(&pool.ssd, &e.to_string()))?;
        let layout = pool.arranged(layout);
        let made = superblock::create(&mut self.blocking(&pool.ssd), layout, pool.uuid.into_bytes());
        made.map(|_| Formatted::default()).map_err(|e| assembly::open_error(pool, e))
    }

    fn may_resize(&self, _pool: &PoolRecord) -> bool {
        false
    }

    fn resize(&self, pool: &PoolRecord) -> Result<(), ControlError> {
        Err(told(&pool.ssd, "there are no disks beside this cache"))
    }

    fn wipe(&self, pool: &PoolRecord) -> Result<(), ControlError> {
        locked(&self.hardware).device(&pool.ssd).failed = false;
        let mut medium = self.blocking(&pool.ssd);
        match superblock::load(&mut medium) {
            Ok(state) if state.superblock.uuid == pool.uuid.into_bytes() => {
                superblock::wipe(&mut medium).map_err(|e| assembly::open_error(pool, e))
            }
            _ => Ok(()),
        }
    }

    fn has_shards(&self, pool: &str) -> bool {
        locked(&self.running).engine.as_ref().is_some_and(|engine| engine.pool == pool)
    }

    fn lost_ssd(&self, _pool: &str) -> Option<SsdIndex> {
        self.engine(|engine| engine.shards().find_map(::engine::shard::Shard::lost_ssd)).unwrap_or(None)
    }

    fn start_pool(&self, pool: &PoolRecord, known: &[VolumeRecord]) -> Result<PoolStarted, ControlError> {
        locked(&self.hardware).device(&pool.ssd).failed = false;
        let medium = || -> Result<Box<dyn Medium + Send>, ControlError> { Ok(Box::new(self.blocking(&pool.ssd))) };
        // One thread: the n-th access is to be the same one every time.
        let assembly::Opened { root, pages, shards, samples, started, .. } = assembly::open(pool, RAM_BYTES, &medium, 1, known)?;
        let holds = root.holds();
        let life = Life { uuid: pool.uuid, session: started.session };
        let mut engine = Engine {
            pool: pool.name.clone(),
            life,
            root,
            samples,
            part: Part::new(0, shards.into_iter().map(Place::here).collect(), JOINED_BLOCKS_MAX),
            answers: Answers::default(),
            shards: usize::from(SHARDS),
            now_ns: 0,
            pages,
            next_number: 0,
            replies: BTreeMap::new(),
            devices: Devices::new(vec![pool.ssd.clone()]),
            attached: BTreeMap::new(),
            withdrawn: BTreeSet::new(),
            notices: PoolNotices::new(&pool.name, life, usize::from(SHARDS)),
        };
        engine.set_content(pool.content);
        holds.iter().for_each(|hold| engine.tell(hold));
        locked(&self.running).engine = Some(engine);
        Ok(started)
    }

    fn stop_pool(&self, _pool: &str, clean: bool) -> Result<(), ControlError> {
        if locked(&self.running).engine.is_none() {
            return Ok(());
        }
        let quiet = self.run(|token| Command::Quiesce { token });
        let mut engine = locked(&self.running).engine.take().expect("looked above");
        quiet?;
        let shards: Vec<_> = engine.part.into_shards().into_iter().map(|(_, shard)| shard).collect();
        if clean { engine.root.checkpoint(&shards) } else { Ok(()) }
    }

    fn ssd_failed(&self, _pool: &str, _life: Life, ssd: SsdIndex) {
        drop(self.engine(|engine| engine.tell(&Command::SsdFailed { ssd })));
    }

    fn going_home(&self, _pool: &str, _life: Life) {
        drop(self.engine(|engine| engine.tell(&Command::GoingHome)));
    }

    fn ssd_forgotten(&self, _pool: &str, _life: Life, volume: &str) {
        let Some(place) = self.place(volume) else { return };
        drop(self.engine(|engine| engine.tell(&Command::SsdForgotten { volume: place })));
    }

    fn past_recorded(&self, _pool: &str, _life: Life, token: u64) {
        drop(self.engine(|engine| engine.tell(&Command::PastRecorded { token })));
    }

    fn degraded_recorded(&self, _pool: &str, _life: Life) {
        // A pool that stopped meanwhile needs not be told.
        drop(self.engine(|engine| engine.tell(&Command::DegradedRecorded)));
    }
}

impl Records for World {
    fn write_records(&self, pool: &PoolRecord, content: &[u8]) -> Result<(), ControlError> {
        self.engine(|engine| ssd_copy::write(engine.root.medium(), pool, content))?
    }

    fn write_records_at_rest(&self, pool: &PoolRecord, content: &[u8]) -> Result<(), ControlError> {
        ssd_copy::write_at_rest(&mut self.blocking(&pool.ssd), pool, content)
    }
}

impl Contents for World {
    fn set_content(&self, pool: &PoolRecord) -> Result<(), ControlError> {
        match &mut locked(&self.running).engine {
            Some(engine) if engine.life.uuid == pool.uuid => engine.set_content(pool.content),
            _ => {}
        }
        Ok(())
    }
}

impl Checks for World {
    fn check_part(&self, pool: &PoolRecord, _part: u32, _stop: &AtomicBool) -> Result<CheckedPart, ControlError> {
        Err(told(&pool.ssd, "the modelled machine is not checked"))
    }

    fn check_at_rest(&self, pool: &PoolRecord, _progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Inspected, ControlError> {
        Err(told(&pool.ssd, "the modelled machine is not checked"))
    }
}

impl Volumes for World {
    fn void_past(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        let Ok(Some(place)) = self.engine(|engine| engine.root.place_of(volume.id)) else { return Ok(()) };
        let past: Vec<_> = volume.past.iter().map(|(first, end)| *first..*end).collect();
        self.run(|token| Command::VoidPast { token, volume: place, past: past.clone() })
    }

    fn backing_failed(&self, volume: &str) -> bool {
        let Some(place) = self.place(volume) else { return false };
        let tell = |engine: &mut Engine| {
            let failed = engine.shards().any(|shard| shard.backing_has_failed(place));
            if failed {
                engine.tell(&Command::BackingFailed { volume: place });
            }
            failed
        };
        self.engine(tell).unwrap_or(false)
    }

    fn attach(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        self.open_backing(&volume.backing)?;
        self.engine(|engine| {
            let place = engine.root.enter(volume)?;
            engine.devices.set_backing(place, Some(volume.backing.clone()));
            engine.attached.insert(place.0, volume.name.clone());
            let (id, options) = (VolumeId(volume.id), VolumeOptions::from(&volume.options));
            engine.withdrawn.remove(&place.0);
            engine.tell(&Command::Attach { volume: place, id, size_bytes: volume.size_bytes, options });
            Ok(())
        })?
    }

    fn attach_bare(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        self.open_backing(&volume.backing)?;
        locked(&self.running).bare.insert(volume.name.clone(), volume.backing.clone());
        Ok(())
    }

    fn detach(&self, volume: &VolumeRecord, forget: bool) -> Result<(), ControlError> {
        if locked(&self.running).bare.remove(&volume.name).is_some() {
            return Ok(());
        }
        let place = self.place(&volume.name).ok_or_else(|| World::not_attached(volume))?;
        self.engine(|engine| engine.withdrawn.insert(place.0))?;
        if forget {
            self.forget(volume)?;
            self.engine(|engine| engine.forget(place))?;
        }
        Ok(())
    }

    fn forget(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        let retire = |engine: &mut Engine| match engine.root.place_of(volume.id) {
            Some(place) => engine.root.retire(volume.id).map(|()| Some(place)),
            None => Ok(None),
        };
        let Some(place) = self.engine(retire)?? else { return Ok(()) };
        self.run(|token| Command::Detach { token, volume: place })?;
        self.engine(|engine| engine.root.leave_place(volume.id))
    }

    fn sample(&self, volume: &VolumeRecord) -> Result<Sample, ControlError> {
        let wanted = self.engine(|engine| engine.samples.get(&volume.id).cloned())?.unwrap_or_default();
        let mut sample = Sample::default();
        for (block, proof) in wanted {
            let mut data = [0; BLOCK_BYTES as usize];
            let read = locked(&self.hardware).read(&volume.backing, block * BLOCK_BYTES, &mut data);
            read.map_err(|()| told(&volume.backing, "it cannot be read"))?;
            sample.compared += 1;
            sample.different += u64::from(!proof.holds(VolumeId(volume.id), block, &data));
        }
        if sample.different == 0 {
            self.engine(|engine| engine.samples.remove(&volume.id))?;
        }
        Ok(sample)
    }

    fn drop_clean(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        let place = self.place(&volume.name).ok_or_else(|| World::not_attached(volume))?;
        self.run(|token| Command::DropClean { token, volume: place })
    }

    fn set_options(&self, volume: &VolumeRecord) -> Result<Box<dyn Pending>, ControlError> {
        let options = VolumeOptions::from(&volume.options);
        let place = self.engine(|engine| engine.root.enter(volume))??;
        self.ticket(|token| Command::SetOptions { token, volume: place, options: options.clone() })
    }

    fn destage(&self, volume: &VolumeRecord) -> Result<Box<dyn Pending>, ControlError> {
        let place = self.place(&volume.name).ok_or_else(|| World::not_attached(volume))?;
        self.ticket(|token| Command::Destage { token, volume: place })
    }
}

impl Backings for World {
    fn release(&self, volume: &VolumeRecord) -> Result<Option<String>, ControlError> {
        if locked(&self.running).bare.remove(&volume.name).is_some() {
            return Ok(None);
        }
        let place = self.place(&volume.name).ok_or_else(|| World::not_attached(volume))?;
        self.engine(|engine| engine.withdrawn.insert(place.0))?;
        // A device that failed is let go all the same.
        let token = self.engine(|engine| engine.command(|token| Command::Release { token, volume: place }))?;
        let _ended = self.wait(|engine| engine.ended(token))?;
        self.engine(|engine| {
            engine.samples.insert(volume.id, samples_of_shards(engine.shards(), place));
            engine.forget(place);
        })?;
        Ok(None)
    }

    fn reattach(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        Err(World::not_attached(volume))
    }

    fn backing_gone(&self, _volume: &str) -> bool {
        false
    }

    fn stamps(&self, volume: &VolumeRecord) -> Result<Vec<Fact>, ControlError> {
        Err(World::not_attached(volume))
    }

    fn flush_backing(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        self.open_backing(&volume.backing)
    }
}

impl Counters for World {
    fn volume_stats(&self, volume: &str) -> VolumeStats {
        let running = locked(&self.running);
        let Some((place, engine)) = running.place(volume).zip(running.engine.as_ref()) else { return VolumeStats::default() };
        let of = |figure: fn(&::engine::stats::VolumeStats) -> u64| {
            engine.shards().filter_map(|shard| shard.volume_stats(place)).map(|stats| figure(&stats)).sum()
        };
        VolumeStats {
            dirty_bytes: Some(of(|stats| stats.dirty_bytes)),
            cached_bytes: of(|stats| stats.cached_bytes),
            destaged_bytes: of(|stats| stats.destaged_bytes),
            ..VolumeStats::default()
        }
    }

    fn dirty_bytes(&self, volume: &str) -> Result<u64, ControlError> {
        Ok(self.volume_stats(volume).dirty_bytes.unwrap_or(0))
    }

    fn figures(&self) -> Figures {
        let names: Vec<String> = locked(&self.running).engine.iter().flat_map(|engine| engine.attached.values().cloned()).collect();
        let figures = |name: String| (name.clone(), VolumeFigures { stats: self.volume_stats(&name), ..VolumeFigures::default() });
        Figures { volumes: names.into_iter().map(figures).collect(), ..Figures::default() }
    }

    fn pool_stats(&self, _pool: &str) -> PoolStats {
        let mut gathered = Gathered::default();
        let running = locked(&self.running);
        let Some(engine) = running.engine.as_ref() else { return PoolStats::default() };
        engine.shards().for_each(|shard| gathered.look(shard));
        let name_of = |place| engine.attached.get(&place).cloned();
        PoolStats { content: gathered.figures(name_of), ..PoolStats::default() }
    }

    fn explain(&self, volume: &str, first_block: u64, blocks: u64) -> Result<Explained, ControlError> {
        let Some(place) = self.place(volume) else { return Ok(Explained::default()) };
        self.engine(|engine| {
            let parts = engine.shards().filter_map(|shard| shard.explain(engine.now_ns, place, first_block, blocks));
            let mut explained = Explained { has_cache: true, remembered_ns: engine.now_ns, ..Explained::default() };
            parts.for_each(|part| explained.add(part));
            explained.sort();
            explained
        })
    }

    fn address_map(&self, volume: &str, cells: Cells) -> Result<AddressMap, ControlError> {
        let mut map = AddressMap::empty(cells.count);
        let Some(place) = self.place(volume) else { return Ok(map) };
        self.engine(|engine| {
            for shard in engine.shards() {
                shard.look_at_index(0, u32::MAX, |of, block, dirty| {
                    if let Some(cell) = cells.cell_of(block).filter(|_| of == place) {
                        map.cached_blocks[cell] += 1;
                        map.dirty_blocks[cell] += u64::from(dirty);
                    }
                });
                let regions = shard.heat(engine.now_ns, place).unwrap_or_default();
                spread_heat(&mut map.heat, cells, &regions, u64::MAX >> 1);
            }
            map
        })
    }
}
impl Store for World {
    fn load(&mut self) -> Result<Loaded, ControlError> {
        Ok(Loaded { state: self.saved(), warning: None })
    }

    /// A save that fails leaves the old state or the new one.
    fn save(&mut self, state: &State) -> Result<(), ControlError> {
        state.check().unwrap_or_else(|broken| panic!("a state that breaks its invariants was about to be saved: {broken}"));
        let mut hardware = locked(&self.hardware);
        let was_dead = hardware.dead;
        let pass = hardware.pass("the state", Access::Save);
        if matches!(pass, Pass::Go) || !was_dead && hardware.prng.percent(50) {
            hardware.saved = state.clone();
        }
        if let Pass::Go = pass { Ok(()) } else { Err(told("the state", "it cannot be saved")) }
    }
}

/// Clean and whole blocks of a volume of shards that run.
fn samples_of_shards<'a>(shards: impl Iterator<Item = &'a Shard>, place: VolumeIndex) -> Vec<(u64, Proof)> {
    let of_shard = |shard: &Shard| {
        let mut blocks = Vec::new();
        shard.look_at_index(0, u32::MAX, |volume, block, _| blocks.extend((volume == place).then_some(block)));
        blocks.into_iter().filter_map(|block| Some((block, shard.proof_of_clean(place, block)?))).collect::<Vec<_>>()
    };
    shards.flat_map(of_shard).collect()
}
