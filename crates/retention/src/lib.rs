//! Which blocks a cache keeps: one family of policies, and a chooser among its members.
//!
//! A [`Member`] is a set of numbers for one mechanism: a small FIFO that new blocks pass, a main part in which used blocks get further
//! rounds, and a memory of keys that left the small part. [`queues`] is that mechanism for one member. [`miniatures`] runs all members over a
//! sample of the blocks, in caches that are smaller by the same factor. [`chooser`] says from their misses which member the cache should
//! follow. All members share the state of a block, so the cache may change its member at any moment and nothing is moved.
//!
//! Pure: no I/O, no clock, no randomness: the same accesses lead to the same choices.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod chooser;
pub mod member;
pub mod miniatures;
pub mod queues;

pub use chooser::Chooser;
pub use member::{MEMBERS, Member};
pub use miniatures::{Miniatures, hash};
pub use queues::Queues;
