//! A deliberately simple correct system: no cache, every request straight to the backing device. With it the harness, the
//! oracle and the disks are tested by themselves; with a bug planted in it they are seen to fail.

use std::collections::{BTreeMap, VecDeque};

use engine::api::{Command, Completion, Io, IoError, IoId, IoKind, Op, Origin, Outcome, Reply, Request, RequestError, Target, WriteKind};
use oldlog::Written;
use page::{PageMutVec, PagePool, PageVec};

use crate::disk::blocking::Blocking;
use crate::plan::Plan;
use crate::system::{Builder, Cargo, Change, Facts, HostRecord, Output, Refusal, Started, System};
use types::VolumeId;

/// What is wrong with the stand-in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// Nothing.
    None,
    /// Flush does not reach the device.
    FlushSkipped,
    /// FUA is not passed on.
    FuaIgnored,
    /// Writes are acknowledged before they are on the device.
    AckEarly,
    /// Every 50th write is dropped.
    WriteDropped,
    /// Every 50th write goes one block further.
    Misdirected,
    /// A failed write is reported as done.
    ErrorHidden,
    /// Reads are served from a cache that zeroes and discards do not touch.
    StaleCache,
    /// The last sector of every 20th long write is left out.
    Torn,
    /// Every 200th reply is never given.
    ReplyForgotten,
    /// A failed flush is reported as done.
    FlushErrorHidden,
}

impl Bug {
    /// All but `None`.
    pub const ALL: [Bug; 10] = [
        Bug::FlushSkipped,
        Bug::FuaIgnored,
        Bug::AckEarly,
        Bug::WriteDropped,
        Bug::Misdirected,
        Bug::ErrorHidden,
        Bug::StaleCache,
        Bug::Torn,
        Bug::ReplyForgotten,
        Bug::FlushErrorHidden,
    ];
}

/// Builds stand-ins with this bug.
pub struct StandIn(pub Bug);

impl Builder for StandIn {
    /// It has no groups.
    fn keeps_units(&self) -> bool {
        false
    }

    fn format(&self, _: &Plan, _: &HostRecord, _: &[Written], _: &mut Blocking) -> Result<(), Refusal> {
        Ok(())
    }

    fn start(&self, _: &Plan, _: &HostRecord, _: u64, _: &mut Blocking, _: &PagePool) -> Result<Started, Refusal> {
        let system = Box::new(Plain {
            bug: self.0,
            // Its own: it knows no shortage.
            pages: PagePool::new(16 << 10),
            waiting: VecDeque::new(),
            active: BTreeMap::new(),
            outputs: VecDeque::new(),
            next_io: 0,
            count: 0,
            cached: BTreeMap::new(),
            broken: Vec::new(),
        });
        Ok(Started { system, damaged: Vec::new(), session: 0, after_clean_stop: false, upgraded: None })
    }

    fn uses_ssd(&self) -> bool {
        false
    }
}

struct Plain {
    bug: Bug,
    pages: PagePool,
    waiting: VecDeque<Request>,
    active: BTreeMap<u64, (Request, bool)>,
    outputs: VecDeque<Output>,
    next_io: u64,
    count: u64,
    /// Whole blocks, for the bug of that name.
    cached: BTreeMap<(u16, u64), page::Page>,
    /// Volumes whose flush failed: no more writes.
    broken: Vec<u16>,
}

fn overlap(one: &Request, other: &Request) -> bool {
    let reads = one.op == Op::Read && other.op == Op::Read;
    let apart = one.start_sector + u64::from(one.sectors) <= other.start_sector
        || other.start_sector + u64::from(other.sectors) <= one.start_sector;
    one.volume == other.volume && one.op != Op::Flush && other.op != Op::Flush && !reads && !apart
}

impl Plain {
    fn start_ready(&mut self) {
        let mut held: VecDeque<Request> = VecDeque::new();
        while let Some(request) = self.waiting.pop_front() {
            let blocked =
                held.iter().any(|earlier| overlap(earlier, &request)) || self.active.values().any(|(active, _)| overlap(active, &request));
            if blocked {
                held.push_back(request);
            } else {
                self.begin(request);
            }
        }
        self.waiting = held;
    }

