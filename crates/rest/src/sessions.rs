//! Browsers that have logged in, and codes to log in with. In memory only: a restart of the daemon ends them.

use crate::secret::{self, Digest};
use control::api::Role;
use control::error::ControlError;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// A session that nobody used for so long is over.
const IDLE: Duration = Duration::from_secs(12 * 3600);
/// Most sessions; the one that was idle longest makes room.
const SESSIONS_MAX: usize = 256;
/// How long a code can be used.
pub const CODE_VALID: Duration = Duration::from_secs(300);
/// Most codes; the oldest makes room.
const CODES_MAX: usize = 32;

/// The sessions there are; usable from any thread.
#[derive(Debug, Default)]
pub struct Sessions {
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    /// By the digest of the cookie's value.
    sessions: HashMap<Digest, Session>,
    /// When they were made, by their digest.
    codes: HashMap<Digest, Instant>,
}

/// A session.
#[derive(Clone, Debug)]
pub struct Session {
    /// By what it was begun: a token's name, or "console".
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// The token it was begun with; it ends with that.
    pub token: Option<Digest>,
    /// What must come with every change.
    pub csrf: String,
    seen: Instant,
}

impl Sessions {
    /// Begins one; gives the cookie's value and the session.
    ///
    /// # Errors
    /// If the kernel gives no random bytes.
    pub fn begin(&self, name: &str, role: Role, token: Option<Digest>, now: Instant) -> Result<(String, Session), ControlError> {
        let id = secret::random()?;
        let session = Session { name: name.into(), role, token, csrf: secret::random()?, seen: now };
        let mut inside = self.inside();
        inside.sessions.retain(|_, s| !is_over(s, now));
        make_room(&mut inside.sessions, SESSIONS_MAX, |s| s.seen);
        inside.sessions.insert(secret::digest_of(&id), session.clone());
        Ok((id, session))
    }

    /// The session of a cookie; it is in use now.
    pub fn find(&self, id: &Digest, now: Instant) -> Option<Session> {
        let mut inside = self.inside();
        let session = inside.sessions.get_mut(id)?;
        if is_over(session, now) {
            inside.sessions.remove(id);
            return None;
        }
        session.seen = now;
        Some(session.clone())
    }

    /// Ends one.
    pub fn end(&self, id: &Digest) {
        self.inside().sessions.remove(id);
    }

    /// A code that logs in once, with all rights.
    ///
    /// # Errors
    /// If the kernel gives no random bytes.
    pub fn make_code(&self, now: Instant) -> Result<String, ControlError> {
        let code = secret::random()?;
        let mut inside = self.inside();
        inside.codes.retain(|_, made| now.duration_since(*made) < CODE_VALID);
        make_room(&mut inside.codes, CODES_MAX, |made| *made);
        inside.codes.insert(secret::digest_of(&code), now);
        Ok(code)
    }

    /// Whether a code is good; it is not from here on.
    pub fn take_code(&self, code: &str, now: Instant) -> bool {
        let made = self.inside().codes.remove(&secret::digest_of(code));
        made.is_some_and(|made| now.duration_since(made) < CODE_VALID)
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().expect("no holder of this lock panics")
    }
}

fn is_over(session: &Session, now: Instant) -> bool {
    now.duration_since(session.seen) >= IDLE
}

fn make_room<T>(map: &mut HashMap<Digest, T>, max: usize, age: impl Fn(&T) -> Instant) {
    while map.len() >= max {
        let oldest = map.iter().min_by_key(|(_, value)| age(value)).map(|(key, _)| *key).expect("it is not empty");
        map.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_lives_while_it_is_used() {
        let sessions = Sessions::default();
        let start = Instant::now();
        let (id, begun) = sessions.begin("ci", Role::View, None, start).expect("random");
        let key = secret::digest_of(&id);
        let almost = IDLE - Duration::from_secs(1);
        assert_eq!(sessions.find(&key, start + almost).expect("in time").csrf, begun.csrf);
        assert!(sessions.find(&key, start + almost * 2).is_some(), "use prolongs it");
        assert!(sessions.find(&key, start + almost * 2 + IDLE).is_none());
        let (id, _) = sessions.begin("ci", Role::View, None, start).expect("random");
        sessions.end(&secret::digest_of(&id));
        assert!(sessions.find(&secret::digest_of(&id), start).is_none());
        assert!(sessions.find(&secret::digest_of(""), start).is_none());
    }

    #[test]
    fn there_are_so_many_and_the_idlest_makes_room() {
        let sessions = Sessions::default();
        let start = Instant::now();
        let at = |n: usize| start + Duration::from_millis(n as u64);
        let ids: Vec<_> = (0..SESSIONS_MAX)
            .map(|n| sessions.begin("x", Role::View, None, at(n)).expect("random").0)
            .map(|id| secret::digest_of(&id))
            .collect();
        assert!(sessions.find(&ids[0], at(SESSIONS_MAX)).is_some(), "the first is in use again");
        sessions.begin("x", Role::View, None, at(SESSIONS_MAX + 1)).expect("random");
        assert!(sessions.find(&ids[0], at(SESSIONS_MAX + 2)).is_some());
        assert!(sessions.find(&ids[1], at(SESSIONS_MAX + 2)).is_none());
    }

    #[test]
    fn a_code_is_good_once_and_for_a_while() {
        let sessions = Sessions::default();
        let now = Instant::now();
        let code = sessions.make_code(now).expect("random");
        assert!(!sessions.take_code("", now) && sessions.take_code(&code, now) && !sessions.take_code(&code, now));
        let late = sessions.make_code(now).expect("random");
        assert!(!sessions.take_code(&late, now + CODE_VALID));
        let first = sessions.make_code(now).expect("random");
        for n in 0..CODES_MAX as u64 {
            sessions.make_code(now + Duration::from_millis(n + 1)).expect("random");
        }
        assert!(!sessions.take_code(&first, now + Duration::from_secs(1)), "too many codes");
    }
}
