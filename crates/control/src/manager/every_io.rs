//! Every n, over the engine itself: each operation is run with its first read, write, flush or save going wrong, then its second, and so
//! on until it is not touched any more. The access fails, or a flush fails and the device forgets, or the power goes in the middle of it.
//! After each, everything is loaded anew, and again: nothing that had to survive may be lost, what was read once
//! stays, the error must say what to do, and the operation must do when it is asked again.

use super::Manager;
use super::modelled::{Access, Ears, Fate, Hardware, STUCK, World};
use api::error::ControlError;
use api::options::OptionsPatch;
use api::words::Export;
use api::{Action, Answer, Health, JobState, PoolCreate, PoolImport, PoolSet, VolumeAdd, VolumeSet, VolumeView, VolumeWarm};
use engine::api::Op;
use records::state::State;
use simulator::disk::media::Keep;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;
use types::Content;

pub(super) const SSD: &str = "/ssd";
/// Two extents, so that both shards have their share.
const BACKING_BYTES: u64 = 2 << 20;
pub(super) const BLOCKS: u64 = BACKING_BYTES / 4096;
/// The volumes and their devices: `v` is write-back, `w` write-through, both full of version 1.
pub(super) const VOLUMES: [(&str, &str, &str); 2] = [("v", "/disk", "write-back"), ("w", "/disk2", "write-through")];

/// What each word of a sector of a version is: it names its place.
fn word(volume: &str, sector: u64, version: u64) -> u64 {
    u64::from(volume.as_bytes()[0]) << 56 | version << 32 | sector
}

/// A block of a version.
pub(super) fn content(volume: &str, block: u64, version: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(4096);
    for sector in block * 8..block * 8 + 8 {
        let word = word(volume, sector, version).to_le_bytes();
        (0..64).for_each(|_| bytes.extend_from_slice(&word));
    }
    bytes
}

/// What may be found: by sector, the versions that a client was told of since the last flush, oldest first.
#[derive(Clone, Default)]
pub(super) struct Model {
    pub(super) volumes: BTreeMap<&'static str, BTreeMap<u64, Vec<u64>>>,
}

impl Model {
    fn write(&mut self, world: &World, volume: &'static str, block: u64, version: u64) {
        world.request(volume, Op::Write, block, Some(&content(volume, block, version))).expect("nothing fails yet");
        for sector in block * 8..block * 8 + 8 {
            self.volumes.entry(volume).or_default().entry(sector).or_insert_with(|| vec![1]).push(version);
        }
    }

    fn flush(&mut self, world: &World, volume: &'static str) {
        world.request(volume, Op::Flush, 0, None).expect("nothing fails yet");
        self.volumes.entry(volume).or_default().values_mut().for_each(|versions| drop(versions.drain(..versions.len() - 1)));
    }

    /// Takes a block as found. `forgiving`: power was lost, and what was not flushed may be gone.
    fn judge(&mut self, volume: &'static str, block: u64, found: &[u8], forgiving: bool, case: &str) {
        let known = self.volumes.entry(volume).or_default();
        for (sector, bytes) in (block * 8..).zip(found.chunks_exact(512)) {
            let versions = known.entry(sector).or_insert_with(|| vec![1]);
            let allowed = if forgiving { &versions[..] } else { &versions[versions.len() - 1..] };
            let first = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
            let whole = bytes.chunks_exact(8).all(|other| *other == first.to_le_bytes());
            let seen = allowed.iter().copied().find(|version| whole && word(volume, sector, *version) == first);
            let seen = seen.unwrap_or_else(|| panic!("{case}: {volume} sector {sector} holds {first:x}, not one of {allowed:?}"));
            *versions = vec![seen];
        }
    }

    /// Reads all of a volume that is served.
    pub(super) fn judge_volume(&mut self, world: &World, volume: &'static str, forgiving: bool, case: &str) {
        for block in 0..BLOCKS {
            // Untouched blocks are alike: one in sixteen will do.
            if !self.volumes.get(volume).is_some_and(|known| known.contains_key(&(block * 8))) && !block.is_multiple_of(16) {
                continue;
            }
            let found = world.request(volume, Op::Read, block, None);
            let found = found.unwrap_or_else(|error| panic!("{case}: {volume} block {block} cannot be read: {error:?}"));
            self.judge(volume, block, &found, forgiving, case);
        }
    }

