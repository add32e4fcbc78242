//! The two kinds of device that arms run on: the bare backing device, and a volume of hearth over the same.

use super::read_waits::ReadWaits;
use super::{Running, SHORT, Stage, leftovers};
use crate::result::CacheFigures;
use crate::trouble::Trouble;
use api::client::Client;
use api::stats::VolumeStats;
use api::{AdviceAsk, AdviceView, StreamView};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// For commands that move much data: warming, destage at removal.
const LONG: Duration = Duration::from_secs(900);
/// Names of the pool and the volume that suites use.
const POOL: &str = "evaluate";
const VOLUME: &str = "volume";
const SOCKET: &str = "socket";

/// What lies below: a real device, or a modelled one over a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Backing {
    /// A block device.
    Device(PathBuf),
    /// A model set and the file with the bytes.
    Model {
        /// docs/disk-model.md
        set: String,
        /// As long as the device.
        image: PathBuf,
    },
}

impl Backing {
    /// As `hearth volume add --backing` takes it.
    pub fn word(&self) -> String {
        match self {
            Backing::Device(path) => path.display().to_string(),
            Backing::Model { set, image } => format!("model:{set}:{}", image.display()),
        }
    }
}

/// The backing device as a block device, without a cache.
pub struct Bare {
    path: String,
    /// With the directory of its mount, which goes after it.
    model: Option<(Running, tempfile::TempDir)>,
}

impl Bare {
    /// Offers it: a model goes through FUSE and a loop device, just as hearth's volumes do; a real device is taken as it is.
    ///
    /// # Errors
    /// If it cannot be offered.
    pub fn open(stage: &Stage, backing: &Backing) -> Result<Bare, Trouble> {
        match backing {
            Backing::Device(path) => Ok(Bare { path: path.display().to_string(), model: None }),
            Backing::Model { set, image } => Bare::model(stage, "model", set, &image.display().to_string()),
        }
    }

    /// A modelled device over a file; what it says goes to `LOG.log`.
    fn model(stage: &Stage, log: &str, set: &str, file: &str) -> Result<Bare, Trouble> {
        let words = [stage.hearth(), "model".into(), set.into(), file.into(), "--export".into(), "loop".into()];
        let short = short_directory(stage)?;
        let mut model = stage.begin(log, &words, &[socket_variable(short.path())])?;
        let path = device_in(&model.wait_for("/dev/loop", SHORT)?)?;
        Ok(Bare { path, model: Some((model, short)) })
    }

    /// The block device.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// CPU time of the model, in seconds.
    pub fn cpu_s(&self) -> f64 {
        self.model.as_ref().and_then(|(model, _)| model.cpu_s()).unwrap_or(0.0)
    }
}

/// How a volume is made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setup {
    /// What it accelerates.
    pub backing: Backing,
    /// Where the pool is: a device, or a file that is made.
    pub ssd: String,
    /// The SSD is to be as slow as one of this model set (docs/disk-model.md).
    pub ssd_model: Option<String>,
    /// Of the pool, in bytes; 0 takes all of a device.
    pub cache_bytes: u64,
    /// RAM tier, in bytes.
    pub ram_bytes: u64,
    /// `write-through`, `write-back`, `pass-through`.
    pub mode: String,
    /// More options of `hearth pool create`.
    pub pool_options: Vec<String>,
    /// More options of `hearth volume add`.
    pub options: Vec<String>,
}

/// A daemon of our own with one pool and one volume; all of it ends with this guard.
pub struct Cached {
    stage: Stage,
    daemon: Running,
    env: Vec<(String, String)>,
    path: String,
    client: Client,
    /// Goes after the daemon that is on it.
    ssd: Option<Bare>,
    // Of the socket, whose path may have 107 bytes; goes last.
    _short: tempfile::TempDir,
}

