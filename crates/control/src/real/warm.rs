//! Warming: reading a range through the volume, so that it enters the cache.
//!
//! A warm-up reads as a client would, several pieces at a time. Its reads say that they are wanted: what is asked for by name needs no proof
//! of re-use. What clients read meanwhile is judged as ever.

use super::{Machine, failed};
use crate::error::ControlError;
use crate::state::VolumeRecord;
use engine::api::{Op, Reply, Request, RequestError};
use page::PageVec;
use runtime::{Context, Endpoint, Refused, VolumeRef};
use std::collections::VecDeque;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;
use types::{SECTOR_BYTES, VolumeIndex};

/// Reads in flight: enough for an array of disks, few enough to leave room for clients.
const IN_FLIGHT_MAX: usize = 4;
/// How long one step may take.
const PATIENCE: Duration = Duration::from_secs(120);

impl Machine {
    pub(super) fn warm_part(&self, record: &VolumeRecord, offset_bytes: u64, length_bytes: u64) -> Result<(), ControlError> {
        let volume = self.volume(&record.name)?.reference.clone();
        let piece_bytes = record.options.max_io_bytes.min(64 << 10).max(u64::from(volume.logical_block_bytes()));
        let end_bytes = (offset_bytes + length_bytes).min(volume.size_bytes());
        let block_bytes = u64::from(volume.logical_block_bytes());
        let mut pieces = VecDeque::new();
        let mut at_bytes = offset_bytes / block_bytes * block_bytes;
        while at_bytes < end_bytes {
            let length_bytes = piece_bytes.min(end_bytes.next_multiple_of(block_bytes) - at_bytes);
            pieces.push_back((at_bytes / SECTOR_BYTES, (length_bytes / SECTOR_BYTES) as u32));
            at_bytes += length_bytes;
        }
        let (done, ended) = channel();
        let group = self.runtime.add_endpoint(Box::new(Warmer { volume, pieces, in_flight: 0, next_id: 0, result: Ok(()), done }));
        match ended.recv_timeout(PATIENCE) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(failed(&format!("a read failed ({error:?})"), "check the backing device, then try again")),
            Err(_) => {
                self.runtime.stop_endpoints(&group, Duration::ZERO).map_err(|e| failed(&e, ""))?;
                Err(failed(&"the backing device does not answer", "check it, then try again"))
            }
        }
    }
}

struct Warmer {
    volume: VolumeRef,
    pieces: VecDeque<(u64, u32)>,
    in_flight: usize,
    next_id: u64,
    result: Result<(), RequestError>,
    done: Sender<Result<(), RequestError>>,
}

impl Warmer {
    fn go_on(&mut self, cx: &mut Context<'_>) {
        while self.in_flight < IN_FLIGHT_MAX
            && self.result.is_ok()
            && let Some((start_sector, sectors)) = self.pieces.pop_front()
        {
            let request = Request {
                id: self.next_id,
                volume: VolumeIndex(0),
                op: Op::Read,
                fua: false,
                start_sector,
                sectors,
                pages: PageVec::new(),
                bypass: None,
                wanted: true,
                range: None,
            };
            match cx.submit(&self.volume, request) {
                Ok(()) => (self.next_id, self.in_flight) = (self.next_id + 1, self.in_flight + 1),
                Err(Refused(_)) => {
                    self.pieces.push_front((start_sector, sectors));
                    return;
                }
            }
        }
        if self.in_flight == 0 {
            if self.done.send(self.result).is_err() {
                tracing::debug!("a warm-up ended after its job had been abandoned");
            }
            cx.close();
        }
    }
}

impl Endpoint for Warmer {
    fn start(&mut self, cx: &mut Context<'_>) {
        self.go_on(cx);
    }

    fn ring(&mut self, _cx: &mut Context<'_>, _token: u32, _result: i32, _flags: u32) {}

    fn reply(&mut self, cx: &mut Context<'_>, reply: Reply) {
        self.in_flight -= 1;
        self.result = self.result.and(reply.result);
        self.go_on(cx);
    }

    fn volume_available(&mut self, cx: &mut Context<'_>) {
        self.go_on(cx);
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        self.result = self.result.and(Err(RequestError::Shutdown));
        self.pieces.clear();
        if self.in_flight == 0 {
            self.go_on(cx);
        }
    }
}
