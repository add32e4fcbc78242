//! When backups and long scans begin: once for each, however many streams one is made of.

use applications::streams::{Listed, OriginSlot};
use types::StreamClass;

/// What reads so much is worth a word; a backup is in any case.
const SCAN_BYTES_MIN: u64 = 1 << 30;
/// After so long without any of its class the next one begins anew.
const QUIET_MS: u64 = 600_000;

/// See the module.
#[derive(Default)]
pub struct Began {
    /// When a backup, and a long scan, were told or seen last.
    backup_ms: Option<u64>,
    scan_ms: Option<u64>,
}

impl Began {
    /// Looks at who reads now; a sentence for each class that has begun. `who`: the name of an origin.
    pub fn look(&mut self, listed: &[Listed], now_ms: u64, who: impl Fn(OriginSlot) -> Option<String>) -> Vec<String> {
        let mut told = Vec::new();
        for (class, since_ms) in [(StreamClass::Backup, &mut self.backup_ms), (StreamClass::Scan, &mut self.scan_ms)] {
            let is_recent = |line: &&Listed| now_ms.saturating_sub(line.last_ms) < QUIET_MS;
            let is_told = |line: &&Listed| class == StreamClass::Backup || line.read_bytes >= SCAN_BYTES_MIN;
            let of_class = || listed.iter().filter(|line| line.verdict.class == class).filter(is_recent);
            let Some(last_ms) = of_class().map(|line| line.last_ms).max() else {
                *since_ms = None;
                continue;
            };
            if since_ms.is_some() {
                *since_ms = Some(last_ms);
                continue;
            }
            let Some(line) = of_class().filter(is_told).max_by_key(|line| line.read_bytes) else { continue };
            *since_ms = Some(last_ms);
            let by = line.origin.and_then(&who).map_or_else(String::new, |who| format!(", by {who}"));
            let evidence = format!("{}{by}", line.verdict.evidence.text());
            told.push(if class == StreamClass::Backup {
                format!("a backup began: {evidence}")
            } else {
                format!("a scan goes on: {evidence}, {} so far", api::human::bytes(line.read_bytes))
            });
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use applications::streams::{Evidence, Verdict};

    fn line(class: StreamClass, evidence: Evidence, last_ms: u64, read_bytes: u64) -> Listed {
        let verdict = Verdict::new(class, evidence);
        Listed { verdict, origin: None, began_ms: 0, last_ms, requests: 1, read_bytes, written_bytes: 0 }
    }

    #[test]
    fn a_backup_is_told_once_until_it_has_been_quiet() {
        let mut began = Began::default();
        let backup = |last_ms| [line(StreamClass::Backup, Evidence::ObjectsInRow, last_ms, 4096)];
        assert_eq!(began.look(&backup(1000), 1000, |_| None), ["a backup began: read several objects in a row"]);
        assert!(began.look(&backup(2000), 2000, |_| None).is_empty());
        // The next table of the same one, after some minutes.
        assert!(began.look(&backup(QUIET_MS + 1000), QUIET_MS + 1000, |_| None).is_empty());
        assert!(began.look(&backup(QUIET_MS + 1000), 2 * QUIET_MS + 1000, |_| None).is_empty());
        assert_eq!(began.look(&backup(3 * QUIET_MS), 3 * QUIET_MS, |_| None).len(), 1);
    }

    #[test]
    fn who_makes_a_backup_is_told_where_it_is_known() {
        let mut backup = line(StreamClass::Backup, Evidence::Rule(3), 1000, 4096);
        backup.origin = Some(OriginSlot(7));
        let told = Began::default().look(&[backup], 1000, |origin| (origin.0 == 7).then(|| "mysqldump".into()));
        assert_eq!(told, ["a backup began: rule or session, by mysqldump"]);
    }

    #[test]
    fn a_scan_is_told_when_it_is_long() {
        let mut began = Began::default();
        let scan = |read_bytes| [line(StreamClass::Scan, Evidence::Sequence, 1000, read_bytes)];
        assert!(began.look(&scan(SCAN_BYTES_MIN - 1), 1000, |_| None).is_empty());
        assert_eq!(began.look(&scan(SCAN_BYTES_MIN), 1000, |_| None), ["a scan goes on: sequential reads, 1 GiB so far"]);
        assert!(began.look(&scan(2 * SCAN_BYTES_MIN), 2000, |_| None).is_empty());
        let application = [line(StreamClass::Application, Evidence::None, 1000, 1 << 40)];
        assert!(Began::default().look(&application, 1000, |_| None).is_empty());
    }
}
