//! What a server shows to its clients, and whom it lets in: files in one directory, read again when they change.

use super::desk::Desk;
use super::refusals::Refusals;
use pki::{PkiError, files, pair, revocation};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{CipherSuite, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// So long before the server's certificate expires the log tells of it.
const WARN_BEFORE_S: u64 = 30 * pki::certificate::DAY_S;

/// TLS for all exports of a process: its credentials, and the thread that shakes hands.
pub struct Tls {
    directory: PathBuf,
    current: Mutex<Current>,
    pub(super) desk: Desk,
    pub(crate) refusals: Refusals,
}

struct Current {
    config: Arc<ServerConfig>,
    verifier: Arc<Verifier>,
    /// Of the files that it was made from.
    marks: Vec<Mark>,
}

/// By what a file is known not to have changed: device, inode, size, and both times.
type Mark = Option<[i128; 5]>;

impl Tls {
    /// With the files of `directory`: `ca-cert.pem`, `server-cert.pem`, `server-key.pem`, and `ca-crl.pem` if it is there.
    ///
    /// # Errors
    /// Which file cannot be used, and why; or that the thread cannot be started.
    pub fn open(directory: &Path) -> Result<Arc<Tls>, PkiError> {
        let marks = marks(directory);
        let (config, verifier) = load(directory)?;
        let desk = Desk::start().map_err(|error| PkiError::Unusable {
            path: directory.display().to_string(),
            problem: format!("no thread can be started for TLS ({error})"),
        })?;
        let current = Mutex::new(Current { config, verifier, marks });
        Ok(Arc::new(Tls { directory: directory.to_owned(), current, desk, refusals: Refusals::default() }))
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the next connection. Files that have changed are read again; if they cannot be used, those before stay in force.
    pub(super) fn config(&self) -> (Arc<ServerConfig>, Arc<Verifier>) {
        let mut current = self.current();
        let marks = marks(&self.directory);
        if marks != current.marks {
            match load(&self.directory) {
                Ok((config, verifier)) => {
                    tracing::info!("the certificates in {} have changed and are used from now on", self.directory.display());
                    (current.config, current.verifier) = (config, verifier);
                }
                Err(error) => tracing::warn!("the changed certificates cannot be used, those before stay in force: {error}"),
            }
            current.marks = marks;
        }
        (current.config.clone(), current.verifier.clone())
    }
}

fn marks(directory: &Path) -> Vec<Mark> {
    let mark = |name: &str| {
        let found = std::fs::metadata(directory.join(name)).ok()?;
        let time = |s: i64, ns: i64| i128::from(s) * 1_000_000_000 + i128::from(ns);
        let times = [time(found.mtime(), found.mtime_nsec()), time(found.ctime(), found.ctime_nsec())];
        Some([found.dev().into(), found.ino().into(), found.size().into(), times[0], times[1]])
    };
    [files::CA_CERTIFICATE, files::CA_REVOKED, files::SERVER_CERTIFICATE, files::SERVER_KEY].map(mark).to_vec()
}

fn load(directory: &Path) -> Result<(Arc<ServerConfig>, Arc<Verifier>), PkiError> {
    let path = |name: &str| directory.join(name);
    let unusable = |name: &str, problem: String| PkiError::Unusable { path: path(name).display().to_string(), problem };
    let provider = Arc::new(provider());
    let mut roots = RootCertStore::empty();
    let authorities = pair::certificates(&path(files::CA_CERTIFICATE))?;
    for certificate in &authorities {
        roots.add(certificate.clone()).map_err(|e| unusable(files::CA_CERTIFICATE, format!("it is no authority ({e})")))?;
    }
    let mut checks = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    // Only a list that is not there at all revokes nobody.
    let has_list = match std::fs::symlink_metadata(path(files::CA_REVOKED)) {
        Ok(_) => true,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
        Err(error) => return Err(unusable(files::CA_REVOKED, format!("it cannot be looked at ({error})"))),
    };
    if has_list {
        // Of what the authority has issued itself; certificates between them have no list here.
        let lists = revocation::revoked(&path(files::CA_REVOKED), &authorities)?;
        checks = checks.with_crls(lists).only_check_end_entity_revocation();
    }
    let checks = checks.build().map_err(|e| unusable(files::CA_CERTIFICATE, format!("clients cannot be checked with it ({e})")))?;
    let verifier = Arc::new(Verifier { checks, presented: Mutex::default() });
    let own = pair::read(&path(files::SERVER_CERTIFICATE), &path(files::SERVER_KEY))?;
    warn_of(&own.chain, &authorities, &path(files::SERVER_CERTIFICATE));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .expect("the provider has both versions")
        .with_client_cert_verifier(verifier.clone())
        .with_single_cert(own.chain, own.key)
        .map_err(|e| unusable(files::SERVER_CERTIFICATE, format!("certificate and key cannot be used ({e})")))?;
    // A client shows its certificate each time: what has expired or was revoked is not let in by an old ticket.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.ignore_client_order = has_aes();
    config.enable_secret_extraction = true;
    Ok((Arc::new(config), verifier))
}

/// Says in the log if clients refuse the server's certificate, or soon will. It is served all the same: they may know better.
fn warn_of(chain: &[CertificateDer<'_>], authorities: &[CertificateDer<'_>], path: &Path) {
    let now_s = UnixTime::now().as_secs();
    let remedy = "move it and its key away and issue another one with `hearth pki issue NAME --server --out` and this directory";
    match pair::check_server(chain, authorities, now_s) {
        Err(why) => tracing::warn!("clients that trust this authority refuse {}: {why}; {remedy}", path.display()),
        Ok(()) if pair::check_server(chain, authorities, now_s + WARN_BEFORE_S).is_err() => {
            tracing::warn!("{} expires within 30 days; {remedy}", path.display());
        }
        Ok(()) => {}
    }
}

/// Where the processor does AES, the cheaper of the two ciphers first: clients offer both, the larger key first.
fn provider() -> CryptoProvider {
    let mut provider = rustls::crypto::ring::default_provider();
    let first = [
        CipherSuite::TLS13_AES_128_GCM_SHA256,
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    ];
    provider.cipher_suites.sort_by_key(|suite| !first.contains(&suite.suite()));
    provider
}

fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    false
}

/// The usual checks. Remembers whom the certificate was about that was shown last, good or bad: all handshakes are done on one thread.
#[derive(Debug)]
pub(super) struct Verifier {
    checks: Arc<dyn ClientCertVerifier>,
    presented: Mutex<Option<Vec<String>>>,
}

impl Verifier {
    /// The names in the certificate that was shown since the last call; `None`: none was shown.
    pub(super) fn take_presented(&self) -> Option<Vec<String>> {
        self.presented.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.checks.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        *self.presented.lock().unwrap_or_else(PoisonError::into_inner) = Some(pki::names::names_of(end_entity));
        self.checks.verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.checks.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.checks.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.checks.supported_verify_schemes()
    }
}
