//! What clients are told of volumes that keep units whole (`--atomic`), by each export that has a word for it.

use guest::{Guest, Options};
use trials::lab;
use trials::needs::{Need, met};
use trials::place::{Place, SHORT};

#[test]
fn guests_and_nbd_clients_are_told_of_units() {
    const NAME: &str = "guests_and_nbd_clients_are_told_of_units";
    if !met(NAME, &[Need::Program("nbdinfo")]) {
        return;
    }
    let mut place = Place::new("units");
    place.start();
    place.pool(64, 8);
    let (volume, exports) = place.volume(64, "write-back", &["--atomic", "16KiB", "--export", "vhost-user", "--export", "nbd"]);
    let mut guest = Guest::start(exports.vhost_user.as_ref(), Options::default()).expect("a guest");
    let config = guest.config(0, 60).expect("configuration");
    let segments = u32::from_le_bytes(config[12..16].try_into().expect("four bytes"));
    assert_eq!(
        (config[24], &config[26..28], segments % 4),
        (5, &[32, 0][..], 0),
        "32 sectors are a physical block; no request ends in one"
    );
    drop(guest);
    let told = place.must_tool(&["nbdinfo", "--json", &exports.nbd_uri], SHORT);
    let told: serde_json::Value = serde_json::from_str(&told).expect("--json gives JSON");
    assert_eq!(told["exports"][0]["block_size_preferred"], 16384, "{told:#}");
    let shown = place.must(&["volume", "show", &volume]);
    assert!(shown.contains("atomic writes:") && shown.contains("16 KiB"), "{shown}");
    place.stop();
}

#[test]
fn a_block_device_says_what_is_whole() {
    const NAME: &str = "a_block_device_says_what_is_whole";
    if !met(NAME, &[Need::Root, Need::UblkOrLab]) {
        return;
    }
    if !lab::is_guest() && !std::path::Path::new("/dev/ublk-control").exists() {
        return lab::pass_in_guest(&format!("units::{NAME}"), &["ublk_drv"], &[]);
    }
    let mut place = Place::new("units");
    place.start();
    place.pool(64, 8);
    let (volume, exports) = place.volume(64, "write-back", &["--atomic", "16KiB", "--export", "ublk"]);
    let physical = |device: &str| {
        let number = device.trim_start_matches("/dev/");
        std::fs::read_to_string(format!("/sys/block/{number}/queue/physical_block_size")).expect("a device").trim().to_owned()
    };
    assert_eq!(physical(&exports.loop_device), "16384");
    let user = std::fs::File::open(&exports.loop_device).expect("it can be read");
    let refused = place.hearth(&["volume", "set", &volume, "--atomic", "off"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("programs may rely on whole writes"), "{said}");
    let said = place.must(&["volume", "set", &volume, "--atomic", "32KiB"]);
    assert!(said.contains("does not say so before"), "{said}");
    drop(user);
    // Whoever looks at a device that was just closed may still have it open.
    let begun = std::time::Instant::now();
    while !place.hearth(&["volume", "set", &volume, "--atomic", "off"]).status().expect("it runs").success() {
        assert!(begun.elapsed() < SHORT, "nobody uses it");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let exports = place.exports(&volume);
    assert!(
        physical(&exports.loop_device).parse::<u32>().is_ok_and(|bytes| bytes <= 4096),
        "made anew, it says what its backing device does"
    );
    place.stop();
}
