//! A number for each MiB of a volume: whose it is, where that is finer than a file.
//!
//! InnoDB gives a segment whole runs of 64 pages once it has had 32 single ones, so nearly every
//! MiB of a table belongs to one index. What does not is in a sorted list of at most 4096 runs, 16
//! bytes each. A TiB takes 2 MiB, in pieces of 4 KiB that are made when the first of their 2 GiB is
//! known.

use super::runs::{Full, Runs, Value};
use std::ops::Range;
use types::ObjectId;

/// Bytes of a label's extent.
const MIB_BYTES: u64 = 1 << 20;
/// Exceptions are counted in blocks.
const BLOCK_BYTES: u64 = 4096;
const MIB_BLOCKS: u64 = MIB_BYTES / BLOCK_BYTES;
/// Labels of a chunk: 4 KiB of memory, 2 GiB of the volume.
const CHUNK_LABELS: u64 = 2048;
/// Exceptions below a MiB.
const EXCEPTIONS_MAX: usize = 4096;
/// The largest volume: 1 PiB.
const VOLUME_BYTES_MAX: u64 = 1 << 50;
/// Objects that a volume's labels can name.
const OBJECTS_MAX: usize = u16::MAX as usize;

/// Position in the list of objects, plus one; 0 is unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Label(u16);

impl Value for Label {
    fn after(self, _units: u64) -> Label {
        self
    }
}

const _: () = assert!(size_of::<super::runs::Run<Label>>() == 16, "the bound on memory counts on it");

/// Why a label could not be kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LabelError {
    /// It lies beyond the end of the volume.
    #[error("the range ends beyond the volume, which has {volume_bytes} bytes")]
    Beyond {
        /// Size of the volume.
        volume_bytes: u64,
    },
    /// The list of exceptions is full: this part of the volume keeps the label that it had.
    #[error("no room for another exception: {0}")]
    Exceptions(#[from] Full),
    /// The labels name as many objects as they can.
    #[error("the labels of this volume name {OBJECTS_MAX} objects already")]
    Objects,
}

/// The labels of one volume.
#[derive(Debug)]
pub struct Labels {
    volume_bytes: u64,
    chunks: Vec<Option<Box<[Label; CHUNK_LABELS as usize]>>>,
    exceptions: Runs<Label>,
    objects: Vec<ObjectId>,
}

impl Labels {
    /// No labels yet, of a volume of that size; of its first PiB if it is larger.
    pub fn new(volume_bytes: u64) -> Labels {
        let volume_bytes = volume_bytes.min(VOLUME_BYTES_MAX);
        let chunks = volume_bytes.div_ceil(MIB_BYTES * CHUNK_LABELS) as usize;
        Labels {
            volume_bytes,
            chunks: std::iter::repeat_with(|| None).take(chunks).collect(),
            exceptions: Runs::new(EXCEPTIONS_MAX),
            objects: Vec::new(),
        }
    }

    /// Whose a byte is; `None` if that is not known. Two loads where there are no exceptions.
    pub fn at(&self, offset_bytes: u64) -> Option<ObjectId> {
        let exception = self.exceptions.at(offset_bytes / BLOCK_BYTES).map(|run| run.value);
        let label = exception.unwrap_or_else(|| self.of_mib(offset_bytes / MIB_BYTES));
        self.object(label)
    }

    /// Whose a byte is, and up to where all bytes behind it certainly are the same object's: the end of its MiB, or of
    /// its block where the MiB has exceptions.
    pub fn stretch(&self, offset_bytes: u64) -> (Option<ObjectId>, u64) {
        let mib = offset_bytes / MIB_BYTES;
        let mixed = self.exceptions.over(mib * MIB_BLOCKS..(mib + 1) * MIB_BLOCKS).next().is_some();
        let unit = if mixed { BLOCK_BYTES } else { MIB_BYTES };
        (self.at(offset_bytes), (offset_bytes / unit + 1) * unit)
    }

    /// Says whose a range is; blocks that it touches in part are taken whole. An unlabelled MiB
    /// gets its label once all of it is known; until then its parts are exceptions.
    pub fn set(&mut self, bytes: &Range<u64>, object: ObjectId) -> Result<(), LabelError> {
        if bytes.end > self.volume_bytes {
            return Err(LabelError::Beyond { volume_bytes: self.volume_bytes });
        }
        let label = self.label(object)?;
        let blocks = bytes.start / BLOCK_BYTES..bytes.end.div_ceil(BLOCK_BYTES);
        let mut at = blocks.start;
        while at < blocks.end {
            let mib = at / MIB_BLOCKS;
            let whole = mib * MIB_BLOCKS..(mib + 1) * MIB_BLOCKS;
            let part = at..blocks.end.min(whole.end);
            self.set_within(mib, &whole, &part, label)?;
            at = part.end;
        }
        Ok(())
    }

    fn set_within(&mut self, mib: u64, whole: &Range<u64>, part: &Range<u64>, label: Label) -> Result<(), LabelError> {
        if part == whole {
            self.exceptions.clear(whole)?;
            self.label_mib(mib, label);
        } else if self.of_mib(mib) == label {
            self.exceptions.clear(part)?;
        } else {
            self.exceptions.set(part, label)?;
            let known: u64 = self.exceptions.over(whole.clone()).filter(|run| run.value == label).map(|run| u64::from(run.units)).sum();
            if known == MIB_BLOCKS {
                self.exceptions.clear(whole)?;
                self.label_mib(mib, label);
            }
        }
        Ok(())
    }

    fn of_mib(&self, mib: u64) -> Label {
        let chunk = self.chunks.get((mib / CHUNK_LABELS) as usize).and_then(Option::as_ref);
        chunk.map_or(Label(0), |labels| labels[(mib % CHUNK_LABELS) as usize])
    }

