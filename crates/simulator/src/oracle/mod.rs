//! The independent reference model: which versions of a sector may be seen, by C1–C5.
//!
//! Every write is a *version* of its sectors. All times are ticks of a logical clock that moves with each thing a client
//! can observe. A version takes effect at one moment between its submission and its acknowledgement; what reads
//! return narrows that interval. `V` is *definitely before* `W` when V's interval ends before W's begins.
//!
//! * A version is *certain* when it must have taken effect: acknowledged and not given up by a power cut, or seen by a read.
//! * It is *durable* when it is certain and covered by a flush (acknowledged before the flush was submitted) or by FUA,
//!   or when it was seen after a crash that it survived (C3: from then on no other version may come back).
//! * A read may return V unless a certain W, definitely after V, took effect before the read began (C1).
//! * A power cut makes every certain version that is not durable uncertain (C2). A process crash takes nothing that was
//!   acknowledged.
//! * What is definitely before a durable version never comes back (C3).
//! * A failed write, and one in flight at a crash, leaves old or new (C5), settled by the first read.
//! * What is in *doubt* (see [`Oracle::doubt`]) proves nothing and forbids nothing; versions written later rule as ever, and mixed or
//!   misplaced data is never excused.
//! * A discard gives zeroes or leaves what was, settled by the first read; zeroes are a version like any other.
//! * Of what a write holds of a unit that its volume keeps whole, either all is found or nothing (see [`Oracle::keep_units`]).
//! * What several versions hold alike, zeroes or the same pattern, may be any of them: one that is allowed excuses it, and if more than one
//!   can be meant, nothing is learnt.

mod sector;
#[cfg(test)]
mod tests;

use std::fmt;

use sector::Sector;

use crate::content::{self, Content, SECTOR, Texture};

/// What a write does to its sectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Data of this texture.
    Data(Texture),
    /// Zeroes.
    Zero,
    /// Zeroes or no change.
    Discard,
}

/// One write, zeroing or discard.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub kind: Kind,
    pub volume: u16,
    pub start_sector: u64,
    pub sectors: u32,
    pub submitted: u64,
    /// Latest moment it can have taken effect; `u64::MAX` while in flight.
    pub end: u64,
    /// When it was acknowledged; `u64::MAX` if it was not.
    pub acked: u64,
    pub fua: bool,
    /// A power cut came before it was durable.
    pub lost: bool,
    /// Number of crashes before it was submitted.
    pub life: u32,
}

impl Write {
    /// What it makes of a sector, if it is the write of that number and there is such a sector in it.
    pub(crate) fn makes(&self, number: u32, volume: u16, sector: u64) -> Option<Content> {
        let inside = self.start_sector <= sector && sector < self.start_sector + u64::from(self.sectors);
        (self.volume == volume && inside).then(|| match self.kind {
            Kind::Data(texture) => content::of(texture, volume, sector, number),
            Kind::Zero | Kind::Discard => Content::Zero,
        })
    }
}

/// What went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// An acknowledged write is gone although it had to survive.
    Lost,
    /// A read did not see the latest acknowledged write, without any crash.
    Stale,
    /// A version older than a durable one came back.
    Resurrected,
    /// One read saw a version, a later one an earlier version.
    Flapped,
    /// The sector is no version at all.
    Torn,
    /// The sector belongs somewhere else.
    Misdirected,
    /// The backing device lacks what was acknowledged to be on it.
    NotAtHome,
    /// A part of a write is there, and another part of the same unit is not.
    UnitTorn,
}

/// A broken promise.
#[derive(Clone, Debug)]
pub struct Violation {
    /// What kind.
    pub fault: Fault,
    /// Which volume.
    pub volume: u16,
    /// Which sector of it.
    pub sector: u64,
    /// The story.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: volume {} sector {}: {}", self.fault, self.volume, self.sector, self.detail)
    }
}

struct Volume {
    sectors: Vec<Sector>,
    /// Everything acknowledged before this moment is covered by a flush.
    flushed: u64,
    /// When the device last dropped what it had not flushed. A read that ran meanwhile may show what was before.
    dropped: u64,
    /// Of what was written to a sector before this moment, any version may be found (0: none is in doubt).
    doubted: Vec<u64>,
    /// Sectors of the units that writes keep whole; 0: nothing is promised of more than a block.
    unit_sectors: u64,
}

