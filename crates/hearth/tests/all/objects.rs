//! Applications and objects of a volume, from its blocks alone: `hearth app`, `hearth object`, and what `hearth why` says of them.
//! Needs `../shared/pages`, `tar` and `mkfs.ext4`.

use crate::support;
use crate::support::nbd::Client;
use crate::support::{Place, wait_for};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

/// A file system with the tables and the redo log of a MariaDB; `false`, with a message, where that cannot be made.
fn disk_with_mariadb(place: &Place) -> bool {
    let archive = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/pages/mariadb-10.11.tar.zst"));
    if !archive.is_file() {
        println!("skipped: {} is not there", archive.display());
        return false;
    }
    let (unpacked, root) = (PathBuf::from(place.path("unpacked")), PathBuf::from(place.path("root/var/lib/mysql")));
    std::fs::create_dir_all(&unpacked).expect("room");
    std::fs::create_dir_all(&root).expect("room");
    let done = |program: &str, command: &mut Command| match command.output() {
        Ok(output) if output.status.success() => true,
        Ok(output) => panic!("{program}: {}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => {
            println!("skipped: {program}: {error}");
            false
        }
    };
    if !done("tar", Command::new("tar").arg("--zstd").arg("-xf").arg(&archive).arg("-C").arg(&unpacked).arg("--strip-components=1")) {
        return false;
    }
    copy_tables(&unpacked, &unpacked, &root);
    let image = place.path("disk.img");
    done("mkfs.ext4", Command::new("mkfs.ext4").args(["-q", "-F", "-b", "4096", "-d"]).arg(place.path("root")).arg(&image).arg("96M"))
}

/// Tables with their directories, the dictionary and the redo log.
fn copy_tables(from: &PathBuf, all: &PathBuf, to: &std::path::Path) {
    for entry in std::fs::read_dir(from).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            copy_tables(&path, all, to);
            continue;
        }
        let inside = path.strip_prefix(all).expect("within").to_string_lossy().into_owned();
        let name = if inside == "ib_logfile0.first128K" { "ib_logfile0".to_string() } else { inside };
        if name.ends_with(".ibd") || name == "ibdata1" || name == "ib_logfile0" {
            let to = to.join(name);
            std::fs::create_dir_all(to.parent().expect("a directory")).expect("room");
            std::fs::copy(&path, &to).expect("room");
        }
    }
}

