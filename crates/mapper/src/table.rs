//! Tables of mapped devices: which run of sectors lies where. As text they look as `dmsetup table` prints them, one target a line.

use std::fmt;
use std::str::FromStr;

/// A block device's number, `major:minor`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Number {
    /// Which driver.
    pub major: u32,
    /// Which device of it.
    pub minor: u32,
}

impl Number {
    /// In the form of the kernel's interface (linux/kdev_t.h, `huge_encode_dev`).
    pub(crate) fn encoded(self) -> u64 {
        u64::from(self.minor & 0xff) | u64::from(self.major) << 8 | u64::from(self.minor & !0xff) << 12
    }

    pub(crate) fn decoded(raw: u64) -> Number {
        Number { major: (raw >> 8 & 0xfff) as u32, minor: (raw & 0xff | raw >> 12 & 0xf_ff00) as u32 }
    }

    /// Of a device's node, from `st_rdev`.
    pub fn from_raw(raw: u64) -> Number {
        Number { major: libc::major(raw), minor: libc::minor(raw) }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

impl FromStr for Number {
    type Err = TableError;

    fn from_str(text: &str) -> Result<Number, TableError> {
        let wrong = || TableError::Number { text: text.into() };
        let (major, minor) = text.split_once(':').ok_or_else(wrong)?;
        Ok(Number { major: major.parse().map_err(|_| wrong())?, minor: minor.parse().map_err(|_| wrong())? })
    }
}

/// Why something is no table.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum TableError {
    /// It ends within a target.
    #[error("it is cut short")]
    Cut,
    /// A line is not `START SECTORS TARGET ARGUMENTS`.
    #[error("{line:?} is not a line of a table")]
    Line {
        /// The line.
        line: String,
    },
    /// Not `major:minor`.
    #[error("{text:?} is not the number of a device")]
    Number {
        /// The text.
        text: String,
    },
    /// A target does not begin where the one before it ends.
    #[error("its targets leave a gap or overlap at sector {sector}")]
    Gap {
        /// Where.
        sector: u64,
    },
}

/// A run of sectors and what is behind it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// Where it begins on the mapped device.
    pub start_sector: u64,
    /// How long it is.
    pub sectors: u64,
    /// "linear", "striped" and so on.
    pub kind: String,
    /// What the target is told.
    pub arguments: String,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.start_sector, self.sectors, self.kind)?;
        if self.arguments.is_empty() { Ok(()) } else { write!(f, " {}", self.arguments) }
    }
}

/// A table: its targets in order, without gaps.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Table {
    /// The targets.
    pub targets: Vec<Target>,
}

impl Table {
    /// A device that lies, from its beginning, on the runs of sectors that are given: each the device, where on it, and how many.
    pub fn linear(runs: &[(Number, u64, u64)]) -> Table {
        let mut start_sector = 0;
        let target = |(number, offset, sectors): &(Number, u64, u64)| {
            let target = Target { start_sector, sectors: *sectors, kind: "linear".into(), arguments: format!("{number} {offset}") };
            start_sector += sectors;
            target
        };
        Table { targets: runs.iter().filter(|(_, _, sectors)| *sectors > 0).map(target).collect() }
    }

    /// How many sectors it has.
    pub fn sectors(&self) -> u64 {
        self.targets.last().map_or(0, |last| last.start_sector + last.sectors)
    }

    /// # Errors
    /// If targets leave a gap or overlap.
    pub(crate) fn checked(self) -> Result<Table, TableError> {
        let mut sector = 0_u64;
        for target in &self.targets {
            if target.start_sector != sector {
                return Err(TableError::Gap { sector });
            }
            sector = sector.checked_add(target.sectors).ok_or(TableError::Gap { sector })?;
        }
        Ok(self)
    }

    /// The first target that is none of these.
    pub fn first_other_than(&self, kinds: &[&str]) -> Option<&Target> {
        self.targets.iter().find(|target| !kinds.contains(&target.kind.as_str()))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, target) in self.targets.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{target}")?;
        }
        Ok(())
    }
}

impl FromStr for Table {
    type Err = TableError;

    fn from_str(text: &str) -> Result<Table, TableError> {
        let target = |line: &str| {
            let wrong = || TableError::Line { line: line.into() };
            let mut words = line.splitn(4, ' ');
            let mut word = || words.next().ok_or_else(wrong);
            let (start, sectors, kind) = (word()?, word()?, word()?);
            let arguments = words.next().unwrap_or_default().to_string();
            let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
            if kind.is_empty() {
                return Err(wrong());
            }
            Ok(Target { start_sector: number(start)?, sectors: number(sectors)?, kind: kind.into(), arguments })
        };
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        Table { targets: lines.map(target).collect::<Result<_, _>>()? }.checked()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<u64, TableError>) {
        let table = text.parse::<Table>();
        if let Ok(table) = &table {
            assert_eq!(table.to_string(), text.trim());
        }
        assert_eq!(table.map(|table| table.sectors()), expected, "{text}");
    }

    #[test]
    fn tables_are_read_as_they_are_written() {
        check("", Ok(0));
        check("0 8 zero", Ok(8));
        check("0 131072 linear 254:0 2048\n", Ok(131_072));
        check("0 8 linear 8:0 0\n8 16 striped 2 8 8:0 8 8:16 0", Ok(24));
        check("0 8 linear 8:0 0\n16 8 linear 8:0 8", Err(TableError::Gap { sector: 8 }));
        check("8 8 linear 8:0 0", Err(TableError::Gap { sector: 0 }));
        for line in ["0 8", "x 8 linear 8:0 0", "0 8  8:0"] {
            check(line, Err(TableError::Line { line: line.into() }));
        }
    }

    #[test]
    fn runs_become_a_table_and_kinds_are_seen() {
        let (a, b) = (Number { major: 7, minor: 0 }, Number { major: 253, minor: 3 });
        let table = Table::linear(&[(a, 0, 100), (b, 100, 28), (a, 0, 0)]);
        assert_eq!(table.to_string(), "0 100 linear 7:0 0\n100 28 linear 253:3 100");
        assert_eq!(table.first_other_than(&["linear"]), None);
        let crypt: Table = "0 8 linear 8:0 0\n8 8 crypt secret".parse().expect("a table");
        assert_eq!(crypt.first_other_than(&["linear", "striped"]).map(|target| target.kind.as_str()), Some("crypt"));
    }

    #[test]
    fn numbers_survive_the_kernels_form() {
        for (major, minor) in [(7, 0), (253, 255), (253, 256), (4095, 0xf_ffff), (259, 70_000)] {
            let number = Number { major, minor };
            assert_eq!(Number::decoded(number.encoded()), number);
            assert_eq!(number.to_string().parse(), Ok(number));
        }
        for text in ["", "7", "7:", "a:b", "7:0:1"] {
            assert!(text.parse::<Number>().is_err(), "{text}");
        }
    }
}
