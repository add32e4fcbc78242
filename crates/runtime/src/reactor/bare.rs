//! Bare volumes: a device with nothing before it, for `hearth model` and as the baseline of comparisons.
//!
//! A request becomes one I/O, or one after the other for each part of the device that it lies in; any number may be in flight, and as with any disk, overlapping requests in flight have no order among
//! themselves. A flush is a flush of the device.

use super::Reactor;
use super::requests::blocks_touched;
use crate::device_io::{Finished, Owner};
use crate::volume::Route;
use engine::api::{Io, IoError, IoId, IoKind, Op, Outcome, RequestError, Target, WriteKind};
use page::PageVec;
use types::{SECTOR_BYTES, VolumeIndex};

/// What is left to do of a request that lies in more than one part of the device.
pub(crate) struct Parted {
    /// From that sector of the volume on, so many sectors.
    later: Option<(u64, u32, IoKind)>,
    /// What was read so far.
    read: PageVec,
}

impl Reactor {
    /// Starts a checked request.
    pub(crate) fn start_bare(&mut self, number: u32, pages: PageVec) {
        let request = self.requests.get(number).expect("just submitted");
        let fua = request.fua;
        match request.op {
            Op::Read => self.start_bare_read(number),
            Op::Write => self.start_bare_io(number, IoKind::Write { pages, fua }),
            Op::WriteZeroes | Op::PunchHole => {
                let hole = request.op == Op::PunchHole;
                self.start_bare_io(number, IoKind::WriteZeroes { fua, hole });
            }
            Op::Discard => self.start_bare_io(number, IoKind::Discard),
            Op::Flush => self.start_bare_io(number, IoKind::Flush),
        }
    }

    /// Starts a read, now or when there are pages for it.
    pub(crate) fn start_bare_read(&mut self, number: u32) {
        let request = self.requests.get(number).expect("a read waits until it is answered");
        let pages = blocks_touched(request.start_sector, request.sectors);
        let volume = self.volume_of(request).shared.clone();
        if let Some(pages) = self.page_waiters.allocate_for_bare_read(number, &volume.0, pages) {
            self.start_bare_io(number, IoKind::Read(pages));
        }
    }

    fn start_bare_io(&mut self, number: u32, kind: IoKind) {
        let request = self.requests.get(number).expect("in flight");
        match kind {
            IoKind::Flush => self.submit_bare(number, 0, 0, IoKind::Flush),
            kind => self.start_bare_run(number, request.start_sector, request.sectors, kind),
        }
    }

    /// Starts what of this lies in a row on the device. The rest comes when that is done.
    fn start_bare_run(&mut self, number: u32, start_sector: u64, sectors: u32, mut kind: IoKind) {
        let request = self.requests.get(number).expect("in flight");
        let (offset_bytes, run_bytes) = self.volume_of(request).shared.0.parts.place_of(start_sector * SECTOR_BYTES);
        let here = u32::try_from(run_bytes / SECTOR_BYTES).unwrap_or(u32::MAX).min(sectors);
        if here < sectors {
            // Parts begin and end with whole blocks.
            let blocks = blocks_touched(start_sector, here);
            let later = match &mut kind {
                IoKind::Read(pages) => IoKind::Read(pages.drain(blocks..).collect()),
                IoKind::Write { pages, fua } => IoKind::Write { pages: pages.drain(blocks..).collect(), fua: *fua },
                IoKind::WriteZeroes { fua, hole } => IoKind::WriteZeroes { fua: *fua, hole: *hole },
                IoKind::Discard => IoKind::Discard,
                IoKind::Flush => unreachable!("a flush is of the whole device"),
            };
            let later = Some((start_sector + u64::from(here), sectors - here, later));
            let request = self.requests.get_mut(number).expect("in flight");
            request.parted.get_or_insert_with(|| Box::new(Parted { later: None, read: PageVec::new() })).later = later;
        }
        self.submit_bare(number, offset_bytes, u64::from(here) * SECTOR_BYTES, kind);
    }

    fn submit_bare(&mut self, number: u32, offset_bytes: u64, length_bytes: u64, kind: IoKind) {
        let request = self.requests.get(number).expect("in flight");
        let Route::Bare { device } = self.volume_of(request).route else { unreachable!("routed by volume") };
        let target = Target::Backing(VolumeIndex(0));
        let io = Io { id: IoId(u64::from(number)), target, offset_bytes, length_bytes, kind, writes: WriteKind::Other, background: false };
        self.devices.submit(&mut self.ring, self.now_ns, device, io, Owner::Bare(number));
    }

    /// The device has answered.
    pub(crate) fn bare_io_done(&mut self, number: u32, finished: Finished) {
        let Finished { result, pages, .. } = finished;
        let request = self.requests.get_mut(number).expect("in flight");
        let (op, fua) = (request.op, request.fua);
        let result = match result {
            Ok(()) => Ok(()),
            // A device that cannot discard keeps its content, which a discard allows.
            Err(IoError::Unsupported) if op == Op::Discard => Ok(()),
            Err(IoError::NoSpace) => Err(RequestError::NoSpace),
            Err(IoError::Failed | IoError::Unsupported) => Err(RequestError::Io),
        };
        let mut pages: PageVec = match result {
            Ok(()) => pages.into_iter().map(page::PageMut::freeze).collect(),
            Err(_) => PageVec::new(),
        };
        if let Some(parted) = request.parted.as_mut().filter(|_| result.is_ok()) {
            parted.read.append(&mut pages);
            if let Some((start_sector, sectors, kind)) = parted.later.take() {
                return self.start_bare_run(number, start_sector, sectors, kind);
            }
            pages = std::mem::take(&mut parted.read);
        }
        if op == Op::Discard && fua && result.is_ok() && !std::mem::replace(&mut request.flush_after, true) {
            return self.start_bare_io(number, IoKind::Flush);
        }
        let outcome = if matches!(op, Op::Read) && result.is_ok() { Outcome::Miss } else { Outcome::Other };
        self.finish_request(number, result, pages, outcome);
    }
}
