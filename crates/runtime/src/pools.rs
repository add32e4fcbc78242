//! Pools and cached volumes as the control thread sees them.

use crate::cached::{EventSink, PoolPart, Ways};
use crate::command::{CommandTicket, Commands};
use crate::devices::DeviceRef;
use crate::error::RuntimeError;
use crate::message::Message;
use crate::runtime::{ANSWER_PATIENCE, Runtime};
use crate::volume::{REQUEST_BYTES_MAX, Route, VolumeRef, VolumeShared};
use engine::api::{Command, CommandFailure, VolumeOptions};
use engine::front::JOINED_BLOCKS_MAX;
use engine::shard::{PAGES_MIN, Shard};
use engine::stats::VolumeStats;
use page::{PAGE_BYTES, PagePool};
use pool::commands::token_of;
use pool::part::home_of;
use pool::{Devices, Part, Place};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use types::{ShardIndex, VolumeId, VolumeIndex};

/// How often a blocked caller looks whether it was cancelled.
const CANCEL_LOOK: Duration = Duration::from_millis(50);
/// How long shards may take to stop a cancelled command: they finish the I/Os in flight.
const CANCEL_PATIENCE: Duration = Duration::from_secs(40);

/// A pool to be taken into the runtime.
pub struct PoolOptions {
    /// The SSDs that the shards' logs are on, in order of their index.
    pub ssds: Vec<DeviceRef>,
    /// All shards, in order of their index, ready to serve (new or recovered).
    pub shards: Vec<Shard>,
    /// The page pool that the shards were made with. Clients' writes to volumes of this pool draw on it too, since their pages
    /// may end in the RAM tier; they leave [`PAGES_MIN`] pages for each shard, and for each reactor the longest read
    /// whose parts are being joined, as long as that is no more than half of all.
    pub pages: PagePool,
    /// Receives what shards report. Called on reactor threads; must not block.
    pub events: EventSink,
}

/// A handle to a pool, cheap to clone.
#[derive(Clone)]
pub struct PoolRef(Arc<PoolShared>);

struct PoolShared {
    number: u32,
    shards: usize,
    pages: PagePool,
    commands: Arc<Commands>,
}

/// A volume to be attached to a pool.
#[derive(Clone, Debug)]
pub struct AttachOptions {
    /// Its name.
    pub name: String,
    /// Its place in the pool's table.
    pub index: VolumeIndex,
    /// Its number in the log.
    pub id: VolumeId,
    /// The slow device behind it; its size and logical block are the volume's.
    pub backing: DeviceRef,
    /// How to treat it.
    pub options: VolumeOptions,
}

impl PoolRef {
    /// Whether its shards are gone because its SSD does not answer: nothing that is asked of them gives a true answer any more.
    pub fn is_abandoned(&self) -> bool {
        self.0.commands.is_closed()
    }

    /// How many shards it was started with.
    pub fn shards(&self) -> usize {
        self.0.shards
    }

    /// Its number in the runtime.
    pub(crate) fn number(&self) -> u32 {
        self.0.number
    }
}

/// Pages that reads in several parts may hold on one reactor while they wait for more: one of the longest, or many shorter ones. In a small pool,
/// what is left of half of it.
fn joined_pages(shards: usize, reactors: u16, pages_max: usize) -> usize {
    let left = (pages_max / 2).saturating_sub(PAGES_MIN * shards) / usize::from(reactors);
    (REQUEST_BYTES_MAX as usize / PAGE_BYTES).min(left).max(JOINED_BLOCKS_MAX as usize)
}

/// Pages that the data of clients' writes leave to others: to the shards, and to reads that hold what they have until the rest has come. Did writes
/// take these, all could wait for each other. A pool too small for this leaves writes half of it.
fn reserved_pages(shards: usize, reactors: u16, pages_max: usize) -> usize {
    let joined = usize::from(reactors) * joined_pages(shards, reactors, pages_max);
    (PAGES_MIN * shards + joined).min(pages_max / 2)
}

