//! A volume's options in two forms: [`OptionsPatch`] as written by a person (every field may be absent), and [`Options`],
//! complete and validated. Only the second is stored and reaches the engine.

use crate::error::ControlError;
use crate::human;
use crate::on_blank_ssd::OnBlankSsd;
use crate::words;
use serde::{Deserialize, Serialize};
use types::{ATOMIC_BYTES_MAX, Admission, Content, Mode, OnSsdLoss, SECTOR_BYTES};
use utoipa::ToSchema;

/// Longest write-cache depth: a day. Longer would leave the backing device older than any sensible backup.
pub const WRITE_CACHE_DEPTH_MS_MAX: u64 = 24 * 3600 * 1000;
/// Largest `max-io-size`: what one request can be at most anyway (NBD's proto.md, "Block size constraints").
pub const MAX_IO_BYTES_MAX: u64 = 32 << 20;
/// Smallest limit of dirty data: one extent. Below, a single large write would stall for ever.
pub const DIRTY_LIMIT_BYTES_MIN: u64 = types::EXTENT_BYTES;
/// Largest size anything may have: offsets are signed 64-bit numbers in the kernel.
pub const SIZE_BYTES_MAX: u64 = i64::MAX as u64;

/// Most names in the list of those who may use an export with TLS, and the longest of them: a host name's limit.
pub const TLS_NAMES_MAX: usize = 256;
const TLS_NAME_BYTES_MAX: usize = 253;

/// How a volume is treated; complete and valid.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// What an acknowledged write means.
    #[serde(with = "words::mode")]
    #[schema(value_type = String)]
    pub mode: Mode,
    /// When blocks enter the SSD.
    #[serde(with = "words::admission")]
    #[schema(value_type = String)]
    pub admission: Admission,
    /// Oldest a dirty block may get before its destage begins, in milliseconds.
    pub write_cache_depth_ms: u64,
    /// Most dirty bytes; `None`: as much as the pool allows.
    pub dirty_limit_bytes: Option<u64>,
    /// Longer requests bypass the cache, in bytes.
    pub max_io_bytes: u64,
    /// A sequential stream bypasses the cache after this many bytes; `None`: never.
    pub sequential_cutoff_bytes: Option<u64>,
    /// Most bytes of large writes that the log takes between two flushes, because somebody may wait for them; `None`: what the dirty limit allows.
    #[serde(default)]
    pub log_burst_bytes: Option<u64>,
    /// Destage keeps client reads of the backing device below this, in milliseconds.
    pub latency_goal_ms: u64,
    /// Most bytes of destage per second; `None`: as the latency goal allows.
    pub destage_rate_bytes: Option<u64>,
    /// No writes at all.
    pub read_only: bool,
    /// What writes do when the SSD is lost with dirty data of the volume.
    #[serde(with = "words::on_ssd_loss", default)]
    #[schema(value_type = String)]
    pub on_ssd_loss: OnSsdLoss,
    /// Aligned units of so many bytes are written as a whole or not at all, whatever happens: a power of two from 4 KiB to 64 KiB. Write-back only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub atomic_bytes: Option<u32>,
    /// Names of certificates that may use its exports with TLS; empty: all that the authority has issued.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tls_names: Vec<String>,
}

impl Default for Options {
    /// The engine's own defaults.
    fn default() -> Options {
        let engine = engine::api::VolumeOptions::default();
        Options {
            mode: engine.mode,
            admission: engine.admission,
            write_cache_depth_ms: engine.write_cache_depth_ns / 1_000_000,
            dirty_limit_bytes: None,
            max_io_bytes: u64::from(engine.max_io_bytes),
            sequential_cutoff_bytes: engine.sequential_cutoff_bytes,
            log_burst_bytes: None,
            latency_goal_ms: engine.latency_goal_ns / 1_000_000,
            destage_rate_bytes: engine.destage_rate_bytes,
            read_only: engine.read_only,
            on_ssd_loss: engine.on_ssd_loss,
            atomic_bytes: engine.atomic_bytes,
            tls_names: Vec::new(),
        }
    }
}

