//! The handshake, byte by byte: what a client sends, what it must get.

use nbd::protocol::wire::{NAME_BYTES_MAX, OPTION_BYTES_MAX, option, option_reply};
use nbd::protocol::{Catalog, ClosedBy, ExportInfo, GREETING, Handshake, Progress, Session};

struct Disks;

impl Catalog for Disks {
    fn list(&self) -> Vec<(String, String)> {
        vec![("a".into(), "first".into()), ("disk".into(), String::new())]
    }

    fn find(&self, name: &[u8]) -> Option<ExportInfo> {
        let info = |name| ExportInfo { description: "a disk".into(), ..ExportInfo::new(name, 0x12345000) };
        match name {
            b"a" => Some(info("a")),
            b"disk" | b"" => Some(ExportInfo { read_only: true, block_bytes_min: 4096, ..info("disk") }),
            _ => None,
        }
    }
}

/// Client flags: fixed newstyle, no zeroes.
const CLIENT: &[u8] = b"\0\0\0\x03";

fn option_bytes(option: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend_from_slice(&option.to_be_bytes());
    bytes.extend_from_slice(&(data.len() as u32).to_be_bytes());
    bytes.extend_from_slice(data);
    bytes
}

fn info_data(name: &[u8], kinds: &[u16]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend_from_slice(name);
    data.extend_from_slice(&(kinds.len() as u16).to_be_bytes());
    kinds.iter().for_each(|kind| data.extend_from_slice(&kind.to_be_bytes()));
    data
}

fn context_data(name: &[u8], queries: &[&[u8]]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend_from_slice(name);
    data.extend_from_slice(&(queries.len() as u32).to_be_bytes());
    for query in queries {
        data.extend_from_slice(&(query.len() as u32).to_be_bytes());
        data.extend_from_slice(query);
    }
    data
}

/// One parsed answer: kind and body.
type Answer = (u32, Vec<u8>);

/// What a whole conversation came to: answers, how it ended, and how much of the input was left.
fn talk(input: &[u8], piece_bytes: usize) -> (Vec<u8>, Progress, usize) {
    let (mut handshake, mut output, mut at) = (Handshake::new(), Vec::new(), 0);
    loop {
        let end = input.len().min(at + piece_bytes);
        let (consumed, progress) = handshake.feed(&input[at..end], &Disks, &mut output);
        assert!(handshake.held_bytes() <= 2 * OPTION_BYTES_MAX, "{} bytes held", handshake.held_bytes());
        at += consumed;
        match progress {
            Progress::Answered => (),
            Progress::NeedMore if at < input.len() => assert_ne!(consumed, 0),
            _ => return (output, progress, input.len() - at),
        }
    }
}

/// Talks in one piece and byte by byte, which must come to the same.
fn talk_both(input: &[u8]) -> (Vec<u8>, Progress, usize) {
    let whole = talk(input, usize::MAX / 2);
    assert_eq!(talk(input, 1), whole);
    whole
}

fn answers(mut output: &[u8], option: u32) -> Vec<Answer> {
    let mut answers = Vec::new();
    while !output.is_empty() {
        assert_eq!(output[..8], 0x0003_e889_0455_65a9_u64.to_be_bytes());
        assert_eq!(output[8..12], option.to_be_bytes());
        let kind = u32::from_be_bytes(output[12..16].try_into().unwrap());
        let length = u32::from_be_bytes(output[16..20].try_into().unwrap()) as usize;
        answers.push((kind, output[20..20 + length].to_vec()));
        output = &output[20 + length..];
    }
    answers
}

/// Sends one option after the client flags and gives its answers.
fn ask(option: u32, data: &[u8]) -> Vec<Answer> {
    let (output, progress, left) = talk_both(&[CLIENT, &option_bytes(option, data)].concat());
    assert_eq!((progress, left), (Progress::NeedMore, 0));
    answers(&output, option)
}

fn only_kind(answers: &[Answer]) -> u32 {
    assert_eq!(answers.len(), 1, "{answers:?}");
    answers[0].0
}

