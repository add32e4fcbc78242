//! From a summary to the pages of a report: the summary on one, one for each suite, what things cost, what was not measured, how it was calculated.

use super::arms::{ArmSummary, GainSummary};
use super::charts;
use super::document::{Block, Cell, Column, Document, Page, Sign, Table, Tone};
use super::headlines::{HeadlineSummary, Outcome, principal};
use super::prices::{Cost, CostTable};
use super::summary::{CaseSummary, Spread, Summary, legs_of, machine_line};
use super::then::then;
use super::words;
use crate::catalogue;
use crate::pairs::Verdict;
use crate::result::Leg;

/// The whole report.
pub fn document(summary: &Summary, legs: &[Leg]) -> Document {
    let mut pages = vec![first(summary), gains_and_machine(summary)];
    pages.extend(summary.suites().into_iter().map(|suite| suite_page(summary, suite, legs)));
    pages.extend([cost_page(summary), missing_page(summary), method_page()]);
    Document { title: "hearth evaluated".into(), subtitle: subtitle(summary), pages }
}

/// The summary alone, for a terminal.
pub fn short(summary: &Summary) -> Document {
    let mut page = first(summary);
    for block in &mut page.blocks {
        if let Block::Table(table) = block {
            *table = narrow(headline_table(&principal(&summary.headlines), true));
        }
    }
    page.blocks.extend(without_headline(summary));
    page.blocks.push(Block::Heading("The machine".into()));
    page.blocks.push(Block::Facts(machine(summary)));
    page.blocks.push(Block::Heading("Not measured".into()));
    page.blocks.push(missing(summary));
    Document { title: "hearth evaluated".into(), subtitle: subtitle(summary), pages: vec![page] }
}

/// What came of the suites that nobody published a figure of.
fn without_headline(summary: &Summary) -> Vec<Block> {
    let has_none = |case: &&CaseSummary| catalogue::suite(&case.suite).is_some_and(|suite| suite.headlines.is_empty());
    let has_run = |case: &&CaseSummary| case.arms.iter().any(|arm| !arm.rounds.is_empty());
    let blocks = |case: &CaseSummary| {
        let heading = Block::Heading(format!("{}: {}", case.suite, case.title));
        [heading, Block::Table(figures(case)), Block::List(notes(case))]
    };
    summary.cases.iter().filter(has_none).filter(has_run).flat_map(blocks).collect()
}

/// The table of headlines for a terminal: the sign goes before the figure, model sets and verdicts are in the report.
fn narrow(mut table: Table) -> Table {
    const VERDICT: usize = 5;
    for row in &mut table.rows {
        row[0].sign = row[VERDICT].sign;
        row.truncate(VERDICT);
    }
    table.columns.truncate(VERDICT);
    table.columns[0].weight = 6.0;
    table.caption = "What was published, and what was measured here (▲ beaten, △ ▽ not certain, ▼ not reached)".into();
    table
}

fn subtitle(summary: &Summary) -> String {
    format!("Version {}, {}, {}", summary.hearth, words::moment(summary.began_unix_s), machine_line(&summary.machine))
}

fn first(summary: &Summary) -> Page {
    let mut blocks: Vec<Block> = summary.warnings.iter().map(|warning| loud_or_not(warning)).collect();
    let headlines = principal(&summary.headlines);
    let variants = summary.headlines.len() - headlines.len();
    let more = match variants {
        0 => String::new(),
        1 => " One variant of them is on its suite's page.".into(),
        _ => format!(" {variants} variants of them (other splits, other settings) are on their suites' pages."),
    };
    blocks.push(Block::Words(in_a_sentence(&headlines) + &more));
    blocks.push(Block::Table(headline_table(&headlines, true)));
    Page { id: "summary".into(), title: "Summary".into(), blocks }
}

/// The same as a picture, and where it was measured.
fn gains_and_machine(summary: &Summary) -> Page {
    let mut blocks: Vec<Block> = charts::of_headlines(summary).map(|named| Block::Pictures(vec![named])).into_iter().collect();
    blocks.push(Block::Heading("The machine".into()));
    blocks.push(Block::Facts(machine(summary)));
    Page { id: "machine".into(), title: "Gains and machine".into(), blocks }
}