    /// The backing device alone has it all.
    fn judge_home(&mut self, world: &World, volume: &'static str, forgiving: bool, case: &str) {
        let path = VOLUMES.iter().find(|(name, ..)| *name == volume).expect("one of the two").1;
        for block in 0..BLOCKS {
            self.judge(volume, block, &world.bytes(path, block * 4096, 4096), forgiving, &format!("{case}, at home"));
        }
    }
}

/// A life of the daemon.
pub(super) struct Daemon {
    pub(super) manager: Manager,
    world: World,
    waiting: Arc<AtomicUsize>,
    watcher: Option<JoinHandle<()>>,
}

impl Daemon {
    /// On a machine that was rebooted.
    pub(super) fn start(world: &World) -> Daemon {
        world.reboot();
        let daemon = Daemon::open(world);
        daemon.bring_up().unwrap_or_else(|error| panic!("{error}"));
        daemon
    }

    fn open(world: &World) -> Daemon {
        let manager = Manager::open(Arc::new(world.clone()), Box::new(world.clone()), Path::new("/state")).expect("the state can be read");
        let (sender, notices) = channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        world.report_to(Ears { sender, waiting: waiting.clone() });
        let (listener, taken) = (manager.clone(), waiting.clone());
        let watcher = std::thread::spawn(move || {
            for notice in notices {
                listener.notice(&notice);
                taken.fetch_sub(1, Ordering::SeqCst);
            }
        });
        Daemon { manager, world: world.clone(), waiting, watcher: Some(watcher) }
    }

    pub(super) fn bring_up(&self) -> Result<(), String> {
        let started = self.manager.start().map_err(|error| error.refusal().to_string());
        self.settle();
        started.map(drop)
    }

