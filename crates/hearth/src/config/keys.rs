//! Every key of the configuration file, in one table: what is checked, what the default file says, what `docs/configuration.md` and `hearth.toml(5)`
//! say all come from here.

use control::manager::stop_watch::{STOP_LIMIT_MAX_MS, STOP_LIMIT_MIN_MS};

/// What a value must look like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// An absolute path.
    Path,
    /// The name of a group of this machine, or its number.
    Group,
    /// A whole number in these bounds.
    Count {
        /// Smallest.
        least: u64,
        /// Largest.
        most: u64,
    },
    /// `true` or `false`.
    Flag,
    /// One of these words.
    Word(&'static [&'static str]),
    /// `IP:PORT`, or "off".
    Address,
    /// A list of host names.
    Names,
    /// A filter of the log, in the notation of the `tracing` crates.
    Filter,
    /// A size with a unit, in these bounds.
    Size {
        /// Smallest, in bytes.
        least: u64,
        /// Largest, in bytes.
        most: u64,
    },
    /// A time with a unit, in these bounds.
    Time {
        /// Shortest, in milliseconds; 0: anything above that.
        least_ms: u64,
        /// Longest, in milliseconds.
        most_ms: u64,
    },
}

/// One key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    /// Its name with its section: `api.listen`.
    pub name: &'static str,
    /// What its value must look like.
    pub form: Form,
    /// What holds without it, for people.
    pub default: &'static str,
    /// A value as it would be written: the default if it can be written, else an example.
    pub example: &'static str,
    /// What it does: one or two sentences.
    pub about: &'static str,
}

impl Key {
    /// The section's name (empty for the keys that stand before any section), and the name within it.
    pub fn parts(&self) -> (&'static str, &'static str) {
        self.name.split_once('.').unwrap_or(("", self.name))
    }

    /// Unit and range, for people.
    pub fn range(&self) -> String {
        match self.form {
            Form::Path => "an absolute path".into(),
            Form::Group => "a group's name or number".into(),
            Form::Count { least, most } => format!("{least} to {most}"),
            Form::Flag => "true or false".into(),
            Form::Word(words) => words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", "),
            Form::Address => "\"IP:PORT\", or \"off\"".into(),
            Form::Names => "a list of host names, without a port, 16 at most".into(),
            Form::Filter => "a filter such as \"info\" or \"info,control=debug\"".into(),
            Form::Size { least, most } => format!("bytes, {} to {}", unit(least), unit(most)),
            Form::Time { least_ms: 0, most_ms } => format!("a time above 0, up to {}", time(most_ms)),
            Form::Time { least_ms, most_ms } => format!("a time, {} to {}", time(least_ms), time(most_ms)),
        }
    }
}

/// A time in its largest whole unit.
pub fn time(ms: u64) -> String {
    let units = [("h", 3_600_000), ("min", 60_000), ("s", 1_000)];
    let whole = units.iter().find(|(_, unit_ms)| ms > 0 && ms.is_multiple_of(*unit_ms));
    whole.map_or_else(|| format!("{ms} ms"), |(unit, unit_ms)| format!("{} {unit}", ms / unit_ms))
}

fn unit(bytes: u64) -> String {
    control::human::bytes(bytes)
}

/// What a section is about, for the default file and the manual, in the order in which they stand there.
pub const SECTIONS: &[(&str, &str)] = &[
    ("", "Where the daemon lives and what it uses."),
    ("api", "Who may talk to the daemon. The Unix socket is always there; TCP only if it is asked for, and then with TLS and tokens."),
    ("log", "What the daemon says, on standard error."),
    ("history", "What was: counters over time, kept in the state directory."),
    ("defaults", "What `hearth volume add` takes where it is not told otherwise. Volumes that are there keep what they have."),
];

