//! The data path on a real machine: the runtime, its devices, pools and exports, behind [`DataPath`].

pub(crate) mod assembly;
mod check;
pub(crate) mod content;
mod devices;
mod discovery;
mod disks;
mod exports;
mod figures;
mod finding;
mod growth;
mod insight;
#[cfg(test)]
mod large_tests;
mod leftovers;
mod letting_go;
mod looking;
pub(crate) mod looking_into;
mod lvm_group;
mod lvm_lock;
mod mapped;
mod naming;
pub(crate) mod notices;
mod own_volumes;
mod pools;
mod probe;
pub(crate) mod records;
mod shares;
mod swap;
#[cfg(test)]
mod toy_export_tests;
mod volumes;
mod waits;
mod warm;

pub use fuse::clear_killed_export;
pub use leftovers::{EndedExports, clear_left_exports, end_held_exports, end_kept_exports, end_ublk_devices_of};
pub use mapped::KernelMapper;
pub use naming::volume_of_device;
pub use own_volumes::check_own_place;
pub use runtime::SsdMedium;
pub use shares::{EndedShares, end_shares_of};

use crate::datapath::{
    CheckedPart, DataPath, DeviceFacts, DeviceUse, FoundDevice, Inspected, Life, Notice, Offer, Pending, PoolStarted, Sample, StrayedFile,
    WaitingFor, Withdrawal,
};
use crate::error::ControlError;
use crate::figures::Figures;
use crate::looking::{AddressMap, Cells, Explained};
use crate::mapped::MappedDevices;
use crate::preload::Piece;
use crate::state::{BackingIdentity, DiskRecord, Fact, PoolRecord, ShareRecord, VolumeRecord};
use crate::stats::{PoolStats, VolumeStats};
use crate::uuid::Uuid;
use crate::words::Export;
use engine::api::Command;
use export::{Absence, Exporters, Kept, Site};
use keeper::Keeper;
use runtime::{Endpoint, EndpointGroup, Histogram, Runtime, RuntimeOptions, VolumeRef};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use targets::{Look, Offered, Protocol, Targets};
use types::Treatment;

/// Looks at a device or file without changing it: its size, what is on it, who uses it.
///
/// # Errors
/// If it cannot be opened or read.
pub fn look_at(path: &str) -> Result<DeviceFacts, ControlError> {
    devices::examine(path)
}

/// How the machine is set up.
pub struct MachineOptions {
    /// Threads that do I/O; `None`: half of the cores.
    pub reactors: Option<usize>,
    /// Whether they run before ordinary threads when that helps, where the kernel lets them.
    pub real_time: bool,
    /// Whether they keep processors from deep sleep while clients do much I/O, where the kernel lets them.
    pub cpu_latency: bool,
    /// Where the sockets and mounts of exports lie.
    pub export_directory: PathBuf,
    /// Where the certificates of exports with TLS lie.
    pub certificates: PathBuf,
    /// Whether loop exports get a stable name (`/dev/hearth/NAME`).
    pub stable_names: bool,
    /// Who keeps exports alive when this process ends; `None`: nobody.
    pub keeper: Option<Keeper>,
    /// Makes the exporters that this program has.
    pub exporters: fn(&Arc<Site>) -> Exporters,
    /// Where it reports to.
    pub notices: Sender<Notice>,
}

impl MachineOptions {
    /// A data path that serves nobody outside of this process and leaves nothing: its files lie in `directory`.
    pub fn private(directory: &std::path::Path, notices: Sender<Notice>) -> MachineOptions {
        MachineOptions {
            reactors: None,
            real_time: false,
            cpu_latency: false,
            export_directory: directory.join("exports"),
            certificates: directory.join("pki"),
            stable_names: false,
            keeper: None,
            exporters: Exporters::none,
            notices,
        }
    }
}

