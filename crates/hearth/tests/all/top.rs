//! `hearth top` on a real terminal (of `script`), against a daemon that is played here: it shows what comes, reconnects, and puts the terminal back
//! however it ends.

use crate::support::{Place, wait_until};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const ENTER_SCREEN: &str = "\u{1b}[?1049h";
const HIDE_CURSOR: &str = "\u{1b}[?25l";
const SHOW_CURSOR: &str = "\u{1b}[?25h";
const LEAVE_SCREEN: &str = "\u{1b}[?1049l";

/// Answers like a daemon: an event of the past, then samples until `connections` streams were cut after two samples each; later ones stay.
fn play_daemon(listener: UnixListener, cuts: usize) {
    std::thread::spawn(move || {
        let cuts = Arc::new(Mutex::new(cuts));
        for stream in listener.incoming().flatten() {
            let cuts = cuts.clone();
            std::thread::spawn(move || answer(stream, &cuts));
        }
    });
}

/// A client that has gone away ends the answer.
fn answer(mut stream: UnixStream, cuts: &Mutex<usize>) -> Option<()> {
    let mut head = String::new();
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    while !head.ends_with("\r\n\r\n") {
        reader.read_line(&mut head).ok().filter(|length| *length > 0)?;
    }
    let body = match head.split(' ').nth(1)? {
        "/api/v1/daemon" => r#"{"version":"9.8.7","pid":1,"state_directory":"/s"}"#,
        "/api/v1/events?after=0" => {
            r#"[{"number":4,"unix_s":1700000000,"severity":"info","object":"db","message":"volume-added-by-hand"}]"#
        }
        _ => "",
    };
    if !body.is_empty() {
        return write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).ok();
    }
    assert!(head.contains("\r\nLast-Event-ID: 4\r\n"), "it goes on after what it has: {head}");
    write!(stream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").ok()?;
    let mut chunk = |text: String| write!(stream, "{:x}\r\n{text}\r\n", text.len()).ok();
    chunk("event: hello\ndata: {\"version\":\"9.8.7\",\"instance\":\"a\",\"latest_event\":4}\n\n".into())?;
    for number in 0.. {
        let sample = format!("{{\"unix_ms\":{},\"span_ms\":1000,\"volumes\":{{}},\"pools\":{{}}}}", 1_700_000_000_000u64 + number * 1000);
        chunk(format!("event: sample\ndata: {sample}\n\n"))?;
        let mut left = cuts.lock().expect("nobody panics");
        if number == 1 && *left > 0 {
            *left -= 1;
            return Some(());
        }
        drop(left);
        std::thread::sleep(Duration::from_millis(100));
    }
    None
}

struct Screen {
    script: Child,
    keys: ChildStdin,
    shown: Arc<Mutex<String>>,
    pid_file: String,
}

impl Screen {
    fn open(place: &Place) -> Screen {
        let pid_file = place.path("pid");
        let top = place.command(&["top"]);
        let program = top.get_program().to_string_lossy().into_owned();
        let inside = format!("stty cols 80 rows 24; echo $$ > '{pid_file}'; exec '{program}' top");
        let mut script = Command::new("script");
        script.args(["-qefc", &inside, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped()).env("TERM", "xterm");
        for (name, value) in top.get_envs() {
            match value {
                Some(value) => script.env(name, value),
                None => script.env_remove(name),
            };
        }
        let mut script = script.spawn().expect("script is part of every Debian");
        let keys = script.stdin.take().expect("it is piped");
        let mut output = script.stdout.take().expect("it is piped");
        let shown = Arc::new(Mutex::new(String::new()));
        let kept = shown.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut bytes) {
                kept.lock().expect("nobody panics").push_str(&String::from_utf8_lossy(&bytes[..length]));
            }
        });
        Screen { script, keys, shown, pid_file }
    }

    fn text(&self) -> String {
        self.shown.lock().expect("nobody panics").clone()
    }

    fn until(&self, part: &str) {
        wait_until(&format!("{part:?} is shown"), || self.text().contains(part));
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).and_then(|()| self.keys.flush()).expect("script reads");
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = std::fs::read_to_string(&self.pid_file).expect("it was written").trim().parse().expect("a number");
        rustix::process::kill_process(rustix::process::Pid::from_raw(pid).expect("not 0"), signal).expect("it runs");
    }

    /// Waits for the end, with the terminal as it was; gives the status.
    fn ended(mut self) -> Option<i32> {
        let status = self.script.wait().expect("it is our child").code();
        self.until(LEAVE_SCREEN);
        let text = self.text();
        assert!(text.rfind(LEAVE_SCREEN) > text.rfind(ENTER_SCREEN), "the screen before is back");
        assert!(text.rfind(SHOW_CURSOR) > text.rfind(HIDE_CURSOR), "the cursor is back");
        status
    }
}

fn screen(cuts: usize) -> (Place, Screen) {
    let place = Place::new();
    std::fs::create_dir(place.path("run")).expect("there is room");
    play_daemon(UnixListener::bind(place.path("run/h.sock")).expect("it is ours"), cuts);
    let screen = Screen::open(&place);
    screen.until(ENTER_SCREEN);
    (place, screen)
}

#[test]
fn it_shows_what_comes_reconnects_and_ends_by_a_key() {
    let (_place, mut screen) = screen(2);
    screen.until("hearth 9.8.7");
    screen.until("volume-added-by-hand");
    screen.until("volumes;");
    screen.until("DAEMON IS GONE");
    screen.until("live");
    screen.press("?");
    screen.until("Columns");
    screen.press("qq");
    assert_eq!(screen.ended(), Some(0));
}

#[test]
fn the_terminal_is_put_back_after_ctrl_c_and_signals() {
    for (how, expected) in [("ctrl-c", 0), ("TERM", 143), ("INT", 0), ("HUP", 129)] {
        let (_place, mut screen) = screen(0);
        screen.until("live");
        match how {
            "TERM" => screen.signal(rustix::process::Signal::TERM),
            "INT" => screen.signal(rustix::process::Signal::INT),
            "HUP" => screen.signal(rustix::process::Signal::HUP),
            _ => screen.press("\u{3}"),
        }
        assert_eq!(screen.ended(), Some(expected), "{how}");
    }
}

#[test]
fn without_a_terminal_or_a_daemon_it_says_so() {
    let place = Place::new();
    place.must_fail(&["top"], 2, "it needs a terminal; use `hearth stats --watch`");
    let mut screen = Screen::open(&place);
    assert_eq!(screen.script.wait().expect("it is our child").code(), Some(1));
    screen.until("start it with `hearth serve`");
    assert!(!screen.text().contains(ENTER_SCREEN), "there is nothing to show");
}
