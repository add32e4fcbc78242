//! `hearth token`, as it is written.

use clap::Subcommand;

/// What to do with tokens.
#[derive(Subcommand, Debug)]
pub enum Token {
    /// Create a token and print it; it is shown only once
    Create {
        /// Its name
        name: String,
        /// Its rights: view or operate
        #[arg(long)]
        role: String,
    },
    /// All tokens, without their secrets
    List,
    /// Revoke a token; browsers that logged in with it are logged out
    Revoke {
        /// Its name
        name: String,
    },
}
