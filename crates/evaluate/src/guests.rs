//! Virtual machines that use one disk over iSCSI, each a part of its own: QEMU's initiator on their side, a `tgtd` of this run alone on ours.
//!
//! A launcher starts them, named by `HEARTH_LAB`: `LAUNCHER run [--cpus N] [--mem SIZE] [--timeout S] [--share DIR] [--module NAME] --qemu WORDS --
//! COMMAND` boots a guest that sees this machine's files, runs the command there, and ends with its status.
//!
//! What is played goes through a directory that all of them share: `go-K` is what to do in step K, `done-K-N` says that guest N has done it.

use crate::load::{Loaded, fio};
use crate::stage::{Running, SHORT, Stage};
use crate::tools::{program, program_of};
use crate::trouble::Trouble;
use std::cell::Cell;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use targets::{Access, Protocol, Share, Targets, Tgtd};

/// Names the launcher.
const LAUNCHER: &str = "HEARTH_LAB";
/// For all of them to be up, emulated and at once.
const BOOT: Duration = Duration::from_secs(300);
/// What a load may take beside its own time.
const PATIENCE: Duration = Duration::from_secs(180);
/// How long a guest lives at most.
const LIFE_S: &str = "1500";
const LOOK: Duration = Duration::from_millis(50);
/// By which a guest knows the disk.
const SERIAL: &str = "hearth-evaluate";
/// Of the target; nobody else's is on that server.
const UUID: [u8; 16] = *b"hearth-evaluate!";
/// $1: its number. $2: the directory.
const INSIDE: &str = "\
for d in /sys/block/vd*; do if [ \"$(cat $d/serial)\" = hearth-evaluate ]; then disk=/dev/${d##*/}; fi; done
[ -b \"$disk\" ] || { echo \"the guest has no disk\" >&2; exit 1; }
touch $2/ready-$1
k=1
while :; do
    while [ ! -e $2/go-$k ] && [ ! -e $2/end ]; do sleep 0.05; done
    [ -e $2/go-$k ] || exit 0
    sh -e $2/go-$k $1 $disk >$2/said-$k-$1 2>&1 || { cat $2/said-$k-$1 >&2; exit 1; }
    touch $2/done-$k-$1
    k=$((k + 1))
done
";

/// What is missing here, as a clause; `None`: guests can be started.
pub fn missing() -> Option<&'static str> {
    match (launcher(), program("tgtd")) {
        (None, _) => Some("no launcher of virtual machines was named (HEARTH_LAB)"),
        (_, None) => Some("tgtd is not installed (Debian's package tgt)"),
        _ => None,
    }
}

/// The launcher, if there is one.
pub fn launcher() -> Option<PathBuf> {
    std::env::var_os(LAUNCHER).map(PathBuf::from).filter(|path| path.is_file())
}

/// What each guest plays on its part.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// fio's `rw`.
    pub kind: &'static str,
    /// fio's `bs` or `bssplit`, with its name.
    pub blocks: &'static str,
    /// Bytes of each part; that of the next guest lies behind it.
    pub bytes: u64,
}

/// Guests that are up. They end with this.
pub struct Guests {
    running: Vec<Running>,
    targets: Targets,
    _server: Running,
    place: tempfile::TempDir,
    step: Cell<u32>,
}

