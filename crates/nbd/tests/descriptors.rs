//! File descriptors run out: accepting rests and goes on when there are some, and who has not proved itself makes room. A file of its
//! own, since the limit is the process's.

#[path = "all/common/mod.rs"]
mod common;

use common::client::Client;
use common::{Fixture, wait_until};
use nbd::Limits;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::unix::net::UnixStream;

#[test]
fn a_server_without_descriptors_serves_on_and_recovers() {
    // A ring keeps the limit that was in force when accepting began, so it is lowered before.
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(256), maximum: before.maximum }).unwrap();
    let fixture = Fixture::with_limits(Limits { handshake_ns: 3_600_000_000_000, ..Limits::default() });
    let mut client = Client::open(&fixture.socket, "disk");
    let mut idle = Client::connect(&fixture.socket);
    // The socket of the next client is there already; only the server's end of it is not.
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    let mut filler = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        filler.push(file);
    }
    let address = SocketAddrUnix::new(&fixture.socket).unwrap();
    rustix::net::connect(&socket, &address).expect("it waits to be accepted");
    // The idle handshake makes room for it.
    assert!(idle.is_closed());
    assert_eq!(fixture.server().counters().gave_way, 1);
    assert_eq!(client.read_at(0, 4096).unwrap(), vec![0; 4096]);
    let mut late = Client::over(UnixStream::from(socket));
    late.flags();
    late.go("disk").unwrap();
    assert_eq!(late.read_at(0, 512).unwrap(), vec![0; 512]);
    drop(filler);
    setrlimit(Resource::Nofile, before).unwrap();
    drop(late);
    let mut later = Client::open(&fixture.socket, "disk");
    assert_eq!(later.read_at(0, 512).unwrap(), vec![0; 512]);
    drop(later);
    drop((client, idle));
    wait_until("all have gone", || fixture.server().counters().connections == 0);
}
