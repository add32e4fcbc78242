//! What a generator gave, scene by scene, so that a run can be played again with some of its steps left out.
//!
//! A scene is an occasion of drawing with a name that stays the same when other things do not happen: "the third write to the SSD", "the
//! second crash". A generator with a tape that records notes what it gives in each scene. One with a tape that plays gives the same again,
//! and in a scene that never was, or that goes on for longer, what follows from the scene's name.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

/// What was given, by scene.
pub type Scenes = HashMap<u64, Vec<u64>>;

/// A tape in a generator.
#[derive(Clone, Debug)]
pub struct Tape {
    seen: HashMap<u64, u32>,
    scene: u64,
    mode: Mode,
}

#[derive(Clone, Debug)]
enum Mode {
    Record(Arc<Mutex<Scenes>>),
    /// How much of the scene was given, and what goes on behind its end.
    Play(Arc<Scenes>, usize, u64),
}

impl Tape {
    /// Notes what is given.
    pub fn recording(scenes: Arc<Mutex<Scenes>>) -> Tape {
        Tape { seen: HashMap::new(), scene: 0, mode: Mode::Record(scenes) }
    }

    /// Gives what was noted.
    pub fn playing(scenes: Arc<Scenes>) -> Tape {
        Tape { seen: HashMap::new(), scene: 0, mode: Mode::Play(scenes, 0, 0) }
    }

    /// A scene begins: the next one of this name. Gives its number.
    pub fn begin(&mut self, name: impl Hash) -> u64 {
        let name = hash(name);
        let times = self.seen.entry(name).or_default();
        *times += 1;
        self.scene = hash((name, *times));
        if let Mode::Play(_, at, beyond) = &mut self.mode {
            (*at, *beyond) = (0, self.scene);
        }
        self.scene
    }

    /// What is to be given now; `None`: whatever the generator gives.
    pub fn given(&mut self) -> Option<u64> {
        let Mode::Play(scenes, at, beyond) = &mut self.mode else { return None };
        let noted = scenes.get(&self.scene).and_then(|scene| scene.get(*at)).copied();
        *at += 1;
        Some(noted.unwrap_or_else(|| crate::prng::split_mix(beyond)))
    }

    /// Notes what was given.
    pub fn note(&mut self, bits: u64) {
        if let Mode::Record(scenes) = &self.mode {
            scenes.lock().unwrap_or_else(PoisonError::into_inner).entry(self.scene).or_default().push(bits);
        }
    }
}

/// The same for equal names in every run of one build.
fn hash(name: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;

    #[test]
    fn a_scene_gives_the_same_when_others_are_left_out() {
        let scenes = Arc::new(Mutex::new(Scenes::new()));
        let mut prng = Prng::new(1);
        prng.tape(Tape::recording(scenes.clone()));
        let draw = |prng: &mut Prng, name: &str| {
            prng.scene(name);
            [prng.bits(), prng.bits()]
        };
        let drawn = ["write", "crash", "write"].map(|name| draw(&mut prng, name));
        let mut again = Prng::new(2);
        again.tape(Tape::playing(Arc::new(scenes.lock().expect("nothing panicked").clone())));
        assert_eq!([draw(&mut again, "write"), draw(&mut again, "write")], [drawn[0], drawn[2]]);
        let unknown = draw(&mut again, "write");
        assert_ne!(unknown, drawn[1]);
    }
}
