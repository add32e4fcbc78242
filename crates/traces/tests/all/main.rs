//! The integration tests of `traces`, in one binary: linked once, and their waits run beside each other.

mod policy_goals;
mod shard_replay;
mod shared_traces;
mod slots;
