//! The process that holds descriptors where no service manager does. It knows nothing of what they
//! are.
//!
//! It serves one daemon at a time, the one that connected last. When there is no daemon it waits
//! for the next, but not for ever: what hangs on the descriptors waits with it.

use crate::wire::{self, Kind};
use crate::{Kept, borrowed, limit_name, limit_of};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SocketFlags, accept_with, sockopt};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// How often a holder without a daemon looks whether one can come at all.
const LOOK: Duration = Duration::from_secs(1);

/// How long to wait when a connection cannot be accepted.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Holds descriptors for daemons that connect to `listener` (a listening `SOCK_SEQPACKET` socket
/// that is found under the name `path`), until there is nothing to hold and nobody connected, or
/// nobody was connected for `patience`, or nobody can connect any more, since the name is gone.
/// A set that has a limit of its own ([`crate::Keeper::limit`]) is let go when nobody was connected for so
/// long. `last` is called once when `patience` is over: if it has begun something that will connect,
/// as a daemon does, there is that time once more. `over` gets what is let go for want of a daemon: nobody else can have it any more, and what
/// hangs on the descriptors ends when they are closed.
///
/// # Errors
/// The system's.
pub fn hold(
    listener: OwnedFd,
    path: &Path,
    patience: Duration,
    last: &mut dyn FnMut() -> bool,
    over: &mut dyn FnMut(Kept),
) -> io::Result<()> {
    let mut kept = Kept::new();
    let (own_name, mut is_last) = (name_of(path), false);
    let mut daemon: Option<OwnedFd> = None;
    // The daemon that has started this process connects at once.
    let mut alone_since = Instant::now();
    let mut connected_at = alone_since;
    loop {
        let (listens, speaks) = wait(&listener, daemon.as_ref())?;
        // Another process has been started in its place, and has all there is.
        if daemon.is_none() && path.exists() && name_of(path) != own_name {
            return Ok(());
        }
        let is_over = || Instant::now() >= alone_since + patience || !path.exists();
        if daemon.is_none() && !listens {
            let all = is_over();
            if all && path.exists() && !std::mem::replace(&mut is_last, true) && last() {
                alone_since = Instant::now();
                continue;
            }
            let names = if all { kept.keys().cloned().collect() } else { beyond_their_limit(&kept, alone_since.elapsed()) };
            let mut ended = Kept::new();
            for name in names {
                drop(kept.remove(&limit_name(&name)));
                ended.extend(kept.remove(&name).map(|set| (name, set)));
            }
            if !ended.is_empty() {
                over(ended);
            }
            if all || kept.is_empty() {
                return Ok(());
            }
        }
        if speaks && let Some(socket) = &daemon {
            let goes_on = serve(socket, &mut kept).unwrap_or(false);
            if !goes_on {
                (daemon, alone_since) = (None, Instant::now());
                // One that was there for so long was no last one.
                is_last &= connected_at.elapsed() < patience;
                if kept.is_empty() {
                    return Ok(());
                }
            }
        }
        if listens {
            // Nothing that fails here ends what others hang on: the daemon tries again.
            match accept_with(&listener, SocketFlags::CLOEXEC).and_then(|socket| Ok((sockopt::socket_peercred(&socket)?, socket))) {
                Ok((peer, socket)) if peer.uid == rustix::process::geteuid() => {
                    (daemon, connected_at) = (Some(socket), Instant::now());
                }
                Ok(_) => {}
                Err(_) => std::thread::sleep(ACCEPT_AGAIN),
            }
        }
    }
}

