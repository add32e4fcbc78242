//! A row of steps that is undone when one of them fails.

use crate::TargetError;
use crate::tree::Tree;
use std::io;

/// What was made so far. Dropped before [`Steps::keep`], it takes all of it away again, the latest
/// first.
pub(crate) struct Steps<'a> {
    tree: &'a dyn Tree,
    made: Vec<Made>,
}

enum Made {
    Directory(String),
    Link(String),
}

impl<'a> Steps<'a> {
    pub(crate) fn new(tree: &'a dyn Tree) -> Steps<'a> {
        Steps { tree, made: Vec::new() }
    }

    /// A directory that is there afterwards.
    pub(crate) fn directory(&mut self, path: &str) -> Result<(), TargetError> {
        self.try_directory(path).map_err(|source| step("make", path, source))
    }

    /// The same, with the kernel's own error.
    pub(crate) fn try_directory(&mut self, path: &str) -> io::Result<()> {
        if self.tree.exists(path) {
            return Ok(());
        }
        self.tree.make(path)?;
        self.made.push(Made::Directory(path.to_owned()));
        Ok(())
    }

    /// A directory that was not there before; `false`: somebody has just made it.
    pub(crate) fn new_directory(&mut self, path: &str) -> io::Result<bool> {
        match self.tree.make(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            made => made.map(|()| {
                self.made.push(Made::Directory(path.to_owned()));
                true
            }),
        }
    }

    /// A link that is there afterwards.
    pub(crate) fn link(&mut self, to: &str, path: &str) -> Result<(), TargetError> {
        self.try_link(to, path).map_err(|source| step("link", path, source))
    }

    /// The same, with the kernel's own error.
    pub(crate) fn try_link(&mut self, to: &str, path: &str) -> io::Result<()> {
        if self.tree.exists(path) {
            return Ok(());
        }
        self.tree.link(to, path)?;
        self.made.push(Made::Link(path.to_owned()));
        Ok(())
    }

    /// A value that is in force afterwards.
    pub(crate) fn value(&self, path: &str, value: &str) -> Result<(), TargetError> {
        self.try_value(path, value).map_err(|source| step("write", path, source))
    }

    /// The same, with the kernel's own error.
    pub(crate) fn try_value(&self, path: &str, value: &str) -> io::Result<()> {
        if self.tree.read(path).is_ok_and(|now| now == value) {
            return Ok(());
        }
        self.tree.write(path, value)
    }

    /// A value that not all kernels know.
    pub(crate) fn value_if_known(&self, path: &str, value: &str) -> Result<(), TargetError> {
        if self.tree.exists(path) { self.value(path, value) } else { Ok(()) }
    }

    /// All is done: nothing is undone.
    pub(crate) fn keep(mut self) {
        self.made.clear();
    }
}

impl Drop for Steps<'_> {
    fn drop(&mut self) {
        for made in self.made.drain(..).rev() {
            // What does not go now is in the way of the next try, which tells of it.
            let _ = match made {
                Made::Directory(path) => self.tree.remove(&path).map(|()| self.tree.forget_made(&path)),
                Made::Link(path) => self.tree.unlink(&path),
            };
        }
    }
}

/// Steps of a removal: all are tried, the first that fails is told.
pub(crate) struct Removal<'a> {
    tree: &'a dyn Tree,
    first: Option<TargetError>,
}

impl<'a> Removal<'a> {
    pub(crate) fn new(tree: &'a dyn Tree) -> Removal<'a> {
        Removal { tree, first: None }
    }

    pub(crate) fn directory(&mut self, path: &str) {
        if self.tree.exists(path) {
            let done = self.tree.remove(path);
            self.note("remove", path, done);
        }
    }

    /// The same of one that others may take into use meanwhile: then it stays.
    pub(crate) fn unused_directory(&mut self, path: &str, is_unused: impl Fn() -> bool) {
        if self.tree.exists(path) && is_unused() {
            let done = self.tree.remove(path);
            if done.is_ok() || is_unused() {
                self.note("remove", path, done);
            }
        }
    }

    /// The link `path`, if it is there.
    pub(crate) fn link(&mut self, path: &str) {
        if self.tree.is_link(path) {
            let done = self.tree.unlink(path);
            self.note("remove", path, done);
        }
    }

    /// All links in a directory.
    pub(crate) fn links_in(&mut self, path: &str) {
        for name in self.tree.list(path).unwrap_or_default() {
            self.link(&format!("{path}/{name}"));
        }
    }

    pub(crate) fn value(&mut self, path: &str, value: &str) {
        if self.tree.exists(path) {
            let done = self.tree.write(path, value);
            self.note("write", path, done);
        }
    }

    fn note(&mut self, doing: &'static str, path: &str, done: io::Result<()>) {
        if let Err(source) = done {
            self.first.get_or_insert_with(|| step(doing, path, source));
        }
    }

    pub(crate) fn end(self) -> Result<(), TargetError> {
        self.first.map_or(Ok(()), Err)
    }
}

pub(crate) fn step(doing: &'static str, path: &str, source: io::Error) -> TargetError {
    TargetError::Step { doing, path: path.to_owned(), source }
}
