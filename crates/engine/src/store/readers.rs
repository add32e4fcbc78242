//! Reads under way, by region: a region is not used again while one of its pages is being read.

use super::RegionId;
use crate::key::Map;

/// See the module.
#[derive(Default, Debug)]
pub struct Readers(Map<RegionId, u32>);

impl Readers {
    /// A read of the region begins.
    pub fn begin(&mut self, region: RegionId) {
        *self.0.entry(region).or_default() += 1;
    }

    /// A read of the region ended.
    pub fn end(&mut self, region: RegionId) {
        let readers = self.0.get_mut(&region).expect("a region that is read");
        *readers -= 1;
        if *readers == 0 {
            self.0.remove(&region);
        }
    }

    /// The region with the lowest number that is read.
    pub(super) fn oldest(&self) -> Option<RegionId> {
        self.0.keys().min().copied()
    }
}
