//! The commands that talk to the daemon.

use crate::cli::{Job, Pool, Volume};
use crate::disks::kept;
use crate::failure::Failure;
use crate::logs::say;
use crate::progress::{begin, follow, patiently};
use crate::recipes::{For, Offered, recipe};
use crate::{devices, jobs, quantity, request, show, stats};
use api::client::{Client, ClientError, ServerEvent};
use api::error::Kind;
use api::names::Named;
use api::options;
use api::stats::{PoolStats, VolumeStats};
use api::words::Export;
use api::{
    DeviceView, Done, Health, JobKind, JobView, PoolCreate, PoolReplace, PoolSet, PoolView, Sample, StatsView, VolumeAdd, VolumeRename,
    VolumeSet, VolumeView, VolumeWarm,
};
use serde::Serialize;
use std::time::{Duration, Instant};
use terminal::interrupt::Interrupt;

pub use terminal::output::{print, to_json};

/// Between two looks of `stats --watch`, where the daemon does not say when.
const WATCH: Duration = Duration::from_secs(1);

/// Between two looks of `volume wait`.
const LOOK: Duration = Duration::from_millis(100);

/// What a command needs.
pub struct Session {
    /// The daemon.
    pub client: Client,
    /// `--json`.
    pub json: bool,
    /// Ctrl-C.
    pub interrupt: Interrupt,
}

impl Session {
    /// One answer: JSON if that was asked for, else words.
    pub fn print<T: Serialize>(&self, value: &T, human: impl FnOnce(&T) -> String) -> Result<(), Failure> {
        let text = if self.json { to_json(value) } else { human(value) };
        print(&text)
    }

    /// What is not as it was asked for, although it was done: on standard error, so that who reads the answer gets that alone.
    pub(crate) fn warn(&self, problem: &Option<String>, remedy: &Option<String>) {
        let Some(problem) = problem else { return };
        let remedy = remedy.as_deref().filter(|remedy| !remedy.is_empty()).map_or(String::new(), |remedy| format!("; {remedy}"));
        say(format_args!("hearth: warning: {problem}{remedy}"));
    }

    /// A job to its end; with `--json` its last view, else one line.
    pub(crate) fn finish(&self, job: JobView) -> Result<(), Failure> {
        self.finished(job).map(drop)
    }

    /// The same; gives the job as it ended.
    fn finished(&self, job: JobView) -> Result<JobView, Failure> {
        let job = follow(&self.client, &self.interrupt, job)?;
        self.print(&job, |job| {
            let took = match job.elapsed_ms {
                0 => "less than 1 ms".into(),
                ms => api::human::nanoseconds(ms.saturating_mul(1_000_000)),
            };
            let (kind, done) = (job.kind.word(), api::human::bytes(job.done_bytes));
            let meanwhile = match job.total_bytes.saturating_sub(job.done_bytes) {
                left_bytes if left_bytes > 0 && job.kind == JobKind::Destage => {
                    format!("; {} that clients wrote meanwhile are dirty", api::human::bytes(left_bytes))
                }
                _ => String::new(),
            };
            if job.kind == JobKind::Destage && job.done_bytes == 0 {
                return format!("{kind} of {} done: nothing was dirty{meanwhile}\n", job.volume);
            }
            format!("{kind} of {} done: {done} in {took}{meanwhile}\n", job.volume)
        })?;
        Ok(job)
    }

    /// A sentence for people, behind an answer that says less than they need. Not with `--json`.
    fn tell(&self, text: impl FnOnce() -> Result<String, Failure>) -> Result<(), Failure> {
        if self.json { Ok(()) } else { print(&text()?) }
    }

