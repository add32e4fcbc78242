//! Instructions of BPF: what each means as text, and its bytes (RFC 9669). Only those that the
//! program of the tap needs.

use std::fmt;

/// A register. `R1` to `R5` carry arguments and are lost by a call, `R0` is its result, `R6` to
/// `R9` are kept. (`R10`, the frame, is not needed here.)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Register {
    R0,
    R1,
    R2,
    R3,
    R6,
    R7,
    R8,
    R9,
}

impl Register {
    fn number(self) -> u8 {
        match self {
            Register::R0 => 0,
            Register::R1 => 1,
            Register::R2 => 2,
            Register::R3 => 3,
            Register::R6 => 6,
            Register::R7 => 7,
            Register::R8 => 8,
            Register::R9 => 9,
        }
    }
}

/// How much one access moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Width {
    U8,
    U16,
    U32,
    U64,
}

impl Width {
    fn code(self) -> u8 {
        match self {
            Width::U32 => 0x00,
            Width::U16 => 0x08,
            Width::U8 => 0x10,
            Width::U64 => 0x18,
        }
    }

    pub fn bytes(self) -> u16 {
        match self {
            Width::U8 => 1,
            Width::U16 => 2,
            Width::U32 => 4,
            Width::U64 => 8,
        }
    }
}

/// Functions of the kernel, by their number in linux/bpf.h.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Helper {
    KtimeGetNs = 5,
    GetCurrentPidTgid = 14,
    GetCurrentComm = 16,
    RingbufReserve = 131,
    RingbufSubmit = 132,
}

/// When a jump is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// The 64-bit register is this.
    Is(Register, i32),
    /// The lower half of the register is not this.
    LowIsNot(Register, u32),
    /// The first is below the second, without sign.
    Below(Register, Register),
    /// The first is the second or above it, without sign.
    NotBelow(Register, Register),
}

/// A place in the program that jumps lead to.
pub type Label = &'static str;

/// One instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Instruction {
    /// `to = *(from + offset)`
    Load { to: Register, from: Register, offset: i16, width: Width },
    /// `*(to + offset) = from`
    Store { to: Register, offset: i16, from: Register, width: Width },
    /// `*(to + offset) = value`
    StoreValue { to: Register, offset: i16, value: i32, width: Width },
    /// `to = from`
    Copy { to: Register, from: Register },
    /// `to = value`
    Set { to: Register, value: i32 },
    /// `to = value`, all 64 bits; two slots.
    SetWide { to: Register, value: u64 },
    /// `to =` the map of this descriptor; two slots.
    SetMap { to: Register, map: i32 },
    /// `to =` the address of the first value of an array map; two slots.
    SetMapValue { to: Register, map: i32 },
    /// `to += value`
    Add { to: Register, value: i32 },
    /// `*(to + 0) += from`, 64 bits, at once for all processors.
    AddAtomic { to: Register, from: Register },
    /// `R0 = helper(R1, R2, R3)`
    Call(Helper),
    /// Goes on at the label if the condition holds.
    Jump(When, Label),
    /// Goes on at the label.
    JumpAlways(Label),
    /// No instruction: the label's place.
    Here(Label),
    /// The end; the result is `R0`.
    Exit,
}

/// How the second register of `SetWide` and its like says what the value is (`BPF_PSEUDO_*`).
const PLAIN: u8 = 0;
const MAP: u8 = 1;
const MAP_VALUE: u8 = 2;

impl Instruction {
    /// In units of 8 bytes.
    fn slots(self) -> usize {
        match self {
            Instruction::Here(_) => 0,
            Instruction::SetWide { .. } | Instruction::SetMap { .. } | Instruction::SetMapValue { .. } => 2,
            _ => 1,
        }
    }
}

