//! What a daemon runs with: flags over environment over file over defaults, and which of them each value came from.

use super::value::Value;
use super::{Config, keys};
use api::options::OptionsPatch;
use control::manager::stop_watch::STOP_LIMIT;
use records::places::{Places, SOCKET_VARIABLE, STATE_VARIABLE, Surroundings};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Environment variable for the log's filter, in the notation of the `tracing` crates: "info", "debug,runtime=trace".
pub const LOG_VARIABLE: &str = "HEARTH_LOG";

/// Most threads that do I/O.
pub const REACTORS_MAX: usize = 256;

/// How log lines look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogFormat {
    /// Journal if standard error is the journal, else text.
    Auto,
    /// Lines with time and level.
    Text,
    /// Lines with a priority in front, for systemd's journal.
    Journal,
    /// One JSON object a line.
    Json,
}

/// What a daemon runs with.
#[derive(Clone, Debug)]
pub struct ServeSettings {
    /// State directory and socket.
    pub places: Places,
    /// Group that owns the socket; none: as it comes.
    pub socket_group: Option<String>,
    /// Threads that do I/O; none: half of the processors.
    pub reactors: Option<usize>,
    /// Whether they run before ordinary threads when that helps, where the kernel lets them.
    pub real_time: bool,
    /// Whether they keep processors from deep sleep while clients do much I/O, where the kernel lets them.
    pub cpu_latency: bool,
    /// How long a stop may take.
    pub stop_limit: Duration,
    /// The TCP address of the API and the console; none: no TCP.
    pub listen: Option<SocketAddr>,
    /// Whether `hearth console` may have the daemon listen on a loopback address: unless `api.listen` is off by name.
    pub console_on_demand: bool,
    /// Whether that may be an address that other machines can reach.
    pub allow_remote: bool,
    /// Names, beside localhost, by which TCP may be asked.
    pub names: Vec<String>,
    /// Certificate chain for TCP, PEM; none: the daemon's own. Given together with `key`.
    pub certificate: Option<PathBuf>,
    /// Its private key, PEM.
    pub key: Option<PathBuf>,
    /// Group whose members may change things through the socket.
    pub operate_group: Option<String>,
    /// What is logged; parses as a filter.
    pub log_filter: String,
    /// How log lines look.
    pub log_format: LogFormat,
    /// Whether counters are kept over time.
    pub history_enabled: bool,
    /// Most that they take on disk, in bytes.
    pub history_bytes_max: u64,
    /// What is watched, and with how much memory.
    pub insight: insight::InsightOptions,
    /// What new volumes get where nothing else is asked for.
    pub volume_defaults: OptionsPatch,
}

/// Flags of the command line that a configuration file can also give.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// `--state`.
    pub state: Option<PathBuf>,
    /// `--socket`.
    pub socket: Option<PathBuf>,
    /// `--reactors`.
    pub reactors: Option<usize>,
    /// `--listen`.
    pub listen: Option<SocketAddr>,
    /// `--allow-remote`.
    pub allow_remote: bool,
}

/// One value as `hearth config show` tells it.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Effective {
    /// The key.
    pub key: &'static str,
    /// Its value, or what holds without one.
    pub value: String,
    /// Where it is from.
    pub from: String,
}

