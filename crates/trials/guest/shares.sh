# Runs as root in a guest. $1 is the binary, $2 a directory that outlives the guest. With `long` as $3 also: a start on an
# empty configfs, a target that another program removes, a daemon that does not come back.
#
# Two write-back volumes, shared by the kernel's own targets, and used by the kernel's own initiators over loopback: v by iSCSI
# with mutual CHAP, w by NVMe over TCP with an allowed host. The daemon is killed under verifying load on both. w grows.
set -eu
hearth=$1 kept=$2
run=/run/hearth
export HEARTH_SOCKET=$run/socket HEARTH_STATE=/run/state
mkdir -p $run /mnt/v /mnt/w /run/lock/iscsi
modprobe -a loop fuse ublk_drv target_core_mod nvmet iscsi_tcp nvme-tcp sd_mod

wait_for() { for _ in $(seq 1200); do "$@" >/dev/null 2>&1 && return 0; sleep 0.1; done; echo "gave up waiting: $*" >&2; return 1; }
# A command after `!` may do as it likes under `set -e`.
none() { if grep "$@"; then echo "was found: $*" >&2; return 1; fi; }
refused() { if "$@" >/run/refused 2>&1; then echo "was not refused: $*" >&2; return 1; fi; }
serve() {
    "$hearth" serve >>"$kept/daemon" 2>&1 &
    daemon=$!
    wait_for "$hearth" pool list
}
shown() { "$hearth" share show "${3:-v}" "--$1" --json | sed -n "s/.*\"$2\": \"\\(.*\\)\".*/\\1/p"; }
shared() { [ -n "$(shown "$1" device)" ]; }
scsi_disk() { for disk in /sys/block/sd*; do [ -e "$disk" ] && echo "/dev/${disk##*/}"; done; }
scsi_gone() { [ -z "$(scsi_disk)" ]; }
logout() { node -u && wait_for scsi_gone; }
scsi_there() { [ -n "$(scsi_disk)" ] && [ "$(blockdev --getsize64 "$(scsi_disk)")" -gt 0 ]; }
nvme_there() { [ -b /dev/nvme0n1 ]; }
bytes_of() { [ "$(blockdev --getsize64 "$1")" = "$2" ]; }

cp "$hearth" /run/hearth-binary
hearth=/run/hearth-binary
serve
"$hearth" pool create p --ssd "$(readlink -f /dev/vmlab/ssd)" --ram 32MiB >/dev/null
truncate -s 96M /run/v.img /run/w.img
"$hearth" volume add v --backing /run/v.img --pool p --mode write-back --export block >/dev/null
"$hearth" volume add w --backing /run/w.img --pool p --mode write-back --export loop >/dev/null

