//! Charts as SVG: lines over linear or logarithmic axes, with bands for what is uncertain. Text and nothing else: no scripts, no fonts, no outside
//! addresses; the page's colours (`currentColor`), so that one picture serves light and dark.

use std::fmt::Write;

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
/// Colours that are told apart by nearly everybody (Okabe and Ito 2008), with dashes for those who see none.
const STROKES: [(&str, &str); 6] =
    [("#0072b2", ""), ("#d55e00", "6 3"), ("#009e73", "2 3"), ("#cc79a7", "8 3 2 3"), ("#e69f00", "12 4"), ("#56b4e9", "1 4")];

/// One side of the picture: from values to places.
struct Ruler {
    scale: Scale,
    from: f64,
    to: f64,
    /// Places of the two ends.
    place: (f64, f64),
}

impl Ruler {
    fn new(scale: Scale, values: impl Iterator<Item = f64>, place: (f64, f64)) -> Ruler {
        let usable = |value: &f64| value.is_finite() && (scale == Scale::Linear || *value > 0.0);
        let (mut low, mut high) = values.filter(usable).fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        if low > high {
            (low, high) = (1.0, 10.0);
        }
        let (from, to) = match scale {
            Scale::Linear => {
                let step = step_for((high - low.min(0.0)).max(f64::MIN_POSITIVE));
                ((low.min(0.0) / step).floor() * step, ((high / step).ceil() * step).max(step))
            }
            Scale::Log => {
                (10f64.powf(low.log10().floor()), 10f64.powf((high.log10() + 1e-9).ceil()).max(10f64.powf(low.log10().floor() + 1.0)))
            }
        };
        Ruler { scale, from, to, place }
    }

    fn at(&self, value: f64) -> Option<f64> {
        let part = match self.scale {
            Scale::Linear => (value - self.from) / (self.to - self.from),
            Scale::Log if value > 0.0 => (value / self.from).ln() / (self.to / self.from).ln(),
            Scale::Log => return None,
        };
        part.is_finite().then_some(self.place.0 + part * (self.place.1 - self.place.0))
    }

    fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear => {
                let step = step_for(self.to - self.from);
                (0..=((self.to - self.from) / step).round() as u32).map(|nth| self.from + f64::from(nth) * step).collect()
            }
            Scale::Log => {
                let decades = (self.to / self.from).log10().round() as i32;
                let first = self.from.log10().round() as i32;
                (0..=decades).map(|nth| 10f64.powi(first + nth)).collect()
            }
        }
    }
}

/// A step of 1, 2 or 5 times a power of ten that cuts a length into four to ten parts.
fn step_for(length: f64) -> f64 {
    let power = 10f64.powf((length / 4.0).log10().floor());
    [5.0, 2.0, 1.0].into_iter().map(|times| times * power).find(|step| length / step >= 4.0 - 1e-9).unwrap_or(power)
}

