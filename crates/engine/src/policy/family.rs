//! What is worth keeping: the family of [`retention`], with RAM and SSD as one room.
//!
//! A new block belongs to the small part, wherever it lies, and ages by epochs: a sixth of the small part's size in new blocks each. When it has
//! been through all of it, it goes to the main part if it was used meanwhile, else it is forgotten and its key is remembered; a block
//! that comes back while it is remembered goes to the main part at once. Uses in the first epochs do not count (see [`Member`]).
//!
//! RAM is the young end of the small part: what leaves it, has been through nearly all of the small part and was not used is not written to
//! the SSD at all. So a RAM tier as large as the small part is all of it, and without one all of it is on the SSD.
//!
//! A block's state is its [`Heat`]: uses, and its part; of the small part, which of seven epochs it came in. The index keeps it of blocks on the
//! SSD, and counts them by part; the RAM queue keeps it of those in RAM, which may be older than seven epochs.

use super::heat::MAIN;
use super::ram::RamEntry;
use super::{Access, Arrival, EvictVerdict, Heat, Verdict};
use alloc::vec::Vec;
use index::PARTS;
use retention::chooser::Choice;
use retention::{Chooser, MEMBERS, Member};
use types::Admission;

/// Epochs that can be told apart: all parts but the main one.
const EPOCHS: u16 = PARTS as u16 - 1;
/// Epochs are numbered from 0 again here, so that the parts go on in turn.
const ROUND: u16 = u16::MAX / EPOCHS * EPOCHS;
/// Epochs that the small part lasts; while one more begins the oldest is judged.
const EPOCHS_OF_SMALL: u32 = EPOCHS as u32 - 1;
/// A block that leaves RAM with this age has been through the small part.
const AGE_OF_LEAVING: u16 = EPOCHS - 2;
/// Full is a cache with so little room left, as a part of it: the hand keeps about half of that free.
const ROOM_LEFT_ONE_IN: u64 = 16;

/// Blocks of the small part are written to the SSD for the sake of those that are used there: one in so many has to be.
const PAYS_ONE_IN: u32 = 32;
/// The same while the SSD is still full of older ones. They do as a queue of the whole room, so that few need be used before they are judged:
/// with one in 512 the CloudPhysics trace at 30 % of its footprint missed .667 in place of .642.
const PAYS_ONE_IN_OLDER: u32 = 4096;
/// Where that does not pay, one block in so many goes on to be written, so that a change is seen.
const TRIED_ONE_IN: u64 = 8;
/// Judged blocks that are counted before the counts are halved, and the fewest that say anything.
const JUDGED_MAX: u32 = 8192;
const JUDGED_MIN: u32 = 512;

/// What became lately of blocks of the small part on the SSD.
#[derive(Clone, Copy, Default, Debug)]
struct Probation {
    judged: u32,
    used: u32,
}

impl Probation {
    fn note(&mut self, is_used: bool) {
        self.judged += 1;
        self.used += u32::from(is_used);
        if self.judged == JUDGED_MAX {
            (self.judged, self.used) = (self.judged / 2, self.used / 2);
        }
    }

    fn pays(self, one_in: u32) -> bool {
        self.judged < JUDGED_MIN || self.used >= self.judged / one_in
    }
}

/// Most bytes it spends whatever the room, nearly all for the chooser.
#[cfg(test)]
const FIXED_BYTES_MAX: u64 = 160 << 10;

/// See the module.
#[derive(Debug)]
pub(crate) struct Family {
    chooser: Chooser,
    member: Member,
    room_blocks: u64,
    remembered: Remembered,
    /// The epoch in which blocks come now.
    epoch: u16,
    /// Blocks that came in it.
    came: u64,
    /// Blocks on the SSD, by part.
    on_ssd: [u32; PARTS],
    probation: Probation,
}

impl Family {
    /// For RAM and SSD of so many blocks together.
    pub(crate) fn new(room_blocks: u64, seed: u64) -> Family {
        Family {
            chooser: Chooser::new(room_blocks, seed),
            member: MEMBERS[0],
            room_blocks,
            remembered: Remembered::new(room_blocks),
            epoch: 0,
            came: 0,
            on_ssd: [0; PARTS],
            probation: Probation::default(),
        }
    }

    /// What the index counts.
    pub(crate) fn see_ssd(&mut self, parts: [u32; PARTS]) {
        self.on_ssd = parts;
    }

