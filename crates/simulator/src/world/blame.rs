//! The faults of devices, exactly: which pages of the SSD do not hold what was written there, which answers were bad, and when.
//! Nothing else excuses an error, an event or a loss.

use std::collections::{BTreeMap, BTreeSet};

use engine::api::{Io, IoKind, Op};
use format::slots::{RingHead, Statement};
use types::{BLOCK_BYTES, BLOCK_SECTORS, VolumeId};

use super::World;
use super::clients::Pending;
use super::devices::backing_of;
use super::kinship::Kinship;
use crate::disk::faults::Strike;
use crate::plan::Plan;

/// See the module.
#[derive(Default)]
pub struct Blame {
    /// Pages of the SSD that may hold anything but what was last written and confirmed there; each with the token of the first
    /// I/O that begins after the harm. A write that had begun before does not mend it: part of it may be what was harmed.
    tainted: BTreeMap<u64, u64>,
    /// The same of pages that a crash may have torn although the SSD did no wrong. A start accepts nothing dirty that rests on such a page, so
    /// this explains that a clean block is a miss, and nothing else.
    torn: BTreeMap<u64, u64>,
    /// When a device last answered with an error or with bad data; device 0 is the SSD.
    last_ns: BTreeMap<usize, u64>,
    /// The shard whose SSD read was just answered badly. Only while what follows from that is taken in.
    bad_read: Option<u16>,
    /// The shard that has just read a torn page, or another part of what it read one for.
    torn_read: Option<u16>,
    /// Blocks may be stored in parts, which are read at once: what went wrong with the first is told when the last has come.
    pub packs: bool,
    /// By shard: which reads are followed by what its last bad one explains.
    bad_until: BTreeMap<u16, Until>,
    torn_until: BTreeMap<u16, Until>,
    /// What blocks rest on, and what the SSD harmed of that.
    pub kinship: Kinship,
    /// In this life: the SSD answered a write or flush with an error.
    pub ssd_failed: bool,
    /// In this life: backing devices whose flush failed.
    pub flush_failed: BTreeSet<usize>,
    /// In this life: volumes of which a destage failed. What could not be read rests for a while, and commands are told so.
    pub destage_failed: BTreeSet<u16>,
    /// When a client last wrote a block of the volume anew whose only copy was damaged: until then a command may have met it.
    pub healed_ns: BTreeMap<u16, u64>,
    /// Something on the SSD was harmed that recovery may find.
    pub ssd_harmed: bool,
    /// Volumes that recovery called damaged. With the newest notes lost, an old record may be the last one that says something of a block, while
    /// its place was rightly used again.
    damaged: BTreeSet<u16>,
    /// Blocks that the log of this pool ever had a record of: all that a lying SSD can lose or bring back.
    logged: BTreeSet<(u16, u64)>,
    /// Places of volumes by their numbers in the log.
    places: BTreeMap<VolumeId, u16>,
}

/// Parts of a failed read are read again one by one: so many reads, each begun when the one before was answered, may belong to one block.
const ONE_BY_ONE_MAX: u32 = 64;

/// Which reads belong to what one of several parts, which was bad, explains.
#[derive(Clone, Copy)]
struct Until {
    /// All that began before the I/O with this token.
    token: u64,
    /// That one, too, if it is a read, and what follows it in the same way; so many are left.
    left: u32,
}

impl Until {
    fn of(next_token: u64) -> Until {
        Until { token: next_token, left: ONE_BY_ONE_MAX }
    }

    /// Whether a read that was answered is one of them.
    fn covers(&mut self, token: u64, next_token: u64) -> bool {
        if token == self.token && self.left > 0 {
            *self = Until { token: next_token, left: self.left - 1 };
            return true;
        }
        token < self.token
    }
}

/// How an I/O on the SSD ended.
pub struct Answered {
    /// Which shard asked.
    pub lane: u16,
    /// Its token.
    pub token: u64,
    /// The token that the next I/O will get.
    pub next_token: u64,
    /// Where it was.
    pub offset_bytes: u64,
    /// How long it was.
    pub length_bytes: u64,
    /// It was a read.
    pub is_read: bool,
    /// What the SSD did wrong.
    pub strike: Strike,
    /// It was answered with an error.
    pub failed: bool,
}