    fn begin(&mut self, request: Request) {
        self.count += 1;
        let writes = matches!(request.op, Op::Write | Op::WriteZeroes | Op::Discard | Op::PunchHole);
        if (writes || request.op == Op::Flush) && self.broken.contains(&request.volume.0) {
            return self.reply(request.id, Err(RequestError::Io), PageVec::new());
        }
        if self.bug == Bug::StaleCache
            && request.op == Op::Read
            && request.sectors == 8
            && request.start_sector.is_multiple_of(8)
            && let Some(page) = self.cached.get(&(request.volume.0, request.start_sector))
        {
            let pages = PageVec::from_iter([page.clone()]);
            return self.reply(request.id, Ok(()), pages);
        }
        let (mut start, mut sectors) = (request.start_sector, request.sectors);
        let fua = request.fua && self.bug != Bug::FuaIgnored;
        let mut dropped = false;
        if request.op == Op::Write {
            self.cached.retain(|(volume, at), _| *volume != request.volume.0 || at + 8 <= start || *at >= start + u64::from(sectors));
            dropped = self.bug == Bug::WriteDropped && self.count.is_multiple_of(50);
            if self.bug == Bug::Misdirected && self.count.is_multiple_of(50) && start >= 8 {
                start -= 8;
            }
            if self.bug == Bug::Torn && self.count.is_multiple_of(20) && sectors > 1 {
                sectors -= 1;
            }
        }
        let skipped = self.bug == Bug::FlushSkipped && request.op == Op::Flush;
        if dropped || skipped {
            return self.reply(request.id, Ok(()), PageVec::new());
        }
        let kind = match request.op {
            Op::Read => {
                let blocks = (request.start_sector % 8 + u64::from(sectors)).div_ceil(8);
                IoKind::Read((0..blocks).map(|_| self.pages.allocate().expect("enough pages")).collect())
            }
            Op::Write => IoKind::Write { pages: request.pages.clone(), fua },
            Op::WriteZeroes => IoKind::WriteZeroes { fua, hole: false },
            Op::PunchHole => IoKind::WriteZeroes { fua, hole: true },
            Op::Discard => IoKind::Discard,
            Op::Flush => IoKind::Flush,
        };
        let length_bytes = if request.op == Op::Flush { 0 } else { u64::from(sectors) * 512 };
        let io = Io {
            id: IoId(self.next_io),
            target: Target::Backing(request.volume),
            offset_bytes: if request.op == Op::Flush { 0 } else { start * 512 },
            length_bytes,
            kind,
            writes: WriteKind::Other,
            background: false,
        };
        let early = self.bug == Bug::AckEarly && writes;
        if early {
            self.reply(request.id, Ok(()), PageVec::new());
        }
        self.active.insert(self.next_io, (request, early));
        self.next_io += 1;
        self.outputs.push_back(Output::Io(0, io));
    }

    fn reply(&mut self, id: u64, result: Result<(), RequestError>, pages: PageVec) {
        if self.bug == Bug::ReplyForgotten && self.count.is_multiple_of(200) {
            return;
        }
        self.outputs.push_back(Output::Reply(Reply { id, result, pages, outcome: Outcome::Bypass, range: None }));
    }

    fn finish(&mut self, request: Request, result: Result<(), IoError>, pages: PageMutVec) {
        let failed = result.is_err() && !(request.op == Op::Discard && result == Err(IoError::Unsupported));
        if failed && request.op == Op::Flush && self.bug == Bug::FlushErrorHidden {
            return self.reply(request.id, Ok(()), PageVec::new());
        }
        if failed && request.op == Op::Flush {
            self.broken.push(request.volume.0);
            self.outputs.push_back(Output::Event(0, engine::api::Event::BackingFailed(request.volume)));
        }
        if failed && !(self.bug == Bug::ErrorHidden && request.op == Op::Write) {
            return self.reply(request.id, Err(RequestError::Io), PageVec::new());
        }
        // A discard with FUA promises durability, which a discard alone does not give.
        if request.fua && request.op == Op::Discard && self.bug != Bug::FuaIgnored {
            let flush = Request::new(request.id, request.volume, Op::Flush, 0, 0, Origin::Client);
            return self.begin(flush);
        }
        let pages: PageVec = pages.into_iter().map(|page| page.freeze()).collect();
        if self.bug == Bug::StaleCache && request.op == Op::Read && request.sectors == 8 && request.start_sector.is_multiple_of(8) {
            self.cached.insert((request.volume.0, request.start_sector), pages[0].clone());
        }
        self.reply(request.id, Ok(()), pages);
    }
}

impl System for Plain {
    fn submit(&mut self, _: u64, _: u16, request: Request) {
        self.waiting.push_back(request);
        self.start_ready();
    }

    fn complete(&mut self, _: u64, _: u16, completion: Completion) {
        let (request, answered) = self.active.remove(&completion.id.0).expect("an I/O of ours");
        if !answered {
            self.finish(request, completion.result, completion.pages);
        }
        self.start_ready();
    }

    fn deliver(&mut self, _: u64, cargo: Cargo) {
        unreachable!("one thread sends itself nothing: {cargo:?}");
    }

    fn command(&mut self, _: u64, mut command: Command) {
        if let Some(token) = pool::commands::token_of(&mut command) {
            self.outputs.push_back(Output::Done(*token, Ok(())));
        }
    }

    fn tick(&mut self, _: u64) {}

    fn next_deadline(&self) -> Option<u64> {
        None
    }

    fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn check_invariants(&self) {
        assert!(self.waiting.is_empty() || !self.active.is_empty(), "something to wait for");
    }

    fn dirty_blocks(&self, _: u16) -> Vec<u64> {
        Vec::new()
    }

    fn dirty_list(&self, _: u16) -> Vec<u64> {
        Vec::new()
    }

    fn facts(&self) -> Facts {
        Facts::default()
    }

    fn volume_id(&self, volume: u16) -> VolumeId {
        VolumeId(u32::from(volume) + 1)
    }

    fn record(&mut self, _: Change, _: &mut Blocking) -> Result<(), Refusal> {
        Ok(())
    }

    fn stop(self: Box<Self>, _: &mut Blocking) -> Result<(), Refusal> {
        assert!(self.active.is_empty(), "quiesced before");
        Ok(())
    }
}
