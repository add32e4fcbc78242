# Runs as root in a guest. $1 is `write` or `check`, $2 the binary, $3 a directory that outlives the guest.
#
# write: a write-back volume, attached by the kernel's own NBD client, with ext4 on it; files, some of them synced and noted
#        in $3/synced; then the machine resets itself without a word to anybody.
# check: everything that was synced is there, the file system is sound, and so is the backing disk without hearth.
set -eu
step=$1 hearth=$2 kept=$3
run=/run/hearth
export HEARTH_SOCKET=$run/socket HEARTH_STATE=/mnt/state/hearth
mkdir -p $run /mnt/state /mnt/volume

wait_for() { for _ in $(seq 600); do "$@" 2>/dev/null && return 0; sleep 0.2; done; echo "gave up waiting: $*" >&2; return 1; }

serve() {
    "$hearth" serve >"$kept/daemon.$step" 2>&1 &
    daemon=$!
    wait_for "$hearth" pool list >/dev/null
}

offered() { "$hearth" volume show v --json | grep -q 'nbd+unix:'; }
attached() { [ "$(blockdev --getsize64 /dev/nbd0)" -gt 0 ]; }
dirty_bytes() { "$hearth" stats v --json | grep -o '"dirty_bytes": *[0-9]*' | grep -o '[0-9]*$'; }

# The kernel's client, four connections, by the address that hearth gives.
attach() {
    wait_for offered || { "$hearth" volume show v; return 1; }
    uri=$("$hearth" volume show v --json | grep -o 'nbd+unix:[^"]*')
    nbd-client -unix "${uri#*socket=}" /dev/nbd0 -name v -connections 4 -timeout 60 >/dev/null
    wait_for attached
}

if [ "$step" = write ]; then
    mkfs.ext4 -q /dev/vmlab/state
    mount /dev/vmlab/state /mnt/state
    serve
    "$hearth" pool create p --ssd "$(readlink -f /dev/vmlab/ssd)" --ram 8MiB >/dev/null
    "$hearth" volume add v --backing "$(readlink -f /dev/vmlab/disk)" --pool p --mode write-back --export nbd >/dev/null
    attach
    mkfs.ext4 -q /dev/nbd0
    mount /dev/nbd0 /mnt/volume
    head -c 8M "$hearth" >"$kept/large"
    cp "$kept/large" /mnt/volume/large
    umount /mnt/volume
    e2fsck -fn /dev/nbd0 >/dev/null
    blkdiscard -f -o $((200 << 20)) -l $((16 << 20)) /dev/nbd0
    mount /dev/nbd0 /mnt/volume
    cmp "$kept/large" /mnt/volume/large
    echo "the kernel's client: files are as they were"
    for number in $(seq 60); do
        head -c $((number * 1500)) "$hearth" | tr 'a-z' "$(printf '%s' "$number" | tail -c 1)b-z" >/mnt/volume/file$number
        if [ $((number % 3)) = 0 ]; then
            sync /mnt/volume/file$number
            sync -f /mnt/volume
            (cd /mnt/volume && sha256sum file$number) >>"$kept/synced"
        fi
    done
    dirty_bytes >"$kept/dirty"
    echo b >/proc/sysrq-trigger
    sleep 60
fi

mount /dev/vmlab/state /mnt/state
serve
attach
echo "dirty after the panic: $(dirty_bytes) bytes"
mount /dev/nbd0 /mnt/volume
(cd /mnt/volume && sha256sum --quiet -c "$kept/synced")
cmp "$kept/large" /mnt/volume/large
umount /mnt/volume
e2fsck -fn /dev/nbd0 >/dev/null
"$hearth" volume destage v >/dev/null
nbd-client -d /dev/nbd0 >/dev/null
kill $daemon
wait $daemon
# hearth is gone: the disk alone must do.
e2fsck -fn /dev/vmlab/disk >/dev/null
mount -o ro /dev/vmlab/disk /mnt/volume
(cd /mnt/volume && sha256sum --quiet -c "$kept/synced")
umount /mnt/volume
echo "synced files there: $(wc -l <"$kept/synced")"
