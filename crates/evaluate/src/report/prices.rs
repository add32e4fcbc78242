//! What a transaction a minute costs, and what a gain costs: the cost table of VeloBit's report, with the prices of who asks.

use super::arms::{self, ArmSummary};
use super::summary::{CaseSummary, Spread, figure_of, legs_of};
use crate::pairs::Better;
use crate::result::Leg;
use crate::trouble::Trouble;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// A file of prices to begin with.
pub const EXAMPLE: &str = include_str!("prices.toml");

/// Hours of a year, over which power is paid.
const YEAR_H: f64 = 8766.0;

/// What a user pays; see [`EXAMPLE`] for what each is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// Before every amount.
    pub currency: String,
    /// For which power is paid.
    pub years: f64,
    /// Of a kilowatt hour.
    #[serde(default)]
    pub kilowatt_hour: f64,
    /// What is there without hearth.
    pub baseline: Baseline,
    /// What hearth adds.
    pub cache: Added,
    /// In single cases, by name, in place of `cache`.
    #[serde(default)]
    pub cases: BTreeMap<String, Added>,
}

/// See [`Prices::baseline`].
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    /// The machine.
    pub host: f64,
    /// The backing storage.
    pub disk: f64,
    /// Licences and support.
    #[serde(default)]
    pub software: f64,
    /// What all of it draws, in watts.
    #[serde(default)]
    pub watts: f64,
}

/// See [`Prices::cache`].
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Added {
    /// The SSD.
    pub ssd: f64,
    /// Memory for the RAM tier and the index.
    #[serde(default)]
    pub ram: f64,
    /// Licences and support.
    #[serde(default)]
    pub software: f64,
    /// What is drawn in addition, in watts.
    #[serde(default)]
    pub watts: f64,
}

/// The cost table, or what it lacks.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum Cost {
    /// There is none.
    Missing {
        /// What it would need: a sentence.
        why: String,
    },
    /// There is one.
    Table(CostTable),
}

/// See the module.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CostTable {
    /// As they were given.
    pub prices: Prices,
    /// The baseline and the cached arms of each case.
    pub rows: Vec<CostRow>,
}

/// One way to run a case.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CostRow {
    /// The case.
    pub case: String,
    /// Its title.
    pub case_title: String,
    /// Its model set, if there is one.
    pub model_set: Option<String>,
    /// The arm's title.
    pub arm: String,
    /// Transactions a minute.
    pub tpmc: Spread,
    /// All of it: bought, and power for the years.
    pub total: f64,
    /// By transactions a minute.
    pub per_tpmc: f64,
    /// What hearth adds, if it is there.
    pub added: Option<f64>,
    /// The gain (geometric mean).
    pub gain: Option<f64>,
    /// What is added, by the gain.
    pub per_gain: Option<f64>,
    /// What is added, by the transactions a minute that come with it; none if there are not more of them.
    pub per_added_tpmc: Option<f64>,
}

impl Prices {
    /// From a file.
    ///
    /// # Errors
    /// If it cannot be read, or a price is missing, misspelt or below zero.
    pub fn read(path: &Path) -> Result<Prices, Trouble> {
        let text = std::fs::read_to_string(path).map_err(|error| Trouble::io("read", path, &error))?;
        Prices::parse(&text).map_err(|why| Trouble::Usage(format!("{}: {why}", path.display())))
    }

    /// From such a file's text.
    ///
    /// # Errors
    /// As [`Prices::read`], in one line.
    pub fn parse(text: &str) -> Result<Prices, String> {
        let prices: Prices = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(String::new(), |span| format!("line {}: ", text[..span.start].matches('\n').count() + 1));
            format!("{line}{}; `hearth evaluate prices` prints a file to begin with", error.message().replace('\n', " "))
        })?;
        let added = |added: &Added| [added.ssd, added.ram, added.software, added.watts];
        let Baseline { host, disk, software, watts } = prices.baseline;
        let all = [prices.years, prices.kilowatt_hour, host, disk, software, watts];
        let all = all.into_iter().chain(added(&prices.cache)).chain(prices.cases.values().flat_map(added));
        if all.into_iter().any(|price| !price.is_finite() || price < 0.0) {
            return Err("a price is below zero or not a number; write 0 for what costs nothing".into());
        }
        Ok(prices)
    }

    fn power(&self, watts: f64) -> f64 {
        watts / 1000.0 * YEAR_H * self.years * self.kilowatt_hour
    }

    fn baseline_cost(&self) -> f64 {
        self.baseline.host + self.baseline.disk + self.baseline.software + self.power(self.baseline.watts)
    }

    fn added_cost(&self, case: &str) -> f64 {
        let added = self.cases.get(case).unwrap_or(&self.cache);
        added.ssd + added.ram + added.software + self.power(added.watts)
    }
}

