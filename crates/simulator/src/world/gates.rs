//! The flush gate of every device, as the runtime has it: one flush at a time, whichever shard asks; a failed one is final.

use engine::api::{Completion, Io, IoError, IoId, IoKind, WriteKind};
use engine::flush_gate::{Arrival, Ended, FlushGate};
use page::PageMutVec;

use super::devices::target_of;
use super::{Happening, World};

/// Who waits for a flush: the shard and its I/O.
type Waiter = (u16, IoId);

/// The gates of one life of the process, one for each device.
#[derive(Default)]
pub struct Gates(Vec<FlushGate<Waiter>>);

impl Gates {
    /// Fresh gates, for a new life: the devices are opened anew.
    pub fn new(devices: usize) -> Gates {
        Gates((0..devices).map(|_| FlushGate::default()).collect())
    }
}

impl World<'_> {
    /// A flush comes to its device's gate. True if the device is to do one now.
    pub fn flush_begins(&mut self, device: usize, lane: u16, id: IoId) -> bool {
        if device == 0 {
            self.log_writes.flush_asked(lane, id);
        }
        let arrival = self.gates.0[device].arrive((lane, id));
        if arrival == Arrival::Failed {
            self.queue.after(1, Happening::FlushRefused(lane, id));
        }
        arrival == Arrival::Start
    }

    /// The device has done a flush, or failed to: all it was for are answered.
    pub fn flush_ended(&mut self, device: usize, lane: u16, id: IoId, result: Result<(), IoError>) {
        let mut answered = Vec::new();
        let Ended { believed, start_next } = self.gates.0[device].end(result.is_ok(), &mut answered);
        let result = if believed { Ok(()) } else { Err(IoError::Failed) };
        if !believed {
            self.blame_flush(device);
        }
        for (lane, id) in answered {
            if device == 0 {
                self.log_writes.flush_answered(lane, id, result.is_ok());
            }
            self.answer_io(lane, Completion { id, result, pages: PageMutVec::new() });
        }
        if start_next {
            let target = target_of(device);
            self.device_begin(
                device,
                lane,
                Io { id, target, offset_bytes: 0, length_bytes: 0, kind: IoKind::Flush, writes: WriteKind::Other, background: false },
            );
        }
    }

    fn blame_flush(&mut self, device: usize) {
        let now = self.queue.now_ns();
        self.blame.strikes(device, now);
        if device == 0 {
            self.blame.ssd_failed = true;
        } else {
            self.blame.flush_failed.insert(device);
        }
    }

    /// What was under way when a flush failed may be lost: it is not believed.
    pub fn has_failed_a_flush(&self, device: usize) -> bool {
        self.gates.0[device].has_failed()
    }

    /// Hands an answer to the system.
    pub fn answer_io(&mut self, lane: u16, completion: Completion) {
        let now = self.queue.now_ns();
        self.note(20, completion.id.0 ^ u64::from(completion.result.is_err()) << 63);
        self.system_mut().complete(now, lane, completion);
    }
}
