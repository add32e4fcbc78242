//! One front end: what it has set up, and what its messages change.
//!
//! Runs on a thread of its own, because mapping a guest's memory may take long, and a front end that stops in the middle of a message must
//! keep nobody else waiting. Queues run on reactors; their wishes are how both talk.
//!
//! Invariants: a queue has a line exactly while an endpoint of it may exist; queues of at most one front end run at a time (`claim`).

use crate::block::{CONFIG_BYTES, CONFIG_WRITEBACK, QUEUES_MAX, feature};
use crate::dirty::DirtyLog;
use crate::export::{Claim, Shared};
use crate::inflight::{self, Inflight, Tracker};
use crate::mapping::may_wait_here;
use crate::memory::{GuestMemory, Region};
use crate::message::{Ask, InflightFacts, RegionFacts, config_body, protocol, reply, words};
use crate::queue::{Queue, QueueParts};
use crate::resumption::Resumption;
use crate::ring::{ENTRIES_MAX, Place, Ring};
use crate::socket::{Said, Silence, receive, send};
use crate::succession::Notes;
use crate::wishes::{Line, Wishes};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Regions of memory at most.
const REGIONS_MAX: usize = 256;
/// How long a queue may take to go by a changed wish: a reactor's turn, on a machine in deep memory pressure.
const WISH_PATIENCE: Duration = Duration::from_secs(60);
/// How long requests under way may take when a queue is stopped: as long as the kernel gives a block device.
const DRAIN_PATIENCE: Duration = Duration::from_secs(60);

/// Why a message was not obeyed.
#[derive(Debug)]
struct Refusal(String);

impl From<&str> for Refusal {
    fn from(why: &str) -> Refusal {
        Refusal(why.to_owned())
    }
}

/// What is replied to a message: its body, and a descriptor beside. `None`: that kind of message has no reply.
type Answer = Option<(Vec<u8>, Option<OwnedFd>)>;

/// How a queue was described.
#[derive(Debug, Default)]
struct QueueFacts {
    entries: u16,
    place: Place,
    /// The place was given.
    has_place: bool,
    base: u16,
    call: Option<Arc<OwnedFd>>,
    error: Option<Arc<OwnedFd>>,
    enabled: bool,
    line: Option<Arc<Line>>,
}

/// A queue that does not run any more.
struct Stopped {
    /// Where another device has to go on.
    base: u16,
    /// All before that is answered.
    in_order: bool,
}

/// See the module.
pub(crate) struct Session {
    shared: Arc<Shared>,
    socket: Arc<OwnedFd>,
    number: u64,
    features: u64,
    memory: Arc<GuestMemory>,
    log: Option<Arc<DirtyLog>>,
    inflight: Option<Arc<Inflight>>,
    notes: Notes,
    /// What is left of an earlier daemon, if requests under way are noted.
    resumption: Option<Arc<Resumption>>,
    queues: Vec<QueueFacts>,
    /// What the guest has chosen here, if it may choose. It may have chosen before, so none until it says so.
    chose_write_cache: bool,
    claim: Option<Claim>,
}

impl Session {
    pub(crate) fn new(shared: Arc<Shared>, socket: Arc<OwnedFd>, number: u64) -> Session {
        Session {
            shared,
            socket,
            number,
            features: 0,
            memory: Arc::default(),
            log: None,
            inflight: None,
            notes: None,
            resumption: None,
            queues: (0..QUEUES_MAX).map(|_| QueueFacts::default()).collect(),
            chose_write_cache: false,
            claim: None,
        }
    }

    /// Serves the front end until it goes, or cannot be understood.
    pub(crate) fn run(mut self) {
        let volume = self.shared.device.volume.name().to_owned();
        may_wait_here();
        loop {
            let said = match receive(self.socket.as_fd()) {
                Ok(said) => said,
                Err(Silence::Ended) => break,
                Err(Silence::Failed(error)) => {
                    tracing::info!(volume, %error, "the connection to a virtual machine broke");
                    break;
                }
                Err(Silence::Malformed(malformed)) => {
                    tracing::warn!(volume, "a virtual machine was disconnected: {}", malformed.0);
                    break;
                }
            };
            let Said { head, ask, descriptors } = said;
            let has_own_reply = ask.has_own_reply();
            let answered = match self.obey(ask, descriptors) {
                Ok(Some((body, descriptor))) => send(self.socket.as_fd(), &reply(head.request, &body), descriptor.as_ref()),
                Ok(None) => self.acknowledge(&head, 0),
                Err(Refusal(why)) => {
                    tracing::warn!(volume, "a virtual machine asked for what cannot be: {why}");
                    // A number in the place of another reply would be taken for that.
                    if has_own_reply || !head.wants_reply {
                        break;
                    }
                    self.acknowledge(&head, 1)
                }
            };
            if let Err(error) = answered {
                tracing::info!(volume, %error, "the connection to a virtual machine broke");
                break;
            }
        }
        self.end();
    }

