//! Extents that content contradicted lately.

/// Extents that are counted at a time; the one that was contradicted longest ago gives way.
const DOUBTS_MAX: usize = 64;
/// Contradictions in one extent that ask for a refresh, within [`WITHIN_MS`]: one or two are torn
/// or stale pages, four are a moved file. The figures are measured on rebuilt tables, where every
/// page moved.
const CONTRADICTIONS: usize = 4;
const WITHIN_MS: u64 = 10_000;

#[derive(Clone, Copy, Debug)]
struct Doubt {
    /// What the extent is known by.
    extent: u64,
    /// When content contradicted it, the latest last.
    at_ms: [u64; CONTRADICTIONS],
    count: u8,
}

/// The extents in doubt.
#[derive(Clone, Debug)]
pub struct Doubts {
    doubts: Vec<Doubt>,
}

impl Default for Doubts {
    fn default() -> Doubts {
        Doubts { doubts: Vec::with_capacity(DOUBTS_MAX) }
    }
}

impl Doubts {
    /// One more contradiction; says whether it is the fourth within ten seconds. Then it begins
    /// anew.
    pub fn add(&mut self, extent: u64, at_ms: u64) -> bool {
        let fresh = Doubt { extent, at_ms: [0; CONTRADICTIONS], count: 0 };
        let index = match self.doubts.iter().position(|doubt| doubt.extent == extent) {
            Some(index) => index,
            None if self.doubts.len() < DOUBTS_MAX => {
                self.doubts.push(fresh);
                self.doubts.len() - 1
            }
            None => {
                let oldest = self.doubts.iter().enumerate().min_by_key(|(_, doubt)| doubt.at_ms[CONTRADICTIONS - 1]);
                let index = oldest.map_or(0, |(index, _)| index);
                self.doubts[index] = fresh;
                index
            }
        };
        let doubt = &mut self.doubts[index];
        doubt.at_ms.rotate_left(1);
        doubt.at_ms[CONTRADICTIONS - 1] = at_ms;
        doubt.count = (doubt.count + 1).min(CONTRADICTIONS as u8);
        let asked = usize::from(doubt.count) == CONTRADICTIONS && at_ms.saturating_sub(doubt.at_ms[0]) < WITHIN_MS;
        if asked {
            self.doubts.swap_remove(index);
        }
        asked
    }

    /// A refresh has begun: what was in doubt before says nothing any more.
    pub fn clear(&mut self) {
        self.doubts.clear();
    }

    /// Memory held, in bytes.
    pub fn bytes(&self) -> usize {
        self.doubts.capacity() * size_of::<Doubt>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_within_ten_seconds_ask_and_slower_ones_do_not() {
        let mut doubts = Doubts::default();
        for at_ms in [0, 4_000, 8_000] {
            assert!(!doubts.add(7, at_ms));
            assert!(!doubts.add(8, at_ms * 2));
        }
        assert!(doubts.add(7, 9_999));
        assert!(!doubts.add(8, 24_000));
        assert!(!doubts.add(7, 10_000), "it begins anew");
        for extent in 100..1000 {
            assert!(!doubts.add(extent, 20_000));
        }
        assert_eq!(doubts.doubts.len(), DOUBTS_MAX);
    }
}
