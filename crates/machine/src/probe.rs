//! Whether a device answers, found out by one read on a ring before any call that would wait for it in the kernel: a thread in such a call
//! can neither be stopped nor left behind, and holds up the end of the process. A read on a ring is given up.

use super::{Machine, devices, failed, locked};
use api::error::{ControlError, Kind};
use device::{AlignedBuffer, Geometry};
use engine::api::{Origin, Reply, Request};
use engine::superblock::OpenError;
use format::superblock::Superblock;
use records::state::PoolRecord;
use runtime::{BareVolumeOptions, Context, DeviceOptions, DeviceRef, Endpoint, VolumeRef};
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use types::{BLOCK_BYTES, BLOCK_SECTORS, VolumeIndex};

/// How long a device may take for a block: a disk that spins up takes ten seconds, a command that the kernel repeats half a minute.
const PATIENCE: Duration = Duration::from_secs(30);

impl Machine {
    /// Asks a device for a block. What it holds does not matter.
    fn ask(&self, device: &DeviceRef) -> Result<(VolumeRef, Receiver<()>), ControlError> {
        let options = BareVolumeOptions { name: "probe".into(), read_only: true };
        let volume = self.runtime.add_bare_volume(device, options).map_err(|e| failed(e, ""))?;
        let (answered, answer) = channel();
        self.runtime.add_endpoint(Box::new(Probe { volume: volume.clone(), answered }));
        Ok((volume, answer))
    }

    /// Reads a block of a device and waits until it is there, or has failed. `false`: it does not answer.
    fn probe(&self, device: &DeviceRef, patience: Duration) -> Result<bool, ControlError> {
        let was_ending = self.is_ending();
        let (volume, answer) = self.ask(device)?;
        let answers = self.receive(&answer, patience, was_ending).is_ok();
        // It goes when the read ends, if that is not now.
        let gone = self.runtime.remove_volume(&volume, if answers { PATIENCE } else { Duration::ZERO });
        if answers { gone.map(|()| true).map_err(|e| failed(e, "")) } else { Ok(false) }
    }

    /// Waits for a device in use until it answers. When the daemon ends: until then, since the stop gives it up when it is time.
    pub(super) fn wait_for_answer(&self, device: &DeviceRef) -> Result<(), ControlError> {
        self.wait_for_answer_within(device, if self.is_ending() { Duration::MAX } else { PATIENCE })
    }

    /// The same, not longer than that.
    pub(super) fn wait_for_answer_within(&self, device: &DeviceRef, patience: Duration) -> Result<(), ControlError> {
        let patience = self.patience(patience);
        if self.probe(device, patience)? { Ok(()) } else { Err(silent(device.name(), patience)) }
    }

    /// Writes the first page of a device as it is, durably, if it is the superblock of that pool and
    /// the device is as large as the pool needs it.
    pub(super) fn rewrite_first_page(&self, spec: &str, pool: &PoolRecord) -> Result<(), ControlError> {
        self.probe_path(spec, PATIENCE)?;
        let path = devices::parse(spec)?.path().to_path_buf();
        let (uuid, room_end_bytes) = (pool.uuid, pool.disk_room.map_or(0, |room| room.end_bytes));
        let rewrite = move || -> std::io::Result<()> {
            let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
            let mut file = OpenOptions::new().read(true).write(true).custom_flags(direct).open(path)?;
            let mut page = AlignedBuffer::zeroed(BLOCK_BYTES as usize, BLOCK_BYTES as usize);
            file.read_exact_at(&mut page, 0)?;
            // It may be another device by now, on which nothing of ours may be written.
            if !page.windows(uuid.as_bytes().len()).any(|bytes| bytes == uuid.as_bytes()) {
                return Err(std::io::Error::other("it is not the SSD of the pool"));
            }
            let (size_bytes, needed_bytes) = (file.seek(SeekFrom::End(0))?, log_end_bytes(&file, &page)?.max(room_end_bytes));
            if size_bytes < needed_bytes {
                let problem = OpenError::Truncated { needed_bytes, found_bytes: size_bytes };
                return Err(std::io::Error::other(problem.to_string()));
            }
            file.write_all_at(&page, 0)?;
            file.sync_data()
        };
        self.patiently(spec, move || Ok(rewrite()))?.map_err(|error| ControlError::Device {
            path: spec.into(),
            problem: error.to_string(),
            remedy: format!("bring the SSD back as it was, or put the pool on another with `hearth pool replace {} --ssd PATH`", pool.name),
            kind: Kind::Failed,
        })
    }

    /// The same for a device that is not in use yet. Whatever else is wrong with it, others find.
    pub(super) fn probe_path(&self, spec: &str, patience: Duration) -> Result<(), ControlError> {
        let Some(device) = self.open_to_probe(spec, patience)? else { return Ok(()) };
        let patience = self.patience(patience);
        let answers = self.probe(&device, patience);
        self.close_device(&device);
        if answers? { Ok(()) } else { Err(silent(spec, patience)) }
    }