    /// Whoever asks is answered, whatever was agreed: QEMU up to 8 agrees on nothing when it connects again before its guest has arrived.
    fn acknowledge(&self, head: &crate::message::Head, code: u64) -> std::io::Result<()> {
        if !head.wants_reply {
            return Ok(());
        }
        send(self.socket.as_fd(), &reply(head.request, &words(&[code])), None)
    }

    /// Does what a message asks; gives what to reply, if the kind of message has a reply.
    fn obey(&mut self, ask: Ask, mut descriptors: Vec<OwnedFd>) -> Result<Answer, Refusal> {
        let mut descriptor = || match descriptors.len() {
            1 => descriptors.pop().ok_or(Refusal::from("a descriptor is missing")),
            _ => Err(Refusal::from("a message comes with the wrong number of descriptors")),
        };
        let said = |body: Vec<u8>| Ok(Some((body, None)));
        match ask {
            Ask::GetFeatures => return said(words(&[self.shared.device.features()])),
            Ask::GetProtocolFeatures => return said(words(&[protocol::ALL])),
            Ask::GetQueueCount => return said(words(&[u64::from(QUEUES_MAX)])),
            Ask::GetMemorySlots => return said(words(&[REGIONS_MAX as u64])),
            Ask::SetOwner => {}
            Ask::SetFeatures(features) => self.set_features(features)?,
            // Each shows in the messages that come.
            Ask::SetProtocolFeatures(_) => {}
            Ask::Reset => self.reset(),
            Ask::SetMemory(regions) => self.set_memory(&regions, descriptors)?,
            Ask::AddMemory(region) => self.add_memory(&region, &descriptor()?)?,
            Ask::RemoveMemory(region) => {
                let memory = self.memory.without(region.guest, region.user, region.bytes);
                self.change_memory(memory.map_err(|_| Refusal::from("a region of memory was never added"))?)?;
            }
            Ask::SetLog { bytes, offset } => {
                self.set_log(bytes, offset, &descriptor()?)?;
                return said(words(&[bytes, offset]));
            }
            Ask::SetEntries { queue, entries } => self.set_entries(queue, entries)?,
            Ask::SetPlace { queue, logs, descriptors, used, available, log } => {
                let facts = self.queue(queue)?;
                facts.place = Place { descriptors, available, used, used_logged: logs.then_some(log) };
                facts.has_place = true;
                self.tell(queue)?;
            }
            Ask::SetBase { queue, base } => stopped(self.queue(queue)?)?.base = base as u16,
            Ask::GetBase { queue } => return said([queue.to_ne_bytes(), self.stop_in_order(queue)?.to_ne_bytes()].concat()),
            Ask::SetKick { has: false, .. } => return Err("a queue without kicks would have to be looked at all the time".into()),
            Ask::SetKick { queue, has: true } => {
                let kick = counter(descriptor()?)?;
                if self.queue(queue)?.line.is_some() {
                    self.stop_queue(queue)?;
                }
                self.start_queue(queue, kick)?;
            }
            Ask::SetCall { queue, has } => {
                let call = if has { Some(Arc::new(counter(descriptor()?)?)) } else { None };
                self.queue(queue)?.call = call;
                self.tell(queue)?;
            }
            Ask::SetError { queue, has } => {
                let error = if has { Some(Arc::new(counter(descriptor()?)?)) } else { None };
                self.queue(queue)?.error = error;
                self.tell(queue)?;
            }
            Ask::Enable { queue, on } => {
                self.queue(queue)?.enabled = on;
                self.tell(queue)?;
            }
            Ask::SetBackChannel => self.shared.set_back_channel(self.number, descriptor()?).map_err(Refusal)?,
            Ask::GetConfig { offset, bytes, flags } => {
                return said(self.config(offset, bytes, flags));
            }
            Ask::SetConfig { offset, data } => self.set_config(offset, &data)?,
            Ask::GetInflight(facts) => return self.give_inflight(facts),
            Ask::SetInflight(facts) => self.set_inflight(facts, &descriptor()?)?,
            Ask::Unknown(request) => return Err(Refusal(format!("request {request} is none of this device's"))),
        }
        Ok(None)
    }

