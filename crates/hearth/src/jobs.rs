//! `hearth job`: long work, seen and steered.

use crate::progress::done_of;
use crate::table::{self, Align};
use api::human;
use api::{JobState, JobView};

/// All of them, one line each.
pub fn jobs(jobs: &[JobView]) -> String {
    if jobs.is_empty() {
        return "no jobs since the daemon's start\n".into();
    }
    let head = [
        ("ID", Align::Right),
        ("WHAT", Align::Left),
        ("OF", Align::Left),
        ("STATE", Align::Left),
        ("DONE", Align::Right),
        ("TOTAL", Align::Right),
        ("TIME", Align::Right),
        ("LEFT", Align::Right),
    ];
    let row = |job: &JobView| {
        vec![
            job.id.to_string(),
            job.kind.word().into(),
            job.volume.clone(),
            state(&job.state).into(),
            human::bytes(job.done_bytes),
            if job.kind.has_total() { human::bytes(job.total_bytes) } else { "-".into() },
            took(job),
            job.left_s.map_or("-".into(), human::seconds),
        ]
    };
    let why = |job: &JobView| match &job.state {
        JobState::Failed { error } => Some(format!("job {} failed: {error}\n", job.id)),
        _ => None,
    };
    table::layout(&head, &jobs.iter().map(row).collect::<Vec<_>>()) + &jobs.iter().filter_map(why).collect::<String>()
}

/// One of them.
pub fn job(job: &JobView) -> String {
    let mut pairs = vec![
        ("job", job.id.to_string()),
        ("what", format!("{} of {}", job.kind.word(), job.volume)),
        ("state", state(&job.state).into()),
        ("done", done_of(job)),
        ("time", took(job)),
    ];
    if job.state == JobState::Running {
        pairs.push(("rate", human::bytes(job.rate_bytes) + "/s"));
        if job.kind.has_total() {
            pairs.push(("left", job.left_s.map_or("unknown".into(), human::seconds)));
        }
    }
    match &job.state {
        JobState::Failed { error } => {
            pairs.push(("problem", error.detail.clone()));
            pairs.extend(error.remedy.iter().map(|remedy| ("what to do", remedy.clone())));
            pairs.push(("go on", format!("hearth job resume {}", job.id)));
        }
        JobState::Cancelled => pairs.push(("go on", format!("hearth job resume {}", job.id))),
        JobState::Running | JobState::Done => {}
    }
    table::pairs(&pairs)
}

/// What is said when somebody has asked for a job's end.
pub fn cancelled(job: &JobView) -> String {
    let what = format!("job {} ({} of {})", job.id, job.kind.word(), job.volume);
    match &job.state {
        JobState::Running => format!("{what} is being stopped; completed work is kept, and `hearth job resume {}` continues\n", job.id),
        other => format!("{what} had ended before: {}\n", state(other)),
    }
}

fn took(job: &JobView) -> String {
    human::nanoseconds(job.elapsed_ms.saturating_mul(1_000_000))
}

fn state(state: &JobState) -> &'static str {
    match state {
        JobState::Running => "running",
        JobState::Done => "done",
        JobState::Cancelled => "stopped",
        JobState::Failed { .. } => "failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::JobKind;
    use api::error::{Cause, Kind};

    #[test]
    fn a_failed_job_says_why_and_how_to_go_on() {
        let error = Cause { kind: Kind::Failed, detail: "a read failed".into(), remedy: Some("check the disk".into()) };
        let failed = JobView {
            id: 7,
            kind: JobKind::Warm,
            volume: "v".into(),
            state: JobState::Failed { error },
            done_bytes: 1 << 20,
            total_bytes: 4 << 20,
            rate_bytes: 0,
            left_s: None,
            elapsed_ms: 1500,
            summary: None,
            told: None,
        };
        let list = jobs(std::slice::from_ref(&failed));
        assert!(list.ends_with("job 7 failed: a read failed; check the disk\n"), "{list}");
        let words: Vec<&str> = list.lines().nth(1).expect("a line").split_whitespace().collect();
        assert_eq!(words[..8], ["7", "warm-up", "v", "failed", "1", "MiB", "4", "MiB"]);
        let one = job(&failed);
        assert!(one.contains("what to do: check the disk\n") && one.contains("go on:      hearth job resume 7\n"), "{one}");
        assert_eq!(cancelled(&failed), "job 7 (warm-up of v) had ended before: failed\n");
        assert_eq!(jobs(&[]), "no jobs since the daemon's start\n");
        let look = JobView { kind: JobKind::Discover, state: JobState::Running, total_bytes: 0, ..failed };
        let one = job(&look);
        assert!(one.contains("done:  1 MiB read\n") && !one.contains("left"), "{one}");
    }
}
