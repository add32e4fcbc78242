//! A `tgtd` that accepts nothing, answers nothing, half, or for ever; and one that is started anew.

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use targets::Tgtd;

/// Long enough for one that answers, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(2);
/// No test waits so long.
const NEVER: Duration = Duration::from_secs(3600);
/// What hangs is found after that.
const LIMIT: Duration = Duration::from_secs(120);

/// A server that does this with each connection; they are counted.
fn server(path: &Path, answer: impl Fn(UnixStream) + Send + 'static) -> Arc<AtomicU32> {
    let _ = std::fs::remove_file(path);
    let listener = UnixListener::bind(path).expect("free");
    let count = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&count);
    // It ends with the test.
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            counted.fetch_add(1, Ordering::SeqCst);
            answer(stream);
        }
    });
    count
}

/// Its answer has that many bytes, it says.
fn head(stream: &mut UnixStream, bytes: usize) {
    stream.read_exact(&mut [0; 120]).expect("an order");
    let _ = stream.write_all(&0_u32.to_ne_bytes());
    let _ = stream.write_all(&(8 + bytes as u32).to_ne_bytes());
}

fn hold(stream: UnixStream) {
    std::mem::forget(stream);
}

/// Fails where it hangs.
fn in_time<T: Send + 'static>(what: &str, call: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(call()));
    ended.recv_timeout(LIMIT).unwrap_or_else(|_| panic!("{what}: it hangs"))
}

fn hangs(what: &'static str, tgtd: &Tgtd) {
    let tgtd = tgtd.clone();
    let error = in_time(what, move || tgtd.answers()).expect_err(what);
    assert!(error.to_string().contains("does not answer"), "{what}: {error}");
    assert!(error.remedy().contains("systemctl status tgt"), "{what}: {}", error.remedy());
}

#[test]
fn one_that_hangs_is_waited_for_once_and_then_left_alone_for_a_while() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("s.0");
    type Answer = fn(UnixStream);
    let kinds: [(&str, Answer); 4] = [
        ("nothing", hold),
        ("half of the head", |mut stream| {
            let _ = stream.write_all(&[0; 4]);
            hold(stream);
        }),
        ("half", |mut stream| {
            head(&mut stream, 1000);
            let _ = stream.write_all(b"Target 1: iqn.x:y\n");
            hold(stream);
        }),
        ("for ever", |mut stream| {
            head(&mut stream, 1 << 20);
            std::thread::spawn(move || {
                while stream.write_all(b" ").is_ok() {
                    std::thread::sleep(Duration::from_millis(10));
                }
            });
        }),
    ];
    for (what, answer) in kinds {
        let count = server(&path, answer);
        let tgtd = Tgtd::at(&path).with_patience(PATIENCE, NEVER);
        (0..5).for_each(|_| hangs(what, &tgtd));
        assert_eq!(count.load(Ordering::SeqCst), 1, "{what}: asked once");
        // Started anew, it has another socket.
        let count = server(&path, |mut stream| head(&mut stream, 0));
        assert!(tgtd.answers().expect("it answers"), "{what}");
        assert_eq!(count.load(Ordering::SeqCst), 1);
        // Nobody listens any more.
        std::fs::remove_file(&path).expect("it is there");
        assert!(!tgtd.answers().expect("that is no failure"), "{what}");
    }
}

#[test]
fn one_that_accepts_nothing_holds_nobody() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("s.0");
    let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("a socket");
    bind(&listener, &SocketAddrUnix::new(&path).expect("short")).expect("free");
    listen(&listener, 0).expect("it can");
    // All places for those that wait are taken.
    let _first = UnixStream::connect(&path).expect("there is one place");
    let tgtd = Tgtd::at(&path).with_patience(PATIENCE, NEVER);
    (0..3).for_each(|_| hangs("it accepts nothing", &tgtd));
}

#[test]
fn it_is_asked_again_after_the_pause() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("s.0");
    let count = server(&path, hold);
    let tgtd = Tgtd::at(&path).with_patience(PATIENCE, Duration::ZERO);
    (0..2).for_each(|_| hangs("it answers nothing", &tgtd));
    assert_eq!(count.load(Ordering::SeqCst), 2);
}

/// A list that was cut off says of targets that they are not there.
#[test]
fn an_answer_that_is_not_whole_is_none() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("s.0");
    for (bytes, text) in [(1000, ""), (1000, "Target 1: iqn.x:y\n"), (1 << 30, "")] {
        server(&path, move |mut stream| {
            head(&mut stream, bytes);
            let _ = stream.write_all(text.as_bytes());
        });
        let error = Tgtd::at(&path).answers().expect_err("it is not whole");
        assert!(error.to_string().contains("does not answer"), "{error}");
    }
}
