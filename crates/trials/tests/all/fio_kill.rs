//! fio with verification while the daemon is killed with SIGKILL at random moments: what fio was told is written is there afterwards.

use trials::command;
use trials::needs::{Need, met};
use trials::place::{LONG, Place};

const SIZE_MIB: u64 = 96;

/// How fio reaches the volume.
#[derive(Clone, Copy)]
enum Way {
    Loop,
    Nbd,
}

#[test]
fn fio_verify_with_random_kills_over_loop() {
    if met("fio_verify_with_random_kills_over_loop", &[Need::Root, Need::LoopExport, Need::Program("fio")]) {
        rounds(Way::Loop, "loop");
    }
}

#[test]
fn fio_verify_with_random_kills_over_nbd() {
    if met("fio_verify_with_random_kills_over_nbd", &[Need::Program("fio")]) {
        rounds(Way::Nbd, "nbd");
    }
}

/// Rounds of writing, killing, restarting and verifying, on one volume that changes its mode in between.
fn rounds(way: Way, export: &str) {
    let mut place = Place::new("fio");
    place.start();
    // Less SSD than data: the log wraps and evicts while it is written.
    place.pool(64, 8);
    let (volume, mut exports) = place.volume(SIZE_MIB, "write-back", &["--export", export]);
    for (round, mode) in ["write-back", "write-through", "write-back", "write-around"].into_iter().enumerate() {
        place.must(&["volume", "set", &volume, "--mode", mode]);
        let delay_ms = random() % 1500;
        let seed = random();
        let job = |exports: &trials::place::Exports| {
            let mut words: Vec<String> = match way {
                Way::Loop => vec!["--ioengine=libaio".into(), "--direct=1".into(), format!("--filename={}", exports.loop_device)],
                Way::Nbd => vec!["--ioengine=nbd".into(), format!("--uri={}", exports.nbd_uri)],
            };
            let common =
                ["fio", "--name=kill", "--thread", "--bs=4k", "--rw=randwrite", "--iodepth=32", "--verify=crc32c", "--verify_fatal=1"];
            words.splice(0..0, common.map(String::from));
            // Without randrepeat=0 fio ignores the seed: each round would write the same as the one before, and a lost round pass unseen.
            words.push("--randrepeat=0".into());
            words.extend([format!("--size={SIZE_MIB}m"), format!("--randseed={seed}")]);
            words
        };
        let pid = place.daemon_pid();
        let mut write = job(&exports);
        // fio notes what was acknowledged, then pulls the trigger; its clock of triggers counts whole seconds.
        write.extend(["--do_verify=0", "--verify_state_save=1", "--rate_iops=4000", "--trigger-timeout=1"].map(String::from));
        write.push(format!("--trigger=sleep {:.3}; kill -9 {pid}", delay_ms as f64 / 1000.0));
        // Its I/O on a block device waits for the next daemon.
        let written = std::thread::scope(|scope| {
            let directory = std::path::PathBuf::from(place.path(""));
            let fio = scope.spawn(move || command::run(command::words(&write).current_dir(directory), LONG));
            place.killed_within(LONG);
            place.start();
            fio.join().expect("no panic")
        });
        assert!(!written.late, "fio hangs after the kill: {written:#?}");
        exports = place.exports(&volume);

        let mut verify = job(&exports);
        verify.extend(["--verify_state_load=1", "--verify_only=1", "--output-format=json"].map(String::from));
        let verified = place.tool(&verify, LONG);
        let context = format!("{export}, {mode}, seed {seed}, killed {delay_ms} ms after the trigger");
        assert!(verified.good(), "{context}: {verified:#?}");
        let json = verified.stdout.find('{').map(|at| &verified.stdout[at..]).unwrap_or_default();
        let report: serde_json::Value = serde_json::from_str(json).expect("fio reports in JSON");
        let blocks = report["jobs"][0]["read"]["total_ios"].as_u64().unwrap_or(0);
        assert!(blocks > 0, "{context}: nothing was verified: {verified:#?}");
        assert_eq!(place.counter(&volume, "checksum_errors"), 0, "{context}");
        eprintln!("round {round}: {context}: {blocks} acknowledged blocks verified");
    }
    place.stop();
}

/// A number nobody chose, so that each run kills at other moments; a failure tells it.
fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish() % 1_000_000_007
}