fn session_of(input: &[u8]) -> Session {
    match talk_both(input) {
        (_, Progress::Done(session), 0) => *session,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_greeting_is_newstyle_with_fixed_and_no_zeroes() {
    assert_eq!(&GREETING, b"NBDMAGICIHAVEOPT\0\x03");
}

#[test]
fn go_tells_size_flags_and_block_sizes_and_leaves_the_rest_of_the_input() {
    let mut input = [CLIENT, &option_bytes(option::GO, &info_data(b"a", &[1, 2, 3]))].concat();
    input.extend_from_slice(b"request bytes");
    let (output, progress, left) = talk(&input, 1 << 20);
    assert_eq!(left, b"request bytes".len());
    let Progress::Done(session) = progress else { panic!("{progress:?}") };
    assert_eq!(session.export.name, "a");
    assert!(!session.structured && !session.allocation_context);
    let expected: Vec<Answer> = vec![
        (option_reply::INFO, b"\0\0\0\0\0\0\x12\x34\x50\0\x09\xed".to_vec()),
        (option_reply::INFO, b"\0\x01a".to_vec()),
        (option_reply::INFO, b"\0\x02a disk".to_vec()),
        (option_reply::INFO, b"\0\x03\0\0\x02\0\0\0\x10\0\x02\0\0\0".to_vec()),
        (option_reply::ACK, vec![]),
    ];
    assert_eq!(answers(&output, option::GO), expected);
}

#[test]
fn info_is_go_without_going() {
    let told = ask(option::INFO, &info_data(b"", &[]));
    let expected: Vec<Answer> = vec![
        (option_reply::INFO, b"\0\0\0\0\0\0\x12\x34\x50\0\x09\xef".to_vec()),
        (option_reply::INFO, b"\0\x03\0\0\x10\0\0\0\x10\0\x02\0\0\0".to_vec()),
        (option_reply::ACK, vec![]),
    ];
    assert_eq!(told, expected);
}

#[test]
fn export_name_answers_in_the_old_form_with_and_without_zeroes() {
    let (output, progress, _) = talk_both(&[CLIENT, &option_bytes(option::EXPORT_NAME, b"a")].concat());
    assert!(matches!(progress, Progress::Done(_)));
    assert_eq!(output, b"\0\0\0\0\x12\x34\x50\0\x09\xed");
    let (output, _, _) = talk_both(&[b"\0\0\0\x01", &option_bytes(option::EXPORT_NAME, b"")[..]].concat());
    assert_eq!(output.len(), 10 + 124);
    assert!(output[10..].iter().all(|byte| *byte == 0));
}

#[test]
fn export_name_can_only_close() {
    let (output, progress, _) = talk_both(&[CLIENT, &option_bytes(option::EXPORT_NAME, b"none")].concat());
    assert_eq!((output.len(), progress), (0, Progress::Close(ClosedBy::UnknownExport)));
    let header = b"IHAVEOPT\0\0\0\x01\xff\xff\xff\xff";
    let (_, progress, _) = talk_both(&[CLIENT, header].concat());
    assert_eq!(progress, Progress::Close(ClosedBy::NameTooLong(u32::MAX)));
}

#[test]
fn list_names_all() {
    let expected: Vec<Answer> = vec![
        (option_reply::SERVER, b"\0\0\0\x01afirst".to_vec()),
        (option_reply::SERVER, b"\0\0\0\x04disk".to_vec()),
        (option_reply::ACK, vec![]),
    ];
    assert_eq!(ask(option::LIST, b""), expected);
    assert_eq!(only_kind(&ask(option::LIST, b"x")), option_reply::ERR_INVALID);
}

#[test]
fn abort_is_acknowledged_and_closes() {
    let (output, progress, _) = talk_both(&[CLIENT, &option_bytes(option::ABORT, b"")].concat());
    assert_eq!(progress, Progress::Close(ClosedBy::Abort));
    assert_eq!(answers(&output, option::ABORT), vec![(option_reply::ACK, vec![])]);
}

#[test]
fn refusals_have_their_kinds() {
    let check = |option, data: &[u8], kind| assert_eq!(only_kind(&ask(option, data)), kind, "option {option}");
    check(option::STARTTLS, b"", option_reply::ERR_POLICY);
    check(option::EXTENDED_HEADERS, b"", option_reply::ERR_UNSUPPORTED);
    check(4, b"", option_reply::ERR_UNSUPPORTED);
    check(0xffff_ffff, b"data", option_reply::ERR_UNSUPPORTED);
    check(option::STRUCTURED_REPLY, b"x", option_reply::ERR_INVALID);
    check(option::GO, b"", option_reply::ERR_INVALID);
    check(option::GO, &info_data(b"none", &[]), option_reply::ERR_UNKNOWN);
    check(option::INFO, &info_data(&[b'x'; NAME_BYTES_MAX + 1], &[]), option_reply::ERR_TOO_BIG);
    // An inner length that wraps, one beyond the data, a count beyond the data, and data left over.
    check(option::GO, b"\xff\xff\xff\xffa\0\0", option_reply::ERR_INVALID);
    check(option::GO, b"\0\0\0\x02a\0\0", option_reply::ERR_INVALID);
    check(option::GO, b"\0\0\0\x01a\xff\xff\0\0", option_reply::ERR_INVALID);
    check(option::GO, b"\0\0\0\x01a\0\0\0", option_reply::ERR_INVALID);
    check(option::SET_META_CONTEXT, &context_data(b"a", &[b"base:allocation"]), option_reply::ERR_INVALID);
}

#[test]
fn data_that_is_too_long_is_skipped_and_the_conversation_goes_on() {
    let long = vec![7; OPTION_BYTES_MAX + 1];
    let parts = [CLIENT, &option_bytes(option::GO, &long), &option_bytes(option::GO, &info_data(b"a", &[]))];
    let (output, progress, left) = talk(&parts.concat(), 1000);
    assert!(matches!(progress, Progress::Done(_)));
    assert_eq!(left, 0);
    assert_eq!(answers(&output, option::GO)[0].0, option_reply::ERR_TOO_BIG);
}

/// Two servers fell over long names: one in a buffer of 256 bytes (CVE-2017-15118), one while making the error message
/// (CVE-2020-10761).
#[test]
fn names_of_every_length_are_answered() {
    for length in [0, 1, 255, 256, 257, 3000, NAME_BYTES_MAX, NAME_BYTES_MAX + 1, 65_000] {
        let name = vec![b'n'; length];
        let known = length == 0;
        let expected = match length {
            0 => option_reply::ACK,
            _ if length <= NAME_BYTES_MAX => option_reply::ERR_UNKNOWN,
            _ => option_reply::ERR_TOO_BIG,
        };
        let told = ask(option::INFO, &info_data(&name, &[1, 2]));
        assert_eq!(told.last().unwrap().0, expected, "{length} bytes");
        let structured = option_bytes(option::STRUCTURED_REPLY, b"");
        let list = option_bytes(option::LIST_META_CONTEXT, &context_data(&name, &[]));
        let (output, _, _) = talk_both(&[CLIENT, &structured, &list].concat());
        assert_eq!(answers(&output[20..], option::LIST_META_CONTEXT).last().unwrap().0, expected, "{length} bytes");
        let (output, progress, _) = talk_both(&[CLIENT, &option_bytes(option::EXPORT_NAME, &name)].concat());
        assert_eq!(matches!(progress, Progress::Done(_)), known, "{length} bytes");
        assert_eq!(output.is_empty(), !known);
    }
}

#[test]
fn meta_contexts_belong_to_the_export_they_were_set_for() {
    let structured = option_bytes(option::STRUCTURED_REPLY, b"");
    let set = option_bytes(option::SET_META_CONTEXT, &context_data(b"a", &[b"qemu:x", b"base:allocation"]));
    let unset = option_bytes(option::SET_META_CONTEXT, &context_data(b"a", &[]));
    let go = |name: &[u8]| option_bytes(option::GO, &info_data(name, &[]));
    assert!(session_of(&[CLIENT, &structured, &set, &go(b"a")].concat()).allocation_context);
    assert!(!session_of(&[CLIENT, &structured, &set, &go(b"disk")].concat()).allocation_context);
    assert!(!session_of(&[CLIENT, &structured, &set, &unset, &go(b"a")].concat()).allocation_context);
    let plain = session_of(&[CLIENT, &structured, &go(b"a")].concat());
    assert!(plain.structured && !plain.allocation_context);
}

#[test]
fn meta_contexts_are_listed() {
    let ask = |option, queries: &[&[u8]]| {
        let parts = [CLIENT, &option_bytes(option::STRUCTURED_REPLY, b""), &option_bytes(option, &context_data(b"a", queries))];
        let (output, progress, _) = talk_both(&parts.concat());
        assert_eq!(progress, Progress::NeedMore);
        answers(&output[20..], option)
    };
    let listed = vec![(option_reply::META_CONTEXT, b"\0\0\0\0base:allocation".to_vec()), (option_reply::ACK, vec![])];
    assert_eq!(ask(option::LIST_META_CONTEXT, &[]), listed);
    assert_eq!(ask(option::LIST_META_CONTEXT, &[b"base:"]), listed);
    assert_eq!(ask(option::LIST_META_CONTEXT, &[b"other:"]), vec![(option_reply::ACK, vec![])]);
    let set = vec![(option_reply::META_CONTEXT, b"\0\0\0\x01base:allocation".to_vec()), (option_reply::ACK, vec![])];
    assert_eq!(ask(option::SET_META_CONTEXT, &[b"base:allocation"]), set);
    assert_eq!(ask(option::SET_META_CONTEXT, &[b"base:"]), vec![(option_reply::ACK, vec![])]);
    assert_eq!(only_kind(&ask(option::SET_META_CONTEXT, &[&[b'q'; 5000]])), option_reply::ERR_TOO_BIG);
}

#[test]
fn clients_that_are_not_fixed_newstyle_are_sent_away() {
    for flags in [0u32, 2, 4 + 1, 0x8000_0003] {
        let (output, progress, _) = talk_both(&flags.to_be_bytes());
        assert_eq!((output.len(), progress), (0, Progress::Close(ClosedBy::ClientFlags(flags))));
    }
    let (_, progress, _) = talk_both(&[CLIENT, b"GET / HTTP/1.1\r\n"].concat());
    assert!(matches!(progress, Progress::Close(ClosedBy::OptionMagic(_))));
}

#[test]
fn where_tls_comes_first_nothing_else_does() {
    let mut handshake = Handshake::forced_tls();
    let mut output = Vec::new();
    let mut say = |bytes: &[u8]| {
        output.clear();
        let (consumed, progress) = handshake.feed(bytes, &Disks, &mut output);
        let kind = output.get(12..16).map(|kind| u32::from_be_bytes(kind.try_into().unwrap()));
        (consumed, progress, kind)
    };
    assert_eq!(say(CLIENT).1, Progress::NeedMore);
    for option in [option::LIST, option::INFO, option::GO, option::STRUCTURED_REPLY, option::SET_META_CONTEXT, 77] {
        let (_, progress, kind) = say(&option_bytes(option, &info_data(b"disk", &[])));
        assert_eq!((progress, kind), (Progress::Answered, Some(option_reply::ERR_TLS_REQUIRED)), "{option}");
    }
    let (_, progress, kind) = say(&option_bytes(option::STARTTLS, b"x"));
    assert_eq!((progress, kind), (Progress::Answered, Some(option_reply::ERR_INVALID)));
    // What is said plainly behind STARTTLS is not taken as said with TLS.
    let behind = [option_bytes(option::STARTTLS, b""), option_bytes(option::GO, &info_data(b"disk", &[]))].concat();
    let (consumed, progress, kind) = say(&behind);
    assert_eq!((consumed, progress, kind), (16, Progress::StartTls, Some(option_reply::ACK)));
    handshake.secured();
    let mut output = Vec::new();
    let (_, progress) = handshake.feed(&option_bytes(option::STARTTLS, b""), &Disks, &mut output);
    assert_eq!((progress, &output[12..16]), (Progress::Answered, &option_reply::ERR_INVALID.to_be_bytes()[..]));
    let (_, progress) = handshake.feed(&option_bytes(option::GO, &info_data(b"disk", &[])), &Disks, &mut output);
    assert!(matches!(progress, Progress::Done(_)), "{progress:?}");
    // The old way to choose an export can only be cut off; leaving is always allowed.
    for (option, reason) in [(option::EXPORT_NAME, ClosedBy::TlsRequired), (option::ABORT, ClosedBy::Abort)] {
        let input = [CLIENT, &option_bytes(option, b"")].concat();
        let (_, progress) = Handshake::forced_tls().feed(&input, &Disks, &mut output);
        assert_eq!(progress, Progress::Close(reason));
    }
}

/// Exports of which one may be away.
struct Away<'a>(&'a std::cell::Cell<bool>, bool);

impl Catalog for Away<'_> {
    fn list(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn find(&self, name: &[u8]) -> Option<ExportInfo> {
        if self.0.get() { None } else { Disks.find(name) }
    }

    fn is_awaited(&self, _name: &[u8]) -> bool {
        self.1 && self.0.get()
    }

    fn absence(&self, _name: &[u8]) -> Option<String> {
        self.0.get().then(|| "it is away".into())
    }
}

/// Whatever names an export waits for it, and is then answered as if it had been there all the time.
#[test]
fn options_wait_for_an_export_that_is_away() {
    let structured = option_bytes(option::STRUCTURED_REPLY, &[]);
    let cases = [
        option_bytes(option::EXPORT_NAME, b"a"),
        option_bytes(option::EXPORT_NAME, b""),
        option_bytes(option::GO, &info_data(b"a", &[])),
        option_bytes(option::INFO, &info_data(b"", &[3])),
        option_bytes(option::SET_META_CONTEXT, &context_data(b"a", &[b"base:allocation"])),
        option_bytes(option::LIST_META_CONTEXT, &context_data(b"disk", &[])),
    ];
    for (nth, asks) in cases.iter().enumerate() {
        let mut talks = [false, true].map(|is_away| {
            let away = std::cell::Cell::new(is_away);
            let (mut handshake, mut output) = (Handshake::new(), Vec::new());
            let mut say = |input: &[u8], waits: bool| {
                let (used, progress) = handshake.feed(input, &Away(&away, waits), &mut output);
                assert_eq!(used, input.len(), "case {nth}");
                progress
            };
            say(CLIENT, true);
            assert_eq!(say(&structured, true), Progress::Answered);
            if is_away {
                assert_eq!(say(asks, true), Progress::Wait, "case {nth}");
                assert_eq!(say(&[], true), Progress::Wait, "case {nth}");
                away.set(false);
            }
            let progress = if is_away { say(&[], true) } else { say(asks, true) };
            assert!(matches!(progress, Progress::Answered | Progress::Done(_)), "case {nth}: {progress:?}");
            (format!("{progress:?}"), output)
        });
        let waited = std::mem::take(&mut talks[1]);
        assert!(talks[0] == waited, "case {nth}");
        // Who waits no more is told why, where there is an answer.
        let away = std::cell::Cell::new(true);
        let (mut handshake, mut output) = (Handshake::new(), Vec::new());
        let input = [CLIENT, &structured].concat();
        handshake.feed(&input, &Away(&away, true), &mut output);
        assert_eq!(handshake.feed(asks, &Away(&away, true), &mut output).1, Progress::Wait);
        let answered = handshake.feed(&[], &Away(&away, false), &mut output).1;
        let told = output.ends_with(b"it is away");
        assert_eq!(told, answered == Progress::Answered, "case {nth}");
        assert!(told || answered == Progress::Close(ClosedBy::UnknownExport), "case {nth}");
    }
    // What names none does not wait.
    let (mut handshake, mut output, away) = (Handshake::new(), Vec::new(), std::cell::Cell::new(true));
    let input = [CLIENT, &option_bytes(option::LIST, &[])].concat();
    assert_eq!(handshake.feed(&input, &Away(&away, true), &mut output).1, Progress::Answered);
    assert_eq!(handshake.feed(&option_bytes(option::GO, b"x"), &Away(&away, true), &mut output).1, Progress::Answered);
}