    /// `hearth pool ...`, all but the `check` of a path.
    ///
    /// # Errors
    /// With the sentence to print.
    pub fn pool(&self, command: &Pool) -> Result<(), Failure> {
        match command {
            Pool::Create { name, ssd, size, ram, content, force, on_blank_ssd, spare } => {
                let body = PoolCreate {
                    name: request::name(Named::Pool, name)?.into(),
                    ssd: request::ssd("--ssd", ssd)?,
                    size_bytes: size.as_deref().map(|t| quantity::size("--size", t)).transpose()?,
                    ram_bytes: ram.as_deref().map(|t| quantity::size_or_none("--ram", t)).transpose()?,
                    content: request::content(content.as_deref())?,
                    force: *force,
                    on_blank_ssd: request::on_blank_ssd(on_blank_ssd.as_deref())?,
                    spare_percent: spare.as_deref().map(options::spare).transpose()?,
                };
                let pool: PoolView = patiently("creating the pool", || self.client.send("POST", "/pools", &body))?;
                self.print(&pool, show::pool_created)
            }
            Pool::Import { ssd, look, name, backing, rename, missing_later } => {
                let asked = crate::import::Asked {
                    ssd: ssd.as_deref(),
                    look: *look,
                    name: name.as_deref(),
                    backing,
                    rename,
                    missing_later: *missing_later,
                };
                self.import(&asked)
            }
            Pool::List => self.print(&self.client.get::<Vec<PoolView>>("/pools")?, |p| show::pools(p)),
            Pool::Show { name } => {
                self.print(&self.client.get::<PoolView>(&format!("/pools/{}", request::name(Named::Pool, name)?))?, show::pool)
            }
            Pool::Set { name, content, on_blank_ssd } => {
                let path = format!("/pools/{}", request::name(Named::Pool, name)?);
                let body = PoolSet {
                    content: request::content(content.as_deref())?,
                    on_blank_ssd: request::on_blank_ssd(on_blank_ssd.as_deref())?,
                };
                let before: PoolView = self.client.get(&path)?;
                let pool: PoolView = patiently("changing the pool", || self.client.send("PATCH", &path, &body))?;
                self.print(&pool, |now| show::pool_changed(&before, now, &body))
            }
            Pool::Replace { name, ssd, size, force, drop_dirty } => {
                let path = format!("/pools/{}/replace", request::name(Named::Pool, name)?);
                let body = PoolReplace {
                    ssd: request::ssd("--ssd", ssd)?,
                    size_bytes: size.as_deref().map(|t| quantity::size("--size", t)).transpose()?,
                    force: *force,
                    drop_dirty: *drop_dirty,
                };
                self.replace_pool(name, &path, &body)
            }
            Pool::Start { name } => {
                let path = format!("/pools/{}/start", request::name(Named::Pool, name)?);
                let done: Done = patiently("starting the pool", || self.client.post(&path))?;
                self.print(&done, |done| format!("pool {name}: {}\n", done.summary.as_deref().unwrap_or("done")))
            }
            Pool::TakeBack { name } => self.take_back(name),
            Pool::Destroy { name, force } => {
                let path = format!("/pools/{}?force={force}", request::name(Named::Pool, name)?);
                let done: Done = patiently("destroying the pool", || self.client.delete(&path))?;
                self.print(&done, |done| {
                    let left = done.summary.as_ref().map_or(String::new(), |summary| format!("; {summary}"));
                    format!("pool {name} destroyed{left}\n")
                })
            }
            Pool::Check { pool } => self.check_pool(pool),
        }
    }

    /// Moves a pool to another SSD, and prints where it is then.
    fn replace_pool(&self, name: &str, path: &str, body: &PoolReplace) -> Result<(), Failure> {
        let job = begin(&self.interrupt, || self.client.send("POST", path, body))?;
        follow(&self.client, &self.interrupt, job)?;
        let pool: PoolView = self.client.get(&format!("/pools/{name}"))?;
        self.print(&pool, |p| format!("pool {} is now on {}: {}\n", p.name, p.ssd, api::human::bytes(p.size_bytes)))
    }

    /// Gives room before the disks of a pool's SSD back to its cache.
    fn take_back(&self, name: &str) -> Result<(), Failure> {
        let path = format!("/pools/{}/take-back", request::name(Named::Pool, name)?);
        // Read before the job, which may have begun the cache again by the time this is printed. If there is no such pool, the job says so.
        let before = self.client.get::<PoolView>(&format!("/pools/{name}")).ok();
        let job = begin(&self.interrupt, || self.client.post(&path))?;
        before.map_or(Ok(()), |pool| self.tell_cost(&pool, "takes room back"))?;
        follow(&self.client, &self.interrupt, job)?;
        let pool: PoolView = self.client.get(&format!("/pools/{name}"))?;
        self.print(&pool, |p| format!("pool {}: its cache has {} now, and {}\n", p.name, api::human::bytes(p.size_bytes), kept(p)))
    }

