//! Devices in memory with volatile caches, and the state file, of which any one access can fail or be the last before the power goes.

use super::locked;
use engine::api::{Completion, Io, IoError, IoKind, Op, RequestError};
use engine::medium::{Medium, MediumError};
use page::PageMutVec;
use records::state::State;
use simulator::disk::media::{Keep, Media};
use simulator::prng::Prng;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use types::BLOCK_BYTES;

/// Kinds of access that can go wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    Read,
    Write,
    Flush,
    /// Of the state file.
    Save,
}

/// What happens to the access that was chosen.
#[derive(Clone, Copy, Debug)]
pub enum Fate {
    /// It fails; a write may be done in part.
    Fails,
    /// A flush fails, and the device forgets what it had not flushed.
    Forgets,
    /// The power goes in the middle of it; of what no device had flushed, so much stays.
    PowerCut(Keep),
}

/// A device.
#[derive(Clone)]
pub struct Device {
    pub(super) media: Media,
    pub(super) says_bytes: u64,
    /// Counts writes: what a modification time would tell.
    pub(super) writes: u64,
    /// A flush failed since it was opened: it takes nothing more.
    pub(super) failed: bool,
}

/// What outlives the daemon.
#[derive(Clone)]
pub struct Hardware {
    pub(super) devices: BTreeMap<String, Device>,
    pub(super) saved: State,
    pub(super) prng: Prng,
    pub(super) trap: Option<(Access, u64, Fate)>,
    /// What the trap caught, in words.
    pub(super) caught: Option<String>,
    /// No power.
    pub(super) dead: bool,
}

pub(super) enum Pass {
    Go,
    /// Nothing, or a part of it, is done, and an error told.
    Fails,
}

impl Hardware {
    pub(super) fn pass(&mut self, path: &str, access: Access) -> Pass {
        let refuses = self.devices.get(path).is_some_and(|device| device.failed) && access != Access::Read;
        if self.dead || refuses {
            return Pass::Fails;
        }
        let Some((kind, left, fate)) = &mut self.trap else { return Pass::Go };
        if *kind != access {
            return Pass::Go;
        }
        *left -= 1;
        if *left > 0 {
            return Pass::Go;
        }
        let fate = *fate;
        self.trap = None;
        self.caught = Some(format!("{access:?} of {path}: {fate:?}"));
        if access == Access::Flush
            && let Some(device) = self.devices.get_mut(path)
        {
            device.failed = true;
        }
        self.dead = matches!(fate, Fate::PowerCut(_));
        for (other, device) in &mut self.devices {
            match fate {
                Fate::PowerCut(keep) => device.media.power_cut(keep, &mut self.prng),
                Fate::Forgets if other == path => device.media.power_cut(Keep::None, &mut self.prng),
                _ => {}
            }
        }
        Pass::Fails
    }

    pub(super) fn device(&mut self, path: &str) -> &mut Device {
        self.devices.get_mut(path).expect("it is there")
    }

    pub(super) fn read(&mut self, path: &str, offset_bytes: u64, into: &mut [u8]) -> Result<(), ()> {
        let Pass::Go = self.pass(path, Access::Read) else { return Err(()) };
        into.copy_from_slice(self.device(path).media.bytes(offset_bytes, into.len() as u64));
        Ok(())
    }

    /// Sector by sector; one that fails or dies may be done up to any sector.
    pub(super) fn write(&mut self, path: &str, offset_bytes: u64, sectors: &[&[u8]], fua: bool) -> Result<(), ()> {
        let was_dead = self.dead;
        let pass = self.pass(path, Access::Write);
        let until = match pass {
            Pass::Go => sectors.len(),
            // After a power cut what reached the media is what the cut left; the last write may have been torn.
            Pass::Fails if was_dead || self.device(path).failed => 0,
            Pass::Fails => self.prng.below(sectors.len() as u64 + 1) as usize,
        };
        let dead = self.dead;
        let device = self.device(path);
        device.media.next_write();
        for (index, sector) in sectors[..until].iter().enumerate() {
            device.media.write(offset_bytes + index as u64 * 512, sector);
        }
        device.writes += 1;
        if fua || dead {
            device.media.make_durable(offset_bytes, until as u64 * 512);
        }
        if dead {
            let position = device.media.position();
            device.media.flush(position);
        }
        if let Pass::Go = pass { Ok(()) } else { Err(()) }
    }