fn pages_of(offset_bytes: u64, length_bytes: u64) -> std::ops::Range<u64> {
    offset_bytes / BLOCK_BYTES..(offset_bytes + length_bytes).div_ceil(BLOCK_BYTES)
}

impl Blame {
    /// Nothing went wrong yet.
    pub fn of(plan: &Plan) -> Blame {
        Blame { kinship: Kinship::of(&crate::daemon::layout(plan)), ..Blame::default() }
    }

    /// These bytes of the SSD may hold anything, until an I/O with this token or a later one writes there.
    pub fn taint(&mut self, offset_bytes: u64, length_bytes: u64, until_token: u64) {
        self.tainted.extend(pages_of(offset_bytes, length_bytes).map(|page| (page, until_token)));
    }

    /// A device did wrong now.
    pub fn strikes(&mut self, device: usize, now_ns: u64) {
        self.last_ns.insert(device, now_ns);
    }

    /// Whether a device did wrong since.
    pub fn struck_since(&self, device: usize, since_ns: u64) -> bool {
        self.last_ns.get(&device).is_some_and(|at| *at >= since_ns)
    }

    /// Whether this shard has just been given bad data (or none) by the SSD.
    pub fn explains_bad_copy(&self, lane: u16) -> bool {
        self.bad_read == Some(lane)
    }

    /// The same, or bytes that a crash may have torn.
    pub fn explains_bad_clean_copy(&self, lane: u16) -> bool {
        self.explains_bad_copy(lane) || self.torn_read == Some(lane)
    }

    /// Recovery called the volume damaged.
    pub fn is_damaged(&mut self, volume: u16) {
        self.damaged.insert(volume);
    }

    /// Whether that dirty block may be missing, or what it rests on.
    pub fn explains_missing(&self, volume: u16, block: u64) -> bool {
        self.damaged.contains(&volume) || self.kinship.explains(volume, block)
    }

    /// What followed from an answer has been taken in.
    pub fn answer_taken_in(&mut self) {
        (self.bad_read, self.torn_read) = (None, None);
    }

    /// An I/O on the SSD ended.
    pub fn ssd_answered(&mut self, answered: Answered, now_ns: u64) {
        let Answered { lane, token, next_token, offset_bytes: offset, length_bytes: length, is_read, strike, failed } = answered;
        if is_read {
            // Who reads several blocks at once is to ask for each by itself then. (What is packed lies in two pages at most.)
            if failed && pages_of(offset, length).count() > 2 {
                self.strikes(0, now_ns);
                return;
            }
            let all_bad = failed || strike != Strike::None;
            let is_torn = |page: &u64| self.torn.contains_key(page);
            // Where damage was found, a start may have taken what is torn.
            let is_bad = |page: &u64| all_bad || self.tainted.contains_key(page) || self.ssd_harmed && is_torn(page);
            let mut bad_pages = pages_of(offset, length).filter(is_bad).peekable();
            let torn_pages: Vec<u64> = pages_of(offset, length).filter(is_torn).collect();
            if bad_pages.peek().is_some() {
                bad_pages.for_each(|page| self.kinship.page_is_bad(page));
                self.bad_read = Some(lane);
                self.bad_until.insert(lane, Until::of(next_token));
                self.strikes(0, now_ns);
            } else if self.packs && self.bad_until.get_mut(&lane).is_some_and(|until| until.covers(token, next_token)) {
                self.bad_read = Some(lane);
            }
            if !torn_pages.is_empty() {
                torn_pages.into_iter().for_each(|page| self.kinship.page_is_torn(page));
                self.torn_read = Some(lane);
                self.torn_until.insert(lane, Until::of(next_token));
            } else if self.packs && self.torn_until.get_mut(&lane).is_some_and(|until| until.covers(token, next_token)) {
                self.torn_read = Some(lane);
            }
            return;
        }
        if failed {
            self.ssd_failed = true;
            self.strikes(0, now_ns);
        }
        let untouched = matches!(strike, Strike::Error { partial: false } | Strike::NoSpace);
        if untouched {
            // Its statement has a write of its own, and a crash may come before the failure was recorded.
            self.torn.extend(pages_of(offset, length).map(|page| (page, next_token)));
            return;
        }
        self.ssd_harmed |= failed;
        match strike {
            Strike::None if !failed => {
                for harmed in [&mut self.tainted, &mut self.torn].into_iter().filter(|harmed| !harmed.is_empty()) {
                    harmed.retain(|page, until_token| !pages_of(offset, length).contains(page) || token < *until_token);
                }
                return;
            }
            Strike::Misdirected { to_bytes } => self.taint(to_bytes, length, next_token),
            _ => {}
        }
        self.ssd_harmed |= matches!(strike, Strike::Rot | Strike::Lost | Strike::Misdirected { .. });
        self.taint(offset, length, next_token);
    }

