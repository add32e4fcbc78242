//! Who asks, as far as a tap on the device or a login shows it, and which class the rules give that.
//!
//! Requests carry a number of who sent them: of the thread, where a tap tells. Threads of one process are one
//! origin, unless a rule fits: all that one rule fits are one origin of its own, so a backup that starts a
//! thread for each file is one line of the list of streams.

use applications::streams::{Described, OriginSlot, Origins, Rule, Rules};
use blocktap::{Comm, Event};
use runtime::clients;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Threads that are known at a time, some 150 bytes each.
pub const ASKERS_MAX: usize = 512;
/// What rules' origins begin at; numbers of threads and processes end below (`PID_MAX_LIMIT` of the kernel).
const RULES_FROM: u32 = 1 << 30;
/// Rules whose origins keep a name, those in force and those of before.
const RULES_NAMED_MAX: usize = 1024;
/// Bytes that are kept of a control group's path.
const CGROUP_BYTES_MAX: usize = 256;

/// A thread that asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asker {
    /// Its number, as the requests carry it.
    pub thread: u32,
    /// Its process; itself where that is not told.
    pub process: u32,
    /// Its name, as the kernel has it.
    pub name: String,
    /// The name of its process, as far as it is known.
    pub process_name: Option<String>,
    /// The path of its control group.
    pub cgroup: Option<String>,
    /// It is no thread but a client of an export, by this name.
    pub client: Option<String>,
}

impl Asker {
    /// The thread of an event. Asks the kernel what else is known of it, which may have ended meanwhile.
    pub fn of(event: &Event) -> Asker {
        let process = event.pid.unwrap_or(event.tid);
        let read = |file: &str| std::fs::read(format!("/proc/{process}/{file}")).ok();
        Asker {
            thread: event.tid,
            process,
            name: shown(event.comm.as_bytes()),
            process_name: read("comm").map(|name| shown(&name)).filter(|name| !name.is_empty()),
            cgroup: read("cgroup").and_then(|text| cgroup_of(&text)),
            client: None,
        }
    }
}

impl Asker {
    /// A client of an export.
    fn client(number: u32, name: String) -> Asker {
        Asker { thread: number, process: number, name: name.clone(), process_name: None, cgroup: None, client: Some(name) }
    }
}

/// A name as it may be shown: a program chooses its own.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes.strip_suffix(b"\n").unwrap_or(bytes));
    text.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}

/// The path in the unified hierarchy: `0::/system.slice/mariadb.service`.
fn cgroup_of(text: &[u8]) -> Option<String> {
    let path = text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"0::"))?;
    Some(shown(&path[..path.len().min(CGROUP_BYTES_MAX)]))
}

/// The threads that a tap has met.
#[derive(Default)]
pub struct Threads {
    known: HashMap<u32, Comm>,
    met: Vec<Asker>,
}

impl Threads {
    /// Takes note of the thread of an event; a number may become another program's.
    pub fn meet(&mut self, event: &Event) {
        if event.tid == 0 || self.known.get(&event.tid) == Some(&event.comm) {
            return;
        }
        if self.known.len() >= ASKERS_MAX {
            self.known.clear();
        }
        self.known.insert(event.tid, event.comm);
        if self.met.len() < ASKERS_MAX {
            self.met.push(Asker::of(event));
        }
    }

    /// Those that were met since the last time.
    pub fn take_met(&mut self) -> Vec<Asker> {
        std::mem::take(&mut self.met)
    }
}

struct Known {
    asker: Asker,
    slot: OriginSlot,
}

/// See the module.
#[derive(Default)]
pub struct Askers {
    known: HashMap<u32, Known>,
    rules: Arc<Rules>,
    /// The origin of each rule, by its place among them: the same as long as there is that rule, whatever is added or removed beside it.
    slots: Vec<OriginSlot>,
    /// The rules that origins are of, or were.
    named: BTreeMap<u32, Rule>,
    /// The program of each session, by its thread or process.
    sessions: Arc<BTreeMap<u32, String>>,
}

impl Askers {
    /// Takes note of threads.
    pub fn meet(&mut self, met: &[Asker]) {
        for asker in met {
            if self.known.len() >= ASKERS_MAX && !self.known.contains_key(&asker.thread) {
                self.known.clear();
            }
            let slot = self.slot_for(asker);
            self.known.insert(asker.thread, Known { asker: asker.clone(), slot });
        }
    }

    /// The origin of requests that carry this number.
    pub fn slot_of(&mut self, client: u32) -> Option<OriginSlot> {
        if client >= clients::FIRST && !self.known.contains_key(&client) {
            self.meet(&[Asker::client(client, clients::name_of(client)?)]);
        }
        self.known.get(&client).map(|known| known.slot)
    }

