//! Evaluations whose truth is known go through the whole pipeline (files, summary, words), and what the report claims is judged by the truth.

mod synthetic;

use evaluate::pairs::Verdict;
use evaluate::report::headlines::Outcome;
use evaluate::report::prices::{Cost, EXAMPLE};
use evaluate::report::summary::summarize;
use evaluate::report::{self, Prices, Summary};
use evaluate::store::Store;
use synthetic::Truth;

/// Enough that a share of 0.95 is known to a hundredth (standard error 0.0034).
const SEEDS: u64 = 4000;

fn summary(truth: &Truth, seed: u64) -> Summary {
    let (evaluation, legs) = synthetic::one_case(truth, seed);
    summarize(&evaluation, &legs, None)
}

fn verdict(summary: &Summary) -> (Verdict, &str) {
    let gain = &summary.cases[0].arms[1].gains["rate"];
    (gain.found.as_ref().expect("there are pairs").verdict, &gain.words)
}

fn outcome(summary: &Summary, headline: &str) -> Outcome {
    summary.headlines.iter().find(|one| one.id == headline).expect("every headline is there").outcome
}

/// How often something is so, over all seeds.
fn share(truth: &Truth, is_so: impl Fn(&Summary) -> bool) -> f64 {
    (0..SEEDS).filter(|seed| is_so(&summary(truth, *seed))).count() as f64 / SEEDS as f64
}

#[test]
fn where_nothing_is_gained_no_difference_is_said_nineteen_times_of_twenty() {
    for (rounds, noise, drift) in [(3, 0.05, 0.0), (5, 0.2, 0.0), (3, 0.05, -0.3), (5, 0.1, 0.2)] {
        let truth = Truth { gain: 1.0, noise, rounds, drift, ..Truth::default() };
        let right = share(&truth, |summary| {
            let (verdict, words) = verdict(summary);
            assert_eq!(words.starts_with("no significant difference: "), verdict == Verdict::NoSignificantDifference, "{words}");
            verdict == Verdict::NoSignificantDifference
        });
        assert!((0.935..=0.965).contains(&right), "{truth:?}: said in {right}");
    }
}

#[test]
fn gains_and_losses_are_found_and_named() {
    for (gain, found, begin) in [(2.0, Verdict::Better, "better: "), (0.8, Verdict::Worse, "worse: ")] {
        // A machine that grows slower from round to round disturbs neither: the legs of a round are compared with each other.
        for drift in [0.0, -0.4] {
            let truth = Truth { gain, noise: 0.02, rounds: 4, drift, ..Truth::default() };
            let right = share(&truth, |summary| {
                let (verdict, words) = verdict(summary);
                verdict == found && words.starts_with(begin)
            });
            assert!(right > 0.99, "{truth:?}: {right}");
            let wrong = share(&truth, |summary| ![found, Verdict::NoSignificantDifference].contains(&verdict(summary).0));
            assert!(wrong == 0.0, "{truth:?}: {wrong}");
        }
    }
}

#[test]
fn the_interval_holds_the_gain_nineteen_times_of_twenty() {
    let truth = Truth { gain: 3.0, noise: 0.1, rounds: 4, ..Truth::default() };
    let held = share(&truth, |summary| {
        let (low, high) = summary.cases[0].arms[1].gains["rate"].found.as_ref().and_then(|found| found.interval).expect("four pairs");
        (low..=high).contains(&3.0)
    });
    assert!((0.935..=0.965).contains(&held), "{held}");
}

#[test]
fn one_pair_claims_nothing() {
    for gain in [0.5, 2.0, 20.0] {
        let summary = summary(&Truth { gain, rounds: 1, ..Truth::default() }, 1);
        let (verdict, words) = verdict(&summary);
        assert!(verdict == Verdict::OnePairOnly && words.contains("one pair only"), "{words}");
        assert_eq!(outcome(&summary, "hotspot.wb"), if gain > 5.0 { Outcome::OnePairAbove } else { Outcome::OnePairBelow });
        assert!(summary.warnings.iter().any(|warning| warning.starts_with("ONE PAIR ONLY")), "{:?}", summary.warnings);
    }
}

