//! hearth's load generator on a device or a file: direct I/O, one thread, one ring.

use super::content::Contents;
use super::player::{DEPTH_MAX, Order, Player, Step};
use super::{Load, Loaded, Watch};
use crate::trouble::Trouble;
use device::{Access, AlignedBuffer, OpenDevice};
use direct::{Direct, Done, Transfer};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a stop may stay unnoticed.
const LOOK_NS: u64 = 100_000_000;
/// Addresses of buffers: what any device asks for.
pub(super) const ALIGNMENT_BYTES: usize = 4096;

/// Plays a load on a device or file. It is opened without the page cache, and for itself alone if anything is written.
///
/// # Errors
/// If it cannot be opened or is too small, if the load cannot be played, if an I/O fails or (with [`Load::verify`]) reads what was not written, or
/// if `stop` is set.
pub fn run(path: &Path, load: &Load, stop: &AtomicBool, watch: Watch<'_>) -> Result<Loaded, Trouble> {
    play(&mut Real::new(&opened_for(path, load)?)?, load, stop, watch)
}

/// The device, if it is large enough for the load.
fn opened_for(path: &Path, load: &Load) -> Result<Arc<OpenDevice>, Trouble> {
    let writes = load.pattern.reads_percent < 100;
    let device = open(path, if writes { Access::ReadWrite } else { Access::ReadOnly })?;
    let (size_bytes, needed) = (device.geometry().size_bytes, load.pattern.space_bytes);
    if needed > size_bytes {
        let problem = format!("{} has {size_bytes} bytes, and the load is for {needed}", path.display());
        return Err(Trouble::failed(problem, "give a larger one, or --size"));
    }
    Ok(Arc::new(device))
}

/// A ring for a device.
pub(super) fn ring(device: &Arc<OpenDevice>, depth: u32) -> Result<Direct, Trouble> {
    Direct::new(device.clone(), depth)
        .map_err(|error| Trouble::failed(format!("the kernel gives no io_uring: {error}"), "see `sysctl kernel.io_uring_disabled`"))
}

/// Opens a device or file for direct I/O.
pub(super) fn open(path: &Path, access: Access) -> Result<OpenDevice, Trouble> {
    OpenDevice::open(path, access).map_err(|error| Trouble::Failed(error.to_string()))
}

/// A disk, and the time that goes by on it.
trait Disk {
    /// Now, in nanoseconds.
    fn now_ns(&mut self) -> u64;
    /// Begins an I/O of the whole buffer.
    fn begin(&mut self, order: &Order, buffer: AlignedBuffer);
    /// Waits for an end of at least one I/O, but not beyond this time; gives slots and buffers of all that have ended.
    fn wait(&mut self, until_ns: u64, ended: &mut Vec<(usize, AlignedBuffer)>) -> Result<(), Trouble>;
}

fn play(disk: &mut impl Disk, load: &Load, stop: &AtomicBool, watch: Watch<'_>) -> Result<Loaded, Trouble> {
    let contents = Contents::new(load.content, load.seed);
    let mut player = Player::new(load, disk.now_ns())?;
    let (mut buffers, mut ended) = (Vec::new(), Vec::new());
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(Trouble::Stopped);
        }
        let now_ns = disk.now_ns();
        while let Some(second) = player.poll_second(now_ns) {
            if watch(&second).is_break() {
                player.end(now_ns);
            }
        }
        let until_ns = loop {
            match player.step(disk.now_ns()) {
                Step::Begin(order) => {
                    let new = || AlignedBuffer::zeroed(load.pattern.block_bytes as usize, ALIGNMENT_BYTES);
                    let mut buffer = buffers.pop().unwrap_or_else(new);
                    if order.request.is_write {
                        contents.write(order.request.offset_bytes, order.version, &mut buffer);
                        player.made(order.slot, disk.now_ns());
                    }
                    disk.begin(&order, buffer);
                }
                Step::Wait(until_ns) => break until_ns,
                Step::Over => return Ok(player.finish()),
            }
        };
        disk.wait(until_ns.min(now_ns + LOOK_NS), &mut ended)?;
        let now_ns = disk.now_ns();
        for (slot, buffer) in ended.drain(..) {
            let order = player.ended(slot, now_ns);
            if load.verify && !order.request.is_write {
                let same = contents.compare(order.request.offset_bytes, order.version, &buffer);
                same.map_err(|what| Trouble::failed(format!("wrong data was read: {what}"), "this is a defect, please report it"))?;
            }
            buffers.push(buffer);
        }
    }
}

/// A real one.
struct Real {
    direct: Direct,
    begun: Instant,
    done: Vec<Done>,
}

impl Real {
    fn new(device: &Arc<OpenDevice>) -> Result<Real, Trouble> {
        Ok(Real { direct: ring(device, DEPTH_MAX)?, begun: Instant::now(), done: Vec::new() })
    }
}

/// Slot and direction in what the ring carries.
const WRITE_BIT: u64 = 1 << 63;

impl Disk for Real {
    fn now_ns(&mut self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    fn begin(&mut self, order: &Order, buffer: AlignedBuffer) {
        let (transfer, bit) = if order.request.is_write { (Transfer::Write, WRITE_BIT) } else { (Transfer::Read, 0) };
        self.direct.submit(order.slot as u64 | bit, transfer, order.request.offset_bytes, buffer);
    }

    fn wait(&mut self, until_ns: u64, ended: &mut Vec<(usize, AlignedBuffer)>) -> Result<(), Trouble> {
        let patience = Duration::from_nanos(until_ns.saturating_sub(self.now_ns()));
        let waited = self.direct.wait(Some(patience), &mut self.done);
        waited.map_err(|error| Trouble::Failed(format!("the ring failed: {error}")))?;
        for done in self.done.drain(..) {
            let action = if done.token & WRITE_BIT == 0 { "read from" } else { "write to" };
            match done.result {
                Ok(bytes) if bytes == done.buffer.len() => ended.push(((done.token & !WRITE_BIT) as usize, done.buffer)),
                Ok(bytes) => {
                    let path = self.direct.device().path().display();
                    return Err(Trouble::Failed(format!(
                        "{path} returned {bytes} bytes of {}: it may have become smaller",
                        done.buffer.len()
                    )));
                }
                Err(error) => return Err(Trouble::io(action, self.direct.device().path(), &error)),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
