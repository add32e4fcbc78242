//! Advice made so, and its forecast compared with what came.

use super::Manager;
use api::error::ControlError;
use api::human;
use api::{AdviceApplied, AdviceAsk, AdviceVerified, AdviceView, ObjectSet, PreloadView, Severity};
use insight::advising::advise;

/// Blocks read again before a share is told: at 400 a share is off by five points at most, 19 times of 20.
const AGAIN_MIN: f64 = 400.0;
/// A forecast may be off by so many points.
const POINTS_MAX: f64 = 3.0;

/// Most shares asked for at a time.
const TARGETS_MAX: usize = 8;

impl Manager {
    pub(super) fn advise(&self, ask: &AdviceAsk) -> Result<Vec<AdviceView>, ControlError> {
        let bad = |problem: String| ControlError::BadOption {
            option: "--target",
            problem,
            remedy: "write a share of hits in percent, above 0 and below 100".into(),
        };
        if ask.targets_percent.len() > TARGETS_MAX {
            return Err(bad(format!("is given more than {TARGETS_MAX} times")));
        }
        if let Some(wrong) = ask.targets_percent.iter().find(|percent| !(**percent > 0.0 && **percent < 100.0)) {
            return Err(bad(format!("is {wrong}")));
        }
        self.insight().check_enabled()?;
        self.know_volumes();
        let loads = self.insight().loads(ask.name.as_deref());
        if let Some(name) = ask.name.as_ref().filter(|_| loads.is_empty()) {
            return Err(self.no_load(name));
        }
        ask.name.as_ref().map_or(Ok(()), |name| self.check_was_read(name))?;
        let figures = self.data().figures();
        let mut told = Vec::new();
        for load in &loads {
            let asked = self.asked_of(load, ask, &figures);
            // The lock is not held meanwhile: it takes seconds.
            let Some(watch) = self.insight().copy_of(load) else { continue };
            let mut advice = advise(load, &watch, &asked);
            self.add_state(load, &asked, &mut advice);
            self.add_objects(load, &watch, &mut advice);
            told.push(self.insight().keep(advice, asked.is_budget));
        }
        // The whole comes first: it is what was asked about.
        if let Some(whole) = self.advise_pool(&loads, ask, &figures) {
            told.insert(0, self.insight().keep(whole, ask.budget_bytes.is_some()));
        }
        Ok(told)
    }

    pub(super) fn advice_apply(&self, id: u64, dry_run: bool, no_preload: bool) -> Result<AdviceApplied, ControlError> {
        let advice = self.advice(id)?;
        let volume = self.volume_advised(&advice)?;
        let mut changes = Vec::new();
        for object in advice.objects.iter().filter(|object| object.advice == "never") {
            let Some(number) = object.id else { continue };
            changes.push(format!(
                "{} is not let into the cache: {} % of the reads, {} % of the hits.",
                object.name, object.reads_percent, object.hits_percent
            ));
            if !dry_run {
                let set = ObjectSet {
                    objects: vec![number.to_string()],
                    volume: Some(volume.clone()),
                    admit: Some("never".into()),
                    ..ObjectSet::default()
                };
                self.object_set(&set)?;
            }
        }
        let size_bytes = advice.pool.as_ref().and_then(|pool| self.memory().pools.get(pool).map(|live| live.size_bytes));
        let mut to_do = to_do(&advice, size_bytes.unwrap_or(0));
        let mut preload = None;
        if !no_preload {
            // What is a policy already is done: a busy volume takes nothing of that back.
            match self.preload_of_advice(&advice, &volume, dry_run) {
                Ok(done) => preload = done,
                Err(error) => to_do.push(format!("Nothing is read into the cache yet: {error}")),
            }
        }
        changes.extend(preload.iter().map(PreloadView::sentence));
        if !dry_run {
            self.insight().advice_counts_from_now(id);
            let told = format!("advice {id} applied: {}", types::counted(changes.len() as u64, "change"));
            self.events().note(Severity::Info, &volume, told);
        }
        Ok(AdviceApplied { id, volume, dry_run, changes, to_do, preload })
    }