    pub(crate) fn choice(&self) -> Choice {
        self.chooser.choice()
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.remembered.memory_bytes() + self.chooser.memory_bytes()
    }

    /// A client uses a block, wherever it lies.
    #[inline]
    pub(crate) fn on_access(&mut self, key: u64, access: Access) {
        if !access.own
            && let Some(member) = self.chooser.access(key)
        {
            self.member = MEMBERS[member];
        }
    }

    /// The heat of a block that was used once more.
    pub(crate) fn touched(&self, heat: Heat, age: u16, own: bool) -> Heat {
        // In the middle of its epoch, twelfths of the small part.
        let ripe = (2 * u32::from(age) + 1) * 1000 >= self.member.window_permille * 2 * EPOCHS_OF_SMALL;
        let counts = !own && (heat.part() == MAIN || ripe);
        if counts { heat.used_again() } else { heat }
    }

    /// How a block comes that is not cached, and whether it was remembered.
    pub(crate) fn arrives(&mut self, key: u64, access: Access) -> Arrival {
        let returned = self.remembered.take(key, self.member.ghost_permille);
        let heat = if returned || self.member.small_permille == 0 { Heat::of(MAIN, 0) } else { self.next_of_small() };
        let proven = access.admission == Admission::Always;
        Arrival { heat, proven, returned, copy: false, restored: false, own: access.own }
    }

    fn next_of_small(&mut self) -> Heat {
        self.came += 1;
        if self.is_epoch_over() && self.merged().is_none() {
            (self.epoch, self.came) = (self.next_epoch(), 0);
        }
        Heat::of(part_of(self.epoch), 0)
    }

    fn is_epoch_over(&self) -> bool {
        self.came * u64::from(EPOCHS_OF_SMALL) >= self.small_max()
    }

    fn next_epoch(&self) -> u16 {
        (self.epoch + 1) % ROUND
    }

    /// Where the next epoch cannot begin, since the SSD has blocks of the oldest one, which has its part: these are to be of the part of the next
    /// older one from now on. So it is while the store has room for more of the small part than its share.
    pub(crate) fn merged(&self) -> Option<(u8, u8)> {
        let oldest = part_of(self.next_epoch());
        let waits = self.is_epoch_over() && self.on_ssd[usize::from(oldest)] > 0;
        waits.then(|| (oldest, part_of((self.epoch + 2) % ROUND)))
    }

    /// Epochs since a block of this heat, which is on the SSD, came.
    pub(crate) fn age_on_ssd(&self, heat: Heat) -> u16 {
        if heat.part() == MAIN { 0 } else { (self.epoch % EPOCHS + EPOCHS - (u16::from(heat.part()) - 1)) % EPOCHS }
    }

    /// The epoch in which such a block came.
    pub(crate) fn born(&self, heat: Heat) -> u16 {
        self.before(self.age_on_ssd(heat))
    }

    /// Epochs since then.
    pub(crate) fn age(&self, born: u16) -> u16 {
        let age = u32::from(self.epoch) + u32::from(ROUND) - u32::from(born);
        (age % u32::from(ROUND)) as u16
    }

    /// The epoch so many before this one.
    fn before(&self, age: u16) -> u16 {
        let epoch = u32::from(self.epoch) + u32::from(ROUND) - u32::from(age);
        (epoch % u32::from(ROUND)) as u16
    }

    /// The heat of a block in RAM, as it would be on the SSD, where no age is above the oldest.
    pub(crate) fn heat_in_ram(&self, entry: &RamEntry) -> Heat {
        let heat = entry.heat;
        let age = self.age(entry.born).min(EPOCHS - 1);
        if heat.part() == MAIN { heat } else { Heat::of(part_of(self.before(age)), heat.uses()) }
    }

    /// A block in RAM is used once more.
    pub(crate) fn touched_in_ram(&self, entry: &RamEntry, own: bool) -> Heat {
        let heat = self.heat_in_ram(entry);
        self.touched(heat, self.age_on_ssd(heat), own)
    }

