//! Applications and objects of volumes: looking for them, telling of them, and their policies.

use super::Manager;
use super::choosing::{Chosen, check_there_are, chosen, no_object, objects_in};
use api::error::ControlError;
use api::names::Named;
use api::object_rules::Rule;
use api::{
    ApplicationView, BlindView, ConnectionView, DatabaseView, JobView, ObjectPoint, ObjectQuery, ObjectView, Severity, VolumeApplications,
};
use applications::discovery::{Application, Discovery, Found};
use insight::changes::changes;
use insight::hidden::hidden;
use insight::objects::{Looked, Objects};
use insight::{Insight, Look, LookedAt};
use records::jobs::{Job, Work};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use types::{BLOCK_BYTES, Treatment};
use uuid::Uuid;

/// How much a look for names takes of the device.
struct Pace {
    /// Bytes read each second at most.
    rate_bytes: u64,
    /// Beside clients it rests so many times as long as each read took: a seek of a disk costs whatever is read.
    rest_beside_clients: u32,
}
/// By itself: a twentieth of the device's time beside clients, half of it otherwise.
const BY_ITSELF: Pace = Pace { rate_bytes: 2 << 20, rest_beside_clients: 19 };
/// When a person waits for it: a fifth.
const ASKED: Pace = Pace { rate_bytes: 16 << 20, rest_beside_clients: 4 };
/// A device that takes longer for a read is not asked on.
const READ_MAX: Duration = Duration::from_secs(10);
/// So often a look begins anew when a volume becomes another under it.
const ANEW_MAX: u32 = 4;

/// Objects told at once, where nothing else is asked.
const OBJECTS_TOLD: u64 = 1000;
/// And at most.
const OBJECTS_TOLD_MAX: u64 = 100_000;
/// Volumes of which what their objects bring is told at once.
const SHARES_MAX: usize = 4;

impl Manager {
    /// Looks for the objects of one volume, if one is due; takes as long as it takes. `false`: none was.
    pub fn discover_due(&self) -> bool {
        let look = self.look_due_for_names().or_else(|| self.insight().next_look(None));
        let Some(look) = look else { return false };
        if let Err(error) = self.discover(&look, &BY_ITSELF, &mut |_| !self.is_stopping()) {
            tracing::debug!("the objects of \"{}\" are not known: {error}", look.of);
        }
        true
    }

    pub(super) fn discover_as_job(&self, name: &str) -> Result<JobView, ControlError> {
        let record = self.volume_record(name)?;
        let claim = self.claim(&[(Named::Volume, name)], "a look for applications")?;
        self.know_volumes();
        // One that is under way by itself would take minutes beside clients, and may be of what the volume was before.
        // The lock is given back before it is asked why.
        let look = self.insight().look_instead(name);
        let look = look.ok_or_else(|| self.no_load(name))?;
        let (manager, begun) = (self.clone(), look.clone());
        let job = self.run_job(Work::Discover, (name, record.uuid), claim, move |job| manager.discover_in(&begun, job));
        if let Err(error) = &job {
            self.insight().looked(&look, Err(error.to_string()));
        }
        job
    }

    /// Gives the policies again that a cache may not have: after its shards were made anew, and where pages have told more of the
    /// indexes of a table.
    pub fn renew_policies(&self) {
        let due = self.insight().policies_due();
        due.iter().for_each(|volume| self.apply_policies(volume));
    }

    fn discover_in(&self, look: &Look, job: &Job) -> Result<(), ControlError> {
        self.discover(look, &ASKED, &mut |bytes| {
            job.advance_open(bytes);
            !job.cancel_wanted()
        })?;
        Ok(())
    }

    /// Looks at that pace, as long as `goes_on` says so; anew where the volume becomes another meanwhile.
    fn discover(&self, look: &Look, pace: &Pace, goes_on: &mut dyn FnMut(u64) -> bool) -> Result<(), ControlError> {
        let key = self.names_key();
        let mut found = Err(ControlError::Stopped);
        for _ in 0..=ANEW_MAX {
            found = self.read_for_names(look, pace, goes_on);
            if !found.as_ref().is_ok_and(|found| found.outdated) {
                break;
            }
            self.insight().look_begins_anew(look);
        }
        let found = match found.and_then(|found| Ok(Arc::new(hide(found, key?)))) {
            Ok(found) => found,
            Err(error) => {
                self.insight().looked(look, Err(error.to_string()));
                return Err(error);
            }
        };
        if self.insight().looked(look, Ok(found.clone())) {
            self.tell_found(look, &found);
            look.volume().into_iter().for_each(|volume| self.apply_policies(volume));
            self.insight().end_look(look);
        }
        Ok(())
    }

