//! Rules for streams: whose requests are a backup, a scan, or the application's whatever they look like.

use super::Manager;
use api::error::ControlError;
use api::{StreamRuleNew, StreamRuleView, StreamRules};
use applications::streams::rules::RULES_MAX;
use applications::streams::{Rule, Rules, Subject};
use records::state::StreamRule;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use types::StreamClass;

/// Letters of a pattern.
const PATTERN_MAX: usize = 256;
/// Classes that a rule may give: the others are known by what is written.
const CLASSES: [StreamClass; 5] =
    [StreamClass::Application, StreamClass::Scan, StreamClass::Backup, StreamClass::Replication, StreamClass::Maintenance];

fn view(id: Option<u64>, rule: &Rule) -> StreamRuleView {
    StreamRuleView { id, subject: rule.subject.name().into(), pattern: rule.pattern.clone(), class: rule.class.name().into() }
}

fn rule_of(rule: &StreamRule) -> Rule {
    Rule { subject: rule.subject, pattern: rule.pattern.clone(), class: rule.class }
}

fn bad(option: &'static str, problem: String, remedy: &str) -> ControlError {
    ControlError::BadOption { option, problem, remedy: remedy.into() }
}

const fn option(subject: Subject) -> &'static str {
    match subject {
        Subject::Process => "--process",
        Subject::Session => "--session",
        Subject::Client => "--client",
        Subject::Cgroup => "--cgroup",
    }
}

/// Refuses what can never fit.
fn check_form(subject: Subject, pattern: &str) -> Result<(), ControlError> {
    let (beginning, is_whole) = pattern.strip_suffix('*').map_or((pattern, true), |beginning| (beginning, false));
    let remedy = match subject {
        Subject::Client if !is_client(beginning, is_whole) => {
            "write an address such as 192.0.2.7 or 2001:db8::7, the beginning of some such as 192.0.2.*, or uid:1000 for who uses the Unix socket"
        }
        Subject::Cgroup if !beginning.starts_with('/') => {
            "write its path from the root of the hierarchy, such as /system.slice/backup.service"
        }
        _ => return Ok(()),
    };
    Err(bad(
        option(subject),
        format!("is \"{pattern}\", which no {} is called", if subject == Subject::Client { "client" } else { "control group" }),
        remedy,
    ))
}

/// Whether a client of an export may be called so, or begin so.
fn is_client(text: &str, is_whole: bool) -> bool {
    if let Some(user) = text.strip_prefix("uid:") {
        return if is_whole { user.parse::<u32>().is_ok() } else { user.bytes().all(|byte| byte.is_ascii_digit()) };
    }
    if is_whole {
        return text.parse::<std::net::IpAddr>().is_ok();
    }
    let is_four = || {
        let parts: Vec<&str> = text.split('.').collect();
        // The last part may be cut short, the others are bytes.
        let ends = parts.len() - 1;
        parts.len() <= 4 && parts.iter().enumerate().all(|(at, part)| part.is_empty() && at == ends || part.parse::<u8>().is_ok())
    };
    let is_six = || text.contains(':') && text.bytes().all(|byte| byte == b':' || byte.is_ascii_hexdigit());
    is_four() || is_six() || "uid:".starts_with(text)
}

impl Manager {
    pub(super) fn stream_rules(&self) -> StreamRules {
        let mut rules: Vec<StreamRuleView> =
            self.memory().state.stream_rules.iter().map(|rule| view(Some(rule.id), &rule_of(rule))).collect();
        let usual = Rules::usual();
        rules.extend((0..).map_while(|number| usual.get(number)).map(|rule| view(None, rule)));
        StreamRules { rules, unseen: self.unseen() }
    }

    pub(super) fn stream_rule_add(&self, new: &StreamRuleNew) -> Result<StreamRuleView, ControlError> {
        let Some(subject) = Subject::from_name(&new.subject) else {
            let problem = format!("looks at \"{}\"", new.subject);
            return Err(bad("--process", problem, "give one of --process, --session, --client and --cgroup"));
        };
        let class = StreamClass::from_name(&new.class).filter(|class| CLASSES.contains(class));
        let Some(class) = class else {
            let problem = format!("is \"{}\"", new.class);
            return Err(bad("--class", problem, "write application, scan, backup, replication or maintenance"));
        };
        let pattern = new.pattern.trim();
        let is_bad = pattern.is_empty() || pattern == "*" || pattern.len() > PATTERN_MAX || pattern.chars().any(char::is_control);
        if is_bad {
            let problem = "matches nothing, or everything".to_string();
            return Err(bad(option(subject), problem, "write a name of 1 to 256 letters; a * at its end stands for anything"));
        }
        check_form(subject, pattern)?;
        let added = self.change(|state| {
            let same = |rule: &&StreamRule| rule.subject == subject && rule.pattern == pattern;
            if let Some(known) = state.stream_rules.iter().find(same) {
                return Err(known.id);
            }
            if state.stream_rules.len() >= RULES_MAX {
                return Err(0);
            }
            let id = state.next_stream_rule.max(1);
            state.next_stream_rule = id + 1;
            let rule = StreamRule { id, subject, pattern: pattern.into(), class };
            state.stream_rules.push(rule.clone());
            Ok(rule)
        })?;
        match added {
            Ok(rule) => {
                self.know_stream_rules();
                Ok(view(Some(rule.id), &rule_of(&rule)))
            }
            Err(0) => Err(ControlError::Analysis(
                format!("there are {RULES_MAX} rules for streams already"),
                "take one away with `hearth stream rule remove ID`".into(),
            )),
            Err(id) => Err(ControlError::Analysis(
                format!("rule {id} is for {} {pattern} already", subject.name()),
                format!("take it away first with `hearth stream rule remove {id}`"),
            )),
        }
    }

