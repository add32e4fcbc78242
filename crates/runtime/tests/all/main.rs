//! The integration tests of `runtime`, in one binary: linked once, and their waits run beside each other.

mod bare_volume;
mod cached_volume;
mod common;
mod cpu_latency;
mod device_rules;
mod hung_device;
mod idle_and_pressure;
mod watching;
