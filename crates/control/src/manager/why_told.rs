//! The sentences of `why`: what an administrator wants to know of a range, in a few words.

use api::human;
use api::options::Options;
use datapath::looking::{Explained, touches};
use engine::api::{Op, Outcome};
use engine::trail::Recent;
use records::state::VolumeRecord;
use types::{Admission, BLOCK_BYTES, BLOCK_SECTORS, BypassReason, Mode};

/// What was asked, of which volume.
pub(super) struct Asked<'a> {
    pub(super) record: &'a VolumeRecord,
    /// Its pool's SSD is lost.
    pub(super) degraded: bool,
    pub(super) first_block: u64,
    pub(super) blocks: u64,
}

/// "3 s ago", "just now".
pub(super) fn ago(ns: u64) -> String {
    match ns {
        0..2_000_000 => "just now".into(),
        2_000_000..1_000_000_000 => format!("{} ms ago", ns / 1_000_000),
        _ => format!("{} ago", human::seconds(ns / 1_000_000_000)),
    }
}

/// The answer: one to five sentences.
pub(super) fn verdict(asked: &Asked, explained: &Explained) -> Vec<String> {
    let name = &asked.record.name;
    if asked.degraded || !explained.has_cache {
        let without = format!("The volume is running without its cache: `hearth volume show {name}` shows the reason and what to do.");
        // What only the failed SSD has is still read from there, and goes home.
        return [Some(without), dirty(asked, explained)].into_iter().flatten().collect();
    }
    let on_ssd = explained.blocks.iter().filter(|facts| facts.on_ssd.is_some()).count() as u64;
    let mut sentences = vec![state(asked, explained, on_ssd)];
    sentences.extend(ram_alone(explained, asked.record.options.mode));
    sentences.extend(dirty(asked, explained));
    if (explained.blocks.len() as u64) < asked.blocks {
        sentences.push(why_not(asked, explained));
    } else if let Some(latest) = explained.recent.iter().find(|recent| touches(recent, asked.first_block, asked.blocks)) {
        sentences.push(format!("The latest {} there, {}: {}.", op_name(latest.op), ago(latest.ago_ns), what_came_of(asked.record, latest)));
    }
    sentences
}

/// Whether a request touched something of what was asked for that is not cached.
fn touches_uncached(asked: &Asked, explained: &Explained, recent: &Recent) -> bool {
    let end = (recent.start_sector + u64::from(recent.sectors)).div_ceil(BLOCK_SECTORS);
    let (from, to) = ((recent.start_sector / BLOCK_SECTORS).max(asked.first_block), end.min(asked.first_block + asked.blocks));
    let cached_before = |block: u64| explained.blocks.partition_point(|facts| facts.block < block) as u64;
    from < to && cached_before(to) - cached_before(from) < to - from
}

/// "1 block", "3 blocks".
fn counted(blocks: u64) -> types::Counted<'static> {
    types::counted(blocks, "block")
}

fn op_name(op: Op) -> &'static str {
    match op {
        Op::Read | Op::Flush => "read",
        Op::Write => "write",
        Op::WriteZeroes => "writing of zeroes",
        Op::Discard | Op::PunchHole => "discard",
    }
}

/// How much is cached, and where.
fn state(asked: &Asked, explained: &Explained, on_ssd: u64) -> String {
    let both = explained.blocks.iter().filter(|facts| facts.in_ram && facts.on_ssd.is_some()).count() as u64;
    let whole = human::bytes(asked.blocks * BLOCK_BYTES);
    match (asked.blocks, on_ssd) {
        (1, 0) if explained.blocks.is_empty() => "This block is not cached.".into(),
        (1, 0) => "This block is cached in RAM, not on the SSD.".into(),
        (_, 0) if explained.blocks.is_empty() => "Nothing of this range is cached.".into(),
        (_, 0) => format!("Of {} ({whole}), none is cached on the SSD.", counted(asked.blocks)),
        (1, _) if both == 1 => "This block is cached on the SSD, and in RAM too.".into(),
        (1, _) => "This block is cached on the SSD.".into(),
        (all, some) => {
            let in_ram = match both {
                0 => String::new(),
                1 => ", 1 of them in RAM too".into(),
                _ => format!(", {both} of them in RAM too"),
            };
            let how_many = if some == all { format!("All {all} blocks ({whole}) are") } else { part(some, all, &whole) };
            format!("{how_many} cached on the SSD{in_ram}.")
        }
    }
}

