//! Sequential streams, recognised also when many are interleaved.
//!
//! A stream is where its next request is expected and how much it has run. Each request looks for the stream that ends where it begins; if there
//! is none it begins one, in place of the stream unused for longest. Requests of a stream may arrive a little out of order (several in
//! flight): a request that begins within [`SLACK_REQUESTS`] of its own length around the expected place belongs to it too. More slack would take
//! random access to a small hot region for a stream: 64 streams would soon be expected everywhere in it.

/// Streams remembered. Enough for a backup, a scan and dozens of sequential clients at once; more cost a longer search.
const STREAMS: usize = 64;
/// How far from the expected place a request may begin, in its own lengths: as many in flight may arrive in any order.
const SLACK_REQUESTS: u64 = 8;
/// The same in sectors, for long requests.
const SLACK_SECTORS_MAX: u64 = 2048;
/// Writes shorter than this (16 KiB) never count as a stream: logs and journals of databases and file systems are written in small sequential
/// pieces, each awaited by someone; those belong on the SSD.
const WRITE_SECTORS_MIN: u64 = 32;

#[derive(Clone, Copy, Default)]
struct Stream {
    next_sector: u64,
    run_sectors: u64,
    used: u64,
    write: bool,
}

/// The streams of one volume. May be wrong about speed only.
#[derive(Clone)]
pub struct Streams {
    streams: [Stream; STREAMS],
    clock: u64,
}

impl Default for Streams {
    fn default() -> Streams {
        Streams { streams: [Stream { next_sector: u64::MAX, ..Stream::default() }; STREAMS], clock: 0 }
    }
}

impl Streams {
    /// Takes note of a request; true if its stream has run past `cutoff_bytes` with it.
    pub fn past_cutoff(&mut self, start_sector: u64, sectors: u64, write: bool, cutoff_bytes: u64) -> bool {
        if write && sectors < WRITE_SECTORS_MIN {
            return false;
        }
        self.clock += 1;
        let end = start_sector + sectors;
        let slack = (sectors * SLACK_REQUESTS).min(SLACK_SECTORS_MAX);
        let belongs = |stream: &Stream| stream.write == write && stream.used > 0 && start_sector.abs_diff(stream.next_sector) <= slack;
        let closest =
            (0..STREAMS).filter(|at| belongs(&self.streams[*at])).min_by_key(|at| start_sector.abs_diff(self.streams[*at].next_sector));
        match closest {
            Some(at) => {
                let stream = &mut self.streams[at];
                stream.used = self.clock;
                if start_sector == stream.next_sector {
                    stream.run_sectors += sectors;
                } else if end > stream.next_sector {
                    // Out of order: what it adds beyond the end is progress, a jump back costs what it goes back.
                    stream.run_sectors += end - stream.next_sector;
                } else {
                    stream.run_sectors = stream.run_sectors.saturating_sub(sectors);
                }
                stream.next_sector = stream.next_sector.max(end);
                stream.run_sectors * types::SECTOR_BYTES > cutoff_bytes
            }
            None => {
                let oldest = (0..STREAMS).min_by_key(|at| self.streams[*at].used).expect("there are streams");
                self.streams[oldest] = Stream { next_sector: end, run_sectors: sectors, used: self.clock, write };
                sectors * types::SECTOR_BYTES > cutoff_bytes
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::mix;

    const CUTOFF: u64 = 1 << 20;

    #[test]
    fn interleaved_streams_are_told_apart() {
        let mut streams = Streams::default();
        let mut past = 0;
        for step in 0..40_u64 {
            for stream in 0..30_u64 {
                past += u64::from(streams.past_cutoff(stream * 10_000_000 + step * 128, 128, false, CUTOFF));
            }
        }
        assert_eq!(past, 30 * 24, "each stream passes after 16 requests of 64 KiB");
    }

    #[test]
    fn random_and_small_writes_are_no_streams() {
        let mut streams = Streams::default();
        for step in 0..100_000_u64 {
            assert!(!streams.past_cutoff(mix(step) % (1 << 31), 8, false, CUTOFF));
            assert!(!streams.past_cutoff(step * 8, 8, true, CUTOFF), "a database's log");
        }
    }

    #[test]
    fn requests_in_flight_may_arrive_out_of_order() {
        let mut streams = Streams::default();
        let mut past = 0;
        for step in (0..64_u64).step_by(4) {
            for offset in [2, 0, 3, 1] {
                past += u64::from(streams.past_cutoff((step + offset) * 256, 256, false, CUTOFF));
            }
        }
        assert!(past > 40, "{past} of 64 requests recognised");
    }

    #[test]
    fn random_access_to_a_small_hot_region_is_no_stream() {
        for blocks in [256, 2048, 25_600] {
            let mut streams = Streams::default();
            let hot = (0..200_000_u64).filter(|step| streams.past_cutoff(mix(*step) % blocks * 8, 8, false, CUTOFF)).count();
            assert!(hot < 100, "{hot} of 200000 random reads in {blocks} blocks taken for a stream");
        }
    }
}
