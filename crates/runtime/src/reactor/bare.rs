//! Bare volumes: a device with nothing before it, for `hearth model` and as the baseline of comparisons.
//!
//! A request becomes one I/O; any number may be in flight, and as with any disk, overlapping requests in flight have no order among
//! themselves. A flush is a flush of the device.

use super::Reactor;
use super::requests::blocks_touched;
use crate::device_io::{Finished, Owner};
use crate::volume::Route;
use engine::api::{Io, IoError, IoId, IoKind, Op, Outcome, RequestError, Target};
use page::PageVec;
use types::{SECTOR_BYTES, VolumeIndex};

impl Reactor {
    /// Starts a checked request.
    pub(crate) fn start_bare(&mut self, number: u32, pages: PageVec) {
        let request = self.requests.get(number).expect("just submitted");
        let fua = request.fua;
        match request.op {
            Op::Read => self.start_bare_read(number),
            Op::Write => self.start_bare_io(number, IoKind::Write { pages, fua }),
            Op::WriteZeroes => self.start_bare_io(number, IoKind::WriteZeroes { fua }),
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
        let Route::Bare { device } = self.volume_of(request).route else { unreachable!("routed by volume") };
        let is_flush = matches!(kind, IoKind::Flush);
        let io = Io {
            id: IoId(u64::from(number)),
            target: Target::Backing(VolumeIndex(0)),
            offset_bytes: if is_flush { 0 } else { request.start_sector * SECTOR_BYTES },
            length_bytes: if is_flush { 0 } else { u64::from(request.sectors) * SECTOR_BYTES },
            kind,
            background: false,
        };
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
        if op == Op::Discard && fua && result.is_ok() && !std::mem::replace(&mut request.flush_after, true) {
            return self.start_bare_io(number, IoKind::Flush);
        }
        let pages = match result {
            Ok(()) => pages.into_iter().map(page::PageMut::freeze).collect(),
            Err(_) => PageVec::new(),
        };
        let outcome = if matches!(op, Op::Read) && result.is_ok() { Outcome::Miss } else { Outcome::Other };
        self.finish_request(number, result, pages, outcome);
    }
}