# ---- iSCSI, mutual CHAP
me=iqn.2026-01.test:host
echo "InitiatorName=$me" >/etc/iscsi/initiatorname.iscsi
iscsid
printf 'user = db\npassword = theirs-1234567\nmutual_user = hearth\nmutual_password = ours-123456789\n' >/run/chap
refused "$hearth" share add v --iscsi --initiator $me --chap /run/chap
grep -q 'chmod 600' /run/refused
chmod 600 /run/chap
"$hearth" share add v --iscsi --initiator $me --chap /run/chap >/dev/null
iqn=$(shown iscsi target)
node() { iscsiadm -m node -T "$iqn" -p 127.0.0.1:3260 "$@" >/dev/null; }
iscsiadm -m discovery -t sendtargets -p 127.0.0.1 >/dev/null
secrets() {
    node -o update -n node.session.auth.authmethod -v CHAP
    node -o update -n node.session.auth.username -v db
    node -o update -n node.session.auth.password -v "$1"
    node -o update -n node.session.auth.username_in -v hearth
    node -o update -n node.session.auth.password_in -v "$2"
    node -o update -n node.session.initial_login_retry_max -v 1
}
refused node -l
secrets wrong-1234567890 ours-123456789
refused node -l
secrets theirs-1234567 wrong-1234567890
refused node -l
secrets theirs-1234567 ours-123456789
node -l
wait_for scsi_there
disk=$(scsi_disk)
[ "$(cat "/sys/block/${disk#/dev/}/device/wwid")" = "$(shown iscsi wwn)" ]
grep -aq "$(shown iscsi serial)" "/sys/block/${disk#/dev/}/device/vpd_pg80"
"$hearth" share show v --iscsi | grep -q "connected: *$me"
echo "CHAP: wrong secrets are refused, right ones are taken; the disk has its names"

refused "$hearth" volume stop v
grep -q 'hearth share remove v --iscsi' /run/refused
refused "$hearth" share remove v
grep -q -- --force /run/refused

mkfs.ext4 -q "$disk"
mount "$disk" /mnt/v
head -c 8M "$hearth" >/mnt/v/large
sync
discards() { awk '{ print $12 }' "/sys/block/$(basename "$(shown iscsi device)")/stat"; }
before=$(discards)
fstrim /mnt/v
[ "$(discards)" -gt "$before" ]
echo "UNMAP: reaches the volume"

if command -v sg_persist >/dev/null; then
    reserve() { sg_turs "$disk" || true; sg_persist -n -v --out "$@" "$disk" >/dev/null; }
    reserve --register --param-sark=abc1 --param-aptpl
    reserve --reserve --param-rk=abc1 --prout-type=5
    sg_persist -n --in --read-reservation "$disk" | grep -q 'Key=0xabc1'
    umount /mnt/v
    logout
    "$hearth" share remove v >/dev/null
    "$hearth" share add v --iscsi --initiator $me --chap /run/chap >/dev/null
    node -l
    wait_for scsi_there
    disk=$(scsi_disk)
    sg_persist -n --in --read-reservation "$disk" | grep -q 'Key=0xabc1'
    # The new session is another one to the target.
    reserve --register-ignore --param-sark=abc2
    reserve --clear --param-rk=abc2
    sg_turs "$disk" || true
    sg_persist -n --in --read-reservation "$disk" | grep -q 'NO reservation'
    # Block 0 with itself: compared and written.
    dd if="$disk" of=/run/block bs=512 count=1 status=none
    cat /run/block /run/block >/run/blocks
    sg_compare_and_write --in=/run/blocks --lba=0 --num=1 --xferlen=1024 "$disk" >/dev/null
    mount "$disk" /mnt/v
    echo "reservations: kept over a removal; compare and write: works"
fi
cmp -n 8388608 "$hearth" /mnt/v/large

# ---- NVMe over TCP, one allowed host
nqn=nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555
"$hearth" share add w --nvme-tcp --initiator $nqn >/dev/null
subsystem=$(shown nvme-tcp target w)
connect() { nvme connect -t tcp -a 127.0.0.1 -s 4420 -n "$subsystem" --ctrl-loss-tmo -1 -q "$1" >/dev/null; }
refused connect nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-666666666666
connect $nqn
wait_for nvme_there
grep -q "$(shown nvme-tcp wwn w)" /sys/block/nvme0*/wwid
refused "$hearth" share remove w
grep -q -- --force /run/refused
mkfs.ext4 -q /dev/nvme0n1
mount /dev/nvme0n1 /mnt/w
echo "NVMe/TCP: the allowed host only; the disk has its name"

# ---- the daemon is killed under load on both, three times
load() {
    fio --name=load --filename="$1" --size=16M --rw=randrw --bs=4k --direct=1 --ioengine=io_uring --iodepth=8 --time_based \
        --runtime="$2" --verify=crc32c --verify_fatal=1 --verify_backlog=64 --randrepeat=0 --output="$1.fio"
}
load /mnt/v/load 20 & iscsi_load=$!
load /mnt/w/load 20 & nvme_load=$!
for _ in 1 2 3; do
    sleep 3
    kill -9 $daemon
    wait $daemon 2>/dev/null || true
    serve
done
wait $iscsi_load
wait $nvme_load
cmp -n 8388608 "$hearth" /mnt/v/large
echo "iSCSI and NVMe/TCP: three kills under load, no error"

umount /mnt/v
e2fsck -fn "$disk" >/dev/null 2>&1
logout
"$hearth" share remove v >/dev/null

# ---- a shared volume grows: NVMe hosts are told, iSCSI initiators see it when they look
"$hearth" share add w --iscsi --initiator $me >/dev/null
of_w() { iscsiadm -m node -T "$(shown iscsi target w)" -p 127.0.0.1:3260 "$@" >/dev/null; }
iscsiadm -m discovery -t sendtargets -p 127.0.0.1 >/dev/null
of_w -l
wait_for scsi_there
disk=$(scsi_disk)
bytes_of "$disk" 100663296
truncate -s 128M /run/w.img
grows() { "$hearth" volume grow w; }
wait_for grows
wait_for bytes_of /dev/nvme0n1 134217728
iscsiadm -m session --rescan >/dev/null
wait_for bytes_of "$disk" 134217728
of_w -u
wait_for scsi_gone
resize2fs /dev/nvme0n1 2>/dev/null
dd if=/dev/urandom of=/mnt/w/new bs=1M count=16 conv=fsync status=none
fstrim /mnt/w
umount /mnt/w
e2fsck -fn /dev/nvme0n1 >/dev/null 2>&1
nvme disconnect -n "$subsystem" >/dev/null
"$hearth" share remove w --iscsi >/dev/null
"$hearth" share remove w --nvme-tcp >/dev/null
"$hearth" volume remove w >/dev/null
echo "growth: seen by both"

none -rE 'theirs-1234567|ours-123456789' "$kept/daemon" /run/state
[ -z "$(dmesg | grep -E 'I/O error|Buffer I/O|blocked for more')" ]
# Nobody took anything away so far, and no look has missed anything.
none -E 'by another program|does not answer' "$kept/daemon"
if [ "${3:-}" != long ]; then
    "$hearth" volume remove v >/dev/null
    kill $daemon
    wait $daemon
    echo "all trials passed"
    exit 0
fi

# ---- all is gone with the daemon, and comes back with it
"$hearth" share add v --iscsi --initiator $me --chap /run/chap >/dev/null
"$hearth" share add v --nvme-tcp --initiator $nqn >/dev/null
kill $daemon
wait $daemon
[ -z "$(find /sys/kernel/config/target /sys/kernel/config/nvmet -name '*hearth*' -o -path '*/subsystems/*')" ]
serve
wait_for shared iscsi
wait_for shared nvme-tcp
# The latest discovery has forgotten it.
iscsiadm -m discovery -t sendtargets -p 127.0.0.1 >/dev/null
secrets theirs-1234567 ours-123456789
node -l
wait_for scsi_there
disk=$(scsi_disk)
mount "$disk" /mnt/v
cmp -n 8388608 "$hearth" /mnt/v/large
umount /mnt/v
logout
echo "shares: back after a start on an empty configfs"

[ -z "$(dmesg | grep -E 'I/O error|Buffer I/O|blocked for more')" ]

# ---- what others take away is set up again
"$hearth" share remove v --nvme-tcp >/dev/null
rm /sys/kernel/config/target/iscsi/"$iqn"/tpgt_1/acls/*/lun_0/hearth-v
wait_for test -e /sys/kernel/config/target/iscsi/"$iqn"/tpgt_1/acls/$me/lun_0/hearth-v
wait_for node -l
wait_for scsi_there
logout
echo 0 >/sys/kernel/config/target/iscsi/"$iqn"/tpgt_1/enable
for portal in /sys/kernel/config/target/iscsi/"$iqn"/tpgt_1/np/*; do rmdir "$portal"; done
for entry in /sys/kernel/config/target/iscsi/"$iqn"/tpgt_1/acls/*/lun_0; do rm "$entry"/hearth-v && rmdir "$entry" "${entry%/lun_0}"; done
rm /sys/kernel/config/target/iscsi/"$iqn"/tpgt_1/lun/lun_0/hearth-v
rmdir /sys/kernel/config/target/iscsi/"$iqn"/tpgt_1/lun/lun_0 /sys/kernel/config/target/iscsi/"$iqn"/tpgt_1 \
    /sys/kernel/config/target/iscsi/"$iqn" /sys/kernel/config/target/core/iblock_*/hearth-v
wait_for node -l
wait_for scsi_there
disk=$(scsi_disk)
reads() { timeout 100 dd if="$disk" of=/dev/null bs=4k count=1 iflag=direct 2>/dev/null; }
reads
echo "a target that another program removed: is set up again"

# ---- nobody comes: initiators get errors in time, and nothing hangs
kill -9 $daemon
wait $daemon 2>/dev/null || true
code=0
reads || code=$?
[ $code = 1 ] || { echo "a read without a daemon ended with $code" >&2; exit 1; }
serve
wait_for shared iscsi
wait_for reads
logout
echo "a daemon that is gone for long: errors, then the same disk again"

"$hearth" share remove v --iscsi >/dev/null
[ -z "$(find /sys/kernel/config/target /sys/kernel/config/nvmet -name '*hearth*' -o -path '*/subsystems/*')" ]
none -rE 'theirs-1234567|ours-123456789' "$kept/daemon" /run/state
[ -z "$(dmesg | grep 'blocked for more')" ]
"$hearth" volume remove v >/dev/null
kill $daemon
wait $daemon
echo "all trials passed"
