//! Random and mutated bytes into both state machines: no panic, bounded memory, bounded output, progress on every call.
//!
//! Seeds are fixed, so a failure repeats; `NBD_FUZZ_CASES` asks for more cases than the usual ones.

use crate::common::random::Random;
use nbd::protocol::wire::{OPTION_BYTES_MAX, PAYLOAD_BYTES_MAX, REQUEST_HEADER_BYTES, option};
use nbd::protocol::{Catalog, Command, ExportInfo, Handshake, Progress, RequestHeader, Session, Verdict};

fn cases(usual: u64) -> u64 {
    std::env::var("NBD_FUZZ_CASES").ok().map_or(usual, |text| text.parse().expect("NBD_FUZZ_CASES is a number"))
}

struct Disks;

impl Catalog for Disks {
    fn list(&self) -> Vec<(String, String)> {
        vec![("disk".into(), "a disk".into()); 3]
    }

    fn find(&self, name: &[u8]) -> Option<ExportInfo> {
        (name == b"disk" || name.is_empty()).then(|| ExportInfo::new("disk", 1 << 30))
    }
}

const LENGTHS: [u32; 10] = [0, 1, 4, 511, 4095, 4096, 65536, 65537, 0x7fff_ffff, u32::MAX];

/// A conversation that begins well: flags, then options whose fields are right or nearly so.
fn conversation(random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, 1 + 2 * random.below(2) as u8];
    if random.below(2) == 0 {
        bytes.extend_from_slice(b"IHAVEOPT\0\0\0\x05\0\0\0\0");
    }
    for _ in 0..random.below(6) {
        let code = if random.below(8) == 0 { random.next() as u32 } else { random.below(13) as u32 };
        let mut data = Vec::new();
        if matches!(code, option::GO | option::INFO | option::LIST_META_CONTEXT | option::SET_META_CONTEXT) {
            data.extend_from_slice(b"\0\0\0\x04disk");
            let count = random.below(3) as usize;
            match code {
                option::GO | option::INFO => {
                    data.extend_from_slice(&(count as u16).to_be_bytes());
                    data.resize(data.len() + 2 * count, 1);
                }
                _ => {
                    data.extend_from_slice(&(count as u32).to_be_bytes());
                    (0..count).for_each(|_| data.extend_from_slice(b"\0\0\0\x0fbase:allocation"));
                }
            }
        } else if code == option::EXPORT_NAME {
            data.extend_from_slice(random.pick::<&[u8]>(&[&b"disk"[..], b"", b"other"]));
        }
        bytes.extend_from_slice(b"IHAVEOPT");
        bytes.extend_from_slice(&code.to_be_bytes());
        let lie = random.below(8) == 0;
        let length = if lie { *random.pick(&LENGTHS) } else { data.len() as u32 };
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(&data);
    }
    bytes
}

fn mutate(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..random.below(4) {
        if bytes.is_empty() {
            return;
        }
        let at = random.below(bytes.len() as u64) as usize;
        match random.below(5) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next() as u8,
            2 => bytes.truncate(at),
            3 => {
                let length = random.pick(&LENGTHS).to_be_bytes();
                let end = bytes.len().min(at + 4);
                bytes[at..end].copy_from_slice(&length[..end - at]);
            }
            _ => {
                let copied = bytes[at..].to_vec();
                bytes.extend_from_slice(&copied);
            }
        }
    }
}

/// Feeds in random pieces; checks every bound on the way.
fn feed(random: &mut Random, input: &[u8]) -> Progress {
    // On a socket that asks for TLS, its handshake is what happens between two options.
    let forced = random.below(2) == 0;
    let (mut handshake, mut at, mut answered) = (if forced { Handshake::forced_tls() } else { Handshake::new() }, 0, 0);
    let mut secured = !forced;
    loop {
        let end = input.len().min(at + 1 + random.below(300) as usize);
        let mut output = Vec::new();
        let (consumed, progress) = handshake.feed(&input[at..end], &Disks, &mut output);
        assert!(consumed <= end - at);
        assert!(handshake.held_bytes() <= 2 * OPTION_BYTES_MAX);
        assert!(output.len() <= 4096, "{} bytes of output for one option", output.len());
        at += consumed;
        match progress {
            Progress::NeedMore => {
                assert_eq!(at, end, "input was left without an answer");
                if at == input.len() {
                    return Progress::NeedMore;
                }
            }
            Progress::Answered => {
                answered += 1;
                assert!(answered <= input.len() / 16, "an answer without an option");
            }
            Progress::StartTls => {
                assert!(!secured, "TLS begins once");
                (answered, secured) = (answered + 1, true);
                handshake.secured();
            }
            Progress::Wait => unreachable!("nothing is away"),
            Progress::Done(_) => {
                assert!(secured, "an export was chosen before TLS");
                return progress;
            }
            Progress::Close(_) => return progress,
        }
    }
}

