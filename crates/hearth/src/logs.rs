//! The log on standard error: for people, for systemd's journal, or for programs. No thread waits for its reader ([`crate::outlet`]).

use crate::config::settings::LogFormat;
use crate::failure::Failure;
use crate::outlet::{Outlet, To};
use serde_json::{Map, Value};
use std::fmt::{self, Write as _};
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, fmt};
use tracing_subscriber::registry::LookupSpan;

/// How long the end of the process waits for a reader that takes nothing.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// The daemon's way out; other commands write as they are.
static OUTLET: OnceLock<Outlet> = OnceLock::new();

/// From now on everything that is logged goes to standard error, past whoever logs it; so does what a thread says that panics. A filter that is
/// none counts as "info".
///
/// # Errors
/// If no thread can be started.
pub fn start(filter: &str, format: LogFormat) -> Result<(), Failure> {
    let started = Outlet::start(|lines| {
        let lines = types::counted(lines, "line");
        tracing::warn!("{lines} of this log were dropped: they were not read in time");
    })?;
    let outlet = OUTLET.get_or_init(|| started).clone();
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        tracing::error!("a fault in hearth: thread '{}' {panic}", thread.name().unwrap_or("without a name"));
        // The process may end by it.
        finish();
    }));
    let parsed = filter_of(filter);
    let good = parsed.is_ok();
    let filter_or_info = parsed.unwrap_or_else(|_| EnvFilter::new("info"));
    let journal = std::env::var("JOURNAL_STREAM").is_ok_and(|stream| is_standard_error(&stream));
    let log = fmt().with_env_filter(filter_or_info).with_writer(move || outlet.clone()).with_ansi(false);
    match format {
        LogFormat::Json => log.event_format(Json).init(),
        LogFormat::Journal => log.event_format(Journal).init(),
        LogFormat::Auto if journal => log.event_format(Journal).init(),
        LogFormat::Auto | LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).with_target(false).init(),
    }
    if !good {
        tracing::warn!("{filter:?} is not a filter for the log: \"info\" is used; write for instance \"info,control=debug\"");
    }
    Ok(())
}

/// What a filter may name: our own crates.
const CRATES: [&str; 29] = [
    "analysis",
    "applications",
    "blocktap",
    "catalogue",
    "content",
    "control",
    "device",
    "engine",
    "export",
    "format",
    "fuse",
    "guest",
    "hearth",
    "history",
    "insight",
    "keeper",
    "machine",
    "mapper",
    "nbd",
    "node",
    "page",
    "pki",
    "pool",
    "records",
    "rest",
    "runtime",
    "targets",
    "ublk",
    "vhost_user",
];

/// A filter. A word alone that is neither a level nor one of our crates would let through nothing at all.
///
/// # Errors
/// What is wrong with it.
pub fn filter_of(text: &str) -> Result<EnvFilter, String> {
    let parsed = EnvFilter::try_new(text).map_err(|error| error.to_string())?;
    let mut words = text.split(',').map(str::trim).filter(|word| !word.is_empty()).peekable();
    if words.peek().is_none() {
        return Err("it names no level".into());
    }
    let is_known = |word: &&str| {
        let of_crate = word.split_once("::").map_or(*word, |(of, _)| of);
        word.contains(['=', '[', ']', '{', '}', '"']) || word.parse::<LevelFilter>().is_ok() || CRATES.contains(&of_crate)
    };
    match words.find(|word| !is_known(word)) {
        Some(word) => Err(format!("{word:?} is no level, and no part of hearth")),
        None => Ok(parsed),
    }
}

/// A line on standard error. That nobody reads it is no failure.
pub fn say(line: impl fmt::Display) {
    put(To::Error, &format!("{line}\n"));
}

/// Text on standard output, of a daemon that goes on if nobody reads it.
pub fn announce(text: &str) {
    put(To::Output, text);
}

fn put(to: To, text: &str) {
    use std::io::Write as _;
    match (OUTLET.get(), to) {
        (Some(outlet), _) => outlet.put(to, text.as_bytes()),
        // Whom nobody reads has nobody to tell.
        (None, To::Error) => drop(std::io::stderr().write_all(text.as_bytes())),
        (None, To::Output) => drop(std::io::stdout().write_all(text.as_bytes())),
    }
}

/// Waits until all that was logged is written, as long as somebody takes it.
pub fn finish() {
    if let Some(outlet) = OUTLET.get() {
        outlet.flush(END_PATIENCE);
    }
}

/// Whether `stream` ("DEVICE:INODE", as systemd says it) is where standard error goes.
fn is_standard_error(stream: &str) -> bool {
    let named = stream.split_once(':').and_then(|(device, inode)| Some((device.parse::<u64>().ok()?, inode.parse::<u64>().ok()?)));
    let own = rustix::fs::fstat(std::io::stderr().as_fd()).ok().map(|facts| (facts.st_dev, facts.st_ino));
    named.is_some() && named == own
}

