//! One line in the log for each who is refused, and few for a flood.

use shares::Seldom;
use std::sync::{Mutex, PoisonError};

/// The same refusal is told at most this often.
const TELL_EVERY_NS: u64 = 10_000_000_000;
/// Different refusals that are told in that time. Those beyond share one line.
const KINDS_MAX: usize = 32;

/// What was told lately.
#[derive(Default)]
pub(crate) struct Refusals(Mutex<Told>);

#[derive(Default)]
struct Told {
    kinds: Vec<(String, Seldom)>,
    begun_ns: u64,
    others: Option<Seldom>,
}

impl Refusals {
    /// Somebody was refused. Gives the line that is due, if one is.
    fn line(&self, sentence: &str, now_ns: u64) -> Option<String> {
        let told = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if now_ns.saturating_sub(told.begun_ns) >= TELL_EVERY_NS && told.kinds.len() >= KINDS_MAX {
            told.kinds.clear();
        }
        if told.kinds.is_empty() {
            told.begun_ns = now_ns;
        }
        if let Some((_, seldom)) = told.kinds.iter_mut().find(|(known, _)| known == sentence) {
            let times = seldom.happened(now_ns)?;
            return Some(if times > 1 { format!("{sentence} ({times} times)") } else { sentence.to_owned() });
        }
        if told.kinds.len() < KINDS_MAX {
            let mut seldom = Seldom::every(TELL_EVERY_NS);
            seldom.happened(now_ns);
            told.kinds.push((sentence.to_owned(), seldom));
            return Some(sentence.to_owned());
        }
        let times = told.others.get_or_insert(Seldom::every(TELL_EVERY_NS)).happened(now_ns)?;
        Some(format!("{sentence}, and {} others were refused", times - 1))
    }

    /// Tells of it in the log.
    pub(crate) fn tell(&self, sentence: &str, now_ns: u64) {
        if let Some(line) = self.line(sentence, now_ns) {
            tracing::warn!("{line}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everyone_is_told_once_and_a_flood_in_few_lines() {
        let refusals = Refusals::default();
        assert_eq!(refusals.line("a", 1).as_deref(), Some("a"));
        assert_eq!(refusals.line("b", 1).as_deref(), Some("b"));
        assert_eq!(refusals.line("a", 2), None);
        assert_eq!(refusals.line("a", 2 + TELL_EVERY_NS).as_deref(), Some("a (2 times)"));
        let lines = (0..10_000).filter(|number| refusals.line(&format!("stranger {number}"), 3 + TELL_EVERY_NS).is_some()).count();
        assert!((KINDS_MAX - 2..=2 * KINDS_MAX).contains(&lines), "{lines} lines");
        assert!(refusals.line("c", 4 + 2 * TELL_EVERY_NS).is_some(), "later there is room again");
    }
}
