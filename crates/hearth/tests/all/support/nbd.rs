//! A client of the NBD export, as small as the protocol allows: one connection, one request at a time, simple replies.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

const CLIENT_FLAGS_FIXED_NO_ZEROES: u32 = 3;
const OPTION_EXPORT_NAME: u32 = 1;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;

/// A connection.
pub struct Client {
    stream: UnixStream,
    pub size_bytes: u64,
}

impl Client {
    /// Connects to the URI `nbd+unix:///NAME?socket=PATH`.
    pub fn connect(uri: &str) -> Client {
        let rest = uri.strip_prefix("nbd+unix:///").expect("a Unix URI");
        let (name, socket) = rest.split_once("?socket=").expect("it names its socket");
        let mut stream = UnixStream::connect(socket).expect("the export listens");
        let mut hello = [0; 18];
        stream.read_exact(&mut hello).expect("a greeting");
        assert_eq!(&hello[..16], b"NBDMAGICIHAVEOPT");
        let mut option = CLIENT_FLAGS_FIXED_NO_ZEROES.to_be_bytes().to_vec();
        option.extend_from_slice(b"IHAVEOPT");
        option.extend_from_slice(&OPTION_EXPORT_NAME.to_be_bytes());
        option.extend_from_slice(&(name.len() as u32).to_be_bytes());
        option.extend_from_slice(name.as_bytes());
        stream.write_all(&option).expect("it listens");
        let mut answer = [0; 10];
        stream.read_exact(&mut answer).expect("the export is there");
        let size_bytes = u64::from_be_bytes(answer[..8].try_into().expect("eight bytes"));
        Client { stream, size_bytes }
    }

    fn request(&mut self, kind: u16, offset: u64, length: u32, data: &[u8], answer: &mut [u8]) -> Result<(), u32> {
        let mut request = REQUEST_MAGIC.to_be_bytes().to_vec();
        request.extend_from_slice(&0u16.to_be_bytes());
        request.extend_from_slice(&kind.to_be_bytes());
        request.extend_from_slice(&1u64.to_be_bytes());
        request.extend_from_slice(&offset.to_be_bytes());
        request.extend_from_slice(&length.to_be_bytes());
        request.extend_from_slice(data);
        self.stream.write_all(&request).expect("the server lives");
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply).expect("the server answers");
        assert_eq!(reply[..4], REPLY_MAGIC.to_be_bytes());
        match u32::from_be_bytes(reply[4..8].try_into().expect("four bytes")) {
            0 => {
                self.stream.read_exact(answer).expect("the data follows");
                Ok(())
            }
            errno => Err(errno),
        }
    }

    pub fn read(&mut self, offset: u64, length: usize) -> Vec<u8> {
        self.try_read(offset, length).expect("a read")
    }

    pub fn try_read(&mut self, offset: u64, length: usize) -> Result<Vec<u8>, u32> {
        let mut data = vec![0; length];
        self.request(0, offset, length as u32, &[], &mut data).map(|()| data)
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), u32> {
        self.request(1, offset, data.len() as u32, data, &mut [])
    }

    pub fn discard(&mut self, offset: u64, length: u32) {
        self.request(4, offset, length, &[], &mut []).expect("a discard");
    }

    pub fn flush(&mut self) {
        self.request(3, 0, 0, &[], &mut []).expect("a flush");
    }
}
