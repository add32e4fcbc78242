//! Destage: dirty blocks go home in address order, neighbours together, and become clean when the backing device has flushed.
//!
//! Extents are picked per volume: on demand (a request waits), because all are to go (destage command, mode switch), because they are
//! old, because dirty data nears its limit, or because the backing device is idle and the host not busy. A sweep goes through the addresses and begins again at the
//! start. It works in batches, each written, flushed, and followed by the clients' turn at the backing device ([`pace`]). Each run of neighbouring dirty blocks is one read from the SSD (or none, if RAM has it) and one write.
//!
//! A run is written when the records it carries are durable in the store, never before: the store must not fall behind the backing device.
//! A block stays dirty until (1) its run is written, (2) the backing device has flushed after that, and (3) its index entry is still the one
//! that was read. An overwrite meanwhile fails (3), so the newer version stays dirty. A block is in at most one run, and never in one while
//! a client's backing write covers it.

pub mod dirty;
pub mod pace;
mod picking;
mod reading;
mod state;
mod unreadable;

use super::fetch::Wanted;
use super::singly::DestagePart;
use super::{Context, Shard};
use crate::api::{Event, IoError, IoKind};
use crate::index::Slot;
use crate::key::Key;
use crate::mutants;
use crate::store::Place;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use dirty::DirtySet;
use pace::{Pressure, part_of_rate, run_blocks_max};
use page::{Page, PageMut, PageMutVec, PageVec};
use state::Run;
use types::{BLOCK_BYTES, SECTOR_BYTES, VolumeIndex};
use unreadable::Unreadable;

pub use state::Destager;

/// Runs between being picked and being written, at most, whatever the pace allows: bounds pages held by destage.
const RUN_PAGES_IN_FLIGHT_MAX: usize = 512;
/// Blocks in one run at most: an extent.
const RUN_BLOCKS_MAX: usize = 256;
/// Blocks written and waiting for a flush before one is asked for although more runs are under way.
const UNFLUSHED_BLOCKS_MAX: usize = 4096;
/// A backing device without client I/O for this long counts as idle. What has been dirty for less waits for more, or for being
/// overwritten: else a device with nothing to do would get, and flush, each block by itself.
const IDLE_AFTER_NS: u64 = 200_000_000;
/// From one in so many of what may be dirty on, an idle backing device is used although clients write.
const MUCH_ONE_IN: u64 = 2;
/// After a destage write failed, the volume's destage rests this long.
const RETRY_AFTER_NS: u64 = 1_000_000_000;
/// Blocks that are older than the write-cache depth by one in this many of it are overdue.
const OVERDUE_ONE_IN: u64 = 2;

impl Shard {
    /// Whether the block is in a run, or a client's write to the backing device covers it.
    fn is_held_back(&self, key: Key) -> bool {
        self.destager.is_on_its_way(key) || self.destager.written.contains_key(&key) || self.is_shielded(key)
    }

    /// Whether a client's write to the backing device covers the block: destage leaves it alone.
    fn is_shielded(&self, key: Key) -> bool {
        self.shielded.contains(&key) || self.ranges.covers(key) && !mutants::active(mutants::DESTAGE_IN_HELD_RANGE)
    }

    /// The volume is gone.
    pub(super) fn destage_forget(&mut self, index: VolumeIndex) {
        assert!(!self.destager.is_busy(index) && self.dirty.blocks_of(index) == 0, "volume {} is still destaged", index.0);
        self.destager.unreadable.forget(index);
        self.destager.sweeps.remove(&index.0);
        self.throttle.forget(index);
        self.destager.demanded.retain(|key| key.volume() != index);
        self.unnoted.retain(|key, _| key.volume() != index);
        self.destager.candidates.retain(|extent| extent.volume() != index);
    }

