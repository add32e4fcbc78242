//! A reactor with nothing to do sleeps; one with too much to do makes endpoints wait, and loses nobody.

use crate::common::{SIZE_SECTORS, Scripted, Wake, data_of, fill, hammer, one_request, open, request};
use engine::api::Op;
use io_uring::{opcode, types::Fd};
use runtime::{BareVolumeOptions, Context, Runtime, RuntimeOptions, VolumeRef};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

fn start(options: RuntimeOptions, directory: &Path) -> (Runtime, VolumeRef) {
    let runtime = Runtime::start(options).expect("the runtime starts");
    let device = open(&runtime, &directory.join("disk"), SIZE_SECTORS * 512, None);
    let volume = runtime.add_bare_volume(&device, BareVolumeOptions { name: "bare".into(), read_only: false }).unwrap();
    (runtime, volume)
}

/// CPU time of the process, in nanoseconds.
fn cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid place to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[test]
fn an_idle_runtime_makes_no_turns() {
    let directory = tempfile::tempdir().unwrap();
    let (runtime, volume) = start(RuntimeOptions { reactors: 2, ..RuntimeOptions::default() }, directory.path());
    hammer(&runtime, &volume, 3, 50).recv_timeout(PATIENCE).unwrap();
    let before = (runtime.turns(), cpu_ns());
    std::thread::sleep(Duration::from_millis(300));
    let after = (runtime.turns(), cpu_ns());
    println!("CPU time over 300 ms of idleness (all tests of this process): {} ns", after.1 - before.1);
    // The last replies' turns may end after the first look; polling would make hundreds.
    assert!(after.0 - before.0 <= 4, "{} turns while idle", after.0 - before.0);
    runtime.shutdown(PATIENCE).unwrap();
}

#[test]
fn few_pages_hold_endpoints_back_and_nobody_is_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    // The largest requests here need 26 pages, and 32 of them would like to be in flight for each of three clients.
    let (runtime, _) = start(RuntimeOptions { reactors: 2, io_pages: 288, ..RuntimeOptions::default() }, directory.path());
    let volumes: Vec<VolumeRef> = (0..3)
        .map(|number| {
            let device = open(&runtime, &directory.path().join(format!("other{number}")), SIZE_SECTORS * 512, None);
            runtime.add_bare_volume(&device, BareVolumeOptions { name: "other".into(), read_only: false }).unwrap()
        })
        .collect();
    let ends: Vec<_> = volumes.iter().zip(40..).map(|(volume, seed)| hammer(&runtime, volume, seed, 3000)).collect();
    for end in ends {
        end.recv_timeout(PATIENCE).expect("every client ends");
    }
    assert_eq!(runtime.pages().pages_out(), 0);
    runtime.shutdown(PATIENCE).unwrap();
}

#[test]
fn the_limit_of_requests_refuses_and_calls_back() {
    let directory = tempfile::tempdir().unwrap();
    let (runtime, volume) = start(RuntimeOptions { reactors: 1, in_flight_max: 4, ..RuntimeOptions::default() }, directory.path());
    const REQUESTS: u64 = 500;
    let ends: Vec<mpsc::Receiver<u64>> = (0..2)
        .map(|_| {
            let (end, receiver) = mpsc::channel();
            let (volume, mut sent, mut answered, mut refused) = (volume.clone(), 0, 0, 0);
            runtime.add_endpoint(Box::new(Scripted(move |cx: &mut Context<'_>, wake| {
                if let Wake::Reply(reply) = &wake {
                    assert_eq!(reply.result, Ok(()));
                    answered += 1;
                }
                // As a connection does: after a refusal it sends nothing until it is called.
                while sent < REQUESTS && matches!(wake, Wake::Start | Wake::VolumeAvailable) {
                    if cx.submit(&volume, request(sent, Op::Read, sent % 100 * 8, 8)).is_err() {
                        refused += 1;
                        break;
                    }
                    sent += 1;
                }
                if answered == REQUESTS {
                    end.send(refused).unwrap();
                    cx.close();
                }
            })));
            receiver
        })
        .collect();
    let refused: u64 = ends.iter().map(|end| end.recv_timeout(PATIENCE).expect("every client ends")).sum();
    let stats = runtime.stats(&volume).unwrap();
    assert_eq!((stats.reads, stats.limit_waits, stats.in_flight), (2 * REQUESTS, refused, 0));
    assert!(refused >= REQUESTS / 4, "{refused}");
    runtime.shutdown(PATIENCE).unwrap();
}

