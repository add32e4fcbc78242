//! Large tables of zeroes, which may not be had.
//!
//! They come from the system as zeroes, so a table takes memory as it is used, whatever its size. And where there is no room for one,
//! the caller is told: an allocation by `vec!` would end the process.

use alloc::alloc::{Layout, alloc_zeroed};
use alloc::vec::Vec;

mod sealed {
    /// What may be all zeroes.
    pub trait Zero: Copy {}

    impl Zero for u8 {}
    impl Zero for u16 {}
    impl Zero for u32 {}
    impl Zero for u64 {}
    impl<T: Zero, const N: usize> Zero for [T; N] {}
}

use sealed::Zero;

/// A vector of so many zeroes; `None` if there is no memory for it.
pub fn zeroed<T: Zero>(length: usize) -> Option<Vec<T>> {
    let layout = Layout::array::<T>(length).ok()?;
    if layout.size() == 0 {
        return (length == 0).then(Vec::new);
    }
    // SAFETY: the layout is not empty.
    let start = unsafe { alloc_zeroed(layout) }.cast::<T>();
    if start.is_null() {
        return None;
    }
    // SAFETY: it came from the global allocator with the layout of an array of that length, which is the vector's capacity, and all zeroes
    // are a value of each element.
    Some(unsafe { Vec::from_raw_parts(start, length, length) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroes_or_nothing() {
        let table = zeroed::<[u16; 5]>(100_000).expect("a megabyte");
        assert!(table.len() == 100_000 && table.iter().all(|entry| *entry == [0; 5]));
        assert_eq!(zeroed::<u32>(0), Some(Vec::new()));
        // More than addresses, and more than any machine maps.
        assert!(zeroed::<u32>(usize::MAX / 2).is_none() && zeroed::<u8>(isize::MAX as usize).is_none());
    }
}
