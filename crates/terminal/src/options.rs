//! Options of every command.

use clap::{Arg, Args, Command};
use std::path::PathBuf;

/// Heading of the options that every command takes.
const EVERYWHERE: &str = "Options of every command";

/// Options of every command.
#[derive(Args, Clone, Debug)]
pub struct Everywhere {
    /// The daemon's socket [default: /run/hearth/hearth.sock for root, else $XDG_RUNTIME_DIR/hearth.sock; or HEARTH_SOCKET]
    #[arg(long, global = true, help_heading = EVERYWHERE, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// The daemon's state directory [default: /var/lib/hearth for root, else $XDG_STATE_HOME/hearth; or HEARTH_STATE]
    #[arg(long, global = true, help_heading = EVERYWHERE, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// The configuration file [default: /etc/hearth/hearth.toml, if it is there; or HEARTH_CONFIG]
    #[arg(long, global = true, help_heading = EVERYWHERE, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Exact JSON instead of a table
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    pub json: bool,
}

/// A command that takes a negative number for the value of an option: who reads the value says what is wrong with it.
pub fn with_negatives(command: Command) -> Command {
    let takes_value = |arg: &Arg| arg.get_long().is_some() && arg.get_action().takes_values();
    let command = command.mut_args(|arg| if takes_value(&arg) { arg.allow_negative_numbers(true) } else { arg });
    command.mut_subcommands(with_negatives)
}
