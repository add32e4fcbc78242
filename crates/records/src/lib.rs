//! What is remembered: the state of pools, volumes and disks, where it lies, and what happened.
//!
//! * [`state`] with [`pool_phase`], [`store`], [`lock`], [`places`]: the records, the file that holds them, and that one daemon only has it open.
//! * [`on_ssd`]: the copy of a pool's part of the state on its SSD; [`ssd_content`]: what a state would have of an SSD that it does not know.
//! * [`device_facts`], [`recognise`]: what a device is like, and whether it is the one that was recorded.
//! * [`spare`]: how much of its SSD a pool leaves unused, and why.
//! * [`jobs`], [`events`]: long work and what happened; [`live`]: both as they happen. [`engines`]: how engines of databases are written.
#![forbid(unsafe_code)]

pub mod device_facts;
pub mod engines;
pub mod events;
pub mod jobs;
pub mod live;
pub mod lock;
pub mod on_ssd;
pub mod places;
pub mod pool_phase;
pub mod recognise;
pub mod spare;
pub mod ssd_content;
pub mod state;
pub mod store;