impl Options {
    /// What differs from `before`, one clause each, for people: "mode write-back (was write-through)".
    pub fn changes(&self, before: &Options) -> Vec<String> {
        let bytes = human::bytes;
        let limit = |limit: Option<u64>| limit.map_or_else(|| "off".to_string(), bytes);
        let time = |ms: u64| human::nanoseconds(ms.saturating_mul(1_000_000));
        let told = |o: &Options| {
            [
                ("mode", o.mode.name().to_string()),
                ("admission", o.admission.name().to_string()),
                ("write-cache depth", time(o.write_cache_depth_ms)),
                ("dirty limit", limit(o.dirty_limit_bytes)),
                ("max I/O size", bytes(o.max_io_bytes)),
                ("sequential cutoff", limit(o.sequential_cutoff_bytes)),
                ("log burst", limit(o.log_burst_bytes)),
                ("latency goal", time(o.latency_goal_ms)),
                ("destage rate", limit(o.destage_rate_bytes)),
                ("read-only", if o.read_only { "yes" } else { "no" }.to_string()),
                ("on loss of the SSD", o.on_ssd_loss.name().to_string()),
                ("atomic writes", limit(o.atomic_bytes.map(u64::from))),
                ("TLS names", tls_names(&o.tls_names)),
            ]
        };
        let pairs = told(self).into_iter().zip(told(before)).filter(|(now, was)| now != was);
        pairs.map(|((name, now), (_, was))| format!("{name} {now} (was {was})")).collect()
    }
}

/// A limit that can be lifted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// No limit.
    Off,
    /// This many bytes.
    Bytes(u64),
}

/// Options as asked for: what is absent stays as it is.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OptionsPatch {
    /// A mode's name.
    #[schema(pattern = "^(write-through|write-around|write-back|pass-through)$")]
    pub mode: Option<String>,
    /// An admission's name.
    #[schema(pattern = "^(always|second-touch)$")]
    pub admission: Option<String>,
    /// In milliseconds.
    #[schema(minimum = 1, maximum = 86400000)]
    pub write_cache_depth_ms: Option<u64>,
    /// Most dirty bytes.
    pub dirty_limit: Option<Limit>,
    /// In bytes.
    #[schema(minimum = 512, maximum = 33554432)]
    pub max_io_bytes: Option<u64>,
    /// In bytes, or off.
    pub sequential_cutoff: Option<Limit>,
    /// In bytes, or off.
    pub log_burst: Option<Limit>,
    /// In milliseconds.
    #[schema(minimum = 1, maximum = 60000)]
    pub latency_goal_ms: Option<u64>,
    /// Bytes per second, or off.
    pub destage_rate: Option<Limit>,
    /// No writes.
    pub read_only: Option<bool>,
    /// What writes do when the SSD is lost with dirty data of the volume.
    #[schema(pattern = "^(stop|continue)$")]
    pub on_ssd_loss: Option<String>,
    /// Unit that is written as a whole or not at all, in bytes (a power of two from 4096 to 65536), or off. Write-back only.
    pub atomic: Option<Limit>,
    /// Names of certificates that may use its exports with TLS; an empty list: all that the authority has issued.
    #[schema(max_items = 256)]
    pub tls_names: Option<Vec<String>>,
}