    /// A dirty block was appended again: its destage, if under way, is of the same content at another place.
    pub(super) fn destage_moved(&mut self, key: Key, from: Slot) {
        let Some(to) = self.index.get(key) else { return };
        for places in [&mut self.destager.on_the_way, &mut self.destager.written] {
            if let Some(slot) = places.get_mut(&key).filter(|slot| **slot == from) {
                *slot = to;
            }
        }
    }

    /// For [`Shard::describe`].
    pub(super) fn describe_destage(&self, text: &mut String) {
        let destager = &self.destager;
        let (demanded, written, waiting) = (destager.demanded.len(), destager.written.len(), destager.waiting_durable.len());
        let unreadable = destager.unreadable.len();
        let _ = writeln!(
            text,
            "destage: {} runs, {waiting} wait for the store, {written} blocks wait for a flush, {demanded} demanded, {unreadable} unreadable",
            destager.runs.len(),
        );
        for (volume, sweep) in &destager.sweeps {
            let dirty = self.dirty.blocks_of(VolumeIndex(*volume));
            let (runs, unflushed, passes, all) = (sweep.runs, sweep.unflushed, sweep.passes, sweep.all);
            let _ = writeln!(text, "volume {volume}: {dirty} dirty, {runs} runs, {unflushed} unflushed, {passes} passes, all {all}");
        }
    }

    /// When destage should look again although nothing happens.
    pub(super) fn destage_deadline(&self) -> Option<u64> {
        if self.dirty.blocks() == 0 || self.quiescing {
            return None;
        }
        let of_volume = |index: &VolumeIndex| {
            let index = *index;
            let volume = self.volumes.get(index)?;
            let (oldest_ns, _) = self.dirty.oldest(index)?;
            let sweep = self.destager.sweeps.get(&index.0);
            let aged = oldest_ns.saturating_add(volume.options.write_cache_depth_ns);
            let idle = self.idle_from_ns(index, oldest_ns);
            let begun = sweep.is_some_and(|sweep| !sweep.aged.is_empty());
            let wanted = if begun { 0 } else { aged.min(idle) };
            let allowed = sweep.map_or(0, |sweep| sweep.retry_at_ns.max(sweep.pace.next_ns()).max(sweep.nothing_until_ns));
            // Not before the next look could change anything, and never in the past.
            (!volume.backing.failed && volume.state.may_destage()).then_some(wanted.max(allowed).max(self.now_ns + 1_000_000))
        };
        self.volumes.attached().iter().filter_map(of_volume).min().filter(|time| *time != u64::MAX)
    }

    /// From when on an idle backing device is a reason to bring everything home; `u64::MAX` if it is none. While clients write, only where
    /// there is much: what they write again soon would go home again.
    fn idle_from_ns(&self, index: VolumeIndex, oldest_ns: u64) -> u64 {
        let Some(backing) = self.volumes.get(index).map(|volume| &volume.backing) else { return u64::MAX };
        if backing.client_in_flight > 0 || self.destager.host_is_busy {
            return u64::MAX;
        }
        let (of_volume, volume_max) = self.dirty_and_limit(index);
        let is_much = of_volume.saturating_mul(MUCH_ONE_IN) > volume_max || self.dirty_pages() * MUCH_ONE_IN > self.dirty_pages_max();
        let written_ns = if is_much { 0 } else { backing.client_stored_ns };
        backing.client_last_ns.max(oldest_ns).max(written_ns) + IDLE_AFTER_NS
    }

    /// Picks and starts runs as far as pace and memory allow.
    pub(super) fn destage(&mut self) {
        self.note_some_late();
        if self.dirty.blocks() == 0 && self.destager.demanded.is_empty() {
            return;
        }
        if !self.restored.is_empty() {
            // Volumes that recovery knows are still being attached.
            return;
        }
        if !self.destager.demanded.is_empty() {
            self.serve_demands();
        }
        if self.quiescing || mutants::active(mutants::BUSY_HOST_STOPS_DESTAGE) && self.destager.host_is_busy {
            return;
        }
        let high = self.dirty_pages() * 10 > self.dirty_pages_max() * 8;
        for at in 0..self.volumes.attached().len() {
            let index = self.volumes.attached()[at];
            if self.dirty.blocks_of(index) > 0 {
                self.destage_volume(index, high);
            }
        }
    }

