//! Jobs: long work.

use super::{Answered, Shared, run};
use crate::asked::{Nothing, Number};
use api::{Action, JobView};
use axum::extract::State;
use utoipa::IntoParams;

/// All jobs that run or ended lately.
#[utoipa::path(get, path = "/api/v1/jobs", tag = "jobs", responses((status = 200, description = "Jobs by number.", body = Vec<JobView>)))]
pub async fn job_list(State(app): Shared) -> Answered {
    run(&app, Action::JobList).await
}

/// One job.
#[utoipa::path(get, path = "/api/v1/jobs/{id}", tag = "jobs", params(JobNumber), responses((status = 200, description = "The job.", body = JobView)))]
pub async fn job_show(State(app): Shared, Number(id): Number) -> Answered {
    run(&app, Action::JobShow { id }).await
}

/// Stops a job; completed work is kept.
#[utoipa::path(
    delete, path = "/api/v1/jobs/{id}", tag = "jobs", params(JobNumber),
    responses((status = 200, description = "The job, which may need a moment to stop.", body = JobView))
)]
pub async fn job_stop(State(app): Shared, Number(id): Number, _: Nothing) -> Answered {
    run(&app, Action::JobCancel { id }).await
}

/// Resumes a stopped or failed job as a new job.
#[utoipa::path(
    post, path = "/api/v1/jobs/{id}/resume", tag = "jobs", params(JobNumber),
    responses((status = 200, description = "The new job.", body = JobView))
)]
pub async fn job_resume(State(app): Shared, Number(id): Number, _: Nothing) -> Answered {
    run(&app, Action::JobResume { id }).await
}

/// Which job.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code)] // For the description only.
struct JobNumber {
    /// The job's number.
    id: u64,
}