    fn label_mib(&mut self, mib: u64, label: Label) {
        let chunk = &mut self.chunks[(mib / CHUNK_LABELS) as usize];
        let labels = chunk.get_or_insert_with(|| Box::new([Label(0); CHUNK_LABELS as usize]));
        labels[(mib % CHUNK_LABELS) as usize] = label;
    }

    fn object(&self, label: Label) -> Option<ObjectId> {
        usize::from(label.0).checked_sub(1).and_then(|index| self.objects.get(index)).copied()
    }

    /// The number of an object, from the list of those that were named before.
    fn label(&mut self, object: ObjectId) -> Result<Label, LabelError> {
        // Ranges of one object often come in a row: the last one is looked at first.
        let index = match self.objects.iter().rposition(|known| *known == object) {
            Some(index) => index,
            None if self.objects.len() == OBJECTS_MAX => return Err(LabelError::Objects),
            None => {
                self.objects.push(object);
                self.objects.len() - 1
            }
        };
        Ok(Label(index as u16 + 1))
    }

    /// Exceptions held.
    pub fn exceptions(&self) -> usize {
        self.exceptions.count()
    }

    /// Memory held, in bytes: 2 MiB a labelled TiB, 144 KiB for exceptions, 4 bytes an object.
    pub fn bytes(&self) -> usize {
        let chunks = self.chunks.iter().flatten().count() * size_of::<[Label; CHUNK_LABELS as usize]>();
        let directory = self.chunks.capacity() * size_of::<Option<Box<[Label; CHUNK_LABELS as usize]>>>();
        size_of::<Labels>() + chunks + directory + self.exceptions.bytes() + self.objects.capacity() * size_of::<ObjectId>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 16 << 10;

    #[test]
    fn labels_are_what_a_plain_array_is() {
        for seed in 1..20u64 {
            const BLOCKS: u64 = 6 * MIB_BLOCKS;
            let (mut labels, mut plain) = (Labels::new(BLOCKS * BLOCK_BYTES), vec![None; BLOCKS as usize]);
            let mut state = seed;
            let mut random = |below: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) % below
            };
            for _ in 0..800 {
                let start = random(BLOCKS);
                let longest = if random(5) == 0 { 600 } else { 80 };
                let end = (start + 1 + random(longest)).min(BLOCKS);
                let object = ObjectId(random(4) as u32 * 1000);
                labels.set(&(start * BLOCK_BYTES + 1..end * BLOCK_BYTES), object).expect("room");
                plain[start as usize..end as usize].fill(Some(object));
            }
            for (block, expected) in plain.iter().enumerate() {
                assert_eq!(labels.at(block as u64 * BLOCK_BYTES + 77), *expected, "seed {seed}, block {block}");
            }
            // Stretch by stretch it is the same.
            let mut at = 0;
            while at < BLOCKS * BLOCK_BYTES {
                let (object, end) = labels.stretch(at + 77);
                assert!(end > at && end % BLOCK_BYTES == 0, "seed {seed}: {at} to {end}");
                assert!(plain[(at / BLOCK_BYTES) as usize..(end / BLOCK_BYTES) as usize].iter().all(|known| *known == object));
                at = end;
            }
        }
    }

    #[test]
    fn a_table_of_two_indexes_takes_few_exceptions() {
        let mut labels = Labels::new(1 << 40);
        // 32 single pages that alternate, then runs of 64 pages; read page by page.
        for page in 0..64 * 200u64 {
            let index = if page < 64 { page % 2 } else { page / 64 % 2 };
            labels.set(&(page * PAGE..(page + 1) * PAGE), ObjectId(index as u32)).expect("room");
        }
        assert_eq!(labels.exceptions(), 64, "the single pages");
        assert_eq!(labels.at(PAGE), Some(ObjectId(1)));
        assert_eq!(labels.at(100 * MIB_BYTES), Some(ObjectId(0)));
        assert_eq!(labels.at(500 * MIB_BYTES), None);
        assert!(labels.bytes() < 16 << 10, "{}", labels.bytes());
    }

    #[test]
    fn a_labelled_tib_takes_little_more_than_two_mib() {
        let mut labels = Labels::new(1 << 40);
        labels.set(&(0..1 << 40), ObjectId(5)).expect("room");
        assert!(labels.bytes() < (2 << 20) + (16 << 10), "{}", labels.bytes());
        assert_eq!(labels.at((1 << 40) - 1), Some(ObjectId(5)));
        assert_eq!(labels.at(1 << 40), None);
        let beyond = labels.set(&(0..(1 << 40) + 1), ObjectId(5));
        assert_eq!(beyond, Err(LabelError::Beyond { volume_bytes: 1 << 40 }));
        assert_eq!(labels.set(&(u64::MAX - 1..u64::MAX), ObjectId(5)), beyond);
    }

    #[test]
    fn exceptions_are_bounded_and_the_rest_keeps_its_label() {
        let mut labels = Labels::new(1 << 40);
        let refused = (0..10_000u64).filter(|at| labels.set(&(at * 8192..at * 8192 + 4096), ObjectId(*at as u32 % 7)).is_err());
        assert_eq!(refused.count(), 10_000 - (EXCEPTIONS_MAX - 1));
        assert_eq!(labels.at(9_000 * 8192), None);
        assert!(labels.bytes() < 200 << 10, "{}", labels.bytes());
        labels.set(&(0..1 << 30), ObjectId(3)).expect("whole MiBs need no exceptions");
        assert_eq!(labels.exceptions(), 0);
    }
}
