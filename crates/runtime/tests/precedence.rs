//! A reactor runs before ordinary threads while it has little to do, and as one of them while it has much (`reactor/precedence.rs`).
//! A file of its own, since it looks for its reactor among the threads of the process.

#[path = "all/common/mod.rs"]
mod common;

use common::{Scripted, Wake, one_request, open, request};
use engine::api::Op;
use runtime::{BareVolumeOptions, Context, Precedence, Runtime, RuntimeOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// The kernel's number of the thread called `reactor-0`.
fn reactor() -> libc::pid_t {
    let threads = std::fs::read_dir("/proc/self/task").expect("the list of threads");
    let named =
        threads.flatten().find(|thread| std::fs::read_to_string(thread.path().join("comm")).is_ok_and(|name| name.trim() == "reactor-0"));
    named.expect("a reactor").file_name().to_str().expect("digits").parse().expect("a number")
}

/// Whether a thread is one of real time.
fn goes_first(thread: libc::pid_t) -> bool {
    // SAFETY: no memory is involved.
    let policy = unsafe { libc::sched_getscheduler(thread) };
    assert!(policy >= 0, "{}", std::io::Error::last_os_error());
    policy != libc::SCHED_OTHER
}

/// Whether a thread's I/O has the class of ordinary threads' (2, best effort: ioprio_set(2)), and not that of real-time ones'.
fn io_goes_with_the_rest(thread: libc::pid_t) -> bool {
    // SAFETY: no memory is involved; 1 says that the number is a thread's.
    unsafe { libc::syscall(libc::SYS_ioprio_get, 1, thread) >> 13 == 2 }
}

/// Waits for something that is sure to come, and calls `meanwhile` in between.
fn until(what: &str, mut meanwhile: impl FnMut(), is_so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "after a minute it is not so: {what}");
        meanwhile();
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_reactor_goes_first_while_it_has_little_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let options = RuntimeOptions { reactors: 1, real_time: true, ..RuntimeOptions::default() };
    let runtime = Runtime::start(options.clone()).expect("the runtime starts");
    if runtime.standing().precedence != Precedence::RealTime {
        eprintln!("skipped: reactors run here {}", runtime.standing().precedence);
        runtime.shutdown(PATIENCE).unwrap();
        return;
    }
    let device = open(&runtime, &directory.path().join("disk"), 1 << 20, None);
    let volume = runtime.add_bare_volume(&device, BareVolumeOptions { name: "bare".into(), read_only: false }).unwrap();
    let thread = reactor();
    let read = || assert_eq!(one_request(&runtime, &volume, |_| request(1, Op::Read, 0, 8)).result, Ok(()));
    until("a read now and then is little to do", read, || goes_first(thread));
    assert!(io_goes_with_the_rest(thread), "the disk is another matter: a file system's journal waits behind real-time I/O");

    // A client that takes a millisecond of the reactor's time for each reply, again and again.
    let enough = Arc::new(AtomicBool::new(false));
    let (asked, target) = (enough.clone(), volume.clone());
    let client = runtime.add_endpoint(Box::new(Scripted(move |cx: &mut Context<'_>, wake| match wake {
        Wake::Start => cx.submit(&target, request(1, Op::Read, 0, 8)).expect("below the limit"),
        Wake::Reply(_) if asked.load(Ordering::Relaxed) => cx.close(),
        Wake::Reply(_) => {
            let end = Instant::now() + Duration::from_millis(1);
            while Instant::now() < end {}
            cx.submit(&target, request(1, Op::Read, 0, 8)).expect("below the limit");
        }
        _ => {}
    })));
    until("all of a processor is much to do", || {}, || !goes_first(thread));

    enough.store(true, Ordering::Relaxed);
    until("a read now and then is little to do once more", read, || client.is_empty() && goes_first(thread));
    runtime.shutdown(PATIENCE).unwrap();

    let ordinary = Runtime::start(RuntimeOptions { real_time: false, ..options }).expect("the runtime starts");
    let device = open(&ordinary, &directory.path().join("disk"), 1 << 20, None);
    let volume = ordinary.add_bare_volume(&device, BareVolumeOptions { name: "bare".into(), read_only: false }).unwrap();
    for _ in 0..50 {
        assert_eq!(one_request(&ordinary, &volume, |_| request(1, Op::Read, 0, 8)).result, Ok(()));
        assert!(!goes_first(reactor()), "nobody asked for it");
        std::thread::sleep(Duration::from_millis(1));
    }
    ordinary.shutdown(PATIENCE).unwrap();
}