    #[inline(never)]
    fn serve_demands(&mut self) {
        let mut demanded: Vec<Key> = self.destager.demanded.iter().copied().collect();
        demanded.sort_unstable();
        for key in demanded {
            let Some(volume) = self.volumes.get(key.volume()) else { continue };
            let stuck = volume.backing.failed || volume.state.is_held();
            if stuck || !self.dirty.contains(key) {
                self.destager.demanded.remove(&key);
                self.wake_destage_waiters(key);
            } else if !self.is_held_back(key) {
                self.start_run(key, 1);
            }
        }
    }

    fn destage_volume(&mut self, index: VolumeIndex, shard_is_full: bool) {
        let now_ns = self.now_ns;
        let volume = self.volumes.get(index).expect("the caller looked");
        let (options, backing) = (&volume.options, &volume.backing);
        let shards = u64::from(self.config.place.layout.shards);
        let limit = (options.dirty_limit_bytes / BLOCK_BYTES / shards).max(1);
        let dirty = self.dirty.blocks_of(index);
        let oldest_ns = self.dirty.oldest(index).map_or(now_ns, |(oldest_ns, _)| oldest_ns);
        let idle = self.idle_from_ns(index, oldest_ns) <= now_ns;
        let clients = backing.clients(options.latency_goal_ns);
        // What would be lost with the SSD goes home as fast as the device takes it.
        let rate = options.destage_rate_bytes.filter(|_| !self.loss.is_ssd_failed()).map(|rate_bytes| part_of_rate(rate_bytes, shards));
        let depth_ns = options.write_cache_depth_ns;
        let overdue_ns = depth_ns.saturating_add(depth_ns / OVERDUE_ONE_IN);
        let is_overdue = oldest_ns > DirtySet::RECOVERED_NS && now_ns.saturating_sub(oldest_ns) > overdue_ns;
        let blocked = backing.failed || !volume.state.may_destage();
        // Who waits for room in the store waits for eviction, which gains some from every region as long as dirty data keeps its limits.
        let throttled = self.waits_for_destage(index);
        let leaving_write_back = !mutants::active(mutants::MODE_LEFT_DIRTY) && options.mode != types::Mode::WriteBack
            || self.loss.is_ssd_failed()
            || volume.state.is_detaching();
        let sweep = self.destager.sweeps.entry(index.0).or_default();
        sweep.nothing_until_ns = 0;
        if blocked || sweep.retry_at_ns > now_ns {
            return;
        }
        // Between the marks (half and 70 % of the limit) destage goes on once it has begun, so that it works in long sweeps.
        sweep.pressed = dirty * 10 > limit.saturating_mul(7) || sweep.pressed && dirty * 2 > limit;
        let all = sweep.all || leaving_write_back || sweep.pressed || shard_is_full || throttled || idle;
        let pressure = match () {
            () if throttled || shard_is_full || leaving_write_back => Pressure::Urgent,
            () if sweep.pressed || sweep.all => Pressure::Pressed,
            () if is_overdue => Pressure::Overdue,
            () => Pressure::Normal,
        };
        sweep.pressure = pressure;
        loop {
            let sweep = self.destager.sweeps.entry(index.0).or_default();
            if !sweep.pace.may_start(now_ns, sweep.runs, clients, pressure, rate) {
                // A completion looks again, or the time that the pace tells.
                if sweep.runs > 0 && sweep.pace.next_ns() <= now_ns {
                    sweep.nothing_until_ns = u64::MAX;
                }
                return;
            }
            if self.destager.pages >= RUN_PAGES_IN_FLIGHT_MAX {
                return;
            }
            let Some((first, count)) = self.next_run(index, if all { None } else { Some(depth_ns) }) else {
                if all {
                    // One whose rest is over is on its way, or held back: the end of that looks again.
                    let nothing_until_ns = self.destager.unreadable.next_ns(index, now_ns).unwrap_or(u64::MAX);
                    self.destager.sweeps.entry(index.0).or_default().nothing_until_ns = nothing_until_ns;
                }
                return;
            };
            let count = count.min(run_blocks_max(rate));
            if !self.start_run(first, count) {
                return;
            }
            let sweep = self.destager.sweeps.entry(index.0).or_default();
            sweep.pace.started(now_ns, clients, rate, count as u64 * BLOCK_BYTES);
        }
    }

