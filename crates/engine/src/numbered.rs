//! Things known by small numbers that are used again.

use alloc::vec::Vec;

/// See the module.
pub struct Numbered<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Numbered<T> {
        Numbered { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Numbered<T> {
    /// Takes one in; gives its number.
    pub fn add(&mut self, one: T) -> u32 {
        if let Some(number) = self.free.pop() {
            self.places[number as usize] = Some(one);
            return number;
        }
        self.places.push(Some(one));
        (self.places.len() - 1) as u32
    }

    /// The one of that number, which is there.
    pub fn get(&self, number: u32) -> &T {
        self.places[number as usize].as_ref().expect("the one of this number is here")
    }

    /// The one of that number, which is there.
    pub fn get_mut(&mut self, number: u32) -> &mut T {
        self.places[number as usize].as_mut().expect("the one of this number is here")
    }

    /// Takes the one of that number out.
    pub fn remove(&mut self, number: u32) -> T {
        self.free.push(number);
        self.places[number as usize].take().expect("the one of this number is here")
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().flatten()
    }
}
