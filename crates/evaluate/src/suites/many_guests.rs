//! OCZ's readers as they were: virtual machines at once, over iSCSI. The cases of `many-readers` that need a launcher of virtual machines.

use super::blocks::{self, BlockRun, Device};
use super::{Context, Planning, Scale, cache_of, whole_mib};
use crate::guests::{self, Guests, Part};
use crate::pairs::Better;
use crate::result::{Arm, Case, Leg, Measured};
use crate::trouble::Trouble;
use std::cell::RefCell;
use std::time::Instant;

const MIB: u64 = 1 << 20;
/// A disk of 150 random reads a second.
const SET: &str = "7k2";
/// How ids of these cases begin.
const PREFIX: &str = "many-readers.guests-";
const STREAMS: [&str; 4] = ["--sequential-cutoff", "off", "--max-io-size", "1MiB"];
/// Requests of a system that boots, by size: small ones at places all over.
const BOOT_BLOCKS: &str = "bssplit=4k/40:16k/30:64k/20:128k/10";

/// Id, fio's `rw`, blocks, title, about.
const LOADS: [(&str, &str, &str, &str, &str); 4] = [
    ("boot", "randread", BOOT_BLOCKS, "Five virtual machines boot at once", "4 to 128 KiB at random places, as a system reads that boots"),
    ("dd", "read", "bs=64k", "Five virtual machines read, as dd bs=64k iflag=direct does it", "all of its part, again and again"),
    ("iozone", "read", "bs=128k", "Five virtual machines read, as iozone -i1 -I -r128k does it", "all of its part, again and again"),
    ("writes", "randrw", "bs=128k", "Five virtual machines, half of the I/O writes", "and writes 128 KiB at random places, half and half"),
];

/// Whether a case is one of these.
pub fn has(case: &Case) -> bool {
    case.id.starts_with(PREFIX)
}

fn guests_of(scale: Scale) -> u32 {
    scale.pick(5, 5, 2)
}

/// The cases; none where they cannot be run.
pub fn cases(planning: &Planning) -> Vec<Case> {
    if guests::missing().is_some() {
        return Vec::new();
    }
    let data_bytes = planning.data_bytes(640 * MIB, 320 * MIB, 64 * MIB);
    let arm = |id: &str, title: &str, cached: bool| Arm { id: id.into(), title: title.into(), cached, point: None };
    let measured = |id: &str, against: Option<&str>, figure: &str| Measured {
        headline: format!("many-readers.{id}"),
        arm: "wt".into(),
        against: against.map(str::to_owned),
        figure: figure.into(),
        better: Better::Higher,
    };
    let loads = &LOADS[..planning.scale.pick(LOADS.len(), LOADS.len(), 1)];
    let case = |(id, kind, _, title, about): &(&str, &str, &str, &str, &str)| {
        let writes = *kind == "randrw";
        let mut arms = vec![arm("bare", "no cache", false), arm("wt", "write-through", true)];
        arms.extend(writes.then(|| arm("wb", "write-back", true)));
        let headlines = match writes {
            true => vec![measured("writes", Some("bare"), "rate")],
            false => vec![measured("five", Some("bare"), "rate"), measured("traffic", None, "kept_off")],
        };
        Case {
            id: format!("{PREFIX}{id}"),
            title: (*title).into(),
            about: format!(
                "Each virtual machine has a part of one volume, over iSCSI, and reads {about}. Before the cached runs everything was read once (`{}`).",
                STREAMS.join(" ")
            ),
            model_set: planning.model_set(SET),
            data_bytes,
            cache_bytes: cache_of(data_bytes * 5 / 4),
            ram_bytes: (data_bytes / 16).max(16 * MIB),
            rounds: planning.settings.pairs,
            arms,
            headlines,
            counted: "bytes".into(),
            leg_s: planning.scale.pick(90.0, 80.0, 20.0),
            along: None,
            ceiling: None,
        }
    };
    loads.iter().map(case).collect()
}

/// As of [`Suite::legs`](super::Suite::legs).
///
/// # Errors
/// As there.
pub fn legs(context: &Context, case: &Case, arms: &[&Arm], round: u32) -> Result<Vec<Leg>, Trouble> {
    arms.iter().map(|arm| leg(context, case, arm, round)).collect()
}

fn leg(context: &Context, case: &Case, arm: &Arm, round: u32) -> Result<Leg, Trouble> {
    let begun = Instant::now();
    let load = LOADS.iter().find(|load| case.id == format!("{PREFIX}{}", load.0)).expect("its case is planned here");
    let mode = if arm.id == "wb" { "write-back" } else { "write-through" };
    let setup = arm.cached.then(|| context.setup(case, mode, &STREAMS));
    let device = Device::open(context, case, arm, setup.as_ref())?;
    if let Some(cached) = device.cached() {
        cached.warm(0..case.data_bytes)?;
    }
    let count = guests_of(context.scale);
    (context.tell)(&format!("{count} virtual machines start"));
    let guests = RefCell::new(Guests::start(context.stage, device.path(), count)?);
    let part = Part { kind: load.1, blocks: load.2, bytes: whole_mib(case.data_bytes / u64::from(count)) };
    let play = |_: &str, seconds: f64, seed: u64| guests.borrow_mut().play(context.stage, &part, seconds, seed);
    let run = BlockRun {
        setup: None,
        warm: Vec::new(),
        warm_s: context.scale.pick(3.0, 2.0, 0.0),
        run_s: context.scale.pick(15.0, 8.0, 3.0),
        load: &play,
    };
    let mut leg = blocks::begun(case, arm, round);
    blocks::measure(&mut leg, &device, round, &run)?;
    blocks::count_bytes(&mut leg);
    guests.into_inner().end()?;
    device.close()?;
    leg.notes.push(
        "where the virtual machines are emulated, a request costs them many times the CPU time of hardware, and all of them share this machine's \
         processors with the cache: rates from the cache are far too low, those that wait for the disk are right, so gains are too small"
            .into(),
    );
    leg.took_s = begun.elapsed().as_secs_f64();
    leg.commands = context.stage.take_commands();
    Ok(leg)
}