impl Cached {
    /// Starts the daemon, formats the pool (which is then cold) and makes the volume.
    ///
    /// # Errors
    /// If any of it fails.
    pub fn open(stage: &Stage, setup: &Setup) -> Result<Cached, Trouble> {
        let short = short_directory(stage)?;
        let state = stage.path("state");
        // Of a run that was cut off.
        if state.exists() {
            std::fs::remove_dir_all(&state).map_err(|error| Trouble::io("remove", &state, &error))?;
        }
        let variable = |name: &str, value: String| (name.to_owned(), value);
        let env = vec![
            variable("HEARTH_STATE", state.display().to_string()),
            socket_variable(short.path()),
            variable("HEARTH_CONFIG", String::new()),
        ];
        // A file is made anew, in the size of this case; only we give it that name.
        let ssd = Path::new(&setup.ssd);
        if !ssd.starts_with("/dev") && ssd.exists() {
            std::fs::remove_file(ssd).map_err(|error| Trouble::io("remove", ssd, &error))?;
        }
        let slow_ssd = setup.ssd_model.as_deref().map(|set| slow_ssd(stage, set, setup)).transpose()?;
        let mut daemon = stage.begin("serve", &[stage.hearth(), "serve".into()], &env)?;
        daemon.wait_for("ready", SHORT)?;
        let mut cached = Cached {
            stage: stage.clone(),
            daemon,
            env,
            path: String::new(),
            client: Client::new(&short.path().join(SOCKET)),
            ssd: slow_ssd,
            _short: short,
        };
        // The evaluation owns the SSD it was given, which was said before it began; what an earlier leg left there is not kept.
        let device = cached.ssd.as_ref().map_or(setup.ssd.clone(), |ssd| ssd.path().into());
        let mut pool = vec!["pool", "create", POOL, "--ssd", &device, "--force"];
        let (size, ram) = (format!("{}B", setup.cache_bytes), format!("{}B", setup.ram_bytes));
        if setup.cache_bytes > 0 {
            pool.extend(["--size", &size]);
        }
        pool.extend(["--ram", &ram]);
        pool.extend(setup.pool_options.iter().map(String::as_str));
        cached.hearth(&pool)?;
        let backing = setup.backing.word();
        let mut volume = vec!["volume", "add", VOLUME, "--backing", &backing, "--pool", POOL, "--mode", &setup.mode, "--export", "loop"];
        volume.extend(setup.options.iter().map(String::as_str));
        cached.path = device_in(&cached.hearth(&volume)?)?;
        Ok(cached)
    }

    /// The block device of the volume.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Runs a command of hearth against this daemon; gives its output.
    ///
    /// # Errors
    /// As of [`Stage::run`].
    pub fn hearth(&self, words: &[&str]) -> Result<String, Trouble> {
        let hearth = self.stage.hearth();
        let words: Vec<&str> = std::iter::once(hearth.as_str()).chain(words.iter().copied()).collect();
        self.stage.run_with(&words, &self.env, LONG)
    }

    /// Puts the volume into another mode, while I/O runs.
    ///
    /// # Errors
    /// As of [`Stage::run`].
    pub fn set_mode(&self, mode: &str) -> Result<(), Trouble> {
        self.hearth(&["volume", "set", VOLUME, "--mode", mode]).map(drop)
    }

    /// Reads a part of the volume into the cache.
    ///
    /// # Errors
    /// As of [`Stage::run`].
    pub fn warm(&self, range_bytes: std::ops::Range<u64>) -> Result<(), Trouble> {
        // "0B" is no size, "0" is.
        let start = if range_bytes.start == 0 { "0".into() } else { format!("{}B", range_bytes.start) };
        let range = format!("{start}-{}B", range_bytes.end);
        self.hearth(&["volume", "warm", VOLUME, "--range", &range]).map(drop)
    }

    /// Who tells the counters of the volume, from any thread.
    pub fn teller(&self) -> Teller {
        Teller { client: self.client.clone() }
    }

    /// CPU time of the daemon, and of a modelled SSD, in seconds.
    pub fn cpu_s(&self) -> f64 {
        self.daemon.cpu_s().unwrap_or(0.0) + self.ssd.as_ref().map_or(0.0, Bare::cpu_s)
    }

    /// Brings all dirty data home, takes the volume and the pool apart and ends the daemon.
    ///
    /// # Errors
    /// If dirty data does not come home, or the daemon does not end in order.
    pub fn close(mut self) -> Result<(), Trouble> {
        self.hearth(&["volume", "remove", VOLUME])?;
        self.hearth(&["pool", "destroy", POOL])?;
        if self.daemon.end() {
            drop(self.ssd.take());
            Ok(())
        } else {
            Err(Trouble::failed("hearth did not end in order", "see serve.log in the output's work directory"))
        }
    }
}

