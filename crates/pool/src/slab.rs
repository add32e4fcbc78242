//! A table with reused places: what is in flight is named by a small number.

/// Values under numbers; a removed value's number is given to a later one. Memory grows to the most that was ever in at a time and is
/// then reused, so a steady load allocates nothing.
pub struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab::new()
    }
}

impl<T> Slab<T> {
    /// An empty table.
    pub const fn new() -> Slab<T> {
        Slab { places: Vec::new(), free: Vec::new() }
    }

    /// Puts a value in and gives its number.
    pub fn insert(&mut self, value: T) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.places[number as usize] = Some(value);
                number
            }
            None => {
                self.places.push(Some(value));
                u32::try_from(self.places.len() - 1).expect("far fewer than 2^32 things are in flight")
            }
        }
    }

    /// Takes a value out, if it is there.
    pub fn take(&mut self, number: u32) -> Option<T> {
        let value = self.places.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(value)
    }

    /// Takes out a value that must be there: a completion for something that was never started would be memory
    /// written by a stranger.
    pub fn remove(&mut self, number: u32) -> T {
        self.take(number).expect("a completion names something in flight")
    }

    /// The value of a number, if it is there.
    pub fn get(&self, number: u32) -> Option<&T> {
        self.places.get(number as usize)?.as_ref()
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.places.get_mut(number as usize)?.as_mut()
    }

    /// Values that are in.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All values with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.places.iter().enumerate().filter_map(|(number, place)| Some((number as u32, place.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_reused_and_values_found() {
        let mut slab = Slab::new();
        let (a, b) = (slab.insert('a'), slab.insert('b'));
        assert_eq!((a, b, slab.len()), (0, 1, 2));
        assert_eq!(slab.remove(a), 'a');
        assert_eq!(slab.take(a), None);
        assert_eq!(slab.insert('c'), a);
        assert_eq!(slab.iter().map(|(number, value)| (number, *value)).collect::<Vec<_>>(), [(0, 'c'), (1, 'b')]);
    }
}
