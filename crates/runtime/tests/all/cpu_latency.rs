//! Processors are kept from deep sleep while clients do much I/O, and only then (`reactor/cpu_latency.rs`).

use crate::common::{Scripted, Wake, one_request, open, request};
use engine::api::Op;
use runtime::{BareVolumeOptions, Context, CpuLatency, Runtime, RuntimeOptions};
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(120);

/// What all who ask the kernel have asked for, in microseconds. Opening it asks for nothing.
fn asked_for_us() -> i32 {
    let mut told = [0; 4];
    let device = std::fs::File::open("/dev/cpu_dma_latency").expect("a reactor could open it");
    (&device).read_exact(&mut told).expect("the kernel tells");
    i32::from_ne_bytes(told)
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn processors_are_kept_awake_while_clients_do_much_io() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = Runtime::start(RuntimeOptions { reactors: 1, cpu_latency: true, ..RuntimeOptions::default() }).expect("it starts");
    let CpuLatency::AtMost(us) = runtime.standing().cpu_latency else {
        eprintln!("skipped: processors {}", runtime.standing().cpu_latency);
        return runtime.shutdown(PATIENCE).unwrap();
    };
    if asked_for_us() <= us {
        eprintln!("skipped: somebody else asks for {} us", asked_for_us());
        return runtime.shutdown(PATIENCE).unwrap();
    }
    let device = open(&runtime, &directory.path().join("disk"), 1 << 20, None);
    let volume = runtime.add_bare_volume(&device, BareVolumeOptions { name: "bare".into(), read_only: false }).unwrap();
    let read = || assert_eq!(one_request(&runtime, &volume, |_| request(1, Op::Read, 0, 8)).result, Ok(()));

    // Another program may ask, too, but hardly all the time.
    until("a hundred a second are not many", || {
        let asked = (0..20).filter(|_| {
            read();
            std::thread::sleep(Duration::from_millis(10));
            asked_for_us() <= us
        });
        asked.count() < 20
    });
    // Many at once: one after the other they are as many as the machine has time for.
    let read_much = || {
        let enough = Arc::new(AtomicBool::new(false));
        let (asked, target, mut left) = (enough.clone(), volume.clone(), 16);
        let reader = runtime.add_endpoint(Box::new(Scripted(move |cx: &mut Context<'_>, wake| match wake {
            Wake::Start => (0..left).for_each(|id| cx.submit(&target, request(id, Op::Read, 0, 8)).expect("below the limit")),
            Wake::Reply(reply) if !asked.load(Ordering::Relaxed) => {
                cx.submit(&target, request(reply.id, Op::Read, 0, 8)).expect("below the limit");
            }
            Wake::Reply(_) => {
                left -= 1;
                if left == 0 {
                    cx.close();
                }
            }
            _ => {}
        })));
        until("so many reads are much", || asked_for_us() == us);
        enough.store(true, Ordering::Relaxed);
        until("the reads end", || reader.is_empty());
    };
    read_much();
    until("nobody reads any more", || asked_for_us() > us);
    std::thread::sleep(Duration::from_millis(50));
    let turns = runtime.turns();
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(runtime.turns(), turns, "it sleeps without a limit then");

    read_much();
    runtime.shutdown(PATIENCE).unwrap();
    until("the wish ends with the reactor", || asked_for_us() > us);
}
