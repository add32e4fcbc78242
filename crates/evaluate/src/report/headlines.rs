//! The catalogue's headlines: what was published, what was measured here, and how the one stands beside the other. Every headline appears; one that was
//! not measured says why.

use super::arms::{self, GainSummary};
use super::summary::{CaseSummary, Spread, figure_of, legs_of, suite_of};
use super::words;
use crate::catalogue::{Headline, Published, SUITES, Suite};
use crate::pairs::{Beside, Better, Gain, Pair, Verdict, t_quantile};
use crate::result::{Evaluation, Leg, Measured};
use serde::{Deserialize, Serialize};

/// A headline in one case, or a headline that no case measured.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HeadlineSummary {
    /// [`Headline::id`].
    pub id: String,
    /// [`Headline::what`].
    pub what: String,
    /// The suite.
    pub suite: String,
    /// The report that published it.
    pub report: String,
    /// What was published, in words.
    pub published: String,
    /// The case that measured it.
    pub case: Option<String>,
    /// That case's title.
    pub case_title: Option<String>,
    /// The title of its arm.
    pub arm_title: Option<String>,
    /// Where the backing device comes from: `model set array`, `real device`.
    pub backing: Option<String>,
    /// Name of the figure.
    pub figure: Option<String>,
    /// The figure without the cache, if the headline is a gain.
    pub baseline: Option<Spread>,
    /// The figure with it.
    pub ours: Option<Spread>,
    /// `baseline`, in words with the unit.
    pub baseline_words: String,
    /// `ours`, in words with the unit.
    pub ours_words: String,
    /// The gain, if the headline is one.
    pub gain: Option<GainSummary>,
    /// Ours by the published figure; above one is better, whatever the figure's good direction.
    pub of_published: Option<f64>,
    /// How it stands beside the published figure.
    pub outcome: Outcome,
    /// The same as a sentence without a full stop; or why it was not measured.
    pub words: String,
}

/// How a figure stands beside a published one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The whole interval lies at or above it; where a range was published, its upper end.
    Beaten,
    /// The estimate does, the interval reaches below.
    BeatenWithinNoise,
    /// Between the ends of the published range.
    WithinPublished,
    /// The estimate lies below, the interval reaches it.
    MissedWithinNoise,
    /// The whole interval lies below.
    Missed,
    /// One pair, above: nothing is claimed.
    OnePairAbove,
    /// One pair, below: nothing is claimed.
    OnePairBelow,
    /// The report gives no number.
    NoNumber,
    /// There is no figure of ours.
    NotMeasured,
}

impl Outcome {
    /// In a word or two.
    pub const fn name(self) -> &'static str {
        match self {
            Outcome::Beaten => "beaten",
            Outcome::BeatenWithinNoise => "better, within noise",
            Outcome::WithinPublished => "in the published range",
            Outcome::MissedWithinNoise => "worse, within noise",
            Outcome::Missed => "not reached",
            Outcome::OnePairAbove => "better, one pair only",
            Outcome::OnePairBelow => "worse, one pair only",
            Outcome::NoNumber => "no number published",
            Outcome::NotMeasured => "not measured",
        }
    }

    const fn of(beside: Beside, runs: usize) -> Outcome {
        match (beside, runs) {
            (Beside::Beaten | Beside::BeatenWithinNoise, 1) => Outcome::OnePairAbove,
            (Beside::Missed | Beside::MissedWithinNoise, 1) => Outcome::OnePairBelow,
            (Beside::Beaten, _) => Outcome::Beaten,
            (Beside::BeatenWithinNoise, _) => Outcome::BeatenWithinNoise,
            (Beside::MissedWithinNoise, _) => Outcome::MissedWithinNoise,
            (Beside::Missed, _) => Outcome::Missed,
        }
    }
}

/// All headlines of the catalogue, in its order.
pub fn all(evaluation: &Evaluation, cases: &[CaseSummary], legs: &[Leg]) -> Vec<HeadlineSummary> {
    let mut found = Vec::new();
    for suite in SUITES {
        for headline in suite.headlines {
            let before = found.len();
            for case in cases {
                for measured in case.headlines.iter().filter(|measured| measured.headline == headline.id) {
                    found.push(measure(suite, headline, case, measured, legs));
                }
            }
            if found.len() == before {
                found.push(HeadlineSummary { words: why_not(evaluation, suite, headline), ..empty(suite, headline) });
            }
        }
    }
    found
}

/// Of each headline the first case and arm that measure it: the one that is most like the report's test. The others are its variants.
pub fn principal(headlines: &[HeadlineSummary]) -> Vec<HeadlineSummary> {
    let mut found: Vec<HeadlineSummary> = Vec::new();
    for headline in headlines {
        if found.iter().all(|other| other.id != headline.id) {
            found.push(headline.clone());
        }
    }
    found
}

