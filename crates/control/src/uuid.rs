//! Random UUIDs (RFC 9562, version 4) for pools and volumes.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::io::Read;

/// A UUID.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// A new random one, from the kernel's generator.
    ///
    /// # Errors
    /// If `/dev/urandom` cannot be read.
    pub fn random() -> std::io::Result<Uuid> {
        let mut bytes = [0; 16];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Ok(Uuid(bytes))
    }

    /// Reads the form with hyphens.
    pub fn parse(text: &str) -> Option<Uuid> {
        let well_formed = text.len() == 36
            && text.bytes().enumerate().all(|(at, byte)| match at {
                8 | 13 | 18 | 23 => byte == b'-',
                _ => byte.is_ascii_hexdigit(),
            });
        let digits: String = text.chars().filter(|c| *c != '-').collect();
        let number = u128::from_str_radix(&digits, 16).ok().filter(|_| well_formed)?;
        Some(Uuid(number.to_be_bytes()))
    }
}

impl std::fmt::Display for Uuid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digits = format!("{:032x}", u128::from_be_bytes(self.0));
        write!(f, "{}-{}-{}-{}-{}", &digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..])
    }
}

impl std::fmt::Debug for Uuid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for Uuid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Uuid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Uuid, D::Error> {
        let text = String::deserialize(deserializer)?;
        Uuid::parse(&text).ok_or_else(|| D::Error::custom(format!("{text:?} is not a UUID")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        let uuid = Uuid::random().expect("the kernel has randomness");
        assert_eq!(Uuid::parse(&uuid.to_string()), Some(uuid));
        assert_ne!(Uuid::random().expect("the kernel has randomness"), uuid);
        for text in ["", "x", "+0000000-0000-4000-8000-000000000000", "00000000-0000-4000-8000-00000000000g"] {
            assert_eq!(Uuid::parse(text), None, "{text}");
        }
    }
}
