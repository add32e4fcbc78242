//! A server leaves its socket and its clients to another one: clients see a pause, and nothing is
//! lost, answered twice, or begun by the one and not ended by the other.

use crate::common::client::{Client, READ, WRITE, header, option};
use crate::common::{Fixture, Neighbour, VOLUME_BYTES, open_volume, wait_until};
use nbd::{ExportOptions, Left, Limits, serve_again};
use std::io::Write;
use std::time::Duration;

/// How long a client may take to end what it has begun.
const PATIENCE: Duration = Duration::from_secs(120);
const EXPORT_NAME: u32 = 1;
const ERR_UNKNOWN: u32 = (1 << 31) + 6;

fn leave(fixture: &mut Fixture) -> Left {
    let server = fixture.server.take().expect("it serves");
    server.leave(fixture.runtime(), PATIENCE).expect("it ends").expect("there are descriptors")
}

/// Another server on the same socket; gives how many clients it goes on with.
fn go_on(fixture: &mut Fixture, left: Left) -> usize {
    go_on_after(fixture, left, Duration::ZERO)
}

/// The same; its export comes `gap` after the server.
fn go_on_after(fixture: &mut Fixture, left: Left, gap: Duration) -> usize {
    let server = serve_again(fixture.runtime(), &fixture.socket, Limits::default(), (left.listener, &left.state), &["disk"]);
    let server = server.expect("the socket is free");
    // Whoever has waited is greeted now, before the export is there.
    std::thread::sleep(gap);
    server.add_export("disk", fixture.volume.clone(), ExportOptions::default()).expect("a new name");
    let clients = left.clients.len();
    for client in left.clients {
        assert_eq!(client.export, "disk");
        server.resume(fixture.runtime(), client.socket, &client.state).expect("resumed");
    }
    fixture.server = Some(server);
    clients
}

#[test]
fn busy_clients_do_not_notice() {
    let mut fixture = Fixture::new();
    // All of them work in the same place, one after the other within each request of it.
    let neighbour = Neighbour::start(&fixture);
    for round in 0..20 {
        std::thread::sleep(Duration::from_millis(20 + round * 3));
        let left = leave(&mut fixture);
        assert_eq!(go_on(&mut fixture, left), 1);
    }
    neighbour.finish();
}

/// The next server leaves before it has begun with its clients.
#[test]
fn who_is_left_again_at_once_is_not_lost() {
    let mut fixture = Fixture::new();
    let mut client = Client::open(&fixture.socket, "disk");
    for round in 0..200 {
        let left = leave(&mut fixture);
        assert_eq!(go_on(&mut fixture, left), 1, "round {round}");
    }
    client.stream.write_all(&header(READ, 0, 7, 0, 512)).expect("the server reads");
    assert_eq!(client.reply(), (7, 0));
}

#[test]
fn many_requests_sent_at_once_are_all_answered_once() {
    let mut fixture = Fixture::new();
    let mut client = Client::open(&fixture.socket, "disk");
    let requests = 3000_u64;
    let mut writer = client.stream.try_clone().expect("a descriptor");
    let sender = std::thread::spawn(move || {
        let data = [7; 512];
        for cookie in 0..requests {
            let (kind, offset) = if cookie % 3 == 0 { (READ, 0) } else { (WRITE, 512 * (cookie % 4096)) };
            writer.write_all(&header(kind, 0, cookie, offset, 512)).expect("the server reads");
            if kind == WRITE {
                writer.write_all(&data).expect("the server reads");
            }
        }
    });
    let mut seen = vec![false; requests as usize];
    let mut answered = 0;
    let mut answer = |client: &mut Client, count: u64| {
        for _ in 0..count {
            let (cookie, error) = client.reply();
            assert_eq!(error, 0);
            assert!(!std::mem::replace(&mut seen[cookie as usize], true), "{cookie} was answered twice");
            if cookie % 3 == 0 {
                client.read(512);
            }
        }
        answered += count;
    };
    for _ in 0..10 {
        answer(&mut client, 200);
        // Answers leave while nobody reads them: the socket takes a few hundred.
        let left = leave(&mut fixture);
        assert_eq!(go_on(&mut fixture, left), 1);
    }
    answer(&mut client, requests - 2000);
    sender.join().expect("all is sent");
    assert!(seen.iter().all(|seen| *seen));
}

