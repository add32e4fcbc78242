//! The oracle is itself tested: each kind of broken promise is told, and nothing legal is.

use super::*;

const UNIQUE: Kind = Kind::Data(Texture::Unique);

struct Bench {
    oracle: Oracle,
}

fn bench() -> Bench {
    Bench { oracle: Oracle::new(&[16], &[UNIQUE]) }
}

impl Bench {
    fn write(&mut self, fua: bool) -> u32 {
        let number = self.oracle.begin_write(0, UNIQUE, 3, 1, fua);
        self.oracle.end_write(number, true);
        number
    }

    fn flush(&mut self) {
        let at = self.oracle.begin_flush();
        self.oracle.end_flush(0, at);
    }

    fn sees_from(&mut self, began: u64, write: u32) -> Result<(), Fault> {
        let mut bytes = [0; SECTOR];
        if write != u32::MAX {
            content::fill(Texture::Unique, 0, 3, write, &mut bytes);
        }
        self.oracle.end_read(0, 3, 1, began, |_| &bytes).map_err(|violation| violation.fault)
    }

    /// A read that begins and ends now and returns that write (`u32::MAX`: zeroes).
    fn sees(&mut self, write: u32) -> Result<(), Fault> {
        let began = self.oracle.begin_read();
        self.sees_from(began, write)
    }
}

#[test]
fn a_read_sees_the_last_acknowledged_write() {
    let mut bench = bench();
    assert_eq!(bench.sees(0), Ok(()));
    let write = bench.write(false);
    assert_eq!(bench.sees(write), Ok(()));
    assert_eq!(bench.sees(0), Err(Fault::Stale));
}

#[test]
fn a_read_racing_a_write_sees_either_but_never_goes_back() {
    let mut bench = bench();
    let first = bench.write(false);
    let slow = bench.oracle.begin_read();
    let racing = bench.oracle.begin_write(0, UNIQUE, 3, 1, false);
    assert_eq!(bench.sees(first), Ok(()));
    assert_eq!(bench.sees(racing), Ok(()));
    assert_eq!(bench.sees(first), Err(Fault::Flapped));
    bench.oracle.end_write(racing, true);
    assert_eq!(bench.sees_from(slow, first), Ok(()), "that read began before");
    assert_eq!(bench.sees(racing), Ok(()));
}

#[test]
fn concurrent_writes_settle_in_one_order() {
    let mut bench = bench();
    let one = bench.oracle.begin_write(0, UNIQUE, 3, 1, false);
    let two = bench.oracle.begin_write(0, UNIQUE, 3, 1, false);
    bench.oracle.end_write(two, true);
    bench.oracle.end_write(one, true);
    assert_eq!(bench.sees(two), Ok(()));
    assert_eq!(bench.sees(one), Err(Fault::Flapped));
}

#[test]
fn a_power_cut_takes_only_what_was_not_flushed() {
    let mut bench = bench();
    let old = bench.write(false);
    bench.flush();
    let new = bench.write(false);
    bench.oracle.crash(true);
    let mut other = Bench { oracle: Oracle::new(&[16], &[UNIQUE]) };
    std::mem::swap(&mut other.oracle, &mut bench.oracle);
    assert_eq!(other.sees(0), Err(Fault::Resurrected));
    assert_eq!(other.sees(old), Ok(()));
    assert!(other.sees(new).is_err(), "the first read after the crash settled it");
    other.oracle.crash(true);
    assert!(other.sees(new).is_err());
    assert_eq!(other.sees(old), Ok(()));
}

#[test]
fn a_write_acknowledged_during_a_flush_is_not_covered() {
    let mut bench = bench();
    let early = bench.oracle.begin_flush();
    let write = bench.write(false);
    bench.oracle.end_flush(0, early);
    bench.oracle.crash(true);
    assert_eq!(bench.sees(0), Ok(()));
    let _ = write;
}

#[test]
fn fua_survives_and_a_process_crash_takes_nothing() {
    let mut one = bench();
    one.write(true);
    one.oracle.crash(true);
    assert_eq!(one.sees(0), Err(Fault::Resurrected));
    let mut two = bench();
    two.write(false);
    two.oracle.crash(false);
    assert_eq!(two.sees(0), Err(Fault::Lost));
}

#[test]
fn a_failed_write_leaves_old_or_new_and_stays_that_way() {
    let mut bench = bench();
    let failed = bench.oracle.begin_write(0, UNIQUE, 3, 1, false);
    bench.oracle.end_write(failed, false);
    assert_eq!(bench.sees(0), Ok(()));
    let refused = bench.sees(failed);
    assert!(matches!(refused, Err(Fault::Flapped | Fault::Resurrected)), "{refused:?}");
}

