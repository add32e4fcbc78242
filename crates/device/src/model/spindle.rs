//! One drive: its command queue, the choice of the next command, the head, and its read-ahead streams.

use super::platter::{Platter, Position};
use super::set::SpindleParameters;
use std::collections::VecDeque;

/// One command to a drive, in the drive's own addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    /// The job it belongs to.
    pub job: u64,
    pub write: bool,
    pub offset_bytes: u64,
    pub length_bytes: u64,
    pub arrived_ns: u64,
}

impl Command {
    fn end_bytes(&self) -> u64 {
        self.offset_bytes + self.length_bytes
    }
}

/// A run of reads that continue each other.
#[derive(Clone, Copy, Debug)]
struct Stream {
    /// Where the last read of it ended.
    end_bytes: u64,
    /// The drive's buffer holds what lies between `end_bytes` and here.
    ahead_bytes: u64,
    /// How many reads have continued it.
    continued: u32,
    /// For choosing the one to give up.
    used: u64,
}

/// What serving a command would take.
#[derive(Clone, Copy, Debug)]
struct Service {
    done_ns: u64,
    /// The stream it continues.
    stream: Option<usize>,
    /// Whether the head moves (not for reads wholly from the buffer).
    media: bool,
}

#[derive(Clone, Copy, Debug)]
struct Serving {
    command: Command,
    done_ns: u64,
    /// When the head is free again: later than `done_ns` while the drive reads ahead.
    free_ns: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Spindle {
    parameters: SpindleParameters,
    platter: Platter,
    waiting: VecDeque<Command>,
    serving: Option<Serving>,
    free_ns: u64,
    head: Position,
    /// The stream the head is at the end of.
    head_stream: Option<usize>,
    /// Where the last command ended, if it was a write.
    written_to: Option<u64>,
    streams: Vec<Stream>,
    use_count: u64,
    pub busy_ns: u64,
    pub reads: u64,
    pub writes: u64,
}

impl Spindle {
    pub fn new(parameters: SpindleParameters, size_bytes: u64) -> Spindle {
        let platter = Platter::new(&parameters, size_bytes);
        let head = platter.position(0);
        Spindle {
            parameters,
            platter,
            waiting: VecDeque::new(),
            serving: None,
            free_ns: 0,
            head,
            head_stream: None,
            written_to: None,
            streams: Vec::new(),
            use_count: 0,
            busy_ns: 0,
            reads: 0,
            writes: 0,
        }
    }

    /// It holds so much from now on, on the same part of the stroke.
    pub fn grow(&mut self, size_bytes: u64) {
        self.platter = Platter::new(&self.parameters, size_bytes);
    }

    pub fn submit(&mut self, now_ns: u64, command: Command) {
        self.waiting.push_back(command);
        self.start_next(now_ns);
    }

    /// When something happens next, if nothing is submitted before.
    pub fn next_event_ns(&self) -> Option<u64> {
        match &self.serving {
            Some(serving) => Some(serving.done_ns),
            None if self.waiting.is_empty() => None,
            None => Some(self.free_ns),
        }
    }

    /// Lets the event at `now_ns` (given by [`Spindle::next_event_ns`]) happen; the command it completed, if it did.
    pub fn advance(&mut self, now_ns: u64) -> Option<Command> {
        let completed = self.serving.take_if(|serving| serving.done_ns <= now_ns).map(|serving| {
            self.free_ns = serving.free_ns;
            serving.command
        });
        self.start_next(now_ns);
        completed
    }

    fn start_next(&mut self, now_ns: u64) {
        if self.serving.is_some() || self.free_ns > now_ns {
            return;
        }
        let Some((index, service)) = self.choose(now_ns) else { return };
        let command = self.waiting.remove(index).expect("the chosen index is inside the queue");
        if service.media && service.stream != self.head_stream {
            self.leave_stream(now_ns);
        }
        let free_ns = self.serve(&command, service);
        self.busy_ns += free_ns - now_ns;
        *(if command.write { &mut self.writes } else { &mut self.reads }) += 1;
        self.serving = Some(Serving { command, done_ns: service.done_ns, free_ns });
    }

    /// The command to serve next: the oldest if it is too old, else the one done soonest among the first `queue_depth`.
    fn choose(&self, now_ns: u64) -> Option<(usize, Service)> {
        let oldest = self.waiting.front()?;
        let depth = self.parameters.queue_depth.max(1);
        let crowd = (self.waiting.len() as f64 / depth as f64).max(1.0);
        let age_limit_ns = (self.parameters.age_limit_ms * 1e6 * crowd) as u64;
        if now_ns.saturating_sub(oldest.arrived_ns) > age_limit_ns {
            return Some((0, self.service(now_ns, oldest)));
        }
        let services = self.waiting.iter().take(depth).map(|command| self.service(now_ns, command)).enumerate();
        services.min_by_key(|(index, service)| (service.done_ns, *index))
    }