/// Transactions a minute of a leg: the figure `tpmc`, or the rate where transactions are counted.
fn tpmc_of(leg: &Leg, counted: &str) -> Option<f64> {
    figure_of(leg, "tpmc").or_else(|| (counted == "transactions").then(|| figure_of(leg, "rate"))?.map(|rate| rate * 60.0))
}

/// The table, for the cases of the suite `tpcc`.
pub fn cost(cases: &[CaseSummary], legs: &[Leg], prices: Option<&Prices>) -> Cost {
    let missing = |why: &str| Cost::Missing { why: why.into() };
    let rows_of =
        |prices: &Prices| cases.iter().filter(|case| case.suite == "tpcc").flat_map(|case| rows(case, legs, prices)).collect::<Vec<_>>();
    match prices {
        None => missing("no prices were given: `--prices FILE` takes them, `hearth evaluate prices` prints a file to begin with"),
        Some(prices) => match rows_of(prices) {
            rows if rows.is_empty() => missing("the suite tpcc has no result here, and the table is about its transactions a minute"),
            rows => Cost::Table(CostTable { prices: prices.clone(), rows }),
        },
    }
}

fn rows(case: &CaseSummary, legs: &[Leg], prices: &Prices) -> Vec<CostRow> {
    let tpmc = |arm: &str| Spread::of(legs_of(legs, &case.id, arm).filter_map(|leg| Some((leg.round, tpmc_of(leg, &case.counted)?))));
    let Some(first) = case.arms.first() else { return Vec::new() };
    let baseline = tpmc(&first.id);
    let mut rows = Vec::new();
    // Without a disk there is nothing to be bought for the data.
    let is_ceiling = |arm: &&ArmSummary| case.ceiling.as_ref().is_some_and(|ceiling| ceiling.arm == arm.id);
    for arm in case.arms.iter().filter(|arm| !is_ceiling(arm)) {
        let Some(tpmc) = tpmc(&arm.id).filter(|tpmc| tpmc.median > 0.0) else { continue };
        let added = arm.cached.then(|| prices.added_cost(&case.id));
        let total = prices.baseline_cost() + added.unwrap_or(0.0);
        let figure = if arm.figures.contains_key("tpmc") { "tpmc" } else { "rate" };
        let gain = added.and_then(|_| arms::gain(legs, &case.id, &first.id, &arm.id, figure, Better::Higher).found).map(|found| found.mean);
        let more = baseline.as_ref().map(|baseline| tpmc.median - baseline.median).filter(|more| *more > 0.0);
        rows.push(CostRow {
            case: case.id.clone(),
            case_title: case.title.clone(),
            model_set: case.model_set.clone(),
            arm: arm.title.clone(),
            per_tpmc: total / tpmc.median,
            total,
            added,
            per_gain: added.zip(gain).map(|(added, gain)| added / gain),
            per_added_tpmc: added.zip(more).map(|(added, more)| added / more),
            gain,
            tpmc,
        });
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_a_file_of_prices() {
        let prices = Prices::parse(EXAMPLE).expect("reads");
        assert!(prices.baseline_cost() > 0.0 && prices.added_cost("tpcc.pcie") > 0.0);
        // 100 W for two years at 0.25: 100 / 1000 × 8766 × 2 × 0.25.
        let prices = Prices { years: 2.0, kilowatt_hour: 0.25, ..prices };
        assert!((prices.power(100.0) - 438.3).abs() < 1e-9);
    }

    #[test]
    fn what_is_wrong_with_prices_is_told_in_one_line() {
        for (text, words) in [
            ("currency = 1", "line 1: invalid type"),
            ("currency = \"$\"\nyears = 3\n[baseline]\nhost = 1\ndisk = 2\n[cache]\nsdd = 3", "line 7: unknown field"),
            ("currency = \"$\"\nyears = 3\n[baseline]\nhost = -1\ndisk = 2\n[cache]\nssd = 3", "below zero"),
        ] {
            let told = Prices::parse(text).expect_err("is refused");
            assert!(told.contains(words) && !told.contains('\n'), "{told}");
        }
    }
}
