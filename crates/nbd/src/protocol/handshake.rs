//! The handshake: from the server's greeting to a chosen export.
//!
//! ```text
//!   greeting sent ─▶ client flags ─▶ option ─▶ option ─▶ … ─▶ GO or EXPORT_NAME ─▶ Session
//!                                      │ ▲
//!                                      └─┘ answered one at a time, so that output is bounded by what one option may cause
//! ```
//!
//! Invariants: no more than [`OPTION_BYTES_MAX`] of option data is ever held; bytes after the option that ends the handshake
//! are never consumed; what a client negotiated for one export never applies to another.

use super::request::Session;
use super::wire::{
    NAME_BYTES_MAX, OPTION_BYTES_MAX, OPTION_HEADER_BYTES, OPTION_MAGIC, OPTION_REPLY_MAGIC, PAYLOAD_BYTES_MAX, PREFERRED_BLOCK_BYTES,
    QUERIES_MAX, SERVER_MAGIC, handshake_flag, info, option, option_reply, transmission_flag, u16_at, u32_at, u64_at,
};

/// The one meta context known here.
const ALLOCATION: &[u8] = b"base:allocation";

/// What the server sends first: fixed newstyle, no zeroes.
pub const GREETING: [u8; 18] = {
    let (server, option) = (SERVER_MAGIC.to_be_bytes(), OPTION_MAGIC.to_be_bytes());
    let flags = (handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES).to_be_bytes();
    let mut bytes = [0; 18];
    let mut at = 0;
    while at < 8 {
        bytes[at] = server[at];
        bytes[at + 8] = option[at];
        at += 1;
    }
    bytes[16] = flags[0];
    bytes[17] = flags[1];
    bytes
};

/// What a client learns about an export.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportInfo {
    /// Its name, at most [`NAME_BYTES_MAX`] bytes.
    pub name: String,
    /// A line for people; empty for none.
    pub description: String,
    /// Size in bytes, a multiple of `block_bytes_min`.
    pub size_bytes: u64,
    /// Requests must start and end on a multiple of this: the logical block size.
    pub block_bytes_min: u32,
    /// The volume keeps aligned units of so many bytes whole; 0: it does not.
    pub atomic_bytes: u32,
    /// Longest READ in bytes that is answered in one chunk, at most [`PAYLOAD_BYTES_MAX`], which is the limit for all others and
    /// for WRITE.
    pub whole_read_bytes_max: u32,
    /// No changes.
    pub read_only: bool,
    /// Whether WRITE_ZEROES is faster than writing zeroes; where it is not, a client that asks for that gets ENOTSUP.
    pub fast_zeroes: bool,
}

impl ExportInfo {
    /// A writable export with 512-byte blocks and the largest requests.
    pub fn new(name: &str, size_bytes: u64) -> ExportInfo {
        ExportInfo {
            name: name.to_owned(),
            description: String::new(),
            size_bytes,
            block_bytes_min: 512,
            atomic_bytes: 0,
            whole_read_bytes_max: PAYLOAD_BYTES_MAX,
            read_only: false,
            fast_zeroes: false,
        }
    }

    /// The transmission flags. CAN_MULTI_CONN is always set: a flush covers all writes of the volume that were answered
    /// before it, whichever connection they came by.
    pub fn transmission_flags(&self) -> u16 {
        use transmission_flag as flag;
        let read_only = if self.read_only { flag::READ_ONLY } else { 0 };
        let common = flag::HAS_FLAGS | flag::SEND_FLUSH | flag::SEND_FUA | flag::SEND_DF | flag::CAN_MULTI_CONN;
        common | flag::SEND_TRIM | flag::SEND_WRITE_ZEROES | flag::SEND_FAST_ZERO | read_only
    }
}

/// Where the handshake finds exports.
pub trait Catalog {
    /// Names and descriptions of all exports, for LIST. A server that does not tell gives none.
    fn list(&self) -> Vec<(String, String)>;
    /// The export of that name; the empty name means the default export, if there is one. The name has not been checked to
    /// be UTF-8.
    fn find(&self, name: &[u8]) -> Option<ExportInfo>;
    /// Whether the export of that name is away for a moment, and to be waited for.
    fn is_awaited(&self, name: &[u8]) -> bool {
        let _ = name;
        false
    }
    /// Why there is no export of that name now, where it is only away: a sentence.
    fn absence(&self, name: &[u8]) -> Option<String> {
        let _ = name;
        None
    }
    /// Called when a client has chosen an export that was found, before it is told that it has it.
    fn admit(&self, name: &[u8]) -> Admission {
        let _ = name;
        Admission::Welcome
    }
    /// Why a client that has shown who it is may not use the export of that name, which is not found for it: a sentence.
    fn refusal(&self, name: &[u8]) -> Option<String> {
        let _ = name;
        None
    }
}

