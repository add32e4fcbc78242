//! TPC-C inside a virtual machine: server and load run there, on a disk that is the device under test.
//!
//! A launcher starts the machine (see [`guests`](crate::guests)): `LAUNCHER run [--cpus N] [--mem SIZE] [--timeout S] [--disk SPEC] -- COMMAND` boots a
//! guest that sees this machine's files, runs the command there, and ends with its status. The command is this program's `in-guest`,
//! which says on lines of its own when the measured part begins and ends, and at last what it measured.

use super::legs::{Server, Times, Tpcc, tpcc_leg};
use super::{Beside, Driven, Moment, go_tpc};
use crate::result::{Latency, Second};
use crate::stage::{SHORT, Stage};
use crate::trouble::Trouble;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// For a guest to boot, emulated, and its server to start on a slow disk.
const PATIENCE: Duration = Duration::from_secs(600);
const LOOK: Duration = Duration::from_millis(50);
/// How often a guest is started until its kernel lives: an emulated one now and then ends in a panic while it boots.
const STARTS: u32 = 3;
/// What the guest says.
const BEGUN: &str = "in-guest: begun";
const MEASURED: &str = "in-guest: measured";
const ENDED: &str = "in-guest: ended";
const RESULT: &str = "in-guest: result ";

/// What is done in the guest.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Asked {
    pool_bytes: u64,
    warehouses: u32,
    go_tpc: PathBuf,
    threads: u32,
    warm_seconds: u64,
    seconds: u64,
}

/// [`Driven`], as it leaves the guest.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Said {
    series: Vec<Second>,
    cut_s: f64,
    rate: f64,
    mean_us: Option<f64>,
    latency: Option<Latency>,
    reads: Option<Latency>,
    notes: Vec<String>,
}

/// [`tpcc_leg`] on MariaDB in a guest: new orders.
///
/// # Errors
/// If the guest does not come up, or anything fails in it.
pub fn tpcc_in_guest(
    stage: &Stage,
    launcher: &Path,
    device: &str,
    tpcc: &Tpcc,
    times: Times,
    beside: &mut Beside<'_>,
) -> Result<Driven, Trouble> {
    let Server::MariaDb { pool_bytes } = tpcc.server else { return Err(Trouble::Failed("only MariaDB runs in a guest".into())) };
    let (go_tpc, threads) = (tpcc.go_tpc.clone(), tpcc.threads);
    let asked =
        Asked { pool_bytes, warehouses: tpcc.warehouses, go_tpc, threads, warm_seconds: times.warm_seconds, seconds: times.seconds };
    let asked = serde_json::to_string(&asked).map_err(|error| Trouble::Failed(error.to_string()))?;
    let limit = PATIENCE + Duration::from_secs(times.warm_seconds + times.seconds);
    let (launcher, disk) = (launcher.display().to_string(), format!("name=data,file={device},cache=none"));
    let limit_s = limit.as_secs().to_string();
    let run = [&launcher, "run", "--cpus", "2", "--mem", "1G", "--timeout", &limit_s, "--disk", &disk, "--"];
    let own = std::env::current_exe().map_err(|error| Trouble::Failed(format!("this program has no path: {error}")))?;
    let own = own.display().to_string();
    let inside = [&own, "in-guest", "/dev/vmlab/data", &asked];
    let words: Vec<&str> = run.into_iter().chain(inside).collect();
    let mut guest = stage.begin("guest", &words, &[])?;
    let mut starts = 1;
    let began = Instant::now();
    let (mut measured, mut ended) = (false, false);
    loop {
        let done = guest.done();
        let said = guest.said();
        if matches!(done, Ok(true) | Err(Trouble::Failed(_))) && starts < STARTS && !said.contains(BEGUN) {
            stage.say("the guest did not come up, and is started once more");
            guest = stage.begin("guest", &words, &[])?;
            starts += 1;
            continue;
        }
        let done = done?;
        if !measured && said.contains(MEASURED) {
            measured = true;
            beside(Moment::Measured)?;
        }
        if !ended && said.contains(ENDED) {
            ended = true;
            beside(Moment::Ended)?;
        }
        if done {
            break;
        }
        beside(Moment::At(began.elapsed().as_secs_f64()))?;
        stage.rest(LOOK)?;
    }
    let said = guest.said();
    let result = said.lines().find_map(|line| line.strip_prefix(RESULT));
    let Some(result) = result.filter(|_| measured && ended) else {
        return Err(Trouble::failed("the guest ended and reported no result", &format!("see {}", stage.name("guest.log"))));
    };
    let said: Said =
        serde_json::from_str(result).map_err(|error| Trouble::Failed(format!("the result of the guest is invalid ({error})")))?;
    let Said { series, cut_s, rate, mean_us, latency, reads, notes } = said;
    Ok(Driven { series, cut_s, rate, mean_us, latency, reads, counted: go_tpc::COUNTED, notes })
}

