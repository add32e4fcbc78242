//! The stream of events: what comes, in which order, after a break, to slow listeners, and until when.

use crate::support::{Running, limits, request, wait_until};
use api::Sample;
use records::live::LiveEvent;
use rest::server::ServerLimits;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::Arc;

/// A listener: decodes chunks and events.
struct Listener<S> {
    from: BufReader<S>,
    text: String,
}

#[derive(Debug)]
struct Heard {
    name: String,
    id: Option<u64>,
    data: Value,
}

impl<S: Read> Listener<S> {
    fn new(stream: S) -> Listener<S> {
        let mut from = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(from.read_line(&mut head).expect("a head"), 0, "{head}");
        }
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("content-type: text/event-stream"), "{head}");
        Listener { from, text: String::new() }
    }

    /// The next event; `None` at the end of the stream.
    fn next(&mut self) -> Option<Heard> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_string(), rest.to_string());
                self.text = rest;
                let field = |name: &str| event.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(": "));
                if let Some(name) = field("event") {
                    let data = serde_json::from_str(field("data").expect("data")).expect("JSON");
                    return Some(Heard { name: name.into(), id: field("id").map(|id| id.parse().expect("a number")), data });
                }
                continue;
            }
            let mut line = String::new();
            self.from.read_line(&mut line).ok()?;
            let length = usize::from_str_radix(line.trim(), 16).ok().filter(|length| *length > 0)?;
            let mut chunk = vec![0; length + 2];
            self.from.read_exact(&mut chunk).ok()?;
            self.text += std::str::from_utf8(&chunk[..length]).expect("text");
        }
    }

    fn must(&mut self, name: &str) -> Heard {
        let heard = self.next().expect("the stream goes on");
        assert_eq!(heard.name, name, "{heard:?}");
        heard
    }
}

fn listen(server: &Running, path: &str, headers: &[(&str, &str)]) -> Listener<std::os::unix::net::UnixStream> {
    Listener::new(server.connect(request("GET", path, headers, "").as_bytes()))
}

fn sample(unix_ms: u64) -> LiveEvent {
    LiveEvent::Sample(Arc::new(Sample { unix_ms, ..Sample::default() }))
}