impl Runtime {
    /// Starts a pool: its shards are dealt over the reactors and begin their background work.
    ///
    /// # Errors
    /// [`RuntimeError::Timeout`].
    pub fn add_pool(&self, options: PoolOptions) -> Result<PoolRef, RuntimeError> {
        let PoolOptions { ssds, shards, pages, events } = options;
        let count = shards.len();
        let shared =
            PoolShared { number: self.numbers.pool.fetch_add(1, Ordering::Relaxed), shards: count, pages, commands: Arc::default() };
        let mut shards: Vec<Option<Shard>> = shards.into_iter().map(Some).collect();
        let reactors = self.reactors();
        let joined_pages = joined_pages(count, reactors, shared.pages.pages_max());
        self.ask_all("add pool", ANSWER_PATIENCE, |reactor, done| {
            let place = |(index, shard): (usize, &mut Option<Shard>)| match home_of(index, reactors) {
                home if home == reactor => Place::here(shard.take().expect("each shard has one home")),
                home => Place::There(home),
            };
            let places = shards.iter_mut().enumerate().map(place).collect();
            let ways = Ways {
                number: shared.number,
                devices: Devices::new(ssds.iter().map(|ssd| ssd.0.number).collect()),
                events: events.clone(),
                commands: shared.commands.clone(),
            };
            let part = Box::new(PoolPart { part: Part::new(reactor, places, joined_pages as u64), ways });
            Message::AddPool { part, done }
        })?;
        Ok(PoolRef(Arc::new(shared)))
    }

    /// Makes a volume available: the shards learn of it, and endpoints may submit to the handle.
    ///
    /// # Errors
    /// [`RuntimeError::TooLarge`], [`RuntimeError::Timeout`].
    pub fn attach_volume(&self, pool: &PoolRef, attach: AttachOptions) -> Result<VolumeRef, RuntimeError> {
        let AttachOptions { name, index, id, backing, options } = attach;
        let geometry = backing.geometry();
        if geometry.size_bytes > types::VOLUME_BYTES_MAX {
            return Err(RuntimeError::TooLarge { device: backing.name().to_string(), size_bytes: geometry.size_bytes });
        }
        self.set_backing(pool, index, Some(backing.0.number))?;
        let treated = options.clone();
        self.tell_shards(pool, Command::Attach { volume: index, id, size_bytes: geometry.size_bytes, options })?;
        let shared = VolumeShared {
            number: self.next_volume_number(),
            name,
            size_bytes: AtomicU64::new(geometry.size_bytes),
            logical_block_bytes: geometry.logical_block_bytes,
            physical_block_bytes: backing.0.physical_block_bytes,
            atomic_bytes: AtomicU32::new(0),
            read_only: AtomicBool::new(false),
            can_discard: geometry.discard,
            discard_zeroes: geometry.discard_zeroes,
            sampled_below: AtomicU64::new(0),
            pages: pool.0.pages.clone(),
            // Number 0 is the runtime's own pool.
            pool_number: pool.0.number + 1,
            reserved_pages: reserved_pages(pool.0.shards, self.reactors(), pool.0.pages.pages_max()),
            route: Route::Cached { pool: pool.0.number, index },
            parts: crate::parts::Parts::default(),
        };
        shared.treat(&treated);
        self.add_volume(shared)
    }

    /// Another backing device for a volume that the shards hold ([`Command::Release`]): from now on they serve it again. The handle, and whoever
    /// has it, stays. The device must be the one of before, come back.
    ///
    /// # Errors
    /// [`RuntimeError::Resized`] if it is smaller than the volume or has other blocks, [`RuntimeError::Timeout`].
    ///
    /// # Panics
    /// If the volume has no cache.
    pub fn swap_backing(
        &self,
        pool: &PoolRef,
        volume: &VolumeRef,
        id: VolumeId,
        backing: &DeviceRef,
        options: VolumeOptions,
    ) -> Result<(), RuntimeError> {
        let Route::Cached { index, .. } = volume.0.route else { panic!("a bare volume has no shards") };
        let (geometry, size_bytes) = (backing.geometry(), volume.size_bytes());
        if geometry.size_bytes < size_bytes || geometry.logical_block_bytes != volume.0.logical_block_bytes {
            return Err(RuntimeError::Resized { device: backing.name().to_string() });
        }
        self.set_backing(pool, index, Some(backing.0.number))?;
        self.tell_shards(pool, Command::Attach { volume: index, id, size_bytes, options })
    }

    /// The backing device of a volume has grown to `size_bytes`: all shards hear of it, and then endpoints may submit up to there.
    ///
    /// # Errors
    /// [`RuntimeError::TooLarge`], [`RuntimeError::Timeout`]: then the volume is as large as it was for everybody who asks.
    ///
    /// # Panics
    /// If the volume has no cache.
    pub fn grow_volume(&self, pool: &PoolRef, volume: &VolumeRef, backing: &DeviceRef, size_bytes: u64) -> Result<(), RuntimeError> {
        let Route::Cached { index, .. } = volume.0.route else { panic!("a bare volume has no shards") };
        if size_bytes > types::VOLUME_BYTES_MAX {
            return Err(RuntimeError::TooLarge { device: backing.name().to_string(), size_bytes });
        }
        self.grow_device(backing, size_bytes)?;
        self.tell_shards(pool, Command::Grow { volume: index, size_bytes })?;
        volume.0.grow(size_bytes);
        Ok(())
    }

