//! fio as suites use it, for what a [`Load`](crate::load::Load) does not say: several clients with files of their own, shares that are no whole percents, logs of
//! requests, and job files of the user's.

use crate::load::{Loaded, fio};
use crate::stage::Stage;
use crate::trouble::Trouble;
use std::path::Path;
use std::time::Duration;

/// What fio may need beside the time of the load itself.
const PATIENCE: Duration = Duration::from_secs(120);
/// Of fio's files in the stage's directory.
const NAME: &str = "leg";

/// A load that fio plays on a block device.
#[derive(Clone, PartialEq, Debug)]
pub struct Job {
    /// The block device.
    pub device: String,
    /// fio's `rw`.
    pub kind: &'static str,
    /// Bytes of a request.
    pub block_bytes: u64,
    /// Requests under way, of each client.
    pub depth: u32,
    /// How long, in seconds.
    pub seconds: f64,
    /// Space of each client, in bytes.
    pub size_bytes: u64,
    /// Reads of a hundred, of a mix.
    pub reads_percent: Option<u32>,
    /// fio's `random_distribution`.
    pub distribution: Option<&'static str>,
    /// Clients; each has the space behind that of the one before.
    pub clients: u32,
    /// A log of requests in place of all that, in fio's version 2.
    pub log: Option<String>,
    /// The requests follow from it.
    pub seed: u64,
}

impl Job {
    fn words(&self) -> Vec<String> {
        let mut words = vec!["fio".to_owned()];
        let mut say = |key: &str, value: &dyn std::fmt::Display| words.push(format!("--{key}={value}"));
        say("name", &NAME);
        match &self.log {
            Some(log) => {
                say("read_iolog", log);
                say("replay_redirect", &self.device);
                say("replay_no_stall", &1);
            }
            None => {
                say("filename", &self.device);
                say("rw", &self.kind);
                say("bs", &self.block_bytes);
                say("size", &self.size_bytes);
                say("time_based", &1);
            }
        }
        if let Some(percent) = self.reads_percent {
            say("rwmixread", &percent);
        }
        if self.kind.starts_with("rand") && self.log.is_none() {
            say("norandommap", &1);
            say("random_distribution", &self.distribution.unwrap_or("random"));
        }
        if self.clients > 1 {
            say("numjobs", &self.clients);
            say("offset_increment", &self.size_bytes);
        }
        // A synchronous client is what dd and iozone are.
        say("ioengine", &if self.depth == 1 { "psync" } else { "libaio" });
        say("iodepth", &self.depth);
        say("randrepeat", &0);
        say("randseed", &self.seed);
        words.extend(common(self.seconds));
        words
    }

    /// Plays it.
    ///
    /// # Errors
    /// If fio fails.
    pub fn run(&self, stage: &Stage) -> Result<Loaded, Trouble> {
        play(stage, &self.words(), self.seconds)
    }
}

/// What all jobs have: fresh random data in every write, since nearly equal buffers would flatter a cache that sees what blocks contain.
fn common(seconds: f64) -> Vec<String> {
    let words = ["direct=1", "thread=1", "refill_buffers=1", "allow_file_create=0", "output-format=json+", "log_hist_msec=1000"];
    let own = [format!("output={NAME}.json"), format!("write_hist_log={NAME}"), format!("runtime={}ms", (seconds * 1000.0) as u64)];
    words.iter().map(|word| format!("--{word}")).chain(own.iter().map(|word| format!("--{word}"))).collect()
}

fn play(stage: &Stage, words: &[String], seconds: f64) -> Result<Loaded, Trouble> {
    logs(stage).iter().for_each(|log| {
        // Those of the part before; what stays is written over.
        let _ = std::fs::remove_file(log);
    });
    stage.run(words, Duration::from_secs_f64(seconds) + PATIENCE)?;
    let read = |path: &Path| std::fs::read_to_string(path).map_err(|error| Trouble::io("read", path, &error));
    let seconds: Result<Vec<String>, Trouble> = logs(stage).iter().map(|log| read(log)).collect();
    fio::parse(&read(&stage.path(&format!("{NAME}.json")))?, &seconds?.concat())
}

