//! From the command line to the bodies of the API: relative paths made absolute, quantities read.

use crate::cli::VolumeOptions;
use crate::failure::Failure;
use crate::quantity;
use api::names::{self, Named};
use api::options::{self, OptionsPatch};
use api::words::Export;

/// A name, checked before the daemon is asked.
///
/// # Errors
/// Usage.
pub fn name(named: Named, name: &str) -> Result<&str, Failure> {
    names::check(named, name)?;
    Ok(name)
}

/// A value as it stands in the query of a path: all but letters, digits and `-._~` in hexadecimal.
pub fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded += &format!("%{byte:02X}");
        }
    }
    encoded
}

/// A path as the daemon, which may stand elsewhere, must be told it.
///
/// # Errors
/// Usage, if it is empty or odd.
pub fn absolute(option: &str, path: &str) -> Result<String, Failure> {
    if path.is_empty() || path.contains('\0') {
        return Err(Failure::usage(format!("{option} {path:?} is not a path"), "give the path of a device or file"));
    }
    let absolute = std::path::absolute(path)
        .map_err(|e| Failure::usage(format!("{option} {path:?} cannot be resolved ({e})"), "give an absolute path"))?;
    Ok(absolute.display().to_string())
}

/// An SSD: a path.
///
/// # Errors
/// Usage; also for what is meant as a modelled disk.
pub fn ssd(option: &str, path: &str) -> Result<String, Failure> {
    if path.starts_with("model:") {
        let remedy = format!("give the path of an SSD or file; a file of that name is ./{path}");
        return Err(Failure::usage(format!("{option} {path:?} is a modelled disk, and only --backing takes one"), &remedy));
    }
    absolute(option, path)
}

/// A backing device: a path, or `model:SET:FILE`.
///
/// # Errors
/// Usage.
pub fn backing(option: &str, spec: &str) -> Result<String, Failure> {
    match spec.strip_prefix("model:") {
        None => absolute(option, spec),
        Some(rest) => {
            let (set, file) =
                rest.split_once(':').ok_or_else(|| Failure::usage(format!("{option} {spec:?} has no file"), "write model:SET:FILE"))?;
            Ok(format!("model:{set}:{}", absolute(option, file)?))
        }
    }
}

/// The exports asked for.
///
/// # Errors
/// Usage.
pub fn exports(texts: &[String], tls: bool) -> Result<Vec<Export>, Failure> {
    if tls && !texts.iter().any(|text| text.starts_with("nbd:") || text.starts_with("nbds:")) {
        let remedy = "add --export nbd:IP:PORT, for instance nbd:0.0.0.0:10809, or leave out --tls";
        return Err(Failure::usage("--tls is for NBD on TCP, and no export is that", remedy));
    }
    let word = |text: &String| match text.strip_prefix("nbd:") {
        Some(address) if tls => format!("nbds:{address}"),
        _ => text.clone(),
    };
    let exports = texts
        .iter()
        .map(|text| Export::parse(&word(text)).map_err(|error| Failure::from(api::error::ControlError::from(error))))
        .collect::<Result<Vec<_>, _>>()?;
    let devices: Vec<&Export> = exports.iter().filter(|export| export.is_device()).collect();
    match devices[..] {
        // One that is named twice is refused by the daemon.
        [one, other, ..] if one != other => {
            let problem = format!("--export {one} and --export {other} ask for two block devices, and there can be only one");
            Err(Failure::usage(problem, &format!("leave out --export {other} or --export {one}")))
        }
        _ => Ok(exports),
    }
}

/// Names with commas between; "all": an empty list.
fn tls_names(text: &str) -> Vec<String> {
    if text == "all" { Vec::new() } else { text.split(',').map(|name| name.trim().to_owned()).collect() }
}

/// How much is made of what blocks contain: one of the four words.
///
/// # Errors
/// Usage.
pub fn content(word: Option<&str>) -> Result<Option<String>, Failure> {
    Ok(word.map(options::content).transpose()?.map(|level| level.name().into()))
}

/// What becomes of a pool whose SSD is blank: one of the two words.
///
/// # Errors
/// Usage.
pub fn on_blank_ssd(word: Option<&str>) -> Result<Option<String>, Failure> {
    Ok(word.map(options::on_blank_ssd).transpose()?.map(|what| what.name().into()))
}

/// The options asked for.
///
/// # Errors
/// Usage.
pub fn options(written: &VolumeOptions, read_write: bool) -> Result<OptionsPatch, Failure> {
    let read =
        |option, text: &Option<String>, read: fn(&str, &str) -> Result<u64, Failure>| text.as_deref().map(|t| read(option, t)).transpose();
    let limit = |option, text: &Option<String>| text.as_deref().map(|t| quantity::limit(option, t)).transpose();
    Ok(OptionsPatch {
        mode: written.mode.clone(),
        admission: written.admission.clone(),
        write_cache_depth_ms: read("--write-cache-depth", &written.write_cache_depth, quantity::time_ms)?,
        dirty_limit: limit("--dirty-limit", &written.dirty_limit)?,
        max_io_bytes: read("--max-io-size", &written.max_io_size, quantity::size)?,
        sequential_cutoff: limit("--sequential-cutoff", &written.sequential_cutoff)?,
        log_burst: limit("--log-burst", &written.log_burst)?,
        latency_goal_ms: read("--latency-goal", &written.latency_goal, quantity::time_ms)?,
        destage_rate: limit("--destage-rate", &written.destage_rate)?,
        on_ssd_loss: written.on_ssd_loss.clone(),
        atomic: limit("--atomic", &written.atomic)?,
        tls_names: written.tls_names.as_deref().map(tls_names),
        read_only: if read_write { Some(false) } else { written.read_only.then_some(true) },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_block_devices_are_refused_by_their_names() {
        let asked = |words: &[&str]| exports(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>(), false);
        let refused = asked(&["block", "nbd", "ublk"]).expect_err("there can be one");
        let expected = "--export block and --export ublk ask for two block devices, and there can be only one; leave out --export ublk or \
                        --export block";
        assert_eq!((refused.message.as_str(), refused.status), (expected, 2));
        assert_eq!(asked(&["loop:fast", "nbd"]).expect("one device"), [Export::LOOP_FAST, Export::NBD]);
        assert_eq!(asked(&["block", "block"]).expect("the daemon's to say").len(), 2);
    }
}
