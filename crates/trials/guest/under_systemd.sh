# To be read by scripts that run as root in a guest. systemd boots below the guest's init, in namespaces of its own, as in a container, with
# the units of the package, runs one script as a service, and goes down.
#
#   under_systemd KEPT HEARTH PACKAGING SCRIPT STEP    runs `sh SCRIPT STEP inside KEPT` there; prints what that said
#   may_mount_at_boot DEVICE POINT                     before that: a file system of /etc/fstab
#
# The daemon's words are added to KEPT/daemon, systemd's to KEPT/systemd.STEP.

units=/lib/systemd/system

may_mount_at_boot() {
    mkdir -p "$2" $units/local-fs.target.requires
    echo "$1 $2 ext4 defaults 0 0" >>/etc/fstab
    # In a container systemd makes no unit of that line, as it does on a machine.
    mount=$(systemd-escape --path --suffix=mount "$2")
    printf '[Unit]\nBefore=local-fs.target\n[Mount]\nWhat=%s\nWhere=%s\nType=ext4\n' "$1" "$2" >"$units/$mount"
    ln -sf "../$mount" $units/local-fs.target.requires/
}

under_systemd() {
    kept=$1 hearth=$2 packaging=$3 script=$4 step=$5
    # As the package does it.
    ln -sf "$hearth" /usr/bin/hearth
    cp "$packaging"/hearth.service "$packaging"/hearth-rescue.service "$packaging"/hearth-attach@.service $units
    mkdir -p /lib/systemd/system-generators /etc/systemd/system /etc/hearth
    cp "$packaging"/hearth-generator /lib/systemd/system-generators/
    mkdir -p /etc/systemd/system/multi-user.target.wants
    ln -sf $units/hearth.service /etc/systemd/system/multi-user.target.wants/
    grep -q '^hearth:' /etc/group || groupadd -r hearth
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
ExecStart=/bin/sh $script $step inside $kept
ExecStopPost=/bin/kill -s RTMIN+4 1
StandardOutput=append:$kept/told.$step
StandardError=inherit
TimeoutStartSec=240
END
    mkdir -p $units/trial.target.wants $units/hearth.service.d
    ln -sf ../trial.service $units/trial.target.wants/
    printf '[Service]\nStandardOutput=append:%s\nStandardError=inherit\n' "$kept/daemon" >$units/hearth.service.d/90-told.conf
    # No other service of this machine is wanted.
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
    timeout 300 unshare --mount --pid --fork --kill-child --cgroup sh /run/boot >"$kept/systemd.$step" 2>&1 || true
    cat "$kept/told.$step"
}
