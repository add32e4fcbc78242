//! How long encoding takes in shards, and how a pool's shards treat content from now on.

use crate::error::RuntimeError;
use crate::message::Message;
use crate::pools::PoolRef;
use crate::reactor::monotonic_ns;
use crate::runtime::{ANSWER_PATIENCE, Runtime};
use engine::shard::Shard;
use types::Content;

/// Feeds a shard, and tells it how long that took if it encoded blocks meanwhile.
///
/// All of the call counts: encoding is most of it. It is the time that passes, not the thread's CPU time: encoding never sleeps, so the two
/// differ only where other programs take the processor meanwhile, and then encoding had better give way. The thread's own clock is a system
/// call and costs as much as encoding itself: 2.7 µs a reading where this was measured (on a virtual machine) beside 0.09.
pub(crate) fn timed(shard: &mut Shard, feed: impl FnOnce(&mut Shard)) {
    if shard.content_options().level == Content::Off {
        feed(shard);
        return;
    }
    let begun_ns = monotonic_ns();
    feed(shard);
    if shard.untimed_looks() > 0 {
        shard.encoding_took(monotonic_ns().saturating_sub(begun_ns));
    }
}

impl Runtime {
    /// From now on the shards of the pool store blocks so. What is stored already stays as it is.
    ///
    /// # Errors
    /// [`RuntimeError::Timeout`] if a reactor did not take it.
    pub fn set_content(&self, pool: &PoolRef, level: Content) -> Result<(), RuntimeError> {
        let pool = pool.number();
        self.ask_all("set content", ANSWER_PATIENCE, |_, done| Message::SetContent { pool, level, done }).map(drop)
    }
}
