//! A device that does not answer: who waits for it, and how it is given up without a word from it.
//!
//! The owners of its I/Os get an error, as from a device that fails. The kernel still has the entries and may read and write their
//! memory at any time, so each [`Active`] stays in the table, owned by nobody, until its entry completes, if ever: a reactor that ends
//! before is not freed.

use super::transfer::{Waits, Work};
use super::{Device, DeviceIo, Finished, Owner};
use crate::ring::Ring;
use crate::waits::DeviceWait;
use engine::api::IoError;
use page::PageMutVec;

impl DeviceIo {
    /// How the devices known here stand, by number. What waits for a flush that others asked for is counted with those it waits with.
    pub(crate) fn waits(&self, now_ns: u64) -> Vec<(u32, DeviceWait)> {
        let known = (0u32..).zip(&self.devices).filter_map(|(number, device)| Some((number, device.as_ref()?)));
        let wait = |(number, device): (u32, &Device)| {
            let mut wait = DeviceWait { silent_ns: now_ns.saturating_sub(device.answered_ns), ..DeviceWait::default() };
            for (_, active) in self.active.iter().filter(|(_, active)| active.device == number) {
                match active.owner {
                    Owner::Nobody => wait.stuck += 1,
                    // Those who wait for this flush are counted.
                    Owner::Gate => {}
                    Owner::Bare(_) | Owner::Shard { .. } | Owner::Remote { .. } => {
                        wait.requests += 1;
                        wait.oldest_ns = wait.oldest_ns.max(now_ns.saturating_sub(active.submitted_ns));
                    }
                }
            }
            (number, wait)
        };
        known.map(wait).collect()
    }

    /// Whether the kernel still has I/Os of devices that were given up.
    pub(crate) fn has_orphans(&self) -> bool {
        self.orphans > 0
    }

    /// Fails everything in flight of a device, and whatever comes later.
    pub(crate) fn give_up(&mut self, ring: &mut Ring, now_ns: u64, number: u32) {
        let Some(device) = self.devices.get_mut(number as usize).and_then(Option::as_mut) else { return };
        device.given_up = true;
        // What it holds back is answered here; its tokens would come to I/Os that are not there any more.
        device.model = None;
        let of_device = |(slot, active): (u32, &super::Active)| (active.device == number).then_some((slot, active.waits));
        let slots: Vec<(u32, Waits)> = self.active.iter().filter_map(of_device).collect();
        self.retries.retain(|(_, slot)| !slots.iter().any(|(other, _)| other == slot));
        for (slot, waits) in slots {
            match waits {
                Waits::Kernel => self.orphan(ring, now_ns, slot),
                Waits::Retry | Waits::Model => self.finish(ring, now_ns, slot, Err(IoError::Failed)),
                // Whichever reactor has the flush gives it up as well, and answers all who wait for it.
                Waits::Flush => {}
            }
        }
    }

    /// Forgets a device: at once, or when the kernel has completed what it still has of it. Gives how many I/Os that are.
    pub(crate) fn remove(&mut self, ring: &mut Ring, now_ns: u64, number: u32) -> usize {
        self.give_up(ring, now_ns, number);
        let Some(device) = self.devices.get_mut(number as usize).and_then(Option::as_mut) else { return 0 };
        device.leaving = true;
        let stuck = self.active.iter().filter(|(_, active)| active.device == number).count();
        self.forget_if_gone(number);
        stuck
    }

    /// Answers the owner; the kernel keeps the memory.
    fn orphan(&mut self, ring: &mut Ring, now_ns: u64, slot: u32) {
        let active = self.active.get_mut(slot).expect("just listed");
        let owner = std::mem::replace(&mut active.owner, Owner::Nobody);
        let (device, length_bytes, latency_ns) = (active.device, active.length_bytes, now_ns.saturating_sub(active.submitted_ns));
        let failed = Err(IoError::Failed);
        match owner {
            Owner::Nobody => return,
            Owner::Gate => {
                self.orphans += 1;
                self.device(device).stats.record_flush(latency_ns, false);
                return self.end_flush(ring, now_ns, device, false);
            }
            Owner::Bare(_) | Owner::Shard { .. } | Owner::Remote { .. } => {}
        }
        self.orphans += 1;
        let is_read = matches!(active.work, Work::Read(_));
        let is_write = matches!(active.work, Work::Write { .. });
        let stats = &mut self.device(device).stats;
        match (is_read, is_write) {
            (true, _) => stats.record_read(length_bytes, latency_ns, failed),
            (_, true) => stats.record_write(length_bytes, latency_ns, failed),
            _ => stats.record_trim(length_bytes, failed),
        }
        // The pages of a read stay with the kernel.
        self.answer(Finished { owner, result: failed, pages: PageMutVec::new() });
    }

    /// The kernel has let go of an I/O that belongs to nobody: its memory is free.
    pub(super) fn orphan_completed(&mut self, slot: u32) {
        let number = self.active.remove(slot).device;
        self.orphans -= 1;
        self.forget_if_gone(number);
    }

    /// A device that leaves goes with its last I/O.
    pub(super) fn forget_if_gone(&mut self, number: u32) {
        if !self.active.iter().any(|(_, active)| active.device == number) {
            self.devices[number as usize].take_if(|device| device.leaving);
        }
    }
}
