//! Tokens: secrets with a name and a role, for scripts and for logging in.
//!
//! The file holds digests only; it is replaced as a whole, as the state is. A file that cannot be understood lets nobody in, is left as it is, and is
//! read again with the next call, so that mending it needs no restart.

use crate::private_file;
use crate::secret::{self, Digest};
use api::error::ControlError;
use api::names::{self, Named};
use api::{Role, TokenCreate, TokenMade, TokenView};
use records::events::unix_s;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

/// What every token begins with, so that one that leaked is recognised.
const PREFIX: &str = "hearth_";
/// Most tokens: each is compared with what a request brings.
const TOKENS_MAX: usize = 256;
/// Version of the file's layout.
const VERSION: u32 = 1;

/// The tokens there are; usable from any thread.
#[derive(Debug)]
pub struct Tokens {
    path: PathBuf,
    known: Mutex<Result<Vec<Record>, String>>,
}

/// A token that was recognised.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its name.
    pub name: String,
    /// What its bearer may do.
    pub role: Role,
    /// By what it is found again.
    pub digest: Digest,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Record {
    name: String,
    role: Role,
    digest: Digest,
    created_unix_s: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    tokens: Vec<StoredToken>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredToken {
    name: String,
    role: Role,
    sha256: String,
    created_unix_s: u64,
}

impl Tokens {
    /// Those of the state directory. A damaged file is told with the first call that needs it.
    pub fn open(state_directory: &Path) -> Tokens {
        let path = state_directory.join("tokens.json");
        let known = read(&path);
        if let Err(problem) = &known {
            tracing::error!("{}: {problem}; no token is accepted until it is repaired or moved away", path.display());
        }
        Tokens { path, known: Mutex::new(known) }
    }

    /// All of them, by name.
    ///
    /// # Errors
    /// If the file is damaged.
    pub fn list(&self) -> Result<Vec<TokenView>, ControlError> {
        let known = self.usable()?;
        let records = known.as_ref().map(Vec::as_slice).unwrap_or_default();
        Ok(records.iter().map(|r| TokenView { name: r.name.clone(), role: r.role, created_unix_s: r.created_unix_s }).collect())
    }

    /// Makes one. Its secret is in the answer and nowhere else.
    ///
    /// # Errors
    /// A name that is taken or not allowed, too many tokens, a file that is damaged or cannot be written.
    pub fn create(&self, create: &TokenCreate) -> Result<TokenMade, ControlError> {
        names::check(Named::Token, &create.name)?;
        let mut known = self.usable()?;
        let mut records = known.clone().unwrap_or_default();
        if records.iter().any(|r| r.name == create.name) {
            return Err(ControlError::Taken { named: "token", name: create.name.clone() });
        }
        if records.len() >= TOKENS_MAX {
            let problem = format!("there are {TOKENS_MAX} tokens already");
            return Err(ControlError::BadCombination(problem, "revoke some with `hearth token revoke NAME`".into()));
        }
        let token = format!("{PREFIX}{}", secret::random()?);
        let record = Record { name: create.name.clone(), role: create.role, digest: secret::digest_of(&token), created_unix_s: unix_s() };
        records.push(record);
        records.sort_by(|a, b| a.name.cmp(&b.name));
        self.write(&records)?;
        *known = Ok(records);
        Ok(TokenMade { name: create.name.clone(), role: create.role, token })
    }

    /// Revokes one; its sessions end with it.
    ///
    /// # Errors
    /// If there is no such token, or the file is damaged or cannot be written.
    pub fn revoke(&self, name: &str) -> Result<(), ControlError> {
        let mut known = self.usable()?;
        let mut records = known.clone().unwrap_or_default();
        let before = records.len();
        records.retain(|r| r.name != name);
        if records.len() == before {
            return Err(ControlError::Unknown { named: "token", name: name.into() });
        }
        self.write(&records)?;
        *known = Ok(records);
        Ok(())
    }

    /// The token of that secret. Every one is compared, in constant time.
    pub fn recognise(&self, token: &str) -> Option<Known> {
        self.find(&secret::digest_of(token))
    }

    /// The token of that digest, if it has not been revoked.
    pub fn find(&self, digest: &Digest) -> Option<Known> {
        let known = self.lock();
        let records = known.as_ref().ok()?;
        let found = records.iter().fold(None, |found, r| if secret::equal(&r.digest, digest) { Some(r) } else { found });
        found.map(|r| Known { name: r.name.clone(), role: r.role, digest: r.digest })
    }

    fn lock(&self) -> MutexGuard<'_, Result<Vec<Record>, String>> {
        self.known.lock().expect("no holder of this lock panics")
    }

    /// The list, read again if it was damaged.
    fn usable(&self) -> Result<MutexGuard<'_, Result<Vec<Record>, String>>, ControlError> {
        let mut known = self.lock();
        if known.is_err() {
            *known = read(&self.path);
        }
        match &*known {
            Ok(_) => Ok(known),
            Err(problem) => {
                let remedy = "move it away and create the tokens again with `hearth token create`, or restore a good copy";
                Err(ControlError::State { path: self.path.display().to_string(), problem: problem.clone(), remedy: remedy.into() })
            }
        }
    }

    fn write(&self, records: &[Record]) -> Result<(), ControlError> {
        let token = |r: &Record| StoredToken {
            name: r.name.clone(),
            role: r.role,
            sha256: secret::hex(&r.digest),
            created_unix_s: r.created_unix_s,
        };
        let stored = Stored { version: VERSION, tokens: records.iter().map(token).collect() };
        private_file::replace(&self.path, &stored).map_err(|e| ControlError::State {
            path: self.path.display().to_string(),
            problem: format!("the tokens cannot be saved ({e})"),
            remedy: "free some space or repair the file system, then try again".into(),
        })
    }
}