/// A connection in small: echoes bytes of a socket through the ring, and answers `stop` by closing.
#[test]
fn endpoints_use_the_ring_and_timers_and_are_dropped_when_drained() {
    let directory = tempfile::tempdir().unwrap();
    let (runtime, volume) = start(RuntimeOptions { reactors: 2, ..RuntimeOptions::default() }, directory.path());
    let (mut client, server) = UnixStream::pair().unwrap();
    let mut buffer = vec![0u8; 16].into_boxed_slice();
    let (timer_fired, timer) = mpsc::channel();
    let fd = Fd(server.as_raw_fd());
    let group = runtime.add_endpoint(Box::new(Scripted(move |cx: &mut Context<'_>, wake| {
        let _held_open = &server;
        let receive = opcode::Recv::new(fd, buffer.as_mut_ptr(), 16).build();
        match wake {
            Wake::Start => {
                cx.set_timer(cx.now_ns() + 1_000_000, 5);
                cx.set_timer(cx.now_ns() + 1_000_000, 6);
                cx.cancel_timer(6);
                // SAFETY: the buffer belongs to the endpoint, which lives until the entry has completed.
                unsafe { cx.push(receive, 1) };
            }
            Wake::Ring(1, bytes) if bytes > 0 => {
                let send = opcode::Send::new(fd, buffer.as_ptr(), bytes as u32).build();
                // SAFETY: as above; nothing is received before this is sent.
                unsafe { cx.push(send, 2) };
            }
            // SAFETY: as above.
            Wake::Ring(2, _) => unsafe { cx.push(receive, 1) },
            Wake::Timer(token) => timer_fired.send(token).unwrap(),
            // The receive that is under way is cancelled; only then is the buffer freed and the socket closed.
            Wake::Stop => cx.close(),
            _ => {}
        }
    })));
    for word in [b"one", b"two"] {
        client.write_all(word).unwrap();
        let mut echo = [0; 3];
        client.read_exact(&mut echo).unwrap();
        assert_eq!(&echo, word);
    }
    assert_eq!(timer.recv_timeout(PATIENCE), Ok(5));
    runtime.stop_endpoints(&group, PATIENCE).unwrap();
    assert!(group.is_empty());
    assert!(timer.try_recv().is_err(), "the cancelled timer did not fire");
    assert_eq!(client.read(&mut [0; 4]).unwrap(), 0, "the socket is closed");
    // An endpoint that does not react to `stop` is closed by force, though its request is answered later.
    let stubborn = runtime.add_endpoint(Box::new(Scripted(|_: &mut Context<'_>, _| {})));
    runtime.stop_endpoints(&stubborn, Duration::from_millis(10)).unwrap();
    let reply = one_request(&runtime, &volume, |_| request(1, Op::Read, 0, 8));
    assert_eq!(reply.result, Ok(()));
    runtime.shutdown(PATIENCE).unwrap();
}

#[test]
fn what_one_reactor_writes_the_other_reads() {
    let directory = tempfile::tempdir().unwrap();
    let (runtime, volume) = start(RuntimeOptions { reactors: 2, ..RuntimeOptions::default() }, directory.path());
    for round in 0..20u8 {
        let target = volume.clone();
        let written = one_request(&runtime, &volume, move |cx| {
            let pages = cx.allocate_pages(&target, 2).unwrap();
            request(1, Op::Write, 5, 8).fua(true).pages(fill(pages, 5, &[round; 8 * 512]))
        });
        assert_eq!(written.result, Ok(()));
        let read = one_request(&runtime, &volume, |_| request(2, Op::Read, 5, 8));
        assert_eq!(data_of(&read, 5, 8), [round; 8 * 512]);
    }
    runtime.shutdown(PATIENCE).unwrap();
}