#[test]
fn hello_comes_first_then_everything_as_it_happens() {
    let server = Running::start();
    let mut listener = listen(&server, "/api/v1/stream", &[]);
    let hello = listener.must("hello");
    assert_eq!(hello.data["latest_event"], 0);
    assert_eq!(hello.data["version"], env!("CARGO_PKG_VERSION"));
    server.manager.live().publish(sample(7));
    assert_eq!(listener.must("sample").data["unix_ms"], 7);
    let made = server.ask("POST", "/api/v1/pools", r#"{"name":"p","ssd":"/dev/ssd"}"#);
    assert_eq!(made.status, 200, "{made:?}");
    let add = server.ask("POST", "/api/v1/volumes", r#"{"name":"v","pool":"p","backing":"/dev/disk"}"#);
    assert_eq!(add.status, 200, "{add:?}");
    assert_eq!(server.ask("POST", "/api/v1/volumes/v/destage", "").status, 200);
    let (mut changed, mut jobs, mut events) = (Vec::new(), Vec::new(), Vec::new());
    while jobs.len() < 2 || events.is_empty() {
        let heard = listener.next().expect("the stream goes on");
        match heard.name.as_str() {
            "changed" => changed.push(heard.data["what"].as_str().expect("a word").to_string()),
            "job" => jobs.push(heard.data["state"].as_str().expect("a word").to_string()),
            "event" => {
                assert_eq!(heard.id, heard.data["number"].as_u64());
                events.push(heard.id.expect("a number"));
            }
            other => panic!("{other}"),
        }
    }
    assert!(changed.contains(&"pools".into()) && changed.contains(&"volumes".into()), "{changed:?}");
    assert_eq!((jobs[0].as_str(), jobs[jobs.len() - 1].as_str()), ("running", "done"));
    assert!(events.is_sorted(), "{events:?}");
}

#[test]
fn who_comes_again_gets_what_they_missed() {
    let server = Running::start();
    assert_eq!(server.ask("POST", "/api/v1/pools", r#"{"name":"p","ssd":"/dev/ssd"}"#).status, 200);
    for name in ["v", "w"] {
        let disk = format!("/dev/disk-{name}");
        server.world.add_device(&disk, 1 << 30);
        let add = format!(r#"{{"name":"{name}","pool":"p","backing":"{disk}"}}"#);
        assert_eq!(server.ask("POST", "/api/v1/volumes", &add).status, 200);
        assert_eq!(server.ask("DELETE", &format!("/api/v1/volumes/{name}"), "").status, 200);
    }
    while server.ask("GET", "/api/v1/jobs", "").body.contains("running") {
        std::thread::yield_now();
    }
    let all = server.ask("GET", "/api/v1/events", "").json();
    let latest = all.as_array().expect("a list").len() as u64;
    assert!(latest >= 2, "{all}");
    let check = |path: &str, headers: &[(&str, &str)], expected: std::ops::RangeInclusive<u64>| {
        let mut listener = listen(&server, path, headers);
        assert_eq!(listener.must("hello").data["latest_event"], latest);
        for number in expected {
            assert_eq!(listener.must("event").id, Some(number), "{path} {headers:?}");
        }
        server.manager.live().publish(sample(1));
        listener.must("sample");
    };
    check("/api/v1/stream", &[], latest + 1..=latest);
    check("/api/v1/stream?after=0", &[], 1..=latest);
    check("/api/v1/stream?after=1", &[], 2..=latest);
    check("/api/v1/stream?after=0", &[("last-event-id", "1")], 2..=latest);
    // Numbers of a daemon before this one.
    check("/api/v1/stream?after=1000", &[], 1..=latest);
    server.raw(request("GET", "/api/v1/stream", &[("last-event-id", "x")], "").as_bytes()).problem(400, "usage");
    server.raw(request("GET", "/api/v1/stream?after=x", &[], "").as_bytes()).problem(400, "usage");
}

/// A listener that does not read costs bounded memory; when it reads again it is told that it missed something.
#[test]
fn a_slow_listener_is_greeted_again() {
    let server = Running::start();
    let mut listener = listen(&server, "/api/v1/stream", &[]);
    listener.must("hello");
    let live = server.manager.live();
    let mut large = Sample::default();
    large.pools.insert("x".repeat(100_000), serde_json::from_str(POOL).expect("a pool's sample"));
    let large = Arc::new(large);
    // More than the socket, the server and the channel together hold.
    for _ in 0..600 {
        live.publish(LiveEvent::Sample(large.clone()));
        std::thread::sleep(std::time::Duration::from_micros(200));
    }
    let mut samples = 0;
    while listener.next().expect("the stream goes on").name == "sample" {
        samples += 1;
    }
    assert!(samples < 600, "nothing was lost, so nothing was tried");
}

const POOL: &str = r#"{"health":"running","size_bytes":0,"cached_bytes":0,"dirty_bytes":0,"ram_used_bytes":0,"index_bytes":0,
    "ssd_written_bytes_s":0,"admitted_bytes_s":0,"ssd_written_bytes":0,"write_amplification":null}"#;

#[test]
fn there_are_so_many_streams_and_a_closed_one_makes_room() {
    let server = Running::with(|options| options.limits = ServerLimits { streams: 2, ..limits() });
    let first = listen(&server, "/api/v1/stream", &[]);
    let _second = listen(&server, "/api/v1/stream", &[]);
    let full = server.ask("GET", "/api/v1/stream", "");
    full.problem(503, "overloaded");
    drop(first);
    wait_until("its place is free", || {
        let mut stream = server.connect(request("GET", "/api/v1/stream", &[], "").as_bytes());
        let mut status = [0; 12];
        stream.read_exact(&mut status).is_ok_and(|()| &status == b"HTTP/1.1 200")
    });
}

#[test]
fn a_stream_ends_with_the_token_that_opened_it() {
    let server = Running::with_tcp();
    let token = format!("Bearer {}", server.token("t", "view"));
    let mut stream = server.secure();
    stream.write_all(request("GET", "/api/v1/stream", &[("authorization", &token)], "").as_bytes()).expect("there is room");
    let mut listener = Listener::new(stream);
    listener.must("hello");
    server.manager.live().publish(sample(1));
    listener.must("sample");
    assert_eq!(server.ask("DELETE", "/api/v1/tokens/t", "").status, 200);
    server.manager.live().publish(sample(2));
    assert!(listener.next().is_none(), "it must end");
}
