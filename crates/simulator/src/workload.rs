//! What clients ask for: random requests over a few hot blocks and the rest, in all sizes and alignments.

use engine::api::Op;
use types::{BLOCK_SECTORS, EXTENT_SECTORS, SECTOR_BYTES};

use crate::content::Texture;
use crate::plan::{Mix, Plan};
use crate::prng::Prng;

/// A request before it has a number.
#[derive(Clone, Copy, Debug)]
pub struct Draft {
    /// Which volume.
    pub volume: u16,
    /// What.
    pub op: Op,
    /// Durable when acknowledged.
    pub fua: bool,
    /// First sector.
    pub start_sector: u64,
    /// Count of sectors; 0 for a flush.
    pub sectors: u32,
    /// Of what is written.
    pub texture: Texture,
}

impl Draft {
    /// A request without FUA for unique data, if it writes data.
    pub fn of(volume: u16, op: Op, start_sector: u64, sectors: u32) -> Draft {
        Draft { volume, op, fua: false, start_sector, sectors, texture: Texture::Unique }
    }
}

impl Draft {
    /// In words.
    pub fn in_words(&self) -> String {
        let Draft { volume, op, fua, start_sector, sectors, .. } = self;
        let fua = if *fua { " with FUA" } else { "" };
        match op {
            Op::Flush => format!("flush of volume {volume}"),
            _ => format!("{op:?} of {sectors} sectors at {start_sector} of volume {volume}{fua}"),
        }
    }
}

/// One connection's habits.
pub struct Client {
    prng: Prng,
    /// Draws textures, and nothing that a plan without content has.
    texture_prng: Prng,
    /// Where its last request ended, per volume.
    cursor: Vec<u64>,
}

const OPS: [Op; 5] = [Op::Read, Op::Write, Op::WriteZeroes, Op::Discard, Op::Flush];

impl Client {
    /// A client of this plan.
    pub fn new(plan: &Plan, prng: Prng) -> Client {
        Client { texture_prng: prng.fork(1), prng, cursor: vec![0; plan.volumes.len()] }
    }

    /// The next request, to a volume of which `size_of` tells how many sectors it has now.
    pub fn draw(&mut self, plan: &Plan, size_of: impl Fn(u16) -> u64) -> Draft {
        let mix = &plan.mix;
        let prng = &mut self.prng;
        let volume = prng.below(plan.volumes.len() as u64) as u16;
        let size = size_of(volume);
        let op = OPS[prng.weighted(&mix.ops)];
        if op == Op::Flush {
            return Draft::of(volume, op, 0, 0);
        }
        let is_range = mix.ranges_percent > 0 && matches!(op, Op::WriteZeroes | Op::Discard) && prng.percent(mix.ranges_percent);
        let sectors = if is_range { range_length(size, prng) } else { length(mix, prng).min(size) };
        let cursor = &mut self.cursor[usize::from(volume)];
        let start_sector =
            if prng.percent(mix.sequential_percent) && *cursor + sectors <= size { *cursor } else { place(mix, size, sectors, prng) };
        let (start_sector, sectors) = match plan.volumes[usize::from(volume)].options.atomic_bytes {
            Some(bytes) if matches!(op, Op::Read | Op::Write) && prng.percent(mix.units_percent) => {
                whole_units(start_sector, sectors, size, u64::from(bytes) / SECTOR_BYTES)
            }
            _ => (start_sector, sectors),
        };
        *cursor = start_sector + sectors;
        let fua = op != Op::Read && prng.percent(mix.fua_percent);
        // Without a draw of its own: seeds of before go on as they did.
        let op = if op == Op::Discard && start_sector.is_multiple_of(3) { Op::PunchHole } else { op };
        let texture = match &plan.content {
            Some(content) if op == Op::Write => content.texture(volume, start_sector / BLOCK_SECTORS, &mut self.texture_prng),
            _ => Texture::Unique,
        };
        Draft { volume, op, fua, start_sector, sectors: sectors as u32, texture }
    }

    /// How long until the next one.
    pub fn think_ns(&mut self, plan: &Plan) -> u64 {
        self.prng.spread(plan.think_ns)
    }
}

/// The units that a request touches, as far as whole ones are in the volume.
fn whole_units(start: u64, sectors: u64, size: u64, unit: u64) -> (u64, u64) {
    let (first, end) = (start / unit * unit, (start + sectors).next_multiple_of(unit).min(size / unit * unit));
    if first < end { (first, end - first) } else { (start, sectors) }
}

fn length(mix: &Mix, prng: &mut Prng) -> u64 {
    match prng.weighted(&mix.sizes) {
        0 => 1,
        1 => prng.between(1, BLOCK_SECTORS),
        2 => BLOCK_SECTORS,
        3 => prng.between(1, 4 * BLOCK_SECTORS + 1),
        4 => prng.between(1, 129),
        _ => prng.between(EXTENT_SECTORS / 2, EXTENT_SECTORS * 2),
    }
}

/// The whole volume, or some of its extents, on their boundaries or off them.
fn range_length(size: u64, prng: &mut Prng) -> u64 {
    let extents = size / EXTENT_SECTORS;
    match prng.below(4) {
        0 => size,
        1 => (extents * EXTENT_SECTORS).max(1),
        _ => (prng.between(2, extents.max(2) + 1) * EXTENT_SECTORS + prng.below(64)).min(size),
    }
}

fn place(mix: &Mix, size: u64, sectors: u64, prng: &mut Prng) -> u64 {
    let room = size - sectors;
    if mix.end_percent > 0 && prng.percent(mix.end_percent) {
        return room - prng.below(4 * BLOCK_SECTORS).min(room);
    }
    if !prng.percent(mix.hot_percent) {
        return prng.below(room + 1);
    }
    // Hot blocks lie in clusters of four, spread over the volume so that they fall into different extents and shards.
    let hot = prng.below(mix.hot_blocks);
    let blocks = size / BLOCK_SECTORS;
    let block = ((hot / 4).wrapping_mul(0x9E37_79B1) % blocks + hot % 4) % blocks;
    let inside = if sectors >= BLOCK_SECTORS && prng.percent(75) { 0 } else { prng.below(BLOCK_SECTORS) };
    (block * BLOCK_SECTORS + inside).min(room)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_stay_inside_their_volume_and_vary() {
        let mut shapes = std::collections::BTreeSet::new();
        for seed in 0..50 {
            let plan = Plan::of(seed);
            let mut client = Client::new(&plan, Prng::new(seed));
            for _ in 0..50 {
                let draft = client.draw(&plan, |volume| plan.volumes[usize::from(volume)].sectors);
                let end = draft.start_sector + u64::from(draft.sectors);
                assert!(end <= plan.volumes[usize::from(draft.volume)].sectors);
                assert_eq!(draft.sectors == 0, draft.op == Op::Flush);
                shapes.insert((format!("{:?}", draft.op), draft.fua, draft.start_sector.is_multiple_of(8)));
            }
        }
        assert!(shapes.len() >= 10, "{shapes:?}");
    }
}