/// Which file the name leads to now.
fn name_of(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// The sets that are to be let go when nobody was connected for so long.
fn beyond_their_limit(kept: &Kept, alone: Duration) -> Vec<String> {
    let is_beyond = |name: &&String| kept.get(&limit_name(name)).and_then(|set| limit_of(set)).is_some_and(|limit| alone >= limit);
    kept.keys().filter(is_beyond).cloned().collect()
}

/// Whether somebody wants in, and whether the daemon says something. Without a daemon it does not
/// wait long.
fn wait(listener: &OwnedFd, daemon: Option<&OwnedFd>) -> io::Result<(bool, bool)> {
    let mut polled = vec![PollFd::new(listener, PollFlags::IN)];
    polled.extend(daemon.map(|socket| PollFd::new(socket, PollFlags::IN)));
    let limit = daemon.is_none().then_some(Timespec { tv_sec: LOOK.as_secs() as i64, tv_nsec: 0 });
    match poll(&mut polled, limit.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let said = |at: usize| polled.get(at).is_some_and(|polled| !polled.revents().is_empty());
    Ok((said(0), said(1)))
}

/// Does what one message asks. `false` when the daemon has gone.
fn serve(socket: &OwnedFd, kept: &mut Kept) -> io::Result<bool> {
    let (kind, name, descriptors) = match wire::receive(socket.as_fd()) {
        Ok(Some(message)) => message,
        Ok(None) => return Ok(false),
        // A part of a set is no use.
        Err(error) if error.kind() == io::ErrorKind::OutOfMemory => {
            wire::send(socket.as_fd(), Kind::Forget, "", &[])?;
            return Ok(true);
        }
        Err(error) => return Err(error),
    };
    match kind {
        Kind::Keep => drop(kept.insert(name, descriptors)),
        Kind::Forget => drop(kept.remove(&name)),
        Kind::Take => {
            for (name, descriptors) in &*kept {
                wire::send(socket.as_fd(), Kind::Keep, name, &borrowed(descriptors))?;
            }
        }
        Kind::Done => return Ok(false),
    }
    wire::send(socket.as_fd(), Kind::Done, "", &[])?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, connect, listen, socket_with};
    use std::fs::File;
    use std::io::{Read, Write};
    use std::thread::JoinHandle;

    fn socket() -> OwnedFd {
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a socket")
    }

    fn start(path: &Path, patience: Duration) -> JoinHandle<io::Result<Vec<String>>> {
        start_with(path, patience, || false)
    }

    fn start_with(path: &Path, patience: Duration, mut last: impl FnMut() -> bool + Send + 'static) -> JoinHandle<io::Result<Vec<String>>> {
        let listener = socket();
        bind(&listener, &SocketAddrUnix::new(path).expect("short")).expect("free");
        listen(&listener, 4).expect("bound");
        let path = path.to_owned();
        std::thread::spawn(move || {
            let mut ended = Vec::new();
            hold(listener, &path, patience, &mut last, &mut |kept| ended.extend(kept.into_keys())).map(|()| ended)
        })
    }

    fn join(path: &Path) -> OwnedFd {
        let socket = socket();
        connect(&socket, &SocketAddrUnix::new(path).expect("short")).expect("it listens");
        socket
    }

    fn say(socket: &OwnedFd, kind: Kind, name: &str, descriptors: &[OwnedFd]) -> Kept {
        wire::send(socket.as_fd(), kind, name, &borrowed(descriptors)).expect("it is there");
        let mut came = Kept::new();
        while let Some((Kind::Keep, name, descriptors)) = wire::receive(socket.as_fd()).expect("it is there") {
            came.insert(name, descriptors);
        }
        came
    }

    #[test]
    fn the_next_daemon_gets_what_the_last_one_kept_and_nothing_that_it_let_go() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("s");
        let holder = start(&path, Duration::from_secs(60));
        let first = join(&path);
        let (mut far, near) = std::io::pipe().expect("a pipe");
        let (other_far, other_near) = std::io::pipe().expect("a pipe");
        say(&first, Kind::Keep, "one", &[near.into()]);
        say(&first, Kind::Keep, "two", &[other_near.into(), other_far.into()]);
        say(&first, Kind::Forget, "never", &[]);
        drop(first);
        let second = join(&path);
        let mut kept = say(&second, Kind::Take, "", &[]);
        assert_eq!(kept.keys().collect::<Vec<_>>(), ["one", "two"]);
        assert_eq!(kept["two"].len(), 2);
        let one = kept.remove("one").and_then(|mut set| set.pop()).expect("one descriptor");
        File::from(one).write_all(b"alive").expect("the other end is open");
        say(&second, Kind::Forget, "one", &[]);
        let mut text = String::new();
        far.read_to_string(&mut text).expect("nobody holds the other end any more");
        assert_eq!(text, "alive");
        say(&second, Kind::Forget, "two", &[]);
        drop(second);
        holder.join().expect("no panic").expect("it ends when there is nothing to hold");
    }

    #[test]
    fn without_a_daemon_it_lets_go_when_its_patience_ends() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("s");
        let holder = start(&path, Duration::from_millis(300));
        let daemon = join(&path);
        let (mut far, near) = std::io::pipe().expect("a pipe");
        say(&daemon, Kind::Keep, "one", &[near.into()]);
        // As long as there is one, it holds.
        std::thread::sleep(Duration::from_millis(600));
        assert!(!holder.is_finished());
        drop(daemon);
        assert_eq!(far.read_to_end(&mut Vec::new()).expect("let go"), 0);
        assert_eq!(holder.join().expect("no panic").expect("it has ended"), ["one"]);
    }

    /// Once: what it begins may fail.
    #[test]
    fn when_its_patience_ends_somebody_may_take_what_is_there() {
        for connects in [true, false] {
            let directory = tempfile::tempdir().expect("a directory");
            let path = directory.path().join("s");
            let (asked_in, asked) = std::sync::mpsc::channel();
            // Who connects in the end has time for it: as long as the first patience once more.
            let patience = if connects { Duration::from_secs(10) } else { Duration::from_millis(300) };
            let holder = start_with(&path, patience, move || asked_in.send(()).is_ok());
            let daemon = join(&path);
            let (mut far, near) = std::io::pipe().expect("a pipe");
            say(&daemon, Kind::Keep, "one", &[near.into()]);
            drop(daemon);
            asked.recv().expect("it is asked");
            if connects {
                let last = join(&path);
                assert_eq!(say(&last, Kind::Take, "", &[]).len(), 1);
                say(&last, Kind::Forget, "one", &[]);
            }
            assert_eq!(far.read_to_end(&mut Vec::new()).expect("let go"), 0);
            let let_go = holder.join().expect("no panic").expect("it has ended");
            assert_eq!(let_go.len(), usize::from(!connects));
            asked.recv().expect_err("it is asked once");
        }
    }

    #[test]
    fn what_has_a_limit_of_its_own_is_let_go_before_the_rest() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("s");
        let holder = start(&path, Duration::from_secs(600));
        let daemon = join(&path);
        let (mut far, near) = std::io::pipe().expect("a pipe");
        let (_other_far, other_near) = std::io::pipe().expect("a pipe");
        let limit = crate::limit_descriptor(Duration::ZERO).expect("memory");
        say(&daemon, Kind::Keep, "one", &[near.into()]);
        say(&daemon, Kind::Keep, "two", &[other_near.into()]);
        say(&daemon, Kind::Keep, &limit_name("one"), &[limit]);
        drop(daemon);
        assert_eq!(far.read_to_end(&mut Vec::new()).expect("let go"), 0);
        let next = join(&path);
        assert_eq!(say(&next, Kind::Take, "", &[]).into_keys().collect::<Vec<_>>(), ["two"]);
        say(&next, Kind::Forget, "two", &[]);
        drop(next);
        assert_eq!(holder.join().expect("no panic").expect("it has ended"), ["one"]);
    }

    #[test]
    fn where_no_daemon_can_come_any_more_it_lets_go() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("s");
        let holder = start(&path, Duration::from_secs(60));
        let daemon = join(&path);
        let (mut far, near) = std::io::pipe().expect("a pipe");
        say(&daemon, Kind::Keep, "one", &[near.into()]);
        drop(directory);
        drop(daemon);
        assert_eq!(far.read_to_end(&mut Vec::new()).expect("let go"), 0);
        holder.join().expect("no panic").expect("it has ended");
    }

    #[test]
    fn a_set_that_comes_in_part_is_refused() {
        use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
        const MANY: usize = crate::DESCRIPTORS_MAX + 16;
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        let holder = start(&path, Duration::from_secs(60));
        let daemon = join(&path);
        let file = File::open("/dev/null").expect("it is there");
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MANY))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let many = [file.as_fd(); MANY];
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&many)));
        sendmsg(&daemon, &[io::IoSlice::new(b"Kmany")], &mut ancillary, SendFlags::NOSIGNAL).expect("it listens");
        let answer = wire::receive(daemon.as_fd()).expect("an answer").expect("it goes on");
        assert_eq!(answer.0, Kind::Forget, "it cannot be kept");
        assert!(say(&daemon, Kind::Take, "", &[]).is_empty(), "no part of it is kept");
        drop(daemon);
        assert_eq!(holder.join().expect("no panic").expect("it goes on"), [""; 0]);
    }

    #[test]
    fn what_is_no_message_ends_the_connection_and_not_the_holder() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("s");
        let holder = start(&path, Duration::from_secs(60));
        let daemon = join(&path);
        let (_far, near) = std::io::pipe().expect("a pipe");
        say(&daemon, Kind::Keep, "one", &[near.into()]);
        rustix::net::send(&daemon, b"?", rustix::net::SendFlags::empty()).expect("sent");
        assert!(wire::receive(daemon.as_fd()).is_ok_and(|message| message.is_none()), "closed");
        let next = join(&path);
        assert_eq!(say(&next, Kind::Take, "", &[]).len(), 1);
        say(&next, Kind::Forget, "one", &[]);
        drop(next);
        holder.join().expect("no panic").expect("it has ended");
    }
}