/// Lines for the journal: the priority in front as sd-daemon(3) has it, no time, no colours, and never a line break within.
struct Journal;

impl<S: Subscriber + for<'a> LookupSpan<'a>, N: for<'a> FormatFields<'a> + 'static> FormatEvent<S, N> for Journal {
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut fields = String::new();
        context.field_format().format_fields(Writer::new(&mut fields), event)?;
        writeln!(to, "<{}>{}", priority(event.metadata().level()), one_line(&fields))
    }
}

/// Of syslog(3).
fn priority(level: &Level) -> u8 {
    match *level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

/// Control characters as escapes: a second line would be an entry of its own, with a priority of the writer's choice.
fn one_line(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect::<Vec<_>>() } else { vec![c] }).collect()
}

/// One object a line: `time`, `level`, `target`, `message`, and the event's own fields.
struct Json;

impl<S: Subscriber + for<'a> LookupSpan<'a>, N: for<'a> FormatFields<'a> + 'static> FormatEvent<S, N> for Json {
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let mut object = Object(Map::new());
        event.record(&mut object);
        let mut fields = object.0;
        // What the event calls its own must not hide what everybody looks for.
        fields.insert("time".into(), time.into());
        fields.insert("level".into(), event.metadata().level().as_str().to_lowercase().into());
        fields.insert("target".into(), event.metadata().target().into());
        writeln!(to, "{}", Value::Object(fields))
    }
}

struct Object(Map<String, Value>);

impl Object {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().into(), value.into());
    }
}

impl Visit for Object {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = String::new();
        if write!(text, "{value:?}").is_ok() {
            self.put(field, text);
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("nobody panics").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Kept {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().expect("nobody panics").clone()).expect("UTF-8")
        }
    }

    #[test]
    fn journal_lines_have_a_priority_and_stay_one_line() {
        let kept = Kept::default();
        let writer = kept.clone();
        let log = fmt().with_ansi(false).event_format(Journal).with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(log, || {
            tracing::error!(object = "db", "bad\n<0>news");
            tracing::warn!("w");
            tracing::info!(count = 3, "i");
        });
        let text = kept.text();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines, ["<3>bad\\n<0>news object=\"db\"", "<4>w", "<6>i count=3"]);
    }

    #[test]
    fn json_lines_are_objects() {
        let kept = Kept::default();
        let writer = kept.clone();
        let log = fmt().event_format(Json).with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(log, || tracing::warn!(object = "db", count = 3, right = true, "two\n\"lines\""));
        let text = kept.text();
        assert_eq!(text.lines().count(), 1);
        let line: Value = serde_json::from_str(&text).expect("it is JSON");
        assert_eq!((&line["level"], &line["message"]), (&"warn".into(), &"two\n\"lines\"".into()));
        assert_eq!((&line["object"], &line["count"], &line["right"]), (&"db".into(), &3.into(), &true.into()));
        assert!(line["time"].as_str().is_some_and(|time| time.ends_with('Z')) && line["target"].is_string(), "{line}");
    }

    #[test]
    fn a_filter_that_would_silence_all_is_none() {
        for good in ["info", "WARN", "off", "3", "info,control=debug", "control", "rest::server,warn", "debug,hyper=info", "info,"] {
            filter_of(good).expect(good);
        }
        for bad in ["bogus", "", ",,,", " , ", "info,kontrol", "x=y", "info,control=xx"] {
            filter_of(bad).expect_err(bad);
        }
    }

    #[test]
    fn all_of_our_crates_that_log_can_be_named() {
        let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
        fn logs(path: &std::path::Path) -> bool {
            if path.is_dir() {
                return std::fs::read_dir(path).expect("readable").flatten().any(|entry| logs(&entry.path()));
            }
            std::fs::read_to_string(path).is_ok_and(|text| text.contains("tracing::"))
        }
        for one in std::fs::read_dir(crates).expect("readable").flatten().filter(|one| logs(&one.path().join("src"))) {
            let name = one.file_name().to_string_lossy().replace('-', "_");
            assert!(CRATES.contains(&name.as_str()) || ["bench", "trials", "tidy", "simulator"].contains(&name.as_str()), "{name}");
        }
    }

    #[test]
    fn another_stream_is_not_ours() {
        let own = rustix::fs::fstat(std::io::stderr().as_fd()).expect("it is open");
        assert!(is_standard_error(&format!("{}:{}", own.st_dev, own.st_ino)));
        for other in ["", ":", "1", "x:y", "0:0"] {
            assert!(!is_standard_error(other), "{other}");
        }
    }
}