    /// What becomes of a block that leaves RAM and is not on the SSD. RAM alone holds so many, and so many of the small part.
    pub(crate) fn leaves_ram(&mut self, left: &RamEntry, only: u64, small_only: u64) -> Verdict {
        let heat = self.heat_in_ram(left);
        if heat.part() == MAIN {
            return Verdict::Admit(heat);
        }
        let has_been_through = self.age_on_ssd(heat) >= AGE_OF_LEAVING;
        if heat.uses() >= self.member.hits && has_been_through {
            return Verdict::Admit(Heat::of(MAIN, 0));
        }
        let has_older = self.has_older_on_ssd(small_only);
        let pays = self.probation.pays(if has_older { PAYS_ONE_IN_OLDER } else { PAYS_ONE_IN });
        let is_in_vain = heat.uses() == 0 && !pays && !retention::hash(left.key).is_multiple_of(TRIED_ONE_IN);
        let is_last_of_small = (has_been_through && !has_older || is_in_vain) && self.is_small_full(small_only);
        if is_last_of_small && !left.proven && self.is_full(only) {
            self.remembered.add(left.key);
            return Verdict::Forget;
        }
        Verdict::Admit(heat)
    }

    /// Which part the hand is to judge, if it must give something up.
    pub(crate) fn judged_next(&self, small_only: u64) -> u8 {
        if !self.is_small_full(small_only) && self.on_ssd[usize::from(MAIN)] > 0 {
            return MAIN;
        }
        let mut oldest_first = (0..EPOCHS).rev().map(|age| part_of(self.before(age)));
        oldest_first.find(|part| self.on_ssd[usize::from(*part)] > 0).unwrap_or(MAIN)
    }

    /// What becomes of a clean block that is judged.
    pub(crate) fn judge(&mut self, key: u64, heat: Heat) -> EvictVerdict {
        let small = heat.part() != MAIN;
        if small {
            self.probation.note(heat.uses() >= self.member.hits);
        }
        match heat.uses() {
            0 if !small => EvictVerdict::Forget,
            uses if !small => EvictVerdict::Reinsert(Heat::of(MAIN, uses - 1)),
            uses if uses >= self.member.hits => EvictVerdict::Reinsert(Heat::of(MAIN, 0)),
            _ => {
                self.remembered.add(key);
                EvictVerdict::Forget
            }
        }
    }

    /// The heat of a block that was judged and must stay, whatever the policy would say. Of the small part it comes up again with the next
    /// epoch, so that the epoch that is judged becomes empty.
    pub(crate) fn stays(&self, heat: Heat) -> Heat {
        let age = self.age_on_ssd(heat);
        match heat.part() {
            MAIN => Heat::of(MAIN, heat.uses().saturating_sub(1)),
            _ if heat.uses() >= self.member.hits => Heat::of(MAIN, 0),
            _ if age == 0 => heat,
            _ => Heat::of(part_of(self.before(age - 1)), heat.uses()),
        }
    }

    /// Forgets what is remembered of a block.
    pub(crate) fn forget(&mut self, key: u64) {
        self.remembered.take(key, u32::MAX);
    }

    fn small_max(&self) -> u64 {
        self.room_blocks * u64::from(self.member.small_permille) / 1000
    }

    fn small_on_ssd(&self) -> u64 {
        self.on_ssd.iter().skip(1).copied().map(u64::from).sum()
    }

    fn is_small_full(&self, small_only: u64) -> bool {
        self.small_on_ssd() + small_only >= self.small_max()
    }

    /// The SSD has much more of the small part than RAM leaves of its share, as when the store has just become full: that is older than what is
    /// in RAM.
    fn has_older_on_ssd(&self, small_only: u64) -> bool {
        2 * self.small_on_ssd() > 2 * self.small_max().saturating_sub(small_only) + self.small_max()
    }

    fn is_full(&self, only: u64) -> bool {
        let on_ssd: u32 = self.on_ssd.iter().sum();
        u64::from(on_ssd) + only >= self.room_blocks - self.room_blocks / ROOM_LEFT_ONE_IN
    }
}

/// The part of the blocks that come in this epoch.
const fn part_of(epoch: u16) -> u8 {
    (epoch % EPOCHS) as u8 + 1
}

/// Keys of a bucket, the newest lowest.
type Bucket = u128;
const KEY_BITS: u32 = 12;
const KEY: Bucket = (1 << KEY_BITS) - 1;
const BUCKET_KEYS: u32 = Bucket::BITS / KEY_BITS;

/// Keys that are remembered, in thousandths of the room, which is what the members ask for at most: 0.8 bytes a block, where the index leaves
/// 0.9 of 16.
const REMEMBERED_PERMILLE: u64 = 500;

/// Keys of blocks that left the small part: fingerprints of 12 bits in buckets that are FIFOs. A wrong match (one in 400) lets a block into the
/// main part too early. With fingerprints of 8 bits (one in 16), and more of them, a trace at 30 % of its footprint missed .657 instead of .625.
#[derive(Debug)]
struct Remembered {
    buckets: Vec<Bucket>,
}