#[test]
fn a_request_that_came_in_part_is_ended_by_whoever_gets_the_rest() {
    let mut fixture = Fixture::new();
    let mut client = Client::open(&fixture.socket, "disk");
    let whole = header(WRITE, 0, 99, 8192, 4096);
    // Half of a header: the next server gets the rest.
    client.stream.write_all(&whole[..11]).expect("the server reads");
    wait_until("it has come", || !has_input(&client));
    let left = leave(&mut fixture);
    assert_eq!(go_on(&mut fixture, left), 1);
    client.stream.write_all(&whole[11..]).expect("the server reads");
    // Half of its data: this server waits for the rest.
    client.stream.write_all(&[5; 1000]).expect("the server reads");
    wait_until("it has come", || !has_input(&client));
    let mut writer = client.stream.try_clone().expect("a descriptor");
    let rest = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        writer.write_all(&[5; 3096]).expect("the server reads");
    });
    let left = leave(&mut fixture);
    rest.join().expect("sent");
    assert_eq!(go_on(&mut fixture, left), 1);
    assert_eq!(client.reply(), (99, 0));
    assert_eq!(client.read_at(8192, 4096).expect("it is there"), [5; 4096]);
}

/// Whether bytes that the client has sent wait in the socket.
fn has_input(client: &Client) -> bool {
    unsent(client) > 0
}

/// Bytes that the other end has not received (`SIOCOUTQ`).
fn unsent(client: &Client) -> i32 {
    use std::os::fd::AsRawFd;
    let mut bytes = 0i32;
    // SAFETY: the kernel writes a number, for which there is room.
    assert_eq!(unsafe { libc::ioctl(client.stream.as_raw_fd(), libc::TIOCOUTQ, &mut bytes) }, 0);
    bytes
}

#[test]
fn who_connects_meanwhile_waits() {
    let mut fixture = Fixture::new();
    let left = leave(&mut fixture);
    let socket = fixture.socket.clone();
    let late = std::thread::spawn(move || {
        let mut client = Client::open(&socket, "disk");
        client.write(0, 0, &[1; 512])
    });
    std::thread::sleep(Duration::from_millis(200));
    assert!(!late.is_finished());
    assert_eq!(go_on_after(&mut fixture, left, Duration::from_millis(200)), 0);
    assert_eq!(late.join().expect("no panic"), 0);
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut fixture = Fixture::new();
    let mut clients: Vec<Client> = (0..3).map(|_| Client::open(&fixture.socket, "disk")).collect();
    let Left { listener, state, clients: parked } = leave(&mut fixture);
    let server = serve_again(fixture.runtime(), &fixture.socket, Limits::default(), (listener, &state), &[]);
    let server = server.expect("the socket is free");
    let [gone, nonsense, shrunk] = <[nbd::Parked; 3]>::try_from(parked).expect("three clients");
    let told = server.resume(fixture.runtime(), gone.socket, &gone.state).expect_err("no such export");
    assert!(told.contains("no export named 'disk'"), "{told}");
    let volume = open_volume(fixture.runtime(), &fixture.dir, "other.img");
    server.add_export("disk", volume, ExportOptions::default()).expect("a new name");
    let told = server.resume(fixture.runtime(), nonsense.socket, b"????").expect_err("no state");
    assert!(told.contains("another version"), "{told}");
    let mut larger = shrunk.state.clone();
    larger[5..13].copy_from_slice(&(VOLUME_BYTES + 512).to_be_bytes());
    let told = server.resume(fixture.runtime(), shrunk.socket, &larger).expect_err("too small now");
    assert!(told.contains("smaller"), "{told}");
    assert!(clients.iter_mut().all(Client::is_closed));
    fixture.server = Some(server);
}