/// What is written in capitals at its begin is loud.
fn loud_or_not(warning: &str) -> Block {
    let loud = warning.split_whitespace().next().is_some_and(|word| word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase()));
    if loud { Block::Loud(warning.into()) } else { Block::Words(warning.into()) }
}

fn in_a_sentence(headlines: &[HeadlineSummary]) -> String {
    let count = |outcomes: &[Outcome]| headlines.iter().filter(|headline| outcomes.contains(&headline.outcome)).count();
    let measured = headlines.len() - count(&[Outcome::NotMeasured]);
    let said = [
        (count(&[Outcome::Beaten]), "beats the published one", "beat the published one"),
        (count(&[Outcome::WithinPublished]), "lies in the published range", "lie in the published range"),
        (
            count(&[Outcome::BeatenWithinNoise, Outcome::MissedWithinNoise]),
            "cannot be distinguished from it by these rounds",
            "cannot be distinguished from it by these rounds",
        ),
        (count(&[Outcome::Missed]), "does not reach it", "do not reach it"),
        (
            count(&[Outcome::OnePairAbove, Outcome::OnePairBelow]),
            "comes from one pair, from which nothing is claimed",
            "come from one pair, from which nothing is claimed",
        ),
        (count(&[Outcome::NoNumber]), "has no published number", "have no published number"),
    ];
    let said: Vec<String> = said
        .iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, one, many)| format!("{count} {}", if *count == 1 { one } else { many }))
        .collect();
    let missing = headlines.len() - measured;
    let tail = if missing == 0 {
        String::new()
    } else {
        format!(" {missing} more {} not measured, each with its reason under \"Not measured\".", if missing == 1 { "was" } else { "were" })
    };
    if said.is_empty() {
        format!("No headline figure was measured.{tail}")
    } else {
        format!("Of {measured} measured headline figures: {}.{tail}", said.join("; "))
    }
}

fn machine(summary: &Summary) -> Vec<(String, String)> {
    let settings = &summary.settings;
    let fact = |name: &str, value: String| (name.to_string(), value);
    let mut facts = vec![
        fact("Machine", machine_line(&summary.machine)),
        fact("SSD", summary.machine.ssd.clone()),
        fact("Backing device on", summary.machine.backing.clone()),
    ];
    let programs: Vec<String> = summary.machine.programs.iter().map(|(name, version)| format!("{name} {version}")).collect();
    if !programs.is_empty() {
        facts.push(fact("Programs", programs.join(", ")));
    }
    let mut asked = vec![format!("{} pairs a case", settings.pairs)];
    asked.extend(settings.toy.then(|| "toy sizes".into()));
    asked.extend(settings.quick.then(|| "quick".into()));
    asked.extend(settings.size_bytes.map(|size| format!("data of {}", words::bytes(size as f64))));
    asked.extend(settings.backing.iter().map(|path| format!("backing device {path}")));
    asked.extend(settings.model.iter().map(|set| format!("model set {set} for all suites")));
    asked.extend(settings.ssd.iter().map(|path| format!("cache on {path}")));
    facts.push(fact("Asked for", asked.join(", ")));
    facts
}

