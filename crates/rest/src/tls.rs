//! The TLS side of the TCP listener: which versions, which certificate, and one of its own where none is given.

use crate::server::TcpOptions;
use api::error::ControlError;
use pki::PkiError;
use pki::certificate::{DAY_S, self_signed};
use pki::files::replace_private;
use records::events::unix_s;
use rustls::ServerConfig;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// How long an own certificate is valid: browsers refuse longer ones.
const VALID_S: u64 = 825 * DAY_S;
/// It is made anew when so little is left.
const RENEW_S: u64 = 30 * DAY_S;
/// What the certificate's file begins with; the time follows, in seconds since 1970.
const VALID_UNTIL: &str = "# Made by hearth for itself. Valid until (seconds since 1970): ";

/// What a TLS connection is begun with; usable from any thread.
pub struct Tls {
    own: Option<Own>,
    state: Mutex<State>,
}

struct State {
    config: Arc<ServerConfig>,
    valid_until_s: u64,
}

/// A certificate made by this daemon.
struct Own {
    certificate: PathBuf,
    key: PathBuf,
    names: Vec<String>,
}

impl Tls {
    /// With the certificate given, or with an own one that is kept in the state directory.
    ///
    /// # Errors
    /// If certificate and key cannot be read, do not fit each other, or cannot be made.
    pub fn open(options: &TcpOptions, names: &[String], state_directory: &Path) -> Result<Tls, ControlError> {
        match (&options.certificate, &options.key) {
            (Some(certificate), Some(key)) => {
                let state = Mutex::new(State { config: load(certificate, key)?, valid_until_s: u64::MAX });
                Ok(Tls { own: None, state })
            }
            (None, None) => {
                let directory = state_directory.join("tls");
                let own = Own {
                    certificate: directory.join("certificate.pem"),
                    key: directory.join("key.pem"),
                    names: own_names(names, options.address.ip()),
                };
                let state = Mutex::new(own.load_or_make(unix_s())?);
                Ok(Tls { own: Some(own), state })
            }
            _ => Err(ControlError::BadCombination(
                "a certificate and its key belong together".into(),
                "give both (`api.certificate` and `api.key`), or neither for one that hearth makes".into(),
            )),
        }
    }

    /// For the next connection. An own certificate that is about to expire is made anew on the way.
    pub fn config(&self) -> Arc<ServerConfig> {
        let mut state = self.state.lock().expect("no holder of this lock panics");
        let now_s = unix_s();
        if let Some(own) = &self.own
            && is_due(state.valid_until_s, now_s)
        {
            match own.make(now_s) {
                Ok(made) => *state = made,
                Err(error) => tracing::warn!("the API's certificate cannot be renewed: {error}"),
            }
        }
        state.config.clone()
    }
}

fn is_due(valid_until_s: u64, now_s: u64) -> bool {
    valid_until_s.saturating_sub(now_s) < RENEW_S
}

/// Names and addresses that an own certificate is for.
fn own_names(names: &[String], address: IpAddr) -> Vec<String> {
    let mut all: Vec<String> = vec!["localhost".into(), "127.0.0.1".into(), "::1".into()];
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let further = [host].into_iter().chain(names.iter().cloned()).chain((!address.is_unspecified()).then(|| address.to_string()));
    for name in further {
        let usable =
            name.parse::<IpAddr>().is_ok() || (!name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b)));
        if usable && !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

impl Own {
    fn load_or_make(&self, now_s: u64) -> Result<State, ControlError> {
        if let Some(valid_until_s) = self.valid_until().filter(|until_s| !is_due(*until_s, now_s)) {
            match load(&self.certificate, &self.key) {
                Ok(config) => return Ok(State { config, valid_until_s }),
                Err(error) => tracing::warn!("the API's certificate is renewed: {error}"),
            }
        }
        self.make(now_s)
    }

    /// As its first line says; `None` if it is not there, or not for the names of today.
    fn valid_until(&self) -> Option<u64> {
        let text = std::fs::read_to_string(&self.certificate).ok()?;
        let (until_s, names) = text.lines().next()?.strip_prefix(VALID_UNTIL)?.split_once("; for ")?;
        (names == self.names.join(" ")).then(|| until_s.parse().ok())?
    }

