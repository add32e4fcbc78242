//! What LVM says of a volume group on one of its physical volumes: whether several machines use it at a time, and which
//! logical volumes lie where on it ([`logical_volumes`]).
//!
//! ```text
//!   label, in one of the first four sectors ─▶ header of the physical volume ─▶ areas for metadata
//!   area: header ─▶ text (in a ring behind the header, with a checksum) ─▶ the group's section: id, lock_type, status
//! ```
//!
//! Sources: lvm2 `lib/label/label.h`, `lib/format_text/{layout.h,format-text.c,export.c,flags.c}`, `man lvmlockd`.

pub mod layout;
mod logical;

pub use layout::Broken;
pub use logical::{Logical, Run, logical_volumes};

use crate::{BlockingDevice, DeviceError};

/// A text that is just being written anew is read again.
const TRIES: u32 = 3;

/// What is known of a volume group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeGroup {
    /// Its UUID, without hyphens: as it is in the UUIDs of its mapped devices.
    pub id: String,
    /// Its name.
    pub name: String,
    /// What keeps the machines apart that use it: "sanlock", "dlm", "idm", "clvmd"; `None`: it is of one machine.
    pub shared_by: Option<String>,
}

/// Why nothing is known.
#[derive(thiserror::Error, Debug)]
pub enum GroupError {
    /// The device cannot be read.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// LVM's data makes no sense.
    #[error(transparent)]
    Broken(#[from] Broken),
}

/// The volume group of a physical volume. `None`: it is none, or says nothing of its group, as where others of the group do.
///
/// # Errors
/// See [`GroupError`].
pub fn volume_group(device: &dyn BlockingDevice) -> Result<Option<VolumeGroup>, GroupError> {
    let mut tries = TRIES;
    loop {
        match look(device) {
            Err(GroupError::Broken(_)) if tries > 1 => tries -= 1,
            other => return other,
        }
    }
}

fn look(device: &dyn BlockingDevice) -> Result<Option<VolumeGroup>, GroupError> {
    for (start_bytes, size_bytes) in areas(device)? {
        if let Some(text) = text(device, start_bytes, size_bytes)? {
            return parse(&text).map(Some);
        }
    }
    Ok(None)
}

fn read(device: &dyn BlockingDevice, at: u64, length_bytes: u64) -> Result<Vec<u8>, GroupError> {
    if at.checked_add(length_bytes).is_none_or(|end| end > device.geometry().size_bytes) {
        return Err(Broken("leads past the end of the device").into());
    }
    let mut bytes = vec![0; length_bytes as usize];
    device.read_at(at, &mut bytes)?;
    Ok(bytes)
}

/// The areas for metadata: first byte and size.
fn areas(device: &dyn BlockingDevice) -> Result<Vec<(u64, u64)>, GroupError> {
    let head_bytes = device.geometry().size_bytes.min(layout::HEAD_BYTES);
    let head = read(device, 0, head_bytes)?;
    Ok(layout::header(&head)?.map(|header| header.areas).unwrap_or_default())
}

/// The text of an area; `None` if it has none that counts.
fn text(device: &dyn BlockingDevice, start_bytes: u64, size_bytes: u64) -> Result<Option<String>, GroupError> {
    let header = read(device, start_bytes, layout::AREA_HEADER_BYTES)?;
    let Some(place) = layout::place_of_text(&header, size_bytes)? else { return Ok(None) };
    let [first, second] = place.parts();
    let mut bytes = read(device, start_bytes.saturating_add(first.0), first.1)?;
    bytes.extend(read(device, start_bytes.saturating_add(second.0), second.1)?);
    Ok(Some(place.text(&bytes)?))
}

/// The first section of the text is the group. Sections begin with `name {` and end with `}`, each on a line of its own.
fn parse(text: &str) -> Result<VolumeGroup, GroupError> {
    let (mut sections, mut name) = (0, None);
    let (mut id, mut lock_type, mut is_clustered) = (None, None, false);
    for line in text.lines().map(str::trim) {
        if let Some(section) = line.strip_suffix(" {") {
            sections += 1;
            name.get_or_insert_with(|| section.to_owned());
        } else if line == "}" {
            sections -= 1;
        } else if let (1, Some((key, value))) = (sections, line.split_once(" = ")) {
            let value = value.split(" #").next().unwrap_or_default().trim();
            let quoted = || value.trim_matches('"').to_owned();
            match key {
                "id" => id = Some(quoted().replace('-', "")),
                "lock_type" => lock_type = Some(quoted()).filter(|kind| !kind.is_empty() && kind != "none"),
                "status" | "flags" => is_clustered |= value.contains("\"CLUSTERED\"") || value.contains("\"SHARED\""),
                _ => {}
            }
        }
        if sections == 0 && name.is_some() {
            break;
        }
    }
    let (Some(name), Some(id)) = (name, id) else { return Err(Broken("is not that of a volume group").into()) };
    Ok(VolumeGroup { id, name, shared_by: lock_type.or_else(|| is_clustered.then(|| "clvmd".to_owned())) })
}

#[cfg(test)]
mod tests {
    use super::layout::{PLACES, checksum, little};
    use super::*;
    use crate::memory::MemoryDevice;