/// A socket that somebody else has made in the place of the one that was left.
#[test]
fn a_path_that_is_anothers_by_now_is_not_taken() {
    let mut fixture = Fixture::new();
    let left = leave(&mut fixture);
    std::fs::remove_file(&fixture.socket).expect("it was left");
    let others = std::os::unix::net::UnixListener::bind(&fixture.socket).expect("the name is free");
    let again = serve_again(fixture.runtime(), &fixture.socket, Limits::default(), (left.listener, &left.state), &[]);
    assert!(matches!(again, Err(nbd::ListenError::InUse(_))));
    drop(others);
    std::fs::remove_file(&fixture.socket).expect("it was the other's");
    let server = nbd::serve(fixture.runtime(), &nbd::ListenSpec::unix(&fixture.socket), Limits::default(), &[]);
    fixture.server = Some(server.expect("the name is free"));
}

/// One export is suspended and comes back; its clients do not notice, and those of another are not touched.
#[test]
fn a_suspended_export_takes_its_own_clients_along_and_no_others() {
    let mut fixture = Fixture::new();
    let other = open_volume(fixture.runtime(), &fixture.dir, "other.img");
    fixture.server().add_export("other", other, ExportOptions::default()).expect("a new name");
    let mut beside = Client::open(&fixture.socket, "other");
    let neighbour = Neighbour::start(&fixture);
    let mut idle = Client::open(&fixture.socket, "disk");
    for round in 0..20_u64 {
        std::thread::sleep(Duration::from_millis(10 + round * 3));
        let left = fixture.server().suspend_export(fixture.runtime(), "disk", PATIENCE).expect("it is there");
        assert!(left.all_gone);
        assert_eq!(left.clients.len(), 2, "round {round}");
        assert_eq!(fixture.server().counters().connections, 1, "the other's is there");
        assert_eq!(beside.write(0, round * 512, &[7; 512]), 0, "and it is served");
        // A request that comes meanwhile is answered later.
        idle.stream.write_all(&header(READ, 0, round, 0, 512)).expect("it waits in the socket");
        fixture.server().add_export("disk", fixture.volume.clone(), ExportOptions::default()).expect("it is away");
        for client in left.clients {
            fixture.server().resume(fixture.runtime(), client.socket, &client.state).expect("resumed");
        }
        assert_eq!(idle.reply(), (round, 0));
        idle.read(512);
    }
    neighbour.finish();
    // One that owes the rest of a request does not hold the others up for ever.
    idle.stream.write_all(&header(WRITE, 0, 99, 0, 4096)).expect("the server reads");
    wait_until("it has come", || !has_input(&idle));
    let left = fixture.server().suspend_export(fixture.runtime(), "disk", Duration::from_millis(50)).expect("it is there");
    assert_eq!((left.clients.len(), left.all_gone), (0, true));
    assert!(fixture.server().suspend_export(fixture.runtime(), "disk", PATIENCE).is_err(), "once");
    assert_eq!(beside.write(0, 0, &[8; 512]), 0);
    drop((idle, beside));
    assert!(fixture.stop());
}

/// A client that has asked for an export and waits: its request was read.
fn waiting(fixture: &Fixture, name: &str) -> Client {
    let mut client = Client::connect(&fixture.socket);
    client.flags();
    client.stream.write_all(&option(EXPORT_NAME, name.as_bytes())).expect("the server reads");
    wait_until("it was read", || !has_input(&client));
    client
}

/// The server has told it that it has the export.
fn has_it(client: &mut Client) {
    client.read(10);
    assert_eq!(client.write(0, 0, &[9; 512]), 0);
}

fn other(fixture: &Fixture) {
    let other = open_volume(fixture.runtime(), &fixture.dir, "other.img");
    fixture.server().add_export("other", other, ExportOptions::default()).expect("a new name");
}

