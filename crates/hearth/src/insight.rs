//! `hearth analysis`, `hearth stream`, `hearth advise`: what loads need.

use crate::cli::{Advise, AdviseCommand, Analysis, AnalysisStart, Stream};
use crate::commands::{Session, print};
use crate::failure::Failure;
use crate::progress::{begin, patiently};
use crate::table::{self, Align};
use crate::{quantity, request};
use api::human;
use api::names::Named;
use api::{
    self, AdviceApplied, AdviceAsk, AdviceObject, AdviceVerified, AdviceView, AnalysisView, DaemonView, Done, StreamView, TargetView,
};
use records::events::unix_s;

/// Objects shown of an advice; JSON has more.
const OBJECTS_SHOWN: usize = 10;

impl Session {
    /// `hearth analysis ...`.
    ///
    /// # Errors
    /// With the sentence to print.
    pub fn analysis(&self, command: &Analysis) -> Result<(), Failure> {
        let path = |name: &str| Ok::<_, Failure>(format!("/analyses/{}", request::name(Named::Analysis, name)?));
        match command {
            Analysis::Start(start) => {
                let analysis: AnalysisView = self.client.send("POST", "/analyses", &body_of(start)?)?;
                self.print(&analysis, started)
            }
            Analysis::List => {
                let analyses: Vec<AnalysisView> = self.client.get("/analyses")?;
                self.check_watched(analyses.is_empty())?;
                self.print(&analyses, |analyses| list(analyses))
            }
            Analysis::Show { name } => self.print(&self.client.get::<AnalysisView>(&path(name)?)?, show),
            Analysis::Stop { name } => {
                let analysis: AnalysisView = self.client.post(&format!("{}/stop", path(name)?))?;
                self.print(&analysis, |analysis| format!("{}; see `hearth advise {}`\n", analysis.state, analysis.name))
            }
            Analysis::Forget { name } => {
                let done: Done = self.client.delete(&path(name)?)?;
                self.print(&done, |_| format!("\"{name}\" is forgotten\n"))
            }
        }
    }

    /// `hearth stream ...`.
    ///
    /// # Errors
    /// With the sentence to print.
    pub fn stream(&self, command: &Stream) -> Result<(), Failure> {
        let name = match command {
            Stream::List { name } => name,
            Stream::Rule(rule) => return self.stream_rule(rule),
        };
        let path = match name {
            Some(name) => format!("/streams?name={}", request::name(Named::Analysis, name)?),
            None => "/streams".into(),
        };
        let told: Vec<StreamView> = self.client.get(&path)?;
        self.check_watched(told.is_empty())?;
        self.print(&told, |told| streams(told))
    }

    /// Where nothing is told because nothing is watched, says that.
    ///
    /// # Errors
    /// With that sentence.
    pub fn check_watched(&self, is_empty: bool) -> Result<(), Failure> {
        if is_empty && !self.json && !self.client.get::<DaemonView>("/daemon")?.insight_enabled {
            let remedy = "set it to true and restart the daemon";
            return Err(Failure::failed("loads are not watched: insight.enabled is false in the configuration", remedy));
        }
        Ok(())
    }

    /// `hearth advise`.
    ///
    /// # Errors
    /// With the sentence to print.
    pub fn advise(&self, advise: &Advise) -> Result<(), Failure> {
        match &advise.command {
            Some(AdviseCommand::Apply { id, dry_run, no_preload }) => {
                let path = format!("/advice/{id}/apply?dry_run={dry_run}&no_preload={no_preload}");
                let done: AdviceApplied = begin(&self.interrupt, || self.client.post(&path))?;
                let job = done.preload.as_ref().and_then(|preload| preload.job.clone());
                return match job {
                    // The last word is what people are to do; JSON is one document.
                    Some(job) if !self.json => {
                        print(&applied(&done))?;
                        self.finish(job)
                    }
                    Some(_) | None => self.print(&done, applied),
                };
            }
            Some(AdviseCommand::Verify { id }) => {
                return self.print(&self.client.get::<AdviceVerified>(&format!("/advice/{id}/verify"))?, verified);
            }
            None => {}
        }
        let ask = AdviceAsk {
            name: advise.name.as_deref().map(|name| request::name(Named::Analysis, name).map(Into::into)).transpose()?,
            targets_percent: advise.target.clone(),
            budget_bytes: advise.budget.as_deref().map(|size| quantity::size("--budget", size)).transpose()?,
            with_backups: advise.with_backups,
        };
        let told: Vec<AdviceView> = patiently("trying caches of several sizes", || self.client.send("POST", "/advice", &ask))?;
        self.print(&told, |told| advice(told))
    }
}