    pub(super) fn advice_verify(&self, id: u64) -> Result<AdviceVerified, ControlError> {
        let advice = self.advice(id)?;
        let volume = self.volume_advised(&advice)?;
        let came = self.insight().came_of(id);
        let measured = came.filter(|came| came.again_blocks >= AGAIN_MIN);
        let measured_percent = measured.map(|came| rounded((came.hit_blocks / came.again_blocks).min(1.0) * 100.0));
        let is_for_another = self.insight().is_for_another(id);
        let now = advice.now.as_ref().filter(|_| !is_for_another);
        let error_points = now.zip(measured_percent).map(|(now, measured)| rounded(now.hits_percent - measured));
        let mut sentences = Vec::new();
        match (now, came) {
            (None, _) if is_for_another => sentences.push(
                "This advice is for another SSD, or with backups let in, so the hits since then do not check it: get new advice with \
                 `hearth advise`, without --budget and --with-backups."
                    .into(),
            ),
            (None, _) => sentences.push("This advice has no forecast for the present SSD: get new advice with `hearth advise`.".into()),
            (_, None) => sentences.push("The volume's watch has begun again since then, as it does after a day, or when the volume is started: get new advice with `hearth advise`.".into()),
            (_, Some(came)) if measured.is_none() => sentences.push(format!(
                "Too little was read since then: {:.0} of {AGAIN_MIN:.0} blocks that were used before.",
                came.again_blocks.max(0.0)
            )),
            (Some(now), Some(_)) => {
                let (measured, error) = (measured_percent.unwrap_or(0.0), error_points.unwrap_or(0.0));
                sentences.push(if error.abs() <= POINTS_MAX {
                    "The forecast holds.".into()
                } else if (now.hits_percent_low..=now.hits_percent_high).contains(&measured) {
                    "What came lies within the band.".into()
                } else if error > 0.0 {
                    "Fewer hits than forecast: a cache that fills yet has fewer; so has a load that has changed.".into()
                } else {
                    "More hits than forecast: less was watched than the load takes to use its blocks again, or it has changed.".into()
                });
            }
        }
        Ok(AdviceVerified {
            id,
            volume,
            window_ms: came.map_or(0, |came| came.window_ms),
            forecast_percent: now.map(|now| now.hits_percent),
            forecast_percent_low: now.map(|now| now.hits_percent_low),
            forecast_percent_high: now.map(|now| now.hits_percent_high),
            measured_percent,
            error_points,
            sentences,
        })
    }

    /// The volume that an advice is for.
    fn volume_advised(&self, advice: &AdviceView) -> Result<String, ControlError> {
        let is_pool = self.memory().state.pool(&advice.name).is_some();
        self.insight().volume_of(&advice.name).ok_or_else(|| {
            if is_pool {
                return ControlError::Analysis(
                    format!("advice {} is for all of the pool \"{}\"", advice.id, advice.name),
                    "use the advice of each of its volumes: `hearth advise VOLUME`".into(),
                );
            }
            ControlError::Analysis(
                format!("advice {} is for \"{}\", which is no volume that runs", advice.id, advice.name),
                "add it as a volume with `hearth volume add`, or attach it live with `hearth attach`".into(),
            )
        })
    }
}

/// What is left to people, with a pool of so many bytes.
fn to_do(advice: &AdviceView, now_bytes: u64) -> Vec<String> {
    let larger = advice.targets.iter().filter(|target| target.ssd_bytes.is_some_and(|bytes| bytes > now_bytes && now_bytes > 0));
    let told = larger.map(|target| {
        format!("For {} % of hits the pool's SSD must be {} large.", target.hits_percent, human::bytes(target.ssd_bytes.unwrap_or(0)))
    });
    let mut told: Vec<String> = told.collect();
    if !told.is_empty() {
        let pool = advice.pool.clone().unwrap_or_else(|| "POOL".into());
        told.push(format!("`hearth pool replace {pool} --ssd PATH` puts the pool on another SSD while clients go on."));
    }
    told
}

fn rounded(percent: f64) -> f64 {
    (percent * 10.0).round() / 10.0
}
