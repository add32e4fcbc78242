//! A database beside its nightly backup: hits before it, while it runs, and after it.
//!
//! A volume counts the hits of all who read, and a backup reads much. So the hit rate of the *application*
//! is of bytes: 1 - missed / read. *Read* is what the volume was asked for, less what the kernel counted
//! as read by the backup ([`Backup::read_bytes`]). *Missed* is what `hearth stream list` tells of reads
//! that the cache did not answer, less its classes backup and scan. What the backup read beyond those
//! was hits of it, or misses that were not recognised: nobody can tell which. The figure is therefore a
//! least and a most, with none and with all of it unrecognised. While no backup runs, the volume's own
//! counters tell the same; both are given.
//!
//! A backup that would take too long is stopped: what the application keeps beside it is known by then.
//!
//! The database is warm when it begins, and its load goes on through all of it. The other arm has the same
//! load for as long, without the backup: what changes there by itself is no fault of a backup.

use super::blocks::Device;
use super::databases::{self, DatabaseRun};
use super::{Context, MIB, Planning, Suite, cache_of};
use crate::catalogue;
use crate::database::backup::{Backup, Served, Way};
use crate::database::legs::{Times, pgbench_beside, sysbench_beside};
use crate::database::pgbench::{DATABASE, Mix, Pgbench};
use crate::database::prepared::Contents;
use crate::database::sysbench::{Hot, Script, Sysbench};
use crate::database::{Driven, Moment};
use crate::result::{Arm, CacheFigures, Case, Leg};
use crate::stage::{Cached, Setup};
use crate::trouble::Trouble;
use std::time::Instant;

/// The share of its hits that the application is to keep.
const KEPT_MIN: f64 = 0.95;
/// Where fewer hit before the backup, there is nothing to keep.
const HITS_MIN: f64 = 0.01;
/// A backup may take so long to stop, in seconds.
const STOP_S: f64 = 5.0;
const MODE: &str = "write-back";

/// See the module.
pub struct Backups;

const WAYS: [(&str, Way, &str); 3] = [
    ("mysqldump", Way::MysqlDump, "sysbench on MariaDB beside mysqldump"),
    ("mariadb-backup", Way::MariadbBackup, "sysbench on MariaDB beside mariadb-backup"),
    ("pg-dump", Way::PgDump, "pgbench on PostgreSQL beside pg_dump"),
];

fn way_of(case: &Case) -> Result<Way, Trouble> {
    let found = WAYS.iter().find(|(name, ..)| case.id == format!("backups.{name}"));
    found.map(|found| found.1).ok_or_else(|| Trouble::Failed(format!("there is no {}", case.id)))
}

fn sysbench(scale: super::Scale) -> Sysbench {
    let rows = scale.pick(1_000_000, 500_000, 20_000);
    Sysbench { script: Script::ReadWrite, databases: 1, rows, threads: scale.pick(16, 16, 4), hot: Hot::LITERAL }
}

fn points(scale: super::Scale) -> Pgbench {
    let mix = Mix::HotPoints { rows_percent: 30, drawn_percent: 90 };
    Pgbench { mix, scale: scale.pick(60, 40, 2), clients: scale.pick(32, 16, 4), sampled: 0.1 }
}

fn contents(way: Way, scale: super::Scale) -> Contents {
    if way == Way::PgDump {
        return Contents::Pgbench { scale: points(scale).scale };
    }
    let load = sysbench(scale);
    Contents::Sysbench { databases: load.databases, rows: load.rows }
}

/// Seconds of the parts of a leg.
#[derive(Clone, Copy, Debug)]
struct Parts {
    warm: u64,
    /// Before the backup.
    before: f64,
    /// Where there is no backup, in its place.
    beside: f64,
    /// Most that the backup and what follows it may take together.
    rest: u64,
    /// What must be left of that after the backup.
    after_min: f64,
}