    /// Nothing more is under way.
    fn settle(&self) {
        while self.manager.running_jobs().iter().any(|job| job.is_running()) || self.waiting.load(Ordering::SeqCst) > 0 {
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Carries out an action and, if it began a job, the job.
    pub(super) fn ask(&self, action: Action) -> Result<(), String> {
        let asked = match self.manager.handle(action) {
            Ok(Answer::Job(job)) => {
                self.settle();
                match self.manager.handle(Action::JobShow { id: job.id }) {
                    Ok(Answer::Job(job)) => match job.state {
                        JobState::Failed { error } => Err(error.to_string()),
                        _ => Ok(()),
                    },
                    other => panic!("a job was lost: {other:?}"),
                }
            }
            Ok(_) => Ok(()),
            Err(error) => Err(error.refusal().to_string()),
        };
        self.settle();
        asked
    }

    pub(super) fn must(&self, action: Action, case: &str) {
        let shown = format!("{action:?}");
        self.ask(action).unwrap_or_else(|error| panic!("{case}: {shown}: {error}"));
    }

    pub(super) fn volume(&self, name: &str) -> Option<VolumeView> {
        match self.manager.handle(Action::VolumeShow { name: name.into() }) {
            Ok(Answer::Volume(volume)) => Some(*volume),
            Err(ControlError::Unknown { .. }) => None,
            other => panic!("{other:?}"),
        }
    }

    fn known(&self) -> Vec<&'static str> {
        VOLUMES.iter().map(|(name, ..)| *name).filter(|name| self.volume(name).is_some()).collect()
    }

    fn runs(&self, name: &str) -> bool {
        self.volume(name).is_some_and(|view| view.health == Health::Running)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.world.reboot();
        let watcher = self.watcher.take().expect("joined once");
        assert!(watcher.join().is_ok() || std::thread::panicking(), "what listens to the data path has panicked");
    }
}

/// Blocks stored as they are, alone in their slots, and encoded, several in one.
pub(super) const PLAIN: Content = Content::Off;
pub(super) const PACKED: Content = Content::Auto;
const KINDS: [Content; 2] = [PLAIN, PACKED];

fn create(content: Content) -> Action {
    Action::PoolCreate(PoolCreate {
        name: "p".into(),
        ssd: SSD.into(),
        size_bytes: None,
        ram_bytes: None,
        content: Some(content.name().into()),
        force: false,
        on_blank_ssd: None,
        spare_percent: None,
    })
}

fn add(which: usize) -> Action {
    let (name, backing, mode) = VOLUMES[which];
    let options = OptionsPatch { mode: Some(mode.into()), admission: Some("always".into()), ..OptionsPatch::default() };
    Action::VolumeAdd(VolumeAdd {
        name: name.into(),
        pool: "p".into(),
        backing: backing.into(),
        exports: vec![Export::NBD],
        sector_bytes: None,
        options,
    })
}

fn set_mode(name: &str, mode: &str) -> Action {
    let options = OptionsPatch { mode: Some(mode.into()), ..OptionsPatch::default() };
    Action::VolumeSet { name: name.into(), set: VolumeSet { options, ..VolumeSet::default() } }
}

fn remove(name: &str) -> Action {
    Action::VolumeRemove { name: name.into(), drop_dirty: false }
}

fn blank() -> World {
    let world = World::new(&[SSD], &["/disk", "/disk2"], BACKING_BYTES);
    for (name, path, _) in VOLUMES {
        let bytes: Vec<u8> = (0..BLOCKS).flat_map(|block| content(name, block, 1)).collect();
        world.lay_out(path, &bytes);
    }
    world
}

/// A pool that has gone round once, with both volumes, after a clean stop: clean blocks, dirty blocks, what was overwritten.
pub(super) fn used(kind: Content) -> (Hardware, Model) {
    let (world, mut model) = (blank(), Model::default());
    let daemon = Daemon::start(&world);
    for action in [create(kind), add(0), add(1)] {
        daemon.must(action, "before");
    }
    for round in 0..3 {
        for block in 0..120 {
            model.write(&world, "v", (block * 5 + round) % BLOCKS, 2);
        }
        daemon.must(Action::VolumeDestage { name: "v".into() }, "before");
    }
    for block in 0..40 {
        model.write(&world, "w", block * 7 % BLOCKS, 2);
    }
    for block in 0..BLOCKS / 4 {
        for (name, ..) in VOLUMES {
            world.request(name, Op::Read, block * 4, None).expect("nothing fails yet");
        }
    }
    for block in 0..16 {
        model.write(&world, "v", block * 31 % BLOCKS, 3);
    }
    VOLUMES.iter().for_each(|(name, ..)| model.flush(&world, name));
    daemon.manager.stop().expect("nothing fails");
    drop(daemon);
    (world.hardware(), model)
}

/// What clients do before the operation: dirty and clean, flushed and not.
fn load(world: &World, model: &mut Model) {
    for (name, ..) in VOLUMES {
        (0..20).for_each(|block| model.write(world, name, block * 13, 5));
        model.flush(world, name);
        (10..24).for_each(|block| model.write(world, name, block * 13, 6));
        (0..12).for_each(|block| drop(world.request(name, Op::Read, block * 40, None).expect("nothing fails yet")));
    }
}

/// Every kind of access, and every fate of it.
fn fates() -> Vec<(Access, Fate)> {
    let cuts = [Keep::None, Keep::All, Keep::Blocks(50)].map(Fate::PowerCut);
    let mut fates = vec![(Access::Flush, Fate::Forgets)];
    for access in [Access::Read, Access::Write, Access::Flush, Access::Save] {
        fates.push((access, Fate::Fails));
        // A power cut at a read is one at the next write or flush.
        fates.extend(cuts.iter().filter(|_| access != Access::Read).map(|fate| (access, *fate)));
    }
    fates
}

/// What went wrong, and what it may have cost.
struct Accident {
    case: String,
    /// Volumes of which what was not flushed may be gone.
    forgiven: Vec<&'static str>,
    /// The SSD did wrong.
    ssd: bool,
    power: bool,
}

impl Accident {
    fn new(fate: Fate, caught: Option<&str>, case: String) -> Accident {
        let of = |path: &str| caught.is_some_and(|caught| caught.contains(&format!("{path}:")));
        let power = matches!(fate, Fate::PowerCut(_)) && caught.is_some();
        let forgiven = VOLUMES.iter().filter(|(_, path, mode)| {
            let forgot = matches!(fate, Fate::Forgets) && (*mode == "write-back" && of(SSD) || *mode != "write-back" && of(path));
            power || forgot
        });
        Accident { case, forgiven: forgiven.map(|(name, ..)| *name).collect(), ssd: of(SSD) && !power, power }
    }