    fn queue(&mut self, number: u32) -> Result<&mut QueueFacts, Refusal> {
        self.queues.get_mut(number as usize).ok_or_else(|| Refusal(format!("queue {number}: there are {QUEUES_MAX}")))
    }

    fn set_features(&mut self, features: u64) -> Result<(), Refusal> {
        let unknown = features & !self.shared.device.features();
        // A volume may have become writable since it was offered, and an earlier daemon offered a choice of cache.
        if unknown & !(feature::RO | feature::CONFIG_WCE) != 0 {
            return Err(Refusal(format!("features {unknown:#x} were not offered")));
        }
        self.features = features;
        self.tell_all()
    }

    fn map(&self, facts: &RegionFacts, file: &OwnedFd) -> Result<Region, Refusal> {
        let mapping = self.shared.quota.map(file, facts.offset, facts.bytes);
        let mapping = mapping.map_err(|error| Refusal(format!("the memory of the virtual machine {error}")))?;
        Ok(Region { guest: facts.guest, user: facts.user, mapping: Arc::new(mapping) })
    }

    fn set_memory(&mut self, regions: &[RegionFacts], files: Vec<OwnedFd>) -> Result<(), Refusal> {
        if regions.len() != files.len() {
            return Err("a memory table comes with the wrong number of descriptors".into());
        }
        let regions = regions.iter().zip(&files).map(|(facts, file)| self.map(facts, file)).collect::<Result<_, _>>()?;
        let memory = GuestMemory::new(regions).map_err(|_| Refusal::from("regions of memory overlap"))?;
        self.change_memory(memory)
    }

    fn add_memory(&mut self, region: &RegionFacts, file: &OwnedFd) -> Result<(), Refusal> {
        if self.memory.len() >= REGIONS_MAX {
            return Err(Refusal(format!("there are {REGIONS_MAX} regions of memory already")));
        }
        let region = self.map(region, file)?;
        let memory = self.memory.with(region).map_err(|_| Refusal::from("regions of memory overlap"))?;
        self.change_memory(memory)
    }

    fn change_memory(&mut self, memory: GuestMemory) -> Result<(), Refusal> {
        // Kept until the queues have let it go, so that it is unmapped here.
        let before = std::mem::replace(&mut self.memory, Arc::new(memory));
        self.tell_all()?;
        drop(before);
        Ok(())
    }

    fn set_log(&mut self, bytes: u64, offset: u64, file: &OwnedFd) -> Result<(), Refusal> {
        let mapping = self.shared.quota.map(file, offset, bytes);
        let mapping = mapping.map_err(|error| Refusal(format!("the log of written memory {error}")))?;
        // Kept until the queues have let it go, so that it is unmapped here.
        let before = self.log.replace(Arc::new(DirtyLog(mapping)));
        self.tell_all()?;
        drop(before);
        Ok(())
    }

    fn set_entries(&mut self, queue: u32, entries: u32) -> Result<(), Refusal> {
        let facts = stopped(self.queue(queue)?)?;
        let fits = u16::try_from(entries).ok().filter(|entries| *entries <= ENTRIES_MAX);
        facts.entries = fits.ok_or_else(|| Refusal(format!("a queue of {entries} entries: {ENTRIES_MAX} are the most")))?;
        Ok(())
    }

    fn give_inflight(&self, facts: InflightFacts) -> Result<Answer, Refusal> {
        let InflightFacts { queues, entries, .. } = facts;
        if queues == 0 || queues > QUEUES_MAX || entries == 0 || entries > ENTRIES_MAX {
            // The front end goes on without.
            return Ok(Some((InflightFacts { bytes: 0, offset: 0, queues, entries }.encode(), None)));
        }
        let made = inflight::make(queues, entries).and_then(|file| self.shared.note_own(self.number, &file).map(|()| file));
        let file = made.map_err(|error| Refusal(format!("no memory for requests under way ({error})")))?;
        let facts = InflightFacts { bytes: inflight::total_bytes(queues, entries), offset: 0, queues, entries };
        Ok(Some((facts.encode(), Some(file))))
    }

