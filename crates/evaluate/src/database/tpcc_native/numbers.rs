//! The random numbers and texts of TPC-C (clauses 2.1.6 and 4.3.2 of the standard).

use super::tables::Scale;
use crate::random::Random;

/// The constants C of NURand; the two for last names differ by 66, which is one of the distances that clause 2.1.6.1 allows.
const C_LAST_LOAD: u64 = 157;
const C_LAST_RUN: u64 = 223;
const C_CUSTOMER: u64 = 987;
const C_ITEM: u64 = 5678;
/// Parts of last names, by digit.
const SYLLABLES: [&str; 10] = ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
const CHARACTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

/// Of one connection or loader.
pub(super) struct Numbers {
    random: Random,
    pub scale: Scale,
}

impl Numbers {
    pub fn new(seed: u64, scale: Scale) -> Numbers {
        Numbers { random: Random::new(seed), scale }
    }

    /// From `first` to `last`, both included.
    pub fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.random.below(last - first + 1)
    }

    /// Not uniform, from `first` to `last`: NURand of clause 2.1.6.
    fn skewed(&mut self, a: u64, c: u64, first: u64, last: u64) -> u64 {
        ((self.between(0, a) | self.between(first, last)) + c) % (last - first + 1) + first
    }

    pub fn customer(&mut self) -> u64 {
        self.skewed(1023, C_CUSTOMER, 1, self.scale.customers)
    }

    pub fn item(&mut self) -> u64 {
        self.skewed(8191, C_ITEM, 1, self.scale.items)
    }

    /// A last name that customers have.
    pub fn last_name(&mut self) -> String {
        let names = self.scale.customers.min(1000);
        last_name(self.skewed(255, C_LAST_RUN, 0, names - 1))
    }

    /// The last name of a customer who is loaded: the first thousand have all of them, in order.
    pub fn loaded_last_name(&mut self, customer: u64) -> String {
        let number = if customer <= 1000 { customer - 1 } else { self.skewed(255, C_LAST_LOAD, 0, 999) };
        last_name(number)
    }

    /// Letters and digits.
    pub fn text(&mut self, shortest: u64, longest: u64) -> String {
        let length = self.between(shortest, longest);
        (0..length).map(|_| char::from(CHARACTERS[self.random.below(CHARACTERS.len() as u64) as usize])).collect()
    }

    pub fn digits(&mut self, length: u64) -> String {
        (0..length).map(|_| char::from(b'0' + self.random.below(10) as u8)).collect()
    }

    /// As [`Numbers::text`] from 26 to 50, one in ten with the word that some transactions look for.
    pub fn maybe_original(&mut self) -> String {
        let mut text = self.text(26, 50);
        if self.between(1, 10) == 1 {
            let at = self.between(0, text.len() as u64 - 8) as usize;
            text.replace_range(at..at + 8, "ORIGINAL");
        }
        text
    }

    /// Hundredths as an amount of money.
    pub fn money(&mut self, least_cents: u64, most_cents: u64) -> f64 {
        self.between(least_cents, most_cents) as f64 / 100.0
    }

    /// The numbers from 1 on in random order.
    pub fn shuffled(&mut self, count: u64) -> Vec<u64> {
        let mut all: Vec<u64> = (1..=count).collect();
        for at in (1..all.len()).rev() {
            all.swap(at, self.random.below(at as u64 + 1) as usize);
        }
        all
    }
}

fn last_name(number: u64) -> String {
    [number / 100, number / 10 % 10, number % 10].map(|digit| SYLLABLES[digit as usize]).concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_follow_the_standard() {
        assert_eq!(last_name(371), "PRICALLYOUGHT");
        assert_eq!(last_name(40), "BARPRESBAR");
        assert!([65..=95, 97..=111, 113..=119].iter().any(|allowed| allowed.contains(&(C_LAST_RUN - C_LAST_LOAD))));
        let mut numbers = Numbers::new(7, Scale::STANDARD);
        for _ in 0..10_000 {
            assert!((1..=3000).contains(&numbers.customer()) && (1..=100_000).contains(&numbers.item()));
        }
        assert!(numbers.maybe_original().len() <= 50);
        let mut order = numbers.shuffled(100);
        assert_ne!(order, (1..=100).collect::<Vec<_>>());
        order.sort_unstable();
        assert_eq!(order, (1..=100).collect::<Vec<_>>());
    }

    #[test]
    fn some_items_are_asked_for_more_often() {
        // An OR of two numbers has more ones than each: the upper half of what NURand gives is met more often before it is turned by C.
        let mut numbers = Numbers::new(1, Scale::STANDARD);
        let mut met = vec![0u32; 1024];
        for _ in 0..100_000 {
            met[((numbers.item() - 1) * 1024 / 100_000) as usize] += 1;
        }
        met.sort_unstable();
        let (low, high): (u32, u32) = (met[..512].iter().sum(), met[512..].iter().sum());
        assert!(f64::from(high) > 1.1 * f64::from(low), "{low} {high}");
    }
}
