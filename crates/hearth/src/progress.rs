//! Following long work: a bar with rate and time left on a terminal, plain lines otherwise; Ctrl-C stops the work.

use crate::failure::Failure;
use control::api::{JobState, JobView};
use control::client::Client;
use control::human;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Shorter work shows nothing.
const QUIET: Duration = Duration::from_secs(2);
/// How often progress is asked for. Short at first, so that quick work ends quickly.
const ASK_FIRST: Duration = Duration::from_millis(20);
const ASK: Duration = Duration::from_millis(200);
/// How often a plain line is written where there is no terminal.
const PLAIN_LINE: Duration = Duration::from_secs(5);

/// Ctrl-C of this process. Ends the process at once with status 130, unless somebody watches for it.
#[derive(Clone)]
pub struct Interrupt {
    pressed: Arc<AtomicBool>,
    at_once: Arc<AtomicBool>,
}

impl Interrupt {
    /// Takes over SIGINT.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn install() -> std::io::Result<Interrupt> {
        let pressed = Arc::new(AtomicBool::new(false));
        let at_once = Arc::new(AtomicBool::new(true));
        let interrupt = signal_hook::consts::SIGINT;
        signal_hook::flag::register_conditional_shutdown(interrupt, i32::from(crate::failure::STATUS_INTERRUPTED), at_once.clone())?;
        signal_hook::flag::register(interrupt, pressed.clone())?;
        Ok(Interrupt { pressed, at_once })
    }

    /// From now on Ctrl-C is only noted.
    pub fn watch(&self) {
        self.at_once.store(false, Ordering::SeqCst);
    }

    /// Whether it was pressed.
    pub fn pressed(&self) -> bool {
        self.pressed.load(Ordering::SeqCst)
    }
}

/// Follows a job to its end.
///
/// # Errors
/// If it fails, or the daemon goes away, or Ctrl-C stopped it (status 130).
pub fn follow(client: &Client, interrupt: &Interrupt, first: JobView) -> Result<JobView, Failure> {
    interrupt.watch();
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
            shown.update(&job);
        }
    }
    shown.clear();
    let what = format!("{} of \"{}\"", job.kind.word(), job.volume);
    match &job.state {
        JobState::Done | JobState::Running => Ok(job),
        JobState::Cancelled => {
            let (done, total) = (human::bytes(job.done_bytes), human::bytes(job.total_bytes));
            let message = format!("the {what} was stopped with {done} of {total} done; give the command again to go on");
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

    fn update(&mut self, job: &JobView) {
        if self.terminal {
            let bar = self.bar.get_or_insert_with(|| {
                let template = "{prefix} [{bar:30}] {msg}";
                let style = ProgressStyle::with_template(template).expect("the template is sound");
                let bar = ProgressBar::new(1).with_style(style.progress_chars("=> "));
                bar.set_prefix(format!("{} of {}", job.kind.word(), job.volume));
                bar
            });
            bar.set_length(job.total_bytes.max(1));
            bar.set_position(job.done_bytes);
            bar.set_message(text(job));
        } else if self.last_line.is_none_or(|at| at.elapsed() >= PLAIN_LINE) {
            self.last_line = Some(Instant::now());
            eprintln!("{} of {}: {}", job.kind.word(), job.volume, text(job));
        }
    }

    fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn text(job: &JobView) -> String {
    let left = job.left_s.map_or("unknown time".into(), human::seconds);
    format!("{} of {}, {}/s, {left} left", human::bytes(job.done_bytes), human::bytes(job.total_bytes), human::bytes(job.rate_bytes))
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
                eprintln!("{what} ...");
                while !disconnected(PLAIN_LINE) {
                    eprintln!("{what} ... {}", human::seconds((began.elapsed() + QUIET).as_secs()));
                }
            }
        });
        let result = call();
        drop(done);
        result
    })
}