/// What was published, in words.
pub fn published_words(published: Published) -> String {
    match published {
        Published::Gain(gain) => words::times(gain),
        Published::GainBetween(low, high) => format!("{}–{}", words::number(low), words::times(high)),
        Published::BelowMicroseconds(bound) => format!("below {}", words::microseconds(bound)),
        Published::Share(share) => words::percent(share),
        Published::Seconds(seconds) => words::seconds(seconds),
        Published::NoLoss => "no loss".into(),
        Published::NoNumber => "no number".into(),
    }
}

fn empty(suite: &Suite, headline: &Headline) -> HeadlineSummary {
    HeadlineSummary {
        id: headline.id.into(),
        what: headline.what.into(),
        suite: suite.name.into(),
        report: headline.report.name().into(),
        published: published_words(headline.published),
        case: None,
        case_title: None,
        arm_title: None,
        backing: None,
        figure: None,
        baseline: None,
        ours: None,
        baseline_words: String::new(),
        ours_words: String::new(),
        gain: None,
        of_published: None,
        outcome: Outcome::NotMeasured,
        words: String::new(),
    }
}

/// Why no case measures a headline: as the plan says, for the headline or its suite.
fn why_not(evaluation: &Evaluation, suite: &Suite, headline: &Headline) -> String {
    let said = |what: &str| evaluation.not_measured.iter().find(|known| known.what == what).map(|known| known.why.clone());
    said(headline.id).or_else(|| said(suite.name)).unwrap_or_else(|| {
        let planned = evaluation.cases.iter().any(|case| suite_of(&case.id) == suite.name);
        if planned {
            "no case of this evaluation measures it".into()
        } else {
            format!("the suite {} was not part of this evaluation", suite.name)
        }
    })
}

fn measure(suite: &Suite, headline: &Headline, case: &CaseSummary, measured: &Measured, legs: &[Leg]) -> HeadlineSummary {
    let spread =
        |arm: &str| Spread::of(legs_of(legs, &case.id, arm).filter_map(|leg| Some((leg.round, figure_of(leg, &measured.figure)?))));
    let told =
        |spread: &Option<Spread>| spread.as_ref().map_or(String::new(), |s| words::figure(&measured.figure, s.median, &case.counted));
    let ours = spread(&measured.arm);
    let baseline = measured.against.as_deref().and_then(spread);
    let mut summary = HeadlineSummary {
        case: Some(case.id.clone()),
        case_title: Some(case.title.clone()),
        arm_title: case.arm(&measured.arm).map(|arm| arm.title.clone()),
        backing: Some(words::backing(case.model_set.as_deref())),
        figure: Some(measured.figure.clone()),
        baseline_words: told(&baseline),
        ours_words: told(&ours),
        baseline,
        ours,
        ..empty(suite, headline)
    };
    let Some(ours) = &summary.ours else {
        summary.words = format!("{} was planned, and no result of its arm {} has the figure {}", case.id, measured.arm, measured.figure);
        return summary;
    };
    if let Some(against) = &measured.against {
        summary.gain = Some(arms::gain(legs, &case.id, against, &measured.arm, &measured.figure, measured.better));
    }
    let stand = match (headline.published, &summary.gain) {
        (Published::Gain(published), Some(gain)) => gain_beside(gain, published, published),
        (Published::GainBetween(low, high), Some(gain)) => gain_beside(gain, low, high),
        (Published::NoLoss, Some(gain)) => no_loss(gain),
        (Published::Gain(_) | Published::GainBetween(..) | Published::NoLoss, None) => {
            Err("the plan does not say what the gain is against".into())
        }
        (Published::BelowMicroseconds(bound), _) => time_beside(ours, bound, &words::microseconds),
        (Published::Seconds(bound), _) => time_beside(ours, bound, &words::seconds),
        (Published::Share(share), _) => Ok(share_beside(ours, share)),
        (Published::NoNumber, gain) => Ok(Stand {
            outcome: Outcome::NoNumber,
            of_published: None,
            words: gain.as_ref().map_or_else(
                || "the report shows a chart without numbers".into(),
                |gain| format!("the report shows a chart without numbers; {}", gain.words),
            ),
        }),
    };
    match stand {
        Ok(stand) => (summary.outcome, summary.of_published, summary.words) = (stand.outcome, stand.of_published, stand.words),
        Err(why) => {
            summary.words = why;
            summary.ours = None;
        }
    }
    summary
}

struct Stand {
    outcome: Outcome,
    of_published: Option<f64>,
    words: String,
}

