//! Exports come and go; sockets are made, replaced and removed as promised.

use crate::common::client::{Client, PATIENCE, READ, option};
use crate::common::{Fixture, VOLUME_BYTES, open_volume, wait_until};
use nbd::{ExportError, ExportOptions, Limits, ListenError, ListenSpec, serve};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn several_exports_on_one_socket_and_removal_of_one() {
    let fixture = Fixture::new();
    let server = fixture.server();
    let other = open_volume(fixture.runtime(), &fixture.dir, "other.img");
    server.add_export("other", other.clone(), ExportOptions { read_only: true, ..ExportOptions::default() }).unwrap();
    let again = server.add_export("other", other, ExportOptions::default());
    assert_eq!(again, Err(ExportError::Exists("other".into())));
    let mut first = Client::open(&fixture.socket, "disk");
    let mut second = Client::open(&fixture.socket, "other");
    assert_eq!(first.write(0, 0, &[1; 512]), 0);
    assert_eq!(second.write(0, 0, &[1; 512]), 1);
    assert_eq!(second.read_at(0, 512).unwrap(), vec![0; 512]);
    // Two exports: no default.
    let mut nameless = Client::connect(&fixture.socket);
    nameless.stream.write_all(&[0, 0, 0, 3]).unwrap();
    nameless.stream.write_all(&option(1, b"")).unwrap();
    assert!(nameless.is_closed());
    server.remove_export("other").unwrap();
    assert!(second.is_closed());
    assert_eq!(server.remove_export("other"), Err(ExportError::Unknown("other".into())));
    assert_eq!(first.read_at(0, 512).unwrap(), vec![1; 512]);
    assert_eq!(Client::open(&fixture.socket, "").read_at(0, 512).unwrap(), vec![1; 512]);
}

#[test]
fn removal_answers_what_is_in_flight() {
    let fixture = Fixture::new();
    let mut client = Client::open(&fixture.socket, "disk");
    (0..32).for_each(|block| _ = client.request(READ, 0, block * 4096, 4096));
    // The first answer shows that the requests have come.
    assert_eq!(client.reply().1, 0);
    client.read(4096);
    fixture.server().remove_export("disk").unwrap();
    assert!(client.is_closed());
    fixture.wait_connections(0);
    assert_eq!(fixture.server().counters().broken, 0);
}

#[test]
fn removal_does_not_wait_for_clients_that_do_not_read() {
    let fixture = Fixture::new();
    let mut client = Client::open(&fixture.socket, "disk");
    (0..32).for_each(|_| _ = client.request(READ, 0, 0, 1 << 20));
    client.read(16);
    fixture.server().remove_export("disk").unwrap();
    assert_eq!(fixture.server().counters().connections, 0);
    assert!(client.is_closed());
}

#[test]
fn a_socket_has_its_mode_and_goes_with_the_server() {
    let mut fixture = Fixture::new();
    let mode = std::fs::metadata(&fixture.socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    let mut idle = Client::open(&fixture.socket, "disk");
    let mut greeted = Client::connect(&fixture.socket);
    assert!(fixture.stop());
    assert!(idle.is_closed() && greeted.is_closed());
    assert!(!fixture.socket.exists());
}

/// A server elsewhere could be crashed by a client that connected while it stopped (CVE-2024-7409).
#[test]
fn stopping_races_with_clients_that_connect() {
    let fixture = Fixture::new();
    let path = fixture.dir.path().join("race.sock");
    for _ in 0..30 {
        let server = serve(fixture.runtime(), &ListenSpec::unix(&path), Limits::default(), &["disk"]).unwrap();
        server.add_export("disk", fixture.volume.clone(), ExportOptions::default()).unwrap();
        let stopped = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stopped.load(Ordering::Relaxed) {
                        // Refused, closed or served: each is right, hanging is not.
                        let Ok(mut stream) = UnixStream::connect(&path) else { continue };
                        stream.set_read_timeout(Some(PATIENCE)).unwrap();
                        if let Err(error) = stream.read_exact(&mut [0; 18]) {
                            assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "a client hangs");
                        }
                    }
                });
            }
            wait_until("clients come", || server.counters().accepted > 3);
            let result = server.stop(fixture.runtime(), PATIENCE);
            stopped.store(true, Ordering::Relaxed);
            result.unwrap();
        });
        assert!(!path.exists());
    }
}

