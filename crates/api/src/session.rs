//! The caller and its rights.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A role.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Look at everything, change nothing.
    View,
    /// Everything.
    Operate,
}

/// Who asks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SessionView {
    /// Their role.
    pub role: Role,
    /// How they are known: "socket" (by the kernel's word on who connected), "token" or "session" (a browser that has logged in).
    pub by: String,
    /// The token's name, or the user's number.
    pub name: String,
    /// To be sent back in the header `x-hearth-csrf` with every request of a browser's session that changes something; null for others.
    pub csrf: Option<String>,
}

/// A browser logs in.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Login {
    /// A token.
    #[serde(default)]
    pub token: Option<String>,
    /// Or a code from `hearth console`, good once and for five minutes.
    #[serde(default)]
    pub code: Option<String>,
}

/// A code for one login, and where to use it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LoginCode {
    /// Opens the console, logged in: `https://ADDRESS/#code=…`.
    pub url: String,
    /// For how many seconds it can be used.
    pub valid_s: u64,
}

/// A token is made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenCreate {
    /// Its name, to recognise and revoke it.
    #[schema(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]*$", min_length = 1, max_length = 64)]
    pub name: String,
    /// What its bearer may do.
    pub role: Role,
}

/// A token as it is shown once.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TokenMade {
    /// Its name.
    pub name: String,
    /// What its bearer may do.
    pub role: Role,
    /// The secret: shown now and never again.
    pub token: String,
}

/// A token as it is listed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TokenView {
    /// Its name.
    pub name: String,
    /// What its bearer may do.
    pub role: Role,
    /// When it was made: seconds since 1970.
    pub created_unix_s: u64,
}