    /// All volumes there are: served and whole, or refused with a remedy; those that were removed are whole at home.
    fn judge(&self, daemon: &Daemon, model: &mut Model, when: &str) {
        let case = format!("{}, {when}", self.case);
        for (name, ..) in VOLUMES {
            let forgiving = self.forgiven.contains(&name);
            match daemon.volume(name) {
                Some(view) if matches!(view.health, Health::Running | Health::Degraded) => {
                    model.judge_volume(&daemon.world, name, forgiving, &case);
                }
                Some(view) => {
                    assert!(view.problem.is_some() && view.remedy.is_some_and(|text| !text.is_empty()), "{case}: {name} has no way out");
                }
                None => model.judge_home(&daemon.world, name, forgiving, &case),
            }
        }
    }

    /// Another life, and one more; the operation asked again; everything brought home.
    fn judge_later_lives(&self, world: &World, model: &mut Model, again: Ask) {
        let case = &self.case;
        let daemon = Daemon::start(world);
        let degraded = world.saved().pools.iter().any(|pool| pool.degraded.is_some());
        assert!(!degraded || self.ssd, "{case}: a good SSD is given up");
        self.judge(&daemon, model, "after the restart");
        if degraded {
            drop(daemon);
            return self.rescue(world, model);
        }
        for name in daemon.known() {
            assert!(daemon.runs(name), "{case}: not served after the restart: {:?}", daemon.volume(name));
        }
        drop(daemon);
        let daemon = Daemon::start(world);
        self.judge(&daemon, model, "after another restart");
        again(&daemon).unwrap_or_else(|error| panic!("{case}, asked again: {error}"));
        for name in daemon.known() {
            daemon.must(remove(name), case);
        }
        self.judge(&daemon, model, "removed");
    }

    /// An SSD with one bad access is given up, but nothing is destroyed: without that record, everything is there.
    fn rescue(&self, world: &World, model: &mut Model) {
        world.change_saved(|state| state.pools.iter_mut().for_each(|pool| pool.degraded = None));
        let daemon = Daemon::start(world);
        for name in daemon.known() {
            assert!(daemon.runs(name), "{}, rescued: {:?}", self.case, daemon.volume(name));
        }
        self.judge(&daemon, model, "rescued");
    }
}

fn check_sentence(sentence: &str, case: &str) {
    assert!(!sentence.contains(STUCK), "{case}: {sentence}");
    assert!(sentence.contains("; "), "{case}: no remedy: {sentence}");
    assert!(!sentence.contains('{') && !sentence.contains("Err("), "{case}: not for people: {sentence}");
}

pub(super) type Ask<'a> = &'a dyn Fn(&Daemon) -> Result<(), String>;

/// When the operation is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// In a life in which clients have read and written.
    Busy,
    /// In a life without clients.
    Quiet,
    /// It ends such a life.
    End,
    /// It is the start itself.
    Start,
}

/// Runs `action` with the n-th access of each kind going wrong, for n = 1, 2, 3 ... until it is not touched; `again` is asked later.
pub(super) fn every_io(before: &Hardware, model: &Model, moment: Moment, action: Ask, again: Ask) {
    let mut tried = BTreeMap::new();
    for (access, fate) in fates() {
        for n in 1.. {
            let (world, mut model) = (World::of(before.clone()), model.clone());
            let daemon = if moment == Moment::Start { Daemon::open(&world) } else { Daemon::start(&world) };
            if matches!(moment, Moment::Busy | Moment::End) {
                load(&world, &mut model);
            }
            world.arm(access, n, fate, n);
            let result = action(&daemon);
            daemon.settle();
            let caught = world.disarm();
            let case = format!("{access:?} {n}, {fate:?}, {caught:?}: {result:?}");
            if let Err(sentence) = &result {
                check_sentence(sentence, &case);
            }
            let accident = Accident::new(fate, caught.as_deref(), case);
            if !accident.power && matches!(moment, Moment::Busy | Moment::Quiet) && accident.forgiven.is_empty() {
                accident.judge(&daemon, &mut model, "before the restart");
            }
            drop(daemon);
            accident.judge_later_lives(&world, &mut model, again);
            if caught.is_none() {
                assert_eq!(result, Ok(()), "an untouched operation succeeds");
                break;
            }
            *tried.entry(format!("{access:?}")).or_insert(0) += 1;
        }
    }
    println!("went wrong: {tried:?}");
    assert!(tried.len() >= 2 && tried.values().sum::<u64>() > 10, "hardly anything was tested: {tried:?}");
}

