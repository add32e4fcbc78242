//! Which I/O comes next: read or write, and where. For what fio cannot be made to do, above all vdbench's hit areas, where reads and writes go to different places by
//! different odds. The sequence follows from the seed alone.

use crate::random::Random;

/// Where requests go.
#[derive(Clone, PartialEq, Debug)]
pub enum Places {
    /// Everywhere alike.
    Uniform,
    /// vdbench's: so many of a hundred reads, and of a hundred writes, go to the first bytes; the others to the rest, uniformly (its manual, `rhpct`,
    /// `whpct`, `hitarea`; by default no write is ever a hit).
    HitArea {
        /// Length of the hit area in bytes.
        area_bytes: u64,
        /// Reads that go there, of a hundred.
        reads_percent: u32,
        /// Writes that go there, of a hundred.
        writes_percent: u32,
    },
    /// fio's `zoned`: (requests of a hundred, space of a hundred), in the order of the space. Both sum up to 100.
    Zones(Vec<(u32, u32)>),
    /// The block of rank r is asked for in proportion to 1 / r to the power of `theta`; ranks are spread over the space. By rejection (Hörmann and
    /// Derflinger 1996), so that no table is needed.
    Zipf {
        /// Above 0, not 1.
        theta: f64,
    },
    /// One behind the other, beginning anew at the end.
    Sequential,
}

/// What requests are like.
#[derive(Clone, PartialEq, Debug)]
pub struct Pattern {
    /// Bytes of each request; a power of two of at least 512.
    pub block_bytes: u64,
    /// Length of the space in bytes; what is left of the last block is not asked for.
    pub space_bytes: u64,
    /// Reads of a hundred requests.
    pub reads_percent: u32,
    /// Where they go.
    pub places: Places,
}

/// One request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Else a read.
    pub is_write: bool,
    /// First byte, a multiple of the block's.
    pub offset_bytes: u64,
}

/// Why a pattern cannot be played: a clause.
pub type Wrong = &'static str;

/// The requests of a pattern, without end.
#[derive(Clone, Debug)]
pub struct Requests {
    pattern: Pattern,
    random: Random,
    /// For [`Places::Sequential`].
    next_block: u64,
    /// For [`Places::Zipf`]: see [`spreading`].
    times: u64,
}

impl Requests {
    /// The requests that follow from the seed.
    ///
    /// # Errors
    /// What of the pattern makes no sense.
    pub fn new(pattern: Pattern, seed: u64) -> Result<Requests, Wrong> {
        if !pattern.block_bytes.is_power_of_two() || pattern.block_bytes < 512 {
            return Err("the block size is not a power of two of at least 512 bytes");
        }
        let blocks = pattern.space_bytes / pattern.block_bytes;
        if blocks == 0 {
            return Err("the space is smaller than a block");
        }
        if pattern.reads_percent > 100 {
            return Err("reads are more than 100 % of the requests");
        }
        match &pattern.places {
            Places::HitArea { area_bytes, reads_percent, writes_percent } => {
                let area = area_bytes / pattern.block_bytes;
                let odds = [*reads_percent, *writes_percent];
                if odds.iter().any(|percent| *percent > 100) {
                    return Err("hits are more than 100 % of the requests");
                }
                if area == 0 && odds != [0, 0] || area >= blocks && odds != [100, 100] {
                    return Err("the hit area is smaller than a block, or as large as the whole space");
                }
            }
            Places::Zones(zones) => {
                let sums = zones.iter().fold((0u32, 0u32), |sums, zone| (sums.0.saturating_add(zone.0), sums.1.saturating_add(zone.1)));
                if sums != (100, 100) {
                    return Err("the zones do not sum up to a hundred");
                }
                if blocks < 100 || zones.iter().any(|zone| zone.0 > 0 && zone.1 == 0) {
                    return Err("a zone has requests and no space");
                }
            }
            Places::Zipf { theta } if !(theta.is_finite() && *theta > 0.0 && (*theta - 1.0).abs() > 1e-6) => {
                return Err("the exponent is not above 0, or is 1");
            }
            _ => {}
        }
        Ok(Requests { pattern, random: Random::new(seed), next_block: 0, times: spreading(blocks) })
    }