/// All keys.
pub const KEYS: &[Key] = &[
    Key {
        name: "state_directory",
        form: Form::Path,
        default: "/var/lib/hearth for root, $XDG_STATE_HOME/hearth for others",
        example: "\"/var/lib/hearth\"",
        about: "Where the daemon remembers its pools and volumes. One daemon for each. The systemd unit lets the daemon write to /var/lib/hearth only.",
    },
    Key {
        name: "socket",
        form: Form::Path,
        default: "/run/hearth/hearth.sock for root, $XDG_RUNTIME_DIR/hearth.sock for others",
        example: "\"/run/hearth/hearth.sock\"",
        about: "The Unix socket of the API. Sockets and mounts of exports lie beside it.",
    },
    Key {
        name: "socket_group",
        form: Form::Group,
        default: "the group that the daemon runs as",
        example: "\"hearth\"",
        about: "Members of this group may connect to the socket (its mode is 0660).",
    },
    Key {
        name: "reactors",
        form: Form::Count { least: 1, most: 256 },
        default: "half of the processors",
        example: "2",
        about: "Threads that do I/O.",
    },
    Key {
        name: "real_time",
        form: Form::Flag,
        default: "true",
        example: "true",
        about: "Whether the threads that do I/O may run before ordinary threads, as a driver in the kernel does, when they have little to do or wait long for a processor: so hits stay fast while all processors are busy. Their I/O goes before nobody's. Only where there are fewer of them than processors, and the kernel allows it.",
    },
    Key {
        name: "cpu_latency",
        form: Form::Flag,
        default: "true",
        example: "true",
        about: "Whether processors are kept from deep sleep while clients send a thousand requests a second and more: so a hit does not wait for one to wake up. Costs power; in virtual machines whose processors can only halt, up to 8 of them stay awake instead. Needs the right to write to /dev/cpu_dma_latency.",
    },
    Key {
        name: "stop_limit",
        form: Form::Time { least_ms: STOP_LIMIT_MIN_MS, most_ms: STOP_LIMIT_MAX_MS },
        default: "2min",
        example: "\"2min\"",
        about: "How long a stop may take. A device that has answered nothing for a quarter of it is given up: its requests fail, its dirty data stays on the SSD, everything else stops cleanly.",
    },
    Key {
        name: "api.listen",
        form: Form::Address,
        default: "off",
        example: "\"off\"",
        about: "The TCP address of the API and the console, for instance \"127.0.0.1:7420\". Always with TLS; who connects needs a token.",
    },
    Key {
        name: "api.allow_remote",
        form: Form::Flag,
        default: "false",
        example: "false",
        about: "Whether api.listen may be an address that other machines can reach.",
    },
    Key {
        name: "api.names",
        form: Form::Names,
        default: "[]",
        example: "[]",
        about: "Names, beside localhost, by which browsers and scripts may ask api.listen, for instance [\"cache1.example.org\"]; the certificate that the daemon makes \
                is good for them. Requests to other names are refused, so that no page of another site reaches the daemon.",
    },
    Key {
        name: "api.certificate",
        form: Form::Path,
        default: "one that the daemon makes and signs itself, in the state directory",
        example: "\"/etc/hearth/certificate.pem\"",
        about: "The certificate chain for api.listen, in PEM. Goes together with api.key.",
    },
    Key {
        name: "api.key",
        form: Form::Path,
        default: "one that the daemon makes itself, in the state directory",
        example: "\"/etc/hearth/key.pem\"",
        about: "The private key of api.certificate, in PEM.",
    },
    Key {
        name: "api.operate_group",
        form: Form::Group,
        default: "nobody but root and the user that the daemon runs as",
        example: "\"hearth\"",
        about: "Members of this group may change things through the socket; others who can connect may look.",
    },
    Key {
        name: "log.filter",
        form: Form::Filter,
        default: "info",
        example: "\"info\"",
        about: "What is logged: error, warn, info, debug or trace, for all or by part. HEARTH_LOG wins over it.",
    },
    Key {
        name: "log.format",
        form: Form::Word(&["auto", "text", "journal", "json"]),
        default: "auto",
        example: "\"auto\"",
        about: "text: lines with time and level. journal: lines with a priority for systemd's journal, which notes the time itself. json: one object a line. \
                auto: journal if standard error is the journal, else text.",
    },
    Key { name: "history.enabled", form: Form::Flag, default: "true", example: "true", about: "Whether counters are kept over time." },
    Key {
        name: "history.size_max",
        form: Form::Size { least: 16 << 20, most: 1 << 40 },
        default: "256MiB",
        example: "\"256MiB\"",
        about: "Most that the history takes on disk; the oldest goes first.",
    },
    Key {
        name: "defaults.mode",
        form: Form::Word(&["write-through", "write-around", "write-back", "pass-through"]),
        default: "write-through",
        example: "\"write-through\"",
        about: "The mode of new volumes.",
    },
    Key {
        name: "defaults.write_cache_depth",
        form: Form::Time { least_ms: 0, most_ms: control::options::WRITE_CACHE_DEPTH_MS_MAX },
        default: "30s",
        example: "\"30s\"",
        about: "Oldest a dirty block of a new volume gets before it is destaged.",
    },
];

/// The key of that name.
pub fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// The known key that a person most likely meant by `name`.
pub fn nearest(name: &str) -> Option<&'static str> {
    let own_part = name.rsplit('.').next().unwrap_or(name);
    // A key that was put into the wrong section is meant by its own name.
    let distance = |key: &Key| if key.parts().1 == own_part { 1 } else { edits(name, key.name) };
    let best = KEYS.iter().map(|key| (distance(key), key.name)).min()?;
    (best.0 <= 2.max(name.len() / 3)).then_some(best.1)
}

/// Letters to put in, take out or exchange to make one word of the other (Levenshtein).
fn edits(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_in_a_known_section() {
        for (place, key) in KEYS.iter().enumerate() {
            assert!(KEYS[..place].iter().all(|other| other.name != key.name), "{}", key.name);
            assert!(SECTIONS.iter().any(|(section, _)| *section == key.parts().0), "{}", key.name);
        }
    }

    #[test]
    fn the_nearest_key_is_found_or_none() {
        for (wrong, right) in [
            ("socet", Some("socket")),
            ("api.lisen", Some("api.listen")),
            ("listen", Some("api.listen")),
            ("log.listen", Some("api.listen")),
            ("log.frmat", Some("log.format")),
            ("defaults.write-cache-depth", Some("defaults.write_cache_depth")),
            ("colour", None),
        ] {
            assert_eq!(nearest(wrong), right, "{wrong}");
        }
        assert_eq!((edits("", "abc"), edits("kitten", "sitting"), edits("a", "a")), (3, 3, 0));
    }
}
