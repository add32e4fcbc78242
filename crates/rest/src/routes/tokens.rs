//! Tokens.

use super::{Answered, Shared, blocking, json};
use crate::asked::{Json, Name, Nothing};
use api::{Done, TokenCreate, TokenMade, TokenView};
use axum::extract::State;
use utoipa::IntoParams;

/// All tokens, without their secrets.
#[utoipa::path(get, path = "/api/v1/tokens", tag = "session", responses((status = 200, description = "Tokens by name.", body = Vec<TokenView>)))]
pub async fn token_list(State(app): Shared) -> Answered {
    json(&blocking(move || Ok(app.tokens.list()?)).await?)
}

/// Creates a token. Its secret is in the answer and nowhere else.
#[utoipa::path(
    post, path = "/api/v1/tokens", tag = "session",
    request_body(content = TokenCreate, example = json!({"name": "prometheus", "role": "view"})),
    responses((status = 200, description = "The token.", body = TokenMade))
)]
pub async fn token_create(State(app): Shared, Json(create): Json<TokenCreate>) -> Answered {
    json(&blocking(move || Ok(app.tokens.create(&create)?)).await?)
}

/// Revokes a token; its sessions end with it.
#[utoipa::path(
    delete, path = "/api/v1/tokens/{name}", tag = "session", params(TokenName),
    responses((status = 200, description = "It is gone.", body = Done))
)]
pub async fn token_revoke(State(app): Shared, Name(name): Name, _: Nothing) -> Answered {
    blocking(move || Ok(app.tokens.revoke(&name)?)).await?;
    json(&Done::default())
}

/// Which token.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code)] // For the description only.
struct TokenName {
    /// The token's name.
    #[param(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]*$", min_length = 1, max_length = 64)]
    name: String,
}