    /// Where a block of the dirty set lies: dirty set, index and store agree about it.
    fn slot_of_dirty(&self, key: Key) -> Slot {
        let slot = self.index.get(key).expect("a dirty block is in the index");
        assert!(self.index.meta(slot).dirty, "{key:?} is in the dirty set and clean in the index");
        slot
    }

    /// Starts reading a run. False if there are no pages.
    #[inline(never)]
    fn start_run(&mut self, first: Key, count: usize) -> bool {
        assert!((1..=RUN_BLOCKS_MAX).contains(&count), "{count} blocks in a run");
        let keys = (0..count as u64).map(|ahead| Key(first.0 + ahead));
        let slots: Vec<Slot> = keys.clone().map(|key| self.slot_of_dirty(key)).collect();
        let mut pages: Vec<Option<Page>> = keys.clone().zip(&slots).map(|(key, slot)| self.page_in_memory(key, *slot)).collect();
        let needed = |(slot, page): (&Slot, &Option<Page>)| match page {
            Some(_) => 0,
            None if self.is_page(*slot) => 1,
            None => self.fetch_pages(*slot),
        };
        let missing = slots.iter().zip(&pages).map(needed).sum();
        let Some(mut buffers) = self.allocate(missing) else {
            self.short_of_pages = true;
            return false;
        };
        let mask = if count == 1 { self.mask_of(first, slots[0]) } else { u8::MAX };
        let proofs = slots.iter().map(|slot| self.proof_of(*slot)).collect();
        let id = self.destager.next_run;
        self.destager.next_run = self.destager.next_run.wrapping_add(1);
        for (key, slot) in keys.zip(&slots) {
            assert!(
                !self.is_held_back(key) || mutants::active(mutants::TWO_VERSIONS_DESTAGED),
                "{key:?} is on its way, or being written over at home"
            );
            let before = self.destager.on_the_way.insert(key, *slot);
            assert!(before.is_none() || mutants::active(mutants::TWO_VERSIONS_DESTAGED), "{key:?} is in one run at most");
        }
        self.destager.pages += count;
        self.destager.sweeps.entry(first.volume().0).or_default().runs += 1;
        let reading = self.read_run(id, first, &slots, &pages, &mut buffers);
        pages.truncate(count);
        let group = if slots.iter().all(|slot| self.is_durable(*slot)) { 0 } else { self.store.commits().last() };
        assert!(group <= self.store.commits().last(), "it waits for a group that there is");
        self.store.commits_mut().want_durable(group);
        self.destager.runs.insert(id, Run { first, slots, mask, pages, proofs, reading, failed: false, group, written: None });
        if reading == 0 {
            self.write_run(id);
        }
        true
    }

    /// The block of a run as it lies in memory, if it does.
    fn page_in_memory(&self, key: Key, slot: Slot) -> Option<Page> {
        match self.ram.get(key) {
            Some(block) => Some(block.page.clone()),
            None => {
                self.store.in_flight().page(slot).cloned().or_else(|| if self.is_page(slot) { None } else { self.packed_in_memory(slot) })
            }
        }
    }

