//! Every kind of bad input gives one sentence that says what to do, status 2 for usage and 1 for failure, and changes nothing.

use crate::support;
use crate::support::{Place, check_failure};

/// Command lines that need no daemon: (arguments, part of the sentence).
const USAGE: &[(&[&str], &str)] = &[
    (&[], "no command was given"),
    (&["pool"], "no command was given; see `hearth pool --help`"),
    (&["frobnicate"], "frobnicate"),
    (&["pool", "create"], "<NAME>"),
    (&["pool", "create", "p"], "--ssd"),
    (&["pool", "create", "p", "--ssd", "/x", "--colour", "red"], "--colour"),
    (&["pool", "create", "p", "--ssd", ""], "--ssd"),
    (&["pool", "create", "p", "--ssd", "/x", "--size", "0"], "is zero"),
    (&["pool", "create", "p", "--ssd", "/x", "--size", "0GiB"], "is zero"),
    (&["pool", "create", "p", "--ssd", "/x", "--size", "-1"], "-1"),
    (&["pool", "create", "p", "--ssd", "/x", "--size=-1"], "negative"),
    (&["pool", "create", "p", "--ssd", "/x", "--size", "9223372036854775808"], "too large"),
    (&["pool", "create", "p", "--ssd", "/x", "--size", "99999999999T"], "too large"),
    (&["pool", "create", "p", "--ssd", "/x", "--size", "1X"], "1X"),
    (&["pool", "create", "p", "--ssd", "/x", "--ram", "lots"], "lots"),
    (
        &["pool", "create", "p", "--ssd", "/x", "--content", "most"],
        "--content has the unknown value \"most\"; use off, fast, dense or auto",
    ),
    (&["pool", "create", "p", "--ssd", "/x", "--content", ""], "use off, fast, dense or auto"),
    (&["pool", "create", "p", "--ssd", "/x", "--content"], "--content"),
    (&["pool", "set", "p", "--content", "Auto"], "use off, fast, dense or auto"),
    (&["pool", "set", "p", "--ram", "1G"], "--ram"),
    (&["pool", "set", "a/b", "--content", "off"], "has the character '/'"),
    (&["pool", "create", "a/b", "--ssd", "/x"], "has the character '/'"),
    (&["pool", "create", "", "--ssd", "/x"], "is empty"),
    (&["pool", "create", "..", "--ssd", "/x"], "begins with - or ."),
    (&["pool", "create", "a b", "--ssd", "/x"], "has the character ' '"),
    (&["pool", "create", "a\nb", "--ssd", "/x"], "has the character '\\n'"),
    (&["pool", "create", "ä", "--ssd", "/x"], "has the character"),
    (&["pool", "show", "../../etc/passwd"], "has the character '/'"),
    (&["pool", "destroy", "a%2fb"], "has the character '%'"),
    (&["volume", "show", "x?y=z"], "has the character '?'"),
    (&["volume", "add", "v"], "--backing"),
    (&["volume", "add", "v", "--backing", "/x"], "--pool"),
    (&["volume", "add", "v", "--backing", "model:7k2", "--pool", "p"], "has no file"),
    (&["volume", "add", "v", "--backing", "/x", "--pool", "p", "--export", "iscsi"], "use block, ublk, loop, loop:fast, nbd"),
    (&["volume", "add", "v", "--backing", "/x", "--pool", "p", "--export", "nbd:0.0.0.0:1"], "other machines can reach"),
    (&["volume", "add", "v", "--backing", "/x", "--pool", "p", "--write-cache-depth", "30"], "30s"),
    (&["volume", "add", "v", "--backing", "/x", "--pool", "p", "--dirty-limit", "much"], "much"),
    (&["volume", "add", "v", "--backing", "/x", "--pool", "p", "--dirty-limit", "0"], "or write off for no limit"),
    (&["volume", "add", "v", "--backing", "/x", "--pool", "p", "--max-io-size", "off"], "--max-io-size"),
    (&["volume", "wait", "v", "--limit=-1"], "is not a whole number from 0 to 4294967295"),
    (&["object", "list", "--limit", "99999999"], "is more than 100000; give 0 for as many as can be listed"),
    (&["pool", "create", "p", "--ssd", "model:7k2:/x"], "only --backing takes one"),
    (&["pool", "import", "/x", "--rename", "="], "--rename \"=\" is not OLD=NEW; write for instance --rename data=data2"),
    (&["pool", "import", ""], "cannot take in the pool on \"\": PATH \"\" is not a path"),
    (&["pool", "import", "--look"], "--look is for one SSD, and no PATH is given"),
    (&["pool", "import", "--name", "x"], "--name is for one SSD"),
    (&["model", "7k2", "/x", "--export", "nbd:0.0.0.0:1"], "use loop, nbd or nbd:127.0.0.1:PORT"),
    (&["--config", "/nonexistent/hearth.toml", "volume", "list"], "/nonexistent/hearth.toml cannot be read"),
    (&["volume", "set", "v", "--read-only", "--read-write"], "cannot be given together with"),
    (&["volume", "warm", "v", "--range", "5"], "is not a range"),
    (&["volume", "warm", "v", "--range", "8k-4k"], "is empty"),
    (&["model", "7k2", "/x"], "--export"),
    (&["model", "7k2", "/x", "--export", "smoke"], "smoke"),
    (&["replay", "/x"], "--pool-size"),
    (&["replay", "/x", "--pool-size", "0"], "is zero"),
    (&["serve", "--reactors", "many"], "\"many\" is not a whole number"),
    (&["serve", "--reactors", "0"], "must be a whole number from 1 to 256"),
    (&["serve", "--reactors", "257"], "must be a whole number from 1 to 256"),
    (&["volume", "set", "v", "--export", "loop", "--no-export"], "cannot be given together with"),
    (&["disk", "set", "d"], "--export"),
    (&["volume", "rename", "v", "a/b"], "has the character '/'"),
    (&["events", "--severity", "grave"], "none of info, warning and error"),
    (&["job", "cancel", "x"], "<ID>: \"x\" is not a whole number; see `hearth job cancel --help`"),
];