#[test]
fn published_gains_are_beaten_and_missed_only_where_they_are() {
    // hotspot.wb: 5 times was published.
    let at = |gain: f64| Truth { gain, noise: 0.05, rounds: 5, ..Truth::default() };
    let is = |wanted: Outcome| move |summary: &Summary| outcome(summary, "hotspot.wb") == wanted;
    assert!(share(&at(7.5), is(Outcome::Beaten)) > 0.99);
    assert!(share(&at(3.0), is(Outcome::Missed)) > 0.99);
    // Just as good as the published one: claimed to be better in one of forty, to be worse in one of forty.
    for wanted in [Outcome::Beaten, Outcome::Missed] {
        let claimed = share(&at(5.0), is(wanted));
        assert!((0.015..=0.035).contains(&claimed), "{wanted:?}: {claimed}");
    }
    // Of a published range the upper end is to be beaten: oltp-live.tpcc has 2.5 to 3.5.
    let live = |gain: f64| Truth { headline: "oltp-live.tpcc", ..at(gain) };
    let is = |wanted: Outcome| move |summary: &Summary| outcome(summary, "oltp-live.tpcc") == wanted;
    assert!(share(&live(5.0), is(Outcome::Beaten)) > 0.99);
    assert!(share(&live(3.0), is(Outcome::WithinPublished)) > 0.99);
    assert!(share(&live(1.5), is(Outcome::Missed)) > 0.99);
}

#[test]
fn no_loss_is_as_published_unless_there_is_one() {
    let headline = "many-readers.writes";
    let at = |gain: f64| Truth { headline, gain, noise: 0.05, rounds: 5, ..Truth::default() };
    let is = |wanted: Outcome| move |summary: &Summary| outcome(summary, headline) == wanted;
    assert!(share(&at(1.5), is(Outcome::Beaten)) > 0.99);
    assert!(share(&at(0.6), is(Outcome::Missed)) > 0.99);
    let as_published = share(&at(1.0), is(Outcome::WithinPublished));
    assert!((0.93..=0.97).contains(&as_published), "{as_published}");
}

#[test]
fn times_and_shares_are_judged_in_their_own_direction() {
    // Published: below 100 µs; within 25 minutes; 90 % of the reads.
    for (headline, better, worse) in [("depth.hit", 60.0, 180.0), ("oltp-live.double", 100.0, 4000.0), ("oltp-live.waits", 0.97, 0.7)] {
        for (figure, wanted) in [(better, Outcome::Beaten), (worse, Outcome::Missed)] {
            let truth = Truth { headline, gain: figure, noise: 0.01, rounds: 4, drift: 0.0 };
            let right = share(&truth, |summary| outcome(summary, headline) == wanted);
            assert!(right > 0.99, "{headline} {figure}: {right}");
        }
    }
    let nothing = Truth { headline: "oltp-live.waits", gain: 0.0, noise: 0.0, rounds: 3, drift: 0.0 };
    assert_eq!(outcome(&summary(&nothing, 1), "oltp-live.waits"), Outcome::Missed);
}

#[test]
fn a_rate_of_zero_is_told_and_not_divided_by() {
    let (evaluation, mut legs) = synthetic::one_case(&Truth::default(), 1);
    legs[0].figures.insert("rate".into(), 0.0);
    let summary = summarize(&evaluation, &legs, None);
    let gain = &summary.cases[0].arms[1].gains["rate"];
    assert!(gain.found.is_none() && gain.words.contains("the rate of round 1 is zero"), "{}", gain.words);
    assert_eq!(outcome(&summary, "hotspot.wb"), Outcome::NotMeasured);
    assert!(serde_json::to_string(&summary).is_ok_and(|text| !text.contains("null,null")));
}

