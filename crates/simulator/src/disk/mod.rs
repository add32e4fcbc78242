//! A modelled device: what it holds, what a power cut would leave of it, and how it misbehaves.
//!
//! Two rooms: [`media`] is the bytes with a volatile write cache at 512-byte granularity; this one is I/O in flight and
//! its faults; [`blocking`] is the same device for blocking code.

pub mod blocking;
pub mod faults;
pub mod media;

use std::collections::BTreeMap;

use engine::api::{Completion, Io, IoError, IoKind};
use page::{PageMutVec, PageVec};

use crate::prng::Prng;
use faults::{Faults, Strike};
use media::{Keep, Media};

/// How fast a device is and how it orders things.
#[derive(Clone, Debug)]
pub struct Pace {
    /// Typical time of one I/O.
    pub io_ns: u64,
    /// Typical time of a flush.
    pub flush_ns: u64,
    /// Of ten thousand writes, how many reach the media (in part) when handed out rather than when they complete.
    pub early_per_10k: u32,
}

/// An I/O the device works on.
#[derive(Debug)]
pub struct Flight {
    /// The I/O.
    pub io: Io,
    /// Which shard asked.
    pub lane: u16,
    /// When it was handed out.
    pub began_ns: u64,
    strike: Strike,
    /// Sectors before this one (of the I/O) are on the media already.
    applied_sectors: u64,
    /// For a flush: what it covers.
    covers: u64,
    /// A read that took its data when it began.
    sampled: bool,
}

/// One device.
pub struct Disk {
    /// What it holds.
    pub media: Media,
    /// How it misbehaves.
    pub faults: Faults,
    pace: Pace,
    discards: bool,
    flights: BTreeMap<u64, Flight>,
    next_token: u64,
}

impl Disk {
    /// A device over `media`; `discards`: deallocation is supported (and gives zeroes).
    pub fn new(media: Media, faults: Faults, pace: Pace, discards: bool) -> Disk {
        Disk { media, faults, pace, discards, flights: BTreeMap::new(), next_token: 0 }
    }

    /// The token that the next I/O will get.
    pub fn next_token(&self) -> u64 {
        self.next_token
    }

    /// I/Os in flight, oldest first.
    pub fn flights(&self) -> impl Iterator<Item = &Flight> {
        self.flights.values()
    }

    /// An I/O in flight, for reports: its id, offset, length, lane and what will happen to it.
    pub fn describe(&self, token: u64) -> Option<(u64, u64, u64, u16, String)> {
        let flight = self.flights.get(&token)?;
        let io = &flight.io;
        Some((io.id.0, io.offset_bytes, io.length_bytes, flight.lane, format!("{:?}", flight.strike)))
    }

    /// An I/O in flight and what will happen to it, in words.
    pub fn in_words(&self, token: u64) -> String {
        let Flight { io, strike, .. } = &self.flights[&token];
        let what = match io.kind {
            IoKind::Read(_) => "read",
            IoKind::Write { .. } => "write",
            IoKind::Flush => "flush",
            IoKind::WriteZeroes { .. } => "write-zeroes",
            IoKind::Discard => "discard",
        };
        format!("{what} of {} bytes at {}: {strike:?},", io.length_bytes, io.offset_bytes)
    }

    /// What names an I/O in flight: see [`name_of`].
    pub fn name(&self, token: u64) -> (std::mem::Discriminant<IoKind>, Option<(u64, u64)>) {
        name_of(&self.flights[&token].io)
    }

    /// Whether the I/O in flight is a flush.
    pub fn is_flush(&self, token: u64) -> bool {
        self.flights.get(&token).is_some_and(|flight| matches!(flight.io.kind, IoKind::Flush))
    }

    /// Whether the I/O in flight is a read.
    pub fn is_read(&self, token: u64) -> bool {
        self.flights.get(&token).is_some_and(|flight| matches!(flight.io.kind, IoKind::Read(_)))
    }

    /// Where the I/O in flight is, and how long.
    pub fn place(&self, token: u64) -> (u64, u64) {
        let io = &self.flights[&token].io;
        (io.offset_bytes, io.length_bytes)
    }

    /// Whether the I/O in flight is a flush that will lose what was not flushed.
    pub fn will_drop(&self, token: u64) -> bool {
        matches!(self.flights[&token].strike, Strike::FlushError { drop_pages: true })
    }

    /// Who asked for the I/O in flight.
    pub fn lane(&self, token: u64) -> u16 {
        self.flights[&token].lane
    }

