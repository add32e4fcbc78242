//! The NBD export: volumes shown to clients over a Unix socket, over TCP on loopback, or over TCP with TLS.
//!
//! [`serve`] makes a listening socket; [`Server`] adds and removes exports on it. The path of a request:
//!
//! ```text
//!   listener ─▶ connection ─▶ protocol (handshake, request) ─▶ transmission ─▶ volume
//!                   ▲                                              │
//!   socket ◀── sender (pages, uncopied) ◀── protocol (reply) ◀────┘
//! ```
//!
//! Rooms: [`protocol`] bytes without I/O; `receiver` and `sender` the two directions of a socket; `slots` requests in flight;
//! `budget` the pages they may hold;
//! `transmission` from bytes to requests and back; `connection` and `listener` the endpoints; `door` how many there may be of them;
//! `exports` what clients may choose; `tls` who may come from afar, and nobody listens; `parked` a client that goes from one server to the next.

mod address;
mod budget;
mod connection;
mod door;
mod exporter;
mod exports;
mod interfaces;
mod limits;
mod listener;
mod local;
mod message;
mod parked;
pub mod protocol;
mod receiver;
mod sender;
mod server;
mod slots;
mod tls;
mod transmission;

pub use address::{ListenSpec, tcp_uri, unix_uri};
pub use exporter::NbdExporter;
pub use exports::{Counters, ExportError, ExportOptions};
pub use limits::Limits;
pub use listener::ListenError;
pub use parked::Parked;
pub use server::{Left, Server, Suspended, serve, serve_again, serve_tls};
pub use tls::Tls;
