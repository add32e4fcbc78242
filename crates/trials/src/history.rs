//! The checker of register histories.
//!
//! A register is a sector or a block; every write to it writes a value nobody else writes. Then linearizability can be decided exactly
//! (P. B. Gibbons, E. Korach, "Testing Shared Memories", SIAM Journal on Computing 26(4), 1997): a write and the reads of its value form a
//! cluster, whose zone spans from its earliest end to its latest begin. If that is forwards in time, the register certainly held the value
//! throughout the zone; if it is backwards, all of the cluster overlaps in one instant and may be put anywhere in it. The history is
//! linearizable exactly if
//!
//! * no value is read that was never written, and no read ends before the write of its value begins,
//! * no two forward zones overlap, and
//! * no backward zone lies wholly within a forward one.

use std::collections::HashMap;

/// A value; 0 is what the register holds before the first write.
pub type Value = u64;

/// An operation on one register, with instants of a clock that never gives the same instant twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// What was written, or what was read.
    pub value: Value,
    /// Whether it was a write.
    pub is_write: bool,
    /// Before it was sent.
    pub begin: u64,
    /// After its answer came; `u64::MAX` for a write without one.
    pub end: u64,
}

#[derive(Debug)]
struct Cluster {
    value: Value,
    /// When the write began; `None` while it was not met.
    write_begin: Option<u64>,
    first_end: u64,
    last_begin: u64,
}

/// Checks one register's history; the error says which values contradict each other.
///
/// # Errors
///
/// A sentence about the first contradiction found.
pub fn check(history: &[Operation]) -> Result<(), String> {
    let mut clusters: HashMap<Value, Cluster> = HashMap::new();
    clusters.insert(0, Cluster { value: 0, write_begin: Some(0), first_end: 0, last_begin: 0 });
    for operation in history {
        let fresh = Cluster { value: operation.value, write_begin: None, first_end: u64::MAX, last_begin: 0 };
        let cluster = clusters.entry(operation.value).or_insert(fresh);
        if operation.is_write && cluster.write_begin.replace(operation.begin).is_some() {
            return Err(format!("value {:#x} was written twice: the history cannot be judged", operation.value));
        }
        cluster.first_end = cluster.first_end.min(operation.end);
        cluster.last_begin = cluster.last_begin.max(operation.begin);
    }
    for cluster in clusters.values() {
        match cluster.write_begin {
            None => return Err(format!("value {:#x} was read and never written", cluster.value)),
            Some(begin) if cluster.first_end < begin => return Err(format!("value {:#x} was read before it was written", cluster.value)),
            Some(_) => {}
        }
    }
    let (mut forward, backward): (Vec<&Cluster>, Vec<&Cluster>) =
        clusters.values().partition(|c| c.first_end < c.last_begin || c.value == 0);
    forward.sort_by_key(|c| c.first_end);
    for pair in forward.windows(2) {
        if pair[1].first_end < pair[0].last_begin {
            return Err(format!("values {:#x} and {:#x} took turns more than once: {pair:?}", pair[0].value, pair[1].value));
        }
    }
    for cluster in backward {
        // The zone runs from the latest begin to the earliest end; only the last forward zone that begins before it can hold it.
        let after = forward.partition_point(|f| f.first_end < cluster.last_begin);
        if let Some(around) = after.checked_sub(1).map(|index| forward[index])
            && cluster.first_end < around.last_begin
        {
            return Err(format!(
                "value {:#x} came and went while the register certainly held {:#x}: {cluster:?}, {around:?}",
                cluster.value, around.value
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(value: Value, begin: u64, end: u64) -> Operation {
        Operation { value, is_write: true, begin, end }
    }

    fn read(value: Value, begin: u64, end: u64) -> Operation {
        Operation { value, is_write: false, begin, end }
    }

    #[test]
    fn histories_that_are_in_order() {
        check(&[]).unwrap();
        check(&[read(0, 1, 2), write(7, 3, 4), read(7, 5, 6), write(8, 7, 8), read(8, 9, 10)]).unwrap();
        // Either of two concurrent writes may win, and a read beside a write may see the old value or the new one.
        check(&[write(7, 1, 10), write(8, 2, 9), read(7, 11, 12)]).unwrap();
        check(&[write(7, 1, 10), write(8, 2, 9), read(8, 11, 12)]).unwrap();
        check(&[write(7, 1, 2), write(8, 3, 10), read(7, 4, 5), read(8, 6, 7)]).unwrap();
        check(&[write(7, 1, u64::MAX), read(0, 2, 3), read(7, 4, 5)]).unwrap();
    }

    #[test]
    fn what_is_wrong_is_found() {
        let cases: [(&str, &[Operation]); 8] = [
            ("stale read", &[write(7, 1, 2), write(8, 3, 4), read(7, 5, 6)]),
            ("lost write", &[write(7, 1, 2), read(0, 3, 4)]),
            ("read from the future", &[read(7, 1, 2), write(7, 3, 4)]),
            ("value from nowhere", &[write(7, 1, 2), read(9, 3, 4)]),
            ("new, then old again beside the write", &[write(7, 1, 2), write(8, 3, 20), read(8, 4, 5), read(7, 6, 7)]),
            ("two readers that disagree about the order", &[write(7, 1, 20), write(8, 2, 19), read(7, 3, 4), read(8, 5, 6), read(7, 7, 8)]),
            ("a write in the midst of a value that stays", &[write(7, 1, 2), read(7, 3, 4), write(8, 5, 6), read(7, 7, 8)]),
            ("back to the beginning", &[write(7, 1, 9), read(7, 2, 3), read(0, 4, 5)]),
        ];
        for (name, history) in cases {
            assert!(check(history).is_err(), "{name}: {history:?}");
        }
    }
}
