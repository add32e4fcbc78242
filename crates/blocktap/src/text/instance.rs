//! An instance below tracefs: buffers and switches of our own, which no other program's tracing shares.
//!
//! Its name says whose it is: `hearth-PID-START-N`, where START is when the process began, so that
//! another process of the same number is not taken for it. What a killed process left is removed by
//! the next that watches.

use crate::refused::Refused;
use crate::tap::Way;
use crate::tracefs::{Tracefs, Use};
use crate::watched::Watched;
use rustix::fs::OFlags;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

const DIRECTORY: &str = "instances";
const PREFIX: &str = "hearth-";
/// Below an instance.
const TRACEPOINT: &str = "events/block/block_bio_queue";
/// Instances whose names are tried.
const TRIES: u32 = 64;

/// Text is slower to read than records, so it gets more memory than a ring, and each processor at
/// least this much.
const BUFFER_FACTOR: u64 = 4;
const BUFFER_BYTES_MIN: u64 = 256 << 10;

/// An instance of ours.
pub struct Instance {
    tracefs: Tracefs,
    path: String,
}

impl Instance {
    /// Makes one that records the requests of one disk, and opens its pipe.
    pub fn make(watched: &Watched, ring_bytes: u32) -> Result<(Instance, File), Refused> {
        let tracefs = Tracefs::open(Use::Changing)?;
        let lacks = |lacks: &str| Refused::lacking(Way::Tracefs, lacks);
        if tracefs.names(TRACEPOINT).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return Err(lacks("tracepoint block_bio_queue"));
        }
        remove_left(&tracefs);
        let instance = match new_directory(&tracefs) {
            Ok(path) => Instance { tracefs, path },
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(lacks("instances below tracefs")),
            Err(error) => return Err(Refused::at(Way::Tracefs, "make an instance", error)),
        };
        let pipe = instance.begin(watched, ring_bytes);
        if pipe.is_err() {
            instance.remove();
        }
        Ok((instance, pipe?))
    }

    fn begin(&self, watched: &Watched, ring_bytes: u32) -> Result<File, Refused> {
        let at = |step| move |source| Refused::at(Way::Tracefs, step, source);
        let write = |file: &str, text: &str| self.tracefs.write(format!("{}/{file}", self.path), text);
        write("trace_clock", "mono").map_err(at("set the clock of its instance"))?;
        let buffer_bytes = (u64::from(ring_bytes) * BUFFER_FACTOR / processors()).max(BUFFER_BYTES_MIN);
        write("buffer_size_kb", &(buffer_bytes >> 10).to_string()).map_err(at("size the buffers of its instance"))?;
        let pipe = self.tracefs.open_file(format!("{}/trace_pipe", self.path), OFlags::RDONLY | OFlags::NONBLOCK);
        let pipe = pipe.map_err(at("open the pipe of its instance"))?;
        write(&format!("{TRACEPOINT}/filter"), &filter(watched)).map_err(at("set the filter of its instance"))?;
        write(&format!("{TRACEPOINT}/enable"), "1").map_err(at("switch on its instance"))?;
        Ok(pipe)
    }

    /// Ends it. Its pipe must be closed. What cannot be removed, the next one who watches removes.
    pub fn remove(&self) {
        let _ = self.tracefs.write(format!("{}/{TRACEPOINT}/enable", self.path), "0");
        let _ = self.tracefs.remove_directory(&self.path);
    }
}

/// As the kernel's filters are written; numbers are decimal.
fn filter(watched: &Watched) -> String {
    let disk = format!("dev == {}", watched.kernel_number());
    match watched.range() {
        None => disk,
        Some(part) => {
            let (start, end) = (part.start_sector, part.end_sector);
            format!("{disk} && (nr_sector == 0 || (sector >= {start} && sector < {end}))")
        }
    }
}

