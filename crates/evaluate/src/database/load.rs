//! Running load generators and listening to them: each line with the time at which it came, so that a silent second is known as one.

use super::Driven;
use crate::stage::{Running, Stage};
use crate::trouble::Trouble;
use rustix::process::Signal;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often a load is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How long a load may take to end after its time: requests under way on a slow disk with a long queue.
pub(super) const OVERTIME: Duration = Duration::from_secs(120);

/// What a caller is told while a load runs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Moment {
    /// So many seconds since the load began; about twenty times a second, or as often as the caller comes back.
    At(f64),
    /// The measured part begins now.
    Measured,
    /// And ends.
    Ended,
}

/// What a caller does beside a load: attaching a cache, reading counters. An error ends the load.
pub type Beside<'a> = dyn FnMut(Moment) -> Result<(), Trouble> + 'a;

/// What one program said.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Told {
    /// When each line came, in seconds since the program began, and the line.
    pub lines: Vec<(f64, String)>,
    /// Whether it ended by itself; if not it was ended after its time and [`OVERTIME`].
    pub whole: bool,
}

impl Told {
    /// All of it.
    pub fn text(&self) -> String {
        self.lines.iter().map(|(_, line)| format!("{line}\n")).collect()
    }

    /// All of it, of a program that had to end by itself.
    pub fn whole_text(&self, program: &str) -> Result<String, Trouble> {
        if self.whole {
            return Ok(self.text());
        }
        let over = OVERTIME.as_secs();
        Err(Trouble::failed(
            format!("{program} did not end within {over} s after the end of its run"),
            "the device answers too slowly for this load; a smaller one can be asked for with --size",
        ))
    }
}

/// Runs programs (each with a name for its log) at once, for about so many seconds. `began` is when the load as a whole began.
///
/// # Errors
/// If one cannot be started or fails, if `beside` fails, or the user wants an end. None runs on then.
pub(super) fn watch(
    stage: &Stage,
    programs: &[(String, Vec<String>)],
    env: &[(String, String)],
    seconds: u64,
    began: Instant,
    beside: &mut Beside<'_>,
) -> Result<Vec<Told>, Trouble> {
    let mut running = Vec::new();
    for (name, words) in programs {
        running.push(stage.begin(name, words, env)?);
    }
    let logs: Vec<_> = programs.iter().map(|(name, _)| stage.path(&format!("{name}.log"))).collect();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = logs.iter().map(|log| scope.spawn(|| follow(log, &over))).collect();
        let until = Instant::now() + Duration::from_secs(seconds) + OVERTIME;
        let looked = {
            let _over = Over(&over);
            look_after(&mut running, until, began, beside)
        };
        let lines = readers.into_iter().map(|reader| reader.join().expect("a reader of a log does not panic"));
        let whole = looked?;
        Ok(lines.zip(whole).map(|(lines, whole)| Told { lines, whole }).collect())
    })
}

/// How a load is run for so many seconds: the load as a whole began then.
pub(super) type Run<'a> = dyn FnMut(u64, Instant, &mut Beside<'_>) -> Result<Driven, Trouble> + 'a;

/// Runs a load twice, so that what it says at its end is of the measured part alone: once to warm up, if that has any seconds, and once to be measured.
pub(super) fn warmed(warm_seconds: u64, seconds: u64, beside: &mut Beside<'_>, run: &mut Run<'_>) -> Result<Driven, Trouble> {
    let began = Instant::now();
    let warm = if warm_seconds > 0 { Some(run(warm_seconds, began, beside)?) } else { None };
    let at_s = if warm.is_some() { began.elapsed().as_secs_f64() } else { 0.0 };
    beside(Moment::Measured)?;
    let measured = run(seconds, began, beside)?;
    beside(Moment::Ended)?;
    Ok(match warm {
        Some(warm) => measured.following(warm, at_s),
        None => measured,
    })
}

/// Tells the readers that nothing comes any more, also if what stands beside the load panics.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Until all have ended; gives of each whether it did so by itself.
fn look_after(running: &mut [Running], until: Instant, began: Instant, beside: &mut Beside<'_>) -> Result<Vec<bool>, Trouble> {
    let mut whole = vec![false; running.len()];
    let watched = loop {
        let ended = running.iter_mut().zip(&mut whole).try_for_each(|(each, whole)| {
            *whole = each.done()?;
            Ok(())
        });
        if let Err(trouble) = ended {
            break Err(trouble);
        }
        if whole.iter().all(|whole| *whole) || Instant::now() > until {
            break Ok(());
        }
        if let Err(trouble) = beside(Moment::At(began.elapsed().as_secs_f64())) {
            break Err(trouble);
        }
        std::thread::sleep(LOOK);
    };
    // A generator that is asked to end waits for its requests; nobody needs their answers now.
    for each in running {
        each.send(Signal::KILL);
        each.end();
    }
    watched.map(|()| whole)
}

