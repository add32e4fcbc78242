//! A child that is asked by its standard input and answers on its standard output, again and again.
//!
//! After each question it is asked for a line that nothing else can be, so that the end of an answer
//! is known. A child that does not answer in time, says too much or ends is not asked again: its
//! conversation is over, and dropping it ends whatever is left of the child.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// What is kept of a child's complaints; a statement that it repeats may come before them.
const SAID_BYTES_MAX: usize = 16 << 10;
/// How long a child that was told to end may take.
const FAREWELL: Duration = Duration::from_millis(500);
/// Bytes read at once.
const PIECE_BYTES: usize = 64 << 10;

/// Bounds of an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) bytes: usize,
    pub(crate) time: Duration,
}

/// Why there is no answer.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Broken {
    /// The child has ended, and said this.
    Ended(String),
    /// It did not answer in time.
    Silent,
    /// It said more than it may.
    TooMuch,
}

pub(crate) struct Conversation {
    child: Child,
    input: Option<ChildStdin>,
    output: ChildStdout,
    complaints: Option<ChildStderr>,
    said: Vec<u8>,
    asked: u64,
    over: bool,
}

impl std::fmt::Debug for Conversation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Conversation").field("child", &self.child.id()).field("asked", &self.asked).finish_non_exhaustive()
    }
}

impl Conversation {
    /// Starts the child, in a process group of its own.
    pub(crate) fn begin(command: &mut Command) -> std::io::Result<Conversation> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn()?;
        let (input, output, complaints) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(input), Some(output), Some(complaints)) = (input, output, complaints) else {
            unreachable!("all three are pipes");
        };
        let conversation =
            Conversation { child, input: Some(input), output, complaints: Some(complaints), said: Vec::new(), asked: 0, over: false };
        rustix::io::ioctl_fionbio(conversation.input.as_ref().expect("just put there"), true)?;
        rustix::io::ioctl_fionbio(&conversation.output, true)?;
        rustix::io::ioctl_fionbio(conversation.complaints.as_ref().expect("just put there"), true)?;
        Ok(conversation)
    }

    /// Asks, and waits for all of the answer.
    pub(crate) fn ask(&mut self, question: &str, limits: Limits) -> Result<Vec<u8>, Broken> {
        if self.over {
            return Err(Broken::Ended(self.complaints_told()));
        }
        let answer = self.ask_once(question, limits);
        self.over |= answer.is_err();
        answer
    }

    fn ask_once(&mut self, question: &str, limits: Limits) -> Result<Vec<u8>, Broken> {
        self.asked += 1;
        let (mark, deadline) = (format!("hearth-end-{}", self.asked), Instant::now() + limits.time);
        let to_say = format!("{question}\nselect '{mark}';\n");
        let (mut to_say, mut heard, mut piece) = (to_say.as_bytes(), Vec::new(), vec![0; PIECE_BYTES]);
        self.said.clear();
        let ends = |heard: &[u8]| {
            let before = heard.strip_suffix(b"\n").and_then(|heard| heard.strip_suffix(mark.as_bytes()));
            before.filter(|before| before.is_empty() || before.ends_with(b"\n")).map(<[u8]>::len)
        };
        loop {
            self.wait(!to_say.is_empty(), deadline)?;
            if !to_say.is_empty()
                && let Some(input) = &mut self.input
            {
                match input.write(to_say) {
                    Ok(written) => to_say = &to_say[written..],
                    Err(error) if is_later(&error) => {}
                    // It reads no more; what it says meanwhile tells why.
                    Err(_) => to_say = &[],
                }
            }
            self.hear_complaints(&mut piece);
            match self.output.read(&mut piece) {
                Ok(0) => return Err(self.ended(deadline, &mut piece)),
                Ok(count) => {
                    heard.extend_from_slice(&piece[..count]);
                    if heard.len() > limits.bytes {
                        return Err(Broken::TooMuch);
                    }
                    if let Some(length) = ends(&heard) {
                        heard.truncate(length);
                        return Ok(heard);
                    }
                }
                Err(error) if is_later(&error) => {}
                Err(_) => return Err(self.ended(deadline, &mut piece)),
            }
        }
    }

    /// Waits until something can be read, or written where there is something to say.
    fn wait(&self, speaks: bool, deadline: Instant) -> Result<(), Broken> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Broken::Silent);
        }
        let mut all = vec![PollFd::new(&self.output, PollFlags::IN)];
        all.extend(self.complaints.as_ref().map(|complaints| PollFd::new(complaints, PollFlags::IN)));
        all.extend(self.input.as_ref().filter(|_| speaks).map(|input| PollFd::new(input, PollFlags::OUT)));
        // An interruption only means to look again.
        let _ = poll(&mut all, Timespec::try_from(left).ok().as_ref());
        Ok(())
    }

    fn hear_complaints(&mut self, piece: &mut [u8]) {
        let Some(complaints) = &mut self.complaints else { return };
        match complaints.read(piece) {
            Ok(0) => self.complaints = None,
            Ok(count) => {
                let room = SAID_BYTES_MAX - self.said.len().min(SAID_BYTES_MAX);
                self.said.extend_from_slice(&piece[..count.min(room)]);
            }
            Err(error) if is_later(&error) => {}
            Err(_) => self.complaints = None,
        }
    }

    /// Of a child that says nothing more: why, as soon as it has told, or until the time is over.
    fn ended(&mut self, deadline: Instant, piece: &mut [u8]) -> Broken {
        let deadline = deadline.min(Instant::now() + Duration::from_secs(1));
        while self.complaints.is_some() && Instant::now() < deadline {
            if let Some(complaints) = &self.complaints {
                let left = deadline.saturating_duration_since(Instant::now());
                let _ = poll(&mut [PollFd::new(complaints, PollFlags::IN)], Timespec::try_from(left).ok().as_ref());
            }
            self.hear_complaints(piece);
        }
        Broken::Ended(self.complaints_told())
    }

    fn complaints_told(&self) -> String {
        String::from_utf8_lossy(&self.said).into_owned()
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        // A client that reads the end of its input takes its leave of the server.
        drop(self.input.take());
        let deadline = Instant::now() + if self.over { Duration::ZERO } else { FAREWELL };
        loop {
            match self.child.try_wait() {
                Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(2)),
                Ok(None) => break,
                _ => return,
            }
        }
        // Not reaped yet, so the number is still its own.
        if kill_process_group(Pid::from_child(&self.child), Signal::KILL).is_err() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

