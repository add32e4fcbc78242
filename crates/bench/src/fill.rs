//! Fills a pool's SSD file through the engine, for start-up benchmarks: forty gigabytes in seconds.
//!
//! Every block is read from a backing device of zeroes and cached as clean. Pages of zeroes are not written but left as holes, in which
//! zeroes are read again: what a start looks at (superblock, rings) is all there, and every block matches its checksum. The
//! pool is left as after `kill -9`.

use anyhow::{Context, Result, bail, ensure};
use engine::api::{Action, Command, Completion, Event, Io, IoKind, Origin, Request, Target, VolumeOptions};
use engine::front::shard_of;
use engine::medium::{Medium, MediumError};
use engine::shard::{PAGES_MIN, Shard};
use engine::superblock;
use page::{PageMutVec, PagePool};
use pool::restart::{Restart, restart_here};
use pool::root::Root;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::os::unix::fs::FileExt;
use types::{Admission, BLOCK_BYTES, BLOCK_SECTORS, Content, EXTENT_SECTORS, Mode, ShardIndex, VolumeIndex};

const PIECE_BLOCKS: u64 = 16;
const EXTENT_BLOCKS: u64 = EXTENT_SECTORS / BLOCK_SECTORS;
const RAM_BLOCKS: u64 = 4096;

/// The file, for code that blocks.
struct Ssd(File);

fn told<T>(operation: &'static str, offset_bytes: u64, result: std::io::Result<T>) -> Result<T, MediumError> {
    result.map_err(|error| MediumError { operation, offset_bytes, errno: error.raw_os_error().unwrap_or(0) })
}

impl Medium for Ssd {
    fn size_bytes(&self) -> u64 {
        let bytes = self.0.metadata().map_or(0, |metadata| metadata.len());
        bytes - bytes % BLOCK_BYTES
    }

    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), MediumError> {
        told("read", offset_bytes, self.0.read_exact_at(into, offset_bytes))
    }

    fn write(&mut self, offset_bytes: u64, from: &[u8]) -> Result<(), MediumError> {
        told("write", offset_bytes, self.0.write_all_at(from, offset_bytes))
    }

    fn flush(&mut self) -> Result<(), MediumError> {
        told("flush", 0, self.0.sync_data())
    }

    fn discard(&mut self, _: u64, _: u64) -> Result<(), MediumError> {
        Ok(())
    }
}

/// Fills the pool on `path`, which has one volume and was stopped cleanly, with the volume's first `blocks` blocks.
pub fn run(path: &str, blocks: u64) -> Result<()> {
    let file = File::options().read(true).write(true).open(path).with_context(|| format!("open {path}"))?;
    let mut medium = Ssd(file);
    let state = superblock::load(&mut medium)?;
    ensure!(state.superblock.clean, "the pool was not stopped cleanly");
    let [volume] = state.superblock.volumes.as_slice() else { bail!("the pool has not just one volume") };
    let (id, layout) = (volume.id, state.superblock.layout);
    let mut root = Root::new(state, BTreeMap::from([(id.0, VolumeIndex(0))]), id.0 + 1);
    root.prepare(&mut medium)?;
    let pages = PagePool::new(usize::from(layout.shards) * (PAGES_MIN + RAM_BLOCKS as usize) + 4096);
    let (state, places) = (root.state(), root.places());
    let plan = Restart { state, places, ram_blocks: RAM_BLOCKS, content: Content::Off, pages, threads: 1, slots_named: None };
    let found = restart_here(&plan, &mut medium)?;
    root.begin_session(&mut medium, &found)?;
    let mut cached = 0;
    for (shard, found) in (0..).map(ShardIndex).zip(found) {
        let mut rig = Filler { shard: found.shard, ssds: [&medium.0], io: VecDeque::new(), now_ns: 1, answered: 0, quiet: false };
        for hold in root.holds() {
            rig.command(hold)?;
        }
        let options = VolumeOptions {
            mode: Mode::WriteThrough,
            admission: Admission::Always,
            sequential_cutoff_bytes: None,
            ..VolumeOptions::default()
        };
        rig.command(Command::Attach { volume: VolumeIndex(0), id, size_bytes: blocks * BLOCK_BYTES, options })?;
        for extent in 0..blocks.div_ceil(EXTENT_BLOCKS) {
            if shard_of(id, extent * EXTENT_SECTORS, layout.shards) == shard {
                let from = extent * EXTENT_BLOCKS;
                rig.read(from, (blocks - from).min(EXTENT_BLOCKS))?;
            }
        }
        rig.command(Command::Quiesce { token: 1 })?;
        for _ in 0..1000 {
            if rig.quiet {
                break;
            }
            rig.pass(1_000_000)?;
        }
        ensure!(rig.quiet, "the shard does not come to rest");
        cached += rig.shard.cached_blocks().count() as u64;
    }
    medium.flush()?;
    println!("{}", serde_json::json!({ "blocks": cached, "shards": layout.shards }));
    Ok(())
}

