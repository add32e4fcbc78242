# Runs as root in a guest. $1 is the binary.
#
# A volume over TCP with TLS, attached by nbd-client (which speaks TLS for the kernel): a file system on it keeps a file, and who is taken
# off the list is put out.
set -eu
hearth=$1
export HEARTH_SOCKET=/run/hearth/socket HEARTH_STATE=/run/hearth/state
mkdir -p /run/hearth /mnt/volume
cd /run/hearth

wait_for() { for _ in $(seq 300); do "$@" >/dev/null 2>&1 && return 0; sleep 0.2; done; echo "gave up waiting: $*" >&2; return 1; }

ip link set lo up
"$hearth" pki init >/dev/null
"$hearth" pki issue guest7 >/dev/null
"$hearth" serve >daemon.log 2>&1 &
wait_for "$hearth" pool list
truncate -s 64M ssd.img
truncate -s 128M disk.img
"$hearth" pool create p --ssd ssd.img --ram 8MiB >/dev/null
"$hearth" volume add v --backing disk.img --pool p --mode write-back --export nbd:127.0.0.1:10809 --tls --tls-names guest7
files=$HEARTH_STATE/pki/guest7
nbd-client 127.0.0.1 10809 /dev/nbd0 -N v -enable-tls -cacertfile $files/ca-cert.pem -certfile $files/client-cert.pem -keyfile $files/client-key.pem -tlshostname localhost
wait_for test "$(blockdev --getsize64 /dev/nbd0)" -gt 0
mkfs.ext4 -q /dev/nbd0
mount /dev/nbd0 /mnt/volume
head -c 8M "$hearth" >large
cp large /mnt/volume/large
umount /mnt/volume
e2fsck -fn /dev/nbd0 >/dev/null
mount /dev/nbd0 /mnt/volume
cmp large /mnt/volume/large
umount /mnt/volume
echo "nbd-client with TLS: the file is as it was"
nbd-client -d /dev/nbd0 >/dev/null
"$hearth" volume set v --tls-names guest8
nbd-client 127.0.0.1 10809 /dev/nbd1 -N v -enable-tls -cacertfile $files/ca-cert.pem -certfile $files/client-cert.pem -keyfile $files/client-key.pem -tlshostname localhost && exit 1
cat daemon.log