fn body_of(start: &AnalysisStart) -> Result<api::AnalysisStart, Failure> {
    Ok(api::AnalysisStart {
        name: request::name(Named::Analysis, &start.name)?.into(),
        volume: start.volume.as_deref().map(|volume| request::name(Named::Volume, volume).map(Into::into)).transpose()?,
        device: start.device.as_deref().map(|path| request::absolute("--device", path)).transpose()?,
        trace: start.trace.as_deref().map(|path| request::absolute("--trace", path)).transpose()?,
        for_ms: start.span.as_deref().map(|time| quantity::time_ms("--for", time)).transpose()?,
        tap: start.tap.clone(),
        no_read: start.no_read,
        mode: start.mode.clone(),
    })
}

fn started(analysis: &AnalysisView) -> String {
    let how = analysis.tap.as_ref().map_or(String::new(), |tap| format!(" by {tap}, from outside: nothing is written to it"));
    let doing = if analysis.state == "reading" { "reading" } else { "watching" };
    format!("{doing} {}{how}\nsee `hearth advise {}`\n", analysis.of, analysis.name)
}

fn list(analyses: &[AnalysisView]) -> String {
    if analyses.is_empty() {
        return "nothing is watched: no volume is attached; watch a disk with `hearth analysis start NAME --device PATH`\n".into();
    }
    let head = [
        ("NAME", Align::Left),
        ("WATCHES", Align::Left),
        ("STATE", Align::Left),
        ("FOR", Align::Right),
        ("READ", Align::Right),
        ("SCANS", Align::Right),
        ("WRITTEN", Align::Right),
        ("SAMPLE", Align::Right),
    ];
    let row = |analysis: &AnalysisView| {
        vec![
            analysis.name.clone(),
            if analysis.named { format!("{} {}", analysis.source, analysis.of) } else { "the volume".into() },
            analysis.state.clone(),
            human::seconds(analysis.window_ms / 1000),
            human::bytes(analysis.read_bytes),
            human::bytes(analysis.scanned_bytes),
            human::bytes(analysis.written_bytes),
            sample(analysis.sampled_share),
        ]
    };
    table::layout(&head, &analyses.iter().map(row).collect::<Vec<_>>())
}

/// "all", "1 in 32".
fn sample(share: f64) -> String {
    if share > 0.999 { "all".into() } else { format!("1 in {:.0}", 1.0 / share.max(1e-12)) }
}

fn show(analysis: &AnalysisView) -> String {
    let mut pairs = vec![
        ("watches", format!("{} {}", analysis.source, analysis.of)),
        ("state", analysis.state.clone()),
        ("problem", analysis.problem.clone().unwrap_or_default()),
        ("tap", analysis.tap.clone().unwrap_or_default()),
        ("writes as", analysis.mode.clone()),
        ("for", human::seconds(analysis.window_ms / 1000)),
        ("since", since(analysis)),
        ("read", human::bytes(analysis.read_bytes)),
        ("scans", human::bytes(analysis.scanned_bytes)),
        ("written", human::bytes(analysis.written_bytes)),
        ("different blocks", human::bytes(analysis.touched_bytes)),
        ("sample", sample(analysis.sampled_share)),
        ("lost", format!("{} requests", analysis.lost_requests)),
        ("memory", format!("at most {}", human::bytes(analysis.memory_bytes))),
    ];
    pairs.retain(|(key, value)| !value.is_empty() && (*key != "lost" || analysis.lost_requests > 0));
    let mut text = table::pairs(&pairs);
    if !analysis.streams.is_empty() {
        text += "\n";
        text += &streams(&analysis.streams);
    }
    text
}

