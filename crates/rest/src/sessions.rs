//! Browsers that have logged in, and codes to log in with.
//!
//! Sessions survive a restart of the daemon, so that an open page goes on by itself. The file holds digests only: who reads it can log in nowhere.
//! A file that cannot be understood is as good as none: browsers log in again.

use crate::private_file;
use crate::secret::{self, Digest};
use api::Role;
use api::error::ControlError;
use records::events::unix_s;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// A session that nobody used for so long is over.
const IDLE: Duration = Duration::from_secs(12 * 3600);
/// Most sessions; the one that was idle longest makes room.
const SESSIONS_MAX: usize = 256;
/// Most sessions of one token, and of all codes together: then the one of these that was idle longest makes room.
const SHARE_MAX: usize = SESSIONS_MAX / 4 * 3;
/// How long a code can be used.
pub const CODE_VALID: Duration = Duration::from_secs(300);
/// Most codes; the oldest makes room.
const CODES_MAX: usize = 32;
/// The file says when a session was last used, to within this.
const SAVED_WITHIN: Duration = Duration::from_secs(600);
/// Version of the file's layout.
const VERSION: u32 = 1;

/// The sessions there are; usable from any thread.
#[derive(Debug, Default)]
pub struct Sessions {
    /// `None`: nothing is kept.
    path: Option<PathBuf>,
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
    saved: Instant,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    sessions: Vec<StoredSession>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredSession {
    sha256: String,
    name: String,
    role: Role,
    token_sha256: Option<String>,
    seen_unix_s: u64,
}

/// What must come with every change of a session. Made from the cookie's digest, which the page cannot read and others do not know.
fn csrf_of(id: &Digest) -> String {
    secret::hex(&secret::digest_of(&format!("csrf:{}", secret::hex(id))))
}

impl Sessions {
    /// Those of the state directory, and whatever begins.
    pub fn open(state_directory: &Path) -> Sessions {
        let path = state_directory.join("sessions.json");
        let sessions = read(&path, Instant::now(), unix_s()).unwrap_or_else(|problem| {
            tracing::warn!("{}: {problem}; browsers have to log in again", path.display());
            HashMap::new()
        });
        Sessions { path: Some(path), inside: Mutex::new(Inside { sessions, codes: HashMap::new() }) }
    }

    /// Begins one; gives the cookie's value and the session.
    ///
    /// # Errors
    /// If the kernel provides no random bytes.
    pub fn begin(&self, name: &str, role: Role, token: Option<Digest>, now: Instant) -> Result<(String, Session), ControlError> {
        let id = secret::random()?;
        let key = secret::digest_of(&id);
        let session = Session { name: name.into(), role, token, csrf: csrf_of(&key), seen: now, saved: now };
        let mut inside = self.inside();
        inside.sessions.retain(|_, s| !is_over(s, now));
        make_room(&mut inside.sessions, SHARE_MAX, |s| (s.token == token).then_some(s.seen));
        make_room(&mut inside.sessions, SESSIONS_MAX, |s| Some(s.seen));
        inside.sessions.insert(key, session.clone());
        self.save(&mut inside, now);
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
        let found = session.clone();
        if now.duration_since(found.saved) >= SAVED_WITHIN {
            self.save(&mut inside, now);
        }
        Some(found)
    }

    /// Ends one.
    pub fn end(&self, id: &Digest) {
        let mut inside = self.inside();
        inside.sessions.remove(id);
        self.save(&mut inside, Instant::now());
    }

    /// A code that logs in once, with all rights.
    ///
    /// # Errors
    /// If the kernel provides no random bytes.
    pub fn make_code(&self, now: Instant) -> Result<String, ControlError> {
        let code = secret::random()?;
        let mut inside = self.inside();
        inside.codes.retain(|_, made| now.duration_since(*made) < CODE_VALID);
        make_room(&mut inside.codes, CODES_MAX, |made| Some(*made));
        inside.codes.insert(secret::digest_of(&code), now);
        Ok(code)
    }

    /// Whether a code is good; it is not from here on.
    pub fn take_code(&self, code: &str, now: Instant) -> bool {
        let made = self.inside().codes.remove(&secret::digest_of(code));
        made.is_some_and(|made| now.duration_since(made) < CODE_VALID)
    }