#[test]
fn who_asks_for_an_export_that_is_away_waits_for_it() {
    let fixture = Fixture::new();
    for round in 0..10 {
        let left = fixture.server().suspend_export(fixture.runtime(), "disk", PATIENCE).expect("it is there");
        // By its name, and by none: it is the only one.
        let mut clients: Vec<Client> = ["disk", "", "disk"].map(|name| waiting(&fixture, name)).into();
        let mut with_go = Client::connect(&fixture.socket);
        with_go.flags();
        let asks = std::thread::spawn(move || with_go.go("disk").map(|()| with_go));
        if round % 2 == 0 {
            std::thread::sleep(Duration::from_millis(30));
        }
        fixture.server().add_export("disk", fixture.volume.clone(), ExportOptions::default()).expect("it is away");
        clients.iter_mut().for_each(has_it);
        clients.push(asks.join().expect("no panic").expect("it is back"));
        assert_eq!(clients[3].write(0, 0, &[9; 512]), 0);
        assert_eq!(left.clients.len(), 0);
        drop(clients);
        fixture.wait_connections(0);
    }
    assert_eq!(fixture.server().counters().handshakes_failed, 0);
    // The same before it comes for the first time.
    fixture.server().expect_export("other");
    let mut client = waiting(&fixture, "other");
    other(&fixture);
    has_it(&mut client);
}

#[test]
fn who_waits_in_vain_is_told_why() {
    let fixture = Fixture::with_limits(Limits { absence_ns: 300_000_000, ..Limits::default() });
    let left = fixture.server().suspend_export(fixture.runtime(), "disk", PATIENCE).expect("it is there");
    assert!(left.all_gone);
    let mut client = Client::connect(&fixture.socket);
    client.flags();
    let (kind, told) = client.go("disk").expect_err("it does not come");
    assert_eq!(kind, ERR_UNKNOWN);
    assert!(told.contains("the export disk is away, and has not come back in time"), "{told}");
    // It has waited: from now on it is told at once, and gets what is there.
    assert_eq!(client.go("disk").expect_err("it does not come").0, ERR_UNKNOWN);
    other(&fixture);
    client.go("other").expect("it is there");
    assert!(waiting(&fixture, "disk").is_closed(), "this option has no error");
    // Nobody expects it any more.
    fixture.server().forget_absent(|name, _| name != "disk");
    let mut late = Client::connect(&fixture.socket);
    late.flags();
    assert_eq!(late.go("disk").expect_err("it is gone"), (ERR_UNKNOWN, "no such export".into()));
}

/// They are handshakes as others: at the limit the oldest gives way.
#[test]
fn those_who_wait_keep_nobody_out() {
    let hour_ns = 3_600_000_000_000;
    let limits = Limits { handshakes_max: 8, absence_ns: hour_ns, handshake_ns: hour_ns, ..Limits::default() };
    let fixture = Fixture::with_limits(limits);
    other(&fixture);
    let left = fixture.server().suspend_export(fixture.runtime(), "disk", PATIENCE).expect("it is there");
    assert!(left.all_gone);
    // Far more than there are places for handshakes and for those that leave.
    let mut crowd: Vec<Client> = (0..100).map(|_| waiting(&fixture, "disk")).collect();
    let mut beside = Client::open(&fixture.socket, "other");
    assert_eq!(beside.write(0, 0, &[1; 512]), 0);
    // Those that gave way are gone, and so is one that leaves by itself.
    wait_until("they end", || fixture.server().counters().connections <= 8);
    let counters = fixture.server().counters();
    assert!(counters.gave_way >= 92 && counters.turned_away == 0, "{counters:?}");
    assert!(crowd[0].is_closed());
    let mut last = crowd.pop().expect("a hundred");
    drop(crowd);
    wait_until("they end", || fixture.server().counters().connections == 2);
    fixture.server().add_export("disk", fixture.volume.clone(), ExportOptions::default()).expect("it is away");
    has_it(&mut last);
}
