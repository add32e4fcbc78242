//! Bringing dirty blocks home: which ([`dirty`]), and when and how fast (`pace`). The moving itself is the shard's `destage` room.

pub mod dirty;
pub mod pace;
