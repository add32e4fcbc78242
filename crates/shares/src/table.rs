//! The table: slots, each with the peer that holds it.
//!
//! Invariants: no more than `slots_max` slots are held, and no more than `peer_slots_max` by one peer; a slot's number is never used
//! again.

/// Name of a slot in its table, for as long as it is held.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(u64);

/// Why there is no slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Full {
    /// The peer holds its whole share.
    Peer,
    /// All slots are held.
    Table,
    /// A slot will do that may be taken away, only not yet.
    NotYet,
}

/// A slot was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entered {
    /// It.
    pub slot: Slot,
    /// The one that had to leave for it. It is out of the table already; the caller ends what stands behind it.
    pub gives_way: Option<Slot>,
}

#[derive(Clone, Copy, Debug)]
struct Held<P> {
    slot: Slot,
    peer: P,
    /// Since when it may be taken away, in nanoseconds; `None`: it may not.
    may_go_since_ns: Option<u64>,
}

/// Slots, shared among peers of type `P`. A few hundred at most: every step looks at all of them.
#[derive(Debug)]
pub struct Table<P> {
    slots_max: usize,
    peer_slots_max: usize,
    grace_ns: u64,
    held: Vec<Held<P>>,
    slots_given: u64,
}

impl<P: Copy + Eq> Table<P> {
    /// At most `slots_max` slots, and `peer_slots_max` for one peer; each of them one at least.
    pub fn new(slots_max: usize, peer_slots_max: usize) -> Table<P> {
        Table { slots_max: slots_max.max(1), peer_slots_max: peer_slots_max.max(1), grace_ns: 0, held: Vec::new(), slots_given: 0 }
    }

    /// What may go stays for so long at least: a flood, however fast, leaves everybody this time to prove themselves.
    #[must_use]
    pub fn with_grace(self, grace_ns: u64) -> Table<P> {
        Table { grace_ns, ..self }
    }

    /// A table in which one peer can have three quarters of the slots.
    pub fn with_share(slots_max: usize) -> Table<P> {
        Table::new(slots_max, slots_max - slots_max / 4)
    }

    /// Gives `peer` a slot. At the peer's share the one of its own slots gives way that may go for longest; where all slots are
    /// held, that one of all. `may_go`: whether the new slot may be taken away for another.
    ///
    /// # Errors
    /// [`Full`] if none may go, or not yet.
    pub fn enter(&mut self, peer: P, may_go: bool, now_ns: u64) -> Result<Entered, Full> {
        let gives_way = if self.count_of(peer) >= self.peer_slots_max {
            Some(self.oldest(|held| held.peer == peer).ok_or(Full::Peer)?)
        } else if self.held.len() >= self.slots_max {
            Some(self.oldest(|_| true).ok_or(Full::Table)?)
        } else {
            None
        };
        let gives_way = match gives_way {
            Some((since_ns, _)) if now_ns < since_ns.saturating_add(self.grace_ns) => return Err(Full::NotYet),
            other => other.map(|(_, slot)| slot),
        };
        if let Some(slot) = gives_way {
            self.leave(slot);
        }
        self.slots_given += 1;
        let slot = Slot(self.slots_given);
        self.held.push(Held { slot, peer, may_go_since_ns: may_go.then_some(now_ns) });
        assert!(self.held.len() <= self.slots_max, "{} slots held of {}", self.held.len(), self.slots_max);
        Ok(Entered { slot, gives_way })
    }

    /// Gives a slot back. One that has given way already is gone: that is no mistake.
    pub fn leave(&mut self, slot: Slot) {
        self.held.retain(|held| held.slot != slot);
    }

    /// From now on the slot may be taken away for another; it is the youngest of those.
    pub fn may_go(&mut self, slot: Slot, now_ns: u64) {
        if let Some(held) = self.find(slot) {
            held.may_go_since_ns = Some(now_ns);
        }
    }

    /// From now on the slot is not taken away. False if it was already.
    pub fn must_stay(&mut self, slot: Slot) -> bool {
        let held = self.find(slot);
        held.map(|held| held.may_go_since_ns = None).is_some()
    }

