//! A limit of memory for a server that reads through the page cache: without one, the machine's memory hides the disk.

use crate::stage::{SHORT, Stage};
use crate::trouble::Trouble;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const GROUPS: &str = "/sys/fs/cgroup";
/// Groups made so far: each has a name of its own.
static MADE: AtomicU32 = AtomicU32::new(0);

/// A control group for memory, of version 2 or 1; taken away with this guard, after what runs in it.
pub struct MemoryLimit {
    group: PathBuf,
}

impl MemoryLimit {
    /// A group whose processes and page cache together have so many bytes. `None`, said in the list of commands, where the machine has no such groups.
    ///
    /// # Errors
    /// If it has, and one cannot be made.
    pub fn open(stage: &Stage, limit_bytes: u64) -> Result<Option<MemoryLimit>, Trouble> {
        let root = Path::new(GROUPS);
        let name = format!("hearth-evaluate-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let (group, file) = if root.join("memory/memory.limit_in_bytes").exists() {
            (root.join("memory").join(name), "memory.limit_in_bytes")
        } else if std::fs::read_to_string(root.join("cgroup.subtree_control"))
            .is_ok_and(|all| all.split_whitespace().any(|one| one == "memory"))
        {
            (root.join(name), "memory.max")
        } else {
            stage.say("# no control groups for memory here: the server's reads may come from the page cache");
            return Ok(None);
        };
        let line = format!("mkdir -p {0} && echo {limit_bytes} > {0}/{file}", group.display());
        let limit = MemoryLimit { group };
        stage.run(&["sh", "-c", &line], SHORT)?;
        Ok(Some(limit))
    }

    /// The words of a command as it is started inside of the group.
    pub fn inside(&self, words: &[String]) -> Vec<String> {
        let enter = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", self.group.display());
        ["sh", "-c", &enter, "sh"].into_iter().map(str::to_owned).chain(words.iter().cloned()).collect()
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // Processes that were killed leave a moment later.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.group).is_ok() || !self.group.exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
