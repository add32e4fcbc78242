//! Notices that come in floods: a failing SSD can report a thousand blocks a second. The first few of a kind are reported one by one, the
//! rest of the minute as one sentence.

use std::collections::BTreeMap;

/// How many of a kind are reported one by one in a window.
const TOLD_EACH: u64 = 5;
/// How long a window is.
const WINDOW_MS: u64 = 60_000;

/// What came lately, by object and kind.
#[derive(Debug, Default)]
pub struct Repeats {
    windows: BTreeMap<(String, &'static str), Window>,
}

#[derive(Debug)]
struct Window {
    begun_ms: u64,
    count: u64,
}

impl Repeats {
    /// Notes one; true if it is to be told by itself.
    pub fn note(&mut self, object: &str, kind: &'static str, now_ms: u64) -> bool {
        let window = self.windows.entry((object.to_string(), kind)).or_insert(Window { begun_ms: now_ms, count: 0 });
        window.count += 1;
        window.count <= TOLD_EACH
    }

    /// The windows that have ended: object, kind, and how many were not told.
    pub fn ended(&mut self, now_ms: u64) -> Vec<(String, &'static str, u64)> {
        let mut ended = Vec::new();
        self.windows.retain(|(object, kind), window| {
            let over = now_ms.saturating_sub(window.begun_ms) >= WINDOW_MS || now_ms < window.begun_ms;
            if over && window.count > TOLD_EACH {
                ended.push((object.clone(), *kind, window.count - TOLD_EACH));
            }
            !over
        });
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_told_by_its_first_and_by_a_count() {
        let mut repeats = Repeats::default();
        let told = (0..100).filter(|_| repeats.note("v", "mismatch", 1000)).count() as u64;
        assert_eq!(told, TOLD_EACH);
        assert!(repeats.note("w", "mismatch", 1000), "another object");
        assert!(repeats.note("v", "destage", 1000), "another kind");
        assert_eq!(repeats.ended(1000 + WINDOW_MS - 1), []);
        assert_eq!(repeats.ended(1000 + WINDOW_MS), [("v".to_string(), "mismatch", 95)]);
        assert_eq!(repeats.ended(1000 + 2 * WINDOW_MS), []);
        assert!(repeats.note("v", "mismatch", 1000 + 2 * WINDOW_MS), "a new window");
    }
}
