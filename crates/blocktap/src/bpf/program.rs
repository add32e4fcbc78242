//! The program that runs in the kernel at each request that is queued on any disk, and the record
//! that it leaves.
//!
//! ```text
//!   record, 56 bytes:  0 time_ns · 8 sector · 16 pid and tid · 24 sectors u32 · 28 letters 12 · 40 comm 16
//! ```
//! Requests of other disks cost three instructions.

use super::assembler::Register::{R0, R1, R2, R3, R6, R7, R8, R9};
use super::assembler::{Helper, Instruction, When, Width};
use crate::event::{Comm, Event, Op, bytes_of};
use crate::format::{BioQueue, Field, LETTERS_MAX};
use crate::watched::Watched;

/// Length of a record.
pub const RECORD_BYTES: u16 = 56;
/// The same in words.
pub const RECORD_WORDS: usize = RECORD_BYTES as usize / 8;

const TIME: i16 = 0;
const SECTOR: i16 = 8;
const PID_TID: i16 = 16;
const SECTORS: i16 = 24;
const LETTERS: i16 = 28;
const COMM: i16 = 40;
const COMM_BYTES: i32 = 16;

const _: () = assert!(LETTERS as u16 + LETTERS_MAX == COMM as u16 && COMM as u16 + COMM_BYTES as u16 == RECORD_BYTES);

/// `BPF_RB_NO_WAKEUP`: to wake the reader each time would cost three to four times as much as the
/// rest. The reader looks by itself.
const NO_WAKEUP: i32 = 1;

/// The program for the requests of one device. `ring` and `lost` are descriptors: of the ring
/// buffer, and of an array whose first value counts the records that found no room.
pub fn program(fields: &BioQueue, watched: &Watched, ring: i32, lost: i32) -> Vec<Instruction> {
    use Instruction as I;
    let load = |to, field: Field| I::Load {
        to,
        from: R6,
        offset: field.offset as i16,
        width: if field.bytes == 8 { Width::U64 } else { Width::U32 },
    };
    let mut program = vec![
        // r6: the tracepoint's record; r7: first sector; r8: how many; r9: our record.
        I::Copy { to: R6, from: R1 },
        load(R1, fields.dev),
        I::Jump(When::LowIsNot(R1, watched.kernel_number()), "done"),
        load(R7, fields.sector),
        load(R8, fields.nr_sector),
    ];
    if let Some(part) = watched.range() {
        program.extend([
            // A flush without data has no place.
            I::Jump(When::Is(R8, 0), "ours"),
            I::SetWide { to: R1, value: part.start_sector },
            I::Jump(When::Below(R7, R1), "done"),
            I::SetWide { to: R1, value: part.end_sector },
            I::Jump(When::NotBelow(R7, R1), "done"),
            I::Here("ours"),
        ]);
    }
    program.extend([
        I::SetMap { to: R1, map: ring },
        I::Set { to: R2, value: i32::from(RECORD_BYTES) },
        I::Set { to: R3, value: 0 },
        I::Call(Helper::RingbufReserve),
        I::Jump(When::Is(R0, 0), "full"),
        I::Copy { to: R9, from: R0 },
        I::Call(Helper::KtimeGetNs),
        I::Store { to: R9, offset: TIME, from: R0, width: Width::U64 },
        I::Store { to: R9, offset: SECTOR, from: R7, width: Width::U64 },
        I::Call(Helper::GetCurrentPidTgid),
        I::Store { to: R9, offset: PID_TID, from: R0, width: Width::U64 },
        I::Store { to: R9, offset: SECTORS, from: R8, width: Width::U32 },
    ]);
    program.extend(letters(fields.rwbs));
    program.extend([
        I::Copy { to: R1, from: R9 },
        I::Add { to: R1, value: i32::from(COMM) },
        I::Set { to: R2, value: COMM_BYTES },
        I::Call(Helper::GetCurrentComm),
        I::Copy { to: R1, from: R9 },
        I::Set { to: R2, value: NO_WAKEUP },
        I::Call(Helper::RingbufSubmit),
        I::JumpAlways("done"),
        I::Here("full"),
        I::SetMapValue { to: R1, map: lost },
        I::Set { to: R2, value: 1 },
        I::AddAtomic { to: R1, from: R2 },
        // 0: perf itself has nothing to do with the event.
        I::Here("done"),
        I::Set { to: R0, value: 0 },
        I::Exit,
    ]);
    program
}

/// Copies the letters in the widest steps that both places allow, and clears the rest: the ring
/// holds what was there before.
fn letters(field: Field) -> Vec<Instruction> {
    let widest = |alignment: u16, bytes: u16| {
        let fits = |width: &Width| alignment.is_multiple_of(width.bytes()) && width.bytes() <= bytes;
        [Width::U64, Width::U32, Width::U16].into_iter().find(fits).unwrap_or(Width::U8)
    };
    let mut steps = Vec::new();
    let mut done = 0;
    while done < LETTERS_MAX {
        let to = LETTERS as u16 + done;
        let width = if done < field.bytes {
            let from = field.offset + done;
            // A multiple of the width is one in both places where it is one in their union.
            let width = widest(from | to, field.bytes - done);
            steps.push(Instruction::Load { to: R1, from: R6, offset: from as i16, width });
            steps.push(Instruction::Store { to: R9, offset: to as i16, from: R1, width });
            width
        } else {
            let width = widest(to, LETTERS_MAX - done);
            steps.push(Instruction::StoreValue { to: R9, offset: to as i16, value: 0, width });
            width
        };
        done += width.bytes();
    }
    steps
}

