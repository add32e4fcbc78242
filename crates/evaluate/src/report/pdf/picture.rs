//! A picture on a sheet of PDF: the same marks as in SVG.

use super::font::{self, Face};
use super::sheet::{Colour, INK, LINE, MARGIN, ROOM, SIZE, Sheets, show};
use crate::plot::{Mark, Picture, Role, STROKES};
use pdf_writer::Content;

/// Pictures are drawn this much smaller than they are, so that three go on a sheet and their letters are as large as those of tables.
const SCALE: f32 = 0.6;
/// Of letters, in the picture's own units: as in SVG.
const LETTERS: f32 = 12.0;

/// Draws it in the middle of the sheet.
pub fn draw(sheets: &mut Sheets, picture: &Picture) {
    let (width, height) = (picture.width as f32 * SCALE, picture.height as f32 * SCALE);
    sheets.make_room(height + 10.0);
    let place = Place { left: MARGIN + (ROOM - width) / 2.0, top: SIZE.1 - sheets.at - 5.0 };
    let content = sheets.content();
    content.save_state();
    for mark in &picture.marks {
        draw_mark(content, mark, place);
    }
    content.restore_state();
    sheets.at += height + 10.0;
}

/// Where the picture's corner is.
#[derive(Clone, Copy)]
struct Place {
    left: f32,
    top: f32,
}

impl Place {
    fn x(self, x: f64) -> f32 {
        self.left + x as f32 * SCALE
    }

    fn y(self, y: f64) -> f32 {
        self.top - y as f32 * SCALE
    }
}

fn draw_mark(content: &mut Content, mark: &Mark, place: Place) {
    let lines = |content: &mut Content, points: &[(f64, f64)]| {
        for (nth, (x, y)) in points.iter().enumerate() {
            let (x, y) = (place.x(*x), place.y(*y));
            if nth == 0 {
                content.move_to(x, y)
            } else {
                content.line_to(x, y)
            };
        }
    };
    match mark {
        Mark::Upright { x, from, to } => {
            pen(content, LINE, 0.4, "");
            lines(content, &[(*x, *from), (*x, *to)]);
            content.stroke();
        }
        Mark::Level { y, from, to } => {
            pen(content, LINE, 0.4, "");
            lines(content, &[(*from, *y), (*to, *y)]);
            content.stroke();
        }
        Mark::Text { x, y, role, text } => write(content, (place.x(*x), place.y(*y)), *role, text),
        Mark::Area { outline, stroke } => {
            // As pale as the band of a picture on white, without transparency.
            let pale = |part: f32| 1.0 - 0.18 * (1.0 - part);
            let (red, green, blue) = colour(STROKES[stroke % STROKES.len()].colour);
            content.set_fill_rgb(pale(red), pale(green), pale(blue));
            lines(content, outline);
            content.close_path().fill_nonzero();
        }
        Mark::Line { pieces, stroke } => {
            let stroke = STROKES[stroke % STROKES.len()];
            pen(content, colour(stroke.colour), 1.3, stroke.dash);
            pieces.iter().for_each(|piece| lines(content, piece));
            content.stroke();
        }
        Mark::Key { x, y, to, stroke } => {
            let stroke = STROKES[stroke % STROKES.len()];
            pen(content, colour(stroke.colour), 1.3, stroke.dash);
            lines(content, &[(*x, *y), (*to, *y)]);
            content.stroke();
        }
        Mark::Bar { x, y, width, height, stroke } => {
            let (red, green, blue) = colour(STROKES[stroke % STROKES.len()].colour);
            content.set_fill_rgb(red, green, blue);
            content.rect(place.x(*x), place.y(y + height), *width as f32 * SCALE, *height as f32 * SCALE).fill_nonzero();
        }
        Mark::Range { y, from, to } => {
            pen(content, INK, 0.8, "");
            for points in [[(*from, *y), (*to, *y)], [(*from, y - 4.0), (*from, y + 4.0)], [(*to, y - 4.0), (*to, y + 4.0)]] {
                lines(content, &points);
            }
            content.stroke();
        }
    }
}

fn pen(content: &mut Content, (red, green, blue): Colour, width: f32, dash: &str) {
    let dashes = dash.split(' ').filter_map(|length| length.parse::<f32>().ok()).map(|length| length * SCALE);
    content.set_stroke_rgb(red, green, blue).set_line_width(width).set_dash_pattern(dashes, 0.0);
}

fn write(content: &mut Content, (x, y): (f32, f32), role: Role, text: &str) {
    let face = if role == Role::Title { Face::Bold } else { Face::Regular };
    let (codes, size) = (font::encoded(text), LETTERS * SCALE);
    let width = font::width(&codes, face, size);
    match role {
        Role::Title | Role::Legend => show(content, &codes, (x, y), face, size, INK),
        Role::BelowTick | Role::Below => show(content, &codes, (x - width / 2.0, y), face, size, INK),
        Role::BesideTick => show(content, &codes, (x - width, y), face, size, INK),
        Role::Beside => {
            content.save_state();
            // A quarter turn to the left, about its own place.
            content.transform([0.0, 1.0, -1.0, 0.0, x, y]);
            show(content, &codes, (-width / 2.0, 0.0), face, size, INK);
            content.restore_state();
        }
    }
}

/// Of `#rrggbb`.
fn colour(text: &str) -> Colour {
    let part = |from: usize| {
        text.get(from..from + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok()).map_or(0.0, |value| f32::from(value) / 255.0)
    };
    (part(1), part(3), part(5))
}