/// The table of headlines. On the first page with their suites' names, and short; on a suite's own with sentences.
fn headline_table(headlines: &[HeadlineSummary], is_first: bool) -> Table {
    let mut columns = vec![
        Column::words("Figure", 3.2),
        Column::numbers("Published", 1.2),
        Column::numbers("No cache", 1.3),
        Column::numbers("Ours", 1.3),
        Column::numbers("Gain, 95 % interval", 1.5),
        Column::words(if is_first { "Beside the published figure" } else { "Verdict" }, if is_first { 2.4 } else { 3.6 }),
    ];
    if is_first {
        columns.push(Column::words("Model set", 1.3));
    }
    let rows = headlines
        .iter()
        .map(|headline| {
            let (tone, sign) = shown(headline.outcome);
            let missing = headline.outcome == Outcome::NotMeasured;
            let mut what = if is_first { format!("{}: {}", headline.suite, headline.what) } else { headline.what.clone() };
            let which = apart(headline, headlines);
            if !which.is_empty() {
                what = format!("{what} ({which})");
            }
            let gain = headline.gain.as_ref().and_then(|gain| gain.found.as_ref()).map_or(String::new(), |found| match found.interval {
                Some(bounds) => format!("{} ({})", words::times(found.mean), words::interval(bounds)),
                None => format!("{} (one pair)", words::times(found.mean)),
            });
            let verdict = if is_first { first_words(headline) } else { headline.words.clone() };
            let tone_of_rest = if missing { Tone::Quiet } else { Tone::Plain };
            let mut row = vec![
                Cell::toned(what, tone_of_rest),
                Cell::toned(headline.published.clone(), tone_of_rest),
                Cell::of(headline.baseline_words.clone()),
                Cell::of(headline.ours_words.clone()).strong(),
                Cell::of(gain),
                Cell { text: verdict, tone, sign: Some(sign), strong: !missing && is_first },
            ];
            if is_first {
                let backing = headline.backing.clone().unwrap_or_default();
                row.push(Cell::toned(backing.trim_start_matches("model set "), Tone::Quiet));
            }
            row
        })
        .collect();
    let caption = if is_first { "What was published, and what was measured here" } else { "Then and now" };
    Table { caption: caption.into(), columns, rows }
}

/// What tells a headline from others of the same name: the case's own name, the arm, or both.
fn apart(headline: &HeadlineSummary, headlines: &[HeadlineSummary]) -> String {
    let same = || headlines.iter().filter(|other| other.id == headline.id);
    let mut words = Vec::new();
    if let Some(case) = headline.case.as_ref().filter(|case| same().any(|other| other.case.as_ref() != Some(case))) {
        words.push(case.split_once('.').map_or(case.as_str(), |(_, own)| own));
    }
    if let Some(arm) = headline.arm_title.as_ref().filter(|arm| same().any(|other| other.arm_title.as_ref() != Some(arm))) {
        words.push(arm);
    }
    words.join("; ")
}

/// The outcome, and that there is no difference from the baseline where that is so.
fn first_words(headline: &HeadlineSummary) -> String {
    let verdict = headline.gain.as_ref().and_then(|gain| gain.found.as_ref()).map(|found| found.verdict);
    let name = headline.outcome.name();
    match verdict {
        Some(Verdict::NoSignificantDifference) => format!("{name}; no significant difference from no cache"),
        Some(Verdict::Worse) => format!("{name}; worse than no cache"),
        _ => name.into(),
    }
}

fn shown(outcome: Outcome) -> (Tone, Sign) {
    match outcome {
        Outcome::Beaten => (Tone::Good, Sign::Up),
        Outcome::WithinPublished => (Tone::Good, Sign::Level),
        Outcome::BeatenWithinNoise | Outcome::OnePairAbove => (Tone::Unsure, Sign::PerhapsUp),
        Outcome::MissedWithinNoise | Outcome::OnePairBelow => (Tone::Unsure, Sign::PerhapsDown),
        Outcome::Missed => (Tone::Bad, Sign::Down),
        Outcome::NoNumber => (Tone::Plain, Sign::Dash),
        Outcome::NotMeasured => (Tone::Quiet, Sign::Dash),
    }
}

fn suite_page(summary: &Summary, name: &str, legs: &[Leg]) -> Page {
    let mut blocks: Vec<Block> =
        summary.warnings.iter().map(|warning| loud_or_not(warning)).filter(|block| matches!(block, Block::Loud(_))).collect();
    let suite = catalogue::suite(name);
    blocks.extend(suite.map(|suite| Block::Words(suite.about.into())));
    if !then(name).is_empty() {
        blocks.push(Block::Facts(vec![("Then".into(), then(name).into())]));
    }
    let own: Vec<HeadlineSummary> = summary.headlines.iter().filter(|headline| headline.suite == name).cloned().collect();
    if !own.is_empty() {
        blocks.push(Block::Table(headline_table(&own, false)));
    }
    for case in summary.cases.iter().filter(|case| case.suite == name) {
        blocks.extend(case_blocks(case, legs));
    }
    Page { id: format!("suite-{name}"), title: name.into(), blocks }
}

