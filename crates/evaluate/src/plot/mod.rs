//! Charts: lines over linear or logarithmic axes, with bands for what is uncertain, and bars. A chart becomes a [`Picture`], a list of marks
//! on a sheet; what writes a picture knows nothing of charts: here as SVG, elsewhere as a page of PDF.

mod bars;
mod picture;
mod ruler;
mod svg;

pub use bars::{Bar, Bars};
pub use picture::{Mark, Picture, Role, STROKES, Stroke};
pub use ruler::short;

use ruler::Ruler;

/// How a quantity lies along its axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// Equal steps are equal lengths; from zero on, unless something lies below.
    Linear,
    /// Equal factors are equal lengths. Values must be above zero; others are left out.
    Log,
}

/// An axis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Axis {
    /// What it is of, with the unit.
    pub label: String,
    /// How it is laid out.
    pub scale: Scale,
}

/// One line.
#[derive(Clone, PartialEq, Debug)]
pub struct Line {
    /// Its name in the legend.
    pub name: String,
    /// Where it goes; a point without a value breaks it.
    pub points: Vec<(f64, Option<f64>)>,
    /// For each x the bounds of what is uncertain; may be empty.
    pub band: Vec<(f64, f64, f64)>,
}

/// A chart.
#[derive(Clone, PartialEq, Debug)]
pub struct Chart {
    /// What it shows, for those who cannot see it too.
    pub title: String,
    /// To the right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// What is drawn.
    pub lines: Vec<Line>,
}

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 320.0;
/// Room for the labels: left, top, right, bottom.
const MARGINS: (f64, f64, f64, f64) = (64.0, 28.0, 16.0, 64.0);
/// Below the frame, each further row of the legend.
const LEGEND_ROW: f64 = 18.0;
/// Text is as wide as it is; this is enough for the letters of most fonts.
const LETTER: f64 = 7.0;

impl Chart {
    /// The picture as SVG. `id` makes its inner names unique in a page.
    pub fn svg(&self, id: &str) -> String {
        self.picture().svg(id)
    }

    /// The picture.
    pub fn picture(&self) -> Picture {
        let (left, top, right, bottom) = MARGINS;
        let xs = self.lines.iter().flat_map(|line| line.points.iter().map(|point| point.0));
        let ys = self
            .lines
            .iter()
            .flat_map(|line| line.points.iter().filter_map(|point| point.1).chain(line.band.iter().flat_map(|b| [b.1, b.2])));
        let x = Ruler::new(self.x.scale, xs, (left, WIDTH - right));
        let y = Ruler::new(self.y.scale, ys, (HEIGHT - bottom, top));
        let mut picture = Picture { title: self.title.clone(), width: WIDTH, height: HEIGHT, marks: Vec::new() };
        self.frame(&mut picture, &x, &y);
        for (nth, line) in self.lines.iter().enumerate() {
            draw(&mut picture, line, nth, &x, &y);
        }
        self.legend(&mut picture);
        picture
    }

    fn frame(&self, picture: &mut Picture, x: &Ruler, y: &Ruler) {
        let (left, top, right, bottom) = MARGINS;
        picture.text(left, 16.0, Role::Title, &self.title);
        for tick in x.ticks() {
            let Some(place) = x.at(tick) else { continue };
            picture.marks.push(Mark::Upright { x: place, from: top, to: HEIGHT - bottom });
            picture.text(place, HEIGHT - bottom + 16.0, Role::BelowTick, &short(tick));
        }
        for tick in y.ticks() {
            let Some(place) = y.at(tick) else { continue };
            picture.marks.push(Mark::Level { y: place, from: left, to: WIDTH - right });
            picture.text(left - 6.0, place + 4.0, Role::BesideTick, &short(tick));
        }
        picture.text((left + WIDTH - right) / 2.0, HEIGHT - bottom + 34.0, Role::Below, &self.x.label);
        picture.text(14.0, (top + HEIGHT - bottom) / 2.0, Role::Beside, &self.y.label);
    }

