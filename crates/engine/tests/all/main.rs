//! The integration tests of `engine`, in one binary: linked once, and their waits run beside each other.

mod along;
mod bad_cached_copy;
mod checkpoint;
mod crash_recovery;
mod damage;
mod explain;
mod failed_log;
mod golden;
mod idle;
mod packed_recovery;
mod policies;
mod shard;
mod slots_hostile;
mod superblock;
mod support;
mod upgrade;
mod write_cache;
mod write_kinds;
