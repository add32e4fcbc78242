//! The messages of a front end: docs/interop/vhost-user.rst of QEMU.
//!
//! ```text
//!   u32 request   u32 flags: version 1, reply, reply wanted   u32 bytes that follow   …, and descriptors beside
//! ```
//! Numbers are the machine's own. Nothing here looks at what a message means for a device.

/// Bytes of the head.
pub(crate) const HEAD_BYTES: usize = 12;
/// Longest body that is taken: a memory table of 32 regions has 1032 bytes.
pub(crate) const BODY_BYTES_MAX: usize = 4096;
/// Descriptors with one message.
pub(crate) const DESCRIPTORS_MAX: usize = 32;

const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
const IS_REPLY: u32 = 1 << 2;
const WANTS_REPLY: u32 = 1 << 3;
/// In a queue's descriptor message: there is no descriptor.
const NO_DESCRIPTOR: u64 = 1 << 8;
/// In the configuration messages: bytes before what is read or written.
const CONFIG_HEAD_BYTES: usize = 12;

/// Protocol features that are known here.
pub(crate) mod protocol {
    pub(crate) const MQ: u64 = 1 << 0;
    pub(crate) const LOG_SHMFD: u64 = 1 << 1;
    pub(crate) const REPLY_ACK: u64 = 1 << 3;
    pub(crate) const BACKEND_REQ: u64 = 1 << 5;
    pub(crate) const CONFIG: u64 = 1 << 9;
    pub(crate) const INFLIGHT_SHMFD: u64 = 1 << 12;
    pub(crate) const RESET_DEVICE: u64 = 1 << 13;
    pub(crate) const CONFIGURE_MEM_SLOTS: u64 = 1 << 15;
    pub(crate) const ALL: u64 = MQ | LOG_SHMFD | REPLY_ACK | BACKEND_REQ | CONFIG | INFLIGHT_SHMFD | RESET_DEVICE | CONFIGURE_MEM_SLOTS;
}

/// The head of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub(crate) request: u32,
    pub(crate) wants_reply: bool,
    pub(crate) body_bytes: usize,
}

/// A message that is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Malformed(pub(crate) &'static str);

impl Head {
    pub(crate) fn decode(bytes: &[u8; HEAD_BYTES]) -> Result<Head, Malformed> {
        let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let (flags, body_bytes) = (word(4), word(8) as usize);
        if flags & VERSION_MASK != VERSION || flags & IS_REPLY != 0 {
            return Err(Malformed("a message is of another version of the protocol"));
        }
        if body_bytes > BODY_BYTES_MAX {
            return Err(Malformed("a message is too long"));
        }
        Ok(Head { request: word(0), wants_reply: flags & WANTS_REPLY != 0, body_bytes })
    }
}

/// A reply with this body.
pub(crate) fn reply(request: u32, body: &[u8]) -> Vec<u8> {
    message(request, VERSION | IS_REPLY, body)
}

/// "Read your device's configuration anew", to the front end.
pub(crate) fn config_changed() -> Vec<u8> {
    const BACKEND_CONFIG_CHANGE: u32 = 2;
    message(BACKEND_CONFIG_CHANGE, VERSION, &[])
}

fn message(request: u32, flags: u32, body: &[u8]) -> Vec<u8> {
    [&request.to_ne_bytes()[..], &flags.to_ne_bytes(), &(body.len() as u32).to_ne_bytes(), body].concat()
}

/// Words of a message's body.
pub(crate) fn words(body: &[u64]) -> Vec<u8> {
    body.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// A region of the guest's memory, as described.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RegionFacts {
    pub(crate) guest: u64,
    pub(crate) bytes: u64,
    pub(crate) user: u64,
    pub(crate) offset: u64,
}

/// Where the requests under way are noted, as described.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InflightFacts {
    pub(crate) bytes: u64,
    pub(crate) offset: u64,
    pub(crate) queues: u16,
    pub(crate) entries: u16,
}