    /// What `command` would take if it began at `now_ns`.
    fn service(&self, now_ns: u64, command: &Command) -> Service {
        let start_ns = now_ns + (self.parameters.overhead_ms * 1e6) as u64;
        let stream = if command.write { None } else { self.stream_of(command) };
        let buffer_ns = command.length_bytes as f64 * 1000.0 / self.parameters.buffer_mb_s;
        let mut from_bytes = command.offset_bytes;
        if let Some(index) = stream {
            let stream = &self.streams[index];
            if stream.ahead_bytes >= command.end_bytes() {
                return Service { done_ns: start_ns + buffer_ns as u64, stream: Some(index), media: false };
            }
            from_bytes = from_bytes.max(stream.ahead_bytes);
            if self.head_stream == Some(index) {
                let media_ns = self.platter.transfer_ns(stream.ahead_bytes, command.end_bytes() - stream.ahead_bytes);
                let done_ns = start_ns + media_ns.max(buffer_ns) as u64;
                return Service { done_ns, stream: Some(index), media: true };
            }
        }
        if command.write && self.written_to == Some(command.offset_bytes) && self.free_ns == now_ns {
            // It waited while its predecessor was written: the drive goes on writing.
            let done_ns = now_ns + self.platter.transfer_ns(from_bytes, command.length_bytes).max(buffer_ns) as u64;
            return Service { done_ns, stream: None, media: true };
        }
        let target = self.platter.position(from_bytes);
        let arrival_ns = start_ns as f64 + self.platter.seek_ns(self.head, target, command.write);
        let rotation_ns = self.platter.rotation_ns(arrival_ns, target);
        let transfer_ns = self.platter.transfer_ns(from_bytes, command.end_bytes() - from_bytes);
        Service { done_ns: (arrival_ns + rotation_ns + transfer_ns) as u64, stream, media: true }
    }

    fn stream_of(&self, command: &Command) -> Option<usize> {
        let reach = |stream: &Stream| stream.end_bytes..=stream.end_bytes + self.parameters.read_ahead_bytes;
        let mut found = None;
        for (index, stream) in self.streams.iter().enumerate() {
            // The nearest stream before the command, if several reach it.
            let better = found.is_none_or(|other: usize| self.streams[other].end_bytes < stream.end_bytes);
            if better && reach(stream).contains(&command.offset_bytes) {
                found = Some(index);
            }
        }
        found
    }

    /// Moves the head and the streams as `service` says; when the head is free again.
    fn serve(&mut self, command: &Command, service: Service) -> u64 {
        self.use_count += 1;
        if command.write {
            self.head_stream = None;
            self.written_to = Some(command.end_bytes());
            self.head = self.platter.position(command.end_bytes());
            for stream in &mut self.streams {
                if command.offset_bytes < stream.ahead_bytes && stream.end_bytes < command.end_bytes() {
                    stream.ahead_bytes = stream.end_bytes;
                }
            }
            return service.done_ns;
        }
        let reach = command.end_bytes()..=command.end_bytes() + self.parameters.read_ahead_bytes;
        let continues = |waiting: &Command| !waiting.write && reach.contains(&waiting.offset_bytes);
        let head_leaves = !self.waiting.is_empty() && !self.waiting.iter().any(continues);
        let index = service.stream.unwrap_or_else(|| self.new_stream(command.offset_bytes));
        let stream = &mut self.streams[index];
        stream.used = self.use_count;
        // Reads that happen to fall behind one another do not make a stream: the gap must be small.
        let gap_bytes = command.offset_bytes - stream.end_bytes;
        stream.continued += u32::from(service.stream.is_some() && gap_bytes <= self.parameters.read_ahead_bytes / 16);
        stream.end_bytes = command.end_bytes();
        if !service.media {
            return service.done_ns;
        }
        // A known stream's head start: before the head goes elsewhere, the drive reads a segment on.
        let read_on = if head_leaves && stream.continued > 0 { self.parameters.read_ahead_segment_bytes } else { 0 };
        stream.ahead_bytes = stream.end_bytes + read_on;
        let read_on_ns = self.platter.transfer_ns(stream.end_bytes, read_on) as u64;
        self.head = self.platter.position(stream.ahead_bytes);
        self.head_stream = Some(index);
        self.written_to = None;
        service.done_ns + read_on_ns
    }

    /// The head goes elsewhere: what the drive has read on for a known stream, while nobody wanted anything, stays in the
    /// buffer.
    fn leave_stream(&mut self, now_ns: u64) {
        let known = self.head_stream.map(|index| &mut self.streams[index]).filter(|stream| stream.continued > 0);
        let Some(stream) = known else { return };
        let idle_ns = now_ns.saturating_sub(self.free_ns) as f64;
        let segment_bytes = self.parameters.read_ahead_segment_bytes;
        let segment_ns = self.platter.transfer_ns(stream.end_bytes, segment_bytes);
        let read_on = (segment_bytes as f64 * (idle_ns / segment_ns).min(1.0)) as u64;
        stream.ahead_bytes = stream.ahead_bytes.max(stream.end_bytes + read_on);
    }

    /// A place for a stream that begins: a free one, else the longest unused, such as never continued first.
    fn new_stream(&mut self, start_bytes: u64) -> usize {
        let fresh = Stream { end_bytes: start_bytes, ahead_bytes: start_bytes, continued: 0, used: self.use_count };
        if self.streams.len() < self.parameters.read_ahead_streams.max(1) {
            self.streams.push(fresh);
            return self.streams.len() - 1;
        }
        let victim = (0..self.streams.len()).min_by_key(|index| {
            let stream = &self.streams[*index];
            (stream.continued > 0, stream.used)
        });
        let victim = victim.expect("a drive has at least one stream");
        self.streams[victim] = fresh;
        victim
    }
}
