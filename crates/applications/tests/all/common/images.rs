//! Servers' files, and images of ext4 file systems with them.

use super::archive;
use std::collections::BTreeMap;
use std::process::Command;

/// Files by path.
pub type Files = BTreeMap<String, Vec<u8>>;

/// An image of 96 MiB with those files; `None`, with a message, where there is no `mkfs.ext4`.
pub fn image(files: &Files) -> Option<Vec<u8>> {
    image_with_links(files, &[])
}

/// The same with hard links: a path, and the file that it leads to as well.
pub fn image_with_links(files: &Files, links: &[(&str, &str)]) -> Option<Vec<u8>> {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path().join("root");
    for (path, bytes) in files {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        std::fs::write(path, bytes).expect("written");
    }
    for (path, to) in links {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        std::fs::hard_link(root.join(to), path).expect("linked");
    }
    let image = directory.path().join("image");
    let made = Command::new("mkfs.ext4").args(["-q", "-F", "-b", "4096", "-d"]).arg(&root).arg(&image).arg("96M").output();
    match made {
        Ok(output) if output.status.success() => Some(std::fs::read(image).expect("an image")),
        Ok(output) => panic!("mkfs.ext4: {}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => {
            println!("skipped: mkfs.ext4: {error}");
            None
        }
    }
}

/// An image with a MariaDB, a MySQL 8.0, a MySQL 8.4, a PostgreSQL and a SQL Server side by side,
/// and what is done to the files before.
pub fn servers(change: impl FnOnce(&mut Files)) -> Option<Vec<u8>> {
    let mut files = files_of_servers()?;
    change(&mut files);
    image(&files)
}

/// The files of these servers; `None`, with a message, where the samples are missing.
pub fn files_of_servers() -> Option<Files> {
    let mut files = Files::new();
    for (path, bytes) in archive("mariadb-10.11")?.into_iter().filter(|(path, _)| path.ends_with(".ibd") || path == "ibdata1") {
        files.insert(format!("var/lib/mysql/{path}"), bytes);
    }
    for (path, bytes) in archive("mysql-8")?.into_iter().filter(|(path, _)| path.starts_with("8.") && path.ends_with(".ibd")) {
        let (version, file) = path.split_once('/').expect("a version");
        files.insert(format!("srv/mysql-{version}/sakila/{file}"), bytes);
    }
    for (path, bytes) in archive("postgresql-15")?.into_iter().filter(|(path, _)| path.starts_with("base/")) {
        files.insert(format!("var/lib/postgresql/15/main/{path}"), bytes);
    }
    for (path, bytes) in archive("sqlserver")?.into_iter().filter(|(path, _)| path.contains(".mdf")) {
        files.insert(format!("data/{}.mdf", path.split('.').next().expect("a name")), bytes);
    }
    Some(files)
}
