//! What holds for devices: a failed flush is final, large logical blocks are respected, and what is counted is what was done.

use crate::common::{data_of, device_over, fill, one_request, open, request};
use device::Geometry;
use engine::api::{Op, RequestError};
use runtime::{BareVolumeOptions, DeviceOptions, Runtime, RuntimeOptions, VolumeRef};
use std::fs::OpenOptions;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

fn start() -> Runtime {
    Runtime::start(RuntimeOptions { reactors: 2, ..RuntimeOptions::default() }).expect("the runtime starts")
}

fn bare(runtime: &Runtime, device: &runtime::DeviceRef) -> VolumeRef {
    runtime.add_bare_volume(device, BareVolumeOptions { name: "bare".into(), read_only: false }).unwrap()
}

fn write(runtime: &Runtime, volume: &VolumeRef, start_sector: u64, data: Vec<u8>) -> Result<(), RequestError> {
    let target = volume.clone();
    let sectors = (data.len() / 512) as u32;
    let reply = one_request(runtime, volume, move |cx| {
        let blocks = (start_sector % 8 + u64::from(sectors)).div_ceil(8) as usize;
        let pages = cx.allocate_pages(&target, blocks).expect("an idle pool has room");
        request(1, Op::Write, start_sector, sectors).pages(fill(pages, start_sector, &data))
    });
    reply.result
}

/// /dev/zero takes writes, gives zeroes, and answers every fsync with EINVAL.
#[test]
fn a_failed_flush_is_final_on_every_reactor() {
    let runtime = start();
    let file = OpenOptions::new().read(true).write(true).open("/dev/zero").unwrap();
    let geometry =
        Geometry { size_bytes: 1 << 20, logical_block_bytes: 512, memory_alignment_bytes: 512, discard: true, discard_zeroes: true };
    let device = runtime.open_device(DeviceOptions { name: "zero".into(), file, geometry, model: None }).unwrap();
    let volume = bare(&runtime, &device);
    assert_eq!(write(&runtime, &volume, 0, vec![1; 4096]), Ok(()));
    assert!(!device.has_failed());
    assert_eq!(one_request(&runtime, &volume, |_| request(1, Op::Flush, 0, 0)).result, Err(RequestError::Io));
    assert!(device.has_failed());
    // Endpoints land on the reactors in turn as they come and go: several rounds reach both.
    for _ in 0..4 {
        assert_eq!(write(&runtime, &volume, 0, vec![1; 4096]), Err(RequestError::Io));
        assert_eq!(one_request(&runtime, &volume, |_| request(1, Op::Flush, 0, 0)).result, Err(RequestError::Io));
        assert_eq!(one_request(&runtime, &volume, |_| request(1, Op::WriteZeroes, 0, 8)).result, Err(RequestError::Io));
        assert_eq!(one_request(&runtime, &volume, |_| request(1, Op::Read, 0, 8)).result, Ok(()));
    }
    assert_eq!(runtime.device_stats(&device).unwrap().flushes, 1, "no flush is tried again");
    runtime.shutdown(PATIENCE).unwrap();
}

/// A write that a client marked FUA must not be acknowledged where it cannot be made durable.
#[test]
fn zeroes_with_fua_fail_with_the_flush() {
    let runtime = start();
    let file = OpenOptions::new().read(true).write(true).open("/dev/zero").unwrap();
    let geometry =
        Geometry { size_bytes: 1 << 20, logical_block_bytes: 512, memory_alignment_bytes: 512, discard: false, discard_zeroes: false };
    let device = runtime.open_device(DeviceOptions { name: "zero".into(), file, geometry, model: None }).unwrap();
    let volume = bare(&runtime, &device);
    // It has no hole to punch: zeroes are written as pages.
    assert_eq!(one_request(&runtime, &volume, |_| request(1, Op::WriteZeroes, 0, 64)).result, Ok(()));
    assert_eq!(runtime.device_stats(&device).unwrap().trimmed_bytes, 64 * 512);
    let discarded = one_request(&runtime, &volume, |_| request(1, Op::Discard, 0, 64).fua(true));
    assert_eq!(discarded.result, Err(RequestError::Io));
    runtime.shutdown(PATIENCE).unwrap();
}

#[test]
fn a_device_with_large_blocks_gets_whole_ones_only() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = start();
    let device = runtime.open_device(device_over(&directory.path().join("disk"), 1 << 20, 4096)).unwrap();
    let volume = bare(&runtime, &device);
    assert_eq!(volume.logical_block_bytes(), 4096);
    assert_eq!(write(&runtime, &volume, 8, vec![3; 8192]), Ok(()));
    assert_eq!(write(&runtime, &volume, 9, vec![3; 4096]), Err(RequestError::Invalid));
    assert_eq!(one_request(&runtime, &volume, |_| request(1, Op::Read, 8, 7)).result, Err(RequestError::Invalid));
    let read = one_request(&runtime, &volume, |_| request(1, Op::Read, 8, 16));
    assert_eq!(data_of(&read, 8, 16), vec![3; 8192]);
    runtime.shutdown(PATIENCE).unwrap();
}

#[test]
fn what_is_counted_is_what_was_done() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = start();
    let device = open(&runtime, &directory.path().join("disk"), 16 << 20, None);
    let volume = bare(&runtime, &device);
    // Longer than one system call takes in scattered pages, and begun within a block.
    let data: Vec<u8> = (0..6 << 20).map(|index: u32| (index / 511) as u8).collect();
    assert_eq!(write(&runtime, &volume, 3, data.clone()), Ok(()));
    let read = one_request(&runtime, &volume, |_| request(1, Op::Read, 3, (6 << 20) / 512));
    assert!(data_of(&read, 3, (6 << 20) / 512) == data, "six mebibytes there and back");
    drop(read);
    assert_eq!(one_request(&runtime, &volume, |_| request(1, Op::Flush, 0, 0)).result, Ok(()));
    let stats = runtime.device_stats(&device).unwrap();
    assert_eq!((stats.reads, stats.read_bytes, stats.writes, stats.written_bytes), (1, 6 << 20, 1, 6 << 20));
    assert_eq!((stats.flushes, stats.errors, stats.read_latency.count(), stats.flush_latency.count()), (1, 0, 1, 1));
    assert_eq!(runtime.pages().pages_out(), 0);
    runtime.shutdown(PATIENCE).unwrap();
}
