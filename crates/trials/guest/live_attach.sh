# Runs as root in a guest. $1 is `live` or `again`, $2 the binary, $3 a directory that outlives the guest.
#
# live:  a mounted logical volume under a load that verifies what it reads: attached, detached, attached again, extended and refreshed by LVM,
#        given a snapshot, its daemon killed and stopped, and killed for good: `hearth rescue`. Then the machine resets itself, with files
#        noted in $3/synced.
# again: the machine boots, the daemon comes after the mount, and what was written is there; a rescue; a trial leaves nothing; without hearth
#        too.
set -eu
step=$1 hearth=$2 kept=$3
run=/run/hearth
export HEARTH_SOCKET=$run/socket HEARTH_STATE=/mnt/state/hearth LVM_SUPPRESS_FD_WARNINGS=1
mkdir -p $run /mnt/state /mnt/lv
# The layers of the guest's root, an overlay, were mounted before it and are not to be seen. They lie on none of its disks, as these do not.
mkdir -p /lower /rw
mount -t tmpfs lower /lower
mount -t tmpfs rw /rw
mkdir /rw/upper
modprobe -a dm-mod dm-snapshot loop fuse
# By ublk at first, and after the boot by loop.
[ "$step" != live ] || modprobe ublk_drv

wait_for() { for _ in $(seq 600); do "$@" 2>/dev/null && return 0; sleep 0.2; done; echo "gave up waiting: $*" >&2; return 1; }

serve() {
    "$hearth" serve >>"$kept/daemon" 2>&1 &
    daemon=$!
    wait_for "$hearth" pool list >/dev/null
}

# Where the requests of the mounted volume go.
leads_here() { readlink "/sys/dev/block/$(dmsetup table vg-lv | cut -d' ' -f4)" | grep -qE '/(ublkb|loop)[0-9]+$'; }
leads_past() { ! leads_here; }
serves() { leads_here && "$hearth" volume show v | grep -q '^state: *running'; }

load() {
    fio --name=load --directory=/mnt/lv --size=12M --rw=randrw --bs=4k --direct=1 --ioengine=io_uring --iodepth=4 --time_based \
        --runtime="$1" --verify=crc32c --verify_fatal=1 --verify_backlog=64 --output="$kept/fio" &
    load=$!
    # The files are laid out first.
    wait_for [ "$(stat -c %b /mnt/lv/load.0.0 2>/dev/null || echo 0)" -ge 0 ]
}

note() {
    head -c "$2" "$hearth" >"/mnt/lv/$1"
    sync -f /mnt/lv
    (cd /mnt/lv && sha256sum "$1") >>"$kept/synced"
}

killed() {
    kill -9 $daemon
    wait $daemon || true
}

# The daemon is killed and nothing can be recorded, so that nothing can be served either: what is under way fails, and nothing after that.
rescue_without_serving() {
    # The journal must not be under way: whoever loses a write of that becomes read-only.
    mount -o remount,noatime /mnt/lv
    sync -f /mnt/lv
    killed
    dd if=/dev/vg/lv of=/dev/null iflag=direct bs=4k count=1 2>/dev/null &
    reader=$!
    sleep 1
    chattr +i "$HEARTH_STATE/state.json"
    "$hearth" rescue >/tmp/told
    chattr -i "$HEARTH_STATE/state.json"
    grep -q '/dev/mapper/vg-lv: goes on without hearth.*under way got errors' /tmp/told
    if wait $reader; then echo "a read without a server" >&2; return 1; fi
    leads_past
    [ ! -e /dev/mapper/hearth-v-origin ]
    note "$1" "$2"
    rewrite again
}

# Writes other data into a file that is there.
rewrite() {
    tr 'a-z' 'b-za' <"/mnt/lv/$1" >/tmp/changed
    dd if=/tmp/changed of="/mnt/lv/$1" conv=notrunc,fsync status=none
    sed -i "/ $1\$/d" "$kept/synced"
    (cd /mnt/lv && sha256sum "$1") >>"$kept/synced"
}

# What a daemon reads that has come after all.
right() {
    serve
    wait_for serves
    echo 3 >/proc/sys/vm/drop_caches
    (cd /mnt/lv && sha256sum --quiet -c "$kept/synced")
}

