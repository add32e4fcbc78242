//! What `hearth` and `hearth-evaluate` share on a command line, so that both speak and fail alike. Nothing here does what a command asks for.
//!
//! [`evaluate`] defines the commands of `hearth evaluate`; [`options`] the options of every command; [`quantity`] reads sizes, times and ranges;
//! [`table`] and [`output`] write; [`failure`] is how a command fails; [`interrupt`] and [`signals`] are Ctrl-C; [`program`] finds the other program.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod evaluate;
pub mod failure;
pub mod interrupt;
pub mod options;
pub mod output;
pub mod program;
pub mod quantity;
pub mod signals;
pub mod table;
