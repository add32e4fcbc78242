//! Which device an I/O of a shard is for. A host asks here, and chooses no device itself.

use engine::api::Target;
use types::{SsdIndex, VolumeIndex};

/// The devices of a pool, under whatever name `D` its host knows them by.
#[derive(Debug)]
pub struct Devices<D> {
    /// By [`SsdIndex`].
    ssds: Vec<D>,
    /// By [`VolumeIndex`].
    backing: Vec<Option<D>>,
}

impl<D> Devices<D> {
    /// Of a pool without volumes. `ssds`: those that its shards' logs are on, in order.
    ///
    /// # Panics
    /// If there is no SSD.
    pub fn new(ssds: Vec<D>) -> Devices<D> {
        assert!(!ssds.is_empty(), "a pool has an SSD");
        Devices { ssds, backing: Vec::new() }
    }

    /// The device that an I/O is for; `None` if the pool has none there, or the volume has none now.
    #[inline]
    pub fn get(&self, target: Target) -> Option<&D> {
        match target {
            Target::Ssd(SsdIndex(index)) => self.ssds.get(usize::from(index)),
            Target::Backing(VolumeIndex(index)) => self.backing.get(usize::from(index))?.as_ref(),
        }
    }

    /// The backing device of a volume from now on.
    pub fn set_backing(&mut self, volume: VolumeIndex, device: Option<D>) {
        let index = usize::from(volume.0);
        if self.backing.len() <= index {
            self.backing.resize_with(index + 1, || None);
        }
        self.backing[index] = device;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_target_has_its_own_device() {
        let mut devices = Devices::new(vec!["first", "second"]);
        devices.set_backing(VolumeIndex(1), Some("disk"));
        assert_eq!([SsdIndex::FIRST, SsdIndex(1)].map(|ssd| devices.get(Target::Ssd(ssd))), [Some(&"first"), Some(&"second")]);
        assert_eq!([0, 1, 2].map(|volume| devices.get(Target::Backing(VolumeIndex(volume)))), [None, Some(&"disk"), None]);
        assert_eq!(devices.get(Target::Ssd(SsdIndex(2))), None);
        devices.set_backing(VolumeIndex(1), None);
        assert_eq!(devices.get(Target::Backing(VolumeIndex(1))), None);
    }
}
