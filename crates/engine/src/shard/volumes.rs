//! The volumes of a shard, by their place.

use super::volume::Volume;
use crate::api::Target;
use crate::key::Key;
use crate::outbox::Span;
use crate::treatment::weakened;
use alloc::vec::Vec;
use types::{Admit, BLOCK_BYTES, Mode, Treatment, VOLUMES_MAX, VolumeIndex};

/// See the module.
pub struct Volumes {
    places: Vec<Option<Volume>>,
    /// Places that are taken, ascending.
    attached: Vec<VolumeIndex>,
}

impl Default for Volumes {
    fn default() -> Volumes {
        Volumes { places: (0..VOLUMES_MAX).map(|_| None).collect(), attached: Vec::new() }
    }
}

impl Volumes {
    /// The volume in that place, if there is one.
    #[inline]
    pub fn get(&self, index: VolumeIndex) -> Option<&Volume> {
        self.places.get(usize::from(index.0))?.as_ref()
    }

    /// The same, to change it.
    #[inline]
    pub fn get_mut(&mut self, index: VolumeIndex) -> Option<&mut Volume> {
        self.places.get_mut(usize::from(index.0))?.as_mut()
    }

    /// The volume of a block.
    ///
    /// # Panics
    /// If it is not attached.
    #[inline]
    pub fn of(&mut self, key: Key) -> &mut Volume {
        self.get_mut(key.volume()).expect("a cached block's volume is attached")
    }

    /// Places that are taken, ascending.
    pub fn attached(&self) -> &[VolumeIndex] {
        &self.attached
    }

    /// Puts a volume into a place; gives the one that was there.
    pub fn put(&mut self, index: VolumeIndex, volume: Volume) -> Option<Volume> {
        let before = self.places[usize::from(index.0)].replace(volume);
        if before.is_none() {
            let at = self.attached.partition_point(|other| *other < index);
            self.attached.insert(at, index);
        }
        before
    }

    /// The place becomes free.
    pub fn remove(&mut self, index: VolumeIndex) {
        self.places[usize::from(index.0)] = None;
        self.attached.retain(|other| *other != index);
    }

    /// Whether the host has recorded that the lost SSD holds nothing of the volume.
    pub fn is_past_ssd(&self, index: VolumeIndex) -> bool {
        self.get(index).is_some_and(|volume| volume.bond.is_past())
    }

    /// How a block is treated.
    #[inline]
    pub fn treatment_of(&self, key: Key) -> Treatment {
        let map = self.get(key.volume()).and_then(|volume| volume.policies.as_deref());
        map.map_or_else(Treatment::default, |map| map.treatment_of(key.block()))
    }

    /// Whether the block is to stay.
    pub fn is_pinned(&self, key: Key) -> bool {
        self.treatment_of(key).admit() == Admit::Pinned
    }

    /// The mode by which a write that begins with this block goes.
    pub fn mode_of_write(&self, first: Key) -> Mode {
        let mode = self.get(first.volume()).expect("a request's volume is attached").options.mode;
        weakened(mode, self.treatment_of(first))
    }

    /// The bytes of `count` whole blocks on the backing device, cut at the volume's end.
    pub fn backing_span(&self, key: Key, count: u64) -> Span {
        let size_bytes = self.get(key.volume()).expect("a cached block's volume is attached").size_bytes;
        let offset_bytes = key.block() * BLOCK_BYTES;
        let length_bytes = (count * BLOCK_BYTES).min(size_bytes - offset_bytes);
        Span { target: Target::Backing(key.volume()), offset_bytes, length_bytes, background: false }
    }
}
