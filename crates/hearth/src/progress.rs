//! Following long work: a bar with rate and time left on a terminal, plain lines otherwise; Ctrl-C stops the work.

use crate::failure::Failure;
use crate::logs::say;
use api::client::Client;
use api::human;
use api::{JobState, JobView};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};
use terminal::interrupt::Interrupt;

/// Shorter work shows nothing.
const QUIET: Duration = Duration::from_secs(2);
/// How often progress is asked for. Short at first, so that quick work ends quickly.
const ASK_FIRST: Duration = Duration::from_millis(20);
const ASK: Duration = Duration::from_millis(200);
/// How long an answer is waited for after Ctrl-C.
const GRACE: Duration = Duration::from_secs(3);
/// How often a plain line is written where there is no terminal.
const PLAIN_LINE: Duration = Duration::from_secs(5);

/// Sends what may begin a job. Ctrl-C is only noted from here on, so that it never leaves a job running that nobody told of: [`follow`] stops
/// the job then. If the daemon does not answer [`GRACE`] after Ctrl-C, the process ends with status 130.
pub fn begin<T>(interrupt: &Interrupt, send: impl FnOnce() -> T) -> T {
    interrupt.watch();
    let (answered, answer) = std::sync::mpsc::channel::<()>();
    let pressed = interrupt.flag();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut pressed_at = None;
            while answer.recv_timeout(ASK_FIRST) == Err(RecvTimeoutError::Timeout) {
                if pressed.load(Ordering::SeqCst) && pressed_at.get_or_insert_with(Instant::now).elapsed() >= GRACE {
                    say("hearth: interrupted before the daemon answered; `hearth job list` shows whether a job was started");
                    std::process::exit(i32::from(crate::failure::STATUS_INTERRUPTED));
                }
            }
        });
        let result = send();
        drop(answered);
        result
    })
}

/// Follows a job to its end; see [`begin`].
///
/// # Errors
/// If it fails, or the daemon goes away, or Ctrl-C stopped it (status 130).
pub fn follow(client: &Client, interrupt: &Interrupt, first: JobView) -> Result<JobView, Failure> {
    let path = format!("/jobs/{}", first.id);
    let began = Instant::now();
    let mut shown = Shown::new();
    let mut asked_to_stop = false;
    let mut job = first;
    while job.state == JobState::Running {
        if interrupt.pressed() && !asked_to_stop {
            asked_to_stop = true;
            client.delete::<JobView>(&path)?;
        }
        std::thread::sleep(if began.elapsed() < QUIET { ASK_FIRST } else { ASK });
        job = client.get(&path)?;
        if began.elapsed() >= QUIET {
            shown.update(&format!("{} of {}", job.kind.word(), job.volume), job.done_bytes, job.total_bytes, &text(&job));
        }
    }
    shown.clear();
    let what = format!("{} of \"{}\"", job.kind.word(), job.volume);
    match &job.state {
        JobState::Done | JobState::Running => Ok(job),
        JobState::Cancelled => {
            let message = format!("the {what} was stopped with {} done; continue with `hearth job resume {}`", done_of(&job), job.id);
            Err(Failure::interrupted(message))
        }
        JobState::Failed { error } => Err(error.clone().into()),
    }
}

/// What is on the screen.
struct Shown {
    bar: Option<ProgressBar>,
    terminal: bool,
    last_line: Option<Instant>,
}

impl Shown {
    fn new() -> Shown {
        Shown { bar: None, terminal: std::io::stderr().is_terminal(), last_line: None }
    }

    fn update(&mut self, what: &str, done: u64, total: u64, text: &str) {
        if self.terminal {
            let bar = self.bar.get_or_insert_with(|| {
                let template = "{prefix} [{bar:30}] {msg}";
                let style = ProgressStyle::with_template(template).expect("the template is sound");
                let bar = ProgressBar::new(1).with_style(style.progress_chars("=> "));
                bar.set_prefix(what.to_string());
                bar
            });
            // Without a total the bar stays empty.
            bar.set_length(total.max(1));
            bar.set_position(if total == 0 { 0 } else { done });
            bar.set_message(text.to_string());
        } else if self.last_line.is_none_or(|at| at.elapsed() >= PLAIN_LINE) {
            self.last_line = Some(Instant::now());
            say(format_args!("{what}: {text}"));
        }
    }

    fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// "1 GiB of 2 GiB"; "9 MiB read" where nobody knows of how much.
pub fn done_of(job: &JobView) -> String {
    let done = human::bytes(job.done_bytes);
    if job.kind.has_total() { format!("{done} of {}", human::bytes(job.total_bytes)) } else { format!("{done} read") }
}

fn text(job: &JobView) -> String {
    let (done, rate) = (done_of(job), human::bytes(job.rate_bytes));
    if !job.kind.has_total() {
        return format!("{done}, {rate}/s");
    }
    let left = job.left_s.map_or("unknown time".into(), human::seconds);
    format!("{done}, {rate}/s, {left} left")
}

/// Progress of this process's own work on a known count of bytes; shown once it has taken two seconds.
pub struct Progress {
    what: String,
    total_bytes: u64,
    began: Instant,
    looked: Instant,
    shown: Shown,
}

impl Progress {
    /// Of work that begins now.
    pub fn new(what: String, total_bytes: u64) -> Progress {
        Progress { what, total_bytes, began: Instant::now(), looked: Instant::now(), shown: Shown::new() }
    }

    /// So much is done.
    pub fn at(&mut self, done_bytes: u64) {
        let elapsed = self.began.elapsed();
        if elapsed < QUIET || self.looked.elapsed() < ASK {
            return;
        }
        self.looked = Instant::now();
        let rate = (done_bytes as f64 / elapsed.as_secs_f64()).max(1.0);
        let left = human::seconds((self.total_bytes.saturating_sub(done_bytes) as f64 / rate) as u64);
        let (done, total) = (human::bytes(done_bytes), human::bytes(self.total_bytes));
        let text = format!("{done} of {total}, {}/s, {left} left", human::bytes(rate as u64));
        self.shown.update(&self.what, done_bytes, self.total_bytes, &text);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.shown.clear();
    }
}

/// Runs a call that has no progress of its own; after two seconds tells that it is under way.
pub fn patiently<T>(what: &str, call: impl FnOnce() -> T) -> T {
    let (done, over) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let disconnected = |wait| matches!(over.recv_timeout(wait), Err(std::sync::mpsc::RecvTimeoutError::Disconnected));
            if disconnected(QUIET) {
                return;
            }
            let began = Instant::now();
            if std::io::stderr().is_terminal() {
                let bar = ProgressBar::new_spinner().with_message(what.to_string());
                while !disconnected(ASK) {
                    bar.set_message(format!("{what} ({})", human::seconds((began.elapsed() + QUIET).as_secs())));
                    bar.tick();
                }
                bar.finish_and_clear();
            } else {
                say(format_args!("{what} ..."));
                while !disconnected(PLAIN_LINE) {
                    say(format_args!("{what} ... {}", human::seconds((began.elapsed() + QUIET).as_secs())));
                }
            }
        });
        let result = call();
        drop(done);
        result
    })
}
