//! The integration tests of `hearth`, in one binary: linked once, and their waits run beside each other.

mod access;
mod bad_input;
mod connect;
mod content;
mod devices_and_jobs;
mod disks;
mod failing_ssd;
mod hung_device;
mod insight;
mod large_ssd;
mod life_cycle;
mod log_end;
mod loop_export;
mod metrics;
mod names;
mod objects;
mod outlives;
mod private_files;
mod refused_at_add;
mod refusing_disk;
mod stream_rules;
mod support;
mod top;
mod unit_file;
mod whole_device;
mod why;
