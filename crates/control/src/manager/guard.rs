//! A mistake of hearth's own in the start of one pool is that pool's affair: it is `failed`, and all others are served.
//!
//! Only what stands beside the data path may be guarded so. A reactor that panics ends the process: what it owns is in the kernel's hands.

use super::{Manager, Trouble};
use api::error::ControlError;
use api::{Health, Severity};
use records::state::{PoolRecord, VolumeRecord};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Makes a panic in `work` an error that says what was being done.
pub(super) fn guarded<T>(doing: &str, work: impl FnOnce() -> Result<T, ControlError>) -> Result<T, ControlError> {
    // Whoever finds a lock poisoned goes on with what it holds: all are held for single changes only.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let problem = format!("a mistake in hearth ended {doing}: {}", said(&*panic));
        Err(ControlError::DataPath(problem, "report it with the lines of the log before it, and restart the daemon to try again".into()))
    })
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("see the log")
}

impl Manager {
    /// What became of a pool whose start had such an end somewhere on its way.
    pub(super) fn fail_pool(&self, pool: &PoolRecord, error: &ControlError) {
        self.events().note(Severity::Error, &pool.name, format!("the pool does not start: {}", error.reason()));
        let trouble = Some(Trouble::from(error));
        self.set_live_pool(&pool.name, |live| (live.health, live.trouble) = (Health::Failed, trouble));
        let (volumes, served): (Vec<VolumeRecord>, Vec<String>) = {
            let memory = self.memory();
            let running = memory.volumes.iter().filter(|(_, live)| live.health == Health::Running).map(|(name, _)| name.clone());
            (memory.state.volumes_of(&pool.name).cloned().collect(), running.collect())
        };
        for volume in volumes.iter().filter(|volume| !volume.rests() && !served.contains(&volume.name)) {
            self.fail_volume(volume, error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_sentence() {
        assert_eq!(guarded("the start", || Ok(5)).expect("nothing happened"), 5);
        let shard = 7;
        let error = guarded::<()>("the start", || panic!("shard {shard} is none")).expect_err("it panicked");
        assert_eq!(error.reason(), "a mistake in hearth ended the start: shard 7 is none");
        let error = guarded::<()>("the start", || panic!("plain")).expect_err("it panicked");
        assert_eq!(error.reason(), "a mistake in hearth ended the start: plain");
    }
}
