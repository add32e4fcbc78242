//! From a raw volume to names: files found in an ext4 image, the parts of them that hold names read
//! by their extents, and every page of every table named. Needs `../shared/pages` and `mkfs.ext4`.

use crate::common::images::servers;
use applications::filesystems::ext4::Ext4;
use applications::filesystems::{DataFile, Limits};
use applications::naming::{Dictionary, NativeKey};
use applications::{Engine, Native, pages};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a file, read off the image by its extents.
fn bytes_of(image: &[u8], file: &DataFile, range: &std::ops::Range<u64>) -> Vec<u8> {
    let mut bytes = vec![0; (range.end - range.start) as usize];
    for extent in file.extents.iter().filter(|extent| extent.written) {
        let (start, end) = (extent.file_offset.max(range.start), (extent.file_offset + extent.bytes).min(range.end));
        if start < end {
            let from = (extent.volume_offset + start - extent.file_offset) as usize;
            let to = (start - range.start) as usize;
            bytes[to..to + (end - start) as usize].copy_from_slice(&image[from..from + (end - start) as usize]);
        }
    }
    bytes
}

/// What the ids of a file mean something in: a server, of PostgreSQL a database, of SQL Server the file.
fn instance(file: &DataFile) -> &str {
    let up = |path| str::rsplit_once(path, '/').map_or("", |(above, _)| above);
    let is_table = file.path.ends_with(".ibd") && !file.path.ends_with("mysql.ibd");
    if file.engine == Engine::Mssql { &file.path } else { up(if is_table { up(&file.path) } else { &file.path }) }
}

#[test]
fn every_table_of_five_servers_is_named_from_the_raw_volume() {
    let Some(image) = servers(|_| {}) else { return };
    let mut read = |offset: u64, bytes: &mut [u8]| {
        bytes.copy_from_slice(&image[offset as usize..offset as usize + bytes.len()]);
        true
    };
    let file_system = Ext4::open(&mut read, 0).expect("a file system");
    let found = file_system.data_files(&mut read, &Limits::default());
    let mut instances: BTreeMap<&str, Vec<&DataFile>> = BTreeMap::new();
    for file in &found.files {
        instances.entry(instance(file)).or_default().push(file);
    }
    println!("{:?}", instances.keys());
    assert_eq!(instances.len(), 6);
    for (instance, files) in instances {
        let (mut dictionary, mut bytes_read) = (Dictionary::new(), 0);
        for round in 0..3 {
            for file in &files {
                let Some(wanted) = dictionary.wants(file).filter(|wanted| wanted.round == round) else { continue };
                let bytes = bytes_of(&image, file, &wanted.range);
                bytes_read += bytes.len();
                for (at, page) in pages(&bytes) {
                    dictionary.page(&page, &bytes[at..], wanted.range.start + at as u64);
                }
            }
        }
        let names: BTreeMap<NativeKey, _> = dictionary.names().map(|name| (name.key, name)).collect();
        // What pages of this instance's files say that they are of.
        let mut keys = BTreeSet::new();
        for file in &files {
            for (_, page) in pages(&bytes_of(&image, file, &(0..file.bytes))) {
                match page.native {
                    Native::Innodb(identity) => {
                        if let (Some(space), Some(index)) = (identity.space, identity.index.filter(|index| *index != u64::MAX)) {
                            keys.insert(NativeKey(space, index));
                        }
                    }
                    Native::Mssql(identity) if identity.index >= 256 && identity.page_type != 10 => {
                        keys.insert(NativeKey(0, identity.allocation_unit()));
                    }
                    _ => {}
                }
            }
            // A relation's file is called by its number.
            let name = file.path.rsplit('/').next().and_then(|name| name.split(['.', '_']).next());
            if let (Engine::Postgres, Some(file)) = (file.engine, name.and_then(|name| name.parse::<u32>().ok())) {
                keys.insert(NativeKey(0, file.into()));
            }
        }
        let unnamed: Vec<_> = keys.iter().filter(|key| !names.contains_key(key)).collect();
        println!(
            "{instance}: {} files, {bytes_read} bytes read, {} of {} objects named, {} conflicts",
            files.len(),
            keys.len() - unnamed.len(),
            keys.len(),
            dictionary.conflicts()
        );
        assert!(unnamed.is_empty(), "{instance}: {unnamed:?}");
        assert!(keys.len() > 5 && dictionary.conflicts() == 0, "{instance}");
    }
}
