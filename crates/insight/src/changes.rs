//! What is otherwise than at the look before: objects that came, went, or were rebuilt.
//!
//! DDL that rebuilds a table (`OPTIMIZE`, `VACUUM FULL`, `TRUNCATE`) leaves its name and lays it
//! elsewhere: what was cached of it is of no more use.

use super::objects::is_log;
use applications::discovery::{ApplicationId, Found, Object, ObjectKind};
use std::collections::{BTreeMap, BTreeSet};
use types::{ObjectId, counted};

/// Names told of each kind of change; the others are counted.
const NAMES_MAX: usize = 3;

/// Sentences about what changed from one look to the next, at most four.
#[must_use]
pub fn changes(before: &Found, now: &Found) -> Vec<String> {
    let applications = |found: &Found| found.applications.iter().map(|application| application.id).collect::<BTreeSet<_>>();
    let (were, are) = (applications(before), applications(now));
    let both: BTreeSet<ApplicationId> = were.intersection(&are).copied().collect();
    let (old, new) = (by_id(before, &both), by_id(now, &both));
    let kept = kept(before, now);
    let mut told = Vec::new();
    // Where a look did not get through, what it has not found may be there.
    if now.complete {
        for application in before.applications.iter().filter(|application| !are.contains(&application.id)) {
            let what = application.version.as_deref().unwrap_or(application.engine.title());
            told.push(match &application.instance {
                Some(instance) => format!("{what} in /{instance} is found no more"),
                None => format!("{what} is found no more"),
            });
        }
    }
    told.truncate(1);
    let is_rebuilt = |one: &&Object| {
        let (before, stayed) = kept.get(&one.id).copied().unwrap_or_default();
        // A file that gives back what it was laid out for in advance stays where it is.
        old.contains_key(&one.id) && one.extents > 0 && before > 0 && stayed < before.min(one.bytes.max(1)) / 2
    };
    let rebuilt: Vec<&Object> = new.values().copied().filter(is_rebuilt).collect();
    told.extend(sentence(&rebuilt, "was rebuilt and lies", "were rebuilt and lie", " elsewhere now"));
    // A table that is being rebuilt is away until it has its name again, under which it was known.
    if before.complete && !before.is_rebuilding() {
        let came: Vec<&Object> = new.values().copied().filter(|one| !old.contains_key(&one.id)).collect();
        told.extend(sentence(&came, "is", "are", " new"));
    }
    if now.complete && !now.is_rebuilding() && !before.is_rebuilding() {
        let gone: Vec<&Object> = old.values().copied().filter(|one| !new.contains_key(&one.id)).collect();
        told.extend(sentence(&gone, "is", "are", " gone"));
    }
    told
}

/// The objects of these applications, but for those that come and go by themselves.
fn by_id<'a>(found: &'a Found, of: &BTreeSet<ApplicationId>) -> BTreeMap<ObjectId, &'a Object> {
    let stays = |one: &&Object| of.contains(&one.application) && !is_log(one.kind) && one.kind != ObjectKind::Undo && !one.is_being_built();
    found.objects.iter().filter(stays).map(|one| (one.id, one)).collect()
}

/// For each object of before the bytes that it had, and those of them that it still has.
fn kept(before: &Found, now: &Found) -> BTreeMap<ObjectId, (u64, u64)> {
    let mut kept: BTreeMap<ObjectId, (u64, u64)> = BTreeMap::new();
    for extent in before.map.all() {
        let sums = kept.entry(extent.object).or_default();
        sums.0 += extent.bytes.end - extent.bytes.start;
        for same in now.map.over(extent.bytes.clone()).filter(|other| other.object == extent.object) {
            sums.1 += same.bytes.end.min(extent.bytes.end).saturating_sub(same.bytes.start.max(extent.bytes.start));
        }
    }
    kept
}

