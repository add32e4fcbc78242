//! `/metrics` of the real daemon under a load that is made to move everything: what docs/metrics.md lists is there and moves, and nothing else is there.

use crate::support::nbd::Client;
use crate::support::{Place, wait_until};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// The counters are those of the latest sample, which is taken each second.
const SAMPLED: Duration = Duration::from_millis(2500);

/// A documented metric.
struct Documented {
    name: String,
    kind: String,
    labels: BTreeSet<String>,
    moved_by: String,
}

fn documented() -> Vec<Documented> {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md")).expect("docs/metrics.md");
    let row = |row: &str| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let labels = cells[3].split('`').skip(1).step_by(2).map(str::to_string).collect();
        Documented { name: cells[0].trim_matches('`').into(), kind: cells[1].into(), labels, moved_by: cells[4].into() }
    };
    let all: Vec<Documented> = text.lines().filter(|l| l.starts_with("| `hearth_")).map(row).collect();
    assert!(all.len() > 40, "{} rows", all.len());
    all
}

/// The values of one scrape, by name, then by labels.
struct Scraped {
    text: String,
    values: BTreeMap<String, BTreeMap<String, f64>>,
}

/// After a sample of what was done before.
fn scrape(place: &Place) -> Scraped {
    std::thread::sleep(SAMPLED);
    scrape_now(place)
}

fn scrape_now(place: &Place) -> Scraped {
    let answer = place.ask("GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    let (head, text) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("content-type: application/openmetrics-text"), "{answer}");
    assert!(text.ends_with("# EOF\n"));
    let mut values: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let value = value.parse().expect("a number");
        assert!(values.entry(name.into()).or_default().insert(labels.into(), value).is_none(), "{line} is there twice");
    }
    Scraped { text: text.into(), values }
}

impl Scraped {
    /// The metric a sample belongs to: a histogram's parts are of one.
    fn names(&self) -> BTreeSet<String> {
        let part = |name: &str| ["_bucket", "_count", "_sum"].iter().find_map(|end| name.strip_suffix(end).map(str::to_string));
        let histogram = |name: &String| self.values.contains_key(&format!("{name}_bucket"));
        self.values.keys().map(|name| part(name).filter(histogram).unwrap_or_else(|| name.clone())).collect()
    }

    fn series(&self, documented: &Documented) -> BTreeMap<String, f64> {
        let name = if documented.kind == "histogram" { format!("{}_count", documented.name) } else { documented.name.clone() };
        self.values.get(&name).cloned().unwrap_or_default()
    }

    /// The sum of the series of that name that have such a label.
    fn value(&self, name: &str, part: &str) -> f64 {
        let series = self.values.get(name).into_iter().flatten();
        series.filter(|(labels, _)| labels.contains(part)).map(|(_, value)| value).sum()
    }
}

fn random(seed: u64) -> impl Iterator<Item = u64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    })
}

/// Text that repeats itself a little: it can be compressed, and differs from seed to seed.
fn text(seed: u64) -> Vec<u8> {
    random(seed).flat_map(|n| format!("record {n:016x} belongs to nobody; ").into_bytes()).take(4096).collect()
}

fn noise(seed: u64) -> Vec<u8> {
    random(seed).flat_map(u64::to_le_bytes).take(4096).collect()
}

fn volume(place: &Place, name: &str, options: &[&str]) -> Client {
    volume_of("p", place, name, options)
}

fn volume_of(pool: &str, place: &Place, name: &str, options: &[&str]) -> Client {
    let disk = place.file(&format!("{name}.img"), 256 << 20);
    let base = ["volume", "add", name, "--backing", &disk, "--pool", pool, "--export", "nbd"];
    let uri = place.must(&[&base[..], options].concat());
    Client::connect(uri.trim())
}

/// One round of everything a client can do: hits in RAM and on the SSD, misses, first touches; equal blocks, versions, zeroes, text and noise; and
/// enough of it that the log goes around.
fn load(back: &mut Client, through: &mut Client, round: u64, look: &mut dyn FnMut()) {
    for n in 0..4096u64 {
        let at = (round * 4093 + n * 7) % 40_000 * 4096;
        let seed = round * 10_000 + n;
        let block = match n % 4 {
            0 => text(n % 64),
            1 => text(seed),
            2 if n % 8 == 2 => vec![0; 4096],
            _ => noise(seed),
        };
        back.write(at, &block).expect("a write");
        if n % 16 == 0 {
            through.write(n * 4096, &block).expect("a write");
            // Longer than the cache takes.
            through.read(64 << 20, 128 << 10);
        }
        if n % 4 == 0 {
            back.read(at, 4096);
            back.read(n * 131 % 60_000 * 4096, 4096);
            through.read((round * 64 + n) % 2048 * 4096, 4096);
        }
        if n % 512 == 511 {
            look();
        }
    }
    back.discard(200 << 20, 1 << 20);
    back.flush();
    through.flush();
}

