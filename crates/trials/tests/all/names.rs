//! What udev and systemd learn of the block devices of volumes, by the package's rule.

use std::os::unix::fs::symlink;
use std::path::Path;
use trials::lab;
use trials::needs::{Need, met};
use trials::place::{Place, SHORT, binary};

#[test]
fn systemd_learns_the_names_of_devices() {
    const NAME: &str = "systemd_learns_the_names_of_devices";
    // Only in a guest: the rule is the whole machine's.
    if !met(NAME, &[Need::Root, Need::Lab, Need::Program("udevadm"), Need::Program("dmsetup")]) {
        return;
    }
    if !lab::is_guest() {
        return lab::pass_in_guest(&format!("names::{NAME}"), &["ublk_drv", "loop", "fuse", "dm-mod"], &["--udev"]);
    }
    let rule = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/60-hearth.rules");
    std::fs::create_dir_all("/run/udev/rules.d").expect("it is a guest's");
    std::fs::copy(rule, "/run/udev/rules.d/60-hearth.rules").expect("it is a guest's");
    drop(std::fs::remove_file("/usr/bin/hearth"));
    symlink(binary(), "/usr/bin/hearth").expect("it is a guest's");
    let mut place = Place::new("names");
    drop(std::fs::remove_dir_all("/var/lib/hearth"));
    symlink(place.path("state"), "/var/lib/hearth").expect("it is a guest's");
    place.must_tool(&["udevadm", "control", "--reload"], SHORT);
    place.start();
    place.pool(96, 16);
    for export in ["block", "loop"] {
        let (volume, exports) = place.volume(64, "write-back", &["--export", export]);
        let device = exports.loop_device;
        // A look that came before the volume was recorded is made good by the next event.
        place.must_tool(&["udevadm", "trigger", "--action=change", &device], SHORT);
        place.must_tool(&["udevadm", "settle"], SHORT);
        let known = place.must_tool(&["udevadm", "info", "--query=property", &device], SHORT);
        for expected in
            [format!("HEARTH_VOLUME={volume}"), format!("SYSTEMD_ALIAS=/dev/hearth/{volume}"), "DM_MULTIPATH_DEVICE_PATH=0".into()]
        {
            assert!(known.lines().any(|line| line.trim() == expected), "{expected} is missing for {device}: {known}");
        }
        assert!(known.contains(":systemd:"), "{known}");
        assert!(place.must(&["volume", "show", &volume, "--fstab"]).starts_with(&format!("/dev/hearth/{volume} ")));
    }
    an_attached_device_keeps_its_names(&place);
    let other = place.must_tool(&["udevadm", "test", "--action=change", "/sys/block/vda"], SHORT);
    assert!(!other.contains("HEARTH_VOLUME="), "{other}");
    place.stop();
}

/// The volume's own device, with the same content, gets none: a link by UUID leads where it led.
fn an_attached_device_keeps_its_names(place: &Place) {
    // The layers of the guest's root, an overlay, are not to be seen. They lie on none of its disks,
    // as these do not.
    for layer in ["/lower", "/rw"] {
        std::fs::create_dir_all(layer).expect("it is a guest's");
        place.must_tool(&["mount", "-t", "tmpfs", "layer", layer], SHORT);
    }
    std::fs::create_dir_all("/rw/upper").expect("it is a guest's");
    let lv = place.file("lv.img", 64 << 20);
    let below = place.must_tool(&["losetup", "--find", "--show", &lv], SHORT).trim().to_string();
    place.must_tool(&["mkfs.ext4", "-q", "-U", "0123abcd-0000-4000-8000-00000000000a", &below], SHORT);
    place.must_tool(&["dmsetup", "create", "trial", "--table", &format!("0 131072 linear {below} 0")], SHORT);
    place.must(&["attach", "/dev/mapper/trial", "--pool", "fast", "--name", "under"]);
    let shown: serde_json::Value = serde_json::from_str(&place.must(&["volume", "show", "under", "--json"])).expect("JSON");
    let device = shown["exports"].as_object().and_then(|exports| exports.values().next()?.as_str()).expect("it has one").to_string();
    place.must_tool(&["udevadm", "trigger", "--action=change", &device], SHORT);
    place.must_tool(&["udevadm", "settle"], SHORT);
    let known = place.must_tool(&["udevadm", "info", "--query=property", &device], SHORT);
    assert!(known.contains("HEARTH_ATTACHED=under") && known.contains("SYSTEMD_READY=0"), "{known}");
    assert!(!known.contains("by-uuid") && !known.contains("ID_FS_TYPE"), "{known}");
    place.must(&["detach", "under"]);
    place.must_tool(&["dmsetup", "remove", "trial"], SHORT);
    place.must_tool(&["losetup", "--detach", &below], SHORT);
}