#[test]
fn a_write_in_flight_at_a_crash_may_be_there_and_is_then_fixed() {
    let mut bench = bench();
    let lone = bench.oracle.begin_write(0, UNIQUE, 3, 1, false);
    bench.oracle.crash(false);
    assert_eq!(bench.sees(lone), Ok(()));
    bench.oracle.crash(true);
    assert_eq!(bench.sees(0), Err(Fault::Resurrected));
    assert_eq!(bench.sees(lone), Ok(()));
}

#[test]
fn discard_is_old_or_zero_and_stable() {
    let mut kept = bench();
    let discard = kept.oracle.begin_write(0, Kind::Discard, 3, 1, false);
    kept.oracle.end_write(discard, true);
    assert_eq!(kept.sees(0), Ok(()));
    assert_eq!(kept.sees(u32::MAX), Err(Fault::Resurrected), "the kept data is durable and the read settled it");
    let mut gone = bench();
    let discard = gone.oracle.begin_write(0, Kind::Discard, 3, 1, false);
    gone.oracle.end_write(discard, true);
    gone.flush();
    assert_eq!(gone.sees(u32::MAX), Ok(()));
    gone.oracle.crash(true);
    assert_eq!(gone.sees(0), Err(Fault::Resurrected));
}

#[test]
fn damage_and_foreign_data_are_named() {
    let mut bench = bench();
    let began = bench.oracle.begin_read();
    let torn = [7; SECTOR];
    let fault = bench.oracle.end_read(0, 3, 1, began, |_| &torn).unwrap_err().fault;
    assert_eq!(fault, Fault::Torn);
    let began = bench.oracle.begin_read();
    let mut elsewhere = [0; SECTOR];
    content::fill(Texture::Unique, 0, 4, 0, &mut elsewhere);
    let fault = bench.oracle.end_read(0, 3, 1, began, |_| &elsewhere).unwrap_err().fault;
    assert_eq!(fault, Fault::Misdirected);
}

#[test]
fn an_image_is_judged_like_a_read() {
    let mut bench = bench();
    let write = bench.write(true);
    let mut bytes = [0; SECTOR];
    content::fill(Texture::Unique, 0, 3, 0, &mut bytes);
    assert_eq!(bench.oracle.check_image(0, 3, &bytes, false).unwrap_err().fault, Fault::NotAtHome);
    content::fill(Texture::Unique, 0, 3, write, &mut bytes);
    assert!(bench.oracle.check_image(0, 3, &bytes, false).is_ok());
}

/// Writes and reads of sector 3 with patterns.
impl Bench {
    fn begins_pattern(&mut self, pattern: u8) -> u32 {
        self.oracle.begin_write(0, Kind::Data(Texture::Pattern(pattern)), 3, 1, false)
    }

    fn writes_pattern(&mut self, pattern: u8) {
        let number = self.begins_pattern(pattern);
        self.oracle.end_write(number, true);
    }

    fn finds(&mut self, found: Texture, sector: u64) -> Result<(), Fault> {
        let mut bytes = [0; SECTOR];
        content::fill(found, 0, sector, 0, &mut bytes);
        let began = self.oracle.begin_read();
        self.oracle.end_read(0, 3, 1, began, |_| &bytes).map_err(|violation| violation.fault)
    }

    fn finds_pattern(&mut self, pattern: u8) -> Result<(), Fault> {
        self.finds(Texture::Pattern(pattern), 3)
    }
}

#[test]
fn a_stale_duplicate_is_found_out() {
    let mut bench = bench();
    bench.writes_pattern(3);
    assert_eq!(bench.finds_pattern(3), Ok(()));
    bench.writes_pattern(5);
    assert_eq!(bench.finds_pattern(3), Err(Fault::Stale));
    assert_eq!(bench.finds_pattern(5), Ok(()));
    bench.flush();
    bench.write(true);
    bench.oracle.crash(true);
    // The versions are forgotten by now, and still it is known whose they were.
    assert_eq!(bench.finds_pattern(5), Err(Fault::Resurrected));
    assert_eq!(bench.finds_pattern(3), Err(Fault::Resurrected));
}

#[test]
fn a_pattern_that_was_never_written_is_misdirected() {
    let mut bench = bench();
    bench.writes_pattern(3);
    assert_eq!(bench.finds_pattern(4), Err(Fault::Misdirected));
    assert_eq!(bench.finds(Texture::Pattern(3), 4), Err(Fault::Misdirected), "the sector beside it");
    assert_eq!(bench.finds(Texture::Pattern(3), 11), Ok(()), "the same sector of another block cannot be told apart");
    bench.oracle.doubt(0, 3..4);
    assert_eq!(bench.finds_pattern(4), Err(Fault::Misdirected), "no doubt brings what was never there");
}

