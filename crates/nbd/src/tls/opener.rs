//! Records on their way in, opened where they have come to lie.

use super::record::{ALERT, CLOSE_NOTIFY, DATA, HANDSHAKE, HEADER_BYTES, KEY_UPDATE, Keys, RECORD_BYTES_MAX, header};

/// Size of the buffer: seven of the largest records, so that a fast writer needs a call for each of them no more.
const BUFFER_BYTES: usize = 128 << 10;
const _: () = assert!(BUFFER_BYTES > 2 * RECORD_BYTES_MAX);

/// What the next record holds.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Opened<'a> {
    /// There is no whole record.
    NeedMore,
    /// Bytes of the client's.
    Data(&'a [u8]),
    /// The client has new keys; whether it wants us to have new ones, too.
    KeyUpdate { wanted: bool },
    /// The client will send nothing more.
    Closed,
    /// It is no record of these keys, or one that has no business here.
    Broken,
}

/// The way in.
pub(crate) struct Opener {
    keys: Keys,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Opener {
    /// Begins with bytes that came behind the handshake.
    pub(crate) fn new(keys: Keys, input: &[u8]) -> Opener {
        let mut buffer = vec![0; BUFFER_BYTES.max(input.len())];
        buffer[..input.len()].copy_from_slice(input);
        Opener { keys, buffer, start: 0, end: input.len() }
    }

    pub(crate) fn set_keys(&mut self, keys: Keys) {
        self.keys = keys;
    }

    /// Where more bytes go. Not empty: what is there is less than a record, or else it has to be opened first.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        &mut self.buffer[self.end..]
    }

    /// So many have come.
    pub(crate) fn filled(&mut self, bytes: usize) {
        self.end += bytes;
        assert!(self.end <= self.buffer.len(), "the kernel wrote {} bytes into {}", self.end, self.buffer.len());
    }

    /// Opens the next record.
    pub(crate) fn open(&mut self) -> Opened<'_> {
        let waiting = &mut self.buffer[self.start..self.end];
        let Some(first) = waiting.first_chunk::<HEADER_BYTES>() else { return Opened::NeedMore };
        let Some((_, length)) = header(first) else { return Opened::Broken };
        let Some(record) = waiting.get_mut(..HEADER_BYTES + length) else { return Opened::NeedMore };
        self.start += record.len();
        let Some((kind, content)) = self.keys.open(record) else { return Opened::Broken };
        match kind {
            DATA => Opened::Data(content),
            ALERT if content.last_chunk() == Some(&CLOSE_NOTIFY) => Opened::Closed,
            HANDSHAKE => match content.split_first_chunk() {
                // Alone in its record: what follows it comes with the new keys.
                Some((&KEY_UPDATE, &[wanted @ 0..=1])) => Opened::KeyUpdate { wanted: wanted == 1 },
                _ => Opened::Broken,
            },
            _ => Opened::Broken,
        }
    }
}
