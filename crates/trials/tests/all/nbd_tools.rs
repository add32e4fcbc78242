//! The NBD export of a cached volume speaks to what others use: libnbd's tools and Python binding, qemu-img and qemu-io.

use trials::needs::{Need, met};
use trials::place::{LONG, Place, SHORT};

const VOLUME_MIB: u64 = 64;

/// A running daemon with a write-back volume, for one tool.
fn offered(trial: &str) -> (Place, String, String) {
    let mut place = Place::new(trial);
    place.start();
    place.pool(64, 8);
    let (volume, exports) = place.volume(VOLUME_MIB, "write-back", &["--export", "nbd"]);
    (place, volume, exports.nbd_uri)
}

#[test]
fn nbdinfo_sees_what_is_offered() {
    if !met("nbdinfo_sees_what_is_offered", &[Need::Program("nbdinfo")]) {
        return;
    }
    let (mut place, volume, uri) = offered("nbdinfo");
    let info: serde_json::Value = serde_json::from_str(&place.must_tool(&["nbdinfo", "--json", &uri], SHORT)).expect("it is JSON");
    assert_eq!(info["protocol"], "newstyle-fixed", "{info:#}");
    assert_eq!(info["structured"], true, "{info:#}");
    let export = &info["exports"][0];
    assert_eq!(export["export-name"], volume.as_str(), "{export:#}");
    assert_eq!(export["export-size"], VOLUME_MIB << 20, "{export:#}");
    for able in ["can_flush", "can_fua", "can_trim", "can_zero", "can_multi_conn"] {
        assert_eq!(export[able], true, "{able}: {export:#}");
    }
    assert_eq!(export["is_read_only"], false, "{export:#}");
    let list = place.must_tool(&["nbdinfo", "--list", "--json", &uri], SHORT);
    assert!(list.contains(&volume), "{list}");
    let map = place.must_tool(&["nbdinfo", "--map", "--json", &uri], SHORT);
    let map: serde_json::Value = serde_json::from_str(&map).expect("it is JSON");
    let bytes: u64 = map.as_array().expect("a list of ranges").iter().map(|range| range["length"].as_u64().expect("bytes")).sum();
    assert_eq!(bytes, VOLUME_MIB << 20, "the block status leaves gaps: {map:#}");
    place.stop();
}

#[test]
fn nbdcopy_there_and_back() {
    if !met("nbdcopy_there_and_back", &[Need::Program("nbdcopy"), Need::Program("cmp")]) {
        return;
    }
    let (mut place, volume, uri) = offered("nbdcopy");
    let source = image(&place);
    place.must_tool(&["nbdcopy", "--flush", &source, &uri], LONG);
    let back = place.path("back.img");
    place.must_tool(&["nbdcopy", "--connections=4", "--requests=16", &uri, &back], LONG);
    place.must_tool(&["cmp", &source, &back], LONG);
    // The same after a restart, from the cache, and from the backing file alone.
    place.stop();
    place.start();
    let uri = place.exports(&volume).nbd_uri;
    place.must_tool(&["nbdcopy", &uri, &back], LONG);
    place.must_tool(&["cmp", &source, &back], LONG);
    place.must(&["volume", "destage", &volume]);
    place.stop();
    place.must_tool(&["cmp", &source, &place.path("backing.img")], LONG);
}

#[test]
fn qemu_img_converts_and_compares() {
    if !met("qemu_img_converts_and_compares", &[Need::Program("qemu-img"), Need::Program("cmp")]) {
        return;
    }
    let (mut place, _volume, uri) = offered("qemuimg");
    let source = image(&place);
    let info = place.must_tool(&["qemu-img", "info", "--output=json", &uri], SHORT);
    let info: serde_json::Value = serde_json::from_str(&info).expect("it is JSON");
    assert_eq!(info["virtual-size"], VOLUME_MIB << 20, "{info:#}");
    // -n: into the volume that is there; without cache, so that flushes and zeroes reach the export.
    place.must_tool(&["qemu-img", "convert", "-n", "-t", "none", "-m", "8", "-W", "-f", "raw", "-O", "raw", &source, &uri], LONG);
    place.must_tool(&["qemu-img", "compare", "-f", "raw", "-F", "raw", &source, &uri], LONG);
    let copy = place.path("copy.qcow2");
    place.must_tool(&["qemu-img", "convert", "-f", "raw", "-O", "qcow2", &uri, &copy], LONG);
    place.must_tool(&["qemu-img", "check", &copy], LONG);
    place.must_tool(&["qemu-img", "compare", "-f", "qcow2", "-F", "raw", &copy, &source], LONG);
    place.stop();
}

