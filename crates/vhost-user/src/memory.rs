//! A guest's memory: where its addresses lie in ours.
//!
//! Every address that comes from a guest passes here, and nowhere else does one become a pointer.

use crate::mapping::Mapping;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence, fence};

/// One region, as the front end described it.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    /// Its first address for the guest.
    pub(crate) guest: u64,
    /// Its first address in the front end's own memory: queues are described by such.
    pub(crate) user: u64,
    pub(crate) mapping: Arc<Mapping>,
}

impl Region {
    fn bytes(&self) -> u64 {
        self.mapping.bytes()
    }
}

/// An address or length that the guest does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Outside;

/// All regions, in the order of the guest's addresses. Never changed: a new table is a new value.
#[derive(Clone, Debug, Default)]
pub(crate) struct GuestMemory {
    regions: Vec<Region>,
}

impl GuestMemory {
    /// # Errors
    /// [`Outside`] if regions overlap, for the guest or the front end, or reach beyond the address space.
    pub(crate) fn new(mut regions: Vec<Region>) -> Result<GuestMemory, Outside> {
        let apart = |start: fn(&Region) -> u64, regions: &mut Vec<Region>| {
            regions.sort_by_key(start);
            let ends_before = |pair: &[Region]| start(&pair[0]).checked_add(pair[0].bytes()).is_some_and(|end| end <= start(&pair[1]));
            regions.windows(2).all(ends_before) && regions.iter().all(|region| start(region).checked_add(region.bytes()).is_some())
        };
        if !apart(|region| region.user, &mut regions) || !apart(|region| region.guest, &mut regions) {
            return Err(Outside);
        }
        Ok(GuestMemory { regions })
    }

    /// With one region more.
    pub(crate) fn with(&self, region: Region) -> Result<GuestMemory, Outside> {
        GuestMemory::new(self.regions.iter().cloned().chain([region]).collect())
    }

    /// Without the region that begins there and is so long.
    pub(crate) fn without(&self, guest: u64, user: u64, bytes: u64) -> Result<GuestMemory, Outside> {
        let is_it = |region: &Region| region.guest == guest && region.user == user && region.bytes() == bytes;
        let at = self.regions.iter().position(is_it).ok_or(Outside)?;
        let mut regions = self.regions.clone();
        regions.remove(at);
        Ok(GuestMemory { regions })
    }

    pub(crate) fn len(&self) -> usize {
        self.regions.len()
    }

    /// Whether a part of it was taken away under us.
    pub(crate) fn is_struck(&self) -> bool {
        self.regions.iter().any(|region| region.mapping.is_struck())
    }

    /// The pointer to an address, how many bytes from there on are one piece, and where they are mapped.
    fn find(&self, guest: u64) -> Option<(NonNull<u8>, u64, &Mapping)> {
        let after = self.regions.partition_point(|region| region.guest <= guest);
        let region = &self.regions[after.checked_sub(1)?];
        let offset = guest - region.guest;
        let left = region.bytes().checked_sub(offset).filter(|left| *left > 0)?;
        // SAFETY: the offset is below the mapping's length.
        Some((unsafe { region.mapping.start().add(offset as usize) }, left, &region.mapping))
    }

    /// The pointer to `bytes` bytes in one piece, if the guest has them.
    pub(crate) fn piece(&self, guest: u64, bytes: u64) -> Option<NonNull<u8>> {
        self.find(guest).filter(|(_, left, _)| *left >= bytes).map(|(start, _, _)| start)
    }

    /// What the guest calls an address of the front end, if `bytes` bytes from there on are in one piece.
    pub(crate) fn guest_of_user(&self, user: u64, bytes: u64) -> Option<u64> {
        let inside = |region: &&Region| {
            let offset = user.checked_sub(region.user);
            offset.and_then(|offset| offset.checked_add(bytes)).is_some_and(|end| end <= region.bytes())
        };
        self.regions.iter().find(inside).map(|region| region.guest + (user - region.user))
    }

