//! Clients submit, and what they are answered is judged.

use std::collections::BTreeMap;

use engine::api::{Op, Reply, Request, RequestError};
use page::{PagePool, PageVec};
use types::VolumeIndex;

use super::devices::backing_of;
use super::{Failure, Happening, Step, World, failed};
use crate::course::Kind;
use crate::oracle::Kind as Written;
use crate::plan::Plan;
use crate::prng::Prng;
use crate::workload::{Client, Draft};
use crate::{content, coverage};

/// A request in flight, as its client remembers it.
pub(crate) struct Pending {
    pub connection: u16,
    pub draft: Draft,
    /// Number of the write, or moment of the read or flush, in the oracle.
    pub ticket: u64,
    /// The volume kept nothing from its backing device when this was submitted.
    pub settled: bool,
    /// How often the volume had been set to write-back when this was submitted.
    pub write_backs: u32,
    pub submitted_ns: u64,
    /// Of a flush that nothing of its volume accompanied: what it covers, for [`super::commits`].
    pub covers: Option<u64>,
    /// Its client has gone: nobody hears the answer.
    pub abandoned: bool,
}

/// Those of a run, and what they wait for.
pub(crate) struct Clients {
    pub list: Vec<Client>,
    /// Memory for what they write.
    pub pages: PagePool,
    /// Requests in flight, of each.
    pub busy: Vec<u32>,
    /// Each that waits to be woken.
    pub idle: Vec<bool>,
    pub pending: BTreeMap<u64, Pending>,
    pub requests_left: u32,
    pub next_request: u64,
}

impl Clients {
    /// Of this plan.
    pub fn of(plan: &Plan, root: &Prng) -> Clients {
        let connections = usize::from(plan.connections);
        Clients {
            list: (0..plan.connections).map(|index| Client::new(plan, root.fork(100 + u64::from(index)))).collect(),
            pages: PagePool::new(16 << 10),
            busy: vec![0; connections],
            idle: vec![false; connections],
            pending: BTreeMap::new(),
            requests_left: plan.requests,
            next_request: 1,
        }
    }

    /// The process died: nothing is in flight.
    pub fn forget_requests(&mut self) {
        self.pending.clear();
        self.busy.fill(0);
        self.idle.fill(false);
    }
}