#[test]
fn every_headline_appears_and_what_is_missing_is_named() {
    let (evaluation, mut legs) = synthetic::whole(3);
    legs.retain(|leg| leg.case != "many-readers.five");
    let summary = summarize(&evaluation, &legs, None);
    for headline in evaluate::catalogue::SUITES.iter().flat_map(|suite| suite.headlines) {
        let own: Vec<_> = summary.headlines.iter().filter(|one| one.id == headline.id).collect();
        assert!(!own.is_empty(), "{} is dropped", headline.id);
        for one in own {
            assert!(!one.words.is_empty(), "{} says nothing", headline.id);
            let listed = summary.not_measured.iter().any(|not| not.what == headline.id);
            assert_eq!(one.outcome == Outcome::NotMeasured, listed, "{}", headline.id);
        }
    }
    let why = |what: &str| summary.not_measured.iter().find(|not| not.what == what).map(|not| not.why.as_str());
    assert_eq!(why("tpcc.vm"), Some("virtual machines are not supported by this version"));
    assert!(why("tpcc.sata wb").is_some_and(|why| why.starts_with("round 3 of 3 planned: no result is there")));
    assert!(why("many-readers.five wt").is_some_and(|why| why.starts_with("rounds 1, 2, 3 of 3 planned")));
    assert!(why("many-readers.five").is_some_and(|why| why.contains("no result of its arm wt has the figure rate")));
    // Two splits of hotspot measure the same headline: both are told.
    assert_eq!(summary.headlines.iter().filter(|one| one.id == "hotspot.wb").count(), 2);
}

#[test]
fn toys_and_quick_runs_are_said_loudly_everywhere() {
    let (mut evaluation, legs) = synthetic::one_case(&Truth::default(), 1);
    (evaluation.settings.toy, evaluation.settings.quick) = (true, true);
    let text = report::text(&summarize(&evaluation, &legs, None));
    assert!(text.contains("!! TOY SIZES") && text.contains("!! QUICK RUN"), "{text}");
}

#[test]
fn the_text_for_a_terminal_fits_it() {
    let (evaluation, legs) = synthetic::whole(5);
    let text = report::text(&summarize(&evaluation, &legs, None));
    let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > 100).collect();
    assert!(long.is_empty(), "{long:?}");
    assert!(
        text.contains("hotspot:") && text.contains("write-back:") && text.contains("7k2-raid5x3-short") && text.contains("IOPS"),
        "{text}"
    );
}