impl Parts {
    /// When a backup is stopped, so that enough is left after it.
    fn stop_s(&self) -> f64 {
        self.before + self.rest as f64 - self.after_min - STOP_S
    }
}

fn parts(scale: super::Scale) -> Parts {
    let (warm, before, beside) = (scale.pick(60, 30, 3), scale.pick(60.0, 20.0, 3.0), scale.pick(60.0, 25.0, 3.0));
    Parts { warm, before, beside, rest: scale.pick(240, 75, 30), after_min: scale.pick(60.0, 15.0, 2.0) }
}

impl Suite for Backups {
    fn cases(&self, planning: &Planning) -> Result<Vec<Case>, Trouble> {
        let set = catalogue::suite("backups").expect("the catalogue has it").model_set;
        let parts = parts(planning.scale);
        let case = |(name, way, title): &(&str, Way, &str)| {
            let contents = contents(*way, planning.scale);
            let cache_bytes = cache_of(contents.data_bytes() * 45 / 100);
            let arm = |id: &str, title: &str| Arm { id: id.into(), title: title.into(), cached: true, point: None };
            Case {
                id: format!("backups.{name}"),
                title: (*title).into(),
                about: format!(
                    "90 % of the rows are drawn from 30 % of them, from a cache of 45 % of the data; after {:.0} s of the measured part the \
                     backup begins, and its output is thrown away. Hits of the application before, while it runs and after.",
                    parts.before
                ),
                model_set: planning.model_set(set),
                data_bytes: contents.image_bytes(),
                cache_bytes,
                ram_bytes: (cache_bytes / 8).max(16 * MIB),
                rounds: planning.settings.pairs,
                arms: vec![arm("alone", "no backup"), arm("beside", "a backup beside it")],
                headlines: Vec::new(),
                counted: if *way == Way::PgDump { "transactions" } else { "queries" }.into(),
                leg_s: parts.warm as f64 + parts.before + parts.rest as f64 + 15.0,
                along: None,
                ceiling: None,
            }
        };
        Ok(WAYS.iter().map(case).collect())
    }

    fn prepare(&self, context: &Context, case: &Case) -> Result<(), Trouble> {
        let way = way_of(case)?;
        way.check()?;
        databases::prepare(context, case, &contents(way, context.scale), None)
    }

    fn legs(&self, context: &Context, case: &Case, arms: &[&Arm], round: u32) -> Result<Vec<Leg>, Trouble> {
        arms.iter().map(|arm| leg(context, case, arm, round)).collect()
    }
}

fn leg(context: &Context, case: &Case, arm: &Arm, round: u32) -> Result<Leg, Trouble> {
    let way = way_of(case)?;
    let (contents, parts) = (contents(way, context.scale), parts(context.scale));
    let times = Times { warm_seconds: parts.warm, seconds: parts.before as u64 + parts.rest };
    let told = std::cell::RefCell::new(None);
    let drive = |device: &Device, beside: &mut crate::database::Beside<'_>| -> Result<Driven, Trouble> {
        let cached = device.cached().ok_or_else(|| Trouble::Failed("it has no cache".into()))?;
        let mut timeline = Timeline {
            way: (arm.id == "beside").then_some(way),
            parts,
            begun: Instant::now(),
            marks: Vec::new(),
            backup: None,
            stopped: false,
        };
        let driven = match way {
            Way::PgDump => {
                let databases = [DATABASE.to_owned()];
                // PostgreSQL knows no direct I/O: it has as much memory as would hold an eighth of the data.
                let memory_bytes = (contents.data_bytes() / 8).max(128 * MIB);
                pgbench_beside(
                    context.stage,
                    device.path(),
                    &points(context.scale),
                    (memory_bytes / 4, Some(memory_bytes)),
                    times,
                    &mut |server, moment| {
                        timeline.on(context, cached, Served::Postgres(server), &databases, moment)?;
                        beside(moment)
                    },
                )
            }
            _ => {
                let load = sysbench(context.scale);
                let pool_bytes = (contents.data_bytes() * 65 / 1000).max(24 * MIB);
                sysbench_beside(context.stage, device.path(), &load, pool_bytes, times, &mut |server, moment| {
                    timeline.on(context, cached, Served::MariaDb(server), &load.names(), moment)?;
                    beside(moment)
                })
            }
        }?;
        *told.borrow_mut() = Some(timeline.tell()?);
        Ok(driven)
    };
    // pgbench's rows compress to an eighth: by content, the cache would hold all of them, and no backup could push anything out.
    let pool_options = vec!["--content".into(), "off".into()];
    let setup = Setup { pool_options, ..context.setup(case, MODE, &[]) };
    let run = DatabaseRun { setup: Some(setup), warm: true, attach: None, drive: &drive };
    let mut leg = databases::run(context, case, arm, round, &contents, &run)?;
    let told: Told = told.into_inner().ok_or_else(|| Trouble::Failed("the load reported nothing".into()))?;
    leg.figures.extend(told.figures());
    leg.notes.extend(told.words());
    Ok(leg)
}

