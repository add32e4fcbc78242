//! An answer that has nothing to show.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An answer without content.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Done {
    /// Always true: a failure is a [`Refusal`](crate::error::Refusal).
    pub done: bool,
    /// What was done, as one sentence, where the request alone does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// The former name of `summary`, until 1.0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<String>,
}

impl Default for Done {
    fn default() -> Done {
        Done { done: true, summary: None, told: None }
    }
}

impl Done {
    /// Done, and this is what.
    pub fn so(summary: String) -> Done {
        Done { done: true, summary: Some(summary.clone()), told: Some(summary) }
    }
}
