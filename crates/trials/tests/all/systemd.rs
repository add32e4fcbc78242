//! The package's units under systemd itself, which boots in a virtual machine, in namespaces of its own: the service restarted, killed and
//! stopped under load, and boots that find a volume under the file system that it is attached to.

use trials::lab::{prepared, step};
use trials::needs::Need;

#[test]
fn the_service_is_restarted_and_killed_under_load() {
    let trial = "the_service_is_restarted_and_killed_under_load";
    let Some(place) = prepared(trial, "service", &[Need::Program("fio"), Need::Program("systemctl")]) else { return };
    let ended = step(&place, "service.sh", "service");
    let daemon = std::fs::read_to_string(place.path("kept/daemon")).unwrap_or_default();
    for told in [
        "block is /dev/ublkb",
        "loop is /dev/loop",
        "restarts by systemd: 2",
        "the load saw no error",
        "block has what was written",
        "loop has what was written",
        "a trial under systemd has seen reads",
    ] {
        assert!(ended.stdout.contains(told), "{told}: {ended:#?}\nthe daemon said:\n{daemon}");
    }
    assert!(daemon.matches("left 2 exports open").count() >= 3, "{daemon}");
    if ["/usr/sbin/tgtd", "/usr/bin/tgtd"].iter().any(|program| std::path::Path::new(program).exists()) {
        assert!(ended.stdout.contains("tgt serves under systemd"), "{ended:#?}\nthe daemon said:\n{daemon}");
    }
}

/// After a boot the cache is there before the file system is mounted, and warm, since it was there until that was unmounted.
#[test]
fn a_boot_by_systemd_finds_the_cache_warm_under_the_mount() {
    let trial = "a_boot_by_systemd_finds_the_cache_warm_under_the_mount";
    let Some(place) = prepared(trial, "attach-boot", &[Need::Program("lvm"), Need::Program("fio"), Need::Program("systemctl")]) else {
        return;
    };
    let daemon = || std::fs::read_to_string(place.path("kept/daemon")).unwrap_or_default();
    let hits = |boot: &str| {
        let stats: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(place.path(&format!("kept/stats.{boot}"))).unwrap_or_default())
                .unwrap_or_default();
        let figure = |name: &str| stats[name].as_f64().unwrap_or(f64::NAN);
        figure("read_hits_ssd") / figure("reads")
    };
    let first = step(&place, "attach_boot.sh", "first");
    assert!(first.good() && first.stdout.contains("nothing was unmounted"), "{first:#?}\nthe daemon said:\n{}", daemon());
    for (boot, expect_hits) in [("warm", 0.9..=1.0), ("cold", 0.0..=0.5)] {
        let booted = step(&place, "attach_boot.sh", boot);
        for told in ["under the mount", "nothing stale", "told"] {
            assert!(booted.good() && booted.stdout.contains(told), "{boot}, {told}: {booted:#?}\nthe daemon said:\n{}", daemon());
        }
        assert!(expect_hits.contains(&hits(boot)), "{boot}: {} of the reads were hits; the daemon said:\n{}", hits(boot), daemon());
    }
}
