//! What a report consists of, before it is known on what it is written: pages of words, tables and pictures. HTML, PDF and plain text are three ways to
//! write one.

use crate::plot::Picture;

/// A whole report.
#[derive(Clone, PartialEq, Debug)]
pub struct Document {
    /// Its title.
    pub title: String,
    /// What it is about, in a line.
    pub subtitle: String,
    /// The first one is the summary.
    pub pages: Vec<Page>,
}

/// A part that begins on a new page where there are pages.
#[derive(Clone, PartialEq, Debug)]
pub struct Page {
    /// Unique in the document: letters, digits, dashes.
    pub id: String,
    /// Above it.
    pub title: String,
    /// What is on it.
    pub blocks: Vec<Block>,
}

/// A part of a page.
#[derive(Clone, PartialEq, Debug)]
pub enum Block {
    /// A paragraph.
    Words(String),
    /// A paragraph that nobody may overlook.
    Loud(String),
    /// A heading within the page.
    Heading(String),
    /// Names and what they are.
    Facts(Vec<(String, String)>),
    /// Paragraphs, each with a dot before it.
    List(Vec<String>),
    /// A table.
    Table(Table),
    /// Pictures side by side, as many as there is room for.
    Pictures(Vec<Named>),
    /// Lines for a shell, folded in until somebody wants them.
    Commands {
        /// Of what.
        title: String,
        /// One command each.
        lines: Vec<String>,
    },
}

/// A picture and its name, by which its file is called too.
#[derive(Clone, PartialEq, Debug)]
pub struct Named {
    /// Unique in the document.
    pub name: String,
    /// The picture.
    pub picture: Picture,
}

/// A table.
#[derive(Clone, PartialEq, Debug)]
pub struct Table {
    /// Above it; may be empty.
    pub caption: String,
    /// Its columns.
    pub columns: Vec<Column>,
    /// As many cells each as there are columns.
    pub rows: Vec<Vec<Cell>>,
}

/// A column.
#[derive(Clone, PartialEq, Debug)]
pub struct Column {
    /// Its head.
    pub title: String,
    /// Numbers stand at the right.
    pub right: bool,
    /// How wide it may be, beside the others.
    pub weight: f64,
}

/// A cell.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Cell {
    /// What it says.
    pub text: String,
    /// Whether it is good or bad news.
    pub tone: Tone,
    /// Before the text, for those who see no colours.
    pub sign: Option<Sign>,
    /// To be seen first.
    pub strong: bool,
}

/// Whether something is good or bad news.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Tone {
    /// Neither.
    #[default]
    Plain,
    /// Good.
    Good,
    /// Bad.
    Bad,
    /// Not decided.
    Unsure,
    /// Of less importance.
    Quiet,
}

/// A sign before a verdict.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sign {
    /// Above, for sure.
    Up,
    /// Above, perhaps.
    PerhapsUp,
    /// Below, perhaps.
    PerhapsDown,
    /// Below, for sure.
    Down,
    /// As it should be.
    Level,
    /// Nothing.
    Dash,
}

impl Sign {
    /// As a letter.
    pub const fn letter(self) -> char {
        match self {
            Sign::Up => '▲',
            Sign::PerhapsUp => '△',
            Sign::PerhapsDown => '▽',
            Sign::Down => '▼',
            Sign::Level => '●',
            Sign::Dash => '–',
        }
    }
}

impl Column {
    /// Of words.
    pub fn words(title: &str, weight: f64) -> Column {
        Column { title: title.into(), right: false, weight }
    }

    /// Of numbers.
    pub fn numbers(title: &str, weight: f64) -> Column {
        Column { title: title.into(), right: true, weight }
    }
}

impl Cell {
    /// Plain.
    pub fn of(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), ..Cell::default() }
    }

    /// With a tone.
    pub fn toned(text: impl Into<String>, tone: Tone) -> Cell {
        Cell { text: text.into(), tone, ..Cell::default() }
    }

    /// To be seen first.
    #[must_use]
    pub fn strong(mut self) -> Cell {
        self.strong = true;
        self
    }

    /// With a sign.
    #[must_use]
    pub fn signed(mut self, sign: Sign) -> Cell {
        self.sign = Some(sign);
        self
    }
}
