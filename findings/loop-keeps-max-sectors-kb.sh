#!/usr/bin/env bash
# A loop device keeps `max_sectors_kb` after it was detached: the next file that gets the number has the limit of the one before.
#
# Seen on Linux 6.18.44 with losetup of util-linux 2.38.1. Expected: what an administrator writes to /sys/block/loopN/queue belongs to what is attached,
# as the sector size does, which is new with each attach. Writing 0 brings the device's own limit back.
# Output seen:
#   fresh: 1280
#   set, then detached and attached anew with another file: 64
#   after writing 0: 1280
# Needs root and loop devices. The SSD cache between an application and its disk is where this hurts: large requests come in pieces of 64 KiB.
set -euo pipefail
place=$(mktemp -d)
device=
cleanup() {
  [ -z "$device" ] || losetup -d "$device" 2>/dev/null || true
  rm -rf "$place"
}
trap cleanup EXIT

truncate -s 64M "$place/first.img" "$place/second.img"
device=$(losetup -f --show "$place/first.img")
limit="/sys/block/${device#/dev/}/queue/max_sectors_kb"
echo 0 > "$limit"
fresh=$(cat "$limit")
echo "fresh: $fresh"
echo 64 > "$limit"
losetup -d "$device"
losetup "$device" "$place/second.img"
kept=$(cat "$limit")
echo "set, then detached and attached anew with another file: $kept"
echo 0 > "$limit"
restored=$(cat "$limit")
echo "after writing 0: $restored"
[ "$fresh" -gt 64 ] && [ "$kept" = 64 ] && [ "$restored" = "$fresh" ] || { echo "it is not so any more"; exit 1; }
