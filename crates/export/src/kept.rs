//! Descriptors of exports that an earlier daemon has kept open for this one, and this one keeps for the next.
//!
//! Each set has a name: what kind of export it is of, a dot, the volume's UUID, and perhaps another dot and a number.

use crate::site::{Owner, Volume};
use crate::slots::locked;
use keeper::Keeper;
use rustix::fs::{MemfdFlags, memfd_create};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long users of an export wait for a volume that does not start. Longer than a disk takes that
/// comes late; users of a disk that does not come at all are to hear of it.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// How long initiators of a shared device wait for a daemon: shorter than their own patience, since the kernel's targets have none (docs/shares.md).
const SHARE_PATIENCE: Duration = Duration::from_secs(25);

/// What is kept open.
pub struct Kept {
    keeper: Option<Keeper>,
    /// From the daemon before, or from before a restart of the pool, and not taken over yet; with
    /// the time since when their users wait.
    waiting: Mutex<BTreeMap<String, (Instant, Vec<OwnedFd>)>>,
    /// When it was looked for the first time whose users wait in vain: from then on the daemon is up.
    first_look: Mutex<Option<Instant>>,
    /// Volumes that do not have the content that users of an earlier daemon knew.
    strange: Mutex<BTreeSet<Owner>>,
    /// By the name of their descriptors: exports of this daemon that are kept for the next.
    held: Mutex<BTreeSet<String>>,
}

/// Why an export that is kept was not taken over now. Its users wait on.
#[derive(Debug)]
pub enum NotTaken<E> {
    /// Its descriptors cannot be duplicated.
    Descriptors(io::Error),
    /// It cannot be had at the moment.
    Error(E),
}

/// The name of what is kept of a volume's export.
pub fn name_of(kind: &str, owner: Owner) -> String {
    format!("{kind}.{owner}")
}

/// The volume whose export a name is of.
pub fn owner_of(name: &str) -> Option<Owner> {
    Owner::parse(name.split('.').nth(1)?)
}