#[test]
fn create_fails_at_every_access() {
    let again = |daemon: &Daemon| {
        if let Ok(Answer::Pool(pool)) = daemon.manager.handle(Action::PoolShow { name: "p".into() })
            && pool.health != Health::Running
        {
            daemon.ask(Action::PoolDestroy { name: "p".into(), force: true })?;
        }
        if daemon.manager.handle(Action::PoolShow { name: "p".into() }).is_err() {
            daemon.ask(create(PACKED))?;
        }
        daemon.ask(add(0))
    };
    every_io(&blank().hardware(), &Model::default(), Moment::Quiet, &|daemon| daemon.ask(create(PACKED)), &again);
}

#[test]
fn add_fails_at_every_access() {
    let (before, model) = used(PACKED);
    let world = World::of(before);
    let daemon = Daemon::start(&world);
    daemon.must(remove("v"), "before");
    drop(daemon);
    let again = |daemon: &Daemon| if daemon.volume("v").is_some() { Ok(()) } else { daemon.ask(add(0)) };
    every_io(&world.hardware(), &model, Moment::Quiet, &|daemon| daemon.ask(add(0)), &again);
}

fn check_running(kind: Content, action: &dyn Fn() -> Action) {
    let (before, model) = used(kind);
    let again = |daemon: &Daemon| if daemon.volume("v").is_some() { daemon.ask(action()) } else { Ok(()) };
    every_io(&before, &model, Moment::Busy, &|daemon| daemon.ask(action()), &again);
}

#[test]
fn leaving_write_back_fails_at_every_access() {
    check_running(PLAIN, &|| set_mode("v", "write-through"));
}

#[test]
fn entering_write_back_fails_at_every_access() {
    check_running(PLAIN, &|| set_mode("w", "write-back"));
}

#[test]
fn destage_fails_at_every_access() {
    [PLAIN, PACKED].iter().for_each(|kind| check_running(*kind, &|| Action::VolumeDestage { name: "v".into() }));
}

#[test]
fn warm_fails_at_every_access() {
    let warm = VolumeWarm { end_bytes: Some(BACKING_BYTES / 8), ..VolumeWarm::default() };
    check_running(PLAIN, &|| Action::VolumeWarm { name: "w".into(), warm });
}

#[test]
fn remove_fails_at_every_access() {
    check_running(PACKED, &|| remove("v"));
}

#[test]
fn a_clean_stop_fails_at_every_access() {
    let stop = |daemon: &Daemon| daemon.manager.stop().map_err(|error| error.refusal().to_string());
    for kind in KINDS {
        let (before, model) = used(kind);
        every_io(&before, &model, Moment::End, &stop, &|_| Ok(()));
    }
}

#[test]
fn a_start_after_a_clean_stop_fails_at_every_access() {
    for kind in KINDS {
        let (before, model) = used(kind);
        every_io(&before, &model, Moment::Start, &Daemon::bring_up, &|_| Ok(()));
    }
}

#[test]
fn recovery_fails_at_every_access() {
    for kind in KINDS {
        let (before, mut model) = used(kind);
        let world = World::of(before);
        let daemon = Daemon::start(&world);
        load(&world, &mut model);
        drop(daemon);
        every_io(&world.hardware(), &model, Moment::Start, &Daemon::bring_up, &|_| Ok(()));
    }
}