/// When it began, and what of the time since is not in its window.
fn since(analysis: &AnalysisView) -> String {
    let Some(since_unix_s) = analysis.since_unix_s else { return String::new() };
    let ago = human::seconds(unix_s().saturating_sub(since_unix_s));
    match analysis.away_ms / 1000 {
        0 => format!("{ago} ago"),
        away_s => format!("{ago} ago, but for {} in which hearth did not watch it", human::seconds(away_s)),
    }
}

fn streams(told: &[StreamView]) -> String {
    if told.is_empty() {
        return "no requests yet: reads that the cache answers alone are not looked at\n".into();
    }
    let several = told.iter().any(|line| line.of != told[0].of);
    let mut head = vec![
        ("CLASS", Align::Left),
        ("BECAUSE OF", Align::Left),
        ("WHO", Align::Left),
        ("REQUESTS", Align::Right),
        ("READ PAST CACHE", Align::Right),
        ("WRITTEN", Align::Right),
        ("LAST", Align::Right),
    ];
    if several {
        head.insert(0, ("OF", Align::Left));
    }
    let mut lines: Vec<&StreamView> = told.iter().collect();
    lines.sort_by_key(|line| (line.of.clone(), std::cmp::Reverse(line.read_bytes + line.written_bytes)));
    let row = |line: &&StreamView| {
        let mut row = vec![
            line.class.clone(),
            line.evidence.clone(),
            line.who.clone().unwrap_or_else(|| "-".into()),
            line.requests.to_string(),
            human::bytes(line.read_bytes),
            human::bytes(line.written_bytes),
            format!("{} ago", human::seconds(line.idle_ms / 1000)),
        ];
        if several {
            row.insert(0, line.of.clone());
        }
        row
    };
    table::layout(&head, &lines.iter().map(row).collect::<Vec<_>>())
}

fn advice(told: &[AdviceView]) -> String {
    if told.is_empty() {
        return "nothing is watched: no volume is attached; watch a disk with `hearth analysis start NAME --device PATH`\n".into();
    }
    told.iter().map(one).collect::<Vec<_>>().join("\n")
}

fn one(advice: &AdviceView) -> String {
    let left = match (advice.with_backups, advice.scanned_bytes) {
        (true, _) => ", scans and backups let in".into(),
        (false, 0) => String::new(),
        (false, bytes) => format!(", without scans and backups ({})", human::bytes(bytes)),
    };
    let ram = if advice.ram_bytes > 0 { format!(", beside {} of RAM", human::bytes(advice.ram_bytes)) } else { String::new() };
    let mut text = format!("{}, {} watched{left}{ram}\n", advice.name, human::seconds(advice.window_ms / 1000));
    let (known, missing): (Vec<&TargetView>, Vec<&TargetView>) = advice.targets.iter().partition(|target| target.ssd_bytes.is_some());
    text += &sizes(&known);
    text += &not_yet(&missing);
    text += &of_objects(&advice.objects);
    for sentence in &advice.sentences {
        text += &format!("{sentence}\n");
    }
    if advice.pool.is_some() && (!known.is_empty() || !advice.objects.is_empty()) {
        text += &format!("apply it: hearth advise apply {} --dry-run\n", advice.id);
    }
    text
}

/// The size that each share of hits needs, one line each; nothing if none is known.
fn sizes(known: &[&TargetView]) -> String {
    if known.is_empty() {
        return String::new();
    }
    let head = [
        ("  HITS", Align::Right),
        ("SSD NEEDED", Align::Right),
        ("BAND", Align::Right),
        ("READS TAKE", Align::Right),
        ("SSD WRITES", Align::Right),
    ];
    let row = |target: &&TargetView| {
        let size = |bytes: Option<u64>| bytes.map_or("-".into(), human::bytes);
        if target.ssd_bytes == Some(0) {
            let read = target.read_us.map_or("-".into(), |us| human::nanoseconds((us * 1000.0) as u64));
            return vec![format!("{} %", number(target.hits_percent)), "none: RAM".into(), "-".into(), read, "-".into()];
        }
        vec![
            format!("{} %", number(target.hits_percent)),
            size(target.ssd_bytes),
            format!("{} - {}", size(target.ssd_bytes_low), size(target.ssd_bytes_high)),
            target.read_us.map_or("-".into(), |us| human::nanoseconds((us * 1000.0) as u64)),
            target.ssd_written_bytes_per_day.map_or("-".into(), |bytes| format!("{}/day", human::bytes(bytes))),
        ]
    };
    table::layout(&head, &known.iter().map(row).collect::<Vec<_>>())
}

