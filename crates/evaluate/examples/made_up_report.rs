//! Writes an evaluation of all suites with made-up figures and its report into a directory that is not there yet, to see what reports look like:
//! `cargo run -p evaluate --example made_up_report -- DIRECTORY [SEED]`.

#[path = "../tests/synthetic/mod.rs"]
mod synthetic;

use evaluate::report::{self, FORMATS, Prices, prices};
use evaluate::store::Store;
use evaluate::trouble::Trouble;
use std::path::Path;

fn main() -> Result<(), Trouble> {
    let place = std::env::args().nth(1).ok_or_else(|| Trouble::Usage("name a directory".into()))?;
    let seed = std::env::args().nth(2).and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let (evaluation, legs) = synthetic::whole(seed);
    let store = Store::create(Path::new(&place), &evaluation)?;
    for leg in &legs {
        store.put(leg)?;
    }
    let prices = Prices::parse(prices::EXAMPLE).map_err(Trouble::Failed)?;
    for path in report::write(store.place(), &FORMATS, Some(&prices))? {
        println!("{}", path.display());
    }
    print!("{}", report::text(&report::summary(store.place(), Some(&prices))?));
    Ok(())
}