    fn open_to_probe(&self, spec: &str, patience: Duration) -> Result<Option<DeviceRef>, ControlError> {
        let Ok(parsed) = devices::parse(spec) else { return Ok(None) };
        let path = parsed.path().to_path_buf();
        let open = move || {
            if parsed.kind().is_err() {
                return Ok(None);
            }
            let file = OpenOptions::new().read(true).custom_flags((rustix::fs::OFlags::DIRECT.bits()) as i32).open(&path);
            Ok(file.ok().and_then(|mut file| Some((file.seek(SeekFrom::End(0)).ok()?, file))))
        };
        let Some((size_bytes, file)) = self.patiently_within(patience, spec, open)?.filter(|(size_bytes, _)| *size_bytes >= BLOCK_BYTES)
        else {
            return Ok(None);
        };
        let block_bytes = BLOCK_BYTES as u32;
        let geometry = Geometry {
            size_bytes: size_bytes / BLOCK_BYTES * BLOCK_BYTES,
            logical_block_bytes: block_bytes,
            memory_alignment_bytes: block_bytes,
            discard: false,
            discard_zeroes: false,
        };
        let options = DeviceOptions { name: spec.into(), file, geometry, model: None };
        self.runtime.open_device(options).map(Some).map_err(|e| failed(e, "raise the limit on open files"))
    }

    /// Whether a device does not answer for so long. One that was asked and has not answered yet is not asked again: each look that hangs keeps
    /// the device, and may hold up the end of this process.
    pub(super) fn is_silent(&self, spec: &str, patience: Duration) -> bool {
        let before = locked(&self.asked).remove(spec);
        if let Some(before) = before {
            return self.goes_on_waiting(spec, before, Duration::ZERO);
        }
        match self.open_to_probe(spec, patience) {
            Ok(None) => false,
            Ok(Some(device)) => match self.ask(&device) {
                Ok((volume, answer)) => self.goes_on_waiting(spec, Asked { device, volume, answer }, patience),
                Err(error) => {
                    tracing::debug!("{spec} is not asked: {error}");
                    self.close_device(&device);
                    false
                }
            },
            Err(error) => {
                tracing::debug!("{error}");
                true
            }
        }
    }

    fn goes_on_waiting(&self, spec: &str, asked: Asked, patience: Duration) -> bool {
        if self.receive(&asked.answer, patience, self.is_ending()).is_err() {
            locked(&self.asked).insert(spec.to_owned(), asked);
            return true;
        }
        if let Err(error) = self.runtime.remove_volume(&asked.volume, PATIENCE) {
            tracing::debug!("{spec}: {error}");
        }
        self.close_device(&asked.device);
        false
    }
}

/// A device that was asked for a block and has not answered.
pub(super) struct Asked {
    device: DeviceRef,
    volume: VolumeRef,
    answer: Receiver<()>,
}

fn silent(device: &str, patience: Duration) -> ControlError {
    ControlError::Device {
        path: device.into(),
        problem: format!("it has not answered for {} s", patience.as_secs()),
        remedy: "check the device, then try again".into(),
        kind: Kind::Failed,
    }
}

/// One read.
struct Probe {
    volume: VolumeRef,
    answered: Sender<()>,
}

impl Probe {
    fn end(&self, cx: &mut Context<'_>) {
        // Whoever asked may have stopped waiting.
        let _ = self.answered.send(());
        cx.close();
    }
}

impl Endpoint for Probe {
    fn start(&mut self, cx: &mut Context<'_>) {
        let request = Request::read(0, VolumeIndex(0), 0, BLOCK_SECTORS as u32, Origin::Client);
        // The only request of its volume: there is room for it.
        if cx.submit(&self.volume, request).is_err() {
            self.end(cx);
        }
    }

    fn ring(&mut self, _cx: &mut Context<'_>, _token: u32, _result: i32, _flags: u32) {}

    fn reply(&mut self, cx: &mut Context<'_>, _reply: Reply) {
        self.end(cx);
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        self.end(cx);
    }
}

/// Where the log ends, as the superblock says that begins with this page; 0: it is not intact, and
/// others tell that.
fn log_end_bytes(file: &File, first_page: &[u8]) -> std::io::Result<u64> {
    let Ok(length) = first_page.try_into().map_or(Ok(0), Superblock::stored_bytes) else { return Ok(0) };
    let mut bytes = AlignedBuffer::zeroed(length.max(first_page.len()), BLOCK_BYTES as usize);
    file.read_exact_at(&mut bytes, 0)?;
    Ok(Superblock::decode(&bytes).map_or(0, |superblock| superblock.layout.ssd_bytes))
}