#[test]
fn qemu_io_patterns() {
    if !met("qemu_io_patterns", &[Need::Program("qemu-io")]) {
        return;
    }
    let (mut place, _volume, uri) = offered("qemuio");
    // Writes of odd sizes, with FUA, zeroes and discards; each is read back with the pattern it must have, over several requests in flight.
    let commands = [
        "write -P 0x11 0 1M",
        "write -P 0x22 512 512",
        "write -f -P 0x33 6656 8704",
        "write -P 0x44 1048064 1024",
        "flush",
        "read -P 0x11 0 512",
        "read -P 0x22 512 512",
        "read -P 0x11 1024 5632",
        "read -P 0x33 6656 8704",
        "read -P 0x44 1048064 1024",
        "read -P 0 1049088 512",
        "write -z 8192 4096",
        "read -P 0 8192 4096",
        "read -P 0x33 7168 1024",
        "read -P 0x33 12288 3072",
        "write -z -u 65536 262144",
        "read -P 0 65536 262144",
        "discard 524288 65536",
        "read 524288 65536",
        "aio_write -P 0x55 2M 64k",
        "aio_write -P 0x66 3M 64k",
        "aio_write -P 0x77 4M 2M",
        "aio_flush",
        "read -P 0x55 2M 64k",
        "read -P 0x66 3M 64k",
        "read -P 0x77 4M 2M",
        "write -P 0x88 67108352 512",
        "read -P 0x88 67108352 512",
    ];
    let mut words = vec!["qemu-io", "-f", "raw", "-t", "none"];
    words.extend(commands.iter().flat_map(|command| ["-c", command]));
    words.push(&uri);
    let ended = place.tool(&words, LONG);
    let said = format!("{}{}", ended.stdout, ended.stderr);
    assert!(ended.good() && !said.contains("ailed") && !said.contains("rror"), "{ended:#?}");
    let beyond = place.tool(&["qemu-io", "-f", "raw", "-c", "read 64M 512", &uri], SHORT);
    assert!(!beyond.good(), "a read beyond the end succeeded: {beyond:#?}");
    place.stop();
}

#[test]
fn python_binding_of_libnbd() {
    if !met("python_binding_of_libnbd", &[Need::PythonModule("nbd")]) {
        return;
    }
    let (mut place, volume, uri) = offered("libnbd");
    let script = place.path("client.py");
    std::fs::write(&script, PYTHON).expect("there is room");
    let python = "/usr/bin/python3";
    let said = place.must_tool(&[python, &script, &uri, &(VOLUME_MIB << 20).to_string()], LONG);
    assert_eq!(said, "all as written\n");
    assert_eq!(place.counter(&volume, "checksum_errors"), 0);
    place.stop();
}

/// Two connections; 64 requests in flight on one; every command of the protocol that is offered; refusals that must be refusals.
const PYTHON: &str = r#"
import errno, sys, nbd

uri, size = sys.argv[1], int(sys.argv[2])
one, two = nbd.NBD(), nbd.NBD()
one.add_meta_context("base:allocation")
for handle in (one, two):
    handle.set_strict_mode(0)
    handle.connect_uri(uri)
assert one.get_size() == size, one.get_size()
assert one.can_multi_conn() and one.can_fua() and one.can_trim() and one.can_zero() and one.can_flush()
assert one.get_structured_replies_negotiated()

# What one connection wrote and was answered, the other reads.
data = bytes(range(256)) * 32
one.pwrite(data, 4096 * 5 + 512)
assert two.pread(len(data), 4096 * 5 + 512) == data
two.pwrite(b"\xa5" * 4096, 8192, nbd.CMD_FLAG_FUA)
two.flush()
assert one.pread(4096, 8192) == b"\xa5" * 4096
one.zero(4096, 8192)
assert two.pread(4096, 8192) == bytes(4096)
one.zero(65536, 1 << 20, nbd.CMD_FLAG_NO_HOLE)
assert two.pread(65536, 1 << 20) == bytes(65536)
one.trim(65536, 2 << 20)
two.pread(65536, 2 << 20)

# Many in flight, answered in any order, each with its own data.
def finish(cookies):
    while cookies:
        one.poll(-1)
        cookies = [c for c in cookies if not one.aio_command_completed(c)]

buffers = [nbd.Buffer.from_bytearray(bytearray([n + 1]) * 16384) for n in range(64)]
finish([one.aio_pwrite(buffer, (8 << 20) + 16384 * n) for n, buffer in enumerate(buffers)])
answers = [nbd.Buffer(16384) for _ in range(64)]
finish([one.aio_pread(answer, (8 << 20) + 16384 * n) for n, answer in enumerate(answers)])
for n, answer in enumerate(answers):
    assert bytes(answer.to_bytearray()) == bytes([n + 1]) * 16384, n

# Block status covers what was asked, without gaps and overlaps.
covered = []
one.block_status(size, 0, lambda context, offset, entries, error: covered.extend(entries[0::2]) or 0)
assert covered and all(length > 0 for length in covered) and sum(covered) <= size, covered

# What cannot be is refused, and the connection lives on.
for refused in (lambda: one.pread(512, size), lambda: one.pwrite(b"x" * 512, size), lambda: one.pread(1024, size - 512),
                lambda: one.pwrite(b"x" * 1024, size - 512), lambda: one.zero(512, size), lambda: one.trim(512, 1 << 62)):
    try:
        refused()
    except nbd.Error as error:
        assert error.errnum in (errno.EINVAL, errno.ENOSPC), error
    else:
        raise AssertionError("a request beyond the end was answered as if it were well")
assert one.pread(len(data), 4096 * 5 + 512) == data
one.shutdown()
two.shutdown()
print("all as written")
"#;

/// Data, holes and data again; the same in every run.
fn image(place: &Place) -> String {
    let path = place.file("source.img", VOLUME_MIB << 20);
    let mut dice = trials::registers::Dice::new(0x1D4A_11CE);
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("it was just made");
    for mib in (0..VOLUME_MIB).filter(|mib| mib % 3 != 1) {
        let chunk: Vec<u8> = (0..(1 << 20) / 8).flat_map(|_| dice.below(u64::MAX).to_le_bytes()).collect();
        std::os::unix::fs::FileExt::write_all_at(&file, &chunk, mib << 20).expect("there is room");
    }
    path
}
