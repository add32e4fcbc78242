//! The way `tracefs`: an instance of our own, whose events are read as text.
//!
//! Rooms: `line` what a line says; `instance` making one, and removing those that were left.

mod instance;
mod line;

use crate::event::Event;
use crate::refused::Refused;
use crate::tap::Drained;
use crate::watched::Watched;
use instance::Instance;
use std::fs::File;
use std::io::{self, Read};

/// What one read of the pipe gives at most: the kernel's limit is a page.
const PIECE_BYTES: usize = 64 << 10;
/// Reads of one look at most, so that it ends beside a device that is faster than we are.
const PIECES_MAX: usize = 4096;

/// An instance that is there until this is dropped.
pub struct TextTap {
    watched: Watched,
    /// Closed before the instance is removed: the kernel keeps one that is read.
    pipe: Option<File>,
    lines: line::Lines,
    piece: Vec<u8>,
    instance: Instance,
}

impl TextTap {
    pub fn open(watched: Watched, ring_bytes: u32) -> Result<TextTap, Refused> {
        let (instance, pipe) = Instance::make(&watched, ring_bytes)?;
        let piece = vec![0; PIECE_BYTES];
        Ok(TextTap { watched, pipe: Some(pipe), lines: line::Lines::default(), piece, instance })
    }

    /// All that is there, without waiting.
    pub fn drain(&mut self, events: &mut Vec<Event>) -> io::Result<Drained> {
        let mut drained = Drained::default();
        let Some(pipe) = &mut self.pipe else { return Ok(drained) };
        let before = events.len();
        for _ in 0..PIECES_MAX {
            let length = match pipe.read(&mut self.piece) {
                Ok(0) => break,
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.lines.feed(&self.piece[..length], |told| match told {
                line::Told::Event { disk, sectors, event } => match self.watched.sector(event.sector, sectors) {
                    Some(sector) if self.watched.is_on(disk) => events.push(Event { sector, ..event }),
                    // The kernel's filter has let it pass: it is of another device.
                    _ => drained.unreadable += 1,
                },
                line::Told::Lost(count) => drained.lost += count,
                line::Told::Nothing => {}
                line::Told::Unreadable => drained.unreadable += 1,
            });
        }
        drained.events = events.len() - before;
        Ok(drained)
    }
}

impl Drop for TextTap {
    fn drop(&mut self) {
        self.pipe = None;
        self.instance.remove();
    }
}
