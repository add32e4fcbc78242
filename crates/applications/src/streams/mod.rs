//! What a stream of requests is for: application, scan, backup or log.
//!
//! [`Streams`] watches one volume: every request goes in, in the order of arrival, and its class
//! comes out at once. A scan is known late, so its first blocks are told afterwards as *confirmed*:
//! they may be forgotten. What no rule knows is `Application`.
//!
//! | rule, first that holds | room | needs |
//! |---|---|---|
//! | the user's, by process or session | [`rules`] | host access |
//! | writes that continue their tail | [`log`] | nothing |
//! | leaves read along their chain | [`chain`] | page content |
//! | reads that go forward | [`sequence`], less [`loops`] | nothing |
//! | scans of whole objects | [`backup`] | a map |
//!
//! Everything is bounded when a volume is taken up ([`Streams::bytes`]); there is no clock.

pub mod backup;
pub mod chain;
pub mod log;
pub mod loops;
pub mod pieces;
mod recognised;
pub mod rules;
pub mod seen;
pub mod sequence;
mod volume;

pub use rules::{Described, Origins, Rule, Rules, Subject};
pub use seen::{Evidence, OriginSlot, PageAt, Place, Position, Seen, Verdict};
pub use volume::{Listed, Streams};
