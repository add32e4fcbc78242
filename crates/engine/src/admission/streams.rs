//! Sequential streams, recognised also when many are interleaved, and which of them are logs.
//!
//! A stream is where its next request is expected and how much it has run. Each request looks for the stream that ends where it begins; if there
//! is none it begins one, in place of the stream unused for longest. Requests of a stream may arrive a little out of order (several in
//! flight): a request that begins within [`SLACK_REQUESTS`] of its own length around the expected place belongs to it too. More slack would take
//! random access to a small hot region for a stream: 64 streams would soon be expected everywhere in it.
//!
//! A write stream is a *log* while its client waits for what it wrote: redo logs, WALs and journals write a piece, flush, and only then go
//! on. Restores and backups keep many writes in flight and do not flush between them. A write counts as awaited if it is FUA, if a flush
//! came when none of its stream was in flight, or if the next one began where it ended and only after it was acknowledged; that alone, without a
//! flush, counts for no more than a log may write before one: a copy with one write in flight waits for each, too. A stream is past the
//! cutoff by what it wrote since it was awaited last, so a log never is. A log that wrote little until now, or goes on
//! elsewhere, is known by where it ended ([`super::tails`]).

use super::tails::Tails;

/// Streams remembered. Enough for a backup, a scan and dozens of sequential clients at once; more cost a longer search.
const STREAMS: usize = 64;
/// How far from the expected place a request may begin, in its own lengths: as many in flight may arrive in any order.
const SLACK_REQUESTS: u64 = 8;
/// The same in sectors, for long requests.
const SLACK_SECTORS_MAX: u64 = 2048;
/// Writes shorter than this (16 KiB) go on with a stream but begin none, and are never past the cutoff: small writes are awaited or random, and both
/// belong on the SSD.
const WRITE_SECTORS_MIN: u64 = 32;
/// A stream that was flushed this often in a row is a log. Twice: a copy that ends with a flush is none.
const LOG_FLUSHES_MIN: u8 = 2;
/// A log may write this many times the cutoff before its next flush; of what is more, the volume's credit decides (`bursts.rs`).
const LOG_CUTOFFS: u64 = 8;
/// A write of a log is not too large up to this length (1 MiB). A group commit of many connections is one write.
pub const LOG_WRITE_SECTORS_MAX: u64 = 2048;

#[derive(Clone, Copy, Default)]
struct Stream {
    next_sector: u64,
    /// Sectors it has run; for writes, since one was awaited.
    run_sectors: u64,
    /// For writes: sectors since it began or was flushed last.
    unflushed_sectors: u64,
    used: u64,
    write: bool,
    /// Writes not acknowledged yet.
    in_flight: u32,
    /// Flushes in a row that followed its writes when none was in flight.
    flushes: u8,
    /// Written since the last flush.
    unflushed: bool,
    /// It began when a log rested: it may be the next piece of that log.
    presumed: bool,
    /// Tells its life from those of other streams at the same place of the table.
    generation: u32,
}

/// What a request is part of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    /// Its stream has run past the cutoff with it.
    pub past_cutoff: bool,
    /// It is a write of a log, or FUA: its client waits for it.
    pub log: bool,
    /// The stream of a write, to be given to [`Streams::acknowledged`].
    pub stream: Option<StreamToken>,
}

/// A write's stream, until the write is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamToken {
    place: u8,
    generation: u32,
}

/// The streams of one volume. May be wrong about speed only.
#[derive(Clone)]
pub struct Streams {
    streams: [Stream; STREAMS],
    tails: Tails,
    clock: u64,
}

impl Default for Streams {
    fn default() -> Streams {
        Streams { streams: [Stream { next_sector: u64::MAX, ..Stream::default() }; STREAMS], tails: Tails::default(), clock: 0 }
    }
}

impl Streams {
    /// Takes note of a read, and says whether its stream has run past `cutoff_bytes` with it.
    pub fn read(&mut self, start_sector: u64, sectors: u64, cutoff_bytes: u64) -> bool {
        self.clock += 1;
        let place = match self.closest(start_sector, sectors, false) {
            Some(place) => {
                self.streams[place].go_on(start_sector, sectors);
                place
            }
            None => self.begin(start_sector, sectors, false),
        };
        self.streams[place].used = self.clock;
        self.streams[place].run_sectors * types::SECTOR_BYTES > cutoff_bytes
    }

