//! Management: what is there, what may be done to it, and in which order so that nothing is lost.
//!
//! * [`api`]: every request as one enum of actions; the crate `rest` and [`client`] carry them over HTTP.
//! * [`manager`]: carries them out. [`datapath`]: what it needs from below, as a trait. [`real`]: that trait over
//!   the runtime.
//! * [`state`], [`store`], [`lock`], [`places`]: what is remembered, where, and by one daemon only. [`recognise`]: whether a device is the one that
//!   was recorded.
//! * [`on_ssd`]: the copy of a pool's part of the state on its SSD; [`ssd_content`]: what a state would have of an SSD that it does not know.
//! * [`mapped`]: what it needs to attach a volume to a device in use. [`rescue`]: such devices go on without hearth.
//! * [`options`], [`names`], [`words`], [`int64`]: what people write, checked. [`error`]: every sentence that can go wrong.
//! * [`sectors`], [`memory`]: what a volume or a pool may be like on this machine.
//! * [`jobs`], [`events`], [`stats`]: long work, what happened, what is counted; [`figures`]: all counters in one look; [`sampler`], [`series`]: what
//!   happened in a second. [`live`]: all of that as it happens. [`looking`]: what is known of a range of a volume.
//! * [`object_rules`]: what is asked of the treatment of objects.
//! * [`insight`]: what loads need: watches, analyses, advice. [`preload`]: in which order and how fast ranges are read into the cache.
#![forbid(unsafe_code)]

pub mod api;
pub mod client;

pub mod datapath;
mod device_facts;
mod engines;
pub mod error;
pub mod events;
pub mod figures;
pub mod human;
pub mod insight;
pub mod int64;
pub mod jobs;
pub mod live;
pub mod lock;
pub mod looking;
pub mod manager;
pub mod mapped;
pub mod memory;
pub mod names;
pub mod object_rules;
pub mod on_blank_ssd;
pub mod on_ssd;
pub mod options;
pub mod places;
pub mod preload;
pub mod privacy;
pub mod real;
pub mod recognise;
pub mod repeats;
pub mod rescue;
pub mod sampler;
pub mod sectors;
pub mod series;
mod server_events;
pub mod ssd_content;
pub mod state;
pub mod stats;
pub mod store;
pub mod words;

/// Pools, volumes and disks are known by random UUIDs (RFC 9562, version 4).
pub use ::uuid;
