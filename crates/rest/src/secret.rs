//! Random secrets, their digests, and comparing them in constant time.

use api::error::ControlError;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};

/// Bytes of a secret and of a digest: 256 bits, so that guessing is out of the question.
const BYTES: usize = 32;

/// SHA-256 of a secret. Enough for secrets that are random: there is nothing to guess that salt and slowness would protect.
pub type Digest = [u8; BYTES];

/// A new secret as 64 hexadecimal digits.
///
/// # Errors
/// If the kernel provides no random bytes.
pub fn random() -> Result<String, ControlError> {
    let mut bytes = [0; BYTES];
    let no_randomness = |_| ControlError::DataPath("the kernel provides no random bytes".into(), "try again".into());
    SystemRandom::new().fill(&mut bytes).map_err(no_randomness)?;
    Ok(hex(&bytes))
}

/// The digest of a secret.
pub fn digest_of(secret: &str) -> Digest {
    digest(&SHA256, secret.as_bytes()).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// Compares without telling by its time where they differ.
pub fn equal(a: &Digest, b: &Digest) -> bool {
    std::hint::black_box(a.iter().zip(b).fold(0, |differ, (x, y)| differ | (x ^ y))) == 0
}

/// Lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}

/// Reads what [`hex`] writes.
pub fn from_hex(text: &str) -> Option<Digest> {
    if text.len() != BYTES * 2 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; BYTES];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[at * 2..at * 2 + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_differ_and_digests_match_only_their_own() {
        let (one, other) = (random().expect("random"), random().expect("random"));
        assert!(one != other && one.len() == 64);
        assert!(equal(&digest_of(&one), &digest_of(&one)));
        assert!(!equal(&digest_of(&one), &digest_of(&other)));
        assert_eq!(from_hex(&hex(&digest_of(&one))), Some(digest_of(&one)));
        // The known digest of the empty string.
        assert!(hex(&digest_of("")).starts_with("e3b0c44298fc1c14"));
        for wrong in ["", "x", &"g".repeat(64), &"a".repeat(63), &"é".repeat(32)] {
            assert_eq!(from_hex(wrong), None, "{wrong}");
        }
    }
}
