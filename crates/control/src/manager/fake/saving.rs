//! The state file in memory.

use super::World;
use api::error::ControlError;
use records::state::State;
use records::store::{Loaded, Store};

impl Store for World {
    fn load(&mut self) -> Result<Loaded, ControlError> {
        Ok(Loaded { state: self.inside().saved.clone(), warning: None })
    }

    /// A save that fails leaves the old state or the new one: odd steps the old, even steps the new.
    fn save(&mut self, state: &State) -> Result<(), ControlError> {
        if let Err(broken) = state.check() {
            panic!("a state that breaks its invariants was about to be saved: {broken}");
        }
        let mut inside = self.inside();
        let was_dead = inside.dead;
        let result = inside.step("state.json");
        if result.is_ok() || (!was_dead && inside.steps.is_multiple_of(2)) {
            inside.saved = state.clone();
        }
        result
    }

    fn keep_note(&mut self, name: &str, text: Option<&str>) -> Result<(), ControlError> {
        let mut inside = self.inside();
        match text {
            Some(text) => drop(inside.notes.insert(name.into(), text.into())),
            None => drop(inside.notes.remove(name)),
        }
        Ok(())
    }

    fn notes(&mut self) -> Vec<(String, String)> {
        self.inside().notes.clone().into_iter().collect()
    }
}
