//! A real guest, in the lab, on a disk over vhost-user that outlives the daemon.

use std::path::PathBuf;
use std::time::Duration;
use trials::command::{self, Ended};
use trials::needs::{Need, met};
use trials::place::Place;

/// How often the daemon is killed. `TRIAL_KILLS=200` is the long run.
fn kills() -> u32 {
    std::env::var("TRIAL_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(5)
}

/// The lab beside the project, if it is there.
fn lab() -> Option<PathBuf> {
    let given = std::env::var_os("VMLAB").map(PathBuf::from);
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vmlab/vmlab");
    given.into_iter().chain([beside]).find(|path| path.is_file())
}

/// What runs in the guest: a file system under load that verifies itself, and afterwards what the kernel said.
const LOAD: &str = r#"set -e
mkfs.ext4 -q /dev/vda
mount -o noatime /dev/vda /mnt
fio --name=files --directory=/mnt --rw=randwrite --bs=4k --size=2m --numjobs=2 --nrfiles=4 --ioengine=libaio --direct=1 \
    --iodepth=8 --fsync=64 --verify=crc32c --verify_fatal=1 --verify_backlog=32 --verify_state_save=0 --time_based \
    --runtime=$SECONDS_LONG --group_reporting >/tmp/fio || { cat /tmp/fio; exit 1; }
grep -q ' read: IOPS=' /tmp/fio || { echo 'nothing was verified'; cat /tmp/fio; exit 1; }
umount /mnt
e2fsck -fn /dev/vda
! dmesg | grep -iE 'i/o error|buffer i/o|ext4-fs error'
echo the guest is well
"#;

/// See `migration`.
const ATTEMPTS: u32 = 3;

#[test]
fn guest_under_kills() {
    let needs = [Need::Root, Need::Program("qemu-system-x86_64"), Need::Program("fio"), Need::Program("mkfs.ext4")];
    if !met("guest_under_kills", &needs) {
        return;
    }
    let Some(lab) = lab() else {
        eprintln!("guest_under_kills: SKIPPED, there is no guest lab beside the project (VMLAB=PATH names one)");
        return;
    };
    let _turn = trials::turns::Turn::wait();
    for attempt in 1.. {
        let Err(ended) = under_kills(&lab.display().to_string()) else { return };
        // The kernel of an emulated machine does not always live, whatever its disk: see `migration`. Wrong data would be told by fio and e2fsck.
        let text = format!("{}{}", ended.stdout, ended.stderr);
        let is_panic = text.contains("Kernel panic") || text.contains("Oops: ");
        assert!(attempt < ATTEMPTS && is_panic, "the guest ended before its time: {ended:#?}");
        eprintln!("guest_under_kills: the guest's kernel died before any kill, and is tried again");
    }
}

/// One trial. What the guest said, if it ended before the first kill.
fn under_kills(lab: &str) -> Result<(), Ended> {
    let mut place = Place::new("guests");
    place.start();
    place.pool(128, 16);
    let (volume, exports) = place.volume(256, "write-back", &["--export", "vhost-user", "--write-cache-depth", "1s"]);
    let seconds = 5 + 3 * kills();
    let disk = format!("vhost={},queues=2", exports.vhost_user);
    let mut words = vec![lab.to_string()];
    words.extend(["run", "--cpus", "2", "--disk", &disk, "--env"].map(String::from));
    words.extend([format!("SECONDS_LONG={seconds}"), "--".into(), "sh".into(), "-c".into(), LOAD.into()]);
    let limit = Duration::from_secs(300 + 2 * u64::from(seconds));
    let (done, ended) = std::thread::scope(|scope| {
        let guest = scope.spawn(move || command::run(&mut command::words(&words), limit));
        let mut done = 0;
        // The guest needs a while to boot; kills begin when it writes.
        while done < kills() && !guest.is_finished() {
            std::thread::sleep(Duration::from_millis(700 + u64::from(done) * 7919 % 1000));
            if place.counter(&volume, "writes") > 500 || done > 0 {
                place.kill();
                place.start();
                done += 1;
            }
        }
        (done, guest.join().expect("no panic"))
    });
    if done == 0 {
        return Err(ended);
    }
    assert_eq!(done, kills(), "the guest ended before its time: {ended:#?}");
    assert!(ended.good() && ended.stdout.contains("the guest is well"), "{ended:#?}\n{}", place.log());
    assert_eq!(place.counter(&volume, "checksum_errors"), 0);
    eprintln!("{} kills under a guest, no error", kills());
    place.stop();
    Ok(())
}