impl OptionsPatch {
    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        *self == OptionsPatch::default()
    }

    /// Applies what is asked for to `options`.
    ///
    /// # Errors
    /// [`ControlError::BadOption`] or [`ControlError::BadCombination`]; then nothing is applied.
    pub fn apply(&self, options: &Options) -> Result<Options, ControlError> {
        let mut new = options.clone();
        if let Some(name) = &self.mode {
            new.mode = Mode::from_name(name).ok_or_else(|| {
                bad("--mode", format!("has the unknown value {name:?}"), "use write-through, write-around, write-back or pass-through")
            })?;
        }
        if let Some(name) = &self.admission {
            new.admission = words::admission_from_name(name)
                .ok_or_else(|| bad("--admission", format!("has the unknown value {name:?}"), "use always or second-touch"))?;
        }
        if let Some(depth_ms) = self.write_cache_depth_ms {
            if depth_ms == 0 || depth_ms > WRITE_CACHE_DEPTH_MS_MAX {
                return Err(bad("--write-cache-depth", "must be more than 0 and at most 24h".into(), "write for instance 30s"));
            }
            new.write_cache_depth_ms = depth_ms;
        }
        if let Some(limit) = self.dirty_limit {
            new.dirty_limit_bytes = sized("--dirty-limit", limit, DIRTY_LIMIT_BYTES_MIN)?;
        }
        if let Some(bytes) = self.max_io_bytes {
            if !(SECTOR_BYTES..=MAX_IO_BYTES_MAX).contains(&bytes) {
                return Err(bad("--max-io-size", "must be between 512 bytes and 32MiB".into(), "write for instance 64KiB"));
            }
            new.max_io_bytes = bytes;
        }
        if let Some(limit) = self.sequential_cutoff {
            new.sequential_cutoff_bytes = sized("--sequential-cutoff", limit, types::BLOCK_BYTES)?;
        }
        if let Some(limit) = self.log_burst {
            new.log_burst_bytes = sized("--log-burst", limit, types::BLOCK_BYTES)?;
        }
        if let Some(goal_ms) = self.latency_goal_ms {
            if goal_ms == 0 || goal_ms > 60_000 {
                return Err(bad("--latency-goal", "must be more than 0 and at most 60s".into(), "write for instance 50ms"));
            }
            new.latency_goal_ms = goal_ms;
        }
        if let Some(limit) = self.destage_rate {
            new.destage_rate_bytes = sized("--destage-rate", limit, types::EXTENT_BYTES)?;
        }
        if let Some(read_only) = self.read_only {
            new.read_only = read_only;
        }
        if let Some(name) = &self.on_ssd_loss {
            new.on_ssd_loss = words::on_ssd_loss_from_name(name)
                .ok_or_else(|| bad("--on-ssd-loss", format!("has the unknown value {name:?}"), "use stop or continue"))?;
        }
        if let Some(limit) = self.atomic {
            new.atomic_bytes = unit(limit)?;
        }
        if let Some(names) = &self.tls_names {
            new.tls_names = names.clone();
            check_tls_names(names)?;
        }
        if new.read_only && new.mode == Mode::WriteBack {
            return Err(ControlError::BadCombination(
                "a read-only volume cannot be write-back".into(),
                "leave out one of --read-only and --mode write-back".into(),
            ));
        }
        if let Some(bytes) = new.atomic_bytes.filter(|_| new.mode != Mode::WriteBack) {
            let unit = human::bytes(bytes.into());
            return Err(ControlError::BadCombination(
                format!("only a write-back volume can write {unit} as a whole: in the other modes its backing device may tear them"),
                "use --mode write-back, or --atomic off".into(),
            ));
        }
        Ok(new)
    }
}

/// The unit that is written as a whole.
fn unit(limit: Limit) -> Result<Option<u32>, ControlError> {
    let range = types::BLOCK_BYTES..=u64::from(ATOMIC_BYTES_MAX);
    match limit {
        Limit::Off => Ok(None),
        Limit::Bytes(bytes) if bytes.is_power_of_two() && range.contains(&bytes) => Ok(Some(bytes as u32)),
        Limit::Bytes(_) => Err(bad(
            "--atomic",
            "must be 4KiB, 8KiB, 16KiB, 32KiB or 64KiB".into(),
            "write the page size of the database, for instance 16KiB, or off",
        )),
    }
}

/// The list for people.
pub fn tls_names(names: &[String]) -> String {
    if names.is_empty() { "all".into() } else { names.join(", ") }
}

fn check_tls_names(names: &[String]) -> Result<(), ControlError> {
    let wrong =
        |problem: String| Err(bad("--tls-names", problem, "write names as given to `hearth pki issue`, with commas between, or all"));
    if names.len() > TLS_NAMES_MAX {
        return wrong(format!("has {} names, more than {TLS_NAMES_MAX}", names.len()));
    }
    let odd = |name: &&String| name.is_empty() || name.len() > TLS_NAME_BYTES_MAX || name.chars().any(|c| c.is_control() || c == ',');
    match names.iter().find(odd) {
        Some(name) => wrong(format!("has {name:?}, which no certificate is named")),
        None => Ok(()),
    }
}

/// Reads what stands after `--content`.
///
/// # Errors
/// [`ControlError::BadOption`] for a word that is no level.
pub fn content(name: &str) -> Result<Content, ControlError> {
    let unknown = || {
        let words = Content::ALL.map(Content::name);
        let (last, others) = words.split_last().expect("there are four");
        let remedy = format!("use {} or {last}", others.join(", "));
        ControlError::BadOption { option: "--content", problem: format!("has the unknown value {name:?}"), remedy }
    };
    Content::from_name(name).ok_or_else(unknown)
}

