//! How much one endpoint does before the others on its reactor have their turn.

use crate::endpoint::Context;

/// The turn of one endpoint: what it has done in it, and its wish for another one.
///
/// ```text
///   begin ─▶ step / moves, until is_spent ─▶ ask_again ─▶ Endpoint::ring with Turn::TOKEN ─▶ came ─▶ begin
///                └─▶ ask_for_end ─▶ Endpoint::turn_ends ─▶ ended
/// ```
#[derive(Debug, Default)]
pub struct Turn {
    steps: u32,
    bytes: u32,
    /// An entry on the ring brings the next turn.
    asked_again: bool,
    /// The reactor calls when it has nothing else to do.
    asked_for_end: bool,
}

impl Turn {
    /// The token of the entry that brings another turn: an endpoint that asks for one gives it to no entry of its own.
    pub const TOKEN: u32 = u32::MAX - 1;
    /// Steps (messages, chains) in one turn.
    pub const STEPS_MAX: u32 = 64;
    /// Bytes that are moved in one turn; the last step may go beyond it. At 8 GiB/s they are copied in 31 µs.
    pub const BYTES_MAX: u32 = 256 << 10;

    /// A turn begins.
    #[inline]
    pub fn begin(&mut self) {
        (self.steps, self.bytes) = (0, 0);
    }

    /// Counts one more step; `false` if the turn is over.
    #[inline]
    pub fn step(&mut self) -> bool {
        let goes_on = self.steps < Turn::STEPS_MAX && !self.is_spent();
        self.steps += u32::from(goes_on);
        goes_on
    }

    /// Counts work, in bytes that are moved.
    #[inline]
    pub fn moves(&mut self, bytes: u32) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Whether as many bytes have been moved as a turn has.
    #[inline]
    pub fn is_spent(&self) -> bool {
        self.bytes >= Turn::BYTES_MAX
    }

    /// Has [`Turn::TOKEN`] completed when the others have had their turn. One such entry at a time is on its way.
    #[inline]
    pub fn ask_again(&mut self, cx: &mut Context<'_>) {
        if !std::mem::replace(&mut self.asked_again, true) {
            cx.push_nop(Turn::TOKEN);
        }
    }

    /// [`Turn::TOKEN`] has completed.
    #[inline]
    pub fn came(&mut self) {
        self.asked_again = false;
    }

    /// Has [`Endpoint::turn_ends`](crate::Endpoint::turn_ends) called, once.
    #[inline]
    pub fn ask_for_end(&mut self, cx: &mut Context<'_>) {
        if !std::mem::replace(&mut self.asked_for_end, true) {
            cx.ask_for_turn_end();
        }
    }

    /// [`Endpoint::turn_ends`](crate::Endpoint::turn_ends) was called: the others have nothing left to do, so a turn begins.
    #[inline]
    pub fn ended(&mut self) {
        self.asked_for_end = false;
        self.begin();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::tests::FakeHost;

    fn steps(turn: &mut Turn, bytes: u32) -> u32 {
        turn.begin();
        let mut steps = 0;
        while turn.step() {
            turn.moves(bytes);
            steps += 1;
        }
        steps
    }

    #[test]
    fn a_turn_is_bounded_by_steps_and_by_bytes() {
        let mut turn = Turn::default();
        assert_eq!(steps(&mut turn, 0), Turn::STEPS_MAX);
        assert!(!turn.is_spent());
        assert_eq!(steps(&mut turn, Turn::BYTES_MAX / 8), 8);
        assert!(turn.is_spent());
        for longest in [Turn::BYTES_MAX, u32::MAX] {
            assert_eq!(steps(&mut turn, longest), 1, "one step may go beyond the limit, and none follows");
        }
        turn.moves(u32::MAX);
        assert!(turn.is_spent());
        turn.ended();
        assert!(!turn.is_spent() && turn.step());
    }

    #[test]
    fn one_wish_at_a_time_is_under_way() {
        let mut host = FakeHost::default();
        let mut turn = Turn::default();
        for round in 1..3 {
            for _ in 0..3 {
                turn.ask_again(&mut host.context());
                turn.ask_for_end(&mut host.context());
            }
            assert_eq!((&host.pushed, host.ends_asked), (&vec![Turn::TOKEN; round], round));
            turn.came();
            turn.ended();
        }
    }
}
