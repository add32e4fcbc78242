//! Two evaluations side by side: two machines, two versions, two settings. Their runs were not made in pairs, so rates are compared by Welch's t test on
//! their logarithms (Welch 1947), which does not ask both to vary alike. Gains are compared in the same way: each is free of its own machine's speed.

use super::arms::ArmSummary;
use super::document::{Block, Cell, Column, Document, Page, Table, Tone};
use super::summary::{CaseSummary, Summary};
use super::{html, text, words};
use crate::pairs::{Verdict, t_quantile};
use crate::result::NotMeasured;
use serde::{Deserialize, Serialize};

/// The second evaluation by the first.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Comparison {
    /// What the first one is called.
    pub a: String,
    /// What the second one is called.
    pub b: String,
    /// What is not the same in both.
    pub differs: Vec<Difference>,
    /// Every arm that both have.
    pub arms: Vec<ComparedArm>,
    /// What only one of them has.
    pub not_compared: Vec<NotMeasured>,
    /// What a reader has to know before the first figure.
    pub warnings: Vec<String>,
}

/// Something that is not the same in both.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Difference {
    /// What.
    pub what: String,
    /// In the first.
    pub a: String,
    /// In the second.
    pub b: String,
}

/// An arm in both.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ComparedArm {
    /// The case.
    pub case: String,
    /// Its title.
    pub title: String,
    /// Its model set in the first and the second.
    pub model_sets: (Option<String>, Option<String>),
    /// The arm's title.
    pub arm: String,
    /// What is counted.
    pub counted: String,
    /// Median rates.
    pub rates: (f64, f64),
    /// The second rate by the first.
    pub rate: Ratio,
    /// Gains of the rate against the baseline (geometric means), and the second by the first; none of a baseline.
    pub gains: Option<(f64, f64, Ratio)>,
}

/// The second figure by the first.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Ratio {
    /// Of the geometric means.
    pub mean: f64,
    /// The 95 % interval; none if one side has a single round.
    pub interval: Option<(f64, f64)>,
    /// Whether the second is better.
    pub verdict: Verdict,
}

impl Ratio {
    /// `b` by `a`. `None` if one side has no value, or one that is not above zero.
    pub fn of(a: &[f64], b: &[f64]) -> Option<Ratio> {
        let usable = |values: &[f64]| !values.is_empty() && values.iter().all(|value| value.is_finite() && *value > 0.0);
        if !usable(a) || !usable(b) {
            return None;
        }
        let (a, b) = (Logs::of(a), Logs::of(b));
        let mean = b.mean - a.mean;
        let interval = a.error.zip(b.error).map(|(a_error, b_error)| {
            let both = a_error + b_error;
            // Welch and Satterthwaite; rounded down, which makes the interval wider rather than narrower.
            let degrees = if both > 0.0 {
                both.powi(2) / (a_error.powi(2) / (a.count - 1.0) + b_error.powi(2) / (b.count - 1.0))
            } else {
                a.count + b.count - 2.0
            };
            let half = t_quantile((degrees as usize).max(1)) * both.sqrt();
            ((mean - half).exp(), (mean + half).exp())
        });
        let verdict = match interval {
            None => Verdict::OnePairOnly,
            Some((low, _)) if low > 1.0 => Verdict::Better,
            Some((_, high)) if high < 1.0 => Verdict::Worse,
            Some(_) => Verdict::NoSignificantDifference,
        };
        Some(Ratio { mean: mean.exp(), interval, verdict })
    }

    /// In words, with the 95 % interval in brackets: `better: 1.31 × (1.22–1.41)`.
    pub fn told(&self) -> String {
        let mean = words::times(self.mean);
        match self.interval {
            Some(bounds) => format!("{}: {mean} ({})", words::verdict(self.verdict), words::interval(bounds)),
            None => format!("{mean}; one round only on one side: how much runs differ by themselves is not known"),
        }
    }
}

/// Logarithms of one side.
struct Logs {
    count: f64,
    mean: f64,
    /// Squared standard error of the mean; none of a single value.
    error: Option<f64>,
}

impl Logs {
    fn of(values: &[f64]) -> Logs {
        let count = values.len() as f64;
        let mean = values.iter().map(|value| value.ln()).sum::<f64>() / count;
        let squares = values.iter().map(|value| (value.ln() - mean).powi(2)).sum::<f64>();
        Logs { count, mean, error: (values.len() > 1).then(|| squares / (count - 1.0) / count) }
    }
}

