//! A plain NBD client for tests: says what it is told to say, right or wrong.

use rustix::net::{AddressFamily, SocketType};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const DISCONNECT: u16 = 2;
pub const FLUSH: u16 = 3;
pub const TRIM: u16 = 4;
pub const WRITE_ZEROES: u16 = 6;
pub const FUA: u16 = 1;

/// How long a test waits for an answer that must come. Far beyond what a busy machine needs: passing is not timed.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Client {
    pub stream: UnixStream,
    next_cookie: u64,
}

impl Client {
    /// Connects and reads the greeting.
    pub fn connect(socket: &Path) -> Client {
        Client::over(UnixStream::connect(socket).expect("the server listens"))
    }

    /// Connects by TCP, from that address of this machine.
    pub fn connect_from(from: IpAddr, to: SocketAddr) -> Client {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&socket, &SocketAddr::new(from, 0)).unwrap();
        rustix::net::connect(&socket, &to).expect("the server listens");
        // A stream is a stream: what is called a Unix socket here sends and receives on either.
        Client::over(UnixStream::from(socket))
    }

    /// Reads the greeting of a connection.
    pub fn over(stream: UnixStream) -> Client {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = Client { stream, next_cookie: 1 };
        let greeting = client.read(18);
        assert_eq!(&greeting, b"NBDMAGICIHAVEOPT\0\x03");
        client
    }

    /// Connects and chooses an export, with simple replies.
    pub fn open(socket: &Path, name: &str) -> Client {
        let mut client = Client::connect(socket);
        client.stream.write_all(&[0, 0, 0, 3]).unwrap();
        client.stream.write_all(&option(1, name.as_bytes())).unwrap();
        client.read(10);
        client
    }

    /// Says that it speaks fixed newstyle.
    pub fn flags(&mut self) {
        self.stream.write_all(&[0, 0, 0, 3]).unwrap();
    }

    /// Chooses an export with GO.
    ///
    /// # Errors
    /// Kind and sentence of the server's refusal.
    pub fn go(&mut self, name: &str) -> Result<(), (u32, String)> {
        let mut data = (name.len() as u32).to_be_bytes().to_vec();
        data.extend_from_slice(name.as_bytes());
        data.extend_from_slice(&[0, 0]);
        self.stream.write_all(&option(7, &data)).unwrap();
        loop {
            let head = self.read(20);
            let field = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
            let body = self.read(field(16) as usize);
            match field(12) {
                1 => return Ok(()),
                3 => (),
                kind => return Err((kind, String::from_utf8(body).expect("a sentence"))),
            }
        }
    }

    pub fn read(&mut self, bytes: usize) -> Vec<u8> {
        let mut buffer = vec![0; bytes];
        self.stream.read_exact(&mut buffer).expect("the server answers");
        buffer
    }

    /// Sends a request header; gives its cookie.
    pub fn request(&mut self, kind: u16, flags: u16, offset: u64, length: u32) -> u64 {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        self.stream.write_all(&header(kind, flags, cookie, offset, length)).expect("the server reads");
        cookie
    }

    /// One simple reply: cookie and error.
    pub fn reply(&mut self) -> (u64, u32) {
        let bytes = self.read(16);
        assert_eq!(bytes[..4], 0x6744_6698_u32.to_be_bytes());
        let error = u32::from_be_bytes(bytes[4..8].try_into().unwrap());
        (u64::from_be_bytes(bytes[8..].try_into().unwrap()), error)
    }

    /// A request without data, and its error.
    pub fn call(&mut self, kind: u16, flags: u16, offset: u64, length: u32) -> u32 {
        let cookie = self.request(kind, flags, offset, length);
        let (answered, error) = self.reply();
        assert_eq!(answered, cookie);
        error
    }

    pub fn write(&mut self, flags: u16, offset: u64, data: &[u8]) -> u32 {
        let cookie = self.request(WRITE, flags, offset, data.len() as u32);
        self.stream.write_all(data).expect("the server reads");
        let (answered, error) = self.reply();
        assert_eq!(answered, cookie);
        error
    }

    pub fn read_at(&mut self, offset: u64, length: u32) -> Result<Vec<u8>, u32> {
        match self.call(READ, 0, offset, length) {
            0 => Ok(self.read(length as usize)),
            error => Err(error),
        }
    }

    /// Whether the server has closed: reads until the end of the stream or a reset.
    pub fn is_closed(&mut self) -> bool {
        let mut sink = [0; 4096];
        loop {
            match self.stream.read(&mut sink) {
                Ok(0) => return true,
                Ok(_) => (),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

pub fn header(kind: u16, flags: u16, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
    bytes.extend_from_slice(&flags.to_be_bytes());
    bytes.extend_from_slice(&kind.to_be_bytes());
    bytes.extend_from_slice(&cookie.to_be_bytes());
    bytes.extend_from_slice(&offset.to_be_bytes());
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes
}

pub fn option(code: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend_from_slice(&code.to_be_bytes());
    bytes.extend_from_slice(&(data.len() as u32).to_be_bytes());
    bytes.extend_from_slice(data);
    bytes
}