fn all(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Waits for the look that every volume gets by itself.
fn applications(place: &Place) -> Value {
    wait_for("the applications", || {
        let told = place.json(&["app", "list"]);
        let found = all(&told).first().is_some_and(|of| of["state"] == "found");
        found.then(|| told[0].clone())
    })
}

/// A loop device; it is gone with this.
struct Loop(String);

impl Loop {
    fn of(file: &str) -> Loop {
        let made = Command::new("losetup").args(["--find", "--show", "--direct-io=on", file]).output().expect("losetup");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Loop(String::from_utf8_lossy(&made.stdout).trim().to_string())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // Udev may still look at it.
        drop(Command::new("losetup").args(["-d", &self.0]).status());
    }
}

/// Hearth has nothing to do with the device: it is watched from outside, and read for names.
#[test]
fn the_tables_of_a_device_in_trial_are_named() {
    let place = Place::new();
    if !rustix::process::geteuid().is_root() || !support::exists("/dev/loop-control") {
        println!("skipped: it needs root and /dev/loop-control");
        return;
    }
    if !disk_with_mariadb(&place) {
        return;
    }
    let before = std::fs::read(place.path("disk.img")).expect("the disk");
    let device = Loop::of(&place.path("disk.img"));
    // Whoever has it for itself alone is not disturbed, and keeps nobody from looking.
    let owner = std::fs::File::open(&device.0).expect("it is there");
    rustix::fs::flock(&owner, rustix::fs::FlockOperation::NonBlockingLockExclusive).expect("nobody has it");
    let daemon = place.daemon();
    let start = place.run(&["analysis", "start", "trial", "--device", &device.0]);
    if start.status != Some(0) && start.stderr.contains("blktrace") {
        println!("skipped: devices cannot be watched here: {}", start.stderr);
        return;
    }
    assert_eq!(start.status, Some(0), "{}", start.stderr);
    let told = wait_for("the tables", || {
        let told = place.json(&["app", "list", "trial"]);
        (told[0]["state"] == "found" && !all(&told[0]["applications"]).is_empty()).then(|| told[0].clone())
    });
    assert_eq!(told["applications"][0]["instance"], "/var/lib/mysql", "{told:#}");
    let looked_at = told["looked_at_bytes"].as_u64().expect("a number");
    assert!(looked_at > 0 && place.json(&["analysis", "show", "trial"])["read_bytes"].as_u64() < Some(looked_at / 4), "{told:#}");
    assert!(place.json(&["app", "list"]).as_array().is_some_and(Vec::is_empty), "it is no volume");

    let objects = place.json(&["object", "list", "trial", "--sort", "size"]);
    let is_table = |one: &&Value| one["kind"] == "table" && one["encrypted"] == false && one["within"].is_null();
    let table = all(&objects).iter().find(is_table).unwrap_or_else(|| panic!("no table: {objects:#}")).clone();
    let file = std::fs::read(format!("{}/{}", place.path("root"), table["path"].as_str().expect("a path"))).expect("its file");
    let at = before.chunks_exact(4096).position(|block| block == &file[3 * 16384..][..4096]).expect("it lies there");
    let read_it = || {
        let (input, skip) = (format!("if={}", device.0), format!("skip={at}"));
        let read = Command::new("dd").args([&input, "of=/dev/null", "bs=4096", "count=4", "iflag=direct", &skip]).output().expect("dd");
        assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    };
    let read = wait_for("reads of the table", || {
        read_it();
        let objects = place.json(&["object", "list", "trial"]);
        let same = all(&objects).iter().find(|one| one["id"] == table["id"]).expect("it stays").clone();
        (same["read_bytes"].as_u64() > Some(0)).then_some(same)
    });
    assert_eq!((&read["hits_percent"], &read["volume"]), (&Value::Null, &Value::from("trial")), "{read:#}");
    place.must_fail(&["object", "set", "--volume", "trial", "--kind", "redo", "--admit", "normal"], 1, "there is no volume \"trial\"");

    place.must(&["analysis", "start", "blind", "--device", &device.0, "--no-read"]);
    place.must_fail(&["app", "list", "blind"], 1, "its device is not read; start an analysis without --no-read");
    place.must(&["analysis", "stop", "trial"]);
    assert_eq!(place.json(&["app", "list", "trial"])[0]["state"], "found", "what was found stays");
    place.must(&["analysis", "forget", "trial"]);
    daemon.stop();
    drop((owner, device));
    assert!(std::fs::read(place.path("disk.img")).expect("the disk") == before, "nothing was written");
}

#[test]
fn tables_are_named_and_treated_without_a_login() {
    let place = Place::new();
    if !disk_with_mariadb(&place) {
        return;
    }
    let daemon = place.daemon();
    place.must(&["pool", "create", "p", "--ssd", "ssd.img", "--size", "64MiB", "--ram", "0", "--content", "off"]);
    let add = [
        "volume",
        "add",
        "v",
        "--backing",
        "disk.img",
        "--pool",
        "p",
        "--export",
        "nbd",
        "--mode",
        "write-through",
        "--admission",
        "always",
    ];
    let uri = place.must(&add).trim().to_string();
    let told = applications(&place);
    assert_eq!((all(&told["applications"]).len(), &told["applications"][0]["engine"]), (1, &Value::from("InnoDB")), "{told:#}");
    assert_eq!(told["applications"][0]["instance"], "/var/lib/mysql", "{told:#}");
    let list = place.must(&["app", "list"]);
    assert!(list.contains("/var/lib/mysql") && list.contains("page content, file map, catalogue"), "{list}");

    let objects = place.json(&["object", "list", "--sort", "size"]);
    let named = |name: &str| all(&objects).iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("{name}: {objects:#}"));
    // The doublewrite buffer lies in the system tablespace.
    for log in ["redo", "doublewrite"] {
        let log = named(log);
        assert_eq!((&log["admit"], &log["policy"]), (&Value::from("never"), &Value::from("default")), "{log:#}");
    }
    let table = all(&objects)
        .iter()
        .filter(|one| one["kind"] == "table" && one["encrypted"] == false && one["within"].is_null())
        .max_by_key(|one| one["bytes"].as_u64())
        .unwrap_or_else(|| panic!("no table: {objects:#}"));
    let name = table["name"].as_str().expect("a name").to_string();
    let show = place.must(&["object", "show", &name]);
    assert!(show.contains("var/lib/mysql") && show.contains("admit normal, writes inherit, scans hit-only (default)"), "{show}");

    // Where it lies: the file is one of those that `debugfs` of the file system would tell; here by its pages.
    let image = std::fs::read(place.path("disk.img")).expect("the disk");
    let file = std::fs::read(place.path("root").to_string() + "/" + table["path"].as_str().expect("a path")).expect("its file");
    let page = &file[3 * 16384..4 * 16384];
    let at = image.chunks_exact(4096).position(|block| block == &page[..4096]).expect("it lies there") as u64 * 4096;
    let mut client = Client::connect(&uri);
    let cached = |what: &str| -> bool {
        let told = place.json(&["why", "v", &at.to_string()]);
        assert!(told["object"].as_str().is_some_and(|object| object.contains(what)), "{what}: {told:#}");
        told["on_ssd_blocks"] == 1
    };
    let family = name.split('/').next().expect("a name");
    client.read(at, 16384);
    wait_for("the block in the cache", || cached(family).then_some(()));
    place.must(&["volume", "drop-cache", "v"]);

    let done = place.must(&["object", "set", &name, "--admit", "never"]);
    assert!(done.contains("the policy is in force"), "{done}");
    let list = place.must(&["object", "list", "--sort", "size"]);
    assert!(list.contains("never (default)") && list.lines().any(|line| line.contains(&name) && line.ends_with("never")), "{list}");
    for _ in 0..3 {
        client.read(at, 16384);
    }
    assert!(!cached("a rule says: admit never"), "it entered the cache against its policy");
    let why = place.must(&["why", "v", &at.to_string()]);
    assert!(why.contains("the policy of the object"), "{why}");

    // What does not enter the cache by its policy is not read into it either.
    let kept_out = place.run(&["object", "preload", &name]);
    assert!(kept_out.status != Some(0) && kept_out.stderr.contains("does not enter the cache"), "{}", kept_out.stderr);

    // It holds over a restart, and for what is found anew.
    daemon.stop();
    let daemon = place.daemon();
    applications(&place);
    let volume = place.json(&["volume", "show", "v"]);
    let mut client = Client::connect(volume["exports"]["nbd"].as_str().expect("an address"));
    client.read(at, 16384);
    client.read(at, 16384);
    assert!(!cached("a rule says: admit never"));
    place.must(&["object", "set", &name, "--reset"]);
    client.read(at, 16384);
    wait_for("the block in the cache", || cached(family).then_some(()));

    // The whole table is read, in the order of the disk, or as much of it as is allowed.
    place.must(&["volume", "drop-cache", "v"]);
    let bytes = table["bytes"].as_u64().expect("a size");
    let plan = place.json(&["object", "preload", &name, "--dry-run"]);
    let planned = plan["bytes"].as_u64().expect("a size");
    // Its file has holes.
    assert!((bytes / 2..=bytes).contains(&planned) && plan["job"].is_null(), "{bytes}: {plan:#}");
    assert!(!cached(family), "nothing was read");
    let part = place.json(&["object", "preload", &name, "--budget", "64KiB", "--dry-run"]);
    assert_eq!(part["bytes"], 65536, "{part:#}");
    let done = place.must(&["object", "preload", &name, "--rate", "64MiB"]);
    assert!(done.contains("enter the cache") && done.contains("preload of v done: "), "{done}");
    assert!(cached(family), "it was read");
    assert_eq!(place.json(&["stats", "v"])["cached_bytes"], planned);

    // Pins beyond what a pool keeps are refused, all of a kind may be named, and wrong words are said.
    let refused = |arguments: &[&str], part: &str| {
        let ended = place.run(arguments);
        assert!(ended.status != Some(0) && ended.stderr.contains(part), "{arguments:?}: {} instead of {part:?}", ended.stderr);
    };
    place.must(&["object", "set", "--kind", "redo", "--admit", "normal"]);
    assert_eq!(place.json(&["object", "list", "--kind", "redo"])[0]["policy"], "rule");
    refused(&["object", "set", "no.such", "--admit", "never"], "there is no object \"no.such\"");
    refused(&["object", "set", &name, "--admit", "sometimes"], "write never, normal or pinned");
    refused(&["object", "set", &name], "it is not said how the objects are to be treated");
    refused(&["object", "set", "--admit", "never"], "objects that are named, or for all of a kind");
    refused(&["object", "set", "--kind", "nonsense", "--admit", "never"], "--kind is \"nonsense\"; write one of table, index");
    refused(&["object", "set", "--kind", "toast", "--admit", "never"], "no objects of the kind \"toast\"");
    refused(&["object", "list", "--kind", "nonsense"], "--kind is \"nonsense\"; write one of table, index");
    refused(&["object", "list", "--app", "/none"], "there is no application \"/none\"");
    refused(&["object", "preload"], "objects that are named, or for all of a kind");

    // A reset holds for an object, whatever is said of its kind.
    place.must(&["object", "set", "--kind", "table", "--admit", "never"]);
    let admit = || place.json(&["object", "show", &name])[0]["admit"].clone();
    assert_eq!(admit(), "never");
    let reset = place.must(&["object", "set", &name, "--app", "/var/lib/mysql", "--reset"]);
    assert!(reset.contains("stays for the others") && reset.contains("`hearth object set --kind table --reset`"), "{reset}");
    assert_eq!(admit(), "normal");
    place.must(&["object", "set", "--app", "/var/lib/mysql", "--reset"]);
    let rest = place.json(&["object", "list", "--kind", "table", "--limit", "1000"]);
    assert!(all(&rest).iter().all(|one| one["admit"] == "normal"), "{rest:#}");

    // A table goes without the name of its clustered index; what is not there is told with what is like it.
    if let Some(table) = name.strip_suffix("/PRIMARY") {
        assert_eq!(place.json(&["object", "show", table, "--app", "/var/lib/mysql"])[0]["name"], name);
        let unlike = format!("x.{}", table.rsplit('.').next().expect("a name"));
        refused(&["object", "show", &unlike], "names like it: ");
        refused(&["object", "show", &unlike], &name);
    }
    refused(&["object", "preload", "no.such"], "there is no object \"no.such\"");
    refused(&["object", "preload", &name, "--budget", "1"], "there is nothing to preload");
    refused(&["object", "preload", &name, "--rate", "0"], "give at least one byte");
    refused(&["object", "preload", "redo", "--volume", "none"], "there is no volume \"none\"");
    refused(&["object", "list", "none"], "there is no volume \"none\"");
    refused(&["object", "list", "--sort", "colour"], "write heat, gain, size or name");
    refused(&["app", "show", "none"], "there is no application \"none\"");
    refused(&["app", "discover", "none"], "there is no volume \"none\"");
    let again = place.must(&["app", "discover", "v"]);
    assert!(again.contains("/var/lib/mysql"), "{again}");
    daemon.stop();
}

