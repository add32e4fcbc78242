//! Preloads and warm-ups as jobs: the plan is read in turns, at a pace that clients leave room for, and how far it is outlives the daemon.
//!
//! A turn is what is read between two looks at the job's flag. What is remembered of a preload is written at its begin, every few seconds and when it is
//! stopped; when the daemon ends, whatever way, the next one lists it as a stopped job. What RAM held of it is gone then, so that it goes back as far.

use super::Manager;
use super::claims::Claim;
use super::work::LOOK;
use api::error::ControlError;
use api::human;
use api::names::Named;
use api::{JobView, Severity, VolumeWarm};
use insight::preload::{Allowed, Note, Pace, Plan, Seen};
use records::jobs::Asked;
use records::jobs::{Job, Work};
use records::state::VolumeRecord;
use runtime::Histogram;
use std::ops::Range;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// How often the pace looks at clients.
const PACE_LOOK: Duration = Duration::from_millis(if cfg!(test) { 5 } else { 1000 });
/// How often it is noted how far a preload is.
const NOTED_EVERY: Duration = Duration::from_secs(10);
/// A turn at full speed: an eighth of a second of a hard disk, so that a stop is quick and a client that comes waits for little.
const FULL_TURN_BYTES: u64 = 16 << 20;
/// A turn at a limited rate is what that gives in a twentieth of a second: many small bursts instead of a large one.
const TURNS_PER_SECOND: u64 = 20;

/// What a preload would do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PreloadCost {
    /// Bytes that enter the cache: what the SSD writes at most, as far as they are not cached already.
    pub bytes: u64,
    /// Bytes read from the backing device, gaps included.
    pub read_bytes: u64,
    /// Ranges, after those that touch were joined.
    pub ranges: usize,
}

impl Manager {
    /// What a preload of these ranges would do; see [`Manager::begin_preload`].
    ///
    /// # Errors
    /// As that one's.
    pub fn preload_cost(&self, volume: &str, ranges: &[Range<u64>], budget_bytes: Option<u64>) -> Result<PreloadCost, ControlError> {
        let plan = self.plan_of(&self.warmable_volume(volume)?, ranges, budget_bytes)?;
        Ok(PreloadCost { bytes: plan.bytes(), read_bytes: plan.read_bytes(), ranges: plan.ranges().len() })
    }

    /// Begins a job that reads ranges of a volume into the cache, in address order. They are given in the order of their worth: what is beyond the budget,
    /// or beyond the pool's size, is cut from the end of the list. More than 65,536 are joined where the least lies between. `told` says what it is for,
    /// in words for people: "advice 3".
    ///
    /// # Errors
    /// If the volume does not run, has no cache, or is busy; or nothing is left to read.
    pub fn begin_preload(
        &self,
        volume: &str,
        ranges: Vec<Range<u64>>,
        budget_bytes: Option<u64>,
        rate_bytes_s: Option<u64>,
        told: String,
    ) -> Result<JobView, ControlError> {
        check_rate(rate_bytes_s)?;
        let claim = self.claim(&[(Named::Volume, volume)], "a preload")?;
        let record = self.warmable_volume(volume)?;
        let plan = self.plan_of(&record, &ranges, budget_bytes)?;
        let asked = Asked { ranges: plan.ranges().into(), at_bytes: 0, rate_bytes_s, told };
        self.preload_from(record, asked, claim)
    }

    fn plan_of(&self, record: &VolumeRecord, ranges: &[Range<u64>], budget_bytes: Option<u64>) -> Result<Plan, ControlError> {
        let room_bytes = {
            let memory = self.memory();
            memory.pools.get(&record.pool).map(|pool| pool.size_bytes).filter(|bytes| *bytes > 0)
        };
        let most_bytes = budget_bytes.into_iter().chain(room_bytes).min();
        let plan = Plan::new(ranges, most_bytes, record.size_bytes);
        if plan.ranges().is_empty() {
            let remedy = "name something that has blocks on the volume, and a budget of at least a block of 4 KiB".to_string();
            return Err(ControlError::BadCombination("there is nothing to preload".into(), remedy));
        }
        Ok(plan)
    }

