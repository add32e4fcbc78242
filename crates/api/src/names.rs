//! Names of pools and volumes.
//!
//! A name becomes a file name under `/dev/hearth`, an NBD export name, a path segment of the API and a label in metrics.
//! So the letters that are safe in all of them are allowed and nothing else.

use crate::error::ControlError;

/// Longest name, in bytes. Leaves room for a directory and a suffix in a Unix socket's path (108 bytes).
pub const NAME_BYTES_MAX: usize = 64;

/// What a name is for; only used in messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Named {
    /// A pool.
    Pool,
    /// A volume.
    Volume,
    /// A disk beside a pool's cache.
    Disk,
    /// An analysis.
    Analysis,
    /// A token.
    Token,
    /// What a pool is on: claimed by who reads all of it, or gives it up.
    SsdOfPool,
}

impl Named {
    /// The word in messages.
    pub const fn word(self) -> &'static str {
        match self {
            Named::Pool => "pool",
            Named::Volume => "volume",
            Named::Disk => "disk",
            Named::Analysis => "analysis",
            Named::Token => "token",
            Named::SsdOfPool => "the SSD of pool",
        }
    }
}

/// Checks a name: 1 to 64 letters, digits, `.`, `_` and `-`, not beginning with `-` or `.`.
///
/// # Errors
/// [`ControlError::BadName`] with what is wrong.
pub fn check(named: Named, name: &str) -> Result<(), ControlError> {
    let wrong = |problem: String| Err(ControlError::BadName { named: named.word(), name: shown(name), problem });
    if name.is_empty() {
        return wrong("is empty".into());
    }
    if name.len() > NAME_BYTES_MAX {
        return wrong(format!("has {} bytes, more than {NAME_BYTES_MAX}", name.len()));
    }
    if let Some(odd) = name.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))) {
        return wrong(format!("has the character {odd:?}"));
    }
    if name.starts_with(['-', '.']) {
        return wrong("begins with - or .".into());
    }
    Ok(())
}

/// A name as it may stand in a message: control characters escaped, cut after [`NAME_BYTES_MAX`] characters.
fn shown(name: &str) -> String {
    let escaped: String = name.chars().take(NAME_BYTES_MAX).flat_map(char::escape_debug).collect();
    if name.chars().count() > NAME_BYTES_MAX { format!("{escaped}...") } else { escaped }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_pass() {
        for name in ["a", "db1", "db.1_x-y", "9", "_x", &"x".repeat(64)] {
            assert!(check(Named::Pool, name).is_ok(), "{name}");
        }
    }

    #[test]
    fn odd_names_are_refused_and_the_message_is_printable() {
        for name in ["", ".", "..", "-x", ".x", "a/b", "a b", "a\nb", "a\0", "ä", "a%2f", "\u{202e}x", &"x".repeat(65)] {
            let message = check(Named::Volume, name).expect_err(name).to_string();
            assert!(!message.contains(['\n', '\0', '\u{202e}']), "{message}");
        }
    }
}
