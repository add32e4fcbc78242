//! Who gets in, by what, and how far: users of the socket, tokens, sessions, and pages of other sites.

use crate::support::{Answer, Running, limits, read_all, request};
use rest::{ServerOptions, TcpOptions};
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

/// The cookie's `name=value`.
fn cookie(answer: &Answer) -> String {
    let set = answer.header("set-cookie").expect("a cookie");
    for part in ["; Path=/", "; Secure", "; HttpOnly", "; SameSite=Strict"] {
        assert!(set.contains(part), "{set}");
    }
    assert!(set.starts_with("__Host-hearth=") && !set.contains("Domain"), "{set}");
    set.split(';').next().expect("a value").to_string()
}

#[test]
fn nobody_gets_in_by_tcp_without_a_token_and_views_change_nothing() {
    let server = Running::with_tcp();
    let (view, operate) = (bearer(&server.token("viewer", "view")), bearer(&server.token("operator", "operate")));
    for path in ["/api/v1/pools", "/api/v1/nothing", "/api/v1/stream", "/api/v1/openapi.json", "/metrics", "/api/v1/session"] {
        let refused = server.ask_tls("GET", path, &[], "");
        refused.problem(401, "unauthenticated");
        assert!(refused.header("www-authenticate").is_some_and(|v| v.starts_with("Bearer")), "{refused:?}");
    }
    for wrong in ["", "Bearer", "Bearer ", "Bearer hearth_0", "Basic aGVhcnRo", &format!("{operate}0"), &operate[..operate.len() - 1]] {
        server.ask_tls("GET", "/api/v1/pools", &[("authorization", wrong)], "").problem(401, "unauthenticated");
    }
    assert_eq!(server.ask_tls("GET", "/api/v1/pools", &[("authorization", &view)], "").body, "[]");
    let create = r#"{"name":"p","ssd":"/dev/ssd"}"#;
    for (method, path, body) in [
        ("POST", "/api/v1/pools", create),
        ("DELETE", "/api/v1/pools/p", ""),
        ("PATCH", "/api/v1/volumes/v", "{}"),
        ("POST", "/api/v1/devices/examine", "{}"),
        ("POST", "/api/v1/tokens", r#"{"name":"x","role":"operate"}"#),
        ("DELETE", "/api/v1/tokens/operator", ""),
        ("DELETE", "/api/v1/jobs/1", ""),
        ("POST", "/api/v1/session/code", ""),
    ] {
        server.ask_tls(method, path, &[("authorization", &view)], body).problem(403, "forbidden");
    }
    assert_eq!(server.ask("GET", "/api/v1/pools", "").body, "[]");
    assert_eq!(server.ask_tls("POST", "/api/v1/pools", &[("authorization", &operate)], create).status, 200);
    let me = server.ask_tls("GET", "/api/v1/session", &[("authorization", &view)], "").json();
    assert_eq!((me["role"].as_str(), me["by"].as_str(), me["name"].as_str()), (Some("view"), Some("token"), Some("viewer")));
    assert!(me["csrf"].is_null());
    // Codes are for who is on this machine.
    let code = server.ask_tls("POST", "/api/v1/session/code", &[("authorization", &operate)], "");
    assert!(code.problem(403, "forbidden").contains("Unix socket only"));
    assert_eq!(server.ask("DELETE", "/api/v1/tokens/viewer", "").status, 200);
    server.ask_tls("GET", "/api/v1/pools", &[("authorization", &view)], "").problem(401, "unauthenticated");
}

#[test]
fn the_socket_knows_its_users_and_takes_tokens_too() {
    let server = Running::start();
    let me = server.ask("GET", "/api/v1/session", "").json();
    assert_eq!((me["role"].as_str(), me["by"].as_str()), (Some("operate"), Some("socket")));
    let token = bearer(&server.token("viewer", "view"));
    let create = request("POST", "/api/v1/pools", &[("authorization", &token)], r#"{"name":"p","ssd":"/dev/ssd"}"#);
    server.raw(create.as_bytes()).problem(403, "forbidden");
}

#[test]
fn a_browser_logs_in_proves_its_changes_and_logs_out() {
    let server = Running::with_tcp();
    let token = server.token("console", "operate");
    let login = server.ask_tls("POST", "/api/v1/session", &[], &format!("{{\"token\":\"{token}\"}}"));
    assert_eq!(login.status, 200, "{login:?}");
    let (cookie, csrf) = (cookie(&login), login.json()["csrf"].as_str().expect("a proof").to_string());
    let session = [("cookie", cookie.as_str())];
    assert_eq!(server.ask_tls("GET", "/api/v1/pools", &session, "").body, "[]");
    assert_eq!(server.ask_tls("GET", "/api/v1/session", &session, "").json()["csrf"], csrf.as_str());
    let create = r#"{"name":"p","ssd":"/dev/ssd"}"#;
    for proof in [None, Some(""), Some("0"), Some(&csrf[1..])] {
        let headers: Vec<_> = session.into_iter().chain(proof.map(|p| ("x-hearth-csrf", p))).collect();
        server.ask_tls("POST", "/api/v1/pools", &headers, create).problem(403, "forbidden");
    }
    let proven = [("cookie", cookie.as_str()), ("x-hearth-csrf", csrf.as_str())];
    for (name, value) in
        [("origin", "https://evil.example"), ("origin", "null"), ("sec-fetch-site", "cross-site"), ("sec-fetch-site", "same-site")]
    {
        let headers = [proven[0], proven[1], (name, value)];
        server.ask_tls("POST", "/api/v1/pools", &headers, create).problem(403, "forbidden");
        server.ask_tls("GET", "/api/v1/pools", &headers, "").problem(403, "forbidden");
    }
    let same = [proven[0], proven[1], ("origin", "https://localhost"), ("sec-fetch-site", "same-origin")];
    assert_eq!(server.ask_tls("POST", "/api/v1/pools", &same, create).status, 200);
    server.ask_tls("DELETE", "/api/v1/session", &session, "").problem(403, "forbidden");
    assert_eq!(server.ask_tls("DELETE", "/api/v1/session", &proven, "").status, 200);
    server.ask_tls("GET", "/api/v1/pools", &session, "").problem(401, "unauthenticated");
    // On the socket a cookie is nothing: the kernel knows better.
    assert_eq!(server.raw(request("GET", "/api/v1/session", &session, "").as_bytes()).json()["by"], "socket");
}

#[test]
fn a_code_logs_in_once_and_a_revoked_token_logs_out() {
    let server = Running::with_tcp();
    let made = server.ask("POST", "/api/v1/session/code", "").json();
    let url = made["url"].as_str().expect("an address");
    let (address, code) = url.split_once("/#code=").expect("a code");
    assert_eq!(address, format!("https://{}", server.tcp.expect("it listens")));
    assert_eq!(made["valid_s"], 300);
    let body = format!("{{\"code\":\"{code}\"}}");
    let login = server.ask_tls("POST", "/api/v1/session", &[], &body);
    assert_eq!((login.status, login.json()["role"].as_str()), (200, Some("operate")));
    server.ask_tls("POST", "/api/v1/session", &[], &body).problem(401, "unauthenticated");

    let token = server.token("short", "view");
    let login = server.ask_tls("POST", "/api/v1/session", &[], &format!("{{\"token\":\"{token}\"}}"));
    let cookie = cookie(&login);
    assert_eq!(server.ask_tls("GET", "/api/v1/pools", &[("cookie", &cookie)], "").status, 200);
    assert_eq!(server.ask("DELETE", "/api/v1/tokens/short", "").status, 200);
    server.token("short", "view");
    server.ask_tls("GET", "/api/v1/pools", &[("cookie", &cookie)], "").problem(401, "unauthenticated");
}

#[test]
fn failed_logins_are_counted() {
    let server = Running::with_tcp();
    let token = server.token("good", "view");
    let guess = || server.ask_tls("POST", "/api/v1/session", &[], r#"{"token":"hearth_guess"}"#);
    (0..5).for_each(|_| drop(guess().problem(401, "unauthenticated")));
    let refused = guess();
    refused.problem(429, "too_many");
    assert!(refused.header("retry-after").and_then(|v| v.parse::<u64>().ok()).is_some_and(|s| s > 5), "{refused:?}");
    // Who has a token gets in all the same, also from the same address: a stranger could keep its owner out otherwise.
    let good = server.ask_tls("POST", "/api/v1/session", &[], &format!("{{\"token\":\"{token}\"}}"));
    assert_eq!(good.status, 200, "{good:?}");
    assert_eq!(server.ask_tls("GET", "/api/v1/pools", &[("authorization", &bearer(&token))], "").status, 200);
}

#[test]
fn foreign_host_names_are_refused() {
    let server = Running::with(|options: &mut ServerOptions| {
        options.limits = limits();
        options.names = vec!["cache.example".into()];
        options.tcp = Some(TcpOptions::at(([127, 0, 0, 1], 0).into()));
    });
    let token = bearer(&server.token("t", "view"));
    let ask = |host: &str, path: &str| server.ask_tls("GET", path, &[("authorization", &token), ("host", host)], "");
    for host in ["localhost", "127.0.0.1:7420", "[::1]:1", "Cache.Example"] {
        assert_eq!(ask(host, "/api/v1/pools").status, 200, "{host}");
    }
    for host in ["evil.example", "", "192.0.2.1", "localhost.evil.example:7420"] {
        ask(host, "/api/v1/pools").problem(403, "forbidden");
        ask(host, "/").problem(403, "forbidden");
    }
}

#[test]
fn tls_only_and_who_does_not_speak_it_is_told() {
    let server = Running::with_tcp();
    let address = server.tcp.expect("it listens");
    let mut plain = TcpStream::connect(address).expect("it listens");
    plain.write_all(request("GET", "/api/v1/pools", &[], "").as_bytes()).expect("there is room");
    let told = read_all(&mut plain);
    assert!(told.problem(400, "usage").contains("https://"), "{told:?}");
    let key = server.directory.path().join("tls/key.pem");
    assert_eq!(std::fs::metadata(key).expect("it was made").permissions().mode() & 0o777, 0o600);
    // TLS 1.3 and 1.2 are spoken, and the certificate is for the address too.
    let mut stream = server.secure();
    stream.flush().expect("a handshake");
    stream.conn.complete_io(&mut stream.sock).expect("a handshake");
    assert_eq!(stream.conn.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
}

#[test]
fn every_answer_has_the_headers_that_close_what_browsers_open() {
    let server = Running::with_tcp();
    let token = bearer(&server.token("t", "view"));
    let answers = [
        server.ask_tls("GET", "/", &[], ""),
        server.ask_tls("GET", "/api/v1/pools", &[], ""),
        server.ask_tls("GET", "/api/v1/pools", &[("authorization", &token)], ""),
        server.ask_tls("GET", "/api/v1/nothing", &[("authorization", &token)], ""),
        server.ask_tls("PUT", "/api/v1/pools", &[("authorization", &token)], ""),
        server.ask_tls("GET", "/problems/usage", &[], ""),
    ];
    for answer in answers {
        let policy = answer.header("content-security-policy").expect("a policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'self'") && policy.contains("frame-ancestors 'none'"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        for (name, value) in [
            ("x-frame-options", "DENY"),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
            ("cache-control", "no-store"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{answer:?}");
        }
    }
}

#[test]
fn the_consoles_files_are_served_to_everybody_and_nothing_else_is() {
    let server = Running::with(|options: &mut ServerOptions| {
        options.limits = limits();
        options.tcp = Some(TcpOptions::at(([127, 0, 0, 1], 0).into()));
        options.assets = std::sync::Arc::new(|path| {
            let page = rest::Asset { bytes: b"<p>", content_type: "text/html", brotli: Some(b"small"), etag: "\"1\"", immutable: false };
            (path == "index.html").then_some(page)
        });
    });
    let page = server.ask_tls("GET", "/", &[], "");
    assert_eq!((page.status, page.body.as_str(), page.header("content-type")), (200, "<p>", Some("text/html")));
    assert_eq!((page.header("etag"), page.header("cache-control")), (Some("\"1\""), Some("no-cache")));
    let small = server.ask_tls("GET", "/index.html", &[("accept-encoding", "gzip, br")], "");
    assert_eq!((small.body.as_str(), small.header("content-encoding")), ("small", Some("br")));
    let kept = server.ask_tls("GET", "/", &[("if-none-match", "\"1\"")], "");
    assert_eq!((kept.status, kept.body.as_str()), (304, ""));
    // A link on another site may lead here; it is the API that foreign pages must not reach.
    assert_eq!(server.ask_tls("GET", "/", &[("sec-fetch-site", "cross-site")], "").status, 200);
    assert_eq!(server.ask_tls("HEAD", "/", &[], "").body, "");
    for path in ["/../tokens.json", "/tokens.json", "//etc/passwd", "/%2e%2e/tokens.json", "/index.html/", "/api"] {
        server.ask_tls("GET", path, &[], "").problem(404, "not_found");
    }
    server.ask_tls("POST", "/", &[], "").problem(404, "not_found");
}