/// Lays everything over each other.
pub fn settle(flags: &Flags, config: &Config, around: &Surroundings, log_variable: Option<String>) -> ServeSettings {
    let text = |name: &str| config.get(name).map(Value::text);
    let flag = |name: &str, default: bool| config.get(name).map_or(default, |value| *value == Value::Flag(true));
    let number = |name: &str| config.get(name).map(Value::number);
    ServeSettings {
        places: places(flags.state.clone(), flags.socket.clone(), config, around),
        socket_group: text("socket_group"),
        reactors: flags.reactors.or(number("reactors").map(|n| n as usize)),
        real_time: flag("real_time", true),
        cpu_latency: flag("cpu_latency", true),
        stop_limit: number("stop_limit").map_or(STOP_LIMIT, Duration::from_millis),
        listen: flags.listen.or(match config.get("api.listen") {
            Some(Value::Address(address)) => *address,
            _ => None,
        }),
        console_on_demand: config.get("api.listen") != Some(&Value::Address(None)),
        allow_remote: flags.allow_remote || flag("api.allow_remote", false),
        names: match config.get("api.names") {
            Some(Value::Names(names)) => names.clone(),
            _ => Vec::new(),
        },
        certificate: text("api.certificate").map(PathBuf::from),
        key: text("api.key").map(PathBuf::from),
        operate_group: text("api.operate_group"),
        log_filter: log_variable.or(text("log.filter")).unwrap_or_else(|| "info".into()),
        log_format: match text("log.format").as_deref() {
            Some("text") => LogFormat::Text,
            Some("journal") => LogFormat::Journal,
            Some("json") => LogFormat::Json,
            _ => LogFormat::Auto,
        },
        history_enabled: flag("history.enabled", true),
        history_bytes_max: number("history.size_max").unwrap_or(256 << 20),
        insight: insight::InsightOptions {
            enabled: flag("insight.enabled", true),
            memory_bytes: number("insight.memory").unwrap_or(64 << 20),
            cpu_percent: number("insight.cpu").unwrap_or(2),
            names_hashed: text("insight.names").as_deref() == Some("hashed"),
        },
        volume_defaults: OptionsPatch {
            mode: text("defaults.mode"),
            write_cache_depth_ms: number("defaults.write_cache_depth"),
            ..OptionsPatch::default()
        },
    }
}

/// The two places a daemon is known by.
pub fn places(state: Option<PathBuf>, socket: Option<PathBuf>, config: &Config, around: &Surroundings) -> Places {
    let file = |name: &str| config.get(name).map(Value::path);
    let state = state.or(around.hearth_state.clone()).or_else(|| file("state_directory"));
    let socket = socket.or(around.hearth_socket.clone()).or_else(|| file("socket"));
    Places::choose(state, socket, around)
}

/// Every key with its value and where that is from.
pub fn effective(flags: &Flags, config: &Config, around: &Surroundings, log_variable: Option<&str>) -> Vec<Effective> {
    let settled = settle(flags, config, around, log_variable.map(String::from));
    let one = |key: &keys::Key| {
        let (by_flag, by_variable) = match key.name {
            "state_directory" => (flags.state.is_some().then_some("--state"), around.hearth_state.is_some().then_some(STATE_VARIABLE)),
            "socket" => (flags.socket.is_some().then_some("--socket"), around.hearth_socket.is_some().then_some(SOCKET_VARIABLE)),
            "log.filter" => (None, log_variable.map(|_| LOG_VARIABLE)),
            _ => (None, None),
        };
        let written = config.values.get(key.name);
        let from = match (by_flag, by_variable, written, &config.path) {
            (Some(flag), ..) => flag.to_string(),
            (None, Some(variable), ..) => variable.to_string(),
            (None, None, Some(written), Some(path)) => format!("{}, line {}", path.display(), written.line),
            _ => "default".into(),
        };
        let value = match key.name {
            "state_directory" => settled.places.state_directory.display().to_string(),
            "socket" => settled.places.socket.display().to_string(),
            "log.filter" => settled.log_filter.clone(),
            _ => written.map_or(key.default.into(), |written| written.value.shown()),
        };
        Effective { key: key.name, value, from }
    };
    keys::KEYS.iter().map(one).collect()
}

/// The number of a group: itself, or by `/etc/group`.
pub fn group_number(group: &str) -> Option<u32> {
    group.parse().ok().or_else(|| number_in(&std::fs::read_to_string("/etc/group").ok()?, group))
}