#[test]
fn stale_sockets_are_replaced_and_live_ones_are_not() {
    let fixture = Fixture::new();
    let listen = |name: &str| {
        let spec = ListenSpec::unix(fixture.dir.path().join(name));
        serve(fixture.runtime(), &spec, Limits::default(), &[])
    };
    drop(UnixListener::bind(fixture.dir.path().join("stale")).unwrap());
    listen("stale").unwrap().stop(fixture.runtime(), PATIENCE).unwrap();
    let error = listen("nbd.sock").err().expect("somebody listens there");
    assert!(matches!(error, ListenError::InUse(_)), "{error}");
    assert_eq!(listen("disk.img").err().expect("a file").to_string().matches("is not a socket").count(), 1);
    assert!(matches!(listen(&"x".repeat(200)), Err(ListenError::System { .. })));
    assert!(matches!(listen("no/such/directory"), Err(ListenError::System { .. })));
    // The server that was there still serves.
    Client::open(&fixture.socket, "disk").read_at(0, 512).unwrap();
}

/// What others put where the lock file belongs: it is neither followed nor waited for.
#[test]
fn a_strange_lock_file_is_refused_at_once() {
    let fixture = Fixture::new();
    let at = |name: &str| fixture.dir.path().join(name);
    std::fs::write(at("others"), "").unwrap();
    std::os::unix::fs::symlink(at("others"), at("linked.lock")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, at("piped.lock"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    std::fs::create_dir(at("directory.lock")).unwrap();
    for name in ["linked", "piped", "directory"] {
        let error = serve(fixture.runtime(), &ListenSpec::unix(at(name)), Limits::default(), &[]).err().expect(name);
        assert!(matches!(error, ListenError::System { .. }) && error.to_string().contains(".lock"), "{error}");
        assert!(std::fs::symlink_metadata(at(&format!("{name}.lock"))).is_ok(), "it is still there");
    }
}

/// Of several that find the same stale socket at the same time one replaces it, and is not replaced by the others.
#[test]
fn of_several_that_find_a_stale_socket_one_gets_it() {
    let fixture = Fixture::new();
    let (path, lock) = (fixture.dir.path().join("raced.sock"), fixture.dir.path().join("raced.sock.lock"));
    for round in 0..20 {
        drop(UnixListener::bind(&path).unwrap());
        // Also what a killed server left of its lock is in nobody's way.
        std::fs::write(&lock, "").unwrap();
        let start = std::sync::Barrier::new(4);
        let servers: Vec<_> = std::thread::scope(|scope| {
            let serve_too = || {
                start.wait();
                serve(fixture.runtime(), &ListenSpec::unix(&path), Limits::default(), &[])
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(serve_too)).collect();
            threads.into_iter().filter_map(|thread| thread.join().unwrap().ok()).collect()
        });
        assert_eq!(servers.len(), 1, "round {round}");
        UnixStream::connect(&path).expect("the one that serves has the name");
        for server in servers {
            server.stop(fixture.runtime(), PATIENCE).unwrap();
        }
        assert!(!path.exists() && !lock.exists());
    }
}

#[test]
fn tcp_is_for_loopback_only() {
    let fixture = Fixture::new();
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:10809"] {
        let spec = ListenSpec::Tcp(address.parse().unwrap());
        let error = serve(fixture.runtime(), &spec, Limits::default(), &[]).err().expect(address);
        assert!(error.to_string().contains("not a loopback address"), "{error}");
    }
    let spec = ListenSpec::Tcp("127.0.0.1:0".parse().unwrap());
    let server = serve(fixture.runtime(), &spec, Limits::default(), &["disk"]).unwrap();
    server.add_export("disk", fixture.volume.clone(), ExportOptions::default()).unwrap();
    let uri = server.uri("disk");
    let address: SocketAddr = uri.trim_start_matches("nbd://").trim_end_matches("/disk").parse().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&[&[0, 0, 0, 3][..], &option(1, b"disk")].concat()).unwrap();
    let mut answer = [0; 18 + 10];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[18..26], VOLUME_BYTES.to_be_bytes());
    server.stop(fixture.runtime(), PATIENCE).unwrap();
}

#[test]
fn users_can_be_kept_out() {
    let fixture = Fixture::new();
    let server = fixture.server();
    server.remove_export("disk").unwrap();
    let own = rustix::process::geteuid().as_raw();
    let options = |uid| ExportOptions { allowed_uids: vec![uid], ..ExportOptions::default() };
    server.add_export("mine", fixture.volume.clone(), options(own)).unwrap();
    server.add_export("theirs", fixture.volume.clone(), options(own + 1)).unwrap();
    Client::open(&fixture.socket, "mine").read_at(0, 512).unwrap();
    let mut client = Client::connect(&fixture.socket);
    client.stream.write_all(&[&[0, 0, 0, 3][..], &option(3, b"")].concat()).unwrap();
    let list = client.read(20 + 8 + 20);
    assert_eq!(&list[20..28], b"\0\0\0\x04mine");
    client.stream.write_all(&option(1, b"theirs")).unwrap();
    assert!(client.is_closed());
}
