//! A private authority in a directory: made in one command, and certificates of it in one command each.

use crate::certificate::{DAY_S, Made, new_key, parameters, unmade};
use crate::files::{self, New};
use crate::names::common_name;
use crate::pair::{certificates, unusable};
use crate::{PkiError, files::write_all};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use std::net::IpAddr;
use std::path::Path;

/// How long an authority lasts: when it ends, all certificates have to be made again.
pub const CA_VALID_S: u64 = 7300 * DAY_S;
/// How long a certificate lasts.
pub const VALID_S: u64 = 1825 * DAY_S;
/// Longest name of a certificate: the limit of a common name.
const NAME_BYTES_MAX: usize = 64;

/// What a certificate is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Role {
    /// A client.
    Client,
    /// A server, with the host names and addresses by which clients know it, besides its name.
    Server(Vec<String>),
}

/// Makes an authority, and a certificate of it for the server on this machine.
///
/// # Errors
/// [`PkiError::Exists`] if one of its files is there; then nothing is written.
pub fn init(directory: &Path, about: &str, server: &str, hosts: &[String], now_s: u64) -> Result<(), PkiError> {
    let mut authority = parameters(about, &[], now_s, CA_VALID_S)?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = new_key()?;
    let certificate = authority.self_signed(&key).map_err(|e| unmade(&e))?.pem();
    let server = issued(server, &Role::Server(hosts.to_vec()), &Issuer::from_params(&authority, &key), now_s)?;
    write_all(
        directory,
        &[
            New { name: files::CA_KEY, content: key.serialize_pem(), private: true },
            New { name: files::CA_CERTIFICATE, content: certificate, private: false },
            New { name: files::SERVER_KEY, content: server.key, private: true },
            New { name: files::SERVER_CERTIFICATE, content: server.certificate, private: false },
        ],
    )
}

/// Makes a certificate of the authority in `directory`, and writes it, its key and the authority's certificate into `into`.
///
/// # Errors
/// [`PkiError::Unusable`] if there is no authority; [`PkiError::Exists`]: then nothing is written.
pub fn issue(directory: &Path, name: &str, role: &Role, into: &Path, now_s: u64) -> Result<(), PkiError> {
    check_name(name)?;
    let (certificate_path, key_path) = (directory.join(files::CA_CERTIFICATE), directory.join(files::CA_KEY));
    let authority = certificates(&certificate_path)?.remove(0);
    let text = std::fs::read_to_string(&certificate_path).map_err(|e| unusable(&certificate_path, e.to_string()))?;
    let key = std::fs::read_to_string(&key_path).map_err(|e| unusable(&key_path, format!("the key cannot be read ({e})")))?;
    let key = KeyPair::from_pem(&key).map_err(|e| unusable(&key_path, format!("it is no key that hearth can use ({e})")))?;
    let foreign = || unusable(&certificate_path, "this authority was not made by `hearth pki init`: use its own tools".into());
    let parsed = webpki::EndEntityCert::try_from(&authority).map_err(|_| foreign())?;
    let mut as_made = CertificateParams::default();
    as_made.distinguished_name = rcgen::DistinguishedName::new();
    as_made.distinguished_name.push(DnType::CommonName, common_name(parsed.subject()).ok_or_else(foreign)?);
    as_made.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let made = issued(name, role, &Issuer::new(as_made, key), now_s)?;
    // Made for another subject or with another key, it would be of no use to anybody.
    check_signed_by(&made.certificate, &authority, now_s).map_err(|problem| unusable(&certificate_path, problem))?;
    let (certificate_name, key_name) = match role {
        Role::Client => (files::CLIENT_CERTIFICATE, files::CLIENT_KEY),
        Role::Server(_) => (files::SERVER_CERTIFICATE, files::SERVER_KEY),
    };
    let mut new = vec![
        New { name: key_name, content: made.key, private: true },
        New { name: certificate_name, content: made.certificate, private: false },
    ];
    // A directory may hold both, of the same authority.
    if std::fs::read_to_string(into.join(files::CA_CERTIFICATE)).ok().as_deref() != Some(text.as_str()) {
        new.push(New { name: files::CA_CERTIFICATE, content: text, private: false });
    }
    write_all(into, &new)
}

fn check_name(name: &str) -> Result<(), PkiError> {
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    let usable = !name.is_empty() && name.len() <= NAME_BYTES_MAX && plain && !name.starts_with(['.', '-']);
    if usable { Ok(()) } else { Err(PkiError::BadName(name.to_owned())) }
}

/// # Errors
/// [`PkiError::BadHost`]
pub fn check_host(host: &str) -> Result<(), PkiError> {
    let label = |label: &str| !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let usable = host.parse::<IpAddr>().is_ok() || (host.len() <= 253 && host.split('.').all(label));
    if usable { Ok(()) } else { Err(PkiError::BadHost(host.to_owned())) }
}

fn issued(name: &str, role: &Role, issuer: &Issuer<'_, impl rcgen::SigningKey>, now_s: u64) -> Result<Made, PkiError> {
    // What is no host name stands in the common name alone.
    let mut hosts: Vec<String> = check_host(name).is_ok().then(|| name.to_owned()).into_iter().collect();
    if let Role::Server(more) = role {
        for host in more {
            check_host(host)?;
            if !hosts.contains(host) {
                hosts.push(host.clone());
            }
        }
    }
    let mut parameters = parameters(name, &hosts, now_s, VALID_S)?;
    parameters.is_ca = IsCa::ExplicitNoCa;
    // QEMU before 10 asks for the second of every key, though only RSA has a use for it.
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    parameters.extended_key_usages = match role {
        Role::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
        // As a client, too: a server moves a guest's disk to another one.
        Role::Server(_) => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
    };
    parameters.use_authority_key_identifier_extension = true;
    let key = new_key()?;
    let certificate = parameters.signed_by(&key, issuer).map_err(|e| unmade(&e))?;
    Ok(Made { certificate: certificate.pem(), key: key.serialize_pem() })
}

