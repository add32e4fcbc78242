//! What those who watch loads get from the runtime.

use super::{Machine, failed, locked};
use crate::datapath::{Tapped, TappedVolume};
use crate::error::ControlError;
use applications::streams::PageAt;
use applications::{Certainty, Engine, Page};
use runtime::PageSeen;
use std::time::Duration;

/// How long a look waits for the reactors.
const PATIENCE: Duration = Duration::from_secs(2);

impl Machine {
    pub(super) fn tappable(&self) -> Vec<TappedVolume> {
        let volumes = locked(&self.volumes);
        let told = volumes.iter().map(|(name, live)| TappedVolume {
            name: name.clone(),
            pool: live.cached.as_ref().map(|(pool, _)| pool.name.clone()),
            reference: live.reference.clone(),
        });
        told.collect()
    }

    pub(super) fn take_what_was_tapped(&self) -> Result<Tapped, ControlError> {
        // Only the first call counts.
        self.runtime.set_recognise(std::sync::Arc::new(recognise));
        self.runtime.take_tapped(PATIENCE).map_err(|error| failed(&error, "try again"))
    }
}

/// What a page says of itself, by its first 4096 bytes, as far as streams are told apart by it.
pub(crate) fn recognise(bytes: &[u8]) -> Option<PageSeen> {
    let page = applications::recognise(bytes).filter(|page| page.certainty >= Certainty::Likely)?;
    let at = PageAt::of(&page, 0, None)?;
    let none = u32::MAX;
    Some(PageSeen {
        object: at.owner,
        page: at.number,
        neighbours: (at.prev.unwrap_or(none), at.next.unwrap_or(none)),
        kind: kind_of(&page),
        level: u8::try_from(at.level).unwrap_or(u8::MAX),
        is_leaf: at.leaf,
        is_log: at.log,
        size_log2: page.size_bytes.max(1).ilog2() as u8,
    })
}

/// The engine in the high byte, the kind of page in the low one.
fn kind_of(page: &Page) -> u16 {
    let engine = match page.engine() {
        Engine::Innodb => 1,
        Engine::Postgres => 2,
        Engine::Mssql => 3,
        Engine::Oracle => 4,
        Engine::Sqlite => 5,
        Engine::WiredTiger => 6,
    };
    engine << 8 | page.kind as u16
}
