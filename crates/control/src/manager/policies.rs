//! Policies of objects, as people set them.

use super::Manager;
use super::choosing::Chosen;
use api::error::ControlError;
use api::human;
use api::object_rules::{RULES_MAX, Rule, RuleOf};
use api::{ObjectSet, PolicyDone, Severity};
use insight::policies::{self, Wanted};
use std::collections::BTreeSet;
use std::ops::Range;
use types::{Admit, ObjectWrites, OnScan, Treatment};

/// Objects named at once.
const NAMED_MAX: usize = 256;
/// Part of a pool that may be pinned, in percent: the engine keeps no more.
const PINNED_MAX_PERCENT: u64 = 60;

impl Manager {
    pub(super) fn object_set(&self, set: &ObjectSet) -> Result<PolicyDone, ControlError> {
        if set.objects.len() > NAMED_MAX {
            let remedy = "name fewer at once, or all of a kind with --kind".into();
            return Err(ControlError::BadCombination(format!("more than {NAMED_MAX} objects are named"), remedy));
        }
        check_says_which(set, "a policy")?;
        if !set.reset && set.admit.is_none() && set.writes.is_none() && set.on_scan.is_none() {
            return Err(ControlError::BadCombination(
                "it is not said how the objects are to be treated".into(),
                "give --admit, --write, --on-scan, or --reset".into(),
            ));
        }
        let chosen = self.chosen_by(set)?;
        let rules = self.rules();
        let mut volumes: BTreeSet<&String> = BTreeSet::new();
        let mut wanted: Vec<(&Chosen, Rule)> = Vec::new();
        for one in &chosen {
            volumes.insert(&one.volume);
            let known = rules(&one.volume);
            let (now, _) = policies::treatment_of(&one.object, one.instance.as_deref(), &known);
            let of = if set.objects.is_empty() {
                set.kind.clone().map_or(RuleOf::All, RuleOf::Kind)
            } else {
                RuleOf::Object(one.object.name.clone())
            };
            // All of a kind are meant wherever they are, unless an application is named.
            let instance = if set.objects.is_empty() && set.application.is_none() { None } else { one.instance.clone() };
            wanted.push((one, rule_of(set, instance, of, now)?));
        }
        let done = self.check_pins(&chosen, &wanted, set.reset)?;
        let volumes: Vec<String> = volumes.into_iter().cloned().collect();
        let result = self.change(|state| {
            for name in &volumes {
                if let Some(volume) = state.volume_mut(name) {
                    renew(&mut volume.rules, &wanted, name, set.reset);
                }
            }
            state.volumes.iter().find(|volume| volume.rules.len() > RULES_MAX).map(|volume| volume.name.clone())
        })?;
        if let Some(full) = result {
            self.change(|state| state.volume_mut(&full).map(|volume| volume.rules.truncate(RULES_MAX)))?;
            return Err(ControlError::Analysis(
                format!("\"{full}\" has {RULES_MAX} rules, and no more fit"),
                "use a rule for all of a kind, or take some away with --reset".into(),
            ));
        }
        for volume in &volumes {
            self.apply_policies(volume);
            let told = format!("policy of {} changed", types::counted(chosen.len() as u64, "object"));
            self.events().note(Severity::Info, volume, told);
        }
        Ok(done)
    }