/// Reads what stands after `--on-blank-ssd`.
///
/// # Errors
/// [`ControlError::BadOption`] for another word.
pub fn on_blank_ssd(name: &str) -> Result<OnBlankSsd, ControlError> {
    OnBlankSsd::from_name(name).ok_or_else(|| bad("--on-blank-ssd", format!("has the unknown value {name:?}"), "use stop or make"))
}

/// Most of an SSD that can be left unused, in percent: beyond, a smaller SSD is the better choice.
pub const SPARE_PERCENT_MAX: u8 = 50;

/// Checks what stands after `--spare`.
///
/// # Errors
/// [`ControlError::BadOption`] if it is too much.
pub fn spare_percent(percent: u8) -> Result<u8, ControlError> {
    let too_much = || bad("--spare", format!("is at most {SPARE_PERCENT_MAX} percent, not {percent}"), "give a percentage from 0 to 50");
    (percent <= SPARE_PERCENT_MAX).then_some(percent).ok_or_else(too_much)
}

/// Reads what stands after `--spare`: whole percent, with the sign or without.
///
/// # Errors
/// [`ControlError::BadOption`] if it is no such number.
pub fn spare(text: &str) -> Result<u8, ControlError> {
    let number = text.trim().trim_end_matches('%').trim_end();
    let percent = number.parse::<u32>().map_err(|_| {
        let problem = format!("has the value {text:?}, which is not a whole number of percent");
        bad("--spare", problem, "give a percentage from 0 to 50")
    })?;
    spare_percent(u8::try_from(percent).unwrap_or(u8::MAX))
}

fn bad(option: &'static str, problem: String, remedy: &str) -> ControlError {
    ControlError::BadOption { option, problem, remedy: remedy.into() }
}

fn sized(option: &'static str, limit: Limit, bytes_min: u64) -> Result<Option<u64>, ControlError> {
    match limit {
        Limit::Off => Ok(None),
        Limit::Bytes(bytes) if bytes < bytes_min => {
            let least = crate::human::bytes(bytes_min);
            Err(bad(option, format!("must be at least {least}"), "write a larger size, or off"))
        }
        Limit::Bytes(bytes) if bytes > SIZE_BYTES_MAX => Err(bad(option, "is beyond 2^63 bytes".into(), "write a smaller size, or off")),
        Limit::Bytes(bytes) => Ok(Some(bytes)),
    }
}

