//! What differs between the modes, side by side: which way a write takes, and what a request may do with the cache.

use crate::api::Op as OpKind;
use types::{BypassReason, Mode};

/// The way of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Into the store; the backing device becomes current by destage.
    Store,
    /// To the backing device, cached versions made void first; `refill` says whether the new data may enter the cache.
    Backing {
        /// The new data may enter the cache.
        refill: bool,
    },
}

/// What decides the way of a write.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The volume's mode.
    pub mode: Mode,
    /// What is asked.
    pub op: OpKind,
    /// A policy sent it around the cache.
    pub bypass: Option<BypassReason>,
    /// The SSD failed.
    pub degraded: bool,
    /// It would take more of the store than one request may.
    pub too_large_for_store: bool,
}

/// | mode | write | zeroes | discard, hole |
/// |---|---|---|---|
/// | write-back | store | store | backing |
/// | write-through | backing, refill | backing | backing |
/// | write-around, pass-through | backing | backing | backing |
///
/// What a policy sends around the cache, large writes when dirty data nears its limit, what is too large for the store, and
/// everything once the SSD failed, goes to the backing device without refill. A discard or a hole always does: it costs the
/// backing device nothing and the store would have to remember it.
pub fn way(case: Case) -> Way {
    let around = case.bypass.is_some() || case.degraded || case.too_large_for_store;
    match (case.mode, case.op) {
        _ if around => Way::Backing { refill: false },
        (Mode::WriteBack, OpKind::Write | OpKind::WriteZeroes) => Way::Store,
        (Mode::WriteThrough, OpKind::Write) => Way::Backing { refill: true },
        _ => Way::Backing { refill: false },
    }
}

/// Whether reads of this mode may be served from clean cached blocks and put what they read into the cache.
pub fn reads_use_cache(mode: Mode) -> bool {
    mode != Mode::PassThrough
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_write_back_writes_go_to_the_store() {
        for mode in [Mode::WriteThrough, Mode::WriteAround, Mode::WriteBack, Mode::PassThrough] {
            for op in [OpKind::Write, OpKind::WriteZeroes, OpKind::Discard, OpKind::PunchHole] {
                for bypass in [None, Some(BypassReason::Size)] {
                    for (degraded, too_large_for_store) in [(false, false), (true, false), (false, true)] {
                        let to_store = way(Case { mode, op, bypass, degraded, too_large_for_store }) == Way::Store;
                        let expected = mode == Mode::WriteBack && matches!(op, OpKind::Write | OpKind::WriteZeroes);
                        let around = bypass.is_some() || degraded || too_large_for_store;
                        assert_eq!(to_store, expected && !around);
                    }
                }
            }
        }
    }
}