/// Compares `b` with `a`, each with its name.
pub fn compare((a_name, a): (&str, &Summary), (b_name, b): (&str, &Summary)) -> Comparison {
    let (mut arms, mut not_compared) = (Vec::new(), Vec::new());
    let mut only = |what: String, why: String| not_compared.push(NotMeasured { what, why });
    for case in &a.cases {
        let Some(other) = b.case(&case.id) else {
            only(case.id.clone(), format!("only {a_name} has it"));
            continue;
        };
        if case.counted != other.counted {
            only(case.id.clone(), format!("{a_name} counts {} and {b_name} counts {}", case.counted, other.counted));
            continue;
        }
        for arm in &case.arms {
            let what = format!("{} {}", case.id, arm.id);
            match other.arm(&arm.id).map(|other_arm| compared(case, arm, other, other_arm)) {
                None => only(what, format!("only {a_name} has it")),
                Some(Err(why)) => only(what, why),
                Some(Ok(found)) => arms.push(found),
            }
        }
        for arm in other.arms.iter().filter(|arm| case.arm(&arm.id).is_none()) {
            only(format!("{} {}", case.id, arm.id), format!("only {b_name} has it"));
        }
    }
    for case in b.cases.iter().filter(|case| a.case(&case.id).is_none()) {
        only(case.id.clone(), format!("only {b_name} has it"));
    }
    let mut warnings: Vec<String> = Vec::new();
    for (name, summary) in [(a_name, a), (b_name, b)] {
        warnings.extend(
            summary.settings.toy.then(|| format!("TOY SIZES in {name}: a test of the tests; no figure of it says anything about hearth.")),
        );
        warnings.extend(
            summary.settings.quick.then(|| format!("QUICK RUN in {name}: runs were shorter and pairs fewer than a full evaluation has.")),
        );
    }
    Comparison { a: a_name.into(), b: b_name.into(), differs: differences(a, b), arms, not_compared, warnings }
}

fn compared(case: &CaseSummary, arm: &ArmSummary, other: &CaseSummary, other_arm: &ArmSummary) -> Result<ComparedArm, String> {
    let (Some(one), Some(two)) = (arm.figures.get("rate"), other_arm.figures.get("rate")) else {
        return Err("one of them has no rate of it".into());
    };
    let values = |spread: &super::summary::Spread| spread.by_round.values().copied().collect::<Vec<_>>();
    let rate = Ratio::of(&values(one), &values(two)).ok_or("a rate of it is zero, and there is no ratio")?;
    let gains = match (round_gains(case, arm), round_gains(other, other_arm)) {
        (Some(a), Some(b)) => Ratio::of(&a, &b).map(|ratio| (Logs::of(&a).mean.exp(), Logs::of(&b).mean.exp(), ratio)),
        _ => None,
    };
    Ok(ComparedArm {
        case: case.id.clone(),
        title: case.title.clone(),
        model_sets: (case.model_set.clone(), other.model_set.clone()),
        arm: arm.title.clone(),
        counted: case.counted.clone(),
        rates: (one.median, two.median),
        rate,
        gains,
    })
}

/// The gain of each round against its own baseline.
fn round_gains(case: &CaseSummary, arm: &ArmSummary) -> Option<Vec<f64>> {
    let baseline = &case.arm(&arm.gains.get("rate")?.against)?.figures.get("rate")?.by_round;
    let rounds = &arm.figures.get("rate")?.by_round;
    Some(rounds.iter().filter_map(|(round, rate)| Some(rate / baseline.get(round)?)).collect())
}

fn differences(a: &Summary, b: &Summary) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut look = |what: String, a: String, b: String| {
        if a != b {
            found.push(Difference { what, a, b });
        }
    };
    let maybe = |text: &Option<String>| text.clone().unwrap_or_else(|| "not said".into());
    look("hearth".into(), a.hearth.clone(), b.hearth.clone());
    let (one, two) = (&a.machine, &b.machine);
    look("processor".into(), one.cpu.clone(), two.cpu.clone());
    look("processors".into(), one.cpus.to_string(), two.cpus.to_string());
    look("memory".into(), words::bytes(one.memory_bytes as f64), words::bytes(two.memory_bytes as f64));
    look("kernel".into(), one.kernel.clone(), two.kernel.clone());
    look("system".into(), one.system.clone(), two.system.clone());
    look("SSD".into(), one.ssd.clone(), two.ssd.clone());
    look("backing device on".into(), one.backing.clone(), two.backing.clone());
    for name in one.programs.keys().chain(two.programs.keys().filter(|name| !one.programs.contains_key(*name))) {
        let of = |machine: &crate::result::Machine| machine.programs.get(name).cloned().unwrap_or_else(|| "none".into());
        look(name.clone(), of(one), of(two));
    }
    let (one, two) = (&a.settings, &b.settings);
    let yes = |is: bool| if is { "yes" } else { "no" }.to_string();
    look("quick".into(), yes(one.quick), yes(two.quick));
    look("toy sizes".into(), yes(one.toy), yes(two.toy));
    look("pairs".into(), one.pairs.to_string(), two.pairs.to_string());
    let size = |bytes: Option<u64>| bytes.map_or_else(|| "not said".into(), |bytes| words::bytes(bytes as f64));
    look("size of the data".into(), size(one.size_bytes), size(two.size_bytes));
    look("backing device".into(), maybe(&one.backing), maybe(&two.backing));
    look("model set for all suites".into(), maybe(&one.model), maybe(&two.model));
    look("cache on".into(), maybe(&one.ssd), maybe(&two.ssd));
    for case in &a.cases {
        let Some(other) = b.case(&case.id) else { continue };
        look(format!("{}: backing", case.id), words::backing(case.model_set.as_deref()), words::backing(other.model_set.as_deref()));
        for (what, one, two) in [
            ("data", case.data_bytes, other.data_bytes),
            ("cache", case.cache_bytes, other.cache_bytes),
            ("RAM tier", case.ram_bytes, other.ram_bytes),
        ] {
            look(format!("{}: {what}", case.id), words::bytes(one as f64), words::bytes(two as f64));
        }
        look(format!("{}: rounds", case.id), case.rounds.to_string(), other.rounds.to_string());
    }
    found
}

