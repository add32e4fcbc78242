//! Commands to all shards of a pool, joined into one answer.

use crate::message::{Directory, Message};
use engine::api::Command;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, OnceLock, mpsc};
use std::time::{Duration, Instant};

/// Commands whose answers are awaited.
#[derive(Default)]
pub(crate) struct Commands {
    pending: Mutex<HashMap<u64, Pending>>,
    changed: Condvar,
    /// Why nobody answers any more.
    closed: OnceLock<&'static str>,
}

struct Pending {
    shards_left: usize,
    error: Option<String>,
}

impl Commands {
    /// Expects an answer from each of `shards` shards.
    pub(crate) fn expect(&self, token: u64, shards: usize) {
        let mut pending = self.pending.lock().expect("no holder of this lock panics");
        // With the lock held: a command comes either before the end, which answers it, or after.
        let awaited = match self.closed.get() {
            None => Pending { shards_left: shards, error: None },
            Some(reason) => Pending { shards_left: 0, error: Some((*reason).into()) },
        };
        pending.insert(token, awaited);
    }

    /// The shards are gone: commands under way and to come end with this reason.
    pub(crate) fn close(&self, reason: &'static str) {
        let mut pending = self.pending.lock().expect("no holder of this lock panics");
        let reason = self.closed.get_or_init(|| reason);
        for command in pending.values_mut().filter(|command| command.shards_left > 0) {
            (command.shards_left, command.error) = (0, Some((*reason).into()));
        }
        self.changed.notify_all();
    }

    /// Whether the shards are gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get().is_some()
    }

    /// One shard has answered. An answer that nobody awaits is dropped.
    pub(crate) fn done(&self, token: u64, result: Result<(), String>) {
        let mut pending = self.pending.lock().expect("no holder of this lock panics");
        if let Some(command) = pending.get_mut(&token) {
            command.shards_left = command.shards_left.saturating_sub(1);
            // The first error speaks for all: they usually share a cause.
            command.error = command.error.take().or(result.err());
            if command.shards_left == 0 {
                self.changed.notify_all();
            }
        }
    }

    fn wait(&self, token: u64, patience: Duration) -> Option<Result<(), String>> {
        let deadline = Instant::now() + patience;
        let mut pending = self.pending.lock().expect("no holder of this lock panics");
        loop {
            match pending.get(&token) {
                None => return Some(Ok(())),
                Some(command) if command.shards_left == 0 => {
                    let command = pending.remove(&token).expect("just seen");
                    return Some(command.error.map_or(Ok(()), Err));
                }
                Some(_) => {}
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            pending = self.changed.wait_timeout(pending, left).expect("no holder of this lock panics").0;
        }
    }
}

/// A command under way. Dropping the ticket leaves the command running.
pub struct CommandTicket {
    pub(crate) commands: Arc<Commands>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) pool: u32,
    pub(crate) token: u64,
}

impl CommandTicket {
    /// Waits until every shard has answered: the first error, if any shard had one. `None` if `patience` was over before; then it may
    /// be waited for again. After an answer was given, further calls give `Ok`.
    pub fn wait(&self, patience: Duration) -> Option<Result<(), String>> {
        self.commands.wait(self.token, patience)
    }

    /// Asks the shards to stop the command. What is done stays done; the end still comes through [`CommandTicket::wait`].
    pub fn cancel(&self) {
        let (done, _) = mpsc::channel();
        for reactor in 0..self.directory.peers.len() as u16 {
            let command = Command::Cancel { token: self.token };
            self.directory.send(reactor, Message::Command { pool: self.pool, command, done: done.clone() });
        }
    }
}

impl Drop for CommandTicket {
    fn drop(&mut self) {
        self.commands.pending.lock().expect("no holder of this lock panics").remove(&self.token);
    }
}

/// The command under another token; `None` if it is one that nobody answers.
pub(crate) fn with_token(command: Command, token: u64) -> Result<Command, Command> {
    Ok(match command {
        Command::SetOptions { volume, options, .. } => Command::SetOptions { token, volume, options },
        Command::Destage { volume, .. } => Command::Destage { token, volume },
        Command::Detach { volume, .. } => Command::Detach { token, volume },
        Command::Release { volume, .. } => Command::Release { token, volume },
        Command::DropClean { volume, .. } => Command::DropClean { token, volume },
        Command::Check { segment, .. } => Command::Check { token, segment },
        Command::VoidPast { volume, past, .. } => Command::VoidPast { token, volume, past },
        Command::Quiesce { .. } => Command::Quiesce { token },
        unanswered @ (Command::Attach { .. }
        | Command::Hold { .. }
        | Command::Grow { .. }
        | Command::Cancel { .. }
        | Command::SsdFailed
        | Command::DegradedRecorded
        | Command::GoingHome
        | Command::SsdForgotten { .. }
        | Command::PastRecorded { .. }
        | Command::BackingFailed { .. }
        | Command::SetPolicies { .. }
        | Command::Cold { .. }) => {
            return Err(unanswered);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_joined_and_the_first_error_is_kept() {
        let commands = Arc::new(Commands::default());
        commands.expect(7, 3);
        let directory = Arc::new(Directory::new(1).unwrap());
        let ticket = CommandTicket { commands: commands.clone(), directory, pool: 0, token: 7 };
        commands.done(7, Ok(()));
        commands.done(7, Err("disk is gone".into()));
        assert_eq!(ticket.wait(Duration::ZERO), None);
        commands.done(7, Err("later".into()));
        assert_eq!(ticket.wait(Duration::ZERO), Some(Err("disk is gone".into())));
        commands.done(7, Ok(()));
        commands.done(99, Ok(()));
    }

    #[test]
    fn commands_of_shards_that_are_gone_end() {
        let commands = Arc::new(Commands::default());
        let directory = Arc::new(Directory::new(1).unwrap());
        let ticket = |token| CommandTicket { commands: commands.clone(), directory: directory.clone(), pool: 0, token };
        commands.expect(1, 2);
        commands.close("the SSD does not answer");
        assert_eq!(ticket(1).wait(Duration::ZERO), Some(Err("the SSD does not answer".into())));
        commands.expect(2, 2);
        assert_eq!(ticket(2).wait(Duration::ZERO), Some(Err("the SSD does not answer".into())));
    }
}