    fn session_of(&self, asker: &Asker) -> Option<&String> {
        // A server with a process for each session has the session's number there.
        self.sessions.get(&asker.thread).or_else(|| self.sessions.get(&asker.process))
    }

    fn slot_for(&self, asker: &Asker) -> OriginSlot {
        let session = self.session_of(asker).map(String::as_str);
        let cgroup = asker.cgroup.as_deref();
        let client = asker.client.as_deref();
        // Of a client no process is known.
        let names = [Some(asker.name.as_str()).filter(|_| client.is_none()), asker.process_name.as_deref()];
        let fits = |process| self.rules.first(&Described { process, session, cgroup, client });
        // The first rule that fits holds, whichever of the names it fits.
        let rule = names.into_iter().filter_map(fits).map(|(number, _)| number).min();
        rule.and_then(|rule| self.slots.get(usize::from(rule)).copied()).unwrap_or(OriginSlot(asker.process))
    }

    /// The origin of a rule, as it was if it had one.
    fn slot_of_rule(&mut self, rule: &Rule) -> OriginSlot {
        let known = self.named.iter().find(|(_, known)| *known == rule).map(|(slot, _)| *slot);
        let fresh = || self.named.last_key_value().map_or(RULES_FROM, |(last, _)| last + 1);
        let slot = known.unwrap_or_else(fresh);
        self.named.insert(slot, rule.clone());
        OriginSlot(slot)
    }

    /// Takes rules and sessions; tells which class each rule's origin has.
    pub fn set(&mut self, rules: &Arc<Rules>, sessions: &Arc<BTreeMap<u32, String>>, origins: &mut Origins, now_ms: u64) {
        if !Arc::ptr_eq(&self.rules, rules) {
            origins.clear();
            self.slots.clear();
            for (number, rule) in (0..).map_while(|number| Some((number, rules.get(number)?))) {
                let slot = self.slot_of_rule(rule);
                self.slots.push(slot);
                origins.give(slot, now_ms, rule.class, number);
            }
            while self.named.len() > RULES_NAMED_MAX
                && let Some(old) = self.named.keys().find(|slot| !self.slots.contains(&OriginSlot(**slot))).copied()
            {
                self.named.remove(&old);
            }
        } else if Arc::ptr_eq(&self.sessions, sessions) {
            return;
        }
        (self.rules, self.sessions) = (rules.clone(), sessions.clone());
        let slots: Vec<(u32, OriginSlot)> = self.known.values().map(|known| (known.asker.thread, self.slot_for(&known.asker))).collect();
        for (thread, slot) in slots {
            self.known.entry(thread).and_modify(|known| known.slot = slot);
        }
    }

    /// A rule by its number.
    pub fn rule(&self, number: u16) -> Option<&Rule> {
        self.rules.get(number)
    }

    /// Who an origin is, in words.
    pub fn who(&self, origin: OriginSlot) -> Option<String> {
        if (RULES_FROM..clients::FIRST).contains(&origin.0) {
            let rule = self.named.get(&origin.0)?;
            return Some(format!("{} {}", rule.subject.name(), rule.pattern));
        }
        let of_process = self.known.values().find(|known| known.asker.process == origin.0)?;
        Some(of_process.asker.process_name.clone().unwrap_or_else(|| of_process.asker.name.clone()))
    }

