//! What the trials share. A trial runs the *real* `hearth` binary beside real programs (ext4, MariaDB, fio, the NBD tools) in a place of its own.
//!
//! * [`command`]: child processes with a hard time limit; nothing in a trial may wait for ever.
//! * [`place`]: a directory, a daemon, mounts; everything ends with its guard, also when a trial panics.
//! * [`needs`]: what a trial needs of the machine, and the message when it is not there.
//! * [`lab`]: trials of what only the kernel of a guest has.
//! * [`initramfs`] and [`emulator`]: small guests that can move from one QEMU to another.
//! * [`turns`]: one guest at a time.
//! * [`tree`]: the content of a directory tree, for comparison.
//! * [`nbd`]: an NBD client as small as the protocol allows.
//! * [`direct`]: a block device around the page cache.
//! * [`mariadb`]: a database server.
//! * [`postgres`]: another one.
//! * [`power`]: disks that lose power.
//! * [`history`]: the checker of register histories.
//! * [`registers`]: clients that use sectors as registers and record what they saw.
#![forbid(unsafe_code)]

pub mod command;
pub mod direct;
pub mod emulator;
pub mod history;
pub mod initramfs;
pub mod lab;
pub mod mariadb;
pub mod nbd;
pub mod needs;
pub mod place;
pub mod postgres;
pub mod power;
pub mod registers;
pub mod tree;
pub mod turns;
pub mod virtio;