/// Why the size for a share of hits is not known yet; shares with the same reason are on one line.
fn not_yet(missing: &[&TargetView]) -> String {
    let mut reasons: Vec<(String, Vec<String>, Option<u64>)> = Vec::new();
    for target in missing {
        let why = target.not_yet.clone().unwrap_or_default();
        let share = format!("{} %", number(target.hits_percent));
        match reasons.iter_mut().find(|(known, ..)| *known == why) {
            Some((_, shares, more_ms)) => {
                shares.push(share);
                *more_ms = (*more_ms).max(target.more_ms);
            }
            None => reasons.push((why, vec![share], target.more_ms)),
        }
    }
    let line = |(why, shares, more_ms): (String, Vec<String>, Option<u64>)| {
        let wait = more_ms.map_or(String::new(), |ms| format!("; about {} more", human::seconds((ms / 1000).max(1))));
        format!("{}: not yet: {why}{wait}\n", shares.join(", "))
    };
    reasons.into_iter().map(line).collect()
}

/// What each object takes and brings, one line each; nothing if there is only one.
fn of_objects(objects: &[AdviceObject]) -> String {
    if objects.len() <= 1 {
        return String::new();
    }
    let head = [
        ("  OBJECT", Align::Left),
        ("KIND", Align::Left),
        ("OF THE HITS", Align::Right),
        ("OF THE READS", Align::Right),
        ("TAKES", Align::Right),
        ("ADVICE", Align::Left),
    ];
    let row = |object: &AdviceObject| {
        vec![
            object.volume.as_ref().map_or_else(|| format!("  {}", object.name), |volume| format!("  {volume}: {}", object.name)),
            object.kind.clone(),
            format!("{} %", number(object.hits_percent)),
            format!("{} %", number(object.reads_percent)),
            human::bytes(object.ssd_bytes),
            // What belongs to nothing known cannot be treated.
            if object.id.is_some() { object.advice.clone() } else { "-".into() },
        ]
    };
    table::layout(&head, &objects.iter().take(OBJECTS_SHOWN).map(row).collect::<Vec<_>>())
}

fn applied(done: &AdviceApplied) -> String {
    let mut text: String = done.changes.iter().map(|change| format!("{change}\n")).collect();
    if done.changes.is_empty() {
        text += "nothing is to be changed: objects are treated as they should be\n";
    } else if done.dry_run {
        text += &format!("nothing was changed; make it so with `hearth advise apply {}`\n", done.id);
    }
    for sentence in &done.to_do {
        text += &format!("{sentence}\n");
    }
    if !done.dry_run {
        text += &format!("compare the forecast with what comes: hearth advise verify {}\n", done.id);
    }
    text
}

fn verified(told: &AdviceVerified) -> String {
    let percent = |percent: Option<f64>| percent.map_or("-".into(), |percent| format!("{} %", number(percent)));
    let band = format!("{} to {}", percent(told.forecast_percent_low), percent(told.forecast_percent_high));
    let mut text = table::pairs(&[
        ("volume", told.volume.clone()),
        ("since", format!("{} ago", human::seconds(told.window_ms / 1000))),
        ("forecast", format!("{} of hits, band {band}", percent(told.forecast_percent))),
        ("came", percent(told.measured_percent)),
        ("off by", told.error_points.map_or("-".into(), |points| format!("{points:+} points"))),
    ]);
    for sentence in &told.sentences {
        text += &format!("{sentence}\n");
    }
    text
}

/// "90", "99.9".
fn number(percent: f64) -> String {
    if (percent - percent.round()).abs() < 1e-9 { format!("{percent:.0}") } else { format!("{percent}") }
}