    pub(super) fn stream_rule_remove(&self, id: u64) -> Result<(), ControlError> {
        let removed = self.change(|state| {
            let before = state.stream_rules.len();
            state.stream_rules.retain(|rule| rule.id != id);
            state.stream_rules.len() < before
        })?;
        if !removed {
            return Err(ControlError::Unknown { named: "stream rule", name: id.to_string() });
        }
        self.know_stream_rules();
        Ok(())
    }

    /// Tells those who watch loads the rules there are.
    pub(super) fn know_stream_rules(&self) {
        let rules: Vec<Rule> = self.memory().state.stream_rules.iter().map(rule_of).collect();
        self.insight().set_stream_rules(&rules);
    }

    /// Tells those who watch loads which sessions there are.
    pub(super) fn know_sessions(&self) {
        let volumes: Vec<String> = self.insight().objects().map(|(name, _)| name.clone()).collect();
        for name in volumes {
            let sessions = self.sessions(&name).into_iter().map(|seen| (seen.thread, seen.program)).collect();
            self.insight().set_sessions(&name, sessions);
        }
    }

    /// Watches the devices of volumes as long as a rule needs to know who asks.
    pub(super) fn keep_witnesses(&self) {
        let places: BTreeMap<String, String> = {
            let memory = self.memory();
            let place = |(name, live): (&String, &super::LiveVolume)| Some((name.clone(), live.block_device()?.1.to_owned()));
            memory.volumes.iter().filter_map(place).collect()
        };
        let due = self.insight().witnesses_due(&places);
        for name in due {
            let opened = device_of(&places[&name]).and_then(|(major, minor)| insight::Witness::open(major, minor));
            self.insight().set_witness(&name, opened);
        }
    }

    /// Why processes cannot be seen, of volumes where a rule asks for it.
    fn unseen(&self) -> Vec<String> {
        let without: Vec<String> = {
            let memory = self.memory();
            memory.volumes.iter().filter(|(_, live)| live.block_device().is_none()).map(|(name, _)| name.clone()).collect()
        };
        let insight = self.insight();
        let mut unseen = insight.unseen();
        if insight.needs_witnesses() {
            let sentence = |name: &String| format!("\"{name}\" is no block device of this machine: no process uses it directly");
            unseen.extend(without.iter().filter(|name| insight.watches(name)).map(sentence));
        }
        unseen
    }
}

fn device_of(path: &str) -> Result<(u32, u32), String> {
    let metadata = std::fs::metadata(path).map_err(|error| format!("{path} cannot be looked at: {error}"))?;
    let number = metadata.rdev();
    Ok((rustix::fs::major(number), rustix::fs::minor(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_never_fit_is_refused() {
        for (subject, pattern) in [
            (Subject::Client, "192.0.2.7"),
            (Subject::Client, "192.0.2.*"),
            (Subject::Client, "192.0.*"),
            (Subject::Client, "2001:db8::7"),
            (Subject::Client, "2001:db8:*"),
            (Subject::Client, "uid:1000"),
            (Subject::Client, "uid:*"),
            (Subject::Cgroup, "/system.slice/backup.service"),
            (Subject::Cgroup, "/night/*"),
            (Subject::Process, "restic"),
            (Subject::Session, "pg_dump"),
        ] {
            check_form(subject, pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
        }
        for (subject, pattern, told) in [
            (Subject::Client, "300.1.1.1", "no client is called"),
            (Subject::Client, "300.*", "no client is called"),
            (Subject::Client, "1.2.3.4.*", "no client is called"),
            (Subject::Client, "uid:x", "no client is called"),
            (Subject::Client, "backup-host", "no client is called"),
            (Subject::Client, "2001:dbg:*", "no client is called"),
            (Subject::Cgroup, "relative", "no control group is called"),
        ] {
            let error = check_form(subject, pattern).expect_err(pattern).to_string();
            assert!(error.contains(told), "{error}");
        }
    }
}
