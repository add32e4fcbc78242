//! `hearth app` and `hearth object`: what lies on volumes, and how it is treated.

use crate::cli::{App, Object, ObjectList, ObjectPreload, ObjectSet};
use crate::commands::Session;
use crate::failure::Failure;
use crate::progress::{begin, follow};
use crate::quantity;
use crate::request;
use crate::table::{self, Align};
use api::human;
use api::names::Named;
use api::{self, AnalysisView, ApplicationView, Connected, Done, JobView, ObjectView, PolicyDone, PreloadView, VolumeApplications};

/// Objects told where nothing else is asked.
const TOLD: u64 = 40;
/// Most that the daemon tells at once: asked for by 0.
const TOLD_MAX: u64 = 100_000;
/// Objects shown of an application.
const OF_APP: u64 = 20;

impl Session {
    /// `hearth app ...`.
    ///
    /// # Errors
    /// With the sentence to print.
    pub fn app(&self, command: &App) -> Result<(), Failure> {
        match command {
            App::List { volume } => {
                let told: Vec<VolumeApplications> = self.client.get(&applications_of(volume.as_deref())?)?;
                self.check_watched(told.is_empty())?;
                self.print(&told, |told| list(told))
            }
            App::Show { app } => {
                let told: Vec<VolumeApplications> = self.client.get("/applications")?;
                let (of, one) = the_one(&told, app)?;
                let path = format!("/objects?volume={}&application={}&limit={OF_APP}", of.volume, one.id);
                let objects: Vec<ObjectView> = self.client.get(&path)?;
                self.print(one, |one| show_app(of, one, &objects))
            }
            App::Connect { app, login } => {
                let told: Vec<VolumeApplications> = self.client.get("/applications")?;
                let (of, one) = the_one(&told, app)?;
                let login = std::path::absolute(login).unwrap_or_else(|_| login.clone());
                let body = api::AppConnect { login: login.display().to_string(), volume: Some(of.volume.clone()) };
                let done: Connected =
                    begin(&self.interrupt, || self.client.send("POST", &format!("/applications/{}/connect", one.id), &body))?;
                match done.job.clone().filter(|_| !self.json) {
                    Some(job) => {
                        crate::commands::print(&connected(&done))?;
                        self.finish(job)
                    }
                    None => self.print(&done, connected),
                }
            }
            App::Disconnect { app } => {
                let told: Vec<VolumeApplications> = self.client.get("/applications")?;
                // A number may be of one that is not found at present.
                let (id, volume) = match (the_one(&told, app), app.parse()) {
                    (Ok((of, one)), _) => (one.id, Some(of.volume.clone())),
                    (Err(_), Ok(id)) => (id, None),
                    (Err(failure), Err(_)) => return Err(failure),
                };
                let done: Done = self.client.send("POST", &format!("/applications/{id}/disconnect"), &api::AppDisconnect { volume })?;
                self.print(&done, |done| done.summary.clone().map_or_else(String::new, |told| told + "\n"))
            }
            App::Discover { volume } => {
                let volumes = match volume {
                    Some(volume) => vec![request::name(Named::Volume, volume)?.to_string()],
                    None => {
                        let watched: Vec<AnalysisView> = self.client.get("/analyses")?;
                        watched.into_iter().filter(|one| !one.named).map(|one| one.name).collect()
                    }
                };
                self.check_watched(volumes.is_empty())?;
                if volumes.is_empty() {
                    return Err(Failure::failed("no volume is watched", "start one with `hearth volume start`"));
                }
                for name in volumes {
                    let job: JobView = begin(&self.interrupt, || self.client.post(&format!("/volumes/{name}/discover")))?;
                    follow(&self.client, &self.interrupt, job)?;
                }
                let told: Vec<VolumeApplications> = self.client.get(&applications_of(volume.as_deref())?)?;
                self.print(&told, |told| list(told))
            }
        }
    }