/// The same of a disk beside the cache.
fn use_disk(disk: &mut Client) {
    disk.write(0, &noise(1)).expect("a write");
    disk.read(0, 4096);
    disk.discard(0, 1 << 20);
    disk.flush();
}

#[test]
fn what_is_documented_is_there_and_moves_and_nothing_else_is() {
    let place = Place::new();
    let _daemon = place.daemon();
    place.must(&["pool", "create", "p", "--ssd", &place.path("ssd.img"), "--size", "128MiB", "--ram", "8MiB"]);
    place.must(&["disk", "create", "beside", "--pool", "p", "--size", "4MiB", "--export", "nbd"]);
    let shown = place.json(&["disk", "show", "beside"]);
    let mut beside = Client::connect(shown["exports"]["nbd"].as_str().expect("it is offered"));
    let mut back = volume(&place, "back", &["--mode", "write-back", "--admission", "always", "--write-cache-depth", "1s"]);
    let mut through = volume(&place, "through", &[]);
    let slots = place.path("slots.img");
    place.must(&["pool", "create", "slots", "--ssd", &slots, "--size", "64MiB", "--ram", "4MiB"]);
    let in_slots = ["--mode", "write-back", "--write-cache-depth", "1s", "--atomic", "8KiB"];
    let mut in_slots = volume_of("slots", &place, "in-slots", &in_slots);
    let before = scrape(&place);
    let documented = documented();
    let by_load: Vec<&Documented> = documented.iter().filter(|d| d.moved_by == "load").collect();
    let mut still: BTreeSet<&str> = by_load.iter().map(|d| d.name.as_str()).collect();
    let mut now = None;
    let mut look = |scraped: Scraped| {
        let moved = |d: &&&Documented| {
            let was = before.series(d);
            scraped.series(d).iter().any(|(labels, value)| was.get(labels).map_or(*value != 0.0, |was| was != value))
        };
        by_load.iter().filter(moved).for_each(|d| {
            still.remove(d.name.as_str());
        });
        (scraped, still.is_empty())
    };
    for round in 0..30 {
        // What is dirty is seen while the load goes on only: an idle disk is destaged to at once.
        load(&mut back, &mut through, round, &mut || drop(look(scrape_now(&place))));
        use_disk(&mut beside);
        (0..4096).for_each(|n| in_slots.write((round * 37 + n * 7) % 30_000 * 4096, &noise(n)).expect("a write"));
        // What people change is an event.
        place.must(&["volume", "set", "through", "--max-io-size", if round % 2 == 0 { "32KiB" } else { "64KiB" }]);
        let (scraped, all) = look(scrape(&place));
        now = Some(scraped);
        if all {
            break;
        }
    }
    let now = now.expect("a scrape");
    assert!(still.is_empty(), "documented and never moved: {still:?}\n{}", now.text);

    let (there, listed): (BTreeSet<_>, BTreeSet<_>) = (now.names(), documented.iter().map(|d| d.name.clone()).collect());
    let (absent, extra): (Vec<_>, Vec<_>) = (listed.difference(&there).collect(), there.difference(&listed).collect());
    assert!(absent.is_empty() && extra.is_empty(), "documented and absent: {absent:?}; there and not documented: {extra:?}");
    for d in &documented {
        let name = d.name.trim_end_matches("_total");
        assert!(now.text.contains(&format!("# TYPE {name} {}\n", d.kind)), "{} is no {}", d.name, d.kind);
        let was = before.series(d);
        for (labels, value) in now.series(d) {
            let names = labels.trim_end_matches('}').split("\",").filter_map(|l| l.split_once('=')).map(|(l, _)| l.to_string());
            assert_eq!(names.collect::<BTreeSet<_>>(), d.labels, "{}", d.name);
            let grew = value >= was.get(&labels).copied().unwrap_or(0.0);
            assert!(d.kind != "counter" || grew, "{} shrank", d.name);
        }
    }
    for outcome in ["ram_hit", "ssd_hit", "miss", "bypass", "write_back", "write_through"] {
        assert!(now.value("hearth_volume_latency_seconds_count", &format!("outcome=\"{outcome}\"")) > 0.0, "{outcome}\n{}", now.text);
    }
    assert!(now.value("hearth_volume_bypassed_total", "reason=\"size\"") > 0.0, "{}", now.text);
    let all = now.value("hearth_volume_latency_seconds_bucket", "le=\"+Inf\"");
    assert_eq!(all, now.value("hearth_volume_latency_seconds_count", ""), "buckets add up");
}

