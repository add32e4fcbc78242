//! Whether the device at a path is the one that an analysis watched. It is not opened: an analysis may have promised that.

use device::system::SystemView;
use records::device_facts;
use records::recognise::{self, Match};
use records::state::BackingIdentity;
use std::path::Path;

/// What the kernel and udev know of the block device at a path.
///
/// # Errors
/// In words.
pub fn identity_of(path: &str) -> Result<BackingIdentity, String> {
    let view = SystemView::default();
    let (kind, ids) = device::identity::ids_of(Path::new(path), &view).map_err(|error| error.to_string())?;
    let size_bytes = device::identity::size_of(Path::new(path), &view).unwrap_or(0);
    Ok(BackingIdentity { size_bytes, fixed: device_facts::names_of(kind, &ids), ..BackingIdentity::default() })
}

/// Why the device found now is another one than was watched, as a clause; `None`: nothing says so. One that is known by its name
/// may have grown.
pub fn difference(before: &BackingIdentity, now: &BackingIdentity) -> Option<String> {
    let (was, is) = (before.size_bytes, now.size_bytes);
    let sizes = || Some(format!("it had {was} bytes and has {is} now"));
    match recognise::hardware(&before.fixed, &now.fixed) {
        Match::Other(why) => Some(why),
        Match::Same if is >= was => None,
        Match::Unknown if is == was && was > 0 => None,
        Match::Unknown if was == 0 => Some("it has no name, and its size was not known".into()),
        Match::Same | Match::Unknown => sizes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use records::state::Fact;

    #[test]
    fn a_device_is_told_by_its_name_and_where_it_has_none_by_its_size() {
        let named = |wwid: &str, size_bytes| {
            let fixed = vec![Fact { name: "kind".into(), value: "block device".into() }, Fact { name: "wwid".into(), value: wwid.into() }];
            BackingIdentity { size_bytes, fixed, ..BackingIdentity::default() }
        };
        let nameless = |size_bytes| BackingIdentity { size_bytes, ..BackingIdentity::default() };
        assert_eq!(difference(&named("a", 10), &named("a", 20)), None, "it grew");
        assert!(difference(&named("a", 20), &named("a", 10)).is_some_and(|why| why.contains("20 bytes")));
        assert!(difference(&named("a", 10), &named("b", 10)).is_some_and(|why| why.contains("its wwid was a and is now b")));
        assert_eq!(difference(&nameless(10), &nameless(10)), None);
        assert!(difference(&nameless(10), &nameless(20)).is_some());
        assert!(difference(&nameless(0), &nameless(20)).is_some_and(|why| why.contains("not known")));
    }
}