/// "shop.a/PRIMARY (1 MiB) is new"; "12 tables (3 GiB) are new: shop.a/PRIMARY, …".
fn sentence(of: &[&Object], one: &str, many: &str, what: &str) -> Option<String> {
    let bytes: u64 = of.iter().map(|object| object.bytes).sum();
    let size = if bytes > 0 { format!(" ({})", api::human::bytes(bytes)) } else { String::new() };
    if let [object] = of {
        return Some(format!("{}{size} {one}{what}", object.name));
    }
    let mut largest = of.to_vec();
    largest.sort_by(|one, other| other.bytes.cmp(&one.bytes).then_with(|| one.name.cmp(&other.name)));
    let noun = if of.iter().all(|object| object.kind == ObjectKind::Table) { "table" } else { "object" };
    let mut names: Vec<&str> = largest.iter().take(NAMES_MAX).map(|object| object.name.as_str()).collect();
    if of.len() > NAMES_MAX {
        names.push("…");
    }
    (!of.is_empty()).then(|| format!("{}{size} {many}{what}: {}", counted(of.len() as u64, noun), names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use applications::Engine;
    use applications::discovery::{Application, Evidence, Key};

    const MIB: u64 = 1 << 20;

    fn empty() -> Found {
        let mut found = Found::default();
        found.complete = true;
        found
    }

    /// A volume with one server, and objects: number, name, kind, and where on the volume, in MiB.
    fn found(objects: &[(u32, &str, ObjectKind, u64, u64)]) -> Found {
        let application = Application {
            id: ApplicationId(1),
            engine: Engine::Innodb,
            instance: Some("var/lib/mysql".into()),
            start_bytes: 0,
            file_system: [0; 16],
            version: Some("MySQL 8.0.36".into()),
            evidence: Evidence::default(),
        };
        let mut found = empty();
        found.applications.push(application);
        for (id, name, kind, at, mib) in objects {
            let bytes = at * MIB..(at + mib) * MIB;
            found.objects.push(Object {
                id: ObjectId(*id),
                application: ApplicationId(1),
                database: None,
                kind: *kind,
                name: (*name).into(),
                key: Key::Space(*id),
                within: None,
                bytes: bytes.end - bytes.start,
                extents: 1,
                path: String::new(),
                encrypted: false,
                evidence: Evidence::default(),
            });
            found.map.add(&bytes, ObjectId(*id), 0);
        }
        found
    }

    use ObjectKind::{Index, Redo, Table};

    #[test]
    fn a_table_that_lies_elsewhere_was_rebuilt() {
        let before = found(&[(1, "a", Table, 0, 8), (2, "b", Table, 8, 8), (3, "redo", Redo, 40, 4)]);
        assert_eq!(changes(&before, &before), Vec::<String>::new());
        // `a` has grown, and its end moved; `b` has moved; logs come and go.
        let mut now = found(&[(1, "a", Table, 0, 6), (2, "b", Table, 20, 4), (3, "redo", Redo, 60, 4)]);
        now.map.add(&(90 * MIB..99 * MIB), ObjectId(1), 6 * MIB);
        assert_eq!(changes(&before, &now), ["b (4 MiB) was rebuilt and lies elsewhere now"]);
    }

    #[test]
    fn a_file_that_shrinks_where_it_is_was_not_rebuilt() {
        let before = found(&[(1, "a", Table, 0, 8)]);
        assert!(changes(&before, &found(&[(1, "a", Table, 0, 1)])).is_empty());
        assert_eq!(changes(&before, &found(&[(1, "a", Table, 20, 1)])), ["a (1 MiB) was rebuilt and lies elsewhere now"]);
    }

    #[test]
    fn a_copy_that_is_being_built_is_no_table_that_is_new() {
        let before = found(&[(1, "a", Table, 0, 8)]);
        let now = found(&[(1, "a", Table, 0, 8), (2, "a/#sql-alter-1-2/PRIMARY", Table, 20, 8)]);
        assert!(changes(&before, &now).is_empty() && changes(&now, &before).is_empty());
    }

    #[test]
    fn many_are_summed_up() {
        let names: Vec<String> = (0..12).map(|n| format!("t{n}")).collect();
        let tables = |from: u64| {
            names.iter().zip(0..).map(move |(name, n)| (n + 1, name.as_str(), Table, from + u64::from(n) * 2, u64::from(n % 3)))
        };
        let (before, now): (Vec<_>, Vec<_>) = (tables(0).collect(), tables(1000).collect());
        assert_eq!(changes(&found(&before), &found(&now)), ["8 tables (12 MiB) were rebuilt and lie elsewhere now: t11, t2, t5, …"]);
    }

    #[test]
    fn what_came_and_went_is_told_where_looks_were_complete() {
        let before = found(&[(1, "a", Table, 0, 8), (2, "b", Table, 8, 8)]);
        let mut now = found(&[(1, "a", Table, 0, 8), (4, "c", Table, 20, 8), (5, "c/ix", Index, 28, 1)]);
        assert_eq!(changes(&before, &now), ["2 objects (9 MiB) are new: c, c/ix", "b (8 MiB) is gone"]);
        now.complete = false;
        assert_eq!(changes(&before, &now), ["2 objects (9 MiB) are new: c, c/ix"]);
        assert_eq!(changes(&now, &before), ["2 objects (9 MiB) are gone: c, c/ix"], "b may have been there");
    }

    #[test]
    fn a_server_that_is_gone_is_one_sentence() {
        let before = found(&[(1, "a", Table, 0, 8), (2, "b", Table, 8, 8)]);
        assert_eq!(changes(&before, &empty()), ["MySQL 8.0.36 in /var/lib/mysql is found no more"]);
        assert!(changes(&empty(), &before).is_empty(), "that it was found is told by itself");
    }
}
