//! Which sectors a volume has. A disk's are its own. A file says nothing of what the image in it was made for: it was 512 bytes almost always, also where the
//! file lies on a disk with larger sectors, and with others its partition table means other places.

use crate::DeviceFacts;
use api::error::{ControlError, Kind};
use types::{BLOCK_BYTES, SECTOR_BYTES};

/// The sizes there are.
pub const SECTOR_SIZES: [u32; 2] = [SECTOR_BYTES as u32, BLOCK_BYTES as u32];

/// The sector size of a new volume over `spec`. `asked`: what a person wants.
///
/// # Errors
/// What cannot be right is refused.
pub fn chosen(spec: &str, asked: Option<u32>, facts: &DeviceFacts) -> Result<u32, ControlError> {
    let least = facts.sector_bytes;
    if let Some(asked) = asked.filter(|asked| !SECTOR_SIZES.contains(asked)) {
        let problem = format!("must be 512 or 4096, not {asked}");
        return Err(ControlError::BadOption { option: "--sector-size", problem, remedy: "leave it out if you are not sure".into() });
    }
    let conflict = |problem: String, remedy: &str| {
        Err(ControlError::Device { path: spec.into(), problem, remedy: remedy.into(), kind: Kind::Conflict })
    };
    if u64::from(least) > BLOCK_BYTES {
        return conflict(format!("it has sectors of {least} bytes, and hearth handles at most {BLOCK_BYTES}"), "use another device");
    }
    let chosen = asked.unwrap_or(if facts.is_file { SECTOR_BYTES as u32 } else { least });
    if chosen < least && facts.is_file {
        let problem = format!(
            "direct I/O to this file moves whole {least} bytes, and an image has sectors of {chosen} bytes unless you say otherwise"
        );
        let remedy = format!(
            "move it to a disk with sectors of {chosen} bytes; or, only if what it holds was made for sectors of {least} bytes, add --sector-size {least}"
        );
        return conflict(problem, &remedy);
    }
    if chosen < least {
        let remedy = format!("leave out --sector-size, or give {least}");
        return conflict(format!("its sectors have {least} bytes, more than the {chosen} of --sector-size"), &remedy);
    }
    if !facts.size_bytes.is_multiple_of(u64::from(chosen)) {
        let problem = format!("it has {} bytes, which are not whole sectors of {chosen} bytes", facts.size_bytes);
        return conflict(problem, "extend it to a multiple, or leave out --sector-size");
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(is_file: bool, least: u32, size_bytes: u64, asked: Option<u32>, expected: Result<u32, &str>) {
        let facts = DeviceFacts { size_bytes, is_file, sector_bytes: least, ..DeviceFacts::default() };
        match (chosen("/x", asked, &facts), expected) {
            (Ok(got), Ok(expected)) => assert_eq!(got, expected, "{is_file} {least} {asked:?}"),
            (Err(error), Err(part)) => {
                let sentence = error.refusal().to_string();
                assert!(sentence.contains(part), "{sentence} lacks {part}");
            }
            (got, expected) => panic!("{got:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn a_file_has_small_sectors_unless_said_and_a_disk_has_its_own() {
        for is_file in [true, false] {
            check(is_file, 512, 1 << 20, None, Ok(512));
            check(is_file, 512, 1 << 20, Some(512), Ok(512));
            check(is_file, 512, 1 << 20, Some(4096), Ok(4096));
            check(is_file, 4096, 1 << 20, Some(4096), Ok(4096));
            check(is_file, 512, 4096 + 512, Some(4096), Err("4608 bytes, which are not whole sectors of 4096 bytes"));
            check(is_file, 512, 4096 + 512, None, Ok(512));
            check(is_file, 16384, 1 << 20, None, Err("hearth handles at most 4096"));
            check(is_file, 512, 1 << 20, Some(1024), Err("--sector-size must be 512 or 4096, not 1024"));
        }
        check(false, 4096, 1 << 20, None, Ok(4096));
        check(true, 4096, 1 << 20, None, Err("add --sector-size 4096"));
        check(false, 4096, 1 << 20, Some(512), Err("more than the 512 of --sector-size; leave out --sector-size, or give 4096"));
    }
}