/// One shard and what stands for its devices.
struct Filler<'a> {
    shard: Shard,
    ssds: [&'a File; 1],
    io: VecDeque<Io>,
    now_ns: u64,
    answered: u64,
    quiet: bool,
}

impl Filler<'_> {
    fn command(&mut self, command: Command) -> Result<()> {
        self.shard.command(self.now_ns, command);
        self.drain()
    }

    fn pass(&mut self, ns: u64) -> Result<()> {
        self.now_ns += ns;
        self.shard.tick(self.now_ns);
        self.drain()
    }

    fn read(&mut self, from_block: u64, blocks: u64) -> Result<()> {
        let end = from_block + blocks;
        for block in (from_block..end).step_by(PIECE_BLOCKS as usize) {
            let sectors = ((end - block).min(PIECE_BLOCKS) * BLOCK_SECTORS) as u32;
            let (volume, start_sector) = (VolumeIndex(0), block * BLOCK_SECTORS);
            let request = Request::read(block, volume, start_sector, sectors, Origin::Warm);
            let before = self.answered;
            self.now_ns += 20_000;
            self.shard.submit(self.now_ns, request);
            self.drain()?;
            for _ in 0..1000 {
                if self.answered > before {
                    break;
                }
                self.pass(1_000_000)?;
            }
            ensure!(self.answered > before, "a read of block {block} is not answered");
        }
        Ok(())
    }

    fn drain(&mut self) -> Result<()> {
        loop {
            while let Some(action) = self.shard.poll_action() {
                match action {
                    Action::Io(io) => self.io.push_back(io),
                    Action::Reply(reply) => {
                        ensure!(reply.result.is_ok(), "a read failed: {:?}", reply.result);
                        self.answered += 1;
                    }
                    Action::Event(Event::CommandDone(_, result)) => {
                        ensure!(result.is_ok(), "a command failed: {result:?}");
                        self.quiet = true;
                    }
                    Action::Event(event) => bail!("unexpected: {event:?}"),
                }
            }
            let Some(io) = self.io.pop_front() else { return Ok(()) };
            let pages = self.perform(io.target, io.offset_bytes, io.kind)?;
            self.shard.complete(self.now_ns, Completion { id: io.id, result: Ok(()), pages });
        }
    }

    fn perform(&mut self, target: Target, offset_bytes: u64, kind: IoKind) -> Result<PageMutVec> {
        Ok(match (target, kind) {
            (Target::Ssd(ssd), IoKind::Read(mut pages)) => {
                for (page, at) in pages.iter_mut().zip(0u64..) {
                    self.ssds[usize::from(ssd.0)].read_exact_at(&mut page[..], offset_bytes + at * BLOCK_BYTES)?;
                }
                pages
            }
            (Target::Ssd(ssd), IoKind::Write { pages, .. }) => {
                for (page, at) in pages.iter().zip(0u64..).filter(|(page, _)| page.iter().any(|byte| *byte != 0)) {
                    self.ssds[usize::from(ssd.0)].write_all_at(&page[..], offset_bytes + at * BLOCK_BYTES)?;
                }
                PageMutVec::new()
            }
            (Target::Backing(_), IoKind::Read(mut pages)) => {
                pages.iter_mut().for_each(|page| page.fill(0));
                pages
            }
            _ => PageMutVec::new(),
        })
    }
}
