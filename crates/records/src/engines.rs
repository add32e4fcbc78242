//! How engines of databases are written: as numbers in samples of the tap, and as words in records of connections.

use applications::{Engine, Page};

/// A page without a single bit; no engine's.
pub const BLANK_PAGE: u16 = 1;

/// The kind of a page in a sample: its engine in the high byte, what it is for in the low one.
pub fn kind_of(page: &Page) -> u16 {
    u16::from(page.engine.number()) << 8 | page.kind as u16
}

/// The engine of a kind of page.
pub fn engine_of(kind: u16) -> Option<Engine> {
    Engine::from_number((kind >> 8) as u8)
}

/// An engine by the word for its server: "mysql", "postgres".
pub mod server_word {
    use applications::Engine;
    use serde::de::Error as _;
    use serde::ser::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes it.
    pub fn serialize<S: Serializer>(engine: &Engine, serializer: S) -> Result<S::Ok, S::Error> {
        let word = engine.facts().server.ok_or_else(|| S::Error::custom(format!("{} has no server to log in to", engine.title())));
        serializer.serialize_str(word?)
    }

    /// Reads it.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Engine, D::Error> {
        let word = String::deserialize(deserializer)?;
        Engine::from_server(&word).ok_or_else(|| D::Error::custom(format!("\"{word}\" is no server that is known")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::ConnectionRecord;

    #[test]
    fn kinds_of_pages_have_the_numbers_of_before() {
        for (engine, number) in [(Engine::Innodb, 1), (Engine::Postgres, 2), (Engine::Mssql, 3), (Engine::Oracle, 4), (Engine::Sqlite, 5)] {
            assert_eq!(engine_of(number << 8 | 7), Some(engine));
        }
        assert_eq!((engine_of(6 << 8), engine_of(BLANK_PAGE), engine_of(7 << 8)), (Some(Engine::WiredTiger), None, None));
    }

    #[test]
    fn servers_of_connections_have_the_words_of_before() {
        let record = |server| ConnectionRecord { application: 9, server, instance: "a".into(), start_bytes: 0, login: "/l".into() };
        for (engine, word) in [(Engine::Innodb, "mysql"), (Engine::Postgres, "postgres")] {
            let text = serde_json::to_value(record(engine)).expect("JSON");
            assert_eq!(text["server"], word);
            assert_eq!(serde_json::from_value::<ConnectionRecord>(text).expect("a record"), record(engine));
        }
        assert!(serde_json::to_value(record(Engine::Oracle)).is_err(), "nobody can log in to it");
        let mut text = serde_json::to_value(record(Engine::Innodb)).expect("JSON");
        text["server"] = "sqlite".into();
        assert!(serde_json::from_value::<ConnectionRecord>(text).is_err());
    }
}
