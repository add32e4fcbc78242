//! A start of a pool whose SSD holds a log, as an earlier version left it: with each of its accesses going wrong ([`super::every_io`]), and with a
//! log that cannot be made slots.

use super::every_io::{BLOCKS, Daemon, Model, Moment, PACKED, PLAIN, SSD, VOLUMES, content, every_io, used};
use super::modelled::{Hardware, World};
use api::{Action, Answer, Health, PoolReplace, PoolView, VolumeView};
use datapath::Counters;
use oldlog::Log;
use types::{Content, VolumeId};

/// The first segment of the log.
const SEGMENTS_AT: usize = 1088 << 10;
const SEGMENT_BYTES: usize = 64 << 10;
const SSD_BYTES: usize = 4 << 20;

impl Model {
    /// The content of a block that was flushed last, or never written.
    fn latest(&self, volume: &'static str, block: u64) -> Vec<u8> {
        let version = self.volumes.get(volume).and_then(|known| known.get(&(block * 8))).and_then(|versions| versions.last());
        content(volume, block, version.copied().unwrap_or(1))
    }

    /// Of a block that is on the SSD in this version alone.
    fn lay_down(&mut self, volume: &'static str, block: u64, version: u64) -> Vec<u8> {
        let known = self.volumes.entry(volume).or_default();
        (block * 8..block * 8 + 8).for_each(|sector| drop(known.insert(sector, vec![version])));
        content(volume, block, version)
    }
}

fn page(bytes: &[u8]) -> &[u8; 4096] {
    bytes.try_into().expect("a block")
}

/// A pool that was used, with a log of which so many blocks of `v` are dirty, beside those that were so before.
fn with_log(kind: Content, dirty_blocks: u64) -> (Hardware, Model) {
    let (hardware, mut model) = used(kind);
    let world = World::of(hardware);
    lay_down_log(&world, &mut model, kind, dirty_blocks);
    (world.hardware(), model)
}

/// Puts a log where the pool's cache is. What is cached clean is more than there is room for.
fn lay_down_log(world: &World, model: &mut Model, kind: Content, dirty_blocks: u64) {
    let superblock = oldlog::superblock(&world.bytes(SSD, 0, oldlog::SUPERBLOCKS_BYTES as u64));
    let id = |name: &str| superblock.volumes.iter().find(|volume| volume.name == name).expect("it was there").id;
    let mut log = Log::of(&superblock, kind != Content::Off, engine::front::shard_of);
    let at_home = |path, block| world.bytes(path, block * 4096, 4096);
    for block in 0..BLOCKS {
        VOLUMES.iter().for_each(|(name, path, _)| log.clean(id(name), block, page(&at_home(path, block))));
    }
    let v: VolumeId = id("v");
    for block in (0..BLOCKS).filter(|block| model.latest("v", *block) != at_home("/disk", *block)) {
        log.dirty(v, block, page(&model.latest("v", block)));
    }
    for block in 0..dirty_blocks {
        log.dirty(v, block, page(&model.lay_down("v", block, 7)));
    }
    // One that is not cached any more, and one that was destaged.
    log.void(id("w"), 5);
    log.dirty(id("w"), 9, page(&at_home("/disk2", 9)));
    log.came_home(id("w"), 9);
    world.tamper_with(SSD, |ssd| log.write(&mut |at, bytes| ssd[at as usize..][..bytes.len()].copy_from_slice(bytes)));
}

fn pool(daemon: &Daemon) -> PoolView {
    match daemon.manager.handle(Action::PoolShow { name: "p".into() }) {
        Ok(Answer::Pool(pool)) => *pool,
        other => panic!("the pool is there: {other:?}"),
    }
}

fn volume(daemon: &Daemon, name: &str) -> VolumeView {
    daemon.volume(name).expect("it is known")
}

fn events(daemon: &Daemon) -> Vec<String> {
    daemon.manager.events_after(0).into_iter().map(|event| event.message).collect()
}