/// The histogram logs that are there: one a client.
fn logs(stage: &Stage) -> Vec<std::path::PathBuf> {
    let Ok(entries) = std::fs::read_dir(stage.place()) else { return Vec::new() };
    let ours = |name: &str| name.starts_with(&format!("{NAME}_clat_hist.")) && name.ends_with(".log");
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths.filter(|path| path.file_name().is_some_and(|name| ours(&name.to_string_lossy()))).collect()
}

/// Plays a job file of the user's, with all of its jobs on one device, for a bounded time.
///
/// # Errors
/// If fio fails, or the file cannot be read.
pub fn run_file(stage: &Stage, path: &Path, device: &str, size_bytes: u64, seconds: f64) -> Result<Loaded, Trouble> {
    let text = std::fs::read_to_string(path).map_err(|error| Trouble::io("read", path, &error))?;
    let own = stage.path("own.fio");
    std::fs::write(&own, on_device(&text, device, size_bytes, seconds)).map_err(|error| Trouble::io("write", &own, &error))?;
    let output = ["--output-format=json+".into(), format!("--output={NAME}.json")];
    let words: Vec<String> = std::iter::once("fio".to_owned()).chain(output).chain([own.display().to_string()]).collect();
    stage.say(format!("sed 's|^filename=.*|filename={device}|' {} > own.fio", path.display()));
    play(stage, &words, seconds)
}

/// A job file with another target, size and end: options of the same name give way, in whatever section they stand.
fn on_device(text: &str, device: &str, size_bytes: u64, seconds: f64) -> String {
    const OURS: [&str; 14] = [
        "filename",
        "directory",
        "filename_format",
        "nrfiles",
        "size",
        "filesize",
        "io_size",
        "runtime",
        "timeout",
        "time_based",
        "direct",
        "allow_file_create",
        "write_hist_log",
        "log_hist_msec",
    ];
    let ours = |line: &str| OURS.contains(&line.split('=').next().unwrap_or_default().trim());
    let mut own = format!(
        "filename={device}\nsize={size_bytes}\nruntime={}ms\ntime_based=1\ndirect=1\nallow_file_create=0\n",
        (seconds * 1000.0) as u64
    );
    own += &format!("write_hist_log={NAME}\nlog_hist_msec=1000\n");
    let mut lines: Vec<String> = Vec::new();
    let mut has_global = false;
    for line in text.lines().filter(|line| !ours(line)) {
        lines.push(line.to_owned());
        if line.trim() == "[global]" && !has_global {
            has_global = true;
            lines.push(own.clone());
        }
    }
    let head = if has_global { String::new() } else { format!("[global]\n{own}") };
    format!("{head}{}\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_file_gets_another_target_whatever_it_names() {
        let text = "; mine\n[global]\nbs=8k\nfilename=/dev/sda\n[a]\nrw=randrw\nsize = 10g\nfilename=/dev/sdb:/dev/sdc\n[b]\ndirectory=/srv\nrw=read\n";
        let moved = on_device(text, "/dev/loop3", 1 << 20, 1.5);
        for gone in ["sda", "sdb", "/srv", "10g"] {
            assert!(!moved.contains(gone), "{gone}: {moved}");
        }
        assert!(moved.starts_with("; mine\n[global]\nfilename=/dev/loop3\nsize=1048576\nruntime=1500ms\n"), "{moved}");
        assert!(moved.contains("bs=8k") && moved.ends_with("[b]\nrw=read\n"), "{moved}");
        assert!(on_device("[a]\nrw=read\n", "/dev/loop3", 1 << 20, 1.0).starts_with("[global]\nfilename=/dev/loop3\n"));
    }
}