    /// Memory it takes, in bytes; nearly.
    pub fn bytes(&self) -> usize {
        let texts = |asker: &Asker| {
            asker.name.len() + asker.process_name.as_ref().map_or(0, String::len) + asker.cgroup.as_ref().map_or(0, String::len)
        };
        self.known.capacity() * size_of::<(u32, Known)>() + self.known.values().map(|known| texts(&known.asker)).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use applications::streams::Subject;
    use types::StreamClass;

    fn asker(thread: u32, process: u32, name: &str, cgroup: &str) -> Asker {
        let process_name = Some("server".to_owned());
        Asker { thread, process, name: name.into(), process_name, cgroup: Some(cgroup.into()), client: None }
    }

    fn rules(of: &[(Subject, &str, StreamClass)]) -> Arc<Rules> {
        let rule = |(subject, pattern, class): &(Subject, &str, StreamClass)| Rule {
            subject: *subject,
            pattern: (*pattern).into(),
            class: *class,
        };
        Arc::new(Rules::new(of.iter().map(rule).collect()).expect("few").and(Rules::usual()))
    }

    #[test]
    fn threads_of_a_process_are_one_unless_a_rule_or_a_session_tells_them_apart() {
        let (mut askers, mut origins) = (Askers::default(), Origins::default());
        askers.meet(&[
            asker(11, 10, "worker", "/a"),
            asker(12, 10, "worker", "/a"),
            asker(13, 10, "worker", "/a"),
            asker(20, 20, "x", "/night/1"),
        ]);
        let none = Arc::default();
        askers.set(&rules(&[(Subject::Cgroup, "/night/*", StreamClass::Maintenance)]), &none, &mut origins, 1000);
        let class = |askers: &mut Askers, origins: &Origins, thread| origins.class_of(askers.slot_of(thread)?, 2000);
        assert_eq!(askers.slot_of(11), Some(OriginSlot(10)));
        assert_eq!(askers.slot_of(12), Some(OriginSlot(10)));
        assert_eq!(class(&mut askers, &origins, 11), None);
        assert_eq!(class(&mut askers, &origins, 20), Some((StreamClass::Maintenance, 0)));
        assert_eq!(askers.who(OriginSlot(10)).as_deref(), Some("server"));
        let slot = askers.slot_of(20).expect("known");
        assert_eq!(askers.who(slot).as_deref(), Some("cgroup /night/*"));
        // A dump begins in one of the threads, and ends.
        let rules = askers.rules.clone();
        let dump = Arc::new(BTreeMap::from([(12, "mariadb-dump".to_owned())]));
        askers.set(&rules, &dump, &mut origins, 3000);
        assert_eq!(class(&mut askers, &origins, 12).map(|(class, _)| class), Some(StreamClass::Backup));
        assert_eq!(class(&mut askers, &origins, 11), None);
        askers.set(&rules, &Arc::default(), &mut origins, 4000);
        assert_eq!(class(&mut askers, &origins, 12), None);
        // A server with a process for each session.
        let of_process = Arc::new(BTreeMap::from([(10, "pg_dump".to_owned())]));
        askers.set(&rules, &of_process, &mut origins, 4500);
        assert_eq!(class(&mut askers, &origins, 13).map(|(class, _)| class), Some(StreamClass::Backup));
        // Another rule before it moves it, and its origin keeps its name, also when it is taken away.
        let both = [(Subject::Process, "x*", StreamClass::Scan), (Subject::Cgroup, "/night/*", StreamClass::Maintenance)];
        askers.set(&self::rules(&both), &Arc::default(), &mut origins, 4600);
        assert_eq!(askers.who(slot).as_deref(), Some("cgroup /night/*"));
        assert_eq!(askers.slot_of(20).and_then(|slot| askers.who(slot)).as_deref(), Some("process x*"));
        askers.set(&self::rules(&both[..1]), &Arc::default(), &mut origins, 4700);
        assert_eq!(askers.who(slot).as_deref(), Some("cgroup /night/*"));
        // All rules are taken away.
        askers.set(&self::rules(&[]), &Arc::default(), &mut origins, 5000);
        assert_eq!(class(&mut askers, &origins, 20), None);
        assert_eq!(askers.slot_of(99), None);
    }

    #[test]
    fn clients_of_exports_have_their_own_rules() {
        let (mut askers, mut origins) = (Askers::default(), Origins::default());
        askers.set(&rules(&[(Subject::Client, "198.51.100.*", StreamClass::Backup)]), &Arc::default(), &mut origins, 0);
        let (one, other) = (clients::number_of("198.51.100.9"), clients::number_of("203.0.113.9"));
        let slot = askers.slot_of(one).expect("known");
        assert_eq!(origins.class_of(slot, 1).map(|(class, _)| class), Some(StreamClass::Backup));
        let slot = askers.slot_of(other).expect("known");
        assert_eq!((origins.class_of(slot, 1), askers.who(slot).as_deref()), (None, Some("203.0.113.9")));
    }

    #[test]
    fn no_more_threads_are_kept_than_may_be() {
        let mut askers = Askers::default();
        for thread in 1..=3 * ASKERS_MAX as u32 {
            askers.meet(&[asker(thread, thread, "x", "/")]);
        }
        assert!(askers.known.len() <= ASKERS_MAX && askers.bytes() < 200 << 10, "{}", askers.bytes());
    }

    #[test]
    fn what_the_kernel_tells_is_shown_as_text_of_one_line() {
        assert_eq!(shown(b"a\x1b[31mb\xff"), "a\u{fffd}[31mb\u{fffd}");
        assert_eq!(cgroup_of(b"12:cpu:/x\n0::/system.slice/a.service\n").as_deref(), Some("/system.slice/a.service"));
        assert_eq!(cgroup_of(b"1:x:/y"), None);
    }
}
