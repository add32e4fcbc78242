//! Requests of endpoints: checked, counted, given to what serves the volume, and answered.

use super::bare::Parted;
use super::watching::{Glance, Seen};
use super::{Callback, Reactor};
use crate::all_stats::Changed;
use crate::endpoint::{EndpointKey, Refused};
use crate::stats::{Answered, VolumeStats};
use crate::tapped::Used;
use crate::volume::{Route, VolumeRef, VolumeShared};
use engine::api::{Op, Outcome, Reply, Request, RequestError};
use page::PageVec;
use std::collections::BTreeMap;
use std::sync::mpsc::Sender;
use types::{BLOCK_SECTORS, SECTOR_BYTES};

/// A volume on this reactor.
pub(crate) struct LocalVolume {
    pub(crate) shared: VolumeRef,
    pub(crate) route: Route,
    in_flight: u32,
    in_flight_max: u32,
    /// Endpoints that were refused.
    line: Vec<EndpointKey>,
    pub(crate) stats: Box<VolumeStats>,
    pub(crate) used: Used,
    /// It goes away: who is told when nothing is in flight. Nobody: it stays.
    pub(crate) removing: Vec<Sender<()>>,
}

/// A request between submit and reply.
pub(crate) struct ClientRequest {
    pub(crate) endpoint: EndpointKey,
    client_id: u64,
    volume: u32,
    pub(crate) op: Op,
    pub(crate) fua: bool,
    pub(crate) start_sector: u64,
    pub(crate) sectors: u32,
    submitted_ns: u64,
    pub(crate) glance: Glance,
    /// Hearth's own, of a warm-up: no client waits for it.
    own: bool,
    /// For bare volumes: a flush must follow (FUA on what has none of its own).
    pub(crate) flush_after: bool,
    /// For bare volumes: it lies in more than one part of the device.
    pub(crate) parted: Option<Box<Parted>>,
}

/// Blocks that the sectors touch.
pub(crate) fn blocks_touched(start_sector: u64, sectors: u32) -> usize {
    (start_sector % BLOCK_SECTORS + u64::from(sectors)).div_ceil(BLOCK_SECTORS) as usize
}

/// What a well-behaved client never sends.
fn check(volume: &VolumeShared, volume_ref: &VolumeRef, request: &Request) -> Result<(), RequestError> {
    if request.op == Op::Flush {
        return Ok(());
    }
    let block_sectors = u64::from(volume.logical_block_bytes) / SECTOR_BYTES;
    let sectors = u64::from(request.sectors);
    let size_sectors = volume_ref.size_bytes() / SECTOR_BYTES;
    let inside = request.start_sector.checked_add(sectors).is_some_and(|end| end <= size_sectors);
    if sectors == 0 || !inside || !(request.start_sector | sectors).is_multiple_of(block_sectors) {
        return Err(RequestError::Invalid);
    }
    let moves_data = matches!(request.op, Op::Read | Op::Write);
    if moves_data && sectors * SECTOR_BYTES > u64::from(volume_ref.request_bytes_max()) {
        return Err(RequestError::Invalid);
    }
    if request.op == Op::Write && request.pages.len() != blocks_touched(request.start_sector, request.sectors) {
        return Err(RequestError::Invalid);
    }
    if request.op != Op::Read && volume_ref.read_only() {
        return Err(RequestError::ReadOnly);
    }
    Ok(())
}

impl Reactor {
    pub(crate) fn add_volume_here(&mut self, shared: VolumeRef, in_flight_max: u32) {
        let number = shared.0.number as usize;
        if self.volumes.len() <= number {
            self.volumes.resize_with(number + 1, || None);
        }
        self.volumes[number] = Some(LocalVolume {
            route: shared.0.route,
            shared,
            in_flight: 0,
            in_flight_max,
            line: Vec::new(),
            stats: Box::default(),
            used: Used::default(),
            removing: Vec::new(),
        });
    }