    /// Takes an I/O. Gives its token and how long it will take.
    pub fn begin(&mut self, now_ns: u64, lane: u16, io: Io, prng: &mut Prng) -> (u64, u64) {
        let token = self.next_token;
        self.next_token += 1;
        let strike = self.faults.strike(&io, self.media.size_bytes(), prng);
        let typical = if matches!(io.kind, IoKind::Flush) { self.pace.flush_ns } else { self.pace.io_ns };
        let delay_ns = prng.spread(typical) + io.length_bytes / 4 + self.faults.delay_ns(matches!(io.kind, IoKind::Read(_)), prng);
        let covers = self.media.position();
        let mut flight = Flight { io, lane, began_ns: now_ns, strike, applied_sectors: 0, covers, sampled: false };
        if prng.per_10k(self.pace.early_per_10k) && strike == Strike::None {
            self.begin_early(&mut flight, prng);
        }
        self.flights.insert(token, flight);
        (token, delay_ns)
    }

    fn begin_early(&mut self, flight: &mut Flight, prng: &mut Prng) {
        let (offset, sectors) = (flight.io.offset_bytes, flight.io.length_bytes / 512);
        match &mut flight.io.kind {
            IoKind::Read(pages) => {
                read_into(&self.media, offset, flight.io.length_bytes, pages);
                flight.sampled = true;
            }
            IoKind::Write { pages, .. } => {
                let count = if prng.percent(50) { sectors } else { prng.below(sectors + 1) };
                // Not yet durable, even with FUA: the device has not said so.
                write_sectors(&mut self.media, offset, offset, count * 512, pages, |_| true);
                flight.applied_sectors = count;
            }
            IoKind::WriteZeroes { .. } | IoKind::Discard | IoKind::Flush => {}
        }
    }

    /// The I/O is done: performs what is left of it.
    pub fn finish(&mut self, token: u64, prng: &mut Prng) -> (u16, Completion, Strike) {
        let mut flight = self.flights.remove(&token).expect("finished once");
        let result = self.perform(&mut flight, prng);
        let pages = match flight.io.kind {
            IoKind::Read(pages) => pages,
            _ => PageMutVec::new(),
        };
        (flight.lane, Completion { id: flight.io.id, result, pages }, flight.strike)
    }

    fn perform(&mut self, flight: &mut Flight, prng: &mut Prng) -> Result<(), IoError> {
        let (mut offset, length) = (flight.io.offset_bytes, flight.io.length_bytes);
        let end = offset.checked_add(length).expect("an offset far below 2^64");
        let applied = flight.applied_sectors;
        if end > self.media.size_bytes() {
            assert!(self.faults.shrunk, "I/O at {offset}+{length} beyond a device of {} bytes", self.media.size_bytes());
            return Err(IoError::Failed);
        }
        match flight.strike {
            Strike::Error { partial } => {
                if partial {
                    self.apply_some(flight, prng);
                }
                return Err(IoError::Failed);
            }
            Strike::NoSpace => return Err(IoError::NoSpace),
            Strike::FlushError { drop_pages } => {
                self.fail_flush(drop_pages, prng);
                return Err(IoError::Failed);
            }
            Strike::Lost => return Ok(()),
            Strike::Misdirected { to_bytes } => offset = to_bytes,
            Strike::None | Strike::Rot => {}
        }
        match &mut flight.io.kind {
            IoKind::Read(pages) => {
                if !flight.sampled {
                    read_into(&self.media, offset, length, pages);
                }
                if flight.strike == Strike::Rot {
                    let page = prng.below(pages.len() as u64) as usize;
                    let at = prng.below(4096) as usize;
                    pages[page][at] ^= 1 << prng.below(8);
                }
            }
            IoKind::Write { pages, fua } => {
                write_sectors(&mut self.media, offset, flight.io.offset_bytes, length, pages, |index| index >= applied);
                if *fua {
                    self.media.make_durable(offset, length);
                }
                if flight.strike == Strike::Rot {
                    self.media.rot(offset, length, prng);
                }
            }
            IoKind::Flush => {
                if !self.faults.lies {
                    self.media.flush(flight.covers);
                }
            }
            IoKind::WriteZeroes { fua, .. } => {
                self.media.zero(offset, length);
                if *fua {
                    self.media.make_durable(offset, length);
                }
            }
            IoKind::Discard => {
                if !self.discards {
                    return Err(IoError::Unsupported);
                }
                self.media.zero(offset, length);
            }
        }
        Ok(())
    }

    fn fail_flush(&mut self, drop_pages: bool, prng: &mut Prng) {
        // What the runtime does: a failed flush is final for the device, whichever shard asks.
        self.faults.refuses = true;
        if drop_pages {
            let keep = Keep::draw(prng);
            self.media.power_cut(keep, prng);
            // What of a write in flight was on the media may be gone; completing it brings it back.
            self.flights.values_mut().for_each(|flight| flight.applied_sectors = 0);
        }
    }

