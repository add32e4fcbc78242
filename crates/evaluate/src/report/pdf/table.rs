//! A table on sheets of PDF: its head again on each, no row torn apart.

use super::font::{self, Face};
use super::sheet::{Colour, INK, LINE, MARGIN, QUIET, ROOM, SIZE, Sheets};
use crate::report::document::{Cell, Sign, Table, Tone};

const SIZE_TEXT: f32 = 7.4;
const LEADING: f32 = 9.0;
/// Between columns, and above and below a row's lines.
const GAP: f32 = 7.0;
const PAD: f32 = 2.0;
/// A number with its range is no wider; what is wider is a sentence.
const NUMBER: f32 = 84.0;
/// Room for a sign.
const SIGN: f32 = 9.0;

/// Writes it.
pub fn write(sheets: &mut Sheets, table: &Table) {
    let widths = widths(table);
    let head: Vec<Vec<Vec<u8>>> =
        table.columns.iter().zip(&widths).map(|(column, width)| font::wrapped(&column.title, Face::Bold, SIZE_TEXT, *width)).collect();
    let rows: Vec<Vec<Vec<Vec<u8>>>> = table
        .rows
        .iter()
        .map(|row| {
            row.iter().zip(&widths).map(|(cell, width)| font::wrapped(&cell.text, face(cell), SIZE_TEXT, width - sign_room(cell))).collect()
        })
        .collect();
    // A caption and a head stand above at least one row.
    sheets.make_room(14.0 + height(&head) + rows.first().map_or(0.0, |row| height(row)));
    if !table.caption.is_empty() {
        sheets.paragraph(&table.caption, MARGIN, Face::Bold, 8.2, INK);
        sheets.at += 1.0;
    }
    write_head(sheets, table, &widths, &head);
    for (row, lines) in table.rows.iter().zip(&rows) {
        if sheets.make_room(height(lines)) {
            write_head(sheets, table, &widths, &head);
        }
        let mut x = MARGIN;
        for (((cell, lines), column), width) in row.iter().zip(lines).zip(&table.columns).zip(&widths) {
            let room = sign_room(cell);
            if let Some(sign) = cell.sign {
                draw_sign(sheets, sign, (x, sheets.at + PAD + LEADING * 0.5), colour(cell.tone));
            }
            write_lines(sheets, lines, (x + room, width - room), column.right, face(cell), colour(cell.tone));
            x += width + GAP;
        }
        sheets.at += height(lines);
        let at = sheets.at;
        sheets.rule((MARGIN, at), ROOM, LINE);
    }
    sheets.at += 8.0;
}

fn write_head(sheets: &mut Sheets, table: &Table, widths: &[f32], head: &[Vec<Vec<u8>>]) {
    let mut x = MARGIN;
    for ((lines, column), width) in head.iter().zip(&table.columns).zip(widths) {
        write_lines(sheets, lines, (x, *width), column.right, Face::Bold, QUIET);
        x += width + GAP;
    }
    sheets.at += height(head);
    let at = sheets.at;
    sheets.rule((MARGIN, at), ROOM, INK);
}

fn write_lines(sheets: &mut Sheets, lines: &[Vec<u8>], (x, width): (f32, f32), right: bool, face: Face, colour: Colour) {
    for (nth, line) in lines.iter().enumerate() {
        let y = sheets.at + PAD + LEADING * (nth as f32 + 0.78);
        let x = if right { x + width - font::width(line, face, SIZE_TEXT) } else { x };
        sheets.show(line, (x, y), face, SIZE_TEXT, colour);
    }
}

fn height(lines: &[Vec<Vec<u8>>]) -> f32 {
    lines.iter().map(Vec::len).max().unwrap_or(0) as f32 * LEADING + 2.0 * PAD
}

fn face(cell: &Cell) -> Face {
    if cell.strong { Face::Bold } else { Face::Regular }
}

fn sign_room(cell: &Cell) -> f32 {
    if cell.sign.is_some() { SIGN } else { 0.0 }
}

const fn colour(tone: Tone) -> Colour {
    match tone {
        Tone::Plain => INK,
        Tone::Good => (0.04, 0.42, 0.23),
        Tone::Bad => (0.66, 0.13, 0.06),
        Tone::Unsure => (0.48, 0.32, 0.0),
        Tone::Quiet => QUIET,
    }
}

