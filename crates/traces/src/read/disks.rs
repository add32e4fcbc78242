//! Devices of a trace by the names or numbers it has for them.

use std::collections::HashMap;

/// Numbers in the order in which devices appear.
#[derive(Default)]
pub struct Disks<'a> {
    known: HashMap<&'a [u8], u16>,
}

impl<'a> Disks<'a> {
    /// The number of a device.
    ///
    /// # Errors
    /// It would be one too many.
    pub fn number_of(&mut self, name: &'a [u8]) -> Result<u16, &'static str> {
        let next = self.known.len();
        if let Some(number) = self.known.get(name) {
            return Ok(*number);
        }
        let number = u16::try_from(next).map_err(|_| "more than 65536 devices")?;
        self.known.insert(name, number);
        Ok(number)
    }
}
