//! What is counted: at the boundary between endpoints and volumes, and at that between us and the devices.

use crate::latency::{Histogram, LatencySummary};
use engine::api::{IoError, Op, Outcome, RequestError};

/// Requests told apart for latency.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestClass {
    /// Reads.
    Read,
    /// Writes of data.
    Write,
    /// Flushes.
    Flush,
    /// Zeroes and discards.
    Trim,
}

impl RequestClass {
    /// All classes.
    pub const ALL: [RequestClass; 4] = [RequestClass::Read, RequestClass::Write, RequestClass::Flush, RequestClass::Trim];

    pub(crate) fn of(op: Op) -> RequestClass {
        match op {
            Op::Read => RequestClass::Read,
            Op::Write => RequestClass::Write,
            Op::Flush => RequestClass::Flush,
            Op::WriteZeroes | Op::Discard | Op::PunchHole => RequestClass::Trim,
        }
    }
}

/// All outcomes, in the order of their histograms.
pub const OUTCOMES: [Outcome; 8] = [
    Outcome::RamHit,
    Outcome::SsdHit,
    Outcome::Miss,
    Outcome::Bypass,
    Outcome::WriteBack,
    Outcome::WriteThrough,
    Outcome::Other,
    Outcome::BackingFlush,
];

fn outcome_index(outcome: Outcome) -> usize {
    match outcome {
        Outcome::RamHit => 0,
        Outcome::SsdHit => 1,
        Outcome::Miss => 2,
        Outcome::Bypass => 3,
        Outcome::WriteBack => 4,
        Outcome::WriteThrough => 5,
        Outcome::Other => 6,
        Outcome::BackingFlush => 7,
    }
}

/// Counters and latencies of one volume since it was added. Latency is from the moment an endpoint submits a request to the
/// moment its answer is ready for the endpoint; the client's protocol and network are not in it.
#[derive(Clone, Debug, Default)]
pub struct VolumeStats {
    /// Reads answered, failed ones included; likewise for the others.
    pub reads: u64,
    /// Writes of data.
    pub writes: u64,
    /// Write-zeroes requests.
    pub write_zeroes: u64,
    /// Discards, holes included.
    pub discards: u64,
    /// Flushes.
    pub flushes: u64,
    /// Writes, zeroes and discards with FUA.
    pub fua: u64,
    /// Bytes of successful reads.
    pub read_bytes: u64,
    /// Bytes of successful writes of data.
    pub written_bytes: u64,
    /// Requests answered with a device's failure or lack of space.
    pub device_errors: u64,
    /// Requests answered with an error for which the client is to blame (range, alignment, read-only) or that came too late.
    pub refused_requests: u64,
    /// Reads of hearth's own, as of a warm-up, that ended; they are in none of the figures above.
    pub own_reads: u64,
    /// Bytes of those that succeeded.
    pub own_read_bytes: u64,
    /// Times an endpoint had to wait because the volume's limit of requests in flight was reached.
    pub limit_waits: u64,
    /// Requests in flight at this moment.
    pub in_flight: u64,
    latency: [[Option<Box<Histogram>>; OUTCOMES.len()]; 4],
}

impl VolumeStats {
    /// Counts one answered request.
    pub(crate) fn record(&mut self, request: &Answered) {
        match request.op {
            Op::Read => self.reads += 1,
            Op::Write => self.writes += 1,
            Op::WriteZeroes => self.write_zeroes += 1,
            Op::Discard | Op::PunchHole => self.discards += 1,
            Op::Flush => self.flushes += 1,
        }
        self.fua += u64::from(request.fua);
        match (request.result, request.op) {
            (Ok(()), Op::Read) => self.read_bytes += request.bytes,
            (Ok(()), Op::Write) => self.written_bytes += request.bytes,
            (Ok(()), _) => {}
            (Err(RequestError::Io | RequestError::NoSpace), _) => self.device_errors += 1,
            (Err(RequestError::ReadOnly | RequestError::Invalid | RequestError::Shutdown), _) => self.refused_requests += 1,
        }
        let class = RequestClass::of(request.op) as usize;
        self.latency[class][outcome_index(request.outcome)].get_or_insert_default().record(request.latency_ns);
    }

    /// Counts a read that no client asked for.
    pub(crate) fn record_own(&mut self, bytes: u64, result: Result<(), RequestError>) {
        self.own_reads += 1;
        self.own_read_bytes += if result.is_ok() { bytes } else { 0 };
    }

    /// Requests answered, of all kinds; hearth's own among them.
    pub fn requests(&self) -> u64 {
        self.reads + self.writes + self.write_zeroes + self.discards + self.flushes + self.own_reads
    }

