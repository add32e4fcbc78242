#!/usr/bin/env bash
# A disk image that qemu-storage-daemon 7.2 exports over FUSE loses writes: of requests that are under way at the same time, the data of one is
# written to the place of another. One request at a time is right, and no error is reported.
#
# Seen with qemu-storage-daemon 1:7.2+dfsg-7+deb12u18+b3 of Debian 12 (raw image, `--export type=fuse`) and fio 3.33, on Linux 6.18.44. The same fio
# job on the image file itself is right at any depth. Whoever mounts such an export by a loop device, or measures beside it, meets this: ext4
# made on one does not mount.
# Output seen (the count differs from run to run):
#   depth 1: 0 of 4096 blocks are not what was written there
#   depth 16: up to 2592 of 4096 blocks are not what was written there
#   the image file itself, depth 16: 0 of 4096 blocks are not what was written there
# Needs root, /dev/fuse, fio, and qemu-storage-daemon (apt-get download and dpkg -x do, in the temporary folder, where it is not installed).
set -euo pipefail
place=$(mktemp -d)
server=
cleanup() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  [ -z "$server" ] || wait "$server" 2>/dev/null || true
  umount -l "$place/disk" 2>/dev/null || true
  rm -rf "$place"
}
trap cleanup EXIT

if ! command -v qemu-storage-daemon >/dev/null; then
  # Its own libraries are those that a QEMU of the same version needs.
  (cd "$place" && apt-get download "qemu-system-common=1:7.2+dfsg-7+deb12u18+b3" >/dev/null)
  dpkg -x "$place"/qemu-system-common_*.deb "$place/root"
  export PATH="$place/root/usr/bin:$PATH"
fi

blocks=4096
serve() {
  rm -f "$place/image"
  truncate -s "$((blocks * 4096))" "$place/image"
  : > "$place/disk"
  qemu-storage-daemon --blockdev "driver=file,node-name=image,filename=$place/image" \
    --export "type=fuse,id=export,node-name=image,mountpoint=$place/disk,writable=on" &
  server=$!
  for _ in $(seq 100); do
    [ -s "$place/disk" ] && return
    sleep 0.1
  done
  echo "no export"; exit 1
}
end() {
  kill "$server"
  wait "$server" 2>/dev/null || true
  server=
}
write_all() {
  fio --name=w --filename="$1" --rw=randwrite --bs=4k --iodepth="$2" --ioengine=libaio --direct=1 --size="$((blocks * 4096))" \
    --verify=meta --do_verify=0 --verify_state_save=0 --output=/dev/null
}
# Each block begins with fio's header, which says for which place it was written: compared with where it stands in the image.
wrong() {
  python3 - "$place/image" "$blocks" <<'PYTHON'
import struct, sys
data, blocks = open(sys.argv[1], "rb").read(), int(sys.argv[2])
# Magic, kind, length and seed stand before the place.
place = lambda at: struct.unpack_from("<Q", data, at * 4096 + 16)[0]
print(sum(place(at) != at * 4096 for at in range(blocks)))
PYTHON
}
serve; write_all "$place/disk" 1; end; one=$(wrong)
# Which requests meet is chance: the worst of some rounds.
many=0
for _ in $(seq 8); do
  serve; write_all "$place/disk" 16; end; found=$(wrong)
  [ "$found" -le "$many" ] || many=$found
done
rm "$place/image"; truncate -s "$((blocks * 4096))" "$place/image"
write_all "$place/image" 16; plain=$(wrong)
echo "depth 1: $one of $blocks blocks are not what was written there"
echo "depth 16: up to $many of $blocks blocks are not what was written there"
echo "the image file itself, depth 16: $plain of $blocks blocks are not what was written there"
[ "$one" = 0 ] && [ "$plain" = 0 ] && [ "$many" -gt 100 ] || { echo "it is not so any more"; exit 1; }
