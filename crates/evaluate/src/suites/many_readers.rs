//! OCZ's readers: one to five clients that read files of their own from one end to the other, over a storage network of 1 Gbit/s; and the case with
//! half of the I/O writes. Their volumes take sequential streams into the cache, which is an option in hearth ([`STREAMS`]).

use super::blocks::{self, BlockRun, Device};
use super::fio_job::Job;
use super::{Context, Planning, Suite, cache_of, many_guests, whole_mib};
use crate::catalogue;
use crate::load::Content;
use crate::pairs::Better;
use crate::result::{Arm, Case, Leg, Measured};
use crate::trouble::Trouble;
use std::time::Instant;

const MIB: u64 = 1 << 20;
const CLIENTS: u64 = 5;
/// By default a stream goes around the cache after its first mebibyte, and requests above 64 KiB do at once.
const STREAMS: [&str; 4] = ["--sequential-cutoff", "off", "--max-io-size", "1MiB"];

/// Reader, what it does, bytes of a request.
const READERS: [(&str, &str, u64); 2] =
    [("dd", "as dd bs=64k iflag=direct does it", 64 << 10), ("iozone", "as iozone -i1 -I -r128k does it", 128 << 10)];

/// See the module.
pub struct ManyReaders;

impl Suite for ManyReaders {
    fn cases(&self, planning: &Planning) -> Result<Vec<Case>, Trouble> {
        let set = catalogue::suite("many-readers").expect("the catalogue has it").model_set;
        let data_bytes = planning.data_bytes(1280 * MIB, 640 * MIB, 80 * MIB);
        let counts: &[u64] = planning.scale.pick(&[1, 2, 3, 4, 5], &[1, 5], &[1, 5]);
        let case = |id: &str, title: String, about: String, arms: Vec<Arm>, headlines: Vec<Measured>, along: Option<&str>| Case {
            id: format!("many-readers.{id}"),
            title,
            about,
            model_set: planning.model_set(set),
            data_bytes,
            // All of it fits, as in the report.
            cache_bytes: cache_of(data_bytes * 5 / 4),
            ram_bytes: (data_bytes / 16).max(16 * MIB),
            rounds: planning.settings.pairs,
            arms,
            headlines,
            counted: "bytes".into(),
            leg_s: planning.scale.pick(7.0, 7.0, 3.0),
            along: along.map(str::to_owned),
            ceiling: None,
        };
        let measured = |id: &str, arm: &str, against: Option<&str>, figure: &str| Measured {
            headline: format!("many-readers.{id}"),
            arm: arm.into(),
            against: against.map(str::to_owned),
            figure: figure.into(),
            better: Better::Higher,
        };
        let curves = [("bare", "no cache", false), ("wt", "write-through", true)];
        let points = || -> Vec<Arm> {
            let arm = |(id, title, cached): (&str, &str, bool), clients: u64| Arm {
                id: format!("{id}-{clients}"),
                title: format!("{title}, {clients} {}", if clients == 1 { "client" } else { "clients" }),
                cached,
                point: Some((title.into(), clients as f64)),
            };
            curves.iter().flat_map(|curve| counts.iter().map(move |clients| arm(*curve, *clients))).collect()
        };
        let mut cases: Vec<Case> = READERS
            .iter()
            .map(|(id, how, _)| {
                let headlines = vec![
                    measured("five", "wt-5", Some("bare-5"), "rate"),
                    measured("traffic", "wt-5", None, "kept_off"),
                ];
                let about = format!(
                    "Each client reads a file of its own ({how}), again and again; before the cached runs everything was read once. Sequential streams may \
                     enter the cache (`{}`).",
                    STREAMS.join(" ")
                );
                case(id, format!("One to five readers, {how}"), about, points(), headlines, Some("clients"))
            })
            .collect();
        let arm = |id: &str, title: &str, cached: bool| Arm { id: id.into(), title: title.into(), cached, point: None };
        cases.push(case(
            "writes",
            "Five clients, half of the I/O writes".into(),
            "Each of five clients reads and writes 128 KiB at random places of a file of its own, half and half.".into(),
            vec![arm("bare", "no cache", false), arm("wt", "write-through", true), arm("wb", "write-back", true)],
            vec![measured("writes", "wt", Some("bare"), "rate")],
            None,
        ));
        cases.extend(many_guests::cases(planning));
        Ok(cases)
    }

    fn prepare(&self, context: &Context, case: &Case) -> Result<(), Trouble> {
        blocks::data(context, case, Content::Incompressible)
    }

    fn legs(&self, context: &Context, case: &Case, arms: &[&Arm], round: u32) -> Result<Vec<Leg>, Trouble> {
        let Some(first) = arms.first() else { return Ok(Vec::new()) };
        if many_guests::has(case) {
            return many_guests::legs(context, case, arms, round);
        }
        let reader = READERS.iter().find(|reader| case.id == format!("many-readers.{}", reader.0));
        let mode = if first.id == "wb" { "write-back" } else { "write-through" };
        let setup = first.cached.then(|| context.setup(case, mode, &STREAMS));
        let opened = Instant::now();
        let device = Device::open(context, case, first, setup.as_ref())?;
        if let Some(cached) = device.cached() {
            cached.warm(0..case.data_bytes)?;
        }
        let before = context.stage.take_commands();
        let mut opened_s = opened.elapsed().as_secs_f64();
        let of_each = whole_mib(case.data_bytes / CLIENTS);
        let mut legs = Vec::new();
        for arm in arms {
            let clients = arm.point.as_ref().map_or(CLIENTS as u32, |(_, clients)| *clients as u32);
            let play = |device: &str, seconds: f64, seed: u64| {
                let (kind, block_bytes) = reader.map_or(("randrw", 128 << 10), |reader| ("read", reader.2));
                Job {
                    device: device.into(),
                    kind,
                    block_bytes,
                    depth: 1,
                    seconds,
                    size_bytes: of_each,
                    reads_percent: reader.is_none().then_some(50),
                    distribution: None,
                    clients,
                    log: None,
                    seed,
                }
                .run(context.stage)
            };
            let run = BlockRun {
                setup: None,
                warm: Vec::new(),
                warm_s: context.scale.pick(1.0, 1.0, 0.0),
                run_s: context.scale.pick(4.0, 4.0, 1.0),
                load: &play,
            };
            let begun = Instant::now();
            let mut leg = blocks::begun(case, arm, round);
            blocks::measure(&mut leg, &device, round, &run)?;
            blocks::count_bytes(&mut leg);
            leg.took_s = begun.elapsed().as_secs_f64() + std::mem::take(&mut opened_s);
            leg.commands = before.iter().cloned().chain(context.stage.take_commands()).collect();
            legs.push(leg);
        }
        device.close()?;
        Ok(legs)
    }
}