#[test]
fn what_an_object_brings_is_told_and_that_it_was_rebuilt() {
    let place = Place::new();
    if !disk_with_mariadb(&place) {
        return;
    }
    let daemon = place.daemon();
    place.must(&["pool", "create", "p", "--ssd", "ssd.img", "--size", "64MiB", "--ram", "0", "--content", "off"]);
    let add = ["volume", "add", "v", "--backing", "disk.img", "--pool", "p", "--export", "nbd", "--mode", "write-through"];
    let uri = place.must(&add).trim().to_string();
    applications(&place);
    let objects = place.json(&["object", "list", "v", "--sort", "size"]);
    let is_file = |one: &&Value| one["kind"] == "table" && one["encrypted"] == false && one["within"].is_null();
    let table = all(&objects).iter().find(is_file).unwrap_or_else(|| panic!("no table: {objects:#}"));
    let path = place.path("root") + "/" + table["path"].as_str().expect("a path");
    let page = std::fs::read(path).expect("its file")[3 * 16384..4 * 16384].to_vec();
    let place_in = |image: &[u8]| image.chunks_exact(4096).position(|block| block == &page[..4096]).expect("it lies there") as u64 * 4096;
    let image = std::fs::read(place.path("disk.img")).expect("the disk");
    let at = place_in(&image);

    // One page is read again and again: 20,000 of its blocks are what is needed to speak.
    let curve = |number: &Value| place.json(&["object", "show", &number.to_string()])[0]["curve"].clone();
    assert!(all(&curve(&table["id"])).is_empty());
    let mut client = Client::connect(&uri);
    for _ in 0..5500 {
        client.read(at, 16384);
    }
    let first = wait_for("what it brings", || {
        let objects = place.json(&["object", "list", "v", "--sort", "gain"]);
        let first = all(&objects)[0].clone();
        (!all(&first["curve"]).is_empty()).then_some(first)
    });
    let points = all(&first["curve"]);
    assert!(points.len() >= 4 && points[0]["ssd_bytes"] == 1 << 20, "{first:#}");
    // Where a page has zeroes its file has a hole, and another's blocks follow.
    assert!(points.iter().all(|point| point["hits_percent"].as_f64().is_some_and(|hits| hits >= 25.0)), "{first:#}");
    let family = table["name"].as_str().expect("a name").split('/').next().expect("a name");
    assert!(first["name"].as_str().is_some_and(|name| name.starts_with(family)), "{first:#}");
    let show = place.must(&["object", "show", &first["id"].to_string()]);
    assert!(show.contains("of the reads of blocks used before on v: ") && show.contains(" with 1 MiB of SSD"), "{show}");

    // The same file system with the same files elsewhere: more inodes stand before them.
    let uuid: String = image[1024 + 0x68..1024 + 0x78].iter().map(|byte| format!("{byte:02x}")).collect();
    let uuid = [&uuid[..8], &uuid[8..12], &uuid[12..16], &uuid[16..20], &uuid[20..]].join("-");
    let again = place.path("again.img");
    let mut mkfs = Command::new("mkfs.ext4");
    mkfs.args(["-q", "-F", "-b", "4096", "-N", "60000", "-U", &uuid, "-d"]).arg(place.path("root")).arg(&again).arg("96M");
    assert!(mkfs.status().expect("it is there").success());
    let image = std::fs::read(&again).expect("the disk");
    assert_ne!(place_in(&image), at);
    for (number, piece) in image.chunks(1 << 20).enumerate() {
        client.write(number as u64 * (1 << 20), piece).expect("it is written");
    }
    place.must(&["app", "discover", "v"]);
    let log = daemon.log();
    assert!(log.contains("were rebuilt and lie elsewhere now: "), "{log}");
    assert_eq!(log.matches("elsewhere now").count(), 1, "{log}");
    assert!(!log.contains(" gone") && !log.contains("found no more"), "{log}");
    daemon.stop();
}

