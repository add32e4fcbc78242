//! What an endpoint sees of a volume.

use crate::parts::Parts;
use engine::api::VolumeOptions;
use page::PagePool;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use types::{Mode, VolumeIndex};

/// A handle to a volume, cheap to clone and usable from any thread. It stays valid after the volume is gone: requests
/// submitted then are answered with [`RequestError::Shutdown`](engine::api::RequestError::Shutdown).
///
/// Whether a cache stands before the device is invisible here.
#[derive(Clone)]
pub struct VolumeRef(pub(crate) Arc<VolumeShared>);

pub(crate) struct VolumeShared {
    /// The runtime's own number of the volume; never reused while the runtime lives.
    pub(crate) number: u32,
    pub(crate) name: String,
    /// Only ever grows.
    pub(crate) size_bytes: AtomicU64,
    pub(crate) logical_block_bytes: u32,
    pub(crate) physical_block_bytes: u32,
    /// See [`VolumeRef::atomic_bytes`]; 0: none.
    pub(crate) atomic_bytes: AtomicU32,
    pub(crate) read_only: AtomicBool,
    pub(crate) can_discard: bool,
    pub(crate) discard_zeroes: bool,
    /// See [`VolumeRef::sampled_below`].
    pub(crate) sampled_below: AtomicU64,
    pub(crate) pages: PagePool,
    /// Tells page pools apart.
    pub(crate) pool_number: u32,
    /// Pages of the pool that writes of clients must leave for those who serve them.
    pub(crate) reserved_pages: usize,
    pub(crate) route: Route,
    /// Of a bare volume: where on its device it lies.
    pub(crate) parts: Parts,
}

/// Who serves a volume.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Route {
    /// A device, by its number.
    Bare { device: u32 },
    /// The shards of a pool, where the volume has this place.
    Cached { pool: u32, index: VolumeIndex },
}

/// No read or write may be longer than this, whatever the page pool's size: 32 MiB, what NBD clients take for granted
/// (NBD's proto.md, "Block size constraints").
pub const REQUEST_BYTES_MAX: u32 = 32 << 20;

impl VolumeShared {
    /// It is treated so from now on.
    pub(crate) fn treat(&self, options: &VolumeOptions) {
        self.read_only.store(options.read_only, Ordering::Relaxed);
        let atomic_bytes = options.atomic_bytes.filter(|_| options.mode == Mode::WriteBack);
        self.atomic_bytes.store(atomic_bytes.unwrap_or(0), Ordering::Relaxed);
    }

    /// Requests up to there are served from now on.
    pub(crate) fn grow(&self, size_bytes: u64) {
        self.size_bytes.fetch_max(size_bytes, Ordering::AcqRel);
    }
}

impl VolumeRef {
    /// Whether both are of the same volume: one that was attached anew is another.
    pub fn is(&self, other: &VolumeRef) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The administrator's name for the volume.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Size in bytes; a multiple of [`VolumeRef::logical_block_bytes`]. May grow while the volume is attached, and never shrinks: whoever
    /// has told a client of a size serves all of it.
    pub fn size_bytes(&self) -> u64 {
        self.0.size_bytes.load(Ordering::Acquire)
    }

    /// 512 or 4096. Requests must start and end on a multiple of it, else they fail with
    /// [`RequestError::Invalid`](engine::api::RequestError::Invalid).
    pub fn logical_block_bytes(&self) -> u32 {
        self.0.logical_block_bytes
    }

    /// What a power cut leaves old or new as a whole, in bytes: the atomic unit of the volume, else the physical block of the backing device, from
    /// the logical block up to 4096, whatever the mode. Writes may go past the log at any time, and the mode of a live volume may change.
    pub fn physical_block_bytes(&self) -> u32 {
        self.atomic_bytes().unwrap_or_default().max(self.0.physical_block_bytes)
    }

    /// Aligned units of so many bytes are written as a whole, if the volume is treated so (see
    /// [`VolumeOptions::atomic_bytes`](engine::api::VolumeOptions::atomic_bytes)). May change while the volume is attached.
    pub fn atomic_bytes(&self) -> Option<u32> {
        Some(self.0.atomic_bytes.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }

    /// Whether writes, zeroes and discards fail with
    /// [`RequestError::ReadOnly`](engine::api::RequestError::ReadOnly). May change while the volume is attached.
    pub fn read_only(&self) -> bool {
        self.0.read_only.load(Ordering::Relaxed)
    }

    /// Whether a discard can free space in the device behind. Where it cannot, a discard succeeds and changes nothing.
    pub fn can_discard(&self) -> bool {
        self.0.can_discard
    }

    /// Whether ranges can be given up so that they read as zeroes, without a transfer.
    pub fn can_punch_holes(&self) -> bool {
        self.0.can_discard && self.0.discard_zeroes
    }

    /// The longest read or write, in bytes: [`REQUEST_BYTES_MAX`], or an eighth of the pages clients may use if that is less (so
    /// that one request can never need more than there are). Zeroes and discards have no such limit. Whole units of a volume that keeps such:
    /// whoever cuts a longer request there tears none.
    pub fn request_bytes_max(&self) -> u32 {
        let eighth_bytes = (self.0.pages.pages_max() - self.0.reserved_pages) as u64 / 8 * page::PAGE_BYTES as u64;
        let most = REQUEST_BYTES_MAX.min(u32::try_from(eighth_bytes).unwrap_or(u32::MAX));
        let unit = self.atomic_bytes().unwrap_or(page::PAGE_BYTES as u32);
        (most / unit * unit).max(page::PAGE_BYTES as u32)
    }
}

impl std::fmt::Debug for VolumeRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "VolumeRef({})", self.0.name)
    }
}

#[cfg(test)]
impl VolumeShared {
    pub(crate) fn for_test(pages: PagePool, reserved_pages: usize) -> VolumeShared {
        VolumeShared {
            number: 0,
            name: "test".into(),
            size_bytes: AtomicU64::new(1 << 20),
            logical_block_bytes: 512,
            physical_block_bytes: 512,
            atomic_bytes: AtomicU32::new(0),
            read_only: AtomicBool::new(false),
            can_discard: true,
            discard_zeroes: true,
            sampled_below: AtomicU64::new(0),
            pages,
            pool_number: 0,
            reserved_pages,
            route: Route::Bare { device: 0 },
            parts: Parts::default(),
        }
    }
}