impl InflightFacts {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = words(&[self.bytes, self.offset]);
        body.extend_from_slice(&self.queues.to_ne_bytes());
        body.extend_from_slice(&self.entries.to_ne_bytes());
        // As QEMU's structure is padded.
        body.extend_from_slice(&[0; 4]);
        body
    }
}

/// What a front end asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Ask {
    GetFeatures,
    SetFeatures(u64),
    SetOwner,
    /// Also the older word for it.
    Reset,
    SetMemory(Vec<RegionFacts>),
    SetLog {
        bytes: u64,
        offset: u64,
    },
    SetEntries {
        queue: u32,
        entries: u32,
    },
    SetPlace {
        queue: u32,
        logs: bool,
        descriptors: u64,
        used: u64,
        available: u64,
        log: u64,
    },
    SetBase {
        queue: u32,
        base: u32,
    },
    GetBase {
        queue: u32,
    },
    SetKick {
        queue: u32,
        has: bool,
    },
    SetCall {
        queue: u32,
        has: bool,
    },
    SetError {
        queue: u32,
        has: bool,
    },
    GetProtocolFeatures,
    SetProtocolFeatures(u64),
    GetQueueCount,
    Enable {
        queue: u32,
        on: bool,
    },
    SetBackChannel,
    GetConfig {
        offset: u32,
        bytes: u32,
        flags: u32,
    },
    SetConfig {
        offset: u32,
        data: Vec<u8>,
    },
    GetInflight(InflightFacts),
    SetInflight(InflightFacts),
    GetMemorySlots,
    AddMemory(RegionFacts),
    RemoveMemory(RegionFacts),
    /// Something that this device does not do.
    Unknown(u32),
}

impl Ask {
    /// Whether it has a reply of its own kind, for which no plain number may stand.
    pub(crate) fn has_own_reply(&self) -> bool {
        let has_number = matches!(self, Ask::GetFeatures | Ask::GetProtocolFeatures | Ask::GetQueueCount | Ask::GetMemorySlots);
        has_number || matches!(self, Ask::SetLog { .. } | Ask::GetBase { .. } | Ask::GetConfig { .. } | Ask::GetInflight(_))
    }
}

/// A body that is read from front to back.
struct Body<'a>(&'a [u8]);

impl Body<'_> {
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.0.split_first_chunk().ok_or(Malformed("a message is too short"))?;
        self.0 = rest;
        Ok(*head)
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        self.bytes().map(u16::from_ne_bytes)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.bytes().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.bytes().map(u64::from_ne_bytes)
    }

    fn region(&mut self) -> Result<RegionFacts, Malformed> {
        Ok(RegionFacts { guest: self.u64()?, bytes: self.u64()?, user: self.u64()?, offset: self.u64()? })
    }

    fn inflight(&mut self) -> Result<InflightFacts, Malformed> {
        Ok(InflightFacts { bytes: self.u64()?, offset: self.u64()?, queues: self.u16()?, entries: self.u16()? })
    }

    fn descriptor(&mut self) -> Result<(u32, bool), Malformed> {
        let word = self.u64()?;
        Ok(((word & 0xff) as u32, word & NO_DESCRIPTOR == 0))
    }
}

