//! `hearth disk ...`: plain parts of a pool's SSD.

use crate::cli::Disk;
use crate::commands::{Session, print};
use crate::failure::Failure;
use crate::progress::{begin, follow, patiently};
use crate::recipes::{For, Offered, recipe};
use crate::table::{self, Align};
use crate::{quantity, request, show};
use api::human;
use api::names::Named;
use api::{DiskCreate, DiskPiece, DiskSet, DiskView, Done, JobView, PoolView};

impl Session {
    /// `hearth disk ...`.
    ///
    /// # Errors
    /// With the sentence to print.
    pub fn disk(&self, command: &Disk) -> Result<(), Failure> {
        let path = |name: &str| Ok::<String, Failure>(format!("/disks/{}", request::name(Named::Disk, name)?));
        match command {
            Disk::Create { name, pool, size, export, tls } => {
                let body = DiskCreate {
                    name: request::name(Named::Disk, name)?.into(),
                    pool: request::name(Named::Pool, pool)?.into(),
                    size_bytes: quantity::size("--size", size)?,
                    exports: request::exports(export, *tls)?,
                };
                let path = path(name)?;
                self.tell_before(&body.pool, Some(&body.name), body.size_bytes)?;
                let send = || patiently("making the disk", || self.client.send("POST", "/disks", &body));
                let answer: serde_json::Value = begin(&self.interrupt, send)?;
                let job = serde_json::from_value::<JobView>(answer).ok();
                let gave_room = job.is_some();
                if let Some(job) = job {
                    follow(&self.client, &self.interrupt, job)?;
                }
                let disk: DiskView = self.client.get(&path)?;
                self.print(&disk, made)?;
                self.warn(&disk.problem, &disk.remedy);
                self.tell_cache_now(&disk.pool, gave_room)
            }
            Disk::List => self.print(&self.client.get::<Vec<DiskView>>("/disks")?, |disks| list(disks)),
            Disk::Show { name, machine } => {
                let disk = self.client.get::<DiskView>(&path(name)?)?;
                match For::asked(machine) {
                    Some(machine) => print(&recipe(&Offered::from(&disk), machine)?),
                    None => self.print(&disk, show),
                }
            }
            Disk::Resize { name, size, lose_content } => {
                let body = DiskSet { size_bytes: Some(quantity::size("--size", size)?), lose_content: *lose_content, exports: None };
                let path = path(name)?;
                let before: DiskView = self.client.get(&path)?;
                self.tell_before(&before.pool, None, body.size_bytes.unwrap_or(0).saturating_sub(before.size_bytes))?;
                let send = || patiently("changing the size", || self.client.send("PATCH", &path, &body));
                let answer: serde_json::Value = begin(&self.interrupt, send)?;
                let job = serde_json::from_value::<JobView>(answer).ok();
                let gave_room = job.is_some();
                if let Some(job) = job {
                    follow(&self.client, &self.interrupt, job)?;
                }
                let disk: DiskView = self.client.get(&path)?;
                self.print(&disk, resized)?;
                self.tell_cache_now(&disk.pool, gave_room)
            }
            // Without --export none is left: the command line asks for one of the two.
            Disk::Set { name, export, tls, no_export: _ } => {
                let body = DiskSet { exports: Some(request::exports(export, *tls)?), ..DiskSet::default() };
                let path = path(name)?;
                let disk: DiskView = patiently("changing the exports", || self.client.send("PATCH", &path, &body))?;
                self.print(&disk, |disk| {
                    let places = places(disk);
                    let places = if places.is_empty() { "it has no export now" } else { &places };
                    format!("disk {}: {places}\n", disk.name)
                })?;
                self.warn(&disk.problem, &disk.remedy);
                Ok(())
            }
            Disk::Remove { name, lose_content } => {
                let path = format!("{}?lose_content={lose_content}", path(name)?);
                let done: Done = patiently("removing the disk", || self.client.delete(&path))?;
                self.print(&done, |_| format!("disk {name} removed\n"))
            }
        }
    }
}

impl Session {
    /// Before a disk takes `bytes` more: what that costs the cache, if it has to give the room.
    fn tell_before(&self, pool: &str, new: Option<&str>, bytes: u64) -> Result<(), Failure> {
        if self.json || bytes == 0 {
            return Ok(());
        }
        let disks: Vec<DiskView> = self.client.get("/disks")?;
        // What is refused is told by what follows.
        let Ok(pool) = self.client.get::<PoolView>(&format!("/pools/{pool}")) else { return Ok(()) };
        if pool.cached_bytes.is_none() || bytes >= pool.size_bytes || disks.iter().any(|disk| Some(disk.name.as_str()) == new) {
            return Ok(());
        }
        let taken_bytes: u64 = disks.iter().filter(|disk| disk.pool == pool.name).map(|disk| disk.size_bytes).sum();
        if bytes <= pool.disks_bytes.saturating_sub(taken_bytes) {
            return Ok(());
        }
        self.tell_cost(&pool, "gives the room")
    }