/// Makes an instance; its path.
fn new_directory(tracefs: &Tracefs) -> io::Result<String> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let pid = std::process::id();
    let began = began(pid).unwrap_or(0);
    let mut last = io::ErrorKind::AlreadyExists.into();
    for _ in 0..TRIES {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = format!("{DIRECTORY}/{PREFIX}{pid}-{began}-{number}");
        match tracefs.make_directory(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// Removes instances of processes that are no more. The kernel keeps those whose pipe is open, so
/// none is taken from a process that we cannot see (in another PID namespace).
fn remove_left(tracefs: &Tracefs) {
    for name in tracefs.names(DIRECTORY).unwrap_or_default() {
        let Some((pid, time)) = name.to_str().and_then(owner) else { continue };
        if began(pid) != Some(time) {
            let _ = tracefs.remove_directory(format!("{DIRECTORY}/{}", name.display()));
        }
    }
}

/// Process and when it began, by an instance's name.
fn owner(name: &str) -> Option<(u32, u64)> {
    let mut numbers = name.strip_prefix(PREFIX)?.split('-');
    let (pid, began, number) = (numbers.next()?, numbers.next()?, numbers.next()?);
    number.parse::<u32>().ok()?;
    if numbers.next().is_some() {
        return None;
    }
    Some((pid.parse().ok()?, began.parse().ok()?))
}

/// When a process began, in clock ticks since the machine did (proc(5), field 22 of `stat`).
fn began(pid: u32) -> Option<u64> {
    began_in(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Its name, in parentheses, may hold anything.
fn began_in(stat: &str) -> Option<u64> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    behind_name.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// How many the machine can have; each has a buffer.
fn processors() -> u64 {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    processors_in(&text).unwrap_or(1)
}

/// "0-7": one more than the last number.
fn processors_in(text: &str) -> Option<u64> {
    let last: u64 = text.trim().rsplit([',', '-']).next()?.parse().ok()?;
    last.checked_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_whose_they_are() {
        assert_eq!(owner("hearth-12-345-0"), Some((12, 345)));
        for other in ["hearth-12", "hearth-12-345", "hearth-12-345-0-1", "hearth-x-1-0", "hearth--1-0", "other-1-2-3", "hearth-1-2-x", ""] {
            assert_eq!(owner(other), None, "{other}");
        }
    }

    #[test]
    fn when_a_process_began() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 0 0";
        assert_eq!(began_in(stat), Some(98_765));
        assert_eq!(began_in("7 (a"), None);
        assert_eq!(began_in("7 (a) S 1"), None);
        let me = began(std::process::id());
        assert!(me.is_some());
        assert_eq!(me, began(std::process::id()), "it stays the same");
    }

    #[test]
    fn filters() {
        assert_eq!(filter(&Watched::disk(7, 2)), "dev == 7340034");
        let part = filter(&Watched::part(7, 2, 2048, 1000));
        assert_eq!(part, "dev == 7340034 && (nr_sector == 0 || (sector >= 2048 && sector < 3048))");
    }

    #[test]
    fn processors_of_a_machine() {
        assert_eq!(processors_in("0-7\n"), Some(8));
        assert_eq!(processors_in("0\n"), Some(1));
        assert_eq!(processors_in("0,2-5\n"), Some(6));
        assert_eq!(processors_in(""), None);
        assert_eq!(processors_in("18446744073709551615"), None);
    }

    /// What a killed process left goes with the next open; what is in use stays.
    #[test]
    fn left_overs_are_removed() {
        let tracefs = match Tracefs::open(Use::Changing) {
            Ok(tracefs) => tracefs,
            Err(refused) => return println!("skipped: {refused}"),
        };
        let mut child = std::process::Command::new("true").spawn().expect("a process");
        let dead = child.id();
        child.wait().expect("it ends");
        let own = began(std::process::id()).expect("it is told");
        // The last has our number, and began at another time.
        let left = [format!("{PREFIX}{dead}-1-0"), format!("{PREFIX}{dead}-1-7"), format!("{PREFIX}{}-{}-0", std::process::id(), own + 1)];
        let stay = [format!("{PREFIX}{dead}-2-0"), format!("other-{dead}-1-0")];
        for name in left.iter().chain(&stay) {
            if let Err(error) = tracefs.make_directory(format!("{DIRECTORY}/{name}")) {
                return println!("skipped: no instance can be made: {error}");
            }
        }
        let reader = tracefs.open_file(format!("{DIRECTORY}/{}/trace_pipe", stay[0]), OFlags::RDONLY).expect("it opens");
        let names = || tracefs.names(DIRECTORY).expect("names").into_iter().filter_map(|name| name.into_string().ok()).collect::<Vec<_>>();

        let (instance, pipe) = Instance::make(&Watched::disk(7, 0), 1).expect("it is made");
        let ours = instance.path.strip_prefix("instances/").expect("its name").to_owned();
        let found = names();
        assert!(left.iter().all(|name| !found.contains(name)), "{found:?}");
        assert!(stay.iter().all(|name| found.contains(name)), "{found:?}");
        assert!(found.contains(&ours));
        remove_left(&tracefs);
        assert!(names().contains(&ours), "ours is in use");
        drop(pipe);
        instance.remove();
        drop(reader);
        tracefs.remove_directory(format!("{DIRECTORY}/{}", stay[1])).expect("it is not ours to remove");
        remove_left(&tracefs);
        let found = names();
        assert!(!found.contains(&ours) && stay.iter().all(|name| !found.contains(name)), "{found:?}");
    }
}