    /// Starts the removal of a volume: new requests are refused as shut down; `done` is told when the last is answered.
    pub(crate) fn remove_volume_here(&mut self, number: u32, done: Sender<()>) {
        if let Some(volume) = self.volumes[number as usize].as_mut() {
            // Whoever asked before waits on: its sender, dropped, would say that the volume is gone.
            volume.removing.push(done);
            self.end_removal_if_quiet(number);
        }
    }

    fn end_removal_if_quiet(&mut self, number: u32) {
        let place = &mut self.volumes[number as usize];
        if let Some(volume) = place.take_if(|volume| volume.in_flight == 0 && !volume.removing.is_empty()) {
            for key in volume.line {
                self.callbacks.push_back(Callback::VolumeAvailable(key));
            }
            for done in volume.removing {
                // Whoever asked may have stopped waiting.
                let _ = done.send(());
            }
        }
    }

    pub(crate) fn volume_stats(&self, number: u32) -> Box<VolumeStats> {
        let Some(volume) = self.volumes.get(number as usize).and_then(Option::as_ref) else { return Box::default() };
        let mut stats = volume.stats.clone();
        stats.in_flight = u64::from(volume.in_flight);
        stats
    }

    pub(crate) fn changed_volume_stats(&self, known: &BTreeMap<u32, u64>) -> Changed {
        let here = || self.volumes.iter().flatten();
        let changed = here().filter(|v| known.get(&v.shared.0.number) != Some(&v.stats.requests()));
        let changed = changed.map(|v| (v.shared.0.number, self.volume_stats(v.shared.0.number))).collect();
        Changed { reactor: self.index, changed, numbers: here().map(|v| v.shared.0.number).collect() }
    }

    /// See `Context::submit`.
    pub(crate) fn submit_request(&mut self, key: EndpointKey, volume: &VolumeRef, mut request: Request) -> Result<(), Refused> {
        let local = self.volumes.get_mut(volume.0.number as usize).and_then(Option::as_mut);
        let Some(local) = local.filter(|local| local.removing.is_empty()) else {
            self.callbacks.push_back(Callback::Reply(key, failure(request.id, RequestError::Shutdown)));
            return Ok(());
        };
        if local.in_flight >= local.in_flight_max {
            local.stats.limit_waits += 1;
            if !local.line.contains(&key) {
                local.line.push(key);
            }
            return Err(Refused(request));
        }
        request.fua &= matches!(request.op, Op::Write | Op::WriteZeroes | Op::Discard | Op::PunchHole);
        if let Err(error) = check(&volume.0, volume, &request) {
            local.stats.record(&Answered {
                op: request.op,
                fua: request.fua,
                bytes: 0,
                result: Err(error),
                outcome: Outcome::Other,
                latency_ns: 0,
            });
            self.callbacks.push_back(Callback::Reply(key, failure(request.id, error)));
            return Ok(());
        }
        local.in_flight += 1;
        self.requests_taken += 1;
        let route = local.route;
        if request.op == Op::Flush {
            (request.start_sector, request.sectors) = (0, 0);
        }
        if request.op != Op::Write {
            request.pages.clear();
        }
        let glance = Glance::of(volume, self.directory.recognise.get(), &request);
        let own = request.origin().is_own();
        let number = self.requests.insert(ClientRequest {
            endpoint: key,
            client_id: request.id,
            volume: volume.0.number,
            op: request.op,
            fua: request.fua,
            start_sector: request.start_sector,
            sectors: request.sectors,
            submitted_ns: self.now_ns,
            glance,
            own,
            flush_after: false,
            parted: None,
        });
        match route {
            Route::Bare { .. } => self.start_bare(number, request.pages),
            Route::Cached { pool, index } => {
                (request.id, request.volume) = (u64::from(number), index);
                match self.pool(pool) {
                    Some(part) => {
                        if part.submit(request) {
                            self.requests.get_mut(number).expect("just inserted").glance.sequential = true;
                        }
                    }
                    None => self.finish_request(number, Err(RequestError::Shutdown), PageVec::new(), Outcome::Other),
                }
            }
        }
        Ok(())
    }