impl From<&Options> for engine::api::VolumeOptions {
    fn from(options: &Options) -> engine::api::VolumeOptions {
        engine::api::VolumeOptions {
            mode: options.mode,
            admission: options.admission,
            write_cache_depth_ns: options.write_cache_depth_ms.saturating_mul(1_000_000),
            dirty_limit_bytes: options.dirty_limit_bytes.unwrap_or(u64::MAX),
            max_io_bytes: u32::try_from(options.max_io_bytes).unwrap_or(u32::MAX),
            sequential_cutoff_bytes: options.sequential_cutoff_bytes,
            log_burst_bytes: options.log_burst_bytes.unwrap_or(u64::MAX),
            latency_goal_ns: options.latency_goal_ms.saturating_mul(1_000_000),
            destage_rate_bytes: options.destage_rate_bytes,
            read_only: options.read_only,
            on_ssd_loss: options.on_ssd_loss,
            atomic_bytes: options.atomic_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(patch: OptionsPatch, expected: Result<Options, &str>) {
        match (patch.apply(&Options::default()), expected) {
            (Ok(got), Ok(expected)) => assert_eq!(got, expected),
            (Err(error), Err(part)) => {
                assert!(error.to_string().contains(part), "{error} lacks {part}")
            }
            (got, expected) => panic!("{got:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn what_is_absent_stays() {
        check(OptionsPatch::default(), Ok(Options::default()));
        let patch = OptionsPatch { mode: Some("write-back".into()), dirty_limit: Some(Limit::Bytes(1 << 30)), ..Default::default() };
        check(patch, Ok(Options { mode: Mode::WriteBack, dirty_limit_bytes: Some(1 << 30), ..Options::default() }));
        let off = OptionsPatch { sequential_cutoff: Some(Limit::Off), ..Default::default() };
        check(off, Ok(Options { sequential_cutoff_bytes: None, ..Options::default() }));
    }

    #[test]
    fn a_level_of_content_is_one_of_four_words() {
        for level in Content::ALL {
            assert_eq!(content(level.name()).expect("it is one"), level);
        }
        for word in ["", "on", "AUTO", "Fast", "auto "] {
            let sentence = content(word).expect_err("it is none").refusal().to_string();
            assert!(sentence.ends_with("; use off, fast, dense or auto"), "{sentence}");
        }
    }

    #[test]
    fn units_that_are_whole_keep_a_volume_write_back() {
        let atomic = |mode: &str, limit| OptionsPatch { mode: Some(mode.into()), atomic: Some(limit), ..Default::default() };
        let whole = Options { mode: Mode::WriteBack, atomic_bytes: Some(16 << 10), ..Options::default() };
        check(atomic("write-back", Limit::Bytes(16 << 10)), Ok(whole.clone()));
        let refused = OptionsPatch { mode: Some("write-through".into()), ..Default::default() }.apply(&whole).expect_err("it is promised");
        assert!(refused.remedy().contains("--atomic off"), "{refused}");
        assert_eq!(atomic("write-through", Limit::Off).apply(&whole).expect("both at once"), Options::default());
        assert_eq!(whole.changes(&Options::default()), ["mode write-back (was write-through)", "atomic writes 16 KiB (was off)"]);
    }

    #[test]
    fn nonsense_is_refused() {
        let patch = OptionsPatch::default;
        check(OptionsPatch { mode: Some("fast".into()), ..patch() }, Err("--mode has the unknown value"));
        check(OptionsPatch { admission: Some("".into()), ..patch() }, Err("--admission"));
        check(OptionsPatch { on_ssd_loss: Some("go".into()), ..patch() }, Err("--on-ssd-loss has the unknown value"));
        check(OptionsPatch { write_cache_depth_ms: Some(0), ..patch() }, Err("--write-cache-depth"));
        check(OptionsPatch { write_cache_depth_ms: Some(u64::MAX), ..patch() }, Err("--write-cache-depth"));
        check(OptionsPatch { dirty_limit: Some(Limit::Bytes(0)), ..patch() }, Err("--dirty-limit must be at least 1 MiB"));
        check(OptionsPatch { dirty_limit: Some(Limit::Bytes(1 << 63)), ..patch() }, Err("beyond 2^63"));
        check(OptionsPatch { max_io_bytes: Some(0), ..patch() }, Err("--max-io-size"));
        check(OptionsPatch { max_io_bytes: Some(1 << 40), ..patch() }, Err("--max-io-size"));
        check(OptionsPatch { sequential_cutoff: Some(Limit::Bytes(1)), ..patch() }, Err("--sequential-cutoff"));
        let burst = OptionsPatch { log_burst: Some(Limit::Bytes(8 << 20)), ..patch() };
        check(burst, Ok(Options { log_burst_bytes: Some(8 << 20), ..Options::default() }));
        check(OptionsPatch { log_burst: Some(Limit::Bytes(1)), ..patch() }, Err("--log-burst"));
        check(OptionsPatch { latency_goal_ms: Some(0), ..patch() }, Err("--latency-goal"));
        for bytes in [0, 512, 4095, 12 << 10, 128 << 10, u64::MAX] {
            check(OptionsPatch { atomic: Some(Limit::Bytes(bytes)), ..patch() }, Err("--atomic must be 4KiB"));
        }
        check(
            OptionsPatch { atomic: Some(Limit::Bytes(16 << 10)), ..patch() },
            Err("only a write-back volume can write 16 KiB as a whole"),
        );
        check(OptionsPatch { destage_rate: Some(Limit::Bytes(1)), ..patch() }, Err("--destage-rate"));
        for name in ["", "a,b", "a\nb", &"x".repeat(254)] {
            check(OptionsPatch { tls_names: Some(vec![name.into()]), ..patch() }, Err("--tls-names"));
        }
        check(OptionsPatch { tls_names: Some(vec!["x".into(); 257]), ..patch() }, Err("--tls-names has 257 names"));
        let both = OptionsPatch { mode: Some("write-back".into()), read_only: Some(true), ..patch() };
        check(both, Err("read-only volume cannot be write-back"));
    }
}