    /// The job of a preload, or of the rest of one.
    pub(super) fn preload_from(&self, record: VolumeRecord, asked: Asked, claim: Claim) -> Result<JobView, ControlError> {
        let plan = Plan::of_ranges(asked.ranges.to_vec()).expect("they are a plan's");
        let (manager, name, uuid) = (self.clone(), record.name.clone(), record.uuid);
        let rest_bytes = plan.bytes() - plan.bytes_below(asked.at_bytes);
        let begun = format!("preload of {}: at most {} are written to the SSD", asked.told, human::bytes(rest_bytes));
        self.note_preload(uuid, Some(&asked));
        let kept = Work::Preload(asked.clone());
        let work = move |job: &Job| {
            let (mut reached, mut noted) = (asked.clone(), Instant::now());
            let result = manager.read_plan(&record, &plan, &asked, job, &mut |at_bytes| {
                reached.at_bytes = at_bytes;
                job.reached(Work::Preload(reached.clone()));
                if noted.elapsed() >= NOTED_EVERY {
                    noted = Instant::now();
                    manager.note_preload(uuid, Some(&reached));
                }
            });
            manager.note_preload(uuid, result.is_err().then_some(&reached));
            result
        };
        let view = self.run_job(kept, (&name, uuid), claim, work)?;
        self.events().note(Severity::Info, &name, begun);
        Ok(view)
    }

    pub(super) fn volume_warm(&self, name: &str, warm: VolumeWarm) -> Result<JobView, ControlError> {
        check_rate(warm.rate_bytes_s)?;
        let claim = self.claim(&[(Named::Volume, name)], "a warm-up")?;
        let record = self.warmable_volume(name)?;
        let end_bytes = warm.end_bytes.unwrap_or(record.size_bytes);
        let outside = match end_bytes > record.size_bytes {
            _ if warm.start_bytes >= end_bytes.min(record.size_bytes) => Some("lies outside the volume"),
            true => Some("ends beyond the volume"),
            false => None,
        };
        if let Some(outside) = outside {
            return Err(ControlError::BadOption {
                option: "--range",
                problem: format!("{outside}, which has {}", human::bytes(record.size_bytes)),
                remedy: "write A-B with A below B and B at most the volume's size, or A- up to its end".into(),
            });
        }
        self.warm_from(record, warm.start_bytes..end_bytes, warm.start_bytes, warm.rate_bytes_s, claim)
    }

    /// The job of a warm-up, or of the rest of one.
    pub(super) fn warm_from(
        &self,
        record: VolumeRecord,
        range: Range<u64>,
        at_bytes: u64,
        rate_bytes_s: Option<u64>,
        claim: Claim,
    ) -> Result<JobView, ControlError> {
        let (manager, name, uuid) = (self.clone(), record.name.clone(), record.uuid);
        let Range { start: start_bytes, end: end_bytes } = range;
        let plan = Plan::new(&[range], None, record.size_bytes);
        let work = move |at_bytes| Work::Warm { start_bytes, at_bytes, end_bytes, rate_bytes_s };
        let asked = Asked { ranges: plan.ranges().into(), at_bytes, rate_bytes_s, told: String::new() };
        self.run_job(work(at_bytes), (&name, uuid), claim, move |job| {
            manager.read_plan(&record, &plan, &asked, job, &mut |at_bytes| job.reached(work(at_bytes)))
        })
    }

    /// Reads what is left of a plan. `reached` is told how far it is, after each turn.
    fn read_plan(
        &self,
        volume: &VolumeRecord,
        plan: &Plan,
        asked: &Asked,
        job: &Job,
        reached: &mut dyn FnMut(u64),
    ) -> Result<(), ControlError> {
        let piece_bytes_max = self.data().piece_bytes_max(volume);
        let mut at_bytes = asked.at_bytes;
        let mut turns = Turns::new(asked.rate_bytes_s, self.data().backing_waits(&volume.name));
        job.advance(plan.bytes_below(at_bytes), plan.bytes());
        loop {
            if job.cancel_wanted() {
                return Err(ControlError::Stopped);
            }
            if turns.look_is_due() {
                turns.look(self.data().backing_waits(&volume.name), volume.options.latency_goal_ms.saturating_mul(1_000_000));
            }
            let Some(turn_bytes) = turns.turn_bytes() else {
                std::thread::sleep(turns.rest().min(LOOK));
                continue;
            };
            let pieces = plan.pieces(at_bytes, turn_bytes, piece_bytes_max);
            if pieces.is_empty() {
                return Ok(());
            }
            let (count, result) = self.data().warm(volume, &pieces);
            if let Some(last) = pieces[..count].last() {
                at_bytes = last.end_bytes();
                turns.has_read(pieces[..count].iter().map(|piece| piece.length_bytes).sum());
                reached(at_bytes);
                job.advance(plan.bytes_below(at_bytes), plan.bytes());
            }
            result?;
        }
    }

