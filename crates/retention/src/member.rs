//! The members of the family.

/// One member: what a new block must do to stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its letter.
    pub name: char,
    /// Thousandths of the room that the small part may fill; 0: new blocks go to the main part at once, which makes the cache a CLOCK.
    pub small_permille: u32,
    /// Hits that count, until a block of the small part goes to the main one.
    pub hits: u8,
    /// Hits on a block that is among so many thousandths of the small part, the youngest, do not count: in quick succession they say that
    /// a transaction is at work on the page, not that it will be wanted again (Clock2Q+, arXiv 2511.21958).
    pub window_permille: u32,
    /// Thousandths of the room: of so many blocks that left the small part the keys are remembered.
    pub ghost_permille: u32,
}

/// The members; the first is the default.
///
/// Measured on five traces at 1, 10 and 30 % of the footprint, without layout and RAM tier, in parts of the gap from LRU to the optimum: A .367 /
/// .204 / .125, B .380 / .180 / .113, C .040 / .044 / .056, D .339 / .215 / .089, E .390 / .180 / .100, F .373 / .185 / .112. Longer
/// memories are better at 10 % and worse at 30 % (A with 800: .377 / .210 / .090; with 1500: .376 / .221 / .057).
pub const MEMBERS: [Member; 6] = [
    Member { name: 'A', small_permille: 100, hits: 1, window_permille: 500, ghost_permille: 500 },
    Member { name: 'B', small_permille: 250, hits: 1, window_permille: 500, ghost_permille: 500 },
    Member { name: 'C', small_permille: 0, hits: 1, window_permille: 0, ghost_permille: 0 },
    Member { name: 'D', small_permille: 50, hits: 1, window_permille: 500, ghost_permille: 500 },
    Member { name: 'E', small_permille: 250, hits: 1, window_permille: 900, ghost_permille: 500 },
    Member { name: 'F', small_permille: 100, hits: 1, window_permille: 900, ghost_permille: 300 },
];

/// A part of the room, in blocks.
pub(crate) const fn part_of(room: u32, permille: u32) -> u32 {
    (room as u64 * permille as u64 / 1000) as u32
}
