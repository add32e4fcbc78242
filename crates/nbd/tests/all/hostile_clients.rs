//! Clients that lie, stall, vanish or shout: the server lives, memory is bounded, and other clients see nothing.

use crate::common::client::{Client, PATIENCE, READ, WRITE, WRITE_ZEROES, header, option};
use crate::common::random::Random;
use crate::common::{Fixture, Neighbour, wait_until};
use nbd::{ExportOptions, Limits, ListenSpec, serve};
use std::io::Write;
use std::os::unix::net::UnixStream;

#[test]
fn malformed_handshakes_harm_nobody() {
    let fixture = Fixture::new();
    let neighbour = Neighbour::start(&fixture);
    for seed in 0..300 {
        let random = &mut Random(seed);
        let mut client = Client::connect(&fixture.socket);
        let mut bytes = [&[0, 0, 0, 3][..], &option(random.below(13) as u32, b"\0\0\0\x04disk\0\0")].concat();
        for _ in 0..random.below(4) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.next() as u8;
        }
        // The server may have closed in the middle of it.
        let _closed = client.stream.write_all(&bytes).is_err();
        if random.below(2) == 0 {
            client.stream.shutdown(std::net::Shutdown::Write).ok();
            assert!(client.is_closed(), "seed {seed}");
        }
    }
    fixture.wait_connections(1);
    neighbour.finish();
}

#[test]
fn huge_lengths_are_refused_and_cost_nothing() {
    let fixture = Fixture::new();
    let neighbour = Neighbour::start(&fixture);
    // An option of four gigabytes: its data is skipped as it comes, and the client may leave.
    let mut client = Client::connect(&fixture.socket);
    client.stream.write_all(&[0, 0, 0, 3]).unwrap();
    client.stream.write_all(b"IHAVEOPT\0\0\0\x07\xff\xff\xff\xff").unwrap();
    client.stream.write_all(&vec![0; 1 << 20]).unwrap();
    drop(client);
    // An option a little too long is answered, and the handshake goes on.
    let mut client = Client::connect(&fixture.socket);
    client.stream.write_all(&[0, 0, 0, 3]).unwrap();
    client.stream.write_all(&option(7, &vec![0; 100_000])).unwrap();
    let answer = client.read(20);
    assert_eq!(answer[12..16], ((1u32 << 31) + 9).to_be_bytes());
    let text_bytes = u32::from_be_bytes(answer[16..20].try_into().unwrap());
    client.read(text_bytes as usize);
    client.stream.write_all(&option(1, b"disk")).unwrap();
    client.read(10);
    assert_eq!(client.read_at(0, 512).unwrap(), vec![0; 512]);
    // A write of 40 MiB is read over and refused; the connection survives.
    assert_eq!(client.write(0, 0, &vec![1; 40 << 20]), 22);
    assert_eq!(client.call(READ, 0, 0, 1 << 31), 75);
    assert_eq!(client.call(READ, 0, u64::MAX - 511, 1024), 22);
    assert_eq!(client.call(WRITE_ZEROES, 0, u64::MAX - 511, u32::MAX - 511), 28);
    assert_eq!(client.read_at(0, 512).unwrap(), vec![0; 512]);
    neighbour.finish();
}

#[test]
fn announced_payloads_that_never_come_hold_little() {
    let fixture = Fixture::with_limits(Limits { stall_ns: 3_000_000_000, ..Limits::default() });
    let neighbour = Neighbour::start(&fixture);
    let length = fixture.volume.request_bytes_max();
    let liars: Vec<Client> = (0..32)
        .map(|_| {
            let mut client = Client::open(&fixture.socket, "disk");
            client.request(WRITE, 0, 0, length);
            client
        })
        .collect();
    // All the same, others read and write, even the largest requests; for a read of that size in one piece some liars have to go.
    let mut client = Client::open(&fixture.socket, "disk");
    assert_eq!(client.write(0, 0, &vec![9; length as usize]), 0);
    assert!(client.read_at(0, length).unwrap().iter().all(|byte| *byte == 9));
    drop(liars);
    drop(client);
    fixture.wait_connections(1);
    neighbour.finish();
}