fn part(some: u64, all: u64, whole: &str) -> String {
    let (bytes, are) = (human::bytes(some * BLOCK_BYTES), if some == 1 { "is" } else { "are" });
    format!("{some} of {all} blocks ({bytes} of {whole}) {are}")
}

/// Blocks that the SSD does not have.
fn ram_alone(explained: &Explained, mode: Mode) -> Option<String> {
    let alone = explained.blocks.iter().filter(|facts| facts.in_ram && facts.on_ssd.is_none()).count() as u64;
    let (are, them, go) = if alone == 1 { ("is", "it leaves", "goes") } else { ("are", "they leave", "go") };
    match (alone, mode) {
        (0, _) => None,
        (_, Mode::PassThrough) => Some(format!("{} {are} left in RAM from another mode.", counted(alone))),
        _ => Some(format!("{} {are} in RAM only, and {go} to the SSD when {them} RAM, if reused by then.", counted(alone))),
    }
}

/// What the backing device lacks, and when it will have it.
fn dirty(asked: &Asked, explained: &Explained) -> Option<String> {
    let dirty = || explained.blocks.iter().filter(|facts| facts.on_ssd.is_some_and(|kept| kept.dirty));
    let blocks = dirty().count() as u64;
    if blocks == 0 {
        return None;
    }
    let oldest_ns = dirty().filter_map(|facts| explained.dirty_for_ns(facts.block)).max();
    let (bytes, are) = (human::bytes(blocks * BLOCK_BYTES), if blocks == 1 { "is" } else { "are" });
    let since = match oldest_ns {
        Some(ns) if blocks == 1 => format!("for {}", human::seconds(ns / 1_000_000_000)),
        Some(ns) => format!("the oldest for {}", human::seconds(ns / 1_000_000_000)),
        None => "since before the latest start, or being destaged to free room on the SSD".into(),
    };
    let options = &asked.record.options;
    let home = match options.mode {
        Mode::WriteBack => {
            let depth = human::nanoseconds(options.write_cache_depth_ms.saturating_mul(1_000_000));
            format!("writes are destaged after {depth} at the latest (--write-cache-depth)")
        }
        _ => "it is being destaged, since the volume has left write-back mode".into(),
    };
    Some(format!("{bytes} {are} dirty, {since}; {home}."))
}

