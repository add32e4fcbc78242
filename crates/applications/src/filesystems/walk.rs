//! The walk over a file system's directories, in search of files of databases.

use super::pieces::Pieces;
use super::{DataFile, FileExtent, Found, Limits, ext4, xfs};
use crate::dialects::{self, Claim, claim, is_digits};
use std::collections::{HashSet, VecDeque};

/// Names of directories below one another that are followed; a path has 4096 bytes.
const DEPTH_MAX: usize = 32;
/// Bytes of all paths that are held at a time: a host of 100,000 directories has some 5 MiB.
const PATHS_BYTES_MAX: usize = 16 << 20;
/// Bytes of the names that are held of one directory, and what each takes beside its own: 200,000
/// names of directories. Those of files are held only if they may be a database's.
const NAMES_BYTES_MAX: usize = 16 << 20;
const NAME_BYTES: usize = 64;

/// Files that are taken of a sort that an archive may have many of: of segments of logs a busy server has some hundreds.
const CLAIMED_SOME_MAX: usize = 1024;

/// A file or directory in a directory.
pub(super) struct Entry {
    pub(super) inode: u64,
    pub(super) name: String,
    pub(super) is_directory: bool,
}

/// Which names of a directory are held: a hostile one of 64 MiB has millions.
pub(super) struct Names<'a> {
    /// The path of the directory.
    path: &'a str,
    bytes: usize,
    /// Whether there were more than may be held.
    pub(super) is_full: bool,
}

impl<'a> Names<'a> {
    pub(super) fn of(path: &'a str) -> Names<'a> {
        Names { path, bytes: 0, is_full: false }
    }

    /// Whether a name is to be held: of a file if its path says that it may be a database's, and of
    /// a directory, or of what is not known yet, in any case.
    pub(super) fn takes(&mut self, name: &str, is_file: bool) -> bool {
        if is_file && claim(&below(self.path, name)).is_none() {
            return false;
        }
        let bytes = self.bytes + NAME_BYTES + name.len();
        self.is_full |= bytes > NAMES_BYTES_MAX;
        if !self.is_full {
            self.bytes = bytes;
        }
        !self.is_full
    }
}

/// The path of what has that name in a directory.
fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") }
}

/// A file system as the walk sees it. What cannot be read is left out, and the pieces have failed.
pub(super) enum Tree<'a> {
    Ext4(ext4::Reader<'a>),
    Xfs(xfs::Reader<'a>),
}

impl<'a> Tree<'a> {
    /// The bytes that it reads, with what is left of the limits.
    fn pieces(&mut self) -> &mut Pieces<'a> {
        match self {
            Tree::Ext4(reader) => &mut reader.pieces,
            Tree::Xfs(reader) => &mut reader.pieces,
        }
    }

    /// The directories, and the files that may be of a database, in the directory of that path;
    /// empty if it is none.
    async fn directory(&mut self, number: u64, path: &str) -> Vec<Entry> {
        let mut names = Names::of(path);
        let entries = match self {
            Tree::Ext4(reader) => reader.directory(number, &mut names).await,
            Tree::Xfs(reader) => reader.directory(number, &mut names).await,
        };
        self.pieces().failed |= names.is_full;
        entries
    }

    /// Size and extents of a regular file, the extents in file order; `None` if it is none, or does
    /// not lie on the volume.
    async fn file(&mut self, number: u64) -> Option<(u64, Vec<FileExtent>)> {
        match self {
            Tree::Ext4(reader) => reader.file(number).await,
            Tree::Xfs(reader) => reader.file(number).await,
        }
    }
}

/// Files of databases below a directory, with where they lie. Directories that usually hold them
/// are looked into first.
pub(super) async fn walk(mut tree: Tree<'_>, root: u64, limits: &Limits) -> Found {
    let mut found = Found::default();
    let mut seen = HashSet::from([root]);
    let mut waiting = VecDeque::from([(root, String::new(), 0)]);
    let (mut paths_bytes, mut claimed_some) = (0, 0);
    while let Some((number, path, depth)) = waiting.pop_front() {
        paths_bytes -= path.len();
        if found.directories >= limits.directories || tree.pieces().bytes_left == 0 {
            tree.pieces().failed = true;
            break;
        }
        found.directories += 1;
        for entry in tree.directory(number, &path).await {
            let path = below(&path, &entry.name);
            // Long names far down would take a gigabyte otherwise.
            let has_room = paths_bytes + path.len() <= PATHS_BYTES_MAX;
            if entry.is_directory {
                tree.pieces().failed |= !has_room;
                if has_room && depth < DEPTH_MAX && seen.len() < 2 * limits.directories && seen.insert(entry.inode) {
                    paths_bytes += path.len();
                    let place = if is_likely(&path) { VecDeque::push_front } else { VecDeque::push_back };
                    place(&mut waiting, (entry.inode, path, depth + 1));
                }
            } else if let Some((engine, claim)) = claim(&path) {
                if found.files.len() >= limits.files || !has_room {
                    tree.pieces().failed = true;
                    break;
                }
                claimed_some += usize::from(claim == Claim::Some);
                if claim == Claim::Some && claimed_some > CLAIMED_SOME_MAX {
                    continue;
                }
                if let Some((bytes, extents)) = tree.file(entry.inode).await {
                    paths_bytes += path.len();
                    found.files.push(DataFile { path, engine, inode: entry.inode, bytes, extents });
                }
            }
        }
    }
    found.bytes_read = limits.bytes - tree.pieces().bytes_left;
    found.complete = !tree.pieces().failed;
    found
}

/// Whether files of databases are often below a directory of that name.
fn is_likely(path: &str) -> bool {
    let is_usual = |name: &str| ["var", "lib"].contains(&name) || dialects::facts().any(|facts| facts.directories.contains(&name));
    path.rsplit('/').next().is_some_and(|name| is_usual(name) || is_digits(name))
}
