//! What a run has to do with content: what clients write has something in common, and the pool makes much or little of it.
//!
//! Drawn by streams of their own, so that plans without content draw what they always drew.

use crate::content::{PATTERNS, Texture};
use crate::prng::Prng;

/// How much a pool makes of what its blocks contain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// Blocks are stored as they are.
    Off,
    /// What takes a few microseconds a block.
    Fast,
    /// All there is.
    Dense,
    /// As fast, and each step is opened and closed by what it saves.
    Auto,
}

/// How a pool treats content, for each of its shards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContentSetting {
    /// How much it makes of it.
    pub level: Level,
    /// The pool's secret: which blocks meet does not follow from their content alone.
    pub secret: u64,
    /// Most memory for hints, in bytes.
    pub hint_bytes: u64,
    /// Most pages for the contents of bases.
    pub base_pages: usize,
    /// CPU time that encoding may take, in nanoseconds a second; `None`: nothing is counted, and the budget is never spent.
    pub cpu_ns_per_second: Option<u64>,
    /// Bits of the keys by which blocks meet; 64: all. With few, blocks of any content meet.
    pub key_bits: u32,
}

/// The part of a plan that is about content.
#[derive(Clone, Debug)]
pub struct ContentPlan {
    /// How the pool treats content at first.
    pub setting: ContentSetting,
    /// Weights of the textures of writes: unique, sparse, rows, copy, pattern.
    pub textures: [u32; 5],
    /// Patterns that are used.
    pub patterns: u8,
    /// Writes whose texture follows from their place, so that versions of a block resemble each other, in a hundred.
    pub steady_percent: u32,
    /// What each volume's backing device begins with, if not with zeroes.
    pub begin_as: Vec<Texture>,
    /// Typical time between losses of all hints; 0: none.
    pub forget_hints_ns: u64,
    /// Typical time between changes of the level; 0: none.
    pub change_level_ns: u64,
}

/// CPU time that encoding a block takes where it is counted, in nanoseconds.
pub const ENCODING_NS: u64 = 5_000;
/// Budgets of CPU time that are always spent, that suffice for 40 blocks a second, and that are spent at times.
const TIGHT: [Option<u64>; 3] = [Some(0), Some(40 * ENCODING_NS), Some(4_000 * ENCODING_NS)];

impl ContentPlan {
    /// What the run of this seed has to do with content; about half of all runs have nothing to.
    pub fn of(seed: u64, volumes: usize) -> Option<ContentPlan> {
        let mut prng = Prng::new(seed).fork(11);
        if prng.percent(50) { None } else { Some(ContentPlan::drawn(&mut prng, volumes)) }
    }

    /// What a run that has to do with content has to do with it.
    pub fn drawn(prng: &mut Prng, volumes: usize) -> ContentPlan {
        let cpu_ns_per_second = if prng.percent(80) { None } else { prng.pick(&TIGHT) };
        let setting = ContentSetting {
            level: prng.pick(&[Level::Fast, Level::Fast, Level::Dense, Level::Dense, Level::Auto, Level::Off]),
            secret: prng.bits(),
            hint_bytes: prng.pick(&[0, 72, 1 << 10, 8 << 10, 64 << 10, 64 << 10]),
            base_pages: prng.pick(&[0, 1, 4, 16, 64]),
            cpu_ns_per_second,
            key_bits: u64::BITS,
        };
        let mut content = ContentPlan {
            setting,
            textures: prng.pick(&[[1, 1, 1, 1, 1], [1, 0, 6, 2, 1], [0, 1, 1, 8, 2], [1, 0, 0, 2, 8], [1, 6, 2, 0, 1], [8, 1, 1, 1, 1]]),
            patterns: prng.pick(&[1, 3, PATTERNS]),
            steady_percent: prng.pick(&[0, 60, 95]),
            begin_as: Vec::new(),
            forget_hints_ns: prng.pick(&[0, 0, 1_000_000, 20_000_000]),
            change_level_ns: prng.pick(&[0, 0, 1_000_000, 50_000_000]),
        };
        content.begin_as = (0..volumes).map(|_| content.draw(prng)).collect();
        if prng.below(3) == 0 {
            content.setting.key_bits = prng.below(5) as u32;
        }
        content
    }