fn is_later(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Limits = Limits { bytes: 1 << 20, time: Duration::from_secs(120) };
    const AT_ONCE: Limits = Limits { bytes: 1 << 20, time: Duration::from_millis(200) };

    fn shell(script: &str) -> Conversation {
        Conversation::begin(Command::new("/bin/sh").args(["-c", script])).expect("a shell")
    }

    /// A child that answers the question as the script says, and then the mark.
    const ANSWERS: &str = r#"
        while read -r question; do
            case "$question" in
                "select 'hearth-end-"*) mark=${question#select \'}; echo "${mark%\';}" ;;
                empty) ;;
                *) echo "you said $question" ;;
            esac
        done"#;

    #[test]
    fn it_is_asked_again_and_again() {
        let mut child = shell(ANSWERS);
        for round in 0..20 {
            let answer = child.ask(&format!("round {round}"), SOON).expect("an answer");
            assert_eq!(String::from_utf8_lossy(&answer), format!("you said round {round}\n"));
            assert_eq!(child.ask("empty", SOON), Ok(Vec::new()));
        }
    }

    #[test]
    fn an_end_is_told_with_its_reason() {
        let mut child = shell("read x; echo 'it is over' >&2; exit 1");
        assert_eq!(child.ask("x", SOON), Err(Broken::Ended("it is over\n".into())));
        assert_eq!(child.ask("x", SOON), Err(Broken::Ended("it is over\n".into())), "it is not asked again");
        let mut nothing = shell("exit 0");
        assert_eq!(nothing.ask("x", SOON), Err(Broken::Ended(String::new())));
    }

    #[test]
    fn what_never_ends_is_ended() {
        // Neither silence nor speech without an end, on either side, nor a grandchild keeps it waiting.
        assert_eq!(shell("sleep 1000").ask("x", AT_ONCE), Err(Broken::Silent));
        assert_eq!(shell("sleep 1000 & sleep 1000").ask("x", AT_ONCE), Err(Broken::Silent));
        assert_eq!(shell("trap '' TERM INT; exec sleep 1000").ask("x", AT_ONCE), Err(Broken::Silent));
        assert_eq!(shell("yes").ask("x", SOON), Err(Broken::TooMuch));
        assert_eq!(shell("yes >&2").ask("x", AT_ONCE), Err(Broken::Silent));
        assert_eq!(shell("cat /dev/zero").ask("x", SOON), Err(Broken::TooMuch));
    }

    #[test]
    fn a_mark_within_an_answer_is_no_end() {
        let script = "printf 'a hearth-end-1\\n'; printf 'hearth-end-1'; printf 'x\\nhearth-end-2\\n'; sleep 1000";
        assert_eq!(shell(script).ask("x", AT_ONCE), Err(Broken::Silent));
    }

    #[test]
    fn nothing_is_left_of_a_child() {
        let mut child = shell("sleep 1000 & echo $! >&2; exec sleep 1000");
        assert_eq!(child.ask("x", AT_ONCE), Err(Broken::Silent));
        let both = [child.child.id().to_string(), child.complaints_told().trim().to_owned()];
        drop(child);
        for pid in both {
            // A grandchild may wait for whoever adopted it.
            let is_there = || {
                let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                !state.is_empty() && !state.contains(") Z ")
            };
            let begun = Instant::now();
            while is_there() {
                assert!(begun.elapsed() < SOON.time, "{pid} is there still");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}
