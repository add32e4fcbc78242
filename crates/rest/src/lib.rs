//! The management API over HTTP: on a Unix socket always, on TCP with TLS if asked.
//!
//! * [`server`]: the listeners together, and what they grant. [`listen`], [`tls`], [`wire`]: how a connection comes to be served.
//! * [`door`]: which connection gives way when there are too many. [`allotment`]: how much one client may have under way.
//! * [`gate`]: what every request passes: rate, origin, who asks ([`peers`], [`tokens`], [`sessions`], [`callers`]), size and time of its body.
//! * [`routes`]: the paths. [`asked`]: what they take out of a request. [`problem`], [`headers`]: what every answer has.
//! * [`stream`]: what happens, as server-sent events. [`metrics`]: counters for Prometheus. [`openapi`]: the API's description.
//! * [`assets`]: the files of the console. [`console_address`]: where it is served.
#![forbid(unsafe_code)]

pub mod assets;
pub mod listen;
pub mod metrics;
pub mod openapi;
pub mod server;
pub mod tls;

mod allotment;
mod asked;
mod callers;
mod console_address;
mod door;
mod gate;
mod headers;
mod hosts;
mod limits;
mod peers;
mod private_file;
mod problem;
mod routes;
mod secret;
mod sessions;
mod stream;
mod tokens;
mod wire;

pub use assets::{Asset, Assets};
pub use server::{Server, ServerOptions, StopReceiver, StopSender, TcpOptions, stop_pair};
