//! A watch as bytes, to go on with after the program was restarted.
//!
//! ```text
//!    0 magic "HRTHWTCH"   8 crc32c of bytes 12..   12 version u32   16 length of the note u32
//!   20 the note of who saves it, as it is; then the watch: limits, how writes act, totals, the window's
//!      length; of each load its lines (hashes in the order of their use), its profile and its slices; the
//!      uses that are kept
//! ```
//!
//! Numbers are little-endian. Of times only the window's length is in it: the time between is no part of
//! the window. Counts by class of distance are pairs of class and weight, since most classes are empty.
//!
//! What is read may be anything: nothing in it is believed before it was checked, and what is taken in
//! memory is bounded by the limits of a watch.

use crate::buckets::BUCKETS;
use crate::watch::Watch;
use format::checksum::crc32c;

const MAGIC: &[u8; 8] = b"HRTHWTCH";
/// Of the layout. Of another one nothing is read.
pub const VERSION: u32 = 1;
/// Where what the checksum covers begins.
const COVERED_AT: usize = 12;
/// The longest note, in bytes.
pub const NOTE_BYTES_MAX: usize = 64 << 10;
/// The longest watch with its note, in bytes. With as many uses as may be kept it takes a little
/// more than 4 MiB.
pub const BYTES_MAX: usize = 6 << 20;
/// No count is larger. So that neither what is added to it later overflows nor its bytes, of blocks.
const COUNT_MAX: u64 = 1 << 50;

/// Why bytes are no watch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unreadable {
    /// They do not begin as a watch does.
    NotAWatch,
    /// They are not what was written.
    Damaged,
    /// Another program wrote them.
    OtherVersion(u32),
    /// They are what was written, and what is named here is invalid.
    Nonsense(&'static str),
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unreadable::NotAWatch => write!(f, "it does not begin as such a file does"),
            Unreadable::Damaged => write!(f, "its checksum is wrong"),
            Unreadable::OtherVersion(version) => write!(f, "it has the layout {version}, and this program reads {VERSION}"),
            Unreadable::Nonsense(what) => write!(f, "its content is invalid ({what})"),
        }
    }
}

/// The watch, with a note of [`NOTE_BYTES_MAX`] at most.
///
/// # Panics
/// If the note is longer.
#[must_use]
pub fn to_bytes(watch: &Watch, note: &[u8]) -> Vec<u8> {
    assert!(note.len() <= NOTE_BYTES_MAX, "a note of {} bytes", note.len());
    let mut out = Out(Vec::new());
    out.0.extend_from_slice(MAGIC);
    out.u32(0);
    out.u32(VERSION);
    out.u32(note.len() as u32);
    out.0.extend_from_slice(note);
    watch.put(&mut out);
    let crc = crc32c(&out.0[COVERED_AT..]);
    out.0[COVERED_AT - 4..COVERED_AT].copy_from_slice(&crc.to_le_bytes());
    out.0
}

/// The watch and the note. Its window ends now.
///
/// # Errors
/// Why these are not the bytes of a watch.
pub fn from_bytes(bytes: &[u8], now_ms: u64) -> Result<(Watch, Vec<u8>), Unreadable> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(Unreadable::NotAWatch)?;
    let (crc, covered) = rest.split_first_chunk().ok_or(Unreadable::Damaged)?;
    if u32::from_le_bytes(*crc) != crc32c(covered) {
        return Err(Unreadable::Damaged);
    }
    let mut from = In(covered);
    let version = from.u32()?;
    if version != VERSION {
        return Err(Unreadable::OtherVersion(version));
    }
    let note_bytes = from.u32()? as usize;
    if note_bytes > NOTE_BYTES_MAX {
        return Err(Unreadable::Nonsense("the length of its note"));
    }
    let note = from.bytes(note_bytes)?.to_vec();
    let watch = Watch::take(&mut from, now_ms)?;
    if from.0.is_empty() { Ok((watch, note)) } else { Err(Unreadable::Nonsense("what comes behind its end")) }
}