impl Ask {
    /// Reads a message of that kind. Bytes beyond what the kind has are padding.
    pub(crate) fn decode(request: u32, body: &[u8]) -> Result<Ask, Malformed> {
        let mut body = Body(body);
        Ok(match request {
            1 => Ask::GetFeatures,
            2 => Ask::SetFeatures(body.u64()?),
            3 => Ask::SetOwner,
            4 | 34 => Ask::Reset,
            5 => {
                let (count, _) = (body.u32()?, body.u32()?);
                if count as usize > DESCRIPTORS_MAX {
                    return Err(Malformed("a memory table has too many regions"));
                }
                Ask::SetMemory((0..count).map(|_| body.region()).collect::<Result<_, _>>()?)
            }
            6 => Ask::SetLog { bytes: body.u64()?, offset: body.u64()? },
            8 => Ask::SetEntries { queue: body.u32()?, entries: body.u32()? },
            9 => {
                let (queue, flags) = (body.u32()?, body.u32()?);
                let (descriptors, used, available, log) = (body.u64()?, body.u64()?, body.u64()?, body.u64()?);
                Ask::SetPlace { queue, logs: flags & 1 != 0, descriptors, used, available, log }
            }
            10 => Ask::SetBase { queue: body.u32()?, base: body.u32()? },
            11 => Ask::GetBase { queue: body.u32()? },
            12 => body.descriptor().map(|(queue, has)| Ask::SetKick { queue, has })?,
            13 => body.descriptor().map(|(queue, has)| Ask::SetCall { queue, has })?,
            14 => body.descriptor().map(|(queue, has)| Ask::SetError { queue, has })?,
            15 => Ask::GetProtocolFeatures,
            16 => Ask::SetProtocolFeatures(body.u64()?),
            17 => Ask::GetQueueCount,
            18 => Ask::Enable { queue: body.u32()?, on: body.u32()? != 0 },
            21 => Ask::SetBackChannel,
            24 => Ask::GetConfig { offset: body.u32()?, bytes: body.u32()?, flags: body.u32()? },
            25 => {
                let (offset, bytes, _) = (body.u32()?, body.u32()? as usize, body.u32()?);
                let data = body.0.get(..bytes).ok_or(Malformed("a message is too short"))?;
                Ask::SetConfig { offset, data: data.to_vec() }
            }
            31 => Ask::GetInflight(body.inflight()?),
            32 => Ask::SetInflight(body.inflight()?),
            36 => Ask::GetMemorySlots,
            37 | 38 => {
                body.u64()?;
                let region = body.region()?;
                if request == 37 { Ask::AddMemory(region) } else { Ask::RemoveMemory(region) }
            }
            other => Ask::Unknown(other),
        })
    }
}

/// The answer to [`Ask::GetConfig`]; without data, it says that there is none.
pub(crate) fn config_body(offset: u32, flags: u32, data: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(CONFIG_HEAD_BYTES + data.len());
    for word in [offset, data.len() as u32, flags] {
        body.extend_from_slice(&word.to_ne_bytes());
    }
    body.extend_from_slice(data);
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_other_versions_and_long_ones_are_refused() {
        let head = |flags: u32, bytes: u32| {
            let mut head = [0; HEAD_BYTES];
            head[0] = 5;
            head[4..8].copy_from_slice(&flags.to_ne_bytes());
            head[8..].copy_from_slice(&bytes.to_ne_bytes());
            Head::decode(&head)
        };
        assert_eq!(head(9, 8), Ok(Head { request: 5, wants_reply: true, body_bytes: 8 }));
        for (flags, bytes) in [(0, 8), (2, 8), (5, 8), (1, 4097), (1, u32::MAX)] {
            assert!(head(flags, bytes).is_err(), "{flags} {bytes}");
        }
    }

    /// Whatever is cut off a message, and whatever its bytes, reading it ends without a panic.
    #[test]
    fn any_body_is_read_or_refused() {
        let mut seed = 7u64;
        for request in 0..64 {
            for length in 0..200 {
                let body: Vec<u8> = (0..length)
                    .map(|_| {
                        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        (seed >> 56) as u8
                    })
                    .collect();
                let _ = Ask::decode(request, &body);
            }
        }
        assert_eq!(Ask::decode(2, &[0; 7]), Err(Malformed("a message is too short")));
        assert_eq!(Ask::decode(5, &words(&[33])), Err(Malformed("a memory table has too many regions")));
        assert_eq!(Ask::decode(13, &words(&[0x103])), Ok(Ask::SetCall { queue: 3, has: false }));
        assert!(Ask::decode(25, &config_body(0, 0, &[1; 8])[..19]).is_err());
    }
}