    /// Takes the slot away that may go for longest, as if somebody needed it: something else than slots is short.
    pub fn make_room(&mut self) -> Option<Slot> {
        let (_, slot) = self.oldest(|_| true)?;
        self.leave(slot);
        Some(slot)
    }

    /// Slots held.
    pub fn count(&self) -> usize {
        self.held.len()
    }

    /// Slots held by a peer.
    pub fn count_of(&self, peer: P) -> usize {
        self.held.iter().filter(|held| held.peer == peer).count()
    }

    fn find(&mut self, slot: Slot) -> Option<&mut Held<P>> {
        self.held.iter_mut().find(|held| held.slot == slot)
    }

    /// The one that may go for longest, and since when.
    fn oldest(&self, among: impl Fn(&Held<P>) -> bool) -> Option<(u64, Slot)> {
        let candidates = self.held.iter().filter(|held| among(held)).filter_map(|held| Some((held.may_go_since_ns?, held.slot)));
        candidates.min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enter(table: &mut Table<u32>, peer: u32, may_go: bool) -> (Slot, Option<Slot>) {
        let entered = table.enter(peer, may_go, 0).expect("there is a slot, or one gives way");
        (entered.slot, entered.gives_way)
    }

    #[test]
    fn the_oldest_gives_way_and_a_peer_at_its_share_pays_itself() {
        let mut table = Table::new(4, 3);
        let first = enter(&mut table, 1, true).0;
        let second = enter(&mut table, 2, true).0;
        let third = enter(&mut table, 2, true).0;
        let fourth = enter(&mut table, 2, true).0;
        // The table is full too, but who is at its share takes nothing from others.
        let (fifth, gone) = enter(&mut table, 2, true);
        assert_eq!(gone, Some(second));
        assert_eq!(enter(&mut table, 3, true).1, Some(first), "the oldest of all");
        assert_eq!(table.count(), 4);
        assert_eq!(table.make_room(), Some(third));
        table.leave(fourth);
        table.leave(fourth);
        assert_eq!((table.count(), table.count_of(2)), (2, 1));
        assert!(table.must_stay(fifth) && !table.must_stay(fourth));
    }

    #[test]
    fn who_must_stay_is_not_taken_away() {
        let mut table = Table::new(3, 2);
        let (one, _) = enter(&mut table, 1, false);
        enter(&mut table, 1, false);
        assert_eq!(table.enter(1, true, 0), Err(Full::Peer));
        enter(&mut table, 2, false);
        assert_eq!(table.enter(3, true, 0), Err(Full::Table));
        assert_eq!(table.make_room(), None);
        table.may_go(one, 7);
        assert_eq!(table.enter(3, false, 7).map(|entered| entered.gives_way), Ok(Some(one)));
        table.may_go(one, 7);
        assert!(!table.must_stay(one), "it has gone");
    }

    #[test]
    fn what_was_used_latest_goes_last() {
        let mut table = Table::new(2, 2);
        let (one, _) = enter(&mut table, 1, true);
        let (two, _) = enter(&mut table, 1, true);
        assert!(table.must_stay(one));
        table.may_go(one, 7);
        assert_eq!(enter(&mut table, 1, true).1, Some(two));
    }

    #[test]
    fn everybody_has_a_while() {
        let mut table = Table::new(2, 2).with_grace(10);
        let oldest = table.enter(1, true, 5).expect("there is room").slot;
        table.enter(1, true, 6).expect("there is room");
        assert_eq!((table.enter(1, true, 14), table.enter(2, true, 14)), (Err(Full::NotYet), Err(Full::NotYet)));
        assert_eq!(table.enter(2, true, 15).map(|entered| entered.gives_way), Ok(Some(oldest)));
        assert!(table.make_room().is_some(), "what else is short cannot wait");
        assert!(table.enter(2, true, 15).is_ok(), "room is room");
    }

    #[test]
    fn a_share_is_three_quarters_and_nobody_is_left_without_a_slot() {
        let share = |slots| {
            let mut table = Table::with_share(slots);
            (0..slots).take_while(|_| table.enter(0, false, 0).is_ok()).count()
        };
        assert_eq!([1, 2, 3, 4, 64].map(share), [1, 2, 3, 3, 48]);
        assert!(Table::new(0, 0).enter(0, false, 0).is_ok());
    }
}