/// Bytes that are written.
pub(crate) struct Out(Vec<u8>);

impl Out {
    pub(crate) fn u8(&mut self, number: u8) {
        self.0.push(number);
    }

    pub(crate) fn u32(&mut self, number: u32) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(crate) fn f64(&mut self, number: f64) {
        self.u64(number.to_bits());
    }

    /// So many, and each.
    pub(crate) fn u64s(&mut self, numbers: &[u64]) {
        self.u32(numbers.len() as u32);
        numbers.iter().for_each(|number| self.u64(*number));
    }

    /// Weights by class of distance.
    pub(crate) fn weights(&mut self, weights: &[f32]) {
        let some = || weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0);
        self.u32(some().count() as u32);
        for (bucket, weight) in some() {
            self.0.extend_from_slice(&(bucket as u16).to_le_bytes());
            self.u32(weight.to_bits());
        }
    }
}

/// Bytes that are read.
pub(crate) struct In<'a>(&'a [u8]);

impl<'a> In<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Unreadable> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(Unreadable::Nonsense("its length"))?;
        self.0 = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Unreadable> {
        let (array, rest) = self.0.split_first_chunk().ok_or(Unreadable::Nonsense("its length"))?;
        self.0 = rest;
        Ok(*array)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Unreadable> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Unreadable> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Unreadable> {
        self.array().map(u64::from_le_bytes)
    }

    /// A number that others are added to.
    pub(crate) fn count(&mut self) -> Result<u64, Unreadable> {
        self.u64().and_then(|count| if count <= COUNT_MAX { Ok(count) } else { Err(Unreadable::Nonsense("a count")) })
    }

    /// A sum of weights.
    pub(crate) fn sum(&mut self) -> Result<f64, Unreadable> {
        let sum = f64::from_bits(self.u64()?);
        if (0.0..=COUNT_MAX as f64).contains(&sum) { Ok(sum) } else { Err(Unreadable::Nonsense("a sum")) }
    }

    /// At most so many numbers.
    pub(crate) fn u64s(&mut self, most: usize) -> Result<impl Iterator<Item = u64> + use<'a>, Unreadable> {
        let count = self.u32()? as usize;
        if count > most {
            return Err(Unreadable::Nonsense("more lines or uses than it may have"));
        }
        let (numbers, _) = self.bytes(count * 8)?.as_chunks::<8>();
        Ok(numbers.iter().map(|number| u64::from_le_bytes(*number)))
    }

    /// Weights by class of distance.
    pub(crate) fn weights(&mut self, to: &mut [f32; BUCKETS]) -> Result<(), Unreadable> {
        let wrong = Unreadable::Nonsense("a weight");
        let mut next = 0;
        for _ in 0..self.u32()? {
            let bucket = usize::from(u16::from_le_bytes(self.array()?));
            let weight = f32::from_bits(self.u32()?);
            let place = to.get_mut(bucket).filter(|_| bucket >= next).ok_or(wrong)?;
            if !(weight > 0.0 && weight <= COUNT_MAX as f32) {
                return Err(wrong);
            }
            (*place, next) = (weight, bucket + 1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line_hash;
    use crate::load::Writes;
    use crate::watch::{Limits, Seen, Totals};

    /// Where the note begins.
    const NOTE_AT: usize = 20;

    /// Random numbers that are the same each time.
    struct Chance(u64);

    impl Chance {
        fn below(&mut self, end: u64) -> u64 {
            self.0 += 1;
            line_hash(self.0, 11) % end
        }
    }

    /// What a load does to a watch; times are counted from `begun_ms`.
    fn happens(watch: &mut Watch, chance: &mut Chance, begun_ms: u64, now_ms: &mut u64) {
        match chance.below(2000) {
            0 => watch.remove(chance.below(3000), 1 + chance.below(500)),
            1 => watch.lower_to(watch.below() - watch.below() / 50),
            2 if chance.below(4) == 0 => watch.restart(begun_ms + *now_ms),
            3 => {
                let Limits { lines, uses } = watch.limits();
                watch.shrink(Limits { lines: lines - lines / 20, uses: uses - uses / 20 });
            }
            4 => watch.set_writes([Writes::Enter, Writes::Refresh, Writes::Remove][chance.below(3) as usize]),
            _ => {
                *now_ms += chance.below(400);
                watch.advance(begun_ms + *now_ms);
                let (is_write, is_scan) = (chance.below(5) == 0, chance.below(6) == 0);
                let most = 1 + chance.below(4000);
                let block = chance.below(most);
                watch.count(match (is_write, is_scan) {
                    (true, _) => Totals { written_blocks: 1, ..Totals::default() },
                    (_, true) => Totals { scanned_blocks: 1, ..Totals::default() },
                    _ => Totals { read_blocks: 1, ..Totals::default() },
                });
                watch.see(Seen { block, is_write, is_scan, time_ms: begun_ms + *now_ms });
            }
        }
    }

    fn watch(seed: u64) -> (Watch, Chance, u64) {
        let mut chance = Chance(seed << 32);
        let limits = Limits { lines: 100 + chance.below(3000) as usize, uses: 1000 + chance.below(20_000) as usize };
        let mut watch = Watch::new(7000, Writes::Refresh, limits);
        let mut now_ms = 0;
        for _ in 0..chance.below(40_000) {
            happens(&mut watch, &mut chance, 7000, &mut now_ms);
        }
        (watch, chance, now_ms)
    }

    /// All that is told of them is the same; sizes bit by bit.
    fn are_alike(one: &Watch, other: &Watch) {
        for with_scans in [false, true] {
            let (one, other) = (one.load(with_scans), other.load(with_scans));
            assert_eq!(one.window_ms(), other.window_ms());
            assert_eq!(one.profile(), other.profile());
            assert_eq!((one.stack().lines(), one.stack().threshold()), (other.stack().lines(), other.stack().threshold()));
            for share in [0.5, 0.9, 0.99] {
                assert_eq!(one.size_for(share), other.size_for(share));
                assert_eq!(one.told_size_for(share), other.told_size_for(share));
            }
            let lines = (0..40).map(|power| 1.5_f64.powi(power));
            assert!(lines.clone().map(|lines| one.curve().hits(lines)).eq(lines.map(|lines| other.curve().hits(lines))));
        }
        assert!(one.kept().uses().eq(other.kept().uses()));
        assert_eq!(
            (one.totals(), one.limits(), one.writes(), one.below()),
            (other.totals(), other.limits(), other.writes(), other.below())
        );
        assert!(to_bytes(one, b"") == to_bytes(other, b""), "something of it is told by nothing above");
    }

    #[test]
    fn a_watch_that_was_saved_goes_on_as_if_it_had_never_stopped() {
        for seed in 0..12 {
            let (mut went_on, mut chance, mut now_ms) = watch(seed);
            let bytes = to_bytes(&went_on, &seed.to_le_bytes());
            assert!(bytes.len() < BYTES_MAX);
            // Another start of the machine: its clock is elsewhere.
            let begun_ms = (1 << 40) + seed * 1_000_003;
            let (mut saved, note) = from_bytes(&bytes, begun_ms + now_ms).expect("it was just written");
            assert_eq!(note, seed.to_le_bytes());
            are_alike(&went_on, &saved);
            let (mut again, mut now_too_ms) = (Chance(chance.0), now_ms);
            for _ in 0..20_000 {
                happens(&mut went_on, &mut chance, 7000, &mut now_ms);
                happens(&mut saved, &mut again, begun_ms, &mut now_too_ms);
            }
            are_alike(&went_on, &saved);
        }
    }

    /// The most that there can be.
    #[test]
    fn the_largest_watch_is_not_too_large() {
        let limits = Limits::for_each_of(1, u64::MAX).expect("there is room");
        let mut watch = Watch::new(0, Writes::Enter, limits);
        for n in 0..limits.uses as u64 {
            let block = line_hash(n, 1) % (1 << 34);
            watch.advance(n);
            watch.count(Totals { read_blocks: 1, ..Totals::default() });
            watch.see(Seen { block, is_write: false, is_scan: false, time_ms: n });
        }
        let bytes = to_bytes(&watch, &[0; NOTE_BYTES_MAX]);
        assert!((4 << 20..BYTES_MAX).contains(&bytes.len()), "{} bytes", bytes.len());
        are_alike(&watch, &from_bytes(&bytes, 1 << 30).expect("it was just written").0);
    }

    #[test]
    fn what_was_cut_or_changed_is_an_error() {
        let (watch, mut chance, now_ms) = watch(3);
        let mut bytes = to_bytes(&watch, b"a note");
        // Each cut of the first and the last, and some of those between.
        let cuts = (0..200).chain((0..200).map(|back| bytes.len() - 1 - back)).chain((200..bytes.len()).step_by(997));
        for cut in cuts {
            assert!(from_bytes(&bytes[..cut], now_ms + 7000).is_err(), "cut at {cut}");
        }
        for n in 0..2000 {
            let bit = if n < 400 { n } else { chance.below(bytes.len() as u64 * 8) } as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(from_bytes(&bytes, now_ms + 7000).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(from_bytes(&bytes, now_ms + 7000).is_ok());
        assert!(matches!(from_bytes(&bytes, 10), Err(Unreadable::Nonsense(_))), "a window longer than there was time");
        bytes.push(0);
        assert_eq!(from_bytes(&bytes, now_ms + 7000).err(), Some(Unreadable::Damaged));
        assert_eq!(from_bytes(b"", 0).err(), Some(Unreadable::NotAWatch));
        assert_eq!(from_bytes(&[0; 4096], 0).err(), Some(Unreadable::NotAWatch));
    }

    /// Whoever can compute a checksum can write anything: no panic, then and later, and no more
    /// memory than a watch has.
    #[test]
    fn what_others_made_with_a_good_checksum_does_no_harm() {
        let (watch, mut chance, now_ms) = watch(5);
        let good = to_bytes(&watch, b"");
        let (mut read, mut refused) = (0, 0);
        for n in 0..3000_usize {
            let mut bytes = good.clone();
            // The heads of the parts are among the first bytes; others are anywhere.
            for _ in 0..1 + chance.below(3) {
                let at = NOTE_AT as u64 + if n % 2 == 0 { chance.below(120) } else { chance.below((good.len() - NOTE_AT) as u64) };
                bytes[at as usize] = [0, 1, 0x7f, 0xff, chance.below(256) as u8][chance.below(5) as usize];
            }
            if n % 3 == 0 {
                bytes.truncate(NOTE_AT + chance.below((good.len() - NOTE_AT) as u64) as usize);
            }
            let crc = crc32c(&bytes[COVERED_AT..]);
            bytes[COVERED_AT - 4..COVERED_AT].copy_from_slice(&crc.to_le_bytes());
            let Ok((mut watch, _)) = from_bytes(&bytes, 7000 + now_ms) else {
                refused += 1;
                continue;
            };
            read += 1;
            let mut now_ms = now_ms;
            (0..200).for_each(|_| happens(&mut watch, &mut chance, 7000, &mut now_ms));
            let told = (watch.load(true).told_size_for(0.9), watch.load(false).curve().hits(100.0));
            assert!(told.1.is_finite(), "{told:?}");
            watch.shrink(Limits { lines: 10, uses: 10 });
            watch.advance(u64::MAX / 2);
        }
        assert!(read > 100 && refused > 1000, "{read} read, {refused} refused");
        let mut other = good;
        other[COVERED_AT] = 9;
        let crc = crc32c(&other[COVERED_AT..]);
        other[COVERED_AT - 4..COVERED_AT].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(from_bytes(&other, 0).err(), Some(Unreadable::OtherVersion(9)));
    }
}