/// An older state is put back, in which the volume with dirty data is write-through: whatever goes wrong at that start, the SSD keeps all of it,
/// and the newest state finds it.
#[test]
fn a_start_with_an_older_state_loses_nothing_at_any_access() {
    let (before, mut model) = used(PLAIN);
    let world = World::of(before);
    let daemon = Daemon::start(&world);
    daemon.must(set_mode("v", "write-through"), "before");
    let older = world.saved();
    daemon.must(set_mode("v", "write-back"), "before");
    load(&world, &mut model);
    drop(daemon);
    let (newest, killed) = (world.saved(), world.hardware());
    let mut tried = 0;
    for (access, fate) in fates() {
        for n in 1.. {
            let (world, mut model) = (World::of(killed.clone()), model.clone());
            world.change_saved(|state| state.clone_from(&older));
            world.reboot();
            let daemon = Daemon::open(&world);
            world.arm(access, n, fate, n);
            drop(daemon.bring_up());
            let caught = world.disarm();
            let case = format!("an older state, {access:?} {n}, {fate:?}, {caught:?}");
            drop(daemon);
            let daemon = Daemon::start(&world);
            let view = daemon.volume("v").expect("it is known");
            let problem = view.problem.clone().unwrap_or_default();
            assert!(view.health == Health::Failed && problem.contains("older than this SSD"), "{case}: {view:?}");
            drop(daemon);
            world.change_saved(|state| state.clone_from(&newest));
            let daemon = Daemon::start(&world);
            let power = matches!(fate, Fate::PowerCut(_)) && caught.is_some() || matches!(fate, Fate::Forgets);
            for (name, ..) in VOLUMES {
                assert!(daemon.runs(name), "{case}: {:?}", daemon.volume(name));
                model.judge_volume(&world, name, power, &case);
            }
            if caught.is_none() {
                break;
            }
            tried += 1;
        }
    }
    assert!(tried > 10, "hardly anything was tested: {tried}");
}

/// The state directory is lost after a kill, and the pool is taken in from its SSD: whatever goes wrong meanwhile, it is taken in or can be, and no
/// block is lost.
#[test]
fn an_import_loses_nothing_at_any_access() {
    let (before, mut model) = used(PLAIN);
    let world = World::of(before);
    let daemon = Daemon::start(&world);
    load(&world, &mut model);
    daemon.manager.write_due_records();
    drop(daemon);
    world.change_saved(|state| *state = State::default());
    let killed = world.hardware();
    let import = || Action::PoolImport(PoolImport { ssd: SSD.into(), ..PoolImport::default() });
    let mut tried = 0;
    for (access, fate) in fates() {
        for n in 1.. {
            let (world, mut model) = (World::of(killed.clone()), model.clone());
            let daemon = Daemon::start(&world);
            world.arm(access, n, fate, n);
            let result = daemon.ask(import());
            let caught = world.disarm();
            let case = format!("import, {access:?} {n}, {fate:?}, {caught:?}, {result:?}");
            if let Err(sentence) = &result {
                check_sentence(sentence, &case);
            }
            drop(daemon);
            let daemon = Daemon::start(&world);
            if daemon.known().is_empty() {
                assert!(result.is_err(), "{case}: it was said to be taken in");
                daemon.must(import(), &case);
            }
            let power = matches!(fate, Fate::PowerCut(_)) && caught.is_some() || matches!(fate, Fate::Forgets);
            for (name, ..) in VOLUMES {
                if !daemon.runs(name) {
                    daemon.must(Action::VolumeStart { name: name.into() }, &case);
                }
                model.judge_volume(&world, name, power, &case);
            }
            daemon.must(Action::VolumeDestage { name: "v".into() }, &case);
            VOLUMES.iter().for_each(|(name, ..)| model.judge_home(&world, name, power, &case));
            if caught.is_none() {
                assert_eq!(result, Ok(()), "an untouched import succeeds");
                break;
            }
            tried += 1;
        }
    }
    assert!(tried > 10, "hardly anything was tested: {tried}");
}

