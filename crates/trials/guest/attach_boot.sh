# Runs as root in a guest, and boots systemd there. $1 is `first`, `warm` or `cold`, $2 the
# binary, $3 a directory that outlives the guest, $4 the packaging directory.
#
# first: systemd boots, a file system on a logical volume is mounted, a volume is attached under it and warmed. Then systemd goes down.
# warm:  another boot of the machine: the cache is under the file system before that is mounted, and is warm.
# cold:  another one: something writes to the device before systemd comes, and nothing stale is read.
set -eu
step=$1 hearth=$2 kept=$3 packaging=${4:-}
. "${0%/*}/under_systemd.sh"
state=/var/lib/hearth

if [ "$hearth" != inside ]; then
    modprobe -a dm-mod loop fuse
    # The layers of the guest's root, an overlay, were mounted before it and are not to be seen. They lie on none of its disks, as these do not.
    mkdir -p /lower /rw
    mount -t tmpfs lower /lower
    mount -t tmpfs rw /rw
    mkdir /rw/upper
    mkdir -p $state /srv/lv
    [ "$step" != first ] || { mkfs.ext4 -q /dev/vmlab/state; vgcreate -qq vg "$(readlink -f /dev/vmlab/disk)"; }
    mount /dev/vmlab/state $state
    [ "$step" != first ] || { lvcreate -qq -y -L 64M -n lv vg; mkfs.ext4 -q /dev/vg/lv; }
    vgchange -qq -ay vg
    if [ "$step" = cold ]; then
        mount /dev/vg/lv /srv/lv
        tr 'a-z' 'b-za' </srv/lv/file >/tmp/changed
        dd if=/tmp/changed of=/srv/lv/file conv=notrunc,fsync status=none
        sha256sum </tmp/changed >"$kept/sum"
        umount /srv/lv
    fi
    may_mount_at_boot /dev/vg/lv /srv/lv
    under_systemd "$kept" "$hearth" "$packaging" "$0" "$step"
    # udev may look at the block device in the moment in which it ends.
    dmesg | grep -E 'I/O error|EXT4-fs error' | grep -vE 'dev ublkb[0-9]+, sector 0 op 0x0:\(READ\)' && exit 1
    sync
    exit 0
fi

# Each block once, in no order.
read_all() {
    fio --name=reads --filename=/srv/lv/file --rw=randread --bs=4k --direct=1 --ioengine=io_uring --iodepth=8 --readonly >/dev/null
}
if [ "$step" = first ]; then
    hearth pool create p --ssd "$(readlink -f /dev/vmlab/ssd)" --ram 0 >/dev/null
    hearth attach /dev/vg/lv --pool p --name v --admission always
    systemctl daemon-reload
    dd if=/dev/urandom bs=1M count=6 status=none | base64 -w 0 | head -c 8M >/srv/lv/file
    sync -f /srv/lv
    sha256sum </srv/lv/file >"$kept/sum"
    read_all
    read_all
else
    readlink "/sys/dev/block/$(dmsetup table vg-lv | cut -d' ' -f4)" | grep -E '/(ublkb|loop)[0-9]+$' && echo "under the mount"
    read_all
    sha256sum </srv/lv/file | cmp - "$kept/sum" && echo "nothing stale"
fi
hearth stats v | grep -E '^(read hits|hits|cached)'
hearth stats v --json >"$kept/stats.$step"
systemctl show -p After srv-lv.mount
echo "told"