    /// Checks a pool of the daemon. A file of that name may have been meant.
    fn check_pool(&self, pool: &str) -> Result<(), Failure> {
        let path = format!("/pools/{}/check", request::name(Named::Pool, pool)?);
        match begin(&self.interrupt, || self.client.post(&path)) {
            Err(ClientError::Refused(refusal)) if refusal.kind == Kind::NotFound && std::path::Path::new(pool).exists() => {
                Err(Failure::failed(refusal.detail, &format!("write ./{pool} for the file of that name")))
            }
            job => self.finish(job?),
        }
    }

    /// `hearth devices`.
    ///
    /// # Errors
    /// With the sentence to print.
    pub fn devices(&self) -> Result<(), Failure> {
        let found: Vec<DeviceView> = patiently("examining the disks", || self.client.get("/devices"))?;
        self.print(&found, |found| devices::devices(found))
    }

    /// `hearth job ...`.
    ///
    /// # Errors
    /// With the sentence to print.
    pub fn job(&self, command: &Job) -> Result<(), Failure> {
        match command {
            Job::List => self.print(&self.client.get::<Vec<JobView>>("/jobs")?, |all| jobs::jobs(all)),
            Job::Show { id } => self.print(&self.client.get::<JobView>(&format!("/jobs/{id}"))?, jobs::job),
            Job::Cancel { id } => self.print(&self.client.delete::<JobView>(&format!("/jobs/{id}"))?, jobs::cancelled),
            Job::Resume { id } => self.finish(begin(&self.interrupt, || self.client.post(&format!("/jobs/{id}/resume")))?),
        }
    }

    /// `hearth volume ...`.
    ///
    /// # Errors
    /// With the sentence to print.
    pub fn volume(&self, command: &Volume) -> Result<(), Failure> {
        match command {
            Volume::Add { name, backing, pool, export, tls, sector_size, options } => {
                let body = VolumeAdd {
                    name: request::name(Named::Volume, name)?.into(),
                    pool: request::name(Named::Pool, pool)?.into(),
                    backing: request::backing("--backing", backing)?,
                    exports: request::exports(export, *tls)?,
                    sector_bytes: *sector_size,
                    options: request::options(options, false)?,
                };
                let volume: VolumeView = patiently("adding the volume", || self.client.send("POST", "/volumes", &body))?;
                self.print(&volume, added)?;
                self.warn(&volume.problem, &volume.remedy);
                Ok(())
            }
            Volume::List => self.print(&self.client.get::<Vec<VolumeView>>("/volumes")?, |v| show::volumes(v)),
            Volume::Show { name, machine } => {
                let path = format!("/volumes/{}", request::name(Named::Volume, name)?);
                let volume = self.client.get::<VolumeView>(&path)?;
                match For::asked(machine) {
                    Some(machine) => print(&recipe(&Offered::from(&volume), machine)?),
                    None => self.print(&volume, show::volume),
                }
            }
            Volume::Set { name, options, export, no_export, tls, read_write, accept_backing } => {
                let options = request::options(options, *read_write)?;
                let exports = (*no_export || !export.is_empty()).then(|| request::exports(export, *tls)).transpose()?;
                let body = VolumeSet { options, accept_backing: *accept_backing, exports };
                self.set_volume(name, &body)
            }
            Volume::Rename { name, new_name } => {
                let path = format!("/volumes/{}/rename", request::name(Named::Volume, name)?);
                let body = VolumeRename { name: request::name(Named::Volume, new_name)?.into() };
                let done: Done = patiently("giving the volume another name", || self.client.send("POST", &path, &body))?;
                self.print(&done, |done| format!("volume {name}: {}\n", done.summary.as_deref().unwrap_or("done")))
            }
            Volume::Start { name } => self.tell_of(name, "start", "starting the volume"),
            Volume::Stop { name, give_up, force } => {
                let volume = self.client.get::<VolumeView>(&format!("/volumes/{}", request::name(Named::Volume, name)?));
                // What holds a stop up is its device.
                let doing = volume.map_or_else(|_| "stopping the volume".into(), |v| format!("stopping the volume over {}", v.backing));
                self.tell_of(name, &format!("stop?give_up={give_up}&force={force}"), &doing)
            }
            Volume::DropCache { name } => self.tell_of(name, "drop-cache", "dropping the cache"),
            Volume::Grow { name } => self.tell_of(name, "grow", "growing the volume"),
            Volume::Destage { name } => {
                let path = format!("/volumes/{}/destage", request::name(Named::Volume, name)?);
                self.finish(begin(&self.interrupt, || self.client.post(&path))?)
            }
            Volume::Wait { name, limit } => self.wait(name, Duration::from_secs(u64::from(*limit))),
            Volume::Warm { name, range, rate } => {
                let (start_bytes, end_bytes) = range.as_deref().map_or(Ok((0, None)), |t| quantity::range("--range", t))?;
                let path = format!("/volumes/{}/warm", request::name(Named::Volume, name)?);
                let rate_bytes_s = rate.as_deref().map(|text| quantity::size("--rate", text)).transpose()?;
                let body = VolumeWarm { start_bytes, end_bytes, rate_bytes_s };
                self.finish(begin(&self.interrupt, || self.client.send("POST", &path, &body))?)
            }
            Volume::Remove { name, drop_dirty } => self.remove_volume(name, *drop_dirty),
        }
    }