    fn apply_some(&mut self, flight: &Flight, prng: &mut Prng) {
        let (offset, sectors) = (flight.io.offset_bytes, flight.io.length_bytes / 512);
        let applied = flight.applied_sectors;
        let style = prng.below(4);
        let cut = prng.below(sectors.max(1) + 1);
        let bits = prng.bits();
        let chosen = |index: u64| {
            index >= applied
                && match style {
                    0 => false,
                    1 => true,
                    2 => index < cut,
                    _ => bits.rotate_left((index % 64) as u32) & 1 == 1,
                }
        };
        match &flight.io.kind {
            IoKind::Write { pages, .. } => {
                write_sectors(&mut self.media, offset, offset, flight.io.length_bytes, pages, chosen);
            }
            IoKind::WriteZeroes { .. } | IoKind::Discard if self.discards || !matches!(flight.io.kind, IoKind::Discard) => {
                for index in (0..sectors).filter(|index| chosen(*index)) {
                    self.media.zero(offset + index * 512, 512);
                }
            }
            _ => {}
        }
    }

    /// The process died: each I/O in flight happened, did not, or in part. Decided here, once.
    pub fn settle(&mut self, prng: &mut Prng) {
        for (_, flight) in std::mem::take(&mut self.flights) {
            if flight.strike == Strike::None && flight.io.offset_bytes + flight.io.length_bytes <= self.media.size_bytes() {
                self.apply_some(&flight, prng);
            }
        }
    }

    /// 4 KiB pieces of the writes in flight.
    pub fn units_in_flight(&self) -> usize {
        let units = |flight: &Flight| {
            let (start, end) = (flight.io.offset_bytes / 4096, (flight.io.offset_bytes + flight.io.length_bytes).div_ceil(4096));
            let writes = match flight.io.kind {
                IoKind::Write { .. } | IoKind::WriteZeroes { .. } => true,
                IoKind::Discard => self.discards,
                IoKind::Read(_) | IoKind::Flush => false,
            };
            if writes { (end - start) as usize } else { 0 }
        };
        self.flights.values().map(units).sum()
    }

    /// The process died: every I/O in flight happened, or none did.
    pub fn settle_all(&mut self, done: bool) {
        for (_, flight) in std::mem::take(&mut self.flights) {
            let (offset, length) = (flight.io.offset_bytes, flight.io.length_bytes);
            match &flight.io.kind {
                _ if !done => {}
                IoKind::Write { pages, .. } => write_sectors(&mut self.media, offset, offset, length, pages, |_| true),
                IoKind::Discard if !self.discards => {}
                IoKind::WriteZeroes { .. } | IoKind::Discard => self.media.zero(offset, length),
                IoKind::Read(_) | IoKind::Flush => {}
            }
        }
    }

    /// The power went (after [`Disk::settle`]): of what was not flushed, what `keep` says stays.
    pub fn power_cut(&mut self, keep: Keep, prng: &mut Prng) {
        assert!(self.flights.is_empty(), "settled before");
        self.media.power_cut(keep, prng);
    }
}

/// What names an I/O when others are left out: its kind, and its place; of the SSD not that, for it follows from all that was written before.
pub fn name_of(io: &Io) -> (std::mem::Discriminant<IoKind>, Option<(u64, u64)>) {
    (std::mem::discriminant(&io.kind), (!io.target.is_ssd()).then_some((io.offset_bytes, io.length_bytes)))
}

fn read_into(media: &Media, offset: u64, length: u64, pages: &mut PageMutVec) {
    let mut at = (offset % 4096) as usize;
    let mut done = 0;
    for page in pages.iter_mut() {
        let count = (4096 - at as u64).min(length - done) as usize;
        page[at..at + count].copy_from_slice(media.bytes(offset + done, count as u64));
        done += count as u64;
        at = 0;
    }
    assert_eq!(done, length, "the pages hold the whole read");
}

/// Writes those of the sectors of `offset..offset + length` that are chosen; the pages' data begins at `data_at`.
fn write_sectors(media: &mut Media, offset: u64, data_at: u64, length: u64, pages: &PageVec, chosen: impl Fn(u64) -> bool) {
    let first = data_at % 4096 / 512;
    media.next_write();
    for index in (0..length / 512).filter(|index| chosen(*index)) {
        let (page, at) = ((first + index) / 8, ((first + index) % 8 * 512) as usize);
        media.write(offset + index * 512, &pages[page as usize][at..at + 512]);
    }
}
