//! Rules of the user, and what a login shows of sessions: they go before everything that is
//! inferred.
//!
//! A rule names a process, a session's program, a client or a cgroup, and a class. The part
//! that sees processes and sessions asks [`Rules::first`] once for each and tells [`Origins`]; a
//! request then costs one look-up by number. Threads serve one session after the other, so a class
//! is given to an origin *for a time*, never for good.

use super::seen::OriginSlot;
use crate::dialects;
use types::StreamClass;

/// Rules that a volume can have.
pub const RULES_MAX: usize = 128;
/// Origins that have a class at a time.
pub const ORIGINS_MAX: usize = 256;
/// The kernel keeps so many bytes of a process's name.
const PROCESS_NAME_BYTES: usize = 15;

/// What a rule looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// The name of the process or thread, as the kernel has it (15 bytes).
    Process,
    /// The program of a database session: MySQL's `program_name`, PostgreSQL's `application_name`
    /// or `backend_type`.
    Session,
    /// The client or initiator that an export serves: its address.
    Client,
    /// The path of the control group.
    Cgroup,
}

/// One rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// What it looks at.
    pub subject: Subject,
    /// What it must be; `*` at the end stands for anything.
    pub pattern: String,
    /// The class that such requests get.
    pub class: StreamClass,
}

impl Subject {
    /// The word used on the command line, in JSON and in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Subject::Process => "process",
            Subject::Session => "session",
            Subject::Client => "client",
            Subject::Cgroup => "cgroup",
        }
    }

    /// The one of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Subject> {
        [Subject::Process, Subject::Session, Subject::Client, Subject::Cgroup].into_iter().find(|subject| subject.name() == name)
    }
}

impl Rule {
    fn fits(&self, name: &str) -> bool {
        match self.pattern.strip_suffix('*') {
            Some(beginning) => name.starts_with(self.cut(beginning)),
            None => name == self.cut(&self.pattern),
        }
    }

    /// As much of it as the kernel keeps.
    fn cut<'a>(&self, text: &'a str) -> &'a str {
        match self.subject {
            Subject::Process => {
                let end = (0..=PROCESS_NAME_BYTES.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
                &text[..end.unwrap_or(0)]
            }
            _ => text,
        }
    }
}

/// Who sends requests, as far as that is known.
#[derive(Clone, Copy, Default, Debug)]
pub struct Described<'a> {
    /// See [`Subject::Process`].
    pub process: Option<&'a str>,
    /// See [`Subject::Session`].
    pub session: Option<&'a str>,
    /// See [`Subject::Client`].
    pub client: Option<&'a str>,
    /// See [`Subject::Cgroup`].
    pub cgroup: Option<&'a str>,
}

/// Rules in their order; the first that fits holds.
#[derive(Clone, Default, Debug)]
pub struct Rules {
    rules: Vec<Rule>,
}

impl Rules {
    /// Those rules; `None` if there are more than [`RULES_MAX`].
    pub fn new(rules: Vec<Rule>) -> Option<Rules> {
        (rules.len() <= RULES_MAX).then_some(Rules { rules })
    }

    /// The programs that are known to make backups and copies, for use after the user's own.
    ///
    /// Each database knows its own, by the names that they give themselves.
    pub fn usual() -> Rules {
        let of_databases = |subject| dialects::facts().flat_map(|facts| facts.programs).copied().filter(move |one| one.0 == subject);
        let tools = ["restic", "borg"].map(|name| (Subject::Process, name, StreamClass::Backup));
        let copies = ["cp", "tar", "rsync", "dd"].map(|name| (Subject::Process, name, StreamClass::Scan));
        let all = of_databases(Subject::Process).chain(tools).chain(copies).chain(of_databases(Subject::Session));
        Rules { rules: all.map(|(subject, name, class)| Rule { subject, pattern: name.into(), class }).collect() }
    }

    /// Those rules, and then others: numbers go on.
    #[must_use]
    pub fn and(mut self, others: Rules) -> Rules {
        self.rules.extend(others.rules);
        self
    }

    /// A rule by its number.
    pub fn get(&self, number: u16) -> Option<&Rule> {
        self.rules.get(usize::from(number))
    }

    /// The first rule that fits, by its number, and its class.
    pub fn first(&self, who: &Described) -> Option<(u16, StreamClass)> {
        let fits = |rule: &&Rule| {
            let name = match rule.subject {
                Subject::Process => who.process,
                Subject::Session => who.session,
                Subject::Client => who.client,
                Subject::Cgroup => who.cgroup,
            };
            name.is_some_and(|name| rule.fits(name))
        };
        let number = self.rules.iter().position(|rule| fits(&rule))?;
        Some((u16::try_from(number).ok()?, self.rules[number].class))
    }
}

