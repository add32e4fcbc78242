//! A picture: marks on a sheet, x to the right and y downwards, in the order in which they are drawn.

/// A colour and a dash, by which lines are told apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stroke {
    /// `#rrggbb`.
    pub colour: &'static str,
    /// Lengths of dash and gap, as SVG has them; empty is a line without gaps.
    pub dash: &'static str,
}

const fn stroke(colour: &'static str, dash: &'static str) -> Stroke {
    Stroke { colour, dash }
}

/// Colours that are told apart by nearly everybody (Okabe and Ito 2008), with dashes for those who see none. Marks name them by their place,
/// counted round.
pub const STROKES: [Stroke; 6] = [
    stroke("#0072b2", ""),
    stroke("#d55e00", "6 3"),
    stroke("#009e73", "2 3"),
    stroke("#cc79a7", "8 3 2 3"),
    stroke("#e69f00", "12 4"),
    stroke("#56b4e9", "1 4"),
];

/// What a text is for; from that follow its alignment and its weight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Of the picture: bold, begins at its place.
    Title,
    /// A number below the frame: centred.
    BelowTick,
    /// A number or a name to the left of the frame: ends at its place.
    BesideTick,
    /// What lies along the frame's lower side: centred.
    Below,
    /// What lies along its left side: centred, read upwards.
    Beside,
    /// A line's name, or a bar's value: begins at its place.
    Legend,
}

/// One mark.
#[derive(Clone, PartialEq, Debug)]
pub enum Mark {
    /// A line of the grid from top to bottom.
    Upright {
        /// Where.
        x: f64,
        /// Top.
        from: f64,
        /// Bottom.
        to: f64,
    },
    /// A line of the grid from left to right.
    Level {
        /// Where.
        y: f64,
        /// Left.
        from: f64,
        /// Right.
        to: f64,
    },
    /// Words or a number. The place is that of the base line.
    Text {
        /// Where its role has its place: begin, middle or end.
        x: f64,
        /// Base line.
        y: f64,
        /// What it is for.
        role: Role,
        /// What it says.
        text: String,
    },
    /// What is uncertain around a line: a closed shape, pale.
    Area {
        /// Its corners.
        outline: Vec<(f64, f64)>,
        /// As in [`STROKES`].
        stroke: usize,
    },
    /// A line in one or more pieces.
    Line {
        /// Points of each.
        pieces: Vec<Vec<(f64, f64)>>,
        /// As in [`STROKES`].
        stroke: usize,
    },
    /// A piece of a line in the legend.
    Key {
        /// Begin.
        x: f64,
        /// Height.
        y: f64,
        /// End.
        to: f64,
        /// As in [`STROKES`].
        stroke: usize,
    },
    /// A bar.
    Bar {
        /// Left.
        x: f64,
        /// Top.
        y: f64,
        /// To the right.
        width: f64,
        /// Downwards.
        height: f64,
        /// As in [`STROKES`].
        stroke: usize,
    },
    /// From the smallest to the largest value, over a bar.
    Range {
        /// Height.
        y: f64,
        /// Smallest.
        from: f64,
        /// Largest.
        to: f64,
    },
}

/// See the module.
#[derive(Clone, PartialEq, Debug)]
pub struct Picture {
    /// What it shows, for those who cannot see it too.
    pub title: String,
    /// Of the sheet.
    pub width: f64,
    /// Of the sheet.
    pub height: f64,
    /// What is on it.
    pub marks: Vec<Mark>,
}

impl Picture {
    pub(super) fn text(&mut self, x: f64, y: f64, role: Role, text: &str) {
        self.marks.push(Mark::Text { x, y, role, text: text.into() });
    }
}