    /// Reads the blocks of a run that are not in memory; neighbours in one read. Gives how many reads there are.
    fn read_run(&mut self, id: u32, first: Key, slots: &[Slot], pages: &[Option<Page>], buffers: &mut Vec<PageMut>) -> u32 {
        let count = slots.len();
        let mut reading = 0;
        let mut at = 0;
        while at < count {
            if pages[at].is_some() {
                at += 1;
                continue;
            }
            if !self.is_page(slots[at]) {
                self.fetch(Wanted::Destage { run: id, at }, Key(first.0 + at as u64), slots[at], true, buffers);
                reading += 1;
                at += 1;
                continue;
            }
            let follows = |ahead: &usize| {
                at + ahead < count && pages[at + ahead].is_none() && self.lies_ahead(slots[at + ahead], slots[at], *ahead as u32)
            };
            let length = (1..).find(|ahead| !follows(ahead)).expect("a run ends");
            let Place { region, offset_bytes, .. } = self.place_of(slots[at]);
            self.store.readers().begin(region);
            let into: PageMutVec = buffers.drain(buffers.len() - length..).collect();
            let span = self.store.ssds().read_span(offset_bytes, length, true);
            let part = DestagePart { run: id, region, first: at, offset_bytes };
            self.out.io(span, IoKind::Read(into), Context::DestageRead(part));
            reading += 1;
            at += length;
        }
        reading
    }

    /// The store has become durable further, or failed: runs that waited may be written.
    pub(super) fn destage_store_moved(&mut self) {
        for id in core::mem::take(&mut self.destager.waiting_durable) {
            self.write_run(id);
        }
    }

    /// The pool is being stopped, and the store that these runs wait for has failed: they are left to the next start, since whatever comes
    /// after the stop is done must not begin I/O.
    pub(super) fn abandon_waiting_runs(&mut self) {
        if self.loss.is_ssd_failed() {
            for id in core::mem::take(&mut self.destager.waiting_durable) {
                self.end_failed_run(id);
            }
        }
    }

    /// Everything of the run is in memory: to the backing device with it.
    fn write_run(&mut self, id: u32) {
        let run = &self.destager.runs[&id];
        let (first, mask, failed) = (run.first, run.mask, run.failed);
        if failed || self.volumes.of(first).backing.failed {
            self.end_failed_run(id);
            return;
        }
        let run = &self.destager.runs[&id];
        if run.group > self.store.commits().durable() && !mutants::active(mutants::DESTAGE_BEFORE_DURABLE) {
            if self.loss.is_ssd_failed() && (self.loss.recorded || mutants::active(mutants::LOST_GOES_HOME_UNRECORDED)) {
                // It never will be durable, and after a restart nobody will believe the store, so nothing can fall behind it.
                self.destager.waiting_durable.retain(|other| *other != id);
            } else {
                self.destager.waiting_durable.push(id);
                return;
            }
        }
        let run = &self.destager.runs[&id];
        assert!(run.reading == 0 && run.written.is_none(), "a run is written once, when all of it was read");
        let pages: PageVec = run.pages.iter().map(|page| page.clone().expect("all parts were read")).collect();
        assert!(mask == u8::MAX || mask != 0 && pages.len() == 1, "{} pages with mask {mask:08b}", pages.len());
        let mut span = self.volumes.backing_span(first, pages.len() as u64);
        span.background = true;
        if mask != u8::MAX {
            // One block with some valid sectors: one write for their first run; the others follow as runs of their own.
            let skip = u64::from(mask.trailing_zeros());
            let sectors = u64::from((mask >> skip).trailing_ones());
            span.offset_bytes += skip * SECTOR_BYTES;
            span.length_bytes = sectors * SECTOR_BYTES;
        }
        let volume = self.volumes.of(first);
        volume.stats.backing_writes += 1;
        volume.stats.backing_written_bytes += span.length_bytes;
        self.out.io(span, IoKind::Write { pages, fua: false }, Context::DestageWrite(id));
    }

