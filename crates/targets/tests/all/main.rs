//! The integration tests of `targets`, in one binary: linked once, and their waits run beside each other.

mod late;
mod tgt;
mod tgt_hangs;
mod tree;
