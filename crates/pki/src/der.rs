//! As much of DER, the encoding of certificates, as is read here and not by the reader of certificates.

pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OBJECT_IDENTIFIER: u8 = 0x06;
pub(crate) const UTF8_STRING: u8 = 0x0c;
pub(crate) const PRINTABLE_STRING: u8 = 0x13;
pub(crate) const TELETEX_STRING: u8 = 0x14;
pub(crate) const IA5_STRING: u8 = 0x16;
pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;

/// Tag, content and what follows of the first element.
pub(crate) fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        // Up to 16 MiB: no list of certificates is longer.
        0x81..=0x83 => {
            let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// The content of the first element, which must have this tag, and what follows.
pub(crate) fn expect(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    element(bytes).filter(|(found, ..)| *found == tag).map(|(_, content, rest)| (content, rest))
}

/// A string of whole bytes, and what follows.
pub(crate) fn bytes_of_bits(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (content, rest) = expect(bytes, BIT_STRING)?;
    content.strip_prefix(&[0]).map(|content| (content, rest))
}