/// What kind of export a name is of.
pub fn kind_of(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

/// A file without a name that holds these bytes.
///
/// # Errors
/// The system's.
pub fn memory_of(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut memory = File::from(memfd_create("hearth-state", MemfdFlags::CLOEXEC)?);
    memory.write_all(bytes)?;
    Ok(memory.into())
}

/// What the first of these files holds.
pub fn text_of(set: &[OwnedFd]) -> String {
    let mut text = String::new();
    let mut read = |file: &OwnedFd| {
        let mut file = File::from(file.try_clone()?);
        file.rewind().and_then(|()| file.read_to_string(&mut text))
    };
    if let Some(Err(error)) = set.first().map(&mut read) {
        tracing::warn!("what was kept of an export cannot be read: {error}");
    }
    text
}

impl Kept {
    /// Takes what an earlier daemon has left. `keeper` holds what is kept when this process ends; `None`: nothing is.
    pub fn new(keeper: Option<Keeper>) -> Kept {
        let taken = keeper.as_ref().map_or(Ok(keeper::Kept::new()), Keeper::take);
        let waiting = taken.unwrap_or_else(|error| {
            tracing::warn!("cannot read which exports the previous daemon left open ({error}): users of its block devices may get errors");
            keeper::Kept::new()
        });
        if !waiting.is_empty() {
            tracing::info!("the previous daemon left {} open", types::counted(waiting.len() as u64, "export"));
        }
        let waiting = waiting.into_iter().map(|(name, set)| (name, (Instant::now(), set))).collect();
        Kept { keeper, waiting: Mutex::new(waiting), first_look: Mutex::default(), strange: Mutex::default(), held: Mutex::default() }
    }

    /// Whether anything of this process outlives it.
    pub fn has_keeper(&self) -> bool {
        self.keeper.is_some()
    }

    /// Whether what is kept outlives a stop that is asked for, not only a crash.
    pub fn outlives_a_stop(&self) -> bool {
        self.keeper.as_ref().is_some_and(Keeper::outlives_a_stop)
    }

    /// Keeps copies of these descriptors for the next daemon. Without a keeper nothing is kept, and that is no error.
    ///
    /// # Errors
    /// The system's.
    pub fn hold(&self, name: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let Some(keeper) = &self.keeper else { return Ok(()) };
        keeper.keep(name, descriptors)?;
        self.note_held(name);
        Ok(())
    }

    /// What an earlier daemon has kept under this name is kept on.
    pub fn note_held(&self, name: &str) {
        locked(&self.held).insert(name.to_owned());
    }

    /// Whether something is kept under this name for the next daemon.
    pub fn holds(&self, name: &str) -> bool {
        locked(&self.held).contains(name)
    }

    /// Nothing is kept under this name any more.
    pub fn forget(&self, name: &str) {
        locked(&self.held).remove(name);
        if let Some(keeper) = &self.keeper {
            keeper.forget(name);
        }
    }

    /// What is kept under this name is shared with other machines, or is no more: without a daemon, its users wait less long.
    ///
    /// # Errors
    /// The system's.
    pub fn note_shared(&self, name: &str, is_shared: bool) -> io::Result<()> {
        self.keeper.as_ref().map_or(Ok(()), |keeper| keeper.limit(name, is_shared.then_some(SHARE_PATIENCE)))
    }

    /// Whether users of what is kept under this name wait.
    pub fn waits(&self, name: &str) -> bool {
        locked(&self.waiting).contains_key(name)
    }

    /// Users of an export wait from now on; if they do already, since when they do.
    pub fn wait(&self, name: String, set: Vec<OwnedFd>) {
        self.wait_since(name, Instant::now(), set);
    }

    /// The same with other descriptors than those that may have been kept before.
    pub fn wait_with(&self, name: String, set: Vec<OwnedFd>) {
        locked(&self.waiting).insert(name, (Instant::now(), set));
    }

    fn wait_since(&self, name: String, since: Instant, set: Vec<OwnedFd>) {
        locked(&self.waiting).entry(name).or_insert((since, set));
    }

    /// The first name of this kind and volume with a number that nothing waits under.
    pub fn free_name(&self, kind: &str, owner: Owner) -> String {
        let waiting = locked(&self.waiting);
        let names = (waiting.len()..).map(|number| format!("{}.{number}", name_of(kind, owner)));
        names.into_iter().find(|name| !waiting.contains_key(name)).expect("numbers do not end")
    }

    /// Users of this export are served, or it has ended: they wait no more.
    pub fn wait_no_more(&self, name: &str) {
        locked(&self.waiting).remove(name);
    }

    /// Names of this kind and volume under which something waits.
    pub fn names_of(&self, kind: &str, owner: Owner) -> Vec<String> {
        let is_of = |name: &&String| kind_of(name) == kind && owner_of(name) == Some(owner);
        locked(&self.waiting).keys().filter(is_of).cloned().collect()
    }

    /// Tries to take an export over, with copies of its descriptors. Gives what became of it for good; `None` if nothing is kept under that
    /// name. `is_final` says whether an error means that it can never be taken over.
    ///
    /// # Errors
    /// Any that is not final; its users wait on, since when they do.
    pub fn try_take<T, E>(
        &self,
        name: &str,
        take: impl FnOnce(Vec<OwnedFd>) -> Result<T, E>,
        is_final: impl FnOnce(&E) -> bool,
    ) -> Result<Option<Result<T, E>>, NotTaken<E>> {
        let Some((since, set)) = locked(&self.waiting).remove(name) else { return Ok(None) };
        let copies = set.iter().map(OwnedFd::try_clone).collect::<io::Result<Vec<_>>>();
        let taken = match copies {
            Ok(copies) => take(copies),
            Err(error) => {
                self.wait_since(name.to_owned(), since, set);
                return Err(NotTaken::Descriptors(error));
            }
        };
        match taken {
            Err(error) if !is_final(&error) => {
                self.wait_since(name.to_owned(), since, set);
                Err(NotTaken::Error(error))
            }
            settled => Ok(Some(settled)),
        }
    }

    /// A socket and the state beside it. From here on this process alone has it open.
    pub fn take_with_state(&self, name: &str) -> Option<(OwnedFd, Vec<u8>)> {
        let (_, set) = locked(&self.waiting).remove(name)?;
        self.forget(name);
        let [socket, state] = <[OwnedFd; 2]>::try_from(set).ok()?;
        let mut bytes = Vec::new();
        let mut state = File::from(state);
        let read = state.rewind().and_then(|()| state.read_to_end(&mut bytes));
        match read {
            Ok(_) => Some((socket, bytes)),
            Err(error) => {
                tracing::warn!("what the previous daemon kept as {name} cannot be used: {error}");
                None
            }
        }
    }

    /// All that waits of a volume.
    pub(crate) fn take_all_of(&self, owner: Owner) -> Vec<(String, Vec<OwnedFd>)> {
        self.take_where(|name, _| owner_of(name) == Some(owner))
    }

    /// What waits for a volume that is not known or is stopped, and what has waited long enough. The volumes that are `busy` are about to
    /// be served.
    pub(crate) fn take_overdue(&self, known: &[Volume<'_>], busy: &[String]) -> Vec<(String, Vec<OwnedFd>)> {
        let first_look = *locked(&self.first_look).get_or_insert_with(Instant::now);
        self.take_where(|name, since| {
            let volume = known.iter().find(|volume| owner_of(name) == Some(volume.owner));
            // What is being started is about to be taken over.
            if volume.is_some_and(|volume| busy.iter().any(|busy| busy == volume.name)) {
                return false;
            }
            volume.is_none_or(|volume| volume.rests) || since.max(first_look).elapsed() >= PATIENCE
        })
    }

    fn take_where(&self, is_wanted: impl Fn(&str, Instant) -> bool) -> Vec<(String, Vec<OwnedFd>)> {
        let taken = locked(&self.waiting).extract_if(.., |name, (since, _)| is_wanted(name, *since)).collect::<Vec<_>>();
        taken.into_iter().map(|(name, (_, set))| (name, set)).collect()
    }

    /// The volume does not have the content that users of an earlier daemon knew.
    pub(crate) fn note_strange(&self, owner: Owner) {
        locked(&self.strange).insert(owner);
    }

    /// Whether users of the volume from before this daemon must not go on as if nothing had happened.
    pub fn is_strange(&self, owner: Owner) -> bool {
        locked(&self.strange).contains(&owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: Owner = Owner(7);

    /// Since when users of an export wait.
    fn since(kept: &Kept, name: &str) -> Option<Instant> {
        locked(&kept.waiting).get(name).map(|(since, _)| *since)
    }

    fn volume(rests: bool) -> Volume<'static> {
        Volume { name: "v", owner: OWNER, backing: "", exports: &[], tls_names: &[], read_only: false, rests }
    }

    #[test]
    fn names_say_what_they_are_of() {
        let name = format!("{}.3", name_of("nbd", OWNER));
        assert_eq!((kind_of(&name), owner_of(&name)), ("nbd", Some(OWNER)));
        assert_eq!((kind_of("nbd-listener"), owner_of("nbd-listener")), ("nbd-listener", None));
    }

    /// An export whose descriptors were dropped would be gone for its users.
    #[test]
    fn an_export_that_cannot_be_had_now_is_kept() {
        let kept = Kept::new(None);
        let name = name_of("loop", OWNER);
        kept.wait(name.clone(), vec![memory_of(b"table").expect("there is memory")]);
        let begin = since(&kept, &name);
        let late = |_: Vec<OwnedFd>| Err::<(), _>("late");
        assert!(matches!(kept.try_take(&name, late, |_| false), Err(NotTaken::Error("late"))));
        assert_eq!(since(&kept, &name), begin, "each try would give them another two minutes");
        assert!(matches!(kept.try_take(&name, late, |_| true), Ok(Some(Err("late")))));
        assert!(!kept.waits(&name), "it can never be had");
        assert!(matches!(kept.try_take(&name, late, |_| false), Ok(None)));
        kept.wait(name.clone(), vec![memory_of(b"table").expect("there is memory")]);
        let taken = kept.try_take(&name, |copies| Ok::<_, ()>((text_of(&copies), text_of(&copies))), |()| false);
        assert_eq!(taken.ok().flatten(), Some(Ok(("table".into(), "table".into()))));
        assert!(!kept.waits(&name), "it is taken over");
    }

    #[test]
    fn what_waits_in_vain_is_taken() {
        let kept = Kept::new(None);
        let name = name_of("loop", OWNER);
        let waits = || kept.wait(name.clone(), Vec::new());
        waits();
        assert!(kept.take_overdue(&[volume(false)], &[]).is_empty(), "it may come");
        assert!(kept.take_overdue(&[volume(true)], &["v".into()]).is_empty(), "it is being started");
        assert_eq!(kept.take_overdue(&[volume(true)], &[]).len(), 1, "it is stopped");
        waits();
        assert_eq!(kept.take_overdue(&[], &[]).len(), 1, "it is not known");
        assert!(!kept.waits(&name));
    }
}
