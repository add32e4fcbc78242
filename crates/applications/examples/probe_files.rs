//! What the recogniser says of every 4 KiB of the files under some directories: for counting false
//! findings in files that hold no database.
//!
//! `cargo run --release -p applications --example probe_files -- /usr`

use applications::{STEP_BYTES, examine, recognise};
use std::collections::BTreeMap;
use std::path::Path;

/// Bytes that are seen from each place: the largest page.
const WINDOW_BYTES: usize = 65536;

fn main() {
    let (mut blocks, mut found) = (0u64, BTreeMap::new());
    for root in std::env::args().skip(1) {
        visit(Path::new(&root), &mut |path| {
            let Ok(bytes) = std::fs::read(path) else { return };
            for at in (0..bytes.len()).step_by(STEP_BYTES) {
                blocks += 1;
                let window = &bytes[at..bytes.len().min(at + WINDOW_BYTES)];
                for (depth, page) in [("head", recognise(&window[..window.len().min(STEP_BYTES)])), ("whole", examine(window))] {
                    let Some(page) = page else { continue };
                    *found.entry(format!("{depth} {} {:?}", page.engine.facts().name, page.certainty)).or_insert(0u64) += 1;
                    if page.certainty != applications::Certainty::Suspect || found.values().sum::<u64>() < 50 {
                        println!("{} at {at}: {depth} {page:?}", path.display());
                    }
                }
            }
        });
    }
    println!("{blocks} blocks: {found:#?}");
}

/// All regular files below a directory; links are not followed.
fn visit(path: &Path, each: &mut dyn FnMut(&Path)) {
    let Ok(about) = std::fs::symlink_metadata(path) else { return };
    if about.is_file() {
        each(path);
    } else if about.is_dir() {
        let Ok(entries) = std::fs::read_dir(path) else { return };
        entries.flatten().for_each(|entry| visit(&entry.path(), each));
    }
}
