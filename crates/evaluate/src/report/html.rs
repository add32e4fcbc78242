//! A document as one HTML file: its style and its pictures are in it, it needs no script, no font and no address outside itself. It follows the reader's
//! choice of light or dark, and prints with a page for each part.

use super::document::{Block, Cell, Column, Document, Page, Table, Tone};

/// Letters of a number with its range, at most; what is longer is a sentence.
const NUMBER: usize = 26;
const STYLE: &str = include_str!("style.css");

/// The document as HTML.
pub fn write(document: &Document) -> String {
    let mut out = String::from("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n");
    out.push_str(
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<meta name=\"color-scheme\" content=\"light dark\"/>\n",
    );
    out.push_str(&format!("<title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n", escaped(&document.title)));
    out.push_str(&format!("<header>\n<h1>{}</h1>\n<p>{}</p>\n", escaped(&document.title), escaped(&document.subtitle)));
    if document.pages.len() > 1 {
        let links: Vec<String> =
            document.pages.iter().map(|page| format!("<a href=\"#{}\">{}</a>", escaped(&page.id), escaped(&page.title))).collect();
        out.push_str(&format!("<nav>{}</nav>\n", links.join("\n")));
    }
    out.push_str("</header>\n<main>\n");
    document.pages.iter().for_each(|page| write_page(&mut out, page));
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

fn write_page(out: &mut String, page: &Page) {
    out.push_str(&format!("<section id=\"{}\">\n<h2>{}</h2>\n", escaped(&page.id), escaped(&page.title)));
    for block in &page.blocks {
        match block {
            Block::Words(words) => out.push_str(&format!("<p>{}</p>\n", escaped(words))),
            Block::Loud(words) => out.push_str(&format!("<p class=\"loud\" role=\"alert\">{}</p>\n", escaped(words))),
            Block::Heading(words) => out.push_str(&format!("<h3>{}</h3>\n", escaped(words))),
            Block::Facts(facts) => {
                let rows: String =
                    facts.iter().map(|(name, value)| format!("<dt>{}</dt><dd>{}</dd>\n", escaped(name), escaped(value))).collect();
                out.push_str(&format!("<dl>\n{rows}</dl>\n"));
            }
            Block::List(items) => {
                let items: String = items.iter().map(|item| format!("<li>{}</li>\n", escaped(item))).collect();
                out.push_str(&format!("<ul>\n{items}</ul>\n"));
            }
            Block::Table(table) => write_table(out, table),
            Block::Pictures(pictures) => {
                out.push_str(if pictures.len() == 1 { "<div class=\"pictures one\">\n" } else { "<div class=\"pictures\">\n" });
                for named in pictures {
                    // Within a page the name space is known; naming it would be the only address in the file.
                    let svg = named.picture.svg(&named.name).replacen(" xmlns=\"http://www.w3.org/2000/svg\"", "", 1);
                    out.push_str(&format!("<figure>\n{svg}</figure>\n"));
                }
                out.push_str("</div>\n");
            }
            Block::Commands { title, lines } => {
                let lines: Vec<String> = lines.iter().map(|line| escaped(line)).collect();
                out.push_str(&format!("<details>\n<summary>{}</summary>\n<pre>{}</pre>\n</details>\n", escaped(title), lines.join("\n")));
            }
        }
    }
    out.push_str("</section>\n");
}

fn write_table(out: &mut String, table: &Table) {
    out.push_str("<div class=\"table\">\n<table>\n");
    if !table.caption.is_empty() {
        out.push_str(&format!("<caption>{}</caption>\n", escaped(&table.caption)));
    }
    let heads: String =
        table.columns.iter().map(|column| format!("<th scope=\"col\"{}>{}</th>", side(column), escaped(&column.title))).collect();
    out.push_str(&format!("<thead>\n<tr>{heads}</tr>\n</thead>\n<tbody>\n"));
    for row in &table.rows {
        let cells: String = row.iter().zip(&table.columns).map(|(cell, column)| cell_of(cell, column)).collect();
        out.push_str(&format!("<tr>{cells}</tr>\n"));
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
}

fn side(column: &Column) -> &'static str {
    if column.right { " class=\"right\"" } else { "" }
}

fn cell_of(cell: &Cell, column: &Column) -> String {
    let tone = match cell.tone {
        Tone::Plain => "",
        Tone::Good => "good",
        Tone::Bad => "bad",
        Tone::Unsure => "unsure",
        Tone::Quiet => "quiet",
    };
    // Short numbers stay on one line, with what is in brackets behind them.
    let is_short = column.right && cell.text.chars().count() <= NUMBER;
    let classes =
        [if column.right { "right" } else { "" }, if is_short { "number" } else { "" }, tone, if cell.strong { "strong" } else { "" }];
    let classes: Vec<&str> = classes.into_iter().filter(|class| !class.is_empty()).collect();
    let class = if classes.is_empty() { String::new() } else { format!(" class=\"{}\"", classes.join(" ")) };
    let sign = cell.sign.map_or(String::new(), |sign| format!("<span class=\"sign\" aria-hidden=\"true\">{}</span> ", sign.letter()));
    format!("<td{class}>{sign}{}</td>", escaped(&cell.text))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
