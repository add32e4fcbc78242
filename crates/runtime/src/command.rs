//! Commands to all shards of a pool, joined into one answer.

use crate::message::{Directory, Message};
use engine::api::{Command, CommandFailure};
use pool::Answers;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, mpsc};
use std::time::{Duration, Instant};

/// Commands whose answers are awaited, by any thread.
#[derive(Default)]
pub(crate) struct Commands {
    answers: Mutex<Answers>,
    changed: Condvar,
}

impl Commands {
    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().expect("no holder of this lock panics")
    }

    /// Expects an answer from each of `shards` shards.
    pub(crate) fn expect(&self, token: u64, shards: usize) {
        self.answers().expect(token, shards);
    }

    /// The shards are gone: commands under way and to come end with this reason.
    pub(crate) fn close(&self, reason: CommandFailure) {
        self.answers().close(reason);
        self.changed.notify_all();
    }

    /// Whether the shards are gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.answers().is_closed()
    }

    /// One shard has answered. An answer that nobody awaits is dropped.
    pub(crate) fn done(&self, token: u64, result: Result<(), CommandFailure>) {
        if self.answers().done(token, result) {
            self.changed.notify_all();
        }
    }

    fn wait(&self, token: u64, patience: Duration) -> Option<Result<(), CommandFailure>> {
        let deadline = Instant::now() + patience;
        let mut answers = self.answers();
        loop {
            if let Some(result) = answers.take(token) {
                return Some(result);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            answers = self.changed.wait_timeout(answers, left).expect("no holder of this lock panics").0;
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
    pub fn wait(&self, patience: Duration) -> Option<Result<(), CommandFailure>> {
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
        self.commands.answers().forget(self.token);
    }
}