    /// What it costs the cache of a pool that it is about to get another size, unless it is empty as it is.
    pub(crate) fn tell_cost(&self, pool: &PoolView, does: &str) -> Result<(), Failure> {
        if self.json || pool.cached_bytes == Some(0) && pool.dirty_bytes == Some(0) {
            return Ok(());
        }
        let known = |bytes: Option<u64>| bytes.map_or("what is not known".into(), human::bytes);
        let (cached, dirty) = (known(pool.cached_bytes), known(pool.dirty_bytes));
        print(&format!(
            "the cache of pool {} {does}: its dirty data ({dirty}) is destaged, then its size changes ({cached} cached now); it keeps what lies \
             in the part that stays, or begins empty if it was upgraded from a log; Ctrl-C stops that while it destages\n",
            pool.name
        ))
    }

    /// What became of the cache of a pool that gave room, which users may not expect of making a disk.
    fn tell_cache_now(&self, pool: &str, gave_room: bool) -> Result<(), Failure> {
        if !gave_room || self.json {
            return Ok(());
        }
        let now = self.client.get::<PoolView>(&format!("/pools/{pool}"))?;
        let (size, kept) = (human::bytes(now.size_bytes), kept(&now));
        print(&format!("the cache of pool {pool} gave the room: it has {size} now, and {kept}\n"))
    }
}

/// What is left in a cache whose size has changed.
pub(crate) fn kept(now: &PoolView) -> String {
    match now.cached_bytes {
        Some(bytes) if bytes > 0 => format!("{} are still cached", human::bytes(bytes)),
        _ => "is empty".into(),
    }
}

fn places(disk: &DiskView) -> String {
    let own = disk.stable_path.iter().cloned();
    own.chain(disk.exports.values().flatten().cloned()).collect::<Vec<_>>().join(" ")
}

fn made(disk: &DiskView) -> String {
    let (size, places) = (human::bytes(disk.size_bytes), places(disk));
    let offered = if places.is_empty() { String::new() } else { format!(": {places}") };
    format!("disk {} made: {size} on {}, without checksums{offered}\n", disk.name, disk.ssd)
}

/// What a change of size came to.
fn resized(disk: &DiskView) -> String {
    let size = format!("its size is {} now", human::bytes(disk.size_bytes));
    let changed = std::iter::once(size).chain(disk.size_reach.iter().cloned()).collect::<Vec<_>>().join("; ");
    format!("disk {}: {changed}\n", disk.name)
}

/// All disks, one line each.
fn list(disks: &[DiskView]) -> String {
    if disks.is_empty() {
        return "no disks; make one with `hearth disk create NAME --pool POOL --size SIZE --export block`\n".into();
    }
    let head = [
        ("NAME", Align::Left),
        ("STATE", Align::Left),
        ("SIZE", Align::Right),
        ("POOL", Align::Left),
        ("SSD", Align::Left),
        ("EXPORTS", Align::Left),
    ];
    let row = |disk: &DiskView| {
        let (state, size) = (disk.health.word().into(), human::bytes(disk.size_bytes));
        vec![disk.name.clone(), state, size, disk.pool.clone(), disk.ssd.clone(), places(disk)]
    };
    let troubles = disks.iter().filter_map(|disk| {
        let remedy = disk.remedy.as_deref().filter(|remedy| !remedy.is_empty()).map_or(String::new(), |remedy| format!("; {remedy}"));
        Some(format!("{} is {}: {}{remedy}\n", disk.name, disk.health.word(), disk.problem.as_ref()?))
    });
    table::layout(&head, &disks.iter().map(row).collect::<Vec<_>>()) + &troubles.collect::<String>()
}

fn pieces(disk: &DiskView) -> String {
    let whole = |piece: &DiskPiece| format!("from byte {}", piece.offset_bytes);
    let one_of = |piece: &DiskPiece| format!("{} from byte {}", human::bytes(piece.size_bytes), piece.offset_bytes);
    match &disk.pieces[..] {
        [piece] => whole(piece),
        pieces => pieces.iter().map(one_of).collect::<Vec<_>>().join(", "),
    }
}

/// One disk.
fn show(disk: &DiskView) -> String {
    let checksums = if disk.checksummed { "checked when it is read" } else { "none: it is a part of the SSD and nothing else" };
    let mut pairs = vec![
        ("name", disk.name.clone()),
        ("state", disk.health.word().into()),
        ("size", human::bytes(disk.size_bytes)),
        ("pool", disk.pool.clone()),
        ("ssd", format!("{} {}", disk.ssd, pieces(disk))),
        ("checksums", checksums.into()),
    ];
    let export = |(how, place): (&String, &Option<String>)| {
        let note = disk.export_notes.get(how).map(|note| format!(", {note}")).unwrap_or_default();
        let restart = disk.on_restart.get(how).map(|what| format!(" (while the daemon restarts: {})", what.sentence()));
        ("export", format!("{how}: {}{note}{}", place.as_deref().unwrap_or("no export now"), restart.unwrap_or_default()))
    };
    pairs.extend(disk.exports.iter().map(export));
    pairs.extend(disk.stable_path.iter().map(|path| ("stable name", path.clone())));
    pairs.extend(disk.shares.iter().map(show::share));
    pairs.push(("uuid", disk.uuid.to_string()));
    pairs.extend(disk.problem.iter().map(|problem| ("problem", problem.clone())));
    pairs.extend(disk.remedy.iter().filter(|remedy| !remedy.is_empty()).map(|remedy| ("what to do", remedy.clone())));
    table::pairs(&pairs)
}
