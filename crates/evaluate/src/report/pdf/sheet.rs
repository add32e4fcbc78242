//! The sheets of a PDF, filled from top to bottom: what does not fit goes to the next one.

use super::font::{self, Face};
use pdf_writer::{Content, Name, Str};

/// A4, in points.
pub const SIZE: (f32, f32) = (595.0, 842.0);
/// Around what is written.
pub const MARGIN: f32 = 42.0;
/// Between the margins.
pub const ROOM: f32 = SIZE.0 - 2.0 * MARGIN;
/// Where the lowest line may be: below it stand the page's number and name.
const LOWEST: f32 = MARGIN + 14.0;

/// A colour: red, green, blue, from 0 to 1.
pub type Colour = (f32, f32, f32);
/// Of text.
pub const INK: Colour = (0.11, 0.13, 0.16);
/// Of text of less importance.
pub const QUIET: Colour = (0.36, 0.40, 0.44);
/// Of thin lines.
pub const LINE: Colour = (0.77, 0.79, 0.82);

/// Sheets so far; the last one is being written. Heights are counted from the top.
pub struct Sheets {
    done: Vec<Content>,
    now: Content,
    /// Height up to which the present sheet is full.
    pub at: f32,
}

impl Sheets {
    /// With an empty first sheet.
    pub fn new() -> Sheets {
        Sheets { done: Vec::new(), now: Content::new(), at: MARGIN }
    }

    /// Begins a new sheet, unless the present one is empty.
    pub fn turn(&mut self) {
        if self.at > MARGIN {
            self.done.push(std::mem::replace(&mut self.now, Content::new()));
            self.at = MARGIN;
        }
    }

    /// Begins a new sheet if there is not so much room. Whether it did.
    pub fn make_room(&mut self, height: f32) -> bool {
        let full = self.at + height > SIZE.1 - LOWEST && self.at > MARGIN;
        if full {
            self.turn();
        }
        full
    }

    /// How many sheets there are before the present one.
    pub fn index(&self) -> usize {
        self.done.len()
    }

    /// All of them.
    pub fn finish(mut self) -> Vec<Content> {
        if self.at > MARGIN || self.done.is_empty() {
            self.done.push(self.now);
        }
        self.done
    }

    /// What is drawn on the present sheet, with PDF's own heights from the bottom.
    pub fn content(&mut self) -> &mut Content {
        &mut self.now
    }

    /// Codes at a place; `y` is the base line, from the top.
    pub fn show(&mut self, codes: &[u8], (x, y): (f32, f32), face: Face, size: f32, colour: Colour) {
        show(&mut self.now, codes, (x, SIZE.1 - y), face, size, colour);
    }

    /// A thin line from left to right.
    pub fn rule(&mut self, (x, y): (f32, f32), width: f32, colour: Colour) {
        self.now.set_stroke_rgb(colour.0, colour.1, colour.2).set_line_width(0.5);
        self.now.move_to(x, SIZE.1 - y).line_to(x + width, SIZE.1 - y).stroke();
    }

    /// A filled rectangle; `y` is its top.
    pub fn fill(&mut self, (x, y): (f32, f32), (width, height): (f32, f32), colour: Colour) {
        self.now.set_fill_rgb(colour.0, colour.1, colour.2).rect(x, SIZE.1 - y - height, width, height).fill_nonzero();
    }

    /// A paragraph from `x` on, as wide as there is room.
    pub fn paragraph(&mut self, text: &str, x: f32, face: Face, size: f32, colour: Colour) {
        let leading = size * 1.35;
        for line in font::wrapped(text, face, size, MARGIN + ROOM - x) {
            self.make_room(leading);
            self.at += leading;
            let at = self.at - leading * 0.25;
            self.show(&line, (x, at), face, size, colour);
        }
    }
}

/// Codes at a place, with PDF's own heights from the bottom.
pub fn show(content: &mut Content, codes: &[u8], (x, y): (f32, f32), face: Face, size: f32, colour: Colour) {
    content.begin_text();
    content.set_fill_rgb(colour.0, colour.1, colour.2);
    content.set_font(name_of(face), size).next_line(x, y).show(Str(codes));
    content.end_text();
}

/// How a page's resources call a font.
pub const fn name_of(face: Face) -> Name<'static> {
    match face {
        Face::Regular => Name(b"R"),
        Face::Bold => Name(b"B"),
    }
}
