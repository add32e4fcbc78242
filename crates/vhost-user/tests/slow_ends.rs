//! Descriptors that a front end gives and whose end takes long: a TCP socket that waits until its data is taken.
//! A file of its own, since it counts the threads of the process.

#[path = "all/common/mod.rs"]
mod common;

use common::{PATIENCE, Stage};
use guest::{Guest, Kind, Options};
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, socket_with,
};
use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Longer than anything is waited for here.
const LINGER: Duration = Duration::from_secs(600);

/// A socket whose end takes long, and what ends it.
fn slow(listener: &TcpListener) -> (TcpStream, TcpStream) {
    let mut slow = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
    let (end, _) = listener.accept().expect("accepted");
    slow.set_nonblocking(true).expect("a socket");
    while slow.write(&[0; 65536]).is_ok() {}
    slow.set_nonblocking(false).expect("a socket");
    set_socket_linger(&slow, Some(LINGER)).expect("a socket");
    (slow, end)
}

/// Connects, unless the queue of those who wait to be accepted is full.
fn connect(stage: &Stage) -> Option<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK, None).expect("a socket");
    match rustix::net::connect(&socket, &SocketAddrUnix::new(stage.socket()).expect("short")) {
        Ok(()) => {}
        Err(rustix::io::Errno::AGAIN) => return None,
        Err(error) => panic!("{error}"),
    }
    let socket = UnixStream::from(socket);
    socket.set_nonblocking(false).expect("a socket");
    Some(socket)
}

/// Gives it away as the channel on which the device says something by itself.
fn give(mut socket: &UnixStream, slow: TcpStream) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let all = [slow.as_fd()];
    ancillary.push(SendAncillaryMessage::ScmRights(&all));
    let message = [21u32, 1, 0].map(u32::to_ne_bytes).concat();
    // It holds the last one when the message is whole.
    rustix::net::sendmsg(socket, &[IoSlice::new(&message[..4])], &mut ancillary, SendFlags::NOSIGNAL).expect("sent");
    drop(slow);
    socket.write_all(&message[4..]).expect("sent");
}

fn is_served(stage: &Stage) -> bool {
    let (path, (told, hears)) = (stage.socket(), std::sync::mpsc::channel());
    std::thread::spawn(move || {
        let mut guest = Guest::start(&path, Options::default()).expect("a guest");
        let status = guest.queues[0].run(Kind::Write as u32, 0, &mut [1; 4096], false, PATIENCE);
        told.send(status).expect("somebody waits");
    });
    hears.recv_timeout(PATIENCE) == Ok(0)
}

fn threads() -> usize {
    let names = std::fs::read_dir("/proc/self/task").expect("threads").flatten();
    let name = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
    names.map(name).filter(|name| name.trim() == "vhost-volume").count()
}

#[test]
fn descriptors_that_take_long_to_end_stop_nobody() {
    let stage = Stage::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
    let mut ends = Vec::new();
    for _ in 0..4 {
        let socket = UnixStream::connect(stage.socket()).expect("connected");
        let (slow, end) = slow(&listener);
        give(&socket, slow);
        ends.push(end);
        // The front end goes.
        drop(socket);
    }
    assert!(is_served(&stage), "who gave them keeps others waiting");
    assert!(stage.export().user().is_none_or(|user| user.contains("process")));
    // However many there are, they have so many threads and no more; others wait to be accepted.
    let mut waiting = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while threads() < 64 {
        assert!(Instant::now() < deadline, "{} threads", threads());
        // On a busy machine more come than are accepted meanwhile.
        if let Some(socket) = connect(&stage) {
            let (slow, end) = slow(&listener);
            give(&socket, slow);
            ends.push(end);
            waiting.push(socket);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    for _ in 0..8 {
        waiting.extend(connect(&stage));
        std::thread::sleep(Duration::from_millis(20));
        assert!(threads() <= 64, "{} threads", threads());
    }
    drop(waiting);
    // What was not taken is thrown away, and all end.
    drop(ends);
    assert!(is_served(&stage));
}
