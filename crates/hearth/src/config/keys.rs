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
    api::human::bytes(bytes)
}

/// What a section is about, for the default file and the manual, in the order in which they stand there.
pub const SECTIONS: &[(&str, &str)] = &[
    ("", "Directories, sockets and threads of the daemon."),
    ("api", "Access to the daemon. The Unix socket is always open. TCP is off by default; it uses TLS and tokens."),
    ("log", "The log, on standard error."),
    ("history", "Counters over time, kept in the state directory."),
    ("insight", "What loads need: `hearth analysis` and `hearth advise`."),
    ("defaults", "Defaults of `hearth volume add`. Existing volumes do not change."),
];

/// All keys.
pub const KEYS: &[Key] = &[
    Key {
        name: "state_directory",
        form: Form::Path,
        default: "/var/lib/hearth for root, $XDG_STATE_HOME/hearth for others",
        example: "\"/var/lib/hearth\"",
        about: "The directory for the state of pools and volumes. Each daemon needs its own. The systemd unit allows writes to /var/lib/hearth only.",
    },
    Key {
        name: "socket",
        form: Form::Path,
        default: "/run/hearth/hearth.sock for root, $XDG_RUNTIME_DIR/hearth.sock for others",
        example: "\"/run/hearth/hearth.sock\"",
        about: "The Unix socket of the API. Sockets and mounts of exports are created beside it.",
    },
    Key {
        name: "socket_group",
        form: Form::Group,
        default: "the group of the daemon",
        example: "\"hearth\"",
        about: "Members of this group may connect to the socket (its mode is 0660).",
    },
    Key {
        name: "reactors",
        form: Form::Count { least: 1, most: super::settings::REACTORS_MAX as u64 },
        default: "half of the processors",
        example: "2",
        about: "Threads that do I/O.",
    },
    Key {
        name: "real_time",
        form: Form::Flag,
        default: "true",
        example: "true",
        about: "Keeps cache hits fast while all processors are busy: the I/O threads run before ordinary threads (SCHED_RR) when they have little to do or wait long for a processor. Their disk I/O stays at normal priority. Needs fewer I/O threads than processors, and permission from the kernel.",
    },
    Key {
        name: "cpu_latency",
        form: Form::Flag,
        default: "true",
        example: "true",
        about: "Keeps processors out of deep sleep while clients send a thousand requests a second or more, so that a hit does not wait for a wake-up. Costs power. In virtual machines whose processors can only halt, up to 8 of them stay awake. Needs write access to /dev/cpu_dma_latency.",
    },
    Key {
        name: "stop_limit",
        form: Form::Time { least_ms: STOP_LIMIT_MIN_MS, most_ms: STOP_LIMIT_MAX_MS },
        default: "2min",
        example: "\"2min\"",
        about: "How long a stop may take. hearth gives up on a device that has not answered for a quarter of it: requests to it fail, dirty data stays on the SSD, everything else stops cleanly.",
    },
    Key {
        name: "api.listen",
        form: Form::Address,
        default: "127.0.0.1:7420, once `hearth console` is run",
        example: "\"127.0.0.1:7420\"",
        about: "The TCP address of the API and the console. Always with TLS; clients need a token. Without this key the daemon listens on a loopback address from the first `hearth console` on; with \"off\" never.",
    },
    Key {
        name: "api.allow_remote",
        form: Form::Flag,
        default: "false",
        example: "false",
        about: "Allows an api.listen address that other machines can reach.",
    },
    Key {
        name: "api.names",
        form: Form::Names,
        default: "[]",
        example: "[]",
        about: "Host names, besides localhost, that clients may use for api.listen, for instance [\"cache1.example.org\"]. The daemon's own certificate covers them. \
                Requests to other names are refused: this keeps pages of other sites out.",
    },
    Key {
        name: "api.certificate",
        form: Form::Path,
        default: "a self-signed one in the state directory",
        example: "\"/etc/hearth/certificate.pem\"",
        about: "The certificate chain for api.listen, in PEM. Requires api.key.",
    },
    Key {
        name: "api.key",
        form: Form::Path,
        default: "one in the state directory",
        example: "\"/etc/hearth/key.pem\"",
        about: "The private key of api.certificate, in PEM.",
    },
    Key {
        name: "api.operate_group",
        form: Form::Group,
        default: "only root and the user of the daemon",
        example: "\"hearth\"",
        about: "Members of this group may change things through the socket; other users who can connect may only read.",
    },
    Key {
        name: "log.filter",
        form: Form::Filter,
        default: "info",
        example: "\"info\"",
        about: "What is logged: error, warn, info, debug or trace, for all parts or by part. HEARTH_LOG takes precedence.",
    },
    Key {
        name: "log.format",
        form: Form::Word(&["auto", "text", "journal", "json"]),
        default: "auto",
        example: "\"auto\"",
        about: "text: lines with time and level. journal: lines with a priority for systemd's journal, which adds the time. json: one object a line. \
                auto: journal if standard error is the journal, else text.",
    },
    Key { name: "history.enabled", form: Form::Flag, default: "true", example: "true", about: "Records counters over time." },
    Key {
        name: "history.size_max",
        form: Form::Size { least: 16 << 20, most: 1 << 40 },
        default: "256MiB",
        example: "\"256MiB\"",
        about: "Maximum size of the history on disk; the oldest part is deleted first.",
    },
    Key {
        name: "insight.enabled",
        form: Form::Flag,
        default: "true",
        example: "true",
        about: "Watch what clients use of each volume, for `hearth advise`. What was learned is kept over a restart, as numbers of blocks and counts. No content is looked at but the heads of database pages.",
    },
    Key {
        name: "insight.memory",
        form: Form::Size { least: 4 << 20, most: 16 << 30 },
        default: "64MiB",
        example: "\"64MiB\"",
        about: "Most memory that all watches and analyses take together. With less, samples are smaller and bands wider.",
    },
    Key {
        name: "insight.cpu",
        form: Form::Count { least: 1, most: 100 },
        default: "2",
        example: "2",
        about: "Percent of one processor core that watching may take. When clients do more than that allows to look at, requests are left out, and counted.",
    },
    Key {
        name: "insight.names",
        form: Form::Word(&["shown", "hashed"]),
        default: "shown",
        example: "\"hashed\"",
        about: "hashed: names of databases, tables and indexes are shown as hashes, everywhere, with a key of this machine. Rules for objects go by the names that were shown when they were set.",
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
        form: Form::Time { least_ms: 0, most_ms: api::options::WRITE_CACHE_DEPTH_MS_MAX },
        default: "30s",
        example: "\"30s\"",
        about: "Maximum age of a dirty block of a new volume before it is destaged.",
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
