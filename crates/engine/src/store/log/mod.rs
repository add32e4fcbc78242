//! The log: how earlier releases stored blocks (format versions 1 to 3), in a ring of segments that every block was appended to, in groups. It is read:
//! to become slots ([`upgrade`](super::upgrade)), and to be looked at. Nothing writes it any more.
//!
//! Segments were used in order of their sequence numbers; number `s` lies at physical place `(s - 1) % segments`. A full segment was sealed with a footer.
//! A segment was used anew only when a *durable* group said that the tail had passed it.

pub mod checkpoint;
pub mod inspect;
pub mod recovery;
