//! Strangers that come in crowds, and what they keep from others: nothing. No patience ends here: what gives way gives way at once.

use crate::support;
use crate::support::{Answer, Running, limits, read_all, request, wait_until};
use api::Sample;
use records::live::LiveEvent;
use rest::server::ServerLimits;
use rest::{ServerOptions, TcpOptions};
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

/// Nothing ends by its own slowness.
const NEVER: Duration = Duration::from_secs(3600);

fn patient(change: impl FnOnce(&mut ServerLimits)) -> Running {
    Running::with(|options: &mut ServerOptions| {
        options.limits = ServerLimits { patience: NEVER, stall: NEVER, ..limits() };
        options.tcp = Some(TcpOptions::at(([127, 0, 0, 1], 0).into()));
        change(&mut options.limits);
    })
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

/// One answer over a connection that stays open.
fn ask_and_stay(stream: &mut impl ReadWrite, path: &str, headers: &[(&str, &str)]) -> Answer {
    let headers = [headers, &[("connection", "keep-alive")]].concat();
    stream.write_all(request("GET", path, &headers, "").as_bytes()).expect("it is open");
    let mut text = String::new();
    loop {
        let mut bytes = [0; 4096];
        let count = stream.read(&mut bytes).expect("an answer");
        assert_ne!(count, 0, "the connection has ended: {text:?}");
        text += std::str::from_utf8(&bytes[..count]).expect("text");
        if let Some(answer) = support::parse(&text)
            && answer.header("content-length").is_some_and(|length| length.parse() == Ok(answer.body.len()))
        {
            return answer;
        }
    }
}

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

fn is_closed(stream: &mut impl Read) -> bool {
    let mut bytes = Vec::new();
    // A reset is an end too.
    stream.read_to_end(&mut bytes).is_ok_and(|count| count == 0) || bytes.is_empty()
}

#[test]
fn half_open_tls_connections_block_neither_api_nor_console() {
    let server = patient(|_| {});
    let token = bearer(&server.token("t", "view"));
    // The beginning of a ClientHello, or nothing at all.
    let mut half: Vec<_> = (0..200).map(|round| server.half_open(if round % 2 == 0 { b"" } else { b"\x16\x03\x01\x02\x00\x01" })).collect();
    for _ in 0..3 {
        assert_eq!(server.ask_tls("GET", "/api/v1/pools", &[("authorization", &token)], "").body, "[]");
        server.ask_tls("GET", "/", &[], "").problem(404, "not_found");
        assert_eq!(server.ask("GET", "/api/v1/pools", "").body, "[]");
    }
    let share = ServerLimits::default().strangers / 4 * 3;
    assert!(half[..200 - share].iter_mut().all(is_closed), "the oldest have gone");
}

#[test]
fn slow_headers_and_bodies_give_way_and_are_told() {
    let server = patient(|limits| limits.strangers = 8);
    let token = server.token("t", "view");
    let login = request("POST", "/api/v1/session", &[("content-length", "100")], "{");
    let mut slow: Vec<_> = (0..30)
        .map(|round| {
            let mut stream = server.secure();
            stream.write_all(if round % 2 == 0 { b"GET / HTTP/1.1\r\n" } else { login.as_bytes() }).expect("there is room");
            stream.flush().expect("it is sent");
            stream
        })
        .collect();
    let good = server.ask_tls("POST", "/api/v1/session", &[], &format!("{{\"token\":\"{token}\"}}"));
    assert_eq!(good.status, 200, "{good:?}");
    let told = read_all(&mut slow[0]);
    assert!(told.problem(503, "overloaded").contains("reconnect"), "{told:?}");
    assert_eq!(told.header("retry-after"), Some("1"));
    // The same on the socket, where even the silent are told.
    let mut silent: Vec<_> = (0..30).map(|_| server.connect(b"")).collect();
    assert_eq!(server.ask("GET", "/api/v1/pools", "").body, "[]");
    read_all(&mut silent[0]).problem(503, "overloaded");
}

#[test]
fn idle_connections_give_way_and_those_that_wait_for_an_answer_do_not() {
    let server = patient(|limits| limits.connections = 4);
    let token = bearer(&server.token("t", "view"));
    let mut idle: Vec<_> = (0..3)
        .map(|_| {
            let mut stream = server.connect(b"");
            assert_eq!(ask_and_stay(&mut stream, "/api/v1/pools", &[]).body, "[]");
            stream
        })
        .collect();
    // The first is used again, so the second is the one that was idle for longest.
    assert_eq!(ask_and_stay(&mut idle[0], "/api/v1/pools", &[]).body, "[]");
    let mut streams: Vec<_> = (0..3)
        .map(|_| {
            let mut stream = server.connect(request("GET", "/api/v1/stream", &[], "").as_bytes());
            let mut status = [0; 12];
            stream.read_exact(&mut status).expect("an answer");
            assert_eq!(&status, b"HTTP/1.1 200");
            stream
        })
        .collect();
    assert!(idle.iter_mut().all(is_closed));
    // All of this user's share waits for answers now: one more is told, and others are not concerned.
    let full = server.ask("GET", "/api/v1/pools", "");
    assert!(full.problem(503, "overloaded").contains("3 of your requests"), "{full:?}");
    assert_eq!((full.header("retry-after"), full.header("connection")), (Some("1"), Some("close")));
    let other = server.raw(request("GET", "/api/v1/pools", &[("authorization", &token)], "").as_bytes());
    assert_eq!(other.body, "[]");
    drop(streams.pop());
    wait_until("a stream that has ended leaves its place", || server.ask("GET", "/api/v1/pools", "").status == 200);
}

#[test]
fn one_client_cannot_have_all_streams() {
    let server = patient(|limits| limits.streams = 4);
    let token = bearer(&server.token("t", "view"));
    let open = |headers: &[(&str, &str)]| {
        let mut stream = server.connect(request("GET", "/api/v1/stream", headers, "").as_bytes());
        let mut status = [0; 12];
        stream.read_exact(&mut status).expect("an answer");
        (&status == b"HTTP/1.1 200").then_some(stream)
    };
    let _mine: Vec<_> = (0..3).map(|_| open(&[]).expect("my share")).collect();
    let full = server.ask("GET", "/api/v1/stream", "");
    assert!(full.problem(503, "overloaded").contains("3 of your event streams"), "{full:?}");
    assert!(full.header("retry-after").is_some());
    assert!(open(&[("authorization", &token)]).is_some(), "others have one");
}

/// A listener that takes nothing is ended after a while, and its place is free.
#[test]
fn who_takes_nothing_of_its_stream_loses_it() {
    let server = patient(|limits| (limits.streams, limits.stall) = (1, Duration::from_millis(100)));
    let deaf = server.connect(request("GET", "/api/v1/stream", &[], "").as_bytes());
    let mut large = Sample::default();
    large.pools.insert("x".repeat(100_000), serde_json::from_str(POOL).expect("a pool's sample"));
    let large = Arc::new(large);
    wait_until("its place is free", || {
        server.manager.live().publish(LiveEvent::Sample(large.clone()));
        let mut stream = server.connect(request("GET", "/api/v1/stream", &[], "").as_bytes());
        let mut status = [0; 12];
        stream.read_exact(&mut status).is_ok_and(|()| &status == b"HTTP/1.1 200")
    });
    drop(deaf);
}

const POOL: &str = r#"{"health":"running","size_bytes":0,"cached_bytes":0,"dirty_bytes":0,"ram_used_bytes":0,"index_bytes":0,
    "ssd_written_bytes_s":0,"admitted_bytes_s":0,"ssd_written_bytes":0,"write_amplification":null}"#;

/// Strangers and the owner of a token may have one address, as all have on this machine.
#[test]
fn who_guesses_uses_up_nobody_elses_requests() {
    let server = patient(|limits| (limits.requests_per_second, limits.requests_burst) = (0.01, 12.0));
    let token = bearer(&server.token("t", "view"));
    let guesses: Vec<_> = (0..15).map(|_| server.ask_tls("GET", "/api/v1/pools", &[("authorization", "Bearer hearth_0")], "")).collect();
    guesses[..12].iter().for_each(|guess| drop(guess.problem(401, "unauthenticated")));
    guesses[12].problem(429, "too_many");
    assert!(guesses[12].header("retry-after").is_some());
    assert_eq!(server.ask_tls("GET", "/api/v1/pools", &[("authorization", &token)], "").status, 200);
    server.ask_tls("GET", "/", &[], "").problem(404, "not_found");
}