impl Guests {
    /// Shares the device, and starts so many.
    ///
    /// # Errors
    /// If the launcher or the server is not there, or a guest does not come up.
    pub fn start(stage: &Stage, device: &str, count: u32) -> Result<Guests, Trouble> {
        let launcher =
            launcher().ok_or_else(|| Trouble::failed("there is no launcher of virtual machines", "set HEARTH_LAB to its path"))?;
        // A socket's path is short.
        let made = tempfile::Builder::new().prefix("hearth-evaluate-guests").tempdir();
        let place = made.map_err(|error| Trouble::io("make a directory in", &std::env::temp_dir(), &error))?;
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr());
        let address = free.map_err(|error| Trouble::Failed(format!("no port of this machine is free: {error}")))?;
        let socket = place.path().join("tgt");
        let words = [program_of(&["tgtd"]), "-f".into(), "--iscsi".into(), format!("portal={address}")];
        let server = stage.begin("tgtd", &words, &[("TGT_IPC_SOCKET".into(), socket.display().to_string())])?;
        let tgtd = Tgtd::at(place.path().join("tgt.0"));
        let nowhere = place.path().join("none");
        let targets = Targets::at(&nowhere, tgtd.clone(), &nowhere);
        let begun = Instant::now();
        while !tgtd.answers().map_err(|error| Trouble::failed(&error, &error.remedy()))? {
            stage.rest(LOOK)?;
            if begun.elapsed() > SHORT {
                return Err(Trouble::failed("tgtd does not answer", "see tgtd.log"));
            }
        }
        let share = Share {
            protocol: Protocol::Iscsi,
            uuid: UUID,
            volume: SERIAL.into(),
            device: device.into(),
            read_only: false,
            // Past the page cache of this machine, which is not what is measured.
            is_alone: false,
            addresses: vec![address],
            access: Access::Anyone,
            chap: None,
        };
        targets.offer(&share).map_err(|error| Trouble::failed(&error, &error.remedy()))?;
        stage.say(format!("# {device} is LUN 1 of {} at {address}", share.target()));
        let directory = place.path().join("between");
        std::fs::create_dir(&directory).map_err(|error| Trouble::io("make", &directory, &error))?;
        let directory = directory.display().to_string();
        let running: Result<Vec<Running>, Trouble> = (0..count)
            .map(|nth| {
                let disk = format!(
                    "-drive driver=iscsi,transport=tcp,portal={address},target={},lun=1,initiator-name=iqn.2026-01.invalid.guest:{nth},\
                     if=none,id=data,cache.direct=on -device virtio-blk-pci,drive=data,serial={SERIAL}",
                    share.target()
                );
                let launcher = launcher.display().to_string();
                let run = ["run", "--cpus", "1", "--mem", "512M", "--timeout", LIFE_S, "--module", "virtio_blk", "--share", &directory];
                let inside = ["--qemu", &disk, "--", "sh", "-c", INSIDE, "sh", &nth.to_string(), &directory].map(str::to_owned);
                let words: Vec<String> = [launcher].into_iter().chain(run.map(str::to_owned)).chain(inside).collect();
                stage.begin(&format!("guest-{nth}"), &words, &[])
            })
            .collect();
        let mut guests = Guests { running: running?, targets, _server: server, place, step: Cell::new(0) };
        guests.wait(stage, "ready", BOOT)?;
        Ok(guests)
    }

    fn directory(&self) -> PathBuf {
        self.place.path().join("between")
    }

    /// Until each guest has left its mark.
    fn wait(&mut self, stage: &Stage, mark: &str, limit: Duration) -> Result<(), Trouble> {
        let begun = Instant::now();
        let directory = self.directory();
        for nth in 0..self.running.len() {
            while !directory.join(format!("{mark}-{nth}")).exists() {
                self.running[nth].look()?;
                stage.rest(LOOK)?;
                if begun.elapsed() > limit {
                    return Err(Trouble::failed(format!("guest {nth} is not {mark} within {} s", limit.as_secs()), "see its log"));
                }
            }
        }
        Ok(())
    }

    /// All of them play it at once, each on its part; what they did together.
    ///
    /// # Errors
    /// If one fails.
    pub fn play(&mut self, stage: &Stage, part: &Part, seconds: f64, seed: u64) -> Result<Loaded, Trouble> {
        let step = self.step.get() + 1;
        self.step.set(step);
        let directory = self.directory();
        let at = directory.display();
        let script = format!(
            "fio --name=guest --filename=$2 --offset=$(($1 * {bytes})) --size={bytes} --rw={kind} --{blocks} --rwmixread=50 --ioengine=psync --direct=1 \
             --thread=1 --norandommap --randrepeat=0 --randseed=$(({seed} * 16 + $1 + 1)) --refill_buffers=1 --allow_file_create=0 --time_based \
             --runtime={ms}ms --output-format=json+ --output={at}/out-{step}-$1 --write_hist_log={at}/hist-{step}-$1 --log_hist_msec=1000\n",
            bytes = part.bytes,
            kind = part.kind,
            blocks = part.blocks,
            ms = (seconds * 1000.0) as u64,
        );
        stage.say(format!("# in each guest, $1 its number and $2 its disk: {}", script.trim_end()));
        let write = |name: &str, text: &str| {
            let path = directory.join(name);
            std::fs::write(&path, text).map_err(|error| Trouble::io("write", &path, &error))
        };
        write("next", &script)?;
        let go = directory.join(format!("go-{step}"));
        std::fs::rename(directory.join("next"), &go).map_err(|error| Trouble::io("write", &go, &error))?;
        self.wait(stage, &format!("done-{step}"), Duration::from_secs_f64(seconds) + PATIENCE)?;
        together(&directory, step, self.running.len())
    }

    /// Ends them in order.
    ///
    /// # Errors
    /// If one does not end well, or the target does not go.
    pub fn end(mut self) -> Result<(), Trouble> {
        let end = self.directory().join("end");
        std::fs::write(&end, "").map_err(|error| Trouble::io("write", &end, &error))?;
        for guest in std::mem::take(&mut self.running) {
            guest.finish(SHORT)?;
        }
        self.targets.remove(Protocol::Iscsi, SERIAL, UUID).map_err(|error| Trouble::failed(&error, &error.remedy()))
    }
}

