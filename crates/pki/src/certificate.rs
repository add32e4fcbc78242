//! How certificates are made: ECDSA over P-256, which every TLS library of the last ten years takes.

use crate::PkiError;
use rcgen::{CertificateParams, DnType, Error, KeyPair, PKCS_ECDSA_P256_SHA256};
use std::time::{Duration, SystemTime};

/// A day.
pub const DAY_S: u64 = 24 * 3600;

/// A certificate and its key, in PEM.
pub struct Made {
    /// The certificate.
    pub certificate: String,
    /// The key. A secret.
    pub key: String,
}

/// A new key.
///
/// # Errors
/// [`PkiError::Make`]
pub fn new_key() -> Result<KeyPair, PkiError> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|e| unmade(&e))
}

/// What all certificates have: whom they are about, for which host names and addresses, and how long they are valid. They begin to
/// be a day ago, for clocks that differ.
///
/// # Errors
/// [`PkiError::Make`] if a name cannot stand in a certificate.
pub fn parameters(about: &str, hosts: &[String], now_s: u64, valid_s: u64) -> Result<CertificateParams, PkiError> {
    let mut parameters = CertificateParams::new(hosts).map_err(|e| unmade(&e))?;
    let at = |s: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(s);
    parameters.not_before = at(now_s.saturating_sub(DAY_S)).into();
    parameters.not_after = at(now_s + valid_s).into();
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, about);
    Ok(parameters)
}

/// One that vouches for itself: whoever wants to trust it needs a copy.
///
/// # Errors
/// [`PkiError::Make`]
pub fn self_signed(about: &str, hosts: &[String], now_s: u64, valid_s: u64) -> Result<Made, PkiError> {
    let parameters = parameters(about, hosts, now_s, valid_s)?;
    let key = new_key()?;
    let certificate = parameters.self_signed(&key).map_err(|e| unmade(&e))?;
    Ok(Made { certificate: certificate.pem(), key: key.serialize_pem() })
}

pub(crate) fn unmade(error: &Error) -> PkiError {
    PkiError::Make(error.to_string())
}