fn case_blocks(case: &CaseSummary, legs: &[Leg]) -> Vec<Block> {
    let from = words::backing(case.model_set.as_deref());
    let size = |bytes: u64| words::bytes(bytes as f64);
    let mut blocks = vec![Block::Heading(format!("{} ({from})", case.title))];
    let sizes = format!("data {}, cache {}, RAM tier {}", size(case.data_bytes), size(case.cache_bytes), size(case.ram_bytes));
    blocks.push(Block::Facts(vec![
        ("Now".into(), case.about.clone()),
        ("Sizes".into(), sizes),
        ("Backing".into(), from),
        ("Rounds".into(), format!("{}; in each, all arms follow each other at once", case.rounds)),
    ]));
    if case.arms.iter().all(|arm| arm.rounds.is_empty()) {
        blocks.push(Block::Words("No result is there: see \"Not measured\".".into()));
        return blocks;
    }
    blocks.push(Block::Table(figures(case)));
    blocks.extend(ceiling(case).map(Block::Words));
    blocks.extend(responses(case).map(Block::Table));
    blocks.extend(work(case).map(Block::Table));
    let pictures = charts::of_case(case, legs);
    if !pictures.is_empty() {
        blocks.push(Block::Pictures(pictures));
    }
    if case.along.is_none() {
        blocks.extend(rounds(case).map(Block::Table));
    }
    let notes = notes(case);
    if !notes.is_empty() {
        blocks.push(Block::List(notes));
    }
    blocks.extend(commands(case, legs));
    blocks
}

/// What the arm with neither disk nor cache says, once it has been run.
fn ceiling(case: &CaseSummary) -> Option<String> {
    let ceiling = case.ceiling.as_ref()?;
    let arm = case.arm(&ceiling.arm)?;
    let gain = arm.gains.get("rate")?.found.as_ref()?.median;
    let what = if ceiling.in_memory { "data that lie in memory" } else { "data that lie on the SSD itself" };
    Some(format!(
        "The same load on {what}, behind a loop device of the kernel with neither disk nor cache in between, runs at {} times the rate without a cache: \
         behind a block device, nothing on this machine can gain more.",
        words::number(gain)
    ))
}

/// What gains are against: most cases begin with an arm without a cache.
fn against(case: &CaseSummary) -> &str {
    case.arms.first().filter(|arm| arm.cached).map_or("no cache", |arm| &arm.title)
}

/// Medians of all rounds with their range, and the gain.
fn figures(case: &CaseSummary) -> Table {
    let told = |arm: &ArmSummary, name: &str, tell: &dyn Fn(f64) -> String| {
        arm.figures.get(name).map_or(String::new(), |spread| spread.told(tell))
    };
    let (unit, size) = words::rate_unit(&case.counted);
    let has = |name: &str| case.arms.iter().any(|arm| arm.figures.contains_key(name));
    let mut columns =
        vec![Column::words("", 1.6), Column::numbers(&unit, 1.7), Column::words(&format!("Rate against {}", against(case)), 2.6)];
    if has("mean_us") {
        columns.push(Column::numbers("Mean response", 1.7));
    }
    if case.along.is_none() && has("hit_ratio") {
        columns.push(Column::numbers("Reads from the cache", 1.3));
    }
    let rows = case.arms.iter().map(|arm| {
        let mut row = vec![
            Cell::of(arm.title.clone()).strong(),
            Cell::of(told(arm, "rate", &|rate| words::number(rate / size))),
            gain_cell(arm.gains.get("rate")),
        ];
        if has("mean_us") {
            row.push(Cell::of(told(arm, "mean_us", &words::microseconds)));
        }
        if case.along.is_none() && has("hit_ratio") {
            row.push(Cell::of(told(arm, "hit_ratio", &words::percent)));
        }
        row
    });
    Table {
        caption: format!("Medians of {} rounds, in brackets from the smallest to the largest", case.rounds),
        rows: rows.collect(),
        columns,
    }
}