    /// The backing device has answered a run.
    pub(super) fn destage_written(&mut self, id: u32, result: Result<(), IoError>) {
        let run = self.destager.runs.get_mut(&id).expect("a run under way");
        let first = run.first;
        let index = first.volume();
        self.volumes.of(first).backing.note_destage_write(first.extent());
        if result.is_err() && !mutants::active(mutants::FAILED_DESTAGE_DONE) {
            self.volumes.of(first).stats.destage_errors += 1;
            self.out.event(Event::DestageFailed(index, first.block()));
            self.end_failed_run(id);
            return;
        }
        let run = self.destager.runs.get_mut(&id).expect("a run under way");
        let skip = run.mask.trailing_zeros();
        let ones = (run.mask >> skip).trailing_ones();
        let rest = if run.mask == u8::MAX { 0 } else { run.mask & !((((1_u16 << ones) - 1) << skip) as u8) };
        if rest != 0 {
            run.mask = rest;
            self.write_run(id);
            return;
        }
        let count = run.slots.len();
        let written = self.volumes.of(first).backing.written;
        let run = self.destager.runs.get_mut(&id).expect("a run under way");
        run.written = Some(written);
        run.pages.clear();
        for ahead in 0..count as u64 {
            let key = Key(first.0 + ahead);
            let slot = self.destager.on_the_way.remove(&key).expect("a block of a run");
            let before = self.destager.written.insert(key, slot);
            assert!(before.is_none() || mutants::active(mutants::TWO_VERSIONS_DESTAGED), "{key:?} waits for one flush at most");
            self.wake_destage_waiters_unless_demanded(key);
        }
        if mutants::active(mutants::CLEAN_BEFORE_FLUSH) {
            for ahead in 0..count as u64 {
                let key = Key(first.0 + ahead);
                if let Some(slot) = self.destager.written.get(&key).copied().filter(|slot| self.index.get(key) == Some(*slot)) {
                    self.is_home(key, slot);
                }
            }
        }
        assert!(self.destager.pages >= count, "{} pages on their way, {count} have come home", self.destager.pages);
        self.destager.pages -= count;
        self.volumes.of(first).stats.destaged_bytes += count as u64 * BLOCK_BYTES;
        let demanded = self.destager.demanded.iter().any(|key| key.volume() == index);
        let sweep = self.destager.sweeps.entry(index.0).or_default();
        assert!(sweep.runs > 0, "the run was counted");
        sweep.runs -= 1;
        sweep.unflushed += count;
        if sweep.runs == 0 || sweep.unflushed >= UNFLUSHED_BLOCKS_MAX || demanded {
            self.flush_backing(index);
        }
    }

    fn end_failed_run(&mut self, id: u32) {
        let run = self.destager.runs.remove(&id).expect("a run under way");
        let retry_at_ns = self.now_ns + RETRY_AFTER_NS;
        assert!(run.written.is_none() && self.destager.pages >= run.slots.len(), "a run fails before it is written");
        self.destager.pages -= run.slots.len();
        let sweep = self.destager.sweeps.entry(run.first.volume().0).or_default();
        assert!(sweep.runs > 0, "the run was counted");
        sweep.runs -= 1;
        if !run.failed {
            // The backing device refused: it rests. A block that could not be read rests by itself.
            sweep.retry_at_ns = retry_at_ns;
        }
        for ahead in 0..run.slots.len() as u64 {
            let key = Key(run.first.0 + ahead);
            self.destager.on_the_way.remove(&key);
            self.destager.candidates.insert(key.extent());
            // A block that only lay beside an unreadable one is brought home by itself next.
            let lost = !run.failed || self.destager.is_unreadable(key);
            if lost && self.destager.demanded.remove(&key) {
                self.fail_destage_waiters(key);
            }
            self.wake_destage_waiters(key);
        }
        self.flush_after_destage(run.first.volume());
        self.end_batch(run.first.volume());
    }