    /// Remembers how far a preload is, or that it is over.
    fn note_preload(&self, volume: Uuid, asked: Option<&Asked>) {
        let text = asked.map(|asked| Note::new(volume, asked).text());
        if let Err(error) = self.memory().store.keep_note(&Note::file_name(volume), text.as_deref()) {
            tracing::warn!("{error}");
        }
    }

    /// Lists what an earlier daemon did not bring to its end, as stopped jobs.
    pub(super) fn remember_preloads(&self) {
        let notes = self.memory().store.notes();
        for (file, text) in notes {
            let Some((uuid, asked)) = Note::read(&text).filter(|(uuid, _)| file == Note::file_name(*uuid)) else {
                tracing::warn!("{file} in the state directory is not understood: what it says of a preload is ignored");
                continue;
            };
            let found = {
                let memory = self.memory();
                let volume = memory.state.volumes.iter().find(|volume| volume.uuid == uuid);
                let ram_bytes = volume.and_then(|volume| memory.state.pool(&volume.pool)).map_or(0, |pool| pool.ram_bytes);
                volume.map(|volume| (volume.name.clone(), ram_bytes))
            };
            let Some((name, ram_bytes)) = found else {
                self.note_preload(uuid, None);
                continue;
            };
            let plan = Plan::of_ranges(asked.ranges.to_vec()).expect("they are a plan's");
            let asked = Asked { at_bytes: plan.back_by(asked.at_bytes, ram_bytes), ..asked };
            let (done_bytes, total_bytes) = (plan.bytes_below(asked.at_bytes), plan.bytes());
            let title = asked.told.clone();
            let job = self.shared.jobs.begin(Work::Preload(asked), &name, uuid);
            job.advance(done_bytes, total_bytes);
            job.finish(Err(ControlError::Stopped));
            let (done, total, id) = (human::bytes(done_bytes), human::bytes(total_bytes), job.id());
            let message =
                format!("the preload of {title} had ended with the daemon, {done} of {total} done: `hearth job resume {id}` goes on");
            self.events().note(Severity::Info, &name, message);
        }
    }
}

fn check_rate(rate_bytes_s: Option<u64>) -> Result<(), ControlError> {
    if rate_bytes_s == Some(0) {
        return Err(ControlError::BadOption {
            option: "--rate",
            problem: "is zero".into(),
            remedy: "write the bytes a second that may be read, for instance 32MiB, or leave it out".into(),
        });
    }
    Ok(())
}

/// When the next turn is, and how much it may read.
struct Turns {
    pace: Pace,
    looked: Instant,
    /// Of all clients so far, at the last look.
    waits: Histogram,
    read_bytes: u64,
    /// With a rate: when what was read has taken its time.
    next: Instant,
}

impl Turns {
    fn new(rate_bytes_s: Option<u64>, waits: Histogram) -> Turns {
        let now = Instant::now();
        Turns { pace: Pace::new(rate_bytes_s), looked: now, waits, read_bytes: 0, next: now }
    }

    fn look_is_due(&self) -> bool {
        self.looked.elapsed() >= PACE_LOOK
    }

    fn look(&mut self, waits: Histogram, goal_ns: u64) {
        let span_ms = self.looked.elapsed().as_millis() as u64;
        let seen = Seen { clients: waits.since(&self.waits), read_bytes: self.read_bytes, span_ms };
        self.pace.look(&seen, goal_ns);
        (self.looked, self.waits, self.read_bytes) = (Instant::now(), waits, 0);
    }

    /// How much may be read now; `None`: nothing yet.
    fn turn_bytes(&self) -> Option<u64> {
        match self.pace.allowed() {
            Allowed::Nothing => None,
            Allowed::All => Some(FULL_TURN_BYTES),
            Allowed::BytesPerSecond(rate) => (self.next <= Instant::now()).then(|| (rate / TURNS_PER_SECOND).clamp(1, FULL_TURN_BYTES)),
        }
    }

    /// How long nothing may be read, as far as that is known.
    fn rest(&self) -> Duration {
        match self.pace.allowed() {
            Allowed::BytesPerSecond(_) => self.next.saturating_duration_since(Instant::now()),
            Allowed::All | Allowed::Nothing => PACE_LOOK.saturating_sub(self.looked.elapsed()),
        }
    }

    fn has_read(&mut self, bytes: u64) {
        self.read_bytes += bytes;
        if let Allowed::BytesPerSecond(rate) = self.pace.allowed() {
            let cost_ns = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
            // A turn that took longer than it may is not made up for.
            let began = self.next.max(Instant::now().checked_sub(Duration::from_secs(1)).unwrap_or(self.next));
            self.next = began + Duration::from_nanos(u64::try_from(cost_ns).unwrap_or(u64::MAX / 4));
        }
    }
}
