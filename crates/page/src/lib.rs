//! Pages: the 4 KiB pieces of memory that all data travels in.
//!
//! A [`PageMut`] has one owner who may write; frozen, it becomes a [`Page`] that many may read and nobody may change.
//! Client data, the RAM tier, the log's groups and device I/O all hold the same pages, so a block is not copied on its way
//! through the engine. Pages are aligned to 4 KiB (what O_DIRECT asks for) and come from a bounded [`PagePool`];
//! the last handle to go gives the page back.
//!
//! Invariants: a page on the free list has no handle; a page with a handle is not on the free list; the pool never
//! holds more than its limit. This is the one crate below the runtime with `unsafe` in it.
#![no_std]
extern crate alloc;

mod pieces;
mod pool;
mod vector;
mod zeroed;

pub use pieces::{for_each_piece, for_each_piece_mut, for_each_run, for_each_run_mut};
pub use pool::{PAGE_BYTES, Page, PageMut, PagePool};
pub use vector::{PageMutVec, PageVec};
pub use zeroed::zeroed;