    /// Changes a volume. The answer is a job if it leaves write-back mode, and dirty blocks are to be destaged first.
    fn set_volume(&self, name: &str, body: &VolumeSet) -> Result<(), Failure> {
        let path = format!("/volumes/{}", request::name(Named::Volume, name)?);
        let send = || patiently("changing the volume", || self.client.send("PATCH", &path, body));
        let answer: serde_json::Value = begin(&self.interrupt, send)?;
        match serde_json::from_value::<JobView>(answer.clone()) {
            Ok(job) => {
                self.finish(job)?;
                self.tell(|| Ok(show::left_write_back(&self.client.get::<VolumeView>(&path)?)))
            }
            Err(_) => {
                let done: Done = serde_json::from_value(answer).unwrap_or_default();
                self.print(&done, |done| show::changed(name, done.summary.as_deref().unwrap_or("done"), body.options.mode.as_deref()))?;
                if body.exports.is_some() { self.tell(|| Ok(places(&self.client.get::<VolumeView>(&path)?))) } else { Ok(()) }
            }
        }
    }

    fn remove_volume(&self, name: &str, drop_dirty: bool) -> Result<(), Failure> {
        let volume = format!("/volumes/{}", request::name(Named::Volume, name)?);
        let before: VolumeView = self.client.get(&volume)?;
        let path = format!("{volume}?drop_dirty={drop_dirty}");
        let doing = format!("removing the volume over {}", before.backing);
        let job = self.finished(begin(&self.interrupt, || patiently(&doing, || self.client.delete(&path)))?)?;
        self.tell(|| Ok(job.summary.map_or_else(|| show::removed(&before, drop_dirty), |summary| summary + "\n")))
    }

    /// Asks for something to be done with a volume, and prints what was.
    fn tell_of(&self, name: &str, verb: &str, doing: &str) -> Result<(), Failure> {
        let path = format!("/volumes/{}/{verb}", request::name(Named::Volume, name)?);
        let done: Done = patiently(doing, || self.client.post(&path))?;
        self.print(&done, |done| format!("volume {name}: {}\n", done.summary.as_deref().unwrap_or("done")))
    }

    /// Waits until a volume is served, with its SSD or without, and found by its stable name. A daemon that is not there may be coming.
    fn wait(&self, name: &str, limit: Duration) -> Result<(), Failure> {
        let path = format!("/volumes/{}", request::name(Named::Volume, name)?);
        let deadline = Instant::now() + limit;
        loop {
            let late = Instant::now() >= deadline;
            match self.client.get::<VolumeView>(&path) {
                Ok(volume) => match volume.health {
                    Health::Running | Health::Failing | Health::Degraded if !lacks_name(&volume) => {
                        return self.print(&volume, |volume| format!("volume {name} is {}\n", volume.health.word()));
                    }
                    health if late || health == Health::Stopped => {
                        let problem = volume.problem.unwrap_or_else(|| format!("it is {}", health.word()));
                        let remedy = volume.remedy.unwrap_or_else(|| format!("see `hearth volume show {name}`"));
                        return Err(Failure::failed(problem, &remedy));
                    }
                    _ => {}
                },
                Err(error) if late || matches!(error, ClientError::Refused(_)) => return Err(error.into()),
                Err(_) => {}
            }
            std::thread::sleep(LOOK);
        }
    }