/// A directory of a short path for a socket, and for mounts beside it; the next run removes it if this one is killed.
fn short_directory(stage: &Stage) -> Result<tempfile::TempDir, Trouble> {
    let made = tempfile::Builder::new().prefix(leftovers::ELSEWHERE).tempdir();
    let short = made.map_err(|error| Trouble::Failed(format!("cannot make a directory for the socket: {error}")))?;
    stage.note_directory(short.path());
    Ok(short)
}

fn socket_variable(directory: &Path) -> (String, String) {
    ("HEARTH_SOCKET".into(), directory.join(SOCKET).display().to_string())
}

/// The SSD of a setup behind a model of a slower one: a file is made for it, a device is taken as it is.
fn slow_ssd(stage: &Stage, set: &str, setup: &Setup) -> Result<Bare, Trouble> {
    let place = Path::new(&setup.ssd);
    if !place.exists() {
        let made = std::fs::File::create(place).and_then(|file| file.set_len(setup.cache_bytes));
        made.map_err(|error| Trouble::io("make", place, &error))?;
    }
    Bare::model(stage, "ssd-model", set, &setup.ssd)
}

/// Tells the counters of a volume, by the daemon's API.
#[derive(Clone, Debug)]
pub struct Teller {
    client: Client,
}

impl Teller {
    /// All of them, since the volume was made.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn stats(&self) -> Result<VolumeStats, Trouble> {
        self.client.get(&format!("/stats/{VOLUME}")).map_err(|error| Trouble::Failed(error.to_string()))
    }

    /// How long its reads took, since it was made.
    ///
    /// # Errors
    /// As of [`Teller::stats`].
    pub fn read_waits(&self) -> Result<ReadWaits, Trouble> {
        let scrape = self.client.metrics().map_err(|error| Trouble::Failed(error.to_string()))?;
        Ok(ReadWaits::of(VOLUME, &scrape))
    }

    /// How much SSD shares of hits (in percent) take, and what so many bytes of it would bring; without, those of the pool.
    ///
    /// # Errors
    /// As of [`Teller::stats`].
    pub fn advice(&self, targets_percent: &[f64], budget_bytes: Option<u64>) -> Result<AdviceView, Trouble> {
        let ask = AdviceAsk { name: Some(VOLUME.into()), targets_percent: targets_percent.to_vec(), budget_bytes, with_backups: false };
        let told: Vec<AdviceView> = self.client.send("POST", "/advice", &ask).map_err(|error| Trouble::Failed(error.to_string()))?;
        told.into_iter().next().ok_or_else(|| Trouble::Failed("the daemon tells no advice for the volume".into()))
    }

    /// Who read and wrote, by kind, since the volume was made.
    ///
    /// # Errors
    /// As of [`Teller::stats`].
    pub fn streams(&self) -> Result<Vec<StreamView>, Trouble> {
        self.client.get(&format!("/streams?name={VOLUME}")).map_err(|error| Trouble::Failed(error.to_string()))
    }

    /// What [`Teller::stats`] tells, as the results have it.
    ///
    /// # Errors
    /// As of [`Teller::stats`].
    pub fn figures(&self) -> Result<CacheFigures, Trouble> {
        let stats = self.stats()?;
        Ok(CacheFigures {
            hits_ram: stats.read_hits_ram,
            hits_ssd: stats.read_hits_ssd,
            misses: stats.read_misses,
            host_read_bytes: stats.read_bytes,
            host_written_bytes: stats.written_bytes,
            ssd_written_bytes: stats.ssd_written_bytes,
            backing_read_bytes: stats.backing_read_bytes,
            backing_written_bytes: stats.backing_written_bytes,
            dirty_bytes: stats.dirty_bytes.unwrap_or(0),
        })
    }
}

/// The loop device that a line names.
fn device_in(text: &str) -> Result<String, Trouble> {
    let word = text.split_whitespace().find(|word| word.starts_with("/dev/loop"));
    word.map(|word| word.trim_end_matches([',', ';', '.']).to_owned())
        .ok_or_else(|| Trouble::Failed(format!("hearth offered no loop device: {}", text.trim())))
}
