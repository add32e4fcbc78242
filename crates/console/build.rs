//! Embeds what `make console` left in `console/dist`, each file with its compressed form; or one page that says how to make it.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let manifest = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let out = env::var("OUT_DIR").expect("cargo sets it");
    let dist = Path::new(&manifest).join("../../console/dist");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/absent.html");
    // The directory is part of the repository, empty: a path that is not there would be looked for at every build.
    println!("cargo::rerun-if-changed={}", dist.display());

    let mut table = String::from("pub(crate) static FILES: &[File] = &[\n");
    let built = dist.join("index.html").is_file();
    if built {
        for entry in fs::read_dir(&dist)? {
            let name = entry?.file_name().into_string().map_err(|_| io::Error::other("a file in console/dist has a strange name"))?;
            if name.starts_with('.') || name.ends_with(".br") {
                continue;
            }
            let compressed = dist.join(format!("{name}.br"));
            embed(&mut table, Path::new(&out), &name, &dist.join(&name), compressed.is_file().then_some(compressed.as_path()))?;
        }
    } else {
        embed(&mut table, Path::new(&out), "index.html", &Path::new(&manifest).join("src/absent.html"), None)?;
    }
    table.push_str("];\n");
    writeln!(table, "pub(crate) const BUILT: bool = {built};").expect("a string takes it");
    fs::write(Path::new(&out).join("files.rs"), table)
}

/// Copies a file beside the generated table, so that the table names no path of this machine, and adds its line.
fn embed(table: &mut String, out: &Path, name: &str, file: &Path, compressed: Option<&Path>) -> io::Result<()> {
    let bytes = fs::read(file)?;
    fs::write(out.join(name), &bytes)?;
    let mut small = String::from("None");
    if let Some(compressed) = compressed {
        fs::copy(compressed, out.join(format!("{name}.br")))?;
        small = format!("Some(include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{name}.br\")))");
    }
    let etag = fnv(&bytes);
    writeln!(
        table,
        "    File {{ name: {name:?}, bytes: include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{name}\")), brotli: {small}, etag: \"\\\"{etag:016x}\\\"\" }},"
    )
    .expect("a string takes it");
    Ok(())
}

/// FNV-1a: tells one build's file from another's, and guards against nothing.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
