//! By which names this daemon may be asked, and by whose pages: against DNS rebinding and cross-site requests.

use crate::problem::{Outcome, Problem};
use api::error::Kind;
use axum::extract::Request;
use axum::http::{HeaderMap, header};
use std::net::IpAddr;

/// The names that count as this daemon's.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    /// Whether other machines may ask: then any address counts, which no foreign name can be made to resemble.
    pub remote: bool,
    /// Further names, lower case.
    pub names: Vec<String>,
}

impl Hosts {
    /// Refuses what was sent to a foreign name, and what a page of another origin sent to the API.
    pub fn check(&self, request: &Request, api: bool) -> Outcome<()> {
        let headers = request.headers();
        let host = text(headers, header::HOST).or_else(|| request.uri().authority().map(|a| a.as_str())).unwrap_or_default();
        if !self.is_ours(host) {
            let detail = format!("{:?} is not a name of this daemon", host.chars().take(80).collect::<String>());
            let remedy = "use localhost or the address it listens on, or add the name to api.names in the configuration file";
            return Err(Problem::new(Kind::Forbidden, detail, remedy));
        }
        if !api {
            return Ok(());
        }
        let foreign = || Problem::new(Kind::Forbidden, "a page of another site sent this request", "use the console itself");
        if text(headers, header::ORIGIN).is_some_and(|origin| origin.strip_prefix("https://") != Some(host)) {
            return Err(foreign());
        }
        match headers.get("sec-fetch-site").map(|v| v.as_bytes()) {
            None | Some(b"same-origin" | b"none") => Ok(()),
            Some(_) => Err(foreign()),
        }
    }

    fn is_ours(&self, host: &str) -> bool {
        let Some(name) = without_port(host) else { return false };
        let name = name.to_ascii_lowercase();
        let address = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(&name);
        match address.parse::<IpAddr>() {
            Ok(address) => self.remote || address.is_loopback(),
            Err(_) => name == "localhost" || self.names.contains(&name),
        }
    }
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("\u{fffd}"))
}

/// The name of `NAME:PORT`, `NAME` or `[ADDRESS]:PORT`; `None` if the port is none.
fn without_port(host: &str) -> Option<&str> {
    let (name, port) = match host.rfind(':') {
        Some(at) if !host[at..].contains(']') => (&host[..at], &host[at + 1..]),
        _ => (host, "1"),
    };
    (port.parse::<u16>().is_ok() && !name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    fn check(hosts: &Hosts, lines: &[(&str, &str)], api: bool, passes: bool) {
        let mut request = Request::new(Body::empty());
        for (name, value) in lines {
            let name: header::HeaderName = name.parse().expect("a name");
            request.headers_mut().append(name, value.parse().expect("a value"));
        }
        assert_eq!(hosts.check(&request, api).is_ok(), passes, "{lines:?}");
    }

    #[test]
    fn foreign_names_are_refused_whoever_resolves_them() {
        let local = Hosts { remote: false, names: vec!["cache.example".into()] };
        for ours in
            ["localhost", "localhost:7420", "LOCALHOST:1", "127.0.0.1:7420", "127.0.0.9", "[::1]:7420", "[::1]", "cache.example:443"]
        {
            check(&local, &[("host", ours)], true, true);
        }
        for foreign in [
            "",
            ":7420",
            "evil.example:7420",
            "localhost.evil.example",
            "192.0.2.1:7420",
            "localhost:x",
            "[2001:db8::1]",
            "127.0.0.1.evil.example",
        ] {
            check(&local, &[("host", foreign)], true, false);
            check(&local, &[("host", foreign)], false, false);
        }
        check(&local, &[], true, false);
        let remote = Hosts { remote: true, names: Vec::new() };
        check(&remote, &[("host", "192.0.2.1:7420")], true, true);
        check(&remote, &[("host", "evil.example")], true, false);
    }

    #[test]
    fn pages_of_other_origins_are_refused_at_the_api() {
        let local = Hosts::default();
        let from = |name, value, api, passes| check(&local, &[("host", "localhost:7420"), (name, value)], api, passes);
        from("origin", "https://localhost:7420", true, true);
        for origin in ["http://localhost:7420", "https://localhost:7421", "https://evil.example", "null", ""] {
            from("origin", origin, true, false);
        }
        from("sec-fetch-site", "same-origin", true, true);
        from("sec-fetch-site", "none", true, true);
        for site in ["cross-site", "same-site", "whatever"] {
            from("sec-fetch-site", site, true, false);
            // A link to the console itself may be followed from anywhere: it changes nothing.
            from("sec-fetch-site", site, false, true);
        }
    }
}