    fn blocks(&self) -> u64 {
        self.pattern.space_bytes / self.pattern.block_bytes
    }

    fn block(&mut self, is_write: bool) -> u64 {
        let blocks = self.blocks();
        match &self.pattern.places {
            Places::Uniform => self.random.below(blocks),
            Places::Sequential => {
                let block = self.next_block;
                self.next_block = (block + 1) % blocks;
                block
            }
            Places::HitArea { area_bytes, reads_percent, writes_percent } => {
                let (area, percent) = (area_bytes / self.pattern.block_bytes, if is_write { *writes_percent } else { *reads_percent });
                if self.random.below(100) < u64::from(percent) { self.random.below(area) } else { area + self.random.below(blocks - area) }
            }
            Places::Zones(zones) => {
                let mut drawn = self.random.below(100) as u32;
                let mut before = 0;
                for (requests, space) in zones {
                    if drawn < *requests {
                        let edge = |percent: u32| blocks * u64::from(percent) / 100;
                        let (first, end) = (edge(before), edge(before + space));
                        return first + self.random.below((end - first).max(1));
                    }
                    drawn -= requests;
                    before += space;
                }
                unreachable!("the zones sum up to a hundred")
            }
            Places::Zipf { theta } => {
                let rank = zipf_rank(&mut self.random, blocks, *theta);
                spread(rank, blocks, self.times)
            }
        }
    }
}

impl Iterator for Requests {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let is_write = self.random.below(100) >= u64::from(self.pattern.reads_percent);
        let offset_bytes = self.block(is_write) * self.pattern.block_bytes;
        Some(Request { is_write, offset_bytes })
    }
}

/// A rank from 0 on, by rejection-inversion.
fn zipf_rank(random: &mut Random, count: u64, theta: f64) -> u64 {
    let integral = |x: f64| x.powf(1.0 - theta) / (1.0 - theta);
    let inverse = |y: f64| ((1.0 - theta) * y).powf(1.0 / (1.0 - theta));
    let low = integral(1.5) - 1.0;
    let high = integral(count as f64 + 0.5);
    loop {
        let drawn = high + random.unit() * (low - high);
        let rank = inverse(drawn).round().clamp(1.0, count as f64);
        if drawn >= integral(rank + 0.5) - rank.powf(-theta) {
            return rank as u64 - 1;
        }
    }
}

/// The place of a rank: each has one of its own, and neighbours lie far apart.
fn spread(rank: u64, blocks: u64, times: u64) -> u64 {
    ((u128::from(rank) * u128::from(times)) % u128::from(blocks)) as u64
}