    /// Not being able to is no reason to refuse a login: it ends with the daemon then.
    fn save(&self, inside: &mut Inside, now: Instant) {
        let Some(path) = &self.path else { return };
        inside.sessions.values_mut().for_each(|session| session.saved = now);
        let now_unix_s = unix_s();
        let sessions = inside.sessions.iter().map(|(id, session)| StoredSession {
            sha256: secret::hex(id),
            name: session.name.clone(),
            role: session.role,
            token_sha256: session.token.as_ref().map(|token| secret::hex(token)),
            seen_unix_s: now_unix_s.saturating_sub(now.duration_since(session.seen).as_secs()),
        });
        let stored = Stored { version: VERSION, sessions: sessions.collect() };
        if let Err(error) = private_file::replace(path, &stored) {
            tracing::warn!("{}: sessions cannot be saved ({error}), and end with the daemon", path.display());
        }
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().expect("no holder of this lock panics")
    }
}

fn read(path: &Path, now: Instant, now_unix_s: u64) -> Result<HashMap<Digest, Session>, String> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(HashMap::new()),
        Err(e) => return Err(format!("it cannot be read ({e})")),
    };
    let stored: Stored = serde_json::from_slice(&bytes).map_err(|e| format!("it is damaged ({e})"))?;
    if stored.version != VERSION || stored.sessions.len() > SESSIONS_MAX {
        return Err("it is damaged, or of a newer hearth".into());
    }
    let session = |stored: StoredSession| {
        let idle = Duration::from_secs(now_unix_s.saturating_sub(stored.seen_unix_s));
        let id = secret::from_hex(&stored.sha256)?;
        let token = match &stored.token_sha256 {
            Some(digest) => Some(secret::from_hex(digest)?),
            None => None,
        };
        // The machine may have been up for less long than the session was idle.
        let seen = now.checked_sub(idle).filter(|_| idle < IDLE)?;
        Some((id, Session { name: stored.name, role: stored.role, token, csrf: csrf_of(&id), seen, saved: now }))
    };
    Ok(stored.sessions.into_iter().filter_map(session).collect())
}

fn is_over(session: &Session, now: Instant) -> bool {
    now.duration_since(session.seen) >= IDLE
}

/// Removes the oldest of those that have an age, until there is room for one more of them.
fn make_room<T>(map: &mut HashMap<Digest, T>, max: usize, age: impl Fn(&T) -> Option<Instant>) {
    let mut aged: Vec<(Instant, Digest)> = map.iter().filter_map(|(key, value)| Some((age(value)?, *key))).collect();
    aged.sort_unstable();
    let too_many = (aged.len() + 1).saturating_sub(max);
    aged.iter().take(too_many).for_each(|(_, key)| drop(map.remove(key)));
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
    fn sessions_survive_a_restart_and_the_file_lets_nobody_in() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("sessions.json");
        let now = Instant::now();
        let sessions = Sessions::open(directory.path());
        let token = secret::digest_of("token");
        let (id, begun) = sessions.begin("ci", Role::View, Some(token), now).expect("random");
        let (ended, _) = sessions.begin("other", Role::Operate, None, now).expect("random");
        sessions.end(&secret::digest_of(&ended));
        drop(sessions);
        let text = std::fs::read_to_string(&path).expect("it was saved");
        assert!(!text.contains(&id) && !text.contains(&begun.csrf), "{text}");
        let again = Sessions::open(directory.path());
        let found = again.find(&secret::digest_of(&id), Instant::now()).expect("it is there");
        assert_eq!((found.name.as_str(), found.role, found.token, &found.csrf), ("ci", Role::View, Some(token), &begun.csrf));
        assert!(again.find(&secret::digest_of(&ended), Instant::now()).is_none());
        // What the file holds is no cookie.
        assert!(again.find(&secret::digest_of(&secret::hex(&secret::digest_of(&id))), Instant::now()).is_none());
        assert!(read(&path, now, unix_s() + IDLE.as_secs() + 1).expect("readable").is_empty(), "too old");
        for damaged in ["", "{", r#"{"version":2,"sessions":[]}"#] {
            std::fs::write(&path, damaged).expect("written");
            assert!(Sessions::open(directory.path()).find(&secret::digest_of(&id), Instant::now()).is_none());
        }
    }

    #[test]
    fn there_are_so_many_and_the_idlest_makes_room() {
        let sessions = Sessions::default();
        let start = Instant::now();
        let at = |n: usize| start + Duration::from_millis(n as u64);
        let ids: Vec<_> = (0..SESSIONS_MAX)
            .map(|n| sessions.begin("x", Role::View, Some([n as u8 % 2; 32]), at(n)).expect("random").0)
            .map(|id| secret::digest_of(&id))
            .collect();
        assert!(sessions.find(&ids[0], at(SESSIONS_MAX)).is_some(), "the first is in use again");
        sessions.begin("x", Role::View, None, at(SESSIONS_MAX + 1)).expect("random");
        assert!(sessions.find(&ids[0], at(SESSIONS_MAX + 2)).is_some());
        assert!(sessions.find(&ids[1], at(SESSIONS_MAX + 2)).is_none());
        // One token alone does not push out the others' sessions.
        for n in 0..SESSIONS_MAX {
            sessions.begin("y", Role::View, Some([7; 32]), at(SESSIONS_MAX + 3 + n)).expect("random");
        }
        let left = |token| sessions.inside().sessions.values().filter(|session| session.token == Some(token)).count();
        assert_eq!((left([7; 32]), sessions.inside().sessions.len()), (SHARE_MAX, SESSIONS_MAX));
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