    fn set_inflight(&mut self, facts: InflightFacts, file: &OwnedFd) -> Result<(), Refusal> {
        let InflightFacts { bytes, offset, queues, entries } = facts;
        if queues > QUEUES_MAX || entries > ENTRIES_MAX {
            return Err("the memory for requests under way is for more than there can be".into());
        }
        if !self.shared.takes_notes(self.number, file).unwrap_or(false) {
            return Err("its disk is not what it was when the daemon before ended: restart the virtual machine".into());
        }
        let inflight = Inflight::new(file, offset, bytes, queues, entries);
        let inflight = inflight.map_err(|error| Refusal(format!("the memory for requests under way {error}")))?;
        self.notes = rustix::fs::fstat(file).ok().map(|facts| (facts.st_dev, facts.st_ino));
        self.resumption = Some(Resumption::new(&inflight));
        self.inflight = Some(Arc::new(inflight));
        Ok(())
    }

    fn config(&self, offset: u32, bytes: u32, flags: u32) -> Vec<u8> {
        let config = self.shared.device.config(self.has_write_cache());
        let end = offset.checked_add(bytes).map_or(usize::MAX, |end| end as usize);
        let data = config.get(offset as usize..end.min(CONFIG_BYTES + 1)).unwrap_or_default();
        config_body(offset, flags, data)
    }

    fn set_config(&mut self, offset: u32, data: &[u8]) -> Result<(), Refusal> {
        let [wanted] = data[..] else { return Err("only the write cache can be set".into()) };
        if offset as usize != CONFIG_WRITEBACK {
            return Err("only the write cache can be set".into());
        }
        self.chose_write_cache = wanted != 0;
        self.tell_all()
    }

    fn has_write_cache(&self) -> bool {
        self.chose_write_cache || self.features & feature::CONFIG_WCE == 0
    }

    fn wishes(&self, queue: usize) -> Wishes {
        let facts = &self.queues[queue];
        let flushes = self.features & feature::FLUSH != 0;
        // A front end that connects again during a migration may start its queues before it gives the log.
        let lacks_log = self.features & feature::LOG_ALL != 0 && self.log.is_none();
        Wishes {
            memory: self.memory.clone(),
            place: facts.place,
            call: facts.call.clone(),
            error: facts.error.clone(),
            log: self.log.clone().filter(|_| self.features & feature::LOG_ALL != 0),
            // Without protocol features there is no word for it.
            enabled: (facts.enabled || self.features & feature::PROTOCOL == 0) && !lacks_log,
            write_through: !flushes || !self.has_write_cache(),
            end: false,
        }
    }

    /// Tells a queue that runs what has changed; when this returns, it goes by it.
    fn tell(&self, queue: u32) -> Result<(), Refusal> {
        let Some(line) = &self.queues[queue as usize].line else { return Ok(()) };
        let wishes = self.wishes(queue as usize);
        if line.wish(|now| *now = wishes, WISH_PATIENCE) { Ok(()) } else { Err("the daemon is too busy".into()) }
    }

    fn tell_all(&self) -> Result<(), Refusal> {
        (0..self.queues.len() as u32).try_for_each(|queue| self.tell(queue))
    }

    fn start_queue(&mut self, number: u32, kick: OwnedFd) -> Result<(), Refusal> {
        let facts = self.queue(number)?;
        if facts.entries == 0 || !facts.has_place {
            return Err("a queue was started before it was described".into());
        }
        if self.claim.is_none() {
            self.claim = Some(Claim::new(&self.shared, self.number, self.notes).map_err(Refusal)?);
        }
        let number = number as u16;
        let wishes = self.wishes(usize::from(number));
        let facts = &self.queues[usize::from(number)];
        let with_events = self.features & feature::EVENT_INDEX != 0;
        let ring = Ring::new(self.memory.clone(), facts.place, facts.entries, with_events, facts.base, wishes.log.clone());
        let ring = ring.map_err(|broken| Refusal(format!("queue {number} cannot be used: {}", broken.0)))?;
        if !self.shared.succession.admits(self.notes, number, ring.is_waited_for()) {
            return Err("its guest waits for what another one took to a daemon that was killed: restart the guest".into());
        }
        let tracker = match &self.inflight {
            None => None,
            Some(all) => {
                let tracker = Tracker::new(all, number, facts.entries);
                Some(tracker.ok_or_else(|| Refusal::from("the memory for requests under way has no room for a queue"))?)
            }
        };
        let line = Line::new(wishes).map_err(|error| Refusal(format!("no descriptor for a queue ({error})")))?;
        self.claim.iter_mut().for_each(Claim::begins);
        self.queues[usize::from(number)].line = Some(line.clone());
        let (device, resumption) = (self.shared.device.clone(), self.resumption.clone());
        self.shared.add(Box::new(Queue::new(QueueParts { number, device, ring, tracker, resumption, kick, line })));
        Ok(())
    }