/// What a record tells; `None` if it is not of the device.
pub fn event(record: &[u64; RECORD_WORDS], watched: &Watched) -> Option<Event> {
    let mut bytes = [0; RECORD_BYTES as usize];
    for (to, word) in bytes.chunks_exact_mut(8).zip(record) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    let word = |offset: i16| record[offset as usize / 8];
    let sectors = &bytes[SECTORS as usize..][..4];
    let sectors = u32::from_ne_bytes([sectors[0], sectors[1], sectors[2], sectors[3]]);
    let letters = &bytes[LETTERS as usize..COMM as usize];
    Some(Event {
        time_ns: word(TIME),
        sector: watched.sector(word(SECTOR), sectors)?,
        bytes: bytes_of(sectors),
        op: Op::of_letters(letters, sectors),
        pid: Some((word(PID_TID) >> 32) as u32),
        tid: word(PID_TID) as u32,
        comm: Comm::of(&bytes[COMM as usize..]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::assembler::assemble;
    use crate::format::tests::LINUX_6_18;

    fn listing(fields: &BioQueue, watched: &Watched) -> String {
        program(fields, watched, 3, 4).iter().map(|instruction| format!("{instruction}\n")).collect()
    }

    #[test]
    fn the_listing_for_a_partition() {
        let fields = BioQueue::parse(LINUX_6_18).expect("valid");
        let text = listing(&fields, &Watched::part(7, 0, 2048, 1000));
        assert_eq!(
            text,
            "    r6 = r1
    r1 = *(u32) (r6 + 8)
    if (u32) r1 != 0x700000 goto done
    r7 = *(u64) (r6 + 16)
    r8 = *(u32) (r6 + 24)
    if r8 == 0 goto ours
    r1 = 2048 (u64)
    if r7 < r1 goto done
    r1 = 3048 (u64)
    if r7 >= r1 goto done
ours:
    r1 = map 3
    r2 = 56
    r3 = 0
    r0 = RingbufReserve()
    if r0 == 0 goto full
    r9 = r0
    r0 = KtimeGetNs()
    *(u64) (r9 + 0) = r0
    *(u64) (r9 + 8) = r7
    r0 = GetCurrentPidTgid()
    *(u64) (r9 + 16) = r0
    *(u32) (r9 + 24) = r8
    r1 = *(u32) (r6 + 28)
    *(u32) (r9 + 28) = r1
    r1 = *(u32) (r6 + 32)
    *(u32) (r9 + 32) = r1
    r1 = *(u16) (r6 + 36)
    *(u16) (r9 + 36) = r1
    *(u16) (r9 + 38) = 0
    r1 = r9
    r1 += 40
    r2 = 16
    r0 = GetCurrentComm()
    r1 = r9
    r2 = 1
    r0 = RingbufSubmit()
    goto done
full:
    r1 = first value of map 4
    r2 = 1
    lock *(u64) (r1 + 0) += r2
done:
    r0 = 0
    return r0
"
        );
    }

    #[test]
    fn a_whole_disk_needs_no_range_and_other_kernels_other_offsets() {
        let fields = BioQueue::parse(LINUX_6_18).expect("valid");
        let disk = program(&fields, &Watched::disk(8, 16), 3, 4);
        assert!(!disk.contains(&Instruction::Here("ours")));
        assert_eq!(assemble(&disk).len(), 39);
        let old = LINUX_6_18.replace("rwbs[10];	offset:28;	size:10;", "rwbs[8];	offset:29;	size:8;");
        let text = listing(&BioQueue::parse(&old).expect("valid"), &Watched::disk(8, 16));
        let copied = (0..8).all(|i| {
            let load = format!("r1 = *(u8) (r6 + {})\n    *(u8) (r9 + {}) = r1\n", 29 + i, 28 + i);
            text.contains(&load)
        });
        assert!(copied && text.contains("*(u32) (r9 + 36) = 0"), "{text}");
    }

    #[test]
    fn records_are_read_as_the_program_writes_them() {
        let mut bytes = [0; RECORD_BYTES as usize];
        bytes[..8].copy_from_slice(&123_456_789u64.to_ne_bytes());
        bytes[8..16].copy_from_slice(&2056u64.to_ne_bytes());
        bytes[16..24].copy_from_slice(&(4711u64 << 32 | 4712).to_ne_bytes());
        bytes[24..28].copy_from_slice(&32u32.to_ne_bytes());
        bytes[28..30].copy_from_slice(b"RS");
        bytes[40..48].copy_from_slice(b"mariadbd");
        let mut words = [0; RECORD_WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
        }
        let expected =
            Event { time_ns: 123_456_789, sector: 8, bytes: 16384, op: Op::Read, pid: Some(4711), tid: 4712, comm: Comm::of(b"mariadbd") };
        assert_eq!(event(&words, &Watched::part(7, 0, 2048, 1000)), Some(expected));
        assert_eq!(event(&words, &Watched::part(7, 0, 0, 1000)), None);
    }
}