#[test]
fn usage_is_status_two() {
    let place = Place::new();
    for (arguments, part) in USAGE {
        place.must_fail(arguments, 2, part);
    }
    // A word that is not UTF-8 is a mistake as any other.
    let odd = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"\xff");
    let output = place.command(&["pool", "show"]).arg(odd).arg("--nothing").output().expect("the program is there");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(!support::exists(place.path("state")), "a refused command leaves nothing behind");
}

/// Without a daemon, everything that needs one says how to start it.
#[test]
fn a_missing_daemon_is_named() {
    let place = Place::new();
    for arguments in [
        &["pool", "list"][..],
        &["pool", "create", "p", "--ssd", "/x"],
        &["pool", "set", "p", "--content", "off"],
        &["volume", "list"],
        &["volume", "destage", "v"],
        &["stats"],
        &["stats", "v", "--watch"],
    ] {
        place.must_fail(arguments, 1, "is the daemon running? start it with `hearth serve`");
    }
    place.must_fail(&["pool", "check", "/nonexistent/ssd"], 1, "/nonexistent/ssd does not exist; check the path");
    std::fs::write(place.path("text.txt"), "hello").expect("room");
    place.must_fail(&["pool", "check", "./text.txt"], 1, "text.txt carries no pool: it has 5 bytes");
    place.must_fail(
        &["model", "7k3", "text.txt", "--export", "nbd"],
        2,
        "cannot export the model: there is no disk model \"7k3\"; use one of 7k2",
    );
    let long = "d".repeat(120);
    place.must_fail(&["--socket", &format!("/tmp/{long}"), "pool", "list"], 1, "has 125 bytes, and sockets have 107 at most");
    assert!(place.must(&["rescue"]).contains("nothing is held"));
    place.must_fail(&["model", "5k4", "/x", "--export", "nbd"], 2, "5k4");
    place.must_fail(&["model", "7k2", "nothing.img", "--export", "nbd"], 1, "truncate -s SIZE");
    place.must_fail(&["replay", "nothing.lis", "--pool-size", "1M"], 1, "nothing.lis");
}

