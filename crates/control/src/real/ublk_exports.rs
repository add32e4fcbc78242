//! Block devices of the kernel's ublk driver, and the choice between them and loop devices.

use super::exports::{STABLE_DIRECTORY, WRITE_BACK_PATIENCE};
use super::kept::end_left_device;
use super::volumes::LiveVolume;
use super::{Machine, failed, locked};
use crate::datapath::{Offer, Withdrawal};
use crate::error::ControlError;
use crate::state::VolumeRecord;
use crate::uuid::Uuid;
use crate::words::OnRestart;
use fuse::Transport;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use ublk::{Probe, SERVER_PATIENCE, UblkError, UblkExport, UblkOptions};

/// How long setting a device up and taking it down may take. Both do I/O on the volume.
const PATIENCE: Duration = Duration::from_secs(60);

/// The command of the program that calls [`ublk::support::probe`].
const PROBE: &str = "ublk-probe";

/// What there is of ublk beside the volumes that are attached.
pub(super) struct UblkExports {
    probe: Probe,
    /// Exports whose pool is stopped and started: their users wait.
    suspended: Mutex<BTreeMap<Uuid, (Instant, UblkExport)>>,
    /// Volumes for whose devices the server before was waited for in vain. Whoever tries again does not wait as long once more.
    in_vain: Mutex<BTreeSet<Uuid>>,
}

impl UblkExports {
    pub(super) fn new() -> UblkExports {
        // The program that this is a part of answers to this word.
        let probe = Probe { program: "/proc/self/exe".into(), arguments: vec![PROBE.into()] };
        UblkExports { probe, suspended: Mutex::default(), in_vain: Mutex::default() }
    }
}

impl Machine {
    /// A ublk device where that works, else a loop device. What is there already stays what it is.
    pub(super) fn offer_block(&self, record: &VolumeRecord) -> Result<Offer, ControlError> {
        let over_loop = |why: &str| {
            let offer = self.offer_loop(record, Transport::Classic)?;
            Ok(Offer { note: Some(format!("by loop, since {why}")), ..offer })
        };
        if self.kept.waits(record) {
            return over_loop("its users have a loop device open");
        }
        let is_left = ublk::left(owner(record)).map_or_else(|_| self.kept.ublk_waits(record), |left| left.is_some());
        let is_there = is_left || locked(&self.ublk.suspended).contains_key(&record.uuid);
        match if is_there { Ok(()) } else { ublk::support::check(&self.ublk.probe) } {
            Ok(()) => self.offer_ublk(record).map(|offer| Offer { note: Some("by ublk".into()), ..offer }),
            Err(UblkError::Unsupported { reason }) => over_loop(&reason),
            Err(error) => Err(ublk_error(&error)),
        }
    }

    pub(super) fn offer_ublk(&self, record: &VolumeRecord) -> Result<Offer, ControlError> {
        let volume = self.volume(&record.name)?;
        let mut warnings = Vec::new();
        let suspended = locked(&self.ublk.suspended).remove(&record.uuid);
        let mut resumed = None;
        if let Some((since, mut export)) = suspended {
            match export.resume(&volume.reference) {
                Ok(told) => {
                    warnings.extend(told);
                    resumed = Some(export);
                }
                Err(error) if !error.is_unfit() => {
                    // Its users wait on: the next try may succeed.
                    locked(&self.ublk.suspended).insert(record.uuid, (since, export));
                    return Err(ublk_error(&error));
                }
                Err(error) => {
                    warnings.push(format!("{error}: users of the old device get errors, and a new one is made"));
                    match export.abandon(&self.runtime, Duration::ZERO) {
                        Ok(lost) => warnings.extend(lost.map(|lost| lost.to_string())),
                        Err(error) => {
                            locked(&self.ublk.suspended).insert(record.uuid, (since, export));
                            return Err(ublk_error(&error));
                        }
                    }
                }
            }
        }
        let made = match resumed {
            Some(export) => export,
            None => {
                let link_directory = self.stable_names.then(|| PathBuf::from(STABLE_DIRECTORY));
                // Before the device: nobody is to wait for ever for a daemon that is killed in between.
                warnings.extend(self.kept.keep_ublk(record).err());
                let options = UblkOptions {
                    may_take_over: !self.kept.is_strange(record),
                    owner: owner(record),
                    probe: self.ublk.probe.clone(),
                    link_directory,
                    patience: PATIENCE,
                    server_patience: if locked(&self.ublk.in_vain).contains(&record.uuid) { Duration::ZERO } else { SERVER_PATIENCE },
                    outlives: self.kept.has_keeper(),
                };
                match UblkExport::start(&self.runtime, &volume.reference, &record.name, &options) {
                    Ok(made) => {
                        self.kept.ublk_waits_no_more(record);
                        locked(&self.ublk.in_vain).remove(&record.uuid);
                        made
                    }
                    Err(error) => {
                        locked(&self.ublk.in_vain).insert(record.uuid);
                        // What cannot be seen may be there.
                        self.kept.ublk_not_served(record, ublk::is_there(owner(record)).unwrap_or(true));
                        return Err(ublk_error(&error));
                    }
                }
            }
        };
        warnings.extend(made.warnings().iter().cloned());
        let offer = Offer {
            place: made.device_path().display().to_string(),
            stable_path: made.link_path().map(|path| path.display().to_string()),
            nameless: made.nameless().map(str::to_owned),
            warnings,
            on_restart: match (self.kept.has_keeper(), self.kept.keeps_clients()) {
                (false, _) => OnRestart::Ends,
                (true, false) => OnRestart::WaitsIfKilled,
                (true, true) => OnRestart::Waits,
            },
            note: None,
        };
        *locked(&volume.ublk_export) = Some(made);
        Ok(offer)
    }