/// Whether a client gets the export that it has chosen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Admission {
    /// It has it.
    Welcome,
    /// It has just gone for a moment, and is to be waited for.
    Away,
    /// A sentence for the client: there are too many already, say.
    Refused(String),
}

/// Why a connection must be closed during the handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ClosedBy {
    /// The client said ABORT. Its answer is in the output.
    #[error("the client ended the session")]
    Abort,
    /// The client does not speak fixed newstyle, or set flags that do not exist.
    #[error("client flags {0:#x} are not fixed newstyle")]
    ClientFlags(u32),
    /// An option did not begin with its magic.
    #[error("option magic is {0:#018x}")]
    OptionMagic(u64),
    /// EXPORT_NAME before TLS, which must come first; that option has no error answer.
    #[error("the client chose an export before TLS")]
    TlsRequired,
    /// EXPORT_NAME named no export; that option has no error answer.
    #[error("no export of the name the client gave")]
    UnknownExport,
    /// EXPORT_NAME with a name above the limit.
    #[error("export name of {0} bytes")]
    NameTooLong(u32),
    /// EXPORT_NAME while there are too many clients, or of an export that goes; that option has no error answer.
    #[error("the client was refused")]
    Refused,
}

/// What [`Handshake::feed`] came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Progress {
    /// All input is consumed and more is needed.
    NeedMore,
    /// The export that the client asks for is away for a moment. Send the output; feed again when it may be there, or is to be waited for no
    /// more.
    Wait,
    /// One option was answered; send the output, then feed the rest of the input.
    Answered,
    /// The client begins TLS: send the output, then shake hands; the rest of the input belongs to that. Then call
    /// [`Handshake::secured`], and feed what comes by TLS.
    StartTls,
    /// The handshake is over; send the output. The rest of the input belongs to the transmission phase.
    Done(Box<Session>),
    /// Send the output, if any, and close.
    Close(ClosedBy),
}

#[derive(Clone, Copy)]
enum State {
    ClientFlags,
    OptionHeader,
    OptionData {
        option: u32,
        length_bytes: usize,
    },
    /// Reading over data that is too long, before saying so.
    Skip {
        option: u32,
        left_bytes: u32,
    },
}

/// What TLS is to a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Security {
    /// There is none on this socket.
    None,
    /// It must come first ("FORCEDTLS").
    Required,
    /// It is in force.
    Active,
}

/// The state machine. Send [`GREETING`], then call [`Handshake::feed`] with what arrives.
pub struct Handshake {
    state: State,
    /// Bytes of the element being read; never longer than the element.
    partial: Vec<u8>,
    tls: Security,
    no_zeroes: bool,
    structured: bool,
    /// The export for which base:allocation was chosen.
    allocation_for: Option<Vec<u8>>,
}

impl Default for Handshake {
    fn default() -> Handshake {
        Handshake::new()
    }
}

impl Handshake {
    /// A handshake whose greeting is about to be sent.
    pub fn new() -> Handshake {
        let (state, tls) = (State::ClientFlags, Security::None);
        Handshake { state, partial: Vec::new(), tls, no_zeroes: false, structured: false, allocation_for: None }
    }

    /// The same on a socket where nothing but TLS is spoken of before TLS.
    pub fn forced_tls() -> Handshake {
        Handshake { tls: Security::Required, ..Handshake::new() }
    }

    /// TLS is in force: from now on options are taken.
    pub fn secured(&mut self) {
        self.tls = Security::Active;
    }

    /// Bytes held for an element that is not complete: what this connection costs in memory.
    pub fn held_bytes(&self) -> usize {
        self.partial.capacity()
    }

