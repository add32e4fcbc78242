//! Pages that do not fit what was found: a file grew, was made, or took the place of another.

use applications::PageKind;
use applications::discovery::{FORK_BYTES, Found, ObjectKind};
use runtime::PageSeen;
use types::ObjectId;

/// So many pages that contradict the map ask for a look at once.
const PAGES_MIN: u64 = 16;
/// Fewer do after so long: a small table has no more, and what made it is over by then.
const FEW_MS: u64 = 10_000;
/// Of so many of them the place is remembered: the first ones, and the latest.
const PLACES_MAX: usize = PAGES_MIN as usize;
/// A look that explains none of them makes the next one wait twice as long, up to so many times: they may lie in
/// the image of a virtual machine, where no look finds anything.
const FRUITLESS_MAX: u32 = 5;

/// Where a page lies that does not fit, and what was known to lie there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Misfit {
    offset_bytes: u64,
    known: Option<(ObjectId, u64)>,
}

impl Misfit {
    fn is_explained(&self, found: &Found) -> bool {
        found.at(self.offset_bytes) != self.known
    }
}

/// See the module.
#[derive(Default, Debug)]
pub struct Contradictions {
    count: u64,
    /// When the first of them came.
    since_ms: u64,
    /// Where the first and the latest of them lie, since the last look began, and what looks before have not explained.
    places: Vec<Misfit>,
    /// What the look under way is to explain, and how many pages that stands for.
    asked: Vec<Misfit>,
    asked_count: u64,
    /// Looks in a row that explained nothing.
    fruitless: u32,
    /// Of the last page without an object's name that has another number than its place: its object, and how far they are apart.
    apart: Option<(ObjectId, i64)>,
}

impl Contradictions {
    /// A page lies at a byte of the volume where it does not belong, as far as is known.
    pub fn add(&mut self, found: &Found, offset_bytes: u64, now_ms: u64) {
        if self.count == 0 {
            self.since_ms = now_ms;
        }
        self.count += 1;
        self.remember(Misfit { offset_bytes, known: found.at(offset_bytes) });
    }

    fn remember(&mut self, place: Misfit) {
        if self.places.contains(&place) {
            return;
        }
        if self.places.len() == PLACES_MAX {
            // A file that grows all the while lies behind what the look under way has seen of it.
            self.places.remove(PLACES_MAX / 2);
        }
        self.places.push(place);
    }

    /// Whether there are enough of them for a look, or have been some for long.
    pub fn ask(&self, now_ms: u64) -> bool {
        self.count >= PAGES_MIN || self.count > 0 && now_ms.saturating_sub(self.since_ms) >= FEW_MS
    }

    /// How long a look waits after the last one, of one that waits so long when looks find something.
    pub fn pause_ms(&self, least_ms: u64) -> u64 {
        least_ms << self.fruitless.min(FRUITLESS_MAX)
    }

    /// A look begins: what comes from now on is counted anew.
    pub fn look_begins(&mut self) {
        (self.asked_count, self.asked) = (std::mem::take(&mut self.count), std::mem::take(&mut self.places));
    }

    /// A look has found something. What still does not fit asks for another, be it from before the look or from meanwhile: the file system
    /// may not have written yet where its files lie. What many looks in a row did not explain asks no more by itself.
    pub fn looked(&mut self, found: &Found) {
        let asked = (std::mem::take(&mut self.asked), std::mem::take(&mut self.asked_count));
        let came = (std::mem::take(&mut self.places), std::mem::take(&mut self.count));
        if !asked.0.is_empty() {
            let is_explained = asked.0.iter().any(|place| place.is_explained(found));
            self.fruitless = if is_explained { 0 } else { self.fruitless.saturating_add(1) };
        }
        let asks_again = self.fruitless < FRUITLESS_MAX;
        for (places, count) in [Some(asked).filter(|_| asks_again), Some(came)].into_iter().flatten() {
            let all = places.len() as u64;
            let left: Vec<Misfit> = places.into_iter().filter(|place| !place.is_explained(found)).collect();
            // The places stand for all that came.
            self.count += (count * left.len() as u64).checked_div(all).unwrap_or(0);
            left.into_iter().for_each(|place| self.remember(place));
        }
    }

