//! A load of the user's own: a fio job file, or a recorded trace that fio plays as fast as the device answers.

use super::blocks::{self, BlockRun};
use super::fio_job::{self, Job};
use super::{Context, Planning, Suite, cache_of};
use crate::catalogue;
use crate::load::Content;
use crate::result::{Arm, Case, Leg};
use crate::trouble::Trouble;
use std::collections::HashMap;
use std::fmt::Write;
use std::path::Path;
use traces::read::TraceRequest;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Requests under way when a trace is played.
const DEPTH: u32 = 32;
/// Parts of a traced disk that lie beside each other stay so; where nothing was ever asked for, nothing is kept.
const EXTENT_BYTES: u64 = MIB;
/// Longer requests of a trace are cut: no device takes them whole.
const REQUEST_BYTES_MAX: u64 = MIB;
/// More requests are not played: a log of them is 40 MB.
const REQUESTS_MAX: usize = 1_000_000;

/// See the module.
pub struct Own;

/// Whether a file is a fio job file, by its ending; other files are traces.
fn is_job(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "fio" || ending == "job" || ending == "ini")
}

impl Suite for Own {
    fn cases(&self, planning: &Planning) -> Result<Vec<Case>, Trouble> {
        let Some(path) = planning.own else {
            return Err(Trouble::Usage("the suite own needs --load FILE: a fio job file (.fio) or a trace".into()));
        };
        let set = catalogue::suite("own").expect("the catalogue has it").model_set;
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let (data_bytes, about) = if is_job(path) {
            std::fs::read_to_string(path).map_err(|error| Trouble::io("read", path, &error))?;
            let about = format!("The jobs of {name}, all on the device under test, for a bounded time.");
            (planning.data_bytes(2 * GIB, 512 * MIB, 64 * MIB), about)
        } else {
            let trace = Trace::read(path)?;
            let about = format!(
                "The {} requests of {name} in their order, {DEPTH} under way, until all are done or the time is over.",
                trace.requests.len()
            );
            (trace.space_bytes, about)
        };
        let arm = |id: &str, title: &str, cached: bool| Arm { id: id.into(), title: title.into(), cached, point: None };
        Ok(vec![Case {
            id: "own.load".into(),
            title: format!("Your own: {name}"),
            about,
            model_set: planning.model_set(set),
            data_bytes,
            cache_bytes: cache_of(data_bytes / 4),
            ram_bytes: (data_bytes / 32).max(16 * MIB),
            rounds: planning.settings.pairs,
            arms: vec![arm("bare", "no cache", false), arm("wt", "write-through", true), arm("wb", "write-back", true)],
            headlines: Vec::new(),
            counted: "I/Os".into(),
            leg_s: planning.scale.pick(65.0, 25.0, 5.0),
            along: None,
            ceiling: None,
        }])
    }

    fn prepare(&self, context: &Context, case: &Case) -> Result<(), Trouble> {
        blocks::data(context, case, Content::Incompressible)
    }

    fn legs(&self, context: &Context, case: &Case, arms: &[&Arm], round: u32) -> Result<Vec<Leg>, Trouble> {
        let path = context.own.ok_or_else(|| Trouble::Usage("the suite own needs --load FILE".into()))?;
        let log = context.stage.path("trace.iolog");
        if !is_job(path) && !log.exists() {
            std::fs::write(&log, Trace::read(path)?.log()).map_err(|error| Trouble::io("write", &log, &error))?;
        }
        let play = |device: &str, seconds: f64, seed: u64| {
            if is_job(path) {
                return fio_job::run_file(context.stage, path, device, case.data_bytes, seconds);
            }
            Job {
                device: device.into(),
                kind: "rw",
                block_bytes: 4096,
                depth: DEPTH,
                seconds,
                size_bytes: case.data_bytes,
                reads_percent: None,
                distribution: None,
                clients: 1,
                log: Some(log.display().to_string()),
                seed,
            }
            .run(context.stage)
        };
        let leg = |arm: &Arm| {
            let mode = if arm.id == "wt" { "write-through" } else { "write-back" };
            blocks::run(
                context,
                case,
                arm,
                round,
                &BlockRun {
                    setup: arm.cached.then(|| context.setup(case, mode, &[])),
                    warm: Vec::new(),
                    warm_s: context.scale.pick(25.0, 8.0, 1.0),
                    run_s: context.scale.pick(30.0, 8.0, 1.0),
                    load: &play,
                },
            )
        };
        arms.iter().map(|arm| leg(arm)).collect()
    }
}

/// A trace, put together on a space without holes.
struct Trace {
    requests: Vec<TraceRequest>,
    space_bytes: u64,
}

impl Trace {
    fn read(path: &Path) -> Result<Trace, Trouble> {
        let requests = traces::read::read_file(path).map_err(|error| {
            Trouble::Usage(format!(
                "{error}; give a fio job file (.fio), or a .vscsi, .lis, .trace, .csv, .blkparse or .iolog file, plain or .zst"
            ))
        })?;
        Ok(Trace::of(requests))
    }

    fn of(requests: Vec<TraceRequest>) -> Trace {
        let mut places: HashMap<(u16, u64), u64> = HashMap::new();
        let mut moved = Vec::new();
        for request in requests {
            // Devices take whole sectors of 4 KiB where a cache is in front; and no request lies in two extents.
            let (mut at, end) = (request.offset_bytes >> 12 << 12, (request.offset_bytes + request.length_bytes).next_multiple_of(4096));
            while at < end && moved.len() < REQUESTS_MAX {
                let count = places.len() as u64;
                let place = *places.entry((request.disk, at / EXTENT_BYTES)).or_insert(count);
                let length_bytes = (end - at).min(EXTENT_BYTES - at % EXTENT_BYTES).min(REQUEST_BYTES_MAX);
                moved.push(TraceRequest { offset_bytes: place * EXTENT_BYTES + at % EXTENT_BYTES, length_bytes, ..request });
                at += length_bytes;
            }
        }
        Trace { requests: moved, space_bytes: (places.len() as u64 * EXTENT_BYTES).max(16 * MIB) }
    }

    /// As fio plays it back (its "Trace file format v2").
    fn log(&self) -> String {
        let mut log = String::from("fio version 2 iolog\nD add\nD open\n");
        for request in &self.requests {
            let what = if request.write { "write" } else { "read" };
            let _ = writeln!(log, "D {what} {} {}", request.offset_bytes, request.length_bytes);
        }
        log + "D close\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_put_together_without_its_holes() {
        let request = |disk: u16, offset_bytes: u64, length_bytes: u64, write: bool| TraceRequest {
            time_ns: 0,
            disk,
            offset_bytes,
            length_bytes,
            write,
        };
        let far = 5 << 40;
        let trace =
            Trace::of(vec![request(0, far + 512, 512, false), request(1, far, 8192, true), request(0, far + MIB - 4096, 8192, false)]);
        assert_eq!(trace.space_bytes, 16 * MIB);
        let log = trace.log();
        let lines: Vec<&str> = log.lines().skip(3).collect();
        let (last, next) = (MIB - 4096, 2 * MIB);
        assert_eq!(
            lines,
            ["D read 0 4096", &format!("D write {MIB} 8192"), &format!("D read {last} 4096"), &format!("D read {next} 4096"), "D close"]
        );
    }
}
