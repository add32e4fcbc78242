# Runs as root in a guest, with systemd below it in namespaces of its own, as in a container. $1 is `first`, `warm` or `cold`, $2 the
# binary, $3 a directory that outlives the guest, $4 the packaging directory.
#
# first: systemd boots, a file system on a logical volume is mounted, a volume is attached under it and warmed. Then systemd goes down.
# warm:  another boot of the machine: the cache is under the file system before that is mounted, and is warm.
# cold:  another one: something writes to the device before systemd comes, and nothing stale is read.
set -eu
step=$1 hearth=$2 kept=$3 packaging=${4:-}
state=/var/lib/hearth

if [ "$hearth" != inside ]; then
    modprobe -a dm-mod loop fuse
    mkdir -p $state /srv/lv /etc/hearth
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
    # As the package does it.
    units=/lib/systemd/system
    ln -sf "$hearth" /usr/bin/hearth
    cp "$packaging"/hearth.service "$packaging"/hearth-rescue.service "$packaging"/hearth-attach@.service $units
    mkdir -p /lib/systemd/system-generators /etc/systemd/system
    cp "$packaging"/hearth-generator /lib/systemd/system-generators/
    grep -q '^hearth:' /etc/group || groupadd -r hearth
    echo '/dev/vg/lv /srv/lv ext4 defaults 0 0' >/etc/fstab
    # In a container systemd makes no unit of that line, as it does on a machine.
    printf '[Unit]\nBefore=local-fs.target\n[Mount]\nWhat=/dev/vg/lv\nWhere=/srv/lv\nType=ext4\n' >$units/srv-lv.mount
    mkdir -p $units/local-fs.target.requires
    ln -sf ../srv-lv.mount $units/local-fs.target.requires/
    # No other service of this machine is wanted: only what a boot needs.
    cat >$units/trial.target <<END
[Unit]
Requires=sysinit.target
After=sysinit.target
AllowIsolate=yes
END
    cat >$units/trial.service <<END
[Unit]
After=local-fs.target hearth.service
Wants=hearth.service
[Service]
Type=oneshot
ExecStart=/bin/sh $0 $step inside $kept
ExecStopPost=/bin/kill -s RTMIN+4 1
StandardOutput=append:$kept/told.$step
StandardError=inherit
TimeoutStartSec=200
END
    mkdir -p $units/trial.target.wants $units/hearth.service.d
    printf '[Service]\nStandardOutput=append:%s\nStandardError=inherit\n' "$kept/daemon" >$units/hearth.service.d/90-told.conf
    ln -sf ../trial.service $units/trial.target.wants/
    for other in systemd-udevd systemd-udev-trigger systemd-journald systemd-timesyncd systemd-random-seed systemd-networkd systemd-binfmt; do
        ln -sf /dev/null /etc/systemd/system/$other.service
    done
    cat >/run/boot <<'END'
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs tmpfs /run
mount -o remount,bind,ro /sys
mountpoint -q /sys/fs/cgroup || mount -t cgroup2 cgroup2 /sys/fs/cgroup
# As on a machine: who has namespaces of its own sees what is unmounted.
mount --make-rshared /
exec env -i container=lxc PATH="$PATH" /lib/systemd/systemd --unit=trial.target --log-target=console --show-status=no
END
    timeout 260 unshare --mount --pid --fork --kill-child --cgroup sh /run/boot >"$kept/systemd.$step" 2>&1 || true
    cat "$kept/told.$step"
    dmesg | grep -E 'I/O error|EXT4-fs error' && exit 1
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
    dmsetup table vg-lv | grep -q ' linear 7:' && echo "under the mount"
    read_all
    sha256sum </srv/lv/file | cmp - "$kept/sum" && echo "nothing stale"
fi
hearth stats v | grep -E '^(read hits|hits|cached)'
hearth stats v --json >"$kept/stats.$step"
systemctl show -p After srv-lv.mount
echo "told"
