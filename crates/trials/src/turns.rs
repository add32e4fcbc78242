//! One guest at a time: an emulated processor needs one of the machine's for itself, or what runs in it meets its time limits.

use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard, PoisonError};

static TURN: Mutex<()> = Mutex::new(());

thread_local! {
    /// What this thread holds, and for how many.
    static HELD: RefCell<(Option<MutexGuard<'static, ()>>, u32)> = const { RefCell::new((None, 0)) };
}

/// A turn to run guests; other threads wait for it, and the one that has it may take it again.
#[derive(Debug)]
pub struct Turn {
    // It goes back where it was taken.
    _thread: std::marker::PhantomData<*const ()>,
}

impl Turn {
    /// Waits until no other thread runs guests.
    pub fn wait() -> Turn {
        let is_first = HELD.with_borrow(|held| held.1 == 0);
        let guard = is_first.then(|| TURN.lock().unwrap_or_else(PoisonError::into_inner));
        HELD.with_borrow_mut(|held| {
            held.0 = guard.or(held.0.take());
            held.1 += 1;
        });
        Turn { _thread: std::marker::PhantomData }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        HELD.with_borrow_mut(|held| {
            held.1 -= 1;
            if held.1 == 0 {
                held.0 = None;
            }
        });
    }
}
