//! Whether a costly step pays on a volume: measured, not configured.
//!
//! While open, every block is tried and the part of its bytes that the step saves is averaged. Where little is saved the gate closes; closed, it tries
//! a burst of blocks now and then. The thresholds lie between what was measured on data where the step pays (7 % and more) and where it does not
//! (0.4 % and less); the content-locality notes have the figures.

/// Blocks over which savings are averaged.
const MEAN_BLOCKS: f32 = 4096.0;
/// Part of the bytes that must be saved for a closed gate to open, unless said otherwise.
const OPEN_FROM: f32 = 0.05;
/// An open gate closes below this part of what opens it, unless said otherwise.
const CLOSE_BELOW: f32 = 0.4;
/// A closed gate tries this many blocks ...
const BURST_BLOCKS: u32 = 2048;
/// ... of every so many.
const BURST_EVERY: u32 = 32_768;

/// See the module.
#[derive(Clone, Debug)]
pub struct Gate {
    open_from: f32,
    close_below: f32,
    open: bool,
    saved_part: f32,
    /// Blocks averaged since the gate moved; the mean is of as many at first.
    seen: f32,
    /// Blocks since the last burst began.
    since_burst: u32,
}

impl Default for Gate {
    fn default() -> Gate {
        Gate { open_from: OPEN_FROM, close_below: OPEN_FROM * CLOSE_BELOW, open: false, saved_part: 0.0, seen: 0.0, since_burst: 0 }
    }
}

impl Gate {
    /// A gate that opens where at least that part of the bytes is saved; open or closed to begin with.
    pub fn new(open_from: f32, open: bool) -> Gate {
        Gate { open_from, close_below: open_from * CLOSE_BELOW, open, ..Gate::default() }
    }

    /// The same that closes where less than that part of the bytes is saved.
    pub fn closing_below(self, close_below: f32) -> Gate {
        Gate { close_below, ..self }
    }

    /// Whether the next block is to be tried. Asked once for each block.
    pub fn tries(&mut self) -> bool {
        if self.open {
            return true;
        }
        self.since_burst = (self.since_burst + 1) % BURST_EVERY;
        self.since_burst <= BURST_BLOCKS
    }

    /// A block was tried: of `bytes` without the step, `saved` were saved by it.
    pub fn tried(&mut self, bytes: usize, saved: usize) {
        self.seen = (self.seen + 1.0).min(MEAN_BLOCKS);
        self.saved_part += (saved as f32 / bytes.max(1) as f32 - self.saved_part) / self.seen;
        // A few blocks prove nothing.
        if self.seen < BURST_BLOCKS as f32 / 4.0 {
            return;
        }
        let enough = if self.open { self.close_below } else { self.open_from };
        let open = self.saved_part >= enough;
        if open != self.open {
            (self.open, self.seen) = (open, 0.0);
        }
    }

    /// Whether blocks are being tried just now: in a burst, or because the gate is open.
    pub fn is_looking(&self) -> bool {
        self.open || self.since_burst <= BURST_BLOCKS
    }

    /// Whether every block is tried now.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Part of the bytes that opens it.
    pub fn open_from(&self) -> f32 {
        self.open_from
    }

    /// Mean part of the bytes that the step saved.
    pub fn saved_part(&self) -> f32 {
        self.saved_part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(gate: &mut Gate, blocks: u32, saved: usize) -> u32 {
        let mut tried = 0;
        for _ in 0..blocks {
            if gate.tries() {
                tried += 1;
                gate.tried(1000, saved);
            }
        }
        tried
    }

    #[test]
    fn opens_where_it_pays_and_closes_where_it_does_not() {
        let mut gate = Gate::default();
        feed(&mut gate, 3000, 100);
        assert!(gate.is_open());
        assert_eq!(feed(&mut gate, 10_000, 40), 10_000, "between the thresholds it stays");
        assert!(gate.is_open());
        feed(&mut gate, 30_000, 3);
        assert!(!gate.is_open());
        let tried = feed(&mut gate, 100_000, 3);
        assert!((4000..10_000).contains(&tried), "{tried} of 100,000");
        feed(&mut gate, 2 * BURST_EVERY, 200);
        assert!(gate.is_open());
    }
}
