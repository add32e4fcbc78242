//! Reuse distances in 1024 classes of nearly equal relative width: thirty-two to an octave.

/// How many there are.
pub const BUCKETS: usize = 1024;
/// Classes in an octave, as a power of two.
const PER_OCTAVE_LOG2: u32 = 5;
const PER_OCTAVE: u64 = 1 << PER_OCTAVE_LOG2;

/// The class of a distance, in lines; the last one holds all that are longer.
#[must_use]
pub fn bucket_of(lines: u64) -> usize {
    if lines < PER_OCTAVE {
        return lines as usize;
    }
    let octave = lines.ilog2() - PER_OCTAVE_LOG2;
    let within = (lines >> octave) - PER_OCTAVE;
    ((u64::from(octave + 1) * PER_OCTAVE + within) as usize).min(BUCKETS - 1)
}

/// The shortest distance of a class, in lines. Of the class behind the last: where that ends.
#[must_use]
pub fn first_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < PER_OCTAVE {
        return bucket;
    }
    let octave = bucket / PER_OCTAVE - 1;
    (PER_OCTAVE + bucket % PER_OCTAVE) << octave
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_follow_one_another_without_gaps() {
        for bucket in 0..BUCKETS {
            let (first, next) = (first_of(bucket), first_of(bucket + 1));
            assert!(first < next, "{bucket}");
            assert_eq!((bucket_of(first), bucket_of(next - 1)), (bucket, bucket), "{bucket}");
            assert!(next - first <= (first / PER_OCTAVE).max(1), "{bucket} is too wide");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }
}