/// Cached blocks change on the SSD, the backing device ends too early, and in the end the SSD does not answer.
#[test]
fn faults_are_counted() {
    let place = Place::new();
    let daemon = place.daemon_with_limits();
    let ssd = place.path("ssd.img");
    place.must(&["pool", "create", "p", "--ssd", &ssd, "--size", "128MiB", "--ram", "0", "--content", "off"]);
    place.must(&["disk", "create", "beside", "--pool", "p", "--size", "4MiB", "--export", "nbd"]);
    let shown = place.json(&["disk", "show", "beside"]);
    let mut beside = Client::connect(shown["exports"]["nbd"].as_str().expect("it is offered"));
    let mut client = volume(&place, "v", &["--admission", "always"]);
    let before = scrape(&place);
    let blocks: Vec<Vec<u8>> = (1..65).map(noise).collect();
    (0..64).for_each(|n| client.write(n as u64 * 4096, &blocks[n]).expect("a write"));
    client.flush();
    (0..192u64).for_each(|n| assert!(client.read(n % 64 * 4096, 4096) == blocks[(n % 64) as usize]));

    // What was read often enough goes to the SSD a little later.
    let cached_blocks = || {
        let bytes = std::fs::read(&ssd).expect("the SSD is a file");
        let is_block = |at: &usize| blocks.iter().any(|block| bytes[*at..*at + 4096] == block[..]);
        (0..bytes.len()).step_by(4096).filter(is_block).collect::<Vec<usize>>()
    };
    let file = std::fs::File::options().write(true).open(&ssd).expect("it is there");
    // What was written a moment ago may still be read from memory.
    wait_until("something is cached, and its change noticed", || {
        cached_blocks().iter().for_each(|at| file.write_all_at(&[0x55; 64], *at as u64).expect("there is room"));
        (0..64u64).for_each(|n| assert!(client.read(n * 4096, 4096) == blocks[n as usize], "block {n} is as it was written"));
        scrape(&place).value("hearth_pool_checksum_errors_total", "") > 0.0
    });

    let disk = std::fs::File::options().write(true).open(place.path("v.img")).expect("it is there");
    disk.set_len(1 << 20).expect("it can be cut");
    client.try_read(128 << 20, 4096).expect_err("there is nothing any more");

    (0..192u64).for_each(|n| drop(client.try_read(n % 64 * 4096, 4096)));
    wait_until("something is cached again", || !cached_blocks().is_empty());
    let limit = rustix::process::Rlimit { current: Some(1 << 20), maximum: None };
    let pid = rustix::process::Pid::from_child(&daemon.child);
    rustix::process::prlimit(Some(pid), rustix::process::Resource::Fsize, limit).expect("it is our child");
    file.set_len(1 << 20).expect("it can be cut");
    // That reads of the SSD fail is what is wanted; the client gets its data from the backing device.
    (0..64u64).for_each(|n| assert!(client.read(n * 4096, 4096) == blocks[n as usize], "block {n} without its SSD"));

    beside.try_read(0, 4096).expect_err("that end of the SSD is gone");
    wait_until("the loss is recorded", || scrape_now(&place).value("hearth_pool_health", "state=\"degraded\"") > 0.0);
    // It goes on without that SSD, and is not stopped for what is left of it.
    place.must_fail(&["pool", "start", "p"], 1, "it was truncated or is another one");

    for d in documented().iter().filter(|d| d.moved_by == "a fault") {
        let sum = |scraped: &Scraped| scraped.series(d).values().sum::<f64>();
        wait_until(&format!("{} moves", d.name), || sum(&scrape_now(&place)) > sum(&before));
    }
    let now = scrape_now(&place);
    assert_eq!(now.value("hearth_pool_health", "state=\"degraded\""), 1.0, "{}", now.text);
    assert!(now.value("hearth_events_total", "severity=\"error\"") > 0.0, "{}", now.text);
}
