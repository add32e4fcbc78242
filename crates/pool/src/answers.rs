//! Commands that every shard answers, joined into one answer.

use engine::api::CommandFailure;
use std::collections::HashMap;

/// Commands whose answers are awaited, by token.
#[derive(Debug, Default)]
pub struct Answers {
    awaited: HashMap<u64, Awaited>,
    /// Why nobody answers any more.
    closed: Option<CommandFailure>,
}

#[derive(Debug)]
struct Awaited {
    shards_left: usize,
    error: Option<CommandFailure>,
}

impl Answers {
    /// Expects an answer from each of `shards` shards.
    pub fn expect(&mut self, token: u64, shards: usize) {
        let awaited = match self.closed {
            None => Awaited { shards_left: shards, error: None },
            Some(reason) => Awaited { shards_left: 0, error: Some(reason) },
        };
        self.awaited.insert(token, awaited);
    }

    /// One shard has answered. Whether that was the last. An answer that nobody awaits is dropped.
    pub fn done(&mut self, token: u64, result: Result<(), CommandFailure>) -> bool {
        let Some(command) = self.awaited.get_mut(&token) else { return false };
        command.shards_left = command.shards_left.saturating_sub(1);
        // The first error speaks for all: they usually share a cause.
        command.error = command.error.or(result.err());
        command.shards_left == 0
    }

    /// How the command ended, once; `None` while shards have to answer. One that is not awaited ended well.
    pub fn take(&mut self, token: u64) -> Option<Result<(), CommandFailure>> {
        match self.awaited.get(&token) {
            Some(command) if command.shards_left > 0 => None,
            _ => Some(self.awaited.remove(&token).and_then(|command| command.error).map_or(Ok(()), Err)),
        }
    }

    /// Nobody waits for it any more.
    pub fn forget(&mut self, token: u64) {
        self.awaited.remove(&token);
    }

    /// The shards are gone: commands under way and to come end with this reason.
    pub fn close(&mut self, reason: CommandFailure) {
        let reason = *self.closed.get_or_insert(reason);
        for command in self.awaited.values_mut().filter(|command| command.shards_left > 0) {
            (command.shards_left, command.error) = (0, Some(reason));
        }
    }

    /// Whether the shards are gone.
    pub fn is_closed(&self) -> bool {
        self.closed.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_joined_and_the_first_error_is_kept() {
        let mut answers = Answers::default();
        answers.expect(7, 3);
        assert!(!answers.done(7, Ok(())) && !answers.done(7, Err(CommandFailure::BackingFailed)));
        assert_eq!(answers.take(7), None);
        assert!(answers.done(7, Err(CommandFailure::SsdFailed)));
        assert_eq!(answers.take(7), Some(Err(CommandFailure::BackingFailed)));
        assert!(!answers.done(7, Ok(())) && !answers.done(99, Ok(())));
        assert_eq!(answers.take(7), Some(Ok(())));
    }

    #[test]
    fn commands_of_shards_that_are_gone_end() {
        let mut answers = Answers::default();
        answers.expect(1, 2);
        answers.close(CommandFailure::Abandoned);
        assert_eq!(answers.take(1), Some(Err(CommandFailure::Abandoned)));
        answers.expect(2, 2);
        assert_eq!(answers.take(2), Some(Err(CommandFailure::Abandoned)));
        assert!(answers.is_closed());
    }
}