/// Some suites have no headline, since nobody published a figure of their kind.
#[test]
fn the_text_for_a_terminal_tells_what_has_no_headline() {
    let (mut evaluation, mut legs) = synthetic::one_case(&Truth::default(), 1);
    let told = |evaluation: &_, legs: &_| report::text(&summarize(evaluation, legs, None));
    let note = "hits of the application by bytes: 84.2 % before, 82.3 % beside it";
    legs[0].notes.push(note.into());
    assert!(!told(&evaluation, &legs).contains(note), "what has a headline is in the table");
    (evaluation.cases[0].id, evaluation.cases[0].headlines) = ("backups.mysqldump".into(), Vec::new());
    legs.iter_mut().for_each(|leg| leg.case = "backups.mysqldump".into());
    let text = told(&evaluation, &legs);
    assert!(text.contains(note) && text.contains("-- backups: Made up"), "{text}");
    assert!(text.contains("Rate against no cache"), "{text}");
    (evaluation.cases[0].arms[0].title, evaluation.cases[0].arms[0].cached) = ("no backup".into(), true);
    let text = told(&evaluation, &legs);
    assert!(text.contains("Rate against no backup"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn what_a_gain_costs_is_what_was_paid_by_what_was_gained() {
    let truth = Truth { headline: "tpcc.pcie", gain: 4.0, noise: 0.0, rounds: 3, drift: 0.0 };
    let (mut evaluation, mut legs) = synthetic::one_case(&truth, 1);
    evaluation.cases[0].counted = "transactions".into();
    for leg in &mut legs {
        leg.figures.insert("rate".into(), if leg.arm == "wb" { 40.0 } else { 10.0 });
    }
    let prices = Prices::parse(
        "currency = \"€\"\nyears = 2\nkilowatt_hour = 0.5\n[baseline]\nhost = 1000\ndisk = 2000\nwatts = 100\n[cache]\nssd = 300\nram = 100\n",
    )
    .expect("prices");
    let Cost::Table(table) = summarize(&evaluation, &legs, Some(&prices)).cost else { panic!("there is a table") };
    // Power: 0.1 kW × 8766 h × 2 years × 0.5 = 876.6. tpmC: 600 and 2400.
    let close = |value: f64, wanted: f64| (value - wanted).abs() < 1e-6;
    let (none, wb) = (&table.rows[0], &table.rows[1]);
    assert!(close(none.total, 3876.6) && close(none.per_tpmc, 3876.6 / 600.0) && none.added.is_none(), "{none:?}");
    assert!(close(wb.total, 4276.6) && close(wb.per_tpmc, 4276.6 / 2400.0) && close(wb.per_gain.unwrap_or(0.0), 100.0), "{wb:?}");
    assert!(close(wb.per_added_tpmc.unwrap_or(0.0), 400.0 / 1800.0), "{wb:?}");
    let missing = |cost: Cost| match cost {
        Cost::Missing { why } => why,
        Cost::Table(_) => String::new(),
    };
    assert!(missing(summarize(&evaluation, &legs, None).cost).contains("--prices FILE"));
    let (other, legs) = synthetic::one_case(&Truth::default(), 1);
    assert!(missing(summarize(&other, &legs, Some(&prices)).cost).contains("tpcc has no result"));
}

#[test]
fn the_json_report_is_the_summary() {
    let place = tempfile::tempdir().expect("a directory");
    let (evaluation, legs) = synthetic::one_case(&Truth::default(), 8);
    let store = Store::create(&place.path().join("out"), &evaluation).expect("creates");
    legs.iter().for_each(|leg| store.put(leg).expect("puts"));
    std::fs::write(store.place().join("legs/hotspot.wb/wb-2.json"), "{").expect("writes");
    let prices = Prices::parse(EXAMPLE).expect("prices");
    let written = report::write(store.place(), &[report::Format::Json], Some(&prices)).expect("writes");
    let text = std::fs::read_to_string(&written[0]).expect("reads");
    let summary: Summary = serde_json::from_str(&text).expect("is a summary");
    // A damaged leg is told of, and the others are used.
    assert_eq!(summary.cases[0].arms[1].rounds, [1, 3, 4, 5]);
    assert!(summary.not_measured.iter().any(|not| not.what == "hotspot.wb wb round 2" && not.why.contains("damaged")));
    assert_eq!(report::write(store.place(), &[report::Format::Json], Some(&prices)).expect("writes"), written);
    assert_eq!(std::fs::read_to_string(&written[0]).expect("reads"), text);
}

#[test]
fn two_evaluations_are_compared_without_pairs() {
    // The same twice: no difference nineteen times out of twenty. All runs of a machine vary by its mood, which is no part of a pair here.
    let seeds = 2000;
    let plain = |gain: f64, seed: u64| summary(&Truth { gain, noise: 0.1, rounds: 5, ..Truth::default() }, seed);
    let verdict = |a: &Summary, b: &Summary| report::compare::compare(("a", a), ("b", b)).arms[1].clone();
    let same =
        (0..seeds).filter(|seed| verdict(&plain(2.0, *seed), &plain(2.0, seed + 50_000)).rate.verdict == Verdict::NoSignificantDifference);
    let same = same.count() as f64 / seeds as f64;
    assert!((0.93..=0.98).contains(&same), "{same}");
    // Gains are free of the machine's mood: their difference is found where that of the rates is not.
    let found = (0..seeds).filter(|seed| {
        let arm = verdict(&plain(2.0, *seed), &plain(4.0, seed + 50_000));
        arm.gains.as_ref().is_some_and(|gains| gains.2.verdict == Verdict::Better)
    });
    let found = found.count() as f64 / seeds as f64;
    assert!(found > 0.99, "{found}");
}

#[test]
fn a_comparison_says_what_is_not_the_same() {
    let (evaluation, legs) = synthetic::whole(1);
    let a = summarize(&evaluation, &legs, None);
    let (mut other, legs) = synthetic::whole(2);
    other.machine.cpus = 8;
    other.machine.programs.insert("sysbench".into(), "1.0.20".into());
    other.cases[0].cache_bytes *= 2;
    other.cases.remove(1);
    other.settings.quick = true;
    let b = summarize(&other, &legs, None);
    let comparison = report::compare::compare(("old", &a), ("new", &b));
    for what in ["processors", "sysbench", "quick", "readhit.rd1: cache"] {
        assert!(comparison.differs.iter().any(|differs| differs.what == what), "{what}: {:?}", comparison.differs);
    }
    assert!(comparison.not_compared.iter().any(|not| not.what == "readhit.rd2" && not.why == "only old has it"));
    let text = comparison.text();
    assert!(text.lines().all(|line| line.chars().count() <= 100) && text.contains("!! QUICK RUN in new"), "{text}");
    assert!(report::compare::compare(("a", &a), ("a", &a)).text().contains("are the same in both"));
}