/// The model of all volumes.
pub struct Oracle {
    clock: u64,
    /// Crashes so far.
    life: u32,
    writes: Vec<Write>,
    in_flight: Vec<u32>,
    /// Answered, possibly not durable.
    unsettled: Vec<u32>,
    volumes: Vec<Volume>,
    /// When each unfinished read began.
    reads: Vec<u64>,
}

/// What the rules of one sector need to know of the rest.
pub(crate) struct Context<'a> {
    pub writes: &'a [Write],
    pub flushed: u64,
    pub life: u32,
    pub clock: u64,
    /// No read that is still running began before this.
    pub oldest_read: u64,
    /// Any version of this sector that was submitted before this may be found.
    pub doubted: u64,
}

impl Oracle {
    /// Volumes of these sizes; volume `i` begins as a write `i` of this kind would leave it.
    pub fn new(sizes_sectors: &[u64], begin_as: &[Kind]) -> Oracle {
        let mut oracle = Oracle {
            clock: 1,
            life: 0,
            writes: Vec::new(),
            in_flight: Vec::new(),
            unsettled: Vec::new(),
            volumes: Vec::new(),
            reads: Vec::new(),
        };
        for (index, size) in sizes_sectors.iter().enumerate() {
            oracle.writes.push(Write {
                kind: begin_as[index],
                volume: index as u16,
                start_sector: 0,
                sectors: *size as u32,
                submitted: 0,
                end: 0,
                acked: 0,
                fua: true,
                lost: false,
                life: 0,
            });
            let sectors = (0..*size).map(|_| Sector::new(index as u32)).collect();
            oracle.volumes.push(Volume { sectors, flushed: 0, dropped: 0, doubted: vec![0; *size as usize], unit_sectors: 0 });
        }
        oracle
    }

    /// From now on each aligned unit of so many sectors that a write covers is written as a whole or not at all.
    pub fn keep_units(&mut self, volume: u16, unit_sectors: u64) {
        self.volumes[usize::from(volume)].unit_sectors = unit_sectors;
    }

