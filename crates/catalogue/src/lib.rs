//! What a database server says of itself: the names in its catalogue, and who is connected.
//!
//! A server is asked by its own command-line client, run as a child: whatever way to log in, or to
//! encrypt, a server has, its client has it too, and the login is a file in the client's own format.
//! No password is ever on a command line or in the environment. Everything is asked read-only.
//!
//! Rooms: [`login`] which file may be used; [`clients`] where the programs are; `conversation` a
//! child that is asked again and again, within limits of time and size; `mysql` and `postgres` what
//! is asked, and how the answers are read; [`names`] and [`sessions`] what comes of it; [`trouble`]
//! the sentences when nothing does.
//!
//! Nothing that a server or a client says is believed beyond its form: answers are hexadecimal
//! digits and numbers, anything else is refused.

#![forbid(unsafe_code)]

pub mod clients;
mod conversation;
pub mod login;
mod mysql;
pub mod names;
mod postgres;
mod rows;
pub mod sessions;
pub mod trouble;

pub use clients::Clients;
pub use login::Login;
pub use names::{Catalogue, Server};
pub use sessions::{Session, Sessions};
pub use trouble::{Reason, Trouble};