    /// Whether the volume's block device is one of ublk.
    pub(super) fn has_ublk(&self, record: &VolumeRecord) -> bool {
        self.volume(&record.name).is_ok_and(|volume| locked(&volume.ublk_export).is_some())
    }

    /// What is under way of a volume whose users wait would become dirty, and be acknowledged, in a log that is made anew.
    pub(super) fn check_ublk_is_quiet(&self, record: &VolumeRecord) -> Result<(), ControlError> {
        match locked(&self.ublk.suspended).get(&record.uuid) {
            Some((_, made)) if !made.is_quiet() => {
                let problem = format!("requests of the volume \"{}\" do not end", record.name);
                Err(failed(&problem, "see whether its disks work, then try again"))
            }
            _ => Ok(()),
        }
    }

    /// Gives what is lost by it.
    pub(super) fn withdraw_ublk(&self, record: &VolumeRecord, how: Withdrawal) -> Result<Option<String>, ControlError> {
        let volume = self.volume(&record.name)?;
        // Taken out, so that statistics do not wait for the lock while the page cache is written back.
        let Some(mut made) = locked(&volume.ublk_export).take() else { return Ok(None) };
        let patience = self.patience(WRITE_BACK_PATIENCE);
        let gone = match how {
            Withdrawal::DaemonEnds if self.kept.keeps_clients() && !made.is_ending() && made.users().is_some() => {
                return made.park(&self.runtime, patience).map(|()| None).map_err(|error| ublk_error(&error));
            }
            Withdrawal::PoolRestarts => {
                made.suspend();
                locked(&self.ublk.suspended).insert(record.uuid, (Instant::now(), made));
                return Ok(None);
            }
            Withdrawal::DaemonEnds | Withdrawal::Forced => made.abandon(&self.runtime, patience),
            Withdrawal::IfUnused => made.stop(&self.runtime),
        };
        match gone {
            Ok(lost) => {
                self.kept.forget_ublk(record);
                Ok(lost.map(|lost| lost.to_string()))
            }
            Err(error) => {
                // It is still there: it goes on, or is to go at the next try.
                *locked(&volume.ublk_export) = Some(made);
                Err(ublk_error(&error))
            }
        }
    }

    /// The volume goes, and its ublk device is still there: it was to end, and did not. It is kept until it can be ended, or gone on with, and
    /// its users wait unless they get errors already.
    pub(super) fn keep_what_did_not_go(&self, record: &VolumeRecord, live: &LiveVolume) {
        let Some(made) = locked(&live.ublk_export).take() else { return };
        if !made.is_ending() {
            made.suspend();
        }
        locked(&self.ublk.suspended).insert(record.uuid, (Instant::now(), made));
    }

    /// Whether users of the volume's block device wait for the next daemon when this one is stopped.
    pub(super) fn device_outlives_a_stop(&self, record: &VolumeRecord) -> bool {
        if self.has_ublk(record) { self.kept.keeps_clients() } else { self.loop_outlives_a_stop(record) }
    }