    /// Takes note of a write that is submitted now. With no cutoff, only logs are recognised.
    pub fn write(&mut self, start_sector: u64, sectors: u64, fua: bool, cutoff_bytes: Option<u64>) -> Seen {
        let small = sectors < WRITE_SECTORS_MIN;
        let log_rests = self.tails.any_rests(LOG_FLUSHES_MIN);
        let flushes = self.tails.write(start_sector, sectors);
        let place = match self.closest(start_sector, sectors, true) {
            Some(place) => {
                let stream = &mut self.streams[place];
                if stream.in_flight == 0 && start_sector == stream.next_sector {
                    // All before it was acknowledged: its client has waited.
                    stream.run_sectors = 0;
                }
                stream.go_on(start_sector, sectors);
                place
            }
            None if small => return Seen { log: fua, ..Seen::default() },
            None => {
                let place = self.begin(start_sector, sectors, true);
                (self.streams[place].flushes, self.streams[place].presumed) = (flushes, log_rests);
                place
            }
        };
        self.clock += 1;
        let stream = &mut self.streams[place];
        stream.used = self.clock;
        stream.in_flight += 1;
        stream.unflushed = true;
        if fua {
            (stream.run_sectors, stream.unflushed_sectors) = (0, 0);
        }
        let (run_bytes, unflushed_bytes) = (stream.run_sectors * types::SECTOR_BYTES, stream.unflushed_sectors * types::SECTOR_BYTES);
        let known = stream.flushes >= LOG_FLUSHES_MIN;
        let allowed_bytes = cutoff_bytes.map(|cutoff| if known { cutoff.saturating_mul(LOG_CUTOFFS) } else { cutoff });
        let past = allowed_bytes.is_some_and(|allowed| run_bytes > allowed)
            || cutoff_bytes.is_some_and(|cutoff| unflushed_bytes > cutoff.saturating_mul(LOG_CUTOFFS));
        if past && known {
            stream.flushes = 0;
        }
        stream.presumed &= !past && stream.unflushed_sectors <= LOG_WRITE_SECTORS_MAX;
        let log = known && !past || stream.presumed;
        let token = StreamToken { place: place as u8, generation: stream.generation };
        Seen { past_cutoff: past && !small, log: log || fua, stream: Some(token) }
    }

    /// A write of that stream was answered.
    pub fn acknowledged(&mut self, token: StreamToken) {
        let stream = &mut self.streams[usize::from(token.place)];
        if stream.generation == token.generation {
            assert!(stream.in_flight > 0, "a write of a stream is answered once");
            stream.in_flight -= 1;
        }
    }

    /// The client asks for a flush: what it has written and seen acknowledged, it waits for. A stream with writes in flight does not.
    pub fn flushed(&mut self) {
        self.tails.flushed();
        for stream in self.streams.iter_mut().filter(|stream| stream.unflushed) {
            if stream.in_flight == 0 {
                (stream.run_sectors, stream.unflushed_sectors) = (0, 0);
                stream.flushes = stream.flushes.saturating_add(1);
                stream.unflushed = false;
            } else {
                stream.flushes = 0;
            }
        }
    }

    /// The stream whose expected place is the nearest within its slack.
    fn closest(&self, start_sector: u64, sectors: u64, write: bool) -> Option<usize> {
        let slack = (sectors * SLACK_REQUESTS).min(SLACK_SECTORS_MAX);
        let distance = |stream: &Stream| start_sector.abs_diff(stream.next_sector);
        let belongs = |stream: &Stream| stream.write == write && stream.used > 0 && distance(stream) <= slack;
        (0..STREAMS).filter(|at| belongs(&self.streams[*at])).min_by_key(|at| distance(&self.streams[*at]))
    }

    fn begin(&mut self, start_sector: u64, sectors: u64, write: bool) -> usize {
        let place = (0..STREAMS).min_by_key(|at| self.streams[*at].used).expect("there are streams");
        assert!(self.streams[place].used <= self.clock, "streams were used in the past");
        let generation = self.streams[place].generation.wrapping_add(1);
        let next_sector = start_sector + sectors;
        self.streams[place] =
            Stream { next_sector, run_sectors: sectors, unflushed_sectors: sectors, write, generation, ..Stream::default() };
        place
    }
}

