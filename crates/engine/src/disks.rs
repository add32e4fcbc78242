//! The table of the disks beside the cache, in its two copies.
//!
//! One copy is whole at any moment: the second is written when the first is flushed. What the table gives to a disk the cache does not use, and the
//! other way round: [`may_format`] says so before a cache is made, whatever its caller believes.

use crate::medium::{Medium, MediumError};
use crate::superblock::OpenError;
use alloc::vec;
use alloc::vec::Vec;
use format::disks::{DISKS_SLOT_BYTES, DiskTable, disks_offset_bytes};
use format::layout::SuperblockSlot;
use format::{DecodeError, PAGE_BYTES};

fn read_copy(medium: &mut dyn Medium, slot: SuperblockSlot) -> Result<Result<DiskTable, DecodeError>, MediumError> {
    let offset_bytes = disks_offset_bytes(slot);
    if offset_bytes + DISKS_SLOT_BYTES > medium.size_bytes() {
        return Ok(Err(DecodeError::Magic));
    }
    let mut bytes = vec![0; DISKS_SLOT_BYTES as usize];
    medium.read(offset_bytes, &mut bytes)?;
    Ok(DiskTable::decode(&bytes))
}

/// The table on the medium, the newer of two whole copies; `None` if there never was one.
///
/// # Errors
/// If there is one that cannot be read: then nobody knows what belongs to disks.
pub fn load(medium: &mut dyn Medium) -> Result<Option<DiskTable>, OpenError> {
    let mut best: Option<DiskTable> = None;
    let mut trouble = None;
    for slot in SuperblockSlot::ALL {
        match read_copy(medium, slot) {
            Ok(Ok(table)) => best = best.filter(|other| other.generation >= table.generation).or(Some(table)),
            Ok(Err(DecodeError::Magic)) => {}
            Ok(Err(DecodeError::Version { found })) => return Err(OpenError::NewerVersion { found }),
            Ok(Err(DecodeError::Checksum | DecodeError::Field { .. })) => trouble = trouble.or(Some(OpenError::DisksDamaged)),
            Err(error) => trouble = Some(OpenError::Medium(error)),
        }
    }
    match (best, trouble) {
        (Some(table), _) => Ok(Some(table)),
        (None, Some(trouble)) => Err(trouble),
        (None, None) => Ok(None),
    }
}

/// Stores the table with the generation after the one that is there. When this returns, it survives any crash and the loss of one copy.
///
/// # Errors
/// What the medium says; then it has the old table or the new one.
///
/// # Panics
/// If the table contradicts itself.
pub fn store(medium: &mut dyn Medium, table: &mut DiskTable) -> Result<(), OpenError> {
    let stored = match load(medium) {
        Ok(stored) => stored.map_or(0, |stored| stored.generation),
        // Neither copy counts for anybody: whatever is written now outranks them.
        Err(OpenError::DisksDamaged | OpenError::Medium(_)) => 0,
        Err(other) => return Err(other),
    };
    table.generation = stored.max(table.generation) + 1;
    let bytes = table.encode();
    for slot in SuperblockSlot::ALL {
        medium.write(disks_offset_bytes(slot), &bytes)?;
        medium.flush()?;
    }
    Ok(())
}

/// What had to be mended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mended {
    /// Both copies are whole, or there never was one.
    Nothing,
    /// One copy could not be read: it is as the other one now.
    OneCopy,
    /// Neither could be read: they are as they are known to have been.
    Both,
}

/// Writes the table again where a copy of it is damaged: from the other one or, where both are, as `known`.
///
/// # Errors
/// What the medium says, and if a newer release wrote the table.
///
/// # Panics
/// If `known` contradicts itself.
pub fn mend(medium: &mut dyn Medium, known: &mut DiskTable) -> Result<Mended, OpenError> {
    let mut whole: Vec<DiskTable> = Vec::new();
    let mut damaged = false;
    for slot in SuperblockSlot::ALL {
        match read_copy(medium, slot) {
            Ok(Ok(table)) => whole.push(table),
            Ok(Err(DecodeError::Version { found })) => return Err(OpenError::NewerVersion { found }),
            Ok(Err(DecodeError::Magic)) => {}
            Ok(Err(DecodeError::Checksum | DecodeError::Field { .. })) | Err(_) => damaged = true,
        }
    }
    whole.sort_by_key(|table| table.generation);
    let count = whole.len();
    match whole.pop() {
        Some(_) if count == 2 => Ok(Mended::Nothing),
        Some(mut table) => store(medium, &mut table).map(|()| Mended::OneCopy),
        None if damaged => store(medium, known).map(|()| Mended::Both),
        None => Ok(Mended::Nothing),
    }
}

/// Makes the medium carry no table.
///
/// # Errors
/// What the medium says.
pub fn wipe(medium: &mut dyn Medium) -> Result<(), OpenError> {
    for slot in SuperblockSlot::ALL {
        if disks_offset_bytes(slot) + DISKS_SLOT_BYTES <= medium.size_bytes() {
            medium.write(disks_offset_bytes(slot), &[0; PAGE_BYTES])?;
        }
    }
    Ok(medium.flush()?)
}

