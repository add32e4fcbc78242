//! The bytes of the device mapper's ioctls (linux/dm-ioctl.h), and the only call to the kernel.
//!
//! Every call takes and gives one buffer: a head of 312 bytes, then data. The kernel says by a flag that the data did not fit; then the call is
//! repeated with more room. All numbers have the machine's byte order.

use crate::table::{Number, Table, TableError, Target};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `struct dm_ioctl`.
const HEAD_BYTES: usize = 312;
/// `struct dm_target_spec`.
const SPEC_BYTES: usize = 40;
const NAME_BYTES: usize = 128;
const UUID_BYTES: usize = 129;
const TYPE_BYTES: usize = 16;
/// Room for an answer at first.
const ROOM_BYTES: usize = 16 << 10;
/// A table of a million targets does not fit; nothing that hearth has to do with does not.
const ROOM_BYTES_MAX: usize = 16 << 20;
/// The version of the interface that this is written for: the major number must be the kernel's.
const VERSION: [u32; 3] = [4, 0, 0];

/// The commands, by their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    Version = 0,
    ListDevices = 2,
    Create = 3,
    Remove = 4,
    Suspend = 6,
    Status = 7,
    TableLoad = 9,
    TableClear = 10,
    TableStatus = 12,
}

/// Flags of requests and answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flags {
    ReadOnly = 1 << 0,
    Suspend = 1 << 1,
    StatusTable = 1 << 4,
    ActivePresent = 1 << 5,
    InactivePresent = 1 << 6,
    BufferFull = 1 << 8,
    SkipLockFs = 1 << 10,
    NoFlush = 1 << 11,
    QueryInactiveTable = 1 << 12,
}

/// What is asked.
#[derive(Clone, Default, Debug)]
pub(crate) struct Request {
    pub name: String,
    pub uuid: String,
    pub number: Option<Number>,
    pub flags: u32,
    /// What becomes the cookie of the event that udev gets.
    pub event_number: u32,
    pub targets: Vec<Target>,
}

/// What comes back.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub version: [u32; 3],
    pub target_count: u32,
    pub open_count: i32,
    pub flags: u32,
    pub event_number: u32,
    pub number: Number,
    pub name: String,
    pub uuid: String,
    pub data: Vec<u8>,
}

/// Calls the kernel.
pub(crate) fn ask(control: &File, call: Call, request: &Request) -> io::Result<Answer> {
    let mut room = ROOM_BYTES;
    loop {
        let mut buffer = written(request, room)?;
        // _IOWR(0xfd, command, struct dm_ioctl)
        let command = 3 << 30 | (HEAD_BYTES as u64) << 16 | 0xfd << 8 | call as u64;
        // SAFETY: the kernel reads and writes as many bytes at the pointer as `data_size` in the head says, which is the length of the buffer.
        let result = unsafe { libc::ioctl(control.as_raw_fd(), command as _, buffer.as_mut_ptr()) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        let answer = read(&buffer);
        if answer.flags & Flags::BufferFull as u32 == 0 {
            return Ok(answer);
        }
        room *= 4;
        if room > ROOM_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, "the answer is too long"));
        }
    }
}

fn written(request: &Request, room: usize) -> io::Result<Vec<u8>> {
    let too_long = |text: &str, most: usize| text.len() >= most || text.contains('\0');
    if too_long(&request.name, NAME_BYTES) || too_long(&request.uuid, UUID_BYTES) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the name is too long"));
    }
    let mut data = Vec::new();
    for target in &request.targets {
        if too_long(&target.kind, TYPE_BYTES) || target.arguments.contains('\0') {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a target's name is too long"));
        }
        // To the next one, from this one's beginning; aligned to eight bytes.
        let next = (SPEC_BYTES + target.arguments.len() + 1).next_multiple_of(8);
        let at = data.len();
        data.extend_from_slice(&target.start_sector.to_ne_bytes());
        data.extend_from_slice(&target.sectors.to_ne_bytes());
        data.extend_from_slice(&0_u32.to_ne_bytes());
        data.extend_from_slice(&(next as u32).to_ne_bytes());
        data.extend_from_slice(target.kind.as_bytes());
        data.resize(at + SPEC_BYTES, 0);
        data.extend_from_slice(target.arguments.as_bytes());
        data.resize(at + next, 0);
    }
    let mut buffer = vec![0; (HEAD_BYTES + data.len()).max(room)];
    let length = buffer.len() as u32;
    for (at, number) in VERSION.into_iter().chain([length, HEAD_BYTES as u32, request.targets.len() as u32]).enumerate() {
        buffer[4 * at..4 * at + 4].copy_from_slice(&number.to_ne_bytes());
    }
    buffer[28..32].copy_from_slice(&request.flags.to_ne_bytes());
    buffer[32..36].copy_from_slice(&request.event_number.to_ne_bytes());
    buffer[40..48].copy_from_slice(&request.number.map_or(0, Number::encoded).to_ne_bytes());
    buffer[48..48 + request.name.len()].copy_from_slice(request.name.as_bytes());
    buffer[176..176 + request.uuid.len()].copy_from_slice(request.uuid.as_bytes());
    buffer[HEAD_BYTES..HEAD_BYTES + data.len()].copy_from_slice(&data);
    Ok(buffer)
}