/// What the volume says at some time.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    at_s: f64,
    cache: CacheFigures,
    /// Bytes of reads that the cache did not answer: of the application, of backups and scans.
    missed: u64,
    scanned: u64,
}

impl Mark {
    fn take(cached: &Cached, at_s: f64) -> Result<Mark, Trouble> {
        let teller = cached.teller();
        let (cache, streams) = (teller.figures()?, teller.streams()?);
        let is_backup = |class: &str| matches!(class, "backup" | "scan");
        let sum = |backup: bool| streams.iter().filter(|line| is_backup(&line.class) == backup).map(|line| line.read_bytes).sum();
        Ok(Mark { at_s, cache, missed: sum(false), scanned: sum(true) })
    }
}

/// A leg's measured part as it goes on: before the backup, beside it, after it.
struct Timeline {
    way: Option<Way>,
    parts: Parts,
    begun: Instant,
    /// At the begin, where the backup begins, where it ends, at the end.
    marks: Vec<Mark>,
    backup: Option<Backup>,
    /// The backup took too long.
    stopped: bool,
}

impl Timeline {
    fn on(&mut self, context: &Context, cached: &Cached, server: Served, databases: &[String], moment: Moment) -> Result<(), Trouble> {
        let now_s = self.begun.elapsed().as_secs_f64();
        match (moment, self.marks.len()) {
            (Moment::Measured, _) => {
                self.begun = Instant::now();
                self.marks = vec![Mark::take(cached, 0.0)?];
            }
            (Moment::At(_), 1) if now_s >= self.parts.before => {
                self.marks.push(Mark::take(cached, now_s)?);
                self.backup = self.way.map(|way| Backup::begin(context.stage, way, server, databases)).transpose()?;
            }
            (Moment::At(_), 2) => {
                let over = match &mut self.backup {
                    Some(backup) => backup.is_done(server)?,
                    None => now_s >= self.marks[1].at_s + self.parts.beside,
                };
                self.stopped = !over && now_s >= self.parts.stop_s();
                if let Some(backup) = self.backup.as_mut().filter(|_| self.stopped) {
                    backup.stop();
                }
                if over || self.stopped {
                    // Stopping it takes a while.
                    let now_s = self.begun.elapsed().as_secs_f64();
                    self.marks.push(Mark::take(cached, now_s)?);
                }
            }
            (Moment::Ended, _) => self.marks.push(Mark::take(cached, now_s)?),
            _ => {}
        }
        Ok(())
    }

    fn tell(&self) -> Result<Told, Trouble> {
        let [first, begun, ended, last] = self.marks[..] else {
            let rest = self.parts.rest;
            return Err(Trouble::failed(format!("the backup did not end within {rest} s"), "the device answers too slowly for it"));
        };
        if last.at_s - ended.at_s < self.parts.after_min {
            let left = last.at_s - ended.at_s;
            return Err(Trouble::failed(format!("only {left:.0} s were left after the backup"), "the device answers too slowly for it"));
        }
        let backup_bytes = self.backup.as_ref().map_or(0, Backup::read_bytes);
        if self.way.is_some() && backup_bytes == 0 {
            return Err(Trouble::Failed("what the backup read could not be measured".into()));
        }
        Ok(Told { marks: [first, begun, ended, last], backup_bytes, with_backup: self.way.is_some(), stopped: self.stopped })
    }
}

