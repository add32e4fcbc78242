//! From results to a report: [`summary`] makes numbers and words of legs, [`pages`] lays them out as a [`document`], and [`html`], [`pdf`] and [`text`]
//! write that. [`compare`] does the same for two evaluations. All of it is a function of what the directory holds: the same legs give the same report.

pub mod arms;
mod charts;
pub mod compare;
pub mod document;
pub mod headlines;
mod html;
mod pages;
mod pdf;
pub mod prices;
pub mod summary;
mod text;
mod then;
mod words;

pub use prices::Prices;
pub use summary::Summary;

use crate::store::{Store, write_whole};
use crate::trouble::Trouble;
use document::{Block, Document};
use std::path::{Path, PathBuf};

/// How a report is written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Format {
    /// `report.html`, and its charts as files in `svg/`.
    Html,
    /// `report.pdf`.
    Pdf,
    /// `report.json`: the [`Summary`].
    Json,
}

/// What `hearth evaluate report` writes if nothing is said.
pub const FORMATS: [Format; 3] = [Format::Html, Format::Pdf, Format::Json];

/// What the directory of an evaluation says.
///
/// # Errors
/// If there is no evaluation in it.
pub fn summary(place: &Path, prices: Option<&Prices>) -> Result<Summary, Trouble> {
    Ok(Summary::of(&Store::open(place)?.read()?, prices))
}

/// Writes the report of an evaluation into its directory, and gives the files that were written.
///
/// # Errors
/// If there is no evaluation in it, or a file cannot be written.
pub fn write(place: &Path, formats: &[Format], prices: Option<&Prices>) -> Result<Vec<PathBuf>, Trouble> {
    let kept = Store::open(place)?.read()?;
    let summary = Summary::of(&kept, prices);
    let document = pages::document(&summary, &kept.legs);
    let mut written = Vec::new();
    for format in formats {
        match format {
            Format::Html => {
                written.push(put(place.join("report.html"), html::write(&document).as_bytes())?);
                written.extend(write_pictures(&place.join("svg"), &document)?);
            }
            Format::Pdf => written.push(put(place.join("report.pdf"), &pdf::write(&document))?),
            Format::Json => written.push(put(place.join("report.json"), json_of(&summary)?.as_bytes())?),
        }
    }
    Ok(written)
}

/// The summary for a terminal: at most 100 columns.
pub fn text(summary: &Summary) -> String {
    text::write(&pages::short(summary))
}

/// Two evaluations side by side, of two directories: what differs, and by how much. `a` is what `b` is compared with.
///
/// # Errors
/// If one of them holds no evaluation.
pub fn compare(a: &Path, b: &Path) -> Result<compare::Comparison, Trouble> {
    Ok(compare::compare((&a.display().to_string(), &summary(a, None)?), (&b.display().to_string(), &summary(b, None)?)))
}

fn write_pictures(place: &Path, document: &Document) -> Result<Vec<PathBuf>, Trouble> {
    std::fs::create_dir_all(place).map_err(|error| Trouble::io("make the directory", place, &error))?;
    let pictures = document.pages.iter().flat_map(|page| &page.blocks).filter_map(|block| match block {
        Block::Pictures(pictures) => Some(pictures),
        _ => None,
    });
    pictures.flatten().map(|named| put(place.join(format!("{}.svg", named.name)), named.picture.svg_alone().as_bytes())).collect()
}

fn put(path: PathBuf, bytes: &[u8]) -> Result<PathBuf, Trouble> {
    write_whole(&path, bytes)?;
    Ok(path)
}

fn json_of<T: serde::Serialize>(value: &T) -> Result<String, Trouble> {
    serde_json::to_string_pretty(value)
        .map(|text| text + "\n")
        .map_err(|error| Trouble::Failed(format!("cannot be written as JSON: {error}")))
}
