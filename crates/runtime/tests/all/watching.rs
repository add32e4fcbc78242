//! What those who watch loads get to see.

use crate::common::{fill, one_request, open, request};
use engine::api::{Op, Origin, Outcome, Request};
use engine::tap::{SAMPLES_MAX, line_hash};
use runtime::{BareVolumeOptions, Context, PageSeen, Runtime, RuntimeOptions, Sight, Tapped, VolumeRef};
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
const SIZE_BYTES: u64 = 1 << 30;

fn start(directory: &std::path::Path) -> (Runtime, VolumeRef) {
    let runtime = Runtime::start(RuntimeOptions { reactors: 2, io_pages: 1024, ..RuntimeOptions::default() }).unwrap();
    let device = open(&runtime, &directory.join("device"), SIZE_BYTES, None);
    let options = BareVolumeOptions { name: "vol".into(), read_only: false };
    let volume = runtime.add_bare_volume(&device, options).unwrap();
    (runtime, volume)
}

/// Of both reactors.
fn taken(runtime: &Runtime) -> Tapped {
    let mut all = Tapped::default();
    for part in runtime.take_tapped(PATIENCE).unwrap() {
        all.samples.extend(part.samples);
        all.removed.extend(part.removed);
        all.sights.extend(part.sights);
        all.sights_lost += part.sights_lost;
        all.used.extend(part.used);
    }
    all
}

fn write(cx: &mut Context<'_>, volume: &VolumeRef, start_sector: u64, data: &[u8]) -> Request {
    let pages = cx.allocate_pages(volume, data.len().div_ceil(4096)).expect("a page");
    request(1, Op::Write, start_sector, (data.len() / 512) as u32).pages(fill(pages, start_sector, data))
}

#[test]
fn a_watched_volume_is_seen_and_others_are_not() {
    let directory = tempfile::tempdir().unwrap();
    let (runtime, volume) = start(directory.path());
    // Recognises pages by their first byte, and fails over one.
    runtime.set_recognise(Arc::new(|page: &[u8]| {
        assert_ne!(page[0], 3, "a fault of who recognises");
        (page[0] != 0).then_some(PageSeen {
            object: page[0].into(),
            page: 4,
            neighbours: (3, u32::MAX),
            kind: 6,
            level: 1,
            is_leaf: false,
            is_log: false,
            size_log2: 14,
        })
    }));
    let of = volume.clone();
    let written = move |first: u8, start_sector| {
        let of = of.clone();
        move |cx: &mut Context<'_>| write(cx, &of, start_sector, &[first; 4096])
    };
    one_request(&runtime, &volume, written(1, 80));
    one_request(&runtime, &volume, |_| request(1, Op::Read, 80, 8));
    let nothing = taken(&runtime);
    assert!(nothing.samples.is_empty() && nothing.sights.is_empty() && nothing.used.is_empty(), "{nothing:?}");

    volume.watch(u64::MAX);
    one_request(&runtime, &volume, written(2, 800));
    one_request(&runtime, &volume, written(3, 808));
    one_request(&runtime, &volume, |_| request(1, Op::Read, 80, 16));
    one_request(&runtime, &volume, |_| Request::read(1, runtime::ANY_VOLUME, 160, 8, Origin::Warm));
    one_request(&runtime, &volume, |_| request(1, Op::Read, 801, 7));
    one_request(&runtime, &volume, |_| request(1, Op::Discard, 80, 32));
    one_request(&runtime, &volume, |_| request(1, Op::Flush, 0, 0));
    let bad = one_request(&runtime, &volume, |_| request(1, Op::Read, SIZE_BYTES / 512, 8));
    assert!(bad.result.is_err());
    let mut seen = taken(&runtime);
    seen.samples.sort_by_key(|sample| sample.block());
    let samples: Vec<_> = seen.samples.iter().map(|sample| (sample.block(), sample.is_write(), sample.outcome())).collect();
    let (read, other) = (Outcome::Miss, Outcome::Other);
    assert_eq!(&samples[..2], [(10, false, read), (11, false, read)]);
    assert_eq!(samples.len(), 5);
    assert!(samples.contains(&(100, true, other)) && samples.contains(&(101, true, other)) && samples.contains(&(100, false, read)));
    assert_eq!(seen.removed.iter().map(|removed| (removed.start_block, removed.blocks)).collect::<Vec<_>>(), [(10, 4)]);
    let used = seen.used.iter().fold((0, 0), |sum, (_, used)| (sum.0 + used.read_blocks, sum.1 + used.written_blocks));
    assert_eq!(used, (3, 2));
    let mut sights: Vec<(u64, bool, Option<u64>)> = Vec::new();
    for Sight { start_sector, is_write, page, .. } in seen.sights {
        sights.push((start_sector, is_write, page.map(|page| page.object)));
    }
    sights.sort_unstable();
    // The first byte of the device's block 100 was 2; the request at 801 does not begin with a block.
    assert_eq!(sights, [(80, false, Some(1)), (800, true, Some(2)), (801, false, None), (808, true, None)]);

    volume.watch(0);
    one_request(&runtime, &volume, |_| request(1, Op::Read, 80, 8));
    assert!(taken(&runtime).samples.is_empty());
    runtime.shutdown(PATIENCE).unwrap();
}

/// More uses than can be held: the sample becomes smaller, and holds all uses of what is still in it.
#[test]
fn a_flood_makes_the_sample_smaller_and_leaves_no_time_out() {
    let directory = tempfile::tempdir().unwrap();
    let (runtime, volume) = start(directory.path());
    volume.watch(u64::MAX);
    let blocks = volume.request_bytes_max() / 4096;
    let requests = 3 * SAMPLES_MAX as u32 / blocks;
    for n in 0..requests {
        let start_sector = u64::from(n * blocks * 8) % (SIZE_BYTES / 512);
        one_request(&runtime, &volume, move |_| request(1, Op::Read, start_sector, blocks * 8));
    }
    let mut seen = taken(&runtime);
    let below = volume.sampled_below();
    assert!(below < u64::MAX, "it was lowered");
    seen.samples.retain(|sample| line_hash(sample.block(), 0) < below);
    let mut samples: Vec<u64> = seen.samples.iter().map(|sample| sample.block()).collect();
    samples.sort_unstable();
    let all = (0..u64::from(requests * blocks)).map(|block| block % (SIZE_BYTES / 4096));
    let mut expected: Vec<u64> = all.filter(|block| line_hash(*block, 0) < below).collect();
    expected.sort_unstable();
    assert_eq!(samples, expected);
    runtime.shutdown(PATIENCE).unwrap();
}
