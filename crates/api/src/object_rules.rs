//! What is asked of the treatment of objects, as it is remembered.

use crate::words;
use applications::discovery::Object;
use serde::{Deserialize, Serialize};
use types::{Admit, ObjectWrites, OnScan, Treatment};

/// Rules of one volume at most.
pub const RULES_MAX: usize = 4096;

/// What is asked of objects of a volume. It is remembered by name, so that it holds for a table that was rebuilt.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The data directory of the application that it is of; `None`: of whichever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Which objects.
    pub of: RuleOf,
    /// Whether their blocks enter the cache.
    #[serde(with = "words::admit")]
    pub admit: Admit,
    /// What becomes of writes.
    #[serde(with = "words::object_writes")]
    pub writes: ObjectWrites,
    /// What scans and backups may do.
    #[serde(with = "words::on_scan")]
    pub on_scan: OnScan,
}

/// Which objects a rule is for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleOf {
    /// All of the application.
    All,
    /// All of a kind.
    Kind(String),
    /// The one of that name.
    Object(String),
}

impl Rule {
    /// As a byte.
    pub fn treatment(&self) -> Treatment {
        Treatment::new(self.admit, self.writes, self.on_scan)
    }

    /// Whether it is for the same objects as another.
    pub fn is_for_what(&self, other: &Rule) -> bool {
        self.instance == other.instance && self.of == other.of
    }

    /// Whether it is for an object of the application with that data directory.
    pub fn is_for(&self, object: &Object, instance: Option<&str>) -> bool {
        let of_instance = self.instance.is_none() || self.instance.as_deref() == instance;
        of_instance
            && match &self.of {
                RuleOf::All => true,
                RuleOf::Kind(kind) => kind == object.kind.name(),
                RuleOf::Object(name) => *name == object.name,
            }
    }

    /// The narrower a rule, the larger: of two that are for an object the narrower decides.
    pub fn weight(&self) -> u8 {
        let named = match self.of {
            RuleOf::All => 0,
            RuleOf::Kind(_) => 2,
            RuleOf::Object(_) => 4,
        };
        named + u8::from(self.instance.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_read_as_it_was_written() {
        let rule = Rule {
            instance: Some("d".into()),
            of: RuleOf::Kind("wal".into()),
            admit: Admit::Pinned,
            writes: ObjectWrites::Inherit,
            on_scan: OnScan::HitOnly,
        };
        let text = serde_json::to_string(&rule).expect("plain data");
        assert_eq!(text, r#"{"instance":"d","of":{"kind":"wal"},"admit":"pinned","writes":"inherit","on_scan":"hit-only"}"#);
        assert_eq!(serde_json::from_str::<Rule>(&text).expect("as written"), rule);
    }
}
