//! Why a range is cached, or is not; and how the address space looks.

use super::Manager;
use super::why_told::{self, Asked, ago};
use api::error::ControlError;
use api::human;
use api::{Health, MAP_CELLS_MAX, MapView, RecentRequest, Run, WHY_BYTES_MAX, WhyView};
use datapath::looking::{Cells, Explained};
use engine::api::{Op, Outcome};
use engine::shard::{BlockFacts, Kept};
use engine::trail::Recent;
use records::state::VolumeRecord;
use std::collections::BTreeMap;
use types::{BLOCK_BYTES, BypassReason, EXTENT_BYTES, SECTOR_BYTES};

/// Runs and requests that are told at most.
const RUNS_MAX: usize = 256;
const RECENT_MAX: usize = 64;

impl Manager {
    pub(super) fn volume_why(&self, name: &str, start_bytes: u64, length_bytes: u64) -> Result<WhyView, ControlError> {
        let (record, degraded) = self.looked_into(name)?;
        check_start(&record, "OFFSET", start_bytes)?;
        if length_bytes == 0 {
            return Err(wrong_range("is empty".into(), "ask for at least one byte, for instance 0-1MiB"));
        }
        let end_bytes = start_bytes.saturating_add(length_bytes).min(record.size_bytes);
        if end_bytes - start_bytes > WHY_BYTES_MAX {
            let (long, most) = (human::bytes(end_bytes - start_bytes), human::bytes(WHY_BYTES_MAX));
            return Err(wrong_range(format!("is {long} long; at most {most} can be examined at once"), "ask for a shorter range"));
        }
        let first_block = start_bytes / BLOCK_BYTES;
        let blocks = end_bytes.div_ceil(BLOCK_BYTES) - first_block;
        let explained = self.data().explain(name, first_block, blocks)?;
        let mut view = view(&record, degraded, first_block, blocks, &explained);
        view.object = self.object_told(name, first_block * BLOCK_BYTES);
        view.stream = self.stream_told(name, &(view.start_bytes..view.end_bytes));
        Ok(view)
    }

    pub(super) fn volume_map(&self, name: &str, start_bytes: u64, end_bytes: Option<u64>, cells: u32) -> Result<MapView, ControlError> {
        let (record, _) = self.looked_into(name)?;
        check_start(&record, "the start", start_bytes)?;
        let end_bytes = end_bytes.unwrap_or(record.size_bytes).min(record.size_bytes);
        if end_bytes <= start_bytes {
            return Err(wrong_range("is empty".into(), "give an end above its start"));
        }
        if cells == 0 || cells > MAP_CELLS_MAX {
            let problem = format!("{cells} cells are not between 1 and {MAP_CELLS_MAX}");
            return Err(ControlError::BadCombination(problem, "ask for another number of cells, for instance 1024".into()));
        }
        let start_bytes = start_bytes / EXTENT_BYTES * EXTENT_BYTES;
        let cell_bytes = (end_bytes - start_bytes).div_ceil(u64::from(cells)).next_multiple_of(EXTENT_BYTES);
        let count = (end_bytes - start_bytes).div_ceil(cell_bytes) as u32;
        let cells = Cells { first_block: start_bytes / BLOCK_BYTES, cell_blocks: cell_bytes / BLOCK_BYTES, count };
        let map = self.data().address_map(name, cells)?;
        let bytes = |blocks: Vec<u64>| blocks.into_iter().map(|blocks| blocks * BLOCK_BYTES).collect();
        let (object, objects) = self.objects_on_map(name, start_bytes, cell_bytes, count);
        Ok(MapView {
            volume: name.into(),
            start_bytes,
            cell_bytes,
            heat: map.heat,
            cached_bytes: bytes(map.cached_blocks),
            dirty_bytes: bytes(map.dirty_blocks),
            age_ms: map.age_ms,
            counted_part: map.counted_part,
            object,
            objects,
        })
    }

    /// The record of a volume that is attached, with its cache or without, and whether its pool's SSD is lost.
    fn looked_into(&self, name: &str) -> Result<(VolumeRecord, bool), ControlError> {
        let degraded = {
            let memory = self.memory();
            memory.volumes.get(name).is_some_and(|live| live.attached && live.health == Health::Degraded)
        };
        let record = if degraded { self.volume_record(name) } else { self.running_volume(name) }?;
        Ok((record, degraded))
    }
}