impl Stream {
    fn go_on(&mut self, start_sector: u64, sectors: u64) {
        let end = start_sector + sectors;
        self.unflushed_sectors += sectors;
        if start_sector == self.next_sector {
            self.run_sectors += sectors;
        } else if end > self.next_sector {
            // Out of order: what it adds beyond the end is progress, a jump back costs what it goes back.
            self.run_sectors += end - self.next_sector;
        } else {
            self.run_sectors = self.run_sectors.saturating_sub(sectors);
        }
        self.next_sector = self.next_sector.max(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::mix;

    const CUTOFF: u64 = 1 << 20;

    /// Writes `bytes` in pieces of `sectors` with `depth` in flight, flushing after every `flush_every` pieces; gives how many went around.
    fn written(bytes: u64, sectors: u64, depth: usize, flush_every: Option<u64>) -> u64 {
        let mut streams = Streams::default();
        let mut in_flight = alloc::collections::VecDeque::new();
        let mut around = 0;
        for piece in 0..bytes / (sectors * types::SECTOR_BYTES) {
            if in_flight.len() == depth {
                streams.acknowledged(in_flight.pop_front().expect("counted"));
            }
            let seen = streams.write(piece * sectors, sectors, false, Some(CUTOFF));
            around += u64::from(seen.past_cutoff);
            in_flight.extend(seen.stream);
            if flush_every.is_some_and(|every| piece % every == every - 1) {
                in_flight.drain(..).for_each(|token| streams.acknowledged(token));
                streams.flushed();
            }
        }
        around
    }

    #[test]
    fn interleaved_streams_are_told_apart() {
        let mut streams = Streams::default();
        let mut past = 0;
        for step in 0..40_u64 {
            for stream in 0..30_u64 {
                past += u64::from(streams.read(stream * 10_000_000 + step * 128, 128, CUTOFF));
            }
        }
        assert_eq!(past, 30 * 24, "each stream passes after 16 requests of 64 KiB");
    }

    #[test]
    fn random_and_small_writes_are_no_streams() {
        let mut streams = Streams::default();
        for step in 0..100_000_u64 {
            assert!(!streams.read(mix(step) % (1 << 31), 8, CUTOFF));
            assert!(!streams.write(step * 8, 8, false, Some(CUTOFF)).past_cutoff, "a database's log");
        }
    }

    #[test]
    fn restores_go_around_and_logs_do_not() {
        let pieces = |bytes: u64, sectors: u64| bytes / (sectors * types::SECTOR_BYTES);
        for sectors in [32, 64, 128] {
            let all = pieces(64 << 20, sectors);
            for depth in [2, 4, 16] {
                assert_eq!(written(64 << 20, sectors, depth, None), all - pieces(CUTOFF, sectors), "a restore");
            }
            let begun = pieces(LOG_CUTOFFS * CUTOFF, sectors);
            assert_eq!(written(64 << 20, sectors, 1, None), all - begun, "one in flight: each is awaited, but none is flushed");
            for flush_every in [1, 4, pieces(CUTOFF, sectors)] {
                assert_eq!(written(64 << 20, sectors, 16, Some(flush_every)), 0, "a log");
            }
            let journal = pieces(8 * CUTOFF, sectors);
            let begun = 2 * (journal - pieces(CUTOFF, sectors));
            assert_eq!(written(64 << 20, sectors, 16, Some(journal)), begun, "a journal of large transactions is known after two");
            assert!(written(256 << 20, sectors, 16, Some(pieces(64 << 20, sectors))) > all, "a restore that flushes now and then");
        }
    }

    #[test]
    fn the_flushes_of_a_log_do_not_make_a_restore_one() {
        let mut streams = Streams::default();
        let (mut around, mut in_flight) = (0, alloc::collections::VecDeque::new());
        for step in 0..4096_u64 {
            // A restore with four writes in flight.
            let seen = streams.write(10_000_000 + step * 128, 128, false, Some(CUTOFF));
            around += u64::from(seen.past_cutoff);
            in_flight.extend(seen.stream);
            if in_flight.len() == 4 {
                streams.acknowledged(in_flight.pop_front().expect("counted"));
            }
            // A commit for each of them.
            let seen = streams.write(step * 32, 32, false, Some(CUTOFF));
            assert_eq!((seen.past_cutoff, seen.log), (false, step >= 2), "the log is recognised");
            streams.acknowledged(seen.stream.expect("a stream"));
            streams.flushed();
        }
        assert_eq!(around, 4096 - 16);
    }

    #[test]
    fn a_write_with_fua_is_a_logs() {
        let mut streams = Streams::default();
        for step in 0..1000_u64 {
            let seen = streams.write(step * 2048, 2048, true, Some(CUTOFF));
            assert!(seen.log && !seen.past_cutoff);
        }
        assert!(streams.write(77_000_000, 8, true, Some(CUTOFF)).log);
    }

    #[test]
    fn a_log_is_recognised_without_a_cutoff() {
        let mut streams = Streams::default();
        for step in 0..10_u64 {
            let seen = streams.write(step * 256, 256, false, None);
            assert_eq!((seen.past_cutoff, seen.log), (false, step >= 2));
            streams.acknowledged(seen.stream.expect("a stream"));
            streams.flushed();
        }
    }

    /// Commits of one page each, then one of 72 KiB at the same place, and one at the begin of the next file.
    #[test]
    fn a_log_of_small_writes_is_one_when_it_writes_more_and_elsewhere() {
        let mut streams = Streams::default();
        for step in 0..4 {
            streams.write(step * 16, 16, false, Some(CUTOFF));
            streams.flushed();
        }
        let commit = |streams: &mut Streams, start, sectors| {
            let seen = streams.write(start, sectors, false, Some(CUTOFF));
            streams.acknowledged(seen.stream.expect("a stream"));
            streams.flushed();
            seen.log
        };
        assert!(commit(&mut streams, 64, 144), "it goes on where it ended");
        assert!(commit(&mut streams, 1_000_000, 2048), "its next file");
        assert!(commit(&mut streams, 1_002_048, 2048), "and on");
    }

    #[test]
    fn a_restore_that_begins_while_a_log_rests_is_one_after_a_mebibyte() {
        let mut streams = Streams::default();
        for step in 0..4 {
            streams.write(step * 16, 16, false, None);
            streams.flushed();
        }
        for cutoff in [None, Some(CUTOFF)] {
            let mut logs = 0;
            for step in 0..64_u64 {
                let seen = streams.write(u64::from(cutoff.is_some()) * (1 << 20) + (1 << 30) + step * 512, 512, false, cutoff);
                logs += u64::from(seen.log);
            }
            assert_eq!(logs, 4, "of 256 KiB each");
        }
    }

    /// Each write is acknowledged before the next: a copy with direct I/O after some commits.
    #[test]
    fn what_is_presumed_a_log_is_none_after_a_mebibyte_with_one_write_in_flight() {
        let mut streams = Streams::default();
        for step in 0..4 {
            streams.write(step * 8, 8, false, Some(CUTOFF));
            streams.flushed();
        }
        let mut logs = 0;
        for step in 0..400_u64 {
            let seen = streams.write((1 << 20) + step * 2048, 2048, false, Some(CUTOFF));
            logs += u64::from(seen.log);
            streams.acknowledged(seen.stream.expect("a stream"));
        }
        assert_eq!(logs, 1, "of 1 MiB each");
    }

    #[test]
    fn an_answer_for_a_stream_that_has_given_way_changes_nothing() {
        let mut streams = Streams::default();
        let old = streams.write(0, 128, false, Some(CUTOFF)).stream.expect("a stream");
        for other in 1..=STREAMS as u64 {
            streams.write(other * 1_000_000, 128, false, Some(CUTOFF));
        }
        streams.acknowledged(old);
        assert!(streams.streams.iter().all(|stream| stream.in_flight == 1));
    }

    #[test]
    fn requests_in_flight_may_arrive_out_of_order() {
        let mut streams = Streams::default();
        let mut past = 0;
        for step in (0..64_u64).step_by(4) {
            for offset in [2, 0, 3, 1] {
                past += u64::from(streams.read((step + offset) * 256, 256, CUTOFF));
            }
        }
        assert!(past > 40, "{past} of 64 requests recognised");
    }

    #[test]
    fn random_access_to_a_small_hot_region_is_no_stream() {
        for blocks in [256, 2048, 25_600] {
            let mut streams = Streams::default();
            let hot = (0..200_000_u64).filter(|step| streams.read(mix(*step) % blocks * 8, 8, CUTOFF)).count();
            assert!(hot < 100, "{hot} of 200000 random reads in {blocks} blocks taken for a stream");
        }
    }
}