    fn make(&self, now_s: u64) -> Result<State, ControlError> {
        let trouble = |problem: String| ControlError::State {
            path: self.certificate.display().to_string(),
            problem,
            remedy: "make room or repair the file system, or give a certificate and its key (`api.certificate`, `api.key`)".into(),
        };
        let valid_until_s = now_s + VALID_S;
        let made = self_signed("hearth", &self.names, now_s, VALID_S);
        let made = made.map_err(|e| trouble(format!("no certificate can be created ({e})")))?;
        let certificate = format!("{VALID_UNTIL}{valid_until_s}; for {}\n{}", self.names.join(" "), made.certificate);
        let write = || -> std::io::Result<()> {
            let directory = self.key.parent().unwrap_or(Path::new("."));
            std::os::unix::fs::DirBuilderExt::mode(std::fs::DirBuilder::new().recursive(true), 0o700).create(directory)?;
            replace_private(&self.key, made.key.as_bytes())?;
            replace_private(&self.certificate, certificate.as_bytes())
        };
        write().map_err(|e| trouble(format!("the certificate cannot be saved ({e})")))?;
        tracing::info!("created a certificate for the API: {}", self.certificate.display());
        Ok(State { config: load(&self.certificate, &self.key)?, valid_until_s })
    }
}

/// TLS 1.3 and 1.2 with this certificate.
fn load(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, ControlError> {
    let trouble = |path: String, problem: String| ControlError::State {
        path,
        problem,
        remedy: "give a certificate and its private key as PEM files that the daemon can read (`api.certificate`, `api.key`)".into(),
    };
    let pair = pki::pair::read(certificate, key).map_err(|error| match error {
        PkiError::Unusable { path, problem } => trouble(path, problem),
        other => trouble(certificate.display().to_string(), other.to_string()),
    })?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .expect("the provider has both versions")
        .with_no_client_auth()
        .with_single_cert(pair.chain, pair.key)
        .map_err(|e| trouble(certificate.display().to_string(), format!("certificate and key cannot be used ({e})")))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn own(directory: &Path) -> Own {
        Own {
            certificate: directory.join("tls/certificate.pem"),
            key: directory.join("tls/key.pem"),
            names: own_names(&["cache.example".into(), "bad name".into()], IpAddr::from([127, 0, 0, 1])),
        }
    }

    #[test]
    fn an_own_certificate_is_made_once_kept_and_renewed_in_time() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let own = own(directory.path());
        assert!(own.names.contains(&"cache.example".into()) && !own.names.contains(&"bad name".into()));
        let now_s = unix_s();
        let first = own.load_or_make(now_s).expect("it can be made");
        assert_eq!(first.valid_until_s, now_s + VALID_S);
        let read = || std::fs::read(&own.certificate).expect("it was saved");
        let bytes = read();
        assert_eq!(std::fs::metadata(&own.key).expect("it was saved").permissions().mode() & 0o777, 0o600);
        own.load_or_make(now_s + VALID_S - RENEW_S - 1).expect("it is there");
        assert_eq!(read(), bytes, "it is still good");
        own.load_or_make(now_s + VALID_S - RENEW_S + 1).expect("it can be made");
        assert_ne!(read(), bytes, "it was about to expire");
        let bytes = read();
        let renamed = Own { names: vec!["other".into()], certificate: own.certificate.clone(), key: own.key.clone() };
        renamed.load_or_make(now_s).expect("it can be made");
        assert_ne!(read(), bytes, "it was for other names");
        std::fs::write(&own.key, "no key").expect("there is room");
        own.load_or_make(now_s).expect("a damaged one is made anew");
    }

    #[test]
    fn what_is_given_must_be_a_pair_that_fits() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (one, other) = (own(&directory.path().join("1")), own(&directory.path().join("2")));
        one.load_or_make(unix_s()).expect("it can be made");
        other.load_or_make(unix_s()).expect("it can be made");
        let open = |certificate: Option<&Path>, key: Option<&Path>| {
            let options = TcpOptions {
                certificate: certificate.map(Into::into),
                key: key.map(Into::into),
                ..TcpOptions::at(([127, 0, 0, 1], 0).into())
            };
            Tls::open(&options, &[], directory.path()).map(|tls| tls.config()).map_err(|e| e.refusal().to_string())
        };
        open(Some(&one.certificate), Some(&one.key)).expect("they fit");
        for (certificate, key) in [
            (Some(&*one.certificate), None),
            (None, Some(&*one.key)),
            (Some(&*one.certificate), Some(&*other.key)),
            (Some(&*one.key), Some(&*one.key)),
            (Some(Path::new("/nonexistent")), Some(&*one.key)),
        ] {
            let sentence = open(certificate, key).expect_err("it cannot be used");
            assert!(sentence.contains("api.key"), "{sentence}");
        }
    }
}
