//! Speed of the engine by itself, without runtime or exports: CPU per hit, memory per block, destage order, start-up.
//!
//! Prints one JSON object a line: name, value, unit, target. `scripts/bench` puts them beside the peers.
#![forbid(unsafe_code)]

mod content;
mod fill;
mod front;
mod guest_load;
mod hits;
mod look;
mod memory;
mod packed;
mod restart;
mod rig;
mod start;
mod tap;

use anyhow::{Result, bail};

/// As the daemon's.
#[global_allocator]
static ALLOCATOR: runtime::HugePages = runtime::HugePages;

fn main() -> Result<()> {
    let which = std::env::args().nth(1).unwrap_or_else(|| "all".into());
    match which.as_str() {
        "hits" => hits::run(),
        "memory" => memory::run(),
        "look" => look::run(),
        "content" => content::run(),
        "packed" => packed::run(),
        "start" => start::run(),
        "restart" => restart::run(),
        "life" => match (std::env::args().nth(2), std::env::args().nth(3)) {
            (Some(path), Some(end)) => restart::one_life(&path, &end),
            _ => bail!("usage: engine-bench life SSD-FILE kill|stop"),
        },
        "count-ram" | "count-ssd" | "count-write" | "count-writes" => {
            let hits = std::env::args().nth(2).map_or(Ok(10_000), |hits| hits.parse())?;
            hits::instructions(&which, hits);
            Ok(())
        }
        "count-front" => {
            let requests = std::env::args().nth(2).map_or(Ok(10_000), |requests| requests.parse())?;
            front::instructions(requests);
            Ok(())
        }
        "count-tap-off" | "count-tap-untaken" | "count-tap-taken" => match (std::env::args().nth(2), std::env::args().nth(3)) {
            (Some(requests), Some(blocks)) => {
                tap::instructions(&which, requests.parse()?, blocks.parse()?);
                Ok(())
            }
            _ => bail!("usage: engine-bench {which} REQUESTS BLOCKS"),
        },
        "fill" => match (std::env::args().nth(2), std::env::args().nth(3)) {
            (Some(path), Some(blocks)) => fill::run(&path, blocks.parse()?),
            _ => bail!("usage: engine-bench fill SSD-FILE BLOCKS"),
        },
        "guest" => guest_load::run(&std::env::args().skip(2).collect::<Vec<_>>()),
        "all" => {
            hits::run()?;
            memory::run()?;
            look::run()?;
            start::run()?;
            restart::run()
        }
        other => {
            bail!(
                "unknown benchmark '{other}'; one of hits, memory, look, content, packed, start, restart, count-ram, count-ssd, count-write, count-writes, count-front, fill, guest, all"
            )
        }
    }
}

/// One measured figure.
fn report(name: &str, value: f64, unit: &str, at_most: Option<f64>) {
    let line = serde_json::json!({ "name": name, "value": (value * 100.0).round() / 100.0, "unit": unit, "at_most": at_most });
    println!("{line}");
}
