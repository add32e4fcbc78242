//! A guest's disk over vhost-user, without a guest: one queue for each client.

use crate::registers::{Port, SECTOR_BYTES};
use guest::{Buffers, Guest, Kind, Options};
use std::io::{Error, Result};
use std::path::Path;
use std::time::Duration;

/// Longer than a daemon that was killed takes to be back.
const PATIENCE: Duration = Duration::from_secs(60);

/// The front end; its queues are with the clients.
pub struct Disk(Guest);

/// A client's queue.
pub struct Queue(guest::Queue);

impl Disk {
    /// Connects to a socket with so many queues.
    ///
    /// # Errors
    ///
    /// The connection's.
    pub fn connect(socket: &str, queues: u16) -> Result<Disk> {
        let buffers = Buffers { slots: 1, data_bytes: 64 << 10 };
        Guest::start(Path::new(socket), Options { queues, entries: 16, buffers, ..Options::default() }).map(Disk)
    }

    /// The daemon was gone and is back.
    ///
    /// # Errors
    ///
    /// The connection's.
    pub fn reconnect(&mut self, socket: &str) -> Result<()> {
        self.0.reconnect(Path::new(socket))
    }

    /// A queue that nobody has yet.
    pub fn take_queue(&mut self) -> Option<Queue> {
        self.0.queues.pop().map(Queue)
    }
}

impl Queue {
    fn run(&mut self, kind: Kind, offset: u64, data: &mut [u8]) -> Result<()> {
        match self.0.run(kind as u32, offset / SECTOR_BYTES as u64, data, kind == Kind::Read, PATIENCE) {
            0 => Ok(()),
            status => Err(Error::other(format!("{kind:?} at {offset} was answered with {status}"))),
        }
    }
}

impl Port for Queue {
    fn read(&mut self, offset: u64, data: &mut [u8]) -> Result<()> {
        self.run(Kind::Read, offset, data)
    }

    fn write(&mut self, offset: u64, data: &[u8], _fua: bool) -> Result<()> {
        self.run(Kind::Write, offset, &mut data.to_vec())
    }

    fn flush(&mut self) -> Result<()> {
        self.run(Kind::Flush, 0, &mut [])
    }
}
