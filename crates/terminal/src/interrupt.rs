//! Ctrl-C, for commands that have something to put away.

use crate::failure::STATUS_INTERRUPTED;
use crate::signals::that_end;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ctrl-C of this process. Ends the process at once with status 130, unless somebody watches for it.
#[derive(Clone)]
pub struct Interrupt {
    pressed: Arc<AtomicBool>,
    at_once: Arc<AtomicBool>,
}

impl Interrupt {
    /// Takes over SIGINT.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn install() -> std::io::Result<Interrupt> {
        let pressed = Arc::new(AtomicBool::new(false));
        let at_once = Arc::new(AtomicBool::new(true));
        let interrupt = signal_hook::consts::SIGINT;
        signal_hook::flag::register_conditional_shutdown(interrupt, i32::from(STATUS_INTERRUPTED), at_once.clone())?;
        signal_hook::flag::register(interrupt, pressed.clone())?;
        Ok(Interrupt { pressed, at_once })
    }

    /// From now on Ctrl-C is only noted.
    pub fn watch(&self) {
        self.at_once.store(false, Ordering::SeqCst);
    }

    /// SIGTERM and the end of the terminal count as Ctrl-C from now on: for what has much to put away.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn watch_termination(&self) -> std::io::Result<()> {
        let mut others = that_end().into_iter().filter(|signal| *signal != signal_hook::consts::SIGINT);
        others.try_for_each(|signal| signal_hook::flag::register(signal, self.pressed.clone()).map(drop))
    }

    /// True once it was pressed.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.pressed)
    }

    /// Whether it was pressed.
    pub fn pressed(&self) -> bool {
        self.pressed.load(Ordering::SeqCst)
    }
}