    /// What was written is flushed when the last run under way has ended, however it ended.
    fn flush_after_destage(&mut self, index: VolumeIndex) {
        let sweep = self.destager.sweeps.entry(index.0).or_default();
        if sweep.unflushed > 0 && sweep.runs == 0 {
            self.flush_backing(index);
        }
    }

    /// The volume's backing device has flushed (or failed): written blocks are at home (or not).
    pub(super) fn destage_flushed(&mut self, index: VolumeIndex) {
        let backing = &self.volumes.get(index).expect("a flushing volume is attached").backing;
        let (flushed, failed) = (backing.flushed, backing.failed);
        let mut done: Vec<u32> = self
            .destager
            .runs
            .iter()
            .filter(|(_, run)| run.first.volume() == index && run.written.is_some_and(|written| failed || written <= flushed))
            .map(|(id, _)| *id)
            .collect();
        done.sort_unstable();
        let (before, now_ns) = (self.dirty.blocks_of(index), self.now_ns);
        for id in done {
            let run = self.destager.runs.remove(&id).expect("found above");
            let sweep = self.destager.sweeps.entry(index.0).or_default();
            assert!(sweep.unflushed >= run.slots.len(), "the blocks of the run were counted");
            sweep.unflushed -= run.slots.len();
            for ahead in 0..run.slots.len() as u64 {
                let key = Key(run.first.0 + ahead);
                let slot = self.destager.written.remove(&key).expect("a written block");
                self.destager.unreadable.remove(key);
                self.destager.candidates.insert(key.extent());
                // A client's write is replacing a shielded block at home right now: were it called clean, a crash could leave the old
                // version as a clean block over the new one. It stays dirty until that write makes it void.
                let current = self.index.get(key) == Some(slot) && self.index.meta(slot).dirty && !self.is_shielded(key);
                let newest =
                    self.index.get(key).filter(|slot| mutants::active(mutants::OVERWRITE_MARKED_CLEAN) && self.index.meta(*slot).dirty);
                if let Some(slot) = newest {
                    self.is_home(key, slot);
                } else if !failed && current {
                    self.is_home(key, slot);
                }
                self.destager.demanded.remove(&key);
                self.wake_destage_waiters(key);
            }
        }
        if self.dirty.blocks_of(index) < before {
            self.went_home();
        }
        self.throttle.destaged(now_ns, index, before - self.dirty.blocks_of(index));
        self.flush_after_destage(index);
        self.end_batch(index);
    }

    /// If no run is under way or waits for its flush, the batch has ended.
    fn end_batch(&mut self, index: VolumeIndex) {
        let Some(volume) = self.volumes.get(index) else { return };
        let clients = volume.backing.clients(volume.options.latency_goal_ns);
        let now_ns = self.now_ns;
        let sweep = self.destager.sweeps.entry(index.0).or_default();
        if sweep.runs == 0 && sweep.unflushed == 0 {
            sweep.pace.batch_ended(now_ns, clients, sweep.pressure);
        }
    }

    fn is_home(&mut self, key: Key, slot: Slot) {
        assert!(self.index.meta(slot).dirty && self.dirty.contains(key), "{key:?} was dirty until it came home");
        self.index.set_clean(slot);
        self.dirty.remove(key);
        // A note saves destaging the block again after a crash. Nobody waits for it, and without room it comes later.
        self.note_or_remember(key, slot);
    }

    fn wake_destage_waiters(&mut self, key: Key) {
        if let Some(waiters) = self.destager.waiters.remove(&key) {
            self.ready.extend(waiters);
        }
    }

    fn wake_destage_waiters_unless_demanded(&mut self, key: Key) {
        if !self.destager.demanded.contains(&key) {
            self.wake_destage_waiters(key);
        }
    }

    /// A demanded block cannot be brought home now: the requests that need it fail rather than wait for ever.
    fn fail_destage_waiters(&mut self, key: Key) {
        for id in self.destager.waiters.remove(&key).unwrap_or_default() {
            self.fail(id, crate::api::RequestError::Io);
        }
    }
}