/// The SSD of a pool with nothing dirty is blank after a kill, and its cache is made anew at the start: whatever goes wrong, a later start serves
/// what the devices hold, and no block of before.
#[test]
fn making_a_blank_ssd_anew_fails_at_every_access() {
    let (before, mut model) = used(PLAIN);
    let world = World::of(before);
    let daemon = Daemon::start(&world);
    let make = PoolSet { content: None, on_blank_ssd: Some("make".into()) };
    daemon.must(Action::PoolSet { name: "p".into(), set: make }, "before");
    daemon.must(set_mode("v", "write-through"), "before");
    load(&world, &mut model);
    drop(daemon);
    world.wipe_out(SSD);
    let killed = world.hardware();
    let mut tried = 0;
    for (access, fate) in fates() {
        for n in 1.. {
            let (world, mut model) = (World::of(killed.clone()), model.clone());
            let daemon = Daemon::open(&world);
            world.arm(access, n, fate, n);
            drop(daemon.bring_up());
            let caught = world.disarm();
            let case = format!("a blank SSD, {access:?} {n}, {fate:?}, {caught:?}");
            drop(daemon);
            let daemon = Daemon::start(&world);
            for (name, ..) in VOLUMES {
                let view = daemon.volume(name).expect("it is known");
                assert!(matches!(view.health, Health::Running | Health::Degraded), "{case}: {view:?}");
                model.judge_volume(&world, name, true, &case);
                model.write(&world, name, 3, 9);
                model.flush(&world, name);
            }
            drop(daemon);
            let daemon = Daemon::start(&world);
            for (name, ..) in VOLUMES {
                model.judge_volume(&world, name, false, &case);
            }
            let runs = VOLUMES.iter().all(|(name, ..)| daemon.volume(name).is_some_and(|view| view.health == Health::Running));
            if !runs {
                // Half made, it is no more blank: a person has to say so, and is told how.
                println!("{case}: it is for a person");
                let pool = daemon.manager.handle(Action::PoolShow { name: "p".into() });
                let Ok(Answer::Pool(pool)) = pool else { panic!("{case}: {pool:?}") };
                assert!(pool.remedy.is_some_and(|remedy| remedy.contains("hearth pool replace p --ssd /ssd")), "{case}");
            }
            if caught.is_none() {
                assert!(runs, "{case}");
                break;
            }
            tried += 1;
        }
    }
    assert!(tried > 10, "hardly anything was tested: {tried}");
}

/// What comes of content is told for the shards that run; a change of its treatment reaches them, and a restart finds all blocks.
#[test]
fn what_comes_of_content_is_told_and_its_treatment_changes_while_it_runs() {
    let (before, mut model) = used(PLAIN);
    let world = World::of(before);
    let daemon = Daemon::start(&world);
    let pool = |daemon: &Daemon| match daemon.manager.handle(Action::PoolShow { name: "p".into() }) {
        Ok(Answer::Pool(pool)) => *pool,
        other => panic!("the pool is there: {other:?}"),
    };
    let set = |word: &str| Action::PoolSet { name: "p".into(), set: PoolSet { content: Some(word.into()), on_blank_ssd: None } };
    assert_eq!((pool(&daemon).content, pool(&daemon).content_stats), (Content::Off, None));
    daemon.must(set("auto"), "plain blocks are there");
    load(&world, &mut model);
    let stats = pool(&daemon).content_stats.expect("it is on");
    assert!(
        stats.level == Content::Auto && stats.saved_bytes > 0 && stats.effective_capacity.is_some_and(|factor| factor > 1.05),
        "{stats:?}"
    );
    assert!(stats.steps["v"].iter().any(|step| step.step == "lz4" && step.open), "{stats:?}");
    daemon.must(set("off"), "packed blocks are there");
    let stats = pool(&daemon).content_stats.expect("packed blocks are left");
    assert!(stats.level == Content::Off && stats.stored_bytes < stats.cached_bytes && stats.steps.is_empty(), "{stats:?}");
    daemon.manager.stop().expect("nothing fails");
    drop(daemon);
    let daemon = Daemon::start(&world);
    assert!(pool(&daemon).recovery[0].ends_with("of the ring, which was complete"), "{:?}", pool(&daemon).recovery);
    VOLUMES.iter().for_each(|(name, ..)| model.judge_volume(&world, name, false, "after a stop"));
}