    /// Takes input until one option is answered or the input is used up. Gives the number of bytes consumed, and what
    /// came of it; answers are appended to `output`.
    pub fn feed(&mut self, input: &[u8], catalog: &dyn Catalog, output: &mut Vec<u8>) -> (usize, Progress) {
        let mut consumed = 0;
        loop {
            let rest = &input[consumed..];
            if let State::Skip { option, left_bytes } = &mut self.state {
                let skipped = rest.len().min(*left_bytes as usize);
                consumed += skipped;
                *left_bytes -= skipped as u32;
                if *left_bytes != 0 {
                    return (consumed, Progress::NeedMore);
                }
                let option = *option;
                self.state = State::OptionHeader;
                answer(output, option, option_reply::ERR_TOO_BIG, b"option data is too long");
                return (consumed, Progress::Answered);
            }
            let wanted = match self.state {
                State::ClientFlags => 4,
                State::OptionHeader => OPTION_HEADER_BYTES,
                State::OptionData { length_bytes, .. } => length_bytes,
                State::Skip { .. } => unreachable!("handled above"),
            };
            let taken = rest.len().min(wanted - self.partial.len());
            self.partial.extend_from_slice(&rest[..taken]);
            consumed += taken;
            if self.partial.len() < wanted {
                return (consumed, Progress::NeedMore);
            }
            let element = core::mem::take(&mut self.partial);
            let state = self.state;
            let progress = match self.asks_for_an_absent_export(&element, catalog) {
                true => Some(Progress::Wait),
                false => self.element(&element, catalog, output),
            };
            if let Some(progress) = progress {
                if progress == Progress::Wait {
                    // It is looked at again.
                    (self.state, self.partial) = (state, element);
                }
                return (consumed, progress);
            }
        }
    }

    /// Whether a complete element is an option with the name of an export that is to be waited for.
    fn asks_for_an_absent_export(&self, element: &[u8], catalog: &dyn Catalog) -> bool {
        let name = match self.state {
            _ if self.tls == Security::Required => None,
            State::OptionData { option: option::EXPORT_NAME, .. } => Some(element),
            State::OptionData { option: option::GO | option::INFO | option::SET_META_CONTEXT | option::LIST_META_CONTEXT, .. } => {
                Fields(element).string()
            }
            // The default export by a name without a byte.
            State::OptionHeader if element[8..] == [option::EXPORT_NAME.to_be_bytes(), [0; 4]].concat() => Some(&[][..]),
            _ => None,
        };
        name.is_some_and(|name| catalog.is_awaited(name))
    }

    /// One complete element; `None` if the next may be read at once.
    fn element(&mut self, element: &[u8], catalog: &dyn Catalog, output: &mut Vec<u8>) -> Option<Progress> {
        match self.state {
            State::ClientFlags => {
                let flags = u32_at(element, 0);
                let known = u32::from(handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES);
                if flags & !known != 0 || flags & u32::from(handshake_flag::FIXED_NEWSTYLE) == 0 {
                    return Some(Progress::Close(ClosedBy::ClientFlags(flags)));
                }
                self.no_zeroes = flags & u32::from(handshake_flag::NO_ZEROES) != 0;
                self.state = State::OptionHeader;
                None
            }
            State::OptionHeader => self.option_header(element, catalog, output),
            State::OptionData { option, .. } => {
                self.state = State::OptionHeader;
                Some(self.option(option, element, catalog, output))
            }
            State::Skip { .. } => unreachable!("skipped bytes are never collected"),
        }
    }

    fn option_header(&mut self, header: &[u8], catalog: &dyn Catalog, output: &mut Vec<u8>) -> Option<Progress> {
        let magic = u64_at(header, 0);
        if magic != OPTION_MAGIC {
            return Some(Progress::Close(ClosedBy::OptionMagic(magic)));
        }
        let (option, length_bytes) = (u32_at(header, 8), u32_at(header, 12));
        // EXPORT_NAME has no way to say no but closing.
        if option == option::EXPORT_NAME && length_bytes as usize > NAME_BYTES_MAX {
            return Some(Progress::Close(ClosedBy::NameTooLong(length_bytes)));
        }
        if length_bytes as usize > OPTION_BYTES_MAX {
            self.state = State::Skip { option, left_bytes: length_bytes };
            return None;
        }
        if length_bytes == 0 {
            return Some(self.option(option, &[], catalog, output));
        }
        self.state = State::OptionData { option, length_bytes: length_bytes as usize };
        None
    }

