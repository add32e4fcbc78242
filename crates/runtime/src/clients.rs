//! Clients by number: what an export knows of who is at its other end, small enough to go along with each request.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The first number of a client; threads, by which a tap names who asks, have smaller ones.
pub const FIRST: u32 = 1 << 31;
/// Names that are kept; clients beyond have none.
const NAMES_MAX: usize = 1 << 14;
/// Bytes of a name.
const NAME_BYTES_MAX: usize = 64;

static NUMBERS: Mutex<BTreeMap<String, u32>> = Mutex::new(BTreeMap::new());

/// The number of the client of that name, always the same; 0 if there is no more room.
pub fn number_of(name: &str) -> u32 {
    // No code that may panic runs while it is held.
    let mut numbers = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(number) = numbers.get(name) {
        return *number;
    }
    if numbers.len() >= NAMES_MAX || name.len() > NAME_BYTES_MAX {
        return 0;
    }
    let number = FIRST + numbers.len() as u32;
    numbers.insert(name.to_owned(), number);
    number
}

/// The client of that number.
pub fn name_of(number: u32) -> Option<String> {
    let numbers = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
    numbers.iter().find(|(_, known)| **known == number).map(|(name, _)| name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_number() {
        let one = number_of("192.0.2.1");
        assert!(one >= FIRST && one == number_of("192.0.2.1") && one != number_of("192.0.2.2"));
        assert_eq!(name_of(one).as_deref(), Some("192.0.2.1"));
        assert_eq!((number_of(&"x".repeat(65)), name_of(7), name_of(0)), (0, None, None));
    }
}