fn gain_cell(gain: Option<&GainSummary>) -> Cell {
    let Some(gain) = gain else { return Cell::default() };
    let tone = gain.found.as_ref().map_or(Tone::Unsure, |found| match found.verdict {
        Verdict::Better => Tone::Good,
        Verdict::Worse => Tone::Bad,
        Verdict::NoSignificantDifference | Verdict::OnePairOnly => Tone::Unsure,
    });
    Cell::toned(gain.words.clone(), tone)
}

fn responses(case: &CaseSummary) -> Option<Table> {
    if case.along.is_some() || case.arms.iter().all(|arm| arm.percentiles_us.is_empty()) {
        return None;
    }
    const PERCENTS: [&str; 5] = ["50", "90", "95", "99", "99.9"];
    let mut columns = vec![Column::words("", 1.6)];
    columns.extend(PERCENTS.iter().map(|percent| Column::numbers(&format!("{percent} %"), 1.0)));
    columns.push(Column::words(&format!("Mean against {}", against(case)), 2.2));
    let rows = case.arms.iter().map(|arm| {
        let mut row = vec![Cell::of(arm.title.clone()).strong()];
        let told = |percent: &&str| arm.percentiles_us.get(*percent).map_or(String::new(), |spread| words::microseconds(spread.median));
        row.extend(PERCENTS.iter().map(told).map(Cell::of));
        row.push(gain_cell(arm.gains.get("mean_us")));
        row
    });
    let of = case.arms.iter().find_map(|arm| arm.latency_of.clone()).unwrap_or_else(|| "responses".into());
    Some(Table {
        caption: format!("Response times of {of}: so many percent took at most so long (medians of the rounds)"),
        rows: rows.collect(),
        columns,
    })
}

/// CPU, the SSD's wear, and what the backing device had to do.
fn work(case: &CaseSummary) -> Option<Table> {
    if case.along.is_some() || case.arms.iter().all(|arm| arm.cpu.is_none() && arm.traffic.is_none()) {
        return None;
    }
    let operation = words::operation(&case.counted).0;
    let columns = vec![
        Column::words("", 1.4),
        Column::numbers(&format!("hearth's CPU per {operation}"), 1.2),
        Column::numbers(&format!("machine's CPU per {operation}"), 1.2),
        Column::numbers("written to the SSD", 1.2),
        Column::numbers("SSD bytes per byte written", 1.2),
        Column::numbers("cache written in full, per day", 1.2),
        Column::numbers("backing read + written", 1.6),
        Column::numbers("backing bytes per byte of the load", 1.2),
    ];
    let rows = case.arms.iter().map(|arm| {
        let median = |spread: Option<&Spread>, tell: &dyn Fn(f64) -> String| spread.map_or(String::new(), |spread| tell(spread.median));
        let a_second = |value: f64| format!("{} MB/s", words::number(value / 1e6));
        let traffic = arm.traffic.clone().unwrap_or_default();
        let both = match (&traffic.backing_read_bytes_s, &traffic.backing_written_bytes_s) {
            (Some(read), Some(written)) => format!("{} + {} MB/s", words::number(read.median / 1e6), words::number(written.median / 1e6)),
            _ => String::new(),
        };
        vec![
            Cell::of(arm.title.clone()).strong(),
            Cell::of(median(arm.cpu.as_ref().map(|cpu| &cpu.hearth_us), &words::microseconds)),
            Cell::of(median(arm.cpu.as_ref().map(|cpu| &cpu.machine_us), &words::microseconds)),
            Cell::of(median(traffic.ssd_written_bytes_s.as_ref(), &a_second)),
            Cell::of(median(traffic.ssd_per_host_written.as_ref(), &words::number)),
            Cell::of(median(traffic.ssd_full_writes_a_day.as_ref(), &words::number)),
            Cell::of(both),
            Cell::of(median(traffic.backing_per_host.as_ref(), &words::number)),
        ]
    });
    Some(Table {
        caption: "What it costs: processors, the SSD's wear, the backing device (medians of the rounds)".into(),
        rows: rows.collect(),
        columns,
    })
}

