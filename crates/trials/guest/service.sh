# Runs as root in a guest, and boots systemd there: the package's service under a load that verifies what it reads, on file systems on two
# block devices, by ublk and by loop. It is restarted, killed twice, stopped and started. $1 is `service`, $2 the binary, $3 a directory that
# outlives the guest, $4 the packaging directory. Where tgt is installed, a volume is shared by it, as on a kernel without LIO.
set -eu
step=$1 hearth=$2 kept=$3 packaging=${4:-}
. "${0%/*}/under_systemd.sh"

if [ "$hearth" != inside ]; then
    modprobe -a loop fuse ublk_drv
    mkdir -p /var/lib/hearth
    mkfs.ext4 -q /dev/vmlab/state
    mount /dev/vmlab/state /var/lib/hearth
    # Who set this machine up may have seen to it that tgt does not start by itself; here it has to.
    [ ! -L /etc/systemd/system/tgt.service ] || rm /etc/systemd/system/tgt.service
    # As on a kernel without LIO.
    ln -sf /dev/null /etc/systemd/system/modprobe@target_core_mod.service
    mount --bind /dev/null "/lib/modules/$(uname -r)/modules.dep"
    under_systemd "$kept" "$hearth" "$packaging" "$0" "$step"
    exit 0
fi

disk=$(readlink -f /dev/vmlab/disk)
hearth pool create p --ssd "$(readlink -f /dev/vmlab/ssd)" --ram 8MiB >/dev/null
truncate -s 64M /srv/disk.img
for how in block loop; do
    backing=$disk
    [ $how = block ] || backing=$(echo /srv/disk.img)
    hearth volume add $how --pool p --backing "$backing" --mode write-back --export $how >/dev/null
    device=$(hearth volume show $how --json | grep -oE '/dev/(loop|ublkb)[0-9]+')
    mkdir -p /run/$how
    mkfs.ext4 -q "$device"
    mount "$device" /run/$how
    fio --name=load --directory=/run/$how --size=8M --rw=randrw --bs=4k --direct=1 --ioengine=io_uring --iodepth=4 --time_based --runtime=20 \
        --verify=crc32c --verify_fatal=1 --verify_backlog=64 --output="$kept/fio.$how" &
    eval "load_$how=$!"
    echo "$how is $device"
done
main() { systemctl show -p MainPID --value hearth; }
wait_for() { for _ in $(seq 1200); do "$@" 2>/dev/null && return 0; sleep 0.1; done; echo "gave up waiting: $*" >&2; return 1; }
is_another() { [ "$(main)" != "$1" ] && [ "$(main)" != 0 ] && hearth volume wait block --limit 1 >/dev/null; }
sleep 5
for blow in "systemctl restart hearth" kill kill; do
    before=$(main)
    case $blow in kill) kill -9 "$before" ;; *) $blow ;; esac
    wait_for is_another "$before"
    sleep 1
done
echo "restarts by systemd: $(systemctl show -p NRestarts --value hearth)"
wait "$load_block"
wait "$load_loop"
grep -h -o 'err= [0-9]*' "$kept"/fio.*
dmesg | grep -E 'I/O error|EXT4-fs error' && exit 1
echo "the load saw no error"
# Who stops it for good has what was written, as far as it was, when it is there again.
for how in block loop; do head -c 2000000 /usr/bin/hearth >/run/$how/last; done
systemctl stop hearth
umount /run/block /run/loop || true
systemctl start hearth
for how in block loop; do
    hearth volume wait $how >/dev/null
    device=$(hearth volume show $how --json | grep -oE '/dev/(loop|ublkb)[0-9]+')
    mount "$device" /run/$how
    head -c 2000000 /usr/bin/hearth | cmp - /run/$how/last
    umount /run/$how
    e2fsck -fn "$device" >/dev/null
    echo "$how has what was written"
done
hearth volume show loop

# The packaged service may not look at disks from outside; the drop-in of docs/advice.md lets it.
if hearth analysis start trial --device "$disk" >/run/refused 2>&1; then echo "it looked without a drop-in" >&2; exit 1; fi
cat /run/refused
# As sys-kernel-tracing.mount does on a machine.
grep -q ' /sys/kernel/tracing ' /proc/mounts || mount -t tracefs nodev /sys/kernel/tracing
mkdir -p /run/systemd/system/hearth.service.d
printf '[Service]\nSystemCallFilter=bpf perf_event_open\n' >/run/systemd/system/hearth.service.d/50-trial.conf
systemctl daemon-reload
systemctl restart hearth
hearth volume wait block >/dev/null
hearth analysis start trial --device "$disk"
dd if="$disk" of=/dev/null bs=64k count=64 iflag=direct status=none
has_seen() { hearth analysis show trial --json | grep -E '"read_bytes": *[1-9]|"scanned_bytes": *[1-9]' >/dev/null; }
wait_for has_seen
hearth analysis forget trial
echo "a trial under systemd has seen reads"

command -v tgtd >/dev/null || exit 0
# It takes orders of the group root only, so the unit needs a drop-in.
ip link set lo up
systemctl start tgt
if hearth share add loop --iscsi >/run/refused 2>&1; then echo "tgt took orders of another group" >&2; exit 1; fi
grep 'Group=root' /run/refused
mkdir -p /run/systemd/system/hearth.service.d
printf '[Service]\nGroup=root\n' >/run/systemd/system/hearth.service.d/50-tgt.conf
systemctl daemon-reload
systemctl restart hearth
hearth volume wait loop >/dev/null
hearth share add loop --iscsi | grep 'tgt serves it'
has_target() { tgtadm --lld iscsi --mode target --op show | grep -q hearth:; }
has_target
# Its unit removes all targets and asks it to end, which it does only without any.
systemctl restart tgt
[ "$(systemctl show -p Result --value tgt)" = success ]
wait_for has_target
systemctl kill -s KILL hearth
wait_for hearth volume wait loop --limit 1 >/dev/null
hearth share remove loop --iscsi
if has_target; then echo "the target has remained" >&2; exit 1; fi
systemctl stop tgt
echo "tgt serves under systemd"
