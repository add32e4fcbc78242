//! Numbers a request may hold. The API's description calls them int64 (OpenAPI's word for what is signed), as the kernel does with offsets: what is
//! beyond is a mistake, and not one that means "to the end" or "never".

use serde::de::{Deserialize, Deserializer, Error};

/// Reads a number of at most 2^63 - 1; for serde's `deserialize_with`.
///
/// # Errors
/// A larger one, a negative one, and what is none.
pub fn number<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let number = u64::deserialize(from)?;
    if number > i64::MAX as u64 { Err(D::Error::custom(format!("{number} is above {}", i64::MAX))) } else { Ok(number) }
}

/// The same where none may be given.
///
/// # Errors
/// Those of [`number`].
pub fn or_none<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let number = Option::<u64>::deserialize(from)?;
    number.map(|number| self::number(serde::de::value::U64Deserializer::new(number))).transpose()
}
