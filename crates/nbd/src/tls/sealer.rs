//! Records on their way out. Replies are copied into records one behind the other, small ones many to a record, and sealed there:
//! so their pages are free before the socket takes anything.

use super::record::{ALERT, CLOSE_NOTIFY, DATA, HANDSHAKE, KEY_UPDATE, Keys, PLAIN_BYTES_MAX, SEALED_BYTES_MAX};

/// Size of the buffer: eight of the largest records in one call. Sealing as much takes some 30 µs, which others on the thread wait.
const BUFFER_BYTES: usize = SEALED_BYTES_MAX * 8;

/// The way out.
pub(crate) struct Sealer {
    keys: Keys,
    buffer: Vec<u8>,
    /// What of the buffer has left.
    start: usize,
    end: usize,
    /// Where the content of the record begins that is being filled.
    open_record: Option<usize>,
}

impl Sealer {
    /// Begins with bytes that are to leave as they are.
    pub(crate) fn new(keys: Keys, first: &[u8]) -> Sealer {
        let mut buffer = vec![0; BUFFER_BYTES.max(first.len())];
        buffer[..first.len()].copy_from_slice(first);
        Sealer { keys, buffer, start: 0, end: first.len(), open_record: None }
    }

    /// Whether it is time for new keys.
    pub(crate) fn is_used_up(&self) -> bool {
        self.keys.is_used_up()
    }

    /// Whether the connection has to end.
    pub(crate) fn is_spent(&self) -> bool {
        self.keys.is_spent()
    }

    /// Tells the client that new keys follow, and uses them. Only while nothing waits to be sent.
    pub(crate) fn renew(&mut self, keys: Keys) {
        let [a, b, c, d] = KEY_UPDATE;
        self.control(HANDSHAKE, &[a, b, c, d, 0]);
        self.keys = keys;
    }

    /// Tells the client that nothing follows.
    pub(crate) fn close(&mut self) {
        self.control(ALERT, &CLOSE_NOTIFY);
    }

    fn control(&mut self, kind: u8, content: &[u8]) {
        assert!(self.is_empty() && self.open_record.is_none(), "there is room");
        (self.start, self.end) = (0, self.keys.content_at());
        self.open_record = Some(self.end);
        self.buffer[self.end..self.end + content.len()].copy_from_slice(content);
        self.end += content.len();
        self.finish(kind);
    }

    /// Whether all has left.
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// What is sealed and has not left.
    pub(crate) fn waiting(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// The socket has taken so many bytes.
    pub(crate) fn departed(&mut self, bytes: usize) {
        self.start += bytes;
        assert!(self.start <= self.end, "{bytes} bytes have left that were not there");
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Copies as much as there is room for; gives how much. [`Sealer::seal`] must follow before anything is sent.
    pub(crate) fn put(&mut self, mut bytes: &[u8]) -> usize {
        let mut put = 0;
        while !bytes.is_empty() {
            let Some(from) = self.open_record else {
                if self.buffer.len() - self.end < SEALED_BYTES_MAX {
                    break;
                }
                self.end += self.keys.content_at();
                self.open_record = Some(self.end);
                continue;
            };
            let taken = bytes.len().min(PLAIN_BYTES_MAX - (self.end - from));
            self.buffer[self.end..self.end + taken].copy_from_slice(&bytes[..taken]);
            self.end += taken;
            put += taken;
            bytes = &bytes[taken..];
            if self.end - from == PLAIN_BYTES_MAX {
                self.finish(DATA);
            }
        }
        put
    }

    /// Seals what has been put.
    pub(crate) fn seal(&mut self) {
        if self.open_record.is_some() {
            self.finish(DATA);
        }
    }

    fn finish(&mut self, kind: u8) {
        let from = self.open_record.take().expect("there is a record");
        self.end += self.keys.tail_bytes();
        let begin = from - self.keys.content_at();
        self.keys.seal(kind, &mut self.buffer[begin..self.end]);
    }
}
