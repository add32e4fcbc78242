//! A plan read by the data path that ships, over files.

use super::super::MachineOptions;
use super::*;
use api::options::Options;
use datapath::{Counters, Exports, Pools, Volumes};
use insight::preload::Plan;
use records::state::samples;
use types::Content;

const MIB: u64 = 1 << 20;
const VOLUME_BYTES: u64 = 96 * MIB;

/// A pool and a volume on files; `None` where these cannot be opened for direct I/O.
fn machine(place: &std::path::Path) -> Option<(Machine, VolumeRecord)> {
    let path = |name: &str| place.join(name).display().to_string();
    std::fs::write(place.join("disk"), vec![7; VOLUME_BYTES as usize]).expect("there is room");
    let (notices, _) = channel();
    let options = MachineOptions { reactors: Some(1), ..MachineOptions::private(place, notices) };
    let machine = match Machine::start(options) {
        Ok(machine) => machine,
        Err(error) => {
            println!("skipped: {error}");
            return None;
        }
    };
    let mut pool = samples::pool("p");
    (pool.ssd, pool.size_bytes, pool.ram_bytes, pool.content) = (path("ssd"), Some(256 * MIB), 8 * MIB, Content::Off);
    pool.session = 0;
    let mut volume = samples::volume("v", &mut pool);
    (volume.backing, volume.size_bytes, volume.options) = (path("disk"), VOLUME_BYTES, Options::default());
    let begun = machine.make_file(&pool.ssd, 256 * MIB).and_then(|()| machine.format(&pool));
    if let Err(error) = begun {
        println!("skipped: {error}");
        return None;
    }
    machine.start_pool(&pool, std::slice::from_ref(&volume)).expect("it was just formatted");
    machine.attach(&volume).expect("the file is there");
    Some((machine, volume))
}

#[test]
fn ranges_are_hits_afterwards_and_gaps_are_not_cached() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let Some((machine, volume)) = machine(place.path()) else { return };
    let asked = [40 * MIB..72 * MIB, 4096..4 * MIB, 4 * MIB + 65_536..6 * MIB, 7 * MIB..8 * MIB + 4096];
    let plan = Plan::new(&asked, None, VOLUME_BYTES);
    let mut at_bytes = 0;
    loop {
        let pieces = plan.pieces(at_bytes, 5 * MIB, machine.piece_bytes_max(&volume));
        let Some(last) = pieces.last() else { break };
        let (count, result) = machine.warm(&volume, &pieces);
        result.expect("the file can be read");
        assert_eq!(count, pieces.len());
        at_bytes = last.end_bytes();
    }
    let explained = machine.explain("v", 0, VOLUME_BYTES / 4096).expect("it is attached");
    let cached: Vec<u64> =
        explained.blocks.iter().filter(|block| block.in_ram || block.on_ssd.is_some()).map(|block| block.block).collect();
    let wanted: Vec<u64> = plan.ranges().iter().flat_map(|range| range.start / 4096..range.end / 4096).collect();
    assert_eq!(cached, wanted, "all that was asked for, and nothing that lies between");
    let stats = machine.volume_stats("v");
    assert_eq!(stats.backing_read_bytes, plan.read_bytes(), "short gaps are read, and nothing twice");
    assert!(plan.read_bytes() > plan.bytes());
    assert_eq!(machine.backing_waits("v").count(), 0, "no client has waited");
    assert_eq!((stats.reads, stats.read_bytes, stats.read_misses), (0, 0, 0), "no client has read");
    assert_eq!((stats.own_reads > 0, stats.own_read_bytes), (true, plan.read_bytes()));

    let (count, result) = machine.warm(&volume, &plan.pieces(0, 8 * MIB, MIB));
    assert!(result.is_ok() && count > 0);
    let again = machine.volume_stats("v");
    let gaps = plan.pieces(0, 8 * MIB, MIB).iter().filter(|piece| !piece.is_kept).map(|piece| piece.length_bytes).sum::<u64>();
    assert_eq!(again.backing_read_bytes - stats.backing_read_bytes, gaps, "what is cached is a hit");
    machine.detach(&volume, false).expect("it is quiet");
    machine.stop_pool("p", true).expect("it is quiet");
    machine.finish();
}

#[test]
fn what_was_read_before_a_failure_is_told() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let Some((machine, volume)) = machine(place.path()) else { return };
    let pieces: Vec<Piece> = (0..8).map(|nth| Piece { at_bytes: nth * MIB, length_bytes: MIB, is_kept: true }).collect();
    let mut bad = pieces.clone();
    // Beyond the end of the volume.
    bad[3].at_bytes = VOLUME_BYTES;
    let (count, result) = machine.warm(&volume, &bad);
    assert_eq!(count, 3);
    assert!(result.expect_err("there is nothing").to_string().contains("a read failed"));
    let (count, result) = machine.warm(&volume, &pieces[3..]);
    assert_eq!((count, result.is_ok()), (5, true));
    let gone = VolumeRecord { name: "w".into(), ..volume.clone() };
    assert_eq!(machine.warm(&gone, &pieces).0, 0);
    machine.detach(&volume, false).expect("it is quiet");
    machine.stop_pool("p", true).expect("it is quiet");
    machine.finish();
}