    /// Whether they wait while the volume's pool is stopped and started.
    pub(super) fn device_outlives_its_pool(&self, record: &VolumeRecord) -> bool {
        self.has_ublk(record) || self.loop_outlives_its_pool(record)
    }

    /// The volume does not have the content that its users knew: its device ends, and they get
    /// errors.
    pub(super) fn end_ublk_of(&self, record: &VolumeRecord) {
        let suspended = locked(&self.ublk.suspended).remove(&record.uuid);
        if suspended.is_none() {
            // Its number is another's soon.
            self.forget_ublk_name(&record.name);
        }
        let ended = match suspended {
            Some((since, export)) => self.end_suspended_one(record.uuid, since, export).map(|()| true),
            None => end_left_device(record.uuid).map(|ended| ended.is_some()),
        };
        match ended {
            Ok(false) => {}
            Ok(true) => tracing::warn!("users of {} get errors: its content is not what they knew", record.name),
            Err(error) => {
                tracing::warn!("{error}");
                return;
            }
        }
        self.kept.forget_ublk(record);
    }

    /// Ends a device whose users wait. One that does not go is kept: its users get errors, and it is ended later.
    fn end_suspended_one(&self, uuid: Uuid, since: Instant, mut export: UblkExport) -> Result<(), UblkError> {
        match export.abandon(&self.runtime, Duration::ZERO) {
            Ok(lost) => {
                self.kept.forget_ublk_of(uuid);
                self.told(lost.map_or(Ok(()), |lost| Err(lost.to_string())));
                Ok(())
            }
            Err(error) => {
                locked(&self.ublk.suspended).insert(uuid, (since, export));
                Err(error)
            }
        }
    }

    /// Removes the stable name of a device that has ended.
    pub(super) fn forget_ublk_name(&self, volume: &str) {
        if self.stable_names && !volume.is_empty() {
            self.told(ublk::forget_name(Path::new(STABLE_DIRECTORY), volume).map(drop));
        }
    }

    /// What went wrong where nobody waits for an answer.
    pub(super) fn told(&self, result: Result<(), String>) {
        if let Err(problem) = result {
            tracing::warn!("{problem}");
        }
    }

    /// Ends devices whose users have waited longer than `patience` for their pool, or for a volume
    /// that does not start. Gives the volumes whose users get errors by that.
    pub(super) fn close_suspended(&self, known: &[VolumeRecord], busy: &[String], patience: Duration) -> Vec<String> {
        let of = |uuid: &Uuid| known.iter().find(|volume| volume.uuid == *uuid);
        let is_over = |uuid: &Uuid, since: Instant| match of(uuid) {
            Some(volume) if busy.contains(&volume.name) => false,
            Some(volume) => volume.rests() || since.elapsed() >= patience,
            None => true,
        };
        // One that did not go is not tried all the time.
        let is_due = |uuid: &Uuid, since: Instant, export: &UblkExport| {
            if export.is_ending() { since.elapsed() >= patience } else { is_over(uuid, since) }
        };
        let over: Vec<(Uuid, (Instant, UblkExport))> =
            locked(&self.ublk.suspended).extract_if(.., |uuid, (since, export)| is_due(uuid, *since, export)).collect();
        let mut closed = Vec::new();
        for (uuid, (_, export)) in over {
            self.told(self.end_suspended_one(uuid, Instant::now(), export).map_err(|error| error.to_string()));
            closed.extend(of(&uuid).map(|volume| volume.name.clone()));
        }
        closed
    }

    /// The daemon ends while users wait for a pool: they go on waiting for the next daemon, or get
    /// errors.
    pub(super) fn end_suspended(&self) {
        for (uuid, (_, export)) in std::mem::take(&mut *locked(&self.ublk.suspended)) {
            let ended = match self.kept.keeps_clients() && !export.is_ending() {
                true => export.leave(&self.runtime),
                false => self.end_suspended_one(uuid, Instant::now(), export),
            };
            self.told(ended.map_err(|error| error.to_string()));
        }
    }
}

fn owner(record: &VolumeRecord) -> u128 {
    u128::from_be_bytes(record.uuid.0)
}

fn ublk_error(error: &UblkError) -> ControlError {
    match error {
        UblkError::InUse { device, by } => ControlError::Export {
            export: device.display().to_string(),
            problem: format!("it is in use ({by})"),
            remedy: "unmount it or close what uses it, then try again".into(),
        },
        // Its sentences say what to do already.
        other => failed(other, ""),
    }
}
