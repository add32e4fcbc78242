//! The integration tests of `applications`, in one binary: linked once, and their waits run beside each other.

mod common;
mod cooling;
mod discovery;
mod ext4;
mod ext4_journal;
mod hostile_pages;
mod live_discovery;
mod lvm;
#[path = "live/machine.rs"]
mod machine;
mod naming;
mod raw_volume;
mod recognition;
mod recorded_loads;
mod server_names;
mod streams;
mod xfs;
mod xfs_damaged;
mod xfs_mounted;