    fn option(&mut self, option: u32, data: &[u8], catalog: &dyn Catalog, output: &mut Vec<u8>) -> Progress {
        if self.tls == Security::Required {
            match option {
                option::STARTTLS if data.is_empty() => {
                    answer(output, option, option_reply::ACK, &[]);
                    return Progress::StartTls;
                }
                option::EXPORT_NAME => return Progress::Close(ClosedBy::TlsRequired),
                option::STARTTLS | option::ABORT => (),
                _ => {
                    answer(output, option, option_reply::ERR_TLS_REQUIRED, b"this export is served with TLS alone");
                    return Progress::Answered;
                }
            }
        }
        match option {
            option::EXPORT_NAME => return self.export_name(data, catalog, output),
            option::ABORT => {
                answer(output, option, option_reply::ACK, &[]);
                return Progress::Close(ClosedBy::Abort);
            }
            option::GO | option::INFO => return self.info(option, data, catalog, output),
            option::LIST if !data.is_empty() => refuse_data(output, option),
            option::LIST => list(catalog, output),
            option::STRUCTURED_REPLY if !data.is_empty() => refuse_data(output, option),
            option::STRUCTURED_REPLY => {
                self.structured = true;
                answer(output, option, option_reply::ACK, &[]);
            }
            option::STARTTLS if !data.is_empty() => refuse_data(output, option),
            option::STARTTLS if self.tls == Security::Active => {
                answer(output, option, option_reply::ERR_INVALID, b"TLS is in force already");
            }
            option::STARTTLS => answer(output, option, option_reply::ERR_POLICY, b"no TLS on this socket"),
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => self.meta_context(option, data, catalog, output),
            _ => answer(output, option, option_reply::ERR_UNSUPPORTED, b"unknown option"),
        }
        Progress::Answered
    }

    fn export_name(&mut self, name: &[u8], catalog: &dyn Catalog, output: &mut Vec<u8>) -> Progress {
        let Some(export) = catalog.find(name) else {
            // There is no answer to give; asked all the same, so that the log tells of it.
            drop(catalog.refusal(name));
            return Progress::Close(ClosedBy::UnknownExport);
        };
        match catalog.admit(name) {
            Admission::Welcome => {}
            Admission::Away => return Progress::Wait,
            Admission::Refused(_) => return Progress::Close(ClosedBy::Refused),
        }
        output.extend_from_slice(&export.size_bytes.to_be_bytes());
        output.extend_from_slice(&export.transmission_flags().to_be_bytes());
        if !self.no_zeroes {
            output.extend_from_slice(&[0; 124]);
        }
        Progress::Done(Box::new(self.session(name, export)))
    }

    fn session(&self, name: &[u8], export: ExportInfo) -> Session {
        let allocation_context = self.structured && self.allocation_for.as_deref() == Some(name);
        Session { export, structured: self.structured, allocation_context }
    }

    /// INFO and GO: name length, name, count, kinds of information.
    fn info(&mut self, option: u32, data: &[u8], catalog: &dyn Catalog, output: &mut Vec<u8>) -> Progress {
        let mut fields = Fields(data);
        let request = (|| {
            let name = fields.string()?;
            let count = usize::from(fields.u16()?);
            let kinds = fields.take(count.checked_mul(2)?)?;
            fields.0.is_empty().then_some((name, kinds))
        })();
        let Some((name, kinds)) = request else {
            answer(output, option, option_reply::ERR_INVALID, b"malformed request for information");
            return Progress::Answered;
        };
        if name.len() > NAME_BYTES_MAX {
            answer(output, option, option_reply::ERR_TOO_BIG, b"export name is too long");
            return Progress::Answered;
        }
        let Some(export) = catalog.find(name) else {
            not_found(output, option, name, catalog);
            return Progress::Answered;
        };
        if option == option::GO {
            match catalog.admit(name) {
                Admission::Welcome => {}
                Admission::Away => return Progress::Wait,
                Admission::Refused(sentence) => {
                    answer(output, option, option_reply::ERR_POLICY, sentence.as_bytes());
                    return Progress::Answered;
                }
            }
        }
        let wants = |kind: u16| kinds.chunks_exact(2).any(|field| u16_at(field, 0) == kind);
        let mut fact = |kind: u16, fields: &[&[u8]]| {
            let mut body = kind.to_be_bytes().to_vec();
            fields.iter().for_each(|field| body.extend_from_slice(field));
            answer(output, option, option_reply::INFO, &body);
        };
        fact(info::EXPORT, &[&export.size_bytes.to_be_bytes(), &export.transmission_flags().to_be_bytes()]);
        if wants(info::NAME) {
            fact(info::NAME, &[export.name.as_bytes()]);
        }
        if wants(info::DESCRIPTION) && !export.description.is_empty() {
            fact(info::DESCRIPTION, &[export.description.as_bytes()]);
        }
        let preferred = PREFERRED_BLOCK_BYTES.max(export.block_bytes_min).max(export.atomic_bytes);
        // Structured replies may come in chunks, so that no single one has to be large.
        let maximum = if self.structured { PAYLOAD_BYTES_MAX } else { export.whole_read_bytes_max };
        let sizes = [export.block_bytes_min, preferred, maximum].map(u32::to_be_bytes);
        fact(info::BLOCK_SIZE, &[&sizes[0], &sizes[1], &sizes[2]]);
        answer(output, option, option_reply::ACK, &[]);
        if option == option::INFO {
            return Progress::Answered;
        }
        Progress::Done(Box::new(self.session(name, export)))
    }

