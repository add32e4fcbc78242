//! Whom a certificate is about.

use crate::der::{IA5_STRING, OBJECT_IDENTIFIER, PRINTABLE_STRING, SEQUENCE, SET, TELETEX_STRING, UTF8_STRING, element};
use rustls::pki_types::CertificateDer;

/// Object identifier 2.5.4.3, the common name.
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];

/// The common name and the host names of a certificate, without repetition; empty if it has none, or is no certificate. Who signed
/// it is for others to say.
pub fn names_of(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok(parsed) = webpki::EndEntityCert::try_from(certificate) else { return Vec::new() };
    let mut names: Vec<String> = common_name(parsed.subject()).into_iter().collect();
    for name in parsed.valid_dns_names() {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// The common name in a subject: a list of sets of pairs of identifier and text.
pub(crate) fn common_name(subject: &[u8]) -> Option<String> {
    let mut rest = subject;
    // With or without the outer header, as the reader of certificates gives it.
    if let Some((SEQUENCE, inner, [])) = element(rest) {
        rest = inner;
    }
    while let Some((kind, set, after)) = element(rest) {
        rest = after;
        if kind != SET {
            return None;
        }
        let mut pairs = set;
        while let Some((kind, pair, after)) = element(pairs) {
            pairs = after;
            if kind != SEQUENCE {
                return None;
            }
            if let Some((OBJECT_IDENTIFIER, identifier, text)) = element(pair)
                && identifier == COMMON_NAME
                && let Some((UTF8_STRING | PRINTABLE_STRING | TELETEX_STRING | IA5_STRING, text, _)) = element(text)
            {
                return std::str::from_utf8(text).ok().map(str::to_owned);
            }
        }
    }
    None
}

/// A name as a line of a log may show it: certificates of strangers may say anything.
pub fn shown(names: &[String]) -> String {
    const SHOWN_MAX: usize = 64;
    match names.first() {
        None => "without a name".into(),
        Some(name) => format!("{:?}", name.chars().take(SHOWN_MAX).collect::<String>()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate::self_signed;
    use rustls::pki_types::pem::PemObject;

    #[test]
    fn a_certificate_tells_its_common_name_and_its_host_names() {
        let hosts = ["a.example".to_owned(), "guest7".to_owned(), "192.0.2.1".to_owned()];
        let made = self_signed("guest7", &hosts, 1_700_000_000, 1000).expect("it can be made");
        let certificate = CertificateDer::from_pem_slice(made.certificate.as_bytes()).expect("it is PEM");
        assert_eq!(names_of(&certificate), ["guest7", "a.example"]);
        // Whatever is cut off or changed: no panic, and never a name out of nothing.
        for length in 0..certificate.len() {
            assert_eq!(names_of(&CertificateDer::from(certificate[..length].to_vec())), Vec::<String>::new());
        }
        let parsed = webpki::EndEntityCert::try_from(&certificate).expect("a certificate");
        let subject = parsed.subject();
        assert_eq!(common_name(subject).as_deref(), Some("guest7"));
        for at in 0..subject.len() {
            for bit in 0..8 {
                let mut changed = subject.to_vec();
                changed[at] ^= 1 << bit;
                common_name(&changed);
            }
        }
    }

    #[test]
    fn a_shown_name_is_short_and_plain() {
        assert_eq!(shown(&["guest7".into()]), "\"guest7\"");
        assert_eq!(shown(&[]), "without a name");
        assert_eq!(shown(&["a\nb".into()]), r#""a\nb""#);
        assert_eq!(shown(&["x".repeat(1000)]).len(), 66);
    }
}
