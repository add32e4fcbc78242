//! Every malformed, oversized, half-finished or misplaced request gets a problem document that says what to do, and changes nothing.

use crate::support::{Running, limits, read_all, request, wait_until};
use rest::ServerOptions;
use rest::server::ServerLimits;
use serde_json::Value;
use std::io::{Read, Write};
use std::time::Duration;

#[test]
fn what_is_asked_wrongly_is_told_and_changes_nothing() {
    let server = Running::start();
    let made = server.ask("POST", "/api/v1/pools", r#"{"name":"p","ssd":"/dev/ssd"}"#);
    assert_eq!(made.status, 200, "{made:?}");
    let before = server.ask("GET", "/api/v1/pools", "").body;
    let long = "x".repeat(70_000);
    let deep = "[".repeat(20_000);
    // (method, path, body, status, kind, part of the sentence)
    let cases: &[(&str, &str, &str, u16, &str, &str)] = &[
        ("GET", "/api/v1/nothing", "", 404, "not_found", "there is no such path"),
        ("GET", "/api/v2/pools", "", 404, "not_found", "there is no such path"),
        ("GET", "/nothing", "", 404, "not_found", "there is no such path"),
        ("POST", "/", "", 404, "not_found", "there is no such path"),
        ("PUT", "/api/v1/pools", "{}", 405, "method", "Allow"),
        ("DELETE", "/api/v1/pools", "", 405, "method", "Allow"),
        ("PATCH", "/api/v1/jobs/1", "{}", 405, "method", "Allow"),
        ("BREW", "/api/v1/pools", "", 405, "method", "Allow"),
        ("POST", "/api/v1/pools", "{", 400, "usage", "openapi.json"),
        ("POST", "/api/v1/pools", "null", 400, "usage", "the body does not match this path"),
        ("POST", "/api/v1/pools", &deep, 400, "usage", "the body does not match this path"),
        ("POST", "/api/v1/pools", r#"["q","/dev/ssd",null,null,null,false]"#, 400, "usage", "a list was found where an object"),
        ("POST", "/api/v1/pools", "{\"name\":\"q\"}", 400, "usage", "missing field `ssd`"),
        ("POST", "/api/v1/pools", r#"{"name":"q","ssd":"/dev/ssd","colour":1}"#, 400, "usage", "unknown field `colour`"),
        ("POST", "/api/v1/pools", r#"{"name":"q","name":"q","ssd":"/dev/ssd"}"#, 400, "usage", "duplicate field"),
        ("POST", "/api/v1/pools", r#"{"name":"q","ssd":"/dev/ssd","size_bytes":-1}"#, 400, "usage", "-1"),
        ("POST", "/api/v1/pools", r#"{"name":"q","ssd":"/dev/ssd","size_bytes":1.5}"#, 400, "usage", "1.5"),
        ("POST", "/api/v1/pools", r#"{"name":"a/b","ssd":"/dev/ssd"}"#, 400, "usage", "has the character '/'"),
        ("POST", "/api/v1/pools", r#"{"name":"q","ssd":"/dev/none"}"#, 404, "not_found", "there is no such file or device"),
        ("POST", "/api/v1/pools", r#"{"name":"p","ssd":"/dev/disk"}"#, 409, "conflict", "there is already a pool"),
        ("POST", "/api/v1/pools", &long, 413, "too_large", "65536 bytes"),
        ("POST", "/api/v1/pools/p/check", "{}", 400, "usage", "this path does not accept a body"),
        ("DELETE", "/api/v1/pools/p", "{\"force\":true}", 400, "usage", "this path does not accept a body"),
        ("DELETE", "/api/v1/pools/p?force=maybe", "", 400, "usage", "the query is invalid"),
        ("DELETE", "/api/v1/pools/p?fource=true", "", 400, "usage", "unknown field `fource`"),
        ("DELETE", "/api/v1/pools/p?force=true&force=false", "", 400, "usage", "duplicate field"),
        ("GET", "/api/v1/pools/q", "", 404, "not_found", "there is no pool"),
        ("GET", "/api/v1/pools/a%20b", "", 400, "usage", "has the character ' '"),
        ("GET", "/api/v1/pools/..", "", 400, "usage", "begins with - or ."),
        ("GET", "/api/v1/pools/%ff", "", 400, "usage", "UTF-8"),
        ("GET", "/api/v1/pools/%2e%2e%2fetc", "", 400, "usage", "has the character '/'"),
        ("GET", "/api/v1/jobs/x", "", 400, "usage", "the job number in the path is not a number"),
        ("GET", "/api/v1/advice/x", "", 400, "usage", "the advice in the path is not a number"),
        ("DELETE", "/api/v1/stream-rules/x", "", 400, "usage", "the rule in the path is not a number"),
        ("POST", "/api/v1/applications/x/connect", "{\"login\":\"/x\"}", 400, "usage", "the application in the path is not a number"),
        ("GET", "/api/v1/jobs/+1", "", 400, "usage", "the job number in the path is not a number"),
        ("GET", "/api/v1/jobs/99999999999999999999", "", 400, "usage", "the job number in the path is not a number"),
        ("DELETE", "/api/v1/jobs/7", "", 404, "not_found", "there is no job"),
        ("GET", "/api/v1/events?after=-1", "", 400, "usage", "the query is invalid"),
        ("GET", "/api/v1/events?after=9223372036854775808", "", 400, "usage", "the query is invalid"),
        ("GET", "/api/v1/stream?after=9223372036854775808", "", 400, "usage", "the query is invalid"),
        (
            "GET",
            "/api/v1/history?name=v&series=reads_s&from_unix_s=5&to_unix_s=9223372036854775808",
            "",
            400,
            "usage",
            "the query is invalid",
        ),
        ("GET", "/api/v1/volumes/v/why", "", 400, "usage", "missing field `start_bytes`"),
        ("GET", "/api/v1/volumes/v/why?start_bytes=0&length_bytes=0", "", 400, "usage", "length_bytes"),
        ("GET", "/api/v1/volumes/v/why?start_bytes=0&length_bytes=1073741825", "", 400, "usage", "length_bytes"),
        ("GET", "/api/v1/volumes/v/map?cells=0", "", 400, "usage", "cells"),
        ("GET", "/api/v1/volumes/v/map?cells=16385", "", 400, "usage", "cells"),
        ("GET", "/api/v1/history?name=v&series=reads_s&from_unix_s=5&to_unix_s=5", "", 400, "usage", "from_unix_s"),
        ("GET", "/api/v1/history?name=v&series=reads_s&from_unix_s=1&to_unix_s=5&points=0", "", 400, "usage", "points"),
        ("GET", "/api/v1/history?name=a/b&series=reads_s&from_unix_s=1&to_unix_s=5", "", 400, "usage", "character"),
        ("POST", "/api/v1/session", "{}", 400, "usage", "a token or a code"),
        ("POST", "/api/v1/session", r#"{"token":"a","code":"b"}"#, 400, "usage", "a token or a code"),
        ("POST", "/api/v1/session", r#"{"token":"a"}"#, 401, "unauthenticated", "hearth token create"),
        ("POST", "/api/v1/session/code", "", 409, "conflict", "out of the configuration file"),
        ("POST", "/api/v1/tokens", r#"{"name":"t","role":"root"}"#, 400, "usage", "unknown variant `root`"),
        ("POST", "/api/v1/tokens", r#"{"name":"-t","role":"view"}"#, 400, "usage", "begins with - or ."),
        ("DELETE", "/api/v1/tokens/t", "", 404, "not_found", "hearth token list"),
        ("GET", "/problems/nothing", "", 404, "not_found", "there is no such path"),
    ];
    for (method, path, body, status, kind, part) in cases {
        let answer = server.ask(method, path, body);
        let sentence = answer.problem(*status, kind);
        assert!(sentence.contains(part), "{method} {path} {body:.60}: {sentence:?} lacks {part:?}");
        assert_eq!(answer.json()["instance"], path.split('?').next().expect("a path"), "{path}");
        if *status == 405 {
            assert!(answer.header("allow").is_some_and(|allowed| !allowed.is_empty()), "{answer:?}");
        }
    }
    assert_eq!(server.ask("GET", "/api/v1/pools", "").body, before);
    assert_eq!(server.ask("GET", "/api/v1/tokens", "").body, "[]");
}

#[test]
fn a_stopped_volume_answers_as_described() {
    let server = Running::start();
    for (path, body) in [
        ("/api/v1/pools", r#"{"name":"p","ssd":"/dev/ssd"}"#),
        ("/api/v1/volumes", r#"{"name":"v","backing":"/dev/disk","pool":"p","options":{}}"#),
        ("/api/v1/volumes/v/stop", ""),
    ] {
        let done = server.ask("POST", path, body);
        assert_eq!(done.status, 200, "{done:?}");
    }
    for (method, path) in [
        ("GET", "/api/v1/volumes/v"),
        ("GET", "/api/v1/volumes/v/stats"),
        ("GET", "/api/v1/history?name=v&series=reads_s&from_unix_s=1&to_unix_s=5"),
        ("POST", "/api/v1/volumes/v/destage"),
        ("POST", "/api/v1/volumes/v/drop-cache"),
    ] {
        server.ask(method, path, "");
    }
    for path in ["/api/v1/volumes/v/why?start_bytes=0", "/api/v1/volumes/v/map"] {
        let sentence = server.ask("GET", path, "").problem(409, "conflict");
        assert!(sentence.contains("hearth volume start v"), "{path}: {sentence}");
    }
}

/// Where the description lets a request hold an int64: each as the names that lead to it from the body.
fn int64_of_schema(description: &Value, schema: &Value, names: &[String], found: &mut Vec<Vec<String>>) {
    if let Some(name) = schema["$ref"].as_str().and_then(|r| r.rsplit('/').next()) {
        return int64_of_schema(description, &description["components"]["schemas"][name], names, found);
    }
    if schema["format"] == "int64" {
        assert!(schema["maximum"].as_u64().is_some_and(|most| most <= i64::MAX as u64), "{names:?}: {schema}");
        found.push(names.to_vec());
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        int64_of_schema(description, property, &[names, std::slice::from_ref(name)].concat(), found);
    }
    for choice in ["oneOf", "anyOf", "allOf"].iter().filter_map(|word| schema[word].as_array()).flatten() {
        int64_of_schema(description, choice, names, found);
    }
}

#[test]
fn no_request_may_hold_a_number_beyond_an_int64() {
    let server = Running::start();
    let beyond = (i64::MAX as u64 + 1).to_string();
    for (path, body) in [
        ("/api/v1/pools", r#"{"name":"p","ssd":"/dev/ssd"}"#),
        ("/api/v1/volumes", r#"{"name":"v","backing":"/dev/disk","pool":"p","options":{}}"#),
    ] {
        let made = server.ask("POST", path, body);
        assert_eq!(made.status, 200, "{made:?}");
    }
    let before = ["pools", "volumes", "jobs"].map(|what| server.ask("GET", &format!("/api/v1/{what}"), "").body);
    let description: Value = serde_json::from_str(&rest::openapi::document()).expect("JSON");
    let mut tried = 0;
    for (path, item) in description["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            let (method, named) = (method.to_uppercase(), path.replace("{name}", "v"));
            let parameters: Vec<&Value> = operation["parameters"].as_array().into_iter().flatten().collect();
            let queries: Vec<&str> = parameters.iter().filter(|p| p["in"] == "query").filter_map(|p| p["name"].as_str()).collect();
            for parameter in parameters.iter().filter(|p| p["schema"]["format"] == "int64") {
                let name = parameter["name"].as_str().expect("a name");
                assert!(parameter["schema"]["maximum"].as_u64().is_some_and(|most| most <= i64::MAX as u64), "{path} {parameter}");
                let answer = match parameter["in"].as_str().expect("a place") {
                    "path" => server.ask(&method, &named.replace(&format!("{{{name}}}"), &beyond), ""),
                    "query" => {
                        // The others as they may be, so that this one alone is at fault.
                        let value = |query: &str| match query {
                            _ if query == name => beyond.clone(),
                            "name" => "v".into(),
                            "series" => "reads_s".into(),
                            _ => "1".into(),
                        };
                        let all: Vec<String> = queries.iter().map(|query| format!("{query}={}", value(query))).collect();
                        server.ask(&method, &format!("{named}?{}", all.join("&")), "")
                    }
                    "header" => server.raw(request(&method, &named, &[(name, &beyond)], "").as_bytes()),
                    other => panic!("{path}: {other}"),
                };
                assert!([400, 404].contains(&answer.status), "{method} {path} {name}: {answer:?}");
                tried += 1;
            }
            let content = &operation["requestBody"]["content"]["application/json"];
            let mut found = Vec::new();
            int64_of_schema(&description, &content["schema"], &[], &mut found);
            for names in found {
                let mut body = content["example"].clone();
                let place = names.iter().fold(&mut body, |place, name| &mut place[name]);
                *place = Value::from(i64::MAX as u64 + 1);
                let answer = server.ask(&method, &named, &body.to_string());
                assert_eq!(answer.status, 400, "{method} {path} {body}: {answer:?}");
                tried += 1;
            }
        }
    }
    assert!(tried >= 25, "{tried} numbers only");
    assert_eq!(["pools", "volumes", "jobs"].map(|what| server.ask("GET", &format!("/api/v1/{what}"), "").body), before);
}

#[test]
fn every_kind_of_problem_says_what_it_is() {
    let server = Running::start();
    for kind in api::error::Kind::ALL {
        let page = server.ask("GET", &format!("/problems/{}", kind.word()), "");
        assert!(page.status == 200 && page.body.contains(kind.title()), "{page:?}");
    }
}

#[test]
fn bodies_are_json_and_say_so() {
    let server = Running::start();
    let body = r#"{"name":"p","ssd":"/dev/ssd"}"#;
    for wrong in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonp", ""] {
        let answer = server.raw(request("POST", "/api/v1/pools", &[("content-type", wrong)], body).as_bytes());
        answer.problem(415, "media_type");
    }
    let none = format!("POST /api/v1/pools HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    server.raw(none.as_bytes()).problem(415, "media_type");
    let charset = request("POST", "/api/v1/pools", &[("content-type", "Application/JSON; charset=utf-8")], body);
    assert_eq!(server.raw(charset.as_bytes()).status, 200);
}

/// What is no HTTP, or too much of it, is answered with a document too, although the library below gives up on it.
#[test]
fn what_is_not_http_gets_a_document() {
    let server = Running::start();
    let many = format!("GET / HTTP/1.1\r\nhost: h\r\n{}\r\n", "a: b\r\n".repeat(100));
    let large = format!("GET / HTTP/1.1\r\nhost: h\r\na: {}\r\n\r\n", "b".repeat(40_000));
    let long = format!("GET /{} HTTP/1.1\r\nhost: h\r\n\r\n", "b".repeat(40_000));
    let cases: [(&[u8], u16, &str); 9] = [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, "usage"),
        (b"hello\r\n\r\n", 400, "usage"),
        (b"GET /\r\n\r\n", 400, "usage"),
        (b"GET / HTTP/9.9\r\nhost: h\r\n\r\n", 400, "usage"),
        (b"GET / HTTP/1.1\r\nhost h\r\n\r\n", 400, "usage"),
        (b"POST /api/v1/pools HTTP/1.1\r\nhost: h\r\ncontent-length: -5\r\n\r\n", 400, "usage"),
        (many.as_bytes(), 431, "too_large"),
        (large.as_bytes(), 431, "too_large"),
        (long.as_bytes(), 431, "too_large"),
    ];
    for (says, status, kind) in cases {
        let answer = server.raw(says);
        let shown: String = String::from_utf8_lossy(says).chars().take(60).collect();
        assert_eq!(answer.status, status, "{shown:?}: {answer:?}");
        answer.problem(status, kind);
    }
    let chunked = format!(
        "POST /api/v1/pools HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n12000\r\n{}",
        " ".repeat(0x12000)
    );
    server.raw(chunked.as_bytes()).problem(413, "too_large");
    let broken = "POST /api/v1/pools HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n";
    server.raw(broken.as_bytes()).problem(400, "usage");
}

/// Clients that say nothing, half a header, or half a request are sent away after a while; see `crowds.rs` for many of them.
#[test]
fn slow_clients_are_sent_away() {
    // Long enough for those that are not slow, on a busy machine too.
    let patience = Duration::from_secs(2);
    let server = Running::with(|options: &mut ServerOptions| options.limits = ServerLimits { patience, ..limits() });
    let post = request("POST", "/api/v1/pools", &[("content-length", "100")], "{");
    let mut slow = [server.connect(b""), server.connect(b"GET /"), server.connect(post.as_bytes())];
    let good = server.ask("GET", "/api/v1/pools", "");
    assert_eq!((good.status, good.body.as_str()), (200, "[]"));
    read_all(&mut slow[1]).problem(408, "slow");
    read_all(&mut slow[2]).problem(408, "slow");
    // A body broken off in the middle does nothing either.
    let half = server.connect(request("POST", "/api/v1/pools", &[("content-length", "29")], r#"{"name":"p","ssd":"/dev/s"#).as_bytes());
    half.shutdown(std::net::Shutdown::Write).expect("it is open");
    let mut half = half;
    let mut left = Vec::new();
    half.read_to_end(&mut left).expect("it is closed");
    assert_eq!(server.ask("GET", "/api/v1/pools", "").body, "[]");
}

/// Once the answer was taken back by closing the connection while the client was still sending.
#[test]
fn a_body_too_large_is_answered_also_when_the_client_is_still_sending() {
    let server = Running::with_tcp();
    let token = format!("Bearer {}", server.token("t", "operate"));
    let body = vec![b' '; 8 << 20];
    let length = body.len().to_string();
    let (whole, part) = (request("POST", "/api/v1/pools", &[("content-length", &length)], "{"), format!("{:x}\r\n", body.len()));
    let chunked = request("POST", "/api/v1/pools", &[("transfer-encoding", "chunked"), ("content-length", "")], "{");
    let chunked = chunked.replace("content-length: \r\n", "").trim_end_matches('{').to_string() + &part;
    for head in [&whole, &chunked] {
        let mut stream = server.connect(head.as_bytes());
        stream.write_all(&body[1..]).expect("all of it is taken");
        read_all(&mut stream).problem(413, "too_large");
        let head = head.replacen("\r\n", &format!("\r\nauthorization: {token}\r\n"), 1);
        let mut stream = server.secure();
        stream.write_all(head.as_bytes()).expect("there is room");
        stream.write_all(&body[1..]).expect("all of it is taken");
        read_all(&mut stream).problem(413, "too_large");
    }
    // Who is refused for another reason before the body has come is answered too.
    let mut stream = server.secure();
    stream.write_all(whole.as_bytes()).and_then(|()| stream.write_all(&body[1..])).expect("all of it is taken");
    read_all(&mut stream).problem(401, "unauthenticated");
}

#[test]
fn who_asks_too_often_is_told_when_to_come_again() {
    let server = Running::with(|options| options.limits = ServerLimits { requests_per_second: 1.0, requests_burst: 5.0, ..limits() });
    let answers: Vec<_> = (0..8).map(|_| server.ask("GET", "/api/v1/daemon", "")).collect();
    assert!(answers[..5].iter().all(|a| a.status == 200), "{answers:?}");
    let refused = answers.last().expect("eight");
    refused.problem(429, "too_many");
    assert!(refused.header("retry-after").and_then(|s| s.parse::<u64>().ok()).is_some_and(|s| (1..=2).contains(&s)), "{refused:?}");
}

#[test]
fn what_takes_too_long_is_told_and_goes_on() {
    let server = Running::with(|options| {
        options.limits = ServerLimits { change: Duration::from_secs(2), actions: 1, ..limits() };
    });
    assert_eq!(server.ask("POST", "/api/v1/pools", r#"{"name":"p","ssd":"/dev/ssd"}"#).status, 200);
    let held = server.world.inside();
    let late = server.ask("POST", "/api/v1/volumes", r#"{"name":"v","pool":"p","backing":"/dev/disk"}"#);
    assert!(late.problem(504, "late").contains("check with `hearth volume show v`"), "{late:?}");
    // It holds the only place.
    let full = server.ask("POST", "/api/v1/volumes/v/destage", "");
    full.problem(503, "overloaded");
    assert!(full.header("retry-after").is_some(), "{full:?}");
    drop(held);
    wait_until("it went on", || server.ask("GET", "/api/v1/volumes/v", "").status == 200);
}

#[test]
fn a_connection_serves_many_requests_and_survives_refusals() {
    let server = Running::start();
    let mut stream = server.connect(b"");
    for _ in 0..3 {
        let wrong = "GET /api/v1/pools/q HTTP/1.1\r\nhost: h\r\n\r\n";
        stream.write_all(wrong.as_bytes()).expect("it is open");
        let mut bytes = [0; 4096];
        let count = stream.read(&mut bytes).expect("an answer");
        assert!(bytes[..count].starts_with(b"HTTP/1.1 404"), "{}", String::from_utf8_lossy(&bytes[..count]));
    }
}
