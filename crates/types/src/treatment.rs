//! How the blocks of one object are treated, in a byte.

/// Whether an object's blocks enter the cache.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum Admit {
    /// As the volume's admission says.
    #[default]
    Normal = 0,
    /// Reads put nothing into the cache; what is there is served. Writes into the log stay what they are.
    Never = 1,
    /// Always, whatever the size of requests, and they stay as long as the log has room for pins.
    Pinned = 2,
}

/// What becomes of writes to an object. Only ever less than the volume's mode: never does it make a
/// volume keep back what it would not keep back by itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum ObjectWrites {
    /// As the volume's mode says.
    #[default]
    Inherit = 0,
    /// To the backing device, past the cache.
    Around = 1,
    /// To the backing device at once, and into the cache.
    Through = 2,
}

/// What streams that pass over an object once (scans, backups) may do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum OnScan {
    /// They are served what is cached and insert nothing.
    #[default]
    HitOnly = 0,
    /// They are requests like others.
    Normal = 1,
}

impl Admit {
    /// All of them, in the order of their numbers.
    pub const ALL: [Admit; 3] = [Admit::Normal, Admit::Never, Admit::Pinned];

    /// The word used on the command line, in JSON and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Admit::Normal => "normal",
            Admit::Never => "never",
            Admit::Pinned => "pinned",
        }
    }

    /// The one of that name; `None` if there is none.
    pub fn from_name(name: &str) -> Option<Admit> {
        Admit::ALL.into_iter().find(|one| one.name() == name)
    }
}

impl ObjectWrites {
    /// All of them, in the order of their numbers.
    pub const ALL: [ObjectWrites; 3] = [ObjectWrites::Inherit, ObjectWrites::Around, ObjectWrites::Through];

    /// The word used on the command line, in JSON and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            ObjectWrites::Inherit => "inherit",
            ObjectWrites::Around => "around",
            ObjectWrites::Through => "through",
        }
    }

    /// The one of that name; `None` if there is none.
    pub fn from_name(name: &str) -> Option<ObjectWrites> {
        ObjectWrites::ALL.into_iter().find(|one| one.name() == name)
    }
}

impl OnScan {
    /// All of them, in the order of their numbers.
    pub const ALL: [OnScan; 2] = [OnScan::HitOnly, OnScan::Normal];

    /// The word used on the command line, in JSON and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            OnScan::HitOnly => "hit-only",
            OnScan::Normal => "normal",
        }
    }

    /// The one of that name; `None` if there is none.
    pub fn from_name(name: &str) -> Option<OnScan> {
        OnScan::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// All of it in a byte: two bits for [`Admit`], two for [`ObjectWrites`], one for [`OnScan`]; 0 is
/// the treatment of an object for which nothing was said. A treatment can only be wrong about speed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Treatment(u8);

const WRITES_SHIFT: u32 = 2;
const ON_SCAN_SHIFT: u32 = 4;

impl Treatment {
    /// Of these three.
    pub const fn new(admit: Admit, writes: ObjectWrites, on_scan: OnScan) -> Treatment {
        Treatment(admit as u8 | (writes as u8) << WRITES_SHIFT | (on_scan as u8) << ON_SCAN_SHIFT)
    }

    /// From a byte, as [`Treatment::bits`] gives it; `None` if no treatment has it.
    pub const fn from_bits(bits: u8) -> Option<Treatment> {
        let is_known = bits & 3 < 3 && bits >> WRITES_SHIFT & 3 < 3 && bits >> (ON_SCAN_SHIFT + 1) == 0;
        if is_known { Some(Treatment(bits)) } else { None }
    }

    /// As a byte.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether its blocks enter the cache.
    #[inline]
    pub const fn admit(self) -> Admit {
        match self.0 & 3 {
            1 => Admit::Never,
            2 => Admit::Pinned,
            _ => Admit::Normal,
        }
    }

    /// What becomes of writes.
    #[inline]
    pub const fn writes(self) -> ObjectWrites {
        match self.0 >> WRITES_SHIFT & 3 {
            1 => ObjectWrites::Around,
            2 => ObjectWrites::Through,
            _ => ObjectWrites::Inherit,
        }
    }

    /// What streams may do that pass over it once.
    #[inline]
    pub const fn on_scan(self) -> OnScan {
        if self.0 >> ON_SCAN_SHIFT & 1 == 0 { OnScan::HitOnly } else { OnScan::Normal }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_combination_has_a_byte_of_its_own_and_all_others_are_none() {
        let mut known = [false; 256];
        for admit in Admit::ALL {
            for writes in ObjectWrites::ALL {
                for on_scan in OnScan::ALL {
                    let treatment = Treatment::new(admit, writes, on_scan);
                    assert_eq!((treatment.admit(), treatment.writes(), treatment.on_scan()), (admit, writes, on_scan));
                    assert!(!core::mem::replace(&mut known[usize::from(treatment.bits())], true));
                    assert_eq!(Treatment::from_bits(treatment.bits()), Some(treatment));
                }
            }
        }
        assert_eq!(Treatment::default(), Treatment::new(Admit::Normal, ObjectWrites::Inherit, OnScan::HitOnly));
        assert!((0..=255).all(|bits| Treatment::from_bits(bits).is_some() == known[usize::from(bits)]));
    }

    #[test]
    fn words_are_read_as_they_are_written() {
        assert!(Admit::ALL.into_iter().all(|one| Admit::from_name(one.name()) == Some(one)));
        assert!(ObjectWrites::ALL.into_iter().all(|one| ObjectWrites::from_name(one.name()) == Some(one)));
        assert!(OnScan::ALL.into_iter().all(|one| OnScan::from_name(one.name()) == Some(one)));
        assert_eq!(Admit::from_name("sometimes"), None);
    }
}