    /// `hearth object ...`.
    ///
    /// # Errors
    /// With the sentence to print.
    pub fn object(&self, command: &Object) -> Result<(), Failure> {
        match command {
            Object::List(wanted) => {
                let objects: Vec<ObjectView> = self.client.get(&objects_of(wanted)?)?;
                self.check_watched(objects.is_empty())?;
                self.print(&objects, |objects| self::objects(objects))
            }
            Object::Show { object, app } => {
                let app = app.as_ref().map_or_else(String::new, |app| format!("&application={}", request::encoded(app)));
                let objects: Vec<ObjectView> = self.client.get(&format!("/objects?object={}{app}", request::encoded(object)))?;
                self.print(&objects, |objects| objects.iter().map(show_object).collect::<Vec<_>>().join("\n"))
            }
            Object::Set(set) => {
                let done: PolicyDone = self.client.send("POST", "/objects/policy", &body_of(set)?)?;
                self.print(&done, |done| policy_done(done, set.reset))
            }
            Object::Preload(asked) => {
                let body = preload_of(asked)?;
                let told: PreloadView = begin(&self.interrupt, || self.client.send("POST", "/objects/preload", &body))?;
                match told.job.clone() {
                    Some(job) => {
                        if !self.json {
                            crate::commands::print(&format!("{}\n", told.sentence()))?;
                        }
                        self.finish(job)
                    }
                    None => self.print(&told, |told| format!("{}\nnothing was read\n", told.sentence())),
                }
            }
        }
    }
}

/// The application of that number or data directory.
fn the_one<'a>(told: &'a [VolumeApplications], app: &str) -> Result<(&'a VolumeApplications, &'a ApplicationView), Failure> {
    let wanted = app.trim_start_matches('/');
    let is_it = |one: &ApplicationView| {
        wanted.parse() == Ok(one.id) || one.instance.as_deref().map(|path| path.trim_start_matches('/')) == Some(wanted)
    };
    let found = told.iter().flat_map(|of| of.applications.iter().filter(|one| is_it(one)).map(move |one| (of, one)));
    let found: Vec<_> = found.collect();
    match found[..] {
        [one] => Ok(one),
        [] => Err(Failure::failed(format!("there is no application \"{app}\""), "list them with `hearth app list`")),
        _ => {
            let several = format!("\"{app}\" may mean {} applications", found.len());
            Err(Failure::failed(several, "give its number; see `hearth app list`"))
        }
    }
}

fn connected(done: &Connected) -> String {
    let mut text = format!("connected to {} as {}: {} read\n", done.server, done.user, types::counted(done.names, "name"));
    for sentence in &done.sentences {
        text += &format!("{sentence}\n");
    }
    if done.job.is_none() {
        text += "they are put to the objects when the look at the volume that is under way has ended\n";
    }
    text
}

fn applications_of(volume: Option<&str>) -> Result<String, Failure> {
    Ok(match volume {
        Some(volume) => format!("/applications?volume={}", request::name(Named::Volume, volume)?),
        None => "/applications".into(),
    })
}

fn objects_of(wanted: &ObjectList) -> Result<String, Failure> {
    let limit = match wanted.limit {
        None => TOLD,
        Some(0) => TOLD_MAX,
        Some(count) if count > TOLD_MAX => {
            return Err(Failure::usage(format!("--limit {count} is more than {TOLD_MAX}"), "give 0 for as many as can be listed"));
        }
        Some(count) => count,
    };
    let mut path = format!("/objects?limit={limit}");
    if let Some(volume) = &wanted.volume {
        path += &format!("&volume={}", request::name(Named::Volume, volume)?);
    }
    for (name, value) in [("application", &wanted.app), ("kind", &wanted.kind), ("sort", &wanted.sort)] {
        if let Some(value) = value {
            path += &format!("&{name}={}", request::encoded(value));
        }
    }
    Ok(path)
}

fn body_of(set: &ObjectSet) -> Result<api::ObjectSet, Failure> {
    Ok(api::ObjectSet {
        objects: set.objects.clone(),
        volume: set.volume.as_deref().map(|volume| request::name(Named::Volume, volume).map(Into::into)).transpose()?,
        application: set.app.clone(),
        kind: set.kind.clone(),
        admit: set.admit.clone(),
        writes: set.write.clone(),
        on_scan: set.on_scan.clone(),
        reset: set.reset,
    })
}

fn preload_of(asked: &ObjectPreload) -> Result<api::ObjectPreload, Failure> {
    let size = |option, text: &Option<String>| text.as_deref().map(|text| quantity::size(option, text)).transpose();
    Ok(api::ObjectPreload {
        objects: asked.objects.clone(),
        volume: asked.volume.as_deref().map(|volume| request::name(Named::Volume, volume).map(Into::into)).transpose()?,
        application: asked.app.clone(),
        kind: asked.kind.clone(),
        budget_bytes: size("--budget", &asked.budget)?,
        rate_bytes_s: size("--rate", &asked.rate)?,
        dry_run: asked.dry_run,
    })
}

