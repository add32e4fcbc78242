//! What makes block load, and what it brings.
//!
//! A [`Load`] says what is asked for ([`crate::pattern`]), at which pace, for how long and with which content. Whoever plays it gives a [`Loaded`]:
//! [`generator`] on a device or a file, [`in_process`] on a cache without any device in between, [`fio`] for what fio can be told. [`fill`] makes the
//! data before, [`probe`] looks whether a disk is what it is said to be.

pub mod content;
pub mod fill;
pub mod fio;
pub mod generator;
pub mod histogram;
pub mod in_process;
mod loaded;
mod meter;
mod player;
pub mod probe;

pub use loaded::{Loaded, Part, Tally};
pub use player::DEPTH_MAX;

use crate::pattern::Pattern;
use crate::result::Second;
use std::ops::ControlFlow;
use std::time::Duration;

/// A load.
#[derive(Clone, PartialEq, Debug)]
pub struct Load {
    /// Which requests.
    pub pattern: Pattern,
    /// How fast they are made.
    pub pace: Pace,
    /// When it ends.
    pub length: Length,
    /// What is written.
    pub content: Content,
    /// The requests, their times and their contents follow from it.
    pub seed: u64,
    /// Whether each read is compared with what was written ([`Content`] of the fill and of this load, by the same seed): for tests, since it takes time.
    pub verify: bool,
}

/// How fast requests are made.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pace {
    /// So many under way at any time (1 to 256): the next one when one ends.
    Closed {
        /// How many.
        depth: u32,
    },
    /// So many a second, whether answers come or not. Response times count from when a request was to be made, so that those which had to wait
    /// for others are not left out (Tene's "coordinated omission").
    Open {
        /// Requests a second.
        per_s: f64,
        /// Whether they come at random (a Poisson process), else evenly.
        random: bool,
        /// The most that are under way at a time (1 to 256); more wait in line, and their waiting counts.
        depth_max: u32,
    },
}

/// When a load ends: at the first of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Length {
    /// After this time.
    pub time: Option<Duration>,
    /// After so many requests.
    pub requests: Option<u64>,
}

impl Length {
    /// So many seconds.
    pub fn seconds(seconds: f64) -> Length {
        Length { time: Some(Duration::from_secs_f64(seconds)), requests: None }
    }

    /// So many requests.
    pub fn requests(requests: u64) -> Length {
        Length { time: None, requests: Some(requests) }
    }
}

/// What blocks of 4 KiB hold. All of it follows from the seed and the block's place and version, and no block is like another unless it says so.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Content {
    /// Random bytes.
    #[default]
    Incompressible,
    /// Text of words from a small vocabulary mixed with random bytes, everywhere in the block, so that lz4 takes off about so many of a hundred.
    Compressible {
        /// 0 to 75.
        percent: u32,
    },
    /// Blocks come in families of this many neighbours that are alike but for a few bytes, and a new version of a block differs from the one before in a
    /// few bytes: machine images, database pages.
    Similar {
        /// Blocks of a family; at least 1.
        family: u32,
        /// Bytes that differ, of the 4096.
        different_bytes: u32,
    },
}

/// Is told every second of a running load, and may end it early by [`ControlFlow::Break`]: the load then counts as far as it came.
pub type Watch<'a> = &'a mut dyn FnMut(&Second) -> ControlFlow<()>;

/// For those who do not look.
pub fn unwatched(_: &Second) -> ControlFlow<()> {
    ControlFlow::Continue(())
}