/// What the guest does: in a directory of its own, on a disk that holds a copy of the image.
///
/// # Errors
/// As of [`tpcc_leg`].
pub fn inside(device: &str, asked: &str, say: &dyn Fn(&str)) -> Result<(), Trouble> {
    let asked: Asked =
        serde_json::from_str(asked).map_err(|error| Trouble::Usage(format!("that is not what is asked of a guest ({error})")))?;
    let place = tempfile::tempdir().map_err(|error| Trouble::io("make a directory in", &std::env::temp_dir(), &error))?;
    say(BEGUN);
    // No leg in a guest starts hearth.
    let stage = Stage::new(place.path(), Path::new(""), Arc::default());
    let tpcc = Tpcc {
        server: Server::MariaDb { pool_bytes: asked.pool_bytes },
        warehouses: asked.warehouses,
        threads: asked.threads,
        go_tpc: asked.go_tpc,
    };
    // go-tpc knows no sockets, and a guest has no network until somebody asks for one.
    stage.run(&["ip", "link", "set", "lo", "up"], SHORT)?;
    let times = Times { warm_seconds: asked.warm_seconds, seconds: asked.seconds };
    let driven = tpcc_leg(&stage, device, &tpcc, times, &mut |moment| {
        match moment {
            Moment::Measured => say(MEASURED),
            Moment::Ended => say(ENDED),
            Moment::At(_) => {}
        }
        Ok(())
    })?;
    let Driven { series, cut_s, rate, mean_us, latency, reads, counted: _, notes } = driven;
    let said = Said { series, cut_s, rate, mean_us, latency, reads, notes };
    say(&format!("{RESULT}{}", serde_json::to_string(&said).map_err(|error| Trouble::Failed(error.to_string()))?));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A launcher that boots nothing and says this in the place of a guest.
    fn driven(lines: &[&str]) -> (Result<Driven, Trouble>, Vec<Moment>) {
        driven_after(0, lines)
    }

    /// The same, after so many kernels that died while they booted.
    fn driven_after(deaths: u32, lines: &[&str]) -> (Result<Driven, Trouble>, Vec<Moment>) {
        let place = tempfile::tempdir().expect("a directory");
        let script = place.path().join("launcher");
        let said: String = lines.iter().map(|line| format!("echo '{line}'\n")).collect();
        let starts = place.path().join("starts");
        let dies = format!("echo >>{0}; [ $(wc -l <{0}) -gt {deaths} ] || exit 125", starts.display());
        std::fs::write(&script, format!("#!/bin/sh\n{dies}\n{said}")).expect("there is room");
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("ours");
        let stage = Stage::new(place.path(), Path::new("/bin/true"), Arc::default());
        let server = Server::MariaDb { pool_bytes: 1 << 24 };
        let tpcc = Tpcc { server, warehouses: 1, threads: 1, go_tpc: PathBuf::new() };
        let mut moments = Vec::new();
        let driven = tpcc_in_guest(&stage, &script, "/dev/null", &tpcc, Times { warm_seconds: 1, seconds: 1 }, &mut |moment| {
            if !matches!(moment, Moment::At(_)) {
                moments.push(moment);
            }
            Ok(())
        });
        (driven, moments)
    }

    #[test]
    fn what_a_guest_measured_arrives_and_what_it_did_not_is_no_figure() {
        let result = format!("{RESULT}{}", r#"{"series":[{"at_s":1.0,"rate":5.0}],"cut_s":1.0,"rate":5.0,"mean_us":7.0,"notes":["slow"]}"#);
        let (whole, moments) = driven(&["the kernel boots", BEGUN, MEASURED, ENDED, &result]);
        let whole = whole.expect("all is there");
        assert_eq!((whole.rate, whole.mean_us, whole.series.len(), whole.notes), (5.0, Some(7.0), 1, vec!["slow".to_owned()]));
        assert_eq!(moments, [Moment::Measured, Moment::Ended]);
        let (late, moments) = driven_after(2, &[BEGUN, MEASURED, ENDED, &result]);
        assert!(late.is_ok() && moments == [Moment::Measured, Moment::Ended], "{late:?}");
        assert!(driven_after(3, &[BEGUN, MEASURED, ENDED, &result]).0.is_err(), "no kernel lived");
        for lines in [&[BEGUN, MEASURED, ENDED][..], &[BEGUN, &result], &[BEGUN, MEASURED, ENDED, "in-guest: result {}"]] {
            assert!(driven(lines).0.is_err(), "{lines:?}");
        }
    }

    #[test]
    fn what_is_asked_of_a_guest_is_understood_or_refused() {
        let refused = inside("/dev/null", "{}", &|_| ());
        assert!(matches!(refused, Err(Trouble::Usage(_))), "{refused:?}");
    }
}
