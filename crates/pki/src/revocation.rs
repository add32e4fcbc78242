//! Lists of revoked certificates: whether a file of them says of each authority's clients who is revoked.
//!
//! A file that does not is no list that revokes nobody, and none that revokes all: it cannot be used, and the reason is told.

use crate::PkiError;
use crate::der::{SEQUENCE, bytes_of_bits, element, expect};
use crate::names::common_name;
use crate::pair::{unusable, wrong_with};
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, TrustAnchor};
use std::path::Path;

/// In the scope of a list: only certificates of authorities, only certificates of attributes.
const OF_OTHERS: [u8; 2] = [0x82, 0x85];

/// Reads the lists in `path`: of each of these authorities the one that it has signed. Lists of others are passed over.
///
/// # Errors
/// [`PkiError::Unusable`] if the file is no list in PEM, an authority has none in it that is about its clients, or more than one.
pub fn revoked(path: &Path, authorities: &[CertificateDer<'_>]) -> Result<Vec<CertificateRevocationListDer<'static>>, PkiError> {
    let bytes = std::fs::read(path).map_err(|e| unusable(path, format!("the list of revoked certificates cannot be read ({e})")))?;
    if matches!(bytes.first(), None | Some(&SEQUENCE)) {
        return Err(unusable(path, why_none(path, &bytes)));
    }
    let lists = CertificateRevocationListDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    let wrong = |e: PemError| unusable(path, format!("the list of revoked certificates cannot be read: {}", wrong_with("list", &e)));
    let lists = lists.map_err(wrong)?;
    if lists.is_empty() {
        return Err(unusable(path, why_none(path, &bytes)));
    }
    let mut found = Vec::new();
    for authority in authorities {
        let anchor =
            webpki::anchor_from_trusted_cert(authority).map_err(|e| unusable(path, format!("its authority cannot be read ({e})")))?;
        let list = list_of(&lists, &anchor).map_err(|problem| unusable(path, problem))?;
        if !found.contains(list) {
            found.push(list.clone());
        }
    }
    Ok(found)
}

/// Why a file holds no list.
fn why_none(path: &Path, bytes: &[u8]) -> String {
    let path = path.display();
    match bytes.first() {
        None => "it is empty, which is no list: write the list again, or remove the file if no certificate is revoked".into(),
        Some(&SEQUENCE) => format!("it is not in PEM, as DER would begin: `openssl crl -inform DER -in {path} -out {path}` makes it so"),
        Some(_) => "there is no list of revoked certificates in it (a block that begins with `-----BEGIN X509 CRL-----`)".into(),
    }
}

/// The one list that the authority has signed and that is about its clients.
fn list_of<'a>(
    lists: &'a [CertificateRevocationListDer<'static>],
    anchor: &TrustAnchor<'_>,
) -> Result<&'a CertificateRevocationListDer<'static>, String> {
    let name = common_name(&anchor.subject).map_or_else(|| "its authority".into(), |name| format!("the authority {name:?}"));
    let (mut found, mut problem) = (None, None);
    for list in lists {
        let parsed = webpki::OwnedCertRevocationList::from_der(list).map_err(|e| format!("a list in it cannot be used ({e})"))?;
        let parsed = webpki::CertRevocationList::from(parsed);
        if parsed.issuer() != anchor.subject.as_ref() {
            continue;
        }
        if !is_signed_by(list, anchor) {
            problem = Some(format!("its list has the name of {name}, which has not signed it"));
        } else if parsed.issuing_distribution_point().is_some_and(is_of_others) {
            problem = Some(format!("the list of {name} in it is not about certificates of clients"));
        } else if found.replace(list).is_some() {
            return Err(format!("it holds more than one list of {name}: leave only the newest"));
        }
    }
    found.ok_or_else(|| problem.unwrap_or_else(|| format!("it holds no list of {name}: let that authority make one")))
}

/// Whether a list's scope leaves out the certificates of clients.
fn is_of_others(scope: &[u8]) -> bool {
    let mut rest = expect(scope, SEQUENCE).map_or(scope, |(inner, _)| inner);
    while let Some((tag, content, after)) = element(rest) {
        if OF_OTHERS.contains(&tag) && content.iter().any(|byte| *byte != 0) {
            return true;
        }
        rest = after;
    }
    false
}

