//! A file as a block device, without the page cache in between.

use super::filesystem::unhurried;
use crate::stage::{SHORT, Stage};
use crate::trouble::Trouble;
use std::path::Path;

/// A loop device; detached with this guard.
pub struct LoopDevice {
    stage: Stage,
    path: String,
}

impl LoopDevice {
    /// Attaches a free loop device to a file.
    ///
    /// # Errors
    /// If there is none, the file cannot be opened, or this is not root.
    pub fn attach(stage: &Stage, file: &Path) -> Result<LoopDevice, Trouble> {
        let told = stage.run(&["losetup", "-f", "--show", "--direct-io=on", &file.display().to_string()], SHORT)?;
        Ok(LoopDevice { stage: stage.clone(), path: told.trim().into() })
    }

    /// The block device.
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        self.stage.say(format!("losetup -d {}", self.path));
        unhurried(&["losetup", "-d", &self.path]);
    }
}