    /// Reads what is needed for names.
    fn read_for_names(&self, look: &Look, pace: &Pace, goes_on: &mut dyn FnMut(u64) -> bool) -> Result<Found, ControlError> {
        let told = look.volume().map(|volume| self.server_names(volume)).unwrap_or_default();
        let mut discovery = Discovery::knowing(look.before.as_deref(), look.size_bytes(), told);
        let (begun, mut buffer, mut failures) = (Instant::now(), Vec::new(), 0);
        while let Some(read) = discovery.next() {
            // It may be another's by now, as when a person asks for a look.
            if !goes_on(discovery.bytes_read()) || !self.insight().goes_on(look, discovery.bytes_read()) {
                return Err(ControlError::Stopped);
            }
            buffer.resize(read.len_bytes, 0);
            let asked = Instant::now();
            match self.read_for(look, read.offset_bytes, &mut buffer) {
                Ok(()) => discovery.give(read.offset_bytes, Ok(&buffer)),
                Err(error) => {
                    failures += 1;
                    discovery.give(read.offset_bytes, Err(()));
                    // A bad sector is passed over; a device that answers no more is not asked on and on.
                    if failures >= 8 || asked.elapsed() >= READ_MAX {
                        return Err(error);
                    }
                }
            }
            let rest = if self.insight().is_busy(look) { pace.rest_beside_clients } else { 1 };
            let due = Duration::from_secs_f64(discovery.bytes_read() as f64 / pace.rate_bytes as f64);
            let wait = due.saturating_sub(begun.elapsed()).max(asked.elapsed() * rest);
            std::thread::sleep(wait.min(Duration::from_secs(1)));
        }
        Ok(discovery.finish())
    }

    fn read_for(&self, look: &Look, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), ControlError> {
        match &look.at {
            LookedAt::Volume(_) => self.data().read_aside(&look.of, offset_bytes, bytes),
            LookedAt::Device(device) => device.read(offset_bytes, bytes).map_err(|problem| {
                let remedy = "check the device; start the analysis with --no-read to do without names".into();
                ControlError::Analysis(format!("the device that \"{}\" watches cannot be read: {problem}", look.of), remedy)
            }),
        }
    }

    /// Events for what is new, and for what is otherwise than it was.
    fn tell_found(&self, look: &Look, found: &Found) {
        let known: BTreeSet<_> = look.before.iter().flat_map(|before| &before.applications).map(|application| application.id).collect();
        for application in found.applications.iter().filter(|application| !known.contains(&application.id)) {
            let objects = found.objects.iter().filter(|object| object.application == application.id).count();
            let place = application.instance.as_ref().map_or_else(|| "unnamed".into(), |instance| format!("in /{instance}"));
            let told = format!("found {} {place}, with {}", title(application), types::counted(objects as u64, "object"));
            self.events().note(Severity::Info, &look.of, told);
        }
        for told in look.before.iter().flat_map(|before| changes(before, found)) {
            self.events().note(Severity::Info, &look.of, told);
        }
    }

    /// Tells the cache what policies follow from what was found and from the rules.
    pub(super) fn apply_policies(&self, name: &str) {
        let Ok(record) = self.volume_record(name) else { return };
        let ranges = self.insight().objects_of(name).map(|objects| objects.ranges(&record.rules));
        let Some(ranges) = ranges else { return };
        if let Err(error) = self.data().set_policies(&record, &ranges) {
            tracing::debug!("the policies of the objects of \"{name}\" are not in force: {error}");
        }
    }

    pub(super) fn applications(&self, volume: Option<&str>, logins: bool) -> Result<Vec<VolumeApplications>, ControlError> {
        if let Some(volume) = volume {
            self.check_has_objects(volume)?;
        }
        self.know_volumes();
        let now_ms = insight::now_ms();
        let mut all: Vec<VolumeApplications> =
            objects_in(&self.insight(), volume).into_iter().map(|(name, objects)| told(name, objects, now_ms)).collect();
        for of in &mut all {
            let mut connections = self.connection_views(&of.volume);
            of.applications.iter_mut().for_each(|one| {
                let view = connections.remove(&one.id);
                one.connection = if logins { view } else { view.map(ConnectionView::without_login) };
            });
        }
        Ok(all)
    }