/// The bytes of a program, for this machine's byte order.
///
/// # Panics
/// If a jump leads to a label that is not there exactly once and behind it, or too far: the program
/// is ours.
pub fn assemble(program: &[Instruction]) -> Vec<[u8; 8]> {
    let mut code = Vec::new();
    let distance = |at: usize, label: Label| {
        let slots_before = |index: usize| program[..index].iter().map(|i| i.slots()).sum::<usize>();
        let mut places = (0..program.len()).filter(|index| program[*index] == Instruction::Here(label));
        let place = places.next().unwrap_or_else(|| panic!("no label {label}"));
        assert!(places.next().is_none(), "label {label} is there twice");
        assert!(place > at, "the jump to {label} leads back, which old kernels refuse");
        i16::try_from(slots_before(place) - slots_before(at) - 1).expect("a short program")
    };
    for (at, instruction) in program.iter().enumerate() {
        match *instruction {
            Instruction::Load { to, from, offset, width } => {
                code.push(slot(0x61 | width.code(), to.number(), from.number(), offset, 0));
            }
            Instruction::Store { to, offset, from, width } => {
                code.push(slot(0x63 | width.code(), to.number(), from.number(), offset, 0));
            }
            Instruction::StoreValue { to, offset, value, width } => {
                code.push(slot(0x62 | width.code(), to.number(), 0, offset, value));
            }
            Instruction::Copy { to, from } => code.push(slot(0xbf, to.number(), from.number(), 0, 0)),
            Instruction::Set { to, value } => code.push(slot(0xb7, to.number(), 0, 0, value)),
            Instruction::SetWide { to, value } => code.extend(wide(to, PLAIN, value)),
            Instruction::SetMap { to, map } => code.extend(wide(to, MAP, u64::from(map as u32))),
            Instruction::SetMapValue { to, map } => code.extend(wide(to, MAP_VALUE, u64::from(map as u32))),
            Instruction::Add { to, value } => code.push(slot(0x07, to.number(), 0, 0, value)),
            Instruction::AddAtomic { to, from } => code.push(slot(0xdb, to.number(), from.number(), 0, 0)),
            Instruction::Call(helper) => code.push(slot(0x85, 0, 0, 0, helper as i32)),
            Instruction::Jump(when, label) => {
                let distance = distance(at, label);
                code.push(match when {
                    When::Is(one, value) => slot(0x15, one.number(), 0, distance, value),
                    When::LowIsNot(one, value) => slot(0x56, one.number(), 0, distance, value as i32),
                    When::Below(one, two) => slot(0xad, one.number(), two.number(), distance, 0),
                    When::NotBelow(one, two) => slot(0x3d, one.number(), two.number(), distance, 0),
                });
            }
            Instruction::JumpAlways(label) => code.push(slot(0x05, 0, 0, distance(at, label), 0)),
            Instruction::Here(_) => {}
            Instruction::Exit => code.push(slot(0x95, 0, 0, 0, 0)),
        }
    }
    code
}

fn slot(opcode: u8, to: u8, from: u8, offset: i16, value: i32) -> [u8; 8] {
    let registers = if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
    let (offset, value) = (offset.to_ne_bytes(), value.to_ne_bytes());
    [opcode, registers, offset[0], offset[1], value[0], value[1], value[2], value[3]]
}

fn wide(to: Register, meaning: u8, value: u64) -> [[u8; 8]; 2] {
    // A map's value has the offset within the value in the second half: 0 here.
    [slot(0x18, to.number(), meaning, 0, value as i32), slot(0, 0, 0, 0, (value >> 32) as i32)]
}

impl fmt::Display for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.number())
    }
}

impl fmt::Display for Width {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "u{}", self.bytes() * 8)
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            When::Is(one, value) => write!(f, "{one} == {value}"),
            When::LowIsNot(one, value) => write!(f, "(u32) {one} != {value:#x}"),
            When::Below(one, two) => write!(f, "{one} < {two}"),
            When::NotBelow(one, two) => write!(f, "{one} >= {two}"),
        }
    }
}