    /// A new life: what was so because of the process is not so any more.
    pub fn new_life(&mut self) {
        self.ssd_failed = false;
        self.flush_failed.clear();
        self.destage_failed.clear();
        self.answer_taken_in();
        self.bad_until.clear();
        self.torn_until.clear();
    }

    /// A new pool on the SSD: nothing was ever logged.
    pub fn new_pool(&mut self) {
        self.tainted.clear();
        self.torn.clear();
        self.logged.clear();
        self.damaged.clear();
        self.ssd_harmed = false;
        self.kinship.forget();
    }

    /// Remembers what blocks of a write to the log rest on.
    pub fn see_kinship(&mut self, lane: u16, io: &Io) {
        self.kinship.see(lane, io, &self.places);
    }

    /// The number of a volume in the log.
    pub fn know_volume(&mut self, id: VolumeId, place: u16) {
        self.places.insert(id, place);
    }

    /// Remembers which blocks a write to the log has records of.
    pub fn see_records(&mut self, io: &Io) {
        let IoKind::Write { pages, .. } = &io.kind else { return };
        let Some(Ok(page)) = pages.first().map(|page| page[..].try_into()) else { return };
        let Ok((_, statements)) = RingHead::decode(page) else { return };
        for statement in statements {
            if let Statement::Set(set) = statement
                && let Some(place) = self.places.get(&set.volume)
            {
                self.logged.insert((*place, set.block));
            }
        }
    }
}

/// Blocks whose only copy an SSD damaged.
#[derive(Default)]
pub(crate) struct Wounds {
    /// As was reported, and when: they need not be at home until they are written again.
    pub open: BTreeMap<(u16, u64), u64>,
    /// Those that were written again since, and the writes: if a power cut takes them all, the block is as it was.
    pub healed: BTreeMap<(u16, u64), Vec<u32>>,
}