fn read(path: &Path) -> Result<Vec<Record>, String> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(format!("it cannot be read ({e})")),
    };
    let stored: Stored = serde_json::from_slice(&bytes).map_err(|e| format!("it is damaged ({e})"))?;
    if stored.version != VERSION {
        return Err("it was written by a newer hearth".into());
    }
    if stored.tokens.len() > TOKENS_MAX {
        return Err(format!("it is damaged (more than {TOKENS_MAX} tokens)"));
    }
    let mut records: Vec<Record> = Vec::new();
    for token in stored.tokens {
        let odd = |what: &str| format!("it is damaged ({what} of the token {:?})", token.name);
        names::check(Named::Token, &token.name).map_err(|_| odd("the name"))?;
        let digest = secret::from_hex(&token.sha256).ok_or_else(|| odd("the digest"))?;
        if records.iter().any(|r| r.name == token.name) {
            return Err(odd("a second one"));
        }
        records.push(Record { name: token.name, role: token.role, digest, created_unix_s: token.created_unix_s });
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn create(name: &str, role: Role) -> TokenCreate {
        TokenCreate { name: name.into(), role }
    }

    #[test]
    fn a_token_is_known_until_it_is_revoked_and_over_restarts() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let tokens = Tokens::open(directory.path());
        let made = tokens.create(&create("ci", Role::View)).expect("there is room");
        assert!(made.token.starts_with(PREFIX) && made.token.len() == PREFIX.len() + 64);
        let text = std::fs::read_to_string(directory.path().join("tokens.json")).expect("it was saved");
        assert!(!text.contains(&made.token[PREFIX.len()..]), "the secret is in the file");
        let mode = std::fs::metadata(directory.path().join("tokens.json")).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(matches!(tokens.create(&create("ci", Role::Operate)), Err(ControlError::Taken { .. })));
        assert!(tokens.create(&create("a b", Role::View)).is_err());
        let again = Tokens::open(directory.path());
        let known = again.recognise(&made.token).expect("it was saved");
        assert_eq!((known.name.as_str(), known.role), ("ci", Role::View));
        assert!(again.recognise(&made.token[1..]).is_none() && again.recognise("").is_none());
        again.revoke("ci").expect("it is there");
        assert!(again.recognise(&made.token).is_none() && again.find(&known.digest).is_none());
        assert!(matches!(again.revoke("ci"), Err(ControlError::Unknown { .. })));
        assert!(Tokens::open(directory.path()).list().expect("readable").is_empty());
    }

    /// Whatever is wrong with the file: nobody gets in, it is told, nothing is overwritten, and mending it is enough.
    #[test]
    fn a_damaged_file_lets_nobody_in_and_can_be_mended() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("tokens.json");
        let tokens = Tokens::open(directory.path());
        let made = tokens.create(&create("a", Role::Operate)).expect("there is room");
        let good = std::fs::read_to_string(&path).expect("it was saved");
        for damaged in
            ["", "{", "[]", &good.replace("operate", "root"), &good[..good.len() / 2], &good.replace("\"version\": 1", "\"version\": 9")]
        {
            std::fs::write(&path, damaged).expect("there is room");
            let tokens = Tokens::open(directory.path());
            assert!(tokens.recognise(&made.token).is_none(), "{damaged}");
            let error = tokens.create(&create("b", Role::View)).expect_err("it must not be overwritten");
            assert!(error.remedy().contains("move it away"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).expect("still there"), damaged);
            std::fs::write(&path, &good).expect("there is room");
            assert_eq!(tokens.list().expect("it was mended").len(), 1);
            assert!(tokens.recognise(&made.token).is_some());
        }
    }
}
