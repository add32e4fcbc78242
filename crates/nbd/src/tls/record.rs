//! Records of TLS 1.3 (RFC 8446, section 5) and of TLS 1.2 (RFC 5246, 6.2; RFC 5288, RFC 7905): how they are framed, numbered and keyed.
//!
//! ```text
//!   TLS 1.3                  header  content  type  tag       the header says "data", whatever the type
//!   TLS 1.2, AES-GCM         header  half of the nonce  content  tag
//!   TLS 1.2, ChaCha20        header  content  tag
//! ```

use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use rustls::{ConnectionTrafficSecrets, ProtocolVersion};

/// Type, version and length.
pub(super) const HEADER_BYTES: usize = 5;
/// The tag of all three ciphers.
const TAG_BYTES: usize = 16;
/// What of the nonce is in each record, with AES-GCM in TLS 1.2.
const EXPLICIT_BYTES: usize = 8;
/// Most plaintext in a record.
pub(super) const PLAIN_BYTES_MAX: usize = 16 << 10;
/// Most that may follow a header.
const BODY_BYTES_MAX: usize = PLAIN_BYTES_MAX + 256;
/// Longest record that comes.
pub(super) const RECORD_BYTES_MAX: usize = HEADER_BYTES + BODY_BYTES_MAX;
/// Longest record that is made.
pub(super) const SEALED_BYTES_MAX: usize = HEADER_BYTES + EXPLICIT_BYTES + PLAIN_BYTES_MAX + 1 + TAG_BYTES;

/// Content types.
pub(super) const ALERT: u8 = 21;
pub(super) const HANDSHAKE: u8 = 22;
pub(super) const DATA: u8 = 23;

/// A key update; a byte follows that says whether the other side is to have new keys, too.
pub(super) const KEY_UPDATE: [u8; 4] = [24, 0, 0, 1];
pub(super) const CLOSE_NOTIFY: [u8; 2] = [1, 0];

/// What one key may seal in TLS 1.3: 2^24.5 records with AES-GCM (section 5.5). It is renewed long before.
const RENEWED_AFTER: u64 = 1 << 23;
/// In TLS 1.2 keys cannot be renewed. A connection ends there: that is 64 TiB in full records.
const ENDS_AFTER: u64 = 1 << 32;

/// Type and length of the body that a header announces; `None` if it is none of TLS.
pub(super) fn header(bytes: &[u8; HEADER_BYTES]) -> Option<(u8, usize)> {
    let [kind, major, _, high, low] = *bytes;
    let length = usize::from(u16::from_be_bytes([high, low]));
    (major == 3 && (20..=DATA).contains(&kind) && length <= BODY_BYTES_MAX).then_some((kind, length))
}

/// Keys of one direction.
pub(crate) struct Keys {
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
    /// Number of the next record.
    sequence: u64,
    is_tls13: bool,
    /// Bytes of the nonce in each record.
    explicit_bytes: usize,
}

impl Keys {
    /// As the handshake has made them.
    pub(crate) fn new(version: Option<ProtocolVersion>, (sequence, secrets): (u64, ConnectionTrafficSecrets)) -> Option<Keys> {
        let is_tls13 = match version? {
            ProtocolVersion::TLSv1_3 => true,
            ProtocolVersion::TLSv1_2 => false,
            _ => return None,
        };
        let (algorithm, key, iv): (&'static Algorithm, _, _) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            _ => return None,
        };
        let explicit_bytes = if is_tls13 || *algorithm == CHACHA20_POLY1305 { 0 } else { EXPLICIT_BYTES };
        let key = LessSafeKey::new(UnboundKey::new(algorithm, key.as_ref()).ok()?);
        Some(Keys { key, iv: iv.as_ref().try_into().ok()?, sequence, is_tls13, explicit_bytes })
    }

