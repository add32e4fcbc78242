//! File descriptors run out: the API goes on when there are some, and who has not proved itself makes room. A file of its own, since
//! the limit is the process's.

#[path = "all/support/mod.rs"]
mod support;

use rest::server::ServerLimits;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use support::{Running, limits, read_all, request};

#[test]
fn without_descriptors_the_oldest_stranger_makes_room() {
    let server = Running::with(|options| options.limits = ServerLimits { patience: Duration::from_secs(3600), ..limits() });
    let mut idle = server.connect(b"GET /");
    assert_eq!(server.ask("GET", "/api/v1/pools", "").body, "[]");
    // The socket of the next client is there already; only the server's end of it is not.
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).expect("a socket");
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(256), maximum: before.maximum }).expect("less is allowed");
    let mut filler = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        filler.push(file);
    }
    rustix::net::connect(&socket, &SocketAddrUnix::new(server.socket()).expect("a path")).expect("it waits to be accepted");
    read_all(&mut idle).problem(503, "overloaded");
    let mut late = UnixStream::from(socket);
    late.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    late.write_all(request("GET", "/api/v1/nothing", &[], "").as_bytes()).expect("there is room");
    let mut text = String::new();
    late.read_to_string(&mut text).expect("an answer");
    assert!(text.starts_with("HTTP/1.1 404"), "{text}");
    drop(filler);
    setrlimit(Resource::Nofile, before).expect("it was so before");
    assert_eq!(server.ask("GET", "/api/v1/pools", "").body, "[]");
}
