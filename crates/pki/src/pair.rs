//! Certificates read from files.

use crate::PkiError;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use std::path::Path;
use std::time::Duration;

/// A certificate, with those between it and its authority, and its key.
pub struct Pair {
    /// Its own first.
    pub chain: Vec<CertificateDer<'static>>,
    /// The key.
    pub key: PrivateKeyDer<'static>,
}

/// Reads a certificate and its key. Whether they fit each other, TLS says.
///
/// # Errors
/// [`PkiError::Unusable`], about one of the files.
pub fn read(certificate: &Path, key: &Path) -> Result<Pair, PkiError> {
    let chain = certificates(certificate)?;
    let private = PrivateKeyDer::from_pem_file(key)
        .map_err(|e| unusable(key, format!("the key cannot be read: {}", wrong_with("private key", &e))))?;
    Ok(Pair { chain, key: private })
}

/// Reads certificates, at least one.
///
/// # Errors
/// [`PkiError::Unusable`]
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, PkiError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let read = read.map_err(|e| unusable(path, format!("the certificate cannot be read: {}", wrong_with("certificate", &e))))?;
    if read.is_empty() {
        return Err(unusable(path, "there is no certificate in it".into()));
    }
    Ok(read)
}

/// Whether clients that trust these authorities will take a server for who it says it is, at that time.
///
/// # Errors
/// Why not, as a clause.
pub fn check_server(chain: &[CertificateDer<'_>], authorities: &[CertificateDer<'_>], at_s: u64) -> Result<(), String> {
    let (own, between) = chain.split_first().ok_or("there is no certificate")?;
    let leaf = webpki::EndEntityCert::try_from(own).map_err(|e| e.to_string())?;
    let anchors: Vec<_> = authorities.iter().filter_map(|one| webpki::anchor_from_trusted_cert(one).ok()).collect();
    let at = UnixTime::since_unix_epoch(Duration::from_secs(at_s));
    let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms.all;
    let checked = leaf.verify_for_usage(algorithms, &anchors, between, at, webpki::KeyUsage::server_auth(), None, None).map(drop);
    checked.map_err(|error| match error {
        webpki::Error::CertExpired { .. } => "it has expired".into(),
        webpki::Error::UnknownIssuer => "another authority has issued it".into(),
        other => other.to_string(),
    })
}

/// What is wrong with a file in PEM that is to hold such a thing, as a clause.
pub(crate) fn wrong_with(thing: &str, error: &PemError) -> String {
    match error {
        PemError::MissingSectionEnd { end_marker } => {
            let name = String::from_utf8_lossy(end_marker);
            format!(
                "the line -----END {name}----- is missing behind -----BEGIN {name}-----, so the file is cut off; copy it again as a whole"
            )
        }
        PemError::IllegalSectionStart { .. } => "a line that begins with -----BEGIN does not end in -----; copy the file again".into(),
        PemError::Base64Decode(_) => "the text between its -----BEGIN and -----END is damaged (no Base64); copy the file again".into(),
        PemError::NoItemsFound => format!("there is no {thing} in PEM in it"),
        PemError::SectionTooLarge => "a part of it has more than 256 MB".into(),
        PemError::Io(error) => error.to_string(),
        other => other.to_string(),
    }
}

pub(crate) fn unusable(path: &Path, problem: String) -> PkiError {
    PkiError::Unusable { path: path.display().to_string(), problem }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::{VALID_S, init};
    use crate::files;

    #[test]
    fn a_file_that_is_no_pem_is_told_in_words() {
        let place = tempfile::tempdir().expect("room");
        let told = |text: &str| {
            let path = place.path().join("a.pem");
            std::fs::write(&path, text).expect("room");
            let errors = [certificates(&path).err(), read(&path, &path).err()];
            errors.map(|error| error.expect("it cannot be used").to_string())
        };
        let [cut, _] = told("-----BEGIN CERTIFICATE-----\nAAAA\n");
        assert!(cut.contains("-----END CERTIFICATE----- is missing") && !cut.contains("[67"), "{cut}");
        assert!(told("-----BEGIN CERTIFICATE-----\n%%%%\n-----END CERTIFICATE-----\n")[0].contains("is damaged"));
        assert!(told("-----BEGIN CERTIFICATE\nAAAA\n")[0].contains("does not end in -----"));
        let missing = certificates(&place.path().join("none.pem")).expect_err("it is not there").to_string();
        assert!(missing.contains("No such file"), "{missing}");
        let key = PrivateKeyDer::from_pem_slice(b"no key").map(drop).expect_err("it is none");
        assert_eq!(wrong_with("private key", &key), "there is no private key in PEM in it");
    }

    #[test]
    fn a_server_is_taken_by_those_who_trust_its_authority_and_until_it_expires() {
        const NOW_S: u64 = 1_800_000_000;
        let (one, other) = (tempfile::tempdir().expect("room"), tempfile::tempdir().expect("room"));
        let made = [&one, &other].map(|place| {
            init(place.path(), "ca", "store", &[], NOW_S).expect("it can be made");
            let read = |name| certificates(&place.path().join(name)).expect("it is there");
            (read(files::SERVER_CERTIFICATE), read(files::CA_CERTIFICATE))
        });
        check_server(&made[0].0, &made[0].1, NOW_S).expect("it is good");
        assert_eq!(check_server(&made[0].0, &made[0].1, NOW_S + VALID_S + 1).expect_err("too late"), "it has expired");
        check_server(&made[0].0, &made[1].1, NOW_S).expect_err("another authority");
        check_server(&[], &made[1].1, NOW_S).expect_err("no certificate");
    }
}
