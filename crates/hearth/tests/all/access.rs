//! Tokens, the console's address, and TCP, by the real commands; and that no secret gets into the log.

use crate::support;
use crate::support::Place;

/// One request with a body, on the socket.
fn post(path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-type: application/json\r\n{headers}content-length: {length}\r\n\r\n{body}"
    )
}

#[test]
fn tokens_are_made_shown_once_and_revoked() {
    let place = Place::new();
    let daemon = place.daemon();
    assert!(place.must(&["token", "list"]).contains("no tokens; create one with `hearth token create"));
    let token = place.must(&["token", "create", "ci", "--role", "view"]).trim().to_string();
    assert!(token.starts_with("hearth_") && token.len() == 71, "{token}");
    let list = place.must(&["token", "list"]);
    assert!(list.contains("ci") && list.contains("view") && !list.contains(&token[8..]), "{list}");
    assert_eq!(place.json(&["token", "list"])[0]["role"], "view");
    place.must_fail(&["token", "create", "ci", "--role", "operate"], 1, "there is already a token \"ci\"");
    place.must_fail(&["token", "create", "x", "--role", "root"], 2, "use view (look at everything) or operate (everything)");
    place.must_fail(&["token", "create", "a/b", "--role", "view"], 2, "has the character '/'");
    place.must_fail(&["token", "create", "x"], 2, "--role");
    place.must_fail(&["token", "revoke", "y"], 1, "there is no token \"y\"; list the tokens with `hearth token list`");
    place.must_fail(&["token"], 2, "see `hearth token --help`");
    let me = |token: &str| {
        place.ask(&format!("GET /api/v1/session HTTP/1.1\r\nhost: h\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\r\n"))
    };
    assert!(me(&token).contains("\"name\":\"ci\""), "{}", me(&token));
    daemon.stop();
    let _daemon = place.daemon();
    assert!(me(&token).contains("\"name\":\"ci\""), "it is kept over a restart");
    assert_eq!(place.must(&["token", "revoke", "ci"]), "token ci revoked\n");
    assert!(me(&token).starts_with("HTTP/1.1 401"), "{}", me(&token));
    std::fs::write(place.path("state/tokens.json"), "{").expect("there is room");
}

#[test]
fn a_damaged_file_of_tokens_stops_nothing_else() {
    let place = Place::new();
    std::fs::create_dir(place.path("state")).expect("a directory");
    std::fs::write(place.path("state/tokens.json"), "{").expect("there is room");
    let daemon = place.daemon();
    place.must(&["pool", "list"]);
    place.must_fail(&["token", "create", "x", "--role", "view"], 1, "move it away and create the tokens again");
    assert!(daemon.log().contains("no token is accepted until it is repaired"), "{}", daemon.log());
    std::fs::remove_file(place.path("state/tokens.json")).expect("it is there");
    place.must(&["token", "create", "x", "--role", "view"]);
}

#[test]
fn the_console_is_served_when_it_is_asked_for_unless_it_is_off() {
    let place = Place::new();
    std::fs::write(place.path("off.toml"), "[api]\nlisten = \"off\"\n").expect("there is room");
    let daemon = place.start(place.command(&["serve", "--config", &place.path("off.toml")]));
    place.must_fail(&["console"], 1, "take `api.listen = \"off\"` out of the configuration file");
    daemon.stop();
    let daemon = place.daemon();
    let urls = [place.must(&["console"]), place.must(&["console"])];
    let addresses = urls.each_ref().map(|url| url.split_once("/#code=").expect("a code").0);
    assert!(addresses[0].starts_with("https://127.0.0.1:") && addresses[0] == addresses[1], "one listener: {urls:?}");
    let port = addresses[0].rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    std::net::TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    daemon.stop();
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err(), "it ends with the daemon");
    place.must_fail(&["serve", "--listen", "0.0.0.0:7420"], 2, "allow it with --allow-remote");
    place.must_fail(&["serve", "--listen", "7420"], 2, "--listen");
    let daemon = place.start(place.command(&["serve", "--listen", "127.0.0.1:0"]));
    let url = place.must(&["console"]);
    let (address, code) = url.trim().split_once("/#code=").expect("a code");
    assert!(address.starts_with("https://127.0.0.1:") && code.len() == 64, "{url}");
    assert!(daemon.log().contains(&format!("the API also listens at {address}")), "{}", daemon.log());
    let port = address.rsplit(':').next().expect("a port");
    let second = Place::new();
    second.must_fail(&["serve", "--listen", &format!("127.0.0.1:{port}")], 1, "a free port");
    assert!(!support::exists(second.path("run/h.sock")), "a daemon that did not start leaves no socket");
}

/// Everything secret goes through the daemon once, with the most talkative log there is.
#[test]
fn no_secret_gets_into_the_log() {
    let place = Place::new();
    let mut command = place.command(&["serve", "--listen", "127.0.0.1:0"]);
    command.env("HEARTH_LOG", "trace");
    let daemon = place.start(command);
    let token = place.must(&["token", "create", "ci", "--role", "operate"]).trim().to_string();
    let url = place.must(&["console"]).trim().to_string();
    let code = url.split_once("/#code=").expect("a code").1;
    let mut secrets = vec![token.clone(), code.to_string()];
    for body in [format!("{{\"token\":\"{token}\"}}"), format!("{{\"code\":\"{code}\"}}")] {
        let answer = place.ask(&post("/api/v1/session", "", &body));
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let cookie = answer.split_once("__Host-hearth=").expect("a cookie").1;
        secrets.push(cookie.split(';').next().expect("a value").to_string());
        let csrf = answer.split_once("\"csrf\":\"").expect("a proof").1;
        secrets.push(csrf.split('"').next().expect("a value").to_string());
    }
    let wrong = "hearth_this_is_a_secret_with_a_typing_error";
    place.ask(&post("/api/v1/session", "", &format!("{{\"token\":\"{wrong}\"}}")));
    place.ask(&post("/api/v1/session", "", &format!("{{\"tokens\":\"{wrong}\"}}")));
    place.ask(&post("/api/v1/pools", &format!("authorization: Bearer {wrong}\r\n"), "{}"));
    secrets.push(wrong.into());
    place.must(&["pool", "list"]);
    let log = daemon.log();
    assert!(log.contains("a browser has logged in (ci)"), "{log}");
    for secret in &secrets {
        assert!(!log.contains(secret.trim_start_matches("hearth_")), "a secret is in the log");
    }
    let key = std::fs::read_to_string(place.path("state/tls/key.pem")).expect("it was made");
    assert!(key.lines().filter(|l| !l.starts_with('-')).all(|l| !log.contains(l)), "the key is in the log");
    assert_eq!(std::fs::read_to_string(place.path("state/tokens.json")).expect("it was saved").matches(&token[7..]).count(), 0);
}