/// The part of the hits before that is left; `None` where there were none worth the name.
fn kept_of(now: f64, before: f64) -> Option<f64> {
    (before >= HITS_MIN).then(|| now / before)
}

/// The same in words, with a verdict; of hits that are known as a least and a most.
fn kept_words(least: f64, most: f64, before: f64) -> String {
    let (Some(least), Some(most)) = (kept_of(least, before), kept_of(most, before)) else {
        return "too few hits before it to keep".into();
    };
    let range = if most > least { format!("{} to {}", percent(least), percent(most)) } else { percent(least) };
    let verdict = match () {
        () if least >= KEPT_MIN => "kept",
        () if most < KEPT_MIN => "MISSED",
        () => "undecided",
    };
    format!("{range} of before: {verdict}")
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// What came of a leg.
#[derive(Clone, Copy, Debug)]
struct Told {
    marks: [Mark; 4],
    backup_bytes: u64,
    with_backup: bool,
    stopped: bool,
}

impl Told {
    /// Hits of the application by bytes: before, beside and after; beside at least.
    fn hits(&self) -> [f64; 3] {
        [self.part(0, 0, 0), self.part(1, self.backup_bytes, 0), self.part(2, 0, 0)]
    }

    /// Beside the backup, if all that it read and that was not recognised missed.
    fn beside_most(&self) -> f64 {
        self.part(1, self.backup_bytes, self.backup_bytes.saturating_sub(self.scanned()))
    }

    fn part(&self, nth: usize, others: u64, others_missed: u64) -> f64 {
        let (from, to) = (&self.marks[nth], &self.marks[nth + 1]);
        let read = (to.cache.host_read_bytes - from.cache.host_read_bytes).saturating_sub(others);
        let missed = to.missed.saturating_sub(from.missed).saturating_sub(others_missed);
        (1.0 - missed as f64 / read.max(1) as f64).clamp(0.0, 1.0)
    }

    /// Bytes of misses beside the backup that were recognised as its.
    fn scanned(&self) -> u64 {
        self.marks[2].scanned - self.marks[1].scanned
    }

    /// By the volume's counters, which know no application.
    fn counted(&self) -> [f64; 3] {
        [0, 1, 2].map(|nth: usize| self.marks[nth + 1].cache.since(&self.marks[nth].cache).hit_ratio().unwrap_or(0.0))
    }

    fn figures(&self) -> Vec<(String, f64)> {
        let ([before, beside, after], counted) = (self.hits(), self.counted());
        let mut figures = vec![
            ("hits_before", before),
            ("hits_beside", beside),
            ("hits_after", after),
            ("counted_before", counted[0]),
            ("counted_beside", counted[1]),
            ("counted_after", counted[2]),
            ("hits_beside_most", self.beside_most()),
        ];
        let kept =
            [("kept_beside", beside, before), ("kept_beside_most", self.beside_most(), before), ("kept_after", counted[2], counted[0])];
        figures.extend(kept.into_iter().filter_map(|(name, now, before)| Some((name, kept_of(now, before)?))));
        if self.with_backup {
            figures.extend([
                ("backup_s", self.marks[2].at_s - self.marks[1].at_s),
                ("backup_bytes", self.backup_bytes as f64),
                ("scanned_missed_bytes", self.scanned() as f64),
            ]);
        }
        figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn words(&self) -> Vec<String> {
        let ([before, beside, after], counted) = (self.hits(), self.counted());
        let what = if self.with_backup { "the backup" } else { "no backup" };
        let most = self.beside_most();
        let beside_words = match kept_words(beside, most, before) {
            kept if self.with_backup && most > beside => format!("{} to {} beside it ({kept})", percent(beside), percent(most)),
            kept => format!("{} beside it ({kept})", percent(beside)),
        };
        let mut words = vec![
            format!("hits of the application by bytes, {what}: {} before, {beside_words}, {} after it", percent(before), percent(after)),
            format!(
                "by the volume's counters, in which a backup is like any other reader: {}, {}, {} ({})",
                percent(counted[0]),
                percent(counted[1]),
                percent(counted[2]),
                kept_words(counted[2], counted[2], counted[0])
            ),
        ];
        if self.with_backup {
            let bytes = api::human::bytes;
            words.push(format!(
                "the backup {} {:.0} s and read {}; {} of reads that the cache did not answer were recognised as backup or scan",
                if self.stopped { "was stopped after" } else { "took" },
                self.marks[2].at_s - self.marks[1].at_s,
                bytes(self.backup_bytes),
                bytes(self.scanned())
            ));
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(at_s: f64, read: u64, missed: u64, hits: u64, misses: u64) -> Mark {
        let cache = CacheFigures { host_read_bytes: read, hits_ssd: hits, misses, ..CacheFigures::default() };
        Mark { at_s, cache, missed, scanned: 0 }
    }

    #[test]
    fn what_a_backup_reads_is_not_the_applications() {
        // The application reads 1000 bytes a part and misses 100; the backup reads 5000, half of them hits.
        let marks = [mark(0.0, 0, 0, 0, 0), mark(1.0, 1000, 100, 90, 10), mark(2.0, 7000, 200, 430, 270), mark(3.0, 8000, 400, 510, 290)];
        let told = Told { marks, backup_bytes: 5000, with_backup: true, stopped: false };
        let hits = told.hits().map(|share| (share * 100.0).round());
        assert_eq!(hits, [90.0, 90.0, 80.0]);
        assert!(told.words()[0].contains(": kept"), "{:?}", told.words());
        assert_eq!(told.beside_most(), 1.0, "nothing was recognised: all of it may have missed");
        // 100 more were missed beside it, and 4950 of the backup's misses recognised: up to 50 of those
        // 100 are the backup's.
        let mut unsure = told;
        (unsure.marks[2].missed, unsure.marks[2].scanned) = (300, 4950);
        let hits = [unsure.hits()[1], unsure.beside_most()].map(|share| (share * 100.0).round());
        assert_eq!(hits, [80.0, 85.0]);
        assert!(unsure.words()[0].contains("88.9 % to 94.4 % of before: MISSED"), "{:?}", unsure.words());
        unsure.marks[2].scanned = 4900;
        assert!(unsure.words()[0].contains("88.9 % to 100.0 % of before: undecided"), "{:?}", unsure.words());
        // After it, 80 of 100: less than 95 % of 90 of 100.
        assert!(told.words()[1].ends_with("(88.9 % of before: MISSED)"), "{:?}", told.words());
        assert_eq!(kept_words(0.5, 0.5, 0.0), "too few hits before it to keep");
        // Without what the kernel counted, the backup's hits would be the application's.
        assert!(Told { backup_bytes: 0, ..told }.hits()[1] > 0.98);
    }

    #[test]
    fn a_leg_that_was_too_short_tells_nothing() {
        let begun = Instant::now();
        let marks = vec![Mark::default(), Mark::default(), Mark::default()];
        let mut timeline = Timeline { way: None, parts: parts(super::super::Scale::Toy), begun, marks, backup: None, stopped: false };
        assert!(timeline.tell().expect_err("it did not end").to_string().contains("did not end within"));
        timeline.marks.push(Mark { at_s: 1.0, ..Mark::default() });
        assert!(timeline.tell().expect_err("nothing is left").to_string().contains("only 1 s were left"));
        timeline.marks[3].at_s = 9.0;
        timeline.tell().expect("it is whole");
    }
}