/// The real data path.
pub struct Machine {
    runtime: Arc<Runtime>,
    mapper: KernelMapper,
    /// What exporters share.
    site: Arc<Site>,
    exporters: Exporters,
    notices: Sender<Notice>,
    pools: Mutex<BTreeMap<String, Arc<pools::LivePool>>>,
    volumes: Mutex<BTreeMap<String, Arc<volumes::LiveVolume>>>,
    /// Writes that were acknowledged in pools that ended as by a crash, and may not be durable: by shard, up to which group the SSD should have
    /// them; `None`: not known.
    unflushed: Mutex<BTreeMap<Uuid, Option<BTreeMap<u16, u64>>>>,
    targets: Targets,
    /// Room that was erased for a disk which the table of the pool's SSD does not have yet.
    erased: Mutex<BTreeMap<Uuid, Vec<(u64, u64)>>>,
    /// Volume names by pool and place, for what the shards report.
    names_by_place: Arc<Mutex<BTreeMap<(String, u16), String>>>,
    looked: Mutex<figures::Looked>,
    /// Devices being looked at.
    looks: discovery::Looks,
    /// What is cached of volumes, by cells of their address space.
    counting: looking::Counting,
    in_use: Mutex<Vec<waits::InUse>>,
    /// Devices that were asked for a block by who looked at them, and have not answered.
    asked: Mutex<BTreeMap<String, probe::Asked>>,
}

impl Machine {
    /// Starts the threads. Nothing is opened yet.
    ///
    /// # Errors
    /// If the kernel offers no io_uring.
    pub fn start(options: MachineOptions) -> Result<Machine, ControlError> {
        let mut runtime = RuntimeOptions { real_time: options.real_time, cpu_latency: options.cpu_latency, ..RuntimeOptions::default() };
        if let Some(reactors) = options.reactors {
            runtime.reactors = u16::try_from(reactors.clamp(1, 256)).unwrap_or(1);
        }
        let runtime = Arc::new(Runtime::start(runtime).map_err(|e| failed(&e, ""))?);
        let standing = runtime.standing();
        tracing::info!("reactors: {}, scheduled {}; processors {}", runtime.reactors(), standing.precedence, standing.cpu_latency);
        let targets = shares::targets_of(&options.export_directory);
        let mapper = KernelMapper { export_directory: options.export_directory.clone() };
        let site = Arc::new(Site {
            runtime: runtime.clone(),
            directory: options.export_directory,
            certificates: options.certificates,
            has_stable_names: options.stable_names,
            kept: Kept::new(options.keeper),
            end_by: OnceLock::new(),
        });
        Ok(Machine {
            exporters: (options.exporters)(&site),
            runtime,
            site,
            targets,
            mapper,
            notices: options.notices,
            pools: Mutex::default(),
            volumes: Mutex::default(),
            unflushed: Mutex::default(),
            erased: Mutex::default(),
            names_by_place: Arc::default(),
            looked: Mutex::default(),
            looks: discovery::Looks::default(),
            counting: looking::Counting::default(),
            in_use: Mutex::default(),
            asked: Mutex::default(),
        })
    }

    /// Adds a client of an attached volume that lives in this process; what it is to do is made with the handle to the volume. It ends by itself, or by
    /// [`Machine::end_client`].
    ///
    /// # Errors
    /// [`ControlError::Unknown`] if no volume of that name is attached.
    pub fn add_client(&self, volume: &str, make: impl FnOnce(VolumeRef) -> Box<dyn Endpoint>) -> Result<EndpointGroup, ControlError> {
        let client = make(self.volume(volume)?.reference.clone());
        Ok(self.runtime.add_endpoint(client))
    }

    /// Asks a client to end, and ends it by force when it takes longer than this.
    ///
    /// # Errors
    /// If it does not end even then.
    pub fn end_client(&self, client: &EndpointGroup, patience: Duration) -> Result<(), ControlError> {
        self.runtime.stop_endpoints(client, patience).map_err(|e| failed(&e, "see the log"))
    }

    fn pool(&self, name: &str) -> Result<Arc<pools::LivePool>, ControlError> {
        locked(&self.pools).get(name).cloned().ok_or(ControlError::Unknown { named: "pool", name: name.into() })
    }

    fn volume(&self, name: &str) -> Result<Arc<volumes::LiveVolume>, ControlError> {
        locked(&self.volumes).get(name).cloned().ok_or(ControlError::Unknown { named: "volume", name: name.into() })
    }
}

/// Also after a holder has panicked: the start of one pool may have, and the others go on.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An error from below, with what to do.
fn failed(error: &dyn std::fmt::Display, remedy: &str) -> ControlError {
    ControlError::DataPath(error.to_string(), remedy.into())
}

impl DataPath for Machine {
    fn mapped(&self) -> &dyn MappedDevices {
        &self.mapper
    }

    fn volumes_to_tap(&self) -> Vec<crate::datapath::TappedVolume> {
        self.tappable()
    }

