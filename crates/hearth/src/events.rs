//! `hearth events`: what happened to pools, volumes and disks.

use crate::cli::Events;
use crate::commands::{Session, print};
use crate::failure::Failure;
use crate::request;
use api::human;
use api::names::Named;
use api::{DiskView, EventView, PoolView, Severity, VolumeView};

/// Which events are shown.
struct Wanted<'a> {
    name: Option<&'a str>,
    least: Severity,
}

impl Wanted<'_> {
    fn includes(&self, event: &EventView) -> bool {
        self.name.is_none_or(|name| event.object == name) && rank(event.severity) >= rank(self.least)
    }
}

fn rank(severity: Severity) -> u8 {
    match severity {
        Severity::Info => 0,
        Severity::Warning => 1,
        Severity::Error => 2,
    }
}

fn severity(word: Option<&str>) -> Result<Severity, Failure> {
    match word {
        None | Some("info") => Ok(Severity::Info),
        Some("warning") => Ok(Severity::Warning),
        Some("error") => Ok(Severity::Error),
        Some(_) => Err(Failure::usage("--severity is none of info, warning and error", "give one of them")),
    }
}

/// One line.
fn line(event: &EventView) -> String {
    let word = match event.severity {
        Severity::Info => "",
        Severity::Warning => "WARNING: ",
        Severity::Error => "ERROR: ",
    };
    format!("{}  {}: {word}{}\n", human::moment(event.unix_s), event.object, event.message)
}

/// The latest `limit` (0 for all) of those that are wanted, oldest first.
fn latest<'a>(events: &'a [EventView], wanted: &Wanted<'_>, limit: usize) -> Vec<&'a EventView> {
    let all: Vec<&EventView> = events.iter().filter(|event| wanted.includes(event)).collect();
    let skipped = if limit == 0 { 0 } else { all.len().saturating_sub(limit) };
    all[skipped..].to_vec()
}

impl Session {
    /// `hearth events`.
    ///
    /// # Errors
    /// With the sentence to print.
    pub fn events(&self, options: &Events) -> Result<(), Failure> {
        let name = options.name.as_deref().map(|name| request::name(Named::Volume, name)).transpose()?;
        let wanted = Wanted { name, least: severity(options.severity.as_deref())? };
        let kept: Vec<EventView> = self.client.get("/events")?;
        if let Some(name) = name.filter(|name| kept.iter().all(|event| event.object != **name)) {
            self.check_exists(name)?;
        }
        let shown = latest(&kept, &wanted, options.limit);
        if options.follow {
            shown.into_iter().try_for_each(|event| self.tell_event(event))?;
            return self.follow_events(&wanted, kept.last().map_or(0, |event| event.number));
        }
        let none = if name.is_some() { "no events of that name\n" } else { "no events\n" };
        let text = |shown: &Vec<&EventView>| {
            let lines: String = shown.iter().map(|event| line(event)).collect();
            if lines.is_empty() { none.to_owned() } else { lines }
        };
        self.print(&shown, text)
    }

    /// Refuses a name that nothing has.
    fn check_exists(&self, name: &str) -> Result<(), Failure> {
        let (pools, volumes): (Vec<PoolView>, Vec<VolumeView>) = (self.client.get("/pools")?, self.client.get("/volumes")?);
        let disks: Vec<DiskView> = self.client.get("/disks")?;
        let mut names = pools.iter().map(|pool| &pool.name).chain(volumes.iter().map(|volume| &volume.name));
        if names.any(|known| known == name) || disks.iter().any(|disk| disk.name == name) {
            return Ok(());
        }
        let problem = format!("there is no pool, volume or disk \"{name}\", and no event of one");
        Err(Failure::failed(problem, "see all events with `hearth events`"))
    }

    /// One object or line an event, so that it can be piped.
    fn tell_event(&self, event: &EventView) -> Result<(), Failure> {
        if self.json {
            let line = serde_json::to_string(event).expect("an event can be written as JSON");
            return print(&(line + "\n"));
        }
        print(&line(event))
    }

    /// Goes on until Ctrl-C, or the daemon ends.
    fn follow_events(&self, wanted: &Wanted<'_>, after: u64) -> Result<(), Failure> {
        for next in self.client.stream("/stream", Some(after)) {
            let next = next?;
            if next.event != "event" {
                continue;
            }
            let event: EventView = serde_json::from_str(&next.data)
                .map_err(|e| Failure::failed(format!("the daemon sent an event that is none ({e})"), ""))?;
            if wanted.includes(&event) {
                self.tell_event(&event)?;
            }
        }
        Err(Failure::failed("the daemon has ended", "start it, then try again"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: u64, severity: Severity, object: &str) -> EventView {
        EventView { number, unix_s: 1_795_375_500 + number, severity, object: object.into(), message: "it started".into() }
    }

    #[test]
    fn the_latest_that_are_wanted_are_shown() {
        let all = [
            event(1, Severity::Info, "v"),
            event(2, Severity::Error, "w"),
            event(3, Severity::Warning, "v"),
            event(4, Severity::Info, "v"),
        ];
        let numbers = |name: Option<&str>, least: Severity, limit: usize| -> Vec<u64> {
            latest(&all, &Wanted { name, least }, limit).iter().map(|event| event.number).collect()
        };
        assert_eq!(numbers(None, Severity::Info, 0), [1, 2, 3, 4]);
        assert_eq!(numbers(None, Severity::Info, 2), [3, 4]);
        assert_eq!(numbers(Some("v"), Severity::Info, 2), [3, 4]);
        assert_eq!(numbers(None, Severity::Warning, 0), [2, 3]);
        assert_eq!(numbers(Some("v"), Severity::Error, 5), [0u64; 0]);
    }

    #[test]
    fn a_line_tells_when_of_what_and_how_grave() {
        assert_eq!(line(&event(0, Severity::Info, "v")), "2026-11-22 19:25:00 UTC  v: it started\n");
        assert_eq!(line(&event(3, Severity::Error, "p")), "2026-11-22 19:25:03 UTC  p: ERROR: it started\n");
        assert_eq!(severity(Some("grave")).expect_err("it is no word").status, 2);
    }
}