/// All of the SSD but the last page of each segment, which is that of the footer: whoever reads a log seals it.
fn without_footers(world: &World) -> Vec<u8> {
    let ssd = world.bytes(SSD, 0, SSD_BYTES as u64);
    let (before, segments) = ssd.split_at(SEGMENTS_AT);
    segments.chunks(SEGMENT_BYTES).fold(before.to_vec(), |mut all, segment| {
        all.extend_from_slice(&segment[..segment.len().min(SEGMENT_BYTES - 4096)]);
        all
    })
}

fn has_slots(world: &World) -> bool {
    oldlog::superblock(&world.bytes(SSD, 0, oldlog::SUPERBLOCKS_BYTES as u64)).layout.has_slots()
}

#[test]
fn a_start_that_upgrades_a_log_fails_at_every_access() {
    for kind in [PLAIN, PACKED] {
        let (before, model) = with_log(kind, 40);
        every_io(&before, &model, Moment::Start, &Daemon::bring_up, &|_| Ok(()));
    }
}

#[test]
fn a_log_is_upgraded_by_its_start_which_says_so_once() {
    for kind in [PLAIN, PACKED] {
        let (before, mut model) = with_log(kind, 40);
        let world = World::of(before);
        assert!(!has_slots(&world));
        let daemon = Daemon::start(&world);
        let (seen, said) = (pool(&daemon), events(&daemon));
        assert!(seen.health == Health::Running && has_slots(&world), "{seen:?}");
        let upgraded =
            said.iter().filter(|message| message.contains("its log, of an earlier version, was upgraded to slots: ")).collect::<Vec<_>>();
        assert!(upgraded.len() == 1 && seen.recovery == [upgraded[0].clone()], "{said:?}, {:?}", seen.recovery);
        let parts = ["carried over", "of it dirty", "forgotten"];
        assert!(parts.iter().all(|part| upgraded[0].contains(part)), "{}", upgraded[0]);
        println!("{}", upgraded[0]);
        let cached = world.volume_stats("v").cached_bytes;
        assert!(cached > 160 * 4096, "{cached} bytes are cached");
        VOLUMES.iter().for_each(|(name, ..)| model.judge_volume(&world, name, false, "upgraded"));
        drop(daemon);
        let daemon = Daemon::start(&world);
        assert!(!events(&daemon).iter().any(|message| message.contains("upgraded")), "once");
        VOLUMES.iter().for_each(|(name, ..)| model.judge_volume(&world, name, false, "upgraded, and killed"));
    }
}

