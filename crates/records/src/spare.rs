//! How much of its SSD a pool leaves unused, and why.
//!
//! A pool whose blocks lie in slots overwrites single pages. The SSD then copies pages within its flash; it copies less if a part of it holds
//! nothing.

use crate::state::PoolRecord;
use device::Drive;
use serde::{Deserialize, Serialize};

/// Spare on a whole drive that has little of its own, in percent.
pub const SPARE_PERCENT_DEFAULT: u8 = 10;

/// How the spare was chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpareBy {
    /// A person has asked for it.
    Asked,
    /// By the kind of drive.
    Drive,
    /// It was found on the SSD, whose pool was taken in without its record.
    Found,
}

/// How much of its SSD a pool leaves unused.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spare {
    /// In percent of the room that the pool has there.
    pub percent: u8,
    /// How that was chosen.
    pub by: SpareBy,
    /// What the SSD is to a drive.
    pub drive: Drive,
    /// Why the SSD still keeps what was in the unused part, as a clause about the SSD; `None` if it was discarded, or there was nothing to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_discarded: Option<String>,
}

impl Spare {
    /// As a person has asked, else by the kind of drive.
    pub fn chosen(asked_percent: Option<u8>, drive: Drive) -> Spare {
        let (percent, by) = match (asked_percent, drive) {
            (Some(percent), _) => (percent, SpareBy::Asked),
            (None, Drive::Volatile) => (SPARE_PERCENT_DEFAULT, SpareBy::Drive),
            (None, Drive::Protected | Drive::Part | Drive::File) => (0, SpareBy::Drive),
        };
        Spare { percent, by, drive, not_discarded: None }
    }

    /// What a person has asked for, for another SSD of the pool, too.
    pub fn asked_percent(&self) -> Option<u8> {
        (self.by == SpareBy::Asked).then_some(self.percent)
    }

    /// Why it is so much, as a clause.
    pub fn reason(&self) -> &'static str {
        match (self.by, self.drive) {
            (SpareBy::Asked, _) => "as asked for",
            (SpareBy::Found, _) => "as found on the SSD",
            (SpareBy::Drive, Drive::Volatile) => "a whole drive with a volatile write cache: such drives have little spare of their own",
            (SpareBy::Drive, Drive::Protected) => "a whole drive without a volatile write cache: such drives have spare of their own",
            (SpareBy::Drive, Drive::Part) => "not a whole drive: what is left unused here, others may use",
            (SpareBy::Drive, Drive::File) => "a file: what is left unused here, others may use",
        }
    }
}

impl PoolRecord {
    /// How much of the SSD stays unused, in percent.
    pub fn spare_percent(&self) -> u8 {
        self.spare.as_ref().map_or(0, |spare| spare.percent)
    }

    /// After its SSD was formatted, which keeps what is left unused for this reason, if for one.
    pub fn formatted(mut self, not_discarded: Option<String>) -> PoolRecord {
        if let Some(spare) = &mut self.spare {
            spare.not_discarded = not_discarded;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_drive_decides_unless_a_person_does() {
        let percent = |asked, drive| Spare::chosen(asked, drive).percent;
        assert_eq!([Drive::Volatile, Drive::Protected, Drive::Part, Drive::File].map(|drive| percent(None, drive)), [10, 0, 0, 0]);
        assert_eq!((percent(Some(0), Drive::Volatile), percent(Some(28), Drive::File)), (0, 28));
        assert_eq!(Spare::chosen(Some(28), Drive::File).asked_percent(), Some(28));
        assert_eq!(Spare::chosen(None, Drive::Volatile).asked_percent(), None);
    }
}
