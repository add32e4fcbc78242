//! Small files with secrets' digests: replaced as a whole, readable by their owner alone.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Puts a new content in the place of an old one, durably.
///
/// # Errors
/// What the file system says; the old content stays then.
pub fn replace(path: &Path, content: &impl serde::Serialize) -> std::io::Result<()> {
    let fresh = path.with_extension("json.new");
    let mut text = serde_json::to_vec_pretty(content)?;
    text.push(b'\n');
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
    file.write_all(&text)?;
    file.sync_all()?;
    std::fs::rename(&fresh, path)?;
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}