fn list(told: &[VolumeApplications]) -> String {
    if told.is_empty() {
        return "no volume is watched: start one with `hearth volume start`\n".into();
    }
    let head = [
        ("ID", Align::Right),
        ("VOLUME", Align::Left),
        ("APPLICATION", Align::Left),
        ("WHERE", Align::Left),
        ("OBJECTS", Align::Right),
        ("SIZE", Align::Right),
        ("KNOWN BY", Align::Left),
    ];
    let row = |of: &VolumeApplications, one: &ApplicationView| {
        vec![
            one.id.to_string(),
            of.volume.clone(),
            one.version.clone().unwrap_or_else(|| one.engine.clone()),
            one.instance.clone().unwrap_or_else(|| "no known file system".into()),
            one.objects.to_string(),
            human::bytes(one.bytes),
            one.evidence.clone(),
        ]
    };
    let rows: Vec<_> = told.iter().flat_map(|of| of.applications.iter().map(|one| row(of, one))).collect();
    let mut text = if rows.is_empty() { String::new() } else { table::layout(&head, &rows) };
    for of in told {
        text += &state(of);
    }
    text
}

/// What is to be known of a volume beside its applications.
fn state(of: &VolumeApplications) -> String {
    let name = &of.volume;
    let mut text = match of.state.as_str() {
        "waiting" => format!("{name}: not looked at yet\n"),
        "looking" => format!("{name}: being looked at, {} read so far\n", human::bytes(of.looked_at_bytes)),
        "failed" => format!("{name}: {}\n", of.problem.clone().unwrap_or_default()),
        _ if of.applications.is_empty() => format!("{name}: no database was found\n"),
        _ => String::new(),
    };
    for blind in &of.blind {
        let (from, to) = (human::bytes(blind.start_bytes), human::bytes(blind.end_bytes));
        text += &format!("{name}: nothing has a name from {from} to {to}: {}\n", blind.reason);
    }
    if let Some(percent) = of.unknown_percent.filter(|_| !of.applications.is_empty()) {
        text += &format!("{name}: {percent} % of what is read and written belongs to nothing known\n");
    }
    text
}

fn show_app(of: &VolumeApplications, one: &ApplicationView, top: &[ObjectView]) -> String {
    let mut pairs = vec![
        ("application", one.version.clone().unwrap_or_else(|| one.engine.clone())),
        ("number", one.id.to_string()),
        ("volume", of.volume.clone()),
        ("where", one.instance.clone().unwrap_or_else(|| "no known file system".into())),
        ("known by", one.evidence.clone()),
        ("objects", format!("{}, {}", one.objects, human::bytes(one.bytes))),
    ];
    if let Some(age_ms) = of.age_ms {
        pairs.push(("looked at", format!("{} ago", human::seconds(age_ms / 1000))));
    }
    if let Some(connection) = &one.connection {
        let as_whom = match (&connection.user, &connection.login) {
            (Some(user), Some(login)) => format!("as {user} with {login}"),
            (None, Some(login)) => format!("with {login}, no answer yet"),
            _ => "yes".into(),
        };
        pairs.push(("connected", as_whom));
        if connection.problem.is_none() && connection.server.is_some() {
            let programs = if connection.programs { "" } else { ", without their programs" };
            pairs.push(("sessions", format!("{}{programs}", connection.sessions)));
        }
        if let Some(problem) = &connection.problem {
            pairs
                .push(("problem", [Some(problem.clone()), connection.remedy.clone()].into_iter().flatten().collect::<Vec<_>>().join("; ")));
        }
    }
    let mut text = table::pairs(&pairs);
    if !one.databases.is_empty() {
        let head = [("DATABASE", Align::Left), ("OBJECTS", Align::Right), ("SIZE", Align::Right)];
        let row = |database: &api::DatabaseView| vec![database.name.clone(), database.objects.to_string(), human::bytes(database.bytes)];
        text += "\n";
        text += &table::layout(&head, &one.databases.iter().map(row).collect::<Vec<_>>());
    }
    text += "\n";
    text + &objects(top)
}