/// Dirty data is in the way: nothing is changed, nothing is served past it, and the sentences say what to do. When it has been destaged, by the version
/// that made the log, the next start upgrades.
#[test]
fn a_log_full_of_dirty_data_stays_and_its_volumes_wait() {
    let is_refused = |(hardware, _): &(Hardware, Model)| pool(&Daemon::start(&World::of(hardware.clone()))).health == Health::Failed;
    let full = (200..BLOCKS / 2).step_by(4).map(|dirty_blocks| with_log(PLAIN, dirty_blocks)).find(is_refused);
    let (before, mut model) = full.expect("a log with so much dirty data has no room for a ring");
    let world = World::of(before);
    let ssd = without_footers(&world);
    for _ in 0..2 {
        let daemon = Daemon::start(&world);
        let seen = pool(&daemon);
        assert!(seen.health == Health::Failed && without_footers(&world) == ssd, "{seen:?}");
        let (problem, remedy) = (seen.problem.expect("it failed"), seen.remedy.expect("there is one"));
        assert!(problem.contains("cannot be upgraded: dirty data takes the room"), "{problem}");
        assert!(
            remedy.starts_with("start it with the version of hearth that made it") && remedy.ends_with("start it here again"),
            "{remedy}"
        );
        let v = volume(&daemon, "v");
        assert!(v.health == Health::Failed && world.request("v", engine::api::Op::Read, 0, None).is_err(), "{v:?}");
        let (problem, remedy) = (v.problem.expect("it failed"), v.remedy.expect("there is one"));
        assert!(problem.contains("cannot be upgraded") && problem.contains("newer data than the backing device"), "{problem}");
        assert!(remedy.starts_with("start it with the version of hearth that made it") && !remedy.contains("reconnect"), "{remedy}");
        let refused = daemon.ask(Action::PoolStart { name: "p".into() }).expect_err("it cannot be");
        assert!(refused.contains("cannot be upgraded") && refused.contains("the version of hearth that made it"), "{refused}");
        // Nothing was dirty of this one: its backing device has it all.
        assert_eq!(volume(&daemon, "w").health, Health::Degraded);
        model.judge_volume(&world, "w", false, "beside its cache");
        let replace = PoolReplace { ssd: SSD.into(), size_bytes: None, force: true, drop_dirty: false };
        let refused = daemon.ask(Action::PoolReplace { name: "p".into(), replace }).expect_err("there is dirty data");
        assert!(refused.contains("dirty data"), "{refused}");
        assert!(
            events(&daemon).iter().any(|message| message.contains("the pool does not start: ") && message.contains("cannot be upgraded"))
        );
    }
    // As the older version leaves it that has destaged all.
    for block in 0..BLOCKS {
        let home = model.latest("v", block);
        world.tamper_with("/disk", |disk| disk[block as usize * 4096..][..4096].copy_from_slice(&home));
    }
    lay_down_log(&world, &mut model, PLAIN, 0);
    let daemon = Daemon::start(&world);
    assert_eq!((pool(&daemon).health, volume(&daemon, "v").health), (Health::Running, Health::Running), "{:?}", pool(&daemon));
    VOLUMES.iter().for_each(|(name, ..)| model.judge_volume(&world, name, false, "destaged, and upgraded"));
}

/// A segment of the log is gone.
#[test]
fn a_damaged_log_stays_and_a_new_cache_is_made_where_nothing_is_dirty() {
    for dirty in [true, false] {
        let (before, mut model) = with_log(PLAIN, 20);
        let world = World::of(before);
        if !dirty {
            world.change_saved(|state| {
                state.volumes.iter_mut().for_each(|volume| {
                    volume.may_have_dirty = false;
                    volume.options.mode = types::Mode::WriteThrough;
                })
            });
        }
        (0..3).for_each(|nth| world.tamper_with(SSD, |ssd| ssd[SEGMENTS_AT + (8 + nth) * SEGMENT_BYTES..][..SEGMENT_BYTES].fill(0)));
        let ssd = without_footers(&world);
        let daemon = Daemon::start(&world);
        let seen = pool(&daemon);
        let (problem, remedy) = (seen.problem.clone().unwrap_or_default(), seen.remedy.clone().unwrap_or_default());
        assert!(seen.health == Health::Failed && problem.contains("cannot be upgraded: the log of shard 0 is damaged"), "{seen:?}");
        let anew = "if nothing on it is dirty, make a new cache with `hearth pool replace p --ssd /ssd --force`";
        assert!(remedy.starts_with(anew) && remedy.contains("the version of hearth that made it"), "{remedy}");
        assert!(!has_slots(&world) && without_footers(&world) == ssd, "the log is what it was");
        let replace = PoolReplace { ssd: SSD.into(), size_bytes: None, force: true, drop_dirty: false };
        let replaced = daemon.ask(Action::PoolReplace { name: "p".into(), replace });
        if dirty {
            assert_eq!((replaced.is_err(), volume(&daemon, "v").health), (true, Health::Failed));
            continue;
        }
        assert_eq!((replaced, pool(&daemon).health), (Ok(()), Health::Running));
        model.judge_volume(&world, "w", false, "with a new cache");
    }
}
