//! A crate may depend on lower floors only; neighbours are strangers.

use std::path::Path;

/// The floors, lowest first. `tests` may look down at everything.
const FLOORS: &[(&str, u32)] = &[
    ("types", 0),
    ("mistakes", 0),
    ("shares", 0),
    ("keeper", 0),
    ("guest", 0),
    ("targets", 0),
    ("pki", 0),
    ("mapper", 0),
    ("slots", 0),
    ("retention", 0),
    ("page", 1),
    ("format", 1),
    ("content", 1),
    ("console", 1),
    ("index", 2),
    ("oldlog", 2),
    ("engine", 3),
    ("device", 2),
    ("pool", 4),
    ("simulator", 5),
    ("direct", 3),
    ("node", 3),
    ("runtime", 5),
    ("blocktap", 3),
    ("export", 6),
    ("nbd", 7),
    ("fuse", 7),
    ("vhost-user", 7),
    ("ublk", 7),
    ("applications", 5),
    ("traces", 6),
    ("history", 6),
    ("analysis", 6),
    ("catalogue", 6),
    ("api", 7),
    ("records", 8),
    ("terminal", 8),
    ("datapath", 9),
    ("insight", 10),
    ("machine", 10),
    ("control", 11),
    ("rest", 12),
    ("evaluate", 13),
    ("hearth", 13),
    ("bench", 14),
    ("trials", 14),
    ("tidy", 15),
];

/// Complaints about crates that look up or sideways, or have no floor.
pub fn check(root: &Path) -> Vec<String> {
    let mut complaints = Vec::new();
    let Ok(entries) = std::fs::read_dir(root.join("crates")) else { return vec!["crates/ cannot be read".into()] };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(floor) = floor_of(&name) else {
            complaints.push(format!("crates/{name} has no floor: give it one in crates/tidy/src/floors.rs"));
            continue;
        };
        let Ok(manifest) = std::fs::read_to_string(entry.path().join("Cargo.toml")) else {
            complaints.push(format!("crates/{name} has no Cargo.toml"));
            continue;
        };
        for dependency in dependencies(&manifest) {
            if floor_of(&dependency).is_some_and(|other| other >= floor) {
                complaints.push(format!("crates/{name} (floor {floor}) depends on {dependency}, which is not below it"));
            }
        }
    }
    complaints
}

fn floor_of(name: &str) -> Option<u32> {
    FLOORS.iter().find(|(other, _)| *other == name).map(|(_, floor)| *floor)
}

/// Names in `[dependencies]`; test-only dependencies may cross floors.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut within = false;
    let mut names = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            within = line.trim() == "[dependencies]";
        } else if within {
            let name: String = line.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-' || *c == '_').collect();
            if !name.is_empty() {
                names.push(name);
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_real_dependencies_count() {
        let manifest =
            "[package]\nname = \"x\"\n[dependencies]\nengine.workspace = true\nserde = \"1\"\n[dev-dependencies]\nhearth = \"1\"\n";
        assert_eq!(dependencies(manifest), ["engine", "serde"]);
    }
}
