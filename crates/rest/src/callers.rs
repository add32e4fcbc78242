//! Who asks, and what they may: found out once for each request.

use crate::limits::Client;
use crate::peers::Peer;
use crate::problem::{Outcome, Problem};
use crate::secret::{self, Digest};
use crate::server::App;
use api::error::Kind;
use api::{Role, SessionView};
use axum::http::{HeaderMap, HeaderValue, Method, header};
use std::time::Instant;

/// The cookie of a browser's session. The prefix makes browsers refuse it unless it is secure, for this host alone, and for all paths.
pub const COOKIE: &str = "__Host-hearth";
/// The header that proves that a change comes from the console: other sites cannot send it.
pub const CSRF_HEADER: &str = "x-hearth-csrf";

/// Who asks.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Their role.
    pub role: Role,
    /// How they are known: "socket", "token" or "session".
    pub by: &'static str,
    /// The token's name, the user's number, or "console".
    pub name: String,
    /// Of a session: what must come with every change.
    pub csrf: Option<String>,
    /// Of a session: by what it is found.
    pub session: Option<Digest>,
    /// The token that stands behind them.
    token: Option<Digest>,
    /// Whose limits count.
    pub client: Client,
}

tokio::task_local! {
    /// Whose request the present task carries out.
    pub static ASKING: Client;
}

impl Caller {
    /// As it is shown.
    pub fn view(&self) -> SessionView {
        SessionView { role: self.role, by: self.by.into(), name: self.name.clone(), csrf: self.csrf.clone() }
    }

    /// Whether they are still who they were: their token not revoked, their session not ended.
    pub fn still_known(&self, app: &App) -> bool {
        let token = self.token.is_none_or(|digest| app.tokens.find(&digest).is_some());
        token && self.session.is_none_or(|id| app.sessions.find(&id, Instant::now()).is_some())
    }
}

/// Finds out who asks. A token says more than the connection; a session counts on TCP only.
pub fn identify(app: &App, peer: &Peer, headers: &HeaderMap) -> Outcome<Caller> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        return by_token(app, value);
    }
    match peer {
        Peer::Socket { user, role } => {
            let client = peer.client();
            Ok(Caller { role: *role, by: "socket", name: user.to_string(), csrf: None, session: None, token: None, client })
        }
        Peer::Tcp { .. } => by_session(app, headers),
    }
}

fn by_token(app: &App, value: &HeaderValue) -> Outcome<Caller> {
    let bearer = value.to_str().ok().and_then(|text| {
        let (scheme, token) = text.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
    });
    let bearer =
        bearer.ok_or_else(|| unknown("the header Authorization is not `Bearer TOKEN`", "send a token made by `hearth token create`"))?;
    let known = app
        .tokens
        .recognise(bearer)
        .ok_or_else(|| unknown("the token is not known", "create one with `hearth token create NAME --role view`"))?;
    let (token, client) = (Some(known.digest), Client::Token(known.digest));
    Ok(Caller { role: known.role, by: "token", name: known.name, csrf: None, session: None, token, client })
}

fn by_session(app: &App, headers: &HeaderMap) -> Outcome<Caller> {
    let nobody = || unknown("not logged in", "send a token (`Authorization: Bearer TOKEN`), or log in with `hearth console`");
    let id = secret::digest_of(cookie(headers).ok_or_else(nobody)?);
    let over = || unknown("the session has ended", "log in again, for instance with `hearth console`");
    let session = app.sessions.find(&id, Instant::now()).ok_or_else(over)?;
    if session.token.is_some_and(|digest| app.tokens.find(&digest).is_none()) {
        app.sessions.end(&id);
        return Err(over());
    }
    let client = session.token.map_or(Client::Session(id), Client::Token);
    let csrf = Some(session.csrf);
    Ok(Caller { role: session.role, by: "session", name: session.name, csrf, session: Some(id), token: session.token, client })
}

/// The cookie's value.
fn cookie(headers: &HeaderMap) -> Option<&str> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|line| line.split(';')).find_map(|one| one.trim().strip_prefix(COOKIE)?.strip_prefix('='))
}

fn unknown(detail: &str, remedy: &str) -> Problem {
    Problem::new(Kind::Unauthenticated, detail, remedy).with(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"hearth\""))
}

/// Whether they may ask that: looking needs the role "view", all else "operate"; a session's changes need its proof.
pub fn authorise(caller: &Caller, method: &Method, own_session: bool, headers: &HeaderMap) -> Outcome<()> {
    if is_look(method) {
        return Ok(());
    }
    if let Some(csrf) = &caller.csrf {
        let sent = headers.get(CSRF_HEADER).and_then(|v| v.to_str().ok()).unwrap_or_default();
        if !secret::equal(&secret::digest_of(sent), &secret::digest_of(csrf)) {
            let remedy = "send back the `csrf` of GET /api/v1/session in the header x-hearth-csrf";
            return Err(Problem::new(Kind::Forbidden, "the header x-hearth-csrf is missing or wrong", remedy));
        }
    }
    if caller.role < Role::Operate && !own_session {
        let remedy = match caller.by {
            "socket" => "run it as root or as a member of `api.operate_group`",
            _ => "use a token made with `hearth token create NAME --role operate`",
        };
        return Err(Problem::new(Kind::Forbidden, "the role view allows reading only", remedy));
    }
    Ok(())
}

/// Whether a method only looks.
pub fn is_look(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cookie_is_found_among_others_and_by_its_whole_name() {
        let check = |lines: &[&'static str], expected| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(header::COOKIE, HeaderValue::from_static(line));
            }
            assert_eq!(cookie(&headers), expected, "{lines:?}");
        };
        check(&["__Host-hearth=abc"], Some("abc"));
        check(&["a=b; __Host-hearth=abc; c=d"], Some("abc"));
        check(&["a=b", "__Host-hearth=abc"], Some("abc"));
        check(&["__Host-hearths=abc", "hearth=abc"], None);
        check(&["__Host-hearth"], None);
        check(&[], None);
    }
}