if [ "$step" = live ]; then
    mkfs.ext4 -q /dev/vmlab/state
    mount /dev/vmlab/state /mnt/state
    vgcreate -qq vg "$(readlink -f /dev/vmlab/disk)"
    lvcreate -qq -y -L 64M -n lv vg
    mkfs.ext4 -q /dev/vg/lv
    mount /dev/vg/lv /mnt/lv
    serve
    "$hearth" pool create p --ssd "$(readlink -f /dev/vmlab/ssd)" --ram 0 >/dev/null
    load 860
    note before 300000

    "$hearth" attach /dev/vg/lv --pool p --name v --admission always
    leads_here
    note attached 300001
    "$hearth" detach v
    leads_past
    [ ! -e /dev/mapper/hearth-v-origin ]
    note detached 300002
    "$hearth" attach /dev/vg/lv --pool p --name v --admission always
    note again 300003
    echo "attached, detached and attached again"

    lvextend -qq --resizefs -L +16M vg/lv
    wait_for serves
    [ "$(blockdev --getsize64 /dev/vg/lv)" = $((80 << 20)) ]
    note extended 300004
    lvchange --refresh vg/lv
    wait_for serves
    note refreshed 300005
    echo "extended and refreshed"

    # As a kill within a swap leaves it: the table that leads here, or the one that leads past, is loaded and not in force.
    for of in vg-lv hearth-v-origin; do
        dmsetup table $of | dmsetup reload vg-lv
        wait_for sh -c "! dmsetup info vg-lv | grep -q INACTIVE"
        leads_here
    done
    echo "what was loaded is taken away"

    lvcreate -qq -y -s -L 8M -n snap vg/lv
    wait_for leads_past
    note snapshotted 300006
    wait_for sh -c "'$hearth' volume show v | grep -q 'snapshots'"
    lvremove -qq -y vg/snap
    wait_for serves
    note merged 300007
    echo "went around a snapshot"

    killed
    serve
    wait_for serves
    note killed 300008
    kill $daemon
    wait $daemon
    leads_past
    note stopped 300009
    serve
    wait_for serves
    echo "killed, stopped and started"

    cat /mnt/lv/again >/dev/null
    killed
    # The load waits.
    sleep 2
    "$hearth" rescue >/tmp/told
    grep -qx '/dev/mapper/vg-lv: goes on without hearth; the next start.*' /tmp/told
    leads_past
    [ ! -e /dev/mapper/hearth-v-origin ]
    note rescued 300011
    rewrite again
    # With the load under way it is the SSD's turn to be right.
    right
    note returned 300012
    echo "rescued, and attached again"

    kill -0 $load
    kill -INT $load
    wait $load || true
    grep -q 'err= 0' "$kept/fio"
    rm /mnt/lv/load*
    note last 300010
    # Warm, so that a boot has something to get wrong.
    for _ in 1 2 3; do echo 3 >/proc/sys/vm/drop_caches; cat /mnt/lv/[a-k]* /mnt/lv/last >/dev/null; done
    "$hearth" stats v | grep -E '^(read hits|cached)'
    dmesg | grep -E 'I/O error|EXT4-fs error' && exit 1
    rescue_without_serving forced 300013
    right
    for _ in 1 2 3; do echo 3 >/proc/sys/vm/drop_caches; cat /mnt/lv/[a-k]* /mnt/lv/last >/dev/null; done
    sync
    sleep 1
    echo "the load saw no error"
    sleep 2
    echo b >/proc/sysrq-trigger
    sleep 60
fi

mount /dev/vmlab/state /mnt/state
vgchange -qq -ay vg
mount /dev/vg/lv /mnt/lv
# Written past hearth: its cache has the files as they were.
rewrite again
rewrite last
sync -f /mnt/lv
right
echo "after the boot: attached under the mount, nothing stale"
for _ in 1 2 3; do echo 3 >/proc/sys/vm/drop_caches; cat /mnt/lv/[a-k]* >/dev/null; done
killed
head -c 4096 "$hearth" >/tmp/page
dd if=/tmp/page of=/mnt/lv/attached oflag=direct conv=notrunc status=none &
writer=$!
# Who keeps the block device open calls the rescue after two minutes.
for _ in 1 2 3; do wait_for leads_past && break; done 2>/dev/null
leads_past
wait $writer
wait_for [ ! -e /dev/mapper/hearth-v-origin ]
rewrite again
right
echo "rescued by who keeps the block device"
for _ in 1 2 3; do echo 3 >/proc/sys/vm/drop_caches; cat /mnt/lv/[a-k]* >/dev/null; done
rescue_without_serving looped 300014
right
echo "rescued without serving"
"$hearth" detach v

before=$(dmsetup table; ls /dev/mapper)
"$hearth" attach /dev/vg/lv --trial --name look
leads_here
echo 3 >/proc/sys/vm/drop_caches
(cd /mnt/lv && sha256sum --quiet -c "$kept/synced")
"$hearth" detach look
[ "$(dmsetup table; ls /dev/mapper)" = "$before" ]
[ "$("$hearth" volume list --json | tr -d ' \n')" = '[]' ]
echo "a trial left nothing"

kill $daemon
wait $daemon
umount /mnt/lv
e2fsck -fn /dev/vg/lv >/dev/null
mount -o ro /dev/vg/lv /mnt/lv
(cd /mnt/lv && sha256sum --quiet -c "$kept/synced")
umount /mnt/lv
lvremove -qq -y vg/lv
echo "files there: $(wc -l <"$kept/synced")"