    /// LIST_META_CONTEXT and SET_META_CONTEXT: name length, name, count, queries with their lengths.
    fn meta_context(&mut self, option: u32, data: &[u8], catalog: &dyn Catalog, output: &mut Vec<u8>) {
        let setting = option == option::SET_META_CONTEXT;
        if setting {
            // A failed choice leaves none behind ("NBD_OPT_SET_META_CONTEXT").
            self.allocation_for = None;
        }
        if !self.structured {
            return answer(output, option, option_reply::ERR_INVALID, b"structured replies must come first");
        }
        let mut fields = Fields(data);
        let request = (|| Some((fields.string()?, fields.u32()?)))();
        let Some((name, count)) = request else {
            return answer(output, option, option_reply::ERR_INVALID, b"malformed request for meta contexts");
        };
        if name.len() > NAME_BYTES_MAX || count > QUERIES_MAX {
            return answer(output, option, option_reply::ERR_TOO_BIG, b"name too long or too many queries");
        }
        // An empty list asks for everything when listing, and for nothing when setting.
        let mut chosen = count == 0 && !setting;
        for _ in 0..count {
            let Some(query) = fields.string() else {
                return answer(output, option, option_reply::ERR_INVALID, b"malformed query");
            };
            if query.len() > NAME_BYTES_MAX {
                return answer(output, option, option_reply::ERR_TOO_BIG, b"query is too long");
            }
            chosen |= query == ALLOCATION || (query == b"base:" && !setting);
        }
        if !fields.0.is_empty() {
            return answer(output, option, option_reply::ERR_INVALID, b"data after the last query");
        }
        if catalog.find(name).is_none() {
            return not_found(output, option, name, catalog);
        }
        if chosen {
            // The number of a context is only meaningful once it is set.
            let context = if setting { super::reply::ALLOCATION_CONTEXT } else { 0 };
            let mut body = context.to_be_bytes().to_vec();
            body.extend_from_slice(ALLOCATION);
            answer(output, option, option_reply::META_CONTEXT, &body);
            if setting {
                self.allocation_for = Some(name.to_vec());
            }
        }
        answer(output, option, option_reply::ACK, &[]);
    }
}

fn list(catalog: &dyn Catalog, output: &mut Vec<u8>) {
    for (name, description) in catalog.list() {
        let mut body = (name.len() as u32).to_be_bytes().to_vec();
        body.extend_from_slice(name.as_bytes());
        body.extend_from_slice(description.as_bytes());
        answer(output, option::LIST, option_reply::SERVER, &body);
    }
    answer(output, option::LIST, option_reply::ACK, &[]);
}

fn not_found(output: &mut Vec<u8>, option: u32, name: &[u8], catalog: &dyn Catalog) {
    match (catalog.refusal(name), catalog.absence(name)) {
        (Some(sentence), _) => answer(output, option, option_reply::ERR_POLICY, sentence.as_bytes()),
        (None, Some(sentence)) => answer(output, option, option_reply::ERR_UNKNOWN, sentence.as_bytes()),
        (None, None) => answer(output, option, option_reply::ERR_UNKNOWN, b"no such export"),
    }
}

fn refuse_data(output: &mut Vec<u8>, option: u32) {
    answer(output, option, option_reply::ERR_INVALID, b"this option has no data");
}

fn answer(output: &mut Vec<u8>, option: u32, kind: u32, body: &[u8]) {
    output.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    output.extend_from_slice(&option.to_be_bytes());
    output.extend_from_slice(&kind.to_be_bytes());
    output.extend_from_slice(&(body.len() as u32).to_be_bytes());
    output.extend_from_slice(body);
}

/// What is left of an option's data. Every taking is checked against it.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (field, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(field)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|field| u16_at(field, 0))
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4).map(|field| u32_at(field, 0))
    }

    /// A length of 32 bits and that many bytes.
    fn string(&mut self) -> Option<&'a [u8]> {
        let length_bytes = self.u32()?;
        self.take(usize::try_from(length_bytes).ok()?)
    }
}
