//! How the files of a database are found on a volume, and what is in them.

use super::Engine;
use crate::discovery::{Findings, Server, Source};
use crate::filesystems::DataFile;
use crate::naming::Catalogue;
use std::collections::BTreeMap;
use std::pin::Pin;

/// Work that waits for reads.
pub(crate) type Work<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Files by the directory that all of a server's files are in.
pub(crate) type Places = BTreeMap<String, Vec<DataFile>>;

/// A path by its parts, from the root of its file system, without a slash before it.
pub(crate) struct FilePath<'a> {
    /// The file's own name, not empty.
    pub(crate) name: &'a str,
    /// The directory that it is in; empty at the root.
    pub(crate) parent: &'a str,
    /// The directory above that one.
    pub(crate) above: &'a str,
}

impl FilePath<'_> {
    /// The parts of a path; `None` for that of no file.
    pub(crate) fn of(path: &str) -> Option<FilePath<'_>> {
        let mut parts = path.rsplit('/');
        let name = parts.next().filter(|name| !name.is_empty())?;
        Some(FilePath { name, parent: parts.next().unwrap_or(""), above: parts.next().unwrap_or("") })
    }
}

/// The directory that a path is in.
pub(crate) fn up(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(above, _)| above)
}

/// Whether a text is a number in digits.
pub(crate) fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// How many files of a sort are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Claim {
    /// Each one.
    Each,
    /// The first thousand: an archive has many thousands, which nobody reads, and they must not take the place of others.
    Some,
}

/// A directory with files of a database: the data directory of a server, or a part that lies elsewhere.
pub(crate) struct Home {
    pub(crate) place: String,
    /// Its version, where a file beside its data tells: `15`.
    pub(crate) version: Option<String>,
    /// Whether a server can start there; `None` where nothing tells.
    pub(crate) can_start: Option<bool>,
    /// When its state was written last, in seconds since 1970; 0 where nothing tells.
    pub(crate) written_s: u64,
    pub(crate) files: Vec<DataFile>,
}

impl Home {
    /// One for each place, of which nothing else is known.
    pub(crate) fn of_each(places: Places) -> Vec<Home> {
        let home = |(place, files)| Home { place, version: None, can_start: None, written_s: 0, files };
        places.into_iter().map(home).collect()
    }

    /// One for each directory that files are in.
    pub(crate) fn by_directory(files: Vec<DataFile>) -> Vec<Home> {
        let mut places = Places::new();
        files.into_iter().for_each(|file| places.entry(up(&file.path).to_owned()).or_default().push(file));
        Home::of_each(places)
    }

    /// The server that lives there.
    pub(crate) fn server(self, engine: Engine) -> Server {
        Server { engine, instance: self.place, version: self.version, files: self.files }
    }
}

/// A database whose files are known by their paths.
pub(crate) trait DataFiles: Sync {
    /// Whether a file is its own, by its path.
    fn claims(&self, path: &FilePath<'_>) -> Option<Claim>;

    /// Puts its files of a file system to where their servers live, in order of place.
    fn homes<'a>(&'a self, source: &'a mut Source<'_>, files: Vec<DataFile>) -> Work<'a, Vec<Home>>;

    /// The servers of homes, when of hard links one is left.
    fn servers(&self, homes: Vec<Home>) -> Vec<Server>;

    /// Finds version, evidence and objects of a server.
    fn discover<'a>(&'a self, source: &'a mut Source<'_>, server: Server, findings: Findings<'a>) -> Work<'a, ()>;

    /// An empty catalogue, for the names in pages of one instance.
    fn catalogue(&self) -> Box<dyn Catalogue>;
}