    pub(super) fn flush(&mut self, path: &str) -> Result<(), ()> {
        let Pass::Go = self.pass(path, Access::Flush) else { return Err(()) };
        let media = &mut self.device(path).media;
        let position = media.position();
        media.flush(position);
        Ok(())
    }

    pub(super) fn perform(&mut self, path: &str, io: Io) -> Completion {
        let Io { id, offset_bytes, length_bytes, kind, .. } = io;
        let mut into = PageMutVec::new();
        let done = match kind {
            IoKind::Read(mut pages) => {
                let mut bytes = vec![0; length_bytes as usize];
                let done = self.read(path, offset_bytes, &mut bytes);
                let start = (offset_bytes % BLOCK_BYTES) as usize;
                let whole: Vec<u8> = [&vec![0; start][..], &bytes].concat();
                for (page, chunk) in pages.iter_mut().zip(whole.chunks(BLOCK_BYTES as usize)) {
                    page[..chunk.len()].copy_from_slice(chunk);
                }
                into = pages;
                done
            }
            IoKind::Write { pages, fua } => {
                let first = (offset_bytes % BLOCK_BYTES / 512) as usize;
                let all = pages.iter().flat_map(|page| page.chunks_exact(512));
                let sectors: Vec<&[u8]> = all.skip(first).take(length_bytes as usize / 512).collect();
                self.write(path, offset_bytes, &sectors, fua)
            }
            IoKind::Flush => self.flush(path),
            IoKind::WriteZeroes { fua, .. } => self.write(path, offset_bytes, &vec![&[0; 512][..]; length_bytes as usize / 512], fua),
            IoKind::Discard => self.write(path, offset_bytes, &vec![&[0; 512][..]; length_bytes as usize / 512], false),
        };
        Completion { id, result: done.map_err(|()| IoError::Failed), pages: into }
    }
}

/// A device, for the engine's blocking code.
pub(super) struct Blocking {
    pub(super) hardware: Arc<Mutex<Hardware>>,
    pub(super) path: String,
}

impl Medium for Blocking {
    fn size_bytes(&self) -> u64 {
        locked(&self.hardware).device(&self.path).media.size_bytes()
    }

    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), MediumError> {
        let done = locked(&self.hardware).read(&self.path, offset_bytes, into);
        done.map_err(|()| MediumError { operation: "read", offset_bytes, errno: 5 })
    }

    fn write(&mut self, offset_bytes: u64, from: &[u8]) -> Result<(), MediumError> {
        let sectors: Vec<&[u8]> = from.chunks_exact(512).collect();
        let done = locked(&self.hardware).write(&self.path, offset_bytes, &sectors, false);
        done.map_err(|()| MediumError { operation: "write", offset_bytes, errno: 5 })
    }

    fn flush(&mut self) -> Result<(), MediumError> {
        let done = locked(&self.hardware).flush(&self.path);
        done.map_err(|()| MediumError { operation: "flush", offset_bytes: 0, errno: 5 })
    }

    fn discard(&mut self, _offset_bytes: u64, _length_bytes: u64) -> Result<(), MediumError> {
        Ok(())
    }
}

impl Hardware {
    pub(super) fn bare(&mut self, path: &str, op: Op, block: u64, data: Option<&[u8]>) -> Result<Vec<u8>, RequestError> {
        let mut bytes = vec![0; if op == Op::Read { BLOCK_BYTES as usize } else { 0 }];
        let done = match (op, data) {
            (Op::Read, _) => self.read(path, block * BLOCK_BYTES, &mut bytes),
            (Op::Write, Some(data)) => self.write(path, block * BLOCK_BYTES, &data.chunks_exact(512).collect::<Vec<_>>(), false),
            _ => self.flush(path),
        };
        done.map(|()| bytes).map_err(|()| RequestError::Io)
    }
}
