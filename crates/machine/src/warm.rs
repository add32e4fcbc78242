//! Reading pieces of a volume into the cache, for warm-ups and preloads, in the order of the disk.
//!
//! What is to be kept is read as *wanted*: what is asked for by name needs no proof of re-use. Gaps are read around the cache. What clients read meanwhile
//! is judged as ever.

use super::{Machine, failed};
use api::error::ControlError;
use datapath::Piece;
use datapath::Warming;
use engine::api::{Origin, Reply, Request, RequestError};
use records::state::VolumeRecord;
use runtime::{Context, Endpoint, Refused, VolumeRef};
use std::collections::{BTreeSet, VecDeque};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;
use types::{SECTOR_BYTES, VolumeIndex};

/// Reads in flight: while one is on its way back, the disk reads the next one. Of up to 1 MiB each they keep the disks of an array busy too, whose
/// chunks are smaller. More would keep clients waiting.
const IN_FLIGHT_MAX: usize = 2;
/// How long the pieces of one call may take: devices are given up later than this by whoever watches them.
const PATIENCE: Duration = Duration::from_secs(120);

/// How many pieces, from the first on, were read, and whether a read failed.
type Ended = (usize, Result<(), RequestError>);

struct Warmer {
    volume: VolumeRef,
    /// By their numbers, which are the ids of their requests.
    waiting: VecDeque<(usize, Piece)>,
    under_way: BTreeSet<usize>,
    /// The first piece that failed.
    failed: Option<usize>,
    result: Result<(), RequestError>,
    pieces: usize,
    done: Sender<Ended>,
}

impl Warmer {
    fn go_on(&mut self, cx: &mut Context<'_>) {
        while self.under_way.len() < IN_FLIGHT_MAX
            && self.result.is_ok()
            && let Some((number, piece)) = self.waiting.pop_front()
        {
            match cx.submit(&self.volume, request(number, piece)) {
                Ok(()) => drop(self.under_way.insert(number)),
                Err(Refused(_)) => {
                    self.waiting.push_front((number, piece));
                    return;
                }
            }
        }
        if self.under_way.is_empty() {
            let not_begun = self.waiting.front().map_or(self.pieces, |(number, _)| *number);
            let count = self.failed.map_or(not_begun, |failed| failed.min(not_begun));
            if self.done.send((count, self.result)).is_err() {
                tracing::debug!("a warm-up ended after its job had been abandoned");
            }
            cx.close();
        }
    }
}

/// A gap between two pieces is read, too, but stays out of the cache.
fn request(number: usize, piece: Piece) -> Request {
    let origin = if piece.is_kept { Origin::Warm } else { Origin::Look };
    let (start_sector, sectors) = (piece.at_bytes / SECTOR_BYTES, (piece.length_bytes / SECTOR_BYTES) as u32);
    Request::read(number as u64, VolumeIndex(0), start_sector, sectors, origin)
}

impl Endpoint for Warmer {
    fn start(&mut self, cx: &mut Context<'_>) {
        self.go_on(cx);
    }

    fn ring(&mut self, _cx: &mut Context<'_>, _token: u32, _result: i32, _flags: u32) {}

    fn reply(&mut self, cx: &mut Context<'_>, reply: Reply) {
        let number = reply.id as usize;
        self.under_way.remove(&number);
        if reply.result.is_err() {
            self.failed = Some(self.failed.map_or(number, |failed| failed.min(number)));
        }
        self.result = self.result.and(reply.result);
        self.go_on(cx);
    }

    fn volume_available(&mut self, cx: &mut Context<'_>) {
        self.go_on(cx);
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        self.result = self.result.and(Err(RequestError::Shutdown));
        if self.under_way.is_empty() {
            self.go_on(cx);
        }
    }
}

impl Warming for Machine {
    fn warm(&self, record: &VolumeRecord, pieces: &[Piece]) -> (usize, Result<(), ControlError>) {
        let volume = match self.volume(&record.name) {
            Ok(volume) => volume.reference.clone(),
            Err(error) => return (0, Err(error)),
        };
        let (done, ended) = channel();
        let waiting = pieces.iter().copied().enumerate().collect();
        let warmer = Warmer { volume, waiting, under_way: BTreeSet::new(), failed: None, result: Ok(()), pieces: pieces.len(), done };
        let group = self.runtime.add_endpoint(Box::new(warmer));
        match ended.recv_timeout(PATIENCE) {
            Ok((count, result)) => {
                let told = |error| failed(format!("a read failed ({error:?})"), "check the backing device, then try again");
                (count, result.map_err(told))
            }
            Err(_) => {
                if let Err(error) = self.runtime.stop_endpoints(&group, Duration::ZERO) {
                    return (0, Err(failed(error, "")));
                }
                (0, Err(failed("the backing device does not answer", "check it, then try again")))
            }
        }
    }

    fn piece_bytes_max(&self, volume: &VolumeRecord) -> u64 {
        self.volume(&volume.name).map_or(types::EXTENT_BYTES, |volume| u64::from(volume.reference.request_bytes_max()))
    }
}

#[cfg(test)]
mod tests;