    /// Detaches the backing device of a volume whose handle was removed ([`Runtime::remove_volume`]). What the shards were told
    /// before (`Command::Detach` or `Command::Hold`) decides what becomes of the cached blocks.
    ///
    /// # Errors
    /// [`RuntimeError::Timeout`].
    pub fn clear_backing(&self, pool: &PoolRef, index: VolumeIndex) -> Result<(), RuntimeError> {
        self.set_backing(pool, index, None)
    }

    fn set_backing(&self, pool: &PoolRef, volume: VolumeIndex, device: Option<u32>) -> Result<(), RuntimeError> {
        let pool = pool.0.number;
        self.ask_all("set backing device", ANSWER_PATIENCE, |_, done| Message::SetBacking { pool, volume, device, done }).map(drop)
    }

    /// Changes the options of an attached volume. The ticket ends when they are wholly in force (leaving write-back: when nothing is
    /// dirty any more).
    ///
    /// # Errors
    /// [`RuntimeError::Timeout`].
    pub fn set_options(&self, pool: &PoolRef, volume: &VolumeRef, options: VolumeOptions) -> Result<CommandTicket, RuntimeError> {
        let Route::Cached { index, .. } = volume.0.route else { panic!("a bare volume has no options") };
        volume.0.treat(&options);
        self.command(pool, Command::SetOptions { token: 0, volume: index, options })
    }

    /// Gives a command to all shards of a pool; the token in it is replaced by one of the runtime's. Commands that no shard
    /// answers (`Attach`, `Hold`, `DegradedRecorded`, `BackingFailed`) end when every shard has them.
    ///
    /// # Errors
    /// [`RuntimeError::Timeout`] if a reactor did not take it.
    pub fn command(&self, pool: &PoolRef, mut command: Command) -> Result<CommandTicket, RuntimeError> {
        let token = self.numbers.token.fetch_add(1, Ordering::Relaxed) + 1;
        let ticket = CommandTicket { commands: pool.0.commands.clone(), directory: self.directory.clone(), pool: pool.0.number, token };
        if let Some(own) = token_of(&mut command) {
            *own = token;
            pool.0.commands.expect(token, pool.0.shards);
        }
        self.tell_shards(pool, command)?;
        Ok(ticket)
    }

    /// [`Runtime::command`], and waits for its end. With `cancelled` set by another thread, or when `patience` is over, the
    /// command is cancelled in the shards too.
    ///
    /// # Errors
    /// [`RuntimeError::Command`] with the shard's reason, [`RuntimeError::Cancelled`], [`RuntimeError::Timeout`].
    pub fn run_command(
        &self,
        pool: &PoolRef,
        what: &'static str,
        command: Command,
        patience: Duration,
        cancelled: &AtomicBool,
    ) -> Result<(), RuntimeError> {
        let ticket = self.command(pool, command)?;
        let deadline = Instant::now() + patience;
        loop {
            if let Some(result) = ticket.wait(CANCEL_LOOK.min(patience)) {
                return result.map_err(|source| RuntimeError::Command { what, source });
            }
            let is_cancelled = cancelled.load(Ordering::Relaxed);
            if is_cancelled || Instant::now() >= deadline {
                ticket.cancel();
                // If it ended well in the meantime, it ended well.
                if let Some(Ok(())) = ticket.wait(CANCEL_PATIENCE) {
                    return Ok(());
                }
                let waited_ms = patience.as_millis() as u64;
                return Err(if is_cancelled { RuntimeError::Cancelled { what } } else { RuntimeError::Timeout { what, waited_ms } });
            }
        }
    }

    fn tell_shards(&self, pool: &PoolRef, command: Command) -> Result<(), RuntimeError> {
        let pool = pool.0.number;
        self.ask_all("command", ANSWER_PATIENCE, |_, done| Message::Command { pool, command: command.clone(), done }).map(drop)
    }

