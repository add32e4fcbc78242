//! Databases under load: a file system on the device that is tried, a private server on it, a load generator that drives it, and what that reported.
//!
//! From the device up: [`filesystem`], [`memory`] (what keeps the page cache out of the way), [`mariadb`] and [`postgres`], then the
//! loads [`go_tpc`], [`sysbench`] and [`pgbench`], run by [`load`] and told as [`Driven`]. [`prepared`] makes loaded databases
//! once, as images that legs start from; [`legs`] are whole runs on a device, [`backup`] what may run beside one. All of it ends with guards, in reverse order, also after Ctrl-C.

pub mod backup;
pub mod driven;
pub mod filesystem;
pub mod go_tpc;
pub mod in_guest;
pub mod legs;
pub mod load;
pub mod mariadb;
pub mod memory;
pub mod pgbench;
pub mod postgres;
pub mod prepared;
pub mod sysbench;

pub use driven::Driven;
pub use load::{Beside, Moment};

use std::time::Duration;

/// For what moves a whole database or writes back a cache of one: far above what it takes, below what a person waits for.
pub(crate) const LONG: Duration = Duration::from_secs(1800);
