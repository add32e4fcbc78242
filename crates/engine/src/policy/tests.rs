//! The seam's promises.

use super::*;
use alloc::vec::Vec;

const READ: Access = Access { write: false, request_blocks: 1, admission: Admission::SecondTouch, own: false };
const WRITE: Access = Access { write: true, ..READ };

fn read_in(policy: &mut Policy, key: u64, access: Access) -> RamSlot {
    let arrival = policy.on_access(key, Place::Absent, access).enter.expect("a block that may be cached");
    policy.ram_insert(key, arrival)
}

/// Parts of an SSD of so many blocks, nearly all of them of the main part.
fn parts_of(ssd_blocks: u64) -> [u32; index::PARTS] {
    let mut parts = [0; index::PARTS];
    parts[0] = ssd_blocks as u32;
    parts
}

/// A policy whose SSD is full of the main part, and whose RAM is larger than the small part.
fn full(ram_blocks: u64, ssd_blocks: u64) -> Policy {
    let mut policy = Policy::new(ram_blocks, ssd_blocks, 0);
    policy.see_ssd(Some(parts_of(ssd_blocks)));
    policy
}

/// Enough other blocks come that what came before has been through the small part; of these the oldest leave.
fn others_come(policy: &mut Policy, from: u64, count: u64) {
    for key in from..from + count {
        read_in(policy, key, READ);
    }
}

#[test]
fn while_the_store_has_room_everything_is_admitted() {
    let mut policy = Policy::new(8, 1024, 0);
    read_in(&mut policy, 5, READ);
    assert!(matches!(policy.ram_evict(), Some(RamVictim { key: 5, verdict: Verdict::Admit(_), .. })));
}

#[test]
fn one_touch_is_forgotten_and_its_return_is_admitted() {
    let mut policy = full(512, 1024);
    read_in(&mut policy, 5, READ);
    others_come(&mut policy, 100, 511);
    assert_eq!(policy.ram_evict(), Some(RamVictim { key: 5, verdict: Verdict::Forget, heat: Heat::default(), along: false }));
    let advice = policy.on_access(5, Place::Absent, READ);
    assert!(advice.ghost_hit);
    let slot = policy.ram_insert(5, advice.enter.expect("remembered"));
    // It is of the main part now, and leaves as what RAM alone holds.
    assert!((0..511).all(|_| policy.ram_evict().is_some()));
    assert!(matches!(policy.ram_evict(), Some(RamVictim { key: 5, verdict: Verdict::Admit(_), .. })), "{slot:?}");
    assert_eq!(policy.ram_evict(), None);
}

#[test]
fn ram_gives_up_the_least_recently_used_block() {
    let mut policy = Policy::new(8, 1024, 0);
    let slots: Vec<RamSlot> = (0..3).map(|key| read_in(&mut policy, key, READ)).collect();
    policy.on_access(0, Place::Ram(slots[0]), READ);
    let order: Vec<u64> = core::iter::from_fn(|| policy.ram_evict()).map(|victim| victim.key).collect();
    assert_eq!(order, [1, 2, 0]);
}

#[test]
fn a_block_overwritten_in_ram_is_what_it_was() {
    let mut policy = full(512, 1024);
    let slot = read_in(&mut policy, 5, READ);
    policy.ram_remove(slot);
    let arrival = policy.on_access(5, Place::Absent, WRITE).enter.expect("may be cached").as_proven();
    policy.ram_insert(5, arrival);
    others_come(&mut policy, 100, 511);
    assert_eq!(policy.ram_evict(), Some(RamVictim { key: 5, verdict: Verdict::Forget, heat: Heat::default(), along: false }));
}

#[test]
fn a_block_overwritten_on_the_ssd_goes_back_there() {
    let mut policy = full(512, 1024);
    let arrival = policy.on_access(5, Place::Absent, WRITE).enter.expect("may be cached").as_proven();
    policy.ram_insert(5, arrival);
    others_come(&mut policy, 100, 511);
    assert!(matches!(policy.ram_evict(), Some(RamVictim { key: 5, verdict: Verdict::Admit(_), .. })));
}