#[test]
fn names_can_be_hidden_and_policies_hold_still() {
    let place = Place::new();
    if !disk_with_mariadb(&place) {
        return;
    }
    std::fs::write(place.path("hearth.toml"), "[insight]\nnames = \"hashed\"\n").expect("room for a file");
    let serve = || place.start(place.command(&["serve", "--config", &place.path("hearth.toml")]));
    let daemon = serve();
    place.must(&["pool", "create", "p", "--ssd", "ssd.img", "--size", "64MiB", "--ram", "0", "--content", "off"]);
    place.must(&["volume", "add", "v", "--backing", "disk.img", "--pool", "p", "--export", "nbd"]);
    applications(&place);
    let told = || ["app list", "object list"].map(|words| place.must(&words.split(' ').collect::<Vec<_>>())).concat();
    assert!(!told().contains("shop") && told().contains("redo"), "{}", told());
    let objects = place.json(&["object", "list", "--kind", "table"]);
    let name = all(&objects).iter().find_map(|one| one["name"].as_str().filter(|name| name.contains('.'))).expect("a table").to_string();
    let parts: Vec<&str> = name.split(['.', '/']).collect();
    assert!(parts.iter().all(|part| *part == "PRIMARY" || part.len() == 11 && part.starts_with('x')), "{name}");
    place.must(&["object", "set", &name, "--admit", "never"]);
    daemon.stop();
    let daemon = serve();
    applications(&place);
    let shown = place.must(&["object", "show", &name]);
    assert!(shown.contains("admit never") && !shown.contains("shop"), "{shown}");
    place.must(&["app", "discover", "v"]);
    assert!(place.must(&["object", "show", &name]).contains("admit never"), "found again under the same name");
    daemon.stop();
}