    /// Adds what another reactor has counted.
    pub fn merge(&mut self, other: &VolumeStats) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.write_zeroes += other.write_zeroes;
        self.discards += other.discards;
        self.flushes += other.flushes;
        self.fua += other.fua;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.device_errors += other.device_errors;
        self.refused_requests += other.refused_requests;
        self.own_reads += other.own_reads;
        self.own_read_bytes += other.own_read_bytes;
        self.limit_waits += other.limit_waits;
        self.in_flight += other.in_flight;
        for (mine, theirs) in self.latency.iter_mut().flatten().zip(other.latency.iter().flatten()) {
            if let Some(theirs) = theirs {
                mine.get_or_insert_default().merge(theirs);
            }
        }
    }

    /// The latencies of one class (`None`: all) with one outcome (`None`: all).
    pub fn latency(&self, class: Option<RequestClass>, outcome: Option<Outcome>) -> Histogram {
        let mut merged = Histogram::default();
        for (index, by_outcome) in self.latency.iter().enumerate() {
            if class.is_some_and(|class| class as usize != index) {
                continue;
            }
            for (index, histogram) in by_outcome.iter().enumerate() {
                if let Some(histogram) = histogram
                    && outcome.is_none_or(|outcome| outcome_index(outcome) == index)
                {
                    merged.merge(histogram);
                }
            }
        }
        merged
    }

    /// How many requests of a class (`None`: all) had an outcome.
    pub fn count(&self, class: Option<RequestClass>, outcome: Outcome) -> u64 {
        let chosen = self.latency.iter().enumerate().filter(|(index, _)| class.is_none_or(|class| class as usize == *index));
        chosen.filter_map(|(_, by_outcome)| Some(by_outcome[outcome_index(outcome)].as_ref()?.count())).sum()
    }

    /// [`VolumeStats::latency`] in seven numbers.
    pub fn summary(&self, class: Option<RequestClass>, outcome: Option<Outcome>) -> LatencySummary {
        self.latency(class, outcome).summary()
    }
}

/// A request that has its answer, as far as counting goes.
pub(crate) struct Answered {
    pub(crate) op: Op,
    pub(crate) fua: bool,
    pub(crate) bytes: u64,
    pub(crate) result: Result<(), RequestError>,
    pub(crate) outcome: Outcome,
    pub(crate) latency_ns: u64,
}

/// Counters and latencies of one device since it was opened, as the kernel (and the model, if there is one) served it. The difference between a
/// volume's latency and its device's is what hearth itself adds.
#[derive(Clone, Debug, Default)]
pub struct DeviceStats {
    /// Reads that ended, failed ones included; likewise for the others.
    pub reads: u64,
    /// Bytes of successful reads.
    pub read_bytes: u64,
    /// Writes of data.
    pub writes: u64,
    /// Bytes of successful writes.
    pub written_bytes: u64,
    /// Zeroes and discards.
    pub trims: u64,
    /// Bytes of successful zeroes and discards.
    pub trimmed_bytes: u64,
    /// Flushes of the device; many requests may have shared one.
    pub flushes: u64,
    /// I/Os that failed. A discard that the device cannot do is not a failure.
    pub errors: u64,
    /// From submission to completion.
    pub read_latency: Histogram,
    /// Likewise.
    pub write_latency: Histogram,
    /// Likewise.
    pub flush_latency: Histogram,
}

impl DeviceStats {
    pub(crate) fn record_read(&mut self, bytes: u64, latency_ns: u64, result: Result<(), IoError>) {
        self.reads += 1;
        self.read_bytes += if result.is_ok() { bytes } else { 0 };
        self.errors += u64::from(result.is_err());
        self.read_latency.record(latency_ns);
    }

    pub(crate) fn record_write(&mut self, bytes: u64, latency_ns: u64, result: Result<(), IoError>) {
        self.writes += 1;
        self.written_bytes += if result.is_ok() { bytes } else { 0 };
        self.errors += u64::from(result.is_err());
        self.write_latency.record(latency_ns);
    }

    pub(crate) fn record_trim(&mut self, bytes: u64, result: Result<(), IoError>) {
        self.trims += 1;
        self.trimmed_bytes += if result.is_ok() { bytes } else { 0 };
        self.errors += u64::from(matches!(result, Err(IoError::Failed | IoError::NoSpace)));
    }

    pub(crate) fn record_flush(&mut self, latency_ns: u64, succeeded: bool) {
        self.flushes += 1;
        self.errors += u64::from(!succeeded);
        self.flush_latency.record(latency_ns);
    }

    /// Adds what another reactor has counted.
    pub fn merge(&mut self, other: &DeviceStats) {
        self.reads += other.reads;
        self.read_bytes += other.read_bytes;
        self.writes += other.writes;
        self.written_bytes += other.written_bytes;
        self.trims += other.trims;
        self.trimmed_bytes += other.trimmed_bytes;
        self.flushes += other.flushes;
        self.errors += other.errors;
        self.read_latency.merge(&other.read_latency);
        self.write_latency.merge(&other.write_latency);
        self.flush_latency.merge(&other.flush_latency);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_and_outcomes_are_told_apart_and_merge() {
        let mut stats = VolumeStats::default();
        let read = |outcome, latency_ns| Answered { op: Op::Read, fua: false, bytes: 4096, result: Ok(()), outcome, latency_ns };
        stats.record(&read(Outcome::RamHit, 1_000));
        stats.record(&read(Outcome::Miss, 9_000_000));
        let failed = Answered { op: Op::Flush, result: Err(RequestError::Io), bytes: 0, ..read(Outcome::Other, 5_000) };
        stats.record(&failed);
        let mut total = VolumeStats::default();
        total.merge(&stats);
        total.merge(&stats);
        assert_eq!((total.reads, total.read_bytes, total.flushes, total.device_errors), (4, 16384, 2, 2));
        assert_eq!(total.count(Some(RequestClass::Read), Outcome::RamHit), 2);
        assert_eq!(total.summary(Some(RequestClass::Read), None).count, 4);
        assert_eq!(total.summary(None, Some(Outcome::Miss)).max_ns, 9_000_000);
        assert_eq!(total.summary(Some(RequestClass::Write), None).count, 0);
    }
}