#[test]
fn the_handshake_survives_mutated_conversations() {
    let (mut done, mut closed, mut waiting) = (0, 0, 0);
    for seed in 0..cases(20_000) {
        let random = &mut Random(seed);
        let mut input = conversation(random);
        mutate(random, &mut input);
        match feed(random, &input) {
            Progress::Done(_) => done += 1,
            Progress::Close(_) => closed += 1,
            _ => waiting += 1,
        }
    }
    // The generator is worth its time only while it reaches every end.
    assert!(done > 100 && closed > 100 && waiting > 100, "{done} done, {closed} closed, {waiting} waiting");
}

#[test]
fn the_handshake_survives_noise() {
    for seed in 0..cases(5_000) {
        let random = &mut Random(!seed);
        let mut input: Vec<u8> = (0..random.below(400)).map(|_| random.next() as u8).collect();
        if random.below(2) == 0 {
            input.splice(0..0, *b"\0\0\0\x03IHAVEOPT");
        }
        feed(random, &input);
    }
}

#[test]
fn judged_requests_lie_within_the_export() {
    const INTERESTING: [u64; 14] = [
        0,
        1,
        511,
        512,
        4096,
        1 << 20,
        (1 << 20) - 512,
        PAYLOAD_BYTES_MAX as u64,
        PAYLOAD_BYTES_MAX as u64 + 512,
        (1 << 30) - 4096,
        1 << 30,
        1 << 63,
        u64::MAX,
        u64::MAX - 511,
    ];
    let mut accepted = 0;
    for seed in 0..cases(50_000) {
        let random = &mut Random(seed ^ 0xabcd_ef01);
        let session = Session {
            export: ExportInfo { read_only: random.below(4) == 0, ..ExportInfo::new("disk", 1 << 30) },
            structured: random.below(2) == 0,
            allocation_context: random.below(2) == 0,
        };
        let mut bytes = [0u8; REQUEST_HEADER_BYTES];
        bytes.iter_mut().for_each(|byte| *byte = random.next() as u8);
        if random.below(16) != 0 {
            bytes[..4].copy_from_slice(&0x2560_9513u32.to_be_bytes());
            bytes[4..6].copy_from_slice(&(random.below(40) as u16 * random.below(2) as u16).to_be_bytes());
            bytes[6..8].copy_from_slice(&(random.below(9) as u16).to_be_bytes());
            bytes[16..24].copy_from_slice(&random.pick(&INTERESTING).to_be_bytes());
            bytes[24..28].copy_from_slice(&(*random.pick(&INTERESTING) as u32).to_be_bytes());
        }
        let Ok(header) = RequestHeader::parse(&bytes) else {
            continue;
        };
        let Verdict::Volume { command, start_sector, sectors, .. } = session.judge(&header) else {
            continue;
        };
        accepted += 1;
        assert!((start_sector + u64::from(sectors)) * 512 <= session.export.size_bytes);
        assert_eq!(start_sector * 512, header.offset_bytes);
        assert_eq!(u64::from(sectors) * 512, u64::from(header.length_bytes));
        assert_eq!(sectors == 0, command == Command::Flush);
        assert!(matches!(command, Command::Read | Command::Flush) || !session.export.read_only);
        if matches!(command, Command::Read | Command::Write) {
            assert!(header.length_bytes <= PAYLOAD_BYTES_MAX);
        }
    }
    assert!(accepted > 1000, "{accepted} accepted");
}
