//! The `hearth` binary.
fn main() {}