    /// In how many pieces of mapped memory these bytes lie, if the guest has them.
    pub(crate) fn pieces(&self, guest: u64, bytes: u64) -> Result<u32, Outside> {
        let mut pieces = 0;
        self.for_each(guest, bytes, |_, _, _| pieces += 1)?;
        Ok(pieces)
    }

    /// Calls `visit` with the pieces of a range. On an error some may have been visited.
    fn for_each(&self, mut guest: u64, mut bytes: u64, mut visit: impl FnMut(NonNull<u8>, usize, &Mapping)) -> Result<(), Outside> {
        while bytes > 0 {
            let (start, left, mapping) = self.find(guest).ok_or(Outside)?;
            let count = left.min(bytes);
            visit(start, count as usize, mapping);
            guest = guest.checked_add(count).ok_or(Outside)?;
            bytes -= count;
        }
        Ok(())
    }

    /// Copies out of the guest's memory.
    ///
    /// # Errors
    /// Also if it was taken away, before or meanwhile: what was copied then are zeroes that the guest never wrote.
    pub(crate) fn read(&self, guest: u64, into: &mut [u8]) -> Result<(), Outside> {
        let (mut done, mut struck) = (0, false);
        self.for_each(guest, into.len() as u64, |start, count, mapping| {
            // SAFETY: `count` bytes are mapped there; `into` is our own memory, of that length from `done` on. The guest may write
            // meanwhile: then any mix of bytes is copied, and all are valid.
            unsafe { std::ptr::copy_nonoverlapping(start.as_ptr(), into[done..done + count].as_mut_ptr(), count) };
            struck |= is_struck_now(mapping);
            done += count;
        })?;
        if struck { Err(Outside) } else { Ok(()) }
    }

    /// Copies into the guest's memory.
    ///
    /// # Errors
    /// As for [`GuestMemory::read`].
    pub(crate) fn write(&self, guest: u64, from: &[u8]) -> Result<(), Outside> {
        let (mut done, mut struck) = (0, false);
        self.for_each(guest, from.len() as u64, |start, count, mapping| {
            // SAFETY: as in `read`; nothing of ours refers to the guest's memory.
            unsafe { std::ptr::copy_nonoverlapping(from[done..done + count].as_ptr(), start.as_ptr(), count) };
            struck |= is_struck_now(mapping);
            done += count;
        })?;
        if struck { Err(Outside) } else { Ok(()) }
    }
}