fn gain_beside(summary: &GainSummary, low: f64, high: f64) -> Result<Stand, String> {
    let Some(found) = &summary.found else { return Err(summary.words.clone()) };
    let gain = Gain { mean: found.mean, median: found.median, range: found.range, interval: found.interval, pairs: found.pairs };
    let upper = gain.beside(high);
    let above = matches!(upper, Beside::Beaten | Beside::BeatenWithinNoise);
    let is_range = low < high;
    let within = is_range && !above && found.mean >= low;
    let (outcome, bound) = match (above, within) {
        (true, _) => (Outcome::of(upper, found.pairs), high),
        (false, true) if found.pairs == 1 => (Outcome::OnePairBelow, high),
        (false, true) => (Outcome::WithinPublished, high),
        (false, false) => (Outcome::of(gain.beside(low), found.pairs), low),
    };
    let compared = format!("{} the published {}", words::times(found.mean / bound), words::times(bound));
    let words = if within {
        format!("{}: {} to {} was published; {}", Outcome::WithinPublished.name(), words::number(low), words::times(high), summary.words)
    } else {
        format!("{} ({compared}); {}", standing(outcome), summary.words)
    };
    Ok(Stand { outcome, of_published: Some(found.mean / bound), words })
}

/// As the report has it where the pairs show no difference; a gain is more than that.
fn no_loss(summary: &GainSummary) -> Result<Stand, String> {
    let Some(found) = &summary.found else { return Err(summary.words.clone()) };
    let (outcome, said) = match found.verdict {
        Verdict::Better => (Outcome::Beaten, "beaten: no loss was published"),
        Verdict::NoSignificantDifference => (Outcome::WithinPublished, "as published"),
        Verdict::Worse => (Outcome::Missed, "not reached: no loss was published"),
        Verdict::OnePairOnly if found.mean >= 1.0 => (Outcome::OnePairAbove, Outcome::OnePairAbove.name()),
        Verdict::OnePairOnly => (Outcome::OnePairBelow, Outcome::OnePairBelow.name()),
    };
    Ok(Stand { outcome, of_published: Some(found.mean), words: format!("{said}; {}", summary.words) })
}

/// A time beside a published one, as a gain of which one is the published figure.
fn time_beside(ours: &Spread, bound: f64, tell: &dyn Fn(f64) -> String) -> Result<Stand, String> {
    let pairs: Vec<Pair> = ours.by_round.values().map(|value| Pair { baseline: bound, cached: *value }).collect();
    let Ok(gain) = Gain::of(&pairs, Better::Lower) else { return Err("a time of zero cannot be compared".into()) };
    let outcome = Outcome::of(gain.beside(1.0), gain.pairs);
    let interval =
        gain.interval.map_or(String::new(), |(low, high)| format!(" (95 % interval {} to {})", tell(bound / high), tell(bound / low)));
    let words = format!("{}: {}{interval} against {}; {}", standing(outcome), tell(bound / gain.mean), tell(bound), rounds(gain.pairs));
    Ok(Stand { outcome, of_published: Some(gain.mean), words })
}

/// A share beside a published one: by differences, since shares end at one and may be zero.
fn share_beside(ours: &Spread, published: f64) -> Stand {
    let values: Vec<f64> = ours.by_round.values().copied().collect();
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let half = (values.len() > 1).then(|| {
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
        t_quantile(values.len() - 1) * (variance / count).sqrt()
    });
    let (low, high) = half.map_or((f64::NEG_INFINITY, f64::INFINITY), |half| (mean - half, mean + half));
    let beside = match mean >= published {
        true if low >= published => Beside::Beaten,
        true => Beside::BeatenWithinNoise,
        false if high >= published => Beside::MissedWithinNoise,
        false => Beside::Missed,
    };
    let outcome = Outcome::of(beside, values.len());
    let interval =
        half.map_or(String::new(), |_| format!(" (95 % interval {} to {})", words::percent(low.max(0.0)), words::percent(high.min(1.0))));
    let words = format!(
        "{}: {}{interval} against {}; {}",
        standing(outcome),
        words::percent(mean),
        words::percent(published),
        rounds(values.len())
    );
    Stand { outcome, of_published: Some(mean / published), words }
}

fn standing(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Beaten => words::beside(Beside::Beaten),
        Outcome::BeatenWithinNoise => words::beside(Beside::BeatenWithinNoise),
        Outcome::MissedWithinNoise => words::beside(Beside::MissedWithinNoise),
        Outcome::Missed => words::beside(Beside::Missed),
        other => other.name(),
    }
}

fn rounds(count: usize) -> String {
    if count == 1 { "one run".into() } else { format!("{count} runs") }
}