fn objects(told: &[ObjectView]) -> String {
    if told.is_empty() {
        return "no objects: see `hearth app list` for what was found, and `hearth app discover` to look again\n".into();
    }
    let several = told.iter().any(|one| one.volume != told[0].volume);
    let mut head = vec![
        ("ID", Align::Right),
        ("OBJECT", Align::Left),
        ("KIND", Align::Left),
        ("SIZE", Align::Right),
        ("READ", Align::Right),
        ("HITS", Align::Right),
        ("WRITTEN", Align::Right),
        ("POLICY", Align::Left),
    ];
    if several {
        head.insert(1, ("VOLUME", Align::Left));
    }
    // Copies of a database have the same names.
    let mut names = std::collections::BTreeSet::new();
    let apart = told.iter().any(|one| !names.insert((&one.volume, &one.name)));
    if apart {
        head.push(("OF", Align::Left));
    }
    let row = |one: &ObjectView| {
        let mut row = vec![
            one.id.to_string(),
            if one.being_built { format!("{} (a table being rebuilt)", one.name) } else { one.name.clone() },
            one.kind.clone(),
            if one.within.is_some() { "in its table".into() } else { human::bytes(one.bytes) },
            human::bytes(one.read_bytes),
            one.hits_percent.map_or("-".into(), |percent| format!("{percent:.0} %")),
            human::bytes(one.written_bytes),
            policy(one),
        ];
        if several {
            row.insert(1, one.volume.clone());
        }
        if apart {
            row.push(one.instance.clone().unwrap_or_else(|| "-".into()));
        }
        row
    };
    table::layout(&head, &told.iter().map(row).collect::<Vec<_>>())
}

/// A policy in a few words.
fn policy(one: &ObjectView) -> String {
    let mut words = Vec::new();
    if one.admit != "normal" {
        words.push(one.admit.clone());
    }
    if one.writes != "inherit" {
        words.push(format!("writes {}", one.writes));
    }
    if one.on_scan != "hit-only" {
        words.push("scans let in".into());
    }
    match (words.is_empty(), one.policy.as_str()) {
        (true, "rule") => "normal (rule)".into(),
        (true, _) => "-".into(),
        (false, "rule") => words.join(", "),
        (false, _) => format!("{} (default)", words.join(", ")),
    }
}

/// Its part of the volume's hits with a small SSD, a middling one and a large one.
fn brings(one: &ObjectView) -> String {
    let Some(last) = one.curve.len().checked_sub(1) else { return String::new() };
    let told = [0, last / 2, last]
        .map(|at| &one.curve[at])
        .map(|point| format!("{:.1} % with {} of SSD", point.hits_percent, human::bytes(point.ssd_bytes)));
    format!("of the reads of blocks used before on {}: {}", one.volume, told.join(", "))
}

fn show_object(one: &ObjectView) -> String {
    let mut pairs = vec![
        ("object", one.name.clone()),
        ("number", one.id.to_string()),
        ("kind", format!("{} of {}", one.kind, one.engine)),
        ("volume", one.volume.clone()),
        ("of", one.instance.clone().unwrap_or_default()),
        ("database", one.database.clone().unwrap_or_default()),
        ("lies in", one.within.clone().unwrap_or_default()),
        ("file", if one.path.is_empty() { String::new() } else { format!("/{}", one.path.trim_start_matches('/')) }),
        (
            "size",
            if one.within.is_some() {
                String::new()
            } else {
                format!("{} in {}", human::bytes(one.bytes), types::counted(one.extents.into(), "extent"))
            },
        ),
        ("known by", one.evidence.clone()),
        ("encrypted", if one.encrypted { "yes: its pages do not say what they are".into() } else { String::new() }),
        ("read", human::bytes(one.read_bytes)),
        ("hits", one.hits_percent.map(|percent| format!("{percent} %")).unwrap_or_default()),
        ("brings", brings(one)),
        ("written", human::bytes(one.written_bytes)),
        ("policy", format!("admit {}, writes {}, scans {} ({})", one.admit, one.writes, one.on_scan, one.policy)),
    ];
    pairs.retain(|(_, value)| !value.is_empty());
    table::pairs(&pairs)
}

fn policy_done(done: &PolicyDone, reset: bool) -> String {
    let what = types::counted(done.objects, "object");
    let mut text = if reset {
        format!("{what}: the default holds again\n")
    } else {
        // Indexes that lie in the files of their tables have no bytes of their own.
        let size = if done.bytes > 0 { format!(" ({})", human::bytes(done.bytes)) } else { String::new() };
        format!("{what}{size}: the policy is in force\n")
    };
    for sentence in &done.sentences {
        text += &format!("{sentence}\n");
    }
    text
}