#[test]
fn resets_with_64_reads_in_flight() {
    let fixture = Fixture::new();
    let neighbour = Neighbour::start(&fixture);
    for round in 0..100u64 {
        let mut client = Client::open(&fixture.socket, "disk");
        let requests: Vec<u8> = (0..64).flat_map(|cookie| header(READ, 0, cookie, (cookie + round) * 4096, 4096 << (cookie % 6))).collect();
        client.stream.write_all(&requests).unwrap();
        if round % 2 == 0 {
            // Some answers are on their way.
            client.read(16);
        }
        drop(client);
    }
    fixture.wait_connections(1);
    neighbour.finish();
    assert!(fixture.server().counters().broken > 0);
}

#[test]
fn resets_in_the_middle_of_payloads() {
    let fixture = Fixture::new();
    let neighbour = Neighbour::start(&fixture);
    for round in 0..100u64 {
        let mut client = Client::open(&fixture.socket, "disk");
        client.request(WRITE, 0, 0, 3 << 20);
        client.stream.write_all(&vec![1; (round * 30_011) as usize]).unwrap();
        drop(client);
    }
    fixture.wait_connections(1);
    neighbour.finish();
}

#[test]
fn noise_after_the_handshake_ends_only_its_own_connection() {
    let fixture = Fixture::new();
    let neighbour = Neighbour::start(&fixture);
    for seed in 0..100 {
        let random = &mut Random(seed);
        let mut client = Client::open(&fixture.socket, "disk");
        let mut bytes = header(random.below(10) as u16, random.below(32) as u16, 1, 4096 * random.below(1000), 4096);
        let noise = random.below(200) as usize;
        bytes.extend_from_slice(&random.bytes(noise));
        let at = random.below(bytes.len() as u64) as usize;
        bytes[at] = random.next() as u8;
        let _closed = client.stream.write_all(&bytes).is_err();
    }
    fixture.wait_connections(1);
    neighbour.finish();
}

#[test]
fn idle_handshakes_are_ended() {
    let limits = Limits { handshake_ns: 200_000_000, ..Limits::default() };
    let fixture = Fixture::with_limits(limits);
    let neighbour = Neighbour::start(&fixture);
    let mut silent = Client::connect(&fixture.socket);
    let mut halfway = Client::connect(&fixture.socket);
    halfway.stream.write_all(b"\0\0\0\x03IHAVEOPT\0\0").unwrap();
    assert!(silent.is_closed() && halfway.is_closed());
    assert_eq!(fixture.server().counters().handshakes_failed, 2);
    neighbour.finish();
}

/// Once 112 idle handshakes, and every other limit on connections before, kept all others out until their patience ended.
#[test]
fn idle_handshakes_keep_nobody_out() {
    let fixture = Fixture::new();
    let neighbour = Neighbour::start(&fixture);
    let limits = Limits::default();
    let mut idle: Vec<Client> = (0..3 * limits.handshakes_max)
        .map(|round| {
            let mut client = Client::connect(&fixture.socket);
            if round % 2 == 0 {
                client.stream.write_all(b"\0\0\0\x03IHAVEOPT\0\0").unwrap();
            }
            client
        })
        .collect();
    let mut good = Client::open(&fixture.socket, "disk");
    assert_eq!(good.read_at(0, 512).unwrap(), vec![0; 512]);
    // They are all of one user, who has three quarters of the handshakes; the oldest went first.
    let stay = limits.handshakes_max / 4 * 3;
    let gone = idle.len() - stay;
    assert!(idle[..gone].iter_mut().all(Client::is_closed));
    let counters = fixture.server().counters();
    // The good client was one of them when it came.
    assert_eq!(counters.gave_way as usize, gone + 1);
    assert_eq!(counters.turned_away, 0);
    // The youngest still have their turn.
    let youngest = idle.last_mut().unwrap();
    youngest.flags();
    youngest.go("disk").unwrap();
    assert_eq!(youngest.read_at(0, 512).unwrap(), vec![0; 512]);
    neighbour.finish();
}

/// `NBD_REP_ERR_POLICY`.
const POLICY: u32 = (1 << 31) + 2;