fn read(buffer: &[u8]) -> Answer {
    let length = (word(buffer, 12) as usize).min(buffer.len());
    let data = buffer.get(word(buffer, 16) as usize..length).unwrap_or_default().to_vec();
    Answer {
        version: [word(buffer, 0), word(buffer, 4), word(buffer, 8)],
        target_count: word(buffer, 20),
        open_count: word(buffer, 24) as i32,
        flags: word(buffer, 28),
        event_number: word(buffer, 32),
        number: Number::decoded(long(buffer, 40)),
        name: text(&buffer[48..48 + NAME_BYTES]),
        uuid: text(&buffer[176..176 + UUID_BYTES]),
        data,
    }
}

/// `struct dm_target_spec`s of an answer, each with its text behind it. `next` counts from the beginning of the data here.
pub(crate) fn targets(answer: &Answer) -> Result<Table, TableError> {
    let (mut targets, mut at, data) = (Vec::new(), 0, &answer.data[..]);
    for _ in 0..answer.target_count {
        let Some(spec) = data.get(at..at + SPEC_BYTES) else { return Err(TableError::Cut) };
        targets.push(Target {
            start_sector: long(spec, 0),
            sectors: long(spec, 8),
            kind: text(&spec[24..24 + TYPE_BYTES]),
            arguments: text(&data[at + SPEC_BYTES..]),
        });
        at = word(spec, 20) as usize;
    }
    Table { targets }.checked()
}

/// `struct dm_name_list`s: a number, the way to the next one (0 at the end), a name.
pub(crate) fn names(data: &[u8]) -> Vec<(String, Number)> {
    let (mut names, mut at) = (Vec::new(), 0);
    while let Some(entry) = data.get(at..).filter(|entry| entry.len() > 12) {
        let name = text(&entry[12..]);
        if name.is_empty() {
            break;
        }
        names.push((name, Number::decoded(long(entry, 0))));
        match word(entry, 8) as usize {
            0 => break,
            next => at += next,
        }
    }
    names.sort();
    names
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Up to the first zero.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written for the kernel, read as its answer would be: `next` differs between the two directions.
    #[test]
    fn tables_travel_in_the_kernels_form() {
        let table: Table = "0 131072 linear 254:0 2048\n131072 8 striped 2 16 8:1 0 8:2 0\n".parse().expect("a table");
        let request = Request { name: "vg-lv".into(), uuid: "LVM-x".into(), targets: table.targets.clone(), ..Request::default() };
        let mut buffer = written(&request, 0).expect("short names");
        assert_eq!(buffer.len() % 8, 0);
        let first = word(&buffer, HEAD_BYTES + 20);
        assert_eq!((first % 8, word(&buffer, 20)), (0, 2));
        buffer[HEAD_BYTES + first as usize + 20..][..4].copy_from_slice(&0_u32.to_ne_bytes());
        let answer = read(&buffer);
        assert_eq!((answer.name.as_str(), answer.uuid.as_str(), answer.version), ("vg-lv", "LVM-x", VERSION));
        assert_eq!(targets(&answer).expect("whole"), table);
        let cut = Answer { data: answer.data[..60].to_vec(), ..answer };
        assert!(targets(&cut).is_err());
    }

    #[test]
    fn lists_of_names_end_where_they_end() {
        let entry = |number: Number, next: u32, name: &str, length: usize| {
            let mut bytes = number.encoded().to_ne_bytes().to_vec();
            bytes.extend_from_slice(&next.to_ne_bytes());
            bytes.extend_from_slice(name.as_bytes());
            bytes.resize(length, 0);
            bytes
        };
        let (a, b) = (Number { major: 253, minor: 0 }, Number { major: 253, minor: 700 });
        let data = [entry(a, 24, "vg-b", 24), entry(b, 0, "vg-a", 24)].concat();
        assert_eq!(names(&data), [("vg-a".to_string(), b), ("vg-b".to_string(), a)]);
        assert_eq!((names(&[]), names(&[0; 20])), (Vec::new(), Vec::new()));
    }

    #[test]
    fn names_that_do_not_fit_are_refused() {
        let long = Request { name: "x".repeat(NAME_BYTES), ..Request::default() };
        assert!(written(&long, 0).is_err());
        let odd = Request { name: "a\0b".into(), ..Request::default() };
        assert!(written(&odd, 0).is_err());
    }
}
