//! A picture as SVG. Text and nothing else: no scripts, no fonts, no outside addresses; the page's colours (`currentColor`), so that one picture
//! serves light and dark.

use super::{Mark, Picture, Role, STROKES};
use std::fmt::Write;

/// For a picture that stands alone there is no page whose colours it could take.
const ALONE: &str =
    "<style>svg{color:#1c2128;background:#fff}@media(prefers-color-scheme:dark){svg{color:#e6e9ee;background:#14181d}}</style>";

impl Picture {
    /// For a page. `id` makes its inner names unique there.
    pub fn svg(&self, id: &str) -> String {
        let (title, id) = (escaped(&self.title), escaped(id));
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" role=\"img\" aria-labelledby=\"{id}-title\" \
             font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"currentColor\">\n<title id=\"{id}-title\">{title}</title>\n",
            self.width, self.height
        );
        for mark in &self.marks {
            draw(&mut svg, mark);
        }
        svg.push_str("</svg>\n");
        svg
    }

    /// As a file of its own, with colours of its own.
    pub fn svg_alone(&self) -> String {
        let svg = self.svg("picture");
        let end = svg.find('\n').expect("the first line");
        format!("{}\n{ALONE}{}", &svg[..end], &svg[end..])
    }
}

fn draw(svg: &mut String, mark: &Mark) {
    // Writing to a string cannot fail.
    let _ = match mark {
        Mark::Upright { x, from, to } => writeln!(svg, "<path d=\"M{x:.1} {from}V{to}\" stroke=\"currentColor\" stroke-opacity=\".15\"/>"),
        Mark::Level { y, from, to } => writeln!(svg, "<path d=\"M{from} {y:.1}H{to}\" stroke=\"currentColor\" stroke-opacity=\".15\"/>"),
        Mark::Text { x, y, role, text } => {
            let text = escaped(text);
            match role {
                Role::Title => writeln!(svg, "<text x=\"{x}\" y=\"{y}\" font-weight=\"600\">{text}</text>"),
                Role::BelowTick => writeln!(svg, "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{text}</text>"),
                Role::BesideTick => writeln!(svg, "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{text}</text>"),
                Role::Below => writeln!(svg, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{text}</text>"),
                Role::Beside => writeln!(svg, "<text transform=\"translate({x} {y}) rotate(-90)\" text-anchor=\"middle\">{text}</text>"),
                Role::Legend => writeln!(svg, "<text x=\"{x:.1}\" y=\"{y}\">{text}</text>"),
            }
        }
        Mark::Area { outline, stroke } => {
            let colour = STROKES[stroke % STROKES.len()].colour;
            writeln!(svg, "<path d=\"M{}Z\" fill=\"{colour}\" fill-opacity=\".15\"/>", joined(outline))
        }
        Mark::Line { pieces, stroke } => {
            let stroke = STROKES[stroke % STROKES.len()];
            let path: String = pieces.iter().map(|piece| format!("M{}", joined(piece))).collect();
            writeln!(
                svg,
                "<path d=\"{path}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\" stroke-dasharray=\"{}\" stroke-linejoin=\"round\"/>",
                stroke.colour, stroke.dash
            )
        }
        Mark::Key { x, y, to, stroke } => {
            let stroke = STROKES[stroke % STROKES.len()];
            writeln!(
                svg,
                "<path d=\"M{x:.1} {y:.1}H{to:.1}\" stroke=\"{}\" stroke-width=\"2\" stroke-dasharray=\"{}\"/>",
                stroke.colour, stroke.dash
            )
        }
        Mark::Bar { x, y, width, height, stroke } => {
            let colour = STROKES[stroke % STROKES.len()].colour;
            writeln!(svg, "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>")
        }
        Mark::Range { y, from, to } => {
            let (high, low) = (y - 4.0, y + 4.0);
            writeln!(
                svg,
                "<path d=\"M{from:.1} {y:.1}H{to:.1}M{from:.1} {high:.1}V{low:.1}M{to:.1} {high:.1}V{low:.1}\" stroke=\"currentColor\" stroke-width=\"1.2\"/>"
            )
        }
    };
}

fn joined(points: &[(f64, f64)]) -> String {
    points.iter().map(|(across, up)| format!("{across:.1} {up:.1}")).collect::<Vec<_>>().join("L")
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