/// Whether a cache may take the first `log_bytes` of the medium: no disk begins before.
///
/// # Errors
/// If the table cannot be read.
pub fn may_format(medium: &mut dyn Medium, log_bytes: u64) -> Result<bool, OpenError> {
    let first = load(medium)?.and_then(|table| table.pieces().first().map(|piece| piece.offset_bytes));
    Ok(first.is_none_or(|first| log_bytes <= first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use format::disks::{DiskPlace, Piece};

    /// A medium whose power goes at a write or flush, with any part of what was not flushed kept.
    struct Cut {
        bytes: Vec<u8>,
        durable: Vec<u8>,
        left: u32,
        keep_pages: u32,
    }

    const CUT: MediumError = MediumError { operation: "write", offset_bytes: 0, errno: 5 };

    impl Cut {
        fn step(&mut self) -> Result<(), MediumError> {
            self.left = self.left.checked_sub(1).ok_or(CUT)?;
            Ok(())
        }
    }

    impl Medium for Cut {
        fn size_bytes(&self) -> u64 {
            self.bytes.len() as u64
        }

        fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), MediumError> {
            into.copy_from_slice(&self.bytes[offset_bytes as usize..][..into.len()]);
            Ok(())
        }

        fn write(&mut self, offset_bytes: u64, from: &[u8]) -> Result<(), MediumError> {
            let at = offset_bytes as usize;
            if self.step().is_err() {
                // Torn: some sectors of it.
                let kept = (self.keep_pages as usize * 512).min(from.len());
                self.durable[at..at + kept].copy_from_slice(&from[..kept]);
                return Err(CUT);
            }
            self.bytes[at..at + from.len()].copy_from_slice(from);
            Ok(())
        }

        fn flush(&mut self) -> Result<(), MediumError> {
            self.step()?;
            self.durable.clone_from(&self.bytes);
            Ok(())
        }

        fn discard(&mut self, _: u64, _: u64) -> Result<(), MediumError> {
            Ok(())
        }
    }

    fn table(disks: u64) -> DiskTable {
        let place = |number: u64| DiskPlace {
            uuid: [number as u8; 16],
            name: number.to_string(),
            pieces: vec![Piece { offset_bytes: (2 << 20) + number * 8192, size_bytes: 8192 }],
        };
        DiskTable { generation: 1, room_at_bytes: 2 << 20, room_end_bytes: 4 << 20, disks: (0..disks).map(place).collect() }
    }

    #[test]
    fn a_cut_at_any_step_leaves_the_old_table_or_the_new_one() {
        for steps in 0..=4 {
            for keep_pages in [0, 1, 3, 8, 32] {
                let mut medium = Cut { bytes: vec![0; 4 << 20], durable: vec![0; 4 << 20], left: 100, keep_pages };
                assert_eq!(load(&mut medium), Ok(None));
                let mut old = table(1);
                store(&mut medium, &mut old).expect("nothing fails");
                medium.left = steps;
                let mut new = table(40);
                let stored = store(&mut medium, &mut new);
                assert_eq!(stored.is_ok(), steps == 4);
                medium.bytes = medium.durable.clone();
                medium.left = 100;
                let found = load(&mut medium).expect("one copy is whole").expect("there is a table");
                assert!(found.disks == old.disks || found.disks == new.disks, "{steps} steps, {keep_pages} sectors kept");
                assert!(stored.is_err() || found == new);
                // And it can be stored again.
                store(&mut medium, &mut new).expect("nothing fails");
                assert_eq!(load(&mut medium), Ok(Some(new)));
            }
        }
    }

    #[test]
    fn damaged_copies_are_mended_and_missing_ones_are_not_made_up() {
        let mut medium = Cut { bytes: vec![0; 4 << 20], durable: vec![0; 4 << 20], left: 1000, keep_pages: 0 };
        let mut known = table(3);
        assert_eq!(mend(&mut medium, &mut known), Ok(Mended::Nothing));
        assert_eq!(load(&mut medium), Ok(None), "an SSD that has none is not given one");
        let mut stored = table(2);
        store(&mut medium, &mut stored).expect("nothing fails");
        let [a, b] = SuperblockSlot::ALL.map(|slot| disks_offset_bytes(slot) as usize);
        for (damage, mended, disks) in
            [(&[a + 70][..], Mended::OneCopy, 2), (&[b], Mended::OneCopy, 2), (&[a + 70, b + 70], Mended::Both, 3)]
        {
            damage.iter().for_each(|at| medium.bytes[*at] ^= 1);
            assert_eq!(mend(&mut medium, &mut known), Ok(mended));
            assert_eq!(mend(&mut medium, &mut known), Ok(Mended::Nothing), "both are whole now");
            assert_eq!(load(&mut medium).expect("it is whole").expect("it is there").disks.len(), disks);
        }
    }

    #[test]
    fn no_log_is_made_over_a_disk() {
        let mut medium = Cut { bytes: vec![0; 4 << 20], durable: vec![0; 4 << 20], left: 100, keep_pages: 0 };
        assert_eq!(may_format(&mut medium, 4 << 20), Ok(true));
        store(&mut medium, &mut table(3)).expect("nothing fails");
        assert_eq!(may_format(&mut medium, 2 << 20), Ok(true));
        assert_eq!(may_format(&mut medium, (2 << 20) + 4096), Ok(false));
        wipe(&mut medium).expect("nothing fails");
        assert_eq!(load(&mut medium), Ok(None));
    }
}