impl World<'_> {
    /// What is on the SSD and not durable may be torn or gone after the crash that comes: its power's, or only of I/O in flight.
    pub fn blame_crash(&mut self, power: bool) {
        let next_token = self.devices[0].next_token();
        for flight in self.devices[0].flights() {
            let pages = pages_of(flight.io.offset_bytes, flight.io.length_bytes);
            self.blame.torn.extend(pages.map(|page| (page, next_token)));
        }
        if power {
            let unflushed = self.devices[0].media.unflushed_pages();
            self.blame.torn.extend(unflushed.into_iter().map(|page| (page, next_token)));
        }
        self.blame.ssd_harmed |= power && self.devices[0].faults.lies;
    }

    /// Versions of this volume's blocks from before now may be lost or come back, as far as the log ever knew the blocks.
    pub fn doubt_logged(&mut self, volume: u16) {
        let blocks: Vec<u64> = self.blame.logged.range((volume, 0)..=(volume, u64::MAX)).map(|(_, block)| *block).collect();
        self.doubt_blocks(volume, blocks);
    }

    /// Versions of these blocks from before now may be lost or come back.
    pub fn doubt_blocks(&mut self, volume: u16, blocks: Vec<u64>) {
        let end = self.plan.volumes[usize::from(volume)].sectors;
        let sectors = blocks.into_iter().flat_map(|block| block * BLOCK_SECTORS..((block + 1) * BLOCK_SECTORS).min(end));
        self.stats.doubted += self.oracle.doubt(volume, sectors);
    }

    /// These blocks were written anew: what could not be read does not matter any more, unless a power cut takes all that was written.
    pub fn heal(&mut self, blocks: std::ops::Range<(u16, u64)>, submitted_ns: u64, write: u32) {
        self.wounds.healed.range_mut(blocks.clone()).for_each(|(_, writes)| writes.push(write));
        let healed: Vec<(u16, u64)> =
            self.wounds.open.range(blocks).filter(|(_, since_ns)| submitted_ns > **since_ns).map(|(block, _)| *block).collect();
        for block in healed {
            self.blame.healed_ns.insert(block.0, self.queue.now_ns());
            self.wounds.open.remove(&block);
            self.wounds.healed.insert(block, vec![write]);
        }
    }

    /// After a power cut: blocks whose healing was lost cannot be read, as before.
    pub fn wounds_come_back(&mut self) {
        let now = self.queue.now_ns();
        let (oracle, wounded) = (&self.oracle, &mut self.wounds.open);
        self.wounds.healed.retain(|block, writes| {
            let all_lost = writes.iter().all(|write| oracle.is_lost(*write));
            if all_lost {
                wounded.insert(*block, now);
            }
            !all_lost
        });
    }

    /// Versions of any of this volume's blocks from before now may be lost or come back.
    pub fn doubt_all(&mut self, volume: u16) {
        let end = self.plan.volumes[usize::from(volume)].sectors;
        self.stats.doubted += self.oracle.doubt(volume, 0..end);
    }

    /// Whether an error told to a client, or the failure of a command, is explained by what devices did since it was begun. `settled`: the
    /// SSD cannot be to blame.
    pub fn explains_error(&self, volume: u16, since_ns: u64, settled: bool) -> bool {
        let device = backing_of(volume);
        let backing = self.blame.struck_since(device, since_ns) || self.blame.flush_failed.contains(&device);
        let ssd = self.blame.struck_since(0, since_ns) || self.blame.ssd_failed;
        backing || ssd && !settled
    }

    /// Whether a request may fail because the SSD is lost, if it is: when nothing dirty has gone home for long, in any shard, and earlier only
    /// if something dirty is what it is of. Where one copy is good there are no errors.
    pub fn needs_lost_ssd(&self, pending: &Pending) -> bool {
        let draft = &pending.draft;
        let device = backing_of(draft.volume);
        if !self.ssd_failed || self.blame.struck_since(device, pending.submitted_ns) || self.blame.flush_failed.contains(&device) {
            return true;
        }
        let system = self.system.as_ref().expect("a life is running");
        let in_vain = self.loss.is_in_vain(pending.submitted_ns, self.queue.now_ns());
        // What was the last that was dirty is known to one shard at first.
        let just_told = self.loss.is_just_told(pending.submitted_ns);
        let dirty_blocks = system.dirty_blocks(draft.volume).iter().sum::<u64>();
        let needs_it = just_told || dirty_blocks > 0;
        if draft.op != Op::Read && in_vain && needs_it {
            return true;
        }
        let blocks = draft.start_sector / 8..(draft.start_sector + u64::from(draft.sectors)).div_ceil(8);
        self.loss.was_unreadable(draft.volume, blocks.clone(), pending.submitted_ns)
            || system.dirty_list(draft.volume).iter().any(|block| blocks.contains(block))
    }

    /// The SSD dropped what it had not flushed: acknowledged writes that only its log held may be gone.
    pub fn give_up_unsettled(&mut self) {
        for volume in 0..self.volumes.len() {
            if !self.volumes[volume].settled {
                self.oracle.drop_unflushed(volume as u16);
            }
        }
    }
}