    fn context<'a>(writes: &'a [Write], flushed: u64, life: u32, clock: u64, reads: &[u64]) -> Context<'a> {
        Context { writes, flushed, life, clock, oldest_read: reads.iter().copied().min().unwrap_or(clock), doubted: 0 }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Crashes so far.
    pub fn life(&self) -> u32 {
        self.life
    }

    /// A client submits a write; gives its number, which is also what its sectors hold.
    pub fn begin_write(&mut self, volume: u16, kind: Kind, start_sector: u64, sectors: u32, fua: bool) -> u32 {
        let submitted = self.tick();
        let number = self.writes.len() as u32;
        let life = self.life;
        self.writes.push(Write { kind, volume, start_sector, sectors, submitted, end: u64::MAX, acked: u64::MAX, fua, lost: false, life });
        self.in_flight.push(number);
        let model = &mut self.volumes[usize::from(volume)];
        let context = Self::context(&self.writes, model.flushed, self.life, self.clock, &self.reads);
        for sector in &mut model.sectors[start_sector as usize..(start_sector + u64::from(sectors)) as usize] {
            sector.prune(&context);
            sector.add(number);
        }
        number
    }

    /// The write was answered.
    pub fn end_write(&mut self, number: u32, done: bool) {
        let now = self.tick();
        let at = self.in_flight.iter().position(|write| *write == number).expect("answered once");
        self.in_flight.swap_remove(at);
        let write = &mut self.writes[number as usize];
        write.end = now;
        if done {
            write.acked = now;
        }
        // One that failed may have taken effect, and is no more durable for it.
        self.unsettled.push(number);
    }

    /// A client submits a flush; gives the moment to hand to [`Oracle::end_flush`].
    pub fn begin_flush(&mut self) -> u64 {
        self.tick()
    }

    /// The flush was answered with success.
    pub fn end_flush(&mut self, volume: u16, submitted: u64) {
        let flushed = &mut self.volumes[usize::from(volume)].flushed;
        *flushed = submitted.max(*flushed);
        self.tick();
    }

    /// A client submits a read; gives the moment to hand to [`Oracle::end_read`].
    pub fn begin_read(&mut self) -> u64 {
        let now = self.tick();
        self.reads.push(now);
        now
    }

    /// The read failed, or its answer will never come.
    pub fn abandon_read(&mut self, began: u64) {
        let at = self.reads.iter().position(|read| *read == began).expect("ended once");
        self.reads.swap_remove(at);
    }

    /// The read was answered: judges one sector after the other (`data` gives the bytes of the n-th).
    pub fn end_read<'d>(
        &mut self,
        volume: u16,
        start_sector: u64,
        sectors: u32,
        began: u64,
        data: impl Fn(usize) -> &'d [u8],
    ) -> Result<(), Violation> {
        let now = self.tick();
        let model = &mut self.volumes[usize::from(volume)];
        let mut context = Self::context(&self.writes, model.flushed, self.life, now, &self.reads);
        for index in 0..sectors as usize {
            let at = start_sector + index as u64;
            context.doubted = model.doubted[at as usize];
            let found = content::read(data(index));
            if began < model.dropped && belongs(found, volume, at) {
                continue;
            }
            let state = &mut model.sectors[at as usize];
            let seen = state.judge(found, volume, at, began, &context).map_err(|(fault, detail)| Violation {
                fault,
                volume,
                sector: at,
                detail,
            })?;
            if let Some(version) = seen {
                state.learn(version, began, &context);
            }
        }
        if began >= self.volumes[usize::from(volume)].dropped {
            self.check_units(volume, start_sector, sectors, &data)?;
        }
        self.abandon_read(began);
        Ok(())
    }

    /// Of each whole unit that was read: what a write holds of it is all there, or nothing is, but for what came later.
    fn check_units<'d>(&self, volume: u16, start: u64, sectors: u32, data: &impl Fn(usize) -> &'d [u8]) -> Result<(), Violation> {
        let model = &self.volumes[usize::from(volume)];
        let (unit, end) = (model.unit_sectors, start + u64::from(sectors));
        if unit == 0 {
            return Ok(());
        }
        for first in (start.next_multiple_of(unit)..end / unit * unit).step_by(unit as usize) {
            let sectors = first..first + unit;
            if sectors.clone().any(|sector| model.doubted[sector as usize] > 0) {
                continue;
            }
            let found = |sector: u64| content::read(data((sector - start) as usize));
            let covers = |write: &Write| {
                matches!(write.kind, Kind::Data(_))
                    && write.start_sector <= first
                    && first + unit <= write.start_sector + u64::from(write.sectors)
            };
            let named = |sector: u64| match found(sector) {
                Content::Data { write, .. } if write as usize >= self.volumes.len() => Some(write),
                _ => None,
            };
            let whole: std::collections::BTreeSet<u32> =
                sectors.clone().filter_map(named).filter(|number| covers(&self.writes[*number as usize])).collect();
            for number in &whole {
                let write = &self.writes[*number as usize];
                // What is found elsewhere in the unit is of this write, or may have come later, and is not of another one of all of the unit.
                let fits = |other: u32| other == *number || !whole.contains(&other) && self.writes[other as usize].end >= write.submitted;
                let makes = |other: &u32, sector| self.writes[*other as usize].makes(*other, volume, sector) == Some(found(sector));
                let torn = sectors.clone().find(|sector| match named(*sector) {
                    Some(other) => !fits(other),
                    None => !(0..self.writes.len() as u32).any(|other| makes(&other, *sector) && fits(other)),
                });
                if let Some(sector) = torn {
                    let detail =
                        format!("found {:?} in a unit of {unit} sectors from {first} beside {}", found(sector), self.describe(*number));
                    return Err(Violation { fault: Fault::UnitTorn, volume, sector, detail });
                }
            }
        }
        Ok(())
    }

    /// Whether a device image holds, at this sector, a version that a read could return now. `surely`: no doubt excuses it.
    pub fn check_image(&self, volume: u16, sector: u64, bytes: &[u8], surely: bool) -> Result<(), Violation> {
        assert_eq!(bytes.len(), SECTOR);
        let model = &self.volumes[usize::from(volume)];
        let now = self.clock + 1;
        let mut context = Self::context(&self.writes, model.flushed, self.life, now, &self.reads);
        if !surely {
            context.doubted = model.doubted[sector as usize];
        }
        match model.sectors[sector as usize].judge(content::read(bytes), volume, sector, now, &context) {
            Ok(_) => Ok(()),
            Err((fault, detail)) => {
                let detail = format!("backing device: {fault:?}: {detail}");
                Err(Violation { fault: Fault::NotAtHome, volume, sector, detail })
            }
        }
    }

    /// The process died; with `power`, the machine lost power too. Call after every device has settled what was in flight.
    pub fn crash(&mut self, power: bool) {
        let now = self.tick();
        for number in self.in_flight.drain(..) {
            self.writes[number as usize].end = now;
        }
        self.reads.clear();
        self.life += 1;
        if power {
            for volume in 0..self.volumes.len() {
                self.give_up_unflushed(volume as u16);
            }
        }
        self.tick();
    }

    /// Everything of this volume that was acknowledged but not made durable may be gone (power cut, failed flush, or a
    /// cache declared lost).
    pub fn give_up_unflushed(&mut self, volume: u16) {
        let Oracle { writes, in_flight, unsettled, volumes, .. } = self;
        for number in in_flight.iter() {
            // Its answer may be on the way already, for what the device had only in its cache.
            let write = &mut writes[*number as usize];
            write.lost |= write.volume == volume && !write.fua;
        }
        unsettled.retain(|number| {
            let write = &mut writes[*number as usize];
            if write.volume != volume {
                return true;
            }
            let durable_by_itself = write.fua && write.acked != u64::MAX;
            if !durable_by_itself && write.end >= volumes[usize::from(volume)].flushed {
                write.lost = true;
            }
            false
        });
    }

    /// Of what was written to these sectors before now, any version may be found from now on, and another one later, until they are
    /// written again: a device lied, or a cache with dirty data was given up. Gives the count of sectors.
    pub fn doubt(&mut self, volume: u16, sectors: impl Iterator<Item = u64>) -> u64 {
        let now = self.tick();
        let doubted = &mut self.volumes[usize::from(volume)].doubted;
        sectors.map(|sector| doubted[sector as usize] = now).count() as u64
    }

    /// The device of this volume dropped what it had not flushed, while it goes on.
    pub fn drop_unflushed(&mut self, volume: u16) {
        self.volumes[usize::from(volume)].dropped = self.tick();
        self.give_up_unflushed(volume);
    }

    /// Sectors of the volume that were ever written, as `(start, sectors)` runs.
    pub fn written_runs(&self, volume: u16) -> Vec<(u64, u32)> {
        let mut runs: Vec<(u64, u32)> = Vec::new();
        for (sector, state) in self.volumes[usize::from(volume)].sectors.iter().enumerate() {
            if state.is_initial(u32::from(volume)) {
                continue;
            }
            match runs.last_mut() {
                Some((start, count)) if *start + u64::from(*count) == sector as u64 => *count += 1,
                _ => runs.push((sector as u64, 1)),
            }
        }
        runs
    }

    /// Whether a power cut came before that write was durable.
    pub fn is_lost(&self, number: u32) -> bool {
        self.writes[number as usize].lost
    }

    /// The write's place and kind, for reports.
    pub fn describe(&self, number: u32) -> String {
        describe(&self.writes, number)
    }
}

pub(crate) fn describe(writes: &[Write], number: u32) -> String {
    let Some(write) = writes.get(number as usize) else { return format!("write {number} (never made)") };
    let state = match (write.acked, write.end) {
        (u64::MAX, u64::MAX) => "in flight".to_string(),
        (u64::MAX, _) => "never acknowledged".to_string(),
        (acked, _) => format!("acknowledged at {acked}"),
    };
    format!(
        "write {number} ({:?}{}, sectors {}..{} of volume {}, life {}, submitted at {}, {state}{})",
        write.kind,
        if write.fua { " FUA" } else { "" },
        write.start_sector,
        write.start_sector + u64::from(write.sectors),
        write.volume,
        write.life,
        write.submitted,
        if write.lost { ", unflushed at a power cut" } else { "" },
    )
}

/// Whether those bytes are all zero or may stand at this place.
pub fn belongs(found: Content, volume: u16, sector: u64) -> bool {
    match found {
        Content::Zero => true,
        Content::Pattern { index, .. } => u64::from(index) == sector % types::BLOCK_SECTORS,
        Content::Data { volume: v, sector: s, .. } => v == volume && s == sector,
        Content::Garbage => false,
    }
}
