//! How much may be under way at a time, of all clients together and of one of them: requests that look, requests that change
//! something, streams of events.

use crate::limits::Client;
use shares::{Full, Slot, Table};
use std::sync::{Arc, Mutex, MutexGuard};

/// A number of places. One client may have three quarters of them.
#[derive(Clone, Debug)]
pub struct Allotment {
    max: usize,
    table: Arc<Mutex<Table<Client>>>,
}

/// A place, given back when it is dropped.
#[derive(Debug)]
pub struct Place {
    table: Arc<Mutex<Table<Client>>>,
    slot: Slot,
}

impl Allotment {
    /// So many.
    pub fn new(max: usize) -> Allotment {
        Allotment { max, table: Arc::new(Mutex::new(Table::with_share(max))) }
    }

    /// A place for a client.
    ///
    /// # Errors
    /// How many there are, as the client should be told: its own share, or all.
    pub fn take(&self, client: Client) -> Result<Place, String> {
        match lock(&self.table).enter(client, false, 0) {
            Ok(entered) => Ok(Place { table: self.table.clone(), slot: entered.slot }),
            Err(Full::Peer) => Err(format!("{} of your", self.max - self.max / 4)),
            Err(Full::Table | Full::NotYet) => Err(self.max.to_string()),
        }
    }

    /// Places taken.
    pub fn taken(&self) -> usize {
        lock(&self.table).count()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.table).leave(self.slot);
    }
}

fn lock(table: &Mutex<Table<Client>>) -> MutexGuard<'_, Table<Client>> {
    table.lock().expect("no holder of this lock panics")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_leaves_something_for_others() {
        let allotment = Allotment::new(4);
        let mut places: Vec<Place> = (0..3).map(|_| allotment.take(Client::User(1)).expect("its share")).collect();
        assert_eq!(allotment.take(Client::User(1)).expect_err("its share is used up"), "3 of your");
        places.push(allotment.take(Client::User(2)).expect("the last"));
        assert_eq!(allotment.take(Client::User(3)).expect_err("all are taken"), "4");
        places.pop();
        assert_eq!(allotment.taken(), 3);
        assert!(allotment.take(Client::User(3)).is_ok());
    }
}
