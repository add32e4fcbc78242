//! What this thread may do, and whether the kernel lets anybody look into it.

/// Numbers of linux/capability.h.
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// Names of the capabilities for BPF that this thread lacks; `None` if it has what it needs, or it
/// cannot be found out. The kernel has the last word: in a container they may be worth nothing.
pub fn missing_for_bpf() -> Option<String> {
    missing_in(&std::fs::read_to_string("/proc/thread-self/status").ok()?)
}

fn missing_in(status: &str) -> Option<String> {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    let effective = u64::from_str_radix(effective.trim(), 16).ok()?;
    let has = |number: u32| effective & (1 << number | 1 << CAP_SYS_ADMIN) != 0;
    match (has(CAP_BPF), has(CAP_PERFMON)) {
        (true, true) => None,
        (true, false) => Some("CAP_PERFMON".into()),
        (false, true) => Some("CAP_BPF".into()),
        (false, false) => Some("CAP_BPF and CAP_PERFMON".into()),
    }
}

/// Whether the kernel is locked down for confidentiality. Integrity allows watching.
/// (`kernel_lockdown(7)`; a kernel without it has no such file.)
pub fn is_confidential() -> bool {
    std::fs::read_to_string("/sys/kernel/security/lockdown").is_ok_and(|text| confidential_in(&text))
}

fn confidential_in(text: &str) -> bool {
    text.split_ascii_whitespace().any(|word| word == "[confidentiality]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_thread_lacks() {
        let check = |effective: u64, missing: Option<&str>| {
            let status = format!("Name:\tx\nCapPrm:\t000001ffffffffff\nCapEff:\t{effective:016x}\n");
            assert_eq!(missing_in(&status).as_deref(), missing, "{effective:x}");
        };
        check(0, Some("CAP_BPF and CAP_PERFMON"));
        check(1 << CAP_BPF, Some("CAP_PERFMON"));
        check(1 << CAP_PERFMON, Some("CAP_BPF"));
        check(1 << CAP_PERFMON | 1 << CAP_BPF, None);
        check(1 << CAP_SYS_ADMIN, None);
        assert_eq!(missing_in("CapEff:\tnonsense\n"), None);
        assert_eq!(missing_in(""), None);
    }

    #[test]
    fn only_confidentiality_forbids() {
        assert!(confidential_in("none integrity [confidentiality]\n"));
        assert!(!confidential_in("none [integrity] confidentiality\n"));
        assert!(!confidential_in("[none] integrity confidentiality\n"));
        assert!(!confidential_in(""));
    }
}
