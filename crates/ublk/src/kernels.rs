//! Kernels whose ublk must not be touched: they hang, or fall, at the first command.

/// What is wrong with one.
struct Bad {
    /// As the kernel's release begins ("6.18."), and the range of the number that follows.
    begins: &'static str,
    from: u32,
    to: u32,
    /// What must stand in the rest ("-generic"); empty: anything.
    flavour: &'static str,
}

/// 529d4d632788 without 011af85ccd87: ADD_DEV runs into a null pointer with the driver's lock held, so
/// that it hangs for good.
const BAD: [Bad; 5] = [
    Bad { begins: "6.18.", from: 4, to: 5, flavour: "" },
    Bad { begins: "6.17.0-", from: 24, to: 40, flavour: "-generic" },
    Bad { begins: "6.17.0-", from: 24, to: 40, flavour: "-lowlatency" },
    Bad { begins: "6.17.0-", from: 1019, to: 1019, flavour: "-aws" },
    Bad { begins: "6.17.0-", from: 1015, to: 1020, flavour: "-azure" },
];

/// Whether ublk of the kernel of this release (`uname -r`) is known to hang.
pub(crate) fn is_bad(release: &str) -> bool {
    BAD.iter().any(|bad| {
        let Some(rest) = release.strip_prefix(bad.begins) else { return false };
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number: Result<u32, _> = rest[..digits].parse();
        number.is_ok_and(|number| (bad.from..=bad.to).contains(&number)) && rest[digits..].contains(bad.flavour)
    })
}

/// The release of this kernel.
pub(crate) fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_kernels_are_known_and_their_neighbours_are_good() {
        for bad in ["6.18.4", "6.18.5-arch1-1", "6.17.0-29-generic", "6.17.0-1019-aws", "6.17.0-1020-azure"] {
            assert!(is_bad(bad), "{bad}");
        }
        for good in
            ["6.18.3", "6.18.6", "6.18.40", "6.17.0-23-generic", "6.17.0-41-generic", "6.17.0-1020-aws", "6.12.95+deb12-amd64", "", "6.18."]
        {
            assert!(!is_bad(good), "{good}");
        }
    }
}