/// A number near the golden section of the blocks and without a common divisor: multiplied by it, all ranks fall on different blocks.
fn spreading(blocks: u64) -> u64 {
    let mut times = (blocks as f64 * 0.618_033_988_75) as u64 | 1;
    while greatest_common_divisor(times, blocks) != 1 {
        times += 2;
    }
    times
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(reads_percent: u32, places: Places) -> Pattern {
        Pattern { block_bytes: 16 << 10, space_bytes: 1 << 30, reads_percent, places }
    }

    fn play(pattern: Pattern, count: usize) -> Vec<Request> {
        Requests::new(pattern, 1).expect("it makes sense").take(count).collect()
    }

    fn share(requests: &[Request], of: impl Fn(&Request) -> bool) -> f64 {
        requests.iter().filter(|request| of(request)).count() as f64 / requests.len() as f64
    }

    #[test]
    fn hit_areas_are_those_of_vdbench() {
        // RD3: 80 % reads, 90 % of them in the first MiB, no write there.
        let places = Places::HitArea { area_bytes: 1 << 20, reads_percent: 90, writes_percent: 0 };
        let requests = play(pattern(80, places), 100_000);
        assert!((share(&requests, |r| !r.is_write) - 0.8).abs() < 0.01);
        let (writes, reads): (Vec<Request>, Vec<Request>) = requests.into_iter().partition(|r| r.is_write);
        assert!((share(&reads, |r| r.offset_bytes < 1 << 20) - 0.9).abs() < 0.01);
        assert_eq!(share(&writes, |r| r.offset_bytes < 1 << 20), 0.0);
        // The misses are uniform over the rest.
        let rest: Vec<Request> = reads.into_iter().filter(|r| r.offset_bytes >= 1 << 20).collect();
        assert!((share(&rest, |r| r.offset_bytes < 512 << 20) - 0.4995).abs() < 0.02);
    }

    #[test]
    fn zones_get_their_shares() {
        let requests = play(pattern(100, Places::Zones(vec![(80, 10), (20, 90)])), 100_000);
        assert!((share(&requests, |r| r.offset_bytes < (1 << 30) / 10) - 0.8).abs() < 0.01);
        assert!(share(&requests, |r| r.offset_bytes > (1 << 30) * 9 / 10) > 0.015);
    }

    #[test]
    fn zipf_is_zipf() {
        for theta in [0.8, 1.1] {
            let pattern = Pattern { space_bytes: 1000 << 14, ..pattern(100, Places::Zipf { theta }) };
            let mut counts = vec![0u32; 1000];
            play(pattern, 400_000).iter().for_each(|r| counts[(r.offset_bytes >> 14) as usize] += 1);
            counts.sort_unstable_by(|a, b| b.cmp(a));
            let sum: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-theta)).sum();
            for rank in [1, 2, 10, 100] {
                let expected = 400_000.0 * f64::from(rank).powf(-theta) / sum;
                let found = f64::from(counts[rank as usize - 1]);
                assert!((found / expected - 1.0).abs() < 0.12, "theta {theta}, rank {rank}: {found} instead of {expected}");
            }
        }
    }

    #[test]
    fn every_request_lies_in_the_space_and_the_same_seed_gives_the_same() {
        let all = [Places::Uniform, Places::Sequential, Places::Zipf { theta: 0.99 }, Places::Zones(vec![(100, 100)])];
        for places in all {
            let pattern = Pattern { space_bytes: (777 << 14) + 5, ..pattern(50, places) };
            let requests = play(pattern.clone(), 10_000);
            assert!(requests.iter().all(|r| r.offset_bytes % (16 << 10) == 0 && r.offset_bytes + (16 << 10) <= pattern.space_bytes));
            assert_eq!(requests, play(pattern, 10_000));
        }
        let sequential = play(Pattern { space_bytes: 3 << 14, ..pattern(100, Places::Sequential) }, 5);
        assert_eq!(sequential.iter().map(|r| r.offset_bytes >> 14).collect::<Vec<_>>(), [0, 1, 2, 0, 1]);
    }

    #[test]
    fn each_rank_has_a_place_of_its_own() {
        for blocks in [1, 2, 7, 100, 1000, 4096] {
            let mut seen = vec![false; blocks as usize];
            let times = spreading(blocks);
            (0..blocks)
                .for_each(|rank| assert!(!std::mem::replace(&mut seen[spread(rank, blocks, times) as usize], true), "{blocks} blocks"));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let hit = |area_bytes, reads_percent| Places::HitArea { area_bytes, reads_percent, writes_percent: 0 };
        let wrong = [
            Pattern { block_bytes: 5000, ..pattern(50, Places::Uniform) },
            Pattern { space_bytes: 5, ..pattern(50, Places::Uniform) },
            pattern(101, Places::Uniform),
            pattern(50, hit(1 << 30, 90)),
            pattern(50, hit(5, 90)),
            pattern(50, hit(1 << 20, 101)),
            pattern(50, Places::Zones(vec![(80, 10), (20, 80)])),
            pattern(50, Places::Zones(vec![(80, 0), (20, 100)])),
            pattern(50, Places::Zipf { theta: 1.0 }),
            pattern(50, Places::Zipf { theta: f64::NAN }),
        ];
        for pattern in wrong {
            assert!(Requests::new(pattern.clone(), 1).is_err(), "{pattern:?}");
        }
    }
}