/// As wide as each column would like to be, and if that is too much, what is left goes by weight to those that want more; none narrower than its words.
fn widths(table: &Table) -> Vec<f32> {
    let wide = |text: &str, face| font::width(&font::encoded(text), face, SIZE_TEXT) + 0.5;
    let of_cells = |nth: usize, measure: &dyn Fn(&str, Face) -> f32| {
        let cells = table.rows.iter().map(|row| measure(&row[nth].text, face(&row[nth])) + sign_room(&row[nth]));
        cells.chain([measure(&table.columns[nth].title, Face::Bold)]).fold(0.0, f32::max)
    };
    let word = |text: &str, face| text.split(' ').map(|word| wide(word, face)).fold(0.0, f32::max).min(80.0);
    let count = table.columns.len();
    // Heads may stand in several lines, and numbers are not torn from their units.
    let of_text = |text: &str, face: Face, nth: usize| if text == table.columns[nth].title { word(text, face) } else { wide(text, face) };
    let wanted: Vec<f32> = (0..count).map(|nth| of_cells(nth, &|text, face| of_text(text, face, nth))).collect();
    let number = |nth: usize| Some(wanted[nth]).filter(|wanted| table.columns[nth].right && *wanted <= NUMBER);
    let least: Vec<f32> = (0..count).map(|nth| number(nth).unwrap_or_else(|| of_cells(nth, &word))).collect();
    let room = ROOM - GAP * count.saturating_sub(1) as f32;
    let mut given: Vec<Option<f32>> = vec![None; count];
    loop {
        let open: Vec<usize> = (0..count).filter(|nth| given[*nth].is_none()).collect();
        let left = room - given.iter().flatten().sum::<f32>();
        let weights: f32 = open.iter().map(|nth| table.columns[*nth].weight as f32).sum();
        let share = |nth: usize| left * table.columns[nth].weight as f32 / weights;
        // First those whose words need more than their share, then those that want less.
        let tight: Vec<usize> = open.iter().copied().filter(|nth| least[*nth] > share(*nth)).collect();
        let content: Vec<usize> = open.iter().copied().filter(|nth| wanted[*nth] <= share(*nth)).collect();
        match (tight.is_empty(), content.is_empty()) {
            (false, _) => tight.iter().for_each(|nth| given[*nth] = Some(least[*nth])),
            (true, false) => content.iter().for_each(|nth| given[*nth] = Some(wanted[*nth])),
            (true, true) => {
                open.iter().for_each(|nth| given[*nth] = Some(share(*nth)));
                break;
            }
        }
    }
    let mut widths: Vec<f32> = given.into_iter().map(|width| width.unwrap_or(20.0).max(12.0)).collect();
    // What nobody asked for goes to heads that stand in several lines.
    let mut left = room - widths.iter().sum::<f32>();
    for (width, column) in widths.iter_mut().zip(&table.columns) {
        let more = (wide(&column.title, Face::Bold) / 2.0 + 8.0 - *width).clamp(0.0, left.max(0.0));
        *width += more;
        left -= more;
    }
    widths
}

/// Drawn, for the fonts have no such letters.
fn draw_sign(sheets: &mut Sheets, sign: Sign, (x, y): (f32, f32), (red, green, blue): Colour) {
    let (left, right, middle) = (x, x + 6.0, x + 3.0);
    let y = SIZE.1 - y;
    let content = sheets.content();
    content.set_fill_rgb(red, green, blue).set_stroke_rgb(red, green, blue).set_line_width(0.8).set_dash_pattern([], 0.0);
    match sign {
        Sign::Up | Sign::PerhapsUp => content.move_to(left, y - 2.4).line_to(right, y - 2.4).line_to(middle, y + 2.8),
        Sign::Down | Sign::PerhapsDown => content.move_to(left, y + 2.4).line_to(right, y + 2.4).line_to(middle, y - 2.8),
        Sign::Level => content.rect(left + 0.8, y - 2.2, 4.4, 4.4),
        Sign::Dash => content.move_to(left, y).line_to(right - 1.0, y),
    };
    match sign {
        Sign::Up | Sign::Down | Sign::Level => content.close_path().fill_nonzero(),
        Sign::PerhapsUp | Sign::PerhapsDown => content.close_and_stroke(),
        Sign::Dash => content.stroke(),
    };
}