#[test]
fn equal_patterns_of_two_versions_excuse_only_each_other() {
    let mut bench = bench();
    bench.writes_pattern(3);
    bench.writes_pattern(5);
    let again = bench.begins_pattern(3);
    assert_eq!(bench.finds_pattern(5), Ok(()));
    assert_eq!(bench.finds_pattern(3), Ok(()), "the one in flight");
    assert_eq!(bench.finds_pattern(5), Err(Fault::Flapped), "only the one in flight can have been seen");
    bench.oracle.end_write(again, true);
    assert_eq!(bench.finds_pattern(5), Err(Fault::Stale));
    assert_eq!(bench.finds_pattern(3), Ok(()));
}

#[test]
fn of_equal_patterns_that_may_both_be_meant_nothing_is_learnt() {
    let mut bench = bench();
    let (one, two) = (bench.begins_pattern(3), bench.begins_pattern(3));
    assert_eq!(bench.finds_pattern(3), Ok(()));
    assert_eq!(bench.sees(0), Ok(()), "neither is known to have been seen");
    bench.oracle.end_write(one, true);
    assert!(bench.sees(0).is_err());
    bench.oracle.end_write(two, true);
    assert_eq!(bench.finds_pattern(3), Ok(()));
}

#[test]
fn a_pattern_in_doubt_teaches_nothing_about_a_newer_one() {
    let mut bench = bench();
    bench.writes_pattern(3);
    let old = bench.write(true);
    bench.oracle.doubt(0, 3..4);
    let newer = bench.begins_pattern(3);
    assert_eq!(bench.finds_pattern(3), Ok(()), "of the first, in doubt, or of the newest");
    assert_eq!(bench.sees(old), Ok(()), "the newest need not have been seen");
    bench.oracle.end_write(newer, true);
    assert_eq!(bench.finds_pattern(3), Ok(()));
    assert!(bench.sees(old).is_err());
}

#[test]
fn a_near_copy_names_its_write_in_the_first_sector_of_a_block() {
    let mut oracle = Oracle::new(&[16], &[Kind::Data(Texture::Copy(2))]);
    let copy = oracle.begin_write(0, Kind::Data(Texture::Copy(9)), 8, 2, false);
    oracle.end_write(copy, true);
    let mut read = |sector: u64, texture, write| {
        let mut bytes = [0; SECTOR];
        content::fill(texture, 0, sector, write, &mut bytes);
        let began = oracle.begin_read();
        oracle.end_read(0, sector, 1, began, |_| &bytes).map_err(|violation| violation.fault)
    };
    assert_eq!(read(8, Texture::Copy(9), copy), Ok(()));
    assert_eq!(read(8, Texture::Copy(9), 0), Err(Fault::Stale));
    assert_eq!(read(9, Texture::Copy(9), copy), Ok(()));
    assert_eq!(read(9, Texture::Copy(2), 0), Err(Fault::Stale));
    assert_eq!(read(10, Texture::Pattern(2), 0), Ok(()), "as at first");
}

/// A unit of two blocks: what a read of it shows, sector by sector, is judged by which writes they are.
#[test]
fn a_unit_is_found_as_a_whole_or_not_at_all() {
    let mut oracle = Oracle::new(&[16], &[UNIQUE]);
    oracle.keep_units(0, 16);
    let mut write = |start, sectors, acknowledged: bool| {
        let number = oracle.begin_write(0, UNIQUE, start, sectors, false);
        if acknowledged {
            oracle.end_write(number, true);
        }
        number
    };
    let first = write(0, 16, true);
    let part = write(4, 2, true);
    let second = write(0, 16, false);
    let other = write(0, 16, false);
    oracle.crash(true);
    let mut sees = |numbers: [u32; 16]| {
        let mut bytes = [[0; SECTOR]; 16];
        for (sector, number) in numbers.iter().enumerate() {
            content::fill(Texture::Unique, 0, sector as u64, *number, &mut bytes[sector]);
        }
        let oracle = &mut oracle;
        let began = oracle.begin_read();
        let units = oracle.check_units(0, 0, 16, &|at| &bytes[at][..]).map_err(|violation| violation.fault);
        oracle.abandon_read(began);
        units
    };
    let mixed = |write: u32, at: usize, beside: u32| std::array::from_fn(|sector| if sector == at { write } else { beside });
    assert_eq!(sees([0; 16]), Ok(()), "nothing of it");
    assert_eq!(sees([first; 16]), Ok(()));
    assert_eq!(sees(mixed(part, 4, first)), Ok(()), "a part that came later, torn or not");
    assert_eq!(sees([second; 16]), Ok(()));
    assert_eq!(sees(mixed(0, 7, first)), Err(Fault::UnitTorn), "what was there before");
    assert_eq!(sees(mixed(part, 4, second)), Err(Fault::UnitTorn), "a part that came earlier");
    assert_eq!(sees(mixed(first, 15, second)), Err(Fault::UnitTorn));
    assert_eq!(sees(mixed(other, 0, second)), Err(Fault::UnitTorn), "two at the same time");
}
