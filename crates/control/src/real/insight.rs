//! What those who watch loads get from the runtime.

use super::{Machine, failed, locked};
use crate::datapath::{Tapped, TappedVolume};
use crate::error::ControlError;
use applications::{Certainty, Engine, Native, Page, PageKind};
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

/// What a page says of itself, by its first 4096 bytes.
pub(crate) fn recognise(bytes: &[u8]) -> Option<PageSeen> {
    let page = applications::recognise(bytes).filter(|page| page.certainty >= Certainty::Likely)?;
    let none = u32::MAX;
    let (object, neighbours, level) = match page.native {
        Native::Innodb(identity) => {
            let space = u64::from(identity.space?) << 32;
            (space | identity.index.unwrap_or(0) & 0xffff_ffff, (identity.prev, identity.next), identity.level.map_or(0, u32::from))
        }
        Native::Mssql(identity) => {
            let of_this_file = |place: Option<(u32, u16)>| place.filter(|(_, file)| *file == identity.file).map(|(page, _)| page);
            (identity.allocation_unit(), (of_this_file(identity.prev), of_this_file(identity.next)), identity.level.into())
        }
        Native::Oracle(identity) => (identity.data_object?.into(), (None, None), 0),
        Native::Postgres(identity) => (0, (identity.prev, identity.next), identity.level.unwrap_or(0)),
        Native::Wal(_) | Native::Redo(_) | Native::Binlog => (0, (None, None), 0),
        _ => return None,
    };
    Some(PageSeen {
        object,
        page: page.number().unwrap_or(none),
        neighbours: (neighbours.0.unwrap_or(none), neighbours.1.unwrap_or(none)),
        kind: kind_of(&page),
        level: u8::try_from(level).unwrap_or(u8::MAX),
        // Pages of PostgreSQL do not say whose they are, so no chain can be followed.
        is_leaf: level == 0 && object != 0 && matches!(page.kind, PageKind::Table | PageKind::Index),
        is_log: page.kind == PageKind::Log,
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