#[test]
fn a_disk_without_databases_says_so() {
    let place = Place::new();
    let daemon = place.daemon();
    let nothing = place.must(&["app", "list"]);
    assert!(nothing.starts_with("no volume is watched"), "{nothing}");
    place.must(&["pool", "create", "p", "--ssd", "ssd.img", "--size", "64MiB", "--ram", "0", "--content", "off"]);
    place.file("disk.img", 64 << 20);
    place.must(&["volume", "add", "v", "--backing", "disk.img", "--pool", "p", "--export", "nbd"]);
    applications(&place);
    let list = place.must(&["app", "list"]);
    assert!(list.contains("v: no database was found") && list.contains("nothing has a name from"), "{list}");
    let objects = place.must(&["object", "list"]);
    assert!(objects.starts_with("no objects: see `hearth app list`"), "{objects}");
    daemon.stop();
}

/// A volume is made first, then the file system on it: the look at the blank disk does not have the last word.
#[test]
fn a_file_system_that_is_made_while_a_blank_disk_is_looked_at_is_found() {
    let place = Place::new();
    if !disk_with_mariadb(&place) {
        return;
    }
    let daemon = place.daemon();
    place.must(&["pool", "create", "p", "--ssd", "ssd.img", "--size", "64MiB", "--ram", "0", "--content", "off"]);
    place.file("blank.img", 2 << 30);
    let uri = place.must(&["volume", "add", "v", "--backing", "blank.img", "--pool", "p", "--export", "nbd"]).trim().to_string();
    wait_for("the look at the blank disk", || place.must(&["app", "list"]).contains("v: being looked at, ").then_some(()));
    let mut client = Client::connect(&uri);
    for (number, piece) in std::fs::read(place.path("disk.img")).expect("the disk").chunks(1 << 20).enumerate() {
        if piece.iter().any(|byte| *byte != 0) {
            client.write(number as u64 * (1 << 20), piece).expect("it is written");
        }
    }
    // Nobody waits for the look that is under way.
    let told = place.must(&["app", "discover", "v"]);
    assert!(told.contains("/var/lib/mysql"), "{told}");
    assert!(!told.contains("belongs to nothing known"), "what was written before it was found tells nothing: {told}");
    daemon.stop();
}
