//! The data path on a real machine: the runtime, its devices, pools and exports, behind [`DataPath`].

pub mod assembly;
mod check;
pub mod content;
mod devices;
mod discovery;
mod disks;
mod exports;
mod facts;
mod figures;
mod finding;
mod growth;
#[cfg(test)]
mod large_tests;
mod leftovers;
mod letting_go;
mod looking;
pub mod looking_into;
mod lvm_group;
mod lvm_lock;
mod mapped;
mod naming;
pub mod notices;
mod own_volumes;
mod pools;
mod probe;
mod shares;
mod slots;
pub mod ssd_copy;
mod swap;
mod taps;
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

use api::error::ControlError;
use datapath::{DeviceFacts, Notice};
use export::{Exporters, Kept, Site};
use keeper::Keeper;
use runtime::{Endpoint, EndpointGroup, Runtime, RuntimeOptions, VolumeRef};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use targets::Targets;
use uuid::Uuid;

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
        let runtime = Arc::new(Runtime::start(runtime).map_err(|e| failed(e, ""))?);
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
        self.runtime.stop_endpoints(client, patience).map_err(|e| failed(e, "see the log"))
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
fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>, remedy: &str) -> ControlError {
    ControlError::Below { source: error.into(), remedy: remedy.into() }
}