fn check_start(record: &VolumeRecord, option: &'static str, start_bytes: u64) -> Result<(), ControlError> {
    if start_bytes < record.size_bytes {
        return Ok(());
    }
    let size = human::bytes(record.size_bytes);
    Err(ControlError::BadOption {
        option,
        problem: format!("lies beyond the volume, which has {size} ({} bytes)", record.size_bytes),
        remedy: "name a place in the volume".into(),
    })
}

fn wrong_range(problem: String, remedy: &str) -> ControlError {
    ControlError::BadOption { option: "the range", problem, remedy: remedy.into() }
}

fn view(record: &VolumeRecord, degraded: bool, first_block: u64, blocks: u64, explained: &Explained) -> WhyView {
    let asked = Asked { record, degraded, first_block, blocks };
    let kept = || explained.blocks.iter().filter_map(|facts| Some((facts.block, facts.on_ssd?)));
    let mut encodings: BTreeMap<String, u64> = BTreeMap::new();
    kept().for_each(|(_, kept)| *encodings.entry(kept.form.name().into()).or_default() += 1);
    let dirty = || kept().filter(|(_, kept)| kept.dirty);
    let runs = runs(first_block, blocks, record.size_bytes, explained);
    WhyView {
        volume: record.name.clone(),
        start_bytes: first_block * BLOCK_BYTES,
        end_bytes: ((first_block + blocks) * BLOCK_BYTES).min(record.size_bytes),
        blocks,
        on_ssd_blocks: kept().count() as u64,
        in_ram_blocks: explained.blocks.iter().filter(|facts| facts.in_ram).count() as u64,
        dirty_blocks: dirty().count() as u64,
        dirty_since_s: dirty().filter_map(|(block, _)| explained.dirty_for_ns(block)).max().map(seconds),
        encodings,
        heat: explained.heat,
        object: None,
        stream: None,
        verdict: why_told::verdict(&asked, explained),
        truncated: runs.len() > RUNS_MAX,
        runs: runs.into_iter().take(RUNS_MAX).collect(),
        recent: explained.recent.iter().take(RECENT_MAX).map(|recent| told(record, recent)).collect(),
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// What makes neighbours alike.
type Alike = (bool, Option<Kept>, Option<u64>);

/// Neighbours that are alike, by address; one more than are told, if there are more.
fn runs(first_block: u64, blocks: u64, size_bytes: u64, explained: &Explained) -> Vec<Run> {
    let mut runs: Vec<(u64, u64, Alike)> = Vec::new();
    let mut add = |from: u64, to: u64, alike: Alike| match runs.last_mut() {
        _ if from == to => {}
        Some(last) if last.1 == from && last.2 == alike => last.1 = to,
        _ => runs.push((from, to, alike)),
    };
    let mut at = first_block;
    for BlockFacts { block, in_ram, on_ssd } in &explained.blocks {
        let dirty_for_ns = on_ssd.filter(|kept| kept.dirty).and_then(|_| explained.dirty_for_ns(*block));
        add(at, *block, (false, None, None));
        add(*block, block + 1, (*in_ram, *on_ssd, dirty_for_ns));
        at = block + 1;
    }
    add(at, first_block + blocks, (false, None, None));
    runs.truncate(RUNS_MAX + 1);
    let run = |(from, to, (in_ram, on_ssd, dirty_for_ns)): (u64, u64, Alike)| Run {
        start_bytes: from * BLOCK_BYTES,
        length_bytes: (to * BLOCK_BYTES).min(size_bytes) - from * BLOCK_BYTES,
        place: match (in_ram, on_ssd) {
            (true, Some(_)) => "ram+ssd",
            (true, None) => "ram",
            (false, Some(_)) => "ssd",
            (false, None) => "none",
        }
        .into(),
        encoding: on_ssd.map(|kept| kept.form.name().into()),
        dirty: on_ssd.is_some_and(|kept| kept.dirty),
        dirty_since_s: dirty_for_ns.map(seconds),
        hits: on_ssd.map(|kept| kept.hits.name().into()),
    };
    runs.into_iter().map(run).collect()
}

fn told(record: &VolumeRecord, recent: &Recent) -> RecentRequest {
    let op = match recent.op {
        Op::Read | Op::Flush => "read",
        Op::Write | Op::WriteZeroes => "write",
        Op::Discard | Op::PunchHole => "discard",
    };
    let outcome = match recent.outcome {
        Outcome::RamHit => "ram_hit",
        Outcome::SsdHit => "ssd_hit",
        Outcome::Miss => "miss",
        Outcome::Bypass => "bypass",
        Outcome::WriteBack => "write_back",
        Outcome::WriteThrough => "write_through",
        Outcome::Other | Outcome::BackingFlush => "other",
    };
    let length_bytes = u64::from(recent.sectors) * SECTOR_BYTES;
    let (size, when) = (human::bytes(length_bytes), ago(recent.ago_ns));
    let summary = format!("{when}, {op} of {size}: {}", why_told::what_came_of(record, recent));
    RecentRequest {
        ago_ms: recent.ago_ns / 1_000_000,
        op: op.into(),
        start_bytes: recent.start_sector * SECTOR_BYTES,
        length_bytes,
        outcome: outcome.into(),
        reason: recent.reason.map(|reason: BypassReason| reason.name().into()),
        told: summary.clone(),
        summary,
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::World;
    use super::*;
    use api::options::OptionsPatch;
    use api::{Action, Answer, PoolCreate, VolumeAdd};
    use engine::shard::{DirtyExtent, Form, Hits};
    use std::path::Path;
    use std::sync::Arc;

    const SIZE_BYTES: u64 = (1 << 30) + 1536;

    /// A manager with a volume `v` of about 1 GiB in that mode.
    fn with_volume(mode: &str) -> (World, Manager) {
        let world = World::default();
        world.add_device("/ssd", 1 << 30);
        world.add_device("/disk", SIZE_BYTES);
        let manager = Manager::open(Arc::new(world.clone()), Box::new(world.clone()), Path::new("/state")).expect("an empty state");
        manager.start().expect("nothing is there");
        let create = PoolCreate {
            name: "p".into(),
            ssd: "/ssd".into(),
            size_bytes: None,
            ram_bytes: None,
            content: None,
            force: false,
            on_blank_ssd: None,
            spare_percent: None,
        };
        let options = OptionsPatch { mode: Some(mode.into()), ..OptionsPatch::default() };
        let add =
            VolumeAdd { name: "v".into(), pool: "p".into(), backing: "/disk".into(), exports: Vec::new(), sector_bytes: None, options };
        for action in [Action::PoolCreate(create), Action::VolumeAdd(add)] {
            manager.handle(action).expect("it can be made");
        }
        (world, manager)
    }

    fn why(manager: &Manager, start_bytes: u64, length_bytes: u64) -> Result<WhyView, String> {
        match manager.handle(Action::VolumeWhy { name: "v".into(), start_bytes, length_bytes }) {
            Ok(Answer::Why(view)) => Ok(*view),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.refusal().to_string()),
        }
    }

    fn map(manager: &Manager, start_bytes: u64, end_bytes: Option<u64>, cells: u32) -> Result<MapView, String> {
        match manager.handle(Action::VolumeMap { name: "v".into(), start_bytes, end_bytes, cells }) {
            Ok(Answer::Map(view)) => Ok(*view),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.refusal().to_string()),
        }
    }

    #[test]
    fn ranges_are_rounded_cut_and_checked() {
        let (world, manager) = with_volume("write-back");
        assert!(world.write("v", 7));
        let view = why(&manager, 4095, 2).expect("a range");
        assert_eq!((view.start_bytes, view.end_bytes, view.blocks, view.on_ssd_blocks, view.dirty_blocks), (0, 8192, 2, 1, 1));
        assert_eq!((view.dirty_since_s, view.encodings.get("plain")), (Some(5.0), Some(&1)));
        let end = why(&manager, SIZE_BYTES - 1, u64::MAX).expect("the last byte");
        assert_eq!((end.start_bytes, end.end_bytes, end.blocks), (1 << 30, SIZE_BYTES, 1));
        assert_eq!((end.runs.len(), end.runs[0].length_bytes), (1, 1536), "the last block is cut short");
        for (start, length, part) in [
            (0, 0, "the range is empty; ask for at least one byte"),
            (SIZE_BYTES, 1, "lies beyond the volume, which has 1.00 GiB (1073743360 bytes); name a place in the volume"),
            (u64::MAX, u64::MAX, "lies beyond the volume"),
            (0, u64::MAX, "can be examined at once; ask for a shorter range"),
        ] {
            let error = why(&manager, start, length).expect_err(part);
            assert!(error.contains(part), "{error:?} lacks {part:?}");
        }
        let unknown = manager.handle(Action::VolumeWhy { name: "w".into(), start_bytes: 0, length_bytes: 1 });
        assert!(unknown.is_err_and(|error| error.to_string() == "there is no volume \"w\""));
    }

    #[test]
    fn cells_are_whole_mebibytes_and_no_more_than_asked_for() {
        let (world, manager) = with_volume("write-back");
        assert!(world.write("v", 7));
        for (start, end, cells, expected) in [
            (0, None, 1, (0, (1 << 30) + (1 << 20), 1)),
            (0, None, 16_384, (0, 1 << 20, 1025)),
            (0, None, 1000, (0, 2 << 20, 513)),
            ((5 << 20) + 1, Some((9 << 20) + 1), 100, (5 << 20, 1 << 20, 5)),
            (SIZE_BYTES - 1, None, 4, (1 << 30, 1 << 20, 1)),
        ] {
            let view = map(&manager, start, end, cells).expect("a map");
            assert_eq!((view.start_bytes, view.cell_bytes, view.heat.len()), expected, "{start} {end:?} {cells}");
            assert_eq!((view.cached_bytes.len(), view.dirty_bytes.len()), (view.heat.len(), view.heat.len()));
            let expected = if start == 0 { 4096 } else { 0 };
            assert_eq!((view.cached_bytes[0], view.dirty_bytes[0]), (expected, expected));
        }
        for (start, end, cells, part) in [
            (0, None, 0, "0 cells are not between 1 and 16384; ask for another number"),
            (0, None, u32::MAX, "cells are not between"),
            (SIZE_BYTES, None, 1, "the start lies beyond the volume"),
            (4096, Some(4096), 1, "the range is empty; give an end"),
        ] {
            let error = map(&manager, start, end, cells).expect_err(part);
            assert!(error.contains(part), "{error:?} lacks {part:?}");
        }
    }

    #[test]
    fn neighbours_that_are_alike_are_one_run() {
        let kept = |dirty| Some(Kept { form: Form::Lz4, dirty, hits: Hits::Often });
        let facts = |block, in_ram, on_ssd| BlockFacts { block, in_ram, on_ssd };
        let explained = Explained {
            has_cache: true,
            blocks: vec![
                facts(2, false, kept(false)),
                facts(3, false, kept(false)),
                facts(4, true, kept(true)),
                facts(255, false, kept(true)),
                facts(256, false, kept(true)),
                facts(258, true, None),
            ],
            dirty: vec![
                DirtyExtent { first_block: 0, for_ns: Some(2_000_000_000) },
                DirtyExtent { first_block: 256, for_ns: Some(1_000_000_000) },
            ],
            ..Explained::default()
        };
        let told: Vec<_> = runs(0, 260, u64::MAX >> 1, &explained)
            .into_iter()
            .map(|run| (run.start_bytes / 4096, run.length_bytes / 4096, run.place, run.dirty_since_s))
            .collect();
        let run = |start, length, place: &str, since| (start, length, place.to_string(), since);
        assert_eq!(
            told,
            [
                run(0, 2, "none", None),
                run(2, 2, "ssd", None),
                run(4, 1, "ram+ssd", Some(2.0)),
                run(5, 250, "none", None),
                run(255, 1, "ssd", Some(2.0)),
                run(256, 1, "ssd", Some(1.0)),
                run(257, 1, "none", None),
                run(258, 1, "ram", None),
                run(259, 1, "none", None),
            ]
        );
        let many = Explained { blocks: (0..1000).map(|at| facts(at * 2, false, kept(false))).collect(), ..explained };
        assert_eq!(runs(0, 2000, u64::MAX >> 1, &many).len(), RUNS_MAX + 1);
    }

    #[test]
    fn a_volume_without_its_cache_says_so() {
        // Without what may be dirty it is not served at all.
        for (mode, served) in [("write-through", true), ("write-back", false)] {
            let (world, manager) = with_volume(mode);
            drop(manager);
            world.inside().devices.remove("/ssd");
            world.reboot();
            let manager = Manager::open(Arc::new(world.clone()), Box::new(world.clone()), Path::new("/state")).expect("the state is there");
            manager.start().expect("as far as it goes");
            match why(&manager, 0, 4096) {
                Ok(view) => {
                    assert!(served && view.verdict[0].contains("without its cache"), "{view:?}");
                    assert_eq!((view.on_ssd_blocks, view.runs.len(), view.runs[0].place.as_str()), (0, 1, "none"));
                    assert_eq!(map(&manager, 0, None, 1).expect("a map").counted_part, 1.0);
                }
                Err(error) => assert!(!served && error.contains("volume \"v\" is not running") && error.contains(';'), "{error}"),
            }
        }
    }
}