/// Against a daemon with one pool and one volume: (arguments, status, part).
#[test]
fn refusals_of_the_daemon_change_nothing() {
    let place = Place::new();
    let _daemon = place.daemon();
    let (ssd, disk) = (place.path("ssd.img"), place.file("disk.img", 64 << 20));
    place.must(&["pool", "create", "p", "--ssd", &ssd, "--size", "128MiB"]);
    place.must(&["volume", "add", "v", "--backing", &disk, "--pool", "p", "--export", "nbd"]);
    let before = (place.must(&["pool", "list", "--json"]), place.must(&["volume", "list", "--json"]));
    let small = place.file("small.img", 1 << 20);
    let empty = place.file("empty.img", 0);
    let swap = place.file("swap.img", 128 << 20);
    let file = std::fs::OpenOptions::new().write(true).open(&swap).expect("just made");
    std::os::unix::fs::FileExt::write_all_at(&file, b"SWAPSPACE2", 4086).expect("there is room");
    std::os::unix::fs::symlink(&disk, place.path("alias.img")).expect("a link");
    let alias = place.path("alias.img");
    std::os::unix::fs::symlink("gone", place.path("dangling.img")).expect("a link");
    let (text, dangling) = (place.path("text.txt"), place.path("dangling.img"));
    std::fs::write(&text, "hello").expect("room");
    let (new, deep) = (place.path("new.img"), place.path("no/new.img"));
    let cases: &[(&[&str], i32, &str)] = &[
        (&["pool", "create", "p", "--ssd", &swap], 1, "there is already a pool \"p\""),
        (&["pool", "create", "q", "--ssd", &ssd], 1, "it is the SSD of the pool \"p\"; choose another device"),
        (&["pool", "create", "q", "--ssd", &disk], 1, "it is the backing device of the volume \"v\""),
        (&["pool", "create", "q", "--ssd", &alias], 1, "it is the backing device of the volume \"v\""),
        (&["pool", "create", "q", "--ssd", &swap], 1, "--force"),
        (&["pool", "create", "q", "--ssd", &small], 1, "too small"),
        (&["pool", "create", "q", "--ssd", &empty], 1, "empty"),
        (&["pool", "create", "q", "--ssd", "/nonexistent/ssd"], 1, "there is no such file or device"),
        (&["pool", "create", "q", "--ssd", "/dev/null"], 1, "character device"),
        (&["pool", "create", "q", "--ssd", "/"], 1, "directory"),
        (&["pool", "create", "q", "--ssd", &new, "--size", "8P"], 1, "a pool can use 16 TiB; give at most --size 16384GiB"),
        (&["pool", "create", "q", "--ssd", &deep, "--size", "128M"], 1, "no/new.img"),
        (&["pool", "create", "q", "--ssd", &new, "--size", "1M"], 2, "--size must be at least"),
        (&["pool", "create", "q", "--ssd", &swap, "--size", "1T"], 1, "less than the 1 TiB of --size"),
        (&["pool", "create", "q", "--ssd", &swap, "--ram", "1"], 2, "--ram must be at least"),
        (&["pool", "create", "q", "--ssd", &swap, "--force", "--ram", "1P"], 2, "--ram asks for 1 PiB"),
        (&["pool", "show", "q"], 1, "there is no pool \"q\"; list the pools with `hearth pool list`"),
        (&["pool", "set", "p"], 2, "no option was given"),
        (&["pool", "set", "q", "--content", "off"], 1, "there is no pool \"q\""),
        (&["pool", "destroy", "p"], 1, "still has the volume \"v\""),
        (&["volume", "add", "v", "--backing", &swap, "--pool", "p"], 1, "there is already a volume \"v\""),
        (&["volume", "add", "w", "--backing", &swap, "--pool", "q"], 1, "there is no pool \"q\""),
        (&["volume", "add", "w", "--backing", &ssd, "--pool", "p"], 1, "it is the SSD of the pool \"p\""),
        (&["volume", "add", "w", "--backing", &disk, "--pool", "p"], 1, "it is the backing device of the volume \"v\""),
        (&["volume", "add", "w", "--backing", &alias, "--pool", "p"], 1, "it is the backing device of the volume \"v\""),
        (&["volume", "add", "w", "--backing", "/nonexistent", "--pool", "p"], 1, "there is no such file or device"),
        (&["volume", "add", "w", "--backing", "model:5k4:/x", "--pool", "p"], 2, "5k4"),
        (&["volume", "add", "w", "--backing", &swap, "--pool", "p", "--mode", "fast"], 2, "--mode has the unknown value"),
        (&["volume", "add", "w", "--backing", &swap, "--pool", "p", "--max-io-size", "1G"], 2, "--max-io-size"),
        (&["volume", "add", "w", "--backing", &swap, "--pool", "p", "--export", "nbd", "--export", "nbd"], 2, "twice"),
        (
            &["volume", "add", "w", "--backing", &swap, "--pool", "p", "--mode", "write-back", "--read-only"],
            2,
            "a read-only volume cannot be write-back",
        ),
        (&["volume", "set", "v"], 2, "no option was given"),
        (&["volume", "set", "v", "--admission", "never"], 2, "--admission"),
        (&["volume", "set", "w", "--mode", "write-back"], 1, "there is no volume \"w\""),
        (&["volume", "warm", "v", "--range", "1T-2T"], 2, "lies outside the volume"),
        (&["volume", "warm", "v", "--range", "0-5TiB"], 2, "--range ends beyond the volume, which has 64 MiB"),
        (&["events", "nope"], 1, "there is no pool, volume or disk \"nope\", and no event of one"),
        (&["volume", "add", "w", "--backing", "model:7k3:/x", "--pool", "p"], 2, "there is no disk model \"7k3\"; use one of 7k2"),
        (&["volume", "add", "w", "--backing", &text, "--pool", "p"], 1, "it has 5 bytes"),
        (&["pool", "create", "q", "--ssd", &dangling, "--size", "128M"], 1, "is a symbolic link to gone"),
        (&["volume", "add", "w", "--backing", &swap, "--pool", "p", "--export", "nbd:127.0.0.1:1", "--tls-names", "a"], 2, "--tls-names"),
        (&["volume", "destage", "w"], 1, "there is no volume \"w\""),
        (&["volume", "remove", "w"], 1, "there is no volume \"w\""),
        (&["stats", "w"], 1, "there is no volume \"w\""),
        (&["serve"], 1, "another hearth daemon (process"),
    ];
    for (arguments, status, part) in cases {
        place.must_fail(arguments, *status, part);
    }
    let second = place.command(&["serve", "--state", &place.path("other")]).output().expect("the binary runs");
    let ended = support::Ended {
        status: second.status.code(),
        stdout: String::new(),
        stderr: String::from_utf8_lossy(&second.stderr).into_owned(),
    };
    check_failure(&ended, "the same socket", 1, "another hearth daemon (process");
    assert_eq!(before, (place.must(&["pool", "list", "--json"]), place.must(&["volume", "list", "--json"])));
    assert!(!support::exists(place.path("new.img")), "a file that could not be used is left behind");
}