    /// Whether it is time for new keys, where there can be any.
    pub(super) fn is_used_up(&self) -> bool {
        self.is_tls13 && self.sequence >= RENEWED_AFTER
    }

    /// Whether nothing more may be sealed.
    pub(super) fn is_spent(&self) -> bool {
        self.sequence >= ENDS_AFTER
    }

    /// Where the content begins in a record.
    pub(super) fn content_at(&self) -> usize {
        HEADER_BYTES + self.explicit_bytes
    }

    /// What follows the content.
    pub(super) fn tail_bytes(&self) -> usize {
        TAG_BYTES + usize::from(self.is_tls13)
    }

    /// Of the record of this number.
    fn nonce(&self) -> [u8; NONCE_LEN] {
        let mut bytes = self.iv;
        for (byte, number) in bytes[NONCE_LEN - 8..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= number;
        }
        bytes
    }

    /// What is vouched for beside the content, in TLS 1.2: number, type, version, length.
    fn beside(&self, kind: u8, content_bytes: usize) -> [u8; 13] {
        let mut bytes = [0; 13];
        bytes[..8].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[8..11].copy_from_slice(&[kind, 3, 3]);
        bytes[11..].copy_from_slice(&(content_bytes as u16).to_be_bytes());
        bytes
    }

    /// Makes a record of `record`: room for what comes before the content, the content, room for what follows it.
    pub(super) fn seal(&mut self, kind: u8, record: &mut [u8]) {
        let body_bytes = record.len() - HEADER_BYTES;
        assert!(body_bytes <= BODY_BYTES_MAX, "{body_bytes} bytes in a record");
        let [high, low] = (body_bytes as u16).to_be_bytes();
        let (content_at, tag_at) = (self.content_at(), record.len() - TAG_BYTES);
        let nonce = self.nonce();
        let (head, rest) = record.split_at_mut(content_at);
        let (content, tag) = rest.split_at_mut(tag_at - content_at);
        head[..HEADER_BYTES].copy_from_slice(&[if self.is_tls13 { DATA } else { kind }, 3, 3, high, low]);
        head[HEADER_BYTES..].copy_from_slice(&nonce[NONCE_LEN - self.explicit_bytes..]);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let sealed = if self.is_tls13 {
            *content.last_mut().expect("there is room for the type") = kind;
            self.key.seal_in_place_separate_tag(nonce, Aad::from(&*head), content)
        } else {
            let beside = self.beside(kind, content.len());
            self.key.seal_in_place_separate_tag(nonce, Aad::from(&beside), content)
        };
        tag.copy_from_slice(sealed.expect("a record is far below the cipher's limit").as_ref());
        self.sequence += 1;
    }

    /// Opens a record in place. Gives the type of its content, and where that lies; `None` if it was not made with these keys.
    pub(super) fn open<'a>(&mut self, record: &'a mut [u8]) -> Option<(u8, &'a [u8])> {
        let content_at = self.content_at();
        let outer = *record.first()?;
        let (head, body) = record.split_at_mut_checked(content_at)?;
        let mut nonce = self.nonce();
        let implicit_bytes = NONCE_LEN - self.explicit_bytes;
        nonce[implicit_bytes..].copy_from_slice(&head[HEADER_BYTES..]);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let opened = if self.is_tls13 {
            // All that is sealed is called data.
            (outer == DATA).then_some(())?;
            let content: &'a [u8] = self.key.open_in_place(nonce, Aad::from(&*head), body).ok()?;
            // The type is the last byte that is not zero: what follows is padding.
            let length = content.iter().rposition(|byte| *byte != 0)?;
            (content[length], &content[..length])
        } else {
            let beside = self.beside(outer, body.len().checked_sub(TAG_BYTES)?);
            (outer, &*self.key.open_in_place(nonce, Aad::from(&beside), body).ok()?)
        };
        self.sequence += 1;
        (opened.1.len() <= PLAIN_BYTES_MAX).then_some(opened)
    }
}