    /// All of it all the time, and much that can rest on something else.
    pub fn share(&mut self, prng: &mut Prng) {
        self.setting.level = prng.pick(&[Level::Fast, Level::Dense]);
        (self.setting.hint_bytes, self.setting.base_pages, self.setting.cpu_ns_per_second) = (64 << 10, prng.pick(&[64, 512]), None);
        (self.forget_hints_ns, self.change_level_ns) = (0, 0);
        (self.textures, self.patterns, self.steady_percent) =
            (prng.pick(&[[0, 0, 1, 4, 8], [0, 1, 6, 4, 2], [2, 1, 8, 1, 0]]), PATTERNS, 0);
        for texture in &mut self.begin_as {
            *texture = prng.pick(&[Texture::Rows, Texture::Copy(1), Texture::Pattern(2)]);
        }
    }

    /// Much that is stored as LZ4 leaves it, or as it is, until the level changes.
    pub fn loose(&mut self, prng: &mut Prng) {
        self.setting.level = prng.pick(&[Level::Fast, Level::Fast, Level::Dense, Level::Auto]);
        self.textures = prng.pick(&[[1, 8, 2, 1, 1], [2, 4, 2, 4, 2], [0, 6, 6, 1, 1]]);
    }

    /// Nearly all of it is stored as a few bytes, until the level changes to one that stores whole pages.
    pub fn swell(&mut self, prng: &mut Prng) {
        (self.setting.level, self.setting.cpu_ns_per_second) = (Level::Fast, None);
        (self.textures, self.steady_percent) = (prng.pick(&[[0, 8, 2, 1, 2], [1, 8, 1, 0, 0]]), 0);
        (self.forget_hints_ns, self.change_level_ns) = (0, prng.pick(&[300_000, 1_000_000, 3_000_000]));
    }

    fn draw(&self, prng: &mut Prng) -> Texture {
        match prng.weighted(&self.textures) {
            0 => Texture::Unique,
            1 => Texture::Sparse,
            2 => Texture::Rows,
            3 => Texture::Copy(prng.below(u64::from(self.patterns)) as u8),
            _ => Texture::Pattern(prng.below(u64::from(self.patterns)) as u8),
        }
    }

    /// The texture of a write that begins in this block.
    pub fn texture(&self, volume: u16, block: u64, prng: &mut Prng) -> Texture {
        if prng.percent(self.steady_percent) {
            return self.draw(&mut Prng::new(self.setting.secret ^ u64::from(volume) << 48 ^ block));
        }
        self.draw(prng)
    }

    /// Another level, as an operator might choose.
    pub fn other_level(prng: &mut Prng) -> Level {
        prng.pick(&[Level::Off, Level::Fast, Level::Dense, Level::Auto])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn about_half_of_all_runs_are_about_content_and_they_differ() {
        let plans: Vec<ContentPlan> = (0..1_000).filter_map(|seed| ContentPlan::of(seed, 2)).collect();
        assert!((400..600).contains(&plans.len()), "{}", plans.len());
        for level in [Level::Off, Level::Fast, Level::Dense, Level::Auto] {
            assert!(plans.iter().any(|plan| plan.setting.level == level), "{level:?}");
        }
        for bits in [0, 1, 2, 3, 4, 64] {
            assert!(plans.iter().any(|plan| plan.setting.key_bits == bits), "{bits} bits");
        }
        assert!(plans.iter().all(|plan| plan.begin_as.len() == 2 && plan.patterns <= PATTERNS));
    }

    #[test]
    fn a_steady_place_keeps_its_texture_and_all_textures_are_drawn() {
        let mut plan = (0..).find_map(|seed| ContentPlan::of(seed, 1)).expect("one of them");
        (plan.textures, plan.steady_percent) = ([1; 5], 100);
        let mut prng = Prng::new(1);
        assert!((0..50).all(|block| plan.texture(0, block, &mut prng) == plan.texture(0, block, &mut prng)));
        plan.steady_percent = 0;
        let drawn: Vec<Texture> = (0..200).map(|block| plan.texture(0, block, &mut prng)).collect();
        assert!([Texture::Unique, Texture::Sparse, Texture::Rows].iter().all(|texture| drawn.contains(texture)));
        assert!(drawn.iter().any(|texture| matches!(texture, Texture::Copy(_))));
        assert!(drawn.iter().any(|texture| matches!(texture, Texture::Pattern(_))));
    }
}