/// Reads a log as it grows, until it is over.
fn follow(log: &Path, over: &AtomicBool) -> Vec<(f64, String)> {
    let began = Instant::now();
    let (mut lines, mut part) = (Vec::new(), Vec::new());
    let Ok(mut file) = std::fs::File::open(log) else { return lines };
    loop {
        // Looked at first: what was written before it was over is read after.
        let last = over.load(Ordering::Acquire);
        // What cannot be read is missed by whoever parses it.
        let _ = file.read_to_end(&mut part);
        let at_s = began.elapsed().as_secs_f64();
        while let Some(end) = part.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = part.drain(..=end).collect();
            lines.push((at_s, String::from_utf8_lossy(&line).trim_end().to_owned()));
        }
        if last {
            return lines;
        }
        std::thread::sleep(LOOK / 2);
    }
}

/// The number that follows a text in a line.
pub(super) fn number_after(line: &str, text: &str) -> Option<f64> {
    let rest = line.split_once(text)?.1.trim_start();
    let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn stage(stop: &Arc<AtomicBool>) -> (tempfile::TempDir, Stage) {
        let place = tempfile::tempdir().expect("a directory");
        let stage = Stage::new(place.path(), Path::new("/bin/true"), Arc::clone(stop));
        (place, stage)
    }

    fn shell(name: &str, script: &str) -> (String, Vec<String>) {
        (name.into(), vec!["sh".into(), "-c".into(), script.into()])
    }

    #[test]
    fn lines_come_with_their_times() {
        let (_place, stage) = stage(&Arc::default());
        let programs = [shell("one", "echo a; sleep 0.4; echo b; printf c"), shell("two", "echo d >&2")];
        let mut looks = 0;
        let told = watch(&stage, &programs, &[], 1, Instant::now(), &mut |_| {
            looks += 1;
            Ok(())
        });
        let told = told.expect("both end");
        assert_eq!(told[0].lines.iter().map(|(_, line)| line.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert!(told[0].lines[1].0 - told[0].lines[0].0 > 0.2, "{told:?}");
        assert_eq!(told[1].whole_text("two").expect("it ended"), "d\n");
        assert!(looks > 1);
    }

    #[test]
    fn what_fails_beside_a_load_ends_it() {
        let (_place, stage) = stage(&Arc::default());
        let programs = [shell("one", "echo $$; exec sleep 1000")];
        let failed = watch(&stage, &programs, &[], 1000, Instant::now(), &mut |moment| match moment {
            Moment::At(at_s) if at_s > 0.2 => Err(Trouble::Failed("no cache".into())),
            _ => Ok(()),
        });
        assert_eq!(failed, Err(Trouble::Failed("no cache".into())));
        let pid = std::fs::read_to_string(stage.path("one.log")).expect("it said something");
        assert!(!Path::new(&format!("/proc/{}", pid.trim())).exists());
    }

    #[test]
    fn one_that_fails_ends_the_others() {
        let (_place, stage) = stage(&Arc::default());
        let programs = [shell("one", "echo $$; exec sleep 1000"), shell("two", "sleep 0.2; echo no >&2; exit 7")];
        let failed = watch(&stage, &programs, &[], 1000, Instant::now(), &mut |_| Ok(())).expect_err("fails").to_string();
        assert!(failed.contains("status 7") && failed.contains("no"), "{failed}");
        let pid = std::fs::read_to_string(stage.path("one.log")).expect("it said something");
        assert!(!Path::new(&format!("/proc/{}", pid.trim())).exists());
    }

    #[test]
    fn the_warm_up_is_a_run_of_its_own() {
        let (mut moments, mut runs) = (Vec::new(), Vec::new());
        let driven = warmed(
            3,
            5,
            &mut |moment| {
                moments.push(moment);
                Ok(())
            },
            &mut |seconds, _, beside| {
                beside(Moment::At(seconds as f64))?;
                runs.push(seconds);
                Ok(Driven { rate: seconds as f64, ..Driven::default() })
            },
        );
        let driven = driven.expect("both run");
        assert_eq!((runs, driven.rate), (vec![3, 5], 5.0));
        assert_eq!(moments, [Moment::At(3.0), Moment::Measured, Moment::At(5.0), Moment::Ended]);
    }

    #[test]
    fn numbers_are_found_behind_words() {
        assert_eq!(number_after("tps: 12.50 qps: 3,", "qps:"), Some(3.0));
        assert_eq!(number_after("[ 5s ] thds", "["), Some(5.0));
        assert_eq!(number_after("lat -", "lat"), None);
        assert_eq!(number_after("x", "y"), None);
    }
}