/// The rate of every round, so that nothing hides behind a median.
fn rounds(case: &CaseSummary) -> Option<Table> {
    let (unit, size) = words::rate_unit(&case.counted);
    let mut columns = vec![Column::words("", 1.6)];
    columns.extend((1..=case.rounds).map(|round| Column::numbers(&format!("round {round}"), 1.0)));
    let rows: Vec<Vec<Cell>> = case
        .arms
        .iter()
        .filter_map(|arm| {
            let spread = arm.figures.get("rate")?;
            let mut row = vec![Cell::of(arm.title.clone())];
            row.extend((1..=case.rounds).map(|round| match spread.by_round.get(&round) {
                Some(rate) => Cell::of(words::number(rate / size)),
                None => Cell::toned("not measured", Tone::Quiet),
            }));
            Some(row)
        })
        .collect();
    // A dozen columns are all that a page has room for.
    (case.rounds > 1 && case.rounds <= 12 && !rows.is_empty()).then(|| Table { caption: format!("Every round: {unit}"), columns, rows })
}

/// Where the measured part begins, and what the legs say; each sentence once.
fn notes(case: &CaseSummary) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    let mut add = |note: String| {
        if !notes.contains(&note) {
            notes.push(note);
        }
    };
    let mut cuts: Vec<(String, String, f64, f64)> = Vec::new();
    for arm in &case.arms {
        for (_, cut_s, why) in &arm.cuts {
            // The points of a curve are told together.
            let name = if arm.point.is_some() { "all points".to_string() } else { arm.title.clone() };
            match cuts.iter_mut().find(|(other, other_why, ..)| *other == name && other_why == why) {
                Some((_, _, from, to)) => (*from, *to) = (from.min(*cut_s), to.max(*cut_s)),
                None => cuts.push((name, why.clone(), *cut_s, *cut_s)),
            }
        }
    }
    for (name, why, from, to) in cuts {
        let at = if (to - from).abs() < 0.5 { format!("{from:.0} s") } else { format!("{from:.0} to {to:.0} s (by round)") };
        let because = if why.is_empty() { String::new() } else { format!(": {why}") };
        add(format!("Warm-up, {name}: measured from {at} on{because}."));
    }
    for arm in &case.arms {
        for note in &arm.notes {
            let note = note.trim_end_matches('.');
            add(format!("{}: {note}.", if arm.point.is_some() { "points of curves" } else { &arm.title }));
        }
    }
    notes
}

/// The commands of one leg of each arm: the last round that was run.
fn commands(case: &CaseSummary, legs: &[Leg]) -> Vec<Block> {
    let of_arm = |arm: &ArmSummary| {
        let leg = legs_of(legs, &case.id, &arm.id).filter(|leg| !leg.commands.is_empty()).max_by_key(|leg| leg.round)?;
        Some(Block::Commands {
            title: format!("To repeat by hand: {}, {}, round {}", case.id, arm.title, leg.round),
            lines: leg.commands.clone(),
        })
    };
    case.arms.iter().filter_map(of_arm).collect()
}

fn cost_page(summary: &Summary) -> Page {
    let blocks = match &summary.cost {
        Cost::Missing { why } => vec![Block::Words(format!("There is no cost table: {why}."))],
        Cost::Table(table) => cost_blocks(table),
    };
    Page { id: "cost".into(), title: "What it costs".into(), blocks }
}

