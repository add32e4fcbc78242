//! Whether more threads want to run than the machine has processors.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// The kernel's account of them.
pub(crate) struct Rivals {
    account: Option<File>,
    processors: u64,
}

impl Rivals {
    pub(crate) fn new() -> Rivals {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
        Rivals { account: File::open("/proc/loadavg").ok(), processors }
    }

    /// Whether somebody waits for a processor right now. Costs about a microsecond. `true` where it cannot be known.
    pub(crate) fn want_more(&self) -> bool {
        let mut text = [0; 128];
        let bytes = self.account.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
        parse(&text[..bytes]).is_none_or(|runnable| runnable > self.processors)
    }
}

/// The number before the slash, "runnable kernel scheduling entities": proc(5), /proc/loadavg. The caller is one of them.
fn parse(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.split_ascii_whitespace().nth(3)?.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fourth_figure_counts() {
        assert_eq!(parse(b"0.20 0.18 0.12 3/80 11206\n"), Some(3));
        assert_eq!(parse(b""), None);
        assert!(Rivals { account: None, processors: 8 }.want_more(), "unknown counts as contended");
        assert!(!Rivals { processors: u64::MAX, ..Rivals::new() }.want_more());
        assert!(Rivals { processors: 0, ..Rivals::new() }.want_more(), "at least this thread wants to run");
    }
}