    /// A request has its answer.
    pub(crate) fn finish_request(&mut self, number: u32, result: Result<(), RequestError>, pages: PageVec, outcome: Outcome) {
        let request = self.requests.remove(number);
        let volume = self.volumes[request.volume as usize].as_mut().expect("a volume outlives its requests");
        let mut is_full = false;
        if request.glance.watched && result.is_ok() {
            volume.used.add(&request);
            let recognise = self.directory.recognise.get();
            let endpoints = &self.endpoints;
            let seen = Seen { volume: &volume.shared, recognise, endpoints, now_ns: self.now_ns, outcome, pages: &pages };
            is_full = self.watching.note(&seen, &request);
        }
        volume.in_flight -= 1;
        // What hearth reads for itself is no client's.
        let bytes = u64::from(request.sectors) * SECTOR_BYTES;
        if request.own {
            volume.stats.record_own(bytes, result);
        } else {
            volume.stats.record(&Answered {
                op: request.op,
                fua: request.fua,
                bytes,
                result,
                outcome,
                latency_ns: self.now_ns.saturating_sub(request.submitted_ns),
            });
        }
        for key in volume.line.drain(..) {
            self.callbacks.push_back(Callback::VolumeAvailable(key));
        }
        let removing = !volume.removing.is_empty();
        let reply = Reply { id: request.client_id, result, pages, outcome, range: None };
        self.callbacks.push_back(Callback::Reply(request.endpoint, reply));
        if is_full {
            self.thin_samples();
        }
        if removing {
            self.end_removal_if_quiet(request.volume);
        }
    }

    /// Requests in flight to volumes of a pool.
    pub(crate) fn requests_of_pool(&self, number: u32) -> Vec<u32> {
        let of_pool = |request: &ClientRequest| matches!(self.volume_of(request).route, Route::Cached { pool, .. } if pool == number);
        self.requests.iter().filter(|(_, request)| of_pool(request)).map(|(number, _)| number).collect()
    }

    pub(crate) fn volume_of(&self, request: &ClientRequest) -> &LocalVolume {
        self.volumes[request.volume as usize].as_ref().expect("a volume outlives its requests")
    }
}

fn failure(id: u64, error: RequestError) -> Reply {
    Reply { id, result: Err(error), pages: PageVec::new(), outcome: Outcome::Other, range: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::ANY_VOLUME;
    use engine::api::Origin;
    use page::PagePool;
    use std::sync::Arc;

    fn judged(op: Op, start_sector: u64, sectors: u32, pages: usize) -> Result<(), RequestError> {
        let pool = PagePool::new(1024);
        let mut shared = VolumeShared::for_test(pool.clone(), 0);
        shared.logical_block_bytes = 4096;
        let volume = VolumeRef(Arc::new(shared));
        let pages = (0..pages).map(|_| pool.allocate().unwrap().freeze()).collect();
        let request = Request::new(1, ANY_VOLUME, op, start_sector, sectors, Origin::Client).pages(pages);
        check(&volume.0, &volume, &request)
    }

    #[test]
    fn requests_are_held_to_the_volumes_rules() {
        assert_eq!(judged(Op::Read, 8, 16, 0), Ok(()));
        assert_eq!(judged(Op::Flush, u64::MAX, 0, 0), Ok(()));
        assert_eq!(judged(Op::Write, 8, 16, 2), Ok(()));
        for (op, start_sector, sectors, pages) in [
            (Op::Read, 8, 0, 0),
            (Op::Read, 4, 8, 0),
            (Op::Read, 8, 4, 0),
            (Op::Read, 2040, 16, 0),
            (Op::Read, u64::MAX - 7, 16, 0),
            (Op::Read, 0, 1032, 0),
            (Op::Write, 8, 16, 1),
        ] {
            assert_eq!(judged(op, start_sector, sectors, pages), Err(RequestError::Invalid), "{op:?} {start_sector}+{sectors}");
        }
        assert_eq!(blocks_touched(7, 2), 2);
        assert_eq!(blocks_touched(0, 8), 1);
    }
}
