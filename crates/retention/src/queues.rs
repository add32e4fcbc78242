//! One member's cache, without content: small part, main part and ghost over blocks that have numbers.
//!
//! Invariants: a block is in one part at most; the parts together hold at most the room; of the small part exactly the newest `fresh` blocks
//! are not ripe.

use crate::member::{Member, part_of};
use alloc::vec::Vec;

/// No block.
const NONE: u32 = u32::MAX;
/// Most uses that are counted of a block.
pub const USES_MAX: u8 = 3;

/// Where a block is: the low bits of its state.
const PART: u8 = 3;
const SMALL: u8 = 1;
const MAIN: u8 = 2;
const GHOST: u8 = 3;
/// Uses, above them.
const USE: u8 = 1 << 2;
const USES: u8 = USES_MAX * USE;
/// Old enough that its hits count.
const RIPE: u8 = 1 << 4;

/// First in, first out, linked by `Queues::next` from the oldest on.
#[derive(Clone, Copy, Debug)]
struct Fifo {
    oldest: u32,
    newest: u32,
    len: u32,
}

impl Fifo {
    const EMPTY: Fifo = Fifo { oldest: NONE, newest: NONE, len: 0 };

    fn push(&mut self, next: &mut [u32], block: u32) {
        next[block as usize] = NONE;
        match self.newest {
            NONE => self.oldest = block,
            newest => next[newest as usize] = block,
        }
        self.newest = block;
        self.len += 1;
    }

    fn pop(&mut self, next: &[u32]) -> u32 {
        let block = self.oldest;
        assert!(block != NONE, "a queue of {} blocks has an oldest one", self.len);
        self.oldest = next[block as usize];
        if self.oldest == NONE {
            self.newest = NONE;
        }
        self.len -= 1;
        block
    }
}

/// See the module.
#[derive(Debug)]
pub struct Queues {
    member: Member,
    room: u32,
    /// By block: the next newer one of its part; of one in the ghost, the low bits of `left` when it came there.
    next: Vec<u32>,
    state: Vec<u8>,
    small: Fifo,
    main: Fifo,
    /// The oldest block of the small part that is not ripe, and how many are not.
    first_fresh: u32,
    fresh: u32,
    /// Blocks that went to the ghost so far.
    left: u32,
}

impl Queues {
    /// An empty cache with room for so many of the blocks `0..blocks`.
    ///
    /// # Panics
    /// If it has room for fewer than two.
    pub fn new(member: Member, room: u32, blocks: u32) -> Queues {
        assert!(room >= 2, "room for {room} blocks");
        Queues {
            member,
            room,
            next: alloc::vec![NONE; blocks as usize],
            state: alloc::vec![0; blocks as usize],
            small: Fifo::EMPTY,
            main: Fifo::EMPTY,
            first_fresh: NONE,
            fresh: 0,
            left: 0,
        }
    }

    /// Follows another member from now on.
    pub fn set_member(&mut self, member: Member) {
        self.member = member;
    }

    /// A block is used; whether it was there. It is afterwards.
    pub fn access(&mut self, block: u32) -> bool {
        let state = self.state[block as usize];
        let is_ghost = match state & PART {
            MAIN => {
                self.count_use(block);
                return true;
            }
            SMALL => {
                if state & RIPE != 0 {
                    self.count_use(block);
                }
                return true;
            }
            GHOST => self.is_remembered(block),
            _ => false,
        };
        self.make_room();
        if is_ghost || self.member.small_permille == 0 {
            self.state[block as usize] = MAIN;
            self.main.push(&mut self.next, block);
        } else {
            self.enter_small(block);
        }
        false
    }

    /// Nothing is known of the block, or nothing that is still of use.
    pub fn is_unknown(&self, block: u32) -> bool {
        match self.state[block as usize] & PART {
            0 => true,
            GHOST => !self.is_remembered(block),
            _ => false,
        }
    }

    /// Forgets a block of which [`Queues::is_unknown`] says so: its number is used for another.
    pub fn clear(&mut self, block: u32) {
        assert!(self.is_unknown(block), "block {block} is in use");
        self.state[block as usize] = 0;
    }

    /// Bytes on the heap for each block.
    pub const BLOCK_BYTES: u64 = (size_of::<u32>() + size_of::<u8>()) as u64;

    fn is_remembered(&self, block: u32) -> bool {
        self.left.wrapping_sub(self.next[block as usize]) <= part_of(self.room, self.member.ghost_permille)
    }

    fn count_use(&mut self, block: u32) {
        let state = &mut self.state[block as usize];
        if *state & USES < USES {
            *state += USE;
        }
    }

    fn enter_small(&mut self, block: u32) {
        self.state[block as usize] = SMALL;
        self.small.push(&mut self.next, block);
        if self.first_fresh == NONE {
            self.first_fresh = block;
        }
        self.fresh += 1;
        let most = part_of(self.small_max(), self.member.window_permille);
        while self.fresh > most {
            let ripe = self.first_fresh;
            self.state[ripe as usize] |= RIPE;
            self.passed_fresh(ripe);
        }
    }