/// What fio said in each guest, as if it had been one.
fn together(directory: &Path, step: u32, count: usize) -> Result<Loaded, Trouble> {
    let read = |name: String| {
        let path = directory.join(name);
        std::fs::read_to_string(&path).map_err(|error| Trouble::io("read", &path, &error))
    };
    let (mut jobs, mut log) = (Vec::new(), String::new());
    for nth in 0..count {
        let text = read(format!("out-{step}-{nth}"))?;
        let wrong = || Trouble::Failed(format!("cannot understand the output of fio in guest {nth}: {:.60}", text.trim()));
        let output: serde_json::Value = serde_json::from_str(&text[text.find('{').unwrap_or(0)..]).map_err(|_| wrong())?;
        jobs.extend(output["jobs"].as_array().ok_or_else(wrong)?.iter().cloned());
        // None of a second that was too short.
        log += &read(format!("hist-{step}-{nth}_clat_hist.1.log")).unwrap_or_default();
    }
    fio::parse(&serde_json::json!({ "jobs": jobs }).to_string(), &log)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_guests_did_is_added_up() {
        let place = tempfile::tempdir().expect("a directory");
        let side = |bytes: u64, ios: u64| serde_json::json!({"io_bytes": bytes, "total_ios": ios, "runtime": 1000, "clat_ns": {"mean": 5000.0, "bins": {"5000": ios}}});
        for (nth, ios) in [(0, 100), (1, 300)] {
            let job = serde_json::json!({"error": 0, "read": side(ios * 4096, ios), "write": side(0, 0)});
            let text = format!("a warning\n{}", serde_json::json!({ "jobs": [job] }));
            std::fs::write(place.path().join(format!("out-1-{nth}")), text).expect("there is room");
        }
        let loaded = together(place.path(), 1, 2).expect("well-formed");
        assert_eq!((loaded.rate, loaded.bytes_per_s), (400.0, 400.0 * 4096.0));
        assert!(together(place.path(), 1, 3).is_err_and(|error| error.to_string().contains("out-1-2")), "one is missing");
        std::fs::write(place.path().join("out-1-2"), "fio: no such disk").expect("there is room");
        assert!(together(place.path(), 1, 3).is_err_and(|error| error.to_string().contains("guest 2")));
    }
}