fn number_in(table: &str, group: &str) -> Option<u32> {
    table.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| fields.first() == Some(&group))?.get(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        let (values, problems) = super::super::read::parse(text);
        assert_eq!(problems, []);
        Config { path: Some("/c.toml".into()), values }
    }

    fn from<'a>(shown: &'a [Effective], key: &str) -> (&'a str, &'a str) {
        let found = shown.iter().find(|e| e.key == key).expect("every key is shown");
        (&found.value, &found.from)
    }

    #[test]
    fn flags_win_over_environment_over_file_over_defaults() {
        let file = config("state_directory = \"/file\"\nsocket = \"/file.sock\"\nreactors = 3\n[log]\nfilter = \"warn\"\n");
        let root = Surroundings { root: true, ..Default::default() };
        let env = Surroundings { hearth_state: Some("/env".into()), hearth_socket: Some("/env.sock".into()), ..root.clone() };
        let flags = Flags { state: Some("/flag".into()), socket: None, reactors: Some(5), ..Flags::default() };

        let defaults = settle(&Flags::default(), &Config::default(), &root, None);
        assert_eq!(defaults.places.socket, PathBuf::from("/run/hearth/hearth.sock"));
        assert_eq!((defaults.reactors, defaults.log_filter.as_str(), defaults.history_bytes_max), (None, "info", 256 << 20));
        assert!(defaults.history_enabled && !defaults.allow_remote && defaults.listen.is_none() && defaults.console_on_demand);

        let by_file = settle(&Flags::default(), &file, &root, None);
        assert_eq!((by_file.places.state_directory, by_file.reactors, by_file.log_filter), ("/file".into(), Some(3), "warn".into()));
        let by_all = settle(&flags, &file, &env, Some("trace".into()));
        assert_eq!((by_all.places.state_directory, by_all.places.socket), ("/flag".into(), "/env.sock".into()));
        assert_eq!((by_all.reactors, by_all.log_filter), (Some(5), "trace".into()));

        let shown = effective(&flags, &file, &env, Some("trace"));
        assert_eq!(from(&shown, "state_directory"), ("/flag", "--state"));
        assert_eq!(from(&shown, "socket"), ("/env.sock", "HEARTH_SOCKET"));
        assert_eq!(from(&shown, "log.filter"), ("trace", "HEARTH_LOG"));
        assert_eq!(from(&shown, "reactors"), ("3", "/c.toml, line 3"));
        assert_eq!(from(&shown, "api.listen"), ("127.0.0.1:7420, once `hearth console` is run", "default"));
    }

    #[test]
    fn every_key_reaches_the_settings() {
        // A value other than the default for each key must change what a daemon runs with: a key that nothing reads has no business here.
        let other = [
            ("state_directory", "\"/x\""),
            ("socket", "\"/x\""),
            ("socket_group", "\"x\""),
            ("reactors", "7"),
            ("real_time", "false"),
            ("cpu_latency", "false"),
            ("stop_limit", "\"30s\""),
            ("api.listen", "\"127.0.0.1:1\""),
            ("api.allow_remote", "true"),
            ("api.names", "[\"cache1.example.org\"]"),
            ("api.certificate", "\"/x\"\napi.key = \"/y\""),
            ("api.key", "\"/x\"\napi.certificate = \"/y\""),
            ("api.operate_group", "\"x\""),
            ("log.filter", "\"trace\""),
            ("log.format", "\"json\""),
            ("history.enabled", "false"),
            ("history.size_max", "\"1GiB\""),
            ("insight.enabled", "false"),
            ("insight.memory", "\"1GiB\""),
            ("insight.cpu", "5"),
            ("insight.names", "\"hashed\""),
            ("defaults.mode", "\"write-back\""),
            ("defaults.write_cache_depth", "\"1h\""),
        ];
        let root = Surroundings { root: true, ..Default::default() };
        let plain = format!("{:?}", settle(&Flags::default(), &Config::default(), &root, None));
        for key in keys::KEYS {
            let (_, value) = other.iter().find(|(name, _)| *name == key.name).unwrap_or_else(|| panic!("{} is not tried", key.name));
            let changed = settle(&Flags::default(), &config(&format!("{} = {value}", key.name)), &root, None);
            assert_ne!(format!("{changed:?}"), plain, "{}", key.name);
        }
    }

    #[test]
    fn groups_have_numbers() {
        assert_eq!(number_in("root:x:0:\nhearth:x:104:ana\n", "hearth"), Some(104));
        assert_eq!(number_in("root:x:0:\n", "hearth"), None);
        assert_eq!((group_number("7"), group_number("root")), (Some(7), Some(0)));
        assert_eq!(group_number("no such group"), None);
    }
}
