//! An NBD client as small as the protocol allows: fixed newstyle over a Unix socket, one request at a time, simple replies.
//! Written from the protocol's own description (`doc/proto.md` of the NBD project), not from the server's code.

use crate::registers::Port;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

const CLIENT_FIXED_NEWSTYLE_NO_ZEROES: u32 = 3;
const OPTION_EXPORT_NAME: u32 = 1;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
const COMMAND_READ: u16 = 0;
const COMMAND_WRITE: u16 = 1;
const COMMAND_DISCONNECT: u16 = 2;
const COMMAND_FLUSH: u16 = 3;
const FLAG_FUA: u16 = 1;

/// A request that takes longer is a stall, and a failure.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// One connection.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    cookie: u64,
    /// The export's size in bytes.
    pub size_bytes: u64,
}

impl Client {
    /// Connects to `nbd+unix:///NAME?socket=PATH`.
    ///
    /// # Errors
    ///
    /// The socket's, or `InvalidData` for an answer that is not the protocol's.
    pub fn connect(uri: &str) -> Result<Client> {
        let parts = uri.strip_prefix("nbd+unix:///").and_then(|rest| rest.split_once("?socket="));
        let (name, socket) = parts.ok_or_else(|| Error::new(ErrorKind::InvalidInput, uri))?;
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        stream.set_write_timeout(Some(ANSWER_LIMIT))?;
        let mut hello = [0; 18];
        stream.read_exact(&mut hello)?;
        expect(&hello[..16] == b"NBDMAGICIHAVEOPT", "greeting")?;
        let mut option = CLIENT_FIXED_NEWSTYLE_NO_ZEROES.to_be_bytes().to_vec();
        option.extend_from_slice(b"IHAVEOPT");
        option.extend_from_slice(&OPTION_EXPORT_NAME.to_be_bytes());
        option.extend_from_slice(&(name.len() as u32).to_be_bytes());
        option.extend_from_slice(name.as_bytes());
        stream.write_all(&option)?;
        let mut answer = [0; 10];
        stream.read_exact(&mut answer)?;
        let size_bytes = u64::from_be_bytes(answer[..8].try_into().expect("eight bytes"));
        Ok(Client { stream, cookie: 0, size_bytes })
    }

    fn send(&mut self, command: u16, flags: u16, offset: u64, length: usize, data: &[u8]) -> Result<()> {
        self.cookie += 1;
        let mut request = REQUEST_MAGIC.to_be_bytes().to_vec();
        request.extend_from_slice(&flags.to_be_bytes());
        request.extend_from_slice(&command.to_be_bytes());
        request.extend_from_slice(&self.cookie.to_be_bytes());
        request.extend_from_slice(&offset.to_be_bytes());
        request.extend_from_slice(&(length as u32).to_be_bytes());
        request.extend_from_slice(data);
        self.stream.write_all(&request)
    }

    fn request(&mut self, command: u16, flags: u16, offset: u64, length: usize, data: &[u8]) -> Result<()> {
        self.send(command, flags, offset, length, data)?;
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply)?;
        expect(reply[..4] == SIMPLE_REPLY_MAGIC.to_be_bytes(), "reply magic")?;
        expect(reply[8..] == self.cookie.to_be_bytes(), "cookie")?;
        match i32::from_be_bytes(reply[4..8].try_into().expect("four bytes")) {
            0 => Ok(()),
            errno => Err(Error::from_raw_os_error(errno)),
        }
    }
}

impl Port for Client {
    fn read(&mut self, offset: u64, data: &mut [u8]) -> Result<()> {
        self.request(COMMAND_READ, 0, offset, data.len(), &[])?;
        self.stream.read_exact(data)
    }

    fn write(&mut self, offset: u64, data: &[u8], fua: bool) -> Result<()> {
        self.request(COMMAND_WRITE, if fua { FLAG_FUA } else { 0 }, offset, data.len(), data)
    }

    fn flush(&mut self) -> Result<()> {
        self.request(COMMAND_FLUSH, 0, 0, 0, &[])
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // A courtesy: the server may be gone, which is no matter here.
        drop(self.send(COMMAND_DISCONNECT, 0, 0, 0, &[]));
    }
}

fn expect(condition: bool, what: &str) -> Result<()> {
    if condition { Ok(()) } else { Err(Error::new(ErrorKind::InvalidData, format!("the server's {what} is not the protocol's"))) }
}
