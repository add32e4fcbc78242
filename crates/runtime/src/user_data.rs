//! What the ring carries through the kernel for us: which kind of thing an entry belongs to, and its number.

/// Kinds of entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The read of the inbox's bell.
    Bell = 1,
    /// An entry that an endpoint has pushed.
    Endpoint = 2,
    /// Device I/O.
    Device = 3,
    /// A cancellation; nobody waits for it.
    Cancel = 4,
}

/// Packs kind (above) and number (below).
pub(crate) const fn user_data(kind: Kind, number: u32) -> u64 {
    (kind as u64) << 56 | number as u64
}

/// The inverse of [`user_data`].
pub(crate) fn kind_and_number(user_data: u64) -> (Kind, u32) {
    let kind = match user_data >> 56 {
        1 => Kind::Bell,
        2 => Kind::Endpoint,
        3 => Kind::Device,
        4 => Kind::Cancel,
        other => unreachable!("no entry has kind {other}"),
    };
    (kind, user_data as u32)
}
