//! The export as everyday tools see it: libnbd's programs and Python binding, qemu's, and fio. A tool that is not installed
//! is skipped, and said so.

use crate::common::random::Random;
use crate::common::{Fixture, VOLUME_BYTES, open_volume, run};
use nbd::ExportOptions;
use std::path::Path;

/// A file of random data with holes, as large as the volume.
fn source_file(path: &str) {
    let mut random = Random(11);
    let mut data = vec![0; VOLUME_BYTES as usize];
    for extent in data.chunks_mut(1 << 20) {
        match random.below(3) {
            0 => (),
            1 => extent.copy_from_slice(&random.bytes(1 << 20)),
            _ => extent[4096..12288].copy_from_slice(&random.bytes(8192)),
        }
    }
    std::fs::write(path, data).unwrap();
}

fn assert_same(one: &str, other: &str) {
    assert!(std::fs::read(one).unwrap() == std::fs::read(other).unwrap(), "{one} and {other} differ");
}

#[test]
fn nbdinfo_reads_every_fact() {
    let fixture = Fixture::new();
    let Some(text) = run("nbdinfo", &["--json", &fixture.uri()]) else { return };
    for fact in [
        "\"protocol\": \"newstyle-fixed\"",
        "\"structured\": true",
        "\"export-size\": 67108864",
        "\"can_multi_conn\": true",
        "\"can_fua\": true",
        "\"can_flush\": true",
        "\"can_trim\": true",
        "\"can_zero\": true",
        "\"can_df\": true",
        "\"is_read_only\": false",
        "\"block_size_minimum\": 512",
        "\"block_size_preferred\": 4096",
        "\"block_size_maximum\": 33554432",
        "base:allocation",
    ] {
        assert!(text.contains(fact), "{fact} is missing in {text}");
    }
    let map = run("nbdinfo", &["--map", &fixture.uri()]).expect("ran before");
    assert!(map.contains("67108864") && map.contains("data"), "{map}");
}

#[test]
fn nbdinfo_lists_exports_of_odd_names() {
    let fixture = Fixture::new();
    let other = open_volume(fixture.runtime(), &fixture.dir, "other.img");
    let options = ExportOptions { description: "the other".into(), read_only: true, ..ExportOptions::default() };
    fixture.server().add_export("ü & co/2?", other, options).unwrap();
    let Some(text) = run("nbdinfo", &["--list", "--json", &fixture.server().uri("")]) else { return };
    assert!(text.contains("\"export-name\": \"disk\"") && text.contains("the other"), "{text}");
    let size = run("nbdinfo", &["--size", &fixture.server().uri("ü & co/2?")]).expect("ran before");
    assert_eq!(size.trim(), VOLUME_BYTES.to_string());
}

#[test]
fn nbdcopy_brings_a_file_in_and_out() {
    let fixture = Fixture::new();
    let (source, copy) = (fixture.path("source"), fixture.path("copy"));
    source_file(&source);
    for extra in [&["--connections=4", "--requests=64"][..], &["--synchronous"], &["--request-size=33554432"]] {
        let arguments = |from, to| [extra, &["--flush", from, to]].concat();
        let uri = fixture.uri();
        if run("nbdcopy", &arguments(&source, &uri)).is_none() {
            return;
        }
        run("nbdcopy", &arguments(&uri, &copy)).expect("ran before");
        assert_same(&source, &copy);
        std::fs::remove_file(&copy).unwrap();
    }
}

#[test]
fn qemu_img_converts_compares_and_maps() {
    let fixture = Fixture::new();
    let (source, copy) = (fixture.path("source"), fixture.path("copy"));
    source_file(&source);
    let uri = fixture.uri();
    let convert_in = ["convert", "-n", "-f", "raw", "-O", "raw", "-W", "-m", "16", &source, &uri];
    if run("qemu-img", &convert_in).is_none() {
        return;
    }
    run("qemu-img", &["compare", "-f", "raw", "-F", "raw", &source, &uri]).unwrap();
    run("qemu-img", &["convert", "-f", "raw", "-O", "raw", &uri, &copy]).unwrap();
    assert_same(&source, &copy);
    let map = run("qemu-img", &["map", "-f", "raw", "--output=json", &uri]).unwrap();
    assert!(map.contains("\"length\": 67108864") && map.contains("\"data\": true"), "{map}");
}

#[test]
fn qemu_io_writes_patterns_at_odd_places() {
    let fixture = Fixture::new();
    let uri = fixture.uri();
    let commands = [
        "aio_write -P 0x11 512 1536",
        "aio_write -P 0x22 1M 3M",
        "aio_write -f -P 0x33 8389120 65536",
        "aio_flush",
        "write -z 2M 64k",
        "write -z -u 2162688 64k",
        "discard 4M 1M",
        "flush",
        "read -P 0x11 512 1536",
        "read -P 0x22 1M 1M",
        "read -P 0 2M 128k",
        "read -P 0x22 2228224 64k",
        "read -P 0x33 8389120 65536",
    ];
    let mut arguments = vec!["-f", "raw"];
    commands.iter().for_each(|command| arguments.extend(["-c", command]));
    arguments.push(&uri);
    let Some(text) = run("qemu-io", &arguments) else { return };
    assert!(!text.contains("failed"), "{text}");
}

#[test]
fn fio_verifies_what_it_wrote() {
    let fixture = Fixture::new();
    for (name, extra) in [
        ("random", &["--rw=randwrite", "--bs=4k", "--iodepth=32", "--numjobs=4", "--size=8m", "--offset_increment=8m"][..]),
        ("mixed sizes", &["--rw=randwrite", "--bsrange=512-128k", "--blockalign=512", "--iodepth=16", "--size=32m"]),
        ("flushes", &["--rw=write", "--bs=64k", "--fsync=8", "--iodepth=4", "--size=32m"]),
    ] {
        let uri = format!("--uri={}", fixture.uri());
        let common = ["--name=verify", "--ioengine=nbd", &uri, "--verify=crc32c", "--verify_fatal=1", "--do_verify=1", "--minimal"];
        // fio leaves state files in the current directory unless told not to.
        let arguments = [&common[..], &["--verify_state_save=0"], extra].concat();
        let Some(text) = run("fio", &arguments) else { return };
        assert!(!text.contains("verify:"), "{name}: {text}");
    }
}

#[test]
fn the_python_binding_sees_the_protocol_s_corners() {
    let python = "/usr/bin/python3";
    if !Path::new(python).exists() || run_quietly(python, &["-c", "import nbd"]).is_none() {
        eprintln!("skipped: python3 has no nbd module");
        return;
    }
    let fixture = Fixture::new();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corners.py");
    let text = run(python, &[script, fixture.socket.to_str().unwrap(), "disk"]).expect("ran before");
    assert!(text.trim_end().ends_with("all corners seen"), "{text}");
}

/// As [`run`], for a program that may fail.
fn run_quietly(program: &str, arguments: &[&str]) -> Option<()> {
    let output = std::process::Command::new(program).args(arguments).output().ok()?;
    output.status.success().then_some(())
}
