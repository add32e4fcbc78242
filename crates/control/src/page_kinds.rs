//! The kinds of pages as numbers, in which the tap reports them: the engine in the high byte, its kind of page in the low one.

use applications::{Engine, Page};

/// A page without a single bit; no engine's.
pub const BLANK_PAGE: u16 = 1;

fn number(engine: Engine) -> u16 {
    match engine {
        Engine::Innodb => 1,
        Engine::Postgres => 2,
        Engine::Mssql => 3,
        Engine::Oracle => 4,
        Engine::Sqlite => 5,
        Engine::WiredTiger => 6,
    }
}

/// The kind of a page.
pub fn kind_of(page: &Page) -> u16 {
    number(page.engine()) << 8 | page.kind as u16
}

/// The engine of a kind of page.
pub fn engine_of(kind: u16) -> Option<Engine> {
    Engine::ALL.into_iter().find(|engine| number(*engine) == kind >> 8)
}