/// Whether clients and servers that trust the authority will take the certificate.
fn check_signed_by(pem: &str, authority: &rustls::pki_types::CertificateDer<'_>, now_s: u64) -> Result<(), String> {
    use rustls::pki_types::{CertificateDer, UnixTime, pem::PemObject};
    let made = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|e| e.to_string())?;
    let leaf = webpki::EndEntityCert::try_from(&made).map_err(|e| e.to_string())?;
    let anchor = webpki::anchor_from_trusted_cert(authority).map_err(|e| format!("it is no authority ({e})"))?;
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(now_s));
    let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms.all;
    let usage = webpki::KeyUsage::client_auth();
    let checked = leaf.verify_for_usage(algorithms, &[anchor], &[], now, usage, None, None).map(drop);
    checked.map_err(|e| format!("certificates made with its key are not valid ({e}): make another authority with `hearth pki init`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::names_of;
    use std::os::unix::fs::PermissionsExt;

    const NOW_S: u64 = 1_800_000_000;

    fn modes(directory: &Path) -> Vec<(String, u32)> {
        let entries = std::fs::read_dir(directory).expect("it is there").flatten();
        let mut modes: Vec<_> = entries
            .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.metadata().expect("there").permissions().mode() & 0o777))
            .collect();
        modes.sort();
        modes
    }

    #[test]
    fn one_command_each_makes_what_both_sides_need_and_keys_are_private() {
        let place = tempfile::tempdir().expect("there is room");
        let authority = place.path().join("pki");
        init(&authority, "hearth on store", "store", &["store".into(), "192.0.2.1".into()], NOW_S).expect("it can be made");
        let made = [("ca-cert.pem", 0o644), ("ca-key.pem", 0o600), ("server-cert.pem", 0o644), ("server-key.pem", 0o600)];
        assert_eq!(modes(&authority), made.map(|(name, mode)| (name.to_owned(), mode)));
        let guest = authority.join("guest7");
        issue(&authority, "guest7", &Role::Client, &guest, NOW_S).expect("it can be made");
        let made = [("ca-cert.pem", 0o644), ("client-cert.pem", 0o644), ("client-key.pem", 0o600)];
        assert_eq!(modes(&guest), made.map(|(name, mode)| (name.to_owned(), mode)));
        let certificate = certificates(&guest.join(files::CLIENT_CERTIFICATE)).expect("it is there").remove(0);
        assert_eq!(names_of(&certificate), ["guest7"]);
        // The same directory takes a server's certificate, too.
        issue(&authority, "guest7", &Role::Server(vec!["192.0.2.7".into()]), &guest, NOW_S).expect("it can be made");
        crate::pair::read(&guest.join(files::SERVER_CERTIFICATE), &guest.join(files::SERVER_KEY)).expect("both are there");
    }

    #[test]
    fn nothing_is_overwritten() {
        let place = tempfile::tempdir().expect("there is room");
        let authority = place.path();
        init(authority, "ca", "store", &[], NOW_S).expect("it can be made");
        let before: Vec<_> = modes(authority).iter().map(|(name, _)| std::fs::read(authority.join(name)).expect("there")).collect();
        let told = init(authority, "ca", "store", &[], NOW_S).expect_err("there already").to_string();
        assert!(told.contains("never overwritten"), "{told}");
        let guest = authority.join("guest");
        std::fs::create_dir(&guest).expect("there is room");
        std::fs::write(guest.join(files::CLIENT_KEY), "mine").expect("there is room");
        issue(authority, "guest", &Role::Client, &guest, NOW_S).expect_err("its key is there");
        assert_eq!(modes(&guest).len(), 1, "and nothing else was written");
        std::fs::remove_dir_all(&guest).expect("it is there");
        let after: Vec<_> = modes(authority).iter().map(|(name, _)| std::fs::read(authority.join(name)).expect("there")).collect();
        assert_eq!(before, after);
    }

    #[test]
    fn what_cannot_work_is_refused_with_a_sentence() {
        let place = tempfile::tempdir().expect("there is room");
        let issue_as = |name: &str| issue(place.path(), name, &Role::Client, &place.path().join("out"), NOW_S);
        for name in ["", ".", "../x", "a b", "a/b", "-x", &"x".repeat(65)] {
            assert!(matches!(issue_as(name), Err(PkiError::BadName(_))), "{name}");
        }
        assert!(matches!(issue_as("guest"), Err(PkiError::Unusable { .. })), "there is no authority");
        init(place.path(), "ca", "store", &["not a host".into()], NOW_S).expect_err("a host of that name cannot be");
        init(place.path(), "ca", "store", &[], NOW_S).expect("it can be made");
        // The key of another authority.
        let other = tempfile::tempdir().expect("there is room");
        init(other.path(), "ca", "store", &[], NOW_S).expect("it can be made");
        std::fs::copy(other.path().join(files::CA_KEY), place.path().join(files::CA_KEY)).expect("there is room");
        let told = issue_as("guest").expect_err("it signs for nobody").to_string();
        assert!(told.contains("not valid"), "{told}");
        assert!(!place.path().join("out").exists());
    }
}
