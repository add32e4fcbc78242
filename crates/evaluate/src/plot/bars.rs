//! Bars side by side: one value each, with the range in which its rounds lie. From zero on, or the lengths would lie.

use super::ruler::{Ruler, short};
use super::{Mark, Picture, Role, Scale, WIDTH};

/// One bar.
#[derive(Clone, PartialEq, Debug)]
pub struct Bar {
    /// To its left.
    pub name: String,
    /// Its length; zero or more.
    pub value: f64,
    /// Smallest and largest of what the value is the middle of.
    pub range: (f64, f64),
    /// Written at its end.
    pub text: String,
    /// Its colour: as in [`STROKES`](super::STROKES).
    pub stroke: usize,
}

/// See the module.
#[derive(Clone, PartialEq, Debug)]
pub struct Bars {
    /// What it shows, for those who cannot see it too.
    pub title: String,
    /// What the length is, with the unit.
    pub label: String,
    /// From top to bottom.
    pub bars: Vec<Bar>,
}

/// Of a bar with the room between two.
const ROW: f64 = 26.0;
const THICK: f64 = 16.0;
const TOP: f64 = 28.0;
const BELOW: f64 = 44.0;
/// At the right, for the longest text that stands at a bar's end.
const TEXT: f64 = 96.0;
/// Names are given room up to here; longer ones are shortened.
const NAME_LETTERS: usize = 30;

impl Bars {
    /// The picture.
    pub fn picture(&self) -> Picture {
        let longest = self.bars.iter().map(|bar| bar.name.chars().count().min(NAME_LETTERS)).max().unwrap_or(0);
        let left = (24.0 + super::LETTER * longest as f64).max(64.0);
        let low = TOP + ROW * self.bars.len() as f64;
        let mut picture = Picture { title: self.title.clone(), width: WIDTH, height: low + BELOW, marks: Vec::new() };
        let longs = self.bars.iter().flat_map(|bar| [bar.value, bar.range.1]).chain([0.0]);
        let x = Ruler::new(Scale::Linear, longs, (left, WIDTH - TEXT));
        picture.text(16.0, 16.0, Role::Title, &self.title);
        for tick in x.ticks() {
            let Some(place) = x.at(tick) else { continue };
            picture.marks.push(Mark::Upright { x: place, from: TOP, to: low });
            picture.text(place, low + 16.0, Role::BelowTick, &short(tick));
        }
        picture.text((left + WIDTH - TEXT) / 2.0, low + 34.0, Role::Below, &self.label);
        for (nth, bar) in self.bars.iter().enumerate() {
            let middle = TOP + ROW * (nth as f64 + 0.5);
            picture.text(left - 8.0, middle + 4.0, Role::BesideTick, &shortened(&bar.name));
            let Some(end) = x.at(bar.value) else { continue };
            picture.marks.push(Mark::Bar {
                x: left,
                y: middle - THICK / 2.0,
                width: (end - left).max(0.0),
                height: THICK,
                stroke: bar.stroke,
            });
            let mut text_from = end;
            if let (Some(from), Some(to)) = (x.at(bar.range.0), x.at(bar.range.1)) {
                picture.marks.push(Mark::Range { y: middle, from, to });
                text_from = text_from.max(to);
            }
            picture.text(text_from + 8.0, middle + 4.0, Role::Legend, &bar.text);
        }
        picture
    }
}

fn shortened(name: &str) -> String {
    if name.chars().count() <= NAME_LETTERS { name.into() } else { name.chars().take(NAME_LETTERS - 1).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use super::super::tests::golden;
    use super::*;

    fn bar(name: &str, value: f64, spread: f64, stroke: usize) -> Bar {
        Bar { name: name.into(), value, range: (value - spread, value + spread), text: short(value), stroke }
    }

    #[test]
    fn rates_by_arm() {
        let bars = vec![
            bar("no cache", 158.0, 6.0, 0),
            bar("write-through", 402.0, 30.0, 1),
            bar("write-back & a long name that does not end", 1103.0, 88.0, 2),
        ];
        golden("bars.svg", &Bars { title: "Queries a second".into(), label: "queries a second".into(), bars }.picture().svg("d"));
    }

    #[test]
    fn none_and_nonsense_are_drawn_as_frames() {
        for bars in [vec![], vec![bar("x", f64::NAN, 1.0, 0)], vec![bar("y", 0.0, 0.0, 9)]] {
            let svg = Bars { title: String::new(), label: String::new(), bars }.picture().svg("e");
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}