/// A number short enough for an axis: 950, 12k, 3.5M, 0.02.
fn short(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        v if v >= 1e9 => (value / 1e9, "G"),
        v if v >= 1e6 => (value / 1e6, "M"),
        v if v >= 1e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = if scaled.abs() >= 100.0 || scaled == 0.0 { 0 } else { (2 - scaled.abs().log10().floor() as i32).clamp(0, 6) as usize };
    let text = format!("{scaled:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

impl Chart {
    /// The picture. `id` makes its inner names unique in a page.
    pub fn svg(&self, id: &str) -> String {
        let (left, top, right, bottom) = MARGINS;
        let xs = self.lines.iter().flat_map(|line| line.points.iter().map(|point| point.0));
        let ys = self
            .lines
            .iter()
            .flat_map(|line| line.points.iter().filter_map(|point| point.1).chain(line.band.iter().flat_map(|b| [b.1, b.2])));
        let x = Ruler::new(self.x.scale, xs, (left, WIDTH - right));
        let y = Ruler::new(self.y.scale, ys, (HEIGHT - bottom, top));
        let mut svg = String::new();
        self.frame(&mut svg, id, &x, &y);
        for (line, (colour, dash)) in self.lines.iter().zip(STROKES.iter().cycle()) {
            draw(&mut svg, line, (colour, dash), &x, &y);
        }
        self.legend(&mut svg);
        svg.push_str("</svg>\n");
        svg
    }

    fn frame(&self, svg: &mut String, id: &str, x: &Ruler, y: &Ruler) {
        let (left, top, right, bottom) = MARGINS;
        let (title, id) = (escaped(&self.title), escaped(id));
        let _ = writeln!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-labelledby=\"{id}-title\" \
             font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"currentColor\">\n<title id=\"{id}-title\">{title}</title>"
        );
        let _ = writeln!(svg, "<text x=\"{left}\" y=\"16\" font-weight=\"600\">{title}</text>");
        for tick in x.ticks() {
            let Some(place) = x.at(tick) else { continue };
            let (low, label) = (HEIGHT - bottom, HEIGHT - bottom + 16.0);
            let _ = writeln!(svg, "<path d=\"M{place:.1} {top}V{low}\" stroke=\"currentColor\" stroke-opacity=\".15\"/>");
            let _ = writeln!(svg, "<text x=\"{place:.1}\" y=\"{label}\" text-anchor=\"middle\">{}</text>", short(tick));
        }
        for tick in y.ticks() {
            let Some(place) = y.at(tick) else { continue };
            let (end, label) = (WIDTH - right, left - 6.0);
            let _ = writeln!(svg, "<path d=\"M{left} {place:.1}H{end}\" stroke=\"currentColor\" stroke-opacity=\".15\"/>");
            let _ = writeln!(svg, "<text x=\"{label}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>", place + 4.0, short(tick));
        }
        let (middle, low) = ((left + WIDTH - right) / 2.0, HEIGHT - bottom + 34.0);
        let _ = writeln!(svg, "<text x=\"{middle}\" y=\"{low}\" text-anchor=\"middle\">{}</text>", escaped(&self.x.label));
        let centre = (top + HEIGHT - bottom) / 2.0;
        let _ = writeln!(
            svg,
            "<text transform=\"translate(14 {centre}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            escaped(&self.y.label)
        );
    }

    fn legend(&self, svg: &mut String) {
        let mut at = MARGINS.0;
        let low = HEIGHT - 10.0;
        for (line, (colour, dash)) in self.lines.iter().zip(STROKES.iter().cycle()) {
            let (end, text) = (at + 22.0, at + 28.0);
            let _ = writeln!(
                svg,
                "<path d=\"M{at:.1} {:.1}H{end:.1}\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\"/>",
                low - 4.0
            );
            let _ = writeln!(svg, "<text x=\"{text:.1}\" y=\"{low}\">{}</text>", escaped(&line.name));
            // Text is as wide as it is; this is enough for the letters of most fonts.
            at = text + 7.0 * line.name.chars().count() as f64 + 18.0;
        }
    }
}

fn draw(svg: &mut String, line: &Line, (colour, dash): (&str, &str), x: &Ruler, y: &Ruler) {
    let place = |(across, up): (f64, f64)| Some((x.at(across)?, y.at(up)?));
    let upper = line.band.iter().filter_map(|band| place((band.0, band.2)));
    let lower = line.band.iter().rev().filter_map(|band| place((band.0, band.1)));
    let outline: Vec<String> = upper.chain(lower).map(|(across, up)| format!("{across:.1} {up:.1}")).collect();
    if !outline.is_empty() {
        let _ = writeln!(svg, "<path d=\"M{}Z\" fill=\"{colour}\" fill-opacity=\".15\"/>", outline.join("L"));
    }
    let mut path = String::new();
    let mut pen_is_down = false;
    for point in &line.points {
        match point.1.and_then(|up| place((point.0, up))) {
            Some((across, up)) => {
                let _ = write!(path, "{}{across:.1} {up:.1}", if pen_is_down { 'L' } else { 'M' });
                pen_is_down = true;
            }
            None => pen_is_down = false,
        }
    }
    if !path.is_empty() {
        let _ = writeln!(
            svg,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\" stroke-linejoin=\"round\"/>"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn golden(name: &str, svg: &str) {
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

    #[test]
    fn ticks_are_round_and_numbers_short() {
        for (length, step) in [(1.0, 0.2), (7.0, 1.0), (10.0, 2.0), (100.0, 20.0), (812.0, 200.0), (0.03, 0.005)] {
            assert!((step_for(length) - step).abs() < 1e-9, "{length}: {}", step_for(length));
        }
        for (value, text) in
            [(0.0, "0"), (0.02, "0.02"), (1.5, "1.5"), (950.0, "950"), (12_000.0, "12k"), (3_500_000.0, "3.5M"), (-20.0, "-20")]
        {
            assert_eq!(short(value), text);
        }
    }
}