fn cost_blocks(table: &CostTable) -> Vec<Block> {
    let currency = &table.prices.currency;
    let money = |amount: f64| format!("{currency} {}", words::number(amount));
    let maybe = |amount: Option<f64>| amount.map_or(String::new(), money);
    let columns = vec![
        Column::words("Case", 2.2),
        Column::words("", 1.2),
        Column::numbers("tpmC", 1.0),
        Column::numbers("Whole system", 1.2),
        Column::numbers(&format!("{currency} per tpmC"), 1.0),
        Column::numbers("Added", 1.0),
        Column::numbers("Gain", 0.9),
        Column::numbers(&format!("{currency} per gain"), 1.0),
        Column::numbers(&format!("{currency} per tpmC more"), 1.1),
    ];
    let rows = table.rows.iter().map(|row| {
        vec![
            Cell::of(format!("{} ({})", row.case_title, words::backing(row.model_set.as_deref()))),
            Cell::of(row.arm.clone()).strong(),
            Cell::of(words::number(row.tpmc.median)),
            Cell::of(money(row.total)),
            Cell::of(money(row.per_tpmc)).strong(),
            Cell::of(maybe(row.added)),
            Cell::of(row.gain.map_or(String::new(), words::times)),
            Cell::of(maybe(row.per_gain)).strong(),
            Cell::of(maybe(row.per_added_tpmc)),
        ]
    });
    vec![
        Block::Words(format!(
            "As in VeloBit's report, with your prices. The whole system is what is bought and its power for {} years at {currency} {} a kilowatt hour; per tpmC it is \
             divided by the median of the transactions a minute. What is added is the SSD, memory, software and their power; per gain it is divided by \
             the gain, per tpmC more by the transactions that came with it.",
            words::number(table.prices.years),
            words::number(table.prices.kilowatt_hour)
        )),
        Block::Table(Table { caption: "Prices of a transaction a minute and of a gain".into(), columns, rows: rows.collect() }),
        Block::Words("The transactions a minute are those of this scaled test, not of an audited TPC-C: compare the rows with each other, and with nothing else.".into()),
    ]
}

fn missing_page(summary: &Summary) -> Page {
    Page { id: "not-measured".into(), title: "Not measured".into(), blocks: vec![missing(summary)] }
}

fn missing(summary: &Summary) -> Block {
    if summary.not_measured.is_empty() {
        return Block::Words("Everything that was planned has been measured, and every headline is in the plan.".into());
    }
    Block::List(summary.not_measured.iter().map(|not| format!("{}: {}.", not.what, not.why.trim_end_matches('.'))).collect())
}

fn method_page() -> Page {
    let said = [
        "A round runs all arms of a case right after each other, the baseline first; the next round begins with the baseline again. What disturbs the machine for \
         long disturbs all arms of a round, so arms are compared within their round (a pair), never with other rounds.",
        "Of each leg the warm-up is cut; where, and why there, stands with its figures. The rate is the mean of what is left. No leg and no second of what is \
         left is dropped.",
        "A gain is the figure with the cache by the figure without, the other way round for times: above one is better. Gains multiply, so they are calculated by \
         their logarithms: the mean is the geometric one, and the 95 % interval is Student's t for the mean of the logarithms of n pairs (n - 1 degrees \
         of freedom). It is right for logarithms that are normally distributed, and with few pairs it is wide, as it has to be.",
        "A gain is called better or worse where its interval does not hold 1, and no significant difference where it does. Where there is none, such an interval \
         holds 1 nineteen times out of twenty. One pair says nothing about how much runs differ by themselves, and nothing is claimed from it.",
        "A published gain is beaten where the whole interval lies at or above it, and not reached where the whole interval lies below; in between more pairs would \
         tell. Of a published range the upper end is to be beaten. Times and shares are compared with the published figure by the same intervals, from all \
         rounds; shares by their differences. The published figures come without an interval and are taken as they are.",
        "This report has many figures. Of twenty comparisons without a difference, one will seem to have one: run a case again if its verdict is surprising.",
        "Spreads in brackets go from the smallest to the largest round. Bands in charts do the same.",
    ];
    Page {
        id: "method".into(),
        title: "How it was calculated".into(),
        blocks: said.iter().map(|words| Block::Words((*words).into())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::summary::summarize;
    use crate::result::Ceiling;
    use crate::synthetic::{Truth, one_case};

    #[test]
    fn what_no_cache_can_pass_is_told_once_it_has_been_run() {
        let (mut evaluation, legs) = one_case(&Truth { headline: "tpcc.pcie", gain: 9.0, noise: 0.0, ..Truth::default() }, 1);
        assert_eq!(ceiling(&summarize(&evaluation, &legs, None).cases[0]), None);
        evaluation.cases[0].ceiling = Some(Ceiling { arm: "wb".into(), in_memory: false });
        let told = ceiling(&summarize(&evaluation, &legs, None).cases[0]).expect("has been run");
        assert!(told.contains("runs at 9.00 times the rate"), "{told}");
        assert_eq!(ceiling(&summarize(&evaluation, &[], None).cases[0]), None);
    }
}
