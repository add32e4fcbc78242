//! A client that goes from one daemon to the next: what was agreed with it, and what of its next
//! requests has been received already. Nothing of it is in flight.
//!
//! ```text
//!   4 bytes  version        8 bytes  size of the export     2 bytes  length of its name, its name
//!   1 byte   what was agreed        4 bytes  smallest request       the rest: input
//! ```

use crate::protocol::Session;
use std::os::fd::OwnedFd;

const VERSION: u32 = 1;
const STRUCTURED: u8 = 1;
const ALLOCATION_CONTEXT: u8 = 2;

/// A client without a server.
#[derive(Debug)]
pub struct Parked {
    /// The export that it has chosen.
    pub export: String,
    /// Its connection.
    pub socket: OwnedFd,
    /// What another server must know to go on with it.
    pub state: Vec<u8>,
}

/// What is in [`Parked::state`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct State {
    pub(crate) export: String,
    pub(crate) size_bytes: u64,
    pub(crate) block_bytes_min: u32,
    pub(crate) structured: bool,
    pub(crate) allocation_context: bool,
    /// Received, and not used yet.
    pub(crate) input: Vec<u8>,
}

impl State {
    pub(crate) fn of(session: &Session, input: &[u8]) -> State {
        State {
            export: session.export.name.clone(),
            size_bytes: session.export.size_bytes,
            block_bytes_min: session.export.block_bytes_min,
            structured: session.structured,
            allocation_context: session.allocation_context,
            input: input.to_vec(),
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let agreed = if self.structured { STRUCTURED } else { 0 };
        let agreed = agreed | if self.allocation_context { ALLOCATION_CONTEXT } else { 0 };
        let mut bytes = VERSION.to_be_bytes().to_vec();
        bytes.push(agreed);
        bytes.extend_from_slice(&self.size_bytes.to_be_bytes());
        bytes.extend_from_slice(&self.block_bytes_min.to_be_bytes());
        // Names are checked when exports are added.
        bytes.extend_from_slice(&(self.export.len() as u16).to_be_bytes());
        bytes.extend_from_slice(self.export.as_bytes());
        bytes.extend_from_slice(&self.input);
        bytes
    }

    /// `None` if it is of another version, or makes no sense.
    pub(crate) fn decode(bytes: &[u8]) -> Option<State> {
        let (version, rest) = bytes.split_first_chunk()?;
        let (agreed, rest) = rest.split_first()?;
        let (size_bytes, rest) = rest.split_first_chunk()?;
        let (block_bytes_min, rest) = rest.split_first_chunk()?;
        let (name_bytes, rest) = rest.split_first_chunk()?;
        let (name, input) = rest.split_at_checked(usize::from(u16::from_be_bytes(*name_bytes)))?;
        let is_known = u32::from_be_bytes(*version) == VERSION && agreed & !(STRUCTURED | ALLOCATION_CONTEXT) == 0;
        is_known.then_some(State {
            export: String::from_utf8(name.to_vec()).ok()?,
            size_bytes: u64::from_be_bytes(*size_bytes),
            block_bytes_min: u32::from_be_bytes(*block_bytes_min),
            structured: agreed & STRUCTURED != 0,
            allocation_context: agreed & ALLOCATION_CONTEXT != 0,
            input: input.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        for (structured, allocation_context) in [(false, false), (true, false), (true, true)] {
            let (export, input) = ("datä".to_owned(), vec![1, 2, 3]);
            let state = State { export, size_bytes: 1 << 40, block_bytes_min: 512, structured, allocation_context, input };
            let bytes = state.encode();
            assert_eq!(State::decode(&bytes).as_ref(), Some(&state));
            // Input has no length of its own: all else must be whole.
            for length in 0..bytes.len() - state.input.len() {
                assert_eq!(State::decode(&bytes[..length]), None, "{length} bytes");
            }
            for (at, wrong) in [(3, 9), (4, 0xff)] {
                let mut changed = bytes.clone();
                changed[at] = wrong;
                assert_eq!(State::decode(&changed), None);
            }
        }
    }
}