    pub(super) fn objects(&self, query: &ObjectQuery) -> Result<Vec<ObjectView>, ControlError> {
        let sort = query.sort.as_deref().unwrap_or("heat");
        if !["heat", "gain", "size", "name"].contains(&sort) {
            return Err(ControlError::BadOption {
                option: "--sort",
                problem: format!("is \"{sort}\""),
                remedy: "write heat, gain, size or name".into(),
            });
        }
        if query.limit.is_some_and(|limit| !(1..=OBJECTS_TOLD_MAX).contains(&limit)) {
            let problem = format!("is not between 1 and {OBJECTS_TOLD_MAX}");
            return Err(ControlError::BadOption {
                option: "--limit",
                problem,
                remedy: format!("leave it out for the first {OBJECTS_TOLD}"),
            });
        }
        if let Some(volume) = &query.volume {
            self.check_has_objects(volume)?;
        }
        self.know_volumes();
        self.renew_shares_for(query);
        let rules = self.rules();
        let insight = self.insight();
        check_there_are(&insight, query)?;
        let chosen = chosen(&insight, query);
        if chosen.is_empty()
            && let Some(object) = &query.object
        {
            return Err(no_object(&insight, query, object));
        }
        let mut views: Vec<ObjectView> = chosen.iter().filter_map(|one| view(&insight, one, rules(&one.volume))).collect();
        views.sort_by(|one, other| one.volume.cmp(&other.volume).then_with(|| one.name.cmp(&other.name)));
        let gain = |view: &ObjectView| view.curve.last().map_or(0.0, |most| most.hits_percent);
        match sort {
            "heat" => views.sort_by_key(|view| std::cmp::Reverse((view.read_bytes, view.written_bytes))),
            "gain" => views.sort_by(|one, other| gain(other).total_cmp(&gain(one))),
            "size" => views.sort_by_key(|view| std::cmp::Reverse(view.bytes)),
            _ => {}
        }
        views.truncate(query.limit.unwrap_or(OBJECTS_TOLD) as usize);
        Ok(views)
    }

    /// Objects are known of volumes, and of devices that are watched from outside.
    fn check_has_objects(&self, name: &str) -> Result<(), ControlError> {
        let (has_objects, analysis) = {
            let insight = self.insight();
            (insight.objects_of(name).is_some(), insight.view(name).ok().filter(|view| view.named))
        };
        let Some(analysis) = analysis.filter(|_| !has_objects) else {
            return if has_objects { Ok(()) } else { self.volume_record(name).map(drop) };
        };
        let (why, remedy) = match analysis.source.as_str() {
            "volume" => ("it watches a volume", format!("name the volume: {}", analysis.of)),
            "device" if analysis.state != "watching" => (
                "it has ended, and names of tables are not kept over a restart of the daemon",
                "start a new analysis, without --no-read".into(),
            ),
            "device" => ("its device is not read", "start an analysis without --no-read".into()),
            _ => ("a trace tells where was read, not what", "watch the device itself with --device".into()),
        };
        Err(ControlError::Analysis(format!("the analysis \"{name}\" knows no objects: {why}"), remedy))
    }

    /// What objects bring is told of one volume, and of objects that are asked for by name.
    fn renew_shares_for(&self, query: &ObjectQuery) {
        let mut volumes: BTreeSet<String> = query.volume.iter().cloned().collect();
        if query.object.is_some() && volumes.is_empty() {
            volumes.extend(chosen(&self.insight(), query).into_iter().map(|one| one.volume));
        }
        volumes.iter().take(SHARES_MAX).for_each(|volume| self.renew_shares(volume));
    }

    pub(super) fn rules(&self) -> impl Fn(&str) -> Vec<Rule> {
        let volumes = self.memory().state.volumes.clone();
        move |name: &str| volumes.iter().find(|volume| volume.name == name).map_or_else(Vec::new, |volume| volume.rules.clone())
    }

    /// The object that a place of a volume belongs to, with its policy, as a sentence.
    pub(super) fn object_told(&self, volume: &str, offset_bytes: u64) -> Option<String> {
        let record = self.volume_record(volume).ok()?;
        let insight = self.insight();
        let objects = insight.objects_of(volume)?;
        let object = objects.at(offset_bytes)?;
        let (treatment, rule) = objects.treatment_of(object, &record.rules);
        let page = objects.found()?.at(offset_bytes).map(|(_, offset)| offset / BLOCK_BYTES);
        let page = page.map_or_else(String::new, |block| format!("Block {block} of "));
        let engine = objects.application_of(object).map_or("", |application| application.engine.title());
        let policy = match (rule, treatment == Treatment::default()) {
            (None, true) => String::new(),
            (None, false) => format!("; {} bypass the cache by default", plural(object.kind.name())),
            (Some(_), _) => format!(
                "; a rule says: admit {}, writes {}, scans {}",
                treatment.admit().name(),
                treatment.writes().name(),
                treatment.on_scan().name()
            ),
        };
        Some(format!("{page}{} ({} of {engine}){policy}.", object.name, object.kind.name()))
    }
}

fn hide(found: Found, key: Option<Uuid>) -> Found {
    match key {
        Some(key) => found.renamed(&hidden(key)),
        None => found,
    }
}