    /// Runs `inspect` for every shard of the pool, on the thread of its reactor: must be quick.
    ///
    /// # Errors
    /// [`RuntimeError::Timeout`].
    pub fn inspect_shards(&self, pool: &PoolRef, inspect: impl Fn(ShardIndex, &Shard) + Send + Sync + 'static) -> Result<(), RuntimeError> {
        self.look_at_shards(pool, ANSWER_PATIENCE, inspect)
    }

    /// [`Runtime::inspect_shards`] for those who would rather go without than wait for long.
    ///
    /// # Errors
    /// [`RuntimeError::Timeout`] if a reactor does not answer within `patience`; others may have.
    pub fn look_at_shards(
        &self,
        pool: &PoolRef,
        patience: Duration,
        inspect: impl Fn(ShardIndex, &Shard) + Send + Sync + 'static,
    ) -> Result<(), RuntimeError> {
        let (pool, inspect) = (pool.0.number, Arc::new(inspect));
        self.ask_all("inspect shards", patience, |_, done| Message::InspectShards { pool, inspect: inspect.clone(), done }).map(drop)
    }

    /// The engine's counters of a volume, over all shards. Zeroes if the pool does not know it.
    ///
    /// # Errors
    /// [`RuntimeError::Timeout`].
    pub fn engine_stats(&self, pool: &PoolRef, index: VolumeIndex) -> Result<VolumeStats, RuntimeError> {
        let total = Arc::new(Mutex::new(VolumeStats::default()));
        let adding = total.clone();
        self.inspect_shards(pool, move |_, shard| {
            if let Some(stats) = shard.volume_stats(index) {
                adding.lock().expect("no holder of this lock panics").add(&stats);
            }
        })?;
        let total = *total.lock().expect("no holder of this lock panics");
        Ok(total)
    }

    /// Stops a pool: what is in flight ends, nothing new begins, and the shards come back for their checkpoint. Remove the volumes
    /// first; requests of those that are left are answered with `Shutdown`.
    ///
    /// # Errors
    /// [`RuntimeError::Command`] or [`RuntimeError::Timeout`] if the shards could not come to rest. The pool is gone all the same, without a
    /// checkpoint: what is on the SSD is as after a crash.
    pub fn remove_pool(&self, pool: &PoolRef, patience: Duration) -> Result<Vec<Shard>, RuntimeError> {
        let ticket = self.command(pool, Command::Quiesce { token: 0 })?;
        // There is no way back from it, so it is not cancelled when it takes too long.
        let quiet = match ticket.wait(patience) {
            Some(result) => result.map_err(|source| RuntimeError::Command { what: "stop pool", source }),
            None => Err(RuntimeError::Timeout { what: "stop pool", waited_ms: patience.as_millis() as u64 }),
        };
        let number = pool.0.number;
        let parts = self.ask_all("remove pool", ANSWER_PATIENCE, |_, done| Message::RemovePool { pool: number, done })?;
        quiet?;
        let mut shards: Vec<(ShardIndex, Shard)> = parts.into_iter().flatten().collect();
        shards.sort_unstable_by_key(|(index, _)| *index);
        Ok(shards.into_iter().map(|(_, shard)| shard).collect())
    }
}

impl Runtime {
    /// Ends a pool whose SSD does not answer, as a crash would: its shards go at once, clients in flight are answered with `Shutdown`, commands
    /// under way fail. What is on the SSD stays, all that was acknowledged included; nothing is put on record, and nothing further is acknowledged.
    /// What the kernel still has in flight may be carried out: give the SSD up too ([`Runtime::give_up_device`]).
    ///
    /// # Errors
    /// [`RuntimeError::Timeout`].
    pub fn abandon_pool(&self, pool: &PoolRef) -> Result<(), RuntimeError> {
        pool.0.commands.close(CommandFailure::Abandoned);
        let number = pool.0.number;
        self.ask_all("abandon pool", ANSWER_PATIENCE, |_, done| Message::RemovePool { pool: number, done }).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_leave_pages_to_shards_and_to_reads_that_are_being_joined() {
        let working = PAGES_MIN * 4;
        assert_eq!(joined_pages(4, 2, 100_000), 8192, "one read of 32 MiB");
        assert_eq!(reserved_pages(4, 2, 100_000), working + 2 * 8192);
        assert_eq!(joined_pages(4, 2, 2 * working + 8192), 2048, "half of what is left of half");
        assert_eq!(reserved_pages(4, 2, 2 * working + 8192), working + 4096);
        assert_eq!((joined_pages(4, 2, 4000), reserved_pages(4, 2, 4000)), (1024, 2000), "too small for all");
    }
}
