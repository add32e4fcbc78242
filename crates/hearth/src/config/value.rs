//! One value of the configuration file, read and checked by its form.

use super::keys::Form;
use std::net::SocketAddr;
use std::path::PathBuf;
use toml::de::DeValue;

/// A checked value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// A path, a group, a word, a filter.
    Text(String),
    /// A count, a size in bytes, a time in milliseconds; and how it was written.
    Number(u64, String),
    /// True or false.
    Flag(bool),
    /// An address; none for "off".
    Address(Option<SocketAddr>),
    /// Host names, lower case.
    Names(Vec<String>),
}

impl Value {
    /// As it is shown to people.
    pub fn shown(&self) -> String {
        match self {
            Value::Text(text) | Value::Number(_, text) => text.clone(),
            Value::Flag(flag) => flag.to_string(),
            Value::Address(address) => address.map_or("off".into(), |a| a.to_string()),
            Value::Names(names) => names.join(", "),
        }
    }

    /// A text.
    pub fn text(&self) -> String {
        self.shown()
    }

    /// A path.
    pub fn path(&self) -> PathBuf {
        self.shown().into()
    }

    /// A number; 0 if it is none.
    pub fn number(&self) -> u64 {
        if let Value::Number(number, _) = self { *number } else { 0 }
    }
}

/// What is wrong with a value: a clause, and what to write instead.
pub type Wrong = (String, String);

/// Reads a value of the file.
///
/// # Errors
/// What is wrong with it.
pub fn read(form: Form, value: &DeValue<'_>) -> Result<Value, Wrong> {
    let quoted = |what: &str, example: &str| (format!("must be {what}, in quotes"), format!("write for instance \"{example}\""));
    match form {
        Form::Flag => match value.as_bool() {
            Some(flag) => Ok(Value::Flag(flag)),
            None => Err(("must be true or false".into(), "write it without quotes".into())),
        },
        Form::Count { least, most } => count(value, least, most),
        Form::Path => text(value).ok_or_else(|| quoted("a path", "/srv/hearth")).and_then(path),
        Form::Group => text(value).ok_or_else(|| quoted("a group's name", "hearth")).and_then(group),
        Form::Word(words) => word(value, words),
        Form::Address => text(value).ok_or_else(|| quoted("an address", "127.0.0.1:7420")).and_then(address),
        Form::Names => names(value),
        Form::Filter => text(value).ok_or_else(|| quoted("a filter", "info")).and_then(filter),
        Form::Size { least, most } => text(value).ok_or_else(|| quoted("a size with a unit", "256MiB")).and_then(|t| size(t, least, most)),
        Form::Time { least_ms, most_ms } => {
            text(value).ok_or_else(|| quoted("a time with a unit", "30s")).and_then(|t| time(t, least_ms, most_ms))
        }
    }
}

fn text<'a>(value: &'a DeValue<'_>) -> Option<&'a str> {
    value.as_str().filter(|text| !text.is_empty() && !text.chars().any(char::is_control))
}

fn count(value: &DeValue<'_>, least: u64, most: u64) -> Result<Value, Wrong> {
    let number = value.as_integer().and_then(|n| u64::from_str_radix(n.as_str(), n.radix()).ok());
    match number.filter(|n| (least..=most).contains(n)) {
        Some(number) => Ok(Value::Number(number, number.to_string())),
        None => Err((format!("must be a whole number from {least} to {most}"), format!("write for instance {least}, without quotes"))),
    }
}

fn path(text: &str) -> Result<Value, Wrong> {
    if text.starts_with('/') {
        return Ok(Value::Text(text.into()));
    }
    Err(("must be an absolute path".into(), format!("start at the root, for instance \"/srv/{}\"", text.trim_start_matches("./"))))
}

fn group(text: &str) -> Result<Value, Wrong> {
    if text.contains([':', '/', ' ']) {
        return Err(("is not a group's name".into(), "write for instance \"hearth\"; `getent group` lists them".into()));
    }
    Ok(Value::Text(text.into()))
}

fn word(value: &DeValue<'_>, words: &[&str]) -> Result<Value, Wrong> {
    match value.as_str().filter(|text| words.contains(text)) {
        Some(word) => Ok(Value::Text(word.into())),
        None => {
            let (last, others) = words.split_last().expect("there are some");
            let others: Vec<_> = others.iter().map(|word| format!("\"{word}\"")).collect();
            Err(("has an unknown value".into(), format!("use {} or \"{last}\"", others.join(", "))))
        }
    }
}

/// Reads an address as it stands in the file and after `--listen`.
///
/// # Errors
/// What is wrong with it.
pub fn address(text: &str) -> Result<Value, Wrong> {
    if text == "off" {
        return Ok(Value::Address(None));
    }
    let parsed: Result<SocketAddr, _> = text.parse();
    match parsed {
        Ok(address) => Ok(Value::Address(Some(address))),
        Err(_) => Err(("must be IP:PORT or off".into(), "write for instance \"127.0.0.1:7420\" or \"[::1]:7420\"".into())),
    }
}

fn names(value: &DeValue<'_>) -> Result<Value, Wrong> {
    const MOST: usize = 16;
    let remedy = || "write for instance [\"cache1.example.org\"]".to_string();
    let list = value.as_array().filter(|list| list.len() <= MOST);
    let list = list.ok_or_else(|| (format!("must be a list of at most {MOST} host names"), remedy()))?;
    let name = |item: &toml::Spanned<DeValue<'_>>| item.get_ref().as_str().filter(|name| is_host_name(name)).map(str::to_ascii_lowercase);
    match list.iter().map(name).collect() {
        Some(names) => Ok(Value::Names(names)),
        None => Err(("has an entry that is not a host name".into(), remedy())),
    }
}

/// Labels of letters, digits and hyphens with dots between them (RFC 1123), and not an address.
fn is_host_name(text: &str) -> bool {
    let label = |label: &str| {
        let inside = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        inside && (1..=63).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(label) && text.parse::<std::net::IpAddr>().is_err()
}

fn filter(text: &str) -> Result<Value, Wrong> {
    match crate::logs::filter_of(text) {
        Ok(_) => Ok(Value::Text(text.into())),
        Err(error) => Err((format!("is not a filter ({error})"), "write for instance \"info\" or \"info,control=debug\"".into())),
    }
}

fn size(text: &str, least: u64, most: u64) -> Result<Value, Wrong> {
    let shown = api::human::bytes;
    let bounds = || {
        let what = format!("must be a size from {} to {}", shown(least), shown(most));
        (what, format!("write for instance \"{}\"", shown(least.max(256 << 20)).replace(' ', "")))
    };
    let bytes = device::size::parse_nonzero(text).map_err(|_| bounds())?;
    if (least..=most).contains(&bytes) { Ok(Value::Number(bytes, text.into())) } else { Err(bounds()) }
}

fn time(text: &str, least_ms: u64, most_ms: u64) -> Result<Value, Wrong> {
    let shown = |ms| super::keys::time(ms).replace(' ', "");
    let bounds = || {
        let least = if least_ms == 0 { "above 0 and".to_string() } else { format!("of at least {} and", shown(least_ms)) };
        (format!("must be a time {least} at most {}", shown(most_ms)), "write for instance \"30s\" or \"5m\"".into())
    };
    let time_ms = crate::quantity::time_ms("the time", text).map_err(|_| bounds())?;
    if (least_ms..=most_ms).contains(&time_ms) { Ok(Value::Number(time_ms, text.into())) } else { Err(bounds()) }
}
