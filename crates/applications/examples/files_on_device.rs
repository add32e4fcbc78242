//! Files of databases on a device or an image, read raw, and where they lie. Writes nothing.
//!
//! `cargo run --release -p applications --example files_on_device -- DEVICE`

use applications::filesystems::{FileSystem, Limits, starts};
use std::os::unix::fs::FileExt;

fn main() -> std::io::Result<()> {
    for path in std::env::args().skip(1) {
        let device = std::fs::File::open(&path)?;
        let mut read = |offset, bytes: &mut [u8]| device.read_exact_at(bytes, offset).is_ok();
        for start in starts(&mut read) {
            let file_system = match FileSystem::open(&mut read, start) {
                Ok(file_system) => file_system,
                Err(refused) => {
                    eprintln!("{path} at {start}: {refused}");
                    continue;
                }
            };
            let found = file_system.data_files(&mut read, &Limits::default());
            for file in &found.files {
                println!("{}\t{:?}\t{}\t{:?}", file.path, file.engine, file.bytes, file.extents);
            }
            let (directories, read, end) = (found.directories, found.bytes_read, if found.complete { "all" } else { "in part" });
            eprintln!("{path} at {start}: {} files in {directories} directories, {read} bytes read, searched {end}", found.files.len());
        }
    }
    Ok(())
}