/// Whether the authority's key has signed the list.
fn is_signed_by(list: &[u8], anchor: &TrustAnchor<'_>) -> bool {
    let parts = || {
        let (signed_data, _) = expect(list, SEQUENCE)?;
        let (_, after) = expect(signed_data, SEQUENCE)?;
        let data = &signed_data[..signed_data.len() - after.len()];
        let (algorithm, after) = expect(after, SEQUENCE)?;
        let (signature, _) = bytes_of_bits(after)?;
        let (key_algorithm, after) = expect(&anchor.subject_public_key_info, SEQUENCE)?;
        let (key, _) = bytes_of_bits(after)?;
        Some((data, algorithm, signature, key_algorithm, key))
    };
    let Some((data, algorithm, signature, key_algorithm, key)) = parts() else { return false };
    let known = rustls::crypto::ring::default_provider().signature_verification_algorithms.all;
    let fitting =
        known.iter().filter(|one| one.signature_alg_id().as_ref() == algorithm && one.public_key_alg_id().as_ref() == key_algorithm);
    fitting.into_iter().any(|one| one.verify_signature(key, data, signature).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate::{DAY_S, new_key, parameters};
    use rcgen::{
        BasicConstraints, CertificateRevocationListParams, CrlIssuingDistributionPoint, CrlScope, IsCa, Issuer, KeyIdMethod, KeyPair,
        KeyUsagePurpose, RevokedCertParams, SerialNumber,
    };
    use std::path::PathBuf;
    use std::time::{Duration, SystemTime};

    const NOW_S: u64 = 1_800_000_000;

    /// An authority of that name.
    struct Authority {
        issuer: Issuer<'static, KeyPair>,
        certificate: CertificateDer<'static>,
    }

    impl Authority {
        fn new(name: &str) -> Authority {
            let mut own = parameters(name, &[], NOW_S, DAY_S).expect("a plain name");
            own.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
            own.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
            let key = new_key().expect("a key");
            let certificate = own.self_signed(&key).expect("it signs").der().clone();
            Authority { issuer: Issuer::new(own, key), certificate }
        }

        /// A list of so many certificates.
        fn list(&self, revoked: u64, scope: Option<CrlScope>) -> rcgen::CertificateRevocationList {
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW_S);
            let one = |number: u64| RevokedCertParams {
                serial_number: SerialNumber::from(number + 1),
                revocation_time: at.into(),
                reason_code: None,
                invalidity_date: None,
            };
            let uris = vec!["http://crl.example/".to_owned()];
            let list = CertificateRevocationListParams {
                this_update: at.into(),
                next_update: (at + Duration::from_secs(DAY_S)).into(),
                crl_number: SerialNumber::from(1_u64),
                issuing_distribution_point: scope.map(|scope| CrlIssuingDistributionPoint {
                    distribution_point: rcgen::CrlDistributionPoint { uris },
                    scope: Some(scope),
                }),
                revoked_certs: (0..revoked).map(one).collect(),
                key_identifier_method: KeyIdMethod::Sha256,
            };
            list.signed_by(&self.issuer).expect("it signs")
        }

        fn pem(&self) -> String {
            self.list(1, None).pem().expect("PEM")
        }
    }

    fn read(bytes: &[u8], authorities: &[&Authority]) -> Result<usize, String> {
        let directory = tempfile::tempdir().expect("room");
        let path: PathBuf = directory.path().join("ca-crl.pem");
        std::fs::write(&path, bytes).expect("room");
        let authorities: Vec<_> = authorities.iter().map(|one| one.certificate.clone()).collect();
        revoked(&path, &authorities).map(|lists| lists.len()).map_err(|error| error.to_string())
    }

    #[test]
    fn only_a_list_of_each_authority_can_be_used() {
        let (own, other) = (Authority::new("ours"), Authority::new("others"));
        let refused = |bytes: &[u8], authorities: &[&Authority]| read(bytes, authorities).expect_err("it cannot be used");
        assert_eq!(read(own.pem().as_bytes(), &[&own]), Ok(1));
        // Another's beside it says nothing of ours.
        assert_eq!(read(format!("{}{}", other.pem(), own.pem()).as_bytes(), &[&own]), Ok(1));
        assert_eq!(read(format!("{}{}", other.pem(), own.pem()).as_bytes(), &[&own, &other]), Ok(2));
        assert!(refused(b"", &[&own]).contains("it is empty"));
        assert!(refused(own.list(1, None).der(), &[&own]).contains("openssl crl -inform DER"));
        let certificate = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(refused(certificate, &[&own]).contains("BEGIN X509 CRL"));
        assert!(refused(other.pem().as_bytes(), &[&own]).contains("no list of the authority \"ours\""));
        assert!(refused(own.pem().as_bytes(), &[&own, &other]).contains("no list of the authority \"others\""));
        assert!(refused(Authority::new("ours").pem().as_bytes(), &[&own]).contains("has not signed it"));
        assert!(refused(format!("{0}{0}", own.pem()).as_bytes(), &[&own]).contains("only the newest"));
        let text = own.pem();
        let cut = refused(&text.as_bytes()[..text.len() / 2], &[&own]);
        assert!(cut.contains("the line -----END X509 CRL----- is missing") && cut.contains("cut off"), "{cut}");
        let damaged = refused(text.replace("\nMI", "\n%I").as_bytes(), &[&own]);
        assert!(damaged.contains("is damaged"), "{damaged}");
    }

    #[test]
    fn a_list_about_authorities_alone_is_none_of_clients() {
        let own = Authority::new("ours");
        let scoped = |scope| own.list(1, Some(scope)).pem().expect("PEM");
        assert_eq!(read(scoped(CrlScope::UserCertsOnly).as_bytes(), &[&own]), Ok(1));
        let problem = read(scoped(CrlScope::CaCertsOnly).as_bytes(), &[&own]).expect_err("it says nothing of clients");
        assert!(problem.contains("not about certificates of clients"), "{problem}");
    }

    /// Longer than two bytes of length can say.
    #[test]
    fn a_long_list_is_checked_as_a_short_one() {
        let own = Authority::new("ours");
        let long = own.list(4000, None);
        assert!(long.der().len() > 1 << 16);
        assert_eq!(read(long.pem().expect("PEM").as_bytes(), &[&own]), Ok(1));
        // No bit of it can change unseen, whatever it says then.
        let anchor = webpki::anchor_from_trusted_cert(&own.certificate).expect("an authority");
        let short = own.list(1, None);
        assert!(is_signed_by(short.der(), &anchor));
        for at in 0..short.der().len() {
            let mut changed = short.der().to_vec();
            changed[at] ^= 1;
            assert!(!is_signed_by(&changed, &anchor), "byte {at}");
            assert!(!is_signed_by(&short.der()[..at], &anchor));
        }
    }
}