impl Remembered {
    fn new(room_blocks: u64) -> Remembered {
        let buckets = (room_blocks * REMEMBERED_PERMILLE / 1000 / u64::from(BUCKET_KEYS)).max(1);
        Remembered { buckets: alloc::vec![0; buckets as usize] }
    }

    fn memory_bytes(&self) -> u64 {
        (self.buckets.capacity() * size_of::<Bucket>()) as u64
    }

    /// Bucket, and fingerprint: not 0, which stands for nothing.
    fn locate(&self, key: u64) -> (usize, Bucket) {
        let hash = retention::hash(key);
        (((u128::from(hash) * self.buckets.len() as u128) >> 64) as usize, (Bucket::from(hash) & KEY).max(1))
    }

    fn add(&mut self, key: u64) {
        let (bucket, fingerprint) = self.locate(key);
        let keys = (1 << (BUCKET_KEYS * KEY_BITS)) - 1;
        self.buckets[bucket] = (self.buckets[bucket] << KEY_BITS | fingerprint) & keys;
    }

    /// Whether the key is among as many of the last as this part of the room has blocks; it is not any more afterwards.
    fn take(&mut self, key: u64, permille: u32) -> bool {
        let (at, fingerprint) = self.locate(key);
        let keys = (u64::from(BUCKET_KEYS) * u64::from(permille)).div_ceil(REMEMBERED_PERMILLE).min(BUCKET_KEYS.into());
        let bucket = self.buckets[at];
        let Some(nth) = (0..keys as u32).find(|nth| bucket >> (nth * KEY_BITS) & KEY == fingerprint) else { return false };
        let newer = (1 << (nth * KEY_BITS)) - 1;
        self.buckets[at] = bucket & newer | bucket >> KEY_BITS & !newer;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_remembered_once_and_for_as_long_as_the_member_says() {
        let mut remembered = Remembered { buckets: alloc::vec![0] };
        (0..11_u64).for_each(|key| remembered.add(key));
        let keys = |remembered: &Remembered| (0..10).filter(|nth| remembered.buckets[0] >> (nth * KEY_BITS) & KEY != 0).count();
        assert_eq!(keys(&remembered), 10);
        assert!(!remembered.take(0, 500), "there was no room for it any more");
        assert!(remembered.take(9, 500) && keys(&remembered) == 9);
        assert!(!remembered.take(9, 500));
        assert!(!remembered.take(1, 300), "it is the oldest");
        assert!(remembered.take(1, 500));
        assert!(remembered.take(10, 300), "it is the newest");
        assert_eq!(keys(&remembered), 7);
        assert!(!remembered.take(2, 0));
    }

    #[test]
    fn ages_grow_with_new_blocks_and_the_oldest_is_judged_next() {
        let mut family = Family::new(600, 0);
        let access = Access { write: false, request_blocks: 1, admission: Admission::SecondTouch, own: false };
        // An epoch of member A is 10 blocks here.
        let first = family.arrives(0, access).heat;
        let mut ages = Vec::new();
        for key in 1..=60 {
            family.arrives(key, access);
            ages.push(family.age_on_ssd(first));
        }
        assert_eq!((ages[0], ages[20], ages[59]), (0, 2, 6));
        assert_eq!(family.judged_next(0), MAIN);
        family.see_ssd([500, 1, 59, 0, 0, 0, 0, 0]);
        assert_eq!((first.part(), family.judged_next(0)), (1, 1));
        family.see_ssd([500, 1, 58, 0, 0, 0, 0, 0]);
        assert_eq!((family.judged_next(0), family.judged_next(1)), (MAIN, 1), "the small part has its share, or more with RAM");
        for key in 100..110 {
            family.arrives(key, access);
        }
        assert_eq!((family.age_on_ssd(first), family.merged()), (6, Some((1, 2))), "a block of it is left: the next epoch cannot begin");
        family.see_ssd([500, 0, 59, 0, 0, 0, 0, 0]);
        family.arrives(110, access);
        assert_eq!((family.age_on_ssd(first), family.merged()), (0, None), "its part stands for the new epoch");
        family.see_ssd([500, 1, 59, 0, 0, 0, 0, 0]);
        assert_eq!((family.judged_next(0), family.merged()), (2, None));
        family.see_ssd([500, 1, 59, 0, 0, 0, 0, 0]);
        for key in 111..140 {
            family.arrives(key, access);
        }
        assert_eq!((family.age_on_ssd(first), family.merged()), (0, Some((2, 3))), "the epoch of part 2 cannot begin");
        family.see_ssd([500, 1, 0, 59, 0, 0, 0, 0]);
        family.arrives(140, access);
        assert_eq!((family.age_on_ssd(first), family.merged()), (1, None));
    }

    #[test]
    fn uses_count_when_a_block_is_ripe_and_decide_when_it_is_judged() {
        let mut family = Family::new(600, 0);
        let small = Heat::of(1, 0);
        assert_eq!(family.touched(small, 0, false), small);
        assert_eq!(family.touched(small, 3, true), small, "no client asked");
        let used = family.touched(small, 3, false);
        assert_eq!((used.part(), used.uses()), (1, 1));
        assert_eq!(family.judge(7, used), EvictVerdict::Reinsert(Heat::of(MAIN, 0)));
        assert_eq!(family.judge(8, small), EvictVerdict::Forget);
        let access = Access { write: false, request_blocks: 1, admission: Admission::SecondTouch, own: false };
        assert!(family.arrives(8, access).returned && !family.arrives(7, access).returned);
        assert_eq!(family.judge(9, Heat::of(MAIN, 2)), EvictVerdict::Reinsert(Heat::of(MAIN, 1)));
        assert_eq!(family.judge(9, Heat::of(MAIN, 0)), EvictVerdict::Forget);
        assert!(!family.arrives(9, access).returned, "the main part leaves nothing behind");
    }

    fn left(family: &Family, heat: Heat, age: u16, proven: bool) -> RamEntry {
        let arrival = Arrival { heat, proven, returned: false, copy: false, restored: false, own: false };
        RamEntry::new(5, arrival, family.before(age))
    }

    #[test]
    fn what_leaves_ram_goes_to_the_ssd_unless_it_has_been_through_the_small_part() {
        let mut family = Family::new(600, 0);
        let old = |family: &Family| left(family, Heat::of(3, 0), 9, false);
        let entry = old(&family);
        assert!(matches!(family.leaves_ram(&entry, 60, 60), Verdict::Admit(_)), "there is room");
        family.see_ssd([540, 0, 0, 0, 0, 0, 0, 0]);
        let entry = old(&family);
        assert_eq!(family.leaves_ram(&entry, 60, 60), Verdict::Forget);
        assert!(matches!(family.leaves_ram(&entry, 60, 59), Verdict::Admit(_)), "the small part has not its share");
        for entry in
            [left(&family, Heat::of(3, 0), 2, false), left(&family, Heat::of(3, 0), 9, true), left(&family, Heat::of(MAIN, 0), 9, false)]
        {
            assert!(matches!(family.leaves_ram(&entry, 60, 60), Verdict::Admit(_)), "{entry:?}");
        }
        let used = left(&family, Heat::of(3, 1), 9, false);
        assert_eq!(family.leaves_ram(&used, 60, 60), Verdict::Admit(Heat::of(MAIN, 0)));
        let young = left(&family, Heat::of(3, 1), 2, false);
        assert_eq!(family.leaves_ram(&young, 60, 60), Verdict::Admit(Heat::of(part_of(family.before(2)), 1)));
    }

    #[test]
    fn what_must_stay_comes_up_again_with_the_next_epoch_until_it_is_as_young_as_can_be() {
        let mut family = Family::new(600, 0);
        family.epoch = 20;
        let mut heat = Heat::of(part_of(14), 0);
        let mut ages = Vec::new();
        for _ in 0..8 {
            ages.push(family.age_on_ssd(heat));
            heat = family.stays(heat);
        }
        assert_eq!(ages, [6, 5, 4, 3, 2, 1, 0, 0]);
        assert_eq!(family.stays(Heat::of(2, 1)), Heat::of(MAIN, 0));
        assert_eq!(family.stays(Heat::of(MAIN, 3)), Heat::of(MAIN, 2));
    }

    #[test]
    fn its_memory_is_bounded() {
        for blocks in [64, 10_000, 10_000_000] {
            let bytes = Family::new(blocks, 0).memory_bytes();
            assert!(bytes <= blocks * super::super::SSD_BLOCK_MILLIBYTES_MAX / 1000 + FIXED_BYTES_MAX, "{bytes} for {blocks}");
        }
    }
}