    /// A page was seen that does not say what it is of, as those of PostgreSQL: whether it fits what was found there.
    pub fn of_unnamed(&mut self, found: &Found, offset_bytes: u64, page: &PageSeen) -> bool {
        let Some((id, at_bytes)) = found.at(offset_bytes) else { return false };
        let Some(there) = found.object(id) else { return false };
        if at_bytes >= FORK_BYTES || !matches!(there.kind, ObjectKind::Table | ObjectKind::Index | ObjectKind::Toast) {
            return true;
        }
        if found.application(there.application).is_none_or(|application| application.engine.facts().pages_name_their_object) {
            return false;
        }
        let kind = page.kind & 0xff;
        let (is_index, is_table) = (kind == PageKind::Index as u16, kind == PageKind::Table as u16);
        if is_index && there.kind != ObjectKind::Index || is_table && there.kind == ObjectKind::Index {
            return false;
        }
        let number = at_bytes >> page.size_log2.min(16);
        if !is_table || page.page == u32::MAX || u64::from(page.page) == number {
            return true;
        }
        // Rows that were updated name the page of their successor, a different one each. A file in the place of another is apart from
        // it by the same number all along.
        let apart = Some((id, i64::from(page.page) - number as i64));
        std::mem::replace(&mut self.apart, apart) != apart
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use applications::Engine;
    use applications::discovery::{Application, ApplicationId, Discovery, Evidence, Key, Object};
    use std::ops::Range;

    const PAGE: u64 = 8192;

    /// A PostgreSQL with a table in the first MiB and an index in the second.
    fn found(more: &[(Range<u64>, u32)]) -> Found {
        let mut found = Discovery::new(0).finish();
        found.applications.push(Application {
            id: ApplicationId(1),
            engine: Engine::Postgres,
            instance: Some("main".into()),
            start_bytes: 0,
            file_system: [0; 16],
            version: None,
            evidence: Evidence::default(),
        });
        let kinds = [(1, ObjectKind::Table), (2, ObjectKind::Index), (3, ObjectKind::Table)];
        for (number, kind) in kinds {
            found.objects.push(Object {
                id: ObjectId(number),
                application: ApplicationId(1),
                database: None,
                kind,
                name: format!("t{number}"),
                key: Key::Relation { database: 5, file: number },
                within: None,
                bytes: 1 << 20,
                extents: 1,
                path: String::new(),
                encrypted: false,
                evidence: Evidence::default(),
            });
        }
        found.index();
        for (bytes, number) in [(0..1 << 20, 1), (1 << 20..2 << 20, 2)].iter().chain(more) {
            found.map.add(bytes, ObjectId(*number), 0);
        }
        found
    }

    fn page(kind: PageKind, number: u32) -> PageSeen {
        let neighbours = (u32::MAX, u32::MAX);
        PageSeen { object: 0, page: number, neighbours, kind: 2 << 8 | kind as u16, level: 0, is_leaf: false, is_log: false, size_log2: 13 }
    }

    #[test]
    fn pages_of_postgresql_fit_by_their_kind_and_their_numbers() {
        let (mut contradictions, found) = (Contradictions::default(), found(&[]));
        let mut fits = |offset_bytes, page| contradictions.of_unnamed(&found, offset_bytes, &page);
        assert!(fits(3 * PAGE, page(PageKind::Table, 3)) && fits(3 * PAGE, page(PageKind::Table, u32::MAX)));
        assert!(fits((1 << 20) + PAGE, page(PageKind::Index, u32::MAX)) && fits(5 * PAGE, page(PageKind::Space, 77)));
        assert!(!fits(5 * PAGE, page(PageKind::Index, u32::MAX)) && !fits(1 << 20, page(PageKind::Table, 0)));
        assert!(!fits(5 << 20, page(PageKind::Table, 0)), "nothing is known to lie there");
        // Updated rows, each with a successor of its own; and a file in the place of another.
        assert!((0..100).all(|number: u32| fits(u64::from(number) * PAGE, page(PageKind::Table, number * 7 % 101 + 200))));
        let other: Vec<bool> = (0..20).map(|number| fits(u64::from(number) * PAGE, page(PageKind::Table, number + 500))).collect();
        assert_eq!(other.iter().filter(|fits| !**fits).count(), 19);
    }

    #[test]
    fn looks_that_explain_nothing_wait_longer_and_what_came_meanwhile_is_kept() {
        let (mut contradictions, before) = (Contradictions::default(), found(&[]));
        let contradict = |contradictions: &mut Contradictions, from: u64| {
            (0..PAGES_MIN).for_each(|page| contradictions.add(&before, from + page * PAGE, 0));
        };
        contradict(&mut contradictions, 4 << 20);
        for looks in 1..10 {
            assert!(contradictions.ask(0));
            contradictions.look_begins();
            contradict(&mut contradictions, 4 << 20);
            contradictions.looked(&before);
            assert_eq!(contradictions.pause_ms(10), 10 << looks.min(FRUITLESS_MAX));
        }
        // A look finds the file; another was made while it was under way.
        contradictions.look_begins();
        contradict(&mut contradictions, 4 << 20);
        contradictions.looked(&found(&[(4 << 20..5 << 20, 3)]));
        assert!(!contradictions.ask(0) && contradictions.pause_ms(10) == 10);
        contradictions.look_begins();
        contradict(&mut contradictions, 8 << 20);
        contradictions.looked(&found(&[(4 << 20..5 << 20, 3)]));
        assert!(contradictions.ask(0) && contradictions.pause_ms(10) == 10);
    }

    #[test]
    fn few_pages_ask_when_nothing_more_comes() {
        let (mut contradictions, before) = (Contradictions::default(), found(&[]));
        contradictions.add(&before, 4 << 20, 5_000);
        contradictions.add(&before, (4 << 20) + PAGE, 9_000);
        assert!(!contradictions.ask(5_000 + FEW_MS - 1) && contradictions.ask(5_000 + FEW_MS));
        contradictions.look_begins();
        contradictions.looked(&found(&[(4 << 20..5 << 20, 3)]));
        assert!(!contradictions.ask(u64::MAX), "all is explained");
        contradictions.add(&before, 8 << 20, 40_000);
        assert!(!contradictions.ask(49_999) && contradictions.ask(50_000));
    }

    /// A table that is being filled: the look sees its first MiB, and most of its pages come while it is under way.
    #[test]
    fn a_file_that_grows_during_a_look_is_looked_at_again() {
        let (mut contradictions, before) = (Contradictions::default(), found(&[]));
        let grows = |contradictions: &mut Contradictions, pages: Range<u64>| {
            pages.for_each(|page| contradictions.add(&before, (4 << 20) + page * PAGE, 0));
        };
        grows(&mut contradictions, 0..32);
        contradictions.look_begins();
        grows(&mut contradictions, 32..5000);
        contradictions.looked(&found(&[(4 << 20..5 << 20, 3)]));
        assert!(contradictions.ask(0) && contradictions.pause_ms(10) == 10);
        // All of it is found, and nothing is left to ask for.
        contradictions.look_begins();
        contradictions.looked(&found(&[(4 << 20..64 << 20, 3)]));
        assert!(!contradictions.ask(0));
    }

    /// Two tables: the file system tells of the second one later. And pages that no look explains do not ask on and on.
    #[test]
    fn what_a_look_does_not_explain_is_asked_for_again_and_not_for_ever() {
        let (mut contradictions, before) = (Contradictions::default(), found(&[]));
        let first = found(&[(4 << 20..5 << 20, 3)]);
        (0..2 * PAGES_MIN).for_each(|page| contradictions.add(&before, (4 << 20) + page * PAGE, 0));
        (0..2 * PAGES_MIN).for_each(|page| contradictions.add(&before, (8 << 20) + page * PAGE, 0));
        contradictions.look_begins();
        contradictions.looked(&first);
        for looks in 1..=FRUITLESS_MAX {
            assert!(contradictions.ask(0), "the second table, after {looks} looks");
            contradictions.look_begins();
            contradictions.looked(&first);
            assert_eq!(contradictions.pause_ms(10), 10 << looks);
        }
        assert!(!contradictions.ask(0), "nothing new has come");
        (0..PAGES_MIN).for_each(|page| contradictions.add(&first, (8 << 20) + page * PAGE, 0));
        assert!(contradictions.ask(0));
    }
}
