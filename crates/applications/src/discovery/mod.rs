//! From a raw volume to applications, databases and objects.
//!
//! A [`Discovery`] asks for reads and is fed bytes, so that the caller sets the pace (2 MiB/s beside
//! clients) and may stop at any time:
//!
//! 1. `regions`: partition tables, file systems, and what can only be looked at coarsely.
//! 2. `homes`: files of databases, by the server that they belong to.
//! 3. The dialect of each database (`crate::dialects`): the pages of dictionaries that are needed for names.
//! 4. `objects`: names, keys, numbers, and the map of extents.
//!    `server_names`: what servers told of themselves, where they can be asked.
//! 5. `looks`: where no file system is known, a page now and then: which engine, without a name.
//!
//! Everything that is found is a hint that can be wrong about speed only: a mounted file system
//! changes meanwhile.

mod found;
mod homes;
mod limits;
mod looks;
mod objects;
mod regions;
mod server_names;
mod source;
mod work;

pub use crate::ObjectKind;
pub use crate::filesystems::Read;
pub use crate::postgres::FORK_BYTES;
pub use found::{Application, ApplicationId, Database, Evidence, Found, Key, Object};
pub(crate) use homes::Server;
pub use limits::{BYTES_MAX, OBJECTS_MAX};
pub use looks::Nameless;
pub(crate) use objects::{Draft, Drafts, in_line};
pub use regions::{Blind, Reason};
pub use server_names::{Agreement, NameList, NamedRelation, SERVER_NAMES_MAX, ServerNames};
pub(crate) use source::Source;
pub use work::Discovery;
pub(crate) use work::Findings;