    /// `hearth stats`.
    ///
    /// # Errors
    /// With the sentence to print.
    pub fn stats(&self, name: Option<&str>, watch: bool) -> Result<(), Failure> {
        let name = name.map(|n| request::name(Named::Volume, n)).transpose()?;
        if watch {
            return self.watch_stats(name);
        }
        match name {
            None => self.print(&self.client.get::<StatsView>("/stats")?, stats::all),
            Some(name) => {
                let answer: serde_json::Value = self.client.get(&format!("/stats/{name}"))?;
                if self.json {
                    return print(&to_json(&answer));
                }
                let text = match serde_json::from_value::<VolumeStats>(answer.clone()) {
                    Ok(volume) => stats::volume(name, &volume),
                    Err(_) => stats::pool(name, &serde_json::from_value::<PoolStats>(answer).unwrap_or_default()),
                };
                print(&text)
            }
        }
    }

    fn watch_stats(&self, name: Option<&str>) -> Result<(), Failure> {
        let look = || -> Result<StatsView, Failure> {
            let mut view: StatsView = self.client.get("/stats")?;
            match name {
                Some(pool) if view.pools.contains_key(pool) => {
                    let of: PoolView = self.client.get(&format!("/pools/{pool}"))?;
                    of_pool(&mut view, &of);
                }
                Some(name) => {
                    // Asking for it by name gives the right error if it is not there (any more).
                    self.client.get::<serde_json::Value>(&format!("/stats/{name}"))?;
                    view.volumes.retain(|volume, _| volume == name);
                    view.disks.retain(|disk, _| disk == name);
                }
                None => {}
            }
            Ok(view)
        };
        let (mut before, mut at) = (look()?, Instant::now());
        let mut seconds = Seconds { stream: None, client: &self.client };
        loop {
            let sample = seconds.wait();
            let (now, elapsed) = (look()?, at.elapsed());
            at = Instant::now();
            if self.json {
                // One line per look, so that it can be piped.
                let line = serde_json::to_string(&now).expect("counters can be written as JSON");
                print(&(line + "\n"))?;
            } else {
                print(&(stats::rates(&before, &now, elapsed, sample.as_ref()) + "\n"))?;
            }
            before = now;
        }
    }
}

/// Waits for the daemon's own seconds, so that each line tells of a whole one; for a second of its own where the daemon has none to tell of.
struct Seconds<'a> {
    client: &'a Client,
    stream: Option<Box<dyn Iterator<Item = Result<ServerEvent, ClientError>>>>,
}

impl Seconds<'_> {
    /// The second's sample, where the daemon has told of one.
    fn wait(&mut self) -> Option<Sample> {
        let began = Instant::now();
        let stream = self.stream.get_or_insert_with(|| Box::new(self.client.stream("/stream", None)));
        let sampled = stream.by_ref().map_while(Result::ok).find(|event| event.event == "sample");
        if sampled.is_none() {
            // What is wrong, if anything, is told by the next question.
            self.stream = None;
            std::thread::sleep(WATCH.saturating_sub(began.elapsed()));
        }
        serde_json::from_str(&sampled?.data).ok()
    }
}

/// Leaves the counters of a pool, its volumes and its disks.
fn of_pool(view: &mut StatsView, pool: &PoolView) {
    view.pools.retain(|name, _| *name == pool.name);
    view.volumes.retain(|name, _| pool.volumes.contains(name));
    view.disks.retain(|name, _| pool.disks.contains(name));
}

/// Where a volume is exported, one place a line.
fn places(volume: &VolumeView) -> String {
    volume.exports.values().flatten().chain(&volume.stable_path).map(|place| format!("{place}\n")).collect()
}

/// Whether the volume is a block device that is not found by its stable name; who has one attached knows it by that device.
fn lacks_name(volume: &VolumeView) -> bool {
    let is_device = |export: &String| Export::parse(export).is_ok_and(|export| export.is_device());
    let has_device = volume.exports.iter().any(|(export, place)| place.is_some() && is_device(export));
    has_device && volume.stable_path.is_none() && volume.attached_to.is_none()
}

fn added(volume: &VolumeView) -> String {
    let mut text = places(volume);
    if text.is_empty() {
        text = format!("volume {} added; it has no export (use --export block or --export nbd to make one)\n", volume.name);
    }
    text
}