impl Comparison {
    /// As one HTML file.
    pub fn html(&self) -> String {
        html::write(&self.document())
    }

    /// For a terminal: at most 100 columns.
    pub fn text(&self) -> String {
        text::write(&self.document())
    }

    /// As JSON.
    ///
    /// # Errors
    /// If a figure is no number.
    pub fn json(&self) -> Result<String, crate::trouble::Trouble> {
        super::json_of(self)
    }

    fn document(&self) -> Document {
        let mut blocks: Vec<Block> = self.warnings.iter().cloned().map(Block::Loud).collect();
        let count = |verdict| self.arms.iter().filter(|arm| arm.rate.verdict == verdict).count();
        blocks.push(Block::Words(format!(
            "A is {}, B is {}. Of {} arms in both, B has the better rate in {}, the worse in {}, and in {} there is no significant difference.",
            self.a,
            self.b,
            self.arms.len(),
            count(Verdict::Better),
            count(Verdict::Worse),
            count(Verdict::NoSignificantDifference)
        )));
        blocks.push(if self.differs.is_empty() {
            Block::Words("Machine, versions and settings are the same in both.".into())
        } else {
            let columns = vec![Column::words("", 1.0), Column::words("A", 2.0), Column::words("B", 2.0)];
            let rows = self
                .differs
                .iter()
                .map(|differs| vec![Cell::of(&differs.what).strong(), Cell::of(&differs.a), Cell::of(&differs.b)])
                .collect();
            Block::Table(Table { caption: "What is not the same".into(), columns, rows })
        });
        if !self.arms.is_empty() {
            blocks.push(Block::Table(self.table()));
        }
        let not: Vec<String> = self.not_compared.iter().map(|not| format!("{}: {}.", not.what, not.why)).collect();
        if !not.is_empty() {
            blocks.extend([Block::Heading("Not compared".into()), Block::List(not)]);
        }
        blocks.push(Block::Heading("How it was compared".into()));
        let how = "Runs of two evaluations are no pairs. Rates are compared by Welch's t test on their logarithms over the rounds; gains likewise, each round's against \
                   its own baseline. A difference is called one where the 95 % interval of the ratio does not hold 1. Of twenty comparisons without a difference, \
                   one will look like one.";
        blocks.push(Block::Words(how.into()));
        let page = Page { id: "comparison".into(), title: "Comparison".into(), blocks };
        Document { title: "Two evaluations of hearth".into(), subtitle: format!("A: {}. B: {}", self.a, self.b), pages: vec![page] }
    }

    fn table(&self) -> Table {
        let columns = vec![
            Column::words("Case", 2.4),
            Column::words("Arm", 1.2),
            Column::numbers("Rate A", 1.2),
            Column::numbers("Rate B", 1.2),
            Column::words("Rate, B by A", 2.4),
            Column::words("Gain, B by A", 2.4),
        ];
        let toned = |ratio: &Ratio| {
            let tone = match ratio.verdict {
                Verdict::Better => Tone::Good,
                Verdict::Worse => Tone::Bad,
                Verdict::NoSignificantDifference | Verdict::OnePairOnly => Tone::Unsure,
            };
            Cell::toned(ratio.told(), tone)
        };
        let rows = self.arms.iter().map(|arm| {
            let rate = |value: f64| Cell::of(words::rate(value, &arm.counted));
            let (a, b) = &arm.model_sets;
            let from = if a == b {
                words::backing(a.as_deref())
            } else {
                format!("{} and {}", words::backing(a.as_deref()), words::backing(b.as_deref()))
            };
            vec![
                Cell::of(format!("{}, {from}", arm.case)),
                Cell::of(arm.arm.clone()).strong(),
                rate(arm.rates.0),
                rate(arm.rates.1),
                toned(&arm.rate),
                arm.gains.as_ref().map_or_else(Cell::default, |(a, b, ratio)| {
                    let cell = toned(ratio);
                    Cell { text: format!("{}; from {} to {}", cell.text, words::times(*a), words::times(*b)), ..cell }
                }),
            ]
        });
        Table { caption: "Rates and gains in both, B by A with 95 % intervals".into(), rows: rows.collect(), columns }
    }
}
