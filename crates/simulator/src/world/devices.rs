//! I/Os go to their devices and come back, with what struck them.

use engine::api::{Io, IoError, IoKind, Target};
use page::PageMutVec;
use types::{SsdIndex, VolumeIndex};

use super::blame::Answered;
use super::{Happening, Step, World};
use crate::course::Kind;
use crate::coverage::fault_of;
use crate::disk::faults::{Class, Strike};

/// A world's SSDs, numbered from 0; the backing devices of its volumes follow them.
const SSDS: usize = 1;

/// The number of the device that an I/O is for.
pub fn device_of(target: Target) -> usize {
    match target {
        Target::Ssd(ssd) => usize::from(ssd.0),
        Target::Backing(volume) => SSDS + usize::from(volume.0),
    }
}

/// What is the device of that number.
pub fn target_of(device: usize) -> Target {
    match device.checked_sub(SSDS) {
        None => Target::Ssd(SsdIndex(device as u8)),
        Some(volume) => Target::Backing(VolumeIndex(volume as u16)),
    }
}

/// The number of a volume's backing device.
pub fn backing_of(volume: u16) -> usize {
    device_of(Target::Backing(VolumeIndex(volume)))
}

/// The device, for people.
pub fn name_of(device: usize) -> String {
    match target_of(device) {
        Target::Ssd(_) => "SSD".to_string(),
        Target::Backing(volume) => format!("backing {}", volume.0),
    }
}

impl World<'_> {
    /// An I/O that a shard wants.
    pub fn io_begin(&mut self, lane: u16, io: Io) -> Step {
        let device = device_of(io.target);
        self.stats.ios += 1;
        self.note(2 + device as u64, io.offset_bytes ^ io.length_bytes << 40 ^ u64::from(lane) << 60);
        self.watch_io(device, &io, "begins", None);
        self.commits.io_begins(&io);
        if device == 0 {
            self.check_no_race_on_ssd(&io)?;
            self.see_log_write(lane, &io);
        }
        if !matches!(io.kind, IoKind::Flush) || self.flush_begins(device, lane, io.id) {
            self.device_begin(device, lane, io);
        }
        Ok(())
    }

    /// Hands an I/O to its device.
    pub fn device_begin(&mut self, device: usize, lane: u16, io: Io) {
        let now = self.queue.now_ns();
        let choice = (Kind::Strike(device), self.disk_prng.scene((device, crate::disk::name_of(&io))));
        let disk = &mut self.devices[device];
        disk.faults.veto = !self.course.may_strike(choice);
        let budget = disk.faults.budget;
        let (token, delay_ns) = disk.begin(now, lane, io, &mut self.disk_prng);
        if disk.faults.budget < budget || disk.faults.struck.contains(&Class::Latency) {
            self.course.note(choice, || format!("{}: {} takes {delay_ns} ns", name_of(device), disk.in_words(token)));
        }
        self.queue.after(delay_ns, Happening::IoDone(device, token));
        self.count_strikes(device);
    }

    /// A device is done with an I/O.
    pub fn io_done(&mut self, device: usize, token: u64) {
        if self.watch.is_some() {
            self.tell_io_done(device, token);
        }
        let (is_flush, is_read) = (self.devices[device].is_flush(token), self.devices[device].is_read(token));
        let (offset_bytes, length_bytes) = self.devices[device].place(token);
        if device == 0 && is_flush && self.devices[0].will_drop(token) {
            let dropped = self.devices[0].media.unflushed_pages();
            let next_token = self.devices[0].next_token();
            dropped.iter().for_each(|page| self.blame.taint(page * 4096, 4096, next_token));
        }
        self.disk_prng.scene(("done", device, self.devices[device].name(token)));
        let (lane, mut completion, strike) = self.devices[device].finish(token, &mut self.disk_prng);
        if device == 0 && self.watch.is_some() {
            let found = self.copies_in(offset_bytes, completion.pages.iter().map(|page| &page[..]));
            if !found.is_empty() {
                self.tell(format!("SSD: I/O {} of lane {lane} has read{found}", completion.id.0));
            }
        }
        match strike {
            Strike::FlushError { drop_pages: true } => match target_of(device) {
                Target::Ssd(_) => self.give_up_unsettled(),
                Target::Backing(volume) => self.oracle.drop_unflushed(volume.0),
            },
            Strike::Lost | Strike::Misdirected { .. } | Strike::Rot if device == 0 => {
                self.ssd_lied |= self.plan.ssd_faults.corrupt_write_per_10k > 0;
            }
            _ => {}
        }
        let now = self.queue.now_ns();
        if is_flush {
            if let (0, Strike::FlushError { drop_pages: true }) = (device, strike) {
                self.blame.ssd_harmed = true;
            }
            return self.flush_ended(device, lane, completion.id, completion.result);
        }
        if !is_read && self.has_failed_a_flush(device) {
            completion.result = Err(IoError::Failed);
        }
        if device == 0 {
            self.log_writes.ends(lane, completion.id);
            let (next_token, failed) = (self.devices[0].next_token(), completion.result.is_err());
            self.blame.ssd_answered(Answered { lane, token, next_token, offset_bytes, length_bytes, is_read, strike, failed }, now);
        } else if completion.result.is_err() {
            self.blame.strikes(device, now);
            // A host that has given the device up leaves the pages to the kernel.
            if token.is_multiple_of(2) {
                completion.pages = PageMutVec::new();
            }
        }
        self.answer_io(lane, completion);
    }

    /// Counts what struck a device, in the phases of this moment.
    pub fn count_strikes(&mut self, device: usize) {
        let struck = std::mem::take(&mut self.devices[device].faults.struck);
        for class in struck {
            self.cover(fault_of(class, device == 0));
        }
    }
}
