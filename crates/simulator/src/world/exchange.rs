//! The wrong SSD at a start (F7): an older copy of it, as a restored backup or a mirror half that was away would be, a shorter one, or the one
//! that the pool was on before it was replaced. All must be refused, with nothing written; then the right one comes back.

use super::{Step, World, failed};
use crate::coverage::{Fault, Phase};
use crate::disk::blocking::Blocking;
use crate::disk::faults::Faults;
use crate::disk::media::Media;
use crate::disk::{Disk, Pace};

/// SSDs that are not the pool's any more.
#[derive(Default)]
pub(crate) struct OtherSsds {
    /// The SSD as it was in an earlier session, and which.
    pub older: Option<(u64, Vec<u8>)>,
    /// The SSD that the pool was on before, as it was when it was given up.
    pub former: Option<Vec<u8>>,
}

impl World<'_> {
    /// Perhaps tries a start with an SSD that is not the right one.
    pub fn try_wrong_ssd(&mut self) -> Step {
        if !self.safety || !self.builder.uses_ssd() || self.oracle.life() == 0 || !self.prng.percent(self.plan.exchange_percent) {
            return Ok(());
        }
        let older = self.other_ssds.older.as_ref().filter(|(session, _)| *session < self.host.session).map(|(_, image)| image.clone());
        let (what, image) = match older {
            Some(image) if self.prng.percent(50) => ("an older copy of the SSD", image),
            _ if self.other_ssds.former.is_some() && self.prng.percent(50) => {
                ("the SSD that was replaced", self.other_ssds.former.clone().expect("looked"))
            }
            _ => {
                let whole = self.devices[0].media.snapshot();
                // The pool may have given three quarters of it away.
                let end = whole.len() as u64 / 4096 / if self.plan.resizes { 4 } else { 1 };
                ("a shorter SSD", whole[..self.prng.between(end / 2, end) as usize * 4096].to_vec())
            }
        };
        let mut media = Media::new(image.len() as u64, false);
        media.lay_out().copy_from_slice(&image);
        let mut wrong = Disk::new(media, Faults::none(), Pace { io_ns: 1, flush_ns: 1, early_per_10k: 0 }, true);
        let now = self.queue.now_ns();
        let mut ssd = Blocking::new(&mut wrong, &mut self.disk_prng, None);
        let result = self.builder.start(self.plan, &self.host, now, &mut ssd, &self.pages);
        self.stats.coverage.hit(Fault::Exchanged, Phase::Recovery);
        match result {
            Ok(_) => Err(failed(format!("a start took {what} for the right one"))),
            Err(refusal) => {
                self.tell(format!("{what} is refused: {}", refusal.reason));
                if wrong.media.snapshot() == image { Ok(()) } else { Err(failed(format!("{what} was refused and written to"))) }
            }
        }
    }

    /// A session has begun: the host records it; sometimes the SSD is copied as it is.
    pub fn session_began(&mut self, session: u64) {
        self.host.session = session;
        if self.plan.exchange_percent > 0 && self.other_ssds.older.is_none() {
            self.other_ssds.older = Some((session, self.devices[0].media.snapshot()));
        }
    }
}
