//! The integration tests of `trials`, in one binary: linked once, and their waits run beside each other.

mod database;
mod disks;
mod evaluate;
mod ext4;
mod fio_kill;
mod grow;
mod guests;
mod kernel_panic;
mod live_attach;
mod logs;
mod machines;
mod migration;
mod mode_change;
mod names;
mod nbd_tls;
mod nbd_tools;
mod outlives;
mod power_cuts;
mod registers;
mod shares;
mod shares_by_tgt;
mod systemd;
mod units;
