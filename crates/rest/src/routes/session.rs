//! Who asks; logging in and out.

use super::{Answered, Shared, blocking, json};
use crate::asked::{Json, Nothing};
use crate::callers::{COOKIE, Caller};
use crate::peers::Peer;
use crate::problem::{Outcome, Problem};
use crate::secret::Digest;
use crate::server::App;
use crate::sessions::CODE_VALID;
use api::error::Kind;
use api::{Done, Login, LoginCode, Role, SessionView};
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use std::time::Instant;

/// The caller and its rights.
#[utoipa::path(get, path = "/api/v1/session", tag = "session", responses((status = 200, description = "You.", body = SessionView)))]
pub async fn session_show(caller: Caller) -> Answered {
    json(&caller.view())
}

/// A browser logs in, with a token or a code.
#[utoipa::path(
    post, path = "/api/v1/session", tag = "session", security(()),
    request_body(content = Login, example = json!({"token": "hearth_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"})),
    responses((
        status = 200, description = "Logged in; the cookie `__Host-hearth` is the session.", body = SessionView,
        headers(("set-cookie" = String, description = "The session."))
    ))
)]
pub async fn session_begin(State(app): Shared, Extension(peer): Extension<Peer>, Json(login): Json<Login>) -> Answered {
    let client = peer.client();
    let too_many = |seconds| {
        let problem = Problem::new(Kind::TooMany, "too many failed logins", "wait as long as the header Retry-After says");
        problem.retry_after(seconds)
    };
    // Who has a good token or code is let in whatever others have tried from the same address: to guess 256 bits is hopeless, to keep the
    // owner out would be easy.
    let Some((name, role, token)) = recognise(&app, &login)? else {
        app.logins.take(client, Instant::now()).map_err(too_many)?;
        let detail = if login.token.is_some() { "the token is not known" } else { "the code is not known, was used, or is too old" };
        let remedy = "use a token of `hearth token create`, or a new code of `hearth console`";
        return Err(Problem::new(Kind::Unauthenticated, detail, remedy));
    };
    let begun = {
        let name = name.clone();
        // It writes a file.
        blocking(move || Ok(app.sessions.begin(&name, role, token, Instant::now())?)).await
    };
    let (id, session) = begun?;
    tracing::info!("a browser has logged in ({name})");
    let view = SessionView { role, by: "session".into(), name, csrf: Some(session.csrf) };
    let mut response = json(&view)?;
    let cookie = format!("{COOKIE}={id}; Path=/; Secure; HttpOnly; SameSite=Strict");
    response.headers_mut().insert(header::SET_COOKIE, HeaderValue::try_from(cookie).map_err(|_| Problem::internal())?);
    Ok(response)
}

/// Name, role and token behind a login; `None` if it is not good.
fn recognise(app: &App, login: &Login) -> Outcome<Option<(String, Role, Option<Digest>)>> {
    match (&login.token, &login.code) {
        (Some(token), None) => Ok(app.tokens.recognise(token).map(|known| (known.name, known.role, Some(known.digest)))),
        (None, Some(code)) => Ok(app.sessions.take_code(code, Instant::now()).then(|| ("console".into(), Role::Operate, None))),
        _ => Err(Problem::usage("a login has a token or a code", "send one of them")),
    }
}

/// Logs out.
#[utoipa::path(delete, path = "/api/v1/session", tag = "session", responses((status = 200, description = "The session is over.", body = Done)))]
pub async fn session_end(State(app): Shared, caller: Caller, _: Nothing) -> Answered {
    if let Some(id) = caller.session {
        blocking(move || {
            app.sessions.end(&id);
            Ok(())
        })
        .await?;
    }
    let mut response = json(&Done::default())?;
    let cookie = format!("{COOKIE}=; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=0");
    response.headers_mut().insert(header::SET_COOKIE, HeaderValue::try_from(cookie).map_err(|_| Problem::internal())?);
    Ok(response)
}

/// Creates a code for one login to the console; on the Unix socket only.
#[utoipa::path(
    post, path = "/api/v1/session/code", tag = "session",
    responses((status = 200, description = "Where to open the console.", body = LoginCode))
)]
pub async fn session_code(State(app): Shared, caller: Caller, _: Nothing) -> Answered {
    if caller.by != "socket" {
        let remedy = "run `hearth console` on the machine of the daemon, or log in with a token";
        return Err(Problem::new(Kind::Forbidden, "codes are issued over the Unix socket only", remedy));
    }
    let opening = app.clone();
    let Some(console) = blocking(move || Ok(opening.console.get_or_open()?)).await? else {
        let remedy = "take `api.listen = \"off\"` out of the configuration file and start the daemon again";
        return Err(Problem::new(Kind::Conflict, "the console needs the API on TCP, which is switched off", remedy));
    };
    let code = app.sessions.make_code(Instant::now())?;
    json(&LoginCode { url: format!("{console}/#code={code}"), valid_s: CODE_VALID.as_secs() })
}