#[test]
fn admission_always_needs_no_proof() {
    let mut policy = full(512, 1024);
    read_in(&mut policy, 5, Access { admission: Admission::Always, ..READ });
    others_come(&mut policy, 100, 511);
    assert!(matches!(policy.ram_evict(), Some(RamVictim { key: 5, verdict: Verdict::Admit(_), .. })));
}

#[test]
fn a_copy_never_costs_an_ssd_write() {
    let mut policy = Policy::new(8, 1024, 0);
    let arrival = policy.on_access(5, Place::Absent, WRITE).enter.expect("may be cached");
    let slot = policy.ram_insert(5, arrival.as_copy());
    policy.on_access(5, Place::Ram(slot), READ);
    assert_eq!(policy.ram_evict(), Some(RamVictim { key: 5, verdict: Verdict::DropCopy, heat: Heat::of(1, 0), along: false }));
}

#[test]
fn a_removed_block_is_not_offered_again() {
    let mut policy = Policy::new(8, 1024, 0);
    let slot = read_in(&mut policy, 5, READ);
    read_in(&mut policy, 6, READ);
    policy.ram_remove(slot);
    assert_eq!(policy.ram_len(), 1);
    assert_eq!(policy.ram_evict().map(|victim| victim.key), Some(6));
    assert_eq!(policy.ram_evict(), None);
}

#[test]
fn a_returned_victim_keeps_its_verdict() {
    let mut policy = Policy::new(8, 1024, 0);
    let slot = read_in(&mut policy, 5, READ);
    policy.on_access(5, Place::Ram(slot), READ);
    let victim = policy.ram_evict().expect("one block");
    policy.ram_return(victim, false);
    assert!(matches!(policy.ram_evict(), Some(RamVictim { key: 5, verdict: Verdict::Admit(_), .. })));
}

#[test]
fn an_overwrite_of_a_block_on_the_ssd_always_enters_ram() {
    let mut policy = Policy::new(8, 1024, 0);
    let advice = policy.on_access(9, Place::Ssd { heat: Heat::default() }, WRITE);
    assert!(advice.enter.is_some());
}

#[test]
fn what_is_read_from_the_ssd_is_copied_while_ram_has_room_and_later_one_time_in_a_few() {
    let on_ssd = Place::Ssd { heat: Heat::default() };
    let mut policy = Policy::new(8, 1024, 0);
    for key in 0..8 {
        let arrival = policy.on_access(key, on_ssd, READ).enter.expect("RAM has room");
        policy.ram_insert(key, arrival.as_copy());
    }
    let entered = (8..8008).filter(|key| policy.on_access(*key, on_ssd, READ).enter.is_some()).count();
    assert!((700..1300).contains(&entered), "{entered} of 8000");
}

#[test]
fn an_unused_block_is_forgotten_when_it_is_judged_and_a_used_one_is_not_kept_for_ever() {
    let mut policy = Policy::new(8, 1024, 0);
    assert_eq!(policy.on_evict(1, Heat::default()), EvictVerdict::Forget);
    let mut heat = Heat::from_bits(USES_MAX);
    for _ in 0..=USES_MAX {
        match policy.on_evict(1, heat) {
            EvictVerdict::Reinsert(left) => heat = left,
            EvictVerdict::Forget => return,
        }
    }
    panic!("it stays after {USES_MAX} rounds without a use");
}

#[test]
fn memory_stays_within_its_bounds() {
    for (ram_blocks, ssd_blocks) in [(16, 64), (1000, 10_000), (65_536, 10_000_000)] {
        let mut policy = Policy::new(ram_blocks, ssd_blocks, 0);
        (0..ram_blocks).for_each(|key| {
            read_in(&mut policy, key, READ);
        });
        let bound = ram_blocks * RAM_BLOCK_BYTES_MAX + ssd_blocks * SSD_BLOCK_MILLIBYTES_MAX / 1000 + FIXED_BYTES_MAX;
        assert!(policy.memory_bytes() <= bound, "{} > {bound} at {ram_blocks}/{ssd_blocks}", policy.memory_bytes());
    }
}
