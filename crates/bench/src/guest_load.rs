//! Random reads or writes of 4 KiB on a disk over vhost-user, by a guest without a machine. Any process may serve the socket.

use anyhow::{Context, Result, bail};
use engine::key::mix;
use guest::{Buffers, Guest, Kind, Options, Queue};
use std::path::Path;
use std::time::{Duration, Instant};

const BLOCK_BYTES: usize = 4096;
const PATIENCE: Duration = Duration::from_secs(30);
/// Left out of the figures, in the beginning.
const WARM_UP: Duration = Duration::from_millis(300);

/// `SOCKET read|write DEPTH QUEUES SECONDS MIB`: one line of JSON.
pub fn run(words: &[String]) -> Result<()> {
    let [socket, what, depth, queues, seconds, mib] = words else {
        bail!("usage: engine-bench guest SOCKET read|write DEPTH QUEUES SECONDS MIB")
    };
    let kind = match what.as_str() {
        "read" => Kind::Read,
        "write" => Kind::Write,
        other => bail!("{other} is neither read nor write"),
    };
    let (depth, queues): (usize, u16) = (depth.parse()?, queues.parse()?);
    let blocks = mib.parse::<u64>()? << 20 >> 12;
    let run = Duration::from_secs_f64(seconds.parse()?);
    let buffers = Buffers { slots: depth, data_bytes: BLOCK_BYTES };
    let options = Options { queues, entries: 128, buffers, ..Options::default() };
    let mut guest = Guest::start(Path::new(socket), options).context("the disk cannot be used")?;
    let begun = Instant::now();
    let threads: Vec<_> = std::mem::take(&mut guest.queues)
        .into_iter()
        .enumerate()
        .map(|(number, queue)| std::thread::spawn(move || load(queue, kind, blocks, number as u64, begun, run)))
        .collect();
    let mut latencies_ns = Vec::new();
    for thread in threads {
        latencies_ns.extend(thread.join().expect("the load does not panic")?);
    }
    latencies_ns.sort_unstable();
    let at = |part: f64| latencies_ns.get((latencies_ns.len() as f64 * part) as usize).copied().unwrap_or(0) as f64 / 1000.0;
    let iops = latencies_ns.len() as f64 / (run - WARM_UP).as_secs_f64();
    let row = serde_json::json!({ "iops": iops.round(), "p50_us": at(0.5), "p99_us": at(0.99), "requests": latencies_ns.len() });
    println!("{row}");
    Ok(())
}

/// Keeps all slots of a queue under way; gives how long each request took.
fn load(mut queue: Queue, kind: Kind, blocks: u64, number: u64, begun: Instant, run: Duration) -> Result<Vec<u64>> {
    let mut since = vec![begun; queue.free()];
    let (mut step, mut latencies_ns) = (number << 40, Vec::new());
    loop {
        let now = Instant::now();
        let over = now - begun >= run;
        let mut any = false;
        while !over && queue.free() > 0 {
            let sector = mix(step) % blocks * 8;
            step += 1;
            let slot = queue.submit(kind as u32, sector, BLOCK_BYTES, kind == Kind::Read, 1).context("a slot was free")?;
            since[slot] = now;
            any = true;
        }
        if any {
            queue.notify();
        }
        if queue.free() == since.len() {
            return Ok(latencies_ns);
        }
        let mut done = queue.wait(PATIENCE).context("the disk does not answer")?;
        let answered = Instant::now();
        loop {
            if done.status != 0 {
                bail!("a request was answered with {}", done.status);
            }
            if answered - begun > WARM_UP && !over {
                latencies_ns.push((answered - since[done.slot]).as_nanos() as u64);
            }
            match queue.answered() {
                Some(next) => done = next,
                None => break,
            }
        }
    }
}