    /// The beginning of a physical volume of a group with `lock_type = "sanlock"`, as LVM 2.03.16 has written it.
    const REAL: &[u8] = include_bytes!("../../tests/lvm-shared-group.bin");
    const AREA: usize = 4096;

    fn of(bytes: &[u8]) -> Result<Option<VolumeGroup>, GroupError> {
        volume_group(&MemoryDevice::from_bytes(bytes.to_vec()))
    }

    fn with_area_header(mut bytes: Vec<u8>) -> Vec<u8> {
        let sum = checksum(&bytes[AREA + 4..AREA + 512]);
        bytes[AREA..AREA + 4].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// A volume whose area of 2 KiB has this text at an offset.
    fn made(text: &str, offset: usize) -> Vec<u8> {
        let mut bytes = REAL.to_vec();
        let size = 2048;
        // The run of the area: behind the UUID, the size, the run of the data and its end.
        let run = 512 + 32 + 40 + 32;
        assert_eq!(little(&bytes[run..run + 8]), AREA as u64);
        bytes[run + 8..run + 16].copy_from_slice(&(size as u64).to_le_bytes());
        for (nth, byte) in text.bytes().enumerate() {
            let at = offset + nth;
            bytes[AREA + if at < size { at } else { at - size + 512 }] = byte;
        }
        let place = [(offset as u64).to_le_bytes(), (text.len() as u64).to_le_bytes()].concat();
        bytes[AREA + PLACES..AREA + PLACES + 16].copy_from_slice(&place);
        bytes[AREA + PLACES + 16..AREA + PLACES + 20].copy_from_slice(&checksum(text.as_bytes()).to_le_bytes());
        with_area_header(bytes)
    }

    #[test]
    fn a_shared_group_as_lvm_writes_it_is_seen() {
        let group = of(REAL).expect("well-formed").expect("it tells");
        let (id, name) = ("paM49cFtt7KjNpE3rymgsqOo86EYtLIP".into(), "vgtest".into());
        assert_eq!(group, VolumeGroup { id, name, shared_by: Some("sanlock".into()) });
    }

    #[test]
    fn only_what_the_group_says_of_itself_counts() {
        let check = |own: &str, expected: Option<&str>| {
            let text = format!(
                "g {{\nid = \"aaaaaa-b-c\"\nseqno = 7\n{own}\nphysical_volumes {{\npv0 {{\nid = \"x\"\nstatus = [\"SHARED\"]\n}}\n}}\n\
                 logical_volumes {{\nl {{\nlock_type = \"dlm\"\nstripes = [\n\"pv0\", 0\n]\n}}\n}}\n}}\nlock_type = \"dlm\"\n"
            );
            for offset in [512, 600, 2048 - 20] {
                let group = of(&made(&text, offset)).expect("well-formed").expect("it tells");
                assert_eq!((group.id.as_str(), group.shared_by.as_deref()), ("aaaaaabc", expected), "{own} at {offset}");
            }
        };
        check("status = [\"RESIZEABLE\", \"READ\", \"WRITE\"]\nflags = []", None);
        check("lock_type = \"none\"", None);
        check("lock_type = \"dlm\"\nlock_args = \"1.0.0:cluster\"", Some("dlm"));
        check("lock_type = \"idm\"", Some("idm"));
        check("status = [\"RESIZEABLE\", \"READ\", \"WRITE\", \"CLUSTERED\"]", Some("clvmd"));
        check("tags = [\"SHARED\"]", None);
    }

    #[test]
    fn what_says_nothing_and_what_is_broken_are_told_apart() {
        assert_eq!(of(&[0; 8192]).expect("no physical volume"), None);
        assert_eq!(of(&[0; 512]).expect("nor is that"), None);
        let mut ignored = REAL.to_vec();
        ignored[AREA + PLACES + 20] = 1;
        assert_eq!(of(&with_area_header(ignored)).expect("others of the group tell"), None);
        let mut empty = REAL.to_vec();
        empty[AREA + PLACES..AREA + PLACES + 8].fill(0);
        assert_eq!(of(&with_area_header(empty)).expect("it is in no group"), None);
        assert!(of(&REAL[..6144]).is_err() && of(&REAL[..AREA]).is_err(), "cut off");
        assert!(of(&made("no group\n", 512)).is_err());
        let mut last = REAL.to_vec();
        last[512 + 20..512 + 24].fill(0xff);
        assert!(of(&last).is_err(), "the lists lie nowhere");
        // Whatever is changed in what was read, nothing is made of it, or the same.
        let known = of(REAL).expect("well-formed");
        let used = (512..1024).chain(AREA..AREA + 64).chain(AREA + 512..REAL.len()).step_by(7);
        for at in used {
            for value in [0, 1, 0xff] {
                let mut bytes = REAL.to_vec();
                bytes[at] = value;
                assert!(of(&bytes).is_ok_and(|group| group.is_none() || group == known) || of(&bytes).is_err(), "{at}");
            }
        }
    }
}