    fn take_tapped(&self) -> Result<crate::datapath::Tapped, ControlError> {
        self.take_what_was_tapped()
    }

    fn read_aside(&self, volume: &str, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), ControlError> {
        self.read_beside(volume, offset_bytes, bytes)
    }

    fn set_policies(&self, volume: &VolumeRecord, ranges: &[(Range<u64>, Treatment)]) -> Result<(), ControlError> {
        self.give_policies(volume, ranges)
    }

    fn cool(&self, volume: &str, ranges: &[Range<u64>]) {
        self.cool_down(volume, ranges);
    }

    fn examine_ssd(&self, path: &str) -> Result<DeviceFacts, ControlError> {
        self.examine(path)
    }

    fn look_into_ssd(&self, path: &str) -> Result<crate::ssd_content::SsdContent, ControlError> {
        self.content_of_ssd(path)
    }

    fn examine_backing(&self, spec: &str) -> Result<DeviceFacts, ControlError> {
        self.examine(spec)
    }

    fn is_silent(&self, spec: &str, patience: Duration) -> bool {
        Machine::is_silent(self, spec, patience)
    }

    fn find_backing(&self, spec: &str, wanted: &BackingIdentity) -> Vec<(String, DeviceFacts)> {
        finding::find(&|spec| self.examine_stranger(spec), spec, wanted)
    }

    fn device_mark(&self, spec: &str) -> u64 {
        finding::mark(spec)
    }

    fn devices(&self) -> Result<Vec<FoundDevice>, ControlError> {
        self.looks.all()
    }

    fn look_at(&self, spec: &str) -> Result<FoundDevice, ControlError> {
        self.looks.one(spec)
    }

    fn canonical(&self, spec: &str) -> String {
        discovery::canonical(spec)
    }

    fn overlap(&self, one: &str, other: &str) -> Result<Option<String>, ControlError> {
        devices::overlap(one, other)
    }

    fn own_volume_below(&self, spec: &str, volumes: &[VolumeRecord]) -> Result<Option<(String, String)>, ControlError> {
        self.volume_below(spec, volumes)
    }

    fn backing_strayed(&self, volume: &str) -> Option<StrayedFile> {
        let live = self.volume(volume).ok()?;
        let opened = locked(&live.backing)
            .as_ref()
            .and_then(|backing| backing.opened.another_handle().ok().map(|open| (open, backing.opened.descriptor_path())));
        let (opened, open_as) = opened?;
        letting_go::strayed(&opened, &open_as)
    }

    fn ssd_strayed(&self, pool: &str) -> Option<StrayedFile> {
        let pool = self.pool(pool).ok()?;
        letting_go::strayed(pool.opened(), &pool.opened().descriptor_path())
    }

    fn opened_by_others(&self, spec: &str) -> Option<String> {
        devices::opened_by_others(spec)
    }

    fn is_blank(&self, path: &str) -> Result<bool, ControlError> {
        devices::is_blank(path)
    }

    fn make_file(&self, path: &str, size_bytes: u64) -> Result<(), ControlError> {
        devices::make_file(path, size_bytes)
    }

    fn remove_file(&self, pool: &PoolRecord) -> Result<(), ControlError> {
        devices::remove_file(pool)
    }

    fn format(&self, pool: &PoolRecord) -> Result<(), ControlError> {
        self.format_pool(pool)
    }

    fn wipe(&self, pool: &PoolRecord) -> Result<(), ControlError> {
        self.wipe_pool(pool)
    }

    fn start_pool(&self, pool: &PoolRecord, known: &[VolumeRecord]) -> Result<PoolStarted, ControlError> {
        self.run_pool(pool, known)
    }

    fn has_shards(&self, pool: &str) -> bool {
        self.pool(pool).is_ok()
    }

    fn has_lost_ssd(&self, pool: &str) -> bool {
        self.has_lost_log(pool)
    }

    fn write_records(&self, pool: &PoolRecord, content: &[u8]) -> Result<(), ControlError> {
        self.put_records(pool, content)
    }

    fn write_records_at_rest(&self, pool: &PoolRecord, content: &[u8]) -> Result<(), ControlError> {
        self.put_records_at_rest(pool, content)
    }

    fn stop_pool(&self, pool: &str, clean: bool) -> Result<(), ControlError> {
        self.end_pool(pool, clean)
    }