/// Why what is not cached is not.
fn why_not(asked: &Asked, explained: &Explained) -> String {
    let (name, options) = (&asked.record.name, &asked.record.options);
    if options.mode == Mode::PassThrough {
        return format!(
            "The volume is in pass-through mode: nothing enters the cache; `hearth volume set {name} --mode write-through` changes that."
        );
    }
    let (it, there) = if explained.blocks.is_empty() { ("it", "there") } else { ("the rest", "of the rest") };
    let Some(latest) = explained.recent.iter().find(|recent| touches_uncached(asked, explained, recent)) else {
        let known = format!("the last 8 requests of each megabyte, for {}", human::seconds(explained.remembered_ns / 1_000_000_000));
        return match explained.recent.first() {
            Some(beside) => format!(
                "No request has touched {it} that hearth remembers ({known}); the latest in the same megabyte was a {}, {}.",
                op_name(beside.op),
                ago(beside.ago_ns)
            ),
            None if explained.blocks.is_empty() => format!("No request has come there that hearth remembers ({known})."),
            None => format!("No request has touched the rest that hearth remembers ({known})."),
        };
    };
    let which = format!("The latest {} {there}, {},", op_name(latest.op), ago(latest.ago_ns));
    let set = format!("`hearth volume set {name}");
    match latest.reason {
        Some(BypassReason::Size) => {
            let limit = human::bytes(options.max_io_bytes);
            format!("{which} was larger than --max-io-size ({limit}), so it bypassed the cache; raise it with {set} --max-io-size SIZE`.")
        }
        Some(BypassReason::Sequential) => {
            let limit = options.sequential_cutoff_bytes.map_or("off now".into(), human::bytes);
            format!(
                "{which} was part of a sequential stream longer than --sequential-cutoff ({limit}), so it bypassed the cache; raise it with {set} --sequential-cutoff SIZE`, or lift it with `off`."
            )
        }
        Some(BypassReason::PassThrough) => {
            format!("{which} bypassed the cache, since the volume was in pass-through mode then; the next read may cache it.")
        }
        Some(BypassReason::WriteAround) => format!(
            "{which} went to the backing device alone, and the cached blocks were dropped: in write-around mode only reads enter the cache; {set} --mode write-through` also caches writes."
        ),
        Some(BypassReason::FirstTouch) => first_touch(&which, &set, options),
        Some(BypassReason::DirtyLimit) => {
            format!("{which} had to wait because the dirty limit was reached; raise {}.", dirty_limit(options, &set))
        }
        Some(BypassReason::NoSpace) => format!(
            "{which} found no room: the SSD was full, or the backing device had not flushed it yet; the next read tries again, and a larger SSD has more room."
        ),
        Some(BypassReason::Policy) => {
            format!("{which} bypassed the cache, since the policy of the object that lay there said so.")
        }
        Some(BypassReason::Stream) => {
            format!("{which} was part of a backup or a scan: these are served what is cached and put nothing into the cache.")
        }
        Some(BypassReason::Degraded) => {
            let pool = &asked.record.pool;
            format!(
                "{which} came after the SSD of pool {pool} had failed: move the pool to another with `hearth pool replace {pool} --ssd PATH`."
            )
        }
        None => without_reason(&which, latest),
    }
}

fn first_touch(which: &str, set: &str, options: &Options) -> String {
    match options.admission {
        Admission::SecondTouch => format!(
            "{which} was not admitted to the SSD: with admission second-touch a block must be used again soon; {set} --admission always` admits all blocks."
        ),
        Admission::Always => format!("{which} came before the admission was set to always; the next read caches it."),
    }
}

fn dirty_limit(options: &Options, set: &str) -> String {
    match options.dirty_limit_bytes {
        Some(limit) => {
            let limit = human::bytes(limit);
            format!("it ({limit}) with {set} --dirty-limit SIZE`, or raise --destage-rate or --latency-goal")
        }
        None => "it with a larger SSD, or raise --destage-rate or --latency-goal".into(),
    }
}

fn without_reason(which: &str, latest: &Recent) -> String {
    match (latest.op, latest.outcome) {
        (Op::Discard | Op::PunchHole, _) => format!("{which} discarded it: there is nothing to cache."),
        (Op::WriteZeroes, _) => format!("{which} went to the backing device; zeroes written through are not cached."),
        (_, Outcome::RamHit | Outcome::SsdHit) => {
            format!("{which} was served from the cache; since then it has been evicted by blocks in more use: a larger SSD would keep it.")
        }
        (_, Outcome::Other) => format!("{which} failed: see `hearth stats` and the daemon's log."),
        (Op::Read, _) => {
            format!("{which} came from the backing device; its blocks have been evicted or overwritten since.")
        }
        _ => format!("{which} left nothing in the cache: a write caches whole blocks only, and only those that are read again."),
    }
}

