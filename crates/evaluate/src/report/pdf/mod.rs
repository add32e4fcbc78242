//! A document as PDF, without a browser, which a server under test does not have: with the fonts that every reader has, and pictures drawn from the same marks as SVG. Commands are left to the
//! HTML, where they can be copied.

mod font;
mod picture;
mod sheet;
mod table;

use super::document::{Block, Document, Page};
use font::Face;
use pdf_writer::{Content, Finish, Name, Pdf, Rect, Ref, TextStr};
use sheet::{INK, LINE, MARGIN, QUIET, ROOM, SIZE, Sheets};

const TEXT: f32 = 8.6;
/// Names of facts stand in a column of this width.
const FACTS: f32 = 84.0;

/// The document as PDF.
pub fn write(document: &Document) -> Vec<u8> {
    let mut sheets = Sheets::new();
    sheets.paragraph(&document.title, MARGIN, Face::Bold, 18.0, INK);
    sheets.paragraph(&document.subtitle, MARGIN, Face::Regular, TEXT, QUIET);
    let mut begins = Vec::new();
    for (nth, page) in document.pages.iter().enumerate() {
        if nth > 0 {
            sheets.turn();
        }
        begins.push((page.title.clone(), sheets.index()));
        write_page(&mut sheets, page);
    }
    assemble(document, &begins, sheets.finish())
}

fn write_page(sheets: &mut Sheets, page: &Page) {
    sheets.at += 4.0;
    sheets.paragraph(&page.title, MARGIN, Face::Bold, 14.0, INK);
    let at = sheets.at;
    sheets.rule((MARGIN, at), ROOM, LINE);
    sheets.at += 4.0;
    let mut has_commands = false;
    for block in &page.blocks {
        match block {
            Block::Words(words) => {
                sheets.paragraph(words, MARGIN, Face::Regular, TEXT, INK);
                sheets.at += 4.0;
            }
            Block::Loud(words) => write_loud(sheets, words),
            Block::Heading(words) => {
                // Not as the last thing on a sheet.
                sheets.make_room(90.0);
                sheets.at += 8.0;
                sheets.paragraph(words, MARGIN, Face::Bold, 10.5, INK);
                sheets.at += 2.0;
            }
            Block::Facts(facts) => write_facts(sheets, facts),
            Block::List(items) => {
                for item in items {
                    let codes = font::encoded("•");
                    sheets.make_room(TEXT * 1.35);
                    let at = sheets.at + TEXT;
                    sheets.show(&codes, (MARGIN, at), Face::Regular, TEXT, QUIET);
                    sheets.paragraph(item, MARGIN + 10.0, Face::Regular, TEXT, INK);
                }
                sheets.at += 4.0;
            }
            Block::Table(table) => table::write(sheets, table),
            Block::Pictures(pictures) => pictures.iter().for_each(|named| picture::draw(sheets, &named.picture)),
            Block::Commands { .. } => has_commands = true,
        }
    }
    if has_commands {
        sheets.at += 4.0;
        sheets.paragraph("The commands that repeat these runs by hand are in report.html.", MARGIN, Face::Regular, TEXT, QUIET);
    }
}

fn write_loud(sheets: &mut Sheets, words: &str) {
    let lines = font::wrapped(words, Face::Bold, TEXT, ROOM - 20.0);
    let height = lines.len() as f32 * TEXT * 1.35 + 10.0;
    sheets.make_room(height + 6.0);
    let top = sheets.at;
    sheets.fill((MARGIN, top), (ROOM, height), (1.0, 0.94, 0.84));
    sheets.fill((MARGIN, top), (4.0, height), (0.85, 0.56, 0.0));
    for (nth, line) in lines.iter().enumerate() {
        sheets.show(line, (MARGIN + 12.0, top + 5.0 + TEXT * (1.35 * nth as f32 + 1.0)), Face::Bold, TEXT, INK);
    }
    sheets.at = top + height + 6.0;
}

fn write_facts(sheets: &mut Sheets, facts: &[(String, String)]) {
    for (name, value) in facts {
        sheets.make_room(TEXT * 1.35);
        let at = sheets.at + TEXT;
        sheets.show(&font::encoded(name), (MARGIN, at), Face::Regular, TEXT, QUIET);
        sheets.paragraph(value, MARGIN + FACTS, Face::Regular, TEXT, INK);
    }
    sheets.at += 5.0;
}

/// Pages, fonts, names of parts: what makes a file of sheets.
fn assemble(document: &Document, begins: &[(String, usize)], sheets: Vec<Content>) -> Vec<u8> {
    let mut last = 0;
    let mut next = || {
        last += 1;
        Ref::new(last)
    };
    let (catalog, tree, regular, bold, info, outline) = (next(), next(), next(), next(), next(), next());
    let pages: Vec<(Ref, Ref)> = sheets.iter().map(|_| (next(), next())).collect();
    let items: Vec<Ref> = begins.iter().map(|_| next()).collect();
    let mut pdf = Pdf::new();
    pdf.catalog(catalog).pages(tree).outlines(outline).lang(TextStr("en"));
    pdf.document_info(info).title(TextStr(&document.title)).creator(TextStr("hearth evaluate"));
    pdf.pages(tree).kids(pages.iter().map(|(page, _)| *page)).count(pages.len() as i32);
    for (font, name) in [(regular, &b"Helvetica"[..]), (bold, &b"Helvetica-Bold"[..])] {
        pdf.type1_font(font).base_font(Name(name)).encoding_predefined(Name(b"WinAnsiEncoding"));
    }
    let mut list = pdf.outline(outline);
    if let (Some(first), Some(last)) = (items.first(), items.last()) {
        list.first(*first).last(*last).count(items.len() as i32);
    }
    list.finish();
    for (nth, (title, sheet)) in begins.iter().enumerate() {
        let mut item = pdf.outline_item(items[nth]);
        item.title(TextStr(title)).parent(outline);
        if nth > 0 {
            item.prev(items[nth - 1]);
        }
        if let Some(after) = items.get(nth + 1) {
            item.next(*after);
        }
        item.dest().page(pages[*sheet].0).fit();
    }
    let count = sheets.len();
    for (nth, mut content) in sheets.into_iter().enumerate() {
        let (page_ref, content_ref) = pages[nth];
        // The part to which a sheet belongs is the last one that begins on it or before.
        let part = begins.iter().rev().find(|(_, sheet)| *sheet <= nth).map_or("", |(title, _)| title.as_str());
        foot(&mut content, &format!("{} · {part}", document.title), &format!("{} of {count}", nth + 1));
        let mut page = pdf.page(page_ref);
        page.media_box(Rect::new(0.0, 0.0, SIZE.0, SIZE.1)).parent(tree).contents(content_ref);
        let mut resources = page.resources();
        let mut fonts = resources.fonts();
        fonts.pair(sheet::name_of(Face::Regular), regular).pair(sheet::name_of(Face::Bold), bold);
        fonts.finish();
        resources.finish();
        page.finish();
        pdf.stream(content_ref, &content.finish());
    }
    pdf.finish()
}

fn foot(content: &mut Content, left: &str, right: &str) {
    let (size, right) = (7.0, font::encoded(right));
    sheet::show(content, &font::encoded(left), (MARGIN, 26.0), Face::Regular, size, QUIET);
    let width = font::width(&right, Face::Regular, size);
    sheet::show(content, &right, (SIZE.0 - MARGIN - width, 26.0), Face::Regular, size, QUIET);
}
