//! The shards and the front of one pool, driven without threads: I/O is done at once, and time passes when nothing else happens.

use super::hardware::Hardware;
use super::{TURNS, locked, told};
use crate::datapath::{Life, Notice};
use crate::error::ControlError;
use crate::real::assembly::Root;
use engine::api::{Action, Command, Event, Reply, Target};
use engine::front::{Front, FrontAction};
use engine::shard::{Proof, Shard};
use engine::unanimous::Unanimous;
use page::PagePool;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use types::{Content, ShardIndex, VolumeIndex};

/// The pool that runs (one is enough here).
pub(super) struct Engine {
    pub(super) pool: String,
    pub(super) life: Life,
    pub(super) ssd: String,
    pub(super) root: Root,
    pub(super) samples: BTreeMap<u32, Vec<(u64, Proof)>>,
    pub(super) shards: Vec<Shard>,
    pub(super) front: Front,
    pub(super) now_ns: u64,
    pub(super) pages: PagePool,
    pub(super) next_number: u64,
    pub(super) replies: BTreeMap<u64, Reply>,
    /// By token: shards that have not answered, and the first error.
    pub(super) commands: BTreeMap<u64, (usize, Result<(), String>)>,
    /// Backing devices by place, and who is attached there.
    pub(super) backing: BTreeMap<u16, (String, String)>,
    /// Volumes of which nothing is dirty after a loss of the SSD.
    pub(super) clean: Unanimous,
}

#[derive(Default)]
pub(super) struct Running {
    pub(super) engine: Option<Engine>,
    /// Volumes without a cache, and their devices.
    pub(super) bare: BTreeMap<String, String>,
    pub(super) ears: Option<Ears>,
}

/// Where the data path reports to.
#[derive(Clone)]
pub struct Ears {
    /// The way there.
    pub sender: Sender<Notice>,
    /// Notices that were not taken in yet.
    pub waiting: Arc<AtomicUsize>,
}

impl Engine {
    /// Everything that can go on does.
    pub(super) fn turn(&mut self, hardware: &Mutex<Hardware>, ears: Option<&Ears>) {
        let mut moved = true;
        while std::mem::take(&mut moved) {
            while let Some(step) = self.front.poll() {
                moved = true;
                match step {
                    FrontAction::Reply(reply) => drop(self.replies.insert(reply.id, reply)),
                    FrontAction::ToShard(shard, part) => self.shards[usize::from(shard.0)].submit(self.now_ns, part),
                }
            }
            for index in 0..self.shards.len() {
                while let Some(action) = self.shards[index].poll_action() {
                    moved = true;
                    match action {
                        Action::Io(io) => {
                            let path = match io.target {
                                Target::Ssd => self.ssd.clone(),
                                Target::Backing(volume) => self.backing[&volume.0].0.clone(),
                            };
                            let completion = locked(hardware).perform(&path, io);
                            self.shards[index].complete(self.now_ns, completion);
                        }
                        Action::Reply(reply) => self.front.shard_reply(ShardIndex(index as u16), reply),
                        Action::Event(event) => self.event(ShardIndex(index as u16), event, hardware, ears),
                    }
                }
            }
        }
    }

    pub(super) fn event(&mut self, shard: ShardIndex, event: Event, hardware: &Mutex<Hardware>, ears: Option<&Ears>) {
        let volume = |place: VolumeIndex| self.backing.get(&place.0).map_or_else(String::new, |(_, name)| name.clone());
        let notice = match event {
            Event::SsdFailed { no_space } => Notice::SsdFailed { pool: self.pool.clone(), life: self.life, no_space },
            Event::NothingDirty(place) if !self.clean.said_by(shard, place) => return,
            Event::NothingDirty(place) => Notice::NothingDirty { pool: self.pool.clone(), life: self.life, volume: volume(place) },
            Event::GoingHome => Notice::GoingHome { pool: self.pool.clone(), life: self.life },
            Event::PastSsd { token, volume: place, blocks } => {
                Notice::PastSsd { pool: self.pool.clone(), life: self.life, volume: volume(place), blocks, token }
            }
            Event::BackingFailed(place) => Notice::BackingFailed { volume: volume(place) },
            Event::DirtyBlockUnreadable(place, block) => Notice::DirtyBlockUnreadable { volume: volume(place), block },
            Event::ChecksumMismatch(place, block) => Notice::ChecksumMismatch { volume: volume(place), block },
            Event::DestageFailed(place, block) => Notice::DestageFailed { volume: volume(place), block },
            Event::CommandDone(token, result) => {
                let (left, first) = self.commands.get_mut(&token).expect("a command that was given");
                *left -= 1;
                if first.is_ok() {
                    *first = result;
                }
                return;
            }
        };
        if let Some(ears) = ears.filter(|_| !locked(hardware).dead) {
            ears.waiting.fetch_add(1, Ordering::SeqCst);
            ears.sender.send(notice).expect("somebody listens while the machine has power");
        }
    }

    /// Gives a command that every shard answers.
    pub(super) fn command(&mut self, make: impl Fn(u64) -> Command) -> u64 {
        self.next_number += 1;
        let token = self.next_number;
        self.commands.insert(token, (self.shards.len(), Ok(())));
        self.tell(&make(token));
        token
    }

    pub(super) fn tell(&mut self, command: &Command) {
        for shard in &mut self.shards {
            shard.command(self.now_ns, command.clone());
        }
    }

    /// As the runtime does it, but without a clock: the n-th access is to be the same one every time.
    pub(super) fn set_content(&mut self, level: Content) {
        for shard in &mut self.shards {
            let options = runtime::content::options_for(level, shard.config());
            shard.set_content(options);
        }
    }

    pub(super) fn tick(&mut self) {
        let deadline = self.shards.iter().filter_map(Shard::next_deadline).min();
        self.now_ns = deadline.unwrap_or(0).max(self.now_ns + 100_000);
        for shard in &mut self.shards {
            shard.tick(self.now_ns);
        }
    }

    /// How a command ended, if it has.
    pub(super) fn ended(&mut self, token: u64) -> Option<Result<(), String>> {
        let (left, _) = self.commands.get(&token)?;
        if *left > 0 {
            return None;
        }
        self.commands.remove(&token).map(|(_, result)| result)
    }
}

impl Running {
    /// Lets the engine go on for a while, until `ended` gives something.
    pub(super) fn look<T>(
        &mut self,
        hardware: &Mutex<Hardware>,
        ended: &mut impl FnMut(&mut Engine) -> Option<T>,
    ) -> Result<Option<T>, ControlError> {
        let Running { engine, ears, .. } = self;
        let engine = engine.as_mut().ok_or_else(|| told("the pool", "it does not run"))?;
        for _ in 0..TURNS {
            engine.turn(hardware, ears.as_ref());
            if let Some(result) = ended(engine) {
                return Ok(Some(result));
            }
            engine.tick();
        }
        if locked(hardware).dead { Err(told("the machine", "it has no power")) } else { Ok(None) }
    }

    pub(super) fn place(&self, volume: &str) -> Option<VolumeIndex> {
        let attached = &self.engine.as_ref()?.backing;
        attached.iter().find(|(_, (_, name))| name == volume).map(|(place, _)| VolumeIndex(*place))
    }
}
