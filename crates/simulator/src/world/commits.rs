//! A commit costs what the SSD costs: the answer to a flush depends on the backing device only for what clients wrote there past the log.
//!
//! Now and then, when a flush comes to a volume whose backing device owes clients nothing, that device answers nothing any more until the flush is
//! answered. If the flush needs it all the same (for what destage has written, say), nothing goes on, and that is found.

use engine::api::{Io, IoKind, Op, Target};

use super::{Step, World, failed};

/// A device that answers nothing looks again after this long.
const LOOK_NS: u64 = 1_000_000;
/// With nothing on its way elsewhere for this long, the flush waits for the device.
const STUCK_NS: u64 = 1_000_000_000;

/// Of one volume.
#[derive(Clone, Default)]
struct Debt {
    /// I/Os of clients that changed the backing device, counted as they begin.
    past: u64,
    /// So many of them were covered by a flush that was answered.
    flushed: u64,
    /// The flush for which the device answers nothing, and since when nothing else happened.
    held_for: Option<(u64, u64)>,
}

/// See the module.
#[derive(Default)]
pub struct Commits(Vec<Debt>);

impl Commits {
    /// Of a life that begins: what the one before has written was flushed by its start.
    pub fn new(volumes: usize) -> Commits {
        Commits(vec![Debt::default(); volumes])
    }

    /// An I/O begins. Destage is no client.
    pub fn io_begins(&mut self, io: &Io) {
        let changes = matches!(io.kind, IoKind::Write { .. } | IoKind::WriteZeroes { .. } | IoKind::Discard);
        if let Target::Backing(volume) = io.target
            && changes
            && !io.background
        {
            self.0[usize::from(volume.0)].past += 1;
        }
    }

    /// What a flush will have covered when it is answered, if no other request of the volume is under way.
    pub fn covers(&self, volume: u16) -> u64 {
        self.0[usize::from(volume)].past
    }

    /// A flush that had no company was answered.
    pub fn covered(&mut self, volume: u16, past: u64) {
        let debt = &mut self.0[usize::from(volume)];
        if debt.past == past {
            debt.flushed = past;
        }
    }

    /// The flush was answered.
    pub fn answered(&mut self, volume: u16, request: u64) {
        let debt = &mut self.0[usize::from(volume)];
        debt.held_for = debt.held_for.filter(|(held, _)| *held != request);
    }
}

impl World<'_> {
    /// A flush comes: perhaps its volume's backing device answers nothing until it is answered.
    pub fn maybe_hold_backing(&mut self, volume: u16, op: Op, request: u64) {
        // Drawn from what there is, so that other runs are what they were.
        let looks = (self.plan.seed / 7).is_multiple_of(3) && request.is_multiple_of(2);
        // What has no log flushes its devices, and nothing else.
        let has_log = self.builder.uses_ssd();
        let sound = has_log && self.safety && !self.ssd_failed && self.plan.shortage_ns == 0 && !self.plan.ssd_leaves;
        if op != Op::Flush || !looks || !sound {
            return;
        }
        let now = self.queue.now_ns();
        let debt = &mut self.commits.0[usize::from(volume)];
        if debt.past == debt.flushed && debt.held_for.is_none() {
            debt.held_for = Some((request, now));
            self.tell(format!("backing {volume} answers nothing until request {request} is answered"));
        }
    }

    /// Whether the device answers nothing now. Fails if a flush waits for it.
    pub fn is_held(&mut self, device: usize) -> Result<bool, super::Failure> {
        let Some(volume) = device.checked_sub(1) else { return Ok(false) };
        let Some((request, since_ns)) = self.commits.0[volume].held_for else { return Ok(false) };
        if self.ssd_failed || !self.safety {
            // What the log holds may have to go home now.
            self.commits.0[volume].held_for = None;
            return Ok(false);
        }
        let now = self.queue.now_ns();
        let busy = self.devices[0].flights().next().is_some() || self.channels.values().any(|cargo| !cargo.is_empty());
        if busy {
            self.commits.0[volume].held_for = Some((request, now));
        } else if now > since_ns + STUCK_NS {
            let inside = self.system_mut().describe();
            return Err(failed(format!(
                "flush {request} of volume {volume} waits for the backing device, where clients wrote nothing that it has to cover; {inside}"
            )));
        }
        Ok(true)
    }

    /// An answer of a device that answers nothing comes later.
    pub fn io_done_unless_held(&mut self, device: usize, token: u64) -> Step {
        if self.is_held(device)? {
            self.queue.after(LOOK_NS, super::Happening::IoDone(device, token));
        } else {
            self.io_done(device, token);
        }
        Ok(())
    }
}