fn plural(kind: &str) -> String {
    match kind {
        "redo" | "wal" => format!("{kind} logs"),
        "binlog" => "binary logs".into(),
        "doublewrite" => "doublewrite buffers".into(),
        "temp" => "temporary tables".into(),
        other => format!("{other} objects"),
    }
}

fn title(application: &Application) -> String {
    application.version.clone().unwrap_or_else(|| application.engine.title().into())
}

fn view(insight: &Insight, one: &Chosen, rules: Vec<Rule>) -> Option<ObjectView> {
    let objects = insight.objects_of(&one.volume)?;
    let object = &one.object;
    let (treatment, rule) = objects.treatment_of(object, &rules);
    let uses = objects.uses(object.id);
    let bytes = |blocks: f64| (blocks * BLOCK_BYTES as f64) as u64;
    let within = object.within.and_then(|id| objects.found()?.object(id));
    Some(ObjectView {
        id: object.id.0,
        volume: one.volume.clone(),
        application: object.application.0,
        engine: objects.application_of(object).map_or("unknown", |application| application.engine.title()).into(),
        instance: objects.application_of(object).and_then(|one| one.instance.as_ref()).map(|instance| format!("/{instance}")),
        database: object.database.clone(),
        kind: object.kind.name().into(),
        name: object.name.clone(),
        within: within.map(|table| table.name.clone()),
        bytes: object.bytes,
        extents: object.extents,
        path: object.path.clone(),
        encrypted: object.encrypted,
        being_built: object.is_being_built(),
        evidence: object.evidence.to_string(),
        read_bytes: bytes(uses.read_blocks),
        // A device in trial has no cache yet.
        hits_percent: (uses.read_blocks > 0.0 && insight.watches(&one.volume))
            .then(|| (uses.hit_blocks / uses.read_blocks * 1000.0).round() / 10.0),
        written_bytes: bytes(uses.written_blocks),
        curve: objects.shares().of(object.id).map(|(ssd_bytes, hits)| ObjectPoint { ssd_bytes, hits_percent: hundredths(hits) }).collect(),
        admit: treatment.admit().name().into(),
        writes: treatment.writes().name().into(),
        on_scan: treatment.on_scan().name().into(),
        policy: if rule.is_some() { "rule".into() } else { "default".into() },
    })
}

/// A share in percent, with two digits behind the point.
fn hundredths(share: f64) -> f64 {
    (share * 10_000.0).round() / 100.0
}

/// A part of fewer blocks says nothing: while nobody works, all that is written is a file system's journal (16 MiB).
const PART_FROM_BLOCKS: f64 = 4096.0;

fn told(name: &str, objects: &Objects, now_ms: u64) -> VolumeApplications {
    let (state, problem, age_ms) = match objects.looked() {
        Looked::Never => ("waiting", None, None),
        Looked::Now => ("looking", None, None),
        Looked::At(at_ms) => ("found", None, Some(now_ms.saturating_sub(*at_ms))),
        Looked::Failed(_, problem) => ("failed", Some(problem.clone()), None),
    };
    let (unknown, all) = objects.unknown();
    let used = |uses: insight::objects::Uses| uses.read_blocks + uses.written_blocks;
    let found = objects.found();
    let blind = found.into_iter().flat_map(|found| &found.blind).map(|blind| BlindView {
        start_bytes: blind.bytes.start,
        end_bytes: blind.bytes.end,
        reason: blind.reason.to_string(),
    });
    let application = |found: &Found, application: &Application| {
        let of = || found.objects.iter().filter(|object| object.application == application.id);
        let databases = found.databases.iter().filter(|database| database.application == application.id);
        ApplicationView {
            id: application.id.0,
            engine: application.engine.title().into(),
            version: application.version.clone(),
            instance: application.instance.as_ref().map(|instance| format!("/{instance}")),
            evidence: application.known_by(),
            objects: of().count() as u64,
            bytes: of().map(|object| object.bytes).sum(),
            databases: databases
                .map(|database| DatabaseView { name: database.name.clone(), objects: database.objects.into(), bytes: database.bytes })
                .collect(),
            connection: None,
        }
    };
    VolumeApplications {
        volume: name.into(),
        state: state.into(),
        problem,
        age_ms,
        looked_at_bytes: if *objects.looked() == Looked::Now { objects.looking_bytes() } else { found.map_or(0, |found| found.bytes_read) },
        complete: found.is_some_and(|found| found.complete),
        blind: blind.collect(),
        unknown_percent: (used(all) >= PART_FROM_BLOCKS).then(|| (used(unknown) / used(all) * 1000.0).round() / 10.0),
        applications: found.map_or_else(Vec::new, |found| found.applications.iter().map(|one| application(found, one)).collect()),
    }
}
