//! `hearth pool check`: looks at an SSD, reading only, without a daemon.

use crate::commands::print;
use crate::failure::Failure;
use crate::{request, table};
use api::DiskPiece;
use api::human;
use device::spec::SpecError;
use device::{Access, OpenDevice, OpenError};
use engine::inspect::{Inspection, inspect};
use indicatif::{ProgressBar, ProgressStyle};
use machine::SsdMedium;
use serde::Serialize;
use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};
use types::BLOCK_BYTES;
use uuid::Uuid;

/// Shorter looks show no progress.
const QUIET: Duration = Duration::from_secs(2);

#[derive(Serialize)]
struct Report {
    uuid: Option<Uuid>,
    size_bytes: u64,
    session: u64,
    stopped_in_order: bool,
    /// It holds a log of an earlier version: what the upgrade comes to that its start does, or why it cannot be.
    #[serde(skip_serializing_if = "Option::is_none")]
    upgrade: Option<String>,
    shards: usize,
    volumes: Vec<VolumeReport>,
    disks: Vec<DiskReport>,
    payloads_checked: u64,
    clean_mismatches: u64,
    dirty_mismatches: u64,
    problems: Vec<String>,
    problems_count: u64,
}

#[derive(Serialize)]
struct VolumeReport {
    name: String,
    id: u32,
    size_bytes: u64,
    clean_bytes: u64,
    dirty_bytes: u64,
}

/// A disk beside the cache, by the table on the SSD.
#[derive(Serialize)]
struct DiskReport {
    name: String,
    uuid: Uuid,
    pieces: Vec<DiskPiece>,
}

/// What is only to be looked at is not made, and not made larger.
fn not_opened(path: &str, error: &OpenError) -> Failure {
    let no_pool = |why: String| Failure::failed(format!("{path} carries no pool: {why}"), "give the SSD of a pool");
    match error {
        OpenError::Spec(SpecError::Missing { .. }) => Failure::failed(format!("{path} does not exist"), "check the path"),
        OpenError::OddSize { size_bytes, .. } => no_pool(format!("it has {}", types::counted(*size_bytes, "byte"))),
        OpenError::Empty { .. } => no_pool("it is empty".into()),
        other => Failure::failed(other.to_string(), ""),
    }
}

/// Looks and prints.
///
/// # Errors
/// If the SSD cannot be looked at, or has problems (after they are printed).
pub fn check(path: &str, json: bool) -> Result<(), Failure> {
    let path = request::ssd("PATH", path)?;
    let device = OpenDevice::open(Path::new(&path), Access::ReadOnly).map_err(|error| not_opened(&path, &error))?;
    let blocking = device.blocking().map_err(|e| Failure::failed(e.to_string(), ""))?;
    let mut progress = Progress { began: Instant::now(), bar: None };
    let mut medium = SsdMedium(blocking);
    let inspection = inspect(&mut medium, &mut |done, total| progress.update(done, total));
    progress.clear();
    let mut report = report(&inspection);
    report.upgrade = machine::looking_into::outlook_of_log(&path, &mut medium).map(|outlook| match outlook {
        Ok(comes_to) => format!("upgrades its log, of an earlier version, to slots: {comes_to}"),
        Err((problem, remedy)) => format!("fails: {problem}; {remedy}"),
    });
    match engine::disks::load(&mut medium) {
        Ok(table) => {
            for disk in table.into_iter().flat_map(|table| table.disks) {
                let pieces = disk.pieces.iter().map(|piece| DiskPiece { offset_bytes: piece.offset_bytes, size_bytes: piece.size_bytes });
                report.disks.push(DiskReport { name: disk.name, uuid: Uuid::from_bytes(disk.uuid), pieces: pieces.collect() });
            }
        }
        Err(error) => {
            report.problems.push(error.to_string());
            report.problems_count += 1;
        }
    }
    print(&if json {
        serde_json::to_string_pretty(&report).expect("a report can be written as JSON") + "\n"
    } else {
        shown(&path, &report)
    })?;
    match report.problems_count {
        0 => Ok(()),
        n => Err(Failure::failed(
            format!("{path} has {}, listed above", types::counted(n, "problem")),
            "see docs/failures.md, section \"The SSD\"",
        )),
    }
}

