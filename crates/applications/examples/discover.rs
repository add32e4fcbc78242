//! Applications, databases and objects on a device or an image, read raw. Writes nothing.
//!
//! `cargo run --release -p applications --example discover -- IMAGE_OR_DEVICE`

use applications::discovery::{Discovery, Found, Object};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;

fn main() -> std::io::Result<()> {
    for path in std::env::args().skip(1) {
        let mut device = std::fs::File::open(&path)?;
        let mut discovery = Discovery::new(device.seek(SeekFrom::End(0))?);
        let (mut reads, mut bytes) = (0u64, Vec::new());
        let begun = std::time::Instant::now();
        while let Some(read) = discovery.next() {
            bytes.resize(read.len_bytes, 0);
            let can = device.read_exact_at(&mut bytes, read.offset_bytes).is_ok();
            discovery.give(read.offset_bytes, if can { Ok(&bytes) } else { Err(()) });
            reads += 1;
        }
        let found = discovery.finish();
        print(&found);
        let end = if found.complete { "all" } else { "not all" };
        eprintln!(
            "{path}: {end} of it found in {} reads of {} bytes together, {:.3} s; {} objects, {} extents, {} bytes of memory for the map",
            reads,
            found.bytes_read,
            begun.elapsed().as_secs_f64(),
            found.objects.len(),
            found.map.count(),
            found.map.bytes()
        );
    }
    Ok(())
}

fn print(found: &Found) {
    for application in &found.applications {
        let instance = application.instance.as_deref().map_or_else(|| "no known file system".to_owned(), |path| format!("/{path}"));
        let version = application.version.as_deref().unwrap_or("version not known");
        println!("{} {instance} at {}: {version}; by {}", application.engine.title(), application.start_bytes, application.evidence);
        for database in found.databases.iter().filter(|database| database.application == application.id) {
            println!("  database {}: {} objects, {} bytes", database.name, database.objects, database.bytes);
        }
        for object in found.objects.iter().filter(|object| object.application == application.id) {
            println!("    {}", line(found, object));
        }
    }
    for blind in &found.blind {
        println!("{}..{}: no names: {}", blind.bytes.start, blind.bytes.end, blind.reason);
        for seen in &blind.seen {
            let (engine, pages, looks) = (seen.engine.title(), seen.pages, seen.looks);
            println!("    {engine} pages in {}..{} ({pages} pages in {looks} looks)", seen.bytes.start, seen.bytes.end);
        }
    }
}

fn line(found: &Found, object: &Object) -> String {
    let place = match object.within.and_then(|id| found.object(id)) {
        Some(other) => format!("within {}", other.name),
        None => format!("{} bytes in {} extents", object.bytes, object.extents),
    };
    let encrypted = if object.encrypted { ", encrypted" } else { "" };
    let (kind, key, evidence) = (object.kind.name(), &object.key, object.evidence);
    format!("{:10} {kind:10} {} [{key}] {place}{encrypted}; by {evidence}", object.id.0, object.name)
}