#[test]
fn one_client_too_many_is_told_and_may_come_again() {
    let fixture = Fixture::with_limits(Limits { connections_max: 4, ..Limits::default() });
    let mut clients: Vec<Client> = (0..4).map(|_| Client::open(&fixture.socket, "disk")).collect();
    let mut fifth = Client::connect(&fixture.socket);
    fifth.flags();
    let (kind, sentence) = fifth.go("disk").unwrap_err();
    assert_eq!(kind, POLICY);
    assert!(sentence.contains("4 connections") && sentence.contains("try again"), "{sentence}");
    // The old way to choose an export has no answer but the end of the connection.
    let mut sixth = Client::connect(&fixture.socket);
    sixth.flags();
    sixth.stream.write_all(&option(1, b"disk")).unwrap();
    assert!(sixth.is_closed());
    assert_eq!(fixture.server().counters().turned_away, 2);
    for client in &mut clients {
        assert_eq!(client.read_at(0, 4096).unwrap().len(), 4096);
    }
    drop(clients.pop());
    wait_until("a place is free", || fifth.go("disk").is_ok());
    assert_eq!(fifth.read_at(0, 4096).unwrap().len(), 4096);
}

#[test]
fn one_peer_cannot_take_all_places() {
    let fixture = Fixture::new();
    let limits = Limits { connections_max: 4, connections_per_peer_max: 3, ..Limits::default() };
    let server = serve(fixture.runtime(), &ListenSpec::Tcp("127.0.0.1:0".parse().unwrap()), limits, &["disk"]).unwrap();
    server.add_export("disk", fixture.volume.clone(), ExportOptions::default()).unwrap();
    let address = server.uri("disk").trim_start_matches("nbd://").trim_end_matches("/disk").parse().unwrap();
    let open = |from: [u8; 4]| {
        let mut client = Client::connect_from(from.into(), address);
        client.flags();
        client.go("disk").map(|()| client)
    };
    let greedy: Vec<Client> = (0..3).map(|_| open([127, 0, 0, 1]).unwrap()).collect();
    let (kind, sentence) = open([127, 0, 0, 1]).err().expect("its share is used up");
    assert!(kind == POLICY && sentence.contains("you already have 3 connections"), "{sentence}");
    let mut other = open([127, 0, 0, 2]).unwrap();
    assert_eq!(other.read_at(0, 512).unwrap(), vec![0; 512]);
    let (kind, sentence) = open([127, 0, 0, 3]).err().expect("all places are taken");
    assert!(kind == POLICY && sentence.contains("this server already has 4 connections"), "{sentence}");
    drop((greedy, other));
    server.stop(fixture.runtime(), PATIENCE).unwrap();
}

#[test]
fn slow_readers_hold_little_and_are_ended() {
    let limits = Limits { stall_ns: 300_000_000, ..Limits::default() };
    let fixture = Fixture::with_limits(limits);
    let neighbour = Neighbour::start(&fixture);
    let length = fixture.volume.request_bytes_max();
    let mut slow: Vec<Client> = (0..8)
        .map(|_| {
            let mut client = Client::open(&fixture.socket, "disk");
            (0..20).for_each(|_| _ = client.request(READ, 0, 0, length.min(4 << 20)));
            client
        })
        .collect();
    // Half of the pages for all of them, a little for each, and what the neighbour uses.
    let pages = fixture.runtime().pages();
    let allowed = pages.pages_max() / 2 + pages.pages_max() / 8;
    let mut most = 0;
    wait_until("the stalls are seen", || {
        most = most.max(pages.pages_out());
        fixture.server().counters().stalled == 8
    });
    assert!(most > 0 && most <= allowed, "{most} pages held, {allowed} allowed");
    for client in &mut slow {
        // What lies in the socket's buffer can be read, then comes the end, long before 20 answers.
        assert!(client.is_closed());
    }
    neighbour.finish();
}

/// A server elsewhere wrote a log line for each client that connected and closed, another looped at the end of its input.
#[test]
fn connecting_and_closing_leaves_nothing_behind() {
    let fixture = Fixture::new();
    let neighbour = Neighbour::start(&fixture);
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    fixture.wait_connections(1);
    for _ in 0..1000 {
        drop(UnixStream::connect(&fixture.socket).unwrap());
    }
    fixture.wait_connections(1);
    wait_until("all were accepted", || fixture.server().counters().accepted == 1001);
    fixture.wait_connections(1);
    // Tests beside this one open some of their own; a thousand would be ours.
    assert!(descriptors() < 500, "{} descriptors are open", descriptors());
    neighbour.finish();
}