    fn legend(&self, picture: &mut Picture) {
        let mut at = MARGINS.0;
        let mut low = HEIGHT - 10.0;
        for (stroke, line) in self.lines.iter().enumerate() {
            let width = 28.0 + LETTER * line.name.chars().count() as f64;
            if at > MARGINS.0 && at + width > WIDTH {
                (at, low) = (MARGINS.0, low + LEGEND_ROW);
                picture.height += LEGEND_ROW;
            }
            picture.marks.push(Mark::Key { x: at, y: low - 4.0, to: at + 22.0, stroke });
            picture.text(at + 28.0, low, Role::Legend, &line.name);
            at += width + 18.0;
        }
    }
}

fn draw(picture: &mut Picture, line: &Line, stroke: usize, x: &Ruler, y: &Ruler) {
    let place = |(across, up): (f64, f64)| Some((x.at(across)?, y.at(up)?));
    let upper = line.band.iter().filter_map(|band| place((band.0, band.2)));
    let lower = line.band.iter().rev().filter_map(|band| place((band.0, band.1)));
    let outline: Vec<(f64, f64)> = upper.chain(lower).collect();
    if !outline.is_empty() {
        picture.marks.push(Mark::Area { outline, stroke });
    }
    let mut pieces: Vec<Vec<(f64, f64)>> = Vec::new();
    let mut pen_is_down = false;
    for point in &line.points {
        let placed = point.1.and_then(|up| place((point.0, up)));
        match (placed, pen_is_down) {
            (Some(placed), true) => pieces.last_mut().expect("the pen is down").push(placed),
            (Some(placed), false) => pieces.push(vec![placed]),
            (None, _) => {}
        }
        pen_is_down = placed.is_some();
    }
    if !pieces.is_empty() {
        picture.marks.push(Mark::Line { pieces, stroke });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    pub(super) fn golden(name: &str, svg: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
        if std::env::var_os("HEARTH_UPDATE").is_some_and(|value| value == "1") {
            std::fs::write(&path, svg).expect("the repository can be written");
        }
        let known = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(known == svg, "{name} is not what the code draws (HEARTH_UPDATE=1 writes it anew)");
    }

    fn axis(label: &str, scale: Scale) -> Axis {
        Axis { label: label.into(), scale }
    }

    #[test]
    fn a_warm_up_over_time() {
        let points =
            |settled: f64| (0..=60).map(|s| (f64::from(s), (s != 30).then(|| settled * (1.0 - (-f64::from(s) / 12.0).exp())))).collect();
        let band = (0..=6).map(|nth| (f64::from(nth) * 10.0, 90.0, 110.0)).collect();
        let lines = vec![
            Line { name: "baseline".into(), points: vec![(0.0, Some(100.0)), (60.0, Some(104.0))], band },
            Line { name: "cached & \"warm\" <3".into(), points: points(812.0), band: Vec::new() },
        ];
        let chart = Chart {
            title: "Requests over time".into(),
            x: axis("seconds", Scale::Linear),
            y: axis("requests a second", Scale::Linear),
            lines,
        };
        golden("warm-up.svg", &chart.svg("a"));
    }

    #[test]
    fn latency_by_queue_depth_on_logarithmic_axes() {
        let points = |times: f64| (0..=8).map(|power| (2f64.powi(power), Some(times * 80.0 * 1.6f64.powi(power)))).collect();
        let lines = vec![
            Line { name: "100 % hits".into(), points: points(1.0), band: Vec::new() },
            Line { name: "no cache".into(), points: points(97.0), band: Vec::new() },
        ];
        let chart = Chart { title: "Latency by queue depth".into(), x: axis("queue depth", Scale::Log), y: axis("µs", Scale::Log), lines };
        golden("depth.svg", &chart.svg("b"));
    }

    #[test]
    fn nothing_and_nonsense_are_drawn_as_empty_frames() {
        for scale in [Scale::Linear, Scale::Log] {
            for points in [
                vec![],
                vec![(1.0, None)],
                vec![(f64::NAN, Some(1.0)), (0.0, Some(f64::INFINITY)), (-1.0, Some(-2.0))],
                vec![(0.0, Some(0.0))],
            ] {
                let line = Line { name: "x".into(), points, band: vec![(1.0, f64::NAN, 2.0)] };
                let chart = Chart { title: String::new(), x: axis("", scale), y: axis("", scale), lines: vec![line] };
                let svg = chart.svg("c");
                assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            }
        }
    }
}