    /// Stops a queue.
    fn stop_queue(&mut self, number: u32) -> Result<Stopped, Refusal> {
        let facts = self.queue(number)?;
        let Some(line) = facts.line.take() else { return Ok(Stopped { base: facts.base, in_order: true }) };
        line.wish(|now| now.end = true, WISH_PATIENCE);
        let ended = line.wait_ended(DRAIN_PATIENCE);
        if ended.is_none_or(|ended| !ended.in_order) {
            // A front end that goes on with its used ring has another idea of what is answered.
            self.claim.iter_mut().for_each(|claim| claim.how.in_order = false);
        }
        let Some(ended) = ended else {
            // It may still end: what ends the session waits for it.
            self.queue(number)?.line = Some(line);
            return Err("requests of a queue do not end: check the volume's devices".into());
        };
        self.queue(number)?.base = ended.next_available;
        self.release_if_idle();
        Ok(Stopped { base: ended.next_available, in_order: ended.in_order })
    }

    /// Stops a queue for a front end that goes on elsewhere from its number of the next request, which is given.
    fn stop_in_order(&mut self, number: u32) -> Result<u32, Refusal> {
        let Stopped { base, in_order } = self.stop_queue(number)?;
        if !in_order {
            return Err("a queue was stopped before what an earlier daemon has left in it was carried out: only its notes tell".into());
        }
        Ok(u32::from(base))
    }

    fn release_if_idle(&mut self) {
        if self.queues.iter().all(|queue| queue.line.is_none())
            && let Some(mut claim) = self.claim.take()
        {
            claim.how.asked = true;
        }
    }

    /// Back to the beginning, but for what the protocol says stays.
    fn reset(&mut self) {
        self.end_queues();
        for queue in &mut self.queues {
            *queue = QueueFacts::default();
        }
        self.chose_write_cache = false;
    }

    /// Ends all queues, and waits until they have gone, however long it takes: what another front end writes must come later.
    fn end_queues(&mut self) {
        for queue in &self.queues {
            if let Some(line) = &queue.line {
                line.wish(|now| now.end = true, Duration::ZERO);
            }
        }
        let mut in_order = true;
        for queue in &mut self.queues {
            if let Some(line) = queue.line.take() {
                while !line.is_ended() {
                    line.wait_ended(DRAIN_PATIENCE);
                }
                in_order &= line.wait_ended(Duration::ZERO).is_some_and(|ended| ended.in_order);
            }
        }
        if let Some(mut claim) = self.claim.take() {
            claim.how.in_order &= in_order;
        }
    }

    fn end(mut self) {
        if let Some(claim) = &self.claim {
            claim.is_ending();
        }
        self.end_queues();
        self.shared.session_ended(self.number);
    }
}

/// A queue that does not run.
fn stopped(queue: &mut QueueFacts) -> Result<&mut QueueFacts, Refusal> {
    if queue.line.is_some() { Err("a queue was changed while it runs".into()) } else { Ok(queue) }
}

/// An event counter, made so that writing to it does not wait. Anything else could make a reactor wait, or do things that the front end
/// itself may not.
fn counter(descriptor: OwnedFd) -> Result<OwnedFd, Refusal> {
    let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    let is_counter = std::fs::read_link(path).is_ok_and(|name| name.as_os_str() == "anon_inode:[eventfd]");
    if !is_counter {
        return Err("a kick or call descriptor is no eventfd".into());
    }
    let flags = rustix::fs::fcntl_getfl(&descriptor);
    let changed = flags.and_then(|flags| rustix::fs::fcntl_setfl(&descriptor, flags | rustix::fs::OFlags::NONBLOCK));
    changed.map_err(|error| Refusal(format!("a kick or call descriptor cannot be used ({error})")))?;
    Ok(descriptor)
}