/// What came of a request, as a clause.
pub(super) fn what_came_of(record: &VolumeRecord, recent: &Recent) -> String {
    let way = match (recent.outcome, recent.op) {
        (Outcome::RamHit, _) => "a hit in RAM",
        (Outcome::SsdHit, _) => "a hit on the SSD",
        (Outcome::Miss, _) => "a miss, read from the backing device",
        (Outcome::Bypass, Op::Read) => "read from the backing device, bypassing the cache",
        (Outcome::Bypass, _) => "written to the backing device, bypassing the cache",
        (Outcome::WriteBack, _) => "written to the SSD",
        (Outcome::WriteThrough, _) => "written to the backing device",
        (Outcome::Other, Op::Discard | Op::PunchHole) => "discarded",
        (Outcome::Other, Op::WriteZeroes) => "zeroes written to the backing device",
        (Outcome::Other | Outcome::BackingFlush, _) => "it failed",
    };
    let Some(reason) = recent.reason else { return way.into() };
    let options = &record.options;
    let why = match reason {
        BypassReason::Size => format!("larger than --max-io-size ({})", human::bytes(options.max_io_bytes)),
        BypassReason::Sequential => "part of a sequential stream".into(),
        BypassReason::PassThrough => "the volume was in pass-through mode".into(),
        BypassReason::WriteAround => "in write-around mode writes do not enter the cache".into(),
        BypassReason::FirstTouch => "it was not admitted to the SSD: not yet reused".into(),
        BypassReason::DirtyLimit => "it had waited at the dirty limit".into(),
        BypassReason::NoSpace => "there was no room for it on the SSD, or for so much dirty data".into(),
        BypassReason::Degraded => "the SSD had failed".into(),
        BypassReason::Policy => "the policy of its object said so".into(),
        BypassReason::Stream => "part of a backup or a scan".into(),
    };
    format!("{way}; {why}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::shard::{BlockFacts, DirtyExtent, Form, Hits, Kept};
    use records::state::{BackingIdentity, VolumePhase};
    use uuid::Uuid;

    const SECOND: u64 = 1_000_000_000;

    fn record(options: Options) -> VolumeRecord {
        VolumeRecord {
            name: "v".into(),
            uuid: Uuid::from_bytes([0; 16]),
            pool: "p".into(),
            id: 1,
            backing: "/disk".into(),
            size_bytes: 1 << 30,
            may_have_dirty: false,
            sector_bytes: None,
            options,
            exports: Vec::new(),
            phase: VolumePhase::Ready,
            identity: BackingIdentity::default(),
            stopped_clean: false,
            cache_stale: false,
            past: Vec::new(),
            stopped: false,
            noted: Vec::new(),
            rules: Vec::new(),
            connections: Vec::new(),
            shares: Vec::new(),
            attachment: None,
        }
    }

    fn mode(mode: Mode) -> Options {
        Options { mode, ..Options::default() }
    }

    fn block(block: u64, in_ram: bool, on_ssd: bool, dirty: bool) -> BlockFacts {
        BlockFacts { block, in_ram, on_ssd: on_ssd.then_some(Kept { form: Form::Plain, dirty, hits: Hits::Never }) }
    }

    fn request(op: Op, outcome: Outcome, reason: Option<BypassReason>) -> Recent {
        Recent { ago_ns: 3 * SECOND, op, start_sector: 80, sectors: 8, outcome, reason }
    }

    fn known(blocks: Vec<BlockFacts>, recent: Vec<Recent>) -> Explained {
        let dirty = vec![DirtyExtent { first_block: 0, for_ns: Some(12 * SECOND) }];
        Explained { has_cache: true, blocks, dirty, recent, heat: 0.0, remembered_ns: 7380 * SECOND }
    }

    /// The verdict on so many blocks from block 10 on has these parts, one in each sentence.
    fn check(options: Options, blocks: u64, explained: &Explained, parts: &[&str]) {
        let record = record(options);
        let sentences = verdict(&Asked { record: &record, degraded: false, first_block: 10, blocks }, explained);
        assert_eq!(sentences.len(), parts.len(), "{sentences:#?}");
        for (sentence, part) in sentences.iter().zip(parts) {
            assert!(sentence.contains(part), "{sentence:?} lacks {part:?}");
            assert!(sentence.ends_with('.') && !sentence.contains("  ") && !sentence.contains("1 blocks"), "{sentence:?}");
        }
        assert!((1..=5).contains(&sentences.len()));
    }

    const FORGETS: &str = "No request has come there that hearth remembers (the last 8 requests of each megabyte, for 2 h 3 min).";

    #[test]
    fn what_is_cached_is_told_with_its_place() {
        let through = || mode(Mode::WriteThrough);
        let hit = || vec![request(Op::Read, Outcome::SsdHit, None)];
        let some = |count: u64, in_ram: u64| (0..count).map(|at| block(10 + at, at < in_ram, true, false)).collect::<Vec<_>>();
        let in_ram_too = "All 256 blocks (1 MiB) are cached on the SSD, 12 of them in RAM too.";
        check(through(), 256, &known(some(256, 12), hit()), &[in_ram_too, "3 s ago: a hit on the SSD"]);
        check(through(), 256, &known(some(256, 0), vec![]), &["All 256 blocks (1 MiB) are cached on the SSD."]);
        check(through(), 1, &known(some(1, 1), vec![]), &["This block is cached on the SSD, and in RAM too."]);
        check(through(), 1, &known(some(1, 0), vec![]), &["This block is cached on the SSD."]);
        let alone = "1 block is in RAM only, and goes to the SSD when it leaves RAM";
        check(through(), 1, &known(vec![block(10, true, false, false)], vec![]), &["in RAM, not on the SSD", alone]);
        let ram = vec![block(10, true, false, false), block(11, true, false, false)];
        let left = ["Of 4 blocks (16 KiB), none is cached on the SSD.", "2 blocks are left in RAM from another mode.", "pass-through mode"];
        check(mode(Mode::PassThrough), 4, &known(ram, vec![]), &left);
        check(through(), 4, &known(vec![], vec![]), &["Nothing of this range is cached.", FORGETS]);
        check(through(), 1, &known(vec![], vec![]), &["This block is not cached.", FORGETS]);

        // Only what touched the rest says why that is not cached.
        let one_of_four = "1 of 4 blocks (4 KiB of 16 KiB) is cached on the SSD.";
        check(through(), 4, &known(some(1, 0), vec![]), &[one_of_four, "No request has touched the rest that hearth"]);
        check(through(), 4, &known(some(1, 0), hit()), &[one_of_four, "No request has touched the rest that hearth"]);
        let longer = Recent { sectors: 9, ..request(Op::Read, Outcome::Bypass, Some(BypassReason::Size)) };
        let both = known(some(1, 0), [hit(), vec![longer]].concat());
        check(through(), 4, &both, &[one_of_four, "The latest read of the rest, 3 s ago, was larger"]);
    }

    #[test]
    fn what_is_dirty_is_told_with_its_age_and_when_it_goes_home() {
        let dirty: Vec<_> = (0..16).map(|at| block(10 + at, false, true, true)).collect();
        let back = || mode(Mode::WriteBack);
        let many = "64 KiB are dirty, the oldest for 12 s; writes are destaged after 30.0 s at the latest (--write-cache-depth).";
        check(back(), 16, &known(dirty.clone(), vec![]), &["All 16 blocks", many]);
        check(back(), 1, &known(dirty[..1].to_vec(), vec![]), &["This block", "4 KiB is dirty, for 12 s;"]);
        check(mode(Mode::WriteThrough), 16, &known(dirty.clone(), vec![]), &["All 16", "it is being destaged"]);
        // Found dirty by the start: at least as long as anything is remembered.
        let found = Explained { dirty: vec![DirtyExtent { first_block: 0, for_ns: None }], ..known(dirty, vec![]) };
        check(back(), 16, &found, &["All 16", "the oldest for 2 h 3 min"]);
    }

    #[test]
    fn every_reason_has_its_sentence_and_a_way_out() {
        let through = || mode(Mode::WriteThrough);
        let limited = Options { dirty_limit_bytes: Some(1 << 30), ..mode(Mode::WriteBack) };
        for (reason, options, part) in [
            (
                BypassReason::Size,
                through(),
                "3 s ago, was larger than --max-io-size (64 KiB), so it bypassed the cache; raise it with `hearth volume set v --max-io-size SIZE`.",
            ),
            (
                BypassReason::Sequential,
                through(),
                "longer than --sequential-cutoff (1 MiB), so it bypassed the cache; raise it with `hearth volume set v --sequential-cutoff SIZE`",
            ),
            (BypassReason::PassThrough, through(), "was in pass-through mode then"),
            (BypassReason::WriteAround, mode(Mode::WriteAround), "`hearth volume set v --mode write-through` also caches writes"),
            (BypassReason::FirstTouch, through(), "with admission second-touch a block must be used again soon"),
            (BypassReason::FirstTouch, Options { admission: Admission::Always, ..through() }, "before the admission was set to always"),
            (BypassReason::DirtyLimit, limited, "raise it (1 GiB) with `hearth volume set v --dirty-limit SIZE`"),
            (BypassReason::DirtyLimit, mode(Mode::WriteBack), "with a larger SSD"),
            (BypassReason::NoSpace, through(), "found no room"),
            (BypassReason::Degraded, through(), "`hearth pool replace p --ssd PATH`"),
            (BypassReason::Policy, through(), "the policy of the object that lay there"),
            (BypassReason::Stream, through(), "part of a backup or a scan"),
        ] {
            for (op, outcome) in [(Op::Read, Outcome::Bypass), (Op::Write, Outcome::Bypass)] {
                let recent = request(op, outcome, Some(reason));
                check(options.clone(), 1, &known(vec![], vec![recent]), &["not cached", part]);
                let clause = what_came_of(&record(options.clone()), &recent);
                assert!(clause.contains("bypassing the cache; ") && !clause.ends_with('.'), "{clause}");
            }
        }
    }

    #[test]
    fn requests_without_a_reason_are_told_too() {
        let cases = [
            (Op::Read, Outcome::RamHit, "evicted by blocks in more use"),
            (Op::Read, Outcome::SsdHit, "evicted by blocks in more use"),
            (Op::Read, Outcome::Miss, "came from the backing device; its blocks have been evicted"),
            (Op::Read, Outcome::Other, "failed"),
            (Op::Write, Outcome::WriteThrough, "left nothing in the cache"),
            (Op::Write, Outcome::WriteBack, "left nothing in the cache"),
            (Op::WriteZeroes, Outcome::Other, "zeroes written through are not cached"),
            (Op::Discard, Outcome::Other, "discarded it"),
        ];
        for (op, outcome, part) in cases {
            check(mode(Mode::WriteThrough), 1, &known(vec![], vec![request(op, outcome, None)]), &["not cached", part]);
        }
        // One beside the range is not one of the range.
        let beside = Recent { start_sector: 88, ..request(Op::Read, Outcome::Miss, None) };
        let told = "the latest in the same megabyte was a read, 3 s ago";
        check(mode(Mode::WriteThrough), 1, &known(vec![], vec![beside]), &["not cached", told]);
        // The mode decides before what was.
        let large = request(Op::Read, Outcome::Bypass, Some(BypassReason::Size));
        check(mode(Mode::PassThrough), 1, &known(vec![], vec![large]), &["not cached", "`hearth volume set v --mode write-through`"]);
    }

    #[test]
    fn without_a_cache_there_is_little_to_tell() {
        let record = record(Options::default());
        let told = |degraded, explained: &Explained| verdict(&Asked { record: &record, degraded, first_block: 10, blocks: 9 }, explained);
        for (degraded, has_cache) in [(true, true), (false, false), (true, false)] {
            let sentences = told(degraded, &Explained { has_cache, ..Explained::default() });
            assert!(sentences.len() == 1 && sentences[0].contains("without its cache"), "{sentences:?}");
        }
        let sentences = told(true, &known(vec![block(10, false, true, true)], vec![]));
        assert!(sentences.len() == 2 && sentences[1].contains("4 KiB is dirty"), "{sentences:?}");
    }

    #[test]
    fn moments() {
        for (ns, text) in
            [(0, "just now"), (1_999_999, "just now"), (2_000_000, "2 ms ago"), (SECOND, "1 s ago"), (185 * SECOND, "3 min 5 s ago")]
        {
            assert_eq!(ago(ns), text);
        }
    }
}