    /// Refuses pins that the pools cannot hold.
    fn check_pins(&self, chosen: &[Chosen], wanted: &[(&Chosen, Rule)], resets: bool) -> Result<PolicyDone, ControlError> {
        let mut done = PolicyDone {
            objects: chosen.len() as u64,
            bytes: chosen.iter().map(|one| one.object.bytes).sum(),
            pinned_bytes: 0,
            sentences: Vec::new(),
        };
        let (state, sizes) = {
            let memory = self.memory();
            let sizes: std::collections::BTreeMap<String, u64> =
                memory.pools.iter().map(|(name, live)| (name.clone(), live.size_bytes)).collect();
            (memory.state.clone(), sizes)
        };
        let mut wider: Vec<Rule> = Vec::new();
        let insight = self.insight();
        let pools: BTreeSet<&str> = chosen.iter().filter_map(|one| state.volume(&one.volume)).map(|volume| volume.pool.as_str()).collect();
        for pool in pools {
            let mut pinned = 0;
            for volume in state.volumes.iter().filter(|volume| volume.pool == pool) {
                let Some(objects) = insight.objects_of(&volume.name) else { continue };
                let mut rules = volume.rules.clone();
                for rule in renew(&mut rules, wanted, &volume.name, resets) {
                    if !wider.contains(&rule) {
                        wider.push(rule);
                    }
                }
                let is_pinned = |(_, treatment): &&(Range<u64>, Treatment)| treatment.admit() == Admit::Pinned;
                pinned += objects.ranges(&rules).iter().filter(is_pinned).map(|(bytes, _)| bytes.end - bytes.start).sum::<u64>();
            }
            done.pinned_bytes += pinned;
            let Some(size) = sizes.get(pool).copied().filter(|size| *size > 0) else { continue };
            let pins = wanted.iter().any(|(one, rule)| {
                !resets && rule.admit == Admit::Pinned && state.volume(&one.volume).is_some_and(|volume| volume.pool == pool)
            });
            if pins && pinned > size / 100 * PINNED_MAX_PERCENT {
                let (pinned, most) = (human::bytes(pinned), human::bytes(size / 100 * PINNED_MAX_PERCENT));
                return Err(ControlError::Analysis(
                    format!("{pinned} would be pinned, and the pool \"{pool}\" keeps at most {most} of pinned objects"),
                    "pin fewer or smaller objects, or give the pool a larger SSD".into(),
                ));
            }
            if pins {
                let part = pinned as f64 / size as f64;
                done.sentences.push(format!(
                    "{} of the pool's {} are pinned. Each byte that others let in is written with {:.2} bytes of pinned ones again.",
                    human::bytes(pinned),
                    human::bytes(size),
                    part / (1.0 - part).max(0.01)
                ));
            }
        }
        done.sentences.extend(wider.iter().map(still_there));
        let weak = !resets && wanted.iter().any(|(_, rule)| rule.writes != ObjectWrites::Inherit);
        if weak {
            done.sentences.push("Writes to them wait for the backing device, whatever the volume's mode.".into());
        }
        Ok(done)
    }
}

/// Refuses what names no objects, or objects and a kind.
pub(super) fn check_says_which(set: &ObjectSet, what: &str) -> Result<(), ControlError> {
    let is_one = if set.objects.is_empty() { set.kind.is_some() || set.application.is_some() } else { set.kind.is_none() };
    if is_one {
        return Ok(());
    }
    Err(ControlError::BadCombination(
        format!("{what} is for objects that are named, or for all of a kind or an application"),
        "give names of objects, or --kind or --app; see `hearth object list`".into(),
    ))
}

/// Makes rules of a volume what is wanted; rules that stay though objects were reset which they are for.
fn renew(rules: &mut Vec<Rule>, wanted: &[(&Chosen, Rule)], volume: &str, resets: bool) -> Vec<Rule> {
    let of_it = wanted.iter().filter(|(one, _)| one.volume == volume);
    if resets {
        let of_it = of_it.map(|(one, rule)| Wanted { object: &one.object, instance: one.instance.as_deref(), rule: rule.clone() });
        return policies::reset(rules, &of_it.collect::<Vec<_>>());
    }
    of_it.for_each(|(_, rule)| policies::put(rules, rule));
    Vec::new()
}

/// A rule that stays for others.
fn still_there(rule: &Rule) -> String {
    let of = rule.instance.as_ref().map_or_else(String::new, |instance| format!(" of /{instance}"));
    let app = rule.instance.as_ref().map_or_else(String::new, |instance| format!(" --app /{instance}"));
    let (what, option) = match &rule.of {
        RuleOf::All => ("all objects".to_owned(), String::new()),
        RuleOf::Kind(kind) => (format!("all of kind {kind}"), format!(" --kind {kind}")),
        RuleOf::Object(name) => (name.clone(), format!(" {name}")),
    };
    format!(
        "The rule for {what}{of} (admit {}) stays for the others; take it away with `hearth object set{option}{app} --reset`.",
        rule.admit.name()
    )
}

fn rule_of(set: &ObjectSet, instance: Option<String>, of: RuleOf, now: Treatment) -> Result<Rule, ControlError> {
    let admit = match set.admit.as_deref() {
        None => now.admit(),
        Some(word) => Admit::from_name(word).ok_or_else(|| bad_word("--admit", word, "never, normal or pinned"))?,
    };
    let writes = match set.writes.as_deref() {
        None => now.writes(),
        Some(word) => ObjectWrites::from_name(word).ok_or_else(|| bad_word("--write", word, "inherit, around or through"))?,
    };
    let on_scan = match set.on_scan.as_deref() {
        None => now.on_scan(),
        Some(word) => OnScan::from_name(word).ok_or_else(|| bad_word("--on-scan", word, "hit-only or normal"))?,
    };
    Ok(Rule { instance, of, admit, writes, on_scan })
}

fn bad_word(option: &'static str, word: &str, words: &str) -> ControlError {
    ControlError::BadOption { option, problem: format!("is \"{word}\""), remedy: format!("write {words}") }
}
