//! The only source of chance in a run: a small generator, all of whose output follows from one seed, or from a tape.
//!
//! Streams are forked by name, so that drawing one number more in the workload does not shift what the disks draw.

use std::hash::Hash;

use crate::tape::Tape;

/// xoshiro256** (public domain algorithm by Blackman and Vigna), seeded through SplitMix64.
#[derive(Clone, Debug)]
pub struct Prng {
    state: [u64; 4],
    tape: Option<Box<Tape>>,
}

/// The next of a sequence, of which `state` is the place.
pub(crate) fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Prng {
    /// The generator of this seed.
    pub fn new(seed: u64) -> Prng {
        let mut state = seed;
        Prng { state: core::array::from_fn(|_| split_mix(&mut state)), tape: None }
    }

    /// What it gives is noted on a tape from now on, or comes from one.
    pub fn tape(&mut self, tape: Tape) {
        self.tape = Some(Box::new(tape));
    }

    /// On its tape the next scene of this name begins. Gives the scene's number, 0 without a tape.
    pub fn scene(&mut self, name: impl Hash) -> u64 {
        self.tape.as_mut().map_or(0, |tape| tape.begin(name))
    }

    /// A generator of its own for one purpose; the same label always gives the same stream.
    pub fn fork(&self, label: u64) -> Prng {
        Prng::new(self.state[0].rotate_left(17) ^ self.state[2] ^ label.wrapping_mul(0xD6E8_FEB8_6659_FD93))
    }

    /// 64 fair bits.
    pub fn bits(&mut self) -> u64 {
        let Some(tape) = &mut self.tape else { return self.draw() };
        if let Some(bits) = tape.given() {
            return bits;
        }
        let bits = self.draw();
        self.tape.iter_mut().for_each(|tape| tape.note(bits));
        bits
    }

    fn draw(&mut self) -> u64 {
        let result = self.state[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = self.state[1] << 17;
        self.state[2] ^= self.state[0];
        self.state[3] ^= self.state[1];
        self.state[1] ^= self.state[2];
        self.state[0] ^= self.state[3];
        self.state[2] ^= shifted;
        self.state[3] = self.state[3].rotate_left(45);
        result
    }

    /// Uniform in `0..bound`; `bound` is at least 1.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "an empty range has nothing to draw");
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// Uniform in `low..high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low)
    }

    /// True `count` times in ten thousand.
    pub fn per_10k(&mut self, count: u32) -> bool {
        self.below(10_000) < u64::from(count)
    }

    /// True `percent` times in a hundred.
    pub fn percent(&mut self, percent: u32) -> bool {
        self.below(100) < u64::from(percent)
    }

    /// One of the choices.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// An index drawn by weight.
    pub fn weighted(&mut self, weights: &[u32]) -> usize {
        let total: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
        let mut at = self.below(total);
        for (index, weight) in weights.iter().enumerate() {
            if at < u64::from(*weight) {
                return index;
            }
            at -= u64::from(*weight);
        }
        unreachable!("the draw is below the sum of the weights")
    }

    /// Latency-like: mostly near `typical`, sometimes a multiple of it.
    pub fn spread(&mut self, typical: u64) -> u64 {
        let base = typical / 2 + self.below(typical.max(1));
        if self.percent(3) { base * 8 } else { base }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_forks_differ() {
        let (mut one, mut two) = (Prng::new(7), Prng::new(7));
        assert!((0..100).all(|_| one.bits() == two.bits()));
        assert_ne!(one.fork(1).bits(), one.fork(2).bits());
        assert_ne!(Prng::new(1).bits(), Prng::new(2).bits());
    }

    #[test]
    fn draws_stay_in_range_and_reach_its_ends() {
        let mut prng = Prng::new(3);
        let drawn: Vec<u64> = (0..1000).map(|_| prng.between(5, 9)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&5), Some(&8)));
        assert!((0..1000).all(|_| prng.weighted(&[0, 3, 0, 1]) % 2 == 1));
    }
}