    /// This block, the oldest of those that are not ripe, is none of them any more.
    fn passed_fresh(&mut self, block: u32) {
        self.first_fresh = self.next[block as usize];
        self.fresh -= 1;
    }

    fn small_max(&self) -> u32 {
        part_of(self.room, self.member.small_permille).max(1)
    }

    fn make_room(&mut self) {
        while self.small.len + self.main.len >= self.room {
            if self.small.len >= self.small_max() || self.main.len == 0 {
                self.judge_oldest_of_small();
            } else {
                self.judge_oldest_of_main();
            }
        }
    }

    fn judge_oldest_of_small(&mut self) {
        let block = self.small.oldest;
        if block == self.first_fresh {
            self.passed_fresh(block);
        }
        self.small.pop(&self.next);
        let uses = (self.state[block as usize] & USES) / USE;
        if uses >= self.member.hits {
            self.state[block as usize] = MAIN;
            self.main.push(&mut self.next, block);
        } else {
            self.left = self.left.wrapping_add(1);
            self.state[block as usize] = GHOST;
            self.next[block as usize] = self.left;
        }
    }

    fn judge_oldest_of_main(&mut self) {
        let block = self.main.pop(&self.next);
        let state = &mut self.state[block as usize];
        if *state & USES == 0 {
            *state = 0;
        } else {
            *state -= USE;
            self.main.push(&mut self.next, block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::MEMBERS;

    const BLOCKS: u32 = 500;

    fn accesses(count: u64) -> impl Iterator<Item = u32> {
        // A few blocks often, many seldom, and some in quick succession.
        (0..count).map(|nth| {
            let random = (nth / 3 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ ((nth / 3) << 7);
            (random >> 32) as u32 % if random % 3 == 0 { 40 } else { BLOCKS }
        })
    }

    fn blocks_of(fifo: Fifo, next: &[u32]) -> Vec<u32> {
        let mut blocks = Vec::new();
        let mut at = fifo.oldest;
        while at != NONE {
            blocks.push(at);
            at = next[at as usize];
        }
        assert_eq!((blocks.len(), blocks.last().copied().unwrap_or(NONE)), (fifo.len as usize, fifo.newest));
        blocks
    }

    fn check(queues: &Queues) {
        let (small, main) = (blocks_of(queues.small, &queues.next), blocks_of(queues.main, &queues.next));
        assert!(small.len() + main.len() <= queues.room as usize);
        assert!(small.iter().all(|block| queues.state[*block as usize] & PART == SMALL));
        assert!(main.iter().all(|block| queues.state[*block as usize] & PART == MAIN));
        let ripe = small.len() - queues.fresh as usize;
        for (nth, block) in small.iter().enumerate() {
            assert_eq!(queues.state[*block as usize] & RIPE != 0, nth < ripe, "the oldest {ripe} of {}", small.len());
        }
        assert_eq!(queues.first_fresh, small.get(ripe).copied().unwrap_or(NONE));
    }

    #[test]
    fn the_invariants_hold_whatever_member_is_followed() {
        for room in [2, 3, 50, 400] {
            let mut queues = Queues::new(MEMBERS[0], room, BLOCKS);
            for (nth, block) in accesses(20_000).enumerate() {
                if nth % 777 == 0 {
                    queues.set_member(MEMBERS[nth / 777 % MEMBERS.len()]);
                }
                queues.access(block);
                assert!(queues.access(block), "what was used just now is there");
                if nth % 50 == 0 {
                    check(&queues);
                }
            }
        }
    }

    #[test]
    fn a_block_used_once_more_when_it_is_ripe_stays_and_others_leave() {
        let member = MEMBERS[0];
        let mut queues = Queues::new(member, 100, BLOCKS);
        (0..90).for_each(|block| assert!(!queues.access(block)));
        // Used at once, which does not count; and much later, which does.
        assert!(queues.access(89) && queues.access(3));
        (100..200).for_each(|block| assert!(!queues.access(block)));
        assert!(queues.access(3), "it went to the main part");
        assert!(!queues.access(89), "it was forgotten");
        assert!(!queues.access(50));
        (300..400).for_each(|block| assert!(!queues.access(block)));
        assert!(queues.access(50), "its key was remembered, and it went to the main part at once");
    }

    /// With everything in the main part it is the textbook's CLOCK with a counter.
    #[test]
    fn without_a_small_part_it_is_clock() {
        let clock = MEMBERS[2];
        assert_eq!(clock.small_permille, 0);
        let mut queues = Queues::new(clock, 60, BLOCKS);
        let mut ring: alloc::collections::VecDeque<(u32, u8)> = alloc::collections::VecDeque::new();
        for block in accesses(10_000) {
            let hit = match ring.iter_mut().find(|(of, _)| *of == block) {
                Some((_, uses)) => {
                    *uses = (*uses + 1).min(USES_MAX);
                    true
                }
                None => {
                    while ring.len() == 60 {
                        let (oldest, uses) = ring.pop_front().expect("it is full");
                        if uses > 0 {
                            ring.push_back((oldest, uses - 1));
                        }
                    }
                    ring.push_back((block, 0));
                    false
                }
            };
            assert_eq!(queues.access(block), hit);
        }
    }
}
