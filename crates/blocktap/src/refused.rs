//! Why a device cannot be watched, each in one sentence, and what is left then.

use crate::rights;
use crate::tap::Way;
use std::io;

/// Why a tap cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.sentence())]
pub enum Refused {
    /// The process, or the thread that opens, may not.
    NoRights {
        /// Which way.
        way: Way,
        /// What it lacks: names of capabilities, or what was denied.
        missing: String,
    },
    /// The kernel is locked down so far that it refused this way. Measured with Linux 6.12: tracefs
    /// always. BPF works where it was locked down after the start; before, there are no
    /// descriptions of tracepoints.
    Lockdown {
        /// Which way.
        way: Way,
    },
    /// The kernel was built without what the way needs, or is too old.
    Kernel {
        /// Which way.
        way: Way,
        /// What it has not, in words.
        lacks: String,
    },
    /// The kernel's descriptions of its tracepoints cannot be reached, or not be changed.
    TracefsAbsent {
        /// Why it could not be mounted privately either.
        #[source]
        source: io::Error,
    },
    /// There is no block device of that number.
    DeviceUnknown {
        /// Its major number.
        major: u32,
        /// Its minor number.
        minor: u32,
    },
    /// A step failed for a reason that is not among the others.
    Failed {
        /// Which way.
        way: Way,
        /// The step, in words.
        step: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// All ways were tried.
    Neither {
        /// Why not by BPF.
        bpf: Box<Refused>,
        /// Why not by tracefs.
        tracefs: Box<Refused>,
    },
}

/// What needs none of the kernel's tracing.
const OTHERWISE: &str = "what is left is a trace recorded elsewhere, or a pass-through volume";

impl Refused {
    /// A step that failed with `source`: lockdown or missing rights where it looks like it.
    pub(crate) fn at(way: Way, step: &'static str, source: io::Error) -> Refused {
        Refused::of_step(way, step, source, rights::is_confidential())
    }

    fn of_step(way: Way, step: &'static str, source: io::Error, confidential: bool) -> Refused {
        match source.raw_os_error() {
            _ if confidential => Refused::Lockdown { way },
            Some(libc::EPERM | libc::EACCES) => Refused::NoRights { way, missing: format!("the right to {step}") },
            _ => Refused::Failed { way, step, source },
        }
    }

    /// What is not there, in words.
    pub(crate) fn lacking(way: Way, lacks: impl Into<String>) -> Refused {
        if rights::is_confidential() { Refused::Lockdown { way } } else { Refused::Kernel { way, lacks: lacks.into() } }
    }

    /// Whether another way may work where this one does not.
    pub(crate) fn is_of_one_way(&self) -> bool {
        matches!(self, Refused::NoRights { .. } | Refused::Lockdown { .. } | Refused::Kernel { .. } | Refused::Failed { .. })
    }

    fn sentence(&self) -> String {
        let left = match self {
            Refused::NoRights { way: Way::Bpf, .. } => "add them, or try the way `tracefs` as root",
            Refused::NoRights { way: Way::Tracefs, .. } => "run as root, or try the way `bpf`",
            Refused::Kernel { way: Way::Bpf, .. } | Refused::Failed { way: Way::Bpf, .. } => "try the way `tracefs`",
            Refused::Kernel { way: Way::Tracefs, .. } | Refused::Failed { way: Way::Tracefs, .. } => "try the way `bpf`",
            Refused::Lockdown { way: Way::Tracefs } => "try the way `bpf`",
            Refused::Lockdown { way: Way::Bpf } | Refused::Neither { .. } => OTHERWISE,
            Refused::TracefsAbsent { .. } => "mount it with `mount -t tracefs nodev /sys/kernel/tracing`, or run as root",
            Refused::DeviceUnknown { .. } => "see `lsblk` for those there are",
        };
        format!("{}; {left}", self.reason())
    }

    /// The sentence without what is left.
    fn reason(&self) -> String {
        match self {
            Refused::NoRights { way, missing } => format!("watching by {way} needs {missing}, which this process does not have"),
            Refused::Lockdown { way } => format!("the kernel is locked down for confidentiality, which forbids watching by {way}"),
            Refused::Kernel { way, lacks } => format!("watching by {way} is impossible, since this kernel has no {lacks}"),
            Refused::TracefsAbsent { source } => {
                format!("tracefs is not mounted where this process may use it, and cannot be mounted privately ({source})")
            }
            Refused::DeviceUnknown { major, minor } => format!("the kernel has no block device {major}:{minor}"),
            Refused::Failed { way, step, source } => format!("watching by {way} failed to {step} ({source})"),
            Refused::Neither { bpf, tracefs } => format!("{}, and {}", bpf.reason(), tracefs.reason()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_one_sentence_that_says_what_is_left() {
        let check = |refused: Refused, sentence: &str| assert_eq!(refused.to_string(), sentence);
        let at = |step, number, confidential| Refused::of_step(Way::Tracefs, step, io::Error::from_raw_os_error(number), confidential);
        let rights = |way, missing: &str| Refused::NoRights { way, missing: missing.into() };
        check(
            rights(Way::Bpf, "CAP_BPF and CAP_PERFMON"),
            "watching by BPF needs CAP_BPF and CAP_PERFMON, which this process does not have; \
             add them, or try the way `tracefs` as root",
        );
        check(
            Refused::Neither { bpf: Box::new(rights(Way::Bpf, "CAP_BPF")), tracefs: Box::new(at("make an instance", libc::EACCES, false)) },
            "watching by BPF needs CAP_BPF, which this process does not have, and watching by tracefs \
             needs the right to make an instance, which this process does not have; \
             what is left is a trace recorded elsewhere, or a pass-through volume",
        );
        check(
            Refused::Kernel { way: Way::Bpf, lacks: "BPF ring buffer (Linux 5.8)".into() },
            "watching by BPF is impossible, since this kernel has no BPF ring buffer (Linux 5.8); try the way `tracefs`",
        );
        check(Refused::DeviceUnknown { major: 7, minor: 900 }, "the kernel has no block device 7:900; see `lsblk` for those there are");
        check(
            Refused::TracefsAbsent { source: io::Error::from_raw_os_error(libc::ENODEV) },
            "tracefs is not mounted where this process may use it, and cannot be mounted privately (No such device (os error 19)); \
             mount it with `mount -t tracefs nodev /sys/kernel/tracing`, or run as root",
        );
        let full = at("make an instance", libc::ENOSPC, false);
        check(full, "watching by tracefs failed to make an instance (No space left on device (os error 28)); try the way `bpf`");
        check(
            at("make an instance", libc::EINVAL, true),
            "the kernel is locked down for confidentiality, which forbids watching by tracefs; try the way `bpf`",
        );
        let lockdown = |way| Box::new(Refused::Lockdown { way });
        check(
            Refused::Neither { bpf: lockdown(Way::Bpf), tracefs: lockdown(Way::Tracefs) },
            "the kernel is locked down for confidentiality, which forbids watching by BPF, and the kernel is locked \
             down for confidentiality, which forbids watching by tracefs; what is left is a trace recorded elsewhere, or a \
             pass-through volume",
        );
    }
}