fn report(found: &Inspection) -> Report {
    let superblock = found.superblock.as_ref();
    let volumes = superblock.map_or(&[][..], |s| &s.volumes).iter().map(|volume| {
        let blocks = found.volumes.iter().find(|v| v.id == volume.id);
        VolumeReport {
            name: volume.name.clone(),
            id: volume.id.0,
            size_bytes: volume.size_bytes,
            clean_bytes: blocks.map_or(0, |b| b.clean_blocks * BLOCK_BYTES),
            dirty_bytes: blocks.map_or(0, |b| b.dirty_blocks * BLOCK_BYTES),
        }
    });
    Report {
        uuid: superblock.map(|s| Uuid::from_bytes(s.uuid)),
        size_bytes: superblock.map_or(0, |s| s.layout.ssd_bytes),
        session: superblock.map_or(0, |s| s.session),
        stopped_in_order: superblock.is_some_and(|s| s.clean),
        upgrade: None,
        shards: found.shards.len(),
        volumes: volumes.collect(),
        disks: Vec::new(),
        payloads_checked: found.shards.iter().map(|s| s.payloads).sum(),
        clean_mismatches: found.shards.iter().map(|s| s.clean_mismatches).sum(),
        dirty_mismatches: found.shards.iter().map(|s| s.dirty_mismatches).sum(),
        problems: found.problems.clone(),
        problems_count: found.problems_count,
    }
}

fn shown(path: &str, report: &Report) -> String {
    let Some(uuid) = report.uuid else { return disks(report) + &problems(report) };
    let mut text = table::pairs(&[
        ("ssd", path.into()),
        ("pool", uuid.to_string()),
        ("size", human::bytes(report.size_bytes)),
        ("session", report.session.to_string()),
        ("next start", next_start(report)),
        ("shards", report.shards.to_string()),
        ("payloads checked", format!("{} ({})", report.payloads_checked, human::bytes(report.payloads_checked * BLOCK_BYTES))),
        ("mismatches", format!("{} clean, {} dirty", report.clean_mismatches, report.dirty_mismatches)),
    ]);
    if !report.volumes.is_empty() {
        use table::Align::{Left, Right};
        let head = [("VOLUME", Left), ("SIZE", Right), ("CLEAN", Right), ("DIRTY", Right)];
        let row =
            |v: &VolumeReport| vec![v.name.clone(), human::bytes(v.size_bytes), human::bytes(v.clean_bytes), human::bytes(v.dirty_bytes)];
        text += "\n";
        text += &table::layout(&head, &report.volumes.iter().map(row).collect::<Vec<_>>());
    }
    text + &disks(report) + &problems(report)
}

fn next_start(report: &Report) -> String {
    let reads =
        if report.stopped_in_order { "reads what the last stop said of all slots" } else { "reads the whole ring, as after a crash" };
    report.upgrade.clone().unwrap_or_else(|| reads.into())
}

/// Where the disks beside the cache lie: by that their content is found again, whatever else is lost.
fn disks(report: &Report) -> String {
    if report.disks.is_empty() {
        return String::new();
    }
    use table::Align::{Left, Right};
    let head = [("DISK", Left), ("SIZE", Right), ("FROM BYTE", Right)];
    let row = |name: &str, piece: &DiskPiece| vec![name.to_string(), human::bytes(piece.size_bytes), piece.offset_bytes.to_string()];
    let rows = report.disks.iter().flat_map(|disk| disk.pieces.iter().map(|piece| row(&disk.name, piece)));
    format!("\n{}", table::layout(&head, &rows.collect::<Vec<_>>()))
}

fn problems(report: &Report) -> String {
    if report.problems.is_empty() {
        return "no problems\n".into();
    }
    let lines: String = report.problems.iter().map(|p| format!("problem: {p}\n")).collect();
    match report.problems_count - report.problems.len() as u64 {
        0 => lines,
        more => format!("{lines}and {more} more\n"),
    }
}

struct Progress {
    began: Instant,
    bar: Option<ProgressBar>,
}

impl Progress {
    fn update(&mut self, done: u64, total: u64) {
        if self.began.elapsed() < QUIET || !std::io::stderr().is_terminal() {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let style = ProgressStyle::with_template("checking [{bar:30}] {pos} of {len} segments, {per_sec}, {eta} left");
            let bar = ProgressBar::new(total).with_style(style.expect("the template is sound").progress_chars("=> "));
            bar.set_position(done);
            bar
        });
        bar.set_position(done);
    }

    fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