impl World<'_> {
    pub fn wake_clients(&mut self) {
        for connection in 0..self.plan.connections {
            if std::mem::take(&mut self.clients.idle[usize::from(connection)]) {
                self.queue.after(0, Happening::Client(connection));
            }
        }
    }

    pub fn client_turn(&mut self, connection: u16) {
        let index = usize::from(connection);
        if self.clients.requests_left == 0 || !self.safety {
            return;
        }
        if self.clients.busy[index] >= self.plan.depth {
            self.clients.idle[index] = true;
            return;
        }
        if let Some(left_ns) = self.rest() {
            self.queue.after(left_ns, Happening::Client(connection));
            return;
        }
        if let Some(wait_ns) = self.course.early_by(Kind::Request(connection)) {
            self.queue.after(wait_ns, Happening::Client(connection));
            return;
        }
        let sizes = &self.volumes;
        let mut draft = self.clients.list[index].draw(self.plan, |volume| sizes[usize::from(volume)].sectors);
        let think_ns = self.clients.list[index].think_ns(self.plan);
        let choice = self.course.next(Kind::Request(connection));
        if self.volumes[usize::from(draft.volume)].is_shut() {
            self.clients.idle[index] = true;
            return;
        }
        self.clients.requests_left -= 1;
        self.queue.after(think_ns, Happening::Client(connection));
        if !self.course.happens(choice, || draft.in_words()) {
            // As if it had been answered: a run is stuck when nothing happens, not when nothing is asked for.
            self.progress.answered(self.queue.now_ns());
            return;
        }
        self.course.note_sectors(draft.sectors);
        draft.sectors = self.course.sectors(choice).unwrap_or(draft.sectors);
        self.submit(connection, draft);
    }

    /// A client goes with requests in flight, and another comes in its place.
    pub fn disconnect(&mut self) {
        let delay = self.prng.spread(self.plan.disconnect_ns);
        self.queue.after(delay, Happening::Disconnect);
        let connection = self.prng.below(u64::from(self.plan.connections)) as u16;
        if !self.safety || self.clients.busy[usize::from(connection)] == 0 {
            return;
        }
        self.cover(coverage::Fault::Disconnect);
        self.tell(format!("client {connection} goes"));
        self.clients.busy[usize::from(connection)] = 0;
        for pending in self.clients.pending.values_mut().filter(|pending| pending.connection == connection && !pending.abandoned) {
            pending.abandoned = true;
            if pending.draft.op == Op::Read {
                self.oracle.abandon_read(pending.ticket);
            }
        }
        if std::mem::take(&mut self.clients.idle[usize::from(connection)]) {
            self.queue.after(0, Happening::Client(connection));
        }
    }

    /// Puts a request in, whoever wants it.
    pub fn submit(&mut self, connection: u16, draft: Draft) -> u64 {
        let id = self.clients.next_request;
        self.clients.next_request += 1;
        self.stats.requests += 1;
        let mut pages = PageVec::new();
        let volume = draft.volume;
        let write = |kind| (kind, draft.start_sector, draft.sectors, draft.fua);
        let ticket = match draft.op {
            Op::Read => self.oracle.begin_read(),
            Op::Flush => self.oracle.begin_flush(),
            Op::Write | Op::WriteZeroes | Op::Discard | Op::PunchHole => {
                let (kind, start, sectors, fua) = write(match draft.op {
                    Op::Write => Written::Data(draft.texture),
                    Op::WriteZeroes | Op::PunchHole => Written::Zero,
                    _ => Written::Discard,
                });
                u64::from(self.oracle.begin_write(volume, kind, start, sectors, fua))
            }
        };
        if draft.op == Op::Write {
            pages = self.client_data(&draft, ticket as u32);
        }
        self.note(30 + draft.op as u64, id ^ draft.start_sector << 16 ^ u64::from(draft.sectors) << 48);
        if self.draft_watched(&draft) {
            self.tell(format!("client {connection}: request {id} (oracle {ticket}) {draft:?}"));
        }
        let submitted_ns = self.queue.now_ns();
        let state = &mut self.volumes[usize::from(volume)];
        state.in_flight += 1;
        state.longest_blocks = state.longest_blocks.max(u64::from(draft.sectors) / 8 + 2);
        self.clients.busy[usize::from(connection)] += 1;
        let (settled, write_backs) = (state.settled, state.write_backs);
        let is_alone = draft.op == Op::Flush && state.in_flight == 1;
        let covers = is_alone.then(|| self.commits.covers(volume));
        self.clients
            .pending
            .insert(id, Pending { connection, draft, ticket, settled, write_backs, submitted_ns, covers, abandoned: false });
        self.maybe_hold_backing(volume, draft.op, id);
        let origin = self.labels.origin(draft.op);
        let request =
            Request::new(id, VolumeIndex(volume), draft.op, draft.start_sector, draft.sectors, origin).fua(draft.fua).pages(pages);
        let now = self.queue.now_ns();
        self.system_mut().submit(now, connection, request);
        id
    }

    fn client_data(&mut self, draft: &Draft, number: u32) -> PageVec {
        let first = draft.start_sector % 8;
        let blocks = (first + u64::from(draft.sectors)).div_ceil(8);
        (0..blocks)
            .map(|block| {
                let mut page = self.clients.pages.allocate().expect("client data fits in memory");
                let from = if block == 0 { first } else { 0 };
                let to = (first + u64::from(draft.sectors) - block * 8).min(8);
                for inside in from..to {
                    let sector = draft.start_sector - first + block * 8 + inside;
                    let at = (inside * 512) as usize;
                    content::fill(draft.texture, draft.volume, sector, number, &mut page[at..at + 512]);
                }
                page.freeze()
            })
            .collect()
    }

    pub fn reply(&mut self, reply: Reply) -> Step {
        let Some(pending) = self.clients.pending.remove(&reply.id) else {
            return Err(failed(format!("a reply to request {}, which no client waits for", reply.id)));
        };
        let draft = pending.draft;
        self.commits.answered(draft.volume, reply.id);
        if let (Some(past), Ok(())) = (pending.covers, reply.result) {
            self.commits.covered(draft.volume, past);
        }
        self.progress.answered(self.queue.now_ns());
        self.note(40, reply.id ^ u64::from(reply.result.is_err()) << 60);
        if self.draft_watched(&draft) {
            self.tell(format!("reply to request {}: {:?} ({:?})", reply.id, reply.result, reply.outcome));
        }
        self.volumes[usize::from(draft.volume)].in_flight -= 1;
        if pending.abandoned {
            // A write may have taken effect; whoever comes next knows as little as after a lost answer.
            if matches!(draft.op, Op::Write | Op::WriteZeroes | Op::Discard | Op::PunchHole) {
                self.oracle.end_write(pending.ticket as u32, false);
            }
            return Ok(());
        }
        self.clients.busy[usize::from(pending.connection)] -= 1;
        if std::mem::take(&mut self.clients.idle[usize::from(pending.connection)]) {
            self.queue.after(0, Happening::Client(pending.connection));
        }
        match reply.result {
            Ok(()) => self.judge_success(&pending, &reply),
            Err(error) => self.judge_error(&pending, error),
        }
    }

    fn judge_success(&mut self, pending: &Pending, reply: &Reply) -> Step {
        let draft = &pending.draft;
        match draft.op {
            Op::Flush => {
                self.stats.flushes += 1;
                self.oracle.end_flush(draft.volume, pending.ticket);
                Ok(())
            }
            Op::Read => {
                let first = (draft.start_sector % 8) as usize;
                let blocks = (first + draft.sectors as usize).div_ceil(8);
                if reply.pages.len() != blocks {
                    return Err(failed(format!("{} pages for a read of {blocks} blocks: {draft:?}", reply.pages.len())));
                }
                let sector = |index: usize| {
                    let at = (first + index) % 8 * 512;
                    &reply.pages[(first + index) / 8][at..at + 512]
                };
                Ok(self.oracle.end_read(draft.volume, draft.start_sector, draft.sectors, pending.ticket, sector)?)
            }
            Op::Write | Op::WriteZeroes | Op::Discard | Op::PunchHole => {
                self.oracle.end_write(pending.ticket as u32, true);
                let (start, end) = (draft.start_sector.div_ceil(8), (draft.start_sector + u64::from(draft.sectors)) / 8);
                if draft.op != Op::Discard && start < end {
                    self.heal((draft.volume, start)..(draft.volume, end), pending.submitted_ns, pending.ticket as u32);
                }
                if pending.settled && self.volumes[usize::from(draft.volume)].settled {
                    self.check_at_home(draft.volume, draft.start_sector, draft.sectors)?;
                }
                Ok(())
            }
        }
    }

    fn judge_error(&mut self, pending: &Pending, error: RequestError) -> Step {
        let draft = &pending.draft;
        self.stats.errors += 1;
        match draft.op {
            Op::Flush => {}
            Op::Read => self.oracle.abandon_read(pending.ticket),
            _ => self.oracle.end_write(pending.ticket as u32, false),
        }
        let state = &self.volumes[usize::from(draft.volume)];
        let read_only = error == RequestError::ReadOnly && state.options.read_only;
        // All the time: one that was write-back for a moment may have needed the SSD just then.
        let settled = pending.settled && state.settled && pending.write_backs == state.write_backs;
        let end = draft.start_sector + u64::from(draft.sectors);
        let wounded = self.wounds.open.range((draft.volume, draft.start_sector / 8)..(draft.volume, end.div_ceil(8))).next().is_some();
        let excused = read_only || wounded || self.explains_error(draft.volume, pending.submitted_ns, settled);
        if excused && (read_only || wounded || self.needs_lost_ssd(pending)) {
            return Ok(());
        }
        let place = Some((draft.volume, draft.start_sector));
        Err(Failure { what: format!("{error:?} for {draft:?} although no device failed"), place, history: Vec::new() })
    }

    /// C4: in the modes that keep nothing back, what is acknowledged is on the backing device itself.
    pub fn check_at_home(&mut self, volume: u16, start_sector: u64, sectors: u32) -> Step {
        let state = &self.volumes[usize::from(volume)];
        // Whatever the SSD did: a volume that never kept anything back has it all at home.
        let surely = state.always_settled;
        let media = &self.devices[backing_of(volume)].media;
        for sector in start_sector..start_sector + u64::from(sectors) {
            if !self.wounds.open.contains_key(&(volume, sector / 8)) {
                self.oracle.check_image(volume, sector, media.bytes(sector * 512, 512), surely)?;
            }
        }
        Ok(())
    }

    fn draft_watched(&self, draft: &Draft) -> bool {
        let Some((volume, sector)) = self.watch else { return false };
        let inside = draft.start_sector <= sector && sector < draft.start_sector + u64::from(draft.sectors);
        draft.volume == volume && (draft.op == Op::Flush || inside)
    }
}