    fn ssd_takes_writes(&self, path: &str, pool: &PoolRecord) -> Result<(), ControlError> {
        self.rewrite_first_page(path, pool)
    }

    fn abandon_pool(&self, pool: &str) -> Result<(), ControlError> {
        self.abandon_shards(pool)
    }

    fn set_content(&self, pool: &PoolRecord) -> Result<(), ControlError> {
        self.change_content(pool)
    }

    fn ssd_failed(&self, pool: &str, life: Life) {
        self.tell_shards(pool, life, |_| Some(Command::SsdFailed));
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

    fn void_past(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        self.void_past_blocks(volume)
    }

    fn backing_failed(&self, volume: &str) -> bool {
        self.tell_backing_failed(volume)
    }

    fn find_ssd(&self, uuid: Uuid) -> Option<String> {
        finding::find_ssd(&|spec| self.examine_stranger(spec), uuid)
    }

    fn attach(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        self.attach_cached(volume)
    }

    fn attach_bare(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        self.attach_alone(volume)
    }

    fn detach(&self, volume: &VolumeRecord, forget: bool) -> Result<(), ControlError> {
        self.detach_volume(volume, forget)
    }

    fn release(&self, volume: &VolumeRecord) -> Result<Option<String>, ControlError> {
        self.release_volume(volume)
    }

    fn reattach(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        self.reattach_volume(volume)
    }

    fn backing_gone(&self, volume: &str) -> bool {
        self.backing_is_gone(volume)
    }

    fn check_quiet(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        Ok(self.exporters.check_quiet(&exports::volume_of(volume))?)
    }

    fn check_disks(&self, pool: &PoolRecord, disks: &[DiskRecord]) -> Result<(), ControlError> {
        self.check_disk_table(pool, disks)
    }

    fn write_disks(&self, pool: &PoolRecord, disks: &[DiskRecord]) -> Result<(), ControlError> {
        self.write_disk_table(pool, disks)
    }

    fn mend_disks(&self, pool: &PoolRecord, disks: &[DiskRecord]) -> Result<Option<String>, ControlError> {
        self.mend_disk_table(pool, disks)
    }

    fn erase_disk(&self, pool: &PoolRecord, from_bytes: u64, length_bytes: u64) -> Result<(), ControlError> {
        self.erase_room(pool, from_bytes, length_bytes)
    }

    fn attach_disk(&self, disk: &DiskRecord) -> Result<u32, ControlError> {
        self.attach_part(disk)
    }

    fn grow_disk(&self, disk: &DiskRecord) -> Result<Vec<String>, ControlError> {
        self.grow_part(disk)
    }

    fn backing_bytes(&self, volume: &str) -> Option<u64> {
        self.bytes_of_backing(volume)
    }

    fn grow(&self, volume: &VolumeRecord) -> Result<Vec<String>, ControlError> {
        self.grow_volume(volume)
    }

    fn stamps(&self, volume: &VolumeRecord) -> Result<Vec<Fact>, ControlError> {
        self.stamps_of(volume)
    }

    fn flush_backing(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        self.flush_backing_of(volume)
    }

    fn forget(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        self.forget_volume(volume)
    }

    fn sample(&self, volume: &VolumeRecord) -> Result<Sample, ControlError> {
        self.sample_volume(volume)
    }

    fn drop_clean(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        self.drop_clean_blocks(volume)
    }

    fn set_options(&self, volume: &VolumeRecord) -> Result<Box<dyn Pending>, ControlError> {
        let pending = self.change_options(volume)?;
        // Last: a change that fails leaves the names that were in force.
        self.exporters.set_names(&exports::volume_of(volume));
        Ok(pending)
    }

    fn destage(&self, volume: &VolumeRecord) -> Result<Box<dyn Pending>, ControlError> {
        self.begin_destage(volume)
    }

    fn warm(&self, volume: &VolumeRecord, pieces: &[Piece]) -> (usize, Result<(), ControlError>) {
        self.warm_pieces(volume, pieces)
    }

    fn backing_waits(&self, volume: &str) -> Histogram {
        self.backing_waits_of(volume)
    }

    fn piece_bytes_max(&self, volume: &VolumeRecord) -> u64 {
        self.volume(&volume.name).map_or(types::EXTENT_BYTES, |volume| u64::from(volume.reference.request_bytes_max()))
    }

    fn check_part(&self, pool: &PoolRecord, part: u32, stop: &AtomicBool) -> Result<CheckedPart, ControlError> {
        self.check_segment(pool, part, stop)
    }

    fn check_at_rest(&self, pool: &PoolRecord, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Inspected, ControlError> {
        check::at_rest(pool, progress)
    }

    fn export(&self, volume: &VolumeRecord, export: &Export) -> Result<Offer, ControlError> {
        self.offer(volume, *export)
    }

    fn check_export(&self, export: Export) -> Result<(), ControlError> {
        Ok(self.exporters.check(export)?)
    }

    fn unexport(&self, volume: &VolumeRecord, export: &Export, how: Withdrawal) -> Result<Option<String>, ControlError> {
        self.withdraw(volume, *export, how)
    }

    fn stable_name(&self, volume: &str) -> Option<Result<String, String>> {
        self.keep_stable_name(volume)
    }

    fn outlives(&self, volume: &VolumeRecord, export: &Export, absence: Absence) -> bool {
        self.users_outlive(volume, *export, absence)
    }

    fn end_kept(&self, volume: &VolumeRecord) {
        self.exporters.end_waiting(&exports::volume_of(volume));
    }

    fn expect_exports(&self, volumes: &[VolumeRecord]) {
        self.expect(volumes);
    }

    fn close_kept(&self, known: &[VolumeRecord], busy: &[String]) -> Vec<String> {
        self.close_overdue(known, busy)
    }

    fn device_is_lost(&self, volume: &str) -> bool {
        Machine::device_is_lost(self, volume)
    }

    fn not_served(&self, volume: &VolumeRecord) {
        self.exporters.clear(&exports::volume_of(volume));
    }

    fn export_in_use(&self, volume: &VolumeRecord, export: &Export) -> Option<String> {
        self.user_of(volume, *export)
    }

    fn share(&self, volume: &VolumeRecord, share: &ShareRecord, device: &str) -> Result<Offered, ControlError> {
        self.offer_share(volume, share, device)
    }

    fn unshare(&self, volume: &VolumeRecord, protocol: Protocol) -> Result<(), ControlError> {
        self.withdraw_share(volume, protocol)
    }

    fn look_at_share(&self, volume: &VolumeRecord, share: &ShareRecord, device: &str) -> Result<Look, ControlError> {
        self.look_at_target(volume, share, device)
    }

    fn connected(&self, volume: &VolumeRecord, protocol: Protocol) -> Result<Option<Vec<String>>, ControlError> {
        self.connected_to(volume, protocol)
    }

    fn refresh_share(&self, volume: &VolumeRecord, protocol: Protocol) -> Result<&'static str, ControlError> {
        self.tell_new_size(volume, protocol)
    }

    fn finish(&self) {
        self.exporters.finish();
    }

    fn end_by(&self, at: Instant) {
        self.site.end_by.get_or_init(|| at);
    }

    fn waiting_for(&self) -> Vec<WaitingFor> {
        self.devices_waited_for()
    }

    fn answers(&self, volume: &VolumeRecord, patience: Duration) -> Result<(), ControlError> {
        let device = locked(&self.volume(&volume.name)?.backing).as_ref().map(|backing| backing.device.clone());
        device.map_or(Ok(()), |device| self.wait_for_answer_within(&device, patience))
    }

    fn ssd_answers(&self, pool: &str, patience: Duration) -> Result<(), ControlError> {
        self.wait_for_answer_within(&self.pool(pool)?.ssd, patience)
    }

    fn give_up(&self, device: &DeviceUse) -> Result<(), ControlError> {
        self.give_up_device(device)
    }

    fn volume_stats(&self, volume: &str) -> VolumeStats {
        self.figures_of_volume(volume)
    }

    fn pool_stats(&self, pool: &str) -> PoolStats {
        self.figures_of_pool(pool)
    }

    fn dirty_bytes(&self, volume: &str) -> Result<u64, ControlError> {
        self.dirty_bytes_of(volume)
    }

    fn figures(&self) -> Figures {
        self.all_figures()
    }

    fn explain(&self, volume: &str, first_block: u64, blocks: u64) -> Result<Explained, ControlError> {
        self.explain_range(volume, first_block, blocks)
    }

    fn address_map(&self, volume: &str, cells: Cells) -> Result<AddressMap, ControlError> {
        self.map_addresses(volume, cells)
    }
}