/// Whether what was just copied was not there. The guard says so before zeroes come in its place, so whoever saw them sees that.
fn is_struck_now(mapping: &Mapping) -> bool {
    // The handler may have run inside the copy, in this thread or another.
    compiler_fence(Ordering::SeqCst);
    fence(Ordering::Acquire);
    mapping.is_struck()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::os::fd::OwnedFd;

    pub(crate) fn memfd(bytes: u64) -> OwnedFd {
        let file = memfd_create("guest", MemfdFlags::CLOEXEC).expect("memory");
        ftruncate(&file, bytes).expect("memory");
        file
    }

    pub(crate) fn region(guest: u64, user: u64, bytes: u64) -> Region {
        Region { guest, user, mapping: Arc::new(Mapping::new(&memfd(bytes), 0, bytes).expect("mapped")) }
    }

    #[test]
    fn addresses_outside_are_refused_and_neighbours_are_one() {
        let memory = GuestMemory::new(vec![region(0x2000, 0x9000, 0x1000), region(0x1000, 0x5000, 0x1000)]).expect("apart");
        memory.write(0x1ffe, &[1, 2, 3, 4]).expect("over the seam");
        let mut bytes = [0; 4];
        memory.read(0x1ffe, &mut bytes).expect("over the seam");
        assert_eq!(bytes, [1, 2, 3, 4]);
        memory.read(0x2000, &mut bytes[..2]).expect("inside");
        assert_eq!(bytes[..2], [3, 4]);
        for (guest, count) in [(0xfff, 4), (0x2ffd, 4), (0x3000, 1), (u64::MAX, 1), (u64::MAX - 1, 4), (0, 1)] {
            assert_eq!(memory.read(guest, &mut bytes[..count]), Err(Outside), "{guest:x}");
            assert_eq!(memory.write(guest, &bytes[..count]), Err(Outside), "{guest:x}");
            assert_eq!(memory.pieces(guest, count as u64), Err(Outside));
        }
        assert_eq!((memory.pieces(0x1ffe, 4), memory.pieces(0x1000, 0)), (Ok(2), Ok(0)));
        assert!(memory.piece(0x1000, 0x1000).is_some() && memory.piece(0x1000, 0x1001).is_none());
        assert_eq!(memory.guest_of_user(0x9010, 0xff0), Some(0x2010));
        assert_eq!(memory.guest_of_user(0x9010, 0xff1), None);
        assert_eq!(memory.guest_of_user(0x9010, u64::MAX), None);
    }

    #[test]
    fn regions_may_not_overlap() {
        assert!(GuestMemory::new(vec![region(0x1000, 0x1000, 0x2000), region(0x2000, 0x9000, 0x1000)]).is_err());
        assert!(GuestMemory::new(vec![region(0x1000, 0x1000, 0x2000), region(0x9000, 0x2000, 0x1000)]).is_err());
        assert!(GuestMemory::new(vec![region(u64::MAX - 0xfff, 0, 0x2000)]).is_err());
        let memory = GuestMemory::new(vec![region(0x1000, 0x1000, 0x1000)]).expect("one");
        assert!(memory.with(region(0x1800, 0x9000, 0x1000)).is_err());
        let two = memory.with(region(0x2000, 0x9000, 0x1000)).expect("apart");
        assert!(two.without(0x2000, 0x9000, 0x800).is_err());
        assert_eq!(two.without(0x1000, 0x1000, 0x1000).expect("there").len(), 1);
    }

    /// A guest whose memory is taken away is found out at once, and this process goes on.
    #[test]
    fn memory_that_is_taken_away_ends_nobody() {
        let file = memfd(0x4000);
        let mapping = Arc::new(Mapping::new(&file, 0x1000, 0x3000).expect("mapped"));
        let memory = GuestMemory::new(vec![Region { guest: 0, user: 0, mapping }]).expect("one");
        memory.write(0x10, &[7; 4]).expect("inside");
        ftruncate(&file, 0).expect("not sealed");
        let mut bytes = [1; 4];
        assert_eq!(memory.read(0x10, &mut bytes), Err(Outside));
        assert!(memory.is_struck());
        assert_eq!((bytes, memory.read(0x10, &mut bytes)), ([0; 4], Err(Outside)));
        assert_eq!(memory.write(0x2ffc, &[7; 4]), Err(Outside));
    }

    #[test]
    fn what_is_struck_spoils_nothing_beside_it() {
        let file = memfd(0x1000);
        let struck = Region { guest: 0x1000, user: 0x1000, mapping: Arc::new(Mapping::new(&file, 0, 0x1000).expect("mapped")) };
        let memory = GuestMemory::new(vec![region(0, 0, 0x1000), struck]).expect("apart");
        memory.write(0xffe, &[1, 2, 3, 4]).expect("inside");
        ftruncate(&file, 0).expect("not sealed");
        let mut bytes = [9; 4];
        assert_eq!(memory.read(0xffe, &mut bytes), Err(Outside));
        memory.read(0xffc, &mut bytes).expect("this part is there");
        assert_eq!(bytes, [0, 0, 1, 2]);
    }

    #[test]
    fn only_memory_is_mapped() {
        let disk = std::fs::File::open("/proc/self/exe").expect("this program");
        assert!(Mapping::new(&disk.into(), 0, 4096).is_err());
        assert!(Mapping::new(&std::fs::File::open("/dev/zero").expect("a device").into(), 0, 4096).is_err());
        assert!(Mapping::new(&memfd(4096), 0, 4097).is_err());
        assert!(Mapping::new(&memfd(4096), u64::MAX, 4096).is_err());
        assert!(Mapping::new(&memfd(4096), 0, 0).is_err());
    }
}
