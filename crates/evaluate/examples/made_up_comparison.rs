//! Compares the evaluations in two directories and writes the page to a third place: `cargo run -p evaluate --example made_up_comparison -- A B PAGE.html`.

use evaluate::report;
use evaluate::trouble::Trouble;
use std::path::Path;

fn main() -> Result<(), Trouble> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [a, b, page] = words.as_slice() else { return Err(Trouble::Usage("name two directories and a page".into())) };
    let comparison = report::compare(Path::new(a), Path::new(b))?;
    evaluate::store::write_whole(Path::new(page), comparison.html().as_bytes())?;
    print!("{}", comparison.text());
    Ok(())
}