#[derive(Clone, Copy, Debug)]
struct Given {
    origin: OriginSlot,
    from_ms: u64,
    until_ms: u64,
    rule: u16,
    class: StreamClass,
}

/// The origins that have a class now.
#[derive(Debug)]
pub struct Origins {
    given: Vec<Given>,
}

impl Default for Origins {
    fn default() -> Origins {
        Origins { given: Vec::with_capacity(ORIGINS_MAX) }
    }
}

impl Origins {
    /// From then on requests of that origin are of that class, until [`Origins::release`]. When
    /// [`ORIGINS_MAX`] have one, the one that was given first loses it.
    pub fn give(&mut self, origin: OriginSlot, from_ms: u64, class: StreamClass, rule: u16) {
        self.given.retain(|given| given.until_ms > from_ms && given.origin != origin);
        if self.given.len() == ORIGINS_MAX {
            self.given.remove(0);
        }
        self.given.push(Given { origin, from_ms, until_ms: u64::MAX, rule, class });
    }

    /// No origin has a class any more.
    pub fn clear(&mut self) {
        self.given.clear();
    }

    /// The session of that origin ended then.
    pub fn release(&mut self, origin: OriginSlot, at_ms: u64) {
        for given in self.given.iter_mut().filter(|given| given.origin == origin) {
            given.until_ms = given.until_ms.min(at_ms);
        }
    }

    /// The class of a request, and the rule that gave it.
    pub fn class_of(&self, origin: OriginSlot, at_ms: u64) -> Option<(StreamClass, u16)> {
        let given = self.given.iter().find(|given| given.origin == origin)?;
        (given.from_ms..given.until_ms).contains(&at_ms).then_some((given.class, given.rule))
    }

    /// Memory held, in bytes.
    pub fn bytes(&self) -> usize {
        self.given.capacity() * size_of::<Given>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_fits_holds() {
        let rule = |subject, pattern: &str, class| Rule { subject, pattern: pattern.into(), class };
        let rules = Rules::new(vec![
            rule(Subject::Cgroup, "/batch/*", StreamClass::Maintenance),
            rule(Subject::Process, "a-name-longer-than-fifteen", StreamClass::Scan),
            rule(Subject::Process, "iou-wrk-*", StreamClass::Replication),
        ])
        .expect("few");
        for (process, cgroup, expected) in [
            ("cp", Some("/batch/nightly"), Some((0, StreamClass::Maintenance))),
            ("a-name-longer-t", None, Some((1, StreamClass::Scan))),
            ("iou-wrk-10215", Some("/batchful"), Some((2, StreamClass::Replication))),
            ("mariadbd", None, None),
        ] {
            let who = Described { process: Some(process), cgroup, ..Described::default() };
            assert_eq!(rules.first(&who), expected, "{process}");
        }
        assert!(Rules::new(vec![rule(Subject::Session, "x", StreamClass::Scan); RULES_MAX + 1]).is_none());
    }

    #[test]
    fn the_usual_programs_are_known() {
        let dump = Described { process: Some("mariadbd"), session: Some("mariadb-dump"), ..Described::default() };
        assert_eq!(Rules::usual().first(&dump).map(|found| found.1), Some(StreamClass::Backup));
        let server = Described { process: Some("mariadbd"), ..Described::default() };
        assert_eq!(Rules::usual().first(&server), None);
    }

    #[test]
    fn a_thread_has_a_class_for_a_time_only() {
        let mut origins = Origins::default();
        let thread = OriginSlot(9926);
        origins.give(thread, 100, StreamClass::Backup, 3);
        assert_eq!(origins.class_of(thread, 99), None);
        assert_eq!(origins.class_of(thread, 100), Some((StreamClass::Backup, 3)));
        origins.release(thread, 200);
        assert_eq!(origins.class_of(thread, 200), None);
        assert_eq!(origins.class_of(OriginSlot(1), 150), None);
        for other in 0..2 * ORIGINS_MAX as u32 {
            origins.give(OriginSlot(other), 300, StreamClass::Scan, 0);
        }
        assert_eq!(origins.given.len(), ORIGINS_MAX);
        assert_eq!(origins.class_of(OriginSlot(511), 300), Some((StreamClass::Scan, 0)));
    }
}
