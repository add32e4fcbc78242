//! What every export has in common: how volumes are offered to clients, whatever the protocol.
//!
//! ```text
//!   --export WORD ─▶ Export ─▶ Exporters ─▶ Exporter (NBD, loop, ublk, vhost-user, ...) ─▶ clients
//!                   (ways)                     └─ Site: runtime, directories, Kept
//! ```
//! An export is a crate that implements [`Exporter`], a row of [`ways::ALL`], and a line where the
//! program lists its exporters. No method of [`Exporter`] has a default body: an exporter that
//! forgets to say who uses a volume does not compile, and one that cannot know it says so.
//!
//! Rooms: [`ways`] the words after `--export`; [`word`] a way with its place; [`answers`] what
//! exporters are asked and say; [`site`] what they share; [`kept`] descriptors that outlive the
//! daemon; [`exporter`] the traits; [`block`] the choice among block devices; [`set`] all exporters
//! of a program; [`slots`] exporters' own state by volume; [`errno`] what a failed request is called in all protocols.

pub mod answers;
pub mod block;
pub mod errno;
pub mod exporter;
pub mod kept;
pub mod set;
pub mod site;
pub mod slots;
mod socket_path;
pub mod ways;
pub mod word;

pub use answers::{Absence, ExportError, Offer, OnRestart, Users, Withdrawal};
pub use block::Block;
pub use device::below::BlockBelow;
pub use errno::{device_errno_of, errno_of};
pub use exporter::{BlockExporter, Exporter};
pub use kept::Kept;
pub use set::Exporters;
pub use site::{Owner, Site, Volume};
pub use slots::Slots;
pub use socket_path::{SOCKET_PATH_BYTES_MAX, SocketPath};
pub use ways::Way;
pub use word::{Export, Place, WordError};
