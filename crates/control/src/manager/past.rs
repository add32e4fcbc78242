//! What was: samples go into the history, and questions about it are answered.

use super::Manager;
use ::history::{History, HistoryError};
use api::error::ControlError;
use api::{HistoryQuery, HistoryView, Sample, Severity};
use insight::series;

/// Most points that one answer has, of all its series together.
const POINTS_MAX: u32 = 5000;
/// Points of an answer that names no number.
const POINTS: u32 = 600;

impl Manager {
    /// From now on samples are kept there. Called once, at the start.
    pub fn keep_history(&self, history: History) {
        if self.shared.history.set(history).is_err() {
            tracing::warn!("the history is already open");
        }
    }

    /// Writes what is not written yet, at the stop.
    pub fn flush_history(&self) {
        if let Some(Err(error)) = self.shared.history.get().map(History::flush) {
            tracing::warn!("{error}");
        }
    }

    /// Keeps a sample. Touches memory only.
    pub(super) fn keep(&self, sample: &Sample) {
        let Some(history) = self.shared.history.get() else { return };
        let unix_s = sample.unix_ms / 1000;
        for (name, volume) in &sample.volumes {
            history.record(unix_s, &series::volume_object(name), &series::of_volume(volume));
        }
        for (name, pool) in &sample.pools {
            history.record(unix_s, &series::pool_object(name), &series::of_pool(pool));
        }
        for notice in history.take_notices() {
            self.events().note(Severity::Warning, "history", notice);
        }
    }

    /// A volume is gone: another one of its name begins anew.
    pub(super) fn forget_history(&self, object: &str) {
        if let Some(history) = self.shared.history.get() {
            history.forget(object);
        }
    }

    pub(super) fn history(&self, query: &HistoryQuery) -> Result<HistoryView, ControlError> {
        let off = || {
            let remedy = "enable it with `history.enabled = true` in the configuration file and start the daemon again";
            ControlError::BadCombination("this daemon keeps no history".into(), remedy.into())
        };
        let history = self.shared.history.get().ok_or_else(off)?;
        let (is_volume, is_pool) = {
            let state = &self.memory().state;
            (state.volume(&query.name).is_some(), state.pool(&query.name).is_some())
        };
        let (object, known) = match (is_volume, is_pool) {
            (true, _) => (series::volume_object(&query.name), series::volume_names()),
            (false, true) => (series::pool_object(&query.name), series::pool_names().to_vec()),
            (false, false) => return Err(ControlError::Unknown { named: "volume", name: query.name.clone() }),
        };
        let mut wanted = Vec::new();
        for name in query.series.split(',').map(str::trim) {
            let same = known.iter().find(|known| **known == name);
            let name = same
                .ok_or_else(|| wrong("series", format!("has the unknown series {name:?}"), &format!("use some of {}", known.join(", "))))?;
            if !wanted.contains(name) {
                wanted.push(name);
            }
        }
        let points = query.points.unwrap_or(POINTS);
        if !(1..=POINTS_MAX).contains(&points) {
            return Err(wrong("points", format!("is {points}"), &format!("ask for 1 to {POINTS_MAX}")));
        }
        if query.from_unix_s >= query.to_unix_s {
            return Err(wrong(
                "to_unix_s",
                "is not later than from_unix_s".into(),
                "ask for a range whose end is later than its beginning",
            ));
        }
        let kept = series::kept_for(&wanted);
        let kept: Vec<&str> = kept.iter().map(String::as_str).collect();
        match history.query(&object, &kept, query.from_unix_s, query.to_unix_s, points as usize) {
            Ok(answer) => {
                let series = series::told(&wanted, &answer);
                Ok(HistoryView { step_s: answer.step_s, from_unix_s: answer.from_unix_s, series })
            }
            // It is there, but so new that nothing was recorded of it.
            Err(HistoryError::Unknown { .. }) => Ok(HistoryView {
                step_s: 1,
                from_unix_s: query.from_unix_s,
                series: wanted.into_iter().map(|name| (name.to_string(), Vec::new())).collect(),
            }),
            Err(error) => Err(ControlError::Below { source: error.into(), remedy: String::new() }),
        }
    }
}

fn wrong(option: &'static str, problem: String, remedy: &str) -> ControlError {
    ControlError::BadOption { option, problem, remedy: remedy.into() }
}

/// Opens the history in the state directory; what it has to say is an event.
///
/// # Errors
/// If it can neither be had nor begun, not even in memory.
pub fn open(manager: &Manager, state_directory: &std::path::Path, bytes_max: u64) -> Result<(), ControlError> {
    let options = ::history::HistoryOptions { bytes_max };
    let failed = |error: HistoryError| ControlError::State {
        path: state_directory.join("history.sqlite").display().to_string(),
        problem: error.to_string(),
        remedy: "check it, or disable the history with `history.enabled = false` in the configuration file".into(),
    };
    let (history, warning) = History::open(&state_directory.join("history.sqlite"), options).map_err(failed)?;
    if let Some(warning) = warning {
        manager.events().note(Severity::Warning, "history", warning);
    }
    manager.keep_history(history);
    Ok(())
}