/// A line of a listing.
impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Instruction::Load { to, from, offset, width } => write!(f, "    {to} = *({width}) ({from} + {offset})"),
            Instruction::Store { to, offset, from, width } => write!(f, "    *({width}) ({to} + {offset}) = {from}"),
            Instruction::StoreValue { to, offset, value, width } => write!(f, "    *({width}) ({to} + {offset}) = {value}"),
            Instruction::Copy { to, from } => write!(f, "    {to} = {from}"),
            Instruction::Set { to, value } => write!(f, "    {to} = {value}"),
            Instruction::SetWide { to, value } => write!(f, "    {to} = {value} (u64)"),
            Instruction::SetMap { to, map } => write!(f, "    {to} = map {map}"),
            Instruction::SetMapValue { to, map } => write!(f, "    {to} = first value of map {map}"),
            Instruction::Add { to, value } => write!(f, "    {to} += {value}"),
            Instruction::AddAtomic { to, from } => write!(f, "    lock *(u64) ({to} + 0) += {from}"),
            Instruction::Call(helper) => write!(f, "    r0 = {helper:?}()"),
            Instruction::Jump(when, label) => write!(f, "    if {when} goto {label}"),
            Instruction::JumpAlways(label) => write!(f, "    goto {label}"),
            Instruction::Here(label) => write!(f, "{label}:"),
            Instruction::Exit => write!(f, "    return r0"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Register::{R0, R1, R2, R6, R7, R9};

    /// By the tables of RFC 9669, on a little-endian machine.
    #[test]
    #[cfg(target_endian = "little")]
    fn known_instructions() {
        let check = |instruction, text: &str, bytes: &[u8]| {
            assert_eq!(assemble(&[instruction]).concat(), bytes, "{instruction}");
            assert_eq!(instruction.to_string().trim_start(), text);
        };
        let load = |width| Instruction::Load { to: R1, from: R6, offset: 8, width };
        check(load(Width::U32), "r1 = *(u32) (r6 + 8)", &[0x61, 0x61, 8, 0, 0, 0, 0, 0]);
        check(load(Width::U16), "r1 = *(u16) (r6 + 8)", &[0x69, 0x61, 8, 0, 0, 0, 0, 0]);
        check(load(Width::U8), "r1 = *(u8) (r6 + 8)", &[0x71, 0x61, 8, 0, 0, 0, 0, 0]);
        check(load(Width::U64), "r1 = *(u64) (r6 + 8)", &[0x79, 0x61, 8, 0, 0, 0, 0, 0]);
        let store = |width| Instruction::Store { to: R9, offset: -4, from: R0, width };
        check(store(Width::U64), "*(u64) (r9 + -4) = r0", &[0x7b, 0x09, 0xfc, 0xff, 0, 0, 0, 0]);
        check(store(Width::U8), "*(u8) (r9 + -4) = r0", &[0x73, 0x09, 0xfc, 0xff, 0, 0, 0, 0]);
        let value = Instruction::StoreValue { to: R9, offset: 38, value: 0, width: Width::U16 };
        check(value, "*(u16) (r9 + 38) = 0", &[0x6a, 0x09, 38, 0, 0, 0, 0, 0]);
        check(Instruction::Copy { to: R6, from: R1 }, "r6 = r1", &[0xbf, 0x16, 0, 0, 0, 0, 0, 0]);
        check(Instruction::Set { to: R0, value: -1 }, "r0 = -1", &[0xb7, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
        check(Instruction::Add { to: R1, value: 40 }, "r1 += 40", &[0x07, 1, 0, 0, 40, 0, 0, 0]);
        let wide = [0x18, 1, 0, 0, 8, 7, 6, 5, 0, 0, 0, 0, 4, 3, 2, 1];
        check(Instruction::SetWide { to: R1, value: 0x0102_0304_0506_0708 }, "r1 = 72623859790382856 (u64)", &wide);
        check(Instruction::SetMap { to: R1, map: 9 }, "r1 = map 9", &[0x18, 0x11, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let first = [0x18, 0x21, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        check(Instruction::SetMapValue { to: R1, map: 9 }, "r1 = first value of map 9", &first);
        let add = Instruction::AddAtomic { to: R1, from: R2 };
        check(add, "lock *(u64) (r1 + 0) += r2", &[0xdb, 0x21, 0, 0, 0, 0, 0, 0]);
        check(Instruction::Call(Helper::RingbufSubmit), "r0 = RingbufSubmit()", &[0x85, 0, 0, 0, 132, 0, 0, 0]);
        check(Instruction::Exit, "return r0", &[0x95, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn jumps_lead_over_wide_instructions_to_their_label() {
        let program = [
            Instruction::Jump(When::LowIsNot(R1, 0x8000_0001), "out"),
            Instruction::Jump(When::Is(R0, 0), "out"),
            Instruction::Jump(When::Below(R7, R1), "near"),
            Instruction::Jump(When::NotBelow(R7, R1), "near"),
            Instruction::Here("near"),
            Instruction::JumpAlways("out"),
            Instruction::SetWide { to: R1, value: 1 },
            Instruction::Here("out"),
            Instruction::Exit,
        ];
        let code = assemble(&program);
        assert_eq!(code[0], [0x56, 1, 6, 0, 1, 0, 0, 0x80]);
        assert_eq!(code[1], [0x15, 0, 5, 0, 0, 0, 0, 0]);
        assert_eq!(code[2], [0xad, 0x17, 1, 0, 0, 0, 0, 0]);
        assert_eq!(code[3], [0x3d, 0x17, 0, 0, 0, 0, 0, 0]);
        assert_eq!(code[4], [0x05, 0, 2, 0, 0, 0, 0, 0]);
        assert_eq!(code.len(), 8);
    }

    #[test]
    #[should_panic(expected = "no label away")]
    fn a_jump_to_nowhere_is_our_mistake() {
        assemble(&[Instruction::JumpAlways("away")]);
    }

    #[test]
    #[should_panic(expected = "leads back")]
    fn a_jump_back_is_our_mistake() {
        assemble(&[Instruction::Here("loop"), Instruction::JumpAlways("loop")]);
    }
}
